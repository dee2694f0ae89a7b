package model

import (
	"fmt"
	"math"
	"strings"
	"time"

	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/prequential"
)

// Prequential reports how good the answers of the served models were for arriving rows,
// before they learned from the rows. Blocks are judged in the order of the log, and the rows of a
// block in an order that its position decides, since rows of a class may lie together. All rows of
// a slow stream are judged, and some of a fast one.
type Prequential struct {
	Rows  int64 `json:"rows"`  // rows judged since the start of the daemon
	Right int64 `json:"right"` // of these, the rows that were classified right

	Repeats int64            `json:"-"` // of these, the rows with the label of the row before
	Classes map[string]int64 `json:"-"` // of these, the rows of each class that the model has

	// Figures of the latest judged rows: 10,000 or more of the last minute or more, or all so
	// far. Null before the first.
	Window *Stretch `json:"window"`
	// Mean over the rows of the window of the records of their partition that had come after those
	// that the judging model had, and before theirs: the faster the stream, the more. Null without
	// rows.
	Behind *float64 `json:"behind"`
	Fading *Stretch `json:"fading"` // figures of all judged rows, each of which counts 0.999 times as much as the next; null before the first
	// Answers that were given before their labels came. Null where no live or waiting row has one.
	Given *Given `json:"given"`
	// Progressive figures, which are a function of the log. Null where drift.every is 0.
	Progressive *Progressive `json:"progressive"`
	Drift       *Drift       `json:"drift"` // drift detectors; null where drift.detect is false
	Sums        *Sums        `json:"sums"`  // blocks that came as sums, so that their rows cannot be judged; null if none has since the start
}

// Progressive reports how good planes were for the blocks after theirs: each block is judged by
// proximal planes of the live blocks before it in its partition, which are solved again after every
// drift.every blocks of the partition. So it does not depend on the speed of the stream, on workers
// or on restarts, unlike the other figures, which are of the answers that were served.
type Progressive struct {
	Every      int                    `json:"every"`      // drift.every
	Figures    *Stretch               `json:"figures"`    // of all judged rows since the snapshot was begun; null before the first
	Waited     int64                  `json:"waited"`     // rows that came while their partition had no planes, and are not judged
	Solves     int64                  `json:"solves"`     // times that planes were solved
	Partitions []ProgressivePartition `json:"partitions"` // figures of each
}

// ProgressivePartition has the progressive figures of a partition.
type ProgressivePartition struct {
	Partition    int      `json:"partition"`     // its number
	Rows         int64    `json:"rows"`          // rows judged
	Correctness  *float64 `json:"correctness"`   // share of them classified right; null without any
	LargestClass *float64 `json:"largest_class"` // baseline: share of their largest class
	LastLabel    *float64 `json:"last_label"`    // baseline: share with the label of the row before
	Waited       int64    `json:"waited"`        // rows without planes
	Solves       int64    `json:"solves"`        // times that planes were solved
}

// Given has the answers of predictions that were remembered (POST /v1/predict with an id), for rows
// that are live or wait. But for judged, it is a function of the topics of rows and of labels: of
// each id the latest row, its answer and the latest label.
type Given struct {
	Judged  int64       `json:"judged"`  // of the rows in rows beside this, those that were judged by the answer that was given; the others by one made when the model was about to learn from them
	Waiting int64       `json:"waiting"` // rows with an answer that wait for their label
	Rows    int64       `json:"rows"`    // live rows with an answer and a label
	Right   int64       `json:"right"`   // of these, the rows whose answer is their label
	Models  int         `json:"models"`  // number of models that gave the answers of these
	Pairs   []GivenPair `json:"pairs"`   // up to 50 pairs of a label and an answer, those of most rows first
}

// GivenPair counts rows of a class by the label that they were answered with.
type GivenPair struct {
	Class  string `json:"class"`  // label of the rows
	Answer string `json:"answer"` // label that they were answered with
	Rows   int64  `json:"rows"`   // their number
}

// Sums counts blocks that came as sums, in place of their rows, since the start of the daemon.
type Sums struct {
	Blocks   int64 `json:"blocks"`   // that were added
	Rows     int64 `json:"rows"`     // of these blocks
	Repeated int64 `json:"repeated"` // records of blocks that were there already, each as it was
}

// Stretch has the figures of some judged rows. Each row counts as one, whatever its weight, or
// fades. Rows of classes that the model does not have count as wrong, and in the balanced
// correctness as one more class.
type Stretch struct {
	LastLabel     *float64 `json:"last_label"`     // baseline: correctness of labelling every row with the label of the row before it: of the same key, or else of the partition
	KappaTemporal *float64 `json:"kappa_temporal"` // likewise measured against that baseline: 0 is no better, 1 is always right; null if the baseline is
	SquaredLoss   *float64 `json:"squared_loss"`   // mean over rows and planes of (value − target)², where the target is 1 for the plane of the row's class and −1 for others; without rows of unknown classes, and without answers that were given before
	Answers
}

