package reproduce

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The golden file has figures of both streams. Each figure that is changed is found.
func TestPrequentialDiffers(t *testing.T) {
	read := func() []prequentialRun {
		var golden struct{ Runs []prequentialRun }
		if err := json.Unmarshal(goldenPrequential, &golden); err != nil {
			t.Fatal(err)
		}
		return golden.Runs
	}
	want := read()
	if len(want) != 4 {
		t.Fatalf("%d runs", len(want))
	}
	for i := range want {
		if says := want[i].differs(&read()[i]); says != "" || want[i].Rows == 0 || len(want[i].Alarms) == 0 {
			t.Errorf("run %d of %d rows: %s", i, want[i].Rows, says)
		}
	}
	for _, change := range []struct {
		says string
		of   func(r *prequentialRun)
	}{
		{"rows are right", func(r *prequentialRun) { r.Right-- }},
		{"all rows: the confusion", func(r *prequentialRun) { r.All.Matrix[0][1]++ }},
		{"the window: the squared loss", func(r *prequentialRun) { r.Window.SquaredLoss *= 1 + 1e-8 }},
		{"fading: the confusion", func(r *prequentialRun) { r.Fading.Matrix[1][1] *= 1 + 1e-8 }},
		{"alarms come", func(r *prequentialRun) { r.Alarms[1]++ }},
		{"alarms come", func(r *prequentialRun) { r.Alarms = r.Alarms[1:] }},
		{"squared loss", func(r *prequentialRun) { r.All.SquaredLoss = math.NaN() }},
	} {
		got := read()[0]
		change.of(&got)
		if says := got.differs(&want[0]); !strings.Contains(says, change.says) {
			t.Errorf("%q, want %q", says, change.says)
		}
	}
}

// Labels are swapped in the middle of a stream. Planes of the last blocks learn that soon, and
// those of all blocks do not. An alarm comes.
func TestTestThenTrain(t *testing.T) {
	const rows, block = 4000, 50
	r := rand.New(rand.NewPCG(1, 7))
	s := &set{features: []string{"x"}, classes: []string{"1", "-1"}, columns: make([][]float64, 1)}
	for i := range rows {
		code := int32(r.IntN(2))
		x := r.NormFloat64() + 6*float64(code)
		if i >= rows/2 {
			code = 1 - code
		}
		s.columns[0], s.codes = append(s.columns[0], x), append(s.codes, code)
	}
	for _, test := range []struct{ keep, least, most int }{{0, rows / 4, rows*3/4 - 1}, {4, rows - 500, rows}} {
		got, err := testThenTrain(context.Background(), s, block, test.keep)
		if err != nil {
			t.Fatal(err)
		}
		if got.Rows != rows-block || int(got.Right) < test.least || int(got.Right) > test.most {
			t.Errorf("of the last %d blocks, %d of %d rows are right", test.keep, got.Right, got.Rows)
		}
		if len(got.Alarms) == 0 || got.Alarms[0] < rows/2-block || got.Alarms[0] > rows/2+100 {
			t.Errorf("alarms at %d", got.Alarms)
		}
	}
}
