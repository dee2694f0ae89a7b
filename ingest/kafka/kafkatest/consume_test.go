package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"streamd/ingest/kafka"
)

func testOrderAndResume(t *testing.T, s *suite) {
	const partitions, n = 3, 500
	topic := s.topic(t, "topic", partitions, nil)
	cl := s.producer(t)
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]chain, partitions)
	add := func(from int) {
		for p := range partitions {
			rs := values(topic, int32(p), from, n)
			want[p] = chainOf(want[p], int64(from), rs)
			for len(rs) > 0 { // batches of different sizes
				k := min(len(rs), 1+rng.IntN(100))
				produce(t, cl, rs[:k]...)
				rs = rs[k:]
			}
		}
	}
	sink := newRecorder()
	add(0)
	c := s.consume(t, s.config(t, topic), sink)
	c.until("the first half", func() bool { return sink.total() == partitions*n })
	c.stop()
	add(n)
	c = s.consume(t, s.config(t, topic), sink)
	c.until("the second half", func() bool { return sink.total() == 2*partitions*n })
	c.stop()
	for p := range partitions {
		if sink.chainOf(p) != want[p] {
			t.Errorf("partition %d: the chain over %d records differs", p, sink.count(p))
		}
	}
	if len(sink.jumps) > 0 {
		t.Errorf("jumps: %v", sink.jumps)
	}
}

// testCommitIsNotAPosition is the counterpart of the test above: a consumer without saved
// positions must not begin at the offsets committed to the group.
func testCommitIsNotAPosition(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	produce(t, s.producer(t), values(topic, 0, 0, 100)...)
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	c.until("100 records", func() bool { return sink.total() == 100 })
	if err := c.Commit(deadline(t), map[int]int64{0: 70, 9: 1}); err != nil { // no member owns partition 9
		t.Fatal(err)
	}
	c.stop()
	fresh := newRecorder()
	c = s.consume(t, s.config(t, topic), fresh)
	c.until("100 records", func() bool { return fresh.total() == 100 })
	c.stop()
	if fresh.chainOf(0) != sink.chainOf(0) {
		t.Error("a consumer without saved positions read something else")
	}
}

func testStartLatest(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	produce(t, cl, values(topic, 0, 0, 50)...)
	cfg := s.config(t, topic)
	cfg.Start = kafka.Latest
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("the start", func() bool { return sink.next(0) == 50 })
	c.stop()
	// The position where it began is saved, though no record has come.
	more := values(topic, 0, 50, 20)
	produce(t, cl, more[:10]...)
	c = s.consume(t, cfg, sink)
	c.until("10 records", func() bool { return sink.total() == 10 })
	produce(t, cl, more[10:]...)
	c.until("20 records", func() bool { return sink.total() == 20 })
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 50, more) {
		t.Error("the chain differs")
	}
}

func testRebalance(t *testing.T, s *suite) {
	const partitions, n = 4, 200
	topic := s.topic(t, "topic", partitions, nil)
	cl := s.producer(t)
	want := make([]chain, partitions)
	produced := 0
	add := func() {
		for p := range partitions {
			rs := values(topic, int32(p), produced, n)
			want[p] = chainOf(want[p], int64(produced), rs)
			produce(t, cl, rs...)
		}
		produced += n
	}
	assigned := func(c *running) (ids []int) {
		for _, p := range c.Stats().Partitions {
			if p.Assigned {
				ids = append(ids, p.Partition)
			}
		}
		return ids
	}
	// caughtUp reports whether a consumer has read all of its own partitions.
	caughtUp := func(c *running) bool {
		for _, p := range assigned(c) {
			if c.sink.next(p) != int64(produced) {
				return false
			}
		}
		return true
	}
	sa, sb := newRecorder(), newRecorder()
	add()
	cfg := s.config(t, topic)
	cfg.Shared = true
	// The least that Apache Kafka allows by default: members notice a rebalance within a
	// quarter of it. An expulsion is just one more rebalance.
	cfg.SessionTimeout = 6 * time.Second
	a := s.consume(t, cfg, sa)
	a.until("all partitions", func() bool { return len(assigned(a)) == partitions && caughtUp(a) })
	b := s.consume(t, cfg, sb)
	b.until("a half each", func() bool { return len(assigned(a)) == partitions/2 && len(assigned(b)) == partitions/2 })
	ids := append(assigned(a), assigned(b)...)
	slices.Sort(ids)
	if !slices.Equal(ids, []int{0, 1, 2, 3}) {
		t.Fatalf("assigned to the one or the other: %v", ids)
	}
	add()
	b.until("both halves", func() bool { return caughtUp(a) && caughtUp(b) })
	a.stop()
	b.until("all partitions at the second", func() bool { return len(assigned(b)) == partitions && caughtUp(b) })
	add()
	b.until("the rest", func() bool { return caughtUp(b) })
	a = s.consume(t, cfg, sa) // it resumes
	a.until("a half each again", func() bool { return len(assigned(a)) == partitions/2 && len(assigned(b)) == partitions/2 })
	b.until("both again", func() bool { return caughtUp(a) && caughtUp(b) })
	b.stop()
	a.until("all again", func() bool { return len(assigned(a)) == partitions && caughtUp(a) })
	a.stop()
	for p := range partitions {
		if sa.chainOf(p) != want[p] || sb.chainOf(p) != want[p] {
			t.Errorf("partition %d: chains differ; %d and %d records of %d", p, sa.count(p), sb.count(p), produced)
		}
	}
}

