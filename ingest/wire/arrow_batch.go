package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow/float16"
)

// batchReader walks through the arrays of a record batch or of a dictionary.
type batchReader struct {
	a         *arrowReader
	nodes     int // the position of the vectors' next elements, and how many are left
	nodesLeft int
	buffers   int
	buffLeft  int
	variadic  int
	varLeft   int
	bodyLeft  int64 // bytes of the body that no buffer has taken yet
	rows      int
	bad       *Error // of the first bad row so far
	gaps      []byte // validity of the field's values, where nulls were let pass
	outer     []byte // validity of the structs around the field; nil: they have no nulls
}

func (a *arrowReader) newBatchReader(batch table) (r batchReader, err error) {
	f := &a.meta
	r = batchReader{a: a, bodyLeft: int64(len(a.body))}
	rows := f.i64(f.field(batch, 0))
	r.nodes, r.nodesLeft = f.vectorField(batch, 1, 16)
	r.buffers, r.buffLeft = f.vectorField(batch, 2, 16)
	r.variadic, r.varLeft = f.vectorField(batch, 4, 8)
	a.decompress.codec = codecNone
	if c, ok := f.tableField(batch, 3); ok {
		codec, method := f.u8(f.field(c, 0)), f.u8(f.field(c, 1))
		if method != 0 || codec > codecZstd {
			return r, a.fail(-1, "", "compression %d/%d is not supported: want LZ4 frame or Zstandard", codec, method)
		}
		a.decompress.codec = codec
	}
	switch {
	case f.bad || rows < 0:
		return r, a.fail(-1, "", "a record batch's metadata is malformed")
	case rows > int64(a.opts.Limits.Rows):
		return r, a.fail(-1, "", "a record batch has %d rows, the limit is %d", rows, a.opts.Limits.Rows)
	}
	r.rows = int(rows)
	return r, nil
}

// node reads the next array's length, which must be want, and its nulls.
func (r *batchReader) node(want int) (nulls int64, ok bool) {
	if r.nodesLeft == 0 {
		return 0, false
	}
	n := r.a.meta.i64(r.nodes)
	nulls = r.a.meta.i64(r.nodes + 8)
	r.nodes, r.nodesLeft = r.nodes+16, r.nodesLeft-1
	return nulls, n == int64(want) && nulls >= 0 && nulls <= n
}

// skip passes over a buffer.
func (r *batchReader) skip() bool {
	if r.buffLeft == 0 {
		return false
	}
	r.buffers, r.buffLeft = r.buffers+16, r.buffLeft-1
	return true
}

// buffer reads the next buffer, of at least min bytes. The buffers of a body together
// are no longer than the body: writers put one behind the other, and a body whose
// buffers overlap could stand for thousands of times as many numbers as it has bytes.
func (r *batchReader) buffer(min int) ([]byte, error) {
	at := r.buffers
	if !r.skip() {
		return nil, r.a.fail(-1, "", "a record batch has too few buffers")
	}
	offset, n := r.a.meta.i64(at), r.a.meta.i64(at+8)
	body := r.a.body
	if offset < 0 || n < 0 || offset > int64(len(body)) || n > int64(len(body))-offset {
		return nil, r.a.fail(-1, "", "a buffer lies outside its message")
	}
	if r.bodyLeft -= n; r.bodyLeft < 0 {
		return nil, r.a.fail(-1, "", "the buffers of a record batch overlap")
	}
	b := body[offset : offset+n]
	if r.a.decompress.codec != codecNone && len(b) > 0 {
		var err error
		if b, err = r.a.decompressed(b); err != nil {
			return nil, err
		}
	}
	if len(b) < min {
		return nil, r.a.fail(-1, "", "a buffer has %d bytes, want %d", len(b), min)
	}
	return b, nil
}

// validity reads the validity bitmap of an array with so many nulls; nil: none.
func (r *batchReader) validity(nulls int64, rows int) ([]byte, error) {
	if nulls == 0 {
		if !r.skip() {
			return nil, r.a.fail(-1, "", "a record batch has too few buffers")
		}
		return nil, nil
	}
	return r.buffer((rows + 7) / 8)
}

// badRow notes a bad row of the batch. The columns come one by one, so an earlier row
// than those noted before replaces them.
func (r *batchReader) badRow(row int, column, reason string) {
	if row += r.a.rows; r.bad == nil || row < r.bad.Row {
		r.bad = r.a.fail(row, column, "%s", reason)
	}
}

