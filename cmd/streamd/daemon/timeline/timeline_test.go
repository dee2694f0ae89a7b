package timeline

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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

// check compares the index with its own nodes: counts, bounds and the memory of kept sums, each of
// which counts once.
func (x *Index) check(t *testing.T) {
	t.Helper()
	blocks, nodes, bytes := 0, 0, 0
	sums := map[*incremental.State]bool{}
	var visit func(n *node, level int)
	visit = func(n *node, level int) {
		nodes++
		bytes += n.bytes
		if n.sum != nil {
			sums[n.sum] = true
		}
		count := len(n.blocks)
		blocks += count
		for _, b := range n.blocks {
			if b.Last > n.last || b.Time < n.earliest || b.Time > n.latest {
				t.Fatalf("a block %+v below a node of the bounds %+v", b, n.bounds)
			}
		}
		if !n.inner && level > 0 && count > x.capacity {
			t.Fatalf("a leaf of %d blocks, above %d", count, x.capacity)
		}
		for _, c := range n.children {
			if c != nil {
				if !n.inner || c.last > n.last || c.earliest < n.earliest || c.latest > n.latest {
					t.Fatal("a child of a leaf, or beyond its parent")
				}
				visit(c, level-1)
				count += c.count
			}
		}
		if count != n.count || count == 0 || n.inner && count <= x.capacity/2 {
			t.Fatalf("%d blocks below a node that counts %d", count, n.count)
		}
	}
	for _, n := range x.lines {
		visit(n, keyBits)
	}
	own := 0
	for sum := range sums {
		own += sum.Bytes()
	}
	if own != bytes || x.Bytes() != 80*blocks+144*nodes+own {
		t.Fatalf("%d bytes of sums, %d of all, but sums of %d bytes are kept", bytes, x.Bytes(), own)
	}
	if blocks != x.blocks || nodes != x.nodes || bytes != x.bytes || bytes > x.most {
		t.Fatalf("%d blocks, %d nodes, %d bytes of %d; counted %d, %d, %d", x.blocks, x.nodes, x.bytes, x.most, blocks, nodes, bytes)
	}
}

// ideal is what a plan has by definition. The nodes of the trie that have nothing but the window's
// blocks, whatever their keys are, are taken whole, the topmost ones. The blocks of other leaves
// are looked at one by one, if the leaf may have any in the window. In id are the versions of both,
// in the order of keys. unsummed are the blocks of leaves that are taken whole and lack their sum,
// and loose those that are read anyway.
type ideal struct {
	id                      string
	blocks, unsummed, loose int
	leaves                  int // of the unsummed blocks
}

