package httpapi

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/plot"
)

// glanceView is the first screen. It answers in this order: is it learning, is it right, is it
// behind, what does it need.
type glanceView struct {
	Answers   []answerView
	Courses   []courseView
	Span      string         // that the courses are of
	Baselines []baselineView // that the first course has lines of
	Events    []Event
}

// answerView is an answer with its picture.
type answerView struct {
	StatusReply
	Bar *barView
}

func answerOf(id, question string) (a answerView) {
	a.ID, a.Question = id, question
	return a
}

// barView is a share beside its baselines, as widths of a box of 100.
type barView struct {
	Share     float64
	Baselines []baselineView
}

// baselineView is the correctness of an answer that takes no model, and its line.
type baselineView struct {
	Line  string // class of the line
	Name  string
	Share float64 // of 100
}

// baselinesOf are the baselines of rows. lastLabel is nil where the rows are in no order.
func baselinesOf(a *model.Answers, lastLabel *float64) (all []baselineView) {
	if a.Weight > 0 {
		all = append(all, baselineView{"l0", "always the largest class", 100 * a.LargestClass})
	}
	if lastLabel != nil {
		all = append(all, baselineView{"l1", "as the last label", 100 * *lastLabel})
	}
	return all
}

const (
	maxRecent = 10 // events of the first screen
	maxPast   = 50 // events of the past
)

// newGlanceView looks at the latest figures. Of the spans of the history it takes the shortest in
// which rows were read.
func newGlanceView(v *pageView, stream *model.Prequential, history func(model.Span) *model.History, events []Event) *glanceView {
	minutes := history(model.SpanMinutes)
	h := busiest(minutes, history)
	g := &glanceView{Span: spanNames[h.Span], Events: latest(events, maxRecent)}
	g.Answers = newAnswers(v, stream, minutes, h)
	var baselines []baselineView
	if w := stream.Window; w != nil {
		baselines = baselinesOf(&w.Answers, w.LastLabel)
	}
	g.Courses = slices.DeleteFunc(newCourses(h), func(c courseView) bool { return c.ID == "balanced" })
	if g.Courses[0].Picture != "" {
		g.Baselines = baselines
	}
	return g
}

// newAnswers answers the four questions of the first screen. h is the history of the shortest span
// in which rows were read.
func newAnswers(v *pageView, stream *model.Prequential, minutes, h *model.History) []answerView {
	return []answerView{learning(v, lastRate(minutes), h), right(v, stream, h), behind(&v.Status, minutes), needs(v.Problems)}
}

var spanNames = map[model.Span]string{
	model.SpanMinutes: "last 30 minutes", model.SpanHours: "last 24 hours", model.SpanDays: "last 30 days",
}

// busiest is the history of the shortest span in which rows were read, or that of the minutes.
func busiest(minutes *model.History, history func(model.Span) *model.History) *model.History {
	for _, span := range []model.Span{model.SpanMinutes, model.SpanHours, model.SpanDays} {
		h := minutes
		if span != model.SpanMinutes {
			h = history(span)
		}
		if _, ok := lastRead(h); ok {
			return h
		}
	}
	return minutes
}

// lastRead is the end of the last interval in which rows were read.
func lastRead(h *model.History) (at time.Time, ok bool) {
	return lastOf(h, func(i int) bool { return h.RowsPerSecond[i] != nil && *h.RowsPerSecond[i] > 0 })
}

// lastJudged is the end of the last interval in which rows were judged.
func lastJudged(h *model.History) (at time.Time, ok bool) {
	return lastOf(h, func(i int) bool { return h.Correctness[i] != nil })
}

func lastOf(h *model.History, is func(i int) bool) (at time.Time, ok bool) {
	for i := len(h.Times) - 1; i >= 0; i-- {
		if is(i) {
			return time.Unix(h.Times[i]+h.Seconds, 0), true
		}
	}
	return at, false
}

// lastRate is the mean rate of the last minute in rows a second; nil: it is not known.
func lastRate(h *model.History) *float64 {
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
	return new(sum / float64(n))
}

// rowsPerSecond writes a rate.
func rowsPerSecond(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(rate, 'g', 2, 64) + " rows/s"
	}
	return thousands(int64(math.Round(rate))) + " rows/s"
}

