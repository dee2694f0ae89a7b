package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/model"
	"streamd/config"
)

// The page has several views, each of which answers one question. Views and their lists are
// chosen by the query, so that links do it and a reload stays where it was. All is rendered here
// and needs no script, but for the form that classifies rows and what changes something, which
// takes a token: the retirement of blocks, and saying that problems have been seen. page.js fetches
// the page again every two seconds and swaps the sections that have changed. A caller who may not
// read gets signin.html. There page.js takes a token, which access.js keeps in the tab's
// sessionStorage and sends with every fetch.
//
// A section with data-keep stays until the value of data-keep changes. history.js draws with
// uPlot (MIT licence), whose files are those of its package uplot, version 1.6.32:
// dist/uPlot.iife.min.js, dist/uPlot.min.css and LICENSE. A test has their checksums.

//go:embed assets
var assetFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"count":     thousands[int64],
	"thousands": thousands[int],
	"s":         plural,
	"ago":       func(t, now time.Time) string { return roughly(now.Sub(t)) + " ago" },
	"roughly":   func(seconds float64) string { return roughly(time.Duration(min(seconds, 1e9) * float64(time.Second))) },
	"clock":     clock,
	"percent":   percent,
	"occurring": occurring,
	"weight":    weight,
	"num":       number,
	"seconds":   seconds,
	"rate":      rowsPerSecond,
	"text":      keyText,
	"tight":     tight,
}).ParseFS(assetFiles, "assets/*.html"))

