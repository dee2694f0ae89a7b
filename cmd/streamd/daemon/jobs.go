package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/httpapi"
	"streamd/incremental/parallel"
)

// jobs are the work beside the loop, and the only way into it.
//
// A panic of a task is that task's failure. It is logged with its stack, counted, and a problem
// until the task succeeds. The task is tried again, later after each failure. What it made before
// is served meanwhile. A panic in the loop, or in a job that writes the snapshot, ends the process:
// what it was about to change is half changed.
type jobs struct {
	log      zerolog.Logger
	metrics  *httpapi.Metrics
	problems *problems.Board

	calls      chan func()     // functions that the loop calls between two deliveries
	loopDone   chan struct{}   // closed when the loop has ended
	background context.Context // context of the jobs; ends with the loop
	running    sync.WaitGroup  // jobs that the end of the loop waits for
	changing   atomic.Bool     // the loop ends for a successor that has other features

	mu     sync.Mutex
	failed map[task]failure // tasks that have not succeeded since

	before func(task) // a test has tasks fail; nil: nothing
}

// A task is a kind of work beside the loop.
type task string

const (
	taskSolve     task = "solve"     // the planes of the live set
	taskCompare   task = "compare"   // the newest blocks with the rest
	taskStudy     task = "study"     // ν, refinement, calibration, quality
	taskReduce    task = "reduce"    // the choice of a basis
	taskPublish   task = "publish"   // a basis in the control topic
	taskRebuild   task = "rebuild"   // the live blocks in another basis
	taskFill      task = "fill"      // rows that the sample lacks
	taskFeatures  task = "features"  // the live blocks in other features
	taskLists     task = "lists"     // values are counted, on request
	taskWithdraw  task = "withdraw"  // blocks that the control topic gives back
	taskWindow    task = "window"    // models of the past, on request
	taskLabels    task = "labels"    // rows to label, on request
	taskHistory   task = "history"   // of the status page
	taskWitness   task = "witness"   // the log of receipts is cosigned
	taskRetention task = "retention" // how long the log keeps records
	taskPredict   task = "predict"   // rows of a topic are answered
	taskAnnounce  task = "announce"  // served models are written to a topic
	taskRemember  task = "remember"  // predictions are written into the topic of rows
)

// failure is the failures of a task in a row.
type failure struct {
	times int
	until time.Time // when the task is tried again
}

// A task rests for firstRest after a failure, and twice as long after each further one, at most
// for longestRest.
const (
	firstRest   = time.Second
	longestRest = 10 * time.Minute
	works       = time.Minute // after which a task that is kept has succeeded
)

func newJobs(log zerolog.Logger, metrics *httpapi.Metrics) *jobs {
	return &jobs{
		log: log, metrics: metrics, calls: make(chan func()), loopDone: make(chan struct{}), background: context.Background(),
		failed: map[task]failure{},
	}
}

// rests reports whether a task must not begin yet, because it has failed.
func (j *jobs) rests(t task, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return now.Before(j.failed[t].until)
}

var errPanicked = errors.New("it has failed because of a bug: the log has the stack")

// try runs f, a part of a task. It returns an error if f panics. f holds no lock that it does not
// release when it panics.
func (j *jobs) try(t task, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w", t, errPanicked)
			j.fails(t, r, debug.Stack())
		}
	}()
	if j.before != nil {
		j.before(t)
	}
	f()
	return nil
}

// fails notes a failure.
func (j *jobs) fails(t task, reason any, stack []byte) {
	if p, ok := reason.(*parallel.Panic); ok { // of another goroutine
		reason, stack = p.Value, p.Stack
	}
	j.mu.Lock()
	of := j.failed[t]
	rest := min(firstRest<<min(of.times, 20), longestRest)
	of.times, of.until = of.times+1, time.Now().Add(rest)
	j.failed[t] = of
	j.mu.Unlock()
	j.metrics.JobFailures.WithLabelValues(string(t)).Inc()
	j.log.Error().Str("job", string(t)).Int("failures", of.times).Str("panic", fmt.Sprint(reason)).Bytes("stack", stack).
		Stringer("again_in", rest).Msg("work beside the loop has failed because of a bug; it is tried again")
	j.problems.Raise(httpapi.Problem{
		Kind: httpapi.ProblemJob, Subject: string(t), Count: 1,
		Text: fmt.Sprintf("the job %s has failed because of a bug, and is tried again; what it made before stays", t),
	}, nil)
}

