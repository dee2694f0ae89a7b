package kafkatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

const sourceHeader = "test.source"

// testPositions has what was written and not committed read back, and is not written again. A
// member that the group does not have any more writes nothing.
func testPositions(t *testing.T, s *suite) {
	ctx := deadline(t)
	source, topic := s.topic(t, "source", 3, nil), s.topic(t, "topic", 2, nil)
	group := s.config(t, source)
	group.Shared = true
	produce(t, s.producer(t), append(values(source, 1, 0, 100), values(source, 2, 0, 100)...)...)
	c := s.consume(t, group, newRecorder())
	c.until("an assignment", func() bool { return len(assigned(c)) == 3 })
	member := c.Member()
	cfg := kafka.TransactionConfig{Cluster: s.cluster(), Source: source, Group: group.Group, Topic: topic, BatchBytes: 500, SourceHeader: sourceHeader}
	all, err := kafka.NewTransactions(cfg, zerolog.New(zerolog.NewTestWriter(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	to := 1
	open := func(partition int) (*kafka.PositionalProducer, kafka.Committed) {
		t.Helper()
		p, at, err := all.OpenPositions(ctx, member, partition, to)
		must(err)
		return p, at
	}
	write := func(p *kafka.PositionalProducer, partition, offset int) error {
		value := fmt.Sprintf("%d/%d", partition, offset)
		return p.Write(ctx, nil, []byte(value), []kafka.Header{{Key: sourceHeader, Value: []byte(source + "/" + value)}}, recent())
	}
	until := func(partition, from, to int, p *kafka.PositionalProducer) {
		t.Helper()
		for offset := from; offset < to; offset++ {
			must(write(p, partition, offset))
		}
	}

	a, at := open(2)
	if at.Offset != -1 || at.Metadata != "" {
		t.Fatalf("committed before anything: %+v", at)
	}
	must(a.Commit(ctx, kafka.Committed{Offset: 0, Metadata: "begun @3/x"}))
	until(2, 0, 20, a)
	must(a.Commit(ctx, kafka.Committed{Offset: 20, Metadata: "after 20"}))
	until(2, 20, 40, a) // of which some are sent
	other, _ := open(1)
	must(other.Commit(ctx, kafka.Committed{Offset: 0}))
	until(1, 0, 50, other)
	must(other.Commit(ctx, kafka.Committed{Offset: 50}))
	var noise []*kgo.Record // none of these is a position of the partition
	for _, text := range []string{"2/99", source + "/2/100", source + "/2/9223372036854775807", source + "/2/-1", source + "/2/", source + "x/2/99", source + "/22/9", ""} {
		noise = append(noise, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("noise"), Headers: []kgo.RecordHeader{{Key: sourceHeader, Value: []byte(text)}}})
	}
	produce(t, s.producer(t), append(noise, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("noise")})...)

	b, at := open(2) // as after a crash
	if at.Offset != 20 || at.Metadata != "after 20" {
		t.Fatalf("committed: %+v", at)
	}
	until(2, 20, 23, b)
	must(b.Commit(ctx, kafka.Committed{Offset: 23, Metadata: "in the middle of what was read back"}))
	to = 0 // as after partitions were added
	if b, at = open(2); at.Offset != 23 {
		t.Fatalf("committed: %+v", at)
	}
	until(2, 23, 60, b)
	must(b.Commit(ctx, kafka.Committed{Offset: 60}))
	to = 1
	b, _ = open(2)
	until(2, 60, 70, b)
	must(b.Commit(ctx, kafka.Committed{Offset: 70}))
	api := &kafkago.Client{Addr: kafkago.TCP(s.Addr)}
	ends, err := api.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: {kafkago.LastOffsetOf(1)}}})
	must(err)
	texts, err := api.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group.Group, Topics: map[string][]int{source: {2}}})
	must(err)
	if got, want := texts.Topics[source][0].Metadata, fmt.Sprintf(" @1/%d", ends.Topics[topic][0].LastOffset); got != want {
		t.Errorf("noted %q, want %q", got, want)
	}

	other, _ = open(1)
	until(1, 50, 60, other)
	other, _ = open(1)
	other.Forget() // the source is another one
	until(1, 50, 60, other)
	must(other.Commit(ctx, kafka.Committed{Offset: 60}))

	// Another member comes: the first one's generation is over, which it notices only by asking.
	slept := member
	slept.Session = time.Nanosecond
	stale, _, err := all.OpenPositions(ctx, slept, 2, 1)
	must(err)
	must(write(stale, 2, 70))
	d := s.consume(t, group, newRecorder())
	c.until("a rebalance", func() bool {
		return len(assigned(c)) > 0 && len(assigned(d)) > 0 && c.Member().Generation > member.Generation
	})
	if _, _, err := all.OpenPositions(ctx, member, 2, 0); err != nil && !errors.Is(err, kafka.ErrOpenAnew) {
		t.Errorf("opened by a former generation: %v", err)
	}
	former := c.Member()
	d.stop()
	c.until("another rebalance", func() bool { return len(assigned(c)) == 3 && c.Member().Generation > former.Generation })
	member = c.Member()
	b, at = open(2)
	if at.Offset != 70 {
		t.Fatalf("committed: %+v", at)
	}
	until(2, 70, 80, b)
	must(b.Commit(ctx, kafka.Committed{Offset: 80}))
	if err := stale.Commit(ctx, kafka.Committed{Offset: 71}); !errors.Is(err, kafka.ErrOpenAnew) {
		t.Errorf("a commit of a former generation: %v", err)
	}
	c.stop()

	sink := newRecorder()
	sink.keep = true
	reader := s.consume(t, s.config(t, topic), sink)
	reader.until("the end", func() bool {
		p := reader.Stats().Partitions
		return len(p) == 2 && p[0].HighWatermark > 0 && atEnd(p[0]) && p[1].HighWatermark > 0 && atEnd(p[1])
	})
	reader.stop()
	got, last := map[string]int{}, -1
	for _, r := range slices.Concat(sink.kept(0), sink.kept(1)) {
		got[string(r.Value)]++
	}
	for _, r := range sink.kept(1) {
		var offset int
		if n, _ := fmt.Sscanf(string(r.Value), "2/%d", &offset); n == 1 {
			if offset <= last {
				t.Errorf("record %d comes after %d", offset, last)
			}
			last = offset
		}
	}
	for offset := range 80 {
		if n := got[fmt.Sprintf("2/%d", offset)]; n != 1 {
			t.Errorf("record %d is written %d times", offset, n)
		}
		want := map[bool]int{true: 1, false: 0}[offset < 60]
		if offset == 50 { // what was forgotten
			want = 2
		}
		if n := got[fmt.Sprintf("1/%d", offset)]; n != want && (offset < 51 || offset >= 60) {
			t.Errorf("record %d of the other partition is written %d times, want %d", offset, n, want)
		}
	}
}

