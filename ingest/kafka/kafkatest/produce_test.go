package kafkatest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamd/ingest/kafka"
)

// testProducer writes over a link that loses acknowledgements. A repeated batch must not be
// in the log twice.
func testProducer(t *testing.T, s *suite) {
	const partitions, n = 2, 3000
	topic := s.topic(t, "topic", partitions, nil)
	bad := &link{rng: rand.New(rand.NewPCG(5, 6)), loseReply: 1000, losses: 5}
	cluster := s.cluster()
	cluster.Dial = bad.dial
	p, err := kafka.OpenProducer(deadline(t), kafka.ProducerConfig{Cluster: cluster, Topic: topic, BatchBytes: 20_000}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	at := recent()
	want := make([]chain, partitions)
	for i := range n {
		r := &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value-%d", i)}
		switch i % 4 {
		case 1:
			r.Key = nil
		case 2:
			r.Value = nil
		case 3:
			r.Value = []byte{}
		}
		headers := []kafka.Header{{Key: "n", Value: fmt.Append(nil, i)}, {Key: "nil"}}
		if err := p.Write(deadline(t), i%partitions, r.Key, r.Value, headers, at.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		want[i%partitions] = chainOf(want[i%partitions], int64(i/partitions), []*kgo.Record{r})
	}
	if err := p.Flush(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if cuts, _ := bad.did(); cuts != 5 {
		t.Errorf("%d acknowledgements were lost", cuts)
	}
	sink := newRecorder()
	sink.keep = true
	c := s.consume(t, s.config(t, topic), sink)
	c.until("all records", func() bool { return sink.total() >= n })
	c.stop()
	for i := range partitions {
		if sink.chainOf(i) != want[i] {
			t.Errorf("partition %d: the chain over %d records differs", i, sink.count(i))
		}
		for j, r := range sink.kept(i) {
			if n := j*partitions + i; !r.Time.Equal(at.Add(time.Duration(n)*time.Millisecond)) || string(r.Headers[0].Value) != fmt.Sprint(n) || r.Headers[1].Value != nil {
				t.Fatalf("record %d: %v %v", n, r.Time, r.Headers)
			}
		}
	}
}

func testProducerRefused(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, map[string]string{"max.message.bytes": "2000"})
	p, err := kafka.OpenProducer(deadline(t), kafka.ProducerConfig{Cluster: s.cluster(), Topic: topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Write(deadline(t), 0, nil, make([]byte, 5000), nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(deadline(t)); err == nil || !strings.Contains(err.Error(), "max.message.bytes") {
		t.Errorf("got %v", err)
	}
	if err := p.Write(deadline(t), 0, nil, nil, nil, time.Time{}); err == nil {
		t.Error("written after a failure")
	}
}

func testDeadLetters(t *testing.T, s *suite) {
	source := s.topic(t, "source", 1, map[string]string{"max.message.bytes": fmt.Sprint(3 << 20)})
	at := recent()
	records := []*kgo.Record{
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("k"), Value: []byte(`{"broken`), Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/json")}, {Key: "nil"}}},
		{Value: make([]byte, 5<<19)}, // fits the source, not a topic with Kafka's default limit
	}
	for i, r := range records {
		r.Topic, r.Timestamp = source, at.Add(time.Duration(i)*time.Second)
	}
	produce(t, s.producer(t), records...)

	dead, err := kafka.NewDeadLetters(kafka.DeadLetterConfig{Cluster: s.cluster(), Source: source, Topic: source + ".dlq", Connector: "streamd.test"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	long := strings.Repeat("ü", 10_000)
	sink := newRecorder()
	sink.deliver = func(ctx context.Context, b *kafka.Batch) error {
		var letters []kafka.Letter
		for i := range b.Records {
			letters = append(letters, kafka.Letter{Record: &b.Records[i], Reason: kafka.Reason{Stage: "VALUE_CONVERTER", Class: "format", Message: long}})
		}
		return dead.Write(ctx, b.Partition, letters)
	}
	c := s.consume(t, s.config(t, source), sink)
	c.until("all records", func() bool { return sink.total() == len(records) })
	c.stop()
	for i, got := range s.letters(t, source+".dlq", len(records)) {
		want := records[i]
		// The time is not compared. It is the time of arrival, but the embedded broker
		// keeps the record's own.
		if !sameBytes(got.Key, want.Key) || !sameBytes(got.Value, want.Value) {
			t.Errorf("letter %d has key %q, %d bytes", i, got.Key, len(got.Value))
		}
		if len(got.Headers) != len(want.Headers)+9 {
			t.Fatalf("letter %d: headers %v", i, got.Headers)
		}
		for j, h := range want.Headers {
			if got.Headers[j].Key != h.Key || !sameBytes(got.Headers[j].Value, h.Value) {
				t.Errorf("letter %d: header %d is %v", i, j, got.Headers[j])
			}
		}
		connect := map[string]string{}
		for _, h := range got.Headers[len(want.Headers):] {
			connect[h.Key] = string(h.Value)
		}
		message := connect["__connect.errors.exception.message"]
		if len(message) > 4096 || len(message) < 4090 || !strings.HasPrefix(message, "üüü") || !strings.HasSuffix(message, "ü…") {
			t.Errorf("letter %d: a message of %d bytes", i, len(message))
		}
		delete(connect, "__connect.errors.exception.message")
		for k, v := range map[string]string{
			"topic": source, "partition": "0", "offset": fmt.Sprint(i), "connector.name": "streamd.test",
			"stage": "VALUE_CONVERTER", "class.name": "format", "exception.class.name": "format",
		} {
			if connect["__connect.errors."+k] != v {
				t.Errorf("letter %d: %s is %q", i, k, connect["__connect.errors."+k])
			}
		}
		if len(connect) != 8 {
			t.Errorf("letter %d: %v", i, connect)
		}
		read, err := kafka.ReadDeadLetter(&got)
		if err != nil || !read.Whole() || read.Topic != source || read.Offset != int64(i) || len(read.Headers) != len(want.Headers) || !read.Time.Equal(want.Timestamp) {
			t.Errorf("letter %d is read back as %+v, %v", i, read, err)
		}
	}
}

// letters reads n dead letters, sorted by the offset of their record.
func (s *suite) letters(t *testing.T, topic string, n int) []kafka.Record {
	t.Helper()
	letters := newRecorder()
	letters.keep = true
	cfg := s.config(t, topic)
	cfg.Group += ".dlq"
	c := s.consume(t, cfg, letters)
	c.until("all letters", func() bool { return letters.total() >= n })
	c.stop()
	return letters.kept(0)
}

// testDeadLettersCompressed writes letters about compressed records to a topic that takes
// much less than their values: first letters that fit when they are compressed, too, then
// one that does not.
func testDeadLettersCompressed(t *testing.T, s *suite) {
	source := s.topic(t, "source", 1, nil)
	target := s.topic(t, "target", 1, map[string]string{"max.message.bytes": "20000"})
	zeros, noise := make([]byte, 900_000), make([]byte, 200_000)
	for rng, i := rand.NewChaCha8([32]byte{1}), 0; i < len(noise); i++ {
		noise[i] = byte(rng.Uint64())
	}
	for codec, compression := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		value := zeros
		if codec == 1 {
			value = zeros[:200_000] // snappy leaves a twentieth
		}
		key := []byte("key")
		if codec == 3 {
			key = noise[:1000]
		}
		produce(t, s.producer(t, kgo.ProducerBatchCompression(compression)),
			&kgo.Record{Topic: source, Key: key, Value: value}, &kgo.Record{Topic: source, Key: key, Value: []byte("small")})
	}
	produce(t, s.producer(t), &kgo.Record{Topic: source, Key: noise[:1000], Value: noise, Headers: []kgo.RecordHeader{
		{Key: "small", Value: []byte("kept")}, {Key: "large", Value: noise[:2000]}, {Key: "behind", Value: nil},
	}})
	dead, err := kafka.NewDeadLetters(kafka.DeadLetterConfig{Cluster: s.cluster(), Source: source, Topic: target, Connector: "streamd.test"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	sink := newRecorder()
	sink.keep = true
	sink.deliver = func(ctx context.Context, b *kafka.Batch) error {
		var letters []kafka.Letter
		for i := range b.Records {
			letters = append(letters, kafka.Letter{Record: &b.Records[i], Reason: kafka.Reason{Class: "row", Message: strings.Repeat("x", 5000)}})
		}
		return dead.Write(ctx, b.Partition, letters)
	}
	c := s.consume(t, s.config(t, source), sink)
	c.until("all records", func() bool { return sink.total() == 9 })
	c.stop()
	records := sink.kept(0)
	for i, got := range s.letters(t, target, 9) {
		read, err := kafka.ReadDeadLetter(&got)
		if err != nil {
			t.Fatal(err)
		}
		want := records[read.Offset]
		if i < 8 {
			if !read.Whole() || read.Offset != int64(i) || !sameBytes(read.Key, want.Key) || !sameBytes(read.Value, want.Value) {
				t.Errorf("letter %d: whole %t, about offset %d, a key of %d bytes, a value of %d", i, read.Whole(), read.Offset, len(read.Key), len(read.Value))
			}
			continue
		}
		if read.Whole() || got.Value != nil || got.Key != nil || len(read.Headers) != 1 || string(read.Headers[0].Value) != "kept" || read.OmittedHeaders != 2 ||
			len(read.Reason.Message) > 512 || read.Reason.Class != "row" ||
			*read.OmittedValue != (kafka.Omitted{Size: int64(len(noise)), SHA256: sha256.Sum256(noise)}) ||
			*read.OmittedKey != (kafka.Omitted{Size: 1000, SHA256: sha256.Sum256(noise[:1000])}) {
			t.Errorf("a letter without its value: %+v", read)
		}
	}
}

// testDeadLettersFail checks that a dead letter that cannot be written stops the
// partition before its record.
func testDeadLettersFail(t *testing.T, s *suite) {
	source := s.topic(t, "source", 1, nil)
	target := s.topic(t, "target", 1, map[string]string{"max.message.bytes": "200"}) // not even for a letter without the value
	cl := s.producer(t)
	all := values(source, 0, 0, 20)
	all[10].Value = make([]byte, 5000)
	for _, r := range all {
		produce(t, cl, r)
	}
	for _, test := range []struct {
		name string
		cfg  kafka.DeadLetterConfig
		want string
	}{
		{"refused", kafka.DeadLetterConfig{Cluster: s.cluster(), Source: source, Topic: target}, "max.message.bytes"},
		{"unreachable", kafka.DeadLetterConfig{
			// Nobody listens on port 1.
			Cluster: kafka.Cluster{Brokers: []string{"127.0.0.1:1"}}, Source: source, Topic: source + ".dlq", Patience: 300 * time.Millisecond,
		}, "gave up"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dead, err := kafka.NewDeadLetters(test.cfg, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			defer dead.Close()
			sink := newRecorder()
			sink.deliver = func(ctx context.Context, b *kafka.Batch) error {
				for i := range b.Records {
					if len(b.Records[i].Value) == 5000 {
						return dead.Write(ctx, b.Partition, []kafka.Letter{{Record: &b.Records[i], Reason: kafka.Reason{Message: "too long"}}})
					}
				}
				return nil
			}
			cfg := s.config(t, source)
			cfg.FetchBytes = 1
			err = s.consume(t, cfg, sink).wait()
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), source+"/0/10") {
				t.Errorf("got %v", err)
			}
			if next := sink.next(0); next != 10 {
				t.Errorf("the position is %d", next)
			}
		})
	}
}
