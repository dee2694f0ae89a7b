// Package labels follows the topic of labels that come later than their rows (labels.topic).
// Package joining joins the two.
package labels

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/joining"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/snapshot"
)

// Labels follow the topic of labels that come later than their rows (labels.topic). They are the
// sink of a second consumer, whose batches go into the one order of the loop. So a label is applied
// between two batches of rows, and both topics' positions are saved in one transaction.
//
// The topic is read before the rows, up to the end that it has at the start. Then most rows find
// their labels as they come, and no row counts as one of labels.default for as long as it takes to
// read both topics. What the live set is in the end does not depend on it.
type Labels struct {
	*loop.Loop
	table    *joining.Table
	consumer *kafka.Consumer
	letters  *kafka.DeadLetters // nil: none are written
	resumes  map[int]kafka.Saved
	decoders sync.Map // *intake.Decoder by partition
	caughtUp atomic.Bool
	jumped   func(gap *kafka.GapError, to int64)
}

// Open makes the table, and what the saved file has in it. It is nil without a topic of labels.
func Open(c *loop.Loop, saved *snapshot.Contents) (*Labels, error) {
	if c.Config.Labels.Topic == "" {
		return nil, nil
	}
	l := &Labels{Loop: c, table: joining.New(intake.RulesOf(c.Config, c.Memory.Joining))}
	items := make([]joining.Saved, len(saved.Joining.Items))
	for i, item := range saved.Joining.Items {
		items[i] = joining.Saved{ID: item.ID, Value: item.Value}
	}
	if err := l.table.Restore(items, saved.Joining.Record, live.Wanted(nil, c.Config.Format)); err != nil {
		return nil, err
	}
	return l, nil
}

// Table joins labels with their rows, nil without a topic of labels.
func (l *Labels) Table() *joining.Table {
	if l == nil {
		return nil
	}
	return l.table
}

// Connect makes the consumer and the writer of dead letters. jumped has the loop go on after a gap.
func (l *Labels) Connect(cluster kafka.Cluster, jumped func(gap *kafka.GapError, to int64)) (err error) {
	if l == nil {
		return nil
	}
	l.jumped, l.resumes = jumped, l.Intake.LabelPositions()
	of := settings.ConsumerConfig(l.Config.Kafka, cluster, l.Memory)
	of.Topic, of.Start = l.Config.Labels.Topic, kafka.Earliest
	of.Fetching = settings.Bounded(l.Memory, settings.Fetching(l.Config.Kafka), l.Memory.Reread)
	if l.Config.DeadLetters.Policy == config.DeadLettersQueue {
		l.letters, err = kafka.NewDeadLetters(kafka.DeadLetterConfig{
			Cluster: cluster, Source: of.Topic, Topic: l.Config.DeadLetters.Topic, Connector: "streamd." + l.Config.Model.Name,
		}, l.Log)
		if err != nil {
			return err
		}
		l.Intake.LabelLetters = l.letters
	}
	l.consumer, err = kafka.NewConsumer(of, l, l.Log)
	l.Intake.LabelPartitions = l.partitions
	return err
}

// Follow reads the topic until ctx ends. It returns when what the topic has now has been delivered.
// stop is called with the error that ends it, and end waits for the end.
func (l *Labels) Follow(ctx context.Context, stop func(error)) (end func()) {
	if l == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		if err := l.consumer.Run(ctx); err != nil {
			stop(fmt.Errorf("labels.topic: %w", err))
		}
	})
	ends, tick := map[int]int64{}, time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !l.isRead(ends) {
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	l.caughtUp.Store(ctx.Err() == nil)
	return func() {
		cancel()
		following.Wait()
		if l.letters != nil {
			l.letters.Close()
		}
	}
}

// isRead reports whether all partitions have been read up to their ends, as they were when they
// were known first.
func (l *Labels) isRead(ends map[int]int64) bool {
	all := l.consumer.Stats().Partitions
	for i := range all {
		p := &all[i]
		if _, known := ends[p.Partition]; !known && p.HighWatermark >= 0 {
			ends[p.Partition] = p.HighWatermark
		}
		if end, known := ends[p.Partition]; !known || p.Next < end {
			return false
		}
	}
	return len(all) > 0
}

// Position implements kafka.Sink.
func (l *Labels) Position(partition int) (kafka.Saved, bool) {
	s, ok := l.resumes[partition]
	return s, ok
}

// Partitions implements kafka.Sink.
func (l *Labels) Partitions() []int { return slices.Collect(maps.Keys(l.resumes)) }

// Deliver implements kafka.Sink.
func (l *Labels) Deliver(ctx context.Context, b *kafka.Batch) error {
	d, ok := l.decoders.Load(b.Partition)
	if !ok { // no other call is for this partition
		d = l.Intake.NewLabelDecoder()
		l.decoders.Store(b.Partition, d)
	}
	return l.Intake.DeliverLabels(ctx, d.(*intake.Decoder), b)
}

