// Package watching finds drift of the stream, and rows that are classified no better than by a
// baseline, and tells of partitions and epochs.
package watching

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/drift"
	"streamd/retire"
)

// Watching is the loop's part in drift detection, and in telling of what happens.
//
// One detector watches the errors of judged rows (package intake). The other one compares the
// loss of the served planes on the newest blocks with that on the rest, from their sums. The
// first depends on which rows were judged. The second is a function of the live set and the served
// planes, and keeps nothing but whether its alarm holds. A save writes both, at its position of
// the log: a change that was half found before a restart is found after it. No answer of the model
// depends on either.
type Watching struct {
	*loop.Loop
	partitions func() int // that are read

	compared *model.Served // the value that was compared last
	ended    time.Time     // of the last comparison
	took     time.Duration // the loop's time for it
	looked   time.Time     // when the events of others were looked for

	epoch  uint32 // that was told of
	number int    // of partitions, likewise

	judged  time.Time      // when the judged rows were looked at
	useless *model.Stretch // figures that are no better than one class for all; nil: they are better
	beaten  string         // by which baselines the figures are beaten; "": by none

	rise rise // of the error, that has not passed; the zero one: there is none

	saved []byte // that the snapshot has, or will have after the save under way; nil: not known
	risen bool   // an alarm has changed since, or a problem was seen

	mu     sync.Mutex // of the report
	report model.Drift
}

// savedDetectors is the record of the detectors in the snapshot.
type savedDetectors struct {
	Version  int             `json:"version"`
	Error    json.RawMessage `json:"error,omitempty"`    // see intake.Detector; absent where drift.detect is false
	Progress json.RawMessage `json:"progress,omitempty"` // see intake.Progress
	Labels   map[int]string  `json:"labels,omitempty"`   // of the last row of each partition
	Report   model.Drift     `json:"report"`             // counts, alarms, and whether the alarm of the sums holds
	Rise     rise            `json:"rise"`               // of the error, that has not passed
	Problems json.RawMessage `json:"problems"`           // see problems.Board.Record
}

