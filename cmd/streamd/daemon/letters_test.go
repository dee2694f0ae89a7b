package daemon

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

// While the brokers take no dead letters, reading waits, page and probe say so, the daemon answers,
// and nothing is saved that the dead letters lack. A stop does not wait for them, and the next
// daemon goes on as if nothing had been.
func TestDeadLettersThatAreNotTaken(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, name := range []string{"t", "t.dlq"} {
		if err := b.CreateTopic(name, 1, -1); err != nil {
			t.Fatal(err)
		}
	}
	var refusing atomic.Bool
	var refused atomic.Int64
	refusing.Store(true)
	b.Cluster().ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		of := r.(*kmsg.ProduceRequest).Topics[0]
		if of.Topic != "t.dlq" || !refusing.Load() {
			return nil, nil, false
		}
		refused.Add(1)
		answer := r.ResponseKind().(*kmsg.ProduceResponse)
		topic, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		topic.Topic, partition.ErrorCode = of.Topic, kerr.NotEnoughReplicas.Code
		topic.Partitions = append(topic.Partitions, partition)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	p, err := kafka.OpenProducer(t.Context(), kafka.ProducerConfig{Cluster: kafka.Cluster{Brokers: []string{b.Addr()}}, Topic: "t"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	put := func(values ...string) {
		t.Helper()
		for _, value := range values {
			if err := p.Write(t.Context(), 0, nil, []byte(value), nil, time.UnixMilli(1_700_000_000_000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	row := func(i int) string { return fmt.Sprintf(`{"label":"%d","x":%d}`, i%2, i) }
	put(row(0), row(1), row(2))
	file := filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"kafka.brokers": b.Addr()}
	d, _ := logging(t, "t", file, flags)
	d.waitForOffsets(3)
	d.until("it is ready and saved", func() bool { s := d.Status(); return s.NotReady == "" && !s.LastSnapshot.IsZero() })

	put("no row", row(3), row(4))
	d.until("the problem", func() bool { return d.find(httpapi.ProblemLetters) != nil })
	problem := d.find(httpapi.ProblemLetters)
	if problem.Level() != httpapi.LevelFailure || !strings.Contains(problem.Text, "Not Enough Replicas") || !strings.Contains(problem.Action, "dead_letters.policy") {
		t.Errorf("the problem is %+v", problem)
	}
	if status, body := d.ask(http.MethodGet, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "dead letters cannot be written") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if _, page := d.ask(http.MethodGet, "/"); !strings.Contains(page, "dead letters cannot be written") {
		t.Error("the page does not say it")
	}
	n := refused.Load()
	d.until("further attempts", func() bool { return refused.Load() > n+1 })
	began := time.Now()
	d.cancel()
	if err := <-d.done; err == nil || !strings.Contains(err.Error(), "will be read again") || !strings.Contains(err.Error(), "dead letters") {
		t.Errorf("it ends with %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the stop took %v", took)
	}

	d, log := logging(t, "t", file, flags)
	d.until("the problem of the next daemon", func() bool { return d.find(httpapi.ProblemLetters) != nil })
	put(row(5))
	refusing.Store(false)
	d.waitForOffsets(7)
	d.until("the end of the problem", func() bool { s := d.Status(); return s.NotReady == "" && d.find(httpapi.ProblemLetters) == nil })
	if s := d.Status(); s.Records.Rejected != 1 || s.DeadLetters != 1 || s.Rows.Summarised != 6 || !addsUp(&s) {
		t.Errorf("%+v, %+v, %d dead letters", s.Records, s.Rows, s.DeadLetters)
	}
	d.stop()
	if text := log.String(); !strings.Contains(text, "reading goes on") {
		t.Errorf("the log says %s", text)
	}
	dead := letterValues(t, b.Addr())
	if len(dead) == 0 || dead[0] != "no row" {
		t.Errorf("the dead letters are %q", dead)
	}
	// The same digest as of a daemon that had no trouble.
	other := start(t, "t", filepath.Join(t.TempDir(), "other.db"), flags)
	want := other.waitForOffsets(7).Digest
	other.stop()
	again := start(t, "t", file, flags)
	if got := again.waitForOffsets(7).Digest; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	again.stop()
}

// letterValues are the values in the topic of dead letters.
func letterValues(t *testing.T, broker string) (values []string) {
	t.Helper()
	r, err := kafka.NewRangeReader(kafka.RangeConfig{Cluster: kafka.Cluster{Brokers: []string{broker}}, Topic: "t.dlq"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log, err := r.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Read(t.Context(), log, func(_ context.Context, b *kafka.Batch) error {
		for i := range b.Records {
			values = append(values, string(b.Records[i].Value))
		}
		b.Release()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}