// noNulls refuses an array with nulls, unless the field takes them; per is the number of
// elements in a row.
func (r *batchReader) noNulls(nulls int64, elements, per int, field *arrowField, takes bool) error {
	valid, err := r.validity(nulls, elements)
	if per == 1 && elements == r.rows && err == nil {
		valid, err = r.within(valid)
	}
	if err != nil || valid == nil {
		return err
	}
	if takes {
		r.gaps = valid
		return nil
	}
	column := field.name
	for i := range elements {
		if !bit(valid, i) {
			r.badRow(i/per, column, isNull)
			return nil
		}
	}
	if nulls == 0 {
		return nil
	}
	return r.a.fail(-1, column, "nulls are announced but there are none")
}

// within is the validity of the rows of a field that has its own: what is in a struct that is null
// is null, whatever the field says.
func (r *batchReader) within(valid []byte) ([]byte, error) {
	if r.outer == nil {
		return valid, nil
	}
	if valid == nil {
		return r.outer, nil
	}
	n := (r.rows + 7) / 8
	both, err := r.a.allocate(n)
	if err != nil {
		return nil, err
	}
	for i := range both[:n] {
		both[i] = valid[i] & r.outer[i]
	}
	return both, nil
}

// structure reads the array of a struct, whose fields come next.
func (r *batchReader) structure(field *arrowField) error {
	nulls, ok := r.node(r.rows)
	if !ok {
		return r.a.fail(-1, field.name, "an array's length or null count is malformed")
	}
	valid, err := r.validity(nulls, r.rows)
	if err == nil {
		valid, err = r.within(valid)
	}
	r.a.around = append(r.a.around, valid)
	return err
}

func bit(b []byte, i int) bool { return b[i/8]>>(i%8)&1 != 0 }

// half is element i of an array of float16.
func half(b []byte, i int) float32 {
	return float16.FromBits(binary.LittleEndian.Uint16(b[2*i:])).Float32()
}

// batch reads a record batch.
func (a *arrowReader) batch(batch table) error {
	r, err := a.newBatchReader(batch)
	if err != nil {
		return err
	}
	if r.rows == 0 {
		return nil
	}
	if limit := a.opts.Limits.Rows; r.rows > limit-a.rows {
		return a.fail(-1, "", "the block has more than %d rows, the limit", limit)
	}
	for k := range a.plan.fields {
		field := &a.plan.fields[k]
		var values []byte
		r.gaps, r.outer = nil, nil
		if a.around = a.around[:field.depth]; field.depth > 0 {
			r.outer = a.around[field.depth-1]
		}
		switch field.role {
		case roleStruct:
			err = r.structure(field)
		case roleLabel:
			err = r.labels(field)
		case roleIgnored:
			err = r.skipArrays(field)
		default:
			values, err = r.values(k)
		}
		if err != nil {
			return err
		}
		a.parts, a.valid = append(a.parts, values), append(a.valid, r.gaps)
	}
	if r.bad != nil {
		return r.bad
	}
	if a.plan.lists && !a.plan.arePlaced() {
		if err := a.placeFields(); err != nil {
			a.plan.schema = nil
			return err
		}
	}
	if r.nodesLeft > 0 || r.buffLeft > 0 {
		return a.fail(-1, "", "a record batch has more arrays than the schema")
	}
	a.rows += r.rows
	a.batches++
	a.batchRows = append(a.batchRows, r.rows)
	return nil
}

// skipArrays passes over the arrays of an ignored field.
func (r *batchReader) skipArrays(field *arrowField) error {
	for _, buffers := range field.arrays {
		n := int64(buffers)
		if buffers == viewBuffers {
			if r.varLeft == 0 {
				return r.a.fail(-1, field.name, "a view's buffers are not counted")
			}
			n = 2 + r.a.meta.i64(r.variadic)
			r.variadic, r.varLeft = r.variadic+8, r.varLeft-1
		}
		if r.nodesLeft == 0 || n < 0 || n > int64(r.buffLeft) {
			return r.a.fail(-1, field.name, "a record batch has too few arrays or buffers")
		}
		r.nodes, r.nodesLeft = r.nodes+16, r.nodesLeft-1
		r.buffers, r.buffLeft = r.buffers+16*int(n), r.buffLeft-int(n)
	}
	return nil
}

