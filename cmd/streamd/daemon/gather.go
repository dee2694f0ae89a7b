package daemon

import (
	"slices"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
)

// rows are labelled rows of several messages, in columns.
type rows struct {
	columns [][]float64
	classes []string
	code    map[string]int32
	codes   []int32
	weights []float64 // nil until a message brings weights
}

func (r *rows) len() int { return len(r.codes) }

// empty takes all rows out, and keeps their memory for others.
func (r *rows) empty() {
	for j := range r.columns {
		r.columns[j] = r.columns[j][:0]
	}
	clear(r.classes)
	clear(r.code)
	*r = rows{columns: r.columns, classes: r.classes[:0], code: r.code, codes: r.codes[:0]}
}

// find is the code of a label in r, where it has one.
func (r *rows) find(label string) (int32, bool) {
	if len(r.classes) > 8 {
		c, ok := r.code[label]
		return c, ok
	}
	c := slices.Index(r.classes, label)
	return int32(c), c >= 0
}

// codeOf is the code of a label in r.
func (r *rows) codeOf(label string) int32 {
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

// classesWith lists the classes of r together with those that rows i to j of another
// would bring; nil when they bring none.
func (r *rows) classesWith(other *rows, i, j int) []string {
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

func (r *rows) widen(n int) {
	if r.columns == nil {
		r.columns = make([][]float64, n)
	}
}

// appendBlock copies the rows of a block.
func (r *rows) appendBlock(b *incremental.Block) {
	r.widen(len(b.Columns))
	r.appendWeights(b.Weights, b.Rows())
	for j, c := range b.Columns {
		if values, ok := gram.Values[float64](c); ok {
			r.columns[j] = append(r.columns[j], values...)
			continue
		}
		for i := range b.Rows() {
			r.columns[j] = append(r.columns[j], c.At(i))
		}
	}
	for _, c := range b.Codes {
		r.codes = append(r.codes, r.codeOf(b.Classes[c]))
	}
}

// appendRange copies rows i to j of another.
func (r *rows) appendRange(from *rows, i, j int) {
	r.widen(len(from.columns))
	var weights []float64
	if from.weights != nil {
		weights = from.weights[i:j]
	}
	r.appendWeights(weights, j-i)
	for f, c := range from.columns {
		r.columns[f] = append(r.columns[f], c[i:j]...)
	}
	for _, c := range from.codes[i:j] {
		r.codes = append(r.codes, r.codeOf(from.classes[c]))
	}
}

// appendWeights adds m weights; nil stands for ones.
func (r *rows) appendWeights(w []float64, m int) {
	if w == nil && r.weights == nil {
		return
	}
	if r.weights == nil {
		r.weights = slices.Repeat([]float64{1}, r.len())
	}
	if w == nil {
		w = slices.Repeat([]float64{1}, m)
	}
	r.weights = append(r.weights, w...)
}

// block views the rows as a block without names.
func (r *rows) block() *incremental.Block {
	b := &incremental.Block{Classes: r.classes, Codes: r.codes, Weights: r.weights}
	for _, c := range r.columns {
		b.Columns = append(b.Columns, gram.ColumnOf(c))
	}
	return b
}

// run is the open block of a partition whose messages are gathered: the rows
// of consecutive messages of one bucket, a range of offsets or a span of event
// time. Where a run begins and ends depends on the log alone, so reading it
// again makes the same blocks.
//
// A run is summarised before it is complete, so that the model does not wait
// for the end of a bucket, and its block is replaced when it has grown: adding
// and removing are exact, so nothing is left of the shorter one. Until the run
// is closed the saved position stays before it, and its counts with it: after
// a restart its messages are read again, and its block is taken out when they
// come.
type run struct {
	bucket int64
	start  kafka.Saved          // the position before its first record
	first  incremental.Position // of its first record; names the block
	last   int64                // offset of its last record
	time   time.Time            // latest of its records
	rows   rows
	counts counts // of its records
	grown  bool   // since it was last summarised
}

// bucketOf says which bucket a record belongs to.
func bucketOf(b config.Blocks, r *kafka.Record) int64 {
	if b.Unit == config.UnitOffsets {
		return r.Offset / b.Offsets
	}
	// Times before 1970 are negative: round down, not towards zero.
	t, period := eventTime(r).UnixMilli(), b.Period.Milliseconds()
	bucket := t / period
	if t%period < 0 {
		bucket--
	}
	return bucket
}

// eventTime is the record's time; a record without one is of 1970.
func eventTime(r *kafka.Record) time.Time {
	if r.Time.IsZero() {
		return time.UnixMilli(0)
	}
	return r.Time
}
