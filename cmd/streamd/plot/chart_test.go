package plot

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

// A chart is XML with its texts, and everything lies inside. Its points are in proportion to the
// data.
func TestCharts(t *testing.T) {
	const hostile = `1 G points <of> "10" & more`
	straight := func(n int) (points XYs) {
		for i := range n {
			points = append(points, XY{X: float64(i + 1), Y: 3 * float64(i+1)})
		}
		return points
	}
	for _, c := range []struct {
		name   string
		points XYs
		line   XYs
	}{
		{"long", straight(500), XYs{{X: 0, Y: 0}, {X: 500, Y: 1500}}},
		{"short", straight(20), XYs{{X: 1.5, Y: 0}, {X: 20, Y: 60}}},
		{"one point", straight(1), XYs{{X: 0, Y: 0}, {X: 1, Y: 3}}},
		{"nothing", nil, nil},
		{"at the origin", XYs{{}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			chart := Chart{Title: hostile, X: "points (millions)", Y: "seconds", Points: c.points, Line: c.line, Note: "fits " + hostile, Height: 460}
			if err := Charts(&out, chart, Chart{X: "below", Points: c.points, Height: 200}); err != nil {
				t.Fatal(err)
			}
			got := parse(t, out.String())
			want := []string{hostile, "points (millions)", "seconds", "below"}
			if c.line != nil {
				want = append(want, "fits "+hostile)
			}
			for _, text := range want {
				if !slices.Contains(got.texts, text) {
					t.Errorf("there is no %q in %q", text, got.texts)
				}
			}
			if n := len(got.stroked(web(red))); n != len(c.line) { // of two points: the line and its sample
				t.Errorf("%d straight lines", n)
			}
			circles := 2 * len(c.points)
			if len(c.points) > 60 {
				circles = 0
			}
			if len(got.circles) != circles {
				t.Errorf("%d circles, not %d", len(got.circles), circles)
			}
			if len(c.points) < 2 {
				return
			}
			curves := got.stroked(web(blue))
			if len(curves) != 2 || len(curves[0].points) != len(c.points) {
				t.Fatalf("%d curves", len(curves))
			}
			first, last := curves[0].points[0], curves[0].points[len(c.points)-1]
			for i, p := range curves[0].points {
				share := float64(i) / float64(len(c.points)-1)
				if math.Abs(p.X-first.X-share*(last.X-first.X)) > 0.11 || math.Abs(p.Y-first.Y-share*(last.Y-first.Y)) > 0.11 {
					t.Fatalf("point %d is at %v, between %v and %v", i, p, first, last)
				}
			}
		})
	}
}

// The plane goes through the points where x'w = γ, and the points of a panel are
// where they would be in data coordinates.
func TestPanels(t *testing.T) {
	panel := Panel{
		Title: "A < B", Note: "all & sundry",
		Circles: XYs{{X: -2, Y: -2}, {X: 2, Y: 2}, {X: 1, Y: -1}}, Diamonds: XYs{{X: 0, Y: 0}},
		FilledCircles: XYs{{X: 1, Y: 1}},
		W:             [2]float64{1, 2}, Gamma: 0.5,
	}
	var out bytes.Buffer
	if err := Panels(&out, panel, panel); err != nil {
		t.Fatal(err)
	}
	got := parse(t, out.String())
	if all := strings.Join(got.texts, "|"); all != "A < B|all & sundry|A < B|all & sundry" {
		t.Errorf("texts %q", all)
	}
	if len(got.circles) != 2*2*4 {
		t.Fatalf("%d discs of circles with a rim", len(got.circles))
	}
	low, high := got.circles[0], got.circles[2]
	toData := func(p XY) XY {
		return XY{X: -2 + 4*(p.X-low.X)/(high.X-low.X), Y: -2 + 4*(p.Y-low.Y)/(high.Y-low.Y)}
	}
	bounds := []float64{-1, 0, 1}
	lines := got.stroked(web(ink))
	if len(lines) != 2*len(bounds) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines[:len(bounds)] {
		if dashed := line.attributes["stroke-dasharray"] != ""; dashed != (bounds[i] != 0) {
			t.Errorf("the plane at %g is dashed: %v", bounds[i], dashed)
		}
		for _, p := range line.points {
			at := toData(p)
			if value := panel.W[0]*at.X + panel.W[1]*at.Y - panel.Gamma; math.Abs(value-bounds[i]) > 0.01 {
				t.Errorf("the plane of %g goes through %v, where it is %g", bounds[i], at, value)
			}
		}
	}
}
