package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"streamd/cmd/streamd/daemon/planes"
	"streamd/config"
	"streamd/ingest/ndc"
)

// Background measures how much the daemon's background work takes from ingestion and from
// serving. Streamd run, in a process of its own, reads a full topic with the work and, in
// turn, the same topic alone. In both cases model and metrics are requested all the time.
//
// A daemon that uses c cores alone, and has a share ρ of its rate beside the work
// (background_ratio), has ρ·c cores left for ingestion. It has lost (1−ρ)·c of them
// (cores_lost). The rest of its use is the work's (work_cores), where a row costs as much as
// alone. Work on one core may take that core from ingestion, and no more; where a core is idle
// it takes nothing. cores_lost exceeds work_cores by as much as other tenants of the machine
// have left the daemon less than alone.
//
// Rates and cores are those of the time during which rows come and the work goes on.
type Background struct {
	Work       []string      `default:"refine,reduce" enum:"refine,reduce" help:"Kinds of work: studies with refinement in full (refine), or the choice of another basis and the rebuild after it (reduce)."`
	Total      int64         `name:"rows" default:"60000000" help:"Points to read while studies run."`
	ReduceRows int64         `default:"60000000" help:"Points to read while a reduction and its rebuild run. A quarter as many more are live before that."`
	Method     config.Reduce `default:"kmeans" enum:"cs,random,stratified,kmeans,kmedian,slmc,rs,skfd,lda,cholesky" help:"Method that chooses the basis: ${enum}."`
	Basis      int           `default:"50" help:"Points of the basis, at most."`
	Points
	Through
	Repeats
}

const (
	// modelPoll is the time between an answer and the next request for the model.
	modelPoll = 5 * time.Millisecond
	// beforeRows is the time between two checks whether rows have arrived.
	beforeRows = 5 * time.Millisecond
	// never is a model.refine_interval without a study while rows come.
	never = 1000 * time.Hour
)

// Check implements Benchmark.
func (c Background) Check() error {
	return cmp.Or(
		c.Points.Check(c.Total), Within("reduce-rows", 4, ndc.MaxPoints/2, c.ReduceRows),
		Within("basis", 1, maxFeatures, c.Basis), c.Through.Check(), c.Repeats.check())
}

// Measure implements Benchmark.
func (c Background) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, 0, len(c.Work))
	for _, work := range c.Work {
		measure := c.refine
		if work == "reduce" {
			measure = c.reduce
		}
		err := c.with(ctx, func(t *topic) error { return measure(ctx, &backgroundTopic{topic: t, Run: run, points: c.Points}) })
		if err != nil {
			return err
		}
	}
	return nil
}

// backgroundTopic is a topic that daemons read again and again.
type backgroundTopic struct {
	*topic
	*Run
	points Points
	first  int64 // rows that are live when a daemon starts
}

