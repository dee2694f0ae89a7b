package bench

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

// Draw writes the course as an SVG picture: the time after each mark with the
// straight line that fits best and, where it is known, the memory below.
func (c Course) Draw(w io.Writer, title string) error {
	const width, upper, lower = 800, 460, 200
	times := chart{title: title, x: "points (millions)", y: "seconds"}
	memory := chart{x: times.x, y: "memory (MB)"}
	for _, m := range c.Marks {
		x := float64(m.Rows) / 1e6
		times.points = append(times.points, point{x, m.Seconds})
		if m.RSSBytes > 0 {
			memory.points = append(memory.points, point{x, float64(m.RSSBytes) / 1e6})
		}
	}
	if n := len(times.points); n > 0 {
		at, slope := c.line()
		from := 0.0
		if slope > 0 {
			from = max(0, -at/slope) // where it comes up to the axis
			times.note = fmt.Sprintf("straight line: %.3g million points a second; it explains %.4f of the variance", 1/slope/1e6, c.linearity())
		}
		last := float64(c.Marks[n-1].Rows)
		times.line = []point{{from / 1e6, at + slope*from}, {last / 1e6, at + slope*last}}
	}
	height := upper
	if len(memory.points) > 0 {
		height += lower
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	times.draw(&b, 0, width, upper)
	if len(memory.points) > 0 {
		memory.draw(&b, upper, width, lower)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

type point struct{ x, y float64 }

// chart is points over axes that begin at zero.
type chart struct {
	title, note, x, y string
	points            []point
	line              []point
}

// draw writes the chart into a strip of the picture that begins at top.
func (c *chart) draw(b *bytes.Buffer, top, width, height int) {
	const left, right, above, below = 80, 30, 44, 52
	x0, y0 := float64(left), float64(top+height-below)
	xScale, yScale := newScale(0), newScale(0)
	for _, p := range append(c.points, c.line...) {
		xScale, yScale = newScale(max(xScale.most, p.x)), newScale(max(yScale.most, p.y))
	}
	px := func(x float64) float64 { return x0 + x/xScale.end*float64(width-left-right) }
	py := func(y float64) float64 { return y0 - y/yScale.end*float64(height-above-below) }
	text := func(x, y float64, more, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, more, html.EscapeString(s))
	}
	const grid = `stroke="#ddd"`
	stroke := func(x1, y1, x2, y2 float64, more string) {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, more)
	}
	for _, x := range xScale.ticks() {
		stroke(px(x), py(0), px(x), py(yScale.end), grid)
		text(px(x), y0+18, `text-anchor="middle"`, number(x))
	}
	for _, y := range yScale.ticks() {
		stroke(px(0), py(y), px(xScale.end), py(y), grid)
		text(x0-8, py(y)+4, `text-anchor="end"`, number(y))
	}
	stroke(px(0), py(0), px(xScale.end), py(0), `stroke="#333"`)
	stroke(px(0), py(0), px(0), py(yScale.end), `stroke="#333"`)
	text(px(xScale.end/2), y0+40, `text-anchor="middle"`, c.x)
	middle := py(yScale.end / 2)
	text(20, middle, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 20 %.1f)"`, middle), c.y)
	if c.title != "" {
		text(x0, float64(top)+24, `font-size="16"`, c.title)
	}
	if c.note != "" {
		text(x0+12, py(yScale.end)+18, `fill="#c33"`, c.note)
	}
	if len(c.line) == 2 {
		stroke(px(c.line[0].x), py(c.line[0].y), px(c.line[1].x), py(c.line[1].y), `stroke="#c33" stroke-dasharray="6 4"`)
	}
	var path strings.Builder
	for _, p := range c.points {
		fmt.Fprintf(&path, " %.1f,%.1f", px(p.x), py(p.y))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#26c" stroke-width="2"/>`+"\n", strings.TrimSpace(path.String()))
	const fewPoints = 60 // more would run into one another
	if len(c.points) <= fewPoints {
		for _, p := range c.points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="#26c"/>`+"\n", px(p.x), py(p.y))
		}
	}
}

// scale is an axis from 0 to a round number that is no less than most.
type scale struct{ most, step, end float64 }

func newScale(most float64) scale {
	if !(most > 0) {
		return scale{0, 1, 1}
	}
	const ticks = 6
	step := math.Pow(10, math.Floor(math.Log10(most/ticks)))
	for _, f := range []float64{1, 2, 5, 10} {
		if most <= ticks*f*step {
			step *= f
			break
		}
	}
	return scale{most, step, step * math.Ceil(most/step)}
}

func (s scale) ticks() (at []float64) {
	for i := 0; float64(i)*s.step <= s.end*(1+1e-9); i++ {
		at = append(at, float64(i)*s.step)
	}
	return at
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
