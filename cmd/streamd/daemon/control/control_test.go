package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
	"streamd/retire"
)

// patience bounds every wait of a test, also on a slow machine.
const patience = time.Minute

func TestRecords(t *testing.T) {
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]*retire.Selection{
		`{"retire":{"ids":["orders/3/1841"]}}`:                    {IDs: []string{"orders/3/1841"}},
		` { "retire" : {"keys":["ann/1"], "ids":["a"]} } `:        {IDs: []string{"a", "key:ann%2F1"}},
		`{"retire":{"positions":["orders/3/5-7"]}}`:               {Ranges: []retire.Range{{Topic: "orders", Partition: 3, First: 5, Last: 7}}},
		`{"retire":{"from":"2026-01-02T00:00:00Z","keys":["b"]}}`: {IDs: []string{"key:b"}, From: day},
		`{"retire":{"to":"2026-01-02T00:00:00Z"}}`:                {To: day},
		`{"retire":{"headers":["t1"],"positions":["o/0/1-1"]}}`:   {Headers: []retire.HeaderHash{retire.HashHeader("tenant", []byte("t1"))}, Ranges: []retire.Range{{Topic: "o", First: 1, Last: 1}}},
		`{"restore":true}`: nil,
	} {
		if got, err := changeOf(0, &kafka.Record{Key: []byte("k"), Value: []byte(value)}, "tenant"); err != nil || !reflect.DeepEqual(got.Selection, want) {
			t.Errorf("%s: %+v, %v; want %+v", value, got.Selection, err, want)
		}
	}
	const form = "want {"
	for value, want := range map[string]string{
		"": form, "null": form, "{}": form, "[]": form, `"retire"`: form, `{"retire"`: form, `{"retire":{"ids":["a"]}`: form,
		`{"retire":{"ids":["a"]}} {}`: form, `{"retire":{"ids":["a"]},"restore":true}`: form, `{"restore":false}`: form, `{"restore":{}}`: form,
		`{"restore":true,"restore":true}`: form, `{"Retire":{"ids":["a"]}}`: form, `{"delete":{"ids":["a"]}}`: form,
		`{"retire":{}}`: "chooses nothing", `{"retire":{"ids":[]}}`: "is empty", `{"retire":{"id":["a"]}}`: "unknown", `{"retire":true}`: "want an object",
		`{"retire":{"ids":["a"],"ids":["b"]}}`: "given twice", `{"retire":{"positions":["orders/3/7-5"]}}`: "above the last",
		`{"retire":{"to":"0001-01-01T00:00:00Z"}}`: "no event time is before it",
	} {
		if got, err := parse([]byte(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", value, got, err, want)
		}
	}
	if _, err := changeOf(0, &kafka.Record{Key: []byte("k"), Value: []byte(`{"retire":{"headers":["t1"]}}`)}, ""); !errors.Is(err, retire.ErrHeaders) {
		t.Errorf("without retire.header: %v", err)
	}
	if c, err := changeOf(1, &kafka.Record{Key: []byte("k")}, ""); err != nil || c.Name != "1/k" || c.Selection != nil {
		t.Errorf("a tombstone: %+v, %v", c, err)
	}
	if _, err := changeOf(1, &kafka.Record{Value: []byte(`{"restore":true}`)}, ""); !errors.Is(err, errNoKey) {
		t.Errorf("no key: %v", err)
	}
}

// site is a topic on an embedded broker.
type site struct {
	*embedded.Broker
	topic string
}

func newSite(t *testing.T, partitions int) *site {
	t.Helper()
	b, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	s := &site{b, "retirements"}
	if partitions > 0 {
		s.create(t, s.topic, partitions)
	}
	return s
}

func (s *site) cluster() kafka.Cluster { return kafka.Cluster{Brokers: []string{s.Addr()}} }

// create creates a topic with a record in each partition that changes nothing. The embedded
// broker's compaction, other than Kafka's, moves the log's beginning to the first record that
// it keeps. It keeps these. It also applies retention.ms to a topic that is only compacted.
func (s *site) create(t *testing.T, topic string, partitions int) {
	t.Helper()
	configs := map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "retention.ms": "-1", "delete.retention.ms": "9223372036854775807"}
	if err := kafka.EnsureTopic(t.Context(), s.cluster(), topic, partitions, configs); err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		s.write(t, fmt.Sprintf(`%d first {"restore":true}`, p))
	}
}

