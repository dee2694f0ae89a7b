package daemon

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/daemon/labels"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/daemon/retiring"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// Served implements httpapi.Service.
func (d *Daemon) Served() (*model.Served, <-chan struct{}) {
	p := d.Front.Now()
	return p.Served, p.Replaced
}

// Blocks implements httpapi.Service, by ascending rank.
func (d *Daemon) Blocks(ctx context.Context, archived bool, after string, limit int) (page []httpapi.BlockInfo, next string, err error) {
	above := retire.Lowest
	if after != "" {
		if above, err = parseCursor(after); err != nil {
			return nil, "", err
		}
	}
	entries, err := loop.Ask(ctx, d.Loop, func() ([]retire.Entry, error) {
		if archived {
			return d.Live.ArchivedBlocks(above, limit+1), nil
		}
		return d.Live.Page(above, limit+1), nil
	})
	if err != nil {
		return nil, "", err
	}
	if len(entries) > limit {
		entries = entries[:limit]
		next = cursor(entries[limit-1].Rank())
	}
	for _, e := range entries {
		page = append(page, retiring.BlockInfo(e))
	}
	return page, next, nil
}

// cursor writes a rank as milliseconds@topic/partition/offset.
func cursor(r retire.Rank) string { return fmt.Sprintf("%d@%s", r.Milliseconds, r.Position) }

func parseCursor(s string) (retire.Rank, error) {
	bad := fmt.Errorf("%q does not come from a page of blocks: %w", s, httpapi.ErrBadID)
	time, position, ok := strings.Cut(s, "@")
	parts := strings.Split(position, "/")
	if !ok || len(parts) != 3 {
		return retire.Rank{}, bad
	}
	ms, err1 := strconv.ParseInt(time, 10, 64)
	partition, err2 := strconv.Atoi(parts[1])
	offset, err3 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return retire.Rank{}, bad
	}
	return retire.Rank{
		Milliseconds: ms,
		Position:     incremental.Position{Topic: parts[0], Partition: partition, Offset: offset},
	}, nil
}

// partitions is the number of partitions that are read.
func (d *Daemon) partitions() (n int) {
	for _, p := range d.consumer.Stats().Partitions {
		if p.Assigned {
			n++
		}
	}
	return n
}

// partitionsEver is the number of partitions that have been read since the start.
func (d *Daemon) partitionsEver() int { return len(d.consumer.Stats().Partitions) }

// Status implements httpapi.Service.
func (d *Daemon) Status() httpapi.Status {
	d.board.mu.Lock()
	s := d.board.status
	applied := d.board.offsets
	d.board.mu.Unlock()
	stats := d.consumer.Stats()
	s.Reading = stats.OutSince.IsZero()
	var failing *kafka.PartitionStats // the longest
	for i := range stats.Partitions {
		p := &stats.Partitions[i]
		s.FetchErrors += p.FetchErrors
		if p.Assigned {
			// A new leader is found soon.
			if !p.Failing.IsZero() && time.Since(p.Failing) >= labels.LongFailure {
				s.Reading = false
				if failing == nil || p.Failing.Before(failing.Failing) {
					failing = p
				}
			}
			next, ok := applied[p.Partition] // fetched records may wait for long
			if !ok {
				next = -1
			}
			s.Partitions = append(s.Partitions, model.Partition{
				Topic:         d.Config.Kafka.Topic,
				Partition:     p.Partition,
				Next:          next,
				LogStart:      p.LogStart,
				HighWatermark: p.HighWatermark,
			})
		}
	}
	var outside []httpapi.Problem
	s.Witnesses, outside = d.receipts.Witnesses.Report()
	if failing != nil {
		outside = append(outside, httpapi.Problem{
			Kind: httpapi.ProblemReading, Since: failing.Failing,
			Text: fmt.Sprintf("%s/%d cannot be read: %v", d.Config.Kafka.Topic, failing.Partition, failing.Because),
		})
	}
	outside = append(outside, d.labels.Outside()...)
	if since, why := d.awaits(); !since.IsZero() {
		outside = append(outside, httpapi.Problem{
			Kind: httpapi.ProblemRegistry, Since: since,
			Text: fmt.Sprintf("messages wait for their schemas, since the schema registry does not answer: %v", why),
		})
	}
	outside = append(outside, d.output.Report(&s, time.Now())...)
	d.Problems.Hold(problems.Outside, time.Now(), outside)
	s.Problems = d.Problems.Present()
	s.Receipts = d.receipts.Witnesses.Receipts()
	s.NotReady = strings.Join(d.notReady(&s), "; ")
	d.board.mu.Lock()
	if s.NotReady == "" {
		d.board.notReadySince = time.Time{}
	} else if d.board.notReadySince.IsZero() {
		d.board.notReadySince = time.Now()
	}
	s.NotReadySince = d.board.notReadySince
	d.board.mu.Unlock()
	return s
}

