package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/tuning"
)

// refineCmd makes the daemon refine its planes.
type refineCmd struct {
	Wait time.Duration `default:"1m" help:"Time to wait for the end, at most 1m. The refinement goes on after that."`
	daemonFlags
	jsonFlag
}

// Validate implements kong's interface.
func (c *refineCmd) Validate() error {
	if c.Wait < 0 || c.Wait > httpapi.MaxWait {
		return fmt.Errorf("--wait %v: must be 0 to %v", c.Wait, httpapi.MaxWait)
	}
	return nil
}

func (c *refineCmd) Run(ctx context.Context, s *surroundings) error {
	q := question{c.daemonFlags, c.jsonFlag, http.MethodPost, "/v1/refine?wait=" + c.Wait.String(), c.Wait + answerTimeout}
	return show(ctx, s, q, func(t *table, a *httpapi.RefineAnswer) {
		r := a.Refinement
		if r == nil {
			t.row("under way; streamd model shows the refinement once it is done")
			return
		}
		t.row("refined", describeRefinement(r))
		t.row("took", fmt.Sprintf("%.3g s", r.Seconds))
		t.row("digest", r.Digest)
		t.row("CLASS", "OBJECTIVE", "GRADIENT", "GAP", "PROGRAMS", "STEPS", "FEATURES", "SUPPORT VECTORS", "LEAVE-ONE-OUT ERROR")
		known := func(x *float64, format string) string {
			if x == nil {
				return "-"
			}
			return fmt.Sprintf(format, *x)
		}
		for _, p := range r.Planes {
			t.row(p.Class, fmt.Sprintf("%.6g", p.Objective), known(p.Gradient, "%.2g"), known(p.Gap, "%.2g"), fmt.Sprint(p.Programs), fmt.Sprint(p.Iterations),
				fmt.Sprint(p.Features), fmt.Sprint(p.SupportVectors), known(p.LeaveOneOut, "at most %.4g"))
		}
	})
}

// describeWeights says how many weights of each plane are not 0.
func describeWeights(planes []model.PlaneJSON) string {
	var counts []string
	for _, p := range planes {
		count := fmt.Sprint((&incremental.Plane{W: p.W}).Features())
		if len(planes) > 1 {
			count = p.Class + " " + count
		}
		counts = append(counts, count)
	}
	return fmt.Sprintf("%s of %d are not 0", strings.Join(counts, ", "), len(planes[0].W))
}

// describeRefined describes a refined plane.
func describeRefined(p *model.PlaneRefinement) string {
	text := fmt.Sprintf("objective %.6g", p.Objective)
	if p.Gradient != nil {
		text += fmt.Sprintf(", gradient %.2g", *p.Gradient)
	}
	if p.Gap != nil {
		text += fmt.Sprintf(", gap %.2g", *p.Gap)
	}
	if p.Programs > 1 {
		text += ", " + counted(p.Programs, "program")
	}
	text += fmt.Sprintf(", %s, %s, %s", counted(p.Iterations, "step"), counted(p.Features, "weight"), counted(p.SupportVectors, "support vector"))
	if p.LeaveOneOut != nil {
		text += fmt.Sprintf(", leave-one-out error at most %s", percent(*p.LeaveOneOut))
	}
	return text
}

func describeRefinement(r *model.Refinement) string {
	text := fmt.Sprintf("%s, on %d of %d rows from the %s", r.Method, r.Rows, r.Live, r.Source)
	if r.Unlabelled > 0 {
		text += fmt.Sprintf(", %d without a label", r.Unlabelled)
	}
	if !r.Complete {
		text += ", which was incomplete"
	}
	return text
}

// tuningCmd shows how ν was chosen.
type tuningCmd struct {
	daemonFlags
	jsonFlag
}

func (c *tuningCmd) Run(ctx context.Context, s *surroundings) error {
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, "/v1/tuning", answerTimeout}, (*table).tuning)
}

