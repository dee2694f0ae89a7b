package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"streamd/incremental/gram"
)

const (
	continuation       = 0xFFFFFFFF // opens a message
	arrowFileMagic     = "ARROW1"
	compressedHead     = 8         // bytes before a compressed buffer: its length when decompressed
	compressedNotAtAll = int64(-1) // that length for a buffer left as it is
)

// From Arrow's format/Message.fbs.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3

	metadataV4 = 3 // the fourth version; for what is read here the fifth is the same
	metadataV5 = 4

	codecLZ4  = 0
	codecZstd = 1
)

// arrowState is what the decoder keeps between blocks and within one.
type arrowState struct {
	// The plan: the last schema, so that a stream of blocks of one schema reads
	// it once.
	schema     []byte
	unlabelled bool
	fields     []arrowField
	names      []string // of the columns; nil: none
	width      int
	list       []int // of a list: the column that element j goes to

	// The label's dictionary; rows is -1 while there is none.
	dictionary labelArray
	codes      []int32 // per entry its code in this block, or -1

	// The batches of the block in hand.
	rows   int
	parts  [][]byte // values, batch by batch, one part per field
	nbatch int      // with rows; -1: not even the schema has come

	// The message in hand.
	meta   flatbuffer
	body   []byte
	codec  int // -1: none
	labels labelArray

	arena arena
	lz4   *lz4.Reader
	zstd  *zstd.Decoder
	src   bytes.Reader
}

// decodeArrow reads an IPC stream. It does so itself, rather than through
// arrow-go's reader, because that one trusts its input (see flatbuffer), copies
// the body, and builds the schema anew for each block.
func (d *Decoder) decodeArrow(b []byte) error {
	if bytes.HasPrefix(b, []byte(arrowFileMagic)) {
		return d.fail(-1, "", "this is Arrow's file format; write the stream format")
	}
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != continuation {
		return d.fail(-1, "", "this is not an Arrow IPC stream")
	}
	d.beginArrow()
	for i := 0; i < len(b); {
		if len(b)-i < 8 || binary.LittleEndian.Uint32(b[i:]) != continuation {
			return d.fail(-1, "", "byte %d: want a message", i)
		}
		n := int(binary.LittleEndian.Uint32(b[i+4:]))
		if i += 8; n == 0 {
			if i < len(b) {
				return d.fail(-1, "", "byte %d: there is something behind the end of the stream", i)
			}
			break
		}
		if n > len(b)-i {
			return d.fail(-1, "", "byte %d: the message is truncated", i)
		}
		meta := b[i : i+n]
		i += n
		m, err := d.arrowMessage(meta)
		if err != nil {
			return err
		}
		if m.body > int64(len(b)-i) {
			return d.fail(-1, "", "byte %d: the message's body is truncated", i)
		}
		if err := d.arrowBody(m, b[i:i+int(m.body)]); err != nil {
			return err
		}
		i += int(m.body)
	}
	return d.finishArrow()
}

// arrowMessage is a message without its body; arrowState.meta has its bytes.
type arrowMessage struct {
	typ    byte
	header table
	body   int64
}

// arrowMessage reads a message's metadata.
func (d *Decoder) arrowMessage(meta []byte) (m arrowMessage, err error) {
	d.arrow.meta = flatbuffer{b: meta}
	f := &d.arrow.meta
	root := f.root()
	version := f.shortField(root, 0)
	m.typ = f.byteField(root, 1)
	header, ok := f.tableField(root, 2)
	m.header, m.body = header, f.longField(root, 3)
	switch {
	case f.bad || !ok || m.body < 0:
		return m, d.fail(-1, "", "a message's metadata is malformed")
	case version != metadataV4 && version != metadataV5:
		return m, d.fail(-1, "", "metadata version V%d is not supported: want V4 or V5", version+1)
	}
	return m, nil
}

