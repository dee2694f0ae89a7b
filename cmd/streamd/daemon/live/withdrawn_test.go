package live

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// sumOf is the sum of a window, or nil without a block.
func sumOf(t testing.TB, l *Set, w Window) *incremental.State {
	t.Helper()
	for {
		if ready, err := l.Index(w.Order); err != nil {
			t.Fatal(err)
		} else if !ready {
			continue
		}
		c, err := l.Cut(w)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := c.Sum(t.Context())
		if err = l.EndCut(c, err); err != nil {
			t.Fatal(err)
		}
		if c.Blocks == 0 {
			return nil
		}
		if c.Whole {
			return sum
		}
	}
}

// Blocks come and go while selections are put in force and taken back, in any order, with
// saves that fail, and restarts. When all due blocks have been read again, the sums are those
// of the blocks that no selection chooses, bit for bit, and the file has both kinds. With a policy
// and an archive, blocks come in any order of their times, and the sums are those of the past:
// the live and the archived blocks together are those of a set that keeps all.
func TestSumsAreThoseOfBlocksThatNoSelectionChooses(t *testing.T) {
	withdrawn, given, let, late := 0, 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(41, seed))
		path := filepath.Join(t.TempDir(), "streamd.db")
		cfg := liveConfig(3, 20)
		cfg.Retire.Archive = seed >= 30
		var store *snapshot.Store
		var l *Set
		in := map[string]*retire.Selection{} // in force
		open := func() {
			var contents *snapshot.Contents
			var err error
			if store, contents, err = snapshot.Open(path, snapshot.Settings{}); err != nil {
				t.Fatal(err)
			}
			if cfg.Retire.Archive { // the policy may be another one
				cfg.Retire.Blocks = 1 + r.IntN(8)
			}
			if l, _, err = Open(store, contents, cfg, roomy(cfg), zerolog.Nop()); err != nil {
				t.Fatal(err)
			}
			// The topic is read again, in another order of names. It has records that later ones
			// take back.
			alive := l.Digest()
			for range 2 {
				l.Withdraw(fmt.Sprint(r.IntN(3)), &retire.Selection{From: time.UnixMilli(r.Int64N(200))})
			}
			for _, i := range r.Perm(3) {
				name := fmt.Sprint(i)
				l.Withdraw(name, in[name])
			}
			if w, err := l.FollowWithdrawals(); err != nil || w != (Withdrawal{}) || l.Digest() != alive {
				t.Fatalf("seed %d: a restart withdraws %+v: %v", seed, w, err)
			}
			if !l.HasPlaces() {
				l.Fix([]string{"x1", "x2"})
			}
		}
		open()
		var z Keeper
		blocks := map[string]*incremental.Block{} // live, withdrawn or archived
		entries := map[string]retire.Entry{}
		keep := func(id string) Kept {
			k, err := z.Keep(context.Background(), blocks[id], l.Target())
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		save := func(known bool) {
			c := l.Change()
			c.SavedAt = time.UnixMilli(1)
			if _, err := store.Save(c); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if known {
				l.Saved(&c)
			} else {
				l.NotSaved(&c)
			}
		}
		var flight *snapshot.Change // a save under way
		var ready *snapshot.Prepared
		giveBack := func() {
			for _, e := range l.Due() {
				if ok, err := l.GiveBack(e, keep(e.ID)); err != nil || !ok {
					t.Fatalf("seed %d: block %s is not given back: %v", seed, e.ID, err)
				}
				given++
			}
		}
		ids := func() []string { return slices.Sorted(maps.Keys(entries)) }
		// compare compares the window of all blocks with those that no selection chooses.
		compare := func() (want *incremental.State, alive, out []string) {
			var w retire.Withdrawals
			for name, s := range in {
				w.Put(name, s)
			}
			want = incremental.NewState([]string{"x1", "x2"})
			for _, id := range ids() {
				if e := entries[id]; w.Choose(&e) {
					out = append(out, id)
					continue
				}
				alive = append(alive, id)
				want.Add(keep(id).Summary)
			}
			if past := sumOf(t, l, all); past != nil && DigestOf(past) != DigestOf(want) || past == nil && len(alive) > 0 {
				t.Errorf("seed %d: the window of all is not the sum of the blocks that no selection chooses", seed)
			}
			return want, alive, out
		}
		for step := range 200 {
			switch k := r.IntN(20); {
			case k < 8:
				id := fmt.Sprint(r.IntN(15))
				b := &incremental.Block{Classes: []string{"-1", "1"}}
				x, y := []float64{}, []float64{}
				for range 1 + r.IntN(20) {
					x, y, b.Codes = append(x, r.Float64()), append(y, r.Float64()), append(b.Codes, int32(r.IntN(2)))
				}
				b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
				blocks[id] = b
				e := retire.Entry{ID: id, Position: incremental.Position{Topic: "t", Offset: int64(step)}, Last: int64(step), Time: time.UnixMilli(int64(step)).UTC(), Rows: int64(len(x))}
				if cfg.Retire.Archive {
					e.Time = time.UnixMilli(r.Int64N(200)).UTC()
				}
				o, err := l.Add(e, keep(id))
				if err != nil {
					t.Fatal(err)
				}
				entries[id] = e
				if o.Refused {
					late++
				}
			case k < 10 && len(entries) > 0:
				id := ids()[r.IntN(len(entries))]
				out := l.Remove
				if r.IntN(2) == 0 {
					out = l.Retire
				}
				if err := out(id); err != nil {
					t.Fatal(err)
				}
				delete(entries, id)
			case k < 14:
				name := fmt.Sprint(r.IntN(3))
				var s *retire.Selection
				switch r.IntN(5) {
				case 0:
					s = &retire.Selection{IDs: []string{fmt.Sprint(r.IntN(15)), fmt.Sprint(r.IntN(15))}}
				case 1:
					first := r.Int64N(200)
					s = &retire.Selection{Ranges: []retire.Range{{Topic: "t", First: first, Last: first + r.Int64N(40)}}}
				case 2:
					s = &retire.Selection{From: time.UnixMilli(r.Int64N(200)), IDs: []string{fmt.Sprint(r.IntN(15))}}
				}
				w, err := l.Withdraw(name, s)
				if err != nil {
					t.Fatal(err)
				}
				withdrawn += w.Blocks + w.Archived
				if in[name] = s; s == nil {
					delete(in, name)
				}
			case k == 14:
				giveBack()
				compare()
			case k < 17 && flight == nil:
				c := l.Change()
				c.SavedAt = time.UnixMilli(1)
				var err error
				if ready, err = store.Prepare(c); err != nil {
					t.Fatal(err)
				}
				flight = &c
			case k < 19 && flight != nil:
				if r.IntN(4) == 0 {
					l.NotSaved(flight)
				} else {
					if _, err := ready.Save(); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					l.Saved(flight)
				}
				flight = nil
			case k == 19 && flight == nil:
				save(r.IntN(2) == 0) // it may be written, and count as failed
				save(true)
				if l.Unsaved() > 0 {
					t.Fatalf("seed %d: %d blocks are unsaved", seed, l.Unsaved())
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				open()
			}
		}
		if flight != nil {
			l.NotSaved(flight)
		}
		giveBack()
		want, alive, out := compare()
		let += l.Archived()
		if !cfg.Retire.Archive && l.Digest() != DigestOf(want) {
			t.Errorf("seed %d: the sums are not those of the blocks that no selection chooses", seed)
		}
		digest := l.Features().Total().Digest()
		save(true)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := snapshot.Verify(t.Context(), path, nil); err != nil || !report.OK || report.Saved != digest || report.Archived != int64(l.Archived()) {
			t.Fatalf("seed %d: %+v, %v", seed, report, err)
		}
		store, contents, err := snapshot.OpenReadOnly(path)
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
		named := func(withdrawn bool) (ids []string) {
			for _, e := range slices.Concat(contents.Entries, contents.Withdrawn, contents.Archived) {
				if e.Withdrawn == withdrawn {
					ids = append(ids, e.ID)
				}
			}
			slices.Sort(ids)
			return ids
		}
		if got := named(false); !slices.Equal(got, alive) {
			t.Errorf("seed %d: live or archived in the file are %v, want %v", seed, got, alive)
		}
		if got := named(true); !slices.Equal(got, out) {
			t.Errorf("seed %d: withdrawn in the file are %v, want %v", seed, got, out)
		}
	}
	if let < 50 || late < 100 {
		t.Errorf("%d blocks are archived at the end, and %d came late", let, late)
	}
	if withdrawn < 200 || given < 100 {
		t.Errorf("%d blocks were withdrawn, and %d given back", withdrawn, given)
	}
}

