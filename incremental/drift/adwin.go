// Package drift finds changes in a stream.
package drift

import (
	"encoding/json"
	"fmt"
	"math"
)

// ADWIN watches a mean, such as the share of rows that a model classifies wrong (Bifet and
// Gavaldà 2007, "Learning from time-changing data with adaptive windowing"). It keeps a
// window of the latest values, and compares the means of its older and its newer part for
// every boundary between buckets.
//
// Values lie in buckets of 1, 2, 4, … values, up to perSize of each size (ADWIN2 of the
// paper). A window of W values takes O(log W) memory, and a test O(log W) time. The result
// depends on the values and their order alone.
//
// With n₀ and n₁ values, m = 1/(1/n₀ + 1/n₁) and σ² the variance in the window, two means
// differ if they are more than
//
//	ε = √(2/m · σ² · ln(2/δ′)) + 2/(3m) · ln(2/δ′)        δ′ = δ / ln W
//
// apart (section 3.1). Two details are those of the ADWIN in MOA and River, so that changes
// are found at the same values. In m, each part counts as leastPart − 1 values fewer. And the
// window begins anew after a change. The paper drops the oldest values, bucket by bucket,
// until no two parts differ, and so reports one change many times.
//
// An ADWIN is not safe for concurrent use.
type ADWIN struct {
	delta float64
	ticks int        // values since the last test
	sizes [][]bucket // of sizes 1, 2, 4, …; in each the oldest first
}

// bucket summarises values that came one after the other.
type bucket struct{ sum, squares float64 }

const (
	perSize   = 5  // buckets of one size; one more, and the two oldest are merged
	testEvery = 32 // values between tests
	leastPart = 5  // values in either part of a window
)

// NewADWIN returns an ADWIN with an empty window. delta, between 0 and 1, bounds the
// probability that a test of a window without a change finds one.
func NewADWIN(delta float64) *ADWIN {
	if !(delta > 0 && delta < 1) {
		panic("drift: delta must lie between 0 and 1")
	}
	return &ADWIN{delta: delta}
}

// Change is a change of the mean. It is placed at the boundary whose parts differ most, in
// units of ε.
type Change struct {
	Before, After float64 // mean of the values before and after the boundary
	Old, New      int64   // their numbers
}

// Add adds a value, which must lie between 0 and 1. Every 32nd value it tests the window.
// changed reports that the mean has changed. Then the window is empty.
func (a *ADWIN) Add(x float64) (c Change, changed bool) {
	if !(x >= 0 && x <= 1) {
		panic("drift: a value must lie between 0 and 1")
	}
	a.insert(bucket{x, x * x})
	if a.ticks++; a.ticks < testEvery {
		return c, false
	}
	a.ticks = 0
	if c, changed = a.test(); changed {
		a.sizes = nil
	}
	return c, changed
}

// insert adds a bucket of one value, and merges buckets where there are too many.
func (a *ADWIN) insert(b bucket) {
	for i := 0; ; i++ {
		if i == len(a.sizes) {
			a.sizes = append(a.sizes, nil)
		}
		of := append(a.sizes[i], b)
		if len(of) <= perSize {
			a.sizes[i] = of
			return
		}
		b = bucket{of[0].sum + of[1].sum, of[0].squares + of[1].squares}
		a.sizes[i] = append(of[:0], of[2:]...)
	}
}

// total is the number of values in the window, and their sums. They are added anew each time,
// so that no rounding accumulates.
func (a *ADWIN) total() (n int64, all bucket) {
	for i, of := range a.sizes {
		n += int64(len(of)) << i
		for _, b := range of {
			all.sum += b.sum
			all.squares += b.squares
		}
	}
	return n, all
}

// test compares the two parts of the window at every boundary.
func (a *ADWIN) test() (c Change, changed bool) {
	n, all := a.total()
	mean := all.sum / float64(n)
	variance := max(0, all.squares/float64(n)-float64(mean*mean))
	log := math.Log(2 * math.Log(float64(n)) / a.delta) // ln(2/δ′)
	var old int64
	var sum float64 // of the old values
	most := 1.      // difference of means in units of ε
	for i := len(a.sizes) - 1; i >= 0; i-- {
		for _, b := range a.sizes[i] {
			old += 1 << i
			sum += b.sum
			if min(old, n-old) < leastPart {
				continue
			}
			m := 1 / (1/float64(old-leastPart+1) + 1/float64(n-old-leastPart+1))
			epsilon := math.Sqrt(2/m*variance*log) + float64(2/(3*m)*log)
			before, after := sum/float64(old), (all.sum-sum)/float64(n-old)
			if apart := math.Abs(after-before) / epsilon; apart > most {
				most, changed = apart, true
				c = Change{before, after, old, n - old}
			}
		}
	}
	return c, changed
}

// savedADWIN is an ADWIN as JSON. Go writes and reads the sums without loss.
type savedADWIN struct {
	Delta   float64        `json:"delta"`
	Ticks   int            `json:"ticks"`
	Buckets [][][2]float64 `json:"buckets"` // sum and squares, of sizes 1, 2, 4, …
}

// MarshalJSON writes the window. An ADWIN that is read from it finds the same changes.
func (a *ADWIN) MarshalJSON() ([]byte, error) {
	s := savedADWIN{Delta: a.delta, Ticks: a.ticks, Buckets: [][][2]float64{}}
	for _, of := range a.sizes {
		buckets := [][2]float64{}
		for _, b := range of {
			buckets = append(buckets, [2]float64{b.sum, b.squares})
		}
		s.Buckets = append(s.Buckets, buckets)
	}
	return json.Marshal(s)
}

// UnmarshalJSON replaces the window by that of an ADWIN of the same delta. After an error the
// ADWIN is as before.
func (a *ADWIN) UnmarshalJSON(text []byte) error {
	var s savedADWIN
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	const most = 63 // sizes; the number of values is an int64
	if s.Delta != a.delta || s.Ticks < 0 || s.Ticks >= testEvery || len(s.Buckets) > most {
		return fmt.Errorf("drift: the window of an ADWIN of delta %v has delta %v, %d values since the last test and %d sizes", a.delta, s.Delta, s.Ticks, len(s.Buckets))
	}
	var sizes [][]bucket
	for i, saved := range s.Buckets {
		if len(saved) > perSize || len(saved) == 0 {
			return fmt.Errorf("drift: there are %d buckets of %d values, want 1 to %d", len(saved), 1<<i, perSize)
		}
		var of []bucket
		for _, b := range saved {
			if !(0 <= b[1] && b[1] <= b[0] && b[0] <= float64(int64(1)<<i)) {
				return fmt.Errorf("drift: %d values from 0 to 1 cannot have the sum %v and squares %v", 1<<i, b[0], b[1])
			}
			of = append(of, bucket{b[0], b[1]})
		}
		sizes = append(sizes, of)
	}
	a.ticks, a.sizes = s.Ticks, sizes
	return nil
}

// Window returns the number of values in the window and their mean, which is NaN if there are
// none.
func (a *ADWIN) Window() (values int64, mean float64) {
	n, all := a.total()
	return n, all.sum / float64(n)
}
