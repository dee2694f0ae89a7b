//go:build !purego

package sample

import (
	"os"
	"slices"
	"testing"
)

// TestRemaining: the assembly lists the groups and rows that Go does, of whole
// eights of groups, and writes to no others. With STREAMD_REQUIRE_VARIANTS set it is a
// failure if it cannot be tested.
func TestRemaining(t *testing.T) {
	if !hasAVX512 {
		if os.Getenv("STREAMD_REQUIRE_VARIANTS") != "" {
			t.Fatal("this processor has no AVX-512")
		}
		t.Skip("NOT TESTED: this processor has no AVX-512")
	}
	const beyond, untouched = together, 77
	listed := 0
	for seed := range uint64(20) {
		z := streamOf(seed, &[32]byte{1})
		for of := 1; of <= 8*together+1; of++ {
			whole := (of + together - 1) / together * together
			for _, level := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, top - 1, top} {
				wantGroups, wantLeft := make([]uint32, whole), make([]uint64, whole)
				want := remainingGo(wantGroups, wantLeft, whole, z, level)
				groups, left := slices.Repeat([]uint32{untouched}, whole+beyond), slices.Repeat([]uint64{untouched}, whole+beyond)
				got := remainingAVX512(&groups[0], &left[0], of, uint64(z), level)
				if got != want || !slices.Equal(groups[:got], wantGroups[:want]) || !slices.Equal(left[:got], wantLeft[:want]) {
					t.Fatalf("stream %#x, level %d, of %d groups: %d %x, want %d %x",
						z, level, of, groups[:got], left[:got], wantGroups[:want], wantLeft[:want])
				}
				if slices.Max(groups[whole:]) != untouched || slices.Max(left[whole:]) != untouched {
					t.Fatalf("level %d: more than %d elements were written", level, whole)
				}
				if level > 8 {
					listed += got
				}
			}
		}
	}
	if listed < 1000 {
		t.Fatalf("only %d groups had rows of high levels", listed)
	}
}