func learning(v *pageView, rate *float64, h *model.History) answerView {
	a := answerOf("learning", "Is it learning?")
	s := &v.Status
	at, read := lastRead(h)
	since := "no row has been read yet"
	if read {
		since = "the last row came " + roughly(v.Now.Sub(at)) + " ago"
	}
	lag, refused := s.Lag(), problemOf(s.Problems, ProblemRefused)
	switch {
	case !s.Reading && len(s.Partitions) == 0:
		a.State, a.Text = ReplyBad, "No"
		a.Notes = append(a.Notes, "the topic's partitions are not known yet")
	case !s.Reading:
		a.State, a.Text = ReplyBad, "No"
		a.Notes = append(a.Notes, "not all partitions can be read", since)
	case refused != nil && (refused.Count > 0 || rate == nil || *rate == 0):
		a.State, a.Text = ReplyBad, "No"
		a.Notes = append(a.Notes, refused.Text, since)
	case v.Served.Model == nil:
		a.State, a.Text = ReplyWarn, "Not yet"
	case rate != nil && *rate > 0:
		a.State, a.Text = ReplyGood, "Yes"
		a.Notes = append(a.Notes, rowsPerSecond(*rate)+" in the last minute")
		if refused != nil {
			a.State, a.Notes = ReplyWarn, append(a.Notes, refused.Text)
		}
	case lag > 0:
		a.State, a.Text = ReplyWarn, "No row in a minute"
		a.Notes = append(a.Notes, "records wait to be read; "+since)
	default:
		a.State, a.Text = ReplyIdle, "Waiting for rows"
		a.Notes = append(a.Notes, since)
	}
	if v.Served.Model == nil {
		a.Notes = append(a.Notes, "there is no model: "+v.NoModel())
	}
	live := fmt.Sprintf("%s live rows in %s block%s", thousands(s.LiveRows), thousands(s.LiveBlocks), plural(s.LiveBlocks))
	a.Notes = append(a.Notes, live)
	if v.Served.Model != nil && !s.LastSolve.IsZero() {
		a.Notes = append(a.Notes, "last solve "+roughly(v.Now.Sub(s.LastSolve))+" ago")
	}
	return a
}

// problemOf is the first problem of a kind; nil: there is none.
func problemOf(problems []Problem, kind ProblemKind) *Problem {
	if i := slices.IndexFunc(problems, func(p Problem) bool { return p.Kind == kind }); i >= 0 {
		return &problems[i]
	}
	return nil
}

// right tells how many answers are right: of new rows, or else of held-out ones.
func right(v *pageView, stream *model.Prequential, h *model.History) answerView {
	a := answerOf("right", "Is it right?")
	a.State, a.Text = ReplyIdle, "Not known yet"
	var before []string // what the detector remembers over a restart, which empties the window
	if d := stream.Drift; stream.Window == nil && d != nil && d.Error.Share != nil {
		before = []string{percent(1-*d.Error.Share) + " of " + thousands(d.Error.Rows) + " judged rows were right before it"}
	}
	var of *model.Answers
	var lastLabel, temporal *float64
	var what string
	switch q := v.Served.Quality; {
	case stream.Window != nil && stream.Window.Weight > 0:
		of, lastLabel, temporal = &stream.Window.Answers, stream.Window.LastLabel, stream.Window.KappaTemporal
		what = "of the last " + weight(of.Weight) + " new rows"
		if at, ok := lastJudged(h); ok && v.Now.Sub(at) > 2*time.Minute {
			what += ", " + roughly(v.Now.Sub(at)) + " ago"
		}
	case v.Served.Model != nil && q != nil && q.Weight > 0:
		of = &q.Answers
		if what = "of held-out rows; no new row has been judged since the start"; stream.Sums != nil {
			what = "of held-out rows; blocks came as sums, whose rows cannot be judged"
		}
	default:
		a.Notes = []string{"no row has been judged since the start"}
		if stream.Sums != nil {
			a.Notes = []string{"blocks came as sums, whose rows cannot be judged"}
		}
		a.Notes = append(a.Notes, before...)
		return a
	}
	a.Text = percent(of.Correctness)
	a.Notes = []string{what}
	a.State = ReplyGood
	a.Bar = &barView{100 * of.Correctness, baselinesOf(of, lastLabel)}
	for _, b := range a.Bar.Baselines {
		text := b.Name + ": " + percent(b.Share/100)
		switch {
		case len(of.Classes) < 2 || a.Bar.Share > b.Share:
		case a.Bar.Share < b.Share:
			a.State = ReplyWarn
			text += ", better"
		default:
			a.State = ReplyWarn
			text += ", as good"
		}
		a.Notes = append(a.Notes, text)
	}
	if kappa := kappas(of.Kappa, temporal); kappa != "" {
		a.Notes = append(a.Notes, kappa)
	}
	if problemOf(v.Status.Problems, ProblemUseless) != nil {
		a.State = ReplyWarn
		a.Notes = append(a.Notes, "no better than one class for all: see above")
	}
	if problemOf(v.Status.Problems, ProblemDrift) != nil {
		a.State = ReplyWarn
		a.Notes = append(a.Notes, "the stream has changed: see above")
	}
	a.Notes = append(a.Notes, "balanced "+percent(of.BalancedCorrectness))
	a.Notes = append(a.Notes, before...)
	return a
}

