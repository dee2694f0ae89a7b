package httpapi

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
	"streamd/incremental/decision"
)

// The page is rendered here, and its figures need no script. page.js fetches it again every
// two seconds and swaps the sections that have changed. A caller who may not read gets
// signin.html. There page.js takes a token, which access.js keeps in the tab's
// sessionStorage and sends with every fetch.
//
// A section with data-keep is filled by a script of its own. history.js draws with uPlot
// (MIT licence), whose files are those of its package uplot, version 1.6.32:
// dist/uPlot.iife.min.js, dist/uPlot.min.css and LICENSE. A test has their checksums.

//go:embed assets
var assetFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"count":     thousands[int64],
	"thousands": thousands[int],
	"s":         plural,
	"ago":       func(t, now time.Time) string { return roughly(now.Sub(t)) + " ago" },
	"roughly":   func(seconds float64) string { return roughly(time.Duration(min(seconds, 1e9) * float64(time.Second))) },
	"clock":     func(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05") },
	"percent":   func(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" },
	"weight":    weight,
	"num":       func(x float64) string { return strings.ReplaceAll(strconv.FormatFloat(x+0, 'g', 5, 64), "-", "−") }, // -0 + 0 is 0
}).ParseFS(assetFiles, "assets/page.html", "assets/signin.html"))

// assets are the page's other files with their ETags.
var assets = func() map[string]asset {
	all := map[string]asset{}
	for name, contentType := range map[string]string{
		"page.css":      "text/css; charset=utf-8",
		"page.js":       "text/javascript; charset=utf-8",
		"access.js":     "text/javascript; charset=utf-8",
		"history.js":    "text/javascript; charset=utf-8",
		"blocks.js":     "text/javascript; charset=utf-8",
		"predict.js":    "text/javascript; charset=utf-8",
		"uPlot.js":      "text/javascript; charset=utf-8",
		"uPlot.css":     "text/css; charset=utf-8",
		"uPlot.LICENSE": "text/plain; charset=utf-8",
		"icon.svg":      "image/svg+xml",
	} {
		content, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the file is embedded
		}
		all[name] = asset{content, contentType, tagOf(content)}
	}
	return all
}()

type asset struct {
	content     []byte
	contentType string
	tag         string
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request) error {
	a, ok := assets[r.PathValue("name")]
	if !ok {
		return errNoPath
	}
	if hasBytes(w, r, a.tag) {
		return nil
	}
	write(w, http.StatusOK, a.contentType, a.content)
	return nil
}

// pageView is the content of the template.
type pageView struct {
	Now      time.Time
	Status   Status
	Served   *model.Served
	Stream   *model.Prequential
	Planes   []planeView
	features int // that a plane has weights for
	// Scaled says that weights are shown times the deviation of their feature. CanScale
	// says that they can be.
	Scaled, CanScale bool
	Tuning           *tuningView // nil without a choice of ν
	Trust            []trustView // empty without measured quality
	Sizes            *sizesView  // nil without a basis, or measured quality
	// NotShown is the number of planes beyond maxPlanes.
	NotShown   int
	Rate       *int64    // rows a second in the last minute; nil: it is not known
	Form       *formView // nil without a model
	Keys       bool      // blocks are named by keys
	Retires    bool      // a caller can show who it is, and retire blocks
	Partitions []partitionView
	MorePart   int   // partitions beyond maxPartitions
	Lag        int64 // −1: it is not known
}

// Limits that keep the page small for any model and any topic.
const (
	maxPlanes     = 24
	maxPartitions = 64
	strongest     = 3
	maxListed     = 24 // weights of a single plane
)

const weightsAsImportance, weightsAsTheyAre = "importance", "own"

var pageWeights = &parameter[string]{
	name: "weights", kind: oneOf(weightsAsImportance, weightsAsTheyAre), otherwise: weightsAsImportance,
	meaning: "Weights on the page: `importance` multiplies them by the standard deviation of their feature, `own` leaves them in the feature's own units.",
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	served, _ := s.service.Served()
	view := newPageView(served, s.service.Status(), time.Now(), pageWeights.of(r) == weightsAsImportance)
	view.Retires = s.config.Access.TakesTokens() || s.config.Access.TLS() != nil
	view.Stream = s.service.Prequential()
	view.Rate = lastRate(s.service.History(model.SpanMinutes))
	return writePage(w, http.StatusOK, "page.html", view)
}

// signIn answers with a page that asks for a token, and says why the token of the request
// is refused.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request, why *failure) error {
	s.logRefusal(r, http.StatusUnauthorized, why.message)
	w.Header().Set("WWW-Authenticate", bearer)
	message := ""
	if r.Header.Get("Authorization") != "" {
		message = why.message
	}
	return writePage(w, http.StatusUnauthorized, "signin.html", message)
}

func writePage(w http.ResponseWriter, status int, template string, view any) error {
	var out bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&out, template, view); err != nil {
		return fmt.Errorf("render %s: %w", template, err)
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' blob:; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	write(w, status, "text/html; charset=utf-8", out.Bytes())
	return nil
}

