package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		return s.noModel(served)
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
		return s.absent(served, "choice of ν", served.Absent.Tuning)
	}
	return report(w, r, served.Tuning)
}

func (s *Server) quality(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	if served.Model == nil || served.Quality == nil {
		return s.absent(served, "measured quality", served.Absent.Quality)
	}
	return report(w, r, served.Quality)
}

func (s *Server) prequential(w http.ResponseWriter, _ *http.Request) error {
	return answerJSON(w, s.service.Prequential())
}

var historySpan = &parameter[string]{
	name: "span", kind: oneOf(string(model.SpanMinutes), string(model.SpanHours), string(model.SpanDays)), otherwise: string(model.SpanMinutes),
	meaning: "Span: `minutes` is half an hour in intervals of 5 seconds, `hours` a day in intervals of 4 minutes, `days` 30 days in intervals of 2 hours.",
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, s.service.History(model.Span(historySpan.of(r))))
}

const (
	defaultRequests = 20
	maxRequests     = 1000
)

// LabelRequestsAnswer names the rows whose labels would say most: of the clusters of all
// rows about k medians, the rows nearest to the centres (Fung 2003, algorithm 5.3.1).
type LabelRequestsAnswer struct {
	Digest   string         `json:"state_digest"` // digest of the live rows
	Rows     int            `json:"rows"`         // rows of the sample that were clustered
	Clusters int            `json:"clusters"`     // clusters found, at most count
	Labelled int            `json:"labelled"`     // clusters whose nearest row has a label already
	Features []string       `json:"features"`     // features of the values
	Requests []LabelRequest `json:"requests"`     // rows to label, those of the largest clusters first
}

// LabelRequest is a row to label.
type LabelRequest struct {
	Block string `json:"block"` // id of its block; of blocks with equal rows, the first
	// 0-based place of the row in its block. A block that was gathered from several
	// messages has no places for rows of weight 0.
	Row    int       `json:"row"`
	Values []float64 `json:"values"` // value of each feature
	// Share of all live rows in the row's cluster, by weight. It is the reason to ask for
	// this label.
	Share float64 `json:"share"`
}

var requestsCount = &parameter[int]{
	name: "count", kind: wholeNumber, otherwise: defaultRequests,
	meaning: fmt.Sprintf("Clusters that the live rows are divided into, 5 to 10 %% of the rows where that is few enough. More than %d counts as %[1]d.", maxRequests),
}

func (s *Server) labelRequests(w http.ResponseWriter, r *http.Request) error {
	extend(w, MaxWait)
	ctx, cancel := context.WithTimeout(r.Context(), MaxWait)
	defer cancel()
	a, err := s.service.LabelRequests(ctx, min(requestsCount.of(r), maxRequests))
	switch {
	case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil:
		return fail(CodeUnavailable, "the rows could not be clustered within %v: ask for fewer", MaxWait)
	case err != nil:
		return err
	}
	a.Requests = listed(a.Requests)
	return answerJSON(w, a)
}

// report answers with a report of the served model. Models of one fingerprint can differ in it, so
// it has a tag of its own.
func report(w http.ResponseWriter, r *http.Request, part any) error {
	body, err := json.Marshal(part)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	if !hasBytes(w, r, tagOf(body)) {
		writeJSON(w, http.StatusOK, append(body, '\n'))
	}
	return nil
}

// absent is the error for a part that the served model does not have.
func (s *Server) absent(served *model.Served, part, why string) error {
	if served.Model == nil {
		return s.noModel(served)
	}
	return fail(CodeNotFound, "the served model has no %s: %s", part, why)
}

// noModel is the error for a caller who may read.
func (s *Server) noModel(served *model.Served) error {
	return fail(CodeNoModel, "there is no model: %s", s.whyNoModel(served, true))
}

// whyNoModel says why nothing is served. Of an empty live set the value knows no more.
func (s *Server) whyNoModel(served *model.Served, mayRead bool) string {
	if served.Rows > 0 || served.Window != nil {
		return served.Problem
	}
	status := s.service.Status()
	return status.empty(mayRead)
}
