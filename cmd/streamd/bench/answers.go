package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/scoring"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
)

// Answers measures the predictions of a topic's rows (package scoring): how fast they are, beside
// a daemon that learns from the same topic, and how long an answer takes at a part of that rate.
type Answers struct {
	Total int64         `name:"rows" default:"20000000" help:"Points in the topic."`
	Form  string        `default:"arrow" enum:"arrow,json,rows,csv" help:"Form of the answers: ${enum}."`
	Share float64       `default:"0.1" help:"Rate at which the times of answers are measured, as a part of the rows a second that a daemon learns from."`
	Time  time.Duration `default:"10s" help:"Time for which answers are measured in a round."`
	Points
	Through
	Repeats
}

// Check implements Benchmark.
func (c Answers) Check() error {
	switch {
	case !(c.Share > 0 && c.Share <= 1):
		return fmt.Errorf("share %v: must be above 0, and at most 1", c.Share)
	case c.Time < time.Second || c.Time > time.Hour:
		return fmt.Errorf("--time %v: must be 1s to 1h", c.Time)
	}
	return cmp.Or(c.Points.Check(c.Total), c.Through.Check(), c.Repeats.check())
}

var answerForms = map[string]predictions.Form{"arrow": predictions.Arrow, "json": predictions.Columns, "rows": predictions.Rows, "csv": predictions.CSV}

// Measure implements Benchmark.
func (c Answers) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, 2)
	run.cold = true
	return c.with(ctx, func(t *topic) error { return c.measure(ctx, run, t) })
}

func (c Answers) measure(ctx context.Context, run *Run, t *topic) (err error) {
	points := c.of(c.Total)
	a := &answering{Answers: c}
	if a.reading, err = fill(ctx, run, t, points); err != nil {
		return err
	}
	if a.by, err = c.model(); err != nil {
		return err
	}
	if a.asked, err = a.topic(ctx, "asked"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.asked.drop(ctx)) }()
	if a.answers, err = a.topic(ctx, "answers"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.answers.drop(ctx)) }()

	parameters := append(points.parameters(), Parameter{"form", c.Form}, Parameter{"partitions", t.partitions}, Parameter{"broker", t.kind()})
	var learned float64 // rows a second
	all := Result{Benchmark: "answers", Parameters: append([]Parameter{{"part", "all"}}, parameters...)}
	err = run.measure(ctx, all, []side{{"answer", a.answer}, {"learn", a.learn}}, func(r *Result, samples [][]Sample) {
		r.addRows()
		r.add("learned_rows_per_second", func(i int) float64 { return samples[1][i].rowsPerSecond() })
		r.addRatio("learned_ratio", Sample.rowsPerSecond, samples[0], samples[1])
		learned = r.Figure("learned_rows_per_second")
	})
	if err != nil {
		return err
	}

	a.rate = c.Share * learned
	r := Result{Benchmark: "answers", Parameters: append([]Parameter{{"part", "times"}, {"share", c.Share}}, parameters...)}
	var rounds []ages
	samples, err := run.alternate(ctx, r.name(), side{"ask and read", func(ctx context.Context, d time.Duration) (Sample, error) {
		s, times, err := a.times(ctx, d)
		times.sort()
		rounds = append(rounds, times)
		return s, err
	}})
	if err != nil {
		return err
	}
	r.Samples = samples[0]
	r.addRows()
	var together ages
	for _, q := range []struct {
		key   string
		share float64
	}{{"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"max_ms", 1}} {
		r.add(q.key, func(i int) float64 { return 1e3 * rounds[i].quantile(q.share).Seconds() })
	}
	for _, some := range rounds {
		together = append(together, some...)
	}
	together.sort()
	r.Details = []Parameter{{"histogram", together.histogram()}}
	return cmp.Or(run.Add(r), run.table(together.table()))
}

// model is one for the points. What it says takes as long as that of any other.
func (c Answers) model() (*scoring.Model, error) {
	w := make([]float64, c.Features)
	for j := range w {
		w[j] = 1 / float64(1+j)
	}
	by, err := model.New(incremental.DefaultFeatures(c.Features), []string{"-1", "1"}, []incremental.Plane{{Class: "1", W: w, Gamma: 0.25}}, nil)
	if err != nil {
		return nil, err
	}
	return &scoring.Model{Classifier: by, Fingerprint: "bench", Offsets: []model.Offset{}}, nil
}

// keepSome bounds the log of answers, and of rows whose answers are timed, by partition.
const keepSome = 256 << 20

// answering has rows answered by one model.
type answering struct {
	Answers
	*reading
	by             *scoring.Model
	asked, answers *topic
	rate           float64 // rows a second
	answered       int     // how often all rows were
}

