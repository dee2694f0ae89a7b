package retiring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/bases"
	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/passes"
	"streamd/cmd/streamd/daemon/planes"
	"streamd/cmd/streamd/daemon/saving"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/daemon/windows"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/incremental"
	"streamd/retire"
)

// Withdrawing is the loop's part in following the control topic (package control): it
// withdraws the blocks that the topic's selections choose, and has those read again that none
// chooses any more.
//
// Every method except Follow and Take belongs to the loop.
type Withdrawing struct {
	*loop.Loop
	saver    *saving.Saver
	studies  *planes.Studies
	bases    *bases.Bases // which takes up the basis of the topic
	followed *control.Followed
	windows  *windows.Windows
	Reader   *control.Reader // nil without a control topic

	caughtUp bool          // all selections are known that the topic had at the start
	known    map[int]int64 // before that: offsets below which the topic has been read

	Reading *loop.Job               // the pass over the log that is under way, or nil
	Again   time.Time               // when the next pass may begin
	Unread  map[string]retire.Entry // due blocks that the log does not return

	Write func(ctx context.Context, records []control.Record) error // to the control topic
	asked map[string]*everywhere                                    // requests by the names of their records that have not come yet
}

// betweenWithdrawn is the time between two passes, so that blocks are read in long ones.
const betweenWithdrawn = time.Second

// NewWithdrawing makes the reader of the topic, if there is one.
func NewWithdrawing(c *loop.Loop, s *saving.Saver, y *planes.Studies, b *bases.Bases, follows *control.Followed, windows *windows.Windows) (w *Withdrawing, err error) {
	w = &Withdrawing{
		Loop: c, saver: s, studies: y, bases: b, followed: follows, windows: windows,
		Unread: map[string]retire.Entry{}, asked: map[string]*everywhere{}, known: map[int]int64{},
	}
	topic := w.Config.Retire.Topic
	if topic == "" {
		return w, nil
	}
	cluster, err := settings.Cluster(w.Config.Kafka, w.Log)
	if err != nil {
		return nil, err
	}
	w.Write = func(ctx context.Context, records []control.Record) error {
		err := control.Write(ctx, cluster, topic, records, w.Log)
		w.Reader.Look()
		return err
	}
	w.Reader, err = control.NewReader(control.Settings{
		Cluster: cluster, Topic: topic, Header: w.Config.Retire.Header, Keyed: w.Config.Blocks.Unit == config.UnitKey, Log: w.Log, MaxMessageBytes: w.Memory.Message,
		Model: w.Config.Model.Name, MaxBasisBytes: w.Memory.Basis, Saved: follows.Next(), Take: w.Take,
	})
	return w, err
}

// Follow follows the control topic until ctx ends. It returns when the selections that the
// topic has now are in force. stop is called with the error that ends it, and end waits for
// the end.
func (w *Withdrawing) Follow(ctx context.Context, stop func(error)) (end func()) {
	caughtUp := make(chan struct{})
	caught := func() {
		w.Call(ctx, func() error {
			return w.CatchUp()
		})
		close(caughtUp)
	}
	if w.Reader == nil {
		caught()
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		if err := w.Reader.Run(ctx, caught); err != nil {
			stop(err)
		}
	})
	select {
	case <-caughtUp:
		w.Log.Info().Str("topic", w.Config.Retire.Topic).Msg("the control topic is followed")
	case <-ctx.Done():
	}
	return func() {
		cancel()
		following.Wait()
		w.Reader.Close()
	}
}

// CatchUp has the blocks follow the selections, all of which are known now.
func (w *Withdrawing) CatchUp() error {
	w.caughtUp = true
	for partition, next := range w.known {
		w.followed.Move(partition, next)
	}
	w.studies.Changed() // the served value names the positions
	before := w.Live.Digest()
	gone, err := w.Live.FollowWithdrawals()
	if err != nil {
		return w.Fail(err)
	}
	w.withdrew(gone, before)
	w.bases.SharedKnown()
	return nil
}

// Take takes changes of the control topic.
func (w *Withdrawing) Take(ctx context.Context, partition int, next int64, changes []control.Change) error {
	return w.Do(ctx, func() error {
		gone, before := live.Withdrawal{}, w.Live.Digest()
		var asked []*everywhere // requests all of whose records have come
		for _, c := range changes {
			if c.Basis != nil {
				w.bases.SharedCame(c.Basis)
				continue
			}
			if e := w.asked[c.Name]; e != nil {
				if e.r.DigestBefore == "" {
					e.r.Offsets, e.r.DigestBefore, e.r.InBasis = w.Intake.Applied(), before, e.AnyInBasis(e.Chosen)
				}
				if e.left--; e.left == 0 {
					asked = append(asked, e)
				}
			}
			more, err := w.Live.Withdraw(c.Name, c.Selection)
			if err != nil {
				return w.Fail(err)
			}
			gone.Add(more)
		}
		if w.caughtUp {
			w.followed.Move(partition, next)
		} else {
			w.known[partition] = next
		}
		w.studies.Changed() // the served value names the position
		w.withdrew(gone, before)
		for _, e := range asked {
			w.WhenSettled(e.followed)
		}
		return nil
	})
}

// withdrew tells that blocks were withdrawn, once they have left the sums. before is the digest
// before that.
func (w *Withdrawing) withdrew(gone live.Withdrawal, before string) {
	if gone.Blocks+gone.Archived == 0 {
		return
	}
	w.WhenSettled(func(err error) {
		if err == nil {
			w.tell(gone, before)
		}
	})
}

