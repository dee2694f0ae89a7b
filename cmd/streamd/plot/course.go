package plot

import (
	"html/template"
	"math"
	"strconv"
	"time"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// CourseWidth and CourseHeight are the size of a Course.
const CourseWidth, CourseHeight = 400, 150

// A Course is one or more figures over time. The values of a series are those of the times, NaN
// where there is none. A value between two gaps is drawn as a dot: a line would not show it.
type Course struct {
	Times  []int64     // seconds since 1970 UTC, ascending
	Series [][]float64 // series i has the class "ci"
	Levels [][]float64 // baselines over time: number i has the class "level li"
	Low    float64     // end of the axis at the bottom; NaN: a little below the least value
	Mark   func(y float64) string
}

// Draw draws the course.
func (c *Course) Draw() template.HTML {
	p := newCurves("", "", nil)
	low, high := math.Inf(1), math.Inf(-1)
	p.X.Min, p.X.Max = float64(c.Times[0]), float64(c.Times[len(c.Times)-1])
	if p.X.Max == p.X.Min {
		p.X.Min, p.X.Max = p.X.Min-1, p.X.Max+1
	}
	see := func(y float64) { low, high = min(low, y), max(high, y) }
	for i, series := range c.Series {
		style := strconv.Itoa(i % MostCurves)
		var dots XYs
		for _, run := range c.runs(series) {
			for _, at := range run {
				see(at.Y)
			}
			if len(run) == 1 {
				dots = append(dots, run[0])
			} else {
				p.Add(overlay{line(run, class("curve c"+style), 1.6)})
			}
		}
		if len(dots) > 0 {
			p.Add(overlay{scatter(dots, class("dot d"+style), 2.5, draw.CircleGlyph{})})
		}
	}
	for i, level := range c.Levels {
		for _, run := range c.runs(level) {
			for _, at := range run {
				see(at.Y)
			}
			if len(run) == 1 { // a short line, since a dot would be taken for a value
				half := (p.X.Max - p.X.Min) / 100
				run = XYs{{X: max(p.X.Min, run[0].X-half), Y: run[0].Y}, {X: min(p.X.Max, run[0].X+half), Y: run[0].Y}}
			}
			p.Add(overlay{line(run, class("level l"+strconv.Itoa(i)), 1)})
		}
	}
	if !(low <= high) {
		low, high = 0, 1
	}
	room := (high - low) / 12
	if room < 1e-300 { // all values are the same
		if room = math.Abs(high) / 12; room < 1e-300 {
			room = 1
		}
	}
	p.Y.Min, p.Y.Max = low-room, high+room
	if !math.IsNaN(c.Low) {
		p.Y.Min = c.Low
		if high <= c.Low {
			p.Y.Max = c.Low + 1
		}
	}
	p.X.Tick.Marker = gonum.TickerFunc(clocks)
	p.Y.Tick.Marker = gonum.TickerFunc(func(low, high float64) (some []gonum.Tick) {
		for _, tick := range marks(low, high, 3) {
			some = append(some, gonum.Tick{Value: tick.Value, Label: c.Mark(tick.Value)})
		}
		return some
	})
	return contents(p, CourseWidth, CourseHeight, vg.Length(4))
}

// runs are the values of a series that lie side by side.
func (c *Course) runs(series []float64) (all []XYs) {
	for from := 0; from < len(series); {
		to := from
		var run XYs
		for ; to < len(series) && !math.IsNaN(series[to]); to++ {
			run = append(run, XY{X: float64(c.Times[to]), Y: series[to]})
		}
		if len(run) > 0 {
			all = append(all, run)
		}
		from = max(to, from+1)
	}
	return all
}

// clocks marks round times in UTC, six at most. A mark at the end of an axis would have no room
// for its text.
func clocks(low, high float64) (some []gonum.Tick) {
	const day = 86400
	step := int64(30 * day)
	for _, s := range []int64{10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, day, 2 * day, 5 * day, 10 * day} {
		if float64(s)*6 >= high-low {
			step = s
			break
		}
	}
	room := (high - low) / 30
	if step < 60 {
		room = (high - low) / 16 // its text has seconds
	}
	for at := int64(math.Ceil((low+room)/float64(step))) * step; float64(at) <= high-room; at += step {
		t := time.Unix(at, 0).UTC()
		label := t.Format("15:04")
		if step >= day || step >= 3600 && t.Hour() == 0 {
			label = t.Format("2 Jan")
		} else if step < 60 {
			label = t.Format("15:04:05")
		}
		some = append(some, gonum.Tick{Value: float64(at), Label: label})
	}
	return some
}
