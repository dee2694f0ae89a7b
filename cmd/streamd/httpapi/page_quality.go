package httpapi

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/incremental/tuning"
)

// tuningView is the curve of the criterion over log ν.
type tuningView struct {
	*model.Tuning
	In      string        // features or coordinates
	Picture template.HTML // empty without any figure
	Curves  []curveView   // drawn ones
	More    int           // curves that are not drawn
	Share   bool          // the criterion is a share, not a loss
}

// curveView is an entry of the legend.
type curveView struct {
	Style  int // class of the curve: c0, c1, …
	Name   string
	Chosen bool // the choice lies on it
}

// newTuningView shows how ν was chosen for planes in the features, or in the coordinates of
// a basis.
func newTuningView(t *model.Tuning, in string) *tuningView {
	v := &tuningView{Tuning: t, In: in}
	least, most, up := math.Inf(1), math.Inf(-1), t.Criterion
	var curves []plot.Curve
	shown := slices.Clone(t.Curves)
	if at := slices.IndexFunc(shown, func(c model.TuningCurve) bool { return t.Chose(&c) }); at >= plot.MostCurves {
		shown[0], shown[at] = shown[at], shown[0]
	}
	v.More = max(0, len(shown)-plot.MostCurves)
	for i, c := range shown[:len(shown)-v.More] {
		curve := plot.Curve{Chosen: t.Chose(&c)}
		for _, p := range c.Points {
			value, more := t.Value(p)
			at := plot.XY{Y: math.NaN()} // a gap
			if value != nil && p.Nu > 0 {
				at = plot.XY{X: math.Log10(p.Nu), Y: *value}
				least, most = min(least, *value), max(most, *value)
			}
			if v.Share = more; more {
				at.Y *= 100
			}
			curve.Points = append(curve.Points, at)
		}
		curves = append(curves, curve)
		v.Curves = append(v.Curves, curveView{Style: i, Name: curveName(&c, in), Chosen: curve.Chosen})
	}
	if least <= most {
		choice := plot.XY{X: math.Log10(t.Nu), Y: max(least, min(most, t.Best))}
		if v.Share {
			choice.Y *= 100
			up += ", %"
		}
		v.Picture = plot.Curves(curves, choice, up)
	}
	return v
}

// curveName names the options that a curve was measured with.
func curveName(c *model.TuningCurve, in string) string {
	name := in + " as they are"
	if c.Standardise {
		name = "standardised " + in
	}
	if c.Balanced {
		name += ", balanced classes"
	}
	if model.Refined(c.Method) {
		name += ", refined (" + c.Method + ")"
	}
	if c.Mu > 0 {
		name += fmt.Sprintf(", rules of μ %g", c.Mu)
	}
	return name
}

// sizesView is the curve of correctness over the size of a pruned basis.
type sizesView struct {
	Picture template.HTML
	Figure  string // correctness or balanced correctness
	Rows    []sizeView
	Enough  *sizeView // the smallest size that is nearly as good as all coordinates; nil: all are needed
	All     sizeView
}

type sizeView struct {
	Coordinates int
	Right       float64 // share
}

// nearlyRight is the loss of correctness that a smaller basis is worth.
const nearlyRight = 0.005

// newSizesView returns nil unless there are several sizes. It shows the figure by which ν was
// chosen, correctness or balanced correctness.
func newSizesView(q *model.Quality, t *model.Tuning) *sizesView {
	if len(q.Sizes) < 2 {
		return nil
	}
	v := &sizesView{Figure: tuning.Correctness.String()}
	if balanced := tuning.BalancedCorrectness.String(); t != nil && t.Criterion == balanced {
		v.Figure = balanced
	}
	var points plot.XYs
	for _, of := range q.Sizes {
		row := sizeView{of.Coordinates, of.Correctness}
		if v.Figure != tuning.Correctness.String() {
			row.Right = of.BalancedCorrectness
		}
		v.Rows = append(v.Rows, row)
		points = append(points, plot.XY{X: math.Log10(float64(row.Coordinates)), Y: 100 * row.Right})
	}
	v.All = v.Rows[len(v.Rows)-1]
	for i, row := range v.Rows[:len(v.Rows)-1] {
		if row.Right >= v.All.Right-nearlyRight {
			v.Enough = &v.Rows[i]
			break
		}
	}
	v.Picture = plot.SizeCurve(points, points[len(points)-1], "coordinates", v.Figure+", %")
	return v
}

