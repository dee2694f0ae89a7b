package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// svgCanvas is a gonum canvas that writes SVG. Gonum's own canvas styles with style
// attributes, which the content security policy of every answer forbids; this one
// writes presentation attributes, and class names for colours that are a class.
type svgCanvas struct {
	vg.Canvas     // nil: the pictures have no images, and no transform but Rotate
	width, height vg.Length
	b             bytes.Buffer
	style         style
	saved         []style
}

// style is the state that Push saves.
type style struct {
	colour color.Color
	width  vg.Length
	dashes []vg.Length
	groups int // opened since the last Push
}

// A class is a colour that the style sheet of the page chooses.
type class string

// RGBA implements color.Color.
func (class) RGBA() (r, g, b, a uint32) { return color.Black.RGBA() }

func newSVG(width, height vg.Length) *svgCanvas {
	return &svgCanvas{width: width, height: height}
}

// WriteTo writes the drawing as a file, on white. The fonts are as wide as the one
// that the texts were measured with.
func (c *svgCanvas) WriteTo(w io.Writer) (int64, error) {
	n, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" `+
		`font-family="Liberation Sans, Arial, Helvetica, sans-serif" stroke-linejoin="round">`+"\n"+
		`<rect width="%g" height="%g" fill="#fff"/>`+"\n%s</svg>\n",
		c.width, c.height, c.width, c.height, c.width, c.height, c.b.Bytes())
	return int64(n), err
}

// Size implements gonum's interface, as the following methods do.
func (c *svgCanvas) Size() (width, height vg.Length) { return c.width, c.height }

func (c *svgCanvas) SetLineWidth(width vg.Length) { c.style.width = width }

func (c *svgCanvas) SetLineDash(dashes []vg.Length, _ vg.Length) { c.style.dashes = dashes }

func (c *svgCanvas) SetColor(colour color.Color) { c.style.colour = colour }

func (c *svgCanvas) Push() {
	c.saved = append(c.saved, c.style)
	c.style.groups = 0
}

func (c *svgCanvas) Pop() {
	for range c.style.groups {
		c.b.WriteString("</g>\n")
	}
	last := len(c.saved) - 1
	c.style, c.saved = c.saved[last], c.saved[:last]
}

// Rotate turns the following elements about the lower left corner.
func (c *svgCanvas) Rotate(angle float64) {
	fmt.Fprintf(&c.b, `<g transform="rotate(%.4g 0 %g)">`+"\n", -angle*180/math.Pi, c.height)
	c.style.groups++
}

func (c *svgCanvas) Fill(p vg.Path) {
	c.open(p)
	if c.styled() {
		return
	}
	fmt.Fprintf(&c.b, ` fill="%s"/>`+"\n", web(c.style.colour))
}

func (c *svgCanvas) Stroke(p vg.Path) {
	if c.style.width <= 0 {
		return
	}
	c.open(p)
	if c.styled() {
		return
	}
	fmt.Fprintf(&c.b, ` fill="none" stroke="%s" stroke-width="%g"`, web(c.style.colour), c.style.width)
	for i, d := range c.style.dashes {
		c.b.WriteString([]string{` stroke-dasharray="`, " "}[min(i, 1)])
		c.number(d)
	}
	if len(c.style.dashes) > 0 {
		c.b.WriteByte('"')
	}
	c.b.WriteString("/>\n")
}

// styled ends the element if its colour is a class.
func (c *svgCanvas) styled() bool {
	name, ok := c.style.colour.(class)
	if ok {
		fmt.Fprintf(&c.b, ` class="%s"/>`, string(name))
	}
	return ok
}

// open begins an element of the shape: a circle, as gonum's glyphs draw it, or
// straight lines.
func (c *svgCanvas) open(p vg.Path) {
	if len(p) == 3 && p[1].Type == vg.ArcComp && math.Abs(p[1].Angle) >= 2*math.Pi {
		c.b.WriteString(`<circle cx="`)
		c.number(p[1].Pos.X)
		c.b.WriteString(`" cy="`)
		c.number(c.height - p[1].Pos.Y)
		c.b.WriteString(`" r="`)
		c.number(p[1].Radius)
		c.b.WriteByte('"')
		return
	}
	c.b.WriteString(`<path d="`)
	var at vg.Point
	for _, part := range p {
		switch {
		case part.Type == vg.CloseComp:
			c.b.WriteByte('Z')
			continue
		case part.Type == vg.LineComp && part.Pos.Y == at.Y:
			c.b.WriteByte('H')
			c.number(part.Pos.X)
		case part.Type == vg.LineComp && part.Pos.X == at.X:
			c.b.WriteByte('V')
			c.number(c.height - part.Pos.Y)
		default: // there are no curves
			c.b.WriteByte("ML"[part.Type-vg.MoveComp])
			c.number(part.Pos.X)
			c.b.WriteByte(' ')
			c.number(c.height - part.Pos.Y)
		}
		at = part.Pos
	}
	c.b.WriteByte('"')
}

func (c *svgCanvas) FillString(f font.Face, at vg.Point, text string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" font-size="%g" `, at.X, c.height-at.Y, f.Font.Size)
	if name, ok := c.style.colour.(class); ok {
		fmt.Fprintf(&c.b, `class="%s">`, string(name))
	} else {
		fmt.Fprintf(&c.b, `fill="%s">`, web(c.style.colour))
	}
	xml.EscapeText(&c.b, []byte(text)) // a buffer takes everything
	c.b.WriteString("</text>\n")
}

// number writes tenths of a pixel.
func (c *svgCanvas) number(x vg.Length) {
	s := strconv.AppendFloat(c.b.AvailableBuffer(), float64(x), 'f', 1, 64)
	c.b.Write(bytes.TrimSuffix(s, []byte(".0")))
}

// web writes an opaque colour.
func web(c color.Color) string {
	if c == nil {
		c = color.Black
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
