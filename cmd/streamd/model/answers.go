package model

import (
	"cmp"
	"fmt"
	"slices"

	"streamd/incremental/confusion"
	"streamd/incremental/decision"
)

// Answers says how good the labels of rows are, by the rule in force. Rows count by their
// weights; some weigh more than 0. A figure that no row tells is null.
type Answers struct {
	Decision            decision.Kind  `json:"decision"`             // rule that decided the labels: probability, value or cost
	Correctness         float64        `json:"correctness"`          // share of rows classified right
	BalancedCorrectness float64        `json:"balanced_correctness"` // mean of the classes' recalls
	LargestClass        float64        `json:"largest_class"`        // baseline: correctness of labelling every row with the class of most of them
	Kappa               *float64       `json:"kappa"`                // Cohen's kappa: 0 is no better than chance, 1 is always right
	Weight              float64        `json:"weight"`               // weight of all rows
	Unknown             float64        `json:"unknown,omitempty"`    // weight of rows of classes that the model does not have, which count as wrong
	Classes             []ClassAnswers `json:"classes"`              // one for each class, in the order of the model's
	// Confusion matrix: for each class, the weight of its rows by their label. Absent for
	// more than 50 classes.
	Confusion [][]float64 `json:"confusion,omitempty"`
	Mistakes  []Mistake   `json:"mistakes"` // up to 50 pairs of a class and a wrong label, those of most weight first
	Warnings  []string    `json:"warnings"` // classes that are never or seldom found
}

// ClassAnswers says how good the labels are for one class.
type ClassAnswers struct {
	Class     string   `json:"class"`     // class
	Weight    float64  `json:"weight"`    // weight of its rows
	Answered  float64  `json:"answered"`  // weight of the rows that got it as their label
	Precision *float64 `json:"precision"` // share of these that are of the class
	Recall    *float64 `json:"recall"`    // share of its rows that got it as their label
	F1        *float64 `json:"f1"`        // harmonic mean of precision and recall
	// Area under the ROC curve of the plane's decision values, the class against the rest. It
	// does not depend on the rule.
	AUC *float64 `json:"auc"`
}

// Mistake counts rows of a class with a wrong label.
type Mistake struct {
	Class  string  `json:"class"`  // class of the rows
	Answer string  `json:"answer"` // their label
	Weight float64 `json:"weight"` // their weight
}

// Limits of the answers' length.
const (
	mostConfused = 50 // classes of a confusion matrix
	mostMistakes = 50
	mostWarnings = 10
)

// NewAnswers reports the answers for classes by a rule. auc has the areas of the classes, nil
// where they were not measured.
func NewAnswers(rule decision.Kind, classes []string, m *confusion.Matrix, auc []float64) Answers {
	f := m.Figures()
	a := Answers{
		Decision: rule, Correctness: f.Correctness, BalancedCorrectness: f.BalancedCorrectness,
		LargestClass: f.LargestClass, Kappa: number(f.Kappa), Weight: f.Weight, Unknown: f.Unknown, Confusion: m.Rows(mostConfused), Mistakes: []Mistake{}, Warnings: []string{},
	}
	for i, c := range f.Classes {
		of := ClassAnswers{
			Class: classes[i], Weight: c.Rows, Answered: c.Answers,
			Precision: number(c.Precision), Recall: number(c.Recall), F1: number(c.F1),
		}
		if auc != nil {
			of.AUC = number(auc[i])
		}
		a.Classes = append(a.Classes, of)
	}
	for _, x := range m.Mistakes(mostMistakes) {
		a.Mistakes = append(a.Mistakes, Mistake{classes[x.Class], classes[x.Answer], x.Weight})
	}
	a.warn()
	return a
}

// NoBetter says that labels are no better than a baseline, "" if they are better than each.
func (a *Answers) NoBetter() string {
	if a.Weight > 0 && len(a.Classes) > 1 && a.Correctness <= a.LargestClass {
		return fmt.Sprintf("%s of the rows are right, always the largest class %s", percent(a.Correctness), percent(a.LargestClass))
	}
	return ""
}

// A class of fewer rows is not called seldom found: chance alone hides it.
const leastWarned = 10

// Unanswered lists the classes that have rows, and that no row is given.
func (a *Answers) Unanswered() (classes []string) {
	for _, c := range a.Classes {
		if c.Weight > 0 && c.Answered == 0 {
			classes = append(classes, c.Class)
		}
	}
	return classes
}

// warned lists the classes that no row is given, and those whose recall is below half of the
// correctness of all rows. The first ones have the most rows that are not found.
func (a *Answers) warned() []ClassAnswers {
	var all []ClassAnswers
	for _, c := range a.Classes {
		if c.Weight > 0 && c.Answered == 0 || c.Weight >= leastWarned && *c.Recall < a.Correctness/2 {
			all = append(all, c)
		}
	}
	missed := func(c ClassAnswers) float64 { return c.Weight * (1 - *c.Recall) }
	slices.SortStableFunc(all, func(x, y ClassAnswers) int { return cmp.Compare(missed(y), missed(x)) })
	return all
}

// Warned names the classes that Warnings are about, and those that there is no room for.
func (a *Answers) Warned() (classes []string) {
	for _, c := range a.warned() {
		classes = append(classes, c.Class)
	}
	slices.Sort(classes)
	return classes
}

func (a *Answers) warn() {
	all := a.warned()
	for i, c := range all {
		switch {
		case i == mostWarnings:
			a.Warnings = append(a.Warnings, fmt.Sprintf("%d more classes are never or seldom found", len(all)-i))
			return
		case c.Answered == 0:
			a.Warnings = append(a.Warnings, fmt.Sprintf("no row is labelled %q, the class of %s of the rows", c.Class, percent(c.Weight/a.Weight)))
		default:
			a.Warnings = append(a.Warnings, fmt.Sprintf("of the rows of class %q %s are found, while %s of all rows are right", c.Class, percent(*c.Recall), percent(a.Correctness)))
		}
	}
}

// percent writes a share.
func percent(share float64) string {
	digits := 1
	if share > 0 && share < 0.001 || share > 0.999 && share < 1 {
		digits = 2
	}
	return fmt.Sprintf("%.*f %%", digits, 100*share)
}
