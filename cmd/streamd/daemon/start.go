package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/events"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/joining"
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
)

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
	d.consumer, err = kafka.NewConsumer(ConsumerConfig(cfg.Kafka, cluster, d.memory), d, o.Log)
	if err != nil {
		return nil, err
	}
	if err := d.restore(o); err != nil {
		return nil, err
	}
	if d.labels != nil {
		if err := d.labels.connect(d, cluster); err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.intake.LabelPartitions = d.labels.partitions
		if d.labels.letters != nil {
			d.intake.LabelLetters = d.labels.letters
		}
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
	if cfg.Remembers() {
		d.remembering = newRemembering(d.core, d.decoding)
	}
	if cfg.Predict.Topic != "" {
		d.predicting = &predicting{core: d.core, served: d.Served, decoding: d.decoding, remembering: d.remembering}
		d.metrics.Add(d.predicting)
	}
	if cfg.Model.Topic != "" {
		d.announcing = &announcing{core: d.core, served: d.Served}
	}
	d.updateStatus()
	guard, err := access.New(cfg.HTTP, o.Log)
	if err != nil {
		return nil, err
	}
	api := httpapi.Config{
		Access:       guard,
		Origins:      cfg.HTTP.CORSOrigins,
		Rows:         d.decoding,
		Name:         cfg.Model.Name,
		Topics:       d.topics(),
		MaxBodyBytes: d.memory.Body,
		MaxRows:      cfg.HTTP.MaxRows,

		MaxConnections: cfg.HTTP.MaxConnections,
		Memory:         d.memory.Predict,
	}
	if d.remembering != nil {
		api.Remember, api.IDField = d.remembering, cfg.Labels.ID
	}
	d.api = httpapi.New(api, d, d.metrics, o.Log)
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
		core: c, options: o, version: o.Version, started: now,
		sampled: o.Log.Sample(&zerolog.BurstSampler{Burst: sampledLines, Period: time.Second}),
		saver:   w, publisher: p, studying: y, filling: &filling{core: c},
		withdrawing: newWithdrawing(c, w, y),
		rebuilding:  &rebuilding{core: c, saver: w, studying: y, started: now},
		archiving:   archiving{core: c},
	}
	d.retention = &retention{core: c}
	d.receipts = w.receipts
	d.receipts.retention, d.receipts.lists = d.retention, &d.lists
	d.receipts.version = o.Version
	d.watching = w.watching
	d.watching.publisher, d.watching.events, d.watching.partitions = p, o.events, d.partitions
	if d.watching.events == nil {
		d.watching.events = events.New(now)
	}
	if c.problems = o.problems; c.problems == nil {
		c.problems = problems.New(o.Log, d.watching.events.Add)
	}
	d.withdrawing.rebuilding, d.rebuilding.hasCaughtUp = d.rebuilding, &d.board.hasCaughtUp
	d.rebuilding.shared.later = time.Duration(d.logSalt[0]) * notWhole / 256
	d.withdrawing.windows, d.withdrawing.events, d.receipts.events = &d.windows, d.watching.events, d.watching.events
	if c.registry, err = Registry(cfg.Format.Registry, o.Log); err != nil {
		return nil, err
	}
	d.decoding, err = Decoding(cfg, d.memory, c.registry)
	return d, err
}

