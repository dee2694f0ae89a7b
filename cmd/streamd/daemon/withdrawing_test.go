package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/snapshot"
)

// withdrawals is a data topic, whose records are rows, and a control topic.
type withdrawals struct {
	t             *testing.T
	data, control string
	per           int          // offsets in a block
	rows          [2][]float64 // of each partition
}

func newWithdrawals(t *testing.T, per int) *withdrawals {
	data := topic(t, 2)
	return &withdrawals{t: t, data: data, control: controlTopic(t, data), per: per}
}

// controlTopic creates the control topic for a topic of data, and returns its name. The first
// record changes nothing. The embedded broker's compaction, other than Kafka's, moves the log's
// beginning to the first record that it keeps, and it keeps this one.
func controlTopic(t testing.TB, data string) string {
	t.Helper()
	name := data + ".control"
	if err := kafka.EnsureTopic(t.Context(), cluster(t), name, 1, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	produce(t, name, message{key: []byte("first"), value: []byte(`{"restore":true}`)})
	return name
}

// add produces n further records in each partition.
func (w *withdrawals) add(n int) {
	var messages []message
	for p := range w.rows {
		for range n {
			messages = append(messages, w.next(p))
		}
	}
	produce(w.t, w.data, messages...)
}

// next makes the next record of a partition.
func (w *withdrawals) next(partition int) message {
	i := len(w.rows[partition])
	x := float64(100*partition + i*i)
	w.rows[partition] = append(w.rows[partition], x)
	return message{partition: partition, value: fmt.Appendf(nil, "%d,%g,%g", i%2, x, 1/(1+x)), contentType: "text/csv"}
}

// say writes a record of the control topic; an empty value is a tombstone.
func (w *withdrawals) say(key, value string) {
	m := message{key: []byte(key)}
	if value != "" {
		m.value = []byte(strings.ReplaceAll(value, "TOPIC", w.data))
	}
	produce(w.t, w.control, m)
}

// digest is that of all blocks except those of some offsets, each PARTITION/OFFSET.
func (w *withdrawals) digest(except ...string) string {
	w.t.Helper()
	var z incremental.Summariser
	out := map[string]bool{}
	for _, name := range except {
		out[name] = true
	}
	sum := incremental.NewState(incremental.DefaultFeatures(2))
	for p, rows := range w.rows {
		for from := 0; from < len(rows); from += w.per {
			b := &incremental.Block{Classes: []string{"0", "1"}}
			var x, y []float64
			for i := from; i < min(from+w.per, len(rows)); i++ {
				if name := fmt.Sprintf("%d/%d", p, i); out[name] {
					delete(out, name)
					continue
				}
				x, y, b.Codes = append(x, rows[i]), append(y, 1/(1+rows[i])), append(b.Codes, int32(i%2))
			}
			if len(x) == 0 {
				continue
			}
			b.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
			s, err := z.Summarise(b)
			if err != nil {
				w.t.Fatal(err)
			}
			sum.Add(s)
		}
	}
	if len(out) > 0 {
		w.t.Fatalf("no blocks %v", out)
	}
	return live.DigestOf(sum)
}

// start starts a daemon that has nothing yet, or the state in a file.
func (w *withdrawals) start(file string, flags map[string]string) *instance {
	all := map[string]string{"format.csv_header": "absent", "retire.topic": w.control, "sample.rows": "100", "snapshot.interval": "20ms"}
	for k, v := range flags {
		all[k] = v
	}
	return start(w.t, w.data, file, all)
}

// follows waits until daemons have all blocks except some.
func (w *withdrawals) follows(what string, all []*instance, except ...string) {
	w.t.Helper()
	want := w.digest(except...)
	for _, i := range all {
		i.wait(what, func(s *model.Served) bool { return s.Digest == want })
	}
}

// end stops a daemon. Its counts then agree with its live blocks.
func (w *withdrawals) end(i *instance) {
	w.t.Helper()
	i.stop()
	if c := i.Intake.Counts(); c.BlocksAdded-c.BlocksRetired-c.BlocksReplaced != int64(i.Live.Blocks()) {
		w.t.Errorf("%d blocks are live, and the counts are %+v", i.Live.Blocks(), c)
	}
}

// Records of the control topic retire blocks that came before them and after them, in every
// instance, whoever has the block. They stay retired after a restart and for a daemon with a
// new snapshot, until they are taken back.
func TestControlTopic(t *testing.T) {
	w := newWithdrawals(t, 1)
	w.say("early", `{"retire":{"positions":["TOPIC/0/3-5","TOPIC/1/20-21"]}}`)
	w.add(10)
	file := filepath.Join(t.TempDir(), "streamd.db")
	a := w.start(file, nil)
	w.follows("the early record", []*instance{a}, "0/3", "0/4", "0/5")
	if status, body := a.ask(http.MethodGet, "/v1/model?positions="+url.QueryEscape(w.data+"/1/0-9")); status != http.StatusOK {
		t.Errorf("a window: %d, %s", status, body)
	}

	w.say("late", `{"retire":{"ids":["TOPIC/1/0","TOPIC/1/1"]}}`)
	w.say("mistaken", `{"retire":{"ids":[]}}`)
	w.follows("the late record", []*instance{a}, "0/3", "0/4", "0/5", "1/0", "1/1")
	a.await("the mistake to be told", func() bool {
		s := a.Daemon.Status() // instance.Status waits for the loop, which this is
		return s.Unreadable == 1 && slices.ContainsFunc(s.Problems, func(p httpapi.Problem) bool {
			return strings.Contains(p.Text, "whose latest record cannot be read, and changes nothing: 1;")
		})
	})
	w.say("mistaken", `{"restore":true}`)
	a.await("the mistake to be mended", func() bool {
		s := a.Daemon.Status() // instance.Status waits for the loop, which this is
		return s.Unreadable == 0 && !slices.ContainsFunc(s.Problems, func(p httpapi.Problem) bool { return p.Level() != httpapi.LevelHint })
	})
	if kept := a.Windows.Kept(); kept != 0 {
		t.Errorf("%d models of windows with retired blocks are kept", kept)
	}
	past, _, _ := a.Events("")
	past = slices.DeleteFunc(slices.Clone(past), func(e httpapi.Event) bool { return e.Type == httpapi.EventProblem })
	if e := past[len(past)-1]; e.Type != httpapi.EventRetirement || e.Retirement.Blocks != 2 || e.Retirement.Rows != 2 || e.Retirement.DigestAfter != w.digest("0/3", "0/4", "0/5", "1/0", "1/1") {
		t.Errorf("the last event is %+v", e)
	}

	w.add(15) // 1/20 and 1/21 are among them
	out := []string{"0/3", "0/4", "0/5", "1/0", "1/1", "1/20", "1/21"}
	w.follows("blocks that come after their record", []*instance{a}, out...)
	w.end(a)
	a = w.start(file, nil)
	b := w.start(filepath.Join(t.TempDir(), "new.db"), nil)
	both := []*instance{a, b}
	w.follows("a restart, and a new snapshot", both, out...)

	w.say("late", `{"retire":{"ids":["TOPIC/1/1","TOPIC/1/2"]}}`) // 1/0 comes back, and 1/2 goes
	w.follows("another selection of the same key", both, "0/3", "0/4", "0/5", "1/1", "1/2", "1/20", "1/21")
	w.say("early", "")
	w.follows("a tombstone", both, "1/1", "1/2")
	w.end(a)
	w.say("late", `{"restore":true}`)
	a = w.start(file, nil)
	w.follows("a restart after restore", []*instance{a, b})
	w.end(a)
	w.end(b)
}

// A block that the control topic has retired can also be retired on request, in one replica. Then
// no record of that topic gives it back there, also after a restart.
func TestRetireBlocksOfTheControlTopic(t *testing.T) {
	w := newWithdrawals(t, 1)
	w.say("r", `{"retire":{"ids":["TOPIC/0/3","TOPIC/1/1"]}}`)
	w.add(10)
	file := filepath.Join(t.TempDir(), "streamd.db")
	a := w.start(file, withReceipts(t.TempDir(), map[string]string{"blocks.unit": "message"}))
	w.follows("the record", []*instance{a}, "0/3", "1/1")
	s := retire.Selector{IDs: []string{w.data + "/0/3", w.data + "/9/9"}}
	for _, dryRun := range []bool{true, false} {
		r, err := a.Retire(t.Context(), s, httpapi.RetireOptions{DryRun: dryRun, Here: true})
		if err != nil || r.Blocks != 1 || r.Withdrawn != 1 || r.Archived != 0 || r.Rows != 1 || r.NotLive != 1 || r.First[0].ID != w.data+"/0/3" {
			t.Fatalf("%+v, %v", r, err)
		}
		if dryRun != (len(r.Receipts) == 0) || dryRun != (r.Request == "") || r.Control != "" {
			t.Errorf("dry run %v: %+v", dryRun, r)
		}
		if !dryRun && (r.DigestAfter != r.DigestBefore || r.RetiredAt == nil || r.First[0].Proof != "") {
			t.Errorf("%+v", r)
		}
	}
	if _, err := a.Retire(t.Context(), s, httpapi.RetireOptions{}); !errors.Is(err, httpapi.ErrNoneChosen) || !strings.Contains(err.Error(), "receipts [") {
		t.Errorf("again: %v", err)
	}
	w.say("r", `{"restore":true}`)
	w.follows("restore", []*instance{a}, "0/3")
	w.end(a)
	w.say("r", "")
	w.add(1)
	a = w.start(file, nil)
	w.follows("a restart", []*instance{a}, "0/3")
	w.end(a)
}

// Gathered blocks have the same boundaries whatever the control topic says, and a block that
// grows is compared again.
func TestControlTopicOfGatheredBlocks(t *testing.T) {
	w := newWithdrawals(t, 8)
	flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "8"}
	w.add(6)
	file := filepath.Join(t.TempDir(), "streamd.db")
	a := w.start(file, flags)
	w.follows("the start", []*instance{a})
	w.say("k", `{"retire":{"positions":["TOPIC/0/7-7"]}}`)
	w.add(1)
	w.follows("an offset beyond the open block", []*instance{a})
	w.end(a) // the block is read again
	a = w.start(file, flags)
	w.follows("a restart", []*instance{a})
	w.add(5)
	var first []string
	for i := range 8 {
		first = append(first, fmt.Sprintf("0/%d", i))
	}
	w.follows("the block has grown to the offset", []*instance{a}, first...)
	w.say("k", `{"retire":{"positions":["TOPIC/1/9-9"]}}`)
	open := []string{"1/8", "1/9", "1/10", "1/11"}
	w.follows("the open block", []*instance{a}, open...)
	w.end(a)
	a = w.start(file, flags)
	w.add(1)
	b := w.start(filepath.Join(t.TempDir(), "new.db"), flags)
	w.follows("it grows", []*instance{a, b}, append(open, "1/12")...)
	w.say("k", "")
	w.follows("it comes back", []*instance{a, b})
	w.end(a)
	w.end(b)
}

