package retire

import (
	"cmp"
	"math"
	"slices"

	"streamd/incremental"
)

// Withdrawals are the selections in force, each under a name. A block is withdrawn if one of
// them chooses it, whenever it comes (see the package comment). They are the same set in
// whatever order different names were put.
//
// The zero Withdrawals has none. It is not safe for concurrent use, Choose included.
type Withdrawals struct {
	named map[string]*withdrawal
	// Each withdrawal is in one of these.
	byID     map[string][]*withdrawal     // that list ids
	byHeader map[HeaderHash][]*withdrawal // that list headers, and no ids
	wide     map[*withdrawal]struct{}     // the others
	bytes    int64

	// Indexes of wide, made anew by the first Choose after it has changed.
	indexed bool
	offsets map[incremental.Position]intervals // by partition (offset 0): those with ranges
	times   intervals                          // ms since 1970: the others
}

// withdrawal is a selection in force.
type withdrawal struct {
	selection *Selection
	criteria
}

// Put puts a selection in force in place of the one under the name, and returns the latter,
// or nil. With nil it only takes that one back. It keeps s, which must not change any more.
// It takes O(ids and headers). Without any, the next Choose takes O(w log w) for the w
// selections without any.
func (w *Withdrawals) Put(name string, s *Selection) (was *Selection) {
	if former := w.named[name]; former != nil {
		was = former.selection
		w.bytes -= bytesOf(name, was)
		w.drop(name, former)
	}
	if s == nil {
		return was
	}
	if w.named == nil {
		w.named, w.wide = map[string]*withdrawal{}, map[*withdrawal]struct{}{}
		w.byID, w.byHeader = map[string][]*withdrawal{}, map[HeaderHash][]*withdrawal{}
	}
	x := &withdrawal{s, criteriaOf(s)}
	w.named[name] = x
	w.bytes += bytesOf(name, s)
	switch {
	case s.IDs != nil:
		link(w.byID, s.IDs, x)
	case s.Headers != nil:
		link(w.byHeader, s.Headers, x)
	default:
		w.wide[x], w.indexed = struct{}{}, false
	}
	return was
}

// link puts a withdrawal under each of the keys, once.
func link[K comparable](by map[K][]*withdrawal, keys []K, x *withdrawal) {
	for _, key := range keys {
		if !slices.Contains(by[key], x) {
			by[key] = append(by[key], x)
		}
	}
}

// unlink removes it from all of them.
func unlink[K comparable](by map[K][]*withdrawal, keys []K, x *withdrawal) {
	for _, key := range keys {
		rest := slices.DeleteFunc(by[key], func(y *withdrawal) bool { return y == x })
		if by[key] = rest; len(rest) == 0 {
			delete(by, key)
		}
	}
}

// drop removes a selection from everything that finds it.
func (w *Withdrawals) drop(name string, x *withdrawal) {
	delete(w.named, name)
	switch s := x.selection; {
	case s.IDs != nil:
		unlink(w.byID, s.IDs, x)
	case s.Headers != nil:
		unlink(w.byHeader, s.Headers, x)
	default:
		delete(w.wide, x)
		w.indexed = false
	}
}

// Len is the number of selections.
func (w *Withdrawals) Len() int { return len(w.named) }

// Bytes is an upper bound of their memory.
func (w *Withdrawals) Bytes() int64 { return w.bytes }

// bytesOf is an upper bound of the memory of a selection under a name, with its places in the
// maps and the index. Maps and lists may have twice the room that they need.
func bytesOf(name string, s *Selection) int64 {
	const each, perID, perRange = 1 << 10, 512, 256
	n := each + int64(len(name)) + perID*int64(len(s.Headers))
	for _, id := range s.IDs {
		n += perID + int64(len(id))
	}
	for _, r := range s.Ranges {
		n += perRange + int64(len(r.Topic))
	}
	return n
}

// Choose reports whether a selection chooses the block. It takes O(log w) for w selections,
// and the time to look at those that list its id or its header, that have a range with one of
// its offsets, or that have none of these and whose span of time has its event time.
func (w *Withdrawals) Choose(e *Entry) bool {
	chosen := func(x *withdrawal) bool { return x.meet(e) }
	if slices.ContainsFunc(w.byID[e.ID], chosen) || slices.ContainsFunc(w.byHeader[e.Header], chosen) {
		return true
	}
	if len(w.wide) == 0 {
		return false
	}
	if !w.indexed {
		w.index()
	}
	at := e.Time.UnixMilli()
	partition := incremental.Position{Topic: e.Position.Topic, Partition: e.Position.Partition}
	return w.times.any(at, at, chosen) || w.offsets[partition].any(e.Position.Offset, e.Last, chosen)
}

// index makes the indexes anew.
func (w *Withdrawals) index() {
	w.indexed, w.offsets, w.times = true, map[incremental.Position]intervals{}, intervals{}
	for x := range w.wide {
		if x.spans == nil {
			// The bounds are rounded down, and so are the times of blocks. So the interval has
			// the times of all blocks that x may choose.
			first, last := int64(math.MinInt64), int64(math.MaxInt64)
			if !x.from.IsZero() {
				first = x.from.UnixMilli()
			}
			if !x.to.IsZero() {
				last = x.to.UnixMilli()
			}
			w.times.all = append(w.times.all, interval{first: first, last: last, of: x})
			continue
		}
		for partition, ranges := range x.spans {
			in := w.offsets[partition]
			for _, r := range ranges {
				in.all = append(in.all, interval{first: r.First, last: r.Last, of: x})
			}
			w.offsets[partition] = in
		}
	}
	w.times.build()
	for partition, in := range w.offsets {
		in.build()
		w.offsets[partition] = in
	}
}

// intervals finds those of its intervals that meet another one. They lie in ascending order
// of their first numbers, as the nodes of a balanced tree: the root is in the middle, and the
// halves before and after it are its subtrees.
type intervals struct{ all []interval }

type interval struct {
	first, last int64 // both included
	highest     int64 // last of its subtree
	of          *withdrawal
}

func (x *intervals) build() {
	slices.SortFunc(x.all, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	highest(x.all)
}

// highest sets the highest numbers of a subtree and returns that of its root.
func highest(tree []interval) int64 {
	if len(tree) == 0 {
		return math.MinInt64
	}
	root := len(tree) / 2
	tree[root].highest = max(tree[root].last, highest(tree[:root]), highest(tree[root+1:]))
	return tree[root].highest
}

// any reports whether chosen is true of an interval that meets first to last. It calls chosen
// until then.
func (x intervals) any(first, last int64, chosen func(*withdrawal) bool) bool {
	return anyOf(x.all, first, last, chosen)
}

func anyOf(tree []interval, first, last int64, chosen func(*withdrawal) bool) bool {
	if len(tree) == 0 {
		return false
	}
	root := len(tree) / 2
	r := &tree[root]
	switch {
	case r.highest < first:
		return false
	case anyOf(tree[:root], first, last, chosen):
		return true
	case r.first > last:
		return false
	}
	return r.last >= first && chosen(r.of) || anyOf(tree[root+1:], first, last, chosen)
}
