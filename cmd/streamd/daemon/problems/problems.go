// Package problems keeps what the operator should know, from when it appears until it passes.
//
// A condition is a problem while it holds: whoever knows a condition reports at every look all
// that hold then. An occurrence has happened, and is over: it stays until it is resolved, or the
// operator has seen it. A condition with a Last is seen likewise, until it happens once more. All
// are logged and told as an event when they appear and when they pass. What can be seen survives a
// restart (Record).
package problems

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/httpapi"
)

// settles is how long a condition must not hold before it has passed. One that comes back sooner
// is the same problem: it has its old beginning, and no second line in the log.
const settles = 10 * time.Second

// Source is one of those who report conditions.
type Source int

// The sources.
const (
	Loop    Source = iota // the daemon's loop
	Outside               // what the loop does not own: the consumer, the witnesses
	sources
)

// Board has the present problems. It is safe for concurrent use.
type Board struct {
	log  zerolog.Logger
	tell func(httpapi.Event)

	mu          sync.Mutex
	seen        time.Time // what has happened last up to this time has been seen
	conditions  [sources][]condition
	occurrences []httpapi.Problem
}

type condition struct {
	httpapi.Problem
	ended time.Time // when it was found not to hold any more; zero: it holds
}

// New returns a board without problems. tell is told of what appears and passes.
func New(log zerolog.Logger, tell func(httpapi.Event)) *Board { return &Board{log: log, tell: tell} }

func same(a, b *httpapi.Problem) bool { return a.Kind == b.Kind && a.Subject == b.Subject }

// Hold reports the conditions of a source that hold now, and ends its others. A condition that
// has a Since keeps it. One without an Action has that of its kind.
func (b *Board) Hold(from Source, now time.Time, hold []httpapi.Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := &b.conditions[from]
	if len(hold) == 0 && len(*all) == 0 {
		return
	}
	held := len(*all)
	hold = slices.DeleteFunc(hold, b.isSeen)
	for _, p := range hold {
		p.Action = cmp.Or(p.Action, p.Kind.Action())
		i := slices.IndexFunc(*all, func(c condition) bool { return same(&c.Problem, &p) })
		if i >= 0 && p.Since.IsZero() {
			p.Since = (*all)[i].Since
		} else if p.Since.IsZero() {
			p.Since = now
		}
		if i >= 0 {
			(*all)[i] = condition{Problem: p}
			continue
		}
		if o := slices.IndexFunc(b.occurrences, func(o httpapi.Problem) bool { return same(&o, &p) }); o >= 0 { // before a restart
			p.Since = b.occurrences[o].Since
			b.occurrences = slices.Delete(b.occurrences, o, o+1)
		} else {
			b.appeared(&p)
		}
		*all = append(*all, condition{Problem: p})
	}
	for i := range (*all)[:held] {
		c := &(*all)[i]
		if c.ended.IsZero() && !slices.ContainsFunc(hold, func(p httpapi.Problem) bool { return same(&c.Problem, &p) }) {
			c.ended = now
		}
	}
	*all = slices.DeleteFunc(*all, func(c condition) bool {
		over := !c.ended.IsZero() && now.Sub(c.ended) >= settles
		if over {
			b.passed(&c.Problem, "it has passed")
		}
		return over
	})
}

// Raise reports an occurrence. Another one of the same kind and subject joins the first: their
// counts are added, and the texts are those of the latest. says makes the text of the sum of the
// counts; nil: the problem has its text. Without an Action it has that of its kind.
//
// It reports whether the problem is new, and so whether it has been logged.
func (b *Board) Raise(p httpapi.Problem, says func(count int64) string) (appeared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.Action = cmp.Or(p.Action, p.Kind.Action())
	if p.Last.IsZero() {
		p.Last = time.Now()
	}
	if p.Since.IsZero() {
		p.Since = p.Last
	}
	for i := range b.occurrences {
		if o := &b.occurrences[i]; same(o, &p) {
			p.Since, p.Count = o.Since, o.Count+p.Count
			if says != nil {
				p.Text = says(p.Count)
			}
			*o = p
			return false
		}
	}
	if says != nil {
		p.Text = says(p.Count)
	}
	b.occurrences = append(b.occurrences, p)
	b.appeared(&p)
	return true
}

