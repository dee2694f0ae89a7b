package daemon

import (
	"time"

	"streamd/cmd/streamd/daemon/live"
)

// weighing bounds the time that the loop takes at once to read blocks for weighted sums.
const weighing = 50 * time.Millisecond

// weigh returns the sums of the live blocks weighted by a half-life, or nil without one. ok is
// false when the daemon has failed, or blocks are left to be read: then the loop soon calls again.
func (c *core) weigh() (w *live.Weighted, ok bool) {
	if !c.learner.Fades() {
		return nil, true
	}
	w, err := c.live.Weigh(weighing)
	if err != nil {
		c.fail(err)
		return nil, false
	}
	c.behind = w == nil
	return w, w != nil
}
