package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"

	"streamd/ingest/kafka/protocol"
)

// TransactionConfig configures Transactions. Zero values stand for the defaults given.
type TransactionConfig struct {
	Cluster
	Source string // topic that is read
	Group  string // that the offsets of Source are committed to
	Topic  string // that records are written to
	// Timeout is how long brokers wait for the end of a transaction before they abort it; 1 minute.
	Timeout    time.Duration
	BatchBytes int // as of ProducerConfig

	// SourceHeader is the header by which brokers without transactions are written to
	// (PositionalProducer); empty: they are refused. Fetching is how records are read back.
	SourceHeader string
	Fetching     Fetching
}

// Transactions reads a topic and writes another one exactly once: the records that are made of a
// partition, and the offset up to which it has been read, are committed together, by one
// TransactionalProducer for each partition of the source. Where brokers have no transactions, a
// PositionalProducer comes as near as it can.
type Transactions struct {
	cfg      TransactionConfig
	cl       *client
	log      zerolog.Logger
	delivery atomic.Pointer[Delivery] // nil: not known yet

	readingBack sync.Mutex // of PositionalProducer
}

// Delivery is how records and offsets are written.
type Delivery string

// The ways of delivery.
const (
	InTransactions Delivery = "transactions"
	ByPositions    Delivery = "positions"
)

// ErrNoTransactions says that the brokers have no transactions.
var ErrNoTransactions = errors.New("the brokers have no transactions")

// ErrTransactionLost says that a transaction has been aborted, since another process writes for the
// partition by now, or since it took too long. What it wrote is not seen by readers of committed
// records, and whoever continues begins at the committed offset.
var ErrTransactionLost = errors.New("the transaction is lost: another process writes for the partition, or it took too long")

// NewTransactions checks the configuration and reports all its problems at once. It does not
// connect.
func NewTransactions(cfg TransactionConfig, log zerolog.Logger) (*Transactions, error) {
	problems := append(cfg.check(), checkTopic(cfg.Source), checkTopic(cfg.Topic))
	cfg.Timeout, cfg.BatchBytes = cmp.Or(cfg.Timeout, time.Minute), cmp.Or(cfg.BatchBytes, 1_000_000)
	if cfg.Group == "" {
		problems = append(problems, errors.New("no group given"))
	}
	if cfg.Source == cfg.Topic {
		problems = append(problems, fmt.Errorf("what is made of %s would go to %s itself", cfg.Source, cfg.Topic))
	}
	if cfg.Timeout < time.Second || cfg.Timeout > 15*time.Minute { // Kafka's own upper limit
		problems = append(problems, fmt.Errorf("transaction timeout %v is not between 1s and 15m", cfg.Timeout))
	}
	if cfg.BatchBytes < 1 || cfg.BatchBytes > 1<<30 {
		problems = append(problems, fmt.Errorf("batch bytes %d is not between 1 and %d", cfg.BatchBytes, 1<<30))
	}
	problems = append(problems, cfg.Fetching.check()...)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &Transactions{cfg: cfg, cl: newClient(&cfg.Cluster, cfg.Topic, cfg.Source), log: log.With().Str("topic", cfg.Topic).Logger()}, nil
}

