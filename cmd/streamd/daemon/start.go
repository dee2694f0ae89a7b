package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/bases"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/features"
	"streamd/cmd/streamd/daemon/history"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/labels"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/output"
	"streamd/cmd/streamd/daemon/planes"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/daemon/retiring"
	"streamd/cmd/streamd/daemon/saving"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/cmd/streamd/daemon/windows"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/snapshot"
)

// New opens the snapshot, restores the state and begins to listen. Run must be called
// afterwards, which closes everything.
func New(o Options) (d *Daemon, err error) {
	cfg := o.Config
	if d, err = newDaemon(o); err != nil {
		return nil, err
	}
	d.Memory.TellRuntime()
	d.Log.Info().Str("limit", memory.Size(float64(d.Memory.Limit))).Str("for_the_live_set", memory.Size(d.Memory.Room())).
		Str("largest_message", memory.Size(float64(d.Memory.Message))).Msg("memory is divided")
	cluster, err := settings.Cluster(cfg.Kafka, o.Log)
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
	d.consumer, err = kafka.NewConsumer(settings.ConsumerConfig(cfg.Kafka, cluster, d.Memory), d, o.Log)
	if err != nil {
		return nil, err
	}
	if err := d.restore(o); err != nil {
		return nil, err
	}
	if err := d.labels.Connect(cluster, d.jumped); err != nil {
		return nil, errors.Join(err, d.close())
	}
	opened := d
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if err := d.receipts.Lock(); err != nil {
		return nil, err
	}
	if d.Topic, err = d.OpenTopic(); err != nil {
		return nil, err
	}
	d.updateStatus()
	guard, err := access.New(cfg.HTTP, o.Log)
	if err != nil {
		return nil, err
	}
	api := httpapi.Config{
		Access:       guard,
		Origins:      cfg.HTTP.CORSOrigins,
		Rows:         d.Decoding,
		Name:         cfg.Model.Name,
		Topics:       d.topics(),
		MaxBodyBytes: d.Memory.Body,
		MaxRows:      cfg.HTTP.MaxRows,

		MaxConnections: cfg.HTTP.MaxConnections,
		Memory:         d.Memory.Predict,
	}
	if api.Remember = d.output.Remembering(); api.Remember != nil {
		api.IDField = cfg.Labels.ID
	}
	d.api = httpapi.New(api, d, d.Metrics, o.Log)
	if d.serving = o.serving; d.serving == nil {
		if d.serving, err = newServing(d.api, cfg.HTTP.Listen); err != nil {
			return nil, fmt.Errorf("http.listen: %w", err)
		}
	}
	return d, nil
}

// newDaemon makes a daemon without a snapshot, a broker and a listener.
func newDaemon(o Options) (*Daemon, error) {
	e, err := loop.NewEnvironment(o.Config, o.Log, o.events, o.problems)
	if err != nil {
		return nil, err
	}
	return &Daemon{
		Loop: loop.New(e), options: o, version: o.Version, started: time.Now(),
		sampled: o.Log.Sample(&zerolog.BurstSampler{Burst: sampledLines, Period: time.Second}),
	}, nil
}

