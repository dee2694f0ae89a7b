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
// It takes memory for one more copy of the sample, and for one of the rows outside a
// fold.
type studyJob struct {
	d        *Daemon
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

// studying is the loop's part in studies.
type studying struct {
	now      *studyJob // under way
	last     *studyJob // that has ended
	ended    time.Time // when it has, or the daemon was made
	copyTook time.Duration
	churn    int64 // of the live set when it was last looked at
	moved    time.Time
	due      bool                // at once
	asked    chan<- refineAnswer // by whom
}

// Fewer blocks than a part in changedPart of the live rows do not change much for
// what is chosen and measured.
const changedPart = 10

// refines says whether planes are refined; all that are served come from studies
// then, once there has been one.
func (d *Daemon) refines() bool { return d.cfg.Model.Refine != config.RefineNone }

// tunes says whether ν is chosen.
func (d *Daemon) tunes() bool { return d.cfg.Model.Nu == config.NuAuto }

// judges says whether planes are judged on held-out rows.
func (d *Daemon) judges() bool { return d.cfg.Model.Folds > 0 && d.cfg.Sample.Rows > 0 }

// studyWhenDue begins a study when one is due.
func (d *Daemon) studyWhenDue(ctx context.Context, now time.Time) {
	y := &d.studying
	if y.churn != d.live.Churn() {
		y.churn, y.moved = d.live.Churn(), now
	}
	if y.last != nil && d.live.Rows() == 0 { // what was found out is about rows that are gone
		y.last, d.changed = nil, true
	}
	if y.now == nil && !d.solving && (y.due || d.studyIsDue(now)) {
		d.beginStudy(ctx, now)
	}
}

// studyIsDue says whether the live set is not that of the last study and has been
// still for solve_interval, and for as long as that study took; or changes, and
// refine_interval is over, where planes are not refined also not before a tenth of
// the rows have come or gone.
func (d *Daemon) studyIsDue(now time.Time) bool {
	if !d.refines() && !d.tunes() && !d.judges() {
		return false
	}
	return d.studying.isDue(d.cfg.Model, d.live.Rows(), d.live.Lacking(), now)
}

// isDue is studyIsDue for so many live rows, and blocks whose rows the sample lacks.
func (y *studying) isDue(m config.Model, rows int64, lacking int, now time.Time) bool {
	last, since := y.last, now.Sub(y.ended)
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

// beginStudy copies what a study needs and lets it go.
func (d *Daemon) beginStudy(ctx context.Context, now time.Time) {
	y := &d.studying
	if !d.isFlushed() {
		return
	}
	in := d.live.InUse().Coordinates
	sums := d.live.InUse()
	s := &studyJob{
		d:       d,
		options: d.optionsIn(in),
		served:  d.header(now),
		in:      in,
		fixed:   d.live.Target().Features,
		sums:    study.Problem{Whole: sums.Total().Clone()},
		churn:   d.live.Churn(),
		answer:  y.asked,
	}
	if in != nil {
		s.sums.Regulariser = in.Regulariser
	}
	if d.tunes() || d.judges() {
		for _, f := range sums.PerFold() {
			s.sums.Folds = append(s.sums.Folds, f.Clone())
		}
	}
	s.sample = d.live.Sample(d.live.Features().Folds())
	if d.refines() && d.cfg.Model.Rows == config.RowsLog {
		s.blocks = d.live.Moment(d.live.Page(retire.Lowest, math.MaxInt))
	}
	y.copyTook = time.Since(now)
	y.now, y.due, y.asked = s, false, nil
	go func() {
		s.make(ctx)
		s.sums, s.sample = study.Problem{}, nil // it is kept until the next one, without its copies
		s.took = time.Since(now)
		d.studied <- s
	}()
}

// abandonStudy waits for the study that is under way, whose context has ended, to
// notice, but for a factorisation no longer than until ctx ends.
func (d *Daemon) abandonStudy(ctx context.Context) {
	if d.studying.now == nil {
		return
	}
	select {
	case <-d.studied:
	case <-ctx.Done():
	}
}

// endStudy serves what has come out.
func (d *Daemon) endStudy(s *studyJob) {
	y := &d.studying
	if d.failure != nil {
		return
	}
	if s.in != d.live.InUse().Coordinates || s.fixed != d.live.Target().Features {
		// It is about planes of before a switch, or in other features.
		y.now, y.due = nil, true
		if s.answer != nil {
			y.asked = s.answer
		}
		return
	}
	known := y.last != nil && y.last.refining != nil
	y.now, y.last, y.ended = nil, s, time.Now()
	last := d.published.Load().served
	switch {
	case s.served.Digest == last.Digest && last.MadeAt.After(s.served.MadeAt):
		// The same rows, but the stream has moved on.
		s.served.MadeAt, s.served.Offsets = last.MadeAt, last.Offsets
	case d.refines() && last.MadeAt.After(s.served.MadeAt):
		// It is about rows of before, and another one is due for those of now.
		y.due = true
		if s.answer != nil {
			y.asked = s.answer
		}
		return
	case !d.refines() && s.served.Digest != last.Digest:
		d.changed = true // so that the next solve goes by it
		return
	}
	if s.refining != nil && !known {
		d.log.Warn().Err(s.refining).Msg("the planes are not refined")
	}
	d.lastSolve = y.ended
	d.publish(s.served, s)
	if s.answer != nil {
		s.answer <- refineAnswer{s.served.Refinement, s.refining}
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
		y := &d.studying
		switch {
		case d.failure != nil:
			return errStopping
		case y.asked != nil || y.now != nil && y.now.answer != nil:
			return fmt.Errorf("refine: %w", httpapi.ErrBusy)
		}
		y.due, y.asked = true, answer
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
