package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"

	"streamd/incremental"
)

// A string view, and the longest string that lies within it, in bytes.
const viewSize, viewShort = 16, 12

// scalars is an array of numbers, booleans, decimals, times or texts: of labels, of
// features that are not viewed as they lie, or of a dictionary of either.
type scalars struct {
	typ   arrayType
	rows  int
	valid []byte // nil: no nulls
	data  []byte // numbers, bits, offsets or views
	text  []byte
	more  [][]byte // of layoutView
}

// isNumbers is whether the elements are integers or floats.
func (s *scalars) isNumbers() bool {
	return s.typ.layout == layoutNumbers || s.typ.layout == layoutHalf
}

// isNull is whether element i is null.
func (s *scalars) isNull(i int) bool { return s.valid != nil && !bit(s.valid, i) }

// numbers writes the elements from i on to dst, until that is full.
func (s *scalars) numbers(dst []float64, i int) {
	if s.typ.layout != layoutHalf {
		columnOf(s.typ.kind, s.data, 0, 1, s.rows).Copy(dst, i)
		return
	}
	for k := range dst {
		dst[k] = float64(half(s.data, i+k))
	}
}

// string is element i of a text. It is not ok if it lies outside its buffer.
func (s *scalars) string(i int) (text []byte, ok bool) {
	var from, to uint64
	text = s.text
	switch s.typ.layout {
	case layoutText:
		from, to = uint64(binary.LittleEndian.Uint32(s.data[4*i:])), uint64(binary.LittleEndian.Uint32(s.data[4*i+4:]))
	case layoutLargeText:
		from, to = binary.LittleEndian.Uint64(s.data[8*i:]), binary.LittleEndian.Uint64(s.data[8*i+8:])
	case layoutView:
		view := s.data[viewSize*i : viewSize*(i+1)]
		n := uint64(binary.LittleEndian.Uint32(view))
		if n <= viewShort {
			return view[4 : 4+n], true
		}
		k := uint64(binary.LittleEndian.Uint32(view[8:]))
		if k >= uint64(len(s.more)) {
			return nil, false
		}
		text, from = s.more[k], uint64(binary.LittleEndian.Uint32(view[12:]))
		to = from + n
	}
	if s.typ.layout == layoutFixed {
		return s.data[s.typ.size*i : s.typ.size*(i+1)], true
	}
	if from > to || to > uint64(len(text)) {
		return nil, false
	}
	return text[from:to], true
}

// instant is element i of an array of times, or of durations since 1970.
func (s *scalars) instant(i int) instant {
	if s.typ.size == 4 {
		return instant{seconds: secondsPerDay * int64(int32(binary.LittleEndian.Uint32(s.data[4*i:])))}
	}
	return instantOf(int64(binary.LittleEndian.Uint64(s.data[8*i:])), s.typ.perSecond)
}

const (
	isNull        = "the value is null: send one, or say what missing values count as"
	outsideBuffer = "the text lies outside its buffer"
)

// spelling is the text of element i of an array of texts, decimals or times, in memory
// of its own or in scratch.
func (s *scalars) spelling(i int, scratch *[]byte) (text []byte, reason string) {
	ok := true
	switch s.typ.layout {
	case layoutDecimal:
		*scratch = appendDecimal((*scratch)[:0], s.data[s.typ.size*i:][:s.typ.size], s.typ.scale)
		return *scratch, ""
	case layoutDuration:
		*scratch = incremental.AppendNumberLabel((*scratch)[:0], s.instant(i).value())
		return *scratch, ""
	case layoutTime:
		if *scratch, ok = s.instant(i).appendLabel((*scratch)[:0]); !ok {
			return nil, "the time is not in the years 0 to 9999"
		}
		return *scratch, ""
	}
	if text, ok = s.string(i); !ok {
		return nil, outsideBuffer
	}
	return text, ""
}

// value is the value of element i as a feature.
func (s *scalars) value(i int, scratch *[]byte) (x float64, reason string) {
	switch s.typ.layout {
	case layoutNumbers, layoutHalf:
		var one [1]float64
		s.numbers(one[:], i)
		return one[0], ""
	case layoutBits:
		return float64(s.data[i/8] >> (i % 8) & 1), ""
	case layoutTime, layoutDuration:
		return s.instant(i).value(), ""
	}
	text, reason := s.spelling(i, scratch)
	if reason != "" {
		return 0, reason
	}
	return textValue(trimPadding(text))
}

// entry is the value of the dictionary's entry with the index. A 64-bit index may have
// been rounded, but not to one that a dictionary has.
func (s *scalars) entry(index float64, scratch *[]byte) (x float64, reason string) {
	switch {
	case index < 0 || index >= float64(s.rows):
		return 0, "the index is outside its dictionary"
	case s.isNull(int(index)):
		return 0, isNull
	}
	return s.value(int(index), scratch)
}

// own copies the memory that the array views.
func (s *scalars) own() {
	s.valid, s.data, s.text = bytes.Clone(s.valid), bytes.Clone(s.data), bytes.Clone(s.text)
	for k := range s.more {
		s.more[k] = bytes.Clone(s.more[k])
	}
}

