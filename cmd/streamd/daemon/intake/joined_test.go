package intake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/joining"
	"streamd/cmd/streamd/daemon/live"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// A site of joins is a daemon's intake with its file, which may begin anew at any time.
type joinSite struct {
	testing.TB
	*Intake
	flags    map[string]string
	path     string
	store    *snapshot.Store
	settings snapshot.Settings
	labels   *Decoder
	fails    bool
	noRoom   int // blocks for which there is no room at once
}

func newJoinSite(t testing.TB, flags map[string]string) *joinSite {
	s := &joinSite{TB: t, flags: flags, path: filepath.Join(t.TempDir(), "streamd.db"), settings: snapshot.Settings{Topic: "t", Unit: "key"}}
	s.open(nil)
	t.Cleanup(func() { s.store.Close() })
	return s
}

func (s *joinSite) open(key *receipt.Key) {
	s.Helper()
	in := idle(s.TB, s.flags)
	store, contents, err := snapshot.Open(s.path, s.settings)
	if err != nil {
		s.Fatal(err)
	}
	s.store = store
	l, _, err := live.Open(store, contents, in.Config, in.Budget, zerolog.Nop())
	if err != nil {
		s.Fatal(err)
	}
	if key != nil {
		if err := l.KeepReceipts(key); err != nil {
			s.Fatal(err)
		}
	}
	x := in.Settings
	x.Live, x.Ahead, x.TooOld = l, &counter{}, &counter{}
	if in.Config.Labels.Topic != "" {
		x.Labels = joining.New(RulesOf(in.Config, math.MaxInt64))
		var saved []joining.Saved
		for _, i := range contents.Joining.Items {
			saved = append(saved, joining.Saved{ID: i.ID, Value: i.Value})
		}
		if err := x.Labels.Restore(saved, contents.Joining.Record, in.Config.Format.Features); err != nil {
			s.Fatal(err)
		}
	}
	x.LabelPartitions = func() int { return 2 }
	x.HasRoom = func(int64) bool {
		s.noRoom--
		return s.noRoom < 0
	}
	s.Intake = New(x)
	s.Restore(contents)
	s.labels = s.NewLabelDecoder()
}

func (s *joinSite) save() {
	s.Helper()
	c := s.Live.Change()
	c.Counts, c.SavedAt = s.Counts(), time.UnixMilli(1)
	var undo, undoJoining func()
	c.Offsets, undo = s.TakeMoved()
	c.Joining, undoJoining = s.TakeJoining(c.Joining.Forgotten)
	if s.fails { // and the next one has all of it
		undo()
		undoJoining()
		s.Live.NotSaved(&c)
		return
	}
	if _, err := s.store.Save(c); err != nil {
		s.Fatal(err)
	}
	s.Live.Saved(&c)
}

func (s *joinSite) restart(key *receipt.Key) {
	s.Helper()
	s.store.Close()
	s.open(key)
}

