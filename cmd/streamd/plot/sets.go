package plot

import (
	"image/color"
	"math"
	"slices"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"streamd/kernels/svm"
)

// A Set is a knowledge set of two features: the places with a·x + b·y ≤ c for each condition
// [a, b, c]. Its outline is drawn in the colour of its class, as far as the axes reach.
type Set struct {
	Class      int // index in the model's classes
	Conditions [][3]float64
}

// NewSet returns a knowledge set over two features. Its groups are not drawn.
func NewSet(s *svm.Set, classes []string) Set {
	out := Set{Class: slices.Index(classes, s.Class)}
	for _, c := range s.Conditions {
		condition := [3]float64{2: c.Bound}
		for _, term := range c.Terms {
			condition[term.Variable] += term.Value
		}
		out.Conditions = append(out.Conditions, condition)
	}
	return out
}

// outline is a plotter of the border of a set.
type outline struct {
	Set
	colour color.Color
}

// Plot implements gonum's interface.
func (o outline) Plot(c draw.Canvas, p *gonum.Plot) {
	corners := o.within(p.X.Min, p.X.Max, p.Y.Min, p.Y.Max)
	if len(corners) < 3 {
		return
	}
	drawn := &plotter.Line{
		XYs:       append(corners, corners[0]),
		LineStyle: draw.LineStyle{Color: o.colour, Width: 2.5, Dashes: []vg.Length{7, 3}},
	}
	drawn.Plot(c, p)
}

// shown returns the corners of the parts of sets that are as far as half the size of the points
// away from the points, so that these sets fit into the picture.
func shown(sets []Set, points ...XYs) (corners XYs) {
	left, right, bottom, top := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, some := range points {
		for _, at := range some {
			left, right = min(left, at.X), max(right, at.X)
			bottom, top = min(bottom, at.Y), max(top, at.Y)
		}
	}
	if left > right {
		return nil
	}
	x, y := right/2-left/2, top/2-bottom/2
	for _, s := range sets {
		corners = append(corners, s.within(left-x, right+x, bottom-y, top+y)...)
	}
	return corners
}

// within returns the corners of the part of a set that is in a rectangle. One half-plane after
// the other cuts the rectangle (Sutherland and Hodgman 1974).
func (s *Set) within(left, right, bottom, top float64) XYs {
	corners := XYs{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}}
	for _, c := range s.Conditions {
		beyond := func(p XY) float64 { return c[0]*p.X + c[1]*p.Y - c[2] }
		var cut XYs
		for i, p := range corners {
			q := corners[(i+1)%len(corners)]
			from, to := beyond(p), beyond(q)
			if from <= 0 {
				cut = append(cut, p)
			}
			if from < 0 && to > 0 || from > 0 && to < 0 {
				share := from / (from - to)
				cut = append(cut, XY{X: p.X + share*(q.X-p.X), Y: p.Y + share*(q.Y-p.Y)})
			}
		}
		corners = cut
	}
	return corners
}
