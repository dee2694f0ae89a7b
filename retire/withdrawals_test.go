package retire

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"streamd/incremental"
)

// randomSelection chooses by ids, offsets and times in every combination, mostly few blocks.
func randomSelection(r *rand.Rand, ids []string, offsets int64) *Selection {
	s := new(Selection)
	if r.IntN(2) == 0 {
		s.IDs = []string{"none"}
		for range r.IntN(4) {
			s.IDs = append(s.IDs, ids[r.IntN(len(ids))]) // some twice
		}
	}
	if r.IntN(4) == 0 {
		s.Headers = []HeaderHash{randomHeader(r), randomHeader(r)} // sometimes twice the same
	}
	if r.IntN(2) == 0 {
		s.Ranges = []Range{}
		for range r.IntN(4) {
			first := r.Int64N(offsets)
			s.Ranges = append(s.Ranges, Range{[]string{"t", "u"}[r.IntN(2)], r.IntN(4), first, first + r.Int64N(3)})
		}
	}
	half := time.Duration(r.IntN(2)) * 500 * time.Microsecond
	at := epoch.Add(time.Duration(r.IntN(50))*time.Second + half)
	if r.IntN(3) > 0 {
		s.From = at
	}
	if r.IntN(3) > 0 {
		s.To = at.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
	}
	return s
}

// naiveChoice lists the blocks that one of the selections chooses.
func naiveChoice(all []Entry, in map[string]*Selection) (ids []string) {
	for _, s := range in {
		ids = append(ids, naiveSelect(all, s)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func TestWithdrawalsAreTheNaiveChoice(t *testing.T) {
	chosen, all := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(22, seed))
		blocks := randomEntries(r, 40)
		var ids []string
		for i := range blocks {
			blocks[i].Last += r.Int64N(3)
			ids = append(ids, blocks[i].ID)
		}
		var w Withdrawals
		in := map[string]*Selection{}
		for range 30 {
			name := fmt.Sprint(r.IntN(8))
			s := randomSelection(r, ids, 40)
			if r.IntN(3) == 0 {
				s = nil
			}
			if was := w.Put(name, s); was != in[name] {
				t.Fatalf("seed %d: %v was under %s, want %v", seed, was, name, in[name])
			}
			if in[name] = s; s == nil {
				delete(in, name)
			}
			var got []string
			for i := range blocks {
				if w.Choose(&blocks[i]) {
					got = append(got, blocks[i].ID)
				}
			}
			slices.Sort(got)
			want := naiveChoice(blocks, in)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v are withdrawn, want %v", seed, got, want)
			}
			if w.Len() != len(in) {
				t.Fatalf("seed %d: %d selections, want %d", seed, w.Len(), len(in))
			}
			chosen, all = chosen+len(want), all+len(blocks)
		}
		for name := range in {
			w.Put(name, nil)
		}
		if w.Len() != 0 || w.Bytes() != 0 || len(w.byID) != 0 || len(w.byHeader) != 0 || len(w.wide) != 0 || w.Choose(&blocks[0]) {
			t.Fatalf("seed %d: %d selections, %d bytes and %d ids are left", seed, w.Len(), w.Bytes(), len(w.byID))
		}
	}
	if chosen < all/20 || chosen > all*9/10 {
		t.Errorf("%d of %d blocks were withdrawn", chosen, all)
	}
}

// The empty selection chooses all, and so does a withdrawal of it.
func TestWithdrawalOfEverything(t *testing.T) {
	var w Withdrawals
	e := Entry{ID: "a", Time: time.Time{}}
	w.Put("k", &Selection{})
	if !w.Choose(&e) {
		t.Error("it is not chosen")
	}
	w.Put("k", &Selection{Ranges: []Range{}})
	if w.Choose(&e) {
		t.Error("no range chooses it")
	}
}

// change is a step of a history: of the data, or of the withdrawals.
type change struct {
	add     *Entry // replaces a block of its id
	retire  string // a tombstone
	replace string // withdrawal of that name
	by      *Selection
}

// history is a ledger with its withdrawals. Its owner reads blocks again at once.
type history struct {
	*Ledger
	Withdrawals
}

func (h *history) apply(c change) {
	switch {
	case c.add != nil:
		h.Remove(c.add.ID)
		e := *c.add
		e.Withdrawn = h.Choose(&e)
		h.Add(e)
	case c.retire != "":
		h.Retire(c.retire)
	default:
		was := h.Put(c.replace, c.by)
		if c.by != nil {
			for _, e := range slices.Collect(h.Select(c.by)) {
				h.Withdraw(e.ID)
			}
		}
		if was != nil {
			for _, e := range h.SelectWithdrawn(was) {
				if !h.Choose(&e) {
					h.Return(e.ID)
				}
			}
		}
	}
}

// ids lists the live and the withdrawn blocks.
func (h *history) ids() (alive, withdrawn []string) {
	for _, e := range h.SelectWithdrawn(&Selection{}) {
		withdrawn = append(withdrawn, e.ID)
	}
	slices.Sort(withdrawn)
	return liveIDs(h.Ledger), withdrawn
}