// restore opens the snapshot, restores its state, and makes the parts of the loop.
func (d *Daemon) restore(o Options) (err error) {
	path := d.Config.Snapshot.File
	store, saved, err := saving.Open(o.Config, o.Log, o.Copy)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("restore from %s: %w", path, err), store.Close())
		}
	}()
	d.Store = store
	learned, err := features.Saved(saved)
	if err != nil {
		return err
	}
	d.lists = features.NewLists(d.Config.Format.Schema, learned)
	if s := d.lists.Wanted(); s != nil {
		cfg := *o.Config
		cfg.Format.Schema = s
		o.Config = &cfg
		if err := d.Configure(&cfg); err != nil {
			return err
		}
	}
	former := learned.Format.Schema
	was := features.Former(saved, former, d.Config.Format)
	if was != nil && d.Config.Labels.Topic != "" {
		return errors.New("the features are others than those of the snapshot, and with labels.topic they cannot change: set format.features or format.schema back, or begin anew with another snapshot.file")
	}
	if was != nil {
		if err := d.Configure(features.In(d.Config, was, former)); err != nil {
			return err
		}
	}
	if d.receipts, err = receipts.Open(d.Loop, d.lists.Learned, d.version, saved); err != nil {
		return err
	}
	d.Proofs = &d.receipts.Proofs
	live, retired, err := live.Open(store, saved, d.Config, d.Memory, d.Log)
	if err != nil {
		return err
	}
	d.Live = live
	if key := d.receipts.Key; key != nil {
		if err = live.KeepReceipts(key); err != nil {
			return err
		}
	}
	if d.labels, err = labels.Open(d.Loop, saved); err != nil {
		return err
	}
	d.Recorder = history.NewRecorder(d.Log, store, d.Memory.Limit, saved.History)
	d.Intake = intake.New(intake.Settings{
		Config: d.Config, Log: d.Log, Sampled: d.sampled, Live: live, Budget: d.Memory, Decoding: d.Decoding, Letters: d.letters,
		Partitions: d.partitionsEver, Labels: d.labels.Table(),
		Served: d.Front.ServedOf, Logged: d.Logged,
		HasRoom: func(bytes int64) bool { return d.Saver.HasRoom(bytes) }, Freed: func() { d.Bases.FeaturesFreed() },
		Ahead: d.Metrics.RecordsAhead, TooOld: d.Metrics.BlocksRefused,
	})
	d.resumes = d.Intake.Restore(saved)
	d.Intake.CountRetired(retired)
	if was == nil { // they are in use
		d.lists.InUse()
	}
	if err := d.makeParts(saved); err != nil {
		return err
	}
	first := &model.Served{
		Problem: "starting",
		Rows:    d.Live.Rows(),
		Blocks:  d.Live.Blocks(),
		Digest:  d.Live.Digest(),
		Offsets: d.Intake.Applied(),
		MadeAt:  d.started.UTC(),
		Durable: true,
	}
	first.Fingerprint = first.Identity().Fingerprint()
	d.Front.Replace(first, nil)
	d.Log.Info().Str("file", path).Int("blocks", d.Live.Blocks()).Int64("rows", d.Live.Rows()).
		Str("state_digest", d.Live.Digest()).Msg("snapshot opened")
	if d.Features, err = features.New(d.Loop, d.Saver, d.lists, o.Config, was, o.notUntil); err == nil {
		d.parts = append(d.parts, d.Features)
	}
	return err
}

