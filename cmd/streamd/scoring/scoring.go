// Package scoring answers the rows of a topic with their predictions, on another topic.
//
//	rows topic ──> decode ──> classify ──> transaction ──> topic of answers
//	                  │                        └─ offsets of the group
//	                  └──> dead letters
//
//	scoring.go  the stage is made; one partition of the rows
//	answer.go   an answer and its headers
//	metrics.go  what it has done
//
// Each record with a value has one answer or one dead letter. Records are answered once: how that
// is done is package stage. Where brokers have no transactions, it needs the header streamd.source
// of each answer. All records of a batch are answered by the model that was served when the batch
// came, so an answer is no function of the log alone; its headers say which model it was, and what
// that model had learned from.
package scoring

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/stage"
	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/registry"
	"streamd/ingest/wire"
)

// Model is a model that answers. It is immutable.
type Model struct {
	*model.Classifier
	Fingerprint string // "": it has none
	Method      string // of the planes; "": not known
	Offsets     []model.Offset
}

// Models has the model that answers.
type Models interface {
	// Model returns the present model. It waits until there is one, and fails with ctx's error.
	// Equal pointers are equal models. It is safe for concurrent use.
	Model(ctx context.Context) (*Model, error)
}

// Options are the settings of a stage.
type Options struct {
	Consuming kafka.Config // of the topic of rows, with the group
	To        string       // topic of the answers, which is made if it is missing
	Policy    config.DeadLetterPolicy
	Letters   string       // topic of the dead letters, where the policy writes them
	Decoding  wire.Options // of rows; features are those of the model
	Form      predictions.Form
	Models    Models
	// Remember has predictions wait for their labels in the topic of the answers: each record
	// there is the row as it came, with the answer in the header streamd.answer, as intake reads
	// it. It says why the row of a record cannot wait. Nil: the answers are the values.
	Remember func(*kafka.Record) error
	Registry *registry.Client // of the decoding; nil: there is none
	Log      zerolog.Logger

	adjust func(*stage.Config) // for tests; nil: nothing
}

// Latency is the least time between commits, and so about how long an answer waits to be seen.
const Latency = 10 * time.Millisecond

// Stage answers rows. Make it with New and call Run once.
type Stage struct {
	*stage.Stage
	Options
	letters *kafka.DeadLetters // nil: dead letters are not written
	counts  counts
}

type counts struct {
	records, rejected, empty, rows atomic.Int64
	written                        atomic.Int64
}

// New checks the settings. It does not connect. Run must be called afterwards.
func New(o Options) (*Stage, error) {
	o.Decoding.IgnoreUnknown = true // no model has weights for them
	if o.Remember != nil {
		o.Form = predictions.Rows
	}
	z := &Stage{Options: o}
	cluster, from := o.Consuming.Cluster, o.Consuming.Topic
	var err error
	if o.Policy == config.DeadLettersQueue {
		z.letters, err = kafka.NewDeadLetters(kafka.DeadLetterConfig{
			Cluster: cluster, Source: from, Topic: o.Letters, Connector: "streamd.predict",
		}, o.Log)
		if err != nil {
			return nil, err
		}
	}
	running := stage.Config{
		Consuming: o.Consuming,
		Transaction: kafka.TransactionConfig{
			Cluster: cluster, Source: from, Group: o.Consuming.Group, Topic: o.To,
			SourceHeader: sourceHeader, Fetching: o.Consuming.Fetching,
		},
		Open: z.open, Await: z.await, Registry: o.Registry,
		Interval: Latency, Commits: 0.5,
	}
	if o.adjust != nil {
		o.adjust(&running)
	}
	z.Stage, err = stage.New(running, o.Log)
	return z, err
}

// Counts are what has become of the records since the stage was made.
func (z *Stage) Counts() model.Predicted {
	n := &z.counts
	c := model.Predicted{Rejected: n.rejected.Load(), Tombstones: n.empty.Load(), Rows: n.rows.Load()}
	c.Answered = max(0, n.records.Load()-c.Rejected-c.Tombstones)
	return c
}

// Close closes what Run has used.
func (z *Stage) Close() {
	if z.letters != nil {
		z.letters.Close()
	}
}

func (z *Stage) await(ctx context.Context, b *kafka.Batch) error {
	return intake.Await(ctx, z.Decoding, b, false)
}

// open makes the work of a partition.
func (z *Stage) open(partition int, at kafka.Committed, to stage.Writer) (stage.Work, kafka.Saved, bool) {
	w := &work{stage: z, partition: partition, to: to}
	known := at.Offset >= 0
	if known {
		var place stage.Place
		stage.Committed(at, &place) // without a place there is no last record
		w.at = place.At(at.Offset)
	}
	return w, w.at, known
}

// work answers the rows of one partition.
type work struct {
	stage     *Stage
	partition int
	to        stage.Writer
	at        kafka.Saved // the end of the last batch

	by      *Model // the last one, of which the next are
	decoder *wire.Decoder
	answer  answer
	letters []kafka.Letter

	contentType string // of the last record that had one
}

