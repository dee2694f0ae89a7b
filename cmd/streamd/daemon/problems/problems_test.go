package problems

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/httpapi"
)

var start = time.UnixMilli(1_700_000_000_000)

type board struct {
	*Board
	log    bytes.Buffer
	events []httpapi.Event
}

func newBoard() *board {
	b := new(board)
	b.Board = New(zerolog.New(&b.log), func(e httpapi.Event) { b.events = append(b.events, e) })
	return b
}

// check compares the kinds and subjects of the present problems, and the number of lines.
func (b *board) check(t *testing.T, lines int, want ...string) {
	t.Helper()
	var got []string
	for _, p := range b.Present() {
		got = append(got, strings.TrimSpace(string(p.Kind)+" "+p.Subject))
	}
	if !slices.Equal(got, want) {
		t.Errorf("present are %q, want %q", got, want)
	}
	if n := strings.Count(b.log.String(), "\n"); n != lines || len(b.events) != lines {
		t.Errorf("%d lines and %d events, want %d:\n%s", n, len(b.events), lines, &b.log)
	}
}

// A condition is present while it holds. It is logged once when it appears and once when it has
// not held for a while. The gravest comes first.
func TestConditions(t *testing.T) {
	b, witness, save := newBoard(), httpapi.Problem{Kind: httpapi.ProblemWitness, Subject: "w", Text: "w"}, httpapi.Problem{Kind: httpapi.ProblemSave, Text: "s", Detail: "secret"}
	b.Hold(Loop, start, nil)
	b.check(t, 0)
	b.Hold(Outside, start, []httpapi.Problem{witness})
	b.Hold(Loop, start.Add(time.Second), []httpapi.Problem{save})
	b.check(t, 2, "save", "witness w")
	for i := range 30 { // it comes and goes
		b.Hold(Loop, start.Add(time.Duration(i)*time.Second), []httpapi.Problem{save}[:i%2])
	}
	b.check(t, 2, "save", "witness w")
	if p := b.Present()[0]; !p.Since.Equal(start.Add(time.Second)) || p.String() != "s: secret; "+httpapi.ProblemSave.Action() {
		t.Errorf("%+v", p)
	}
	b.Hold(Loop, start.Add(30*time.Second), nil)
	b.check(t, 2, "witness w") // gone at once
	b.Hold(Loop, start.Add(30*time.Second+settles-1), nil)
	b.check(t, 2, "witness w")
	b.Hold(Loop, start.Add(30*time.Second+settles), nil)
	b.check(t, 3, "witness w")
	if e := b.events[2]; e.Type != httpapi.EventProblem || !e.Problem.Passed || e.Problem.Kind != httpapi.ProblemSave {
		t.Errorf("%+v", e)
	}
	b.Hold(Loop, start.Add(time.Minute), []httpapi.Problem{save})
	if p := b.Present()[0]; !p.Since.Equal(start.Add(time.Minute)) {
		t.Errorf("a new problem has an old beginning: %v", p.Since)
	}
	b.Seen(start.Add(time.Hour))
	b.check(t, 4, "save", "witness w") // they still hold
	if strings.Contains(b.log.String(), "secret") || slices.ContainsFunc(b.events, func(e httpapi.Event) bool { return strings.Contains(e.Text, "secret") }) {
		t.Error("names are in the log or in events")
	}
}

// An occurrence stays until it is resolved or seen, and later ones of its kind join it. What
// happens after a look has not been seen.
func TestOccurrences(t *testing.T) {
	b := newBoard()
	raise := func(kind httpapi.ProblemKind, subject string, seconds int, count int64) {
		b.Raise(httpapi.Problem{Kind: kind, Subject: subject, Count: count, Last: start.Add(time.Duration(seconds) * time.Second)}, func(n int64) string { return fmt.Sprint(n, " of it") })
	}
	raise(httpapi.ProblemJob, "solve", 1, 1)
	raise(httpapi.ProblemGap, "", 2, 5)
	raise(httpapi.ProblemJob, "study", 3, 1)
	raise(httpapi.ProblemGap, "", 4, 7)
	b.check(t, 3, "gap", "job solve", "job study")
	if p := b.Present()[0]; p.Count != 12 || p.Text != "12 of it" || !p.Since.Equal(start.Add(2*time.Second)) || !p.Last.Equal(start.Add(4*time.Second)) {
		t.Errorf("%+v", p)
	}
	b.Hold(Loop, start.Add(time.Hour), nil)
	b.Resolve(httpapi.ProblemJob, "solve")
	b.Resolve(httpapi.ProblemJob, "solve")
	b.check(t, 4, "gap", "job study")
	b.Seen(start.Add(3 * time.Second)) // the gap went on
	b.check(t, 5, "gap")
	b.Seen(start.Add(4 * time.Second))
	b.check(t, 6)
	raise(httpapi.ProblemGap, "", 5, 1)
	if p := b.Present()[0]; p.Count != 1 {
		t.Errorf("a new gap: %+v", p)
	}
}

