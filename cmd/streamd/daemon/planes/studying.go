package planes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/retire"
)

// studyJob is a study of the live set at one moment.
//
// The loop begins one study at a time, with copies. One goroutine makes it, apart from
// passes over the log. While rows come, studies take at most 1/share of the time.
type studyJob struct {
	*learning.Study
	fixed  *[]string // the model's features
	log    *logRows  // that refine the planes; nil: those of the sample do
	churn  int64     // the live set's churn at the start
	answer chan<- refineAnswer
	took   time.Duration
}

type refineAnswer struct {
	report *model.Refinement
	err    error
}

// Studies begins studies, one at a time, when the live set has changed since the last one.
type Studies struct {
	*Publisher
	state     studyState
	now       *studyJob // the study under way, or nil
	running   *loop.Job // its job
	ended     time.Time // when the last study ended, or the daemon was made
	copyTook  time.Duration
	churn     int64 // the live set's churn at the last look
	moved     time.Time
	chosen    bool                // since the last study began blocks have left, or come back, because somebody chose them
	asked     chan<- refineAnswer // the caller of POST /v1/refine, or nil
	labelling sync.Mutex          // one caller at a time gets label requests
	named     map[string]bool     // features that were named as identifiers
}

// studyState is the state of studying.
//
//	resting   want: due         begin: running
//	due       want: due         begin: running
//	running   want: outdated    end: resting
//	outdated  want: outdated    end: due
type studyState int

const (
	resting  studyState = iota // isDue begins the next study
	due                        // the next study begins at once
	running                    // a study is under way
	outdated                   // a study is under way, and another is due after it
)

// BlocksChanged asks for planes and a study of other live blocks, when some that somebody has
// chosen have left or come back.
func (y *Studies) BlocksChanged() {
	y.changed, y.chosen = true, true
	if y.Learner.Refines() {
		y.want()
	}
}

// want requests another study, at once or after the one under way.
func (y *Studies) want() {
	switch y.state {
	case resting:
		y.state = due
	case running:
		y.state = outdated
	}
}

// unwant cancels want.
func (y *Studies) unwant() {
	switch y.state {
	case due:
		y.state = resting
	case outdated:
		y.state = running
	}
}

// NewStudies makes no study yet. began is when the daemon was made.
func NewStudies(p *Publisher, began time.Time) *Studies { return &Studies{Publisher: p, ended: began} }

// InOtherCoordinates requests planes and a study in the coordinates in use. The last study
// was of other coordinates.
func (y *Studies) InOtherCoordinates() {
	y.changed, y.study = true, nil
	if y.Live.Rows() > 0 || y.asked != nil {
		y.want()
	} else {
		y.unwant()
	}
}

// IsUnderWay reports whether a study is.
func (y *Studies) IsUnderWay() bool { return y.now != nil }

// IsCurrent reports whether the last study is of the live rows as they are.
func (y *Studies) IsCurrent() bool { return y.study != nil && y.study.churn == y.Live.Churn() }

// IsSettled reports whether what is served comes from a study of all live rows as they are.
func (y *Studies) IsSettled() bool {
	return !y.changed && y.state == resting && y.IsCurrent() && y.study.Lacking == 0 && y.servedBy == y.study && y.Front.Served().Digest == y.Live.Digest()
}

// A change of less than 1/changedPart of the live rows changes little in what is chosen and
// measured.
const changedPart = 10

// WhenDue begins a study when one is due.
func (y *Studies) WhenDue(now time.Time) error {
	if y.churn != y.Live.Churn() {
		y.churn, y.moved = y.Live.Churn(), now
	}
	if y.study != nil && y.Live.Rows() == 0 { // its results apply to rows that are no longer live
		y.study, y.changed = nil, true
	}
	if y.now != nil || y.Solving != nil || y.Rests(loop.TaskStudy, now) {
		return nil
	}
	if y.state == due || y.isDue(y.study, y.Live.Rows(), y.Live.Lacking(), now) {
		return y.BeginStudy(now)
	}
	return nil
}

// longestStill is the length of a pause in the stream after which a study that takes less does not
// wait for its share of the time.
const longestStill = time.Second