// take has the intake take the records of a partition from the position that it is at, up to next.
func (s *joinSite) take(r *rand.Rand, labels bool, partition int, log []kafka.Record, next int) {
	s.Helper()
	from := 0
	if labels {
		from = max(0, int(s.labelPartition(partition).at.Next))
	} else {
		from = max(0, int(s.partition(partition).at.Next))
	}
	records := slices.Clone(log[from:max(from, next)])
	at := kafka.Saved{Next: int64(max(from, next))}
	if at.Next > 0 { // what the last record is known by
		at.Last = kafka.Fingerprint{Offset: at.Next - 1, CRC: uint32(7 * at.Next), Millis: 11 * at.Next}
	}
	b := kafka.NewBatch(partition, records, at)
	if s.noRoom = 0; r.IntN(4) == 0 {
		s.noRoom = r.IntN(4)
	}
	var y *Delivery
	if labels {
		if err := s.DeliverLabels(s.Context(), s.labels, b); err != nil {
			s.Fatal(err)
		}
		y = <-s.order
	} else {
		y = newDelivery(b)
		s.room.Store(1 << 30)
		w, inWorker := newWorker(s.pool), r.IntN(2) == 0
		for _, x := range y.tasks {
			if inWorker {
				w.do(s.Context(), x)
			}
			close(x.done)
		}
	}
	err := s.Apply(s.Context(), y)
	for waiting, _ := s.Waiting(); waiting != nil && err == nil; waiting, _ = s.Waiting() {
		if r.IntN(2) == 0 {
			s.save() // with the position in the middle of a batch
		}
		if err = s.Live.Settle(); err == nil {
			err = s.Continue(s.Context())
		}
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Release(y)
	got := s.partition(partition).at
	if labels {
		got = s.labelPartition(partition).at
	}
	if got != at {
		s.Fatalf("partition %d is at %+v, and its batch at %+v", partition, got, at)
	}
}

// joinWorld is the two topics, and what they come to.
type joinWorld struct {
	rows, labels [2][]kafka.Record
	ids          bool // the id of a row is its field order, and records of any partition have any number of rows
	weights      bool
}

// weight is the field of a weight, if rows have one.
func (w *joinWorld) weight(r *rand.Rand) string {
	if !w.weights {
		return ""
	}
	return fmt.Sprintf(`,"w":%v`, []float64{1, 2, 0.25, 1.0 / 3}[r.IntN(4)])
}

// idField is a field with an id, which is a text or a number.
func idField(r *rand.Rand, name, id string) string {
	if r.IntN(2) == 0 {
		return fmt.Sprintf(`%q:%q`, name, id)
	}
	return fmt.Sprintf(`%q:%s`, name, id)
}

// addAnywhere adds a record that belongs to an id by its fields, or records of several.
func (w *joinWorld) addAnywhere(r *rand.Rand, k kafka.Record, all int) {
	id := func() string { return strconv.Itoa(r.IntN(all)) }
	row := func() string {
		return fmt.Sprintf(`{%s,"a":%d,"b":%v,"c":%v%s}`, idField(r, "order", id()), r.IntN(3)-1, r.NormFloat64()*1e10, r.NormFloat64(), w.weight(r))
	}
	rows, labels := &w.rows[r.IntN(2)], &w.labels[r.IntN(2)]
	if k.Key = nil; r.IntN(3) == 0 {
		k.Key = []byte("customer " + id())
	}
	switch r.IntN(12) {
	case 0:
		k.Key = []byte(id())
		*rows = append(*rows, k) // refused: a key names no row
	case 1:
		k.Value = []byte([]string{`{"order":"1","label":"a"}`, `{"a":1,"b":2,"c":3,"w":1}`, `[` + row() + `,{"order":"2","a":"no number","b":1,"c":2,"w":1}]`}[r.IntN(3)])
		*rows = append(*rows, k) // refused, and changes nothing
	case 2, 3, 4:
		k.Value = []byte(row())
		for range r.IntN(4) {
			k.Value = append(append(k.Value, '\n'), row()...)
		}
		*rows = append(*rows, k)
	case 5, 6: // a remembered prediction
		k.Key, k.Headers = []byte(id()), answered([]string{"a", "b", "other"}[r.IntN(3)], fmt.Sprint("model", r.IntN(5)))
		k.Value = fmt.Appendf(nil, `{"a":1,"b":%v,"c":-1%s}`, r.NormFloat64(), w.weight(r))
		*rows = append(*rows, k)
	case 7:
		k.Value = []byte(`{"order":"1","label":null}`)
		*labels = append(*labels, k) // refused, and changes nothing
	case 8:
		k.Value = []byte(`{"order":"1","id":"2","label":"a"}`)
		*labels = append(*labels, k) // refused: two ids
	default:
		class, x := []string{"a", "b", "7"}[r.IntN(3)], id()
		of := idField(r, []string{"id", "order"}[r.IntN(2)], x)
		switch k.Value = fmt.Appendf(nil, `{%s,"label":%q}`, of, class); r.IntN(4) {
		case 0:
			k.Value = fmt.Appendf(nil, `{%s,"label":%q,"time":%q}`, of, class, k.Time.Add(time.Second).Format(time.RFC3339Nano))
		case 1:
			k.Key, k.Value = []byte(x), fmt.Appendf(nil, `{"label":%q}`, class)
		case 2:
			k.Value = fmt.Appendf(nil, `{"id":%q,"order":%q,"label":%q}`, x, x, class)
		}
		*labels = append(*labels, k)
	}
}

// fieldsOf are the rows of a value, or the label.
func fieldsOf(value []byte) (rows []map[string]any) {
	d := json.NewDecoder(strings.NewReader(string(value)))
	d.UseNumber()
	for d.More() {
		var row map[string]any
		if d.Decode(&row) != nil {
			return nil
		}
		rows = append(rows, row)
	}
	return rows
}

// joinedID is the id that a row or a label has in a field or by its key.
func joinedID(k *kafka.Record, fields map[string]any) string {
	for _, name := range []string{"order", "id"} {
		if id, ok := fields[name]; ok {
			return fmt.Sprint(id)
		}
	}
	return string(k.Key)
}

// answered are the headers of a remembered prediction.
func answered(label, model string) []kafka.Header {
	return []kafka.Header{
		{Key: ModelHeader, Value: []byte(model)},
		{Key: AnswerHeader, Value: fmt.Appendf(nil, `{"model":%q,"method":"psvm","decision":"value","rows":[{"label":%q,"values":{"a":0.5}}]}`, model, label)},
	}
}

func hashOfID(id string) int {
	h := fnv.New32()
	h.Write([]byte(id))
	return int(h.Sum32())
}

func newJoinWorld(r *rand.Rand, n int) (w joinWorld) {
	at := 1_000_000
	w.ids, w.weights = r.IntN(3) == 0, r.IntN(3) == 0
	for range n {
		at += r.IntN(60)
		if w.ids {
			w.addAnywhere(r, kafka.Record{Time: time.UnixMilli(int64(at - r.IntN(100))).UTC()}, 6+n/8)
			continue
		}
		id := strconv.Itoa(r.IntN(6 + n/8))
		row, label := &w.rows[hashOfID(id)%2], &w.labels[hashOfID(id)/7%2]
		k := kafka.Record{Key: []byte(id), Time: time.UnixMilli(int64(at - r.IntN(100))).UTC()}
		switch r.IntN(12) {
		case 0:
			*row = append(*row, k) // a deletion
		case 1:
			k.Value = []byte(`{"label":"a"}`)
			*row = append(*row, k) // refused, and retires nothing
		case 2:
			k.Value = []byte(`{"a":"no number"}`)
			*row = append(*row, k)
		case 3, 4, 5, 6:
			k.Value = fmt.Appendf(nil, `{"a":%v,"b":%v,"c":%d%s}`, r.NormFloat64(), r.NormFloat64()*1e10, r.IntN(3)-1, w.weight(r))
			if r.IntN(2) == 0 {
				k.Headers = answered([]string{"a", "b", "other"}[r.IntN(3)], fmt.Sprint("model", r.IntN(5)))
			}
			*row = append(*row, k)
		case 7:
			*label = append(*label, k) // withdrawn
		case 8:
			k.Value = []byte(`{"label":null}`)
			*label = append(*label, k)
		default:
			k.Value = fmt.Appendf(nil, `{"id":%q,"label":%q}`, id, []string{"a", "b", "7"}[r.IntN(3)])
			if r.IntN(3) == 0 {
				k.Value = fmt.Appendf(nil, `{"label":"b","time":%q}`, k.Time.Add(time.Second).Format(time.RFC3339Nano))
			}
			*label = append(*label, k)
		}
	}
	for _, log := range [][2][]kafka.Record{w.rows, w.labels} {
		for _, records := range log {
			for i := range records {
				records[i].Offset = int64(i)
			}
		}
	}
	return w
}

// counts reads the logs up to positions, and returns the rows with the labels that count, under
// their keys, the answers that were given for those with labels of their own, and the number of
// rows and labels that can be used.
func (w *joinWorld) counts(cfg *config.Config, rowsTo, labelsTo [2]int) (resolved map[string]kafka.Record, given joining.GivenRows, rows, labels int64) {
	type timed struct {
		kafka.Record
		at        int64
		class     string
		partition int
	}
	// latest takes what counts of an id wherever it is: the one of the latest event time.
	latest := func(of map[string]timed, id string, x timed) {
		y, ok := of[id]
		if !ok || x.at > y.at || x.at == y.at && (x.partition > y.partition || x.partition == y.partition && x.Offset >= y.Offset) {
			of[id] = x
		}
	}
	clock := int64(math.MinInt64)
	row, label := map[string]timed{}, map[string]timed{}
	for number, log := range w.rows {
		var c retire.Clock
		for _, k := range log[:rowsTo[number]] {
			at, text := countsAs(cfg, &c, &k).UnixMilli(), string(k.Value)
			switch {
			case w.ids:
				all := fieldsOf(k.Value)
				if strings.Contains(text, "no number") || strings.Contains(text, "label") || k.Headers == nil && !strings.Contains(text, "order") {
					all = nil
				}
				for _, fields := range all {
					x := timed{k, at, "", number}
					id := joinedID(&k, fields)
					delete(fields, "order")
					x.Key = []byte(id)
					x.Value, _ = json.Marshal(fields)
					latest(row, id, x)
					rows++
				}
			case k.Value == nil || strings.Contains(text, "no number"):
				delete(row, string(k.Key))
			case !strings.Contains(text, "label"):
				row[string(k.Key)] = timed{k, at, "", number}
				rows++
			}
			if c.Add(k.Time); true {
				if now, ok := c.Now(); ok {
					clock = max(clock, now)
				}
			}
		}
	}
	for number, log := range w.labels {
		var c retire.Clock
		for _, k := range log[:labelsTo[number]] {
			text := string(k.Value)
			if strings.Contains(text, "time") {
				k.Time = k.Time.Add(time.Second)
			}
			at := countsAs(cfg, &c, &k).UnixMilli()
			switch {
			case w.ids && (strings.Contains(text, "null") || strings.Contains(text, `{"order":"1","id":"2"`)):
			case w.ids:
				fields := fieldsOf(k.Value)[0]
				latest(label, joinedID(&k, fields), timed{k, at, fields["label"].(string), number})
				labels++
			case k.Value == nil || strings.Contains(text, "null"):
				delete(label, string(k.Key))
			default:
				for _, class := range []string{"a", "b", "7"} {
					if strings.Contains(text, `"label":"`+class+`"`) {
						label[string(k.Key)] = timed{k, at, class, number}
					}
				}
				labels++
			}
			c.Add(k.Time)
			if now, ok := c.Now(); ok {
				clock = max(clock, now)
			}
		}
	}
	resolved = map[string]kafka.Record{}
	pairs, models := map[joining.Pair]int64{}, map[string]bool{}
	horizon := cfg.Labels.Horizon.Milliseconds()
	for id, k := range row {
		l, ok := label[id]
		class := l.class
		late := ok && horizon > 0 && l.at > k.at+horizon
		if !ok || late && cfg.Labels.Late == config.LateDrop {
			class = ""
			if horizon > 0 && clock > k.at+horizon {
				class = cfg.Labels.DefaultClass()
			}
		}
		if ok && class != "" && !(late && cfg.Labels.Late == config.LateDrop) && k.Headers != nil {
			var answer struct {
				Model string
				Rows  []struct{ Label string }
			}
			if err := json.Unmarshal(k.Headers[1].Value, &answer); err != nil {
				panic(err)
			}
			pairs[joining.Pair{Class: class, Answer: answer.Rows[0].Label}]++
			models[answer.Model] = true
		}
		if class != "" {
			k.Value = []byte(strings.TrimSuffix(string(k.Value), "}") + `,"label":"` + class + `"}`)
			resolved[id] = k.Record
		}
	}
	given.Models = len(models)
	for pair, n := range pairs {
		if given.Rows += n; pair.Class == pair.Answer {
			given.Right += n
		}
		given.Pairs = append(given.Pairs, joining.PairRows{Pair: pair, Rows: n})
	}
	slices.SortFunc(given.Pairs, func(x, y joining.PairRows) int {
		return cmp.Or(cmp.Compare(y.Rows, x.Rows), cmp.Compare(x.Class, y.Class), cmp.Compare(x.Answer, y.Answer))
	})
	return resolved, given, rows, labels
}

// The live set of rows whose labels come on a topic of their own is that of a topic that has the
// labels in its rows: the same digest, and the same root of the tree of receipts, whatever the
// order in which the partitions of the two topics were read, whatever the restarts, and wherever
// room lacked. So it is where ids are fields of rows in any partition, and where rows have weights.
// The figures of the answers that were given are those of the two topics, too. The books balance at
// any time.
func TestLabelsThatComeLater(t *testing.T) {
	histories := 300
	if testing.Short() {
		histories = 60
	}
	key := newReceiptKey(t)
	live, defaulted, expired, right := 0, 0, int64(0), int64(0)
	byField, weighted := 0, 0 // live blocks at the ends
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 21))
		flags := map[string]string{
			"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c", "dead_letters.policy": "skip", "retire.max_future": "200ms",
			"sample.rows": strconv.Itoa(r.IntN(2) * 10),
		}
		if r.IntN(3) > 0 {
			horizon := 1 + r.IntN(1500)
			flags["labels.late"] = []string{"replace", "drop"}[r.IntN(2)]
			if flags["labels.default"] = []string{"none", "b", "other"}[r.IntN(3)]; flags["labels.default"] == "none" {
				horizon += 1200 // no label is out of order by more
			}
			flags["labels.horizon"] = fmt.Sprintf("%dms", horizon)
		}
		w := newJoinWorld(r, 10+r.IntN(240))
		if w.ids {
			flags["labels.id"] = "order"
		}
		if w.weights {
			flags["format.weight"] = "w"
		}
		s := newJoinSite(t, flags)
		var rowsTo, labelsTo [2]int
		left := func() (n int) {
			for p := range 2 {
				n += len(w.rows[p]) - rowsTo[p] + len(w.labels[p]) - labelsTo[p]
			}
			return n
		}
		check := func() {
			t.Helper()
			resolved, given, rows, labels := w.counts(s.Config, rowsTo, labelsTo)
			balances(t, s.Intake)
			b := s.Labels.Report()
			if b.Rows != b.Joined+b.Defaulted+b.Waiting+b.Expired+b.SupersededRows || b.Labels != b.Joined+b.Early+b.Unmatched+b.SupersededLabels {
				t.Fatalf("seed %d: the books do not balance: %+v", seed, b)
			}
			if b.Rows != rows || b.Labels != labels || int(b.Joined+b.Defaulted) != len(resolved) || s.Live.Blocks() != len(resolved) {
				t.Fatalf("seed %d: %d live blocks of %d, rows %d, labels %d: %+v", seed, s.Live.Blocks(), len(resolved), rows, labels, b)
			}
			got := s.Labels.Given(100)
			if got.Waiting = 0; !reflect.DeepEqual(got, given) {
				t.Fatalf("seed %d: the answers that were given are %+v, and those of the topics %+v", seed, got, given)
			}
			right += given.Right
			live, defaulted, expired = live+len(resolved), defaulted+int(b.Defaulted), expired+b.Expired
		}
		for left() > 0 {
			switch p := r.IntN(2); r.IntN(8) {
			case 0:
				s.fails = r.IntN(3) == 0
				s.save()
				s.fails = false
			case 1: // what was not saved is read again
				s.restart(nil)
				for p := range 2 {
					rowsTo[p], labelsTo[p] = max(0, int(s.partition(p).at.Next)), max(0, int(s.labelPartition(p).at.Next))
				}
			case 2, 3, 4:
				rowsTo[p] = min(len(w.rows[p]), rowsTo[p]+r.IntN(12))
				s.take(r, false, p, w.rows[p], rowsTo[p])
				check()
			default:
				labelsTo[p] = min(len(w.labels[p]), labelsTo[p]+r.IntN(12))
				s.take(r, true, p, w.labels[p], labelsTo[p])
				check()
			}
		}
		s.save()
		s.restart(key)
		check()

		resolved, _, _, _ := w.counts(s.Config, rowsTo, labelsTo)
		if w.ids {
			byField += len(resolved)
		}
		if w.weights {
			weighted += len(resolved)
		}
		delete(flags, "labels.topic")
		for _, name := range []string{"labels.horizon", "labels.late", "labels.default", "labels.id"} {
			delete(flags, name)
		}
		oracle := newJoinSite(t, flags)
		var logs [2][]kafka.Record
		for _, id := range slices.Sorted(maps.Keys(resolved)) {
			p := hashOfID(id) % 2
			logs[p] = append(logs[p], resolved[id])
		}
		for p := range logs {
			for i := range logs[p] {
				logs[p][i].Offset = int64(i)
			}
			oracle.take(r, false, p, logs[p], len(logs[p]))
		}
		oracle.save()
		oracle.restart(key)
		if got, want := s.Live.Side(), oracle.Live.Side(); got != want {
			t.Fatalf("seed %d, %v: the live set is %x, and that of the rows with their labels %x", seed, flags, got, want)
		}
		s.store.Close()
		oracle.store.Close()
	}
	t.Logf("%d live blocks, %d of them of the default class; %d rows expired; %d right answers; %d by a field, %d with weights", live, defaulted, expired, right, byField, weighted)
	if live < 1000 || defaulted < 100 || expired < 100 || right < 1000 || byField < 200 || weighted < 200 {
		t.Error("this test shows little")
	}
}

