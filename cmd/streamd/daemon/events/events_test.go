package events

import (
	"fmt"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
)

var began = time.UnixMilli(1_700_000_000_000)

func add(l *Log, from, to int) {
	for i := from; i < to; i++ {
		l.Add(httpapi.Event{Text: fmt.Sprint(i)})
	}
}

// check compares the texts after an id with those of the numbers from to to.
func check(t *testing.T, l *Log, id string, from, to int, missed int64) {
	t.Helper()
	events, gone, _ := l.After(id)
	if len(events) != to-from || gone != missed {
		t.Fatalf("after %q %d events, %d missed; want %d, %d missed", id, len(events), gone, to-from, missed)
	}
	for i, e := range events {
		if e.Text != fmt.Sprint(from+i) || e.Time.IsZero() {
			t.Fatalf("after %q event %d is %+v", id, from+i, e)
		}
	}
}

// A reader gets each event once, whatever it has read before.
func TestReadersGoOn(t *testing.T) {
	l := New(began)
	check(t, l, "", 0, 0, 0)
	add(l, 0, 5)
	all, _, _ := l.After("")
	check(t, l, "", 0, 5, 0)
	check(t, l, all[2].ID, 3, 5, 0)
	check(t, l, all[4].ID, 5, 5, 0)
	add(l, 5, Kept+4)
	check(t, l, all[4].ID, 5, Kept+4, 0)
	check(t, l, all[2].ID, 4, Kept+4, 1)
	check(t, l, "", 4, Kept+4, 0)
}

// An id that this process has not given is that of another, or a mistake: nothing is skipped.
func TestIDsOfOthers(t *testing.T) {
	l := New(began)
	add(l, 0, 3)
	other := New(began.Add(time.Second))
	add(other, 0, 2)
	events, _, _ := other.After("")
	own, _, _ := l.After("")
	for _, id := range []string{events[1].ID, "x", "-", "-1", own[0].ID[:len(own[0].ID)-1] + "-1", own[0].ID + "x"} {
		check(t, l, id, 0, 3, 0)
	}
}

// A reader that waits is woken by the next event.
func TestMoreIsClosed(t *testing.T) {
	l := New(began)
	_, _, more := l.After("")
	select {
	case <-more:
		t.Fatal("there is no event")
	default:
	}
	add(l, 0, 1)
	<-more
	_, _, more = l.After("")
	select {
	case <-more:
		t.Fatal("there is no other event")
	default:
	}
}
