package model

import (
	"time"

	"streamd/incremental/newton"
)

// Refinement reports how the planes were refined: see packages newton and svm.
type Refinement struct {
	Method  string    `json:"method"`       // method: line, full or logistic, or the machine whose program was solved
	Digest  string    `json:"state_digest"` // digest of the live rows it was made for
	MadeAt  time.Time `json:"made_at"`      // time of its end
	Seconds float64   `json:"seconds"`      // time it took
	Source  string    `json:"source"`       // source of the rows: sample or log
	Rows    int64     `json:"rows"`         // rows used
	// Rows without a label among the rows used, which only the method unlabelled takes.
	Unlabelled int64 `json:"unlabelled_rows,omitempty"`
	Live       int64 `json:"live_rows"` // live rows at that time
	// Whether the source had all of its rows. It is false for a sample that waits for
	// rows to be read again.
	Complete bool              `json:"complete"`
	Planes   []PlaneRefinement `json:"planes"` // one for each plane, in the order of the model's
}

// PlaneRefinement reports how one plane was refined: see newton.Report.
type PlaneRefinement struct {
	Class          string   `json:"class"`           // class of the plane
	Objective      float64  `json:"objective"`       // objective at the end
	Gradient       *float64 `json:"gradient_norm"`   // norm of the objective's gradient at the end; null for a program
	Gap            *float64 `json:"gap"`             // objective less that of a dual solution, below which no plane is; null without one
	Programs       int      `json:"programs"`        // mathematical programs solved; 0 for Newton's method
	Iterations     int      `json:"iterations"`      // Newton steps, or the iterations of the programs
	Features       int      `json:"features"`        // features, or points of the basis, whose weight is not 0
	SupportVectors int64    `json:"support_vectors"` // rows with a positive multiplier (Fung 2003, 2.43)
	// Most that the share of rows can be that are wrong by planes made without them (Fung 2003,
	// 4.14); null where the method gives no bound.
	LeaveOneOut *float64 `json:"leave_one_out_error"`
}

// PlaneRefinements reports refined planes.
func PlaneRefinements(result *newton.Result) []PlaneRefinement {
	planes, of := make([]PlaneRefinement, len(result.Planes)), result.Model.WithoutMissing().Planes
	for i, r := range result.Planes {
		planes[i] = PlaneRefinement{
			Class: r.Class, Objective: r.Objective, Gradient: number(r.Gradient), Gap: number(r.Gap),
			Programs: r.Programs, Iterations: r.Iterations, Features: of[i].Features(),
			SupportVectors: r.SupportVectors, LeaveOneOut: number(r.LeaveOneOut),
		}
	}
	return planes
}
