package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/retire"
)

// windowFlags choose the live blocks of a model.
type windowFlags struct {
	From      *time.Time     `placeholder:"TIME" help:"The model of the live blocks of this event time or later, such as 2026-01-02T00:00:00Z, instead of the served one."`
	To        *time.Time     `placeholder:"TIME" help:"The model of the live blocks of an event time before this."`
	Positions []retire.Range `sep:"none" placeholder:"TOPIC/PARTITION/FIRST-LAST" help:"The model of the live blocks with an offset of this range between their first and last record, both ends included. May be given once for each partition, in place of --from and --to."`
	Nu        float64        `placeholder:"NU" help:"Weight of the errors of that model. The default is that of the served model."`
}

// chosen says whether the flags choose a window.
func (f *windowFlags) chosen() bool { return f.From != nil || f.To != nil || f.Positions != nil }

func (f *windowFlags) check() error {
	switch {
	case f.Nu < 0:
		return fmt.Errorf("--nu %g: must be positive", f.Nu)
	case f.Nu > 0 && !f.chosen():
		return errors.New("--nu goes with --from, --to or --positions")
	case f.Positions != nil && (f.From != nil || f.To != nil):
		return errors.New("--positions and --from or --to are two ways to choose blocks: give one")
	case f.From != nil && f.To != nil && !f.From.Before(*f.To):
		return fmt.Errorf("--from %s is not before --to %s", f.From.Format(time.RFC3339Nano), f.To.Format(time.RFC3339Nano))
	}
	return nil
}

// query is the parameters of a call that takes a window.
func (f *windowFlags) query() url.Values {
	q := url.Values{}
	if f.From != nil {
		q.Set("from", f.From.Format(time.RFC3339Nano))
	}
	if f.To != nil {
		q.Set("to", f.To.Format(time.RFC3339Nano))
	}
	if f.Positions != nil {
		q.Set("positions", rangesText(f.Positions))
	}
	if f.Nu > 0 {
		q.Set("nu", strconv.FormatFloat(f.Nu, 'g', -1, 64))
	}
	return q
}

func rangesText(ranges []retire.Range) string {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ",")
}

// window prints the window of a model.
func (t *table) window(w *model.Windowed) {
	if w == nil {
		return
	}
	if w.From != nil {
		t.row("from", w.From.Format(time.RFC3339Nano))
	}
	if w.To != nil {
		t.row("to", w.To.Format(time.RFC3339Nano))
	}
	for _, r := range w.Positions {
		t.row("positions", r.String())
	}
	for _, class := range w.Absent {
		t.row("absent class", class)
	}
	for _, part := range w.Lacks {
		t.row("lacks", part)
	}
}
