package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
)

// ModelAnswer is the body of GET /v1/model, for n features and k classes.
type ModelAnswer struct {
	Fingerprint string    `json:"fingerprint"`  // names this answer: equal fingerprints are equal bytes
	Digest      string    `json:"state_digest"` // of the summed state: SHA-256, hex
	MadeAt      time.Time `json:"made_at"`      // when its planes were made
	Features    []string  `json:"features"`     // the n names
	Classes     []string  `json:"classes"`      // the k names
	ClassRows   []int64   `json:"class_rows"`   // live rows of each class
	// One plane for two classes, that of the second; k planes otherwise, in
	// the order of Classes.
	Planes []model.PlaneJSON `json:"planes"`
	// Basis takes rows to the coordinates that the planes are in; absent when
	// these are the features.
	Basis   *model.BasisJSON `json:"basis,omitempty"`
	BasisID string           `json:"basis_id,omitempty"` // SHA-256, hex
	// BasisStale says that blocks which the basis was chosen from have been retired
	// or replaced since: their numbers may be among its points.
	BasisStale bool              `json:"basis_stale,omitempty"`
	Options    model.OptionsJSON `json:"options"` // of the solve
	// Mean of each feature, or coordinate, over the live rows: where contributions
	// begin.
	Mean        []float64              `json:"mean"`
	Method      string                 `json:"method"`      // that made the planes: psvm, or the refinement's
	Refinement  *model.Refinement      `json:"refinement"`  // how the planes were refined; null: they were not
	Tuning      *model.Tuning          `json:"tuning"`      // of ν, which the options have; null: it was not chosen
	Calibration *model.CalibrationJSON `json:"calibration"` // null: there is none

	LiveRows   int64          `json:"live_rows"`   // those of weight 0 left out
	LiveBlocks int            `json:"live_blocks"` // that the rows are of
	Offsets    []model.Offset `json:"offsets"`     // what the state has seen
}

// modelAnswer is s as JSON shows it; it shares the model's memory. s must have a
// model.
func modelAnswer(s *model.Served) ModelAnswer {
	m := s.Model
	a := ModelAnswer{
		Fingerprint: s.Fingerprint,
		Digest:      s.Digest,
		MadeAt:      s.MadeAt.UTC(),
		Features:    s.RowFeatures(),
		Classes:     m.Classes,
		ClassRows:   m.Rows,
		Planes:      model.NewPlanesJSON(m.Planes),
		Options:     model.NewOptionsJSON(m.Options),
		Mean:        m.Mean,
		Method:      s.Method(),
		Refinement:  s.Refinement,
		Tuning:      s.Tuning,
		Calibration: model.NewCalibrationJSON(s.Calibration),
		LiveRows:    s.Rows,
		LiveBlocks:  s.Blocks,
		Offsets:     listed(s.Offsets),
	}
	if b := s.Basis; b != nil {
		a.Basis, a.BasisID, a.BasisStale = model.NewBasisJSON(b.Map, b.Regulariser), b.ID, b.Stale
	}
	return a
}

// Classifier reads the classifier back. The answer may have been saved and changed:
// parts that do not fit together are an error.
func (a *ModelAnswer) Classifier() (*model.Classifier, error) {
	var planes []incremental.Plane
	for _, p := range a.Planes {
		planes = append(planes, incremental.Plane{Class: p.Class, W: p.W, Gamma: p.Gamma})
	}
	c, err := model.New(a.Features, a.Classes, planes, a.Basis)
	if err == nil && len(a.Mean) != 0 && len(a.Mean) != len(c.Model.Features) {
		err = fmt.Errorf("it has %d means for %d features", len(a.Mean), len(c.Model.Features))
	}
	if err != nil {
		return nil, fmt.Errorf("the model cannot be used: %w", err)
	}
	c.Model.Rows, c.Model.Mean = a.ClassRows, a.Mean
	return c, nil
}

// encodedModel keeps the bytes of the last answer, for a thousand clients that
// poll the same model.
type encodedModel struct {
	of     *model.Served
	body   []byte
	zipped func() []byte // compressed when it is first asked for
}

func (s *Server) encode(served *model.Served) (*encodedModel, error) {
	if last := s.encoded.Load(); last != nil && last.of == served {
		return last, nil
	}
	body, err := json.Marshal(modelAnswer(served))
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", served.Fingerprint, err)
	}
	body = append(body, '\n')
	e := &encodedModel{served, body, sync.OnceValue(func() []byte { return zip(body) })}
	s.encoded.Store(e)
	return e, nil
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	known := parseTags(r.Header.Values("If-None-Match"))
	served, err := s.await(w, r, known, min(modelWait.of(r), MaxWait))
	if err != nil {
		return err
	}
	if served.Model == nil {
		return noModel(served)
	}
	if notModified(w, r, served.Fingerprint) {
		return nil
	}
	encoded, err := s.encode(served)
	if err != nil {
		return err
	}
	writeEither(w, http.StatusOK, "application/json", encoded.body, encoded.zipped)
	return nil
}

func noModel(served *model.Served) error {
	return fail(CodeNoModel, "there is no model: %s", served.Problem)
}

// notModified gives an answer its tag, and answers 304 if the client has it
// already.
func notModified(w http.ResponseWriter, r *http.Request, tag string) bool {
	w.Header().Set("ETag", `"`+tag+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if !parseTags(r.Header.Values("If-None-Match")).has(tag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// await returns what is served as soon as that has a model which is not among
// known. A poll that finds no model waits for one, but a model that goes away
// while it waits is news, too.
func (s *Server) await(w http.ResponseWriter, r *http.Request, known tags, wait time.Duration) (*model.Served, error) {
	served, replaced := s.service.Served()
	news := func() bool { return served.Model != nil && !known.has(served.Fingerprint) }
	if wait == 0 || news() {
		return served, nil
	}
	select {
	case s.polls <- struct{}{}:
		defer func() { <-s.polls }()
	default:
		return served, fail(CodeUnavailable, "too many polls wait already")
	}
	extend(w, wait)
	end := time.After(wait)
	for {
		select {
		case <-replaced:
		case <-end:
			return served, nil
		case <-s.stopping:
			return served, nil
		case <-r.Context().Done():
			return served, nil
		}
		had := served.Model != nil
		served, replaced = s.service.Served()
		if news() || had && served.Model == nil {
			return served, nil
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
		t.named = append(t.named, strings.TrimSuffix(tag, zippedTag))
		rest = after
	}
}

func (t tags) has(fingerprint string) bool {
	return t.any || slices.Contains(t.named, fingerprint)
}

// Health is the body of GET /healthz and GET /readyz where all is well.
type Health struct {
	Status string `json:"status"` // ok or ready
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) error {
	return answerJSON(w, Health{"ok"})
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if reason := s.service.Status().NotReady; reason != "" {
		return fail(CodeUnavailable, "not ready: %s", reason)
	}
	return answerJSON(w, Health{"ready"})
}
