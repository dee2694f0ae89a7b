package reduce

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// Subset takes t distinct rows of the sample at random as points, like the reduced SVM
// (RSVM; Fung 2003, algorithm 2.4.4).
type Subset struct {
	// Stratified draws from each class in proportion to its rows, and at least one
	// row if there are as many points as classes.
	Stratified bool
	Nu         float64 // ν of the 1-norm program for the coefficients
}

// Reduce implements Reducer.
func (r Subset) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	random := s.random(0)
	var z []float64
	if !r.Stratified {
		z = s.draw(random, s.live, p.Points)
	} else {
		classes := s.strata()
		for k, count := range shares(sizes(classes), p.Points) {
			z = append(z, s.draw(random, classes[k], count)...)
		}
		z = Distinct(z, len(p.Columns))
	}
	return s.given(ctx, z, r.Nu, 0)
}

// strata are the live rows by class, without empty classes.
func (s *sample) strata() [][]int {
	classes := make([][]int, s.Classes)
	for _, i := range s.live {
		classes[s.Codes[i]] = append(classes[s.Codes[i]], i)
	}
	return slices.DeleteFunc(classes, func(rows []int) bool { return len(rows) == 0 })
}

// sizes returns the lengths of groups.
func sizes(groups [][]int) []int {
	n := make([]int, len(groups))
	for k := range groups {
		n[k] = len(groups[k])
	}
	return n
}

// draw returns up to count distinct points, at random among the given rows.
func (s *sample) draw(random *rand.Rand, which []int, count int) []float64 {
	n := len(s.Columns)
	seen := make(map[string]bool)
	var z []float64
	for _, i := range shuffled(random, which) {
		if len(z) == count*n {
			break
		}
		z = s.point(z, i)
		if key := keyOf(z[len(z)-n:]); seen[key] {
			z = z[:len(z)-n]
		} else {
			seen[key] = true
		}
	}
	return z
}

func shuffled(random *rand.Rand, which []int) []int {
	some := slices.Clone(which)
	random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some
}

// Distinct returns the points z, of n features each, without those that have occurred before.
// K(Z, Z) of a point that occurs twice is singular (Wu, Schölkopf and Bakır 2006, section 5.6).
func Distinct(z []float64, n int) []float64 {
	seen := make(map[string]bool)
	kept := z[:0:0]
	for i := 0; i < len(z); i += n {
		if key := keyOf(z[i:][:n]); !seen[key] {
			seen[key] = true
			kept = append(kept, z[i:][:n]...)
		}
	}
	return kept
}

// keyOf returns the bits of a point, where −0 counts as 0.
func keyOf(x []float64) string {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		bits := math.Float64bits(v + 0)
		for range 8 {
			b = append(b, byte(bits))
			bits >>= 8
		}
	}
	return string(b)
}

// shares divides total in proportion to the sizes of groups. Each group gets the whole
// part of its proportion, and at least one if possible. The rest goes to the largest
// remainders.
func shares(sizes []int, total int) []int {
	all := 0
	for _, size := range sizes {
		all += size
	}
	counts := make([]int, len(sizes))
	given := 0
	for k, size := range sizes {
		counts[k] = min(total*size/all, size)
		if counts[k] == 0 && size > 0 && total >= len(sizes) {
			counts[k] = 1
		}
		given += counts[k]
	}
	for given != min(total, all) {
		// The group whose share is furthest below its proportion, or above it.
		best, furthest := -1, math.Inf(-1)
		sign := 1
		if given > total {
			sign = -1
		}
		for k, size := range sizes {
			if sign > 0 && counts[k] == size || sign < 0 && counts[k] <= 1 {
				continue
			}
			lacking := float64(sign) * (float64(total)*float64(size)/float64(all) - float64(counts[k]))
			if lacking > furthest {
				best, furthest = k, lacking
			}
		}
		counts[best] += sign
		given += sign
	}
	return counts
}
