package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/snapshot"
)

// A compaction of the snapshot file is under way in a goroutine of its own. Saves wait
// for it, and it for them.
type compaction struct {
	began       time.Time
	uncompacted time.Time     // the liveSet's when it began
	done        chan struct{} // closed when it has ended, and then:
	info        snapshot.SaveInfo
	err         error
}

// compactionIsDue says whether an explicit retirement has waited for a compaction. Half
// of snapshot.scrub is left for the compaction, and for other tries when it fails: the
// last one began then.
func compactionIsDue(scrub time.Duration, since, last, now time.Time) bool {
	if scrub == 0 || since.IsZero() || now.Sub(last) < scrub/8 {
		return false
	}
	return now.Sub(since) >= scrub/2 || since.After(now) // the clock was wrong, then or now
}

// newCompaction takes note of a compaction that begins.
func (d *Daemon) newCompaction(now time.Time) *compaction {
	c := &compaction{began: now, uncompacted: d.live.Uncompacted(), done: make(chan struct{})}
	d.compaction, d.lastCompaction = c, now
	d.live.Compacting(now)
	return c
}

// beginCompaction starts to compact the file. No save and no other compaction may be on
// its way.
func (d *Daemon) beginCompaction(now time.Time) *compaction {
	c := d.newCompaction(now)
	ctx, cancel := context.WithCancel(d.background)
	go func() { // stopping does not wait for it
		select {
		case <-d.stopping:
		case <-ctx.Done():
		}
		cancel()
	}()
	d.ends.Go(func() {
		defer cancel()
		defer close(c.done)
		c.info, c.err = d.store.Compact(ctx)
	})
	return c
}

// endCompaction takes note of how the compaction under way has ended.
func (d *Daemon) endCompaction() {
	c := d.compaction
	<-c.done
	d.compaction, d.compactProblem = nil, c.err
	if c.err != nil {
		d.live.NotCompacted(c.uncompacted)
	}
	switch {
	case errors.Is(c.err, context.Canceled):
		d.log.Info().Msg("the snapshot is not compacted, since the daemon stops; the next one does it")
		return
	case c.err != nil:
		d.log.Error().Err(c.err).Msg("the snapshot could not be compacted: what was retired can still be read off the file")
		return
	}
	d.lastSave.Bytes = c.info.FileBytes
	d.log.Info().Int64("bytes", c.info.FileBytes).Dur("took", time.Since(c.began)).Msg("snapshot compacted")
}

// compacted is what tells the loop that the compaction under way has ended; nil: none is.
func (d *Daemon) compacted() <-chan struct{} {
	if d.compaction == nil {
		return nil
	}
	return d.compaction.done
}

// awaitCompaction waits for the compaction under way, if there is one.
func (d *Daemon) awaitCompaction() {
	if d.compaction != nil {
		d.endCompaction()
	}
}

// compactNow compacts the file and returns when that has ended. When ctx ends before, it
// goes on.
func (d *Daemon) compactNow(ctx context.Context, saved httpapi.SnapshotInfo, c *compaction) (httpapi.SnapshotInfo, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return saved, context.Cause(ctx)
	}
	if c.err != nil {
		return saved, fmt.Errorf("the snapshot was saved but could not be compacted (see the log): %w", httpapi.ErrUnavailable)
	}
	saved.Bytes, saved.Compacted = c.info.FileBytes, true
	return saved, nil
}

// remains says where the rows of a block that is retired now can still be, for the
// receipt.
func (d *Daemon) remains(inBasis bool) []string {
	remains := []string{
		fmt.Sprintf("the log of topic %s, until retention or compaction drops the records", d.cfg.Kafka.Topic),
	}
	if inBasis {
		remains = append(remains, "the points of a basis, until a later one is in use (/v1/epoch)")
	}
	if d.cfg.DeadLetters.Policy == config.DeadLettersQueue {
		remains = append(remains, fmt.Sprintf("dead letters in topic %s, if records of the block were refused", d.cfg.DeadLetters.Topic))
	}
	until := "until it is compacted, which nobody but you asks for (snapshot.scrub is 0)"
	if scrub := d.cfg.Snapshot.Scrub; scrub > 0 {
		until = fmt.Sprintf("until it is compacted, within %s", scrub)
	}
	return append(remains,
		"free pages of the snapshot file, "+until,
		"copies and backups of the snapshot file, and blocks of the disk that it had before",
		"models, bases and predictions that were handed out before",
	)
}

// logged is how the log names a block. A key may be a person's name, and the log
// outlives it: it is hashed with a salt that the process has made and nobody knows.
// Lines about one key can be told from others, of this process.
func (d *Daemon) logged(id string) string {
	if d.cfg.Blocks.Unit != config.UnitKey {
		return id
	}
	h := hmac.New(sha256.New, d.logSalt[:])
	h.Write([]byte(id))
	return "key#" + hex.EncodeToString(h.Sum(nil)[:8])
}
