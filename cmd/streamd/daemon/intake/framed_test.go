package intake

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// asked are schemas that note the ids that are waited for. Some are unknown, and others are never
// answered.
type asked struct {
	wire.Schemas
	ids []uint32
}

const unknownID, silentID = 7, 9

func (s *asked) Await(ctx context.Context, id uint32) (*registry.Schema, error) {
	switch s.ids = append(s.ids, id); id {
	case unknownID:
		return nil, &registry.BadIDError{}
	case silentID:
		return nil, errSilent
	}
	return &registry.Schema{}, nil
}

var errSilent = errors.New("the registry does not answer")

// A batch waits for the schemas of its values, and of its keys where these are read, and for each
// that follows itself once. What has no frame waits for nothing.
func TestAwait(t *testing.T) {
	framed := func(id uint32) []byte { return append(binary.BigEndian.AppendUint32([]byte{0}, id), "rows"...) }
	batch := func(ids ...[2]uint32) *kafka.Batch { // of key and value; 0: there is no frame
		b := &kafka.Batch{}
		for _, id := range ids {
			r := kafka.Record{Key: []byte("a key"), Value: []byte("a value without a frame")}
			if id[0] > 0 {
				r.Key = framed(id[0])
			}
			if id[1] > 0 {
				r.Value = framed(id[1])
			}
			b.Records = append(b.Records, r)
		}
		return b
	}
	for _, c := range []struct {
		name string
		of   *kafka.Batch
		keys bool
		want []uint32
		err  error
	}{
		{"no frames", batch([2]uint32{}, [2]uint32{}), true, nil, nil},
		{"values alone", batch([2]uint32{1, 2}, [2]uint32{1, 2}, [2]uint32{1, 3}, [2]uint32{1, 2}), false, []uint32{2, 3, 2}, nil},
		{"keys, too", batch([2]uint32{1, 2}, [2]uint32{1, 2}, [2]uint32{4, 2}), true, []uint32{2, 1, 4}, nil},
		{"between others", batch([2]uint32{0, 2}, [2]uint32{}, [2]uint32{0, 2}), false, []uint32{2}, nil},
		{"an unknown id", batch([2]uint32{0, unknownID}, [2]uint32{0, 2}), false, []uint32{unknownID, 2}, nil},
		{"no answer", batch([2]uint32{0, 2}, [2]uint32{0, silentID}, [2]uint32{0, 3}), false, []uint32{2, silentID}, errSilent},
		{"no answer for a key", batch([2]uint32{silentID, 2}, [2]uint32{0, 3}), true, []uint32{2, silentID}, errSilent},
	} {
		s := &asked{}
		if err := Await(t.Context(), wire.Options{Schemas: s}, c.of, c.keys); !errors.Is(err, c.err) || !slices.Equal(s.ids, c.want) {
			t.Errorf("%s: waited for %v, want %v: %v", c.name, s.ids, c.want, err)
		}
	}
}
