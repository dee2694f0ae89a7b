package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/retire"
	"streamd/retire/receipt"
)

var errRetiredUnsaved = fmt.Errorf("it is retired, but that could not be saved yet; the next snapshot will have it, and with receipts, the same request then names them: %w", httpapi.ErrUnavailable)

// Retire implements httpapi.Service.
func (d *Daemon) Retire(ctx context.Context, s httpapi.Selector, dryRun bool) (httpapi.Retirement, error) {
	type answer struct {
		retirement httpapi.Retirement
		err        error
	}
	done := make(chan answer, 1)
	if err := d.call(ctx, func() error {
		d.retireThen(s, dryRun, access.CallerOf(ctx), func(r httpapi.Retirement, err error) { done <- answer{r, err} })
		return nil
	}); err != nil {
		return httpapi.Retirement{}, err
	}
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done(): // the blocks are retired, and the save continues
		return httpapi.Retirement{}, context.Cause(ctx)
	case <-d.loopDone:
		select {
		case a = <-done:
		default:
			return httpapi.Retirement{}, d.ended()
		}
	}
	if !dryRun {
		a.err = d.withEarlier(ctx, a.err, &s)
	}
	if id, one := s.Single(); a.err != nil && one {
		return a.retirement, fmt.Errorf("retire block %s: %w", id, a.err)
	} else if a.err != nil {
		return a.retirement, fmt.Errorf("retire blocks: %w", a.err)
	}
	return a.retirement, nil
}

// retireThen retires the blocks that s chooses: live, archived or withdrawn. It calls answer in the
// loop when they are saved, in one transaction, or that has failed. Meanwhile the loop goes on. The
// log names the caller. A dry run only says which blocks these are. The caller completes an error
// by withEarlier.
func (d *Daemon) retireThen(s httpapi.Selector, dryRun bool, by access.Caller, answer func(httpapi.Retirement, error)) {
	r, left, err := d.takeOut(s, dryRun, by)
	if err != nil || dryRun {
		answer(r, err)
		return
	}
	d.saver.saveThen(func() {
		err := d.saver.problem
		d.logRetirement(&r, by) // the caller may have disconnected before the answer
		if err != nil {
			answer(httpapi.Retirement{}, errRetiredUnsaved)
			return
		}
		d.watching.events.Add(retirementEvent("on request", httpapi.RetirementEvent{
			Blocks: r.Blocks, Rows: r.Rows, Archived: r.Archived, DigestBefore: r.DigestBefore, DigestAfter: r.DigestAfter,
		}))
		now := time.Now().UTC()
		if until := d.retention.until(r.Latest); !until.IsZero() {
			r.LogUntil = &until
		}
		r.RetiredAt, r.Remains = &now, d.remains(r.InBasis, r.Latest)
		d.receipts.name(&r, left, &s)
		answer(r, nil)
	})
}

// takeOut takes the blocks that s chooses out of their sets, unless in a dry run, and describes
// them. They are not saved yet. A withdrawn one loses its place, so that no record of the control
// topic gives it back.
func (d *Daemon) takeOut(s httpapi.Selector, dryRun bool, by access.Caller) (r httpapi.Retirement, left []*pendingReceipt, err error) {
	var none httpapi.Retirement
	if d.failure != nil {
		return none, nil, errStopping
	}
	if err := d.ofOwnTopic(s.Positions); err != nil {
		return none, nil, err
	}
	if err := d.flushAll(); err != nil { // so that the digests include everything read so far
		return none, nil, err
	}
	chosen, err := control.SelectionOf(s, d.cfg.Retire.Header)
	if err != nil {
		return none, nil, err
	}
	r, ids := d.choose(chosen)
	if !dryRun {
		ended, err := d.intake.EndBlocks(d.background, func(id string) bool { return slices.Contains(ids, id) })
		if err != nil {
			d.fail(err)
			return none, nil, err
		}
		if ended { // a block whose log has changed may be another one now
			r, ids = d.choose(chosen)
		}
	}
	if len(ids) == 0 {
		return none, nil, d.noneLive(s, chosen.IDs, r.NoHeader, dryRun)
	}
	r.Offsets, r.DigestBefore = d.intake.Applied(), d.live.Digest()
	r.InBasis = slices.ContainsFunc(ids, d.live.InBasis)
	if r.DryRun = dryRun; dryRun {
		return r, nil, nil
	}
	if d.live.Controlled() {
		d.receipts.addDepartures()
	}
	archived, live, err := d.live.RetireOthers(ids)
	if err != nil {
		d.fail(err)
		return none, nil, err
	}
	for i := range archived {
		left = append(left, d.receipts.addAsked(&archived[i], by, &s))
	}
	for few := range slices.Chunk(live, receipt.MaxItems) {
		departure, err := d.live.RetireTogether(few)
		if err != nil {
			d.fail(err) // nothing is saved any more, so a restart has all of them
			return none, nil, err
		}
		if departure != nil {
			left = append(left, d.receipts.addAsked(departure, by, &s))
		}
	}
	r.DigestAfter = d.live.Digest()
	d.intake.CountRetired(len(live))
	d.studying.blocksChanged()
	d.windows.clear()
	d.publisher.sayStale()
	if len(left) > len(archived) { // live blocks have receipts, which name a model without them
		d.publisher.solveNow()
	}
	return r, left, nil
}

