package intake

import (
	"context"
	"errors"
	"slices"
	"strings"

	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
	"streamd/retire"
)

// A block may come as sums (package summary): its rows were summed elsewhere. It has the id, the
// position and the event time of its rows, and the live set treats it like a block of rows. Only
// its records lie elsewhere (retire.Carrier). A topic may have both.
//
// What needs rows does without those of such a block: the served model is not judged by them, and
// a sample that needs more of them than came with the sums lacks them. A model in the
// coordinates of a basis needs all rows of a block, so it takes no sums.

// IsSums reports whether a record is a block that comes as sums.
func (d *Decoder) IsSums(r *kafka.Record) bool { return summary.Is(d.contentType(r)) }

// Sums makes a block from a record of sums. It checks all that depends on the record, the features
// and the configuration alone.
func (d *Decoder) Sums(ctx context.Context, cfg *config.Config, r *kafka.Record) (*summary.Block, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	d.summary.Memory = d.options.Limits.Numbers
	b, err := d.summary.Decode(ctx, r.Value)
	if err != nil {
		return nil, err
	}
	key, err := d.keyOf(r)
	if err != nil {
		return nil, err
	}
	switch keyed := cfg.Blocks.Unit == config.UnitKey; {
	case keyed && b.ID != retire.KeyID(string(key)):
		return nil, unusablef(kindKey, "the sums are of block %.100q, and the key of the record names another one", b.ID)
	case !keyed && b.ID != b.Position.String():
		return nil, unusablef(kindSums, "the sums are of block %.100q, and a position, %s, names blocks here (blocks.unit is %s)", b.ID, b.Position, cfg.Blocks.Unit)
	case !retire.ValidTime(b.Time):
		return nil, unusablef(kindTime, "the event time of the sums is %d ms since 1970, which is not in the years 1 to 9999", b.Time.UnixMilli())
	case len(b.Features) > d.options.Limits.Features:
		return nil, unusablef(kindSums, "the sums have %d features, the limit is %d (limits.features)", len(b.Features), d.options.Limits.Features)
	case b.Summary.Unlabelled() > 0 && !d.options.KeepUnlabelled:
		return nil, unusablef(kindSums, "%d rows of the sums have no label (blocks.unlabelled is %s)", b.Summary.Unlabelled(), cfg.Blocks.Unlabelled)
	}
	if d.features != nil && !slices.Equal(b.Features, *d.features) {
		return nil, unusablef(kindSums, "the features of the sums are %s, and those of the model are %s: sums have the model's features in its order",
			listed(b.Features), listed(*d.features))
	}
	if d.features == nil { // they would be the model's
		o := d.options
		o.Features = b.Features
		if _, err := wire.NewDecoder(o); err != nil {
			return nil, unusablef(kindSums, "the features of the sums cannot be those of the model: %w", err)
		}
	}
	return b, nil
}

// listed names some features.
func listed(names []string) string {
	text := strings.Join(names[:min(len(names), listedFeatures)], ", ")
	if len(names) > listedFeatures {
		text += ", …"
	}
	return text
}

// carry takes a record of sums in place of rows.
func (w *worker) carry(ctx context.Context, r *kafka.Record, z *result) error {
	b, err := w.Sums(ctx, w.Config, r)
	if bad := (*wire.Error)(nil); errors.As(err, &bad) && bad.Memory && w.admits == nil {
		return errNoRoom
	}
	if err != nil {
		return err
	}
	z.rows = int(b.Rows.Read)
	if w.rowsOnly {
		return unusablef(kindSums, "the block came as sums, and a model with a kernel (kernel.function is %s) needs its rows", w.Config.Kernel.Function)
	}
	if w.features == nil {
		z.features = b.Features
	}
	z.id, z.sums = b.ID, b
	z.Kept = w.Live.Target().Carry(b.Summary, b.Part)
	if b.Summary.Rows() > 0 {
		z.itemKey = w.Live.Target().ItemKey(z.id)
	}
	return nil
}

// carried is the entry of a block that came as sums.
func carried(cfg *config.Config, partition int, r *kafka.Record, b *summary.Block) retire.Entry {
	return retire.Entry{
		ID: b.ID, Position: b.Position, Last: b.Last, Time: b.Time, Rows: b.Summary.Rows(), Header: headerOf(cfg.Retire.Header, r),
		Carrier: retire.Carrier{Sums: true, Partition: int32(partition), Offset: r.Offset},
	}
}
