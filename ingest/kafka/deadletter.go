package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
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
	Stage   string // what was being done, in Kafka Connect's words: "VALUE_CONVERTER", say
	Class   string // the kind of trouble, one of a few words, to count by
	Message string // for people; cut after 4096 bytes
}

// maxReason bounds the reason's texts, so that a record that just fitted its
// topic does not outgrow the other by far.
const maxReason = 4096

// A Letter is about one record, or about a stretch of refused ones.
type Letter struct {
	Record  *Record  // nil: Refused is set
	Refused *Refused // nil: Record is set
	Reason  Reason
}

func (l *Letter) offset() int64 {
	if l.Refused != nil {
		return l.Refused.First
	}
	return l.Record.Offset
}

// # The format of a dead letter
//
// Key, value and headers are those of the record. Behind its headers come those of
// Kafka Connect, all of them always, with this one first:
//
//	__connect.errors.topic                     of the record
//	__connect.errors.partition                 decimal
//	__connect.errors.offset                    decimal
//	__connect.errors.connector.name            DeadLetterConfig.Connector
//	__connect.errors.stage                     Reason.Stage
//	__connect.errors.class.name                Reason.Class
//	__connect.errors.exception.class.name      Reason.Class
//	__connect.errors.exception.message         Reason.Message
//
// And behind these, where they apply:
//
//	streamd.timestamp        the record's time, decimal, in milliseconds since 1970;
//	                         the letter's own time is when it was written
//	streamd.value.size       the value was left out: its bytes, decimal, and its
//	streamd.value.sha256     SHA-256, in hexadecimal
//	streamd.key.size         the same for the key
//	streamd.key.sha256
//	streamd.headers.omitted  so many of the record's headers were left out, decimal
//	streamd.offset.last      the letter stands for all records up to this offset,
//	                         which could not be read; it has no key and no value
//	streamd.records          how many these are, by their record batch's header
//
// A record's own headers may have the same names, when it has been a dead letter
// before: those behind the last __connect.errors.topic count. ReadDeadLetter reads
// a letter back.
const (
	headerTopic     = "__connect.errors.topic"
	headerPartition = "__connect.errors.partition"
	headerOffset    = "__connect.errors.offset"
	headerConnector = "__connect.errors.connector.name"
	headerStage     = "__connect.errors.stage"
	headerClass     = "__connect.errors.class.name"
	headerException = "__connect.errors.exception.class.name"
	headerMessage   = "__connect.errors.exception.message"

	headerTime        = "streamd.timestamp"
	headerValueSize   = "streamd.value.size"
	headerValueDigest = "streamd.value.sha256"
	headerKeySize     = "streamd.key.size"
	headerKeyDigest   = "streamd.key.sha256"
	headerOmitted     = "streamd.headers.omitted"
	headerLast        = "streamd.offset.last"
	headerRecords     = "streamd.records"
)

// letterHeaders is the most headers that a letter adds to its record's.
const letterHeaders = 16

// A short letter leaves the value out, and all but these bytes of the rest.
const (
	shortKey     = 256
	shortHeaders = 1024
	shortMessage = 512
)

// letterBytes is about how much goes into one produce request, uncompressed: well
// below the million bytes that a topic takes by default.
const letterBytes = 512 << 10

// DeadLetters writes records that cannot be used to a topic of their own, in the
// format above. Letters are compressed when their records were. One that is too
// large for the topic all the same goes without its value.
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

