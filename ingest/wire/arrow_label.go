package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"streamd/incremental/gram"
)

// labels reads the labels of a batch.
func (r *batchReader) labels(field *arrowField) (err error) {
	a := r.a
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	l := &a.batchLabels
	if typ.layout == layoutNull {
		return r.nullLabels(field)
	}
	if *l, err = r.scalars(typ, r.rows, field.name); err != nil {
		return err
	}
	if bad, reason := a.labelCodes(l, field.encoded); reason != "" {
		r.badRow(bad, field.name, reason)
	}
	return nil
}

// nullLabels reads an array of the type null, which has no buffers.
func (r *batchReader) nullLabels(field *arrowField) error {
	if _, ok := r.node(r.rows); !ok {
		return r.a.fail(-1, field.name, "an array's length or null count is malformed")
	}
	code, reason := r.a.labels.absent(labelIsNull)
	if reason != "" {
		r.badRow(0, field.name, reason)
	}
	for range r.rows {
		r.a.codes = append(r.a.codes, code)
	}
	return nil
}

// readDictionary reads a dictionary, of the label or of features.
func (a *arrowReader) readDictionary(dictionary table) error {
	f := &a.meta
	id := f.i64(f.field(dictionary, 0))
	delta := f.u8(f.field(dictionary, 2)) != 0
	data, ok := f.tableField(dictionary, 1)
	if f.bad || !ok {
		return a.fail(-1, "", "a dictionary's metadata is malformed")
	}
	fields := a.plan.fields
	first := slices.IndexFunc(fields, func(field arrowField) bool { return field.sharesDictionary(id) })
	if first < 0 && a.plan.ignores { // a field that is ignored may refer to it
		return nil
	}
	if first < 0 {
		return a.fail(-1, "", "a dictionary that no column refers to")
	}
	if delta {
		return a.fail(-1, fields[first].name, "dictionary deltas are not supported; write the dictionary whole")
	}
	r, err := a.newBatchReader(data)
	if err != nil {
		return err
	}
	entries, err := r.scalars(fields[first].typ, r.rows, fields[first].name)
	if err != nil {
		return err
	}
	for k := range fields {
		if !fields[k].sharesDictionary(id) {
			continue
		}
		entries.typ = fields[k].typ
		if entries.typ != fields[first].typ {
			return a.fail(-1, fields[k].name, "the column shares its dictionary with one of another type")
		}
		if a.dictionaries[k] = entries; fields[k].role == roleLabel {
			a.dictionary = entries
			a.forgetCodes()
		}
	}
	return nil
}

// forgetDictionaries makes the stream one that has no dictionary yet.
func (a *arrowReader) forgetDictionaries() {
	a.dictionary = scalars{rows: -1}
	a.dictionaries = a.dictionaries[:0]
	for range a.plan.fields {
		a.dictionaries = append(a.dictionaries, a.dictionary)
	}
	a.forgetCodes()
}

// ownDictionaries copies the memory of the dictionaries that a message has brought.
func (a *arrowReader) ownDictionaries() {
	for k := range a.dictionaries {
		a.dictionaries[k].own()
		if a.plan.fields[k].role == roleLabel {
			a.dictionary = a.dictionaries[k]
		}
	}
}

// forgetCodes takes the codes of the dictionary's entries back.
func (a *arrowReader) forgetCodes() {
	n := max(a.dictionary.rows, 0)
	a.entryCodes = slices.Grow(a.entryCodes[:0], n)[:n]
	for i := range a.entryCodes {
		a.entryCodes[i] = -1
	}
}

// labelCodes appends the codes of an array: of labels, or of indices into the
// dictionary. On failure it returns the first bad element and the reason.
func (a *arrowReader) labelCodes(l *scalars, indices bool) (bad int, reason string) {
	if indices && a.dictionary.rows < 0 {
		return 0, "the stream has no dictionary for the labels"
	}
	before := len(a.codes)
	a.codes = slices.Grow(a.codes, l.rows)[:before+l.rows]
	codes := a.codes[before:]
	switch {
	case l.valid != nil:
		for i := range codes {
			if codes[i], reason = a.labelCode(l, i, indices); reason != "" {
				return i, reason
			}
		}
		return 0, ""
	case !l.isNumbers():
		for i := range codes {
			if codes[i], reason = a.spelledCode(l, i); reason != "" {
				return i, reason
			}
		}
		return 0, ""
	}
	// Codes that the block has given already are in one of two tables.
	known, zero := a.labels.small[:], smallLabels/2
	if indices {
		known, zero = a.entryCodes, 0
	}
	for i := 0; i < l.rows; i++ {
		if i += l.knownCodes(codes[i:], i, known, zero); i == l.rows {
			break
		}
		if codes[i], reason = a.labelCode(l, i, indices); reason != "" {
			return i, reason
		}
	}
	return 0, ""
}

