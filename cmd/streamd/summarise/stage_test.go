package summarise

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
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/stage"
	"streamd/cmd/streamd/stage/stagetest"
	"streamd/config"
	"streamd/ingest/kafka"
)

func TestMain(m *testing.M) { stagetest.Main(m, runAsStage) }

// cluster is the broker of the tests.
func cluster(t testing.TB) kafka.Cluster { return stagetest.Cluster(t) }

// names are those of the topics of a test.
type names struct{ rows, blocks string }

// control is the control topic, where a test makes one.
func (n names) control() string { return n.rows + "-control" }

func topics(t testing.TB, partitions int) names {
	t.Helper()
	n := names{rows: fmt.Sprintf("%s-%d", strings.Map(func(r rune) rune {
		if strings.ContainsRune("/=#", r) {
			return '-'
		}
		return r
	}, t.Name()), rand.Int64())}
	n.blocks = n.rows + "-blocks"
	outage.RLock()
	defer outage.RUnlock()
	t.Cleanup(func() { dropTopics(t, n.rows, n.rows+".dlq", n.blocks, n.control()) })
	for _, name := range []string{n.rows, n.rows + ".dlq"} {
		if err := kafka.EnsureTopic(t.Context(), cluster(t), name, partitions, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// record is one to produce.
type record struct {
	partition  int
	key, value []byte
	tenant     string
	time       time.Time
}

func produce(t testing.TB, topic string, records []record) {
	t.Helper()
	outage.RLock()
	defer outage.RUnlock()
	ctx, cancel := context.WithTimeout(t.Context(), stagetest.Patience)
	defer cancel()
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster(t), Topic: topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, r := range records {
		if err := p.Write(ctx, r.partition, r.key, r.value, []kafka.Header{{Key: "tenant", Value: []byte(r.tenant)}}, r.time); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// randomRecords are some of rows: with prices, normal numbers and a one-hot feature, weights of 0,
// missing values, several sizes, some that cannot be used, and with keys some without a value.
func randomRecords(r *rand.Rand, n, partitions int, keyed bool, begin time.Time) []record {
	var all []record
	for i := range n {
		var rows bytes.Buffer
		for range 1 + r.IntN([]int{3, 40}[r.IntN(2)]) {
			kind := r.IntN(3)
			fmt.Fprintf(&rows, `{"label":"%c","weight":%g,"price":%.2f,"x":%g,"is_a":%d,"is_b":%d`, 'a'+rune(r.IntN(3)),
				[]float64{0, 1, 1, 0.5}[r.IntN(4)], 1e4*r.Float64(), float32(r.NormFloat64()), min(kind, 1), kind/2)
			if r.IntN(5) > 0 {
				fmt.Fprintf(&rows, `,"y":%g`, r.ExpFloat64())
			} else {
				rows.WriteString(`,"y":null`)
			}
			rows.WriteString("}\n")
		}
		x := record{partition: r.IntN(partitions), value: rows.Bytes(), tenant: fmt.Sprintf("t%d", i%4), time: begin.Add(time.Duration(i) * time.Second)}
		switch r.IntN(25) {
		case 0:
			x.value = []byte(`{"label":"a","x":`)
		case 1:
			x.value = []byte(`{"label":"a","weight":-1,"price":1,"x":1,"y":1,"is_a":0,"is_b":0}`)
		case 2:
			x.time = begin.Add(1000 * time.Hour) // ahead of the clock
		case 3:
			if keyed {
				x.value = nil
			}
		}
		if keyed {
			k := r.IntN(20)
			x.key, x.partition = fmt.Appendf(nil, "customer-%d", k), k%partitions
		}
		all = append(all, x)
	}
	return all
}

// flagsOf are the settings of daemons and stages of a test.
func flagsOf(t testing.TB, unit string) map[string]string {
	flags := map[string]string{
		"kafka.brokers": strings.Join(cluster(t).Brokers, ","), "http.listen": "127.0.0.1:0", "log.level": "error",
		"format.features": "price,x,y,is_a,is_b", "format.weight": "weight", "format.missing": "zero", "format.missing_features": "y=indicator",
		"blocks.unit": unit, "blocks.offsets": "7", "blocks.period": "10s", "retire.max_future": "1h", "sample.rows": "200",
		"shutdown_timeout": stagetest.Patience.String(),
	}
	if unit == "message" || unit == "key" {
		flags["retire.header"] = "tenant"
	}
	return flags
}

func load(t testing.TB, flags map[string]string, more map[string]string) *config.Config {
	t.Helper()
	given := map[string]string{}
	for _, some := range []map[string]string{flags, more} {
		for k, v := range some {
			given[k] = v
		}
	}
	cfg, err := config.Load(config.Sources{Flags: given})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// reader is a daemon.
type reader struct {
	t     testing.TB
	topic string
	flags map[string]string
	at    string
	stop  func()
}

func startDaemon(t testing.TB, topic string, flags map[string]string) *reader {
	t.Helper()
	d := &reader{t: t, topic: topic, flags: maps.Clone(flags)}
	d.flags["kafka.topic"], d.flags["snapshot.interval"] = topic, "20ms"
	d.flags["snapshot.file"] = filepath.Join(t.TempDir(), "streamd.db")
	d.start()
	t.Cleanup(func() { d.stop() })
	return d
}

// start starts the daemon, or starts it again after a stop.
func (d *reader) start() {
	d.t.Helper()
	running, err := daemon.New(daemon.Options{Config: load(d.t, d.flags, nil), Log: zerolog.New(zerolog.NewTestWriter(d.t)).Level(zerolog.ErrorLevel)})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	d.at = running.Addr().String()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			d.t.Errorf("the daemon of %s: %v", d.topic, err)
		}
	})
}

// state is what is compared of a daemon: the model, by its fingerprint, and the digest of the sums.
type state struct {
	ETag    string
	Digest  string `json:"state_digest"`
	Offsets []struct {
		Topic     string
		Partition int
		Next      int64
	}
	Blocks int   `json:"live_blocks"`
	Rows   int64 `json:"live_rows"`
}

// next is the offset up to which all records of a topic of one partition are in the model.
func (s *state) next(topic string) int64 {
	for _, o := range s.Offsets {
		if o.Topic == topic {
			return o.Next
		}
	}
	return 0
}

// blocks lists the live blocks of a daemon: ids with rows and times.
func (d *reader) blocks() map[string]string {
	d.t.Helper()
	all := map[string]string{}
	for after := ""; ; {
		resp, err := http.Get("http://" + d.at + "/v1/blocks?limit=1000&after=" + url.QueryEscape(after))
		if err != nil {
			d.t.Fatal(err)
		}
		var page struct {
			Blocks []struct {
				ID, Time string
				Rows     int64
			}
			Next string
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil {
			d.t.Fatal(err)
		}
		for _, b := range page.Blocks {
			all[b.ID] = fmt.Sprintf("%d rows, %s", b.Rows, b.Time)
		}
		if after = page.Next; after == "" {
			return all
		}
	}
}

// differences lists the blocks that two daemons do not have alike.
func differences(a, b *reader) (list []string) {
	of, from := a.blocks(), b.blocks()
	for id, x := range of {
		if y := from[id]; x != y {
			list = append(list, fmt.Sprintf("%s: %s, of sums %s", id, x, y))
		}
		delete(from, id)
	}
	for id, y := range from {
		list = append(list, fmt.Sprintf("%s: of sums alone, %s", id, y))
	}
	slices.Sort(list)
	return list
}

func (d *reader) state() (s state) {
	d.t.Helper()
	resp, err := http.Get("http://" + d.at + "/v1/model")
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return s
	}
	if err := json.Unmarshal(body, &s); err != nil {
		d.t.Fatal(err)
	}
	s.ETag = resp.Header.Get("ETag")
	return s
}

// read reports whether a daemon has read n records of its topic.
func (d *reader) read(n int64) bool {
	sum := int64(0)
	for _, o := range d.state().Offsets {
		if o.Topic == d.topic {
			sum += o.Next
		}
	}
	return sum == n
}

// alike waits until the daemon of sums has the model of the daemon of rows.
func alike(t testing.TB, when string, rows, sums *reader) {
	t.Helper()
	var a, b state
	end := time.Now().Add(stagetest.Patience)
	for {
		a, b = rows.state(), sums.state()
		if a.ETag != "" && a.ETag == b.ETag && a.Digest == b.Digest && a.Rows == b.Rows {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the model of rows is\n%+v, that of sums\n%+v", when, a, b)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// running is a stage of this process.
type running struct {
	*Stage
	stop func() error
}

func startStage(t testing.TB, n names, flags map[string]string, rows int) *running {
	t.Helper()
	cfg := load(t, flags, map[string]string{"kafka.topic": n.rows, "kafka.group": n.rows + "-stages"})
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel)
	z, err := New(Options{Config: cfg, To: n.blocks, Rows: rows, Log: log, adjust: func(_ *Stage, running *stage.Config) {
		running.Consuming.SessionTimeout = 6 * time.Second // the least that Apache Kafka allows by default
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- z.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("a stage: %v", err)
		}
	})
	return &running{z, stop}
}

// Sums that stages make of a topic make the model that its rows make, bit for bit, for each unit of
// blocks, while members come and go.
func TestStagesAreRows(t *testing.T) {
	for _, unit := range []string{"message", "key", "offsets", "time"} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(7, 11))
			const partitions, n = 3, 60
			name, flags := topics(t, partitions), flagsOf(t, unit)
			begin := time.UnixMilli(1_700_000_000_000)
			some := func() []record {
				begin = begin.Add(n * time.Second)
				return randomRecords(r, n, partitions, unit == "key", begin)
			}
			produce(t, name.rows, some())
			a := startStage(t, name, flags, 100)
			stagetest.Until(t, "the topic of blocks", func() bool { return a.NotReady(time.Now()) == "" })
			rows, sums := startDaemon(t, name.rows, flags), startDaemon(t, name.blocks, flags)
			alike(t, "one stage", rows, sums)
			b := startStage(t, name, flags, 100)
			stagetest.Until(t, "a second member", func() bool { return b.NotReady(time.Now()) == "" && len(b.Partitions()) > 0 })
			produce(t, name.rows, some())
			stagetest.Until(t, "the rows", func() bool { return rows.read(2 * n) })
			alike(t, "two stages", rows, sums)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			produce(t, name.rows, some())
			stagetest.Until(t, "the rows", func() bool { return rows.read(3 * n) })
			alike(t, "the other stage", rows, sums)
			c := b.sums.Counts()
			if blocks, rejected := c.Blocks.Load(), c.Rejected.Load(); blocks == 0 || rejected == 0 {
				t.Errorf("the second stage counts %d blocks and %d records that cannot be used", blocks, rejected)
			}
		})
	}
}
