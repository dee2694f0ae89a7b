package kafka

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"streamd/ingest/kafka/protocol"
)

func TestRangeConfigReportsAllProblems(t *testing.T) {
	_, err := NewRangeReader(RangeConfig{Topic: "a b", Fetching: Fetching{FetchBytes: -1}, Partitions: -1}, zerolog.Nop())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"no brokers", `"a b" is not a legal name`, "fetch bytes", "partitions -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s", want)
		}
	}
}

func TestNormalise(t *testing.T) {
	got := normalise([]Range{{1, 5, 9}, {0, 20, 30}, {0, 0, 5}, {0, 5, 7}, {0, 3, 4}, {1, 0, 5}, {0, 25, 40}, {0, 8, 9}})
	want := []Range{{0, 0, 7}, {0, 8, 9}, {0, 20, 40}, {1, 0, 9}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("an empty range is taken")
		}
	}()
	normalise([]Range{{0, 3, 3}})
}

func testReading(ranges ...Range) *reading {
	r := &RangeReader{cfg: RangeConfig{Topic: "t", Fetching: Fetching{MaxMessageBytes: 1 << 20, FetchBytes: 1 << 20, BufferBytes: 8 << 20}}}
	return r.newReading(normalise(ranges), nil)
}

func TestWantsAndTrim(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		in := make([]bool, 60)
		var ranges []Range
		for range 1 + rng.IntN(5) {
			from := rng.IntN(50)
			to := from + 1 + rng.IntN(9)
			ranges = append(ranges, Range{0, int64(from), int64(to)})
			for o := from; o < to; o++ {
				in[o] = true
			}
		}
		p := testReading(ranges...)
		b := newBatch(p.id, &p.names)
		var want []int64
		for o := range in {
			for last := o; last < len(in); last++ {
				if got := p.wants(int64(o), int64(last)); got != slices.Contains(in[o:last+1], true) {
					t.Fatalf("%v: offsets %d to %d: %t", ranges, o, last, got)
				}
			}
			if rng.IntN(4) > 0 { // the others are compacted
				b.Records = append(b.Records, Record{Offset: int64(o)})
				if in[o] {
					want = append(want, int64(o))
				}
			}
		}
		p.trim(b)
		var got []int64
		for _, r := range b.Records {
			got = append(got, r.Offset)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v: got %v, want %v", ranges, got, want)
		}
		b.Release()
	}
}

// TestNothingComes goes through the meanings of an answer without records.
func TestNothingComes(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   protocol.LogState
		attempts int // until it is believed; 0: never
		at       int64
		lost     []Lost
	}{
		{"the log ends", protocol.LogState{HighWatermark: 10, Stable: 10, LogStart: 2}, contraryAttempts, 0,
			[]Lost{{Range{0, 10, 20}, 2, 10}, {Range{0, 30, 40}, 2, 10}}},
		{"compacted up to the end", protocol.LogState{HighWatermark: 35, Stable: 35}, contraryAttempts, 35, nil},
		{"a transaction is open", protocol.LogState{HighWatermark: 15, Stable: 10}, 0, 10, nil},
		{"throttled", protocol.LogState{HighWatermark: 15, Stable: 15, Throttled: true}, 0, 10, nil},
	} {
		p := testReading(Range{0, 10, 20}, Range{0, 30, 40})
		p.answer = c.answer
		queue := make(chan delivery, 1)
		for attempt := 1; attempt <= contraryAttempts; attempt++ {
			err := p.stalled(context.Background(), queue)
			if (err != nil) != (c.attempts > attempt) {
				t.Errorf("%s: attempt %d: %v", c.name, attempt, err)
			}
		}
		if len(p.ranges) > 0 && p.at != c.at || !slices.Equal(p.lost, c.lost) {
			t.Errorf("%s: at %d, lost %v", c.name, p.at, p.lost)
		}
		if c.name == "compacted up to the end" {
			d := <-queue
			if len(d.batch.Records) > 0 || d.batch.Position.Next != 35 {
				t.Errorf("%s: %+v", c.name, d.batch)
			}
			d.drop()
		}
		if len(queue) > 0 {
			t.Errorf("%s: something is delivered", c.name)
		}
	}
}
