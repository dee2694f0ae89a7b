package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

// postOffice is a broker with a topic, orders, and its dead letters.
type postOffice struct {
	t       *testing.T
	cluster kafka.Cluster
	sent    kafka.Record // the record of the letters with values
}

func newPostOffice(t *testing.T) *postOffice {
	t.Helper()
	broker, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	p := &postOffice{t: t, cluster: kafka.Cluster{Brokers: []string{broker.Addr()}}}
	for topic, limit := range map[string]string{"orders": "100000", "orders.dlq": "4000", "others": "100000"} {
		if err := kafka.EnsureTopic(t.Context(), p.cluster, topic, 2, map[string]string{"max.message.bytes": limit}); err != nil {
			t.Fatal(err)
		}
	}
	p.sent = kafka.Record{
		Time: time.UnixMilli(1_700_000_000_000).UTC(), Key: []byte("customer \x1b[2J"), Value: []byte("{\"a\":\n1}\x1b]0;title\a"),
		Headers: []kafka.Header{{Key: "content-type", Value: []byte("application/json")}, {Key: "trace", Value: []byte{0xff, 0}}},
	}
	return p
}

// write writes a dead letter for a record of a topic.
func (p *postOffice) write(source string, partition int, offset int64, value []byte, class string) {
	p.t.Helper()
	letters, err := kafka.NewDeadLetters(kafka.DeadLetterConfig{Cluster: p.cluster, Source: source, Topic: "orders.dlq", Connector: "test"}, zerolog.Nop())
	if err != nil {
		p.t.Fatal(err)
	}
	defer letters.Close()
	record := p.sent
	record.Offset, record.Value = offset, value
	letter := kafka.Letter{Record: &record, Reason: kafka.Reason{Stage: "VALUE_CONVERTER", Class: class, Message: "row 1\x1b[31m: no"}}
	if err := letters.Write(p.t.Context(), partition, []kafka.Letter{letter}); err != nil {
		p.t.Fatal(err)
	}
}

// streamd runs a command on the letters and returns its exit status.
func (p *postOffice) streamd(status int, args ...string) string {
	p.t.Helper()
	var out bytes.Buffer
	args = append([]string{"letters"}, args...)
	args = append(args, "--brokers", p.cluster.Brokers[0], "--topic", "orders")
	err := run(p.t.Context(), args, nil, strings.NewReader(""), &out, io.Discard)
	if exitStatus(err) != status {
		p.t.Fatalf("%q: %v, want exit status %d", args, err, status)
	}
	return out.String()
}

