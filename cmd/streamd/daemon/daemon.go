// Package daemon is the daemon: it wires the rooms together and is the only
// place where they meet.
//
// # The path of a record
//
//	consumer ──Deliver──> order ─────────────────> loop ──> live set ──> snapshot
//	               └────> tasks ──> workers ──┘      │          │
//	                          decode, summarise      │          └─> solve ──> served model
//	                                                 └─> dead letters
//
//	sink.go        the consumer's calls
//	intake/        a record becomes a block, and a block a part of the live set
//	live/          the ledger, the exact sums of every space, the row sample
//	memory/        limits.memory is divided, and the live set is priced
//	passes/        live blocks come from the log again
//	core.go        state that the parts of the loop share
//	jobs.go        work beside the loop, its failures, and the way into the loop
//	loop.go        one goroutine does one thing after the other
//	receipts.go    blocks that leave or come back have a leaf in the log of receipts
//	witness/       witnesses cosign that log
//	retention.go   how long the log keeps records, for those who retire them
//	replaying.go   the topic is read again without a daemon, to check a snapshot
//	saver.go       the state goes to the snapshot, and retired blocks leave its file
//	publisher.go   planes are solved, and served
//	studying.go    when a study is due; studyjob.go does it, on sums, sample and log (logrows.go)
//	labelling.go   which rows should be labelled next
//	filling.go     the sample is given rows that it lacks
//	rebuilding.go  the way from one basis to the next; basis.go chooses one
//	refeaturing.go the way from one set of features to the next
//	reread.go      the loop takes blocks that were read again
//	watching.go    drift of the stream is found, and events are told
//	recording.go   samples of the status go into the history of the page
//	windows.go     the models of windows of the live blocks
//	service.go     the calls of HTTP
//	retiring.go    blocks are retired on request
//	slicing.go     many blocks leave in slices, between deliveries
//	places.go      where rows of blocks can be, and when blocks leave there
//	control/       the control topic, which retires blocks as long as it says so
//	withdrawing.go the loop follows it
//	watchdog.go    a stop that hangs ends, too
//	settings.go    the configuration in the words of the other packages
//
// Workers decode and summarise records side by side (package intake). The loop, one
// goroutine, applies the results in the order of the log. It also retires, and begins jobs,
// which work beside it on copies: none of them needs a lock. A reader of the model waits
// for nothing: the model is an immutable value behind an atomic pointer.
//
// Everything in flight is bounded, and all of it together by limits.memory (package
// memory). The loop stops applying records while the disk is full or slow.
//
// # The path of a retirement
//
//	ask ─────> choose ─────> takePlaces ──> takeSums ──> save ──────> retired ──> scrub
//	loop       caller        loop, in slices             its job      loop        a job, later
//
// A request (retiring.go) is about the blocks of the moment at which the loop takes it: ask ends
// the open ones. The caller's goroutine chooses among them. Then the blocks leave, in slices
// between which deliveries are applied: first the ledger, so that no policy and no record counts
// them any more, then, each slice with a leaf of the log, the sums, folds, sample, spaces, weights,
// timeline and tree. One save has all slices and all leaves. After it the caller is answered, and
// the next solve and study make a model without the blocks, which names the leaves
// (receipts.stamp). The file's free pages lose the rows by a compaction, and a basis that has
// points of theirs is chosen again. A tombstone, the control topic and the policy come in by
// other ways (intake, withdrawing.go, the ledger), and take the same steps in package live: note
// what leaves, take it out of everything, and give the save the contents of its leaves. places.go
// has all places, and what an answer and a leaf say of each.
//
// # Words
//
//	block        rows that come, and leave, together
//	live set     the blocks that the model is made of
//	features     the columns of a row
//	basis        points Z, which give a row the coordinates K(x, Z)
//	coordinates  what the columns of a space are: the features, or those of a basis
//	space        the sums of the live blocks in some coordinates
//	target       the spaces that workers make summaries for
//	reduction    the choice of a basis
//	rebuild      the way of the live blocks into the space of a new basis
//	epoch        the time of the space in use
//	archive      summaries of blocks that the policy has let go
//	pass         live blocks are read from the log again
//
// # Exactly once
//
// State, ledger, counts and the offsets that belong to them are saved in one transaction,
// and a restart reads from these offsets. A record that was delivered before is
// recognised by its offset. Offsets are committed to the group after a save, so that lag
// can be monitored.
//
// A block that gathers records is saved before it is complete, with two positions.
// Reading continues before its first record, and the state includes its records up to the
// second position. After a restart they are read again. Until then the state stays as it
// was saved, and answers name the offsets that it includes.
//
// # Spaces
//
// With a kernel, planes are in the coordinates of a basis. Its space has the sums of the
// live blocks in them, beside those of their features (package live). Workers put new
// blocks into the space in use and into the one that is being built. An epoch is the time
// of one space.
//
// # Studies
//
// A solve takes milliseconds and is repeated as the live set changes. The choice of ν,
// refinement, calibration and the measurement of quality take longer. A study does them on
// copies, and its result is served as a whole.
//
// # Start and stop
//
// Start: open the snapshot, restore, listen, start workers and loop, serve, read the control
// topic up to its end, and consume last. Stop is the reverse. The consumer stops first, so
// that nothing new comes. Then pending deliveries are applied, which needs the workers. Then
// comes the last save and, while the process is still a member of the group, the commit. HTTP
// answers until then, so that a load balancer sees "stopping" and not a refused connection.
// The store is closed last.
package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/events"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/daemon/witness"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// Options are the settings of a daemon.
type Options struct {
	Config  *config.Config
	Log     zerolog.Logger
	Version string

	events   *events.Log     // of the daemon that this one succeeds, or nil
	problems *problems.Board // of the daemon that this one succeeds, or nil
	serving  *serving        // of the daemon that this one succeeds, or nil
	notUntil time.Time       // when a change of features that could not be completed is tried again
}

