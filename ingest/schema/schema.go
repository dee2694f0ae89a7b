package schema

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the same rules of time zones on every machine

	"github.com/goccy/go-yaml"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// Kind is what a feature is.
type Kind string

// The kinds.
const (
	Number      Kind = "number"
	Bool        Kind = "bool"
	Category    Kind = "category"
	Buckets     Kind = "buckets"
	Time        Kind = "time"
	Hash        Kind = "hash"
	List        Kind = "list"
	Interaction Kind = "interaction"
	Ignore      Kind = "ignore"
)

// The treatments of missing values, beside a number.
const (
	Reject    = "reject"
	Zero      = "zero"
	Mean      = "mean"
	Indicator = "indicator"
	Own       = "own"
	Other     = "other"
)

// Feature is one entry of a schema.
type Feature struct {
	Kind    Kind      `json:"kind"`
	From    string    `json:"from,omitempty"`    // its column; empty: that of its name
	Missing string    `json:"missing,omitempty"` // empty: reject
	Log1p   bool      `json:"log1p,omitempty"`
	Clip    []float64 `json:"clip,omitempty"` // least and most
	Values  []string  `json:"values,omitempty"`
	Most    int       `json:"-"` // values to learn, in JSON values: {most: K}; 0: they are declared
	Other   bool      `json:"other,omitempty"`
	True    []string  `json:"true,omitempty"`
	False   []string  `json:"false,omitempty"`
	Bounds  []float64 `json:"bounds,omitempty"` // ascending
	Names   []string  `json:"names,omitempty"`  // of the buckets, one more than bounds
	Parts   []string  `json:"parts,omitempty"`
	Zone    string    `json:"zone,omitempty"` // empty: UTC
	Bits    int       `json:"bits,omitempty"`
	Signed  *bool     `json:"signed,omitempty"` // nil: true
	Words   bool      `json:"words,omitempty"`
	Length  int       `json:"length,omitempty"`
	Of      []string  `json:"of,omitempty"` // names of two features
}

// settings are those that a kind has beside kind and from, and its treatments of missing values.
var settings = map[Kind]struct{ keys, missing []string }{
	Number:      {[]string{"log1p", "clip"}, []string{Reject, Zero, Mean, Indicator, aNumber}},
	Bool:        {[]string{"true", "false"}, []string{Reject, Zero, Indicator}},
	Category:    {[]string{"values", "other"}, []string{Reject, Own, Other, Zero}},
	Buckets:     {[]string{"bounds", "names"}, []string{Reject, Own, Zero}},
	Time:        {[]string{"parts", "zone"}, []string{Reject, Zero, Indicator}},
	Hash:        {[]string{"bits", "signed", "words"}, []string{Reject, Zero}},
	List:        {[]string{"length", "log1p", "clip"}, []string{Reject, Zero, aNumber}},
	Interaction: {[]string{"of"}, nil},
	Ignore:      {},
}

const aNumber = "a number"

// kinds are all, in the order of the package comment.
var kinds = []Kind{Number, Bool, Category, Buckets, Time, Hash, List, Interaction, Ignore}

// Limits of a schema.
const (
	MaxText    = 1 << 20 // bytes
	maxEntries = 4096
	maxValues  = 4096
	maxColumns = 1<<16 - 1 // codes of indicators are 16 bits
	maxBits    = 10
	mostLength = 4096
)

// Schema is the features that are made of rows, by name. It is immutable, and implements
// wire.Schema.
type Schema struct {
	sources []wire.Source
	columns []string
	ignores []string
	missing map[string]wire.MissingPolicy
	made    []made // the features that make columns, interactions last
	text    string
}

// made is a feature with its places.
type made struct {
	Feature
	name    string
	sources []int    // its columns among the sources
	columns []string // that it makes, without marks
	at      []int    // their places among the features
	marks   int      // place of the marks; -1: it has none
	value   float64  // what a missing value counts as, where that is a number
	zone    *time.Location
	parts   []func(time.Time) (k, of int)
	of      [2]int // of an interaction: in Schema.made
}

