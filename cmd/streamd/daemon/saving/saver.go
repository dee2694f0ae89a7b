// Package saving writes the state of the loop to the snapshot, and has retired blocks leave its
// file.
//
//	open.go     the snapshot is opened, or made of a copy of another one
//	saver.go    saves and compactions, one at a time, and when they are due
//	copying.go  the calls of HTTP that save, compact and copy
package saving

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/snapshot"
)

// Saver writes the state to the snapshot and compacts its file, never both at the same
// time.
//
//	idle        a save or a compaction may begin
//	storing     a job writes everything that had changed when it began
//	compacting  a job writes the file anew without retired blocks
type Saver struct {
	*loop.Loop
	receipts *receipts.Receipts
	watching *watching.Watching
	control  *control.Followed
	state    saverState
	job      *loop.Job     // the job under way, unless idle
	saving   *saving       // the save under way, or nil
	waiting  []func(error) // called when the next save that begins has ended
	Commits  chan map[int]int64
	labels   atomic.Pointer[map[int]int64] // saved positions in the topic of labels

	unsavedSince time.Time // zero: nothing is unsaved
	lastTry      time.Time // start of the last save
	took         time.Duration
	info         httpapi.SnapshotInfo // of the last save
	problem      error                // of the last save
	missed       int64                // explicit retirements that the snapshot lacks
	Learning     []byte               // the learner's settings, which a save writes
	unsettled    bool                 // the snapshot has other ones
	begun, saved int64                // numbers of the last save that has begun, and of the last that succeeded, since the start

	lastCompaction time.Time // start of the last compaction
	compactProblem error     // of the last compaction

	copying sync.Mutex // held until a copy of the snapshot has been taken
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
	then   []func(error) // called when it has ended
	next   map[int]int64 // all positions
	labels map[int]int64 // those in the topic of labels
	made   httpapi.SnapshotInfo
}

// New makes the saver of a restored state. learning is the learner's settings.
func New(c *loop.Loop, r *receipts.Receipts, w *watching.Watching, follows *control.Followed, learning []byte, saved *snapshot.Contents) *Saver {
	if saved.Missed > 0 {
		c.Log.Warn().Str("file", c.Config.Snapshot.File).Int64("missed", saved.Missed).Time("last", saved.LastRetired).Msg("the snapshot lacks retirements")
	}
	return &Saver{
		Loop: c, receipts: r, watching: w, control: follows, Commits: make(chan map[int]int64, 1), lastTry: time.Now(),
		took: loop.Quiet, // not known yet, and the first save saves little
		info: httpapi.SnapshotInfo{MadeAt: saved.SavedAt}, missed: saved.Missed,
		Learning: learning, unsettled: len(saved.Entries) > 0 && !bytes.Equal(saved.Learning, learning),
	}
}

// Problem is the error of the last save.
func (s *Saver) Problem() error { return s.problem }

// Info describes the last save.
func (s *Saver) Info() httpapi.SnapshotInfo { return s.info }

// Labels has the saved positions in the topic of labels, nil before the first save. It may be
// called from any goroutine.
func (s *Saver) Labels() map[int]int64 {
	if saved := s.labels.Load(); saved != nil {
		return *saved
	}
	return nil
}

// IsIdle reports whether nothing is being written.
func (s *Saver) IsIdle() bool { return s.state == idle }

// IsStoring reports whether a save is under way.
func (s *Saver) IsStoring() bool { return s.state == storing }

// LastCompaction is when the last compaction has begun, or the zero time.
func (s *Saver) LastCompaction() time.Time { return s.lastCompaction }

// missedRetirements explains that a snapshot lacks retirements.
const missedRetirements = "the snapshot is older than the last retirement that was saved, or new: blocks that were forgotten may be live again"

// Conditions lists what the operator should know of the snapshot, and of dead letters that a save
// waits for.
func (s *Saver) Conditions() (all []httpapi.Problem) {
	if since, err := s.Intake.Unsent(); err != nil {
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemLetters, Since: since, Text: "reading waits, since dead letters cannot be written: " + err.Error()})
	} else if s.problem != nil {
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemSave, Text: "the snapshot cannot be saved, and is tried again: " + s.problem.Error()})
	}
	if err := s.compactProblem; err != nil {
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemCompaction, Text: "the snapshot cannot be compacted, so retired blocks can still be read from the file: " + err.Error()})
	}
	if s.missed > 0 {
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemRetired, Count: s.missed, Text: missedRetirements})
	}
	return all
}

// HasUnsaved reports whether anything may not be saved.
func (s *Saver) HasUnsaved() bool {
	return s.state == storing || s.Live.HasUnsaved() || s.Intake.Moved() || s.control.HasMoved() || s.watching.IsUnsaved() || s.unsettled
}

