package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// The kinds of trouble with a record, by which dead letters and metrics count.
const (
	kindFormat  = "format"  // the payload cannot be decoded
	kindRow     = "row"     // a row has a number that cannot be used
	kindKey     = "key"     // the key cannot name a block
	kindNull    = "null"    // there is no value
	kindTime    = "time"    // the event time cannot be used
	kindClasses = "classes" // there would be too many classes
	kindMemory  = "memory"  // it would take more than there is
	kindHeaders = "headers" // there are too many headers
	kindBatch   = "batch"   // its record batch cannot be read
	kindOther   = "other"
)

// unusable is an error with the kind of trouble that it is.
type unusable struct {
	kind string
	error
}

func (u *unusable) Unwrap() error { return u.error }

func unusablef(kind, format string, args ...any) error {
	return &unusable{kind, fmt.Errorf(format, args...)}
}

// kindOf is the kind of trouble that an error is.
func kindOf(err error) string {
	var u *unusable
	var undecodable *wire.Error
	var row *incremental.RowError
	switch {
	case errors.As(err, &u):
		return u.kind
	case errors.As(err, &undecodable):
		return kindFormat
	case errors.As(err, &row):
		return kindRow
	}
	return kindOther
}

// reject does with an unusable record what the policy says. A dead letter is kept
// until sendLetters. The error is final.
func (w *worker) reject(partition int, r *kafka.Record, why error) error {
	return w.refuse(partition, kafka.Letter{Record: r}, fmt.Sprintf("record %s", w.d.position(partition, r)), why)
}

// rejectStretch is reject for records that could not be read.
func (w *worker) rejectStretch(partition int, r *kafka.Refused) error {
	what := fmt.Sprintf("offsets %d to %d of %s/%d", r.First, r.Last, w.d.cfg.Kafka.Topic, partition)
	why := r.Reason
	switch {
	case !errors.Is(why, kafka.ErrTooLarge):
	case w.d.memory.Message < int(w.d.cfg.Kafka.MaxMessageBytes):
		why = fmt.Errorf("%w: a 32nd of limits.memory", why)
	default:
		why = fmt.Errorf("%w: kafka.max_message_bytes", why)
	}
	return w.refuse(partition, kafka.Letter{Refused: r}, what, &unusable{kindBatch, why})
}

func (w *worker) refuse(partition int, letter kafka.Letter, what string, why error) error {
	switch w.d.cfg.DeadLetters.Policy {
	case config.DeadLettersStop:
		return fmt.Errorf("%s cannot be used and dead_letters.policy is stop: %w", what, why)
	case config.DeadLettersSkip:
		return nil
	}
	// Kafka Connect's names for decoding and for what comes after it.
	letter.Reason = kafka.Reason{Stage: "TASK_PUT", Class: kindOf(why), Message: why.Error()}
	if r := letter.Record; r != nil && w.d.cfg.Blocks.Unit == config.UnitKey {
		if id, err := w.d.blockID(partition, r); err == nil {
			letter.Reason.Message += fmt.Sprintf("; the former block %s is retired, since this value would have replaced it", id)
		}
	}
	switch letter.Reason.Class {
	case kindFormat, kindHeaders, kindBatch:
		letter.Reason.Stage = "VALUE_CONVERTER"
	}
	w.letters = append(w.letters, letter)
	return nil
}

// sendLetters writes the dead letters of records of one partition, which may not be
// counted as applied before. The error is final.
func (w *worker) sendLetters(ctx context.Context, partition int) error {
	if len(w.letters) == 0 {
		return nil
	}
	err := w.d.letters.Write(ctx, partition, w.letters)
	clear(w.letters) // they view the batch
	w.letters = w.letters[:0]
	if err != nil {
		return fmt.Errorf("records cannot be used, and their dead letters could not be written: %w", err)
	}
	return nil
}

// applyRefused counts a stretch of records that could not be read.
func (d *Daemon) applyRefused(p *partition, partition int, r *kafka.Refused) {
	d.reach(p, r.First)
	p.at.Next = r.Last + 1
	d.rowsRead += r.Records
	c := &d.counts
	if p.open != nil { // they are read again with its records
		c = &p.open.counts
	}
	c.Records += r.Records
	c.RejectedRecords += r.Records
	c.RejectedRows += r.Records
	switch d.cfg.DeadLetters.Policy {
	case config.DeadLettersQueue:
		c.DeadLetters++
	case config.DeadLettersSkip:
		c.SkippedRecords += r.Records
	}
	d.refusals.note(d, time.Now(), fmt.Sprintf("%s/%d/%d to %d", d.cfg.Kafka.Topic, partition, r.First, r.Last), r.Records, &unusable{kindBatch, r.Reason})
}

func (d *Daemon) countRejected(c *counts, partition int, r *kafka.Record, z result) {
	c.RejectedRecords++
	c.RejectedRows += int64(z.rowsRead())
	switch d.cfg.DeadLetters.Policy {
	case config.DeadLettersQueue:
		c.DeadLetters++
	case config.DeadLettersSkip:
		c.SkippedRecords++
	}
	d.refusals.note(d, time.Now(), d.position(partition, r).String(), 1, z.bad)
}

// refusals counts the records that were rejected, and tells the log of them: the
// first of a stretch at once, and how many more there were at most every
// refusalPause. Dead letters and counts have all of them.
type refusals struct {
	byKind map[string]int64 // records, since the start
	told   time.Time        // the last line
	more   int64            // records since then
}

const refusalPause = 10 * time.Second

// note takes note of n rejected records.
func (r *refusals) note(d *Daemon, now time.Time, record string, n int64, why error) {
	if r.byKind == nil {
		r.byKind = map[string]int64{}
	}
	r.byKind[kindOf(why)] += n
	if r.tell(d, now); now.Sub(r.told) < refusalPause {
		r.more += n
		return
	}
	r.told, r.more = now, n-1
	d.log.Warn().Str("record", record).Str("reason", kindOf(why)).Err(why).Msg("record " + d.fate())
}

// tell writes how many more records were rejected, when it is time.
func (r *refusals) tell(d *Daemon, now time.Time) {
	if r.more == 0 || now.Sub(r.told) < refusalPause {
		return
	}
	d.log.Warn().Int64("more", r.more).Interface("since_start", r.byKind).Msgf("and %d more %s", r.more, d.fate())
	r.told, r.more = now, 0
}

// fate says what becomes of rejected records.
func (d *Daemon) fate() string {
	if d.cfg.DeadLetters.Policy == config.DeadLettersQueue {
		return "sent to the dead letters"
	}
	return "skipped"
}

// counted is a copy of the counts by kind.
func (r *refusals) counted() map[string]int64 { return maps.Clone(r.byKind) }
