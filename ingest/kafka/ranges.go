package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/incremental/parallel"
	"streamd/ingest/kafka/protocol"
)

// Range is the offsets of a partition from From up to, but not including, To.
type Range struct {
	Partition int
	From, To  int64
}

// Lost is a range outside the log: the log begins after it or ends before it.
type Lost struct {
	Range
	LogStart int64 // the first offset of the log; -1: the broker does not say
	LogEnd   int64 // the offset after its last
}

// String explains the loss.
func (l Lost) String() string {
	if l.From < l.LogStart {
		return fmt.Sprintf("offsets %d to %d of partition %d were deleted: the log starts at %d", l.From, l.To-1, l.Partition, l.LogStart)
	}
	return fmt.Sprintf("offsets %d to %d of partition %d are beyond the log end %d: the topic was deleted and made anew, or its end was lost",
		l.From, l.To-1, l.Partition, l.LogEnd)
}

// RangeConfig configures a RangeReader. Zero values stand for the defaults given.
type RangeConfig struct {
	Cluster
	Topic string
	Fetching

	// Partitions is how many are read at the same time, each with a budget of its own; 2.
	Partitions int
}

// RangeReader reads ranges of a topic again, outside of any group. It changes no position
// and no committed offset, and no Consumer notices.
type RangeReader struct {
	cfg   RangeConfig
	log   zerolog.Logger
	cl    *client
	total *total

	fetched, fetchErrors atomic.Int64 // as in RangeStats
}

// RangeStats counts the work of a RangeReader since it was made.
type RangeStats struct {
	Fetched     int64 // bytes of record batches received
	FetchErrors int64
}

// NewRangeReader checks the configuration and reports all its problems at once. It does not
// connect.
func NewRangeReader(cfg RangeConfig, log zerolog.Logger) (*RangeReader, error) {
	problems := slices.Concat(cfg.Cluster.check(), cfg.Fetching.check(), []error{checkTopic(cfg.Topic)})
	cfg.Partitions = cmp.Or(cfg.Partitions, 2)
	if cfg.Partitions < 1 {
		problems = append(problems, fmt.Errorf("partitions %d is not positive", cfg.Partitions))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &RangeReader{
		cfg:   cfg,
		log:   log.With().Str("topic", cfg.Topic).Logger(),
		cl:    newClient(&cfg.Cluster, cfg.Topic),
		total: newTotal(cfg.TotalBytes),
	}, nil
}

// Close closes the connections. Read must not be running.
func (r *RangeReader) Close() { r.cl.close() }

// Log returns the offsets of the log, a range for each partition that is not empty. For a
// missing topic the error is kafkago.UnknownTopicOrPartition.
func (r *RangeReader) Log(ctx context.Context) ([]Range, error) {
	all, err := r.Bounds(ctx)
	return slices.DeleteFunc(all, func(p Range) bool { return p.From == p.To }), err
}

// Bounds is Log with a range for every partition, also for an empty one.
func (r *RangeReader) Bounds(ctx context.Context) ([]Range, error) {
	n, err := r.cl.partitions(ctx, r.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("look for topic %s: %w", r.cfg.Topic, err)
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	ends, err := r.cl.allBounds(ctx, r.cfg.Topic, ids)
	if err != nil {
		return nil, err
	}
	all := make([]Range, 0, n)
	for _, p := range ends {
		all = append(all, Range{p.Partition, p.FirstOffset, p.LastOffset})
	}
	return all, nil
}

// Stats returns a snapshot. It may be called at any time.
func (r *RangeReader) Stats() RangeStats {
	return RangeStats{Fetched: r.fetched.Load(), FetchErrors: r.fetchErrors.Load()}
}

// Read delivers the log's records in the ranges, each record once. The ranges may come in
// any order and may overlap. The records of a partition come in offset order, one batch at
// a time. Batches of different partitions are delivered at the same time. deliver owns the
// batch as Sink.Deliver does, and may block. Its error ends Read, unless ctx has ended.
//
// Nothing is skipped silently. Offsets of a range below the Position.Next of the partition's
// last batch may be missing among the records: they were compacted away, or never were
// records (markers, aborted data). No Position.Next is beyond the partition's last range, even
// if records have come after it meanwhile. Ranges outside the log are returned, by partition and
// offset. Read cannot see that the log is another one of the same name. A caller who knows the
// records has to compare.
//
// Between ranges that lie close together nothing is fetched twice. Stretches outside the
// ranges are jumped over where that saves more than a request costs, and their record
// batches are not decompressed. Read retries after broker trouble until ctx ends, as the
// Consumer does, and counts it in RangeStats. Record batches that stay corrupt, and a
// partition that is gone, are errors. Read may be called again, but not while it runs.
func (r *RangeReader) Read(ctx context.Context, ranges []Range, deliver func(context.Context, *Batch) error) ([]Lost, error) {
	var parts [][]Range
	for _, each := range normalise(ranges) {
		if n := len(parts); n > 0 && parts[n-1][0].Partition == each.Partition {
			parts[n-1] = append(parts[n-1], each)
		} else {
			parts = append(parts, []Range{each})
		}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	next := make(chan int)
	lost := make([][]Lost, len(parts))
	var reading parallel.Group
	for range min(r.cfg.Partitions, len(parts)) {
		reading.Go(func() {
			for i := range next {
				if !reading.Catch(func() {
					p := r.newReading(parts[i], deliver)
					if err := pump(ctx, p.fetchAll, p.deliver); err != nil {
						fail(fmt.Errorf("read %s/%d again: %w", r.cfg.Topic, p.id, err))
					}
					lost[i] = p.lost
				}) {
					fail(errPanicked) // Wait panics, too
				}
			}
		})
	}
	for i := 0; i < len(parts) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	reading.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(lost...), nil
}

var errPanicked = errors.New("a reader has panicked")

// normalise sorts ranges and joins those that touch. It panics on an empty one.
func normalise(ranges []Range) []Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.From, b.From))
	})
	out := sorted[:0]
	for _, each := range sorted {
		if each.From < 0 || each.To <= each.From {
			panic(fmt.Sprintf("kafka: range %d to %d", each.From, each.To))
		}
		if n := len(out); n > 0 && out[n-1].Partition == each.Partition && each.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, each.To)
		} else {
			out = append(out, each)
		}
	}
	return out
}

