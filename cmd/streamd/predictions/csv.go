package predictions

import (
	"io"

	"streamd/ingest/wire"
)

func (t *Table) writeCSV(w io.Writer) error {
	x := newText(w)
	for i, name := range t.columnNames() {
		x.separate(i)
		x.piece = wire.AppendCSVField(x.piece, name)
		x.flushFull()
	}
	x.add("\n")
	labels := make([][]byte, len(t.Classes))
	for k, class := range t.Classes {
		labels[k] = wire.AppendCSVField(nil, class)
	}
	probabilities := make([]float64, len(t.Classes))
	for i, label := range t.Labels {
		if x.failed() {
			break
		}
		x.piece = append(x.piece, labels[label]...)
		x.fields(t.Shown(i))
		if t.Probable() {
			t.Probabilities(probabilities, i)
			x.fields(probabilities)
		}
		x.add("\n")
		x.flushFull()
	}
	return x.flush()
}

// fields adds numbers, each behind a comma.
func (t *text) fields(xs []float64) {
	for _, x := range xs {
		t.piece = append(t.piece, ',')
		t.number(x)
	}
}