// rec is a record of the next offset of a log.
func rec(log *[]kafka.Record, key, value string) {
	k := kafka.Record{Offset: int64(len(*log)), Key: []byte(key), Time: time.UnixMilli(1000 + int64(len(*log))).UTC()}
	if value != "" {
		k.Value = []byte(value)
	}
	*log = append(*log, k)
}

// A record of the topic of labels that cannot be used is counted and told of, and the former label
// of its key counts no more.
func TestUnusableLabels(t *testing.T) {
	for value, want := range map[string]string{
		`{"label":null}`:                                 "has no label",
		`[{"label":"a"},{"label":"b"}]`:                  "has 2 labels",
		`{"label":"a","time":1700000000000}`:             "want a time",
		`{"label":"a","time":"soon"}`:                    "want a time",
		`{"label":{"is":"a"}}`:                           "label",
		`nonsense`:                                       "json",
		`{"label":"third"}`:                              "classes",
		`{"label":"` + strings.Repeat("long", 99) + `"}`: "label",
	} {
		s := newJoinSite(t, map[string]string{
			"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c", "dead_letters.policy": "skip", "limits.classes": "2",
		})
		r := rand.New(rand.NewPCG(1, 1))
		var rows, labels []kafka.Record
		for _, id := range []string{"x", "y", "z"} {
			rec(&rows, id, `{"a":1,"b":2,"c":-0.0}`)
		}
		rec(&labels, "x", `{"label":"a"}`)
		rec(&labels, "y", `{"label":"b"}`)
		rec(&labels, "y", value)
		rec(&labels, "z", value)
		s.take(r, false, 0, rows, len(rows))
		s.take(r, true, 0, labels, len(labels))
		b := s.Labels.Report()
		// Without the class of y there is room for the third one.
		third := want == "classes"
		if b.Rejected == 0 || !third && b.Rejected != 2 || !strings.Contains(s.Report().Latest.Reason, want) && !third {
			t.Errorf("%s: %+v: %s", value, b, s.Report().Latest.Reason)
		}
		if v, _ := s.Labels.Get(retire.KeyID("y")); v.State != joining.Waiting || v.Row.Values == nil || s.Live.Blocks() != int(b.Joined) {
			t.Errorf("%s: the former label still counts: %+v, %d blocks", value, v, s.Live.Blocks())
		}
		balances(t, s.Intake)
		if b.Rows != b.Joined+b.Defaulted+b.Waiting+b.Expired+b.SupersededRows || b.Labels != b.Joined+b.Early+b.Unmatched+b.SupersededLabels {
			t.Errorf("%s: the books do not balance: %+v", value, b)
		}
	}
}

