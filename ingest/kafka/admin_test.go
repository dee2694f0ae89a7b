package kafka

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// The error that a new leader reports has a text.
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

// After close no goroutine requests the leader. A late request would make kafka-go connect
// again, and poll brokers once a second.
func TestNobodyLooksAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		cl := newClient(&Cluster{Brokers: []string{"broker:9092"}, Dial: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("refused by the test")
		}}, "topic")
		_, done := cl.whileLed(t.Context(), "topic", 0, func() int { return 0 })
		time.Sleep(1500 * time.Millisecond) // one request is over, the next is due
		done()
		cl.close()
		synctest.Wait()
		before := dials.Load()
		if before == 0 {
			t.Error("nobody has looked for the leader")
		}
		time.Sleep(time.Minute)
		if n := dials.Load() - before; n > 0 {
			t.Errorf("%d connections after the end", n)
		}
		cl.close()
	})
}
