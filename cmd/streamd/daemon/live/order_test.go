package live

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Blocks of a file come back in the order of the features that is configured, live and archived
// ones: their sums are those of blocks whose columns stand in that order. Blocks with weights keep
// the order of the file where none is configured, and are an error where one is. Where other
// features are wanted, live blocks must be read again, and others are dropped.
func TestFeaturesInAnotherOrder(t *testing.T) {
	for _, c := range []struct {
		name      string
		was, then []string // format.features
		weighted  bool
		alive     bool // a block is live; the others are archived
		want      []string
		err, log  string
		archived  int
	}{
		{"by name", []string{"x10", "x2"}, nil, false, true, []string{"x2", "x10"}, "", "put into another order", 2},
		{"as configured", nil, []string{"x10", "x2"}, false, true, []string{"x10", "x2"}, "", "put into another order", 2},
		{"no change", nil, []string{"x2", "x10"}, false, true, []string{"x2", "x10"}, "", "", 2},
		{"weighted by name", []string{"x10", "x2"}, nil, true, true, []string{"x10", "x2"}, "", "stay in the order that the snapshot has", 2},
		{"weighted as configured", nil, []string{"x10", "x2"}, true, true, nil, "rows have weights", "", 0},
		{"archived alone, weighted", []string{"x10", "x2"}, nil, true, false, []string{"x10", "x2"}, "", "stay in the order", 3},
		{"archived alone", []string{"x10", "x2"}, nil, false, false, []string{"x2", "x10"}, "", "put into another order", 3},
		{"archived alone, others", nil, []string{"x2", "x3"}, false, false, []string{"x2", "x3"}, "", "the features are others", 0},
		{"too many", nil, nil, false, true, nil, "limits.features is 1", "", 0},
	} {
		path := filepath.Join(t.TempDir(), "streamd.db")
		cfg := liveConfig(3, 0)
		cfg.Retire.Archive, cfg.Retire.Blocks = true, 1
		cfg.Format.Features = c.was
		open := func(log zerolog.Logger) (*Set, *snapshot.Store, error) {
			store, contents, err := snapshot.Open(path, snapshot.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			l, _, err := Open(store, contents, cfg, roomy(cfg), log)
			return l, store, err
		}
		l, store, err := open(zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		names := Wanted([]string{"x2", "x10"}, cfg.Format)
		l.Fix(names)
		var z Keeper
		columns := map[string][]float64{"x2": {1, 2, 5}, "x10": {3, 3, 7}, "x3": nil}
		block := func(i int, order []string) *incremental.Block {
			b := &incremental.Block{Classes: []string{"a", "b"}, Codes: []int32{0, 1, 1}}
			if c.weighted {
				b.Weights = []float64{1, 2, 0.5}
			}
			for _, name := range order {
				x := slices.Clone(columns[name])
				x[0] += float64(i)
				b.Columns = append(b.Columns, gram.ColumnOf(x))
			}
			return b
		}
		for i := range 3 {
			k, err := z.Keep(t.Context(), block(i, names), l.Target())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Time: time.UnixMilli(int64(i)), Rows: k.Summary.Rows()}, k); err != nil {
				t.Fatal(err)
			}
		}
		if !c.alive {
			if d, err := l.RetireTogether([]string{"2"}, nil); d != nil || err != nil {
				t.Fatal(d, err)
			}
			k, err := z.Keep(t.Context(), block(2, names), l.Target())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 { // the later one lets the earlier one go, and is retired
				if _, err := l.Add(retire.Entry{ID: fmt.Sprint(2 + i), Time: time.UnixMilli(int64(2 + i)), Rows: 3}, k); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Retire("3"); err != nil {
				t.Fatal(err)
			}
		}
		save(t, l, store)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.Format.Features = c.then
		if strings.HasPrefix(c.err, "limits") {
			cfg.Limits.Features = 1
		}
		var log bytes.Buffer
		l, store, err = open(zerolog.New(&log))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.name, err)
			}
			store.Close()
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if (c.log == "") != (log.Len() == 0) || !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: the log says %s", c.name, &log)
		}
		alive, archived := incremental.NewState(c.want), incremental.NewState(c.want)
		for i := range 3 {
			if c.archived == 0 {
				break
			}
			s, err := new(incremental.Summariser).Summarise(block(i, c.want))
			if err != nil {
				t.Fatal(err)
			}
			if i == 2 && c.alive {
				alive.Add(s)
			} else {
				archived.Add(s)
			}
		}
		got := incremental.NewState(c.want)
		for _, e := range l.ArchivedBlocks(retire.Lowest, 10) {
			s, err := l.archivedSummary(e.ID)
			if err != nil {
				t.Fatal(err)
			}
			got.Add(s)
		}
		if !slices.Equal(l.Features().Names(), c.want) || l.Digest() != DigestOf(alive) || l.Archived() != c.archived || DigestOf(got) != DigestOf(archived) {
			t.Errorf("%s: features %q, want %q; %d blocks are live and %d archived, or other sums", c.name, l.Features().Names(), c.want, l.Blocks(), l.Archived())
		}
		save(t, l, store)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := snapshot.Verify(t.Context(), path, nil); err != nil || !report.OK || report.Archived != int64(c.archived) {
			t.Errorf("%s: %+v, %v", c.name, report, err)
		}
	}
}

