package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// backgroundRun is an observation of one daemon.
type backgroundRun struct {
	sample   Sample  // of the time during which rows come and there is work
	from, to moment  // its ends
	cores    float64 // used in it; 0: unknown
	answers  answers
	studies  []studied
	reduced  float64 // seconds
	rebuilt  float64 // seconds
}

type studied struct{ began, ended time.Time }

// studySeconds is the mean time of a study.
func (r *backgroundRun) studySeconds() float64 {
	var all time.Duration
	for _, s := range r.studies {
		all += s.ended.Sub(s.began)
	}
	return all.Seconds() / float64(len(r.studies))
}

// studyShare is the share of the time, while rows come, during which a study is under way.
func (r *backgroundRun) studyShare() float64 {
	var all time.Duration
	for _, s := range r.studies {
		ended := s.ended
		if ended.After(r.to.at) {
			ended = r.to.at
		}
		all += max(0, ended.Sub(s.began))
	}
	return all.Seconds() / r.sample.Seconds
}

// moment is one reading of a daemon's metrics.
type moment struct {
	at       time.Time
	rows     int64 // read
	rejected int64
	cpu      float64 // seconds of the process; 0: unknown
}

func (d *process) moment(ctx context.Context) (m moment, err error) {
	metrics, err := d.metrics(ctx)
	if err != nil {
		return m, err
	}
	rows, known := metrics["streamd_rows_read_total"]
	if !known {
		return m, errors.New("the daemon's metrics do not say how many rows it has read")
	}
	return moment{
		at: time.Now(), rows: int64(rows), rejected: int64(metrics[`streamd_rows_total{outcome="rejected"}`]),
		cpu: metrics["process_cpu_seconds_total"],
	}, nil
}

// until reads the metrics again and again until reached says so.
func (d *process) until(ctx context.Context, every time.Duration, reached func(moment) bool) (moment, error) {
	for {
		now, err := d.moment(ctx)
		if err != nil || reached(now) {
			return now, err
		}
		if err := pause(ctx, every); err != nil {
			return now, err
		}
	}
}

// working is a daemon with its background work.
type working struct {
	ctx    context.Context // of all of it
	coming context.Context // ends when all rows are read
	d      *process
	first  chan struct{} // closed by the first model
	idle   chan struct{} // closed when the work ends before the rows
	run    *backgroundRun
}

// observe runs a daemon until it has read the rows before last and its work is done. The
// snapshot, if there is one, has the rows before first.
func (b *backgroundTopic) observe(ctx context.Context, snapshot string, side *backgroundSide, first, last int64) (run backgroundRun, err error) {
	settings := b.settings("daemon", b.points.settings(), side.settings)
	settings["snapshot.file"] = snapshot
	d, err := b.Program.start(b.dir, b.Log, settings)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	ctx, fail := d.while(ctx)
	var ends sync.WaitGroup
	defer ends.Wait()
	defer fail(nil)
	coming, over := context.WithCancel(ctx)
	defer over()
	w := &working{ctx: ctx, coming: coming, d: d, first: make(chan struct{}), idle: make(chan struct{}), run: &run}

	var now moment
	asking, enough := context.WithCancel(ctx)
	defer enough()
	asked := make(chan answers, 1)
	ends.Go(func() { asked <- w.ask(asking) })

	_, err = d.until(ctx, beforeRows, func(now moment) bool {
		if now.rows <= first || run.from.at.IsZero() {
			run.from = now // the last reading before rows come
		}
		return now.rows > first
	})
	if err == nil {
		now, err = d.until(ctx, lookInterval, func(now moment) bool { return now.rows >= min(last, side.from) })
	}
	if err != nil {
		return run, err
	}
	worked := make(chan struct{})
	ends.Go(func() {
		defer close(worked)
		if side.work != nil {
			if err := side.work(w); err != nil {
				fail(err)
			}
		}
	})
	if now.rows < last {
		now, err = d.until(ctx, lookInterval, func(now moment) bool { return now.rows >= last || w.isIdle() })
	}
	if err != nil {
		return run, cmp.Or(context.Cause(ctx), err)
	}
	run.to = now
	over()
	select {
	case <-worked:
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); err != nil {
		return run, err
	}
	enough()
	run.answers = <-asked
	if now.rejected > 0 {
		return run, fmt.Errorf("the daemon has rejected %d rows", now.rejected)
	}
	run.sample = Sample{Ops: 1, Rows: run.to.rows - max(first, run.from.rows), Seconds: run.to.at.Sub(run.from.at).Seconds()}
	if run.sample.Rows <= 0 || run.sample.Seconds <= 0 {
		return run, errors.New("all rows were read at once: more are needed")
	}
	run.cores = (run.to.cpu - run.from.cpu) / run.sample.Seconds
	return run, nil
}

