package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/ingest/schema"
	"streamd/retire"
)

// ModelAnswer is the body of GET /v1/model, for n features and k classes.
type ModelAnswer struct {
	Fingerprint string    `json:"fingerprint"`      // id of the classifier and its sums, for every daemon that serves it; times, offsets, counts and reports are no part of it
	Digest      string    `json:"state_digest"`     // SHA-256 of the summed state, hex
	MadeAt      time.Time `json:"made_at,omitzero"` // time when the planes were made; absent from the model of a window, which is a function of its blocks
	Features    []string  `json:"features"`         // names of the n features
	Classes     []string  `json:"classes"`          // names of the k classes
	ClassRows   []int64   `json:"class_rows"`       // live rows of each class; with forgetting, those with a weight
	// Whether a restart would have this model or a later one, because the blocks are saved. A model
	// is served before that. After a crash in between their records are read from the log again,
	// and make the same model. Absent from the model of a window.
	Durable *bool `json:"durable,omitempty"`
	// Number of leaves of the log of receipts whose changes the model has: it is without the blocks
	// that receipts below this number have taken out, unless they came again. Absent where receipts
	// are off, and from the model of a window.
	Receipts int64 `json:"receipts,omitempty"`
	// The owner's signature under that number: a checkpoint of the log with one more line, model, a
	// space and the fingerprint.
	Signed string `json:"signed,omitempty"`
	// Two classes have one plane, that of the second. Otherwise each class has one, in
	// the order of classes.
	Planes []model.PlaneJSON `json:"planes"`
	// Basis of the coordinates that the planes are in; absent when they are in the
	// features.
	Basis *model.BasisJSON `json:"basis,omitempty"`
	// SHA-256 of the basis, hex. Without a control topic each replica chooses one from the live set
	// of its moment, so those of replicas may differ. With one, replicas have the basis that the
	// topic has, each as soon as it has built the coordinates.
	BasisID string `json:"basis_id,omitempty"`
	// Whether source blocks of the basis have been retired or replaced since: their
	// numbers may be among its points.
	BasisStale bool              `json:"basis_stale,omitempty"`
	Options    model.OptionsJSON `json:"options"` // options of the solve
	// What a missing value counts as, by feature; absent if no value may be missing. Rows with
	// these numbers in place of the missing values have the daemon's decision values.
	Missing []model.MissingJSON `json:"missing,omitempty"`
	// Schema that makes the features of a row's columns, by name; absent if columns are features as
	// they are.
	Schema *schema.Schema `json:"schema,omitempty"`
	// SHA-256 of the schema's text, hex; absent without a schema.
	SchemaDigest string `json:"schema_digest,omitempty"`
	// Share of the live rows whose value of a category is none of those that the schema declares,
	// by feature; absent if no category has other: true, and from the model of a window.
	Undeclared []model.Undeclared `json:"undeclared,omitempty"`
	// Mean of each feature or coordinate over the live rows. Contributions count from
	// it.
	Mean        []float64              `json:"mean"`
	Sample      *model.Sampled         `json:"sample"`      // sample that the choices below were made by; null if rows played no part
	Method      string                 `json:"method"`      // method of the planes: psvm, or that of the refinement
	Knowledge   *model.Knowledge       `json:"knowledge"`   // the rules beside the rows; null if there are none
	Refinement  *model.Refinement      `json:"refinement"`  // report of the refinement; null if the planes are not refined
	Tuning      *model.Tuning          `json:"tuning"`      // report of the choice of ν; null if ν was not chosen
	Calibration *model.CalibrationJSON `json:"calibration"` // calibration of the decision values; null if there is none
	Decision    *model.DecisionJSON    `json:"decision"`    // rule that decides labels

	// Weights of the live rows by age; absent without retire.half_life and
	// retire.half_life_rows.
	Forgetting *model.Forgetting `json:"forgetting,omitempty"`

	// Window that the model is of; absent if it is of all live blocks. The digest and the counts
	// are then those of the window, whose blocks may be archived ones, too.
	Window *model.Windowed `json:"window,omitempty"`

	LiveRows int64 `json:"live_rows"` // live rows of weight above 0
	// Live rows without a label; absent if all have one. They are of no class.
	Unlabelled int64          `json:"unlabelled_rows,omitempty"`
	LiveBlocks int            `json:"live_blocks"` // live blocks
	Offsets    []model.Offset `json:"offsets"`     // position of the state in each partition; empty for a window
}

