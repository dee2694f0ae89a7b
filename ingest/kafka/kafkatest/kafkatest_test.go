package kafkatest

import (
	"testing"

	"streamd/ingest/kafka/embedded"
)

func TestEmbedded(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	Run(t, Broker{Addr: b.Addr(), Compact: b.Cluster().Compact})
}
