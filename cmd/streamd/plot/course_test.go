package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestCourse(t *testing.T) {
	gap := math.NaN()
	plain := func(y float64) string { return strconv.FormatFloat(y, 'g', 4, 64) }
	draw := func(c Course) contentsOf {
		c.Mark = plain
		return page(t, CourseWidth, CourseHeight, c.Draw())
	}
	times := []int64{3600, 3660, 3720, 3780, 3840, 3900}
	course := draw(Course{Times: times, Series: [][]float64{{1, 2, gap, 5, gap, gap}, {gap, gap, gap, gap, 3, 3}}, Levels: [][]float64{{4, 4, gap, 4, gap, gap}}, Low: 0})
	lines, others, level := course.classed("curve c0"), course.classed("curve c1"), course.classed("level l0")
	if len(lines) != 1 || len(lines[0].points) != 2 || len(others) != 1 || len(level) != 2 || len(level[1].points) != 2 || len(course.circles) != 1 {
		t.Fatalf("%d and %d lines, %d levels, %d dots", len(lines), len(others), len(level), len(course.circles))
	}
	dot, at := course.circles[0], level[0].points[0]
	if !(dot.X > lines[0].points[1].X && dot.Y < at.Y && at.Y < lines[0].points[1].Y) {
		t.Errorf("a dot at %v, a level at %v, a line to %v", dot, at, lines[0].points[1])
	}
	if want := "01:01 01:02 01:03 01:04 0 2 4"; strings.Join(course.texts, " ") != want {
		t.Errorf("the axes say %q", course.texts)
	}
	// Whatever the values are, the picture has marks and stays inside of its box.
	for _, values := range [][]float64{{0, 0}, {7, 7}, {gap, gap}, {gap, 1e300}, {-1, 1}, {0.93, 0.94}, {5e-324, 0}} {
		for _, low := range []float64{0, gap} {
			if c := draw(Course{Times: []int64{0, 5}, Series: [][]float64{values}, Low: low}); len(c.texts) == 0 {
				t.Errorf("%v from %g: the axes say %q", values, low, c.texts)
			}
		}
	}
	if c := draw(Course{Times: []int64{5}, Series: [][]float64{{1}}, Low: 0}); len(c.circles) != 1 {
		t.Error("a single value is not drawn")
	}
}

// Times are marked at round hours in UTC, few of them.
func TestClocks(t *testing.T) {
	const from = 1_772_600_767 // 4 Mar 2026 05:06:07
	for seconds, want := range map[float64]string{
		25: "05:06:10 05:06:20 05:06:30", 1800: "05:10 05:15 05:20 05:25 05:30 05:35", 86400: "06:00 12:00 18:00 5 Mar", 30 * 86400: "8 Mar 13 Mar 18 Mar 23 Mar 28 Mar 2 Apr",
	} {
		var got []string
		for _, mark := range clocks(from, from+seconds) {
			got = append(got, mark.Label)
		}
		if fmt.Sprint(strings.Join(got, " ")) != want {
			t.Errorf("%g s: %q, want %q", seconds, got, want)
		}
	}
}
