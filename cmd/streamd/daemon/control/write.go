package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// Patience bounds the time that a record takes to the brokers, and back to a reader.
const Patience = 20 * time.Second

// Record is a record to write. A value of nil is a tombstone.
type Record struct {
	Partition  int
	Key, Value []byte
}

// Write writes records, and returns when the brokers have them. The topic is compacted, and later
// records of a key take the place of earlier ones.
func Write(ctx context.Context, cluster kafka.Cluster, topic string, records []Record, log zerolog.Logger) error {
	producer, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster, Topic: topic}, log)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, r := range records {
		if err := producer.Write(ctx, r.Partition, r.Key, r.Value, nil, time.Time{}); err != nil {
			return err
		}
	}
	return producer.Flush(ctx)
}

// mostNamed bounds the names of a record, so that its value is below Kafka's limit of a message.
const mostNamed = 10_000

// SelectorsOf are the selectors that choose some blocks and no others, whatever comes later. They
// have no key in them: a message that a key names is the only record at its position. Blocks of a
// period of time may lie within each other, so their ids name them, which are positions.
func SelectorsOf(blocks []retire.Entry, unit config.Unit) (all []retire.Selector) {
	if unit == config.UnitTime {
		for few := range slices.Chunk(blocks, mostNamed) {
			s := retire.Selector{}
			for i := range few {
				s.IDs = append(s.IDs, few[i].ID)
			}
			all = append(all, s)
		}
		return all
	}
	var ranges []retire.Range
	for i := range blocks {
		p := blocks[i].Position
		ranges = append(ranges, retire.Range{Topic: p.Topic, Partition: p.Partition, First: p.Offset, Last: max(p.Offset, blocks[i].Last)})
	}
	for few := range slices.Chunk(joined(ranges), mostNamed) {
		all = append(all, retire.Selector{Positions: few})
	}
	return all
}

// joined joins ranges that follow each other without a gap.
func joined(ranges []retire.Range) (all []retire.Range) {
	slices.SortFunc(ranges, retire.Range.Compare)
	for _, r := range ranges {
		if n := len(all) - 1; n >= 0 && all[n].Topic == r.Topic && all[n].Partition == r.Partition && r.First <= all[n].Last+1 {
			all[n].Last = max(all[n].Last, r.Last)
		} else {
			all = append(all, r)
		}
	}
	return all
}

// RecordsOf are records that put selectors in force, under names that begin with name.
func RecordsOf(name string, selectors []retire.Selector) (records []Record) {
	for i := range selectors {
		value, err := Value(&selectors[i], "")
		if err != nil {
			panic(err) // names and numbers of blocks
		}
		key := name
		if i > 0 {
			key = fmt.Sprintf("%s-%d", name, i)
		}
		records = append(records, Record{Key: []byte(key), Value: value})
	}
	return records
}
