package learning

import (
	"context"
	"fmt"
	"math"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
	"streamd/incremental/study"
	"streamd/kernels/reduce"
	"streamd/kernels/svm"
)

// A Study chooses ν, fits and refines the planes, measures their quality on held-out rows, and
// calibrates them (package study), which takes longer than a solve. Its result is a function of the
// live set at one moment: refinement starts from planes solved from the same rows, never from those
// of an earlier study.
//
// It is made of copies. It takes memory for two more copies of the sample.
type Study struct {
	*Learner
	Served  *model.Served       // the result
	Options incremental.Options // as configured; then with the chosen values
	Rows    Rows                // that planes are refined on; nil: those of the sample

	In          *live.Coordinates // of the sums; nil means the features
	Lacking     int               // blocks whose rows the sample lacks
	Refined     bool              // whether the planes are to be refined
	By          string            // the method of the refinement, if they are
	Failed      error             // why they are not
	Refining    time.Duration     // that the refinement took; 0: there was none
	Identifiers []string          // features that only tell rows apart

	Sums   study.Problem    // copies
	Sample *sample.Snapshot // nil without a sample

	features []string // the names of the features
}

// Rows are rows to refine planes on that are not those of the sample.
type Rows interface {
	newton.Rows
	// Whole reports whether the passes so far had all rows that were asked for.
	Whole() bool
}

// Study begins a study of a set, with copies. served is that of Begin.
func (l *Learner) Study(set *live.Set, weighted *live.Weighted, served *model.Served) *Study {
	use, folds := set.InUse(), set.Features().Folds()
	s := &Study{Learner: l, Served: served, In: use.Coordinates, Options: l.OptionsIn(set, use.Coordinates), features: set.Features().Names()}
	if s.In != nil {
		s.Sums.Regulariser = s.In.Regulariser
	}
	held := l.Tunes() || l.Judges() || memory.Looks(l.Config)
	if weighted != nil { // immutable
		s.Sums.Whole, s.Sample = weighted.Whole, set.WeightedSample(folds, weighted)
		if held {
			s.Sums.Folds = weighted.Folds
		}
		return s
	}
	s.Sums.Whole, s.Sample = use.Total().Clone(), set.Sample(folds)
	if held {
		for _, f := range use.PerFold() {
			s.Sums.Folds = append(s.Sums.Folds, f.Clone())
		}
	}
	return s
}

// Drop drops the copies. The results stay.
func (s *Study) Drop() { s.Sums, s.Sample, s.Rows = study.Problem{}, nil, nil }

// Make makes the results. If ctx ends, there are none.
func (s *Study) Make(ctx context.Context) {
	out, m := s.Served, s.Config.Model
	var ways []study.Way
	if rules, ok := s.Options.Solver.(*model.Rules); ok && m.Mu == config.NuAuto {
		ways = rules.Ways(m.Refine)
	}
	y := study.New(&s.Sums, study.Options{
		Planes: s.Options, AnyScale: m.Standardise == config.SwitchAuto, AnyBalance: m.Balanced == config.SwitchAuto,
		Ways: ways, Objective: model.Objective(m.Objective), Others: true,
		Refining: model.Refining(m.Refine), Refine: model.Refiner(m.Refine, svm.Settings{Mu: m.MachineMu, Epsilon: m.MachineEpsilon, Delta: m.MachineDelta}, s.Options.Solver, s.In != nil), AnyMethod: m.Refine == config.RefineAuto, Workers: 1,
		Held: s.judging(),
	})
	var rows *study.Sample
	complete := false
	if s.Sample != nil {
		inFeatures := s.Sample.View()
		for _, j := range inFeatures.Block.Identifiers() {
			s.Identifiers = append(s.Identifiers, s.features[j])
		}
		view := s.In.View(inFeatures)
		s.Lacking, complete = view.Lacking, view.Complete()
		out.Sample = &model.Sampled{Digest: out.SumsDigest(), Complete: complete, Lacking: s.Lacking}
		rows = study.NewSample(view, s.Sums.Whole.Totals(), s.Sums.Folds)
		if y.RefinesBy().Unlabelled() {
			rows.AddUnlabelled(s.In.View(&s.Sample.Unlabelled().View), s.Sums.Whole.Unlabelled())
		}
	}
	if s.Tunes() {
		s.tune(ctx, y, rows)
	}
	if ctx.Err() != nil {
		return
	}
	if s.Refined = y.Refines(); s.Refined {
		s.By = y.RefinesBy().String()
	}
	planes, hat, err := y.SolveWithHat()
	if err != nil {
		if out.Model, err = model.Alone(err, s.features, s.Options); err == nil {
			out.Knowledge = model.NewKnowledge(ctx, out.Model)
			return
		}
		out.Problem = NoPlanes(err, out.Rows, s.Sums.Whole.Labels())
		const none = "there is no model"
		out.Absent = model.Absent{Tuning: none, Refinement: none, Calibration: none, Decision: none, Quality: none, Hat: none}
		out.Tuning = nil
		if s.Refined {
			s.Failed = fmt.Errorf("there is no model: %w", err)
		}
		return
	}
	out.Model, out.Hat = planes, hat
	out.Knowledge = model.NewKnowledge(ctx, planes)
	switch {
	case s.Refined:
		s.refine(ctx, y, rows, complete)
	case s.Refines():
		out.Absent.Refinement = "model.refine is auto, and no refined planes classify held-out rows better"
	}
	if s.Judges() {
		s.judge(ctx, y, rows)
	}
	if memory.Looks(s.Config) {
		s.look(ctx, y, rows)
	}
}

