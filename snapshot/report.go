package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"time"

	"streamd/incremental/decode"
)

// Reduction is a Space's Report: how its basis was chosen. Programs before format 5 wrote
// it as JSON, by these names.
type Reduction struct {
	Basis    string    `json:"basis"`         // SHA-256, in hex
	Kernel   string    `json:"kernel"`        // with its parameters
	Method   string    `json:"method"`        // cs, random, stratified, kmeans or kmedian
	Digest   string    `json:"state_digest"`  // of the live rows that it was chosen for, in hex
	Unjudged string    `json:"gammas_absent"` // why γ was not judged; empty: it was, or is given
	Points   int       `json:"points"`        // of the basis
	Rows     int       `json:"rows"`          // of the sample that it was chosen from
	Live     int64     `json:"live_rows"`     // that there were
	MadeAt   time.Time `json:"made_at"`       // UTC
	Seconds  float64   `json:"seconds"`       // that the choice took
	Gammas   []Gamma   `json:"gammas"`        // that were tried
	Stages   []Stage   `json:"stages"`        // of the choice
}

// Gamma is one γ of a Gaussian with its figures on held-out folds.
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
	// mostJSON bounds a report of a program before format 5, in bytes: JSON can take up to
	// a hundred times its length of memory. A report of 60,000 stages is that long.
	mostJSON = 16 << 20
	// Bytes that an item takes at least.
	leastGamma = 4 * 8
	leastStage = 6 + 5*8
)

var errReport = errors.New("the report on a basis is not a valid encoding")

// AppendBinary appends the record: a version, texts behind their lengths, counts and
// numbers ≥ 0 as varints, the rest in 8 bytes each, little endian. FORMAT.md has the
// order. It panics unless all numbers are finite and no count is negative.
func (r *Reduction) AppendBinary(b []byte) []byte {
	b = append(b, reportVersion)
	for _, text := range []string{r.Basis, r.Kernel, r.Method, r.Digest, r.Unjudged} {
		b = appendText(b, text)
	}
	b = appendCounts(b, int64(r.Points), int64(r.Rows), r.Live)
	b = appendI64(b, r.MadeAt.UnixNano())
	b = appendFloats(b, r.Seconds)
	b = appendCounts(b, int64(len(r.Gammas)))
	for _, g := range r.Gammas {
		b = appendFloats(b, g.Gamma, g.Nu, g.Correctness, g.Loss)
	}
	b = appendCounts(b, int64(len(r.Stages)))
	for _, s := range r.Stages {
		b = appendText(b, s.Class)
		b = appendCounts(b, int64(s.Stage), int64(s.Rows), int64(s.Runs), int64(s.Candidates), int64(s.Unconverged))
		b = appendFloats(b, s.Nu, s.Points, s.SupportVectors, s.Training, s.Testing)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendCounts(b []byte, counts ...int64) []byte {
	for _, n := range counts {
		if n < 0 {
			panic("snapshot: a negative count in a report")
		}
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func appendFloats(b []byte, xs ...float64) []byte {
	for _, x := range xs {
		if !finite(x) {
			panic("snapshot: a number of a report is not finite")
		}
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// DecodeReduction decodes the record, also one of a program before format 5. A record of
// format 5 takes no more memory than a few times len(b).
func DecodeReduction(b []byte) (*Reduction, error) {
	if len(b) == 0 || b[0] != reportVersion {
		return decodeJSON(b)
	}
	p := payload{decode.Reader{Rest: b[1:]}}
	r := new(Reduction)
	for _, text := range []*string{&r.Basis, &r.Kernel, &r.Method, &r.Digest, &r.Unjudged} {
		*text = p.Text()
	}
	r.Points, r.Rows, r.Live = p.count(), p.count(), int64(p.count())
	r.MadeAt = time.Unix(0, p.i64()).UTC()
	p.floats(&r.Seconds)
	for range p.Count(leastGamma) {
		var g Gamma
		p.floats(&g.Gamma, &g.Nu, &g.Correctness, &g.Loss)
		r.Gammas = append(r.Gammas, g)
	}
	for range p.Count(leastStage) {
		s := Stage{Class: p.Text(), Stage: p.count(), Rows: p.count(), Runs: p.count(), Candidates: p.count(), Unconverged: p.count()}
		p.floats(&s.Nu, &s.Points, &s.SupportVectors, &s.Training, &s.Testing)
		r.Stages = append(r.Stages, s)
	}
	if p.Bad || len(p.Rest) > 0 {
		return nil, errReport
	}
	return r, nil
}

// count reads a number that an int can hold.
func (p *payload) count() int {
	n := p.Uvarint()
	p.Bad = p.Bad || n > math.MaxInt
	return int(n)
}

func (p *payload) floats(xs ...*float64) {
	for _, x := range xs {
		*x = math.Float64frombits(p.u64())
		p.Bad = p.Bad || !finite(*x)
	}
}

func decodeJSON(b []byte) (*Reduction, error) {
	r := new(Reduction)
	if len(b) > mostJSON || json.Unmarshal(b, r) != nil {
		return nil, errReport
	}
	r.MadeAt = r.MadeAt.UTC()
	return r, nil
}