// Features that are wanted follow the configuration, and a file of live blocks that have others
// must be read again.
func TestWantedFeatures(t *testing.T) {
	for _, c := range []struct {
		names  []string
		format config.Format
		want   []string
	}{
		{[]string{"x10", "x2", "a"}, config.Format{}, []string{"a", "x2", "x10"}},
		{[]string{"x10", "x2", "a"}, config.Format{Ignore: []string{"x*"}}, []string{"a"}},
		{[]string{"a", "a missing", "b"}, config.Format{}, []string{"a", "b"}},
		{[]string{"a", "c missing", "b"}, config.Format{}, []string{"a", "b", "c missing"}},
		{[]string{"b", "a"}, config.Format{Features: []string{"z", "y"}}, []string{"z", "y"}},
		{[]string{"b", "a"}, config.Format{Missing: config.MissingIndicator}, []string{"a", "a missing", "b", "b missing"}},
	} {
		if got := Wanted(c.names, c.format); !slices.Equal(got, c.want) {
			t.Errorf("of %q %q are wanted, not %q", c.names, got, c.want)
		}
	}
	for _, c := range []struct {
		from, wanted []string
		want         []int
	}{
		{[]string{"a", "b"}, []string{"b", "a"}, []int{1, 0}}, {[]string{"a", "b"}, []string{"a"}, nil},
		{[]string{"a"}, []string{"a", "b"}, nil}, {[]string{"a", "b"}, []string{"a", "c"}, nil}, {nil, nil, []int{}},
	} {
		if got := places(c.from, c.wanted); (got == nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%q in %q are at %v, not %v", c.wanted, c.from, got, c.want)
		}
	}
	of := func(entries int, names ...string) *snapshot.Contents {
		return &snapshot.Contents{Entries: make([]retire.Entry, entries), Spaces: []snapshot.SpaceContents{{State: incremental.NewState(names)}}}
	}
	for _, c := range []struct {
		saved  *snapshot.Contents
		format config.Format
		want   []string
	}{
		{of(1, "b", "a"), config.Format{}, nil}, {of(1, "b", "a"), config.Format{Ignore: []string{"a"}}, []string{"b", "a"}},
		{of(0, "b", "a"), config.Format{Ignore: []string{"a"}}, nil}, {of(1, "b", "a"), config.Format{Features: []string{"a", "b"}}, nil},
	} {
		if got := FormerFeatures(c.saved, c.format); !slices.Equal(got, c.want) {
			t.Errorf("%+v: former features %q, want %q", c.format, got, c.want)
		}
	}
}

// Blocks that wait for a save have room for 32 MiB, or as much as the sums take, and an eighth of
// the free memory at most. A save is urgent when as many blocks wait as fit, with the pages that
// they are written on.
func TestRoomForBlocks(t *testing.T) {
	const features = 40
	for _, limit := range []int64{8 << 30, 60 << 20, 40 << 20} {
		l, _ := openSet(t, 0, func(cfg *config.Config) *memory.Budget { return memory.New(cfg, limit) })
		l.Fix(incremental.DefaultFeatures(features))
		b := &incremental.Block{Classes: []string{"a", "b"}, Codes: []int32{0, 1}}
		for j := range features {
			b.Columns = append(b.Columns, gram.ColumnOf([]float64{1, float64(j)}))
		}
		k, err := new(Keeper).Keep(t.Context(), b, l.Target())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Add(retire.Entry{ID: "1", Rows: 2}, k); err != nil {
			t.Fatal(err)
		}
		numbers := 2 * (features + 1) * (features + 2) / 2
		free := l.budget.Room() - l.Price()
		room := max(1, int64(min(max(32<<20, float64(32*numbers)), free/8)))
		if got := l.RoomBytes(); got != room {
			t.Errorf("%d bytes of memory leave %d bytes, want %d", limit, got, room)
		}
		block := 1<<10 + 8*numbers
		for _, wrote := range []struct{ bytes, blocks, page int }{{0, 0, 4 * (block + 4096)}, {1 << 20, 100, 1 << 20 / 100}, {5 << 20, 1, 4 * (block + 4096)}, {7, 0, 4 * (block + 4096)}} {
			l.Wrote(int64(wrote.bytes), wrote.blocks)
			if want := max(1, int(room)/max(block, wrote.page/4)); l.Room() != want {
				t.Errorf("%d bytes of memory and %d bytes of a block: %d blocks may wait, want %d", limit, wrote.page, l.Room(), want)
			}
		}
	}
}

