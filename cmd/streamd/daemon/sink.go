package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
)

// Position implements kafka.Sink.
func (d *Daemon) Position(partition int) (kafka.Saved, bool) {
	s, ok := d.resumes[partition]
	return s, ok
}

// Partitions implements kafka.Sink.
func (d *Daemon) Partitions() []int { return slices.Collect(maps.Keys(d.resumes)) }

// Deliver implements kafka.Sink.
func (d *Daemon) Deliver(ctx context.Context, b *kafka.Batch) error { return d.Intake.Deliver(ctx, b) }

// Jumped implements kafka.Sink: the operator has allowed a gap.
func (d *Daemon) Jumped(gap *kafka.GapError, to int64) { d.jumped(gap, to) }

// jumped has the loop go on after a gap in the topic of rows or of labels.
func (d *Daemon) jumped(gap *kafka.GapError, to int64) {
	d.Log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int64("saved", gap.Saved).Int64("to", to).
		Bool("made_anew", gap.Reset).Msg("going on after a gap in the log")
	d.Intake.InTurn(context.Background(), d.LoopDone, func() {
		if d.Failure != nil {
			return
		}
		var former []string
		var err error
		ofLabels := d.Config.Labels.Topic != "" && gap.Topic == d.Config.Labels.Topic
		if ofLabels {
			err = d.Intake.JumpLabels(d.Background, gap, to)
		} else {
			former, err = d.Intake.Jump(d.Background, gap, to)
		}
		d.applied(err)
		if gap.Reset && err == nil && !ofLabels {
			d.retireFormerLog(gap, former)
		}
		p := httpapi.Problem{
			Kind: httpapi.ProblemGap, Subject: "deleted", Count: gap.Lost(to),
			Detail: fmt.Sprintf("the latest gap is in %s/%d, from offset %d to %d", gap.Topic, gap.Partition, gap.Saved, to),
		}
		says := func(lost int64) string {
			return fmt.Sprintf("%d records were gone from the log before they were read, and kafka.on_gap has let the daemon go on: the model lacks them", lost)
		}
		if gap.Reset {
			p.Subject, p.Action = "made anew", "produce the records again that the model should have; POST /v1/status/seen ends this"
			p.Detail = fmt.Sprintf("the latest partition is %s/%d, read again from offset %d", gap.Topic, gap.Partition, to)
			says = func(lost int64) string {
				return fmt.Sprintf("the topic was made anew, or its end was lost, and kafka.on_gap has let the daemon go on: the blocks of the former log were retired, and %d records of the new one are not read", lost)
			}
		}
		p.Lasting = p.Detail // offsets of what is gone
		d.Problems.Raise(p, says)
	})
}

// Assigned implements kafka.Sink.
func (*Daemon) Assigned(context.Context, []int) error { return nil }

// Revoked implements kafka.Sink. The process is stopping, or the topic has another number of
// partitions.
func (d *Daemon) Revoked(ctx context.Context, partitions []int) {
	var next map[int]int64
	ran := d.Intake.InTurn(ctx, d.LoopDone, func() {
		if d.Failure == nil && d.Saver.HasUnsaved() {
			d.Saver.Save()
		}
		if d.Saver.IsStoring() {
			d.Saver.Await()
		}
		next = d.Intake.Settled(partitions)
	})
	if ran {
		d.commit(ctx, next)
	}
}

func (d *Daemon) commit(ctx context.Context, next map[int]int64) {
	if err := d.consumer.Commit(ctx, next); err != nil {
		d.Log.Debug().Err(err).Msg("offsets not committed to the group; the saved ones count")
	}
	d.labels.Commit(ctx, d.Saver.Labels())
}

// retireFormerLog retires the blocks of a log that no longer exists. Records of the new one wait
// until the blocks have left the ledger, and then come between the slices in which they leave the
// sums.
func (d *Daemon) retireFormerLog(gap *kafka.GapError, former []string) {
	next := 0
	d.InSlices(&loop.SlicedWork{
		Slice: func(n int) (more bool, err error) {
			few := former[next:min(next+n, len(former))]
			next += len(few)
			if next == len(former) {
				d.MeasureAgain() // in the sums
			}
			return next < len(former), d.Intake.RetireFormerLog(few, len(former))
		},
		Arrives: func() bool { return false },
		End: func(err error) {
			if err == nil {
				d.Log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int("blocks", len(former)).Msg("blocks of the former topic retired")
			}
		},
	})
}
