package httpapi

import (
	"context"
	"errors"
	"net/http"

	"streamd/cmd/streamd/model"
)

// RefineAnswer is the body of POST /v1/refine: with status 200 the report, with
// 202 only that the refinement goes on.
type RefineAnswer struct {
	Done       bool              `json:"done"`       // whether it has ended
	Refinement *model.Refinement `json:"refinement"` // the report; null while it goes on
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