// Every problem says what to do, however it was reported. One's own advice comes first.
func TestEachSaysWhatToDo(t *testing.T) {
	b := newBoard()
	b.Hold(Loop, start, []httpapi.Problem{{Kind: httpapi.ProblemBasis, Text: "b"}, {Kind: httpapi.ProblemBasis, Subject: "own", Text: "b", Action: "own"}})
	b.Raise(httpapi.Problem{Kind: httpapi.ProblemGap, Text: "g"}, nil)
	b.Raise(httpapi.Problem{Kind: httpapi.ProblemGap, Text: "g"}, nil)
	var got []string
	for _, p := range b.Present() {
		got = append(got, p.Action)
	}
	if want := []string{httpapi.ProblemGap.Action(), httpapi.ProblemBasis.Action(), "own"}; !slices.Equal(got, want) || want[0] == "" {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A condition that says when it happened last can be seen, and is back when it happens again.
func TestConditionsThatAreSeen(t *testing.T) {
	b := newBoard()
	hold := func(last int) {
		b.Hold(Loop, start.Add(time.Minute), []httpapi.Problem{{Kind: httpapi.ProblemRefused, Text: "r", Since: start, Last: start.Add(time.Duration(last) * time.Second)}})
	}
	hold(1)
	b.check(t, 1, "refused")
	b.Seen(start.Add(time.Second))
	b.check(t, 2)
	hold(1)
	b.check(t, 2)
	hold(2)
	b.check(t, 3, "refused")
}

// What can be seen survives a restart, without names, and what has been seen stays so.
func TestRecord(t *testing.T) {
	a := newBoard()
	a.Raise(httpapi.Problem{Kind: httpapi.ProblemGap, Text: "old", Last: start}, nil)
	a.Seen(start)
	a.Raise(httpapi.Problem{Kind: httpapi.ProblemDrift, Subject: "error", Text: "d", Detail: "secret", Lasting: "kept", Count: 3, Last: start.Add(time.Second)}, nil)
	a.Raise(httpapi.Problem{Kind: httpapi.ProblemJob, Subject: "solve", Text: "j", Last: start.Add(time.Second)}, nil)
	a.Hold(Loop, start, []httpapi.Problem{
		{Kind: httpapi.ProblemSave, Text: "s"}, // found again, if it still holds
		{Kind: httpapi.ProblemRefused, Text: "r", Since: start, Last: start.Add(2 * time.Second)},
	})
	record, err := a.Record()
	if err != nil || bytes.Contains(record, []byte("secret")) {
		t.Fatalf("%v: %s", err, record)
	}
	b := newBoard()
	if err := b.Restore(record); err != nil {
		t.Fatal(err)
	}
	b.check(t, 0, "refused", "drift error")
	b.Hold(Loop, start.Add(time.Minute), []httpapi.Problem{
		{Kind: httpapi.ProblemGap, Text: "g", Last: start}, // was seen
		{Kind: httpapi.ProblemRefused, Text: "r", Since: start.Add(time.Minute), Last: start.Add(time.Minute)},
	})
	b.check(t, 0, "refused", "drift error")
	if p := b.Present()[0]; !p.Since.Equal(start) {
		t.Errorf("refused since %v", p.Since)
	}
	if again, err := b.Record(); err != nil || !bytes.Contains(again, []byte(`"kept"`)) || bytes.Contains(again, []byte("secret")) {
		t.Errorf("after two restarts: %v, %s", err, again)
	}
	if p := b.Present()[1]; p.Detail != "kept" || p.Action != httpapi.ProblemDrift.Action() {
		t.Errorf("%+v", p)
	}
	if err := b.Restore([]byte(`{"problems":[{"kind":"unknown","last":"2026-01-02T03:04:05Z"},{"kind":"save"}]}`)); err != nil || len(b.occurrences) != 0 {
		t.Errorf("%v, %v", err, b.occurrences)
	}
	if b.Restore([]byte("{")) == nil {
		t.Error("no error")
	}
}
