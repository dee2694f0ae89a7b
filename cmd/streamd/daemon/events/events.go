// Package events keeps the latest events of the daemon for those who follow them.
//
// Nothing is saved. An id names the process that the event belongs to, so that a reader who
// comes back after a restart gets all events since then, and none twice.
package events

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"streamd/cmd/streamd/httpapi"
)

// Kept is the number of events that are kept. A reader who is further behind misses some.
const Kept = 1000

// Log has the latest events. It is safe for concurrent use. Readers hold a position and no
// memory, so a slow reader costs nothing.
type Log struct {
	process string
	mu      sync.Mutex
	next    int64 // number of the next event, from 0
	kept    [Kept]httpapi.Event
	more    chan struct{} // closed by the next event
}

// New returns a log of a process that began at a time.
func New(began time.Time) *Log {
	return &Log{process: strconv.FormatInt(began.UnixMilli(), 36), more: make(chan struct{})}
}

// Add adds an event and gives it an id and, if it has none, the time of now.
func (l *Log) Add(e httpapi.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	e.ID = fmt.Sprintf("%s-%d", l.process, l.next)
	l.kept[l.next%Kept] = e
	l.next++
	close(l.more)
	l.more = make(chan struct{})
}

// After returns the events after the one with an id, and a channel that is closed once there
// are more. Without an id, or with that of another process, it returns all that are kept.
// missed is the number of events in between that are no longer kept.
func (l *Log) After(id string) (events []httpapi.Event, missed int64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := max(0, l.next-Kept)
	if process, text, ok := strings.Cut(id, "-"); ok && process == l.process {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 && n < l.next {
			missed = max(0, from-(n+1))
			from = max(from, n+1)
		}
	}
	for n := from; n < l.next; n++ {
		events = append(events, l.kept[n%Kept])
	}
	return events, missed, l.more
}
