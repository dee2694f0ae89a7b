package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// backgroundRun is what was seen of one daemon.
type backgroundRun struct {
	sample   Sample  // of the time in which rows came and there was work
	from, to moment  // its ends
	cores    float64 // used in it; 0: the system does not tell
	answers  answers
	studies  []studied
	reduced  float64 // seconds
	rebuilt  float64 // seconds
}

type studied struct{ began, ended time.Time }

// studySeconds is what a study took.
func (r *backgroundRun) studySeconds() float64 {
	var all time.Duration
	for _, s := range r.studies {
		all += s.ended.Sub(s.began)
	}
	return all.Seconds() / float64(len(r.studies))
}

// studyShare is the share of the time, while rows came, in which a study was under
// way.
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

// moment is what a daemon's metrics say at one.
type moment struct {
	at       time.Time
	rows     int64 // read
	rejected int64
	cpu      float64 // seconds, of the process; 0: the system does not tell
}

func (d *process) moment(ctx context.Context) (m moment, err error) {
	_, body, err := d.call(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return m, err
	}
	m.at = time.Now()
	known := false
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "#") {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case name == "streamd_rows_read_total" && err == nil:
			m.rows, known = int64(value), true
		case name == `streamd_rows_total{outcome="rejected"}` && err == nil:
			m.rejected = int64(value)
		case name == "process_cpu_seconds_total" && err == nil:
			m.cpu = value
		}
	}
	if !known {
		return m, errors.New("the daemon's metrics do not say how many rows it has read")
	}
	return m, nil
}

// working is a daemon at work, for what makes it do more.
type working struct {
	ctx    context.Context // of all of it
	coming context.Context // ends when all rows are read
	d      *process
	first  chan struct{} // closed when there is a model
	idle   chan struct{} // closed when there is no more work, before the rows are over
	run    *backgroundRun
}

// run runs a daemon until it has read the rows up to last and its work is done. In
// the snapshot, if there is one, are as many rows as first.
func (b *backgroundTopic) run(ctx context.Context, snapshot string, side *backgroundSide, first, last int64) (run backgroundRun, err error) {
	flags := maps.Clone(side.flags)
	flags["kafka.brokers"] = strings.Join(b.topic.cluster.Brokers, ",")
	flags["kafka.topic"] = b.topic.name
	flags["kafka.group"] = b.topic.group("daemon")
	flags["format.features"] = b.Points.names()
	flags["snapshot.file"] = snapshot
	d, err := b.Program.start(b.dir, b.Log, flags)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		<-d.ended
		fail(fmt.Errorf("the daemon has ended: %w", d.err))
	}()
	var ends sync.WaitGroup
	defer ends.Wait()
	defer fail(nil)
	coming, over := context.WithCancel(ctx)
	defer over()
	w := &working{ctx: ctx, coming: coming, d: d, first: make(chan struct{}), idle: make(chan struct{}), run: &run}

	asking, enough := context.WithCancel(ctx)
	defer enough()
	asked := make(chan answers, 1)
	ends.Go(func() { asked <- w.ask(asking) })

	now, err := d.moment(ctx)
	run.from = now
	for err == nil && now.rows <= first {
		run.from = now
		if err = pause(ctx, beforeRows); err == nil {
			now, err = d.moment(ctx)
		}
	}
	worked := make(chan error, 1)
	begun := side.work == nil
	if begun {
		worked <- nil
	}
	done, idle := false, w.idle
	for err == nil {
		if !begun && now.rows >= min(last, side.from) {
			begun = true
			ends.Go(func() { worked <- side.work(w) })
		}
		if now.rows >= last && run.to.at.IsZero() {
			run.to = now
			over()
		}
		select {
		case err = <-worked:
			done = true
		case <-idle:
			idle = nil
			if run.to.at.IsZero() {
				run.to = now
			}
		default:
		}
		if err != nil || done && !run.to.at.IsZero() {
			break
		}
		if err = pause(ctx, lookInterval); err == nil {
			now, err = d.moment(ctx)
		}
	}
	if err != nil {
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

// answers are those to the questions for the model.
type answers struct {
	models, gaps int
	longest      time.Duration // between the arrival of two models
}

// ask asks for the model until ctx ends. It counts from the first one on.
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

// study asks for studies as long as rows come, as far apart as pause says after one
// that took so long.
func (w *working) study(apart func(took time.Duration) time.Duration) error {
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
		pause(w.coming, apart(ended.Sub(began)))
	}
	if len(w.run.studies) == 0 {
		return errors.New("all rows were read before a study could begin: more are needed")
	}
	return context.Cause(w.ctx)
}

// reduce asks for another basis and waits until its planes are served.
func (w *working) reduce() error {
	var was httpapi.EpochAnswer
	if _, err := w.d.ask(w.ctx, http.MethodGet, "/v1/epoch", &was); err != nil {
		return err
	}
	began := time.Now()
	if _, _, err := w.d.call(w.ctx, http.MethodPost, "/v1/reduce"); err != nil {
		return err
	}
	idle := w.idle
	for {
		var is httpapi.EpochAnswer
		if _, err := w.d.ask(w.ctx, http.MethodGet, "/v1/epoch", &is); err != nil {
			return err
		}
		switch {
		case is.Epoch > was.Epoch:
			if idle != nil {
				w.run.reduced = is.InUse.Seconds
				w.run.rebuilt = time.Since(began).Seconds() - is.InUse.Seconds
				close(idle)
				idle = nil
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

// pause waits, or says why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
