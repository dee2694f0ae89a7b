package retire

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"streamd/incremental"
)

var epoch = time.UnixMilli(1_700_000_000_000)

func randomEntries(r *rand.Rand, n int) []Entry {
	out := make([]Entry, n)
	for i := range out {
		p := incremental.Position{Topic: "t", Partition: r.IntN(4), Offset: int64(i)}
		out[i] = Entry{
			ID: p.String(), Position: p, Last: p.Offset,
			Time: epoch.Add(time.Duration(r.IntN(50)) * time.Second), // many equal
			Rows: int64(r.IntN(30)), Header: randomHeader(r),
		}
	}
	return out
}

// oracle lists the blocks that a policy keeps, from all blocks at once.
func oracle(p Policy, all []Entry) []string {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Entry) int { return b.Rank().Compare(a.Rank()) }) // newest first
	var keep []string
	var rows int64
	for i, e := range sorted {
		rows += e.Rows
		if p.Blocks > 0 && i >= p.Blocks ||
			p.Rows > 0 && rows > p.Rows ||
			p.Age > 0 && e.Time.Before(sorted[0].Time.Add(-p.Age)) {
			break
		}
		keep = append(keep, e.ID)
	}
	slices.Sort(keep)
	return keep
}

func liveIDs(l *Ledger) []string {
	var ids []string
	for _, e := range l.Page(Lowest, math.MaxInt) {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

var policies = []Policy{{}, {Blocks: 1}, {Blocks: 7}, {Rows: 1}, {Rows: 60}, {Age: time.Second}, {Age: 17 * time.Second},
	{Blocks: 9, Rows: 120}, {Blocks: 12, Age: 17 * time.Second}, {Rows: 150, Age: 20 * time.Second}, {Blocks: 14, Rows: 180, Age: 25 * time.Second}}

func TestLiveSetIsAFunctionOfTheBlocksSeen(t *testing.T) {
	for _, policy := range policies {
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(1, seed))
			blocks := randomEntries(r, 1+r.IntN(40))
			want := oracle(policy, blocks)
			r.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
			l := NewLedger(policy)
			in := map[string]bool{}
			restart := r.IntN(len(blocks))
			for i, e := range blocks {
				if i == restart {
					again := NewLedger(policy)
					retired, err := again.Restore(l.Horizon(), l.Page(Lowest, math.MaxInt))
					if err != nil || len(retired) > 0 {
						t.Fatalf("restoring retires %v: %v", retired, err)
					}
					l = again
				}
				in[e.ID] = true
				for _, gone := range l.Add(e) {
					if !in[gone.ID] {
						t.Fatalf("%s is retired twice or was never in", gone.ID)
					}
					delete(in, gone.ID)
				}
			}
			if got := liveIDs(l); !slices.Equal(got, want) {
				t.Fatalf("%+v, seed %d: live %v, want %v", policy, seed, got, want)
			}
			var rows int64
			for _, e := range blocks {
				if in[e.ID] {
					rows += e.Rows
					if got, ok := l.Get(e.ID); !ok || got != e {
						t.Fatalf("%s: %v", e.ID, got)
					}
				} else if _, ok := l.Get(e.ID); ok {
					t.Fatalf("%s is live after it was retired", e.ID)
				}
			}
			if l.Rows() != rows || l.Len() != len(in) {
				t.Fatalf("%d rows in %d blocks, want %d in %d", l.Rows(), l.Len(), rows, len(in))
			}
		}
	}
}

// One block of a later time pushes out all others at once, however many.
func TestAddRetiresAllAtOnce(t *testing.T) {
	const blocks = 1000
	l := NewLedger(Policy{Age: time.Hour})
	all := randomEntries(rand.New(rand.NewPCG(9, 9)), blocks+1)
	for _, e := range all[:blocks] {
		l.Add(e)
	}
	last := all[blocks]
	last.Time = epoch.Add(24 * time.Hour)
	if gone := len(l.Add(last)); gone != blocks || l.Len() != 1 {
		t.Errorf("%d of %d blocks are retired, %d are live", gone, blocks, l.Len())
	}
}

