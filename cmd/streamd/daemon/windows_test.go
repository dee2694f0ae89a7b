package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
)

// window asks for the model of a window, and plays the loop meanwhile. meanwhile is called
// after each call of the loop, which it may follow by others.
func (o *offline) window(w model.Window, nu float64, meanwhile func()) (s *model.Served, err error) {
	o.t.Helper()
	o.play(func() { s, err = o.Window(context.Background(), w, nu) }, meanwhile)
	return s, err
}

// inWindow reports whether a window chooses a block.
func inWindow(w *model.Window, e *retire.Entry) bool {
	if w.From != nil && e.Time.Before(*w.From) || w.To != nil && !e.Time.Before(*w.To) {
		return false
	}
	return w.Positions == nil || slices.ContainsFunc(w.Positions, func(r retire.Range) bool {
		return e.Position.Partition == r.Partition && e.Position.Topic == r.Topic && e.Position.Offset <= r.Last && r.First <= e.Last
	})
}

// randomWindow chooses some of the blocks that a history has had, by ranges of offsets that may
// overlap, by times, or by both.
func randomWindow(r *rand.Rand) (w model.Window) {
	by := r.IntN(4)
	if by < 2 {
		for range 1 + r.IntN(5) {
			first := r.Int64N(50)
			w.Positions = append(w.Positions, retire.Range{Topic: "t", Partition: r.IntN(3), First: first, Last: first + r.Int64N(30)})
		}
	}
	if by == 0 {
		return w
	}
	from := time.UnixMilli(lawEpoch + r.Int64N(40_000)).Add(time.Duration(r.IntN(2)) * time.Microsecond)
	to := from.Add(time.Duration(1 + r.Int64N(30_000_000_000)))
	if w.From, w.To = &from, &to; r.IntN(8) == 0 {
		w.From = nil
	} else if r.IntN(8) == 0 {
		w.To = nil
	}
	return w
}

// blocksIn lists the live blocks of a window.
func (o *offline) blocksIn(w *model.Window) []retire.Entry {
	return slices.DeleteFunc(o.Live.SelectPast(&retire.Selection{}), func(e retire.Entry) bool { return !inWindow(w, &e) })
}

// The model of a random window of a random history, with blocks of every unit, replacements,
// tombstones, policies, retirements, saves and restarts, is that of the sum of the summaries of
// its blocks. Changes between the plan of a window and its sum do not show.
func TestRandomWindows(t *testing.T) {
	solved, refused, cached := 0, 0, 0
	for seed := range uint64(16) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHistory(seed)
			r := h.r
			h.flags["snapshot.file"] = filepath.Join(t.TempDir(), "s.db")
			h.flags["model.nu"] = fmt.Sprint(0.5 + r.Float64())
			h.flags["model.standardise"] = []string{"true", "false"}[r.IntN(2)]
			h.flags["model.balanced"] = []string{"true", "false"}[r.IntN(2)]
			o := openOffline(t, h.flags, false)
			change := func() {
				switch r.IntN(8) {
				case 0:
					o.Saver.Save()
				case 1:
					o.retireAny(r)
				case 2:
				default:
					h.read(o, r.IntN(len(h.log)), 6)
				}
			}
			for range 40 {
				change()
				if r.IntN(15) == 0 {
					o.Saver.Save()
					o = o.crash(false)
				}
				if r.IntN(2) == 0 {
					continue
				}
				w, nu := randomWindow(r), []float64{0, 3}[r.IntN(2)]
				o.Windows.Clear()
				var moments []moment // after each call
				s, err := o.window(w, nu, func() {
					chosen := o.blocksIn(&w)
					sum := incremental.NewState(o.Live.Features().Names())
					for _, e := range chosen {
						one, err := o.Live.Moment(nil).Summary(e.ID)
						if err != nil {
							t.Fatal(err)
						}
						sum.Add(one)
					}
					moments = append(moments, moment{chosen, sum})
					change()
				})
				if errors.Is(err, httpapi.ErrNoWindow) {
					if !slices.ContainsFunc(moments, func(m moment) bool { return len(m.blocks) == 0 }) {
						t.Fatalf("no blocks in %+v, but there are %v", w, moments)
					}
					refused++
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				at := slices.IndexFunc(moments, func(m moment) bool { return live.DigestOf(m.sum) == s.Digest && len(m.blocks) == s.Blocks })
				if at < 0 {
					t.Fatalf("%d blocks with digest %s: at no moment were there such, but %v", s.Blocks, s.Digest, moments)
				}
				o.compareWindow(s, moments[at].sum, nu)
				if s.Model != nil {
					solved++
				}
				if again, err := o.window(w, nu, func() {}); err == nil && slices.Equal(o.blocksIn(&w), moments[at].blocks) {
					if again.Fingerprint != s.Fingerprint {
						t.Fatal("the same blocks have another model")
					}
					if again == s {
						cached++
					}
				}
			}
		})
	}
	if solved < 40 || refused < 5 || cached < 15 {
		t.Errorf("%d windows solved, %d without a block, %d from the cache: the test does not reach what it should", solved, refused, cached)
	}
}

