package config

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "17": 17, "17B": 17, "8MiB": 8 << 20, "64KB": 64000, "1 GiB": 1 << 30, "2gb": 2e9, "3kib": 3072,
		"9223372036854775807": math.MaxInt64,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B", "MiB", "-1", "1.5MiB", "8Mi", "8 M", "0x10", "1_000", "007", "9223372036854775808", "9007199254740992KiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		want := Size(rapid.Int64Range(0, math.MaxInt64>>30).Draw(rt, "n") << rapid.IntRange(0, 30).Draw(rt, "shift"))
		if got, err := parseSize(want.String()); err != nil || got != want {
			rt.Errorf("%d is written %s and read %d, %v", want, want, got, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second, "7d": 7 * day, "1d12h": 36 * time.Hour,
		"-1s": -time.Second, "106751d": 106751 * day,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "d", "1.5d", "-1d", "1d-1h", "1h1d", "1d 2h", "106752d", "106751d24h", "1dd"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
		24 * time.Hour: "1d", 10 * time.Second: "10s", 10 * time.Minute: "10m", 1500 * time.Millisecond: "1.5s",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Second, time.Minute, time.Hour, day}).Draw(rt, "unit")
		want := unit * time.Duration(rapid.Int64Range(0, int64(math.MaxInt64/unit)).Draw(rt, "n"))
		if got, err := parseDuration(FormatDuration(want)); err != nil || got != want {
			rt.Errorf("%d is written %s and read %d, %v", want, FormatDuration(want), got, err)
		}
	})
}
