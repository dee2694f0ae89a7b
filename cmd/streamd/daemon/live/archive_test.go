package live

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
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

// A full archive drops its oldest blocks, and counts them. What waits for a save are the bytes of
// the archived summaries that the file lacks.
func TestFullArchive(t *testing.T) {
	cfg := liveConfig(0, 0)
	cfg.Retire.Keep, cfg.Retire.Blocks, cfg.Retire.Archive = "blocks", 1, true
	l, store := reopen(t, filepath.Join(t.TempDir(), "streamd.db"), cfg)
	defer store.Close()
	const most, blocks = 5, 20
	l.ledger.KeepArchive(most)
	var z Keeper
	r := rand.New(rand.NewPCG(3, 2))
	sizes := map[string]int64{} // of the summaries that the file lacks
	for i := range int64(blocks) {
		k, err := z.Keep(t.Context(), randomBlock(r), l.Target())
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("%02d", i)
		if _, err := l.Add(retire.Entry{ID: id, Time: time.UnixMilli(i), Rows: k.Summary.Rows()}, k); err != nil {
			t.Fatal(err)
		}
		sizes[id] = int64(k.Summary.Bytes())
		delete(sizes, fmt.Sprintf("%02d", i-most-1))
		want := int64(0)
		for _, bytes := range sizes {
			want += bytes
		}
		if over := max(0, i-most); l.Archived() != int(min(i, most)) || l.Overflowed() != over || l.Waiting() != want {
			t.Fatalf("after block %d: %d archived, %d dropped, want %d; %d bytes wait, want %d", i, l.Archived(), l.Overflowed(), over, l.Waiting(), want)
		}
		if i == blocks/2 {
			save(t, l, store)
			clear(sizes)
		}
	}
	var ids []string
	for _, e := range l.ArchivedBlocks(retire.Lowest, blocks) {
		ids = append(ids, e.ID)
	}
	if !slices.Equal(ids, []string{"14", "15", "16", "17", "18"}) {
		t.Errorf("the archive has %v", ids)
	}
}
