package receipts

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/ingest/kafka"
)

// retention knows how long the log keeps records, as far as the brokers say.
type retention struct {
	*loop.Environment
	known atomic.Pointer[kafka.Retention] // nil: unknown
}

// The configuration of a topic seldom changes.
const (
	retentionEvery = time.Hour
	retentionAgain = time.Minute // after a failure
)

// follow reads the retention ever again, until ctx ends.
func (r *retention) follow(ctx context.Context) {
	for warned := false; ; {
		var got kafka.Retention
		cluster, err := settings.Cluster(r.Config.Kafka, r.Log)
		if err == nil {
			got, err = kafka.ReadRetention(ctx, cluster, r.Config.Kafka.Topic)
		}
		pause := retentionEvery
		if err == nil {
			r.known.Store(&got)
		} else if pause = retentionAgain; ctx.Err() == nil && !warned {
			r.Log.Info().Err(err).Msg("how long the log keeps records is not known; retirements do not say it")
			warned = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// until is the time by which the log drops records of that event time, or the zero time if that is
// not known, or no time does. Their segment may have taken later records, until segment.ms.
func (r *retention) until(latest time.Time) time.Time {
	if known := r.known.Load(); known != nil && known.After > 0 {
		return latest.Add(known.After).Add(known.Segment).UTC()
	}
	return time.Time{}
}

// says tells how long the log keeps records whose latest has that event time.
func (r *retention) says(latest time.Time) string {
	text := r.saysOfRows(latest)
	if topic := r.Config.Labels.Topic; topic != "" {
		text += ", and its label in topic " + topic
	}
	return text
}

func (r *retention) saysOfRows(latest time.Time) string {
	text, known := fmt.Sprintf("the log of topic %s, ", r.Config.Kafka.Topic), r.known.Load()
	if known == nil {
		return text + "until retention or compaction drops the records"
	}
	switch until := r.until(latest); {
	case until.IsZero() && known.Bytes > 0:
		text += "until retention.bytes are behind the records"
	case until.IsZero() && known.Compact:
		return text + "until their keys are written again, or deleted, and the log is compacted"
	case until.IsZero():
		return text + "which has no retention and keeps the records"
	case until.Before(time.Now()):
		text += fmt.Sprintf("which should have deleted the records by %s (retention.ms and segment.ms)", until.Format(time.RFC3339))
	default:
		text += fmt.Sprintf("until about %s (retention.ms and segment.ms)", until.Format(time.RFC3339))
		if known.Bytes > 0 {
			text += ", or until retention.bytes are behind the records"
		}
	}
	if known.Compact {
		text += ", or until their keys are written again, or deleted, and the log is compacted"
	}
	return text
}
