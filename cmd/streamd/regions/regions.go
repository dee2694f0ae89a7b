// Package regions draws where a classifier of two features puts its classes: the
// region of each class, the borders between them, the points of a kernel's basis
// and rows, with axes and a legend, as SVG or PNG.
//
// The decision values are computed at the nodes of a grid that is two pixels
// wide, about 79,000 of them, and are taken to be linear between neighbours: a
// border is within a pixel of its place unless it turns back within two.
package regions

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
)

// MostClasses is how many classes a picture has at most: nobody tells more colours
// apart, and each takes a megabyte while it is drawn.
const MostClasses = 128

// A Picture is what is drawn. Drawing does not change it.
type Picture struct {
	Classifier *model.Classifier
	// Rows are drawn as points, by the colours of their classes; those that the
	// classifier puts elsewhere have a black rim. Their columns are the
	// classifier's two features. Nil: none.
	Rows *incremental.Block
}

// ErrNoRows is returned for a picture of planes in the features without rows.
var ErrNoRows = errors.New("a picture of planes in the features themselves takes rows, to show where these are")

// SVG writes the picture as SVG.
func (p *Picture) SVG(w io.Writer) error {
	c := newSVG(width, height)
	if err := p.draw(c); err != nil {
		return err
	}
	return c.write(w)
}

// PNG writes the picture as PNG.
func (p *Picture) PNG(w io.Writer) error {
	c, err := newRaster(width, height)
	if err != nil {
		return err
	}
	if err := p.draw(c); err != nil {
		return err
	}
	return c.write(w)
}

// point is a place in the picture, in pixels from its upper left corner.
type point struct{ x, y float64 }

// canvas is what is drawn on: an SVG or a PNG. Areas are the union of loops in
// which holes go round the other way.
type canvas interface {
	area(loops [][]point, fill color.RGBA)
	disc(at point, radius float64, fill color.RGBA)
	lines(lines [][]point, stroke color.RGBA, width float64)
	text(at point, s string, size float64, anchor anchor)
}

type anchor int

const (
	start anchor = iota
	middle
	end
	upwards // in the middle, turned by 90 degrees
)

const (
	side             = 560 // of the square that is classified
	left, top        = 78, 48
	legend           = 158
	width, height    = left + side + legend, top + side + 62
	cell             = 2
	nodes            = side/cell + 1
	labelSize        = 13
	titleSize        = 16
	legendLine       = 20
	mostLegendLines  = side/legendLine - 4
	mostLegendLetter = 16
)

var (
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	paper = color.RGBA{0xff, 0xff, 0xff, 0xff}
	rim   = color.RGBA{0x99, 0x99, 0x99, 0xff}
)

// classColour goes round the hues by the golden angle, so that colours of few
// classes differ much, and of many at all.
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

// frame takes the two features to pixels.
type frame struct{ low, high [2]float64 }

func (f *frame) at(x, y float64) point {
	return point{
		left + side*(x-f.low[0])/(f.high[0]-f.low[0]),
		top + side - side*(y-f.low[1])/(f.high[1]-f.low[1]),
	}
}

func (p *Picture) draw(c canvas) error {
	by := p.Classifier
	if len(by.Features) != 2 {
		return fmt.Errorf("a picture takes two features; the model has %d", len(by.Features))
	}
	if k := len(by.Model.Classes); k > MostClasses {
		return fmt.Errorf("a picture takes up to %d classes; the model has %d", MostClasses, k)
	}
	basis := p.basis()
	f, err := p.frame(basis)
	if err != nil {
		return err
	}
	ahead, err := p.lead(f)
	if err != nil {
		return err
	}
	classes := by.Model.Classes
	loops := make([][][]point, len(classes))
	for class := range classes {
		loops[class] = contours(ahead[class])
		c.area(loops[class], pale(classColour(class)))
	}
	if len(classes) == 2 {
		loops = loops[1:] // the border of one is the other's
	}
	for _, of := range loops {
		c.lines(borders(of), ink, 1.5)
	}
	// A row that is a basis point lies in the middle of it.
	for _, z := range basis {
		diamond(c, f.at(z[0], z[1]))
	}
	of, class := p.rowClasses()
	p.drawRows(c, f, of, class)
	title := "linear"
	if by.Map != nil {
		title = fmt.Sprintf("%s, %d points", by.Map.Kernel(), by.Map.Points())
		if by.Map.Points() == 1 {
			title = fmt.Sprintf("%s, 1 point", by.Map.Kernel())
		}
	}
	c.text(point{left, top - 18}, title, titleSize, start)
	f.drawAxes(c, by.Features)
	p.drawLegend(c, len(basis), of, class)
	return nil
}