// topic makes a topic beside that of the rows.
func (a *answering) topic(ctx context.Context, name string) (*topic, error) {
	return openTopic(ctx, a.cluster.Brokers, a.dir, a.name+"-"+name, a.partitions, keepSome)
}

// Model implements scoring.Models.
func (a *answering) Model(context.Context) (*scoring.Model, error) { return a.by, nil }

// stage answers the rows of a topic that no member of the group has answered.
func (a *answering) stage(from *topic, group string) (*scoring.Stage, error) {
	return scoring.New(scoring.Options{
		Consuming: kafka.Config{Cluster: a.cluster, Topic: from.name, Group: from.group(group)},
		To:        a.answers.name, Policy: config.DeadLettersStop, Form: answerForms[a.Form], Models: a, Log: a.log,
	})
}

// answer has all rows answered.
func (a *answering) answer(ctx context.Context, _ time.Duration) (s Sample, err error) {
	a.answered++
	z, err := a.stage(a.reading.topic, fmt.Sprint("answers-", a.answered))
	if err != nil {
		return s, err
	}
	defer z.Close()
	return a.timed(ctx, z.Run,
		func() bool { return z.NotReady(time.Now()) == "" },
		func() bool { return z.Counts().Rows >= a.written.Rows },
		func(context.Context) error { return nil })
}

// sentHeader is the time at which a row was written, which its answer has, too.
const sentHeader = "bench.sent"

// times has rows answered at the rate for some time, and measures how long each answer takes from
// the moment when its row is written until a reader of committed records has it.
func (a *answering) times(ctx context.Context, d time.Duration) (s Sample, all ages, err error) {
	z, err := a.stage(a.asked, "answers")
	if err != nil {
		return s, nil, err
	}
	defer z.Close()
	seen := &answerSink{}
	answers, err := kafka.NewConsumer(kafka.Config{
		Cluster: a.cluster, Topic: a.answers.name, Group: a.answers.group("reader-" + rand.Text()), Start: kafka.Latest,
	}, seen, a.log)
	if err != nil {
		return s, nil, err
	}
	working, fail := context.WithCancelCause(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer fail(nil)
	for _, run := range []func(context.Context) error{z.Run, answers.Run} {
		ended.Go(func() {
			if err := run(working); err != nil && working.Err() == nil {
				fail(err)
			}
		})
	}
	for z.NotReady(time.Now()) != "" || answers.Stats().Assignments == 0 {
		if err := pause(working, time.Millisecond); err != nil {
			return s, nil, err
		}
	}
	began, asked := time.Now(), int64(0)
	if asked, err = a.ask(working, d); err != nil {
		return s, nil, err
	}
	s = Sample{Ops: asked, Rows: asked * int64(a.BlockRows), Seconds: time.Since(began).Seconds()}
	for end := time.Now().Add(lastBlocks); ; {
		if all = seen.taken(); all.count() >= asked {
			return s, all, nil
		}
		if time.Now().After(end) {
			return s, nil, fmt.Errorf("%d of %d records have no answer %v after the last one", asked-all.count(), asked, lastBlocks)
		}
		if err := pause(working, time.Millisecond); err != nil {
			return s, nil, err
		}
	}
}

// ask writes records at the rate for some time, and returns how many.
func (a *answering) ask(ctx context.Context, d time.Duration) (asked int64, err error) {
	g, err := a.generator()
	if err != nil {
		return 0, err
	}
	b := g.NewSampler().Block(ndc.Train, 0, a.BlockRows)
	payload, err := wire.NewEncoder(wire.Arrow).Append(nil, b)
	if err != nil {
		return 0, err
	}
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: a.cluster, Topic: a.asked.name}, a.log)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	tick := time.NewTicker(produceEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < d; {
		due := int64(time.Since(began).Seconds()*a.rate/float64(a.BlockRows)) - asked
		for range due {
			headers := append(arrowHeaders[:1:1], kafka.Header{Key: sentHeader, Value: binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))})
			if err := p.Write(ctx, int(asked)%a.partitions, nil, payload, headers, time.Time{}); err != nil {
				return asked, err
			}
			asked++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return asked, context.Cause(ctx)
		}
	}
	return asked, p.Flush(ctx)
}

// answerSink notes how old the rows of answers are when these come.
type answerSink struct {
	drain
	mu  sync.Mutex
	all ages
}

func (k *answerSink) Deliver(ctx context.Context, b *kafka.Batch) error {
	now := time.Now()
	k.mu.Lock()
	for i := range b.Records {
		for _, h := range b.Records[i].Headers {
			if h.Key == sentHeader && len(h.Value) == 8 {
				k.all.add(now.Sub(time.Unix(0, int64(binary.LittleEndian.Uint64(h.Value)))), 1)
			}
		}
	}
	k.mu.Unlock()
	return k.drain.Deliver(ctx, b)
}

// taken is what has come so far.
func (k *answerSink) taken() ages {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}
