package receipts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/config"
	"streamd/ingest/kafka"
)

func TestRetentionSays(t *testing.T) {
	r := &retention{Environment: &loop.Environment{Config: &config.Config{Kafka: config.Kafka{Topic: "orders"}}}}
	old, recent := time.UnixMilli(1_700_000_000_000), time.Now().Add(-time.Minute)
	if !r.until(recent).IsZero() || r.says(recent) != "the log of topic orders, until retention or compaction drops the records" {
		t.Errorf("without knowledge: %s", r.says(recent))
	}
	for _, test := range []struct {
		known  kafka.Retention
		latest time.Time
		want   string
		until  bool
	}{
		{kafka.Retention{}, old, "which has no retention and keeps the records", false},
		{kafka.Retention{Bytes: 5}, old, "until retention.bytes are behind the records", false},
		{kafka.Retention{Compact: true}, old, "until their keys are written again, or deleted, and the log is compacted", false},
		{kafka.Retention{After: time.Hour}, old, fmt.Sprintf("which should have deleted the records by %s (retention.ms and segment.ms)", old.Add(time.Hour).UTC().Format(time.RFC3339)), true},
		{kafka.Retention{After: time.Hour, Segment: time.Minute}, recent, fmt.Sprintf("until about %s (retention.ms and segment.ms)", recent.Add(time.Hour+time.Minute).UTC().Format(time.RFC3339)), true},
		{kafka.Retention{After: time.Hour, Bytes: 5, Compact: true}, recent, "(retention.ms and segment.ms), or until retention.bytes are behind the records, or until their keys are written again, or deleted, and the log is compacted", true},
		{kafka.Retention{After: 1<<63 - 1}, recent, "until about 2", true},
	} {
		r.known.Store(&test.known)
		if got := r.says(test.latest); !strings.HasPrefix(got, "the log of topic orders, ") || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %s, want %s", test.known, got, test.want)
		}
		if until := r.until(test.latest); until.IsZero() == test.until || test.until && !until.Equal(test.latest.Add(test.known.After).Add(test.known.Segment)) {
			t.Errorf("%+v: until %s", test.known, until)
		}
	}
}
