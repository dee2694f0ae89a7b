package daemon

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
)

// publication is the served value, and a channel that is closed when it is replaced.
type publication struct {
	served   *model.Served
	fixed    *[]string // the model's features
	replaced chan struct{}
}

// publisher solves planes and serves the results of solves and studies.
//
//	solving nil  a solve may begin when the live set has changed (changed)
//	solving      a job solves on a copy of the sums
//
// A model is served before its blocks are saved, and says so (model.Served.Durable). A crash in
// between loses nothing: their records are read from the log again, and make the same model.
type publisher struct {
	*core
	receipts   *receipts
	saver      *saver
	published  atomic.Pointer[publication]
	changed    bool // since the last solve
	solving    *job // the solve under way, or nil
	solvedOnce bool // a solve has begun since the start
	answered   bool // a solve or a study has ended since the start
	lastSolve  time.Time
	copies     effort    // the loop's time for a solve
	solves     effort    // the time of a solve
	oldest     time.Time // arrival of the oldest delivery that is in no solve; zero: none
	servedBy   *studyJob // the study whose results the served value has, or nil
	study      *studyJob // the last study that applies to the live rows, or nil
	studying   bool      // a study is under way
}

const (
	// leastSolve is the least time between two solves: at most a thousand models a second.
	leastSolve = time.Millisecond

	// While deliveries wait to be applied, the time between two solves is behind times as long, up
	// to behindSolve: reading up to the end of the log is more urgent.
	behind      = 5
	behindSolve = 100 * time.Millisecond
)

// effort is the time of a work that is done again and again: the least of the last few times. What
// else runs on the processors makes one of them longer, and never shorter.
type effort struct {
	last [4]time.Duration
	n    int
}

func (e *effort) add(d time.Duration) {
	e.last[e.n%len(e.last)] = d
	e.n++
}

// time is zero before the first one.
func (e *effort) time() time.Duration { return slices.Min(e.last[:max(1, min(e.n, len(e.last)))]) }

// whenDue begins a solve when it is due.
func (p *publisher) whenDue(now time.Time) {
	if wait, waits := p.dueIn(now); waits && wait <= 0 {
		p.solve(now)
	}
}

// dueIn is the time until the next solve is due. waits is false where none is needed, or one is
// under way. While blocks come, solves take at most model.solve_share of a core, and the loop's
// copies of the sums at most 1/share of the loop.
func (p *publisher) dueIn(now time.Time) (wait time.Duration, waits bool) {
	if !p.changed || p.solving != nil || p.rests(taskSolve, now) {
		return 0, false
	}
	least := max(leastSolve, p.pause(p.copies.time(), now))
	if effort := p.solves.time(); now.Sub(p.delivered) < max(quiet, effort) {
		least = max(least, time.Duration(float64(effort)/p.cfg.Model.SolveShare))
	}
	if len(p.intake.Deliveries()) > 0 {
		least = max(least, min(behind*least, behindSolve))
	}
	return least - now.Sub(p.lastSolve), true
}

// note notes that records of a delivery have been applied.
func (p *publisher) note(y *intake.Delivery) {
	if p.oldest.IsZero() {
		p.oldest = y.Came()
	}
}

// solve begins to solve the planes of the current sums. The loop copies the sums and
// continues. A job solves and returns the result to the loop.
func (p *publisher) solve(now time.Time) {
	all, ok := p.flushRuns()
	if !ok {
		return
	}
	weighted, ok := p.weigh()
	if !ok {
		return
	}
	defer func() { p.copies.add(time.Since(now)) }()
	p.changed = !all
	oldest := p.oldest
	p.oldest = time.Time{}
	next := p.header(now, weighted)
	if next.Rows > 0 { // an empty set must not delay the solve of the first rows
		p.lastSolve = now
	}
	last := p.published.Load().served
	if p.solvedOnce && last.SameSums(next) && p.servedBy == p.study {
		// The same sums have the same planes. The position in the log is new.
		again := *last
		again.Blocks, again.Offsets, again.MadeAt, again.Basis, again.Moves, again.Save = next.Blocks, next.Offsets, next.MadeAt, next.Basis, next.Moves, next.Save
		if p.study != nil {
			again.Moves = p.study.movesOf(next)
		}
		p.publish(&again, p.study)
		return
	}
	if p.awaitsStudies() {
		return // the served planes come from studies
	}
	in := p.live.InUse().Coordinates
	if last.Model != nil && last.BasisID() != next.BasisID() && p.study == nil && (p.learner.Refines() || p.learner.Tunes()) {
		return // after a switch the old planes are served until a study has made planes as good
	}
	options := p.optionsNow(in)
	sums := learning.Sums(p.live, weighted)
	moments, labels := in.Moments(sums), sums.Labels()
	p.solvedOnce = true
	copied := time.Since(now)
	of, fixed, features := p.study, p.live.Target().Features, p.live.Features().Names()
	p.solving = p.begin(taskSolve, false, func(ctx context.Context) func() {
		from := time.Now()
		learning.Solve(ctx, next, moments, options, features, labels)
		p.metrics.SolveSeconds.Observe(time.Since(from).Seconds())
		adopt(next, of)
		next.Fingerprint = next.Identity().Fingerprint()
		took := copied + time.Since(from)
		return func() {
			p.solves.add(took)
			if p.endSolve(next, of, in, fixed) && !oldest.IsZero() {
				p.metrics.FreshnessSeconds.Observe(time.Since(oldest).Seconds())
			}
		}
	}, func(error) { p.solving, p.changed, p.solvedOnce = nil, true, false })
}

