package plot

import (
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
)

// MostClasses is the number of classes that a picture has at most. Nobody tells more
// colours apart, and each class takes a megabyte while it is drawn.
const MostClasses = 128

// Regions is a picture of the places where a classifier of two features puts each
// class, with their borders, the points of a kernel's basis, and rows.
//
// The decision values are computed at the nodes of a grid that is two pixels wide,
// and are linear between neighbours. So a border is within a pixel of its place
// unless it turns back within two. Drawing does not change the picture.
type Regions struct {
	Classifier *model.Classifier
	// Rows are drawn as points in the colours of their classes. Rows that the
	// classifier puts elsewhere have a black rim. The columns are the classifier's
	// two features. Nil: no rows.
	Rows *incremental.Block
	// Sets are outlined.
	Sets []Set
	// Narrow makes an SVG for a phone: the legend is below the plot.
	Narrow bool
}

// ErrNoRows is returned for a picture of planes in the features without rows.
var ErrNoRows = errors.New("a picture of planes in the features themselves takes rows, to show where these are")

const (
	regionsWidth, regionsHeight = 796, 670
	legendWidth                 = 158
	legendLine                  = 20
	mostLegendLines             = 24 // of classes
	mostLegendLetters           = 16
	narrowWidth, narrowTitle    = 400, 48 // pixels, letters
)

// SVG writes the picture as SVG.
func (p *Regions) SVG(w io.Writer) error {
	if p.Narrow {
		return p.narrow(w)
	}
	c := newSVG(regionsWidth, regionsHeight)
	if err := p.draw(draw.New(c)); err != nil {
		return err
	}
	_, err := c.WriteTo(w)
	return err
}

// narrow draws the plot above its legend.
func (p *Regions) narrow(w io.Writer) error {
	plot, legend, err := p.plot()
	if err != nil {
		return err
	}
	plot.Title.Text, plot.Title.TextStyle.Font.Size = shortened(plot.Title.Text, narrowTitle), labelSize
	const left, gap = 44, 12
	below := legend.Rectangle(draw.New(newSVG(narrowWidth, narrowWidth))).Size().Y + 2*gap
	c := newSVG(narrowWidth, narrowWidth+below)
	plot.Draw(draw.Crop(draw.New(c), 6, -10, below, -8))
	legend.Draw(draw.Crop(draw.New(c), left, 0, gap, -narrowWidth-gap))
	_, err = c.WriteTo(w)
	return err
}

// SideBySide writes pictures beside each other, as SVG.
func SideBySide(w io.Writer, pictures ...Regions) error {
	n := len(pictures)
	c := newSVG(vg.Length(n*regionsWidth), regionsHeight)
	for i := range pictures {
		left, right := vg.Length(i*regionsWidth), vg.Length((n-1-i)*regionsWidth)
		if err := pictures[i].draw(draw.Crop(draw.New(c), left, -right, 0, 0)); err != nil {
			return err
		}
	}
	_, err := c.WriteTo(w)
	return err
}

// PNG writes the picture as PNG.
func (p *Regions) PNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(regionsWidth, regionsHeight), vgimg.UseDPI(2*72))
	if err := p.draw(draw.New(c)); err != nil {
		return err
	}
	return png.Encode(w, c.Image())
}

// classColour goes around the hues by the golden angle, so that few classes have
// colours that differ much, and many classes colours that differ at all.
func classColour(class int) color.RGBA {
	if class < 0 {
		return rim
	}
	const saturation, lightness = 0.62, 0.45
	hue := math.Mod(215+float64(class)*137.508, 360) / 60
	chroma := (1 - math.Abs(2*lightness-1)) * saturation
	second := chroma * (1 - math.Abs(math.Mod(hue, 2)-1))
	rgb := [6][3]float64{{chroma, second, 0}, {second, chroma, 0}, {0, chroma, second}, {0, second, chroma}, {second, 0, chroma}, {chroma, 0, second}}[int(hue)]
	channel := func(v float64) uint8 { return uint8(math.Round(255 * (v + lightness - chroma/2))) }
	return color.RGBA{channel(rgb[0]), channel(rgb[1]), channel(rgb[2]), 0xff}
}

