package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/retire"
)

// Kinds of the parameters that choose a window.
var (
	moment = &kind[time.Time]{
		noun: "a time such as 2026-01-02T03:04:05Z (in a query, a + is written as %2B)",
		parse: func(text string) (time.Time, error) {
			t, err := time.Parse(time.RFC3339Nano, text)
			if err == nil && !retire.ValidTime(t) {
				err = strconv.ErrRange
			}
			return t, err
		},
		schema: map[string]any{"type": "string", "format": "date-time"},
	}
	ranges = &kind[[]retire.Range]{
		noun: "a list of ranges such as orders/3/100-199, with commas between them, at most 100",
		parse: func(text string) (all []retire.Range, err error) {
			for part := range strings.SplitSeq(text, ",") {
				var r retire.Range
				if err := r.UnmarshalText([]byte(part)); err != nil {
					return nil, fail(CodeBadRequest, "%v", err)
				}
				if all = append(all, r); len(all) > mostRanges {
					return nil, fail(CodeBadRequest, "there are more than %d ranges", mostRanges)
				}
			}
			return all, nil
		},
		schema: map[string]any{"type": "string", "examples": []string{"orders/3/100-199"}},
	}
	positiveNumber = &kind[float64]{
		noun: "a positive number",
		parse: func(text string) (float64, error) {
			x, err := strconv.ParseFloat(text, 64)
			if err == nil && (!(x > 0) || math.IsInf(x, 0)) {
				err = strconv.ErrRange
			}
			return x, err
		},
		schema: map[string]any{"type": "number", "format": "double", "exclusiveMinimum": 0},
	}
)

// mostRanges bounds the ranges of a window, which are compared with each node of its index.
const mostRanges = 100

var (
	windowFrom = &parameter[time.Time]{
		name: "from", kind: moment,
		meaning: "The model of a window: only blocks of this event time or later.",
	}
	windowTo = &parameter[time.Time]{
		name: "to", kind: moment,
		meaning: "The model of a window: only blocks of an event time before this.",
	}
	windowPositions = &parameter[[]retire.Range]{
		name: "positions", kind: ranges,
		meaning: "The model of a window by offsets: ranges TOPIC/PARTITION/FIRST-LAST, both ends included, with commas between them. A block is in the window if it has an offset of a range between its first and its last record, and once if it has offsets of several. With `from` or `to` the window has the blocks that both choose.",
	}
	windowNu = &parameter[float64]{
		name: "nu", kind: positiveNumber,
		meaning: "With a window: ν of its planes. The default is that of the served model.",
	}
	windowQuery = []described{windowFrom, windowTo, windowPositions, windowNu}
)

// windowNotes describes windows, for the document.
const windowNotes = "With `from`, `to` or `positions` the answer is the model of a window: the live and archived blocks that these choose. It has the bits of the model of a daemon that has only these blocks, the same ν, the same scaling and no half-life. " +
	"Its planes are read off exact sums, so it has no calibration, refinement, leverage or measured quality: `window` in the model says so. The first window takes an index of the blocks, and further ones take time in proportion to its depth. " +
	"A window without blocks, or without a model, is 404."

// asks says whether the query has one of the parameters with another value than its default, which
// some clients always send.
func asks(r *http.Request, these []described) bool {
	q := r.URL.Query()
	return slices.ContainsFunc(these, func(p described) bool {
		name, _, _, otherwise := p.describe()
		return q.Has(name) && (otherwise == nil || q.Get(name) != fmt.Sprint(otherwise))
	})
}

// windowOf reads the window of the query.
func windowOf(r *http.Request) (w model.Window, err error) {
	w = model.Window{From: momentOf(r, windowFrom), To: momentOf(r, windowTo), Positions: windowPositions.of(r)}
	return w, checkWindow(w)
}

// momentOf is the time of a parameter, in UTC, or nil without it.
func momentOf(r *http.Request, p *parameter[time.Time]) *time.Time {
	if !r.URL.Query().Has(p.name) {
		return nil
	}
	return new(p.of(r).UTC())
}

// checkWindow refuses a window that chooses nothing.
func checkWindow(w model.Window) error {
	if w.From == nil && w.To == nil && w.Positions == nil {
		return fail(CodeBadRequest, "nu goes with a window: say which by from, to or positions")
	}
	if err := retire.CheckTimes(w.From, w.To); err != nil {
		return fail(CodeBadRequest, "%v", err)
	}
	return nil
}

// solveWindow asks for the model of the query's window, and waits for it.
func (s *Server) solveWindow(w http.ResponseWriter, r *http.Request, wait time.Duration) (*model.Served, error) {
	window, err := windowOf(r)
	if err != nil {
		return nil, err
	}
	for _, p := range needQuery {
		if name, _, _, _ := p.describe(); asks(r, []described{p}) {
			return nil, fail(CodeBadRequest, "%s does not go with a window: its model does not change by itself", name)
		}
	}
	served, err := withWindows(s, w, r, wait, func(ctx context.Context) (*model.Served, error) {
		return s.service.Window(ctx, window, windowNu.of(r))
	})
	if err != nil {
		return nil, err
	}
	if served.Model == nil {
		return nil, fail(CodeNotFound, "the window has no model: %s", served.Problem)
	}
	return served, nil
}

// withWindows calls f, one call at a time, and waits for it.
func withWindows[T any](s *Server, w http.ResponseWriter, r *http.Request, wait time.Duration, f func(context.Context) (T, error)) (answer T, err error) {
	extend(w, wait)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	if err := takeSlot(ctx, s.windows); err != nil {
		if err == errTooMany {
			err = errWindows
		}
		return answer, err
	}
	defer func() { <-s.windows }()
	answer, err = f(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && r.Context().Err() == nil {
		err = fail(CodeUnavailable, "the window could not be summed within %v; sums of parts are kept, so ask again", wait)
	}
	return answer, err
}

var errWindows = fail(CodeUnavailable, "another window is being summed: ask again")

// windowModel answers with the model of a window.
func (s *Server) windowModel(w http.ResponseWriter, r *http.Request) error {
	served, err := s.solveWindow(w, r, MaxWait)
	if err != nil {
		return err
	}
	if hasModel(w, r, served.Fingerprint) {
		return nil
	}
	answer, err := modelAnswer(served)
	if err != nil {
		return err
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode model %s: %w", served.Fingerprint, err)
	}
	newRendering("application/json", append(body, '\n')).write(w, http.StatusOK)
	return nil
}

// predictor is the model that answers a prediction. It leaves time to read the body.
func (s *Server) predictor(w http.ResponseWriter, r *http.Request) (*model.Served, error) {
	if asks(r, windowQuery) {
		return s.solveWindow(w, r, ReadTimeout/2)
	}
	served, err := s.current(w, r, tags{})
	if err == nil && served.Model == nil {
		err = fail(CodeNoModel, "there is no model: %s", s.whyNoModel(served, false))
	}
	return served, err
}
