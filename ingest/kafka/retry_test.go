package kafka

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"

	"streamd/ingest/kafka/embedded"
)

// What may pass is what another client calls retriable.
func TestMayPass(t *testing.T) {
	differ := map[kafkago.Error]bool{
		kafkago.NoReassignmentInProgress: true, // nobody asks for these here
		kafkago.GroupSubscribedToTopic:   true,
	}
	for code := kafkago.Error(1); code <= kafkago.FetchSessionTopicIDError; code++ {
		want := kerr.IsRetriable(kerr.ErrorForCode(int16(code))) != differ[code]
		if got := mayPass(fmt.Errorf("ask: %w", code)); got != want {
			t.Errorf("%d %s may pass: %t, want %t", code, code.Title(), got, want)
		}
	}
	if !mayPass(io.ErrUnexpectedEOF) {
		t.Error("a lost connection does not pass")
	}
}

// A broker that is lost while the topic is made is waited for.
func TestTransactionsWaitForABroker(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic("source", 3, -1); err != nil {
		t.Fatal(err)
	}
	z, err := NewTransactions(TransactionConfig{
		Cluster: Cluster{Brokers: []string{b.Addr()}}, Source: "source", Group: "group", Topic: "topic",
	}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	asked := 0
	if err := z.Prepare(t.Context(), func(context.Context) (map[string]string, error) {
		if asked++; asked == 1 {
			return nil, fmt.Errorf("read the configuration of topic source: %w", kafkago.BrokerNotAvailable)
		}
		return nil, nil
	}); err != nil || asked < 2 {
		t.Fatalf("asked %d times: %v", asked, err)
	}
	if n, err := z.Partitions(t.Context()); n != 3 || err != nil {
		t.Fatalf("%d partitions: %v", n, err)
	}
}