// basis gives the points of the basis in the features' own coordinates.
func (p *Picture) basis() (points [][2]float64) {
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
		points = append(points, z)
	}
	return points
}

// frame has rows and basis in it, and a margin around.
func (p *Picture) frame(basis [][2]float64) (*frame, error) {
	inf := math.Inf(1)
	f := &frame{low: [2]float64{inf, inf}, high: [2]float64{-inf, -inf}}
	include := func(j int, x float64) {
		f.low[j], f.high[j] = min(f.low[j], x), max(f.high[j], x)
	}
	for _, z := range basis {
		include(0, z[0])
		include(1, z[1])
	}
	if p.Rows != nil {
		for j := range 2 {
			for i := range p.Rows.Rows() {
				include(j, p.Rows.Columns[j].At(i))
			}
		}
	}
	for j := range 2 {
		if f.low[j] > f.high[j] {
			return nil, ErrNoRows
		}
		const margin = 0.06
		room := margin * (f.high[j] - f.low[j])
		if !(room > 0) {
			room = max(math.Abs(f.low[j])/8, 1) // all is at one place
		}
		f.low[j], f.high[j] = f.low[j]-room, f.high[j]+room
		if d := f.high[j] - f.low[j]; d-d != 0 || !(f.low[j]+d/nodes > f.low[j]) {
			return nil, fmt.Errorf("feature %s goes from %g to %g, which cannot be drawn", p.Classifier.Features[j], f.low[j], f.high[j])
		}
	}
	return f, nil
}

// lead gives, for each class and node, row by row from the upper left, an eighth
// of how far the class is ahead of the best other one: sums and differences of
// eighths are finite. The class has the nodes where its lead is positive or zero.
func (p *Picture) lead(f *frame) ([][]float64, error) {
	x, y := make([]float64, nodes*nodes), make([]float64, nodes*nodes)
	for r := range nodes {
		for k := range nodes {
			x[r*nodes+k] = f.low[0] + (f.high[0]-f.low[0])*float64(k)/(nodes-1)
			y[r*nodes+k] = f.high[1] - (f.high[1]-f.low[1])*float64(r)/(nodes-1)
		}
	}
	planes := len(p.Classifier.Model.Planes)
	class, values := make([]int32, len(x)), make([]float64, len(x)*planes)
	p.Classifier.Classify(class, values, []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)})
	ahead := make([][]float64, len(p.Classifier.Model.Classes))
	for c := range ahead {
		ahead[c] = make([]float64, len(x))
	}
	for i := range x {
		v := values[i*planes:][:planes]
		for _, value := range v {
			if value-value != 0 {
				return nil, fmt.Errorf("the classifier's value at %s = %g, %s = %g is %v", p.Classifier.Features[0], x[i], p.Classifier.Features[1], y[i], value)
			}
		}
		if planes == 1 {
			ahead[0][i], ahead[1][i] = -v[0]/8, v[0]/8
			continue
		}
		for c := range ahead {
			best := math.Inf(-1)
			for o, value := range v {
				if o != c {
					best = max(best, value)
				}
			}
			ahead[c][i] = v[c]/8 - best/8
		}
	}
	return ahead, nil
}

// drawRows takes what rowClasses gives.
func (p *Picture) drawRows(c canvas, f *frame, of []int, class []int32) {
	b := p.Rows
	if b == nil {
		return
	}
	const few = 400 // more are smaller
	size := 3.5
	if b.Rows() > few {
		size = 2.4
	}
	for i, code := range b.Codes {
		edge := paper
		if of[code] != int(class[i]) {
			edge = ink
		}
		at := f.at(b.Columns[0].At(i), b.Columns[1].At(i))
		dot(c, at, classColour(of[code]), edge, size)
	}
}

