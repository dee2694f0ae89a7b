package protocol

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	kafkaproto "github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DialFunc opens a connection.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// groupConn is a connection of kafka-go's ConsumerGroup. kafka-go allocates what the
// group's members claim: the leader in an assignment, and each member in its metadata.
// So groupConn bounds the answers, reads these two itself, and passes on its own encoding
// of them.
type groupConn struct {
	net.Conn
	topic string

	mu    sync.Mutex
	asked map[int32]groupRequest // by correlation id, unanswered
	head  []byte                 // beginning of the request that is being written
	body  int                    // bytes of that request yet to be written

	answer []byte // read and checked, and not yet passed to kafka-go
}

type groupRequest struct {
	key     kafkaproto.ApiKey // kmsg.Key would link all messages of the protocol
	version int16
}

// maxGroupAnswer bounds an answer: the metadata of a group's members, or of a topic.
const maxGroupAnswer = 4 << 20

// GroupDial returns a dial function for a ConsumerGroup that reads one topic. The checks
// are above TLS, which dial sets up.
func GroupDial(dial DialFunc, topic string) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &groupConn{Conn: conn, topic: topic, asked: make(map[int32]groupRequest)}, nil
	}
}

func (c *groupConn) Write(p []byte) (int, error) {
	c.note(p)
	return c.Conn.Write(p)
}

// requestHead is the size of a request's length, key, version and correlation id.
const requestHead = 12

// note remembers the requests in the bytes written, which may come in parts.
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
			d := kbin.Reader{Src: c.head}
			c.body = max(0, int(d.Int32())-(requestHead-4))
			r := groupRequest{kafkaproto.ApiKey(d.Int16()), d.Int16()}
			c.asked[d.Int32()] = r
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
		return fmt.Errorf("a group's answer of %d bytes is larger than the limit of %d", n, maxGroupAnswer)
	}
	answer := make([]byte, 4+n)
	copy(answer, size)
	if _, err := io.ReadFull(c.Conn, answer[4:]); err != nil {
		return noEOF(err)
	}
	const head = 8 // size and correlation id
	if len(answer) < head {
		return fmt.Errorf("an answer of %d bytes has no correlation id", n)
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

// readGroupAnswer checks an answer that holds data of members, and encodes it anew.
func readGroupAnswer(body []byte, r groupRequest, topic string) ([]byte, error) {
	switch r.key {
	case kafkaproto.JoinGroup:
		return readJoinAnswer(body, r.version, topic)
	case kafkaproto.SyncGroup:
		return readSyncAnswer(body, topic)
	}
	return body, nil
}

// maxTopics bounds the topics of a member. The leader asks the broker for all of them,
// which may create them, and for their partitions.
const maxTopics = 64

// readJoinAnswer checks an answer to JoinGroup. A member with unreadable metadata is made
// to subscribe to nothing: it gets no partitions, and the others do not wait for it. A
// member with too many topics subscribes at most to the given one.
func readJoinAnswer(body []byte, version int16, topic string) ([]byte, error) {
	if version < 1 || version > 2 { // kafka-go asks for these
		return nil, fmt.Errorf("an answer to JoinGroup has version %d, not 1 or 2", version)
	}
	d := kbin.Reader{Src: body}
	if version >= 2 {
		d.Int32() // throttle
	}
	d.Span(2 + 4) // error, generation
	for range 3 {
		d.Span(int(d.Int16())) // protocol, leader, member
	}
	if n := int(d.Int32()); n < 0 || n > len(d.Src)/6 {
		return nil, fmt.Errorf("an answer to JoinGroup has %d members in %d bytes", n, len(d.Src))
	}
	r := kmsg.JoinGroupResponse{Version: version}
	if err := r.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("an answer to JoinGroup: %w", err)
	}
	for i := range r.Members {
		m := kmsg.NewConsumerMemberMetadata()
		m.Topics = subscribed(r.Members[i].ProtocolMetadata)
		if len(m.Topics) > maxTopics {
			m.Topics = slices.Compact(slices.DeleteFunc(m.Topics, func(t string) bool { return t != topic }))
		}
		r.Members[i].ProtocolMetadata = m.AppendTo(nil)
	}
	return r.AppendTo(nil), nil
}

// subscribed returns the topics in a member's metadata, or none if it is unreadable.
func subscribed(metadata []byte) (topics []string) {
	d := kbin.Reader{Src: metadata}
	d.Int16() // version
	for n := d.Int32(); n > 0; n-- {
		topic := d.String()
		if topic == "" { // also where the metadata ends
			return nil
		}
		topics = append(topics, topic)
	}
	return topics
}

// readSyncAnswer checks an answer to SyncGroup, of version 0, and keeps the topic's
// partitions alone.
func readSyncAnswer(body []byte, topic string) ([]byte, error) {
	var r kmsg.SyncGroupResponse
	if err := r.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("an answer to SyncGroup: %w", err)
	}
	partitions, err := assigned(r.MemberAssignment, topic)
	if err != nil {
		return nil, fmt.Errorf("the leader of the group assigns what cannot be: %w", err)
	}
	if r.MemberAssignment = nil; len(partitions) > 0 {
		a := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: partitions}}}
		r.MemberAssignment = a.AppendTo(nil)
	}
	return r.AppendTo(nil), nil
}

// assigned returns the partitions of a topic in a member's assignment, sorted. An empty
// assignment has none.
func assigned(assignment []byte, topic string) (partitions []int32, err error) {
	if len(assignment) == 0 {
		return nil, nil
	}
	d := kbin.Reader{Src: assignment}
	d.Int16() // version
	topics := int(d.Int32())
	if topics < 0 || topics > len(d.Src)/6 {
		return nil, fmt.Errorf("%d topics in %d bytes", topics, len(d.Src))
	}
	for range topics {
		name, n := d.String(), int(d.Int32())
		if n < 0 || n > len(d.Src)/4 {
			return nil, fmt.Errorf("%d partitions in %d bytes", n, len(d.Src))
		}
		for range n {
			if p := d.Int32(); name == topic {
				partitions = append(partitions, p)
			}
		}
	}
	if err := d.Complete(); err != nil {
		return nil, err
	}
	slices.Sort(partitions)
	for i, p := range partitions {
		if p < 0 || i > 0 && p == partitions[i-1] {
			return nil, fmt.Errorf("partition %d of %s, below 0 or twice", p, topic)
		}
	}
	return partitions, nil
}
