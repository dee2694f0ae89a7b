package intake

import (
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Rows are labelled rows of several records, stored in columns.
type Rows struct {
	columns [][]float64
	classes []string
	code    map[string]int32
	codes   []int32
	weights []float64 // nil until a message brings weights
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.codes) }

// keptRows bounds the bytes of memory that is kept for reuse.
const keptRows = 4 << 20

// bytes is the approximate memory of the rows.
func (r *Rows) bytes() int64 { return 8 * int64(len(r.columns)+2) * int64(cap(r.codes)) }

// Empty removes all rows and keeps their memory.
func (r *Rows) Empty() {
	for j := range r.columns {
		r.columns[j] = r.columns[j][:0]
	}
	clear(r.classes)
	clear(r.code)
	*r = Rows{columns: r.columns, classes: r.classes[:0], code: r.code, codes: r.codes[:0]}
}

// find returns the code of a label in r, if r has the label.
func (r *Rows) find(label string) (int32, bool) {
	if len(r.classes) > 8 {
		c, ok := r.code[label]
		return c, ok
	}
	c := slices.Index(r.classes, label)
	return int32(c), c >= 0
}

// codeOf returns the code of a label in r, and adds the label if needed.
func (r *Rows) codeOf(label string) int32 {
	c, ok := r.find(label)
	if !ok {
		if r.code == nil {
			r.code = map[string]int32{}
		}
		c = int32(len(r.classes))
		r.code[label] = c
		r.classes = append(r.classes, label)
	}
	return c
}

// classesWith lists the classes of r and those that rows i to j of other would add. It is
// nil if they add none.
func (r *Rows) classesWith(other *Rows, i, j int) []string {
	var out []string
	for _, c := range other.codes[i:j] {
		label := other.classes[c]
		if _, ok := r.find(label); ok || slices.Contains(out, label) {
			continue
		}
		if out == nil {
			out = slices.Clone(r.classes)
		}
		out = append(out, label)
	}
	return out
}

// widen gives r n empty columns. r has no rows.
func (r *Rows) widen(n int) {
	if r.Len() == 0 {
		r.columns = slices.Grow(r.columns[:0], n)[:n]
	}
}

// Weighing is a block without its rows of weight 0 and their classes, which count as
// absent.
func Weighing(b *incremental.Block) *incremental.Block {
	if !slices.Contains(b.Weights, 0) {
		return b
	}
	var rows []int
	for i, v := range b.Weights {
		if v > 0 {
			rows = append(rows, i)
		}
	}
	return b.Pick(rows)
}

// AppendBlock copies the rows of a block.
func (r *Rows) AppendBlock(b *incremental.Block) {
	r.widen(len(b.Columns))
	r.appendWeights(b.Weights, b.Rows())
	if b.Rows() == 1 { // as in most topics: a column of one number is no loop
		for j, c := range b.Columns {
			r.columns[j] = append(r.columns[j], c.At(0))
		}
		r.codes = append(r.codes, r.codeOf(b.Classes[b.Codes[0]]))
		return
	}
	for j, c := range b.Columns {
		had := len(r.columns[j])
		r.columns[j] = slices.Grow(r.columns[j], b.Rows())[:had+b.Rows()]
		c.Copy(r.columns[j][had:], 0)
	}
	for _, c := range b.Codes {
		r.codes = append(r.codes, r.codeOf(b.Classes[c]))
	}
}

// AppendRange copies rows i to j of from.
func (r *Rows) AppendRange(from *Rows, i, j int) {
	r.widen(len(from.columns))
	var weights []float64
	if from.weights != nil {
		weights = from.weights[i:j]
	}
	r.appendWeights(weights, j-i)
	if i+1 == j {
		for f, c := range from.columns {
			r.columns[f] = append(r.columns[f], c[i])
		}
	} else {
		for f, c := range from.columns {
			r.columns[f] = append(r.columns[f], c[i:j]...)
		}
	}
	for _, c := range from.codes[i:j] {
		r.codes = append(r.codes, r.codeOf(from.classes[c]))
	}
}

// appendWeights adds m weights; nil stands for ones.
func (r *Rows) appendWeights(w []float64, m int) {
	if w == nil && r.weights == nil {
		return
	}
	if r.weights == nil {
		r.weights = slices.Repeat([]float64{1}, r.Len())
	}
	if w == nil {
		w = slices.Repeat([]float64{1}, m)
	}
	r.weights = append(r.weights, w...)
}

// Block views the rows as a block without names.
func (r *Rows) Block() *incremental.Block {
	b := &incremental.Block{Classes: r.classes, Codes: r.codes, Weights: r.weights}
	for _, c := range r.columns {
		b.Columns = append(b.Columns, gram.ColumnOf(c))
	}
	return b
}

// Classes lists the labels that the rows have.
func (r *Rows) Classes() []string { return r.classes }
