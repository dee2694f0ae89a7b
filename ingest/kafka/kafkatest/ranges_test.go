package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamd/ingest/kafka"
)

func (s *suite) rangeConfig(topic string) kafka.RangeConfig {
	return kafka.RangeConfig{
		Cluster:  s.cluster(),
		Topic:    topic,
		Fetching: kafka.Fetching{MaxWait: 100 * time.Millisecond},
	}
}

func rangeReader(t *testing.T, cfg kafka.RangeConfig) *kafka.RangeReader {
	t.Helper()
	r, err := kafka.NewRangeReader(cfg, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// read reads ranges into a new recorder.
func read(t *testing.T, r *kafka.RangeReader, ranges ...kafka.Range) (*recorder, []kafka.Lost) {
	t.Helper()
	sink := newRecorder()
	sink.keep = true
	lost, err := r.Read(deadline(t), ranges, sink.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.broken(); err != nil {
		t.Fatal(err)
	}
	return sink, lost
}

func offsets(records []kafka.Record) (o []int64) {
	for _, r := range records {
		o = append(o, r.Offset)
	}
	return o
}

// testRanges reads random ranges of several partitions. A consumer and its group must not
// notice.
func testRanges(t *testing.T, s *suite) {
	const partitions, n = 3, 1000
	topic := s.topic(t, "topic", partitions, nil)
	cl := s.producer(t)
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([][]*kgo.Record, partitions)
	for p := range partitions {
		all[p] = values(topic, int32(p), 0, n)
		for rs := all[p]; len(rs) > 0; { // batches of different sizes
			k := min(len(rs), 1+rng.IntN(60))
			produce(t, cl, rs[:k]...)
			rs = rs[k:]
		}
	}
	member := newRecorder()
	c := s.consume(t, s.config(t, topic), member)
	c.until("all records", func() bool { return member.total() == partitions*n })
	monitor, err := kafka.NewLagMonitor(s.cluster(), topic, s.name(t, "group"))
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	if err := c.Commit(deadline(t), map[int]int64{0: 100, 1: 200, 2: 300}); err != nil {
		t.Fatal(err)
	}
	cfg := s.rangeConfig(topic)
	cfg.FetchBytes = 4 << 10
	r := rangeReader(t, cfg)
	for range 10 {
		var ranges []kafka.Range
		wanted := make([][]bool, partitions)
		for p := range partitions {
			wanted[p] = make([]bool, n)
			for range rng.IntN(8) {
				from := rng.IntN(n)
				to := min(n, from+1+rng.IntN(100))
				ranges = append(ranges, kafka.Range{Partition: p, From: int64(from), To: int64(to)})
				for o := from; o < to; o++ {
					wanted[p][o] = true
				}
			}
		}
		rng.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		sink, lost := read(t, r, ranges...)
		if len(lost) > 0 {
			t.Errorf("%v: lost %v", ranges, lost)
		}
		for p := range partitions {
			want := chain{}
			for o, w := range wanted[p] {
				if w {
					want = want.add(int64(o), all[p][o].Key, all[p][o].Value)
				}
			}
			if sink.chainOf(p) != want {
				t.Fatalf("%v: partition %d: the chain over %d records differs", ranges, p, sink.count(p))
			}
		}
	}
	if n := c.Stats().Assignments; n != 1 {
		t.Errorf("partitions were assigned %d times", n)
	}
	lags, err := monitor.Lag(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for p, l := range lags {
		if want := int64(n - 100*(p+1)); l.Lag() != want {
			t.Errorf("partition %d: the group's lag is %d, was %d", p, l.Lag(), want)
		}
	}
	if st := r.Stats(); st.FetchErrors > 0 || st.Fetched == 0 {
		t.Errorf("%+v", st)
	}
}

// testRangesApart checks how many bytes outside the ranges are fetched.
func testRangesApart(t *testing.T, s *suite) {
	const n, size, fetch = 400, 20_000, 128 << 10
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	for i := range n {
		produce(t, cl, &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{byte(i)}, size)})
	}
	cfg := s.rangeConfig(topic)
	cfg.FetchBytes = fetch
	for _, c := range []struct {
		name   string
		ranges []kafka.Range
		most   int64
	}{
		// The first fetch is full, since sizes are not known, and later ones are not.
		{"far apart", []kafka.Range{{From: 10, To: 12}, {From: 200, To: 202}, {From: 390, To: 392}}, fetch + 3*3*size},
		// They are read along, with batches cut off at the ends of responses.
		{"close", []kafka.Range{{From: 10, To: 12}, {From: 14, To: 16}, {From: 18, To: 50}}, 40*size + 10*size},
		{"the end of the log", []kafka.Range{{From: n - 1, To: n}}, 2 * size},
	} {
		r := rangeReader(t, cfg)
		var want []int64
		for _, each := range c.ranges {
			for o := each.From; o < each.To; o++ {
				want = append(want, o)
			}
		}
		sink, lost := read(t, r, c.ranges...)
		if got := offsets(sink.kept(0)); !slices.Equal(got, want) || len(lost) > 0 {
			t.Errorf("%s: got %v, lost %v", c.name, got, lost)
		}
		if st := r.Stats(); st.Fetched > c.most {
			t.Errorf("%s: %d bytes fetched, more than %d", c.name, st.Fetched, c.most)
		}
	}
}

// testRangesEnd reads ranges that end within an answer: positions do not pass records that
// nobody has asked for.
func testRangesEnd(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl, all := s.producer(t), values(topic, 0, 0, 20)
	for _, batch := range [][]*kgo.Record{all[:1], all[1:8], all[8:9], all[9:]} {
		produce(t, cl, batch...)
	}
	r := rangeReader(t, s.rangeConfig(topic))
	for to := int64(3); to <= 20; to++ {
		if sink, lost := read(t, r, kafka.Range{From: 0, To: 1}, kafka.Range{From: 2, To: to}); sink.next(0) != to || sink.count(0) != int(to)-1 || len(lost) > 0 {
			t.Errorf("up to %d: the position is %d after %d records; lost %v", to, sink.next(0), sink.count(0), lost)
		}
	}
}

func testRangesLost(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 2, nil)
	cl := s.producer(t)
	all := values(topic, 0, 0, 200)
	produce(t, cl, all...)
	s.deleteRecords(t, topic, 0, 150)
	sink, lost := read(t, rangeReader(t, s.rangeConfig(topic)),
		kafka.Range{Partition: 1, From: 3, To: 4}, // never written
		kafka.Range{From: 195, To: 205}, kafka.Range{From: 140, To: 160}, kafka.Range{From: 100, To: 120}, kafka.Range{From: 300, To: 301})
	want := []kafka.Lost{
		{Range: kafka.Range{From: 100, To: 120}, LogStart: 150, LogEnd: 200},
		{Range: kafka.Range{From: 140, To: 150}, LogStart: 150, LogEnd: 200},
		{Range: kafka.Range{From: 200, To: 205}, LogStart: 150, LogEnd: 200},
		{Range: kafka.Range{From: 300, To: 301}, LogStart: 150, LogEnd: 200},
		{Range: kafka.Range{Partition: 1, From: 3, To: 4}},
	}
	if !slices.Equal(lost, want) {
		t.Errorf("lost %v", lost)
	}
	if sink.chainOf(0) != chainOf(chainOf(chain{}, 150, all[150:160]), 195, all[195:]) {
		t.Errorf("got %v", offsets(sink.kept(0)))
	}
	for i, text := range []string{"offsets 100 to 119 of partition 0 were deleted: the log starts at 150", "", "offsets 200 to 204 of partition 0 are beyond the log end 200"} {
		if !strings.Contains(lost[i].String(), text) {
			t.Errorf("%q does not say %q", lost[i], text)
		}
	}
}

// testRangesLostWhileReading lets retention overtake a reader.
func testRangesLostWhileReading(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	for i := range 20 {
		produce(t, cl, &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{byte(i)}, 50_000)})
	}
	cfg := s.rangeConfig(topic)
	cfg.FetchBytes, cfg.BufferBytes = 100_000, 100_000
	sink := newRecorder()
	sink.keep = true
	var once sync.Once
	sink.deliver = func(context.Context, *kafka.Batch) error {
		once.Do(func() { s.deleteRecords(t, topic, 0, 19) })
		return nil
	}
	lost, err := rangeReader(t, cfg).Read(deadline(t), []kafka.Range{{From: 2, To: 20}}, sink.Deliver)
	if err != nil || len(lost) != 1 || lost[0].To != 19 || lost[0].LogStart != 19 {
		t.Fatalf("lost %v, %v", lost, err)
	}
	var want []int64
	for o := int64(2); o < lost[0].From; o++ {
		want = append(want, o)
	}
	if got := offsets(sink.kept(0)); !slices.Equal(got, append(want, 19)) || len(want) == 0 {
		t.Errorf("got %v, lost %v", got, lost)
	}
}

