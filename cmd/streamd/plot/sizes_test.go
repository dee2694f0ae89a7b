package plot

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
)

// Points lie over the logarithm of their size, in the order of sizes, and at the height of their
// figure. One has a ring and a bar. Names are in the order of the lines, on high.
func TestSizes(t *testing.T) {
	at := func(x, y float64) Estimate { return Estimate{XY: XY{X: x, Y: y}, Error: 2} }
	chosen := at(12, 90)
	chosen.Chosen = true
	s := Sizes{Title: "Bases of <a>", Up: "correctness, %", Marks: []int{48, 24, 12, 6, 3}, Lines: []SizesLine{
		{"k&means", []Estimate{at(48, 88), at(12, 80), at(3, 60)}}, {"slmc", []Estimate{at(3, 70), chosen, at(47.5, 91)}},
	}}
	for i := range 12 { // more lines than hues
		s.Lines = append(s.Lines, SizesLine{fmt.Sprint("other ", i), []Estimate{at(6, 50), at(24, 55)}})
	}
	var out bytes.Buffer
	if err := s.SVG(&out); err != nil {
		t.Fatal(err)
	}
	got := parse(t, out.String())
	for _, text := range []string{"Bases of <a>", "correctness, %", "3", "48"} {
		if !slices.Contains(got.texts, text) {
			t.Errorf("there is no %q in %q", text, got.texts)
		}
	}
	if first, second := slices.Index(got.texts, "slmc"), slices.Index(got.texts, "k&means"); first < 0 || second < first || slices.Index(got.texts, "other 11") < second {
		t.Errorf("the names are %q", got.texts)
	}
	// The line of each, and its sample beside its name.
	lines := got.stroked(web(hues[0]))
	if len(lines) != 4 || len(lines[0].points) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	left, middle, right := lines[0].points[0], lines[0].points[1], lines[0].points[2]
	if math.Abs((middle.X-left.X)-(right.X-left.X)/2) > 0.11 || math.Abs((left.Y-middle.Y)/(left.Y-right.Y)-20.0/28) > 0.005 {
		t.Errorf("points at %v, %v and %v", left, middle, right)
	}
	other := got.stroked(web(hues[1]))
	if len(other) != 5 {
		t.Fatalf("%d lines in the hue of the chosen one: want a bar, two lines and their samples", len(other))
	}
	bar, line := other[0].points, other[1].points
	if len(bar) != 2 || bar[0].X != bar[1].X || bar[0].X != line[1].X || math.Abs(bar[0].Y+bar[1].Y-2*line[1].Y) > 0.21 {
		t.Errorf("the bar %v is not about %v", bar, line[1])
	}
	if len(got.circles) != 6+2+24 {
		t.Errorf("%d circles", len(got.circles))
	}
	for i, dashed := range []bool{false, true, false, true} { // lines 0 and 11, and their samples
		if (lines[i].attributes["stroke-dasharray"] != "") != dashed {
			t.Errorf("line %d of a hue is dashed: %v", i, !dashed)
		}
	}
}