func TestRemoveByID(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	blocks := randomEntries(r, 50)
	l := NewLedger(Policy{Blocks: 30})
	for _, e := range blocks {
		l.Add(e)
	}
	for _, id := range liveIDs(l) {
		e, ok := l.Remove(id)
		if !ok || e.ID != id {
			t.Fatalf("%s: %v, %t", id, e, ok)
		}
		if _, ok := l.Remove(id); ok {
			t.Fatalf("%s is removed twice", id)
		}
	}
	if l.Len() != 0 || l.Rows() != 0 {
		t.Errorf("%d blocks with %d rows are left", l.Len(), l.Rows())
	}
	// The blocks that the policy evicted stay out, though there is room now.
	for _, e := range blocks {
		if gone := l.Add(e); l.admits(e.Rank()) != (len(gone) == 0) {
			t.Errorf("%s: %v", e.ID, gone)
		}
	}
	if l.Len() != 30 {
		t.Errorf("%d blocks are back, want 30", l.Len())
	}
}

// After an explicit retirement the ledger equals one that has seen the live blocks alone.
func TestRetireForgetsWhatTheBlockDid(t *testing.T) {
	for _, policy := range policies {
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(7, seed))
			blocks := randomEntries(r, 40)
			l := NewLedger(policy)
			for _, e := range blocks[:20] {
				l.Add(e)
			}
			ids := liveIDs(l)
			if len(ids) == 0 {
				continue
			}
			if _, ok := l.Retire(ids[r.IntN(len(ids))]); !ok {
				t.Fatal("a live block is not retired")
			}
			fresh := NewLedger(policy)
			for _, e := range l.Page(Lowest, math.MaxInt) {
				fresh.Add(e)
			}
			for _, e := range blocks[20:] {
				l.Add(e)
				fresh.Add(e)
			}
			if !slices.Equal(liveIDs(l), liveIDs(fresh)) || l.Horizon() != fresh.Horizon() {
				t.Fatalf("%+v, seed %d: live %v above %v, want %v above %v", policy, seed, liveIDs(l), l.Horizon(), liveIDs(fresh), fresh.Horizon())
			}
		}
	}
}

// What the policy has let go, or refused, for a block stays away when that block is retired: the
// live set is not always that of a ledger that never saw it.
func TestWhatWasLetGoDoesNotComeBack(t *testing.T) {
	at := func(id string, minute int64) Entry {
		return Entry{ID: id, Rows: 1, Time: time.UnixMilli(60_000 * minute), Position: incremental.Position{Topic: "t", Offset: minute}}
	}
	with, without := NewLedger(Policy{Blocks: 2}), NewLedger(Policy{Blocks: 2})
	for _, e := range []Entry{at("b", 2), at("c", 3), at("d", 4), at("a", 1)} { // d evicts b, and a is refused
		with.Add(e)
		if e.ID != "d" {
			without.Add(e)
		}
	}
	with.Retire("d")
	if got, want := liveIDs(with), liveIDs(without); !slices.Equal(got, []string{"c"}) || !slices.Equal(want, []string{"b", "c"}) {
		t.Errorf("live %v, and %v without the retired block", got, want)
	}
}