// mostLooked is the most features or coordinates of planes that look finds: it takes their third
// power for each fold.
const mostLooked = 1000

// look compares the given settings with those that auto would choose, on held-out rows or, where
// there are none, by the sums of the folds.
func (s *Study) look(ctx context.Context, y *study.Study, rows *study.Sample) {
	if len(s.Served.Model.Features) > mostLooked {
		return
	}
	from := time.Now()
	beside, err := y.Look(ctx, rows, s.In == nil)
	if err != nil {
		s.Log.Debug().AnErr("reason", err).Msg("other settings of the planes could not be looked at")
		return
	}
	s.Served.Better = model.NewBetter(beside, s.In == nil)
	if s.Served.Quality != nil {
		s.Served.Quality.Better = s.Served.Better
	}
	s.Log.Debug().Dur("took", time.Since(from)).Float64("gain", beside.Gain).Float64("standard_error", beside.Error).Msg("other settings of the planes were looked at")
}

// tune chooses ν. With model.standardise: auto it also chooses whether to standardise.
func (s *Study) tune(ctx context.Context, y *study.Study, rows *study.Sample) {
	from := time.Now()
	var parts study.Parts
	if rows != nil {
		parts = rows
	}
	t, err := y.Tune(ctx, parts)
	if err != nil {
		s.Served.Absent.Tuning = "ν is " + config.Nu(model.FirstNu).String() + ", since none could be chosen: " + err.Error()
		return
	}
	s.Options = y.Options()
	s.Served.Absent.Tuning = ""
	s.Served.Tuning = &model.Tuning{
		Digest: s.Served.Digest, ChosenAt: from.UTC(), Seconds: time.Since(from).Seconds(), Choice: *model.NewChoice(t),
	}
}

// refine refines the planes. If that fails, the solved planes stay and the status says why.
func (s *Study) refine(ctx context.Context, y *study.Study, rows *study.Sample, complete bool) {
	from := time.Now()
	out := &model.Refinement{
		Method: s.By, Digest: s.Served.Digest, Source: string(s.Config.Model.Rows),
		Live: s.Served.Rows, Complete: complete,
	}
	var result *newton.Result
	var err error
	if s.Rows != nil {
		result, err = y.Refine(ctx, s.Rows, nil)
		out.Complete = s.Rows.Whole()
	} else {
		all, standFor := rows.All()
		result, err = y.Refine(ctx, all, standFor)
	}
	s.Refining = time.Since(from)
	if err != nil {
		s.Failed = fmt.Errorf("refine on rows of the %s: %w", out.Source, err)
		s.Served.Absent.Refinement = s.Failed.Error()
		return
	}
	out.MadeAt, out.Seconds = time.Now().UTC(), s.Refining.Seconds()
	out.Rows, out.Unlabelled, out.Planes = result.Rows, result.Unlabelled, model.PlaneRefinements(result)
	s.Served.Model = result.Model
	s.Served.Knowledge = model.NewKnowledge(ctx, result.Model)
	s.Served.Refinement, s.Served.Absent.Refinement = out, ""
}