func (t *table) tuning(a *model.Tuning) {
	t.row("chosen", describeTuning(a)+describeLuckier(&a.Choice))
	t.row("at", a.ChosenAt.Local().Format(time.DateTime))
	t.row("digest", a.Digest)
	for _, f := range a.Finals {
		t.row("in the end", fmt.Sprintf("nu %g%s: %s of held-out rows are right (balanced %s)",
			f.Nu, describePlanes(f.Standardise, f.Balanced, f.Method, f.Mu), percent(f.Correctness), percent(f.BalancedCorrectness)))
	}
	t.row("NU", "LOSS", "BALANCED LOSS", "CORRECT", "BALANCED", "CHOSEN", "PLANES")
	for _, curve := range a.Curves {
		planes := "as they are"
		if curve.Standardise {
			planes = "standardised"
		}
		if curve.Balanced {
			planes += ", balanced"
		}
		if model.Refined(curve.Method) {
			planes += ", refined (" + curve.Method + ")"
		}
		if curve.Mu > 0 {
			planes += fmt.Sprintf(", mu %g", curve.Mu)
		}
		for _, p := range curve.Points {
			mark := ""
			if p.Nu == a.Nu && a.Chose(&curve) {
				mark = "*"
			}
			t.row(fmt.Sprintf("%.6g", p.Nu), measured(p.Loss), measured(p.BalancedLoss), shareOf(p.Correctness), shareOf(p.BalancedCorrectness), mark, planes)
		}
	}
}

func describeTuning(a *model.Tuning) string {
	best := fmt.Sprintf("%.6g", a.Best)
	if strings.HasSuffix(a.Criterion, "correctness") {
		best = percent(a.Best)
	}
	text := fmt.Sprintf("nu %g by the %s of %s on %s", a.Nu, a.Criterion, best, counted(a.Folds, "fold"))
	return text + describePlanes(a.Standardise, a.Balanced, a.Method, a.Mu)
}

// describeLuckier names the most correct planes that were tried, where others are served.
func describeLuckier(a *model.Choice) string {
	curve, p := a.Luckier()
	if p == nil {
		return ""
	}
	figure := p.Correctness
	if a.Criterion == tuning.BalancedCorrectness.String() {
		figure = p.BalancedCorrectness
	}
	scale := ""
	if !curve.Standardise {
		scale = ", not standardised"
	}
	return fmt.Sprintf("; the most of all that were tried is %s (nu %g%s%s), as good by the errors of these figures: among such the loss and the scaling decide",
		percent(*figure), p.Nu, scale, describePlanes(curve.Standardise, curve.Balanced, model.MethodPSVM, 0))
}

// describeForgetting says how rows weigh by their age.
func describeForgetting(f *model.Forgetting) string {
	half := counted(f.HalfLifeRows, "row")
	if f.HalfLifeSeconds > 0 {
		half = config.FormatDuration(time.Duration(f.HalfLifeSeconds * float64(time.Second)))
	}
	return fmt.Sprintf("half-life %s; %s weigh %.6g", half, counted(f.Rows, "row"), f.Weight)
}

// describePlanes names the choices besides ν.
func describePlanes(standardise, balanced bool, method string, mu float64) (text string) {
	if standardise {
		text += ", standardised"
	}
	if balanced {
		text += ", balanced"
	}
	if model.Refined(method) {
		text += ", refined (" + method + ")"
	}
	if mu > 0 {
		text += fmt.Sprintf(", mu %g", mu)
	}
	return text
}

// measured formats a number that may be missing.
func measured(x *float64) string {
	if x == nil {
		return "–"
	}
	return fmt.Sprintf("%.6g", *x)
}

func shareOf(x *float64) string {
	if x == nil {
		return "–"
	}
	return percent(*x)
}

// qualityCmd shows how good the answers are.
type qualityCmd struct {
	daemonFlags
	jsonFlag
}

func (c *qualityCmd) Run(ctx context.Context, s *surroundings) error {
	return show(ctx, s, question{c.daemonFlags, c.jsonFlag, http.MethodGet, "/v1/quality", answerTimeout}, (*table).quality)
}

