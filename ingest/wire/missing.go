package wire

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// MissingPolicy says what becomes of a value that is missing.
type MissingPolicy uint8

// The policies.
const (
	MissingReject    MissingPolicy = iota // the payload is refused
	MissingZero                           // 0
	MissingMean                           // 0, and 1 in the column of marks: see incremental.Imputed
	MissingIndicator                      // the same columns; the marks are a feature of their own
	MissingNaN                            // NaN, for an Encoder
)

var missingNames = []string{"reject", "zero", "mean", "indicator", "nan"}

// String is the policy's name.
func (p MissingPolicy) String() string { return missingNames[p] }

// ParseMissing is the inverse of String.
func ParseMissing(name string) (MissingPolicy, error) {
	i := slices.Index(missingNames[:MissingNaN], name)
	if i < 0 {
		return 0, fmt.Errorf("%q says nothing about missing values: want reject, zero, mean or indicator", name)
	}
	return MissingPolicy(i), nil
}

// Missing says what becomes of missing values, by feature.
type Missing struct {
	Default  MissingPolicy
	Features map[string]MissingPolicy // exceptions
}

// Of is the policy of a feature.
func (m *Missing) Of(feature string) MissingPolicy {
	if policy, ok := m.Features[feature]; ok {
		return policy
	}
	return m.Default
}

// Any reports whether some feature may have missing values.
func (m *Missing) Any() bool {
	for _, policy := range m.Features {
		if policy != MissingReject {
			return true
		}
	}
	return m.Default != MissingReject
}

// marks reports whether a feature has a column of marks.
func (m *Missing) marks(feature string) bool {
	policy := m.Of(feature)
	return policy == MissingMean || policy == MissingIndicator
}

// Means lists the features of a block whose missing values count as the mean.
func (m *Missing) Means(features []string) (means []string) {
	for _, name := range m.Base(features) {
		if m.Of(name) == MissingMean {
			means = append(means, name)
		}
	}
	return means
}

// Base lists the features of a block that payloads have: all but the marks.
func (m *Missing) Base(features []string) (base []string) {
	given := setOf(features)
	for _, name := range features {
		if !m.isMarks(name, given) {
			base = append(base, name)
		}
	}
	return base
}

