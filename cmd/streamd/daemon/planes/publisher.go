// Package planes has the planes of the live set solved, served and studied.
//
//	publisher.go  planes are solved when the live set has changed, and served
//	studying.go   a study chooses ν, refines, calibrates and measures; when it is due
//	logrows.go    rows of the log refine the planes
//	labelling.go  which rows should be labelled next
//
// A solve takes milliseconds and is repeated. A study takes longer, works on copies, and its result
// is served as a whole. All of it belongs to the loop but the work of the jobs.
package planes

import (
	"context"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
)

// Saves tells of the saves of the state that planes are of.
type Saves interface {
	// IsDurable reports whether a restart would have the state of a served value, or a later one.
	IsDurable(*model.Served) bool
	// Next is the number of the next save that begins.
	Next() int64
	// Followed has the offsets below which the live set follows the control topic.
	Followed() []model.Offset
}

// Publisher solves planes and serves the results of solves and studies.
//
//	solving nil  a solve may begin when the live set has changed (changed)
//	solving      a job solves on a copy of the sums
//
// A model is served before its blocks are saved, and says so (model.Served.Durable). A crash in
// between loses nothing: their records are read from the log again, and make the same model.
type Publisher struct {
	*loop.Loop
	receipts   *receipts.Receipts
	saves      Saves
	changed    bool // since the last solve
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

// NewPublisher makes a publisher that has solved nothing. A solve is due.
func NewPublisher(l *loop.Loop, r *receipts.Receipts, s Saves) *Publisher {
	return &Publisher{Loop: l, receipts: r, saves: s, changed: true}
}

// Changed says that the live set has changed since the last solve, or its position in a log has.
func (p *Publisher) Changed() { p.changed = true }

// IsSolved reports whether what is served has the changes so far.
func (p *Publisher) IsSolved() bool { return !p.changed && p.Solving == nil }

// LastSolve is when the last solve of rows has begun, or the last study of them has ended.
func (p *Publisher) LastSolve() time.Time { return p.lastSolve }

// Last is the last study that applies to the live rows, or nil.
func (p *Publisher) Last() *learning.Study {
	if p.study == nil {
		return nil
	}
	return p.study.Study
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

// WhenDue begins a solve when it is due.
func (p *Publisher) WhenDue(now time.Time) error {
	if wait, waits := p.DueIn(now); waits && wait <= 0 {
		return p.Solve(now)
	}
	return nil
}

// DueIn is the time until the next solve is due. waits is false where none is needed, or one is
// under way. While blocks come, solves take at most model.solve_share of a core, and the loop's
// copies of the sums at most 1/share of the loop.
func (p *Publisher) DueIn(now time.Time) (wait time.Duration, waits bool) {
	if !p.changed || p.Solving != nil || p.Rests(loop.TaskSolve, now) {
		return 0, false
	}
	least := max(leastSolve, p.Pause(p.copies.time(), now))
	if effort := p.solves.time(); now.Sub(p.Delivered) < max(loop.Quiet, effort) {
		least = max(least, time.Duration(float64(effort)/p.Config.Model.SolveShare))
	}
	if len(p.Intake.Deliveries()) > 0 {
		least = max(least, min(behind*least, behindSolve))
	}
	return least - now.Sub(p.lastSolve), true
}

// Note notes that records of a delivery have been applied.
func (p *Publisher) Note(y *intake.Delivery) {
	if p.oldest.IsZero() {
		p.oldest = y.Came()
	}
}

// Solve begins to solve the planes of the current sums. The loop copies the sums and
// continues. A job solves and returns the result to the loop.
func (p *Publisher) Solve(now time.Time) error {
	all, err := p.FlushRuns()
	if err != nil {
		return err
	}
	weighted, ready, err := p.Weigh()
	if !ready {
		return err
	}
	defer func() { p.copies.add(time.Since(now)) }()
	p.changed = !all
	oldest := p.oldest
	p.oldest = time.Time{}
	next := p.header(now, weighted)
	if next.Rows > 0 { // an empty set must not delay the solve of the first rows
		p.lastSolve = now
	}
	last := p.Front.Served()
	if p.solvedOnce && last.SameSums(next) && p.servedBy == p.study {
		// The same sums have the same planes. The position in the log is new.
		again := *last
		again.Blocks, again.Offsets, again.MadeAt, again.Basis, again.Moves, again.Save = next.Blocks, next.Offsets, next.MadeAt, next.Basis, next.Moves, next.Save
		if p.study != nil {
			again.Moves = p.study.movesOf(next)
		}
		p.publish(&again, p.study)
		return nil
	}
	if p.awaitsStudies() {
		return nil // the served planes come from studies
	}
	in := p.Live.InUse().Coordinates
	if last.Model != nil && last.BasisID() != next.BasisID() && p.study == nil && (p.Learner.Refines() || p.Learner.Tunes()) {
		return nil // after a switch the old planes are served until a study has made planes as good
	}
	options := p.optionsNow(in)
	sums := learning.Sums(p.Live, weighted)
	moments, labels := in.Moments(sums), sums.Labels()
	p.solvedOnce = true
	copied := time.Since(now)
	of, fixed, features := p.study, p.Live.Target().Features, p.Live.Features().Names()
	p.Solving = p.Begin(loop.TaskSolve, false, func(ctx context.Context) func() {
		from := time.Now()
		learning.Solve(ctx, next, moments, options, features, labels)
		p.Metrics.SolveSeconds.Observe(time.Since(from).Seconds())
		adopt(next, of)
		next.Fingerprint = next.Identity().Fingerprint()
		took := copied + time.Since(from)
		return func() {
			p.solves.add(took)
			if p.endSolve(next, of, in, fixed) && !oldest.IsZero() {
				p.Metrics.FreshnessSeconds.Observe(time.Since(oldest).Seconds())
			}
		}
	}, func(error) { p.Solving, p.changed, p.solvedOnce = nil, true, false })
	return nil
}

// awaitsStudies reports whether all served planes come from studies: refined planes do, once
// a study has ended.
func (p *Publisher) awaitsStudies() bool {
	switch {
	case !p.Learner.Refines():
		return false
	case p.study != nil:
		return p.study.Refined
	}
	return p.studying && p.Config.Model.Refine != config.RefineAuto
}

// endSolve serves the result. It drops the result if another study has ended meanwhile, or
// the features or coordinates have changed.
func (p *Publisher) endSolve(next *model.Served, of *studyJob, in *live.Coordinates, fixed *[]string) (served bool) {
	p.Solving = nil
	if of != p.study || in != p.Live.InUse().Coordinates || fixed != p.Live.Target().Features {
		p.changed = true
		return false
	}
	p.publish(next, of)
	return true
}

// publish serves next, whose settings come from study by.
func (p *Publisher) publish(next *model.Served, by *studyJob) {
	p.servedBy, p.answered = by, true
	last := p.Front.Now()
	if b := next.Basis; b != nil && !b.Stale && p.isStale(b) {
		stale := *b
		stale.Stale = true
		next.Basis = &stale
	}
	if next.Fingerprint == "" {
		next.Fingerprint = next.Identity().Fingerprint()
	}
	next.Durable = p.saves.IsDurable(next)
	p.receipts.Stamp(next)
	if !last.Served.Same(next) {
		p.Front.Replace(next, p.Live.Target().Features)
	}
}

// header is a served value without a model and without results of a study.
func (p *Publisher) header(now time.Time, weighted *live.Weighted) *model.Served {
	s := p.Learner.Begin(p.Live, weighted)
	s.Offsets = append(append(p.Intake.Applied(), p.Intake.AppliedLabels()...), p.saves.Followed()...)
	s.MadeAt, s.Moves, s.Save = now.UTC(), p.Live.Moves(), p.saves.Next()
	return s
}

// optionsNow is the options of a solve in the given coordinates, with what the last study has
// chosen.
func (p *Publisher) optionsNow(in *live.Coordinates) incremental.Options {
	if p.study != nil {
		return p.study.Options
	}
	return p.Learner.OptionsIn(p.Live, in)
}

// OptionsBy is optionsNow, and identifies the study that has chosen them.
func (p *Publisher) OptionsBy(in *live.Coordinates) (options incremental.Options, by any) {
	return p.optionsNow(in), p.study
}

// Answered reports whether a solve or a study has ended since the start.
func (p *Publisher) Answered() bool { return p.answered }

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

// SayStale serves the same model again with its basis marked as stale.
func (p *Publisher) SayStale() {
	last := p.Front.Now()
	if b := last.Served.Basis; b != nil && !b.Stale && p.isStale(b) {
		again := *last.Served
		p.publish(&again, p.servedBy)
	}
}

// isStale reports whether a basis is the one in use and is stale.
func (p *Publisher) isStale(b *model.Basis) bool {
	e := p.Live.InUse()
	return e.Coordinates != nil && e.ID == b.ID && e.Stale() != live.Fresh
}