// A record leaves a span of event time blank, beside a window by age and blocks. A block that comes
// late into the span stays out, too.
func TestBlankSpanOfEventTime(t *testing.T) {
	w := newWithdrawals(t, 1)
	at := func(minutes ...int) {
		var messages []message
		for _, m := range minutes {
			record := w.next(0)
			record.time = time.UnixMilli(1_700_000_000_000).Add(time.Duration(m) * time.Minute)
			messages = append(messages, record)
		}
		produce(t, w.data, messages...)
	}
	flags := map[string]string{"retire.keep": "blocks+age", "retire.blocks": "9", "retire.age": "10m", "retire.max_future": "1h"}
	at(0, 1, 2, 3, 4, 5, 6)
	a := w.start(filepath.Join(t.TempDir(), "streamd.db"), flags)
	w.follows("the window", []*instance{a})
	span := func(from, to int) string {
		text := func(minute int) string {
			return time.UnixMilli(1_700_000_000_000).Add(time.Duration(minute) * time.Minute).UTC().Format(time.RFC3339)
		}
		return fmt.Sprintf(`{"retire":{"from":%q,"to":%q}}`, text(from), text(to))
	}
	w.say("blank", span(3, 5))
	w.follows("the span", []*instance{a}, "0/3", "0/4")
	at(4) // 0/7
	at(11)
	w.follows("late into it", []*instance{a}, "0/0", "0/3", "0/4", "0/7") // 0/0 is too old now
	at(7, 8, 9)
	out := []string{"0/0", "0/1", "0/2"} // there are nine newer ones, 0/3, 0/4 and 0/7 among them
	w.follows("nine blocks", []*instance{a}, append(out, "0/3", "0/4", "0/7")...)
	w.say("blank", "")
	b := w.start(filepath.Join(t.TempDir(), "new.db"), flags)
	w.follows("nothing is blank", []*instance{a, b}, out...)
	w.end(a)
	w.end(b)
}

