package httpapi

import (
	"net/http"
	"time"

	"streamd/cmd/streamd/classifier"
	"streamd/kernels"
	"streamd/kernels/reduce"
	"streamd/kernels/width"
)

// Basis is what takes rows to the coordinates K(x, Z) that planes are in.
type Basis struct {
	ID          string // SHA-256 of the map's encoding, hex
	Map         *kernels.Map
	Features    []string // n: of the rows
	Regulariser string   // classifier.Identity or classifier.Kernel
}

// Reduction is how a basis was chosen.
type Reduction struct {
	Basis   string    `json:"basis"` // its id
	Kernel  string    `json:"kernel"`
	Points  int       `json:"points"`
	Method  string    `json:"method"` // cs, random, stratified, kmeans or kmedian
	Digest  string    `json:"state_digest"`
	Rows    int       `json:"rows"` // of the sample, that it was chosen from
	Live    int64     `json:"live_rows"`
	MadeAt  time.Time `json:"made_at"`
	Seconds float64   `json:"seconds"`
	Gammas  []Gamma   `json:"gammas,omitempty"` // that were tried for a Gaussian without a parameter
	// Unjudged says why γ is the median heuristic's instead.
	Unjudged string  `json:"gammas_absent,omitempty"`
	Stages   []Stage `json:"stages"`
}

// Gamma is width.Trial as JSON shows it.
type Gamma struct {
	Gamma       float64 `json:"gamma"`
	Nu          float64 `json:"nu"`
	Correctness float64 `json:"correctness"`
	Loss        float64 `json:"loss"`
}

// NewGammas are trials as JSON shows them.
func NewGammas(trials []width.Trial) (gammas []Gamma) {
	for _, t := range trials {
		gammas = append(gammas, Gamma(t))
	}
	return gammas
}

// Stage is reduce.Stage as JSON shows it, with the last step of the stage.
type Stage struct {
	Class          string  `json:"class"` // the plane's
	Stage          int     `json:"stage"`
	Rows           int     `json:"rows"`
	Runs           int     `json:"runs"`
	Nu             float64 `json:"nu"`
	Candidates     int     `json:"candidates"`
	Points         float64 `json:"points"`
	SupportVectors float64 `json:"support_vectors"`
	Training       float64 `json:"training"` // correctness
	Testing        float64 `json:"testing"`  // correctness on other rows; 0: there are none
	Unconverged    int     `json:"unconverged"`
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

// EpochAnswer is the body of GET /v1/epoch: which coordinates live blocks are
// summed in, and what is being done about others. What there is none of is null.
type EpochAnswer struct {
	Epoch    uint32            `json:"epoch"`            // in use, the later the higher; 0: the features
	InUse    *Reduction        `json:"in_use"`           // null: the features
	Served   string            `json:"served,omitempty"` // the id of the basis that what is served is in: that in use, once planes have been solved
	Reducing *ReducingAnswer   `json:"reducing"`
	Rebuild  *RebuildAnswer    `json:"rebuild"`
	Problem  string            `json:"problem,omitempty"` // why the last reduction came to nothing
	Skipped  []UnreadBlock     `json:"skipped,omitempty"` // retired by the last switch, a hundred at most
	Basis    *classifier.Basis `json:"basis,omitempty"`   // in use
}

// ReducingAnswer is a reduction under way.
type ReducingAnswer struct {
	Began  time.Time `json:"began"`
	Stages []Stage   `json:"stages"` // that are done
}

// RebuildAnswer is an epoch that is being built: live blocks are read from the log
// again.
type RebuildAnswer struct {
	Reduction *Reduction `json:"reduction"`
	Blocks    int        `json:"blocks"` // that it has
	Missing   int        `json:"missing"`
	Rows      int64      `json:"rows"`
	LiveRows  int64      `json:"live_rows"`
	// Seconds that are left at the pace of this process so far; null: not known.
	Seconds *float64 `json:"seconds_left"`
	// Unread counts blocks that the log did not give back; Reasons has the first
	// hundred of them.
	Unread  int           `json:"unread"`
	Reasons []UnreadBlock `json:"reasons,omitempty"`
}

// Percent is how much of the live rows it has, 0 to 100.
func (r *RebuildAnswer) Percent() int {
	if r.LiveRows == 0 {
		return 100
	}
	return int(100 * float64(r.Rows) / float64(r.LiveRows))
}

// All counts the live blocks.
func (r *RebuildAnswer) All() int { return r.Blocks + r.Missing }

// UnreadBlock is a block that could not be put into new coordinates.
type UnreadBlock struct {
	ID     string `json:"id"`
	Rows   int64  `json:"rows"`
	Reason string `json:"reason"`
}

func (s *Server) epoch(w http.ResponseWriter, r *http.Request) error {
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSON(w, answer)
}

// reduce begins a reduction and answers at once: GET /v1/epoch tells how it goes.
func (s *Server) reduce(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Reduce(r.Context()); err != nil {
		return err
	}
	answer, err := s.service.Epoch(r.Context())
	if err != nil {
		return err
	}
	return answerJSONWith(w, http.StatusAccepted, answer)
}

// abandon ends a reduction or a rebuild that is under way.
func (s *Server) abandon(w http.ResponseWriter, r *http.Request) error {
	if err := s.service.Abandon(r.Context()); err != nil {
		return err
	}
	return s.epoch(w, r)
}
