// Package daemon is the daemon: it wires the rooms together and is the only
// place where they meet.
//
// # The path of a record
//
//	consumer ──Deliver──> order ─────────────────> loop ──> live set ──> snapshot
//	               └────> work ──> workers ──┘       │          │
//	                          decode, summarise      │          └─> solve ──> served model
//	                                                 └─> dead letters
//
//	sink.go      what the consumer calls
//	intake/      a record becomes a block, and a block a part of the live set
//	loop.go      one goroutine does one thing after the other
//	memory/      limits.memory is divided, and the live set is priced
//	live/        the ledger, the exact sums of every space, the row sample
//	save.go      all of it goes to the snapshot
//	compact.go   what was retired goes from the snapshot's file; where else it can be
//	publish.go   planes are solved, and served
//	study.go     when a study is due; studyjob.go does it, on sums, sample and log
//	basis.go     a basis is chosen; rebuild.go: the way from one epoch to the next
//	sources.go   the blocks that a basis was chosen from, which has to go when one is retired
//	archive/     live blocks come from the log again: for the sample (fill.go), for
//	             an epoch (rebuild.go), for refinement (logrows.go)
//	service.go   what HTTP asks for
//	settings.go  the configuration in the words of the other packages
//
// The consumer delivers the batches of each partition in offset order. Workers
// decode and summarise their records side by side; a summary has one value
// whoever makes it. The loop, one goroutine, takes the deliveries in their
// order and applies them to the live set. It also retires, and starts saves and
// solves, which go on beside it with copies: none of them needs a lock, and whoever
// reads the model waits for nothing: it is an immutable value behind an atomic
// pointer.
//
// Everything in flight is bounded, and all of it together by limits.memory (package memory):
// the bytes that are read by the consumer's budget, deliveries by inOrder, what workers
// make of them by handRoom, unsaved blocks by mostUnsaved and hasRoom. The loop stops
// applying records while the disk is full or slow. A block that there is no memory for
// is rejected before its sums are made.
//
// # Exactly once
//
// State, ledger, counts and the offsets that belong to them are saved in one
// transaction, and reading goes on from there. What was delivered before is
// recognised by its offset. Offsets are committed to the group after a save,
// for whoever watches the lag.
//
// A block that gathers records is saved before it is complete, with two positions:
// reading goes on before its first record, and the state has its records up to another.
// After a restart they are read once more. Until that is done the state stays as it was
// saved, and answers name the offsets that it has (see partition).
//
// # Reading again
//
// What needs rows, which are not kept, reads the live blocks from the log once
// more (rereader): beside this path and without a trace in it.
//
// # Features
//
// Without format.features the features are those of the first block, in the order of
// their names, as long as a block is live; then they are free again. Workers decode
// for the features of the moment, and the loop has what was decoded for others decoded
// again. The pointer to the names tells which features something was made for.
//
// # Epochs
//
// With a kernel, planes are in the coordinates of a basis, and an epoch is the sums
// of the live blocks in them, beside those of their features: see epoch, and
// rebuilding for the way from one to the next. Workers put what arrives into the
// coordinates of both (lifter).
//
// # Studies
//
// A solve is a matter of milliseconds and is done as the live set changes. What
// takes longer, the choice of ν, refinement, calibration and the measurement of
// quality, is made of copies in the background (studyJob), and swapped in whole.
//
// # Start and stop
//
// Start: open the snapshot, restore, listen, start workers and loop, serve,
// and consume last. Stop is the reverse, for these reasons: first the consumer,
// so that nothing new comes; then what is in hand is applied, which needs the
// workers; then the last save and, while the process is still a member of the
// group, the commit; HTTP answers until then, so that a load balancer sees
// "stopping" rather than a refused connection; the store is closed last.
package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/archive"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// Options say what to run.
type Options struct {
	Config  *config.Config
	Log     zerolog.Logger
	Version string
}

// sampledLines is how many lines a second Daemon.sampled writes.
const sampledLines = 10