func (x *Index) ideal(window []Range, times *Times) (is ideal) {
	in := func(line Line, b *Block) bool {
		return (times == nil || b.Time >= times.First && b.Time <= times.Last) && slices.ContainsFunc(window, func(w Range) bool {
			return w.Line == line && b.First <= w.Last && b.Last >= w.First
		})
	}
	note := func(n *node) { is.id += string(binary.LittleEndian.AppendUint64(nil, n.changed)) }
	var lacks func(n *node) int
	lacks = func(n *node) (blocks int) {
		if n.sum != nil {
			return 0
		}
		if blocks = len(n.blocks); blocks > 0 {
			is.leaves++
		}
		for _, c := range n.children {
			if c != nil {
				blocks += lacks(c)
			}
		}
		return blocks
	}
	lines := slices.SortedFunc(maps.Keys(x.lines), func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, line := range lines {
		var visit func(n *node, path string)
		visit = func(n *node, path string) {
			bits := (path + strings.Repeat("0", 64))[:64]
			least, _ := strconv.ParseUint(bits, 2, 64)
			bits = (path + strings.Repeat("1", 64))[:64]
			most, _ := strconv.ParseUint(bits, 2, 64)
			first, last := int64(least^1<<63), int64(most^1<<63)
			among := func(is func(w Range) bool) bool {
				return slices.ContainsFunc(window, func(w Range) bool { return w.Line == line && is(w) })
			}
			whole := among(func(w Range) bool { return w.First <= first && first <= w.Last })
			for _, w := range window { // another range overlaps one that ends within the node
				if w.Line == line && w.Last >= first && w.Last < last {
					whole = whole && among(func(next Range) bool { return next.First <= w.Last && w.Last < next.Last })
				}
			}
			some := among(func(w Range) bool { return first <= w.Last && n.last >= w.First })
			if times != nil {
				whole = whole && times.First <= n.earliest && n.latest <= times.Last
				some = some && times.First <= n.latest && n.earliest <= times.Last
			}
			switch {
			case !some:
			case whole:
				note(n)
				is.blocks += n.count
				is.unsummed += lacks(n)
			case n.inner:
				for bit, c := range n.children {
					if c != nil {
						visit(c, path+strconv.Itoa(bit))
					}
				}
			default:
				note(n)
				for i := range n.blocks {
					if in(line, &n.blocks[i]) {
						is.blocks++
						is.loose++
					}
				}
			}
		}
		visit(x.lines[line], "")
	}
	return is
}

// lacking lists the parts without a sum.
func lacking(parts []*Part) (all []*Part) {
	for _, p := range parts {
		if p.Sum == nil {
			all = append(append(all, p), lacking(p.Parts)...)
		}
	}
	return all
}

// largest is the size of the largest sum that the plan's evaluation has made.
func largest(made []*Part, p *Plan, sum *incremental.State) (bytes int) {
	for _, part := range made {
		if len(part.Parts) != 1 { // else it is that of its part
			bytes = max(bytes, part.Sum.Bytes())
		}
	}
	if len(p.Parts) != 1 {
		bytes = max(bytes, sum.Bytes())
	}
	return bytes
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
				atOnce := 1 + r.IntN(10)
				best, full := x.ideal(window, times), x.full
				p := x.Plan(window, times, atOnce)
				planned++
				switch reads := best.loose + best.unsummed; {
				case p.Whole && (p.ID != best.id || p.Blocks != best.blocks || p.Unread != reads):
					t.Fatalf("seed %d: a plan of %d blocks that reads %d, and not of %d that reads %d: %x, %x", seed, p.Blocks, p.Unread, best.blocks, reads, p.ID, best.id)
				case p.Whole != (full || best.unsummed <= atOnce || best.leaves == 1):
					t.Fatalf("seed %d: a plan is whole: %t, of %d blocks without a sum, %d at once", seed, p.Whole, best.unsummed, atOnce)
				case !p.Whole && (p.Unread == 0 || p.Unread > max(atOnce, x.capacity) || p.Unread >= best.unsummed):
					t.Fatalf("seed %d: %d blocks of a part of a plan of %d, %d at once", seed, p.Unread, best.unsummed, atOnce)
				}
				for _, part := range p.Parts {
					if !p.Whole && part.Sum != nil {
						t.Fatalf("seed %d: a part of a plan needs no sum", seed)
					}
				}
				unread := 0
				p.EachUnread(func(string) { unread++ })
				if unread != p.Unread || tries > len(live)+1 {
					t.Fatalf("seed %d: %d unread blocks, %d by count, in plan %d", seed, unread, p.Unread, tries)
				}
				lacking := lacking(p.Parts)
				sum, err := p.Evaluate(features, math.MaxInt, read)
				if err != nil {
					t.Fatal(err)
				}
				if largest := largest(lacking, p, sum); largest > 0 && r.IntN(4) == 0 {
					if _, err := x.Plan(window, times, atOnce).Evaluate(features, largest, read); err != nil {
						t.Fatalf("seed %d: sums of up to %d bytes: %v", seed, largest, err)
					}
					if _, err := x.Plan(window, times, atOnce).Evaluate(features, largest-1, read); !errors.Is(err, ErrLarge) {
						t.Fatalf("seed %d: a sum of %d bytes, one too many: %v", seed, largest, err)
					}
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

// An index without room for sums makes whole plans of any size. A change of blocks that have no sum
// makes no room.
func TestPlansWithoutRoomForSums(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 1))
	x := New(4, 0)
	s := summaryOf(t, r)
	read := func(string) (*incremental.Summary, error) { return s, nil }
	for i := range int64(200) {
		x.Add(Line{}, Block{fmt.Sprint(i), i, i, i})
	}
	all := []Range{{First: -1 << 63, Last: 1<<63 - 1}}
	p := x.Plan(all, nil, 10)
	if p.Whole {
		t.Fatal("the index knows that there is no room before a sum needs it")
	}
	if _, err := p.Evaluate(features, math.MaxInt, read); err != nil {
		t.Fatal(err)
	}
	x.Keep(p)
	for i := range int64(200) {
		x.Add(Line{}, Block{fmt.Sprint("new", i), i, i, i})
		if p := x.Plan(all, nil, 10); !p.Whole || p.Blocks != 201+int(i) {
			t.Fatalf("after %d changes a plan of %d blocks is whole: %t", i+1, p.Blocks, p.Whole)
		}
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
