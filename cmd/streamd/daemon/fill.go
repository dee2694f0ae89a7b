package daemon

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
	"streamd/snapshot"
)

// filling is the loop's part in giving the sample rows that it lacks: of blocks
// of a file of old or of another seed, and of all blocks when so many have been
// retired that the sample has to grow. The parts of the blocks are looked through
// first, for some time between two deliveries. What then is still wanted is read
// from the log again, in the background, and offered by the loop. Meanwhile views
// of the sample say what they lack.
type filling struct {
	log     *rereader
	running bool
	ends    sync.WaitGroup
	last    time.Time     // when it was last found out what is wanted
	took    time.Duration // to find out
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

// fillSample does what is to be done for the sample now.
func (d *Daemon) fillSample(ctx context.Context, now time.Time) {
	if err := d.live.look(lookTime); err != nil {
		d.fail(err)
		return
	}
	f := &d.filling
	if f.running || d.live.sample.Lacking() == 0 || now.Sub(f.last) < max(betweenFilling, share*f.took) {
		return
	}
	f.last = now
	maps.DeleteFunc(f.unread, func(id string, e retire.Entry) bool {
		is, ok := d.live.ledger.Get(id)
		return !ok || is != e
	})
	blocks := &liveBlocks{unsaved: map[string]*incremental.Summary{}, store: d.store}
	for _, id := range d.live.sample.Wanted() {
		e, ok := d.live.ledger.Get(id)
		if !ok {
			panic("daemon: block " + id + " is in the sample, but not live")
		}
		if f.unread[id] == e {
			continue
		}
		blocks.entries = append(blocks.entries, e)
		if b, ok := d.live.put[id]; ok {
			blocks.unsaved[id] = b.Summary
		}
	}
	f.took = time.Since(now)
	if len(blocks.entries) == 0 {
		return
	}
	f.running = true
	f.ends.Go(func() { d.fillFromLog(ctx, blocks) })
}

// fillFromLog reads blocks again and has the loop offer their parts.
func (d *Daemon) fillFromLog(ctx context.Context, blocks *liveBlocks) {
	d.log.Info().Int("blocks", len(blocks.entries)).Msg("reading blocks again for the row sample")
	type taken struct {
		entry retire.Entry
		part  *sample.Part
	}
	var mu sync.Mutex
	var ready []taken
	offer := func(least int) error {
		mu.Lock()
		if len(ready) < least {
			mu.Unlock()
			return nil
		}
		parts := ready
		ready = nil
		mu.Unlock()
		_, err := inLoop(ctx, d, func() (struct{}, error) {
			for _, t := range parts {
				if e, ok := d.live.ledger.Get(t.entry.ID); ok && e == t.entry {
					d.live.offer(e.ID, t.part)
				}
			}
			return struct{}{}, nil
		})
		return err
	}
	unread, err := d.filling.log.pass(ctx, blocks, true, func(e retire.Entry, b *incremental.Block) error {
		was, err := blocks.summary(e.ID)
		if errors.Is(err, snapshot.ErrNotFound) {
			return nil // it has just been retired
		}
		if err != nil {
			return err
		}
		var t sample.Taker
		p := t.Take(b, was.Digest(), was.Totals(), d.live.sample.Levels())
		mu.Lock()
		ready = append(ready, taken{e, p})
		mu.Unlock()
		return offer(offersAtOnce)
	})
	if err == nil {
		err = offer(1)
	}
	if ctx.Err() != nil {
		return // the daemon is stopping
	}
	if err != nil {
		d.log.Error().Err(err).Msg("blocks could not be read again for the row sample")
	}
	inLoop(ctx, d, func() (struct{}, error) {
		d.filling.running = false
		if err != nil {
			d.filling.last = time.Now().Add(afterFailure)
			return struct{}{}, nil
		}
		for _, u := range unread {
			if d.filling.unread == nil {
				d.filling.unread = map[string]retire.Entry{}
			}
			d.filling.unread[u.ID] = u.Entry
		}
		if n := len(unread); n > 0 {
			d.log.Warn().Int("blocks", n).Str("block", unread[0].ID).AnErr("reason", unread[0].reason).
				Msg("the row sample lacks blocks that the log does not give back as they were")
		}
		return struct{}{}, nil
	})
}
