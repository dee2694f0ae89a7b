package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"streamd/cmd/streamd/model"
)

// RefineAnswer is the body of POST /v1/refine: with status 200 the report, with 202 only
// the notice that the refinement goes on.
type RefineAnswer struct {
	Done       bool              `json:"done"`       // whether the refinement has ended
	Refinement *model.Refinement `json:"refinement"` // report of the refinement; null while it goes on
}

var refineWait = &parameter[time.Duration]{
	name: "wait", kind: patience, otherwise: MaxWait,
	meaning: "How long to wait for the end of the refinement. More than 1m counts as 1m.",
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

func (s *Server) tuning(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil || served.Tuning == nil {
		return absent(served, "choice of ν", served.Absent.Tuning)
	}
	return report(w, r, served, served.Tuning)
}

func (s *Server) quality(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil || served.Quality == nil {
		return absent(served, "measured quality", served.Absent.Quality)
	}
	return report(w, r, served, served.Quality)
}

var historySpan = &parameter[string]{
	name: "span", kind: oneOf(string(model.SpanMinutes), string(model.SpanHours), string(model.SpanDays)), otherwise: string(model.SpanMinutes),
	meaning: "Span: `minutes` is half an hour in intervals of 5 seconds, `hours` a day in intervals of 4 minutes, `days` 30 days in intervals of 2 hours.",
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, s.service.History(model.Span(historySpan.of(r))))
}

// report answers with a part of the served model, under the model's tag.
func report(w http.ResponseWriter, r *http.Request, served *model.Served, part any) error {
	if notModified(w, r, served.Fingerprint) {
		return nil
	}
	return answerJSON(w, part)
}

// absent is the error for a part that the served model does not have.
func absent(served *model.Served, part, why string) error {
	if served.Model == nil {
		return noModel(served)
	}
	return fail(CodeNotFound, "the served model has no %s: %s", part, why)
}

func noModel(served *model.Served) error {
	return fail(CodeNoModel, "there is no model: %s", served.Problem)
}
