package daemon

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

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/retire"
	"streamd/snapshot"
)

// liveConfig has what a live set goes by: two classes, so many folds and rows of a sample.
func liveConfig(folds, rows int) *config.Config {
	return &config.Config{Limits: config.Limits{Classes: 2}, Model: config.Model{Folds: folds}, Sample: config.Sample{Rows: rows}}
}

// Blocks come, go, are replaced, are taken anew and are put into epochs while saves
// are on their way, some of which fail, on the disk or not. After a last save the
// file has what is in memory.
func TestWhatChangesWhileItIsSaved(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(36, seed))
		path := filepath.Join(t.TempDir(), "streamd.db")
		store, contents, err := snapshot.Open(path, snapshot.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		contents.State = incremental.NewState(nil)
		cfg := liveConfig(3, 20)
		l, _, err := newLiveSet(store, contents, cfg, roomy(cfg))
		if err != nil {
			t.Fatal(err)
		}
		l.fix([]string{"x1", "x2"})
		var (
			z      lifter
			taker  sample.Taker
			blocks = map[string]*incremental.Block{} // that are live
			flight *snapshot.Change
			ready  *snapshot.Prepared
			since  map[string]*sample.Part // taken anew since the save on its way was begun
		)
		any := func() string {
			ids := slices.Sorted(maps.Keys(blocks))
			return ids[r.IntN(len(ids))]
		}
		take := func(b *incremental.Block, s *incremental.Summary) *sample.Part {
			return taker.Take(b, s.Digest(), s.Totals(), l.sample.Levels())
		}
		summary := func(b *incremental.Block) *incremental.Summary {
			s, err := z.summariser.Summarise(b)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		begin := func() {
			c := l.change()
			c.SavedAt = time.UnixMilli(1)
			flight, since = &c, map[string]*sample.Part{}
			if ready, err = store.Prepare(c); err != nil {
				t.Fatal(err)
			}
		}
		end := func(written, known bool) {
			if written {
				if _, err := ready.Save(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if known {
				l.saved(flight)
			} else {
				l.notSaved(flight)
				if flight.Epochs != nil && !l.epochsMoved {
					t.Errorf("seed %d: epochs count as saved", seed)
				}
			}
			for id, p := range since {
				if b, ok := l.put[id]; ok && b.Part != p || !ok && l.parts[id] != p {
					t.Errorf("seed %d: block %s was taken anew, and that counts as saved", seed, id)
				}
			}
			flight = nil
		}
		for step := range 300 {
			switch k := r.IntN(20); {
			case k < 8:
				id := fmt.Sprint(r.IntN(20))
				b := &incremental.Block{Classes: []string{"-1", "1"}}
				x, y := []float64{}, []float64{}
				for range 1 + r.IntN(30) {
					x, y, b.Codes = append(x, r.Float64()), append(y, r.Float64()), append(b.Codes, int32(r.IntN(2)))
				}
				b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
				in, err := z.lift(context.Background(), b, l.current.Load())
				if err != nil {
					t.Fatal(err)
				}
				if len(in) == 2 && r.IntN(2) == 0 {
					in = in[:1] // the epoch to come has to wait for it
				}
				s := summary(b)
				e := retire.Entry{ID: id, Position: incremental.Position{Offset: int64(step)}, Time: time.UnixMilli(int64(step)), Rows: s.Rows()}
				if _, err := l.add(e, kept{s, in, take(b, s)}); err != nil {
					t.Fatal(err)
				}
				blocks[id] = b
				delete(since, id)
			case k < 11 && len(blocks) > 0:
				id := any()
				out := l.remove
				if r.IntN(2) == 0 {
					out = l.retire
				}
				if err := out(id); err != nil {
					t.Fatal(err)
				}
				delete(blocks, id)
				delete(since, id)
			case k == 11 && len(blocks) > 0:
				id := any()
				p := take(blocks[id], summary(blocks[id]))
				l.offer(id, p)
				if since != nil {
					since[id] = p
				}
			case k == 12 && l.next == nil:
				gaussian, err := kernels.Gaussian(1)
				if err != nil {
					t.Fatal(err)
				}
				basis, err := kernels.NewMap(gaussian, 2, []float64{r.Float64(), 0, 1, 1})
				if err != nil {
					t.Fatal(err)
				}
				l.choose()
				l.begin(basis, &model.Reduction{}, config.RegulariserIdentity)
			case k < 15 && l.next != nil:
				for _, id := range slices.Sorted(maps.Keys(l.next.missing))[:(len(l.next.missing)+1)/2] {
					in, err := z.Block(context.Background(), blocks[id], l.next.space())
					if err != nil {
						t.Fatal(err)
					}
					l.next.add(id, summary(in), summary(blocks[id]).Digest())
				}
				if len(l.next.missing) == 0 {
					l.switchEpoch()
				}
			case k == 15 && l.next != nil && r.IntN(4) == 0:
				l.abandon()
			case flight == nil:
				begin()
			default:
				how := r.IntN(4)
				end(how > 0, how > 1)
			}
		}
		if flight != nil {
			end(true, true)
		}
		begin()
		end(true, true)
		if l.unsaved() > 0 || l.epochsMoved {
			t.Errorf("seed %d: %d blocks are unsaved, epochs %t", seed, l.unsaved(), l.epochsMoved)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := snapshot.Verify(t.Context(), path, nil); err != nil || !report.OK || report.Saved != l.sums.total().Digest() {
			t.Fatalf("seed %d: %+v, %v", seed, report, err)
		}
		store, contents, err = snapshot.OpenReadOnly(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(contents.Entries), len(blocks); got != want {
			t.Errorf("seed %d: %d blocks in the file, want %d", seed, got, want)
		}
		for _, e := range contents.Entries {
			s, err := store.Summary(e.ID)
			if err != nil {
				t.Fatal(err)
			}
			p, err := store.Part(e.ID)
			if err != nil {
				t.Fatal(err)
			}
			want := summary(blocks[e.ID]).Digest()
			if s.Digest() != want || p.Digest() != want {
				t.Errorf("seed %d: block %s is not the one that is live", seed, e.ID)
			}
		}
		if got, want := len(contents.Epochs), len(l.epochs()); got != want {
			t.Errorf("seed %d: %d epochs in the file, want %d", seed, got, want)
		}
		for i, e := range l.epochs() {
			if got := contents.Epochs[i]; got.Number != e.number || got.State.Digest() != e.sums.total().Digest() || len(got.Blocks) != len(blocks)-len(e.missing) {
				t.Errorf("seed %d: epoch %d is another one in the file", seed, e.number)
			}
			var from []string
			for _, id := range slices.Sorted(maps.Keys(e.from.blocks)) {
				if blocks[id] != nil {
					from = append(from, id)
				}
			}
			if got := contents.Epochs[i]; !slices.Equal(got.Sources, from) || got.Stale != uint8(e.from.stale) {
				t.Errorf("seed %d: epoch %d has the sources %q (stale %d) in the file, not %q (stale %d)", seed, e.number, got.Sources, got.Stale, from, e.from.stale)
			}
		}
		store.Close()
	}
}

// A start takes up which blocks have no part and lack rows, and leaves out what a
// stricter policy retires.
func TestRestoreOfBlocksWithoutParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	store, contents, err := snapshot.Open(path, snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	contents.State = incremental.NewState(nil)
	cfg := liveConfig(3, 1000)
	l, _, err := newLiveSet(store, contents, cfg, roomy(cfg))
	if err != nil {
		t.Fatal(err)
	}
	l.fix([]string{"x"})
	var z incremental.Summariser
	var taker sample.Taker
	r := rand.New(rand.NewPCG(38, 1))
	const blocks, keep = 100, 60
	var without []string // of those that are kept
	for i := range blocks {
		b := &incremental.Block{Classes: []string{"1"}, Codes: []int32{0, 0}, Columns: []gram.Column{gram.ColumnOf([]float64{r.Float64(), float64(i)})}}
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		// By rank they come in another order than by id.
		e := retire.Entry{ID: fmt.Sprint((i * 37) % blocks), Position: incremental.Position{Offset: int64(i)}, Time: time.UnixMilli(int64(i)), Rows: 2}
		var part *sample.Part
		if r.IntN(3) > 0 {
			part = taker.Take(b, s.Digest(), s.Totals(), l.sample.Levels())
		} else if i >= blocks-keep {
			without = append(without, e.ID)
		}
		if _, err := l.add(e, kept{summary: s, part: part}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Save(l.change()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if store, contents, err = snapshot.Open(path, snapshot.Settings{}); err != nil {
		t.Fatal(err)
	}
	cfg.Retire.Blocks = keep
	l, retired, err := newLiveSet(store, contents, cfg, roomy(cfg))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(without)
	if got := l.sample.Wanted(); retired != blocks-keep || !slices.Equal(got, without) {
		t.Errorf("%d blocks are retired, want %d; of %q rows are wanted, want %q", retired, blocks-keep, got, without)
	}
	if got, want := l.sample.Snapshot(l.sums.total(), 3).View().Block.Rows(), 2*(keep-len(without)); got != want {
		t.Errorf("the sample has %d rows, want %d", got, want)
	}
}

// While the disk is full, or slower than the log, what is in memory stays bounded.
func TestMostUnsaved(t *testing.T) {
	full := errors.New("no space")
	const wide = 1000 // features: a block of one class takes 4 MB
	for _, c := range []struct {
		features int
		saving   *saving
		problem  error
		want     int
	}{
		{1, nil, nil, math.MaxInt},
		{1, nil, full, 100},
		{1, &saving{blocks: 7}, nil, 107},
		{1, &saving{blocks: 700}, nil, 1400},
		{1, &saving{blocks: 700}, full, 100},
		{wide, nil, full, 8},
		{wide, &saving{blocks: 7}, nil, 15},
		{wide, &saving{blocks: 70}, nil, 78},
	} {
		l := &liveSet{sums: newSums(incremental.DefaultFeatures(c.features), 0), memory: roomy(liveConfig(0, 0)), ledger: retire.NewLedger(retire.Policy{})}
		block := &incremental.Block{Classes: []string{"1"}, Codes: []int32{0}, Columns: make([]gram.Column, c.features)}
		for j := range block.Columns {
			block.Columns[j] = gram.ColumnOf([]float32{1})
		}
		s, err := new(incremental.Summariser).Summarise(block)
		if err != nil {
			t.Fatal(err)
		}
		l.sums.of(s.Digest()).Add(s)
		d := &Daemon{cfg: &config.Config{Snapshot: config.Snapshot{Blocks: 100}}, live: l, saving: c.saving, saveProblem: c.problem}
		if got := d.mostUnsaved(); got != c.want {
			t.Errorf("saving %+v after %v: %d, want %d", c.saving, c.problem, got, c.want)
		}
	}
}

// Blocks of keys in no order are on pages of their own, and a save holds all that it
// writes: after one of so many, the next has as many as there is memory for.
func TestRoomForPages(t *testing.T) {
	l := &liveSet{sums: newSums(incremental.DefaultFeatures(10), 0), memory: roomy(liveConfig(0, 0)), ledger: retire.NewLedger(retire.Policy{})}
	block, _ := l.estimate()
	dense := l.room()
	if dense != unsavedMemory/block {
		t.Fatalf("room for %d blocks of %d bytes", dense, block)
	}
	for _, c := range []struct{ blocks, bytes, want int }{
		{dense, dense * 2 * block, dense},
		{dense, dense * 13 << 10, 4 * unsavedMemory / (13 << 10)},
		{1, 100 << 20, unsavedMemory / (block + 4<<10)}, // it had a long free list
		{0, 8 << 10, unsavedMemory / (block + 4<<10)},   // it has moved offsets
		{dense, dense * block, dense},
	} {
		d := &Daemon{
			cfg: load(t, map[string]string{"kafka.topic": "none"}), live: l, metrics: httpapi.NewMetrics(),
			commits: make(chan map[int]int64, 1), saving: &saving{blocks: c.blocks},
		}
		d.endSave(saveEnd{info: snapshot.SaveInfo{Bytes: int64(c.bytes)}})
		if got := l.room(); got < c.want-1 || got > c.want {
			t.Errorf("after a save of %d blocks in %d bytes there is room for %d, want %d", c.blocks, c.bytes, got, c.want)
		}
		d.saving = &saving{blocks: dense}
		if got := d.mostUnsaved(); got != dense+l.room() {
			t.Errorf("while %d blocks are saved %d may wait, want %d more", dense, got, l.room())
		}
	}
}

// Saves that take long, or are wanted seldom, are put off, but not for longer than there
// is room for the blocks that come.
func TestSavesAreNotPutOffWithoutRoom(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"long":   {"kafka.topic": "none"},
		"seldom": {"kafka.topic": "none", "snapshot.interval": "1h", "snapshot.blocks": "1000000"},
	} {
		t.Run(name, func(t *testing.T) { testSavesAreNotPutOffWithoutRoom(t, load(t, set)) })
	}
}

func testSavesAreNotPutOffWithoutRoom(t *testing.T, cfg *config.Config) {
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	contents.State = incremental.NewState(nil)
	l, _, err := newLiveSet(store, contents, liveConfig(5, 0), roomy(liveConfig(5, 0)))
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	l.fix(incremental.DefaultFeatures(n))
	block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: []int32{0, 1}}
	for j := range n {
		block.Columns = append(block.Columns, gram.ColumnOf([]float32{float32(j), -1}))
	}
	s, err := new(incremental.Summariser).Summarise(block)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d := &Daemon{
		cfg: cfg, live: l, store: store, saved: make(chan saveEnd, 1),
		saveTook: time.Hour, lastSaveTry: now, delivered: now, lastSolve: now,
	}
	d.handRoom.Store(l.roomBytes())
	for i := 0; d.saving == nil; i++ {
		if wait := unsavedMemory / (8 * n * n); i > wait { // of two classes half of the products each
			t.Fatalf("%d blocks wait for a save", i)
		}
		if _, err := l.add(retire.Entry{ID: fmt.Sprint(i), Time: now, Rows: 2}, kept{summary: s}); err != nil {
			t.Fatal(err)
		}
		d.everySoOften()
		if wait := unsavedMemory / (2 * 8 * n * n); i < wait && d.saving != nil {
			t.Fatalf("%d blocks do not wait for a save", i)
		}
	}
	if end := <-d.saved; end.err != nil {
		t.Error(end.err)
	}
}

// Sums that take long to copy are copied seldom while blocks come, but at once when
// the loop has nothing else to do.
func TestWideSumsAreSolvedWhenNothingComes(t *testing.T) {
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	contents.State = incremental.NewState(nil)
	l, _, err := newLiveSet(store, contents, liveConfig(5, 0), roomy(liveConfig(5, 0)))
	if err != nil {
		t.Fatal(err)
	}
	l.fix(incremental.DefaultFeatures(1))
	s, err := new(incremental.Summariser).Summarise(&incremental.Block{
		Classes: []string{"-1", "1"}, Codes: []int32{0, 1}, Columns: []gram.Column{gram.ColumnOf([]float32{1, 2})},
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err := l.add(retire.Entry{ID: "a", Time: now, Rows: 2}, kept{summary: s}); err != nil {
		t.Fatal(err)
	}
	for idle, want := range map[time.Duration]bool{0: false, time.Minute: false, 2 * time.Hour: true} {
		cfg := load(t, map[string]string{"kafka.topic": "none", "snapshot.interval": "1h"})
		d := &Daemon{
			cfg: cfg, options: modelOptions(cfg.Model), live: l, store: store, metrics: httpapi.NewMetrics(), solved: make(chan solved, 1),
			changed: true, copyTook: time.Hour, lastSolve: now.Add(-3 * time.Hour), delivered: now.Add(-idle),
		}
		d.published.Store(&publication{served: &model.Served{}, replaced: make(chan struct{})})
		d.everySoOften()
		if d.solving != want {
			t.Errorf("nothing has come for %v: a solve has begun: %v", idle, d.solving)
		}
		if d.solving {
			<-d.solved
		}
	}
}

// What the loop does for a block that comes and one that goes, and what a worker
// does for it, with and without a sample and folds. Rows in the sample are as few
// as in a long stream.
func BenchmarkBlock(b *testing.B) {
	const rows, n = 10_000, 10
	r := rand.New(rand.NewPCG(35, 1))
	block := &incremental.Block{Classes: []string{"-1", "1"}, Codes: make([]int32, rows)}
	for i := range block.Codes {
		block.Codes[i] = int32(r.IntN(2))
	}
	for range n {
		x := make([]float32, rows)
		for i := range x {
			x[i] = r.Float32()
		}
		block.Columns = append(block.Columns, gram.ColumnOf(x))
	}
	var z incremental.Summariser
	s, err := z.Summarise(block)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("worker/summarise", func(b *testing.B) {
		for b.Loop() {
			if _, err := z.Summarise(block); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("worker/digest", func(b *testing.B) {
		for b.Loop() {
			s.Digest()
		}
	})
	for _, c := range []struct{ folds, rows int }{{0, 0}, {0, 50_000}, {5, 50_000}} {
		b.Run(fmt.Sprintf("loop/folds=%d/sample=%d", c.folds, c.rows), func(b *testing.B) {
			store, contents, err := snapshot.Open(filepath.Join(b.TempDir(), "streamd.db"), snapshot.Settings{})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			contents.State = incremental.NewState(nil)
			l, _, err := newLiveSet(store, contents, liveConfig(c.folds, c.rows), roomy(liveConfig(c.folds, c.rows)))
			if err != nil {
				b.Fatal(err)
			}
			l.fix(make([]string, n))
			var t sample.Taker
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				var p *sample.Part
				if l.sample != nil {
					p = t.Take(block, [32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, s.Totals(), l.sample.Levels())
				}
				b.StartTimer()
				if _, err := l.add(retire.Entry{ID: fmt.Sprint(i), Time: time.UnixMilli(int64(i)), Rows: rows}, kept{summary: s, part: p}); err != nil {
					b.Fatal(err)
				}
				if i >= 2000 {
					if err := l.remove(fmt.Sprint(i - 2000)); err != nil {
						b.Fatal(err)
					}
				}
				if l.sample != nil {
					if err := l.look(lookTime); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
