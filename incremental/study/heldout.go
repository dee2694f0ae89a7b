package study

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/sample"
)

// HeldOut holds out-of-fold decision values: each row is scored by planes that were made
// without its fold. Folds are left out when the other folds lack a class, or when their rows
// weigh nothing. So there are rows that weigh something.
type HeldOut struct {
	model  *incremental.Model
	folds  []span
	codes  []int32 // of the model's classes
	weight []float64
	values []float64 // rows × planes
	areas  []float64 // under the ROC curve of each plane; −1: not known yet
}

// span is the rows of a fold.
type span struct{ from, to, fold int }

// bins of a reliability diagram.
const bins = 10

// HoldOut scores the rows of a sample that has the study's folds. A row has a value for each
// plane. When these are more than the given number, only the first rows are scored, which are
// a sample too.
func (s *Study) HoldOut(ctx context.Context, of *Sample, values int) (*HeldOut, error) {
	return s.holdOut(ctx, of, values, len(of.in))
}

// holdOut scores the rows of the first folds alone.
func (s *Study) holdOut(ctx context.Context, of *Sample, values, first int) (*HeldOut, error) {
	planes := len(s.model.Planes)
	rows := min(of.block.Rows(), max(1, values/planes))
	weighted := sample.Weigh(of.block.Slice(0, rows), of.totals)
	h := &HeldOut{model: s.model, values: make([]float64, 0, rows*planes)}
	folds, said := len(s.problem.Folds), make([]int32, rows)
	for i, in := range of.in[:first] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		judged, _ := slices.BinarySearch(in, rows)
		b := weighted.Pick(in[:judged])
		if !weighs(b) {
			continue
		}
		without, err := s.planesWithout(ctx, of, i)
		if errors.Is(err, incremental.ErrClasses) || err == nil && !slices.Equal(without.Classes, s.model.Classes) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("without fold %d of %d: %w", i+1, folds, err)
		}
		from, m := len(h.codes), b.Rows()
		h.folds = append(h.folds, span{from, from + m, i})
		h.codes = append(h.codes, b.Codes...)
		h.weight = append(h.weight, b.Weights...)
		h.values = h.values[:(from+m)*planes]
		without.Classify(said[:m], h.values[from*planes:], b.Columns)
	}
	if len(h.folds) == 0 {
		return nil, fmt.Errorf("none of the %d folds of blocks has rows and leaves rows of every class to the others", folds)
	}
	return h, nil
}

// planesWithout makes the planes of the study without a fold. It returns what it has solved where
// that lacks a class.
func (s *Study) planesWithout(ctx context.Context, of *Sample, fold int) (*incremental.Model, error) {
	if s.folds != nil {
		if s.folds[fold] == nil {
			return nil, incremental.ErrClasses
		}
		return s.folds[fold], nil
	}
	rest := s.without(fold)
	without, err := rest.Solve(s.options.Planes)
	if err == nil && s.refined && slices.Equal(without.Classes, s.model.Classes) {
		return s.refineWithout(ctx, without, rest, of, fold)
	}
	return without, err
}

// weighs reports whether any row of a block weighs something.
func weighs(b *incremental.Block) bool {
	for i := range b.Rows() {
		if b.Weight(i) > 0 {
			return true
		}
	}
	return false
}

// NewHeldOut has the values, rows × planes, of rows by planes of the model's classes that were made
// without their folds elsewhere. Rows that of says are of fold −1 are left out. It returns nil if
// no row is left.
func NewHeldOut(model *incremental.Model, rows *incremental.Block, of []int, values []float64) *HeldOut {
	h, planes, class := &HeldOut{model: model}, len(model.Planes), rows.ClassesIn(model.Classes)
	for fold := range slices.Max(of) + 1 {
		from := len(h.codes)
		for i, in := range of {
			if in == fold && rows.Weight(i) > 0 {
				h.codes, h.weight = append(h.codes, int32(class[rows.Codes[i]])), append(h.weight, rows.Weight(i))
				h.values = append(h.values, values[i*planes:][:planes]...)
			}
		}
		if len(h.codes) > from {
			h.folds = append(h.folds, span{from, len(h.codes), fold})
		}
	}
	if h.folds == nil {
		return nil
	}
	return h
}

// Reliability compares probabilities with outcomes, for all classes together and for each
// plane's class against the rest.
type Reliability struct {
	All    calibration.Reliability
	Planes []calibration.Reliability
}

// Reliability judges the decision values before calibration (calibration.Linear).
func (h *HeldOut) Reliability(ctx context.Context) (Reliability, error) {
	linear := slices.Repeat([]calibration.Curve{calibration.Linear{}}, len(h.model.Planes))
	return h.measure(ctx, func(int) []calibration.Curve { return linear })
}

// measure judges the probabilities of the curves for each fold.
func (h *HeldOut) measure(ctx context.Context, curves func(fold int) []calibration.Curve) (r Reliability, err error) {
	planes, k := len(h.model.Planes), len(h.model.Classes)
	ofRow := make([][]calibration.Curve, 0, len(h.codes))
	for f, in := range h.folds {
		c := curves(f)
		for range in.to - in.from {
			ofRow = append(ofRow, c)
		}
	}
	r.All, err = calibration.MeasureClasses(k, func(dst []float64, row int) {
		calibration.Probabilities(dst, ofRow[row], h.values[row*planes:][:planes])
	}, h.codes, h.weight, bins)
	if err != nil {
		return r, err
	}
	if planes == 1 { // of two classes all have one probability
		r.Planes = []calibration.Reliability{r.All}
		return r, nil
	}
	probabilities, apart := make([]float64, len(h.codes)), make([]float64, planes) // reused for every plane
	for p := range planes {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		for i := range probabilities {
			if row := h.values[i*planes:][:planes]; calibration.Joint(ofRow[i]) {
				calibration.Apart(apart, ofRow[i], row)
				probabilities[i] = apart[p]
			} else {
				probabilities[i] = ofRow[i][p].Probability(row[p])
			}
		}
		one, err := calibration.Measure(probabilities, h.positive(p), h.weight, bins)
		if err != nil {
			return r, err
		}
		r.Planes = append(r.Planes, one)
	}
	return r, nil
}

// positive says of each row whether it is of a plane's class.
func (h *HeldOut) positive(plane int) []bool {
	out := make([]bool, len(h.codes))
	for i, c := range h.codes {
		out[i] = h.model.Classes[c] == h.model.Planes[plane].Class
	}
	return out
}