func testGap(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	all := values(topic, 0, 0, 200)
	produce(t, cl, all[:100]...)
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	c.until("100 records", func() bool { return sink.total() == 100 })
	c.stop()
	produce(t, cl, all[100:]...)
	s.deleteRecords(t, topic, 0, 150)
	saved := sink.positions()

	err := s.consume(t, s.config(t, topic), sink).wait()
	var gap *kafka.GapError
	if !errors.As(err, &gap) || gap.Saved != 100 || gap.LogStart != 150 || gap.LogEnd != 200 || gap.Reset {
		t.Fatalf("below the log start: %v", err)
	}
	if !strings.Contains(err.Error(), "--kafka.on_gap=earliest") {
		t.Errorf("no way on is named: %v", err)
	}
	for onGap, from := range map[kafka.OnGap]int{kafka.GapToEarliest: 150, kafka.GapToLatest: 200} {
		sink := newRecorder()
		sink.saved = map[int]kafka.Saved{0: saved[0]}
		cfg := s.config(t, topic)
		cfg.OnGap = onGap
		c := s.consume(t, cfg, sink)
		c.until("the end", func() bool { return sink.next(0) == 200 })
		c.stop()
		if sink.chainOf(0) != chainOf(chain{}, int64(from), all[from:]) || len(sink.jumps) != 1 {
			t.Errorf("on gap %d: %d records, jumps %v", onGap, sink.total(), sink.jumps)
		}
	}

	ahead := newRecorder()
	ahead.saved[0] = kafka.Saved{Next: 1000}
	err = s.consume(t, s.config(t, topic), ahead).wait()
	if !errors.As(err, &gap) || !gap.Reset || gap.LogEnd != 200 {
		t.Fatalf("beyond the log end: %v", err)
	}
	if ahead.total() > 0 {
		t.Errorf("%d records were delivered all the same", ahead.total())
	}
}

// heldUp fills a topic of one partition with 20 records, and consumes them until there is
// no room for more. The sink takes none before held is closed.
func (s *suite) heldUp(t *testing.T, cfg kafka.Config) (c *running, held chan struct{}) {
	cl := s.producer(t)
	for i := range 20 {
		produce(t, cl, &kgo.Record{Topic: cfg.Topic, Value: bytes.Repeat([]byte{byte(i)}, 50_000)})
	}
	held = make(chan struct{})
	sink := newRecorder()
	sink.deliver = func(ctx context.Context, b *kafka.Batch) error {
		select {
		case <-held:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cfg.FetchBytes, cfg.BufferBytes = 100_000, 200_000
	c = s.consume(t, cfg, sink)
	c.until("a full buffer", func() bool { st := c.Stats(); return len(st.Partitions) == 1 && st.Partitions[0].Buffered > 100_000 })
	return c, held
}

// testGapWhileRunning lets retention overtake a consumer that is held up.
func testGapWhileRunning(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	c, held := s.heldUp(t, s.config(t, topic))
	s.deleteRecords(t, topic, 0, 19)
	close(held)
	var gap *kafka.GapError
	if err := c.wait(); !errors.As(err, &gap) || gap.LogStart != 19 || gap.Reset {
		t.Fatalf("got %v", err)
	}
}

func testMadeAnew(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	produce(t, cl, values(topic, 0, 0, 50)...)
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	c.until("50 records", func() bool { return sink.total() == 50 })
	// First, while the consumer runs.
	s.deleteTopic(t, topic)
	c.until("a failed fetch", func() bool { return c.Stats().Partitions[0].FetchErrors > 0 })
	s.create(t, topic, 1, nil)
	others := values(topic, 0, 1000, 100)
	produce(t, s.producer(t), others...)
	var gap *kafka.GapError
	if err := c.wait(); !errors.As(err, &gap) || !gap.Reset || gap.Saved != 50 {
		t.Fatalf("while running: %v", err)
	}
	// Then, at the start. The log is long enough. Only the record before differs.
	if err := s.consume(t, s.config(t, topic), sink).wait(); !errors.As(err, &gap) || !gap.Reset || gap.Saved != 50 {
		t.Fatalf("at the start: %v", err)
	}
	fresh := newRecorder()
	fresh.saved = sink.positions()
	cfg := s.config(t, topic)
	cfg.OnGap = kafka.GapToEarliest
	c = s.consume(t, cfg, fresh)
	c.until("100 records", func() bool { return fresh.total() == 100 })
	c.stop()
	if fresh.chainOf(0) != chainOf(chain{}, 0, others) {
		t.Error("the chain differs")
	}
}

// testMadeAnewWithFewer makes a topic anew without a partition that was read. No instance
// is assigned that one.
func testMadeAnewWithFewer(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 3, nil)
	produce(t, s.producer(t), values(topic, 2, 0, 50)...)
	sink := newRecorder()
	c := s.consume(t, s.config(t, topic), sink)
	c.until("50 records", func() bool { return sink.total() == 50 })
	c.stop()
	s.deleteTopic(t, topic)
	s.create(t, topic, 1, nil)
	others := values(topic, 0, 1000, 100)
	produce(t, s.producer(t), others...)
	var gap *kafka.GapError
	if err := s.consume(t, s.config(t, topic), sink).wait(); !errors.As(err, &gap) || !gap.Reset || gap.Partition != 2 || gap.Saved != 50 {
		t.Fatalf("got %v", err)
	}
	if sink.count(0) > 0 {
		t.Errorf("%d records were delivered all the same", sink.count(0))
	}
	cfg := s.config(t, topic)
	cfg.OnGap = kafka.GapToEarliest
	c = s.consume(t, cfg, sink)
	c.until("100 records", func() bool { return sink.count(0) == 100 })
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, others) || len(sink.jumps) != 1 || sink.next(2) != 0 {
		t.Errorf("%d records, jumps %v, next in the partition that is gone %d", sink.count(0), sink.jumps, sink.next(2))
	}
	// The new position is saved.
	s.consume(t, s.config(t, topic), sink).stop()
}