// records reads all records of a topic.
func (p *postOffice) records(topic string) (records []kafka.Record) {
	p.t.Helper()
	reader, err := kafka.NewRangeReader(kafka.RangeConfig{Cluster: p.cluster, Topic: topic, Partitions: 1}, zerolog.Nop())
	if err != nil {
		p.t.Fatal(err)
	}
	defer reader.Close()
	ranges, err := reader.Log(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = reader.Read(p.t.Context(), ranges, func(_ context.Context, b *kafka.Batch) error {
		for _, r := range b.Records { // the batch is never released
			r.Offset = int64(b.Partition)<<32 | r.Offset
			records = append(records, r)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return records
}

func fromJSON[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func TestLetters(t *testing.T) {
	p := newPostOffice(t)
	large := make([]byte, 50_000)
	if _, err := rand.NewChaCha8([32]byte{}).Read(large); err != nil {
		t.Fatal(err)
	}
	p.write("orders", 1, 7, p.sent.Value, "format")
	p.write("orders", 1, 8, large, "row")
	p.write("orders", 0, 3, p.sent.Value, "row")
	p.write("orders", 1, 7, p.sent.Value, "format") // a second letter, as after a crash
	p.write("others", 0, 1, p.sent.Value, "format")

	all := fromJSON[lettersReport](t, p.streamd(0, "list", "--json"))
	if len(all.Letters) != 5 || all.Others != 0 || all.Topic != "orders.dlq" {
		t.Fatalf("%+v", all)
	}
	listed := map[letterID]letter{} // letters of the same millisecond have the order of partitions
	for _, l := range all.Letters {
		listed[l.ID] = l
	}
	first := listed[letterID{1, 0}]
	want := letter{
		ID: letterID{1, 0}, WrittenAt: first.WrittenAt, Topic: "orders", Partition: 1, Offset: 7, Last: 7, Time: &p.sent.Time,
		Reason: "format", Stage: "VALUE_CONVERTER", Message: "row 1\x1b[31m: no",
		KeyBytes: int64(len(p.sent.Key)), Bytes: int64(len(p.sent.Value)), Whole: true,
	}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("%+v\nwant %+v", first, want)
	}
	if tooLarge := listed[letterID{1, 1}]; tooLarge.Whole || tooLarge.Bytes != int64(len(large)) || tooLarge.Offset != 8 {
		t.Errorf("%+v", tooLarge)
	}
	for flags, count := range map[string]int{
		"--reason format": 3, "--limit 2": 2, "--reason format --limit 1": 1, "--since 1h": 5, "--since 2200-01-01T00:00:00Z": 0,
	} {
		got := fromJSON[lettersReport](t, p.streamd(0, append([]string{"list", "--json"}, strings.Fields(flags)...)...))
		if len(got.Letters) != count {
			t.Errorf("%s: %d letters, want %d", flags, len(got.Letters), count)
		}
		if count > 0 && count < 3 && got.Letters[count-1].ID != all.Letters[4].ID {
			t.Errorf("%s: %+v is not the latest", flags, got.Letters[count-1])
		}
	}

	// Control characters of a producer are escaped, and nothing is lost.
	for _, args := range [][]string{{"list"}, {"show", "1/0"}, {"show", "1/1"}, {"show", "1/0", "--hex"}} {
		if text := p.streamd(0, args...); !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\a") || !strings.Contains(text, "orders/1/7") && !strings.Contains(text, "orders/1/8") {
			t.Errorf("%q prints %q", args, text)
		}
	}
	shown := fromJSON[letterReport](t, p.streamd(0, "show", "1/0", "--json"))
	if !bytes.Equal(shown.Key, p.sent.Key) || !bytes.Equal(shown.Value, p.sent.Value) || shown.Connector != "test" || len(shown.Headers) < 10 ||
		!bytes.Equal(shown.Headers[1].Value, p.sent.Headers[1].Value) {
		t.Errorf("%+v", shown)
	}
	if text := p.streamd(0, "show", "1/0", "--out", "-"); text != string(p.sent.Value) {
		t.Errorf("the value is printed as %q", text)
	}
	file := filepath.Join(t.TempDir(), "value")
	p.streamd(0, "show", "1/0", "--out", file)
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, p.sent.Value) {
		t.Errorf("%q, %v", text, err)
	}
	p.streamd(1, "show", "1/1", "--out", "-")
	p.streamd(1, "show", "1/99")
	p.streamd(2, "show", "17")

	// A replay writes each record once and names the letters that it cannot replay.
	replay := func(status int, args ...string) lettersReplayReport {
		t.Helper()
		return fromJSON[lettersReplayReport](t, p.streamd(status, append([]string{"replay", "--json"}, args...)...))
	}
	p.streamd(2, "replay")
	p.streamd(2, "replay", "1/0", "--all")
	dry := replay(1, "--all", "--dry-run")
	if dry.Replayed != 2 || dry.Duplicates != 1 || len(dry.Left) != 2 || dry.Chosen != 5 || dry.Missing != 0 {
		t.Errorf("%+v", dry)
	}
	if got := p.records("orders"); len(got) > 0 {
		t.Fatalf("a dry run wrote %d records", len(got))
	}
	if done := replay(1, "--all"); done.Replayed != 2 || len(done.Left) != 2 {
		t.Errorf("%+v", done)
	}
	if one := replay(1, "0/0", "0/99", "0/0"); one.Replayed != 1 || one.Chosen != 2 || one.Missing != 1 {
		t.Errorf("%+v", one)
	}
	got := p.records("orders")
	if len(got) != 3 {
		t.Fatalf("%d records", len(got))
	}
	for i, at := range []int64{0, 1, 1 << 32} {
		wanted := append(p.sent.Headers[:2:2], kafka.Header{Key: replayHeader, Value: []byte("1")})
		r := got[i]
		if r.Offset != at || !bytes.Equal(r.Key, p.sent.Key) || !bytes.Equal(r.Value, p.sent.Value) || !r.Time.Equal(p.sent.Time) || !reflect.DeepEqual(r.Headers, wanted) {
			t.Errorf("record %d is %+v", i, r)
		}
	}
}

func TestReplayedCounts(t *testing.T) {
	header := func(value string) kafka.Header { return kafka.Header{Key: replayHeader, Value: []byte(value)} }
	other := kafka.Header{Key: "a", Value: nil}
	for before, after := range map[string]string{"1": "2", "41": "42", "x": "1", "99999999999": "1"} {
		if got := replayed([]kafka.Header{header(before), other}); !reflect.DeepEqual(got, []kafka.Header{other, header(after)}) {
			t.Errorf("%s: %q", before, got)
		}
	}
}

// Without a dead-letter topic nothing was ever rejected.
func TestLettersWithoutTopic(t *testing.T) {
	broker, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	var out bytes.Buffer
	err = run(t.Context(), []string{"letters", "list", "--brokers", broker.Addr(), "--topic", "orders"}, nil, strings.NewReader(""), &out, &out)
	if err == nil || !strings.Contains(err.Error(), "there is no topic orders.dlq") {
		t.Error(err)
	}
}

func TestContent(t *testing.T) {
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "none"},
		{[]byte{}, ""},
		{[]byte("a\x1b[2J\nb\tü"), `a\x1b[2J` + "\n" + `b\tü`},
		{[]byte("\xff\n"), `"\xff\n"`},
		{bytes.Repeat([]byte("x"), mostShown+2), strings.Repeat("x", mostShown) + "\n… and 2 bytes more"},
	} {
		if got := content(c.data, nil, shownText); got != c.want {
			t.Errorf("%.20q is shown as %q", c.data, got)
		}
	}
	omitted := &kafka.Omitted{Size: 9}
	if got := content(nil, omitted, shownText); !strings.HasPrefix(got, "not in the letter: 9 bytes with SHA-256 00") {
		t.Error(got)
	}
}

// The letters of records with times that JSON cannot write are listed.
func TestLetterOfATimeThatIsNone(t *testing.T) {
	for _, ms := range []int64{math.MinInt64, math.MaxInt64} {
		none := time.UnixMilli(ms)
		if _, err := json.Marshal(letterOf(letterID{}, none, &kafka.DeadLetter{Time: none})); err != nil {
			t.Errorf("%d ms: %v", ms, err)
		}
	}
}