func assigned(c *running) (all []int) {
	for _, p := range c.Stats().Partitions {
		if p.Assigned {
			all = append(all, p.Partition)
		}
	}
	return all
}

// Brokers without transactions are seen as such, and refused where transactions are needed.
func TestWithoutTransactions(t *testing.T) {
	switchedOff := func(b *embedded.Broker) {
		b.Cluster().ControlKey(kmsg.InitProducerID.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			b.Cluster().KeepControl()
			if r.(*kmsg.InitProducerIDRequest).TransactionalID == nil {
				return nil, nil, false
			}
			answer := r.ResponseKind().(*kmsg.InitProducerIDResponse)
			answer.ErrorCode = kerr.UnsupportedVersion.Code
			return answer, nil, true
		})
	}
	for name, broker := range map[string]func(t *testing.T) *embedded.Broker{
		"numbered":     func(t *testing.T) *embedded.Broker { return start(t, t.TempDir(), embedded.WithoutTransactions(true)) },
		"not numbered": func(t *testing.T) *embedded.Broker { return start(t, t.TempDir(), embedded.WithoutTransactions(false)) },
		"switched off": func(t *testing.T) *embedded.Broker { b := start(t, t.TempDir()); switchedOff(b); return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := on(t, broker(t))
			ctx := deadline(t)
			cfg := kafka.TransactionConfig{Cluster: s.cluster(), Source: s.topic(t, "rows", 1, nil), Group: "group", Topic: s.topic(t, "sums", 1, nil)}
			for _, header := range []string{"", sourceHeader} {
				cfg.SourceHeader = header
				all, err := kafka.NewTransactions(cfg, zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(all.Close)
				if err = all.Prepare(ctx, nil); err == nil {
					_, _, err = all.Open(ctx, 0, 0)
				}
				want := map[string]kafka.Delivery{"": "", sourceHeader: kafka.ByPositions}[header]
				if !errors.Is(err, kafka.ErrNoTransactions) || all.Delivery() != want {
					t.Errorf("header %q: %v, delivery %q, want %q", header, err, all.Delivery(), want)
				}
			}
			testPositions(t, s)
		})
	}
}

