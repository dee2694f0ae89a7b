package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/schema"
	"streamd/retire"
	"streamd/snapshot"
)

// refeaturing is a change from the features of the snapshot to those of the
// configuration.
//
// The daemon keeps learning and serving with the features of the snapshot. Meanwhile it
// reads the live blocks from the log again, with the wanted features, into a second live
// set with its own file. Further passes read the blocks that are added meanwhile. After a
// short pass the consumer stops, a last pass reads the rest, and the blocks of the second
// file replace those in the snapshot. Another Daemon opens it, and the former model is
// served until that one has a model. After a crash the change continues where the second
// file ends.
//
// Every method except complete belongs to the loop.
type refeaturing struct {
	*core
	was, to []string
	next    *live.Set
	file    *snapshot.Store
	path    string      // of the second file
	learned []byte      // settings by which its blocks are made
	reader  *passes.Log // decodes to the wanted features

	reading *job                   // the pass under way, or nil
	again   time.Time              // when to look for blocks to read again
	passes  int                    // ended passes
	unread  map[string]live.Unread // blocks that the log does not return unchanged
	problem string                 // of the last pass
	full    atomic.Bool            // many blocks wait to be saved to the file
	saving  sync.Mutex             // held while the file is written
	closed  bool
}

const (
	// shortPass is the duration of a pass below which the next one is the last. Nothing
	// is learned during the last pass. If blocks come as fast as they are read again, no
	// pass is short.
	shortPass     = time.Second
	mostPasses    = 10
	betweenUnread = time.Second // between two looks for blocks to read while others are unread

	waitingForFile = live.UnsavedMemory / 4 // bytes
)

// errOtherFeatures stops a daemon whose successor has other features.
var errOtherFeatures = errors.New("the features change")

// savedSettings are those by which the features of a snapshot were made. They are zero if nothing
// was learned.
func savedSettings(saved *snapshot.Contents) (s learning.Settings, err error) {
	if saved.Learning == nil {
		return s, nil
	}
	return learning.Read(saved.Learning)
}

// formerFeatures names the features of a snapshot whose live blocks must be read again, because
// others are wanted, or the same names made in another way. It returns nil if none must.
func formerFeatures(saved *snapshot.Contents, former *schema.Schema, format config.Format) []string {
	if was := live.FormerFeatures(saved, format); was != nil || former.String() == format.Schema.String() || len(saved.Entries) == 0 {
		return was
	}
	return saved.Features()
}

// inFeatures is the configuration with the features of a snapshot, made by its former schema.
func inFeatures(cfg *config.Config, was []string, former *schema.Schema) *config.Config {
	c := *cfg
	if former != nil && slices.Equal(former.Columns(), was) {
		c.Format.Schema, c.Format.Features, c.Format.Ignore, c.Format.Unknown = former, nil, nil, config.UnknownIgnore
		c.Format.Missing, c.Format.MissingFeatures = config.MissingReject, nil
		return &c
	}
	c.Format.Schema = nil
	c.Format.Features, c.Format.Ignore, c.Format.Unknown = was, nil, config.UnknownIgnore
	c.Format.Missing, c.Format.MissingFeatures = config.MissingReject, map[string]config.Missing{}
	// Missing values are treated as for the wanted features. Where only one of the two
	// sets of features marks them, the nearest other treatment is used.
	wanted := model.MissingOf(cfg.Format)
	for _, name := range was {
		policy := config.Missing(wanted.Of(name).String())
		switch marked := slices.Contains(was, incremental.MissingName(name)); {
		case marked && policy != config.MissingMean:
			policy = config.MissingIndicator
		case !marked && policy != config.MissingReject:
			policy = config.MissingZero
		}
		c.Format.MissingFeatures[name] = policy
	}
	return &c
}

// changePath is the file of a change, beside the snapshot.
func changePath(snapshot string) string { return snapshot + ".features" }

