package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/unicode/norm"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// noValue is the code of a missing value. It is a number, since a row with another one is refused.
const noValue = -1

// valueBytes is about the memory of a value that is counted, beside its text.
const valueBytes = 128

// Learns lists the categories whose values are learned (values: {most: K}), by name. It is nil for
// no schema and where all values are declared.
func (s *Schema) Learns() (features []string) {
	if s == nil {
		return nil
	}
	for i := range s.made {
		if s.made[i].Most > 0 {
			features = append(features, s.made[i].name)
		}
	}
	slices.Sort(features)
	return features
}

// Known is the schema with the lists that another one, such as a former one, has for its categories
// to learn, however many values they have. It is s itself where there are none.
func (s *Schema) Known(of *Schema) *Schema {
	lists := map[string][]string{}
	for i := range s.made {
		m := &s.made[i]
		if m.Most == 0 || of == nil {
			continue
		}
		for j := range of.made {
			if f := &of.made[j]; f.name == m.name && f.Kind == Category && f.Most == 0 && f.From == m.From {
				lists[m.name] = f.Values
			}
		}
	}
	if len(lists) == 0 {
		return s
	}
	if known, err := s.withLists(lists); err == nil {
		return known
	}
	return s // a value cannot be declared beside other settings
}

// Most is the number of values to learn for a category; 0: its values are declared, or there is no
// such category.
func (s *Schema) Most(category string) int {
	for i := range s.made {
		if s.made[i].name == category {
			return s.made[i].Most
		}
	}
	return 0
}

// ValueCounts counts the values of the categories whose values are learned, exactly: by rows of
// positive weight. Its methods may be called by several goroutines at once.
type ValueCounts struct {
	learns  *Schema
	makes   *Schema
	columns []string // those of makes, and a column of codes for each feature
	bytes   int64    // bound of the values

	mu       sync.Mutex
	held     int64 // bytes of the values
	features []valueCount
}

// valueCount has the counts of one feature.
type valueCount struct {
	of     *made // in learns
	source int   // its column, among the sources of makes

	ids   map[string]int
	names []string // by id
	rows  []int64  // by id
}

// Learned is the list of values that was learned for a category.
type Learned struct {
	Feature  string      `json:"feature"`  // name of the category
	Most     int         `json:"most"`     // values that were asked for
	Values   []ValueRows `json:"values"`   // of the list, the most frequent one first
	Distinct int         `json:"distinct"` // different values that were counted
	Rows     int64       `json:"rows"`     // rows with a value
	Share    float64     `json:"share"`    // of these, whose value is in the list
}

// ValueRows is how many rows have a value.
type ValueRows struct {
	Value string `json:"value"` // value of the category
	Rows  int64  `json:"rows"`  // rows that have it
}

// BlockCounts are the rows of one block by the codes of their values.
type BlockCounts [][]codeRows // of each category

type codeRows struct{ code, rows int32 }

// Bytes is about the memory of the counts.
func (c BlockCounts) Bytes() (n int64) {
	for _, all := range c {
		n += 24 + 8*int64(len(all))
	}
	return n
}

// NewValueCounts returns counts of no rows. The schema must have categories to learn. makes is the
// schema that makes the features of the counted blocks: s, or s.Known of another one. A block is
// refused with which the different values of all blocks would take more than so many bytes.
func (s *Schema) NewValueCounts(makes *Schema, bytes int64) *ValueCounts {
	c := &ValueCounts{learns: s, makes: makes, columns: slices.Clone(makes.columns), bytes: bytes}
	for i := range s.made {
		m := &s.made[i]
		if m.Most == 0 {
			continue
		}
		source := slices.IndexFunc(makes.sources, func(of wire.Source) bool { return of.Name == m.sourceNames()[0] })
		c.features = append(c.features, valueCount{of: m, source: source, ids: map[string]int{}})
		name := "value of " + m.name
		for slices.Contains(c.columns, name) {
			name += "'"
		}
		c.columns = append(c.columns, name)
	}
	return c
}

// Schema makes the blocks that are counted: the features, and behind them a column of codes for
// each category to learn.
func (c *ValueCounts) Schema() wire.Schema { return counted{c.makes, c} }

