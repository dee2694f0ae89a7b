package httpapi

import (
	"html/template"
	"math"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
)

const maxCurves = 4 // drawn at most

// tuningView is the curve of the criterion over log ν.
type tuningView struct {
	*model.Tuning
	Picture template.HTML // empty without any figure
	Dashed  []string      // names of the curves that the choice does not lie on
	// Ends of the axes.
	FirstNu, LastNu, Least, Most float64
	Share                        bool // Least and Most are shares, not losses
}

func newTuningView(t *model.Tuning) *tuningView {
	v := &tuningView{Tuning: t, FirstNu: math.Inf(1), Least: math.Inf(1), Most: math.Inf(-1)}
	var curves []plot.Curve
	for _, c := range t.Curves[:min(len(t.Curves), maxCurves)] {
		curve := plot.Curve{Dashed: c.Standardise != t.Standardise || c.Balanced != t.Balanced}
		for _, p := range c.Points {
			value, more := t.Value(p)
			v.Share = more
			at := plot.XY{Y: math.NaN()} // a gap
			if value != nil && p.Nu > 0 {
				at = plot.XY{X: math.Log(p.Nu), Y: *value}
				v.FirstNu, v.LastNu = min(v.FirstNu, p.Nu), max(v.LastNu, p.Nu)
				v.Least, v.Most = min(v.Least, *value), max(v.Most, *value)
			}
			curve.Points = append(curve.Points, at)
		}
		curves = append(curves, curve)
		if curve.Dashed {
			name := "as they are"
			if c.Standardise {
				name = "standardised"
			}
			if c.Balanced {
				name += ", balanced"
			}
			v.Dashed = append(v.Dashed, name)
		}
	}
	if v.Least <= v.Most {
		v.Picture = plot.Curves(curves, plot.XY{X: math.Log(t.Nu), Y: max(v.Least, min(v.Most, t.Best))})
	}
	return v
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
