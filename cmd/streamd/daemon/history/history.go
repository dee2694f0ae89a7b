// Package history keeps the history of some figures of the daemon: correctness, rows per
// second, lag and memory.
//
// Each span has a ring of 360 intervals, so memory and the saved record have a fixed
// size: half an hour in intervals of 5 seconds, a day in intervals of 4 minutes, 30 days
// in intervals of 2 hours. Every sample is added to all three. The rings hold counts of
// the whole topic, and nothing of a row, a label or a key, so a retirement has nothing to
// remove here.
//
// # The saved record
//
// The snapshot keeps the rings as a record of their own, which no digest covers. Its
// numbers are little endian.
//
//	offset      size
//	0              4  version: 2
//	4      3 × 25928  rings of minutes, hours and days
//
// A ring:
//
//	offset size
//	     0    8  number of the last interval: seconds since 1970 UTC, divided by the
//	             length of an interval
//	     8   72  interval 0 of the ring, and 359 more
//
// Interval n is at place n mod 360:
//
//	offset size
//	     0    8  time that samples cover, in milliseconds; 0: none, and the rest is void
//	     8    8  rows read
//	    16    8  rows judged
//	    24    8  judged rows that were classified right
//	    32    8  judged rows of the largest class among them
//	    40    8  judged rows with the label of the row before
//	    48    8  balanced correctness, float64; NaN: not known
//	    56    8  largest lag in records; −1: not known
//	    64    8  most memory in bytes
package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"streamd/cmd/streamd/model"
)

const (
	version   = 2
	intervals = 360 // of a ring
	fields    = 9   // of an interval
	ringBytes = 8 + intervals*fields*8

	// Size is the length of a saved record in bytes.
	Size = 4 + 3*ringBytes
)

// spans are the spans of the rings, in their saved order.
var spans = [...]struct {
	span    model.Span
	seconds int64
}{{model.SpanMinutes, 5}, {model.SpanHours, 4 * 60}, {model.SpanDays, 2 * 60 * 60}}

// Sample is the figures of one moment. Totals may count from any time. A total that falls
// means that the daemon was restarted.
type Sample struct {
	Rows          int64   // total of rows read
	Judged, Right int64   // totals of rows judged, and of those classified right
	Repeats       int64   // total of judged rows with the label of the row before
	Balanced      float64 // balanced correctness; NaN: not known

	Classes map[string]int64 // totals of judged rows, of each class that the model has
	Lag     int64            // records; −1: not known
	Memory  int64            // bytes
}

// Rings are the rings of all spans. The zero value has no samples.
type Rings struct {
	rings  [len(spans)]ring
	last   Sample
	lastAt time.Time // zero: there is none
}

type ring struct {
	last   int64 // number of the last interval
	points [intervals]point

	// Judged rows of the last interval by class. Those before a restart are apart, since nobody
	// knows their classes any more: they count as rows of the class that is the largest now.
	classes map[string]int64
	before  int64
}

// point is an interval.
type point struct {
	covered             time.Duration
	rows, judged, right int64
	largest, repeats    int64 // judged rows that the baselines have right
	balanced            float64
	lag, memory         int64
}

// Add adds a sample. The differences of its totals from the last sample count for the
// interval of now. The first sample has no counts. After the clock has been set back,
// later intervals are dropped.
func (h *Rings) Add(now time.Time, s Sample) {
	if gone := now.Sub(h.lastAt); !h.lastAt.IsZero() && gone >= 0 && gone < time.Millisecond {
		return // the next sample includes its counts
	}
	add := point{balanced: s.Balanced, lag: s.Lag, memory: s.Memory}
	if s.Balanced-s.Balanced != 0 {
		add.balanced = math.NaN()
	}
	classes := map[string]int64{}
	if !h.lastAt.IsZero() {
		add.covered = max(0, now.Sub(h.lastAt)).Truncate(time.Millisecond) // as it is saved
		if s.Rows >= h.last.Rows {
			add.rows = s.Rows - h.last.Rows
		}
		if s.Judged >= h.last.Judged && s.Right >= h.last.Right {
			add.judged, add.right = s.Judged-h.last.Judged, s.Right-h.last.Right
			add.repeats = min(max(0, s.Repeats-h.last.Repeats), add.judged)
		}
		for class, n := range s.Classes {
			classes[class] = max(0, n-h.last.Classes[class])
		}
	}
	h.last, h.lastAt = s, now
	if add.covered == 0 {
		return
	}
	for i := range h.rings {
		h.rings[i].add(max(0, now.Unix())/spans[i].seconds, add, classes)
	}
}