// arrowBody takes a message in.
func (d *Decoder) arrowBody(m arrowMessage, body []byte) error {
	s := &d.arrow
	if first := s.nbatch < 0; first != (m.typ == headerSchema) {
		return d.fail(-1, "", "the schema is not the stream's first message, or not the only one")
	}
	s.body = body
	switch m.typ {
	case headerSchema:
		s.nbatch = 0
		return d.arrowSchema(&s.meta, m.header)
	case headerDictionary:
		return d.arrowDictionary(&s.meta, m.header)
	case headerBatch:
		return d.arrowBatch(&s.meta, m.header)
	}
	return d.fail(-1, "", "a message of type %d where a record batch is expected", m.typ)
}

func (d *Decoder) beginArrow() {
	s := &d.arrow
	s.nbatch = -1 // not even a schema
	s.rows, s.parts = 0, s.parts[:0]
	s.dictionary = labelArray{rows: -1}
	s.arena.reset()
}

// nextArrow is beginArrow for the next block of a stream whose schema, and
// perhaps dictionary, have been read.
func (d *Decoder) nextArrow() {
	s := &d.arrow
	s.nbatch, s.rows, s.parts = 0, 0, s.parts[:0]
	s.arena.reset()
	s.forgetCodes()
}

// batchReader walks through the arrays of a record batch.
type batchReader struct {
	d         *Decoder
	f         *flatbuffer
	nodes     int // where the vectors start, and what is left of them
	nodesLeft int
	buffers   int
	buffLeft  int
	variadic  int
	varLeft   int
	bodyLeft  int64 // bytes of the body that no buffer has taken yet
	rows      int
	row0      int    // rows of earlier batches
	bad       *Error // of the first bad row so far
}

func (d *Decoder) newBatchReader(f *flatbuffer, batch table) (r batchReader, err error) {
	r = batchReader{d: d, f: f, row0: d.arrow.rows, bodyLeft: int64(len(d.arrow.body))}
	rows := f.longField(batch, 0)
	r.nodes, r.nodesLeft = f.vectorField(batch, 1, 16)
	r.buffers, r.buffLeft = f.vectorField(batch, 2, 16)
	r.variadic, r.varLeft = f.vectorField(batch, 4, 8)
	d.arrow.codec = -1
	if c, ok := f.tableField(batch, 3); ok {
		d.arrow.codec = int(f.byteField(c, 0))
		if method := f.byteField(c, 1); method != 0 || d.arrow.codec > codecZstd {
			return r, d.fail(-1, "", "compression %d/%d is not supported: want LZ4 frame or Zstandard", d.arrow.codec, method)
		}
	}
	switch {
	case f.bad || rows < 0:
		return r, d.fail(-1, "", "a record batch's metadata is malformed")
	case rows > int64(d.opts.Limits.Rows):
		return r, d.fail(-1, "", "a record batch has %d rows, the limit is %d", rows, d.opts.Limits.Rows)
	}
	r.rows = int(rows)
	return r, nil
}

// node reads the next array's length, which must be want, and its nulls.
func (r *batchReader) node(want int) (nulls int64, ok bool) {
	if r.nodesLeft == 0 {
		return 0, false
	}
	n := r.f.i64(r.nodes)
	nulls = r.f.i64(r.nodes + 8)
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
		return nil, r.d.fail(-1, "", "a record batch has too few buffers")
	}
	offset, n := r.f.i64(at), r.f.i64(at+8)
	s := &r.d.arrow
	if offset < 0 || n < 0 || offset > int64(len(s.body)) || n > int64(len(s.body))-offset {
		return nil, r.d.fail(-1, "", "a buffer lies outside its message")
	}
	if r.bodyLeft -= n; r.bodyLeft < 0 {
		return nil, r.d.fail(-1, "", "the buffers of a record batch overlap")
	}
	b := s.body[offset : offset+n]
	if s.codec >= 0 && len(b) > 0 {
		var err error
		if b, err = r.d.decompress(b); err != nil {
			return nil, err
		}
	}
	if len(b) < min {
		return nil, r.d.fail(-1, "", "a buffer has %d bytes, want %d", len(b), min)
	}
	return b, nil
}

