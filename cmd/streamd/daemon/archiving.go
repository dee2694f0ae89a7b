package daemon

import "time"

// archiving logs and counts the blocks that a full archive drops. Windows of their times lack them
// from then on.
type archiving struct {
	*core
	counted, told int64 // of live.Set.Overflowed: in the metrics, and in the log
	wrote         time.Time
}

// overflowPause is the least time between two lines. A full archive drops a block for each one
// that comes.
const overflowPause = 10 * time.Minute

// whenDue logs the first dropped blocks at once, and the number of further ones at most every
// overflowPause.
func (a *archiving) whenDue(now time.Time) {
	n := a.live.Overflowed()
	a.metrics.ArchiveDropped.Add(float64(n - a.counted))
	a.counted = n
	if n == a.told || now.Sub(a.wrote) < overflowPause {
		return
	}
	a.log.Warn().Int64("blocks", n-a.told).Int("archived", a.live.Archived()).
		Msg("the archive is full (limits.memory) and drops the blocks of the lowest event times: windows lack them")
	a.told, a.wrote = n, now
}