// retireAny retires some live block.
func (o *offline) retireAny(r *rand.Rand) {
	o.t.Helper()
	all := o.Live.Page(retire.Lowest, math.MaxInt)
	if len(all) == 0 {
		return
	}
	id := all[r.IntN(len(all))].ID
	if _, err := o.retire(retire.Selector{IDs: []string{id}}, false, access.Caller{}); err != nil && !errors.Is(err, httpapi.ErrNotLive) {
		o.t.Fatal(err)
	}
}

// moment is the blocks of a window at one moment, with their sum.
type moment struct {
	blocks []retire.Entry
	sum    *incremental.State
}

// compareWindow compares the model of a window with one that is solved from scratch.
func (o *offline) compareWindow(s *model.Served, sum *incremental.State, nu float64) {
	o.t.Helper()
	if s.Rows != sum.Rows() {
		o.t.Fatalf("%d rows, want %d", s.Rows, sum.Rows())
	}
	options := o.Learner.OptionsIn(o.Live, nil)
	if nu > 0 {
		options.Nu = nu
	}
	want, err := sum.Moments().Solve(options)
	if (err != nil) != (s.Model == nil) || (s.Model == nil) != (s.Problem != "") {
		o.t.Fatalf("%+v, problem %q, want %v", s.Model, s.Problem, err)
	}
	if !reflect.DeepEqual(s.Model, want) { // no NaN: the planes are of linear systems
		o.t.Fatalf("%+v, want %+v", s.Model, want)
	}
}

