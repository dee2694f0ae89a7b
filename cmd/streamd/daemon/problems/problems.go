// Package problems keeps what the operator should know, from when it appears until it passes.
//
// A condition is a problem while it holds: whoever knows a condition reports at every look all
// that hold then. An occurrence has happened, and is over: it stays until it is resolved, or the
// operator has seen it. Both are logged and told as an event when they appear and when they pass.
package problems

import (
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
// has a Since keeps it.
func (b *Board) Hold(from Source, now time.Time, hold []httpapi.Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := &b.conditions[from]
	if len(hold) == 0 && len(*all) == 0 {
		return
	}
	held := len(*all)
	for _, p := range hold {
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
		*all = append(*all, condition{Problem: p})
		b.appeared(&p)
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
// counts are added, and the texts are those of the latest.
func (b *Board) Raise(p httpapi.Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Last.IsZero() {
		p.Last = time.Now()
	}
	if p.Since.IsZero() {
		p.Since = p.Last
	}
	for i := range b.occurrences {
		if o := &b.occurrences[i]; same(o, &p) {
			p.Since, p.Count = o.Since, o.Count+p.Count
			*o = p
			return
		}
	}
	b.occurrences = append(b.occurrences, p)
	b.appeared(&p)
}

// Resolve ends an occurrence that has passed, if there is one.
func (b *Board) Resolve(kind httpapi.ProblemKind, subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := httpapi.Problem{Kind: kind, Subject: subject}
	b.end("it has passed", func(o *httpapi.Problem) bool { return same(o, &is) })
}

// Seen ends the occurrences that happened last at or before a time: the operator has seen them.
// It returns their number.
func (b *Board) Seen(until time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.end("it has been seen", func(o *httpapi.Problem) bool { return !o.Last.After(until) })
}

func (b *Board) end(why string, which func(*httpapi.Problem) bool) int {
	before := len(b.occurrences)
	b.occurrences = slices.DeleteFunc(b.occurrences, func(o httpapi.Problem) bool {
		ends := which(&o)
		if ends {
			b.passed(&o, why)
		}
		return ends
	})
	return before - len(b.occurrences)
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

func (b *Board) appeared(p *httpapi.Problem) {
	line := b.log.Warn()
	if p.Level() == httpapi.LevelFailure {
		line = b.log.Error()
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
