package live

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"streamd/retire"
)

// A basis that was chosen from a block has its rows in the points, also when the policy has let the
// block go since. They must not stay once the archived block is retired or withdrawn.
func TestArchivedSources(t *testing.T) {
	for _, withdraw := range []bool{false, true} {
		cfg := liveConfig(0, 0)
		cfg.Retire.Keep, cfg.Retire.Blocks, cfg.Retire.Archive = "blocks", 1, true
		l, store := reopen(t, filepath.Join(t.TempDir(), "streamd.db"), cfg)
		var z Keeper
		r := rand.New(rand.NewPCG(3, 1))
		for i := range int64(2) {
			k, err := z.Keep(t.Context(), randomBlock(r), l.Target())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Time: time.UnixMilli(i), Rows: k.Summary.Rows()}, k); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				l.choosing = &sources{blocks: map[string]struct{}{"0": {}}}
			}
		}
		if l.Archived() != 1 || l.choosing.stale != Fresh {
			t.Fatalf("%d archived blocks, sources %+v", l.Archived(), l.choosing)
		}
		if _, err := l.FollowWithdrawals(); err != nil {
			t.Fatal(err)
		}
		var err error
		if withdraw {
			_, err = l.Withdraw("w", &retire.Selection{IDs: []string{"0"}})
		} else {
			_, _, err = l.RetireOthers([]string{"0"})
		}
		if err != nil || l.choosing.stale != SourceRetired || l.InBasis("0") {
			t.Errorf("withdrawn %t: sources %+v, %v", withdraw, l.choosing, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