// pale is the colour of a class's region.
func pale(c color.RGBA) color.RGBA {
	const share = 0.28
	channel := func(v uint8) uint8 { return uint8(math.Round(255 - share*(255-float64(v)))) }
	return color.RGBA{channel(c.R), channel(c.G), channel(c.B), 0xff}
}

var borderStyle = draw.LineStyle{Color: ink, Width: 1.5}

func (p *Regions) draw(c draw.Canvas) error {
	plot, legend, err := p.plot()
	if err != nil {
		return err
	}
	plot.Draw(besideLegend(c))
	legend.Draw(draw.Crop(c, regionsWidth-legendWidth+14, 0, 0, -40))
	return nil
}

// besideLegend is the part of a canvas that the plot has.
func besideLegend(c draw.Canvas) draw.Canvas { return draw.Crop(c, 14, -legendWidth, 8, -10) }

// plot returns the picture, and the legend beside it.
func (p *Regions) plot() (*gonum.Plot, *gonum.Legend, error) {
	by := p.Classifier
	if len(by.Features) != 2 {
		return nil, nil, fmt.Errorf("a picture takes two features; the model has %d", len(by.Features))
	}
	if k := len(by.Model.Classes); k > MostClasses {
		return nil, nil, fmt.Errorf("a picture takes up to %d classes; the model has %d", MostClasses, k)
	}
	title := "linear"
	if by.Map != nil {
		title = fmt.Sprintf("%s, %d points", by.Map.Kernel(), by.Map.Points())
		if by.Map.Points() == 1 {
			title = fmt.Sprintf("%s, 1 point", by.Map.Kernel())
		}
		if by.Map.Projection() != nil {
			title += fmt.Sprintf(", %d coordinates", by.Map.Size())
		}
	}
	plot := newPlot(title, by.Features[0], by.Features[1])
	basis := scatter(p.basis(), ink, 5, diamond{})
	rows := p.rows()
	if err := p.frame(plot, basis.XYs, rows.XYs, shown(p.Sets, basis.XYs, rows.XYs)); err != nil {
		return nil, nil, err
	}
	lead, err := p.lead(&plot.X, &plot.Y)
	if err != nil {
		return nil, nil, err
	}
	// A row that is a basis point lies in the middle of it.
	plot.Add(regions{lead})
	for _, set := range p.Sets {
		plot.Add(outline{set, classColour(set.Class)})
	}
	plot.Add(basis, rows.Scatter, frame{borderStyle.Color, borderStyle.Width})
	return plot, p.legend(basis, rows), nil
}

// basis returns the points of the basis in the features' own coordinates.
func (p *Regions) basis() (points XYs) {
	m := p.Classifier.Map
	if m == nil {
		return nil
	}
	mean, scale := m.Scaling()
	for i := range m.Points() {
		z := [2]float64(m.Point(i))
		for j := range z {
			if scale != nil {
				z[j] = z[j]*scale[j] + mean[j]
			}
		}
		points = append(points, XY{X: z[0], Y: z[1]})
	}
	return points
}

// frame fits the axes to rows and basis, with a margin around.
func (p *Regions) frame(plot *gonum.Plot, points ...XYs) error {
	for j, axis := range []*gonum.Axis{&plot.X, &plot.Y} {
		for _, some := range points {
			for _, at := range some {
				x := [2]float64{at.X, at.Y}[j]
				axis.Min, axis.Max = min(axis.Min, x), max(axis.Max, x)
			}
		}
		if axis.Min > axis.Max {
			return ErrNoRows
		}
		const margin = 0.06
		room := margin * (axis.Max - axis.Min)
		if !(room > 0) {
			room = max(math.Abs(axis.Min)/8, 1) // all is at one place
		}
		axis.Min, axis.Max = axis.Min-room, axis.Max+room
		if d := axis.Max - axis.Min; d-d != 0 || !(axis.Min+d/nodes > axis.Min) {
			return fmt.Errorf("feature %s goes from %g to %g, which cannot be drawn", p.Classifier.Features[j], axis.Min, axis.Max)
		}
	}
	return nil
}

