package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/plot"
	"streamd/incremental/tuning"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// reduceAuto has the reducer and the size of the basis chosen.
const reduceAuto = "auto"

const (
	defaultReduceTime = 10 * time.Minute
	// mostSizes is the number of sizes that each reducer is tried with: the limit, its half, and so
	// on.
	mostSizes = 6
	leastSize = 3
)

// checkAuto refuses flags that go with --reduce auto alone.
func (c *kernelFlags) checkAuto() error {
	if c.Reduce != reduceAuto && (c.ReduceTime != nil || c.SVG != "") {
		return errors.New("--reduce-time and --svg go with --reduce auto")
	}
	if c.ReduceTime != nil && *c.ReduceTime <= 0 {
		return fmt.Errorf("--reduce-time %v: must be positive", *c.ReduceTime)
	}
	if c.SVG != "" && filepath.Ext(c.SVG) != ".svg" {
		return fmt.Errorf("--svg %s: its name must end in .svg", c.SVG)
	}
	return nil
}

// comparisonReport reports how reducers and sizes compare.
type comparisonReport struct {
	Rows      int            `json:"rows"` // that each basis was judged on
	Folds     int            `json:"folds"`
	Criterion string         `json:"criterion"`
	Reducers  []string       `json:"reducers"` // compared
	Sizes     []int          `json:"sizes"`    // asked for, descending
	Trials    []sizeReport   `json:"trials"`
	Untried   int            `json:"untried"` // bases that there was no time for
	Seconds   float64        `json:"seconds"`
	Failures  []failedReport `json:"failures,omitempty"`
}