// Jumped implements kafka.Sink: the operator has allowed a gap.
func (l *Labels) Jumped(gap *kafka.GapError, to int64) { l.jumped(gap, to) }

// Assigned implements kafka.Sink.
func (*Labels) Assigned(context.Context, []int) error { return nil }

// Revoked implements kafka.Sink. The process is stopping, and the last save comes later, or there
// are more partitions.
func (*Labels) Revoked(context.Context, []int) {}

// Commit commits saved positions to the group, so that lag can be monitored.
func (l *Labels) Commit(ctx context.Context, saved map[int]int64) {
	if l == nil || saved == nil {
		return
	}
	if err := l.consumer.Commit(ctx, saved); err != nil {
		l.Log.Debug().Err(err).Msg("offsets of labels.topic not committed to the group; the saved ones count")
	}
}

// partitions is the number of partitions that have been known since the start.
func (l *Labels) partitions() int { return len(l.consumer.Stats().Partitions) }

// Report is the books, for the status. It belongs to the loop.
func (l *Labels) Report() *httpapi.Labels {
	if l == nil {
		return nil
	}
	b := l.table.Report()
	a := &httpapi.Labels{
		Topic: l.Config.Labels.Topic,
		Rows: httpapi.JoinedRows{
			Read: b.Rows, Joined: b.Joined, Defaulted: b.Defaulted, Waiting: b.Waiting, Expired: b.Expired, Superseded: b.SupersededRows, LetGo: b.LetGo,
		},
		Labels: httpapi.JoinedLabels{
			Read: b.Labels, Joined: b.Joined, Early: b.Early, Unmatched: b.Unmatched, Superseded: b.SupersededLabels,
			Late: b.Late, Duplicates: b.Duplicates, Withdrawals: b.Withdrawals, Rejected: b.Rejected,
		},
		Bytes: b.Bytes, Offsets: l.Intake.AppliedLabels(),
	}
	if b.Wait >= 0 {
		seconds := float64(b.Wait) / 1000
		a.MedianWait = &seconds
	}
	return a
}

// LongFailure is how long the fetches of a partition may fail before that is a problem.
const LongFailure = 3 * time.Second

// A share of unmatched labels is a problem from so many labels on.
const (
	leastLabels   = 100
	mostUnmatched = 0.2
)

// Conditions lists what the operator should know. It belongs to the loop.
func (l *Labels) Conditions() (all []httpapi.Problem) {
	if l == nil {
		return nil
	}
	b, topic := l.table.Report(), l.Config.Labels.Topic
	if n := b.Labels - b.SupersededLabels; n >= leastLabels && float64(b.Unmatched) > mostUnmatched*float64(n) {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemLabels, Subject: "unmatched", Count: b.Unmatched,
			Text:   fmt.Sprintf("%d of %d labels of %s match no row in time", b.Unmatched, n, topic),
			Action: "see whether rows and labels have the same keys, and whether labels.horizon is as long as labels take",
		})
	}
	if b.LetGo > 0 {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemLabels, Subject: "room", Count: b.LetGo,
			Text:   fmt.Sprintf("%d rows were let go while they waited for their labels, since what waits has %d MiB of limits.memory", b.LetGo, l.Memory.Joining>>20),
			Action: "raise limits.memory, or set labels.horizon",
		})
	}
	return all
}

// Outside lists what the operator should know of the topic itself. It may be called from any
// goroutine.
func (l *Labels) Outside() (all []httpapi.Problem) {
	if l == nil {
		return nil
	}
	topic := l.Config.Labels.Topic
	stats := l.consumer.Stats()
	for i := range stats.Partitions {
		p := &stats.Partitions[i]
		if p.Assigned && !p.Failing.IsZero() && time.Since(p.Failing) >= LongFailure {
			all = append(all, httpapi.Problem{
				Kind: httpapi.ProblemLabels, Subject: "read", Since: p.Failing,
				Text:   fmt.Sprintf("the topic of labels cannot be read, and rows wait: %s/%d: %v", topic, p.Partition, p.Because),
				Action: "see that the brokers return the topic; it is tried again by itself",
			})
			return all
		}
	}
	if !l.caughtUp.Load() && !stats.OutSince.IsZero() && time.Since(stats.OutSince) >= LongFailure {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemLabels, Subject: "read", Since: stats.OutSince,
			Text:   fmt.Sprintf("the topic of labels, %s, cannot be read, and no row is read before it has been: %v", topic, stats.OutBecause),
			Action: "see that the topic exists and that the brokers return it; it is tried again by itself",
		})
	}
	return all
}