func (w *working) isIdle() bool {
	select {
	case <-w.idle:
		return true
	default:
		return false
	}
}

// answers are the daemon's answers to requests for the model.
type answers struct {
	models, gaps int
	longest      time.Duration // between the arrival of two models
}

// ask requests the model until ctx ends. It counts answers from the first model on.
func (w *working) ask(ctx context.Context) (a answers) {
	var last time.Time
	for {
		_, _, err := w.d.call(ctx, http.MethodGet, "/v1/model")
		switch now := time.Now(); {
		case err == nil:
			if a.models++; a.models == 1 {
				close(w.first)
			} else {
				a.longest = max(a.longest, now.Sub(last))
			}
			last = now
		case ctx.Err() == nil && a.models > 0:
			a.gaps++
		}
		if pause(ctx, modelPoll) != nil {
			if a.models > 0 {
				a.longest = max(a.longest, time.Since(last))
			}
			return a
		}
	}
}

// study requests studies as long as rows come. The pause after a study depends on its time.
func (w *working) study(pauseAfter func(took time.Duration) time.Duration) error {
	select {
	case <-w.first:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	for w.coming.Err() == nil {
		began := time.Now()
		var answer httpapi.RefineAnswer
		if _, err := w.d.ask(w.ctx, http.MethodPost, "/v1/refine", &answer); err != nil {
			return err
		}
		if !answer.Done {
			return fmt.Errorf("a study takes more than %v", httpapi.MaxWait)
		}
		ended := time.Now()
		w.run.studies = append(w.run.studies, studied{began, ended})
		pause(w.coming, pauseAfter(ended.Sub(began)))
	}
	if len(w.run.studies) == 0 {
		return errors.New("all rows were read before a study could begin: more are needed")
	}
	return context.Cause(w.ctx)
}

// reduce requests another basis, and waits until its planes are served.
func (w *working) reduce() error {
	var was, is httpapi.EpochAnswer
	if _, err := w.d.ask(w.ctx, http.MethodGet, "/v1/epoch", &was); err != nil {
		return err
	}
	began := time.Now()
	if _, _, err := w.d.call(w.ctx, http.MethodPost, "/v1/reduce"); err != nil {
		return err
	}
	for {
		is = httpapi.EpochAnswer{}
		if _, err := w.d.ask(w.ctx, http.MethodGet, "/v1/epoch", &is); err != nil {
			return err
		}
		switch {
		case is.Epoch > was.Epoch:
			if !w.isIdle() {
				w.run.reduced = is.InUse.Seconds
				w.run.rebuilt = time.Since(began).Seconds() - is.InUse.Seconds
				close(w.idle)
			}
			if is.Served == is.InUse.Basis {
				return nil
			}
		case is.Problem != "":
			return fmt.Errorf("no basis could be chosen: %s", is.Problem)
		case is.Reducing == nil && is.Rebuild == nil:
			return errors.New("the basis that was chosen is the one in use: more rows are needed for another one")
		}
		if err := pause(w.ctx, lookInterval); err != nil {
			return err
		}
	}
}