// reading reads the ranges of one partition.
type reading struct {
	*fetcher
	reader *RangeReader
	log    zerolog.Logger
	take   func(context.Context, *Batch) error

	// These belong to the fetching goroutine.
	at       int64             // everything before it has been read or lost
	ranges   []Range           // not read to their ends yet
	answer   protocol.LogState // of the last response
	size     int               // bytes of its record batches
	density  float64           // its bytes of record batches per offset; 0: not known
	contrary int               // so many answers in a row say that there is nothing at at
	lost     []Lost
}

func (r *RangeReader) newReading(ranges []Range, take func(context.Context, *Batch) error) *reading {
	id := ranges[0].Partition
	return &reading{
		fetcher: newFetcher(r.cl, r.cfg.Topic, id, r.cfg.Fetching, r.total),
		reader:  r,
		log:     r.log.With().Int("partition", id).Logger(),
		take:    take,
		at:      ranges[0].From,
		ranges:  ranges,
	}
}

func (r *reading) deliver(ctx context.Context, d delivery) error {
	err := r.take(ctx, d.batch)
	if err != nil {
		d.batch.Release()
	}
	return err
}

// Brokers that have just started, or become leaders, may for a moment know neither where
// the log ends nor that the topic exists. An answer contrary to the ranges is believed
// after so many attempts.
const (
	contraryAttempts = 4
	unknownAttempts  = 6 // over three seconds
)

// fetchAll reads until the ranges are complete.
func (r *reading) fetchAll(ctx context.Context, queue chan<- delivery) error {
	var retry retrial
	for unknown := 0; len(r.ranges) > 0; {
		err := r.step(ctx, queue)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			retry.succeeded()
			unknown = 0
			continue
		}
		r.reader.fetchErrors.Add(1)
		if isUnknownPartition(err) {
			if unknown++; unknown == unknownAttempts {
				return fmt.Errorf("the partition is gone: %w", err)
			}
		}
		if err := retry.final(err); err != nil {
			return err
		}
		r.log.Warn().Err(err).Int64("offset", r.at).Msg("reading old records failed; trying again")
		if err := retry.waitFor(ctx, r.fetcher); err != nil {
			return err
		}
	}
	return nil
}

// step fetches once and continues after the part that was read or is lost.
func (r *reading) step(ctx context.Context, queue chan<- delivery) error {
	next, err := r.fetch(ctx, Saved{Next: r.at}, r.maxBytes(), r.answered, r.wants, func(b *Batch) error {
		return r.enqueue(ctx, queue, b)
	})
	switch {
	case next.Next > r.at:
		r.pass(next.Next)
	case err == nil:
		return r.stalled(ctx, queue)
	case errors.Is(err, kafkago.OffsetOutOfRange):
		return r.locate(ctx)
	}
	return err
}

