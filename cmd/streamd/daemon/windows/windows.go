// Package windows makes models of windows of the live and the archived blocks, compares two of
// them, and follows how planes turn from window to window.
//
// The caller solves, beside the loop. The loop plans which sums a window takes (live.Cut), between
// two deliveries.
package windows

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
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/daemon/timeline"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/retire"
)

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
	by    any // the study that has chosen the options
	fixed *[]string
}

// Windows makes models of windows, and keeps the latest.
type Windows struct {
	*loop.Loop
	options func(*live.Coordinates) (options incremental.Options, by any)
	archive archiving

	mu     sync.Mutex
	models []cachedWindow // the latest last
}

// New returns it without a model. options are those of a solve in coordinates, and by identifies
// the study that has chosen them.
func New(l *loop.Loop, options func(*live.Coordinates) (chosen incremental.Options, by any)) *Windows {
	return &Windows{Loop: l, options: options, archive: archiving{Loop: l}}
}

type cachedWindow struct {
	key    windowKey
	served *model.Served
}

// Kept is the number of models that are kept.
func (w *Windows) Kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.models)
}

// get is the model of a window, if it is kept.
func (w *Windows) get(key windowKey) *model.Served {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.models {
		if m.key == key {
			return m.served
		}
	}
	return nil
}

func (w *Windows) put(key windowKey, s *model.Served) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.models = append(w.models, cachedWindow{key, s})
	numbers := 0
	for i, m := range slices.Backward(w.models) {
		if m.served.Model != nil {
			numbers += len(m.served.Model.Planes) * len(m.served.Model.Features)
		}
		if numbers > keptNumbers || len(w.models)-i > keptWindows {
			w.models = slices.Delete(w.models, 0, i+1)
			return
		}
	}
}

// Clear forgets the models: they may be of blocks that have been retired.
func (w *Windows) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.models = nil
}