// A live block that grows and then is not live any more has a receipt, whether a selection chooses
// it by its new time or the policy lets it go for its new rows.
func TestReceiptOfABlockThatGrows(t *testing.T) {
	for _, c := range []struct {
		by   *retire.Selection
		rows int64 // retire.rows
		want receipt.Kind
	}{
		{&retire.Selection{From: time.UnixMilli(5)}, 0, receipt.Withdrawn},
		{nil, 5, receipt.Expired},
	} {
		cfg := liveConfig(0, 0)
		cfg.Retire.Rows = c.rows
		store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		key, _, _, err := receipt.OpenKey(filepath.Join(t.TempDir(), "receipts.key"), "t")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.KeepReceipts(key); err != nil {
			t.Fatal(err)
		}
		l.Fix([]string{"x"})
		if _, err := l.FollowWithdrawals(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Withdraw("k", c.by); err != nil {
			t.Fatal(err)
		}
		var z Keeper
		add := func(id string, at, rows int) {
			b := &incremental.Block{Classes: []string{"1"}, Codes: make([]int32, rows), Columns: []gram.Column{gram.ColumnOf(make([]float64, rows))}}
			k, err := z.Keep(t.Context(), b, l.Target())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Add(retire.Entry{ID: id, Time: time.UnixMilli(int64(at)), Rows: int64(rows)}, k); err != nil {
				t.Fatal(err)
			}
		}
		add("a", 3, 2)
		add("b", 4, 2)
		if left := l.TakeDepartures(); left != nil || l.Blocks() != 2 {
			t.Fatalf("%d blocks, %v", l.Blocks(), left)
		}
		at := 3
		if c.by != nil {
			at = 5
		}
		add("a", at, 4)
		left := l.TakeDepartures()
		if c.by != nil { // it was live with fewer rows, and none of the receipts has it with the new ones
			if len(left) != 2 || left[1].Kind != receipt.Excluded || left[1].Blocks != 1 || left[1].Rows != 4 {
				t.Fatalf("the receipts are %+v, want one of an excluded block", left)
			}
			left = left[:1]
		}
		if len(left) != 1 || left[0].Kind != c.want || left[0].Blocks != 1 || left[0].Rows != 2 || !left[0].Latest.Equal(time.UnixMilli(3)) || l.Blocks() != 1 {
			t.Errorf("the receipts are %+v, want one of kind %v; %d blocks are live", left, c.want, l.Blocks())
		}
		if c.by == nil {
			// One that grows twice, in turn, and one that comes back and grows.
			add("b", 4, 3)
			add("b", 5, 4)
			add("d", 6, 5)
			if left = l.TakeDepartures(); len(left) != 1 || left[0].Kind != receipt.Expired || left[0].Blocks != 1 || left[0].Rows != 2 || !left[0].Latest.Equal(time.UnixMilli(4)) {
				t.Errorf("the receipts are %+v, want one of the block as it was saved", left)
			}
		}
		if c.by != nil {
			// The selection is taken back, and a start reads the run of the block again.
			if _, err := l.Withdraw("k", nil); err != nil {
				t.Fatal(err)
			}
			add("a", 5, 4)
			if left = l.TakeDepartures(); len(left) != 1 || left[0].Kind != receipt.Restored || left[0].Blocks != 1 || left[0].Rows != 4 || l.Blocks() != 2 || len(l.Due()) > 0 {
				t.Errorf("the receipts are %+v, want one of the restored block; %d blocks are live", left, l.Blocks())
			}
		}
		if gone := l.Uncompacted().IsZero(); gone == (c.want == receipt.Withdrawn) {
			t.Errorf("%v: nothing can be read off the file: %v", c.want, gone)
		}
	}
}

// Selections may take a quarter of the memory of the live set.
func TestSelectionsHaveRoom(t *testing.T) {
	l, _ := openSet(t, 0, func(cfg *config.Config) *memory.Budget { return memory.New(cfg, 128<<20) })
	room := l.budget.Room() / 4
	for i := range 1000 {
		ids := make([]string, 5000)
		for k := range ids {
			ids[k] = fmt.Sprintf("t/%d/%d", i, k)
		}
		_, err := l.Withdraw(fmt.Sprint("0/", i), &retire.Selection{IDs: ids})
		if takes := float64(l.withdrawals.Bytes()); (err != nil) != (takes > room) {
			t.Fatalf("selections of %.0f bytes of %.0f: %v", takes, room, err)
		} else if err != nil {
			if i < 5 || !strings.Contains(err.Error(), "raise limits.memory") {
				t.Errorf("after %d selections: %v", i, err)
			}
			return
		}
	}
	t.Error("no selection was too large")
}