// answered notes the log's state in a response, and its size.
func (r *reading) answered(f *protocol.Fetched) {
	r.answer, r.size = f.LogState, len(f.Records)
	r.reader.fetched.Add(int64(r.size))
}

// pass continues at an offset, or at the next range if that comes later.
func (r *reading) pass(next int64) {
	r.density = float64(r.size) / float64(next-r.at)
	r.move(next)
}

func (r *reading) move(next int64) {
	for len(r.ranges) > 0 && r.ranges[0].To <= next {
		r.ranges = r.ranges[1:]
	}
	r.contrary, r.at = 0, next
	if len(r.ranges) > 0 {
		r.at = max(next, r.ranges[0].From)
	}
}

// stalled decides how to continue after a fetch without records.
func (r *reading) stalled(ctx context.Context, queue chan<- delivery) error {
	a := &r.answer
	switch {
	case a.HighWatermark > r.at && a.Stable <= r.at:
		return nil // a transaction is open, and the broker has held the answer back
	case a.Throttled:
		return nil // a throttled answer has no records
	}
	if r.contrary++; r.contrary < contraryAttempts {
		return fmt.Errorf("nothing comes from offset %d on; the log ends at %d", r.at, a.HighWatermark)
	}
	if a.HighWatermark <= r.at {
		r.lose(math.MaxInt64, a.LogStart, a.HighWatermark)
		return nil
	}
	// Everything up to the end of the log has been compacted away.
	b := newBatch(r.id, &r.names)
	b.Position = Saved{Next: a.Stable}
	err := r.enqueue(ctx, queue, b)
	r.move(a.Stable)
	return err
}

// enqueue queues the part of a batch that is in the ranges.
func (r *reading) enqueue(ctx context.Context, queue chan<- delivery, b *Batch) error {
	r.trim(b)
	b.Position.Next = min(b.Position.Next, r.ranges[len(r.ranges)-1].To)
	return enqueue(ctx, queue, delivery{batch: b})
}

// locate decides how to continue when the next offset is outside the log.
func (r *reading) locate(ctx context.Context) error {
	start, end, err := r.cl.bounds(ctx, r.topic, r.id)
	if err != nil {
		return err
	}
	if r.at < start {
		r.lose(start, start, end)
		return nil
	}
	if r.at >= end {
		if r.contrary++; r.contrary == contraryAttempts {
			r.lose(math.MaxInt64, start, end)
			return nil
		}
	}
	return fmt.Errorf("offset %d of a log from %d to %d: %w", r.at, start, end, kafkago.OffsetOutOfRange)
}

// lose abandons the offsets of the ranges before an offset, and continues there.
func (r *reading) lose(before, start, end int64) {
	for _, each := range r.ranges {
		gone := Range{r.id, max(each.From, r.at), min(each.To, before)}
		if gone.From < gone.To {
			r.lost = append(r.lost, Lost{Range: gone, LogStart: start, LogEnd: end})
		}
	}
	r.move(before)
}

// jumpBytes can be read in about the time of one more request. A shorter stretch between
// two ranges is fetched along with them.
const jumpBytes = 256 << 10

// maxBytes is how much to ask for: by the density, the bytes up to the next long stretch
// between ranges.
func (r *reading) maxBytes() int {
	limit := float64(r.cfg.FetchBytes)
	if r.density == 0 {
		return r.cfg.FetchBytes
	}
	end := r.ranges[0].To
	for _, each := range r.ranges[1:] {
		if float64(each.From-end)*r.density > jumpBytes || float64(end-r.at)*r.density > limit {
			break
		}
		end = each.To
	}
	const margin = 1.1 // for records larger than the average
	return int(max(1, min(limit, margin*float64(end-r.at)*r.density)))
}

// wants reports whether a range has an offset from first to last.
func (r *reading) wants(first, last int64) bool {
	i := sort.Search(len(r.ranges), func(i int) bool { return r.ranges[i].To > first })
	return i < len(r.ranges) && r.ranges[i].From <= last
}

// trim deletes the records outside the ranges from b.
func (r *reading) trim(b *Batch) {
	rest := r.ranges
	b.Records = slices.DeleteFunc(b.Records, func(rec Record) bool {
		for len(rest) > 0 && rest[0].To <= rec.Offset {
			rest = rest[1:]
		}
		return len(rest) == 0 || rec.Offset < rest[0].From
	})
}