// What is said of the latest records is of both topics: each refused label counts among the records
// that were read, and a label that is used or withdrawn ends a row of refusals.
func TestLatestRecordsOfTwoTopics(t *testing.T) {
	s := newJoinSite(t, map[string]string{
		"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c", "dead_letters.policy": "skip",
	})
	r := rand.New(rand.NewPCG(1, 1))
	var rows, labels []kafka.Record
	take := func() {
		t.Helper()
		s.take(r, false, 0, rows, len(rows))
		s.take(r, true, 0, labels, len(labels))
	}
	check := func(what string, read, refused, inARow int64, good bool) {
		t.Helper()
		if n := s.Report().Latest; n.Read != read || n.Refused != refused || n.InARow != inARow || n.Good != good {
			t.Errorf("%s: %d of %d were refused, %d in a row, one applied: %t; want %d of %d, %d, %t", what, n.Refused, n.Read, n.InARow, n.Good, refused, read, inARow, good)
		}
	}
	for range 12 {
		rec(&labels, "x", `{"label":null}`)
	}
	take()
	check("refused labels", 12, 12, 12, false)
	s.Tell(time.UnixMilli(1)) // the latest records begin here
	s.Tell(time.UnixMilli(1).Add(recentTime))
	s.Tell(time.UnixMilli(1).Add(2 * recentTime))
	rec(&labels, "y", `{"label":"a"}`)
	take()
	check("a label", 1, 0, 0, true)
	rec(&labels, "y", `nonsense`)
	rec(&labels, "x", "")
	take()
	check("a label withdrawn", 3, 1, 0, true)
	rec(&rows, "x", `{"a":"no number"}`)
	rec(&labels, "x", `nonsense`)
	take()
	check("one refused of each topic", 5, 3, 2, true)
	rec(&rows, "x", `{"a":1,"b":2,"c":3}`)
	take()
	check("a row", 6, 3, 0, true)

	// A stretch of the topic of labels that cannot be read.
	b := kafka.NewBatch(0, nil, kafka.Saved{Next: 100})
	b.Refused = []kafka.Refused{{First: int64(len(labels)), Last: 99, Records: 30, Reason: errors.New("bad checksum")}}
	if err := s.DeliverLabels(s.Context(), s.labels, b); err != nil {
		t.Fatal(err)
	}
	y := <-s.order
	if err := s.Apply(s.Context(), y); err != nil {
		t.Fatal(err)
	}
	s.Release(y)
	check("a stretch", 36, 33, 30, true)
}

