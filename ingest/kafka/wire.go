package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The requests that do not go through kafka-go's own encoder, in the last versions of
// the protocol without tagged fields. Every broker from 0.11 to 4.x speaks one of them.
// https://kafka.apache.org/protocol.html
const (
	fetchMinVersion, fetchMaxVersion     = 4, 11 // 4 brought isolation levels
	produceMinVersion, produceMaxVersion = 3, 8  // 3 brought record batches
	initProducerIDVersion                = 0
)

// call is a request that goes through kafka-go's Transport, which finds the
// broker and a connection to it, and then speaks for itself on that connection
// (protocol.RawExchanger). It is sent once.
type call struct {
	request   kmsg.Request
	topic     string // empty: any broker will do
	partition int32
	min, max  int16 // versions
	clientID  string
	records   []byte // the last field of the request, sent without being copied; nil: it has none
	patience  time.Duration
	limit     int  // bytes of response
	cut       bool // what is beyond the limit is summed and dropped; else it is an error

	leader  atomic.Int64 // that it was sent to
	version int16
	began   atomic.Bool
}

// answer is the response to a call: all of it, in one pooled buffer, without the
// correlation id. Whoever receives it owns it.
type answer struct {
	key     protocol.ApiKey
	version int16
	buf     []byte // pooled
	body    []byte // in buf
	sums    sums   // of the body
	rest    rest
}

// rest is the end of a response that was larger than the limit.
type rest struct {
	size int
	sum  uint32 // CRC-32C
}

// ErrTooLarge is the reason for refusing a record batch that is larger than
// Fetching.MaxMessageBytes, as it was sent or decompressed.
var ErrTooLarge = errors.New("too large")

// An oversizeError says that something was refused because of its size.
type oversizeError struct {
	what        string
	size, limit int
}

func (e *oversizeError) Error() string {
	return fmt.Sprintf("%s of %d bytes is larger than the limit of %d", e.what, e.size, e.limit)
}

func (e *oversizeError) Is(target error) bool { return target == ErrTooLarge }

func (a *answer) ApiKey() protocol.ApiKey { return a.key }
func (c *call) ApiKey() protocol.ApiKey   { return protocol.ApiKey(c.request.Key()) }

// Broker routes to the leader of the partition.
func (c *call) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if c.topic == "" {
		return protocol.Broker{ID: -1}, nil
	}
	leader := fetch.Request{Topics: []fetch.RequestTopic{{
		Topic:      c.topic,
		Partitions: []fetch.RequestPartition{{Partition: c.partition}},
	}}}
	broker, err := leader.Broker(cluster)
	if err == nil {
		c.leader.Store(int64(broker.ID))
	}
	return broker, err
}

// Required says that RawExchange is to be used, always, and notes the version
// that the broker and kafka-go have in common.
func (c *call) Required(versions map[protocol.ApiKey]int16) bool {
	c.version = min(versions[c.ApiKey()], c.max)
	return true
}

// RawExchange writes the request and reads the response. Deadlines are per step
// of progress, not for the whole.
func (c *call) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	c.began.Store(true)
	if c.version < c.min {
		return nil, fmt.Errorf("the broker is too old: of API %d it speaks version %d, needed is %d: %w", c.ApiKey(), c.version, c.min, kafkago.UnsupportedVersion)
	}
	conn, ok := rw.(net.Conn)
	if !ok {
		return nil, errors.New("kafka-go's connection is no net.Conn")
	}
	defer conn.SetDeadline(time.Time{})

	const correlation = 1 // one exchange at a time on a connection
	c.request.SetVersion(c.version)
	head := kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.clientID)).AppendRequest(nil, c.request, correlation)
	if c.records != nil {
		head = kbin.AppendInt32(head[:len(head)-4], int32(len(c.records)))
		binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(c.records)))
	}
	for _, part := range [][]byte{head, c.records} {
		for len(part) > 0 {
			conn.SetWriteDeadline(time.Now().Add(stallTimeout))
			n, err := conn.Write(part[:min(len(part), 1<<20)])
			if err != nil {
				return nil, err
			}
			part = part[n:]
		}
	}

	var start [8]byte
	conn.SetReadDeadline(time.Now().Add(c.patience + stallTimeout))
	if _, err := io.ReadFull(conn, start[:]); err != nil {
		return nil, noEOF(err)
	}
	size := int(int32(binary.BigEndian.Uint32(start[:])))
	if size < 4 || binary.BigEndian.Uint32(start[4:]) != correlation {
		return nil, errors.New("the broker's response is not to the request sent")
	}
	a := &answer{key: c.ApiKey(), version: c.version}
	if size -= 4; size > c.limit {
		if !c.cut {
			return nil, &oversizeError{"a response", size, c.limit}
		}
		a.rest.size = size - c.limit
		size = c.limit
	}
	a.buf = getBuffer(size)
	const piece = 256 << 10 // is still in the processor's cache when it is summed
	for a.body = a.buf[:0]; len(a.body) < size; {
		got := len(a.body)
		conn.SetReadDeadline(time.Now().Add(stallTimeout))
		n, err := io.ReadFull(conn, a.buf[got:min(size, got+piece)])
		if err != nil {
			putBuffer(a.buf)
			return nil, noEOF(err)
		}
		a.body = a.buf[:got+n]
		a.sums.extend(a.body)
	}
	for left, scratch := a.rest.size, make([]byte, min(a.rest.size, piece)); left > 0; {
		conn.SetReadDeadline(time.Now().Add(stallTimeout))
		n, err := io.ReadFull(conn, scratch[:min(left, piece)])
		if err != nil {
			putBuffer(a.buf)
			return nil, noEOF(err)
		}
		a.rest.sum = crc32.Update(a.rest.sum, castagnoli, scratch[:n])
		left -= n
	}
	return a, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// roundTrip sends the call. The answer's buffer belongs to the caller. After an
