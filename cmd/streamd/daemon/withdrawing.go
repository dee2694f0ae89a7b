package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/events"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/snapshot"
)

// withdrawing is the loop's part in following the control topic (package control): it
// withdraws the blocks that the topic's selections choose, and has those read again that none
// chooses any more.
//
// Every method except follow and take belongs to the loop.
type withdrawing struct {
	*core
	saver    *saver
	studying *studying
	windows  *windowCache
	events   *events.Log
	reader   *control.Reader // nil without a control topic

	caughtUp bool          // all selections are known that the topic had at the start
	known    map[int]int64 // before that: offsets below which the topic has been read

	reading *job                    // the pass over the log that is under way, or nil
	again   time.Time               // when the next pass may begin
	unread  map[string]retire.Entry // due blocks that the log does not return

	rebuilding *rebuilding // which takes up the basis of the topic

	write func(ctx context.Context, records []control.Record) error // to the control topic
	asked map[string]*everywhere                                    // requests by the names of their records that have not come yet
}

// followed has the offsets below which the live set follows the control topic. A start reads the
// topic from its beginning, and the set follows what is new once all is known.
type followed struct {
	next  map[int]int64 // of each partition
	moved bool          // since the last save
}

func (f *followed) move(partition int, next int64) {
	if next > f.next[partition] {
		f.next[partition], f.moved = next, true
	}
}

// offsets lists the offsets, by partition.
func (f *followed) offsets(topic string) (all []model.Offset) {
	for _, partition := range slices.Sorted(maps.Keys(f.next)) {
		all = append(all, model.Offset{Topic: topic, Partition: partition, Next: f.next[partition]})
	}
	return all
}

// takeMoved lists the offsets to save and marks them as saved. undo marks them as moved again.
func (f *followed) takeMoved(topic string) (offsets []snapshot.Offset, undo func()) {
	if !f.moved {
		return nil, func() {}
	}
	f.moved = false
	for _, partition := range slices.Sorted(maps.Keys(f.next)) {
		offsets = append(offsets, snapshot.Offset{Topic: topic, Partition: partition, Next: f.next[partition]})
	}
	return offsets, func() { f.moved = true }
}

// betweenWithdrawn is the time between two passes, so that blocks are read in long ones.
const betweenWithdrawn = time.Second

func newWithdrawing(c *core, s *saver, y *studying) *withdrawing {
	return &withdrawing{core: c, saver: s, studying: y, unread: map[string]retire.Entry{}, asked: map[string]*everywhere{}, known: map[int]int64{}}
}

// restore makes the reader of the topic. saved are the offsets of a snapshot.
func (w *withdrawing) restore(saved []snapshot.Offset) error {
	topic := w.cfg.Retire.Topic
	follows := map[int]int64{}
	for _, o := range saved {
		switch o.Topic {
		case topic:
			follows[o.Partition] = o.Next
			w.saver.control.next[o.Partition] = o.Next
		case w.cfg.Kafka.Topic, w.cfg.Labels.Topic:
		default:
			w.log.Warn().Str("former", o.Topic).Str("topic", topic).
				Msg("the snapshot has followed another control topic: what only that one retires comes back")
		}
	}
	if topic == "" {
		return nil
	}
	cluster, err := Cluster(w.cfg.Kafka, w.log)
	if err != nil {
		return err
	}
	w.write = func(ctx context.Context, records []control.Record) error {
		err := control.Write(ctx, cluster, topic, records, w.log)
		w.reader.Look()
		return err
	}
	w.rebuilding.shared.topic, w.rebuilding.write = topic, w.write
	w.reader, err = control.NewReader(control.Settings{Cluster: cluster, Topic: topic, Header: w.cfg.Retire.Header, Keyed: w.cfg.Blocks.Unit == config.UnitKey, Log: w.log, MaxMessageBytes: w.memory.Message, Model: w.cfg.Model.Name, MaxBasisBytes: w.memory.Basis, Saved: follows, Take: w.take})
	return err
}

// follow follows the control topic until ctx ends. It returns when the selections that the
// topic has now are in force. stop is called with the error that ends it, and end waits for
// the end.
func (w *withdrawing) follow(ctx context.Context, stop func(error)) (end func()) {
	caughtUp := make(chan struct{})
	caught := func() {
		w.call(ctx, func() error {
			return w.catchUp()
		})
		close(caughtUp)
	}
	if w.reader == nil {
		caught()
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		if err := w.reader.Run(ctx, caught); err != nil {
			stop(err)
		}
	})
	select {
	case <-caughtUp:
		w.log.Info().Str("topic", w.cfg.Retire.Topic).Msg("the control topic is followed")
	case <-ctx.Done():
	}
	return func() {
		cancel()
		following.Wait()
		w.reader.Close()
	}
}