// The value of a record header chooses blocks, over HTTP, and by a record of the control topic also
// those that come later. The last header of the name counts. A restart knows the headers.
func TestRetiringByHeader(t *testing.T) {
	w := newWithdrawals(t, 1)
	of := func(tenants ...string) {
		var messages []message
		for _, tenant := range tenants {
			record := w.next(0)
			if tenant != "" {
				record.headers = []kafka.Header{{Key: "tenant", Value: []byte("first")}, {Key: "tenant", Value: []byte(tenant)}, {Key: "other", Value: []byte("ann")}}
			}
			messages = append(messages, record)
		}
		produce(t, w.data, messages...)
	}
	flags := map[string]string{"retire.header": "tenant"}
	file := filepath.Join(t.TempDir(), "streamd.db")
	of("ann", "bob", "", "ann", "first", "bob")
	a := w.start(file, flags)
	w.follows("the start", []*instance{a})
	w.end(a)
	a = w.start(file, flags)
	r, err := a.Retire(t.Context(), retire.Selector{Headers: []string{"bob", "none"}}, httpapi.RetireOptions{})
	if err != nil || r.Blocks != 2 || r.NoHeader != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.follows("a request", []*instance{a}, "0/1", "0/5")
	if _, err := a.Retire(t.Context(), retire.Selector{Headers: []string{"none"}}, httpapi.RetireOptions{DryRun: true}); !errors.Is(err, httpapi.ErrNoneChosen) || !strings.Contains(err.Error(), "blocks without a value of the header tenant: 1; ") {
		t.Errorf("a request that finds nothing: %v", err)
	}
	if _, err := a.Retire(t.Context(), retire.Selector{Headers: []string{"none"}, IDs: []string{w.data + "/0/0"}}, httpapi.RetireOptions{DryRun: true}); !errors.Is(err, httpapi.ErrNoneChosen) || strings.Contains(err.Error(), "header") {
		t.Errorf("a request for a block of another value: %v", err)
	}
	w.say("k", `{"retire":{"headers":["ann"]}}`)
	w.follows("a record", []*instance{a}, "0/0", "0/1", "0/3", "0/5")
	of("ann", "bob")
	w.follows("later blocks", []*instance{a}, "0/0", "0/1", "0/3", "0/5", "0/6")
	w.say("k", "")
	w.follows("a tombstone", []*instance{a}, "0/1", "0/5")
	w.end(a)

	a = w.start(file, nil)
	if _, err := a.Retire(t.Context(), retire.Selector{Headers: []string{"bob"}}, httpapi.RetireOptions{}); !errors.Is(err, retire.ErrHeaders) {
		t.Errorf("without retire.header: %v", err)
	}
	w.end(a)
}

