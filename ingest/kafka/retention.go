package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Retention says when a topic's log drops records. A partition drops whole segments, so it keeps a
// record for up to Segment longer.
type Retention struct {
	Policy  string        // cleanup.policy, as the broker says it
	After   time.Duration // past the time of the record; 0: not by time
	Segment time.Duration // that a segment takes records for; 0: the broker does not say it, or After is 0
	Bytes   int64         // of a partition; 0: not by size
	Compact bool          // records whose key has a later one
}

// Deletes reports whether the log drops records by time or size.
func (r Retention) Deletes() bool { return r.After > 0 || r.Bytes > 0 }

// ReadRetention asks a cluster for the retention of a topic. That needs the permission to describe
// the topic's configuration.
func ReadRetention(ctx context.Context, c Cluster, topic string) (r Retention, err error) {
	if err := errors.Join(append(c.check(), checkTopic(topic))...); err != nil {
		return r, err
	}
	cl := newClient(&c, topic)
	defer cl.close()
	answer, err := cl.api().DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{{
		ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"cleanup.policy", "retention.ms", "retention.bytes", "segment.ms"},
	}}})
	if err == nil && len(answer.Resources) != 1 {
		err = fmt.Errorf("%d answers", len(answer.Resources))
	}
	if err == nil {
		err = answer.Resources[0].Error
	}
	if err != nil {
		return r, fmt.Errorf("read the configuration of topic %s: %w", topic, err)
	}
	values := map[string]string{}
	for _, e := range answer.Resources[0].ConfigEntries {
		values[e.ConfigName] = e.ConfigValue
	}
	policy, said := values["cleanup.policy"]
	if !said {
		return r, fmt.Errorf("read the configuration of topic %s: the broker does not say its cleanup.policy", topic)
	}
	// limit is 0 without a limit, which Kafka writes as −1. A limit of 0 counts as 1.
	limit := func(name string) (n int64, err error) {
		if n, err = strconv.ParseInt(values[name], 10, 64); err != nil {
			return 0, fmt.Errorf("read the configuration of topic %s: %s is %q", topic, name, values[name])
		}
		if n < 0 {
			return 0, nil
		}
		return max(n, 1), nil
	}
	r = Retention{Policy: policy, Compact: strings.Contains(policy, "compact")}
	if !strings.Contains(policy, "delete") {
		return r, nil
	}
	ms, err := limit("retention.ms")
	if err != nil {
		return Retention{}, err
	}
	if r.Bytes, err = limit("retention.bytes"); err != nil {
		return Retention{}, err
	}
	r.After = milliseconds(ms)
	if _, said := values["segment.ms"]; said && r.After > 0 {
		if ms, err = limit("segment.ms"); err != nil {
			return Retention{}, err
		}
		r.Segment = milliseconds(ms)
	}
	return r, nil
}

// milliseconds is that many of them, or the most that a duration has.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}
