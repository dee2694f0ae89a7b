package daemon

import (
	"fmt"
	"strings"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/watching"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/retire"
)

// conditions lists what the operator should know now, as far as the loop knows it.
func (d *Daemon) conditions(in *intake.Report) (all []httpapi.Problem) {
	add := func(p httpapi.Problem) { all = append(all, p) }
	if d.Failure != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemStopping, Text: d.Failure.Error()})
	}
	all = append(all, d.Saver.Conditions()...)
	all = append(all, d.withdrawing.Conditions()...)
	all = append(all, d.labels.Conditions()...)
	all = append(all, d.watching.Conditions()...)
	served := d.Front.Served()
	if newest, ok := d.Live.Newest(); ok {
		p := httpapi.Problem{
			Kind:   httpapi.ProblemTime,
			Detail: fmt.Sprintf("the newest live block, of %s, is %s", retire.NearestTime(newest.Time).UTC().Format(time.RFC3339), newest.ID),
		}
		if d.Config.Retire.Topic != "" {
			p.Action = "retire the newest block if its time is wrong, in each replica (streamd retire --here): by the control topic it would keep its place"
		}
		if in.TooOld >= manyTooOld {
			p.Subject, p.Count = "retire.keep", int64(in.TooOld)
			p.Text = fmt.Sprintf("the last %d blocks were retired as they came, since they are older than retire.keep lets in", in.TooOld)
			add(p)
		}
		if f := served.Forgetting; f != nil && f.Rows <= newest.Rows && served.Rows > f.Rows {
			p.Subject, p.Count = "retire.half_life", 0
			p.Text = fmt.Sprintf("by retire.half_life %d of the %d live rows of the model have a weight", f.Rows, served.Rows)
			add(p)
		}
	}
	if r := &in.Latest; r.Many(time.Now()) {
		add(httpapi.Problem{
			Kind: httpapi.ProblemRefused, Since: r.Since, Last: r.Last, Count: r.InARow, Text: r.String(), Detail: r.Reason,
			Lasting: r.Meaning, Action: r.Action(d.Config.DeadLetters),
		})
	} else if r.Good {
		d.Problems.Resolve(httpapi.ProblemRefused, "") // of before a restart
	}
	if served.Model == nil && served.Rows > 0 && d.Studies.Answered() {
		add(httpapi.Problem{Kind: httpapi.ProblemModel, Text: "there are rows, and no model", Detail: served.Problem})
	} else {
		if y := d.Studies.Last(); y != nil && y.Failed != nil {
			add(httpapi.Problem{Kind: httpapi.ProblemRefinement, Text: "the planes are not refined: " + y.Failed.Error()})
		}
		if q := served.Quality; served.Model != nil && q != nil && len(q.Warnings) > 0 {
			add(httpapi.Problem{
				Kind: httpapi.ProblemQuality, Count: int64(len(q.Warned())), Detail: strings.Join(q.Warnings, "; "),
				Text: "rows of some classes are never or seldom found, as held-out rows show (GET /v1/quality)",
			})
		}
		if q := served.Quality; served.Model != nil && q != nil && q.Weight >= watching.EnoughJudged && d.Config.Model.CountsRight() {
			if worse := q.NoBetter(); worse != "" {
				add(httpapi.Problem{Kind: httpapi.ProblemBaseline, Subject: "held-out", Text: "held-out rows are classified no better than by a baseline: " + worse})
			}
		}
		all = append(all, d.Features.ValueConditions(served)...)
		if b := served.Better; served.Model != nil && b != nil {
			add(httpapi.Problem{Kind: httpapi.ProblemSettings, Text: b.String()})
		}
	}
	all = append(all, d.Bases.Conditions()...)
	if r := served.Refinement; r != nil && r.Source == string(config.RowsLog) && !r.Complete {
		add(httpapi.Problem{
			Kind: httpapi.ProblemSample, Subject: "refinement",
			Text: "the planes are refined without rows of live blocks that the log does not return unchanged, so a daemon that never saw the retired blocks may serve others",
		})
	}
	return append(all, d.Features.Conditions()...)
}
