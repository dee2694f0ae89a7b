package bench

import (
	"bytes"
	"encoding/xml"
	"html"
	"math"
	"regexp"
	"strings"
	"testing"
)

// straight is a course of a second for each million rows, after a start of at seconds.
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
	// For x² on an interval from 0 it is 15/16. The ends of a sum differ a bit.
	if l := bent.linearity(); math.Abs(l-15./16) > 0.01 {
		t.Errorf("linearity %v of a parabola, want 15/16", l)
	}
	if at, slope := (Course{Marks: []Mark{{Rows: 4, Seconds: 2}}}).line(); at != 0 || slope != 0.5 {
		t.Errorf("line %g + %g·rows through a single mark at (4, 2)", at, slope)
	}
	for i := range 100 { // some times are not slope·rows, by a rounding
		seconds := float64(i+1) / 10
		if l := (Course{Marks: []Mark{{Rows: 300_000, Seconds: seconds}}}).linearity(); l != 1 {
			t.Errorf("linearity %v of a single mark at %v s", l, seconds)
		}
	}
}

// The picture has the title, a curve through every mark and, where it is known, one
// of the memory.
func TestDraw(t *testing.T) {
	for _, c := range []struct {
		name   string
		course Course
		curves int
		note   string
	}{
		{"long", straight(500, 0.5, 50<<20), 2, "straight line: 1 million points a second; it explains 1.0000 of the variance"},
		{"negative start", straight(20, -1.5, 0), 1, "straight line: 1 million points a second; it explains 1.0000 of the variance"},
		{"one mark", straight(1, 0, 0), 0, "straight line: 1 million points a second; it explains 1.0000 of the variance"},
		{"nothing", Course{Step: 1}, 0, ""},
	} {
		var out bytes.Buffer
		if err := c.course.Draw(&out, `1 G points <of> "10" & more`); err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(out.Bytes(), new(struct{ XMLName xml.Name })); err != nil {
			t.Fatalf("%s: not XML: %v", c.name, err)
		}
		text := html.UnescapeString(out.String())
		for _, want := range []string{`>1 G points <of> "10" & more<`, ">points (millions)<", ">seconds<", c.note} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %q", c.name, want)
			}
		}
		if got := strings.Contains(text, ">memory (MB)<"); got != (c.curves == 2) {
			t.Errorf("%s: there is a picture of the memory: %v", c.name, got)
		}
		curves := regexp.MustCompile(`<path d="([^"]*)" fill="none" stroke="#2266cc"`).FindAllStringSubmatch(text, -1)
		for _, curve := range curves {
			if n := len(regexp.MustCompile(`[MLHV]`).FindAllString(curve[1], -1)); n != len(c.course.Marks) {
				t.Errorf("%s: %d points drawn of %d", c.name, n, len(c.course.Marks))
			}
		}
		if n := strings.Count(text, "<circle"); len(c.course.Marks) <= 60 && n != len(c.course.Marks) {
			t.Errorf("%s: %d circles of %d marks", c.name, n, len(c.course.Marks))
		}
		if len(curves) != c.curves {
			t.Errorf("%s: %d curves, not %d", c.name, len(curves), c.curves)
		}
	}
}