// Resolve ends an occurrence that has passed, if there is one.
func (b *Board) Resolve(kind httpapi.ProblemKind, subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := httpapi.Problem{Kind: kind, Subject: subject}
	b.end("it has passed", func(o *httpapi.Problem) bool { return same(o, &is) })
}

// Seen ends what has happened last at or before a time: the operator has seen it.
func (b *Board) Seen(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until.After(b.seen) {
		b.seen = until
	}
	const why = "it has been seen"
	b.end(why, func(o *httpapi.Problem) bool { return b.isSeen(*o) })
	for from := range b.conditions {
		b.conditions[from] = slices.DeleteFunc(b.conditions[from], func(c condition) bool {
			seen := b.isSeen(c.Problem)
			if seen {
				b.passed(&c.Problem, why)
			}
			return seen
		})
	}
}

func (b *Board) isSeen(p httpapi.Problem) bool { return !p.Last.IsZero() && !p.Last.After(b.seen) }

func (b *Board) end(why string, which func(*httpapi.Problem) bool) {
	b.occurrences = slices.DeleteFunc(b.occurrences, func(o httpapi.Problem) bool {
		ends := which(&o)
		if ends {
			b.passed(&o, why)
		}
		return ends
	})
}

// Present returns the problems of now, the gravest first. The caller owns them.
func (b *Board) Present() []httpapi.Problem {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.occurrences)
	for _, conditions := range b.conditions {
		for _, c := range conditions {
			if c.ended.IsZero() {
				all = append(all, c.Problem)
			}
		}
	}
	httpapi.SortProblems(all)
	return all
}

// record is what survives a restart, where the details are the lasting ones. It names no block, key
// or label.
type record struct {
	Seen     time.Time         `json:"seen"`
	Problems []httpapi.Problem `json:"problems"`
}

// Record encodes what can be seen, and what has been.
func (b *Board) Record() ([]byte, error) {
	r := record{Problems: []httpapi.Problem{}}
	for _, p := range b.Present() {
		if !p.Last.IsZero() && p.Kind != httpapi.ProblemJob { // a start begins all jobs anew
			p.Detail = p.Lasting
			r.Problems = append(r.Problems, p)
		}
	}
	b.mu.Lock()
	r.Seen = b.seen
	b.mu.Unlock()
	return json.Marshal(r)
}

// Restore continues a record. The problems stay until they are resolved, seen, or a condition
// again.
func (b *Board) Restore(text []byte) error {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = r.Seen
	for i := range r.Problems {
		r.Problems[i].Lasting = r.Problems[i].Detail
	}
	b.occurrences = slices.DeleteFunc(r.Problems, func(p httpapi.Problem) bool { return !p.Kind.Known() || p.Last.IsZero() })
	return nil
}

func (b *Board) appeared(p *httpapi.Problem) {
	line := b.log.Warn()
	switch p.Level() {
	case httpapi.LevelFailure:
		line = b.log.Error()
	case httpapi.LevelHint:
		line = b.log.Info()
	}
	line.Str("problem", string(p.Kind))
	if p.Subject != "" {
		line.Str("subject", p.Subject)
	}
	if p.Count > 0 {
		line.Int64("count", p.Count)
	}
	line.Msg(p.Text)
	b.tell(httpapi.Event{Type: httpapi.EventProblem, Text: p.Text, Problem: &httpapi.ProblemEvent{Kind: p.Kind, Level: p.Level(), Subject: p.Subject}})
}

func (b *Board) passed(p *httpapi.Problem, why string) {
	b.log.Info().Str("problem", string(p.Kind)).Time("since", p.Since).Msg(why + ": " + p.Text)
	b.tell(httpapi.Event{Type: httpapi.EventProblem, Text: why + ": " + p.Text, Problem: &httpapi.ProblemEvent{Kind: p.Kind, Level: p.Level(), Subject: p.Subject, Passed: true}})
}
