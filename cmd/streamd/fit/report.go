package fit

import (
	"encoding/hex"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/ingest/schema"
)

// Report is what Learn found. Accuracies are shares of the rows by weight, 0 to 1. What a daemon
// serves, too, has its names there (httpapi.ModelAnswer), so that streamd predict reads a saved
// report. There are k classes and n features.
type Report struct {
	File           string    `json:"file"`
	Rows           int64     `json:"rows"` // of weight > 0, like all counts
	TrainAccuracy  float64   `json:"train_accuracy"`
	TestAccuracy   *float64  `json:"test_accuracy,omitempty"` // on the test file, or else the mean over the folds
	FoldAccuracies []float64 `json:"fold_accuracies,omitempty"`
	LOOAccuracy    *float64  `json:"loo_accuracy,omitempty"`

	// Why settings were not chosen by held-out rows, though no flag said so; absent if they were.
	Choice string `json:"choice,omitempty"`
	// Classes that no row learned from is labelled, where none was held out; absent if there are
	// none.
	Unanswered []string `json:"never_answered,omitempty"`

	// Which baseline labels are no better than, on the test file or held-out rows, if the settings
	// ask for many right rows; absent if they are better.
	NoBetter string `json:"no_better,omitempty"`

	Decision    *model.DecisionJSON    `json:"decision"` // rule of labels
	Calibration *model.CalibrationJSON `json:"calibration,omitempty"`
	HeldOut     *model.Answers         `json:"held_out,omitempty"` // of all rows, each by the model without its fold
	Test        *model.Answers         `json:"test,omitempty"`     // of the test file

	Progressive *Progressive `json:"progressive,omitempty"`
	BlockRows   int          `json:"block_rows,omitempty"` // of the blocks of a topic

	Method     string          `json:"method"` // of the planes: psvm, or the refinement's
	Refinement *Refinement     `json:"refinement,omitempty"`
	Knowledge  *Knowledge      `json:"knowledge,omitempty"`
	Reduction  *Reduction      `json:"reduction,omitempty"`
	Tuning     *model.Choice   `json:"tuning,omitempty"`
	EpsilonSV  *SupportVectors `json:"epsilon_sv,omitempty"`

	Unlabelled int64 `json:"unlabelled_rows,omitempty"` // of the rows

	Classes   []string          `json:"classes"`    // k
	ClassRows []int64           `json:"class_rows"` // k
	Features  []string          `json:"features"`   // n
	Basis     *model.BasisJSON  `json:"basis,omitempty"`
	W         any               `json:"w"`     // n, or one for each point of the basis; k of those for k > 2 classes
	Gamma     any               `json:"gamma"` // a number; k for k > 2 classes
	Planes    []model.PlaneJSON `json:"planes"`
	Condition *float64          `json:"condition"` // the largest of the planes'; null for those that no linear system gave
	Mean      []float64         `json:"mean"`      // n
	Options   model.OptionsJSON `json:"options"`

	Missing []model.MissingJSON `json:"missing,omitempty"`      // of features that may be missing
	Schema  *schema.Schema      `json:"schema,omitempty"`       // that makes the features
	Digest  string              `json:"state_digest,omitempty"` // absent where no sums were made
	Seconds float64             `json:"seconds"`                // all of Learn
}

// Refinement reports how the planes of all rows were refined.
type Refinement struct {
	Method string                  `json:"method"`
	Passes int                     `json:"passes"` // over the rows
	Planes []model.PlaneRefinement `json:"planes"`

	Tolerance float64 `json:"tolerance,omitempty"` // of a full kernel's program
}

// newRefinement is nil without a refinement.
func newRefinement(method study.Refiner, result *newton.Result) *Refinement {
	if result == nil {
		return nil
	}
	return &Refinement{Method: method.String(), Passes: result.Passes, Planes: model.PlaneRefinements(result)}
}

// Reduction reports how the basis was chosen.
type Reduction struct {
	Method string        `json:"method"`
	Sample int           `json:"sample"` // rows
	Gammas []model.Gamma `json:"gammas,omitempty"`
	// Unjudged says why no γ was tried and the median heuristic's was taken.
	Unjudged string        `json:"gammas_absent,omitempty"`
	Compared *Comparison   `json:"compared,omitempty"` // of auto
	Stages   []model.Stage `json:"stages,omitempty"`
	Seconds  float64       `json:"seconds"` // with the bases of the folds
}

// describe puts the model into the report.
func (f *fit) describe(r *Report) {
	m := f.model.WithoutMissing()
	r.File, r.Rows, r.BlockRows = f.data.Path, f.sums.whole.Rows(), f.want.BlockRows
	if len(f.sums.whole.Features()) > 0 {
		digest := f.sums.whole.Digest()
		r.Digest = hex.EncodeToString(digest[:])
	}
	r.Unlabelled = f.sums.whole.Unlabelled().Rows
	r.Classes, r.ClassRows, r.Features = m.Classes, m.Rows, f.data.Features
	if f.in == nil {
		r.Features = m.Features
	}
	if r.Reduction != nil {
		r.Basis = model.NewBasisJSON(f.in.Map, f.want.Kernel.Regulariser)
	}
	r.Mean, r.Options = m.Mean, model.NewOptionsJSON(m.Options)
	r.Missing = model.NewMissingJSON(f.data.Missing, r.Features, f.model)
	r.Schema = f.want.Format.Schema
	if f.knowledge != nil && f.knowledge.machine.Alone {
		r.Options.Nu = 0
	}
	r.Method = model.SolvedBy(m.Options)
	if r.Refinement != nil {
		r.Method = r.Refinement.Method
	}
	r.Planes = model.NewPlanesJSON(m.Planes)
	for _, p := range r.Planes {
		if p.Condition != nil && (r.Condition == nil || *p.Condition > *r.Condition) {
			r.Condition = p.Condition
		}
	}
	var ws [][]float64
	var gammas []float64
	for _, p := range m.Planes {
		ws, gammas = append(ws, p.W), append(gammas, p.Gamma)
	}
	r.W, r.Gamma = ws, gammas
	if len(m.Planes) == 1 {
		r.W, r.Gamma = ws[0], gammas[0]
	}
}

// LargestClass is the share of the class of most rows.
func (r *Report) LargestClass() float64 {
	return float64(slices.Max(r.ClassRows)) / float64(r.Rows-r.Unlabelled)
}

// HeldOutAccuracy is the mean of the folds' accuracies.
func (r *Report) HeldOutAccuracy() (mean float64) {
	for _, share := range r.FoldAccuracies {
		mean += share / float64(len(r.FoldAccuracies))
	}
	return mean
}
