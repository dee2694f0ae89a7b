package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"streamd/incremental/newton"
)

// MethodPSVM names planes that were read off the summed state and not refined
// (Fung 2003, 2.28 to 2.36).
const MethodPSVM = "psvm"

// method says what made the planes of s.
func (s *Served) method() string {
	if s.Refinement == nil {
		return MethodPSVM
	}
	return s.Refinement.Method
}

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

// RefineAnswer is the body of POST /v1/refine: with status 200 the report, with
// 202 only that the refinement goes on.
type RefineAnswer struct {
	Done       bool        `json:"done"`       // whether it has ended
	Refinement *Refinement `json:"refinement"` // the report; null while it goes on
}

func (s *Server) refine(w http.ResponseWriter, r *http.Request) error {
	if served, _ := s.service.Served(); served.Model == nil {
		return noModel(served)
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(refineWait.of(r), MaxWait))
	defer cancel()
	report, err := s.service.Refine(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return answerJSONWith(w, http.StatusAccepted, RefineAnswer{})
	case err != nil:
		return err
	}
	return answerJSON(w, RefineAnswer{Done: true, Refinement: report})
}