// A daemon that reads nothing but the records of a window serves its model, bit for bit.
func TestWindowIsTheModelOfADaemonWithItsBlocksAlone(t *testing.T) {
	compared := 0
	for seed := range uint64(12) {
		h := newHistory(4*seed + 3*(seed%2)) // units message and key: a block is a record
		if u := h.flags["blocks.unit"]; u != "message" && u != "key" {
			t.Fatalf("unit %s", u)
		}
		h.flags["format.features"] = "x1,x2"
		h.flags["model.nu"] = "0.7"
		h.flags["model.standardise"] = []string{"true", "false"}[seed/2%2]
		h.flags["model.balanced"] = []string{"true", "false"}[seed/4%2]
		h.flags["snapshot.file"] = filepath.Join(t.TempDir(), "s.db")
		o := openOffline(t, h.flags, false)
		for partition := range h.log {
			o.deliver(partition, h.log[partition], h.end(partition))
			o.retireAny(h.r)
		}
		for range 10 {
			w := randomWindow(h.r)
			got, err := o.window(w, 0, func() {})
			if errors.Is(err, httpapi.ErrNoWindow) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			flags := maps.Clone(h.flags)
			flags["snapshot.file"] = filepath.Join(t.TempDir(), "fresh.db")
			flags["retire.keep"] = "all"
			for _, key := range []string{"retire.blocks", "retire.rows", "retire.age", "retire.half_life", "retire.half_life_rows"} {
				delete(flags, key) // the blocks of a window weigh alike
			}
			fresh := openOffline(t, flags, false)
			blocks := o.blocksIn(&w)
			slices.SortFunc(blocks, func(a, b retire.Entry) int { return int(a.Position.Offset - b.Position.Offset) })
			for _, e := range blocks {
				p := e.Position
				for _, record := range h.log[p.Partition] {
					if record.Offset == p.Offset {
						fresh.deliver(p.Partition, []kafka.Record{record}, record.Offset+1)
					}
				}
			}
			want := fresh.solved()
			if got.Digest != want.Digest || got.Rows != want.Rows || got.Blocks != want.Blocks || got.Unlabelled != want.Unlabelled {
				t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
			}
			if !reflect.DeepEqual(got.Model, want.Model) || (got.Model == nil) != (got.Problem != "") {
				t.Fatalf("seed %d: %+v (%s), want %+v (%s)", seed, got.Model, got.Problem, want.Model, want.Problem)
			}
			if got.Model != nil {
				compared++
			}
			if err := fresh.Store.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if compared < 30 {
		t.Errorf("%d models were compared: the test does not reach what it should", compared)
	}
}

// solved solves the planes of the live set as the loop does, and returns what is served.
func (o *offline) solved() *model.Served {
	o.t.Helper()
	o.publisher.Solve(time.Now())
	if o.Solving != nil {
		o.Solving.Await()
	}
	return o.Front.Served()
}

// A window of times whose blocks have been let go says so, whether it has other blocks or none.
func TestWindowsSayThatBlocksAreGone(t *testing.T) {
	early := model.Window{To: new(time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC))}
	whole := model.Window{From: new(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	for _, c := range []struct {
		flags map[string]string
		gone  string
	}{
		{nil, ""},
		{map[string]string{"retire.keep": "blocks", "retire.blocks": "4"}, "blocks that retire.keep has let go, since retire.archive is off"},
		{map[string]string{"retire.keep": "blocks", "retire.blocks": "4", "retire.archive": "true"}, ""},
	} {
		o, _ := turned(t, c.flags)
		says := func(what string, lacks []string) {
			if got := slices.Contains(lacks, c.gone); got != (c.gone != "") {
				t.Errorf("%v: %s lacks %q", c.flags, what, lacks)
			}
		}
		s, err := o.window(whole, 0, func() {})
		if err != nil {
			t.Fatal(err)
		}
		says("the window", s.Window.Lacks)
		says("the comparison", asked(o, func(ctx context.Context) (*model.Comparison, error) { return o.Compare(ctx, whole, whole, 0) }).Lacks)
		says("the history", asked(o, func(ctx context.Context) (*model.Steps, error) {
			return o.Steps(ctx, httpapi.StepsQuery{Step: 24 * time.Hour, Window: 24 * time.Hour})
		}).Lacks)
		s, err = o.window(early, 0, func() {})
		if kept := c.flags["retire.blocks"] == "" || c.gone == ""; kept && (err != nil || s.Blocks != 2) {
			t.Errorf("%v: the first days: %v", c.flags, err)
		} else if !kept && (!errors.Is(err, httpapi.ErrNoWindow) || !strings.Contains(err.Error(), c.gone)) {
			t.Errorf("%v: the first days, whose blocks are gone: %v", c.flags, err)
		}
	}
}

// A range of another topic chooses nothing, so it is refused beside others, and not passed over.
func TestRangesOfAnotherTopic(t *testing.T) {
	o, _ := turned(t, nil)
	own, other := retire.Range{Topic: "t", Last: 3}, retire.Range{Topic: "u", Last: 3}
	for _, c := range []struct {
		ranges []retire.Range
		want   error
	}{{[]retire.Range{own}, nil}, {[]retire.Range{own, other}, httpapi.ErrOtherTopic}} {
		if _, err := o.window(model.Window{Positions: c.ranges}, 0, func() {}); !errors.Is(err, c.want) {
			t.Errorf("the model of %v: %v, want %v", c.ranges, err, c.want)
		}
		if _, err := o.Ask(retire.Selector{Positions: c.ranges}, true, access.Caller{}); !errors.Is(err, c.want) {
			t.Errorf("the blocks of %v: %v, want %v", c.ranges, err, c.want)
		}
	}
}

// A caller may leave at any moment. No cut stays open: it would keep the summaries of blocks that
// are retired later.
func TestAbandonedWindowsEndTheirCuts(t *testing.T) {
	o, _ := turned(t, nil)
	abandoned := 0
	for calls := range 5 {
		for _, during := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			began := 0
			leave := func() {
				cancel()
				time.Sleep(5 * time.Millisecond) // so that the caller notices
			}
			done := make(chan error)
			go func() {
				_, err := o.Window(ctx, model.Window{}, 1)
				done <- err
			}()
			for ended := false; !ended; {
				select {
				case call := <-o.Calls:
					if began == calls && during {
						leave()
					}
					call()
					if began == calls && !during {
						leave()
					}
					began++
				case err := <-done:
					if errors.Is(err, context.Canceled) {
						abandoned++
					} else if err != nil {
						t.Fatal(err)
					}
					ended = true
				}
			}
			cancel()
			if n := o.Live.OpenCuts(); n != 0 {
				t.Fatalf("%d cuts are open after the caller has left at call %d (during it: %t)", n, calls, during)
			}
			o.Windows.Clear()
			o.Live.DropPast(time.Now().Add(time.Hour))
		}
	}
	if abandoned < 4 {
		t.Errorf("%d calls were abandoned: the test does not reach what it should", abandoned)
	}
}
