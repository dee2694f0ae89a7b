package kafka

import "testing"

// Batches of neighbouring records of an array do not share memory once they are filled again.
func TestBatchesOfOneArray(t *testing.T) {
	records := []Record{{Offset: 1}, {Offset: 2}}
	first, second := NewBatch(0, records[:1], Saved{Next: 2}), NewBatch(0, records[1:], Saved{Next: 3})
	if again := append(first.Records[:0], Record{Offset: 7}, Record{Offset: 8}); again[1].Offset != 8 || second.Records[0].Offset != 2 {
		t.Errorf("the second batch has %v", second.Records)
	}
}
