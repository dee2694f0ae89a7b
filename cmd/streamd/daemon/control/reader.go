package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
)

// Settings configure a Reader.
type Settings struct {
	Cluster kafka.Cluster
	Topic   string
	Header  string // that selectors may name the values of; "": none
	Keyed   bool   // keys name blocks
	Log     zerolog.Logger
	// MaxMessageBytes bounds a record batch, also after decompression. A larger one is a bad
	// record.
	MaxMessageBytes int
	Model           string        // whose basis is read; those of other models are passed over
	MaxBasisBytes   int           // of a basis, rounded up to whole parts
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

	inspected bool // the topic is made as it must be, or nobody can say
	silent    int  // so many looks in a row have not learned how the topic is made
	astray    *astray
	parts     *parts      // of the basis
	unread    *LostError  // records that were deleted before they could be read, or nil
	shortened atomic.Bool // see Shortened

	look       chan struct{}      // see Look
	trouble    atomic.Value       // see Trouble; a string
	bad        map[keyIn]struct{} // keys whose latest record cannot be read
	unreadable atomic.Int64       // see Unreadable
}

const (
	// fetchBytes is the size of an answer, unless a record batch is larger.
	fetchBytes = 1 << 20
	// between is the time between two looks for new records.
	between = 500 * time.Millisecond
	// lostLooks is how many looks in a row must find records lost, or a configuration that
	// deletes them. A broker that has just become leader may for a moment not know where the
	// log ends, or how the topic was altered.
	lostLooks = 4
	// silentLooks is how often the topic's configuration is asked for, if the log itself can
	// be read.
	silentLooks = 10
)

// NewReader makes a reader, which the caller closes. It does not connect.
func NewReader(s Settings) (*Reader, error) {
	log, err := newLog(s.Cluster, s.Topic, s.MaxMessageBytes, s.Log)
	if err != nil {
		return nil, err
	}
	return &Reader{Settings: s, log: log, next: map[int]int64{}, look: make(chan struct{}, 1), astray: newAstray(), parts: newParts(s.Model, s.MaxBasisBytes), bad: map[keyIn]struct{}{}}, nil
}

// newLog makes a reader of the records of a control topic.
func newLog(cluster kafka.Cluster, topic string, mostBytes int, log zerolog.Logger) (*kafka.RangeReader, error) {
	r, err := kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: cluster, Topic: topic, Partitions: 1,
		Fetching: kafka.Fetching{FetchBytes: fetchBytes, MaxMessageBytes: mostBytes, BufferBytes: 2 * fetchBytes, TotalBytes: 4 * fetchBytes},
	}, log)
	if err != nil {
		return nil, fmt.Errorf("retire.topic: %w", err)
	}
	return r, nil
}

// missing is the error for a control topic that does not exist.
func missing(topic string) error {
	return fmt.Errorf("there is no topic %s: make it, with one partition and cleanup.policy=compact", topic)
}

// Close closes the connections. Run must not be running.
func (r *Reader) Close() { r.log.Close() }

// Shortened reports whether records were deleted after they had been read. They count until
// the process ends, and the next start ends with a LostError. It may be called at any time.
func (r *Reader) Shortened() bool { return r.shortened.Load() }

// Trouble says why the topic cannot be read now; "": it can. It may be called at any time.
func (r *Reader) Trouble() string {
	why, _ := r.trouble.Load().(string)
	return why
}

// Unreadable is the number of keys whose latest record cannot be read, so that it changes nothing.
// A good record of the key ends that. A batch that is too large counts as one key, and so do the
// records of a partition that have no key. It may be called at any time.
func (r *Reader) Unreadable() int { return int(r.unreadable.Load()) }

// A LostError says that the topic lacks records: those at its beginning, or some that the
// saved state follows.
type LostError struct {
	Topic     string
	Partition int
	Saved     int64 // the state follows the records below; 0: the beginning is lost, whatever it follows
	Start     int64 // first offset of the log
	End       int64 // offset after the last record; Start: there are none
}

