package intake

import (
	"context"
	"errors"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// awaited are schemas that can be waited for, as those of registry.Client can.
type awaited interface {
	Await(ctx context.Context, id uint32) (*registry.Schema, error)
}

// Await waits until the registry has answered for the schemas of all records of a batch, so that
// nothing behind it has to wait: the loop is for all partitions. That an id is unknown is an
// answer. The error is that of ctx.
func (p *pool) Await(ctx context.Context, b *kafka.Batch) error { return Await(ctx, p.Decoding, b) }

// Await waits until the registry of a decoding has answered for the schemas of all records of a
// batch. Its error is that of ctx.
func Await(ctx context.Context, decoding wire.Options, b *kafka.Batch) error {
	schemas, ok := decoding.Schemas.(awaited)
	if !ok {
		return nil
	}
	last, some := uint32(0), false
	for i := range b.Records {
		id, _, framed := registry.Unframe(b.Records[i].Value)
		if !framed || some && id == last {
			continue
		}
		_, err := schemas.Await(ctx, id)
		if bad := (*registry.BadIDError)(nil); err != nil && !errors.As(err, &bad) {
			return err
		}
		last, some = id, true
	}
	return nil
}

// IsAway reports whether a record cannot be decoded now because a registry does not answer.
func IsAway(err error) bool {
	var away *registry.AwayError
	return errors.As(err, &away)
}