// flushAll makes the rows of all open runs live, and saves whenever they have no room
// before.
func (d *Daemon) flushAll() error {
	for {
		all, ok := d.flushRuns()
		if !ok {
			return errStopping
		}
		if all {
			return nil
		}
		if d.saver.save(); d.saver.problem != nil {
			return fmt.Errorf("the rows read last have no room before the next snapshot, which could not be saved: %w", httpapi.ErrUnavailable)
		}
	}
}

// listedNames bounds the blocks, and the ids, that a retirement lists.
const listedNames = 100

// choose finds the blocks that are chosen, by ascending rank, and describes them: live ones,
// archived ones, and those that the control topic has withdrawn.
func (d *Daemon) choose(by *retire.Selection) (r httpapi.Retirement, ids []string) {
	absent := map[string]struct{}{} // an id may be given twice
	for _, id := range by.IDs {
		if _, is := d.live.Find(id); is {
			continue
		}
		if _, again := absent[id]; !again && len(r.NotLiveIDs) < listedNames {
			r.NotLiveIDs = append(r.NotLiveIDs, id)
		}
		absent[id] = struct{}{}
	}
	r.NotLive = len(absent)
	if by.Headers != nil {
		r.NoHeader = d.live.NoHeader(by)
	}
	spans := map[int]*retire.Range{} // of the partitions
	for _, e := range d.live.SelectPlaces(by) {
		if len(ids) < listedNames {
			r.First = append(r.First, blockInfo(e))
		}
		ids = append(ids, e.ID)
		if e.Withdrawn {
			r.Withdrawn++
		} else if e.Archived {
			r.Archived++
		}
		r.Rows += e.Rows
		r.Latest = retire.NearestTime(e.Time).UTC()
		p := e.Position
		span := spans[p.Partition]
		if span == nil {
			span = &retire.Range{Topic: p.Topic, Partition: p.Partition, First: p.Offset, Last: e.Last}
			spans[p.Partition] = span
		}
		span.First, span.Last = min(span.First, p.Offset), max(span.Last, e.Last)
	}
	if len(ids) > 0 {
		r.Earliest = r.First[0].Time
	}
	for _, span := range spans {
		r.Positions = append(r.Positions, *span)
	}
	slices.SortFunc(r.Positions, func(a, b retire.Range) int { return a.Partition - b.Partition })
	r.Blocks = len(ids)
	return r, ids
}

// noneError says that a request has chosen no block.
type noneError struct {
	is    error    // ErrNotLive or ErrNoneChosen
	hint  string   // on why, unless an earlier request of the same text is found; "": none
	names []string // ids of blocks that the request names
}

func (e *noneError) Error() string {
	if e.hint == "" {
		return e.is.Error()
	}
	return e.is.Error() + ": " + e.hint
}

func (e *noneError) Unwrap() error { return e.is }

// withEarlier names the receipts of an earlier request of the same text in the error of one that
// has chosen no block. It reads leaves of the log, so the loop does not wait for it.
func (d *Daemon) withEarlier(ctx context.Context, err error, s *httpapi.Selector) error {
	none := (*noneError)(nil)
	if !errors.As(err, &none) {
		return err
	}
	earlier, failed := d.receipts.earlier(ctx, s, none.names)
	if failed != nil {
		return failed
	}
	if earlier != "" {
		none.hint = earlier
	}
	return none
}

