package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
)

// groupConn is a connection that kafka-go's ConsumerGroup speaks on. kafka-go
// allocates what members of the group claim: the leader in the assignment, and each
// member in what it tells the leader. So answers are bounded here, these two are read
// first, and kafka-go gets what was read of them.
type groupConn struct {
	net.Conn
	topic string

	mu    sync.Mutex
	asked map[int32]groupRequest // by correlation id; not answered yet
	head  []byte                 // of the request that is being written
	body  int                    // bytes that it has still to come

	answer []byte // read, and not given to kafka-go yet
}

type groupRequest struct {
	key     protocol.ApiKey
	version int16
}

// maxGroupAnswer bounds an answer: the metadata of a group's members, or of a topic.
const maxGroupAnswer = 4 << 20

// groupDial returns a dial function for a ConsumerGroup that reads one topic. It does
// TLS, which kafka-go would do on top of it.
func groupDial(dial func(context.Context, string, string) (net.Conn, error), config *tls.Config, topic string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if config != nil {
			config := config.Clone()
			if config.ServerName == "" {
				config.ServerName, _, _ = net.SplitHostPort(address)
			}
			secure := tls.Client(conn, config)
			if err := secure.HandshakeContext(ctx); err != nil {
				conn.Close()
				return nil, err
			}
			conn = secure
		}
		return &groupConn{Conn: conn, topic: topic, asked: make(map[int32]groupRequest)}, nil
	}
}

func (c *groupConn) Write(p []byte) (int, error) {
	c.note(p)
	return c.Conn.Write(p)
}

// requestHead is the size of a request, its key, version and correlation id.
const requestHead = 12

// note remembers the requests in what is written, which may come in parts.
func (c *groupConn) note(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		if n := min(c.body, len(p)); n > 0 {
			c.body -= n
			p = p[n:]
			continue
		}
		n := min(requestHead-len(c.head), len(p))
		c.head = append(c.head, p[:n]...)
		p = p[n:]
		if len(c.head) == requestHead {
			d := decoder{b: c.head}
			c.body = max(0, int(d.int32())-(requestHead-4))
			r := groupRequest{protocol.ApiKey(d.int16()), d.int16()}
			c.asked[d.int32()] = r
			c.head = c.head[:0]
		}
	}
}