// refine measures studies: ν is chosen, and the planes are refined in full, calibrated and
// judged on held-out rows, all on the sample. The other side has no study as long as rows
// come. There are two results:
//
//   - study=interval requests a study when the first rows come, and another when the daemon
//     would begin one by itself ([daemon.StudyPause] of the default interval). If all rows are
//     read within that time, the one study weighs more than it does in a replay that goes on.
//   - study=continuous requests a study as soon as the one before has ended.
//
// So both have an interval_ratio, too. Studies of d seconds, p seconds apart, are under way in
// d/(d+p) of the time, and their cost is proportional to that. If they leave ρ while they are
// under way in a share s of the time, the ratio is 1 − (1−ρ)·d/(d+p)/s.
func (c Background) refine(ctx context.Context, b *backgroundTopic) error {
	if err := b.write(ctx, 0, c.Total); err != nil {
		return err
	}
	defaults, err := config.Load(config.Sources{Flags: map[string]string{"kafka.topic": b.name}})
	if err != nil {
		return err
	}
	interval, filled := defaults.Model.RefineInterval, int64(defaults.Sample.Rows)
	settings := func(refine config.Refine, interval time.Duration) map[string]string {
		return map[string]string{
			"model.nu": config.NuAuto.String(), "model.refine": string(refine), "model.refine_interval": interval.String(),
		}
	}
	studies := func(pauseAfter func(took time.Duration) time.Duration) *backgroundSide {
		return &backgroundSide{
			settings: settings(config.RefineFull, interval), from: filled,
			work: func(w *working) error { return w.study(pauseAfter) },
		}
	}
	alone := &backgroundSide{settings: settings(config.RefineNone, never)}
	each := studies(func(took time.Duration) time.Duration { return planes.StudyPause(interval, took) })
	continuous := studies(func(time.Duration) time.Duration { return 0 })
	samples, err := b.alternate(ctx, "refine",
		b.side("alone", alone, ""), b.side("a study per interval", each, ""), b.side("study after study", continuous, ""))
	if err != nil {
		return err
	}
	for i, with := range []*backgroundSide{each, continuous} {
		samples := [2][]Sample{samples[1+i], samples[0]}
		r, runs := b.result([]Parameter{{"work", "refine"}, {"study", []string{"interval", "continuous"}[i]}}, with, alone, samples)
		r.add("studies", func(i int) float64 { return float64(len(runs[i].studies)) }) // begun while rows came
		r.add("study_seconds", func(i int) float64 { return runs[i].studySeconds() })
		r.add("study_share", func(i int) float64 { return runs[i].studyShare() })
		r.add("interval_ratio", func(i int) float64 {
			ratio := samples[0][i].rowsPerSecond() / samples[1][i].rowsPerSecond()
			return atInterval(ratio, runs[i].studyShare(), runs[i].studySeconds(), interval)
		})
		if err := b.Add(r); err != nil {
			return err
		}
	}
	return nil
}

// atInterval is the background_ratio of studies that are as far apart as the daemon begins
// them. The measured ratio is of studies that were under way during a share of the time, each
// for so many seconds.
func atInterval(ratio, share, seconds float64, interval time.Duration) float64 {
	pause := planes.StudyPause(interval, time.Duration(seconds*float64(time.Second))).Seconds()
	return 1 - (1-ratio)*seconds/(seconds+pause)/share
}

// reduce measures a reduction and the rebuild after it: their times, and the ingestion that
// they leave. The daemon starts from a snapshot with a basis in use and the first rows in it,
// which is made once. When more rows begin to come it is asked for another basis, for a
// Gaussian kernel whose γ is chosen, too. The other side goes on with its basis.
//
// During the rebuild new blocks are mapped by both bases. That is work on the path of a block,
// and counts as lost. There should be enough rows to last until the rebuild ends
// (covered_share).
func (c Background) reduce(ctx context.Context, b *backgroundTopic) error {
	b.first = c.ReduceRows / 4
	last := b.first + c.ReduceRows
	if err := b.write(ctx, 0, b.first); err != nil {
		return err
	}
	settings := map[string]string{
		"kernel.function": "gaussian", "kernel.reduce": string(c.Method), "kernel.basis": strconv.Itoa(c.Basis),
		"kernel.rows": "0", // no basis before it is asked for
	}
	base := filepath.Join(b.dir, "base.db")
	reduce := func(w *working) error { return w.reduce() }
	if _, err := b.observe(ctx, base, &backgroundSide{settings: settings, work: reduce, from: b.first}, 0, b.first); err != nil {
		return fmt.Errorf("learn the first %d rows: %w", b.first, err)
	}
	if err := b.write(ctx, b.first, last); err != nil {
		return err
	}
	alone, with := &backgroundSide{settings: settings}, &backgroundSide{settings: settings, work: reduce}
	samples, err := b.alternate(ctx, "reduce", b.side("alone", alone, base), b.side("reduction and rebuild", with, base))
	if err != nil {
		return err
	}
	r, runs := b.result([]Parameter{
		{"work", "reduce"}, {"method", string(c.Method)}, {"basis", c.Basis}, {"first_rows", b.first},
	}, with, alone, [2][]Sample{samples[1], samples[0]})
	r.add("reduce_seconds", func(i int) float64 { return runs[i].reduced })  // to choose a basis
	r.add("rebuild_seconds", func(i int) float64 { return runs[i].rebuilt }) // from then on
	// The share of both during which rows came.
	r.add("covered_share", func(i int) float64 { return min(1, samples[1][i].Seconds/(runs[i].reduced+runs[i].rebuilt)) })
	return b.Add(r)
}

