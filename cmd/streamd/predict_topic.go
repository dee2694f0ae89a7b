package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/settings"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/predictions"
	"streamd/cmd/streamd/scoring"
	"streamd/config"
	"streamd/retire"
)

// predictWindow is windowFlags for a command whose --to may also name a topic.
type predictWindow struct {
	From      *time.Time     `placeholder:"TIME" help:"The model of the live and archived blocks of this event time or later, such as 2026-01-02T00:00:00Z, instead of the served one."`
	To        string         `placeholder:"TIME" help:"The model of the live and archived blocks of an event time before this. With --topic: the topic that answers are written to."`
	Positions []retire.Range `sep:"none" placeholder:"TOPIC/PARTITION/FIRST-LAST" help:"The model of the live and archived blocks with an offset of this range between their first and last record. May be given several times."`
	Nu        windowNu       `placeholder:"NU" help:"Weight of the errors of that model. The default is that of the served model."`
}

// window is the window that the flags choose, where --to is a time.
func (f *predictWindow) window() (w windowFlags, err error) {
	w = windowFlags{From: f.From, Positions: f.Positions, Nu: f.Nu}
	if f.To != "" {
		to, err := time.Parse(time.RFC3339, f.To)
		if err != nil {
			return w, fmt.Errorf("--to %q: want a time such as 2026-01-02T00:00:00Z, or with --topic a topic", f.To)
		}
		w.To = &to
	}
	return w, w.check()
}

// topicFlags are those of rows that come by a topic.
type topicFlags struct {
	configFile
	Topic   string   `placeholder:"NAME" help:"Topic of rows, in place of a file: each record is answered by one on the topic --to, with its key and headers, exactly once, until the command is stopped. The configuration's kafka and format say how to read it."`
	Brokers []string `placeholder:"HOST:PORT" help:"With --topic: addresses of the cluster. The default is kafka.brokers of the configuration."`
	Group   string   `placeholder:"NAME" help:"With --topic: group of the processes that share its partitions. (default: streamd.predict.TOPIC.TO)"`
	Listen  string   `placeholder:"HOST:PORT" help:"With --topic: address of /readyz, /healthz and /metrics. The default is none."`
}

// checkTopic checks the flags of rows that come by a topic.
func (c *predictCmd) checkTopic() error {
	switch {
	case c.To == "":
		return errors.New("--topic asks for --to, the topic that answers are written to")
	case c.To == c.Topic:
		return fmt.Errorf("--to %s: the answers would go to the topic of the rows itself", c.To)
	case c.File != "":
		return errors.New("rows come from a file or from --topic, not from both")
	case c.Values || c.Probabilities || c.Contributions || c.Leverage || c.JSON || c.Format != "auto":
		return errors.New("--values, --probabilities, --contributions, --leverage, --json and --format are for files: answers to a topic have all values and probabilities, in JSON or as --output says")
	case c.From != nil || c.Positions != nil || c.Nu != 0:
		return errors.New("--from, --positions and --nu are for files: a topic is answered by the served model, or by --model")
	}
	return nil
}

// answerForm is the form of answers to a topic.
func (c *predictCmd) answerForm() predictions.Form {
	if form, ok := c.form(); ok {
		return form
	}
	return predictions.Columns
}

// answerTopic answers the rows of a topic until ctx ends.
func (c *predictCmd) answerTopic(ctx context.Context, s *surroundings) error {
	given := map[string]string{}
	if len(c.Brokers) > 0 {
		given["kafka.brokers"] = strings.Join(c.Brokers, ",")
	}
	if c.Listen != "" {
		given["http.listen"] = c.Listen
	}
	cfg, err := c.loadFrom(s, config.Sources{Flags: given, NoTopic: true}, map[string]string{"--kafka.brokers": "--brokers", "--http.listen": "--listen"})
	log := s.log(logSettings(cfg, err))
	if err != nil {
		return fatal(log, err)
	}
	models, err := c.models(ctx, s, log)
	if err != nil {
		return err
	}
	z, err := c.scoring(cfg, models, log)
	if err != nil {
		return fatal(log, err)
	}
	defer z.Close()
	if c.Listen != "" {
		if err := z.Listen("--listen", cfg.HTTP, scoring.Collector{Stage: z}); err != nil {
			return fatal(log, err)
		}
	}
	log.Info().Str("topic", c.Topic).Str("to", c.To).Str("group", z.Consuming.Group).Msg("answering")
	return fatal(log, within(ctx, cfg.ShutdownTimeout, func() error { return z.Run(ctx) }))
}

