// Package joining joins rows and labels that come later, by id.
//
//	topic of rows ────> row of an id ───┐
//	                                    ├──> what the block of the id is
//	topic of labels ──> label of an id ─┘
//
//	joining.go   the table, and the rule
//	waiting.go   what waits: for its partner, for the horizon, for room
//	given.go     answers that were given before the labels came
//	books.go     what has become of all rows and labels
//	record.go    the table in the snapshot
//
// # The rule
//
// The table has the latest row and the latest label of each id. Mostly all records of an id are in
// one partition of each topic, and the latest is the last one there. Where ids are fields of
// records that any partition may have (Rules.ByTime), it is the one of the latest event time, and
// of equal ones that of the higher partition and offset. Within a record the last row counts.
//
// Both have an event time. What the block of an id is depends on these two, on the horizon and on
// the clock, whichever came first:
//
//	joined      there are both, and the label counts: a live block of the label's class
//	defaulted   no label counts, the horizon has passed, and there is a default: a live block of it
//	waiting     no label counts yet
//	expired     no label counts, the horizon has passed, and there is no default
//	early       there is no row
//
// The horizon has passed when the clock is later than the row's time and the horizon. A label whose
// time is later than that is late. Where late labels are dropped, it does not count, whenever it is
// read: its own time decides, not the clock. The clock is the latest that the clock of any
// partition of the two topics has been. So the live set is a function of the two logs up to the
// positions that were read, whatever the order in which their partitions were read, and however
// often the daemon has begun anew.
//
// # What is kept
//
// A row that waits is kept with its values. A row that is live is not: the summary of its block is
// that of one row, from which the row comes back exactly
// (incremental.Summary.OnlyRow). So the rows of live blocks stay where they are, are forgotten with
// their blocks, and no place has a second copy. A corrected label reads the row from there.
//
// A block that the control topic retires has no summary. Its row is in the log alone, and its label
// here: when it is given back it is read from the log, and gets the label of that time.
//
// A block that is retired otherwise takes its row along. The label of its id stays, and a later one
// does not bring the row back: only a new row does.
//
// # Room
//
// What waits takes Overhead bytes for each id, the id, and 8 for each value. The whole of it is
// bounded (Rules.Room), and the oldest by event time goes first: a row that is let go is as if it
// had never come, and so is a label. Ids of live blocks are priced with the live set (package
// memory).
//
// Where late labels are dropped, nothing can come of an expired row but by a label that is in time
// and is read late. It is let go when the clocks of all partitions of labels have passed its
// horizon twice: then such a label would be out of its order by more than a horizon.
//
// A Table belongs to one goroutine, but Class may be called from any.
package joining

import (
	"cmp"
	"sync"

	"github.com/tidwall/btree"

	"streamd/retire"
)

// Rules say what counts.
type Rules struct {
	Horizon  int64  // ms of event time that a row waits; 0: as long as there is room
	Default  string // class of a row without a label after the horizon; empty: none
	DropLate bool   // a label that is later than the horizon does not count
	ByTime   bool   // the latest row and label of an id are so by event time: see the package comment
	Room     int64  // bytes of what waits
}

// Row is the latest row of an id.
type Row struct {
	Partition int
	Offset    int64
	Time      int64 // event time by which it counts, ms since 1970
	Header    retire.HeaderHash
	Values    []float64 // nil while its block is live, or withdrawn
	Weight    float64   // > 0
	Given     *Given    // the remembered prediction that it is the row of; nil: it is none
}

// Label is the latest label of an id.
type Label struct {
	Class     string
	Time      int64 // event time by which it counts, ms since 1970
	Partition int
	Offset    int64
}

// State is what the block of an id is.
type State uint8

const (
	Early     State = iota // a label without a row
	Waiting                // a row without a label that counts
	Joined                 // a block of the label's class
	Defaulted              // a block of the default class
	Expired                // a row whose horizon has passed, without a default
	states
)

// Live reports whether there is a block.
func (s State) Live() bool { return s == Joined || s == Defaulted }

// item is what the table has of an id.
type item struct {
	id       string
	row      Row
	label    Label
	hasRow   bool
	hasLabel bool
	state    State
	counted  bool // its row has been live
	overdue  bool // of a label without a row: its horizon has passed
	is       index
}