const (
	maxJudged   = 24 // classes whose figures are listed
	maxConfused = 12 // classes of a confusion matrix
	maxMistakes = 10 // pairs of classes where there is no matrix
	heats       = 5  // shades of a confusion matrix
	maxAlarms   = 5
)

// qualityView is how good answers are: for rows as they came, and for held-out rows.
type qualityView struct {
	Stream *model.Prequential
	On     *model.Quality // nil: not measured
	Absent string         // why
	Judged []model.ClassAnswers
	Range  rangeView  // of the classes
	Trust  *trustView // nil: not measured
}

// newQualityView draws the reliability for a class, or for all, and lists classes from a number on.
func newQualityView(served *model.Served, stream *model.Prequential, class string, from int) *qualityView {
	v := &qualityView{Stream: stream, Absent: served.Absent.Quality}
	if served.Model == nil || served.Quality == nil {
		return v
	}
	v.On = served.Quality
	q := "/?view=quality"
	if class != "" {
		q += "&class=" + url.QueryEscape(class)
	}
	v.Range = newRange(len(v.On.Classes), from, maxJudged, q)
	v.Judged = inOrder(v.On.Classes)[v.Range.from:v.Range.to]
	v.Trust = newTrustView(v.On, class, v.Judged)
	return v
}

// inOrder has the classes in the model's order, or of many those with the least recall first. A
// class without rows comes last.
func inOrder(classes []model.ClassAnswers) []model.ClassAnswers {
	if len(classes) <= maxJudged {
		return classes
	}
	recall := func(c model.ClassAnswers) float64 {
		if c.Recall == nil {
			return math.Inf(1)
		}
		return *c.Recall
	}
	classes = slices.Clone(classes)
	slices.SortStableFunc(classes, func(a, b model.ClassAnswers) int {
		return cmp.Or(cmp.Compare(recall(a), recall(b)), cmp.Compare(b.Weight, a.Weight))
	})
	return classes
}

// Sorted says whether the classes with the least recall come first.
func (v *qualityView) Sorted() bool { return len(v.On.Classes) > maxJudged }

// Progressive are the progressive figures, nil if there are none.
func (v *qualityView) Progressive() *model.Stretch {
	if v.Stream.Progressive == nil {
		return nil
	}
	return v.Stream.Progressive.Figures
}

// Alarms are the latest ones of the drift detectors.
func (v *qualityView) Alarms() []model.Alarm {
	return v.Stream.Drift.Alarms[:min(len(v.Stream.Drift.Alarms), maxAlarms)]
}

func (v *qualityView) classes() (all []string) {
	for _, c := range v.Judged {
		all = append(all, c.Class)
	}
	if v.Trust != nil {
		for _, f := range v.Trust.Figures {
			all = append(all, f.Class)
		}
	}
	if w := v.Stream.Window; w != nil && len(w.Classes) <= maxConfused {
		for _, c := range w.Classes {
			all = append(all, c.Class)
		}
	}
	return all
}

// confusedView is a row of the confusion matrix.
type confusedView struct {
	Class string
	Cells []cellView
}

// cellView is the weight of rows with a label. Heat is the share of the class's rows, from
// 0 to heats.
type cellView struct {
	Weight float64
	Right  bool
	Heat   int
}

// Confused is the confusion matrix of held-out rows, and StreamConfused that of the latest
// judged ones.
func (v *qualityView) Confused() []confusedView       { return confusedOf(&v.On.Answers) }
func (v *qualityView) StreamConfused() []confusedView { return confusedOf(&v.Stream.Window.Answers) }