// sizeReport has the figures of a reducer and a size on held-out rows.
type sizeReport struct {
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

// failedReport is a reducer and a size without a basis.
type failedReport struct {
	Method string `json:"method"`
	Basis  int    `json:"basis"`
	Reason string `json:"reason"`
}

// compare has every reducer that goes with the kernel try several sizes, and puts the choice into
// the flags.
func (f *fit) compare(ctx context.Context, c *kernelFlags, kernel kernels.Kernel, tuned bool) (*comparisonReport, error) {
	p, err := f.problem(c, none)
	if err != nil {
		return nil, err
	}
	if p.Planes = f.options; tuned {
		p.Planes.Nu = 0
	}
	candidates, err := f.candidates(kernel, p.Points)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	limit := given(c.ReduceTime, defaultReduceTime)
	inTime, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var tried atomic.Int64
	p.Tried = func() { tried.Add(1) }
	stop := f.s.report("comparing bases", func() string {
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
	c.Reduce, c.Basis = chosen.Name, new(chosen.Coordinates)
	r := newComparisonReport(compared, f.objective)
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// candidates are all reducers that go with the kernel in all sizes, the default one first.
func (f *fit) candidates(kernel kernels.Kernel, most int) (all []basis.Candidate, err error) {
	planes := len(f.rows.Classes)
	if planes == 2 {
		planes = 1
	}
	names := slices.DeleteFunc(reduce.Names(), func(name string) bool {
		return name == defaultReduce || reduce.NeedsSemidefinite(name) && !kernel.Semidefinite()
	})
	slices.Reverse(names) // cs, which takes the most time, comes last
	for _, name := range append([]string{defaultReduce}, names...) {
		for i, size := 0, most; i < mostSizes && (i == 0 || size >= max(planes, leastSize)); i, size = i+1, size/2 {
			by, err := reduce.Parse(name, size)
			if err != nil {
				return nil, err
			}
			points := size
			if eigen, ok := by.(reduce.Eigen); ok {
				points = eigen.Points
			}
			all = append(all, basis.Candidate{Name: name, Reducer: by, Coordinates: size, Points: points})
		}
	}
	return all, nil
}

func newComparisonReport(of *basis.Comparison, objective tuning.Objective) *comparisonReport {
	r := &comparisonReport{Rows: of.Rows, Folds: of.Folds, Criterion: tuning.For(objective, true).String(), Untried: of.Untried}
	for i, t := range of.Judged {
		if !slices.Contains(r.Reducers, t.Name) {
			r.Reducers = append(r.Reducers, t.Name)
		}
		if !slices.Contains(r.Sizes, t.Coordinates) {
			r.Sizes = append(r.Sizes, t.Coordinates)
		}
		if t.Failed != nil {
			r.Failures = append(r.Failures, failedReport{t.Name, t.Coordinates, t.Failed.Error()})
			continue
		}
		r.Trials = append(r.Trials, sizeReport{
			Method: t.Name, Basis: t.Coordinates, Points: t.Points, Coordinates: t.Mean, Nu: t.Nu,
			Correctness: t.Correctness, Deviation: t.Deviation, Loss: t.Loss,
			Behind: t.Behind, BehindError: t.BehindDeviation, LossBehind: t.LossBehind, LossBehindError: t.LossBehindDeviation,
			Seconds: t.Seconds, Chosen: i == of.Chosen,
		})
	}
	slices.SortFunc(r.Sizes, func(a, b int) int { return b - a })
	return r
}

// of returns the figures of a reducer and a size, or nil.
func (r *comparisonReport) of(method string, size int) *sizeReport {
	i := slices.IndexFunc(r.Trials, func(t sizeReport) bool { return t.Method == method && t.Basis == size })
	if i < 0 {
		return nil
	}
	return &r.Trials[i]
}

// print writes correctness against the size of the basis, a row for each reducer.
func (r *comparisonReport) print(p *table) {
	p.row("compared", fmt.Sprintf("%s of %s on %s, in %%, with its standard error; in %.3g s",
		r.Criterion, counted(r.Rows, "row"), counted(r.Folds, "fold"), r.Seconds))
	head := []string{"  basis of"}
	for _, size := range r.Sizes {
		head = append(head, fmt.Sprint(size))
	}
	p.row(append(head, "seconds")...)
	fewer := false
	for _, method := range r.Reducers {
		cells := []string{"  " + method}
		seconds := ""
		for _, size := range r.Sizes {
			t := r.of(method, size)
			if t == nil {
				cells = append(cells, "–")
				continue
			}
			cell := fmt.Sprintf("%.2f ±%.2f", 100*t.Correctness, 100*t.Deviation)
			if t.Coordinates < float64(size)-0.5 {
				cell += fmt.Sprintf(" (%.0f)", t.Coordinates)
				fewer = true
			}
			if t.Chosen {
				cell += " *"
			}
			cells = append(cells, cell)
			if seconds == "" {
				seconds = fmt.Sprintf("%.2g", t.Seconds)
			}
		}
		p.row(append(cells, seconds)...)
	}
	notes := []string{"* is taken: the fewest points within one standard error of the best, in correctness and loss"}
	if fewer {
		notes = append(notes, "(n): n coordinates")
	}
	p.row("  ", strings.Join(append(notes, "seconds are those of a fold and the largest basis"), "; "))
	if r.Untried > 0 {
		p.row("  untried", fmt.Sprintf("%d of %d, for lack of time: see --reduce-time", r.Untried, r.Untried+len(r.Trials)+len(r.Failures)))
	}
	for _, f := range r.Failures {
		p.row("  "+f.Method, fmt.Sprintf("none of %d: %s", f.Basis, f.Reason))
	}
}

// draw writes the picture.
func (r *comparisonReport) draw(file, data string) error {
	picture := plot.Sizes{
		Title: fmt.Sprintf("Bases of %s, on %s of %s", filepath.Base(data), counted(r.Rows, "row"), counted(r.Folds, "fold")),
		Up:    r.Criterion + ", %", Marks: r.Sizes,
	}
	for _, method := range r.Reducers {
		line := plot.SizesLine{Name: method}
		for _, size := range slices.Backward(r.Sizes) {
			if t := r.of(method, size); t != nil {
				line.Points = append(line.Points, plot.Estimate{
					XY: plot.XY{X: t.Coordinates, Y: 100 * t.Correctness}, Error: 100 * t.Deviation, Chosen: t.Chosen,
				})
			}
		}
		if line.Points != nil {
			picture.Lines = append(picture.Lines, line)
		}
	}
	var b bytes.Buffer // a failure leaves no file
	if err := picture.SVG(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}

// compare compares bases, puts the choice into the flags, and draws the picture.
func (r *basisReport) compare(ctx context.Context, f *fit, c *kernelFlags, kernel kernels.Kernel, tuned bool) (err error) {
	if r.Compared, err = f.compare(ctx, c, kernel, tuned); err != nil {
		return fmt.Errorf("compare bases for %s: %w", f.data.Path, err)
	}
	r.Method = c.Reduce
	if c.SVG != "" {
		err = r.Compared.draw(c.SVG, f.data.Path)
	}
	return err
}