// notReady says why this instance cannot answer. Everybody may read it, so it names nothing
// that only some may know. An instance that cannot read for a while, because the brokers are
// away, still answers with its model.
func (d *Daemon) notReady(s *httpapi.Status) (reasons []string) {
	select {
	case <-d.Stopping:
		if d.Changing.Load() {
			return nil // it answers until its successor does
		}
		return []string{"stopping"}
	default:
	}
	switch {
	case d.caughtUp(s):
	case len(s.Partitions) == 0:
		reasons = append(reasons, "the topic's partitions are not known yet")
	default:
		reasons = append(reasons, fmt.Sprintf("still reading: more records are left than http.ready_lag, %d", d.Config.HTTP.ReadyLag))
	}
	if d.Front.Served().Model == nil {
		reasons = append(reasons, "there is no model: GET /v1/model says why")
	}
	if since, _ := d.awaits(); !since.IsZero() {
		reasons = append(reasons, "messages wait for their schemas, since the schema registry does not answer: the log says why")
	}
	if s.LettersFail {
		reasons = append(reasons, "dead letters cannot be written, and reading waits for them: the log says why")
	} else if s.SaveFails {
		reasons = append(reasons, "the state cannot be saved: the log says why")
	}
	return reasons
}

// awaits says since when and why messages wait for a schema; zero: none does.
func (d *Daemon) awaits() (since time.Time, why error) {
	if d.Registry == nil {
		return since, nil
	}
	return d.Registry.Away()
}

// caughtUp reports whether at most http.ready_lag records were left to read at some time
// since the start.
func (d *Daemon) caughtUp(s *httpapi.Status) bool {
	if d.board.hasCaughtUp.Load() {
		return true
	}
	var left int64
	for _, p := range s.Partitions {
		lag := p.Lag()
		if lag < 0 {
			return false // not known yet
		}
		left += lag
	}
	if !s.Reading || len(s.Partitions) == 0 || left > d.Config.HTTP.ReadyLag {
		return false
	}
	d.board.hasCaughtUp.Store(true)
	return true
}

// manyTooOld is the number of successive blocks that the policy retires on arrival before
// the status reports a problem. A few blocks may be late.
const manyTooOld = 100

// updateStatus copies the answer of Status. The loop calls it after every step.
func (d *Daemon) updateStatus() {
	in := d.Intake.Report()
	c := &in.Counts
	s := httpapi.Status{
		Version:      d.version,
		Started:      d.started,
		Name:         d.Config.Model.Name,
		Topic:        d.Config.Kafka.Topic,
		Group:        d.Config.Kafka.Group,
		Keys:         d.Config.Blocks.Unit == config.UnitKey,
		Records:      in.Records,
		Rows:         in.Rows,
		Blocks:       model.BlockCounts{Added: c.BlocksAdded, Retired: c.BlocksRetired, Replaced: c.BlocksReplaced},
		Featureless:  d.Live.Target().Features == nil,
		LiveRows:     d.Live.Rows(),
		Unlabelled:   d.Live.Unlabelled(),
		LiveBlocks:   d.Live.Blocks(),
		Withdrawn:    d.Live.Withdrawn(),
		Unreadable:   d.withdrawing.Unreadable(),
		Archived:     d.Live.Archived(),
		DeadLetters:  c.DeadLetters,
		Refused:      in.Refused,
		Labels:       d.labels.Report(),
		LastSolve:    d.publisher.LastSolve(),
		LastSnapshot: d.Saver.Info().MadeAt,
	}
	s.SaveFails = d.Saver.Problem() != nil
	s.LettersFail = d.Intake.Sending() != nil
	d.Problems.Hold(problems.Loop, time.Now(), d.conditions(&in))
	if d.Config.Kernel.Function != config.KernelNone {
		s.Epoch = d.Bases.Report()
	}
	d.board.mu.Lock()
	d.board.status, d.board.offsets = s, in.Applied
	d.board.mu.Unlock()
}

// Prequential implements httpapi.Service.
func (d *Daemon) Prequential() *model.Prequential {
	p := d.Intake.Prequential()
	if d.Config.Drift.Detect {
		p.Drift = d.watching.Report()
	}
	return &p
}

// Seen implements httpapi.Service.
func (d *Daemon) Seen(ctx context.Context, until time.Time) error {
	return d.Call(ctx, func() error {
		d.watching.Seen(until)
		return nil
	})
}

// Events implements httpapi.Service.
func (d *Daemon) Events(after string) ([]httpapi.Event, int64, <-chan struct{}) {
	return d.EventLog.After(after)
}