// HasRoom reports whether a block of that size may join the blocks that wait for a save.
// During a save, blocks in it do not count. A block larger than the room comes alone.
func (s *Saver) HasRoom(bytes int64) bool {
	waiting := s.Live.Waiting()
	if s.state == storing {
		waiting -= s.saving.bytes
	}
	return waiting <= 0 || waiting+bytes <= s.Intake.Room()
}

// mostUnsaved bounds the blocks that wait while the disk is full or slow. During a save
// as many may wait as are being saved, if there is room for them.
func (s *Saver) mostUnsaved() int {
	switch {
	case s.problem != nil:
		return min(s.Config.Snapshot.Blocks, s.Live.Room())
	case s.state == compacting: // the next save waits for the compaction
		return max(s.Live.Room(), s.Config.Snapshot.Blocks)
	case s.state == storing:
		return s.saving.blocks + min(max(s.saving.blocks, s.Config.Snapshot.Blocks), s.Live.Room())
	}
	return math.MaxInt
}

// IsFull reports whether nothing more may be applied before the next save.
func (s *Saver) IsFull() bool {
	_, wants := s.Intake.Waiting()
	return s.Live.Unsaved() >= s.mostUnsaved() || !s.HasRoom(wants)
}

// errUnsaved refuses blocks that were read again while nothing can be saved.
var errUnsaved = errors.New("the snapshot cannot be saved")

// Takes returns an error where blocks that were read again have to wait for a save.
func (s *Saver) Takes() error {
	if s.problem != nil && s.Live.Unsaved() >= s.Config.Snapshot.Blocks {
		return errUnsaved
	}
	return nil
}

// WhenDue begins a save or a compaction when it is due.
func (s *Saver) WhenDue(now time.Time) error {
	if s.unsavedSince.IsZero() && s.HasUnsaved() {
		s.unsavedSince = now
	}
	_, wants := s.Intake.Waiting()
	full := s.Live.Unsaved() >= s.Live.Room() || !s.HasRoom(wants)
	due := !s.unsavedSince.IsZero() && now.Sub(s.unsavedSince) >= s.Config.Snapshot.Interval ||
		s.Live.Unsaved() >= s.Config.Snapshot.Blocks || full
	pause := s.Pause(s.took, now) // a replay may be waiting for the commit after this save
	if full {
		pause = 0
	}
	if s.problem != nil {
		pause = max(pause, s.Config.Snapshot.Interval)
	}
	if s.state == idle && (len(s.waiting) > 0 || due && now.Sub(s.lastTry) >= pause) {
		s.BeginSave()
	}
	if s.state == idle && compactionIsDue(s.Config.Snapshot.Scrub, s.Live.Uncompacted(), s.lastCompaction, now) {
		s.beginCompaction(now, nil)
	}
	return nil
}

// BeginSave begins to write all changes since the last save in one transaction, and closes written
// once they are. The saver is idle.
func (s *Saver) BeginSave() (written <-chan struct{}) {
	s.lastTry = time.Now()
	s.begun++
	y := &saving{number: s.begun, change: s.Live.Change(), blocks: s.Live.Unsaved(), bytes: s.Live.Waiting(), next: map[int]int64{}, labels: map[int]int64{}, then: s.waiting}
	s.waiting = nil
	c := &y.change
	c.Counts, c.SavedAt = s.Intake.Counts(), s.lastTry
	offsets, undo := s.Intake.TakeMoved()
	ofControl, undoControl := s.control.TakeMoved()
	c.Offsets = slices.Concat(offsets, ofControl)
	joining, undoJoining := s.Intake.TakeJoining(c.Joining.Forgotten)
	c.Joining = joining
	record, undoDetectors, err := s.watching.Record()
	c.Detectors, c.Learning = record, s.Learning
	y.undo = func() { undo(); undoControl(); undoJoining(); undoDetectors() }
	at := s.Intake.Positions()
	for _, o := range at.Resume {
		y.next[o.Partition] = o.Next
	}
	for _, o := range s.Intake.AppliedLabels() {
		y.labels[o.Partition] = o.Next
	}
	y.made = httpapi.SnapshotInfo{
		MadeAt: c.SavedAt, Blocks: s.Live.Blocks(), Rows: s.Live.Rows(), Digest: s.Live.Digest(),
		Offsets: at.Applied, Resume: at.Resume,
	}
	s.unsavedSince = time.Time{}
	s.state, s.saving = storing, y
	var prepared *snapshot.Prepared
	if _, unsent := s.Intake.Unsent(); err == nil {
		err = unsent // records count as processed once they are saved
	}
	if err == nil {
		c.Receipts, err = s.receipts.Grow(c.SavedAt)
	}
	if err == nil {
		prepared, err = s.Store.Prepare(*c)
	}
	s.job = s.BeginWriting(func(context.Context) func() {
		var info snapshot.SaveInfo
		if err == nil {
			info, err = prepared.Save()
		}
		return func() { s.endSave(info, err) }
	})
	return s.job.Done
}

