package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"streamd/cmd/streamd/daemon/archive"
	"streamd/cmd/streamd/daemon/live"
	"streamd/incremental"
	"streamd/retire"
)

// logRows is the rows of live blocks, read from the log for every pass.
type logRows struct {
	log     *archive.Archive
	blocks  *live.Blocks // after the first pass, those that it has shown
	in      *live.Coordinates
	passes  int
	missing int   // blocks that it has not
	unread  error // why, of the first that is still live
}

// errMoved says that a later pass did not find the blocks that the first one did.
var errMoved = errors.New("the log does not give back any more what it did a moment ago")

// Pass implements newton.Rows. The first pass compares every block with its
// summary and leaves out those that are not as they were, and those that have
// been retired meanwhile and cannot be compared.
func (r *logRows) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	var mu sync.Mutex
	shown := map[string]bool{}
	unread, err := r.log.Pass(ctx, r.blocks, r.passes == 0, func(w *archive.Worker, e retire.Entry, b *incremental.Block, _ *incremental.Summary) error {
		in, err := w.Keeper.Block(ctx, b, r.in)
		if err != nil {
			return err
		}
		if err := visit(in); err != nil {
			return err
		}
		mu.Lock()
		shown[e.ID] = true
		mu.Unlock()
		return nil
	})
	if err != nil {
		return err
	}
	r.passes++
	if len(shown) == len(r.blocks.Entries) {
		return nil
	}
	if r.passes > 1 {
		return errMoved
	}
	r.missing = len(r.blocks.Entries) - len(shown)
	if len(unread) > 0 {
		r.unread = fmt.Errorf("block %s: %w", unread[0].ID, unread[0].Reason)
	}
	left := *r.blocks
	left.Entries = slices.DeleteFunc(slices.Clone(left.Entries), func(e retire.Entry) bool { return !shown[e.ID] })
	r.blocks = &left
	return nil
}
