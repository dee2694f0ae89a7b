package reproduce

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"streamd/incremental"
	"streamd/incremental/drift"
	"streamd/incremental/prequential"
)

// goldenPrequential was made with numpy and River by testdata/prequential.py.
//
//go:embed testdata/prequential.json
var goldenPrequential []byte

// prequentialRun has the figures of a stream whose blocks are tested before they are learned.
type prequentialRun struct {
	DataSet string `json:"data_set"`
	Block   int    // rows of a block
	Keep    int    // blocks that are learned from, the last ones; 0: all
	Rows    int64  // tested
	Right   int64
	All     prequentialFigures
	Window  prequentialFigures
	Fading  prequentialFigures
	Alarms  []int // of ADWIN on the errors, by row
}

type prequentialFigures struct {
	Matrix      [][]float64 // by class and answer, −1 before 1
	SquaredLoss float64     `json:"squared_loss"`
}

const (
	prequentialNu     = 1
	prequentialWindow = 1000 // rows of half a window, at least
)

// prequentialTable compares the figures with those of an independent computation.
func prequentialTable(ctx context.Context, c *Config) ([]Result, error) {
	var golden struct{ Runs []prequentialRun }
	if err := json.Unmarshal(goldenPrequential, &golden); err != nil {
		return nil, err
	}
	return eachSet(c, golden.Runs, func(want prequentialRun, s *set) ([]Result, error) {
		got, err := testThenTrain(ctx, s, want.Block, want.Keep)
		if err != nil {
			return nil, err
		}
		r := Result{
			DataSet: fmt.Sprintf("%s, blocks of %d", want.DataSet, want.Block), Rows: s.rows(), Features: len(s.features),
			Method: "all blocks", Nu: prequentialNu, Test: new(float64(got.Right) / float64(got.Rows)), Broken: got.differs(&want),
		}
		if want.Keep > 0 {
			r.Method = fmt.Sprintf("last %d blocks", want.Keep)
		}
		r.Remark = fmt.Sprintf("%s: %d alarms; squared loss %.4f", r.Method, len(got.Alarms), got.All.SquaredLoss)
		r.PaperTest = new(float64(want.Right) / float64(want.Rows))
		return []Result{r}, nil
	})
}

func (r prequentialRun) dataSet() (name, file, remark string) { return r.DataSet, r.DataSet, "" }

// testThenTrain tests the plane of the blocks before on each block, which it then learns from.
func testThenTrain(ctx context.Context, s *set, block, keep int) (*prequentialRun, error) {
	var z incremental.Summariser
	var blocks []*incremental.Summary
	live := incremental.NewState(s.features)
	classes := []string{"-1", "1"}
	var all, latest prequential.Evaluation
	all.SetClasses(classes)
	latest.SetClasses(classes)
	detector := drift.NewADWIN(drift.Delta)
	var run prequentialRun
	var halfBegan int64
	before := int32(-1) // class of the row before
	for at := 0; at < s.rows(); at += block {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b := s.block(at, min(at+block, s.rows()))
		if at > 0 {
			m, err := live.Moments().Solve(incremental.Options{Nu: prequentialNu})
			if err != nil {
				return nil, err
			}
			class, values := make([]int32, b.Rows()), make([]float64, b.Rows())
			m.Classify(class, values, b.Columns)
			if rows, _ := latest.Totals(); rows-halfBegan >= prequentialWindow {
				latest.Turn()
				halfBegan = rows
			}
			of := b.ClassesIn(classes)
			answers := (&incremental.Block{Classes: m.Classes}).ClassesIn(classes)
			for i, code := range b.Codes {
				truth, answer := int32(of[code]), int32(answers[class[i]])
				loss := prequential.SquaredError(values[i:i+1], truth)
				all.Add(truth, answer, loss, truth == before)
				latest.Add(truth, answer, loss, truth == before)
				before = truth
				wrong := 0.
				if truth != answer {
					wrong = 1
				}
				if _, changed := detector.Add(wrong); changed {
					rows, _ := all.Totals()
					run.Alarms = append(run.Alarms, int(rows)-1)
				}
			}
		}
		summary, err := z.Summarise(b)
		if err != nil {
			return nil, err
		}
		live.Add(summary)
		if blocks = append(blocks, summary); keep > 0 && len(blocks) > keep {
			live.Remove(blocks[0])
			blocks = blocks[1:]
		}
	}
	run.Rows, run.Right = all.Totals()
	of := func(f prequential.Figures) prequentialFigures {
		return prequentialFigures{f.Matrix.Rows(len(classes)), f.SquaredLoss}
	}
	run.All, run.Window, run.Fading = of(all.Window()), of(latest.Window()), of(all.Fading())
	return &run, nil
}

// differs says which figure differs, or "". Rows are counted, so that counts are equal; other
// figures are equal to rounding. Alarms come at the same rows.
func (got *prequentialRun) differs(want *prequentialRun) string {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
	if got.Rows != want.Rows || got.Right != want.Right {
		return fmt.Sprintf("%d of %d rows are right, and %d of %d in the independent computation", got.Right, got.Rows, want.Right, want.Rows)
	}
	for _, part := range []struct {
		name      string
		got, want prequentialFigures
	}{{"all rows", got.All, want.All}, {"the window", got.Window, want.Window}, {"fading", got.Fading, want.Fading}} {
		for class, row := range part.want.Matrix {
			for answer, weight := range row {
				if !near(part.got.Matrix[class][answer], weight) {
					return fmt.Sprintf("%s: the confusion matrix is %v, and %v in the independent computation", part.name, part.got.Matrix, part.want.Matrix)
				}
			}
		}
		if !near(part.got.SquaredLoss, part.want.SquaredLoss) {
			return fmt.Sprintf("%s: the squared loss is %v, and %v in the independent computation", part.name, part.got.SquaredLoss, part.want.SquaredLoss)
		}
	}
	if !slices.Equal(got.Alarms, want.Alarms) {
		return fmt.Sprintf("alarms come at rows %d, River's at %d", got.Alarms, want.Alarms)
	}
	return ""
}
