package daemon

import (
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/retire"
)

// weighing bounds the time that the loop takes at once to read blocks for weighted sums.
const weighing = 50 * time.Millisecond

// fades reports whether blocks are weighted by a half-life.
func (c *core) fades() bool { return live.HalfLife(c.cfg) != retire.HalfLife{} }

// weigh returns the sums of the live blocks weighted by a half-life, or nil without one. ok is
// false when the daemon has failed, or blocks are left to be read: then the loop soon calls again.
func (c *core) weigh() (w *live.Weighted, ok bool) {
	if !c.fades() {
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

// forgettingOf reports the weights of blocks, if there are any.
func forgettingOf(c config.Retire, w *live.Weighted) *model.Forgetting {
	if w == nil {
		return nil
	}
	f := &model.Forgetting{
		HalfLifeSeconds: c.HalfLife.Seconds(), HalfLifeRows: c.HalfLifeRows,
		Rows: w.Whole.Rows(), Weight: w.Whole.Unlabelled().Weight, Digest: w.Digest,
	}
	for _, t := range w.Whole.Totals() {
		f.Weight += t.Weight
	}
	return f
}