// catchUp has the blocks follow the selections, all of which are known now.
func (w *withdrawing) catchUp() error {
	w.caughtUp = true
	for partition, next := range w.known {
		w.saver.control.move(partition, next)
	}
	w.studying.publisher.changed = true // the served value names the positions
	before := w.live.Digest()
	gone, err := w.live.FollowWithdrawals()
	if err != nil {
		w.fail(err)
		return err
	}
	w.withdrew(gone, before)
	w.rebuilding.sharedKnown()
	return nil
}

// take takes changes of the control topic.
func (w *withdrawing) take(ctx context.Context, partition int, next int64, changes []control.Change) error {
	return w.call(ctx, func() error {
		if w.failure != nil {
			return errStopping
		}
		gone, before := live.Withdrawal{}, w.live.Digest()
		var asked []*everywhere // requests all of whose records have come
		for _, c := range changes {
			if c.Basis != nil {
				w.rebuilding.sharedCame(c.Basis)
				continue
			}
			if e := w.asked[c.Name]; e != nil {
				if e.r.DigestBefore == "" {
					e.r.Offsets, e.r.DigestBefore, e.r.InBasis = w.intake.Applied(), before, e.anyInBasis(e.chosen)
				}
				if e.left--; e.left == 0 {
					asked = append(asked, e)
				}
			}
			more, err := w.live.Withdraw(c.Name, c.Selection)
			if err != nil {
				w.fail(err)
				return err
			}
			gone.Add(more)
		}
		if w.caughtUp {
			w.saver.control.move(partition, next)
		} else {
			w.known[partition] = next
		}
		w.studying.publisher.changed = true // the served value names the position
		w.withdrew(gone, before)
		for _, e := range asked {
			w.whenSettled(e.followed)
		}
		return nil
	})
}

// withdrew tells that blocks were withdrawn, once they have left the sums. before is the digest
// before that.
func (w *withdrawing) withdrew(gone live.Withdrawal, before string) {
	if gone.Blocks+gone.Archived == 0 {
		return
	}
	w.whenSettled(func(err error) {
		if err == nil {
			w.tell(gone, before)
		}
	})
}

func (w *withdrawing) tell(gone live.Withdrawal, before string) {
	all := gone.Blocks + gone.Archived
	w.windows.clear()
	if gone.Archived > 0 {
		w.log.Info().Int("blocks", gone.Archived).Msg("the control topic has retired archived blocks")
	}
	after := before
	if gone.Blocks > 0 {
		w.intake.CountRetired(gone.Blocks)
		w.studying.blocksChanged()
		w.studying.publisher.sayStale()
		after = w.live.Digest()
		w.log.Info().Int("blocks", gone.Blocks).Int64("rows", gone.Rows).Str("state_digest", after).Msg("the control topic has retired blocks")
	}
	w.events.Add(retirementEvent("by the control topic", httpapi.RetirementEvent{
		Blocks: all, Rows: gone.Rows + gone.ArchivedRows, Archived: gone.Archived, DigestBefore: before, DigestAfter: after,
	}))
}

// retirementEvent tells of a retirement. how says who has asked for it.
func retirementEvent(how string, of httpapi.RetirementEvent) httpapi.Event {
	text := fmt.Sprintf("blocks retired %s: %d, with %d rows", how, of.Blocks, of.Rows)
	if of.Archived > 0 {
		text += fmt.Sprintf("; archived ones among them: %d", of.Archived)
	}
	return httpapi.Event{Type: httpapi.EventRetirement, Text: text, Retirement: &of}
}

// unreadable is the number of keys of the control topic whose latest record cannot be read.
func (w *withdrawing) unreadable() int {
	if w.reader == nil {
		return 0
	}
	return w.reader.Unreadable()
}

// conditions lists what the operator should know.
func (w *withdrawing) conditions() (all []httpapi.Problem) {
	if w.reader != nil {
		all = w.readingConditions()
	}
	if n := len(w.unread); n > 0 {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemWithdrawn, Subject: "blocks", Count: int64(n),
			Text: fmt.Sprintf("%d blocks stay retired although the control topic does not retire them any more, since the log does not return them", n),
		})
	}
	return all
}

