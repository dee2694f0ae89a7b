package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
	"streamd/retire"
)

// stage sums the records of a topic, as a stage before the daemon does.
type stage struct {
	t       testing.TB
	of      string // the topic of rows
	decoder *wire.Decoder
	maker   summary.Maker
	levels  *sample.Levels
}

func newStage(t testing.TB, of string, rows int) *stage {
	t.Helper()
	d, err := wire.NewDecoder(wire.Options{Format: wire.JSON, Weight: "weight", KeepUnlabelled: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, of: of, decoder: d}
	if rows > 0 {
		s.levels = sample.New(sample.Settings{Rows: rows, Seed: 1}, nil).Levels()
	}
	return s
}

// block is the summary block of the record at an offset.
func (s *stage) block(m message, offset int64) *summary.Block {
	s.t.Helper()
	b, err := s.decoder.Decode(m.contentType, m.value)
	if err != nil {
		s.t.Fatal(err)
	}
	at := incremental.Position{Topic: s.of, Partition: m.partition, Offset: offset}
	if m.time.IsZero() {
		m.time = time.UnixMilli(1_700_000_000_000) // as produce has it
	}
	to := &summary.Block{ID: at.String(), Position: at, Last: offset, Time: m.time.UTC()}
	if m.key != nil {
		to.ID = retire.KeyID(string(m.key))
	}
	if err := s.maker.Make(context.Background(), to, b, s.levels); err != nil {
		s.t.Fatal(err)
	}
	return to
}

// sums is the record of a block.
func (s *stage) sums(m message, of *summary.Block) message {
	s.t.Helper()
	value, err := of.AppendBinary(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return message{key: m.key, value: value, contentType: summary.ContentType, headers: m.headers}
}

// offsetsOf numbers the offsets of messages that are produced to an empty topic.
func offsetsOf(messages []message) []int64 {
	next, out := map[int]int64{}, make([]int64, len(messages))
	for i, m := range messages {
		out[i] = next[m.partition]
		next[m.partition]++
	}
	return out
}

// rowMessages are blocks of JSON rows with weights of 0 among them, in some partitions, with a
// header and event times.
func rowMessages(r *rand.Rand, n, partitions int) []message {
	var all []message
	for i := range n {
		var rows strings.Builder
		for range 1 + r.IntN(12) {
			fmt.Fprintf(&rows, `{"label":%d,"weight":%g,"a":%g,"b":%g}`+"\n", r.IntN(3), []float64{0, 1, 1, 0.5}[r.IntN(4)], r.NormFloat64(), 1e6+r.NormFloat64())
		}
		all = append(all, message{
			partition: r.IntN(partitions), value: []byte(rows.String()),
			headers: []kafka.Header{{Key: "tenant", Value: fmt.Appendf(nil, "t%d", i%4)}},
			time:    time.UnixMilli(1_700_000_000_000 + int64(i)*1000).UTC(),
		})
	}
	return all
}

var sumsFlags = map[string]string{
	"format.weight": "weight", "retire.header": "tenant", "sample.rows": "300", "model.balanced": "true", "retire.archive": "true",
}

// withFlags are flags and others.
func withFlags(more map[string]string) map[string]string {
	all := maps.Clone(sumsFlags)
	maps.Copy(all, more)
	return all
}

// blocksOf lists the live blocks, with what retirements go by.
func blocksOf(i *instance) []retire.Entry {
	i.t.Helper()
	var all []retire.Entry
	if err := i.Call(i.t.Context(), func() error {
		all = i.Live.Page(retire.Lowest, 1<<30)
		return nil
	}); err != nil {
		i.t.Fatal(err)
	}
	for k := range all {
		all[k].Carrier, all[k].Time = retire.Carrier{}, all[k].Time.UTC()
	}
	return all
}

// sameModels compares a daemon of rows with one of sums.
func sameModels(t *testing.T, when string, rows, sums *instance) {
	t.Helper()
	blocks := blocksOf(rows)
	if got := blocksOf(sums); !slices.Equal(got, blocks) {
		t.Errorf("%s: of sums there are the blocks\n%+v, of rows\n%+v", when, got, blocks)
	}
	of := func(i *instance) string {
		var digest string
		var n int
		if err := i.Call(t.Context(), func() error { digest, n = i.Live.Digest(), i.Live.Blocks(); return nil }); err != nil {
			t.Fatal(err)
		}
		s := i.wait("the model of "+digest, func(s *model.Served) bool { return s.Digest == digest && s.Blocks == n })
		return fmt.Sprintf("%s %d %d %s", s.Digest, s.Rows, s.Blocks, planesOf(s))
	}
	if a, b := of(rows), of(sums); a != b {
		t.Errorf("%s: the model of rows is\n%s, that of sums\n%s", when, a, b)
	}
	for _, i := range []*instance{rows, sums} {
		if s := i.Status(); !addsUp(&s) {
			t.Errorf("%s: records %+v, rows %+v", when, s.Records, s.Rows)
		}
	}
	if a, b := rows.Status().Rows, sums.Status().Rows; a != b {
		t.Errorf("%s: rows of rows %+v, of sums %+v", when, a, b)
	}
}

// Rows in one daemon and sums of the same cuts in another make the same model, bit for bit, and
// the same blocks: retired by id, position, time and header, in whatever order the sums come, twice
// or once, and after a restart. A part of the blocks comes to the second daemon as rows.
func TestSumsAreRows(t *testing.T) {
	const seed = 61
	r := rand.New(rand.NewPCG(seed, seed))
	name := topic(t, 3)
	messages := rowMessages(r, 80, 3)
	at := offsetsOf(messages)
	mixed := topic(t, 2)
	s := newStage(t, name, 300)
	var sums []message
	for i, m := range messages {
		block := s.block(m, at[i])
		z := s.sums(m, block)
		times := 1 + r.IntN(2)
		if block.Summary.Rows() == 0 {
			times = 1 // it has no place by which it would be known again
		}
		for range times {
			z.partition = r.IntN(2)
			sums = append(sums, z)
		}
	}
	r.Shuffle(len(sums), func(i, j int) { sums[i], sums[j] = sums[j], sums[i] })
	produce(t, name, messages...)
	half := len(sums) / 2
	produce(t, mixed, sums[:half]...)
	file := filepath.Join(t.TempDir(), "sums.db")
	of := start(t, name, filepath.Join(t.TempDir(), "rows.db"), withFlags(nil))
	from := start(t, mixed, file, withFlags(nil))
	of.waitForOffsets(int64(len(messages)))
	from.waitForOffsets(int64(half))
	from.stop()
	from = start(t, mixed, file, withFlags(nil))
	produce(t, mixed, sums[half:]...)
	from.waitForOffsets(int64(len(sums)))
	sameModels(t, "all blocks", of, from)
	if got := from.Status().Records; got.Applied != int64(len(sums)) {
		t.Errorf("%d records are applied, of %d", got.Applied, len(sums))
	}
	for _, each := range [][2]string{
		{"an id", fmt.Sprintf(`{"ids":[%q]}`, blocksOf(of)[3].ID)},
		{"positions", fmt.Sprintf(`{"positions":["%s/1/2-6"]}`, name)},
		{"times", fmt.Sprintf(`{"from":%q,"to":%q}`, messages[20].time.Format(time.RFC3339), messages[31].time.Format(time.RFC3339))},
		{"a header", `{"headers":["t2"]}`},
	} {
		when, body := each[0], each[1]
		a, b := retireBy(of, body), retireBy(from, body)
		if a.Blocks != b.Blocks || a.Blocks == 0 || a.DigestAfter != b.DigestAfter || a.Rows != b.Rows {
			t.Errorf("retired by %s: of rows %+v, of sums %+v", when, a, b)
		}
		sameModels(t, "retired by "+when, of, from)
	}
	from.stop()
	from = start(t, mixed, file, withFlags(nil))
	from.waitForOffsets(int64(len(sums)))
	if a, b := blocksOf(of), blocksOf(from); !slices.Equal(a, b) {
		t.Errorf("after a restart there are the blocks\n%+v, of rows\n%+v", b, a)
	}
	of.stop()
	from.stop()
}

func retireBy(i *instance, body string) httpapi.Retirement {
	i.t.Helper()
	req, err := http.NewRequestWithContext(i.t.Context(), http.MethodPost, "http://"+i.Addr().String()+"/v1/retire", strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	var out httpapi.Retirement
	if err := json.Unmarshal(answer, &out); err != nil || res.StatusCode != http.StatusOK {
		i.t.Fatalf("retire %s: %d, %s", body, res.StatusCode, answer)
	}
	return out
}

// With a policy, an archive and a half-life, sums have the live set, the weighted sums and the
// windows that rows have, in whatever order they come.
func TestSumsUnderPolicies(t *testing.T) {
	const seed = 62
	r := rand.New(rand.NewPCG(seed, seed))
	name := topic(t, 1)
	messages := rowMessages(r, 60, 1)
	at := offsetsOf(messages)
	mixed := topic(t, 1)
	s := newStage(t, name, 300)
	var sums []message
	for i, m := range messages {
		sums = append(sums, s.sums(m, s.block(m, at[i])))
	}
	r.Shuffle(len(sums), func(i, j int) { sums[i], sums[j] = sums[j], sums[i] })
	produce(t, name, messages...)
	produce(t, mixed, sums...)
	flags := withFlags(map[string]string{"retire.keep": "blocks", "retire.blocks": "25", "retire.half_life": "10s"})
	of := start(t, name, filepath.Join(t.TempDir(), "rows.db"), flags)
	from := start(t, mixed, filepath.Join(t.TempDir(), "sums.db"), flags)
	of.waitForOffsets(int64(len(messages)))
	from.waitForOffsets(int64(len(sums)))
	sameModels(t, "with a policy", of, from)
	window := func(i *instance, query string) string {
		status, body := i.ask(http.MethodGet, "/v1/model?"+query)
		var m struct {
			Digest string          `json:"state_digest"`
			Rows   []int64         `json:"class_rows"`
			Planes json.RawMessage `json:"planes"`
		}
		if err := json.Unmarshal([]byte(body), &m); err != nil || status != http.StatusOK || len(m.Rows) == 0 || m.Digest == "" {
			t.Fatalf("%s: %d, %s", query, status, body)
		}
		return fmt.Sprintf("%s %d %s", m.Digest, m.Rows, m.Planes)
	}
	for _, query := range []string{
		"positions=" + url.QueryEscape(name+"/0/3-29"),
		"from=" + messages[7].time.Format(time.RFC3339) + "&to=" + messages[50].time.Format(time.RFC3339),
	} {
		if a, b := window(of, query), window(from, query); a != b {
			t.Errorf("the window of %s is of rows\n%s, of sums\n%s", query, a, b)
		}
	}
	of.stop()
	from.stop()
}

// Sums of the same id and others replace a block, and count so. The same ones, from rows or as
// sums, count once.
func TestSumsReplaceSums(t *testing.T) {
	name := topic(t, 1)
	s := newStage(t, name, 10)
	rows := func(x ...int) message {
		return message{value: fmt.Appendf(nil, `[{"label":0,"weight":1,"a":%d,"b":1},{"label":1,"weight":1,"a":%d,"b":2}]`, x[0], x[1])}
	}
	first, second := rows(1, 2), rows(3, 4)
	// The rows are record 0. Then come their sums, others twice, and the first ones again.
	messages := []message{first, s.sums(first, s.block(first, 0)), s.sums(second, s.block(second, 0)), s.sums(second, s.block(second, 0)), s.sums(first, s.block(first, 0))}
	produce(t, name, messages[:4]...)
	i := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), withFlags(nil))
	check := func(n int64, of message, replaced int64) {
		t.Helper()
		got := i.waitForOffsets(n)
		want := incremental.NewState([]string{"a", "b"})
		want.Add(s.block(of, 0).Summary)
		if got.Blocks != 1 || got.Digest != live.DigestOf(want) {
			t.Errorf("%d blocks of digest %s, want one of %s", got.Blocks, got.Digest, live.DigestOf(want))
		}
		status := i.Status()
		if !addsUp(&status) || status.Records.Applied != n || status.Rows.Read != 2*(1+replaced) {
			t.Errorf("records %+v, rows %+v", status.Records, status.Rows)
		}
		if c := i.Intake.Counts(); c.BlocksAdded != 1+replaced || c.BlocksReplaced != replaced {
			t.Errorf("the counts are %+v", c)
		}
	}
	check(4, second, 1)
	produce(t, name, messages[4])
	check(5, first, 2)
	if got := i.Prequential().Sums; got == nil || *got != (model.Sums{Blocks: 2, Rows: 4, Repeated: 2}) {
		t.Errorf("as sums came %+v", got)
	}
	i.stop()
}

// A block that comes as sums before it is complete has grown when it comes again: its rows count
// once, and in whatever order its records come, those of later rows hold.
func TestSumsGrow(t *testing.T) {
	const line = `{"label":%d,"weight":1,"a":%d,"b":%d}` + "\n"
	source := topic(t, 1)
	s := newStage(t, source, 10)
	var versions []message
	text := ""
	for last := range int64(4) {
		for i := range int64(3) {
			text += fmt.Sprintf(line, i%2, last*i, last+i)
		}
		m := message{value: []byte(text)}
		b := s.block(m, 0)
		b.Last = last
		versions = append(versions, s.sums(m, b))
	}
	want := incremental.NewState([]string{"a", "b"})
	want.Add(s.block(message{value: []byte(text)}, 0).Summary)
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 3, 2}, {2, 2, 0, 3, 1}} {
		name := topic(t, 1)
		for _, k := range order {
			produce(t, name, versions[k])
		}
		i := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), withFlags(nil))
		got, status := i.waitForOffsets(int64(len(order))), i.Status()
		if got.Blocks != 1 || got.Digest != live.DigestOf(want) {
			t.Errorf("%v: %d blocks of digest %s, want one of %s", order, got.Blocks, got.Digest, live.DigestOf(want))
		}
		if !addsUp(&status) || status.Records.Applied != int64(len(order)) || status.Rows.Read != 12 || i.Intake.Counts().BlocksAdded != 1 {
			t.Errorf("%v: records %+v, rows %+v, counts %+v", order, status.Records, status.Rows, i.Intake.Counts())
		}
		i.stop()
	}
}