func testRangesGone(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	r := rangeReader(t, s.rangeConfig(topic))
	_, err := r.Read(deadline(t), []kafka.Range{{Partition: 7, From: 0, To: 1}}, newRecorder().Deliver)
	if err == nil || !strings.Contains(err.Error(), topic+"/7") || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v", err)
	}
	if st := r.Stats(); st.FetchErrors == 0 {
		t.Errorf("%+v", st)
	}
}

func testRangesTransactions(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t, kgo.TransactionalID(s.name(t, "id")))
	var want []int64
	offset := int64(0)
	for i := range 20 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		how := kgo.TransactionEndTry(i%3 > 0)
		for range 1 + i%4 {
			produce(t, cl, &kgo.Record{Topic: topic, Value: fmt.Append(nil, offset)})
			if how == kgo.TryCommit && offset >= 7 && offset < 50 {
				want = append(want, offset)
			}
			offset++
		}
		if err := cl.EndTransaction(deadline(t), how); err != nil {
			t.Fatal(err)
		}
		offset++ // the marker
	}
	sink, lost := read(t, rangeReader(t, s.rangeConfig(topic)), kafka.Range{From: 7, To: 50})
	if got := offsets(sink.kept(0)); !slices.Equal(got, want) || len(lost) > 0 {
		t.Errorf("got  %v\nwant %v\nlost %v", got, want, lost)
	}
	for _, r := range sink.kept(0) {
		if string(r.Value) != fmt.Sprint(r.Offset) {
			t.Errorf("offset %d holds %q", r.Offset, r.Value)
		}
	}
}

