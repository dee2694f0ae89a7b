package output

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/ingest/kafka"
)

// remembering writes predictions with an id into the topic of rows, where they wait for their
// labels like all other rows. Nothing else of the daemon has them before the consumer reads them
// there. So the live set stays a function of the topics, and a replica has them, too. Nothing of it
// belongs to the loop.
type remembering struct {
	*loop.Environment
	decoders sync.Pool // of *intake.Decoder
	features []string

	retried // a prediction that is remembered notes that it works

	opening  sync.Mutex
	producer *kafka.Producer // nil: there is none yet, or the last one has failed
	changed  chan struct{}   // closed when there is another producer
}

func newRemembering(e *loop.Environment) *remembering {
	return &remembering{Environment: e, features: live.Wanted(nil, e.Config.Format), changed: make(chan struct{})}
}

// run keeps a producer until ctx ends. One that has failed for good is replaced.
func (r *remembering) run(ctx context.Context) {
	log := r.Log.With().Str("topic", r.Config.Predict.Output).Logger()
	r.retried.run(ctx, log, "predictions cannot be remembered", r.produce)
}

// produce has a producer until it fails or ctx ends.
func (r *remembering) produce(ctx context.Context) error {
	cluster, err := settings.Cluster(r.Config.Kafka, r.Log)
	if err != nil {
		return err
	}
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster, Topic: r.Config.Predict.Output}, r.Log)
	if err != nil {
		return err
	}
	defer p.Close()
	r.use(p)
	defer r.use(nil)
	select {
	case <-p.Done():
		return p.Flush(ctx) // why it has failed
	case <-ctx.Done():
		return nil
	}
}

func (r *remembering) use(p *kafka.Producer) {
	r.opening.Lock()
	defer r.opening.Unlock()
	r.producer = p
	close(r.changed)
	r.changed = make(chan struct{})
}

// open waits until there is a producer.
func (r *remembering) open(ctx context.Context) (*kafka.Producer, error) {
	for {
		r.opening.Lock()
		p, changed := r.producer, r.changed
		r.opening.Unlock()
		if p != nil {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, errors.New("the topic could not be opened in time")
		}
	}
}

// Read implements httpapi.Remembering.
func (r *remembering) Read(contentType string, row []byte) ([]float64, error) {
	return r.read(&kafka.Record{
		Value: row, Time: time.Now(), Headers: []kafka.Header{{Key: "content-type", Value: []byte(contentType)}},
	})
}

// check says why a record of predict.topic cannot wait for its label.
func (r *remembering) check(record *kafka.Record) error {
	if len(record.Key) == 0 {
		return errors.New("the record has no key, which is the id under which its label comes")
	}
	_, err := r.read(record)
	return err
}

// read reads the row of a record with the decoder of the topic of rows.
func (r *remembering) read(record *kafka.Record) ([]float64, error) {
	d, ok := r.decoders.Get().(*intake.Decoder)
	if !ok {
		var err error
		if d, err = intake.NewDecoder(r.Config, r.Decoding, &r.features, 0); err != nil {
			return nil, err
		}
	}
	defer r.decoders.Put(d)
	b, err := d.DecodeUnlabelled(record)
	if err != nil {
		return nil, err
	}
	if n := b.Rows(); n != 1 {
		return nil, fmt.Errorf("there are %d rows, and an id is that of one", n)
	}
	if bad := b.FirstBadRow(); bad != nil {
		return nil, bad
	}
	if b.Weight(0) == 0 {
		return nil, errors.New("its weight is 0, so it would never count")
	}
	values := make([]float64, len(b.Columns))
	for j, c := range b.Columns {
		values[j] = c.At(0)
	}
	return values, nil
}

// Remember implements httpapi.Remembering. Predictions of several calls go in the same batches.
func (r *remembering) Remember(ctx context.Context, all []httpapi.Remembered) error {
	err := r.write(ctx, all)
	if errors.Is(err, context.Canceled) {
		return err // the client went away, which says nothing of the brokers
	}
	if r.note(err); err != nil {
		r.Log.Warn().Err(err).Msg("a prediction could not be remembered")
		return fmt.Errorf("the prediction could not be remembered, so it is not given: the brokers have not taken it in time; ask again with the same id: %w", httpapi.ErrUnavailable)
	}
	return nil
}

func (r *remembering) write(ctx context.Context, all []httpapi.Remembered) error {
	p, err := r.open(ctx)
	if err != nil {
		return err
	}
	now, partitions := time.Now(), map[int]bool{}
	for i := range all {
		a := &all[i]
		to := p.PartitionOf([]byte(a.ID))
		partitions[to] = true
		headers := []kafka.Header{
			{Key: "content-type", Value: []byte(a.ContentType)},
			{Key: intake.ModelHeader, Value: []byte(a.Model)},
			{Key: intake.AnswerHeader, Value: a.Answer},
		}
		if err := p.Write(ctx, to, []byte(a.ID), a.Row, headers, now); err != nil {
			return err
		}
	}
	for to := range partitions {
		if err := p.FlushPartition(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

// problem is what the operator should know, if anything.
func (r *remembering) problem(now time.Time) []httpapi.Problem {
	since, why := r.failing(now, 0) // clients are refused meanwhile
	if why == nil {
		return nil
	}
	return []httpapi.Problem{{
		Kind: httpapi.ProblemPredict, Subject: "remember", Since: since,
		Text:   "predictions with an id are refused, since they cannot be remembered: " + why.Error(),
		Action: "see that the brokers can be reached and let the daemon write " + r.Config.Predict.Output + "; it ends with the next one that is remembered",
	}}
}
