package fit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"streamd/config"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

const (
	// mostSizes is the number of sizes that each reducer is tried with: the limit, its half, and so
	// on.
	mostSizes = 6
	leastSize = 3
)

// Comparison reports how reducers and sizes compare.
type Comparison struct {
	Rows      int       `json:"rows"` // that each basis was judged on
	Folds     int       `json:"folds"`
	Criterion string    `json:"criterion"`
	Reducers  []string  `json:"reducers"` // compared
	Sizes     []int     `json:"sizes"`    // asked for, descending
	Trials    []Trial   `json:"trials"`
	Untried   int       `json:"untried"` // bases that there was no time for
	Seconds   float64   `json:"seconds"`
	Failures  []Failure `json:"failures,omitempty"`
}

// Trial has the figures of a reducer and a size on held-out rows.
type Trial struct {
	Method      string  `json:"method"`
	Basis       int     `json:"basis"`       // most coordinates
	Points      int     `json:"points"`      // most points
	Coordinates float64 `json:"coordinates"` // mean over the folds
	Nu          float64 `json:"nu"`
	Correctness float64 `json:"correctness"` // balanced if the objective is
	Deviation   float64 `json:"standard_error"`
	Loss        float64 `json:"loss"`
	// How far it is behind the most correct one.
	Behind          float64 `json:"behind"`
	BehindError     float64 `json:"behind_standard_error"`
	LossBehind      float64 `json:"loss_behind"`
	LossBehindError float64 `json:"loss_behind_standard_error"`

	Seconds float64 `json:"seconds"` // mean over the folds
	Chosen  bool    `json:"chosen"`
}

// Failure is a reducer and a size without a basis.
type Failure struct {
	Method string `json:"method"`
	Basis  int    `json:"basis"`
	Reason string `json:"reason"`
}

// compare has every reducer that goes with the kernel try several sizes, and puts the choice into
// the settings.
func (f *fit) compare(ctx context.Context, kernel kernels.Kernel) (*Comparison, error) {
	p, err := f.problem(none)
	if err != nil {
		return nil, err
	}
	if p.Planes = f.options; f.tunes() {
		p.Planes.Nu = 0
	}
	candidates := f.candidates(kernel, p.Points)
	began := time.Now()
	limit := f.want.ReduceTime
	inTime, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var tried atomic.Int64
	p.Tried = func() { tried.Add(1) }
	stop := f.steps("comparing bases", func() string {
		return fmt.Sprintf("%d of %d tried, %v of %v", tried.Load(), len(candidates), time.Since(began).Round(time.Second), limit)
	})
	defer stop()
	compared, err := p.Compare(inTime, kernel, candidates, f.rows.fold)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("none was judged within %v; give more --reduce-time, or fewer --folds", limit)
	}
	if err != nil {
		return nil, err
	}
	chosen := &compared.Judged[compared.Chosen]
	if ctx.Err() != nil {
		return nil, fmt.Errorf("--reduce %s --basis %d is to be recommended after %d of %d: %w",
			chosen.Name, chosen.Coordinates, len(compared.Judged), len(candidates), ctx.Err())
	}
	f.want.Kernel.Reduce, f.want.Kernel.Basis = config.Reduce(chosen.Name), chosen.Coordinates
	r := newComparison(compared, f.objective)
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// candidates are all reducers that go with the kernel in all sizes, the default one first.
func (f *fit) candidates(kernel kernels.Kernel, most int) (all []basis.Candidate) {
	planes := len(f.rows.Classes)
	if planes == 2 {
		planes = 1
	}
	names := slices.DeleteFunc(reduce.Names(), func(name string) bool {
		return name == string(firstReduce) || reduce.NeedsSemidefinite(name) && !kernel.Semidefinite()
	})
	slices.Reverse(names) // cs, which takes the most time, comes last
	for _, name := range append([]string{string(firstReduce)}, names...) {
		for i, size := 0, most; i < mostSizes && (i == 0 || size >= max(planes, leastSize)); i, size = i+1, size/2 {
			by, points := config.Reduce(name).Reducer(size), size
			if eigen, ok := by.(reduce.Eigen); ok {
				points = eigen.Points
			}
			all = append(all, basis.Candidate{Name: name, Reducer: by, Coordinates: size, Points: points})
		}
	}
	return all
}

func newComparison(of *basis.Comparison, objective tuning.Objective) *Comparison {
	r := &Comparison{Rows: of.Rows, Folds: of.Folds, Criterion: tuning.For(objective, true).String(), Untried: of.Untried}
	for i, t := range of.Judged {
		if !slices.Contains(r.Reducers, t.Name) {
			r.Reducers = append(r.Reducers, t.Name)
		}
		if !slices.Contains(r.Sizes, t.Coordinates) {
			r.Sizes = append(r.Sizes, t.Coordinates)
		}
		if t.Failed != nil {
			r.Failures = append(r.Failures, Failure{t.Name, t.Coordinates, t.Failed.Error()})
			continue
		}
		r.Trials = append(r.Trials, Trial{
			Method: t.Name, Basis: t.Coordinates, Points: t.Points, Coordinates: t.Mean, Nu: t.Nu,
			Correctness: t.Correctness, Deviation: t.Deviation, Loss: t.Loss,
			Behind: t.Behind, BehindError: t.BehindDeviation, LossBehind: t.LossBehind, LossBehindError: t.LossBehindDeviation,
			Seconds: t.Seconds, Chosen: i == of.Chosen,
		})
	}
	slices.SortFunc(r.Sizes, func(a, b int) int { return b - a })
	return r
}

// Of returns the figures of a reducer and a size, or nil.
func (c *Comparison) Of(method string, size int) *Trial {
	i := slices.IndexFunc(c.Trials, func(t Trial) bool { return t.Method == method && t.Basis == size })
	if i < 0 {
		return nil
	}
	return &c.Trials[i]
}
