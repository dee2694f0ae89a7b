package output

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/scoring"
	"streamd/config"
)

// predicting answers the rows of predict.topic by the served model (package scoring). Nothing of it
// belongs to the loop.
type predicting struct {
	*loop.Environment
	served func() (*model.Served, <-chan struct{})

	remembering *remembering // nil: answers do not wait for labels
	retried

	state sync.Mutex
	stage *scoring.Stage  // the present one; nil: there is none yet
	past  model.Predicted // of those before it
	last  *scoring.Model  // the model that has answered last
	of    *model.Served   // which it is of
}

// forms are the forms of answers by their names in the configuration.
var forms = map[config.AnswerForm]predictions.Form{
	config.AnswerJSON: predictions.Columns, config.AnswerRows: predictions.Rows,
	config.AnswerCSV: predictions.CSV, config.AnswerArrow: predictions.Arrow,
}

// PredictSession is that of the members of predict.group; 0: the one of package kafka. Tests that
// kill daemons wait less long for the group to notice.
var PredictSession time.Duration

// run answers until ctx ends.
func (p *predicting) run(ctx context.Context) {
	log := p.Log.With().Str("topic", p.Config.Predict.Topic).Logger()
	p.retried.run(ctx, log, "rows cannot be answered", p.answer)
}

// answer answers until ctx ends or it fails.
func (p *predicting) answer(ctx context.Context) error {
	cluster, err := settings.Cluster(p.Config.Kafka, p.Log)
	if err != nil {
		return err
	}
	rows := p.Config.Kafka
	rows.Topic, rows.Group = p.Config.Predict.Topic, p.Config.Predict.Group
	consuming := settings.ConsumerConfig(rows, cluster, p.Memory)
	consuming.SessionTimeout = PredictSession
	consuming.Fetching = settings.Bounded(p.Memory, settings.Fetching(rows), p.Memory.Asked)
	o := scoring.Options{
		Consuming: consuming, To: p.Config.Predict.Output, Form: forms[p.Config.Predict.Form],
		Policy: p.Config.DeadLetters.Policy, Letters: config.LettersOf(rows.Topic),
		Decoding: p.Decoding, Models: p, Registry: p.Registry, Log: p.Log,
	}
	if p.remembering != nil {
		o.Remember = p.remembering.check
	}
	z, err := scoring.New(o)
	if err != nil {
		return err
	}
	defer z.Close()
	p.state.Lock()
	p.past, p.stage = p.counts(), z
	p.state.Unlock()
	works := time.AfterFunc(retriedFailing, func() { p.note(nil) })
	defer works.Stop()
	return z.Run(ctx)
}

// Model implements scoring.Models.
func (p *predicting) Model(ctx context.Context) (*scoring.Model, error) {
	for {
		served, replaced := p.served()
		if served.Model != nil {
			p.state.Lock()
			defer p.state.Unlock()
			if p.of != served {
				p.of = served
				p.last = &scoring.Model{
					Classifier: served.Classifier(), Fingerprint: served.Fingerprint,
					Method: string(served.Method()), Offsets: served.Offsets,
				}
			}
			return p.last, nil
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// problem is what the operator should know, if anything.
func (p *predicting) problem(now time.Time) (all []httpapi.Problem) {
	since, why := p.failing(now, retriedFailing)
	if why == nil {
		return nil
	}
	return []httpapi.Problem{{
		Kind: httpapi.ProblemPredict, Subject: p.Config.Predict.Topic, Since: since,
		Text: "rows of predict.topic are not answered: " + why.Error(),
	}}
}

// counts are those since the start. The caller has the lock.
func (p *predicting) counts() model.Predicted {
	sum := p.past
	if p.stage != nil {
		c := p.stage.Counts()
		sum.Answered += c.Answered
		sum.Tombstones += c.Tombstones
		sum.Rejected += c.Rejected
		sum.Rows += c.Rows
	}
	return sum
}

// report is the report for the status.
func (p *predicting) report() *model.Predicting {
	p.state.Lock()
	defer p.state.Unlock()
	of := p.Config.Predict
	r := &model.Predicting{Topic: of.Topic, Output: of.Output, Group: of.Group, Predicted: p.counts()}
	if p.stage != nil {
		r.Delivery = string(p.stage.Delivery())
	}
	return r
}

// Describe implements prometheus.Collector.
func (p *predicting) Describe(to chan<- *prometheus.Desc) { scoring.Collector{}.Describe(to) }

// Collect implements prometheus.Collector.
func (p *predicting) Collect(to chan<- prometheus.Metric) {
	p.state.Lock()
	z := p.stage
	p.state.Unlock()
	if z != nil {
		scoring.Collector{Stage: z}.Collect(to)
	}
}