// kappas writes the kappas that there are.
func kappas(cohen, temporal *float64) string {
	var all []string
	if cohen != nil {
		all = append(all, "kappa "+number(*cohen))
	}
	if temporal != nil {
		all = append(all, "kappa-temporal "+number(*temporal))
	}
	return strings.Join(all, ", ")
}

// behind tells how many records wait, and for how long at the present pace.
func behind(s *Status, minutes *model.History) answerView {
	a := answerOf("behind", "Is it behind?")
	lag := s.Lag()
	in := fmt.Sprintf("in %s partition%s", thousands(len(s.Partitions)), plural(len(s.Partitions)))
	switch {
	case lag < 0:
		a.State, a.Text = ReplyIdle, "Not known"
		if s.Reading {
			a.Notes = []string{"not all partitions have been read yet"}
		} else {
			a.State, a.Notes = ReplyBad, []string{"not all partitions can be read"}
		}
	case lag == 0:
		a.State, a.Text, a.Notes = ReplyGood, "No", []string{"0 records wait " + in}
	default:
		a.State, a.Text = ReplyWarn, thousands(lag)+" record"+plural(int(min(lag, 2)))
		a.Notes = []string{"wait " + in}
		change, over := lagChange(minutes)
		switch {
		case over == 0:
		case change < 0:
			a.Notes = append(a.Notes, "at this pace read in about "+roughly(time.Duration(min(float64(lag)/-change*over, 1e9)*float64(time.Second))))
		case change > 0:
			a.Notes = append(a.Notes, "growing by "+number(math.Ceil(change/over))+" a second")
		default:
			a.Notes = append(a.Notes, "no fewer than a minute ago")
		}
		if change <= 0 && lag <= fewWait {
			a.State = ReplyGood // the records that have just come
		}
	}
	return a
}

// fewWait is a lag that is no news: records that have just come.
const fewWait = 1000