// write writes the points from number first to last, which is not included.
func (b *backgroundTopic) write(ctx context.Context, first, last int64) error {
	b.points.Rows = last
	_, err := b.Program.replay(ctx, b.topic, b.points, first)
	return err
}

// backgroundSide is a daemon that does background work while it reads.
type backgroundSide struct {
	settings map[string]string
	work     func(*working) error // nil: none
	from     int64                // rows read before the work begins
	runs     []backgroundRun
}

// side runs a daemon that starts with a copy of a snapshot, or with none.
func (b *backgroundTopic) side(name string, s *backgroundSide, base string) side {
	return side{name, func(ctx context.Context, _ time.Duration) (Sample, error) {
		file := filepath.Join(b.dir, "streamd.db")
		if base != "" {
			if err := copyFile(file, base); err != nil {
				return Sample{}, err
			}
		}
		run, err := b.observe(ctx, file, s, b.first, b.points.Rows)
		s.runs = append(s.runs, run)
		if err == nil {
			err = os.Remove(file)
		}
		return run.sample, err
	}}
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// result compares a side that works with the one that only reads, by the samples of both. It
// returns the side's runs of the rounds, too, without the warm-up.
func (b *backgroundTopic) result(of []Parameter, with, alone *backgroundSide, samples [2][]Sample) (r Result, runs []backgroundRun) {
	rounds := len(samples[0])
	runs, aloneRuns := with.runs[len(with.runs)-rounds:], alone.runs[len(alone.runs)-rounds:]
	r = Result{
		Benchmark: "background",
		Parameters: append(append(of, b.points.parameters()...),
			Parameter{"partitions", b.partitions}, Parameter{"broker", b.kind()}),
		Samples: samples[0],
	}
	ratio := func(i int) float64 { return samples[0][i].rowsPerSecond() / samples[1][i].rowsPerSecond() }
	r.addRows()
	r.add("alone_rows_per_second", func(i int) float64 { return samples[1][i].rowsPerSecond() })
	r.add("background_ratio", ratio)
	r.add("seconds", func(i int) float64 { return samples[0][i].Seconds })
	if aloneRuns[0].cores > 0 { // known
		r.add("cores_used", func(i int) float64 { return runs[i].cores })
		r.add("alone_cores_used", func(i int) float64 { return aloneRuns[i].cores })
		r.add("cores_lost", func(i int) float64 { return (1 - ratio(i)) * aloneRuns[i].cores })
		r.add("work_cores", func(i int) float64 { return runs[i].cores - ratio(i)*aloneRuns[i].cores })
	}
	// Answers to GET /v1/model, from the first model to the end of the work. Gaps are answers
	// without a model, and missing answers.
	answers := allAnswers(runs)
	r.set("model_answers", float64(answers.models+answers.gaps))
	r.set("model_gaps", float64(answers.gaps))
	r.set("longest_gap_seconds", answers.longest.Seconds()) // between the arrival of two models
	r.set("alone_longest_gap_seconds", allAnswers(aloneRuns).longest.Seconds())
	return r, runs
}

// allAnswers adds up the answers of all rounds. A median would hide a gap.
func allAnswers(runs []backgroundRun) (all answers) {
	for _, r := range runs {
		all.models += r.answers.models
		all.gaps += r.answers.gaps
		all.longest = max(all.longest, r.answers.longest)
	}
	return all
}
