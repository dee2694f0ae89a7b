package incremental

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

// Position is a place in a log.
type Position struct {
	Topic     string
	Partition int
	Offset    int64
}

// String writes the position as topic/partition/offset.
func (p Position) String() string {
	return p.Topic + "/" + strconv.Itoa(p.Partition) + "/" + strconv.FormatInt(p.Offset, 10)
}

// Block is m labelled rows of n features, in columns.
//
// A block is a view of memory that its maker owns. No function of this package
// keeps a reference to it after it has returned.
type Block struct {
	Position Position

	// Features names the columns, in order. Nil: the columns have no names and
	// are matched by position.
	Features []string
	Columns  []gram.Column // n columns of m numbers

	// Row i is of class Classes[Codes[i]]. Classes are distinct canonical labels.
	// A class without rows is ignored.
	Classes []string
	Codes   []int32 // m codes

	// Weights holds m finite numbers ≥ 0; nil: all are 1. A row of weight 0 is
	// ignored.
	Weights []float64
}

// Rows is m, rows of weight 0 included.
func (b *Block) Rows() int { return len(b.Codes) }

// Window has room for the terms that the block adds to each sum of a State, alone or
// together with other blocks within this window. It reads every number; all must be in
// range.
func (b *Block) Window() exact.Window {
	weight := span{high: 1, used: true}
	weight.cover(b.Weights)
	var x span
	var buffer [256]float64
	columns := b.Columns
	for b.Rows() == 1 && len(columns) > 0 { // one number of many columns at a time, not of each
		n := firstRow(buffer[:], columns)
		x.cover(buffer[:n])
		columns = columns[n:]
	}
	for _, c := range columns {
		if values, ok := gram.Values[float64](c); ok {
			x.cover(values)
			continue
		}
		for from := 0; from < c.Len(); from += len(buffer) {
			stretch := buffer[:min(len(buffer), c.Len()-from)]
			c.Copy(stretch, from)
			x.cover(stretch)
		}
	}
	return windowOf(weight, x)
}

// windowOf is the window of rows with these weights and numbers.
func windowOf(weight, x span) exact.Window {
	const rows = 31 // bits of their number
	w := exact.WindowOf(weight.low, weight.high+rows)
	if x.used { // x − c may be twice as large as x and c
		first := weight.times(x)
		second := first.times(x)
		w = w.Union(exact.WindowOf(first.low, first.high+rows+1)).Union(exact.WindowOf(second.low, second.high+rows+3))
	}
	return w
}

// Windows appends the window of each row by itself to dst. Like Window, it reads every number.
func (b *Block) Windows(dst []exact.Window) []exact.Window {
	m := b.Rows()
	spans := make([]span, m)
	buffer := make([]float64, m)
	one := span{}
	one.cover([]float64{1})
	for _, c := range b.Columns {
		if codes, code, ok := c.Codes(); ok {
			for i, other := range codes {
				if other == code {
					spans[i] = spans[i].union(one)
				}
			}
			continue
		}
		c.Copy(buffer, 0)
		for i := range buffer {
			spans[i].cover(buffer[i : i+1])
		}
	}
	for i, x := range spans {
		weight := span{high: 1, used: true}
		if b.Weights != nil {
			weight.cover(b.Weights[i : i+1])
		}
		dst = append(dst, windowOf(weight, x))
	}
	return dst
}

// Weight is the weight of row i.
func (b *Block) Weight(i int) float64 {
	if b.Weights == nil {
		return 1
	}
	return b.Weights[i]
}

// ClassesIn returns the index in classes of each of the block's classes, or −1.
func (b *Block) ClassesIn(classes []string) []int {
	place := make(map[string]int, len(classes))
	for c, label := range classes {
		place[label] = c
	}
	at := make([]int, len(b.Classes))
	for code, label := range b.Classes {
		c, ok := place[label]
		if !ok {
			c = -1
		}
		at[code] = c
	}
	return at
}

// Labelled returns the block without its rows without a label. It is b if all have one.
func (b *Block) Labelled() *Block {
	unlabelled := int32(slices.Index(b.Classes, Unlabelled))
	if unlabelled < 0 || !slices.Contains(b.Codes, unlabelled) {
		return b
	}
	var rows []int
	for i, c := range b.Codes {
		if c != unlabelled {
			rows = append(rows, i)
		}
	}
	return b.Pick(rows)
}

// Slice returns rows from to to−1. It shares b's memory.
func (b *Block) Slice(from, to int) *Block {
	part := *b
	part.Columns = make([]gram.Column, len(b.Columns))
	for j, c := range b.Columns {
		part.Columns[j] = c.Slice(from, to)
	}
	part.Codes = b.Codes[from:to]
	if b.Weights != nil {
		part.Weights = b.Weights[from:to]
	}
	return &part
}

// Pick copies the given rows, in the given order. Columns that are not float32
// become float64.
func (b *Block) Pick(rows []int) *Block {
	out := *b
	out.Columns, out.Codes = make([]gram.Column, len(b.Columns)), pick(b.Codes, rows)
	for j, c := range b.Columns {
		if single, ok := gram.Values[float32](c); ok {
			out.Columns[j] = gram.ColumnOf(pick(single, rows))
			continue
		}
		double := make([]float64, len(rows))
		for to, from := range rows {
			double[to] = c.At(from)
		}
		out.Columns[j] = gram.ColumnOf(double)
	}
	if b.Weights != nil {
		out.Weights = pick(b.Weights, rows)
	}
	return &out
}

func pick[T any](v []T, rows []int) []T {
	out := make([]T, len(rows))
	for to, from := range rows {
		out[to] = v[from]
	}
	return out
}

