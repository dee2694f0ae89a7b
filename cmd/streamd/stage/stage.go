// Package stage reads the partitions of a topic as a member of a group, and writes what becomes of
// them to another topic.
//
//	source ──> Work ──> transaction ──> topic
//	                        └─ offsets of the group
//
//	stage.go  the stage runs, begins anew and stops
//	lane.go   one partition of the source: its work, its transactions
//	serve.go  readiness and metrics
//
// A stage keeps nothing: any number of processes are members of one group, and share the
// partitions. What a record becomes should depend on its partition alone.
//
// # Exactly once
//
// The records that a partition's records become are written in transactions, together with the
// offset up to which they have been read. Whoever gets the partition opens its transactional
// producer first. That ends the one of the member that had it before, also of one that stood still
// and wakes up: nothing that it writes is seen any more. So nothing is written twice, nothing is
// left out, and what becomes of a later record never comes before. A member whose transaction is
// lost joins the group anew.
//
// Where brokers have no transactions, records have their source position in a header, and whoever
// gets the partition reads back the last ones (kafka.PositionalProducer). Whoever is killed leaves
// nothing out and writes nothing twice. A member that stands still in the middle of a write, and
// wakes up when another one has its partition, may write a batch once more. Without a header in
// Config.Transaction such brokers are refused.
package stage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental/parallel"
	"streamd/ingest/kafka"
	"streamd/ingest/registry"
)

// Writer writes what becomes of a partition, as kafka.TransactionalProducer does. It keeps nothing
// of it.
type Writer interface {
	Write(ctx context.Context, key, value []byte, headers []kafka.Header, t time.Time) error
}

// Work is what is done with a partition as long as it is assigned. One call is made at a time. An
// error is final.
type Work interface {
	// Take writes what becomes of a batch. It does not release the batch.
	Take(ctx context.Context, b *kafka.Batch) error
	// Flush writes what waits for more records, as none has come for an interval.
	Flush(ctx context.Context) error
	// Jump goes on elsewhere in the log, which may be another one of the same name.
	Jump(ctx context.Context, to int64, reset bool) error
	// Resume is what to commit with all that has been written: where whoever has the partition next
	// begins, with a text of at most 4,096 bytes for its Open.
	Resume() kafka.Committed
	// Unwritten reports whether Flush would write something.
	Unwritten() bool
	Close()
}

// Producer writes for a partition, as kafka.TransactionalProducer does.
type Producer interface {
	Writer
	Commit(ctx context.Context, at kafka.Committed) error
	Abort(ctx context.Context) error
	// Forget says that the source is another topic of the same name.
	Forget()
}

// Config configures a stage.
type Config struct {
	Consuming   kafka.Config // of the source; its group is shared
	Transaction kafka.TransactionConfig

	// TopicConfigs are Kafka's settings of the topic, if it is made. It keeps records as long as
	// the source does, whose times they have.
	TopicConfigs map[string]string
	// Open makes the work of a partition that writes to a Writer, and says where it begins: known
	// is false where nothing has been committed, whose Offset is −1.
	Open func(partition int, at kafka.Committed, to Writer) (work Work, from kafka.Saved, known bool)
	// Await waits until a batch can be taken.
	Await    func(context.Context, *kafka.Batch) error
	Registry *registry.Client // that a batch may wait for; nil: none

	// Interval is the least time between commits. Later ones take at most the share Commits of the
	// time. So much later may what was written be seen.
	Interval time.Duration
	Commits  float64

	// OpenProducer stands in for the producers of package kafka; nil: they are used.
	OpenProducer func(ctx context.Context, partition, to int) (Producer, kafka.Committed, error)
}

// Stage is a running stage. Make it with New and call Run once.
type Stage struct {
	cfg          Config
	log          zerolog.Logger
	transactions *kafka.Transactions

	probes   *httpapi.Server // nil: none are served
	listener net.Listener

	during context.Context         // the time of the present consumer
	ends   context.CancelCauseFunc // ends it

	committing parallel.Group // the present consumer's lanes

	mu       sync.Mutex
	consumer *kafka.Consumer // the present one
	lanes    map[int]*lane   // of the partitions that are assigned
	restarts int64
}

// New checks the settings. It does not connect. Run must be called afterwards.
func New(cfg Config, log zerolog.Logger) (*Stage, error) {
	cfg.Consuming.Shared = true
	z := &Stage{cfg: cfg, log: log, lanes: map[int]*lane{}}
	var err error
	if z.transactions, err = kafka.NewTransactions(cfg.Transaction, log); err != nil {
		return nil, err
	}
	if z.cfg.OpenProducer == nil {
		z.cfg.OpenProducer = z.openProducer
	}
	return z, nil
}

func (z *Stage) openProducer(ctx context.Context, partition, to int) (Producer, kafka.Committed, error) {
	p, at, err := z.transactions.Open(ctx, partition, to)
	if errors.Is(err, kafka.ErrNoTransactions) && z.Delivery() == kafka.ByPositions {
		return z.transactions.OpenPositions(ctx, z.Consumer().Member(), partition, to)
	}
	return p, at, err
}

// Delivery is how records and offsets are written; empty: it is not known yet.
func (z *Stage) Delivery() kafka.Delivery { return z.transactions.Delivery() }

// Consumer is the present member of the group, or nil.
func (z *Stage) Consumer() *kafka.Consumer {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.consumer
}