// decompress undoes a buffer's compression, into the arena.
func (d *Decoder) decompress(b []byte) ([]byte, error) {
	s := &d.arrow
	if len(b) < compressedHead {
		return nil, d.fail(-1, "", "a compressed buffer is truncated")
	}
	n := int64(binary.LittleEndian.Uint64(b))
	b = b[compressedHead:]
	if n == compressedNotAtAll {
		return b, nil
	}
	if n < 0 || n > int64(d.opts.Limits.Bytes) {
		return nil, d.fail(-1, "", "a buffer decompresses to %d bytes, the limit is %d", n, d.opts.Limits.Bytes)
	}
	out, err := d.take(int(n))
	if err != nil {
		return nil, err
	}
	if s.codec == codecLZ4 {
		if s.lz4 == nil {
			s.lz4 = lz4.NewReader(nil)
		}
		s.src.Reset(b)
		s.lz4.Reset(&s.src)
		if _, err := io.ReadFull(s.lz4, out); err != nil {
			return nil, d.fail(-1, "", "LZ4: %v", err)
		}
		return out, nil
	}
	if s.zstd == nil {
		s.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(d.opts.Limits.Bytes)))
		if err != nil {
			return nil, d.fail(-1, "", "Zstandard: %v", err)
		}
	}
	got, err := s.zstd.DecodeAll(b, out[:0])
	if err != nil || len(got) != len(out) {
		return nil, d.fail(-1, "", "Zstandard: %d bytes, want %d (%v)", len(got), len(out), err)
	}
	return got, nil
}

// take is n bytes of the arena, aligned for any number.
func (d *Decoder) take(n int) ([]byte, error) {
	taken, numbers := d.arrow.arena.taken(), d.opts.Limits.Numbers
	if limit := min(d.opts.Limits.Bytes, numbers); n > limit-taken {
		d.short = limit == numbers
		return nil, d.fail(-1, "", "the block needs more than %d bytes, the limit", limit)
	}
	return d.arrow.arena.take(n), nil
}

// validity reads the validity bitmap of an array with so many nulls; nil: none.
func (r *batchReader) validity(nulls int64, rows int) ([]byte, error) {
	if nulls == 0 {
		if !r.skip() {
			return nil, r.d.fail(-1, "", "a record batch has too few buffers")
		}
		return nil, nil
	}
	return r.buffer((rows + 7) / 8)
}

// badRow remembers a bad row, unless an earlier one is known: the columns come
// one by one, and the first bad row of all is to be named.
func (r *batchReader) badRow(row int, column, reason string) {
	if r.bad == nil || row < r.bad.Row {
		r.bad = r.d.fail(row, column, "%s", reason)
	}
}

// noNulls refuses an array with nulls; per is the number of elements in a row.
func (r *batchReader) noNulls(nulls int64, elements, per int, column string) error {
	valid, err := r.validity(nulls, elements)
	if err != nil || nulls == 0 {
		return err
	}
	for i := range elements {
		if bit(valid, i) {
			continue
		}
		r.badRow(r.row0+i/per, column, "the value is null")
		return nil
	}
	return r.d.fail(-1, column, "nulls are announced but there are none")
}

func bit(b []byte, i int) bool { return b[i/8]>>(i%8)&1 != 0 }

// arrowBatch takes in a record batch.
func (d *Decoder) arrowBatch(f *flatbuffer, batch table) error {
	s := &d.arrow
	r, err := d.newBatchReader(f, batch)
	if err != nil {
		return err
	}
	if r.rows == 0 {
		return nil
	}
	if limit := d.opts.Limits.Rows; r.rows > limit-s.rows {
		return d.fail(-1, "", "the block has more than %d rows, the limit", limit)
	}
	for k := range s.fields {
		if err := r.field(&s.fields[k]); err != nil {
			return err
		}
	}
	if r.bad != nil {
		return r.bad
	}
	if r.nodesLeft > 0 || r.buffLeft > 0 {
		return d.fail(-1, "", "a record batch has more arrays than the schema")
	}
	s.rows += r.rows
	s.nbatch++
	return nil
}

