package joining

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// event is a record of one of the topics.
type event struct {
	id     string
	row    *Row   // a row
	label  *Label // a label
	clock  int64
	undoes bool // a tombstone: of the row if row is set, else of the label
}

// history draws the records of some ids, in one order for each topic.
func history(r *rand.Rand, n int) (rows, labels []event) {
	for i := range n {
		id, at := strconv.Itoa(r.IntN(8)), int64(r.IntN(1000))
		switch r.IntN(9) {
		case 0, 1, 2, 3:
			rows = append(rows, event{id: id, clock: at, row: &Row{Offset: int64(i), Time: at, Values: []float64{float64(i), 1}, Weight: float64(1 + i%3)}})
		case 4:
			rows = append(rows, event{id: id, clock: at, row: &Row{}, undoes: true})
		case 5:
			labels = append(labels, event{id: id, clock: at, undoes: true})
		default:
			labels = append(labels, event{id: id, clock: at, label: &Label{Class: []string{"a", "b"}[r.IntN(2)], Time: at, Offset: int64(i)}})
		}
	}
	return rows, labels
}

// apply has a table take a record.
func apply(t *Table, e event) {
	switch {
	case e.undoes && e.row != nil:
		t.DropRow(e.id)
	case e.undoes:
		former, _ := t.Get(e.id)
		v, had := t.DropLabel(e.id)
		if had && former.Live() && !v.Live() {
			t.GiveValues(e.id, []float64{float64(v.Row.Offset), 1}) // those of its block
		}
	case e.row != nil:
		row := *e.row
		t.PutRow(e.id, row)
	default:
		l := *e.label
		if v, taken := t.PutLabel(e.id, l); taken && (v.State == Waiting || v.State == Expired) {
			t.GiveValues(e.id, []float64{float64(v.Row.Offset), 1})
		}
	}
	t.Advance(e.clock)
}

// pass passes all horizons.
func pass(t *Table) {
	for id, ok := t.Due(); ok; id, ok = t.Due() {
		t.Pass(id)
	}
}