// Parse reads a schema.
func Parse(text []byte) (*Schema, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the schema has %d bytes, the limit is %d", len(text), MaxText)
	}
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("the schema is not a mapping of names in YAML: %s", yaml.FormatError(err, false, false))
	}
	// A file may have the line that the configuration has before it.
	if of, ok := root["features"].(map[string]any); ok && len(root) == 1 && of["kind"] == nil {
		root = of
	}
	switch {
	case len(root) == 0:
		return nil, errors.New("the schema has no features")
	case len(root) > maxEntries:
		return nil, fmt.Errorf("the schema has %d features, the limit is %d", len(root), maxEntries)
	}
	features := make(map[string]Feature, len(root))
	for _, name := range slices.Sorted(maps.Keys(root)) {
		f, err := read(root[name])
		if err != nil {
			return nil, fmt.Errorf("feature %q: %w", name, err)
		}
		features[name] = f
	}
	canonical, err := json.Marshal(features)
	if err != nil {
		return nil, err
	}
	s := &Schema{missing: map[string]wire.MissingPolicy{}, text: string(canonical)}
	if err := s.plan(features); err != nil {
		return nil, err
	}
	return s, nil
}

// String is the schema in its canonical form, a line of JSON, and empty for no schema. Equal texts
// are equal schemas.
func (s *Schema) String() string {
	if s == nil {
		return ""
	}
	return s.text
}

// Digest is SHA-256 of String, in hex; empty for no schema.
func (s *Schema) Digest() string {
	if s == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(sum[:])
}

// MarshalJSON writes the features by name.
func (s *Schema) MarshalJSON() ([]byte, error) { return []byte(s.text), nil }

// UnmarshalJSON reads them back.
func (s *Schema) UnmarshalJSON(text []byte) error {
	read, err := Parse(text)
	if err == nil {
		*s = *read
	}
	return err
}

// Sources implements wire.Schema.
func (s *Schema) Sources() []wire.Source { return s.sources }

// Columns implements wire.Schema. They are ordered by name, each with its marks behind it.
func (s *Schema) Columns() []string { return s.columns }

// Others lists the categories with other: true, by name, and of each the column for values that are
// not declared.
func (s *Schema) Others() (features, columns []string) {
	for i := range s.made {
		if f := &s.made[i]; f.Kind == Category && f.Other {
			features = append(features, f.name)
		}
	}
	slices.Sort(features)
	for _, name := range features {
		columns = append(columns, otherOf(name))
	}
	return features, columns
}

// Ignores implements wire.Schema.
func (s *Schema) Ignores() []string { return s.ignores }

// Missing is the treatment of missing values of the columns that are numbers.
func (s *Schema) Missing() map[string]wire.MissingPolicy { return s.missing }

// SameColumn reports whether two schemas make a column of rows in the same way. A schema that is
// nil makes numbers of the columns of their names.
func SameColumn(a, b *Schema, column string) bool {
	same := func(one, two *made) bool { return one.name == two.name && reflect.DeepEqual(one.Feature, two.Feature) }
	one, two := a.featureOf(column), b.featureOf(column)
	if one == nil || two == nil || !same(one, two) {
		return false
	}
	return one.Kind != Interaction || same(&a.made[one.of[0]], &b.made[two.of[0]]) && same(&a.made[one.of[1]], &b.made[two.of[1]])
}

// featureOf is the feature that makes a column; nil: none does.
func (s *Schema) featureOf(column string) *made {
	if s == nil {
		return &made{Feature: Feature{Kind: Number}, name: column}
	}
	for i := range s.made {
		m := &s.made[i]
		if slices.Contains(m.columns, column) || m.marks >= 0 && column == incremental.MissingName(m.name) {
			return m
		}
	}
	return nil
}

func otherOf(name string) string { return name + "=(other)" }

func missingOf(name string) string { return name + "=(missing)" }

