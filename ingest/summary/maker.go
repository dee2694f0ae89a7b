package summary

import (
	"context"

	"streamd/incremental"
	"streamd/incremental/sample"
)

// Maker sums the rows of blocks, for the daemon and for records. It belongs to one goroutine at a
// time.
type Maker struct {
	summariser incremental.Summariser
	taker      sample.Taker
}

// Summarise sums the rows of a block (incremental.Summariser.SummariseContext).
func (m *Maker) Summarise(ctx context.Context, b *incremental.Block) (*incremental.Summary, error) {
	return m.summariser.SummariseContext(ctx, b)
}

// SummariseLike sums them about the origin of an earlier summary.
func (m *Maker) SummariseLike(ctx context.Context, was *incremental.Summary, b *incremental.Block) (*incremental.Summary, error) {
	return m.summariser.SummariseLike(ctx, was, b)
}

// Part takes the rows of a block at the levels and above. s is the block's summary.
func (m *Maker) Part(b *incremental.Block, s *incremental.Summary, levels *sample.Levels) *sample.Part {
	return m.taker.Take(b, s.LabelledDigest(), s.Totals(), levels)
}

// Make sums the rows of b into the block, which has the rest already, Rows.Rejected included. Nil
// levels take no rows for the sample. b is not kept.
func (m *Maker) Make(ctx context.Context, to *Block, b *incremental.Block, levels *sample.Levels) error {
	s, err := m.Summarise(ctx, b)
	if err != nil {
		return err
	}
	to.Features, to.Summary, to.Part = b.FeatureNames(), s, nil
	to.Rows.ZeroWeight = int64(b.Rows()) - s.Rows()
	to.Rows.Read = int64(b.Rows()) + to.Rows.Rejected
	if levels != nil && s.Rows() > 0 {
		to.Part = m.Part(b, s, levels)
	}
	return nil
}