// modelAnswer renders s, which must have a model, and shares the model's memory.
func modelAnswer(s *model.Served) (ModelAnswer, error) {
	m, i := s.Model.WithoutMissing(), s.Identity()
	a := ModelAnswer{
		Fingerprint: s.Fingerprint,
		Digest:      s.Digest,
		MadeAt:      s.MadeAt.UTC(),
		Features:    i.Features,
		Classes:     i.Classes,
		ClassRows:   m.Rows,
		Planes:      i.Planes,
		Options:     i.Options,
		Missing:     i.Missing,
		Schema:      s.Schema, SchemaDigest: i.Schema, Undeclared: s.Undeclared,
		Mean:        m.Mean,
		Sample:      s.Sample,
		Method:      i.Method,
		Knowledge:   s.Knowledge,
		Refinement:  s.Refinement,
		Tuning:      s.Tuning,
		Calibration: i.Calibration,
		Decision:    model.NewDecisionJSON(s.DecidesBy(), len(m.Classes), s.Absent.Decision),
		Forgetting:  s.Forgetting,
		Window:      s.Window,
		LiveRows:    s.Rows,
		Unlabelled:  s.Unlabelled,
		LiveBlocks:  s.Blocks,
		Offsets:     listed(s.Offsets),
	}
	if s.Window == nil {
		a.Durable = &s.Durable
	}
	if s.Signed != nil {
		var err error
		if a.Signed, err = s.Signed(); err != nil {
			return a, fmt.Errorf("sign model %s: %w", s.Fingerprint, err)
		}
		a.Receipts = s.Receipts
	}
	if b := s.Basis; b != nil {
		a.Basis, a.BasisID, a.BasisStale = model.NewBasisJSON(b.Map, b.Regulariser), b.ID, b.Stale
	}
	return a, nil
}

// Identity has the parts of the answer that the fingerprint is made of.
func (a *ModelAnswer) Identity() *model.Identity {
	i := &model.Identity{
		Digest: a.Digest, Basis: a.BasisID, Features: a.Features, Classes: a.Classes, Options: a.Options, Missing: a.Missing,
		Method: a.Method, Planes: a.Planes, Calibration: a.Calibration, Decision: a.Decision, Schema: a.Schema.Digest(),
	}
	if a.Forgetting != nil {
		i.Weighted = a.Forgetting.Digest
	}
	if a.Basis != nil {
		i.Regulariser = string(a.Basis.Regulariser)
	}
	return i
}

// Figures has the parts of the answer that sums give, and no fingerprint covers.
func (a *ModelAnswer) Figures() *model.Figures {
	return &model.Figures{
		Mean: a.Mean, ClassRows: a.ClassRows, LiveRows: a.LiveRows, Unlabelled: a.Unlabelled, LiveBlocks: a.LiveBlocks, Forgetting: a.Forgetting,
	}
}

// Classifier reads the classifier back. The answer may have been saved and edited: parts
// that do not fit together are an error.
func (a *ModelAnswer) Classifier() (*model.Classifier, error) {
	var planes []incremental.Plane
	for _, p := range a.Planes {
		planes = append(planes, incremental.Plane{Class: p.Class, W: p.W, Gamma: p.Gamma})
	}
	c, err := model.New(a.Features, a.Classes, planes, a.Basis)
	if err == nil && len(a.Mean) != 0 && len(a.Mean) != len(c.Model.Features) {
		err = fmt.Errorf("it has %d means for %d features", len(a.Mean), len(c.Model.Features))
	}
	var curves []calibration.Curve
	if err == nil && a.Calibration != nil {
		curves, err = a.Calibration.Curves(len(planes))
	}
	if err == nil {
		c.Rule, err = model.RuleOf(a.Decision, a.Classes, curves)
	}
	if err != nil {
		return nil, fmt.Errorf("the model cannot be used: %w", err)
	}
	c.Model.Rows, c.Model.Mean, c.Schema = a.ClassRows, a.Mean, a.Schema
	var mean map[string]float64
	if c.Missing, mean, err = model.ReadMissing(a.Missing, a.Features); err == nil && c.Map != nil && len(mean) > 0 {
		err = errors.New("a kernel has no means of missing values")
	}
	if err != nil {
		return nil, fmt.Errorf("the model cannot be used: %w", err)
	}
	if len(mean) > 0 {
		c.Features = c.Missing.Columns(c.Features)
		c.Model = c.Model.WithMissing(c.Features, mean)
	}
	if c.Schema != nil && !slices.Equal(c.Schema.Columns(), c.Features) {
		return nil, fmt.Errorf("the model cannot be used: its features are %.200q, and its schema makes %.200q", c.Features, c.Schema.Columns())
	}
	return c, nil
}

// renderedModel is the answer of a served value.
type renderedModel struct {
	of *model.Served
	*rendering
}

// render keeps the last rendering for the many clients that poll the same model.
func (s *Server) render(served *model.Served) (*rendering, error) {
	if last := s.rendered.Load(); last != nil && last.of == served {
		return last.rendering, nil
	}
	s.rendering.Lock()
	defer s.rendering.Unlock()
	if last := s.rendered.Load(); last != nil && last.of == served { // another poll was first
		return last.rendering, nil
	}
	answer, err := modelAnswer(served)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", served.Fingerprint, err)
	}
	rendered := newRendering("application/json", append(body, '\n'))
	s.rendered.Store(&renderedModel{served, rendered})
	return rendered, nil
}

// ModelRecord is s as GET /v1/model answers it, without durable, which changes while the model
// stays. s must have a model.
func ModelRecord(s *model.Served) ([]byte, error) {
	answer, err := modelAnswer(s)
	if err != nil {
		return nil, err
	}
	answer.Durable = nil
	return json.Marshal(answer)
}

