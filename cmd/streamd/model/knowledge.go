package model

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/kernels"
	"streamd/kernels/rules"
	"streamd/kernels/svm"
)

// Knowledge reports the rules that the planes keep to, beside the rows.
type Knowledge struct {
	Mu      float64 `json:"mu"`                // weight of the slack
	Rules   []Rule  `json:"rules"`             // rules of classes that have rows
	Problem string  `json:"problem,omitempty"` // reason why the slack is not known
}

// Rule reports what became of a rule.
type Rule struct {
	Name   string  `json:"name"`   // name in the file
	Class  string  `json:"class"`  // class of the rows that meet the conditions
	Weight float64 `json:"weight"` // weight of its slack, beside mu
	// Slack of all planes together: 0 where the rule's set lies beyond its bounding planes.
	Slack float64 `json:"slack"`
	// Conditions whose multipliers are above 0, for any plane. Without the others the planes are
	// the same.
	Support []string `json:"support"`
}

// Rules solve for planes with knowledge sets by svm.KnownSums, in whatever features and classes
// the rows have. Rules of a class without rows do not count until it has some.
type Rules struct {
	Mu float64 // weight μ of the slack
	*binding

	in       *kernels.Map // basis of the planes' coordinates; nil: the features
	features []string     // of the rows in these coordinates
}

// binding is the rules of a file for the features of the last rows.
type binding struct {
	file *rules.Rules

	mutex sync.Mutex // guards the rest
	of    []string
	bound []rules.Rule
	err   error
}

// NewRules makes Rules with the weight μ of their slack.
func NewRules(file *rules.Rules, mu float64) *Rules {
	return &Rules{Mu: mu, binding: &binding{file: file}}
}

// In returns the Rules for planes in the coordinates of a basis, of rows with these features.
func (r *Rules) In(m *kernels.Map, features []string) *Rules {
	return &Rules{r.Mu, r.binding, m, features}
}

// FirstMu is μ until one is chosen, and where none can be chosen. It is above 1, where the slack
// of a rule without bounds costs less than the w that it takes the place of (Fung 2003, 3.15): the
// plane would do without the rule's features.
const FirstMu = 10

// Mus are the values of μ to choose from. Of equals the first is taken: rules may speak of rows
// that there are none of, so they count unless the rows say otherwise.
func Mus() []float64 { return []float64{1e4, 1e3, 100, 10, 1, 0.1, 0.01} }

// Ways are those of Mus, with a refinement.
func (r *Rules) Ways(how config.Refine) (ways []study.Way) {
	for _, mu := range Mus() {
		at := &Rules{mu, r.binding, r.in, r.features}
		ways = append(ways, study.Way{Solver: at, Refine: Refiner(how, svm.Settings{}, at, r.in != nil)})
	}
	return ways
}

// MuOf is the weight μ of the rules of a way. It is 0 without rules.
func MuOf(w study.Way) float64 {
	if r, ok := w.Solver.(*Rules); ok {
		return r.Mu
	}
	if r, ok := w.Refine.(svm.Refiner); ok {
		if k, ok := r.Machine.(svm.Knowledge); ok {
			return k.Mu
		}
	}
	return 0
}

// String implements incremental.Solver.
func (r *Rules) String() string { return (*svm.KnownSums)(nil).String() }

// Uses implements incremental.Solver.
func (r *Rules) Uses() (matrix, nu bool) { return (*svm.KnownSums)(nil).Uses() }

// Plane implements incremental.Solver. Its errors name unknown features, and rules that no row
// can satisfy.
func (r *Rules) Plane(p *incremental.Program, nu float64) ([]float64, error) {
	rules, err := r.bind(p.Features, p.Classes)
	if err != nil {
		return nil, err
	}
	return (&svm.KnownSums{Sets: sets(rules), Mu: r.Mu, Map: r.in}).Plane(p, nu)
}

// rulesByRows is a Refiner whose machine is svm.Knowledge with the rules of a model.
type rulesByRows struct {
	svm.Refiner
	rules *Rules
}

// Refine implements study.Refiner. Its errors are those of Rules.Plane and of svm.Refiner.
func (r rulesByRows) Refine(ctx context.Context, m *incremental.Model, rows newton.Rows, o newton.Options) (*newton.Result, error) {
	rules, err := r.rules.bind(m.Features, m.Classes)
	if err != nil {
		return nil, err
	}
	r.Machine = svm.Knowledge{Sets: sets(rules), Mu: r.rules.Mu, Map: r.rules.in}
	return r.Refiner.Refine(ctx, m, rows, o)
}

