package kafka

import (
	"context"
	"fmt"
	"time"

	"streamd/ingest/kafka/protocol"
)

// nobody is the leader of a partition that has none, or whose leader is unknown.
const nobody = -1

// leader returns the id of the broker that leads a partition, and the epoch of its lead.
func (cl *client) leader(ctx context.Context, topic string, partition int) (broker int, epoch int32) {
	if t, err := cl.topic(ctx, topic); err == nil {
		for _, p := range t.Partitions {
			if int(p.PartitionIndex) == partition && p.LeaderID >= 0 {
				return int(p.LeaderID), p.LeaderEpoch
			}
		}
	}
	return nobody, 0
}

// leadership is what a client knows about a partition's leaders.
type leadership struct {
	epoch    int32     // the highest
	seen     time.Time // when the epoch was seen last
	outdated time.Time // since when brokers report a lower epoch; zero: they do not
}

// disownTime is how long a leader of a lower epoch is not believed.
const disownTime = 30 * time.Second

// current returns an error when the cluster reports an outdated leader of a partition.
// Such a report comes from a broker that is cut off from the others. It may believe that
// it still leads, and does not have the later records. Another broker is asked next time.
//
// A topic that was made anew counts its epochs anew, so after disownTime the lower epoch
// is believed. A leader seen less than age ago is not requested again.
func (cl *client) current(ctx context.Context, topic string, partition int, age time.Duration) error {
	of := topicPartition{topic, partition}
	cl.mu.Lock()
	seen := cl.leaders[of].seen
	cl.mu.Unlock()
	if time.Since(seen) < age {
		return nil
	}
	broker, epoch := cl.leader(ctx, topic, partition)
	if broker == nobody {
		return nil // the caller's own request fails, too
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := time.Now()
	l := cl.leaders[of]
	if epoch >= l.epoch || !l.outdated.IsZero() && now.Sub(l.outdated) > disownTime {
		cl.leaders[of] = leadership{epoch: epoch, seen: now}
		return nil
	}
	if l.outdated.IsZero() {
		cl.leaders[of] = leadership{epoch: l.epoch, outdated: now}
	}
	cl.transport.CloseIdleConnections()
	return fmt.Errorf("a broker reports that broker %d leads the partition in epoch %d, after epoch %d: it is cut off from the other brokers, or the topic was made anew; asking another",
		broker, epoch, l.epoch)
}

// whileLed returns a context that ends when the cluster reports another leader of a
// partition than leader. The old leader may be stuck or cut off, and never say so itself.
//
// After done no goroutine asks the cluster any more. A late request would make kafka-go
// connect again after close.
func (cl *client) whileLed(ctx context.Context, topic string, partition int, leader func() int) (led context.Context, done func()) {
	led, cancel := context.WithCancelCause(ctx)
	const interval = time.Second
	looked := make(chan struct{})
	first := time.AfterFunc(interval, func() {
		defer close(looked)
		for led.Err() == nil {
			now, _ := cl.leader(led, topic, partition)
			if before := leader(); now != nobody && before != protocol.Unrouted && now != before {
				cancel(fmt.Errorf("the partition has moved from broker %d to broker %d", before, now))
			}
			select {
			case <-led.Done():
			case <-time.After(interval):
			}
		}
	})
	return led, func() {
		cancel(nil)
		if !first.Stop() {
			<-looked
		}
	}
}
