package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/timeline"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/retire"
	"streamd/snapshot"
)

// openSet opens a live set of two features, with a sample of rows, in a new file.
func openSet(t testing.TB, rows int, budget func(*config.Config) *memory.Budget) (*Set, *snapshot.Store) {
	t.Helper()
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	cfg := liveConfig(0, rows)
	l, _, err := Open(store, contents, cfg, budget(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l.Fix([]string{"x1", "x2"})
	return l, store
}

func randomBlock(r *rand.Rand) *incremental.Block {
	b := &incremental.Block{Classes: []string{"-1", "1"}}
	x, y := []float64{}, []float64{}
	for range 1 + r.IntN(4) {
		x, y, b.Codes = append(x, r.Float64()), append(y, r.Float64()), append(b.Codes, int32(r.IntN(2)))
	}
	b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return b
}

// save saves the set.
func save(t testing.TB, l *Set, store *snapshot.Store) {
	t.Helper()
	c := l.Change()
	c.SavedAt = time.UnixMilli(1)
	ready, err := store.Prepare(c)
	if err == nil {
		_, err = ready.Save()
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Saved(&c)
}

// all is the window of all blocks.
var all = Window{Order: ByTime, Ranges: []timeline.Range{{First: math.MinInt64, Last: math.MaxInt64}}}

// Whatever happens between a cut and its sum, the sum is that of the blocks at the cut, in the
// coordinates of then: blocks are added, replaced, retired and saved, and spaces switched.
func TestCutsAreOfOneMoment(t *testing.T) {
	summed, moved, held := 0, 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(42, seed))
		l, store := openSet(t, 20, roomy)
		var z Keeper
		blocks := map[string]*incremental.Block{}
		type open struct {
			*Cut
			want *incremental.State
		}
		var cuts []open
		for step := range 150 {
			switch k := r.IntN(12); {
			case k < 5:
				id := fmt.Sprint(r.IntN(15))
				b := randomBlock(r)
				k, err := z.Keep(t.Context(), b, l.Target())
				if err != nil {
					t.Fatal(err)
				}
				e := retire.Entry{ID: id, Position: incremental.Position{Topic: "t", Offset: int64(step)}, Last: int64(step + r.IntN(3)), Time: time.UnixMilli(int64(r.IntN(20))), Rows: k.Summary.Rows()}
				if _, err := l.Add(e, k); err != nil {
					t.Fatal(err)
				}
				blocks[id] = b
			case k < 7 && len(blocks) > 0:
				ids := slices.Sorted(maps.Keys(blocks))
				id := ids[r.IntN(len(ids))]
				out := l.Remove
				if r.IntN(2) == 0 {
					out = l.Retire
				}
				if err := out(id); err != nil {
					t.Fatal(err)
				}
				delete(blocks, id)
			case k == 7:
				save(t, l, store)
			case k == 8 && r.IntN(4) == 0 && l.next == nil:
				gaussian, err := kernels.Gaussian(1)
				if err != nil {
					t.Fatal(err)
				}
				points := make([]float64, 2*(1+r.IntN(3)))
				for i := range points {
					points[i] = r.Float64()
				}
				basis, err := kernels.NewMap(gaussian, 2, points)
				if err != nil {
					t.Fatal(err)
				}
				l.Choose()
				l.Begin(basis, &model.Reduction{}, config.RegulariserIdentity)
				for id := range maps.Clone(l.next.missing) {
					in, err := z.Block(t.Context(), blocks[id], l.next.Coordinates)
					if err != nil {
						t.Fatal(err)
					}
					s, err := z.maker.Summarise(t.Context(), in)
					if err != nil {
						t.Fatal(err)
					}
					l.next.add(id, s, s.Digest())
				}
				l.Switch()
			case k == 9 && len(cuts) > 0:
				at := r.IntN(len(cuts))
				c := cuts[at]
				cuts = slices.Delete(cuts, at, at+1)
				sum, err := c.Sum(t.Context())
				err = l.EndCut(c.Cut, err)
				if errors.Is(err, ErrMoved) {
					moved++
					continue
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if len(c.held) > 0 {
					held++
				}
				if c.Whole {
					summed++
					if sum.Digest() != c.want.Digest() {
						t.Fatalf("seed %d, step %d: the sum of a window is another one", seed, step)
					}
				}
			default:
				w := Window{Order: ByTime, Ranges: []timeline.Range{{First: r.Int64N(15), Last: 8 + r.Int64N(20)}}}
				if r.IntN(2) == 0 {
					first := int64(r.IntN(step + 1))
					w = Window{Order: ByPosition, Ranges: []timeline.Range{{Line: timeline.Line{Topic: "t"}, First: first, Last: first + r.Int64N(100)}}}
				}
				if w.Ranges[0].First > w.Ranges[0].Last {
					continue
				}
				for ready := false; !ready; {
					var err error
					if ready, err = l.Index(w.Order); err != nil {
						t.Fatal(err)
					}
				}
				c, err := l.Cut(w)
				if err != nil {
					t.Fatal(err)
				}
				want, n := incremental.NewState(l.inUse.Names()), 0
				for _, e := range l.Page(retire.Lowest, math.MaxInt) {
					_, b := w.Order.block(&e)
					if b.First <= w.Ranges[0].Last && b.Last >= w.Ranges[0].First {
						s, err := l.inUse.summary(store, e.ID)
						if err != nil {
							t.Fatal(err)
						}
						want.Add(s)
						n++
					}
				}
				if c.Blocks != n {
					t.Fatalf("seed %d: %d blocks, want %d", seed, c.Blocks, n)
				}
				cuts = append(cuts, open{c, want})
			}
		}
	}
	if summed < 100 || moved < 3 || held < 30 {
		t.Errorf("%d cuts were summed, %d have moved, %d held a summary: the test does not reach what it should", summed, moved, held)
	}
}

// Where memory is scarce there are fewer sums, or no windows and a reason. Blocks are never
// refused for the sake of windows.
func TestWindowsGiveWay(t *testing.T) {
	const blocks = 3000
	r := rand.New(rand.NewPCG(43, 1))
	fill := func(l *Set, from, to int) {
		var z Keeper
		for i := from; i < to; i++ {
			k, err := z.Keep(t.Context(), randomBlock(r), l.Target())
			if err != nil {
				t.Fatal(err)
			}
			e := retire.Entry{ID: fmt.Sprint(i), Position: incremental.Position{Topic: "t", Offset: int64(i)}, Time: time.UnixMilli(int64(i)), Rows: k.Summary.Rows()}
			if _, err := l.Add(e, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	of := func(limit int64) func(*config.Config) *memory.Budget {
		return func(cfg *config.Config) *memory.Budget { return memory.New(cfg, limit) }
	}
	index := func(l *Set) error {
		for {
			if ready, err := l.Index(ByTime); ready || err != nil {
				return err
			}
		}
	}
	sum := func(l *Set) {
		t.Helper()
		for {
			c, err := l.Cut(all)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Sum(t.Context())
			if err = l.EndCut(c, err); err != nil {
				t.Fatal(err)
			}
			if !c.Whole {
				continue
			}
			if DigestOf(got) != l.Digest() {
				t.Fatal("the sum of all blocks is another one")
			}
			return
		}
	}
	least := int64(0) // a limit that leaves nothing
	for limit := int64(8 << 20); ; limit += 1 << 20 {
		l, _ := openSet(t, 0, of(limit))
		fill(l, 0, 10)
		if l.pastRoom() > 0 {
			least = limit
			break
		}
		if err := index(l); !errors.As(err, new(memory.LimitError)) {
			t.Fatalf("an index without memory: %v", err)
		}
	}
	l, _ := openSet(t, 0, of(least+4<<20))
	fill(l, 0, blocks)
	if err := index(l); err != nil {
		t.Fatal(err)
	}
	sum(l)
	if n, room := l.pastBytes(), l.pastRoom(); n == 0 || float64(n) > room {
		t.Errorf("windows take %d of %.0f bytes", n, room)
	}
	if l.DropPast(time.Now().Add(-time.Hour)) || l.pastBytes() == 0 {
		t.Error("an index in use is dropped")
	}
	if !l.DropPast(time.Now().Add(time.Hour)) || l.pastBytes() != 0 {
		t.Error("an idle index is not dropped")
	}
	if l.DropPast(time.Now().Add(time.Hour)) {
		t.Error("no index is dropped")
	}
	if err := index(l); err != nil {
		t.Fatal(err)
	}
	sum(l)
	fill(l, blocks, 8*blocks) // until nothing is left
	for i := 8 * blocks; l.pastBytes() > 0; i++ {
		if i > 40*blocks {
			t.Fatal("the index does not give way")
		}
		fill(l, i, i+1)
	}
	if err := index(l); err == nil {
		sum(l)
	} else if !errors.As(err, new(memory.LimitError)) {
		t.Fatal(err)
	}
}

// BenchmarkWindow is the cost of the sum of a random window of 10^5 saved blocks of 10 features
// and two classes, of the first one, which fills the index, and of adding a block beside it.
func BenchmarkWindow(b *testing.B) {
	const blocks, n = 100_000, 10
	r := rand.New(rand.NewPCG(44, 1))
	l, store := openSet(b, 0, roomy)
	names := make([]string, n)
	for j := range names {
		names[j] = fmt.Sprint("x", j)
	}
	l.Fix(names)
	var z Keeper
	block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: make([]int32, 50)}
	for i := range block.Codes {
		block.Codes[i] = int32(r.IntN(2))
	}
	for range n {
		x := make([]float32, len(block.Codes))
		for i := range x {
			x[i] = r.Float32()
		}
		block.Columns = append(block.Columns, gram.ColumnOf(x))
	}
	k, err := z.Keep(context.Background(), block, l.Target())
	if err != nil {
		b.Fatal(err)
	}
	add := func(i int) {
		at := incremental.Position{Topic: "t", Offset: int64(i)}
		if _, err := l.Add(retire.Entry{ID: at.String(), Position: at, Last: int64(i), Time: time.UnixMilli(1_700_000_000_000 + 1000*int64(i)), Rows: k.Summary.Rows()}, k); err != nil {
			b.Fatal(err)
		}
	}
	for i := range blocks {
		if add(i); i%20_000 == 0 {
			save(b, l, store)
		}
	}
	save(b, l, store)
	window := func(w Window) {
		for ready := false; !ready; {
			var err error
			if ready, err = l.Index(w.Order); err != nil {
				b.Fatal(err)
			}
		}
		for {
			c, err := l.Cut(w)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = c.Sum(context.Background()); l.EndCut(c, err) != nil {
				b.Fatal(err)
			}
			if c.Whole {
				return
			}
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			l.dropPast()
			window(all)
		}
		b.ReportMetric(float64(l.pastBytes())/blocks, "B/block")
	})
	b.Run("random", func(b *testing.B) {
		window(all)
		for b.Loop() {
			from := 1_700_000_000_000 + 1000*r.Int64N(blocks)
			window(Window{Order: ByTime, Ranges: []timeline.Range{{First: from, Last: from + 1000*r.Int64N(blocks)}}})
		}
	})
	for name, drop := range map[string]bool{"add/indexed": false, "add/plain": true} {
		b.Run(name, func(b *testing.B) {
			window(all)
			if drop {
				l.dropPast()
			}
			i := blocks
			for b.Loop() {
				add(i)
				i++
			}
			b.StopTimer()
			for i--; i >= blocks; i-- {
				if err := l.Remove(incremental.Position{Topic: "t", Offset: int64(i)}.String()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Where windows have no memory there is no index, and a reason, also while no block is live.
func TestNoWindowsWithoutMemory(t *testing.T) {
	l, _ := openSet(t, 0, func(cfg *config.Config) *memory.Budget { return memory.New(cfg, 1<<20) })
	if ready, err := l.Index(ByTime); ready || !errors.As(err, new(memory.LimitError)) {
		t.Errorf("an index is ready: %t, %v", ready, err)
	}
}