// Resume implements stage.Work.
func (w *work) Resume() kafka.Committed { return stage.Commit(w.at, stage.PlaceOf(w.at)) }

// Flush implements stage.Work: nothing waits.
func (w *work) Flush(context.Context) error { return nil }

// Unwritten implements stage.Work.
func (w *work) Unwritten() bool { return false }

// Close implements stage.Work.
func (w *work) Close() {}

// Jump implements stage.Work.
func (w *work) Jump(_ context.Context, to int64, _ bool) error {
	w.at = kafka.Saved{Next: to}
	return nil
}

// Take implements stage.Work. Dead letters are written before it returns.
func (w *work) Take(ctx context.Context, b *kafka.Batch) error {
	z := w.stage
	by, err := z.Models.Model(ctx)
	if err != nil {
		return err
	}
	if err := w.use(by); err != nil {
		return err
	}
	for i := range b.Refused {
		r := &b.Refused[i]
		z.counts.records.Add(r.Records)
		if err := w.refuse(kafka.Letter{Refused: r}, r.First, r.Records, intake.Unread(r.Reason)); err != nil {
			return err
		}
	}
	for i := range b.Records {
		r := &b.Records[i]
		z.counts.records.Add(1)
		if r.Value == nil { // of a compacted topic: whoever reads the answers forgets this one's, too
			z.counts.empty.Add(1)
			w.answer.head(r, z.Consuming.Topic, w.partition)
			if err := w.to.Write(ctx, r.Key, nil, w.answer.headers, r.Time); err != nil {
				return err
			}
			continue
		}
		bad := w.predict(r)
		if intake.IsAway(bad) {
			return bad
		}
		if bad != nil {
			if err := w.refuse(kafka.Letter{Record: r}, r.Offset, 1, bad); err != nil {
				return err
			}
			continue
		}
		value := w.answer.value.Bytes()
		z.counts.written.Add(int64(len(value)))
		if z.Remember != nil {
			value = r.Value
		}
		if err := w.to.Write(ctx, r.Key, value, w.answer.headers, r.Time); err != nil {
			return err
		}
	}
	w.at = b.Position
	if len(w.letters) == 0 {
		return nil
	}
	err = z.letters.Write(ctx, w.partition, w.letters)
	clear(w.letters)
	if w.letters = w.letters[:0]; err != nil {
		return fmt.Errorf("records cannot be answered, and their dead letters could not be written: %w", err)
	}
	return nil
}

// use makes the model the one that answers.
func (w *work) use(by *Model) error {
	if by == w.by {
		return nil
	}
	if w.by == nil || !w.by.readsAs(by) {
		options := w.stage.Decoding
		options.Features, options.Missing, options.Schema = by.Features, by.Missing, nil
		if by.Schema != nil {
			options.Schema = by.Schema
		}
		decoder, err := wire.NewDecoder(options)
		if err != nil {
			return fmt.Errorf("predict: %w", err)
		}
		w.decoder = decoder
	}
	w.by = by
	w.answer.begin(by, w.stage.Form, w.stage.Remember != nil)
	return nil
}

// readsAs reports whether a model takes the same rows. While a daemon learns, most models do.
func (m *Model) readsAs(o *Model) bool {
	return m.Schema == o.Schema && slices.Equal(m.Features, o.Features) &&
		m.Missing.Default == o.Missing.Default && maps.Equal(m.Missing.Features, o.Missing.Features)
}

// predict makes the answer to a record. The error says why there is none.
func (w *work) predict(r *kafka.Record) error {
	if r.OmittedHeaders > 0 {
		return fmt.Errorf("the record has %d headers, more than can be taken", r.OmittedHeaders)
	}
	if remember := w.stage.Remember; remember != nil {
		if err := remember(r); err != nil {
			return err
		}
	}
	rows, err := w.decoder.DecodeUnlabelled(intake.ContentType(r, &w.contentType), r.Value)
	if err != nil {
		return err
	}
	if err := w.answer.make(rows); err != nil {
		return err
	}
	w.answer.head(r, w.stage.Consuming.Topic, w.partition)
	w.stage.counts.rows.Add(int64(rows.Rows))
	return nil
}

// refuse applies the policy of dead letters to records that have no answer.
func (w *work) refuse(letter kafka.Letter, offset, records int64, why error) error {
	z := w.stage
	z.counts.rejected.Add(records)
	where := fmt.Sprintf("%s/%d/%d", z.Consuming.Topic, w.partition, offset)
	switch z.Policy {
	case config.DeadLettersStop:
		return fmt.Errorf("record %s cannot be answered and dead_letters.policy is stop: %w", where, why)
	case config.DeadLettersQueue:
		letter.Reason = intake.ReasonOf(why)
		w.letters = append(w.letters, letter)
	}
	z.Log.Debug().Str("record", where).Err(why).Msg("a record has no answer")
	return nil
}