// values reads the numbers of field k, a feature or the weight.
func (r *batchReader) values(k int) ([]byte, error) {
	field := &r.a.plan.fields[k]
	switch {
	case field.converted && field.texts != nil:
		return r.codedTexts(k)
	case field.converted:
		return r.converted(k)
	}
	nulls, ok := r.node(r.rows)
	if !ok {
		return nil, r.a.fail(-1, field.name, "an array's length or null count is malformed")
	}
	if field.typ.layout == layoutNull { // it has no buffers
		out, err := r.a.allocate((r.rows + 7) / 8)
		clear(out)
		r.gaps = out
		return nil, err
	}
	if err := r.noNulls(nulls, r.rows, 1, field, field.gaps && field.typ.layout != layoutList); err != nil {
		return nil, err
	}
	switch field.typ.layout {
	case layoutHalf:
		return r.halves()
	case layoutBits:
		return r.bits()
	case layoutList:
		if field.typ.offset > 0 {
			return r.lists(field)
		}
		size := field.length
		if r.rows > math.MaxInt/8/size {
			return nil, r.a.fail(-1, field.name, "the list is too long")
		}
		if nulls, ok = r.node(r.rows * size); !ok {
			return nil, r.a.fail(-1, field.name, "a list's length or null count is malformed")
		}
		if err := r.noNulls(nulls, r.rows*size, size, field, field.gaps); err != nil {
			return nil, err
		}
		return r.numbers(r.rows * size * field.elements.size)
	}
	return r.numbers(r.rows * field.typ.size)
}

// lists reads the numbers of lists with offsets. All must have the length of the first one
// of the stream.
func (r *batchReader) lists(field *arrowField) ([]byte, error) {
	offsets, err := r.buffer((r.rows + 1) * field.typ.offset)
	if err != nil {
		return nil, err
	}
	offset := func(i int) int64 {
		if field.typ.offset == 4 {
			return int64(int32(binary.LittleEndian.Uint32(offsets[4*i:])))
		}
		return int64(binary.LittleEndian.Uint64(offsets[8*i:]))
	}
	first, length := offset(0), int64(field.length)
	if r.nodesLeft == 0 {
		return nil, r.a.fail(-1, field.name, "a record batch has too few arrays")
	}
	n := r.a.meta.i64(r.nodes)
	if length == 0 && r.rows > 0 {
		length = offset(1) - first
	}
	nulls, ok := r.node(int(n))
	// Offsets from 0 on keep the bits of nulls in step with the rows.
	if !ok || n < 0 || n > math.MaxInt/8/8 || first < 0 || nulls > 0 && first > 0 {
		return nil, r.a.fail(-1, field.name, "a list's length, offset or null count is malformed")
	}
	for i := range r.rows {
		switch got := offset(i+1) - offset(i); {
		case got != length && got >= 0 && offset(i+1) <= n:
			r.badRow(i, field.name, fmt.Sprintf("the list has %d numbers, want %d", got, length))
			return nil, r.skipNumbers()
		case got != length || length < 0 || offset(i+1) > n:
			return nil, r.a.fail(-1, field.name, "a list's offsets are malformed")
		}
	}
	if length == 0 {
		r.badRow(0, field.name, "the list is empty")
		return nil, r.skipNumbers()
	}
	if length > int64(r.a.opts.Limits.Features) {
		return nil, r.a.fail(-1, field.name, "the list has %d numbers, the limit is %d features", length, r.a.opts.Limits.Features)
	}
	field.length = int(length)
	if err := r.noNulls(nulls, int(n), int(length), field, field.gaps); err != nil {
		return nil, err
	}
	values, err := r.numbers(int(n) * field.elements.size)
	if err != nil {
		return nil, err
	}
	return values[first*int64(field.elements.size) : offset(r.rows)*int64(field.elements.size)], nil
}

// skipNumbers passes over the buffers of an array of numbers.
func (r *batchReader) skipNumbers() error {
	for range 2 { // validity and values
		if !r.skip() {
			return r.a.fail(-1, "", "a record batch has too few buffers")
		}
	}
	return nil
}

// numbers reads a buffer of n bytes.
func (r *batchReader) numbers(n int) ([]byte, error) {
	b, err := r.buffer(n)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

// halves converts a column of float16 to float32, which is exact.
func (r *batchReader) halves() ([]byte, error) {
	b, err := r.buffer(2 * r.rows)
	if err != nil {
		return nil, err
	}
	out, err := r.a.allocate(4 * r.rows)
	if err != nil {
		return nil, err
	}
	for i := range r.rows {
		binary.NativeEndian.PutUint32(out[4*i:], math.Float32bits(half(b, i)))
	}
	return out, nil
}

// bits converts a column of booleans to bytes.
func (r *batchReader) bits() ([]byte, error) {
	b, err := r.buffer((r.rows + 7) / 8)
	if err != nil {
		return nil, err
	}
	out, err := r.a.allocate(r.rows)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = b[i/8] >> (i % 8) & 1
	}
	return out, nil
}