// field takes in one field of the batch.
func (r *batchReader) field(field *arrowField) error {
	d := r.d
	if field.role == roleLabel {
		return r.label(field)
	}
	nulls, ok := r.node(r.rows)
	if !ok {
		return d.fail(-1, field.name, "an array's length or null count is malformed")
	}
	if field.role == roleWeight && d.unlabelled {
		r.skip()
		r.skip()
		d.arrow.parts = append(d.arrow.parts, nil)
		return nil
	}
	if err := r.noNulls(nulls, r.rows, 1, field.name); err != nil {
		return err
	}
	var values []byte
	var err error
	switch field.typ.layout {
	case layoutNumbers:
		if values, err = r.buffer(r.rows * field.typ.size); err != nil {
			return err
		}
		values = values[:r.rows*field.typ.size]
	case layoutHalf:
		values, err = r.halves()
	case layoutBits:
		values, err = r.bits()
	case layoutList:
		size := field.typ.size
		if r.rows > math.MaxInt/8/size {
			return d.fail(-1, field.name, "the list is too long")
		}
		if nulls, ok = r.node(r.rows * size); !ok {
			return d.fail(-1, field.name, "a list's length or null count is malformed")
		}
		if err := r.noNulls(nulls, r.rows*size, size, field.name); err != nil {
			return err
		}
		if values, err = r.buffer(r.rows * size * field.list.size); err != nil {
			return err
		}
		values = values[:r.rows*size*field.list.size]
	}
	d.arrow.parts = append(d.arrow.parts, values)
	return err
}

// halves converts a column of float16 to float32, which is exact.
func (r *batchReader) halves() ([]byte, error) {
	b, err := r.buffer(2 * r.rows)
	if err != nil {
		return nil, err
	}
	out, err := r.d.take(4 * r.rows)
	if err != nil {
		return nil, err
	}
	for i := range r.rows {
		h := float16.FromBits(binary.LittleEndian.Uint16(b[2*i:]))
		binary.NativeEndian.PutUint32(out[4*i:], math.Float32bits(h.Float32()))
	}
	return out, nil
}

// bits converts a column of booleans to bytes.
func (r *batchReader) bits() ([]byte, error) {
	b, err := r.buffer((r.rows + 7) / 8)
	if err != nil {
		return nil, err
	}
	out, err := r.d.take(r.rows)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = b[i/8] >> (i % 8) & 1
	}
	return out, nil
}

// aligned is b, or a copy of it where it is misaligned for numbers of the size.
func (d *Decoder) aligned(b []byte, size int) ([]byte, error) {
	if isAligned(b, size) {
		return b, nil
	}
	c, err := d.take(len(b))
	copy(c, b)
	return c, err
}

// anywhere says that the processor reads numbers wherever they lie, at hardly
// any cost. Payloads lie anywhere in what a broker sends, so copying them for
// their alignment would be one more pass over all the data.
const anywhere = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

func isAligned(b []byte, size int) bool {
	return anywhere || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(size) == 0
}

// columnOf views n numbers in b, which is aligned for them.
func columnOf(kind gram.Kind, b []byte, first, stride, n int) gram.Column {
	switch kind {
	case gram.Float32:
		return view[float32](b, first, stride, n)
	case gram.Float64:
		return view[float64](b, first, stride, n)
	case gram.Int8:
		return view[int8](b, first, stride, n)
	case gram.Int16:
		return view[int16](b, first, stride, n)
	case gram.Int32:
		return view[int32](b, first, stride, n)
	case gram.Int64:
		return view[int64](b, first, stride, n)
	case gram.Uint8:
		return view[uint8](b, first, stride, n)
	case gram.Uint16:
		return view[uint16](b, first, stride, n)
	case gram.Uint32:
		return view[uint32](b, first, stride, n)
	}
	return view[uint64](b, first, stride, n)
}

