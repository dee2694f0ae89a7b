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
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/snapshot"
)

// core is the state that the parts of the loop share.
type core struct {
	cfg     *config.Config
	log     zerolog.Logger
	logSalt [32]byte // salt of the hashes of keys in the log
	options incremental.Options
	rules   string           // digest of the file model.knowledge; "": there is none
	prices  []decision.Price // of wrong answers
	memory  *memory.Budget
	metrics *httpapi.Metrics
	store   *snapshot.Store
	archive *archive.Archive

	problems *problems.Board
	*jobs
	stopping chan struct{} // closed: nothing more is read
	stop     context.CancelCauseFunc

	// The rest belongs to the loop.
	live      *live.Set
	intake    *intake.Intake
	delivered time.Time // when the last batch was applied
	failure   error     // why the daemon is stopping
	behind    bool      // blocks are left to be read for weighted sums
}

// fail ends the daemon with an error, without applying anything more.
func (c *core) fail(err error) {
	if c.failure == nil {
		c.failure = err
		c.intake.Fail()
		c.stop(err)
	}
}

// refines reports whether planes are refined, or may be.
func (c *core) refines() bool { return c.cfg.Model.Refine != config.RefineNone }

// tunes reports whether ν is chosen.
func (c *core) tunes() bool { return c.cfg.Model.Nu == config.NuAuto }

// judges reports whether planes are judged on held-out rows.
func (c *core) judges() bool { return c.cfg.Model.Folds > 0 && c.cfg.Sample.Rows > 0 }

// flushRuns makes the rows of open runs live. all is false if some have no room before the
// next save. ok is false if the daemon has failed.
func (c *core) flushRuns() (all, ok bool) {
	all, err := c.intake.Flush(c.background)
	if err != nil {
		c.fail(err)
	}
	return all, err == nil
}

// isFlushed is flushRuns for callers that do not need to know whether all rows are live.
func (c *core) isFlushed() bool { _, ok := c.flushRuns(); return ok }

// dropLost retires a block that the log does not return, unless it is no longer lost when
// its open run has ended. ok is false when the daemon has failed.
func (c *core) dropLost(id string, isLost func() bool) (dropped, ok bool) {
	_, err := c.intake.EndBlocks(c.background, func(open string) bool { return open == id })
	if err == nil {
		if !isLost() {
			return false, true
		}
		err = c.live.Lose(id)
	}
	if err != nil {
		c.fail(err)
		return false, false
	}
	c.intake.CountRetired(1)
	return true, true
}

// share limits the loop's time for saving, and for copying the sums for a solve: each may
// take 1/share of it, however wide the state is. Saving takes more when blocks come faster
// than there is room for them.
const share = 20

// quiet is the length of a pause in the stream after which a save or a solve no longer
// waits for its share. It is longer than the pauses between the fetches of a fast stream.
const quiet = 50 * time.Millisecond

// pause is the time that the loop waits before it repeats work that took took. It is zero
// where the loop has been idle for as long.
func (c *core) pause(took time.Duration, now time.Time) time.Duration {
	if now.Sub(c.delivered) >= max(quiet, took) {
		return 0
	}
	return share * took
}

// logged is the name of a block in the log. A key may be a person's name, and the log may
// outlive the block. So keys are hashed with a random salt that only this process has.
// Lines of one process about one key have the same hash.
func (c *core) logged(id string) string {
	if c.cfg.Blocks.Unit != config.UnitKey {
		return id
	}
	h := hmac.New(sha256.New, c.logSalt[:])
	h.Write([]byte(id))
	return "key#" + hex.EncodeToString(h.Sum(nil)[:8])
}

// jobs are the work beside the loop, and the only way into it.
type jobs struct {
	calls      chan func()     // functions that the loop calls between two deliveries
	loopDone   chan struct{}   // closed when the loop has ended
	background context.Context // context of the jobs; ends with the loop
	running    sync.WaitGroup  // jobs that the end of the loop waits for
}

func newJobs() *jobs {
	return &jobs{calls: make(chan func()), loopDone: make(chan struct{}), background: context.Background()}
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

// begin begins a job. run returns the function that ends it in the loop. A job that is not
// awaited may outlive the loop.
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

// await waits until the job has run, and ends it. Only the loop calls it.
func (x *job) await() {
	<-x.done
	if end := x.end; end != nil {
		x.end = nil
		end()
		x.cancel()
	}
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
		return value, errStopping
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// call is inLoop for functions without a result.
func (j *jobs) call(ctx context.Context, f func() error) error {
	_, err := inLoop(ctx, j, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