// Sums that the model cannot use are dead letters with their reasons, and their rows are in the
// books.
func TestSumsThatCannotBeUsed(t *testing.T) {
	const good = `{"label":0,"weight":1,"a":1,"b":2}` + "\n" + `{"label":1,"weight":1,"a":3,"b":1}`
	source := incremental.Position{Topic: "elsewhere", Partition: 4, Offset: 9}
	s := newStage(t, source.Topic, 10)
	made := func(text string, change func(b *summary.Block)) message {
		m := message{partition: source.Partition, value: []byte(text)}
		b := s.block(m, source.Offset)
		change(b)
		m = s.sums(m, b)
		m.partition = 0
		return m
	}
	same := func(*summary.Block) {}
	for name, c := range map[string]struct {
		flags map[string]string
		of    message
		want  string
		rows  int64 // decoded
	}{
		"other features": {nil, made(`{"label":0,"weight":1,"a":1,"c":2}`, same), "the features of the sums are a, c, and those of the model are a, b", 0},
		"fewer features": {nil, made(`{"label":0,"weight":1,"a":1}`, same), "the features of the sums are a, and those of the model are a, b", 0},
		"another order":  {nil, made(good, func(b *summary.Block) { b.Features = []string{"b", "a"} }), "the features of the sums are b, a", 0},
		"another id":     {nil, made(good, func(b *summary.Block) { b.ID = "elsewhere/4/10" }), "a position, elsewhere/4/9, names blocks here", 0},
		"no label":       {nil, made(`{"label":null,"weight":1,"a":1,"b":2}`, same), "1 rows of the sums have no label", 0},
		"year 200000":    {nil, made(good, func(b *summary.Block) { b.Time = time.UnixMilli(1 << 53) }), "not in the years 1 to 9999", 0},
		"too many classes": {map[string]string{"limits.classes": "2"}, made(strings.ReplaceAll(good, `"label":1`, `"label":7`), same),
			"the model would have more than 2 classes", 2},
		"a kernel": {map[string]string{"kernel.function": "gaussian"}, made(good, same), "a model with a kernel (kernel.function is gaussian) needs its rows", 2},
		"a key":    {map[string]string{"blocks.unit": "key"}, made(good, same), "the key of the record names another one", 0},
		"no sums":  {nil, message{value: []byte(good), contentType: summary.ContentType}, "does not begin like one", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := topic(t, 1)
			rows := message{key: []byte("k"), value: []byte(`{"label":0,"weight":1,"a":1,"b":2}` + "\n" + `{"label":1,"weight":1,"a":3,"b":1}` + "\n" + `{"label":0,"weight":1,"a":2,"b":5}`)}
			c.of.key = []byte("x")
			produce(t, topic, rows, c.of)
			d := start(t, topic, filepath.Join(t.TempDir(), "streamd.db"), withFlags(c.flags))
			d.waitForOffsets(2)
			status := d.Status()
			if status.Rows.Rejected != c.rows || status.Rows.Summarised != 3 || !addsUp(&status) || status.Records.Rejected != 1 {
				t.Errorf("records %+v, rows %+v", status.Records, status.Rows)
			}
			why := ""
			collect := &collector{next: map[int]int64{}}
			collect.take = func(r *kafka.Record) {
				for _, h := range r.Headers {
					if h.Key == "__connect.errors.exception.message" {
						why = string(h.Value)
					}
				}
			}
			collect.run(t, topic+".dlq", func() bool { return why != "" })
			if !strings.Contains(why, c.want) {
				t.Errorf("the reason is %q, want %q", why, c.want)
			}
			d.stop()
		})
	}
}

