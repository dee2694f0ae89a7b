package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0, 10, "[0 2 4 6 8 10]"}, {-6.7, 6.7, "[-5 0 5]"}, {0.1, 0.13, "[0.100 0.105 0.110 0.115 0.120 0.125 0.130]"},
		{1e6, 1e6 + 3, "[1000000.0 1000000.5 1000001.0 1000001.5 1000002.0 1000002.5 1000003.0]"}, {-2000, 40000, "[0 10000 20000 30000 40000]"},
	} {
		var got []string
		for _, tick := range ticks(c.low, c.high) {
			got = append(got, tick.Label)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%g to %g: %v, not %s", c.low, c.high, got, c.want)
		}
	}
}

// Whatever the axis, its marks are few, in order and on it.
func FuzzTicks(f *testing.F) {
	f.Add(0.0, 1.0)
	f.Add(-1e308, 1e307)
	f.Add(5e-324, 1e-320)
	f.Add(1e16, 1e16+560)
	f.Fuzz(func(t *testing.T, low, high float64) {
		if !(low < high) || math.IsInf(high-low, 0) {
			t.Skip("not the ends of an axis")
		}
		last := math.Inf(-1)
		marks := ticks(low, high)
		for _, mark := range marks {
			if !(mark.Value >= low && mark.Value <= high && mark.Value >= last) {
				t.Errorf("%g to %g has a mark at %g after %g", low, high, mark.Value, last)
			}
			last = mark.Value
		}
		if len(marks) > 7 {
			t.Errorf("%g to %g has %d marks", low, high, len(marks))
		}
	})
}

func TestShortened(t *testing.T) {
	for name, want := range map[string]string{"": "", "length": "length", "größer": "größer", "lengthy": "lengt…", "a\n\x01b": "a  b"} {
		if got := shortened(name, 6); got != want {
			t.Errorf("%q: %q, not %q", name, got, want)
		}
	}
}

// contentsOf is the SVG that a test looks into.
type contentsOf struct {
	texts   []string
	circles []XY
	paths   []shape
}

type shape struct {
	attributes map[string]string
	points     []XY
}

// parse reads an SVG, and fails if it is not XML, has inline styles or anything that
// lies outside of its box.
func parse(t *testing.T, svg string) (c contentsOf) {
	t.Helper()
	var width, height float64
	number := func(text string) float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Errorf("a number %q", text)
		}
		return x
	}
	inside := func(p XY) XY {
		if !(p.X >= 0 && p.X <= width && p.Y >= 0 && p.Y <= height) {
			t.Errorf("%v lies outside of %g × %g", p, width, height)
		}
		return p
	}
	turned := 0 // depth of groups that turn their contents
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch token := token.(type) {
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				c.texts = append(c.texts, text)
			}
		case xml.EndElement:
			if token.Name.Local == "g" {
				turned--
			}
		case xml.StartElement:
			at := map[string]string{}
			for _, a := range token.Attr {
				at[a.Name.Local] = a.Value
			}
			if at["style"] != "" {
				t.Errorf("the style of %s is inline", token.Name.Local)
			}
			switch token.Name.Local {
			case "svg":
				var x, y float64
				if _, err := fmt.Sscan(at["viewBox"], &x, &y, &width, &height); err != nil || x != 0 || y != 0 {
					t.Errorf("a view box of %q", at["viewBox"])
				}
			case "g":
				turned++
			case "circle":
				c.circles = append(c.circles, inside(XY{X: number(at["cx"]), Y: number(at["cy"])}))
			case "text":
				if turned == 0 {
					inside(XY{X: number(at["x"]), Y: number(at["y"])})
				}
			case "path":
				c.paths = append(c.paths, shape{at, nil})
				last := &c.paths[len(c.paths)-1]
				var p XY
				for _, step := range regexp.MustCompile(`([MLHV])([-0-9.]+)(?: ([-0-9.]+))?|Z`).FindAllStringSubmatch(at["d"], -1) {
					switch step[1] {
					case "M", "L":
						p = XY{X: number(step[2]), Y: number(step[3])}
					case "H":
						p.X = number(step[2])
					case "V":
						p.Y = number(step[2])
					default:
						continue
					}
					last.points = append(last.points, inside(p))
				}
			}
		}
	}
}

// stroked are the paths with a line of that colour.
func (c contentsOf) stroked(colour string) (some []shape) {
	for _, p := range c.paths {
		if p.attributes["stroke"] == colour {
			some = append(some, p)
		}
	}
	return some
}

// classed are the paths of that class.
func (c contentsOf) classed(class string) (some []shape) {
	for _, p := range c.paths {
		if p.attributes["class"] == class {
			some = append(some, p)
		}
	}
	return some
}
