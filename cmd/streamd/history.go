package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/retire"
)

// historyCmd shows figures over time.
type historyCmd struct {
	Span string `enum:"minutes,hours,days" default:"minutes" placeholder:"SPAN" help:"minutes is half an hour, hours is a day, days is 30 days."`
	daemonFlags
	jsonFlag
}

// windowsCmd shows the planes of successive windows.
type windowsCmd struct {
	Step   stretch    `required:"" placeholder:"TIME" help:"Time from the end of one window to that of the next, such as 1d or 6h. Windows end at whole steps since 1970, at most 400 of them."`
	Window stretch    `placeholder:"TIME" help:"Length of a window, such as 30d. The default is --step."`
	From   *time.Time `placeholder:"TIME" help:"Only blocks of this event time or later, such as 2026-01-02T00:00:00Z."`
	To     *time.Time `placeholder:"TIME" help:"Only blocks of an event time before this."`
	Nu     windowNu   `placeholder:"NU" help:"Weight of the errors of the planes. The default is that of the served model."`
	daemonFlags
	jsonFlag
}

// stretch is a positive length of time, in days or as a duration.
type stretch time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *stretch) UnmarshalText(text []byte) error {
	d, err := httpapi.ParseStretch(string(text))
	if err != nil {
		return fmt.Errorf("%q: want %s", text, httpapi.StretchNoun)
	}
	*s = stretch(d)
	return nil
}

// Validate implements kong's interface.
func (c *windowsCmd) Validate() error { return retire.CheckTimes(c.From, c.To) }

func (c *windowsCmd) Run(ctx context.Context, s *surroundings) error {
	q := (&windowFlags{From: c.From, To: c.To, Nu: c.Nu}).query()
	q.Set("step", time.Duration(c.Step).String())
	if c.Window > 0 {
		q.Set("window", time.Duration(c.Window).String())
	}
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, withQuery("/v1/windows", q), httpapi.MaxWait + answerTimeout}, (*table).steps)
}

func (c *historyCmd) Run(ctx context.Context, s *surroundings) error {
	q := url.Values{"span": {c.Span}}
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, withQuery("/v1/history", q), answerTimeout}, (*table).history)
}

// figure writes a number with a format, or a dash for none.
func figure[T any](format string, x *T) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf(format, *x)
}

func (t *table) history(h *model.History) {
	if len(h.Times) == 0 {
		t.err = errors.New("there are no figures yet: the daemon takes a sample every five seconds")
		return
	}
	percent := func(x *float64) *float64 {
		if x == nil {
			return nil
		}
		return new(100 * *x)
	}
	t.row("time", "rows/s", "right %", "balanced %", "largest %", "last %", "lag", "memory")
	for i, at := range h.Times {
		memory := h.Memory[i]
		if memory != nil {
			memory = new(*memory >> 20)
		}
		t.row(time.Unix(at, 0).Local().Format(time.DateTime), figure("%.0f", h.RowsPerSecond[i]),
			figure("%.1f", percent(h.Correctness[i])), figure("%.1f", percent(h.BalancedCorrectness[i])),
			figure("%.1f", percent(h.LargestClass[i])), figure("%.1f", percent(h.LastLabel[i])), figure("%d", h.Lag[i]), figure("%d MiB", memory))
	}
}

// steps prints a line for each window, and for each plane of it where there are several. Angles are
// in degrees.
func (t *table) steps(s *model.Steps) {
	units := angleUnits(s.BasisID, s.Scaled, "in units of standard deviations")
	t.row("from", "before", "blocks", "rows", "rows of classes", "plane of", "angle to first", "angle to last")
	for _, w := range s.Steps {
		cells := []string{w.From.Format(time.RFC3339), w.To.Format(time.RFC3339), fmt.Sprint(w.Blocks), fmt.Sprint(w.Rows)}
		if w.Blocks == 0 {
			t.row(append(cells, "", "", "", "")...) // a row with fewer cells would end the columns
			continue
		}
		cells = append(cells, countedClasses(w.Classes, w.ClassRows))
		if w.Problem != "" {
			t.row(append(cells, "none", "", w.Problem)...)
		}
		for i, p := range w.Planes {
			if i > 0 {
				cells = []string{"", "", "", "", ""}
			}
			t.row(append(cells, p.Class, figure("%.2f", p.ToFirst), figure("%.2f", p.ToLast))...)
		}
	}
	length := config.FormatDuration(time.Duration(s.WindowSeconds * float64(time.Second)))
	t.row(fmt.Sprintf("windows of %s; angles in degrees, %s; %s", length, units, describeOptions(s.Options)))
	for _, part := range s.Lacks {
		t.row("lacks " + part)
	}
}