// A RowError says which row of a block cannot be used, and why.
type RowError struct {
	Row     int    // 0-based
	Feature string // empty: the row as a whole is unusable
	Reason  string
}

func (e *RowError) Error() string {
	if e.Feature == "" {
		return fmt.Sprintf("row %d: %s", e.Row, e.Reason)
	}
	return fmt.Sprintf("row %d: feature %q: %s", e.Row, e.Feature, e.Reason)
}

// Exact sums have room for 2^31 rows of these numbers: every finite float32,
// float64 of the same magnitudes, and weights around 1.
const (
	minFeature, maxFeature = 0x1p-149, 0x1p128 // magnitudes, the upper one excluded
	minWeight, maxWeight   = 0x1p-40, 0x1p40
)

// FirstBadRow names the first row that a Summary may refuse, or returns nil. A
// feature must be 0 or have a magnitude from 2^-149 up to 2^128, as every finite
// float32 has. A weight must be 0 or lie between 2^-40 and 2^40. FirstBadRow reads
// every number and is meant for the error path.
func (b *Block) FirstBadRow() *RowError {
	m := b.Rows()
	var first *RowError
	if m == 1 && b.Weights == nil && b.isInRange() {
		return nil
	}
	for i, v := range b.Weights {
		if !(v == 0 || minWeight <= v && v <= maxWeight) {
			first, m = &RowError{Row: i, Reason: fmt.Sprintf("the weight is %v, neither 0 nor between 1e-12 and 1e12", v)}, i
			break
		}
	}
	for j, c := range b.Columns {
		i, x := firstOutside(c, m)
		if i == m {
			continue
		}
		reason := fmt.Sprintf("the value is %v, outside the range of exact sums (0, or 1.4e-45 to 3.4e38 in magnitude)", x)
		if x-x != 0 {
			reason = fmt.Sprintf("the value is %v", x)
		}
		m = i
		first = &RowError{Row: m, Feature: b.featureName(j), Reason: reason}
	}
	return first
}

// isInRange reports whether all numbers of a block of one row are in range.
func (b *Block) isInRange() bool {
	var buffer [256]float64
	for columns := b.Columns; len(columns) > 0; {
		n := firstRow(buffer[:], columns)
		if indexOutside(buffer[:n]) < n {
			return false
		}
		columns = columns[n:]
	}
	return true
}

// firstRow copies the first numbers of columns, as many as dst has room for, and returns how many.
func firstRow(dst []float64, columns []gram.Column) int {
	n := min(len(dst), len(columns))
	for j, c := range columns[:n] {
		dst[j] = c.At(0)
	}
	return n
}

// firstOutside returns the index and the value of the first of m elements that is out
// of range; the index is m when there is none.
func firstOutside(c gram.Column, m int) (int, float64) {
	if c.Kind() == gram.Indicator {
		return m, 0
	}
	if values, ok := gram.Values[float64](c); ok {
		if i := indexOutside(values[:m]); i < m {
			return i, values[i]
		}
		return m, 0
	}
	if values, ok := gram.Values[float32](c); ok && allFinite(values[:m]) {
		return m, 0
	}
	var buffer [256]float64
	for from := 0; from < m; from += len(buffer) {
		stretch := buffer[:min(len(buffer), m-from)]
		c.Copy(stretch, from)
		if i := indexOutside(stretch); i < len(stretch) {
			return from + i, stretch[i]
		}
	}
	return m, 0
}

// allFinite reports whether no element is infinite or NaN.
func allFinite(x []float32) bool {
	var ones uint32 // the highest bit is set when an exponent is all ones
	for _, x := range x {
		ones |= math.Float32bits(x)&^(1<<31) + 1<<23
	}
	return ones>>31 == 0
}

// indexOutside is the index of the first element that is out of range, or len(x).
func indexOutside(x []float64) int {
	for i, x := range x {
		if a := math.Abs(x); !(x == 0 || minFeature <= a && a < maxFeature) {
			return i
		}
	}
	return len(x)
}

// FeatureNames are the names of the columns. Those without names have the default ones.
func (b *Block) FeatureNames() []string {
	if b.Features != nil {
		return slices.Clone(b.Features)
	}
	return DefaultFeatures(len(b.Columns))
}

func (b *Block) featureName(j int) string {
	if b.Features != nil {
		return b.Features[j]
	}
	return DefaultFeature(j)
}

// CompareFeatures is the canonical order of features. Names are compared with runs of
// digits as numbers, so that x2 is before x10. Names that differ only in leading zeros
// compare byte by byte.
func CompareFeatures(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if order := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); order != 0 {
			return order
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is the number of digits at the beginning of s.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// DefaultFeature names column j (0-based) of data without names: x1, x2, …
func DefaultFeature(j int) string { return fmt.Sprintf("x%d", j+1) }

// DefaultFeatures names n columns of data without names.
func DefaultFeatures(n int) []string {
	names := make([]string, n)
	for j := range names {
		names[j] = DefaultFeature(j)
	}
	return names
}

// Clone copies a block into memory of its own, but for the names of its features.
func (b *Block) Clone() *Block {
	c, m := *b, b.Rows()
	c.Classes, c.Codes, c.Weights = slices.Clone(b.Classes), slices.Clone(b.Codes), slices.Clone(b.Weights)
	c.Columns = make([]gram.Column, len(b.Columns))
	numbers := make([]float64, m*len(b.Columns))
	for j, column := range b.Columns {
		to := numbers[j*m:][:m]
		column.Copy(to, 0)
		c.Columns[j] = gram.ColumnOf(to)
	}
	return &c
}