// delete deletes the records of a partition before an offset.
func (s *site) delete(t *testing.T, partition int, before int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = int32(partition), before
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: s.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{p}}}
	response, err := request.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if code := response.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("delete records: error %d", code)
	}
}

// write writes records, each a partition, a key and a value divided by spaces. The key - is
// none, and the value - a tombstone.
func (s *site) write(t *testing.T, records ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := kafka.OpenProducer(ctx, kafka.ProducerConfig{Cluster: s.cluster(), Topic: s.topic}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, r := range records {
		var partition int
		var k, v string
		if _, err := fmt.Sscan(r, &partition, &k, &v); err != nil {
			t.Fatal(err)
		}
		key, value := []byte(k), []byte(v)
		if k == "-" {
			key = nil
		}
		if v == "-" {
			value = nil
		}
		if err := p.Write(ctx, partition, key, value, nil, time.UnixMilli(1_700_000_000_000)); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A list has the latest selector of each key and partition, as a follower of the topic has it.
func TestList(t *testing.T) {
	s := newSite(t, 2)
	s.write(t,
		`0 a {"retire":{"ids":["1"]}}`, `0 b {"retire":{"ids":["2"]}}`, `1 a {"retire":{"ids":["3"]}}`, `1 c {"retire":{"ids":["4"]}}`,
		`0 a {"retire":{"ids":["5"]}}`, `0 b {"retired":{"ids":["6"]}}`, `1 a -`, `1 c {"restore":true}`, `0 - {"restore":true}`,
		`1 d {"retire":{}}`, `1 e {"retire":{}}`, `1 e {"restore":true}`)
	got, err := List(t.Context(), s.cluster(), s.topic, most, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, in := range got.InForce {
		text = append(text, fmt.Sprintf("%d/%d %s %s", in.Partition, in.Offset, in.Name, in.Selector.IDs))
	}
	if want := []string{"0/2 b [2]", "0/3 a [5]"}; !slices.Equal(text, want) {
		t.Errorf("in force are %q, want %q", text, want)
	}
	text = nil
	for _, bad := range got.Bad {
		text = append(text, fmt.Sprintf("%d/%d %q", bad.Partition, bad.Offset, bad.Name))
	}
	if want := []string{`0/4 "b"`, `0/5 ""`, `1/5 "d"`}; !slices.Equal(text, want) || len(got.Warnings) > 0 {
		t.Errorf("bad are %q, want %q; warnings %q", text, want, got.Warnings)
	}
	for name, want := range map[string]string{"a": "[0] [5]", "b": "[0] [2]", "c": "[] []", "d": "[1] []", "e": "[] []", "": "[] []"} {
		partitions, former := got.Named(name)
		if former == nil {
			former = &retire.Selector{}
		}
		if text := fmt.Sprint(partitions, " ", former.IDs); text != want {
			t.Errorf("%q is in %s, want %s", name, text, want)
		}
	}

	// A topic that daemons refuse is listed, with a warning.
	s.delete(t, 0, 3)
	if got, err = List(t.Context(), s.cluster(), s.topic, most, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if len(got.InForce) != 1 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "retirements/0 begins at offset 3: ") {
		t.Errorf("in force are %+v, warnings %q", got.InForce, got.Warnings)
	}
	if _, err := List(t.Context(), s.cluster(), "nosuch", most, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "there is no topic nosuch") {
		t.Errorf("no topic: %v", err)
	}
}

// follower keeps the selections that a reader has received.
type follower struct {
	*Reader
	t       *testing.T
	mu      sync.Mutex
	in      map[string]string // first id of each selection
	at      map[int]int64
	changes int
	caught  chan struct{}
	ended   chan error
	stop    context.CancelFunc
	log     lines
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// with lists the lines that have a text.
func (l *lines) with(text string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			all = append(all, line)
		}
	}
	return all
}

func (s *site) follow(t *testing.T, saved map[int]int64) *follower {
	t.Helper()
	f := &follower{t: t, in: map[string]string{}, at: map[int]int64{}, caught: make(chan struct{}), ended: make(chan error, 1)}
	r, err := NewReader(Settings{
		Cluster: s.cluster(), Topic: s.topic, Log: zerolog.New(&f.log), MaxMessageBytes: most, Saved: saved,
		Take: func(_ context.Context, partition int, next int64, changes []Change) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.at[partition] = next
			f.changes += len(changes)
			for _, c := range changes {
				if delete(f.in, c.Name); c.Selection != nil {
					f.in[c.Name] = c.Selection.IDs[0]
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Reader = r
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() { f.ended <- r.Run(ctx, func() { close(f.caught) }) }()
	t.Cleanup(stop)
	return f
}

// end stops the reader and returns the offsets that it has reached.
func (f *follower) end() map[int]int64 {
	f.t.Helper()
	f.stop()
	if err := <-f.ended; err != nil {
		f.t.Error(err)
	}
	f.Close()
	return f.at
}

// catchUp waits for everything that the topic had at the start.
func (f *follower) catchUp() {
	f.t.Helper()
	select {
	case <-f.caught:
	case err := <-f.ended:
		f.t.Fatal(err)
	case <-time.After(patience):
		f.t.Fatal("the topic is not read")
	}
}

// fails waits for the error of Run, which comes before the topic counts as read.
func (f *follower) fails() error {
	f.t.Helper()
	defer f.Close()
	select {
	case err := <-f.ended:
		return err
	case <-f.caught:
		f.t.Fatal("the topic counts as read")
	case <-time.After(patience):
		f.t.Fatal("Run does not end")
	}
	return nil
}

func (f *follower) has(want map[string]string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Equal(f.in, want)
}

func (f *follower) waitFor(want map[string]string) {
	f.t.Helper()
	for began := time.Now(); !f.has(want); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("%v, want %v", f.in, want)
		}
	}
}

// waitForOffset waits until everything of a partition below an offset has been taken.
func (f *follower) waitForOffset(partition int, next int64) {
	f.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		at := f.at[partition]
		f.mu.Unlock()
		if at >= next {
			return
		}
		if time.Since(began) > patience {
			f.t.Fatalf("partition %d is read up to %d", partition, at)
		}
	}
}

// most is the size of a record batch that the readers of tests take.
const most = 4096

func retiring(id string) string { return fmt.Sprintf(`{"retire":{"ids":[%q]}}`, id) }

// The latest record of each key of a partition counts. A start reads them all, a running
// reader follows, and a bad record changes nothing.
func TestReaderFollows(t *testing.T) {
	s := newSite(t, 2)
	s.write(t, "0 a "+retiring("one"), "0 b "+retiring("two"), "1 a "+retiring("three"), "0 a "+retiring("four"), "0 b -")
	f := s.follow(t, nil)
	f.catchUp()
	want := map[string]string{"0/a": "four", "1/a": "three"}
	if !f.has(want) {
		t.Fatalf("%v, want %v", f.in, want)
	}
	s.write(t, `1 a {"restore":true}`, "0 b "+retiring("five"), `0 a {"retire":{}}`, "1 - "+retiring("six"), "0 a "+retiring(strings.Repeat("x", most)), "0 c "+retiring("seven"))
	want = map[string]string{"0/a": "four", "0/b": "five", "0/c": "seven"}
	f.waitFor(want)
	f.waitForOffset(1, 4)
	if n := f.Unreadable(); n != 3 { // a, no key, and the large one
		t.Errorf("the latest records of %d keys cannot be read", n)
	}
	s.write(t, "0 a "+retiring("eight"))
	want["0/a"] = "eight"
	f.waitFor(want)
	if n := f.Unreadable(); n != 2 {
		t.Errorf("after a good record of a, those of %d keys cannot be read", n)
	}
	saved := f.end()
	if !maps.Equal(saved, map[int]int64{0: 10, 1: 4}) {
		t.Errorf("offsets %v", saved)
	}

	again := s.follow(t, saved)
	again.catchUp()
	if !again.has(want) {
		t.Errorf("after a restart %v, want %v", again.in, want)
	}
	if got := again.end(); !maps.Equal(got, saved) {
		t.Errorf("after a restart the offsets are %v, not %v", got, saved)
	}
}

// A compacted topic has the same selections.
func TestReaderOfACompactedTopic(t *testing.T) {
	s := newSite(t, 1)
	for i := range 20 {
		s.write(t, fmt.Sprintf("0 k%d %s", i%3, retiring(fmt.Sprint(i))))
	}
	s.write(t, "0 k0 -")
	want := map[string]string{"0/k1": "19", "0/k2": "17"}
	f := s.follow(t, nil)
	f.catchUp()
	if !f.has(want) {
		t.Fatalf("%v, want %v", f.in, want)
	}
	saved := f.end()
	s.Cluster().Compact()
	f = s.follow(t, saved)
	f.catchUp()
	if !f.has(want) {
		t.Errorf("compacted: %v, want %v", f.in, want)
	}
	if f.changes > 10 { // the latest ones may not be compacted yet
		t.Errorf("%d records are left", f.changes)
	}
	if got := f.end(); !maps.Equal(got, saved) {
		t.Errorf("compacted: the offsets are %v, not %v", got, saved)
	}
}

// A topic that was made anew does not bring back what the former one has retired.
func TestReaderOfAnotherTopic(t *testing.T) {
	s := newSite(t, 1)
	s.write(t, "0 a "+retiring("one"))
	lost := (*LostError)(nil)
	if err := s.follow(t, map[int]int64{0: 3}).fails(); !errors.As(err, &lost) || *lost != (LostError{Topic: s.topic, Saved: 3, End: 2}) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("%v", err)
	}
}

// A topic whose records Kafka deletes by time or size is refused, with the command that mends it.
func TestTopicThatDeletes(t *testing.T) {
	s := newSite(t, 0)
	for policy, test := range map[string]struct {
		configs map[string]string
		want    string // in the error; "": none
	}{
		"broker's":         {nil, "cleanup.policy=delete, which deletes its records after 168h0m0s (retention.ms), and"},
		"delete by time":   {map[string]string{"cleanup.policy": "delete", "retention.ms": "3600000"}, "after 1h0m0s (retention.ms), and"},
		"delete by size":   {map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000000"}, "its records beyond 1000000 bytes of a partition (retention.bytes), and"},
		"delete never":     {map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, ""},
		"both":             {map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "60000", "retention.bytes": "1000000"}, "cleanup.policy=compact,delete, which deletes its records after 1m0s (retention.ms) and beyond 1000000 bytes"},
		"both, but never":  {map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}, ""},
		"compact":          {map[string]string{"cleanup.policy": "compact"}, ""},
		"compact, no time": {map[string]string{"cleanup.policy": "compact", "retention.ms": "1"}, ""},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := &site{s.Broker, strings.Map(func(r rune) rune {
				if r < 'a' || r > 'z' {
					return '-'
				}
				return r
			}, policy)}
			if err := kafka.EnsureTopic(t.Context(), s.cluster(), s.topic, 1, test.configs); err != nil {
				t.Fatal(err)
			}
			f := s.follow(t, nil)
			if test.want == "" {
				f.catchUp()
				f.end()
				return
			}
			err := f.fails()
			mend := fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact", s.Addr(), s.topic)
			if deletes := (*DeletesError)(nil); !errors.As(err, &deletes) || !strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), mend) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A topic whose configuration cannot be read is followed, with one warning.
func TestTopicOfUnknownConfiguration(t *testing.T) {
	for name, answer := range map[string]kmsg.DescribeConfigsResponseResource{
		"no right":  {ErrorCode: kerr.TopicAuthorizationFailed.Code},
		"no answer": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.Cluster().ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
				s.Cluster().KeepControl()
				response := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
				answer.ResourceType, answer.ResourceName = kmsg.ConfigResourceTypeTopic, s.topic
				response.Resources = append(response.Resources, answer)
				return response, nil, true
			})
			s.write(t, "0 a "+retiring("one"))
			f := s.follow(t, nil)
			f.catchUp()
			if !f.has(map[string]string{"0/a": "one"}) {
				t.Errorf("%v", f.in)
			}
			s.write(t, "0 b "+retiring("two"))
			f.waitFor(map[string]string{"0/a": "one", "0/b": "two"})
			f.end()
			if told := f.log.with("it is not known whether"); len(told) != 1 {
				t.Errorf("%d warnings: %v", len(told), told)
			}
			if told := f.log.with("trying again"); name == "no right" && len(told) != 0 {
				t.Errorf("a missing right is tried again: %v", told)
			}
		})
	}
}

