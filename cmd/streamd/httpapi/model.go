package httpapi

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"streamd/cmd/streamd/classifier"
)

// ModelAnswer is the body of GET /v1/model, for n features and k classes.
type ModelAnswer struct {
	Fingerprint string    `json:"fingerprint"`
	Digest      string    `json:"state_digest"`
	MadeAt      time.Time `json:"made_at"`
	Features    []string  `json:"features"`   // n
	Classes     []string  `json:"classes"`    // k
	ClassRows   []int64   `json:"class_rows"` // k
	// One plane for two classes, that of the second; k planes otherwise, in
	// the order of Classes.
	Planes []PlaneAnswer `json:"planes"`
	// Basis takes rows to the coordinates that the planes are in; absent when
	// these are the features.
	Basis   *classifier.Basis `json:"basis,omitempty"`
	BasisID string            `json:"basis_id,omitempty"`
	Options OptionsAnswer     `json:"options"`
	// Mean of each feature, or coordinate, over the live rows: where contributions
	// begin.
	Mean []float64 `json:"mean"`
	// Method made the planes: psvm, or that of Refinement. What there is none
	// of is null.
	Method      string             `json:"method"`
	Refinement  *Refinement        `json:"refinement"`
	Tuning      *Tuning            `json:"tuning"` // of ν, which Options have
	Calibration *CalibrationAnswer `json:"calibration"`

	LiveRows   int64    `json:"live_rows"`
	LiveBlocks int      `json:"live_blocks"`
	Offsets    []Offset `json:"offsets"`
}

// PlaneAnswer is x'w = γ, with the rows of Class where x'w − γ > 0.
type PlaneAnswer struct {
	Class     string    `json:"class"`
	W         []float64 `json:"w"` // n, or one for each point of a basis
	Gamma     float64   `json:"gamma"`
	Condition *float64  `json:"condition"` // null: beyond the range of numbers
}

// OptionsAnswer is how the planes were asked for.
type OptionsAnswer struct {
	Nu           float64            `json:"nu"`
	Balanced     bool               `json:"balanced"`
	ClassWeights map[string]float64 `json:"class_weights"`
	Standardise  bool               `json:"standardise"`
}

// answer is s as JSON shows it; it shares the model's memory. s must have a
// model.
func (s *Served) answer() ModelAnswer {
	m := s.Model
	a := ModelAnswer{
		Fingerprint: s.Fingerprint,
		Digest:      s.Digest,
		MadeAt:      s.MadeAt.UTC(),
		Features:    s.features(),
		Classes:     m.Classes,
		ClassRows:   m.Rows,
		Planes:      make([]PlaneAnswer, len(m.Planes)),
		Options: OptionsAnswer{
			Nu:           m.Options.Nu,
			Balanced:     m.Options.Balanced,
			ClassWeights: m.Options.ClassWeights,
			Standardise:  m.Options.Standardise,
		},
		Mean:        m.Mean,
		Method:      s.method(),
		Refinement:  s.Refinement,
		Tuning:      s.Tuning,
		Calibration: calibrationAnswer(s.Calibration),
		LiveRows:    s.Rows,
		LiveBlocks:  s.Blocks,
		Offsets:     listed(s.Offsets),
	}
	if b := s.Basis; b != nil {
		a.Basis, a.BasisID = classifier.BasisOf(b.Map, b.Regulariser), b.ID
	}
	if a.Options.ClassWeights == nil {
		a.Options.ClassWeights = map[string]float64{}
	}
	for i, p := range m.Planes {
		a.Planes[i] = PlaneAnswer{Class: p.Class, W: p.W, Gamma: p.Gamma}
		if !math.IsInf(p.Condition, 0) && !math.IsNaN(p.Condition) {
			a.Planes[i].Condition = &p.Condition
		}
	}
	return a
}

// features are those of the rows that s is for.
func (s *Served) features() []string {
	if s.Basis != nil {
		return s.Basis.Features
	}
	return s.Model.Features
}

// encodedModel keeps the bytes of the last answer, for a thousand clients that
// poll the same model.
type encodedModel struct {
	of   *Served
	body []byte
}

func (s *Server) encode(served *Served) ([]byte, error) {
	if last := s.encoded.Load(); last != nil && last.of == served {
		return last.body, nil
	}
	body, err := json.Marshal(served.answer())
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", served.Fingerprint, err)
	}
	body = append(body, '\n')
	s.encoded.Store(&encodedModel{served, body})
	return body, nil
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	wait, err := waitOf(r, 0)
	if err != nil {
		return err
	}
	known := parseTags(r.Header.Values("If-None-Match"))
	served := s.await(w, r, known, wait)
	if served.Model == nil {
		return noModel(served)
	}
	w.Header().Set("ETag", `"`+served.Fingerprint+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if known.has(served.Fingerprint) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body, err := s.encode(served)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func noModel(served *Served) error {
	return fail(CodeNoModel, "there is no model: %s", served.Problem)
}

func waitOf(r *http.Request, otherwise time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return otherwise, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return 0, fail(CodeBadRequest, "wait=%q is not a duration such as 30s", text)
	}
	return min(wait, MaxWait), nil
}

// await returns what is served as soon as that has a model which is not among
// known. A poll that finds no model waits for one, but a model that goes away
// while it waits is news, too.
func (s *Server) await(w http.ResponseWriter, r *http.Request, known tags, wait time.Duration) *Served {
	served, replaced := s.service.Served()
	news := func() bool { return served.Model != nil && !known.has(served.Fingerprint) }
	if wait == 0 || news() {
		return served
	}
	extend(w, wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-replaced:
		case <-timer.C:
			return served
		case <-s.stopping:
			return served
		case <-r.Context().Done():
			return served
		}
		had := served.Model != nil
		served, replaced = s.service.Served()
		if news() || had && served.Model == nil {
			return served
		}
	}
}

// tags is what an If-None-Match header names (RFC 9110, 13.1.2).
type tags struct {
	any   bool
	named []string // the opaque parts, without quotes
}

// parseTags reads the header's lines up to the first thing that is no tag.
// Comparison is weak, as the RFC has it for this header, so W/ falls away.
func parseTags(lines []string) tags {
	var t tags
	rest := strings.Join(lines, ",")
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if strings.HasPrefix(rest, "*") {
			t.any = true
			return t
		}
		quoted, ok := strings.CutPrefix(strings.TrimPrefix(rest, "W/"), `"`)
		if !ok {
			return t
		}
		tag, after, ok := strings.Cut(quoted, `"`)
		if !ok {
			return t
		}
		t.named = append(t.named, tag)
		rest = after
	}
}

func (t tags) has(fingerprint string) bool {
	if t.any {
		return true
	}
	for _, tag := range t.named {
		if tag == fingerprint {
			return true
		}
	}
	return false
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, map[string]string{"status": "ok"})
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if reason := s.service.Status().NotReady; reason != "" {
		return fail(CodeUnavailable, "not ready: %s", reason)
	}
	return answerJSON(w, map[string]string{"status": "ready"})
}
