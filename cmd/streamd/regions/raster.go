package regions

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// raster is a PNG, of twice the pixels in each direction.
type raster struct {
	image *image.RGBA
	z     vector.Rasterizer
	font  *opentype.Font
	faces map[float64]font.Face
}

const fine = 2

func newRaster(width, height int) (*raster, error) {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("the font of pictures: %w", err)
	}
	r := &raster{image: image.NewRGBA(image.Rect(0, 0, fine*width, fine*height)), font: f, faces: map[float64]font.Face{}}
	draw.Draw(r.image, r.image.Bounds(), image.White, image.Point{}, draw.Src)
	for _, size := range []float64{labelSize, titleSize} {
		if r.faces[size], err = opentype.NewFace(f, &opentype.FaceOptions{Size: fine * size, DPI: 72}); err != nil {
			return nil, fmt.Errorf("the font of pictures: %w", err)
		}
	}
	return r, nil
}

func (r *raster) write(w io.Writer) error { return png.Encode(w, r.image) }

func (r *raster) area(loops [][]point, fill color.RGBA) {
	bounds := image.Rectangle{}
	for _, loop := range loops {
		for _, p := range loop {
			pixel := image.Rect(int(fine*p.x)-1, int(fine*p.y)-1, int(fine*p.x)+2, int(fine*p.y)+2)
			bounds = bounds.Union(pixel)
		}
	}
	bounds = bounds.Intersect(r.image.Bounds())
	if bounds.Empty() {
		return
	}
	// The rasteriser is as large as what it draws.
	r.z.Reset(bounds.Dx(), bounds.Dy())
	at := func(p point) (x, y float32) {
		return float32(fine*p.x - float64(bounds.Min.X)), float32(fine*p.y - float64(bounds.Min.Y))
	}
	for _, loop := range loops {
		r.z.MoveTo(at(loop[0]))
		for _, p := range loop[1:] {
			r.z.LineTo(at(p))
		}
		r.z.ClosePath()
	}
	r.z.Draw(r.image, bounds, image.NewUniform(fill), image.Point{})
}

func (r *raster) disc(at point, radius float64, fill color.RGBA) {
	r.area([][]point{polygon(at, radius, 24)}, fill)
}

// polygon is a regular one.
func polygon(at point, radius float64, corners int) []point {
	loop := make([]point, corners)
	for i := range loop {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(corners))
		loop[i] = point{at.x + radius*cos, at.y + radius*sin}
	}
	return loop
}

// lines are the union of a rectangle for each piece and a disc for each sharp
// bend, all of which go round the same way.
func (r *raster) lines(lines [][]point, stroke color.RGBA, width float64) {
	half := width / 2
	var loops [][]point
	for _, line := range lines {
		for i, p := range line {
			if i > 0 && i < len(line)-1 && sharp(line[i-1], p, line[i+1]) {
				loops = append(loops, polygon(p, half, 8))
			}
			if i == 0 || line[i-1] == p {
				continue
			}
			q := line[i-1]
			length := math.Hypot(p.x-q.x, p.y-q.y)
			dx, dy := half*(p.x-q.x)/length, half*(p.y-q.y)/length
			loops = append(loops, []point{{q.x + dy, q.y - dx}, {p.x + dy, p.y - dx}, {p.x - dy, p.y + dx}, {q.x - dy, q.y + dx}})
		}
	}
	if len(loops) > 0 {
		r.area(loops, stroke)
	}
}

// sharp says whether lines turn by more than 20 degrees.
func sharp(a, b, c point) bool {
	const cos = 0.94
	x1, y1, x2, y2 := b.x-a.x, b.y-a.y, c.x-b.x, c.y-b.y
	return x1*x2+y1*y2 < cos*math.Hypot(x1, y1)*math.Hypot(x2, y2)
}

func (r *raster) text(at point, s string, size float64, anchor anchor) {
	d := font.Drawer{Dst: r.image, Src: image.NewUniform(ink), Face: r.faces[size]}
	length := d.MeasureString(s)
	x, y := fixed.Int26_6(math.Round(64*fine*at.x)), fixed.Int26_6(math.Round(64*fine*at.y))
	switch anchor {
	case middle:
		x -= length / 2
	case end:
		x -= length
	case upwards:
		r.upwards(&d, s, length.Ceil(), x.Round(), y.Round())
		return
	}
	d.Dot = fixed.Point26_6{X: x, Y: y}
	d.DrawString(s)
}

// upwards draws text lying down and turns it.
func (r *raster) upwards(d *font.Drawer, s string, length, x, y int) {
	m := d.Face.Metrics()
	ascent, descent := m.Ascent.Ceil(), m.Descent.Ceil()
	lying := image.NewRGBA(image.Rect(0, 0, length, ascent+descent))
	d.Dst, d.Dot = lying, fixed.P(0, ascent)
	d.DrawString(s)
	turned := image.NewRGBA(image.Rect(0, 0, ascent+descent, length))
	for i := range length {
		for j := range ascent + descent {
			turned.SetRGBA(j, length-1-i, lying.RGBAAt(i, j))
		}
	}
	draw.Draw(r.image, turned.Bounds().Add(image.Pt(x-ascent, y-length/2)), turned, image.Point{}, draw.Over)
}