// read reads one entry.
func read(entry any) (f Feature, err error) {
	if kind, ok := entry.(string); ok {
		entry = map[string]any{"kind": kind}
	}
	fields, ok := entry.(map[string]any)
	if !ok {
		return f, errors.New("want the name of a kind, or a mapping with kind and its settings")
	}
	kind, _ := fields["kind"].(string)
	f.Kind = Kind(kind)
	known, ok := settings[f.Kind]
	if !ok {
		return f, fmt.Errorf("kind %q: want %s", kind, orOf(kinds))
	}
	allowed := append([]string{"kind"}, known.keys...)
	if f.Kind != Interaction {
		allowed = append(allowed, "from")
	}
	if known.missing != nil {
		allowed = append(allowed, "missing")
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowed, key) {
			return f, fmt.Errorf("there is no %s of a feature of kind %s: it has %s", key, kind, strings.Join(allowed, ", "))
		}
	}
	if err := f.readMost(fields); err != nil {
		return f, err
	}
	for _, key := range []string{"values", "true", "false", "names"} {
		if err := namesIn(fields, key); err != nil {
			return f, err
		}
	}
	if number, ok := asNumber(fields["missing"]); ok {
		fields["missing"] = incremental.NumberLabel(number)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return f, err
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&f); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return f, fmt.Errorf("%s is a %s, want %s", wrong.Field, wrong.Value, wrong.Type)
		}
		return f, err
	}
	if f.Missing == Reject {
		f.Missing = ""
	}
	_, isNumber := asNumber(f.Missing)
	if f.Missing != "" && !slices.Contains(known.missing, f.Missing) && !(isNumber && slices.Contains(known.missing, aNumber)) {
		return f, fmt.Errorf("missing: %s: want %s", f.Missing, orOf(known.missing))
	}
	return f, f.check()
}

// namesIn makes a list of values one of names, in place.
func namesIn(fields map[string]any, key string) error {
	value, given := fields[key]
	if !given {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%s: want a list, such as [a, b]", key)
	}
	if len(list) > maxValues {
		return fmt.Errorf("%s: %d values, the limit is %d", key, len(list), maxValues)
	}
	names := make([]any, len(list))
	seen := map[string]bool{}
	for i, value := range list {
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case bool:
			text = strconv.FormatBool(v)
		default:
			x, ok := asNumber(v)
			if !ok {
				return fmt.Errorf("%s: %v is no value: want texts, numbers, true or false", key, v)
			}
			text = incremental.NumberLabel(x)
		}
		name := text
		if key != "names" {
			var err error
			if name, err = wire.Label(text); err != nil {
				return fmt.Errorf("%s: %q: %w", key, text, err)
			}
			if wire.IsMissing(text) {
				return fmt.Errorf("%s: %q stands for a missing value: see missing", key, text)
			}
		}
		if seen[name] {
			return fmt.Errorf("%s: %q is given twice", key, name)
		}
		seen[name], names[i] = true, name
	}
	fields[key] = names
	return nil
}

// asNumber reads a finite number of YAML, or its text.
func asNumber(v any) (x float64, ok bool) {
	switch n := v.(type) {
	case int:
		x = float64(n)
	case int64:
		x = float64(n)
	case uint64:
		x = float64(n)
	case float64:
		x = n
	case string:
		var err error
		if x, err = strconv.ParseFloat(n, 64); err != nil {
			return 0, false
		}
	default:
		return 0, false
	}
	return x, !math.IsNaN(x) && !math.IsInf(x, 0)
}

