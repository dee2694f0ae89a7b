package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"

	"github.com/rs/zerolog"
)

// roomy is a budget that is large enough for every test.
func roomy(cfg *config.Config) *memory.Budget { return memory.New(cfg, 8<<30) }

// liveConfig is the configuration of a live set with two classes.
func liveConfig(folds, rows int) *config.Config {
	return &config.Config{Spec: config.Spec{Limits: config.Limits{Classes: 2, Features: 1000}, Model: config.Model{Folds: folds}, Sample: config.Sample{Rows: rows}}}
}

// Blocks are added, retired, replaced, taken again and mapped into epochs while saves are
// under way. Some saves fail, on the disk or elsewhere. After a last save the file has the
// state in memory.
func TestWhatChangesWhileItIsSaved(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(36, seed))
		path := filepath.Join(t.TempDir(), "streamd.db")
		store, contents, err := snapshot.Open(path, snapshot.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := liveConfig(3, 20)
		l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		l.Fix([]string{"x1", "x2"})
		var (
			z      Keeper
			taker  sample.Taker
			blocks = map[string]*incremental.Block{} // the live blocks
			flight *snapshot.Change
			ready  *snapshot.Prepared
			since  map[string]*sample.Part // taken again since the save under way began
		)
		any := func() string {
			ids := slices.Sorted(maps.Keys(blocks))
			return ids[r.IntN(len(ids))]
		}
		take := func(b *incremental.Block, s *incremental.Summary) *sample.Part {
			return taker.Take(b, s.Digest(), s.Totals(), l.sample.Levels())
		}
		summary := func(b *incremental.Block) *incremental.Summary {
			s, err := z.maker.Summarise(context.Background(), b)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		begin := func() {
			c := l.Change()
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
				l.Saved(flight)
			} else {
				l.NotSaved(flight)
				if len(flight.Spaces) > 1 && !l.moved {
					t.Errorf("seed %d: spaces count as saved", seed)
				}
			}
			for id, p := range since {
				if now, err := l.part(id); now != p {
					t.Errorf("seed %d: block %s was taken anew, and that counts as saved: %v", seed, id, err)
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
				k, err := z.Keep(context.Background(), b, l.Target())
				if err != nil {
					t.Fatal(err)
				}
				if len(k.lifted) == 2 && r.IntN(2) == 0 {
					k.lifted = k.lifted[:1] // the next space has to wait for this block
				}
				s := k.Summary
				e := retire.Entry{ID: id, Position: incremental.Position{Offset: int64(step)}, Time: time.UnixMilli(int64(step)), Rows: s.Rows()}
				if _, err := l.Add(e, k); err != nil {
					t.Fatal(err)
				}
				blocks[id] = b
				delete(since, id)
			case k < 11 && len(blocks) > 0:
				id := any()
				out := l.Remove
				if r.IntN(2) == 0 {
					out = l.Retire
				}
				if err := out(id); err != nil {
					t.Fatal(err)
				}
				delete(blocks, id)
				delete(since, id)
			case k == 11 && len(blocks) > 0:
				id := any()
				p := take(blocks[id], summary(blocks[id]))
				l.Offer(id, p)
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
				l.Choose()
				l.Begin(basis, &model.Reduction{}, config.RegulariserIdentity)
			case k < 15 && l.next != nil:
				for _, id := range slices.Sorted(maps.Keys(l.next.missing))[:(len(l.next.missing)+1)/2] {
					in, err := z.Block(context.Background(), blocks[id], l.next.Coordinates)
					if err != nil {
						t.Fatal(err)
					}
					l.next.add(id, summary(in), summary(blocks[id]).Digest())
				}
				if len(l.next.missing) == 0 {
					l.Switch()
				}
			case k == 16 && l.next != nil:
				var unread []Unread
				for id := range l.next.missing {
					if e, _ := l.ledger.Get(id); r.IntN(3) > 0 {
						unread = append(unread, Unread{Entry: e})
					}
				}
				l.SetUnread(l.next, unread)
			case k == 15 && l.next != nil && r.IntN(4) == 0:
				l.Abandon()
			case flight == nil:
				begin()
			default:
				how := r.IntN(4)
				end(how > 0, how > 1)
			}
			bytes, gone, unsaved := int64(0), false, l.put.len()+l.parts.len()+l.gone.len()
			if l.next != nil {
				unsaved += l.next.put.len()
			}
			for _, b := range l.put.all() {
				if b.Part != nil {
					bytes += int64(b.Part.Bytes())
				}
			}
			for _, p := range l.spaces() {
				for _, s := range p.put.all() {
					bytes += int64(s.Bytes())
				}
			}
			for i := range 20 {
				gone = gone || l.IsGone(fmt.Sprint(i))
			}
			if l.Waiting() != bytes || l.HasGone() != gone || l.Unsaved() != unsaved || l.HasUnsaved() != (l.moved || unsaved > 0) {
				t.Fatalf("seed %d: step %d: %d bytes wait, want %d; blocks have left: %v, want %v; %d are unsaved, want %d", seed, step, l.Waiting(), bytes, l.HasGone(), gone, l.Unsaved(), unsaved)
			}
			if next := l.next; next != nil {
				unread := 0
				for id := range next.missing {
					if _, is := next.unread[id]; is {
						unread++
					}
				}
				if next.Waits() != (unread > 0 && unread == len(next.missing)) {
					t.Fatalf("seed %d: step %d: the next space has %d unread blocks of %d, and waits: %v", seed, step, unread, len(next.missing), next.Waits())
				}
			}
			for _, p := range l.spaces() { // digests are kept until a block changes
				if p.Digest() != DigestOf(p.Total()) {
					t.Fatalf("seed %d: step %d: the digest is that of other sums", seed, step)
				}
			}
		}
		if flight != nil {
			end(true, true)
		}
		begin()
		end(true, true)
		if l.Unsaved() > 0 || l.moved {
			t.Errorf("seed %d: %d blocks are unsaved, spaces %t", seed, l.Unsaved(), l.moved)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := snapshot.Verify(t.Context(), path, nil); err != nil || !report.OK || report.Saved != l.features.Total().Digest() {
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
			s, err := store.Summary(snapshot.Features, e.ID)
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
		if got, want := len(contents.Spaces), len(l.spaces()); got != want {
			t.Errorf("seed %d: %d spaces in the file, want %d", seed, got, want)
		}
		for i, e := range l.spaces() {
			number := e.space().Number
			if got := contents.Spaces[i]; got.Number != number || got.State.Digest() != e.sums.total().Digest() || len(got.Missing) != len(e.missing) {
				t.Errorf("seed %d: space %d is another one in the file", seed, number)
			}
			var from []string
			for _, id := range slices.Sorted(maps.Keys(e.from.blocks)) {
				if blocks[id] != nil {
					from = append(from, id)
				}
			}
			if got := contents.Spaces[i]; !slices.Equal(got.Sources, from) || got.Stale != uint8(e.from.stale) {
				t.Errorf("seed %d: space %d has the sources %q (stale %d) in the file, not %q (stale %d)", seed, number, got.Sources, got.Stale, from, e.from.stale)
			}
		}
		store.Close()
	}
}

// A start finds blocks without a sample part, which lack rows. It leaves out those that a
// stricter policy retires.
func TestRestoreOfBlocksWithoutParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	store, contents, err := snapshot.Open(path, snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	cfg := liveConfig(3, 1000)
	l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l.Fix([]string{"x"})
	var z incremental.Summariser
	var taker sample.Taker
	r := rand.New(rand.NewPCG(38, 1))
	const blocks, keep = 100, 60
	var without []string // of the blocks that are kept
	for i := range blocks {
		b := &incremental.Block{Classes: []string{"1"}, Codes: []int32{0, 0}, Columns: []gram.Column{gram.ColumnOf([]float64{r.Float64(), float64(i)})}}
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		// The order by rank is not the order by id.
		e := retire.Entry{ID: fmt.Sprint((i * 37) % blocks), Position: incremental.Position{Offset: int64(i)}, Time: time.UnixMilli(int64(i)), Rows: 2}
		var part *sample.Part
		if r.IntN(3) > 0 {
			part = taker.Take(b, s.Digest(), s.Totals(), l.sample.Levels())
		} else if i >= blocks-keep {
			without = append(without, e.ID)
		}
		if _, err := l.Add(e, Kept{Summary: s, part: part}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Save(l.Change()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if store, contents, err = snapshot.Open(path, snapshot.Settings{}); err != nil {
		t.Fatal(err)
	}
	cfg.Retire.Blocks = keep
	l, retired, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(without)
	if got := l.sample.Wanted(); retired != blocks-keep || !slices.Equal(got, without) {
		t.Errorf("%d blocks are retired, want %d; of %q rows are wanted, want %q", retired, blocks-keep, got, without)
	}
	if got, want := l.Sample(3).View().Block.Rows(), 2*(keep-len(without)); got != want {
		t.Errorf("the sample has %d rows, want %d", got, want)
	}
}

// A start, with receipts, allocates the ledger and the tree but no list of all entries beside that
// of the file.
func TestStartCopiesNoEntries(t *testing.T) {
	const blocks = 5000
	path := filepath.Join(t.TempDir(), "streamd.db")
	store, contents, err := snapshot.Open(path, snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { store.Close() }()
	cfg := liveConfig(0, 0)
	l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l.Fix([]string{"x"})
	k, err := new(Keeper).Keep(t.Context(), &incremental.Block{Classes: []string{"1"}, Codes: []int32{0}, Columns: []gram.Column{gram.ColumnOf([]float64{2})}}, l.Target())
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Position: incremental.Position{Offset: int64(i)}, Time: time.UnixMilli(int64(i)), Rows: 1}, k); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Save(l.Change()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	key, _, _, err := receipt.OpenKey(filepath.Join(t.TempDir(), "receipts.key"), "t")
	if err != nil {
		t.Fatal(err)
	}
	if store, contents, err = snapshot.Open(path, snapshot.Settings{}); err != nil {
		t.Fatal(err)
	}
	allocated := func(do func() error) float64 { // by each block
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := do(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / blocks
	}
	opening := allocated(func() (err error) {
		l, _, err = Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
		return err
	})
	keeping := allocated(func() error { return l.KeepReceipts(key) })
	const entry = float64(unsafe.Sizeof(retire.Entry{}))
	if most := 2.5 * entry; opening > most {
		t.Errorf("a start allocates %v bytes of a block whose entry has %v, want at most %v", opening, entry, most)
	}
	if most := 6 * entry; keeping > most {
		t.Errorf("a start with receipts allocates %v bytes of a block whose entry has %v, want at most %v", keeping, entry, most)
	}
}

// Retirements that a compaction does not cover, such as those during it, wait for another
// one.
func TestRetiredDuringCompaction(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	failed := errors.New("no room")
	for _, c := range []struct {
		name    string
		unsaved unsaved   // what has left when it begins
		before  time.Time // time of the oldest retirement that is not compacted, before
		during  time.Time // time of a retirement during the compaction
		err     error
		want    time.Time
	}{
		{"none", unsaved{}, now, time.Time{}, nil, time.Time{}},
		{"during", unsaved{}, now, now.Add(time.Hour), nil, now.Add(time.Hour)},
		{"unsaved", unsaved{retired: 1}, now.Add(-time.Second), time.Time{}, nil, now},
		{"unsaved, of the control topic", unsaved{withdrew: 1}, now.Add(-time.Second), time.Time{}, nil, now},
		{"an unsaved basis", unsaved{staleBases: 1}, now.Add(-time.Second), time.Time{}, nil, now},
		{"all of them", unsaved{retired: 1, withdrew: 1, staleBases: 2}, now.Add(-time.Second), time.Time{}, nil, now},
		{"failed", unsaved{}, now.Add(-time.Second), now.Add(time.Hour), failed, now.Add(-time.Second)},
		{"asked for without any", unsaved{}, time.Time{}, time.Time{}, nil, time.Time{}},
		{"asked for, failed", unsaved{}, time.Time{}, now.Add(time.Hour), failed, now.Add(time.Hour)},
	} {
		l := &Set{unsaved: c.unsaved}
		l.uncompacted = c.before
		l.Compacting(now)
		if !c.during.IsZero() && l.uncompacted.IsZero() {
			l.uncompacted = c.during
		}
		if c.err != nil {
			l.NotCompacted(c.before)
		}
		if got := l.Uncompacted(); !got.Equal(c.want) {
			t.Errorf("%s: uncompacted since %v, want %v", c.name, got, c.want)
		}
	}
}

// heap returns the bytes in use. It collects until the number is stable, because pools and
// finalisers of earlier tests are freed only after several collections.
func heap() float64 {
	var m runtime.MemStats
	var last uint64
	for range 100 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if m.HeapAlloc <= last && last-m.HeapAlloc < 4<<10 {
			break
		}
		last = m.HeapAlloc
		time.Sleep(time.Millisecond)
	}
	return float64(m.HeapAlloc)
}

// Sums and a block's summary take no more than their price, and not much less, for
// numbers of any magnitude.
func TestPriceIsWhatSumsTake(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 53))
	const n, classes = 150, 7
	for name, number := range map[string]func() float64{
		"ordinary": r.NormFloat64,
		"whole":    func() float64 { return float64(r.IntN(100)) },
		"extreme":  func() float64 { return math.Ldexp(r.NormFloat64(), r.IntN(200)-100) },
	} {
		for _, folds := range []int{0, 5} {
			t.Run(fmt.Sprintf("%s, %d folds", name, folds), func(t *testing.T) {
				empty := heap()
				s := newSums(incremental.DefaultFeatures(n), folds)
				var z incremental.Summariser
				var summary *incremental.Summary
				for range 20 {
					b := &incremental.Block{}
					for c := range classes {
						b.Classes, b.Codes = append(b.Classes, fmt.Sprint(c)), append(b.Codes, int32(c))
					}
					for range n {
						column := make([]float64, classes)
						for i := range column {
							column[i] = number()
						}
						b.Columns = append(b.Columns, gram.ColumnOf(column))
					}
					var err error
					if summary, err = z.Summarise(b); err != nil {
						t.Fatal(err)
					}
					s.of(summary.Digest()).Add(summary)
					s.window = s.window.Union(summary.Window())
				}
				s.total()
				bound := memory.Shape{Features: n, Classes: classes}.Summary()
				if got := float64(summary.Bytes()); got > 1.02*bound || got < 0.9*bound {
					t.Errorf("a summary takes %s, priced at %s", memory.Size(got), memory.Size(bound))
				}
				z, summary = incremental.Summariser{}, nil
				took := heap() - empty
				bounded := s.window
				s.measure()
				if s.most != classes || bounded.Union(s.window) != bounded {
					t.Errorf("%d classes in window %v, %d and %v were expected", s.most, s.window, classes, bounded)
				}
				price := memory.Shape{Features: n, Classes: classes, Window: bounded}.Sum()
				if folds > 0 {
					price *= float64(folds + 1)
				}
				if took > 1.05*price || took < price/2.5 {
					t.Errorf("sums take %s, priced at %s", memory.Size(took), memory.Size(price))
				}
				runtime.KeepAlive(s)
			})
		}
	}
}

// BenchmarkBlock is the cost of a block that comes and one that is retired, in the loop and
// in a worker, with and without a sample and folds. The sample has few rows of each block,
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
			l, _, err := Open(store, contents, liveConfig(c.folds, c.rows), roomy(liveConfig(c.folds, c.rows)), zerolog.Nop())
			if err != nil {
				b.Fatal(err)
			}
			l.Fix(make([]string, n))
			var t sample.Taker
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				var p *sample.Part
				if l.sample != nil {
					p = t.Take(block, [32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, s.Totals(), l.sample.Levels())
				}
				b.StartTimer()
				if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Time: time.UnixMilli(int64(i)), Rows: rows}, Kept{Summary: s, part: p}); err != nil {
					b.Fatal(err)
				}
				if i >= 2000 {
					if err := l.Remove(fmt.Sprint(i - 2000)); err != nil {
						b.Fatal(err)
					}
				}
				if l.sample != nil {
					if err := l.Look(10 * time.Millisecond); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkLift is a worker's cost for the decoded rows of a checkerboard message, in the
// features alone and in the coordinates of 40 points as well.
func BenchmarkLift(b *testing.B) {
	const rows = 10_000
	r := rand.New(rand.NewPCG(55, 1))
	x, y, codes := make([]float32, rows), make([]float32, rows), make([]int32, rows)
	for k := range rows {
		x[k], y[k] = float32(r.IntN(200)), float32(r.IntN(200))
		codes[k] = (int32(x[k]/50) + int32(y[k]/50)) & 1
	}
	block := &incremental.Block{Columns: []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}, Classes: []string{"-1", "1"}, Codes: codes}
	kernel, err := kernels.Gaussian(0.0005)
	if err != nil {
		b.Fatal(err)
	}
	z := make([]float64, 80)
	for i := range z {
		z[i] = 200 * r.Float64()
	}
	basis, err := kernels.NewMap(kernel, 2, z)
	if err != nil {
		b.Fatal(err)
	}
	in := &Target{use: newCoordinates(1, basis, nil, config.RegulariserIdentity)}
	var w Keeper
	b.Run("features", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.maker.Summarise(context.Background(), block); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("t=40", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.maker.Summarise(context.Background(), block); err != nil {
				b.Fatal(err)
			}
			if _, err := w.Summary(context.Background(), block, in.use); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
	})
}

// keep is what a live set keeps of a block of a row.
func keep(t testing.TB, l *Set, x ...float64) Kept {
	t.Helper()
	b := &incremental.Block{Classes: []string{"1"}, Codes: []int32{0}}
	for i := range x {
		b.Columns = append(b.Columns, gram.ColumnOf(x[i:i+1]))
	}
	k, err := new(Keeper).Keep(t.Context(), b, l.Target())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Progressive figures have sums of each partition beside those of the live set, and these have
// their price.
func TestPriceHasSumsOfPartitions(t *testing.T) {
	price := func(every, partitions int) float64 {
		cfg := liveConfig(0, 0)
		cfg.Drift.Every = every
		l := New(nil, cfg, roomy(cfg))
		l.Fix([]string{"x"})
		for i := range 3 {
			e := retire.Entry{ID: fmt.Sprint(i), Position: incremental.Position{Partition: i % partitions, Offset: int64(i)}, Time: time.UnixMilli(1), Rows: 1}
			if _, err := l.Add(e, keep(t, l, 2)); err != nil {
				t.Fatal(err)
			}
		}
		l.measure()
		return l.Price()
	}
	without, one, three := price(0, 1), price(1, 1), price(1, 3)
	if sum := one - without; sum <= 0 || three-without != 3*sum {
		t.Errorf("a live set costs %v, with sums of a partition %v, and of three %v", without, one, three)
	}
}

// Sums that come again with another header are another block: a selection may choose it by the
// header.
func TestSumsOfAnotherHeaderReplaceSums(t *testing.T) {
	cfg := liveConfig(0, 0)
	l := New(nil, cfg, roomy(cfg))
	l.Fix([]string{"x"})
	k := keep(t, l, 2)
	e := retire.Entry{
		ID: "a", Time: time.UnixMilli(1), Rows: 1, Header: retire.HashHeader("customer", []byte("one")), Carrier: retire.Carrier{Sums: true},
	}
	if _, err := l.Add(e, k); err != nil {
		t.Fatal(err)
	}
	again := e
	again.Carrier.Offset = 7
	if repeats, _, err := l.Repeats(&again, k.Summary); !repeats || err != nil {
		t.Errorf("the same sums in another record are another block: %v", err)
	}
	again.Header = retire.HashHeader("customer", []byte("two"))
	if repeats, _, err := l.Repeats(&again, k.Summary); repeats || err != nil {
		t.Errorf("sums of another header repeat those that are there: %v", err)
	}
}

// A block that the log does not return has left for good, and whoever keeps something of it learns
// so. One that is replaced has not.
func TestLostBlocksHaveLeft(t *testing.T) {
	cfg := liveConfig(0, 0)
	l := New(nil, cfg, roomy(cfg))
	l.Fix([]string{"x"})
	var left []string
	l.Left = func(id string) { left = append(left, id) }
	for _, id := range []string{"lost", "replaced"} {
		if _, err := l.Add(retire.Entry{ID: id, Time: time.UnixMilli(1), Rows: 1}, keep(t, l, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Lose("lost"), l.Remove("replaced")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"lost"}; l.Blocks() != 0 || !slices.Equal(left, want) {
		t.Errorf("%q have left, want %q; %d blocks are live", left, want, l.Blocks())
	}
}

// Workers compute the key of an item only for a block that is new: it takes long.
func TestItemKeysAreComputedOnce(t *testing.T) {
	l := asideSet(t, liveConfig(0, 0))
	id := retire.KeyID("customer")
	if l.Target().ItemKey(id) == (receipt.Hash{}) {
		t.Error("of a new block no key is computed")
	}
	if _, err := l.Add(retire.Entry{ID: id, Time: time.UnixMilli(1), Rows: 1}, keep(t, l, 2)); err != nil {
		t.Fatal(err)
	}
	if l.Target().ItemKey(id) != (receipt.Hash{}) {
		t.Error("the key of a live block is computed again")
	}
}

// Planes are never read off a space that lacks a block, not even one.
func TestNoSwitchToASpaceThatLacksABlock(t *testing.T) {
	l := asideSet(t, liveConfig(0, 20))
	if _, err := l.Add(retire.Entry{ID: "a", Time: time.UnixMilli(1), Rows: 1}, keep(t, l, 2)); err != nil {
		t.Fatal(err)
	}
	gaussian, err := kernels.Gaussian(1)
	if err != nil {
		t.Fatal(err)
	}
	basis, err := kernels.NewMap(gaussian, 1, []float64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	l.Choose()
	l.Begin(basis, &model.Reduction{}, config.RegulariserIdentity)
	defer func() {
		if recover() == nil || l.InUse() != l.Features() {
			t.Error("a space without a block is in use")
		}
	}()
	l.Switch()
}
