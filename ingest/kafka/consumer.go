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

// Sink takes what a Consumer reads of its topic. Its methods may be called at the
// same time for different partitions, never for the same one.
type Sink interface {
	// Former is the id that Joined was told in a process that has ended, perhaps
	// without a farewell; empty: there is none. Run takes that member out of the
	// group, which otherwise waits for the end of its session.
	Former() string

	// Joined tells the sink its own id in the group, whenever that is another one,
	// and before anything is delivered.
	Joined(member string)

	// Position is what the sink has saved of the partition; false when that is
	// nothing. It is asked before anything of the partition is delivered, and
	// not again in this process.
	Position(partition int) (Saved, bool)

	// Partitions lists those of which Position knows something.
	Partitions() []int

	// Deliver hands over the next batch. Batches of a partition come in offset
	// order, one call at a time, and none is left out: after an error the
	// partition is not gone on with. It may block, which pauses the partition
	// (back-pressure), but must return when ctx ends, as it does when the
	// partition is taken away or Run is to end. What comes first of a partition of
	// which nothing was saved is where it begins, in a batch without records.
	//
	// When it returns nil the batch is the sink's, to be released some time
	// without waiting for further batches. When it returns an error the batch
	// counts as not delivered and stays the consumer's. An error while ctx has
	// not ended makes Run fail with it.
	Deliver(ctx context.Context, b *Batch) error

	// Jumped says that the partition goes on at to after a gap that
	// Config.OnGap allows. The offsets of what is delivered next may have been
	// seen before, on other records: the log is another one when gap.Reset.
	Jumped(gap *GapError, to int64)

	// Revoked says that nothing more will be delivered of these partitions
	// until they are assigned anew, and that all calls for them have returned.
	// The process is a member of the group still: this is the moment to save
	// and to Commit, until ctx ends.
	Revoked(ctx context.Context, partitions []int)
}

// GapError says that a saved position cannot be gone on from.
type GapError struct {
	Topic     string
	Partition int
	Saved     int64 // the offset that was to come next
	LogStart  int64 // the first offset of the log
	LogEnd    int64 // the offset after its last
	// Reset says that the log is not the one that the position was saved in: the
	// topic was deleted and made anew, or its end was lost.
	Reset bool
}

func (e *GapError) Error() string {
	at := fmt.Sprintf("saved offset %d of %s/%d", e.Saved, e.Topic, e.Partition)
	const hint = "pass --kafka.on_gap=earliest to go on at the log's start, or --kafka.on_gap=latest at its end"
	switch {
	case e.Saved < e.LogStart:
		return fmt.Sprintf("%s is below the log start %d: %d offsets were deleted unread; %s", at, e.LogStart, e.LogStart-e.Saved, hint)
	case e.Saved > e.LogEnd:
		return fmt.Sprintf("%s is beyond the log end %d: the topic was deleted and made anew, or its end was lost; %s", at, e.LogEnd, hint)
	}
	return fmt.Sprintf("%s does not fit the log (%d to %d): the record before it is another one; the topic was deleted and made anew, or its end was lost and written anew; %s",
		at, e.LogStart, e.LogEnd, hint)
}

// Consumer reads one topic as a member of a group. Make it with NewConsumer and
// call Run once.
type Consumer struct {
	cfg  Config
	sink Sink
	log  zerolog.Logger
	cl   *client

	total *total

	mu         sync.Mutex
	partitions map[int]*partition
	generation *kafkago.Generation // nil: none
	assigned   []int
	processed  map[int]int64 // what Commit was told of each partition last
	rebalances int64
	outSince   time.Time // zero: generation is not nil
	outBecause error     // the last failure to join since then

	committing sync.Mutex // held over a commit: a later one has later offsets

	// What follows belongs to Run's goroutines, one after the other.
	count  int    // partitions of the topic, as far as known
	member string // in the group, as the sink knows it
}

// NewConsumer checks the configuration and reports all that is wrong with it at
// once. It does not connect.
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

