package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/float16"

	"streamd/incremental/gram"
)

// A string view, and the longest string that lies within it, in bytes.
const viewSize, viewShort = 16, 12

// labelArray is an array of labels.
type labelArray struct {
	typ   arrayType
	rows  int
	valid []byte // nil: no nulls
	data  []byte // numbers, bits, offsets or views
	text  []byte
	more  [][]byte // of layoutView
}

// bits are those of element i, a number.
func (a *labelArray) bits(i int) uint64 {
	switch at := a.data[i*a.typ.size:]; a.typ.size {
	case 1:
		return uint64(at[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(at))
	case 4:
		return uint64(binary.LittleEndian.Uint32(at))
	default:
		return binary.LittleEndian.Uint64(at)
	}
}

// own copies what the array is a view of.
func (a *labelArray) own() {
	a.valid, a.data, a.text = bytes.Clone(a.valid), bytes.Clone(a.data), bytes.Clone(a.text)
	for k := range a.more {
		a.more[k] = bytes.Clone(a.more[k])
	}
}

// forgetCodes makes the dictionary one of which no entry has a code.
func (s *arrowState) forgetCodes() {
	n := max(s.dictionary.rows, 0)
	s.codes = slices.Grow(s.codes[:0], n)[:n]
	for i := range s.codes {
		s.codes[i] = -1
	}
}

// label takes in the labels of a batch.
func (r *batchReader) label(field *arrowField) error {
	d, s := r.d, &r.d.arrow
	s.parts = append(s.parts, nil)
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	var err error
	if s.labels, err = r.labelArray(typ, r.rows); err != nil || d.unlabelled {
		return err
	}
	a := &s.labels
	if a.valid != nil {
		for i := range a.rows {
			if !bit(a.valid, i) {
				r.badRow(r.row0+i, field.name, "the label is null")
				return nil
			}
		}
	}
	bad, reason := d.labelCodes(field, a)
	if reason != "" {
		r.badRow(r.row0+bad, field.name, reason)
	}
	return nil
}

// labelArray reads an array of labels.
func (r *batchReader) labelArray(typ arrayType, rows int) (a labelArray, err error) {
	a = labelArray{typ: typ, rows: rows}
	nulls, ok := r.node(rows)
	if !ok {
		return a, r.d.fail(-1, r.d.opts.Label, "an array's length or null count is malformed")
	}
	if a.valid, err = r.validity(nulls, rows); err != nil {
		return a, err
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
	if a.data, err = r.buffer(size); err != nil {
		return a, err
	}
	switch typ.layout {
	case layoutNumbers:
		a.data, err = r.d.aligned(a.data, typ.size)
	case layoutText, layoutLargeText:
		a.text, err = r.buffer(0)
	case layoutView:
		if r.varLeft == 0 {
			return a, r.d.fail(-1, r.d.opts.Label, "a view's buffers are not counted")
		}
		n := r.f.i64(r.variadic)
		r.variadic, r.varLeft = r.variadic+8, r.varLeft-1
		if n < 0 || n > int64(r.buffLeft) {
			return a, r.d.fail(-1, r.d.opts.Label, "a record batch has too few buffers")
		}
		for range n {
			b, err := r.buffer(0)
			if err != nil {
				return a, err
			}
			a.more = append(a.more, b)
		}
	}
	return a, err
}

// arrowDictionary takes in the label's dictionary.
func (d *Decoder) arrowDictionary(f *flatbuffer, dictionary table) error {
	s := &d.arrow
	id := f.longField(dictionary, 0)
	delta := f.byteField(dictionary, 2) != 0
	data, ok := f.tableField(dictionary, 1)
	if f.bad || !ok {
		return d.fail(-1, "", "a dictionary's metadata is malformed")
	}
	k := slices.IndexFunc(s.fields, func(a arrowField) bool { return a.encoded && a.id == id })
	if k < 0 {
		return d.fail(-1, "", "a dictionary that no column refers to")
	}
	if delta {
		return d.fail(-1, s.fields[k].name, "dictionary deltas are not supported; write the dictionary whole")
	}
	r, err := d.newBatchReader(f, data)
	if err != nil {
		return err
	}
	a, err := r.labelArray(s.fields[k].typ, r.rows)
	if err != nil {
		return err
	}
	s.dictionary = a
	s.forgetCodes()
	return nil
}

// labelCodes appends the codes of an array without nulls, of a row or more. On
// failure it returns the first bad element and the reason.
func (d *Decoder) labelCodes(field *arrowField, a *labelArray) (bad int, reason string) {
	if field.encoded && d.arrow.dictionary.rows < 0 {
		return 0, "the stream has no dictionary for the labels"
	}
	before := len(d.codes)
	d.codes = slices.Grow(d.codes, a.rows)[:before+a.rows]
	codes := d.codes[before:]
	i := 0
	if field.encoded {
		switch a.typ.size {
		case 1:
			return dictionaryCodes[uint8](d, codes, a, i)
		case 2:
			return dictionaryCodes[uint16](d, codes, a, i)
		case 4:
			return dictionaryCodes[uint32](d, codes, a, i)
		default:
			return dictionaryCodes[uint64](d, codes, a, i)
		}
	}
	switch a.typ.kind {
	case gram.Int8:
		return numberCodes[int8](d, codes, a, i)
	case gram.Int16:
		return numberCodes[int16](d, codes, a, i)
	case gram.Int32:
		return numberCodes[int32](d, codes, a, i)
	case gram.Int64:
		return numberCodes[int64](d, codes, a, i)
	case gram.Uint8:
		return numberCodes[uint8](d, codes, a, i)
	case gram.Uint16:
		return numberCodes[uint16](d, codes, a, i)
	case gram.Uint32:
		return numberCodes[uint32](d, codes, a, i)
	case gram.Uint64:
		return numberCodes[uint64](d, codes, a, i)
	case gram.Float32:
		return numberCodes[float32](d, codes, a, i)
	case gram.Float64:
		return numberCodes[float64](d, codes, a, i)
	}
	for ; i < a.rows; i++ {
		if codes[i], reason = d.labelCode(a, i); reason != "" {
			return i, reason
		}
	}
	return 0, ""
}

// elements are those of an array of numbers.
func elements[T gram.Number](a *labelArray) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(a.data))), a.rows)
}

