package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"

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
func (d *Daemon) Deliver(ctx context.Context, b *kafka.Batch) error { return d.intake.Deliver(ctx, b) }

// Jumped implements kafka.Sink: the operator has allowed a gap.
func (d *Daemon) Jumped(gap *kafka.GapError, to int64) { d.jumped(gap, to) }

// jumped has the loop go on after a gap in the topic of rows or of labels.
func (d *Daemon) jumped(gap *kafka.GapError, to int64) {
	d.log.Warn().Str("topic", gap.Topic).Int("partition", gap.Partition).Int64("saved", gap.Saved).Int64("to", to).
		Bool("made_anew", gap.Reset).Msg("going on after a gap in the log")
	d.intake.InTurn(context.Background(), d.loopDone, func() {
		if d.failure != nil {
			return
		}
		var former []string
		var err error
		ofLabels := d.cfg.Labels.Topic != "" && gap.Topic == d.cfg.Labels.Topic
		if ofLabels {
			err = d.intake.JumpLabels(d.background, gap, to)
		} else {
			former, err = d.intake.Jump(d.background, gap, to)
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
		d.problems.Raise(p, says)
	})
}

// Assigned implements kafka.Sink.
func (*Daemon) Assigned(context.Context, []int) error { return nil }

// Revoked implements kafka.Sink. The process is stopping, or the topic has another number of
// partitions.
func (d *Daemon) Revoked(ctx context.Context, partitions []int) {
	var next map[int]int64
	ran := d.intake.InTurn(ctx, d.loopDone, func() {
		if d.failure == nil && d.saver.hasUnsaved() {
			d.saver.save()
		}
		if d.saver.state == storing {
			d.saver.await()
		}
		next = d.intake.Settled(partitions)
	})
	if ran {
		d.commit(ctx, next)
	}
}

func (d *Daemon) commit(ctx context.Context, next map[int]int64) {
	if err := d.consumer.Commit(ctx, next); err != nil {
		d.log.Debug().Err(err).Msg("offsets not committed to the group; the saved ones count")
	}
	if saved := d.saver.labels.Load(); d.labels != nil && saved != nil {
		if err := d.labels.consumer.Commit(ctx, *saved); err != nil {
			d.log.Debug().Err(err).Msg("offsets of labels.topic not committed to the group; the saved ones count")
		}
	}
}
