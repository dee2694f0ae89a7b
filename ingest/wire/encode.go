package wire

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// The names that an Encoder gives to the label and to the weight.
const (
	labelName  = "label"
	weightName = "weight"
)

// Encoder makes payloads of blocks, for producers. It keeps its buffers from
// one block to the next.
//
// A Decoder with the options {Weight: "weight"} (only if there are weights)
// gives the same block back: the same numbers, bit for bit, the same label in
// each row, the same names. Names that the format cannot hold come back as nil
// or as x1, x2, …:
//
//	arrow   one batch; a column per feature, 64-bit integers as float64;
//	        labels int64 if all classes are small integers, else utf8
//	json    a row per line, with names if the block has them
//	csv     with a header if the block has names or weights
//	libsvm  without names and weights; zeros are left out, but the last
//	        feature of the first row is not, which keeps the width
type Encoder struct {
	format Format
	schema *arrow.Schema
	data   [][]uint64 // arrow: one column's memory each
	heads  [][]byte   // per class or per column, what stands before a value
}

// NewEncoder makes an encoder. It panics if there is no such format.
func NewEncoder(f Format) *Encoder {
	if !f.valid() {
		panic("wire: encoder of " + f.String())
	}
	return &Encoder{format: f}
}

// Encode is NewEncoder(f).Append(dst, b).
func Encode(dst []byte, f Format, b *incremental.Block) ([]byte, error) {
	return NewEncoder(f).Append(dst, b)
}

// Append appends the payload of b to dst. It is an error if the format cannot
// say what is in the block: a number that no model takes, a label that would be
// read back as another, weights in LIBSVM.
func (e *Encoder) Append(dst []byte, b *incremental.Block) ([]byte, error) {
	if err := e.check(b); err != nil {
		return dst, fmt.Errorf("encode %v: %w", e.format, err)
	}
	switch e.format {
	case Arrow:
		return e.arrow(dst, b)
	case JSON:
		return e.json(dst, b), nil
	case CSV:
		return e.csv(dst, b), nil
	}
	return e.libsvm(dst, b), nil
}

func (e *Encoder) check(b *incremental.Block) error {
	if b.Rows() == 0 || len(b.Columns) == 0 {
		return fmt.Errorf("%d rows of %d features", b.Rows(), len(b.Columns))
	}
	for _, class := range b.Classes {
		if err := incremental.CheckLabel(class); err != nil {
			return fmt.Errorf("class %q: %w", class, err)
		}
		if e.format != CSV && e.format != LIBSVM {
			continue
		}
		if read, reason := canonicalText(class); read != class {
			return fmt.Errorf("class %q would be read back as %q (%s)", class, read, reason)
		}
		if e.format == LIBSVM && strings.ContainsAny(class, " \t\r\n#:,") {
			return fmt.Errorf("class %q: no LIBSVM label has a blank, '#', ':' or ','", class)
		}
		if e.format == LIBSVM && strings.HasPrefix(class, string(byteOrderMark)) {
			return fmt.Errorf("class %q: a byte order mark before the first label is not part of it", class)
		}
	}
	for _, name := range b.Features {
		if reason := badName([]byte(name)); reason != "" {
			return fmt.Errorf("%s", reason)
		}
		if name == labelName || name == weightName && b.Weights != nil {
			return fmt.Errorf("feature %q has the name of the label or the weight", name)
		}
	}
	if e.format == LIBSVM && b.Weights != nil {
		return fmt.Errorf("there is no place for weights")
	}
	if bad := b.FirstBadRow(); bad != nil {
		return bad
	}
	return nil
}

