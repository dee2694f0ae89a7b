// Package retiring has blocks leave on request, and as the control topic says.
//
//	retiring.go     a request retires blocks here
//	everywhere.go   or, by the control topic, in every replica
//	withdrawing.go  the loop follows the control topic (package control)
//
// The path of a retirement is in the documentation of package daemon.
package retiring

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
	"streamd/cmd/streamd/daemon/planes"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/daemon/saving"
	"streamd/cmd/streamd/daemon/windows"
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
func (d *Departures) Retire(ctx context.Context, s retire.Selector, how httpapi.RetireOptions) (httpapi.Retirement, error) {
	r, err := d.retireBlocks(ctx, s, how)
	if !how.DryRun {
		err = d.WithEarlier(ctx, err, &s)
	}
	if id, one := s.Single(); err != nil && one {
		return r, fmt.Errorf("retire block %s: %w", id, err)
	} else if err != nil {
		return r, fmt.Errorf("retire blocks: %w", err)
	}
	return r, nil
}

// retireBlocks is Retire. The caller completes an error by WithEarlier.
func (d *Departures) retireBlocks(ctx context.Context, s retire.Selector, how httpapi.RetireOptions) (none httpapi.Retirement, err error) {
	q, err := loop.Change(ctx, d.Loop, func() (*Request, error) { return d.Ask(s, how.DryRun, access.CallerOf(ctx)) })
	if err != nil {
		return none, err
	}
	q.Choose()
	if how.DryRun {
		for few := range slices.Chunk(q.Chosen, loop.MostSlice) {
			q.InBasis, err = loop.Ask(ctx, d.Loop, func() (bool, error) { return d.AnyInBasis(few), nil })
			if q.InBasis || err != nil {
				break
			}
		}
	}
	if err != nil {
		return none, err
	}
	if !how.DryRun && !how.Here && d.Config.Retire.Topic != "" && len(q.Chosen) > 0 {
		return d.retireEverywhere(ctx, q)
	}
	done := make(chan answer, 1)
	if err := d.Do(ctx, func() error {
		d.RetireThen(q, func(r httpapi.Retirement, err error) { done <- answer{r, err} })
		return nil
	}); err != nil {
		return none, err
	}
	return d.await(ctx, done) // when ctx ends first the blocks are retired, and the save continues
}

// Departures has blocks depart on request.
type Departures struct {
	*loop.Loop
	saver       *saving.Saver
	receipts    *receipts.Receipts
	studies     *planes.Studies
	windows     *windows.Windows
	withdrawing *Withdrawing
	changing    func() string // the file of a change of features; "": there is none
}

func NewDepartures(l *loop.Loop, s *saving.Saver, rs *receipts.Receipts, y *planes.Studies, of *windows.Windows, w *Withdrawing, changing func() string) *Departures {
	return &Departures{Loop: l, saver: s, receipts: rs, studies: y, windows: of, withdrawing: w, changing: changing}
}

// answer is the outcome of a request.
type answer struct {
	retirement httpapi.Retirement
	err        error
}

