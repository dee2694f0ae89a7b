package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/retire"
	"streamd/retire/receipt"
)

var errRetiredUnsaved = fmt.Errorf("it is retired, but that could not be saved yet; the next snapshot will have it, and with receipts, the same request then names them: %w", httpapi.ErrUnavailable)

// Retire implements httpapi.Service. A request goes through the loop twice. First the loop says
// which blocks there are, and later it takes out those that were chosen and are still there. In
// between it does other things.
func (d *Daemon) Retire(ctx context.Context, s retire.Selector, how httpapi.RetireOptions) (httpapi.Retirement, error) {
	r, err := d.retireBlocks(ctx, s, how)
	if !how.DryRun {
		err = d.withEarlier(ctx, err, &s)
	}
	if id, one := s.Single(); err != nil && one {
		return r, fmt.Errorf("retire block %s: %w", id, err)
	} else if err != nil {
		return r, fmt.Errorf("retire blocks: %w", err)
	}
	return r, nil
}

// retireBlocks is Retire. The caller completes an error by withEarlier.
func (d *Daemon) retireBlocks(ctx context.Context, s retire.Selector, how httpapi.RetireOptions) (none httpapi.Retirement, err error) {
	q, err := loop.Change(ctx, d.Loop, func() (*request, error) { return d.ask(s, how.DryRun, access.CallerOf(ctx)) })
	if err != nil {
		return none, err
	}
	q.choose()
	if how.DryRun {
		for few := range slices.Chunk(q.chosen, loop.MostSlice) {
			q.r.InBasis, err = loop.Ask(ctx, d.Loop, func() (bool, error) { return d.anyInBasis(few), nil })
			if q.r.InBasis || err != nil {
				break
			}
		}
	}
	if err != nil {
		return none, err
	}
	if !how.DryRun && !how.Here && d.Config.Retire.Topic != "" && len(q.chosen) > 0 {
		return d.retireEverywhere(ctx, q)
	}
	done := make(chan answer, 1)
	if err := d.Do(ctx, func() error {
		d.retireThen(q, func(r httpapi.Retirement, err error) { done <- answer{r, err} })
		return nil
	}); err != nil {
		return none, err
	}
	return d.await(ctx, done) // when ctx ends first the blocks are retired, and the save continues
}

// answer is the outcome of a request.
type answer struct {
	retirement httpapi.Retirement
	err        error
}

// await waits for an answer of the loop.
func (d *Daemon) await(ctx context.Context, done <-chan answer) (none httpapi.Retirement, err error) {
	select {
	case a := <-done:
		return a.retirement, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-d.LoopDone:
		select {
		case a := <-done:
			return a.retirement, a.err
		default:
			return none, d.Ended()
		}
	}
}

func (d *Daemon) anyInBasis(blocks []retire.Entry) bool {
	return slices.ContainsFunc(blocks, func(e retire.Entry) bool { return d.Live.InBasis(e.ID) })
}

// request is a request to retire blocks.
type request struct {
	selector  retire.Selector
	selection *retire.Selection
	by        access.Caller
	places    *retire.View
	chosen    []retire.Entry        // by ascending rank
	newest    map[int]*retire.Entry // of chosen, the last one of each partition
	r         httpapi.Retirement
	last      retire.Entry           // the described block of the highest rank
	spans     map[line]*retire.Range // of the described blocks, by partition of their rows
}

// ask begins a request: it is about the blocks of now.
func (d *Daemon) ask(s retire.Selector, dryRun bool, by access.Caller) (*request, error) {
	if err := d.OfKnownTopics(s.Positions); err != nil {
		return nil, err
	}
	if err := d.flushAll(); err != nil { // so that the digests include everything read so far
		return nil, err
	}
	chosen, err := s.Selection(d.Config.Retire.Header)
	if err != nil {
		return nil, err
	}
	q := &request{selector: s, selection: chosen, by: by, places: d.Live.Places(chosen.IDs), newest: map[int]*retire.Entry{}, spans: map[line]*retire.Range{}}
	if q.r.DryRun = dryRun; dryRun {
		q.r.Offsets, q.r.DigestBefore = d.Intake.Applied(), d.Live.Digest()
	}
	return q, nil
}

