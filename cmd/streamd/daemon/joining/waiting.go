package joining

import "github.com/tidwall/btree"

// Overhead is an upper bound of the bytes that an id takes in a table, beside its values and twice
// the id itself.
const Overhead = 480

// index says in which trees an item is.
type index struct{ held, due, spent bool }

// waiting is what may be let go, and what waits for the horizon.
type waiting struct {
	held  *btree.BTreeG[byTime] // rows with values, and labels without rows
	due   *btree.BTreeG[byTime] // rows that wait, and labels without rows, whose horizon has not passed
	spent *btree.BTreeG[byTime] // expired rows, where late labels are dropped
	bytes int64                 // of held
	all   [states]int64
	late  int64 // items with a label that does not count, since it is late
	over  int64 // overdue labels
}

func newWaiting() waiting { return waiting{held: newTree(), due: newTree(), spent: newTree()} }

// time is the event time by which an item is old.
func (it *item) time() int64 {
	if it.hasRow {
		return it.row.Time
	}
	return it.label.Time
}

// bytes is what an item takes.
func (it *item) bytes() int64 {
	return Overhead + 2*int64(len(it.id)) + int64(len(it.label.Class)) + 8*int64(cap(it.row.Values)) + it.row.Given.bytes()
}

// enter counts an item, and puts it where it waits.
func (t *Table) enter(it *item) {
	w := &t.waiting
	w.all[it.state]++
	t.given.count(it, 1)
	if it.hasRow && it.hasLabel && it.state != Joined {
		w.late++
	}
	if it.overdue {
		w.over++
	}
	at := byTime{it.time(), it}
	if it.hasRow && it.row.Values != nil && !it.state.Live() || !it.hasRow && it.hasLabel {
		it.is.held = true
		w.held.Set(at)
		w.bytes += it.bytes()
	}
	if t.rules.Horizon > 0 && (it.state == Waiting && it.hasRow || it.state == Early && it.hasLabel && !it.overdue) {
		it.is.due = true
		w.due.Set(at)
	}
	if t.rules.DropLate && it.state == Expired {
		it.is.spent = true
		w.spent.Set(at)
	}
}

// leave is the inverse of enter. It comes before an item changes.
func (t *Table) leave(it *item) {
	w := &t.waiting
	w.all[it.state]--
	t.given.count(it, -1)
	if it.hasRow && it.hasLabel && it.state != Joined {
		w.late--
	}
	if it.overdue {
		w.over--
	}
	at := byTime{it.time(), it}
	if it.is.held {
		w.held.Delete(at)
		w.bytes -= it.bytes()
	}
	if it.is.due {
		w.due.Delete(at)
	}
	if it.is.spent {
		w.spent.Delete(at)
	}
	it.is = index{}
}

// Bytes is what the rows and labels that wait take.
func (t *Table) Bytes() int64 { return t.waiting.bytes }

// Advance moves the clock to that of a partition, if it is later.
func (t *Table) Advance(clock int64) {
	if clock > t.clock {
		t.clock, t.moved = clock, true
	}
}

// Clock is the latest clock of any partition, in ms. ok is false before there is one.
func (t *Table) Clock() (ms int64, ok bool) { return t.clock, t.clock != lowest }

// Due is an id whose horizon has passed, or that other rules judge otherwise. Pass says what
// becomes of it.
func (t *Table) Due() (id string, ok bool) {
	if len(t.stale) > 0 {
		return t.stale[0], true
	}
	first, ok := t.waiting.due.Min()
	if !ok || !t.hasPassed(first.time) {
		return "", false
	}
	return first.id, true
}

// Pass judges the id that Due has returned. One that has nothing any more is not live.
func (t *Table) Pass(id string) (v Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.stale) > 0 && t.stale[0] == id {
		t.stale = t.stale[1:]
	}
	it := t.items[id]
	if it == nil {
		return v
	}
	t.leave(it)
	it.overdue = t.hasPassed(it.label.Time)
	return t.settle(it)
}

// Fit lets the oldest go of what waits until it has room, and expired rows of which nothing can
// come: passed is the earliest clock of the partitions of labels, ms, or the least number.
func (t *Table) Fit(passed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.waiting
	for first, ok := w.spent.Min(); ok && passed > first.time+2*t.rules.Horizon; first, ok = w.spent.Min() {
		t.letGo(first.item)
	}
	for first, ok := w.held.Min(); ok && w.bytes > t.rules.Room; first, ok = w.held.Min() {
		t.letGo(first.item)
	}
}

// letGo forgets the row of an item that waits, or the label of one without a row. A late label of
// the row stays, for the next row of the id.
func (t *Table) letGo(it *item) {
	b := &t.books
	t.leave(it)
	switch {
	case it.state == Waiting:
		b.LetGo++
	case it.state == Expired:
		b.Expired++
	default:
		b.Unmatched++
		it.hasLabel = false
	}
	it.row, it.hasRow, it.counted = Row{}, false, false
	it.overdue = it.hasLabel && t.hasPassed(it.label.Time)
	t.settle(it)
}
