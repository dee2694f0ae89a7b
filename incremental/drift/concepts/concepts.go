// Package concepts makes streams of labelled rows whose concept changes at known rows: SEA (Street
// and Kim 2001, "A streaming ensemble algorithm for large-scale classification") and the rotating
// hyperplane (Hulten, Spencer and Domingos 2001, "Mining time-changing data streams"). The rows
// are those of River's generators of the same seeds, so that its detectors can be compared.
package concepts

import (
	"streamd/incremental"
	"streamd/incremental/gram"
)

// Stream is m rows of n features. Rows are labelled −1 or 1.
type Stream struct {
	Columns [][]float64 // n × m
	Labels  []int8
	Changes []int // rows at which the concept changes, or begins to
}

// Rows is m.
func (s *Stream) Rows() int { return len(s.Labels) }

// Block is rows i to j of the stream. Its columns are those of the stream.
func (s *Stream) Block(i, j int) *incremental.Block {
	b := &incremental.Block{Classes: []string{"-1", "1"}}
	for _, l := range s.Labels[i:j] {
		b.Codes = append(b.Codes, (int32(l)+1)/2)
	}
	for _, column := range s.Columns {
		b.Columns = append(b.Columns, gram.ColumnOf(column[i:j]))
	}
	return b
}

func newStream(n int) *Stream { return &Stream{Columns: make([][]float64, n)} }

// add adds a row of label 1 or −1.
func (s *Stream) add(x []float64, positive bool) {
	for j := range x {
		s.Columns[j] = append(s.Columns[j], x[j])
	}
	label := int8(-1)
	if positive {
		label = 1
	}
	s.Labels = append(s.Labels, label)
}

// seaThresholds are θ of River's variants.
var seaThresholds = [...]float64{8, 9, 7, 9.5}

// SEA makes as many rows of each of the four concepts, one after the other. The label is 1 where
// x₁ + x₂ > θ, and wrong for a tenth of the rows. Concept v is River's SEA(variant=v, noise=0.1,
// seed=seed+v).
func SEA(seed uint32, each int) *Stream {
	s := newStream(3)
	for v, threshold := range seaThresholds {
		if v > 0 {
			s.Changes = append(s.Changes, s.Rows())
		}
		r := newTwister(seed + uint32(v))
		var x [3]float64
		for range each {
			for j := range x {
				x[j] = 10 * r.float64()
			}
			positive := x[0]+x[1] > threshold
			if r.float64() < 0.1 {
				positive = !positive
			}
			s.add(x[:], positive)
		}
	}
	return s
}

const (
	hyperplaneFeatures = 10
	turnFeatures       = 5 // whose weights change
)

// Hyperplane makes rows of the hyperplane w·x = Σw/2 with uniform x and w in [0, 1]. It stands
// still at first. From row begins on, five of its ten weights change by change after each row,
// each in a direction that a tenth of the rows reverse. Labels are wrong for 4 % of the rows. The
// rows are those of River's Hyperplane(seed=seed, n_features=10, n_drift_features=5,
// noise_percentage=0.05), whose mag_change is set to change after row begins.
func Hyperplane(seed uint32, rows, begins int, change float64) *Stream {
	s := newStream(hyperplaneFeatures)
	s.Changes = []int{begins}
	r := newTwister(seed)
	var x, w, direction [hyperplaneFeatures]float64
	for j := range w {
		w[j] = r.float64()
		if j < turnFeatures {
			direction[j] = 1
		}
	}
	for i := range rows {
		var all, sum float64
		for j := range x {
			x[j] = r.float64()
			all += w[j]
			sum += float64(w[j] * x[j])
		}
		positive := sum >= 0.5*all
		if 0.01+r.float64() <= 0.05 {
			positive = !positive
		}
		s.add(x[:], positive)
		for j := range turnFeatures {
			if i >= begins {
				w[j] += float64(direction[j] * change)
			}
			if 0.01+r.float64() <= 0.1 {
				direction[j] = -direction[j]
			}
		}
	}
	return s
}

// twister is the Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), which is Python's
// random.Random.
type twister struct {
	state [624]uint32
	next  int
}

// newTwister seeds like Python's random.Random(seed).
func newTwister(seed uint32) *twister {
	t := &twister{next: len(twister{}.state)}
	s := &t.state
	const n = len(twister{}.state)
	s[0] = 19650218
	for i := 1; i < n; i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	i := 1
	step := func() {
		if i++; i == n {
			s[0], i = s[n-1], 1
		}
	}
	for range n { // the key has one word
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + seed
		step()
	}
	for range n - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		step()
	}
	s[0] = 1 << 31
	return t
}

func (t *twister) uint32() uint32 {
	s, n := &t.state, len(t.state)
	if t.next == n {
		for i := range s {
			y := s[i]&(1<<31) | s[(i+1)%n]&(1<<31-1)
			s[i] = s[(i+397)%n] ^ y>>1 ^ y&1*0x9908b0df
		}
		t.next = 0
	}
	y := s[t.next]
	t.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float64 returns a number from [0, 1) with 53 bits, as Python's random() does.
func (t *twister) float64() float64 {
	a, b := t.uint32()>>5, t.uint32()>>6
	return float64(uint64(a)<<26+uint64(b)) / (1 << 53)
}
