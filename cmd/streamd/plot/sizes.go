package plot

import (
	"cmp"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes shows how good bases of several reducers are, by their size.
type Sizes struct {
	Title, Up string
	Marks     []int // of the axis of sizes
	Lines     []SizesLine
}

// SizesLine is a reducer.
type SizesLine struct {
	Name   string
	Points []Estimate
}

// Estimate is the size of a basis, above 0, and a figure with its standard error.
type Estimate struct {
	XY
	Error  float64
	Chosen bool
}

// hues are those of the lines. They are dark enough on white, and no neighbours look alike. Lines
// beyond are dashed.
var hues = []color.RGBA{
	blue, {0xd9, 0x6f, 0x0e, 0xff}, {0x1f, 0x8a, 0x4c, 0xff}, red, {0x7b, 0x4b, 0xb0, 0xff}, {0x8c, 0x5a, 0x3c, 0xff},
	{0x12, 0x92, 0xa8, 0xff}, {0xc9, 0x46, 0x9a, 0xff}, {0x8a, 0x88, 0x10, 0xff}, {0x66, 0x66, 0x66, 0xff}, ink,
}

// SVG writes the picture, on white. The axis of sizes is logarithmic. Names are in the order of the
// lines' mean figures.
func (s *Sizes) SVG(w io.Writer) error {
	const width, height, margin, names = 860, 480, 14, 120
	p := newPlot(s.Title, "coordinates of the basis (ring: taken; bar: standard error)", s.Up)
	p.X.Tick.Marker = gonum.TickerFunc(func(_, _ float64) (marks []gonum.Tick) {
		for _, size := range s.Marks {
			marks = append(marks, gonum.Tick{Value: math.Log2(float64(size)), Label: strconv.Itoa(size)})
		}
		return marks
	})
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	var all key
	for i, l := range s.Lines {
		hue := hues[i%len(hues)]
		var dashes []vg.Length
		if i >= len(hues) {
			dashes = []vg.Length{6, 4}
		}
		one := entry{name: l.Name, line: line(nil, hue, 1.8, dashes...)}
		for _, e := range l.Points {
			e.X = math.Log2(e.X)
			one.line.XYs = append(one.line.XYs, e.XY)
			one.mean += e.Y / float64(len(l.Points))
			if e.Chosen {
				p.Add(line(XYs{{X: e.X, Y: e.Y - e.Error}, {X: e.X, Y: e.Y + e.Error}}, hue, 2),
					scatter(XYs{e.XY}, hue, 7, draw.CircleGlyph{}), scatter(XYs{e.XY}, paper, 5, draw.CircleGlyph{}))
			}
		}
		slices.SortStableFunc(one.line.XYs, func(a, b XY) int { return cmp.Compare(a.X, b.X) })
		p.Add(one.line, scatter(one.line.XYs, hue, 2.6, draw.CircleGlyph{}))
		all = append(all, one)
	}
	for _, size := range s.Marks {
		p.X.Min, p.X.Max = min(p.X.Min, math.Log2(float64(size))), max(p.X.Max, math.Log2(float64(size)))
	}
	all.sort()
	p.Add(overlay{all})
	c := newSVG(width, height)
	p.Draw(draw.Crop(draw.New(c), margin, -margin-names, margin, -margin))
	_, err := c.WriteTo(w)
	return err
}

// key is a plotter of the names of lines, to the right of the data.
type key []entry

type entry struct {
	name string
	line *plotter.Line
	mean float64
}

// sort has the largest mean first.
func (k key) sort() {
	slices.SortStableFunc(k, func(a, b entry) int { return cmp.Compare(b.mean, a.mean) })
}

// Plot implements gonum's interface.
func (k key) Plot(c draw.Canvas, p *gonum.Plot) {
	const gap, sample, step = 16, 20, labelSize + 7
	at := vg.Point{X: c.Max.X + gap, Y: c.Max.Y}
	for _, e := range k {
		c.StrokeLine2(e.line.LineStyle, at.X, at.Y, at.X+sample, at.Y)
		style := p.Legend.TextStyle
		style.YAlign = draw.YCenter
		c.FillText(style, vg.Point{X: at.X + sample + 8, Y: at.Y}, shortened(e.name, mostLetters))
		at.Y -= step
	}
}
