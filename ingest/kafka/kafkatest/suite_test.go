package kafkatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/login"
)

// Broker is the broker under the suite.
type Broker struct {
	Addr string // without a login
	// LoginAddr is where consumers and producers log in with Login. Empty: they do not.
	LoginAddr string
	Login     *login.Login
	// Compact compacts topics now. Nil: the broker compacts by itself, within patience.
	Compact func()
}

// patience is how long a step may take before it counts as failed, also on a slow machine.
// Nothing waits for it to pass.
const patience = 5 * time.Minute

// Run runs the suite on a broker, each test on topics and groups of its own.
func Run(t *testing.T, b Broker) {
	admin, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	s := &suite{Broker: b, admin: admin, run: time.Now().UnixNano()}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"OrderAndResume", testOrderAndResume},
		{"CommitIsNotAPosition", testCommitIsNotAPosition},
		{"StartLatest", testStartLatest},
		{"Rebalance", testRebalance},
		{"Gap", testGap},
		{"GapWhileRunning", testGapWhileRunning},
		{"MadeAnew", testMadeAnew},
		{"MadeAnewWithFewer", testMadeAnewWithFewer},
		{"MadeAnewWithMarkers", testMadeAnewWithMarkers},
		{"MadeAnewUnseen", testMadeAnewUnseen},
		{"UnknownTopic", testUnknownTopic},
		{"AddedPartitions", testAddedPartitions},
		{"Transactions", testTransactions},
		{"Compaction", testCompaction},
		{"NilAndEmpty", testNilAndEmpty},
		{"Codecs", testCodecs},
		{"Bomb", testBomb},
		{"Corruption", testCorruption},
		{"Cuts", testCuts},
		{"SlowLink", testSlowLink},
		{"BackPressure", testBackPressure},
		{"HugeRecord", testHugeRecord},
		{"DeliverFails", testDeliverFails},
		{"Replicas", testReplicas},
		{"CommitAlone", testCommitAlone},
		{"CommitAndLeave", testCommitAndLeave},
		{"CommitOfAnother", testCommitOfAnother},
		{"Ranges", testRanges},
		{"RangesApart", testRangesApart},
		{"RangesEnd", testRangesEnd},
		{"RangesLost", testRangesLost},
		{"RangesLostWhileReading", testRangesLostWhileReading},
		{"RangesGone", testRangesGone},
		{"RangesTransactions", testRangesTransactions},
		{"RangesCompaction", testRangesCompaction},
		{"RangesCuts", testRangesCuts},
		{"RangesCorruption", testRangesCorruption},
		{"RangesBackPressure", testRangesBackPressure},
		{"RangesDeliverFails", testRangesDeliverFails},
		{"Retention", testRetention},
		{"ExactlyOnce", testExactlyOnce},
		{"Positions", testPositions},
		{"Producer", testProducer},
		{"ProducerRefused", testProducerRefused},
		{"DeadLetters", testDeadLetters},
		{"DeadLettersCompressed", testDeadLettersCompressed},
		{"DeadLettersFail", testDeadLettersFail},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

type suite struct {
	Broker
	admin *kgo.Client
	run   int64 // part of names, so that runs on one broker do not meet
}

func (s *suite) cluster() kafka.Cluster {
	return kafka.Cluster{Brokers: []string{cmp.Or(s.LoginAddr, s.Addr)}, ClientID: "kafkatest", Login: s.Login}
}

// name makes a topic or group name for the test.
func (s *suite) name(t *testing.T, suffix string) string {
	test := t.Name()[strings.IndexByte(t.Name(), '/')+1:]
	return fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(test, "/", "-"), suffix, s.run)
}

func (s *suite) topic(t *testing.T, suffix string, partitions int, configs map[string]string) string {
	t.Helper()
	name := s.name(t, suffix)
	s.create(t, name, partitions, configs)
	return name
}

