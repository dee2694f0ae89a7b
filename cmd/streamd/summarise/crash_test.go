package summarise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/stage"
	"streamd/cmd/streamd/stage/stagetest"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// child is a stage in a process of its own.
type child struct {
	Flags   map[string]string
	To      string
	Session time.Duration // timeout of the group
	Fault   string        // what it does wrong, to see that the test finds it
}

// Faults of a child.
const (
	noTransactions = "writes without transactions"
	commitsFirst   = "commits offsets before it writes"
)

func runAsStage(text []byte) error {
	var c child
	err := json.Unmarshal(text, &c)
	var cfg *config.Config
	if err == nil {
		cfg, err = config.Load(config.Sources{Flags: c.Flags})
	}
	var z *Stage
	if err == nil {
		log := zerolog.New(os.Stderr).With().Timestamp().Logger()
		z, err = New(Options{Config: cfg, To: c.To, Rows: 50, Log: log, adjust: func(z *Stage, running *stage.Config) {
			running.Consuming.SessionTimeout = c.Session
			if c.Fault != "" {
				running.OpenProducer = z.openCareless(c.Fault)
			}
		}})
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println(z.Addr())
		err = z.Run(ctx)
	}
	return err
}

// careless is a producer without transactions. Between reading and writing it waits for a moment,
// as a busy process does.
type careless struct {
	z             *Stage
	partition, to int
	fault         string
	producer      *kafka.Producer
	held          []kafka.Record
}

func (z *Stage) openCareless(fault string) func(ctx context.Context, partition, to int) (stage.Producer, kafka.Committed, error) {
	return func(ctx context.Context, partition, to int) (stage.Producer, kafka.Committed, error) {
		at := kafka.Committed{Offset: -1}
		monitor, err := kafka.NewLagMonitor(z.cluster, z.cfg.Kafka.Topic, z.cfg.Kafka.Group)
		if err != nil {
			return nil, at, err
		}
		defer monitor.Close()
		lags, err := monitor.Lag(ctx)
		if err != nil {
			return nil, at, err
		}
		at.Offset, at.Metadata = lags[partition].Committed, "{}"
		p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: z.cluster, Topic: z.to}, z.log)
		return &careless{z: z, partition: partition, to: to, fault: fault, producer: p}, at, err
	}
}

func (c *careless) Forget() {}

func (c *careless) Write(_ context.Context, key, value []byte, headers []kafka.Header, t time.Time) error {
	r := kafka.Record{Key: slices.Clone(key), Value: slices.Clone(value), Time: t}
	for _, h := range headers {
		r.Headers = append(r.Headers, kafka.Header{Key: h.Key, Value: slices.Clone(h.Value)})
	}
	c.held = append(c.held, r)
	return nil
}

func (c *careless) Commit(ctx context.Context, at kafka.Committed) error {
	commit := func() {
		c.z.Consumer().Commit(ctx, map[int]int64{c.partition: at.Offset})
	}
	if c.fault == commitsFirst {
		commit()
	}
	time.Sleep(300 * time.Millisecond)
	for _, r := range c.held {
		if err := c.producer.Write(ctx, c.to, r.Key, r.Value, r.Headers, r.Time); err != nil {
			return err
		}
	}
	c.held = nil
	if err := c.producer.Flush(ctx); err != nil {
		return err
	}
	if c.fault != commitsFirst {
		commit()
	}
	return nil
}

func (c *careless) Abort(context.Context) error {
	c.producer.Close()
	return nil
}