// json writes a row per line.
func (e *Encoder) json(dst []byte, b *incremental.Block) []byte {
	labels := e.prefixes(len(b.Classes), func(p []byte, k int) []byte {
		p = append(p, `{"label":`...)
		if isCanonicalNumber(b.Classes[k]) {
			return append(p, b.Classes[k]...)
		}
		return appendJSONString(p, b.Classes[k])
	})
	names := make([][]byte, len(b.Features))
	for j, name := range b.Features {
		names[j] = append(appendJSONString([]byte{','}, name), ':')
	}
	for i, code := range b.Codes {
		dst = append(dst, labels[code]...)
		if b.Weights != nil {
			dst = append(dst, `,"weight":`...)
			dst = appendNumber(dst, b.Weights[i])
		}
		if len(names) == 0 {
			dst = append(dst, `,"features":`...)
		}
		for j, c := range b.Columns {
			switch {
			case len(names) > 0:
				dst = append(dst, names[j]...)
			case j == 0:
				dst = append(dst, '[')
			default:
				dst = append(dst, ',')
			}
			dst = appendNumber(dst, c.At(i))
		}
		if len(names) == 0 {
			dst = append(dst, ']')
		}
		dst = append(dst, '}', '\n')
	}
	return dst
}

// csv writes the label first, then the weight if there is one.
func (e *Encoder) csv(dst []byte, b *incremental.Block) []byte {
	if b.Features != nil || b.Weights != nil {
		dst = append(dst, labelName...)
		if b.Weights != nil {
			dst = append(dst, ","+weightName...)
		}
		for j := range b.Columns {
			dst = appendCSVField(append(dst, ','), featureName(b.Features, j))
		}
		dst = append(dst, '\n')
	}
	labels := e.prefixes(len(b.Classes), func(p []byte, k int) []byte { return appendCSVField(p, b.Classes[k]) })
	for i, code := range b.Codes {
		dst = append(dst, labels[code]...)
		if b.Weights != nil {
			dst = appendNumber(append(dst, ','), b.Weights[i])
		}
		for _, c := range b.Columns {
			dst = appendNumber(append(dst, ','), c.At(i))
		}
		dst = append(dst, '\n')
	}
	return dst
}