// testMadeAnewWithMarkers makes topics anew where the last record read was, or now is, a
// transaction's marker, or lies behind an open transaction.
func testMadeAnewWithMarkers(t *testing.T, s *suite) {
	var open sync.WaitGroup // the transaction that ends while the consumer runs
	transaction := func(t *testing.T, topic, id string, n int) (end func(kgo.TransactionEndTry)) {
		t.Helper()
		cl := s.producer(t, kgo.TransactionalID(s.name(t, id)))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, values(topic, 0, 0, n)...)
		return func(how kgo.TransactionEndTry) {
			t.Helper()
			if err := cl.EndTransaction(deadline(t), how); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name     string
		old, new func(t *testing.T, topic string) // old: three offsets; new: three or more
	}{
		{"record-then-marker", func(t *testing.T, topic string) {
			produce(t, s.producer(t), values(topic, 0, 0, 3)...)
		}, func(t *testing.T, topic string) {
			transaction(t, topic, "new", 2)(kgo.TryCommit)
		}},
		{"marker-then-record", func(t *testing.T, topic string) {
			transaction(t, topic, "old", 2)(kgo.TryCommit)
		}, func(t *testing.T, topic string) {
			produce(t, s.producer(t), values(topic, 0, 0, 3)...) // the first two are the same
		}},
		{"only-aborted", func(t *testing.T, topic string) {
			transaction(t, topic, "old", 2)(kgo.TryAbort)
		}, func(t *testing.T, topic string) {
			produce(t, s.producer(t), values(topic, 0, 0, 3)...)
		}},
		{"commit-then-abort", func(t *testing.T, topic string) {
			transaction(t, topic, "old", 2)(kgo.TryCommit)
		}, func(t *testing.T, topic string) {
			transaction(t, topic, "new", 2)(kgo.TryAbort)
		}},
		{"record-then-open", func(t *testing.T, topic string) {
			produce(t, s.producer(t), values(topic, 0, 0, 3)...)
		}, func(t *testing.T, topic string) {
			end := transaction(t, topic, "new", 4)
			open.Go(func() {
				time.Sleep(300 * time.Millisecond)
				end(kgo.TryAbort)
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			topic := s.topic(t, "topic", 1, nil)
			test.old(t, topic)
			sink := newRecorder()
			c := s.consume(t, s.config(t, topic), sink)
			c.until("the end of the log", func() bool { return sink.next(0) == 3 })
			c.stop()
			// The same log is recognised.
			more := values(topic, 0, 100, 1)
			produce(t, s.producer(t), more...)
			same := newRecorder()
			same.saved = sink.positions()
			c = s.consume(t, s.config(t, topic), same)
			c.until("what has come", func() bool { return same.next(0) == 4 })
			c.stop()

			s.deleteTopic(t, topic)
			s.create(t, topic, 1, nil)
			test.new(t, topic)
			produce(t, s.producer(t), values(topic, 0, 1000, 10)...)
			var gap *kafka.GapError
			if err := s.consume(t, s.config(t, topic), sink).wait(); !errors.As(err, &gap) || !gap.Reset || gap.Saved != 3 {
				t.Errorf("got %v", err)
			}
			open.Wait() // the consumer may see its end before its producer
		})
	}
}

// testMadeAnewUnseen makes a topic anew, with more records than before, while the consumer
// does not ask for any, because it has no connection or no room.
func testMadeAnewUnseen(t *testing.T, s *suite) {
	others := func(topic string) {
		s.deleteTopic(t, topic)
		s.create(t, topic, 1, nil)
		produce(t, s.producer(t), values(topic, 0, 1000, 500)...)
	}
	noticed := func(t *testing.T, c *running) {
		t.Helper()
		var gap *kafka.GapError
		if err := c.wait(); !errors.As(err, &gap) || !gap.Reset || gap.LogEnd != 500 {
			t.Errorf("got %v", err)
		}
	}
	t.Run("cut", func(t *testing.T) {
		topic := s.topic(t, "topic", 1, nil)
		produce(t, s.producer(t), values(topic, 0, 0, 50)...)
		var down atomic.Bool
		var conns sync.Map
		cfg := s.config(t, topic)
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if down.Load() {
				return nil, errCut
			}
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			conns.Store(c, true)
			return c, err
		}
		sink := newRecorder()
		c := s.consume(t, cfg, sink)
		c.until("50 records", func() bool { return sink.total() == 50 })
		down.Store(true)
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		c.until("a failed fetch", func() bool { return c.Stats().Partitions[0].FetchErrors > 0 })
		others(topic)
		down.Store(false)
		noticed(t, c)
	})
	t.Run("full", func(t *testing.T) {
		topic := s.topic(t, "topic", 1, nil)
		cfg := s.config(t, topic)
		cfg.MaxWait = 10 * time.Millisecond
		c, held := s.heldUp(t, cfg)
		others(topic)
		time.Sleep(10 * cfg.MaxWait)
		close(held)
		noticed(t, c)
	})
}

func testUnknownTopic(t *testing.T, s *suite) {
	name := s.name(t, "missing")
	err := s.consume(t, s.config(t, name), newRecorder()).wait()
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Fatalf("got %v", err)
	}
	if err := kerr.ErrorForCode(s.metadata(t, name).Topics[0].ErrorCode); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("the topic exists now: %v", err)
	}
}

