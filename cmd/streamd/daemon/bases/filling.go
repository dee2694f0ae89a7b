package bases

import (
	"context"
	"fmt"
	"maps"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// Filling is the loop's part in giving the sample rows that it lacks. A file of an
// earlier version or of another seed lacks rows of some blocks. A sample that has to
// grow, since so many blocks have been retired, lacks rows of all blocks. The stored
// parts of blocks are checked first, for a while between two deliveries. A job reads rows
// that are still missing from the log, and the loop offers them to the sample. Meanwhile
// views of the sample count the blocks that lack rows.
type Filling struct {
	*loop.Loop
	reading *loop.Job     // the pass over the log that is under way, or nil
	last    time.Time     // when the wanted blocks were last listed
	took    time.Duration // the time to list them
	// Unread are blocks that the log does not return unchanged. They are not requested
	// again.
	Unread map[string]retire.Entry
}

// NewFilling fills the sample of a live set.
func NewFilling(l *loop.Loop) *Filling { return &Filling{Loop: l} }

// IsIdle reports whether no rows have been wanted from the log since the start.
func (f *Filling) IsIdle() bool { return f.last.IsZero() }

// IsUnderWay reports whether a pass over the log is.
func (f *Filling) IsUnderWay() bool { return f.reading != nil }

// Retry has rows be wanted at once.
func (f *Filling) Retry() { f.last = time.Time{} }

const (
	lookTime       = 10 * time.Millisecond // between two deliveries
	betweenFilling = time.Second           // so that blocks are read in long passes
)

// WhenDue checks blocks for rows of the sample, and begins a pass over the log when it is
// due.
func (f *Filling) WhenDue(now time.Time) error {
	if !f.Live.HasSample() {
		return nil
	}
	if err := f.Live.Look(lookTime); err != nil {
		return err
	}
	if f.reading != nil || f.Rests(loop.TaskFill, now) || f.Live.Lacking() == 0 || now.Sub(f.last) < max(betweenFilling, loop.Share*f.took) {
		return nil
	}
	f.last = now
	maps.DeleteFunc(f.Unread, func(id string, e retire.Entry) bool {
		is, ok := f.Live.Get(id)
		return !ok || is != e
	})
	var wanted []retire.Entry
	for _, e := range f.Live.Wanted() {
		if f.Unread[e.ID] != e {
			wanted = append(wanted, e)
		}
	}
	f.took = time.Since(now)
	if len(wanted) == 0 {
		return nil
	}
	blocks := f.Live.Moment(wanted)
	f.reading = f.Begin(loop.TaskFill, true, func(ctx context.Context) func() { return f.read(ctx, blocks) }, func(error) { f.reading = nil })
	return nil
}

// condition is the problem that the log does not return rows that the sample lacks, or nil.
func (f *Filling) condition() *httpapi.Problem {
	lacking := f.Live.Lacking()
	if lacking == 0 || len(f.Unread) == 0 {
		return nil
	}
	return &httpapi.Problem{
		Kind: httpapi.ProblemSample, Subject: "sample", Count: int64(lacking),
		Text: fmt.Sprintf("the row sample lacks rows of %d live blocks, and the log does not return all of them unchanged: ν, calibration, the rule of labels, quality and refined planes are of the other rows, so a daemon that never saw the retired blocks may choose others", lacking),
	}
}

// read reads blocks again and has the loop offer their parts.
func (f *Filling) read(ctx context.Context, blocks *live.Blocks) (end func()) {
	f.Log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the row sample")
	unread, err := loop.ReadAgain(ctx, f.Topic, f.Live, f.Call, blocks, true, loop.MostAtOnce, func(w *passes.Worker, b *incremental.Block, s *incremental.Summary) (*sample.Part, error) {
		return w.Keeper.Part(b, s, f.Live.Target()), nil
	}, func(e retire.Entry, p *sample.Part) error {
		f.Live.Offer(e.ID, p)
		return nil
	})
	if err != nil && ctx.Err() == nil { // otherwise the daemon is stopping
		f.Log.Error().Err(err).Msg("blocks could not be read again for the row sample")
	}
	return func() {
		f.reading = nil
		if err != nil {
			f.last = time.Now().Add(loop.AfterFailure)
			return
		}
		for _, u := range unread {
			if f.Unread == nil {
				f.Unread = map[string]retire.Entry{}
			}
			f.Unread[u.ID] = u.Entry
		}
		if n := len(unread); n > 0 {
			f.Log.Warn().Int("blocks", n).Str("block", f.Logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
				Msg("the row sample lacks blocks that the log does not return unchanged")
		}
	}
}
