package ndc

import (
	"fmt"
	"strconv"
	"strings"
)

// Drift is a change of the clusters in the course of a stream, to those of the next seed. Before
// point First all points are of the set's own seed, from point Last on all are of the next one.
// Between the two, point i is of the next seed with probability (i − First)/(Last − First). It
// is then point i of that seed's stream. The zero value is no drift.
type Drift struct{ First, Last int64 }

// Check reports whether there is such a drift.
func (d Drift) Check() error {
	if d != (Drift{}) && (d.First < 0 || d.First >= d.Last || d.Last > MaxPoints) {
		return fmt.Errorf("ndc: drift from point %d to %d: it must begin at 0 or later and end after that, at %d or earlier", d.First, d.Last, MaxPoints)
	}
	return nil
}

// UnmarshalText reads FIRST:LAST.
func (d *Drift) UnmarshalText(text []byte) (err error) {
	first, last, _ := strings.Cut(string(text), ":")
	if d.First, err = strconv.ParseInt(first, 10, 64); err == nil {
		d.Last, err = strconv.ParseInt(last, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("ndc: drift %q: give two numbers of points, as 1000:2000", text)
	}
	return d.Check()
}

// drift makes points as Fill does, where some may be the next seed's.
func (s *Sampler) drift(columns [][]float32, codes []int32, stream Stream, first int64) {
	d, end := s.g.drift, first+int64(len(codes))
	if end <= d.First {
		s.fill(columns, codes, stream, first)
		return
	}
	if first >= d.Last {
		s.next.fill(columns, codes, stream, first)
		return
	}
	s.fill(columns, codes, stream, first)
	other := s.next.Block(stream, first, len(codes))
	word := wordsAt(s.g.key, quarterDrift+uint64(stream)*uint64(MaxPoints)+uint64(first))
	for i := range codes {
		// 0 ≤ u < 1 is below (i − First)/(Last − First).
		if u := word.uniform(); float64(u*float64(d.Last-d.First)) < float64(first+int64(i)-d.First) {
			codes[i] = other.Codes[i]
			for j := range columns {
				columns[j][i] = s.next.columns[j][i]
			}
		}
	}
}
