package reproduce

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"streamd/incremental"
	"streamd/incremental/drift"
	"streamd/incremental/drift/concepts"
)

// goldenAlarms was made with River by testdata/drift.py.
//
//go:embed testdata/drift.json
var goldenAlarms []byte

// alarmRun is a stream of River's generators with the alarms of its ADWIN.
type alarmRun struct {
	Stream string
	Seed   uint32
	Each   int     // rows between changes
	Change float64 // of the hyperplane's weights after each row
	Block  int     // rows of a block
	Keep   int     // blocks that are learned from, the last ones
	// Alarms on errors of the plane that learns block by block, computed with numpy, and on those
	// of two classifiers of River, which learn row by row.
	Plane, Logistic, Tree alarmed
}

// alarmed are the rows of alarms.
type alarmed struct {
	Rises, Falls []int
	Wrong        int // rows that were classified wrong
}

func (g *alarmRun) rows() *concepts.Stream {
	if g.Stream == "sea" {
		return concepts.SEA(g.Seed, g.Each)
	}
	return concepts.Hyperplane(g.Seed, 2*g.Each, g.Each, g.Change)
}

// delays are the numbers of rows from each change to the first alarm before the next change, −1
// where there is none. wrong is the number of alarms before the first change, and of further ones
// after a change that is over at once.
func delays(changes, rises []int, rows int, atOnce bool) (found []int, wrong int) {
	ends := append(slices.Clone(changes), rows)
	at := 0
	for ; at < len(rises) && rises[at] < ends[0]; at++ {
		wrong++
	}
	for i, change := range changes {
		delay, seen := -1, 0
		for ; at < len(rises) && rises[at] < ends[i+1]; at++ {
			if seen++; seen == 1 {
				delay = rises[at] - change
			}
		}
		if atOnce {
			wrong += max(0, seen-1)
		}
		found = append(found, delay)
	}
	return found, wrong
}

// watched is what the detectors of streamd find in a stream.
type watched struct {
	errors alarmed
	sums   []int // rows of the alarms of the sums
	after  int   // rows of the 2,000 after a change that were classified wrong
}