// testAddedPartitions adds partitions under a consumer that reads all, and under a member of a
// group.
func testAddedPartitions(t *testing.T, s *suite) {
	for name, shared := range map[string]bool{"all": false, "shared": true} {
		topic := s.topic(t, name, 1, nil)
		sink := newRecorder()
		cfg := s.config(t, topic)
		cfg.Shared, cfg.Group = shared, s.name(t, "group-"+name)
		c := s.consume(t, cfg, sink)
		c.until("the start", func() bool { return len(c.Stats().Partitions) == 1 })
		s.addPartitions(t, topic, 3)
		rs := values(topic, 2, 0, 30)
		produce(t, s.producer(t), rs...)
		c.until("the new partition", func() bool { return sink.count(2) == 30 })
		c.stop()
		if sink.chainOf(2) != chainOf(chain{}, 0, rs) {
			t.Errorf("%s: the chain differs", name)
		}
		if n := c.Stats().Assignments; n < 2 {
			t.Errorf("%s: partitions were assigned %d times", name, n)
		}
	}
}

// testTransactions interleaves committed, aborted and plain records.
func testTransactions(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	plain := s.producer(t)
	txn := func(id string) *kgo.Client { return s.producer(t, kgo.TransactionalID(s.name(t, id))) }
	a, b := txn("a"), txn("b")
	var want []string
	begin := func(cl *kgo.Client) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(cl *kgo.Client, how kgo.TransactionEndTry) {
		t.Helper()
		if err := cl.EndTransaction(deadline(t), how); err != nil {
			t.Fatal(err)
		}
	}
	send := func(cl *kgo.Client, value string, counts bool) {
		t.Helper()
		produce(t, cl, &kgo.Record{Topic: topic, Value: []byte(value)})
		if counts {
			want = append(want, value)
		}
	}
	for i := range 3 {
		n := func(what string) string { return fmt.Sprint(what, i) }
		begin(a)
		send(a, n("a-aborted"), false)
		send(plain, n("plain"), true)
		begin(b)
		send(b, n("b-committed"), true)
		send(a, n("a-aborted-too"), false)
		end(a, kgo.TryAbort)
		send(b, n("b-more"), true)
		begin(a)
		send(a, n("a-committed"), true)
		end(b, kgo.TryCommit)
		end(a, kgo.TryCommit)
	}
	begin(b)
	send(b, "open", false)
	send(plain, "after the open one", false)

	sink := newRecorder()
	sink.keep = true
	c := s.consume(t, s.config(t, topic), sink)
	check := func() {
		t.Helper()
		var got []string
		for _, r := range sink.kept(0) {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	}
	c.until("what is closed", func() bool { return sink.total() == len(want) })
	check()
	end(b, kgo.TryAbort)
	want = append(want, "after the open one")
	c.until("what follows", func() bool { return sink.total() == len(want) })
	check()
	// The position passes the last marker, too. Otherwise the lag would never be zero.
	c.until("the end of the log", func() bool { p := c.Stats().Partitions[0]; return atEnd(p) && p.Next == sink.next(0) })
	c.stop()
	// Resume between aborted records, with a fingerprint of a record before them.
	c = s.consume(t, s.config(t, topic), sink)
	send(plain, "last", true)
	c.until("the last", func() bool { return sink.total() == len(want) })
	c.stop()
	check()
}

func testCompaction(t *testing.T, s *suite) {
	configs := map[string]string{"cleanup.policy": "compact"}
	if s.Compact == nil {
		configs["segment.ms"], configs["min.cleanable.dirty.ratio"] = "100", "0.01"
	}
	topic := s.topic(t, "topic", 1, configs)
	cl := s.producer(t)
	keyed := func(i int) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i%5), Value: fmt.Appendf(nil, "v%d", i)}
	}
	// Of one batch only the first records survive, since its other keys come again later. A
	// fetch must get past its end.
	var rs []*kgo.Record
	rs = append(rs, &kgo.Record{Topic: topic, Key: []byte("first"), Value: []byte("stays")})
	for i := range 50 {
		rs = append(rs, keyed(i))
	}
	produce(t, cl, rs...)
	for i := 50; i < 60; i++ {
		produce(t, cl, keyed(i))
	}
	// Roll the segment, since the newest one is not compacted.
	last := func() *kgo.Record { return &kgo.Record{Topic: topic, Key: []byte("last"), Value: []byte("one")} }
	sink := newRecorder()
	sink.keep = true
	cfg := s.config(t, topic)
	cfg.FetchBytes = 1 // one batch at a time
	var survivors int64
	compacted := func() bool {
		if s.Compact != nil {
			s.Compact()
		} else {
			time.Sleep(200 * time.Millisecond)
			produce(t, cl, last())
		}
		probe := newRecorder()
		c := s.consume(t, cfg, probe)
		defer c.stop()
		c.until("the end", func() bool { p := c.Stats().Partitions; return len(p) == 1 && p[0].Next > 60 && atEnd(p[0]) })
		survivors = int64(probe.total())
		return survivors < 60
	}
	produce(t, cl, last())
	eventually(t, "compaction", compacted)
	// A position in the middle of the compacted offsets.
	sink.saved[0] = kafka.Saved{Next: 20, Last: kafka.Fingerprint{Offset: 19, CRC: 1, Millis: 1}}
	c := s.consume(t, cfg, sink)
	c.until("the end", func() bool { return sink.next(0) > 60 && atEnd(c.Stats().Partitions[0]) })
	c.stop()
	latest := map[string]string{}
	for _, r := range sink.kept(0) {
		latest[string(r.Key)] = string(r.Value)
	}
	for i := 55; i < 60; i++ {
		if k := fmt.Sprintf("k%d", i%5); latest[k] != fmt.Sprintf("v%d", i) {
			t.Errorf("%s is %q", k, latest[k])
		}
	}
}