// rise is a rise of the error that has not passed: the shares of wrong rows before and after.
type rise struct {
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// A rise has passed when at most this part of it is left over that many judged rows.
const (
	leftOfRise = 0.1
	rowsOfFall = 200
)

// isOver reports whether a share of wrong rows is about what it was before the rise.
func (r rise) isOver(share float64) bool {
	return share <= r.Before+leftOfRise*(r.After-r.Before)
}

// IsUnsaved reports whether the next save has something to write.
func (w *Watching) IsUnsaved() bool { return w.risen }

// Seen notes that the operator has seen what has happened up to a time.
func (w *Watching) Seen(until time.Time) {
	w.Problems.Seen(until)
	w.risen = true
}

const detectorsVersion = 1

// New continues the detectors of a snapshot, if record is not nil.
func New(c *loop.Loop, partitions func() int, record []byte) *Watching {
	w := &Watching{Loop: c, partitions: partitions}
	w.restore(record)
	return w
}

func (w *Watching) restore(record []byte) {
	if record == nil {
		return
	}
	var s savedDetectors
	err := json.Unmarshal(record, &s)
	if err == nil && s.Version != detectorsVersion {
		err = fmt.Errorf("the record has version %d, this program knows %d", s.Version, detectorsVersion)
	}
	if err == nil {
		err = w.Problems.Restore(s.Problems)
	}
	if err == nil && w.Config.Drift.Detect && s.Error != nil {
		err = w.Intake.RestoreDetector(s.Error)
	}
	if err != nil {
		w.Log.Warn().Err(err).Msg("the drift detectors and the problems in the snapshot cannot be read and begin anew")
		return
	}
	s.Report.Alarms = s.Report.Alarms[:min(len(s.Report.Alarms), keptAlarms)]
	if s.Progress != nil {
		if err := w.Intake.RestoreProgress(s.Progress); err != nil {
			w.Log.Warn().Err(err).Msg("the progressive figures in the snapshot cannot be read and begin anew")
		}
	}
	w.Intake.RestoreLastLabels(s.Labels)
	w.saved, w.report, w.rise = record, s.Report, s.Rise
}

// Record is the detectors for a save, nil if the snapshot has them. undo counts them as not saved.
func (w *Watching) Record() (record []byte, undo func(), err error) {
	undo = func() { w.saved, w.risen = nil, true }
	s := savedDetectors{Version: detectorsVersion, Labels: w.Intake.LastLabels(), Rise: w.rise}
	if w.Config.Drift.Detect {
		if s.Error, err = w.Intake.Detector(); err != nil {
			return nil, undo, err
		}
	}
	if s.Progress, err = w.Intake.Progress(); err != nil {
		return nil, undo, err
	}
	if s.Problems, err = w.Problems.Record(); err != nil {
		return nil, undo, err
	}
	w.mu.Lock()
	s.Report = w.report
	record, err = json.Marshal(s)
	w.mu.Unlock()
	if w.risen = false; err != nil || bytes.Equal(record, w.saved) {
		return nil, undo, err
	}
	w.saved = record
	return record, undo, nil
}

const (
	// EnoughJudged is the least weight of judged rows whose figures are compared with baselines.
	EnoughJudged = 500

	// compareEvery is the time between two comparisons, and lookEvery between two looks.
	// judgeEvery is that between two looks at the judged rows.
	compareEvery, lookEvery, judgeEvery = time.Second, 250 * time.Millisecond, 5 * time.Second
	keptAlarms                          = 20
)

// WhenDue looks for changes and tells of them.
func (w *Watching) WhenDue(now time.Time) error {
	if now.Sub(w.looked) >= lookEvery {
		w.looked = now
		w.lookAround()
	}
	if now.Sub(w.judged) >= judgeEvery {
		p := w.Intake.Prequential()
		w.judged, w.useless = now, w.noBetter(p)
		w.beaten = w.beatenBy(p)
	}
	if !w.Config.Drift.Detect {
		return nil
	}
	for _, c := range w.Intake.TakeChanges() {
		w.raise(model.Alarm{Detector: model.DetectorError, Before: c.Before, After: c.After, Rows: c.New})
	}
	if w.rise != (rise{}) {
		if rows, share := w.Intake.Errors(); rows >= rowsOfFall && w.rise.isOver(share) {
			w.rise, w.risen = rise{}, true
			w.Problems.Resolve(httpapi.ProblemDrift, string(model.DetectorError))
		}
	}
	p := w.Front.Now()
	if w.Rests(loop.TaskCompare, now) || p.Served == w.compared || p.Served.Model == nil || p.Fixed != w.Live.Target().Features || w.Solving != nil {
		return nil
	}
	if now.Sub(w.ended) >= max(compareEvery, w.Pause(w.took, now)) {
		w.compared = p.Served
		w.Compare(p.Served)
	}
	return nil
}

// noBetter returns the figures of the latest judged rows, if these are classified no better than by
// giving all of them one class. Chance moves a stream that is no better up and down, so once it is
// so, it is over when the figures are better by two standard errors.
func (w *Watching) noBetter(p model.Prequential) *model.Stretch {
	if p.Window == nil || p.Window.Weight < EnoughJudged {
		return nil
	}
	for _, s := range []*model.Stretch{p.Window, p.Fading} {
		chance, deviation := s.OneClass()
		if w.useless != nil {
			chance += 2 * deviation
		}
		if s.BalancedCorrectness > chance {
			return nil
		}
	}
	return p.Window
}

// beatenBy says by which baselines the latest judged rows are beaten, "" if by none. As with
// noBetter, it is over when the figures are better by two standard errors. Where a model is asked
// for something else than many right rows, the baselines have another aim.
func (w *Watching) beatenBy(p model.Prequential) string {
	if p.Window == nil || p.Window.Weight < EnoughJudged || !w.Config.Model.CountsRight() {
		return ""
	}
	margin := 0.
	if w.beaten != "" {
		margin = 2
	}
	if p.Fading == nil || p.Fading.NoBetter(margin) == "" {
		return ""
	}
	return p.Window.NoBetter(margin)
}

// Conditions are the problems of what is judged.
func (w *Watching) Conditions() (all []httpapi.Problem) {
	if s := w.useless; s != nil {
		chance, _ := s.OneClass()
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemUseless, Text: fmt.Sprintf(
			"new rows are classified no better than by giving all of them one class: the mean of the classes' shares classified right is %.3g %%, and with one class for all it is %.3g %%",
			100*s.BalancedCorrectness, 100*chance)})
	}
	if w.beaten != "" && w.useless == nil {
		all = append(all, httpapi.Problem{Kind: httpapi.ProblemBaseline, Text: "new rows are classified no better than by a baseline: " + w.beaten})
	}
	return all
}

