package daemon

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels/reduce"
	"streamd/retire"
)

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
	if escaped, ok := strings.CutPrefix(e.ID, retire.KeyPrefix); ok {
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
	var outside []httpapi.Problem
	s.Witnesses, outside = d.witnesses.Report()
	// A rebalance that ends soon is no problem.
	if !s.InGroup && stats.Rebalances > 0 && (stats.OutBecause != nil || time.Since(stats.OutSince) >= longRebalance) {
		reason := "the group is rebalancing"
		if stats.OutBecause != nil {
			reason = stats.OutBecause.Error()
		}
		outside = append(outside, httpapi.Problem{Kind: httpapi.ProblemGroup, Since: stats.OutSince, Text: "out of the consumer group, so nothing is read: " + reason})
	}
	d.problems.Hold(problems.Outside, time.Now(), outside)
	s.Problems = d.problems.Present()
	s.Receipts = d.witnesses.Receipts()
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

// longRebalance is how long the group may rebalance before that is a problem.
const longRebalance = 10 * time.Second

// manyTooOld is the number of successive blocks that the policy retires on arrival before
// the status reports a problem. A few blocks may be late.
const manyTooOld = 100

// updateStatus copies the answer of Status. The loop calls it after every step.
func (d *Daemon) updateStatus() {
	in := d.intake.Report()
	c := &in.Counts
	s := httpapi.Status{
		Version:      d.version,
		Started:      d.started,
		Name:         d.cfg.Model.Name,
		Topic:        d.cfg.Kafka.Topic,
		Group:        d.cfg.Kafka.Group,
		Keys:         d.cfg.Blocks.Unit == config.UnitKey,
		Records:      in.Records,
		Rows:         in.Rows,
		Blocks:       model.BlockCounts{Added: c.BlocksAdded, Retired: c.BlocksRetired, Replaced: c.BlocksReplaced},
		Featureless:  d.live.Target().Features == nil,
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
	s.SaveFails = d.saver.problem != nil
	d.problems.Hold(problems.Loop, time.Now(), d.conditions(&in))
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
			return fmt.Errorf("reduce: %w: %w", learning.ErrLacking, httpapi.ErrUnavailable)
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

// conditions lists what the operator should know now, as far as the loop knows it.
func (d *Daemon) conditions(in *intake.Report) (all []httpapi.Problem) {
	add := func(p httpapi.Problem) { all = append(all, p) }
	if d.failure != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemStopping, Text: d.failure.Error()})
	}
	if err := d.saver.problem; err != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemSave, Text: "the snapshot cannot be saved, and is tried again: " + err.Error()})
	}
	all = append(all, d.withdrawing.conditions()...)
	all = append(all, d.watching.conditions()...)
	served := d.publisher.published.Load().served
	if newest, ok := d.live.Newest(); ok {
		p := httpapi.Problem{
			Kind:   httpapi.ProblemTime,
			Detail: fmt.Sprintf("the newest live block, of %s, is %s", retire.NearestTime(newest.Time).UTC().Format(time.RFC3339), newest.ID),
		}
		if in.TooOld >= manyTooOld {
			p.Subject, p.Count = "retire.keep", int64(in.TooOld)
			p.Text = fmt.Sprintf("the last %d blocks were retired as they came, since they are older than retire.keep lets in", in.TooOld)
			add(p)
		}
		if f := served.Forgetting; f != nil && f.Rows <= newest.Rows && served.Rows > f.Rows {
			p.Subject, p.Count = "retire.half_life", 0
			p.Text = fmt.Sprintf("by retire.half_life %d of the %d live rows of the model have a weight", f.Rows, served.Rows)
			add(p)
		}
	}
	if r := &in.Latest; r.Many(time.Now()) {
		add(httpapi.Problem{
			Kind: httpapi.ProblemRefused, Since: r.Since, Last: r.Last, Count: r.InARow, Text: r.String(), Detail: r.Reason,
			Lasting: r.Meaning, Action: r.Action(d.cfg.DeadLetters),
		})
	} else if r.Good {
		d.problems.Resolve(httpapi.ProblemRefused, "") // of before a restart
	}
	if err := d.saver.compactProblem; err != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemCompaction, Text: "the snapshot cannot be compacted, so retired blocks can still be read from the file: " + err.Error()})
	}
	if n := d.saver.missed; n > 0 {
		add(httpapi.Problem{Kind: httpapi.ProblemRetired, Count: n, Text: missedRetirements})
	}
	if served.Model == nil && served.Rows > 0 && d.publisher.answered {
		add(httpapi.Problem{Kind: httpapi.ProblemModel, Text: "there are rows, and no model", Detail: served.Problem})
	} else {
		if y := d.publisher.study; y != nil && y.Failed != nil {
			add(httpapi.Problem{Kind: httpapi.ProblemRefinement, Text: "the planes are not refined: " + y.Failed.Error()})
		}
		if q := served.Quality; served.Model != nil && q != nil && len(q.Warnings) > 0 {
			add(httpapi.Problem{
				Kind: httpapi.ProblemQuality, Count: int64(len(q.Warned())), Detail: strings.Join(q.Warnings, "; "),
				Text: "rows of some classes are never or seldom found, as held-out rows show (GET /v1/quality)",
			})
		}
		if b := served.Better; served.Model != nil && b != nil {
			add(httpapi.Problem{Kind: httpapi.ProblemSettings, Text: b.String()})
		}
	}
	if r := d.rebuilding; r.problem != "" && r.reducing == nil && d.live.Next() == nil {
		add(httpapi.Problem{Kind: httpapi.ProblemBasis, Subject: "reduction", Text: "no basis could be chosen: " + r.problem})
	}
	if n := len(d.filling.unread); n > 0 && d.rebuilding.mustGo() && d.rebuilding.reducing == nil && d.live.Next() == nil && d.filling.reading == nil {
		add(httpapi.Problem{
			Kind: httpapi.ProblemBasis, Subject: "sample", Count: int64(n),
			Text:   fmt.Sprintf("the basis in use was chosen from blocks that have been retired since, and no other can be chosen: the row sample lacks rows of %d blocks that the log does not return unchanged", n),
			Action: "retire the blocks that the log no longer has, or produce them again",
		})
	}
	if p := d.filling.condition(); p != nil {
		add(*p)
	}
	if r := served.Refinement; r != nil && r.Source == string(config.RowsLog) && !r.Complete {
		add(httpapi.Problem{
			Kind: httpapi.ProblemSample, Subject: "refinement",
			Text: "the planes are refined without rows of live blocks that the log does not return unchanged, so a daemon that never saw the retired blocks may serve others",
		})
	}
	if e := d.live.Next(); e != nil && e.Waits() {
		add(httpapi.Problem{
			Kind: httpapi.ProblemBasis, Subject: "rebuild", Count: int64(e.Missing()),
			Text:   fmt.Sprintf("the new basis waits for blocks that the log does not return unchanged, %d of them (see /v1/epoch)", e.Missing()),
			Action: "retire them, or set kernel.unread: skip",
		})
	}
	if r := d.refeaturing; r != nil {
		add(r.condition())
	}
	return all
}
