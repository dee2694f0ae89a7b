package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"streamd/cmd/streamd/daemon"
	"streamd/config"
)

// Background measures what the daemon's background work takes from ingestion and
// from serving: streamd run, in a process of its own, reads a full topic with the
// work and, in turn, the same topic alone. Model and metrics are asked for all the
// time, with the work and without.
//
// A daemon that takes up c cores alone, and has a share ρ of its rate beside the
// work (background_ratio), is left with ρ·c cores' worth of ingestion: it has lost
// (1−ρ)·c of them (cores_lost). What else it takes up is the work's (work_cores),
// where a row costs what it costs alone. Work on one core may take that core from
// ingestion, and no more; where a core is idle it takes nothing. cores_lost is more
// than work_cores by as much as the machine's other tenants have left the daemon
// less than alone.
//
// Rates and cores are those of the time during which rows come and the work goes on.
type Background struct{ Setting }

const (
	// modelPoll is the time between an answer and the next question for the model.
	modelPoll = 5 * time.Millisecond
	// beforeRows is how often the daemon is asked whether rows have come.
	beforeRows = 5 * time.Millisecond
	// never is model.refine_interval for no study while rows come.
	never = 1000 * time.Hour
)

// Refine measures studies: ν is chosen, the planes are refined in full, calibrated
// and judged on held-out rows, all on the sample. The other side has no study as
// long as rows come. There are two results:
//
//   - study=interval asks for a study when the first rows come, and for another when
//     the daemon would begin one by itself ([daemon.StudyPause] of the default
//     interval). Where all rows are read within that time, the one study weighs more
//     than it does in a replay that goes on.
//   - study=continuous asks for a study as soon as the one before has ended.
//
// So both give the interval_ratio, too. Studies of d seconds, p seconds apart, are
// under way in d/(d+p) of the time, and what they cost is proportional to that: if
// in a share s of the time they leave ρ, it is 1 − (1−ρ)·d/(d+p)/s.
func (c Background) Refine(ctx context.Context, plan Plan, report *Report) (err error) {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	b := &backgroundTopic{Background: c, place: p}
	if err := b.write(ctx, 0, c.Rows); err != nil {
		return err
	}
	defaults, err := config.Load(config.Sources{Flags: map[string]string{"kafka.topic": b.topic.name}})
	if err != nil {
		return err
	}
	interval, filled := defaults.Model.RefineInterval, int64(defaults.Sample.Rows)
	flags := func(refine config.Refine, interval time.Duration) map[string]string {
		return map[string]string{
			"model.nu": config.NuAuto.String(), "model.refine": string(refine), "model.refine_interval": interval.String(),
		}
	}
	full := flags(config.RefineFull, interval)
	alone := &backgroundSide{flags: flags(config.RefineNone, never)}
	each := &backgroundSide{flags: full, from: filled, work: func(w *working) error {
		return w.study(func(took time.Duration) time.Duration { return daemon.StudyPause(interval, took) })
	}}
	continuous := &backgroundSide{flags: full, from: filled, work: func(w *working) error {
		return w.study(func(time.Duration) time.Duration { return 0 })
	}}
	samples, err := plan.alternate(ctx,
		side{"alone", b.side(alone, "")},
		side{"a study per interval", b.side(each, "")},
		side{"study after study", b.side(continuous, "")})
	if err != nil {
		return err
	}
	for i, with := range []*backgroundSide{each, continuous} {
		r := b.result([]Parameter{{"work", "refine"}, {"study", []string{"interval", "continuous"}[i]}}, plan, with, samples[1+i], alone, samples[0])
		runs := with.last(plan)
		r.add("studies", func(i int) float64 { return float64(len(runs[i].studies)) }) // begun while rows came
		r.add("study_seconds", func(i int) float64 { return runs[i].studySeconds() })
		r.add("study_share", func(i int) float64 { return runs[i].studyShare() })
		ratio := rateRatio(samples[1+i], samples[0])
		r.add("interval_ratio", func(i int) float64 {
			return atInterval(ratio(i), runs[i].studyShare(), runs[i].studySeconds(), interval)
		})
		if err := report.Add(r); err != nil {
			return err
		}
	}
	return nil
}

// atInterval is what studies leave of a rate when they are as far apart as the
// daemon has them, if in a share of the time they leave a ratio.
func atInterval(ratio, share, seconds float64, interval time.Duration) float64 {
	pause := daemon.StudyPause(interval, time.Duration(seconds*float64(time.Second))).Seconds()
	return 1 - (1-ratio)*seconds/(seconds+pause)/share
}

// Reduction is what Reduce is about.
type Reduction struct {
	Method config.Reduce
	Basis  int   // points at most
	First  int64 // rows of the topic that are live before
}

