package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/output"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/stage/stagetest"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
	"streamd/retire"
)

// patience bounds every wait of a test, also on a slow machine. No test depends on how long
// something takes.
const patience = 5 * time.Minute

var broker = sync.OnceValues(func() (*embedded.Broker, error) {
	dir, err := os.MkdirTemp("", "streamd-daemon-test")
	if err != nil {
		return nil, err
	}
	brokerDir = dir
	return embedded.Start(dir)
})

var brokerDir string

func TestMain(m *testing.M) {
	if args := os.Getenv(childVariable); args != "" {
		output.PredictSession = stagetest.Session()
		os.Exit(child(args))
	}
	code := m.Run()
	if brokerDir != "" {
		os.RemoveAll(brokerDir)
	}
	os.Exit(code)
}

// cluster is a real Apache Kafka where STREAMD_TEST_BROKERS names one, and the
// embedded broker elsewhere.
func cluster(t testing.TB) kafka.Cluster {
	t.Helper()
	if real := os.Getenv("STREAMD_TEST_BROKERS"); real != "" {
		return kafka.Cluster{Brokers: strings.Split(real, ",")}
	}
	if os.Getenv("STREAMD_REQUIRE_BROKER") != "" {
		t.Fatal("STREAMD_REQUIRE_BROKER is set, but STREAMD_TEST_BROKERS names no broker")
	}
	b, err := broker()
	if err != nil {
		t.Fatal(err)
	}
	return kafka.Cluster{Brokers: []string{b.Addr()}}
}

