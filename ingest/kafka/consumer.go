package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
)

// Consumer reads one topic: all of its partitions, or with Config.Shared those that a group
// assigns to it. Make it with NewConsumer and call Run once.
type Consumer struct {
	cfg  Config
	sink Sink
	log  zerolog.Logger
	cl   *client

	total *total

	mu          sync.Mutex
	partitions  map[int]*partition
	generation  *kafkago.Generation // of a member of a group; nil: none
	assigned    []int
	processed   map[int]int64 // by partition, as given to Commit last
	assignments int64
	outSince    time.Time // zero: partitions are assigned
	outBecause  error     // the last failure to join since then

	committing sync.Mutex // held over a commit, so that later commits have later offsets

	// These belong to Run's goroutines, one after the other.
	count  int    // partitions of the topic, as far as known
	member string // id in the group
}

// NewConsumer checks the configuration and reports all its problems at once. It does not
// connect.
func NewConsumer(cfg Config, sink Sink, log zerolog.Logger) (*Consumer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Consumer{
		cfg:        cfg,
		sink:       sink,
		log:        log.With().Str("topic", cfg.Topic).Str("group", cfg.Group).Logger(),
		total:      newTotal(cfg.TotalBytes),
		partitions: make(map[int]*partition),
		processed:  make(map[int]int64),
		outSince:   time.Now(),
	}, nil
}

// Run delivers until ctx ends, which is no error, or until a partition cannot continue.
// Before it returns, all deliveries have ended, the sink's Revoked has been called, and a
// group that was joined has been left.
func (c *Consumer) Run(ctx context.Context) error {
	err := c.run(ctx)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("consume %s: %w", c.cfg.Topic, err)
	}
	return nil
}

func (c *Consumer) run(ctx context.Context) (err error) {
	c.cl = newClient(&c.cfg.Cluster, c.cfg.Topic)
	defer c.cl.close()
	// The topic must exist by now. kafka-go asks for it while joining a group, in a way that
	// makes some brokers create it.
	if c.count, err = c.cl.waitForTopic(ctx, c.cfg.Topic, c.log); err != nil {
		return err
	}
	if c.cfg.Shared {
		return c.share(ctx)
	}
	for {
		ids := make([]int, c.count)
		for i := range ids {
			ids[i] = i
		}
		if err := c.serve(ctx, ids, c.count); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// serve reads partitions until ctx ends or the number of partitions changes, which is no
// error. The topic has count partitions.
func (c *Consumer) serve(ctx context.Context, ids []int, count int) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	parts := make([]*partition, len(ids))
	for i, id := range ids {
		if parts[i] = c.partition(id); c.cfg.Shared {
			parts[i].forget() // others may have got further since
		}
	}
	c.mu.Lock()
	c.assigned = ids
	c.outSince, c.outBecause = time.Time{}, nil
	c.assignments++
	c.mu.Unlock()
	c.log.Info().Ints("partitions", ids).Msg("partitions assigned")

	var work sync.WaitGroup
	work.Go(func() { // a member of a group may have committed lower offsets
		if err := c.commit(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug().Err(err).Msg("offsets not committed at the assignment; the next commit has them")
		}
	})
	work.Go(func() { end(c.watch(ctx)) })
	err := c.sink.Assigned(ctx, ids)
	if err == nil {
		err = c.passOver(ctx, count)
	}
	if err != nil {
		end(err)
		parts = nil
	}
	for _, p := range parts {
		work.Go(func() {
			if err := pump(ctx, p.fetchAll, p.deliver); err != nil {
				end(fmt.Errorf("partition %d: %w", p.id, err))
			}
		})
	}
	work.Wait()

	rctx, done := context.WithTimeout(context.WithoutCancel(ctx), rebalanceTimeout)
	c.sink.Revoked(rctx, ids)
	done()
	c.mu.Lock()
	c.assigned = nil
	c.outSince = time.Now()
	c.mu.Unlock()
	c.log.Info().Ints("partitions", ids).Msg("partitions revoked")
	if err := context.Cause(ctx); err != context.Canceled {
		return err
	}
	return nil
}

// partition returns the state of a partition, and makes it on first use.
func (c *Consumer) partition(id int) *partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partitions[id] == nil {
		c.partitions[id] = c.newPartition(id)
	}
	return c.partitions[id]
}

func (c *Consumer) newPartition(id int) *partition {
	return &partition{
		fetcher: newFetcher(c.cl, c.cfg.Topic, id, c.cfg.Fetching, c.total),
		sink:    c.sink,
		start:   c.cfg.Start,
		onGap:   c.cfg.OnGap,
		log:     c.log.With().Int("partition", id).Logger(),
		state:   PartitionStats{Partition: id, Next: -1, HighWatermark: -1, LogStart: -1},
	}
}