// Daemon is a running streamd. Make it with New and call Run once.
type Daemon struct {
	cfg      *config.Config
	log      zerolog.Logger
	sampled  zerolog.Logger // log, a few lines a second of what every record may bring
	version  string
	started  time.Time
	logSalt  [32]byte // of keys in the log
	decoding wire.Options
	options  incremental.Options
	memory   *memory.Budget

	store    *snapshot.Store
	consumer *kafka.Consumer
	archive  *archive.Archive
	letters  *kafka.DeadLetters
	metrics  *httpapi.Metrics
	api      *httpapi.Server
	listener net.Listener
	resumes  map[int]kafka.Saved // what was saved of partitions, for the consumer
	former   string              // of the group's member that had the snapshot before

	calls    chan func()
	solved   chan solved
	studied  chan *studyJob
	saved    chan saveEnd
	commits  chan map[int]int64
	loopDone chan struct{}
	stopping chan struct{} // closed: nothing more is read
	stop     context.CancelCauseFunc

	published atomic.Pointer[publication]

	hasCaughtUp atomic.Bool // once no more than http.ready_lag was left to read

	mu      sync.Mutex
	status  httpapi.Status
	offsets map[int]int64 // the next offset of each partition; replaced, never changed

	// What follows belongs to the loop.
	live         *live.Set
	intake       *intake.Intake
	filling      filling
	studying     studying
	rebuilding   rebuilding
	background   context.Context // of what the loop starts; ends with it
	ends         sync.WaitGroup  // of what it starts but for saves, solves and studies
	changed      bool            // since the last solve
	solving      bool
	solvedOnce   bool // since the start
	servedBy     *studyJob
	lastSolve    time.Time
	unsavedSince time.Time     // zero: nothing is unsaved
	copyTook     time.Duration // the last time that the sums were copied for a solve
	lastSaveTry  time.Time
	saveTook     time.Duration
	delivered    time.Time // when the last batch was applied
	lastSave     httpapi.SnapshotInfo
	saving       *saving // on its way; nil: none is
	saveProblem  error   // of the last try
	missed       int64   // explicit retirements that the snapshot does not have

	compaction     *compaction // under way; nil: none is
	compactProblem error       // of the last try
	lastCompaction time.Time   // when the last try began
	failure        error       // why the daemon is stopping
}

// New opens the snapshot, restores the state and begins to listen. Call Run
// afterwards, which closes all of it.
func New(o Options) (d *Daemon, err error) {
	cfg := o.Config
	if d, err = newDaemon(o); err != nil {
		return nil, err
	}
	d.memory.TellRuntime()
	d.log.Info().Str("limit", memory.Size(float64(d.memory.Limit))).Str("for_the_live_set", memory.Size(d.memory.Room())).
		Str("largest_message", memory.Size(float64(d.memory.Message))).Msg("memory is divided")
	cluster, err := Cluster(cfg.Kafka)
	if err != nil {
		return nil, err
	}
	if cfg.DeadLetters.Policy == config.DeadLettersQueue {
		d.letters, err = kafka.NewDeadLetters(kafka.DeadLetterConfig{
			Cluster: cluster, Source: cfg.Kafka.Topic, Topic: cfg.DeadLetters.Topic, Connector: "streamd." + cfg.Model.Name,
		}, o.Log)
		if err != nil {
			return nil, err
		}
	}
	d.consumer, err = kafka.NewConsumer(consumerConfig(cfg.Kafka, cluster, d.memory), d, o.Log)
	if err != nil {
		return nil, err
	}
	if err := d.restore(); err != nil {
		return nil, err
	}
	if d.archive, err = d.newArchive(); err != nil {
		return nil, errors.Join(err, d.store.Close())
	}
	d.updateStatus()
	guard, err := access.New(cfg.HTTP, o.Log)
	if err != nil {
		return nil, errors.Join(err, d.store.Close())
	}
	d.api = httpapi.New(httpapi.Config{
		Access:       guard,
		Origins:      cfg.HTTP.CORSOrigins,
		Rows:         d.decoding,
		MaxBodyBytes: d.memory.Body,
		MaxRows:      cfg.HTTP.MaxRows,

		MaxConnections: cfg.HTTP.MaxConnections,
		Memory:         d.memory.Predict,
	}, d, d.metrics, o.Log)
	if d.listener, err = net.Listen("tcp", cfg.HTTP.Listen); err != nil {
		return nil, errors.Join(fmt.Errorf("http.listen: %w", err), d.store.Close())
	}
	return d, nil
}

// newDaemon makes a daemon without a snapshot, a broker and a listener.
func newDaemon(o Options) (d *Daemon, err error) {
	cfg := o.Config
	d = &Daemon{
		cfg:      cfg,
		log:      o.Log,
		sampled:  o.Log.Sample(&zerolog.BurstSampler{Burst: sampledLines, Period: time.Second}),
		version:  o.Version,
		started:  time.Now(),
		options:  modelOptions(cfg.Model),
		metrics:  httpapi.NewMetrics(),
		calls:    make(chan func()),
		solved:   make(chan solved, 1),
		studied:  make(chan *studyJob, 1),
		saved:    make(chan saveEnd, 1),
		commits:  make(chan map[int]int64, 1),
		loopDone: make(chan struct{}),
		stopping: make(chan struct{}),
		saveTook: quiet, // nobody knows yet, and what is saved first is least worth it
	}
	rand.Read(d.logSalt[:]) // it never fails
	d.lastSaveTry = d.started
	d.studying.ended = d.started
	limit, err := memory.Limit(cfg)
	if err != nil {
		return nil, err
	}
	d.memory = memory.New(cfg, limit)
	if d.decoding, err = decodingOptions(cfg); err != nil {
		return nil, err
	}
	d.decoding.Limits.Bytes, d.decoding.Limits.Numbers = d.memory.Message, d.memory.Largest
	return d, nil
}