// readingConditions are those of the topic itself.
func (w *withdrawing) readingConditions() (all []httpapi.Problem) {
	topic, trouble := w.cfg.Retire.Topic, w.reader.Trouble()
	if trouble != "" {
		trouble = ": " + trouble
	}
	if !w.caughtUp {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemControl, Subject: "start",
			Text: fmt.Sprintf("the control topic %s has not been read up to its end, and nothing else is read before that%s", topic, trouble),
		})
	} else if trouble != "" {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemControl, Subject: "read",
			Text: fmt.Sprintf("the control topic %s cannot be read, so no later record of it is in force%s", topic, trouble),
		})
	}
	if w.reader.Shortened() {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemControl, Subject: "deleted",
			Text:   fmt.Sprintf("records of the control topic %s were deleted: what they retire stays retired until the daemon ends, and the next start will fail", topic),
			Action: "write them again, to a topic of another name with cleanup.policy=compact",
		})
	}
	if n := w.unreadable(); n > 0 {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemWithdrawn, Subject: "keys", Count: int64(n),
			Text:   fmt.Sprintf("keys of the control topic %s whose latest record cannot be read, and changes nothing: %d; the log says why", topic, n),
			Action: "write good records of these keys",
		})
	}
	return all
}

// whenDue begins a pass over the log for the blocks that are due.
func (w *withdrawing) whenDue(now time.Time) {
	if !w.caughtUp || w.reading != nil || now.Before(w.again) || w.rests(taskWithdraw, now) {
		return
	}
	maps.DeleteFunc(w.unread, func(id string, e retire.Entry) bool {
		is, ok := w.live.Find(id)
		return !ok || is != e
	})
	due := slices.DeleteFunc(w.live.Due(), func(e retire.Entry) bool { return w.unread[e.ID] == e || !w.intake.HasLabel(e.ID) })
	if len(due) == 0 {
		return
	}
	w.again = now.Add(betweenWithdrawn)
	blocks := w.live.Moment(due)
	w.reading = w.begin(taskWithdraw, true, func(ctx context.Context) func() { return w.read(ctx, blocks) }, func(error) { w.reading = nil })
}

// read reads blocks again and has the loop give them back to the sums.
func (w *withdrawing) read(ctx context.Context, blocks *live.Blocks) (end func()) {
	w.log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again that the control topic does not retire any more")
	given, atOnce := 0, 1
	if names := w.live.Target().Features; names != nil {
		atOnce = min(max(takenAtOnce/(8*gram.PackedLen(len(*names))), 1), offersAtOnce)
	}
	take := func(e retire.Entry, k live.Kept) error {
		if w.failure != nil {
			return errStopping
		}
		if w.saver.problem != nil && w.live.Unsaved() >= w.cfg.Snapshot.Blocks {
			return errUnsaved
		}
		if !w.intake.IsLabelled(e.ID, &k) { // it has another label by now, and is read again
			return nil
		}
		ok, err := w.live.GiveBack(e, k)
		if ok {
			given++
		}
		if ok && !e.Archived {
			w.intake.CountGivenBack()
			w.studying.blocksChanged()
		}
		return err
	}
	var sums []retire.Entry
	blocks.Entries = slices.DeleteFunc(blocks.Entries, func(e retire.Entry) bool {
		if e.Carrier.Sums {
			sums = append(sums, e)
		}
		return e.Carrier.Sums
	})
	unread, err := readAgain(ctx, w.topic, w.live, w.call, blocks, false, atOnce, func(z *passes.Worker, b *incremental.Block, _ *incremental.Summary) (live.Kept, error) {
		return z.Keeper.Keep(ctx, b, w.live.Target())
	}, take)
	if err == nil && len(sums) > 0 {
		var more []live.Unread
		more, err = readSums(ctx, w.topic, w.live, w.call, sums, take)
		unread = append(unread, more...)
	}
	return func() {
		w.reading = nil
		if given > 0 {
			w.log.Info().Int("blocks", given).Str("state_digest", w.live.Digest()).Msg("blocks are live, or archived, again that the control topic does not retire any more")
		}
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, errStopping) && !errors.Is(err, errChanging) {
				w.again = time.Now().Add(afterFailure)
				w.log.Error().Err(err).Msg("blocks that the control topic does not retire any more could not be read again; it will be tried again")
			}
			return
		}
		for _, u := range unread {
			w.unread[u.ID] = u.Entry
		}
		if n := len(unread); n > 0 {
			w.log.Warn().Int("blocks", n).Str("block", w.logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
				Msg("blocks that the control topic does not retire any more stay retired, since the log does not return them")
		}
	}
}
