package plot

import (
	"html/template"
	"math"
	"strconv"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The charts of the page are the contents of an svg element there. Their elements
// have classes, which the style sheet of the page colours in light and in dark mode.

// The sizes of the charts, for the view boxes of their elements.
const (
	CurvesWidth, CurvesHeight = 360, 220
	DiagramSize               = 320
	BarsWidth, BarsHeight     = 640, 48
)

// A Curve is a line with gaps at points whose Y is NaN. The choice lies on a chosen one.
type Curve struct {
	Points XYs
	Chosen bool
}

// MostCurves is the number of curves that the style sheet of the page tells apart.
const MostCurves = 4

// Curves draws up to MostCurves curves over the powers of ten, with a mark at the choice.
// The X of their points is the logarithm to the base of 10. The axis up has a name. Curve
// i has the classes "curve" and "ci".
func Curves(curves []Curve, choice XY, up string) template.HTML {
	p := newCurves("ν", up, decades)
	for i, curve := range curves {
		style := class("curve c" + strconv.Itoa(i%MostCurves))
		if curve.Chosen {
			style += " chosen"
		}
		var run XYs
		for i, at := range curve.Points {
			if !math.IsNaN(at.Y) {
				run = append(run, at)
			}
			if last := i == len(curve.Points)-1; len(run) > 0 && (last || math.IsNaN(at.Y)) {
				p.Add(line(run, style, 2))
				run = nil
			}
		}
	}
	p.Add(scatter(XYs{choice}, class("choice"), 4.5, draw.CircleGlyph{}))
	return contents(p, CurvesWidth, CurvesHeight, 6)
}

// SizeCurve draws a curve over a number of things, with its points and a mark at the present one.
// The X of points is the logarithm of that number to the base of 10.
func SizeCurve(points XYs, now XY, right, up string) template.HTML {
	p := newCurves(right, up, numbers)
	p.Add(line(points, class("curve c0 chosen"), 2), scatter(points, class("mark"), 2.5, draw.CircleGlyph{}),
		scatter(XYs{now}, class("choice"), 4.5, draw.CircleGlyph{}))
	return contents(p, CurvesWidth, CurvesHeight, 6)
}

// newCurves returns a plot with named axes and a grid.
func newCurves(right, up string, marks gonum.TickerFunc) *gonum.Plot {
	p := newChart()
	p.X.Label.Text, p.Y.Label.Text = right, shortened(up, mostLetters)
	for _, axis := range []*gonum.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Color, axis.Label.TextStyle.Font.Size, axis.Label.Padding = class("label"), chartText, 4
		axis.Tick.Label.Color, axis.Tick.Label.Font.Size = class("label"), chartText
		axis.Tick.LineStyle, axis.Tick.Length = draw.LineStyle{Color: class("axis"), Width: 1}, 4
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = marks, gonum.TickerFunc(ticks)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = class("grid"), class("grid")
	p.Add(grid)
	return p
}

const chartText = 11 // size of the texts in a chart

// decades marks powers of ten by their exponents, eight at most.
func decades(low, high float64) (some []gonum.Tick) {
	step := math.Max(1, math.Ceil((high-low)/7))
	for e := step * math.Ceil(low/step); e <= high; e += step {
		some = append(some, gonum.Tick{Value: e, Label: "10" + superscript(int(e))})
	}
	return some
}

// numbers marks 1, 2, 5, 10, 20, … at their logarithms.
func numbers(low, high float64) (some []gonum.Tick) {
	for ten := 1.0; ; ten *= 10 {
		for _, x := range []float64{ten, 2 * ten, 5 * ten} {
			at := math.Log10(x)
			if at > high {
				return some
			}
			if at >= low {
				some = append(some, gonum.Tick{Value: at, Label: strconv.FormatFloat(x, 'f', 0, 64)})
			}
		}
	}
}

// superscript writes a number in small raised digits.
func superscript(n int) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '-':
			return '⁻'
		case '1':
			return '¹'
		case '2', '3':
			return r - '2' + '²'
		}
		return r - '0' + '⁰'
	}, strconv.Itoa(n))
}

// A Bubble is a point of a reliability diagram in the unit square. Its area is in
// proportion to its weight, from 0 to 1.
type Bubble struct {
	XY
	Weight float64
	Before bool // before calibration
}

// Diagram draws bubbles around the diagonal of the unit square.
func Diagram(bubbles []Bubble) template.HTML {
	p := newCurves("predicted probability", "share that came true", ticks)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	points := &plotter.Scatter{XYs: make(XYs, len(bubbles))}
	for i, b := range bubbles {
		points.XYs[i] = b.XY
	}
	points.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		style := class("mark")
		if bubbles[i].Before {
			style = "mark before"
		}
		radius := vg.Length(2 + 8*math.Sqrt(bubbles[i].Weight))
		return draw.GlyphStyle{Color: style, Radius: radius, Shape: draw.CircleGlyph{}}
	}
	p.Add(overlay{line(XYs{{X: 0, Y: 0}, {X: 1, Y: 1}}, class("axis"), 1)}, overlay{points})
	return contents(p, DiagramSize, DiagramSize, 14)
}

// Bars draws weights as bars from a line in the middle, the largest in full height.
func Bars(weights []float64) template.HTML {
	p := newChart()
	p.HideAxes()
	n := float64(len(weights))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, n, -1, 1
	p.Add(overlay{line(XYs{{X: 0, Y: 0}, {X: n, Y: 0}}, class("axis"), 1)}, bars(weights))
	return contents(p, BarsWidth, BarsHeight, 0)
}

// mostBars bounds the length of the page for models with many features.
const mostBars = 256

// bars is a plotter of a bar for each weight. If there are more weights than bars, a
// bar is the largest of its neighbours. All bars are one path: gonum's bar charts
// have two for each bar, and a page shows thousands of bars.
type bars []float64

// Plot implements gonum's interface.
func (w bars) Plot(c draw.Canvas, _ *gonum.Plot) {
	some := w
	if len(w) > mostBars {
		some = make(bars, mostBars)
		for j, x := range w {
			if b := &some[j*mostBars/len(w)]; math.Abs(x) > math.Abs(*b) {
				*b = x
			}
		}
	}
	largest := 0.0
	for _, x := range some {
		largest = max(largest, math.Abs(x))
	}
	if largest == 0 {
		return
	}
	var path vg.Path
	for i, x := range some {
		left, right := c.X((float64(i)+0.1)/float64(len(some))), c.X((float64(i)+0.9)/float64(len(some)))
		zero, top := c.Y(0.5), c.Y(0.5+x/largest/2)
		path.Move(vg.Point{X: left, Y: zero})
		path.Line(vg.Point{X: left, Y: top})
		path.Line(vg.Point{X: right, Y: top})
		path.Line(vg.Point{X: right, Y: zero})
		path.Close()
	}
	c.SetColor(class("fill"))
	c.Fill(path)
}

// newChart returns a plot with axes that have neither marks nor names.
func newChart() *gonum.Plot {
	p := newPlot("", "", "")
	p.HideAxes()
	p.X.LineStyle = draw.LineStyle{Color: class("axis"), Width: 1}
	p.Y.LineStyle = p.X.LineStyle
	return p
}

// contents draws a plot with a margin.
func contents(p *gonum.Plot, width, height, margin vg.Length) template.HTML {
	c := newSVG(width, height)
	p.Draw(draw.Crop(draw.New(c), margin, -margin, margin, -margin))
	return template.HTML(c.b.String())
}