func (e *LostError) Error() string {
	const mend = "blocks that must stay retired would come back; " +
		"write its records again, to a topic of another name with cleanup.policy=compact, and name that one in retire.topic"
	if e.Start > 0 {
		has := fmt.Sprintf("begins at offset %d", e.Start)
		if e.End == e.Start {
			has = fmt.Sprintf("has no records below offset %d any more", e.End)
		}
		return fmt.Sprintf("retire.topic: %s/%d %s: earlier records were deleted by retention "+
			"(cleanup.policy=delete with retention.ms or retention.bytes) or by hand (kafka-delete-records.sh), and %s", e.Topic, e.Partition, has, mend)
	}
	has := fmt.Sprintf("ends at offset %d", e.End)
	if e.End == 0 {
		has = "has no records"
	}
	return fmt.Sprintf("retire.topic: %s/%d %s, but the snapshot follows those below %d: "+
		"the topic was deleted and made anew, or has lost its end, and %s", e.Topic, e.Partition, has, e.Saved, mend)
}

// A DeletesError says that the brokers delete records of the topic by time or size.
type DeletesError struct {
	Topic     string
	Retention kafka.Retention
	Broker    string // for the command that mends it
}

func (e *DeletesError) Error() string {
	var when []string
	if e.Retention.After > 0 {
		when = append(when, fmt.Sprintf("after %s (retention.ms)", e.Retention.After))
	}
	if e.Retention.Bytes > 0 {
		when = append(when, fmt.Sprintf("beyond %d bytes of a partition (retention.bytes)", e.Retention.Bytes))
	}
	return fmt.Sprintf("retire.topic: %s has cleanup.policy=%s, which deletes its records %s, and blocks that must stay retired would come back; "+
		"have it compacted only: kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact",
		e.Topic, e.Retention.Policy, strings.Join(when, " and "), e.Broker, e.Topic)
}

