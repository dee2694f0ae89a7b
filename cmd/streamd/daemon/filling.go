package daemon

import (
	"context"
	"maps"
	"time"

	"streamd/cmd/streamd/daemon/archive"
	"streamd/cmd/streamd/daemon/live"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// filling is the loop's part in giving the sample rows that it lacks: of blocks
// of a file of old or of another seed, and of all blocks when so many have been
// retired that the sample has to grow. The parts of the blocks are looked through
// first, for some time between two deliveries. Rows that are still wanted then are read
// from the log again, in the background, and offered by the loop. Meanwhile views
// of the sample count the blocks that they lack.
type filling struct {
	*core
	reading *job          // the pass over the log that is under way; nil: none is
	last    time.Time     // when the wanted blocks were last listed
	took    time.Duration // to list them
	// unread are the blocks that the log does not give back as they were. They are
	// not asked for again.
	unread map[string]retire.Entry
}

const (
	lookTime       = 10 * time.Millisecond // between two deliveries
	offersAtOnce   = 100
	betweenFilling = time.Second // so that blocks are read in long passes
	afterFailure   = time.Minute
)

// whenDue looks for rows of the sample, and begins a pass over the log when it is due.
func (f *filling) whenDue(now time.Time) {
	if !f.live.HasSample() {
		return
	}
	if err := f.live.Look(lookTime); err != nil {
		f.fail(err)
		return
	}
	if f.reading != nil || f.live.Lacking() == 0 || now.Sub(f.last) < max(betweenFilling, share*f.took) {
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
	f.reading = f.begin(true, func(ctx context.Context) func() { return f.read(ctx, blocks) })
}

// read reads blocks again and has the loop offer their parts.
func (f *filling) read(ctx context.Context, blocks *live.Blocks) (end func()) {
	f.log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again for the row sample")
	unread, err := readAgain(ctx, f.core, blocks, offersAtOnce, func(w *archive.Worker, b *incremental.Block, s *incremental.Summary) (*sample.Part, error) {
		return w.Keeper.Part(b, s, f.live.Target()), nil
	}, func(e retire.Entry, p *sample.Part) error {
		f.live.Offer(e.ID, p)
		return nil
	})
	if err != nil && ctx.Err() == nil { // else the daemon is stopping
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
				Msg("the row sample lacks blocks that the log does not give back as they were")
		}
	}
}
