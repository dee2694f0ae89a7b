//go:build (amd64 || arm64) && !purego

package ndc

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNormalsKernel compares with normal at both ends of every segment, on both sides,
// and at random.
func TestNormalsKernel(t *testing.T) {
	requireGroups(t)
	segments, table := normalTable(), groupTable()
	// check puts a word into row 0, and other words into the other rows.
	check := func(word uint64) {
		const pairs = 2
		from, next := unmix(t, word), uint64(step)
		rows := [groupRows]int32{}
		for l := range rows {
			rows[l] = int32(l * l)
		}
		var z [2*pairs*groupRows + 1]float64
		z[len(z)-1] = 77
		normalsOfGroup(&z[0], &rows[0], from, pairs*next, pairs, table)
		for l, r := range rows {
			want := make([]float64, 2*pairs)
			segments.fill(want, words(from+uint64(r)*pairs*next))
			if l == 0 && (want[0] != segments.normal(uint32(word)) || want[1] != segments.normal(uint32(word>>32))) {
				t.Fatalf("the word at %#x is not %#x", from, word)
			}
			for i, w := range want {
				if got := z[i*groupRows+l]; math.Float64bits(got) != math.Float64bits(w) {
					t.Fatalf("word %#x, row %d: normal %d is %v, not %v", word, r, i, got, w)
				}
			}
		}
		if z[len(z)-1] != 77 {
			t.Fatal("too many normals")
		}
	}
	for e := range octaves {
		for k := range perOctave {
			begin := uint32(math.Ceil(math.Ldexp(1+float64(k)/perOctave, e)))
			end := uint32(math.Ceil(math.Ldexp(1+float64(k+1)/perOctave, e))) - 1
			for _, half := range []uint32{begin, end} {
				check(uint64(half)<<32 | uint64(-half))
				check(uint64(-half)<<32 | uint64(half))
			}
		}
	}
	for _, half := range []uint64{0, 1, 0x7fffffff, 0x80000000, 0xffffffff} {
		check(half<<32 | half)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		check(rng.Uint64())
	}
}

// unmix is the inverse of mix.
func unmix(t *testing.T, word uint64) uint64 {
	// Each step of a product's inverse doubles the number of right bits, from 3.
	inverse := func(m uint64) uint64 {
		x := m
		for range 5 {
			x *= 2 - m*x
		}
		return x
	}
	unshift := func(x uint64, by int) uint64 { return x ^ x>>by ^ x>>(2*by) }
	x := unshift(word, 31)
	x = unshift(x*inverse(0x94d049bb133111eb), 27)
	x = unshift(x*inverse(0xbf58476d1ce4e5b9), 30)
	if mix(x) != word {
		t.Fatalf("mix of %#x is %#x, not %#x", x, mix(x), word)
	}
	return x
}
