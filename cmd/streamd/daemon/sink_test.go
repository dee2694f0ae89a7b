package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
)

// A loop whose turn comes when nobody waits for it any more, since a save has taken
// too long, shares nothing with whoever waited (to be seen with -race).
func TestRevokedInTooLongASave(t *testing.T) {
	consumer, err := kafka.NewConsumer(kafka.Config{
		Cluster: kafka.Cluster{Brokers: []string{"127.0.0.1:1"}}, Topic: "t", Group: "g",
	}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		consumer:   consumer,
		order:      make(chan *delivery),
		partitions: map[int]*partition{3: {at: kafka.Saved{Next: 7}}},
		failure:    errors.New("nothing is saved any more"),
	}
	ctx, cancel := context.WithCancel(t.Context())
	turned := make(chan struct{})
	go func() { // the loop
		defer close(turned)
		y := <-d.order
		cancel()
		time.Sleep(50 * time.Millisecond)
		y.call()
	}()
	d.Revoked(ctx, []int{3})
	<-turned
}