func testNilAndEmpty(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	at := recent()
	records := []*kgo.Record{
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: nil, Value: []byte("v")},
		{Key: []byte("k"), Value: nil},
		{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "nil", Value: nil}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")},
		}},
	}
	for i, r := range records {
		r.Topic, r.Timestamp = topic, at.Add(time.Duration(i)*time.Second)
	}
	produce(t, s.producer(t), records...)
	sink := newRecorder()
	sink.keep = true
	c := s.consume(t, s.config(t, topic), sink)
	c.until("all records", func() bool { return sink.total() == len(records) })
	c.stop()
	for i, got := range sink.kept(0) {
		want := records[i]
		if !sameBytes(got.Key, want.Key) || !sameBytes(got.Value, want.Value) || !got.Time.Equal(want.Timestamp) || got.Offset != int64(i) {
			t.Errorf("record %d: got %+v", i, got)
		}
		if len(got.Headers) != len(want.Headers) {
			t.Fatalf("record %d: %d headers", i, len(got.Headers))
		}
		for j, h := range got.Headers {
			if h.Key != want.Headers[j].Key || !sameBytes(h.Value, want.Headers[j].Value) {
				t.Errorf("record %d: header %d is %q=%v", i, j, h.Key, h.Value)
			}
		}
	}
}

// sameBytes tells nil from empty.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func testCodecs(t *testing.T, s *suite) {
	for _, codec := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	} {
		t.Run(codec.name, func(t *testing.T) {
			topic := s.topic(t, "topic", 1, nil)
			cl := s.producer(t, kgo.ProducerBatchCompression(codec.codec))
			var all []*kgo.Record
			for from := 0; from < 3000; from += 1000 {
				rs := values(topic, 0, from, 1000)
				rs[7].Value = bytes.Repeat([]byte("large and dull "), 20_000)
				produce(t, cl, rs...)
				all = append(all, rs...)
			}
			sink := newRecorder()
			cfg := s.config(t, topic)
			cfg.BufferBytes = 200_000 // less than one record, so that decompressed batches wait for each other
			c := s.consume(t, cfg, sink)
			c.until("all records", func() bool { return sink.total() == len(all) })
			c.stop()
			if sink.chainOf(0) != chainOf(chain{}, 0, all) {
				t.Error("the chain differs")
			}
		})
	}
}

