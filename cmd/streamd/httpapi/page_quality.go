package httpapi

import (
	"fmt"
	"math"
	"strings"

	"streamd/cmd/streamd/model"
)

// The curves of tuning and the reliability diagrams are SVG paths in the template.

// Refined are the refined planes that the page has room for.
func (v pageView) Refined() []model.PlaneRefinement {
	planes := v.Served.Refinement.Planes
	return planes[:min(len(planes), maxPlanes)]
}

const (
	chartWidth  = 320
	chartHeight = 160
	maxCurves   = 4 // drawn at most
)

// tuningView is the curve of the criterion over log ν.
type tuningView struct {
	*model.Tuning
	Curves []curveView
	// X and Y are the place of the choice.
	X, Y string
	// Ends of the axes.
	FirstNu, LastNu, Least, Most float64
	Share                        bool // Least and Most are shares, not losses
}

type curveView struct {
	Name   string
	Path   string
	Chosen bool // whether the choice lies on it
}

func newTuningView(t *model.Tuning) *tuningView {
	v := &tuningView{Tuning: t, FirstNu: math.Inf(1), Least: math.Inf(1), Most: math.Inf(-1)}
	curves := t.Curves[:min(len(t.Curves), maxCurves)]
	for _, c := range curves {
		for _, p := range c.Points {
			value, more := t.Value(p)
			v.Share = more
			if value == nil || !(p.Nu > 0) {
				continue
			}
			v.FirstNu, v.LastNu = min(v.FirstNu, p.Nu), max(v.LastNu, p.Nu)
			v.Least, v.Most = min(v.Least, *value), max(v.Most, *value)
		}
	}
	if v.Least > v.Most {
		return v // without any figure
	}
	place := func(nu, value float64) (x, y string) {
		right, up := 0.5, 0.5
		if v.LastNu > v.FirstNu {
			right = math.Log(nu/v.FirstNu) / math.Log(v.LastNu/v.FirstNu)
		}
		if v.Most > v.Least {
			up = (value - v.Least) / (v.Most - v.Least)
		}
		return fmt.Sprintf("%.1f", right*chartWidth), fmt.Sprintf("%.1f", (1-up)*chartHeight)
	}
	for _, c := range curves {
		view := curveView{Name: "as they are", Chosen: c.Standardise == t.Standardise && c.Balanced == t.Balanced}
		if c.Standardise {
			view.Name = "standardised"
		}
		if c.Balanced {
			view.Name += ", balanced"
		}
		var path strings.Builder
		pen := "M"
		for _, p := range c.Points {
			value, _ := t.Value(p)
			if value == nil || !(p.Nu > 0) {
				pen = "M" // a gap
				continue
			}
			x, y := place(p.Nu, *value)
			path.WriteString(pen + x + " " + y)
			pen = "L"
		}
		view.Path = path.String()
		v.Curves = append(v.Curves, view)
	}
	v.X, v.Y = place(t.Nu, max(v.Least, min(v.Most, t.Best)))
	return v
}

// trustView is a reliability diagram: the observed share over the predicted probability.
// They agree on the diagonal.
type trustView struct {
	Class  string // "": the model as a whole
	Before *model.Reliability
	After  *model.Reliability
	Marks  []markView
}

type markView struct {
	X, Y, Radius string
	After        bool
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
	for i := range views {
		v := &views[i]
		v.mark(v.Before, false)
		v.mark(v.After, true)
	}
	return views
}

const (
	maxDiagrams  = 11  // of planes, beside that of the whole
	diagramWidth = 160 // and height
	maxMarks     = 50  // bins drawn at most
)

// mark draws the bins as circles whose areas grow with their weights.
func (v *trustView) mark(r *model.Reliability, after bool) {
	if r == nil {
		return
	}
	for _, b := range r.Bins[:min(len(r.Bins), maxMarks)] {
		radius := 2.0
		if r.Weight > 0 {
			radius += 8 * math.Sqrt(b.Weight/r.Weight)
		}
		v.Marks = append(v.Marks, markView{
			X:      fmt.Sprintf("%.1f", b.Probability*diagramWidth),
			Y:      fmt.Sprintf("%.1f", (1-b.Share)*diagramWidth),
			Radius: fmt.Sprintf("%.1f", radius),
			After:  after,
		})
	}
}
