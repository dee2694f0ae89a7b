package httpapi

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// follow begins to follow the events of a whole server and returns a function that reads up to
// the next empty line. It runs on a fake clock.
func follow(t *testing.T, f *fake, query, last string) (next func() string, stop func()) {
	t.Helper()
	listener := newPipes()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- newServer(f).Serve(ctx, listener) }()
	r, err := http.NewRequest("GET", "http://streamd/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	client := listener.client()
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if w.StatusCode != 200 || w.Header.Get("Content-Type") != "text/event-stream" || w.Header.Get("Content-Encoding") != "" {
		t.Fatalf("status %d, %v", w.StatusCode, w.Header)
	}
	t.Cleanup(func() {
		w.Body.Close()
		client.CloseIdleConnections()
	})
	lines := bufio.NewReader(w.Body)
	next = func() string {
		var all strings.Builder
		for {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				return "the end"
			}
			if err != nil {
				t.Fatal(err)
			}
			if line == "\n" {
				return all.String()
			}
			all.WriteString(line)
		}
	}
	return next, func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// tell adds an event and wakes those who wait.
func (f *fake) tell(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, Event{ID: id, Time: testTime, Type: EventAlarm, Text: "a\nb"})
	close(f.replaced)
	f.replaced = make(chan struct{})
}

const (
	firstEvent  = "id: p-0\nevent: epoch\ndata: {\"time\":\"2026-03-04T05:06:07.0000008Z\",\"type\":\"epoch\",\"text\":\"epoch 3 is in use\",\"epoch\":3}\n"
	secondEvent = "id: p-1\nevent: alarm\ndata: {\"time\":\"2026-03-04T05:06:07.0000008Z\",\"type\":\"alarm\",\"text\":\"a\\nb\"}\n"
	// The fake clock begins at this time. There is no id.
	missedEvent = "event: missed\ndata: {\"time\":\"2000-01-01T00:00:00Z\",\"type\":\"missed\",\"text\":\"events that came faster than they were read, and are no longer kept: 7\",\"missed\":7}\n"
)

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}

// Those that are kept come at once, then each as it happens. In between there are comments. A
// stream is longer than the deadlines of a request, and ends all the same.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		began := time.Now()
		next, stop := follow(t, f, "", "")
		expect(t, next(), "retry: 2000\n")
		expect(t, next(), firstEvent)
		for range 4 {
			expect(t, next(), ":\n")
		}
		if took := time.Since(began); took != 4*heartbeat {
			t.Errorf("four comments after %v", took)
		}
		f.tell("p-1")
		expect(t, next(), secondEvent)
		if took := time.Since(began); took != 4*heartbeat {
			t.Errorf("the event came after %v", took)
		}
		text := ""
		for text != "the end" {
			text = next()
		}
		if took := time.Since(began); took != longestStream {
			t.Errorf("the stream ended after %v", took)
		}
		stop()
	})
}

// A client that comes back says what it has. If some are gone, an event
// says how many. A stop ends the stream at once.
func TestEventsGoOn(t *testing.T) {
	for last, want := range map[string][]string{
		"p-0":      {secondEvent},
		"p-1":      nil,
		"other":    {firstEvent, secondEvent},
		"long-ago": {missedEvent, firstEvent, secondEvent},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.tell("p-1")
			next, stop := follow(t, f, "", last)
			expect(t, next(), "retry: 2000\n")
			for _, text := range want {
				expect(t, next(), text)
			}
			began, stopped := time.Now(), make(chan struct{})
			go func() {
				stop()
				close(stopped)
			}()
			expect(t, next(), "the end")
			if took := time.Since(began); took != 0 {
				t.Errorf("the stream ended %v after the stop", took)
			}
			<-stopped
		})
	}
}

// A client that does not follow gets those that are kept, and then the end.
func TestEventsUntilNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.tell("p-1")
		began := time.Now()
		next, stop := follow(t, f, "?follow=false", "p-0")
		expect(t, next(), "retry: 2000\n")
		expect(t, next(), secondEvent)
		expect(t, next(), "the end")
		if took := time.Since(began); took != 0 {
			t.Errorf("the stream ended after %v", took)
		}
		stop()
	})
}
