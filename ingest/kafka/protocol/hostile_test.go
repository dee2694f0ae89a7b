package protocol

import (
	"encoding/binary"
	"runtime"
	"testing"
)

// Counts as large as the bytes that follow them, which kmsg would allocate by, are refused
// and take little memory.
func TestHostileCounts(t *testing.T) {
	const padding = 1 << 20
	// claim pads a message and sets its count at an offset.
	claim := func(at int, message []byte) []byte {
		message = append(message, make([]byte, padding)...)
		binary.BigEndian.PutUint32(message[at:], uint32(len(message)-at-4))
		return message
	}
	join, produce, fetch := joinAnswer(2), produceResponse(8, 0), fetchResponse(4, 0)
	readJoin := func(b []byte) bool { _, err := readJoinAnswer(b, 2, "orders"); return err == nil }
	readProduce := func(b []byte) bool { _, err := parseProduce(b, 8); return err == nil }
	readFetch := func(b []byte) bool { _, err := parseFetch(b, 0, 4, "orders", 3); return err == nil }
	const name = 2 + len("orders")
	for _, test := range []struct {
		name string
		body []byte
		read func([]byte) bool
	}{
		{"members", claim(len(join)-4, join), readJoin},
		{"topics of a member", claim(2, subscription(0)), func(b []byte) bool { return subscribed(b) != nil }},
		{"partitions of a member", claim(2+4+name, assignment(map[string][]int32{"orders": nil})), func(b []byte) bool {
			_, err := assigned(b, "orders")
			return err == nil
		}},
		{"topics written", claim(0, produce), readProduce},
		{"partitions written", claim(4+name, produce), readProduce},
		{"errors of records", claim(4+name+4+4+2+8+8+8, produce), readProduce},
		{"topics fetched", claim(4, fetch), readFetch},
		{"partitions fetched", claim(4+4+name, fetch), readFetch},
		{"aborted transactions", claim(4+4+name+4+4+2+8+8, fetch), readFetch},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		accepted := test.read(test.body)
		runtime.ReadMemStats(&after)
		if accepted {
			t.Errorf("%s: accepted", test.name)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > padding/8 {
			t.Errorf("%s: %d bytes were allocated for %d", test.name, took, len(test.body))
		}
	}
}
