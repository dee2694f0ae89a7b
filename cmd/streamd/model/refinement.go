package model

import (
	"time"

	"streamd/incremental/newton"
)

// Refinement is how planes were refined: see package newton.
type Refinement struct {
	Method  string    `json:"method"`       // line or full
	Digest  string    `json:"state_digest"` // of the live rows that it was for
	MadeAt  time.Time `json:"made_at"`      // when it ended
	Seconds float64   `json:"seconds"`      // that it took
	Source  string    `json:"source"`       // of the rows: sample or log
	Rows    int64     `json:"rows"`         // that were used
	Live    int64     `json:"live_rows"`    // that there were
	// Complete: the rows are all that the source should have had; false for a
	// sample that waits for rows to be read again.
	Complete bool              `json:"complete"`
	Planes   []PlaneRefinement `json:"planes"` // in the order of the model's
}

// PlaneRefinement is how one plane was refined: see newton.Report.
type PlaneRefinement struct {
	Class          string  `json:"class"`           // the plane's
	Objective      float64 `json:"objective"`       // that was minimised, at the end
	Gradient       float64 `json:"gradient_norm"`   // of the objective, at the end
	Iterations     int     `json:"iterations"`      // Newton steps
	SupportVectors int64   `json:"support_vectors"` // the active rows (2.43)
}

// PlaneRefinements are reports as JSON shows them.
func PlaneRefinements(reports []newton.Report) []PlaneRefinement {
	planes := make([]PlaneRefinement, len(reports))
	for i, r := range reports {
		planes[i] = PlaneRefinement(r)
	}
	return planes
}
