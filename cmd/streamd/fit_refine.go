package main

import (
	"context"
	"fmt"

	"streamd/incremental"
	"streamd/incremental/newton"
)

// refinementReport is how the planes of all rows were refined.
type refinementReport struct {
	Method string               `json:"method"`
	Passes int                  `json:"passes"` // over the file
	Planes []refinedPlaneReport `json:"planes"`
}

type refinedPlaneReport struct {
	Class          string  `json:"class"`
	Objective      float64 `json:"objective"`
	Gradient       float64 `json:"gradient"`
	Iterations     int     `json:"iterations"`
	SupportVectors int64   `json:"support_vectors"`
}

func (r *refinementReport) describe() string {
	var vectors int64
	for _, p := range r.Planes {
		vectors = max(vectors, p.SupportVectors)
	}
	of := ""
	if len(r.Planes) > 1 {
		of = " for the plane with the most"
	}
	return fmt.Sprintf("%s, in %s; %s%s", r.Method, counted(r.Passes, "pass"), counted(vectors, "support vector"), of)
}

// refine refines the model, and that of each fold on the rows without it. Of wide
// files the dual finds the same planes, in two passes and with smaller systems.
func (f *fit) refine(ctx context.Context, method newton.Method) (*refinementReport, error) {
	o := newton.Options{Method: method}
	if method == newton.Full && 2*f.state.Rows() <= int64(len(f.model.Features)) {
		o.Method = newton.Dual
	}
	if f.options.Standardise {
		o.Mean, o.Sigma = f.state.Moments().Scale()
	}
	result, err := newton.Refine(ctx, f.model, &rereading{f, f.coordinates, none}, o)
	if err != nil {
		return nil, fmt.Errorf("refine on %s: %w", f.data.path, err)
	}
	f.model = result.Model
	report := &refinementReport{Method: method.String(), Passes: result.Passes}
	for _, p := range result.Planes {
		report.Planes = append(report.Planes, refinedPlaneReport{p.Class, p.Objective, p.Gradient, p.Iterations, p.SupportVectors})
	}
	for fold, m := range f.foldModels {
		if f.options.Standardise { // which a kernel's coordinates are not
			rest, _, err := f.without(ctx, fold)
			if err != nil {
				return nil, err
			}
			o.Mean, o.Sigma = rest.Scale()
		}
		if result, err = newton.Refine(ctx, m, &rereading{f, f.of(fold), fold}, o); err != nil {
			return nil, fmt.Errorf("refine on %s without fold %d of %d: %w", f.data.path, fold+1, f.folds, err)
		}
		f.foldModels[fold] = result.Model
	}
	return report, nil
}

const none = -1

// rereading is the rows of the file, without those of a fold if not none.
type rereading struct {
	f       *fit
	in      *coordinates
	without int
}

// Pass implements newton.Rows.
func (r *rereading) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	dividers := r.f.dividers()
	return each(ctx, r.f.s, "refining", r.f.data,
		func(worker int, b *incremental.Block, firstRow int64) (nothing struct{}, err error) {
			if r.without != none {
				d := &dividers[worker]
				_, rest := d.divide(b, firstRow, r.without)
				b = d.gather(b, rest)
			}
			return nothing, visit(r.in.enter(worker, b))
		},
		func(struct{}) error { return nil })
}
