package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/drift"
	"streamd/incremental/gram"
	"streamd/incremental/prequential"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// The tasks of a batch have its records in their order, as many as fit, and each knows the record
// before it.
func TestTasksOfABatch(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 1))
	for trial := range 200 {
		var b kafka.Batch
		b.Partition = trial
		large := r.IntN(3)
		for range r.IntN([]int{3000, 40, 5}[large]) {
			n := r.IntN([]int{900, 200 << 10, 1 << 20}[large])
			b.Records = append(b.Records, kafka.Record{Offset: int64(len(b.Records)), Value: make([]byte, n)})
		}
		if r.IntN(3) == 0 {
			b.Refused = []kafka.Refused{{First: 1}}
		}
		y := newDelivery(&b)
		var got []kafka.Record
		for i, x := range y.tasks {
			bytes := 0
			for _, record := range x.records {
				bytes += len(record.Value)
			}
			next := len(got) + len(x.records)
			full := next < len(b.Records) && len(x.records) < 1024 && bytes+len(b.Records[next].Value) <= 512<<10
			if x.partition != trial || len(x.records) > 1024 || len(x.records) > 1 && bytes > 512<<10 || full && x.refused == nil {
				t.Fatalf("trial %d: task %d of partition %d has %d records of %d bytes", trial, i, x.partition, len(x.records), bytes)
			}
			if last := len(got) - 1; x.refused == nil && (x.previous == nil) != (last < 0) || x.previous != nil && x.previous.Offset != got[last].Offset {
				t.Fatalf("trial %d: task %d follows %v", trial, i, x.previous)
			}
			if (x.refused != nil) != (i == len(y.tasks)-1 && b.Refused != nil) || (x.refused == nil) != (len(x.records) > 0) {
				t.Fatalf("trial %d: task %d has %d records and refuses %v", trial, i, len(x.records), x.refused)
			}
			got = append(got, x.records...)
		}
		if !slices.EqualFunc(got, b.Records, func(a, b kafka.Record) bool { return a.Offset == b.Offset }) || (b.Refused != nil) != slices.ContainsFunc(y.tasks, func(x *task) bool { return x.refused != nil }) {
			t.Fatalf("trial %d: the tasks have %d records of %d", trial, len(got), len(b.Records))
		}
	}
}

// Deliveries and calls come in their turn, and give up with their context or with the loop.
func TestTurns(t *testing.T) {
	in := idle(t, nil)
	done, order := make(chan struct{}), []string{}
	go func() {
		defer close(done)
		for y := range in.Deliveries() {
			if err := in.Apply(t.Context(), y); err != nil {
				t.Error(err)
			}
			if y.batch != nil {
				order = append(order, "batch")
			}
			if (y.batch == nil) != y.Came().IsZero() || in.Live.Blocks() > 1 {
				t.Errorf("a delivery came at %v", y.Came())
			}
		}
	}()
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		in.Work(t.Context())
	}()
	if !in.InTurn(t.Context(), done, func() { order = append(order, "first") }) {
		t.Error("a call has no turn")
	}
	b := kafka.NewBatch(0, []kafka.Record{{Value: []byte(`{"label":"a","x":1}`), Time: time.UnixMilli(1)}}, kafka.Saved{Next: 1})
	if err := in.Deliver(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !in.InTurn(t.Context(), done, func() { order = append(order, "last") }) {
		t.Error("a call has no turn")
	}
	if want := []string{"first", "batch", "last"}; !slices.Equal(order, want) {
		t.Errorf("in turn came %q, not %q", order, want)
	}
	in.Close()
	<-done
	<-worked

	in = idle(t, nil) // nobody takes deliveries
	ended, end := context.WithCancel(t.Context())
	end()
	for range inOrder {
		if in.InTurn(ended, nil, func() {}) {
			t.Fatal("a call ran that nobody has made")
		}
	}
	for len(in.order) < inOrder {
		in.order <- &Delivery{}
	}
	if in.InTurn(ended, nil, nil) || in.InTurn(t.Context(), done, nil) {
		t.Error("a call ran that has no place")
	}
	if err := in.Deliver(ended, kafka.NewBatch(0, nil, kafka.Saved{})); !errors.Is(err, context.Canceled) {
		t.Errorf("a delivery without a place: %v", err)
	}
}