// A record whose header is no prediction is refused, and the answer of one that is comes with the
// row.
func TestGivenOf(t *testing.T) {
	s := newJoinSite(t, map[string]string{"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c", "dead_letters.policy": "skip"})
	r := rand.New(rand.NewPCG(1, 1))
	var rows, labels []kafka.Record
	for i, header := range []string{
		"", "nonsense", `{"model":"m"}`, `{"model":"m","rows":[{"label":"a"},{"label":"b"}]}`, `{"model":"","rows":[{"label":"a"}]}`,
		`{"model":"m","rows":[{"label":""}]}`, `{"model":"m","rows":[{"label":"` + strings.Repeat("a", 129) + `"}]}`,
	} {
		rec(&rows, fmt.Sprint(i), `{"a":1,"b":2,"c":3}`)
		rows[i].Headers = []kafka.Header{{Key: AnswerHeader, Value: []byte(header)}}
	}
	bad := len(rows)
	rec(&rows, "good", `{"a":1,"b":2,"c":3}`)
	rows[bad].Headers = answered("b", "m")
	s.take(r, false, 0, rows, len(rows))
	if text := s.Report().Latest.Reason; s.Report().Records.Rejected != int64(bad) || !strings.Contains(text, AnswerHeader) {
		t.Errorf("%d records are refused of %d: %s", s.Report().Records.Rejected, bad, text)
	}
	want := &joining.Given{Label: "b", Model: "m"}
	if v, _ := s.Labels.Get(retire.KeyID("good")); !reflect.DeepEqual(v.Row.Given, want) || s.Labels.Given(1).Waiting != 1 {
		t.Errorf("the answer is %+v", v.Row.Given)
	}
	s.save()
	s.restart(nil)
	if v, _ := s.Labels.Get(retire.KeyID("good")); !reflect.DeepEqual(v.Row.Given, want) {
		t.Errorf("after a restart the answer is %+v", v.Row.Given)
	}
	rec(&labels, "good", `{"label":"b"}`)
	s.take(r, true, 0, labels, len(labels))
	if g := s.Labels.Given(1); g.Right != 1 || g.Rows != 1 || g.Waiting != 0 {
		t.Errorf("%+v", g)
	}
}