// testBomb sends a small batch that decompresses to a large one.
func testBomb(t *testing.T, s *suite) {
	const inflated, limit = 100 << 20, 16 << 20
	topic := s.topic(t, "topic", 1, map[string]string{"max.message.bytes": fmt.Sprint(32 << 20)})
	produce(t, s.producer(t), values(topic, 0, 0, 10)...)

	record := kmsg.NewRecord()
	record.Value = make([]byte, inflated)
	record.Length = int32(len(record.AppendTo(nil)) - 1) // a length of 0 has taken one byte
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	batch := kmsg.RecordBatch{
		Magic: 2, Attributes: 4, PartitionLeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(),
		NumRecords: 1, Records: enc.EncodeAll(record.AppendTo(nil), nil),
	}
	batch.Length = int32(len(batch.AppendTo(nil)) - 12)
	batch.CRC = int32(crc32.Checksum(batch.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
	s.produceRaw(t, topic, batch.AppendTo(nil))

	cfg := s.config(t, topic)
	cfg.MaxMessageBytes = limit
	produce(t, s.producer(t), values(topic, 0, 11, 10)...)
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("what is behind it", func() bool { return sink.total() == 20 })
	c.stop()
	sink.checkRefused(t, 10)
}

func (s *suite) produceRaw(t *testing.T, topic string, batch []byte) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	// Newer versions of the request name topics by id.
	cl := s.producer(t, kgo.MaxVersions(kversion.V2_8_0()))
	leader := s.metadata(t, topic).Topics[0].Partitions[0].Leader
	resp, err := req.RequestWith(deadline(t), cl.Broker(int(leader)))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("produce a raw batch: %v", err)
	}
}

func testCorruption(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	marker := []byte("the next byte flips:")
	all := values(topic, 0, 0, 300)
	for i, r := range all {
		if i >= 100 {
			r.Value = append(bytes.Clone(marker), r.Value...)
		}
	}
	produce(t, cl, all[:100]...)
	produce(t, cl, all[100:]...)

	sink := newRecorder()
	cfg := s.config(t, topic)
	flaky := &link{marker: marker, flip: 3}
	cfg.Dial = flaky.dial
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == len(all) })
	fetchErrors := c.Stats().Partitions[0].FetchErrors
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, all) {
		t.Error("the chain differs")
	}
	if _, flipped := flaky.did(); flipped != 3 || fetchErrors < 1 {
		t.Fatalf("%d bits flipped, %d fetch errors", flipped, fetchErrors)
	}

	sink = newRecorder()
	cfg.Dial = (&link{marker: marker, flip: 1 << 30}).dial
	err := s.consume(t, cfg, sink).wait()
	if err == nil || !strings.Contains(err.Error(), "CRC") || !strings.Contains(err.Error(), "offset 100") || !strings.Contains(err.Error(), "partition 0") {
		t.Fatalf("got %v", err)
	}
}

// bulky writes n large records to each partition and gives their chains.
func (s *suite) bulky(t *testing.T, topic string, partitions, n int) []chain {
	cl := s.producer(t)
	want := make([]chain, partitions)
	for p := range want {
		for from := 0; from < n; from += 20 {
			rs := values(topic, int32(p), from, 20)
			for _, r := range rs {
				r.Value = bytes.Repeat(r.Value, 50)
			}
			want[p] = chainOf(want[p], int64(from), rs)
			produce(t, cl, rs...)
		}
	}
	return want
}

func testCuts(t *testing.T, s *suite) {
	const partitions, n = 2, 400
	topic := s.topic(t, "topic", partitions, nil)
	want := s.bulky(t, topic, partitions, n)
	sink := newRecorder()
	cfg := s.config(t, topic)
	cfg.FetchBytes = 16 << 10
	bad := &link{rng: rand.New(rand.NewPCG(3, 4)), cut: 60_000}
	cfg.Dial = bad.dial
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == partitions*n })
	c.stop()
	for p := range partitions {
		if sink.chainOf(p) != want[p] {
			t.Errorf("partition %d: the chain differs", p)
		}
	}
	if cuts, _ := bad.did(); cuts == 0 {
		t.Error("no connection was cut")
	}
}

func testSlowLink(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	all := values(topic, 0, 0, 50)
	for _, r := range all {
		r.Value = bytes.Repeat(r.Value, 500)
		produce(t, cl, r)
	}
	sink := newRecorder()
	cfg := s.config(t, topic)
	cfg.Dial = (&link{chunk: 1500, delay: time.Millisecond}).dial
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == len(all) })
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, all) {
		t.Error("the chain differs")
	}
}

