package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// straight is a course of one second for a million rows, after a start of at
// seconds.
func straight(marks int, at float64, rss int64) Course {
	c := Course{Step: 2_000_000}
	for i := 1; i <= marks; i++ {
		rows := c.Step * int64(i)
		c.look(rows, at+float64(rows)/1e6, rss)
	}
	return c
}

func TestCourse(t *testing.T) {
	c := Course{Step: 10}
	for _, rows := range []int64{0, 3, 9, 11, 19, 47, 49, 50} {
		c.look(rows, float64(rows), 0)
	}
	var got []int64
	for _, m := range c.Marks {
		got = append(got, m.Rows)
	}
	if len(got) != 3 || got[0] != 11 || got[1] != 47 || got[2] != 50 {
		t.Errorf("marks at %v, want the first look in each step: 11, 47, 50", got)
	}
	if got := courseStep(1_000_000_000); got != 2_000_000 {
		t.Errorf("a mark every %d of a billion rows", got)
	}
	if got := courseStep(5); got != 1 {
		t.Errorf("a mark every %d of 5 rows", got)
	}
}

func TestCourseLine(t *testing.T) {
	const tolerance = 1e-9 // sums of a few numbers
	at, slope := straight(500, 0.5, 0).line()
	if math.Abs(at-0.5) > tolerance || math.Abs(slope*1e6-1) > tolerance {
		t.Errorf("line %g + %g·rows, want 0.5 + 1e-6·rows", at, slope)
	}
	if l := straight(500, 0.5, 0).linearity(); math.Abs(l-1) > tolerance {
		t.Errorf("linearity %v of a straight line", l)
	}
	var bent Course
	bent.Step = 1
	for i := int64(1); i <= 100; i++ {
		bent.look(i, float64(i*i), 0)
	}
	// 15/16 is that of x² on an interval from 0; the ends of a sum differ a bit.
	if l := bent.linearity(); math.Abs(l-15./16) > 0.01 {
		t.Errorf("linearity %v of a parabola, want 15/16", l)
	}
	if at, slope := (Course{Marks: []Mark{{Rows: 4, Seconds: 2}}}).line(); at != 0 || slope != 0.5 {
		t.Errorf("line %g + %g·rows through a single mark at (4, 2)", at, slope)
	}
}

// The picture is XML, says what it shows, and everything lies inside.
func TestDraw(t *testing.T) {
	for _, c := range []struct {
		name   string
		course Course
		lines  int // of points
	}{
		{"long", straight(500, 0.5, 50<<20), 2},
		{"negative start", straight(20, -1.5, 0), 1},
		{"one mark", straight(1, 0, 0), 1},
		{"nothing", Course{Step: 1}, 1},
	} {
		var out bytes.Buffer
		if err := c.course.Draw(&out, `1 G points <of> "10" & more`); err != nil {
			t.Fatal(err)
		}
		var texts []string
		polylines := 0
		width, height := 0.0, 0.0
		decoder := xml.NewDecoder(&out)
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: not XML: %v", c.name, err)
			}
			switch token := token.(type) {
			case xml.CharData:
				texts = append(texts, strings.TrimSpace(string(token)))
			case xml.StartElement:
				at := map[string]string{}
				for _, a := range token.Attr {
					at[a.Name.Local] = a.Value
				}
				inside := func(x, y string) {
					px, err1 := strconv.ParseFloat(x, 64)
					py, err2 := strconv.ParseFloat(y, 64)
					if err1 != nil || err2 != nil || !(px >= 0 && px <= width && py >= 0 && py <= height) {
						t.Errorf("%s: %s at (%s, %s) is outside of %g × %g", c.name, token.Name.Local, x, y, width, height)
					}
				}
				switch token.Name.Local {
				case "svg":
					width, _ = strconv.ParseFloat(at["width"], 64)
					height, _ = strconv.ParseFloat(at["height"], 64)
				case "line":
					inside(at["x1"], at["y1"])
					inside(at["x2"], at["y2"])
				case "circle":
					inside(at["cx"], at["cy"])
				case "text":
					inside(at["x"], at["y"])
				case "polyline":
					polylines++
					pairs := strings.Fields(at["points"])
					if len(pairs) != len(c.course.Marks) {
						t.Errorf("%s: %d points drawn of %d", c.name, len(pairs), len(c.course.Marks))
					}
					for _, pair := range pairs {
						x, y, _ := strings.Cut(pair, ",")
						inside(x, y)
					}
				}
			}
		}
		all := strings.Join(texts, "\n")
		for _, want := range []string{`1 G points <of> "10" & more`, "points (millions)", "seconds"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: there is no %q in %q", c.name, want, all)
			}
		}
		if polylines != c.lines {
			t.Errorf("%s: %d lines, want %d", c.name, polylines, c.lines)
		}
	}
}