// topic creates a topic with a unique name.
func topic(t testing.TB, partitions int) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d", strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, t.Name()), rand.Int64())
	// The records' times lie in the past, so retention by time would delete them.
	configs := map[string]string{"retention.ms": "-1"}
	for _, each := range []string{name, name + ".dlq"} {
		if err := kafka.EnsureTopic(t.Context(), cluster(t), each, partitions, configs); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// message is a record to produce.
type message struct {
	partition   int
	key, value  []byte
	contentType string
	headers     []kafka.Header // further ones
	time        time.Time
}

func produce(t testing.TB, topic string, messages ...message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster(t), Topic: topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, m := range messages {
		headers := m.headers
		if m.contentType != "" {
			headers = append(headers, kafka.Header{Key: "content-type", Value: []byte(m.contentType)})
		}
		if m.time.IsZero() {
			m.time = time.UnixMilli(1_700_000_000_000)
		}
		if err := p.Write(ctx, m.partition, m.key, m.value, headers, m.time); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// Blocks of a few rows with many features have summaries a thousand times as large as
// their messages. Where the workers have no room for them, the loop makes them.
func TestWorkersStopWhereThereIsNoRoom(t *testing.T) {
	const n, records, keep = 200, 300, 5
	csv := func(i int) []byte {
		line := fmt.Appendf(nil, "%d", i%2)
		for j := range n {
			line = fmt.Appendf(line, ",%d", i*j%10)
		}
		return line
	}
	flags := map[string]string{"sample.rows": "0", "format.csv_header": "absent", "retire.keep": "blocks", "retire.blocks": strconv.Itoa(keep)}

	features := incremental.DefaultFeatures(n)
	name := topic(t, 1)
	var messages []message
	want := incremental.NewState(features)
	for i := range records {
		messages = append(messages, message{value: csv(i), contentType: "text/csv"})
		if i < records-keep {
			continue
		}
		block := &incremental.Block{Classes: []string{strconv.Itoa(i % 2)}, Codes: []int32{0}}
		for j := range n {
			block.Columns = append(block.Columns, gram.ColumnOf([]float64{float64(i * j % 10)}))
		}
		s, err := new(incremental.Summariser).Summarise(block)
		if err != nil {
			t.Fatal(err)
		}
		want.Add(s)
	}
	produce(t, name, messages...)
	i := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	if served := i.waitForOffsets(records); served.Digest != live.DigestOf(want) {
		t.Errorf("the state is %s, not %s", served.Digest, live.DigestOf(want))
	}
	i.stop()
}

// instance is a running daemon.
type instance struct {
	*Daemon
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
}

func load(t testing.TB, flags map[string]string) *config.Config {
	t.Helper()
	given := map[string]string{
		"http.listen":       "127.0.0.1:0",
		"snapshot.interval": "20ms",
		"format.default":    "json",
		"log.level":         "error",
		"shutdown_timeout":  patience.String(),
	}
	for k, v := range flags {
		given[k] = v
	}
	cfg, err := config.Load(config.Sources{Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func start(t testing.TB, topic, file string, flags map[string]string) *instance {
	t.Helper()
	return startWith(t, topic, file, flags, func(*Daemon) {})
}

// startWith is start that prepares the daemon before it runs.
func startWith(t testing.TB, topic, file string, flags map[string]string, prepare func(*Daemon)) *instance {
	t.Helper()
	given := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0],
		"kafka.topic":   topic,
		"snapshot.file": file,
	}
	for k, v := range flags {
		given[k] = v
	}
	d, err := New(Options{Config: load(t, given), Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)})
	if err != nil {
		t.Fatal(err)
	}
	prepare(d)
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{Daemon: d, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { i.done <- d.Run(ctx) }()
	t.Cleanup(func() { cancel() })
	return i
}

func (i *instance) stop() {
	i.t.Helper()
	i.cancel()
	select {
	case err := <-i.done:
		if err != nil {
			i.t.Fatal(err)
		}
	case <-time.After(patience):
		i.t.Fatal("the daemon does not stop")
	}
}

// wait waits until the served model satisfies ok.
func (i *instance) wait(what string, ok func(*model.Served) bool) *model.Served {
	i.t.Helper()
	deadline := time.After(patience)
	for {
		served, replaced := i.Served()
		if ok(served) {
			return served
		}
		select {
		case <-replaced:
		case err := <-i.done:
			i.t.Fatalf("waiting for %s: the daemon has ended: %v", what, err)
		case <-deadline:
			i.t.Fatalf("waiting for %s: served is still %+v, status %+v", what, served, i.Status())
		}
	}
}

// Status returns the status after everything that the loop has done so far. A model may be
// served a moment before its status is.
func (i *instance) Status() httpapi.Status {
	i.Call(i.t.Context(), func() error { return nil }) // an error means that the loop has ended
	return i.Daemon.Status()
}

// waitForOffsets waits until n records of the topic have been applied.
func (i *instance) waitForOffsets(n int64) *model.Served {
	i.t.Helper()
	return i.wait(fmt.Sprintf("%d records", n), func(s *model.Served) bool {
		return recordsOf(i.Config.Kafka.Topic, s.Offsets) == n
	})
}

// recordsOf is the number of records of a topic below some offsets.
func recordsOf(topic string, offsets []model.Offset) (n int64) {
	for _, o := range offsets {
		if o.Topic == topic { // others are those of the control topic
			n += o.Next
		}
	}
	return n
}

// ask makes a request and returns the status and the body of the answer.
func (i *instance) ask(method, path string) (int, string) {
	i.t.Helper()
	status, body, err := i.askWithin(i.t.Context(), method, path)
	if err != nil {
		i.t.Fatal(err)
	}
	return status, body
}

// askWithin is ask until ctx ends. Then the body is what has come, and the error is that of ctx.
func (i *instance) askWithin(ctx context.Context, method, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+i.Addr().String()+path, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

func (i *instance) retire(id string) httpapi.Retirement {
	i.t.Helper()
	status, body := i.ask(http.MethodDelete, "/v1/blocks/"+url.PathEscape(id))
	var r httpapi.Retirement
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusOK {
		i.t.Fatalf("retire %s: %d: %s (%v)", id, status, body, err)
	}
	return r
}

// retireOne retires a block in the place of the loop.
func (o *offline) retireOne(id string) (httpapi.Retirement, error) {
	return o.retire(retire.Selector{IDs: []string{id}}, false, access.Caller{})
}

func planesOf(s *model.Served) string {
	if s.Model == nil {
		return "none: " + s.Problem
	}
	return fmt.Sprintf("%q %x", s.Model.Classes, s.Model.Planes)
}

// ndcBlocks makes Arrow messages of 200 points each, and the state that they sum to.
func ndcBlocks(t *testing.T, blocks int) ([][]byte, *incremental.State) {
	t.Helper()
	g, err := ndc.New(ndc.Config{Features: 5, Separability: ndc.Expansion(3), Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	s := g.NewSampler()
	var z incremental.Summariser
	state := incremental.NewState([]string{"x1", "x2", "x3", "x4", "x5"})
	out := make([][]byte, blocks)
	for i := range out {
		b := s.Block(ndc.Train, int64(i)*200, 200)
		if out[i], err = wire.Encode(nil, wire.Arrow, b); err != nil {
			t.Fatal(err)
		}
		summary, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		state.Add(summary)
	}
	return out, state
}

func TestModelIsAFunctionOfTheSetOfBlocks(t *testing.T) {
	const blocks = 60
	payloads, want := ndcBlocks(t, blocks)
	wanted, err := want.Moments().Solve(incremental.Options{Nu: 1})
	if err != nil {
		t.Fatal(err)
	}
	strangers, _ := ndcBlocks(t, blocks+10)
	strangers = strangers[blocks:]
	contentType := wire.Arrow.ContentType()

	for _, c := range []struct {
		name       string
		partitions int
		shuffle    bool
		restart    bool
		strangers  bool
	}{
		{name: "in order", partitions: 1},
		{name: "eight partitions, any order", partitions: 8, shuffle: true},
		{name: "restart in the middle", partitions: 3, shuffle: true, restart: true},
		{name: "strangers come and go", partitions: 4, shuffle: true, restart: true, strangers: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			name := topic(t, c.partitions)
			file := filepath.Join(t.TempDir(), "streamd.db")
			order := make([]int, blocks)
			for i := range order {
				order[i] = i
			}
			if c.shuffle {
				r.Shuffle(blocks, func(i, j int) { order[i], order[j] = order[j], order[i] })
			}
			var messages []message
			next := make([]int64, c.partitions)
			var gone []string
			for i, b := range order {
				add := func(payload []byte) string {
					p := r.IntN(c.partitions)
					messages = append(messages, message{partition: p, value: payload, contentType: contentType})
					next[p]++
					return incremental.Position{Topic: name, Partition: p, Offset: next[p] - 1}.String()
				}
				add(payloads[b])
				if c.strangers && i%6 == 0 {
					gone = append(gone, add(strangers[i/6]))
				}
			}
			half := len(messages) / 2
			produce(t, name, messages[:half]...)
			d := start(t, name, file, nil)
			d.waitForOffsets(int64(half))
			if c.restart {
				d.stop()
				d = start(t, name, file, nil)
			}
			produce(t, name, messages[half:]...)
			served := d.waitForOffsets(int64(len(messages)))
			for _, id := range gone {
				before, _ := d.Served()
				receipt := d.retire(id)
				if receipt.First[0].ID != id || receipt.DigestBefore == receipt.DigestAfter {
					t.Fatalf("receipt %+v after %s", receipt, before.Digest)
				}
			}
			if len(gone) > 0 {
				served = d.wait("retirement", func(s *model.Served) bool { return s.Blocks == blocks })
			}
			if served.Digest != live.DigestOf(want) {
				t.Errorf("digest %s, want %s", served.Digest, live.DigestOf(want))
			}
			if got := fmt.Sprintf("%q %x", wanted.Classes, wanted.Planes); planesOf(served) != got {
				t.Errorf("planes\n%s, want\n%s", planesOf(served), got)
			}
			if served.Rows != blocks*200 || served.Blocks != blocks {
				t.Errorf("%d rows in %d blocks", served.Rows, served.Blocks)
			}
			status := d.Status()
			if !addsUp(&status) || status.Rows.Read != int64(len(messages))*200 {
				t.Errorf("rows: %+v", status.Rows)
			}
			d.stop()
		})
	}
}

// Of ten thousand messages of one row, one in a hundred is broken in one of many ways. The
// model is that of the good rows, the dead-letter topic holds exactly the bad ones, and
// the counts reconcile.
func TestBrokenMessages(t *testing.T) {
	const n = 10_000
	broken := []message{
		{value: nil},
		{value: []byte{}},
		{value: []byte("{")},
		{value: []byte(`{"label":1}`)},
		{value: []byte(`{"features":[1,2,3]}`)},
		{value: []byte(`{"label":1,"features":[1,2]}`)},
		{value: []byte(`{"label":1,"features":[1,2,3,4]}`)},
		{value: []byte(`{"label":1,"features":[1,null,3]}`)},
		{value: []byte(`{"label":1,"features":[1,"two",3]}`)},
		{value: []byte(`{"label":1,"features":[1,1e999,3]}`)},
		{value: []byte(`{"label":1,"features":[1,NaN,3]}`)},
		{value: []byte(`{"label":1,"features":[1,1e300,3]}`)},
		{value: []byte(`{"label":null,"features":[1,2,3]}`)},
		{value: []byte(`{"label":"","features":[1,2,3]}`)},
		{value: []byte(`{"label":1,"label":2,"features":[1,2,3]}`)},
		{value: []byte(`{"label":1,"features":[1,2,3]} x`)},
		{value: []byte(`[{"label":1,"features":[1,2,3]},{"label":1,"features":[1,2]}]`)},
		{value: []byte(`[]`)},
		{value: []byte("\xff\xfe")},
		{value: []byte{0, 0, 0, 0, 7, 1, 2}},
		{value: []byte(`{"label":1,"features":[1,2,3]}`), contentType: "application/xml"},
		{value: []byte(`{"label":1,"features":[1,2,3]}`), contentType: wire.Arrow.ContentType()},
		{value: []byte("1,2,nan,4"), contentType: "text/csv"},
		{value: []byte("1 1:2 1:3"), contentType: wire.LIBSVM.ContentType()},
		{value: []byte("1 4:2"), contentType: wire.LIBSVM.ContentType()},
	}
	for _, unit := range []string{"message", "offsets", "time", "key"} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(3, 4))
			name := topic(t, 4)
			var messages, bad []message
			var rows [][]float64 // the good ones: label and features
			for i := range n {
				m := message{partition: i % 4, key: fmt.Appendf(nil, "k%d", i), time: time.UnixMilli(1_700_000_000_000 + int64(i))}
				if i%100 == 7 {
					b := broken[i/100%len(broken)]
					m.value, m.contentType = b.value, b.contentType
					if unit == "key" && m.value == nil {
						m.value = []byte("x") // a tombstone is not broken there
					}
					bad = append(bad, m)
				} else {
					label := float64(r.IntN(2)*2 - 1)
					// Whole numbers, so that their sums do not depend on how the rows
					// were gathered.
					row := []float64{label, math.Round(r.NormFloat64()*100 + 30*label), math.Round(r.NormFloat64() * 50), float64(r.IntN(9))}
					rows = append(rows, row)
					m.value = fmt.Appendf(nil, `{"label":%v,"features":[%v,%v,%v]}`, row[0], row[1], row[2], row[3])
					m.contentType = "application/json"
				}
				messages = append(messages, m)
			}
			want := incremental.NewState([]string{"x1", "x2", "x3"})
			var gathered rowsOf
			var z incremental.Summariser
			for _, row := range rows {
				gathered.add(row)
			}
			s, err := z.Summarise(gathered.block())
			if err != nil {
				t.Fatal(err)
			}
			want.Add(s)

			produce(t, name, messages...)
			flags := map[string]string{
				"blocks.unit": unit, "blocks.offsets": "64", "blocks.period": "100ms", "format.features": "x1,x2,x3", "format.unknown": "reject",
			}
			file := filepath.Join(t.TempDir(), "streamd.db")
			d := start(t, name, file, flags)
			served := d.waitForOffsets(n)
			if served.Digest != live.DigestOf(want) {
				t.Errorf("digest %s, want %s", served.Digest, live.DigestOf(want))
			}
			if served.Rows != int64(len(rows)) {
				t.Errorf("%d live rows, want %d", served.Rows, len(rows))
			}
			status := d.Status()
			c := status.Rows
			if b := status.Blocks; b.Added-b.Retired-b.Replaced != int64(served.Blocks) {
				t.Errorf("%d live blocks of %+v", served.Blocks, b)
			}
			if c.Missing() != 0 || status.Records.Missing() != 0 || c.Summarised+c.Pending != int64(len(rows)) || status.DeadLetters != int64(len(bad)) || status.Records.Rejected != int64(len(bad)) {
				t.Errorf("counts %+v, %d dead letters, %d rejected; want %d good and %d bad rows", c, status.DeadLetters, status.Records.Rejected, len(rows), len(bad))
			}
			// A restart changes nothing.
			d.stop()
			d = start(t, name, file, flags)
			again := d.waitForOffsets(n)
			if b := d.Status().Blocks; b.Added-b.Retired-b.Replaced != int64(again.Blocks) {
				t.Errorf("after a restart: %d live blocks of %+v", again.Blocks, b)
			}
			if again.Digest != served.Digest || again.Rows != served.Rows {
				t.Errorf("after a restart: digest %s of %d rows, want %s of %d", again.Digest, again.Rows, served.Digest, served.Rows)
			}
			d.stop()
			// A restart may repeat the dead letters of an open block.
			checkDeadLetters(t, name, bad, unit == "message" || unit == "key")
		})
	}
}

// rowsOf collects rows, each a label and features.
type rowsOf struct{ r intake.Rows }

func (c *rowsOf) add(row []float64) {
	b := &incremental.Block{Classes: []string{incremental.NumberLabel(row[0])}, Codes: []int32{0}}
	for _, x := range row[1:] {
		b.Columns = append(b.Columns, gram.ColumnOf([]float64{x}))
	}
	c.r.AppendBlock(b)
}

func (c *rowsOf) block() *incremental.Block { return c.r.Block() }

// checkDeadLetters reads the whole dead-letter topic.
func checkDeadLetters(t *testing.T, source string, bad []message, exactly bool) {
	t.Helper()
	type letter struct{ key, value, partition string }
	want := map[letter]int{}
	for _, m := range bad {
		want[letter{string(m.key), fmt.Sprintf("%v", m.value == nil) + string(m.value), fmt.Sprint(m.partition)}]++
	}
	got := map[letter]int{}
	collect := &collector{next: map[int]int64{}}
	collect.take = func(r *kafka.Record) {
		l := letter{key: string(r.Key), value: fmt.Sprintf("%v", r.Value == nil) + string(r.Value)}
		var reason bool
		for _, h := range r.Headers {
			switch h.Key {
			case "__connect.errors.partition":
				l.partition = string(h.Value)
			case "__connect.errors.exception.message":
				reason = len(h.Value) > 0
			case "__connect.errors.topic":
				if string(h.Value) != source {
					t.Errorf("dead letter from %s", h.Value)
				}
			}
		}
		if !reason {
			t.Errorf("a dead letter without a reason: %q", r.Value)
		}
		got[l]++
	}
	collect.run(t, source+".dlq", func() bool { return len(got) >= len(want) })
	for l, n := range want {
		if got[l] < n || exactly && got[l] != n {
			t.Errorf("%d dead letters %q, want %d", got[l], l, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d different dead letters, want %d", len(got), len(want))
	}
}

// collector is a sink that looks at each record.
type collector struct {
	mu   sync.Mutex
	next map[int]int64 // by partition
	take func(*kafka.Record)
}

func (c *collector) Position(int) (kafka.Saved, bool)    { return kafka.Saved{}, false }
func (c *collector) Partitions() []int                   { return nil }
func (c *collector) Jumped(*kafka.GapError, int64)       {}
func (*collector) Assigned(context.Context, []int) error { return nil }

func (c *collector) Revoked(context.Context, []int) {}
func (c *collector) Deliver(_ context.Context, b *kafka.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.Records {
		c.take(&b.Records[i])
	}
	c.next[b.Partition] = b.Position.Next
	b.Release()
	return nil
}

// run reads a topic to its end, and on until enough returns true.
func (c *collector) run(t *testing.T, topic string, enough func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	consumer, err := kafka.NewConsumer(kafka.Config{Cluster: cluster(t), Topic: topic, Group: fmt.Sprintf("c%d", rand.Int64())}, c, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	for {
		c.mu.Lock()
		end := enough() && len(c.next) > 0
		for _, p := range consumer.Stats().Partitions {
			end = end && c.next[p.Partition] >= p.HighWatermark
		}
		c.mu.Unlock()
		if end {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("reading %s: %v", topic, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// jsonRow is a message of one row with whole numbers.
func jsonRow(label int, x ...int) []byte {
	b, _ := json.Marshal(map[string]any{"label": label, "features": x})
	return b
}

// stateOf sums rows in the form that jsonRow takes.
func stateOf(t *testing.T, data ...[]int) *incremental.State {
	t.Helper()
	state := incremental.NewState([]string{"x1", "x2"})
	var z incremental.Summariser
	for _, row := range data {
		var c rowsOf
		c.add([]float64{float64(row[0]), float64(row[1]), float64(row[2])})
		s, err := z.Summarise(c.block())
		if err != nil {
			t.Fatal(err)
		}
		state.Add(s)
	}
	return state
}

// A compacted topic is a table: a key names a block, a new value replaces the old one,
// and a null value retires it.
func TestKeysAreATable(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"blocks.unit": "key"}
	row := func(key string, value []byte) message { return message{key: []byte(key), value: value} }
	produce(t, name,
		row("ann/1", jsonRow(1, 5, 6)), row("bob", jsonRow(-1, 1, 2)), row("ann/1", jsonRow(1, 7, 8)),
		row("eve", jsonRow(1, 3, 3)), row("bob", nil), row("nobody", nil), row("dan", jsonRow(-1, 4, 4)),
	)
	d := start(t, name, file, flags)
	served := d.waitForOffsets(7)
	want := stateOf(t, []int{1, 7, 8}, []int{1, 3, 3}, []int{-1, 4, 4})
	if served.Digest != live.DigestOf(want) || served.Blocks != 3 {
		t.Errorf("%d blocks with digest %s, want %s", served.Blocks, served.Digest, live.DigestOf(want))
	}
	receipt := d.retire("key:ann%2F1")
	if string(receipt.First[0].Key) != "ann/1" || receipt.First[0].Rows != 1 || receipt.DigestBefore != served.Digest {
		t.Errorf("receipt %+v", receipt)
	}
	d.stop()
	// A restart keeps retired blocks retired, and a saved block can be replaced.
	produce(t, name, row("eve", jsonRow(1, 9, 9)), row("dan", nil), row("dan", jsonRow(-1, 2, 1)))
	d = start(t, name, file, flags)
	served = d.waitForOffsets(10)
	want = stateOf(t, []int{1, 9, 9}, []int{-1, 2, 1})
	if served.Digest != live.DigestOf(want) {
		t.Errorf("digest %s, want %s", served.Digest, live.DigestOf(want))
	}
	c := d.Status()
	if c.Rows.Missing() != 0 || c.Blocks.Replaced != 2 || c.Blocks.Retired != 3 || c.Blocks.Added != 7 {
		t.Errorf("counts %+v %+v", c.Rows, c.Blocks)
	}
	d.stop()
}

// The live set under a policy depends neither on the partitions nor on a restart in the
// middle.
func TestPolicies(t *testing.T) {
	for _, flags := range []map[string]string{
		{"retire.keep": "blocks", "retire.blocks": "17"},
		{"retire.keep": "rows", "retire.rows": "23"},
		{"retire.keep": "age", "retire.age": "30s"},
		{"retire.keep": "blocks+rows+age", "retire.blocks": "6", "retire.rows": "7", "retire.age": "30s"},
	} {
		flags["retire.max_future"] = "1h" // event times are in no order
		t.Run(flags["retire.keep"], func(t *testing.T) {
			t.Parallel()
			const n = 200
			digests := map[string]bool{}
			for _, partitions := range []int{1, 5} {
				r := rand.New(rand.NewPCG(5, 6))
				name := topic(t, partitions)
				file := filepath.Join(t.TempDir(), "streamd.db")
				var messages []message
				for i := range n {
					at := time.UnixMilli(1_700_000_000_000 + int64(r.IntN(1000))*1_000 + int64(i)) // no two are equal
					messages = append(messages, message{
						partition: i % partitions,
						value:     jsonRow(i%2, r.IntN(100), r.IntN(100)),
						time:      at,
					})
				}
				produce(t, name, messages[:n/2]...)
				d := start(t, name, file, flags)
				d.waitForOffsets(n / 2)
				d.stop()
				produce(t, name, messages[n/2:]...)
				d = start(t, name, file, flags)
				served := d.waitForOffsets(n)
				digests[served.Digest] = true
				if s := d.Status(); s.Blocks.Added-s.Blocks.Retired != int64(served.Blocks) || served.Blocks == n || served.Blocks == 0 {
					t.Errorf("%d live of %+v", served.Blocks, s.Blocks)
				}
				d.stop()
			}
			if len(digests) != 1 {
				t.Errorf("another number of partitions gives another state: %v", digests)
			}
		})
	}
}

// A class that first appears late in the stream joins the model. A class whose last block
// is retired leaves it.
func TestClassesComeAndGo(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"limits.classes": "3"})
	produce(t, name, message{value: jsonRow(1, 1, 2)})
	if served := d.waitForOffsets(1); served.Model != nil || served.Problem == "" {
		t.Errorf("one class has a model: %+v", served)
	}
	produce(t, name, message{value: jsonRow(2, 2, 2)})
	if served := d.waitForOffsets(2); served.Model == nil || len(served.Model.Planes) != 1 {
		t.Errorf("two classes: %+v", served)
	}
	produce(t, name, message{value: jsonRow(3, 5, 1)}, message{value: jsonRow(4, 5, 1)})
	served := d.waitForOffsets(4)
	if served.Model == nil || len(served.Model.Planes) != 3 {
		t.Errorf("three classes: %+v", served)
	}
	if s := d.Status(); s.Records.Rejected != 1 || s.DeadLetters != 1 {
		t.Errorf("the fourth class is not refused: %+v", s)
	}
	d.retire(incremental.Position{Topic: name, Partition: 0, Offset: 2}.String())
	served = d.wait("two classes", func(s *model.Served) bool { return s.Blocks == 2 })
	if served.Model == nil || len(served.Model.Planes) != 1 || served.Digest != live.DigestOf(stateOf(t, []int{1, 1, 2}, []int{2, 2, 2})) {
		t.Errorf("after the third has gone: %+v", served)
	}
	d.stop()
}

// addsUp reports whether each record and each row that was read has one fate.
func addsUp(s *httpapi.Status) bool { return s.Records.Missing() == 0 && s.Rows.Missing() == 0 }

// A class counts once against the limit, whether its rows are summarised or still pending.
func TestClassesOfAGrowingBlock(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(2, 2, 2)}, message{value: jsonRow(1, 4, 5)}, message{value: jsonRow(3, 5, 1)}, message{value: jsonRow(2, 7, 7)})
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"limits.classes": "2", "blocks.unit": "offsets", "blocks.offsets": "100"})
	for end := time.Now().Add(patience); d.Status().Rows.Read < 5 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if s := d.Status(); s.Records.Rejected != 1 || s.Rows.Pending != 4 {
		t.Errorf("%+v", s)
	}
	d.stop()
}

// A block that is still growing can be retired. Later rows begin a new one.
func TestRetireAGrowingBlock(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100"}
	d := start(t, name, file, flags)
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(0, 3, 2)})
	d.waitForOffsets(2)
	if r := d.retire(incremental.Position{Topic: name, Offset: 0}.String()); r.First[0].Rows != 2 {
		t.Errorf("receipt %+v", r)
	}
	produce(t, name, message{value: jsonRow(1, 7, 7)}, message{value: jsonRow(0, 8, 9)})
	want := live.DigestOf(stateOf(t, []int{1, 7, 7}, []int{0, 8, 9}))
	for range 2 {
		if served := d.waitForOffsets(4); served.Digest != want || served.Blocks != 1 {
			t.Errorf("%d blocks with digest %s, want %s", served.Blocks, served.Digest, want)
		}
		d.stop()
		d = start(t, name, file, flags)
	}
	d.stop()
}