// Rows in columns are those of a list.
func TestRowsAreAList(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(72, seed))
		classes, columns := 1+r.IntN(20), 1+r.IntN(3)
		var rows, other Rows
		var list, otherList []row
		label := func() string { return fmt.Sprint("c", r.IntN(classes)) }
		block := func() (*incremental.Block, []row) {
			b, out := &incremental.Block{}, []row(nil)
			values := make([][]float64, columns)
			weighted := r.IntN(2) == 0
			for range r.IntN(12) {
				w := row{label: label(), weight: 1}
				if weighted {
					w.weight = float64(r.IntN(3))
				}
				code := slices.Index(b.Classes, w.label)
				if code < 0 {
					code = len(b.Classes)
					b.Classes = append(b.Classes, w.label)
				}
				b.Codes = append(b.Codes, int32(code))
				if weighted {
					b.Weights = append(b.Weights, w.weight)
				}
				for j := range values {
					x := float64(r.IntN(50))
					values[j], w.values = append(values[j], x), append(w.values, x)
				}
				out = append(out, w)
			}
			if weighted && b.Weights == nil {
				b.Weights = []float64{}
			}
			for j, x := range values {
				if j == 1 { // of another type
					narrow := make([]float32, len(x))
					for i := range x {
						narrow[i] = float32(x[i])
					}
					b.Columns = append(b.Columns, gram.ColumnOf(narrow))
				} else {
					b.Columns = append(b.Columns, gram.ColumnOf(x))
				}
			}
			codes := make([]uint16, len(out))
			for i := range out {
				codes[i] = uint16(r.IntN(3))
				for code := range uint16(2) {
					x := 0.0
					if codes[i] == code {
						x = 1
					}
					out[i].values = append(out[i].values, x)
				}
			}
			coded := r.IntN(3) > 0 // a category of two features, as codes or as numbers
			for code := range uint16(2) {
				c := gram.IndicatorColumn(codes, code)
				if !coded {
					x := make([]float64, len(codes))
					c.Copy(x, 0)
					c = gram.ColumnOf(x)
				}
				b.Columns = append(b.Columns, c)
			}
			return b, out
		}
		check := func(rows *Rows, list []row) {
			t.Helper()
			if r.IntN(2) == 0 && rows.Len() == len(list) { // the numbers of some rows may come later
				return
			}
			b := rows.Block()
			if rows.Len() != len(list) || b.Rows() != len(list) || !slices.Equal(b.Classes, rows.Classes()) || rows.bytes() != 8*int64(len(rows.columns)+2)*int64(cap(rows.codes))+2*int64(len(rows.categories))*int64(cap(rows.codes)) {
				t.Fatalf("seed %d: %d rows, not %d", seed, rows.Len(), len(list))
			}
			labels := slices.Clone(rows.Classes())
			if slices.Sort(labels); !slices.Equal(labels, labelsOf(list)) {
				t.Fatalf("seed %d: classes %q, not %q", seed, labels, labelsOf(list))
			}
			for i, w := range list {
				for j, x := range w.values {
					if b.Columns[j].At(i) != x {
						t.Fatalf("seed %d: row %d has other values", seed, i)
					}
				}
				if b.Classes[b.Codes[i]] != w.label || b.Weight(i) != w.weight {
					t.Fatalf("seed %d: row %d is of %q and %v, not %+v", seed, i, b.Classes[b.Codes[i]], b.Weight(i), w)
				}
			}
		}
		for range 30 {
			switch r.IntN(8) {
			case 0:
				rows.Empty()
				list = nil
			case 1, 2:
				b, more := block()
				weighing, has := Weighing(b), []string(nil)
				var heavy []row
				for _, w := range more {
					if w.weight > 0 {
						heavy = append(heavy, w)
					}
				}
				var only Rows
				only.AppendBlock(weighing)
				check(&only, heavy)
				if b.Weights == nil && weighing != b {
					t.Fatalf("seed %d: a block without weights is copied", seed)
				}
				if b.Weights != nil {
					if has = positiveClasses(b); !slices.Equal(slices.Sorted(slices.Values(has)), labelsOf(heavy)) && len(heavy)+len(has) > 0 {
						t.Fatalf("seed %d: classes %q weigh something, not %q", seed, has, labelsOf(heavy))
					}
				}
				other.Empty()
				other.AppendBlock(b)
				otherList = more
				check(&other, otherList)
			case 3, 4:
				b, more := block()
				rows.AppendBlock(b)
				list = append(list, more...)
			default:
				i := r.IntN(len(otherList) + 1)
				j := i + r.IntN(len(otherList)-i+1)
				with := rows.classesWith(&other, i, j)
				both := labelsOf(append(slices.Clone(list), otherList[i:j]...))
				if with == nil {
					with = rows.Classes()
				} else if len(with) == len(rows.Classes()) {
					t.Fatalf("seed %d: no class is added, and they are listed", seed)
				}
				if got := slices.Sorted(slices.Values(with)); !slices.Equal(got, both) {
					t.Fatalf("seed %d: together classes %q, not %q", seed, got, both)
				}
				if r.IntN(3) == 0 {
					rows.AppendRange(&other, i, j)
					if rows.late != nil {
						t.Fatalf("seed %d: rows are not copied", seed)
					}
				} else {
					rows.appendLate(&other, i, j)
				}
				list = append(list, otherList[i:j]...)
			}
			check(&rows, list)
		}
	}
}

