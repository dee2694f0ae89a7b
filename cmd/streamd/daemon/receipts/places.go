package receipts

import (
	"fmt"
	"time"

	"streamd/config"
	"streamd/retire/receipt"
)

// leaving is blocks that leave together.
type leaving struct {
	kind   receipt.Kind
	based  bool      // the points of a basis may have rows of theirs
	latest time.Time // the latest event time of them
}

// live reports whether they have been live.
func (l *leaving) live() bool { return l.kind != receipt.Purged }

// mustNotStay reports whether somebody wants them gone: a request, the log, or the control topic.
func (l *leaving) mustNotStay() bool {
	switch l.kind {
	case receipt.Retired, receipt.Deleted, receipt.Withdrawn, receipt.Purged:
		return true
	}
	return false
}

// places are all places that rows of blocks, or numbers made from them, can be in. What leaves at
// once leaves with the save that has the leaf.
//
// status says what a leaf vouches for, and says what an answer tells of a place that the rows may
// still be in. what and leaves are for the documentation.
var places = [...]struct {
	receipt.Place
	what, leaves string
	status       func(*Receipts, *leaving) receipt.Status
	says         func(*Receipts, *leaving) string
}{
	{
		receipt.State, "the exact sums", "at once",
		func(_ *Receipts, l *leaving) receipt.Status { return doneIf(l.live()) }, nil,
	},
	{
		receipt.Folds, "the sums by fold (`model.folds`)", "at once",
		func(r *Receipts, l *leaving) receipt.Status { return doneIf(l.live() && r.Config.Model.Folds > 0) }, nil,
	},
	{
		receipt.Sample, "the row sample (`sample.rows`)", "at once",
		func(r *Receipts, l *leaving) receipt.Status { return doneIf(l.live() && r.Config.Sample.Rows > 0) }, nil,
	},
	{
		receipt.Archive, "summaries of blocks that `retire.keep` has let go (`retire.archive`)", "at once; those that expire go there, and are kept until a request",
		func(r *Receipts, l *leaving) receipt.Status {
			if r.Config.Retire.Archive && l.kind == receipt.Expired {
				return receipt.Kept
			}
			return doneIf(r.Config.Retire.Archive)
		}, nil,
	},
	{
		receipt.Log, "the topic", "not ours: by its retention or compaction (`log_until`)", notOurs,
		func(r *Receipts, l *leaving) string { return r.retention.says(l.latest) },
	},
	{
		receipt.Spaces, "sums in the coordinates of bases, and the points of these, which may be rows, also in the control topic",
		"at once, but for points: with the next basis, which `kernel.on_retire` and `kernel.interval` ask for, or `POST /v1/reduce`",
		func(r *Receipts, l *leaving) receipt.Status {
			k := &r.Config.Kernel
			stale := l.mustNotStay() || l.kind == receipt.Replaced
			switch {
			case k.Function == config.KernelNone:
				return receipt.None
			case !l.based:
				return receipt.Done
			case l.kind == receipt.Retired && r.Config.Retire.Topic != "" && k.Chooser != "" && k.Chooser != r.Config.Kafka.ClientID:
				return receipt.Kept // the chooser does not know that they have left here
			case k.Interval > 0 || stale && k.OnRetire == config.OnRetireReduce:
				return receipt.Pending
			}
			return receipt.Kept
		},
		func(r *Receipts, _ *leaving) string {
			text := "the points of a basis, until a later one is in use (/v1/epoch)"
			if topic := r.Config.Retire.Topic; topic != "" {
				text += fmt.Sprintf(", and in the control topic %s, until a later one is there and the brokers have compacted it", topic)
			}
			return text
		},
	},
	{
		receipt.DeadLetters, "the topic of dead letters, if records of the blocks were refused", "not ours: by its retention",
		func(r *Receipts, l *leaving) receipt.Status {
			if r.Config.DeadLetters.Policy != config.DeadLettersQueue {
				return receipt.None
			}
			return receipt.NotOurs
		},
		func(r *Receipts, _ *leaving) string {
			return fmt.Sprintf("dead letters in topic %s, if records of the block were refused", r.Config.DeadLetters.Topic)
		},
	},
	{
		receipt.Pages, "free pages of the snapshot file",
		"by a compaction: within `snapshot.scrub` if the blocks must not stay, else on request (`POST /v1/snapshot?compact=true`)",
		func(r *Receipts, l *leaving) receipt.Status {
			if l.mustNotStay() && r.Config.Snapshot.Scrub > 0 {
				return receipt.Pending
			}
			return receipt.Kept
		},
		func(r *Receipts, _ *leaving) string {
			until := "until it is compacted on request (snapshot.scrub is 0)"
			if scrub := r.Config.Snapshot.Scrub; scrub > 0 {
				until = "until it is compacted, within " + config.FormatDuration(scrub)
			}
			return "free pages of the snapshot file, " + until
		},
	},
	{
		receipt.Lists, "learned lists of values (`values: {most: K}`), which may name values that only these rows had", "when they are learned again (`POST /v1/features/learn`)",
		func(r *Receipts, _ *leaving) receipt.Status {
			if len(r.learned()) == 0 {
				return receipt.None
			}
			return receipt.Kept
		},
		func(r *Receipts, _ *leaving) string {
			return fmt.Sprintf("names of values in the learned lists of %q, until they are learned again (POST /v1/features/learn)", r.learned())
		},
	},
	{
		receipt.Copies, "copies of the snapshot file, and blocks of the disk that it had before", "not ours", notOurs,
		func(*Receipts, *leaving) string {
			return "copies and backups of the snapshot file, and blocks of the disk that it had before"
		},
	},
	{
		receipt.Models, "models and predictions that were handed out", "not ours", notOurs,
		func(r *Receipts, _ *leaving) string {
			text := "models, bases and predictions that were handed out before"
			if r.Config.Kernel.Function != config.KernelNone && r.Config.Retire.Topic != "" {
				text += fmt.Sprintf(", also former bases in the control topic %s, until the brokers have compacted it", r.Config.Retire.Topic)
			}
			return text
		},
	},
}

func notOurs(*Receipts, *leaving) receipt.Status { return receipt.NotOurs }

// doneIf is the status of a place that blocks leave at once, if it has had them.
func doneIf(has bool) receipt.Status {
	if has {
		return receipt.Done
	}
	return receipt.None
}

// scope has what a leaf says of each place.
func (r *Receipts) scope(l *leaving) (s receipt.Scope) {
	switch l.kind {
	case receipt.Restored, receipt.Returned, receipt.Begun: // nothing leaves
		return s
	}
	for i := range places {
		p := &places[i]
		if l.kind == receipt.Excluded && p.Place != receipt.Log { // they have not been in the others
			continue
		}
		s[p.Place] = p.status(r, l)
	}
	return s
}

// Remains has what an answer says of the places that rows of blocks may still be in, which have
// left at once. based says that the points of a basis may have rows of theirs, and latest is the
// latest event time of them.
func (r *Receipts) Remains(kind receipt.Kind, based bool, latest time.Time) (texts []string) {
	l := &leaving{kind, based, latest}
	s := r.scope(l)
	for i := range places {
		if p := &places[i]; p.says != nil && s[p.Place] != receipt.None && s[p.Place] != receipt.Done {
			texts = append(texts, p.says(r, l))
		}
	}
	return texts
}
