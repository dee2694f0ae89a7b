package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// The records of a request choose its blocks and no others, also among those that come later, and
// name no key.
func TestRecordsOfBlocks(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 77))
		unit := []config.Unit{config.UnitMessage, config.UnitKey, config.UnitOffsets, config.UnitTime}[seed%4]
		var all, chosen []retire.Entry
		for partition := range 3 {
			for next := int64(r.IntN(5)); next < 300; next += int64(r.IntN(3)) {
				e := retire.Entry{Position: incremental.Position{Topic: "orders", Partition: partition, Offset: next}, Last: next}
				switch e.ID = e.Position.String(); unit {
				case config.UnitKey:
					e.ID = retire.KeyID(fmt.Sprint("name-", r.IntN(40))) // of several values the last is live
				case config.UnitOffsets:
					e.Last = next + int64(r.IntN(10))
				case config.UnitTime: // it lies within others
					e.Last = next + int64(r.IntN(100))
				}
				all, next = append(all, e), next+1
				if unit == config.UnitOffsets {
					next = e.Last + 1
				}
				if r.IntN(3) == 0 {
					chosen = append(chosen, e)
				}
			}
		}
		r.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		got := map[string]bool{}
		for i, record := range RecordsOf("request", SelectorsOf(slices.Clone(chosen), unit)) {
			c, err := changeOf(record.Partition, &kafka.Record{Key: record.Key, Value: record.Value}, "")
			if err != nil || len(c.Selection.IDs) > 0 && unit != config.UnitTime {
				t.Fatalf("seed %d: record %d is %+v, %v", seed, i, c, err)
			}
			meets := c.Selection.Meets()
			for i := range all {
				if meets(&all[i]) {
					got[all[i].Position.String()] = true
				}
			}
		}
		want := map[string]bool{}
		for i := range chosen {
			want[chosen[i].Position.String()] = true
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d blocks are chosen, want %d", seed, len(got), len(want))
		}
		for id := range want {
			if !got[id] {
				t.Errorf("seed %d: %s is not chosen", seed, id)
			}
		}
	}
}

// A request of many blocks is written in records below Kafka's default limit, under names of their
// own.
func TestManyRecords(t *testing.T) {
	var blocks []retire.Entry
	for i := range int64(2*mostNamed + 1) {
		p := incremental.Position{Topic: "orders", Partition: 11, Offset: 2 * (1e15 + i)}
		blocks = append(blocks, retire.Entry{ID: p.String(), Position: p, Last: p.Offset})
	}
	for _, unit := range []config.Unit{config.UnitMessage, config.UnitTime} {
		names := map[string]bool{}
		for _, r := range RecordsOf("request", SelectorsOf(blocks, unit)) {
			names[string(r.Key)] = true
			if len(r.Value) > 900_000 {
				t.Errorf("%s: a record of %d bytes", unit, len(r.Value))
			}
		}
		if len(names) != 3 {
			t.Errorf("%s: records %v", unit, names)
		}
	}
}