// restore opens the snapshot and restores its state.
func (d *Daemon) restore(o Options) (err error) {
	path := d.cfg.Snapshot.File
	store, saved, err := openSnapshot(&o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("restore from %s: %w", path, err), store.Close())
		}
	}()
	d.store = store
	settings, err := savedSettings(saved)
	if err != nil {
		return err
	}
	if err := d.useLists(&o, settings); err != nil {
		return err
	}
	former := settings.Format.Schema
	was := formerFeatures(saved, former, d.cfg.Format)
	if was != nil && d.cfg.Labels.Topic != "" {
		return errors.New("the features are others than those of the snapshot, and with labels.topic they cannot change: set format.features or format.schema back, or begin anew with another snapshot.file")
	}
	if was != nil {
		d.cfg = inFeatures(d.cfg, was, former)
		d.learner = d.learner.With(d.cfg)
		if d.decoding, err = Decoding(d.cfg, d.memory, d.registry); err != nil {
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
	if d.labels, err = newLabels(d.core, saved); err != nil {
		return err
	}
	var later *joining.Table
	if d.labels != nil {
		later = d.labels.table
	}
	d.recorder = newRecorder(d.log, store, d.memory.Limit, saved.History)
	d.intake = intake.New(intake.Settings{
		Config: d.cfg, Log: d.log, Sampled: d.sampled, Live: live, Budget: d.memory, Decoding: d.decoding, Letters: d.letters,
		Partitions: d.partitionsEver, Labels: later,
		Served: d.publisher.servedOf, HasRoom: d.saver.hasRoom, Logged: d.logged, Freed: d.rebuilding.featuresFreed,
		Ahead: d.metrics.RecordsAhead, TooOld: d.metrics.BlocksRefused,
	})
	d.resumes = d.intake.Restore(saved)
	if d.labels != nil {
		d.labels.resumes = d.intake.LabelPositions()
	}
	d.receipts.begin(saved)
	d.watching.restore(saved.Detectors)
	if err := d.withdrawing.restore(saved.Offsets); err != nil {
		return err
	}
	d.rebuilding.shared.retract = d.cfg.Kernel.Function == config.KernelNone && len(saved.Spaces) > 1
	d.intake.CountRetired(retired)
	d.saver.info.MadeAt = saved.SavedAt
	if was == nil { // they are in use
		d.lists.saved.Wanted = nil
	}
	d.saver.learning = d.learner.Saved(d.lists.saved)
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
	d.commit(applying, next)                           // committed when the consumer has its partitions
	unfollow := d.withdrawing.follow(consuming, stop)  // before anything is read that must not come back
	asking, endAsking := context.WithCancel(consuming) // a consumer that fails ends it, too
	unwitness := d.witnesses.Follow(asking, func(run func()) { d.keep(asking, taskWitness, run) })
	var retention sync.WaitGroup
	retention.Go(func() { d.keep(asking, taskRetention, func() { d.retention.follow(asking) }) })
	unlabel := d.labels.follow(consuming, stop) // before the rows that wait for them
	var answering sync.WaitGroup
	if d.predicting != nil {
		answering.Go(func() { d.keep(asking, taskPredict, func() { d.predicting.run(asking) }) })
	}
	if d.announcing != nil {
		answering.Go(func() { d.keep(asking, taskAnnounce, func() { d.announcing.run(asking) }) })
	}
	if d.remembering != nil {
		answering.Go(func() { d.keep(asking, taskRemember, func() { d.remembering.run(asking) }) })
	}
	failed := d.consumer.Run(consuming)
	unlabel()
	unfollow()
	endAsking()
	answering.Wait()
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
	o := d.options
	o.serving, o.events, o.problems, o.notUntil = d.serving, d.watching.events, d.problems, time.Time{}
	if r := d.refeaturing; r != nil { // else lists were learned, and the successor begins the change
		if err := r.complete(applying); err != nil {
			d.log.Error().Err(err).Msg("the features could not be changed; it will be tried again")
			o.notUntil = time.Now().Add(afterFailure)
		}
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
		Decoding: d.decoding, Target: d.live.Target, StillLive: d.stillLive, Label: d.intake.LabelOf(),
	})
}

// stillLive returns those of the blocks that are unchanged in the set.
func (d *Daemon) stillLive(ctx context.Context, blocks []live.Unread) ([]live.Unread, error) {
	return inLoop(ctx, d.jobs, func() (still []live.Unread, _ error) {
		for _, u := range blocks {
			if e, ok := d.live.Find(u.ID); ok && e == u.Entry && !(d.labels != nil && errors.Is(u.Reason, passes.ErrOthers)) {
				still = append(still, u)
			}
		}
		return still, nil
	})
}
