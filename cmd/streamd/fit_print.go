package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"streamd/cmd/streamd/fit"
	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/kernels/svm"
)

// fit writes the report for people.
func (t *table) fit(r *fit.Report) {
	t.row("file", r.File)
	t.row("rows", fmt.Sprint(r.Rows))
	if r.Unlabelled > 0 {
		t.row("unlabelled", fmt.Sprint(r.Unlabelled))
	}
	t.row("classes", countedClasses(r.Classes, r.ClassRows))
	t.row("options", describeOptions(r.Options))
	if r.Basis != nil {
		t.basis(r)
	}
	if r.Method == (svm.Lasso{}).String() {
		t.row("weights", describeWeights(r.Planes))
	}
	if r.Condition != nil {
		t.row("condition", fmt.Sprintf("%.3g", *r.Condition))
	}
	if r.Choice != "" {
		t.row("chosen", r.Choice)
	}
	if r.Test != nil {
		t.row("test accuracy", describeBeside(*r.TestAccuracy, r.Test.LargestClass))
	}
	if r.HeldOut != nil {
		text := describeBeside(r.HeldOutAccuracy(), r.HeldOut.LargestClass) + ", " + describeSpread(r.FoldAccuracies)
		if r.Tuning != nil {
			text += "; the same folds chose nu, which flatters a little"
		}
		t.row("held-out accuracy", text)
	}
	if r.NoBetter != "" {
		t.row("warning", "no better than a baseline: "+r.NoBetter)
	}
	if r.Progressive != nil {
		t.progressive(r)
	}
	train := percent(r.TrainAccuracy) + " of the rows learned from"
	if r.HeldOut == nil && r.Test == nil {
		train += ", which says little of others: --folds holds rows out"
	}
	t.row("train accuracy", train)
	for _, class := range r.Unanswered {
		t.row("warning", fmt.Sprintf("no row is labelled %q, not even of those learned from", class))
	}
	if r.LOOAccuracy != nil {
		t.row("leave-one-out accuracy", describeBeside(*r.LOOAccuracy, r.LargestClass()))
	}
	if r.Tuning != nil {
		t.row("nu", describeChoice(r.Tuning))
	}
	if r.Refinement != nil {
		t.row("refined", describeFitted(r.Refinement))
		for _, plane := range r.Refinement.Planes {
			t.row("  "+plane.Class, describeRefined(&plane))
		}
	}
	if r.Knowledge != nil {
		t.rules(r.Knowledge)
	}
	if r.EpsilonSV != nil {
		t.supportVectors(r.EpsilonSV)
	}
	t.decision(r.Decision, r.Planes)
	if r.HeldOut != nil {
		t.row("")
		t.row("held-out rows")
		t.answers(r.HeldOut)
	}
	if r.Test != nil {
		t.row("")
		t.row("test file")
		t.answers(r.Test)
	}
	t.row("seconds", fmt.Sprintf("%.3g", r.Seconds))
	if r.Basis != nil {
		t.kernelPlanes(r.Basis, r.Planes)
	} else {
		t.planes(r.Features, r.Planes)
	}
}

// progressive writes how good planes were for rows that came after theirs.
func (t *table) progressive(of *fit.Report) {
	r, unit := of.Progressive, "rows"
	if of.BlockRows > 0 {
		unit = fmt.Sprintf("blocks of %d rows", of.BlockRows)
	}
	t.row("progressive accuracy", fmt.Sprintf("%s of %s rows, each by planes of the rows before (the largest class alone: %s; as the last label: %s)",
		percent(r.Correctness), weighed(r.Weight), percent(r.LargestClass), percent(*r.LastLabel)))
	t.row("  kappa", fmt.Sprintf("%s; kappa-temporal %s", describeKappa(r.Kappa), describeKappa(r.KappaTemporal)))
	t.row("  planes", fmt.Sprintf("solved again after every %d %s, %s; %s", r.Every, unit, counted(int(r.Solves), "time"), describeOptions(r.Options)))
	if r.Waited > 0 {
		t.row("  not judged", fmt.Sprintf("%d rows before the first planes", r.Waited))
	}
	if r.NoBetter != "" {
		t.row("warning", "no better than a baseline: "+r.NoBetter)
	}
}

