// Package model holds the values that streamd serves and reports: the model with its
// basis, how ν was chosen, how the planes were refined, how good their answers are,
// how a basis was chosen, and the classifier that all of these make up. The daemon and
// fit make the values. Package httpapi renders them. Nothing here knows HTTP.
//
// Tuning, Refinement, Quality and Reduction are reports: they read the same wherever
// they are written as JSON. A type whose name ends in JSON is the written form of a
// value that Go code holds in another shape: a kernel's map, planes, options,
// calibration curves, the decision rule. A written form may come back from outside, so
// reading it checks that its parts fit together.
//
// # Labels
//
// One rule decides labels (package decision), and a Classifier has it: for predictions, for
// pictures, for the judgement of arriving rows. The values and probabilities of an answer are
// those of the rule, so that they agree with the label. By default the largest calibrated
// probability decides. While there is no calibration, the decision values do, and Absent says
// why. Held-out rows are judged by the same rule, fitted without their fold.
package model

import (
	"cmp"
	"slices"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
	"streamd/kernels"
	"streamd/kernels/svm"
)

// Served is the model that the daemon serves, or the reason why there is none. It is
// immutable.
type Served struct {
	// Fingerprint names the classifier and its sums: see Identity. Letters, digits, ".",
	// "_" and "-" only.
	Fingerprint string
	// Model is nil when the live set makes none. Then Problem says why, for the
	// client to read; otherwise Problem is empty.
	Model   *incremental.Model
	Problem string
	// Missing is the treatment of missing values of the rows' features.
	Missing wire.Missing
	// Schema makes the rows' features. Nil: they are columns as they are.
	Schema *schema.Schema
	// Undeclared counts rows with values that the schema does not declare, by feature. Nil: no
	// feature has room for these, or the model is of a window.
	Undeclared []Undeclared
	// Basis has the coordinates that the planes are in. Nil: the features.
	Basis *Basis

	Rows       int64     // live rows of weight above 0
	Unlabelled int64     // of these, the rows without a label
	Blocks     int       // live blocks
	Digest     string    // of the summed state: SHA-256, hex
	Offsets    []Offset  // of the state, by topic and partition
	MadeAt     time.Time // when the planes were made
	Moves      int64     // how often a block had left the live set, or come back, since the start, by the oldest of its parts; 0 without receipts
	Save       int64     // number of the save since the start that has the state, at the latest
	Durable    bool      // a restart would have the state, or a later one

	// Receipts is the number of leaves of the log of receipts whose changes the state has, and
	// Signed that statement under the log's key. 0 and nil: there is no log.
	Receipts int64
	Signed   func() (string, error)

	// Forgetting is the weights of the rows. Nil: all weigh 1, apart from weights of their own.
	Forgetting *Forgetting

	// Window is the blocks that the model is of. Nil: all live ones. Other fields count the
	// blocks of the window alone, and there are no offsets and no time.
	Window *Windowed

	// Sample is that of the study that the parts below come from. Nil: there was none.
	Sample *Sampled

	// A part that is missing is nil, and Absent says why.
	Tuning      *Tuning             // the choice of ν
	Knowledge   *Knowledge          // the rules; nil: there are none
	Refinement  *Refinement         // from the least-squares planes to Model
	Calibration []calibration.Curve // one per plane, all Sigmoid or all Isotonic
	Rule        *decision.Rule      // that decides labels; nil: the decision values do
	Quality     *Quality
	Better      *Better          // settings that held-out blocks speak for; nil: none, or nobody looked
	Hat         *incremental.Hat // of the least-squares planes, for leverages
	Absent      Absent
}

// Absent says why parts of Served are nil, for the client to read: "model.nu is a
// number". The reason for a part that is there is empty. Decision says why Rule is not of the
// configured kind.
type Absent struct {
	Tuning, Refinement, Calibration, Decision, Quality, Hat string
}

// Undeclared is the share of the live rows, by weight, whose value of a category is none of those
// that the schema declares.
type Undeclared struct {
	Feature string  `json:"feature"` // name of the category
	Share   float64 `json:"share"`   // share of the rows, from the exact sums of the column FEATURE=(other)
}

// Lacks reports whether that is so large a share of so many rows that the schema lacks values which
// matter.
func (u Undeclared) Lacks(rows int64) bool { return u.Share > 0.05 && rows >= 100 }

