package httpapi

import (
	"cmp"
	"html/template"
	"math"
	"slices"
	"strconv"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/incremental/decision"
)

// modelView is what is served, and how it was made. Without a model it is empty.
type modelView struct {
	served *model.Served
	Planes []planeView // of classes of their own, or the only one
	Range  rangeView   // of the planes
	of     int         // features that a plane has weights for
	// Scaled says that weights are shown times the deviation of their feature. CanScale
	// says that they can be.
	Scaled, CanScale bool
	Tuning           *tuningView // nil without a choice of ν
	Sizes            *sizesView  // nil without a basis, or measured quality
	Form             *formView
}

// newModelView shows a served value. With scaled, weights are shown times the deviations of
// their features, if these are known. The first plane of a list is number from.
func newModelView(served *model.Served, scaled bool, from int) *modelView {
	v := &modelView{served: served}
	if served.Model == nil {
		return v
	}
	m := served.Model.WithoutMissing()
	v.of = len(m.Features)
	v.CanScale = m.Deviation != nil
	v.Scaled = scaled && v.CanScale
	v.Form = newFormView(served)
	if served.Tuning != nil {
		in := "features"
		if served.Basis != nil {
			in = "coordinates"
		}
		v.Tuning = newTuningView(served.Tuning, in)
	}
	if served.Quality != nil {
		v.Sizes = newSizesView(served.Quality, served.Tuning)
	}
	q := "/?view=model"
	if !scaled {
		q += "&weights=" + weightsAsTheyAre
	}
	v.Range = newRange(len(m.Planes), from, maxPlanes, q)
	listed := strongest
	if len(m.Planes) == 1 {
		listed = maxListed
	}
	for i := v.Range.from; i < v.Range.to; i++ {
		p := m.Planes[i]
		weights := p.W
		if v.Scaled {
			weights = scaledWeights(p.W, m.Deviation)
		}
		largest := 0.0
		for _, w := range weights {
			largest = max(largest, math.Abs(w))
		}
		v.Planes = append(v.Planes, planeView{
			Class:     p.Class,
			Rows:      m.Rows[i], // meaningful where each class has a plane
			Gamma:     numberIn(p.Gamma, largest),
			Condition: known(p.Condition),
			Used:      p.Features(),
			Bars:      plot.Bars(weights),
			Strongest: strongestWeights(m.Features, weights, listed),
		})
	}
	return v
}

// Refined are the refined planes that are listed.
func (v *modelView) Refined() []model.PlaneRefinement {
	planes := v.served.Refinement.Planes
	return planes[min(len(planes), v.Range.from):min(len(planes), v.Range.to)]
}

// Decides is the rule that decides labels.
func (v *modelView) Decides() decidesView {
	rule := v.served.DecidesBy()
	d := decidesView{Kind: rule.Kind()}
	if len(v.served.Model.Classes) == 2 {
		d.Threshold = rule.Threshold()
		d.Never, d.Always = d.Threshold == math.MaxFloat64, d.Threshold == -math.MaxFloat64
	}
	return d
}

// Drawable says whether the regions have a picture.
func (v *modelView) Drawable() bool { return drawable(v.served) }

// Unlisted is the number of features of the one plane that are not listed by name though
// their weight is not 0, and Unused of those whose weight is 0.
func (v *modelView) Unlisted() int { return v.Planes[0].Used - len(v.Planes[0].Strongest) }
func (v *modelView) Unused() int   { return v.of - v.Planes[0].Used }

// Weights are the links to the two units of weights.
func (v *modelView) Weights() []linkView {
	return []linkView{{"as importance", "/?view=model", v.Scaled}, {"in own units", "/?view=model&weights=" + weightsAsTheyAre, !v.Scaled}}
}

func (v *modelView) classes() (all []string) {
	for _, p := range v.Planes {
		all = append(all, p.Class)
	}
	if len(v.Planes) == 1 {
		all = append(all, v.served.Model.Classes...)
	}
	return all
}

func (v *modelView) features() (all []string) {
	for _, p := range v.Planes {
		for _, w := range p.Strongest {
			all = append(all, w.Feature)
		}
	}
	if v.Form != nil {
		for _, in := range v.Form.Inputs {
			all = append(all, in.Feature)
		}
	}
	return all
}

// rangeView is the part of a long list that is shown, with links to its neighbours.
type rangeView struct {
	from, to, Of   int
	Earlier, Later string // addresses; "": there is no such part
}

// newRange shows a part of a list of n, of up to most entries from a number on. Query is the
// address without the parameter.
func newRange(n, from, most int, query string) rangeView {
	if from >= n {
		from = max(0, n-1) / most * most // the list has become shorter
	}
	v := rangeView{from: from, to: min(n, from+most), Of: n}
	at := func(from int) string {
		if from <= 0 {
			return query
		}
		return query + "&from=" + strconv.Itoa(from+1)
	}
	if from > 0 {
		v.Earlier = at(from - most)
	}
	if v.to < n {
		v.Later = at(v.to)
	}
	return v
}

// First and Last are the numbers of the ends of the part, from 1.
func (v rangeView) First() int { return v.from + 1 }
func (v rangeView) Last() int  { return v.to }

// decidesView is a rule that decides labels. With two classes a row is of the plane's class
// from the threshold on, never or always.
type decidesView struct {
	Kind          decision.Kind
	Threshold     float64
	Never, Always bool
}

type planeView struct {
	Class     string
	Rows      int64
	Gamma     string
	Condition *float64 // nil: there is none
	Used      int      // features with a weight other than 0
	Bars      template.HTML
	Strongest []weightView
}

type weightView struct {
	Feature  string
	W        string
	Negative bool
	// X and Width place the weight's bar in a box of 200 with 0 in the middle.
	X, Width float64
}

// scaledWeights multiplies weights by the deviations of their features: a weight's share
// of the value of a row that is one deviation from the mean.
func scaledWeights(w, deviation []float64) []float64 {
	scaled := make([]float64, len(w))
	for j := range w {
		scaled[j] = w[j] * deviation[j]
	}
	return scaled
}

// known is x, or nil for a number that is not finite.
func known(x float64) *float64 {
	if x-x != 0 {
		return nil
	}
	return &x
}

// strongestWeights lists up to most features whose weight is not 0. They have their own order
// when all fit, else those with the largest weights come first.
func strongestWeights(features []string, w []float64, most int) []weightView {
	largest := 0.0
	var order []int
	for j, w := range w {
		if w != 0 {
			order = append(order, j)
			largest = max(largest, math.Abs(w))
		}
	}
	if len(order) > most {
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(math.Abs(w[j]), math.Abs(w[i])) })
		order = order[:most]
	}
	views := make([]weightView, len(order))
	for i, j := range order {
		v := weightView{Feature: features[j], W: numberIn(w[j], largest), X: 100, Width: math.Abs(w[j]) / largest * 100, Negative: w[j] < 0}
		if v.Negative {
			v.X -= v.Width
		}
		views[i] = v
	}
	return views
}
