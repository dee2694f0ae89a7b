package protocol

import (
	"bytes"
	"errors"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var records = []byte("two record batches, the second of which is cut o")

// fetchResponse is encoded by kmsg.
func fetchResponse(version int16, code int16) []byte {
	r := kmsg.NewPtrFetchResponse()
	r.Version, r.ThrottleMillis = version, 5
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic = "orders"
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 3, code, 99, 95, 7
	for i := range int64(2) {
		a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		a.ProducerID, a.FirstOffset = 10+i, 20+i
		p.AbortedTransactions = append(p.AbortedTransactions, a)
	}
	p.RecordBatches = records
	topic.Partitions = append(topic.Partitions, p)
	r.Topics = append(r.Topics, topic)
	return r.AppendTo(nil)
}

func TestParseFetch(t *testing.T) {
	for v := int16(fetchMinVersion); v <= fetchMaxVersion; v++ {
		r, err := parseFetch(fetchResponse(v, 0), 0, v, "orders", 3)
		if err != nil {
			t.Fatalf("version %d: %v", v, err)
		}
		start := int64(-1)
		if v >= 5 {
			start = 7
		}
		if r.HighWatermark != 99 || r.Stable != 95 || !r.Throttled || r.LogStart != start || len(r.Aborted) != 2 || r.Aborted[1] != (AbortedTxn{11, 21}) {
			t.Errorf("version %d: %+v", v, r)
		}
		if !bytes.Equal(r.Records, records) {
			t.Errorf("version %d: %d bytes of records", v, len(r.Records))
		}
		if _, err := parseFetch(fetchResponse(v, 1), 0, v, "orders", 3); !errors.Is(err, kafkago.OffsetOutOfRange) {
			t.Errorf("version %d: %v", v, err)
		}
		for _, other := range []struct {
			topic     string
			partition int
		}{{"orders", 4}, {"other", 3}} {
			if _, err := parseFetch(fetchResponse(v, 0), 0, v, other.topic, other.partition); err == nil {
				t.Errorf("version %d: taken for %v", v, other)
			}
		}
		for body := fetchResponse(v, 0); len(body) > 0; body = body[:len(body)-1] {
			if _, err := parseFetch(body[:len(body)-1], 0, v, "orders", 3); err == nil {
				t.Fatalf("version %d: no error with %d bytes", v, len(body)-1)
			}
		}
	}
}

// produceResponse is encoded by kmsg.
func produceResponse(version, code int16) []byte {
	r := kmsg.NewPtrProduceResponse()
	r.Version = version
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic = "orders"
	p := kmsg.NewProduceResponseTopicPartition()
	p.ErrorCode, p.BaseOffset = code, 7
	if code != 0 {
		p.ErrorMessage = kmsg.StringPtr("too large by half")
		p.ErrorRecords = append(p.ErrorRecords, kmsg.NewProduceResponseTopicPartitionErrorRecord())
	}
	topic.Partitions = append(topic.Partitions, p)
	r.Topics = append(r.Topics, topic)
	return r.AppendTo(nil)
}

func TestParseProduce(t *testing.T) {
	for v := int16(produceMinVersion); v <= produceMaxVersion; v++ {
		for _, code := range []int16{0, 10} {
			base, err := parseProduce(produceResponse(v, code), v)
			if code == 0 && (err != nil || base != 7) || code != 0 && !errors.Is(err, kafkago.MessageSizeTooLarge) {
				t.Errorf("version %d: code %d: base %d, %v", v, code, base, err)
			}
		}
	}
}

func FuzzParseFetch(f *testing.F) {
	for v := int16(fetchMinVersion); v <= fetchMaxVersion; v++ {
		f.Add(fetchResponse(v, 0), 0, v)
		f.Add(fetchResponse(v, 0), 1000, v)
	}
	f.Fuzz(func(t *testing.T, body []byte, rest int, version int16) {
		r, err := parseFetch(body, max(0, rest), version, "orders", 3)
		if err == nil && (len(r.Records) > len(body) || 16*len(r.Aborted) > len(body)) {
			t.Fatalf("%d bytes of records and %d transactions in %d bytes", len(r.Records), len(r.Aborted), len(body))
		}
	})
}

// A malformed answer about a written batch, or about a producer, is an error with a bounded
// text.
func FuzzProduceAnswer(f *testing.F) {
	for v := int16(produceMinVersion); v <= produceMaxVersion; v++ {
		f.Add(produceResponse(v, 0), v)
		f.Add(produceResponse(v, 10), v)
	}
	f.Add([]byte("\xff\xff\xff\x7f\x00\x06or"), int16(7)) // fewer topics than none
	f.Add(kmsg.NewPtrInitProducerIDResponse().AppendTo(nil), int16(initProducerIDVersion))
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if _, err := parseProduce(body, version); err != nil && len(err.Error()) > 2048 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		if id, _, err := parseProducerID(body); err != nil && id != 0 {
			t.Fatalf("producer %d, and %v", id, err)
		}
	})
}
