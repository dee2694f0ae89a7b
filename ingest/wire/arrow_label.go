package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/gram"
)

// A string view, and the longest string that lies within it, in bytes.
const viewSize, viewShort = 16, 12

// labelArray is an array of labels, or of indices into a dictionary of labels.
type labelArray struct {
	typ   arrayType
	rows  int
	valid []byte // nil: no nulls
	data  []byte // numbers, bits, offsets or views
	text  []byte
	more  [][]byte // of layoutView
}

// isText is whether the labels are strings.
func (l *labelArray) isText() bool {
	switch l.typ.layout {
	case layoutText, layoutLargeText, layoutView:
		return true
	}
	return false
}

// numbers writes the elements from i on to dst, until that is full.
func (l *labelArray) numbers(dst []float64, i int) {
	switch l.typ.layout {
	case layoutHalf:
		for k := range dst {
			dst[k] = float64(half(l.data, i+k))
		}
	default:
		columnOf(l.typ.kind, l.data, 0, 1, l.rows).Copy(dst, i)
	}
}

// string is element i of a text. It is not ok if it lies outside its buffer.
func (l *labelArray) string(i int) (s []byte, ok bool) {
	var from, to uint64
	text := l.text
	switch l.typ.layout {
	case layoutText:
		from, to = uint64(binary.LittleEndian.Uint32(l.data[4*i:])), uint64(binary.LittleEndian.Uint32(l.data[4*i+4:]))
	case layoutLargeText:
		from, to = binary.LittleEndian.Uint64(l.data[8*i:]), binary.LittleEndian.Uint64(l.data[8*i+8:])
	case layoutView:
		view := l.data[viewSize*i : viewSize*(i+1)]
		n := uint64(binary.LittleEndian.Uint32(view))
		if n <= viewShort {
			return view[4 : 4+n], true
		}
		k := uint64(binary.LittleEndian.Uint32(view[8:]))
		if k >= uint64(len(l.more)) {
			return nil, false
		}
		text, from = l.more[k], uint64(binary.LittleEndian.Uint32(view[12:]))
		to = from + n
	}
	if from > to || to > uint64(len(text)) {
		return nil, false
	}
	return text[from:to], true
}

// own copies the memory that the array views.
func (l *labelArray) own() {
	l.valid, l.data, l.text = bytes.Clone(l.valid), bytes.Clone(l.data), bytes.Clone(l.text)
	for k := range l.more {
		l.more[k] = bytes.Clone(l.more[k])
	}
}

// labels reads the labels of a batch.
func (r *batchReader) labels(field *arrowField) (err error) {
	a := r.a
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	l := &a.batchLabels
	if *l, err = r.labelArray(typ, r.rows); err != nil || a.unlabelled {
		return err
	}
	for i := 0; l.valid != nil && i < l.rows; i++ {
		if !bit(l.valid, i) {
			r.badRow(i, field.name, "the label is null")
			return nil
		}
	}
	if bad, reason := a.labelCodes(l, field.encoded); reason != "" {
		r.badRow(bad, field.name, reason)
	}
	return nil
}

// labelArray reads an array of labels.
func (r *batchReader) labelArray(typ arrayType, rows int) (l labelArray, err error) {
	l = labelArray{typ: typ, rows: rows}
	label := r.a.opts.Label
	nulls, ok := r.node(rows)
	if !ok {
		return l, r.a.fail(-1, label, "an array's length or null count is malformed")
	}
	if l.valid, err = r.validity(nulls, rows); err != nil {
		return l, err
	}
	size := 0
	switch typ.layout {
	case layoutNumbers, layoutHalf:
		size = rows * typ.size
	case layoutBits:
		size = (rows + 7) / 8
	case layoutText:
		size = 4 * (rows + 1)
	case layoutLargeText:
		size = 8 * (rows + 1)
	case layoutView:
		size = viewSize * rows
	}
	if rows == 0 { // an empty array may leave its offsets out
		size = 0
	}
	if l.data, err = r.buffer(size); err != nil {
		return l, err
	}
	switch typ.layout {
	case layoutNumbers:
		l.data, err = r.a.aligned(l.data, typ.size)
	case layoutText, layoutLargeText:
		l.text, err = r.buffer(0)
	case layoutView:
		if r.varLeft == 0 {
			return l, r.a.fail(-1, label, "a view's buffers are not counted")
		}
		n := r.a.meta.i64(r.variadic)
		r.variadic, r.varLeft = r.variadic+8, r.varLeft-1
		if n < 0 || n > int64(r.buffLeft) {
			return l, r.a.fail(-1, label, "a record batch has too few buffers")
		}
		for range n {
			b, err := r.buffer(0)
			if err != nil {
				return l, err
			}
			l.more = append(l.more, b)
		}
	}
	return l, err
}

