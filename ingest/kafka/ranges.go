package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

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
	cfg RangeConfig
	log zerolog.Logger
	cl  *client

	total *total

	mu    sync.Mutex
	stats RangeStats
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
		cfg: cfg,
		log: log.With().Str("topic", cfg.Topic).Logger(),
		cl:  newClient(&cfg.Cluster, cfg.Topic),

		total: newTotal(cfg.TotalBytes),
	}, nil
}

// Close gives the connections back. Read must not be running.
func (r *RangeReader) Close() { r.cl.close() }

// Log returns the offsets of the log, a range for each partition that is not empty. For a
// missing topic the error is kafkago.UnknownTopicOrPartition.
func (r *RangeReader) Log(ctx context.Context) ([]Range, error) {
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
	var log []Range
	for _, p := range ends {
		if p.FirstOffset < p.LastOffset {
			log = append(log, Range{p.Partition, p.FirstOffset, p.LastOffset})
		}
	}
	return log, nil
}

// Stats returns a snapshot. It may be called at any time.
func (r *RangeReader) Stats() RangeStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Read delivers the log's records in the ranges, each record once. The ranges may come in
// any order and may overlap. The records of a partition come in offset order, one batch at
// a time. Batches of different partitions are delivered at the same time. deliver owns the
// batch as Sink.Deliver does, and may block. Its error ends Read, unless ctx has ended.
//
// Nothing is skipped silently. Offsets below the Position.Next of the partition's last
// batch may be missing among the records: they were compacted away, or never were records
// (markers, aborted data). Ranges outside the log are returned, by partition and offset.
// Read cannot see that the log is another one of the same name. A caller who knows the
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
	var reading sync.WaitGroup
	for range min(r.cfg.Partitions, len(parts)) {
		reading.Go(func() {
			for i := range next {
				p := r.newReading(parts[i], deliver)
				if err := pump(ctx, p.fetchAll, p.deliver); err != nil {
					fail(fmt.Errorf("read %s/%d again: %w", r.cfg.Topic, p.id, err))
				}
				lost[i] = p.lost
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
	r    *RangeReader
	log  zerolog.Logger
	take func(context.Context, *Batch) error

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
		r:       r,
		log:     r.log.With().Int("partition", id).Logger(),
		take:    take,
		at:      ranges[0].From,
		ranges:  ranges,
	}
}

func (p *reading) deliver(ctx context.Context, d delivery) error {
	err := p.take(ctx, d.batch)
	if err != nil {
		d.batch.Release()
	}
	return err
}

// Brokers that have just started, or become leaders, may for a moment know neither how far
// the log goes nor that the topic exists. An answer contrary to the ranges is believed
// after so many attempts.
const (
	contraryAttempts = 4
	unknownAttempts  = 6 // over three seconds
)

// fetchAll reads until the ranges have come to their ends.
func (p *reading) fetchAll(ctx context.Context, queue chan<- delivery) error {
	var retry retrial
	for unknown := 0; len(p.ranges) > 0; {
		err := p.step(ctx, queue)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			retry.succeeded()
			unknown = 0
			continue
		}
		p.r.mu.Lock()
		p.r.stats.FetchErrors++
		p.r.mu.Unlock()
		if isUnknownPartition(err) {
			if unknown++; unknown == unknownAttempts {
				return fmt.Errorf("the partition is gone: %w", err)
			}
		}
		if err := retry.final(err); err != nil {
			return err
		}
		p.log.Warn().Err(err).Int64("offset", p.at).Msg("reading old records failed; trying again")
		if err := retry.waitFor(ctx, p.fetcher); err != nil {
			return err
		}
	}
	return nil
}

// step fetches once and goes on after what was read or is lost.
func (p *reading) step(ctx context.Context, queue chan<- delivery) error {
	next, err := p.fetch(ctx, Saved{Next: p.at}, p.maxBytes(), p.answered, p.wants, func(b *Batch) error {
		p.trim(b)
		return enqueue(ctx, queue, delivery{batch: b})
	})
	switch {
	case next.Next > p.at:
		p.pass(next.Next)
	case err == nil:
		return p.stalled(ctx, queue)
	case errors.Is(err, kafkago.OffsetOutOfRange):
		return p.locate(ctx)
	}
	return err
}

// answered notes the log's state in a response, and its size.
func (p *reading) answered(r *protocol.Fetched) {
	p.answer, p.size = r.LogState, len(r.Records)
	p.r.mu.Lock()
	p.r.stats.Fetched += int64(p.size)
	p.r.mu.Unlock()
}

// pass goes on at an offset, or at the next range if that comes later.
func (p *reading) pass(next int64) {
	p.density = float64(p.size) / float64(next-p.at)
	p.move(next)
}

func (p *reading) move(next int64) {
	for len(p.ranges) > 0 && p.ranges[0].To <= next {
		p.ranges = p.ranges[1:]
	}
	p.contrary, p.at = 0, next
	if len(p.ranges) > 0 {
		p.at = max(next, p.ranges[0].From)
	}
}

// stalled decides how to go on after a fetch without records.
func (p *reading) stalled(ctx context.Context, queue chan<- delivery) error {
	a := &p.answer
	switch {
	case a.HighWatermark > p.at && a.Stable <= p.at:
		return nil // a transaction is open, and the broker has held the answer back
	case a.Throttled:
		return nil // a throttled answer has no records
	}
	if p.contrary++; p.contrary < contraryAttempts {
		return fmt.Errorf("nothing comes from offset %d on; the log ends at %d", p.at, a.HighWatermark)
	}
	if a.HighWatermark <= p.at {
		p.lose(math.MaxInt64, a.LogStart, a.HighWatermark)
		return nil
	}
	// Everything up to the end of the log has been compacted away.
	b := newBatch(p.id, &p.names)
	b.Position = Saved{Next: a.Stable}
	p.move(a.Stable)
	return enqueue(ctx, queue, delivery{batch: b})
}

// locate decides how to go on when the next offset is outside the log.
func (p *reading) locate(ctx context.Context) error {
	start, end, err := p.cl.bounds(ctx, p.topic, p.id)
	if err != nil {
		return err
	}
	if p.at < start {
		p.lose(start, start, end)
		return nil
	}
	if p.at >= end {
		if p.contrary++; p.contrary == contraryAttempts {
			p.lose(math.MaxInt64, start, end)
			return nil
		}
	}
	return fmt.Errorf("offset %d of a log from %d to %d: %w", p.at, start, end, kafkago.OffsetOutOfRange)
}

// lose gives up the offsets of the ranges before an offset, and goes on there.
func (p *reading) lose(before, start, end int64) {
	for _, each := range p.ranges {
		gone := Range{p.id, max(each.From, p.at), min(each.To, before)}
		if gone.From < gone.To {
			p.lost = append(p.lost, Lost{Range: gone, LogStart: start, LogEnd: end})
		}
	}
	p.move(before)
}

// jumpBytes can be read in about the time of one more request. A shorter stretch between
// two ranges is fetched along with them.
const jumpBytes = 256 << 10

// maxBytes is how much to ask for: by the density, the bytes up to the next long stretch
// between ranges.
func (p *reading) maxBytes() int {
	limit := float64(p.cfg.FetchBytes)
	if p.density == 0 {
		return p.cfg.FetchBytes
	}
	end := p.ranges[0].To
	for _, each := range p.ranges[1:] {
		if float64(each.From-end)*p.density > jumpBytes || float64(end-p.at)*p.density > limit {
			break
		}
		end = each.To
	}
	const margin = 1.1 // for records larger than the average
	return int(max(1, min(limit, margin*float64(end-p.at)*p.density)))
}

// wants says whether a range has an offset from first to last.
func (p *reading) wants(first, last int64) bool {
	i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].To > first })
	return i < len(p.ranges) && p.ranges[i].From <= last
}

// trim deletes the records outside the ranges from b.
func (p *reading) trim(b *Batch) {
	rest := p.ranges
	b.Records = slices.DeleteFunc(b.Records, func(r Record) bool {
		for len(rest) > 0 && rest[0].To <= r.Offset {
			rest = rest[1:]
		}
		return len(rest) == 0 || r.Offset < rest[0].From
	})
}
