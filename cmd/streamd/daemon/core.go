package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/archive"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/snapshot"
)

// core is the state that the parts of the loop share.
type core struct {
	cfg     *config.Config
	log     zerolog.Logger
	logSalt [32]byte // of keys in the log
	options incremental.Options
	memory  *memory.Budget
	metrics *httpapi.Metrics
	store   *snapshot.Store
	archive *archive.Archive

	*jobs
	stopping chan struct{} // closed: nothing more is read
	stop     context.CancelCauseFunc

	// The loop's:
	live      *live.Set
	intake    *intake.Intake
	delivered time.Time // when the last batch was applied
	failure   error     // why the daemon is stopping
}

// fail ends the daemon with an error, without applying anything more.
func (c *core) fail(err error) {
	if c.failure == nil {
		c.failure = err
		c.intake.Fail()
		c.stop(err)
	}
}

// refines says whether planes are refined; all that are served come from studies
// then, once there has been one.
func (c *core) refines() bool { return c.cfg.Model.Refine != config.RefineNone }

// tunes says whether ν is chosen.
func (c *core) tunes() bool { return c.cfg.Model.Nu == config.NuAuto }

// judges says whether planes are judged on held-out rows.
func (c *core) judges() bool { return c.cfg.Model.Folds > 0 && c.cfg.Sample.Rows > 0 }

// flushRuns makes the rows of open runs live. all is false where some have no room before
// the next save; ok is false when the daemon has failed.
func (c *core) flushRuns() (all, ok bool) {
	all, err := c.intake.Flush(c.background)
	if err != nil {
		c.fail(err)
	}
	return all, err == nil
}

// isFlushed is flushRuns for a caller that does not ask whether all is live.
func (c *core) isFlushed() bool { _, ok := c.flushRuns(); return ok }

// share bounds what saving, and copying the sums for a solve, may take of the
// loop's time: one part in so many each, however wide the state is. Saving takes more
// where blocks come faster than there is room for them.
const share = 20

// quiet is how long nothing has come when a save or a solve no longer waits for its
// share: longer than the pauses between the fetches of a fast stream.
const quiet = 50 * time.Millisecond

// pause is how long the loop goes without work that took it so long: not at all where it
// has had nothing else to do for as long.
func (c *core) pause(took time.Duration, now time.Time) time.Duration {
	if now.Sub(c.delivered) >= max(quiet, took) {
		return 0
	}
	return share * took
}

// logged is how the log names a block. A key may be a person's name, and the log
// outlives it: it is hashed with a salt that the process has made and nobody knows.
// Lines of this process about one key have one hash.
func (c *core) logged(id string) string {
	if c.cfg.Blocks.Unit != config.UnitKey {
		return id
	}
	h := hmac.New(sha256.New, c.logSalt[:])
	h.Write([]byte(id))
	return "key#" + hex.EncodeToString(h.Sum(nil)[:8])
}

// jobs are the work beside the loop, and the one way into it.
type jobs struct {
	calls      chan func()     // that the loop makes between two deliveries
	loopDone   chan struct{}   // closed when the loop has ended
	background context.Context // of jobs; ends with the loop
	running    sync.WaitGroup  // jobs that the end of the loop waits for
}

func newJobs() *jobs {
	return &jobs{calls: make(chan func()), loopDone: make(chan struct{}), background: context.Background()}
}

// A job is begun in the loop with copies, runs beside it, and ends in the loop.
//
//	begun    run is under way
//	run      done is closed, and the loop has been asked to end the job
//	ended    end has been called, by the loop or by await
//
// A job whose loop has ended stays run.
type job struct {
	cancel context.CancelFunc // of the context of run
	done   chan struct{}
	end    func() // nil: it has ended
}

// begin begins a job. Run gives its end, for the loop. A job that is
// not awaited may outlive the loop.
func (j *jobs) begin(awaited bool, run func(ctx context.Context) (end func())) *job {
	ctx, cancel := context.WithCancel(j.background)
	x := &job{cancel: cancel, done: make(chan struct{})}
	work := func() {
		x.end = run(ctx)
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

// await waits until the job has run, and ends it. It is the loop's.
func (x *job) await() {
	<-x.done
	if end := x.end; end != nil {
		x.end = nil
		end()
		x.cancel()
	}
}

// inLoop runs f in the loop, between two deliveries, and gives its answer. f may
// still run after ctx has ended; its answer is dropped then.
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
		return none, errStopping
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

// call is inLoop without an answer.
func (j *jobs) call(ctx context.Context, f func() error) error {
	_, err := inLoop(ctx, j, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
