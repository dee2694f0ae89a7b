package loop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental/parallel"
)

// Jobs are the work beside the loop, and the only way into it.
//
// A panic of a task is that task's failure. It is logged with its stack, counted, and a problem
// until the task succeeds. The task is tried again, later after each failure. What it made before
// is served meanwhile. A panic in the loop, or in a job that writes the snapshot, ends the process:
// what it was about to change is half changed.
type Jobs struct {
	env *Environment

	Calls      chan func()     // functions that the loop calls between two deliveries
	LoopDone   chan struct{}   // closed when the loop has ended
	Background context.Context // context of the jobs; ends with the loop
	Running    sync.WaitGroup  // jobs that the end of the loop waits for
	Changing   atomic.Bool     // the loop ends for a successor that has other features

	mu     sync.Mutex
	failed map[Task]failure // tasks that have not succeeded since

	Before func(Task) // a test has tasks fail; nil: nothing
}

// A task is a kind of work beside the loop.
type Task string

const (
	TaskSolve     Task = "solve"     // the planes of the live set
	TaskCompare   Task = "compare"   // the newest blocks with the rest
	TaskStudy     Task = "study"     // ν, refinement, calibration, quality
	TaskReduce    Task = "reduce"    // the choice of a basis
	TaskPublish   Task = "publish"   // a basis in the control topic
	TaskRebuild   Task = "rebuild"   // the live blocks in another basis
	TaskFill      Task = "fill"      // rows that the sample lacks
	TaskFeatures  Task = "features"  // the live blocks in other features
	TaskLists     Task = "lists"     // values are counted, on request
	TaskWithdraw  Task = "withdraw"  // blocks that the control topic gives back
	TaskWindow    Task = "window"    // models of the past, on request
	TaskLabels    Task = "labels"    // rows to label, on request
	TaskHistory   Task = "history"   // of the status page
	TaskWitness   Task = "witness"   // the log of receipts is cosigned
	TaskRetention Task = "retention" // how long the log keeps records
	TaskPredict   Task = "predict"   // rows of a topic are answered
	TaskAnnounce  Task = "announce"  // served models are written to a topic
	TaskRemember  Task = "remember"  // predictions are written into the topic of rows
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

func newJobs(e *Environment) *Jobs {
	return &Jobs{env: e, Calls: make(chan func()), LoopDone: make(chan struct{}), Background: context.Background(), failed: map[Task]failure{}}
}

// Rests reports whether a task must not begin yet, because it has failed.
func (j *Jobs) Rests(t Task, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return now.Before(j.failed[t].until)
}

var errPanicked = errors.New("it has failed because of a bug: the log has the stack")

// try runs f, a part of a task. It returns an error if f panics. f holds no lock that it does not
// release when it panics.
func (j *Jobs) try(t Task, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w", t, errPanicked)
			j.fails(t, r, debug.Stack())
		}
	}()
	if j.Before != nil {
		j.Before(t)
	}
	f()
	return nil
}

// fails notes a failure.
func (j *Jobs) fails(t Task, reason any, stack []byte) {
	if p, ok := reason.(*parallel.Panic); ok { // of another goroutine
		reason, stack = p.Value, p.Stack
	}
	j.mu.Lock()
	of := j.failed[t]
	rest := min(firstRest<<min(of.times, 20), longestRest)
	of.times, of.until = of.times+1, time.Now().Add(rest)
	j.failed[t] = of
	j.mu.Unlock()
	j.env.Metrics.JobFailures.WithLabelValues(string(t)).Inc()
	j.env.Log.Error().Str("job", string(t)).Int("failures", of.times).Str("panic", fmt.Sprint(reason)).Bytes("stack", stack).
		Stringer("again_in", rest).Msg("work beside the loop has failed because of a bug; it is tried again")
	j.env.Problems.Raise(httpapi.Problem{
		Kind: httpapi.ProblemJob, Subject: string(t), Count: 1,
		Text: fmt.Sprintf("the job %s has failed because of a bug, and is tried again; what it made before stays", t),
	}, nil)
}

// Failing is the number of tasks that have not succeeded since they failed.
func (j *Jobs) Failing() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.failed)
}

// succeeds forgets the failures of a task.
func (j *Jobs) succeeds(t Task) {
	j.mu.Lock()
	_, failed := j.failed[t]
	delete(j.failed, t)
	j.mu.Unlock()
	if failed {
		j.env.Problems.Resolve(httpapi.ProblemJob, string(t))
	}
}

// Keep runs a task that ends with ctx. It is begun again when it fails.
func (j *Jobs) Keep(ctx context.Context, t Task, f func()) {
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

// Asked runs f for a caller of HTTP. A panic is an error of the answer.
func (j *Jobs) Asked(t Task, f func() error) (err error) {
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
type Job struct {
	Cancel context.CancelFunc // of the context of run
	Done   chan struct{}
	end    func() // nil once the job has ended
}

// Begin begins a job of a task. run returns the function that ends it in the loop. When run panics,
// failed ends it there, with an error that says so. A job that is not awaited may outlive the loop.
func (j *Jobs) Begin(t Task, awaited bool, run func(ctx context.Context) (end func()), failed func(error)) *Job {
	return j.start(awaited, func(ctx context.Context) (end func()) {
		if err := j.try(t, func() { end = run(ctx) }); err != nil {
			return func() { failed(err) }
		}
		j.succeeds(t)
		return end
	})
}

// BeginWriting begins a job that writes the snapshot. The loop's end waits for it. A panic ends the
// process.
func (j *Jobs) BeginWriting(run func(ctx context.Context) (end func())) *Job {
	return j.start(true, run)
}

func (j *Jobs) start(awaited bool, run func(ctx context.Context) (end func())) *Job {
	ctx, cancel := context.WithCancel(j.Background)
	x := &Job{Cancel: cancel, Done: make(chan struct{})}
	work := func() {
		x.end = run(yielding{ctx})
		close(x.Done)
		select {
		case j.Calls <- x.Await:
		case <-j.Background.Done():
			cancel()
		}
	}
	if awaited {
		j.Running.Go(work)
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

// Await waits until the job has run, and ends it. Only the loop calls it.
func (x *Job) Await() {
	<-x.Done
	if end := x.end; end != nil {
		x.end = nil
		end()
		x.Cancel()
	}
}

var (
	ErrStopping = fmt.Errorf("the daemon is stopping: %w", httpapi.ErrUnavailable)
	ErrChanging = fmt.Errorf("the features are being changed, so this waits for the end of the change: try again in a minute: %w", httpapi.ErrUnavailable)
)

// Ended says why the loop has ended.
func (j *Jobs) Ended() error {
	if j.Changing.Load() {
		return ErrChanging
	}
	return ErrStopping
}
