package bench

import (
	"fmt"
	"io"
	"math"

	"gonum.org/v1/gonum/stat"

	"streamd/cmd/streamd/plot"
)

// Course is the progress of a run over time.
type Course struct {
	Step  int64  `json:"step"` // rows between two marks
	Marks []Mark `json:"marks"`
}

// Mark is the first look after another Step of the rows.
type Mark struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	RSSBytes int64   `json:"rss_bytes,omitempty"` // resident at that time; 0: unknown
}

// courseStep is two million rows, as in Fung's figure 2.6, or a tenth of the rows if that is
// less.
func courseStep(rows int64) int64 {
	const step, fewest = 2_000_000, 10
	return min(step, max(1, rows/fewest))
}

// due reports whether another Step of the rows is done.
func (c *Course) due(rows int64) bool {
	last := int64(0)
	if n := len(c.Marks); n > 0 {
		last = c.Marks[n-1].Rows
	}
	return rows/c.Step > last/c.Step
}

// look adds a mark if one is due.
func (c *Course) look(rows int64, seconds float64, rss int64) {
	if c.due(rows) {
		c.Marks = append(c.Marks, Mark{rows, seconds, rss})
	}
}

// line fits the straight line seconds = at + slope·rows to the marks, by least squares.
func (c Course) line() (at, slope float64) {
	rows, seconds := c.points()
	switch len(rows) {
	case 0:
		return 0, 0
	case 1:
		return 0, seconds[0] / rows[0]
	}
	return stat.LinearRegression(rows, seconds, nil, false)
}

// linearity is the share of the variance of the times that the line explains: 1 for marks on
// a straight line.
func (c Course) linearity() float64 {
	rows, seconds := c.points()
	at, slope := c.line()
	// Without any variance the quotient is NaN, or -Inf by rounding.
	if r := stat.RSquared(rows, seconds, nil, at, slope); !math.IsNaN(r) && !math.IsInf(r, 0) {
		return r
	}
	return 1
}

func (c Course) points() (rows, seconds []float64) {
	for _, m := range c.Marks {
		rows, seconds = append(rows, float64(m.Rows)), append(seconds, m.Seconds)
	}
	return rows, seconds
}

// Draw writes the course as SVG: the time after each mark with the fitted line and, where it
// is known, the memory below.
func (c Course) Draw(w io.Writer, title string) error {
	times := plot.Chart{Title: title, X: "points (millions)", Y: "seconds", Height: 460}
	memory := plot.Chart{X: times.X, Y: "memory (MB)", Height: 200}
	for _, m := range c.Marks {
		x := float64(m.Rows) / 1e6
		times.Points = append(times.Points, plot.XY{X: x, Y: m.Seconds})
		if m.RSSBytes > 0 {
			memory.Points = append(memory.Points, plot.XY{X: x, Y: float64(m.RSSBytes) / 1e6})
		}
	}
	if n := len(c.Marks); n > 0 {
		at, slope := c.line()
		from := 0.0
		if slope > 0 {
			from = max(0, -at/slope) // where the line crosses the axis
			times.Note = fmt.Sprintf("straight line: %.3g million points a second; it explains %.4f of the variance", 1/slope/1e6, c.linearity())
		}
		last := float64(c.Marks[n-1].Rows)
		times.Line = plot.XYs{{X: from / 1e6, Y: at + slope*from}, {X: last / 1e6, Y: at + slope*last}}
	}
	if len(memory.Points) == 0 {
		return plot.Charts(w, times)
	}
	return plot.Charts(w, times, memory)
}