// A block that was growing when the daemon stopped can be retired before its records have
// been read again, and stays retired.
func TestRetireAnUnfinishedBlock(t *testing.T) {
	name := topic(t, 1)
	flags := map[string]string{"kafka.topic": name, "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"),
		"kafka.brokers": cluster(t).Brokers[0], "blocks.unit": "offsets", "blocks.offsets": "100"}
	d := start(t, name, flags["snapshot.file"], flags)
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(0, 3, 2)})
	d.waitForOffsets(2)
	d.stop()

	at, err := New(Options{Config: load(t, flags), Log: zerolog.Nop()}) // does not consume yet
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := (&offline{Daemon: at, t: t}).retireOne(incremental.Position{Topic: name, Offset: 0}.String())
	if err != nil || receipt.Rows != 2 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	at.serving.listener.Close()
	at.Store.Close()

	produce(t, name, message{value: jsonRow(1, 7, 7)}, message{value: jsonRow(0, 8, 9)})
	d = start(t, name, flags["snapshot.file"], flags)
	want := live.DigestOf(stateOf(t, []int{1, 7, 7}, []int{0, 8, 9}))
	if served := d.waitForOffsets(4); served.Digest != want || served.Blocks != 1 {
		t.Errorf("%d blocks with digest %s, want %s", served.Blocks, served.Digest, want)
	}
	d.stop()
}

