package output

import (
	"context"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
)

// announcing writes each served model to model.topic, for those who would rather read than poll.
// Nothing of it belongs to the loop.
type announcing struct {
	*loop.Environment
	served func() (*model.Served, <-chan struct{})
	retried

	counts sync.Mutex
	of     model.Announced
}

// announcePause is the least time between two records. Of the models in between the last one is
// written.
const announcePause = 100 * time.Millisecond

// run writes until ctx ends.
func (a *announcing) run(ctx context.Context) {
	log := a.Log.With().Str("topic", a.Config.Model.Topic).Logger()
	a.retried.run(ctx, log, "the served model cannot be written to its topic", a.announce)
}

// announce writes until ctx ends or it fails. It begins with the present model, which may be in the
// topic already.
func (a *announcing) announce(ctx context.Context) error {
	cluster, err := settings.Cluster(a.Config.Kafka, a.Log)
	if err != nil {
		return err
	}
	topic := a.Config.Model.Topic
	if err := kafka.EnsureTopic(ctx, cluster, topic, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		return err
	}
	to, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: cluster, Topic: topic, Compress: true}, a.Log)
	if err != nil {
		return err
	}
	defer to.Close()
	for last := ""; ; {
		served, replaced := a.served()
		if served.Model != nil && served.Fingerprint != last {
			if err := a.write(ctx, to, served); err != nil {
				return err
			}
			last = served.Fingerprint
			select {
			case <-time.After(announcePause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// write writes a model, and waits until the brokers have it.
func (a *announcing) write(ctx context.Context, to *kafka.Producer, served *model.Served) error {
	value, err := httpapi.ModelRecord(served)
	if err != nil {
		return err
	}
	// One key is always in one partition, or compaction would keep several models.
	err = to.Write(ctx, 0, []byte(a.Config.Model.Name), value, []kafka.Header{
		{Key: "content-type", Value: []byte("application/json")},
		{Key: intake.ModelHeader, Value: []byte(served.Fingerprint)},
	}, served.MadeAt)
	if err == nil {
		err = to.Flush(ctx)
	}
	if err != nil {
		return err
	}
	a.note(nil)
	a.counts.Lock()
	defer a.counts.Unlock()
	a.of.Written++
	a.of.Fingerprint = served.Fingerprint
	return nil
}

// problem is what the operator should know, if anything.
func (a *announcing) problem(now time.Time) (all []httpapi.Problem) {
	since, why := a.failing(now, retriedFailing)
	if why == nil {
		return nil
	}
	return []httpapi.Problem{{
		Kind: httpapi.ProblemModelTopic, Subject: a.Config.Model.Topic, Since: since,
		Text: "the served model is not written to model.topic: " + why.Error(),
	}}
}

// report is the report for the status.
func (a *announcing) report() *model.Announced {
	a.counts.Lock()
	defer a.counts.Unlock()
	of := a.of
	of.Topic = a.Config.Model.Topic
	return &of
}
