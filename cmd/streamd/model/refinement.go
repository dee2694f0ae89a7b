package model

import (
	"time"

	"streamd/incremental/newton"
)

// Refinement reports how the planes were refined: see package newton.
type Refinement struct {
	Method  string    `json:"method"`       // method: line or full
	Digest  string    `json:"state_digest"` // digest of the live rows it was made for
	MadeAt  time.Time `json:"made_at"`      // time of its end
	Seconds float64   `json:"seconds"`      // time it took
	Source  string    `json:"source"`       // source of the rows: sample or log
	Rows    int64     `json:"rows"`         // rows used
	Live    int64     `json:"live_rows"`    // live rows at that time
	// Whether the source had all of its rows. It is false for a sample that waits for
	// rows to be read again.
	Complete bool              `json:"complete"`
	Planes   []PlaneRefinement `json:"planes"` // one for each plane, in the order of the model's
}

// PlaneRefinement reports how one plane was refined: see newton.Report.
type PlaneRefinement struct {
	Class          string  `json:"class"`           // class of the plane
	Objective      float64 `json:"objective"`       // objective at the end
	Gradient       float64 `json:"gradient_norm"`   // norm of the objective's gradient at the end
	Iterations     int     `json:"iterations"`      // Newton steps
	SupportVectors int64   `json:"support_vectors"` // rows with a positive multiplier (Fung 2003, 2.43)
}

// PlaneRefinements reports refined planes.
func PlaneRefinements(reports []newton.Report) []PlaneRefinement {
	planes := make([]PlaneRefinement, len(reports))
	for i, r := range reports {
		planes[i] = PlaneRefinement(r)
	}
	return planes
}