// endSave handles the result of a save. After a failure the changes count as unsaved again,
// with those made since, and the next save writes them all.
func (s *Saver) endSave(info snapshot.SaveInfo, err error) {
	y := s.saving
	s.state, s.job, s.saving = idle, nil, nil
	defer func() {
		for _, then := range y.then {
			then(err)
		}
	}()
	s.took = time.Since(s.lastTry)
	if err != nil {
		s.damaged(err)
		s.problem = err
		s.Live.NotSaved(&y.change)
		y.undo()
		s.unsavedSince = s.lastTry
		return
	}
	s.problem, s.saved, s.unsettled = nil, y.number, false
	s.Metrics.SnapshotSeconds.Observe(s.took.Seconds())
	s.Live.Saved(&y.change)
	s.receipts.Succeeded()
	s.missed = max(0, s.missed-int64(y.change.Retired))
	s.Live.Wrote(info.Bytes, y.blocks)
	if !s.HasUnsaved() {
		s.unsavedSince = time.Time{}
	}
	s.nowDurable()
	s.info = y.made
	s.info.Seconds, s.info.Bytes = s.took.Seconds(), info.FileBytes
	s.labels.Store(&y.labels)
	// Lag monitoring needs the latest offsets only.
	select {
	case <-s.Commits:
	default:
	}
	s.Commits <- y.next
}

// IsDurable reports whether a restart would have the state of a served value, or a later one.
func (s *Saver) IsDurable(of *model.Served) bool { return of.Save <= s.saved || !s.HasUnsaved() }

// Next is the number of the next save that begins.
func (s *Saver) Next() int64 { return s.begun + 1 }

// Followed has the offsets below which the live set follows the control topic.
func (s *Saver) Followed() []model.Offset { return s.control.Offsets() }

// nowDurable serves the same model as durable, or with further receipts, if it has become so.
func (s *Saver) nowDurable() {
	last := s.Front.Now()
	again := *last.Served
	again.Durable = again.Durable || s.IsDurable(&again)
	if s.receipts.Stamp(&again); !again.Same(last.Served) {
		s.Front.Replace(&again, last.Fixed)
	}
}

// damaged ends the daemon where the file is damaged: no other try can save to it.
func (s *Saver) damaged(err error) {
	if s.Store.Broken() != nil || errors.As(err, new(*snapshot.ChecksumError)) {
		s.Fail(cmp.Or(s.Store.Broken(), err))
	}
}

// Await waits for the save or compaction under way, if there is one.
func (s *Saver) Await() {
	if s.job != nil {
		s.job.Await()
	}
}

// EndIfWritten ends the save or compaction under way if it has run: what it has saved takes no room
// any more.
func (s *Saver) EndIfWritten() {
	if s.job == nil {
		return
	}
	select {
	case <-s.job.Done:
		s.Await()
	default:
	}
}

// Save writes all changes. It returns when they are on disk, or the error of the save.
func (s *Saver) Save() error {
	s.Await()
	s.BeginSave()
	s.Await()
	return s.problem
}

// FlushAll makes the rows of all open runs live, and saves whenever they have no room
// before.
func (s *Saver) FlushAll() error {
	for {
		all, err := s.FlushRuns()
		if err != nil || all {
			return err
		}
		if s.Save() != nil {
			return fmt.Errorf("the rows read last have no room before the next snapshot, which could not be saved: %w", httpapi.ErrUnavailable)
		}
	}
}

// SaveThen has all changes saved, and calls then when they are on disk or the save has failed.
// A save that is under way does not have all of them, so another one follows.
func (s *Saver) SaveThen(then func(error)) {
	if s.waiting = append(s.waiting, then); s.state == idle {
		s.BeginSave()
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
func (s *Saver) beginCompaction(now time.Time, ended func(snapshot.SaveInfo, error)) *loop.Job {
	since := s.Live.Uncompacted()
	s.state, s.lastCompaction = compacting, now
	s.Live.Compacting(now)
	s.job = s.BeginWriting(func(ctx context.Context) func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // a stop does not wait for the compaction
			select {
			case <-s.Stopping:
			case <-ctx.Done():
			}
			cancel()
		}()
		info, err := s.Store.Compact(ctx)
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
func (s *Saver) endCompaction(began, since time.Time, info snapshot.SaveInfo, err error) {
	s.state, s.job, s.compactProblem = idle, nil, err
	if err != nil {
		s.damaged(err)
		s.Live.NotCompacted(since)
	}
	switch {
	case errors.Is(err, context.Canceled):
		s.Log.Info().Msg("the snapshot is not compacted, since the daemon stops; the next one does it")
		return
	case err != nil:
		s.Log.Error().Err(err).Msg("the snapshot could not be compacted: retired blocks can still be read from the file")
		return
	}
	s.info.Bytes = info.FileBytes
	s.Log.Info().Int64("bytes", info.FileBytes).Dur("took", time.Since(began)).Msg("snapshot compacted")
}
