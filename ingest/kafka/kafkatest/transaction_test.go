package kafkatest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
)

// testExactlyOnce has records and offsets committed together. A second producer for the partition
// of the source ends the first one, whose transaction nobody sees.
func testExactlyOnce(t *testing.T, s *suite) {
	ctx := deadline(t)
	source, topic := s.topic(t, "source", 3, nil), s.topic(t, "topic", 2, nil)
	cfg := kafka.TransactionConfig{Cluster: s.cluster(), Source: source, Group: s.name(t, "group"), Topic: topic, BatchBytes: 500}
	var want []string
	open := func() (*kafka.TransactionalProducer, kafka.Committed) {
		t.Helper()
		all, err := kafka.NewTransactions(cfg, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all.Close)
		p, at, err := all.Open(ctx, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		return p, at
	}
	write := func(p *kafka.TransactionalProducer, value string, counts bool) error {
		t.Helper()
		if counts {
			want = append(want, value)
		}
		return p.Write(ctx, []byte("key"), []byte(value), []kafka.Header{{Key: "a", Value: []byte("b")}}, recent())
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	a, at := open()
	if at.Offset != -1 || at.Metadata != "" {
		t.Fatalf("committed before anything: %+v", at)
	}
	for i := range 4 {
		for j := range 20 { // of several batches
			must(write(a, fmt.Sprintf("a-%d-%d", i, j), true))
		}
		must(a.Commit(ctx, kafka.Committed{Offset: int64(10 + i), Metadata: fmt.Sprint("after ", i)}))
	}
	must(a.Commit(ctx, kafka.Committed{Offset: 20, Metadata: "nothing is written"}))
	for j := range 20 {
		must(write(a, fmt.Sprint("lost ", j), false))
	}

	b, at := open()
	if at.Offset != 20 || at.Metadata != "nothing is written" {
		t.Fatalf("committed: %+v", at)
	}
	must(write(b, "b", true))
	must(b.Commit(ctx, kafka.Committed{Offset: 21}))
	if err := a.Commit(ctx, kafka.Committed{Offset: 30}); !errors.Is(err, kafka.ErrTransactionLost) {
		t.Fatalf("the first producer commits: %v", err)
	}
	if _, at = open(); at.Offset != 21 {
		t.Fatalf("committed: %+v", at)
	}

	sink := newRecorder()
	sink.keep = true
	c := s.consume(t, s.config(t, topic), sink)
	c.until("what is committed", func() bool { return sink.total() == len(want) })
	var got []string
	for _, r := range sink.kept(1) {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	c.stop()
}