// scoring makes the stage.
func (c *predictCmd) scoring(cfg *config.Config, models scoring.Models, log zerolog.Logger) (*scoring.Stage, error) {
	r, err := settings.NewReading(cfg, log)
	if err != nil {
		return nil, err
	}
	rows := cfg.Kafka
	rows.Topic, rows.Group = c.Topic, cmp.Or(c.Group, config.PredictGroup(c.Topic, c.To))
	return scoring.New(scoring.Options{
		Consuming: settings.ConsumerConfig(rows, r.Cluster, r.Budget), To: c.To, Form: c.answerForm(),
		Policy: cfg.DeadLetters.Policy, Letters: config.LettersOf(c.Topic),
		Decoding: r.Decoding, Models: models, Registry: r.Registry, Log: log,
	})
}

// models has the model of a file, or those that the daemon serves one after the other.
func (c *predictCmd) models(ctx context.Context, s *surroundings, log zerolog.Logger) (scoring.Models, error) {
	if c.Model != "" {
		answer, err := savedModel(c.Model)
		if err != nil {
			return nil, fmt.Errorf("--model: %w", err)
		}
		m, err := scoringModel(answer)
		if err != nil {
			return nil, fmt.Errorf("--model: %w", err)
		}
		return fixedModel{m}, nil
	}
	daemon, err := c.client(s)
	if err != nil {
		return nil, err
	}
	w := &watchedModel{client: daemon, log: log, first: make(chan struct{})}
	go w.follow(ctx)
	return w, nil
}

func scoringModel(a *httpapi.ModelAnswer) (*scoring.Model, error) {
	by, err := a.Classifier()
	if err != nil {
		return nil, err
	}
	return &scoring.Model{Classifier: by, Fingerprint: a.Fingerprint, Method: a.Method, Offsets: a.Offsets}, nil
}

// fixedModel is a model that stays.
type fixedModel struct{ model *scoring.Model }

// Model implements scoring.Models.
func (f fixedModel) Model(context.Context) (*scoring.Model, error) { return f.model, nil }

// watchedModel follows the model of a daemon. Without the daemon the last one stays.
type watchedModel struct {
	client *client
	log    zerolog.Logger
	first  chan struct{} // closed when there is a model

	mu    sync.Mutex
	model *scoring.Model
}

// Model implements scoring.Models.
func (w *watchedModel) Model(ctx context.Context) (*scoring.Model, error) {
	select {
	case <-w.first:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.model, nil
}

// A daemon is asked for another model at most so often. It answers when it has one.
const (
	modelPause = 100 * time.Millisecond
	modelRetry = time.Second
)

// follow asks for the model again and again until ctx ends.
func (w *watchedModel) follow(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		known := ""
		if w.model != nil { // no one else writes it
			known = `"` + w.model.Fingerprint + `"`
		}
		m, err := w.next(ctx, known)
		pause := modelPause
		switch {
		case err != nil && ctx.Err() == nil:
			if pause = modelRetry; !failed {
				w.log.Warn().Err(err).Bool("has_model", known != "").Msg("the daemon does not give its model; asking again")
			}
		case m != nil:
			w.mu.Lock()
			w.model = m
			w.mu.Unlock()
			if known == "" {
				close(w.first)
			}
		}
		failed = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// next waits for another model than the known one. It is nil if there is none within the wait.
func (w *watchedModel) next(ctx context.Context, known string) (*scoring.Model, error) {
	var a httpapi.ModelAnswer
	path := fmt.Sprintf("/v1/model?wait=%s", httpapi.MaxWait/2)
	body, err := w.client.send(ctx, http.MethodGet, path, payload{known: known}, answerTimeout+httpapi.MaxWait, nil)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	if err := unmarshalModel(body, &a); err != nil {
		return nil, err
	}
	return scoringModel(&a)
}