// rowClasses gives the model's class of each code of the rows, −1 for those it
// has not, and the class that the classifier puts each row into.
func (p *Picture) rowClasses() (of []int, class []int32) {
	b, m := p.Rows, p.Classifier.Model
	if b == nil {
		return nil, nil
	}
	of = b.ClassesIn(m.Classes)
	class = make([]int32, b.Rows())
	p.Classifier.Classify(class, make([]float64, b.Rows()*len(m.Planes)), b.Columns)
	return of, class
}

// dot draws a disc with a rim, which marks a row.
func dot(c canvas, at point, fill, edge color.RGBA, radius float64) {
	c.disc(at, radius+0.8, edge)
	c.disc(at, radius, fill)
}

// diamond marks a point of the basis.
func diamond(c canvas, at point) {
	for _, part := range []struct {
		size float64
		fill color.RGBA
	}{{6.2, ink}, {5, paper}} {
		c.area([][]point{{{at.x, at.y - part.size}, {at.x + part.size, at.y}, {at.x, at.y + part.size}, {at.x - part.size, at.y}}}, part.fill)
	}
}

func (f *frame) drawAxes(c canvas, names []string) {
	corner := []point{{left, top}, {left + side, top}, {left + side, top + side}, {left, top + side}, {left, top}}
	c.lines([][]point{corner}, ink, 1)
	var marks [][]point
	for _, t := range ticks(f.low[0], f.high[0]) {
		at := f.at(t.at, f.low[1])
		marks = append(marks, []point{at, {at.x, at.y + 5}})
		c.text(point{at.x, at.y + 20}, t.text, labelSize, middle)
	}
	for _, t := range ticks(f.low[1], f.high[1]) {
		at := f.at(f.low[0], t.at)
		marks = append(marks, []point{at, {at.x - 5, at.y}})
		c.text(point{at.x - 9, at.y + 4.5}, t.text, labelSize, end)
	}
	c.lines(marks, ink, 1)
	c.text(point{left + side/2, top + side + 46}, names[0], labelSize, middle)
	c.text(point{22, top + side/2}, names[1], labelSize, upwards)
}

// A tick is a place on an axis.
type tick struct {
	at   float64
	text string
}

// ticks are the multiples of a round number, some six of them.
func ticks(low, high float64) (some []tick) {
	rough := (high - low) / 6
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
	for k := math.Ceil(low / step); k*step <= high; k++ {
		some = append(some, tick{k * step, strconv.FormatFloat(k*step+0, format, digits, 64)})
	}
	return some
}

// drawLegend takes the number of points of the basis, and what rowClasses gives.
func (p *Picture) drawLegend(c canvas, basis int, of []int, class []int32) {
	x, y := float64(left+side+22), float64(top+14)
	line := func(s string) {
		letters := []rune(s)
		if len(letters) > mostLegendLetter {
			s = string(letters[:mostLegendLetter-1]) + "…"
		}
		c.text(point{x + 24, y + 4.5}, s, labelSize, start)
		y += legendLine
	}
	for class, label := range p.Classifier.Model.Classes {
		if class == mostLegendLines {
			line(fmt.Sprintf("and %d more", len(p.Classifier.Model.Classes)-class))
			break
		}
		box := []point{{x, y - 7}, {x + 16, y - 7}, {x + 16, y + 7}, {x, y + 7}}
		c.area([][]point{box}, pale(classColour(class)))
		dot(c, point{x + 8, y}, classColour(class), paper, 3.5)
		line(label)
	}
	y += legendLine / 2
	if basis > 0 {
		diamond(c, point{x + 8, y})
		line("basis point")
	}
	if p.Rows == nil {
		return
	}
	wrong, unknown := false, false
	for i, code := range p.Rows.Codes {
		wrong = wrong || of[code] != int(class[i])
		unknown = unknown || of[code] < 0
	}
	if wrong {
		dot(c, point{x + 8, y}, paper, ink, 3.5)
		line("put elsewhere")
	}
	if unknown {
		dot(c, point{x + 8, y}, classColour(-1), ink, 3.5)
		line("unknown class")
	}
}