func (w *Withdrawing) tell(gone live.Withdrawal, before string) {
	all := gone.Blocks + gone.Archived
	w.windows.Clear()
	if gone.Archived > 0 {
		w.Log.Info().Int("blocks", gone.Archived).Msg("the control topic has retired archived blocks")
	}
	after := before
	if gone.Blocks > 0 {
		w.Intake.CountRetired(gone.Blocks)
		w.studies.BlocksChanged()
		w.studies.SayStale()
		after = w.Live.Digest()
		w.Log.Info().Int("blocks", gone.Blocks).Int64("rows", gone.Rows).Str("state_digest", after).Msg("the control topic has retired blocks")
	}
	w.EventLog.Add(retirementEvent("by the control topic", httpapi.RetirementEvent{
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

// Unreadable is the number of keys of the control topic whose latest record cannot be read.
func (w *Withdrawing) Unreadable() int {
	if w.Reader == nil {
		return 0
	}
	return w.Reader.Unreadable()
}

// Conditions lists what the operator should know.
func (w *Withdrawing) Conditions() (all []httpapi.Problem) {
	if w.Reader != nil {
		all = w.readingConditions()
	}
	if n := len(w.Unread); n > 0 {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemWithdrawn, Subject: "blocks", Count: int64(n),
			Text: fmt.Sprintf("%d blocks stay retired although the control topic does not retire them any more, since the log does not return them", n),
		})
	}
	return all
}

// readingConditions are those of the topic itself.
func (w *Withdrawing) readingConditions() (all []httpapi.Problem) {
	topic, trouble := w.Config.Retire.Topic, w.Reader.Trouble()
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
	if w.Reader.Shortened() {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemControl, Subject: "deleted",
			Text:   fmt.Sprintf("records of the control topic %s were deleted: what they retire stays retired until the daemon ends, and the next start will fail", topic),
			Action: "write them again, to a topic of another name with cleanup.policy=compact",
		})
	}
	if n := w.Unreadable(); n > 0 {
		all = append(all, httpapi.Problem{
			Kind: httpapi.ProblemWithdrawn, Subject: "keys", Count: int64(n),
			Text:   fmt.Sprintf("keys of the control topic %s whose latest record cannot be read, and changes nothing: %d; the log says why", topic, n),
			Action: "write good records of these keys",
		})
	}
	return all
}

// WhenDue begins a pass over the log for the blocks that are due.
func (w *Withdrawing) WhenDue(now time.Time) error {
	if !w.caughtUp || w.Reading != nil || now.Before(w.Again) || w.Rests(loop.TaskWithdraw, now) {
		return nil
	}
	maps.DeleteFunc(w.Unread, func(id string, e retire.Entry) bool {
		is, ok := w.Live.Find(id)
		return !ok || is != e
	})
	due := slices.DeleteFunc(w.Live.Due(), func(e retire.Entry) bool { return w.Unread[e.ID] == e || !w.Intake.HasLabel(e.ID) })
	if len(due) == 0 {
		return nil
	}
	w.Again = now.Add(betweenWithdrawn)
	blocks := w.Live.Moment(due)
	w.Reading = w.Begin(loop.TaskWithdraw, true, func(ctx context.Context) func() { return w.read(ctx, blocks) }, func(error) { w.Reading = nil })
	return nil
}

// read reads blocks again and has the loop give them back to the sums.
func (w *Withdrawing) read(ctx context.Context, blocks *live.Blocks) (end func()) {
	w.Log.Info().Int("blocks", len(blocks.Entries)).Msg("reading blocks again that the control topic does not retire any more")
	given, atOnce := 0, 1
	if names := w.Live.Target().Features; names != nil {
		atOnce = loop.AtOnce(len(*names))
	}
	take := func(e retire.Entry, k live.Kept) error {
		if w.Failure != nil {
			return loop.ErrStopping
		}
		if err := w.saver.Takes(); err != nil {
			return err
		}
		if !w.Intake.IsLabelled(e.ID, &k) { // it has another label by now, and is read again
			return nil
		}
		ok, err := w.Live.GiveBack(e, k)
		if ok {
			given++
		}
		if ok && !e.Archived {
			w.Intake.CountGivenBack()
			w.studies.BlocksChanged()
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
	unread, err := loop.ReadAgain(ctx, w.Topic, w.Live, w.Call, blocks, false, atOnce, func(z *passes.Worker, b *incremental.Block, _ *incremental.Summary) (live.Kept, error) {
		return z.Keeper.Keep(ctx, b, w.Live.Target())
	}, take)
	if err == nil && len(sums) > 0 {
		var more []live.Unread
		more, err = loop.ReadSums(ctx, w.Topic, w.Live, w.Call, sums, take)
		unread = append(unread, more...)
	}
	return func() {
		w.Reading = nil
		if given > 0 {
			w.Log.Info().Int("blocks", given).Str("state_digest", w.Live.Digest()).Msg("blocks are live, or archived, again that the control topic does not retire any more")
		}
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, loop.ErrStopping) && !errors.Is(err, loop.ErrChanging) {
				w.Again = time.Now().Add(loop.AfterFailure)
				w.Log.Error().Err(err).Msg("blocks that the control topic does not retire any more could not be read again; it will be tried again")
			}
			return
		}
		for _, u := range unread {
			w.Unread[u.ID] = u.Entry
		}
		if n := len(unread); n > 0 {
			w.Log.Warn().Int("blocks", n).Str("block", w.Logged(unread[0].ID)).AnErr("reason", unread[0].Reason).
				Msg("blocks that the control topic does not retire any more stay retired, since the log does not return them")
		}
	}
}