// A block that was growing at the last save is rebuilt from the log. Where the log no
// longer reaches back that far, the block stays as it is.
func TestGrowingBlockThatTheLogHasForgotten(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprint(forgotten), func(t *testing.T) {
			name := topic(t, 1)
			file := filepath.Join(t.TempDir(), "streamd.db")
			flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "100"}
			d := start(t, name, file, flags)
			produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: jsonRow(0, 3, 2)})
			d.waitForOffsets(2)
			d.stop()
			blocks := 1
			if forgotten {
				deleteRecords(t, name, 2)
				blocks = 2
			}
			produce(t, name, message{value: jsonRow(1, 7, 7)}, message{value: jsonRow(0, 8, 9)})
			d = start(t, name, file, flags)
			served := d.waitForOffsets(4)
			want := live.DigestOf(stateOf(t, []int{1, 1, 2}, []int{0, 3, 2}, []int{1, 7, 7}, []int{0, 8, 9}))
			if served.Digest != want || served.Blocks != blocks {
				t.Errorf("%d blocks with digest %s, want %d with %s", served.Blocks, served.Digest, blocks, want)
			}
			d.stop()
		})
	}
}

// deleteRecords deletes the records before an offset of partition 0.
func deleteRecords(t *testing.T, topic string, before int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster(t).Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = before
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{p}}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if code := response.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("delete records: error %d", code)
	}
}

