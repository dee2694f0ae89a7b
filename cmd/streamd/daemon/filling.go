package daemon

import (
	"context"
	"fmt"
	"maps"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// filling is the loop's part in giving the sample rows that it lacks. A file of an
// earlier version or of another seed lacks rows of some blocks. A sample that has to
// grow, since so many blocks have been retired, lacks rows of all blocks. The stored
// parts of blocks are checked first, for a while between two deliveries. A job reads rows
// that are still missing from the log, and the loop offers them to the sample. Meanwhile
// views of the sample count the blocks that lack rows.
type filling struct {
	*core
	reading *job          // the pass over the log that is under way, or nil
	last    time.Time     // when the wanted blocks were last listed
	took    time.Duration // the time to list them
	// unread are blocks that the log does not return unchanged. They are not requested
	// again.
	unread map[string]retire.Entry
}

const (
	lookTime       = 10 * time.Millisecond // between two deliveries
	offersAtOnce   = 100
	betweenFilling = time.Second // so that blocks are read in long passes
	afterFailure   = time.Minute
)

// whenDue checks blocks for rows of the sample, and begins a pass over the log when it is
// due.
func (f *filling) whenDue(now time.Time) {
	if !f.live.HasSample() {
		return
	}
	if err := f.live.Look(lookTime); err != nil {
		f.fail(err)
		return
	}
	if f.reading != nil || f.rests(taskFill, now) || f.live.Lacking() == 0 || now.Sub(f.last) < max(betweenFilling, share*f.took) {
		return
	}
	f.last = now
	maps.DeleteFunc(f.unread, func(id string, e retire.Entry) bool {
		is, ok := f.live.Get(id)
		return !ok || is != e
	})
	var wanted []retire.Entry
	for _, e := range f.live.Wanted() {
		if f.unread[e.ID] != e {
			wanted = append(wanted, e)
		}
	}
	f.took = time.Since(now)
	if len(wanted) == 0 {
		return
	}
	blocks := f.live.Moment(wanted)
	f.reading = f.begin(taskFill, true, func(ctx context.Context) func() { return f.read(ctx, blocks) }, func(error) { f.reading = nil })
}

// condition is the problem that the log does not return rows that the sample lacks, or nil.
func (f *filling) condition() *httpapi.Problem {
	lacking := f.live.Lacking()
	if lacking == 0 || len(f.unread) == 0 {
		return nil
	}
	return &httpapi.Problem{
		Kind: httpapi.ProblemSample, Subject: "sample", Count: int64(lacking),
		Text: fmt.Sprintf("the row sample lacks rows of %d live blocks, and the log does not return all of them unchanged: ν, calibration, the rule of labels, quality and refined planes are of the other rows, so a daemon that never saw the retired blocks may choose others", lacking),
	}
}

// read reads blocks again and has the loop offer their parts.
func (f *filling) read(ctx context.Context, blocks *live.Blocks) (end func()) {
	f.log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the row sample")
	unread, err := readAgain(ctx, f.topic, f.live, f.call, blocks, true, offersAtOnce, func(w *passes.Worker, b *incremental.Block, s *incremental.Summary) (*sample.Part, error) {
		return w.Keeper.Part(b, s, f.live.Target()), nil
	}, func(e retire.Entry, p *sample.Part) error {
		f.live.Offer(e.ID, p)
		return nil
	})
	if err != nil && ctx.Err() == nil { // otherwise the daemon is stopping
		f.log.Error().Err(err).Msg("blocks could not be read again for the row sample")
	}
	return func() {
		f.reading = nil
		if err != nil {
			f.last = time.Now().Add(afterFailure)
			return
		}
		for _, u := range unread {
			if f.unread == nil {
				f.unread = map[string]retire.Entry{}
			}
			f.unread[u.ID] = u.Entry
		}
		if n := len(unread); n > 0 {
			f.log.Warn().Int("blocks", n).Str("block", f.logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
				Msg("the row sample lacks blocks that the log does not return unchanged")
		}
	}
}
