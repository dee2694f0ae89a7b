package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/retire"
)

// windowFlags choose the blocks of a model.
type windowFlags struct {
	From      *time.Time     `placeholder:"TIME" help:"The model of the live and archived blocks of this event time or later, such as 2026-01-02T00:00:00Z, instead of the served one."`
	To        *time.Time     `placeholder:"TIME" help:"The model of the live and archived blocks of an event time before this."`
	Positions []retire.Range `sep:"none" placeholder:"TOPIC/PARTITION/FIRST-LAST" help:"The model of the live and archived blocks with an offset of this range between their first and last record, both ends included. May be given several times. With --from or --to it is the model of the blocks that both choose."`
	Nu        windowNu       `placeholder:"NU" help:"Weight of the errors of that model. The default is that of the served model."`
}

// windowNu is the ν of windows, or 0 for that of the served model.
type windowNu float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *windowNu) UnmarshalText(text []byte) error {
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return fmt.Errorf("%q: want a positive number", text)
	}
	*n = windowNu(x)
	return nil
}

// chosen says whether the flags choose a window.
func (f *windowFlags) chosen() bool { return f.From != nil || f.To != nil || f.Positions != nil }

func (f *windowFlags) check() error {
	if f.Nu > 0 && !f.chosen() {
		return errors.New("--nu goes with --from, --to or --positions")
	}
	return retire.CheckTimes(f.From, f.To)
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
		q.Set("nu", strconv.FormatFloat(float64(f.Nu), 'g', -1, 64))
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
	t.bounds("", &w.Window)
	for _, class := range w.Absent {
		t.row("absent class", class)
	}
	for _, part := range w.Lacks {
		t.row("lacks", part)
	}
}

// bounds prints what chooses the blocks of a window.
func (t *table) bounds(indent string, w *model.Window) {
	if w.From != nil {
		t.row(indent+"from", w.From.Format(time.RFC3339Nano))
	}
	if w.To != nil {
		t.row(indent+"to", w.To.Format(time.RFC3339Nano))
	}
	for _, r := range w.Positions {
		t.row(indent+"positions", r.String())
	}
}

// compareCmd compares the planes of two windows.
type compareCmd struct {
	A  string   `arg:"" help:"First window: FROM,TO with times such as 2026-01-02T00:00:00Z, one of which may be empty, or ranges such as orders/3/100-199 with commas between them, or FROM,TO and then ranges."`
	B  string   `arg:"" optional:"" help:"Second window. The default is all blocks, live or archived."`
	Nu windowNu `placeholder:"NU" help:"Weight of the errors of both models. The default is that of the served model."`
	daemonFlags
	jsonFlag
}

// Help implements kong's interface.
func (*compareCmd) Help() string {
	return "The angle is between the normals of the planes. The loss is the mean squared error of a plane on the rows of a window, and the correctness the share of rows on the right side of the plane. " +
		"All are read off sums, without the rows. Sums do not count the rows that are right: the bounds of the correctness always hold, and its estimate assumes that the values of the plane are normally distributed in each class."
}

func (c *compareCmd) Run(ctx context.Context, s *surroundings) error {
	q := (&windowFlags{Nu: c.Nu}).query()
	q.Set("a", c.A)
	if c.B != "" {
		q.Set("b", c.B)
	}
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, withQuery("/v1/compare", q), httpapi.MaxWait + answerTimeout}, (*table).comparison)
}

// angleUnits says what the angles between planes are in: in the coordinates of a basis with an id,
// or in the features, whose units scaled names where they are scaled.
func angleUnits(basisID string, isScaled bool, scaled string) string {
	switch {
	case basisID != "":
		return "in the coordinates of the basis"
	case isScaled:
		return scaled
	}
	return "in the features' own units"
}

func (t *table) comparison(c *model.Comparison) {
	for _, w := range []struct {
		name string
		of   *model.Compared
	}{{"a", &c.A}, {"b", &c.B}} {
		t.row(w.name, counted(w.of.Rows, "row")+" in "+counted(w.of.Blocks, "block"))
		t.bounds("  ", &w.of.Window)
		t.row("  classes", countedClasses(w.of.Classes, w.of.ClassRows))
		t.row("  digest", w.of.Digest)
	}
	t.row("options", describeOptions(c.A.Options))
	figure := func(x *float64) string {
		if x == nil {
			return "none"
		}
		return fmt.Sprintf("%.6g", *x)
	}
	units := angleUnits(c.BasisID, c.Scaled, "in units of the standard deviations of b")
	correct := func(c *model.Correctness) string {
		if c == nil {
			return "none"
		}
		// Bounds are rounded outwards, so that they still hold.
		return fmt.Sprintf("%.1f %% (%.1f to %.1f %%)", 100*c.Estimate, math.Floor(1000*c.AtLeast)/10, math.Ceil(1000*c.AtMost)/10)
	}
	for _, p := range c.Planes {
		t.row(p.Class, "angle "+figure(p.Angle)+" degrees, "+units)
		t.row("  loss of a", figure(p.AOnA)+" on a, "+figure(p.AOnB)+" on b")
		t.row("  loss of b", figure(p.BOnA)+" on a, "+figure(p.BOnB)+" on b")
		for _, of := range []struct {
			name     string
			onA, onB *model.Correctness
		}{
			{"  correct by a", p.Correctness.AOnA, p.Correctness.AOnB},
			{"    balanced", p.BalancedCorrectness.AOnA, p.BalancedCorrectness.AOnB},
			{"  correct by b", p.Correctness.BOnA, p.Correctness.BOnB},
			{"    balanced", p.BalancedCorrectness.BOnA, p.BalancedCorrectness.BOnB},
		} {
			t.row(of.name, correct(of.onA)+" on a, "+correct(of.onB)+" on b")
		}
	}
	t.row("correct", "estimate (bounds), from the sums: the bounds always hold, the estimate assumes normally distributed values in each class")
	for _, part := range c.Lacks {
		t.row("lacks", part)
	}
}