// what a table has, as text.
func what(t *Table) string {
	var b bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(t.items)) {
		it := t.items[id]
		fmt.Fprintf(&b, "%s %d %s %v %v", id, it.state, t.classOf(it), it.hasRow, it.hasLabel)
		if it.hasRow {
			fmt.Fprintf(&b, " row %d/%d values %v of weight %v", it.row.Partition, it.row.Offset, it.row.Values, it.row.Weight)
		}
		if it.hasLabel {
			fmt.Fprintf(&b, " label %d/%d", it.label.Partition, it.label.Offset)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// balances checks the books, and the counts against the items.
func balances(t *testing.T, x *Table, rows, labels int64) {
	t.Helper()
	r := x.Report()
	if r.Rows != rows || r.Labels != labels ||
		r.Rows != r.Joined+r.Defaulted+r.Waiting+r.Expired+r.SupersededRows ||
		r.Labels != r.Joined+r.Early+r.Unmatched+r.SupersededLabels {
		t.Fatalf("%d rows and %d labels; the books do not balance: %+v", rows, labels, r)
	}
	var all [states]int64
	var bytes int64
	for _, it := range x.items {
		all[it.state]++
		if it.is.held {
			bytes += it.bytes()
		}
		if it.state.Live() == (it.row.Values != nil) && it.hasRow {
			t.Fatalf("%+v has values, or lacks them", it)
		}
	}
	if all != x.waiting.all || bytes != x.waiting.bytes {
		t.Fatalf("counts %v, items %v; %d bytes, items %d", x.waiting.all, all, x.waiting.bytes, bytes)
	}
}

// again is a table that is restored from what another one has saved.
func again(t *testing.T, x *Table, file map[string][]byte) *Table {
	t.Helper()
	items, of, _ := x.TakeUnsaved([]string{"f", "g"})
	for _, s := range items {
		if file[s.ID] = s.Value; s.Value == nil {
			delete(file, s.ID)
		}
	}
	if of != nil {
		file["record"] = of
	}
	var saved []Saved
	for id, value := range file {
		if id != "record" {
			saved = append(saved, Saved{id, value})
		}
	}
	y := New(x.rules)
	if err := y.Restore(saved, file["record"], []string{"f", "g"}); err != nil {
		t.Fatal(err)
	}
	if what(x) != what(y) {
		t.Fatalf("%s\nis restored as\n%s", what(x), what(y))
	}
	return y
}

// disturb lets horizons pass now and then, and now and then restores the table from its file.
func disturb(t *testing.T, r *rand.Rand, x *Table, file map[string][]byte) *Table {
	t.Helper()
	if r.IntN(3) == 0 {
		pass(x)
	}
	if r.IntN(6) == 0 {
		x = again(t, x, file)
	}
	return x
}

// What a table has depends on the two logs, and not on the order in which they are read, on
// restarts or on when horizons pass.
func TestAnyOrder(t *testing.T) {
	var seen [states]int
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		rules := Rules{Room: math.MaxInt64}
		if r.IntN(3) > 0 {
			rules.Horizon, rules.DropLate = int64(r.IntN(400)), r.IntN(2) == 0
			if r.IntN(2) == 0 {
				rules.Default = "b"
			}
		}
		rows, labels := history(r, 5+r.IntN(50))
		want := ""
		for try := range 3 {
			x, file := New(rules), map[string][]byte{}
			var nRows, nLabels int64
			for a, b := rows, labels; len(a)+len(b) > 0; {
				from := &a
				if try == 0 && len(a) == 0 || try == 1 && len(b) > 0 || try == 2 && (len(a) == 0 || len(b) > 0 && r.IntN(2) == 0) {
					from = &b
				}
				e := (*from)[0]
				*from = (*from)[1:]
				apply(x, e)
				if e.row != nil && !e.undoes {
					nRows++
				}
				if e.label != nil {
					nLabels++
				}
				x = disturb(t, r, x, file)
				balances(t, x, nRows, nLabels)
			}
			pass(x)
			balances(t, x, nRows, nLabels)
			for _, it := range x.items {
				seen[it.state]++
			}
			got := what(x)
			if try == 0 {
				want = got
			}
			if got != want {
				t.Fatalf("seed %d, %+v: the table has\n%s\nand in another order\n%s", seed, rules, want, got)
			}
		}
	}
	for state, n := range seen {
		if n < 1000 {
			t.Errorf("state %d was seen %d times: this test shows little", state, n)
		}
	}
}

// anywhere puts rows and labels into any of three partitions, without deletions.
func anywhere(r *rand.Rand, all []event) []event {
	all = slices.DeleteFunc(all, func(e event) bool { return e.undoes })
	for i := range all {
		if in := r.IntN(3); all[i].row != nil {
			all[i].row.Partition = in
		} else {
			all[i].label.Partition = in
		}
		if r.IntN(3) == 0 && i > 0 && all[i].row != nil { // of one event time with another one
			all[i].row.Time = all[i-1].row.Time
		}
	}
	return all
}

// latest is the last row or label of each id by event time, partition and offset.
func latest(all []event) map[string]place {
	last := map[string]place{}
	for _, e := range all {
		var p place
		if e.row != nil {
			p = e.row.place()
		} else {
			p = e.label.place()
		}
		q, ok := last[e.id]
		if !ok || p.time > q.time || p.time == q.time && (p.partition > q.partition || p.partition == q.partition && p.offset > q.offset) {
			last[e.id] = p
		}
	}
	return last
}

// Where ids are fields of records in any partition, a table has the latest row and label of each by
// event time, in whatever order all of them are read.
func TestAnyPartition(t *testing.T) {
	live, superseded := 0, int64(0)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		rules := Rules{Room: math.MaxInt64, ByTime: true, Horizon: int64(r.IntN(400)), DropLate: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			rules.Default = "b"
		}
		rows, labels := history(r, 5+r.IntN(50))
		rows, labels = anywhere(r, rows), anywhere(r, labels)
		all := slices.Concat(rows, labels)
		want := ""
		for try := range 3 {
			x, file := New(rules), map[string][]byte{}
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			var nRows, nLabels int64
			for _, e := range all {
				if apply(x, e); e.row != nil {
					nRows++
				} else {
					nLabels++
				}
				x = disturb(t, r, x, file)
				balances(t, x, nRows, nLabels)
			}
			pass(x)
			balances(t, x, nRows, nLabels)
			superseded += x.Report().SupersededRows + x.Report().SupersededLabels
			for id, p := range latest(rows) {
				if it := x.items[id]; it == nil || it.row.place() != p {
					t.Fatalf("seed %d: the row of %s is %+v, not %+v", seed, id, it, p)
				}
			}
			for id, p := range latest(labels) {
				it := x.items[id]
				if it == nil || it.label.place() != p {
					t.Fatalf("seed %d: the label of %s is %+v, not %+v", seed, id, it, p)
				}
				if it.state.Live() {
					live++
				}
			}
			if got := what(x); try == 0 {
				want = got
			} else if got != want {
				t.Fatalf("seed %d, %+v: the table has\n%s\nand in another order\n%s", seed, rules, want, got)
			}
		}
	}
	if live < 2000 || superseded < 5000 {
		t.Errorf("%d live ids, %d superseded rows and labels: this test shows little", live, superseded)
	}
}

