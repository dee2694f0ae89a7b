package model

import (
	"fmt"
	"time"

	"streamd/kernels/basis"
	"streamd/kernels/reduce"
)

// Reduction reports how a basis was chosen.
type Reduction struct {
	Basis   string    `json:"basis"`            // id of the basis
	Kernel  string    `json:"kernel"`           // kernel with its parameters
	Points  int       `json:"points"`           // points of the basis
	Method  string    `json:"method"`           // method of kernel.reduce, or of the pruning
	Pruned  int       `json:"pruned,omitempty"` // coordinates of the basis that this one is a part of; absent: it was chosen from rows
	Digest  string    `json:"state_digest"`     // digest of the live rows it was chosen for
	Rows    int       `json:"rows"`             // rows of the sample that it, or the basis that it is a part of, was chosen from
	Live    int64     `json:"live_rows"`        // live rows at that time
	MadeAt  time.Time `json:"made_at"`          // time of the choice
	Seconds float64   `json:"seconds"`          // time it took
	Gammas  []Gamma   `json:"gammas,omitempty"` // every γ tried for a Gaussian without a parameter
	// Why no γ was tried and the median heuristic's was taken instead.
	Unjudged string  `json:"gammas_absent,omitempty"`
	Stages   []Stage `json:"stages,omitempty"` // stages by which its points were chosen or judged
}

// Gamma has the results of one γ of a Gaussian on held-out folds: see basis.Trial.
type Gamma struct {
	Gamma       float64 `json:"gamma"`       // γ tried
	Nu          float64 `json:"nu"`          // best ν with this γ
	Correctness float64 `json:"correctness"` // share of rows classified right; balanced where the planes are
	Loss        float64 `json:"loss"`        // mean of (x'w − γ ∓ 1)² over rows and planes; balanced where the planes are
}

// NewGammas reports trials.
func NewGammas(trials []basis.Trial) (gammas []Gamma) {
	for _, t := range trials {
		gammas = append(gammas, Gamma(t))
	}
	return gammas
}

// Stage is one stage of choosing or judging the points of a basis. Its figures are those
// of its last step: see reduce.Stage.
type Stage struct {
	Class          string  `json:"class"`           // class of the plane
	Stage          int     `json:"stage"`           // number of the stage: 0, 1, …
	Rows           int     `json:"rows"`            // training rows of each run
	Runs           int     `json:"runs"`            // runs that the figures are means of
	Nu             float64 `json:"nu"`              // ν of the linear programs
	Candidates     int     `json:"candidates"`      // points to choose from
	Points         float64 `json:"points"`          // points chosen
	SupportVectors float64 `json:"support_vectors"` // training rows with a positive dual variable
	Training       float64 `json:"training"`        // correctness on training rows
	Testing        float64 `json:"testing"`         // correctness on other rows; 0 if there are none
	Unconverged    int     `json:"unconverged"`     // linear programs that ran into a limit
}

// NewStage reports a stage of a problem with these classes.
func NewStage(s reduce.Stage, classes []string) Stage {
	last := s.Reduced
	if last == (reduce.Step{}) { // the classifier had no more points than wanted
		last = s.Classifier
	}
	return Stage{
		Class: classes[s.Class], Stage: s.Stage, Rows: s.Rows, Runs: s.Runs, Nu: s.Nu, Candidates: s.Candidates,
		Points: last.Points, SupportVectors: last.SupportVectors, Training: last.Training, Testing: last.Testing,
		Unconverged: s.Classifier.Unconverged + s.Approximation.Unconverged + s.Reduced.Unconverged,
	}
}

// String describes the stage in a line.
func (s *Stage) String() string {
	rows, weights := "rows", "nonzero weights"
	if s.Rows == 1 {
		rows = "row"
	}
	if s.Points == 1 {
		weights = "nonzero weight"
	}
	right, of := s.Training, "right"
	if s.Testing > 0 {
		right, of = s.Testing, "of other rows right"
	}
	// Points may be the mean of several runs.
	return fmt.Sprintf("class %s, stage %d: %d %s, %.4g %s, %.2f %% %s", s.Class, s.Stage, s.Rows, rows, s.Points, weights, 100*right, of)
}
