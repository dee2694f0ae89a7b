//go:build !production

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

// A record of a name goes to the partition where the name is in force, whichever client has chosen
// that. The broker is a real one where STREAMD_TEST_BROKERS names it.
func TestControlThroughKafka(t *testing.T) {
	broker := realBroker(t)
	if broker == "" {
		b, err := embedded.Start(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		broker = b.Addr()
	}
	cluster, topic := kafka.Cluster{Brokers: []string{broker}}, fmt.Sprintf("control-%d", time.Now().UnixNano())
	if err := kafka.EnsureTopic(t.Context(), cluster, topic, 3, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	p, err := kafka.OpenProducer(t.Context(), kafka.ProducerConfig{Cluster: cluster, Topic: topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for partition, value := range []string{`{"retire":{"ids":["orders/0/1"]}}`, `{"retire":{}}`, `{"retire":{"keys":["carol"]}}`} {
		if err := p.Write(t.Context(), partition, fmt.Append(nil, "request-", partition), []byte(value), nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	inForce := func(want string) {
		t.Helper()
		var report controlReport
		reported(t, &report, "control", "list", "--brokers", broker, "--topic", topic, "--json")
		got := ""
		for _, s := range report.Selectors {
			got += fmt.Sprintf("%s in %d: %v %v; ", s.Name, s.Partition, s.Retire.IDs, s.Retire.Keys)
		}
		if got += fmt.Sprint(len(report.Bad)); got != want {
			t.Errorf("in force are %s, want %s", got, want)
		}
	}
	write := func(want string, args ...string) {
		t.Helper()
		var report writtenReport
		reported(t, &report, append([]string{"control", args[0], args[1], "--brokers", broker, "--topic", topic, "--json"}, args[2:]...)...)
		if got := fmt.Sprint(report.Partitions); got != want {
			t.Errorf("%s went to partitions %s, want %s", args, got, want)
		}
	}
	inForce("request-0 in 0: [orders/0/1] []; request-2 in 2: [] [carol]; 1")
	write("[2]", "retire", "request-2", "--key", "dave")
	write("[1]", "restore", "request-1")
	write("[0]", "retire", "request-3", "--positions", "orders/0/1-2")
	write("[0]", "restore", "request-0")
	inForce("request-3 in 0: [] []; request-2 in 2: [] [dave]; 0")
}