func view[T gram.Number](b []byte, first, stride, n int) gram.Column {
	v := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(T(0))))
	return gram.StridedColumn(v, first, stride, n)
}

// finishArrow makes the block of the batches.
func (d *Decoder) finishArrow() error {
	s := &d.arrow
	if s.rows == 0 {
		return d.fail(-1, "", "there are no rows")
	}
	d.columns = slices.Grow(d.columns[:0], s.width)[:s.width]
	var weights []float64
	for k := range s.fields {
		field := &s.fields[k]
		if field.role == roleLabel || field.role == roleWeight && d.unlabelled {
			continue
		}
		kind, size := field.typ.kind, field.typ.size
		switch field.typ.layout {
		case layoutHalf:
			kind, size = gram.Float32, 4
		case layoutBits:
			kind, size = gram.Uint8, 1
		case layoutList:
			kind, size = field.list.kind, field.list.size
		}
		values, err := d.gather(k, size)
		if err != nil {
			return err
		}
		switch {
		case field.role == roleWeight:
			if weights, err = d.arrowWeights(kind, values); err != nil {
				return err
			}
		case s.list != nil:
			for j, at := range s.list {
				d.columns[at] = columnOf(kind, values, j, s.width, s.rows)
			}
		default:
			d.columns[field.role] = columnOf(kind, values, 0, 1, s.rows)
		}
	}
	d.finish(s.names, weights)
	return nil
}

// gather is field k's values over all batches, aligned for numbers of the size.
// A single batch that is well aligned is returned as it lies in the payload.
func (d *Decoder) gather(k, size int) ([]byte, error) {
	s, n := &d.arrow, len(d.arrow.fields)
	if b := s.parts[k]; s.nbatch == 1 {
		return d.aligned(b, size)
	}
	total := 0
	for i := k; i < len(s.parts); i += n {
		total += len(s.parts[i])
	}
	out, err := d.take(total)
	if err != nil {
		return nil, err
	}
	at := 0
	for i := k; i < len(s.parts); i += n {
		at += copy(out[at:], s.parts[i])
	}
	return out, nil
}

// arrowWeights checks the weights, and converts them unless they are float64.
func (d *Decoder) arrowWeights(kind gram.Kind, values []byte) ([]float64, error) {
	s := &d.arrow
	var weights []float64
	if kind == gram.Float64 {
		weights = unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(values))), s.rows)
	} else {
		c := columnOf(kind, values, 0, 1, s.rows)
		for i := range s.rows {
			d.weights = append(d.weights, c.At(i))
		}
		weights = d.weights
	}
	for i, w := range weights {
		if reason := badWeight(w); reason != "" {
			return nil, d.fail(i, d.opts.Weight, "%s", reason)
		}
	}
	return weights, nil
}

// arena hands out memory that is all taken back at once. After a block or two of
// one size it allocates no more.
type arena struct {
	words []uint64
	used  int // words handed out
}

func (a *arena) reset() { a.used = 0 }

// shrink is reset that drops memory which was grown by a block more than four times as
// large as the last one.
func (a *arena) shrink() (dropped bool) {
	held := 8 * len(a.words)
	if dropped = held > keptBytes && a.taken() < held/4; dropped {
		a.words = nil
	}
	a.reset()
	return dropped
}

// taken is the number of bytes handed out.
func (a *arena) taken() int { return 8 * a.used }

// take is n bytes aligned for any number.
func (a *arena) take(n int) []byte {
	if n == 0 {
		return nil
	}
	w := (n + 7) / 8
	from := a.used
	a.used += w
	if a.used > len(a.words) {
		// What has been handed out stays where it is. The next block finds
		// room for everything up to here.
		a.words = make([]uint64, max(a.used, 2*len(a.words)))
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[from])), 8*w)[:n:n]
}
