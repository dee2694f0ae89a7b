package intake

import (
	"encoding/json"
	"errors"
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
// Of a block with more rows than the allowance pays for, the judged rows are spread over the
// block. They are taken in an order that the block's position decides alone, since the rows of a
// class may lie together, which would look like a change. A judge belongs to one worker.
type judge struct {
	at      []int32
	numbers []float64
	columns []gram.Column
	class   []int32
	values  []float64
	seed    rand.PCG
	random  *rand.Rand        // of seed
	served  *model.Served     // the last one
	by      *model.Classifier // of it
}

// judgement is the outcome for the judged rows of a record. The loop adds it to the record of
// judgements when it applies the rows, so that judgements come in the order of the log, and once.
type judgement struct {
	by      *model.Classifier
	rulings []ruling
	opens   int   // place of the ruling whose row before is in an earlier record (see follow); −1: none
	behind  int64 // records of the partition between those that the model had and this one
}

// ruling is the outcome for one row.
type ruling struct {
	class, answer int32   // of the model's; class −1: one that it does not have
	loss          float64 // see prequential.SquaredError; of a given answer there is none
	repeats       bool    // the row has the label of the row before it in the log
	given         bool    // the answer was given before the label came, and is not one of by
}

// allowance bounds the work of all judges to some two percent of a processor. All rows are judged
// of a stream of up to a hundred thousand rows a second and ten features, and some of each block of
// a faster one. It is safe for concurrent use.
type allowance struct {
	mu     sync.Mutex
	credit int // operations of about a nanosecond
	raised time.Time
}

const (
	secondCredit = 1 << 24          // that a second adds
	mostCredit   = secondCredit / 2 // that is kept for a block
	judgedCall   = 512              // operations of a record
	judgedRow    = 128              // operations of a row beside its multiplications
	pieceNumbers = 1 << 16          // bounds the numbers that a judge holds
)

// take returns how many of some rows may be judged, at that many multiplications each.
func (a *allowance) take(rows, each int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	gone := min(max(0, now.Sub(a.raised)), time.Second) // the zero allowance is full
	a.credit, a.raised = min(mostCredit, a.credit+int(secondCredit*gone.Seconds())), now
	rows = min(rows, (a.credit-judgedCall)/(each+judgedRow))
	if rows <= 0 {
		return 0
	}
	a.credit -= judgedCall + rows*(each+judgedRow)
	return rows
}

// rows judges rows of a block that was decoded for the live set's features.
func (j *judge) rows(b *incremental.Block, by *model.Served, of *allowance, partition int, offset int64) (to judgement) {
	m := j.begin(b, by, of)
	if m == 0 {
		return to
	}
	j.draw(b.Rows(), m, partition, offset)
	to = judgement{by: j.by, rulings: make([]ruling, 0, m), opens: -1}
	known := b.ClassesIn(j.by.Model.Classes)
	for at := range slices.Chunk(j.at, j.piece(b)) {
		j.classify(b, at)
		for i, at := range at {
			row := int(at)
			if !counts(b, row) {
				continue // counts as absent, or cannot be judged
			}
			r := j.ruling(i, known[b.Codes[row]])
			var opens bool
			if r.repeats, opens = repeats(b, row); opens {
				to.opens = len(to.rulings)
			}
			to.rulings = append(to.rulings, r)
		}
	}
	return to
}

// each judges the first rows of a block whose rows are records of their own, and calls judged for
// each.
func (j *judge) each(b *incremental.Block, by *model.Served, of *allowance, judged func(row int, y judgement)) {
	m := j.begin(b, by, of)
	if m == 0 {
		return
	}
	j.at = slices.Grow(j.at[:0], m)[:m]
	for i := range j.at {
		j.at[i] = int32(i)
	}
	known := b.ClassesIn(j.by.Model.Classes)
	for at := range slices.Chunk(j.at, j.piece(b)) {
		j.classify(b, at)
		for i, at := range at {
			if row := int(at); counts(b, row) {
				judged(row, judgement{by: j.by, rulings: []ruling{j.ruling(i, known[b.Codes[row]])}})
			}
		}
	}
}

// begin returns how many rows of a block the allowance pays for.
func (j *judge) begin(b *incremental.Block, by *model.Served, of *allowance) int {
	if by.Model == nil || b.Rows() == 0 {
		return 0
	}
	if j.served != by {
		j.served, j.by = by, by.Classifier()
	}
	planes := len(j.by.Model.Planes)
	each := len(b.Columns) * planes
	if j.by.Map != nil {
		each = j.by.Map.Points() * (len(b.Columns) + planes)
	}
	return of.take(b.Rows(), each)
}

// piece is how many rows are classified at a time.
func (j *judge) piece(b *incremental.Block) int {
	return max(1, pieceNumbers/max(len(b.Columns), len(j.by.Model.Planes)))
}

// classify classifies rows of a block.
func (j *judge) classify(b *incremental.Block, at []int32) {
	planes := len(j.by.Model.Planes)
	j.take(b, at)
	j.class = slices.Grow(j.class[:0], len(at))[:len(at)]
	j.values = slices.Grow(j.values[:0], len(at)*planes)[:len(at)*planes]
	j.by.Classify(j.class, j.values, j.columns)
}

// ruling is the outcome for row i of those that were classified last.
func (j *judge) ruling(i, class int) ruling {
	planes := len(j.by.Model.Planes)
	r := ruling{class: int32(class), answer: j.class[i]}
	r.loss = prequential.SquaredError(j.values[i*planes:(i+1)*planes], r.class)
	return r
}

// draw draws m of the rows of the block at a position of the log.
func (j *judge) draw(rows, m, partition int, offset int64) {
	if j.random == nil {
		j.random = rand.New(&j.seed)
	}
	j.seed.Seed(uint64(partition), uint64(offset))
	j.at = slices.Grow(j.at[:0], m)[:m]
	first := j.random.IntN(rows)
	for i := range j.at {
		j.at[i] = int32((i*rows + first) / m)
	}
	j.random.Shuffle(m, func(a, b int) { j.at[a], j.at[b] = j.at[b], j.at[a] })
}

// take copies rows of a block into columns.
func (j *judge) take(b *incremental.Block, at []int32) {
	m := len(at)
	j.numbers = slices.Grow(j.numbers[:0], m*len(b.Columns))[:m*len(b.Columns)]
	j.columns = j.columns[:0]
	for k, column := range b.Columns {
		to := j.numbers[k*m : (k+1)*m]
		column.Gather(to, at)
		j.columns = append(j.columns, gram.ColumnOf(to))
	}
}

// record has the judgements since the start. It is safe for concurrent use.
type record struct {
	mu     sync.Mutex
	all    prequential.Evaluation
	rule   decision.Kind // of the latest answers
	began  time.Time     // start of the latest half of the window
	halved int64         // rows before it
	behind [2]behind     // of the two halves, the latest first

	given int64 // rows whose answers were given before

	progress map[int]*prequential.Progressive // by partition; empty where drift.every is 0

	sums model.Sums // blocks that could not be judged

	errors  *drift.ADWIN   // nil: off
	changes []drift.Change // that nobody has taken yet
}

// behind sums up how far the models were behind the rows that they judged.
type behind struct{ rows, records float64 }

// mostChanges bounds the changes that wait to be taken; there is one in 32 rows at most.
const mostChanges = 100

// A half of the window has at least this many rows, over at least this time.
const (
	latestRows = 10_000
	latestTime = time.Minute
)

// add adds a judgement.
func (p *record) add(y judgement) {
	if len(y.rulings) == 0 {
		return
	}
	c := y.by
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.SetClasses(c.Model.Classes)
	p.rule = c.DecidesBy().Kind()
	rows, _ := p.all.Totals()
	if rows-p.halved >= latestRows && time.Since(p.began) >= latestTime {
		p.all.Turn()
		p.halved, p.behind = rows, [2]behind{{}, p.behind[0]}
	}
	if rows == p.halved {
		p.began = time.Now()
	}
	p.behind[0].rows += float64(len(y.rulings))
	p.behind[0].records += float64(y.behind * int64(len(y.rulings)))
	for _, r := range y.rulings {
		if r.given {
			p.given++
			p.all.AddAnswer(r.class, r.answer, r.repeats)
		} else {
			p.all.Add(r.class, r.answer, r.loss, r.repeats)
		}
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

// addSums counts what came as sums.
func (p *record) addSums(more model.Sums) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sums.Blocks += more.Blocks
	p.sums.Rows += more.Rows
	p.sums.Repeated += more.Repeated
}

// Prequential reports the answers of the served models for rows before they learned from
// them. It forgets the figures of labels that the model of now does not have: the rows of such
// a label may have been retired.
func (in *Intake) Prequential() model.Prequential {
	var classes []string
	if m := in.Served(in.Live.Target().Features).Model; m != nil {
		classes = m.Classes
	}
	given := in.givenAnswers() // first, so that it has no row judged that the figures do not have
	a := in.record.answer(classes, in.Config.Drift.Every)
	a.Given = given
	return a
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

// detector is the detector of errors as it is saved, with the changes that nobody has taken.
type detector struct {
	Errors  *drift.ADWIN   `json:"errors"`
	Changes []drift.Change `json:"changes"`
}

// Detector is the detector of errors as JSON. It has seen the judged rows that have been applied.
func (in *Intake) Detector() ([]byte, error) {
	p := &in.record
	p.mu.Lock()
	defer p.mu.Unlock()
	return json.Marshal(detector{p.errors, p.changes})
}

// RestoreDetector continues a detector that was saved. After an error it begins anew.
func (in *Intake) RestoreDetector(text []byte) error {
	p := &in.record
	p.mu.Lock()
	defer p.mu.Unlock()
	saved := detector{Errors: drift.NewADWIN(drift.Delta)}
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	if saved.Errors == nil || len(saved.Changes) > mostChanges {
		return errors.New("the detector of errors has no window, or too many changes")
	}
	p.errors, p.changes = saved.Errors, saved.Changes
	return nil
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
func (p *record) answer(classes []string, every int) (a model.Prequential) {
	p.mu.Lock()
	p.all.SetClasses(classes)
	window, fading := p.all.Window(), p.all.Fading()
	rule := p.rule
	a.Rows, a.Right = p.all.Totals()
	a.Classes, a.Repeats = p.all.Seen()
	rows, records := p.behind[0].rows+p.behind[1].rows, p.behind[0].records+p.behind[1].records
	a.Progressive = p.progressive(every, classes)
	if sums := p.sums; sums != (model.Sums{}) {
		a.Sums = &sums
	}
	p.mu.Unlock()
	stretch := func(f prequential.Figures) *model.Stretch {
		if f.Matrix == nil || f.Matrix.Figures().Weight == 0 {
			return nil
		}
		return model.NewStretch(rule, classes, f)
	}
	a.Window, a.Fading = stretch(window), stretch(fading)
	if a.Window != nil {
		a.Behind = new(records / rows)
	}
	return a
}