// error the call may be under way still, so that its records have to stay as they are.
func (cl *client) roundTrip(ctx context.Context, c *call) (*answer, error) {
	// Once the exchange has begun it has its own deadlines. Before that,
	// kafka-go may wait without one for a broker that accepts a connection and
	// then says nothing.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := time.AfterFunc(dialTimeout+stallTimeout, func() {
		if !c.began.Load() {
			cancel(fmt.Errorf("no connection within %v: %w", dialTimeout+stallTimeout, context.DeadlineExceeded))
		}
	})
	defer guard.Stop()
	if c.topic != "" {
		c.leader.Store(unrouted)
		var done func()
		ctx, done = cl.whileLed(ctx, c.topic, int(c.partition), func() int { return int(c.leader.Load()) })
		defer done()
	}
	c.clientID = cl.transport.ClientID
	m, err := cl.transport.RoundTrip(ctx, cl.addr(), c)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		return nil, err
	}
	return m.(*answer), nil
}

// fetchResult is the answer to a fetch of one partition. Who fetches owns it.
type fetchResult struct {
	logState
	aborted []abortedTxn
	records []byte // in buf
	sums    sums   // of the answer, and so of the records
	rest    rest   // of the records
	buf     []byte // pooled
}

// parseCut reads the header of a record batch of so many bytes, of which data is the
// beginning and the rest was dropped.
func (r *fetchResult) parseCut(data []byte, size int) (b recordBatch, err error) {
	if size != len(data)+r.rest.size || len(data) < batchHeader {
		base := int64(-1)
		if len(data) >= batchPrefix {
			base = int64(binary.BigEndian.Uint64(data))
		}
		return b, &corruptError{base, "the response ends within its first batch"}
	}
	return parseHeader(data, combine(r.sums.update(0, data[crcStart:]), r.rest.sum, r.rest.size))
}

// logState is what a broker says of a log beside its records.
type logState struct {
	highWatermark int64
	stable        int64 // the records end there, before a transaction that is open
	logStart      int64 // -1: the broker does not say
	throttled     bool  // a quota is used up: the records may be missing for that
}

// abortedTxn says that the records of a producer from an offset on, up to its
// next abort marker, belong to an aborted transaction.
type abortedTxn struct{ producer, first int64 }

// fetch asks for records from offset on, committed ones only. A broker's
// error is returned as kafkago.Error.
func (cl *client) fetch(ctx context.Context, topic string, partition int, offset int64, maxBytes, limit int, wait time.Duration) (*fetchResult, error) {
	if err := cl.current(ctx, topic, partition, metadataTTL/2); err != nil {
		return nil, err
	}
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = int32(wait.Milliseconds()), 1, int32(maxBytes)
	request.IsolationLevel = int8(kafkago.ReadCommitted)
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(partition), offset, int32(maxBytes)
	request.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	a, err := cl.roundTrip(ctx, &call{
		request: request, topic: topic, partition: int32(partition),
		min: fetchMinVersion, max: fetchMaxVersion,
		patience: wait, limit: limit, cut: true,
	})
	if err != nil {
		return nil, err
	}
	r, err := parseFetch(a.body, a.rest.size, a.version, topic, partition)
	if err != nil {
		putBuffer(a.buf)
		return nil, err
	}
	r.sums, r.rest, r.buf = a.sums, a.rest, a.buf
	return r, nil
}