// sampledLines is the number of lines a second that Daemon.sampled writes.
const sampledLines = 10

// Daemon is a running streamd. Make it with New and call Run once.
type Daemon struct {
	*core
	version  string
	started  time.Time
	sampled  zerolog.Logger // log, limited to a few lines a second, for events that every record may cause
	decoding wire.Options

	consumer *kafka.Consumer
	letters  *kafka.DeadLetters
	api      *httpapi.Server
	serving  *serving
	resumes  map[int]kafka.Saved // the saved positions of partitions, for the consumer
	former   string              // the group's member that had the snapshot before

	// The parts of the loop.
	saver       *saver
	receipts    *receipts
	witnesses   *witness.Witnesses
	retention   *retention
	publisher   *publisher
	studying    *studying
	withdrawing *withdrawing
	filling     *filling
	rebuilding  *rebuilding
	refeaturing *refeaturing // nil: the features stay
	watching    *watching
	archiving   archiving

	recorder  *recorder
	watchdog  *watchdog
	board     statusBoard
	labelling sync.Mutex // one caller at a time gets label requests
	windows   windowCache
}

// statusBoard is the status that the loop has published.
type statusBoard struct {
	mu            sync.Mutex
	status        httpapi.Status
	offsets       map[int]int64 // the next offset of each partition; replaced, never changed
	notReadySince time.Time     // zero: it is ready
	hasCaughtUp   atomic.Bool   // at most http.ready_lag records were left to read at some time
}