// The live set is a function of the data and of the withdrawals in force: the ledger and its
// horizon are those without withdrawals, the live blocks are those that none chooses, and the
// order between data and withdrawals does not matter. Nor does a restart.
func TestLiveSetIsAFunctionOfDataAndWithdrawals(t *testing.T) {
	withdrawnAtAll := 0
	for _, policy := range policies {
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(23, seed))
			blocks := randomEntries(r, 30)
			var ids []string
			for i := range blocks { // the values of some keys
				if r.IntN(2) == 0 {
					blocks[i].ID = fmt.Sprint("key=", r.IntN(6))
				}
				ids = append(ids, blocks[i].ID)
			}
			var data, control []change
			for i := range blocks {
				if data = append(data, change{add: &blocks[i]}); r.IntN(6) == 0 {
					data = append(data, change{retire: ids[r.IntN(i+1)]})
				}
			}
			in := map[string]*Selection{}
			for range 12 {
				c := change{replace: fmt.Sprint(r.IntN(4))}
				if r.IntN(3) > 0 {
					c.by = randomSelection(r, ids, 30)
				}
				control = append(control, c)
				if in[c.replace] = c.by; c.by == nil {
					delete(in, c.replace)
				}
			}
			plain := NewLedger(policy)
			alone := history{Ledger: plain}
			for _, c := range data {
				alone.apply(c)
			}
			all := plain.Page(Lowest, plain.Len())
			want := naiveChoice(all, in)
			withdrawnAtAll += len(want)
			rest := slices.DeleteFunc(liveIDs(plain), func(id string) bool { return slices.Contains(want, id) })

			merged := func() (order []change) {
				d, c := data, control
				for len(d)+len(c) > 0 {
					if r.IntN(len(d)+len(c)) < len(d) {
						order, d = append(order, d[0]), d[1:]
					} else {
						order, c = append(order, c[0]), c[1:]
					}
				}
				return order
			}
			// Compaction leaves the latest record of each name, and those in any order.
			var compacted []change
			for _, name := range slices.Sorted(maps.Keys(in)) {
				compacted = append(compacted, change{replace: name, by: in[name]})
			}
			r.Shuffle(len(compacted), func(i, j int) { compacted[i], compacted[j] = compacted[j], compacted[i] })
			for which, order := range [][]change{
				slices.Concat(data, control), slices.Concat(control, data), slices.Concat(compacted, data), merged(), merged(),
			} {
				h := history{Ledger: NewLedger(policy)}
				restart := r.IntN(len(order))
				for i, c := range order {
					if i == restart {
						saved := slices.Concat(h.Page(Lowest, h.Ledger.Len()), h.SelectWithdrawn(&Selection{}))
						again := NewLedger(policy)
						if gone, err := again.Restore(h.Horizon(), saved); err != nil || len(gone) > 0 {
							t.Fatalf("restoring retires %v: %v", gone, err)
						}
						h.Ledger = again
					}
					h.apply(c)
				}
				alive, withdrawn := h.ids()
				if !slices.Equal(alive, rest) || !slices.Equal(withdrawn, want) || h.Horizon() != plain.Horizon() {
					t.Fatalf("%+v, seed %d, order %d: live %v, withdrawn %v, horizon %v; want %v, %v, %v",
						policy, seed, which, alive, withdrawn, h.Horizon(), rest, want, plain.Horizon())
				}
				if h.Ledger.Len() != len(rest) || h.Withdrawn() != len(want) {
					t.Fatalf("%d live and %d withdrawn", h.Ledger.Len(), h.Withdrawn())
				}
				for _, id := range want {
					if e, ok := h.Find(id); !ok || !e.Withdrawn {
						t.Fatalf("%s is not found as withdrawn", id)
					}
					if _, ok := h.Get(id); ok || h.Withdraw(id) {
						t.Fatalf("%s is live", id)
					}
				}
			}
		}
	}
	if withdrawnAtAll < 1000 {
		t.Errorf("%d blocks were withdrawn", withdrawnAtAll)
	}
}

// Bytes bounds the memory of many selections of one id or one range.
func TestBytesBoundMemory(t *testing.T) {
	const many = 20_000
	for name, selection := range map[string]func(i int) *Selection{
		"id": func(i int) *Selection { return &Selection{IDs: []string{fmt.Sprint("orders/3/", i)}} },
		"header": func(i int) *Selection {
			return &Selection{Headers: []HeaderHash{HashHeader("tenant", fmt.Append(nil, i))}}
		},
		"range": func(i int) *Selection { return &Selection{Ranges: []Range{{"orders", i % 7, int64(i), int64(2 * i)}}} },
		"time":  func(i int) *Selection { return &Selection{From: epoch.Add(time.Duration(i) * time.Second)} },
	} {
		used := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := used()
		w := new(Withdrawals)
		for i := range many {
			w.Put(fmt.Sprint("request-", i), selection(i))
		}
		w.Choose(&Entry{ID: "none", Position: incremental.Position{Topic: "orders", Offset: 5}, Last: 5, Time: epoch})
		if took, most := used()-before, w.Bytes(); took > most || took < most/20 {
			t.Errorf("%s: %d bytes, and Bytes is %d", name, took, most)
		}
		runtime.KeepAlive(w)
	}
}

// Choosing among many selections takes as long as among few.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		r := rand.New(rand.NewPCG(24, 1))
		var w Withdrawals
		for i := range n {
			first := int64(10 * i)
			s := &Selection{Ranges: []Range{{"t", i % 4, first, first + 3}}}
			if i%2 == 0 {
				s = &Selection{IDs: []string{fmt.Sprint("key=", i)}}
			}
			w.Put(fmt.Sprint(i), s)
		}
		w.Choose(&Entry{}) // makes the index
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				offset := r.Int64N(int64(10 * n))
				w.Choose(&Entry{ID: "key=5", Position: incremental.Position{Topic: "t", Partition: 1, Offset: offset}, Last: offset, Time: epoch})
			}
		})
	}
}
