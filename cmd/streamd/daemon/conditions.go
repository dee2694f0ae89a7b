package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/httpapi"
	"streamd/config"
	"streamd/retire"
)

// conditions lists what the operator should know now, as far as the loop knows it.
func (d *Daemon) conditions(in *intake.Report) (all []httpapi.Problem) {
	add := func(p httpapi.Problem) { all = append(all, p) }
	if d.failure != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemStopping, Text: d.failure.Error()})
	}
	if since, err := d.intake.Unsent(); err != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemLetters, Since: since, Text: "reading waits, since dead letters cannot be written: " + err.Error()})
	} else if err := d.saver.problem; err != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemSave, Text: "the snapshot cannot be saved, and is tried again: " + err.Error()})
	}
	all = append(all, d.withdrawing.conditions()...)
	all = append(all, d.labels.conditions()...)
	all = append(all, d.watching.conditions()...)
	served := d.publisher.published.Load().served
	if newest, ok := d.live.Newest(); ok {
		p := httpapi.Problem{
			Kind:   httpapi.ProblemTime,
			Detail: fmt.Sprintf("the newest live block, of %s, is %s", retire.NearestTime(newest.Time).UTC().Format(time.RFC3339), newest.ID),
		}
		if d.cfg.Retire.Topic != "" {
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
			Lasting: r.Meaning, Action: r.Action(d.cfg.DeadLetters),
		})
	} else if r.Good {
		d.problems.Resolve(httpapi.ProblemRefused, "") // of before a restart
	}
	if err := d.saver.compactProblem; err != nil {
		add(httpapi.Problem{Kind: httpapi.ProblemCompaction, Text: "the snapshot cannot be compacted, so retired blocks can still be read from the file: " + err.Error()})
	}
	if n := d.saver.missed; n > 0 {
		add(httpapi.Problem{Kind: httpapi.ProblemRetired, Count: n, Text: missedRetirements})
	}
	if served.Model == nil && served.Rows > 0 && d.publisher.answered {
		add(httpapi.Problem{Kind: httpapi.ProblemModel, Text: "there are rows, and no model", Detail: served.Problem})
	} else {
		if y := d.publisher.study; y != nil && y.Failed != nil {
			add(httpapi.Problem{Kind: httpapi.ProblemRefinement, Text: "the planes are not refined: " + y.Failed.Error()})
		}
		if q := served.Quality; served.Model != nil && q != nil && len(q.Warnings) > 0 {
			add(httpapi.Problem{
				Kind: httpapi.ProblemQuality, Count: int64(len(q.Warned())), Detail: strings.Join(q.Warnings, "; "),
				Text: "rows of some classes are never or seldom found, as held-out rows show (GET /v1/quality)",
			})
		}
		if q := served.Quality; served.Model != nil && q != nil && q.Weight >= enoughJudged && d.cfg.Model.CountsRight() {
			if worse := q.NoBetter(); worse != "" {
				add(httpapi.Problem{Kind: httpapi.ProblemBaseline, Subject: "held-out", Text: "held-out rows are classified no better than by a baseline: " + worse})
			}
		}
		var told []string
		if served.Rows > 0 && d.refeaturing == nil {
			for _, p := range d.lists.conditions() {
				told = append(told, p.Subject)
				add(p)
			}
		}
		for _, u := range served.Undeclared {
			if u.Lacks(served.Rows) && !slices.Contains(told, u.Feature) && !(d.refeaturing != nil && d.lists.learns(u.Feature)) {
				add(httpapi.Problem{
					Kind: httpapi.ProblemValues, Subject: u.Feature, Action: d.lists.action(u.Feature),
					Text: fmt.Sprintf("%.1f %% of the live rows have values of category %q that the schema does not declare", 100*u.Share, u.Feature),
				})
			}
		}
		if b := served.Better; served.Model != nil && b != nil {
			add(httpapi.Problem{Kind: httpapi.ProblemSettings, Text: b.String()})
		}
	}
	all = append(all, d.rebuilding.sharedConditions()...)
	if r := d.rebuilding; r.problem != "" && r.reducing == nil && d.live.Next() == nil {
		add(httpapi.Problem{Kind: httpapi.ProblemBasis, Subject: "reduction", Text: "no basis could be chosen: " + r.problem})
	}
	if n := len(d.filling.unread); n > 0 && d.rebuilding.mustGo() && d.rebuilding.reducing == nil && d.live.Next() == nil && d.filling.reading == nil {
		add(httpapi.Problem{
			Kind: httpapi.ProblemBasis, Subject: "sample", Count: int64(n),
			Text:   fmt.Sprintf("the basis in use was chosen from blocks that have been retired since, and no other can be chosen: the row sample lacks rows of %d blocks that the log does not return unchanged", n),
			Action: "retire the blocks that the log no longer has, or produce them again",
		})
	}
	if p := d.filling.condition(); p != nil {
		add(*p)
	}
	if r := served.Refinement; r != nil && r.Source == string(config.RowsLog) && !r.Complete {
		add(httpapi.Problem{
			Kind: httpapi.ProblemSample, Subject: "refinement",
			Text: "the planes are refined without rows of live blocks that the log does not return unchanged, so a daemon that never saw the retired blocks may serve others",
		})
	}
	if e := d.live.Next(); e != nil && e.Waits() {
		add(httpapi.Problem{
			Kind: httpapi.ProblemBasis, Subject: "rebuild", Count: int64(e.Missing()),
			Text:   fmt.Sprintf("the new basis waits for blocks that the log does not return unchanged, %d of them (see /v1/epoch)", e.Missing()),
			Action: "retire them, or set kernel.unread: skip",
		})
	}
	if r := d.refeaturing; r != nil {
		add(r.condition())
	}
	return all
}