// lead returns, for each class and node, an eighth of how far the class is ahead of
// the best other one, on the scale of the rule or, of two classes, in x'w − γ: sums and
// differences of eighths are finite. It is below zero for all but the label.
func (p *Regions) lead(xAxis, yAxis *gonum.Axis) ([][]float64, error) {
	x, y := make([]float64, nodes*nodes), make([]float64, nodes*nodes)
	for r := range nodes {
		for k := range nodes {
			x[r*nodes+k] = xAxis.Min + (xAxis.Max-xAxis.Min)*float64(k)/cells
			y[r*nodes+k] = yAxis.Min + (yAxis.Max-yAxis.Min)*float64(r)/cells
		}
	}
	planes := len(p.Classifier.Model.Planes)
	class, values := make([]int32, len(x)), make([]float64, len(x)*planes)
	p.Classifier.Classify(class, values, []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)})
	for i, value := range values {
		if at := i / planes; value-value != 0 {
			return nil, fmt.Errorf("the classifier's value at %s = %g, %s = %g is %v", p.Classifier.Features[0], x[at], p.Classifier.Features[1], y[at], value)
		}
	}
	rule := p.Classifier.DecidesBy()
	if planes > 1 {
		rule.Values(values, values)
	}
	ahead := make([][]float64, len(p.Classifier.Model.Classes))
	for c := range ahead {
		ahead[c] = make([]float64, len(x))
	}
	for i := range x {
		v := values[i*planes:][:planes]
		best, second := math.Inf(-1), math.Inf(-1)
		for _, value := range v {
			best, second = max(best, value), max(second, min(best, value))
		}
		if planes == 1 {
			ahead[1][i] = v[0]/8 - rule.Threshold()/8
			ahead[0][i] = -ahead[1][i]
		} else {
			for c := range ahead {
				other := best
				if v[c] == best {
					other = second
				}
				ahead[c][i] = v[c]/8 - other/8
			}
		}
		for c := range ahead {
			if c != int(class[i]) && ahead[c][i] >= 0 { // as good as the label
				ahead[c][i] = -math.SmallestNonzeroFloat64
			}
		}
	}
	return ahead, nil
}

// rowScatter is the rows, and whether any is of a class that the model does not
// have or is put elsewhere.
type rowScatter struct {
	*plotter.Scatter
	unknown, elsewhere bool
}

func (p *Regions) rows() (s rowScatter) {
	s.Scatter = &plotter.Scatter{}
	b, m := p.Rows, p.Classifier.Model
	if b == nil {
		return s
	}
	const few = 400 // more are smaller
	style := draw.GlyphStyle{Radius: 3.5}
	if b.Rows() > few {
		style.Radius = 2.4
	}
	of, class := b.ClassesIn(m.Classes), make([]int32, b.Rows())
	p.Classifier.Classify(class, make([]float64, b.Rows()*len(m.Planes)), b.Columns)
	styles := make([]draw.GlyphStyle, b.Rows())
	for i, code := range b.Codes {
		s.XYs = append(s.XYs, XY{X: b.Columns[0].At(i), Y: b.Columns[1].At(i)})
		style.Color, style.Shape = classColour(of[code]), dot{paper}
		if of[code] != int(class[i]) {
			style.Shape, s.elsewhere = dot{ink}, true
		}
		s.unknown = s.unknown || of[code] < 0
		styles[i] = style
	}
	s.GlyphStyleFunc = func(i int) draw.GlyphStyle { return styles[i] }
	return s
}

func (p *Regions) legend(basis *plotter.Scatter, rows rowScatter) *gonum.Legend {
	l := gonum.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle.Font.Size = labelSize
	l.ThumbnailWidth = 16
	l.Padding = 5
	mark := func(fill, rim color.Color) *plotter.Scatter { return scatter(nil, fill, 3.5, dot{rim}) }
	classes := p.Classifier.Model.Classes
	for of, label := range classes {
		if of == mostLegendLines {
			l.Add(fmt.Sprintf("and %d more", len(classes)-of))
			break
		}
		l.Add(shortened(label, mostLegendLetters), &plotter.Polygon{Color: pale(classColour(of))}, mark(classColour(of), paper))
	}
	if len(basis.XYs) > 0 {
		l.Add("basis point", basis)
	}
	if rows.elsewhere {
		l.Add("put elsewhere", mark(paper, ink))
	}
	if rows.unknown {
		l.Add("unknown class", mark(classColour(-1), ink))
	}
	return &l
}