// choose finds the blocks: live ones, archived ones, and those that the control topic has
// withdrawn. It does not need the loop. In a dry run it describes them.
func (q *request) choose() {
	absent := map[string]struct{}{} // an id may be given twice
	for _, id := range q.selection.IDs {
		if q.places.Has(id) {
			continue
		}
		if _, again := absent[id]; !again && len(q.r.NotLiveIDs) < listedNames {
			q.r.NotLiveIDs = append(q.r.NotLiveIDs, id)
		}
		absent[id] = struct{}{}
	}
	q.r.NotLive = len(absent)
	if q.selection.Headers != nil {
		q.r.NoHeader = q.places.NoHeader(q.selection)
	}
	q.chosen, q.places = q.places.Select(q.selection), nil
	for i := range q.chosen {
		e := &q.chosen[i]
		if q.r.DryRun {
			q.describe(e)
		}
		if e.Carrier.Sums {
			continue // it came whole
		}
		if last := q.newest[e.Position.Partition]; last == nil || last.Position.Offset < e.Position.Offset {
			q.newest[e.Position.Partition] = e
		}
	}
}

// line is a partition of a topic.
type line struct {
	topic     string
	partition int
}

// mayGrow reports whether a chosen block of this id may still be growing.
func (q *request) mayGrow(id string) bool {
	for _, e := range q.newest {
		if e.ID == id {
			return true
		}
	}
	return false
}

// describe adds a block to the description.
func (q *request) describe(e *retire.Entry) {
	r := &q.r
	if r.Rows += e.Rows; e.Withdrawn {
		r.Withdrawn++
	} else if e.Archived {
		r.Archived++
	}
	if r.Blocks == 0 || e.Rank().Compare(q.last.Rank()) > 0 {
		q.last = *e
	}
	r.Blocks++
	p := e.Position
	of := line{p.Topic, p.Partition}
	span := q.spans[of]
	if span == nil {
		span = &retire.Range{Topic: p.Topic, Partition: p.Partition, First: p.Offset, Last: e.Last}
		q.spans[of] = span
	}
	span.First, span.Last = min(span.First, p.Offset), max(span.Last, e.Last)
}