// awaitsStudies reports whether all served planes come from studies: refined planes do, once
// a study has ended.
func (p *publisher) awaitsStudies() bool {
	switch {
	case !p.learner.Refines():
		return false
	case p.study != nil:
		return p.study.Refined
	}
	return p.studying && p.cfg.Model.Refine != config.RefineAuto
}

// endSolve serves the result. It drops the result if another study has ended meanwhile, or
// the features or coordinates have changed.
func (p *publisher) endSolve(next *model.Served, of *studyJob, in *live.Coordinates, fixed *[]string) (served bool) {
	p.solving = nil
	if of != p.study || in != p.live.InUse().Coordinates || fixed != p.live.Target().Features {
		p.changed = true
		return false
	}
	p.publish(next, of)
	return true
}

// publish serves next, whose settings come from study by.
func (p *publisher) publish(next *model.Served, by *studyJob) {
	p.servedBy, p.answered = by, true
	last := p.published.Load()
	if b := next.Basis; b != nil && !b.Stale && p.isStale(b) {
		stale := *b
		stale.Stale = true
		next.Basis = &stale
	}
	if next.Fingerprint == "" {
		next.Fingerprint = next.Identity().Fingerprint()
	}
	next.Durable = p.isDurable(next)
	p.receipts.stamp(next)
	if !last.served.Same(next) {
		p.replace(next, p.live.Target().Features)
	}
}

// replace serves next, and tells those who wait for it.
func (p *publisher) replace(next *model.Served, fixed *[]string) {
	last := p.published.Load()
	p.published.Store(&publication{served: next, fixed: fixed, replaced: make(chan struct{})})
	close(last.replaced)
}

// isDurable reports whether a restart would have the state of a served value, or a later one.
func (p *publisher) isDurable(s *model.Served) bool {
	return s.Save <= p.saver.saved || !p.saver.hasUnsaved()
}

// saved serves the same model as durable, or with further receipts, if it has become so.
func (p *publisher) saved() {
	last := p.published.Load()
	again := *last.served
	again.Durable = again.Durable || p.isDurable(&again)
	if p.receipts.stamp(&again); !again.Same(last.served) {
		p.replace(&again, last.fixed)
	}
}

// header is a served value without a model and without results of a study.
func (p *publisher) header(now time.Time, weighted *live.Weighted) *model.Served {
	s := p.learner.Begin(p.live, weighted)
	s.Offsets = append(append(p.intake.Applied(), p.intake.AppliedLabels()...), p.saver.control.offsets(p.cfg.Retire.Topic)...)
	s.MadeAt, s.Moves, s.Save = now.UTC(), p.live.Moves(), p.saver.begun+1
	return s
}

// optionsNow is the options of a solve in the given coordinates, with what the last study has
// chosen.
func (p *publisher) optionsNow(in *live.Coordinates) incremental.Options {
	if p.study != nil {
		return p.study.Options
	}
	return p.learner.OptionsIn(p.live, in)
}

// decides reports whether solved planes take something over that a study has chosen by its rows,
// and not only reports.
func (s *studyJob) decides() bool {
	return s.Served.Tuning != nil || s.Served.Calibration != nil || s.Served.Rule != nil
}

// movesOf is the moves of a served value that takes over what a study has chosen.
func (s *studyJob) movesOf(next *model.Served) int64 {
	if s.decides() && !s.Served.SameSums(next) {
		return min(next.Moves, s.Served.Moves)
	}
	return next.Moves
}

// adopt gives solved planes the results of the last study, which apply to planes like them.
func adopt(next *model.Served, s *studyJob) {
	if s == nil || next.Model == nil {
		return
	}
	from := s.Served
	next.Moves = s.movesOf(next)
	next.Sample = from.Sample
	next.Tuning, next.Absent.Tuning = from.Tuning, from.Absent.Tuning
	next.Absent.Refinement = from.Absent.Refinement
	if from.Model == nil || !slices.Equal(from.Model.Classes, next.Model.Classes) {
		return
	}
	next.Calibration, next.Absent.Calibration = from.Calibration, from.Absent.Calibration
	next.Rule, next.Absent.Decision = from.Rule, from.Absent.Decision
	next.Quality, next.Absent.Quality, next.Better = from.Quality, from.Absent.Quality, from.Better
}

// servedOf returns the served value if its model has these features.
func (p *publisher) servedOf(features *[]string) *model.Served {
	if now := p.published.Load(); now.fixed == features {
		return now.served
	}
	return &model.Served{}
}

// sayStale serves the same model again with its basis marked as stale.
func (p *publisher) sayStale() {
	last := p.published.Load()
	if b := last.served.Basis; b != nil && !b.Stale && p.isStale(b) {
		again := *last.served
		p.publish(&again, p.servedBy)
	}
}

// isStale reports whether a basis is the one in use and is stale.
func (p *publisher) isStale(b *model.Basis) bool {
	e := p.live.InUse()
	return e.Coordinates != nil && e.ID == b.ID && e.Stale() != live.Fresh
}