// Verdict is what has become of an id.
type Verdict struct {
	State
	Class string // of the live block, or empty
	Row   Row    // valid if there is one; without values while the block of it is live
	First bool   // the row becomes live for the first time
}

// Table is the rows and labels by id.
type Table struct {
	rules Rules
	mu    sync.RWMutex // held to write, and to read in Class
	items map[string]*item
	class map[string]string // each class once

	clock   int64 // the latest clock of any partition, ms; lowest: none
	waiting waiting
	books   Books
	waits   waits
	given   given

	unsaved map[string]struct{} // ids that have changed since the last save
	moved   bool                // the record has
	stale   []string            // ids that other rules judge otherwise
}

// New makes an empty table.
func New(r Rules) *Table {
	return &Table{
		rules: r, items: map[string]*item{}, class: map[string]string{}, clock: lowest,
		waiting: newWaiting(), given: newGiven(), unsaved: map[string]struct{}{},
	}
}

// lowest is before every time.
const lowest = -1 << 62

// isLate reports whether a label is later than the horizon of a row.
func (t *Table) isLate(it *item) bool {
	return t.rules.Horizon > 0 && it.label.Time > it.row.Time+t.rules.Horizon
}

// hasPassed reports whether the horizon after a time has passed.
func (t *Table) hasPassed(time int64) bool {
	return t.rules.Horizon > 0 && t.clock > time+t.rules.Horizon
}

// judge is the rule.
func (t *Table) judge(it *item) State {
	switch {
	case !it.hasRow:
		return Early
	case it.hasLabel && !(t.rules.DropLate && t.isLate(it)):
		return Joined
	case !t.hasPassed(it.row.Time):
		return Waiting
	case t.rules.Default != "":
		return Defaulted
	}
	return Expired
}

// settle judges an item that has changed since it has left, and returns what has become of it.
func (t *Table) settle(it *item) (v Verdict) {
	it.state = t.judge(it)
	if it.hasRow {
		it.overdue = false
	}
	v = Verdict{State: it.state, Class: t.classOf(it), Row: it.row}
	if it.state.Live() {
		if v.First = !it.counted; v.First {
			it.counted = true
			t.books.Pending--
			if it.state == Joined {
				t.waits.add(it.label.Time - it.row.Time)
			}
		}
		it.row.Values = nil // its block has them
	}
	if it.hasRow || it.hasLabel {
		t.enter(it)
	} else {
		delete(t.items, it.id)
	}
	t.unsaved[it.id], t.moved = struct{}{}, true
	return v
}

// classOf is the class of an item's block, or empty.
func (t *Table) classOf(it *item) string {
	switch it.state {
	case Joined:
		return it.label.Class
	case Defaulted:
		return t.rules.Default
	}
	return ""
}

// item returns the item of an id, and makes it if there is none. A new one is nowhere yet.
func (t *Table) item(id string) *item {
	it := t.items[id]
	if it == nil {
		it = &item{id: id}
		t.items[id] = it
		t.enter(it)
	}
	return it
}

// place is the event time and the position of a row or a label.
type place struct {
	time      int64
	partition int
	offset    int64
}

func (r *Row) place() place   { return place{r.Time, r.Partition, r.Offset} }
func (l *Label) place() place { return place{l.Time, l.Partition, l.Offset} }

// isBefore is the order in which rows and labels of an id replace each other by event time. Two of
// one record have one place.
func (p place) isBefore(q place) bool {
	return cmp.Or(cmp.Compare(p.time, q.time), cmp.Compare(p.partition, q.partition), cmp.Compare(p.offset, q.offset)) < 0
}

// PutRow takes a row of an id, with its values. taken is false where the id has a later one: then
// nothing but the books has changed.
func (t *Table) PutRow(id string, r Row) (v Verdict, taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.item(id)
	if t.rules.ByTime && it.hasRow && r.place().isBefore(it.row.place()) {
		t.books.Rows++
		t.books.Pending++
		t.books.SupersededRows++
		t.moved = true
		return Verdict{}, false
	}
	t.leave(it)
	if it.hasRow {
		t.supersede(it)
	}
	r.Given = t.given.shared(r.Given)
	it.row, it.hasRow, it.counted = r, true, false
	t.books.Rows++
	t.books.Pending++
	return t.settle(it), true
}

