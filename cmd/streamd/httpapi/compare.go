package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
)

// windowText is the kind of a window in one text: FROM,TO, or ranges of offsets.
var windowText = &kind[model.Window]{
	noun: "a window: FROM,TO with times such as 2026-01-02T03:04:05Z, one of which may be empty, or ranges such as orders/3/100-199 with commas between them, or FROM,TO and then ranges",
	parse: func(text string) (w model.Window, err error) {
		from, rest, ok := strings.Cut(text, ",")
		if strings.Contains(from, "/") {
			w.Positions, err = ranges.parse(text)
			return w, err
		}
		to, positions, both := strings.Cut(rest, ",")
		if both {
			if w.Positions, err = ranges.parse(positions); err != nil {
				return w, err
			}
		}
		if !ok || from == "" && to == "" {
			return w, strconv.ErrSyntax
		}
		for _, end := range []struct {
			text string
			into **time.Time
		}{{from, &w.From}, {to, &w.To}} {
			if end.text == "" {
				continue
			}
			t, err := moment.parse(end.text)
			if err != nil {
				return w, err
			}
			*end.into = new(t.UTC())
		}
		return w, checkWindow(w)
	},
	schema: map[string]any{"type": "string", "examples": []string{"2026-01-02T00:00:00Z,2026-01-03T00:00:00Z", "orders/3/100-199"}},
}

var (
	compareA = &parameter[model.Window]{
		name: "a", kind: windowText, required: true,
		meaning: "First window.",
	}
	compareB = &parameter[model.Window]{
		name: "b", kind: windowText,
		meaning: "Second window. The default is all blocks, live or archived.",
	}
	compareNu = &parameter[float64]{
		name: "nu", kind: positiveNumber,
		meaning: "ν of the planes. The default is that of the served model.",
	}
)

// compare answers with the planes of two windows beside each other.
func (s *Server) compare(w http.ResponseWriter, r *http.Request) error {
	if !r.URL.Query().Has(compareA.name) {
		return fail(CodeBadRequest, "a says which window to compare: FROM,TO or ranges of offsets")
	}
	c, err := withWindows(s, w, r, MaxWait, func(ctx context.Context) (*model.Comparison, error) {
		return s.service.Compare(ctx, compareA.of(r), compareB.of(r), compareNu.of(r))
	})
	if err != nil {
		return err
	}
	return answerJSON(w, c)
}

// StretchNoun says what ParseStretch takes.
const StretchNoun = "a number of days such as 1d, or a duration such as 6h, in whole milliseconds and at most 65535d"

const longestStretch = 65535 * 24 * time.Hour // 179 years

// ParseStretch reads the length of a step or a window.
func ParseStretch(text string) (d time.Duration, err error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
		if err != nil || n == 0 {
			return 0, strconv.ErrSyntax
		}
		return d, nil
	}
	if d, err = patience.parse(text); err == nil && (d < time.Millisecond || d > longestStretch || d%time.Millisecond != 0) {
		err = strconv.ErrRange
	}
	return d, err
}

// days is the kind of a stretch of time: whole days, or a duration.
var days = &kind[time.Duration]{
	noun:   StretchNoun,
	parse:  ParseStretch,
	schema: map[string]any{"type": "string", "pattern": `^([0-9]+d|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`, "examples": []string{"1d", "6h"}},
}

var (
	stepsStep = &parameter[time.Duration]{
		name: "step", kind: days, required: true,
		meaning: "Time from the end of one window to that of the next, such as 1d. Windows end at whole steps since 1970.",
	}
	stepsWindow = &parameter[time.Duration]{
		name: "window", kind: days,
		meaning: "Length of a window, such as 30d. The default is `step`.",
	}
	stepsFrom = &parameter[time.Time]{
		name: "from", kind: moment,
		meaning: "Only blocks of this event time or later.",
	}
	stepsTo = &parameter[time.Time]{
		name: "to", kind: moment,
		meaning: "Only blocks of an event time before this.",
	}
	stepsNu = &parameter[float64]{
		name: "nu", kind: positiveNumber,
		meaning: "ν of the planes. The default is that of the served model.",
	}
)

// steps answers with the planes of successive windows.
func (s *Server) steps(w http.ResponseWriter, r *http.Request) error {
	if !r.URL.Query().Has(stepsStep.name) {
		return fail(CodeBadRequest, "step says how far apart the windows end, such as 1d")
	}
	ask := StepsQuery{Step: stepsStep.of(r), Window: stepsWindow.of(r), Nu: stepsNu.of(r)}
	if ask.Window == 0 {
		ask.Window = ask.Step
	}
	window := model.Window{From: momentOf(r, stepsFrom), To: momentOf(r, stepsTo)}
	if window.From != nil && window.To != nil {
		if err := checkWindow(window); err != nil {
			return err
		}
	}
	ask.From, ask.To = window.From, window.To
	a, err := withWindows(s, w, r, MaxWait, func(ctx context.Context) (*model.Steps, error) {
		return s.service.Steps(ctx, ask)
	})
	if err != nil {
		return err
	}
	return answerJSON(w, a)
}
