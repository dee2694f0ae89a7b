package daemon

import (
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/snapshot"
)

// A saving is a save that is being written, in a goroutine of its own: waiting for
// the disk does not hold up the loop.
type saving struct {
	change snapshot.Change
	blocks int           // that have come or gone
	bytes  int64         // that these take
	undo   func()        // has the positions in it count as moved again
	next   map[int]int64 // all positions
	made   httpapi.SnapshotInfo
}

// saveEnd is how a saving has ended.
type saveEnd struct {
	info snapshot.SaveInfo
	err  error
}

// hasUnsaved says whether there is something that is not known to be saved.
func (d *Daemon) hasUnsaved() bool {
	if d.saving != nil || d.live.HasUnsaved() {
		return true
	}
	return d.intake.Moved()
}

// beginSave starts to write everything that has changed since the last save, in one
// transaction. None may be on its way, and no compaction.
func (d *Daemon) beginSave() {
	d.lastSaveTry = time.Now()
	y := &saving{change: d.live.Change(), blocks: d.live.Unsaved(), bytes: d.live.Waiting(), next: map[int]int64{}}
	c := &y.change
	c.Counts, c.SavedAt = d.intake.Counts(), d.lastSaveTry
	c.Offsets, y.undo = d.intake.TakeMoved()
	at := d.intake.Positions()
	for _, o := range at.Resume {
		y.next[o.Partition] = o.Next
	}
	y.made = httpapi.SnapshotInfo{
		MadeAt:  c.SavedAt,
		Blocks:  d.live.Blocks(),
		Rows:    d.live.Rows(),
		Digest:  d.live.Digest(),
		Offsets: at.Applied,
		Resume:  at.Resume,
	}
	d.unsavedSince = time.Time{}
	d.saving = y
	prepared, err := d.store.Prepare(*c)
	if err != nil {
		d.saved <- saveEnd{err: err}
		return
	}
	go func() {
		info, err := prepared.Save()
		d.saved <- saveEnd{info, err}
	}()
}

// endSave takes note of how the save on its way has ended. When it has failed all is
// as it was, with what has changed since, and the next save has it all.
func (d *Daemon) endSave(s saveEnd) {
	y := d.saving
	d.saving = nil
	d.saveTook = time.Since(d.lastSaveTry)
	if s.err != nil {
		if d.saveProblem == nil {
			d.log.Error().Err(s.err).Msg("the snapshot could not be saved; nothing is lost, and it will be tried again")
		}
		d.saveProblem = s.err
		d.live.NotSaved(&y.change)
		y.undo()
		d.unsavedSince = d.lastSaveTry
		return
	}
	if d.saveProblem != nil {
		d.log.Info().Msg("the snapshot is saved again")
	}
	d.saveProblem = nil
	d.metrics.SnapshotSeconds.Observe(d.saveTook.Seconds())
	d.live.Saved(&y.change)
	d.missed = max(0, d.missed-int64(y.change.Retired))
	d.live.Wrote(s.info.Bytes, y.blocks)
	if !d.hasUnsaved() {
		d.unsavedSince = time.Time{}
	}
	d.lastSave = y.made
	d.lastSave.Seconds, d.lastSave.Bytes = d.saveTook.Seconds(), s.info.FileBytes
	// Only the latest is of interest to whoever watches the lag.
	select {
	case <-d.commits:
	default:
	}
	d.commits <- y.next
}

// awaitSave waits for the save on its way, if there is one.
func (d *Daemon) awaitSave() {
	if d.saving != nil {
		d.endSave(<-d.saved)
	}
}

// save writes everything that has changed and returns when it is on the disk, or
// has failed.
func (d *Daemon) save() {
	d.awaitSave()
	d.awaitCompaction()
	d.beginSave()
	d.awaitSave()
}