func testRangesCompaction(t *testing.T, s *suite) {
	configs := map[string]string{"cleanup.policy": "compact"}
	if s.Compact == nil {
		configs["segment.ms"], configs["min.cleanable.dirty.ratio"] = "100", "0.01"
	}
	topic := s.topic(t, "topic", 1, configs)
	cl := s.producer(t)
	// The first record stays. The embedded broker takes offsets compacted away before the
	// first record for deleted.
	produce(t, cl, &kgo.Record{Topic: topic, Key: []byte("first"), Value: []byte("stays")})
	for i := 1; i < 60; i++ {
		produce(t, cl, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i%5), Value: fmt.Appendf(nil, "v%d", i)})
	}
	roll := func() {
		produce(t, cl, &kgo.Record{Topic: topic, Key: []byte("roll"), Value: []byte("the segment")})
	}
	roll()
	r := rangeReader(t, s.rangeConfig(topic))
	all := kafka.Range{From: 0, To: 60}
	var left []int64
	eventually(t, "compaction", func() bool {
		if s.Compact != nil {
			s.Compact()
		} else {
			time.Sleep(200 * time.Millisecond)
			roll()
		}
		sink, lost := read(t, r, all)
		if len(lost) > 0 {
			t.Fatalf("compacted records count as lost: %v", lost)
		}
		if sink.next(0) < all.To {
			t.Fatalf("read up to %d only", sink.next(0))
		}
		left = offsets(sink.kept(0))
		return len(left) == 1+5
	})
	// Ranges within the compacted offsets, across their end, and of one record.
	for _, each := range []kafka.Range{{From: 3, To: 9}, {From: 10, To: 57}, {From: left[1], To: left[1] + 1}} {
		sink, lost := read(t, r, each)
		var want []int64
		for _, o := range left {
			if each.From <= o && o < each.To {
				want = append(want, o)
			}
		}
		if got := offsets(sink.kept(0)); !slices.Equal(got, want) || len(lost) > 0 || sink.next(0) < each.To {
			t.Errorf("%v: got %v up to %d, want %v, lost %v", each, got, sink.next(0), want, lost)
		}
	}
}

func testRangesCuts(t *testing.T, s *suite) {
	const partitions, n = 2, 400
	topic := s.topic(t, "topic", partitions, nil)
	want := s.bulky(t, topic, partitions, n)
	var ranges []kafka.Range
	for p := range partitions {
		ranges = append(ranges, kafka.Range{Partition: p, From: 0, To: n})
	}
	cfg := s.rangeConfig(topic)
	cfg.FetchBytes = 16 << 10
	bad := &link{rng: rand.New(rand.NewPCG(3, 4)), cut: 60_000}
	cfg.Dial = bad.dial
	r := rangeReader(t, cfg)
	sink, lost := read(t, r, ranges...)
	for p := range partitions {
		if sink.chainOf(p) != want[p] {
			t.Errorf("partition %d: the chain differs", p)
		}
	}
	if cuts, _ := bad.did(); cuts == 0 || r.Stats().FetchErrors == 0 || len(lost) > 0 {
		t.Errorf("%d cuts, %+v, lost %v", cuts, r.Stats(), lost)
	}
}

