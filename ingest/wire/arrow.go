package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"streamd/incremental/gram"
)

const (
	continuation   = 0xFFFFFFFF // opens a message
	arrowFileMagic = "ARROW1"
)

// opensArrow is whether a payload or a file begins like an Arrow stream.
func opensArrow(b []byte) bool {
	return len(b) >= 4 && binary.LittleEndian.Uint32(b) == continuation
}

// From Arrow's format/Message.fbs.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3

	metadataV4 = 3 // the fourth version; for all that is read here the fifth is the same
	metadataV5 = 4
)

// arrowReader reads IPC streams. See the package comment for why arrow-go does not.
type arrowReader struct {
	*builder
	plan arrowPlan

	// Per field its dictionary, and again the label's. Rows are -1 while there is none.
	dictionaries []scalars
	dictionary   scalars
	entryCodes   []int32 // per entry of the label's dictionary its code in this block, or -1
	decompress   decompressor
	arena        arena
	batchLabels  scalars
	scratch      []byte    // the spelling of a value
	tables       []table   // of the fields of the schema that is read
	around       [][]byte  // validity of the structs around a field, the outermost first; nil: no nulls
	entries      []float64 // codes of a dictionary's texts

	// The block.
	rows      int
	parts     [][]byte // values, batch by batch, one part per field
	valid     [][]byte // of each part, where nulls were let pass; nil: there are none
	batchRows []int
	batches   int // with rows; -1: not even the schema has come

	// The message.
	version int
	meta    flatbuffer
	body    []byte
}

// decode reads a payload.
func (a *arrowReader) decode(b []byte) error {
	if bytes.HasPrefix(b, []byte(arrowFileMagic)) {
		return a.fail(-1, "", "this is Arrow's file format; write the stream format")
	}
	if len(b) < 8 || !opensArrow(b) {
		return a.fail(-1, "", "this is not an Arrow IPC stream")
	}
	a.begin()
	for i := 0; i < len(b); {
		if len(b)-i < 8 || !opensArrow(b[i:]) {
			return a.fail(-1, "", "byte %d: want a message", i)
		}
		n := int(binary.LittleEndian.Uint32(b[i+4:]))
		if i += 8; n == 0 {
			if i < len(b) {
				return a.fail(-1, "", "byte %d: there is something behind the end of the stream", i)
			}
			break
		}
		if n > len(b)-i {
			return a.fail(-1, "", "byte %d: the message is truncated", i)
		}
		m, err := a.message(b[i : i+n])
		if err != nil {
			return err
		}
		if i += n; m.body > int64(len(b)-i) {
			return a.fail(-1, "", "byte %d: the message's body is truncated", i)
		}
		if err := a.take(m, b[i:i+int(m.body)]); err != nil {
			return err
		}
		i += int(m.body)
	}
	return a.finish()
}

// reset drops memory that was grown by a block much larger than the last one. The
// dictionary stays, as a file's next block may need it.
func (a *arrowReader) reset() {
	if a.arena.shrink() {
		a.columns, a.parts, a.batchLabels = nil, nil, scalars{}
	}
}

// begin starts a stream.
func (a *arrowReader) begin() {
	a.next()
	a.batches = -1
}

// next starts another block of the stream. The schema stays, and the dictionary.
func (a *arrowReader) next() {
	a.batches, a.rows, a.parts, a.valid, a.batchRows = 0, 0, a.parts[:0], a.valid[:0], a.batchRows[:0]
	a.arena.reset()
	a.forgetCodes()
}

// message is a message without its body. Its metadata are in arrowReader.meta.
type message struct {
	typ    int
	header table
	body   int64 // bytes
}

// message reads a message's metadata.
func (a *arrowReader) message(meta []byte) (m message, err error) {
	a.meta = flatbuffer{b: meta}
	f := &a.meta
	root := f.root()
	a.version = f.u16(f.field(root, 0))
	m.typ = f.u8(f.field(root, 1))
	header, ok := f.tableField(root, 2)
	m.header, m.body = header, f.i64(f.field(root, 3))
	switch {
	case f.bad || !ok || m.body < 0:
		return m, a.fail(-1, "", "a message's metadata is malformed")
	case a.version != metadataV4 && a.version != metadataV5:
		return m, a.fail(-1, "", "metadata version V%d is not supported: want V4 or V5", a.version+1)
	}
	return m, nil
}

