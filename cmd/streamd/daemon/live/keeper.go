package live

import (
	"context"
	"fmt"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/ingest/summary"
	"streamd/kernels/basis"
	"streamd/retire/receipt"
)

// Target names the spaces that workers put blocks into: the features, the space in use,
// and the next one. It is immutable except for the levels of the sample, which any
// goroutine may read.
type Target struct {
	Features  *[]string    // their names; nil until they are fixed. Its identity identifies the feature space
	use, next *Coordinates // use is nil for the features; next is nil unless a space is being built
	sample    *sample.Sample
	keys      *itemKeys // nil without receipts
}

// ItemKey computes the key of an item that takes long, if the live set does not seem to have it. It
// is zero otherwise.
func (t *Target) ItemKey(id string) receipt.Hash {
	if t.keys == nil || !receipt.Keyed(id) || t.keys.seem(id) {
		return receipt.Hash{}
	}
	return t.keys.key.ItemKey(id)
}

// bases lists the coordinates beside the features.
func (t *Target) bases() (all []*Coordinates) {
	for _, c := range []*Coordinates{t.use, t.next} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// Bytes is the memory that Keep takes for a block, with its rows in the coordinates of
// bases.
func (t *Target) Bytes(rows, features, classes int) float64 {
	bytes := memory.Shape{Features: features, Classes: classes}.Summary()
	for _, c := range t.bases() {
		bytes += memory.Shape{Features: c.Size(), Classes: classes}.Summary() + 8*float64(c.Size())*float64(rows)
	}
	return bytes
}

// Kept is a block as it is stored: its summaries and its part of the sample.
type Kept struct {
	Summary *incremental.Summary // of the features
	lifted  []lifted
	part    *sample.Part // nil without a sample
}

// lifted is a block's summary in the coordinates of a basis.
type lifted struct {
	*Coordinates
	summary *incremental.Summary
}

// in is the summary in the given coordinates, or nil.
func (k *Kept) in(c *Coordinates) *incremental.Summary {
	if c == nil {
		return k.Summary
	}
	for _, z := range k.lifted {
		if z.Coordinates == c {
			return z.summary
		}
	}
	return nil
}

// Bytes is the size of the summaries and the part.
func (k *Kept) Bytes() (n int64) {
	if k.Summary != nil {
		n = int64(k.Summary.Bytes())
	}
	for _, z := range k.lifted {
		n += int64(z.summary.Bytes())
	}
	if k.part != nil {
		n += int64(k.part.Bytes())
	}
	return n
}

// Keeper summarises blocks for the spaces of a target. It belongs to one goroutine at a
// time. When the context ends it stops with the context's cause.
type Keeper struct {
	maker   summary.Maker // of sums of the features, as for a summary block
	inBasis incremental.Summariser
	lifter  basis.Lifter
}

// Keep summarises a block and takes its rows for the sample. A block of zero weight gets
// only the summary. Rows that cannot be summed in the coordinates in use are an error.
// Rows that cannot be summed in those of the next space are left out there, because the
// failure of another basis must not reject a block.
func (z *Keeper) Keep(ctx context.Context, b *incremental.Block, t *Target) (k Kept, err error) {
	if k.Summary, err = z.maker.Summarise(ctx, b); err != nil || k.Summary.Rows() == 0 {
		return k, err
	}
	for _, c := range t.bases() {
		s, err := z.Summary(ctx, b, c)
		switch {
		case err == nil:
			k.lifted = append(k.lifted, lifted{c, s})
		case c == t.use || ctx.Err() != nil:
			return Kept{}, err
		}
	}
	if t.sample != nil {
		k.part = z.Part(b, k.Summary, t)
	}
	return k, nil
}

// Carry is what is kept of a block that came as sums. Its rows for the sample are those that came
// with them, if they are of the sample's seed. A basis has nothing of it.
func (t *Target) Carry(s *incremental.Summary, p *sample.Part) Kept {
	k := Kept{Summary: s}
	if t.sample != nil && t.sample.Uses(p) {
		k.part = p.Above(t.sample.Levels())
	}
	return k
}

// Part takes the rows of a block for the sample.
func (z *Keeper) Part(b *incremental.Block, s *incremental.Summary, t *Target) *sample.Part {
	return z.maker.Part(b, s, t.sample.Levels())
}

// SummariseLike summarises a block with the features and classes of an earlier summary.
func (z *Keeper) SummariseLike(ctx context.Context, was *incremental.Summary, b *incremental.Block) (*incremental.Summary, error) {
	return z.maker.SummariseLike(ctx, was, b)
}

// Block returns b in the coordinates, valid until the next call. For the features it is b.
func (z *Keeper) Block(ctx context.Context, b *incremental.Block, c *Coordinates) (*incremental.Block, error) {
	return z.lifter.Block(ctx, b, c.plain())
}

// mustBlock is Block with a context that does not end.
func (z *Keeper) mustBlock(b *incremental.Block, c *Coordinates) *incremental.Block {
	in, err := z.Block(context.Background(), b, c)
	if err != nil {
		panic(err) // the only possible error is the context's
	}
	return in
}

// Summary summarises a block in the coordinates of a basis.
func (z *Keeper) Summary(ctx context.Context, b *incremental.Block, c *Coordinates) (*incremental.Summary, error) {
	in, err := z.Block(ctx, b, c)
	if err != nil {
		return nil, err
	}
	s, err := z.inBasis.SummariseContext(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("in the coordinates of the basis: %w", err)
	}
	return s, nil
}

// Check says whether rows that will be summed later, with others, can be summed in the
// coordinates in use. With a bounded kernel they always can.
func (z *Keeper) Check(ctx context.Context, b *incremental.Block, t *Target) error {
	if t.use == nil || t.use.Map.Kernel().Radial() {
		return nil
	}
	mapped, err := z.Block(ctx, b, t.use)
	if err != nil {
		return err
	}
	if bad := mapped.FirstBadRow(); bad != nil {
		return fmt.Errorf("in the coordinates of the basis: %w", bad)
	}
	return nil
}
