package daemon

import (
	"context"
	"sync"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/incremental"
	"streamd/ingest/summary"
	"streamd/retire"
)

// enter runs a function where the live set may be read and changed.
type enter func(context.Context, func() error) error

// readSums reads blocks again that came as sums, and calls take on what is kept of them, inside of
// in, where the block is unchanged in the set.
func readSums(ctx context.Context, log *passes.Log, set *live.Set, in enter, blocks []retire.Entry, take func(retire.Entry, live.Kept) error) (unread []live.Unread, err error) {
	return log.Carried(ctx, blocks, func(e retire.Entry, b *summary.Block) error {
		return in(ctx, func() error {
			if now, ok := set.Find(e.ID); !ok || now != e {
				return nil
			}
			return take(e, set.Target().Carry(b.Summary, b.Part))
		})
	})
}

// readAgain makes a pass, which verifies the blocks by their summaries where there are any:
// withdrawn blocks have none. Workers call of on each block. Inside of in, take is
// called on the results, atOnce at a time, where the block is unchanged in the set. A block is
// unread if of returns an error. An error of take ends the pass.
func readAgain[T any](ctx context.Context, log *passes.Log, set *live.Set, in enter, blocks *live.Blocks, verify bool, atOnce int,
	of func(*passes.Worker, *incremental.Block, *incremental.Summary) (T, error), take func(retire.Entry, T) error,
) (unread []live.Unread, err error) {
	type made struct {
		entry retire.Entry
		of    T
	}
	var mu sync.Mutex
	var ready []made
	hand := func(least int) error {
		mu.Lock()
		some := ready
		if len(some) < least {
			mu.Unlock()
			return nil
		}
		ready = nil
		mu.Unlock()
		return in(ctx, func() error {
			for _, z := range some {
				if e, ok := set.Find(z.entry.ID); !ok || e != z.entry {
					continue
				}
				if err := take(z.entry, z.of); err != nil {
					return err
				}
			}
			return nil
		})
	}
	lost, err := log.Pass(ctx, blocks, verify, func(w *passes.Worker, e retire.Entry, b *incremental.Block, s *incremental.Summary) error {
		z, err := of(w, b, s)
		mu.Lock()
		if err != nil {
			unread = append(unread, live.Unread{Entry: e, Reason: err})
		} else {
			ready = append(ready, made{e, z})
		}
		mu.Unlock()
		return hand(atOnce)
	})
	if err == nil {
		err = hand(1)
	}
	return append(unread, lost...), err
}
