package summarise

import (
	"bufio"
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
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/config"
	"streamd/ingest/kafka"
)

// asStage is the variable that makes this test binary a stage. It holds a child in JSON.
const asStage = "STREAMD_TEST_STAGE"

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

func runAsStage() int {
	var c child
	err := json.Unmarshal([]byte(os.Getenv(asStage)), &c)
	var cfg *config.Config
	if err == nil {
		cfg, err = config.Load(config.Sources{Flags: c.Flags})
	}
	var z *Stage
	if err == nil {
		z, err = New(Options{Config: cfg, To: c.To, Rows: 50, Log: zerolog.New(os.Stderr).With().Timestamp().Logger()})
	}
	if err == nil {
		z.consuming.SessionTimeout = c.Session
		if c.Fault != "" {
			z.openProducer = z.openCareless(c.Fault)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println(z.Addr())
		err = z.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
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

func (z *Stage) openCareless(fault string) func(ctx context.Context, partition, to int) (producer, kafka.Committed, error) {
	return func(ctx context.Context, partition, to int) (producer, kafka.Committed, error) {
		at := kafka.Committed{Offset: -1}
		monitor, err := kafka.NewLagMonitor(z.consuming.Cluster, z.cfg.Kafka.Topic, z.cfg.Kafka.Group)
		if err != nil {
			return nil, at, err
		}
		defer monitor.Close()
		lags, err := monitor.Lag(ctx)
		if err != nil {
			return nil, at, err
		}
		at.Offset, at.Metadata = lags[partition].Committed, "{}"
		p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: z.consuming.Cluster, Topic: z.to}, z.log)
		return &careless{z: z, partition: partition, to: to, fault: fault, producer: p}, at, err
	}
}

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
		c.z.mu.Lock()
		consumer := c.z.consumer
		c.z.mu.Unlock()
		consumer.Commit(ctx, map[int]int64{c.partition: at.Offset})
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

// process is a child at work.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	ended  chan struct{}
	stderr lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

func spawn(t testing.TB, c child) *process {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asStage+"="+string(text))
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		p.cmd.Wait()
		t.Fatalf("a stage does not begin: %v\n%s", err, p.stderr.text())
	}
	go io.Copy(io.Discard, out)
	go func() { p.cmd.Wait(); close(p.ended) }()
	return p
}

func (p *process) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// stop stops it in order.
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if !p.cmd.ProcessState.Success() {
			p.t.Errorf("a stage ends with %v\n%s", p.cmd.ProcessState, p.stderr.text())
		}
	case <-time.After(patience):
		p.t.Fatalf("a stage does not stop\n%s", p.stderr.text())
	}
}

