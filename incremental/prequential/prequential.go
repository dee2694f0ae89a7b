// Package prequential measures a classifier on each row before it learns from the row (test,
// then train: Dawid 1984; for streams Gama, Sebastião and Rodrigues 2013, "On evaluating stream
// learning algorithms").
//
// Figures over a whole stream say little about its end. There are two ways to forget. The
// window has the latest rows, and each counts as one. With fading, each row counts Alpha times
// as much as the next one, so that the latest 1/(1 − Alpha) rows count most.
//
// Streams repeat their labels. So each row also tells whether it has the label of the row before:
// a classifier that is right in no more rows than these is of no use (package confusion).
package prequential

import (
	"math"
	"slices"

	"streamd/incremental/confusion"
)

// Alpha is the fading factor: the latest 1,000 rows have 63 % of the weight of all.
const Alpha = 0.999

// Evaluation has the figures of a stream. The zero value has no rows and no classes. It takes
// O(k²) memory for k classes, and is not safe for concurrent use.
type Evaluation struct {
	classes        []string
	rows, right    int64
	repeats        int64   // rows with the label of the row before
	seen           []int64 // rows of each class
	before, latest part    // of the window
	fading         part    // in units of unit
	unit           float64 // weight of the latest row
}

// part has the figures of some rows, each with a weight.
type part struct {
	matrix        *confusion.Matrix
	loss, weight  float64 // sums; rows of unknown classes have no loss
	rows, repeats float64 // weight of all rows, and of those with the label of the row before
}

// mostUnit is the unit at which fading weights are scaled back to 1. Pairs of less than
// 1/mostUnit rows are dropped then.
const mostUnit = 1 << 40

// mostLoss is the largest loss of a row.
const mostLoss = 0x1p300

// Classes are those that the matrices have.
func (e *Evaluation) Classes() []string { return e.classes }

// SetClasses changes the classes. What was counted stays with the labels that stay; rows
// counted for another label are forgotten.
func (e *Evaluation) SetClasses(classes []string) {
	if slices.Equal(classes, e.classes) {
		return
	}
	at := make([]int32, len(e.classes)) // place of each label among the new ones
	for i, label := range e.classes {
		at[i] = int32(slices.Index(classes, label))
	}
	for _, p := range []*part{&e.before, &e.latest, &e.fading} {
		matrix := confusion.New(len(classes))
		if p.matrix != nil {
			p.matrix.MapInto(matrix, at)
		}
		p.matrix = matrix
	}
	seen := make([]int64, len(classes))
	for i, to := range at {
		if to >= 0 {
			seen[to] = e.seen[i]
		}
	}
	e.classes, e.seen = slices.Clone(classes), seen
	e.unit = max(e.unit, 1)
}

// Add adds a row of a class, −1 for a class that the classifier does not know. loss is the
// squared error of its decision values (see SquaredError); that of an unknown class is ignored. A
// loss that is no number, or above 2^300, counts as 2^300: the mean stays a number. repeats says
// that the row has the label of the row before.
func (e *Evaluation) Add(class, answer int32, loss float64, repeats bool) {
	if !(loss < mostLoss) {
		loss = mostLoss
	}
	e.add(class, answer, loss, repeats)
}

// AddAnswer is Add of a row whose decision values are not known: it has no part in the loss.
func (e *Evaluation) AddAnswer(class, answer int32, repeats bool) {
	e.add(class, answer, math.NaN(), repeats)
}

func (e *Evaluation) add(class, answer int32, loss float64, repeats bool) {
	e.rows++
	if class == answer {
		e.right++
	}
	if repeats {
		e.repeats++
	}
	if class >= 0 {
		e.seen[class]++
	}
	if e.unit /= Alpha; e.unit > mostUnit {
		e.fading.matrix.Scale(1/e.unit, 1./mostUnit)
		e.fading.loss /= e.unit
		e.fading.weight /= e.unit
		e.fading.rows /= e.unit
		e.fading.repeats /= e.unit
		e.unit = 1
	}
	e.latest.add(class, answer, loss, repeats, 1)
	e.fading.add(class, answer, loss, repeats, e.unit)
}

func (p *part) add(class, answer int32, loss float64, repeats bool, weight float64) {
	p.matrix.Add(class, answer, weight)
	p.rows += weight
	if repeats {
		p.repeats += weight
	}
	if class >= 0 && !math.IsNaN(loss) {
		p.loss += float64(weight * loss)
		p.weight += weight
	}
}

// Turn begins another half of the window and drops the older one.
func (e *Evaluation) Turn() {
	if e.latest.matrix != nil {
		e.before, e.latest = e.latest, part{matrix: confusion.New(len(e.classes))}
	}
}

// Totals returns the number of all rows and of those that were classified right.
func (e *Evaluation) Totals() (rows, right int64) { return e.rows, e.right }

// Seen returns the number of rows of each class, since the classifier has it, and of all rows with
// the label of the row before.
func (e *Evaluation) Seen() (byClass map[string]int64, repeats int64) {
	byClass = make(map[string]int64, len(e.classes))
	for i, class := range e.classes {
		byClass[class] = e.seen[i]
	}
	return byClass, e.repeats
}

// Figures are those of the window or of fading.
type Figures struct {
	Matrix      *confusion.Matrix // in rows; nil before the first call of SetClasses
	SquaredLoss float64           // mean of the rows of known classes; NaN without any
	LastLabel   float64           // share of the rows with the label of the row before; NaN without rows
}

// Window returns the figures of the rows since the last but one Turn.
func (e *Evaluation) Window() Figures {
	return figures(1, &e.before, &e.latest)
}

// Fading returns the figures of all rows, in which the latest one counts as one.
func (e *Evaluation) Fading() Figures { return figures(1/e.unit, &e.fading) }

// figures adds parts up, in a matrix of their own.
func figures(scale float64, parts ...*part) Figures {
	if parts[0].matrix == nil {
		return Figures{SquaredLoss: math.NaN(), LastLabel: math.NaN()}
	}
	f := Figures{Matrix: parts[0].matrix.Clone()}
	loss, weight, rows, repeats := parts[0].loss, parts[0].weight, parts[0].rows, parts[0].repeats
	for _, p := range parts[1:] {
		f.Matrix.Merge(p.matrix)
		loss += p.loss
		weight += p.weight
		rows += p.rows
		repeats += p.repeats
	}
	if scale != 1 {
		f.Matrix.Scale(scale, 0)
	}
	f.SquaredLoss, f.LastLabel = loss/weight, repeats/rows
	return f
}

// SquaredError is the mean over the planes of (value − target)², where the target is 1 for the
// plane of the row's class and −1 for the others. The planes are one for each class, or that of
// the second of two classes.
func SquaredError(values []float64, class int32) float64 {
	if len(values) == 1 {
		class--
	}
	var sum float64
	for plane, v := range values {
		target := -1.
		if int32(plane) == class {
			target = 1
		}
		sum += float64((v - target) * (v - target))
	}
	return sum / float64(len(values))
}
