package daemon

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

// saver writes the state to the snapshot and compacts its file, never both at the same
// time.
//
//	idle        a save or a compaction may begin
//	storing     a job writes everything that had changed when it began
//	compacting  a job writes the file anew without retired blocks
type saver struct {
	*core
	control   followed
	receipts  *receipts
	watching  *watching
	publisher *publisher
	state     saverState
	job       *job     // the job under way, unless idle
	saving    *saving  // the save under way, or nil
	waiting   []func() // called when the next save that begins has ended
	commits   chan map[int]int64
	labels    atomic.Pointer[map[int]int64] // saved positions in the topic of labels

	unsavedSince time.Time // zero: nothing is unsaved
	lastTry      time.Time // start of the last save
	took         time.Duration
	info         httpapi.SnapshotInfo // of the last save
	problem      error                // of the last save
	missed       int64                // explicit retirements that the snapshot lacks
	learning     []byte               // the learner's settings
	unsettled    bool                 // the snapshot has other ones
	begun, saved int64                // numbers of the last save that has begun, and of the last that succeeded, since the start

	lastCompaction time.Time // start of the last compaction
	compactProblem error     // of the last compaction
}

type saverState int

const (
	idle saverState = iota
	storing
	compacting
)

// saving is a save that is being written.
type saving struct {
	number int64
	change snapshot.Change
	blocks int           // blocks added and removed
	bytes  int64         // bytes of these blocks
	undo   func()        // marks the saved positions as moved again
	then   []func()      // called when it has ended
	next   map[int]int64 // all positions
	labels map[int]int64 // those in the topic of labels
	made   httpapi.SnapshotInfo
}

func newSaver(c *core, now time.Time) *saver {
	s := &saver{
		core: c, publisher: &publisher{core: c}, receipts: &receipts{core: c}, watching: &watching{core: c}, control: followed{next: map[int]int64{}}, commits: make(chan map[int]int64, 1), lastTry: now,
		took: quiet, // not known yet, and the first save saves little
	}
	s.publisher.saver, s.publisher.receipts = s, s.receipts
	s.publisher.published.Store(&publication{served: &model.Served{Durable: true}, replaced: make(chan struct{})})
	return s
}

// hasUnsaved reports whether anything may not be saved.
func (s *saver) hasUnsaved() bool {
	return s.state == storing || s.live.HasUnsaved() || s.intake.Moved() || s.control.moved || s.watching.risen || s.unsettled
}

// hasRoom reports whether a block of that size may join the blocks that wait for a save.
// During a save, blocks in it do not count. A block larger than the room comes alone.
func (s *saver) hasRoom(bytes int64) bool {
	waiting := s.live.Waiting()
	if s.state == storing {
		waiting -= s.saving.bytes
	}
	return waiting <= 0 || waiting+bytes <= s.intake.Room()
}

// mostUnsaved bounds the blocks that wait while the disk is full or slow. During a save
// as many may wait as are being saved, if there is room for them.
func (s *saver) mostUnsaved() int {
	switch {
	case s.problem != nil:
		return min(s.cfg.Snapshot.Blocks, s.live.Room())
	case s.state == compacting: // the next save waits for the compaction
		return max(s.live.Room(), s.cfg.Snapshot.Blocks)
	case s.state == storing:
		return s.saving.blocks + min(max(s.saving.blocks, s.cfg.Snapshot.Blocks), s.live.Room())
	}
	return math.MaxInt
}

// isFull reports whether nothing more may be applied before the next save.
func (s *saver) isFull() bool {
	_, wants := s.intake.Waiting()
	return s.live.Unsaved() >= s.mostUnsaved() || !s.hasRoom(wants)
}

// whenDue begins a save or a compaction when it is due.
func (s *saver) whenDue(now time.Time) {
	if s.unsavedSince.IsZero() && s.hasUnsaved() {
		s.unsavedSince = now
	}
	_, wants := s.intake.Waiting()
	full := s.live.Unsaved() >= s.live.Room() || !s.hasRoom(wants)
	due := !s.unsavedSince.IsZero() && now.Sub(s.unsavedSince) >= s.cfg.Snapshot.Interval ||
		s.live.Unsaved() >= s.cfg.Snapshot.Blocks || full
	pause := s.pause(s.took, now) // a replay may be waiting for the commit after this save
	if full {
		pause = 0
	}
	if s.problem != nil {
		pause = max(pause, s.cfg.Snapshot.Interval)
	}
	if s.state == idle && (len(s.waiting) > 0 || due && now.Sub(s.lastTry) >= pause) {
		s.beginSave()
	}
	if s.state == idle && compactionIsDue(s.cfg.Snapshot.Scrub, s.live.Uncompacted(), s.lastCompaction, now) {
		s.beginCompaction(now, nil)
	}
}

