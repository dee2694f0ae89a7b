package daemon

import (
	"context"
	"fmt"
	"math"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/kernels/reduce"
	"streamd/kernels/svm"
)

// make runs the job. If ctx ends, there is no result.
func (s *studyJob) make(ctx context.Context) {
	d, out := s.core, s.served
	m := d.cfg.Model
	var ways []study.Way
	if rules, ok := s.options.Solver.(*model.Rules); ok && m.Mu == config.NuAuto {
		ways = rules.Ways(m.Refine)
	}
	y := study.New(&s.sums, study.Options{
		Planes: s.options, AnyScale: m.Standardise == config.SwitchAuto, AnyBalance: m.Balanced == config.SwitchAuto,
		Ways: ways, Objective: model.Objective(m.Objective), Others: true,
		Refining: model.Refining(m.Refine), Refine: model.Refiner(m.Refine, svm.Settings{Mu: m.MachineMu, Epsilon: m.MachineEpsilon, Delta: m.MachineDelta}, s.options.Solver, s.in != nil), AnyMethod: m.Refine == config.RefineAuto, Workers: 1,
		Held: s.judging(),
	})
	var rows *study.Sample
	complete := false
	if s.sample != nil {
		inFeatures := s.sample.View()
		for _, j := range inFeatures.Block.Identifiers() {
			s.identifiers = append(s.identifiers, s.features[j])
		}
		view := s.in.View(inFeatures)
		s.lacking, complete = view.Lacking, view.Complete()
		out.Sample = &model.Sampled{Complete: complete, Lacking: s.lacking}
		rows = study.NewSample(view, s.sums.Whole.Totals(), s.sums.Folds)
		if y.RefinesBy().Unlabelled() {
			rows.AddUnlabelled(s.in.View(&s.sample.Unlabelled().View), s.sums.Whole.Unlabelled())
		}
	}
	if d.tunes() {
		s.tune(ctx, y, rows)
	}
	if ctx.Err() != nil {
		return
	}
	s.refines = y.Refines()
	planes, hat, err := y.SolveWithHat()
	if err != nil {
		if out.Model, err = model.Alone(err, s.features, s.options); err == nil {
			out.Knowledge = model.NewKnowledge(ctx, out.Model)
			return
		}
		out.Problem = err.Error()
		const none = "there is no model"
		out.Absent = model.Absent{Tuning: none, Refinement: none, Calibration: none, Decision: none, Quality: none, Hat: none}
		out.Tuning = nil
		if s.refines {
			s.refining = fmt.Errorf("there is no model: %w", err)
		}
		return
	}
	out.Model, out.Hat = planes, hat
	out.Knowledge = model.NewKnowledge(ctx, planes)
	switch {
	case s.refines:
		s.refine(ctx, y, rows, complete)
	case d.refines():
		out.Absent.Refinement = "model.refine is auto, and no refined planes classify held-out rows better"
	}
	if d.judges() {
		s.judge(ctx, y, rows)
	}
	if d.looks() {
		s.look(ctx, y, rows)
	}
}

// mostLooked is the most features or coordinates of planes that look finds: it takes their third
// power for each fold.
const mostLooked = 1000

// look compares the given settings with those that auto would choose, on held-out rows or, where
// there are none, by the sums of the folds.
func (s *studyJob) look(ctx context.Context, y *study.Study, rows *study.Sample) {
	if len(s.served.Model.Features) > mostLooked {
		return
	}
	from := time.Now()
	beside, err := y.Look(ctx, rows, s.in == nil)
	if err != nil {
		s.log.Debug().AnErr("reason", err).Msg("other settings of the planes could not be looked at")
		return
	}
	s.served.Better = model.NewBetter(beside, s.in == nil)
	if s.served.Quality != nil {
		s.served.Quality.Better = s.served.Better
	}
	s.log.Debug().Dur("took", time.Since(from)).Float64("gain", beside.Gain).Float64("standard_error", beside.Error).Msg("other settings of the planes were looked at")
}