// Run joins the group and delivers until ctx ends, which is no error, or until
// something cannot be gone on with. Before it returns, all deliveries have
// ended, the sink has been told (Revoked), and the group has been left.
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
	// Joining makes kafka-go ask the broker for the topic in a way that creates
	// it where brokers do that by themselves, so it has to exist by now.
	if c.count, err = c.cl.waitForTopic(ctx, c.cfg.Topic, c.log); err != nil {
		return err
	}
	if former := c.sink.Former(); former != "" {
		if err := c.cl.leave(ctx, c.cfg.Group, former); err != nil && ctx.Err() == nil {
			c.log.Warn().Err(err).Str("member", former).Msg("the process before could not be taken out of the group; partitions may come when its session ends")
		}
	}
	m := newMembership(&c.cfg, c.cl, c.log)
	if err := m.enter(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var serving, beside sync.WaitGroup
	// The last generation ends by itself (serve), then the group is left.
	defer func() {
		stop(nil)
		serving.Wait()
		m.leave()
		beside.Wait()
	}()
	beside.Go(func() { m.abandonJoins(ctx, func() bool { return c.Stats().OutSince.IsZero() }) })

	var expelled string
	for {
		gen, err := m.group.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			serving.Wait() // a generation that ended at once may still be winding up
			serving.Add(1)
			gen.Start(func(gctx context.Context) {
				c.serve(ctx, gctx, gen, stop)
				serving.Done()
				// To return ends the generation and joins the next. At Run's end
				// that would disturb the others in the group for nothing.
				if ctx.Err() != nil {
					<-gctx.Done()
				}
			})
			continue
		}
		if isPermanent(err) {
			return fmt.Errorf("group %s: %w", c.cfg.Group, err)
		}
		c.mu.Lock()
		c.outBecause = err
		c.mu.Unlock()
		c.log.Warn().Err(err).Msg("joining the group failed; trying again")
		if errors.Is(err, kafkago.RebalanceInProgress) {
			continue
		}
		// From here on it is another member.
		serving.Wait()
		if former := c.member; former != expelled {
			expelled = former
			beside.Go(func() { m.expel(ctx, former) })
		}
		if err := m.reenter(ctx); err != nil {
			return err
		}
	}
}

// serve reads the partitions of one generation until it ends, or ctx, or the
// number of partitions changes.
func (c *Consumer) serve(ctx, gctx context.Context, gen *kafkago.Generation, fail context.CancelCauseFunc) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(gctx, cancel)()

	if gen.MemberID != c.member {
		c.member = gen.MemberID
		c.sink.Joined(c.member)
	}
	var ids []int
	for _, a := range gen.Assignments[c.cfg.Topic] {
		ids = append(ids, a.ID)
	}
	slices.Sort(ids)
	count := c.count
	if n := len(ids); n > 0 && ids[n-1] >= count { // others may have heard of more
		if n, err := c.cl.partitions(ctx, c.cfg.Topic); err == nil {
			count = max(count, n)
		}
		known, _ := slices.BinarySearch(ids, count)
		if known < len(ids) {
			c.log.Warn().Int("partitions", count).Int("assigned", ids[len(ids)-1]).Msg("the leader of the group assigns partitions that the topic does not have; leaving them out")
			ids = ids[:known]
		}
	}
	parts := make([]*partition, len(ids))
	for i, id := range ids {
		parts[i] = c.partition(id)
	}
	c.mu.Lock()
	c.generation, c.assigned = gen, ids
	c.outSince, c.outBecause = time.Time{}, nil
	c.rebalances++
	c.mu.Unlock()
	c.log.Info().Ints("partitions", ids).Int32("generation", gen.ID).Msg("partitions assigned")

	var work sync.WaitGroup
	work.Go(func() { // the group may have it from a member that had come less far
		if err := c.commit(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug().Err(err).Msg("offsets not committed at the assignment; the next commit has them")
		}
	})
	work.Go(func() {
		if err := c.watch(ctx); err != nil && ctx.Err() == nil {
			fail(err)
		}
		cancel()
	})
	if err := c.passOver(ctx, count); err != nil {
		if ctx.Err() == nil {
			fail(err)
		}
		parts = nil
	}
	for _, p := range parts {
		work.Go(func() {
			if err := pump(ctx, p.fetchAll, p.deliver); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("partition %d: %w", p.id, err))
			}
		})
	}
	work.Wait()

	rctx, done := context.WithTimeout(context.WithoutCancel(ctx), rebalanceTimeout)
	c.sink.Revoked(rctx, ids)
	done()
	c.mu.Lock()
	c.generation, c.assigned = nil, nil
	c.outSince = time.Now()
	c.mu.Unlock()
	c.log.Info().Ints("partitions", ids).Int32("generation", gen.ID).Msg("partitions revoked")
}

