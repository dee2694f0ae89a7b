package daemon

import (
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
)

// mustGo says whether the basis in use holds rows that must not stay.
func (d *Daemon) mustGo() bool {
	e := d.live.InUse()
	return e.Stale() >= live.SourceRetired && d.cfg.Kernel.OnRetire == config.OnRetireReduce
}

// forgetDue says whether another basis is to be chosen since the one in use is stale.
// After a retirement that is at once. Values of keys are replaced all the time, and
// wait so that no more than one part in share of the time goes into rebuilding.
func (r *rebuilding) forgetDue(stale live.Staleness, policy config.OnRetire, now time.Time) bool {
	return policy == config.OnRetireReduce &&
		(stale >= live.SourceRetired || stale == live.SourceReplaced && now.Sub(r.switched) >= share*r.took)
}

// sayStale tells whoever reads the model that its basis is stale.
func (d *Daemon) sayStale() {
	last := d.published.Load()
	if b := last.served.Basis; b != nil && !b.Stale && d.isStale(b) {
		again := *last.served
		d.publish(&again, d.servedBy)
	}
}

// isStale says whether a basis is the one in use, and is stale.
func (d *Daemon) isStale(b *model.Basis) bool {
	e := d.live.InUse()
	return e.Coordinates != nil && e.ID == b.ID && e.Stale() != live.Fresh
}