// The latest records are those since the last moment that is a quarter of an hour old, or since the
// start.
func TestLatestRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 1))
	var of refusals
	var all []moment
	now, read := time.Unix(1_700_000_000, 0), int64(0)
	for range 3000 {
		now = now.Add(time.Duration(r.IntN(40)) * time.Second)
		read += r.Int64N(5)
		of.all += r.Int64N(3)
		if of.remember(now, read); len(all) == 0 || now.Sub(all[len(all)-1].time) >= time.Minute {
			all = append(all, moment{now, read, of.all})
		}
		base := all[0]
		last := all[len(all)-1].time // older moments are forgotten when there is a new one
		for _, m := range all {
			if last.Sub(m.time) >= 15*time.Minute {
				base = m
			}
		}
		if got := of.refusing(read); got.Read != read-base.read || got.Refused != of.all-base.refused {
			t.Fatalf("%d of the last %d records were refused, not %d of %d", got.Refused, got.Read, of.all-base.refused, read-base.read)
		}
		if len(of.before) > 17 {
			t.Fatalf("%d moments are remembered", len(of.before))
		}
	}
}

// A stream has a problem, and says which, from ten refused records in a row on, or when the last of
// a few was a while ago, or when more than one in two hundred are refused.
func TestRefusing(t *testing.T) {
	at := time.Date(2024, 5, 6, 23, 58, 0, 0, time.UTC)
	for _, c := range []struct {
		Refusing
		ago  time.Duration
		many bool
		text string
	}{
		{Refusing{InARow: 10, Since: at, Last: at, Read: 1 << 20, Refused: 10}, 0, true, "the last 10 records since 23:58 UTC were refused"},
		{Refusing{InARow: 9, Since: at, Last: at.Add(2 * time.Minute), Read: 1 << 20, Refused: 9}, 0, false, "the last 9 records since 6 May 23:58 UTC were refused"},
		{Refusing{InARow: 1, Since: at, Last: at.Add(time.Minute), Read: 200, Refused: 1}, 10*time.Second - 1, false, "the last 1 records since 23:58 UTC were refused"},
		{Refusing{InARow: 1, Since: at, Last: at, Read: 200, Refused: 1}, 10 * time.Second, true, "the last 1 records since 23:58 UTC were refused"},
		{Refusing{InARow: 0, Since: at, Last: at, Read: 200, Refused: 1}, time.Hour, false, "the last 0 records since 23:58 UTC were refused"},
		{Refusing{InARow: 0, Since: at, Last: at, Read: 199, Refused: 1}, time.Hour, true, "1 of the last 199 records were refused"},
		{Refusing{InARow: 10, Since: at, Last: at, Read: 20, Refused: 12}, 0, true, "the last 10 records since 23:58 UTC were refused"},
		{Refusing{InARow: 9, Since: at, Last: at, Read: 20, Refused: 12}, 0, true, "12 of the last 20 records were refused"},
		{Refusing{InARow: 11, Since: at, Last: at.Add(24 * time.Hour), Read: 20, Refused: 12}, 0, true, "the last 11 records since 6 May 23:58 UTC were refused"},
	} {
		if got, text := c.Many(c.Last.Add(c.ago)), c.String(); got != c.many || text != c.text {
			t.Errorf("%+v: a problem: %t, want %t; %q", c.Refusing, got, c.many, text)
		}
	}
	long := strings.Repeat("é", 149) + "x"
	for text, want := range map[string]string{long + "y": long + "y", long + "yé": long + "y …", long + "é": long + " …"} {
		if got := shortened(text); got != want {
			t.Errorf("%q is shortened to %q, not %q", text, got, want)
		}
	}
}

