package predictions

import (
	"bufio"
	"io"

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

// writeArrow writes an IPC stream.
func (t *Table) writeArrow(w io.Writer) error {
	names := t.columnNames()
	label := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
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
	schema := arrow.NewSchema(fields, &known)

	texts := array.NewStringBuilder(memory.DefaultAllocator)
	for _, class := range t.Classes {
		texts.Append(class)
	}
	classes := texts.NewArray()
	out := bufio.NewWriterSize(w, pieceBytes)
	stream := ipc.NewWriter(out, ipc.WithSchema(schema))
	columns := make([][]float64, len(names)-1)
	probabilities := make([]float64, len(t.Classes))
	most := max(1, batchNumbers/len(names))
	for from := 0; from < len(t.Labels); from += most {
		rows := min(most, len(t.Labels)-from)
		for j := range columns {
			if from == 0 {
				columns[j] = make([]float64, rows)
			}
			columns[j] = columns[j][:rows]
		}
		for i := range rows {
			for j, x := range t.Shown(from + i) {
				columns[j][i] = x
			}
			if t.Probable() {
				t.Probabilities(probabilities, from+i)
				for j, x := range probabilities {
					columns[len(t.Planes)+j][i] = x
				}
			}
		}
		arrays := []arrow.Array{array.NewDictionaryArray(label, primitive(t.Labels[from:from+rows]), classes)}
		for _, c := range columns {
			arrays = append(arrays, primitive(c))
		}
		if err := stream.Write(array.NewRecordBatch(schema, arrays, int64(rows))); err != nil {
			return err
		}
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// primitive views numbers as an array.
func primitive[T int32 | float64](v []T) arrow.Array {
	data := memory.NewBufferBytes(arrow.GetBytes(v))
	return array.MakeFromData(array.NewData(arrow.GetDataType[T](), len(v), []*memory.Buffer{nil, data}, nil, 0, 0))
}