// isMarks is whether a name is that of the marks of another one that is given.
func (m *Missing) isMarks(name string, given map[string]bool) bool {
	of, ok := strings.CutSuffix(name, incremental.MissingName(""))
	return ok && given[of] && m.marks(of) && !m.isMarks(of, given)
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Columns lists the features of a block of these features: each is followed by its marks,
// unless those have a place of their own already.
func (m *Missing) Columns(features []string) (all []string) {
	given := setOf(features)
	for _, name := range features {
		all = append(all, name)
		if marks := incremental.MissingName(name); m.marks(name) && !given[marks] && !m.isMarks(name, given) {
			all = append(all, marks)
		}
	}
	return all
}

// IsMissing reports whether a text stands for a value that is not there.
func IsMissing(text string) bool { return isMissing([]byte(text)) }

// isMissing is whether a text stands for a value that is not there. No text of a value
// begins like one of these.
func isMissing(text []byte) bool {
	if len(text) > 0 && text[0]|0x20 != 'n' {
		return false
	}
	switch string(text) {
	case "", "NA", "NaN", "nan", "null", "NULL", "None":
		return true
	}
	return false
}

// takesMissing is whether feature j, of these names, may be missing.
func (b *builder) takesMissing(names []string, j int) bool {
	m := &b.opts.Missing
	if len(m.Features) == 0 {
		return m.Default != MissingReject
	}
	return m.Of(featureName(names, j)) != MissingReject
}

// reserved is the reason why a payload's column cannot have a name, or "".
func (b *builder) reserved(name string) string {
	of, ok := strings.CutSuffix(name, incremental.MissingName(""))
	if _, known := b.want.index[of]; ok && known && b.opts.Missing.marks(of) {
		return fmt.Sprintf("the marks of missing values of %q have this name: leave the column out, or rename it", of)
	}
	return ""
}

// gaps has the columns of blocks whose values may be missing.
type gaps struct {
	from    []string // names of the last block
	unnamed bool     // it had none, and from has those by default
	to      []string // of its columns, the marks among them
	at      []int    // per column its place in from, or −1 − place for the marks
	policy  []MissingPolicy

	columns []gram.Column
	marks   []gram.Column
	memory  arena
}

// fill puts missing values, which are NaN, in their place, and adds columns of marks. The
// columns hold so many bytes. Those of a text are the reader's own and changed where they
// lie.
func (b *builder) fill(names []string, held int) ([]string, *Error) {
	g := &b.gaps
	if g.at == nil || g.unnamed != (names == nil) || len(g.from) != len(b.columns) || names != nil && !slices.Equal(names, g.from) {
		if err := b.planGaps(names); err != nil {
			return nil, err
		}
	}
	g.memory.shrink()
	g.marks = g.marks[:0]
	var none gram.Column // the marks of columns without gaps
	for j, c := range b.columns {
		g.marks = append(g.marks, none)
		if policy := g.policy[j]; policy == MissingReject || policy == MissingNaN {
			continue
		}
		err := b.fillColumn(j, c, &none, held)
		if err != nil {
			return nil, err
		}
	}
	g.columns = g.columns[:0]
	for _, at := range g.at {
		if at < 0 {
			g.columns = append(g.columns, g.marks[-1-at])
		} else {
			g.columns = append(g.columns, b.columns[at])
		}
	}
	return g.to, nil
}

// planGaps makes the plan for the names of a block.
func (b *builder) planGaps(names []string) *Error {
	g, m := &b.gaps, &b.opts.Missing
	g.at, g.unnamed = nil, names == nil
	if g.unnamed {
		names = incremental.DefaultFeatures(len(b.columns))
	}
	g.from, g.policy = names, nil
	place := make(map[string]int, len(names))
	for j, name := range names {
		place[name] = j
		g.policy = append(g.policy, m.Of(name))
	}
	if g.to = b.want.columns; g.to == nil {
		for _, name := range names {
			if marks := incremental.MissingName(name); m.marks(name) {
				if _, taken := place[marks]; taken {
					return b.fail(-1, marks, "the marks of missing values of %q have this name: rename the column, or ignore it", name)
				}
				if len(marks) > maxName {
					return b.fail(-1, name, "the name is too long for the marks of missing values, which have %d bytes more", len(marks)-len(name))
				}
			}
		}
		if g.to = m.Columns(names); len(g.to) > b.opts.Limits.Features {
			return b.fail(-1, "", "there %s with the marks of missing values, the limit is %d", areFeatures(len(g.to)), b.opts.Limits.Features)
		}
	}
	for _, name := range g.to {
		if j, ok := place[name]; ok {
			g.at = append(g.at, j)
			continue
		}
		g.at = append(g.at, -1-place[strings.TrimSuffix(name, incremental.MissingName(""))])
	}
	return nil
}

// fillColumn puts zeros into the gaps of column j.
func (b *builder) fillColumn(j int, c gram.Column, none *gram.Column, held int) *Error {
	g := &b.gaps
	m := c.Len()
	first, own := firstGap(c), b.format != Arrow
	wantsMarks := g.policy[j] != MissingZero
	if first == m && wantsMarks && none.Len() == 0 {
		marks, err := b.gapMemory(m, held)
		if err != nil {
			return err
		}
		*none = gram.ColumnOf(marks)
	}
	if first == m {
		g.marks[j] = *none
		return nil
	}
	values, ok := gram.Values[float64](c)
	if !ok || !own {
		memory, err := b.gapMemory(8*m, held)
		if err != nil {
			return err
		}
		values = unsafe.Slice((*float64)(unsafe.Pointer(&memory[0])), m)
		c.Copy(values, 0)
		b.columns[j] = gram.ColumnOf(values)
	}
	var marks []uint8
	if wantsMarks {
		var err *Error
		if marks, err = b.gapMemory(m, held); err != nil {
			return err
		}
		g.marks[j] = gram.ColumnOf(marks)
	}
	for i := first; i < m; i++ {
		if math.IsNaN(values[i]) {
			values[i] = 0
			if wantsMarks {
				marks[i] = 1
			}
		}
	}
	return nil
}

// gapMemory is n zero bytes, aligned for numbers, beside those that are held.
func (b *builder) gapMemory(n, held int) ([]byte, *Error) {
	memory := &b.gaps.memory
	if limit := b.opts.Limits.Numbers; n > limit-held-memory.taken() {
		b.short = true
		return nil, b.fail(-1, "", "the block needs more than %d bytes, the limit", limit)
	}
	out := memory.take(n)
	clear(out)
	return out, nil
}

// firstGap is the first row that is NaN, or the number of rows.
func firstGap(c gram.Column) int {
	m := c.Len()
	if kind := c.Kind(); kind != gram.Float32 && kind != gram.Float64 {
		return m
	}
	if values, ok := gram.Values[float64](c); ok {
		for i, x := range values {
			if x != x {
				return i
			}
		}
		return m
	}
	var buffer [256]float64
	for from := 0; from < m; from += len(buffer) {
		stretch := buffer[:min(len(buffer), m-from)]
		c.Copy(stretch, from)
		for i, x := range stretch {
			if x != x {
				return from + i
			}
		}
	}
	return m
}
