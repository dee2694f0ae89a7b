package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Reduction is a Space's Report: how its basis was chosen. It is JSON by these names.
type Reduction struct {
	Version  int       `json:"version"`       // of the report: 1
	Basis    string    `json:"basis"`         // SHA-256, in hex
	Kernel   string    `json:"kernel"`        // with its parameters
	Points   int       `json:"points"`        // of the basis
	Method   string    `json:"method"`        // of kernel.reduce, or of the pruning
	Digest   string    `json:"state_digest"`  // of the live rows that it was chosen for, in hex
	Rows     int       `json:"rows"`          // of the sample that it was chosen from
	Live     int64     `json:"live_rows"`     // that there were
	MadeAt   time.Time `json:"made_at"`       // UTC
	Seconds  float64   `json:"seconds"`       // that the choice took
	Gammas   []Gamma   `json:"gammas"`        // that were tried
	Unjudged string    `json:"gammas_absent"` // why γ was not judged; empty: it was, or is given
	Stages   []Stage   `json:"stages"`        // of the choice
	// Pruned counts the coordinates of the basis that this one is a part of; 0: it was chosen from
	// rows.
	Pruned int `json:"pruned,omitempty"`
}

// Gamma is one candidate γ of a Gaussian with its figures on held-out folds.
type Gamma struct {
	Gamma       float64 `json:"gamma"`
	Nu          float64 `json:"nu"` // the best with it
	Correctness float64 `json:"correctness"`
	Loss        float64 `json:"loss"`
}

// Stage is one stage of the choice of points.
type Stage struct {
	Class          string  `json:"class"`
	Stage          int     `json:"stage"` // 0, 1, …
	Rows           int     `json:"rows"`
	Runs           int     `json:"runs"`
	Nu             float64 `json:"nu"`
	Candidates     int     `json:"candidates"`
	Points         float64 `json:"points"`
	SupportVectors float64 `json:"support_vectors"`
	Training       float64 `json:"training"`
	Testing        float64 `json:"testing"`
	Unconverged    int     `json:"unconverged"`
}

const (
	reportVersion = 1
	// mostReport bounds a report, in bytes. Some 60,000 stages are that long.
	mostReport = 16 << 20
)

// AppendBinary appends the report. A report that would be too long
// loses its stages. It panics unless all numbers are finite.
func (r Reduction) AppendBinary(b []byte) []byte {
	text, err := r.encode()
	if err != nil {
		panic(fmt.Sprintf("snapshot: a report that cannot be written: %v", err))
	}
	return append(b, text...)
}

func (r Reduction) encode() ([]byte, error) {
	r.Version, r.MadeAt = reportVersion, r.MadeAt.UTC()
	text, err := json.Marshal(r)
	if len(text) > mostReport {
		r.Stages = nil
		text, err = json.Marshal(r)
	}
	return text, err
}

// DecodeReduction decodes a report, which must equal the encoding of its contents.
func DecodeReduction(b []byte) (*Reduction, error) {
	r := new(Reduction)
	if len(b) > mostReport || json.Unmarshal(b, r) != nil || min(int64(r.Points), int64(r.Rows), int64(r.Pruned), r.Live) < 0 {
		return nil, errors.New("the report on a basis is not a valid encoding")
	}
	if r.Version != reportVersion {
		return nil, fmt.Errorf("the report on a basis has version %d, this program knows version %d", r.Version, reportVersion)
	}
	if again, err := r.encode(); err != nil || !bytes.Equal(again, b) {
		return nil, errors.New("the report on a basis has other fields than one of its version")
	}
	return r, nil
}
