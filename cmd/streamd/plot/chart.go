package plot

import (
	"image/color"
	"io"
	"math"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Chart is a curve over axes that begin at 0.
type Chart struct {
	Title, X, Y string
	Points      XYs
	Line        XYs    // a straight line beside the points, by its ends; or nil
	Note        string // about the line
	Height      float64
}

// Charts writes charts below each other, as SVG.
func Charts(w io.Writer, charts ...Chart) error {
	const width, margin = 800, 14
	height := vg.Length(0)
	for _, chart := range charts {
		height += vg.Length(chart.Height)
	}
	c := newSVG(width, height)
	for _, chart := range charts {
		chart.draw(draw.Canvas{Canvas: c, Rectangle: vg.Rectangle{
			Min: vg.Point{X: margin, Y: height - vg.Length(chart.Height) + margin},
			Max: vg.Point{X: width - margin, Y: height - margin},
		}})
		height -= vg.Length(chart.Height)
	}
	_, err := c.WriteTo(w)
	return err
}

func (chart *Chart) draw(c draw.Canvas) {
	p := newPlot(chart.Title, chart.X, chart.Y)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	curve := line(chart.Points, blue, 2)
	p.Add(grid, curve)
	if chart.Line != nil {
		straight := line(chart.Line, red, 1, 6, 4)
		p.Add(straight)
		p.Legend.Top, p.Legend.Left = true, true
		p.Legend.XOffs, p.Legend.YOffs = 12, -4
		p.Legend.Add(chart.Note, straight)
	}
	const few = 60 // more would run into one another
	if len(chart.Points) <= few {
		p.Add(scatter(chart.Points, blue, 3, draw.CircleGlyph{}))
	}
	for _, axis := range []*gonum.Axis{&p.X, &p.Y} {
		axis.Min = 0
		if !(axis.Max > 0) {
			axis.Max = 1
		}
		if marks := ticks(0, axis.Max); len(marks) > 1 { // the last mark is no less than any point
			axis.Max = marks[1].Value * math.Ceil(axis.Max/marks[1].Value)
		}
	}
	p.Draw(c)
}

// A Panel shows points of two classes and a plane x'w = γ, with the planes
// x'w = γ ± 1 dashed.
type Panel struct {
	Title, Note       string
	Circles, Diamonds XYs // the points of the two classes
	// FilledCircles and FilledDiamonds are points that stand out.
	FilledCircles, FilledDiamonds XYs
	W                             [2]float64
	Gamma                         float64
	Sets                          []Set // of class 0 for diamonds and 1 for circles
}

// Panels writes panels of the same points side by side, as SVG.
func Panels(w io.Writer, panels ...Panel) error {
	const side, margin, title = 300, 20, 40
	c := newSVG(vg.Length(len(panels)*(side+margin)+margin), title+side+2*margin)
	tiles := draw.Tiles{
		Cols: len(panels), Rows: 1, PadX: margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin,
	}
	for i, panel := range panels {
		panel.draw(tiles.At(draw.New(c), i, 0))
	}
	_, err := c.WriteTo(w)
	return err
}

func (panel *Panel) draw(c draw.Canvas) {
	p := newPlot("", "", "")
	p.Title.Text = panel.Title + "\n" + panel.Note
	p.Title.TextStyle.Font.Size = labelSize
	p.HideAxes()
	low, high := math.Inf(1), math.Inf(-1)
	for _, points := range []XYs{panel.Circles, panel.Diamonds, panel.FilledCircles, panel.FilledDiamonds, shown(panel.Sets, panel.Circles, panel.Diamonds)} {
		for _, at := range points {
			low, high = min(low, at.X, at.Y), max(high, at.X, at.Y)
		}
	}
	pad := (high - low) / 25
	low, high = low-pad, high+pad
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, low, high
	plane := panel.W
	for _, bound := range []float64{-1, 0, 1} {
		style := draw.LineStyle{Color: ink, Width: 1.5}
		if bound != 0 {
			style = draw.LineStyle{Color: ink, Width: 0.8, Dashes: []vg.Length{5, 4}}
		}
		// From the point nearest the origin, far enough both ways.
		size := plane[0]*plane[0] + plane[1]*plane[1]
		near, along := (panel.Gamma+bound)/size, 3*(high-low)/math.Sqrt(size)
		x, y, dx, dy := near*plane[0], near*plane[1], -along*plane[1], along*plane[0]
		p.Add(overlay{&plotter.Line{XYs: XYs{{X: x - dx, Y: y - dy}, {X: x + dx, Y: y + dy}}, LineStyle: style}})
	}
	for _, set := range panel.Sets {
		p.Add(outline{set, []color.RGBA{red, blue}[set.Class]})
	}
	p.Add(
		scatter(panel.Circles, paper, 2.8, dot{blue}), scatter(panel.Diamonds, red, 3.5, diamond{paper}),
		scatter(panel.FilledCircles, blue, 2.8, dot{blue}), scatter(panel.FilledDiamonds, red, 3.5, diamond{red}),
		frame{rim, 1})
	p.Draw(c)
}