// The oldest that waits is let go where there is no room, and counted. Expired rows go first where
// nothing can come of them.
func TestRoom(t *testing.T) {
	one := int64(Overhead + 2 + 2*8)
	x := New(Rules{Room: 3 * one})
	for i := range 5 {
		x.PutRow(strconv.Itoa(i), Row{Weight: 1, Time: int64(100 - i), Values: []float64{1, 2}})
		x.Fit(lowest)
	}
	if r := x.Report(); r.Waiting != 3 || r.LetGo != 2 || r.Expired != 2 || r.Bytes > 3*one {
		t.Errorf("%+v", r)
	}
	if _, ok := x.Get("0"); !ok {
		t.Error("the newest row was let go")
	}
	x.PutLabel("9", Label{Class: "a", Time: 1})
	x.Fit(lowest)
	balances(t, x, 5, 1)
	if r := x.Report(); r.Unmatched != 1 || r.Waiting != 3 {
		t.Errorf("%+v", r)
	}

	x = New(Rules{Room: math.MaxInt64, Horizon: 10, DropLate: true})
	x.PutRow("a", Row{Weight: 1, Time: 5, Values: []float64{1}})
	x.PutLabel("early", Label{Class: "a", Time: 0})
	x.Advance(16)
	pass(x)
	if r := x.Report(); r.Expired != 1 || r.Unmatched != 1 || r.Early != 0 {
		t.Errorf("%+v", r)
	}
	x.Fit(25)
	if x.Len() != 2 {
		t.Error("an expired row was let go before its horizon has passed twice")
	}
	x.Fit(26)
	if r := x.Report(); x.Len() != 1 || r.Books.Expired != 1 || r.LetGo != 0 {
		t.Errorf("%+v", r)
	}
	balances(t, x, 1, 1)
}

// Rules that have changed are applied to what was saved under others.
func TestOtherRules(t *testing.T) {
	x, file := New(Rules{Room: math.MaxInt64}), map[string][]byte{}
	x.PutRow("a", Row{Weight: 1, Time: 5, Values: []float64{1, 2}})
	x.PutRow("b", Row{Weight: 1, Time: 50, Values: []float64{1, 2}})
	x.Advance(40)
	again(t, x, file)
	y := New(Rules{Room: math.MaxInt64, Horizon: 10, Default: "no"})
	if err := y.Restore([]Saved{{"a", file["a"]}, {"b", file["b"]}}, file["record"], []string{"f", "g"}); err != nil {
		t.Fatal(err)
	}
	if id, ok := y.Due(); !ok || id != "a" {
		t.Fatalf("due is %q", id)
	}
	if v := y.Pass("a"); v.State != Defaulted || v.Class != "no" || v.Row.Values == nil || !v.First {
		t.Errorf("%+v", v)
	}
	if id, ok := y.Due(); ok {
		t.Errorf("%q is due", id)
	}
	if err := New(Rules{}).Restore(nil, file["record"], []string{"other"}); err == nil {
		t.Error("rows of other features are restored")
	}
}

func TestWaits(t *testing.T) {
	for ms := range int64(100_000) {
		if at := timeOf(stepOf(ms)); at > ms || ms-at > ms/8 {
			t.Fatalf("%d ms count as %d", ms, at)
		}
	}
	if stepOf(math.MaxInt64) >= len(waits{}.steps) {
		t.Error("no step for the longest time")
	}
	var w waits
	if w.median() != -1 {
		t.Error("there is a median of nothing")
	}
	for ms := range int64(101) {
		w.add(ms * 1000)
	}
	if m := w.median(); m < 44_000 || m > 50_000 {
		t.Errorf("the median is %d", m)
	}
}