// Addr is the address that HTTP is served on.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// restore opens the snapshot and takes up what it contains.
func (d *Daemon) restore() (err error) {
	path := d.cfg.Snapshot.File
	key, err := SnapshotKey(d.cfg.Snapshot, d.log)
	if err != nil {
		return err
	}
	store, saved, err := key.Open(path, snapshot.Settings{Topic: d.cfg.Kafka.Topic, Unit: unit(d.cfg.Blocks)})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("restore from %s: %w", path, err), store.Close())
		}
	}()
	d.store = store
	live, retired, err := live.Open(store, saved, d.cfg, d.memory, d.log)
	if err != nil {
		return err
	}
	d.live = live
	d.intake = intake.New(intake.Settings{
		Config: d.cfg, Log: d.log, Sampled: d.sampled, Live: live, Budget: d.memory, Decoding: d.decoding, Letters: d.letters,
		Served: d.servedOf, HasRoom: d.hasRoom, Logged: d.logged, Freed: d.featuresFreed,
		Ahead: d.metrics.RecordsAhead, TooOld: d.metrics.BlocksRefused,
	})
	if saved.Member.Group == d.cfg.Kafka.Group {
		d.former = saved.Member.ID
	}
	d.resumes = d.intake.Restore(saved)
	d.intake.CountRetired(retired)
	d.lastSave.MadeAt = saved.SavedAt
	if d.missed = saved.Missed; d.missed > 0 {
		d.log.Warn().Str("file", path).Int64("missed", d.missed).Time("last", saved.LastRetired).Msg(missedRetirements)
	}
	d.changed = true
	first := &model.Served{
		Problem: "starting",
		Rows:    d.live.Rows(),
		Blocks:  d.live.Blocks(),
		Digest:  d.live.Digest(),
		Offsets: d.intake.Applied(),
		MadeAt:  d.started.UTC(),
	}
	first.Fingerprint = model.Fingerprint(first)
	d.published.Store(&publication{served: first, replaced: make(chan struct{})})
	d.log.Info().Str("file", path).Int("blocks", d.live.Blocks()).Int64("rows", d.live.Rows()).
		Str("state_digest", d.live.Digest()).Msg("snapshot opened")
	return nil
}

// SnapshotKey reads the key of the snapshot; nil: there is none.
func SnapshotKey(c config.Snapshot, log zerolog.Logger) (*snapshot.Key, error) {
	if c.KeyFile == "" {
		return nil, nil
	}
	key, loose, err := snapshot.ReadKey(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("snapshot.key_file: %w", err)
	}
	if loose {
		log.Warn().Str("file", c.KeyFile).Msg("others than its owner can read or change the snapshot's key: chmod 600 it")
	}
	return key, nil
}

// missedRetirements says what it means that a snapshot has missed some.
const missedRetirements = "the snapshot is older than the last retirement that was saved, or new: blocks that were forgotten may be live again; retire them once more (tombstones that the log still has count again by themselves)"

// Run serves, consumes and learns until ctx ends, which is no error, or until
// it cannot go on. Either way everything that was read by then is applied and
// saved, unless that takes longer than shutdown_timeout: what is not saved is
// read again at the next start.
func (d *Daemon) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.store.Close()) }()
	consuming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d.stop = stop
	context.AfterFunc(consuming, func() { close(d.stopping) })
	// Dead letters may still be written while the rest is applied.
	applying, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()

	var http errgroup.Group
	http.Go(func() error {
		err := d.api.Serve(serving, d.listener)
		if err != nil {
			stop(fmt.Errorf("serve HTTP: %w", err))
		}
		return err
	})
	d.log.Info().Stringer("address", d.listener.Addr()).Msg("serving HTTP")

	var workers sync.WaitGroup
	for range d.cfg.Workers {
		workers.Go(func() { d.intake.Work(applying) })
	}
	var loop errgroup.Group
	loop.Go(func() error {
		defer close(d.loopDone)
		return d.loop(applying)
	})
	committing := make(chan struct{})
	go func() {
		defer close(committing)
		for next := range d.commits {
			d.commit(applying, next)
		}
	}()

	defer context.AfterFunc(consuming, func() {
		time.AfterFunc(d.cfg.ShutdownTimeout, func() {
			abandon(fmt.Errorf("stopping takes longer than shutdown_timeout, %s", d.cfg.ShutdownTimeout))
		})
	})()
	next := map[int]int64{}
	for number, saved := range d.resumes {
		next[number] = saved.Next
	}
	d.commit(applying, next) // the group is told when it is joined
	failed := d.consumer.Run(consuming)
	d.intake.Close() // the consumer has returned from every Deliver
	workers.Wait()
	// The loop's error says why it stopped the consumer, so it comes first.
	err = loop.Wait()
	if err == nil {
		err = failed
	}
	if cause := context.Cause(consuming); err == nil && ctx.Err() == nil && cause != nil {
		err = cause
	}
	d.archive.Close() // the loop has ended what used it
	close(d.commits)
	<-committing
	if d.letters != nil {
		d.letters.Close()
	}
	stopServing()
	if failed := http.Wait(); err == nil {
		err = failed
	}
	d.log.Info().Msg("stopped")
	return err
}
