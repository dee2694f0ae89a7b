package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LagMonitor watches how far a group is behind the end of a topic. With it a replay can
// wait for its consumer instead of outrunning the topic's retention.
type LagMonitor struct {
	cl           *client
	topic, group string
}

// PartitionLag is the part of a partition that a group has yet to read.
type PartitionLag struct {
	Committed int64 // -1: nothing yet
	Start     int64 // of the log
	End       int64 // of the log
}

// Lag is the number of offsets from the committed one to the log's end.
func (l *PartitionLag) Lag() int64 { return l.End - max(l.Committed, l.Start) }

// NewLagMonitor checks its arguments and does not connect.
func NewLagMonitor(c Cluster, topic, group string) (*LagMonitor, error) {
	problems := append(c.check(), checkTopic(topic))
	if group == "" {
		problems = append(problems, errors.New("no group given"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &LagMonitor{cl: newClient(&c, topic), topic: topic, group: group}, nil
}

// Lag asks the brokers for the lags, by partition.
func (l *LagMonitor) Lag(ctx context.Context) ([]PartitionLag, error) {
	n, err := l.cl.partitions(ctx, l.topic)
	if err != nil {
		return nil, fmt.Errorf("lag of %s on %s: %w", l.group, l.topic, err)
	}
	ids := make([]int, n)
	lags := make([]PartitionLag, n)
	for i := range ids {
		ids[i] = i
	}
	committed, err := l.cl.committed(ctx, l.group, l.topic, ids)
	if err != nil {
		return nil, fmt.Errorf("lag of %s on %s: %w", l.group, l.topic, err)
	}
	for i := range lags {
		lags[i].Committed = committed[i].Offset
	}
	ends, err := l.cl.allBounds(ctx, l.topic, ids)
	if err != nil {
		return nil, err
	}
	for i, e := range ends {
		lags[i].Start, lags[i].End = e.FirstOffset, e.LastOffset
	}
	return lags, nil
}

// WaitBelow returns when no partition's lag is above limit offsets. It retries failed
// requests until ctx ends.
func (l *LagMonitor) WaitBelow(ctx context.Context, limit int64) error {
	const interval = 50 * time.Millisecond
	var pause backoff
	for {
		lags, err := l.Lag(ctx)
		if isPermanent(err) {
			return err
		}
		if err != nil {
			if pause.wait(ctx) != nil {
				return err
			}
			continue
		}
		pause.reset()
		behind := int64(0)
		for i := range lags {
			behind = max(behind, lags[i].Lag())
		}
		if behind <= limit {
			return nil
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close closes the connections.
func (l *LagMonitor) Close() { l.cl.close() }