// lookAround tells of partitions and epochs.
func (w *Watching) lookAround() {
	epoch, text := uint32(0), "the planes are in the features"
	if in := w.Live.InUse().Coordinates; in != nil {
		epoch, text = in.Number, fmt.Sprintf("the live blocks are in coordinates of %d points", in.Size())
	}
	if epoch != w.epoch {
		w.epoch = epoch
		w.EventLog.Add(httpapi.Event{Type: httpapi.EventEpoch, Epoch: &epoch, Text: text})
	}
	if n := w.partitions(); n != w.number && n > 0 {
		w.number = n
		w.EventLog.Add(httpapi.Event{Type: httpapi.EventPartitions, Partitions: &n, Text: fmt.Sprintf("partitions of the topic: %d", n)})
	}
}

// Compare begins to compare the losses of the served planes. The job stands in the place of a
// solve, which needs as much memory, and has the loop read a few summaries at a time.
func (w *Watching) Compare(served *model.Served) {
	in, id := w.Live.InUse().Coordinates, ""
	if in != nil {
		id = in.ID
	}
	blocks := min(drift.MostNewest, w.Live.Blocks()/2)
	switch {
	case served.BasisID() != id:
		return // planes in the coordinates in use follow
	case blocks < drift.LeastNewest:
		w.measured(model.SumsDrift{Absent: fmt.Sprintf("there are fewer than %d live blocks", 2*drift.LeastNewest)})
		return
	}
	began := time.Now()
	var newest []retire.Entry
	for e := range w.Live.Backward {
		if newest = append(newest, e); len(newest) == blocks {
			break
		}
	}
	total := in.Moments(w.Live.InUse().Total())
	w.took = time.Since(began)
	w.Solving = w.Begin(loop.TaskCompare, false, func(ctx context.Context) func() {
		report, err := w.compareLosses(ctx, served.Model, in, total, newest)
		return func() {
			w.Solving, w.ended = nil, time.Now()
			if err != nil && ctx.Err() == nil {
				w.Log.Warn().Err(err).Msg("the newest blocks could not be compared with the rest")
			} else if err == nil && in == w.Live.InUse().Coordinates {
				w.measured(report)
			}
		}
	}, func(error) { w.Solving, w.ended, w.compared = nil, time.Now(), nil })
}

// compareLosses compares the loss of a model on the newest blocks with that on the rest of all
// rows. Blocks that have left the live set meanwhile count as the rest.
func (w *Watching) compareLosses(ctx context.Context, m *incremental.Model, in *live.Coordinates, total *incremental.Moments, blocks []retire.Entry) (r model.SumsDrift, err error) {
	var newest []drift.Loss // the newest first
	var rows []int64        // of each
	all := lossOf(m, total)
	for len(blocks) > 0 {
		few, summaries := blocks, []*incremental.Summary(nil)
		if summaries, err = loop.Ask(ctx, w.Loop, func() ([]*incremental.Summary, error) { return w.summaries(few, in) }); err != nil {
			return r, err
		}
		blocks = blocks[len(summaries):]
		for i, s := range summaries {
			if s == nil {
				continue
			}
			block := incremental.NewState(m.Features)
			block.Add(s)
			l := lossOf(m, in.Moments(block))
			if l.Weight == 0 { // no row has a label
				continue
			}
			newest, rows = append(newest, l), append(rows, few[i].Rows)
		}
	}
	if len(newest) < drift.LeastNewest {
		return model.SumsDrift{Absent: fmt.Sprintf("fewer than %d of the newest blocks have rows with a label", drift.LeastNewest)}, nil
	}
	c, ok := drift.Compare(newest, all)
	if !ok {
		return model.SumsDrift{Absent: "no row but those of the newest blocks has a label"}, nil
	}
	r.Blocks, r.Newest, r.Rest, r.P = c.Blocks, &c.Newest, &c.Rest, &c.P
	for _, m := range rows[:r.Blocks] {
		r.Rows += m
	}
	return r, nil
}