// A daemon without the control topic takes back what the topic has retired: the topic's
// records are not in force.
func TestControlTopicThatIsLeft(t *testing.T) {
	w := newWithdrawals(t, 1)
	w.say("k", `{"retire":{"positions":["TOPIC/0/0-3"]}}`)
	w.add(5)
	file := filepath.Join(t.TempDir(), "streamd.db")
	a := w.start(file, nil)
	w.follows("the record", []*instance{a}, "0/0", "0/1", "0/2", "0/3")
	w.end(a)
	a = w.start(file, map[string]string{"retire.topic": ""})
	w.follows("no control topic", []*instance{a})
	w.end(a)
}

// A control topic that loses its beginning stops the next start, and no block comes back. So
// does one whose records Kafka will delete. The daemon goes on with a topic of another name that
// has the records again.
func TestControlTopicThatLosesItsBeginning(t *testing.T) {
	w := newWithdrawals(t, 1)
	w.control = w.data + ".deletable" // Kafka deletes no records of a topic that is compacted only
	if err := kafka.EnsureTopic(t.Context(), cluster(t), w.control, 1, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}); err != nil {
		t.Fatal(err)
	}
	w.say("k", `{"retire":{"positions":["TOPIC/0/0-3"]}}`)
	w.say("other", `{"retire":{"positions":["TOPIC/1/2-2"]}}`)
	w.add(5)
	file := filepath.Join(t.TempDir(), "streamd.db")
	a := w.start(file, nil)
	w.follows("the records", []*instance{a}, "0/0", "0/1", "0/2", "0/3", "1/2")
	deleteRecords(t, w.control, 1)
	a.until("the loss is a problem", func() bool { return strings.Contains(a.problems(), "the next start will fail") })
	w.end(a)

	fails := func(flags map[string]string, want any) {
		t.Helper()
		a := w.start(file, flags)
		select {
		case err := <-a.done:
			if !errors.As(err, want) {
				t.Errorf("the daemon ends with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the daemon does not stop")
		}
		s, c, err := snapshot.OpenReadOnly(file)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if len(c.Entries) != 5 || len(c.Withdrawn) != 5 {
			t.Errorf("the file has %d live blocks and %d withdrawn ones", len(c.Entries), len(c.Withdrawn))
		}
	}
	fails(nil, new(*control.LostError))
	deletes := w.data + ".deletes"
	if err := kafka.EnsureTopic(t.Context(), cluster(t), deletes, 1, map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000"}); err != nil {
		t.Fatal(err)
	}
	fails(map[string]string{"retire.topic": deletes}, new(*control.DeletesError))

	w.control = controlTopic(t, w.data+".again")
	w.say("k", `{"retire":{"positions":["TOPIC/0/0-3"]}}`)
	a = w.start(file, nil)
	w.follows("the topic of another name", []*instance{a}, "0/0", "0/1", "0/2", "0/3")
	w.end(a)
}

