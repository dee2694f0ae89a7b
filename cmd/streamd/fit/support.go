package fit

import (
	"context"
	"fmt"
	"math"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/pipeline"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/study"
	"streamd/incremental/tuning"
)

// leaveOneOut classifies each row by the planes without that row.
func (f *fit) leaveOneOut(ctx context.Context) (all tally, err error) {
	_, hat, err := f.in.Moments(f.sums.whole).SolveWithHat(f.options)
	if err != nil {
		return all, fmt.Errorf("learn from %s: %w", f.data.Path, err)
	}
	tools := f.tools()
	err = dataset.Each(ctx, f.data, "leaving out each row",
		func(worker int, b *incremental.Block, _ int64) (t tally, err error) {
			b = tools[worker].enter(b, f.in)
			class, values := f.space(b)
			hat.LeaveOneOut(f.model, class, values, b)
			f.rules.Rule.Decide(class, values)
			for i, code := range b.Codes {
				t.count(b, i, f.model.Classes[class[i]] == b.Classes[code])
			}
			return t, nil
		},
		func(t tally) error {
			all.add(t)
			return nil
		})
	return all, err
}

// space is memory for Model.Classify on a block.
func (f *fit) space(b *incremental.Block) (class []int32, values []float64) {
	return make([]int32, b.Rows()), make([]float64, b.Rows()*len(f.model.Planes))
}

// SupportVectors reports the second solve, with the ε-support vectors.
type SupportVectors struct {
	Epsilon       float64           `json:"epsilon"`
	Rows          int64             `json:"rows"`
	Nu            float64           `json:"nu"`
	TrainAccuracy float64           `json:"train_accuracy"` // of all rows
	TestAccuracy  *float64          `json:"test_accuracy,omitempty"`
	Planes        []model.PlaneJSON `json:"planes"`
}

// supportVectors solves again with the ε-support vectors (Fung 2003, §2.1): the rows whose
// errors y = 1 − d(x'w − γ) are below ε in magnitude for every plane. ε makes them the
// given share of the rows. The other rows choose ν.
func (f *fit) supportVectors(ctx context.Context, share float64, test *dataset.Dataset) (*SupportVectors, error) {
	r := &SupportVectors{}
	var err error
	if r.Epsilon, err = f.epsilon(ctx, share); err != nil {
		return nil, err
	}

	type summaries struct{ near, far *incremental.Summary }
	names := f.sums.whole.Features()
	near, far := incremental.NewState(names), incremental.NewState(names)
	tools := f.tools()
	err = dataset.Each(ctx, f.data, "solving again",
		func(worker int, b *incremental.Block, _ int64) (s summaries, err error) {
			z := &tools[worker]
			b = z.enter(b, f.in)
			nearRows, farRows := f.divide(b, r.Epsilon)
			if s.near, err = z.summariser.Summarise(z.gather(b, nearRows)); err == nil {
				s.far, err = z.summariser.Summarise(z.gather(b, farRows))
			}
			return s, err
		},
		func(s summaries) error {
			near.Add(s.near)
			far.Add(s.far)
			return nil
		})
	if err != nil {
		return nil, err
	}
	r.Rows = near.Rows()
	if near.Classes() < f.sums.whole.Classes() {
		rows := "rows"
		if r.Rows == 1 {
			rows = "row"
		}
		return nil, fmt.Errorf("solve again with the ε-support vectors of %s: they are %d %s of %d of the %d classes; ask for a larger share", f.data.Path, r.Rows, rows, near.Classes(), f.sums.whole.Classes())
	}
	if far.Rows() == 0 {
		return nil, fmt.Errorf("solve again with the ε-support vectors of %s: all rows are, which leaves none to choose nu by; ask for a smaller share", f.data.Path)
	}

	sums := f.in.Moments(near)
	trial := tuning.New(f.options, tuning.Grid(), sums.Classes())
	if err := trial.Hold(sums, far.Moments()); err != nil {
		return nil, fmt.Errorf("solve again with the ε-support vectors of %s: %w", f.data.Path, err)
	}
	err = dataset.Each(ctx, f.data, "choosing its nu",
		func(worker int, b *incremental.Block, _ int64) (*tuning.Score, error) {
			z := &tools[worker]
			b = z.enter(b, f.in)
			_, farRows := f.divide(b, r.Epsilon)
			return trial.Score(0, z.gather(b, farRows)), nil
		},
		func(s *tuning.Score) error {
			trial.Add(s)
			return nil
		})
	if err != nil {
		return nil, err
	}
	curve, err := trial.Curve()
	if err != nil {
		return nil, fmt.Errorf("solve again with the ε-support vectors of %s: %w", f.data.Path, err)
	}
	solved, chosen, err := curve.Solve(sums, curve.By(f.objective))
	if err != nil {
		return nil, fmt.Errorf("solve again with the ε-support vectors of %s: %w", f.data.Path, err)
	}
	r.Nu, r.Planes = chosen.Nu, model.NewPlanesJSON(solved.Planes)
	again := &fit{data: f.data, in: f.in, model: solved, rules: &study.Decided{Rule: decision.ByValue(len(solved.Classes))}}
	own, _, err := again.score(ctx, f.data, "scoring", nil)
	if err != nil {
		return nil, err
	}
	r.TrainAccuracy = own.accuracy()
	if test != nil {
		t, _, err := again.score(ctx, test, "testing", nil)
		if err != nil {
			return nil, err
		}
		accuracy := t.accuracy()
		r.TestAccuracy = &accuracy
	}
	return r, nil
}