// isDue reports whether a study of the live set should begin. rows is the number of live
// rows, and lacking the number of blocks whose rows the sample lacks. A study is due when
// the live set has changed and then paused for share times as long as the last study took, or for
// longestStill and as long as it took. Without a pause it is due after refine_interval. Where
// planes are not refined, that needs a change of a tenth of the rows, too, or a receipt that the
// served model does not name. Where the last study has decided about the served model, and blocks
// have been retired since, it is due after its share of the time. Without a change it is due once
// the sample has rows that the last study lacked, or may succeed where that failed (retry).
func (y *Studies) isDue(last *studyJob, rows int64, lacking int, now time.Time) bool {
	if !memory.Studies(y.Config) {
		return false
	}
	m, since := y.Config.Model, now.Sub(y.ended)
	if last == nil {
		if rows == 0 {
			return false
		}
		last = &studyJob{Study: &learning.Study{Served: &model.Served{}}, churn: -1}
	}
	still := now.Sub(y.moved) >= max(loop.Quiet, min(loop.Share*last.took, longestStill), last.took, loop.Share*y.copyTook)
	enough := last.Refined || changedPart*(y.churn-last.churn) >= last.Served.Rows || last.decides() && y.receipts.Lacks(y.Front.Served())
	switch {
	case last.churn == y.churn && !(last.Lacking > 0 && lacking == 0):
		return still && last.retry() && since >= m.RefineInterval
	case still:
		return true
	case y.chosen && last.decides():
		return since >= StudyPause(0, max(last.took, y.copyTook))
	}
	return enough && since >= StudyPause(m.RefineInterval, max(last.took, y.copyTook))
}

// StudyPause is the least time between the end of a study and the start of the next while
// rows come. interval is model.refine_interval, and took the duration of the study.
func StudyPause(interval, took time.Duration) time.Duration { return max(interval, loop.Share*took) }

// BeginStudy copies the sums and the sample, and begins a study of them.
func (y *Studies) BeginStudy(now time.Time) error {
	if err := y.Flush(); err != nil {
		return err
	}
	weighted, ready, err := y.Weigh()
	if !ready {
		return err
	}
	s := &studyJob{
		Study:  y.Learner.Study(y.Live, weighted, y.header(now, weighted)),
		fixed:  y.Live.Target().Features,
		churn:  y.Live.Churn(),
		answer: y.asked,
	}
	if y.Learner.Refines() && y.Config.Model.Rows == config.RowsLog {
		s.log = y.logRows(s.In)
		s.Rows = s.log
	}
	y.copyTook = time.Since(now)
	y.now, y.state, y.asked, y.chosen, y.studying = s, running, nil, false, true
	y.running = y.Begin(loop.TaskStudy, false, func(ctx context.Context) func() {
		s.Make(ctx)
		s.Drop() // the rest is kept until the next study
		s.took = time.Since(now)
		y.observe(s)
		return func() { y.endStudy(s) }
	}, func(err error) { y.endFailed(s, err) })
	return nil
}

// observe measures a study that has ended, and tells what its rows from the log lacked.
func (y *Studies) observe(s *studyJob) {
	if t := s.Served.Tuning; t != nil {
		y.Metrics.TuneSeconds.Observe(t.Seconds)
	}
	if s.Refining > 0 {
		y.Metrics.RefineSeconds.Observe(s.Refining.Seconds())
	}
	if l := s.log; l != nil && l.unread != nil && s.Served.Refinement != nil {
		y.Log.Warn().Int("blocks", l.missing).AnErr("reason", l.unread).
			Msg("the planes are refined without blocks that the log does not return unchanged")
	}
}

// logRows are the rows of the live blocks, with the weights of the blocks if they have any.
func (y *Studies) logRows(in *live.Coordinates) *logRows {
	rows := &logRows{log: y.Topic, in: in}
	entries := y.Live.Page(retire.Lowest, math.MaxInt)
	if y.Learner.Fades() {
		rows.weights = map[string]float64{}
		entries = slices.DeleteFunc(entries, func(e retire.Entry) bool {
			w := y.Live.Weight(e.ID)
			if w > 0 {
				rows.weights[e.ID] = w
			}
			return w == 0
		})
	}
	rows.blocks = y.Live.Moment(entries)
	return rows
}