// A batch without a number whose answer is lost is not sent again: whoever opens the partition next
// reads whether it was written. One with a number is.
func TestAnswerLost(t *testing.T) {
	for _, numbered := range []bool{false, true} {
		t.Run(fmt.Sprint("numbered ", numbered), func(t *testing.T) {
			b := start(t, t.TempDir(), embedded.WithoutTransactions(numbered))
			s := on(t, b)
			ctx := deadline(t)
			source, topic := s.topic(t, "source", 1, nil), s.topic(t, "topic", 1, nil)
			produce(t, s.producer(t), values(source, 0, 0, 10)...)
			group := s.config(t, source)
			group.Shared = true
			c := s.consume(t, group, newRecorder())
			c.until("an assignment", func() bool { return len(assigned(c)) == 1 })
			link := &link{loseReply: 2000}
			noise := rand.NewChaCha8([32]byte{}) // does not shrink below what is lost
			cluster := s.cluster()
			cluster.Dial = link.dial
			all, err := kafka.NewTransactions(kafka.TransactionConfig{
				Cluster: cluster, Source: source, Group: group.Group, Topic: topic, SourceHeader: sourceHeader,
			}, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(all.Close)
			for _, lose := range []bool{true, false} {
				p, at, err := all.OpenPositions(ctx, c.Member(), 0, 0)
				if err == nil && at.Offset < 0 {
					err = p.Commit(ctx, kafka.Committed{})
				}
				if err != nil {
					t.Fatal(err)
				}
				for offset := max(0, at.Offset); offset < 5; offset++ {
					value := make([]byte, 1000)
					noise.Read(value)
					if err := p.Write(ctx, nil, value, []kafka.Header{{Key: sourceHeader, Value: fmt.Appendf(nil, "%s/0/%d", source, offset)}}, recent()); err != nil {
						t.Fatal(err)
					}
				}
				if lose {
					link.losses = 1
				}
				err = p.Commit(ctx, kafka.Committed{Offset: 5})
				if lose && !numbered != errors.Is(err, kafka.ErrOpenAnew) || !lose && err != nil {
					t.Fatalf("answers lost %v: %v", lose, err)
				}
			}
			sink := newRecorder()
			reader := s.consume(t, s.config(t, topic), sink)
			reader.until("the end", func() bool { return sink.total() > 0 && atEnd(reader.Stats().Partitions[0]) })
			if n := sink.total(); n != 5 || link.cuts != 1 {
				t.Errorf("%d records are written, want 5; %d answers were lost", n, link.cuts)
			}
			reader.stop()
			c.stop()
		})
	}
}