// newRefeaturing opens the second file. The set of the daemon has been restored.
func newRefeaturing(d *Daemon, o Options, was []string) (r *refeaturing, err error) {
	// A block is in the second set as long as it is in the first, whatever the policy.
	cfg := *o.Config
	cfg.Retire = config.Retire{MaxFuture: cfg.Retire.MaxFuture}
	cfg.Kernel.Function = config.KernelNone
	to := live.Wanted(was, cfg.Format)
	if len(to) == 0 {
		return nil, fmt.Errorf("format.ignore leaves none of the features %q", was)
	}
	if cfg.Format.Schema == nil {
		cfg.Format.Features = to
	}
	r = &refeaturing{core: d.core, was: was, to: to, path: changePath(o.Config.Snapshot.File), again: o.notUntil, unread: map[string]live.Unread{}}
	r.learned = d.learner.With(o.Config).Saved(learning.Lists{Most: d.lists.saved.Most})
	key, err := SnapshotKey(cfg.Snapshot, d.log)
	if err != nil {
		return nil, err
	}
	open := func() error {
		// A file that was begun for another schema may have the same names of features.
		by := sha256.Sum256([]byte(cfg.Format.Schema.String()))
		file, saved, err := key.Open(r.path, snapshot.Settings{Topic: cfg.Kafka.Topic, Unit: fmt.Sprintf("%s, features %x", unit(&cfg), by[:4])})
		if err != nil {
			return err
		}
		if live.FormerFeatures(saved, cfg.Format) != nil {
			err = fmt.Errorf("it has the features %q", saved.Features())
		} else {
			r.next, _, err = live.Open(file, saved, &cfg, d.memory, d.log)
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
		r.file = file
		return nil
	}
	if err := open(); err != nil {
		// It can be made again from the log.
		d.log.Warn().Err(err).Str("file", r.path).Msg("the file for the change of features is made anew")
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := open(); err != nil {
			return nil, err
		}
	}
	cluster, err := Cluster(cfg.Kafka, d.log)
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	decoding, err := Decoding(&cfg, d.memory, d.registry)
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	alike := slices.Clone(was)
	for i, name := range was {
		if !schema.SameColumn(d.cfg.Format.Schema, cfg.Format.Schema, name) {
			alike[i] = "" // no feature has this name
		}
	}
	r.reader, err = passes.New(passes.Settings{
		Config: &cfg, Log: d.log, Budget: d.memory, Cluster: cluster, Fetching: bounded(d.memory, Fetching(cfg.Kafka), d.memory.Reread),
		Decoding: decoding, Target: r.next.Target, Was: alike, StillLive: d.stillLive,
	})
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	if n := d.live.Archived(); n > 0 {
		d.log.Warn().Int("blocks", n).Msg("the archive will be dropped when the features have changed, since its blocks are not read again")
	}
	d.log.Info().Strs("from", was).Strs("to", r.to).Int("blocks", d.live.Blocks()).Int("done", r.next.Blocks()).
		Msg("the features change: live blocks are read from the log again, and the former model is served until all are")
	return r, nil
}

// whenDue begins a pass, or the end of the change.
func (r *refeaturing) whenDue(now time.Time) {
	if r == nil || r.changing.Load() || r.reading != nil || now.Before(r.again) || r.rests(taskFeatures, now) {
		return
	}
	lacking, err := r.compare()
	if err != nil {
		r.fail(err)
		return
	}
	switch {
	case len(lacking) == 0 && len(r.unread) > 0:
		r.again = now.Add(betweenUnread)
		if r.cfg.Kernel.Unread == config.UnreadSkip {
			r.skipUnread()
		}
	case len(lacking) == 0 || r.passes >= mostPasses && len(r.unread) == 0:
		r.finish()
	default:
		blocks := r.live.Moment(lacking)
		r.reading = r.begin(taskFeatures, true, func(ctx context.Context) func() {
			unread, err := r.read(ctx, r.call, blocks)
			return func() { r.endRead(ctx, now, unread, err) }
		}, func(err error) { r.reading, r.problem = nil, err.Error() })
	}
}

// compare lists the live blocks that the second set lacks. It removes blocks from the
// second set that are no longer live and unchanged.
func (r *refeaturing) compare() (lacking []retire.Entry, err error) {
	for _, e := range r.next.Page(retire.Lowest, math.MaxInt) {
		if is, ok := r.live.Get(e.ID); !ok || is != e {
			if err := r.next.Remove(e.ID); err != nil {
				return nil, err
			}
		}
	}
	for id, u := range r.unread {
		if is, ok := r.live.Get(id); !ok || is != u.Entry {
			delete(r.unread, id)
		}
	}
	for _, e := range r.live.Page(retire.Lowest, math.MaxInt) {
		_, has := r.next.Get(e.ID)
		_, unread := r.unread[e.ID]
		if !has && !unread {
			lacking = append(lacking, e)
		}
	}
	return lacking, nil
}

// read makes a pass and adds the blocks to the second set.
func (r *refeaturing) read(ctx context.Context, in enter, blocks *live.Blocks) (unread []live.Unread, err error) {
	defer r.topic.Hold()() // the memory suffices for one pass at a time
	target := r.next.Target()
	atOnce := min(max(takenAtOnce/(8*gram.PackedLen(len(*target.Features))), 1), offersAtOnce)
	return readAgain(ctx, r.reader, r.live, in, blocks, true, atOnce, func(w *passes.Worker, b *incremental.Block, _ *incremental.Summary) (live.Kept, error) {
		if r.full.Load() {
			if err := r.save(ctx, in); err != nil {
				return live.Kept{}, err
			}
		}
		return w.Keeper.Keep(ctx, b, target)
	}, func(e retire.Entry, k live.Kept) error {
		if r.failure != nil {
			return nil
		}
		if err := r.next.Admits(live.Candidate{Labels: k.Summary.Classes(), Features: k.Summary.Features(), Window: k.Summary.Window(), Kept: k}); err != nil {
			return err
		}
		if needs, room := r.live.Price()+r.next.Price(), r.memory.Room(); needs > room {
			return fmt.Errorf("limits.memory is %s, of which %s are for live sets, but the former features and the new ones take %s together: raise it, or use another snapshot.file to begin anew",
				memory.Size(float64(r.memory.Limit)), memory.Size(room), memory.Size(needs))
		}
		_, err := r.next.Add(e, k)
		if r.next.Waiting() >= waitingForFile || r.next.Unsaved() >= r.cfg.Snapshot.Blocks {
			r.full.Store(true)
		}
		return err
	})
}

// save saves the second set to its file, unless another worker has just done so.
func (r *refeaturing) save(ctx context.Context, in enter) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	if !r.full.Swap(false) {
		return nil
	}
	var change snapshot.Change
	var prepared *snapshot.Prepared
	err := in(ctx, func() (err error) {
		change = r.next.Change()
		change.SavedAt, change.Learning = time.Now(), r.learned
		prepared, err = r.file.Prepare(change)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := prepared.Save(); err != nil {
		return errors.Join(err, in(ctx, func() error { r.next.NotSaved(&change); return nil }))
	}
	return in(ctx, func() error { r.next.Saved(&change); return nil })
}

// endRead handles the result of a pass.
func (r *refeaturing) endRead(ctx context.Context, began time.Time, unread []live.Unread, err error) {
	r.reading, r.problem = nil, ""
	r.passes++
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return
	case r.file.Broken() != nil:
		r.fail(r.file.Broken())
	case err != nil:
		r.problem, r.again = err.Error(), now.Add(afterFailure)
		r.log.Error().Err(err).Msg("live blocks could not be read again in the features that are wanted; it will be tried again")
		return
	case len(unread) > 0:
		for _, u := range unread {
			r.unread[u.ID] = u
		}
		r.log.Warn().Int("blocks", len(unread)).Str("block", r.logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
			Msg("the log does not return live blocks in the features that are wanted: the former features stay until these blocks are retired (kernel.unread: skip retires them)")
	case len(r.unread) == 0 && now.Sub(began) < shortPass:
		r.finish()
	}
}

// skipUnread retires the blocks that the log does not return.
func (r *refeaturing) skipUnread() {
	n := 0
	for id, u := range r.unread {
		dropped, ok := r.dropLost(id, func() bool { e, live := r.live.Get(id); return live && e == u.Entry })
		if !ok {
			return
		}
		if dropped {
			n++
		}
	}
	r.again = time.Time{}
	r.log.Warn().Int("blocks", n).Msg("retired blocks that the log does not return in the features that are wanted (kernel.unread is skip)")
}

// finish stops the consumer. complete does the rest.
func (r *refeaturing) finish() {
	r.changing.Store(true)
	r.stop(errOtherFeatures)
}

// complete reads the rest and replaces the blocks of the snapshot by those of the second
// set. The loop has ended and has saved.
func (r *refeaturing) complete(ctx context.Context) error {
	var mu sync.Mutex
	in := func(_ context.Context, do func() error) error {
		mu.Lock()
		defer mu.Unlock()
		return do()
	}
	lacking, err := r.compare()
	if err != nil {
		return err
	}
	r.reader.StillLive = func(_ context.Context, blocks []live.Unread) ([]live.Unread, error) { return blocks, nil }
	unread, err := r.read(ctx, in, r.live.Moment(lacking))
	if err != nil {
		return err
	}
	if len(unread) > 0 {
		return fmt.Errorf("block %s: %w", r.logged(unread[0].ID), unread[0].Reason)
	}
	r.full.Store(true)
	if err := r.save(ctx, in); err != nil {
		return err
	}
	if err := r.store.Adopt(ctx, r.file); err != nil {
		return err
	}
	r.log.Info().Strs("features", r.to).Int("blocks", r.live.Blocks()).Msg("all live blocks are in the features that are wanted")
	if n := r.live.Archived(); n > 0 {
		r.log.Warn().Int("blocks", n).Str("reason", "the features are others").Msg("the archive is dropped: windows lack its blocks")
	}
	err = errors.Join(r.close(), os.Remove(r.path))
	r.next = nil // the successor uses its memory
	return err
}

// close ends this process's part in the change.
func (r *refeaturing) close() error {
	if r == nil || r.closed {
		return nil
	}
	r.closed = true
	r.reader.Close()
	return r.file.Close()
}

// ends reports whether the daemon is about to hand over to its successor. It may be
// called from any goroutine.
func (r *refeaturing) ends() bool { return r != nil && r.changing.Load() }

// condition describes the change for the operator.
func (r *refeaturing) condition() httpapi.Problem {
	p := httpapi.Problem{Kind: httpapi.ProblemFeatures, Text: fmt.Sprintf("the features change from %q to %q: %d of %d live blocks have been read again, and the former features are served until all have",
		r.was, r.to, r.next.Blocks(), r.live.Blocks())}
	if r.ends() {
		p.Text = fmt.Sprintf("the features change from %q to %q: the live blocks have been read again, and nothing else is read until the change is complete", r.was, r.to)
		return p
	}
	if n := len(r.unread); n > 0 {
		p.Text += fmt.Sprintf("; the log does not return %d of them unchanged", n)
		p.Action = "retire them, or set kernel.unread: skip"
	}
	if r.problem != "" {
		p.Text += "; the last try failed: " + r.problem
	}
	return p
}
