package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
	"streamd/incremental/study"
	"streamd/retire"
)

// studyJob is a study of the live set at one moment (package study), which takes
// longer than a solve: the choice of ν, the planes with it, their refinement, their
// quality on held-out rows and their calibration. But for the time and the offsets
// its result is a function of the live set: refinement begins at planes that were
// solved of the same rows, never at those of an earlier study.
//
// The loop begins one at a time, with copies, and one goroutine does it, but for a
// pass over the log, in no more than one part in share of the time while rows come.
// It takes memory for two more copies of the sample.
type studyJob struct {
	*core
	options  incremental.Options // as configured, and then with the choice
	served   *model.Served       // the result
	in       *live.Coordinates   // of the sums; nil: the features
	fixed    *[]string           // the model's features
	sums     study.Problem
	sample   *sample.Snapshot // nil: there is none
	blocks   *live.Blocks     // whose rows planes are refined on; nil: the sample's
	churn    int64            // of the live set
	answer   chan<- refineAnswer
	took     time.Duration
	lacking  int   // blocks whose rows the sample lacked
	refining error // why the planes are not refined
}

type refineAnswer struct {
	report *model.Refinement
	err    error
}

// studying begins studies, one at a time, when the live set is not that of the last one.
type studying struct {
	*core
	publisher *publisher
	state     studyState
	now       *studyJob // under way; nil: none is
	running   *job      // of it
	ended     time.Time // when the last one has, or the daemon was made
	copyTook  time.Duration
	churn     int64 // of the live set when it was last looked at
	moved     time.Time
	asked     chan<- refineAnswer // by the caller of POST /v1/refine; nil: nobody waits
}

// studyState is the state of studying.
//
//	resting   want: due         begin: running
//	due       want: due         begin: running
//	running   want: outdated    end: resting
//	outdated  want: outdated    end: due
type studyState int

const (
	resting  studyState = iota // another study is begun by isDue
	due                        // another study is begun at once
	running                    // a study is under way
	outdated                   // a study is under way, and another is due after it
)

// want has another study begun at once, or after the one that is under way.
func (y *studying) want() {
	switch y.state {
	case resting:
		y.state = due
	case running:
		y.state = outdated
	}
}

// unwant takes want back.
func (y *studying) unwant() {
	switch y.state {
	case due:
		y.state = resting
	case outdated:
		y.state = running
	}
}

// Fewer blocks than a part in changedPart of the live rows do not change much for
// what is chosen and measured.
const changedPart = 10

// whenDue begins a study when one is due.
func (y *studying) whenDue(now time.Time) {
	if y.churn != y.live.Churn() {
		y.churn, y.moved = y.live.Churn(), now
	}
	if p := y.publisher; p.study != nil && y.live.Rows() == 0 { // its results are about rows that are not live
		p.study, p.changed = nil, true
	}
	if y.now != nil || y.publisher.solving != nil {
		return
	}
	if y.state == due || y.isDue(y.publisher.study, y.live.Rows(), y.live.Lacking(), now) {
		y.beginStudy(now)
	}
}

// isDue says whether the live set, of so many rows, is not that of the last study and has
// been still for solve_interval, and for as long as that study took; or changes, and
// refine_interval is over, where planes are not refined also not before a tenth of
// the rows have come or gone. The sample lacks rows of so many blocks.
func (y *studying) isDue(last *studyJob, rows int64, lacking int, now time.Time) bool {
	if !y.refines() && !y.tunes() && !y.judges() {
		return false
	}
	m, since := y.cfg.Model, now.Sub(y.ended)
	if last == nil {
		if rows == 0 {
			return false
		}
		last = &studyJob{served: &model.Served{}, churn: -1}
	}
	still := now.Sub(y.moved) >= max(m.SolveInterval, last.took, share*y.copyTook)
	enough := m.Refine != config.RefineNone || changedPart*(y.churn-last.churn) >= last.served.Rows
	switch {
	case last.churn == y.churn && !(last.lacking > 0 && lacking == 0):
		return still && last.retry() && since >= m.RefineInterval
	case still:
		return true
	}
	return enough && since >= StudyPause(m.RefineInterval, max(last.took, y.copyTook))
}

// StudyPause is the least time from the end of a study, which took so long, to the
// beginning of the next one while rows come. The interval is model.refine_interval.
func StudyPause(interval, took time.Duration) time.Duration { return max(interval, share*took) }