// knownCodes writes the codes of the numbers from i on to dst, from a table that has number x in
// place x + zero. It stops at the end, and at a number without a code in the table, and returns
// how many it has written.
func (s *scalars) knownCodes(dst []int32, i int, table []int32, zero int) int {
	if s.typ.layout == layoutHalf {
		return 0
	}
	switch s.typ.kind {
	case gram.Float32:
		return tableCodes(dst, arrow.GetData[float32](s.data)[i:s.rows], table, zero)
	case gram.Float64:
		return tableCodes(dst, arrow.GetData[float64](s.data)[i:s.rows], table, zero)
	case gram.Int8:
		return tableCodes(dst, arrow.GetData[int8](s.data)[i:s.rows], table, zero)
	case gram.Int16:
		return tableCodes(dst, arrow.GetData[int16](s.data)[i:s.rows], table, zero)
	case gram.Int32:
		return tableCodes(dst, arrow.GetData[int32](s.data)[i:s.rows], table, zero)
	case gram.Int64:
		return tableCodes(dst, arrow.GetData[int64](s.data)[i:s.rows], table, zero)
	case gram.Uint8:
		return tableCodes(dst, arrow.GetData[uint8](s.data)[i:s.rows], table, zero)
	case gram.Uint16:
		return tableCodes(dst, arrow.GetData[uint16](s.data)[i:s.rows], table, zero)
	case gram.Uint32:
		return tableCodes(dst, arrow.GetData[uint32](s.data)[i:s.rows], table, zero)
	}
	return tableCodes(dst, arrow.GetData[uint64](s.data)[i:s.rows], table, zero)
}

func tableCodes[T gram.Number](dst []int32, numbers []T, table []int32, zero int) int {
	for i, x := range numbers {
		k := int(x)
		// A uint64 beyond int has another sign than k.
		if uint(k+zero) >= uint(len(table)) || T(k) != x || k < 0 && x >= 0 {
			return i
		}
		code := table[k+zero]
		if code < 0 {
			return i
		}
		dst[i] = code
	}
	return len(numbers)
}

// labelCode is the code of element i of labels, or of indices into the dictionary.
func (a *arrowReader) labelCode(l *scalars, i int, indices bool) (code int32, reason string) {
	switch {
	case l.isNull(i):
		return a.labels.absent(labelIsNull)
	case !l.isNumbers():
		return a.spelledCode(l, i)
	}
	var x [1]float64
	l.numbers(x[:], i)
	if !indices && a.labels.rows && (l.typ.kind == gram.Int64 || l.typ.kind == gram.Uint64) && l.typ.layout != layoutHalf {
		return a.labels.text(l.digits(a.scratch[:0], i))
	}
	if indices {
		return a.entryCode(x[0])
	}
	return a.numberCode(x[0], l.typ.kind)
}

// digits appends those of element i, an integer of 64 bits.
func (s *scalars) digits(dst []byte, i int) []byte {
	if s.typ.kind == gram.Int64 {
		return strconv.AppendInt(dst, arrow.GetData[int64](s.data)[i], 10)
	}
	return strconv.AppendUint(dst, arrow.GetData[uint64](s.data)[i], 10)
}

// spelledCode is the code of element i of labels that are no numbers.
func (a *arrowReader) spelledCode(l *scalars, i int) (code int32, reason string) {
	if l.typ.layout == layoutBits {
		return a.labels.boolean(bit(l.data, i))
	}
	label, reason := l.spelling(i, &a.scratch)
	if reason != "" {
		return -1, reason
	}
	return a.labels.text(label)
}

// numberCode is the code of a label that was of the kind.
func (a *arrowReader) numberCode(x float64, kind gram.Kind) (code int32, reason string) {
	// Beyond this an integer may share its float64 with a neighbour.
	if (kind == gram.Int64 || kind == gram.Uint64) && math.Abs(x) >= 1<<53 {
		return -1, fmt.Sprintf("the label, about %v, has more than 53 bits; send it as a string", x)
	}
	return a.labels.number(x)
}

// entryCode gives the dictionary's entry with the index its code. A 64-bit index may
// have been rounded, but not to one that a dictionary has.
func (a *arrowReader) entryCode(index float64) (code int32, reason string) {
	if index < 0 || index >= float64(len(a.entryCodes)) {
		return -1, "the label's index is outside its dictionary"
	}
	k := int(index)
	if code = a.entryCodes[k]; code >= 0 {
		return code, ""
	}
	code, reason = a.labelCode(&a.dictionary, k, false)
	a.entryCodes[k] = code
	return code, reason
}