// A record that cannot be used has a kind, and its dead letter names it.
func TestKindsOfReasons(t *testing.T) {
	in := idle(t, map[string]string{"dead_letters.policy": "dlq"})
	why := errors.New("why")
	for _, c := range []struct {
		err         error
		kind, stage string
	}{
		{unusablef(kindKey, "no key"), kindKey, "TASK_PUT"}, {unusablef(kindHeaders, "many"), kindHeaders, "VALUE_CONVERTER"},
		{unusablef(kindNull, "none"), kindNull, "TASK_PUT"}, {unusablef(kindTime, "late"), kindTime, "TASK_PUT"},
		{&live.ClassesError{Most: 2}, kindClasses, "TASK_PUT"}, {memory.LimitError("small"), kindMemory, "TASK_PUT"},
		{&wire.Error{Reason: "bad"}, kindFormat, "VALUE_CONVERTER"}, {&incremental.RowError{}, kindRow, "TASK_PUT"},
		{&labelAlone{&wire.Error{Reason: "bad"}}, kindLabel, "TASK_PUT"},
		{why, kindOther, "TASK_PUT"}, {&unusable{kindBatch, why}, kindBatch, "VALUE_CONVERTER"},
	} {
		in.own.letters = nil
		if err := in.own.refuse(3, kafka.Letter{}, "what", "; and so", c.err); err != nil || len(in.own.letters) != 1 {
			t.Fatal(err, in.own.letters)
		}
		if got, want := in.own.letters[0].Reason, (kafka.Reason{Stage: c.stage, Class: c.kind, Message: c.err.Error() + "; and so"}); got != want || kindOf(fmt.Errorf("x: %w", c.err)) != c.kind || kinds[c.kind].meaning == "" || kinds[c.kind].settles == "" || settles(c.kind, c.err) != kinds[c.kind].settles {
			t.Errorf("%v: %+v, want %+v", c.err, got, want)
		}
	}
	for _, c := range []struct {
		err     error
		message int
		want    string
	}{
		{why, 1, "why"}, {kafka.ErrTooLarge, int(in.Config.Kafka.MaxMessageBytes) - 1, kafka.ErrTooLarge.Error() + ": a 32nd of limits.memory"},
		{kafka.ErrTooLarge, int(in.Config.Kafka.MaxMessageBytes), kafka.ErrTooLarge.Error() + ": kafka.max_message_bytes"},
	} {
		in.own.letters, in.Budget.Message = nil, c.message
		f := &kafka.Refused{First: 3, Last: 7, Records: 2, Reason: c.err}
		if err := in.own.rejectStretch(1, f); err != nil || in.own.letters[0].Reason.Message != c.want || in.own.letters[0].Refused != f {
			t.Errorf("%v: %+v, %v", c.err, in.own.letters, err)
		}
	}
	in.Config.DeadLetters.Policy = config.DeadLettersStop
	if err := in.own.rejectStretch(1, &kafka.Refused{First: 3, Last: 7, Reason: why}); !errors.Is(err, why) || !strings.HasPrefix(err.Error(), "offsets 3 to 7 of t/1 cannot be used and dead_letters.policy is stop") {
		t.Error(err)
	}
	if err := in.reject(1, &kafka.Record{Offset: 8}, "", why); !errors.Is(err, why) || !strings.HasPrefix(err.Error(), "record t/1/8 cannot") {
		t.Error(err)
	}
	in.Config.DeadLetters.Policy, in.own.letters = config.DeadLettersSkip, nil
	if err := in.reject(1, &kafka.Record{Offset: 8}, "", why); err != nil || in.own.letters != nil || fate(in.Config.DeadLetters) != "skipped" {
		t.Error(err, in.own.letters)
	}
}

