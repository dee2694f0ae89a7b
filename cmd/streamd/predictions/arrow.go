package predictions

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const (
	// batchNumbers bounds the numbers of a batch, unless a single row has more.
	batchNumbers = 1 << 16

	// BatchMemory is about the most memory, in bytes, that writing Arrow takes: the numbers of
	// a batch, and their description.
	BatchMemory = 2 * 8 * batchNumbers
)

// arrowStream is what all streams of a table have in common. Making it takes longer than a batch of
// a thousand rows.
type arrowStream struct {
	schema  *arrow.Schema
	label   *arrow.DictionaryType
	classes arrow.Array
	head    []byte // the messages before the first batch
	columns [][]float64
	short   []int8 // the labels of a batch
}

// arrowEnd is the end of an IPC stream.
var arrowEnd = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

func (t *Table) newArrowStream() (*arrowStream, error) {
	names := t.columnNames()
	label := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	if len(t.Classes) <= math.MaxInt8 {
		label.IndexType = arrow.PrimitiveTypes.Int8
	}
	fields := []arrow.Field{{Name: names[0], Type: label}}
	for _, name := range names[1:] {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float64})
	}
	metadata := map[string]string{}
	for key, value := range map[string]string{"model": t.Model, "method": t.Method, "decision": string(t.Rule.Kind()), "calibration": string(t.calibration())} {
		if value != "" {
			metadata[key] = value
		}
	}
	known := arrow.MetadataFrom(metadata)
	texts := array.NewStringBuilder(memory.DefaultAllocator)
	for _, class := range t.Classes {
		texts.Append(class)
	}
	s := &arrowStream{schema: arrow.NewSchema(fields, &known), label: label, classes: texts.NewArray(), columns: make([][]float64, len(names)-1)}
	empty := s.batch(nil)
	var whole, batch bytes.Buffer
	if err := ipc.NewWriter(&whole, ipc.WithSchema(s.schema)).Write(empty); err != nil {
		return nil, err
	}
	if err := writeBatch(&batch, empty); err != nil {
		return nil, err
	}
	head, ok := bytes.CutSuffix(whole.Bytes(), batch.Bytes())
	if !ok {
		return nil, errors.New("a stream of Arrow does not end with its batch")
	}
	s.head = head
	return s, nil
}

// batch has rows with these labels and the numbers in the columns.
func (s *arrowStream) batch(labels []int32) arrow.RecordBatch {
	index := primitive(labels)
	if s.label.IndexType == arrow.PrimitiveTypes.Int8 {
		s.short = s.short[:0]
		for _, class := range labels {
			s.short = append(s.short, int8(class))
		}
		index = primitive(s.short)
	}
	arrays := []arrow.Array{array.NewDictionaryArray(s.label, index, s.classes)}
	for _, c := range s.columns {
		arrays = append(arrays, primitive(c))
	}
	return array.NewRecordBatch(s.schema, arrays, int64(len(labels)))
}

func writeBatch(w io.Writer, b arrow.RecordBatch) error {
	p, err := ipc.GetRecordBatchPayload(b)
	if err == nil {
		defer p.Release()
		_, err = p.WritePayload(w)
	}
	return err
}

// writeArrow writes an IPC stream.
func (t *Table) writeArrow(w io.Writer) (err error) {
	if t.arrow == nil {
		if t.arrow, err = t.newArrowStream(); err != nil {
			return err
		}
	}
	s := t.arrow
	if _, whole := w.(*bytes.Buffer); !whole {
		out := bufio.NewWriterSize(w, pieceBytes)
		defer func() { err = cmp.Or(err, out.Flush()) }()
		w = out
	}
	if _, err := w.Write(s.head); err != nil {
		return err
	}
	probabilities := make([]float64, len(t.Classes))
	most := max(1, batchNumbers/(1+len(s.columns)))
	for from := 0; from < len(t.Labels); from += most {
		rows := min(most, len(t.Labels)-from)
		for j, c := range s.columns {
			s.columns[j] = slices.Grow(c[:0], rows)[:rows]
		}
		for i := range rows {
			for j, x := range t.Shown(from + i) {
				s.columns[j][i] = x
			}
			if t.Probable() {
				t.Probabilities(probabilities, from+i)
				for j, x := range probabilities {
					s.columns[len(t.Planes)+j][i] = x
				}
			}
		}
		if err := writeBatch(w, s.batch(t.Labels[from:from+rows])); err != nil {
			return err
		}
	}
	_, err = w.Write(arrowEnd)
	return err
}

// primitive views numbers as an array.
func primitive[T int8 | int32 | float64](v []T) arrow.Array {
	data := memory.NewBufferBytes(arrow.GetBytes(v))
	return array.MakeFromData(array.NewData(arrow.GetDataType[T](), len(v), []*memory.Buffer{nil, data}, nil, 0, 0))
}
