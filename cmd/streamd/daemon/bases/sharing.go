package bases

import (
	"context"
	"fmt"
	"time"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
)

// Where there is a control topic, a basis that a replica has chosen goes there, and every replica,
// the chooser too, begins its next epoch with what the topic has.
//
//	choosing    a reduction or a pruning is under way
//	publishing  the basis is written to the topic
//	published   the brokers have it, and this replica has not read it yet
//	taken up    it came: the next epoch is built
//
// A replica looks at what the topic has, and not at what has changed there. So it takes the basis
// up after a restart, when it has two classes again, or when there is memory. The sources of a
// basis are in the topic by their positions, so each replica knows by itself when one is stale.

// sharedBasis is what the loop knows of the basis of the control topic.
type sharedBasis struct {
	topic  string          // the control topic; empty: there is none
	known  bool            // the topic has been read up to its end
	has    control.Basis   // what it has
	since  time.Time       // that it has had this
	later  time.Duration   // other than of the other replicas, so that they do not publish at once
	basis  *live.Published // that the topic has, if it is whole and can be read
	why    string          // why basis is nil, or not used; empty: it is used, or there is none
	passed *live.Published // a basis that is not taken up again: its epoch was abandoned, or dropped

	retract  bool      // the topic shall have no basis
	emptying *loop.Job // writes tombstones
}

// notWhole is how long the parts of a basis may be incomplete before a replica that chooses
// publishes another one. Meanwhile they may be written.
const notWhole = 30 * time.Second

// chooses reports whether this instance chooses bases without a request.
func (r *Bases) chooses() bool {
	return r.shared.topic == "" || r.Config.Kernel.Chooser == "" || r.Config.Kernel.Chooser == r.Config.Kafka.ClientID
}

// SharedCame takes what the control topic has from now on.
func (r *Bases) SharedCame(has *control.Basis) {
	s := &r.shared
	had := s.has.Keys > 0
	s.has, s.since, s.basis, s.why = *has, time.Now(), nil, ""
	switch {
	case has.Keys == 0:
		if s.retract {
			s.retract, r.again = false, time.Time{}
		}
		if had && s.known {
			r.dropBasis("the control topic has no basis any more")
		}
		return
	case has.Content == nil:
		s.why = has.Fault
		return
	}
	s.has.Content = nil
	basis, err := live.DecodePublished(has.Content, r.Config)
	if err != nil {
		s.why = err.Error()
		return
	}
	s.basis = basis
	if s.known {
		s.retract = false
		r.SharedKnown()
	}
}

// SharedKnown is called when the basis that the topic has is known, and at each later one.
func (r *Bases) SharedKnown() {
	s := &r.shared
	s.known = true
	if s.basis == nil {
		return
	}
	r.Live.Await(s.basis, r.Intake.Applied())
	if work := r.reducing; work != nil && !work.asked && work.published == nil {
		r.endReduction() // another replica was first
	}
}

// follow takes up the basis of the control topic.
func (r *Bases) follow(now time.Time) {
	s := &r.shared
	if !s.known {
		return
	}
	r.endPublished(now)
	if s.retract && s.has.Keys > 0 || s.has.Keys > s.has.Parts && s.basis != nil && r.chooses() {
		r.empty(now)
	}
	use, next := r.Live.InUse(), r.Live.Next()
	switch {
	case s.has.Keys == 0 && !r.chooses():
		r.dropBasis("the control topic has no basis")
		return
	case s.basis == nil || s.basis == s.passed || s.retract || r.Live.Target().Features == nil || !r.Live.Parted():
		return
	}
	s.why = ""
	if err := r.Live.Unfit(s.basis, r.Config); err != nil {
		s.why = err.Error()
		return
	}
	switch {
	case s.basis.Is(next):
	case s.basis.Is(use), s.basis.SameAs(use) && use.Stale() == live.Fresh:
		if next != nil {
			r.endReading()
			r.Live.Abandon()
		}
	case now.Before(r.again):
	default:
		r.takeUp(s.basis.Map, s.basis.Reduction, func() {
			r.Live.BeginPublished(s.basis, r.Config.Kernel.Regulariser, r.Intake.Applied())
		})
	}
}

// publish writes the basis that work has chosen to the control topic.
func (r *Bases) publish(work *Reduction, of *live.Published) {
	s := &r.shared
	content := of.AppendBinary(nil)
	r.reducing = work
	if most := r.Memory.Basis; len(content) > most {
		r.unpublished(work, fmt.Sprintf("it takes %d bytes, and there is room for %d (limits.memory): lower kernel.basis", len(content), most))
		return
	}
	records := control.RecordsOfBasis(r.Config.Model.Name, content, s.has.Keys)
	work.published, work.until = of, time.Now().Add(2*control.Patience)
	work.Job = r.Begin(loop.TaskPublish, true, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, control.Patience)
		defer cancel()
		err := r.write(ctx, records)
		return func() {
			if r.reducing == work && err != nil {
				r.unpublished(work, fmt.Sprintf("the control topic %s could not be written: %v", s.topic, err))
			}
		}
	}, func(error) { r.endFailed(work) })
}

