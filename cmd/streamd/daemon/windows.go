package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/learning"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/timeline"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/retire"
)

// Models of windows are solved by the caller, beside the loop. The loop plans which sums a
// window takes (live.Cut), between two deliveries.

const (
	pastIdle     = 10 * time.Minute // without a window, after which the index is dropped
	keptWindows  = 16               // models
	keptNumbers  = 1 << 20          // of their planes together
	windowedOnly = "the model of a window is read off the sums of its blocks"
)

// windowKey identifies the model of a window.
type windowKey struct {
	cut   live.CutKey
	text  string // of the window
	nu    float64
	study *studyJob
	fixed *[]string
}

// windowCache keeps the latest models of windows.
type windowCache struct {
	mu     sync.Mutex
	models []cachedWindow // the latest last
}

type cachedWindow struct {
	key    windowKey
	served *model.Served
}

func (c *windowCache) get(key windowKey) *model.Served {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.models {
		if m.key == key {
			return m.served
		}
	}
	return nil
}

func (c *windowCache) put(key windowKey, s *model.Served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.models = append(c.models, cachedWindow{key, s})
	numbers := 0
	for i, m := range slices.Backward(c.models) {
		if m.served.Model != nil {
			numbers += len(m.served.Model.Planes) * len(m.served.Model.Features)
		}
		if numbers > keptNumbers || len(c.models)-i > keptWindows {
			c.models = slices.Delete(c.models, 0, i+1)
			return
		}
	}
}

func (c *windowCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.models = nil
}

// forgetWindows drops what windows are summed from after a while.
func (d *Daemon) forgetWindows(now time.Time) {
	if d.live.DropPast(now.Add(-pastIdle)) {
		d.windows.clear()
	}
}

// windowSums is the sum of a window's blocks, and what it takes to solve it.
type windowSums struct {
	window  model.Window
	key     windowKey
	served  *model.Served // the cached model, or nil; then there is a sum
	sum     *incremental.State
	in      *live.Coordinates
	options incremental.Options
	basis   *model.Basis
	names   []string // of the features
	blocks  int
	absent  []string // classes of the served model; those of the window are removed later
	lacks   []string // see model.Windowed
}

// basisID is the id of the basis in whose coordinates the sum is, "" in those of the features.
func (s *windowSums) basisID() string {
	if s.basis == nil {
		return ""
	}
	return s.basis.ID
}

// Window implements httpapi.Service.
func (d *Daemon) Window(ctx context.Context, w model.Window, nu float64) (*model.Served, error) {
	s, err := d.sumWindow(ctx, w, nu, true)
	if err != nil {
		return nil, err
	}
	if s.served == nil {
		if err := d.asked(taskWindow, func() error { s.served = d.solveWindow(ctx, s); return nil }); err != nil {
			return nil, err
		}
		d.windows.put(s.key, s.served)
	}
	return s.served, ctx.Err()
}

// ofKnownTopics refuses ranges of a topic that this daemon does not read, and that no block has its
// rows in: they choose no block, and a list of ranges would silently choose less than was meant.
func (d *Daemon) ofKnownTopics(ranges []retire.Range) error {
	for _, r := range ranges {
		if r.Topic != d.cfg.Kafka.Topic && !d.live.HasSumsOf(r.Topic) {
			return fmt.Errorf("positions %s: %w: the daemon reads %s", r, httpapi.ErrOtherTopic, d.cfg.Kafka.Topic)
		}
	}
	return nil
}

// stretch is the window in the order that it has stretches of.
func stretch(w model.Window) live.Window {
	times := timeline.Times{First: math.MinInt64, Last: math.MaxInt64}
	if w.From != nil {
		times.First = firstMillisecond(*w.From)
	}
	if w.To != nil {
		times.Last = firstMillisecond(*w.To) - 1
	}
	if w.Positions == nil {
		out := live.Window{Order: live.ByTime}
		if times.First <= times.Last {
			out.Ranges = append(out.Ranges, timeline.Range{First: times.First, Last: times.Last})
		}
		return out
	}
	out := live.Window{Order: live.ByPosition}
	if w.From != nil || w.To != nil {
		out.Times = &times
	}
	for _, r := range w.Positions {
		out.Ranges = append(out.Ranges, timeline.Range{Line: timeline.Line{Topic: r.Topic, Partition: r.Partition}, First: r.First, Last: r.Last})
	}
	return out
}

