package daemon

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/retire"
)

// do runs f in the loop, between two deliveries, and waits for it. f may still
// run after ctx has ended.
func (d *Daemon) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case d.calls <- func() { defer close(done); f() }:
	case <-d.loopDone:
		return fmt.Errorf("the daemon is stopping: %w", httpapi.ErrUnavailable)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Served implements httpapi.Service.
func (d *Daemon) Served() (*httpapi.Served, <-chan struct{}) {
	p := d.published.Load()
	return p.served, p.replaced
}

// Blocks implements httpapi.Service, by ascending rank.
func (d *Daemon) Blocks(ctx context.Context, after string, limit int) (page []httpapi.BlockInfo, next string, err error) {
	above := retire.Lowest
	if after != "" {
		if above, err = parseCursor(after); err != nil {
			return nil, "", err
		}
	}
	err = d.do(ctx, func() {
		for _, e := range d.live.ledger.Page(above, limit+1) {
			if len(page) == limit {
				next = cursor(above)
				break
			}
			page = append(page, blockInfo(e))
			above = e.Rank()
		}
	})
	return page, next, err
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

func blockInfo(e retire.Entry) httpapi.BlockInfo {
	b := httpapi.BlockInfo{
		ID:        e.ID,
		Topic:     e.Position.Topic,
		Partition: e.Position.Partition,
		Offset:    e.Position.Offset,
		Time:      e.Time.UTC(),
		Rows:      e.Rows,
	}
	if escaped, ok := strings.CutPrefix(e.ID, keyPrefix); ok {
		if key, err := url.PathUnescape(escaped); err == nil {
			b.Key = []byte(key)
		}
	}
	return b
}

// Retire implements httpapi.Service.
func (d *Daemon) Retire(ctx context.Context, id string) (httpapi.Receipt, error) {
	var receipt httpapi.Receipt
	var failed error
	err := d.do(ctx, func() {
		if d.failure != nil {
			failed = fmt.Errorf("retire block %s: the daemon is stopping: %w", id, httpapi.ErrUnavailable)
			return
		}
		// A block that is still growing ends here: what has come is retired,
		// and what comes begins another one.
		for _, p := range d.partitions {
			if p.open != nil && p.open.first.String() == id {
				if err := d.closeRun(p); err != nil {
					d.fail(err)
					failed = err
					return
				}
				p.moved = true
			}
		}
		e, ok := d.live.ledger.Get(id)
		if !ok {
			failed = fmt.Errorf("retire block %s: %w", id, httpapi.ErrNotLive)
			return
		}
		receipt.Block = blockInfo(e)
		receipt.DigestBefore = digestOf(d.live.state)
		if _, err := d.live.remove(id); err != nil {
			d.fail(err)
			failed = err
			return
		}
		d.counts.BlocksRetired++
		d.changed = true
		receipt.DigestAfter = digestOf(d.live.state)
		receipt.Offsets = d.offsets()
		receipt.RetiredAt = time.Now().UTC()
		d.save()
		if d.saveProblem != nil {
			failed = fmt.Errorf("block %s is retired, but that could not be saved yet; the next snapshot will have it: %w", id, httpapi.ErrUnavailable)
		}
	})
	if err == nil {
		err = failed
	}
	return receipt, err
}

// Snapshot implements httpapi.Service.
func (d *Daemon) Snapshot(ctx context.Context) (info httpapi.SnapshotInfo, err error) {
	var failed error
	err = d.do(ctx, func() {
		if d.failure != nil {
			failed = fmt.Errorf("the daemon is stopping: %w", httpapi.ErrUnavailable)
			return
		}
		d.save()
		if d.saveProblem != nil {
			failed = fmt.Errorf("the snapshot could not be saved (see the log): %w", httpapi.ErrUnavailable)
			return
		}
		info = d.lastSave
	})
	if err == nil {
		err = failed
	}
	return info, err
}

// Status implements httpapi.Service.
func (d *Daemon) Status() httpapi.Status {
	d.mu.Lock()
	s := d.status
	s.Problems = append([]string(nil), d.status.Problems...)
	d.mu.Unlock()
	stats := d.consumer.Stats()
	s.Rebalances = stats.Rebalances
	for _, p := range stats.Partitions {
		s.FetchErrors += p.FetchErrors
		if p.Assigned {
			s.Partitions = append(s.Partitions, httpapi.Partition{
				Topic:         d.cfg.Kafka.Topic,
				Partition:     p.Partition,
				Next:          p.Next,
				LogStart:      p.LogStart,
				HighWatermark: p.HighWatermark,
			})
		}
	}
	if s.NotReady == "" && stats.Rebalances == 0 {
		s.NotReady = "joining the consumer group"
	}
	return s
}

// updateStatus copies what Status answers with; the loop calls it after every
// step.
func (d *Daemon) updateStatus() {
	c := d.counts
	var open int64
	for _, p := range d.partitions {
		if p.open != nil {
			o := p.open.counts
			o.Rows, o.ZeroWeightRows = 0, 0
			addCounts(&c, o)
			open += int64(p.open.rows.len())
		}
	}
	s := httpapi.Status{
		Version: d.version,
		Started: d.started,
		Rows: httpapi.RowCounts{
			Read:       d.rowsRead,
			Summarised: c.Rows,
			ZeroWeight: c.ZeroWeightRows,
			Rejected:   c.RejectedRows,
			InHand:     open,
		},
		Blocks: httpapi.BlockCounts{
			Added:    c.BlocksAdded,
			Retired:  c.BlocksRetired,
			Replaced: c.BlocksReplaced,
			Rejected: c.RejectedRecords,
		},
		LiveRows:     d.live.ledger.Rows(),
		LiveBlocks:   d.live.ledger.Len(),
		DeadLetters:  c.DeadLetters,
		LastSolve:    d.lastSolve,
		LastSnapshot: d.lastSave.MadeAt,
	}
	if d.failure != nil {
		s.NotReady = "stopping"
		s.Problems = append(s.Problems, d.failure.Error())
	}
	if d.saveProblem != nil {
		s.Problems = append(s.Problems, "the snapshot cannot be saved: "+d.saveProblem.Error())
	}
	if p := d.published.Load().served; p.Model == nil && p.Rows > 0 {
		s.Problems = append(s.Problems, "there is no model: "+p.Problem)
	}
	d.mu.Lock()
	d.status = s
	d.mu.Unlock()
}
