package planes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/incremental"
	"streamd/retire"
)

// logRows are the rows of live blocks that have a label. Every pass reads them from the log.
type logRows struct {
	log     *passes.Log
	blocks  *live.Blocks       // after the first pass, the blocks that it visited
	weights map[string]float64 // of the blocks; nil: all weigh 1
	in      *live.Coordinates
	passes  int
	missing int   // blocks that were not visited
	unread  error // the reason, for the first one that is still live
}

// errMoved says that a later pass did not find the blocks of the first one.
var errMoved = errors.New("the log no longer returns blocks that it returned a moment ago")

// Pass implements newton.Rows. The first pass compares every block with its summary. It
// leaves out blocks that differ, and blocks that were retired meanwhile and cannot be
// compared.
func (r *logRows) Pass(ctx context.Context, visit func(*incremental.Block) error) error {
	var mu sync.Mutex
	shown := map[string]bool{}
	unread, err := r.log.Pass(ctx, r.blocks, r.passes == 0, func(w *passes.Worker, e retire.Entry, b *incremental.Block, _ *incremental.Summary) error {
		in, err := w.Keeper.Block(ctx, weighted(b.Labelled(), r.weights, e.ID), r.in)
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

// Whole implements learning.Rows.
func (r *logRows) Whole() bool { return r.missing == 0 }

// weighted is b with its rows' weights multiplied by that of the block.
func weighted(b *incremental.Block, weights map[string]float64, id string) *incremental.Block {
	if weights == nil {
		return b
	}
	out := *b
	out.Weights = make([]float64, b.Rows())
	for i := range out.Weights {
		out.Weights[i] = weights[id] * b.Weight(i)
	}
	return &out
}