// assets are the page's other files with their ETags.
var assets = func() map[string]asset {
	all := map[string]asset{}
	for name, contentType := range map[string]string{
		"page.css":      "text/css; charset=utf-8",
		"page.js":       "text/javascript; charset=utf-8",
		"access.js":     "text/javascript; charset=utf-8",
		"history.js":    "text/javascript; charset=utf-8",
		"blocks.js":     "text/javascript; charset=utf-8",
		"seen.js":       "text/javascript; charset=utf-8",
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

// pageView is the content of the templates.
type pageView struct {
	Now    time.Time
	Name   string // of the view
	Title  string // of the view
	Status Status
	Served *model.Served
	names  names

	Problems []problemView
	Glance   *glanceView // of the overview
	Seen     *seenView   // nil: there is nothing to be seen away, or the reader may not
	Model    *modelView  // of the view model
	Quality  *qualityView
	Stream   *streamView
	Blocks   *blocksView
	Past     *pastView
	Receipts *receiptsView
}

// Limits that keep the page small for any model and any topic.
const (
	maxPlanes     = 24
	maxPartitions = 64
	strongest     = 3
	maxListed     = 24 // weights of a single plane
	maxProblems   = 12
)

// The views, in the order of the navigation.
const (
	viewOverview = "overview"
	viewModel    = "model"
	viewQuality  = "quality"
	viewStream   = "stream"
	viewBlocks   = "blocks"
	viewPast     = "past"
	viewReceipts = "receipts"
)

var viewNames = []string{viewOverview, viewModel, viewQuality, viewStream, viewBlocks, viewPast, viewReceipts}

var viewTitles = map[string]string{
	viewOverview: "Overview", viewModel: "Model", viewQuality: "Quality", viewStream: "Stream",
	viewBlocks: "Blocks", viewPast: "Past", viewReceipts: "Receipts",
}

const weightsAsImportance, weightsAsTheyAre = "importance", "own"

const listLive, listArchived = "live", "archived"

var (
	pageShown = &parameter[string]{
		name: "view", kind: oneOf(viewNames...), otherwise: viewOverview,
		meaning: "View of the page.",
	}
	pageWeights = &parameter[string]{
		name: "weights", kind: oneOf(weightsAsImportance, weightsAsTheyAre), otherwise: weightsAsImportance,
		meaning: "Weights on the page: `importance` multiplies them by the standard deviation of their feature, `own` leaves them in the feature's own units.",
	}
	pageFrom = &parameter[int]{
		name: "from", kind: wholeNumber, otherwise: 1,
		meaning: "Number of the first class or plane that the page lists, from 1.",
	}
	pageClass = &parameter[string]{
		name: "class", kind: anyText,
		meaning: "Class whose reliability the page draws; that of the whole model if empty.",
	}
	pageSpan = &parameter[string]{
		name: "span", kind: oneOf(string(model.SpanMinutes), string(model.SpanHours), string(model.SpanDays)),
		meaning: "Span of the page's charts; if absent, the shortest one in which rows were read.",
	}
	pageList = &parameter[string]{
		name: "list", kind: oneOf(listLive, listArchived), otherwise: listLive,
		meaning: "Blocks that the page lists.",
	}
	pageAfter = &parameter[string]{
		name: "after", kind: anyText,
		meaning: "The page lists the blocks behind this id.",
	}
)

var pageQuery = []described{pageShown, pageWeights, pageFrom, pageClass, pageSpan, pageList, pageAfter}

func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	v := s.newPageView(pageShown.of(r))
	switch v.Name {
	case viewOverview:
		events, _, _ := s.service.Events("")
		v.Glance = newGlanceView(v, s.service.Prequential(), s.service.History, events)
		v.Seen = s.newSeenView(r.Context(), v.Status.Problems)
	case viewModel:
		v.Model = newModelView(v.Served, pageWeights.of(r) == weightsAsImportance, pageFrom.of(r)-1)
	case viewQuality:
		v.Quality = newQualityView(v.Served, s.service.Prequential(), pageClass.of(r), pageFrom.of(r)-1)
	case viewStream:
		v.Stream = newStreamView(&v.Status, lastRate(s.service.History(model.SpanMinutes)))
	case viewBlocks:
		blocks, err := s.newBlocksView(r.Context(), &v.Status, pageList.of(r) == listArchived, pageAfter.of(r))
		if err != nil {
			return err
		}
		v.Blocks = blocks
	case viewPast:
		events, _, _ := s.service.Events("")
		v.Past = newPastView(s.service.History, s.service.Prequential(), model.Span(pageSpan.of(r)), events)
	case viewReceipts:
		receipts, err := s.newReceiptsView(r.Context())
		if err != nil {
			return err
		}
		v.Receipts = receipts
	}
	v.names = v.collectNames()
	return writePage(w, http.StatusOK, "page.html", v)
}

// newPageView has what all views show.
func (s *Server) newPageView(name string) *pageView {
	served, _ := s.service.Served()
	v := &pageView{Now: time.Now(), Name: name, Title: viewTitles[name], Served: served, Status: s.service.Status()}
	v.Problems = newProblemViews(&v.Status)
	return v
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
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	write(w, status, "text/html; charset=utf-8", out.Bytes())
	return nil
}

// Views are the entries of the navigation.
func (v *pageView) Views() (all []linkView) {
	for _, name := range viewNames {
		link := linkView{Text: viewTitles[name], Href: "/?view=" + name, Here: name == v.Name}
		if name == viewOverview {
			link.Href = "/"
		}
		all = append(all, link)
	}
	return all
}

// linkView is an entry of a list of links, one of which is for what is shown.
type linkView struct {
	Text, Href string
	Here       bool
}

// Is is a name as the page shows it.
func (v *pageView) Is(name string) nameView { return v.names.of(name) }

// collectNames chooses what is shown of the long names of the view.
func (v *pageView) collectNames() names {
	n := names{}
	if v.Model != nil {
		n.add(v.Model.classes())
		n.add(v.Model.features())
	}
	if v.Quality != nil {
		n.add(v.Quality.classes())
	}
	if v.Blocks != nil {
		n.add(v.Blocks.ids())
	}
	return n
}

// Health is the state of the daemon in a few words. The class is that of the style sheet.
func (v *pageView) Health() (h struct{ Class, Text string }) {
	n := 0 // problems that are more than hints
	for _, p := range v.Status.Problems {
		if p.Level() != LevelHint {
			n++
		}
	}
	what := fmt.Sprintf("%d problem%s", n, plural(n))
	switch {
	case v.Status.NotReady != "":
		h.Class, h.Text = "bad", "not ready"
	case n > 0 && v.Status.Problems[0].Level() == LevelFailure:
		h.Class, h.Text = "bad", "ready, with "+what
	case n > 0:
		h.Class, h.Text = "warn", "ready, with "+what
	default:
		h.Class, h.Text = "good", "ready"
	}
	return h
}

// NoModel says why there is none.
func (v *pageView) NoModel() string {
	if v.Served.Rows > 0 {
		return v.Served.Problem
	}
	return v.Status.empty(true)
}

// problemView is a line of the banner.
type problemView struct {
	Key    string // tells it from others
	Class  string // bad, warn or hint
	Text   string
	Detail string // "": there are no names
	Action string // what to do; "": nothing
	When   string
}

// newProblemViews lists the problems, and why the daemon is not ready.
func newProblemViews(s *Status) (all []problemView) {
	for _, p := range s.listed() {
		v := problemView{Key: string(p.Kind) + " " + p.Subject, Class: "warn", Text: p.Text, Detail: p.Detail, Action: p.Action}
		switch p.Level() {
		case LevelFailure:
			v.Class = "bad"
		case LevelHint:
			v.Class = "hint"
		}
		if !p.Since.IsZero() {
			v.When = "since " + clock(p.Since)
		}
		if !p.Last.IsZero() {
			v.When += ", last " + clock(p.Last) + "; stays until it has passed, or POST /v1/status/seen says that it was seen"
		}
		all = append(all, v)
	}
	return all
}

// seenView is the form that says that problems have been seen.
type seenView struct {
	Until string // what has happened up to this time
	Asks  bool   // for a token, since the reader's own, if there is one, may not
}

func (s *Server) newSeenView(ctx context.Context, problems []Problem) *seenView {
	asks, may := s.acts(ctx, config.RoleAdmin)
	var last time.Time
	for _, p := range problems {
		if p.Last.After(last) {
			last = p.Last
		}
	}
	if last.IsZero() || !may {
		return nil
	}
	return &seenView{last.UTC().Format(time.RFC3339Nano), asks}
}

// acts reports whether a reader of the page can make calls of a role: the reader may already, or
// can show a token that may, which the page asks for.
func (s *Server) acts(ctx context.Context, role config.Role) (asks, can bool) {
	caller := access.CallerOf(ctx)
	may := caller.Name != "" && caller.Roles.Has(role)
	asks = !may && s.config.Access.TakesTokens()
	return asks, may || asks
}

// Shown are the lines that the banner has room for, and Hidden is the number of others.
func (v *pageView) Shown() []problemView { return v.Problems[:min(len(v.Problems), maxProblems)] }
func (v *pageView) Hidden() int          { return max(0, len(v.Problems)-maxProblems) }

// streamView says what became of what was read.
type streamView struct {
	Lag        int64    // −1: it is not known
	Rate       *float64 // rows a second in the last minute; nil: it is not known
	Partitions []partitionView
	Sorted     bool // those of many partitions that are furthest behind come first
	More       int  // partitions beyond maxPartitions
}

func newStreamView(s *Status, rate *float64) *streamView {
	v := &streamView{Lag: s.Lag(), Rate: rate}
	all := s.Partitions
	if v.Sorted = len(all) > maxPartitions; v.Sorted {
		all = slices.Clone(all)
		waits := func(p model.Partition) uint64 { return uint64(p.Lag()) } // that of an unknown lag is the largest
		slices.SortStableFunc(all, func(a, b model.Partition) int { return cmp.Compare(waits(b), waits(a)) })
	}
	for _, p := range all[:min(len(all), maxPartitions)] {
		v.Partitions = append(v.Partitions, partitionView{p})
	}
	v.More = len(s.Partitions) - len(v.Partitions)
	return v
}

type partitionView struct{ model.Partition }

// Percent is the share of the retained log that has been read, 0 to 100.
func (p partitionView) Percent() int {
	size := p.HighWatermark - p.LogStart
	if p.Next < 0 || p.LogStart < 0 || size <= 0 {
		return 100
	}
	return int(min(100, max(0, 100*float64(p.Next-p.LogStart)/float64(size))))
}

// blocksView is a part of the list of live or archived blocks.
type blocksView struct {
	Blocks   []BlockInfo
	After    string // where the part begins
	Next     string // where the next part begins; "": it is the last one
	Archived bool
	Keys     bool // blocks are named by keys
	// Retires says that the reader can retire blocks: it may already, or it can show a token that
	// may, which Asks says.
	Retires, Asks bool
	Problem       string // why there is no list
}

const (
	blocksShown = 20
	blocksWait  = time.Second // for a loop that is busy
)

func (s *Server) newBlocksView(ctx context.Context, status *Status, archived bool, after string) (*blocksView, error) {
	v := &blocksView{After: after, Archived: archived, Keys: status.Keys}
	v.Asks, v.Retires = s.acts(ctx, config.RoleRetire)
	ctx, cancel := context.WithTimeout(ctx, blocksWait)
	defer cancel()
	var err error
	v.Blocks, v.Next, err = s.service.Blocks(ctx, archived, after, blocksShown)
	switch {
	case errors.Is(err, ErrBadID):
		return nil, err
	case errors.Is(err, context.DeadlineExceeded):
		v.Problem = "the daemon is busy; reload"
	case errors.Is(err, ErrUnavailable):
		v.Problem = err.Error()
	case err != nil:
		return nil, err
	}
	return v, nil
}

// Kept identifies the list for page.js. One without blocks is not kept, so that the first ones
// appear.
func (v *blocksView) Kept() string {
	if len(v.Blocks) == 0 {
		return ""
	}
	return fmt.Sprintf("blocks %v %v %v %v %s", v.Keys, v.Retires, v.Asks, v.Archived, v.After)
}

// Lists are the links to the live and the archived blocks.
func (v *blocksView) Lists() []linkView {
	return []linkView{{"live", "/?view=blocks", !v.Archived}, {"archived", "/?view=blocks&list=archived", v.Archived}}
}

// href is the address of a part of the list.
func (v *blocksView) href(after string) string {
	q := url.Values{"view": {viewBlocks}}
	if v.Archived {
		q.Set("list", listArchived)
	}
	if after != "" {
		q.Set("after", after)
	}
	return "/?" + q.Encode()
}

// First, Following and Same are the addresses of parts of the list.
func (v *blocksView) First() string     { return v.href("") }
func (v *blocksView) Following() string { return v.href(v.Next) }
func (v *blocksView) Same() string      { return v.href(v.After) }

// keyText is a key as text.
func keyText(key []byte) string { return strings.ToValidUTF8(string(key), "\uFFFD") }

func (v *blocksView) ids() (all []string) {
	for _, b := range v.Blocks {
		all = append(all, b.ID)
		if b.Key != nil {
			all = append(all, keyText(b.Key))
		}
	}
	return all
}

// receiptsView is the log of receipts.
type receiptsView struct {
	Checkpoint  string // "": there is none
	Problem     string // why
	Retirements []Event
}

func (s *Server) newReceiptsView(ctx context.Context) (*receiptsView, error) {
	events, _, _ := s.service.Events("")
	v := &receiptsView{Retirements: latest(events, maxPast, EventRetirement, EventReceipt)}
	ctx, cancel := context.WithTimeout(ctx, blocksWait)
	defer cancel()
	signed, err := s.service.Checkpoint(ctx)
	switch {
	case errors.Is(err, ErrNoReceipt), errors.Is(err, ErrUnavailable):
		v.Problem = err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		v.Problem = "the daemon is busy; reload"
	case err != nil:
		return nil, err
	}
	v.Checkpoint = string(signed)
	return v, nil
}

// latest are the last events of some types, the newest first.
func latest(events []Event, most int, types ...EventType) (some []Event) {
	for _, e := range slices.Backward(events) {
		if len(some) == most {
			break
		}
		if len(types) == 0 || slices.Contains(types, e.Type) {
			some = append(some, e)
		}
	}
	return some
}
