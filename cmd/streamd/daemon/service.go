package daemon

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels/reduce"
	"streamd/retire"
)

var errStopping = fmt.Errorf("the daemon is stopping: %w", httpapi.ErrUnavailable)

// Served implements httpapi.Service.
func (d *Daemon) Served() (*model.Served, <-chan struct{}) {
	p := d.publisher.published.Load()
	return p.served, p.replaced
}

// Blocks implements httpapi.Service, by ascending rank.
func (d *Daemon) Blocks(ctx context.Context, archived bool, after string, limit int) (page []httpapi.BlockInfo, next string, err error) {
	above := retire.Lowest
	if after != "" {
		if above, err = parseCursor(after); err != nil {
			return nil, "", err
		}
	}
	entries, err := inLoop(ctx, d.jobs, func() ([]retire.Entry, error) {
		if archived {
			return d.live.ArchivedBlocks(above, limit+1), nil
		}
		return d.live.Page(above, limit+1), nil
	})
	if err != nil {
		return nil, "", err
	}
	if len(entries) > limit {
		entries = entries[:limit]
		next = cursor(entries[limit-1].Rank())
	}
	for _, e := range entries {
		page = append(page, blockInfo(e))
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

func blockInfo(e retire.Entry) httpapi.BlockInfo {
	b := httpapi.BlockInfo{
		ID:        e.ID,
		Topic:     e.Position.Topic,
		Partition: e.Position.Partition,
		Offset:    e.Position.Offset,
		Time:      retire.NearestTime(e.Time).UTC(),
		Rows:      e.Rows,
		Archived:  e.Archived,
	}
	if escaped, ok := strings.CutPrefix(e.ID, intake.KeyPrefix); ok {
		if key, err := url.PathUnescape(escaped); err == nil {
			b.Key = []byte(key)
		}
	}
	return b
}

// assigned returns the number of rebalances, and of partitions that are assigned.
func (d *Daemon) assigned() (rebalances int64, partitions int) {
	stats := d.consumer.Stats()
	for _, p := range stats.Partitions {
		if p.Assigned {
			partitions++
		}
	}
	return stats.Rebalances, partitions
}

// Status implements httpapi.Service.
func (d *Daemon) Status() httpapi.Status {
	d.board.mu.Lock()
	s := d.board.status
	s.Problems = append([]string(nil), d.board.status.Problems...)
	applied := d.board.offsets
	d.board.mu.Unlock()
	stats := d.consumer.Stats()
	s.Rebalances = stats.Rebalances
	for _, p := range stats.Partitions {
		s.FetchErrors += p.FetchErrors
		if p.Assigned {
			next, ok := applied[p.Partition] // fetched records may wait for long
			if !ok {
				next = -1
			}
			s.Partitions = append(s.Partitions, model.Partition{
				Topic:         d.cfg.Kafka.Topic,
				Partition:     p.Partition,
				Next:          next,
				LogStart:      p.LogStart,
				HighWatermark: p.HighWatermark,
			})
		}
	}
	s.InGroup = stats.OutSince.IsZero()
	if !s.InGroup && stats.Rebalances > 0 {
		reason := "the group is rebalancing"
		if stats.OutBecause != nil {
			reason = stats.OutBecause.Error()
		}
		s.Problems = append(s.Problems, fmt.Sprintf("out of the consumer group since %s UTC, so nothing is read: %s",
			stats.OutSince.UTC().Format("2 Jan 15:04:05"), reason))
	}
	s.Receipts = d.witnessing.receipts()
	var unwitnessed []string
	s.Witnesses, unwitnessed = d.witnessing.report()
	s.Problems = append(s.Problems, unwitnessed...)
	s.NotReady = strings.Join(d.notReady(&s), "; ")
	return s
}

// notReady says why this instance cannot answer. Everybody may read it, so it names nothing
// that only some may know. An instance that has left the group for a while, for instance
// because the brokers are away, still answers with its model.
func (d *Daemon) notReady(s *httpapi.Status) (reasons []string) {
	select {
	case <-d.stopping:
		if d.refeaturing.ends() {
			return nil // it answers until its successor does
		}
		return []string{"stopping"}
	default:
	}
	switch {
	case s.Rebalances == 0:
		reasons = append(reasons, "joining the consumer group")
	case s.InGroup && len(s.Partitions) == 0:
		reasons = append(reasons, "no partition is assigned to this instance: others of its group have them all")
	case !d.caughtUp(s):
		reasons = append(reasons, fmt.Sprintf("still reading: more records are left than http.ready_lag, %d", d.cfg.HTTP.ReadyLag))
	}
	if d.publisher.published.Load().served.Model == nil {
		reasons = append(reasons, "there is no model: GET /v1/model says why")
	}
	if s.SaveFails {
		reasons = append(reasons, "the state cannot be saved: the log says why")
	}
	return reasons
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
	if !s.InGroup || left > d.cfg.HTTP.ReadyLag {
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
	in := d.intake.Report()
	c := &in.Counts
	s := httpapi.Status{
		Version: d.version,
		Started: d.started,
		Name:    d.cfg.Model.Name,
		Topic:   d.cfg.Kafka.Topic,
		Group:   d.cfg.Kafka.Group,
		Keys:    d.cfg.Blocks.Unit == config.UnitKey,
		Rows: model.RowCounts{
			Read:       in.RowsRead,
			Summarised: c.Rows,
			ZeroWeight: c.ZeroWeightRows,
			Rejected:   c.RejectedRows,
			Pending:    in.Open,
		},
		Blocks: model.BlockCounts{
			Added:    c.BlocksAdded,
			Retired:  c.BlocksRetired,
			Replaced: c.BlocksReplaced,
			Rejected: c.RejectedRecords,
		},
		LiveRows:     d.live.Rows(),
		Unlabelled:   d.live.Unlabelled(),
		LiveBlocks:   d.live.Blocks(),
		Withdrawn:    d.live.Withdrawn(),
		Unreadable:   d.withdrawing.unreadable(),
		Archived:     d.live.Archived(),
		DeadLetters:  c.DeadLetters,
		Refused:      in.Refused,
		LastSolve:    d.publisher.lastSolve,
		LastSnapshot: d.saver.info.MadeAt,
	}
	if d.failure != nil {
		s.Problems = append(s.Problems, d.failure.Error())
	}
	if d.saver.problem != nil {
		s.SaveFails = true
		s.Problems = append(s.Problems, "the snapshot cannot be saved: "+d.saver.problem.Error())
	}
	s.Problems = append(s.Problems, d.withdrawing.problems()...)
	if newest, ok := d.live.Newest(); ok {
		is := fmt.Sprintf("the newest live block, of %s, is %s: retire it if its time is wrong", retire.NearestTime(newest.Time).UTC().Format(time.RFC3339), newest.ID)
		if in.TooOld >= manyTooOld {
			s.Problems = append(s.Problems, fmt.Sprintf("the last %d blocks were retired as they came, since they are older than retire.keep lets in; %s", in.TooOld, is))
		}
		if p := d.publisher.published.Load().served; p.Forgetting != nil && p.Forgetting.Rows <= newest.Rows && p.Rows > p.Forgetting.Rows {
			s.Problems = append(s.Problems, fmt.Sprintf("by retire.half_life %d of the %d live rows of the model have a weight; %s", p.Forgetting.Rows, p.Rows, is))
		}
	}
	if d.saver.compactProblem != nil {
		s.Problems = append(s.Problems, "the snapshot cannot be compacted, so retired blocks can still be read from the file: "+d.saver.compactProblem.Error())
	}
	if d.saver.missed > 0 {
		s.Problems = append(s.Problems, missedRetirements)
	}
	if p := d.publisher.published.Load().served; p.Model == nil && p.Rows > 0 {
		s.Problems = append(s.Problems, "there is no model: "+p.Problem)
	} else {
		if y := d.publisher.study; y != nil && y.refining != nil {
			s.Problems = append(s.Problems, "the planes are not refined: "+y.refining.Error())
		}
		if p.Model != nil && p.Quality != nil {
			for _, w := range p.Quality.Warnings {
				s.Problems = append(s.Problems, "on held-out rows, "+w)
			}
		}
	}
	if r := d.rebuilding; r.problem != "" && r.reducing == nil && d.live.Next() == nil {
		s.Problems = append(s.Problems, "no basis could be chosen: "+r.problem)
	}
	if n := len(d.filling.unread); n > 0 && d.rebuilding.mustGo() && d.rebuilding.reducing == nil && d.live.Next() == nil && d.filling.reading == nil {
		s.Problems = append(s.Problems, fmt.Sprintf("the basis in use was chosen from blocks that have been retired since, and no other can be chosen: the row sample lacks rows of %d blocks that the log does not return unchanged", n))
	}
	if e := d.live.Next(); e != nil && e.Waits() {
		s.Problems = append(s.Problems, fmt.Sprintf("the new basis waits for blocks that the log does not return unchanged, %d of them (see /v1/epoch): retire them, or set kernel.unread: skip", e.Missing()))
	}
	if r := d.refeaturing; r != nil && !r.ends() {
		s.Problems = append(s.Problems, r.says())
	}
	if d.cfg.Kernel.Function != config.KernelNone {
		s.Epoch = d.rebuilding.epochAnswer()
	}
	d.board.mu.Lock()
	d.board.status, d.board.offsets = s, in.Applied
	d.board.mu.Unlock()
}

// Reduce implements httpapi.Service.
func (d *Daemon) Reduce(ctx context.Context) error {
	return d.reduceBy(ctx, func() error {
		if d.live.Lacking() > 0 {
			return fmt.Errorf("reduce: %w: %w", errLacking, httpapi.ErrUnavailable)
		}
		d.rebuilding.beginReduction(time.Now())
		return nil
	})
}

// Prune implements httpapi.Service.
func (d *Daemon) Prune(ctx context.Context, how reduce.Pruning, points int) error {
	return d.reduceBy(ctx, func() error {
		use := d.live.InUse().Coordinates
		if use == nil {
			return fmt.Errorf("prune: no basis is in use yet: %w", httpapi.ErrUnavailable)
		}
		if points >= use.Size() {
			return fmt.Errorf("prune: the basis in use has %d coordinates, so it has no part of %d: %w", use.Size(), points, httpapi.ErrUnfit)
		}
		if err := how.Check(use.Map); err != nil {
			return fmt.Errorf("prune: %w: %w", err, httpapi.ErrUnfit)
		}
		d.rebuilding.beginPruning(how, points, time.Now())
		return nil
	})
}

// reduceBy calls begin in the loop where a reduction may begin.
func (d *Daemon) reduceBy(ctx context.Context, begin func() error) error {
	if d.cfg.Kernel.Function == config.KernelNone {
		return fmt.Errorf("kernel.function is none: %w", httpapi.ErrOff)
	}
	return d.call(ctx, func() error {
		switch {
		case d.failure != nil:
			return errStopping
		case d.live.Rows() == 0:
			return fmt.Errorf("there are no live rows: %w", httpapi.ErrUnavailable)
		case d.rebuilding.reducing != nil:
			return fmt.Errorf("reduce: %w", httpapi.ErrBusy)
		case d.live.Next() != nil && !d.live.Next().Waits():
			return fmt.Errorf("reduce: the live blocks are being mapped to the coordinates of a basis, which DELETE /v1/reduce stops: %w", httpapi.ErrBusy)
		}
		if err := begin(); err != nil {
			return err
		}
		if d.failure != nil {
			return errStopping
		}
		return nil
	})
}

// Abandon implements httpapi.Service.
func (d *Daemon) Abandon(ctx context.Context) error {
	return d.call(ctx, func() error {
		r := d.rebuilding
		if d.failure != nil {
			return errStopping
		}
		if r.reducing != nil {
			r.reducing.cancel()
		}
		if d.live.Next() != nil {
			r.endReading()
			d.live.Abandon()
			d.log.Info().Msg("the basis that was being built is abandoned")
		}
		r.again = time.Now().Add(afterFailure)
		return nil
	})
}

// Epoch implements httpapi.Service.
func (d *Daemon) Epoch(ctx context.Context) (*httpapi.EpochAnswer, error) {
	return inLoop(ctx, d.jobs, func() (*httpapi.EpochAnswer, error) {
		a := d.rebuilding.epochAnswer()
		a.Skipped = d.rebuilding.skipped[:min(len(d.rebuilding.skipped), listedBlocks)]
		if e := d.live.InUse(); e.Coordinates != nil {
			a.Basis = model.NewBasisJSON(e.Map, d.cfg.Kernel.Regulariser)
		}
		if a.Rebuild != nil {
			a.Rebuild.Reasons = d.rebuilding.unread()
			a.Rebuild.Reasons = a.Rebuild.Reasons[:min(len(a.Rebuild.Reasons), listedBlocks)]
		}
		return a, nil
	})
}
