package intake

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/drift"
	"streamd/incremental/gram"
	"streamd/incremental/prequential"
)

// judge classifies rows by the served model before the model learns from them: prequential
// evaluation (package prequential). Held-out folds measure a model on rows like the learned
// ones. This measures it on the rows that come now.
//
// Only a few rows of each task are judged. They are spread over the block and taken in random
// order, since the rows of a class may lie together, which would look like a change. A judge
// belongs to one worker, which adds credit for each task. Without credit it judges nothing.
type judge struct {
	credit  int // multiplications left to spend
	at      []int
	numbers []float64
	columns []gram.Column
	class   []int32
	values  []float64
	rulings []ruling
}

// ruling is the outcome for one row.
type ruling struct {
	class, answer int32   // of the model's; class −1: one that it does not have
	loss          float64 // see prequential.SquaredError
}

// A task adds credit for taskCredit multiplications and judges at most taskJudged rows. For
// small models that is less than a percent of a task's time.
const (
	taskCredit = 1 << 16
	taskJudged = 128
)

// rows judges some rows of a block that was decoded for the live set's features.
func (j *judge) rows(b *incremental.Block, by *model.Served, to *record) {
	if j.credit == 0 || by.Model == nil || b.Rows() == 0 {
		return
	}
	c := by.Classifier()
	planes := len(c.Model.Planes)
	each := len(b.Columns) * planes
	if c.Map != nil {
		each = c.Map.Points() * (len(b.Columns) + planes)
	}
	j.credit = min(j.credit, taskJudged*each)
	m := min(b.Rows(), j.credit/each)
	if m == 0 {
		return
	}
	j.credit -= m * each
	j.take(b, m)
	j.class = slices.Grow(j.class[:0], m)[:m]
	j.values = slices.Grow(j.values[:0], m*planes)[:m*planes]
	c.Classify(j.class, j.values, j.columns)

	of := b.ClassesIn(c.Model.Classes)
	j.rulings = j.rulings[:0]
	for i, row := range j.at {
		code := b.Codes[row]
		if b.Weight(row) == 0 || b.Classes[code] == incremental.Unlabelled {
			continue // counts as absent, or cannot be judged
		}
		r := ruling{class: int32(of[code]), answer: j.class[i]}
		r.loss = prequential.SquaredError(j.values[i*planes:(i+1)*planes], r.class)
		j.rulings = append(j.rulings, r)
	}
	to.add(c, j.rulings)
}

// take copies m rows of a block into columns.
func (j *judge) take(b *incremental.Block, m int) {
	j.at = slices.Grow(j.at[:0], m)[:m]
	offset := rand.IntN(b.Rows())
	for i := range j.at {
		j.at[i] = (i*b.Rows() + offset) / m
	}
	rand.Shuffle(m, func(a, b int) { j.at[a], j.at[b] = j.at[b], j.at[a] })
	j.numbers = slices.Grow(j.numbers[:0], m*len(b.Columns))[:m*len(b.Columns)]
	j.columns = j.columns[:0]
	for k, column := range b.Columns {
		to := j.numbers[k*m : (k+1)*m]
		for i, row := range j.at {
			to[i] = column.At(row)
		}
		j.columns = append(j.columns, gram.ColumnOf(to))
	}
}

// record has the judgements of all workers since the start. It is safe for concurrent use.
type record struct {
	mu     sync.Mutex
	all    prequential.Evaluation
	rule   decision.Kind // of the latest answers
	began  time.Time     // start of the latest half of the window
	halved int64         // rows before it

	errors  *drift.ADWIN   // nil: off
	changes []drift.Change // that nobody has taken yet
}

// DriftDelta is δ of the drift detectors, that of MOA and River.
const DriftDelta = 0.002

// mostChanges bounds the changes that wait to be taken; there is one in 32 rows at most.
const mostChanges = 100

// A half of the window has at least this many rows, over at least this time.
const (
	latestRows = 10_000
	latestTime = time.Minute
)

// add adds the rulings on a classifier's answers.
func (p *record) add(c *model.Classifier, rulings []ruling) {
	if len(rulings) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.SetClasses(c.Model.Classes)
	p.rule = c.DecidesBy().Kind()
	rows, _ := p.all.Totals()
	if rows-p.halved >= latestRows && time.Since(p.began) >= latestTime {
		p.all.Turn()
		p.halved = rows
	}
	if rows == p.halved {
		p.began = time.Now()
	}
	for _, r := range rulings {
		p.all.Add(r.class, r.answer, r.loss)
		if p.errors == nil {
			continue
		}
		wrong := 0.
		if r.class != r.answer {
			wrong = 1
		}
		if c, changed := p.errors.Add(wrong); changed && len(p.changes) < mostChanges {
			p.changes = append(p.changes, c)
		}
	}
}

// Prequential reports the answers of the served models for rows before they learned from
// them. It forgets the figures of labels that the model of now does not have: the rows of such
// a label may have been retired.
func (in *Intake) Prequential() model.Prequential {
	var classes []string
	if m := in.Served(in.Live.Target().Features).Model; m != nil {
		classes = m.Classes
	}
	return in.record.answer(classes)
}

// TakeChanges returns the changes in the share of judged rows that are wrong since the last
// call.
func (in *Intake) TakeChanges() []drift.Change {
	p := &in.record
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.changes
	p.changes = nil
	return taken
}

// Errors returns the number of judged rows since the last change, and the share of them that
// is wrong. It is NaN if there is none.
func (in *Intake) Errors() (rows int64, share float64) {
	p := &in.record
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errors.Window()
}

// answer reports the figures for classes.
func (p *record) answer(classes []string) (a model.Prequential) {
	p.mu.Lock()
	p.all.SetClasses(classes)
	window, fading := p.all.Window(), p.all.Fading()
	rule := p.rule
	a.Rows, a.Right = p.all.Totals()
	p.mu.Unlock()
	stretch := func(f prequential.Figures) *model.Stretch {
		if f.Matrix == nil || f.Matrix.Figures().Weight == 0 {
			return nil
		}
		return model.NewStretch(rule, classes, f)
	}
	a.Window, a.Fading = stretch(window), stretch(fading)
	return a
}
