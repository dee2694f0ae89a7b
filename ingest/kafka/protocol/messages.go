package protocol

import (
	"fmt"
	"math"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The calls use the last versions of the protocol without tagged fields. Every broker
// from 0.11 to 4.x speaks one of them. https://kafka.apache.org/protocol.html
const (
	fetchMinVersion, fetchMaxVersion     = 4, 11 // 4 brought isolation levels
	produceMinVersion, produceMaxVersion = 3, 8  // 3 brought record batches
	initProducerIDVersion                = 0
)

// NewFetch asks for committed records of a partition from offset on: about maxBytes of
// them, or one record batch if that is larger. The broker may hold an empty answer back
// for wait. A response beyond limit bytes is cut.
func NewFetch(topic string, partition int, offset int64, maxBytes, limit int, wait time.Duration) *Call {
	r := kmsg.NewPtrFetchRequest()
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = int32(wait.Milliseconds()), 1, int32(maxBytes)
	r.IsolationLevel = int8(kafkago.ReadCommitted)
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(partition), offset, int32(maxBytes)
	r.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return &Call{
		request: r, topic: topic, partition: partition,
		min: fetchMinVersion, max: fetchMaxVersion,
		patience: wait, limit: limit, cut: true,
	}
}

// Fetched is the response to a fetch.
type Fetched struct {
	LogState
	Aborted []AbortedTxn
	Records []byte // record batches, the last of which may be cut off; in Buf
	Sums    Sums   // of the response, and so of Records
	Rest    Rest   // of Records, beyond the limit
	Buf     []byte // of the Answer
}

// LogState is what a fetch response says about the log beside its records.
type LogState struct {
	HighWatermark int64
	Stable        int64 // records can be read up to here, the start of the first open transaction
	LogStart      int64 // -1: the broker does not say
	Throttled     bool  // a quota is used up, and records may be missing because of it
}

// AbortedTxn is an aborted transaction: a producer's records from offset First on, up to
// its next abort marker.
type AbortedTxn struct{ Producer, First int64 }

// Fetched reads the answer to a fetch. A broker's error is returned as kafkago.Error.
func (a *Answer) Fetched() (*Fetched, error) {
	f, err := parseFetch(a.body, a.rest.Size, a.call.version, a.call.topic, a.call.partition)
	if err != nil {
		return nil, err
	}
	f.Sums, f.Rest, f.Buf = a.sums, a.rest, a.Buf
	return f, nil
}

// parseFetch reads a fetch response whose last rest bytes, which are records, are missing
// in body.
func parseFetch(body []byte, rest int, version int16, topic string, partition int) (*Fetched, error) {
	d := kbin.Reader{Src: body}
	f := &Fetched{LogState: LogState{LogStart: -1, Throttled: d.Int32() > 0}}
	if version >= 7 {
		if code := d.Int16(); code != 0 {
			return nil, kafkago.Error(code)
		}
		d.Int32() // session
	}
	topics, name, partitions, number := d.Int32(), d.String(), d.Int32(), d.Int32()
	if d.Ok() && (topics != 1 || partitions != 1 || name != topic || int(number) != partition) {
		return nil, fmt.Errorf("fetch response for %d topics and %d partitions, the first being %.200s/%d; asked for %s/%d alone",
			topics, partitions, name, number, topic, partition)
	}
	if code := d.Int16(); code != 0 {
		return nil, kafkago.Error(code)
	}
	f.HighWatermark, f.Stable = d.Int64(), d.Int64()
	if version >= 5 {
		f.LogStart = d.Int64()
	}
	aborted := int(d.Int32())
	if aborted > len(d.Src)/16 {
		return nil, fmt.Errorf("fetch response with %d aborted transactions in %d bytes", aborted, len(d.Src))
	}
	for range aborted {
		f.Aborted = append(f.Aborted, AbortedTxn{Producer: d.Int64(), First: d.Int64()})
	}
	if version >= 11 {
		d.Int32() // preferred replica: only with a rack
	}
	if n := int(d.Int32()); n > 0 || rest > 0 {
		f.Records = d.Span(n - rest)
	}
	if err := d.Complete(); err != nil {
		return nil, fmt.Errorf("fetch response: %w", err)
	}
	return f, nil
}

// NewProduce writes an encoded record batch, to be acknowledged by all in-sync replicas.
// transaction is the transactional.id of a batch that belongs to a transaction, else empty.
func NewProduce(topic string, partition int, transaction string, batch []byte) *Call {
	const timeout = 30 * time.Second // for the replicas
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, int32(timeout.Milliseconds())
	if transaction != "" {
		r.TransactionID = &transaction
	}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition = int32(partition)
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	return &Call{
		request: r, topic: topic, partition: partition, records: batch,
		min: produceMinVersion, max: produceMaxVersion,
		patience: timeout, limit: 1 << 20,
	}
}

// Produced reads the answer to a produce request: the offset of the first record. A broker's error
// is returned as kafkago.Error.
func (a *Answer) Produced() (base int64, err error) { return parseProduce(a.body, a.call.version) }

func parseProduce(body []byte, version int16) (base int64, err error) {
	if version < produceMinVersion || version > produceMaxVersion {
		return -1, fmt.Errorf("produce response of version %d, which was not asked for", version)
	}
	d := kbin.Reader{Src: body}
	topics, _, partitions := d.Int32(), d.Span(int(d.Int16())), d.Int32()
	if topics != 1 || partitions != 1 {
		return -1, fmt.Errorf("produce response for %d topics and %d partitions, asked for one", topics, partitions)
	}
	if version >= 8 {
		d.Span(4 + 2 + 8 + 8 + 8) // partition, error, base offset, append time, log start
		if n := int(d.Int32()); n > len(d.Src)/6 {
			return -1, fmt.Errorf("produce response with %d errors of records in %d bytes", n, len(d.Src))
		}
	}
	r := kmsg.ProduceResponse{Version: version}
	if err := r.ReadFrom(body); err != nil {
		return -1, fmt.Errorf("produce response: %w", err)
	}
	p := r.Topics[0].Partitions[0]
	switch message := p.ErrorMessage; {
	case p.ErrorCode == 0:
		return p.BaseOffset, nil
	case message != nil && *message != "":
		return -1, fmt.Errorf("%w (%.200s)", kafkago.Error(p.ErrorCode), *message)
	}
	return -1, kafkago.Error(p.ErrorCode)
}

// NewProducerID asks for an id under which a producer numbers its batches, so that brokers
// recognise a batch that is sent again.
func NewProducerID() *Call {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionTimeoutMillis = math.MaxInt32 // there is no transaction
	return &Call{request: r, max: initProducerIDVersion, limit: 1 << 16}
}

// ProducerID reads the answer to NewProducerID. A broker's error is returned as
// kafkago.Error.
func (a *Answer) ProducerID() (id int64, epoch int16, err error) { return parseProducerID(a.body) }

func parseProducerID(body []byte) (id int64, epoch int16, err error) {
	var r kmsg.InitProducerIDResponse
	if err := r.ReadFrom(body); err != nil {
		return 0, 0, fmt.Errorf("producer id response: %w", err)
	}
	if r.ErrorCode != 0 {
		return 0, 0, kafkago.Error(r.ErrorCode)
	}
	return r.ProducerID, r.ProducerEpoch, nil
}