// makeParts makes the parts of the loop over the restored state, each from those before it.
func (d *Daemon) makeParts(saved *snapshot.Contents) error {
	c := d.Loop
	d.receipts.Begin(saved)
	d.watching = watching.New(c, d.partitions, saved.Detectors)
	followed := control.NewFollowed(d.Config.Retire.Topic, []string{d.Config.Kafka.Topic, d.Config.Labels.Topic}, saved.Offsets, d.Log)
	d.Saver = saving.New(c, d.receipts, d.watching, followed, d.Learner.Saved(d.lists.Saved()), saved)
	d.publisher = planes.NewPublisher(c, d.receipts, d.Saver)
	d.output = output.New(d.Environment, d.Served)
	d.Windows = windows.New(c, d.publisher.OptionsBy)
	d.Studies = planes.NewStudies(d.publisher, d.started)
	write := func(ctx context.Context, records []control.Record) error { return d.withdrawing.Write(ctx, records) }
	d.filling = bases.NewFilling(c)
	d.Bases = bases.New(c, d.Saver, d.Studies, d.filling, &d.board.hasCaughtUp, write, d.started, d.Config.Kernel.Function == config.KernelNone && len(saved.Spaces) > 1)
	var err error
	d.withdrawing, err = retiring.NewWithdrawing(c, d.Saver, d.Studies, d.Bases, followed, d.Windows)
	d.Departures = retiring.NewDepartures(c, d.Saver, d.receipts, d.Studies, d.Windows, d.withdrawing, func() string { return d.Features.File() })
	// What is served is awaited, so the publisher comes first.
	d.parts = []part{d.publisher, d.Windows, d.Saver, d.withdrawing, d.filling, d.Bases, d.Studies, d.watching}
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
	w, log := newWatchdog(d.Config.ShutdownTimeout), d.Log
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
	d.Stop = stop
	context.AfterFunc(consuming, func() {
		if cause := context.Cause(consuming); !errors.Is(cause, features.ErrOther) { // a successor goes on
			if cause != context.Canceled {
				d.watchdog.reason.Store(&cause)
			}
			d.watchdog.begin()
		}
		close(d.Stopping)
	})
	// Dead letters may still be written while the rest is applied.
	applying, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	if d.serving.first == d.api {
		if err := d.receipts.Witnesses.Check(ctx, d.receipts.Key); err != nil {
			return nil, errors.Join(fmt.Errorf("receipts.witnesses: %w", err), d.serving.listener.Close())
		}
		d.serving.begin(ctx)
		d.Log.Info().Stringer("address", d.Addr()).Msg("serving HTTP")
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
	for range d.Config.Workers {
		workers.Go(func() { d.Intake.Work(applying) })
	}
	var turning errgroup.Group
	turning.Go(func() error {
		defer close(d.LoopDone)
		return d.loop(applying)
	})
	committing := make(chan struct{})
	go func() {
		defer close(committing)
		for next := range d.Saver.Commits {
			d.commit(applying, next)
		}
	}()

	var recording sync.WaitGroup
	recordingCtx, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRecording()
	recording.Go(func() { d.Keep(recordingCtx, loop.TaskHistory, func() { d.Recorder.Run(recordingCtx, d) }) })

	defer context.AfterFunc(consuming, func() {
		time.AfterFunc(time.Duration(shareOfStop*float64(d.Config.ShutdownTimeout)), func() {
			abandon(fmt.Errorf("stopping takes longer than shutdown_timeout, %s", d.Config.ShutdownTimeout))
		})
	})()
	next := map[int]int64{}
	for number, saved := range d.resumes {
		next[number] = saved.Next
	}
	d.commit(applying, next)                           // committed when the consumer has its partitions
	unfollow := d.withdrawing.Follow(consuming, stop)  // before anything is read that must not come back
	asking, endAsking := context.WithCancel(consuming) // a consumer that fails ends it, too
	unwitness := d.receipts.Witnesses.Follow(asking, func(run func()) { d.Keep(asking, loop.TaskWitness, run) })
	var retention sync.WaitGroup
	retention.Go(func() { d.Keep(asking, loop.TaskRetention, func() { d.receipts.FollowRetention(asking) }) })
	unlabel := d.labels.Follow(consuming, stop) // before the rows that wait for them
	var answering sync.WaitGroup
	answering.Go(func() { d.output.Run(asking, d.Keep) })
	failed := d.consumer.Run(consuming)
	unlabel()
	unfollow()
	endAsking()
	answering.Wait()
	unwitness()
	retention.Wait()
	d.Intake.Close() // the consumer has returned from every Deliver
	workers.Wait()
	// The loop's error says why it stopped the consumer, so it comes first.
	err = turning.Wait()
	if err == nil {
		err = failed
	}
	if cause := context.Cause(consuming); err == nil && ctx.Err() == nil && cause != nil {
		err = cause
	}
	d.Topic.Close() // the loop has ended the passes
	close(d.Saver.Commits)
	<-committing
	stopRecording()
	recording.Wait()
	if d.letters != nil {
		d.letters.Close()
	}
	if errors.Is(err, features.ErrOther) {
		if successor, err = d.succeed(ctx, applying); successor != nil {
			return successor, nil
		}
	}
	if failed := d.serving.end(); err == nil {
		err = failed
	}
	d.Log.Info().Msg("stopped")
	return nil, err
}

// close closes the files. The snapshot is the last: a daemon that waits for it finds the others
// free.
func (d *Daemon) close() error {
	return errors.Join(d.Features.CloseFile(), d.receipts.Unlock(), d.Store.Close())
}

// succeed completes the change of features and opens the successor. If the change cannot be
// completed, the successor is a daemon like d, which tries again.
func (d *Daemon) succeed(ctx, applying context.Context) (*Daemon, error) {
	o := d.options
	o.serving, o.events, o.problems, o.notUntil = d.serving, d.EventLog, d.Problems, time.Time{}
	if err := d.Features.Complete(applying); err != nil {
		d.Log.Error().Err(err).Msg("the features could not be changed; it will be tried again")
		o.notUntil = time.Now().Add(loop.AfterFailure)
	}
	if err := d.close(); err != nil || ctx.Err() != nil {
		return nil, err
	}
	return New(o)
}
