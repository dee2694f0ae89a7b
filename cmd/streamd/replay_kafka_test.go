//go:build !production

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// Where brokers do not acknowledge what was written, an interrupted replay says so, in its time.
func TestInterruptedReplayIsNotAcknowledged(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	held, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	b.Cluster().ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(held)
		b.Cluster().SleepControl(func() { <-release })
		return nil, nil, false
	})
	former := interrupted // of which it waits three quarters; the rest is to end in
	interrupted = 5 * time.Second
	defer func() { interrupted = former }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-held
		cancel()
	}()
	args := []string{"replay", "ndc", "--brokers", b.Addr(), "--topic", "t", "--rows", "100000", "--features", "3", "--block-rows", "10", "--rate", "10000"}
	err = run(ctx, args, nil, nil, io.Discard, io.Discard)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "have not acknowledged all rows before it") {
		t.Errorf("got %v", err)
	}
}
