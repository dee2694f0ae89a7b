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
)

// hangup explains err if a broker has hung up without saying why. Otherwise it is "".
func hangup(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the broker hangs up, as brokers do when one side wants TLS or a login and the other does not"
	}
	return ""
}

// waitForTopic returns the number of partitions once the cluster answers. It waits for a
// cluster that cannot be reached. A missing topic is an error soon, but not at once, since
// a new topic takes a moment to become known to all brokers.
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
		case hangup(err) != "":
			log.Warn().Err(err).Bool("tls", cl.encrypted).Bool("login", cl.login).
				Msg(hangup(err) + "; trying again")
		default:
			log.Warn().Err(err).Msg("the cluster does not answer; trying again")
		}
		if err := pause.wait(ctx); err != nil {
			return 0, err
		}
	}
}

// bounds returns the first offset of a partition and the one after its last replicated
// record.
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
		if errors.Is(p.Error, kafkago.OffsetNotAvailable) { // kafka-go has no text for it
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

// createTopic creates a topic. One that exists already is no error. With replicas -1 the
// broker chooses their number.
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
	// It takes a moment until all brokers know the topic.
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

// leave takes a member out of a group. A member that is not in the group is no error.
func (cl *client) leave(ctx context.Context, group, member string) error {
	r, err := cl.api().LeaveGroup(ctx, &kafkago.LeaveGroupRequest{GroupID: group, Members: []kafkago.LeaveGroupRequestMember{{ID: member}}})
	if err != nil {
		return err
	}
	// kafka-go reads the error, of 16 bits, before the throttle time, of 32. Brokers send
	// them the other way round.
	err = r.Members[0].Error
	if code := kafkago.Error(int16(r.Throttle / time.Millisecond)); code != 0 {
		err = code
	}
	if errors.Is(err, kafkago.UnknownMemberId) || errors.Is(err, kafkago.GroupIdNotFound) {
		return nil
	}
	return err
}

// commit commits offsets of a topic to a group without being a member of it. A broker refuses
// that while the group has members. One that does not answer, or is not ready, is asked again.
func (cl *client) commit(ctx context.Context, group, topic string, offsets map[int]int64) error {
	const attempts = 6 // in about 3 s
	var pause backoff
	for attempt := 1; ; attempt++ {
		err := cl.tryCommit(ctx, group, topic, offsets)
		if err == nil || attempt == attempts || !mayPass(err) || pause.wait(ctx) != nil {
			return err
		}
	}
}

func (cl *client) tryCommit(ctx context.Context, group, topic string, offsets map[int]int64) error {
	request := &kafkago.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafkago.OffsetCommit{}}
	for id, offset := range offsets {
		request.Topics[topic] = append(request.Topics[topic], kafkago.OffsetCommit{Partition: id, Offset: offset})
	}
	r, err := cl.api().OffsetCommit(ctx, request)
	if err != nil {
		return err
	}
	for _, p := range r.Topics[topic] {
		if errors.Is(p.Error, kafkago.UnknownMemberId) {
			return fmt.Errorf("the group has members, which commit offsets of their own: %w", p.Error)
		}
		if p.Error != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, p.Error)
		}
	}
	return nil
}

// Committed is the offset of the first record that has not been processed, with the text that was
// committed with it.
type Committed struct {
	Offset   int64 // -1: nothing is committed
	Metadata string
}

// committed asks for what a group has committed of partitions of a topic.
func (cl *client) committed(ctx context.Context, group, topic string, partitions []int) (map[int]Committed, error) {
	all := make(map[int]Committed, len(partitions))
	for _, id := range partitions {
		all[id] = Committed{Offset: -1}
	}
	r, err := cl.api().OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: partitions}})
	if err == nil && !errors.Is(r.Error, kafkago.GroupIdNotFound) { // some brokers report this instead of -1
		err = r.Error
	}
	if err != nil {
		return nil, err
	}
	for _, p := range r.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, p.Error)
		}
		if _, asked := all[p.Partition]; asked {
			all[p.Partition] = Committed{Offset: p.CommittedOffset, Metadata: p.Metadata}
		}
	}
	return all, nil
}

// EnsureTopic creates a topic when it does not exist. configs are Kafka's topic settings.
// A topic that exists stays as it is, whatever its partitions.
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
	// First look whether the topic exists. That needs no permission to create one, and
	// for an unreachable cluster the error says why.
	var code kafkago.Error
	switch n, err := cl.partitions(ctx, topic); {
	case err == nil && n > 0:
		return nil
	case err != nil && !errors.As(err, &code):
		if reason := hangup(err); reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		return fmt.Errorf("look for topic %s: %w", topic, err)
	}
	return cl.createTopic(ctx, topic, partitions, -1, configs)
}