// A control topic that does not exist, before the start or after it, is a problem that the page
// shows.
func TestControlTopicThatIsMissing(t *testing.T) {
	w := newWithdrawals(t, 1)
	w.add(5)
	removeTopic(t, w.control)
	a := w.start(filepath.Join(t.TempDir(), "streamd.db"), nil)
	missing := "there is no topic " + w.control
	a.until("the start waits", func() bool {
		return strings.Contains(a.problems(), "has not been read up to its end, and nothing else is read before that: "+missing)
	})
	controlTopic(t, w.data)
	w.follows("the topic", []*instance{a})
	removeTopic(t, w.control)
	a.until("the topic goes", func() bool {
		return strings.Contains(a.problems(), "cannot be read, so no later record of it is in force: "+missing)
	})
	a.stop()
}

// table is a topic whose keys name blocks of one row, and what is known about them.
type table struct {
	*withdrawals
	values map[string]tableRow        // that the log has
	gone   map[string]bool            // keys that were retired over HTTP since their latest value
	in     map[string]retire.Selector // in force
}

type tableRow struct {
	class int
	x     float64
	at    time.Time
}

// live is the digest of a daemon that has followed the topics.
func (b *table) live() (digest string, keys []string) {
	var z incremental.Summariser
	sum := incremental.NewState(incremental.DefaultFeatures(2))
	for key, v := range b.values {
		out := b.gone[key]
		for _, s := range b.in {
			out = out || slices.Contains(s.Keys, key) && (s.From == nil || !v.at.Before(*s.From)) && (s.To == nil || v.at.Before(*s.To))
		}
		if out {
			continue
		}
		keys = append(keys, key)
		s, err := z.Summarise(&incremental.Block{Classes: []string{"0", "1"}, Codes: []int32{int32(v.class)},
			Columns: []gram.Column{gram.ColumnOf([]float64{v.x}), gram.ColumnOf([]float64{1 / (1 + v.x)})}})
		if err != nil {
			b.t.Fatal(err)
		}
		sum.Add(s)
	}
	slices.Sort(keys)
	return live.DigestOf(sum), keys
}

