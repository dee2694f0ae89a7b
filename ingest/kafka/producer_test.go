package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// A log without the end that a producer had written to it ends the producer, which
// says what has happened.
func TestProducerOfALostEnd(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := Cluster{Brokers: []string{b.Addr()}}
	if err := EnsureTopic(ctx, cluster, "t", 1, nil); err != nil {
		t.Fatal(err)
	}
	p, err := OpenProducer(ctx, ProducerConfig{Cluster: cluster, Topic: "t"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	write := func() error {
		if err := p.Write(ctx, 0, nil, []byte("x"), nil, time.Time{}); err != nil {
			return err
		}
		return p.Flush(ctx)
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	b.Cluster().ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.ErrorCode = kerr.OutOfOrderSequenceNumber.Code
		response := r.ResponseKind().(*kmsg.ProduceResponse)
		response.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{partition}}}
		return response, nil, true
	})
	if err := write(); !errors.Is(err, kafkago.OutOfOrderSequenceNumber) || !strings.Contains(err.Error(), "produce to t/0") || !strings.Contains(err.Error(), "end was lost") {
		t.Errorf("got %v", err)
	}
}
