package svm

import (
	"context"
	"fmt"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// A Fit has the planes of labelled rows for one ν.
type Fit struct {
	Nu      float64
	Classes []string // of the rows that count, k ≥ 2
	// Planes are one for each class, or that of the second of two classes.
	Planes []*Plane
	Values []float64 // x'w − γ, or K(x', A)w − γ, of every row, also of absent ones: rows × planes
}

// fitter finds the plane of rows of two sides, and the values of all rows. A plane of W start
// may be a beginning.
type fitter func(ctx context.Context, d, costs []float64, nu float64, start []float64) (*Plane, []float64, error)

// Classify finds the planes of labelled rows, one class against the rest, for each of nus in turn.
// The cost of a row of class c is ν·a_c·v_i, with the class weights a and balance of the options
// and the row's weight v, as in Refiner. Absent rows do not count: their values are those of
// planes that were made without them. found is called for each ν; ν that ascend save time, since
// a plane begins at the one before. No sums of the columns are made, so there may be tens of
// thousands.
//
// Planes of a full kernel, by a machine that is an SMO, have a number in W for each row, and
// others for each column. The errors are those of the machine, and incremental.ErrClasses.
func Classify(ctx context.Context, machine Machine, b *incremental.Block, absent func(row int) bool, o incremental.Options, nus []float64, found func(*Fit) error) error {
	if s, ok := machine.(SMO); ok {
		f, err := s.Open(b.Columns, 0)
		if err != nil {
			return err
		}
		return classify(ctx, f.Fit, b, absent, o, nus, found)
	}
	return classify(ctx, func(ctx context.Context, d, costs []float64, nu float64, _ []float64) (*Plane, []float64, error) {
		p, err := machine.Fit(ctx, &Rows{Columns: b.Columns, D: d, Costs: costs}, nu)
		if err != nil {
			return nil, nil, err
		}
		values := make([]float64, len(d))
		gram.AddProducts(values, b.Columns, 0, nil, p.W)
		for i := range values {
			values[i] -= p.Gamma
		}
		return p, values, nil
	}, b, absent, o, nus, found)
}

func classify(ctx context.Context, fit fitter, b *incremental.Block, absent func(row int) bool, o incremental.Options, nus []float64, found func(*Fit) error) error {
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
		out := &Fit{Nu: nu, Classes: classes, Values: make([]float64, b.Rows()*planes)}
		for p := range planes {
			plane, values, err := fit(ctx, d[p], costs[p], nu, start[p])
			if err != nil {
				return fmt.Errorf("class %q: %w", classes[first+p], advised(err, false))
			}
			start[p] = plane.W
			out.Planes = append(out.Planes, plane)
			for i, v := range values {
				out.Values[i*planes+p] = v
			}
		}
		if err := found(out); err != nil {
			return err
		}
	}
	return nil
}