// lagChange is the change of the lag over some seconds, a minute at most; 0 s: it is not known.
func lagChange(h *model.History) (change, seconds float64) {
	first, last := -1, -1
	for i := max(0, len(h.Lag)-int(60/h.Seconds)-1); i < len(h.Lag); i++ {
		if h.Lag[i] != nil {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first == last {
		return 0, 0
	}
	return float64(*h.Lag[last] - *h.Lag[first]), float64(h.Times[last] - h.Times[first])
}

func needs(problems []problemView) answerView {
	a := answerOf("needs", "What needs you?")
	a.State, a.Text, a.Notes = ReplyGood, "Nothing", []string{"no problem is known"}
	n := len(problems)
	for n > 0 && problems[n-1].Class == "hint" { // they come last
		n--
	}
	if n < len(problems) {
		a.Notes = []string{"no problem is known; there is a hint"}
	}
	if n > 0 {
		a.State, a.Text = ReplyState(problems[0].Class), fmt.Sprintf("%d problem%s", n, plural(n))
		a.Notes = []string{"the list of problems says what to do"}
	}
	return a
}

// courseView is a figure over time. All its values are of one kind of rows or moments.
type courseView struct {
	ID      string // of history.js
	Title   string
	Of      string        // the rows or moments that each value is of
	Now     string        // the latest value
	Picture template.HTML // empty where nothing was measured
}

// latestIntervals are those whose figures are of now. The last one may have just begun.
const latestIntervals = 3

// newCourses draws the figures of a history, the first one with its baselines.
func newCourses(h *model.History) []courseView {
	each := interval(h.Seconds)
	rows := courseView{ID: "rows", Title: "Rows read a second", Of: "mean of each " + each}
	correct := courseView{ID: "correctness", Title: "Right about new rows", Of: "of the rows judged in each " + each}
	balanced := courseView{ID: "balanced", Title: "Right, each class alike", Of: "of the latest judged rows, 10,000 or more, at the end of each " + each}
	lag := courseView{ID: "lag", Title: "Lag, records", Of: "the most in each " + each}
	memory := courseView{ID: "memory", Title: "Memory, MiB", Of: "the most in each " + each}
	none := math.NaN()
	draw := func(c *courseView, low float64, show, mark func(float64) string, values []float64) {
		last, oldest := len(values)-1, max(0, len(values)-latestIntervals)
		if c == &correct || c == &balanced {
			oldest = 0 // what was last judged stays so
		}
		for last > oldest && math.IsNaN(values[last]) {
			last--
		}
		if last >= oldest && !math.IsNaN(values[last]) {
			c.Now = show(values[last])
		}
		if slices.ContainsFunc(values, func(x float64) bool { return x == x }) {
			course := plot.Course{Times: h.Times, Series: [][]float64{values}, Low: low, Mark: mark}
			if c == &correct {
				course.Levels = [][]float64{floats(h.LargestClass), floats(h.LastLabel)}
			}
			c.Picture = course.Draw()
		}
	}
	share := func(x float64) string { return number(100*x) + " %" }
	draw(&correct, none, percent, share, floats(h.Correctness))
	draw(&balanced, none, percent, share, floats(h.BalancedCorrectness))
	draw(&rows, 0, number, compact, floats(h.RowsPerSecond))
	draw(&lag, 0, number, compact, floats(h.Lag))
	inUse := floats(h.Memory)
	for i := range inUse {
		inUse[i] /= 1 << 20
	}
	draw(&memory, 0, func(x float64) string {
		now := mebibytes(int64(x * (1 << 20)))
		if h.MemoryLimit > 0 {
			now += " of " + mebibytes(h.MemoryLimit)
		}
		return now
	}, compact, inUse)
	return []courseView{correct, balanced, rows, lag, memory}
}

// interval is the length of an interval in words.
func interval(seconds int64) string {
	switch {
	case seconds%3600 == 0:
		return fmt.Sprintf("%d hours", seconds/3600)
	case seconds%60 == 0:
		return fmt.Sprintf("%d minutes", seconds/60)
	}
	return fmt.Sprintf("%d seconds", seconds)
}

// floats has NaN in the place of a figure that was not measured.
func floats[N int64 | float64](figures []*N) []float64 {
	values := make([]float64, len(figures))
	for i, x := range figures {
		values[i] = math.NaN()
		if x != nil {
			values[i] = float64(*x)
		}
	}
	return values
}

// pastView is the course of the figures, and what has happened.
type pastView struct {
	Span    model.Span
	Spans   []linkView
	Over    string // the span in words
	Empty   string // why there is nothing to draw
	Courses []courseView
	Alarms  []model.Alarm
	Events  []Event
}

func newPastView(history func(model.Span) *model.History, stream *model.Prequential, span model.Span, events []Event) *pastView {
	var h *model.History
	if span == "" {
		h = busiest(history(model.SpanMinutes), history)
	} else {
		h = history(span)
	}
	v := &pastView{Span: h.Span, Over: spanNames[h.Span], Courses: newCourses(h), Events: latest(events, maxPast)}
	for _, s := range []model.Span{model.SpanMinutes, model.SpanHours, model.SpanDays} {
		v.Spans = append(v.Spans, linkView{spanNames[s], "/?view=past&span=" + string(s), s == h.Span})
	}
	if _, ok := lastRead(h); !ok {
		v.Empty = "No row was read in the " + v.Over + "."
	}
	if stream.Drift != nil {
		v.Alarms = stream.Drift.Alarms
	}
	return v
}
