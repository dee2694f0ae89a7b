package daemon

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"streamd/ingest/wire"
)

// The sign of a zero shows nowhere: a producer that writes it and one that leaves
// zeros out get one model, with its folds, sample and curves.
func TestSignsOfZero(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 71))
	var csv, libsvm []message
	for range 12 {
		var dense, sparse strings.Builder
		for range 30 {
			class := r.IntN(2)
			x := class - r.IntN(2)
			y := float64(class) + r.NormFloat64()
			fmt.Fprintf(&sparse, "%d", class)
			if x == 0 {
				fmt.Fprintf(&dense, "%d,-0,%v\n", class, y)
			} else {
				fmt.Fprintf(&dense, "%d,%d,%v\n", class, x, y)
				fmt.Fprintf(&sparse, " 1:%d", x)
			}
			fmt.Fprintf(&sparse, " 2:%v\n", y)
		}
		csv = append(csv, message{value: []byte(dense.String()), contentType: wire.CSV.ContentType()})
		libsvm = append(libsvm, message{value: []byte(sparse.String()), contentType: wire.LIBSVM.ContentType()})
	}
	var contents []string
	for _, messages := range [][]message{csv, libsvm} {
		name := topic(t, 1)
		produce(t, name, messages...)
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"model.nu": "auto", "model.refine": "full", "sample.rows": "200"})
		d.waitForOffsetsRead(int64(len(messages)))
		served := d.settled()
		contents = append(contents, served.Digest+"\n"+content(t, served))
		d.stop()
	}
	if contents[0] != contents[1] {
		t.Errorf("with signs of zeros\n%s\nwithout\n%s", contents[0], contents[1])
	}
}