// WhenDue drops what windows are summed from after a while, and tells what the archive has dropped.
func (w *Windows) WhenDue(now time.Time) error {
	if w.Live.DropPast(now.Add(-pastIdle)) {
		w.Clear()
	}
	w.archive.tell(now)
	return nil
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
func (w *Windows) Window(ctx context.Context, of model.Window, nu float64) (*model.Served, error) {
	s, err := w.sumWindow(ctx, of, nu, true)
	if err != nil {
		return nil, err
	}
	if s.served == nil {
		if err := w.Asked(loop.TaskWindow, func() error { s.served = w.solveWindow(ctx, s); return nil }); err != nil {
			return nil, err
		}
		w.put(s.key, s.served)
	}
	return s.served, ctx.Err()
}

// OfKnownTopics refuses ranges of a topic that this daemon does not read, and that no block has its
// rows in: they choose no block, and a list of ranges would silently choose less than was meant.
func (w *Windows) OfKnownTopics(ranges []retire.Range) error {
	for _, r := range ranges {
		if r.Topic != w.Config.Kafka.Topic && !w.Live.HasSumsOf(r.Topic) {
			return fmt.Errorf("positions %s: %w: the daemon reads %s", r, httpapi.ErrOtherTopic, w.Config.Kafka.Topic)
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
func (w *Windows) sumWindow(ctx context.Context, of model.Window, nu float64, cached bool) (*windowSums, error) {
	failed := func(err error) error {
		if _, ok := errors.AsType[memory.LimitError](err); ok {
			return fmt.Errorf("sum the blocks of a window: %w: %w", err, httpapi.ErrUnavailable)
		}
		return err
	}
	at := stretch(of)
	text, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	for ready := false; !ready; {
		ready, err = loop.Change(ctx, w.Loop, func() (bool, error) {
			if err := w.OfKnownTopics(of.Positions); err != nil {
				return false, err
			}
			return w.Live.Index(at.Order)
		})
		if err != nil {
			return nil, failed(err)
		}
	}
	for {
		s := &windowSums{window: of}
		// The live set keeps summaries of retired blocks for a cut until EndCut.
		cut, err := loop.AskKept(ctx, w.Loop, func() (*live.Cut, error) {
			if w.Failure != nil {
				return nil, loop.ErrStopping
			}
			if err := w.Flush(); err != nil {
				return nil, err
			}
			return w.cutWindow(s, at, string(text), nu, cached)
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
		err = w.Asked(loop.TaskWindow, func() (err error) { // the cut has to end
			sum, err = cut.Sum(ctx)
			return err
		})
		err = w.Call(context.WithoutCancel(ctx), func() error { return w.Live.EndCut(cut, err) })
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
func (w *Windows) cutWindow(s *windowSums, at live.Window, text string, nu float64, cached bool) (*live.Cut, error) {
	if ready, err := w.Live.Index(at.Order); !ready || err != nil {
		return nil, err
	}
	cut, err := w.Live.Cut(at)
	if err != nil {
		return nil, err
	}
	if cut.Blocks == 0 {
		_ = w.Live.EndCut(cut, nil)
		return nil, w.noWindow()
	}
	s.in, s.names = w.Live.Past(), w.Live.Features().Names()
	chosen, by := w.options(s.in)
	if s.in == w.Live.InUse().Coordinates {
		s.basis, s.options = w.Learner.Basis(w.Live), chosen
	} else {
		s.options = w.Learner.OptionsIn(w.Live, s.in)
	}
	s.lacks = w.windowLacks(s.in)
	if nu > 0 {
		s.options.Nu = nu
	}
	if m := w.Front.Served().Model; m != nil {
		s.absent = slices.Clone(m.Classes)
	}
	s.key = windowKey{cut.Key(), text, s.options.Nu, by, w.Live.Target().Features}
	if cached && cut.Whole {
		if s.served = w.get(s.key); s.served != nil {
			return nil, w.Live.EndCut(cut, nil)
		}
	}
	return cut, nil
}

// solveWindow solves the planes of a window's sum.
func (w *Windows) solveWindow(ctx context.Context, s *windowSums) *model.Served {
	out := &model.Served{
		Rows: s.sum.Rows(), Unlabelled: s.sum.Unlabelled().Rows, Blocks: s.blocks, Digest: live.DigestOf(s.sum),
		Missing: model.MissingOf(w.Config.Format), Schema: w.Config.Format.Schema, Basis: s.basis, Window: &model.Windowed{Window: s.window, Lacks: s.lacks},
	}
	labels := s.sum.Labels()
	out.Window.Absent = slices.DeleteFunc(s.absent, func(c string) bool { return slices.Contains(labels, c) })
	const why = windowedOnly
	out.Absent = model.Absent{Tuning: why, Refinement: why, Calibration: why, Quality: why, Hat: why}
	if w.Config.Model.Decision != config.DecisionValue {
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
func (w *Windows) noWindow() error {
	if gone := w.gone(); gone != "" {
		return fmt.Errorf("%w, which lacks %s", httpapi.ErrNoWindow, gone)
	}
	return httpapi.ErrNoWindow
}

// gone names blocks that were live and that no window has any more, though nobody has retired
// them. It is "" if there are none. It runs in the loop.
func (w *Windows) gone() string {
	switch {
	case w.Live.Overflowed() > 0:
		return "blocks of the lowest event times, which the archive has dropped because it was full (limits.memory)"
	case !w.Config.Retire.Archive && w.Config.Retire.Keep != config.KeepAll:
		return "blocks that retire.keep has let go, since retire.archive is off"
	}
	return ""
}

// windowLacks says which blocks and what else the planes of a window do not have. It runs in the
// loop.
func (w *Windows) windowLacks(in *live.Coordinates) []string {
	lacks := []string{}
	if gone := w.gone(); gone != "" {
		lacks = append(lacks, gone)
	}
	if w.Learner.Fades() {
		lacks = append(lacks, "forgetting: all blocks of a window weigh alike")
	}
	if w.Learner.Tunes() {
		lacks = append(lacks, "tuning: ν and the scaling are those of the served model, or as asked for; a daemon with only these blocks may choose others")
	}
	if w.Learner.Refines() {
		lacks = append(lacks, "refinement: it takes the rows, and only sums of the window are kept")
	}
	if w.Learner.Judges() {
		lacks = append(lacks, "quality and calibration: they are of held-out rows of all live blocks, so labels are decided by the values of the planes")
	}
	if in == nil && w.Config.Retire.Archive && w.Config.Kernel.Function != config.KernelNone {
		lacks = append(lacks, "a basis: archived blocks have sums of the features, so that windows are in the features (retire.archive), with ν as configured")
	}
	if in != nil {
		lacks = append(lacks, "a basis of its own: the coordinates are those of the basis in use")
	}
	return lacks
}