// A topic that has lost its beginning is refused, whatever is left of it and whatever was read.
func TestTopicWithoutItsBeginning(t *testing.T) {
	for name, test := range map[string]struct {
		before int64
		has    string
	}{
		"one":   {1, "begins at offset 1:"},
		"some":  {2, "begins at offset 2:"},
		"empty": {3, "has no records below offset 3 any more:"},
	} {
		for _, saved := range []map[int]int64{nil, {0: 1}, {0: 3}, {0: 4}} {
			t.Run(fmt.Sprint(name, saved), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, 1)
				s.write(t, "0 a "+retiring("one"), "0 b "+retiring("two"))
				s.delete(t, 0, test.before)
				err := s.follow(t, saved).fails()
				lost := (*LostError)(nil)
				if !errors.As(err, &lost) || *lost != (LostError{Topic: s.topic, Start: test.before, End: 3}) {
					t.Fatalf("%v", err)
				}
				for _, want := range []string{test.has, "retention", "kafka-delete-records.sh", "another name"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v, without %q", err, want)
					}
				}
			})
		}
	}
}

// Records that were read stay in force in the process if they are deleted, and the next start
// fails. Records that are deleted before they were read end Run.
func TestRecordsDeletedWhileTheTopicIsFollowed(t *testing.T) {
	s := newSite(t, 1)
	s.write(t, "0 a "+retiring("one"))
	f := s.follow(t, nil)
	f.catchUp()
	if f.Shortened() {
		t.Error("nothing was deleted")
	}
	s.delete(t, 0, 2)
	for began := time.Now(); !f.Shortened(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("it is not noticed")
		}
	}
	s.write(t, "0 b "+retiring("two"))
	f.waitFor(map[string]string{"0/a": "one", "0/b": "two"})
	saved := f.end()
	if told := f.log.with("the next start will fail"); len(told) != 1 {
		t.Errorf("%d lines: %v", len(told), told)
	}
	lost := (*LostError)(nil)
	if err := s.follow(t, saved).fails(); !errors.As(err, &lost) || lost.Start != 2 {
		t.Errorf("%v", err)
	}

	s = newSite(t, 2)
	s.write(t, "1 a "+retiring("one"), "1 b "+retiring("two"))
	taken := 0
	r, err := NewReader(Settings{Cluster: s.cluster(), Topic: s.topic, Log: zerolog.Nop(), MaxMessageBytes: most,
		Take: func(_ context.Context, partition int, _ int64, _ []Change) error {
			if partition == 0 {
				s.delete(t, 1, 2)
			} else {
				taken++
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Run(t.Context(), func() { t.Error("caught up") }); !errors.As(err, &lost) || *lost != (LostError{Topic: s.topic, Partition: 1, Start: 2, End: 3}) {
		t.Errorf("%v", err)
	}
	if taken == 0 {
		t.Error("the rest was not read")
	}
}

// A record that takes nothing back is logged if a selection of its key is in force in another
// partition, whichever of the two was written or read first.
func TestRestoreInAnotherPartition(t *testing.T) {
	const why = "takes nothing back"
	s := newSite(t, 3)
	s.write(t, "1 a "+retiring("one"), `0 a {"restore":true}`, `0 b {"restore":true}`, "0 c -", "1 c "+retiring("two"), "0 c "+retiring("three"))
	f := s.follow(t, nil)
	f.catchUp()
	if told := f.log.with(why); len(told) != 1 || !strings.Contains(told[0], `"partition":0,"offset":1,"in_partition":1`) {
		t.Errorf("at the start %v", told)
	}
	if told := f.log.with("should have one partition"); len(told) != 1 || !strings.Contains(told[0], `"partitions":3`) {
		t.Errorf("of the partitions %v", told)
	}
	for i, write := range []string{"2 c -", "0 c -", "0 c -"} {
		s.write(t, write)
		f.waitForOffset([]int{2, 0, 0}[i], []int64{2, 6, 7}[i])
	}
	s.write(t, "1 c -", "1 a -", "1 a -")
	f.waitFor(map[string]string{})
	f.waitForOffset(1, 6)
	f.end()
	told := f.log.with(why)
	if len(told) != 3 || !strings.Contains(told[1], `"partition":2,"offset":1,`) || !strings.Contains(told[2], `"partition":0,"offset":6,"in_partition":1`) {
		t.Errorf("later %v", told)
	}

	s = newSite(t, 1)
	s.write(t, "0 a "+retiring("one"), "0 b -")
	f = s.follow(t, nil)
	f.catchUp()
	f.end()
	if told := f.log.with("partition"); len(told) != 0 {
		t.Errorf("with one partition %v", told)
	}
}

// Keys choose nothing where no block has one, and that is told.
func TestKeysWithoutBlocksOfKeys(t *testing.T) {
	s := newSite(t, 1)
	s.write(t, "0 a "+retiring("orders/0/1"), `0 b {"retire":{"keys":["carol"]}}`, `0 b {"restore":true}`)
	f := s.follow(t, nil)
	f.catchUp()
	f.end()
	if told := f.log.with("names keys, and no block has one"); len(told) != 1 || !strings.Contains(told[0], `"partition":0,"offset":2,`) || strings.Contains(told[0], "carol") {
		t.Errorf("told is %v", told)
	}
}

// A topic may be made after the start.
func TestReaderWaitsForItsTopic(t *testing.T) {
	s := newSite(t, 0)
	f := s.follow(t, nil)
	select {
	case <-f.caught:
		t.Error("a topic that does not exist counts as read")
	case <-time.After(2 * between):
	}
	if why := f.Trouble(); !strings.Contains(why, "there is no topic "+s.topic) {
		t.Errorf("the trouble is %q", why)
	}
	s.create(t, s.topic, 1)
	f.catchUp()
	if why := f.Trouble(); why != "" {
		t.Errorf("with the topic there is trouble still: %s", why)
	}
	s.write(t, "0 a "+retiring("one"))
	f.waitFor(map[string]string{"0/a": "one"})
	f.end()
}

// An error of Take ends Run.
func TestErrorOfTake(t *testing.T) {
	s := newSite(t, 1)
	s.write(t, "0 a "+retiring("one"))
	wrong := errors.New("wrong")
	r, err := NewReader(Settings{Cluster: s.cluster(), Topic: s.topic, Log: zerolog.Nop(),
		Take: func(context.Context, int, int64, []Change) error { return wrong }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Run(t.Context(), func() { t.Error("caught up") }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
	if got := slices.Collect(maps.Keys(r.next)); len(got) != 0 {
		t.Errorf("partitions %v count as read", got)
	}
}

// A record that comes between the look at the log's end and the answer of the broker belongs to the
// next sweep.
func TestRecordsDuringASweep(t *testing.T) {
	s := newSite(t, 2)
	s.write(t, "0 a "+retiring("one"), "1 b "+retiring("two"))
	var got []string
	r, err := NewReader(Settings{Cluster: s.cluster(), Topic: s.topic, Log: zerolog.Nop(), MaxMessageBytes: most,
		Take: func(_ context.Context, partition int, _ int64, changes []Change) error {
			if len(got) == 0 {
				s.write(t, fmt.Sprintf("%d c %s", 1-partition, retiring("three")))
			}
			for _, c := range changes {
				if c.Selection != nil {
					got = append(got, c.Selection.IDs...)
				}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, want := range []int{2, 3, 3} {
		if err := r.sweep(t.Context()); err != nil || len(got) != want {
			t.Errorf("%v, %v, want %d", got, err, want)
		}
	}
}
