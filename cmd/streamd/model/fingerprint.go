package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Identity is everything that decides about a served classifier and its answers, in the written
// forms of GET /v1/model. Clocks, offsets, counts of blocks and reports (tuning, refinement,
// quality) are no part of it. So daemons with the same sums, settings and choices serve the same
// fingerprint, after any history and any number of restarts.
type Identity struct {
	Digest      string           `json:"state_digest"`
	Weighted    string           `json:"forgetting.digest"` // "": rows are not weighted by age
	Basis       string           `json:"basis_id"`          // "": the planes are in the features
	Regulariser string           `json:"basis.regulariser"` // "" without a basis
	Features    []string         `json:"features"`          // of the rows
	Classes     []string         `json:"classes"`
	Options     OptionsJSON      `json:"options"`
	Missing     []MissingJSON    `json:"missing"`
	Method      string           `json:"method"`
	Planes      []PlaneJSON      `json:"planes"`      // without their condition numbers
	Calibration *CalibrationJSON `json:"calibration"` // nil: none
	Decision    *DecisionJSON    `json:"decision"`    // without its reason; nil without a model
	Schema      string           `json:"schema_digest"`
}

// Identity is the identity of a served value. Without a model it has the digests alone.
func (s *Served) Identity() *Identity {
	i := &Identity{Digest: s.Digest}
	if s.Forgetting != nil {
		i.Weighted = s.Forgetting.Digest
	}
	if s.Model == nil {
		return i
	}
	if s.Basis != nil {
		i.Basis, i.Regulariser = s.Basis.ID, string(s.Basis.Regulariser)
	}
	m := s.Model.WithoutMissing()
	i.Features, i.Classes = m.Features, m.Classes
	if s.Basis != nil {
		i.Features = s.Basis.Features
	}
	i.Options = NewOptionsJSON(m.Options)
	i.Missing = NewMissingJSON(s.Missing, i.Features, s.Model)
	i.Schema = s.Schema.Digest()
	i.Method = s.Method()
	i.Planes = NewPlanesJSON(m.Planes)
	i.Calibration = NewCalibrationJSON(s.Calibration)
	i.Decision = NewDecisionJSON(s.DecidesBy(), len(i.Classes), "")
	return i
}

// Figures are the parts of an answer of GET /v1/model that are a function of the live blocks and
// the settings, and that no fingerprint covers.
type Figures struct {
	Mean       []float64   `json:"mean"`
	ClassRows  []int64     `json:"class_rows"`
	LiveRows   int64       `json:"live_rows"`
	Unlabelled int64       `json:"unlabelled_rows"`
	LiveBlocks int         `json:"live_blocks"`
	Forgetting *Forgetting `json:"forgetting"`
}

// Figures are those of a served value. Without a model it has no means and no rows of classes.
func (s *Served) Figures() *Figures {
	f := &Figures{LiveRows: s.Rows, Unlabelled: s.Unlabelled, LiveBlocks: s.Blocks, Forgetting: s.Forgetting}
	if s.Model != nil {
		m := s.Model.WithoutMissing()
		f.Mean, f.ClassRows = m.Mean, m.Rows
	}
	return f
}

// Differences compares like those of Identity.
func (f *Figures) Differences(other *Figures) []string {
	return differences(written(f), written(other))
}

// Fingerprint is the first 16 bytes, in hex, of SHA-256 of the canonical encoding. A text is its
// length in bytes (uvarint) and its bytes. A list is its length (uvarint) and its entries. A number
// is a float64, little endian, with 0 for −0. The encoding is:
//
//	text "streamd model"
//	text state_digest, text forgetting.digest, text basis_id, text basis.regulariser
//	list of texts: features
//	list of texts: classes
//	number ν; byte: 1 if balanced, plus 2 if standardised
//	list of class weights in the order of the labels' bytes: text class, number
//	list of missing, in their order: text feature, text policy, text column,
//	    list of numbers: the mean, or none
//	text method
//	list of planes: text class, list of numbers w, number γ
//	text of the calibration's method, and for each plane
//	    platt     number a, number b
//	    isotonic  list of numbers values, list of numbers probabilities
//	    softmax   list of numbers weights, number bias
//	text of the decision's rule, list of numbers: the threshold, or none
//	list of costs in their order: text class, text answer, number
//	text schema_digest
//
// Names are those of GET /v1/model. A text that is absent there is empty, and so is a list. Without
// a model all is empty or 0 but the digests. Of numbers there is nothing to round: JSON has
// their shortest decimals, which read back as the same bits.
func (i *Identity) Fingerprint() string {
	var e encoder
	e.text("streamd model")
	e.text(i.Digest)
	e.text(i.Weighted)
	e.text(i.Basis)
	e.text(i.Regulariser)
	e.texts(i.Features)
	e.texts(i.Classes)
	e.number(i.Options.Nu)
	var flags byte
	if i.Options.Balanced {
		flags |= 1
	}
	if i.Options.Standardise {
		flags |= 2
	}
	e = append(e, flags)
	e.count(len(i.Options.ClassWeights))
	for _, class := range slices.Sorted(maps.Keys(i.Options.ClassWeights)) {
		e.text(class)
		e.number(i.Options.ClassWeights[class])
	}
	e.count(len(i.Missing))
	for _, m := range i.Missing {
		e.text(m.Feature)
		e.text(string(m.Policy))
		e.text(m.Column)
		e.optional(m.Mean)
	}
	e.text(i.Method)
	e.count(len(i.Planes))
	for _, p := range i.Planes {
		e.text(p.Class)
		e.numbers(p.W)
		e.number(p.Gamma)
	}
	e.calibration(i.Calibration)
	d := i.Decision
	if d == nil {
		d = &DecisionJSON{}
	}
	e.text(string(d.Rule))
	e.optional(d.Threshold)
	e.count(len(d.Costs))
	for _, c := range d.Costs {
		e.text(c.Class)
		e.text(c.Answer)
		e.number(c.Cost)
	}
	e.text(i.Schema)
	sum := sha256.Sum256(e)
	return hex.EncodeToString(sum[:16])
}

