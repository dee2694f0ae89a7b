package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
)

// EventType is the type of an event.
type EventType string

// The types of events.
const (
	EventAlarm      EventType = "alarm"      // a drift detector has found a change
	EventRetirement EventType = "retirement" // blocks were retired on request or by the control topic
	EventPartitions EventType = "partitions" // the topic has another number of partitions
	EventEpoch      EventType = "epoch"      // the live blocks are in other coordinates
	EventReceipt    EventType = "receipt"    // receipts were saved
	EventProblem    EventType = "problem"    // a problem has appeared or passed
	EventMissed     EventType = "missed"     // the client was too slow, and some events are gone
)

// Event is something that happened in the daemon. It names no block, key or label.
type Event struct {
	ID         string           `json:"-"`
	Time       time.Time        `json:"time"`                 // time when it happened
	Type       EventType        `json:"type"`                 // alarm, retirement, receipt, partitions, epoch, problem or missed, as in the line event
	Text       string           `json:"text"`                 // sentence about the event, for people to read
	Alarm      *model.Alarm     `json:"alarm,omitempty"`      // change that a drift detector has found
	Retirement *RetirementEvent `json:"retirement,omitempty"` // size of a retirement, and digests of the state
	Receipts   *ReceiptsEvent   `json:"receipts,omitempty"`   // receipts that were saved
	Partitions *int             `json:"partitions,omitempty"` // number of the topic's partitions
	Epoch      *uint32          `json:"epoch,omitempty"`      // number of the epoch in use, as in GET /v1/epoch
	Problem    *ProblemEvent    `json:"problem,omitempty"`    // problem that has appeared or passed
	Missed     int64            `json:"missed,omitempty"`     // number of events that the client has missed
}

// RetirementEvent is a retirement without the names of its blocks.
type RetirementEvent struct {
	Blocks       int    `json:"blocks"`              // number of blocks
	Rows         int64  `json:"rows"`                // number of their rows
	Archived     int    `json:"archived,omitempty"`  // number of them that were archived, and not live: the state does not have them
	DigestBefore string `json:"state_digest_before"` // digest of the state with the blocks
	DigestAfter  string `json:"state_digest_after"`  // digest of the state without them
}

// ReceiptsEvent is the receipts of one save.
type ReceiptsEvent struct {
	First  int64            `json:"first"`  // number of the first leaf, as in GET /v1/receipts/proof/{leaf}
	Size   int64            `json:"size"`   // number of leaves of the log with them
	Blocks map[string]int64 `json:"blocks"` // number of blocks of each kind of receipt: retired, deleted, expired and so on
}

// ProblemEvent is a problem that has appeared or passed.
type ProblemEvent struct {
	Kind    ProblemKind `json:"kind"`              // word to count by, as the label of streamd_problems
	Level   Level       `json:"level"`             // failure or warning
	Subject string      `json:"subject,omitempty"` // the job, witness or topic that it is about, where there are several
	Passed  bool        `json:"passed,omitempty"`  // whether it has passed, or was seen; absent: it has appeared
}

const (
	heartbeat = 15 * time.Second // longest silence, so that proxies keep the connection
	// A stream ends after this time, so that a token that was withdrawn reads no longer. The
	// client comes back by itself.
	longestStream = 10 * time.Minute
	retryStream   = 2 * time.Second
)

var eventsFollow = &parameter[bool]{
	name: "follow", kind: trueOrFalse, otherwise: true,
	meaning: "Whether to wait for more events. With `false` the stream ends behind the last one that there is.",
}

// events streams events (server-sent events of the HTML standard, section 9.2). A client has a
// position in the log and no queue. One that reads too slowly loses events and gets an event
// missed in their place. Its connection ends when a write takes longer than WriteTimeout.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return fail(CodeUnavailable, "%d clients follow the events already: try again later", cap(s.streams))
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // nginx
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	out := http.NewResponseController(w)
	send := func(text string) bool {
		extend(w, 0)
		if _, err := w.Write([]byte(text)); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !send(fmt.Sprintf("retry: %d\n\n", retryStream.Milliseconds())) {
		return nil
	}
	follow := eventsFollow.of(r)
	out.SetReadDeadline(time.Time{}) // an error means that the connection has none
	end := time.NewTimer(longestStream)
	defer end.Stop()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	last := r.Header.Get("Last-Event-ID")
	for {
		events, missed, more := s.service.Events(last)
		var text strings.Builder
		if missed > 0 {
			// A browser shows no comments to a script, so the gap is an event. It has no id: the
			// client's position stays that of the last event it has.
			events = slices.Insert(events, 0, Event{
				Time: time.Now().UTC(), Type: EventMissed, Missed: missed,
				Text: fmt.Sprintf("events that came faster than they were read, and are no longer kept: %d", missed),
			})
		}
		for _, e := range events {
			data, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("encode event %s: %w", e.ID, err)
			}
			if e.ID != "" {
				fmt.Fprintf(&text, "id: %s\n", e.ID)
				last = e.ID
			}
			fmt.Fprintf(&text, "event: %s\ndata: %s\n\n", e.Type, data)
		}
		if text.Len() > 0 && !send(text.String()) {
			return nil
		}
		if !follow {
			return nil
		}
		select {
		case <-more:
		case <-beat.C:
			if !send(":\n\n") {
				return nil
			}
		case <-end.C:
			return nil
		case <-s.stopping:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}
