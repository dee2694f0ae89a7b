package live

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// asideSet is an empty set with receipts from which blocks can be set aside.
func asideSet(t testing.TB, cfg *config.Config) *Set {
	t.Helper()
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, err := receipt.OpenKey(filepath.Join(t.TempDir(), "receipts.key"), "t")
	if err == nil {
		err = l.KeepReceipts(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.KeepAside()
	l.Fix([]string{"x"})
	return l
}

// asideSave saves the set, so that summaries are on disk.
func asideSave(t testing.TB, l *Set) {
	t.Helper()
	c := l.Change()
	c.SavedAt = time.UnixMilli(1)
	if _, err := l.store.Save(c); err != nil {
		t.Fatal(err)
	}
	l.Saved(&c)
	l.TakeDepartures()
}

// Blocks come, grow, are replaced, expire and are retired while some are set aside and taken back.
// The set without the latter is always that of a set that never had them.
func TestSetWithoutBlocksThatAreAside(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(57, seed))
		cfg := liveConfig(int(seed%2)*3, 0)
		if seed%4 < 2 {
			cfg.Retire.Blocks = 6
		}
		cfg.Retire.Archive = seed%8 < 4
		l := asideSet(t, cfg)
		var z Keeper
		blocks, aside := map[string]*incremental.Block{}, map[string]incremental.Position{}
		for step := range 150 {
			switch k := r.IntN(12); {
			case k < 6:
				id := fmt.Sprint("t/0/", r.IntN(12))
				e, is := l.Get(id)
				if !is || r.IntN(2) == 0 { // else it grows
					e = retire.Entry{ID: id, Position: incremental.Position{Topic: "t", Offset: int64(step)}}
				}
				m := 1 + r.IntN(4)
				x := make([]float64, m)
				b := &incremental.Block{Classes: []string{fmt.Sprint(r.IntN(2))}, Codes: make([]int32, m)}
				for i := range x {
					x[i] = r.NormFloat64()
				}
				b.Columns = []gram.Column{gram.ColumnOf(x)}
				e.Last, e.Rows, e.Time = int64(step), int64(m), time.UnixMilli(r.Int64N(200)).UTC()
				kept, err := z.Keep(t.Context(), b, l.Target())
				if err != nil {
					t.Fatal(err)
				}
				if was, is := aside[id]; is && was == e.Position {
					counts["grown"]++
				}
				if _, err := l.Add(e, kept); err != nil {
					t.Fatal(err)
				}
				blocks[id] = b
			case k < 8 && l.Blocks() > 0:
				id := slices.Sorted(l.IDs)[r.IntN(l.Blocks())]
				if err := l.SetAside(id); err != nil {
					t.Fatal(err)
				}
				e, _ := l.Get(id)
				aside[id] = e.Position
				counts["aside"]++
			case k == 8 && len(aside) > 0:
				id := slices.Sorted(maps.Keys(aside))[r.IntN(len(aside))]
				if err := l.TakeBack(id); err != nil {
					t.Fatal(err)
				}
				delete(aside, id)
				counts["back"]++
			case k == 9 && l.Blocks() > 0:
				if err := l.Retire(slices.Sorted(l.IDs)[r.IntN(l.Blocks())]); err != nil {
					t.Fatal(err)
				}
			case k == 10:
				asideSave(t, l)
			}
			maps.DeleteFunc(aside, func(id string, at incremental.Position) bool {
				e, live := l.Get(id)
				if !live || e.Position != at {
					counts["left"]++
				}
				return !live || e.Position != at
			})
			want, tree := incremental.NewState([]string{"x"}), receipt.Tree{}
			for id := range l.IDs {
				if _, is := aside[id]; is != l.IsAside(id) {
					t.Fatalf("seed %d: block %s is aside: %t, want %t", seed, id, !is, is)
				} else if is {
					continue
				}
				kept, err := z.Keep(t.Context(), blocks[id], l.Target())
				if err != nil {
					t.Fatal(err)
				}
				want.Add(kept.Summary)
				tree.Put(l.Item(id))
			}
			if side := l.SideWithout(); side != (receipt.Side{Digest: want.Digest(), Root: tree.Root()}) {
				t.Fatalf("seed %d, step %d: without %d blocks the set is %+v", seed, step, len(aside), side)
			}
		}
	}
	for _, of := range []string{"aside", "back", "left", "grown"} {
		if counts[of] < 25 {
			t.Errorf("%d blocks: %s", counts[of], of)
		}
	}
}

// What identifies a set costs the same for ten and for a thousand blocks that are aside: nothing is
// done for each.
func TestCostOfASetWithoutBlocks(t *testing.T) {
	cost := func(blocks int) float64 {
		l := asideSet(t, liveConfig(0, 0))
		var z Keeper
		for i := range 2 * blocks {
			b := &incremental.Block{Classes: []string{"0"}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{float64(i % 7)})}}
			kept, err := z.Keep(t.Context(), b, l.Target())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Add(retire.Entry{ID: fmt.Sprint("t/0/", i), Position: incremental.Position{Topic: "t", Offset: int64(i)}, Rows: 1}, kept); err != nil {
				t.Fatal(err)
			}
		}
		asideSave(t, l)
		for i := range blocks {
			if err := l.SetAside(fmt.Sprint("t/0/", i)); err != nil {
				t.Fatal(err)
			}
		}
		l.SideWithout()
		return testing.AllocsPerRun(20, func() { l.SideWithout() })
	}
	if few, many := cost(10), cost(1000); many > few+5 {
		t.Errorf("%v allocations for a thousand blocks, and %v for ten", many, few)
	}
}