// take reads a message with its body.
func (a *arrowReader) take(m message, body []byte) error {
	if first := a.batches < 0; first != (m.typ == headerSchema) {
		return a.fail(-1, "", "the schema is not the stream's first message, or not the only one")
	}
	a.body = body
	switch m.typ {
	case headerSchema:
		a.batches = 0
		if err := a.schema(m.header); err != nil {
			return err
		}
		a.forgetDictionaries()
		return nil
	case headerDictionary:
		return a.readDictionary(m.header)
	case headerBatch:
		return a.batch(m.header)
	}
	return a.fail(-1, "", "a message of type %d where a record batch is expected", m.typ)
}

// finish makes the block of the batches.
func (a *arrowReader) finish() error {
	if a.rows == 0 {
		return a.fail(-1, "", "there are no rows")
	}
	p := &a.plan
	a.columns = slices.Grow(a.columns[:0], p.width)[:p.width]
	var weights []float64
	for k := range p.fields {
		field := &p.fields[k]
		if field.role == roleLabel || field.role <= roleIgnored {
			continue
		}
		kind, size := field.stored()
		values, err := a.gather(k, size)
		if err == nil && a.gappy(k) {
			if values, err = a.withGaps(k, kind, values); err == nil {
				kind = gram.Float64
			}
		}
		if err != nil {
			return err
		}
		switch {
		case field.role == roleWeight:
			if weights, err = a.weightsOf(columnOf(kind, values, 0, 1, a.rows)); err != nil {
				return err
			}
		case field.typ.layout == layoutList:
			for j, at := range field.at {
				if at >= 0 {
					a.columns[at] = columnOf(kind, values, j, field.length, a.rows)
				}
			}
		default:
			a.columns[field.role] = columnOf(kind, values, 0, 1, a.rows)
		}
	}
	return a.builder.finish(p.names, weights, a.arena.taken())
}

// gappy is whether nulls of field k were let pass.
func (a *arrowReader) gappy(k int) bool {
	for i := k; i < len(a.valid); i += len(a.plan.fields) {
		if a.valid[i] != nil {
			return true
		}
	}
	return false
}

// withGaps converts field k's values of all batches to float64, with NaN for nulls.
func (a *arrowReader) withGaps(k int, kind gram.Kind, values []byte) ([]byte, error) {
	field, per := &a.plan.fields[k], 1
	if field.typ.layout == layoutList {
		per = field.length
	}
	n := a.rows * per
	out, err := a.allocate(8 * n)
	if err != nil {
		return nil, err
	}
	numbers := unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(out))), n)
	if field.typ.layout != layoutNull {
		columnOf(kind, values, 0, 1, n).Copy(numbers, 0)
	}
	at := 0
	for i := 0; i < len(a.batchRows); i++ {
		valid := a.valid[i*len(a.plan.fields)+k]
		for row := range a.batchRows[i] * per {
			if valid != nil && !bit(valid, row) {
				numbers[at+row] = math.NaN()
			}
		}
		at += a.batchRows[i] * per
	}
	return out, nil
}

// gather joins field k's values of all batches, aligned for numbers of the size. A
// single batch that is well aligned is returned as it lies in the payload.
func (a *arrowReader) gather(k, size int) ([]byte, error) {
	if a.batches == 1 {
		return a.aligned(a.parts[k], size)
	}
	n, total := len(a.plan.fields), 0
	for i := k; i < len(a.parts); i += n {
		total += len(a.parts[i])
	}
	out, err := a.allocate(total)
	if err != nil {
		return nil, err
	}
	at := 0
	for i := k; i < len(a.parts); i += n {
		at += copy(out[at:], a.parts[i])
	}
	return out, nil
}

// weightsOf checks the weights, and converts them unless they are float64.
func (a *arrowReader) weightsOf(c gram.Column) ([]float64, error) {
	weights, ok := gram.Values[float64](c)
	if !ok {
		a.weights = slices.Grow(a.weights, c.Len())[:c.Len()]
		c.Copy(a.weights, 0)
		weights = a.weights
	}
	for i, w := range weights {
		if reason := badWeight(w); reason != "" {
			return nil, a.fail(i, a.opts.Weight, "%s", reason)
		}
	}
	return weights, nil
}

// anywhere says that the processor reads numbers at any address, at hardly any cost.
// Payloads have no alignment in a broker's response, so copying them would be one more
// pass over all the data.
const anywhere = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// aligned is b, or a copy of it where it is misaligned for numbers of the size.
func (a *arrowReader) aligned(b []byte, size int) ([]byte, error) {
	if anywhere || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(size) == 0 {
		return b, nil
	}
	c, err := a.allocate(len(b))
	copy(c, b)
	return c, err
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
	return gram.StridedColumn(arrow.GetData[T](b), first, stride, n)
}
