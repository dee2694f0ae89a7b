package intake

import (
	"context"
	"errors"

	"streamd/config"
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
func (p *pool) Await(ctx context.Context, b *kafka.Batch) error {
	return Await(ctx, p.Decoding, b, ReadsKeys(p.Config))
}

// ReadsKeys reports whether the keys of records are read: an envelope shortens them.
func ReadsKeys(cfg *config.Config) bool {
	return cfg.Blocks.Unit == config.UnitKey && kindOfEnvelopes(cfg).Keys()
}

// Await waits until the registry of a decoding has answered for the schemas of all records of a
// batch, and of their keys. Its error is that of ctx.
func Await(ctx context.Context, decoding wire.Options, b *kafka.Batch, keys bool) error {
	schemas, ok := decoding.Schemas.(awaited)
	if !ok {
		return nil
	}
	var last [2]struct { // of values and of keys
		id   uint32
		some bool
	}
	await := func(of int, framed []byte) error {
		id, _, ok := registry.Unframe(framed)
		if l := &last[of]; !ok || l.some && id == l.id {
			return nil
		}
		_, err := schemas.Await(ctx, id)
		if bad := (*registry.BadIDError)(nil); err != nil && !errors.As(err, &bad) {
			return err
		}
		last[of].id, last[of].some = id, true
		return nil
	}
	for i := range b.Records {
		if err := await(0, b.Records[i].Value); err != nil {
			return err
		}
		if keys {
			if err := await(1, b.Records[i].Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// IsAway reports whether a record cannot be decoded now because a registry does not answer.
func IsAway(err error) bool {
	if err == nil { // and nothing is allocated
		return false
	}
	var away *registry.AwayError
	return errors.As(err, &away)
}
