package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/control"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/saving"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/ingest/kafka"
	"streamd/snapshot"
)

// A save takes too long, and the revocation stops waiting for the loop. When the loop
// gets to the request later, it shares no memory with the caller (run with -race).
func TestRevokedInTooLongASave(t *testing.T) {
	consumer, err := kafka.NewConsumer(kafka.Config{
		Cluster: kafka.Cluster{Brokers: []string{"127.0.0.1:1"}}, Topic: "t", Group: "g",
	}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	cfg := load(t, map[string]string{"kafka.topic": "t"})
	l := live.New(nil, cfg, roomy(cfg))
	c := coreOf(cfg, l, nil)
	c.Failure = errors.New("nothing is saved any more")
	d := &Daemon{Loop: c, consumer: consumer, Saver: saving.New(c, nil, watching.New(c, nil, nil), control.NewFollowed("", nil, nil, c.Log), nil, &snapshot.Contents{})}
	d.Intake.Restore(&snapshot.Contents{Offsets: []snapshot.Offset{{Topic: "t", Partition: 3, Next: 7}}})
	ctx, cancel := context.WithCancel(t.Context())
	turned := make(chan struct{})
	go func() { // the loop
		defer close(turned)
		y := <-d.Intake.Deliveries()
		cancel()
		time.Sleep(50 * time.Millisecond)
		d.Intake.Apply(ctx, y)
	}()
	d.Revoked(ctx, []int{3})
	<-turned
}