// New opens the snapshot, restores the state and begins to listen. Run must be called
// afterwards, which closes everything.
func New(o Options) (d *Daemon, err error) {
	cfg := o.Config
	if d, err = newDaemon(o); err != nil {
		return nil, err
	}
	d.memory.TellRuntime()
	d.log.Info().Str("limit", memory.Size(float64(d.memory.Limit))).Str("for_the_live_set", memory.Size(d.memory.Room())).
		Str("largest_message", memory.Size(float64(d.memory.Message))).Msg("memory is divided")
	cluster, err := Cluster(cfg.Kafka, o.Log)
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
	if err := d.restore(o); err != nil {
		return nil, err
	}
	opened := d
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if err := d.receipts.lock(); err != nil {
		return nil, err
	}
	if d.topic, err = d.openTopic(); err != nil {
		return nil, err
	}
	d.updateStatus()
	guard, err := access.New(cfg.HTTP, o.Log)
	if err != nil {
		return nil, err
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
	if d.serving = o.serving; d.serving == nil {
		if d.serving, err = newServing(d.api, cfg.HTTP.Listen); err != nil {
			return nil, fmt.Errorf("http.listen: %w", err)
		}
	}
	return d, nil
}

// newDaemon makes a daemon without a snapshot, a broker and a listener.
func newDaemon(o Options) (d *Daemon, err error) {
	cfg := o.Config
	now := time.Now()
	c := &core{
		cfg: cfg, log: o.Log,
		jobs: newJobs(o.Log, httpapi.NewMetrics()), stopping: make(chan struct{}),
		slicing: slicing{least: leastSlice, most: mostSlice},
	}
	limit, err := memory.Limit(cfg)
	if err != nil {
		return nil, err
	}
	c.memory = memory.New(cfg, limit)
	if c.learner, err = learning.New(cfg, c.memory.Values, o.Log); err != nil {
		return nil, err
	}
	rand.Read(c.logSalt[:]) // never fails
	w := newSaver(c, now)
	p := w.publisher
	y := &studying{core: c, publisher: p, ended: now}
	d = &Daemon{
		core: c, version: o.Version, started: now,
		sampled: o.Log.Sample(&zerolog.BurstSampler{Burst: sampledLines, Period: time.Second}),
		saver:   w, publisher: p, studying: y, filling: &filling{core: c},
		withdrawing: newWithdrawing(c, w, y),
		rebuilding:  &rebuilding{core: c, saver: w, studying: y, started: now},
		archiving:   archiving{core: c},
	}
	d.retention = &retention{core: c}
	d.receipts = w.receipts
	d.receipts.retention = d.retention
	d.receipts.version = o.Version
	d.watching = w.watching
	d.watching.publisher, d.watching.events, d.watching.assigned = p, o.events, d.assigned
	if d.watching.events == nil {
		d.watching.events = events.New(now)
	}
	if c.problems = o.problems; c.problems == nil {
		c.problems = problems.New(o.Log, d.watching.events.Add)
	}
	d.withdrawing.windows, d.withdrawing.events, d.receipts.events = &d.windows, d.watching.events, d.watching.events
	d.decoding, err = d.decodingOf(cfg)
	return d, err
}

// decodingOf is the decoding of payloads under a configuration.
func (d *Daemon) decodingOf(cfg *config.Config) (wire.Options, error) {
	o, err := decodingOptions(cfg)
	o.Limits.Bytes, o.Limits.Numbers = d.memory.Message, d.memory.Largest
	return o, err
}

// Addr is the address that HTTP is served on.
func (d *Daemon) Addr() net.Addr { return d.serving.listener.Addr() }

// restore opens the snapshot and restores its state.
func (d *Daemon) restore(o Options) (err error) {
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
	was := live.FormerFeatures(saved, d.cfg.Format)
	if was != nil {
		d.cfg = inFeatures(d.cfg, was)
		d.learner = d.learner.With(d.cfg)
		if d.decoding, err = d.decodingOf(d.cfg); err != nil {
			return err
		}
	}
	if err := d.receipts.open(store, saved); err != nil {
		return err
	}
	if d.witnesses, err = witness.New(d.cfg.Receipts, d.log, store, saved.Log); err != nil {
		return err
	}
	d.receipts.witnesses = d.witnesses
	live, retired, err := live.Open(store, saved, d.cfg, d.memory, d.log)
	if err != nil {
		return err
	}
	d.live = live
	if key := d.receipts.key; key != nil {
		if err = live.KeepReceipts(key); err != nil {
			return err
		}
	}
	d.recorder = newRecorder(d.log, store, d.memory.Limit, saved.History)
	d.intake = intake.New(intake.Settings{
		Config: d.cfg, Log: d.log, Sampled: d.sampled, Live: live, Budget: d.memory, Decoding: d.decoding, Letters: d.letters,
		Served: d.publisher.servedOf, HasRoom: d.saver.hasRoom, Logged: d.logged, Freed: d.rebuilding.featuresFreed,
		Ahead: d.metrics.RecordsAhead, TooOld: d.metrics.BlocksRefused,
	})
	if saved.Member.Group == d.cfg.Kafka.Group {
		d.former = saved.Member.ID
	}
	d.resumes = d.intake.Restore(saved)
	d.receipts.begin(saved)
	d.watching.restore(saved.Detectors)
	if err := d.withdrawing.restore(saved.Offsets); err != nil {
		return err
	}
	d.intake.CountRetired(retired)
	d.saver.info.MadeAt = saved.SavedAt
	d.saver.learning = d.learner.Saved()
	d.saver.unsettled = len(saved.Entries) > 0 && !bytes.Equal(saved.Learning, d.saver.learning)
	if d.saver.missed = saved.Missed; saved.Missed > 0 {
		d.log.Warn().Str("file", path).Int64("missed", saved.Missed).Time("last", saved.LastRetired).Msg("the snapshot lacks retirements")
	}
	d.publisher.changed = true
	first := &model.Served{
		Problem: "starting",
		Rows:    d.live.Rows(),
		Blocks:  d.live.Blocks(),
		Digest:  d.live.Digest(),
		Offsets: d.intake.Applied(),
		MadeAt:  d.started.UTC(),
		Durable: true,
	}
	first.Fingerprint = first.Identity().Fingerprint()
	d.publisher.published.Store(&publication{served: first, replaced: make(chan struct{})})
	d.log.Info().Str("file", path).Int("blocks", d.live.Blocks()).Int64("rows", d.live.Rows()).
		Str("state_digest", d.live.Digest()).Msg("snapshot opened")
	if was == nil { // a change is complete, or no longer wanted
		if err := os.Remove(changePath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	d.refeaturing, err = newRefeaturing(d, o, was)
	return err
}

// SnapshotKey reads the key of the snapshot. It is nil if none is configured.
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

// missedRetirements explains that a snapshot lacks retirements.
const missedRetirements = "the snapshot is older than the last retirement that was saved, or new: blocks that were forgotten may be live again"

// Run serves, consumes and learns until ctx ends, which is no error, or until it cannot
// continue. Either way everything read by then is applied and saved. If that takes longer
// than shutdown_timeout, the rest is read again at the next start. After a change of
// features another Daemon continues.
//
// It returns at shutdown_timeout after the stop has begun, whatever hangs. Then it leaves
// goroutines behind, which the log names, and the process has to end.
func (d *Daemon) Run(ctx context.Context) error {
	w, log := newWatchdog(d.cfg.ShutdownTimeout), d.log
	d.watchdog = w
	defer context.AfterFunc(ctx, w.begin)()
	ended := make(chan error, 1)
	go func() { ended <- d.runAll(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-w.late:
	}
	select {
	case err := <-ended:
		return err
	default:
		return errors.Join(w.cause(), w.names(log))
	}
}

// runAll runs the daemon and its successors.
func (d *Daemon) runAll(ctx context.Context) error {
	for {
		successor, err := d.run(ctx)
		if successor == nil {
			return err
		}
		successor.watchdog = d.watchdog
		d = successor
	}
}

// run runs this daemon until it ends. It returns the successor to run next, if there is
// one.
func (d *Daemon) run(ctx context.Context) (successor *Daemon, err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	consuming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d.stop = stop
	context.AfterFunc(consuming, func() {
		if cause := context.Cause(consuming); !errors.Is(cause, errOtherFeatures) { // a successor goes on
			if cause != context.Canceled {
				d.watchdog.reason.Store(&cause)
			}
			d.watchdog.begin()
		}
		close(d.stopping)
	})
	// Dead letters may still be written while the rest is applied.
	applying, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	if d.serving.first == d.api {
		if err := d.witnesses.Check(ctx, d.receipts.key); err != nil {
			return nil, errors.Join(fmt.Errorf("receipts.witnesses: %w", err), d.serving.listener.Close())
		}
		d.serving.begin(ctx)
		d.log.Info().Stringer("address", d.Addr()).Msg("serving HTTP")
	} else {
		go d.serving.takeOver(consuming, d)
	}
	go func() {
		select {
		case <-d.serving.ended:
			stop(fmt.Errorf("serve HTTP: %w", d.serving.err))
		case <-consuming.Done():
		}
	}()

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
		for next := range d.saver.commits {
			d.commit(applying, next)
		}
	}()

	var recording sync.WaitGroup
	recordingCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	recording.Go(func() { d.keep(recordingCtx, taskHistory, func() { d.recorder.run(recordingCtx, d) }) })

	defer context.AfterFunc(consuming, func() {
		time.AfterFunc(time.Duration(shareOfStop*float64(d.cfg.ShutdownTimeout)), func() {
			abandon(fmt.Errorf("stopping takes longer than shutdown_timeout, %s", d.cfg.ShutdownTimeout))
		})
	})()
	next := map[int]int64{}
	for number, saved := range d.resumes {
		next[number] = saved.Next
	}
	d.commit(applying, next)                           // committed when the consumer joins the group
	unfollow := d.withdrawing.follow(consuming, stop)  // before anything is read that must not come back
	asking, endAsking := context.WithCancel(consuming) // a consumer that fails ends it, too
	unwitness := d.witnesses.Follow(asking, func(run func()) { d.keep(asking, taskWitness, run) })
	var retention sync.WaitGroup
	retention.Go(func() { d.keep(asking, taskRetention, func() { d.retention.follow(asking) }) })
	failed := d.consumer.Run(consuming)
	unfollow()
	endAsking()
	unwitness()
	retention.Wait()
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
	d.topic.Close() // the loop has ended the passes
	close(d.saver.commits)
	<-committing
	stopRecording()
	recording.Wait()
	if d.letters != nil {
		d.letters.Close()
	}
	if errors.Is(err, errOtherFeatures) {
		if successor, err = d.succeed(ctx, applying); successor != nil {
			return successor, nil
		}
	}
	if failed := d.serving.end(); err == nil {
		err = failed
	}
	d.log.Info().Msg("stopped")
	return nil, err
}

// close closes the files. The snapshot is the last: a daemon that waits for it finds the others
// free.
func (d *Daemon) close() error {
	return errors.Join(d.refeaturing.close(), d.receipts.unlock(), d.store.Close())
}

// succeed completes the change of features and opens the successor. If the change cannot be
// completed, the successor is a daemon like d, which tries again.
func (d *Daemon) succeed(ctx, applying context.Context) (*Daemon, error) {
	r := d.refeaturing
	o := r.options
	o.serving, o.events, o.problems, o.notUntil = d.serving, d.watching.events, d.problems, time.Time{}
	if err := r.complete(applying); err != nil {
		d.log.Error().Err(err).Msg("the features could not be changed; it will be tried again")
		o.notUntil = time.Now().Add(afterFailure)
	}
	if err := d.close(); err != nil || ctx.Err() != nil {
		return nil, err
	}
	return New(o)
}

// openTopic opens the log for passes. The caller closes it.
func (d *Daemon) openTopic() (*passes.Log, error) {
	cluster, err := Cluster(d.cfg.Kafka, d.log)
	if err != nil {
		return nil, err
	}
	return passes.New(passes.Settings{
		Config: d.cfg, Log: d.log, Budget: d.memory, Cluster: cluster, Fetching: bounded(d.memory, Fetching(d.cfg.Kafka), d.memory.Reread),
		Decoding: d.decoding, Target: d.live.Target, StillLive: d.stillLive,
	})
}

// stillLive returns those of the blocks that are unchanged in the set.
func (d *Daemon) stillLive(ctx context.Context, blocks []live.Unread) ([]live.Unread, error) {
	return inLoop(ctx, d.jobs, func() (still []live.Unread, _ error) {
		for _, u := range blocks {
			if e, ok := d.live.Find(u.ID); ok && e == u.Entry {
				still = append(still, u)
			}
		}
		return still, nil
	})
}