// A block that is retired on request takes its row along: a later label does not bring it back. A
// new row does, with the label of its key. Labels of a topic that was made anew are withdrawn.
func TestRetiredRowsStayAway(t *testing.T) {
	s := newJoinSite(t, map[string]string{"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c"})
	r := rand.New(rand.NewPCG(1, 1))
	var rows, labels []kafka.Record
	rec(&rows, "x", `{"a":1,"b":2,"c":3}`)
	rec(&rows, "y", `{"a":1,"b":2,"c":3,"label":"passed over"}`)
	rec(&labels, "x", `{"label":"a"}`)
	rec(&labels, "y", `{"label":"b"}`)
	s.take(r, false, 0, rows, len(rows))
	s.take(r, true, 0, labels, len(labels))
	before := s.Live.Digest()
	s.save()
	s.restart(nil)
	if _, err := s.Live.RetireTogether([]string{retire.KeyID("x")}, nil); err != nil {
		t.Fatal(err)
	}
	rec(&labels, "x", `{"label":"b"}`)
	rec(&labels, "x", `{"label":"a"}`)
	s.take(r, true, 0, labels, len(labels))
	if s.Live.Blocks() != 1 {
		t.Errorf("%d blocks are live after a label of a retired one", s.Live.Blocks())
	}
	rec(&rows, "x", `{"a":1,"b":2,"c":3}`)
	s.take(r, false, 0, rows, len(rows))
	if s.Live.Blocks() != 2 || s.Live.Digest() != before {
		t.Errorf("%d blocks are live after a new row", s.Live.Blocks())
	}
	if err := s.JumpLabels(t.Context(), &kafka.GapError{Topic: "l", Saved: 4, Reset: true}, 0); err != nil {
		t.Fatal(err)
	}
	if b := s.Labels.Report(); s.Live.Blocks() != 0 || b.Waiting != 2 || b.Early != 0 {
		t.Errorf("%d blocks, %+v", s.Live.Blocks(), b)
	}
	labels = nil
	rec(&labels, "x", `{"label":"a"}`)
	rec(&labels, "y", `{"label":"b"}`)
	s.take(r, true, 0, labels, len(labels))
	if s.Live.Digest() != before {
		t.Error("the labels of the new topic give another state")
	}
	s.save()
	s.restart(nil)
	if s.Live.Digest() != before || s.Labels.Report().Joined != 2 {
		t.Error("a restart gives another state")
	}
}