// encoder appends the parts of a canonical encoding.
type encoder []byte

func (e *encoder) count(n int) { *e = binary.AppendUvarint(*e, uint64(n)) }

func (e *encoder) text(s string) {
	e.count(len(s))
	*e = append(*e, s...)
}

func (e *encoder) texts(list []string) {
	e.count(len(list))
	for _, s := range list {
		e.text(s)
	}
}

func (e *encoder) number(x float64) {
	*e = binary.LittleEndian.AppendUint64(*e, math.Float64bits(x+0)) // −0 + 0 = 0
}

func (e *encoder) numbers(list []float64) {
	e.count(len(list))
	for _, x := range list {
		e.number(x)
	}
}

// optional is the list of a number that may be absent.
func (e *encoder) optional(x *float64) {
	if x == nil {
		e.count(0)
		return
	}
	e.numbers([]float64{*x})
}

func (e *encoder) calibration(c *CalibrationJSON) {
	if c == nil {
		e.text("")
		return
	}
	e.text(string(c.Method))
	for _, p := range c.Planes {
		switch {
		case p.A != nil && p.B != nil:
			e.number(*p.A)
			e.number(*p.B)
		case p.Bias != nil:
			e.numbers(p.Weights)
			e.number(*p.Bias)
		default:
			e.numbers(p.Values)
			e.numbers(p.Probabilities)
		}
	}
}

// Differences compares two identities bit for bit. For each part that differs it has a line, with
// the first number or text that does: its place, that of i, and that of other. 0 and −0 are one
// number.
func (i *Identity) Differences(other *Identity) []string {
	return differences(i.parts(), other.parts())
}

// differences compares the written forms of parts.
func differences(a, b map[string]any) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if place, x, y := difference(name, a[name], b[name]); place != "" {
			lines = append(lines, fmt.Sprintf("%s is %v, and not %v", place, x, y))
		}
	}
	return lines
}

// parts are the written forms of what the fingerprint covers.
func (i *Identity) parts() map[string]any {
	c := *i
	c.Planes = slices.Clone(c.Planes)
	for j := range c.Planes {
		c.Planes[j].Condition = nil
	}
	if c.Decision != nil {
		d := *c.Decision
		d.Reason, c.Decision = "", &d
	}
	return written(&c)
}

// written is the written form of a struct, by name.
func written(parts any) (by map[string]any) {
	text, err := json.Marshal(parts)
	if err == nil {
		err = json.Unmarshal(text, &by)
	}
	if err != nil {
		panic(err) // texts and finite numbers
	}
	return by
}

// difference finds the first place where two values of JSON differ; "": there is none. What is
// empty is as if it were absent.
func difference(place string, a, b any) (at string, x, y any) {
	v, isMap := a.(map[string]any)
	w, areMaps := b.(map[string]any)
	if areMaps = areMaps && isMap; areMaps {
		keys := maps.Clone(v)
		maps.Copy(keys, w)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if at, x, y = difference(place+"."+key, v[key], w[key]); at != "" {
				return at, x, y
			}
		}
		return "", nil, nil
	}
	l, isList := a.([]any)
	m, areLists := b.([]any)
	if areLists = areLists && isList; areLists && len(l) == len(m) {
		for j := range l {
			if at, x, y = difference(fmt.Sprintf("%s[%d]", place, j), l[j], m[j]); at != "" {
				return at, x, y
			}
		}
		return "", nil, nil
	}
	if a, b = plain(a), plain(b); !areLists && a == b {
		return "", nil, nil
	}
	return place, a, b
}

// plain is a value as an error shows it.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 {
			return "present"
		}
	case []any:
		if len(v) > 0 {
			return fmt.Sprintf("a list of %d", len(v))
		}
	case string:
		if v != "" {
			return strconv.Quote(v)
		}
	case nil:
	default:
		return v
	}
	return "absent"
}
