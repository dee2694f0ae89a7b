package live

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// A backlog is a map of what has been put since it was last saved, whatever is put and dropped
// while saves are under way, and whether these succeed. What a save has taken stays as it was.
func TestBacklog(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(3, seed))
		b := backlog[int]{size: func(v int) int { return v }}
		want := map[string]int{}
		var taken, copied map[string]int // by the save under way
		for step := range 200 {
			id := fmt.Sprint(r.IntN(8))
			switch k := r.IntN(10); {
			case k < 5:
				b.put(id, step)
				want[id] = step
			case k < 7:
				b.drop(id)
				delete(want, id)
			case taken == nil:
				taken = b.take()
				copied = maps.Clone(taken)
				if !maps.Equal(taken, want) {
					t.Fatalf("seed %d: step %d: a save takes %v, want %v", seed, step, taken, want)
				}
			case k == 7:
				b.notSaved()
				taken = nil
			default:
				b.saved()
				for id, v := range taken {
					if want[id] == v { // values are unique
						delete(want, id)
					}
				}
				taken = nil
			}
			if taken != nil && !maps.Equal(taken, copied) {
				t.Fatalf("seed %d: step %d: a save has %v, and took %v", seed, step, taken, copied)
			}
			if got := maps.Collect(b.all()); !maps.Equal(got, want) || b.len() != len(want) {
				t.Fatalf("seed %d: step %d: %v, %d values, want %v", seed, step, got, b.len(), want)
			}
			size := 0
			for id := range 8 {
				id := fmt.Sprint(id)
				v, ok := b.get(id)
				if at, is := want[id]; v != at || ok != is || b.has(id) != is {
					t.Fatalf("seed %d: step %d: %s is %d, %t, want %d, %t", seed, step, id, v, ok, at, is)
				}
				size += v
			}
			if b.waiting() != int64(size) {
				t.Fatalf("seed %d: step %d: %d bytes, want %d", seed, step, b.waiting(), size)
			}
		}
	}
}
