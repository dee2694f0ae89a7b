package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/ingest/kafka"
)

// Settings configure a Reader.
type Settings struct {
	Cluster kafka.Cluster
	Topic   string
	Header  string // that selectors may name the values of; "": none
	Log     zerolog.Logger
	// MaxMessageBytes bounds a record batch, also after decompression. A larger one is a bad
	// record.
	MaxMessageBytes int
	Saved           map[int]int64 // offset of each partition that the saved state follows, if any

	// Take receives the changes of a stretch of a partition, in order. Then everything of the
	// partition below next has been received. Calls come one at a time. An error ends Run.
	Take func(ctx context.Context, partition int, next int64, changes []Change) error
}

// Reader reads the control topic from its beginning and follows it.
type Reader struct {
	Settings
	log  *kafka.RangeReader
	next map[int]int64 // below it everything has been received
	mu   sync.Mutex    // held while a batch is taken
}

const (
	// fetchBytes is the size of an answer, unless a record batch is larger.
	fetchBytes = 1 << 20
	// between is the time between two looks for new records.
	between = 500 * time.Millisecond
	// lostLooks is how many looks in a row must find records lost. A broker that has just
	// become leader may for a moment not know where the log ends.
	lostLooks = 4
)

// NewReader makes a reader, which the caller closes. It does not connect.
func NewReader(s Settings) (*Reader, error) {
	log, err := kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: s.Cluster, Topic: s.Topic, Partitions: 1,
		Fetching: kafka.Fetching{FetchBytes: fetchBytes, MaxMessageBytes: s.MaxMessageBytes, BufferBytes: 2 * fetchBytes, TotalBytes: 4 * fetchBytes},
	}, s.Log)
	if err != nil {
		return nil, fmt.Errorf("retire.topic: %w", err)
	}
	return &Reader{Settings: s, log: log, next: map[int]int64{}}, nil
}

// Close closes the connections. Run must not be running.
func (r *Reader) Close() { r.log.Close() }

// A LostError says that the topic lacks records that the saved state follows.
type LostError struct {
	Topic     string
	Partition int
	Saved     int64 // the state follows the records below
	End       int64 // offset after the last record; 0: there are none
}

func (e *LostError) Error() string {
	has := fmt.Sprintf("ends at offset %d", e.End)
	if e.End == 0 {
		has = "has no records"
	}
	return fmt.Sprintf("retire.topic: %s/%d %s, but the snapshot follows those below %d: "+
		"the topic was deleted and made anew, or has lost its end, and blocks that must stay retired would come back; "+
		"write its records again, to a topic of another name", e.Topic, e.Partition, has, e.Saved)
}

// Run reads the topic and follows it until ctx ends, which is no error. caughtUp is called
// once, when everything that the topic had at the start has been taken. Run ends with a
// *LostError, or with an error of Take. Trouble with brokers, and a topic that does not exist,
// are logged and tried again.
func (r *Reader) Run(ctx context.Context, caughtUp func()) error {
	var told string // the trouble that the log has
	looks := 0      // so many in a row have found records lost
	for first := true; ; {
		err := r.sweep(ctx)
		untaken, lost := (*takeError)(nil), (*LostError)(nil)
		if errors.As(err, &lost) {
			looks++
		} else {
			looks = 0
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &untaken):
			return untaken.error
		case looks == lostLooks:
			return lost
		case errors.Is(err, kafkago.UnknownTopicOrPartition):
			err = fmt.Errorf("there is no topic %s: make it, with cleanup.policy=compact", r.Topic)
		}
		switch {
		case err != nil && err.Error() != told:
			told = err.Error()
			r.Log.Warn().Err(err).Str("topic", r.Topic).Msg("the control topic cannot be read; trying again")
		case err == nil && told != "":
			told = ""
			r.Log.Info().Str("topic", r.Topic).Msg("the control topic can be read")
		}
		if err == nil && first {
			first = false
			caughtUp()
		}
		select {
		case <-time.After(between):
		case <-ctx.Done():
			return nil
		}
	}
}

// takeError is an error of Take.
type takeError struct{ error }

// sweep takes everything that the topic has now. Records that are deleted meanwhile are
// noticed by the next sweep.
func (r *Reader) sweep(ctx context.Context) error {
	log, err := r.log.Log(ctx)
	if err != nil {
		return err
	}
	if err := r.compare(log); err != nil {
		return err
	}
	var fresh []kafka.Range
	for _, each := range log {
		next := r.next[each.Partition]
		if next < each.From {
			r.Log.Error().Str("topic", r.Topic).Int("partition", each.Partition).Int64("from", next).Int64("to", each.From-1).
				Msg("offsets of the control topic were deleted: selections in them are not in force; the topic should have cleanup.policy=compact")
			next = each.From
		}
		if next < each.To {
			fresh = append(fresh, kafka.Range{Partition: each.Partition, From: next, To: each.To})
		}
	}
	_, err = r.log.Read(ctx, fresh, r.take)
	return err
}

// compare returns a LostError if the log ends before a saved offset, or before one that has
// been read.
func (r *Reader) compare(log []kafka.Range) error {
	ends := map[int]int64{}
	for _, each := range log {
		ends[each.Partition] = each.To
	}
	for _, known := range []map[int]int64{r.Saved, r.next} {
		for partition, next := range known {
			if end := ends[partition]; end < next {
				return &LostError{Topic: r.Topic, Partition: partition, Saved: next, End: end}
			}
		}
	}
	return nil
}

// take takes a batch.
func (r *Reader) take(ctx context.Context, b *kafka.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []Change
	for i := range b.Records {
		c, err := changeOf(b.Partition, &b.Records[i], r.Header)
		if err != nil {
			r.refused(b.Partition, b.Records[i].Offset, 1, err)
			continue
		}
		changes = append(changes, c)
	}
	for _, each := range b.Refused {
		r.refused(b.Partition, each.First, each.Records, each.Reason)
	}
	partition, next := b.Partition, b.Position.Next
	if err := r.Take(ctx, partition, next, changes); err != nil {
		return &takeError{err}
	}
	r.next[partition] = next
	b.Release()
	return nil
}

// refused logs records that cannot be read. Their keys may be names of persons.
func (r *Reader) refused(partition int, offset, records int64, why error) {
	r.Log.Error().Err(why).Str("topic", r.Topic).Int("partition", partition).Int64("offset", offset).Int64("records", records).
		Msg("a record of the control topic cannot be read and changes nothing: the former one of its key stays in force")
}