// history is a random one: rows are produced, and blocks retired by the control topic, while stages
// are killed, stopped, stand still beyond the group's timeout and wake up, while replicas and, with
// restarts, the broker start again. It returns why the daemons of sums do not end with the
// model of the daemon of rows, or what a client of both has seen that was no model; nil: they do.
func history(t *testing.T, seed uint64, unit, fault string, steps int, restarts bool) error {
	r := rand.New(rand.NewPCG(seed, 5))
	restartAt, kills := r.IntN(steps), r.IntN(2) == 0
	const n = 40
	partitions := 4
	name, flags := topics(t, partitions), flagsOf(t, unit)
	flags["kafka.topic"], flags["kafka.group"], flags["log.level"] = name.rows, name.rows+"-stages", "debug"
	outage.RLock()
	err := kafka.EnsureTopic(t.Context(), cluster(t), name.control(), 1, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"})
	outage.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	session := stagetest.Session()
	c := child{Flags: flags, To: name.blocks, Session: session, Fault: fault}
	w := &requests{t: t, r: r, names: name, unit: unit, begin: time.UnixMilli(1_700_000_000_000)}
	w.now = w.begin
	count := int64(0)
	some := func() {
		w.now = w.now.Add(n * time.Second)
		count += n
		produce(t, name.rows, randomRecords(r, n, partitions, unit == "key", w.now))
	}
	some()
	stages := []*stagetest.Process{stagetest.Spawn(t, c), stagetest.Spawn(t, c), stagetest.Spawn(t, c)}
	plain := flagsOf(t, unit)
	plain["retire.topic"] = name.control()
	rows := startDaemon(t, name.rows, plain)
	stagetest.Until(t, "the topic of blocks", func() bool {
		outage.RLock()
		defer outage.RUnlock()
		_, err := kafka.ReadRetention(t.Context(), cluster(t), name.blocks)
		return err == nil
	})
	sums, replica := startDaemon(t, name.blocks, plain), startDaemon(t, name.blocks, plain)
	client := balance(sums, replica)
	defer client.stop()
	pause := func(most time.Duration) { time.Sleep(rand.N(most)) }
	var asleep []*stagetest.Process
	for step := range steps {
		some()
		pause(session / 2)
		if fault == "" { // keys that are kept out hide it, too
			w.some(rows)
		}
		if unit != "key" && r.IntN(steps) == 0 { // a key would be in another partition
			partitions += 2
			addPartitions(t, name.rows, partitions)
		}
		if r.IntN(2*steps) == 0 {
			client.restart(1)
		}
		if restarts && step == restartAt {
			restartBroker(t, kills)
		}
		switch i := r.IntN(len(stages)); r.IntN(5) {
		case 0: // a crash
			stages[i].Kill()
			pause(session / 2)
			stages[i] = stagetest.Spawn(t, c)
		case 1: // another one takes over meanwhile
			stages[i].Stop(t, fault != "")
			stages[i] = stagetest.Spawn(t, c)
		case 2, 3: // a zombie
			stages[i].Signal(syscall.SIGSTOP)
			asleep = append(asleep, stages[i])
			stages[i] = stagetest.Spawn(t, c)
			if r.IntN(2) == 0 {
				pause(2 * session)
			}
		case 4:
			for _, p := range asleep {
				p.Signal(syscall.SIGCONT)
				stages = append(stages, p)
			}
			asleep = nil
		}
	}
	for _, p := range asleep {
		p.Signal(syscall.SIGCONT)
		stages = append(stages, p)
	}
	if fault == "" { // later values hide what was wrong with former ones
		some()
	}
	stagetest.Until(t, "the rows", func() bool { return rows.read(count) })
	var want state
	failed := func(what string) error {
		text := ""
		for i, p := range stages {
			text += fmt.Sprintf("stage %d:\n%s\n", i, last(p.Stderr.String(), 2000))
		}
		outage.RLock()
		defer outage.RUnlock()
		return fmt.Errorf("seed %d, %s: %s: the model of rows is\n%+v, those of sums\n%+v\n%+v\n%s\n%s",
			seed, unit, what, want, sums.state(), replica.state(), strings.Join(differences(rows, sums), "\n"), text)
	}
	wait := stagetest.Patience
	if fault != "" {
		wait = 15 * time.Second
	}
	// same waits until all daemons have followed the control topic, and have one model.
	same := func() bool {
		written := w.end()
		for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
			a, b := sums.state(), replica.state()
			want = rows.state()
			follow := min(a.next(name.control()), b.next(name.control()), want.next(name.control())) == written
			if follow && a.ETag == want.ETag && b.ETag == want.ETag && a.Digest == want.Digest && a.Rows == want.Rows && b.Rows == want.Rows {
				return true
			}
			if time.Now().After(end) {
				return false
			}
		}
	}
	if !same() {
		return failed("at the end")
	}
	client.stop()
	cfg := load(t, plain, map[string]string{"kafka.topic": name.blocks})
	if fault == "" {
		if err := client.check(t, name, cfg); err != nil {
			return fmt.Errorf("seed %d, %s: %w", seed, unit, err)
		}
	}
	w.takeBack()
	if !same() {
		return failed("after requests were taken back")
	}
	if fault == "" {
		all := newPrefixes(t, name, cfg)
		stagetest.Until(t, "the blocks of requests that were taken back", func() bool {
			last := sums.state()
			digest, err := all.digest(&last)
			if err != nil {
				t.Fatal(err)
			}
			return last.Digest == digest
		})
	}
	if !same() {
		return failed("with the blocks of requests that were taken back")
	}
	for _, p := range stages {
		p.Stop(t, fault != "")
	}
	if got := sums.state(); got.Digest != want.Digest || got.Rows != want.Rows { // the last commits have changed nothing
		return fmt.Errorf("seed %d, %s: after the stages have stopped the model is\n%+v\nnot\n%+v", seed, unit, got, want)
	}
	alike(t, "after the stages have stopped", rows, sums) // studies may end meanwhile
	return nil
}