// A start commits the saved position where it is ahead of the group's, which another
// instance may have committed. It does so although no record comes, because a replay may
// be waiting for the commit.
func TestGroupIsToldWhatIsSaved(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	for i := range 9 {
		produce(t, name, message{value: jsonRow(1-2*(i%2), i, 7)})
	}
	flags := map[string]string{"kafka.group": name}
	d := start(t, name, file, flags)
	d.waitForOffsets(9)
	d.stop()
	api := kafkago.Client{Addr: kafkago.TCP(cluster(t).Brokers...)}
	committed, err := api.OffsetCommit(t.Context(), &kafkago.OffsetCommitRequest{
		GroupID: name, GenerationID: -1, Topics: map[string][]kafkago.OffsetCommit{name: {{Offset: 2}}}})
	if err == nil {
		err = committed.Topics[name][0].Error
	}
	if err != nil {
		t.Fatal(err)
	}

	d = start(t, name, file, flags)
	monitor, err := kafka.NewLagMonitor(cluster(t), name, name)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := monitor.WaitBelow(ctx, 0); err != nil {
		lags, _ := monitor.Lag(t.Context())
		t.Errorf("the lag stays: %+v: %v", lags, err)
	}
	d.stop()
}

// Without a broker the daemon keeps serving. The page and the metrics say that it does not
// learn, until it learns again.
func TestBrokerAway(t *testing.T) {
	b := otherBroker(t)
	b.produce("t", nil, message{value: jsonRow(1, 2, 3)}, message{value: jsonRow(-1, 4, 5)})
	d := start(t, "t", filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"kafka.brokers": b.Addr()})
	d.waitForOffsets(2)
	in := func(want string) bool {
		_, metrics := d.ask(http.MethodGet, "/metrics")
		return strings.Contains(metrics, "\nstreamd_reading "+want+"\n")
	}
	if s := d.Status(); len(s.Problems) > 0 || !in("1") {
		t.Errorf("with a broker: %q", s.Problems)
	}
	b.Close()
	problem := d.problems
	for deadline := time.Now().Add(patience); !strings.Contains(problem(), "connection refused") || !in("0"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("without a broker: %+v", d.Status())
		}
	}
	if code, body := d.ask(http.MethodGet, "/"); code != http.StatusOK || !strings.Contains(body, "t/0 cannot be read: ") {
		t.Errorf("the page: %d: %s", code, body)
	}
	if code, body := d.ask(http.MethodGet, "/readyz"); code != http.StatusOK {
		t.Errorf("it serves, but is not ready: %s", body)
	}
	b.restart()
	for deadline := time.Now().Add(patience); problem() != "" || !in("1"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("with a broker again: %+v", d.Status())
		}
	}
	d.stop()
}

