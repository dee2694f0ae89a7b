package daemon

import (
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
)

// publication is what is served, and the channel that is closed when something
// else is.
type publication struct {
	served   *model.Served
	fixed    *[]string // the model's features
	replaced chan struct{}
}

// solved is what came of a solve, for which the last study was used, in some
// coordinates.
type solved struct {
	served *model.Served
	study  *studyJob
	in     *live.Coordinates
	fixed  *[]string // the model's features
}

// flushRuns makes the rows of open runs live. all is false where some have no room before
// the next save; ok is false when the daemon has failed.
func (d *Daemon) flushRuns() (all, ok bool) {
	all, err := d.intake.Flush(d.background)
	if err != nil {
		d.fail(err)
	}
	return all, err == nil
}

// isFlushed is flushRuns for a caller that does not ask whether all is live.
func (d *Daemon) isFlushed() bool { _, ok := d.flushRuns(); return ok }

// solve starts reading the hyperplanes off the state as it is now. The loop
// copies the sums and goes on; a goroutine solves, and gives the result back
// to the loop.
func (d *Daemon) solve(now time.Time) {
	all, ok := d.flushRuns()
	if !ok {
		return
	}
	d.changed = !all
	next := d.header(now)
	if next.Rows > 0 { // the first rows do not wait because there was nothing to solve
		d.lastSolve = now
	}
	y := &d.studying
	last := d.published.Load().served
	if d.solvedOnce && last.Digest == next.Digest && d.servedBy == y.last {
		// The same sums have the same planes, but the stream has moved on.
		again := *last
		again.Blocks, again.Offsets, again.MadeAt, again.Basis = next.Blocks, next.Offsets, next.MadeAt, next.Basis
		d.publish(&again, y.last)
		return
	}
	if d.refines() && (y.now != nil || y.last != nil) {
		return // what is served comes from studies
	}
	in := d.live.InUse().Coordinates
	if last.Model != nil && last.BasisID() != next.BasisID() && y.last == nil && (d.refines() || d.tunes()) {
		return // after a switch, planes that are as good as those of before are waited for
	}
	options := d.optionsIn(in)
	if y.last != nil {
		options = y.last.options
	}
	moments := in.Moments(d.live.InUse().Total())
	d.copyTook = time.Since(now)
	d.solving, d.solvedOnce = true, true
	of, fixed := y.last, d.live.Target().Features
	go func() {
		from := time.Now()
		model, hat, err := moments.SolveWithHat(options)
		d.metrics.SolveSeconds.Observe(time.Since(from).Seconds())
		if err != nil {
			next.Problem = err.Error()
		} else {
			next.Model, next.Hat = model, hat
		}
		adopt(next, of)
		d.solved <- solved{next, of, in, fixed}
	}()
}

// endSolve serves what has been solved, unless a study has ended meanwhile that
// has to be gone by, or features or coordinates are others now.
func (d *Daemon) endSolve(s solved) {
	d.solving = false
	if s.study != d.studying.last || s.in != d.live.InUse().Coordinates || s.fixed != d.live.Target().Features {
		d.changed = true
		return
	}
	d.publish(s.served, s.study)
}

// publish serves next, which goes by a study, from now on.
func (d *Daemon) publish(next *model.Served, by *studyJob) {
	d.servedBy = by
	last := d.published.Load()
	if b := next.Basis; b != nil && !b.Stale && d.isStale(b) {
		stale := *b
		stale.Stale = true
		next.Basis = &stale
	}
	if last.served.Same(next) {
		return
	}
	// Before the first rows it is no news that there is no model.
	if next.Problem != "" && next.Problem != last.served.Problem && next.Rows > 0 {
		d.log.Warn().Str("problem", next.Problem).Msg("there is no model")
	}
	next.Fingerprint = model.Fingerprint(next)
	d.published.Store(&publication{served: next, fixed: d.live.Target().Features, replaced: make(chan struct{})})
	close(last.replaced)
}

// optionsIn are those for planes in these coordinates. Features are scaled before
// they get to a kernel; what comes of it is not scaled again.
func (d *Daemon) optionsIn(c *live.Coordinates) incremental.Options {
	o := d.options
	o.Standardise = o.Standardise && c == nil
	return o
}

// header is what is served, but for the model and what goes with it.
func (d *Daemon) header(now time.Time) *model.Served {
	s := &model.Served{
		Rows:    d.live.Rows(),
		Blocks:  d.live.Blocks(),
		Digest:  d.live.Digest(),
		Offsets: d.intake.Applied(),
		MadeAt:  now.UTC(),
	}
	if c := d.live.InUse().Coordinates; c != nil {
		s.Basis = &model.Basis{
			ID: c.ID, Map: c.Map, Features: d.live.Features().Names(), Regulariser: d.cfg.Kernel.Regulariser,
		}
	}
	const soon = "it is not known yet"
	a := &s.Absent
	a.Tuning, a.Refinement, a.Quality, a.Calibration = soon, soon, soon, soon
	m := d.cfg.Model
	if !d.tunes() {
		a.Tuning = "model.nu is a number"
	}
	if !d.refines() {
		a.Refinement = "model.refine is none"
	}
	switch {
	case m.Folds == 0:
		a.Quality = "model.folds is 0"
	case d.cfg.Sample.Rows == 0:
		a.Quality = "sample.rows is 0"
	}
	if a.Calibration = a.Quality; m.Calibration == config.CalibrationNone {
		a.Calibration = "model.calibration is none"
	}
	return s
}

// adopt gives planes that were solved what the last study has found for planes
// like them.
func adopt(next *model.Served, s *studyJob) {
	if s == nil || next.Model == nil {
		return
	}
	from := s.served
	next.Tuning, next.Absent.Tuning = from.Tuning, from.Absent.Tuning
	if from.Model == nil || !slices.Equal(from.Model.Classes, next.Model.Classes) {
		return
	}
	next.Calibration, next.Absent.Calibration = from.Calibration, from.Absent.Calibration
	next.Quality, next.Absent.Quality = from.Quality, from.Absent.Quality
}

// servedOf is the served value, if its model is of these features.
func (d *Daemon) servedOf(features *[]string) *model.Served {
	if p := d.published.Load(); p.fixed == features {
		return p.served
	}
	return &model.Served{}
}