// Blocks of 2100 have evicted all others. Once they are retired, blocks of today are
// accepted.
func TestRetireOfBlocksOfTheFuture(t *testing.T) {
	for _, policy := range []Policy{{Blocks: 3}, {Rows: 30}, {Age: time.Hour}} {
		l := NewLedger(policy)
		add := func(name string, i int, at time.Time) []Entry {
			p := incremental.Position{Topic: name, Offset: int64(i)}
			return l.Add(Entry{ID: p.String(), Position: p, Time: at, Rows: 10})
		}
		for i := range 10 {
			add("today", i, epoch.Add(time.Duration(i)*time.Second))
		}
		for i := range 10 {
			add("future", i, time.Date(2100, 1, 1, 0, 0, i, 0, time.UTC))
		}
		if gone := add("today", 10, epoch.Add(time.Minute)); len(gone) != 1 {
			t.Fatalf("%+v: the blocks of 2100 hold nothing up", policy)
		}
		for _, id := range liveIDs(l) {
			l.Retire(id)
		}
		if gone := add("today", 11, epoch.Add(2*time.Minute)); len(gone) > 0 {
			t.Errorf("%+v: a block of today is refused above %v", policy, l.Horizon())
		}
	}
}

func TestPages(t *testing.T) {
	l := NewLedger(Policy{})
	for _, e := range randomEntries(rand.New(rand.NewPCG(3, 3)), 95) {
		l.Add(e)
	}
	var ids []string
	above := Lowest
	for {
		page := l.Page(above, 10)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Rank().Compare(above) <= 0 {
				t.Fatal("pages are out of order")
			}
			above = e.Rank()
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	if !slices.Equal(ids, liveIDs(l)) || len(ids) != 95 {
		t.Errorf("paging gives %d of 95 blocks", len(ids))
	}
}

func TestRestoreUnderAnotherPolicy(t *testing.T) {
	blocks := randomEntries(rand.New(rand.NewPCG(4, 4)), 20)
	l := NewLedger(Policy{Blocks: 5})
	retired, err := l.Restore(Lowest, blocks)
	if err != nil || len(retired) != 15 || !slices.Equal(liveIDs(l), oracle(Policy{Blocks: 5}, blocks)) {
		t.Errorf("retired %d, %v", len(retired), err)
	}
	if _, err := NewLedger(Policy{}).Restore(Rank{}, append(blocks, blocks[3])); err == nil {
		t.Error("a block that is there twice is accepted")
	}
}

func TestPanics(t *testing.T) {
	for name, do := range map[string]func(){
		"negative limit": func() { NewLedger(Policy{Rows: -1}) },
		"live twice": func() {
			l := NewLedger(Policy{})
			l.Add(Entry{ID: "a"})
			l.Add(Entry{ID: "a"})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			do()
		}()
	}
}

func BenchmarkAddAtTheEnd(b *testing.B) {
	for _, live := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			l := NewLedger(Policy{Blocks: live})
			i := int64(0)
			for b.Loop() {
				l.Add(Entry{ID: fmt.Sprint(i), Position: incremental.Position{Offset: i}, Time: epoch})
				i++
			}
		})
	}
}

func BenchmarkReplaceAnywhere(b *testing.B) {
	for _, live := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			r := rand.New(rand.NewPCG(5, 5))
			l := NewLedger(Policy{})
			entry := func(i int) Entry {
				return Entry{ID: fmt.Sprint(i), Position: incremental.Position{Offset: int64(i)}, Time: epoch.Add(time.Duration(r.IntN(1e6)) * time.Millisecond)}
			}
			var all []Entry
			for i := range live {
				all = append(all, entry(i))
			}
			if _, err := l.Restore(Lowest, all); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				i := r.IntN(live)
				l.Remove(all[i].ID)
				l.Add(entry(i))
			}
		})
	}
}

// A start with the entries of a file, which come ordered by id.
func BenchmarkRestore(b *testing.B) {
	const blocks = 200_000
	entries := make([]Entry, blocks)
	for i := range entries {
		at := incremental.Position{Topic: "orders", Partition: i % 4, Offset: int64(i)}
		entries[i] = Entry{ID: at.String(), Position: at, Last: at.Offset, Time: epoch.Add(time.Duration(i/100) * time.Millisecond), Rows: 1}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewLedger(Policy{}).Restore(Lowest, entries); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}