func (t *table) quality(a *model.Quality) {
	t.row("held out", fmt.Sprintf("%s in %s, from the %s", counted(a.Rows, "row"), counted(a.Folds, "fold"), a.Source))
	t.row("decision", "by "+string(a.Decision))
	t.answers(&a.Answers)
	t.row("calibration", string(cmp.Or(a.Calibration, config.CalibrationNone)))
	if a.Better != nil {
		t.row("better", a.Better.String())
	}
	t.sampled(a.Sample)
	t.row("measured", a.MeasuredAt.Local().Format(time.DateTime))
	t.row("digest", a.Digest)
	if len(a.Sizes) > 0 {
		t.row("COORDINATES", "CORRECT", "BALANCED")
		for _, of := range a.Sizes {
			t.row(fmt.Sprint(of.Coordinates), percent(of.Correctness), percent(of.BalancedCorrectness))
		}
	}
	t.row("PROBABILITIES", "ECE", "BRIER", "LOG LOSS")
	if len(a.Planes) > 1 { // a single plane's class stands for all
		t.reliability("all, before", a.Before)
		t.reliability("all, after", a.After)
	}
	for _, p := range a.Planes {
		t.reliability(p.Class+", before", p.Before)
		t.reliability(p.Class+", after", p.After)
	}
	best := a.After
	if best == nil {
		best = a.Before
	}
	if best != nil {
		t.row("SAID", "CAME TRUE", "WEIGHT")
		for _, b := range best.Bins {
			t.row(percent(b.Probability), percent(b.Share), weighed(b.Weight))
		}
	}
}

// mostClasses is the number of classes whose figures are printed, and mostColumns that of a
// confusion matrix. JSON has more.
const (
	mostClasses = 30
	mostColumns = 12
)

// answers prints how good labels are.
func (t *table) answers(a *model.Answers) {
	t.row("correct", fmt.Sprintf("%s (balanced %s, kappa %s; the largest class alone: %s)", percent(a.Correctness), percent(a.BalancedCorrectness), describeKappa(a.Kappa), percent(a.LargestClass)))
	for _, w := range a.Warnings {
		t.row("warning", w)
	}
	if a.Unknown > 0 {
		t.row("unknown", weighed(a.Unknown)+" rows are of classes that the model does not have")
	}
	t.row("CLASS", "ROWS", "LABELLED", "PRECISION", "RECALL", "F1", "AUC")
	for i, c := range a.Classes {
		if i == mostClasses {
			t.row(fmt.Sprintf("and %d more classes", len(a.Classes)-i))
			break
		}
		auc := "–"
		if c.AUC != nil {
			auc = fmt.Sprintf("%.4f", *c.AUC)
		}
		t.row(c.Class, weighed(c.Weight), weighed(c.Answered), shareOf(c.Precision), shareOf(c.Recall), shareOf(c.F1), auc)
	}
	if k := len(a.Confusion); k > 0 && k <= mostColumns {
		head := []string{"TRUE CLASS \\ LABEL"}
		for _, c := range a.Classes {
			head = append(head, c.Class)
		}
		t.row(head...)
		for i, row := range a.Confusion {
			cells := []string{a.Classes[i].Class}
			for _, weight := range row {
				cells = append(cells, weighed(weight))
			}
			t.row(cells...)
		}
		return
	}
	if len(a.Mistakes) > 0 {
		t.row("TRUE CLASS", "LABEL", "ROWS")
		for _, m := range a.Mistakes[:min(len(a.Mistakes), mostColumns)] {
			t.row(m.Class, m.Answer, weighed(m.Weight))
		}
	}
}

// weighed formats the weight of rows: as a whole number from 100 on.
func weighed(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func (t *table) reliability(name string, r *model.Reliability) {
	if r != nil {
		t.row(name, fmt.Sprintf("%.4f", r.Error), fmt.Sprintf("%.4f", r.Brier), fmt.Sprintf("%.4f", r.LogLoss))
	}
}