// describeBeside has an accuracy beside that of answering the largest class always.
func describeBeside(accuracy, largestClass float64) string {
	return fmt.Sprintf("%s (the largest class alone: %s)", percent(accuracy), percent(largestClass))
}

// describeKappa writes a kappa, which some rows do not have.
func describeKappa(kappa *float64) string {
	if kappa == nil {
		return "–"
	}
	return fmt.Sprintf("%.4f", *kappa)
}

func describeSpread(accuracies []float64) string {
	return fmt.Sprintf("the mean of %d folds between %s and %s", len(accuracies), percent(slices.Min(accuracies)), percent(slices.Max(accuracies)))
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// describeChoice says how ν was chosen.
func describeChoice(r *model.Choice) string {
	text := fmt.Sprintf("%g%s, chosen by the %s of %s on %d folds", r.Nu, describePlanes(r.Standardise, r.Balanced, r.Method, r.Mu), r.Criterion, percent(r.Best), r.Folds)
	text += describeLuckier(r)
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

// describeFitted says how planes were refined.
func describeFitted(r *fit.Refinement) string {
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

// basis writes how the basis was chosen.
func (t *table) basis(of *fit.Report) {
	r, b := of.Reduction, of.Basis
	t.row("kernel", b.Kernel.String())
	scaled := ""
	if b.Scale != nil {
		scaled = ", of scaled features"
	}
	how := fmt.Sprintf("by %s of %s", r.Method, counted(r.Sample, "row"))
	if r.Method == reduceNone {
		how = "all rows"
		switch {
		case of.Refinement != nil && of.Refinement.Tolerance > 0:
			how = fmt.Sprintf("the support vectors of %s", counted(r.Sample, "row"))
		case len(b.Points) < r.Sample:
			how = fmt.Sprintf("of %s, without those that repeat others", counted(r.Sample, "row"))
		}
	}
	t.row("basis", fmt.Sprintf("%s, %s%s, in %.3g s", describeBasis(b), how, scaled, r.Seconds))
	t.row("regulariser", string(b.Regulariser))
	for i := range r.Gammas {
		t.gamma(&r.Gammas[i])
	}
	if r.Unjudged != "" {
		t.row("  gamma", "by the median heuristic: "+r.Unjudged)
	}
	if r.Compared != nil {
		t.bases(r.Compared)
	}
	for i := range r.Stages {
		t.row("  stage", r.Stages[i].String())
	}
}

func (t *table) gamma(g *model.Gamma) {
	t.row(fmt.Sprintf("  gamma %.4g", g.Gamma), fmt.Sprintf("%s of held-out rows are right, at nu %g", percent(g.Correctness), g.Nu))
}

// bases writes correctness against the size of the basis, a row for each reducer.
func (t *table) bases(r *fit.Comparison) {
	t.row("compared", fmt.Sprintf("%s of %s on %s, in %%, with its standard error; in %.3g s",
		r.Criterion, counted(r.Rows, "row"), counted(r.Folds, "fold"), r.Seconds))
	head := []string{"  basis of"}
	for _, size := range r.Sizes {
		head = append(head, fmt.Sprint(size))
	}
	t.row(append(head, "seconds")...)
	fewer := false
	for _, method := range r.Reducers {
		cells := []string{"  " + method}
		seconds := ""
		for _, size := range r.Sizes {
			of := r.Of(method, size)
			if of == nil {
				cells = append(cells, "–")
				continue
			}
			cell := fmt.Sprintf("%.2f ±%.2f", 100*of.Correctness, 100*of.Deviation)
			if of.Coordinates < float64(size)-0.5 {
				cell += fmt.Sprintf(" (%.0f)", of.Coordinates)
				fewer = true
			}
			if of.Chosen {
				cell += " *"
			}
			cells = append(cells, cell)
			if seconds == "" {
				seconds = fmt.Sprintf("%.2g", of.Seconds)
			}
		}
		t.row(append(cells, seconds)...)
	}
	notes := []string{"* is taken: the fewest points within one standard error of the best, in correctness and loss"}
	if fewer {
		notes = append(notes, "(n): n coordinates")
	}
	t.row("  ", strings.Join(append(notes, "seconds are those of a fold and the largest basis"), "; "))
	if r.Untried > 0 {
		t.row("  untried", fmt.Sprintf("%d of %d, for lack of time: see --reduce-time", r.Untried, r.Untried+len(r.Trials)+len(r.Failures)))
	}
	for _, f := range r.Failures {
		t.row("  "+f.Method, fmt.Sprintf("none of %d: %s", f.Basis, f.Reason))
	}
}

// rules writes what became of the rules.
func (t *table) rules(r *fit.Knowledge) {
	t.row("knowledge", fmt.Sprintf("%s, mu %g", counted(len(r.Rules), "rule"), r.Mu))
	for _, rule := range r.Rules {
		text := fmt.Sprintf("%s; slack %.3g; %s, %d of the class", rule.Class, rule.Slack, counted(rule.Rows, "row"), rule.Right)
		t.row("  "+rule.Name, text+restsOn(rule.Support))
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

func (t *table) supportVectors(r *fit.SupportVectors) {
	t.row("ε-support vectors", fmt.Sprintf("%s, of errors below %.3g", counted(r.Rows, "row"), r.Epsilon))
	t.row("  nu", fmt.Sprintf("%g, chosen by the other rows", r.Nu))
	t.row("  train accuracy", percent(r.TrainAccuracy))
	if r.TestAccuracy != nil {
		t.row("  test accuracy", percent(*r.TestAccuracy))
	}
}

// drawComparison writes a picture of the bases that were compared for some data.
func drawComparison(file, data string, r *fit.Comparison) error {
	picture := plot.Sizes{
		Title: fmt.Sprintf("Bases of %s, on %s of %s", filepath.Base(data), counted(r.Rows, "row"), counted(r.Folds, "fold")),
		Up:    r.Criterion + ", %", Marks: r.Sizes,
	}
	for _, method := range r.Reducers {
		line := plot.SizesLine{Name: method}
		for _, size := range slices.Backward(r.Sizes) {
			if t := r.Of(method, size); t != nil {
				line.Points = append(line.Points, plot.Estimate{
					XY: plot.XY{X: t.Coordinates, Y: 100 * t.Correctness}, Error: 100 * t.Deviation, Chosen: t.Chosen,
				})
			}
		}
		if line.Points != nil {
			picture.Lines = append(picture.Lines, line)
		}
	}
	return writePicture(file, picture.SVG)
}

// drawProgressive writes a picture of how good planes were along the rows of some data.
func drawProgressive(file, data string, r *fit.Progressive) error {
	picture := plot.Progress{
		Title: fmt.Sprintf("Progressive accuracy on %s", filepath.Base(data)), Along: "rows", Up: "right, %",
		Lines: []plot.ProgressLine{
			{Name: "planes of the rows before", Mean: r.Correctness},
			{Name: "as the last label", Mean: *r.LastLabel},
			{Name: "always the largest class", Mean: r.LargestClass},
		},
	}
	at := float64(r.Waited)
	for i, c := range r.Course {
		if i > 0 && i == len(r.Course)-1 && 2*c.Rows < r.Course[0].Rows {
			break // of a few rows, chance has its way
		}
		middle := at + float64(c.Rows)/2
		at += float64(c.Rows)
		for i, share := range []float64{c.Correctness, c.LastLabel, c.LargestClass} {
			picture.Lines[i].Points = append(picture.Lines[i].Points, plot.XY{X: middle, Y: 100 * share})
		}
	}
	for i := range picture.Lines {
		picture.Lines[i].Name += fmt.Sprintf(", %.1f %%", 100*picture.Lines[i].Mean)
	}
	return writePicture(file, picture.SVG)
}

// writePicture writes a picture to a file. A failure leaves none.
func writePicture(file string, svg func(io.Writer) error) error {
	var b bytes.Buffer
	if err := svg(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}