// Of a record with several rows those count that can. It is refused for the others, once. Null
// values, rows without an id and records of too many blocks are refused whole, and change nothing.
func TestRowsOfARecord(t *testing.T) {
	s := newJoinSite(t, map[string]string{
		"kafka.topic": "t", "labels.topic": "l", "labels.id": "order", "blocks.unit": "key", "format.features": "a,b,c", "dead_letters.policy": "skip", "limits.classes": "2",
	})
	r := rand.New(rand.NewPCG(1, 1))
	var rows, labels []kafka.Record
	for i, class := range []string{"a", "b", "third", "a", "fourth"} {
		rec(&labels, "", fmt.Sprintf(`{"id":%d,"label":%q}`, i, class))
	}
	rec(&labels, "3", "") // withdrawn by its key
	s.take(r, true, 1, labels, len(labels))
	row := func(id int) string { return fmt.Sprintf(`{"order":%d,"a":%d,"b":2,"c":3}`, id, id) }
	rec(&rows, "", "["+row(0)+","+row(1)+","+row(2)+","+row(3)+","+row(4)+"]")
	s.take(r, false, 0, rows, len(rows))
	check := func(blocks int, rejectedRecords, rejectedRows int64, reason string) {
		t.Helper()
		balances(t, s.Intake)
		n := s.Report()
		if s.Live.Blocks() != blocks || n.Records.Rejected != rejectedRecords || n.Rows.Rejected != rejectedRows || !strings.Contains(n.Latest.Reason, reason) {
			t.Errorf("%d blocks, %+v %+v: %s, want %s", s.Live.Blocks(), n.Records, n.Rows, n.Latest.Reason, reason)
		}
		if b := s.Labels.Report(); b.Rows != b.Joined+b.Defaulted+b.Waiting+b.Expired+b.SupersededRows || b.Labels != b.Joined+b.Early+b.Unmatched+b.SupersededLabels {
			t.Errorf("the books do not balance: %+v", b)
		}
	}
	check(2, 1, 2, "classes")
	if b := s.Labels.Report(); b.Waiting != 1 || b.SupersededRows != 2 {
		t.Errorf("%+v", b)
	}
	digest := s.Live.Digest()
	for _, c := range []struct{ key, value, reason string }{
		{"0", "", "a key names no row"}, {"0", `{"a":1,"b":2,"c":3}`, "the id is missing"}, {"0", "[" + row(0) + `,{"order":"","a":1,"b":2,"c":3}]`, "the id is empty"},
	} {
		rec(&rows, c.key, c.value)
		s.take(r, false, 0, rows, len(rows))
		check(2, int64(len(rows)), 2, c.reason)
	}
	rec(&rows, "0", row(1)) // the key is of no interest
	s.take(r, false, 0, rows, len(rows))
	if check(2, int64(len(rows)-1), 2, ""); s.Live.Digest() != digest {
		t.Error("a row that comes again gives another state")
	}

	var names []string
	var fields strings.Builder
	for i := range 300 {
		names = append(names, fmt.Sprint("f", i))
		fmt.Fprintf(&fields, `,"f%d":%d`, i, i)
	}
	s = newJoinSite(t, map[string]string{
		"kafka.topic": "t", "labels.topic": "l", "labels.id": "order", "blocks.unit": "key", "format.features": strings.Join(names, ","), "dead_letters.policy": "skip",
	})
	most := int(live.UnsavedMemory / s.rowBytes())
	rows = nil
	for _, n := range []int{most, most + 1} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"order":%d%s}`, i, fields.String()))
		}
		rec(&rows, "", strings.Join(all, "\n"))
	}
	s.take(r, false, 0, rows, len(rows))
	if n := s.Report(); s.Labels.Len() != most || n.Records.Rejected != 1 || !strings.Contains(n.Latest.Reason, "send fewer rows in one") {
		t.Errorf("%d ids of %d, %+v: %s", s.Labels.Len(), most, n.Records, n.Latest.Reason)
	}
	balances(t, s.Intake)
}

// A row whose horizon has passed waits for a label that is read late, until every partition of the
// topic of labels is past it: one that has not been read yet may have the label.
func TestExpiredRowsWaitForAllPartitionsOfLabels(t *testing.T) {
	for _, c := range []struct{ read, of, blocks int }{{1, 2, 1}, {2, 2, 0}, {1, 1, 0}} {
		s := newJoinSite(t, map[string]string{
			"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c", "labels.horizon": "100ms", "labels.late": "drop",
		})
		s.LabelPartitions = func() int { return c.of }
		r := rand.New(rand.NewPCG(1, 1))
		var rows []kafka.Record
		rec(&rows, "x", `{"a":1,"b":2,"c":3}`)
		s.take(r, false, 0, rows, len(rows))
		var labels [2][]kafka.Record
		for p := range c.read {
			for range 8 { // as many as move a clock
				rec(&labels[p], "other", `{"label":"b"}`)
				labels[p][len(labels[p])-1].Time = time.UnixMilli(5000)
			}
			s.take(r, true, p, labels[p], len(labels[p]))
		}
		if b := s.Labels.Report(); b.Expired != 1 {
			t.Fatalf("%d partitions are read: %+v", c.read, b)
		}
		last := c.of - 1
		rec(&labels[last], "x", `{"label":"a","time":"1970-01-01T00:00:01.05Z"}`)
		s.take(r, true, last, labels[last], len(labels[last]))
		if s.Live.Blocks() != c.blocks {
			t.Errorf("%d of %d partitions were past the row when its label came: %d blocks are live, want %d", c.read, c.of, s.Live.Blocks(), c.blocks)
		}
	}
}

// A row is not joined with its label while blocks depart: where one that takes no more room than
// there is would be joined before, another one would be refused for blocks that are gone.
func TestJoinedRowsWaitForBlocksThatDepart(t *testing.T) {
	s := newJoinSite(t, map[string]string{"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c"})
	if _, err := s.Live.FollowWithdrawals(); err != nil {
		t.Fatal(err)
	}
	s.Live.DepartAtOnce(0)
	r := rand.New(rand.NewPCG(1, 1))
	var labels, rows []kafka.Record
	for i, id := range []string{"early", "late", "new"} {
		rec(&labels, id, `{"label":"a"}`)
		rec(&rows, id, `{"a":1,"b":2,"c":3}`)
		rows[i].Time = time.UnixMilli(int64(1000 * (i + 1)))
	}
	s.take(r, true, 0, labels, len(labels))
	s.take(r, false, 0, rows, 2)
	of := retire.Selection{From: time.UnixMilli(500), To: time.UnixMilli(1500)}
	if _, err := s.Live.Withdraw("the early one", &of); err != nil || s.Live.Departing() != 1 {
		t.Fatalf("%d blocks depart, %v", s.Live.Departing(), err)
	}
	y := newDelivery(kafka.NewBatch(0, slices.Clone(rows[2:]), kafka.Saved{Next: 3}))
	s.room.Store(1 << 30)
	for _, x := range y.tasks {
		close(x.done)
	}
	if err := s.Apply(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	if waiting, _ := s.Waiting(); waiting == nil || s.Live.Departing() != 1 {
		t.Fatalf("a row was joined while %d blocks departed", s.Live.Departing())
	}
	if err := s.Live.Settle(); err != nil {
		t.Fatal(err)
	}
	if err := s.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Release(y)
	if waiting, _ := s.Waiting(); waiting != nil || s.Live.Blocks() != 2 {
		t.Errorf("%d blocks are live, want 2", s.Live.Blocks())
	}
}

// A row that comes before its label counts among the records whose event time is ahead.
func TestJoinedRowsAheadAreCounted(t *testing.T) {
	s := newJoinSite(t, map[string]string{
		"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c", "retire.max_future": "1m",
	})
	r := rand.New(rand.NewPCG(1, 1))
	var rows []kafka.Record
	for range 8 {
		rec(&rows, "x", `{"a":1,"b":2,"c":3}`)
	}
	rows[len(rows)-1].Time = rows[0].Time.Add(time.Hour)
	s.take(r, false, 0, rows, len(rows))
	if n := s.Ahead.(*counter).n; n != 1 {
		t.Errorf("%d records are ahead, want 1", n)
	}
}

// A position in the topic of labels is saved also where its records have changed nothing else:
// otherwise they are read again after each restart.
func TestPositionsOfLabelsAreSaved(t *testing.T) {
	s := newJoinSite(t, map[string]string{"kafka.topic": "t", "labels.topic": "l", "blocks.unit": "key", "format.features": "a,b,c"})
	if s.Moved() {
		t.Error("something has moved before anything was read")
	}
	if err := s.JumpLabels(t.Context(), &kafka.GapError{Topic: "l", Saved: 4}, 9); err != nil {
		t.Fatal(err)
	}
	if !s.Moved() {
		t.Error("behind a gap of the topic of labels nothing has moved")
	}
	s.save()
	if s.Moved() {
		t.Error("what was saved has moved")
	}
	s.restart(nil)
	if at := s.LabelPositions()[0].Next; at != 9 {
		t.Errorf("labels are read from %d on, want 9", at)
	}
}