// failing writes no dead letter.
type failing struct{ err error }

func (f failing) Write(context.Context, int, []kafka.Letter) error { return f.err }

// After a record that stops the intake nothing is applied, of its batch or of later ones.
func TestNothingIsAppliedAfterAFailure(t *testing.T) {
	in := idle(t, map[string]string{"dead_letters.policy": "stop"})
	good := func(offset int64) kafka.Record {
		return kafka.Record{Offset: offset, Value: []byte(`{"label":"a","x":1}`), Time: time.UnixMilli(1)}
	}
	deliver := func(next int64, records ...kafka.Record) error {
		y := newDelivery(kafka.NewBatch(0, records, kafka.Saved{Next: next}))
		for _, x := range y.tasks {
			close(x.done)
		}
		err := in.Apply(t.Context(), y)
		in.Release(y)
		return err
	}
	if err := deliver(3, good(0), kafka.Record{Offset: 1, Value: []byte("bad")}, good(2)); err == nil || !strings.Contains(err.Error(), "record t/0/1") {
		t.Errorf("a bad record: %v", err)
	}
	if err := deliver(4, good(3)); err != nil {
		t.Error(err)
	}
	if at := in.Applied(); in.Live.Blocks() != 1 || len(at) != 0 && at[0].Next > 1 {
		t.Errorf("%d blocks are live, at %v", in.Live.Blocks(), at)
	}
	in = idle(t, map[string]string{"dead_letters.policy": "dlq"})
	lost := errors.New("no broker")
	in.Letters = failing{lost}
	if err := deliver(2, kafka.Record{Offset: 0, Value: []byte("bad")}, good(1)); !errors.Is(err, lost) {
		t.Errorf("a dead letter that cannot be written: %v", err)
	}
	if err := deliver(4, good(2), kafka.Record{Offset: 3, Value: []byte("bad")}); err != nil || in.Live.Blocks() != 1 || len(in.Applied()) != 0 {
		t.Errorf("after that %d blocks are live, at %v: %v", in.Live.Blocks(), in.Applied(), err)
	}
	in = idle(t, nil)
	gaveUp := func(why ...error) error {
		y := newDelivery(kafka.NewBatch(0, []kafka.Record{good(0)}, kafka.Saved{Next: 1}))
		y.tasks = nil
		for _, w := range why {
			x := &task{done: make(chan struct{}), fatal: w}
			close(x.done)
			y.tasks = append(y.tasks, x)
		}
		return in.Apply(t.Context(), y)
	}
	first, second := errors.New("first"), errors.New("second")
	if err := gaveUp(nil, first, second, nil); err != first {
		t.Errorf("of the workers' reasons %v is told", err)
	}
	if err := gaveUp(second); err != nil {
		t.Errorf("after a failure the reason %v is told", err)
	}
	if err := deliver(1, good(0)); err != nil || in.Live.Blocks() != 0 || len(in.Applied()) != 0 {
		t.Errorf("%d blocks are live after a failure, at %v: %v", in.Live.Blocks(), in.Applied(), err)
	}
}

// The judged rows of a block have the answers and the losses of the model for the whole block. Rows
// of weight 0, or without a label, have none, and those of other classes are wrong.
func TestJudgedRowsAreThoseOfTheBlock(t *testing.T) {
	r := rand.New(rand.NewPCG(74, 1))
	for _, size := range [][2]int{{50, 3}, {1500, 100}} {
		rows, n := size[0], size[1]
		m := &incremental.Model{Features: incremental.DefaultFeatures(n), Classes: []string{"a", "b", "c"}}
		for _, class := range m.Classes {
			w := make([]float64, n)
			for j := range w {
				w[j] = r.NormFloat64()
			}
			m.Planes = append(m.Planes, incremental.Plane{Class: class, W: w, Gamma: r.NormFloat64()})
		}
		b := &incremental.Block{Classes: []string{"c", "other", "a", incremental.Unlabelled}}
		for range rows {
			b.Codes, b.Weights = append(b.Codes, int32(r.IntN(4))), append(b.Weights, float64(r.IntN(3)))
		}
		for range n {
			x := make([]float64, rows)
			for i := range x {
				x[i] = r.NormFloat64()
			}
			b.Columns = append(b.Columns, gram.ColumnOf(x))
		}
		answers, values := make([]int32, rows), make([]float64, 3*rows)
		m.Classify(answers, values, b.Columns)
		var want []ruling
		last := int32(-1)
		for i, code := range b.Codes {
			if b.Weights[i] > 0 && code < 3 {
				class := int32([]int{2, -1, 0}[code])
				want = append(want, ruling{class, answers[i], prequential.SquaredError(values[3*i:][:3], class), code == last, false})
				last = code
			}
		}
		order := func(a, b ruling) int { return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(a.class, b.class)) }
		var j judge
		got := j.rows(b, &model.Served{Model: m}, new(allowance), 1, 2).rulings
		if len(got) < 10 || slices.IsSortedFunc(got, order) {
			t.Fatalf("%d rows in their order", len(got))
		}
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			t.Errorf("%d rows are judged, not %d, or in another way", len(got), len(want))
		}
		if z := j.rows(b.Slice(0, 0), &model.Served{Model: m}, new(allowance), 1, 2); z.rulings != nil {
			t.Error("a block without rows is judged")
		}
	}
}

