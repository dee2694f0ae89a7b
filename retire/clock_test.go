package retire

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// naiveBound is Bound by sorting the last 16 times.
func naiveBound(times []int64, ahead int64) int64 {
	ms := times[len(times)-1]
	if len(times) <= 3 {
		return ms
	}
	last := slices.Clone(times[max(0, len(times)-16):])
	slices.Sort(last)
	return min(ms, last[len(last)-3]+ahead)
}

func TestClockIsTheThirdLatestOfSixteen(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(6, seed))
		ahead := time.Duration(r.IntN(50)) * time.Millisecond
		var c Clock
		var times []int64
		for range 1 + r.IntN(100) {
			times = append(times, r.Int64N(200)-50)
			at := time.UnixMilli(times[len(times)-1])
			if got, want := c.Bound(at, ahead).UnixMilli(), naiveBound(times, ahead.Milliseconds()); got != want {
				t.Fatalf("seed %d: %v counts as %d, want %d", seed, times, got, want)
			}
			c.Add(at)
			if want := times[max(0, len(times)-16):]; !slices.Equal(c.Times(), want) {
				t.Fatalf("seed %d: %v, want %v", seed, c.Times(), want)
			}
			if r.IntN(4) == 0 {
				c = ClockAt(c.Times()) // a restart
			}
		}
	}
}

// A first record of an old time leaves all later ones the times that they have without it.
func TestOldFirstRecordCapsNothing(t *testing.T) {
	const ahead = 5 * time.Minute
	old, now := time.UnixMilli(0), time.UnixMilli(1_700_000_000_000)
	var with, without Clock
	with.Add(old)
	for i := range 6 {
		at := now.Add(time.Duration(i) * time.Second)
		if got := with.Bound(at, ahead); !got.Equal(at) {
			t.Errorf("record %d after the old one counts as of %v, want %v", i+1, got, at)
		}
		if got := without.Bound(at, ahead); !got.Equal(at) {
			t.Errorf("record %d without the old one counts as of %v, want %v", i+1, got, at)
		}
		with.Add(at)
		without.Add(at)
	}
}

func TestOneWrongTimeMovesNothing(t *testing.T) {
	var c Clock
	const ahead = 5 * time.Minute
	for i := range 1000 {
		at := epoch.Add(time.Duration(i) * time.Second)
		if got := c.Bound(at, ahead); !got.Equal(at) {
			t.Fatalf("record %d of %s counts as %s", i, at, got)
		}
		c.Add(at)
		if i > 3 && i%10 == 0 {
			wrong := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
			if got := c.Bound(wrong, ahead); got.After(at.Add(ahead)) {
				t.Fatalf("after record %d a wrong time counts as %s", i, got)
			}
			c.Add(wrong)
		}
	}
}

// A file may hold any numbers.
func TestClockOfAnyTimes(t *testing.T) {
	for _, ms := range []int64{math.MinInt64, math.MaxInt64} {
		c := ClockAt([]int64{ms, ms, ms})
		for _, ahead := range []time.Duration{0, math.MaxInt64} {
			if got := c.Bound(epoch, ahead); !ValidTime(got) || got.After(epoch) {
				t.Errorf("%d: %s", ms, got)
			}
		}
	}
}

func TestNearestTime(t *testing.T) {
	for _, ms := range []int64{math.MinInt64, math.MaxInt64, earliest - 1, latest + 1} {
		at := time.UnixMilli(ms)
		near := NearestTime(at)
		if _, err := near.MarshalJSON(); ValidTime(at) || !ValidTime(near) || err != nil {
			t.Errorf("%d: %s, %v", ms, near, err)
		}
	}
	for _, ms := range []int64{earliest, -1, 0, latest} {
		if at := time.UnixMilli(ms); !ValidTime(at) || !NearestTime(at).Equal(at) {
			t.Errorf("%d is no time", ms)
		}
	}
}
