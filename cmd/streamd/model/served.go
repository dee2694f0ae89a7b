package model

import (
	"slices"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/kernels"
)

// Served is what GET /v1/model answers with, and all of it. It is immutable.
type Served struct {
	// Fingerprint names this value: two values with the same fingerprint are
	// equal in every field. Letters, digits, ".", "_" and "-" only.
	Fingerprint string
	// Model is nil when the live set makes none, and Problem says why then,
	// for the client to read. With a model, Problem is empty.
	Model   *incremental.Model
	Problem string
	Basis   *Basis // that the model's planes are in the coordinates of; nil: they are in the features

	Rows    int64    // live rows, those of weight 0 left out
	Blocks  int      // live blocks
	Digest  string   // of the summed state: SHA-256, hex
	Offsets []Offset // what the state has seen, by topic and partition
	MadeAt  time.Time

	// What goes with the model, nil where there is none of it; Absent says why.
	Tuning      *Tuning             // how ν was chosen
	Refinement  *Refinement         // how Model came of its least-squares planes
	Calibration []calibration.Curve // one per plane, all Sigmoid or all Isotonic
	Quality     *Quality
	Hat         *incremental.Hat // behind the least-squares planes, for leverages
	Absent      Absent
}

// Absent says, for the client to read, why a part of Served is nil: "model.nu is
// a number". It is empty for a part that is there.
type Absent struct {
	Tuning, Refinement, Calibration, Quality, Hat string
}

// Offset says how far a state has come in a partition.
type Offset struct {
	Topic     string `json:"topic"`     // its name
	Partition int    `json:"partition"` // its number
	Next      int64  `json:"next"`      // the offset of the first record that the state does not have
}

// Basis is what takes rows to the coordinates K(x, Z) that planes are in.
type Basis struct {
	ID          string // SHA-256 of the map's encoding, hex
	Map         *kernels.Map
	Features    []string // n: of the rows
	Regulariser config.Regulariser
	// Stale says that blocks which the basis was chosen from have been retired, or
	// replaced, since: their numbers may be among its points.
	Stale bool
}

// Scaled says whether features are scaled on their way into the kernel.
func (b *Basis) Scaled() bool {
	_, scale := b.Map.Scaling()
	return scale != nil
}

// RowFeatures are the features of the rows that s is for.
func (s *Served) RowFeatures() []string {
	if s.Basis != nil {
		return s.Basis.Features
	}
	return s.Model.Features
}

// Classifier is the model, which must not be nil, in the basis.
func (s *Served) Classifier() *Classifier {
	c := &Classifier{Features: s.RowFeatures(), Model: s.Model}
	if s.Basis != nil {
		c.Map = s.Basis.Map
	}
	return c
}

// MethodPSVM names planes that were read off the summed state and not refined
// (Fung 2003, 2.28 to 2.36).
const MethodPSVM = "psvm"

// Method says what made the planes of s.
func (s *Served) Method() string {
	if s.Refinement == nil {
		return MethodPSVM
	}
	return s.Refinement.Method
}

// BasisID names the basis whose coordinates planes are in; "": they are in the
// features.
func (s *Served) BasisID() string {
	if s.Basis == nil {
		return ""
	}
	return s.Basis.ID
}

// Same says whether a and b differ in nothing but when they were made.
func (a *Served) Same(b *Served) bool {
	return a.Digest == b.Digest && a.Model == b.Model && a.Problem == b.Problem &&
		(a.Basis != nil && a.Basis.Stale) == (b.Basis != nil && b.Basis.Stale) &&
		a.Tuning == b.Tuning && a.Refinement == b.Refinement && a.Quality == b.Quality && a.Absent == b.Absent &&
		a.Blocks == b.Blocks && slices.Equal(a.Offsets, b.Offsets)
}
