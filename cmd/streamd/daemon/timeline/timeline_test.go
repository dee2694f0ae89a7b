package timeline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// summaryOf returns the summary of a block of some rows.
func summaryOf(t testing.TB, r *rand.Rand) *incremental.Summary {
	t.Helper()
	m := 1 + r.IntN(3)
	b := &incremental.Block{Classes: []string{"a", "b"}, Codes: make([]int32, m)}
	for i := range b.Codes {
		b.Codes[i] = int32(r.IntN(2))
	}
	for range 2 {
		x := make([]float64, m)
		for i := range x {
			x[i] = r.NormFloat64() * 1e3
		}
		b.Columns = append(b.Columns, gram.ColumnOf(x))
	}
	s, err := new(incremental.Summariser).Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var features = []string{"x", "y"}

// check compares the index with its own nodes: counts, bounds and the memory of kept sums.
func (x *Index) check(t *testing.T) {
	t.Helper()
	blocks, nodes, bytes := 0, 0, 0
	var visit func(n *node, level int)
	visit = func(n *node, level int) {
		nodes++
		bytes += n.bytes
		count := len(n.blocks)
		blocks += count
		for _, b := range n.blocks {
			if b.Last > n.last {
				t.Fatalf("a block until %d below a node until %d", b.Last, n.last)
			}
		}
		if !n.inner && level > 0 && count > x.capacity {
			t.Fatalf("a leaf of %d blocks, above %d", count, x.capacity)
		}
		for _, c := range n.children {
			if c != nil {
				if !n.inner || c.last > n.last {
					t.Fatal("a child of a leaf, or beyond its parent")
				}
				visit(c, level-1)
				count += c.count
			}
		}
		if count != n.count || count == 0 {
			t.Fatalf("%d blocks below a node that counts %d", count, n.count)
		}
	}
	for _, n := range x.lines {
		visit(n, keyBits)
	}
	if blocks != x.blocks || nodes != x.nodes || bytes != x.bytes || bytes > x.most {
		t.Fatalf("%d blocks, %d nodes, %d bytes of %d; counted %d, %d, %d", x.blocks, x.nodes, x.bytes, x.most, blocks, nodes, bytes)
	}
}

// The sum of any window, at any time, is that of its blocks added one by one, with and without
// room for sums, also where blocks have come and gone since the sums that are kept were planned.
func TestWindowsOfRandomHistories(t *testing.T) {
	whole, planned, known := 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(31, seed))
		most := []int{0, 5000, 1 << 30}[seed%3]
		x := New(1+r.IntN(8), most)
		type entry struct {
			Line
			Block
		}
		live := map[string]entry{}
		summaries := map[string]*incremental.Summary{}
		read := func(id string) (*incremental.Summary, error) { return summaries[id], nil }
		at := int64(r.IntN(1000)) - 500
		spread := []int64{1, 4, 1000, 1 << 40}[r.IntN(4)]
		ids := map[string]string{} // the blocks of plans, by window and ID
		var late *Plan             // is kept after more changes
		for step := range 150 {
			switch {
			case len(live) > 0 && r.IntN(3) == 0:
				for id, e := range live { // any
					x.Remove(e.Line, e.Block)
					x.Remove(e.Line, e.Block) // no more
					delete(live, id)
					if r.IntN(10) > 0 {
						break
					}
				}
			default:
				at += r.Int64N(spread)
				first := at - r.Int64N(3)*r.Int64N(spread)
				id := fmt.Sprint("b", step)
				e := entry{Line{"t", r.IntN(2)}, Block{id, first, first + r.Int64N(2)*r.Int64N(spread), at + r.Int64N(5*spread)}}
				live[id], summaries[id] = e, summaryOf(t, r)
				x.Add(e.Line, e.Block)
				x.Add(e.Line, e.Block) // is there
			}
			if late != nil && r.IntN(2) == 0 {
				x.Keep(late)
				late = nil
			}
			x.check(t)
			if x.Len() != len(live) {
				t.Fatalf("seed %d: %d blocks, want %d", seed, x.Len(), len(live))
			}
			if r.IntN(3) > 0 {
				continue
			}
			var window []Range
			var times *Times
			if r.IntN(2) == 0 {
				begin := at - r.Int64N(20*spread)
				times = &Times{begin, begin + r.Int64N(30*spread)}
			}
			for range 1 + r.IntN(4) { // they may overlap
				from := at - r.Int64N(30*spread)
				to := from + r.Int64N(30*spread)
				if r.IntN(6) == 0 {
					from, to = -1<<63, 1<<63-1
				}
				window = append(window, Range{Line{"t", r.IntN(2)}, from, to})
			}
			var names []string
			want := incremental.NewState(features)
			for id, e := range live {
				if times != nil && (e.Time < times.First || e.Time > times.Last) {
					continue
				}
				if slices.ContainsFunc(window, func(w Range) bool { return w.Line == e.Line && e.First <= w.Last && e.Last >= w.First }) {
					names = append(names, id)
					want.Add(summaries[id])
				}
			}
			slices.Sort(names)
			for tries := 0; ; tries++ {
				p := x.Plan(window, times, 1+r.IntN(10))
				planned++
				unread := 0
				p.EachUnread(func(string) { unread++ })
				if unread != p.Unread || tries > len(live)+1 {
					t.Fatalf("seed %d: %d unread blocks, %d by count, in plan %d", seed, unread, p.Unread, tries)
				}
				sum, err := p.Evaluate(features, math.MaxInt, read)
				if err != nil {
					t.Fatal(err)
				}
				if late == nil && p.Whole && r.IntN(2) == 0 {
					late = p
				} else {
					x.Keep(p)
				}
				x.check(t)
				if p.Blocks != len(names) {
					t.Fatalf("seed %d: %d blocks, want %v", seed, p.Blocks, names)
				}
				is := fmt.Sprint(window, times, p.ID)
				if had, ok := ids[is]; ok && had != fmt.Sprint(names) {
					t.Fatalf("seed %d: plans of %s and %v have one ID", seed, had, names)
				}
				ids[is] = fmt.Sprint(names)
				if !p.Whole {
					continue
				}
				whole++
				if p.Unread == 0 && len(names) > 0 {
					known++
				}
				if sum.Digest() != want.Digest() {
					t.Fatalf("seed %d, step %d: the sum of %v is another one", seed, step, names)
				}
				break
			}
		}
	}
	if whole < 1000 || planned < whole+whole/10 || known < 30 {
		t.Errorf("%d windows in %d plans, %d without a summary: the test does not reach what it should", whole, planned, known)
	}
}