// add adds to interval n, which becomes the last interval. classes are the judged rows by class, of
// all classes that the model has: those of others are forgotten.
func (r *ring) add(n int64, add point, classes map[string]int64) {
	if n != r.last { // intervals between them are void
		end := max(n, r.last)
		for i := max(0, min(n, r.last)+1, end-intervals+1); i <= end; i++ {
			*r.at(i) = point{}
		}
		r.last, r.classes = n, nil
	}
	p := r.at(n)
	if r.classes == nil {
		r.classes, r.before = map[string]int64{}, p.largest
	}
	maps.DeleteFunc(r.classes, func(class string, _ int64) bool { _, is := classes[class]; return !is })
	largest := int64(0)
	for class, more := range classes {
		r.classes[class] += more
		largest = max(largest, r.classes[class])
	}
	if p.covered == 0 {
		p.lag = -1
	}
	p.covered += add.covered
	p.rows += add.rows
	p.judged += add.judged
	p.right += add.right
	p.repeats += add.repeats
	p.largest = min(r.before+largest, p.judged)
	p.balanced = add.balanced
	p.lag, p.memory = max(p.lag, add.lag), max(p.memory, add.memory)
}

// at is the place of interval n ≥ 0.
func (r *ring) at(n int64) *point { return &r.points[n%intervals] }

// History returns the history over a span. The caller sets the memory limit. It ends with
// the interval of now, or with the last one that has a sample.
func (h *Rings) History(span model.Span, now time.Time) *model.History {
	for i, s := range spans {
		if s.span == span {
			return h.rings[i].history(span, s.seconds, now.Unix()/s.seconds)
		}
	}
	panic(fmt.Sprintf("history: unknown span %q", span))
}

func (r *ring) history(span model.Span, seconds, now int64) *model.History {
	m := &model.History{
		Span: span, Seconds: seconds,
		Times: []int64{}, RowsPerSecond: []*float64{}, Correctness: []*float64{}, BalancedCorrectness: []*float64{}, LargestClass: []*float64{}, LastLabel: []*float64{}, Lag: []*int64{}, Memory: []*int64{},
	}
	end := max(now, r.last)
	for n := max(0, end-intervals+1); n <= end; n++ {
		var p point
		if n <= r.last && n > r.last-intervals {
			p = *r.at(n)
		}
		if p.covered == 0 && len(m.Times) == 0 {
			continue // before the first
		}
		var rate, correctness, largest, repeats, balanced *float64
		var lag, memory *int64
		if p.covered > 0 {
			rate, memory = new(float64(p.rows)/p.covered.Seconds()), new(p.memory)
			if p.judged > 0 {
				correctness = new(float64(p.right) / float64(p.judged))
				largest, repeats = new(float64(p.largest)/float64(p.judged)), new(float64(p.repeats)/float64(p.judged))
				if !math.IsNaN(p.balanced) {
					balanced = new(p.balanced)
				}
			}
			if p.lag >= 0 {
				lag = new(p.lag)
			}
		}
		m.Times = append(m.Times, n*seconds)
		m.RowsPerSecond = append(m.RowsPerSecond, rate)
		m.Correctness = append(m.Correctness, correctness)
		m.BalancedCorrectness, m.LargestClass, m.LastLabel = append(m.BalancedCorrectness, balanced), append(m.LargestClass, largest), append(m.LastLabel, repeats)
		m.Lag, m.Memory = append(m.Lag, lag), append(m.Memory, memory)
	}
	return m
}

// AppendBinary appends the saved record, Size bytes.
func (h *Rings) AppendBinary(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, version)
	for i := range h.rings {
		r := &h.rings[i]
		b = binary.LittleEndian.AppendUint64(b, uint64(r.last))
		for _, p := range r.points {
			for _, x := range [fields]int64{
				p.covered.Milliseconds(), p.rows, p.judged, p.right, p.largest, p.repeats, int64(math.Float64bits(p.balanced)), p.lag, p.memory,
			} {
				b = binary.LittleEndian.AppendUint64(b, uint64(x))
			}
		}
	}
	return b
}

// Decode reads a saved record. It fails for other versions and other data.
func Decode(b []byte) (*Rings, error) {
	if len(b) < 4 {
		return nil, errors.New("history: the record is cut short")
	}
	if v := binary.LittleEndian.Uint32(b); v != version {
		return nil, fmt.Errorf("history: the record has version %d, this program knows %d", v, version)
	}
	if len(b) != Size {
		return nil, fmt.Errorf("history: the record has %d bytes instead of %d", len(b), Size)
	}
	b = b[4:]
	next := func() int64 {
		x := int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return x
	}
	h := new(Rings)
	for i := range h.rings {
		r := &h.rings[i]
		// Keeps the times of the last interval, in seconds, far within an int64.
		if r.last = next(); r.last < 0 || r.last > math.MaxInt64/spans[i].seconds/2 {
			return nil, fmt.Errorf("history: %s end with interval %d", spans[i].span, r.last)
		}
		for j := range r.points {
			p := point{time.Duration(next()), next(), next(), next(), next(), next(), math.Float64frombits(uint64(next())), next(), next()}
			if p.covered < 0 || p.covered > math.MaxInt64/time.Millisecond || p.rows < 0 || p.judged < 0 || p.right < 0 || p.right > p.judged ||
				p.largest < 0 || p.largest > p.judged || p.repeats < 0 || p.repeats > p.judged || p.lag < -1 || p.memory < 0 || math.IsInf(p.balanced, 0) {
				return nil, fmt.Errorf("history: interval %d of %s has impossible numbers", j, spans[i].span)
			}
			p.covered *= time.Millisecond
			r.points[j] = p
		}
	}
	return h, nil
}