// testBackPressure holds batches back and checks the bytes in memory.
func testBackPressure(t *testing.T, s *suite) {
	const budget = 1 << 20
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	var all []*kgo.Record
	for i := range 100 {
		all = append(all, &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{byte(i)}, 50_000)})
		produce(t, cl, all[i])
	}
	var mu sync.Mutex
	var held []*kafka.Batch
	got := chain{}
	sink := &holder{newRecorder(), func(b *kafka.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for i := range b.Records {
			got = got.add(b.Records[i].Offset, b.Records[i].Key, b.Records[i].Value)
		}
		held = append(held, b)
	}}
	cfg := s.config(t, topic)
	cfg.FetchBytes, cfg.BufferBytes = 200_000, budget
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	c, err := kafka.NewConsumer(cfg, sink, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	most, pauses := int64(0), 0
	eventually(t, "all records", func() bool {
		st := c.Stats()
		if len(st.Partitions) == 0 {
			return false
		}
		p := st.Partitions[0]
		most = max(most, p.Buffered)
		mu.Lock()
		defer mu.Unlock()
		// When nothing more fits, give one back.
		if p.Buffered > budget-200_000 && len(held) > 0 {
			pauses++
			held[0].Release()
			held = held[1:]
		}
		return p.Next == int64(len(all))
	})
	mu.Lock()
	for _, b := range held {
		b.Release()
	}
	held = nil
	mu.Unlock()
	if most > budget || pauses == 0 {
		t.Errorf("%d bytes were outstanding of %d allowed; paused %d times", most, budget, pauses)
	}
	if got != chainOf(chain{}, 0, all) {
		t.Error("the chain differs")
	}
	eventually(t, "all bytes to come back", func() bool { return c.Stats().Partitions[0].Buffered <= 250_000 }) // one fetch is waiting
}

// holder is a recorder that keeps batches.
type holder struct {
	*recorder
	hold func(*kafka.Batch)
}

func (h *holder) Deliver(_ context.Context, b *kafka.Batch) error {
	h.hold(b)
	return nil
}

func testHugeRecord(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, map[string]string{"max.message.bytes": fmt.Sprint(8 << 20)})
	cl := s.producer(t)
	all := values(topic, 0, 0, 60)
	all[20].Value = bytes.Repeat([]byte("huge"), 1<<20)
	all[40].Value = bytes.Repeat([]byte("also"), 1<<20)
	for _, r := range all {
		produce(t, cl, r)
	}
	sink := newRecorder()
	cfg := s.config(t, topic)
	cfg.FetchBytes, cfg.BufferBytes = 64<<10, 128<<10
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == len(all) })
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, all) {
		t.Error("the chain differs")
	}
	// They are refused above the limits of a message and of a response.
	cfg.MaxMessageBytes = 1 << 20
	sink = newRecorder()
	c = s.consume(t, cfg, sink)
	c.until("the others", func() bool { return sink.total() == len(all)-2 && sink.next(0) == 60 })
	c.stop()
	sink.checkRefused(t, 20, 40)
}

// testDeliverFails checks that a sink's error ends Run and nothing is skipped.
func testDeliverFails(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	all := values(topic, 0, 0, 40)
	for _, r := range all {
		produce(t, cl, r)
	}
	sink := newRecorder()
	refuse := true
	sink.deliver = func(_ context.Context, b *kafka.Batch) error {
		if n := len(b.Records); refuse && n > 0 && b.Records[n-1].Offset >= 20 {
			return errRefused
		}
		return nil
	}
	cfg := s.config(t, topic)
	cfg.FetchBytes = 1
	if err := s.consume(t, cfg, sink).wait(); !errors.Is(err, errRefused) {
		t.Fatalf("got %v", err)
	}
	refuse = false
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == len(all) })
	c.stop()
	if sink.chainOf(0) != chainOf(chain{}, 0, all) {
		t.Error("the chain differs")
	}
}

// lagsOf watches how far a group is behind in a topic of two partitions.
func (s *suite) lagsOf(t *testing.T, cfg kafka.Config) (monitor *kafka.LagMonitor, lag func() [2]int64) {
	t.Helper()
	monitor, err := kafka.NewLagMonitor(s.cluster(), cfg.Topic, cfg.Group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(monitor.Close)
	return monitor, func() [2]int64 {
		t.Helper()
		lags, err := monitor.Lag(deadline(t))
		if err != nil || len(lags) != 2 {
			t.Fatalf("%v, %v", lags, err)
		}
		return [2]int64{lags[0].Lag(), lags[1].Lag()}
	}
}

// testReplicas has two consumers under one name, which both read everything. Neither waits for
// the other, and neither has its records taken by the other.
func testReplicas(t *testing.T, s *suite) {
	const partitions, n = 3, 200
	topic := s.topic(t, "topic", partitions, nil)
	cfg := s.config(t, topic)
	cl := s.producer(t)
	want := make([]chain, partitions)
	add := func(from int) {
		for p := range partitions {
			rs := values(topic, int32(p), from, n)
			want[p] = chainOf(want[p], int64(from), rs)
			produce(t, cl, rs...)
		}
	}
	add(0)
	sa, sb := newRecorder(), newRecorder()
	a, b := s.consume(t, cfg, sa), s.consume(t, cfg, sb)
	for _, c := range []*running{a, b} {
		c.until("everything", func() bool { return c.sink.total() == partitions*n })
	}
	b.stop()
	add(n)
	a.until("what came while the other was away", func() bool { return sa.total() == 2*partitions*n })
	b = s.consume(t, cfg, sb)
	b.until("what it missed", func() bool { return sb.total() == 2*partitions*n })
	a.stop()
	b.stop()
	for p := range partitions {
		if sa.chainOf(p) != want[p] || sb.chainOf(p) != want[p] {
			t.Errorf("partition %d: the chains differ", p)
		}
	}
	if n := a.Stats().Assignments; n != 1 {
		t.Errorf("partitions were assigned %d times to the one that stayed", n)
	}
}

// testCommitAlone checks what lag monitors see of a consumer that belongs to no group, and that
// one whose group has members says that it cannot commit, and reads all the same.
func testCommitAlone(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 2, nil)
	cl := s.producer(t)
	produce(t, cl, values(topic, 0, 0, 30)...)
	produce(t, cl, values(topic, 1, 0, 40)...)
	cfg := s.config(t, topic)
	_, lag := s.lagsOf(t, cfg)
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == 70 })
	if err := c.Commit(deadline(t), map[int]int64{0: 25}); err != nil {
		t.Fatal(err)
	}
	if got := lag(); got != [2]int64{5, 40} {
		t.Errorf("lag after a commit: %v", got)
	}
	sink.revoked = func(ctx context.Context, partitions []int) { // the last commit
		if err := c.Commit(ctx, map[int]int64{0: 30, 1: 40}); err != nil {
			t.Errorf("commit at the end: %v", err)
		}
	}
	c.stop()
	if got := lag(); got != [2]int64{0, 0} {
		t.Errorf("lag at the end: %v", got)
	}

	shared := cfg
	shared.Shared = true
	member := s.consume(t, shared, newRecorder())
	member.until("membership", func() bool { return member.Stats().OutSince.IsZero() })
	beside := newRecorder()
	c = s.consume(t, cfg, beside)
	c.until("all records beside a group", func() bool { return beside.total() == 70 })
	if err := c.Commit(deadline(t), map[int]int64{0: 10}); err == nil || !strings.Contains(err.Error(), "the group has members") {
		t.Errorf("a commit to the group of others: %v", err)
	}
	c.stop()
	member.stop()
}

