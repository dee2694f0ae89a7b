package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
)

// DeadLetterConfig configures DeadLetters. Zero values stand for the defaults.
type DeadLetterConfig struct {
	Cluster
	Source    string // topic of the records
	Topic     string // topic of the dead letters
	Connector string // value of the header connector.name: the program that rejects them
	// Patience bounds how long one Write tries; 1 minute.
	Patience time.Duration
}

// letterBytes is about the size of one produce request, uncompressed. It is well below the
// million bytes that a topic takes by default.
const letterBytes = 512 << 10

// DeadLetters writes rejected records to a topic of their own, as Letters. Letters are
// compressed when their records were. A letter that is too large for the topic goes without
// its value.
//
// DeadLetters creates the topic when it does not exist, with one partition, as many
// replicas as the source has, room for the source's largest record, and times of arrival
// instead of the records' own. A record goes to the partition of its source's number,
// modulo their count.
//
// The methods may be called at the same time.
type DeadLetters struct {
	cfg DeadLetterConfig
	cl  *client
	log zerolog.Logger

	mu      sync.Mutex
	senders []*sender // by partition; nil: not opened yet
	writer  batchWriter
}

// NewDeadLetters checks the configuration and reports all its problems at once. It does not
// connect.
func NewDeadLetters(cfg DeadLetterConfig, log zerolog.Logger) (*DeadLetters, error) {
	cfg.Patience = cmp.Or(cfg.Patience, time.Minute)
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

// Write writes letters about records of one partition, and returns once all in-sync
// replicas have them. It takes one produce request, or one for each half million bytes.
// After an error the letters may be missing. The records must not count as processed then,
// and the partition has to stop. Letters may be written twice when Write is repeated after
// an error, or by a process that died before it had saved its position.
func (d *DeadLetters) Write(ctx context.Context, partition int, letters []Letter) error {
	if len(letters) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Patience,
		fmt.Errorf("gave up after %v; see the log for what failed", d.cfg.Patience))
	defer cancel()
	fail := func(err error) error {
		return fmt.Errorf("dead letter for %s/%d/%d to %s: %w", d.cfg.Source, partition, letters[0].offset(), d.cfg.Topic, err)
	}
	if d.senders == nil {
		if err := d.open(ctx); err != nil {
			return fail(err)
		}
	}
	defer func() {
		if cap(d.writer.buf) > 4*letterBytes { // there was a large letter
			d.writer = batchWriter{}
		}
	}()
	for s := d.senders[partition%len(d.senders)]; len(letters) > 0; {
		n, bytes := 0, 0
		for n < len(letters) && (n == 0 || bytes < letterBytes) {
			if r := letters[n].Record; r != nil {
				bytes += recordSize(r.Key, r.Value, r.Headers)
			}
			bytes += 4*recordOverhead + len(letters[n].Reason.Message)
			n++
		}
		if err := d.send(ctx, s, partition, letters[:n], false); err != nil {
			return fail(err)
		}
		letters = letters[n:]
	}
	return nil
}

// send writes letters as one record batch. If that is too large for the topic, it writes
// each half, and at last short letters.
func (d *DeadLetters) send(ctx context.Context, s *sender, partition int, letters []Letter, short bool) error {
	d.writer.reset()
	codec, now := compress.None, time.Now()
	for i := range letters {
		if r := letters[i].Record; r != nil && codec == compress.None {
			codec = r.codec
		}
		d.add(partition, &letters[i], short, now)
	}
	err := d.writer.pack(codec)
	if err == nil {
		err = d.fits(ctx)
	}
	if err == nil {
		err = s.send(ctx, &d.writer)
	}
	switch {
	case err == nil:
		return nil
	case !isTooLarge(err):
		// The batch may have been written, so the next sequence number is unknown. Continue
		// under a new id.
		s.known, s.sequence = false, 0
		return err
	case len(letters) > 1:
		half := len(letters) / 2
		if err := d.send(ctx, s, partition, letters[:half], short); err != nil {
			return err
		}
		return d.send(ctx, s, partition, letters[half:], short)
	case !short:
		return d.send(ctx, s, partition, letters, true)
	}
	return err
}

// fits asks for the topic's limit before a large batch is sent. A broker may close the
// connection on a much larger one.
func (d *DeadLetters) fits(ctx context.Context) error {
	if d.writer.size() <= letterBytes {
		return nil
	}
	if most := d.messageBytes(ctx, d.cfg.Topic); most > 0 && d.writer.size() > most {
		return kafkago.MessageSizeTooLarge
	}
	return nil
}

func (d *DeadLetters) add(partition int, l *Letter, short bool, now time.Time) {
	key, value, headers := l.record(d.cfg.Source, d.cfg.Connector, partition, short)
	d.writer.add(key, value, headers, now)
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
		if pause.wait(ctx) != nil {
			return ended(ctx, err)
		}
	}
}

func (d *DeadLetters) create(ctx context.Context) error {
	replicas := -1
	if t, err := d.cl.topic(ctx, d.cfg.Source); err == nil && len(t.Partitions) > 0 {
		replicas = len(t.Partitions[0].ReplicaNodes)
	}
	// With the records' own times, retention would delete the dead letters of old records at
	// once.
	configs := map[string]string{"message.timestamp.type": "LogAppendTime"}
	if size := d.messageBytes(ctx, d.cfg.Source); size > 0 {
		configs["max.message.bytes"] = strconv.Itoa(size + 4*maxReason + 1024)
	}
	if err := d.cl.createTopic(ctx, d.cfg.Topic, 1, replicas, configs); err != nil {
		return err
	}
	d.log.Info().Int("replicas", replicas).Msg("created the dead-letter topic")
	return nil
}

// messageBytes is the size of the largest record batch that a topic takes, or 0 when the
// broker does not say.
func (d *DeadLetters) messageBytes(ctx context.Context, topic string) int {
	const name = "max.message.bytes"
	r, err := d.cl.api().DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{{
		ResourceType: kafkago.ResourceTypeTopic,
		ResourceName: topic,
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

// Close closes the connections.
func (d *DeadLetters) Close() { d.cl.close() }
