package dataset

import (
	"math/rand/v2"
	"testing"
)

// The words are those of SplitMix64 from the seed 0.
func TestWordsOfSplitMix64(t *testing.T) {
	state := uint64(0)
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		state += 0x9e3779b97f4a7c15
		if got := mix(state); got != want {
			t.Errorf("word %d is %x, want %x", i, got, want)
		}
	}
}

// Every k rows go to the k folds, one each, in an order that depends on the seed
// and on where they are.
func TestDealer(t *testing.T) {
	for _, k := range []int{2, 3, 10, 97} {
		const groups = 500
		deal := NewDealer(k, 1)
		var all []int
		places := make([]int, k) // how often fold 0 came at each place of a group
		for g := range groups {
			seen := make([]bool, k)
			for i := range k {
				fold := deal.Of(int64(g*k + i))
				if seen[fold] {
					t.Fatalf("k = %d: fold %d twice in group %d", k, fold, g)
				}
				seen[fold] = true
				all = append(all, fold)
				if fold == 0 {
					places[i]++
				}
			}
		}
		// The counts are binomial; six standard deviations and a bit.
		mean := float64(groups) / float64(k)
		for i, n := range places {
			if d := float64(n) - mean; d*d > 36*mean+36 {
				t.Errorf("k = %d: fold 0 is at place %d in %d of %d groups", k, i, n, groups)
			}
		}

		// Any worker can begin anywhere.
		r := rand.New(rand.NewPCG(1, uint64(k)))
		elsewhere := NewDealer(k, 1)
		for range 1000 {
			if row := r.IntN(len(all)); elsewhere.Of(int64(row)) != all[row] {
				t.Fatalf("k = %d: row %d is in another fold when it is asked for by itself", k, row)
			}
		}
		other := NewDealer(k, 2)
		same := 0
		for row, fold := range all {
			if other.Of(int64(row)) == fold {
				same++
			}
		}
		if same > len(all)*3/4 {
			t.Errorf("k = %d: seeds 1 and 2 agree on %d of %d rows", k, same, len(all))
		}
	}
}

// Folds are those of a shuffle of each group by the words of one SplitMix64, so that files are
// dealt as they were when their figures were published.
func TestDealerShufflesByOneStream(t *testing.T) {
	for _, k := range []int{2, 5, 9} {
		const seed = 3
		deal, state := NewDealer(k, seed), mix(seed)
		for group := range int64(40) {
			order := make([]int, k)
			for i := range order {
				order[i] = i
			}
			for i := k - 1; i >= 0; i-- {
				state += 0x9e3779b97f4a7c15
				j := int(mix(state) % uint64(i+1))
				order[i], order[j] = order[j], order[i]
			}
			for i, want := range order {
				if got := deal.Of(group*int64(k) + int64(i)); got != want {
					t.Fatalf("k = %d: row %d of group %d is in fold %d, want %d", k, i, group, got, want)
				}
			}
		}
	}
}