// The record's detector finds the changes of one that has the same errors, also when it is saved
// and read again. It keeps a hundred of them.
func TestErrorsAreWatched(t *testing.T) {
	r := rand.New(rand.NewPCG(75, 1))
	in := idle(t, nil)
	by := &model.Classifier{Model: &incremental.Model{Classes: []string{"a", "b"}}}
	watch := drift.NewADWIN(drift.Delta)
	var want, got []drift.Change
	for step := range 400 {
		var rulings []ruling
		for range 1 + r.IntN(100) {
			y := ruling{class: int32(r.IntN(3)) - 1, answer: int32(r.IntN(2))}
			if step/40%2 == 0 {
				y.answer = max(y.class, 0)
			}
			wrong := 0.
			if y.class != y.answer {
				wrong = 1
			}
			if c, changed := watch.Add(wrong); changed {
				want = append(want, c)
			}
			rulings = append(rulings, y)
		}
		in.record.add(judgement{by: by, rulings: rulings})
		if n, share := in.Errors(); true {
			if m, mean := watch.Window(); n != m || share != mean && !(math.IsNaN(share) && math.IsNaN(mean)) {
				t.Fatalf("%d rows, %v of them wrong; not %d, %v", n, share, m, mean)
			}
		}
		if step%7 == 0 {
			text, err := in.Detector()
			if err != nil {
				t.Fatal(err)
			}
			in.record.errors, in.record.changes = nil, nil
			if err := in.RestoreDetector(text); err != nil {
				t.Fatal(err)
			}
		}
		if step%11 == 0 {
			got = append(got, in.TakeChanges()...)
		}
	}
	if got = append(got, in.TakeChanges()...); !slices.Equal(got, want) || len(want) < 5 || len(in.TakeChanges()) != 0 {
		t.Errorf("%d changes, not %d", len(got), len(want))
	}
	for i := range 200 * 64 {
		side := int32(i / 64 % 2)
		in.record.add(judgement{by: by, rulings: []ruling{{class: 0, answer: side}}})
	}
	text, err := in.Detector()
	if n := len(in.TakeChanges()); err != nil || n != mostChanges {
		t.Errorf("%d changes wait: %v", n, err)
	}
	if err := in.RestoreDetector(text); err != nil || len(in.TakeChanges()) != mostChanges {
		t.Errorf("as many as wait are not read: %v", err)
	}
	for _, bad := range []string{"", "{", `{"errors":null}`, `{"errors":{"delta":1},"changes":[]}`, strings.Replace(string(text), `"changes":[`, `"changes":[{},`, 1)} {
		if err := in.RestoreDetector([]byte(bad)); err == nil {
			t.Errorf("%.40s is taken", bad)
		}
	}
	off := idle(t, map[string]string{"drift.detect": "false"})
	if off.record.errors != nil || in.record.errors == nil {
		t.Error("errors are watched where nobody wants it, or not where somebody does")
	}
}