// firstMillisecond is the first whole millisecond that is not before t.
func firstMillisecond(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// sumWindow sums the blocks of a window, at one moment. With cached it looks for the model
// first. The sums of parts that it has made stay for later calls, also when it fails.
func (d *Daemon) sumWindow(ctx context.Context, w model.Window, nu float64, cached bool) (*windowSums, error) {
	failed := func(err error) error {
		if _, ok := errors.AsType[memory.LimitError](err); ok {
			return fmt.Errorf("sum the blocks of a window: %w: %w", err, httpapi.ErrUnavailable)
		}
		return err
	}
	at := stretch(w)
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	for ready := false; !ready; {
		ready, err = inLoop(ctx, d.jobs, func() (bool, error) {
			if d.failure != nil {
				return false, errStopping
			}
			if err := d.ofKnownTopics(w.Positions); err != nil {
				return false, err
			}
			return d.live.Index(at.Order)
		})
		if err != nil {
			return nil, failed(err)
		}
	}
	for {
		s := &windowSums{window: w}
		// The live set keeps summaries of retired blocks for a cut until EndCut.
		cut, err := keptInLoop(ctx, d.jobs, func() (*live.Cut, error) {
			if d.failure != nil || !d.isFlushed() {
				return nil, errStopping
			}
			return d.cutWindow(s, at, string(text), nu, cached)
		})
		if err != nil {
			return nil, failed(err)
		}
		if cut == nil { // dropped for want of memory, or cached
			if s.served != nil {
				return s, nil
			}
			continue
		}
		var sum *incremental.State
		err = d.asked(taskWindow, func() (err error) { // the cut has to end
			sum, err = cut.Sum(ctx)
			return err
		})
		err = d.call(context.WithoutCancel(ctx), func() error { return d.live.EndCut(cut, err) })
		if errors.Is(err, live.ErrMoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if cut.Whole {
			s.sum, s.blocks = sum, cut.Blocks
			return s, nil
		}
	}
}

// cutWindow plans a window in the loop. The cut is nil if its model is cached.
func (d *Daemon) cutWindow(s *windowSums, at live.Window, text string, nu float64, cached bool) (*live.Cut, error) {
	if ready, err := d.live.Index(at.Order); !ready || err != nil {
		return nil, err
	}
	cut, err := d.live.Cut(at)
	if err != nil {
		return nil, err
	}
	if cut.Blocks == 0 {
		_ = d.live.EndCut(cut, nil)
		return nil, d.noWindow()
	}
	p := d.publisher
	s.in, s.names = d.live.Past(), d.live.Features().Names()
	if s.in == d.live.InUse().Coordinates {
		s.basis, s.options = p.learner.Basis(d.live), p.optionsNow(s.in)
	} else {
		s.options = p.learner.OptionsIn(d.live, s.in)
	}
	s.lacks = d.windowLacks(s.in)
	if nu > 0 {
		s.options.Nu = nu
	}
	if m := p.published.Load().served.Model; m != nil {
		s.absent = slices.Clone(m.Classes)
	}
	s.key = windowKey{cut.Key(), text, s.options.Nu, p.study, d.live.Target().Features}
	if cached && cut.Whole {
		if s.served = d.windows.get(s.key); s.served != nil {
			return nil, d.live.EndCut(cut, nil)
		}
	}
	return cut, nil
}

// solveWindow solves the planes of a window's sum.
func (d *Daemon) solveWindow(ctx context.Context, s *windowSums) *model.Served {
	out := &model.Served{
		Rows: s.sum.Rows(), Unlabelled: s.sum.Unlabelled().Rows, Blocks: s.blocks, Digest: live.DigestOf(s.sum),
		Missing: model.MissingOf(d.cfg.Format), Schema: d.cfg.Format.Schema, Basis: s.basis, Window: &model.Windowed{Window: s.window, Lacks: s.lacks},
	}
	labels := s.sum.Labels()
	out.Window.Absent = slices.DeleteFunc(s.absent, func(c string) bool { return slices.Contains(labels, c) })
	const why = windowedOnly
	out.Absent = model.Absent{Tuning: why, Refinement: why, Calibration: why, Quality: why, Hat: why}
	if d.cfg.Model.Decision != config.DecisionValue {
		out.Absent.Decision = "there is no calibration: " + why
	}
	planes, err := s.in.Moments(s.sum).Solve(s.options)
	if err != nil {
		planes, err = model.Alone(err, s.names, s.options)
	}
	if err != nil {
		out.Problem = learning.NoPlanes(err, out.Rows, labels)
	} else {
		out.Model, out.Knowledge = planes, model.NewKnowledge(ctx, planes)
	}
	out.Fingerprint = out.Identity().Fingerprint()
	return out
}

// noWindow is the error of a window without blocks.
func (d *Daemon) noWindow() error {
	if gone := d.gone(); gone != "" {
		return fmt.Errorf("%w, which lacks %s", httpapi.ErrNoWindow, gone)
	}
	return httpapi.ErrNoWindow
}

// gone names blocks that were live and that no window has any more, though nobody has retired
// them. It is "" if there are none. It runs in the loop.
func (d *Daemon) gone() string {
	switch {
	case d.live.Overflowed() > 0:
		return "blocks of the lowest event times, which the archive has dropped because it was full (limits.memory)"
	case !d.cfg.Retire.Archive && d.cfg.Retire.Keep != config.KeepAll:
		return "blocks that retire.keep has let go, since retire.archive is off"
	}
	return ""
}

// windowLacks says which blocks and what else the planes of a window do not have. It runs in the
// loop.
func (d *Daemon) windowLacks(in *live.Coordinates) []string {
	lacks := []string{}
	if gone := d.gone(); gone != "" {
		lacks = append(lacks, gone)
	}
	if d.learner.Fades() {
		lacks = append(lacks, "forgetting: all blocks of a window weigh alike")
	}
	if d.learner.Tunes() {
		lacks = append(lacks, "tuning: ν and the scaling are those of the served model, or as asked for; a daemon with only these blocks may choose others")
	}
	if d.learner.Refines() {
		lacks = append(lacks, "refinement: it takes the rows, and only sums of the window are kept")
	}
	if d.learner.Judges() {
		lacks = append(lacks, "quality and calibration: they are of held-out rows of all live blocks, so labels are decided by the values of the planes")
	}
	if in == nil && d.cfg.Retire.Archive && d.cfg.Kernel.Function != config.KernelNone {
		lacks = append(lacks, "a basis: archived blocks have sums of the features, so that windows are in the features (retire.archive), with ν as configured")
	}
	if in != nil {
		lacks = append(lacks, "a basis of its own: the coordinates are those of the basis in use")
	}
	return lacks
}
