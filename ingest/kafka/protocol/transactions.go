package protocol

import (
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The last versions without tagged fields, as of the other calls. Every broker from 0.11 to 4.x
// speaks one of them; of the search for a coordinator, version 1 brought those of transactions.
const (
	transactionMaxVersion                             = 2
	coordinatorMinVersion, coordinatorMaxVersion      = 1, 2
	commitMinVersion, commitMaxVersion                = 3, 7    // 3 brought the throttle time
	transactionalLimit                                = 1 << 16 // bytes of an answer
	coordinatorOfGroup, coordinatorOfTransaction int8 = 0, 1
)

// TransactionKeys are the requests that brokers with transactions know.
var TransactionKeys = []int{
	int(kmsg.AddPartitionsToTxn), int(kmsg.AddOffsetsToTxn), int(kmsg.EndTxn), int(kmsg.TxnOffsetCommit),
}

// Transaction is that of a producer.
type Transaction struct {
	ID       string // transactional.id
	Producer int64
	Epoch    int16
}

// NewFindCoordinator asks which broker coordinates a group, or the transactions of a
// transactional.id.
func NewFindCoordinator(group bool, of string) *Call {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorKey, r.CoordinatorType = of, coordinatorOfTransaction
	if group {
		r.CoordinatorType = coordinatorOfGroup
	}
	return &Call{request: r, min: coordinatorMinVersion, max: coordinatorMaxVersion, limit: transactionalLimit}
}

// Coordinator is the id of the broker in the answer to NewFindCoordinator. A broker's error is
// returned as kafkago.Error.
func (a *Answer) Coordinator() (broker int, err error) { return parseCoordinator(a.body) }

func parseCoordinator(body []byte) (broker int, err error) {
	d := kbin.Reader{Src: body}
	d.Int32() // throttled
	code := d.Int16()
	message := d.NullableString()
	broker = int(d.Int32())
	d.Span(int(d.Int16())) // host
	d.Int32()              // port
	if err := d.Complete(); err != nil {
		return 0, fmt.Errorf("coordinator response: %w", err)
	}
	if code != 0 && message != nil && *message != "" {
		return 0, fmt.Errorf("%w (%.200s)", kafkago.Error(code), *message)
	}
	return broker, asError(code)
}

// NewAddPartition makes a partition one of those that a transaction writes to.
func NewAddPartition(coordinator int, tx Transaction, topic string, partition int) *Call {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch = tx.ID, tx.Producer, tx.Epoch
	r.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{int32(partition)}}}
	return transactional(r, coordinator, topic, partition)
}

// NewAddOffsets makes the offsets of a group a part of a transaction.
func NewAddOffsets(coordinator int, tx Transaction, group string) *Call {
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = tx.ID, tx.Producer, tx.Epoch, group
	return transactional(r, coordinator, "", 0)
}

// NewCommitOffset commits an offset of a partition, with a text, when the transaction is committed.
// It goes to the coordinator of the group.
func NewCommitOffset(coordinator int, tx Transaction, group, topic string, partition int, offset int64, text string) *Call {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = tx.ID, tx.Producer, tx.Epoch, group
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(partition), offset, -1, &text
	r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}}}
	return transactional(r, coordinator, topic, partition)
}

// NewMemberCommit commits an offset of a partition, with a text, as a member of a group. It goes to
// the coordinator of the group.
func NewMemberCommit(coordinator int, group, member string, generation int, topic string, partition int, offset int64, text string) *Call {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation = group, member, int32(generation)
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = int32(partition), offset, &text
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	c := transactional(r, coordinator, topic, partition)
	c.min, c.max = commitMinVersion, commitMaxVersion
	return c
}

// NewEnd commits or aborts a transaction.
func NewEnd(coordinator int, tx Transaction, commit bool) *Call {
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = tx.ID, tx.Producer, tx.Epoch, commit
	return transactional(r, coordinator, "", 0)
}

func transactional(r kmsg.Request, coordinator int, topic string, partition int) *Call {
	return &Call{
		request: r, direct: true, coordinator: coordinator, topic: topic, partition: partition,
		max: transactionMaxVersion, limit: transactionalLimit,
	}
}

// Transacted reads the answer to a call of a transaction, or of a member's commit. A broker's error
// is returned as kafkago.Error.
func (a *Answer) Transacted() error { return parseTransacted(a.body, a.call.topic, a.call.partition) }

// parseTransacted reads the error of one partition of a topic; of an empty topic, that of the
// whole.
func parseTransacted(body []byte, topic string, partition int) error {
	d := kbin.Reader{Src: body}
	d.Int32() // throttled
	if topic != "" {
		topics, name, partitions, number := d.Int32(), d.String(), d.Int32(), d.Int32()
		if d.Ok() && (topics != 1 || partitions != 1 || name != topic || int(number) != partition) {
			return fmt.Errorf("transaction response for %d topics and %d partitions, the first being %.200s/%d; asked for %s/%d alone",
				topics, partitions, name, number, topic, partition)
		}
	}
	code := d.Int16()
	if err := d.Complete(); err != nil {
		return fmt.Errorf("transaction response: %w", err)
	}
	return asError(code)
}

func asError(code int16) error {
	if code == 0 {
		return nil
	}
	return kafkago.Error(code)
}
