// Package summarise is the stage before the daemon: it reads the rows of a topic, and writes what a
// block leaves behind to another one, which daemons learn from.
//
//	rows topic ──> intake.Summing ──> transaction ──> blocks topic ──> streamd run
//	                 │                    └─ offsets of the group
//	                 └──> dead letters
//
//	summarise.go  the stage is made, runs, begins anew and stops
//	lane.go       one partition of the source: its sums, its transactions
//	metrics.go    readiness and metrics
//	files.go      rows of files, in place of a topic
//	table.go      blocks in a file, in place of a topic
//
// A stage keeps nothing: any number of processes are members of one group, and share the
// partitions. What a record becomes depends on its partition alone (package intake, summing.go).
//
// # Exactly once
//
// The records that a partition's rows become are written in transactions, together with the offset
// up to which the rows have been read. Whoever gets the partition opens its transactional producer
// first. That ends the one of the member that had it before, also of one that stood still and
// wakes up: nothing that it writes is seen any more. So no block is written twice, none is left
// out, and an older value of a key never comes after a newer one. A member whose transaction is
// lost joins the group anew.
//
// The text beside the committed offset has what a sum depends on and lies before the offset: the
// event times of the partition's clock, and the last record, by which a topic that was made again
// is recognised.
package summarise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/registry"
)

// Options are the settings of a stage.
type Options struct {
	Config  *config.Config
	To      string // topic of the blocks; it is made if it is missing
	Rows    int    // of a block for the sample; 0: none
	Log     zerolog.Logger
	Version string
}

// CommitInterval is how long what has been written waits for its commit, and so how much later a
// daemon has it. Brokers that take long have it wait longer.
const CommitInterval = 200 * time.Millisecond

// Stage is a running stage. Make it with New and call Run once.
type Stage struct {
	cfg          *config.Config
	to           string
	log          zerolog.Logger
	version      string
	consuming    kafka.Config
	stage        *intake.Stage
	transactions *kafka.Transactions
	openProducer func(ctx context.Context, partition, to int) (producer, kafka.Committed, error)
	letters      *kafka.DeadLetters // nil: dead letters are not written
	listener     net.Listener
	probes       *httpapi.Server

	during context.Context         // the time of the present consumer
	ends   context.CancelCauseFunc // ends it

	registry *registry.Client // of the schemas of messages; nil: there is none

	mu       sync.Mutex
	consumer *kafka.Consumer // the present one
	lanes    map[int]*lane   // of the partitions that are assigned
	restarts int64
}

// New checks the settings and begins to listen. It does not connect. Run must be called afterwards.
func New(o Options) (*Stage, error) {
	cfg := o.Config
	limit, err := memory.Limit(cfg)
	if err != nil {
		return nil, err
	}
	budget := memory.New(cfg, limit)
	asked, err := daemon.Registry(cfg.Format.Registry, o.Log)
	if err != nil {
		return nil, err
	}
	decoding, err := daemon.Decoding(cfg, budget, asked)
	if err != nil {
		return nil, err
	}
	cluster, err := daemon.Cluster(cfg.Kafka, o.Log)
	if err != nil {
		return nil, err
	}
	z := &Stage{cfg: cfg, to: o.To, log: o.Log, version: o.Version, lanes: map[int]*lane{}, registry: asked}
	z.consuming = daemon.ConsumerConfig(cfg.Kafka, cluster, budget)
	z.consuming.Shared = true
	if z.transactions, err = kafka.NewTransactions(kafka.TransactionConfig{
		Cluster: cluster, Source: cfg.Kafka.Topic, Group: cfg.Kafka.Group, Topic: o.To,
	}, o.Log); err != nil {
		return nil, err
	}
	z.openProducer = func(ctx context.Context, partition, to int) (producer, kafka.Committed, error) {
		return z.transactions.Open(ctx, partition, to)
	}
	settings := intake.Settings{Config: cfg, Log: o.Log, Budget: budget, Decoding: decoding}
	if cfg.DeadLetters.Policy == config.DeadLettersQueue {
		z.letters, err = kafka.NewDeadLetters(kafka.DeadLetterConfig{
			Cluster: cluster, Source: cfg.Kafka.Topic, Topic: cfg.DeadLetters.Topic, Connector: "streamd.summarise",
		}, o.Log)
		if err != nil {
			return nil, err
		}
		settings.Letters = z.letters
	}
	z.stage = intake.NewStage(settings, o.Rows)
	guard, err := access.New(cfg.HTTP, o.Log)
	if err != nil {
		return nil, err
	}
	z.probes = httpapi.NewProbes(httpapi.Config{Access: guard, MaxConnections: cfg.HTTP.MaxConnections},
		func() string { return z.notReady(time.Now()) }, collector{z}, o.Log)
	if z.listener, err = net.Listen("tcp", cfg.HTTP.Listen); err != nil {
		return nil, fmt.Errorf("http.listen: %w", err)
	}
	return z, nil
}

