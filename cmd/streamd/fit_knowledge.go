package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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

// knowledgeFlags ask for planes by rules and rows.
type knowledgeFlags struct {
	Knowledge string   `placeholder:"FILE" help:"Learn from rules, too: a YAML file that says of which class rows are. rules: [{when: tumor >= 4 and lymph >= 5, then: recur}] has comparisons that are linear in the features, and each rule may have a name and a weight. within: [0, 1] bounds the features that a rule does not name; one-of: [[red, green, blue]] lists features of which one is 1. The planes are those of the 1-norm SVM with these knowledge sets, by a program of all rows, in memory. With --nu 0 they are those of the rules alone. With --block-rows they have the squared loss of a daemon with model.knowledge, and with --refine sparse, too, the errors of the rows of the --sample."`
	Mu        autoFlag `placeholder:"MU" help:"Weight of the rules' slack against the size of the plane. At 1 and less, a rule that leaves features without bounds may cost less than a plane. auto, with --nu auto, tries 0.01 to 10000 and takes the one that classifies best over the folds. (default: 10)"`
}

// checkKnowledge refuses what no daemon has, and what a daemon alone has.
func (c *fitCmd) checkKnowledge() error {
	switch {
	case c.Knowledge == "" && c.alone():
		return errors.New("--nu 0: goes with --knowledge, since nothing is learned from the rows")
	case c.Knowledge == "":
		return nil
	case c.Refine == config.RefineSparse && c.BlockRows == nil:
		return errors.New("--knowledge: has the planes of --refine sparse with rules, unless --block-rows asks for those of a daemon")
	case c.LOO || c.EpsilonSV != nil:
		return errors.New("--knowledge: does not go with --loo and --epsilon-sv, which are of solved planes")
	case c.BlockRows == nil && c.Regulariser == config.RegulariserKernel:
		return errors.New("--knowledge: goes with --regulariser identity")
	case c.BlockRows != nil && c.alone():
		return errors.New("--knowledge: with --block-rows, as in a daemon, it does not go with --nu 0")
	}
	return nil
}

// alone says whether rows do not count.
func (c *fitCmd) alone() bool { return !c.Nu.auto && c.Nu.value == 0 }

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
func (c *fitCmd) know(ctx context.Context, f *fit) error {
	rules, err := rules.Load(c.Knowledge)
	if err != nil {
		return err
	}
	k := &knowledge{machine: svm.Knowledge{Mu: cmp.Or(c.Mu.value, model.FirstMu), Alone: c.alone()}, anyMu: c.Mu.auto}
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
	k.sums, k.refine = true, c.Refine
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

// knowledgeReport reports what became of the rules.
type knowledgeReport struct {
	Mu    float64      `json:"mu"`
	Rules []ruleReport `json:"rules"`
}

type ruleReport struct {
	Name   string  `json:"name"`
	Class  string  `json:"class"`
	Weight float64 `json:"weight"`
	// Slack of all planes together: 0 where the rule's set lies beyond its bounding planes.
	Slack float64 `json:"slack"`
	// Support lists the conditions whose multipliers are above 0, for any plane. Without the
	// others the planes are the same.
	Support []string `json:"support"`
	Rows    int64    `json:"rows"`  // that meet the conditions
	Right   int64    `json:"right"` // of these, those of the class
}

// reportRules counts the rows that meet the conditions of each rule.
func (f *fit) reportRules(ctx context.Context) (*knowledgeReport, error) {
	k := f.knowledge
	r := &knowledgeReport{Mu: k.machine.Mu}
	solved := model.NewKnowledge(ctx, f.model)
	if solved != nil {
		if r.Mu = solved.Mu; solved.Problem != "" {
			return nil, errors.New(solved.Problem)
		}
	}
	for i, rule := range k.rules {
		if solved != nil {
			of := solved.Rules[i]
			r.Rules = append(r.Rules, ruleReport{Name: of.Name, Class: of.Class, Weight: of.Weight, Slack: of.Slack, Support: of.Support})
			continue
		}
		report := ruleReport{Name: rule.Name, Class: rule.Class, Weight: rule.Weight, Support: []string{}}
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
		r.Rules = append(r.Rules, report)
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

func (r *knowledgeReport) print(p *table) {
	p.row("knowledge", fmt.Sprintf("%s, mu %g", counted(len(r.Rules), "rule"), r.Mu))
	for _, rule := range r.Rules {
		text := fmt.Sprintf("%s; slack %.3g; %s, %d of the class", rule.Class, rule.Slack, counted(rule.Rows, "row"), rule.Right)
		p.row("  "+rule.Name, text+restsOn(rule.Support))
	}
}

// restsOn names the conditions that planes rest on, if there are any.
func restsOn(support []string) string {
	if len(support) == 0 {
		return ""
	}
	const most = 6 // within may add hundreds
	more := ""
	if len(support) > most {
		support, more = support[:most], fmt.Sprintf(" and %d more", len(support)-most)
	}
	return "; rests on " + strings.Join(support, ", ") + more
}