// beginSave begins to write all changes since the last save in one transaction. The saver
// is idle.
func (s *saver) beginSave() {
	s.lastTry = time.Now()
	s.begun++
	y := &saving{number: s.begun, change: s.live.Change(), blocks: s.live.Unsaved(), bytes: s.live.Waiting(), next: map[int]int64{}, labels: map[int]int64{}, then: s.waiting}
	s.waiting = nil
	c := &y.change
	c.Counts, c.SavedAt = s.intake.Counts(), s.lastTry
	offsets, undo := s.intake.TakeMoved()
	ofControl, undoControl := s.control.takeMoved(s.cfg.Retire.Topic)
	c.Offsets = slices.Concat(offsets, ofControl)
	joining, undoJoining := s.intake.TakeJoining(c.Joining.Forgotten)
	c.Joining = joining
	record, undoDetectors, err := s.watching.record()
	c.Detectors, c.Learning = record, s.learning
	y.undo = func() { undo(); undoControl(); undoJoining(); undoDetectors() }
	at := s.intake.Positions()
	for _, o := range at.Resume {
		y.next[o.Partition] = o.Next
	}
	for _, o := range s.intake.AppliedLabels() {
		y.labels[o.Partition] = o.Next
	}
	y.made = httpapi.SnapshotInfo{
		MadeAt: c.SavedAt, Blocks: s.live.Blocks(), Rows: s.live.Rows(), Digest: s.live.Digest(),
		Offsets: at.Applied, Resume: at.Resume,
	}
	s.unsavedSince = time.Time{}
	s.state, s.saving = storing, y
	var prepared *snapshot.Prepared
	if _, unsent := s.intake.Unsent(); err == nil {
		err = unsent // records count as processed once they are saved
	}
	if err == nil {
		c.Receipts, err = s.receipts.grow(c.SavedAt)
	}
	if err == nil {
		prepared, err = s.store.Prepare(*c)
	}
	s.job = s.beginWriting(func(context.Context) func() {
		var info snapshot.SaveInfo
		if err == nil {
			info, err = prepared.Save()
		}
		return func() { s.endSave(info, err) }
	})
}

// endSave handles the result of a save. After a failure the changes count as unsaved again,
// with those made since, and the next save writes them all.
func (s *saver) endSave(info snapshot.SaveInfo, err error) {
	y := s.saving
	s.state, s.job, s.saving = idle, nil, nil
	defer func() {
		for _, then := range y.then {
			then()
		}
	}()
	s.took = time.Since(s.lastTry)
	if err != nil {
		s.damaged(err)
		s.problem = err
		s.live.NotSaved(&y.change)
		y.undo()
		s.unsavedSince = s.lastTry
		return
	}
	s.problem, s.saved, s.unsettled = nil, y.number, false
	s.metrics.SnapshotSeconds.Observe(s.took.Seconds())
	s.live.Saved(&y.change)
	s.receipts.succeeded()
	s.missed = max(0, s.missed-int64(y.change.Retired))
	s.live.Wrote(info.Bytes, y.blocks)
	if !s.hasUnsaved() {
		s.unsavedSince = time.Time{}
	}
	s.publisher.saved()
	s.info = y.made
	s.info.Seconds, s.info.Bytes = s.took.Seconds(), info.FileBytes
	s.labels.Store(&y.labels)
	// Lag monitoring needs the latest offsets only.
	select {
	case <-s.commits:
	default:
	}
	s.commits <- y.next
}

// damaged ends the daemon where the file is damaged: no other try can save to it.
func (s *saver) damaged(err error) {
	if s.store.Broken() != nil || errors.As(err, new(*snapshot.ChecksumError)) {
		s.fail(cmp.Or(s.store.Broken(), err))
	}
}

// await waits for the save or compaction under way, if there is one.
func (s *saver) await() {
	if s.job != nil {
		s.job.await()
	}
}

// save writes all changes. It returns when they are on disk or the save has failed.
func (s *saver) save() {
	s.await()
	s.beginSave()
	s.await()
}

// saveThen has all changes saved, and calls then when they are on disk or the save has failed.
// A save that is under way does not have all of them, so another one follows.
func (s *saver) saveThen(then func()) {
	if s.waiting = append(s.waiting, then); s.state == idle {
		s.beginSave()
	}
}

// compactionIsDue reports whether an explicit retirement has waited long enough for a
// compaction. Half of snapshot.scrub is left for the compaction itself, and for further
// tries after a failure. last is the start of the last try.
func compactionIsDue(scrub time.Duration, since, last, now time.Time) bool {
	if scrub == 0 || since.IsZero() || now.Sub(last) < scrub/8 {
		return false
	}
	return now.Sub(since) >= scrub/2 || since.After(now) // the clock was or is wrong
}

// beginCompaction begins to compact the file. The saver is idle. The loop calls ended
// afterwards, unless it is nil.
func (s *saver) beginCompaction(now time.Time, ended func(snapshot.SaveInfo, error)) *job {
	since := s.live.Uncompacted()
	s.state, s.lastCompaction = compacting, now
	s.live.Compacting(now)
	s.job = s.beginWriting(func(ctx context.Context) func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // a stop does not wait for the compaction
			select {
			case <-s.stopping:
			case <-ctx.Done():
			}
			cancel()
		}()
		info, err := s.store.Compact(ctx)
		return func() {
			s.endCompaction(now, since, info, err)
			if ended != nil {
				ended(info, err)
			}
		}
	})
	return s.job
}

// endCompaction handles the result of a compaction.
func (s *saver) endCompaction(began, since time.Time, info snapshot.SaveInfo, err error) {
	s.state, s.job, s.compactProblem = idle, nil, err
	if err != nil {
		s.damaged(err)
		s.live.NotCompacted(since)
	}
	switch {
	case errors.Is(err, context.Canceled):
		s.log.Info().Msg("the snapshot is not compacted, since the daemon stops; the next one does it")
		return
	case err != nil:
		s.log.Error().Err(err).Msg("the snapshot could not be compacted: retired blocks can still be read from the file")
		return
	}
	s.info.Bytes = info.FileBytes
	s.log.Info().Int64("bytes", info.FileBytes).Dur("took", time.Since(began)).Msg("snapshot compacted")
}