// Of counts the rows of a block that was made by Schema, and adds them to nothing.
func (c *ValueCounts) Of(b *incremental.Block) BlockCounts {
	n := len(c.columns) - len(c.features)
	out := make(BlockCounts, len(c.features))
	var codes []int32
	var all []codeRows
	for k := range out {
		column := b.Columns[n+k]
		codes = codes[:0]
		for i := range b.Rows() {
			if code := column.At(i); code != noValue && b.Weight(i) > 0 {
				codes = append(codes, int32(code))
			}
		}
		slices.Sort(codes)
		all = all[:0]
		for i, code := range codes {
			if i == 0 || codes[i-1] != code {
				all = append(all, codeRows{code: code})
			}
			all[len(all)-1].rows++
		}
		out[k] = slices.Clone(all)
	}
	return out
}

// Add adds the rows of a block.
func (c *ValueCounts) Add(of BlockCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.features {
		for _, x := range of[k] {
			c.features[k].rows[x.code] += int64(x.rows)
		}
	}
}

// code is the code of a value. It is not ok if there are too many values to count them.
func (c *ValueCounts) code(k int, value string) (code int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.features[k]
	if code, ok = f.ids[value]; ok {
		return code, true
	}
	if c.held += int64(len(value)) + valueBytes; c.held > c.bytes || len(f.names) == math.MaxInt32 {
		return 0, false
	}
	code = len(f.names)
	f.ids[value] = code
	f.names, f.rows = append(f.names, value), append(f.rows, 0)
	return code, true
}

// Learned is the schema with a declared list in place of each one to learn, and what is in the
// lists. They have the most frequent values. Of two values with as many rows, the one that sorts
// first, by its bytes, is the more frequent one. Values that cannot be declared are left out, such
// as texts that are too long for a name. The error is that of a category without a value.
func (c *ValueCounts) Learned() (*Schema, []Learned, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lists := map[string][]string{}
	all := make([]Learned, 0, len(c.features))
	for k := range c.features {
		l := c.features[k].learned()
		if len(l.Values) == 0 {
			return nil, nil, fmt.Errorf("feature %q: no row has a value to learn", l.Feature)
		}
		for _, v := range l.Values {
			lists[l.Feature] = append(lists[l.Feature], v.Value)
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Learned) int { return cmp.Compare(a.Feature, b.Feature) })
	s, err := c.learns.withLists(lists)
	return s, all, err
}

// learned is the list of a feature.
func (f *valueCount) learned() Learned {
	of := f.of
	l := Learned{Feature: of.name, Most: of.Most}
	var counted []ValueRows
	for id, rows := range f.rows {
		if rows > 0 {
			counted = append(counted, ValueRows{f.names[id], rows})
			l.Rows += rows
		}
	}
	l.Distinct = len(counted)
	slices.SortFunc(counted, func(a, b ValueRows) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Value, b.Value))
	})
	forms := map[string]bool{} // of names: no two may look alike
	listed := int64(0)
	for _, v := range counted {
		form := norm.NFC.String(v.Value)
		if len(l.Values) == of.Most || forms[form] || !of.mayDeclare(v.Value) {
			continue
		}
		forms[form] = true
		l.Values = append(l.Values, v)
		listed += v.Rows
	}
	l.Share = float64(listed) / float64(max(1, l.Rows))
	return l
}

// mayDeclare reports whether a value may be in the list of a category.
func (m *made) mayDeclare(value string) bool {
	name, err := wire.Label(value)
	column := m.name + "=" + value
	return err == nil && name == value && !wire.IsMissing(value) && wire.CheckFeatures([]string{column}) == nil &&
		column != otherOf(m.name) && !(m.Missing == Own && column == missingOf(m.name))
}

