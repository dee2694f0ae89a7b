package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// topic returns what the cluster says of a topic, at most metadataTTL old, and
// never creates it. A missing topic is kafkago.UnknownTopicOrPartition.
func (cl *client) topic(ctx context.Context, name string) (metadata.ResponseTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	r, err := cl.transport.RoundTrip(ctx, cl.addr(), &metadata.Request{TopicNames: []string{name}})
	if err != nil {
		return metadata.ResponseTopic{}, err
	}
	m := r.(*metadata.Response)
	cl.discovered(m.Brokers)
	for _, t := range m.Topics {
		if t.Name == name && t.ErrorCode != 0 {
			return t, kafkago.Error(t.ErrorCode)
		} else if t.Name == name {
			return t, nil
		}
	}
	return metadata.ResponseTopic{}, kafkago.UnknownTopicOrPartition
}

// partitions returns the number of partitions of a topic.
func (cl *client) partitions(ctx context.Context, name string) (int, error) {
	t, err := cl.topic(ctx, name)
	return len(t.Partitions), err
}

// What stands in for a leader.
const (
	nobody   = -1 // the partition has none, or it is not known
	unrouted = -2 // a call has not looked for it yet
)

// leader returns the number of the broker that leads a partition, and how many
// have led it before, by Kafka's count.
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

// led is what is known of a partition's leaders.
type led struct {
	epoch    int32     // the highest
	seen     time.Time // when
	outdated time.Time // since when brokers say a lower one; zero: they do not
}

// disown is how long a leader is not believed that comes before another.
const disown = 30 * time.Second

