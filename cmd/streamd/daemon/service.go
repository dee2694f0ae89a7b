package daemon

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/problems"
	"streamd/cmd/streamd/daemon/witness"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/kernels/reduce"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
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
			if !p.Failing.IsZero() && time.Since(p.Failing) >= longFailure {
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
				Topic:         d.cfg.Kafka.Topic,
				Partition:     p.Partition,
				Next:          next,
				LogStart:      p.LogStart,
				HighWatermark: p.HighWatermark,
			})
		}
	}
	var outside []httpapi.Problem
	s.Witnesses, outside = d.witnesses.Report()
	if failing != nil {
		outside = append(outside, httpapi.Problem{
			Kind: httpapi.ProblemReading, Since: failing.Failing,
			Text: fmt.Sprintf("%s/%d cannot be read: %v", d.cfg.Kafka.Topic, failing.Partition, failing.Because),
		})
	}
	outside = append(outside, d.labels.outside()...)
	if since, why := d.awaits(); !since.IsZero() {
		outside = append(outside, httpapi.Problem{
			Kind: httpapi.ProblemRegistry, Since: since,
			Text: fmt.Sprintf("messages wait for their schemas, since the schema registry does not answer: %v", why),
		})
	}
	if d.predicting != nil {
		s.Predicting = d.predicting.report()
		outside = append(outside, d.predicting.problem(time.Now())...)
	}
	if d.announcing != nil {
		s.Announced = d.announcing.report()
		outside = append(outside, d.announcing.problem(time.Now())...)
	}
	outside = append(outside, d.remembering.problem()...)
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
// that only some may know. An instance that cannot read for a while, because the brokers are
// away, still answers with its model.
func (d *Daemon) notReady(s *httpapi.Status) (reasons []string) {
	select {
	case <-d.stopping:
		if d.changing.Load() {
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
		reasons = append(reasons, fmt.Sprintf("still reading: more records are left than http.ready_lag, %d", d.cfg.HTTP.ReadyLag))
	}
	if d.publisher.published.Load().served.Model == nil {
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
	if d.registry == nil {
		return since, nil
	}
	return d.registry.Away()
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
	if !s.Reading || len(s.Partitions) == 0 || left > d.cfg.HTTP.ReadyLag {
		return false
	}
	d.board.hasCaughtUp.Store(true)
	return true
}

// longFailure is how long the fetches of a partition may fail before that is a problem.
const longFailure = 3 * time.Second

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
		Labels:       d.labels.report(),
		LastSolve:    d.publisher.lastSolve,
		LastSnapshot: d.saver.info.MadeAt,
	}
	s.SaveFails = d.saver.problem != nil
	s.LettersFail = d.intake.Sending() != nil
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
		d.rebuilding.beginReduction(time.Now(), true)
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
		case d.rebuilding.shared.topic != "" && !d.rebuilding.shared.known:
			return fmt.Errorf("reduce: the control topic %s has not been read up to its end: %w", d.cfg.Retire.Topic, httpapi.ErrUnavailable)
		case d.rebuilding.reducing != nil, d.rebuilding.shared.isEmptied():
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
		if work := r.reducing; work != nil {
			if work.cancel(); work.published != nil {
				r.endFailed(work)
			}
		}
		if d.live.Next() != nil {
			r.shared.passed = r.shared.basis
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

// Checkpoint implements httpapi.Service.
func (d *Daemon) Checkpoint(context.Context) ([]byte, error) {
	head, err := d.store.LogHead()
	if err == nil && head.Size == 0 {
		err = errNoReceipts
	}
	if n := len(head.Cosigned); n > 0 && head.Cosigned[n-1].Size == head.Size {
		head = head.Cosigned[n-1]
	}
	return head.Checkpoint, err
}

// Receipt implements httpapi.Service.
func (d *Daemon) Receipt(_ context.Context, leaf int64) ([]byte, error) {
	head, err := d.store.LogHead()
	if err != nil {
		return nil, err
	}
	if head.Size == 0 {
		return nil, errNoReceipts
	}
	if leaf < 0 || leaf >= head.Size {
		return nil, fmt.Errorf("receipt %d of %d: %w", leaf, head.Size, httpapi.ErrNoReceipt)
	}
	record, err := d.store.Receipt(leaf)
	if err != nil {
		return nil, err
	}
	signed, cosigned := witness.MostCosigned(head, leaf)
	if key := d.receipts.key; key != nil && !cosigned {
		return key.Prove(leaf, record, d.store)
	}
	return receipt.ProveIn(signed.Checkpoint, signed.Size, leaf, record, d.store)
}

// Tile implements httpapi.Service.
func (d *Daemon) Tile(_ context.Context, path string) ([]byte, error) {
	head, err := d.store.LogHead()
	if err != nil {
		return nil, err
	}
	tile, ok := receipt.ParseTile(path, head.Size)
	if !ok {
		return nil, fmt.Errorf("tile %.100q: %w", path, httpapi.ErrNoReceipt)
	}
	if tile.L >= 0 {
		return tlog.ReadTileData(tile, d.store)
	}
	var bundle []byte
	for i := range tile.W {
		r, err := d.store.Receipt(tile.N*receipt.TileWidth + int64(i))
		if err != nil {
			return nil, err
		}
		bundle = append(binary.BigEndian.AppendUint16(bundle, uint16(len(r.Leaf))), r.Leaf...)
	}
	return bundle, nil
}

// History implements httpapi.Service.
func (d *Daemon) History(span model.Span) *model.History {
	r := d.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.rings.History(span, time.Now())
	h.MemoryLimit = r.limit
	return h
}

// Snapshot implements httpapi.Service.
func (d *Daemon) Snapshot(ctx context.Context, compact bool) (httpapi.SnapshotInfo, error) {
	s := d.saver
	type compacted struct {
		info snapshot.SaveInfo
		err  error
	}
	done := make(chan compacted, 1)
	saved, err := inLoop(ctx, d.jobs, func() (httpapi.SnapshotInfo, error) {
		if d.failure != nil {
			return httpapi.SnapshotInfo{}, errStopping
		}
		if !d.isFlushed() { // so that the snapshot has everything read so far
			return httpapi.SnapshotInfo{}, errStopping
		}
		if s.save(); s.problem != nil {
			return httpapi.SnapshotInfo{}, fmt.Errorf("the snapshot could not be saved (see the log): %w", httpapi.ErrUnavailable)
		}
		if compact {
			s.beginCompaction(time.Now(), func(info snapshot.SaveInfo, err error) { done <- compacted{info, err} })
		}
		return s.info, nil
	})
	if err != nil || !compact {
		return saved, err
	}
	select {
	case c := <-done:
		if c.err != nil {
			return saved, fmt.Errorf("the snapshot was saved but could not be compacted (see the log): %w", httpapi.ErrUnavailable)
		}
		saved.Bytes, saved.Compacted = c.info.FileBytes, true
		return saved, nil
	case <-d.loopDone:
		return saved, d.ended()
	case <-ctx.Done(): // the compaction continues
		return saved, context.Cause(ctx)
	}
}

// CopySnapshot implements httpapi.Service.
func (d *Daemon) CopySnapshot(ctx context.Context, receipts bool) (copied io.ReadCloser, bytes int64, err error) {
	if !d.copying.TryLock() {
		return nil, 0, fmt.Errorf("copy the snapshot: %w", httpapi.ErrBusy)
	}
	defer func() {
		if err != nil {
			d.copying.Unlock()
		}
	}()
	if _, err := d.Snapshot(ctx, false); err != nil {
		return nil, 0, err
	}
	// A stop does not wait for a copy.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-d.stopping:
			cancel(errStopping)
		case <-ended:
		}
	}()
	path := snapshot.Copying(d.cfg.Snapshot.File)
	if err := d.store.Copy(ctx, path, receipts); err != nil {
		return nil, 0, cmp.Or(context.Cause(ctx), err)
	}
	file, err := os.Open(path)
	os.Remove(path) // so that nothing is left after a crash
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return &snapshotCopy{file, path, sync.OnceFunc(d.copying.Unlock)}, info.Size(), nil
}