// passOver handles positions in partitions beyond count, which nobody is assigned. A
// topic does not lose partitions, so it was made anew with fewer.
func (c *Consumer) passOver(ctx context.Context, count int) error {
	const attempts = 4
	var pause backoff
	// A broker may not know yet of partitions that were added.
	for attempt := 1; len(c.stray(count)) > 0 && attempt < attempts; attempt++ {
		if err := pause.wait(ctx); err != nil {
			return err
		}
		if n, err := c.cl.partitions(ctx, c.cfg.Topic); err != nil {
			attempt = 0
		} else if n != count {
			return nil // watch sees that, too
		}
	}
	for _, p := range c.stray(count) {
		at, _ := p.position()
		gap := &GapError{Topic: p.topic, Partition: p.id, Saved: max(at.Next, at.Done), Reset: true}
		if c.cfg.OnGap == StopOnGap {
			return fmt.Errorf("partition %d: %w", p.id, gap)
		}
		p.log.Warn().Int64("saved", gap.Saved).Int("partitions", count).Msg("the topic was made anew without this partition; continuing, as kafka.on_gap allows")
		if err := p.deliver(ctx, delivery{gap: gap}); err != nil {
			return err
		}
	}
	return nil
}

// stray lists the partitions beyond count from which something was read.
func (c *Consumer) stray(count int) []*partition {
	ids := c.sink.Partitions()
	c.mu.Lock()
	ids = slices.AppendSeq(ids, maps.Keys(c.partitions))
	c.mu.Unlock()
	slices.Sort(ids)
	var out []*partition
	for _, id := range slices.Compact(ids) {
		if id < count {
			continue
		}
		p := c.partition(id)
		if at, _ := p.position(); max(at.Next, at.Done) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// watch returns when the number of partitions has changed, or with an error when the topic
// was deleted. kafka-go's own watch may create the topic again.
func (c *Consumer) watch(ctx context.Context) error {
	tick := time.NewTicker(metadataTTL)
	defer tick.Stop()
	for missing := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		n, err := c.cl.partitions(ctx, c.cfg.Topic)
		switch {
		case errors.Is(err, kafkago.UnknownTopicOrPartition):
			// Brokers that have just started say this for a moment, too.
			if missing++; missing == 10 {
				return fmt.Errorf("topic %s is gone: it was deleted while being read", c.cfg.Topic)
			}
		case err == nil:
			missing = 0
			if n != c.count {
				c.log.Info().Int("before", c.count).Int("now", n).Msg("the number of partitions has changed")
				c.count = n
				return nil
			}
		}
	}
}

// Commit commits the offsets up to which partitions have been processed, for lag monitors;
// streamd does not read them. The offsets of partitions that are not assigned, which are all
// before Run, are committed when they are assigned. A commit of a member of a group that comes
// too late, in the middle of a rebalance, is no error.
func (c *Consumer) Commit(ctx context.Context, next map[int]int64) error {
	c.mu.Lock()
	maps.Copy(c.processed, next)
	c.mu.Unlock()
	return c.commit(ctx)
}

// commit commits the processed offsets of the assigned partitions.
func (c *Consumer) commit(ctx context.Context) error {
	result := make(chan error, 1)
	go func() {
		c.committing.Lock()
		defer c.committing.Unlock()
		c.mu.Lock()
		gen := c.generation
		offsets := make(map[int]int64, len(c.assigned))
		for _, id := range c.assigned {
			if offset, ok := c.processed[id]; ok {
				offsets[id] = offset
			}
		}
		c.mu.Unlock()
		switch {
		case len(offsets) == 0:
			result <- nil
		case gen != nil:
			result <- gen.CommitOffsets(map[string]map[int]int64{c.cfg.Topic: offsets})
		default:
			result <- c.cl.commit(ctx, c.cfg.Group, c.cfg.Topic, offsets)
		}
	}()
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	var code kafkago.Error
	if err == nil || c.cfg.Shared && errors.As(err, &code) &&
		(code == kafkago.RebalanceInProgress || code == kafkago.IllegalGeneration || code == kafkago.UnknownMemberId) {
		return nil
	}
	return fmt.Errorf("commit offsets of %s to group %s: %w", c.cfg.Topic, c.cfg.Group, err)
}

// Member is the present membership in the group, from Sink.Assigned until Sink.Revoked.
func (c *Consumer) Member() (m Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.generation; g != nil {
		m = Member{ID: g.MemberID, Generation: int(g.ID), Session: c.cfg.SessionTimeout}
	}
	return m
}

// Stats is a snapshot of a consumer's state, for metrics.
type Stats struct {
	Assignments int64            // how often partitions were assigned: at the start, when their number changed, in a group's rebalances
	OutSince    time.Time        // since when none have been assigned; zero: some are
	OutBecause  error            // the last failure to join the group since then; nil: none
	Partitions  []PartitionStats // all ever assigned, by number
}

// Stats returns a snapshot. It may be called at any time.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	s := Stats{Assignments: c.assignments, OutSince: c.outSince, OutBecause: c.outBecause}
	for id, p := range c.partitions {
		ps := p.stats()
		ps.Assigned = slices.Contains(c.assigned, id)
		s.Partitions = append(s.Partitions, ps)
	}
	c.mu.Unlock()
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int { return a.Partition - b.Partition })
	return s
}