// noneLive is the error for a selector that chooses no block. Before an answer says
// so, the blocks that have gone are saved: a crash could make them live again. names are the
// ids of blocks that it names, and noHeader is Retirement.NoHeader. It is a *noneError, unless the
// save fails.
func (d *Daemon) noneLive(s httpapi.Selector, names []string, noHeader int, dryRun bool) error {
	if !dryRun && (names == nil && d.live.HasGone() || slices.ContainsFunc(names, d.live.IsGone)) {
		if d.saver.save(); d.saver.problem != nil {
			if names == nil {
				return fmt.Errorf("none is live, but those that have gone could not all be saved yet; the next snapshot will have it: %w", httpapi.ErrUnavailable)
			}
			return errRetiredUnsaved
		}
	}
	none := &noneError{is: httpapi.ErrNoneChosen, names: names}
	if id, one := s.Single(); one {
		none.is = httpapi.ErrNotLive
		// A key is easily mistaken for an id, and a path decodes an id that is written as it is.
		for _, key := range []string{id, strings.TrimPrefix(id, intake.KeyPrefix)} {
			byKey := intake.KeyPrefix + url.PathEscape(key)
			if _, ok := d.live.Get(byKey); ok {
				none.hint = fmt.Sprintf("the live block of the key %q has the id %s", key, byKey)
				if strings.Contains(byKey, "%") {
					none.hint += ", in a path " + url.PathEscape(byKey)
				}
				break
			}
		}
	} else if unit := d.cfg.Blocks.Unit; len(s.Keys) > 0 && unit != config.UnitKey {
		none.hint = fmt.Sprintf("no block has a key, since blocks.unit is %s", unit)
	} else if noHeader > 0 {
		none.hint = fmt.Sprintf("blocks without a value of the header %s: %d; their records lack it, or were read before retire.header was set", d.cfg.Retire.Header, noHeader)
	}
	return none
}

// logRetirement writes a line about a retirement that the saver has tried to save. Of many
// blocks it names the first ones.
func (d *Daemon) logRetirement(r *httpapi.Retirement, by access.Caller) {
	line, what, unsaved := d.log.Info(), "block", ""
	if d.saver.problem != nil {
		line, unsaved = d.log.Warn(), ", but that is not saved yet: a crash now would make it live again"
	}
	line = line.Stringer("by", by).Str("remote", by.Remote)
	if r.Blocks == 1 {
		line = line.Str("block", d.logged(r.First[0].ID))
	} else {
		var first []string
		for _, b := range r.First[:min(len(r.First), 10)] {
			first = append(first, d.logged(b.ID))
		}
		line, what = line.Int("blocks", r.Blocks).Strs("first", first), "blocks"
	}
	line.Int64("rows", r.Rows).Str("state_digest_before", r.DigestBefore).Str("state_digest_after", r.DigestAfter).
		Msg(what + " retired" + unsaved)
}

// remains says where the rows of a block that is being retired can still be, for the
// receipt.
func (d *Daemon) remains(inBasis bool, latest time.Time) []string {
	remains := []string{d.retention.says(latest)}
	if inBasis {
		remains = append(remains, "the points of a basis, until a later one is in use (/v1/epoch)")
	}
	if d.cfg.DeadLetters.Policy == config.DeadLettersQueue {
		remains = append(remains, fmt.Sprintf("dead letters in topic %s, if records of the block were refused", d.cfg.DeadLetters.Topic))
	}
	if d.refeaturing != nil {
		remains = append(remains, fmt.Sprintf("free pages of %s, until the change of features is complete", d.refeaturing.path))
	}
	until := "until it is compacted on request (snapshot.scrub is 0)"
	if scrub := d.cfg.Snapshot.Scrub; scrub > 0 {
		until = "until it is compacted, within " + config.FormatDuration(scrub)
	}
	return append(remains,
		"free pages of the snapshot file, "+until,
		"copies and backups of the snapshot file, and blocks of the disk that it had before",
		"models, bases and predictions that were handed out before",
	)
}
