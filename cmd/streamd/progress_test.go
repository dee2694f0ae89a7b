package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAdvanceDescribe(t *testing.T) {
	for _, c := range []struct {
		advance
		took time.Duration
		want string
	}{
		{advance{rows: 500_000, done: 0.25}, 2 * time.Second, "learning: 25 %, 500 k rows, 250 k rows/s, 6s left"},
		{advance{rows: 3_000_000_000, bytes: 6e9}, time.Minute, "learning: 3 G rows, 50 M rows/s, 100.0 MB/s"},
		{advance{rows: 7, done: 1}, time.Second, "learning: 100 %, 7 rows, 7 rows/s"},
		{advance{rows: 7, awaits: "group g"}, time.Second, "learning: 7 rows, 7 rows/s, waiting for group g"},
	} {
		if got := c.describe("learning", c.took); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Without a terminal there is a plain line every few seconds, and none for short work.
func TestWatchWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		s := &surroundings{stderr: &log}
		stop := s.watch("short work", func() advance { return advance{} })
		time.Sleep(logInterval - 1)
		stop()
		stop()
		if log.String() != "" {
			t.Errorf("short work: %q", log.String())
		}
		stop = s.watch("long work", func() advance { return advance{rows: 10} })
		time.Sleep(2*logInterval + 1)
		stop()
		if got := log.String(); strings.Count(got, "\n") != 2 || strings.ContainsAny(got, "\r\x1b") {
			t.Errorf("long work: %q", got)
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}
