package httpapi

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
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
)

// Judged are the figures of the classes: all of them in the model's order, or of many
// those with the least recall first. A class without rows comes last.
func (v pageView) Judged() []model.ClassAnswers {
	classes := v.Served.Quality.Classes
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
	return classes[:maxJudged]
}

// NotJudged is the number of classes that Judged leaves out.
func (v pageView) NotJudged() int { return max(0, len(v.Served.Quality.Classes)-maxJudged) }

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
func (v pageView) Confused() []confusedView       { return confusedOf(&v.Served.Quality.Answers) }
func (v pageView) StreamConfused() []confusedView { return confusedOf(&v.Stream.Window.Answers) }

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
func (v pageView) Mistakes() []model.Mistake {
	q := v.Served.Quality
	if len(q.Classes) <= maxConfused {
		return nil
	}
	return q.Mistakes[:min(len(q.Mistakes), maxMistakes)]
}

// trustView is a reliability diagram: the observed share over the predicted probability.
// They agree on the diagonal.
type trustView struct {
	Class   string // "": the model as a whole
	Before  *model.Reliability
	After   *model.Reliability
	Picture template.HTML
}

// newTrustViews shows the model as a whole and the first of its planes. A single plane is
// the model as a whole.
func newTrustViews(q *model.Quality) []trustView {
	var views []trustView
	if len(q.Planes) > 1 {
		views = append(views, trustView{Before: q.Before, After: q.After})
	}
	for _, p := range q.Planes[:min(len(q.Planes), maxDiagrams)] {
		views = append(views, trustView{Class: p.Class, Before: p.Before, After: p.After})
	}
	for i, v := range views {
		views[i].Picture = plot.Diagram(append(bubbles(v.Before, true), bubbles(v.After, false)...))
	}
	return views
}

const (
	maxDiagrams = 11 // of planes, beside that of the whole
	maxMarks    = 50 // bins drawn at most
)

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
