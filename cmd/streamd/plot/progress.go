package plot

import (
	"io"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Progress shows figures along the rows of a stream. The first line is the figure, and the others
// are its baselines, which are dashed.
type Progress struct {
	Title, Along, Up string
	Lines            []ProgressLine
}

// ProgressLine is a figure. Mean is that of all rows, and goes with the name.
type ProgressLine struct {
	Name   string
	Mean   float64
	Points XYs
}

// SVG writes the picture, on white. Names are in the order of the means.
func (s *Progress) SVG(w io.Writer) error {
	const width, height, margin, names = 940, 420, 14, 270
	p := newPlot(s.Title, s.Along, s.Up)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	var all key
	for i, l := range s.Lines {
		wide, dashes := vg.Length(2), []vg.Length(nil)
		if i > 0 {
			wide, dashes = 1.4, []vg.Length{vg.Length(6 - 2*i), 3}
		}
		one := entry{name: l.Name, line: line(l.Points, hues[i%len(hues)], wide, dashes...), mean: l.Mean}
		if len(l.Points) == 1 {
			p.Add(scatter(l.Points, hues[i%len(hues)], 3, draw.CircleGlyph{}))
		} else {
			p.Add(one.line)
		}
		all = append(all, one)
	}
	all.sort()
	p.Add(overlay{all})
	c := newSVG(width, height)
	p.Draw(draw.Crop(draw.New(c), margin, -margin-names, margin, -margin))
	_, err := c.WriteTo(w)
	return err
}