// unpublished ends a reduction whose basis has not come back. The topic may have parts of it, which
// are no basis.
func (r *Bases) unpublished(work *Reduction, why string) {
	r.endFailed(work)
	r.problem, r.again = why, time.Now().Add(loop.AfterFailure)
	r.Log.Warn().Msg("the basis is not published: " + why)
}

// endPublished ends a reduction whose basis the topic has, and takes the basis up. It has followed
// the sources since the choice, so it does not look for them by their positions.
func (r *Bases) endPublished(now time.Time) {
	s, work := &r.shared, r.reducing
	switch {
	case work == nil || work.published == nil:
	case s.basis != nil && s.basis.SameChoice(work.published):
		s.basis = work.published
		r.reducing = nil
		if use := r.Live.InUse(); !s.basis.SameAs(use) || use.Stale() != live.Fresh {
			r.takeUp(s.basis.Map, s.basis.Reduction, func() {
				r.Live.Begin(s.basis.Map, s.basis.Reduction, r.Config.Kernel.Regulariser)
			})
		}
		r.Live.Chosen()
	case now.After(work.until):
		r.unpublished(work, fmt.Sprintf("the control topic %s has not brought it within %v", s.topic, 2*control.Patience))
	}
}

// empty writes tombstones to the keys that the topic shall have no parts under.
func (r *Bases) empty(now time.Time) {
	s := &r.shared
	if s.emptying != nil || r.reducing != nil || now.Before(r.again) {
		return
	}
	records := control.RecordsOfBasis(r.Config.Model.Name, nil, s.has.Keys)
	if !s.retract {
		records = records[s.has.Parts:]
	}
	end := func(err error) {
		s.emptying = nil
		if err != nil || s.retract {
			r.again = time.Now().Add(loop.AfterFailure) // the tombstones come before that
		}
		if err != nil {
			r.Log.Warn().Err(err).Str("topic", s.topic).Msg("the control topic keeps parts of a former basis; it will be tried again")
		}
	}
	s.emptying = r.Begin(loop.TaskPublish, true, func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, control.Patience)
		defer cancel()
		err := r.write(ctx, records)
		return func() { end(err) }
	}, end)
}

// retracts has the topic have no basis, if this replica is to say so.
func (r *Bases) retracts() {
	if s := &r.shared; s.has.Keys > 0 && r.chooses() && r.hasCaughtUp.Load() {
		s.passed, s.retract = s.basis, true
	}
}

// lacksShared reports whether a replica that chooses should publish a basis because the topic has
// none.
func (s *sharedBasis) lacksShared(now time.Time) bool {
	return s.topic != "" && !s.retract && s.basis == nil && (s.has.Keys == 0 || now.Sub(s.since) >= notWhole+s.later)
}

// isEmptied reports whether the topic is about to have no basis.
func (s *sharedBasis) isEmptied() bool { return s.emptying != nil || s.retract && s.has.Keys > 0 }

// waits reports whether the topic has a basis that this replica takes up when it can.
func (s *sharedBasis) waits() bool {
	return s.basis != nil && s.why == "" && s.basis != s.passed && !s.retract
}

// sharedConditions lists what the operator should know of the basis of the control topic.
func (r *Bases) sharedConditions() (all []httpapi.Problem) {
	s := &r.shared
	if s.topic == "" || !s.known {
		return nil
	}
	p := httpapi.Problem{Kind: httpapi.ProblemBasis, Subject: "control"}
	switch {
	case r.Config.Kernel.Function == config.KernelNone:
		if s.has.Keys == 0 {
			return nil
		}
		p.Text = fmt.Sprintf("the control topic %s has a basis of the model %s, and this daemon has none (kernel.function)", s.topic, r.Config.Model.Name)
		p.Action = "give models that share a control topic names of their own (model.name), or the replicas of one model the same settings"
	case s.why != "" && (s.basis != nil || time.Since(s.since) >= notWhole):
		p.Text = fmt.Sprintf("the basis in the control topic %s is not used: %s", s.topic, s.why)
		p.Action = "give all replicas the same settings, or choose another basis: streamd reduce"
	case r.Live.InUse().Stale() >= live.SourceRetired && r.Config.Kernel.OnRetire == config.OnRetireReduce && !r.chooses() && time.Since(r.switched) >= notWhole && time.Since(s.since) >= notWhole:
		p.Text = fmt.Sprintf("the basis in use was chosen from blocks that have been retired since, and %s (kernel.chooser) has not chosen another one", r.Config.Kernel.Chooser)
		p.Action = "start that instance, or choose a basis here: streamd reduce"
	default:
		return nil
	}
	return append(all, p)
}