// Alone returns the model of the options' rules without rows, for features, or in the coordinates
// of the rules; without any features, for those that the rules name. It returns the problem that
// there is no model of rows if there are no rules or these have none either.
func Alone(problem error, features []string, o incremental.Options) (*incremental.Model, error) {
	r, ok := o.Solver.(*Rules)
	if !ok || !errors.Is(problem, incremental.ErrClasses) {
		return nil, problem
	}
	classes := r.file.Classes()
	if len(classes) < 2 {
		return nil, problem
	}
	switch {
	case r.in != nil:
		features = r.in.Names()
	case len(features) == 0:
		features = r.file.Features()
	}
	n, k := len(features), len(classes)
	m := &incremental.Model{
		Features: features, Classes: classes, Rows: make([]int64, k),
		Mean: make([]float64, n), Deviation: slices.Repeat([]float64{1}, n), Options: o,
	}
	if k == 2 {
		classes = classes[1:]
	}
	for _, class := range classes {
		p := &incremental.Program{
			Class: class, Classes: m.Classes, Features: features,
			Matrix: make([]float64, gram.PackedLen(n+1)), Right: make([]float64, n+1),
		}
		z, err := r.Plane(p, o.Nu)
		if err != nil {
			return nil, err
		}
		m.Planes = append(m.Planes, incremental.Plane{Class: class, W: z[:n], Gamma: z[n], Condition: math.NaN()})
	}
	for _, name := range o.Mean { // there is no value yet: the mean is 0
		x := incremental.Imputed{Feature: slices.Index(features, name), Missing: slices.Index(features, incremental.MissingName(name))}
		if x.Feature >= 0 && x.Missing >= 0 {
			m.Imputed = append(m.Imputed, x)
		}
	}
	return m, nil
}

func sets(rules []rules.Rule) (sets []svm.Set) {
	for _, rule := range rules {
		sets = append(sets, rule.Set)
	}
	return sets
}

// bind returns the rules of the classes, for planes of some coordinates.
func (r *Rules) bind(coordinates, classes []string) ([]rules.Rule, error) {
	features := coordinates
	if r.in != nil {
		features = r.features
	}
	b := r.binding
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.of == nil || !slices.Equal(features, b.of) {
		b.of = slices.Clone(features)
		// Binding takes a moment, which is bounded by the limits of a file.
		b.bound, b.err = b.file.Bind(context.Background(), features, nil)
	}
	var known []rules.Rule
	for _, rule := range b.bound {
		if slices.Contains(classes, rule.Class) {
			known = append(known, rule)
		}
	}
	return known, b.err
}

// NewKnowledge reports what became of the rules in a model's planes. It is nil without rules.
func NewKnowledge(ctx context.Context, m *incremental.Model) *Knowledge {
	r, ok := m.Options.Solver.(*Rules)
	if !ok {
		return nil
	}
	report := &Knowledge{Mu: r.Mu, Rules: []Rule{}}
	rules, err := r.bind(m.Features, m.Classes)
	if err != nil {
		report.Problem = err.Error()
		return report
	}
	k := svm.Knowledge{Sets: sets(rules), Mu: 1, Map: r.in}
	scaled := m.Options.Standardise && m.Deviation != nil
	sigma := slices.Clone(m.Deviation)
	for j, s := range sigma {
		if s == 0 {
			sigma[j] = 1
		}
	}
	for i := range k.Sets {
		if scaled {
			k.Sets[i] = k.Sets[i].Scaled(m.Mean, sigma)
		}
	}
	const rounding = 1e-9 // counts as 0: the program's plane has been in other coordinates
	supports := make([][]bool, len(rules))
	for i, rule := range rules {
		report.Rules = append(report.Rules, Rule{Name: rule.Name, Class: rule.Class, Weight: rule.Weight, Support: []string{}})
		supports[i] = make([]bool, len(rule.Texts))
	}
	for _, p := range m.Planes {
		k.Positive = p.Class
		w, gamma := slices.Clone(p.W), p.Gamma
		if scaled {
			for j := range w {
				gamma -= float64(w[j] * m.Mean[j])
				w[j] *= sigma[j]
			}
		}
		held, err := k.Hold(ctx, w, gamma)
		if err != nil {
			report.Problem, report.Rules = err.Error(), []Rule{}
			return report
		}
		for i := range held {
			report.Rules[i].Slack += held[i].Slack
			for c := range supports[i] {
				supports[i][c] = supports[i][c] || held[i].Multipliers[c] > rounding
			}
		}
	}
	for i := range rules {
		if report.Rules[i].Slack < rounding {
			report.Rules[i].Slack = 0
		}
		for c, text := range rules[i].Texts {
			if supports[i][c] {
				report.Rules[i].Support = append(report.Rules[i].Support, text)
			}
		}
	}
	return report
}
