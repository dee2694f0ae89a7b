package kafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// A leader that is new says so, in words.
func TestOffsetNotAvailable(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic("topic", 1, -1); err != nil {
		t.Fatal(err)
	}
	b.Cluster().ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		response := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, partition := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		partition.ErrorCode = kerr.OffsetNotAvailable.Code
		topic.Topic, topic.Partitions = "topic", append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	cl := newClient(&Cluster{Brokers: []string{b.Addr()}}, "topic")
	defer cl.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := cl.bounds(ctx, "topic", 0); err == nil || !strings.Contains(err.Error(), "the leader is new") {
		t.Errorf("got %v", err)
	}
}
