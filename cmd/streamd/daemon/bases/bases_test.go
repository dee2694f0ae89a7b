package bases

import (
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/config"
)

// Values of keys may be replaced all the time. The next basis waits as long as rebuilding
// would take more than its share of the time.
func TestReplacementsWaitForTheirShare(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		stale    live.Staleness
		onRetire config.OnRetire
		since    time.Duration // the last switch, after a rebuild of one second
		want     bool
	}{
		{live.Fresh, config.OnRetireReduce, time.Hour, false},
		{live.SourceReplaced, config.OnRetireReduce, loop.Share*time.Second - 1, false},
		{live.SourceReplaced, config.OnRetireReduce, loop.Share * time.Second, true},
		{live.SourceReplaced, config.OnRetireKeep, time.Hour, false},
		{live.SourceRetired, config.OnRetireReduce, 0, true},
		{live.SourceRetired, config.OnRetireKeep, time.Hour, false},
	} {
		r := Bases{switched: now.Add(-c.since), took: time.Second}
		if got := r.forgetDue(c.stale, c.onRetire, now); got != c.want {
			t.Errorf("%+v: due %t", c, got)
		}
	}
}
