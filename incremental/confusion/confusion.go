// Package confusion counts the answers of a classifier by the true class of the rows, and
// computes precision, recall, F1 and Cohen's kappa from the counts.
//
// # Baselines
//
// A share of rows classified right says little alone. Two answers cost nothing: the largest class,
// for all rows, and on a stream the label of the row before. Kappa measures a classifier against
// such a baseline: 0 is no better, 1 is always right, and below 0 the baseline is better. Cohen's
// kappa (1960) is measured against chance: answers drawn with the classifier's own shares of the
// classes. Kappa-temporal is measured against the label of the row before (Žliobaitė, Bifet, Read,
// Pfahringer and Holmes 2015, "Evaluation methods and decision theory for classification of
// streaming data with temporal dependence").
//
// Rows count by their weights. A figure without rows is NaN: the precision of a class
// that is never the answer, and the recall of a class without rows.
package confusion

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Matrix is the confusion matrix of k classes. Rows of a class that the classifier does
// not know count as wrong. Up to 64 classes it holds about k² numbers, and for more
// classes the pairs that occur.
type Matrix struct {
	k     int
	dense []float64        // (k+1) × k: true class, answer; nil for many classes
	pairs map[pair]float64 // for many classes
}

type pair struct{ class, answer int32 }

const mostDense = 64

// New returns an empty matrix of k classes.
func New(k int) *Matrix {
	m := &Matrix{k: k}
	if k <= mostDense {
		m.dense = make([]float64, (k+1)*k)
	} else {
		m.pairs = map[pair]float64{}
	}
	return m
}

// Add counts rows of a class, −1 for a class that the classifier does not know, with an
// answer.
func (m *Matrix) Add(class, answer int32, weight float64) {
	if class < -1 || int(class) >= m.k || answer < 0 || int(answer) >= m.k {
		panic(fmt.Sprintf("confusion: class %d, answer %d of %d", class, answer, m.k))
	}
	if class < 0 {
		class = int32(m.k)
	}
	if m.dense != nil {
		m.dense[int(class)*m.k+int(answer)] += weight
	} else {
		m.pairs[pair{class, answer}] += weight
	}
}

// Merge adds the counts of another matrix of the same classes.
func (m *Matrix) Merge(o *Matrix) {
	o.each(func(p pair, weight float64) {
		if m.dense != nil {
			m.dense[int(p.class)*m.k+int(p.answer)] += weight
		} else {
			m.pairs[p] += weight
		}
	})
}

// Clone returns a copy.
func (m *Matrix) Clone() *Matrix {
	return &Matrix{m.k, slices.Clone(m.dense), maps.Clone(m.pairs)}
}

// Scale multiplies all weights by a factor. Weights that are then below least become 0.
func (m *Matrix) Scale(factor, least float64) {
	for i, weight := range m.dense {
		if weight *= factor; weight < least {
			weight = 0
		}
		m.dense[i] = weight
	}
	for p, weight := range m.pairs {
		if weight *= factor; weight < least {
			delete(m.pairs, p)
		} else {
			m.pairs[p] = weight
		}
	}
}

// MapInto adds the counts to a matrix of other classes. at has the place there of each class,
// −1 for one that is not there: its rows and answers are left out.
func (m *Matrix) MapInto(to *Matrix, at []int32) {
	m.each(func(p pair, weight float64) {
		class := int32(-1)
		if int(p.class) < m.k {
			if class = at[p.class]; class < 0 {
				return
			}
		}
		if answer := at[p.answer]; answer >= 0 {
			to.Add(class, answer, weight)
		}
	})
}

// each visits the pairs that occur, by class and answer.
func (m *Matrix) each(visit func(p pair, weight float64)) {
	if m.dense != nil {
		for i, weight := range m.dense {
			if weight != 0 {
				visit(pair{int32(i / m.k), int32(i % m.k)}, weight)
			}
		}
		return
	}
	all := make([]pair, 0, len(m.pairs))
	for p := range m.pairs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.answer, b.answer)) })
	for _, p := range all {
		visit(p, m.pairs[p])
	}
}

// Class is the figures of one class.
type Class struct {
	Rows      float64 // weight of the rows of the class
	Answers   float64 // weight of the rows that get it as their answer
	Right     float64 // weight of the rows that are in both
	Precision float64 // Right over Answers
	Recall    float64 // Right over Rows
	F1        float64 // harmonic mean of both: 2·Right over Rows + Answers
}

// Figures are the figures of a matrix.
type Figures struct {
	Weight              float64 // of all rows
	Unknown             float64 // of the rows of unknown classes
	Correctness         float64 // share of the rows that are answered right
	BalancedCorrectness float64 // mean recall of the classes that have rows
	LargestClass        float64 // share of the class of most rows: the correctness of this answer for all
	Kappa               float64 // Cohen's
	Classes             []Class // k
}

// Kappa is how far a classifier has come from a baseline's correctness towards 1:
// (correctness − baseline)/(1 − baseline). It is NaN where the baseline is always right.
func Kappa(correctness, baseline float64) float64 {
	if baseline == 1 {
		return math.NaN()
	}
	return (correctness - baseline) / (1 - baseline)
}

// Figures computes the figures.
func (m *Matrix) Figures() Figures {
	f := Figures{Classes: make([]Class, m.k)}
	m.each(func(p pair, weight float64) {
		f.Weight += weight
		f.Classes[p.answer].Answers += weight
		switch {
		case int(p.class) == m.k:
			f.Unknown += weight
		case p.class == p.answer:
			f.Classes[p.class].Right += weight
			fallthrough
		default:
			f.Classes[p.class].Rows += weight
		}
	})
	var right, recalls, seen, largest, chance float64
	for i := range f.Classes {
		c := &f.Classes[i]
		c.Precision, c.Recall, c.F1 = c.Right/c.Answers, c.Right/c.Rows, 2*c.Right/(c.Rows+c.Answers)
		right += c.Right
		largest = max(largest, c.Rows)
		chance += float64(c.Rows / f.Weight * (c.Answers / f.Weight))
		if !math.IsNaN(c.Recall) {
			recalls += c.Recall
			seen++
		}
	}
	f.Correctness, f.BalancedCorrectness = right/f.Weight, recalls/seen
	f.LargestClass, f.Kappa = largest/f.Weight, Kappa(right/f.Weight, chance)
	return f
}

// Rows returns the matrix row by row, with a row for each class and a column for each
// answer. It is nil for more than most classes.
func (m *Matrix) Rows(most int) [][]float64 {
	if m.k > most {
		return nil
	}
	rows := make([][]float64, m.k)
	for i := range rows {
		rows[i] = make([]float64, m.k)
	}
	m.each(func(p pair, weight float64) {
		if int(p.class) < m.k {
			rows[p.class][p.answer] = weight
		}
	})
	return rows
}

// Mistake is the rows of one class with the same wrong answer.
type Mistake struct {
	Class, Answer int
	Weight        float64
}

// Mistakes returns up to most of the largest mistakes, the largest first. Ties are in the
// order of the classes.
func (m *Matrix) Mistakes(most int) (all []Mistake) {
	m.each(func(p pair, weight float64) {
		if p.class != p.answer && int(p.class) < m.k {
			all = append(all, Mistake{int(p.class), int(p.answer), weight})
		}
	})
	slices.SortStableFunc(all, func(a, b Mistake) int { return cmp.Compare(b.Weight, a.Weight) })
	return all[:min(len(all), most)]
}
