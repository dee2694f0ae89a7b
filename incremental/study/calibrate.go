package study

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"streamd/incremental/calibration"
)

// Curves is a kind of calibration curve.
type Curves int

const (
	// Auto is the kind of least out-of-fold log loss. Isotonic is tried with isotonicRows or
	// more, and Softmax for three classes to calibration.MostSoftmax. Beyond these, and where rows
	// of some of three or more classes are too few for a curve, it is Temperature.
	Auto Curves = iota
	Platt
	Isotonic
	Softmax
	Temperature // one scale of the values of all planes
)

// leastOfClass is the least number of rows of each class that curves are fitted to. With fewer,
// probabilities say how few they are, and not how sure an answer is. The one number of a
// Temperature takes as many rows outside the largest class, and twice as many in all.
const leastOfClass = 30

// fewest counts the rows of the class of fewest rows, and the rows outside the largest class.
func (h *HeldOut) fewest() (rows, outside int) {
	counts := make([]int, max(2, len(h.model.Planes)))
	for i, class := range h.codes {
		if h.weight[i] > 0 {
			counts[class]++
			outside++
		}
	}
	return slices.Min(counts), outside - slices.Max(counts)
}

// isotonicRows is the least number of rows for an isotonic curve. With fewer it follows the
// rows rather than the probabilities.
const isotonicRows = 1000

// Calibrated is a calibration.
type Calibrated struct {
	Kind   Curves              // not Auto
	Curves []calibration.Curve // of each plane, fitted to all rows
	// After judges the probabilities of each fold by curves that were fitted to the other
	// folds.
	After Reliability

	apart [][]calibration.Curve // of each fold, fitted to the others
}

// of returns the curves that were fitted without a fold, or those of all rows for none.
func (c *Calibrated) of(fold int) []calibration.Curve {
	if fold == none {
		return c.Curves
	}
	return c.apart[fold]
}

// Calibrate fits curves from decision values to probabilities. It needs rows in two folds or
// more. Rows count by their weights, also in Platt's targets, where he counts rows; that
// lowers the out-of-fold log loss.
func (h *HeldOut) Calibrate(ctx context.Context, kind Curves) (*Calibrated, error) {
	if len(h.folds) < 2 {
		return nil, errors.New("a calibration wants two folds of blocks that have rows and leave rows of every class to the others")
	}
	fewest, outside := h.fewest()
	some := len(h.model.Planes) > 1
	switch {
	case some && (kind == Temperature || kind == Auto && (fewest < leastOfClass || len(h.model.Planes) > calibration.MostSoftmax)):
		if outside < leastOfClass || len(h.codes) < 2*leastOfClass {
			return nil, fmt.Errorf("a calibration wants %d held-out rows, %d of them outside the largest class; there are %d and %d", 2*leastOfClass, leastOfClass, len(h.codes), outside)
		}
		return h.temperature(ctx)
	case kind == Temperature:
		return nil, errors.New("temperature is for 3 classes or more")
	case fewest < leastOfClass:
		return nil, fmt.Errorf("a calibration wants %d held-out rows of each class; there are %d of one", leastOfClass, fewest)
	}
	joint := len(h.model.Planes) > 1 && len(h.model.Planes) <= calibration.MostSoftmax
	var kinds []Curves // of single planes
	switch {
	case kind == Softmax && !joint:
		return nil, fmt.Errorf("softmax is for 3 to %d classes", calibration.MostSoftmax)
	case kind == Softmax:
	case kind != Auto:
		kinds = []Curves{kind}
	case len(h.codes) < isotonicRows:
		kinds = []Curves{Platt}
	default:
		kinds = []Curves{Platt, Isotonic}
	}
	all, err := h.calibrateBy(ctx, kinds)
	if err != nil {
		return nil, err
	}
	if joint && (kind == Auto || kind == Softmax) {
		for _, shrink := range []float64{10, 100, 1000} {
			c, err := h.softmax(ctx, shrink)
			if err == nil {
				all = append(all, c)
			} else if kind == Softmax || ctx.Err() != nil {
				return nil, err
			}
		}
	}
	best := all[0]
	for _, c := range all[1:] {
		if c.After.All.LogLoss < best.After.All.LogLoss {
			best = c
		}
	}
	return best, nil
}

const (
	// mostSteps bounds the rows that a Softmax of k planes is fitted to: rows × k⁴.
	mostSteps = 1 << 29
	// mostCopied bounds the values that are copied for the curves of all planes.
	mostCopied = 1 << 20
)

