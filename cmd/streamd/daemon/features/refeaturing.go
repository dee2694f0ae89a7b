package features

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
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/schema"
	"streamd/retire"
	"streamd/snapshot"
)

// change is a change from the features of the snapshot to those of the
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
type change struct {
	*loop.Loop
	was, to []string
	next    *live.Set
	file    *snapshot.Store
	path    string      // of the second file
	learned []byte      // settings by which its blocks are made
	reader  *passes.Log // decodes to the wanted features

	reading *loop.Job              // the pass under way, or nil
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

// ErrOther stops a daemon whose successor has other features.
var ErrOther = errors.New("the features change")

// Saved are the settings by which the features of a snapshot were made. They are zero if nothing
// was learned.
func Saved(saved *snapshot.Contents) (s learning.Settings, err error) {
	if saved.Learning == nil {
		return s, nil
	}
	return learning.Read(saved.Learning)
}

// Former names the features of a snapshot whose live blocks must be read again, because
// others are wanted, or the same names made in another way. It returns nil if none must.
func Former(saved *snapshot.Contents, former *schema.Schema, format config.Format) []string {
	if was := live.FormerFeatures(saved, format); was != nil || former.String() == format.Schema.String() || len(saved.Entries) == 0 {
		return was
	}
	return saved.Features()
}

// In is the configuration with the features of a snapshot, made by its former schema.
func In(cfg *config.Config, was []string, former *schema.Schema) *config.Config {
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

// Path is the file of a change, beside the snapshot.
func Path(snapshot string) string { return snapshot + ".features" }

// newChange opens the second file. wanted is the configuration, and was are the features in use.
func newChange(l *loop.Loop, lists *Lists, wanted *config.Config, was []string, notUntil time.Time) (r *change, err error) {
	// A block is in the second set as long as it is in the first, whatever the policy.
	cfg := *wanted
	cfg.Retire = config.Retire{MaxFuture: cfg.Retire.MaxFuture}
	cfg.Kernel.Function = config.KernelNone
	to := live.Wanted(was, cfg.Format)
	if len(to) == 0 {
		return nil, fmt.Errorf("format.ignore leaves none of the features %q", was)
	}
	if cfg.Format.Schema == nil {
		cfg.Format.Features = to
	}
	r = &change{Loop: l, was: was, to: to, path: Path(wanted.Snapshot.File), again: notUntil, unread: map[string]live.Unread{}}
	r.learned = l.Learner.With(wanted).Saved(learning.Lists{Most: lists.saved.Most})
	key, err := settings.SnapshotKey(cfg.Snapshot, l.Log)
	if err != nil {
		return nil, err
	}
	open := func() error {
		// A file that was begun for another schema may have the same names of features.
		by := sha256.Sum256([]byte(cfg.Format.Schema.String()))
		file, saved, err := key.Open(r.path, snapshot.Settings{Topic: cfg.Kafka.Topic, Unit: fmt.Sprintf("%s, features %x", settings.Unit(&cfg), by[:4])})
		if err != nil {
			return err
		}
		if live.FormerFeatures(saved, cfg.Format) != nil {
			err = fmt.Errorf("it has the features %q", saved.Features())
		} else {
			r.next, _, err = live.Open(file, saved, &cfg, l.Memory, l.Log)
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
		r.file = file
		return nil
	}
	if err := open(); err != nil {
		// It can be made again from the log.
		l.Log.Warn().Err(err).Str("file", r.path).Msg("the file for the change of features is made anew")
		if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := open(); err != nil {
			return nil, err
		}
	}
	decoding, err := settings.Decoding(&cfg, l.Memory, l.Registry)
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	alike := slices.Clone(was)
	for i, name := range was {
		if !schema.SameColumn(l.Config.Format.Schema, cfg.Format.Schema, name) {
			alike[i] = "" // no feature has this name
		}
	}
	r.reader, err = l.OpenLog(passes.Settings{Config: &cfg, Decoding: decoding, Target: r.next.Target, Was: alike})
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	if n := l.Live.Archived(); n > 0 {
		l.Log.Warn().Int("blocks", n).Msg("the archive will be dropped when the features have changed, since its blocks are not read again")
	}
	l.Log.Info().Strs("from", was).Strs("to", r.to).Int("blocks", l.Live.Blocks()).Int("done", r.next.Blocks()).
		Msg("the features change: live blocks are read from the log again, and the former model is served until all are")
	return r, nil
}

// whenDue begins a pass, or the end of the change.
func (r *change) whenDue(now time.Time) error {
	if r.Changing.Load() || r.reading != nil || now.Before(r.again) || r.Rests(loop.TaskFeatures, now) {
		return nil
	}
	lacking, err := r.compare()
	if err != nil {
		return err
	}
	switch {
	case len(lacking) == 0 && len(r.unread) > 0:
		r.again = now.Add(betweenUnread)
		if r.Config.Kernel.Unread == config.UnreadSkip {
			return r.skipUnread()
		}
	case len(lacking) == 0 || r.passes >= mostPasses && len(r.unread) == 0:
		r.finish()
	default:
		blocks := r.Live.Moment(lacking)
		r.reading = r.Begin(loop.TaskFeatures, true, func(ctx context.Context) func() {
			unread, err := r.read(ctx, r.Call, blocks)
			return func() { r.endRead(ctx, now, unread, err) }
		}, func(err error) { r.reading, r.problem = nil, err.Error() })
	}
	return nil
}

// compare lists the live blocks that the second set lacks. It removes blocks from the
// second set that are no longer live and unchanged.
func (r *change) compare() (lacking []retire.Entry, err error) {
	for _, e := range r.next.Page(retire.Lowest, math.MaxInt) {
		if is, ok := r.Live.Get(e.ID); !ok || is != e {
			if err := r.next.Remove(e.ID); err != nil {
				return nil, err
			}
		}
	}
	for id, u := range r.unread {
		if is, ok := r.Live.Get(id); !ok || is != u.Entry {
			delete(r.unread, id)
		}
	}
	for _, e := range r.Live.Page(retire.Lowest, math.MaxInt) {
		_, has := r.next.Get(e.ID)
		_, unread := r.unread[e.ID]
		if !has && !unread {
			lacking = append(lacking, e)
		}
	}
	return lacking, nil
}

// read makes a pass and adds the blocks to the second set.
func (r *change) read(ctx context.Context, in loop.Enter, blocks *live.Blocks) (unread []live.Unread, err error) {
	defer r.Topic.Hold()() // the memory suffices for one pass at a time
	target := r.next.Target()
	atOnce := loop.AtOnce(len(*target.Features))
	return loop.ReadAgain(ctx, r.reader, r.Live, in, blocks, true, atOnce, func(w *passes.Worker, b *incremental.Block, _ *incremental.Summary) (live.Kept, error) {
		if r.full.Load() {
			if err := r.save(ctx, in); err != nil {
				return live.Kept{}, err
			}
		}
		return w.Keeper.Keep(ctx, b, target)
	}, func(e retire.Entry, k live.Kept) error {
		if r.Failure != nil {
			return nil
		}
		if err := r.next.Admits(live.Candidate{Labels: k.Summary.Classes(), Features: k.Summary.Features(), Window: k.Summary.Window(), Kept: k}); err != nil {
			return err
		}
		if needs, room := r.Live.Price()+r.next.Price(), r.Memory.Room(); needs > room {
			return fmt.Errorf("limits.memory is %s, of which %s are for live sets, but the former features and the new ones take %s together: raise it, or use another snapshot.file to begin anew",
				memory.Size(float64(r.Memory.Limit)), memory.Size(room), memory.Size(needs))
		}
		_, err := r.next.Add(e, k)
		if r.next.Waiting() >= waitingForFile || r.next.Unsaved() >= r.Config.Snapshot.Blocks {
			r.full.Store(true)
		}
		return err
	})
}

// save saves the second set to its file, unless another worker has just done so.
func (r *change) save(ctx context.Context, in loop.Enter) error {
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
func (r *change) endRead(ctx context.Context, began time.Time, unread []live.Unread, err error) {
	r.reading, r.problem = nil, ""
	r.passes++
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return
	case r.file.Broken() != nil:
		r.Fail(r.file.Broken())
	case err != nil:
		r.problem, r.again = err.Error(), now.Add(loop.AfterFailure)
		r.Log.Error().Err(err).Msg("live blocks could not be read again in the features that are wanted; it will be tried again")
		return
	case len(unread) > 0:
		for _, u := range unread {
			r.unread[u.ID] = u
		}
		r.Log.Warn().Int("blocks", len(unread)).Str("block", r.Logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
			Msg("the log does not return live blocks in the features that are wanted: the former features stay until these blocks are retired (kernel.unread: skip retires them)")
	case len(r.unread) == 0 && now.Sub(began) < shortPass:
		r.finish()
	}
}

// skipUnread retires the blocks that the log does not return.
func (r *change) skipUnread() error {
	n := 0
	for id, u := range r.unread {
		dropped, err := r.DropLost(id, func() bool { e, live := r.Live.Get(id); return live && e == u.Entry })
		if err != nil {
			return err
		}
		if dropped {
			n++
		}
	}
	r.again = time.Time{}
	r.Log.Warn().Int("blocks", n).Msg("retired blocks that the log does not return in the features that are wanted (kernel.unread is skip)")
	return nil
}

// finish stops the consumer. complete does the rest.
func (r *change) finish() {
	r.Changing.Store(true)
	r.Stop(ErrOther)
}

// complete reads the rest and replaces the blocks of the snapshot by those of the second
// set. The loop has ended and has saved.
func (r *change) complete(ctx context.Context) error {
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
	unread, err := r.read(ctx, in, r.Live.Moment(lacking))
	if err != nil {
		return err
	}
	if len(unread) > 0 {
		return fmt.Errorf("block %s: %w", r.Logged(unread[0].ID), unread[0].Reason)
	}
	r.full.Store(true)
	if err := r.save(ctx, in); err != nil {
		return err
	}
	if err := r.Store.Adopt(ctx, r.file); err != nil {
		return err
	}
	r.Log.Info().Strs("features", r.to).Int("blocks", r.Live.Blocks()).Msg("all live blocks are in the features that are wanted")
	if n := r.Live.Archived(); n > 0 {
		r.Log.Warn().Int("blocks", n).Str("reason", "the features are others").Msg("the archive is dropped: windows lack its blocks")
	}
	err = errors.Join(r.close(), os.Remove(r.path))
	r.next = nil // the successor uses its memory
	return err
}

// close ends this process's part in the change.
func (r *change) close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.reader.Close()
	return r.file.Close()
}

// condition describes the change for the operator.
func (r *change) condition() httpapi.Problem {
	p := httpapi.Problem{Kind: httpapi.ProblemFeatures, Text: fmt.Sprintf("the features change from %q to %q: %d of %d live blocks have been read again, and the former features are served until all have",
		r.was, r.to, r.next.Blocks(), r.Live.Blocks())}
	if r.Changing.Load() {
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
