package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/scoring"
	"streamd/config"
	"streamd/ingest/wire"
)

// predicting answers the rows of predict.topic by the served model (package scoring). Nothing of it
// belongs to the loop. It begins anew when it fails: the rest of the daemon does not need it.
type predicting struct {
	*core
	served   func() (*model.Served, <-chan struct{})
	decoding wire.Options

	mu    sync.Mutex
	stage *scoring.Stage  // the present one; nil: there is none yet
	past  model.Predicted // of those before it
	since time.Time       // it fails since then; zero: it does not
	why   error
	last  *scoring.Model // the model that has answered last
	of    *model.Served  // which it is of
}

// Answering fails for a while before it is a problem: a broker may start again. It is tried again
// after answerRetry.
const (
	answerFailing = 10 * time.Second
	answerRetry   = 2 * time.Second
)

// forms are the forms of answers by their names in the configuration.
var forms = map[config.AnswerForm]predictions.Form{
	config.AnswerJSON: predictions.Columns, config.AnswerRows: predictions.Rows,
	config.AnswerCSV: predictions.CSV, config.AnswerArrow: predictions.Arrow,
}

// run answers until ctx ends.
func (p *predicting) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.answer(ctx)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		if p.why = err; p.since.IsZero() {
			p.since = time.Now()
		}
		p.mu.Unlock()
		p.log.Warn().Err(err).Str("topic", p.cfg.Predict.Topic).Stringer("again_in", answerRetry).Msg("rows cannot be answered; trying again")
		select {
		case <-ctx.Done():
		case <-time.After(answerRetry):
		}
	}
}

// answer answers until ctx ends or it fails.
func (p *predicting) answer(ctx context.Context) error {
	cluster, err := Cluster(p.cfg.Kafka, p.log)
	if err != nil {
		return err
	}
	rows := p.cfg.Kafka
	rows.Topic, rows.Group = p.cfg.Predict.Topic, p.cfg.Predict.Group
	consuming := ConsumerConfig(rows, cluster, p.memory)
	consuming.Fetching = bounded(p.memory, Fetching(rows), p.memory.Asked)
	z, err := scoring.New(scoring.Options{
		Consuming: consuming, To: p.cfg.Predict.Output, Form: forms[p.cfg.Predict.Form],
		Policy: p.cfg.DeadLetters.Policy, Letters: config.LettersOf(rows.Topic),
		Decoding: p.decoding, Models: p, Registry: p.registry, Log: p.log,
	})
	if err != nil {
		return err
	}
	defer z.Close()
	p.mu.Lock()
	p.past, p.stage = p.counts(), z
	p.mu.Unlock()
	works := time.AfterFunc(answerFailing, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.since, p.why = time.Time{}, nil
	})
	defer works.Stop()
	return z.Run(ctx)
}

// Model implements scoring.Models.
func (p *predicting) Model(ctx context.Context) (*scoring.Model, error) {
	for {
		served, replaced := p.served()
		if served.Model != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() || now.Sub(p.since) < answerFailing || p.why == nil {
		return nil
	}
	return []httpapi.Problem{{
		Kind: httpapi.ProblemPredict, Subject: p.cfg.Predict.Topic, Since: p.since,
		Text: "rows of predict.topic are not answered: " + p.why.Error(),
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
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.cfg.Predict
	return &model.Predicting{Topic: of.Topic, Output: of.Output, Group: of.Group, Predicted: p.counts()}
}

// Describe implements prometheus.Collector.
func (p *predicting) Describe(to chan<- *prometheus.Desc) { scoring.Collector{}.Describe(to) }

// Collect implements prometheus.Collector.
func (p *predicting) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	z := p.stage
	p.mu.Unlock()
	if z != nil {
		scoring.Collector{Stage: z}.Collect(to)
	}
}