// comparedAtOnce bounds the bytes of summaries that the loop reads at once, where there is more
// than one.
const comparedAtOnce = 1 << 20

// summaries reads the summaries of the first blocks of a list, at least of one. That of a block
// that has left the live set is nil.
func (w *Watching) summaries(blocks []retire.Entry, in *live.Coordinates) (summaries []*incremental.Summary, err error) {
	for bytes := 0; len(summaries) < len(blocks) && bytes < comparedAtOnce; {
		s, err := w.Live.Summary(blocks[len(summaries)], in)
		if err != nil {
			return nil, err
		}
		if s != nil {
			bytes += s.Bytes()
		}
		summaries = append(summaries, s)
	}
	return summaries, nil
}

// lossOf is the squared loss of a model's planes, the mean over the planes, on summed rows.
func lossOf(m *incremental.Model, sums *incremental.Moments) (l drift.Loss) {
	planes := sums.Losses(nil, []*incremental.Model{m})[0]
	for _, p := range planes {
		l.Sum += (p.Plus + p.Minus) / float64(len(planes))
	}
	l.Weight = planes[0].PlusWeight + planes[0].MinusWeight
	return l
}

// measured takes the result of a comparison and raises an alarm if there is a new one.
func (w *Watching) measured(r model.SumsDrift) {
	w.mu.Lock()
	was := w.report.Sums
	r.Rises = was.Rises
	if r.P != nil {
		r.Holds = drift.Holds(was.Holds, *r.P)
	}
	risen := r.Holds && !was.Holds
	if risen {
		r.Rises++
	}
	w.risen = w.risen || r.Holds != was.Holds
	w.report.Sums = r
	w.mu.Unlock()
	if was.Holds && !r.Holds {
		w.Problems.Resolve(httpapi.ProblemDrift, string(model.DetectorSums))
	}
	if risen {
		w.raise(model.Alarm{Detector: model.DetectorSums, Before: *r.Rest, After: *r.Newest, Rows: r.Rows})
	}
}

// raise tells of a change.
func (w *Watching) raise(a model.Alarm) {
	a.Time = time.Now().UTC()
	text := fmt.Sprintf("the loss of the served planes is %.4g on the newest blocks, and %.4g on the rest", a.After, a.Before)
	if a.Detector == model.DetectorError {
		text = fmt.Sprintf("%.3g %% of the judged rows are wrong, and %.3g %% were before", 100*a.After, 100*a.Before)
	}
	line := w.Log.Info()
	if a.Detector == model.DetectorError && a.Rises() {
		if w.rise == (rise{}) {
			w.rise.Before = a.Before
		}
		w.rise.After, w.risen = a.After, true
	}
	if a.Rises() {
		line = w.Log.Warn()
		if w.Problems.Raise(httpapi.Problem{
			Kind: httpapi.ProblemDrift, Subject: string(a.Detector), Last: a.Time, Count: 1, Text: "the stream has changed: " + text,
		}, nil) {
			line = nil // it has been logged
		}
	}
	line.Str("detector", string(a.Detector)).Float64("before", a.Before).Float64("after", a.After).Int64("rows", a.Rows).
		Msg("the stream has changed")
	w.EventLog.Add(httpapi.Event{Time: a.Time, Type: httpapi.EventAlarm, Text: text, Alarm: &a})
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Detector == model.DetectorError {
		if a.Rises() {
			w.report.Error.Rises++
		} else {
			w.report.Error.Falls++
		}
	}
	w.report.Alarms = slices.Insert(w.report.Alarms, 0, a)
	w.report.Alarms = w.report.Alarms[:min(len(w.report.Alarms), keptAlarms)]
}

// Report is the report of the detectors.
func (w *Watching) Report() *model.Drift {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.report
	r.Delta = drift.Delta
	r.Alarms = slices.Clone(r.Alarms)
	if r.Alarms == nil {
		r.Alarms = []model.Alarm{}
	}
	if rows, share := w.Intake.Errors(); rows > 0 {
		r.Error.Rows, r.Error.Share = rows, &share
	}
	return &r
}