// Write returns once all in-sync replicas have the letters, which are about records
// of one partition. They take one produce request, or one for each half million
// bytes. An error means that this is not certain, and that the records must not be
// counted as dealt with: the partition has to stop. A Write that is repeated after
// an error, or by a process that died before it had saved its position, may leave
// letters twice.
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
		if cap(d.writer.buf) > 4*letterBytes { // of one large letter
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

// send writes letters as one record batch. When that is too large for the topic it
// writes each half, and at last a short letter.
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
		// Whether the batch was written is unknown, and so is the next sequence
		// number: go on under a new id.
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

// fits asks for the topic's limit before a large batch is sent: the broker may hang
// up on what is larger still.
func (d *DeadLetters) fits(ctx context.Context) error {
	if d.writer.size() <= letterBytes {
		return nil
	}
	if most := d.messageBytes(ctx, d.cfg.Topic); most > 0 && d.writer.size() > most {
		return kafkago.MessageSizeTooLarge
	}
	return nil
}

// add encodes a letter.
func (d *DeadLetters) add(partition int, l *Letter, short bool, now time.Time) {
	r := l.Record
	if r == nil {
		r = &Record{Offset: l.Refused.First}
	}
	key, value, own, omitted := r.Key, r.Value, r.Headers, r.OmittedHeaders
	message := l.Reason.Message
	if len(own) > mostHeaders-letterHeaders { // or nobody could read the letter
		own, omitted = nil, omitted+len(own)
	}
	var more []Header
	number := func(name string, n int64) { more = append(more, Header{name, strconv.AppendInt(nil, n, 10)}) }
	digest := func(size, sum string, of []byte) {
		hash := sha256.Sum256(of)
		number(size, int64(len(of)))
		more = append(more, Header{sum, hex.AppendEncode(nil, hash[:])})
	}
	if !r.Time.IsZero() {
		number(headerTime, r.Time.UnixMilli())
	}
	if short {
		message = cut(message, shortMessage)
		if value != nil {
			digest(headerValueSize, headerValueDigest, value)
			value = nil
		}
		if len(key) > shortKey {
			digest(headerKeySize, headerKeyDigest, key)
			key = nil
		}
		kept, bytes := 0, 0
		for ; kept < len(own); kept++ {
			if bytes += len(own[kept].Key) + len(own[kept].Value) + 10; bytes > shortHeaders {
				break
			}
		}
		own, omitted = own[:kept], omitted+len(own)-kept
	}
	if omitted > 0 {
		number(headerOmitted, int64(omitted))
	}
	if l.Refused != nil {
		number(headerLast, l.Refused.Last)
		number(headerRecords, l.Refused.Records)
	}
	headers := slices.Concat(own, []Header{
		{headerTopic, []byte(d.cfg.Source)},
		{headerPartition, strconv.AppendInt(nil, int64(partition), 10)},
		{headerOffset, strconv.AppendInt(nil, r.Offset, 10)},
		{headerConnector, bounded(d.cfg.Connector)},
		{headerStage, bounded(l.Reason.Stage)},
		{headerClass, bounded(l.Reason.Class)},
		{headerException, bounded(l.Reason.Class)},
		{headerMessage, bounded(message)},
	}, more)
	d.writer.add(key, value, headers, now)
}

// bounded returns s as valid UTF-8 of at most maxReason bytes.
func bounded(s string) []byte {
	return []byte(strings.ToValidUTF8(cut(s, maxReason), "?"))
}

// cut returns s, or its beginning and an ellipsis, in at most so many bytes.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := most - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// A DeadLetter is a letter that has been read back. It views the record that it
// was read from.
type DeadLetter struct {
	Topic          string // of the record
	Partition      int
	Offset, Last   int64     // of the records; the same, but for a stretch of refused ones
	Records        int64     // from Offset to Last
	Refused        bool      // they could not be read, so that Key, Value and Headers are nobody's
	Time           time.Time // of the record; zero: it had none
	Key, Value     []byte    // as in the record, but nil when omitted
	Headers        []Header
	Connector      string
	Reason         Reason
	OmittedKey     *Omitted // nil: Key is the record's
	OmittedValue   *Omitted // nil: Value is the record's
	OmittedHeaders int64    // of the record's, so many are not in Headers
}

// Omitted describes a key or a value that a letter was too small for.
type Omitted struct {
	Size   int64
	SHA256 [sha256.Size]byte
}

// Whole says that the letter has the record as it was, so that it may be produced
// once more.
func (l *DeadLetter) Whole() bool {
	return l.OmittedKey == nil && l.OmittedValue == nil && l.OmittedHeaders == 0 && !l.Refused
}

// ReadDeadLetter reads a letter back from the record that it was written as. An error
// says that the record is none: anybody may have written it.
func ReadDeadLetter(r *Record) (*DeadLetter, error) {
	own := len(r.Headers) - 1
	for own >= 0 && r.Headers[own].Key != headerTopic {
		own--
	}
	if own < 0 {
		return nil, fmt.Errorf("the record at offset %d is no dead letter: it has no header %s", r.Offset, headerTopic)
	}
	if r.OmittedHeaders > 0 {
		return nil, fmt.Errorf("the record at offset %d is no dead letter: it has %d headers", r.Offset, r.OmittedHeaders)
	}
	fields := make(map[string]string, letterHeaders)
	for _, h := range r.Headers[own:] {
		fields[h.Key] = string(h.Value)
	}
	var err error
	number := func(name string, absent, least int64) int64 {
		text, ok := fields[name]
		if !ok && absent >= least {
			return absent
		}
		n, failed := strconv.ParseInt(text, 10, 64)
		if (failed != nil || n < least) && err == nil {
			err = fmt.Errorf("the record at offset %d is no dead letter: header %s is %.50q", r.Offset, name, text)
		}
		return n
	}
	omitted := func(size, sum string) *Omitted {
		if _, ok := fields[size]; !ok {
			return nil
		}
		o := &Omitted{Size: number(size, -1, 0)}
		if n, failed := hex.Decode(o.SHA256[:], []byte(cut(fields[sum], 2*sha256.Size))); (failed != nil || n != sha256.Size) && err == nil {
			err = fmt.Errorf("the record at offset %d is no dead letter: header %s is %.50q", r.Offset, sum, fields[sum])
		}
		return o
	}
	l := &DeadLetter{
		Topic:          fields[headerTopic],
		Partition:      int(number(headerPartition, -1, 0)),
		Offset:         number(headerOffset, -1, 0),
		Key:            r.Key,
		Value:          r.Value,
		Headers:        r.Headers[:own:own],
		Connector:      fields[headerConnector],
		Reason:         Reason{Stage: fields[headerStage], Class: fields[headerClass], Message: fields[headerMessage]},
		OmittedKey:     omitted(headerKeySize, headerKeyDigest),
		OmittedValue:   omitted(headerValueSize, headerValueDigest),
		OmittedHeaders: number(headerOmitted, 0, 0),
	}
	_, l.Refused = fields[headerLast]
	l.Last = number(headerLast, l.Offset, l.Offset)
	l.Records = number(headerRecords, 1, 1)
	if _, ok := fields[headerTime]; ok {
		l.Time = time.UnixMilli(number(headerTime, -1, 0)).UTC()
	}
	return l, err
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
	if size := d.messageBytes(ctx, d.cfg.Source); size > 0 {
		configs["max.message.bytes"] = strconv.Itoa(size + 4*maxReason + 1024)
	}
	if err := d.cl.createTopic(ctx, d.cfg.Topic, 1, replicas, configs); err != nil {
		return err
	}
	d.log.Info().Int("replicas", replicas).Msg("created the dead-letter topic")
	return nil
}

// messageBytes is the largest record batch that a topic takes; 0 when the broker
// does not say.
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

// Close gives up the connections.
func (d *DeadLetters) Close() { d.cl.close() }
