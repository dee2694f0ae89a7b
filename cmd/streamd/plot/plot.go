// Package plot draws every picture of the program on gonum.org/v1/plot: the regions
// of a classifier, the curves of benchmarks, the figures of the papers, and the
// charts of the page.
//
// A unit of length is one pixel of an SVG and two of a PNG. Names in pictures come
// from outside: they are cut to a length that leaves room for the picture, and
// escaped. A picture takes no more memory for longer ones.
package plot

import (
	"image/color"
	"math"
	"strconv"
	"strings"
	"unicode"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// XY is a point, and XYs are points, in the units of the data.
type (
	XY  = plotter.XY
	XYs = plotter.XYs
)

const (
	labelSize   = 13
	titleSize   = 16
	mostLetters = 72 // of a title or the name of an axis
)

var (
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	paper = color.RGBA{0xff, 0xff, 0xff, 0xff}
	rim   = color.RGBA{0x99, 0x99, 0x99, 0xff}
	blue  = color.RGBA{0x22, 0x66, 0xcc, 0xff}
	red   = color.RGBA{0xcc, 0x33, 0x33, 0xff}
	faint = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
)

func init() { gonum.DefaultFont.Variant = "Sans" }

// newPlot returns a plot without data, on no background.
func newPlot(title, x, y string) *gonum.Plot {
	p := gonum.New()
	p.BackgroundColor = nil
	p.Title.Text = shortened(title, mostLetters)
	p.Title.Padding = 10
	p.Title.TextStyle.Font.Size = titleSize
	p.Legend.TextStyle.Font.Size = labelSize
	for axis, name := range map[*gonum.Axis]string{&p.X: x, &p.Y: y} {
		axis.Padding = 0
		axis.Label.Text = shortened(name, mostLetters)
		axis.Label.Padding = 8
		axis.Label.TextStyle.Font.Size = labelSize
		axis.Tick.Label.Font.Size = labelSize
		axis.Tick.Length = 5
		axis.Tick.Marker = gonum.TickerFunc(ticks)
	}
	return p
}

// ticks marks multiples of a round number, seven at most.
func ticks(low, high float64) []gonum.Tick { return marks(low, high, 6) }

// marks marks multiples of a round number, one more than so many steps at most. Gonum's own
// ticks do not end on an axis of the smallest numbers.
func marks(low, high float64, steps int) (some []gonum.Tick) {
	rough := (high - low) / float64(steps)
	step := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*step >= rough {
			step *= f
			break
		}
	}
	format, digits := byte('f'), max(0, int(math.Ceil(-math.Log10(step))))
	if digits > 5 || max(math.Abs(low), math.Abs(high)) >= 1e7 {
		format, digits = 'g', 8
	}
	first := math.Ceil(low / step)
	for i := range steps + 1 {
		if at := (first + float64(i)) * step; at >= low && at <= high {
			some = append(some, gonum.Tick{Value: at, Label: strconv.FormatFloat(at+0, format, digits, 64)})
		}
	}
	return some
}

// shortened returns a name as one line of so many letters at most.
func shortened(name string, most int) string {
	letters := []rune(name)
	if len(letters) > most {
		letters = append(letters[:most-1:most-1], '…')
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, string(letters))
}

// line returns the plotter of a line. A line of class is styled by the page.
func line(points XYs, colour color.Color, width vg.Length, dashes ...vg.Length) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: colour, Width: width, Dashes: dashes}}
}

// scatter returns the plotter of points that look the same.
func scatter(points XYs, colour color.Color, radius vg.Length, shape draw.GlyphDrawer) *plotter.Scatter {
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: colour, Radius: radius, Shape: shape}}
}

// overlay is a plotter that neither extends the axes nor asks for a margin.
type overlay struct{ gonum.Plotter }

// frame is a plotter of the border of the data.
type frame struct {
	colour color.Color
	width  vg.Length
}

// Plot implements gonum's interface.
func (f frame) Plot(c draw.Canvas, _ *gonum.Plot) {
	c.SetLineStyle(draw.LineStyle{Color: f.colour, Width: f.width})
	c.Stroke(c.Rectangle.Path())
}

// dot is a disc with a rim.
type dot struct{ rim color.Color }

// DrawGlyph implements gonum's interface.
func (d dot) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	inner := style.Radius
	style.Radius += 0.8
	c.SetColor(d.rim)
	draw.CircleGlyph{}.DrawGlyph(c, style, at)
	style.Radius = inner
	c.SetColor(style.Color)
	draw.CircleGlyph{}.DrawGlyph(c, style, at)
}

// diamond has a rim of the style's colour.
type diamond struct{ inside color.Color }

// DrawGlyph implements gonum's interface.
func (d diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	for _, part := range []struct {
		radius vg.Length
		fill   color.Color
	}{{style.Radius + 1.2, style.Color}, {style.Radius, d.inside}} {
		c.FillPolygon(part.fill, []vg.Point{
			{X: at.X, Y: at.Y - part.radius}, {X: at.X + part.radius, Y: at.Y},
			{X: at.X, Y: at.Y + part.radius}, {X: at.X - part.radius, Y: at.Y},
		})
	}
}