// newPageView shows a served value. With scaled, weights are shown times the deviations of
// their features, if these are known.
func newPageView(served *model.Served, status Status, now time.Time, scaled bool) pageView {
	v := pageView{Now: now, Status: status, Served: served, Lag: status.Lag()}
	v.CanScale = served.Model != nil && served.Model.Deviation != nil
	v.Scaled = scaled && v.CanScale
	for _, p := range status.Partitions {
		if len(v.Partitions) < maxPartitions {
			v.Partitions = append(v.Partitions, partitionView{p})
		}
	}
	v.MorePart = len(status.Partitions) - len(v.Partitions)
	v.Keys = status.Keys
	if served.Model != nil {
		v.Form = newFormView(served)
	}
	if served.Model != nil && served.Tuning != nil {
		in := "features"
		if served.Basis != nil {
			in = "coordinates"
		}
		v.Tuning = newTuningView(served.Tuning, in)
	}
	if served.Model != nil && served.Quality != nil {
		v.Trust, v.Sizes = newTrustViews(served.Quality), newSizesView(served.Quality, served.Tuning)
	}
	if served.Model != nil {
		m := served.Model.WithoutMissing()
		v.features = len(m.Features)
		shown := min(len(m.Planes), maxPlanes)
		v.NotShown = len(m.Planes) - shown
		listed := strongest
		if len(m.Planes) == 1 {
			listed = maxListed
		}
		for i, p := range m.Planes[:shown] {
			weights := p.W
			if v.Scaled {
				weights = scaledWeights(p.W, m.Deviation)
			}
			v.Planes = append(v.Planes, planeView{
				Class:     p.Class,
				Rows:      m.Rows[i], // meaningful where each class has a plane
				Gamma:     p.Gamma,
				Condition: known(p.Condition),
				Used:      p.Features(),
				Bars:      plot.Bars(weights),
				Strongest: strongestWeights(m.Features, weights, listed),
			})
		}
	}
	return v
}

// lastRate is the mean rate of the last minute in rows a second; nil: it is not known.
func lastRate(h *model.History) *int64 {
	var sum float64
	var n int
	for _, rate := range h.RowsPerSecond[max(0, len(h.RowsPerSecond)-int(60/h.Seconds)):] {
		if rate != nil {
			sum += *rate
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return new(int64(math.Round(sum / float64(n))))
}

// Health is the state of the daemon in a few words. The class is that of the style sheet.
func (v pageView) Health() (h struct{ Class, Text string }) {
	switch {
	case v.Status.NotReady != "":
		h.Class, h.Text = "bad", "not ready"
	case len(v.Status.Problems) > 0 && v.Status.Problems[0].Level() == LevelFailure:
		h.Class, h.Text = "bad", "ready, with failures"
	case len(v.Status.Problems) > 0:
		h.Class, h.Text = "warn", "ready, with problems"
	default:
		h.Class, h.Text = "good", "ready"
	}
	return h
}

// Refined are the refined planes that the page has room for.
func (v pageView) Refined() []model.PlaneRefinement {
	planes := v.Served.Refinement.Planes
	return planes[:min(len(planes), maxPlanes)]
}

// Decides is the rule that decides labels.
func (v pageView) Decides() decidesView {
	rule := v.Served.DecidesBy()
	d := decidesView{Kind: rule.Kind()}
	if len(v.Served.Model.Classes) == 2 {
		d.Threshold = rule.Threshold()
		d.Never, d.Always = d.Threshold == math.MaxFloat64, d.Threshold == -math.MaxFloat64
	}
	return d
}

// Drawable says whether the regions have a picture.
func (v pageView) Drawable() bool { return drawable(v.Served) }

// Unlisted is the number of features of the one plane that are not listed by name though
// their weight is not 0, and Unused of those whose weight is 0.
func (v pageView) Unlisted() int { return v.Planes[0].Used - len(v.Planes[0].Strongest) }
func (v pageView) Unused() int   { return v.features - v.Planes[0].Used }

type partitionView struct{ model.Partition }

// Percent is the share of the retained log that has been read, 0 to 100.
func (p partitionView) Percent() int {
	size := p.HighWatermark - p.LogStart
	if p.Next < 0 || p.LogStart < 0 || size <= 0 {
		return 100
	}
	return int(min(100, max(0, 100*float64(p.Next-p.LogStart)/float64(size))))
}

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
	Gamma     float64
	Condition *float64 // nil: there is none
	Used      int      // features with a weight other than 0
	Bars      template.HTML
	Strongest []weightView
}

type weightView struct {
	Feature string
	W       float64
	// X and Width place the weight's bar in a box of 200 with 0 in the middle.
	X, Width float64
}

// Negative says whether the weight is below 0.
func (w weightView) Negative() bool { return math.Signbit(w.W) }

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
		v := weightView{Feature: features[j], W: w[j], X: 100, Width: math.Abs(w[j]) / largest * 100}
		if v.Negative() {
			v.X -= v.Width
		}
		views[i] = v
	}
	return views
}

// plural is the ending of a noun for n things.
func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// thousands writes n in groups of three digits.
func thousands[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	first := len(digits) % 3
	if n < 0 {
		first = (1 + (len(digits)-1)%3) % 3 // the sign stands before the groups
	}
	var grouped strings.Builder
	for i, d := range digits {
		if i > 0 && i%3 == first && digits[i-1] != '-' {
			grouped.WriteRune('\u202f') // narrow no-break space
		}
		grouped.WriteRune(d)
	}
	return grouped.String()
}

// weight writes a sum of weights, which is a number of rows where these are 1.
func weight(x float64) string {
	if math.Abs(x) < 1e15 && (x == math.Trunc(x) || math.Abs(x) >= 1000) {
		return thousands(int64(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// roughly writes a duration in one unit.
func roughly(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours())/24)
}
