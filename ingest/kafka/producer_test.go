package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// A producer ends with an explanation when its records are missing at the log's end.
func TestProducerOfALostEnd(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := Cluster{Brokers: []string{b.Addr()}}
	if err := EnsureTopic(ctx, cluster, "t", 1, nil); err != nil {
		t.Fatal(err)
	}
	p, err := OpenProducer(ctx, ProducerConfig{Cluster: cluster, Topic: "t"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	write := func() error {
		if err := p.Write(ctx, 0, nil, []byte("x"), nil, time.Time{}); err != nil {
			return err
		}
		return p.Flush(ctx)
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	b.Cluster().ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.ErrorCode = kerr.OutOfOrderSequenceNumber.Code
		response := r.ResponseKind().(*kmsg.ProduceResponse)
		response.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{partition}}}
		return response, nil, true
	})
	if err := write(); !errors.Is(err, kafkago.OutOfOrderSequenceNumber) || !strings.Contains(err.Error(), "produce to t/0") || !strings.Contains(err.Error(), "end was lost") {
		t.Errorf("got %v", err)
	}
}

// stuckConn holds back the first record batch that it sends.
type stuckConn struct {
	net.Conn
	*stuck
	produces bool // the head of a produce request has been sent
}

type stuck struct {
	batch   chan []byte   // receives the batch
	release chan struct{} // closed to send it
}

func (c *stuckConn) Write(p []byte) (int, error) {
	if c.produces {
		c.produces = false
		select {
		case c.batch <- p:
			<-c.release
		default: // another batch came first
		}
	}
	c.produces = len(p) > 6 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce)
	return c.Conn.Write(p)
}

// A batch that a broker takes slowly stays unchanged, even when its writer has given up
// and writes the next.
func TestGivenUpBatchStaysAsItIs(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.CreateTopic("dead", 1, -1); err != nil {
		t.Fatal(err)
	}
	held := &stuck{batch: make(chan []byte, 1), release: make(chan struct{})}
	d, err := NewDeadLetters(DeadLetterConfig{Source: "t", Topic: "dead", Cluster: Cluster{
		Brokers: []string{b.Addr()},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			return &stuckConn{Conn: c, stuck: held}, err
		},
	}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	impatient, giveUp := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- d.Write(impatient, 0, []Letter{{Record: &Record{Value: []byte("the first")}}}) }()
	batch := <-held.batch
	before := bytes.Clone(batch)
	giveUp()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	held.batch <- nil // from here on nothing is held back
	if err := d.Write(ctx, 0, []Letter{{Record: &Record{Value: []byte("another")}}}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(batch, before) {
		t.Errorf("a batch on its way has become another")
	}
	close(held.release)
}

// A record that fits its topic only compressed arrives unchanged.
func TestProducerCompresses(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cluster := Cluster{Brokers: []string{b.Addr()}}
	if err := EnsureTopic(t.Context(), cluster, "t", 1, map[string]string{"max.message.bytes": "10000"}); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 100_000)
	for _, compressed := range []bool{false, true} {
		p, err := OpenProducer(t.Context(), ProducerConfig{Cluster: cluster, Topic: "t", Compress: compressed}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		err = p.Write(t.Context(), 0, []byte("key"), value, nil, time.Time{})
		if err == nil {
			err = p.Flush(t.Context())
		}
		if (err == nil) != compressed {
			t.Errorf("compressed %t: %v", compressed, err)
		}
	}
	reader, err := NewRangeReader(RangeConfig{Cluster: cluster, Topic: "t"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ranges, err := reader.Log(t.Context())
	if err != nil || !slices.Equal(ranges, []Range{{0, 0, 1}}) {
		t.Fatal(ranges, err)
	}
	_, err = reader.Read(t.Context(), ranges, func(_ context.Context, batch *Batch) error {
		defer batch.Release()
		if len(batch.Records) != 1 || string(batch.Records[0].Key) != "key" || !bytes.Equal(batch.Records[0].Value, value) {
			t.Errorf("%d records", len(batch.Records))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What does not shrink goes as it is, until another batch is tried; what is too large otherwise is
// always compressed.
func TestSqueezer(t *testing.T) {
	noise := make([]byte, 10_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	zeros := make([]byte, 10_000)
	var (
		z   squeezer
		w   batchWriter
		got []byte
	)
	pack := func(value []byte, limit int) {
		t.Helper()
		w.reset()
		w.add(nil, value, nil, time.Time{})
		if err := z.pack(&w, limit); err != nil {
			t.Fatal(err)
		}
		got = append(got, map[compress.Compression]byte{compress.None: '-', compress.Zstd: 'z'}[w.codec])
	}
	for range 3 {
		pack(zeros, 20_000)
	}
	for range plainRun + 2 {
		pack(noise, 20_000)
	}
	pack(zeros, 9_000)
	for range plainRun + 2 {
		pack(zeros, 20_000)
	}
	plain := strings.Repeat("-", plainRun)
	if want := "zzz" + "z" + plain + "z" + "z" + plain + "zz"; string(got) != want {
		t.Errorf("packed %s, want %s", got, want)
	}
}

// A writer waits for its own records alone, and keys go where Kafka's own producers write them.
func TestFlushPartition(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := Cluster{Brokers: []string{b.Addr()}}
	if err := EnsureTopic(ctx, cluster, "t", 10, nil); err != nil {
		t.Fatal(err)
	}
	p, err := OpenProducer(ctx, ProducerConfig{Cluster: cluster, Topic: "t"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	// The hashes of Kafka's own tests of murmur2 are -973932308 and -790332482.
	for key, want := range map[string]int{"21": 0, "foobar": 6} {
		if got := p.PartitionOf([]byte(key)); got != want {
			t.Errorf("%q is for partition %d of 10, want %d", key, got, want)
		}
	}
	stop, written := make(chan struct{}), make(chan struct{})
	go func() { // the partition is never idle
		defer close(written)
		for {
			select {
			case <-stop:
				return
			default:
				p.Write(ctx, 0, nil, []byte("another's"), nil, time.Time{})
			}
		}
	}()
	for range 20 {
		if err := p.Write(ctx, 0, nil, []byte("x"), nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := p.FlushPartition(ctx, 0); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-written
	p.Close()
	if <-p.Done(); p.FlushPartition(ctx, 1) == nil {
		t.Error("a closed producer flushes")
	}
}
