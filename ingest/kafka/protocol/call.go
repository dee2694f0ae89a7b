// Package protocol exchanges messages with Kafka brokers over kafka-go's connections. It
// bounds every size, count and length that a peer chooses before it allocates for it.
//
// A Call is one request and its response on a connection of kafka-go's Transport.
// GroupDial opens connections for kafka-go's ConsumerGroup that check the members'
// metadata and assignments.
//
// kmsg encodes and decodes the messages. Its decoder allocates an array of as many
// elements as bytes follow the count, so counts are checked before it runs. Fetch
// responses are read here without it, because their records may be cut off.
package protocol

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	kafkaproto "github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stallTimeout is how long a connection may make no progress in the middle of an
// exchange. The whole exchange has no limit: 8 MiB over a slow link may take minutes.
const stallTimeout = 20 * time.Second

// Call is a request that is sent once. kafka-go's Transport finds the broker and a
// connection to it. The Call then writes and reads on that connection by itself, as a
// RawExchanger.
type Call struct {
	request     kmsg.Request
	topic       string // its leader is asked; empty: any broker will do
	partition   int
	direct      bool // coordinator is asked
	coordinator int
	min, max    int16         // versions
	records     []byte        // last field of the request, sent without being copied; nil: it has none
	patience    time.Duration // the broker may wait so long before it answers
	limit       int           // bytes of the response
	cut         bool          // bytes beyond the limit are summed and dropped, not an error

	clientID string
	buffer   func(size int) []byte
	version  int16
	leader   atomic.Int64 // its id - Unrouted
	began    atomic.Bool
}

// Unrouted is Call.Leader before the leader has been looked up.
const Unrouted = -2

// Answer is the response to a Call, without its correlation id.
type Answer struct {
	Buf  []byte // from the buffer function; it belongs to the caller
	call *Call
	body []byte // in Buf
	sums Sums   // of body
	rest Rest   // of the response, beyond the limit
}

// Rest is the end of a response that was larger than its limit. It was dropped.
type Rest struct {
	Size int
	Sum  uint32 // CRC-32C
}

// RoundTrip sends the call and waits for the answer. buffer allocates at least as many
// bytes as it is asked for. After an error the connection may still be writing the
// request, so the records of a produce request must stay unchanged.
func (c *Call) RoundTrip(ctx context.Context, transport *kafkago.Transport, brokers net.Addr, buffer func(size int) []byte) (*Answer, error) {
	c.clientID, c.buffer = transport.ClientID, buffer
	// An exchange that has begun has deadlines of its own. Before that, kafka-go may wait
	// without one for a broker that accepts a connection and then says nothing.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := transport.DialTimeout + stallTimeout
	guard := time.AfterFunc(timeout, func() {
		if !c.began.Load() {
			cancel(fmt.Errorf("no connection within %v: %w", timeout, context.DeadlineExceeded))
		}
	})
	defer guard.Stop()
	m, err := transport.RoundTrip(ctx, brokers, c)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		return nil, err
	}
	return m.(*Answer), nil
}

// Leader is the id of the broker that the call was routed to, or Unrouted. It may be
// called at any time.
func (c *Call) Leader() int { return int(c.leader.Load()) + Unrouted }

// ApiKey implements kafka-go's Message.
func (c *Call) ApiKey() kafkaproto.ApiKey { return kafkaproto.ApiKey(c.request.Key()) }

// ApiKey implements kafka-go's Message.
func (a *Answer) ApiKey() kafkaproto.ApiKey { return a.call.ApiKey() }

// Broker implements kafka-go's BrokerMessage. It routes to the coordinator, or to the leader of the
// partition.
func (c *Call) Broker(cluster kafkaproto.Cluster) (kafkaproto.Broker, error) {
	if c.direct {
		broker, ok := cluster.Brokers[int32(c.coordinator)]
		if !ok {
			return broker, kafkago.BrokerNotAvailable
		}
		return broker, nil
	}
	if c.topic == "" {
		return kafkaproto.Broker{ID: -1}, nil
	}
	leader := fetch.Request{Topics: []fetch.RequestTopic{{
		Topic:      c.topic,
		Partitions: []fetch.RequestPartition{{Partition: int32(c.partition)}},
	}}}
	broker, err := leader.Broker(cluster)
	if err == nil {
		c.leader.Store(int64(broker.ID) - Unrouted)
	}
	return broker, err
}

// Required implements kafka-go's RawExchanger. It notes the version that the broker and
// kafka-go have in common; -1: the broker does not know the request.
func (c *Call) Required(versions map[kafkaproto.ApiKey]int16) bool {
	version, known := versions[c.ApiKey()]
	if !known {
		version = -1
	}
	c.version = min(version, c.max)
	return true
}

// RawExchange implements kafka-go's RawExchanger. It writes the request and reads the
// response.
func (c *Call) RawExchange(rw io.ReadWriter) (kafkaproto.Message, error) {
	c.began.Store(true)
	if c.version < c.min {
		return nil, fmt.Errorf("the broker is too old: of API %d it speaks version %d, needed is %d: %w",
			c.request.Key(), c.version, c.min, kafkago.UnsupportedVersion)
	}
	conn, ok := rw.(net.Conn)
	if !ok {
		return nil, errors.New("kafka-go's connection is no net.Conn")
	}
	defer conn.SetDeadline(time.Time{})
	if err := c.write(conn); err != nil {
		return nil, err
	}
	a, err := c.read(conn)
	if err != nil {
		return nil, noEOF(err)
	}
	return a, nil
}

const correlation = 1 // one exchange at a time on a connection

func (c *Call) write(conn net.Conn) error {
	c.request.SetVersion(c.version)
	head := kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.clientID)).AppendRequest(nil, c.request, correlation)
	if c.records != nil { // they were encoded as null, in the last four bytes
		head = kbin.AppendInt32(head[:len(head)-4], int32(len(c.records)))
		binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(c.records)))
	}
	for _, part := range [][]byte{head, c.records} {
		for len(part) > 0 {
			conn.SetWriteDeadline(time.Now().Add(stallTimeout))
			n, err := conn.Write(part[:min(len(part), 1<<20)])
			if err != nil {
				return err
			}
			part = part[n:]
		}
	}
	return nil
}

func (c *Call) read(conn net.Conn) (*Answer, error) {
	var head [8]byte
	conn.SetReadDeadline(time.Now().Add(c.patience + stallTimeout))
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if size < 0 || binary.BigEndian.Uint32(head[4:]) != correlation {
		return nil, errors.New("the broker's response is not to the request sent")
	}
	a := &Answer{call: c}
	if size > c.limit {
		if !c.cut {
			return nil, fmt.Errorf("a response of %d bytes is larger than the limit of %d", size, c.limit)
		}
		a.rest.Size = size - c.limit
		size = c.limit
	}
	a.Buf = c.buffer(size)
	a.body = a.Buf[:size]
	const piece = 256 << 10 // is still in the processor's cache when it is summed
	for got := 0; got < size; {
		conn.SetReadDeadline(time.Now().Add(stallTimeout))
		n, err := io.ReadFull(conn, a.body[got:min(size, got+piece)])
		if err != nil {
			return nil, err
		}
		got += n
		a.sums.Extend(a.body[:got])
	}
	for left, scratch := a.rest.Size, make([]byte, min(a.rest.Size, piece)); left > 0; {
		conn.SetReadDeadline(time.Now().Add(stallTimeout))
		n, err := io.ReadFull(conn, scratch[:min(left, piece)])
		if err != nil {
			return nil, err
		}
		a.rest.Sum = crc32.Update(a.rest.Sum, Castagnoli, scratch[:n])
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