// Of blocks that come as sums, rows that were rejected or of weight 0 where they were summed are in
// the daemon's books.
func TestBooksOfBothStages(t *testing.T) {
	name := topic(t, 1)
	s := newStage(t, "elsewhere", 0)
	m := message{value: []byte(`{"label":0,"weight":1,"a":1}` + "\n" + `{"label":1,"weight":0,"a":3}`)}
	b := s.block(m, 5)
	b.Rows.Rejected, b.Rows.Read = 3, b.Rows.Read+3
	produce(t, name, s.sums(m, b))
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), withFlags(nil))
	d.waitForOffsets(1)
	if got, want := d.Status().Rows, (model.RowCounts{Read: 5, Summarised: 1, ZeroWeight: 1, Rejected: 3}); got != want {
		t.Errorf("rows %+v, want %+v", got, want)
	}
	d.stop()
}

// The control topic retires blocks that came as sums, and gives them back by the records of the
// sums, also after a restart.
func TestControlTopicOfSums(t *testing.T) {
	name := topic(t, 2)
	control := controlTopic(t, name)
	s := newStage(t, "elsewhere", 10)
	sum := func(but ...int) string {
		state := incremental.NewState([]string{"a", "b"})
		for i := range 6 {
			if !slices.Contains(but, i) {
				state.Add(s.block(rowsAt(i), int64(i)).Summary)
			}
		}
		return live.DigestOf(state)
	}
	var messages []message
	for i := range 6 {
		m := s.sums(rowsAt(i), s.block(rowsAt(i), int64(i)))
		m.partition = i % 2
		messages = append(messages, m)
	}
	produce(t, control, message{key: []byte("a"), value: []byte(`{"retire":{"positions":["elsewhere/0/1-3"]}}`)})
	produce(t, name, messages...)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := withFlags(map[string]string{"retire.topic": control})
	d := start(t, name, file, flags)
	d.waitForOffsets(6)
	follows := func(what string, but ...int) {
		t.Helper()
		want := sum(but...)
		d.wait(what, func(s *model.Served) bool { return s.Digest == want })
	}
	follows("positions of the rows", 1, 2, 3)
	produce(t, control, message{key: []byte("a"), value: []byte(`{"retire":{"ids":["elsewhere/0/1","elsewhere/0/5"]}}`)})
	follows("ids", 1, 5)
	d.stop()
	produce(t, control, message{key: []byte("a"), value: []byte(`{"restore":true}`)})
	d = start(t, name, file, flags)
	follows("all after a restart")
	if status := d.Status(); !addsUp(&status) {
		t.Errorf("records %+v, rows %+v", status.Records, status.Rows)
	}
	d.stop()
}

