package joining

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/decode"
	"streamd/retire"
)

// Saved is a value of the snapshot: the item of an id. Without a value there is none any more.
type Saved struct {
	ID    string
	Value []byte
}

// record is what the snapshot has beside the items, as JSON.
type record struct {
	Clock    int64  `json:"clock"`    // ms; absent before there is one
	Features string `json:"features"` // a hash of their names
	Books    Books  `json:"books"`
}

// The flags of a saved item.
const (
	flagRow = 1 << iota
	flagLabel
	flagCounted
	flagOverdue
	flagValues
	flagGiven
	flagWeight
	allFlags = 1<<iota - 1
)

// isWeighted reports whether an item has a row whose weight is not 1.
func (it *item) isWeighted() bool { return it.hasRow && it.row.Weight != 1 }

// appendItem appends the value of an item.
//
//	1 byte    state
//	1 byte    flags, a sum. 1: there is a row. 2: there is a label. 4: the row has been live.
//	          8: the horizon of a label without a row has passed. 16: the row has values.
//	          32: the row is that of a remembered prediction. 64: its weight is not 1
//	row       partition (4 bytes), offset (8), event time (8), hash of the header (16), and with 64
//	          the weight (8)
//	label     partition (4 bytes), offset (8), event time (8), length of the class (2), class
//	given     label and model of the prediction, each behind its length (2)
//	values    8 bytes each, up to the end
func appendItem(b []byte, it *item) []byte {
	flags := byte(0)
	for _, f := range []struct {
		is   bool
		flag byte
	}{{it.hasRow, flagRow}, {it.hasLabel, flagLabel}, {it.counted, flagCounted}, {it.overdue, flagOverdue}, {it.row.Values != nil, flagValues}, {it.row.Given != nil, flagGiven}, {it.isWeighted(), flagWeight}} {
		if f.is {
			flags |= f.flag
		}
	}
	b = append(b, byte(it.state), flags)
	le := binary.LittleEndian
	if it.hasRow {
		r := &it.row
		b = le.AppendUint32(b, uint32(r.Partition))
		b = le.AppendUint64(b, uint64(r.Offset))
		b = le.AppendUint64(b, uint64(r.Time))
		b = append(b, r.Header[:]...)
		if it.isWeighted() {
			b = le.AppendUint64(b, math.Float64bits(r.Weight))
		}
	}
	if it.hasLabel {
		l := &it.label
		b = le.AppendUint32(b, uint32(l.Partition))
		b = le.AppendUint64(b, uint64(l.Offset))
		b = le.AppendUint64(b, uint64(l.Time))
		b = append(le.AppendUint16(b, uint16(len(l.Class))), l.Class...)
	}
	if g := it.row.Given; g != nil {
		b = append(le.AppendUint16(b, uint16(len(g.Label))), g.Label...)
		b = append(le.AppendUint16(b, uint16(len(g.Model))), g.Model...)
	}
	for _, x := range it.row.Values {
		b = le.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

var errItem = errors.New("it is no row or label that waits, or that a live block has")

// decodeItem is the inverse of appendItem. A row with values has as many as there are features.
func decodeItem(id string, b []byte, features int) (*item, error) {
	d := decode.Reader{Rest: b}
	head := d.Take(2)
	if d.Bad {
		return nil, errItem
	}
	flags := head[1]
	it := &item{
		id: id, state: State(head[0]), hasRow: flags&flagRow != 0, hasLabel: flags&flagLabel != 0,
		counted: flags&flagCounted != 0, overdue: flags&flagOverdue != 0,
	}
	le := binary.LittleEndian
	number := func(n int) (x uint64) {
		var full [8]byte
		copy(full[:], d.Take(n))
		return le.Uint64(full[:])
	}
	if it.hasRow {
		r := &it.row
		r.Partition, r.Offset, r.Time = int(number(4)), int64(number(8)), int64(number(8))
		copy(r.Header[:], d.Take(len(retire.HeaderHash{})))
		if r.Weight = 1; flags&flagWeight != 0 {
			r.Weight = math.Float64frombits(number(8))
		}
	}
	if it.hasLabel {
		l := &it.label
		l.Partition, l.Offset, l.Time = int(number(4)), int64(number(8)), int64(number(8))
		l.Class = string(d.Take(int(number(2))))
	}
	if flags&flagGiven != 0 {
		it.row.Given = &Given{Label: string(d.Take(int(number(2))))}
		it.row.Given.Model = string(d.Take(int(number(2))))
	}
	if values := flags&flagValues != 0; !d.Bad && values && len(d.Rest) == 8*features {
		it.row.Values = make([]float64, features)
		for i := range it.row.Values {
			it.row.Values[i] = math.Float64frombits(number(8))
		}
	} else if values {
		return nil, errItem
	}
	switch {
	case d.Bad || len(d.Rest) > 0 || flags > allFlags || it.state >= states,
		it.row.Partition > math.MaxInt32 || it.label.Partition > math.MaxInt32,
		!it.hasRow && (!it.hasLabel || it.state != Early || it.counted || it.row.Values != nil || it.row.Given != nil),
		it.row.Given != nil && it.row.Given.Check() != nil,
		it.hasRow && (it.state == Early || it.overdue || !(it.row.Weight > 0) || math.IsInf(it.row.Weight, 1)),
		(flags&flagWeight != 0) != it.isWeighted(),
		it.state.Live() && (!it.counted || it.row.Values != nil),
		it.state == Joined && !it.hasLabel,
		it.hasLabel && it.label.Class == "":
		return nil, errItem
	}
	return it, nil
}

// Restore fills an empty table from a snapshot that was made of these features: its items, and the
// record beside them, which is nil if none was saved.
func (t *Table) Restore(saved []Saved, of []byte, features []string) error {
	if of == nil {
		return nil
	}
	r := record{Clock: lowest}
	if err := json.Unmarshal(of, &r); err != nil {
		return fmt.Errorf("the record of labels that come later: %w", err)
	}
	if r.Features != hashOf(features) {
		return errors.New("the rows that wait for labels have other features than the configuration: set format.features or format.schema back, or begin anew with another snapshot.file")
	}
	t.clock, t.books = r.Clock, r.Books
	for _, s := range saved {
		it, err := decodeItem(s.ID, s.Value, len(features))
		if err != nil {
			return fmt.Errorf("the row or label of %.100q: %w", s.ID, err)
		}
		it.label.Class = t.known(it.label.Class)
		it.row.Given = t.given.shared(it.row.Given)
		t.items[s.ID] = it
		t.enter(it)
		if t.judge(it) != it.state {
			t.stale = append(t.stale, s.ID)
		}
	}
	slices.Sort(t.stale)
	return nil
}

// Moved reports whether the table has changed since the last save.
func (t *Table) Moved() bool { return t.moved }

// TakeUnsaved is what must be saved, and counts as saved. undo notes that it was not.
func (t *Table) TakeUnsaved(features []string) (items []Saved, of []byte, undo func()) {
	if !t.moved {
		return nil, nil, func() {}
	}
	ids := t.unsaved
	for id := range ids {
		s := Saved{ID: id}
		if it := t.items[id]; it != nil {
			s.Value = appendItem(nil, it)
		}
		items = append(items, s)
	}
	r := record{Clock: t.clock, Features: hashOf(features), Books: t.books}
	of, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has numbers and a text
	}
	t.unsaved, t.moved = map[string]struct{}{}, false
	return items, of, func() {
		for id := range ids {
			t.unsaved[id] = struct{}{}
		}
		t.moved = true
	}
}

// hashOf is a hash of names, in hex.
func hashOf(names []string) string {
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%d %s\n", len(name), name)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