// tune chooses ν. With model.standardise: auto it also chooses whether to standardise.
func (s *studyJob) tune(ctx context.Context, y *study.Study, rows *study.Sample) {
	from := time.Now()
	var parts study.Parts
	if rows != nil {
		parts = rows
	}
	t, err := y.Tune(ctx, parts)
	if err != nil {
		s.served.Absent.Tuning = "ν is " + config.Nu(firstNu).String() + ", since none could be chosen: " + err.Error()
		return
	}
	s.options = y.Options()
	chosen := model.NewTuning(t)
	chosen.Digest, chosen.ChosenAt = s.served.Digest, from.UTC()
	chosen.Seconds = time.Since(from).Seconds()
	s.metrics.TuneSeconds.Observe(chosen.Seconds)
	s.served.Tuning, s.served.Absent.Tuning = chosen, ""
}

// refine refines the planes. If that fails, the solved planes stay and the status says why.
func (s *studyJob) refine(ctx context.Context, y *study.Study, rows *study.Sample, complete bool) {
	from := time.Now()
	out := &model.Refinement{
		Method: y.RefinesBy().String(), Digest: s.served.Digest, Source: string(s.cfg.Model.Rows),
		Live: s.served.Rows, Complete: complete,
	}
	var result *newton.Result
	var err error
	if s.blocks != nil {
		log := &logRows{log: s.archive, blocks: s.blocks, weights: s.weights, in: s.in}
		result, err = y.Refine(ctx, log, nil)
		out.Complete = log.missing == 0
		if err == nil && log.unread != nil {
			s.log.Warn().Int("blocks", log.missing).AnErr("reason", log.unread).
				Msg("the planes are refined without blocks that the log does not return unchanged")
		}
	} else {
		all, standFor := rows.All()
		result, err = y.Refine(ctx, all, standFor)
	}
	took := time.Since(from).Seconds()
	s.metrics.RefineSeconds.Observe(took)
	if err != nil {
		s.refining = fmt.Errorf("refine on rows of the %s: %w", out.Source, err)
		s.served.Absent.Refinement = s.refining.Error()
		return
	}
	out.MadeAt, out.Seconds = time.Now().UTC(), took
	out.Rows, out.Unlabelled, out.Planes = result.Rows, result.Unlabelled, model.PlaneRefinements(result)
	s.served.Model = result.Model
	s.served.Knowledge = model.NewKnowledge(ctx, result.Model)
	s.served.Refinement, s.served.Absent.Refinement = out, ""
}

// judge calibrates the planes, settles the rule of their labels, and measures the quality of
// these on held-out rows.
func (s *studyJob) judge(ctx context.Context, y *study.Study, rows *study.Sample) {
	out, method := s.served, s.cfg.Model.Calibration
	absent := func(err error) {
		out.Absent.Quality = err.Error()
		if method != config.CalibrationNone && out.Calibration == nil {
			out.Absent.Calibration = err.Error()
		}
		if out.Absent.Decision != "" {
			out.Absent.Decision = err.Error()
		}
	}
	h, err := y.HoldOut(ctx, rows, s.memory.Values)
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
	case decided.Rule.Kind() != decision.Kind(s.cfg.Model.Decision):
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
func (s *studyJob) measureSizes(ctx context.Context, y *study.Study, rows *study.Sample, q *model.Quality) {
	if s.in == nil {
		return
	}
	if _, ok := s.options.Solver.(*model.Rules); ok {
		q.SizesAbsent = "rules are in the coordinates of the whole basis"
		return
	}
	// For each plane and fold, the selection of s of t coordinates takes ts²/2 multiply-adds.
	room := int(math.Sqrt(2 * rankWork / float64(s.in.Size()*len(s.sums.Folds)*len(s.served.Model.Planes))))
	sized, err := y.BySize(ctx, rows, s.memory.Values, func(ctx context.Context, sums *incremental.Moments, most int) ([]int, error) {
		return reduce.PruneLDA.Rank(ctx, s.in.Map, sums, y.Options(), min(most, room))
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
func (s *studyJob) judging() study.Judging {
	m := s.cfg.Model
	return study.Judging{
		Values: s.memory.Values, Curves: model.Curves(m.Calibration), Uncalibrated: m.Calibration == config.CalibrationNone,
		Decision: study.Decision{Kind: decision.Kind(m.Decision), Prices: s.prices, Objective: model.Objective(m.Objective)},
	}
}