// judge calibrates the planes, settles the rule of their labels, and measures the quality of
// these on held-out rows.
func (s *Study) judge(ctx context.Context, y *study.Study, rows *study.Sample) {
	out, method := s.Served, s.Config.Model.Calibration
	absent := func(err error) {
		out.Absent.Quality = err.Error()
		if method != config.CalibrationNone && out.Calibration == nil {
			out.Absent.Calibration = err.Error()
		}
		if out.Absent.Decision != "" {
			out.Absent.Decision = err.Error()
		}
	}
	h, err := y.HoldOut(ctx, rows, s.Values)
	if err != nil {
		absent(err)
		return
	}
	before, err := h.Reliability(ctx)
	if err != nil {
		absent(err)
		return
	}
	settled, err := h.Settle(ctx, s.judging())
	if err != nil {
		absent(err)
		return
	}
	c, of := settled.Calibrated, settled.Quality
	switch {
	case c != nil:
		out.Calibration, out.Absent.Calibration = c.Curves, ""
	case settled.Failed != nil:
		out.Absent.Calibration = settled.Failed.Error()
	}
	decided := settled.Decided
	out.Rule, out.Absent.Decision = decided.Rule, ""
	switch {
	case settled.Unruled:
		out.Absent.Decision = out.Absent.Calibration
	case decided.Rule.Kind() != decision.Kind(s.Config.Model.Decision):
		out.Absent.Decision = study.EvenReason
	}
	q := &model.Quality{
		Digest: out.Digest, MeasuredAt: out.MadeAt, Source: string(config.RowsSample), Method: out.Method(),
		Rows: of.Rows, Sample: out.Sample, Folds: of.Folds, Before: model.NewReliability(before.All),
		Answers: model.NewAnswers(decided.Rule.Kind(), out.Model.Classes, of.Matrix, of.AUC),
	}
	for i, p := range out.Model.Planes {
		q.Planes = append(q.Planes, model.PlaneQuality{Class: p.Class, Before: model.NewReliability(before.Planes[i])})
	}
	if c != nil {
		q.Calibration, q.After = model.CalibrationMethod(c.Curves), model.NewReliability(c.After.All)
		for i, r := range c.After.Planes {
			q.Planes[i].After = model.NewReliability(r)
		}
	}
	s.measureSizes(ctx, y, rows, q)
	if ctx.Err() != nil {
		return
	}
	out.Quality, out.Absent.Quality = q, ""
}

// rankWork bounds the multiply-adds of the ranks of measureSizes. They take some seconds.
const rankWork = 2e9

// measureSizes judges planes in fewer coordinates of the basis.
func (s *Study) measureSizes(ctx context.Context, y *study.Study, rows *study.Sample, q *model.Quality) {
	if s.In == nil {
		return
	}
	if _, ok := s.Options.Solver.(*model.Rules); ok {
		q.SizesAbsent = "rules are in the coordinates of the whole basis"
		return
	}
	// For each plane and fold, the selection of s of t coordinates takes ts²/2 multiply-adds.
	room := int(math.Sqrt(2 * rankWork / float64(s.In.Size()*len(s.Sums.Folds)*len(s.Served.Model.Planes))))
	sized, err := y.BySize(ctx, rows, s.Values, func(ctx context.Context, sums *incremental.Moments, most int) ([]int, error) {
		return reduce.PruneLDA.Rank(ctx, s.In.Map, sums, y.Options(), min(most, room))
	})
	if err != nil {
		q.SizesAbsent = err.Error()
		return
	}
	for _, of := range sized {
		q.Sizes = append(q.Sizes, model.SizeQuality(of))
	}
}

// judging says how planes are judged on held-out rows, by the configuration.
func (s *Study) judging() study.Judging {
	m := s.Config.Model
	return study.Judging{
		Values: s.Values, Curves: model.Curves(m.Calibration), Uncalibrated: m.Calibration == config.CalibrationNone,
		Decision: study.Decision{Kind: decision.Kind(m.Decision), Prices: s.prices, Objective: model.Objective(m.Objective)},
	}
}