// current is an error when what the cluster says of a partition is what was so
// before: it comes from a broker that is cut off from the others, thinks perhaps
// that it is the leader still, and knows nothing of the records that came after.
// Another one is asked then. But a topic that was made anew counts its leaders
// anew, so that after a while it is believed. What was seen less than age ago
// counts still.
func (cl *client) current(ctx context.Context, topic string, partition int, age time.Duration) error {
	of := topicPartition{topic, partition}
	cl.mu.Lock()
	seen := cl.led[of].seen
	cl.mu.Unlock()
	if time.Since(seen) < age {
		return nil
	}
	broker, epoch := cl.leader(ctx, topic, partition)
	if broker == nobody {
		return nil // whoever asks it meets that, too
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := time.Now()
	l := cl.led[of]
	if epoch >= l.epoch || !l.outdated.IsZero() && now.Sub(l.outdated) > disown {
		cl.led[of] = led{epoch: epoch, seen: now}
		return nil
	}
	if l.outdated.IsZero() {
		cl.led[of] = led{epoch: l.epoch, outdated: now}
	}
	cl.transport.CloseIdleConnections()
	return fmt.Errorf("broker %d is said to lead the partition in epoch %d, after epoch %d: whoever says so is cut off from the other brokers, or the topic was made anew; asking another",
		broker, epoch, l.epoch)
}

// whileLed returns a context that ends when the cluster says that a partition is
// led by another broker than leader: that one may be stuck, or cut off, and never
// say so itself. After done nobody looks any more: kafka-go would connect again for
// that, to a cluster that may be done with.
func (cl *client) whileLed(ctx context.Context, topic string, partition int, leader func() int) (led context.Context, done func()) {
	led, cancel := context.WithCancelCause(ctx)
	const interval = time.Second
	looked := make(chan struct{})
	first := time.AfterFunc(interval, func() {
		defer close(looked)
		for led.Err() == nil {
			now, _ := cl.leader(led, topic, partition)
			if before := leader(); now != nobody && before != unrouted && now != before {
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

// hangup says what a broker is likely to mean that hangs up, for it does not say
// so itself; "" of another error.
func (cl *client) hangup(err error) string {
	switch {
	case cl.transport.SASL != nil && errors.Is(err, io.ErrUnexpectedEOF):
		// Kafka says what is wrong with a password, other brokers hang up.
		return "the broker hangs up, as some do when user name, password or mechanism are wrong"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the broker hangs up, as brokers do when one side wants TLS or a login and the other does not"
	}
	return ""
}

// waitForTopic returns the number of partitions once the cluster answers. A
// cluster that cannot be reached is waited for; a topic that does not exist is
// an error soon, but not at once, since a new topic takes a moment to become
// known to all brokers.
func (cl *client) waitForTopic(ctx context.Context, name string, log zerolog.Logger) (int, error) {
	const attempts = 6 // over three seconds
	var pause backoff
	for missing := 0; ; {
		n, err := cl.partitions(ctx, name)
		switch {
		case err == nil && n > 0:
			return n, nil
		case errors.Is(err, kafkago.IllegalSASLState):
			return 0, fmt.Errorf("%w (the broker takes no login at this port)", err)
		case isPermanent(err):
			return 0, err
		case err == nil, errors.Is(err, kafkago.UnknownTopicOrPartition):
			if missing++; missing == attempts {
				return 0, fmt.Errorf("topic %s does not exist; create it first (it is not created here, since a mistyped name would make one)", name)
			}
		case cl.hangup(err) != "":
			log.Warn().Err(err).Bool("tls", cl.transport.TLS != nil).Bool("login", cl.transport.SASL != nil).
				Msg(cl.hangup(err) + "; trying again")
		default:
			log.Warn().Err(err).Msg("the cluster does not answer; trying again")
		}
		if err := pause.wait(ctx); err != nil {
			return 0, err
		}
	}
}

// bounds returns the first offset of a partition and the one after its last
// (replicated) record.
func (cl *client) bounds(ctx context.Context, topic string, partition int) (start, end int64, err error) {
	if err := cl.current(ctx, topic, partition, 0); err != nil {
		return 0, 0, err
	}
	leader, _ := cl.leader(ctx, topic, partition)
	ctx, done := cl.whileLed(ctx, topic, partition, func() int { return leader })
	defer done()
	ends, err := cl.allBounds(ctx, topic, []int{partition})
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("list offsets of %s/%d: %w", topic, partition, context.Cause(ctx))
		}
		return 0, 0, err
	}
	return ends[0].FirstOffset, ends[0].LastOffset, nil
}

func (cl *client) allBounds(ctx context.Context, topic string, partitions []int) ([]kafkago.PartitionOffsets, error) {
	var ask []kafkago.OffsetRequest
	for _, id := range partitions {
		ask = append(ask, kafkago.FirstOffsetOf(id), kafkago.LastOffsetOf(id))
	}
	r, err := cl.api().ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: ask}})
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	got := r.Topics[topic]
	slices.SortFunc(got, func(a, b kafkago.PartitionOffsets) int { return a.Partition - b.Partition })
	if len(got) != len(partitions) {
		return nil, fmt.Errorf("list offsets of %s: %d partitions answered of %d", topic, len(got), len(partitions))
	}
	for _, p := range got {
		if errors.Is(p.Error, kafkago.OffsetNotAvailable) { // to which kafka-go gives no text
			return nil, fmt.Errorf("list offsets of %s/%d: [%d] Offset Not Available: the leader is new and has yet to hear how far its replicas are", topic, p.Partition, kafkago.OffsetNotAvailable)
		}
		if p.Error != nil {
			return nil, fmt.Errorf("list offsets of %s/%d: %w", topic, p.Partition, p.Error)
		}
		if p.FirstOffset < 0 || p.LastOffset < p.FirstOffset {
			return nil, fmt.Errorf("list offsets of %s/%d: the broker says %d to %d", topic, p.Partition, p.FirstOffset, p.LastOffset)
		}
	}
	return got, nil
}

// createTopic creates a topic; one that exists already is no error. replicas -1
// leaves their number to the broker.
func (cl *client) createTopic(ctx context.Context, name string, partitions, replicas int, configs map[string]string) error {
	t := kafkago.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: replicas}
	for k, v := range configs {
		t.ConfigEntries = append(t.ConfigEntries, kafkago.ConfigEntry{ConfigName: k, ConfigValue: v})
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	r, err := cl.api().CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{t}})
	if err == nil {
		err = r.Errors[name]
	}
	if err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s with %d partitions: %w", name, partitions, err)
	}
	// It may take a moment until the broker that is asked knows it.
	var pause backoff
	for {
		if n, err := cl.partitions(ctx, name); err == nil && n > 0 {
			return nil
		}
		if err := pause.wait(ctx); err != nil {
			return fmt.Errorf("topic %s was created but does not appear: %w", name, err)
		}
	}
}

// EnsureTopic creates a topic when it does not exist; configs are Kafka's topic
// settings. One that exists is left as it is, whatever its partitions.
func EnsureTopic(ctx context.Context, c Cluster, topic string, partitions int, configs map[string]string) error {
	problems := append(c.check(), checkTopic(topic))
	if partitions < 1 {
		problems = append(problems, fmt.Errorf("%d partitions", partitions))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	cl := newClient(&c, topic)
	defer cl.close()
	// Asked first: a topic that is there takes no right to create it, and of a
	// cluster that cannot be reached the answer says why.
	var code kafkago.Error
	switch n, err := cl.partitions(ctx, topic); {
	case err == nil && n > 0:
		return nil
	case err != nil && !errors.As(err, &code):
		if reason := cl.hangup(err); reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		return fmt.Errorf("look for topic %s: %w", topic, err)
	}
	return cl.createTopic(ctx, topic, partitions, -1, configs)
}
