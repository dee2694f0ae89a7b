package model

import (
	"time"

	"streamd/kernels/reduce"
	"streamd/kernels/width"
)

// Reduction is how a basis was chosen.
type Reduction struct {
	Basis   string    `json:"basis"`            // its id
	Kernel  string    `json:"kernel"`           // with its parameters
	Points  int       `json:"points"`           // of the basis
	Method  string    `json:"method"`           // cs, random, stratified, kmeans or kmedian
	Digest  string    `json:"state_digest"`     // of the live rows that it was for
	Rows    int       `json:"rows"`             // of the sample, that it was chosen from
	Live    int64     `json:"live_rows"`        // that there were
	MadeAt  time.Time `json:"made_at"`          // when it was chosen
	Seconds float64   `json:"seconds"`          // that it took
	Gammas  []Gamma   `json:"gammas,omitempty"` // that were tried for a Gaussian without a parameter
	// Why γ is the median heuristic's instead.
	Unjudged string  `json:"gammas_absent,omitempty"`
	Stages   []Stage `json:"stages,omitempty"` // by which its points were chosen, or judged
}

// Gamma is what one γ of a Gaussian is worth on held-out folds: see width.Trial.
type Gamma struct {
	Gamma       float64 `json:"gamma"`       // that was tried
	Nu          float64 `json:"nu"`          // the best with it
	Correctness float64 `json:"correctness"` // share of the rows classified right; balanced where the planes are
	Loss        float64 `json:"loss"`        // mean of (x'w − γ ∓ 1)² over rows and planes; likewise
}

// NewGammas are trials as JSON shows them.
func NewGammas(trials []width.Trial) (gammas []Gamma) {
	for _, t := range trials {
		gammas = append(gammas, Gamma(t))
	}
	return gammas
}

// Stage is one of those by which points of a basis are chosen, or judged, with its
// last step: see reduce.Stage.
type Stage struct {
	Class          string  `json:"class"`           // the plane's
	Stage          int     `json:"stage"`           // 0, 1, …
	Rows           int     `json:"rows"`            // training rows of each run
	Runs           int     `json:"runs"`            // that the figures are means of
	Nu             float64 `json:"nu"`              // of the linear programs
	Candidates     int     `json:"candidates"`      // points to choose from
	Points         float64 `json:"points"`          // chosen
	SupportVectors float64 `json:"support_vectors"` // training rows with a positive dual variable
	Training       float64 `json:"training"`        // correctness
	Testing        float64 `json:"testing"`         // correctness on other rows; 0: there are none
	Unconverged    int     `json:"unconverged"`     // linear programs that ran into a limit
}

// NewStage is a stage of a problem with these classes.
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