// Offset is the position of a state in a partition.
type Offset struct {
	Topic     string `json:"topic"`     // name of the topic
	Partition int    `json:"partition"` // number of the partition
	Next      int64  `json:"next"`      // offset of the first record that the state does not have
}

// Basis takes rows to the coordinates K(x, Z) that planes are in.
type Basis struct {
	ID          string // SHA-256 of the map's encoding, hex
	Map         *kernels.Map
	Features    []string // the n features of the rows
	Regulariser config.Regulariser
	// Stale says that source blocks of the basis have been retired or replaced since:
	// their numbers may be among its points.
	Stale bool
}

// Scaled says whether features are scaled on their way into the kernel.
func (b *Basis) Scaled() bool {
	_, scale := b.Map.Scaling()
	return scale != nil
}

// RowFeatures are the features of the rows that s classifies.
func (s *Served) RowFeatures() []string {
	if s.Basis != nil {
		return s.Basis.Features
	}
	return s.Model.Features
}

// Classifier is the model together with the basis. The model must not be nil.
func (s *Served) Classifier() *Classifier {
	c := &Classifier{Features: s.RowFeatures(), Missing: s.Missing, Schema: s.Schema, Model: s.Model, Rule: s.DecidesBy()}
	if s.Basis != nil {
		c.Map = s.Basis.Map
	}
	return c
}

// DecidesBy is the rule in force. The model must not be nil.
func (s *Served) DecidesBy() *decision.Rule {
	if s.Rule == nil {
		return decision.ByValue(len(s.Model.Classes))
	}
	return s.Rule
}

// MethodPSVM is the method of planes that were read off the summed state and not
// refined (Fung 2003, 2.28 to 2.36).
const MethodPSVM = "psvm"

// FirstNu is ν until one is chosen, and where none can be chosen.
const FirstNu = 1

// Options are those of planes that are asked for. A class's weight goes by the name that rows
// give it.
func Options(m config.Model) incremental.Options {
	o := incremental.Options{
		Nu: cmp.Or(float64(m.Nu), FirstNu), Balanced: m.Balanced == config.SwitchOn, Standardise: m.Standardise == config.SwitchOn, Solver: Solver(m.Method),
	}
	if len(m.ClassWeights) > 0 {
		o.ClassWeights = map[string]float64{}
	}
	for label, w := range m.ClassWeights {
		if class, err := wire.Label(label); err == nil {
			label = class
		}
		o.ClassWeights[label] = w
	}
	return o
}

// Solver reads planes off the sums by a method. It is nil for MethodPSVM.
func Solver(m config.Method) incremental.Solver {
	switch m {
	case config.MethodMeans:
		return incremental.Means{}
	case config.MethodLasso:
		return svm.Lasso{}
	}
	return nil
}

// SolvedBy names the method of planes that were read off the sums.
func SolvedBy(o incremental.Options) string {
	if o.Solver == nil {
		return MethodPSVM
	}
	return o.Solver.String()
}

// Refined reports whether a method is one of refinement, and not of SolvedBy.
func Refined(method string) bool {
	switch method {
	case MethodPSVM, incremental.Means{}.String(), svm.Lasso{}.String(), (*Rules)(nil).String():
		return false
	}
	return true
}

// Method is the method of the refinement, or that of SolvedBy.
func (s *Served) Method() string {
	switch {
	case s.Refinement != nil:
		return s.Refinement.Method
	case s.Model != nil:
		return SolvedBy(s.Model.Options)
	}
	return MethodPSVM
}

// BasisID identifies the basis of the planes. It is "" when they are in the features.
func (s *Served) BasisID() string {
	if s.Basis == nil {
		return ""
	}
	return s.Basis.ID
}

// Same says whether a and b are equal but for their times.
func (a *Served) Same(b *Served) bool {
	return a.SameSums(b) && a.Model == b.Model && a.Problem == b.Problem &&
		(a.Basis != nil && a.Basis.Stale) == (b.Basis != nil && b.Basis.Stale) &&
		a.Tuning == b.Tuning && a.Rule == b.Rule && a.Refinement == b.Refinement && a.Quality == b.Quality && a.Absent == b.Absent &&
		a.Blocks == b.Blocks && a.Durable == b.Durable && a.Receipts == b.Receipts && slices.Equal(a.Offsets, b.Offsets)
}
