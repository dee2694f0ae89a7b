package svm

import (
	"context"
	"fmt"

	"streamd/incremental"
)

// A FullFit has the planes of a full kernel for one ν.
type FullFit struct {
	Nu      float64
	Classes []string // of the rows that count, k ≥ 2
	// Planes are one for each class, or that of the second of two classes. W has a number for
	// each row.
	Planes []*Plane
	Values []float64 // K(x_i', A)w − γ of every row, also of absent ones: rows × planes
}

// Classify finds the planes of labelled rows, one class against the rest, for each of nus in turn.
// The cost of a row of class c is ν·a_c·v_i, with the class weights a and balance of the options
// and the row's weight v, as in Refiner. Absent rows do not count: their values are those of
// planes that were made without them. found is called for each ν; ν that ascend save time, since
// a plane begins at the one before.
//
// Its errors are those of Open and Fit, and incremental.ErrClasses.
func (s SMO) Classify(ctx context.Context, b *incremental.Block, absent func(row int) bool, o incremental.Options, nus []float64, found func(*FullFit) error) error {
	f, err := s.Open(b.Columns, 0)
	if err != nil {
		return err
	}
	of := make([]int, len(b.Classes)) // number of a class among those that count, or noClass
	side := make([]float64, len(b.Classes))
	cost := make([]float64, b.Rows())
	for i, code := range b.Codes {
		if absent == nil || !absent(i) {
			side[code] += b.Weight(i)
			cost[i] = o.ClassWeight(b.Classes[code]) * b.Weight(i)
		}
	}
	var classes []string
	var sides []float64
	var all float64
	for code, weight := range side {
		of[code] = noClass
		if weight > 0 {
			of[code] = len(classes)
			classes, sides = append(classes, b.Classes[code]), append(sides, weight)
			all += weight
		}
	}
	if len(classes) < 2 {
		return incremental.ErrClasses
	}
	first, planes := 0, len(classes)
	if planes == 2 {
		first, planes = 1, 1
	}
	d, costs := make([][]float64, planes), make([][]float64, planes)
	for p := range planes {
		own, rest := 1.0, 1.0
		if o.Balanced { // half of the weight of all rows for each side
			own, rest = sides[first+p]/(all/2), (all-sides[first+p])/(all/2)
		}
		d[p], costs[p] = make([]float64, b.Rows()), make([]float64, b.Rows())
		for i, code := range b.Codes {
			if d[p][i], costs[p][i] = -1, cost[i]/rest; of[code] == first+p {
				d[p][i], costs[p][i] = 1, cost[i]/own
			}
		}
	}
	start := make([][]float64, planes)
	for _, nu := range nus {
		fit := &FullFit{Nu: nu, Classes: classes, Values: make([]float64, b.Rows()*planes)}
		for p := range planes {
			plane, values, err := f.Fit(ctx, d[p], costs[p], nu, start[p])
			if err != nil {
				return fmt.Errorf("class %q: %w", classes[first+p], err)
			}
			start[p] = plane.W
			fit.Planes = append(fit.Planes, plane)
			for i, v := range values {
				fit.Values[i*planes+p] = v
			}
		}
		if err := found(fit); err != nil {
			return err
		}
	}
	return nil
}