// check says what is wrong with a feature's own settings.
func (f *Feature) check() error {
	switch f.Kind {
	case Category:
		if len(f.Values) == 0 && f.Most == 0 {
			return errors.New("values: want a list of one value or more, or {most: 20}")
		}
		if f.Missing == Other && !f.Other {
			return errors.New("missing: other goes with other: true")
		}
	case Bool:
		for _, name := range f.False {
			if slices.Contains(f.True, name) {
				return fmt.Errorf("%q is both true and false", name)
			}
		}
	case Buckets:
		if len(f.Bounds) == 0 || len(f.Bounds) >= maxValues || !slices.IsSorted(f.Bounds) || len(slices.Compact(slices.Clone(f.Bounds))) < len(f.Bounds) {
			return errors.New("bounds: want one number or more, ascending")
		}
		if len(f.Names) > 0 && len(f.Names) != len(f.Bounds)+1 {
			return fmt.Errorf("names: %d names for %d buckets", len(f.Names), len(f.Bounds)+1)
		}
	case Time:
		if len(f.Parts) == 0 {
			f.Parts = []string{"hour", "weekday"}
		}
		for i, part := range f.Parts {
			if timeParts[part] == nil || slices.Contains(f.Parts[:i], part) {
				return fmt.Errorf("parts: %q: want hour, weekday or month, each once", part)
			}
		}
		if _, err := time.LoadLocation(f.Zone); err != nil || f.Zone == "Local" {
			return fmt.Errorf("zone: %q is no time zone: want one such as Europe/Vienna or UTC", f.Zone)
		}
	case Hash:
		if f.Bits < 1 || f.Bits > maxBits {
			return fmt.Errorf("bits: %d: want 1 to %d, for 2 to %d columns", f.Bits, maxBits, 1<<maxBits)
		}
		if f.Signed != nil && *f.Signed {
			f.Signed = nil
		}
	case List:
		if f.Length < 1 || f.Length > mostLength {
			return fmt.Errorf("length: %d: want 1 to %d", f.Length, mostLength)
		}
	case Interaction:
		if len(f.Of) != 2 || f.Of[0] == f.Of[1] {
			return errors.New("of: want the names of two features")
		}
	}
	if f.Clip != nil && (len(f.Clip) != 2 || !(f.Clip[0] < f.Clip[1])) {
		return errors.New("clip: want two numbers, the least and the most")
	}
	if f.Log1p && f.Clip != nil && f.Clip[0] <= -1 {
		return errors.New("clip: log1p takes numbers above -1")
	}
	return nil
}

// plan gives features their sources and columns.
func (s *Schema) plan(features map[string]Feature) error {
	index := map[string]int{} // of sources
	place := map[string]int{} // of features in s.made
	var crossed []string
	for _, name := range slices.SortedFunc(maps.Keys(features), incremental.CompareFeatures) {
		f := features[name]
		m := made{Feature: f, name: name, marks: -1}
		switch f.Kind {
		case Interaction:
			crossed = append(crossed, name)
			continue
		case Ignore:
			s.ignores = append(s.ignores, cmp.Or(f.From, name))
			continue
		}
		text := f.Kind == Category || f.Kind == Hash || f.Kind == Bool && (f.True != nil || f.False != nil)
		for _, column := range m.sourceNames() {
			j, ok := index[column]
			if !ok {
				j = len(s.sources)
				index[column] = j
				s.sources = append(s.sources, wire.Source{Name: column, Text: text})
			}
			of := &s.sources[j]
			if of.Text != text {
				return fmt.Errorf("feature %q: column %q is read as a number by one feature and as a text by another: give one of them another column", name, column)
			}
			of.Gaps, of.Verbatim = of.Gaps || f.Missing != "", of.Verbatim || f.Kind == Hash
			m.sources = append(m.sources, j)
		}
		m.prepare()
		place[name] = len(s.made)
		s.made = append(s.made, m)
	}
	for _, name := range crossed {
		m := made{Feature: features[name], name: name, marks: -1}
		for i, of := range m.Of {
			j, ok := place[of]
			if !ok {
				return fmt.Errorf("feature %q: of: %q is no feature that makes columns and is no interaction", name, of)
			}
			m.of[i] = j
		}
		for _, a := range s.made[m.of[0]].columns {
			for _, b := range s.made[m.of[1]].columns {
				m.columns = append(m.columns, a+"*"+b)
			}
		}
		s.made = append(s.made, m)
	}
	return s.placeColumns()
}