func (c *groupConn) Read(p []byte) (int, error) {
	if len(c.answer) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

// next reads an answer.
func (c *groupConn) next() error {
	size := make([]byte, 4)
	if _, err := io.ReadFull(c.Conn, size); err != nil {
		return err
	}
	n := int(int32(binary.BigEndian.Uint32(size)))
	if n < 0 || n > maxGroupAnswer {
		return &oversizeError{"a group's answer", n, maxGroupAnswer}
	}
	answer := make([]byte, 4+n)
	copy(answer, size)
	if _, err := io.ReadFull(c.Conn, answer[4:]); err != nil {
		return noEOF(err)
	}
	const head = 8          // size and correlation id
	if len(answer) < head { // to a login of old brokers
		c.answer = answer
		return nil
	}
	id := int32(binary.BigEndian.Uint32(answer[4:]))
	c.mu.Lock()
	r, ok := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	if ok {
		body, err := readGroupAnswer(answer[head:], r, c.topic)
		if err != nil {
			return err
		}
		answer = append(answer[:head:head], body...)
		binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
	}
	c.answer = answer
	return nil
}

// readGroupAnswer checks what members say in an answer, and returns it without what
// nobody needs.
func readGroupAnswer(body []byte, r groupRequest, topic string) ([]byte, error) {
	switch r.key {
	case protocol.JoinGroup:
		return readJoinAnswer(body, r.version, topic)
	case protocol.SyncGroup:
		return readSyncAnswer(body, topic)
	}
	return body, nil
}

// readJoinAnswer reads an answer to JoinGroup, of version 1 or 2. A member whose
// metadata cannot be read subscribes to nothing: it gets no partitions, and the others
// do not wait for it. One of too many topics subscribes to the given one at most.
func readJoinAnswer(body []byte, version int16, topic string) ([]byte, error) {
	d := decoder{b: body}
	if version >= 2 {
		d.int32() // throttle
	}
	d.int16() // error
	d.int32() // generation
	for range 3 {
		d.string() // protocol, leader, member
	}
	out := slices.Clone(body[:len(body)-len(d.b)])
	n := int(d.int32())
	if d.err == nil && (n < 0 || n > len(d.b)/6) {
		return nil, fmt.Errorf("an answer to JoinGroup has %d members in %d bytes", n, len(d.b))
	}
	out = appendInt32(out, uint32(n))
	for range n {
		out = appendString(out, d.string())
		topics := subscribed(d.nullable())
		if len(topics) > mostTopics {
			topics = slices.Compact(slices.DeleteFunc(topics, func(t string) bool { return t != topic }))
		}
		metadata := appendSubscription(nil, topics)
		out = append(appendInt32(out, uint32(len(metadata))), metadata...)
	}
	if d.err != nil {
		return nil, fmt.Errorf("an answer to JoinGroup: %w", d.err)
	}
	return out, nil
}

// mostTopics bounds the topics of a member: the leader asks the broker for all of
// them, which may create them, and for their partitions.
const mostTopics = 64

// subscribed returns the topics in a member's metadata.
func subscribed(metadata []byte) (topics []string) {
	d := decoder{b: metadata}
	d.int16() // version
	n := int(d.int32())
	if n < 0 || n > len(d.b)/2 {
		return nil
	}
	for range n {
		topics = append(topics, d.string())
	}
	if d.err != nil || slices.Contains(topics, "") {
		return nil
	}
	return topics
}

func appendSubscription(b []byte, topics []string) []byte {
	b = appendInt16(b, 0) // version
	b = appendInt32(b, uint32(len(topics)))
	for _, t := range topics {
		b = appendString(b, t)
	}
	return appendInt32(b, math.MaxUint32) // no user data
}

// readSyncAnswer reads an answer to SyncGroup, of version 0, and keeps the topic's
// partitions of it.
func readSyncAnswer(body []byte, topic string) ([]byte, error) {
	d := decoder{b: body}
	d.int16() // error
	out := slices.Clone(body[:len(body)-len(d.b)])
	assignment := d.nullable()
	if d.err != nil {
		return nil, fmt.Errorf("an answer to SyncGroup: %w", d.err)
	}
	partitions, err := assigned(assignment, topic)
	if err != nil {
		return nil, fmt.Errorf("the leader of the group assigns what cannot be: %w", err)
	}
	if assignment = nil; len(partitions) > 0 {
		assignment = appendInt16(assignment, 0) // version
		assignment = appendInt32(assignment, 1)
		assignment = appendString(assignment, topic)
		assignment = appendInt32(assignment, uint32(len(partitions)))
		for _, p := range partitions {
			assignment = appendInt32(assignment, uint32(p))
		}
		assignment = appendInt32(assignment, math.MaxUint32) // no user data
	}
	return append(appendInt32(out, uint32(len(assignment))), assignment...), nil
}

// assigned returns the partitions of a topic in a member's assignment, sorted. An
// empty assignment has none.
func assigned(assignment []byte, topic string) (partitions []int32, err error) {
	if len(assignment) == 0 {
		return nil, nil
	}
	d := decoder{b: assignment}
	d.int16() // version
	topics := int(d.int32())
	if topics < 0 || topics > len(d.b)/6 {
		return nil, fmt.Errorf("%d topics in %d bytes", topics, len(d.b))
	}
	for range topics {
		name, n := d.string(), int(d.int32())
		if n < 0 || n > len(d.b)/4 {
			return nil, fmt.Errorf("%d partitions in %d bytes", n, len(d.b))
		}
		for range n {
			if p := d.int32(); name == topic {
				partitions = append(partitions, p)
			}
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	slices.Sort(partitions)
	for i, p := range partitions {
		if p < 0 || i > 0 && p == partitions[i-1] {
			return nil, fmt.Errorf("partition %d of %s, below 0 or twice", p, topic)
		}
	}
	return partitions, nil
}