// NewStretch reports figures for classes, of answers by a rule.
func NewStretch(rule decision.Kind, classes []string, f prequential.Figures) *Stretch {
	s := &Stretch{Answers: NewAnswers(rule, classes, f.Matrix, nil), SquaredLoss: number(f.SquaredLoss), LastLabel: number(f.LastLabel)}
	s.KappaTemporal = number(confusion.Kappa(s.Correctness, f.LastLabel))
	if s.Unknown > 0 {
		seen := 0.
		for _, c := range s.Classes {
			if c.Weight > 0 {
				seen++
			}
		}
		balanced := 0.
		if seen > 0 {
			balanced = s.BalancedCorrectness * seen / (seen + 1)
		}
		s.BalancedCorrectness = balanced
	}
	return s
}

// NoBetter says that labels are no better than a baseline, "" if they are better than each. A
// figure that moves by chance alone passes a baseline again and again: margin is the number of
// standard errors that it must be better by.
func (s *Stretch) NoBetter(margin float64) string {
	p, w := s.Correctness, s.Weight
	against := func(baseline float64) bool {
		variance := float64(p*(1-p)) + float64(baseline*(1-baseline))
		return p <= baseline+float64(margin*math.Sqrt(variance/w))
	}
	var worse []string
	if s.LastLabel != nil && against(*s.LastLabel) {
		worse = append(worse, "as the last label "+percent(*s.LastLabel))
	}
	if len(s.Classes) > 1 && against(s.LargestClass) {
		worse = append(worse, "always the largest class "+percent(s.LargestClass))
	}
	if worse == nil {
		return ""
	}
	return fmt.Sprintf("%s of the rows are right, %s", percent(p), strings.Join(worse, ", "))
}

// OneClass is what giving all rows one class makes of the balanced correctness of this stretch, and
// the standard error of BalancedCorrectness. Both are 0 if the rows are of fewer than two classes:
// then one class for all is right.
func (s *Stretch) OneClass() (balanced, standardError float64) {
	seen, variance := 0., 0.
	for _, c := range s.Classes {
		if c.Weight > 0 {
			seen++
			variance += *c.Recall * (1 - *c.Recall) / c.Weight
		}
	}
	if s.Unknown > 0 {
		seen++
	}
	if seen < 2 {
		return 0, 0
	}
	return 1 / seen, math.Sqrt(variance) / seen
}

// Drift reports the drift detectors. No served answer depends on them.
type Drift struct {
	Delta  float64    `json:"delta"`  // δ of the detectors: the probability that a test finds a change where there is none
	Error  ErrorDrift `json:"error"`  // ADWIN on the errors of judged rows
	Sums   SumsDrift  `json:"sums"`   // loss of the served planes on the newest blocks against that on the rest
	Alarms []Alarm    `json:"alarms"` // the latest alarms, the newest first, 20 at most
}

// ErrorDrift is a detector of changes in the share of judged rows that are wrong (Bifet and
// Gavaldà 2007).
type ErrorDrift struct {
	Rows  int64    `json:"rows"`  // judged rows since the last change
	Share *float64 `json:"share"` // share of these that was wrong; null without any
	Rises int64    `json:"rises"` // rises of the share, also before a restart
	Falls int64    `json:"falls"` // falls of the share, also before a restart
}

// SumsDrift compares losses of the served planes, each the mean over rows and planes of (value −
// target)². They are read off the sums of blocks.
type SumsDrift struct {
	Blocks int      `json:"blocks"` // newest blocks by event time: those of the latest 8, 16 and 32 that differ most from the rest
	Rows   int64    `json:"rows"`   // their rows
	Newest *float64 `json:"newest"` // loss on these; null: not measured
	Rest   *float64 `json:"rest"`   // loss on the other live blocks
	P      *float64 `json:"p"`      // probability of such an excess without a change
	Holds  bool     `json:"holds"`  // whether the loss on the newest blocks is larger beyond chance
	Rises  int64    `json:"rises"`  // alarms, also before a restart
	Absent string   `json:"absent"` // why it is not measured
}

// Detector names a drift detector.
type Detector string

// The drift detectors.
const (
	DetectorError Detector = "error" // ErrorDrift
	DetectorSums  Detector = "sums"  // SumsDrift
)

// Alarm is a change that a detector has found.
type Alarm struct {
	Time     time.Time `json:"time"`     // time when it was found
	Detector Detector  `json:"detector"` // error or sums
	Before   float64   `json:"before"`   // share of wrong rows before the change, or loss on the rest
	After    float64   `json:"after"`    // share of wrong rows since the change, or loss on the newest blocks
	Rows     int64     `json:"rows"`     // judged rows since the change, or rows of the newest blocks
}

// Rises reports whether the error or the loss has become larger.
func (a *Alarm) Rises() bool { return a.After > a.Before }
