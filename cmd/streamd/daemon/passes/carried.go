package passes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/retire"
)

// Carried reads the records of blocks again that came as sums, and calls visit for each block, one
// at a time. A block is unread if its record has another block by now, or is gone. It waits for
// other passes and ends like Pass.
func (a *Log) Carried(ctx context.Context, blocks []retire.Entry, visit func(retire.Entry, *summary.Block) error) (unread []live.Unread, err error) {
	fixed, end, err := a.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if fixed == nil {
		return nil, nil // no block is live any more
	}
	d, err := intake.NewDecoder(a.Config, a.Decoding, fixed, 0)
	if err != nil {
		return nil, err
	}
	wanted := map[retire.Carrier]retire.Entry{}
	var ranges []kafka.Range
	for _, e := range blocks {
		wanted[e.Carrier] = e
		partition, first, last := e.Records()
		ranges = append(ranges, kafka.Range{Partition: partition, From: first, To: last + 1})
	}
	var mu sync.Mutex // partitions are read side by side
	lost, err := a.log.Read(ctx, ranges, func(ctx context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		defer b.Release()
		for i := range b.Records {
			r := &b.Records[i]
			at := retire.Carrier{Sums: true, Partition: int32(b.Partition), Offset: r.Offset}
			e, is := wanted[at]
			if !is {
				continue
			}
			delete(wanted, at)
			sums, err := carried(ctx, d, a, r, &e)
			if err != nil {
				unread = append(unread, live.Unread{Entry: e, Reason: err})
				continue
			}
			if err := visit(e, sums); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for at, e := range wanted {
		why := notThere(at.Offset)
		for _, gone := range lost {
			if gone.Partition == int(at.Partition) && gone.From <= at.Offset && at.Offset < gone.To {
				why = errors.New(gone.String())
			}
		}
		unread = append(unread, live.Unread{Entry: e, Reason: why})
	}
	return a.StillLive(ctx, unread)
}

// carried is the block of a record, if it is that of the entry.
func carried(ctx context.Context, d *intake.Decoder, a *Log, r *kafka.Record, e *retire.Entry) (*summary.Block, error) {
	if !d.IsSums(r) {
		return nil, fmt.Errorf("the record at offset %d has no sums", r.Offset)
	}
	b, err := d.Sums(ctx, a.Config, r)
	if err != nil {
		return nil, err
	}
	if b.ID != e.ID || b.Position != e.Position || b.Last != e.Last || !b.Time.Equal(e.Time) || b.Summary.Rows() != e.Rows {
		return nil, fmt.Errorf("the record at offset %d is of block %.100s of %d rows, as it was not", r.Offset, b.ID, b.Summary.Rows())
	}
	return b, nil
}
