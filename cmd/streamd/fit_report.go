package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/kernels/svm"
)

// fitReport is the output of fit. Features, classes, planes, options and method have their
// names in httpapi.ModelAnswer, so that streamd predict reads a saved report.
type fitReport struct {
	File           string    `json:"file"`
	Rows           int64     `json:"rows"` // of weight > 0, like all counts
	TrainAccuracy  float64   `json:"train_accuracy"`
	TestAccuracy   *float64  `json:"test_accuracy,omitempty"` // on the test file, or else the mean over the folds
	FoldAccuracies []float64 `json:"fold_accuracies,omitempty"`
	LOOAccuracy    *float64  `json:"loo_accuracy,omitempty"`

	// Why settings were not chosen by held-out rows, though no flag said so; absent if they were.
	Choice string `json:"choice,omitempty"`
	// Classes that no row learned from is labelled, where none was held out; absent if there are
	// none.
	Unanswered []string `json:"never_answered,omitempty"`

	Decision    *model.DecisionJSON    `json:"decision"` // rule of labels
	Calibration *model.CalibrationJSON `json:"calibration,omitempty"`
	HeldOut     *model.Answers         `json:"held_out,omitempty"` // of all rows, each by the model without its fold
	Test        *model.Answers         `json:"test,omitempty"`     // of the test file; its areas are null

	Method     string            `json:"method"` // of the planes: psvm, or the refinement's
	Refinement *refinementReport `json:"refinement,omitempty"`
	Knowledge  *knowledgeReport  `json:"knowledge,omitempty"`
	Reduction  *basisReport      `json:"reduction,omitempty"`
	Tuning     *tuningReport     `json:"tuning,omitempty"`
	EpsilonSV  *supportReport    `json:"epsilon_sv,omitempty"`

	Unlabelled int64 `json:"unlabelled_rows,omitempty"` // of the rows

	Classes   []string          `json:"classes"`    // k
	ClassRows []int64           `json:"class_rows"` // k
	Features  []string          `json:"features"`   // n
	Basis     *model.BasisJSON  `json:"basis,omitempty"`
	W         any               `json:"w"`     // n, or one for each point of the basis; k of those for k > 2 classes
	Gamma     any               `json:"gamma"` // a number; k for k > 2 classes
	Planes    []model.PlaneJSON `json:"planes"`
	Condition *float64          `json:"condition"` // the largest of the planes'; null for those that no linear system gave
	Mean      []float64         `json:"mean"`      // n
	Options   model.OptionsJSON `json:"options"`

	Missing []model.MissingJSON `json:"missing,omitempty"`      // of features that may be missing
	Digest  string              `json:"state_digest,omitempty"` // absent where no sums were made
	Seconds float64             `json:"seconds"`
}

// tuningReport reports how ν was chosen.
type tuningReport struct {
	Folds     int                 `json:"folds"`
	Criterion string              `json:"criterion"`
	Nu        float64             `json:"nu"`
	Best      float64             `json:"best"`   // value of the criterion at nu
	Points    []model.TuningPoint `json:"points"` // of the chosen curve

	Method      string              `json:"method"`
	Standardise bool                `json:"standardise"`
	Balanced    bool                `json:"balanced"`
	Mu          float64             `json:"mu,omitempty"` // weight of the slack of rules
	Curves      []model.TuningCurve `json:"curves"`
	Finals      []model.TuningFinal `json:"finals,omitempty"`
}

func (r *tuningReport) describe() string {
	text := fmt.Sprintf("%g%s, chosen by the %s of %s on %d folds", r.Nu, describePlanes(r.Standardise, r.Balanced, r.Method, r.Mu), r.Criterion, percent(r.Best), r.Folds)
	text += describeLuckier(&model.Tuning{Criterion: r.Criterion, Method: r.Method, Best: r.Best, Curves: r.Curves})
	for _, f := range r.Finals {
		switch {
		case f.Method == r.Method:
		case !model.Refined(f.Method):
			text += fmt.Sprintf("; without refinement %s are right", percent(f.Correctness))
		default:
			text += fmt.Sprintf("; refined by %s %s are right", f.Method, percent(f.Correctness))
		}
	}
	return text
}

// refinementReport reports how the planes of all rows were refined.
type refinementReport struct {
	Method string                  `json:"method"`
	Passes int                     `json:"passes"` // over the rows
	Planes []model.PlaneRefinement `json:"planes"`

	Tolerance float64 `json:"tolerance,omitempty"` // of a full kernel's program
}

// newRefinementReport is nil without a refinement.
func newRefinementReport(method study.Refiner, result *newton.Result) *refinementReport {
	if result == nil {
		return nil
	}
	return &refinementReport{Method: method.String(), Passes: result.Passes, Planes: model.PlaneRefinements(result)}
}

func (r *refinementReport) describe() string {
	text := fmt.Sprintf("%s, in %s", r.Method, counted(r.Passes, "pass"))
	if r.Tolerance > 0 {
		worst := 0.0
		for _, p := range r.Planes {
			if p.Gap != nil && *p.Gap > 0 {
				worst = max(worst, *p.Gap/max(0, p.Objective-*p.Gap)) // the least that the minimum may be
			}
		}
		text += fmt.Sprintf(", to a tolerance of %g: within %.2g %% of the minimum", r.Tolerance, 100*worst)
	}
	return text
}