// Random histories of values, tombstones, retirements over HTTP, records of the control topic
// and restarts end with the sums of the surviving blocks alone. So does another replica, and a
// daemon that reads both topics from their beginning.
func TestHistoriesWithAControlTopic(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // they wait for the topics
			testHistory(t, rand.New(rand.NewPCG(71, seed)))
		})
	}
}

func testHistory(t *testing.T, r *rand.Rand) {
	b := &table{newWithdrawals(t, 1), map[string]tableRow{}, map[string]bool{}, map[string]retire.Selector{}}
	flags := map[string]string{"blocks.unit": "key"}
	file := filepath.Join(t.TempDir(), "streamd.db")
	epoch := time.UnixMilli(1_700_000_000_000).UTC()
	moment := func() *time.Time {
		if r.IntN(2) == 0 {
			return nil
		}
		at := epoch.Add(time.Duration(r.IntN(100)) * time.Second)
		return &at
	}
	a, replica := b.start(file, flags), b.start(filepath.Join(t.TempDir(), "replica.db"), flags)
	settle := func(what string, i *instance) []string {
		t.Helper()
		want, keys := b.live()
		i.wait(what, func(s *model.Served) bool { return s.Digest == want })
		return keys
	}
	asked := 0
	put := func(key string) {
		v := tableRow{r.IntN(2), float64(r.IntN(1000)), epoch.Add(time.Duration(r.IntN(100)) * time.Second)}
		produce(t, b.data, message{partition: int(key[1]) % 2, key: []byte(key), time: v.at, contentType: "text/csv",
			value: fmt.Appendf(nil, "%d,%g,%g", v.class, v.x, 1/(1+v.x))})
		b.values[key] = v
		delete(b.gone, key)
	}
	put("k9") // it stays, so that the features do
	for step := range 60 {
		key := fmt.Sprint("k", r.IntN(8))
		switch k := r.IntN(12); {
		case k < 5:
			put(key)
		case k == 5:
			produce(t, b.data, message{partition: int(key[1]) % 2, key: []byte(key), time: epoch})
			delete(b.values, key)
		case k < 9:
			name := fmt.Sprint("request", r.IntN(4))
			s := retire.Selector{Keys: []string{key, "k2"}[:1+r.IntN(2)], From: moment(), To: moment()}
			if s.From != nil && s.To != nil {
				s.To = nil
			}
			value, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			b.say(name, `{"retire":`+string(value)+`}`)
			b.in[name] = s
		case k < 10:
			name := fmt.Sprint("request", r.IntN(4))
			b.say(name, []string{"", `{"restore":true}`}[r.IntN(2)])
			delete(b.in, name)
		case k == 10:
			keys := settle(fmt.Sprintf("step %d", step), a)
			if len(keys) > 1 {
				a.retire("key:" + keys[0])
				b.gone[keys[0]] = true
				asked++
			}
		case step%2 == 0:
			b.end(a)
			a = b.start(file, flags)
		}
	}
	settle("the end", a)
	fresh := b.start(filepath.Join(t.TempDir(), "new.db"), flags)
	settle("both topics from their beginning", fresh)
	settle("another replica", replica)
	for _, i := range []*instance{a, fresh, replica} {
		b.end(i)
	}
	if asked == 0 {
		t.Error("nothing was retired over HTTP")
	}
}

