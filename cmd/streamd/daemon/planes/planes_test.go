package planes

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/receipts"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/retire"
	"streamd/snapshot"
)

// loopOf is a loop over a live set that does not run. set changes the configuration.
func loopOf(t *testing.T, l func(*config.Config, *memory.Budget) *live.Set, set map[string]string) *loop.Loop {
	t.Helper()
	flags := map[string]string{"kafka.topic": "none"}
	maps.Copy(flags, set)
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	learner, err := learning.New(cfg, 1<<23, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	of := loop.New(&loop.Environment{Config: cfg, Log: zerolog.Nop(), Learner: learner, Metrics: httpapi.NewMetrics()})
	of.Live = l(cfg, memory.New(cfg, 8<<30))
	of.Intake = intake.New(intake.Settings{Config: cfg, Live: of.Live, Budget: memory.New(cfg, 8<<30)})
	return of
}

// empty is a live set without blocks.
func empty(cfg *config.Config, m *memory.Budget) *live.Set { return live.New(nil, cfg, m) }

// noSaves is a snapshot that nothing is saved to.
type noSaves struct{}

func (noSaves) IsDurable(*model.Served) bool { return false }
func (noSaves) Next() int64                  { return 1 }
func (noSaves) Followed() []model.Offset     { return nil }

// publisherOf is a publisher that has solved nothing.
func publisherOf(l *loop.Loop) *Publisher {
	return NewPublisher(l, &receipts.Receipts{Loop: l}, noSaves{})
}

// Solves of any size take their share of a long stream, no more and hardly less, although some of
// them are held up by what else runs. A backlog does not starve them.
func TestShareOfSolves(t *testing.T) {
	const long = 100 * time.Second
	for _, solve := range []time.Duration{100 * time.Microsecond, time.Millisecond, 30 * time.Millisecond, 500 * time.Millisecond} { // n = 10 to 784
		for _, share := range []float64{0.01, 0.05, 0.5} {
			for _, waiting := range []int{0, 1} {
				p := idlePublisher(t, waiting, map[string]string{"model.solve_share": fmt.Sprint(share)})
				began, solves := time.Now(), 0
				now := began
				for now.Sub(began) < long {
					p.Delivered, p.changed = now, true
					if wait, waits := p.DueIn(now); !waits || wait > 0 {
						now = now.Add(max(wait, 500*time.Microsecond))
						continue
					}
					p.lastSolve = now
					held := time.Duration(0)
					if solves++; solves%3 == 0 {
						held = 20 * time.Millisecond
					}
					p.solves.add(solve + held)
					p.copies.add(solve/100 + held)
					now = now.Add(solve)
				}
				got := float64(solves) * solve.Seconds() / long.Seconds()
				most := min(share, solve.Seconds()/leastSolve.Seconds())
				low, high := most/1.5, 1.05*most+solve.Seconds()/long.Seconds()
				if waiting > 0 {
					low /= behind
				}
				if got > high || got < low {
					t.Errorf("solves of %v with a share of %v, %d deliveries waiting: they take %.4f", solve, share, waiting, got)
				}
			}
		}
	}
}

// idlePublisher is a publisher of a daemon that does nothing. So many deliveries wait.
func idlePublisher(t *testing.T, waiting int, flags map[string]string) *Publisher {
	t.Helper()
	p := publisherOf(loopOf(t, empty, flags))
	for range waiting {
		go p.Intake.InTurn(t.Context(), nil, func() {})
	}
	for len(p.Intake.Deliveries()) < waiting {
		time.Sleep(time.Millisecond)
	}
	return p
}

// A solve is due as soon as blocks have been applied, unless those before took their share.
func TestWhenSolvesAreDue(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name                  string
		since, effort, copied time.Duration
		idle                  time.Duration
		waiting               int
		want                  time.Duration
	}{
		{name: "at once", since: time.Second, effort: time.Millisecond},
		{name: "the last one took its share", since: 5 * time.Millisecond, effort: time.Millisecond, want: 15 * time.Millisecond},
		{name: "a large model", since: time.Second, effort: time.Second, want: 19 * time.Second},
		{name: "a large model, after a pause", since: time.Second, effort: time.Second, idle: time.Second},
		{name: "copies take long", since: time.Second, effort: time.Millisecond, copied: 100 * time.Millisecond, want: time.Second},
		{name: "a thousand a second", since: 400 * time.Microsecond, effort: 10 * time.Microsecond, want: 600 * time.Microsecond},
		{name: "deliveries wait", since: 10 * time.Millisecond, effort: 200 * time.Microsecond, waiting: 1, want: 10 * time.Millisecond},
		{name: "deliveries wait for a larger model", since: 60 * time.Millisecond, effort: 2 * time.Millisecond, waiting: 1, want: 40 * time.Millisecond},
		{name: "deliveries wait for a large model", since: 2 * time.Second, effort: 200 * time.Millisecond, waiting: 1, want: 2 * time.Second},
	} {
		p := idlePublisher(t, c.waiting, map[string]string{})
		p.changed, p.lastSolve, p.Delivered = true, now.Add(-c.since), now.Add(-c.idle)
		for i := range len(p.solves.last) { // the process was held up at all but one time
			p.solves.add(c.effort + time.Duration(i)*time.Second)
			p.copies.add(c.copied + time.Duration(i)*time.Second)
		}
		wait, waits := p.DueIn(now)
		if wait = max(0, wait); !waits || wait != c.want {
			t.Errorf("%s: due in %v, want %v", c.name, wait, c.want)
		}
	}
}

