package kafka

import (
	"bytes"
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/embedded"
)

// A topic without known partitions is requested again after a pause, like an unknown topic.
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
	if err := d.Write(context.Background(), 0, []Letter{{Record: &Record{}}}); err == nil {
		t.Error("written to no partition")
	}
	if n := bytes.Count(lines.Bytes(), []byte("\n")); n < 2 || n > 10 {
		t.Errorf("%d attempts are in the log, of which there are about four in a second", n)
	}
}

// All letters of a Write share a request.
func TestLettersShareRequests(t *testing.T) {
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var requests atomic.Int64
	b.Cluster().ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	d, err := NewDeadLetters(DeadLetterConfig{Cluster: Cluster{Brokers: []string{b.Addr()}}, Source: "t", Topic: "dead"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	letters := make([]Letter, 1024)
	for i := range letters {
		letters[i] = Letter{Record: &Record{Offset: int64(i), Value: []byte("x")}, Reason: Reason{Class: "format", Message: "not JSON"}}
	}
	if err := d.Write(t.Context(), 0, letters); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n > 2 {
		t.Errorf("%d letters took %d requests", len(letters), n)
	}
}

// A letter is read back as it was written.
func TestReadDeadLetter(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	d := &DeadLetters{cfg: DeadLetterConfig{Source: "orders", Connector: "streamd.test"}}
	for i := range 200 {
		r := randomRecord(rng)
		r.Offset = int64(rng.IntN(1000))
		if i%3 == 0 { // the record has been a dead letter before
			r.Headers = append(r.Headers, Header{headerTopic, []byte("another")}, Header{headerValueSize, []byte("7")})
		}
		want := DeadLetter{
			Topic: "orders", Partition: 3, Offset: r.Offset, Last: r.Offset, Records: 1, Time: r.Time,
			Key: r.Key, Value: r.Value, Headers: r.Headers,
			Connector: "streamd.test", Reason: Reason{Stage: "TASK_PUT", Class: "row", Message: "not a number"},
		}
		letter := Letter{Record: &r, Reason: want.Reason}
		if i%5 == 0 {
			letter = Letter{Refused: &Refused{First: r.Offset, Last: r.Offset + 9, Records: 4}, Reason: want.Reason}
			want.Refused, want.Last, want.Records = true, r.Offset+9, 4
			want.Time, want.Key, want.Value, want.Headers = time.Time{}, nil, nil, nil
		}
		d.writer.reset()
		d.add(3, &letter, false, time.UnixMilli(5))
		written := decodeAll(t, d.writer.finish(-1, -1, 0), 0)
		got, err := ReadDeadLetter(&written[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Headers) == 0 && len(want.Headers) == 0 {
			got.Headers, want.Headers = nil, nil
		}
		if !reflect.DeepEqual(*got, want) || got.Whole() != (letter.Record != nil) {
			t.Fatalf("read %+v, written %+v", *got, want)
		}
		// Without its first header, or with malformed numbers, it is no letter.
		for _, h := range []string{headerTopic, headerPartition, headerOffset} {
			other := written[0]
			other.Headers = slices.Clone(other.Headers)
			for i := range other.Headers {
				if other.Headers[i].Key == h {
					other.Headers[i] = Header{h + "?", []byte("x")}
				}
			}
			if l, err := ReadDeadLetter(&other); err == nil && l.Topic == "orders" {
				t.Fatalf("read without %s: %+v", h, l)
			}
		}
	}
}

// A letter with an impossible size, digest or time is refused.
func FuzzReadDeadLetter(f *testing.F) {
	f.Add("3", "17", "1700000000000", "5", "7", "ab", "2", "20", "4")
	f.Fuzz(func(t *testing.T, partition, offset, millis, valueSize, keySize, digest, omitted, last, records string) {
		r := Record{Headers: []Header{
			{headerTopic, []byte("orders")}, {headerPartition, []byte(partition)}, {headerOffset, []byte(offset)},
			{headerTime, []byte(millis)}, {headerValueSize, []byte(valueSize)}, {headerValueDigest, []byte(digest)},
			{headerKeySize, []byte(keySize)}, {headerKeyDigest, []byte(digest)},
			{headerOmitted, []byte(omitted)}, {headerLast, []byte(last)}, {headerRecords, []byte(records)},
		}}
		l, err := ReadDeadLetter(&r)
		if err == nil && (l.Offset < 0 || l.Last < l.Offset || l.Records < 1 || l.Partition < 0 || l.OmittedValue.Size < 0 || l.OmittedHeaders < 0 || l.Whole()) {
			t.Fatalf("%+v", l)
		}
	})
}