// withLists is the schema with lists of values in place of those to learn.
func (s *Schema) withLists(lists map[string][]string) (*Schema, error) {
	var features map[string]map[string]any
	if err := json.Unmarshal([]byte(s.text), &features); err != nil {
		return nil, err
	}
	for name, values := range lists {
		features[name]["values"] = slices.Sorted(slices.Values(values))
	}
	text, err := json.Marshal(features)
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// counted is the schema of ValueCounts.Schema.
type counted struct {
	*Schema
	counts *ValueCounts
}

// Sources implements wire.Schema.
func (s counted) Sources() []wire.Source { return s.Schema.Sources() }

// Columns implements wire.Schema.
func (s counted) Columns() []string { return s.counts.columns }

// NewMaker implements wire.Schema.
func (s counted) NewMaker() wire.Maker {
	return &countedMaker{inner: s.Schema.NewMaker(), ValueCounts: s.counts, codes: make([][]int, len(s.counts.features))}
}

// countedMaker makes features, and the codes of values.
type countedMaker struct {
	*ValueCounts
	inner wire.Maker
	codes [][]int // of each feature: by the code of the decoder
	wide  arena[float64]
	out   []gram.Column
}

// Make implements wire.Maker.
func (k *countedMaker) Make(m int, in []gram.Column, names [][]string, renewed bool, room int) ([]gram.Column, *wire.Unmade) {
	need := 8 * m * len(k.features)
	if need > room {
		return nil, &wire.Unmade{Row: -1, Memory: true, Reason: fmt.Sprintf("the values of its %d rows need %d bytes, where there is room for %d: send fewer rows in one, or raise limits.memory", m, need, room)}
	}
	made, bad := k.inner.Make(m, in, names, renewed, room-need)
	if bad != nil {
		return nil, bad
	}
	if renewed {
		clear(k.codes)
	}
	k.wide.reset(m * len(k.features))
	k.out = append(k.out[:0], made...)
	for j := range k.features {
		source := k.features[j].source
		for _, name := range names[source][len(k.codes[j]):] {
			code, ok := k.code(j, nameOf(name))
			if !ok {
				return nil, &wire.Unmade{Row: -1, Source: k.makes.sources[source].Name, Reason: fmt.Sprintf(
					"its different values take more than %d bytes of memory: too many to learn a list of them", k.bytes)}
			}
			k.codes[j] = append(k.codes[j], code)
		}
		codes := k.wide.take(m)
		in[source].Copy(codes, 0)
		for i, x := range codes {
			if math.IsNaN(x) {
				codes[i] = noValue
				continue
			}
			codes[i] = float64(k.codes[j][int(x)])
		}
		k.out = append(k.out, gram.ColumnOf(codes))
	}
	return k.out, nil
}

// Text is a schema in YAML with its learned lists, and behind each of them what it covers.
func (s *Schema) Text(learned []Learned) (string, error) {
	var features map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s.text), &features); err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("features:\n")
	for _, name := range slices.SortedFunc(maps.Keys(features), incremental.CompareFeatures) {
		key, err := json.Marshal(name) // a text in JSON is one in YAML
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "  %s: %s", key, features[name])
		for _, l := range learned {
			if l.Feature == name {
				fmt.Fprintf(&out, "  # %s", l)
			}
		}
		out.WriteByte('\n')
	}
	return out.String(), nil
}

// String says what a list covers.
func (l Learned) String() string {
	if len(l.Values) == l.Distinct {
		return fmt.Sprintf("all %d values of %d rows", l.Distinct, l.Rows)
	}
	return fmt.Sprintf("the %d most frequent of %d values; the others are in %s of the %d rows with a value",
		len(l.Values), l.Distinct, inPercent(1-l.Share), l.Rows)
}

// readMost reads values: {most: K} into f and takes it out of the fields, if it is that.
func (f *Feature) readMost(fields map[string]any) error {
	of, ok := fields["values"].(map[string]any)
	if !ok {
		return nil
	}
	k, isNumber := asNumber(of["most"])
	if _, isText := of["most"].(string); len(of) != 1 || !isNumber || isText || k != math.Trunc(k) || k < 1 || k > maxValues {
		return fmt.Errorf("values: want a list, or {most: K} for the K most frequent values, 1 to %d", maxValues)
	}
	if fields["other"] == false {
		return errors.New("other: false does not go with values: {most: K}, which leaves other values")
	}
	delete(fields, "values")
	fields["other"], f.Most = true, int(k)
	return nil
}

// MarshalJSON writes the settings as Parse reads them.
func (f Feature) MarshalJSON() ([]byte, error) {
	type plain Feature
	if f.Most == 0 {
		return json.Marshal(plain(f))
	}
	return json.Marshal(struct {
		plain
		Values map[string]int `json:"values"`
	}{plain(f), map[string]int{"most": f.Most}})
}