// described is the description of the blocks. first are the first ones.
func (q *request) described(first []retire.Entry) httpapi.Retirement {
	for _, e := range first[:min(len(first), listedNames)] {
		q.r.First = append(q.r.First, blockInfo(e))
	}
	if len(q.r.First) > 0 {
		q.r.Earliest, q.r.Latest = q.r.First[0].Time, retire.NearestTime(q.last.Time).UTC()
	}
	for _, span := range q.spans {
		q.r.Positions = append(q.r.Positions, *span)
	}
	slices.SortFunc(q.r.Positions, func(a, b retire.Range) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return q.r
}

// retireThen retires the blocks that a request has chosen and that are still there: live, archived
// or withdrawn. It calls answer in the loop when they are saved, in one transaction, or that has
// failed. Meanwhile the loop goes on. The log names the caller. A dry run only says which blocks
// these are.
func (d *Daemon) retireThen(q *request, answer func(httpapi.Retirement, error)) {
	var none httpapi.Retirement
	if len(q.chosen) == 0 {
		answer(none, d.noneLive(q))
		return
	}
	if q.r.DryRun {
		answer(q.described(q.chosen), nil)
		return
	}
	t := &takingOut{Daemon: d, request: q}
	var err error
	if t.ended, err = d.Intake.EndBlocks(d.Background, q.mayGrow); err == nil { // later records begin other blocks
		err = d.Live.Settle()
	}
	if err != nil {
		d.Fail(err)
		answer(none, err)
		return
	}
	if t.ended {
		t.meets = q.selection.Meets()
	}
	q.r.Offsets, q.r.DigestBefore = d.Intake.Applied(), d.Live.Digest()
	if d.Live.Controlled() {
		d.receipts.AddDepartures()
	}
	d.InSlices(&loop.SlicedWork{Slice: t.slice, Arrives: t.arrives, End: func(err error) {
		if err != nil {
			answer(none, err)
			return
		}
		r := t.done()
		if r.Blocks == 0 {
			answer(none, d.noneLive(q))
			return
		}
		d.Saver.SaveThen(func(err error) { d.retired(q, r, t.left, err, answer) })
	}})
}

// retired answers a request whose blocks the saver has tried to save.
func (d *Daemon) retired(q *request, r httpapi.Retirement, left []*receipts.Leaf, unsaved error, answer func(httpapi.Retirement, error)) {
	d.logRetirement(&r, q.by, unsaved) // the caller may have disconnected before the answer
	if unsaved != nil {
		answer(httpapi.Retirement{}, errRetiredUnsaved)
		return
	}
	d.EventLog.Add(retirementEvent("on request", httpapi.RetirementEvent{
		Blocks: r.Blocks, Rows: r.Rows, Archived: r.Archived, DigestBefore: r.DigestBefore, DigestAfter: r.DigestAfter,
	}))
	d.describeRetired(&r, receipt.Retired)
	d.receipts.Name(&r, left, &q.selector)
	answer(r, nil)
}

// describeRetired tells when blocks were retired, and where their rows may remain.
func (d *Daemon) describeRetired(r *httpapi.Retirement, how receipt.Kind) {
	now := time.Now().UTC()
	if until := d.receipts.LogUntil(r.Latest); !until.IsZero() {
		r.LogUntil = &until
	}
	r.RetiredAt, r.Remains = &now, d.receipts.Remains(how, r.InBasis, r.Latest)
	if file := d.Features.File(); file != "" {
		r.Remains = append(r.Remains, fmt.Sprintf("free pages of %s, until the change of features is complete", file))
	}
}

// takingOut takes the blocks of a request out of their sets, in slices. They are not saved. A
// withdrawn one loses its place, so that no record of the control topic gives it back.
//
// First all blocks leave the ledger. Then the live ones leave the sums, each slice with a receipt
// of its own. A block that is replaced before its slice has not left by the request.
type takingOut struct {
	*Daemon
	*request
	ended  bool                     // blocks that were growing
	meets  func(*retire.Entry) bool // a block that has ended may be another one than was chosen
	next   int                      // of chosen
	detach bool                     // the first pass is complete
	live   int                      // number of blocks that have left the sums
	beside *incremental.State       // sums without blocks that have come meanwhile; nil: none has
	first  []retire.Entry           // of those that have left
	left   []*receipts.Leaf
}

func (t *takingOut) slice(n int) (more bool, err error) {
	few := t.chosen[t.next:min(t.next+min(n, receipt.MaxItems), len(t.chosen))]
	t.next += len(few)
	if !t.detach {
		err = t.takePlaces(few)
		if t.next == len(t.chosen) {
			t.detach, t.next = true, 0
			t.MeasureAgain() // in the sums
		}
		return true, err
	}
	err = t.takeSums(few)
	return t.next < len(t.chosen), err
}

// takePlaces takes blocks out of the ledger, and archived and withdrawn ones out of everything.
func (t *takingOut) takePlaces(few []retire.Entry) error {
	var live, others []string
	for i := range few {
		e, is := t.Daemon.Live.Find(few[i].ID)
		switch {
		case !is || e.Position != few[i].Position || t.ended && !t.meets(&e): // it has gone, or is another one
		case e.Withdrawn || e.Archived:
			t.leaves(&e)
			others = append(others, e.ID)
		default:
			live = append(live, e.ID)
		}
	}
	t.Daemon.Live.Detach(live)
	leaves, _, err := t.Daemon.Live.RetireOthers(others)
	for i := range leaves {
		t.left = append(t.left, t.receipts.AddAsked(&leaves[i], t.by, &t.selector))
	}
	return err
}

// takeSums takes detached blocks out of the sums.
func (t *takingOut) takeSums(few []retire.Entry) error {
	var ids []string
	for i := range few {
		if e, is := t.Daemon.Live.Detached(few[i].ID); is && e.Position == few[i].Position {
			t.leaves(&e)
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	departure, err := t.Daemon.Live.RetireTogether(ids, t.beside)
	if departure != nil {
		t.left = append(t.left, t.receipts.AddAsked(departure, t.by, &t.selector))
	}
	t.live += len(ids)
	return err
}

// leaves describes a block that leaves now.
func (t *takingOut) leaves(e *retire.Entry) {
	t.describe(e)
	t.r.InBasis = t.r.InBasis || t.Daemon.Live.InBasis(e.ID)
	t.first = append(t.first, *e)
	if len(t.first) >= 2*listedNames {
		t.first = firstOf(t.first)
	}
}

// firstOf is the first blocks by rank, as many as an answer lists.
func firstOf(blocks []retire.Entry) []retire.Entry {
	slices.SortFunc(blocks, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
	return blocks[:min(len(blocks), listedNames)]
}

// arrives reports whether blocks may come between two slices. Before the first one comes the sums
// are copied, since the answer has the digest of those without it.
func (t *takingOut) arrives() bool {
	switch limited := t.Daemon.Live.Limited(); {
	case limited && !t.detach: // the policy goes by the ledger without the blocks
		return false
	case t.receipts.Key != nil && (limited || t.ended || t.Config.Retire.Topic != ""):
		// A replay has the blocks of each receipt leave at its offsets. There the policy, the open
		// blocks and the control topic must find what they have found here.
		return false
	}
	if t.beside == nil {
		sums := t.Daemon.Live.InUse().Total()
		if t.Daemon.Live.Price()+float64(sums.Bytes()) > t.Memory.Room() {
			return false
		}
		t.beside = sums.Clone()
	}
	return true
}

// done is the description of the blocks, all of which have left.
func (t *takingOut) done() httpapi.Retirement {
	d := t.Daemon
	t.r.DigestAfter = d.Live.Digest()
	if t.beside != nil {
		t.r.DigestAfter = live.DigestOf(t.beside)
	}
	r := t.described(firstOf(t.first))
	if r.Blocks == 0 {
		return r
	}
	d.Intake.CountRetired(t.live)
	d.Studies.BlocksChanged()
	d.Windows.Clear()
	d.publisher.SayStale()
	return r
}

// flushAll makes the rows of all open runs live, and saves whenever they have no room
// before.
func (d *Daemon) flushAll() error {
	for {
		all, err := d.FlushRuns()
		if err != nil || all {
			return err
		}
		if d.Saver.Save() != nil {
			return fmt.Errorf("the rows read last have no room before the next snapshot, which could not be saved: %w", httpapi.ErrUnavailable)
		}
	}
}

// listedNames bounds the blocks, and the ids, that a retirement lists.
const listedNames = 100

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
func (d *Daemon) withEarlier(ctx context.Context, err error, s *retire.Selector) error {
	none := (*noneError)(nil)
	if !errors.As(err, &none) {
		return err
	}
	earlier, failed := d.receipts.Earlier(ctx, s, none.names[:min(len(none.names), listedNames)])
	if failed != nil {
		return failed
	}
	if earlier != "" {
		none.hint = earlier
	}
	return none
}

// noneLive is the error for a request that chooses no block. Before an answer says so, the blocks
// that have gone are saved: a crash could make them live again. It is a *noneError, unless the save
// fails.
func (d *Daemon) noneLive(q *request) error {
	s, names, noHeader := q.selector, q.selection.IDs, q.r.NoHeader
	if !q.r.DryRun && (names == nil && d.Live.HasGone() || slices.ContainsFunc(names, d.Live.IsGone)) {
		if d.Saver.Save() != nil {
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
		// One may also be as it is in the topic, in its envelope.
		for _, key := range []string{id, strings.TrimPrefix(id, retire.KeyPrefix), intake.ShortKey(d.Config, id)} {
			byKey := retire.KeyID(key)
			if _, ok := d.Live.Get(byKey); ok {
				none.hint = fmt.Sprintf("the live block of the key %q has the id %s", key, byKey)
				if strings.Contains(byKey, "%") {
					none.hint += ", in a path " + url.PathEscape(byKey)
				}
				break
			}
		}
	} else if unit := d.Config.Blocks.Unit; len(s.Keys) > 0 && unit != config.UnitKey {
		none.hint = fmt.Sprintf("no block has a key, since blocks.unit is %s", unit)
	} else if noHeader > 0 {
		none.hint = fmt.Sprintf("blocks without a value of the header %s: %d; their records lack it, or were read before retire.header was set", d.Config.Retire.Header, noHeader)
	}
	return none
}

// logRetirement writes a line about a retirement that the saver has tried to save. Of many
// blocks it names the first ones.
func (d *Daemon) logRetirement(r *httpapi.Retirement, by access.Caller, failed error) {
	line, what, unsaved := d.Log.Info(), "block", ""
	if failed != nil {
		line, unsaved = d.Log.Warn(), ", but that is not saved yet: a crash now would make it live again"
	}
	line = line.Stringer("by", by).Str("remote", by.Remote)
	if r.Blocks == 1 {
		line = line.Str("block", d.Logged(r.First[0].ID))
	} else {
		var first []string
		for _, b := range r.First[:min(len(r.First), 10)] {
			first = append(first, d.Logged(b.ID))
		}
		line, what = line.Int("blocks", r.Blocks).Strs("first", first), "blocks"
	}
	line.Int64("rows", r.Rows).Str("state_digest_before", r.DigestBefore).Str("state_digest_after", r.DigestAfter).
		Msg(what + " retired" + unsaved)
}
