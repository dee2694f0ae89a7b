package stage

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

// A partition for which brokers take their time holds up no commit of another one.
func TestPartitionsCommitByThemselves(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cluster := kafka.Cluster{Brokers: []string{b.Addr()}}
	if err := kafka.EnsureTopic(t.Context(), cluster, "to", 2, nil); err != nil {
		t.Fatal(err)
	}
	var (
		commits  [2]atomic.Int64
		answered = make(chan struct{})
	)
	z, err := New(Config{
		Transaction: kafka.TransactionConfig{Cluster: cluster, Source: "from", Group: "group", Topic: "to"},
		Interval:    time.Millisecond, Commits: 1,
		Open: func(_ int, at kafka.Committed, _ Writer) (Work, kafka.Saved, bool) {
			return busy{}, kafka.Saved{Next: at.Offset}, true
		},
		OpenProducer: func(_ context.Context, partition, _ int) (Producer, kafka.Committed, error) {
			return &committing{commits: &commits[partition], slow: partition == 0, answered: answered}, kafka.Committed{}, nil
		},
	}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	z.during, z.ends = ctx, func(error) { stop() }
	if err := z.Assigned(ctx, []int{0, 1}); err != nil {
		t.Fatal(err)
	}
	for _, y := range z.all() {
		y.mu.Lock()
		y.dirty = true
		y.mu.Unlock()
	}
	for began := time.Now(); commits[0].Load() == 0 || commits[1].Load() < 10; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("commits of the partitions in a minute: %d, %d", commits[0].Load(), commits[1].Load())
		}
	}
	if n := commits[0].Load(); n != 1 {
		t.Errorf("%d commits before the first one is answered", n)
	}
	close(answered)
	z.Revoked(ctx, []int{0, 1})
	z.committing.Wait() // the lanes end, not only the stage
	if ctx.Err() != nil || len(z.all()) != 0 {
		t.Errorf("%d lanes are left, %v", len(z.all()), ctx.Err())
	}
}

// busy is Work that always has something to write.
type busy struct{}

func (busy) Take(context.Context, *kafka.Batch) error { return nil }
func (busy) Flush(context.Context) error              { return nil }
func (busy) Jump(context.Context, int64, bool) error  { return nil }
func (busy) Resume() kafka.Committed                  { return kafka.Committed{} }
func (busy) Unwritten() bool                          { return true }
func (busy) Close()                                   {}

// committing counts its commits, which may wait for an answer.
type committing struct {
	Producer
	commits  *atomic.Int64
	slow     bool
	answered chan struct{}
}

func (p *committing) Commit(context.Context, kafka.Committed) error {
	if p.commits.Add(1); p.slow {
		<-p.answered
	}
	return nil
}