// watch tests the plane of the blocks before on each block, which it then learns from. It learns
// from the last keep blocks, or from all for 0. After an alarm of either detector it forgets all
// but the last blocks of at most shorten rows, if that is positive.
func watch(ctx context.Context, s *concepts.Stream, block, keep, shorten int) (w watched, err error) {
	var z incremental.Summariser
	var blocks []*incremental.Summary
	detector := drift.NewADWIN(drift.Delta)
	live := incremental.NewState(incremental.DefaultFeatures(len(s.Columns)))
	leave := func(most int) {
		for len(blocks) > most {
			live.Remove(blocks[0])
			blocks = blocks[1:]
		}
	}
	var m *incremental.Model
	held := false
	class, values := make([]int32, block), make([]float64, block)
	for at := 0; at < s.Rows(); at += block {
		if err := ctx.Err(); err != nil {
			return w, err
		}
		b := s.Block(at, at+block)
		risen := false
		if m != nil {
			m.Classify(class, values, b.Columns)
			for i, code := range b.Codes {
				wrong := 0.
				if m.Classes[class[i]] != b.Classes[code] {
					wrong = 1
					w.errors.Wrong++
					if slices.ContainsFunc(s.Changes, func(c int) bool { return c <= at+i && at+i < c+afterChange }) {
						w.after++
					}
				}
				if c, changed := detector.Add(wrong); changed && c.After > c.Before {
					risen = true
					w.errors.Rises = append(w.errors.Rises, at+i)
				} else if changed {
					w.errors.Falls = append(w.errors.Falls, at+i)
				}
			}
		}
		summary, err := z.Summarise(b)
		if err != nil {
			return w, err
		}
		live.Add(summary)
		blocks = append(blocks, summary)
		if keep > 0 {
			leave(keep)
		}
		if m, err = live.Moments().Solve(incremental.Options{Nu: prequentialNu}); err != nil {
			return w, err
		}
		if found, holds := compareSums(m, live, blocks, held); found {
			if holds && !held {
				risen = true
				w.sums = append(w.sums, at+block-1)
			}
			held = holds
		}
		if risen && shorten > 0 {
			leave(shorten / block)
			if m, err = live.Moments().Solve(incremental.Options{Nu: prequentialNu}); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

// afterChange is the rows after a change in which the planes may still be wrong.
const afterChange = 2000

// compareSums compares the loss of a model on the newest blocks with that on the others, as the
// daemon does.
func compareSums(m *incremental.Model, live *incremental.State, blocks []*incremental.Summary, held bool) (found, holds bool) {
	of := func(sums *incremental.Moments) drift.Loss {
		l := sums.Losses(nil, []*incremental.Model{m})[0][0]
		return drift.Loss{Sum: l.Plus + l.Minus, Weight: l.PlusWeight + l.MinusWeight}
	}
	var newest []drift.Loss
	for _, b := range slices.Backward(blocks[len(blocks)-min(drift.MostNewest, len(blocks)/2):]) {
		s := incremental.NewState(live.Features())
		s.Add(b)
		newest = append(newest, of(s.Moments()))
	}
	c, ok := drift.Compare(newest, of(live.Moments()))
	return ok, ok && drift.Holds(held, c.P)
}

// alarmTable compares the delays of alarms with those of River.
func alarmTable(ctx context.Context, c *Config) ([]Result, error) {
	var golden struct{ Runs []*alarmRun }
	if err := json.Unmarshal(goldenAlarms, &golden); err != nil {
		return nil, err
	}
	type outcome struct{ kept, all, shortened watched }
	outcomes := make([]outcome, len(golden.Runs))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.workers())
	for i, g := range golden.Runs {
		group.Go(func() error {
			s := g.rows()
			for _, run := range []struct {
				to            *watched
				keep, shorten int
			}{{&outcomes[i].kept, g.Keep, 0}, {&outcomes[i].all, 0, 0}, {&outcomes[i].shortened, 0, shortenTo}} {
				var err error
				if *run.to, err = watch(groupCtx, s, g.Block, run.keep, run.shorten); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var results []*Result
	for first := 0; first < len(golden.Runs); {
		last := first
		for last < len(golden.Runs) && golden.Runs[last].Stream == golden.Runs[first].Stream {
			last++
		}
		runs, of := golden.Runs[first:last], outcomes[first:last]
		rows := runs[0].rows()
		atOnce := runs[0].Stream == "sea"
		// add adds a method with its alarms on the stream of each seed. A classifier of River is no
		// plane.
		add := func(method string, plane bool, alarms func(seed int) alarmed) *Result {
			r := Result{DataSet: runs[0].Stream, Method: method, Alarms: &Alarms{}}
			if plane {
				r.Rows, r.Features, r.Nu = rows.Rows(), len(rows.Columns), prequentialNu
			}
			right := 0.
			for i, g := range runs {
				a := alarms(i)
				found, early := delays(rows.Changes, a.Rises, rows.Rows(), atOnce)
				r.Alarms.Delays = append(r.Alarms.Delays, found)
				r.Alarms.False += early
				right += (1 - float64(a.Wrong)/float64(rows.Rows()-g.Block)) / float64(len(runs))
			}
			r.Test = &right
			results = append(results, &r)
			return &r
		}
		kept := fmt.Sprintf("last %d blocks: ", runs[0].Keep)
		ours := add(kept+"errors", true, func(i int) alarmed { return of[i].kept.errors })
		for i, g := range runs {
			got := of[i].kept.errors
			if !slices.Equal(got.Rises, g.Plane.Rises) || !slices.Equal(got.Falls, g.Plane.Falls) || got.Wrong != g.Plane.Wrong {
				ours.Broken = fmt.Sprintf("seed %d: alarms and errors %+v, and %+v by River's ADWIN", g.Seed, got, g.Plane)
			}
		}
		add(kept+"River's ADWIN", true, func(i int) alarmed { return runs[i].Plane })
		for _, own := range []*Result{
			add("River's logistic regression", false, func(i int) alarmed { return runs[i].Logistic }),
			add("River's Hoeffding tree", false, func(i int) alarmed { return runs[i].Tree }),
		} {
			if says := ours.Alarms.laterThan(own.Alarms); says != "" {
				ours.Broken = own.Method + ": " + says
			}
		}
		all := add("all blocks: errors", true, func(i int) alarmed { return of[i].all.errors })
		add("all blocks: sums", true, func(i int) alarmed { return alarmed{Rises: of[i].all.sums, Wrong: of[i].all.errors.Wrong} })
		shortened := add(fmt.Sprintf("last %d rows after an alarm: errors", shortenTo), true, func(i int) alarmed { return of[i].shortened.errors })
		plain, short := 0, 0
		for i := range of {
			plain += of[i].all.after
			short += of[i].shortened.after
		}
		shortened.Remark = fmt.Sprintf("of the %d rows after each change %d are wrong where older blocks are retired at an alarm, and %d where all blocks stay", afterChange, short, plain)
		if short >= plain || *shortened.Test <= *all.Test {
			shortened.Broken = "the planes do not recover sooner: " + shortened.Remark
		}
		first = last
	}
	out := make([]Result, len(results))
	for i, r := range results {
		out[i] = *r
	}
	return out, nil
}

// shortenTo is the number of rows that the table keeps at an alarm.
const shortenTo = 500

// Alarms are those of a method on streams of several seeds.
type Alarms struct {
	Delays [][]int `json:"delays"` // for each seed rows from each change to its alarm; −1: no alarm
	False  int     `json:"false"`  // alarms without a change
}

// mean is the mean delay of the changes that were found, and their number.
func (a *Alarms) mean() (delay float64, found, changes int) {
	for _, seed := range a.Delays {
		for _, d := range seed {
			if changes++; d >= 0 {
				found++
				delay += float64(d)
			}
		}
	}
	return delay / float64(max(found, 1)), found, changes
}

// laterThan says why these alarms are worse than others: more are false, fewer changes are found,
// or those that both have found are found later on average.
func (a *Alarms) laterThan(b *Alarms) string {
	var ours, theirs, both int
	for i := range a.Delays {
		for j, d := range a.Delays[i] {
			if e := b.Delays[i][j]; d >= 0 && e >= 0 {
				ours, theirs, both = ours+d, theirs+e, both+1
			}
		}
	}
	_, found, changes := a.mean()
	_, others, _ := b.mean()
	if a.False > b.False || found < others || ours > theirs {
		return fmt.Sprintf("%d of %d changes are found, and %d by River's; the %d that both find come after %d rows together, River's after %d; %d alarms are false, and %d of River's", found, changes, others, both, ours, theirs, a.False, b.False)
	}
	return ""
}

// cells are the columns of a report.
func (a *Alarms) cells() []string {
	if a == nil {
		return []string{"", "", "", ""}
	}
	delay, found, changes := a.mean()
	var seeds []string
	for _, seed := range a.Delays {
		var texts []string
		for _, d := range seed {
			if d < 0 {
				texts = append(texts, "–")
			} else {
				texts = append(texts, fmt.Sprint(d))
			}
		}
		seeds = append(seeds, strings.Join(texts, " "))
	}
	mean := "" // of none
	if found > 0 {
		mean = fmt.Sprintf("%.0f", delay)
	}
	return []string{fmt.Sprintf("%d of %d", found, changes), fmt.Sprint(a.False), mean, strings.Join(seeds, ", ")}
}