// A topic is recreated while no daemon runs, with more records and fewer partitions. The
// daemon recognises this, and no block of the former topic stays live.
func TestTopicMadeAnew(t *testing.T) {
	for _, c := range []struct {
		unit       string
		partitions int // of the former topic
	}{
		{"message", 2},
		{"offsets", 2},
		{"offsets", 1}, // a block is open whose first record is not that of its fetch
	} {
		t.Run(fmt.Sprintf("%s_%d", c.unit, c.partitions), func(t *testing.T) {
			name := topic(t, c.partitions)
			file := filepath.Join(t.TempDir(), "streamd.db")
			flags := map[string]string{"blocks.unit": c.unit, "blocks.offsets": "2"}
			for i := range 3 {
				produce(t, name, message{partition: i % c.partitions, value: jsonRow(1-2*(i%2), i, 7)})
			}
			d := start(t, name, file, flags)
			d.waitForOffsets(3)
			d.stop()

			remake(t, name, 1)
			var all [][]int
			for i := range 5 {
				all = append(all, []int{1 - 2*(i%2), 100 + i, 8})
				produce(t, name, message{value: jsonRow(all[i][0], all[i][1:]...), time: time.Now()})
			}

			d = start(t, name, file, flags)
			var gap *kafka.GapError
			select {
			case err := <-d.done:
				if !errors.As(err, &gap) || !gap.Reset {
					t.Fatalf("got %v", err)
				}
			case <-time.After(patience):
				t.Fatalf("it is not noticed: %+v", d.Status())
			}
			flags["kafka.on_gap"] = "earliest"
			d = start(t, name, file, flags)
			want := live.DigestOf(stateOf(t, all...))
			d.wait("the rows of the new topic", func(s *model.Served) bool {
				var sum int64
				for _, o := range s.Offsets {
					sum += o.Next
				}
				return sum == 5 && s.Digest == want && s.Rows == 5
			})
			d.stop()
		})
	}
}

// A stopping daemon is not ready, however long the stop takes.
func TestStoppingIsNotReady(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, message{value: jsonRow(1, 2, 3)}, message{value: jsonRow(-1, 4, 5)})
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), nil)
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	if status, body := d.ask(http.MethodGet, "/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d: %s", status, body)
	}
	held, release := make(chan struct{}), make(chan struct{})
	d.Calls <- func() { close(held); <-release } // so that the loop cannot end
	<-held
	d.cancel()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		status, body := d.ask(http.MethodGet, "/readyz")
		if status == http.StatusServiceUnavailable && strings.Contains(body, "stopping") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("stopping: %d: %s", status, body)
		}
	}
	close(release)
	d.stop()
}