// requests are those to retire blocks in all daemons, by the control topic, and by whatever names
// the same blocks where their rows are summed: of a unit of one record, rows that are fewer than
// their sums have other positions there.
type requests struct {
	t          testing.TB
	r          *rand.Rand
	names      names
	unit       string
	begin, now time.Time // of the rows
	inForce    []string  // names of the records
}

// some retires a few blocks, if any. d is the daemon of rows.
func (w *requests) some(d *reader) {
	w.t.Helper()
	gathered := w.unit == "offsets" || w.unit == "time"
	if gathered && w.r.IntN(2) == 0 {
		retireSome(w.t, w.r, d)
		return
	}
	from := w.begin.Add(time.Duration(w.r.Int64N(int64(w.now.Sub(w.begin)))))
	s := retire.Selector{From: &from}
	to := from.Add(time.Duration(1+w.r.IntN(12)) * time.Second)
	switch kind := w.r.IntN(3); {
	case kind == 0:
		s.To = &to
	case gathered:
		first := w.r.Int64N(50)
		s.From, s.Positions = nil, []retire.Range{{Topic: w.names.rows, Partition: w.r.IntN(4), First: first, Last: first + w.r.Int64N(9)}}
	case w.unit == "key" && kind == 1:
		s.From, s.To, s.Keys = nil, &to, []string{fmt.Sprintf("customer-%d", w.r.IntN(20)), "nobody"}
		if w.r.IntN(4) == 0 {
			s.To = nil
		}
	default:
		to = to.Add(30 * time.Second)
		s.To, s.Headers = &to, []string{fmt.Sprintf("t%d", w.r.IntN(4))}
	}
	value, err := json.Marshal(map[string]any{"retire": s})
	if err != nil {
		w.t.Fatal(err)
	}
	w.inForce = append(w.inForce, fmt.Sprintf("request-%d", len(w.inForce)))
	w.write(w.inForce[len(w.inForce)-1], value)
}

// takeBack takes back half of the requests: their blocks are read again.
func (w *requests) takeBack() {
	w.t.Helper()
	for _, name := range w.inForce {
		if w.r.IntN(2) == 0 {
			w.write(name, nil)
		}
	}
}

func (w *requests) write(name string, value []byte) {
	w.t.Helper()
	outage.RLock()
	defer outage.RUnlock()
	ctx, cancel := context.WithTimeout(w.t.Context(), stagetest.Patience)
	defer cancel()
	if err := control.Write(ctx, cluster(w.t), w.names.control(), []control.Record{{Key: []byte(name), Value: value}}, zerolog.Nop()); err != nil {
		w.t.Fatal(err)
	}
}

