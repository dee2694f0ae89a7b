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
)

// The three requests that are encoded here, in the last versions of the
// protocol without tagged fields. Every broker from 0.11 to 4.x speaks one of
// them. https://kafka.apache.org/protocol.html
const (
	fetchMinVersion, fetchMaxVersion     = 4, 11 // 4 brought isolation levels
	produceMinVersion, produceMaxVersion = 3, 8  // 3 brought record batches
	initProducerIDVersion                = 0
)

// call is a request that goes through kafka-go's Transport, which finds the
// broker and a connection to it, and then speaks for itself on that connection
// (protocol.RawExchanger). It is sent once.
type call struct {
	key       protocol.ApiKey
	topic     string // empty: any broker will do
	partition int32
	min, max  int16
	clientID  string
	body      func(dst []byte, version int16) []byte
	tail      []byte // sent after the body, uncopied
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
func (c *call) ApiKey() protocol.ApiKey   { return c.key }

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
	c.version = min(versions[c.key], c.max)
	return true
}

// RawExchange writes the request and reads the response. Deadlines are per step
// of progress, not for the whole.
func (c *call) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	c.began.Store(true)
	if c.version < c.min {
		return nil, fmt.Errorf("the broker is too old: of API %d it speaks version %d, needed is %d: %w", c.key, c.version, c.min, kafkago.UnsupportedVersion)
	}
	conn, ok := rw.(net.Conn)
	if !ok {
		return nil, errors.New("kafka-go's connection is no net.Conn")
	}
	defer conn.SetDeadline(time.Time{})

	const correlation = 1 // one exchange at a time on a connection
	head := make([]byte, 4, 256)
	head = binary.BigEndian.AppendUint16(head, uint16(c.key))
	head = binary.BigEndian.AppendUint16(head, uint16(c.version))
	head = binary.BigEndian.AppendUint32(head, correlation)
	head = appendString(head, c.clientID)
	head = c.body(head, c.version)
	binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(c.tail)))
	for _, part := range [][]byte{head, c.tail} {
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
	a := &answer{key: c.key, version: c.version}
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
// error the call may be under way still, so that its tail has to stay as it is.
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
	a, err := cl.roundTrip(ctx, &call{
		key: protocol.Fetch, topic: topic, partition: int32(partition),
		min: fetchMinVersion, max: fetchMaxVersion,
		patience: wait, limit: limit, cut: true,
		body: func(b []byte, v int16) []byte {
			const none = math.MaxUint32 // -1
			b = appendInt32(b, none)    // replica id: a consumer
			b = appendInt32(b, uint32(wait.Milliseconds()))
			b = appendInt32(b, 1) // min bytes
			b = appendInt32(b, uint32(maxBytes))
			b = append(b, byte(kafkago.ReadCommitted))
			if v >= 7 {
				b = appendInt32(b, 0) // no fetch session
				b = appendInt32(b, none)
			}
			b = appendInt32(b, 1)
			b = appendString(b, topic)
			b = appendInt32(b, 1)
			b = appendInt32(b, uint32(partition))
			if v >= 9 {
				b = appendInt32(b, none) // leader epoch
			}
			b = appendInt64(b, offset)
			if v >= 5 {
				b = appendInt64(b, -1) // log start: for followers
			}
			b = appendInt32(b, uint32(maxBytes))
			if v >= 7 {
				b = appendInt32(b, 0) // forgotten topics
			}
			if v >= 11 {
				b = appendString(b, "") // rack
			}
			return b
		},
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
func parseFetch(body []byte, rest int, version int16, topic string, partition int) (*fetchResult, error) {
	d := decoder{b: body}
	throttle := d.int32() // the broker waits by itself
	code := int16(0)
	if version >= 7 {
		code = d.int16()
		d.int32() // session
	}
	r := &fetchResult{logState: logState{logStart: -1, throttled: throttle > 0}}
	if code == 0 {
		if n := d.int32(); d.err == nil && n != 1 {
			return nil, fmt.Errorf("fetch response with %d topics, asked for one", n)
		}
		name := d.string()
		if n := d.int32(); d.err == nil && n != 1 {
			return nil, fmt.Errorf("fetch response with %d partitions, asked for one", n)
		}
		number := d.int32()
		code = d.int16()
		r.highWatermark = d.int64()
		r.stable = d.int64()
		if version >= 5 {
			r.logStart = d.int64()
		}
		if n := int(d.int32()); n > 0 {
			if n > len(d.b)/16 {
				return nil, fmt.Errorf("fetch response with %d aborted transactions in %d bytes", n, len(d.b))
			}
			r.aborted = make([]abortedTxn, n)
			for i := range r.aborted {
				r.aborted[i] = abortedTxn{producer: d.int64(), first: d.int64()}
			}
		}
		if version >= 11 {
			d.int32() // preferred replica: only with a rack
		}
		if d.err == nil && code == 0 {
			n := int(d.int32())
			if rest > 0 {
				n -= rest // the rest is records, and nothing else
			}
			if n > 0 || rest > 0 {
				r.records = d.bytes(n)
			}
		}
		if d.err == nil && (name != topic || int(number) != partition) {
			return nil, fmt.Errorf("fetch response for %s/%d, asked for %s/%d", name, number, topic, partition)
		}
	}
	if d.err != nil {
		return nil, fmt.Errorf("fetch response: %w", d.err)
	}
	if code != 0 {
		return nil, kafkago.Error(code)
	}
	return r, nil
}

// produce writes one encoded record batch and waits until all in-sync replicas
// have it. A broker's error is returned as kafkago.Error.
func (cl *client) produce(ctx context.Context, topic string, partition int, batch []byte) error {
	const timeout = 30 * time.Second // for the replicas
	a, err := cl.roundTrip(ctx, &call{
		key: protocol.Produce, topic: topic, partition: int32(partition),
		min: produceMinVersion, max: produceMaxVersion,
		patience: timeout, limit: 1 << 20,
		body: func(b []byte, _ int16) []byte {
			b = appendInt16(b, math.MaxUint16) // no transactional id
			b = appendInt16(b, math.MaxUint16) // acks: all
			b = appendInt32(b, uint32(timeout.Milliseconds()))
			b = appendInt32(b, 1)
			b = appendString(b, topic)
			b = appendInt32(b, 1)
			b = appendInt32(b, uint32(partition))
			return appendInt32(b, uint32(len(batch)))
		},
		tail: batch,
	})
	if err != nil {
		return err
	}
	defer putBuffer(a.buf)
	return parseProduce(a.body, a.version)
}

func parseProduce(body []byte, version int16) error {
	d := decoder{b: body}
	if n := d.int32(); d.err == nil && n != 1 {
		return fmt.Errorf("produce response with %d topics, asked for one", n)
	}
	d.string()
	if n := d.int32(); d.err == nil && n != 1 {
		return fmt.Errorf("produce response with %d partitions, asked for one", n)
	}
	d.int32() // partition
	code := d.int16()
	var message string
	if version >= 8 {
		d.int64() // base offset
		d.int64() // append time
		d.int64() // log start
		for n := d.int32(); n > 0 && d.err == nil; n-- {
			d.int32()
			d.string()
		}
		message = d.string()
	}
	if d.err != nil {
		return fmt.Errorf("produce response: %w", d.err)
	}
	if code != 0 {
		err := error(kafkago.Error(code))
		if message != "" {
			err = fmt.Errorf("%w (%.200s)", err, message)
		}
		return err
	}
	return nil
}

// producerID asks for a number under which this producer's batches are counted,
// so that a batch sent again is recognised.
func (cl *client) producerID(ctx context.Context) (id int64, epoch int16, err error) {
	a, err := cl.roundTrip(ctx, &call{
		key: protocol.InitProducerId, max: initProducerIDVersion,
		limit: 1 << 16,
		body: func(b []byte, _ int16) []byte {
			b = appendInt16(b, math.MaxUint16)           // no transactional id
			return appendInt32(b, uint32(math.MaxInt32)) // no transaction, no time limit
		},
	})
	if err != nil {
		return 0, 0, err
	}
	defer putBuffer(a.buf)
	return parseProducerID(a.body)
}

func parseProducerID(body []byte) (id int64, epoch int16, err error) {
	d := decoder{b: body}
	d.int32() // throttle
	code := d.int16()
	id, epoch = d.int64(), d.int16()
	if d.err != nil {
		return 0, 0, fmt.Errorf("producer id response: %w", d.err)
	}
	if code != 0 {
		return 0, 0, kafkago.Error(code)
	}
	return id, epoch, nil
}

var (
	errShort  = errors.New("data ends too early")
	errLength = errors.New("a length is below zero")
)

// decoder reads big-endian values from b. After an error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

// bytes returns the next n bytes, without copying.
func (d *decoder) bytes(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		if d.err == nil {
			d.err = errShort
		}
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) int16() int16 {
	if v := d.bytes(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (d *decoder) int32() int32 {
	if v := d.bytes(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.bytes(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

// string reads a string; a null one is empty.
func (d *decoder) string() string {
	return string(d.sized(int(d.int16())))
}

// nullable reads bytes behind their length, without copying; null ones are nil.
func (d *decoder) nullable() []byte {
	return d.sized(int(d.int32()))
}

// sized reads n bytes; −1 stands for null, and other lengths below zero for nothing.
func (d *decoder) sized(n int) []byte {
	switch {
	case n > 0:
		return d.bytes(n)
	case n < -1 && d.err == nil:
		d.err = errLength
	}
	return nil
}

// varint reads a zigzag varint.
func (d *decoder) varint() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.err = errShort
		return 0
	}
	d.b = d.b[n:]
	return v
}

// varbytes reads bytes behind their length as a varint, without copying. A
// length below zero means nil; an empty value is not nil.
func (d *decoder) varbytes() []byte {
	n := d.varint()
	if n < 0 || d.err != nil {
		return nil
	}
	if n > int64(len(d.b)) {
		d.err = errShort
		return nil
	}
	return d.bytes(int(n))
}

func appendInt16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func appendInt32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func appendInt64(b []byte, v int64) []byte  { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendString(b []byte, s string) []byte {
	return append(appendInt16(b, uint16(len(s))), s...)
}

func appendVarbytes(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}