// AwaitEnd waits for the study under way, whose context has ended. It waits for a
// factorisation no longer than until ctx ends.
func (y *Studies) AwaitEnd(ctx context.Context) {
	if y.now == nil {
		return
	}
	select {
	case <-y.running.Done:
	case <-ctx.Done():
	}
}

// endStudy serves the result.
func (y *Studies) endStudy(s *studyJob) {
	if y.Failure != nil {
		return
	}
	y.nameIdentifiers(s.Identifiers)
	again := y.state == outdated
	y.now, y.state, y.studying = nil, resting, false
	if again {
		y.state = due
	}
	if s.In != y.Live.InUse().Coordinates || s.fixed != y.Live.Target().Features {
		// Its planes are in the coordinates before a switch, or in other features.
		y.state = due
		y.askAgain(s)
		return
	}
	known := y.study != nil && y.study.Failed != nil
	y.study, y.ended = s, time.Now()
	last := y.Front.Served()
	switch {
	case s.Served.SameSums(last) && last.MadeAt.After(s.Served.MadeAt):
		// The same rows. The position in the log is new.
		s.Served.MadeAt, s.Served.Offsets, s.Served.Moves = last.MadeAt, last.Offsets, max(last.Moves, s.Served.Moves)
	case s.Refined && last.MadeAt.After(s.Served.MadeAt):
		// Its rows are outdated, and another study of the current rows is due.
		y.state = due
		y.askAgain(s)
		return
	case !s.Refined && !s.Served.SameSums(last):
		y.changed = true // so that the next solve uses its results
		s.reply()
		return
	}
	if s.Failed != nil && !known {
		y.Log.Warn().Err(s.Failed).Msg("the planes are not refined")
	}
	y.lastSolve = y.ended
	y.publish(s.Served, s)
	s.reply()
}

// endFailed ends a study that has failed. Another one is due, and the results of the last one are
// served until then.
func (y *Studies) endFailed(s *studyJob, err error) {
	y.now, y.state, y.ended, y.studying = nil, resting, time.Now(), false
	if y.Live.Rows() > 0 {
		y.state = due
	}
	y.changed = true // solved planes need not wait for it any more
	s.Failed = err
	s.reply()
}

// reply answers the caller of POST /v1/refine, if one waits.
func (s *studyJob) reply() {
	if s.answer == nil {
		return
	}
	err := s.Failed
	if err == nil && s.Served.Refinement == nil {
		err = errors.New(s.Served.Absent.Refinement)
	}
	s.answer <- refineAnswer{s.Served.Refinement, err}
}

// Refine implements httpapi.Service. A study under way has older rows, so the requested one
// begins after it.
func (y *Studies) Refine(ctx context.Context) (*model.Refinement, error) {
	if !y.Learner.Refines() {
		return nil, fmt.Errorf("model.refine is none: %w", httpapi.ErrOff)
	}
	answer := make(chan refineAnswer, 1)
	// The request stands even if the caller stops waiting.
	err := y.Do(context.WithoutCancel(ctx), func() error {
		if y.asked != nil || y.now != nil && y.now.answer != nil {
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
	case <-y.LoopDone:
		return nil, y.Ended()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// nameIdentifiers logs features whose values are integers that are all different, each
// once.
func (y *Studies) nameIdentifiers(features []string) {
	if y.named == nil {
		y.named = map[string]bool{}
	}
	for _, name := range features {
		if y.named[name] || len(y.named) == mostNamed {
			continue
		}
		y.named[name] = true
		y.Log.Warn().Str("feature", name).Msg("the feature has integers that are all different, as an identifier has; format.ignore leaves it out")
	}
}

// mostNamed bounds the features that are named as identifiers.
const mostNamed = 20

// askAgain makes the next study answer this one's caller.
func (y *Studies) askAgain(s *studyJob) {
	if s.answer != nil {
		y.asked = s.answer
	}
}

// retry reports whether a study of the same rows may have another result. Rows from the log
// may.
func (s *studyJob) retry() bool {
	var limit *newton.LimitError
	var stall *newton.StallError
	var condition *incremental.ConditionError
	return s.log != nil && s.Failed != nil && !errors.As(s.Failed, &limit) && !errors.As(s.Failed, &stall) && !errors.As(s.Failed, &condition)
}