// A receipt says whether the points of a basis may have rows of its blocks: one of them is a
// source, or a source has left before.
func TestReceiptsNameTheBasis(t *testing.T) {
	for _, stale := range []bool{false, true} {
		for ids, based := range map[string]bool{"0": true, "3": false, "2 3": true, "3 4": false, "4 1 5": true} {
			l, store := openSet(t, 1000, roomy)
			key, _, _, err := receipt.OpenKey(filepath.Join(t.TempDir(), "receipts.key"), "t")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.KeepReceipts(key); err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(66, 1))
			var z Keeper
			add := func(i int) {
				k, err := z.Keep(t.Context(), randomBlock(r), l.Target())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Rows: k.Summary.Rows()}, k); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 {
				add(i)
			}
			gaussian, err := kernels.Gaussian(1)
			if err != nil {
				t.Fatal(err)
			}
			basis, err := kernels.NewMap(gaussian, 2, []float64{0, 0, 1, 1})
			if err != nil {
				t.Fatal(err)
			}
			l.Choose()
			l.Begin(basis, &model.Reduction{}, config.RegulariserIdentity)
			l.Chosen()
			for i := 3; i < 7; i++ {
				add(i)
			}
			add(9)
			if stale {
				if err := l.Retire("1"); err != nil {
					t.Fatal(err)
				}
				add(1) // no source any more
			}
			for i := range 10 {
				id := fmt.Sprint(i)
				if want := i < 3 && !(stale && i == 1); l.InBasis(id) != want {
					t.Errorf("block %s is a source: %t", id, !want)
				}
			}
			l.TakeDepartures()
			save(t, l, store)
			few := strings.Fields(ids)
			d, err := l.RetireTogether(few, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := based || stale; d.Based != want {
				t.Errorf("blocks %q, stale: %t: of the basis: %t", ids, stale, d.Based)
			}
			again := stale || based
			if err := l.Lose("9"); err != nil {
				t.Fatal(err)
			}
			if all := l.TakeDepartures(); len(all) != 1 || all[0].Based != again {
				t.Errorf("then a block that is no source, after %q, stale: %t: %+v", ids, stale, all)
			}
		}
	}
}

// A block is admitted while the sums of its features and classes have room, also where it would be
// the first.
func TestAdmissionByMemory(t *testing.T) {
	l, _ := openSet(t, 0, func(cfg *config.Config) *memory.Budget {
		cfg.Limits.Classes = 100
		return memory.New(cfg, 64<<20)
	})
	l.Fix(nil)
	labels := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(i))
		}
		return all
	}
	for _, c := range []struct {
		features, classes int
		fits              bool
	}{{3, 2, true}, {3, 50, true}, {3000, 2, false}, {40, 2, true}, {600, 60, false}} {
		err := l.Admits(Candidate{Labels: labels(c.classes), Features: c.features})
		var limit memory.LimitError
		if errors.As(err, &limit) != !c.fits || err != nil && c.fits {
			t.Errorf("%d features of %d classes: %v", c.features, c.classes, err)
		}
		l.measure() // as if it had not come
	}
}

// The coordinates of a basis have the kernel as regulariser where that is configured.
func TestRegulariserOfABasis(t *testing.T) {
	gaussian, err := kernels.Gaussian(1)
	if err != nil {
		t.Fatal(err)
	}
	basis, err := kernels.NewMap(gaussian, 2, []float64{0, 0, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	for by, want := range map[config.Regulariser]bool{config.RegulariserKernel: true, config.RegulariserIdentity: false} {
		c := newCoordinates(7, basis, &model.Reduction{}, by)
		if m := c.Moments(incremental.NewState(c.Names)); (m.Regulariser() != nil) != want || c.Size() != 2 || c.space().Number != 7 {
			t.Errorf("%v: %d coordinates with a regulariser: %t", by, c.Size(), m.Regulariser() != nil)
		}
	}
}