// scalars reads an array of a column.
func (r *batchReader) scalars(typ arrayType, rows int, column string) (s scalars, err error) {
	s = scalars{typ: typ, rows: rows}
	nulls, ok := r.node(rows)
	if !ok {
		return s, r.a.fail(-1, column, "an array's length or null count is malformed")
	}
	if s.valid, err = r.validity(nulls, rows); err == nil && r.outer != nil {
		s.valid, err = r.within(s.valid)
	}
	if err != nil {
		return s, err
	}
	size := 0
	switch typ.layout {
	case layoutNumbers, layoutHalf, layoutTime, layoutDuration, layoutDecimal, layoutFixed:
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
	if s.data, err = r.buffer(size); err != nil {
		return s, err
	}
	switch typ.layout {
	case layoutNumbers:
		s.data, err = r.a.aligned(s.data, typ.size)
	case layoutText, layoutLargeText:
		s.text, err = r.buffer(0)
	case layoutView:
		if r.varLeft == 0 {
			return s, r.a.fail(-1, column, "a view's buffers are not counted")
		}
		n := r.a.meta.i64(r.variadic)
		r.variadic, r.varLeft = r.variadic+8, r.varLeft-1
		if n < 0 || n > int64(r.buffLeft) {
			return s, r.a.fail(-1, column, "a record batch has too few buffers")
		}
		for range n {
			b, err := r.buffer(0)
			if err != nil {
				return s, err
			}
			s.more = append(s.more, b)
		}
	}
	return s, err
}

// converted reads the arrays of field k and converts their values to float64.
func (r *batchReader) converted(k int) ([]byte, error) {
	a := r.a
	field := &a.plan.fields[k]
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	s, err := r.scalars(typ, r.rows, field.name)
	if err != nil {
		return nil, err
	}
	entries := &s
	if field.encoded {
		if entries = &a.dictionaries[k]; entries.rows < 0 {
			return nil, a.fail(-1, field.name, "the stream has no dictionary for the column")
		}
	}
	out, err := a.allocate(8 * r.rows)
	if err != nil {
		return nil, err
	}
	for i := range r.rows {
		x, reason := 0.0, isNull
		switch {
		case field.gaps && r.isGap(&s, entries, field, i):
			x, reason = math.NaN(), ""
		case !s.isNull(i):
			x, reason = s.value(i, &a.scratch)
			if field.encoded { // x is an index
				x, reason = entries.entry(x, &a.scratch)
			}
		}
		if reason != "" {
			r.badRow(i, field.name, reason)
			return out, nil
		}
		binary.NativeEndian.PutUint64(out[8*i:], math.Float64bits(x))
	}
	return out, nil
}

// isGap is whether element i is missing: null, or a text for that.
func (r *batchReader) isGap(s, entries *scalars, field *arrowField, i int) bool {
	if s.isNull(i) {
		return true
	}
	if field.encoded {
		index, reason := s.value(i, &r.a.scratch)
		if i = int(index); reason != "" || index < 0 || index >= float64(entries.rows) {
			return false
		}
		if entries.isNull(i) {
			return true
		}
	}
	switch entries.typ.layout {
	case layoutText, layoutLargeText, layoutView, layoutFixed:
		text, ok := entries.string(i)
		return ok && isMissing(trimPadding(text))
	}
	return false
}

// appendDecimal appends the decimal of an integer in two's complement, of 4, 8, 16 or 32
// bytes in little-endian order, with so many of its digits behind the point.
func appendDecimal(dst, integer []byte, scale int) []byte {
	const chunk, chunkDigits = 1e19, 19
	var words [4]uint64
	fill := uint64(int64(int8(integer[len(integer)-1])) >> 7) // of the sign
	for k := range words {
		switch {
		case 8*k+8 <= len(integer):
			words[k] = binary.LittleEndian.Uint64(integer[8*k:])
		case 8*k < len(integer):
			words[k] = fill<<32 | uint64(binary.LittleEndian.Uint32(integer[8*k:]))
		default:
			words[k] = fill
		}
	}
	if fill != 0 {
		dst = append(dst, '-')
		carry := uint64(1)
		for k, word := range words {
			words[k], carry = bits.Add64(^word, 0, carry)
		}
	}
	var text [5 * chunkDigits]byte
	at := len(text)
	for words != [4]uint64{} {
		rest := uint64(0)
		for k := len(words) - 1; k >= 0; k-- {
			words[k], rest = bits.Div64(rest, words[k], chunk)
		}
		for range chunkDigits {
			at--
			text[at] = '0' + byte(rest%10)
			rest /= 10
		}
	}
	digits := bytes.TrimLeft(text[at:], "0")
	whole := max(len(digits)-max(scale, 0), 0)
	if whole == 0 {
		dst = append(dst, '0')
	}
	dst = append(dst, digits[:whole]...)
	if scale > 0 {
		dst = append(dst, '.')
		for range scale - (len(digits) - whole) {
			dst = append(dst, '0')
		}
		dst = append(dst, digits[whole:]...)
	}
	if scale < 0 {
		dst = strconv.AppendInt(append(dst, 'e'), int64(-scale), 10)
	}
	return dst
}