// snapshotCopy is a copy of the snapshot, which is gone after Close.
type snapshotCopy struct {
	*os.File
	path  string
	ended func()
}

// Close ends the copy.
func (c *snapshotCopy) Close() error {
	err := c.File.Close()
	os.Remove(c.path) // where an open file has kept its name
	c.ended()
	return err
}

// Refine implements httpapi.Service. A study under way has older rows, so the requested one
// begins after it.
func (d *Daemon) Refine(ctx context.Context) (*model.Refinement, error) {
	if !d.learner.Refines() {
		return nil, fmt.Errorf("model.refine is none: %w", httpapi.ErrOff)
	}
	answer := make(chan refineAnswer, 1)
	// The request stands even if the caller stops waiting.
	err := d.call(context.WithoutCancel(ctx), func() error {
		y := d.studying
		switch {
		case d.failure != nil:
			return errStopping
		case y.asked != nil || y.now != nil && y.now.answer != nil:
			return fmt.Errorf("refine: %w", httpapi.ErrBusy)
		}
		y.want()
		y.asked = answer
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		if a.err != nil {
			return nil, fmt.Errorf("%w: %w", a.err, httpapi.ErrUnavailable)
		}
		return a.report, nil
	case <-d.loopDone:
		return nil, d.ended()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Prequential implements httpapi.Service.
func (d *Daemon) Prequential() *model.Prequential {
	p := d.intake.Prequential()
	if d.cfg.Drift.Detect {
		p.Drift = d.watching.says()
	}
	return &p
}

// Seen implements httpapi.Service.
func (d *Daemon) Seen(ctx context.Context, until time.Time) error {
	return d.call(ctx, func() error {
		d.problems.Seen(until)
		d.watching.risen = true // the next save has it
		return nil
	})
}

// Events implements httpapi.Service.
func (d *Daemon) Events(after string) ([]httpapi.Event, int64, <-chan struct{}) {
	return d.watching.events.After(after)
}
