// Package stagetest has what tests of stages share: a broker, what a topic has, and stages as
// processes that can be killed.
package stagetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

// Patience is how long a step may take before it counts as failed, also on a slow machine.
const Patience = 5 * time.Minute

// asChild has what a child is to do, in JSON.
const asChild = "STREAMD_TEST_AS_CHILD"

var broker struct {
	once sync.Once
	dir  string
	*embedded.Broker
	err error
}

// Main is that of tests whose children run as a child of Spawn does.
func Main(m *testing.M, child func(text []byte) error) {
	if text := os.Getenv(asChild); text != "" {
		if err := child([]byte(text)); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if broker.Broker != nil {
		broker.Close()
		os.RemoveAll(broker.dir)
	}
	os.Exit(code)
}

// IsReal reports whether the broker is a real one.
func IsReal() bool { return os.Getenv("STREAMD_TEST_BROKERS") != "" }

// uncompacted has the embedded broker compact in an hour. It would move the beginning of a log,
// which Kafka's does not: who has not read so far would find a gap.
var uncompacted = kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "3600000"})

// Cluster is a real Apache Kafka where STREAMD_TEST_BROKERS names one, and the embedded broker
// elsewhere.
func Cluster(t testing.TB) kafka.Cluster {
	t.Helper()
	if IsReal() {
		return kafka.Cluster{Brokers: strings.Split(os.Getenv("STREAMD_TEST_BROKERS"), ","), ClientID: "test"}
	}
	if os.Getenv("STREAMD_REQUIRE_BROKER") != "" {
		t.Fatal("STREAMD_REQUIRE_BROKER is set, but STREAMD_TEST_BROKERS names no broker")
	}
	broker.once.Do(func() {
		if broker.dir, broker.err = os.MkdirTemp("", "streamd-stage-"); broker.err == nil {
			broker.Broker, broker.err = embedded.Start(broker.dir, uncompacted)
		}
	})
	if broker.err != nil {
		t.Fatal(broker.err)
	}
	return kafka.Cluster{Brokers: []string{broker.Addr()}, ClientID: "test"}
}

// Session is the timeout of a group: the least that the broker allows by default.
func Session() time.Duration {
	if IsReal() {
		return 6 * time.Second
	}
	return time.Second
}

// RestartEmbedded stops the embedded broker and starts it again on its port.
func RestartEmbedded(t testing.TB) {
	t.Helper()
	_, text, err := net.SplitHostPort(Cluster(t).Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	broker.Close()
	Until(t, "the port "+text, func() bool { // another process may hold it for a moment
		again, err := embedded.Start(broker.dir, kfake.Ports(port), uncompacted)
		if err == nil {
			broker.Broker = again
		}
		return err == nil
	})
}

// Until waits until something holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Read returns the committed records of a topic that is there, by partition.
func Read(t testing.TB, c kafka.Cluster, topic string) (all [][]kafka.Record) {
	t.Helper()
	r, err := kafka.NewRangeReader(kafka.RangeConfig{Cluster: c, Topic: topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var bounds []kafka.Range
	Until(t, "the offsets of "+topic, func() bool { // partitions have no leader for a moment after a restart
		var err error
		if bounds, err = r.Bounds(t.Context()); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	all = make([][]kafka.Record, len(bounds))
	bounds = slices.DeleteFunc(bounds, func(b kafka.Range) bool { return b.To == b.From })
	var mu sync.Mutex
	lost, err := r.Read(t.Context(), bounds, func(_ context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range b.Records {
			r.Key, r.Value, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
			for i := range r.Headers {
				r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
			}
			all[b.Partition] = append(all[b.Partition], r)
		}
		b.Release()
		return nil
	})
	if err != nil || len(lost) > 0 {
		t.Fatalf("read %s: %v, lost %v", topic, err, lost)
	}
	return all
}

// CheckAlerts checks that the alerts name series with a prefix that a collector has, at least so
// many.
func CheckAlerts(t *testing.T, c prometheus.Collector, prefix string, least int) {
	t.Helper()
	text, err := os.ReadFile("../../../config/deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan *prometheus.Desc)
	go func() {
		c.Describe(found)
		close(found)
	}()
	has, name := map[string]bool{}, regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range found {
		has[name.FindStringSubmatch(d.String())[1]] = true
	}
	names := regexp.MustCompile(`\b`+prefix+`\w+`).FindAllString(string(text), -1)
	for _, name := range names {
		if !has[name] {
			t.Errorf("there is no series %s", name)
		}
	}
	if len(names) < least {
		t.Errorf("the alerts name only %q", names)
	}
}

// Process is a child at work.
type Process struct {
	Ended  chan struct{}
	Stderr Buffer

	cmd *exec.Cmd
}

// Buffer is a buffer that is written and read at the same time.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is what has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Spawn starts a child, which is killed at the end of the test. It has begun when it has printed a
// line.
func Spawn(t testing.TB, child any) *Process {
	t.Helper()
	text, err := json.Marshal(child)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: exec.Command(os.Args[0]), Ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asChild+"="+string(text)), &p.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		p.cmd.Wait()
		t.Fatalf("a stage does not begin: %v\n%s", err, p.Stderr.String())
	}
	go io.Copy(io.Discard, out)
	go func() { p.cmd.Wait(); close(p.Ended) }()
	return p
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

// Kill kills the process.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}

// Stop stops the process in order. A careless one may fail.
func (p *Process) Stop(t testing.TB, careless bool) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Ended:
		if !p.cmd.ProcessState.Success() && !careless {
			t.Errorf("a stage ends with %v\n%s", p.cmd.ProcessState, p.Stderr.String())
		}
	case <-time.After(Patience):
		t.Fatalf("a stage does not stop\n%s", p.Stderr.String())
	}
}