// waitingRows is STREAMD_WAITING, or a number that takes a second.
func waitingRows(t *testing.T) int {
	text := os.Getenv("STREAMD_WAITING")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		t.Fatalf("STREAMD_WAITING is %q: want a number of rows from 1000 on", text)
	}
	return n
}

// STREAMD_WAITING rows wait, in any order of their event times, within the memory that they are
// priced at. Of more rows the oldest are let go and counted. All others are there with their
// values, also when the labels come.
func TestWaitingRows(t *testing.T) {
	const features = 10
	n := waitingRows(t)
	all := n + n/5
	id := func(i int) string { return fmt.Sprintf("key=%016d", i) }
	// The event times are a permutation: the step is a prime that does not divide all.
	step := 611_953
	for all%step == 0 {
		step = 1_000_003
	}
	at := func(i int) int64 { return int64(i * step % all) }
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, began := heap(), time.Now()
	price := int64(Overhead + 2*len(id(0)) + 8*features)
	x := New(Rules{Room: price * int64(n), Horizon: 1 << 40})
	save := func(i int) {
		if i%10_000 == 0 {
			x.TakeUnsaved(nil)
		}
	}
	for i := range all {
		values := make([]float64, features)
		values[0], values[features-1] = float64(i), -float64(i)
		x.PutRow(id(i), Row{Offset: int64(i), Time: at(i), Values: values, Weight: 1})
		x.Fit(lowest)
		save(i)
	}
	x.TakeUnsaved(nil)
	took := time.Since(began)
	bytes := (heap() - before) / int64(n)
	t.Logf("%d rows wait: %d bytes for each, priced at %d; %.2f µs for each of %d", n, bytes, price, float64(took.Microseconds())/float64(all), all)
	if bytes > price || x.Bytes() != price*int64(n) {
		t.Errorf("a row takes %d bytes, and is priced at %d: %d in all", bytes, price, x.Bytes())
	}
	if r := x.Report(); r.Waiting != int64(n) || r.LetGo != int64(all-n) || r.Expired != int64(all-n) || x.Len() != n {
		t.Errorf("%+v", r)
	}
	began = time.Now()
	for i := range all {
		v, ok := x.Get(id(i))
		switch kept := at(i) >= int64(all-n); {
		case ok != kept:
			t.Fatalf("of %d rows, %d wait: the row of the event time %d is there: %t", all, n, at(i), ok)
		case kept && (v.State != Waiting || len(v.Row.Values) != features || v.Row.Values[0] != float64(i) || v.Row.Values[features-1] != -float64(i)):
			t.Fatalf("row %d is %+v", i, v)
		}
		if ok { // those of other rows would take their room
			x.PutLabel(id(i), Label{Class: "a", Time: at(i)})
			x.Fit(lowest)
			save(i)
		}
	}
	for i := range all {
		if at(i) < int64(all-n) {
			x.PutLabel(id(i), Label{Class: "a", Time: at(i)})
			x.Fit(lowest)
			save(i)
		}
	}
	t.Logf("%.2f µs for each of %d labels", float64(time.Since(began).Microseconds())/float64(all), all)
	balances(t, x, int64(all), int64(all))
	if r := x.Report(); r.Joined != int64(n) || r.Early != int64(all-n) || r.LetGo != int64(all-n) || r.Unmatched != 0 {
		t.Errorf("%+v", r)
	}
}

// Any bytes are an item that is written as the same bytes, or an error.
func FuzzItem(f *testing.F) {
	for _, it := range []*item{
		{hasRow: true, state: Waiting, row: Row{Partition: 3, Offset: 7, Time: -5, Weight: 1, Values: []float64{1, math.Pi}}},
		{hasRow: true, hasLabel: true, counted: true, state: Joined, row: Row{Weight: 0.25}, label: Label{Class: "spam", Time: 9, Partition: 2, Offset: 1}},
		{hasLabel: true, overdue: true, label: Label{Class: "a"}},
		{hasRow: true, state: Waiting, row: Row{Weight: 1, Values: []float64{1, 2}, Given: &Given{Label: "spam", Model: "0123"}}},
	} {
		f.Add(appendItem(nil, it))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		it, err := decodeItem("id", b, 2)
		if err == nil && !bytes.Equal(appendItem(nil, it), b) {
			t.Errorf("%x comes back as %x", b, appendItem(nil, it))
		}
	})
}
