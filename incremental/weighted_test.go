package incremental

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A weighted sum of parts is the sum of their rows with multiplied weights, to the bit: here of
// whole numbers, whose block sums are exact too.
func TestWeightedSum(t *testing.T) {
	const scale = 12
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(71, seed))
		features := DefaultFeatures(3)
		whole := NewState(features)
		var parts []*State
		var weights []uint64
		for range 1 + r.IntN(4) {
			rows := randomTable(r, 1+r.IntN(30), 3, 3)
			for _, x := range rows.x {
				for j := range x {
					x[j] = math.Round(8 * x[j])
				}
			}
			part := NewState(features)
			weight := uint64(1 + r.IntN(1<<14))
			b := rows.block(0, len(rows.x))
			part.Add(summarise(t, b))
			heavy := *b
			heavy.Weights = make([]float64, b.Rows())
			for i := range heavy.Weights {
				heavy.Weights[i] = b.Weight(i) * float64(weight) / (1 << scale)
			}
			whole.Add(summarise(t, &heavy))
			parts, weights = append(parts, part), append(weights, weight)
		}
		sum := WeightedSum(features, parts, weights, scale)
		if got, want := sum.Totals(), whole.Totals(); !slices.Equal(got, want) {
			t.Fatalf("seed %d: totals %v, want %v", seed, got, want)
		}
		m, of := sum.Moments(), whole.Moments()
		for c := range of.classes {
			if got, want := m.classes[c], of.classes[c]; got.weight != want.weight || !slices.Equal(got.s, want.s) || !slices.Equal(got.cross, want.cross) {
				t.Fatalf("seed %d: class %s: moments %v, want %v", seed, want.label, got, want)
			}
		}
		if sum.Digest() == WeightedSum(features, parts, weights, scale+1).Digest() {
			t.Fatalf("seed %d: weights that are half as large have the same digest", seed)
		}
		rest := sum.Without(WeightedSum(features, parts[:1], weights[:1], scale))
		if want := WeightedSum(features, parts[1:], weights[1:], scale); rest.Digest() != want.Digest() {
			t.Fatalf("seed %d: the sum without a part is another one than that of the others", seed)
		}
	}
}

// A block that is added 2^e times, and moved with the state, is the block with e more; taken out,
// it leaves nothing.
func TestAddTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(72, 0))
	rows := randomTable(r, 60, 4, 2)
	a, b := summarise(t, rows.block(0, 30)), summarise(t, rows.block(30, 60))
	moved, want := NewState(DefaultFeatures(4)), NewState(DefaultFeatures(4))
	moved.AddTimes(a, 3)
	moved.Rescale(7)
	moved.AddTimes(b, 5)
	moved.Rescale(-5)
	want.AddTimes(b, 0)
	want.AddTimes(a, 5)
	if moved.Digest() != want.Digest() {
		t.Error("the moved sums are other ones")
	}
	moved.RemoveTimes(a, 5)
	only := NewState(DefaultFeatures(4))
	only.Add(b)
	if moved.Digest() != only.Digest() {
		t.Error("a block that was taken out has left something")
	}
	moved.RemoveTimes(b, 0)
	if moved.Rows() != 0 || moved.Digest() != NewState(DefaultFeatures(4)).Digest() {
		t.Error("the state is not empty")
	}
}