// A daemon is killed (kill -9) at moments before, during and after a record of the control topic
// withdraws fifty blocks, and another one gives fifty back. The next process follows the topics.
func TestKillWhileTheControlTopicIsFollowed(t *testing.T) {
	const rounds, chunk = 6, 50
	w := newWithdrawals(t, 1)
	w.add(rounds * chunk)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": w.data, "retire.topic": w.control, "format.csv_header": "absent",
		"http.listen": "127.0.0.1:0", "snapshot.file": file, "snapshot.interval": "10ms",
	}
	retired := map[string]bool{}
	say := func(round int) {
		key := fmt.Sprint("round ", round)
		if retired[key] = !retired[key]; retired[key] {
			w.say(key, fmt.Sprintf(`{"retire":{"positions":["TOPIC/0/%d-%d"]}}`, round*chunk, (round+1)*chunk-1))
		} else {
			w.say(key, `{"restore":true}`)
		}
	}
	follows := func(p *process) {
		t.Helper()
		var out []string
		for round := range rounds {
			for i := range chunk {
				if retired[fmt.Sprint("round ", round)] {
					out = append(out, fmt.Sprintf("0/%d", round*chunk+i))
				}
			}
		}
		want := w.digest(out...)
		p.until(t, "the blocks that survive", func() bool {
			digest, _, _, err := p.model()
			return err == nil && digest == want
		})
	}
	saved := map[int]int{} // withdrawn blocks in the file after a kill
	for round := range rounds {
		p := spawn(t, flags)
		follows(p)
		if code := p.post(t, "snapshot"); code != http.StatusOK {
			t.Fatalf("the snapshot is answered with %d", code)
		}
		say(round)
		say(round / 2) // it may be the same, or a restoration
		time.Sleep(time.Duration(round) * 250 * time.Millisecond)
		p.kill()
		if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
			t.Fatalf("round %d: verified as %+v, %v", round, report, err)
		}
		s, c, err := snapshot.OpenReadOnly(file)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		saved[len(c.Withdrawn)]++
		if len(c.Entries)+len(c.Withdrawn) != 2*rounds*chunk {
			t.Fatalf("round %d: the file has %d live blocks and %d withdrawn ones", round, len(c.Entries), len(c.Withdrawn))
		}
	}
	if len(saved) < 2 {
		t.Errorf("every kill leaves as many withdrawn blocks: %v", saved)
	}
	p := spawn(t, flags)
	follows(p)
}

// A block that the control topic withdraws leaves the basis, too. Planes and basis are then those
// of a daemon that has never seen it, and after restore those of before.
func TestControlTopicWithAKernel(t *testing.T) {
	flags := forgetting("random")
	w := newWithdrawals(t, 1)
	flags["retire.topic"] = w.control
	produce(t, w.data, customers(t)...)
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, w.data, file, flags)
	d.waitForOffsets(11)
	d.settledBasis()
	before := d.reduced()
	if len(planted(before.Basis.Map)) == 0 {
		t.Fatal("no point is made of the planted rows")
	}
	w.say("k", `{"retire":{"keys":["planted"]}}`)
	d.wait("a withdrawal", func(s *model.Served) bool { return s.Blocks == 10 })
	got := d.settledBasis()
	other := topic(t, 1)
	produce(t, other, customers(t)[:10]...)
	delete(flags, "retire.topic")
	flags["kernel.rows"] = "0"
	u := start(t, other, filepath.Join(t.TempDir(), "streamd.db"), flags)
	u.waitForOffsets(10)
	if want := u.reduced(); comparable(got) != comparable(want) {
		t.Errorf("served\n%.400s\nwant\n%.400s", comparable(got), comparable(want))
	}
	u.stop()
	w.say("k", "")
	d.wait("the block again", func(s *model.Served) bool { return s.Blocks == 11 })
	if again := d.reduced(); comparable(again) != comparable(before) {
		t.Errorf("after restore served\n%.400s\nwant\n%.400s", comparable(again), comparable(before))
	}
	d.checkEpoch()
	d.stop()
}
