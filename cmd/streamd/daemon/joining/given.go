package joining

import (
	"cmp"
	"errors"
	"slices"
)

// Given is the answer that a row was predicted with before its label came.
type Given struct {
	Label string // class that was answered
	Model string // fingerprint of the model that answered
}

// mostModel bounds a fingerprint, and mostLabel a class.
const (
	mostModel = 256
	mostLabel = 128
)

// Check says why no answer is like this.
func (g *Given) Check() error {
	if g.Label == "" || g.Model == "" || len(g.Label) > mostLabel || len(g.Model) > mostModel {
		return errors.New("it has no label, no model, or longer ones than there are")
	}
	return nil
}

// bytes is what an answer takes that no other row shares.
func (g *Given) bytes() int64 {
	if g == nil {
		return 0
	}
	return 64 + int64(len(g.Label)+len(g.Model))
}

// Pair is a class of rows, and the label that they were answered with.
type Pair struct{ Class, Answer string }

// GivenRows has the answers that were given for rows whose labels have come since. It is a function
// of the rows and labels that are joined, and does not depend on the order in which they came.
type GivenRows struct {
	Waiting int64 // rows with an answer, without a label that counts
	Rows    int64 // rows with an answer and a label
	Right   int64 // of these, those whose answer is their label
	Models  int   // models that gave the answers of these
	Pairs   []PairRows
}

// PairRows is the number of rows of a class that were answered with a label.
type PairRows struct {
	Pair
	Rows int64
}

// Given returns the answers that were given, with at most that many pairs, those of most rows
// first. It may be called from any goroutine.
func (t *Table) Given(most int) (r GivenRows) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r.Waiting, r.Models = t.given.waiting, len(t.given.models)
	for pair, n := range t.given.pairs {
		r.Rows += n
		if pair.Class == pair.Answer {
			r.Right += n
		}
		r.Pairs = append(r.Pairs, PairRows{pair, n})
	}
	slices.SortFunc(r.Pairs, func(a, b PairRows) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Answer, b.Answer))
	})
	r.Pairs = r.Pairs[:min(most, len(r.Pairs))]
	return r
}

// given counts the answers of the rows of a table.
type given struct {
	waiting int64
	pairs   map[Pair]int64
	models  map[string]int64
	last    map[string]*Given // the latest answer of each label
}

func newGiven() given {
	return given{pairs: map[Pair]int64{}, models: map[string]int64{}, last: map[string]*Given{}}
}

// shared is an equal answer in memory that rows share which the same model has answered alike.
func (g *given) shared(of *Given) *Given {
	if of == nil {
		return nil
	}
	last := g.last[of.Label]
	if last != nil && *last == *of {
		return last
	}
	if last != nil || len(g.last) < knownClasses {
		g.last[of.Label] = of
	}
	return of
}

// count adds n to the counts of an item's answer, if it has one.
func (g *given) count(it *item, n int64) {
	of := it.row.Given
	switch {
	case of == nil:
	case it.state == Joined:
		add(g.pairs, Pair{it.label.Class, of.Label}, n)
		add(g.models, of.Model, n)
	case it.state == Waiting:
		g.waiting += n
	}
}

// add adds n to a count. One of 0 is not kept.
func add[K comparable](to map[K]int64, of K, n int64) {
	if to[of] += n; to[of] == 0 {
		delete(to, of)
	}
}
