package wire

import (
	"fmt"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// builder makes a block of labels, weights and columns. The readers of all formats
// share one.
type builder struct {
	opts   Options
	want   features
	choice choice
	making making
	gaps   gaps
	gapped bool // some feature may have missing values
	texts  bool // some column is read as texts: see textsAt

	format     Format // of the payload
	unlabelled bool   // labels are ignored, and weights unless Options.WeighUnlabelled
	short      bool   // of memory: Limits.Numbers was met
	doubt      string // how the first doubtful payload was taken

	labels  *labels
	codes   []int32
	weights []float64
	columns []gram.Column
	ordered ordered
	block   incremental.Block
}

// begin starts a block. The memory of the last one is used again.
func (b *builder) begin(format Format) {
	b.format, b.short = format, false
	b.labels.reset()
	b.renewTexts()
	b.codes, b.weights, b.columns = b.codes[:0], b.weights[:0], b.columns[:0]
	b.block = incremental.Block{}
}

// finish makes the block of the columns and codes. The columns hold so many bytes of memory.
func (b *builder) finish(names []string, weights []float64, held int) error {
	columns := b.columns
	switch {
	case b.opts.Schema != nil:
		if err := b.made(held); err != nil {
			return err
		}
	case b.opts.AsTexts:
		b.block.Features, b.block.Columns = names, columns
	default:
		if b.gapped {
			var err *Error
			if names, err = b.fill(names, held); err != nil {
				return err
			}
			columns = b.gaps.columns
		}
		b.block.Features, b.block.Columns = names, columns
		if b.opts.Features == nil {
			b.block.Features, b.block.Columns = b.ordered.features(names, columns)
		}
	}
	b.block.Weights = weights
	if !b.unlabelled {
		b.block.Classes, b.block.Codes = b.labels.classes, b.codes
	}
	return nil
}

// weighted is whether rows must have weights.
func (b *builder) weighted() bool {
	return b.opts.Weight != "" && (!b.unlabelled || b.opts.WeighUnlabelled)
}

// doubtf notes how a payload is taken that could mean something else. The first note stays.
func (b *builder) doubtf(format string, args ...any) {
	if b.doubt == "" {
		b.doubt = fmt.Sprintf(format, args...)
	}
}

func (b *builder) fail(row int, column, format string, args ...any) *Error {
	return &Error{Format: b.format, Row: row, Column: column, Reason: fmt.Sprintf(format, args...), Memory: b.short}
}
