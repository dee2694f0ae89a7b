package intake

import (
	"slices"
	"unsafe"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Rows are labelled rows of several records, stored in columns.
type Rows struct {
	places     []place
	columns    [][]float64
	categories [][]uint16 // codes
	classes    []string
	code       map[string]int32
	codes      []int32
	weights    []float64 // nil until a message brings weights

	// The numbers of the last rows may still be those of other Rows, where they are next to each
	// other: rows that come one by one are copied column by column when there are many.
	late     *Rows // nil: there are none
	from, to int   // which rows of late
	lent     *Rows // whose late rows may be some of these, or nil
}

// place says where a feature is.
type place struct {
	category bool   // it is 1 where the codes of a category are code, and 0 elsewhere
	at       int    // in categories, or in columns
	code     uint16 // of a category
	first    int    // the first feature of the category
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.codes) }

// keptRows bounds the bytes of memory that is kept for reuse.
const keptRows = 4 << 20

// bytes is the approximate memory of the rows.
func (r *Rows) bytes() int64 { return r.rowBytes() * int64(cap(r.codes)) }

func (r *Rows) rowBytes() int64 { return 8*int64(len(r.columns)+2) + 2*int64(len(r.categories)) }

// rowBytesOf is rowBytes of Rows of a block.
func rowBytesOf(b *incremental.Block) int64 {
	r := Rows{}
	r.arrange(b)
	return r.rowBytes()
}

// spreadBytes is the approximate memory that the rows take as numbers.
func (r *Rows) spreadBytes() int64 { return 8 * int64(len(r.places)+2) * int64(cap(r.codes)) }

// Empty removes all rows and keeps their memory.
func (r *Rows) Empty() {
	if r.lent != nil {
		r.lent.settle()
	}
	for j := range r.columns {
		r.columns[j] = r.columns[j][:0]
	}
	for k := range r.categories {
		r.categories[k] = r.categories[k][:0]
	}
	clear(r.classes)
	clear(r.code)
	*r = Rows{
		places: r.places, columns: r.columns, categories: r.categories,
		classes: r.classes[:0], code: r.code, codes: r.codes[:0],
	}
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

// arrange gives r, which has no rows, places for the features of a block.
func (r *Rows) arrange(b *incremental.Block) {
	r.places = slices.Grow(r.places[:0], len(b.Columns))
	numbers, categories := 0, 0
	var last *uint16 // the codes of the category before
	for j, c := range b.Columns {
		codes, code, ok := c.Codes()
		if !ok {
			r.places = append(r.places, place{at: numbers})
			numbers++
			continue
		}
		first := j
		if of := unsafe.SliceData(codes); of == last {
			first = r.places[j-1].first
		} else {
			last = of
			categories++
		}
		r.places = append(r.places, place{category: true, at: categories - 1, code: code, first: first})
	}
	r.setLengths(numbers, categories)
}

// setLengths makes room for so many columns and categories, which are empty.
func (r *Rows) setLengths(numbers, categories int) {
	r.columns = slices.Grow(r.columns[:0], numbers)[:numbers]
	r.categories = slices.Grow(r.categories[:0], categories)[:categories]
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

// has reports whether the features of a block are where r has them.
func (r *Rows) has(b *incremental.Block) bool {
	if len(r.places) != len(b.Columns) {
		return false
	}
	for j, c := range b.Columns {
		p := &r.places[j]
		codes, code, ok := c.Codes()
		if ok != p.category || ok && code != p.code {
			return false
		}
		if ok && p.first != j {
			if first, _, _ := b.Columns[p.first].Codes(); unsafe.SliceData(first) != unsafe.SliceData(codes) {
				return false
			}
		}
	}
	return true
}

// spread makes the categories columns of numbers.
func (r *Rows) spread() {
	r.settle()
	if r.lent != nil {
		r.lent.settle()
	}
	if len(r.categories) == 0 {
		return
	}
	b := r.Block()
	columns := make([][]float64, len(b.Columns))
	for j, c := range b.Columns {
		columns[j] = make([]float64, c.Len())
		c.Copy(columns[j], 0)
		r.places[j] = place{at: j}
	}
	r.columns, r.categories = columns, nil
}

// AppendBlock copies the rows of a block.
func (r *Rows) AppendBlock(b *incremental.Block) {
	r.settle()
	if r.Len() == 0 {
		r.arrange(b)
	} else if !r.has(b) {
		r.spread()
	}
	r.appendWeights(b.Weights, b.Rows())
	for j, c := range b.Columns {
		switch p := &r.places[j]; {
		case p.category && p.first != j:
		case p.category:
			codes, _, _ := c.Codes()
			r.categories[p.at] = append(r.categories[p.at], codes...)
		case b.Rows() == 1: // as in most topics: a column of one number is no loop
			r.columns[p.at] = append(r.columns[p.at], c.At(0))
		default:
			to := &r.columns[p.at]
			had := len(*to)
			*to = slices.Grow(*to, b.Rows())[:had+b.Rows()]
			c.Copy((*to)[had:], 0)
		}
	}
	for _, c := range b.Codes {
		r.codes = append(r.codes, r.codeOf(b.Classes[c]))
	}
}

// AppendRange copies rows i to j of from.
func (r *Rows) AppendRange(from *Rows, i, j int) {
	r.appendLate(from, i, j)
	r.settle()
}

// appendLate is AppendRange that may leave the numbers where they are. Until from is emptied it
// stays in its place: it is not copied, and nothing is assigned to it.
func (r *Rows) appendLate(from *Rows, i, j int) {
	if r.late != from || r.to != i {
		r.settle()
		if from.lent != nil {
			from.lent.settle()
		}
		switch {
		case r.Len() == 0:
			r.places = append(r.places[:0], from.places...)
			r.setLengths(len(from.columns), len(from.categories))
		case !slices.Equal(r.places, from.places): // of another way to make the features
			r.spread()
			from.spread()
		}
		r.late, r.from, from.lent = from, i, r
	}
	r.to = j
	var weights []float64
	if from.weights != nil {
		weights = from.weights[i:j]
	}
	r.appendWeights(weights, j-i)
	for _, c := range from.codes[i:j] {
		r.codes = append(r.codes, r.codeOf(from.classes[c]))
	}
}

// settle copies the numbers of the late rows.
func (r *Rows) settle() {
	if r.late == nil {
		return
	}
	for f, c := range r.late.columns {
		r.columns[f] = append(r.columns[f], c[r.from:r.to]...)
	}
	for k, c := range r.late.categories {
		r.categories[k] = append(r.categories[k], c[r.from:r.to]...)
	}
	r.late = nil
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
	r.settle()
	b := &incremental.Block{Classes: r.classes, Codes: r.codes, Weights: r.weights}
	for _, p := range r.places {
		if p.category {
			b.Columns = append(b.Columns, gram.IndicatorColumn(r.categories[p.at], p.code))
		} else {
			b.Columns = append(b.Columns, gram.ColumnOf(r.columns[p.at]))
		}
	}
	return b
}

// Classes lists the labels that the rows have.
func (r *Rows) Classes() []string { return r.classes }