// Run works until ctx ends, which is no error, or until it cannot go on. What has been read is
// committed, and the group is left, before it returns.
func (z *Stage) Run(ctx context.Context) error {
	defer z.transactions.Close()
	work, working := errgroup.WithContext(ctx)
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	if z.probes != nil {
		work.Go(func() error { return z.probes.Serve(serving, z.listener) })
	}
	work.Go(func() error {
		defer end()
		return z.run(working)
	})
	err := work.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// run is a member of the group until ctx ends. After a lost transaction or partition it is another
// member.
func (z *Stage) run(ctx context.Context) error {
	if err := z.transactions.Prepare(ctx, z.topicConfigs); err != nil {
		return err
	}
	for {
		err := z.member(ctx)
		if !errors.Is(err, kafka.ErrTransactionLost) && !errors.Is(err, kafka.ErrOpenAnew) {
			return err
		}
		if ctx.Err() != nil { // as of a last commit that fails (Revoked)
			z.log.Warn().Err(err).Msg("stopping without a last commit: what was not committed is read again")
			return nil
		}
		z.log.Warn().Err(err).Msg("joining the group anew: what was not committed is read again")
		z.mu.Lock()
		z.restarts++
		z.mu.Unlock()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// topicConfigs are Kafka's settings of a topic that is made.
func (z *Stage) topicConfigs(ctx context.Context) (map[string]string, error) {
	configs := map[string]string{"retention.ms": "-1"}
	maps.Copy(configs, z.cfg.TopicConfigs)
	source, err := kafka.ReadRetention(ctx, z.cfg.Consuming.Cluster, z.cfg.Consuming.Topic)
	if err == nil && source.After > 0 {
		configs["retention.ms"] = fmt.Sprint(source.After.Milliseconds())
	}
	return configs, err
}

// member is a member of the group until ctx ends, or until it cannot go on.
func (z *Stage) member(ctx context.Context) error {
	ctx, z.ends = context.WithCancelCause(ctx)
	defer z.ends(nil)
	z.during = ctx
	c, err := kafka.NewConsumer(z.cfg.Consuming, z, z.log)
	if err != nil {
		return err
	}
	z.mu.Lock()
	z.consumer = c
	z.mu.Unlock()
	err = c.Run(ctx)
	failed := context.Cause(ctx) // why a commit has ended it, or that of the caller
	z.ends(nil)
	z.committing.Wait()
	if err == nil && !errors.Is(failed, context.Canceled) {
		err = failed
	}
	return err
}

func (z *Stage) commitNowAndThen(y *lane) {
	if err := y.commitNowAndThen(z.during); err != nil {
		z.ends(fmt.Errorf("partition %d: %w", y.partition, err))
	}
}

// all lists the lanes, by partition.
func (z *Stage) all() (all []*lane) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, y := range z.lanes {
		all = append(all, y)
	}
	slices.SortFunc(all, func(a, b *lane) int { return a.partition - b.partition })
	return all
}

func (z *Stage) lane(partition int) *lane {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.lanes[partition]
}

// Assigned implements kafka.Sink: it opens the partitions' producers, which ends those of whoever
// had the partitions before.
func (z *Stage) Assigned(ctx context.Context, partitions []int) error {
	n, err := z.transactions.Partitions(ctx)
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	for _, p := range partitions {
		work.Go(func() error {
			y, err := z.open(ctx, p, p%n)
			if err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			z.mu.Lock()
			z.lanes[p] = y
			z.mu.Unlock()
			z.committing.Go(func() {
				if !z.committing.Catch(func() { z.commitNowAndThen(y) }) {
					z.ends(nil)
				}
			})
			return nil
		})
	}
	return work.Wait()
}

// Position implements kafka.Sink.
func (z *Stage) Position(partition int) (kafka.Saved, bool) {
	if y := z.lane(partition); y != nil {
		return y.from, y.known
	}
	return kafka.Saved{}, false
}

// Partitions implements kafka.Sink.
func (z *Stage) Partitions() (all []int) {
	for _, y := range z.all() {
		all = append(all, y.partition)
	}
	return all
}

// Deliver implements kafka.Sink.
func (z *Stage) Deliver(ctx context.Context, b *kafka.Batch) error {
	if err := z.cfg.Await(ctx, b); err != nil {
		return err
	}
	return z.lane(b.Partition).take(ctx, b)
}

// Jumped implements kafka.Sink: the operator has allowed a gap.
func (z *Stage) Jumped(gap *kafka.GapError, to int64) {
	warn := z.log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int64("saved", gap.Saved).Int64("to", to)
	if gap.Reset {
		warn.Msg("the topic was made anew: what the records of the former one have become stays in the topic that is written to; make that one anew, too")
	} else {
		warn.Msg("going on after a gap in the log")
	}
	if y := z.lane(gap.Partition); y != nil {
		if err := y.jump(z.during, gap, to); err != nil {
			z.ends(fmt.Errorf("partition %d: %w", gap.Partition, err))
		}
	}
}

// Revoked implements kafka.Sink: it commits what has been read.
func (z *Stage) Revoked(ctx context.Context, partitions []int) {
	var work sync.WaitGroup
	for _, p := range partitions {
		y := z.lane(p)
		if y == nil {
			continue
		}
		work.Go(func() {
			if err := y.end(ctx); err != nil {
				z.log.Warn().Err(err).Int("partition", p).Msg("the last commit failed: what was not committed is read again")
			}
		})
	}
	work.Wait()
	z.mu.Lock()
	for _, p := range partitions {
		delete(z.lanes, p)
	}
	z.mu.Unlock()
}