func (s *suite) create(t *testing.T, name string, partitions int, configs map[string]string) {
	t.Helper()
	if err := kafka.EnsureTopic(deadline(t), s.cluster(), name, partitions, configs); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) deleteTopic(t *testing.T, name string) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &name
	req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, topic), []string{name}, 10_000
	resp, err := req.RequestWith(deadline(t), s.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("delete topic %s: %v", name, err)
	}
	// A broker may list the topic for a moment still. To make it anew would do nothing then.
	eventually(t, "the end of topic "+name, func() bool {
		return kerr.ErrorForCode(s.metadata(t, name).Topics[0].ErrorCode) == kerr.UnknownTopicOrPartition
	})
}

// metadata asks the cluster for the metadata of a topic.
func (s *suite) metadata(t *testing.T, name string) *kmsg.MetadataResponse {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(deadline(t), s.admin)
	if err != nil {
		t.Fatalf("metadata of %s: %v", name, err)
	}
	return resp
}

// addPartitions raises the number of a topic's partitions to count.
func (s *suite) addPartitions(t *testing.T, name string, count int32) {
	t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = name, count
	req.Topics, req.TimeoutMillis = append(req.Topics, more), 10_000
	resp, err := req.RequestWith(deadline(t), s.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("add partitions to %s: %v", name, err)
	}
	// A broker may list the topic without them for a moment still.
	eventually(t, "the partitions of topic "+name, func() bool { return len(s.metadata(t, name).Topics[0].Partitions) == int(count) })
}

// deleteRecords moves the log start of a partition.
func (s *suite) deleteRecords(t *testing.T, name string, partition int32, before int64) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = name
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, before
	topic.Partitions = append(topic.Partitions, p)
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
	resp, err := req.RequestWith(deadline(t), s.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("delete records of %s: %v", name, err)
	}
}

// producer returns a producer of franz-go, so that the consumer is not tested against
// streamd's own encoder only.
func (s *suite) producer(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.Addr),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(16 << 20),
		// Brokers may not know a new topic yet, or may still describe the old one. By
		// default the client would ask again after five minutes.
		kgo.UnknownTopicRetries(-1),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(deadline(t), records...).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// recent is the current time in Kafka's resolution. No retention drops its records.
func recent() time.Time { return time.Now().Truncate(time.Millisecond).UTC() }

// values makes n small records for a partition.
func values(topic string, partition int32, from, n int) []*kgo.Record {
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{
			Topic: topic, Partition: partition,
			Key:   fmt.Appendf(nil, "key-%d", (from+i)%7),
			Value: fmt.Appendf(nil, "value-%d-%d", partition, from+i),
		})
	}
	return rs
}

// chainOf is the chain of records at the offsets from first on.
func chainOf(c chain, first int64, records []*kgo.Record) chain {
	for i, r := range records {
		c = c.add(first+int64(i), r.Key, r.Value)
	}
	return c
}

// running is a consumer at work.
type running struct {
	*kafka.Consumer
	t      *testing.T
	sink   *recorder
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (s *suite) config(t *testing.T, topic string) kafka.Config {
	return kafka.Config{
		Cluster:  s.cluster(),
		Topic:    topic,
		Group:    s.name(t, "group"),
		Fetching: kafka.Fetching{MaxWait: 100 * time.Millisecond},
		// Members leave in order, so none has to be expelled, and a slow one must not be.
		SessionTimeout: patience,
	}
}

func (s *suite) consume(t *testing.T, cfg kafka.Config, sink *recorder) *running {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	c, err := kafka.NewConsumer(cfg, sink, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: c, t: t, sink: sink, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// stop ends the consumer in order.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := r.wait(); err != nil {
		r.t.Fatalf("Run: %v", err)
	}
}

// wait waits until Run returns.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatal("Run does not return")
	}
	if err := r.sink.broken(); err != nil {
		r.t.Fatal(err)
	}
	return r.err
}

// until waits for a condition, while the consumer runs.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("state: %+v", r.Stats())
		}
	}()
	eventually(r.t, what, func() bool {
		select {
		case <-r.done:
			if !ok() {
				r.t.Fatalf("waiting for %s: Run has returned: %v", what, r.err)
			}
		default:
		}
		return ok()
	})
}

// atEnd reports whether the whole log, as far as known, has been delivered.
func atEnd(p kafka.PartitionStats) bool { return p.Next >= max(0, p.HighWatermark) }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

var errRefused = errors.New("refused by the test")