// partition is the state of a partition, made when it is first asked for.
func (c *Consumer) partition(id int) *partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partitions[id] == nil {
		c.partitions[id] = newPartition(c, id)
	}
	return c.partitions[id]
}

// passOver deals with positions in partitions beyond count, which nobody will be
// assigned: a topic does not lose partitions, so it was made anew with fewer.
func (c *Consumer) passOver(ctx context.Context, count int) error {
	const attempts = 4
	var pause backoff
	// A broker may not have heard yet of partitions that were added.
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
		p.log.Warn().Int64("saved", gap.Saved).Int("partitions", count).Msg("the topic was made anew without this partition; going on as told")
		if err := p.deliver(ctx, delivery{gap: gap}); err != nil {
			return err
		}
	}
	return nil
}

// stray lists the partitions beyond count of which something was read.
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

// watch returns when the topic has another number of partitions than before, and
// with an error when the topic is gone. kafka-go's own watch asks in a way that
// may create the topic again.
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
			// Brokers that have just started say this too, for a moment.
			if missing++; missing == 10 {
				return fmt.Errorf("topic %s is gone: it was deleted while being read", c.cfg.Topic)
			}
		case err == nil:
			missing = 0
			if n != c.count {
				c.log.Info().Int("before", c.count).Int("now", n).Msg("the number of partitions has changed; joining again")
				c.count = n
				return nil
			}
		}
	}
}

// Commit tells the group how far the partitions have been processed, for the eyes
// of lag monitors; nothing reads it back. Of partitions that are not assigned at the
// moment, before Run begins of all, the group is told when they are. A commit that
// comes too late, in the middle of a rebalance, is no error.
func (c *Consumer) Commit(ctx context.Context, next map[int]int64) error {
	c.mu.Lock()
	maps.Copy(c.processed, next)
	c.mu.Unlock()
	return c.commit(ctx)
}

// commit commits what is known of the assigned partitions.
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
		if gen == nil || len(offsets) == 0 {
			result <- nil
			return
		}
		result <- gen.CommitOffsets(map[string]map[int]int64{c.cfg.Topic: offsets})
	}()
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	var code kafkago.Error
	if err == nil || errors.As(err, &code) &&
		(code == kafkago.RebalanceInProgress || code == kafkago.IllegalGeneration || code == kafkago.UnknownMemberId) {
		return nil
	}
	return fmt.Errorf("commit offsets of %s to group %s: %w", c.cfg.Topic, c.cfg.Group, err)
}

// Stats is a snapshot of a consumer's state, for metrics.
type Stats struct {
	Rebalances int64            // generations joined
	OutSince   time.Time        // when it was no member of the group any more, or not yet; zero: it is one
	OutBecause error            // the last failure to join since then; nil: none
	Partitions []PartitionStats // all ever assigned, by number
}

// PartitionStats is the state of one partition.
type PartitionStats struct {
	Partition     int
	Assigned      bool
	Next          int64 // -1: not yet known
	HighWatermark int64 // -1: not yet known
	LogStart      int64 // -1: not known
	Buffered      int64 // bytes that count against the budget
	FetchErrors   int64 // since the process began
}

// Stats returns a snapshot. It may be called at any time.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	s := Stats{Rebalances: c.rebalances, OutSince: c.outSince, OutBecause: c.outBecause}
	for id, p := range c.partitions {
		ps := p.stats()
		ps.Assigned = slices.Contains(c.assigned, id)
		s.Partitions = append(s.Partitions, ps)
	}
	c.mu.Unlock()
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int { return a.Partition - b.Partition })
	return s
}
