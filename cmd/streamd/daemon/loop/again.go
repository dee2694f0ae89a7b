package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/summary"
	"streamd/retire"
)

// takenAtOnce bounds the bytes of the summaries that the loop takes in one call, and MostAtOnce the
// number of whatever it takes.
const (
	takenAtOnce = 8 << 20
	MostAtOnce  = 100
)

// AfterFailure is the rest before work that could not be done for a cause of its own, and not for a
// bug, is tried again.
const AfterFailure = time.Minute

// AtOnce is the number of summaries of so many columns that the loop takes in one call.
func AtOnce(columns int) int {
	return min(max(takenAtOnce/(8*gram.PackedLen(columns)), 1), MostAtOnce)
}

// Enter runs a function where the live set may be read and changed.
type Enter func(context.Context, func() error) error

// ReadSums reads blocks again that came as sums, and calls take on what is kept of them, inside of
// in, where the block is unchanged in the set.
func ReadSums(ctx context.Context, log *passes.Log, set *live.Set, in Enter, blocks []retire.Entry, take func(retire.Entry, live.Kept) error) (unread []live.Unread, err error) {
	return log.Carried(ctx, blocks, func(e retire.Entry, b *summary.Block) error {
		return in(ctx, func() error {
			if now, ok := set.Find(e.ID); !ok || now != e {
				return nil
			}
			return take(e, set.Target().Carry(b.Summary, b.Part))
		})
	})
}

// ReadAgain makes a pass, which verifies the blocks by their summaries where there are any:
// withdrawn blocks have none. Workers call of on each block. Inside of in, take is
// called on the results, atOnce at a time, where the block is unchanged in the set. A block is
// unread if of returns an error. An error of take ends the pass.
func ReadAgain[T any](ctx context.Context, log *passes.Log, set *live.Set, in Enter, blocks *live.Blocks, verify bool, atOnce int,
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

// OpenLog opens the log of the topic for passes. Of the settings it needs the configuration, and
// what a block is decoded to. The caller closes it.
func (l *Loop) OpenLog(s passes.Settings) (*passes.Log, error) {
	cluster, err := settings.Cluster(s.Config.Kafka, l.Log)
	if err != nil {
		return nil, err
	}
	s.Log, s.Budget, s.Cluster, s.StillLive = l.Log, l.Memory, cluster, l.StillLive
	s.Fetching = settings.Bounded(l.Memory, settings.Fetching(s.Config.Kafka), l.Memory.Reread)
	return passes.New(s)
}

// OpenTopic opens the log for blocks as the loop has them. The caller closes it.
func (l *Loop) OpenTopic() (*passes.Log, error) {
	return l.OpenLog(passes.Settings{Config: l.Config, Decoding: l.Decoding, Target: l.Live.Target, Label: l.Intake.LabelOf()})
}

// StillLive returns those of the blocks that are unchanged in the set.
func (l *Loop) StillLive(ctx context.Context, blocks []live.Unread) ([]live.Unread, error) {
	return Ask(ctx, l, func() (still []live.Unread, _ error) {
		for _, u := range blocks {
			if e, ok := l.Live.Find(u.ID); ok && e == u.Entry && !(l.Config.Labels.Topic != "" && errors.Is(u.Reason, passes.ErrOthers)) {
				still = append(still, u)
			}
		}
		return still, nil
	})
}