// Prepare waits for the source, asks whether the brokers have transactions, and makes the topic
// where it is missing, with as many partitions and with these settings of Kafka. Brokers that
// cannot be written to are ErrNoTransactions.
func (t *Transactions) Prepare(ctx context.Context, configs func(context.Context) (map[string]string, error)) error {
	n, err := t.cl.waitForTopic(ctx, t.cfg.Source, t.log)
	if err != nil {
		return err
	}
	if err := t.ask(ctx); err != nil {
		return err
	}
	var pause backoff
	for {
		err := t.makeTopic(ctx, n, configs)
		if err == nil { // a busy cluster may not know it yet
			if _, err = t.cl.partitions(ctx, t.cfg.Topic); err == nil {
				break
			}
		}
		if ctx.Err() != nil || !mayPass(err) {
			return err
		}
		t.log.Warn().Err(err).Msg("the topic is not there yet; trying again")
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
	has, err := t.Partitions(ctx)
	if err == nil && has < n {
		t.log.Warn().Int("partitions", has).Int("source", n).
			Msg("the topic has fewer partitions than its source: the records of several partitions go to one")
	}
	return err
}

// ask reads in the brokers' list of requests whether they have transactions.
func (t *Transactions) ask(ctx context.Context) error {
	var pause backoff
	for {
		r, err := t.cl.api().ApiVersions(ctx, &kafkago.ApiVersionsRequest{})
		if err == nil {
			err = r.Error
		}
		if err == nil {
			var listed []int
			for _, k := range r.ApiKeys {
				listed = append(listed, k.ApiKey)
			}
			if slices.ContainsFunc(protocol.TransactionKeys, func(k int) bool { return !slices.Contains(listed, k) }) {
				return t.withoutTransactions()
			}
			return nil // Open may still be told otherwise
		}
		if ctx.Err() != nil || !mayPass(err) {
			return fmt.Errorf("ask the brokers what they can do: %w", err)
		}
		t.log.Warn().Err(err).Msg("the brokers do not say what they can do; trying again")
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

// withoutTransactions notes that the brokers have none. It is an error where they are needed.
func (t *Transactions) withoutTransactions() error {
	if t.cfg.SourceHeader == "" {
		return fmt.Errorf("%w, which are needed to write %s and the offsets of %s together: Apache Kafka has them", ErrNoTransactions, t.cfg.Topic, t.cfg.Source)
	}
	t.decide(ByPositions, "the brokers have no transactions: records are written with their source positions ("+t.cfg.SourceHeader+"), and the last ones are read back")
	return nil
}

// decide notes the delivery, and logs it once.
func (t *Transactions) decide(d Delivery, text string) {
	if t.delivery.CompareAndSwap(nil, &d) {
		t.log.Info().Str("delivery", string(d)).Msg(text)
	}
}

// Delivery is the way in which records are written; empty: it is not known yet.
func (t *Transactions) Delivery() Delivery {
	if d := t.delivery.Load(); d != nil {
		return *d
	}
	return ""
}

// makeTopic makes the topic where it is missing.
func (t *Transactions) makeTopic(ctx context.Context, partitions int, configs func(context.Context) (map[string]string, error)) error {
	if _, err := t.cl.partitions(ctx, t.cfg.Topic); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return err
	}
	settings, err := configs(ctx)
	if err != nil {
		return err
	}
	return EnsureTopic(ctx, t.cfg.Cluster, t.cfg.Topic, partitions, settings)
}

// Partitions is the number of partitions that are written to.
func (t *Transactions) Partitions(ctx context.Context) (int, error) {
	n, err := t.cl.waitForTopic(ctx, t.cfg.Topic, t.log)
	if err != nil {
		return 0, fmt.Errorf("produce to %s: %w", t.cfg.Topic, err)
	}
	return n, nil
}

// Close closes the connections.
func (t *Transactions) Close() { t.cl.close() }

// A TransactionalProducer writes the records that are made of one partition of the source. It
// belongs to one goroutine at a time. After an error it must not be used again.
type TransactionalProducer struct {
	*Transactions
	id        string // transactional.id: the next producer with it ends this one
	partition int    // of the source
	sender    sender
	squeezer  squeezer
	batch     batchWriter
	begun     bool       // the coordinator has been told of the transaction, or is being told
	telling   chan error // its answer; nil: it has been read
}

// Open opens the producer for a partition of the source. It writes to the given partition of the
// topic. A producer that another process has for the partition of the source loses its
// transaction. at is what has been committed. Where it fails with ErrNoTransactions,
// OpenPositions stands in for it.
func (t *Transactions) Open(ctx context.Context, source, to int) (p *TransactionalProducer, at Committed, err error) {
	if t.Delivery() == ByPositions {
		return nil, at, ErrNoTransactions
	}
	p = &TransactionalProducer{
		Transactions: t, partition: source,
		id: fmt.Sprintf("%s.%s.%d", t.cfg.Group, t.cfg.Source, source),
	}
	p.sender = sender{cl: t.cl, topic: t.cfg.Topic, partition: to, log: t.log, transaction: p.id, known: true}
	p.batch.reset()
	// It is answered when a transaction of the former producer has ended everywhere: what it has
	// committed is seen then.
	err = p.again(ctx, "open", func() error {
		r, err := t.cl.api().InitProducerID(ctx, &kafkago.InitProducerIDRequest{
			TransactionalID: p.id, TransactionTimeoutMs: int(t.cfg.Timeout.Milliseconds()), ProducerID: -1, ProducerEpoch: -1,
		})
		if err == nil {
			err = r.Error
		}
		if err == nil {
			p.sender.producer, p.sender.epoch = int64(r.Producer.ProducerID), int16(r.Producer.ProducerEpoch)
		}
		return err
	})
	if errors.Is(err, kafkago.UnsupportedVersion) { // some list the requests, and have it switched off
		return nil, at, cmp.Or(t.withoutTransactions(), ErrNoTransactions)
	}
	if err == nil {
		t.decide(InTransactions, "records are written in transactions, together with the offsets of the group")
		err = p.again(ctx, "read what is committed of", func() error {
			all, err := t.cl.committed(ctx, t.cfg.Group, t.cfg.Source, []int{source})
			at = all[source]
			return err
		})
		at.Metadata, _, _ = readMark(at.Metadata) // of a time without transactions
	}
	return p, at, err
}

// Write copies a record into the transaction. A zero t stands for a record without a time.
func (p *TransactionalProducer) Write(ctx context.Context, key, value []byte, headers []Header, t time.Time) error {
	if !p.begun {
		p.begun, p.telling = true, make(chan error, 1)
		go func(answer chan<- error) { answer <- p.tell(ctx) }(p.telling)
	}
	if p.batch.count > 0 && p.batch.size()+recordSize(key, value, headers) > p.cfg.BatchBytes {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	p.batch.add(key, value, headers, t)
	return nil
}

// tell tells the coordinator what the transaction has: the partition that is written to, and the
// offsets. It is done while the records are made.
func (p *TransactionalProducer) tell(ctx context.Context) error {
	err := p.try(ctx, "begin", p.ofTransactions(), func(at int) *protocol.Call {
		return protocol.NewAddPartition(at, p.transaction(), p.cfg.Topic, p.sender.partition)
	})
	if err != nil {
		return err
	}
	return p.tellOffsets(ctx)
}

func (p *TransactionalProducer) tellOffsets(ctx context.Context) error {
	return p.try(ctx, "commit offsets of", p.ofTransactions(), func(at int) *protocol.Call {
		return protocol.NewAddOffsets(at, p.transaction(), p.cfg.Group)
	})
}

// told waits until the coordinator knows of the transaction.
func (p *TransactionalProducer) told(ctx context.Context) error {
	if p.telling == nil {
		return nil
	}
	var err error
	select {
	case err = <-p.telling:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.telling = nil
	if err != nil && !isLost(err) && !isPermanent(err) && ctx.Err() == nil { // that of Write has ended
		err = p.tell(ctx)
	}
	return err
}

// flush sends what has been written.
func (p *TransactionalProducer) flush(ctx context.Context) error {
	if p.batch.count == 0 {
		return nil
	}
	if err := p.told(ctx); err != nil {
		return err
	}
	if err := p.squeezer.pack(&p.batch, p.cfg.BatchBytes); err != nil {
		return err
	}
	if err := p.sender.send(ctx, &p.batch); err != nil {
		return p.failed("write", err)
	}
	p.batch.reset()
	return nil
}

// Commit commits what has been written, and the offset of the source's partition with a text of at
// most 4,096 bytes.
func (p *TransactionalProducer) Commit(ctx context.Context, at Committed) error {
	err := p.told(ctx)
	if err == nil && !p.begun { // nothing has been written
		p.begun = true
		err = p.tellOffsets(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	// Not beside it: brokers verify what belongs to a transaction, one request at a time, and fail
	// the other one.
	err = p.try(ctx, "commit offsets of", coordinated{group: true, key: p.cfg.Group}, func(coordinator int) *protocol.Call {
		return protocol.NewCommitOffset(coordinator, p.transaction(), p.cfg.Group, p.cfg.Source, p.partition, at.Offset, at.Metadata)
	})
	if err != nil {
		return err
	}
	return p.end(ctx, true)
}

// Abort drops what has been written since the last commit. Without it readers wait until the
// brokers do so. The producer must not be used afterwards.
func (p *TransactionalProducer) Abort(ctx context.Context) error {
	if !p.begun {
		return nil
	}
	if err := p.told(ctx); err != nil {
		return err
	}
	return p.end(ctx, false)
}

// Forget is that of PositionalProducer. Here nothing is to be forgotten.
func (p *TransactionalProducer) Forget() {}

func (p *TransactionalProducer) end(ctx context.Context, commit bool) error {
	what := "abort"
	if commit {
		what = "commit"
	}
	err := p.try(ctx, what, p.ofTransactions(), func(at int) *protocol.Call {
		return protocol.NewEnd(at, p.transaction(), commit)
	})
	p.begun = false
	return err
}

func (p *TransactionalProducer) ofTransactions() coordinated { return coordinated{key: p.id} }

func (p *TransactionalProducer) transaction() protocol.Transaction {
	return protocol.Transaction{ID: p.id, Producer: p.sender.producer, Epoch: p.sender.epoch}
}

// markersPause is about how long brokers take to write the end of a transaction to all partitions.
const markersPause = 10 * time.Millisecond

// try repeats a call to a coordinator until it is answered, ctx ends, or repeating does not help. A
// call of a transaction that is repeated has no other effect than once.
func (p *TransactionalProducer) try(ctx context.Context, what string, of coordinated, call func(coordinator int) *protocol.Call) error {
	return p.again(ctx, what, func() error { return p.cl.callCoordinator(ctx, of, call) })
}

func (p *TransactionalProducer) again(ctx context.Context, what string, request func() error) error {
	var pause backoff
	for {
		err := request()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isLost(err), isPermanent(err):
			return p.failed(what, err)
		}
		p.log.WithLevel(pause.level()).Err(err).Str("transactional_id", p.id).Msgf("%s the transaction: trying again", what)
		if errors.Is(err, kafkago.ConcurrentTransactions) { // the one before is ending
			select {
			case <-time.After(markersPause):
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

func (p *TransactionalProducer) failed(what string, err error) error {
	if isLost(err) {
		err = fmt.Errorf("%w (%w)", ErrTransactionLost, err)
	}
	return fmt.Errorf("%s the transaction %s: %w", what, p.id, err)
}

// isLost reports whether brokers have ended a transaction, or the producer.
func isLost(err error) bool {
	lost := []kafkago.Error{
		kafkago.ProducerFenced, kafkago.InvalidProducerEpoch, kafkago.InvalidProducerIDMapping,
		kafkago.InvalidTransactionState, kafkago.UnknownProducerId, kafkago.OutOfOrderSequenceNumber,
	}
	return slices.ContainsFunc(lost, func(code kafkago.Error) bool { return errors.Is(err, code) })
}