// A record waits for room only where it ends a run, whose block would wait for a save.
func TestRecordsThatEndARunWaitForRoom(t *testing.T) {
	in := idle(t, map[string]string{"blocks.unit": "time", "blocks.period": "10s"})
	room := true
	in.HasRoom = func(int64) bool { return room }
	for i, c := range []struct {
		seconds int64
		value   string
		waits   bool
	}{{1, "good", false}, {3, "good", false}, {2, "bad", false}, {25, "bad", false}, {4, "good", false}, {11, "good", true}, {12, "good", false}} {
		value := []byte(`{"label":"a","x":1}`)
		if c.value == "bad" {
			value = []byte("bad")
		}
		room = false
		in.Config.DeadLetters.Policy = config.DeadLettersSkip
		y := newDelivery(kafka.NewBatch(0, []kafka.Record{{Offset: int64(i), Time: time.UnixMilli(dayOne - dayOne%10_000 + 1000*c.seconds), Value: value}}, kafka.Saved{Next: int64(i + 1)}))
		close(y.tasks[0].done)
		if err := in.Apply(t.Context(), y); err != nil {
			t.Fatal(err)
		}
		waiting, bytes := in.Waiting()
		if (waiting != nil) != c.waits || c.waits && bytes != in.runBytes(in.partitions[0].open) {
			t.Errorf("record %d waits: %t for %d bytes, want %t", i, waiting != nil, bytes, c.waits)
		}
		if room = true; waiting != nil {
			if err := in.Continue(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A save that makes room in the middle of a batch has the position of the records that have been
// applied: after a crash they would be counted once more.
func TestPositionGoesWithWhatIsApplied(t *testing.T) {
	for _, unit := range []string{"message", "key"} {
		in := idle(t, map[string]string{"blocks.unit": unit})
		room := 1
		in.HasRoom = func(int64) bool { room--; return room >= 0 }
		var records []kafka.Record
		for i := range 3 {
			records = append(records, kafka.Record{Offset: int64(i), Time: time.UnixMilli(dayOne), Key: []byte{byte('a' + i)}, Value: []byte(`{"label":"a","x":1}`)})
		}
		y := newDelivery(kafka.NewBatch(0, records, kafka.Saved{Next: 3}))
		close(y.tasks[0].done)
		err := in.Apply(t.Context(), y)
		for next := int64(1); ; next++ {
			if err != nil {
				t.Fatal(err)
			}
			offsets, _ := in.TakeMoved()
			if n := in.Counts().AppliedRecords; len(offsets) != 1 || offsets[0].Next != next || n != next {
				t.Fatalf("%s: saved at %+v with %d records, want the position %d", unit, offsets, n, next)
			}
			if waiting, _ := in.Waiting(); waiting == nil {
				break
			}
			room = 1
			err = in.Continue(t.Context())
		}
	}
}

// Gathered records have the features of the first one and no more classes than the model may have,
// those of open runs of all partitions included, and no more memory than there is for them. When no
// block is left and no run is open, the features are free.
func TestGatheredRecordsAreAdmitted(t *testing.T) {
	refused := map[string]int64{}
	freed := 0
	for seed := range uint64(24) {
		h := newHistory(t, seed, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "5"})
		h.Budget.Gathered = []int64{1 << 20, 500}[seed%2]
		runs := map[int][]row{} // rows of the open run
		bucket := map[int]int64{}
		blocks := map[string][]row{} // live, by id
		id := map[int]string{}
		next := map[int]int64{}
		former := map[int]message{}
		var features []string
		kinds := map[string]int64{}
		for range 150 {
			if h.r.IntN(12) == 0 { // all blocks of some partition are retired
				if _, err := h.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := h.EndBlocks(t.Context(), func(string) bool { return true }); err != nil {
					t.Fatal(err)
				}
				partition := h.r.IntN(3)
				for _, e := range slices.Collect(h.Live.Everything) {
					if e.Position.Partition == partition || partition == 2 {
						delete(blocks, e.ID)
						if err := h.Live.Retire(e.ID); err != nil {
							t.Fatal(err)
						}
					}
				}
				clear(runs)
			}
			partition := h.r.IntN(2)
			y := randomMessage(h.r, next[partition], true)
			next[partition] = y.Offset + 1
			open := 0
			for _, rows := range runs {
				open += len(rows)
			}
			if features != nil && open == 0 && len(blocks) == 0 {
				features = nil
				freed++
			}
			rows, bad := y.weighing(), y.bad
			if features != nil && !slices.Equal(features, y.columns) && (bad == "" || bad == kindRow) {
				bad = kindFormat
			}
			if y.refused == nil && bucket[partition] != y.Offset/5 {
				runs[partition], bucket[partition] = nil, y.Offset/5
			}
			gathered := int64(0) // in open runs, once that of another bucket is closed
			for number, p := range h.partitions {
				if p.open != nil && (number != partition || len(runs[partition]) > 0) {
					gathered += p.open.rows.bytes()
				}
			}
			if bad == "" && len(rows) > 0 {
				var all []row
				for _, have := range blocks {
					all = append(all, have...)
				}
				for _, have := range runs {
					all = append(all, have...)
				}
				switch {
				case gathered+8*4*int64(len(rows)) > h.Budget.Gathered:
					bad = kindMemory
				case len(labelsOf(append(all, rows...))) > 3:
					bad = kindClasses
				default:
					features = y.columns
					if len(runs[partition]) == 0 {
						id[partition] = fmt.Sprintf("t/%d/%d", partition, y.Offset)
					}
					runs[partition] = append(runs[partition], rows...)
					blocks[id[partition]] = runs[partition]
				}
			}
			if bad != "" {
				n := int64(1)
				if y.refused != nil {
					n = y.refused.Records
				}
				kinds[bad] += n
			}
			batch := []message{y}
			if last, ok := former[partition]; ok && (last.refused != nil) == (y.refused != nil) { // it comes once more
				batch = []message{last, y}
			}
			former[partition] = y
			h.deliver(partition, batch, y.Offset+1)
			for _, r := range h.Report().Refused {
				if kinds[r.Reason] != r.Records {
					t.Fatalf("seed %d, %d/%d: %d records are refused for %s, not %d (of %v)", seed, partition, y.Offset, r.Records, r.Reason, kinds[r.Reason], kinds)
				}
			}
			if h.r.IntN(4) > 0 {
				continue
			}
			if _, err := h.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := slices.Collect(h.Live.Everything)
			for _, e := range all {
				s, err := h.Live.Summary(e, h.Live.InUse().Coordinates)
				if err != nil || blocks[e.ID] == nil || s.Digest() != summaryOf(t, blocks[e.ID]).Digest() {
					t.Fatalf("seed %d: block %s has other rows: %v", seed, e.ID, err)
				}
			}
			if len(all) != len(blocks) {
				t.Fatalf("seed %d: %d blocks, not %d", seed, len(all), len(blocks))
			}
		}
		for kind, n := range kinds {
			refused[kind] += n
		}
	}
	if refused[kindClasses] < 20 || refused[kindMemory] < 20 || refused[kindFormat] < 20 || freed < 10 {
		t.Errorf("refused %v, freed %d: the histories do not reach what they should", refused, freed)
	}
}

// A partition that is read from its very beginning has a position, 0, and one that nothing is known
// of has none.
func TestPositionsBeginAtZero(t *testing.T) {
	in := idle(t, nil)
	in.partition(2).applied.next = 0
	in.partition(1).applied.next = -1
	in.partition(0).applied.next = 7
	want := []model.Offset{{Topic: "t", Partition: 0, Next: 7}, {Topic: "t", Partition: 2, Next: 0}}
	if got := in.Applied(); !reflect.DeepEqual(got, want) {
		t.Errorf("the positions are %+v, not %+v", got, want)
	}
}

// Rows that bring neither a class nor larger numbers to an open run are not refused where the
// memory for another block is gone: the run has its own.
func TestOpenRunsGrowWithoutMoreMemory(t *testing.T) {
	in := idle(t, map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100", "dead_letters.policy": "skip"})
	row := func(label string) kafka.Record {
		return kafka.Record{Value: fmt.Appendf(nil, `{"label":%q,"x":1}`, label), Time: time.UnixMilli(1)}
	}
	for i, c := range []struct {
		label   string
		refused int64
	}{{"a", 0}, {"a", 0}, {"b", 1}} {
		if err := feed(t, in, false, row(c.label)); err != nil {
			t.Fatal(err)
		}
		if got := in.Report().Records; got.Rejected != c.refused || got.Read != int64(i+1) {
			t.Errorf("record %d: %+v; want %d refused", i, got, c.refused)
		}
		in.Budget.Limit = 0 // the first record has come
	}
}
