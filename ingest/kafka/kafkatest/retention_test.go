package kafkatest

import (
	"testing"
	"time"

	"streamd/ingest/kafka"
)

// The retention of a topic is what it was made with.
func testRetention(t *testing.T, s *suite) {
	for name, test := range map[string]struct {
		configs map[string]string
		want    kafka.Retention
	}{
		"time":    {map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "-1"}, kafka.Retention{Policy: "delete", After: time.Hour}},
		"segment": {map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "-1", "segment.ms": "600000"}, kafka.Retention{Policy: "delete", After: time.Hour, Segment: 10 * time.Minute}},
		"size":    {map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1048576"}, kafka.Retention{Policy: "delete", Bytes: 1 << 20}},
		"ever":    {map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, kafka.Retention{Policy: "delete"}},
		"now":     {map[string]string{"cleanup.policy": "delete", "retention.ms": "0", "retention.bytes": "0"}, kafka.Retention{Policy: "delete", After: time.Millisecond, Bytes: 1}},
		"compact": {map[string]string{"cleanup.policy": "compact", "retention.ms": "3600000"}, kafka.Retention{Policy: "compact", Compact: true}},
		"both":    {map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "9223372036854775807", "retention.bytes": "-1"}, kafka.Retention{Policy: "compact,delete", After: 1<<63 - 1 - (1<<63-1)%time.Millisecond, Compact: true}},
	} {
		got, err := kafka.ReadRetention(deadline(t), s.cluster(), s.topic(t, name, 1, test.configs))
		if test.configs["segment.ms"] == "" { // the broker's default
			got.Segment = 0
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	if got, err := kafka.ReadRetention(deadline(t), s.cluster(), s.name(t, "none")); err == nil {
		t.Errorf("of a topic that does not exist: %+v", got)
	}
}
