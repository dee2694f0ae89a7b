package plot

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"testing"
)

// page parses a chart in an element as the page has it.
func page(t *testing.T, width, height int, contents template.HTML) contentsOf {
	t.Helper()
	return parse(t, fmt.Sprintf(`<svg viewBox="0 0 %d %d">%s</svg>`, width, height, contents))
}

func TestCurves(t *testing.T) {
	gap := math.NaN()
	chart := page(t, CurvesWidth, CurvesHeight, Curves([]Curve{
		{Points: XYs{{X: -1, Y: 1}, {X: 0, Y: 3}, {X: 1, Y: gap}, {X: 2, Y: 2}, {X: 3, Y: 1}}, Chosen: true},
		{Points: XYs{{X: -1, Y: gap}, {X: 0, Y: 2}, {X: 1, Y: 2}}},
	}, XY{X: 0, Y: 3}, "correct, %"))
	chosen, other := chart.classed("curve c0 chosen"), chart.classed("curve c1")
	if len(chosen) != 2 || len(other) != 1 || len(chart.circles) != 1 {
		t.Fatalf("%d and %d curves, %d choices", len(chosen), len(other), len(chart.circles))
	}
	if got := chart.circles[0]; got != chosen[0].points[1] {
		t.Errorf("the choice is at %v, its point at %v", got, chosen[0].points[1])
	}
	top, low, end := chosen[0].points[1], chosen[0].points[0], chosen[1].points[1]
	if !(top.Y < low.Y && top.X > low.X && low.Y == end.Y && end.X > top.X) {
		t.Errorf("the curve goes from %v over %v to %v", low, top, end)
	}
	if want := "ν 10⁻¹ 10⁰ 10¹ 10² 10³ correct, % 1.0 1.5 2.0 2.5 3.0"; strings.Join(chart.texts, " ") != want {
		t.Errorf("the axes say %q", chart.texts)
	}
	if got := page(t, CurvesWidth, CurvesHeight, Curves([]Curve{{Points: XYs{{X: 1, Y: 2}}}}, XY{X: 1, Y: 2}, "")); len(got.circles) != 1 {
		t.Error("a single point is no chart")
	}
}

func TestSizeCurve(t *testing.T) {
	chart := page(t, CurvesWidth, CurvesHeight, SizeCurve(XYs{{X: 0, Y: 60}, {X: math.Log10(3), Y: 80}, {X: 2, Y: 90}}, XY{X: 2, Y: 90}, "coordinates", "correctness, %"))
	curve := chart.classed("curve c0 chosen")
	if len(curve) != 1 || len(curve[0].points) != 3 || len(chart.circles) != 4 {
		t.Fatalf("%d curves, %d circles", len(curve), len(chart.circles))
	}
	low, middle, high := curve[0].points[0], curve[0].points[1], curve[0].points[2]
	if !(low.X < middle.X && middle.X < high.X && low.Y > middle.Y && middle.Y > high.Y) || chart.circles[3] != high {
		t.Errorf("the curve goes from %v over %v to %v, with a mark at %v", low, middle, high, chart.circles[3])
	}
	if want := "coordinates 1 2 5 10 20 50 100 correctness, %"; !strings.HasPrefix(strings.Join(chart.texts, " "), want) {
		t.Errorf("the axes say %q", chart.texts)
	}
}

// Powers of ten are marked, few of them on any axis.
func TestDecades(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{{-6.02, 6.02, "10⁻⁶ 10⁻⁴ 10⁻² 10⁰ 10² 10⁴ 10⁶"}, {0.2, 2.9, "10¹ 10²"}, {9.5, 10, "10¹⁰"}, {-300, 300, "10⁻²⁵⁸ 10⁻¹⁷² 10⁻⁸⁶ 10⁰ 10⁸⁶ 10¹⁷² 10²⁵⁸"}} {
		var got []string
		for _, tick := range decades(c.low, c.high) {
			got = append(got, tick.Label)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("from %g to %g: %q", c.low, c.high, got)
		}
	}
}

func TestDiagram(t *testing.T) {
	chart := page(t, DiagramSize, DiagramSize, Diagram([]Bubble{{XY: XY{X: 0, Y: 0}, Weight: 1}, {XY: XY{X: 1, Y: 1}, Before: true}, {XY: XY{X: 0.5, Y: 0.25}}}))
	if len(chart.circles) != 3 {
		t.Fatalf("%d bubbles", len(chart.circles))
	}
	low, high, middle := chart.circles[0], chart.circles[1], chart.circles[2]
	if math.Abs(middle.X-(low.X+high.X)/2) > 0.1 || math.Abs(middle.Y-(3*low.Y+high.Y)/4) > 0.1 {
		t.Errorf("bubbles at %v, %v and %v", low, middle, high)
	}
	axes := chart.classed("axis")
	diagonal := axes[len(axes)-1].points
	if diagonal[0] != low || diagonal[1] != high {
		t.Errorf("the diagonal goes from %v to %v", diagonal[0], diagonal[1])
	}
	if want := "predicted probability 0.0 0.2 0.4 0.6 0.8 1.0 share that came true 0.0 0.2 0.4 0.6 0.8 1.0"; strings.Join(chart.texts, " ") != want {
		t.Errorf("the axes say %q", chart.texts)
	}
	text := string(Diagram([]Bubble{{Weight: 1}, {Before: true}}))
	for _, want := range []string{`r="10" class="mark"/>`, `r="2" class="mark before"/>`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestBars(t *testing.T) {
	for _, weights := range [][]float64{{1, -2, 0.5}, make([]float64, 3), make([]float64, 5000)} {
		if len(weights) > mostBars {
			for j := range weights {
				weights[j] = math.Sin(float64(j))
			}
			weights[1234] = -1.5
		}
		chart := page(t, BarsWidth, BarsHeight, Bars(weights))
		axis, bars := chart.classed("axis"), chart.classed("fill")
		if len(axis) != 1 || axis[0].points[0] != (XY{Y: 24}) || axis[0].points[1] != (XY{X: 640, Y: 24}) {
			t.Errorf("the axis is %v", axis)
		}
		if weights[1] == 0 {
			if len(bars) != 0 {
				t.Error("there are bars of nothing")
			}
			continue
		}
		points := bars[0].points
		if n := len(points) / 4; n != min(len(weights), mostBars) {
			t.Fatalf("%d bars of %d weights", n, len(weights))
		}
		largest := 1 // and negative: it reaches down to the edge
		if len(weights) > mostBars {
			largest = 1234 * mostBars / len(weights)
		}
		for i := range len(points) / 4 {
			if bottom := points[4*i+1].Y == BarsHeight; bottom != (i == largest) {
				t.Errorf("bar %d of %d weights reaches down to %g", i, len(weights), points[4*i+1].Y)
			}
		}
	}
}