// Addr is the address that HTTP is served on.
func (z *Stage) Addr() net.Addr { return z.listener.Addr() }

// Run sums until ctx ends, which is no error, or until it cannot go on. What has been read is
// committed, and the group is left, before it returns.
func (z *Stage) Run(ctx context.Context) error {
	defer z.transactions.Close()
	if z.letters != nil {
		defer z.letters.Close()
	}
	work, summing := errgroup.WithContext(ctx)
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	work.Go(func() error { return z.probes.Serve(serving, z.listener) })
	work.Go(func() error {
		defer end()
		return z.sum(summing)
	})
	err := work.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// sum is a member of the group until ctx ends. After a lost transaction it is another member.
func (z *Stage) sum(ctx context.Context) error {
	if err := z.transactions.EnsureTopic(ctx, z.topicConfigs); err != nil {
		return err
	}
	for {
		err := z.member(ctx)
		if !errors.Is(err, kafka.ErrTransactionLost) {
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

// topicConfigs are Kafka's settings of a topic of blocks that is made. It keeps records as long as
// the source does, whose times they have. With keys it is compacted, as the newest value of each is
// all that counts.
func (z *Stage) topicConfigs(ctx context.Context) (map[string]string, error) {
	configs := map[string]string{"max.message.bytes": fmt.Sprint(int64(z.cfg.Kafka.MaxMessageBytes)), "retention.ms": "-1"}
	source, err := kafka.ReadRetention(ctx, z.consuming.Cluster, z.cfg.Kafka.Topic)
	if err == nil && source.After > 0 {
		configs["retention.ms"] = fmt.Sprint(source.After.Milliseconds())
	}
	if z.cfg.Blocks.Unit == config.UnitKey {
		configs["cleanup.policy"] = "compact"
	}
	return configs, err
}

// member is a member of the group until ctx ends, or until it cannot go on.
func (z *Stage) member(ctx context.Context) error {
	ctx, z.ends = context.WithCancelCause(ctx)
	defer z.ends(nil)
	z.during = ctx
	c, err := kafka.NewConsumer(z.consuming, z, z.log)
	if err != nil {
		return err
	}
	z.mu.Lock()
	z.consumer = c
	z.mu.Unlock()
	var beside sync.WaitGroup
	beside.Go(func() { z.commitNowAndThen(ctx) })
	err = c.Run(ctx)
	failed := context.Cause(ctx) // why a commit has ended it, or that of the caller
	z.ends(nil)
	beside.Wait()
	if err == nil && !errors.Is(failed, context.Canceled) {
		err = failed
	}
	return err
}

func (z *Stage) commitNowAndThen(ctx context.Context) {
	tick := time.NewTicker(CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var work sync.WaitGroup
		for _, y := range z.all() {
			work.Go(func() {
				if err := y.tick(ctx); err != nil {
					z.ends(fmt.Errorf("partition %d: %w", y.partition, err))
				}
			})
		}
		work.Wait()
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
	if err := z.stage.Await(ctx, b); err != nil {
		return err
	}
	return z.lane(b.Partition).take(ctx, b)
}

// Jumped implements kafka.Sink: the operator has allowed a gap.
func (z *Stage) Jumped(gap *kafka.GapError, to int64) {
	warn := z.log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int64("saved", gap.Saved).Int64("to", to)
	if gap.Reset {
		warn.Msg("the topic was made anew: blocks of the former one stay in the models that read the topic of the blocks; make that one anew, too")
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