// readDictionary reads the label's dictionary.
func (a *arrowReader) readDictionary(dictionary table) error {
	f := &a.meta
	id := f.i64(f.field(dictionary, 0))
	delta := f.u8(f.field(dictionary, 2)) != 0
	data, ok := f.tableField(dictionary, 1)
	if f.bad || !ok {
		return a.fail(-1, "", "a dictionary's metadata is malformed")
	}
	k := slices.IndexFunc(a.plan.fields, func(field arrowField) bool { return field.encoded && field.role != roleIgnored && field.id == id })
	if k < 0 && a.plan.ignores { // a field that is ignored may refer to it
		return nil
	}
	if k < 0 {
		return a.fail(-1, "", "a dictionary that no column refers to")
	}
	if delta {
		return a.fail(-1, a.plan.fields[k].name, "dictionary deltas are not supported; write the dictionary whole")
	}
	r, err := a.newBatchReader(data)
	if err != nil {
		return err
	}
	l, err := r.labelArray(a.plan.fields[k].typ, r.rows)
	if err != nil {
		return err
	}
	a.dictionary = l
	a.forgetCodes()
	return nil
}

// forgetCodes takes the codes of the dictionary's entries back.
func (a *arrowReader) forgetCodes() {
	n := max(a.dictionary.rows, 0)
	a.entryCodes = slices.Grow(a.entryCodes[:0], n)[:n]
	for i := range a.entryCodes {
		a.entryCodes[i] = -1
	}
}

// labelCodes appends the codes of an array without nulls: of labels, or of indices
// into the dictionary. On failure it returns the first bad element and the reason.
func (a *arrowReader) labelCodes(l *labelArray, indices bool) (bad int, reason string) {
	if indices && a.dictionary.rows < 0 {
		return 0, "the stream has no dictionary for the labels"
	}
	before := len(a.codes)
	a.codes = slices.Grow(a.codes, l.rows)[:before+l.rows]
	codes := a.codes[before:]
	if l.isText() {
		for i := range codes {
			if codes[i], reason = a.textCode(l, i); reason != "" {
				return i, reason
			}
		}
		return 0, ""
	}
	if l.typ.layout == layoutBits {
		for i := range codes {
			if codes[i], reason = a.labels.boolean(bit(l.data, i)); reason != "" {
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
	var tile [256]float64
	for from := 0; from < l.rows; from += len(tile) {
		numbers := tile[:min(len(tile), l.rows-from)]
		l.numbers(numbers, from)
		to := codes[from:][:len(numbers)]
		for i, x := range numbers {
			code := int32(-1)
			if k := int(x); uint(k+zero) < uint(len(known)) && float64(k) == x {
				code = known[k+zero]
			}
			if code < 0 {
				if indices {
					code, reason = a.entryCode(x)
				} else {
					code, reason = a.numberCode(x, l.typ.kind)
				}
				if reason != "" {
					return from + i, reason
				}
			}
			to[i] = code
		}
	}
	return 0, ""
}

// textCode is the code of a label that is element i of a text.
func (a *arrowReader) textCode(l *labelArray, i int) (code int32, reason string) {
	label, ok := l.string(i)
	if !ok {
		return -1, "the label lies outside its buffer"
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
	k, d := int(index), &a.dictionary
	if d.valid != nil && !bit(d.valid, k) {
		return -1, "the label is null"
	}
	switch {
	case d.isText():
		code, reason = a.textCode(d, k)
	case d.typ.layout == layoutBits:
		code, reason = a.labels.boolean(bit(d.data, k))
	default:
		var x [1]float64
		d.numbers(x[:], k)
		code, reason = a.numberCode(x[0], d.typ.kind)
	}
	a.entryCodes[k] = code
	return code, reason
}
