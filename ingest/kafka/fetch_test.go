package kafka

import (
	"context"
	"testing"

	"streamd/ingest/kafka/protocol"
)

// In a log of equal batches only the first response, asked for before their size is known,
// ends within a batch. Batches are asked for one at a time where two do not fit.
func TestWholeBatchesAskedFor(t *testing.T) {
	batch := smallBatch(100)
	const batches = 40
	var log []byte
	for i := range batches {
		log = append(log, at(int64(100*i), batch)...)
	}
	size := len(batch)
	for _, test := range []struct{ room, requests, twice int }{
		{size/2 + 1, batches, 0},
		{2*size - 1, batches, size - 1},
		{2 * size, batches / 2, 0},
		{3*size + 1, 1 + 12 + 1, 1},
		{10*size + size/2, 4, size / 2},
		{2 * len(log), 1, 0},
	} {
		p := testPartition()
		p.cfg.FetchBytes = test.room
		position, requests, sent := int64(0), 0, 0
		for position < 100*batches {
			ask, reserved, err := p.reserve(context.Background(), test.room)
			if err != nil || reserved < int64(p.largest) {
				t.Fatalf("%d bytes are reserved for batches of %d (%v)", reserved, p.largest, err)
			}
			p.budget.release(reserved)
			rest := log[int(position)/100*size:]
			answer := rest[:min(len(rest), max(ask, size))] // a broker sends the first one whole
			_, end, err := splitAll(t, p, &protocol.Fetched{Records: answer}, position)
			if err != nil || end.Next <= position {
				t.Fatalf("from %d to %d: %v", position, end.Next, err)
			}
			position = end.Next
			requests++
			sent += len(answer)
		}
		if requests != test.requests || sent != len(log)+test.twice {
			t.Errorf("%d bytes at a time, %d batches of %d bytes took %d requests, want %d, and %d bytes came twice, want %d",
				test.room, batches, size, requests, test.requests, sent-len(log), test.twice)
		}
	}
}
