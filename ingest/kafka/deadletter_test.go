package kafka

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// A topic of which the brokers know no partitions yet is asked for again after a
// pause, as one that they do not know.
func TestDeadLettersOfATopicWithoutPartitions(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	name := "dead"
	b.Cluster().ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		response, topic := r.ResponseKind().(*kmsg.MetadataResponse), kmsg.NewMetadataResponseTopic()
		topic.Topic = &name
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	var lines bytes.Buffer
	d, err := NewDeadLetters(DeadLetterConfig{
		Cluster: Cluster{Brokers: []string{b.Addr()}}, Source: "t", Topic: name, Patience: time.Second,
	}, zerolog.New(&lines))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Write(context.Background(), 0, &Record{}, Reason{}); err == nil {
		t.Error("written to no partition")
	}
	if n := bytes.Count(lines.Bytes(), []byte("\n")); n < 2 || n > 10 {
		t.Errorf("%d attempts are in the log, of which there are about four in a second", n)
	}
}