// knownClasses bounds the texts of classes that are kept once for all labels.
const knownClasses = 4096

// known is a class in memory that all labels of the class share.
func (t *Table) known(class string) string {
	if known, ok := t.class[class]; ok {
		return known
	}
	if len(t.class) < knownClasses {
		t.class[class] = class
	}
	return class
}

// supersede notes that the row of an item is not the latest one any more.
func (t *Table) supersede(it *item) {
	t.books.SupersededRows++
	it.row, it.hasRow, it.counted = Row{}, false, false
}

// DropRow forgets the row of an id: it was deleted, or its block retired. It returns whether the
// row waited.
func (t *Table) DropRow(id string) (waited bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.items[id]
	if it == nil || !it.hasRow {
		return false
	}
	waited = it.row.Values != nil
	t.leave(it)
	t.supersede(it)
	t.settle(it)
	return waited
}

// PutLabel takes a label of an id. taken is false where the id has a later one: then nothing but
// the books has changed.
func (t *Table) PutLabel(id string, l Label) (v Verdict, taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.item(id)
	if it.hasLabel {
		t.books.SupersededLabels++
		if it.label.Class == l.Class {
			t.books.Duplicates++
		}
	}
	if t.rules.ByTime && it.hasLabel && l.place().isBefore(it.label.place()) {
		t.books.Labels++
		t.moved = true
		return Verdict{}, false
	}
	t.leave(it)
	l.Class = t.known(l.Class)
	it.label, it.hasLabel, it.overdue = l, true, false
	t.books.Labels++
	if it.hasRow && t.isLate(it) {
		t.books.Late++
	}
	return t.settle(it), true
}

// DropLabel forgets the label of an id: it was withdrawn, or cannot be used.
func (t *Table) DropLabel(id string) (v Verdict, had bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.items[id]
	if it == nil || !it.hasLabel {
		return v, false
	}
	t.leave(it)
	t.books.SupersededLabels++
	it.label, it.hasLabel = Label{}, false
	return t.settle(it), true
}

// GiveValues gives a row that waits the values that it has from its block.
func (t *Table) GiveValues(id string, values []float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it := t.items[id]; it != nil && it.hasRow && !it.state.Live() {
		t.leave(it)
		it.row.Values = values
		t.enter(it)
	}
}

// Refuse notes that the block of an id could not be made. Its row, if it has one, has not been
// live.
func (t *Table) Refuse(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it := t.items[id]; it != nil && it.hasRow && it.counted {
		it.counted = false
		t.books.Pending++
		t.unsaved[id], t.moved = struct{}{}, true
	}
}

// Reject counts a record of a label that could not be used, and Withdraw one without a label.
func (t *Table) Reject()   { t.books.Rejected++; t.moved = true }
func (t *Table) Withdraw() { t.books.Withdrawals++; t.moved = true }

// Class is the class of the live or withdrawn block of an id, if it has one.
func (t *Table) Class(id string) (class string, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if it := t.items[id]; it != nil && it.state.Live() {
		return t.classOf(it), true
	}
	return "", false
}

// Get is what the table has of an id.
func (t *Table) Get(id string) (v Verdict, ok bool) {
	it := t.items[id]
	if it == nil {
		return v, false
	}
	return Verdict{State: it.state, Class: t.classOf(it), Row: it.row}, true
}

// RowsOf lists the ids whose rows come from a partition.
func (t *Table) RowsOf(partition int) []string {
	return t.idsWhere(func(it *item) bool { return it.hasRow && it.row.Partition == partition })
}

// LabelsOf lists the ids whose labels come from a partition.
func (t *Table) LabelsOf(partition int) []string {
	return t.idsWhere(func(it *item) bool { return it.hasLabel && it.label.Partition == partition })
}

func (t *Table) idsWhere(is func(*item) bool) (ids []string) {
	for id, it := range t.items {
		if is(it) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Len is the number of ids.
func (t *Table) Len() int { return len(t.items) }

// byTime orders items by event time, and then by id.
type byTime struct {
	time int64
	*item
}

func earlier(a, b byTime) bool {
	if a.time != b.time {
		return a.time < b.time
	}
	return a.id < b.id
}

func newTree() *btree.BTreeG[byTime] {
	return btree.NewBTreeGOptions(earlier, btree.Options{NoLocks: true})
}