// describe puts the model into the report.
func (f *fit) describe(r *fitReport) {
	m := f.model.WithoutMissing()
	r.File, r.Rows = f.data.Path, f.sums.whole.Rows()
	if len(f.sums.whole.Features()) > 0 {
		digest := f.sums.whole.Digest()
		r.Digest = hex.EncodeToString(digest[:])
	}
	r.Unlabelled = f.sums.whole.Unlabelled().Rows
	r.Classes, r.ClassRows, r.Features = m.Classes, m.Rows, f.data.Features
	if f.in == nil {
		r.Features = m.Features
	}
	r.Mean, r.Options = m.Mean, model.NewOptionsJSON(m.Options)
	r.Missing = model.NewMissingJSON(f.data.Missing, r.Features, f.model)
	if f.knowledge != nil && f.knowledge.machine.Alone {
		r.Options.Nu = 0
	}
	r.Method = model.SolvedBy(m.Options)
	if r.Refinement != nil {
		r.Method = r.Refinement.Method
	}
	r.Planes = model.NewPlanesJSON(m.Planes)
	for _, p := range r.Planes {
		if p.Condition != nil && (r.Condition == nil || *p.Condition > *r.Condition) {
			r.Condition = p.Condition
		}
	}
	var ws [][]float64
	var gammas []float64
	for _, p := range m.Planes {
		ws, gammas = append(ws, p.W), append(gammas, p.Gamma)
	}
	r.W, r.Gamma = ws, gammas
	if len(m.Planes) == 1 {
		r.W, r.Gamma = ws[0], gammas[0]
	}
}

// print writes the report for people.
func (c *fitCmd) print(w io.Writer, r *fitReport) error {
	p := newTable(w)
	p.row("file", r.File)
	p.row("rows", fmt.Sprint(r.Rows))
	if r.Unlabelled > 0 {
		p.row("unlabelled", fmt.Sprint(r.Unlabelled))
	}
	p.row("classes", countedClasses(r.Classes, r.ClassRows))
	p.row("options", describeOptions(r.Options))
	if r.Basis != nil {
		r.Reduction.print(p, r.Basis)
	}
	if r.Method == (svm.Lasso{}).String() {
		p.row("weights", describeWeights(r.Planes))
	}
	if r.Condition != nil {
		p.row("condition", fmt.Sprintf("%.3g", *r.Condition))
	}
	if r.Choice != "" {
		p.row("chosen", r.Choice)
	}
	if r.Test != nil {
		p.row("test accuracy", describeBeside(*r.TestAccuracy, r.Test))
	}
	if r.HeldOut != nil {
		text := describeBeside(mean(r.FoldAccuracies), r.HeldOut) + ", " + describeSpread(r.FoldAccuracies)
		if r.Tuning != nil {
			text += "; the same folds chose nu, which flatters a little"
		}
		p.row("held-out accuracy", text)
	}
	train := percent(r.TrainAccuracy) + " of the rows learned from"
	if r.HeldOut == nil && r.Test == nil {
		train += ", which says little of others: --folds holds rows out"
	}
	p.row("train accuracy", train)
	for _, class := range r.Unanswered {
		p.row("warning", fmt.Sprintf("no row is labelled %q, not even of those learned from", class))
	}
	if r.LOOAccuracy != nil {
		p.row("leave-one-out accuracy", percent(*r.LOOAccuracy))
	}
	if r.Tuning != nil {
		p.row("nu", r.Tuning.describe())
	}
	if r.Refinement != nil {
		p.row("refined", r.Refinement.describe())
		for _, plane := range r.Refinement.Planes {
			p.row("  "+plane.Class, describeRefined(&plane))
		}
	}
	if r.Knowledge != nil {
		r.Knowledge.print(p)
	}
	if r.EpsilonSV != nil {
		r.EpsilonSV.print(p)
	}
	p.decision(r.Decision, r.Planes)
	if r.HeldOut != nil {
		p.row("")
		p.row("held-out rows")
		p.answers(r.HeldOut)
	}
	if r.Test != nil {
		p.row("")
		p.row("test file")
		p.answers(r.Test)
	}
	p.row("seconds", fmt.Sprintf("%.3g", r.Seconds))
	if r.Basis != nil {
		p.kernelPlanes(r.Basis, r.Planes)
	} else {
		p.planes(r.Features, r.Planes)
	}
	return p.flush()
}

func mean(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	return mean
}

// describeBeside has an accuracy beside that of answering the largest class always.
func describeBeside(accuracy float64, a *model.Answers) string {
	return fmt.Sprintf("%s (the largest class alone: %s)", percent(accuracy), percent(a.Baseline))
}

func describeSpread(accuracies []float64) string {
	return fmt.Sprintf("the mean of %d folds between %s and %s", len(accuracies), percent(slices.Min(accuracies)), percent(slices.Max(accuracies)))
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