// await waits for an answer of the loop.
func (d *Departures) await(ctx context.Context, done <-chan answer) (none httpapi.Retirement, err error) {
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

// AnyInBasis reports whether the points of a basis may have rows of the blocks.
func (d *Departures) AnyInBasis(blocks []retire.Entry) bool {
	return slices.ContainsFunc(blocks, func(e retire.Entry) bool { return d.Live.InBasis(e.ID) })
}

// Request is a request to retire blocks.
type Request struct {
	selector  retire.Selector
	selection *retire.Selection
	by        access.Caller
	places    *retire.View
	Chosen    []retire.Entry        // by ascending rank
	InBasis   bool                  // of a dry run: the points of a basis may have rows of theirs
	newest    map[int]*retire.Entry // of chosen, the last one of each partition
	r         httpapi.Retirement
	last      retire.Entry           // the described block of the highest rank
	spans     map[line]*retire.Range // of the described blocks, by partition of their rows
}

// Ask begins a request: it is about the blocks of now.
func (d *Departures) Ask(s retire.Selector, dryRun bool, by access.Caller) (*Request, error) {
	if err := d.windows.OfKnownTopics(s.Positions); err != nil {
		return nil, err
	}
	if err := d.saver.FlushAll(); err != nil { // so that the digests include everything read so far
		return nil, err
	}
	chosen, err := s.Selection(d.Config.Retire.Header)
	if err != nil {
		return nil, err
	}
	q := &Request{selector: s, selection: chosen, by: by, places: d.Live.Places(chosen.IDs), newest: map[int]*retire.Entry{}, spans: map[line]*retire.Range{}}
	if q.r.DryRun = dryRun; dryRun {
		q.r.Offsets, q.r.DigestBefore = d.Intake.Applied(), d.Live.Digest()
	}
	return q, nil
}

// Choose finds the blocks: live ones, archived ones, and those that the control topic has
// withdrawn. It does not need the loop. In a dry run it describes them.
func (q *Request) Choose() {
	absent := map[string]struct{}{} // an id may be given twice
	for _, id := range q.selection.IDs {
		if q.places.Has(id) {
			continue
		}
		if _, again := absent[id]; !again && len(q.r.NotLiveIDs) < ListedNames {
			q.r.NotLiveIDs = append(q.r.NotLiveIDs, id)
		}
		absent[id] = struct{}{}
	}
	q.r.NotLive = len(absent)
	if q.selection.Headers != nil {
		q.r.NoHeader = q.places.NoHeader(q.selection)
	}
	q.Chosen, q.places = q.places.Select(q.selection), nil
	for i := range q.Chosen {
		e := &q.Chosen[i]
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
func (q *Request) mayGrow(id string) bool {
	for _, e := range q.newest {
		if e.ID == id {
			return true
		}
	}
	return false
}

// describe adds a block to the description.
func (q *Request) describe(e *retire.Entry) {
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
func (q *Request) described(first []retire.Entry) httpapi.Retirement {
	for _, e := range first[:min(len(first), ListedNames)] {
		q.r.First = append(q.r.First, BlockInfo(e))
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

// RetireThen retires the blocks that a request has chosen and that are still there: live, archived
// or withdrawn. It calls answer in the loop when they are saved, in one transaction, or that has
// failed. Meanwhile the loop goes on. The log names the caller. A dry run only says which blocks
// these are.
func (d *Departures) RetireThen(q *Request, answer func(httpapi.Retirement, error)) {
	var none httpapi.Retirement
	if len(q.Chosen) == 0 {
		answer(none, d.noneLive(q))
		return
	}
	if q.r.DryRun {
		q.r.InBasis = q.InBasis
		answer(q.described(q.Chosen), nil)
		return
	}
	t := &takingOut{Departures: d, Request: q}
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
		d.saver.SaveThen(func(err error) { d.retired(q, r, t.left, err, answer) })
	}})
}

// retired answers a request whose blocks the saver has tried to save.
func (d *Departures) retired(q *Request, r httpapi.Retirement, left []*receipts.Leaf, unsaved error, answer func(httpapi.Retirement, error)) {
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
func (d *Departures) describeRetired(r *httpapi.Retirement, how receipt.Kind) {
	now := time.Now().UTC()
	if until := d.receipts.LogUntil(r.Latest); !until.IsZero() {
		r.LogUntil = &until
	}
	r.RetiredAt, r.Remains = &now, d.receipts.Remains(how, r.InBasis, r.Latest)
	if file := d.changing(); file != "" {
		r.Remains = append(r.Remains, fmt.Sprintf("free pages of %s, until the change of features is complete", file))
	}
}

// takingOut takes the blocks of a request out of their sets, in slices. They are not saved. A
// withdrawn one loses its place, so that no record of the control topic gives it back.
//
// First all blocks leave the ledger. Then the live ones leave the sums, each slice with a receipt
// of its own. A block that is replaced before its slice has not left by the request.
type takingOut struct {
	*Departures
	*Request
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
	few := t.Chosen[t.next:min(t.next+min(n, receipt.MaxItems), len(t.Chosen))]
	t.next += len(few)
	if !t.detach {
		err = t.takePlaces(few)
		if t.next == len(t.Chosen) {
			t.detach, t.next = true, 0
			t.MeasureAgain() // in the sums
		}
		return true, err
	}
	err = t.takeSums(few)
	return t.next < len(t.Chosen), err
}

// takePlaces takes blocks out of the ledger, and archived and withdrawn ones out of everything.
func (t *takingOut) takePlaces(few []retire.Entry) error {
	var live, others []string
	for i := range few {
		e, is := t.Departures.Live.Find(few[i].ID)
		switch {
		case !is || e.Position != few[i].Position || t.ended && !t.meets(&e): // it has gone, or is another one
		case e.Withdrawn || e.Archived:
			t.leaves(&e)
			others = append(others, e.ID)
		default:
			live = append(live, e.ID)
		}
	}
	t.Departures.Live.Detach(live)
	leaves, _, err := t.Departures.Live.RetireOthers(others)
	for i := range leaves {
		t.left = append(t.left, t.receipts.AddAsked(&leaves[i], t.by, &t.selector))
	}
	return err
}

// takeSums takes detached blocks out of the sums.
func (t *takingOut) takeSums(few []retire.Entry) error {
	var ids []string
	for i := range few {
		if e, is := t.Departures.Live.Detached(few[i].ID); is && e.Position == few[i].Position {
			t.leaves(&e)
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	departure, err := t.Departures.Live.RetireTogether(ids, t.beside)
	if departure != nil {
		t.left = append(t.left, t.receipts.AddAsked(departure, t.by, &t.selector))
	}
	t.live += len(ids)
	return err
}

// leaves describes a block that leaves now.
func (t *takingOut) leaves(e *retire.Entry) {
	t.describe(e)
	t.r.InBasis = t.r.InBasis || t.Departures.Live.InBasis(e.ID)
	t.first = append(t.first, *e)
	if len(t.first) >= 2*ListedNames {
		t.first = firstOf(t.first)
	}
}

// firstOf is the first blocks by rank, as many as an answer lists.
func firstOf(blocks []retire.Entry) []retire.Entry {
	slices.SortFunc(blocks, func(a, b retire.Entry) int { return a.Rank().Compare(b.Rank()) })
	return blocks[:min(len(blocks), ListedNames)]
}

// arrives reports whether blocks may come between two slices. Before the first one comes the sums
// are copied, since the answer has the digest of those without it.
func (t *takingOut) arrives() bool {
	switch limited := t.Departures.Live.Limited(); {
	case limited && !t.detach: // the policy goes by the ledger without the blocks
		return false
	case t.receipts.Key != nil && (limited || t.ended || t.Config.Retire.Topic != ""):
		// A replay has the blocks of each receipt leave at its offsets. There the policy, the open
		// blocks and the control topic must find what they have found here.
		return false
	}
	if t.beside == nil {
		sums := t.Departures.Live.InUse().Total()
		if t.Departures.Live.Price()+float64(sums.Bytes()) > t.Memory.Room() {
			return false
		}
		t.beside = sums.Clone()
	}
	return true
}

// done is the description of the blocks, all of which have left.
func (t *takingOut) done() httpapi.Retirement {
	d := t.Departures
	t.r.DigestAfter = d.Live.Digest()
	if t.beside != nil {
		t.r.DigestAfter = live.DigestOf(t.beside)
	}
	r := t.described(firstOf(t.first))
	if r.Blocks == 0 {
		return r
	}
	d.Intake.CountRetired(t.live)
	d.studies.BlocksChanged()
	d.windows.Clear()
	d.studies.SayStale()
	return r
}

// BlockInfo describes a block.
func BlockInfo(e retire.Entry) httpapi.BlockInfo {
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

// ListedNames bounds the blocks, and the ids, that a retirement lists.
const ListedNames = 100

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

// WithEarlier names the receipts of an earlier request of the same text in the error of one that
// has chosen no block. It reads leaves of the log, so the loop does not wait for it.
func (d *Departures) WithEarlier(ctx context.Context, err error, s *retire.Selector) error {
	none := (*noneError)(nil)
	if !errors.As(err, &none) {
		return err
	}
	earlier, failed := d.receipts.Earlier(ctx, s, none.names[:min(len(none.names), ListedNames)])
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
func (d *Departures) noneLive(q *Request) error {
	s, names, noHeader := q.selector, q.selection.IDs, q.r.NoHeader
	if !q.r.DryRun && (names == nil && d.Live.HasGone() || slices.ContainsFunc(names, d.Live.IsGone)) {
		if d.saver.Save() != nil {
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
func (d *Departures) logRetirement(r *httpapi.Retirement, by access.Caller, failed error) {
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