func testRangesCorruption(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	marker := []byte("the next byte flips:")
	all := values(topic, 0, 0, 100)
	for _, r := range all {
		r.Value = append(bytes.Clone(marker), r.Value...)
		produce(t, cl, r)
	}
	cfg := s.rangeConfig(topic)
	flaky := &link{marker: marker, flip: 3}
	cfg.Dial = flaky.dial
	sink, _ := read(t, rangeReader(t, cfg), kafka.Range{From: 50, To: 60})
	if _, flipped := flaky.did(); flipped != 3 || sink.chainOf(0) != chainOf(chain{}, 50, all[50:60]) {
		t.Errorf("%d bits flipped; got %v", flipped, offsets(sink.kept(0)))
	}
	cfg.Dial = (&link{marker: marker, flip: 1 << 30}).dial
	_, err := rangeReader(t, cfg).Read(deadline(t), []kafka.Range{{From: 50, To: 60}}, newRecorder().Deliver)
	if err == nil || !strings.Contains(err.Error(), "CRC") || !strings.Contains(err.Error(), "offset 50") || !strings.Contains(err.Error(), topic+"/0") {
		t.Errorf("got %v", err)
	}
}

// testRangesBackPressure holds batches back and counts what has been delivered.
func testRangesBackPressure(t *testing.T, s *suite) {
	const size, budget = 50_000, 1 << 20
	topic := s.topic(t, "topic", 1, nil)
	cl := s.producer(t)
	var all []*kgo.Record
	for i := range 100 {
		all = append(all, &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{byte(i)}, size)})
		produce(t, cl, all[i])
	}
	cfg := s.rangeConfig(topic)
	cfg.FetchBytes, cfg.BufferBytes = 4*size+10_000, budget
	held := make(chan *kafka.Batch, len(all))
	var mu sync.Mutex
	got, outstanding, most, pauses := chain{}, 0, 0, 0
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		_, err = rangeReader(t, cfg).Read(deadline(t), []kafka.Range{{From: 0, To: 100}}, func(_ context.Context, b *kafka.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range b.Records {
				got = got.add(b.Records[i].Offset, b.Records[i].Key, b.Records[i].Value)
			}
			outstanding += size * len(b.Records)
			most = max(most, outstanding)
			held <- b
			return nil
		})
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		case <-time.After(20 * time.Millisecond): // the reader has paused by now
			mu.Lock()
			select {
			case b := <-held:
				outstanding -= size * len(b.Records)
				b.Release()
				pauses++
			default:
			}
			mu.Unlock()
		}
	}
	close(held)
	for b := range held {
		b.Release()
	}
	if err != nil || most > budget || pauses < 100*size/budget || got != chainOf(chain{}, 0, all) {
		t.Errorf("%v; %d bytes were outstanding of %d allowed; paused %d times; right: %t", err, most, budget, pauses, got == chainOf(chain{}, 0, all))
	}
}

func testRangesDeliverFails(t *testing.T, s *suite) {
	topic := s.topic(t, "topic", 3, nil)
	cl := s.producer(t)
	var ranges []kafka.Range
	for p := range 3 {
		produce(t, cl, values(topic, int32(p), 0, 50)...)
		ranges = append(ranges, kafka.Range{Partition: p, From: 0, To: 50})
	}
	r := rangeReader(t, s.rangeConfig(topic))
	if _, err := r.Read(deadline(t), ranges, func(_ context.Context, b *kafka.Batch) error {
		if b.Partition == 1 {
			return errRefused
		}
		b.Release()
		return nil
	}); !errors.Is(err, errRefused) {
		t.Errorf("got %v", err)
	}
	// Read waits for an unreachable broker until the context ends.
	cfg := s.rangeConfig(topic)
	cfg.Dial = (&link{rng: rand.New(rand.NewPCG(1, 1)), cut: 1}).dial
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := rangeReader(t, cfg).Read(ctx, ranges, newRecorder().Deliver); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	// The reader can be used again.
	if sink, lost := read(t, r, ranges...); sink.total() != 150 || len(lost) > 0 {
		t.Errorf("%d records, lost %v", sink.total(), lost)
	}
}
