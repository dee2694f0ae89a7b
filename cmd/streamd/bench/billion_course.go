package bench

// Course is how far a run had come at which time.
type Course struct {
	Step  int64  `json:"step"` // rows between two marks
	Marks []Mark `json:"marks"`
}

// Mark is the first look at which another Step of the rows was done.
type Mark struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	RSSBytes int64   `json:"rss_bytes,omitempty"` // resident at that time; 0: not known
}

// courseStep is two million rows, as in Fung's figure 2.6, where that makes
// enough of a line.
func courseStep(rows int64) int64 {
	const step, fewest = 2_000_000, 10
	return min(step, max(1, rows/fewest))
}

// due says whether another Step of the rows has been done.
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

// line is the straight line seconds = at + slope·rows that fits the marks best.
func (c Course) line() (at, slope float64) {
	var n, sx, sy, sxx, sxy float64
	for _, m := range c.Marks {
		x, y := float64(m.Rows), m.Seconds
		n++
		sx += x
		sy += y
		sxx += x * x
		sxy += x * y
	}
	if d := n*sxx - sx*sx; n >= 2 && d > 0 {
		slope = (n*sxy - sx*sy) / d
		return (sy - slope*sx) / n, slope
	}
	if sx > 0 {
		slope = sy / sx
	}
	return 0, slope
}

// linearity is 1 for marks on a straight line.
func (c Course) linearity() float64 {
	at, slope := c.line()
	var mean, left, all float64
	for _, m := range c.Marks {
		mean += m.Seconds / float64(len(c.Marks))
	}
	for _, m := range c.Marks {
		off := m.Seconds - (at + slope*float64(m.Rows))
		left += off * off
		all += (m.Seconds - mean) * (m.Seconds - mean)
	}
	if all == 0 {
		return 1
	}
	return 1 - left/all
}