// rowsAt are two rows of a class each.
func rowsAt(i int) message {
	return message{value: fmt.Appendf(nil, `[{"label":0,"weight":1,"a":%d,"b":%d},{"label":1,"weight":2,"a":%d,"b":0.5}]`, i, i*i, 7-i)}
}

// In a topic that is a table, a key's sums replace its rows, and the other way round. A tombstone
// retires them.
func TestSumsOfKeys(t *testing.T) {
	name := topic(t, 1)
	s := newStage(t, "elsewhere", 10)
	of := func(key string, i int, asSums bool) message {
		m := rowsAt(i)
		m.key = []byte(key)
		if asSums {
			return s.sums(m, s.block(m, int64(i)))
		}
		return m
	}
	sum := func(at ...int) string {
		state := incremental.NewState([]string{"a", "b"})
		for _, i := range at {
			state.Add(s.block(rowsAt(i), 0).Summary)
		}
		return live.DigestOf(state)
	}
	flags := withReceipts(t.TempDir(), withFlags(nil))
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	produce(t, name, of("x", 1, false), of("y", 2, true), of("z", 3, true), of("x", 4, true), of("y", 5, false), of("z", 3, true))
	if got, want := d.waitForOffsets(6).Digest, sum(4, 5, 3); got != want {
		t.Errorf("the digest is %s, want %s", got, want)
	}
	d.stop()
	d = start(t, name, file, flags)
	produce(t, name, message{key: []byte("z")}, message{key: []byte("x")})
	if got, want := d.waitForOffsets(8).Digest, sum(5); got != want {
		t.Errorf("after tombstones the digest is %s, want %s", got, want)
	}
	if status := d.Status(); !addsUp(&status) {
		t.Errorf("records %+v, rows %+v", status.Records, status.Rows)
	}
	d.stop()
}