// softmax fits a Softmax to the rows of all folds, and without each fold, where the search
// begins at that of all.
func (h *HeldOut) softmax(ctx context.Context, shrink float64) (c *Calibrated, err error) {
	k := len(h.model.Planes)
	most := max(1, min(mostSteps/(k*k*k), mostCopied)/k/len(h.folds)) // rows of a fold
	fit := func(without int, from []calibration.Curve) ([]calibration.Curve, error) {
		var values, weights []float64
		var classes []int32
		for f, in := range h.folds {
			if f == without {
				continue
			}
			to := min(in.to, in.from+most)
			values = append(values, h.values[in.from*k:to*k]...)
			weights = append(weights, h.weight[in.from:to]...)
			classes = append(classes, h.codes[in.from:to]...)
		}
		return calibration.FitSoftmax(values, classes, weights, k, shrink, from)
	}
	c = &Calibrated{Kind: Softmax}
	if c.Curves, err = fit(none, nil); err != nil {
		return nil, err
	}
	for f := range h.folds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		curves, err := fit(f, c.Curves)
		if err != nil {
			return nil, err
		}
		c.apart = append(c.apart, curves)
	}
	c.After, err = h.measure(ctx, c.of)
	return c, err
}

// temperature fits the one scale of all decision values, which keeps their order, to the rows
// of all folds, and without each fold.
func (h *HeldOut) temperature(ctx context.Context) (c *Calibrated, err error) {
	k := len(h.model.Planes)
	most := max(1, mostCopied/k/len(h.folds)) // rows of a fold
	c = &Calibrated{Kind: Platt}
	if k > 1 {
		c.Kind = Temperature
	}
	fit := func(without int, from float64) []calibration.Curve {
		var values, weights []float64
		var classes []int32
		for f, in := range h.folds {
			if to := min(in.to, in.from+most); f != without {
				values = append(values, h.values[in.from*k:to*k]...)
				weights = append(weights, h.weight[in.from:to]...)
				classes = append(classes, h.codes[in.from:to]...)
			}
		}
		return calibration.FitTemperature(values, classes, weights, k, from)
	}
	c.Curves = fit(none, 0)
	near := 0.
	switch all := c.Curves[0].(type) {
	case calibration.Temperature:
		near = all.Scale
	case calibration.Sigmoid:
		near = -all.A
	}
	for f := range h.folds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.apart = append(c.apart, fit(f, near))
	}
	c.After, err = h.measure(ctx, c.of)
	return c, err
}

// calibrateBy fits the curves of one plane after the other, to have the outcomes of a single
// plane in memory.
func (h *HeldOut) calibrateBy(ctx context.Context, kinds []Curves) ([]*Calibrated, error) {
	all := make([]*Calibrated, len(kinds))
	for i, kind := range kinds {
		all[i] = &Calibrated{Kind: kind, apart: make([][]calibration.Curve, len(h.folds))}
	}
	for p, plane := range h.model.Planes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		outcomes, err := h.outcomes(p)
		for i := 0; i < len(kinds) && err == nil; i++ {
			var whole calibration.Curve
			var without []calibration.Curve
			whole, without, err = h.fit(kinds[i], outcomes)
			all[i].Curves = append(all[i].Curves, whole)
			for f, curve := range without {
				all[i].apart[f] = append(all[i].apart[f], curve)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("calibrate class %q: %w", plane.Class, err)
		}
	}
	for _, c := range all {
		var err error
		if c.After, err = h.measure(ctx, c.of); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// outcomes returns the outcomes of a plane, and keeps the area under its ROC curve.
func (h *HeldOut) outcomes(plane int) (*calibration.Outcomes, error) {
	planes := len(h.model.Planes)
	values := make([]float64, len(h.codes))
	for i := range values {
		values[i] = h.values[i*planes+plane]
	}
	o, err := calibration.NewOutcomes(values, h.positive(plane), h.weight)
	if err == nil {
		if h.areas == nil {
			h.areas = slices.Repeat([]float64{-1}, planes)
		}
		h.areas[plane] = o.AUC()
	}
	return o, err
}

// fit fits curves of a plane to all outcomes, and to those without each fold. The search for
// a sigmoid without a fold begins at the sigmoid of all, which is near.
func (h *HeldOut) fit(kind Curves, o *calibration.Outcomes) (whole calibration.Curve, without []calibration.Curve, err error) {
	var again func(*calibration.Outcomes) (calibration.Curve, error)
	if kind == Isotonic {
		again = func(o *calibration.Outcomes) (calibration.Curve, error) { return o.FitIsotonic() }
		whole, err = again(o)
	} else {
		var near calibration.Sigmoid
		near, err = o.FitSigmoid()
		again = func(o *calibration.Outcomes) (calibration.Curve, error) { return o.FitSigmoidFrom(near) }
		whole = near
	}
	for i := 0; i < len(h.folds) && err == nil; i++ {
		var curve calibration.Curve
		curve, err = again(h.outside(o, i))
		without = append(without, curve)
	}
	return whole, without, err
}