// end is the end of the control topic, which daemons write to, too.
func (w *requests) end() (end int64) {
	w.t.Helper()
	for _, r := range readTopic(w.t, w.names.control())[0] {
		end = r.Offset + 1
	}
	return end
}

// retireSome retires some blocks in all daemons, by the control topic. Their positions are those of
// the rows, whoever has summed them. The last block of a partition may still grow: it would end in
// the daemon of rows, and not in a stage.
func retireSome(t testing.TB, r *rand.Rand, d *reader) {
	t.Helper()
	outage.RLock() // the daemon waits for a broker that takes its dead letters
	defer outage.RUnlock()
	newest := map[string]int{} // offset, by topic and partition
	at := func(id string) (of string, offset int) {
		slash := strings.LastIndexByte(id, '/')
		offset, err := strconv.Atoi(id[slash+1:])
		if err != nil {
			t.Fatal(err)
		}
		return id[:slash], offset
	}
	ids := slices.Sorted(maps.Keys(d.blocks()))
	for _, id := range ids {
		of, offset := at(id)
		newest[of] = max(newest[of], offset)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		of, offset := at(id)
		return offset == newest[of] || r.IntN(8) > 0
	})
	if len(ids) == 0 {
		return
	}
	body, err := json.Marshal(map[string][]string{"ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+d.at+"/v1/retire", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("retire %q: %s %s", ids, resp.Status, text)
	}
}

func addPartitions(t *testing.T, topic string, count int) {
	t.Helper()
	outage.RLock()
	defer outage.RUnlock()
	c := adminClient(t)
	defer c.Transport.(*kafkago.Transport).CloseIdleConnections()
	answer, err := c.CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: int32(count)}}})
	if err == nil {
		err = answer.Errors[topic]
	}
	if err != nil {
		t.Fatalf("add partitions to %s: %v", topic, err)
	}
	stagetest.Until(t, "the added partitions", func() bool { // brokers do not tell clients of them at once
		answer, err := c.Metadata(t.Context(), &kafkago.MetadataRequest{Topics: []string{topic}})
		return err == nil && len(answer.Topics) == 1 && len(answer.Topics[0].Partitions) == count
	})
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }

var units = []string{"key", "message", "offsets", "time"}

// Whatever happens to stages, replicas and the broker, the daemons of their sums have the model of
// the rows. With STREAMD_STAGE_HISTORIES there are so many histories, and STREAMD_HISTORY is the
// seed of the first: STREAMD_HISTORY=SEED STREAMD_STAGE_HISTORIES=1 repeats one.
func TestStagesCrash(t *testing.T) {
	numbers := map[string]uint64{"STREAMD_STAGE_HISTORIES": 4, "STREAMD_HISTORY": 1}
	for name := range numbers {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s=%s: want a number", name, text)
			}
			numbers[name] = n
		}
	}
	histories := numbers["STREAMD_STAGE_HISTORIES"]
	if histories < 1 {
		t.Fatal("STREAMD_STAGE_HISTORIES=0: this test would show nothing")
	}
	var passed atomic.Uint64
	t.Run("histories", func(t *testing.T) {
		for i := range histories {
			seed := numbers["STREAMD_HISTORY"] + i
			unit := units[seed%uint64(len(units))]
			t.Run(fmt.Sprint(unit, " ", seed), func(t *testing.T) {
				t.Parallel()
				if err := history(t, seed, unit, "", 5, i%12 == 0); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d of %d histories have passed", passed.Add(1), histories)
			})
		}
	})
	t.Logf("the broker was restarted %d times", outage.restarts.Load())
}

// The histories find stages that do not work as they should.
func TestCarelessStages(t *testing.T) {
	for _, each := range []struct{ fault, unit string }{{noTransactions, "key"}, {commitsFirst, "message"}} {
		t.Run(each.fault, func(t *testing.T) {
			t.Parallel()
			var found error
			for seed := uint64(1); seed <= 100 && found == nil; seed++ {
				found = history(t, seed, each.unit, each.fault, 6, false)
			}
			if found == nil {
				t.Fatal(errors.New("100 histories end with the model of the rows"))
			}
		})
	}
}
