package windows

import (
	"time"

	"streamd/cmd/streamd/daemon/loop"
)

// archiving logs and counts the blocks that a full archive drops. Windows of their times lack them
// from then on.
type archiving struct {
	*loop.Loop
	counted, told int64 // of live.Set.Overflowed: in the metrics, and in the log
	wrote         time.Time
}

// OverflowPause is the least time between two lines. A full archive drops a block for each one
// that comes.
const OverflowPause = 10 * time.Minute

// whenDue logs the first dropped blocks at once, and the number of further ones at most every
// OverflowPause.
func (a *archiving) tell(now time.Time) {
	n := a.Live.Overflowed()
	a.Metrics.ArchiveDropped.Add(float64(n - a.counted))
	a.counted = n
	if n == a.told || now.Sub(a.wrote) < OverflowPause {
		return
	}
	a.Log.Warn().Int64("blocks", n-a.told).Int("archived", a.Live.Archived()).
		Msg("the archive is full (limits.memory) and drops the blocks of the lowest event times: windows lack them")
	a.told, a.wrote = n, now
}