// numberCodes is labelCodes for numbers from element i on.
func numberCodes[T gram.Number](d *Decoder, codes []int32, a *labelArray, i int) (bad int, reason string) {
	data := elements[T](a)
	codes = codes[:len(data)]
	small := &d.labels.small
	for i < len(data) {
		// The fast way is for small integers that the block has had before: most
		// rows, and four at a time. A code that is missing is negative, and so is
		// the union of codes with it.
		for ; i+4 <= len(data); i += 4 {
			x, to := data[i:i+4:i+4], codes[i:i+4:i+4]
			p, q, r, s := smallLabel(x[0]), smallLabel(x[1]), smallLabel(x[2]), smallLabel(x[3])
			if p|q|r|s >= smallLabels {
				break
			}
			to[0], to[1], to[2], to[3] = small[p%smallLabels], small[q%smallLabels], small[r%smallLabels], small[s%smallLabels]
			if to[0]|to[1]|to[2]|to[3] < 0 {
				break
			}
		}
		for stop := min(i+4, len(data)); i < stop; i++ {
			if codes[i], reason = d.numberCode(float64(data[i]), a.typ.kind); reason != "" {
				return i, reason
			}
		}
	}
	return 0, ""
}

// smallLabel is the place of a label in labels.small, or beyond it.
func smallLabel[T gram.Number](x T) uint64 {
	v := int64(x)
	unsigned := T(0)-1 > 0 // and then v < 0 was huge
	if T(v) != x || unsigned && v < 0 {
		return smallLabels
	}
	return uint64(v + smallLabels/2)
}

// numberCode is the code of a label that was of the kind.
func (d *Decoder) numberCode(x float64, kind gram.Kind) (code int32, reason string) {
	// Beyond this an integer may share its float64 with a neighbour.
	if (kind == gram.Int64 || kind == gram.Uint64) && math.Abs(x) >= 1<<53 {
		return -1, fmt.Sprintf("the label, about %v, has more than 53 bits; send it as a string", x)
	}
	return d.labels.number(x)
}

// dictionaryCodes is labelCodes for indices into the dictionary from element i on.
func dictionaryCodes[T uint8 | uint16 | uint32 | uint64](d *Decoder, codes []int32, a *labelArray, i int) (bad int, reason string) {
	data, known := elements[T](a), d.arrow.codes
	codes = codes[:len(data)]
	for ; i < len(data); i++ {
		if k := uint64(data[i]); k < uint64(len(known)) && known[k] >= 0 {
			codes[i] = known[k]
		} else if codes[i], reason = d.dictionaryCode(a, i); reason != "" {
			return i, reason
		}
	}
	return 0, ""
}

// dictionaryCode is the code of the entry that element i is the index of.
func (d *Decoder) dictionaryCode(a *labelArray, i int) (code int32, reason string) {
	s := &d.arrow
	k := a.bits(i)
	negative := a.typ.kind < gram.Uint8 && k>>(8*a.typ.size-1) != 0
	if negative || k >= uint64(len(s.codes)) {
		return -1, "the label's index is outside its dictionary"
	}
	if code = s.codes[k]; code >= 0 {
		return code, ""
	}
	if valid := s.dictionary.valid; valid != nil && !bit(valid, int(k)) {
		return -1, "the label is null"
	}
	code, reason = d.labelCode(&s.dictionary, int(k))
	s.codes[k] = code
	return code, reason
}

// labelCode is the code of element i.
func (d *Decoder) labelCode(a *labelArray, i int) (code int32, reason string) {
	const outside = "the label lies outside its buffer"
	var from, to uint64
	text := a.text
	switch a.typ.layout {
	case layoutBits:
		if bit(a.data, i) {
			return d.labels.number(1)
		}
		return d.labels.number(0)
	case layoutHalf:
		return d.labels.number(float64(float16.FromBits(binary.LittleEndian.Uint16(a.data[2*i:])).Float32()))
	case layoutNumbers:
		x := columnOf(a.typ.kind, a.data[i*a.typ.size:], 0, 1, 1)
		return d.numberCode(x.At(0), a.typ.kind)
	case layoutText:
		from, to = uint64(binary.LittleEndian.Uint32(a.data[4*i:])), uint64(binary.LittleEndian.Uint32(a.data[4*i+4:]))
	case layoutLargeText:
		from, to = binary.LittleEndian.Uint64(a.data[8*i:]), binary.LittleEndian.Uint64(a.data[8*i+8:])
	case layoutView:
		view := a.data[viewSize*i : viewSize*(i+1)]
		n := uint64(binary.LittleEndian.Uint32(view))
		if n <= viewShort {
			text, from, to = view, 4, 4+n
			break
		}
		k := uint64(binary.LittleEndian.Uint32(view[8:]))
		if k >= uint64(len(a.more)) {
			return -1, outside
		}
		text, from = a.more[k], uint64(binary.LittleEndian.Uint32(view[12:]))
		to = from + n
	}
	if from > to || to > uint64(len(text)) {
		return -1, outside
	}
	return d.labels.verbatim(text[from:to])
}
