package protocol

import (
	"errors"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactionResponses are answers as another client writes them: of one partition, and of none.
func transactionResponses(code int16) (of [][]byte, whole [][]byte) {
	added := kmsg.NewPtrAddPartitionsToTxnResponse()
	added.Topics = []kmsg.AddPartitionsToTxnResponseTopic{{
		Topic: "orders", Partitions: []kmsg.AddPartitionsToTxnResponseTopicPartition{{Partition: 3, ErrorCode: code}},
	}}
	committed := kmsg.NewPtrTxnOffsetCommitResponse()
	committed.Topics = []kmsg.TxnOffsetCommitResponseTopic{{
		Topic: "orders", Partitions: []kmsg.TxnOffsetCommitResponseTopicPartition{{Partition: 3, ErrorCode: code}},
	}}
	offsets, end := kmsg.NewPtrAddOffsetsToTxnResponse(), kmsg.NewPtrEndTxnResponse()
	offsets.ErrorCode, end.ErrorCode = code, code
	for version := range int16(transactionMaxVersion + 1) {
		for _, r := range []kmsg.Response{added, committed, offsets, end} {
			r.SetVersion(version)
		}
		of = append(of, added.AppendTo(nil), committed.AppendTo(nil))
		whole = append(whole, offsets.AppendTo(nil), end.AppendTo(nil))
	}
	alone := kmsg.NewPtrOffsetCommitResponse() // of a member, without a transaction
	alone.Topics = []kmsg.OffsetCommitResponseTopic{{
		Topic: "orders", Partitions: []kmsg.OffsetCommitResponseTopicPartition{{Partition: 3, ErrorCode: code}},
	}}
	for version := int16(commitMinVersion); version <= commitMaxVersion; version++ {
		alone.SetVersion(version)
		of = append(of, alone.AppendTo(nil))
	}
	return of, whole
}

func TestParseTransacted(t *testing.T) {
	for _, code := range []int16{0, int16(kafkago.ProducerFenced)} {
		want := asError(code)
		of, whole := transactionResponses(code)
		for i, body := range of {
			if err := parseTransacted(body, "orders", 3); !errors.Is(err, want) {
				t.Errorf("answer %d: %v, want %v", i, err, want)
			}
			if err := parseTransacted(body, "orders", 4); err == nil || errors.Is(err, kafkago.ProducerFenced) {
				t.Errorf("answer %d is one of another partition: %v", i, err)
			}
		}
		for i, body := range whole {
			if err := parseTransacted(body, "", 0); !errors.Is(err, want) {
				t.Errorf("answer %d of the whole: %v, want %v", i, err, want)
			}
		}
	}
}

func TestParseCoordinator(t *testing.T) {
	r := kmsg.NewPtrFindCoordinatorResponse()
	r.NodeID, r.Host, r.Port = 7, "broker", 9092
	for version := int16(coordinatorMinVersion); version <= coordinatorMaxVersion; version++ {
		r.SetVersion(version)
		r.ErrorCode, r.ErrorMessage = 0, nil
		if broker, err := parseCoordinator(r.AppendTo(nil)); broker != 7 || err != nil {
			t.Errorf("version %d: broker %d, %v", version, broker, err)
		}
		text := "not yet"
		r.ErrorCode, r.ErrorMessage = int16(kafkago.GroupCoordinatorNotAvailable), &text
		if _, err := parseCoordinator(r.AppendTo(nil)); !errors.Is(err, kafkago.GroupCoordinatorNotAvailable) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func FuzzTransactionAnswers(f *testing.F) {
	of, whole := transactionResponses(51)
	for _, body := range append(of, whole...) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		parseTransacted(body, "orders", 3)
		parseTransacted(body, "", 0)
		parseCoordinator(body)
	})
}
