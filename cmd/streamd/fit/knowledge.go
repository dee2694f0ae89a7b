package fit

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/study"
	"streamd/kernels/basis"
	"streamd/kernels/rules"
	"streamd/kernels/svm"
)

// knowledge is the rules of a fit.
type knowledge struct {
	rules   []rules.Rule
	machine svm.Knowledge
	anyMu   bool // μ is to be chosen
	// sums says that the planes are those of model.Rules, as in a daemon, and refined by refine.
	// Else the machine finds them on rows.
	sums   bool
	refine config.Refine

	mutex sync.Mutex // guards held: planes are found at the same time
	held  [][]svm.Grip
}

// know reads the rules, once the classes are known.
func (f *fit) know(ctx context.Context) error {
	m := &f.want.Model
	rules, err := rules.Load(m.Knowledge)
	if err != nil {
		return err
	}
	k := &knowledge{machine: svm.Knowledge{Mu: cmp.Or(float64(m.Mu), model.FirstMu), Alone: f.want.Alone}, anyMu: m.Mu == config.NuAuto}
	if k.rules, err = rules.Bind(ctx, f.data.Features, f.sums.whole.Moments().Classes()); err != nil {
		return err
	}
	for _, rule := range k.rules {
		k.machine.Sets = append(k.machine.Sets, rule.Set)
	}
	if f.knowledge = k; f.blocks == nil {
		f.refining = study.Always
		return nil
	}
	k.sums, k.refine = true, m.Refine
	f.options.Solver = model.NewRules(rules, k.machine.Mu)
	f.options = f.optionsIn(f.in)
	return nil
}

// optionsIn are the options of planes in some coordinates.
func (f *fit) optionsIn(in *basis.Coordinates) incremental.Options {
	o := f.options
	if rules, ok := o.Solver.(*model.Rules); ok && in != nil {
		o.Solver = rules.In(in.Map, f.data.Features)
	}
	return o
}

// ways are those of every μ, for planes in some coordinates. There are none if μ is given.
func (f *fit) ways(in *basis.Coordinates) (ways []study.Way) {
	switch k := f.knowledge; {
	case k == nil || !k.anyMu:
	case k.sums:
		ways = f.optionsIn(in).Solver.(*model.Rules).Ways(k.refine)
	default:
		for _, mu := range model.Mus() {
			ways = append(ways, study.Way{Refine: k.refiner(mu, in)})
		}
	}
	return ways
}

// refiner is the method of refinement for planes in some coordinates.
func (f *fit) refiner(in *basis.Coordinates) study.Refiner {
	switch k := f.knowledge; {
	case k == nil:
		return f.method
	case k.sums:
		return model.Refiner(k.refine, svm.Settings{}, f.optionsIn(in).Solver, in != nil)
	default:
		return k.refiner(k.machine.Mu, in)
	}
}

func (k *knowledge) refiner(mu float64, in *basis.Coordinates) study.Refiner {
	machine := k.machine
	if machine.Mu = mu; in != nil {
		machine.Map = in.Map
	}
	return svm.Refiner{Name: "knowledge", Machine: machine, Basis: in != nil}
}

// reporting is refiner for the planes of all rows, whose hold on the rules is kept.
func (f *fit) reporting(in *basis.Coordinates) study.Refiner {
	r, ok := f.refiner(in).(svm.Refiner)
	machine, known := r.Machine.(svm.Knowledge)
	if !ok || !known {
		return f.refiner(in)
	}
	machine.Report = func(held []svm.Grip) {
		f.knowledge.mutex.Lock()
		defer f.knowledge.mutex.Unlock()
		f.knowledge.held = append(f.knowledge.held, held)
	}
	r.Machine = machine
	return r
}

// Knowledge reports what became of the rules.
type Knowledge struct {
	Mu    float64 `json:"mu"`
	Rules []Rule  `json:"rules"`
}

// Rule reports what became of a rule.
type Rule struct {
	model.Rule
	Rows  int64 `json:"rows"`  // that meet the conditions
	Right int64 `json:"right"` // of these, those of the class
}

// reportRules counts the rows that meet the conditions of each rule.
func (f *fit) reportRules(ctx context.Context) (*Knowledge, error) {
	k := f.knowledge
	r := &Knowledge{Mu: k.machine.Mu}
	solved := model.NewKnowledge(ctx, f.model)
	if solved != nil {
		if r.Mu = solved.Mu; solved.Problem != "" {
			return nil, errors.New(solved.Problem)
		}
	}
	for i, rule := range k.rules {
		if solved != nil {
			r.Rules = append(r.Rules, Rule{Rule: solved.Rules[i]})
			continue
		}
		report := model.Rule{Name: rule.Name, Class: rule.Class, Weight: rule.Weight, Support: []string{}}
		supports := make([]bool, len(rule.Texts))
		for _, held := range k.held {
			report.Slack += held[i].Slack
			for c := range supports {
				supports[c] = supports[c] || held[i].Multipliers[c] > 0
			}
		}
		for c, text := range rule.Texts {
			if supports[c] {
				report.Support = append(report.Support, text)
			}
		}
		r.Rules = append(r.Rules, Rule{Rule: report})
	}
	type count struct{ rows, right int64 }
	err := dataset.Each(ctx, f.data, "counting rows of rules",
		func(_ int, b *incremental.Block, _ int64) ([]count, error) {
			b = b.Labelled()
			counts := make([]count, len(k.rules))
			for i, code := range b.Codes {
				if b.Weight(i) == 0 {
					continue
				}
				for rule := range counts {
					if k.rules[rule].Contains(func(j int) float64 { return b.Columns[j].At(i) }) {
						counts[rule].rows++
						if b.Classes[code] == k.rules[rule].Class {
							counts[rule].right++
						}
					}
				}
			}
			return counts, nil
		},
		func(counts []count) error {
			for i, c := range counts {
				r.Rules[i].Rows += c.rows
				r.Rules[i].Right += c.right
			}
			return nil
		})
	return r, err
}