// parseFetch reads a response that goes on for rest bytes behind body, with records.
//
// It does not leave that to kmsg, which allocates arrays of as many elements as bytes
// follow, and cannot read records that are cut off.
func parseFetch(body []byte, rest int, version int16, topic string, partition int) (*fetchResult, error) {
	d := kbin.Reader{Src: body}
	r := &fetchResult{logState: logState{logStart: -1, throttled: d.Int32() > 0}} // the broker waits by itself
	if version >= 7 {
		if code := d.Int16(); code != 0 {
			return nil, kafkago.Error(code)
		}
		d.Int32() // session
	}
	topics, name, partitions, number := d.Int32(), d.String(), d.Int32(), d.Int32()
	if d.Ok() && (topics != 1 || partitions != 1 || name != topic || int(number) != partition) {
		return nil, fmt.Errorf("fetch response for %d topics, %d partitions of the first, %s/%d; asked for %s/%d alone",
			topics, partitions, name, number, topic, partition)
	}
	if code := d.Int16(); code != 0 {
		return nil, kafkago.Error(code)
	}
	r.highWatermark, r.stable = d.Int64(), d.Int64()
	if version >= 5 {
		r.logStart = d.Int64()
	}
	if n := int(d.Int32()); n > 0 {
		if n > len(d.Src)/16 {
			return nil, fmt.Errorf("fetch response with %d aborted transactions in %d bytes", n, len(d.Src))
		}
		r.aborted = make([]abortedTxn, n)
		for i := range r.aborted {
			r.aborted[i] = abortedTxn{producer: d.Int64(), first: d.Int64()}
		}
	}
	if version >= 11 {
		d.Int32() // preferred replica: only with a rack
	}
	n := int(d.Int32())
	if rest > 0 {
		n -= rest // the rest is records, and nothing else
	}
	if n > 0 || rest > 0 {
		r.records = d.Span(n)
	}
	if err := d.Complete(); err != nil {
		return nil, fmt.Errorf("fetch response: %w", err)
	}
	return r, nil
}

// produce writes one encoded record batch and waits until all in-sync replicas
// have it. A broker's error is returned as kafkago.Error.
func (cl *client) produce(ctx context.Context, topic string, partition int, batch []byte) error {
	const timeout = 30 * time.Second // for the replicas
	request := kmsg.NewPtrProduceRequest()
	request.Acks = -1 // of all in-sync replicas
	request.TimeoutMillis = int32(timeout.Milliseconds())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition = int32(partition)
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	a, err := cl.roundTrip(ctx, &call{
		request: request, topic: topic, partition: int32(partition),
		min: produceMinVersion, max: produceMaxVersion,
		patience: timeout, limit: 1 << 20,
		records: batch,
	})
	if err != nil {
		return err
	}
	defer putBuffer(a.buf)
	return parseProduce(a.body, a.version)
}

func parseProduce(body []byte, version int16) error {
	if version < produceMinVersion || version > produceMaxVersion {
		return fmt.Errorf("produce response of version %d, which was not asked for", version)
	}
	// kmsg allocates arrays of as many elements as bytes follow.
	d := kbin.Reader{Src: body}
	topics, _, partitions := d.Int32(), d.Span(int(d.Int16())), d.Int32()
	if topics != 1 || partitions != 1 {
		return fmt.Errorf("produce response with %d topics, %d partitions of the first, asked for one", topics, partitions)
	}
	if version >= 8 {
		d.Span(4 + 2 + 8 + 8 + 8) // partition, error, base offset, append time, log start
		if n := int(d.Int32()); n > len(d.Src)/6 {
			return fmt.Errorf("produce response with %d errors of records in %d bytes", n, len(d.Src))
		}
	}
	response := kmsg.ProduceResponse{Version: version}
	if err := response.ReadFrom(body); err != nil {
		return fmt.Errorf("produce response: %w", err)
	}
	p := response.Topics[0].Partitions[0]
	if p.ErrorCode == 0 {
		return nil
	}
	err := error(kafkago.Error(p.ErrorCode))
	if p.ErrorMessage != nil && *p.ErrorMessage != "" {
		err = fmt.Errorf("%w (%.200s)", err, *p.ErrorMessage)
	}
	return err
}

// producerID asks for a number under which this producer's batches are counted,
// so that a batch sent again is recognised.
func (cl *client) producerID(ctx context.Context) (id int64, epoch int16, err error) {
	request := kmsg.NewPtrInitProducerIDRequest()
	request.TransactionTimeoutMillis = math.MaxInt32 // there is no transaction
	a, err := cl.roundTrip(ctx, &call{request: request, max: initProducerIDVersion, limit: 1 << 16})
	if err != nil {
		return 0, 0, err
	}
	defer putBuffer(a.buf)
	return parseProducerID(a.body)
}

func parseProducerID(body []byte) (id int64, epoch int16, err error) {
	var response kmsg.InitProducerIDResponse
	if err := response.ReadFrom(body); err != nil {
		return 0, 0, fmt.Errorf("producer id response: %w", err)
	}
	if response.ErrorCode != 0 {
		return 0, 0, kafkago.Error(response.ErrorCode)
	}
	return response.ProducerID, response.ProducerEpoch, nil
}
