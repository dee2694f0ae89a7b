// Package output is what a daemon writes into topics beside what it learns from: answers to the
// rows of a topic, each served model, and predictions with an id, which come back as rows that wait
// for their labels.
//
//	predicting.go   rows of predict.topic are answered (package scoring)
//	announcing.go   served models are written to model.topic
//	remembering.go  predictions are written into the topic of rows
//	retried.go      such work begins anew when it fails
//
// Nothing of it belongs to the loop. The rest of the daemon goes on without it.
package output

import (
	"context"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
)

// Output is all that the configuration asks for.
type Output struct {
	predicting  *predicting  // nil: no topic of rows is answered
	announcing  *announcing  // nil: served models are written to no topic
	remembering *remembering // nil: no prediction is remembered
}

// New makes the output. served returns what is served, and a channel that is closed when it is
// replaced.
func New(e *loop.Environment, served func() (*model.Served, <-chan struct{})) *Output {
	o := &Output{}
	if e.Config.Remembers() {
		o.remembering = newRemembering(e)
	}
	if e.Config.Predict.Topic != "" {
		o.predicting = &predicting{Environment: e, served: served, remembering: o.remembering}
		e.Metrics.Add(o.predicting)
	}
	if e.Config.Model.Topic != "" {
		o.announcing = &announcing{Environment: e, served: served}
	}
	return o
}

// Remembering is who remembers predictions; nil: nobody does.
func (o *Output) Remembering() httpapi.Remembering {
	if o.remembering == nil {
		return nil // and not a nil pointer in an interface
	}
	return o.remembering
}

// Run writes until ctx ends. keep runs a task, and begins it anew when it panics.
func (o *Output) Run(ctx context.Context, keep func(context.Context, loop.Task, func())) {
	var running sync.WaitGroup
	defer running.Wait()
	if o.predicting != nil {
		running.Go(func() { keep(ctx, loop.TaskPredict, func() { o.predicting.run(ctx) }) })
	}
	if o.announcing != nil {
		running.Go(func() { keep(ctx, loop.TaskAnnounce, func() { o.announcing.run(ctx) }) })
	}
	if o.remembering != nil {
		running.Go(func() { keep(ctx, loop.TaskRemember, func() { o.remembering.run(ctx) }) })
	}
}

// Report puts what was written into the status. It returns what the operator should know.
func (o *Output) Report(s *httpapi.Status, now time.Time) (all []httpapi.Problem) {
	if p := o.predicting; p != nil {
		s.Predicting = p.report()
		all = append(all, p.problem(now)...)
	}
	if a := o.announcing; a != nil {
		s.Announced = a.report()
		all = append(all, a.problem(now)...)
	}
	if r := o.remembering; r != nil {
		all = append(all, r.problem(now)...)
	}
	return all
}
