package intake

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
)

// judge classifies rows by the served model before the model learns from them, and counts
// the correct ones: prequential evaluation (Dawid 1984; for streams Gama, Sebastião and
// Rodrigues 2013). Held-out folds measure a model on rows like the learned ones. This
// measures it on the rows that come now.
//
// Only a few rows of each task are judged, a range of a block that begins at a random
// row, since the rows of a class may lie together. A judge belongs to one worker, which
// adds credit for each task. Without credit it judges nothing.
type judge struct {
	credit  int // multiplications left to spend
	columns []gram.Column
	class   []int32
	values  []float64
	counts  []tally // by class code
}

// A task adds credit for taskCredit multiplications and judges at most taskJudged rows. For
// small models that is less than a percent of a task's time.
const (
	taskCredit = 1 << 16
	taskJudged = 128
)

// rows judges some rows of a block that was decoded for the live set's features.
func (j *judge) rows(b *incremental.Block, by *model.Served, record *prequential) {
	if j.credit == 0 || by.Model == nil {
		return
	}
	c := by.Classifier()
	planes := len(c.Model.Planes)
	each := len(b.Columns) * planes
	if c.Map != nil {
		each = c.Map.Work() + c.Map.Size()*planes
	}
	j.credit = min(j.credit, taskJudged*each)
	m := min(b.Rows(), j.credit/each)
	if m == 0 {
		return
	}
	j.credit -= m * each
	from := rand.IntN(b.Rows() - m + 1)
	j.columns = j.columns[:0]
	for _, column := range b.Columns {
		j.columns = append(j.columns, column.Slice(from, from+m))
	}
	j.class = slices.Grow(j.class[:0], m)[:m]
	j.values = slices.Grow(j.values[:0], m*planes)[:m*planes]
	c.Classify(j.class, j.values, j.columns)
	clear(j.columns) // no reference to the block is kept

	j.counts = slices.Grow(j.counts[:0], len(b.Classes))[:len(b.Classes)]
	clear(j.counts)
	for i, class := range j.class {
		code := b.Codes[from+i]
		if b.Weight(from+i) == 0 || b.Classes[code] == incremental.Unlabelled {
			continue // counts as absent, or cannot be judged
		}
		j.counts[code].rows++
		if b.Classes[code] == c.Model.Classes[class] {
			j.counts[code].right++
		}
	}
	record.add(b.Classes, j.counts)
}

// tally counts judged rows.
type tally struct{ rows, right int64 }

func (t *tally) add(n tally) {
	t.rows += n.rows
	t.right += n.right
}

// prequential counts all judgements since the start. It is safe for
// concurrent use.
type prequential struct {
	mu      sync.Mutex
	total   tally
	began   time.Time // start of the latest rows
	latest  int64     // number of the latest rows
	classes map[string]*classTally
}

// classTally is the latest rows of a class, and at least as many from before.
type classTally struct{ latest, before tally }

// The latest rows are at least this many, over at least this time.
const (
	latestRows = 10_000
	latestTime = time.Minute
)

// add counts rows by class. The caller may reuse the memory of the names.
func (p *prequential) add(classes []string, counts []tally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest >= latestRows && time.Since(p.began) >= latestTime {
		p.latest = 0
		for class, t := range p.classes {
			if t.latest.rows == 0 {
				delete(p.classes, class)
			}
			t.before, t.latest = t.latest, tally{}
		}
	}
	if p.latest == 0 {
		p.began = time.Now()
	}
	for c, n := range counts {
		if n.rows == 0 {
			continue
		}
		t := p.classes[classes[c]]
		if t == nil {
			if p.classes == nil {
				p.classes = map[string]*classTally{}
			}
			t = new(classTally)
			p.classes[strings.Clone(classes[c])] = t
		}
		t.latest.add(n)
		p.latest += n.rows
		p.total.add(n)
	}
}

// Prequential is the correctness of the served models on rows before they learned from
// them.
func (in *Intake) Prequential() model.Prequential { return in.prequential.answer() }

func (p *prequential) answer() model.Prequential {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := model.Prequential{Rows: p.total.rows, Right: p.total.right}
	var recent tally
	var shares float64 // sum of the classes' correctness
	for _, class := range slices.Sorted(maps.Keys(p.classes)) {
		n := p.classes[class].before
		n.add(p.classes[class].latest)
		recent.add(n)
		shares += float64(n.right) / float64(n.rows)
	}
	if recent.rows > 0 {
		a.Recent = recent.rows
		a.Correctness = float64(recent.right) / float64(recent.rows)
		a.BalancedCorrectness = shares / float64(len(p.classes))
	}
	return a
}
