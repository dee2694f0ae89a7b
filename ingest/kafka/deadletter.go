package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
)

// DeadLetterConfig configures DeadLetters. Zero values stand for the defaults.
type DeadLetterConfig struct {
	Cluster
	Source    string // the topic that the records come from
	Topic     string // where they go
	Connector string // who rejects them, for the header connector.name
	// Patience bounds how long one Write tries; 1 minute.
	Patience time.Duration
}

// Reason says why a record was rejected.
type Reason struct {
	Stage   string // what was being done: "VALUE_CONVERTER", say
	Class   string // the kind of error, as a programmer would name it
	Message string // for people; cut after 4096 bytes
}

// maxReason bounds the reason's texts, so that a record that just fitted its
// topic does not outgrow the other by far.
const maxReason = 4096

// DeadLetters writes records that cannot be used to a topic of their own: key,
// value and headers as they were, the time too, and the headers by which Kafka
// Connect marks dead letters, in which topic, partition and offset are decimal
// or UTF-8 strings.
//
// The topic is created when it does not exist, with one partition, as many
// replicas as the source has, room for the source's largest record, and times of
// arrival in the place of the records' own. A record goes to the partition of its
// source's number, modulo their count.
//
// Its methods may be called at the same time.
type DeadLetters struct {
	cfg DeadLetterConfig
	cl  *client
	log zerolog.Logger

	mu      sync.Mutex
	senders []*sender // by partition; nil: not yet opened
	writer  batchWriter
}

// NewDeadLetters checks the configuration and reports all that is wrong with it.
// It does not connect.
func NewDeadLetters(cfg DeadLetterConfig, log zerolog.Logger) (*DeadLetters, error) {
	defaultTo(&cfg.Patience, time.Minute)
	problems := append(cfg.check(), checkTopic(cfg.Source), checkTopic(cfg.Topic))
	if cfg.Source == cfg.Topic {
		problems = append(problems, fmt.Errorf("dead letters of %s would go to %s itself", cfg.Source, cfg.Topic))
	}
	if cfg.Patience < 0 {
		problems = append(problems, fmt.Errorf("patience %v is negative", cfg.Patience))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &DeadLetters{
		cfg: cfg,
		cl:  newClient(&cfg.Cluster, cfg.Topic, cfg.Source),
		log: log.With().Str("topic", cfg.Topic).Logger(),
	}, nil
}

// Write returns once all in-sync replicas have the dead letter. An error means
// that this is not certain, and that the record must not be counted as dealt
// with: the partition has to stop. A Write that is repeated after an error, or
// by a process that died before it had saved its position, may leave the dead
// letter twice.
func (d *DeadLetters) Write(ctx context.Context, partition int, r *Record, reason Reason) error {
	fail := func(err error) error {
		return fmt.Errorf("dead letter for %s/%d/%d to %s: %w", d.cfg.Source, partition, r.Offset, d.cfg.Topic, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Patience,
		fmt.Errorf("gave up after %v; see the log for what failed", d.cfg.Patience))
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.senders == nil {
		if err := d.open(ctx); err != nil {
			return fail(err)
		}
	}
	headers := append(r.Headers[:len(r.Headers):len(r.Headers)],
		Header{"__connect.errors.topic", []byte(d.cfg.Source)},
		Header{"__connect.errors.partition", strconv.AppendInt(nil, int64(partition), 10)},
		Header{"__connect.errors.offset", strconv.AppendInt(nil, r.Offset, 10)},
		Header{"__connect.errors.connector.name", bounded(d.cfg.Connector)},
		Header{"__connect.errors.stage", bounded(reason.Stage)},
		Header{"__connect.errors.class.name", bounded(reason.Class)},
		Header{"__connect.errors.exception.class.name", bounded(reason.Class)},
		Header{"__connect.errors.exception.message", bounded(reason.Message)},
	)
	d.writer.reset()
	d.writer.add(r.Key, r.Value, headers, r.Time)
	s := d.senders[partition%len(d.senders)]
	if err := s.send(ctx, &d.writer); err != nil {
		// Whether the batch was written is unknown, and so is the next sequence
		// number: go on under a new id.
		s.known, s.sequence = false, 0
		return fail(err)
	}
	return nil
}

// bounded returns s as valid UTF-8 of at most maxReason bytes.
func bounded(s string) []byte {
	if len(s) > maxReason {
		cut := maxReason - len("…")
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return []byte(strings.ToValidUTF8(s, "\uFFFD"))
}

func (d *DeadLetters) open(ctx context.Context) error {
	var pause backoff
	for {
		n, err := d.cl.partitions(ctx, d.cfg.Topic)
		switch {
		case err == nil && n > 0:
			d.senders = make([]*sender, n)
			for i := range d.senders {
				d.senders[i] = &sender{cl: d.cl, topic: d.cfg.Topic, partition: i, log: d.log}
			}
			return nil
		case isPermanent(err):
			return err
		case errors.Is(err, kafkago.UnknownTopicOrPartition):
			if err = d.create(ctx); err == nil {
				continue
			} else if isPermanent(err) {
				return fmt.Errorf("%w; create the topic, or allow streamd to", err)
			}
		}
		d.log.Warn().Err(err).Msg("the dead-letter topic cannot be used; trying again")
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

func (d *DeadLetters) create(ctx context.Context) error {
	replicas := -1
	if t, err := d.cl.topic(ctx, d.cfg.Source); err == nil && len(t.Partitions) > 0 {
		replicas = len(t.Partitions[0].ReplicaNodes)
	}
	// Time of arrival: with the records' own, replaying old ones would have
	// retention delete the dead letters at once.
	configs := map[string]string{"message.timestamp.type": "LogAppendTime"}
	if size := d.sourceMessageBytes(ctx); size > 0 {
		configs["max.message.bytes"] = strconv.Itoa(size + 4*maxReason + 1024)
	}
	if err := d.cl.createTopic(ctx, d.cfg.Topic, 1, replicas, configs); err != nil {
		return err
	}
	d.log.Info().Int("replicas", replicas).Msg("created the dead-letter topic")
	return nil
}

// sourceMessageBytes is the largest record batch that the source topic takes; 0
// when the broker does not say.
func (d *DeadLetters) sourceMessageBytes(ctx context.Context) int {
	const name = "max.message.bytes"
	r, err := d.cl.api().DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{{
		ResourceType: kafkago.ResourceTypeTopic,
		ResourceName: d.cfg.Source,
		ConfigNames:  []string{name},
	}}})
	if err != nil {
		return 0
	}
	for _, resource := range r.Resources {
		for _, e := range resource.ConfigEntries {
			if n, err := strconv.Atoi(e.ConfigValue); e.ConfigName == name && err == nil && n > 0 && n <= 1<<30 {
				return n
			}
		}
	}
	return 0
}

// Close gives up the connections.
func (d *DeadLetters) Close() { d.cl.close() }
