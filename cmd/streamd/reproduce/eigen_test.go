package reproduce

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// writeImages writes so many images of 4×4 pixels, in idx. The number of the bright row is the
// class.
func writeImages(t *testing.T, folder, name string, m int, seed uint64) {
	t.Helper()
	head := func(kind byte, sizes ...uint32) []byte {
		b := []byte{0, 0, 8, kind}
		for _, n := range sizes {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return b
	}
	r := rand.New(rand.NewPCG(seed, 61))
	images, labels := head(3, uint32(m), 4, 4), head(1, uint32(m))
	for range m {
		class := r.IntN(3)
		for j := range 16 {
			pixel := 40 * r.Float64()
			if j/4 == class {
				pixel += 180
			}
			images = append(images, byte(pixel))
		}
		labels = append(labels, byte(class))
	}
	writeZipped(t, filepath.Join(folder, name+"-images-idx3-ubyte.gz"), images)
	writeZipped(t, filepath.Join(folder, name+"-labels-idx1-ubyte.gz"), labels)
}

// Images are told apart in a subspace, the same for any number of workers, and too bad a figure is
// a fault.
func TestEigenTable(t *testing.T) {
	c := &Config{Data: t.TempDir(), Seed: 1, Seeds: 1}
	table := eigenTable{[]int{3, 8}, []eigenRow{
		{"d = 7", powerOf(7), 40, 0.08, []float64{0, 0}, []float64{1, 2}, nil}, {"γ = 0.2", widthOf(0.2), 60, 0.1, []float64{0, 50}, []float64{3, 4}, nil},
		{"d = 7", powerOf(7), 40, 0.08, []float64{0, 0}, nil, [][]float64{{0, 0, 45}, {0, 0, 0}}},
	}}
	if results, err := table.run(t.Context(), c); err != nil || len(results) != 1 || !strings.Contains(results[0].Absent, "there is no mnist-train-images-idx3-ubyte.gz") {
		t.Fatalf("%+v, %v", results, err)
	}
	writeImages(t, c.Data, "mnist-train", 150, 1)
	writeImages(t, c.Data, "mnist-t10k", 90, 2)
	results := anyWorkers(t, table.run, c)
	if len(results) != 12 {
		t.Fatalf("%+v", results)
	}
	for i, r := range results {
		seconds := 0.0
		if i < 4 {
			seconds = float64(i + 1)
		}
		bad := i == 3 || r.Method == "d = 7, L = 40, S = 3, 2"
		if r.Rows != 150 || r.Features != 16 || *r.Test < 0.97 || r.PaperSeconds != seconds || bad != (r.Fault() != "") {
			t.Errorf("%s: %.3f right, %q: %+v", r.Method, *r.Test, r.Fault(), r)
		}
	}
}
