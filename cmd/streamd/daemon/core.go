package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/config"
	"streamd/ingest/registry"
	"streamd/snapshot"
)

// core is the state that the parts of the loop share.
type core struct {
	cfg     *config.Config
	log     zerolog.Logger
	logSalt [32]byte // salt of the hashes of keys in the log
	learner *learning.Learner
	memory  *memory.Budget
	store   *snapshot.Store
	topic   *passes.Log // its records can be read again

	registry *registry.Client // of the schemas of messages; nil: there is none

	*jobs
	stopping chan struct{} // closed: nothing more is read
	stop     context.CancelCauseFunc

	// The rest belongs to the loop.
	live      *live.Set
	intake    *intake.Intake
	delivered time.Time // when the last batch was applied
	failure   error     // why the daemon is stopping
	behind    bool      // blocks are left to be read for weighted sums
	slicing   slicing
}

// fail ends the daemon with an error, without applying anything more.
func (c *core) fail(err error) {
	if c.failure == nil {
		c.failure = err
		c.intake.Fail()
		c.stop(err)
	}
}

// flushRuns makes the rows of open runs live. all is false if some have no room before the
// next save. ok is false if the daemon has failed.
func (c *core) flushRuns() (all, ok bool) {
	all, err := c.intake.Flush(c.background)
	if err == nil {
		err = c.live.Settle() // the callers read the sums
	}
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
