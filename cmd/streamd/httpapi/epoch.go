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
	// Stale says that blocks which the basis was chosen from have been retired, or
	// replaced, since: their numbers may be among its points.
	Stale bool
}

// Scaled says whether features are scaled on their way into the kernel.
func (b *Basis) Scaled() bool {
	_, scale := b.Map.Scaling()
	return scale != nil
}

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

// EpochAnswer is the body of GET /v1/epoch: which coordinates live blocks are
// summed in, and what is being done about others. What there is none of is null.
type EpochAnswer struct {
	Epoch    uint32            `json:"epoch"`             // in use, the later the higher; 0: the features
	InUse    *Reduction        `json:"in_use"`            // null: the features
	Stale    bool              `json:"stale"`             // whether blocks that the basis in use was chosen from have been retired or replaced since: their numbers may be among its points until another basis is in use
	Served   string            `json:"served,omitempty"`  // the id of the basis that what is served is in: that in use, once planes have been solved
	Reducing *ReducingAnswer   `json:"reducing"`          // a reduction under way
	Rebuild  *RebuildAnswer    `json:"rebuild"`           // an epoch that is being built
	Problem  string            `json:"problem,omitempty"` // why the last reduction came to nothing
	Skipped  []UnreadBlock     `json:"skipped,omitempty"` // retired by the last switch, a hundred at most
	Basis    *classifier.Basis `json:"basis,omitempty"`   // in use
}

// ReducingAnswer is a reduction under way.
type ReducingAnswer struct {
	Began  time.Time `json:"began"`  // when
	Stages []Stage   `json:"stages"` // that are done
}

// RebuildAnswer is an epoch that is being built: live blocks are read from the log
// again.
type RebuildAnswer struct {
	Reduction *Reduction `json:"reduction"` // how its basis was chosen
	Blocks    int        `json:"blocks"`    // live ones that it has
	Missing   int        `json:"missing"`   // live blocks that it does not have yet
	Rows      int64      `json:"rows"`      // of the blocks that it has
	LiveRows  int64      `json:"live_rows"` // of all live blocks
	// Seconds that are left at the pace of this process so far; null: not known.
	Seconds *float64      `json:"seconds_left"`
	Unread  int           `json:"unread"`            // blocks that the log did not give back
	Stale   bool          `json:"stale"`             // whether blocks that its basis was chosen from have been retired or replaced since: after it another basis is chosen
	Reasons []UnreadBlock `json:"reasons,omitempty"` // of the first hundred of them
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
	ID     string `json:"id"`     // the block's
	Rows   int64  `json:"rows"`   // the block's
	Reason string `json:"reason"` // why the log does not give it back as it was
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