// beginStudy copies the sums and the sample, and begins a study of them.
func (y *studying) beginStudy(now time.Time) {
	if !y.isFlushed() {
		return
	}
	in := y.live.InUse().Coordinates
	sums := y.live.InUse()
	s := &studyJob{
		core:    y.core,
		options: y.publisher.optionsIn(in),
		served:  y.publisher.header(now),
		in:      in,
		fixed:   y.live.Target().Features,
		sums:    study.Problem{Whole: sums.Total().Clone()},
		churn:   y.live.Churn(),
		answer:  y.asked,
	}
	if in != nil {
		s.sums.Regulariser = in.Regulariser
	}
	if y.tunes() || y.judges() {
		for _, f := range sums.PerFold() {
			s.sums.Folds = append(s.sums.Folds, f.Clone())
		}
	}
	s.sample = y.live.Sample(y.live.Features().Folds())
	if y.refines() && y.cfg.Model.Rows == config.RowsLog {
		s.blocks = y.live.Moment(y.live.Page(retire.Lowest, math.MaxInt))
	}
	y.copyTook = time.Since(now)
	y.now, y.state, y.asked, y.publisher.studying = s, running, nil, true
	y.running = y.begin(false, func(ctx context.Context) func() {
		s.make(ctx)
		s.sums, s.sample = study.Problem{}, nil // it is kept until the next one, without its copies
		s.took = time.Since(now)
		return func() { y.endStudy(s) }
	})
}

// abandon waits for the study that is under way, whose context has ended, to notice. A
// factorisation is waited for no longer than until ctx ends.
func (y *studying) abandon(ctx context.Context) {
	if y.now == nil {
		return
	}
	select {
	case <-y.running.done:
	case <-ctx.Done():
	}
}

// endStudy serves the result.
func (y *studying) endStudy(s *studyJob) {
	if y.failure != nil {
		return
	}
	p := y.publisher
	again := y.state == outdated
	y.now, y.state, p.studying = nil, resting, false
	if again {
		y.state = due
	}
	if s.in != y.live.InUse().Coordinates || s.fixed != y.live.Target().Features {
		// It is about planes of before a switch, or in other features.
		y.state = due
		y.askAgain(s)
		return
	}
	known := p.study != nil && p.study.refining != nil
	p.study, y.ended = s, time.Now()
	last := p.published.Load().served
	switch {
	case s.served.Digest == last.Digest && last.MadeAt.After(s.served.MadeAt):
		// The same rows, but the stream has moved on.
		s.served.MadeAt, s.served.Offsets = last.MadeAt, last.Offsets
	case y.refines() && last.MadeAt.After(s.served.MadeAt):
		// It is about rows of before, and another one is due for those of now.
		y.state = due
		y.askAgain(s)
		return
	case !y.refines() && s.served.Digest != last.Digest:
		p.changed = true // so that the next solve goes by it
		return
	}
	if s.refining != nil && !known {
		y.log.Warn().Err(s.refining).Msg("the planes are not refined")
	}
	p.lastSolve = y.ended
	p.publish(s.served, s)
	if s.answer != nil {
		s.answer <- refineAnswer{s.served.Refinement, s.refining}
	}
}

// askAgain has the next study answer the caller of this one.
func (y *studying) askAgain(s *studyJob) {
	if s.answer != nil {
		y.asked = s.answer
	}
}

// retry says whether the same rows may give another result next time: those of
// the log may.
func (s *studyJob) retry() bool {
	var limit *newton.LimitError
	var stall *newton.StallError
	var condition *incremental.ConditionError
	return s.blocks != nil && s.refining != nil && !errors.As(s.refining, &limit) && !errors.As(s.refining, &stall) && !errors.As(s.refining, &condition)
}

// Refine implements httpapi.Service. A study that is under way is about rows of
// before; the one that was asked for begins after it.
func (d *Daemon) Refine(ctx context.Context) (*model.Refinement, error) {
	if !d.refines() {
		return nil, fmt.Errorf("model.refine is none: %w", httpapi.ErrOff)
	}
	answer := make(chan refineAnswer, 1)
	// Whoever does not wait for the end asks all the same.
	err := d.call(context.WithoutCancel(ctx), func() error {
		y := d.studying
		switch {
		case d.failure != nil:
			return errStopping
		case y.asked != nil || y.now != nil && y.now.answer != nil:
			return fmt.Errorf("refine: %w", httpapi.ErrBusy)
		}
		y.want()
		y.asked = answer
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		if a.err != nil {
			return nil, fmt.Errorf("%w: %w", a.err, httpapi.ErrUnavailable)
		}
		return a.report, nil
	case <-d.loopDone:
		return nil, errStopping
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