// eachError calls do for each row of weight > 0, with the largest magnitude of its errors.
func (f *fit) eachError(b *incremental.Block, do func(row int, size float64)) {
	class, values := f.space(b)
	f.model.Classify(class, values, b.Columns)
	k := len(f.model.Planes)
	for i, code := range b.Codes {
		if b.Weight(i) == 0 {
			continue
		}
		var size float64
		for p, value := range values[i*k:][:k] {
			d := -1.0
			if f.model.Planes[p].Class == b.Classes[code] {
				d = 1
			}
			size = max(size, math.Abs(value-d))
		}
		do(i, size)
	}
}

// divide separates the ε-support vectors from the other rows.
func (f *fit) divide(b *incremental.Block, epsilon float64) (near, far []int) {
	f.eachError(b, func(row int, size float64) {
		if size < epsilon {
			near = append(near, row)
		} else {
			far = append(far, row)
		}
	})
	return near, far
}

// epsilon is the least ε of six significant bits that is above the errors of a share of
// the rows.
func (f *fit) epsilon(ctx context.Context, share float64) (float64, error) {
	// Errors are counted by their leading bits, so that none has to be kept.
	const dropped = 52 - 6
	counts := make([][]int64, pipeline.Workers())
	for i := range counts {
		counts[i] = make([]int64, math.Float64bits(math.Inf(1))>>dropped+1)
	}
	tools := f.tools()
	err := dataset.Each(ctx, f.data, "finding the nearest rows",
		func(worker int, b *incremental.Block, _ int64) (none struct{}, err error) {
			f.eachError(tools[worker].enter(b, f.in), func(_ int, size float64) { counts[worker][math.Float64bits(size)>>dropped]++ })
			return none, nil
		},
		func(struct{}) error { return nil })
	if err != nil {
		return 0, err
	}
	var seen int64
	for i := range counts[0] {
		for _, c := range counts {
			seen += c[i]
		}
		if float64(seen) >= share*float64(f.sums.whole.Rows()-f.sums.whole.Unlabelled().Rows) {
			return math.Float64frombits(uint64(i+1) << dropped), nil
		}
	}
	return 0, fmt.Errorf("find the ε-support vectors of %s: its rows have no finite errors", f.data.Path)
}