// placeColumns orders the columns.
func (s *Schema) placeColumns() error {
	marked := map[string]string{} // by the column that the marks stand behind
	var base []string
	for i := range s.made {
		m := &s.made[i]
		if len(base)+len(m.columns) > maxColumns {
			return fmt.Errorf("the schema makes more than %d columns", maxColumns)
		}
		base = append(base, m.columns...)
		if m.Missing == Mean || m.Missing == Indicator {
			marked[m.columns[0]] = incremental.MissingName(m.name)
		}
	}
	if len(base) == 0 {
		return errors.New("the schema has no features")
	}
	slices.SortFunc(base, incremental.CompareFeatures)
	place := map[string]int{}
	for _, name := range base {
		names := []string{name}
		if marks := marked[name]; marks != "" {
			names = append(names, marks)
		}
		for _, name := range names {
			if _, twice := place[name]; twice {
				return fmt.Errorf("the schema makes column %q twice", name)
			}
			place[name] = len(s.columns)
			s.columns = append(s.columns, name)
		}
	}
	if err := wire.CheckFeatures(s.columns); err != nil {
		return err
	}
	for i := range s.made {
		m := &s.made[i]
		for _, name := range m.columns {
			m.at = append(m.at, place[name])
		}
		if m.Missing == Mean || m.Missing == Indicator {
			m.marks = place[incremental.MissingName(m.name)]
		}
		if policy, err := wire.ParseMissing(m.Missing); err == nil && m.Kind == Number {
			s.missing[m.name] = policy
		}
	}
	return nil
}

// sourceNames are the columns that a feature is of.
func (m *made) sourceNames() (names []string) {
	from := cmp.Or(m.From, m.name)
	if m.Kind != List {
		return []string{from}
	}
	for j := range m.Length {
		names = append(names, fmt.Sprintf("%s[%d]", from, j))
	}
	return names
}

// timeParts are the places on the circle of a time, out of so many.
var timeParts = map[string]func(time.Time) (k, of int){
	"hour":    func(t time.Time) (int, int) { return t.Hour(), 24 },
	"weekday": func(t time.Time) (int, int) { return int(t.Weekday()), 7 },
	"month":   func(t time.Time) (int, int) { return int(t.Month()) - 1, 12 },
}

// prepare names the columns of a feature that is no interaction.
func (m *made) prepare() {
	if x, ok := asNumber(m.Missing); ok {
		m.value = x
	}
	switch m.Kind {
	case Number, Bool:
		m.columns = []string{m.name}
	case Category:
		for _, value := range m.Values {
			m.columns = append(m.columns, m.name+"="+value)
		}
		if m.Other {
			m.columns = append(m.columns, otherOf(m.name))
		}
	case Buckets:
		for i := range len(m.Bounds) + 1 {
			m.columns = append(m.columns, m.name+"="+m.bucket(i))
		}
	case Time:
		m.zone, _ = time.LoadLocation(m.Zone) // it has been checked
		for _, part := range m.Parts {
			m.parts = append(m.parts, timeParts[part])
			m.columns = append(m.columns, m.name+" "+part+" sin", m.name+" "+part+" cos")
		}
	case Hash:
		for j := range 1 << m.Bits {
			m.columns = append(m.columns, fmt.Sprintf("%s#%d", m.name, j))
		}
	case List:
		for j := range m.Length {
			m.columns = append(m.columns, fmt.Sprintf("%s[%d]", m.name, j))
		}
	}
	if m.Missing == Own {
		m.columns = append(m.columns, missingOf(m.name))
	}
}

// bucket is the name of bucket i.
func (m *made) bucket(i int) string {
	number := incremental.NumberLabel
	switch {
	case len(m.Names) > 0:
		return m.Names[i]
	case i == 0:
		return "<" + number(m.Bounds[0])
	case i == len(m.Bounds):
		return ">=" + number(m.Bounds[i-1])
	}
	return number(m.Bounds[i-1]) + ".." + number(m.Bounds[i])
}

func orOf[T ~string](list []T) string {
	var texts []string
	for _, t := range list {
		texts = append(texts, string(t))
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}