// removeTopic deletes a topic.
func removeTopic(t *testing.T, name string) {
	t.Helper()
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TopicNames, request.TimeoutMillis = []string{name}, int32(patience.Milliseconds())
	request.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster(t).Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := request.RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	// The broker may know the deleted topic for a moment, which would then not be created.
	look := kmsg.NewPtrMetadataRequest()
	look.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	for gone := false; !gone; time.Sleep(10 * time.Millisecond) {
		answer, err := look.RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		gone = answer.Topics[0].ErrorCode == kerr.UnknownTopicOrPartition.Code
	}
}

// remake deletes a topic and creates it again, empty.
func remake(t *testing.T, name string, partitions int) {
	t.Helper()
	removeTopic(t, name)
	if err := kafka.EnsureTopic(t.Context(), cluster(t), name, partitions, nil); err != nil {
		t.Fatal(err)
	}
}

// A block was growing when its topic was recreated. Retiring its id afterwards answers 404
// and affects nothing of the new topic.
func TestRetireABlockOfTheFormerTopic(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"blocks.unit": "offsets", "blocks.offsets": "2"}
	produce(t, name, message{value: jsonRow(1, 2, 3)}, message{value: jsonRow(-1, 4, 5)}, message{value: jsonRow(1, 6, 7)})
	d := start(t, name, file, flags)
	d.waitForOffsets(3)
	d.stop()
	remake(t, name, 1)

	flags["kafka.on_gap"] = "earliest"
	d = start(t, name, file, flags)
	d.wait("no rows", func(s *model.Served) bool { return s.Rows == 0 })
	if status, body := d.ask(http.MethodDelete, "/v1/blocks/"+url.PathEscape(name+"/0/2")); status != http.StatusNotFound {
		t.Errorf("retire what is not there: %d: %s", status, body)
	}
	produce(t, name, message{value: jsonRow(-1, 8, 9)}, message{value: jsonRow(1, 1, 1)})
	if served := d.waitForOffsets(2); served.Rows != 2 {
		t.Errorf("%d rows of 2 are live", served.Rows)
	}
	d.stop()
}