// Where records of rows are gathered, a record of sums is a block of its own, and ends the block
// of the rows before it, also around a restart.
func TestSumsBetweenGatheredRows(t *testing.T) {
	name := topic(t, 1)
	s := newStage(t, "elsewhere", 10)
	want := incremental.NewState([]string{"a", "b"})
	var messages []message
	var run [][]byte
	var z incremental.Summariser
	flush := func() {
		if len(run) == 0 {
			return
		}
		b, err := s.decoder.Decode("", bytes.Join(run, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		sums, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		want.Add(sums)
		run = nil
	}
	r := rand.New(rand.NewPCG(63, 63))
	blocks := 0
	for i := range 60 {
		if i%16 == 0 { // blocks.offsets
			flush()
		}
		if r.IntN(4) == 0 {
			flush()
			b := s.block(rowsAt(i), int64(i))
			want.Add(b.Summary)
			messages = append(messages, s.sums(rowsAt(i), b))
			blocks++
			continue
		}
		line := fmt.Appendf(nil, `{"label":%d,"weight":1,"a":%d,"b":%g}`, i%2, i, r.NormFloat64())
		run = append(run, line)
		messages = append(messages, message{value: line})
	}
	flush()
	if blocks < 5 {
		t.Fatalf("only %d blocks of sums", blocks)
	}
	flags := withFlags(map[string]string{"blocks.unit": "offsets", "blocks.offsets": "16", "retire.header": ""})
	file := filepath.Join(t.TempDir(), "streamd.db")
	done := 0
	for _, n := range []int{17, 39, 55, len(messages)} {
		produce(t, name, messages[done:n]...)
		done = n
		d := start(t, name, file, flags)
		d.waitForOffsets(int64(n))
		status := d.Status()
		if !addsUp(&status) || status.Records.Read != int64(n) {
			t.Errorf("after %d records: %+v, rows %+v", n, status.Records, status.Rows)
		}
		if served, _ := d.Served(); n == len(messages) && served.Digest != live.DigestOf(want) {
			t.Errorf("the digest is %s, want %s", served.Digest, live.DigestOf(want))
		}
		d.stop()
	}
}