// Run reads the topic and follows it until ctx ends, which is no error. caughtUp is called
// once, when everything that the topic had at the start has been taken. Run ends with a
// *DeletesError or a *LostError, or with an error of Take. Trouble with brokers, and a topic
// that does not exist, are logged and tried again.
func (r *Reader) Run(ctx context.Context, caughtUp func()) error {
	var told string // the trouble that the log has
	looks := 0      // so many in a row have found records lost, or about to be
	for first := true; ; {
		err := r.sweep(ctx)
		untaken, lost, deletes := (*takeError)(nil), (*LostError)(nil), (*DeletesError)(nil)
		if errors.As(err, &lost) || errors.As(err, &deletes) {
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
			return err
		case errors.Is(err, kafkago.UnknownTopicOrPartition):
			err = missing(r.Topic)
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		r.trouble.Store(why)
		switch {
		case err != nil && why != told:
			told = why
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
		case <-r.look:
		case <-ctx.Done():
			return nil
		}
	}
}

// Look has Run look for new records now. It may be called at any time.
func (r *Reader) Look() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// takeError is an error of Take.
type takeError struct{ error }

// sweep takes everything that the topic has now.
func (r *Reader) sweep(ctx context.Context) error {
	if r.unread != nil {
		return r.unread
	}
	log, err := r.log.Bounds(ctx)
	if err != nil {
		return err
	}
	if err := r.inspect(ctx, len(log)); err != nil {
		return err
	}
	if err := r.compare(log); err != nil {
		return err
	}
	var fresh []kafka.Range
	for _, each := range log {
		if next := r.next[each.Partition]; next < each.To {
			fresh = append(fresh, kafka.Range{Partition: each.Partition, From: next, To: each.To})
		}
	}
	lost, err := r.log.Read(ctx, fresh, r.take)
	if err != nil {
		return err
	}
	for _, each := range lost {
		if each.From < each.LogStart {
			r.unread = &LostError{Topic: r.Topic, Partition: each.Partition, Start: each.LogStart, End: each.LogEnd}
			return r.unread
		}
	}
	for _, m := range r.astray.misses() {
		r.Log.Warn().Str("topic", r.Topic).Int("partition", m.partition).Int64("offset", m.offset).Int("in_partition", m.in).
			Msg("a record of the control topic takes nothing back: the selector of its key is in another partition, and stays in force; write the record to that partition")
	}
	return nil
}

// inspect looks once at how the topic is made.
func (r *Reader) inspect(ctx context.Context, partitions int) error {
	if r.inspected {
		return nil
	}
	got, err := kafka.ReadRetention(ctx, r.Cluster, r.Topic)
	switch {
	case err == nil && got.Deletes():
		return &DeletesError{Topic: r.Topic, Retention: got, Broker: r.Cluster.Brokers[0]}
	case err == nil:
	case ctx.Err() != nil, errors.Is(err, kafkago.UnknownTopicOrPartition):
		return err
	default:
		forbidden := errors.Is(err, kafkago.TopicAuthorizationFailed) || errors.Is(err, kafkago.ClusterAuthorizationFailed)
		if r.silent++; !forbidden && r.silent < silentLooks {
			return err
		}
		r.Log.Warn().Err(err).Str("topic", r.Topic).
			Msg("it is not known whether the brokers delete records of the control topic: it should have cleanup.policy=compact, or blocks that must stay retired may come back")
	}
	if partitions > 1 {
		r.Log.Warn().Str("topic", r.Topic).Int("partitions", partitions).
			Msg("the control topic should have one partition: a record takes back only a selector in its own partition, and clients choose different partitions for a key")
	}
	r.inspected = true
	return nil
}

// compare returns a LostError if the log lacks records that have not been read, or if it ends
// before a saved offset, or before one that has been read. Each start reads the log from offset
// 0, and compaction does not move the log's beginning. So a log that begins later has lost
// records, which may have retired blocks.
func (r *Reader) compare(log []kafka.Range) error {
	in := map[int]kafka.Range{}
	for _, each := range log {
		in[each.Partition] = each
		if each.From > r.next[each.Partition] {
			return &LostError{Topic: r.Topic, Partition: each.Partition, Start: each.From, End: each.To}
		}
	}
	for _, known := range []map[int]int64{r.Saved, r.next} {
		for partition, next := range known {
			if has := in[partition]; has.To < next {
				return &LostError{Topic: r.Topic, Partition: partition, Saved: next, Start: has.From, End: has.To}
			}
		}
	}
	for _, each := range log {
		if each.From > 0 && !r.shortened.Swap(true) {
			r.Log.Error().Str("topic", r.Topic).Int("partition", each.Partition).Int64("from", 0).Int64("to", each.From-1).
				Msg("offsets of the control topic were deleted: selectors in them are in force until the daemon ends, and the next start will fail; " +
					"write the records of the topic again, to one of another name with cleanup.policy=compact")
		}
	}
	return nil
}

// take takes a batch.
func (r *Reader) take(ctx context.Context, b *kafka.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []Change
	rebased := false
	for i := range b.Records {
		key := b.Records[i].Key
		var c Change
		var err error
		part := IsBasisKey(string(key))
		if part {
			var changed bool
			changed, err = r.parts.put(b.Partition, key, b.Records[i].Value)
			rebased = rebased || changed
		} else {
			c, err = changeOf(b.Partition, &b.Records[i], r.Header)
		}
		if err != nil {
			r.refused(b.Partition, b.Records[i].Offset, 1, err)
			r.bad[r.astray.keyIn(b.Partition, key)] = struct{}{}
			continue
		}
		delete(r.bad, r.astray.keyIn(b.Partition, key))
		if part {
			continue
		}
		changes = append(changes, c)
		if c.Selection != nil {
			r.compareUnit(b.Partition, b.Records[i].Offset, c.Selection)
			r.astray.put(b.Partition, key)
		} else {
			r.astray.takeBack(b.Partition, key, b.Records[i].Offset)
		}
	}
	for _, each := range b.Refused {
		r.refused(b.Partition, each.First, each.Records, each.Reason)
		r.bad[r.astray.keyIn(b.Partition, fmt.Append(nil, "offset ", each.First))] = struct{}{}
	}
	r.unreadable.Store(int64(len(r.bad)))
	if rebased {
		changes = append(changes, Change{Basis: r.parts.basis()})
	}
	partition, next := b.Partition, b.Position.Next
	if err := r.Take(ctx, partition, next, changes); err != nil {
		return &takeError{err}
	}
	r.next[partition] = next
	b.Release()
	return nil
}

// compareUnit warns of a selection that names keys where no block has one.
func (r *Reader) compareUnit(partition int, offset int64, s *retire.Selection) {
	if !r.Keyed && slices.ContainsFunc(s.IDs, receipt.Keyed) {
		r.Log.Warn().Str("topic", r.Topic).Int("partition", partition).Int64("offset", offset).
			Msg("a record of the control topic names keys, and no block has one, since blocks.unit is not key: it retires nothing by them")
	}
}

// refused logs records that cannot be read. Their keys may be names of persons.
func (r *Reader) refused(partition int, offset, records int64, why error) {
	r.Log.Error().Err(why).Str("topic", r.Topic).Int("partition", partition).Int64("offset", offset).Int64("records", records).
		Msg("a record of the control topic cannot be read and changes nothing: the former one of its key stays in force")
}