// With all sums kept, a window takes few parts, and no more than the leaves at its ends are read.
func TestWindowTakesFewParts(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 1))
	const blocks, leaf = 1 << 14, 16
	x := New(leaf, 1<<30)
	s := summaryOf(t, r)
	read := func(string) (*incremental.Summary, error) { return s, nil }
	for i := range int64(blocks) {
		at := 1_700_000_000_000 + 1000*i
		x.Add(Line{}, Block{fmt.Sprint(i), at, at, at + r.Int64N(10_000)}) // nearly in the order of times
	}
	all := []Range{{First: -1 << 63, Last: 1<<63 - 1}}
	rounds := 0
	for ; ; rounds++ {
		p := x.Plan(all, nil, 1000)
		if _, err := p.Evaluate(features, math.MaxInt, read); err != nil {
			t.Fatal(err)
		}
		if x.Keep(p); p.Whole {
			break
		}
	}
	if rounds > blocks/500 {
		t.Errorf("the index was filled in %d rounds of 1000 blocks", rounds)
	}
	for range 300 {
		from := 1_700_000_000_000 + r.Int64N(1000*blocks)
		p := x.Plan([]Range{{First: from, Last: from + r.Int64N(1000*blocks)}}, nil, 1)
		if !p.Whole || p.Unread > 2*leaf || len(p.Parts) > 2*14+1 {
			t.Fatalf("%d blocks: %d parts, %d are read", p.Blocks, len(p.Parts), p.Unread)
		}
		p = x.Plan(all, &Times{from, from + r.Int64N(1000*blocks)}, 1)
		if !p.Whole || p.Unread > 8*leaf || len(p.Parts) > 4*14+1 {
			t.Fatalf("%d blocks by times: %d parts, %d are read", p.Blocks, len(p.Parts), p.Unread)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	x := New(128, 1<<30)
	i := int64(0)
	for b.Loop() {
		x.Add(Line{}, Block{fmt.Sprint(i), 1000 * i, 1000 * i, 1000 * i})
		i++
	}
}
