package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/ingest/kafka"
	"streamd/retire"
)

// Listing is the contents of a control topic at one moment, each list by partition and offset.
type Listing struct {
	InForce  []InForce
	Bases    []ListedBasis // by model
	Bad      []Bad
	Warnings []string // why daemons do not start with the topic, or will not
}

// InForce is a selector that no later record of its key takes back.
type InForce struct {
	Name      string // key of the record
	Partition int
	Offset    int64
	Time      time.Time // of the record
	Selector  retire.Selector
}

// ListedBasis is the basis of a model.
type ListedBasis struct {
	Model string
	Basis
}

// Bad is the latest record of a key, which cannot be read and changes nothing. It can also be a
// record without a key, or a batch of records that is too large.
type Bad struct {
	Name      string // key of the record; "" without one
	Partition int
	Offset    int64 // of the first record
	Records   int64
	Reason    error
}

// List reads a control topic once. Other than a Reader, it also lists a topic that daemons refuse,
// so that its records can be written again. A record batch of more than mostBytes is bad.
func List(ctx context.Context, cluster kafka.Cluster, topic string, mostBytes int, log zerolog.Logger) (*Listing, error) {
	reader, err := newLog(cluster, topic, mostBytes, log)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	bounds, err := reader.Bounds(ctx)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return nil, missing(topic)
	}
	if err != nil {
		return nil, err
	}
	type key struct {
		partition int
		name      string
	}
	l, inForce, bad, bases := &Listing{}, map[key]InForce{}, map[key]Bad{}, map[string]*parts{}
	selector := func(partition int, r *kafka.Record) (*retire.Selector, error) {
		if !IsBasisKey(string(r.Key)) {
			return selectorOf(r)
		}
		model, _, err := parseBasisKey(r.Key)
		if err != nil {
			return nil, err
		}
		if bases[model] == nil {
			bases[model] = newParts(model, mostBytes)
		}
		_, err = bases[model].put(partition, r.Key, r.Value)
		return nil, err
	}
	var mu sync.Mutex // of all of these: batches of several partitions come at one time
	full := slices.DeleteFunc(slices.Clone(bounds), func(r kafka.Range) bool { return r.From == r.To })
	_, err = reader.Read(ctx, full, func(_ context.Context, b *kafka.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		defer b.Release()
		for i := range b.Records {
			r, k := &b.Records[i], key{b.Partition, string(b.Records[i].Key)}
			selector, err := selector(b.Partition, r)
			switch delete(bad, k); {
			case errors.Is(err, errNoKey):
				l.Bad = append(l.Bad, Bad{"", b.Partition, r.Offset, 1, err})
			case err != nil:
				bad[k] = Bad{k.name, b.Partition, r.Offset, 1, err}
			case selector == nil:
				delete(inForce, k)
			default:
				inForce[k] = InForce{k.name, b.Partition, r.Offset, r.Time, *selector}
			}
		}
		for _, refused := range b.Refused {
			l.Bad = append(l.Bad, Bad{"", b.Partition, refused.First, refused.Records, refused.Reason})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, model := range slices.Sorted(maps.Keys(bases)) {
		if b := bases[model].basis(); b.Keys > 0 {
			l.Bases = append(l.Bases, ListedBasis{model, *b})
		}
	}
	for _, s := range inForce {
		l.InForce = append(l.InForce, s)
	}
	for _, b := range bad {
		l.Bad = append(l.Bad, b)
	}
	slices.SortFunc(l.InForce, func(a, b InForce) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	slices.SortFunc(l.Bad, func(a, b Bad) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	if kept, err := kafka.ReadRetention(ctx, cluster, topic); err == nil && kept.Deletes() {
		deletes := &DeletesError{Topic: topic, Retention: kept, Broker: cluster.Brokers[0]}
		l.Warnings = append(l.Warnings, deletes.Error())
	}
	for _, each := range bounds {
		if each.From > 0 {
			lost := &LostError{Topic: topic, Partition: each.Partition, Start: each.From, End: each.To}
			l.Warnings = append(l.Warnings, lost.Error())
		}
	}
	return l, nil
}

// Named finds the partitions in which a selector of a name is in force, or in which the latest
// record of the name is bad. A record of the name belongs into each of them. former is a selector
// in force, or nil.
func (l *Listing) Named(name string) (partitions []int, former *retire.Selector) {
	for i := range l.InForce {
		if in := &l.InForce[i]; in.Name == name {
			partitions, former = append(partitions, in.Partition), &in.Selector
		}
	}
	for _, bad := range l.Bad {
		if name != "" && bad.Name == name && !slices.Contains(partitions, bad.Partition) {
			partitions = append(partitions, bad.Partition)
		}
	}
	return partitions, former
}

// Value is the value of a record that puts a selector in force. The error says why a daemon whose
// retire.header is header could not read it.
func Value(s *retire.Selector, header string) ([]byte, error) {
	value, err := json.Marshal(map[string]*retire.Selector{"retire": s})
	if err != nil {
		return nil, err
	}
	_, err = changeOf(0, &kafka.Record{Key: []byte{}, Value: value}, header)
	return value, err
}