// succeeds forgets the failures of a task.
func (j *jobs) succeeds(t task) {
	j.mu.Lock()
	_, failed := j.failed[t]
	delete(j.failed, t)
	j.mu.Unlock()
	if failed {
		j.problems.Resolve(httpapi.ProblemJob, string(t))
	}
}

// keep runs a task that ends with ctx. It is begun again when it fails.
func (j *jobs) keep(ctx context.Context, t task, f func()) {
	for {
		working := time.AfterFunc(works, func() { j.succeeds(t) })
		failed := j.try(t, f)
		working.Stop()
		if failed == nil {
			return
		}
		j.mu.Lock()
		rest := time.Until(j.failed[t].until)
		j.mu.Unlock()
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return
		}
	}
}

// asked runs f for a caller of HTTP. A panic is an error of the answer.
func (j *jobs) asked(t task, f func() error) (err error) {
	if failed := j.try(t, func() { err = f() }); failed != nil {
		return fmt.Errorf("%w: %w", failed, httpapi.ErrUnavailable)
	}
	j.succeeds(t)
	return err
}

// A job begins in the loop with copies, runs beside the loop, and ends in the loop.
//
//	begun    run is under way
//	run      done is closed, and the loop has been asked to end the job
//	ended    end has been called, by the loop or by await
//
// A job whose loop has ended stays in state run.
type job struct {
	cancel context.CancelFunc // of the context of run
	done   chan struct{}
	end    func() // nil once the job has ended
}

// begin begins a job of a task. run returns the function that ends it in the loop. When run panics,
// failed ends it there, with an error that says so. A job that is not awaited may outlive the loop.
func (j *jobs) begin(t task, awaited bool, run func(ctx context.Context) (end func()), failed func(error)) *job {
	return j.start(awaited, func(ctx context.Context) (end func()) {
		if err := j.try(t, func() { end = run(ctx) }); err != nil {
			return func() { failed(err) }
		}
		j.succeeds(t)
		return end
	})
}

// beginWriting begins a job that writes the snapshot. The loop's end waits for it. A panic ends the
// process.
func (j *jobs) beginWriting(run func(ctx context.Context) (end func())) *job {
	return j.start(true, run)
}

func (j *jobs) start(awaited bool, run func(ctx context.Context) (end func())) *job {
	ctx, cancel := context.WithCancel(j.background)
	x := &job{cancel: cancel, done: make(chan struct{})}
	work := func() {
		x.end = run(yielding{ctx})
		close(x.done)
		select {
		case j.calls <- x.await:
		case <-j.background.Done():
			cancel()
		}
	}
	if awaited {
		j.running.Go(work)
	} else {
		go work()
	}
	return x
}

// yielding is the context of work beside the loop. Where the work looks whether it shall end, it
// lets other goroutines run. Go itself interrupts a goroutine after 10 ms, for which a block would
// wait on its way into a model.
type yielding struct{ context.Context }

func (c yielding) Err() error {
	runtime.Gosched()
	return c.Context.Err()
}

// await waits until the job has run, and ends it. Only the loop calls it.
func (x *job) await() {
	<-x.done
	if end := x.end; end != nil {
		x.end = nil
		end()
		x.cancel()
	}
}

var (
	errStopping = fmt.Errorf("the daemon is stopping: %w", httpapi.ErrUnavailable)
	errChanging = fmt.Errorf("the features are being changed, so this waits for the end of the change: try again in a minute: %w", httpapi.ErrUnavailable)
)

// ended says why the loop has ended.
func (j *jobs) ended() error {
	if j.changing.Load() {
		return errChanging
	}
	return errStopping
}

// inLoop runs f in the loop, between two deliveries, and returns its result. If ctx ends
// first, f may still run and its result is dropped.
func inLoop[T any](ctx context.Context, j *jobs, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	var none T
	select {
	case j.calls <- func() {
		value, err := f()
		done <- answer{value, err}
	}:
	case <-j.loopDone:
		return none, j.ended()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// keptInLoop is inLoop for a result that must be given back to the loop. If ctx ends before the
// loop begins f, f never runs. Once f has begun, keptInLoop waits for its result.
func keptInLoop[T any](ctx context.Context, j *jobs, f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	select {
	case j.calls <- func() {
		defer close(done)
		value, err = f()
	}: // calls has no buffer, so the loop has begun f
		<-done
		return value, err
	case <-j.loopDone:
		return value, j.ended()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// call is inLoop for functions without a result.
func (j *jobs) call(ctx context.Context, f func() error) error {
	_, err := inLoop(ctx, j, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
