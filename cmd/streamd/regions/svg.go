package regions

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"strconv"
)

// svg is an SVG.
type svg struct{ b bytes.Buffer }

func newSVG(width, height int) *svg {
	v := &svg{}
	fmt.Fprintf(&v.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&v.b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	return v
}

func (v *svg) write(w io.Writer) error {
	v.b.WriteString("</svg>\n")
	_, err := w.Write(v.b.Bytes())
	return err
}

func (v *svg) area(loops [][]point, fill color.RGBA) {
	if len(loops) == 0 {
		return
	}
	v.b.WriteString(`<path d="`)
	for _, loop := range loops {
		v.path(loop)
		v.b.WriteByte('Z')
	}
	fmt.Fprintf(&v.b, `" fill="%s"/>`+"\n", web(fill))
}

func (v *svg) disc(at point, radius float64, fill color.RGBA) {
	fmt.Fprintf(&v.b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"/>`+"\n", at.x, at.y, radius, web(fill))
}

func (v *svg) lines(lines [][]point, stroke color.RGBA, width float64) {
	if len(lines) == 0 {
		return
	}
	v.b.WriteString(`<path d="`)
	for _, line := range lines {
		v.path(line)
	}
	fmt.Fprintf(&v.b, `" fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"/>`+"\n", web(stroke), width)
}

func (v *svg) path(points []point) {
	command := byte('M')
	for _, p := range points {
		v.b.WriteByte(command)
		v.number(p.x)
		v.b.WriteByte(' ')
		v.number(p.y)
		command = 'L'
	}
}

// number writes tenths of a pixel.
func (v *svg) number(x float64) {
	s := strconv.AppendFloat(v.b.AvailableBuffer(), x, 'f', 1, 64)
	v.b.Write(bytes.TrimSuffix(s, []byte(".0")))
}

func (v *svg) text(at point, s string, size float64, anchor anchor) {
	more := [...]string{start: "", middle: ` text-anchor="middle"`, end: ` text-anchor="end"`, upwards: ` text-anchor="middle"`}[anchor]
	if anchor == upwards {
		more += fmt.Sprintf(` transform="rotate(-90 %g %g)"`, at.x, at.y)
	}
	fmt.Fprintf(&v.b, `<text x="%.1f" y="%.1f" font-size="%g" fill="%s"%s>`, at.x, at.y, size, web(ink), more)
	xml.EscapeText(&v.b, []byte(s)) // a buffer takes everything
	v.b.WriteString("</text>\n")
}

func web(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
