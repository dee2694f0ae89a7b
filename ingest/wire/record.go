package wire

import (
	"fmt"
	"math"
	"strconv"

	"streamd/incremental"
)

// recordReader puts the values of records with a schema, those of Avro and Protobuf, where they
// belong in a row. The readers of both formats share it, so that their values mean the same.
type recordReader struct {
	*textRows
	code               int32
	weight             float64
	labelled, weighted bool   // the row has a label, and a weight
	scratch            []byte // of a value's spelling
}

// place is where the values of a leaf of a schema go. It is made once for a schema.
type place struct {
	role  int    // a column, or roleLabel, roleWeight or roleIgnored
	texts *coder // of a column whose values are texts, or nil
	gaps  bool   // the column may have missing values
	name  string
}

// placeOfColumn is the place of a column.
func (r *recordReader) placeOfColumn(at int, names []string, name string) place {
	if at < 0 {
		return place{role: at, name: name}
	}
	return place{role: at, texts: r.textsAt(at), gaps: r.gapped && r.takesMissing(names, at), name: name}
}

// beginRow starts a row.
func (r *recordReader) beginRow() { r.labelled, r.weighted = false, false }

// endRow checks that label and weight are there and adds the row.
func (r *recordReader) endRow() *Error {
	if !r.unlabelled {
		var reason string
		if !r.labelled {
			r.code, reason = r.labels.absent(labelIsMissing)
		}
		if reason != "" {
			return r.fail(r.count, r.opts.Label, "%s", reason)
		}
	}
	if r.textRows.weighted() && !r.weighted {
		return r.fail(r.count, r.opts.Weight, "the weight is missing")
	}
	r.push(r.code, r.weight)
	return nil
}

// refuse is the error of a value.
func (r *recordReader) refuse(p *place, reason string) *Error {
	return r.fail(r.count, p.name, "%s", reason)
}

// setWeight takes the row's weight.
func (r *recordReader) setWeight(x float64) (reason string) {
	r.weight, r.weighted = x, true
	return badWeight(x)
}

// setNumber takes a value that is a number. An integer of more than 53 bits is not exact.
func (r *recordReader) setNumber(p *place, x float64, exact bool) (reason string) {
	switch {
	case p.role >= 0 && p.texts == nil:
		if x-x != 0 { // NaN or infinite
			if math.IsNaN(x) && p.gaps {
				r.row[p.role] = x
				return ""
			}
			return fmt.Sprintf("the number is %v", x)
		}
		r.row[p.role] = x
		return ""
	case p.role == roleIgnored:
		return ""
	case p.role == roleWeight:
		return r.setWeight(x)
	case !exact:
		return fmt.Sprintf("the number, about %v, has more than 53 bits; send it as a string", x)
	case p.role == roleLabel:
		r.labelled = true
		r.code, reason = r.labels.number(x)
		return reason
	}
	r.row[p.role], reason = p.texts.number(x)
	return reason
}

// setInteger takes an integer.
func (r *recordReader) setInteger(p *place, n int64) (reason string) {
	const most = 1 << 53
	if p.role == roleLabel && r.labels.rows {
		r.scratch = strconv.AppendInt(r.scratch[:0], n, 10)
		return r.setText(p, r.scratch)
	}
	return r.setNumber(p, float64(n), n > -most && n < most)
}

// setBoolean takes a value that is a boolean.
func (r *recordReader) setBoolean(p *place, is bool) (reason string) {
	switch {
	case p.role == roleLabel:
		r.labelled = true
		r.code, reason = r.labels.boolean(is)
		return reason
	case p.texts != nil:
		r.row[p.role], reason = p.texts.boolean(is)
		return reason
	}
	x := 0.0
	if is {
		x = 1
	}
	return r.setNumber(p, x, true)
}

// setText takes a text, or a value as it is spelled.
func (r *recordReader) setText(p *place, text []byte) (reason string) {
	switch {
	case p.texts != nil:
		r.row[p.role], reason = p.texts.text(text)
		return reason
	case p.role == roleLabel:
		r.labelled = true
		r.code, reason = r.labels.text(text)
		return reason
	case p.role == roleIgnored:
		return ""
	}
	text = trimPadding(text)
	if p.gaps && isMissing(text) {
		r.row[p.role] = math.NaN()
		return ""
	}
	x, reason := textValue(text)
	if reason != "" {
		return reason
	}
	return r.setNumber(p, x, true)
}

// setTime takes a time.
func (r *recordReader) setTime(p *place, t instant) (reason string) {
	if p.role != roleLabel && p.texts == nil {
		return r.setNumber(p, t.value(), true)
	}
	text, ok := t.appendLabel(r.scratch[:0])
	if r.scratch = text; !ok {
		return "the time is not in the years 0 to 9999"
	}
	return r.setText(p, text)
}

// setSeconds takes a duration.
func (r *recordReader) setSeconds(p *place, t instant) (reason string) {
	if p.role != roleLabel && p.texts == nil {
		return r.setNumber(p, t.value(), true)
	}
	r.scratch = incremental.AppendNumberLabel(r.scratch[:0], t.value())
	return r.setText(p, r.scratch)
}

// setMissing takes a value that is not there.
func (r *recordReader) setMissing(p *place) (reason string) {
	switch {
	case p.role == roleLabel:
		r.labelled = true
		r.code, reason = r.labels.absent(labelIsNull)
		return reason
	case p.role == roleIgnored:
		return ""
	case p.role >= 0 && (p.gaps || p.texts != nil):
		r.row[p.role] = math.NaN()
		return ""
	}
	return isNull
}

// maxDecimal bounds the bytes of a decimal's digits.
const maxDecimal = 32

// setDecimal takes a decimal: an integer in two's complement in big-endian order, with so many of
// its digits behind the point.
func (r *recordReader) setDecimal(p *place, integer []byte, scale int) (reason string) {
	if len(integer) == 0 || len(integer) > maxDecimal {
		return fmt.Sprintf("the decimal has %d bytes: want 1 to %d", len(integer), maxDecimal)
	}
	var turned [maxDecimal]byte
	for i := range turned { // filled up with the sign
		turned[i] = byte(int8(integer[0]) >> 7)
	}
	for i, c := range integer {
		turned[len(integer)-1-i] = c
	}
	r.scratch = appendDecimal(r.scratch[:0], turned[:], scale)
	return r.setText(p, r.scratch)
}
