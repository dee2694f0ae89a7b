package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
)

// ProducerConfig configures a Producer. Zero values stand for the defaults.
type ProducerConfig struct {
	Cluster
	Topic string
	// BatchBytes is the size at which a record batch is closed; 1,000,000, within Kafka's
	// own default. The topic's max.message.bytes must allow it. A larger record goes alone.
	BatchBytes int
	// Compress compresses batches with zstd, which brokers know since 2.1.
	Compress bool
}

// Producer writes records for replays: in order per partition, acknowledged by all in-sync
// replicas, and once, even when a request has to be repeated. (Its batches are numbered,
// which Kafka calls idempotence. Brokers that do not know it may write a repeated batch twice.)
//
// Per partition one batch is in flight while the next is filled. A batch is sent as soon as
// the one before it is acknowledged. So a partition takes the memory of two batches, and
// Write waits when the brokers are slower.
type Producer struct {
	cl     *client
	log    zerolog.Logger
	lanes  []*lane
	cancel context.CancelCauseFunc
	ctx    context.Context // ends with Close or with a permanent error
	work   sync.WaitGroup
}

// lane is one partition of a producer.
type lane struct {
	sender  sender
	limit   int
	codec   compress.Compression
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when filling or sending changes
	filling *batchWriter
	taken   int64 // records so far
	sent    int64 // of these, those that are acknowledged: the first ones
}