func (e *Encoder) libsvm(dst []byte, b *incremental.Block) []byte {
	for i, code := range b.Codes {
		dst = append(dst, b.Classes[code]...)
		for j, c := range b.Columns {
			x := c.At(i)
			if math.Float64bits(x) == 0 && !(i == 0 && j == len(b.Columns)-1) {
				continue
			}
			dst = strconv.AppendInt(append(dst, ' '), int64(j+1), 10)
			dst = appendNumber(append(dst, ':'), x)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// prefixes makes n texts in memory that is used again.
func (e *Encoder) prefixes(n int, text func(p []byte, k int) []byte) [][]byte {
	for len(e.heads) < n {
		e.heads = append(e.heads, nil)
	}
	for k := range n {
		e.heads[k] = text(e.heads[k][:0], k)
	}
	return e.heads[:n]
}

// appendNumber writes the shortest decimal that parses back to x.
func appendNumber(dst []byte, x float64) []byte {
	// strconv's fast way for what counts and NDC's coordinates are.
	if k := int64(x); float64(k) == x && k != 0 && -1e15 < x && x < 1e15 {
		return strconv.AppendInt(dst, k, 10)
	}
	return strconv.AppendFloat(dst, x, 'g', -1, 64)
}

// isCanonicalNumber is whether the class is one that numeric labels become.
func isCanonicalNumber(class string) bool {
	x, end, ok := number([]byte(class), 0)
	return ok && end == len(class) && !math.IsInf(x, 0) && incremental.NumberLabel(x) == class
}

func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// appendCSVField quotes a field that would otherwise be cut, trimmed or taken
// for an empty line.
func appendCSVField(dst []byte, s string) []byte {
	if s != "" && !strings.ContainsAny(s, ",\"\r\n") && strings.Trim(s, " \t") == s && !strings.HasPrefix(s, string(byteOrderMark)) {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(s, `"`, `""`)...)
	return append(dst, '"')
}

// arrow writes a schema, one record batch and the end of the stream.
func (e *Encoder) arrow(dst []byte, b *incremental.Block) ([]byte, error) {
	m := b.Rows()
	columns := len(b.Columns) + 1
	if b.Weights != nil {
		columns++
	}
	for len(e.data) < columns {
		e.data = append(e.data, nil)
	}
	fields := make([]arrow.Field, 0, columns)
	arrays := make([]arrow.Array, 0, columns)
	add := func(name string, a arrow.Array) {
		fields = append(fields, arrow.Field{Name: name, Type: a.DataType()})
		arrays = append(arrays, a)
	}
	add(labelName, e.arrowLabels(b))
	if b.Weights != nil {
		add(weightName, arrowNumbers(&e.data[1], gram.ColumnOf(b.Weights)))
	}
	for j, c := range b.Columns {
		add(featureName(b.Features, j), arrowNumbers(&e.data[columns-len(b.Columns)+j], c))
	}
	schema := arrow.NewSchema(fields, nil)
	if e.schema == nil || !schema.Equal(e.schema) {
		e.schema = schema
	}
	buf := bytes.NewBuffer(dst)
	w := ipc.NewWriter(buf, ipc.WithSchema(e.schema))
	batch := array.NewRecordBatch(e.schema, arrays, int64(m))
	if err := w.Write(batch); err != nil {
		return dst, fmt.Errorf("encode arrow: %w", err)
	}
	if err := w.Close(); err != nil {
		return dst, fmt.Errorf("encode arrow: %w", err)
	}
	return buf.Bytes(), nil
}

// arrowLabels makes the label column: int64 if all classes are integers that
// float64 can tell apart, else utf8.
func (e *Encoder) arrowLabels(b *incremental.Block) arrow.Array {
	values := make([]int64, len(b.Classes))
	for k, class := range b.Classes {
		v, err := strconv.ParseInt(class, 10, 54)
		if err != nil || strconv.FormatInt(v, 10) != class {
			labels := array.NewStringBuilder(memory.DefaultAllocator)
			for _, code := range b.Codes {
				labels.Append(b.Classes[code])
			}
			return labels.NewArray()
		}
		values[k] = v
	}
	out := words[int64](&e.data[0], len(b.Codes))
	for i, code := range b.Codes {
		out[i] = values[code]
	}
	return primitive(arrow.PrimitiveTypes.Int64, out)
}

// arrowNumbers makes a column of c: a view of it where its numbers follow each other,
// else in memory that is used again.
func arrowNumbers(mem *[]uint64, c gram.Column) arrow.Array {
	switch c.Kind() {
	case gram.Float32:
		return numbers[float32](mem, c, arrow.PrimitiveTypes.Float32)
	case gram.Int8:
		return numbers[int8](mem, c, arrow.PrimitiveTypes.Int8)
	case gram.Int16:
		return numbers[int16](mem, c, arrow.PrimitiveTypes.Int16)
	case gram.Int32:
		return numbers[int32](mem, c, arrow.PrimitiveTypes.Int32)
	case gram.Uint8:
		return numbers[uint8](mem, c, arrow.PrimitiveTypes.Uint8)
	case gram.Uint16:
		return numbers[uint16](mem, c, arrow.PrimitiveTypes.Uint16)
	case gram.Uint32:
		return numbers[uint32](mem, c, arrow.PrimitiveTypes.Uint32)
	}
	return numbers[float64](mem, c, arrow.PrimitiveTypes.Float64)
}

func numbers[T gram.Number](mem *[]uint64, c gram.Column, typ arrow.DataType) arrow.Array {
	values, ok := gram.Values[T](c)
	if !ok {
		values = words[T](mem, c.Len())
		for i := range values {
			values[i] = T(c.At(i))
		}
	}
	return primitive(typ, values)
}

// words is room for n numbers in mem, which grows as needed.
func words[T gram.Number](mem *[]uint64, n int) []T {
	const word = 8
	size := int(unsafe.Sizeof(T(0)))
	if need := (n*size + word - 1) / word; len(*mem) < need {
		*mem = make([]uint64, need)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(*mem))), n)
}

// primitive views numbers of the type as an array.
func primitive[T gram.Number](typ arrow.DataType, v []T) arrow.Array {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
	return array.MakeFromData(array.NewData(typ, len(v), []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0))
}