// confusedOf is the confusion matrix of few classes, without those rows of unknown classes.
func confusedOf(q *model.Answers) (rows []confusedView) {
	if len(q.Confusion) > maxConfused {
		return nil
	}
	for i, weights := range q.Confusion {
		total := 0.0
		for _, w := range weights {
			total += w
		}
		row := confusedView{Class: q.Classes[i].Class}
		for j, w := range weights {
			cell := cellView{Weight: w, Right: i == j}
			if total > 0 {
				cell.Heat = int(math.Ceil(heats * w / total))
			}
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

// Mistakes are the most frequent ones of many classes.
func (v *qualityView) Mistakes() []model.Mistake {
	if len(v.On.Classes) <= maxConfused {
		return nil
	}
	return v.On.Mistakes[:min(len(v.On.Mistakes), maxMistakes)]
}

// trustView is a reliability diagram, the observed share over the predicted probability, with
// the figures of the model as a whole and of planes, and links that choose one for the diagram.
type trustView struct {
	Of      reliabilityView
	Picture template.HTML
	Figures []reliabilityView
	Unknown bool // the class that was asked for has no plane
	// Choices are the classes of all planes, for a form, where the figures are of some of them.
	Choices []choiceView
}

// maxChoices bounds the options of a form.
const maxChoices = 1000

// choiceView is an option of a form.
type choiceView struct {
	Class string
	Here  bool
}

// Kept identifies the form for page.js, so that it stays open.
func (v *trustView) Kept() string { return fmt.Sprintf("%d %s", len(v.Choices), v.Of.Class) }

// reliabilityView is the reliability of the probabilities of a class, or of all together.
type reliabilityView struct {
	Class         string // "": the model as a whole
	Href          string // address that draws it
	Here          bool   // it is drawn
	Before, After *model.Reliability
}

// newTrustView draws the figures of a class, or of the whole for "". A single plane is the
// model as a whole. It lists the planes of some classes.
func newTrustView(q *model.Quality, class string, listed []model.ClassAnswers) *trustView {
	v := &trustView{}
	if len(q.Planes) == 1 {
		p := q.Planes[0]
		v.Figures = []reliabilityView{{Class: p.Class, Here: true, Before: p.Before, After: p.After}}
		v.Of = v.Figures[0]
	} else {
		v.Of = reliabilityView{Before: q.Before, After: q.After, Href: "/?view=quality#trust", Here: true}
		v.Unknown = class != ""
		v.Figures = []reliabilityView{v.Of}
		shown := map[string]bool{}
		for _, c := range listed {
			shown[c.Class] = true
		}
		for _, p := range q.Planes {
			f := reliabilityView{Class: p.Class, Before: p.Before, After: p.After, Here: p.Class == class, Href: "/?view=quality&class=" + url.QueryEscape(p.Class) + "#trust"}
			if f.Here {
				v.Of, v.Unknown, v.Figures[0].Here = f, false, false
			}
			if shown[p.Class] || f.Here {
				v.Figures = append(v.Figures, f)
			}
			v.Choices = append(v.Choices, choiceView{p.Class, f.Here})
		}
		if n := len(v.Choices); n <= maxJudged || n > maxChoices {
			v.Choices = nil // all are in the list, or it has to be paged
		}
	}
	if v.Of.Before == nil && v.Of.After == nil {
		return v
	}
	v.Picture = plot.Diagram(append(bubbles(v.Of.Before, true), bubbles(v.Of.After, false)...))
	return v
}

const maxMarks = 50 // bins drawn at most

// bubbles are the bins as circles whose areas grow with their weights.
func bubbles(r *model.Reliability, before bool) (some []plot.Bubble) {
	if r == nil {
		return nil
	}
	for _, b := range r.Bins[:min(len(r.Bins), maxMarks)] {
		bubble := plot.Bubble{XY: plot.XY{X: b.Probability, Y: b.Share}, Before: before}
		if r.Weight > 0 {
			bubble.Weight = b.Weight / r.Weight
		}
		some = append(some, bubble)
	}
	return some
}