// testCommitOfAnother checks that the group has the offset of the member that owns a
// partition, even when no record comes. Another member may have had the partition,
// committed a lower offset, and left.
func testCommitOfAnother(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 2, nil)
	cl := s.producer(t)
	for p := range int32(2) {
		produce(t, cl, values(topic, p, 0, 30)...)
	}
	cfg := s.config(t, topic)
	cfg.Shared = true
	monitor, err := kafka.NewLagMonitor(s.cluster(), topic, cfg.Group)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == 60 })
	if err := c.Commit(deadline(t), map[int]int64{0: 30, 1: 30}); err != nil {
		t.Fatal(err)
	}
	passing := newRecorder()
	other := s.consume(t, cfg, passing)
	other.until("a partition's records", func() bool { return passing.total() == 30 })
	if err := other.Commit(deadline(t), map[int]int64{0: 10, 1: 10}); err != nil {
		t.Fatal(err)
	}
	lags, err := monitor.Lag(deadline(t))
	if err != nil || lags[0].Lag()+lags[1].Lag() != 20 {
		t.Fatalf("%+v, %v", lags, err)
	}
	other.stop()
	if err := monitor.WaitBelow(deadline(t), 0); err != nil {
		lags, _ := monitor.Lag(deadline(t))
		t.Errorf("the lag stays: %+v: %v", lags, err)
	}
	c.stop()
}

func testCommitAndLeave(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 2, nil)
	cl := s.producer(t)
	produce(t, cl, values(topic, 0, 0, 30)...)
	produce(t, cl, values(topic, 1, 0, 40)...)
	cfg := s.config(t, topic)
	cfg.Shared = true
	monitor, lag := s.lagsOf(t, cfg)
	if got := lag(); got != [2]int64{30, 40} {
		t.Errorf("lag before: %v", got)
	}
	sink := newRecorder()
	c := s.consume(t, cfg, sink)
	c.until("all records", func() bool { return sink.total() == 70 })
	if err := c.Commit(deadline(t), map[int]int64{0: 25}); err != nil {
		t.Fatal(err)
	}
	if got := lag(); got != [2]int64{5, 40} {
		t.Errorf("lag after a commit: %v", got)
	}
	// The last commit is made when the partitions are revoked, before leaving.
	sink.revoked = func(ctx context.Context, partitions []int) {
		next := make(map[int]int64)
		for _, p := range partitions {
			next[p] = sink.next(p)
		}
		if err := c.Commit(ctx, next); err != nil {
			t.Errorf("commit when revoked: %v", err)
		}
	}
	c.stop()
	if got := lag(); got != [2]int64{0, 0} {
		t.Errorf("lag at the end: %v", got)
	}
	if err := monitor.WaitBelow(deadline(t), 0); err != nil {
		t.Error(err)
	}
	if err := c.Commit(deadline(t), map[int]int64{0: 1}); err != nil {
		t.Errorf("a commit after the end: %v", err)
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{cfg.Group}
	resp, err := req.RequestWith(deadline(t), s.admin)
	if err != nil {
		t.Fatal(err)
	}
	if g := resp.Groups[0]; g.State != "Empty" || len(g.Members) > 0 {
		t.Errorf("the group is %s with %d members", g.State, len(g.Members))
	}
}