var modelWait = &parameter[time.Duration]{
	name: "wait", kind: patience,
	meaning: "How long to wait for a model that If-None-Match does not name. More than 1m counts as 1m.",
}

var (
	modelReceipts = &parameter[int]{
		name: "receipts", kind: wholeNumber,
		meaning: "Number of the first receipts whose changes the model must have: 1 + the number of a receipt. With `wait`, the answer comes once it has them; a model without them is 504.",
	}
	modelIncludes = &parameter[[]retire.Range]{
		name: "includes", kind: ranges,
		meaning: "Positions TOPIC/PARTITION/OFFSET, with commas between them, of records that the state must have read, whichever replica answers: of the topic, or of the control topic. With `wait`, the answer comes once it has them; a state without them is 504.",
	}
	needQuery = []described{modelWait, modelReceipts, modelIncludes}
)

// need is what the state of an answer must have.
type need struct {
	receipts int64
	includes []retire.Range
}

func (s *Server) needOf(r *http.Request) (need, error) {
	n := need{int64(modelReceipts.of(r)), modelIncludes.of(r)}
	for _, at := range n.includes {
		if !slices.Contains(s.config.Topics, at.Topic) {
			return n, fail(CodeBadRequest, "includes: the daemon does not read topic %q; it reads %s", at.Topic, strings.Join(s.config.Topics, " and "))
		}
	}
	return n, nil
}

// lacks is an error that names what a state does not have yet, or nil.
func (n *need) lacks(served *model.Served) error {
	if served.Receipts < n.receipts {
		return fail(CodeNotYet, "the model has the changes of %d receipts, and not yet of %d", served.Receipts, n.receipts)
	}
	for _, r := range n.includes {
		next := int64(0)
		for _, o := range served.Offsets {
			if o.Topic == r.Topic && o.Partition == r.Partition {
				next = o.Next
			}
		}
		if next <= r.Last {
			return fail(CodeNotYet, "the state has read %s/%d up to offset %d, and not yet offset %d", r.Topic, r.Partition, next, r.Last)
		}
	}
	return nil
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	if asks(r, windowQuery) {
		return s.windowModel(w, r)
	}
	served, err := s.current(w, r, parseTags(r.Header.Values("If-None-Match")))
	if err != nil {
		return err
	}
	if served.Model == nil {
		return s.noModel(served)
	}
	if hasModel(w, r, served.Fingerprint) {
		return nil
	}
	rendered, err := s.render(served)
	if err != nil {
		return err
	}
	rendered.write(w, http.StatusOK)
	return nil
}

// current is the served value that has what the caller needs. It waits for that, and for one that
// known does not name, as long as the caller does.
func (s *Server) current(w http.ResponseWriter, r *http.Request, known tags) (*model.Served, error) {
	n, err := s.needOf(r)
	if err != nil {
		return nil, err
	}
	served, err := s.await(w, r, known, n, min(modelWait.of(r), MaxWait))
	if err == nil && served.Model != nil {
		err = n.lacks(served)
	}
	return served, err
}

// await returns once a model is served that known does not name and that lacks nothing, or the wait
// is over. A poll that begins without a model waits for one. If the model goes away, the wait ends.
func (s *Server) await(w http.ResponseWriter, r *http.Request, known tags, n need, wait time.Duration) (*model.Served, error) {
	served, replaced := s.service.Served()
	news := func() bool {
		return served.Model != nil && !known.has(served.Fingerprint) && n.lacks(served) == nil
	}
	if wait == 0 {
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
	for had := false; !news() && !(had && served.Model == nil); served, replaced = s.service.Served() {
		select {
		case <-replaced:
		case <-end:
			return served, nil
		case <-s.stopping:
			return served, nil
		case <-r.Context().Done():
			return served, nil
		}
		had = served.Model != nil
	}
	if turn := s.turns.take(time.Now()); turn > 0 {
		select {
		case <-time.After(turn):
		case <-end:
		case <-s.stopping:
		case <-r.Context().Done():
		}
		if now, _ := s.service.Served(); !known.has(now.Fingerprint) {
			served = now
		}
	}
	return served, nil
}

const (
	// PollRate bounds the polls with a wait that are answered in a second. An answer takes some 50
	// µs.
	PollRate = 5000

	pollBurst = PollRate / 50 // the polls that are answered at once
)

// turns spaces the answers to polls, so that many clients that poll the many models of a fast
// stream take a bounded part of a core. Each is answered in its turn, by the model of that moment.
type turns struct {
	mu   sync.Mutex
	next time.Time
}

// take returns the time until the caller's turn.
func (t *turns) take(now time.Time) time.Duration {
	const each = time.Second / PollRate
	t.mu.Lock()
	defer t.mu.Unlock()
	if idle := now.Add(-pollBurst * each); t.next.Before(idle) {
		t.next = idle
	}
	turn := t.next
	t.next = turn.Add(each)
	return turn.Sub(now)
}