// history is a random one: rows are produced while stages are killed, stopped, stand still beyond
// the group's timeout and wake up. It returns why the daemons of sums do not end with the model of
// the daemon of rows; "": they do.
func history(t *testing.T, seed uint64, unit, fault string, steps int) error {
	r := rand.New(rand.NewPCG(seed, 5))
	const n = 40
	partitions := 4
	name, flags := topics(t, partitions), flagsOf(t, unit)
	flags["kafka.topic"], flags["kafka.group"], flags["log.level"] = name.rows, name.rows+"-stages", "debug"
	control := name.rows + "-control"
	if err := kafka.EnsureTopic(t.Context(), cluster(t), control, 1, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	session := time.Second
	if os.Getenv("STREAMD_TEST_BROKERS") != "" {
		session = 6 * time.Second // the least that Apache Kafka allows by default
	}
	c := child{Flags: flags, To: name.blocks, Session: session, Fault: fault}
	begin := time.UnixMilli(1_700_000_000_000)
	count := int64(0)
	some := func() {
		begin = begin.Add(n * time.Second)
		count += n
		produce(t, name.rows, randomRecords(r, n, partitions, unit == "key", begin))
	}
	some()
	stages := []*process{spawn(t, c), spawn(t, c), spawn(t, c)}
	plain := flagsOf(t, unit)
	plain["retire.topic"] = control
	rows := startDaemon(t, name.rows, plain)
	until(t, "the topic of blocks", func() bool {
		_, err := kafka.ReadRetention(t.Context(), cluster(t), name.blocks)
		return err == nil
	})
	sums, replica := startDaemon(t, name.blocks, plain), startDaemon(t, name.blocks, plain)
	pause := func(most time.Duration) { time.Sleep(rand.N(most)) }
	var asleep []*process
	for range steps {
		some()
		pause(session / 2)
		if unit == "offsets" || unit == "time" {
			retireSome(t, r, rows)
		}
		if unit != "key" && r.IntN(steps) == 0 { // a key would be in another partition
			partitions += 2
			addPartitions(t, name.rows, partitions)
		}
		switch i := r.IntN(len(stages)); r.IntN(5) {
		case 0: // a crash
			stages[i].kill()
			pause(session / 2)
			stages[i] = spawn(t, c)
		case 1: // another one takes over meanwhile
			stages[i].stop()
			stages[i] = spawn(t, c)
		case 2, 3: // a zombie
			stages[i].signal(syscall.SIGSTOP)
			asleep = append(asleep, stages[i])
			stages[i] = spawn(t, c)
			if r.IntN(2) == 0 {
				pause(2 * session)
			}
		case 4:
			for _, p := range asleep {
				p.signal(syscall.SIGCONT)
				stages = append(stages, p)
			}
			asleep = nil
		}
	}
	for _, p := range asleep {
		p.signal(syscall.SIGCONT)
		stages = append(stages, p)
	}
	some()
	until(t, "the rows", func() bool { return rows.read(count) })
	var want state
	wait := patience
	if fault != "" {
		wait = 15 * time.Second
	}
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		a, b := sums.state(), replica.state()
		if want = rows.state(); a.ETag == want.ETag && b.ETag == want.ETag && a.Digest == want.Digest && a.Rows == want.Rows && b.Rows == want.Rows {
			break
		}
		if time.Now().After(end) {
			text := ""
			for i, p := range stages {
				text += fmt.Sprintf("stage %d:\n%s\n", i, last(p.stderr.text(), 2000))
			}
			return fmt.Errorf("seed %d, %s: the model of rows is\n%+v, those of sums\n%+v\n%+v\n%s\n%s", seed, unit, want, a, b, strings.Join(differences(rows, sums), "\n"), text)
		}
	}
	for _, p := range stages {
		p.stop()
	}
	if got := sums.state(); got.Digest != want.Digest || got.Rows != want.Rows { // the last commits have changed nothing
		return fmt.Errorf("seed %d, %s: after the stages have stopped the model is\n%+v\nnot\n%+v", seed, unit, got, want)
	}
	alike(t, "after the stages have stopped", rows, sums) // studies may end meanwhile
	return nil
}

// retireSome retires some blocks in all daemons, by the control topic. Their positions are those of
// the rows, whoever has summed them. The last block of a partition may still grow: it would end in
// the daemon of rows, and not in a stage.
func retireSome(t *testing.T, r *rand.Rand, d *reader) {
	t.Helper()
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
	c := &kafkago.Client{Addr: kafkago.TCP(cluster(t).Brokers...), Timeout: patience}
	answer, err := c.CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: int32(count)}}})
	if err == nil {
		err = answer.Errors[topic]
	}
	if err != nil {
		t.Fatalf("add partitions to %s: %v", topic, err)
	}
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }

var units = []string{"key", "message", "offsets", "time"}

// Whatever happens to stages, the daemons of their sums have the model of the rows. With
// STREAMD_STAGE_HISTORIES there are so many histories, of other seeds.
func TestStagesCrash(t *testing.T) {
	histories, first := 4, uint64(1)
	if text := os.Getenv("STREAMD_STAGE_HISTORIES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("STREAMD_STAGE_HISTORIES=%s: want a number", text)
		}
		histories, first = n, uint64(time.Now().UnixNano())
	}
	for i := range histories {
		unit := units[i%len(units)]
		t.Run(fmt.Sprint(unit, " ", i), func(t *testing.T) {
			t.Parallel()
			if err := history(t, first+uint64(i), unit, "", 5); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The histories find stages that do not work as they should.
func TestCarelessStages(t *testing.T) {
	for _, each := range []struct{ fault, unit string }{{noTransactions, "key"}, {commitsFirst, "message"}} {
		t.Run(each.fault, func(t *testing.T) {
			t.Parallel()
			var found error
			for seed := uint64(1); seed <= 20 && found == nil; seed++ {
				found = history(t, seed, each.unit, each.fault, 6)
			}
			if found == nil {
				t.Fatal(errors.New("20 histories end with the model of the rows"))
			}
		})
	}
}