// OpenProducer waits until the cluster can be reached and starts a producer. The topic must
// exist (EnsureTopic).
func OpenProducer(ctx context.Context, cfg ProducerConfig, log zerolog.Logger) (*Producer, error) {
	problems := append(cfg.check(), checkTopic(cfg.Topic))
	cfg.BatchBytes = cmp.Or(cfg.BatchBytes, 1_000_000)
	if cfg.BatchBytes < 1 || cfg.BatchBytes > 1<<30 {
		problems = append(problems, fmt.Errorf("batch bytes %d is not between 1 and %d", cfg.BatchBytes, 1<<30))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	p := &Producer{cl: newClient(&cfg.Cluster, cfg.Topic), log: log.With().Str("topic", cfg.Topic).Logger()}
	n, err := p.cl.waitForTopic(ctx, cfg.Topic, p.log)
	if err != nil {
		p.cl.close()
		return nil, fmt.Errorf("produce to %s: %w", cfg.Topic, err)
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	codec := compress.None
	if cfg.Compress {
		codec = compress.Zstd
	}
	for i := range n {
		l := &lane{
			sender:  sender{cl: p.cl, topic: cfg.Topic, partition: i, log: p.log},
			limit:   cfg.BatchBytes,
			codec:   codec,
			changed: make(chan struct{}),
			filling: new(batchWriter),
		}
		l.filling.reset()
		p.lanes = append(p.lanes, l)
		p.work.Go(func() {
			if err := p.run(l); err != nil {
				p.cancel(fmt.Errorf("produce to %s/%d: %w", cfg.Topic, i, err))
			}
		})
	}
	return p, nil
}

// Partitions is the number of partitions written to.
func (p *Producer) Partitions() int { return len(p.lanes) }

// Write copies a record into the batch of its partition, and waits while that is full. A
// zero t means now. An error means that this or an earlier record could not be written, or
// that ctx has ended before the record was taken.
func (p *Producer) Write(ctx context.Context, partition int, key, value []byte, headers []Header, t time.Time) error {
	if t.IsZero() {
		t = time.Now()
	}
	l := p.lanes[partition]
	size := recordSize(key, value, headers)
	return p.wait(ctx, l, func() bool {
		if l.filling.count > 0 && l.filling.size()+size > l.limit {
			return false
		}
		l.filling.add(key, value, headers, t)
		l.taken++
		l.change()
		return true
	})
}

// Flush waits until everything that was written before the call is acknowledged.
func (p *Producer) Flush(ctx context.Context) error {
	for i := range p.lanes {
		if err := p.FlushPartition(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// FlushPartition waits until everything that was written to a partition before the call is
// acknowledged. It does not wait for what others write meanwhile.
func (p *Producer) FlushPartition(ctx context.Context, partition int) error {
	l := p.lanes[partition]
	l.mu.Lock()
	all := l.taken
	l.mu.Unlock()
	return p.wait(ctx, l, func() bool { return l.sent >= all })
}

// Done is closed once the producer has failed for good, or is closed.
func (p *Producer) Done() <-chan struct{} { return p.ctx.Done() }

// PartitionOf is the partition that Kafka's own producers write a key to, by murmur2.
func (p *Producer) PartitionOf(key []byte) int {
	all := make([]int, len(p.lanes))
	for i := range all {
		all[i] = i
	}
	return kafkago.Murmur2Balancer{Consistent: true}.Balance(kafkago.Message{Key: key}, all...)
}

// Close stops without waiting, and records that are not flushed may be lost. It must be
// called once, also after an error.
func (p *Producer) Close() {
	p.cancel(errors.New("the producer is closed"))
	p.work.Wait()
	p.cl.close()
}

// wait repeats try, with l locked, at each change of l until it succeeds.
func (p *Producer) wait(ctx context.Context, l *lane, try func() bool) error {
	for {
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		l.mu.Lock()
		if try() {
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-p.ctx.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// change wakes all goroutines that wait for l, which is locked.
func (l *lane) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// run sends batches of l until the producer's ctx ends.
func (p *Producer) run(l *lane) error {
	batch := new(batchWriter)
	for {
		batch.reset()
		if p.wait(p.ctx, l, func() bool {
			if l.filling.count == 0 {
				return false
			}
			batch, l.filling = l.filling, batch
			l.change()
			return true
		}) != nil {
			return nil
		}
		if err := batch.pack(l.codec); err != nil {
			return err
		}
		if err := l.sender.send(p.ctx, batch); err != nil {
			return err
		}
		l.mu.Lock()
		l.sent += int64(batch.count)
		l.change()
		l.mu.Unlock()
	}
}

// sender writes batches to one partition, one after the other.
type sender struct {
	cl        *client
	topic     string
	partition int
	log       zerolog.Logger

	transaction string // transactional.id; empty: batches belong to none
	once        bool   // where it may have been written, a batch without a number is not repeated

	known    bool  // the broker has given producer and epoch, or has none to give
	producer int64 // -1: batches are not numbered
	epoch    int16
	sequence int32 // of the next batch
	end      int64 // after the last batch, where the broker has said it
}

// errMaybeWritten says that a batch was sent, and that no answer says whether it is in the log.
var errMaybeWritten = errors.New("the batch may have been written")

// unwritten are the answers that say that a batch is not in the log, and may be later.
var unwritten = []kafkago.Error{
	kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
	kafkago.BrokerNotAvailable, kafkago.NotEnoughReplicas,
}

// send repeats the batch until it is acknowledged, ctx ends, or an error is permanent. The
// batch's sequence number makes sure that it is written once.
func (s *sender) send(ctx context.Context, w *batchWriter) error {
	var pause backoff
	var latest error
	w.transactional = s.transaction != ""
	for {
		var err error
		if !s.known {
			s.producer, s.epoch, err = s.cl.producerID(ctx)
			if errors.Is(err, kafkago.UnsupportedVersion) {
				s.producer, s.epoch, s.sequence, err = -1, -1, -1, nil
			}
			s.known = err == nil
		}
		sent := false
		if err == nil {
			var base int64
			sent = true
			if base, err = s.cl.produce(ctx, s.topic, s.partition, s.transaction, w.finish(s.producer, s.epoch, s.sequence)); err != nil {
				w.buf = slices.Clone(w.buf) // an abandoned connection may still be sending the old one
			} else if base >= 0 {
				s.end = base + int64(w.count)
			}
		}
		switch {
		case err == nil, errors.Is(err, kafkago.DuplicateSequenceNumber):
			if s.producer >= 0 {
				s.sequence = int32((int64(s.sequence) + int64(w.count)) & math.MaxInt32)
			}
			return nil
		case ctx.Err() != nil:
			return ended(ctx, latest)
		case isTooLarge(err):
			return fmt.Errorf("a record batch of %d bytes: %w; raise max.message.bytes of the topic", w.size(), err)
		case errors.Is(err, kafkago.OutOfOrderSequenceNumber) && !s.once:
			return fmt.Errorf("%w; records that it had acknowledged are not in the log any more: its end was lost", err)
		case isPermanent(err), errors.Is(err, kafkago.InvalidProducerEpoch), (s.transaction != "" || s.once) && isLost(err):
			return err
		case s.once && s.producer < 0 && sent && !slices.ContainsFunc(unwritten, func(code kafkago.Error) bool { return errors.Is(err, code) }):
			return fmt.Errorf("%w: %w", errMaybeWritten, err)
		}
		s.log.WithLevel(pause.level()).Err(err).Int("partition", s.partition).Msg("producing failed; trying again")
		latest = err
		if pause.wait(ctx) != nil {
			return ended(ctx, latest)
		}
	}
}

// ended is why ctx has ended, with the failure that it was trying to overcome.
func ended(ctx context.Context, latest error) error {
	if latest == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; the latest attempt: %v", context.Cause(ctx), latest)
}