// Reduce measures a reduction and the rebuild after it: how long they last, and
// what is left of the ingestion meanwhile. The daemon starts from a snapshot with
// an epoch in use and the first rows in it, which is made once; when the others
// begin to come it is asked for another basis, for a Gaussian kernel whose γ is
// chosen, too. The other side goes on with the basis that it has.
//
// New blocks are put into the coordinates of both bases during the rebuild. That is
// work on the path of a block, and counts as lost. There should be so many rows
// that they last until the rebuild ends (covered_share).
func (c Background) Reduce(ctx context.Context, plan Plan, report *Report, of Reduction) (err error) {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	b := &backgroundTopic{Background: c, place: p, first: of.First}
	if err := b.write(ctx, 0, of.First); err != nil {
		return err
	}
	flags := map[string]string{
		"kernel.function": "gaussian", "kernel.reduce": string(of.Method), "kernel.basis": strconv.Itoa(of.Basis),
		"kernel.rows": "0", // no basis before it is asked for
	}
	base := filepath.Join(b.dir, "base.db")
	reduce := func(w *working) error { return w.reduce() }
	if _, err := b.run(ctx, base, &backgroundSide{flags: flags, work: reduce, from: of.First}, 0, of.First); err != nil {
		return fmt.Errorf("learn the first %d rows: %w", of.First, err)
	}
	if err := b.write(ctx, of.First, c.Rows); err != nil {
		return err
	}
	alone := &backgroundSide{flags: flags}
	with := &backgroundSide{flags: flags, work: reduce}
	samples, err := plan.alternate(ctx,
		side{"alone", b.side(alone, base)},
		side{"reduction and rebuild", b.side(with, base)})
	if err != nil {
		return err
	}
	r := b.result([]Parameter{
		{"work", "reduce"}, {"method", string(of.Method)}, {"basis", of.Basis}, {"first_rows", of.First},
	}, plan, with, samples[1], alone, samples[0])
	runs := with.last(plan)
	r.add("reduce_seconds", func(i int) float64 { return runs[i].reduced })  // to choose a basis
	r.add("rebuild_seconds", func(i int) float64 { return runs[i].rebuilt }) // from then on
	// The share of both during which rows came.
	r.add("covered_share", func(i int) float64 { return min(1, samples[1][i].Seconds/(runs[i].reduced+runs[i].rebuilt)) })
	return report.Add(r)
}

// backgroundTopic is a topic that daemons read again and again.
type backgroundTopic struct {
	Background
	*place
	first int64 // rows that are live when a daemon starts
}

// write writes the points from number first to last − 1.
func (b *backgroundTopic) write(ctx context.Context, first, last int64) error {
	points := b.Points
	points.Rows = last
	_, err := b.Program.replay(ctx, b.dir, points, first, b.topic)
	return err
}

// backgroundSide is a daemon, and what it is made to do beside reading.
type backgroundSide struct {
	flags map[string]string
	work  func(*working) error // nil: nothing
	from  int64                // rows read before it begins
	runs  []backgroundRun
}

// last are the runs that count: without the one to warm up.
func (s *backgroundSide) last(plan Plan) []backgroundRun { return s.runs[len(s.runs)-plan.Rounds:] }

// side runs a daemon that starts with a copy of a snapshot; "": with none.
func (b *backgroundTopic) side(s *backgroundSide, base string) func(context.Context, time.Duration) (Sample, error) {
	return func(ctx context.Context, _ time.Duration) (Sample, error) {
		file := filepath.Join(b.dir, "streamd.db")
		if base != "" {
			if err := copyFile(file, base); err != nil {
				return Sample{}, err
			}
		}
		run, err := b.run(ctx, file, s, b.first, b.Rows)
		s.runs = append(s.runs, run)
		if err == nil {
			err = os.Remove(file)
		}
		return run.sample, err
	}
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// result compares a side with the one that is alone.
func (b *backgroundTopic) result(of []Parameter, plan Plan, with *backgroundSide, samples []Sample, alone *backgroundSide, base []Sample) Result {
	r := Result{
		Benchmark: "background",
		Parameters: append(append(of, b.Points.parameters()...),
			Parameter{"partitions", b.topic.partitions}, Parameter{"broker", b.topic.kind()}),
		Samples: samples,
	}
	r.addRows()
	r.add("alone_rows_per_second", func(i int) float64 { return base[i].rowsPerSecond() })
	ratio := rateRatio(samples, base)
	r.add("background_ratio", ratio)
	r.add("seconds", func(i int) float64 { return samples[i].Seconds })
	runs, aloneRuns := with.last(plan), alone.last(plan)
	if aloneRuns[0].cores > 0 { // the system tells
		r.add("cores_used", func(i int) float64 { return runs[i].cores })
		r.add("alone_cores_used", func(i int) float64 { return aloneRuns[i].cores })
		r.add("cores_lost", func(i int) float64 { return (1 - ratio(i)) * aloneRuns[i].cores })
		r.add("work_cores", func(i int) float64 { return runs[i].cores - ratio(i)*aloneRuns[i].cores })
	}
	// Answers to GET /v1/model, from the first model to the end of the work; gaps are
	// those without a model, and none at all.
	answers := allAnswers(runs)
	r.set("model_answers", float64(answers.models+answers.gaps))
	r.set("model_gaps", float64(answers.gaps))
	r.set("longest_gap_seconds", answers.longest.Seconds()) // between two models' arrival
	r.set("alone_longest_gap_seconds", allAnswers(aloneRuns).longest.Seconds())
	return r
}

// rateRatio is the share of a side's rate that another one has, in a round.
func rateRatio(of, side []Sample) func(round int) float64 {
	return func(i int) float64 { return of[i].rowsPerSecond() / side[i].rowsPerSecond() }
}

// allAnswers are those of all rounds: a median would hide a gap.
func allAnswers(runs []backgroundRun) (all answers) {
	for _, r := range runs {
		all.models += r.answers.models
		all.gaps += r.answers.gaps
		all.longest = max(all.longest, r.answers.longest)
	}
	return all
}