// While dead letters cannot be written the partition stops, and nothing is skipped.
func TestDeadLetterThatCannotBeWritten(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	produce(t, name, message{value: jsonRow(1, 1, 2)}, message{value: []byte("bad")}, message{value: jsonRow(0, 3, 2)})
	d := start(t, name, file, map[string]string{"dead_letters.policy": "stop"})
	select {
	case err := <-d.done:
		if err == nil || !strings.Contains(err.Error(), name+"/0/1") {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the daemon goes on")
	}
	// The good record before it is learned and saved. The one after it is not.
	d = start(t, name, file, map[string]string{"dead_letters.policy": "skip"})
	served := d.waitForOffsets(3)
	if want := live.DigestOf(stateOf(t, []int{1, 1, 2}, []int{0, 3, 2})); served.Digest != want {
		t.Errorf("digest %s, want %s", served.Digest, want)
	}
	if s := d.Status(); s.Records.Rejected != 1 || s.DeadLetters != 0 || !addsUp(&s) {
		t.Errorf("counts: %+v", s)
	}
	d.stop()
}

// A record batch beyond the limit and a record with too many headers cannot be read. The
// policy for dead letters handles both, and reading continues after them.
func TestRecordsThatCannotBeRead(t *testing.T) {
	for _, unit := range []string{"message", "offsets"} {
		t.Run(unit, func(t *testing.T) {
			name := topic(t, 1)
			produce(t, name, message{value: jsonRow(1, 1, 2)})
			produce(t, name, message{value: []byte("bad")})
			p, err := kafka.OpenProducer(t.Context(), kafka.ProducerConfig{Cluster: cluster(t), Topic: name}, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			crowded := make([]kafka.Header, 1<<14+1) // of two bytes each in the log
			if err := errors.Join(p.Write(t.Context(), 0, []byte("key"), jsonRow(1, 5, 5), crowded, time.Time{}), p.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
			produce(t, name, message{value: jsonRow(0, 3, 2)})
			flags := map[string]string{"blocks.unit": unit, "blocks.offsets": "100", "kafka.max_message_bytes": "60KiB"}
			file := filepath.Join(t.TempDir(), "streamd.db")
			produce(t, name, message{value: bytes.Repeat([]byte(" "), 70_000)})
			produce(t, name, message{value: jsonRow(0, 3, 2)})
			d := start(t, name, file, flags)
			served := d.waitForOffsets(6)
			want := live.DigestOf(stateOf(t, []int{1, 1, 2}, []int{0, 3, 2}, []int{0, 3, 2}))
			s := d.Status()
			var reasons []string
			for _, r := range s.Refused {
				reasons = append(reasons, fmt.Sprint(r.Reason, r.Records, r.Meaning != ""))
			}
			if served.Digest != want || !addsUp(&s) || s.Rows.Rejected != 0 || s.Records.Undecoded != 3 || s.DeadLetters != 3 || s.Records.Rejected != 3 ||
				strings.Join(reasons, " ") != "batch1 true format1 true headers1 true" {
				t.Errorf("digest %s, want %s; %+v", served.Digest, want, s)
			}
			d.stop()
			var letters []*kafka.DeadLetter
			collect := &collector{next: map[int]int64{}}
			collect.take = func(r *kafka.Record) {
				l, err := kafka.ReadDeadLetter(r)
				if err != nil {
					t.Error(err)
				}
				l.Key, l.Value = bytes.Clone(l.Key), bytes.Clone(l.Value)
				letters = append(letters, l)
			}
			collect.run(t, name+".dlq", func() bool { return len(letters) >= 3 })
			slices.SortFunc(letters, func(a, b *kafka.DeadLetter) int { return int(a.Offset - b.Offset) })
			if l := letters[1]; l.Offset != 2 || string(l.Key) != "key" || l.Value == nil || l.OmittedHeaders != 1<<14+1 || l.Whole() || l.Reason.Class != "headers" {
				t.Errorf("the letter about headers: %+v", l)
			}
			if l := letters[2]; l.Offset != 4 || l.Last != 4 || l.Records != 1 || l.Key != nil || l.Value != nil || l.Whole() || l.Reason.Class != "batch" ||
				!strings.HasSuffix(l.Reason.Message, ": kafka.max_message_bytes") {
				t.Errorf("the letter about a record batch: %+v", l)
			}

			flags["dead_letters.policy"] = "skip"
			d = start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			served = d.waitForOffsets(6)
			if s := d.Status(); served.Digest != want || !addsUp(&s) || s.Rows.Rejected != 0 || s.Records.Undecoded != 3 || s.DeadLetters != 0 {
				t.Errorf("skipped: digest %s, want %s; %+v", served.Digest, want, s)
			}
			d.stop()
			flags["dead_letters.policy"] = "stop"
			d = start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			select {
			case err := <-d.done:
				if err == nil || !strings.Contains(err.Error(), name+"/0/1 cannot be used") {
					t.Errorf("the error is %v", err)
				}
			case <-time.After(patience):
				t.Fatal("the daemon goes on")
			}
		})
	}
}

// A block whose rows all have weight 0 does not become live, and still replaces an older
// one.
func TestBlocksThatWeighNothing(t *testing.T) {
	name := topic(t, 1)
	weighted := func(key string, label, x int, weight string) message {
		return message{key: []byte(key), value: fmt.Appendf(nil, `{"label":%d,"a":%d,"b":1,"v":%s}`, label, x, weight)}
	}
	produce(t, name, weighted("p", 1, 5, "1"), weighted("q", 0, 3, "2"), weighted("r", 0, 4, "1"),
		weighted("none", 1, 9, "0"), weighted("q", 1, 8, "0"))
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"blocks.unit": "key", "format.weight": "v"})
	served := d.waitForOffsets(5)
	s := d.Status()
	if served.Blocks != 2 || served.Rows != 2 || s.Rows.ZeroWeight != 2 || !addsUp(&s) ||
		s.Blocks.Added != 3 || s.Blocks.Retired != 1 || s.Blocks.Replaced != 0 {
		t.Errorf("%d blocks of %d rows, counts %+v %+v", served.Blocks, served.Rows, s.Rows, s.Blocks)
	}
	d.stop()
}

// saveAnew makes the snapshot of a daemon that has read nothing.
func saveAnew(t *testing.T, flags map[string]string) {
	t.Helper()
	d, err := New(Options{Config: load(t, flags), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	d.Saver.Save()
	d.serving.listener.Close()
	d.Store.Close()
}

func TestOtherSettingsAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "streamd.db")
	base := map[string]string{"kafka.topic": "a", "snapshot.file": file, "format.features": "p,q"}
	saveAnew(t, base)
	for key, value := range map[string]string{
		"kafka.topic": "b", "blocks.unit": "key",
	} {
		other := maps.Clone(base)
		other[key] = value
		if _, err := New(Options{Config: load(t, other), Log: zerolog.Nop()}); err == nil {
			t.Errorf("another %s is accepted", key)
		} else {
			t.Log(err)
		}
	}
}

// Keys name other blocks where an envelope shortens them, so a file says which it has.
func TestOtherKeysAreRefused(t *testing.T) {
	base := map[string]string{"kafka.topic": "a", "snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "blocks.unit": "key"}
	saveAnew(t, base)
	for envelope, want := range map[string]string{"debezium": "key of debezium", "connect": "key of connect", "cloudevents": ""} {
		other := maps.Clone(base)
		other["format.envelope"] = envelope
		d, err := New(Options{Config: load(t, other), Log: zerolog.Nop()})
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("with %s: got %v", envelope, err)
		}
		if err == nil {
			d.serving.listener.Close()
			d.Store.Close()
		}
	}
}

// A class weight names the class that the decoder makes of the number, however the number
// is written in the configuration.
func TestClassWeights(t *testing.T) {
	o := learnerOf(load(t, map[string]string{"kafka.topic": "a", "model.class_weights": "+1=2,2500000.250=3,5e-5=4,spam=5"})).Options
	decoder, err := wire.NewDecoder(wire.Options{Format: wire.JSON})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]float64{"1": 2, "2500000.25": 3, "0.00005": 4, `"spam"`: 5} {
		b, err := decoder.Decode("", []byte(`{"label":`+text+`,"x":0}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.ClassWeights[b.Classes[0]]; got != want {
			t.Errorf("class %s weighs %v, want %v", b.Classes[0], got, want)
		}
	}
}

// The log says that a block is retired once that is saved. Before, it says what a crash
// would do.
func TestRetiredInTheLog(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, message{value: jsonRow(0, 1, 2)}, message{value: jsonRow(1, 3, 4)})
	var text bytes.Buffer // to be read after the daemon has stopped
	d, err := New(Options{
		Config: load(t, map[string]string{
			"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name,
			"snapshot.file": filepath.Join(t.TempDir(), "streamd.db"), "snapshot.interval": "1h",
		}),
		Log: zerolog.New(zerolog.SyncWriter(&text)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i := &instance{Daemon: d, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { i.done <- d.Run(ctx) }()
	i.waitForOffsets(2)
	i.retire(name + "/0/0")
	produce(t, name, message{value: jsonRow(0, 5, 6)})
	i.waitForOffsets(3)
	if err := d.Store.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // asked again, it must not answer "not live": a crash would make the block live again
		if status, body := i.ask(http.MethodDelete, "/v1/blocks/"+url.PathEscape(name+"/0/2")); status != http.StatusServiceUnavailable {
			t.Errorf("%d: %s", status, body)
		}
	}
	cancel()
	if err := <-i.done; err == nil {
		t.Error("the last changes have been saved in a file that is closed")
	}
	for offset, want := range map[int]string{0: "block retired", 2: "block retired, but that is not saved yet: a crash now would make it live again"} {
		var said []string
		for line := range strings.Lines(text.String()) {
			var l struct{ Block, Message string }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			if l.Block == fmt.Sprintf("%s/0/%d", name, offset) {
				said = append(said, l.Message)
			}
		}
		if len(said) != 1 || said[0] != want {
			t.Errorf("of block %d: %q, want %q", offset, said, want)
		}
	}
}