// Wide sums take long to copy. They are copied rarely while blocks come, but at once when
// the loop is idle.
func TestWideSumsAreSolvedWhenNothingComes(t *testing.T) {
	store, contents, err := snapshot.Open(filepath.Join(t.TempDir(), "streamd.db"), snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	of := &config.Config{Spec: config.Spec{Limits: config.Limits{Classes: 2, Features: 1000}, Model: config.Model{Folds: 5}}}
	l, _, err := live.Open(store, contents, of, memory.New(of, 8<<30), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l.Fix(incremental.DefaultFeatures(1))
	s, err := new(incremental.Summariser).Summarise(&incremental.Block{
		Classes: []string{"-1", "1"}, Codes: []int32{0, 1}, Columns: []gram.Column{gram.ColumnOf([]float32{1, 2})},
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err := l.Add(retire.Entry{ID: "a", Time: now, Rows: 2}, live.Kept{Summary: s}); err != nil {
		t.Fatal(err)
	}
	for idle, want := range map[time.Duration]bool{0: false, time.Minute: false, 2 * time.Hour: true} {
		c := loopOf(t, func(*config.Config, *memory.Budget) *live.Set { return l }, map[string]string{"snapshot.interval": "1h"})
		c.Delivered = now.Add(-idle)
		p := publisherOf(c)
		p.changed, p.lastSolve = true, now.Add(-3*time.Hour)
		p.copies.add(time.Hour)
		p.WhenDue(time.Now())
		if begun := p.Solving != nil; begun != want {
			t.Errorf("nothing has come for %v: a solve has begun: %v", idle, begun)
		}
		if p.Solving != nil {
			p.Solving.Await()
		}
	}
}

// A study begins when the stream pauses, or after its interval.
func TestWhenStudiesAreDue(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	done := func(rows, churn int64, took time.Duration) *studyJob {
		return &studyJob{Study: &learning.Study{Served: &model.Served{Rows: rows}}, churn: churn, took: took}
	}
	final := done(100, 100, 0)
	final.log, final.Failed = new(logRows), &newton.LimitError{}
	stalled := done(100, 100, 0)
	stalled.log, stalled.Failed = new(logRows), &newton.StallError{}
	unread := done(100, 100, 0)
	unread.log, unread.Failed = new(logRows), errMoved
	decided := done(100, 100, 2*time.Second)
	decided.Served.Tuning = &model.Tuning{}
	const solve, refine = loop.Quiet, 10 * time.Second
	for _, c := range []struct {
		name         string
		method       string
		rows         int64 // live
		churn        int64
		last         *studyJob
		moved, since time.Duration // how long ago
		chosen       bool          // blocks have been retired
		want         bool
	}{
		{name: "nothing is live", method: "full", since: time.Hour, moved: time.Hour},
		{name: "the first rows still come", method: "full", rows: 10, churn: 10, since: refine - 1, moved: solve - 1},
		{name: "the first rows have come", method: "full", rows: 10, churn: 10, since: solve, moved: solve, want: true},
		{name: "rows have come for long", method: "full", rows: 10, churn: 10, since: refine, moved: 0, want: true},
		{name: "nothing has changed", method: "full", rows: 100, churn: 100, last: done(100, 100, 0), since: time.Hour, moved: time.Hour},
		{name: "a little changes", method: "full", rows: 100, churn: 101, last: done(100, 100, 0), since: refine, moved: 0, want: true},
		{name: "a little changes, nothing is refined", method: "none", rows: 100, churn: 109, last: done(100, 100, 0), since: time.Hour, moved: solve - 1},
		{name: "a little has changed, nothing is refined", method: "none", rows: 100, churn: 101, last: done(100, 100, 0), since: solve, moved: solve, want: true},
		{name: "a tenth changes", method: "none", rows: 100, churn: 110, last: done(100, 100, 0), since: refine, moved: 0, want: true},
		{name: "a tenth changes soon", method: "none", rows: 100, churn: 110, last: done(100, 100, 0), since: refine - 1, moved: 0},
		{name: "the last one took long", method: "full", rows: 100, churn: 200, last: done(100, 100, 2*time.Second), since: loop.Share*2*time.Second - 1, moved: solve},
		{name: "the last one took long, long ago", method: "full", rows: 100, churn: 200, last: done(100, 100, 2*time.Second), since: loop.Share * 2 * time.Second, moved: solve, want: true},
		{name: "still for as long as the last one took", method: "full", rows: 100, churn: 200, last: done(100, 100, 2*time.Second), since: 3 * time.Second, moved: 2 * time.Second, want: true},
		{name: "not still for its share", method: "none", rows: 100, churn: 101, last: done(100, 100, 10*time.Millisecond), since: time.Hour, moved: loop.Share*10*time.Millisecond - 1},
		{name: "still for its share", method: "none", rows: 100, churn: 101, last: done(100, 100, 10*time.Millisecond), since: time.Hour, moved: loop.Share * 10 * time.Millisecond, want: true},
		{name: "still for longer than it took", method: "none", rows: 100, churn: 101, last: done(100, 100, 500*time.Millisecond), since: time.Hour, moved: longestStill, want: true},
		{name: "blocks have been retired", method: "none", rows: 100, churn: 101, last: decided, since: loop.Share * 2 * time.Second, chosen: true, want: true},
		{name: "blocks have just been retired", method: "none", rows: 100, churn: 101, last: decided, since: loop.Share*2*time.Second - 1, chosen: true},
		{name: "blocks have been retired, and nothing was decided", method: "none", rows: 100, churn: 101, last: done(100, 100, 2*time.Second), since: loop.Share * 2 * time.Second, chosen: true},
		{name: "it would fail again", method: "full", rows: 100, churn: 100, last: final, since: time.Hour, moved: time.Hour},
		{name: "it would stall again", method: "full", rows: 100, churn: 100, last: stalled, since: time.Hour, moved: time.Hour},
		{name: "the log may have recovered", method: "full", rows: 100, churn: 100, last: unread, since: refine, moved: time.Hour, want: true},
		{name: "the log has just failed", method: "full", rows: 100, churn: 100, last: unread, since: refine - 1, moved: time.Hour},
	} {
		if c.last != nil {
			c.last.Refined = c.method == "full"
		}
		l := loopOf(t, empty, map[string]string{"model.refine": c.method, "model.refine_interval": refine.String()})
		y := Studies{Publisher: publisherOf(l), ended: began, churn: c.churn, moved: began.Add(c.since - c.moved), chosen: c.chosen}
		if got := y.isDue(c.last, c.rows, 0, began.Add(c.since)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	y := Studies{Publisher: publisherOf(loopOf(t, empty, map[string]string{"model.folds": "0"}))}
	if y.isDue(nil, 10, 0, began) {
		t.Error("a study is due that has nothing to find out")
	}
}
