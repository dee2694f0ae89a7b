package intake

import (
	"context"
	"errors"
	"fmt"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
)

// The kinds of unusable records, by which dead letters and metrics count.
const (
	kindFormat  = "format"
	kindRow     = "row"
	kindKey     = "key"
	kindNull    = "null"
	kindTime    = "time"
	kindClasses = "classes"
	kindMemory  = "memory"
	kindHeaders = "headers"
	kindSums    = "sums"
	kindLabel   = "label"
	kindBatch   = "batch"
	kindOther   = "other"
)

// kinds has the meaning of each kind, and what settles it.
var kinds = map[string]struct{ meaning, settles string }{
	kindFormat:  {"the payload cannot be decoded", "have the producer write what the settings of format say, or set them (format.default, label, features, missing and others) to what it writes"},
	kindRow:     {"a row has a number that cannot be used", "have the producer write finite numbers in the range of 32-bit floats, and weights around 1"},
	kindKey:     {"the key cannot name a block", "have the producer give each record a key that is not too long, or set blocks.unit to another than key"},
	kindNull:    {"there is no value", "have the producer write values; with blocks.unit: key a record without one retires its block"},
	kindTime:    {"the event time cannot be used", "have the producer write times in milliseconds since 1970, or the broker (message.timestamp.type=LogAppendTime)"},
	kindClasses: {"there would be too many classes", "mend the labels, or raise limits.classes"},
	kindMemory:  {"it would take more memory than there is", "raise limits.memory, or make smaller blocks"},
	kindHeaders: {"there are too many headers", "have the producer write fewer headers"},
	kindSums:    {"it is a block of sums that the model cannot use", "have rows summed in the model's features and under its settings, or produce the rows"},
	kindLabel:   {"it has a label and no row", "have the producer write labels that come after their rows to a topic of their own, and name it in labels.topic"},
	kindBatch:   {"its record batch cannot be read", "where it is too large, raise kafka.max_message_bytes or have the producer write smaller ones; where it is damaged, produce its records again"},
	kindOther:   {"another reason", "remove the reason"},
}

// settles says what an operator can do against a reason of a kind to refuse records.
func settles(kind string, why error) string {
	if mistaken := (*envelope.Mistaken)(nil); errors.As(why, &mistaken) {
		return mistaken.Settles()
	}
	undecodable, ok := errors.AsType[*wire.Error](why)
	switch {
	case ok && undecodable.HasTexts():
		return "declare the column in format.schema, as a category or a text, or name it in format.ignore; streamd schema infer --topic with this topic's name proposes a schema"
	case ok && undecodable.UnknownFeature():
		return "name the column in format.ignore, or in format.features to learn from it, or set format.unknown: ignore"
	}
	return kinds[kind].settles
}

// unusable is an error with its kind.
type unusable struct {
	kind string
	error
}

func (u *unusable) Unwrap() error { return u.error }

func unusablef(kind, format string, args ...any) error {
	return &unusable{kind, fmt.Errorf(format, args...)}
}

// kindOf is the kind of an error.
func kindOf(err error) string {
	var u *unusable
	var undecodable *wire.Error
	var row *incremental.RowError
	var classes *live.ClassesError
	var limit memory.LimitError
	var mistaken *envelope.Mistaken
	var enveloped *envelope.Error
	switch {
	case errors.As(err, &u):
		return u.kind
	case isLabelAlone(err):
		return kindLabel
	case errors.As(err, &classes):
		return kindClasses
	case errors.As(err, &limit):
		return kindMemory
	case errors.As(err, &undecodable), errors.As(err, &mistaken), errors.As(err, &enveloped):
		return kindFormat
	case errors.As(err, &row):
		return kindRow
	}
	return kindOther
}

// reject applies the dead-letter policy to an unusable record of the block id, or "". A dead letter
// is kept until the letters of the delivery are sent. The error is final.
func (in *Intake) reject(partition int, r *kafka.Record, id string, why error) error {
	former := ""
	if in.Config.Blocks.Unit == config.UnitKey && !isLabelAlone(why) {
		switch e, ok, err := in.Live.Former(id); {
		case err != nil:
			return err
		case ok && e.Withdrawn:
			former = fmt.Sprintf("; the former block %s, which the control topic has retired, cannot come back, since this value would have replaced it", id)
		case ok:
			former = fmt.Sprintf("; the former block %s is retired, since this value would have replaced it", id)
		}
	}
	return in.own.refuse(partition, kafka.Letter{Record: r}, fmt.Sprintf("record %s", positionOf(in.Config, partition, r)), former, why)
}

// rejectStretch is reject for records that could not be read.
func (w *worker) rejectStretch(partition int, r *kafka.Refused) error {
	what := fmt.Sprintf("offsets %d to %d of %s/%d", r.First, r.Last, w.Config.Kafka.Topic, partition)
	why := r.Reason
	switch {
	case !errors.Is(why, kafka.ErrTooLarge):
	case w.Budget.Message < int(w.Config.Kafka.MaxMessageBytes):
		why = fmt.Errorf("%w: a 32nd of limits.memory", why)
	default:
		why = fmt.Errorf("%w: kafka.max_message_bytes", why)
	}
	return w.refuse(partition, kafka.Letter{Refused: r}, what, "", Unread(why))
}

// refuse applies the policy to a letter. consequence ends its message.
func (w *worker) refuse(partition int, letter kafka.Letter, what, consequence string, why error) error {
	switch w.Config.DeadLetters.Policy {
	case config.DeadLettersStop:
		return fmt.Errorf("%s cannot be used and dead_letters.policy is stop: %w", what, why)
	case config.DeadLettersSkip:
		return nil
	}
	letter.Reason = ReasonOf(why)
	letter.Reason.Message += consequence
	w.letters = append(w.letters, letter)
	return nil
}

// ReasonOf is the reason of a dead letter. Its stages are Kafka Connect's names for decoding and
// for the stage after it.
func ReasonOf(why error) kafka.Reason {
	reason := kafka.Reason{Stage: "TASK_PUT", Class: kindOf(why), Message: why.Error()}
	switch reason.Class {
	case kindFormat, kindHeaders, kindBatch:
		reason.Stage = "VALUE_CONVERTER"
	}
	return reason
}

// Unread is the error about records that could not be read.
func Unread(why error) error { return &unusable{kindBatch, why} }

// sendLetters writes the dead letters of one partition for a stage, whose transaction does not wait
// long. Their records must not count as applied before. The error is final.
func (w *worker) sendLetters(ctx context.Context, partition int) error {
	if len(w.letters) == 0 {
		return nil
	}
	err := w.Letters.Write(ctx, partition, w.letters)
	w.forgetLetters()
	if err != nil {
		return fmt.Errorf("records cannot be used, and their dead letters could not be written: %w", err)
	}
	return nil
}

func (w *worker) forgetLetters() {
	clear(w.letters) // they refer to the batch
	w.letters = w.letters[:0]
}

// fate says in words what the policy does with rejected records.
func fate(c config.DeadLetters) string {
	if c.Policy == config.DeadLettersQueue {
		return "sent to the dead letters"
	}
	return "skipped"
}
