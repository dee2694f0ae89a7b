package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
// and KeepUnlabelled (if rows have no label) gives the same block back: the same numbers, bit for
// bit, the same label in each row, the same names. Names that the format cannot hold come back as
// nil or as x1, x2, …:
//
//	arrow   one batch; a column per feature, 64-bit integers as float64;
//	        labels int64 if all classes are small integers, else utf8, null for none
//	json    a row per line, with names if the block has them
//	csv     with a header if the block has names or weights
//	libsvm  without names and weights; zeros are left out, but the last
//	        feature of the first row is not, which keeps the width
type Encoder struct {
	// Missing lets a block have NaN, which is written as a missing value: null in JSON,
	// an empty field in CSV, NaN in Arrow and LIBSVM.
	Missing bool

	// Texts are those of the block's columns, as Decoder.Texts has them. Nil: all are numbers.
	// LIBSVM has no place for them.
	Texts [][]string

	format Format
	schema *arrow.Schema
	labels []int64  // arrow: of the rows
	heads  [][]byte // per class, the text before the first number of its rows
	local  []int32  // arrow: by code of a text, its index in the dictionary
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
	if e.Texts != nil && (e.format == LIBSVM || len(e.Texts) != len(b.Columns)) {
		return fmt.Errorf("there is no place for texts: of %d columns, %d may have some", len(b.Columns), len(e.Texts))
	}
	if e.format == LIBSVM && b.Labelled() != b {
		return fmt.Errorf("there is no place for rows without a label")
	}
	for _, class := range b.Classes {
		if class == incremental.Unlabelled {
			continue
		}
		if err := incremental.CheckLabel(class); err != nil {
			return fmt.Errorf("class %q: %w", class, err)
		}
		if read, reason := classOfText(class); read != class {
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
	if e.Missing {
		b = withoutGaps(b)
	}
	if bad := b.FirstBadRow(); bad != nil {
		return bad
	}
	return nil
}

// withoutGaps is b with 0 for NaN.
func withoutGaps(b *incremental.Block) *incremental.Block {
	out := *b
	out.Columns = slices.Clone(b.Columns)
	for j, c := range b.Columns {
		if first := firstGap(c); first < c.Len() {
			x := make([]float64, c.Len())
			c.Copy(x, 0)
			for i := first; i < len(x); i++ {
				if math.IsNaN(x[i]) {
					x[i] = 0
				}
			}
			out.Columns[j] = gram.ColumnOf(x)
		}
	}
	return &out
}

// json writes a row per line.
func (e *Encoder) json(dst []byte, b *incremental.Block) []byte {
	labels := e.prefixes(len(b.Classes), func(p []byte, k int) []byte {
		p = append(p, `{"label":`...)
		switch {
		case b.Classes[k] == incremental.Unlabelled:
			return append(p, jsonNull...)
		case isCanonicalNumber(b.Classes[k]):
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
			switch x := c.At(i); {
			case math.IsNaN(x):
				dst = append(dst, jsonNull...)
			case e.textsOf(j) != nil:
				dst = appendJSONString(dst, e.Texts[j][int(x)])
			default:
				dst = appendNumber(dst, x)
			}
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
			dst = AppendCSVField(append(dst, ','), featureName(b.Features, j))
		}
		dst = append(dst, '\n')
	}
	labels := e.prefixes(len(b.Classes), func(p []byte, k int) []byte { return AppendCSVField(p, b.Classes[k]) })
	for i, code := range b.Codes {
		dst = append(dst, labels[code]...)
		if b.Weights != nil {
			dst = appendNumber(append(dst, ','), b.Weights[i])
		}
		for j, c := range b.Columns {
			dst = append(dst, ',')
			switch x := c.At(i); {
			case math.IsNaN(x):
			case e.textsOf(j) != nil:
				dst = AppendCSVField(dst, e.Texts[j][int(x)])
			default:
				dst = appendNumber(dst, x)
			}
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

// prefixes makes n texts, in memory that is used again.
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
	// Whole numbers are common, and integers are faster to write.
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
	text, _ := json.Marshal(s) // no string is an error
	return append(dst, text...)
}

// AppendCSVField appends a text to dst as a field of CSV. It quotes one that would otherwise
// be cut, trimmed or taken for an empty line.
func AppendCSVField(dst []byte, s string) []byte {
	if s != "" && !strings.ContainsAny(s, ",\"\r\n") && strings.Trim(s, " \t") == s && !strings.HasPrefix(s, string(byteOrderMark)) {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(s, `"`, `""`)...)
	return append(dst, '"')
}

// arrow writes a schema, one record batch and the end of the stream.
func (e *Encoder) arrow(dst []byte, b *incremental.Block) ([]byte, error) {
	var fields []arrow.Field
	var arrays []arrow.Array
	add := func(name string, a arrow.Array) {
		fields = append(fields, arrow.Field{Name: name, Type: a.DataType()})
		arrays = append(arrays, a)
	}
	add(labelName, e.arrowLabels(b))
	if b.Weights != nil {
		add(weightName, primitive(b.Weights))
	}
	for j, c := range b.Columns {
		if texts := e.textsOf(j); texts != nil {
			add(featureName(b.Features, j), e.arrowDictionary(c, texts))
		} else {
			add(featureName(b.Features, j), arrowNumbers(c))
		}
	}
	schema := arrow.NewSchema(fields, nil)
	if e.schema == nil || !schema.Equal(e.schema) {
		e.schema = schema
	}
	buf := bytes.NewBuffer(dst)
	w := ipc.NewWriter(buf, ipc.WithSchema(e.schema))
	batch := array.NewRecordBatch(e.schema, arrays, int64(b.Rows()))
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
	labelled := true
	for k, class := range b.Classes {
		if class == incremental.Unlabelled {
			labelled = false
			continue
		}
		v, err := strconv.ParseInt(class, 10, 54)
		if err != nil || strconv.FormatInt(v, 10) != class {
			return arrowTexts(b)
		}
		values[k] = v
	}
	if !labelled {
		labels := array.NewInt64Builder(memory.DefaultAllocator)
		for _, code := range b.Codes {
			if b.Classes[code] == incremental.Unlabelled {
				labels.AppendNull()
			} else {
				labels.Append(values[code])
			}
		}
		return labels.NewArray()
	}
	e.labels = slices.Grow(e.labels[:0], len(b.Codes))
	for _, code := range b.Codes {
		e.labels = append(e.labels, values[code])
	}
	return primitive(e.labels)
}

// arrowTexts makes a label column of texts.
func arrowTexts(b *incremental.Block) arrow.Array {
	labels := array.NewStringBuilder(memory.DefaultAllocator)
	for _, code := range b.Codes {
		if class := b.Classes[code]; class == incremental.Unlabelled {
			labels.AppendNull()
		} else {
			labels.Append(class)
		}
	}
	return labels.NewArray()
}

// textsOf are the texts of column j. Nil: it has numbers.
func (e *Encoder) textsOf(j int) []string {
	if e.Texts == nil {
		return nil
	}
	return e.Texts[j]
}

// arrowDictionary makes a column of texts, with a dictionary of those that it has.
func (e *Encoder) arrowDictionary(c gram.Column, texts []string) arrow.Array {
	e.local = slices.Grow(e.local[:0], len(texts))[:len(texts)]
	clear(e.local)
	entries, indices := array.NewStringBuilder(memory.DefaultAllocator), array.NewInt32Builder(memory.DefaultAllocator)
	indices.Reserve(c.Len())
	for i := range c.Len() {
		x := c.At(i)
		if math.IsNaN(x) {
			indices.AppendNull()
			continue
		}
		at := &e.local[int(x)] // 1 more than the index
		if *at == 0 {
			entries.Append(texts[int(x)])
			*at = int32(entries.Len())
		}
		indices.Append(*at - 1)
	}
	of := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	return array.NewDictionaryArray(of, indices.NewArray(), entries.NewArray())
}

// arrowNumbers makes a column of c: a view of it where its numbers follow each other,
// else a copy.
func arrowNumbers(c gram.Column) arrow.Array {
	switch c.Kind() {
	case gram.Float32:
		return numbers[float32](c)
	case gram.Int8:
		return numbers[int8](c)
	case gram.Int16:
		return numbers[int16](c)
	case gram.Int32:
		return numbers[int32](c)
	case gram.Uint8, gram.Indicator:
		return numbers[uint8](c)
	case gram.Uint16:
		return numbers[uint16](c)
	case gram.Uint32:
		return numbers[uint32](c)
	}
	return numbers[float64](c)
}

func numbers[T gram.Number](c gram.Column) arrow.Array {
	values, ok := gram.Values[T](c)
	if !ok {
		values = make([]T, c.Len())
		for i := range values {
			values[i] = T(c.At(i))
		}
	}
	return primitive(values)
}

// primitive views numbers as an array.
func primitive[T gram.Number](v []T) arrow.Array {
	data := memory.NewBufferBytes(arrow.GetBytes(v))
	return array.MakeFromData(array.NewData(arrow.GetDataType[T](), len(v), []*memory.Buffer{nil, data}, nil, 0, 0))
}
