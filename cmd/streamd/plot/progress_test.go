package plot

import (
	"bytes"
	"strings"
	"testing"
)

// A progress has a line for the figure and one for each baseline, with names in the order of their
// means, and a figure of one piece is a dot.
func TestProgress(t *testing.T) {
	of := func(points ...XY) string {
		var b bytes.Buffer
		p := Progress{Title: "rows & more", Along: "rows", Up: "%", Lines: []ProgressLine{
			{Name: "right", Mean: 70, Points: points},
			{Name: "as the last label", Mean: 85, Points: points},
		}}
		if err := p.SVG(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := of(XY{X: 0, Y: 60}, XY{X: 10, Y: 80})
	if first, second := strings.Index(text, ">as the last label<"), strings.Index(text, ">right<"); first < 0 || second < first {
		t.Errorf("names at %d and %d", first, second)
	}
	if !strings.Contains(text, "rows &amp; more") || strings.Count(text, "stroke-dasharray") < 2 {
		t.Error(text)
	}
	if one := of(XY{X: 5, Y: 60}); strings.Count(one, "<circle") != 2 && strings.Count(one, "<path") == 0 {
		t.Error(one)
	}
}
