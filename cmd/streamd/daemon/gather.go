package daemon

import (
	"fmt"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
	"streamd/ingest/kafka"
	"streamd/retire"
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

// keptRows is how many bytes of rows that have been worked off are kept for others.
const keptRows = 4 << 20

// bytes is about what the rows have taken.
func (r *rows) bytes() int64 { return 8 * int64(len(r.columns)+2) * int64(cap(r.codes)) }

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

// widen makes empty rows those of n columns. The columns that it has, or had, are empty.
func (r *rows) widen(n int) {
	if r.len() == 0 {
		r.columns = slices.Grow(r.columns[:0], n)[:n]
	}
}

// weighing is a block without its rows of weight 0, which are as if absent, and so are
// their classes.
func weighing(b *incremental.Block) *incremental.Block {
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
// a restart its messages are read again, beside the block that they have made.
//
// A block is a function of its usable records. A record that is rejected, or whose rows
// all weigh nothing, begins no run and counts for nothing in its time.
type run struct {
	bucket     int64
	start      kafka.Saved          // the position before its first record
	clock      retire.Clock         // there
	first      incremental.Position // of its first usable record; names the block
	last       int64                // offset of its last usable record
	time       time.Time            // latest of its usable records
	rows       rows
	window     exact.Window // of its block's sums
	weightless int64        // rows that weigh nothing; not in rows
	counts     counts       // of its records
	grown      bool         // has rows that it was not summarised with yet
}

// rowsRead is the rows of the run's records, rejected ones included.
func (o *run) rowsRead() int64 { return int64(o.rows.len()) + o.weightless + o.counts.RejectedRows }

// runBytes is what the block of an open run will take until it is saved.
func (d *Daemon) runBytes(o *run) int64 {
	return d.live.Bytes(len(o.rows.classes)) + o.rows.bytes() // all rows may be in the sample
}

// admitsRows says why rows of a task may not come to those of an open run, whose sums
// have that window, if they may not.
func (d *Daemon) admitsRows(have *rows, window exact.Window, from *rows, z *result) error {
	bytes := 8 * int64(len(from.columns)+2) * int64(z.j-z.i)
	if d.gathered+bytes > d.memory.Gathered {
		return unusablef(kindMemory, "the rows of blocks that are not complete take %s, and these would take %s more; there is room for %s (limits.memory is %s): raise limits.memory, or lower blocks.offsets or blocks.period",
			memory.Size(float64(d.gathered)), memory.Size(float64(bytes)), memory.Size(float64(d.memory.Gathered)), memory.Size(float64(d.memory.Limit)))
	}
	c := live.Candidate{Labels: have.classesWith(from, z.i, z.j), Features: len(from.columns), Window: window.Union(z.window)}
	if c.Labels == nil {
		if c.Labels = have.classes; window == c.Window {
			return nil
		}
	} else { // other runs bring classes, too
		for _, p := range d.partitions {
			if p.open != nil {
				c.Labels = append(c.Labels, p.open.rows.classes...)
			}
		}
		slices.Sort(c.Labels)
		c.Labels = slices.Compact(c.Labels)
	}
	return d.live.Admits(c)
}

// bucketOf says which bucket a record of that event time belongs to.
func bucketOf(b config.Blocks, offset int64, at time.Time) int64 {
	if b.Unit == config.UnitOffsets {
		return offset / b.Offsets
	}
	// Times before 1970 are negative: round down, not towards zero.
	t, period := at.UnixMilli(), b.Period.Milliseconds()
	bucket := t / period
	if t%period < 0 {
		bucket--
	}
	return bucket
}

// gather adds the rows of a record to the open run of its partition, closing
// the run before it when the record belongs to another. The partition is still at the
// position before the record.
func (d *Daemon) gather(p *partition, t *task, i int, z result) error {
	r := &t.records[i]
	n := z.j - z.i
	usable := z.bad == nil && n > 0
	var at time.Time
	if usable {
		at = d.boundedTime(p, t.partition, r)
	}
	bucket := bucketOf(d.cfg.Blocks, r.Offset, at)
	if p.open != nil && d.endsBefore(p.open, bucket, n, usable) {
		if err := d.closeRun(p); err != nil {
			return err
		}
	}
	if !usable {
		d.countUnused(p, t.partition, r, z)
		return nil
	}
	have, window := &p.spare, exact.Window{}
	if p.open != nil {
		have, window = &p.open.rows, p.open.window
	}
	if z.bad = d.admitsRows(have, window, t.rows, &z); z.bad != nil {
		d.countUnused(p, t.partition, r, z)
		return d.worker.reject(t.partition, r, z.bad)
	}
	if p.open == nil {
		p.settle()
		before := p.at
		if before.Next < 0 {
			before.Next = r.Offset
		}
		// The position has the fingerprint of what came last at a batch's end only.
		previous := t.previous
		if i > 0 {
			previous = &t.records[i-1]
		}
		if previous != nil {
			before.Last = kafka.FingerprintOf(previous)
		}
		p.open = &run{
			bucket: bucket,
			start:  before,
			clock:  p.clock,
			first:  d.position(t.partition, r),
			time:   at,
			rows:   p.spare,
		}
		p.spare = rows{}
		d.gathered += p.open.rows.bytes()
	}
	o := p.open
	o.last = r.Offset
	if at.After(o.time) {
		o.time = at
	}
	o.counts.Records++
	d.fixFeatures(z)
	d.gathered -= o.rows.bytes()
	o.rows.appendRange(t.rows, z.i, z.j)
	d.gathered += o.rows.bytes()
	o.window = o.window.Union(z.window)
	o.counts.Rows += int64(n)
	o.counts.ZeroWeightRows += int64(z.rows - n)
	o.weightless += int64(z.rows - n)
	if r.Offset >= p.applied.next { // else its block, if the policy lets it in, has them
		o.grown, d.changed = true, true
	}
	return nil
}

// endsBefore says whether a run ends before a record of n rows.
func (d *Daemon) endsBefore(o *run, bucket int64, n int, usable bool) bool {
	most := d.cfg.Limits.Rows
	return o.rows.len()+n > most || o.counts.Records >= int64(most) || // bounds what a restart reads again
		o.bucket != bucket && (usable || d.cfg.Blocks.Unit == config.UnitOffsets)
}

// countUnused counts a record that adds nothing to the open run: it is rejected, or its
// rows all weigh nothing. It counts with the run, if there is one, since it is read
// again with the run.
func (d *Daemon) countUnused(p *partition, number int, r *kafka.Record, z result) {
	c := &d.counts
	if p.open != nil {
		c = &p.open.counts
	}
	c.Records++
	if z.bad != nil {
		d.countRejected(c, number, r, z)
		return
	}
	c.ZeroWeightRows += int64(z.rows)
	if p.open != nil {
		p.open.weightless += int64(z.rows)
	}
}

// flushRun makes the rows that the open run has so far a live block.
func (d *Daemon) flushRun(p *partition) error {
	if p.rereads() {
		return nil
	}
	defer p.settle()
	o := p.open
	if _, live := d.live.Get(p.unfinished); live {
		if o != nil {
			o.grown = true // what has come takes its place: the log may be another one now
		}
		if o == nil || o.first.String() != p.unfinished {
			d.counts.BlocksReplaced++
			if err := d.live.Remove(p.unfinished); err != nil {
				return err
			}
		}
	}
	p.unfinished = ""
	if o == nil || !o.grown {
		return nil
	}
	k, err := d.worker.keeper.Keep(d.background, o.rows.block(), d.live.Target())
	if err != nil {
		// Each message passed on its own. But rows that were taken for other coordinates
		// may not fit those in use. They have not been saved: when they are read again,
		// each message is told.
		return fmt.Errorf("summarise block %s: %w", o.first, err)
	}
	e := retire.Entry{ID: o.first.String(), Position: o.first, Last: o.last, Time: o.time, Rows: k.Summary.Rows()}
	done, err := d.live.Add(e, k)
	if err != nil {
		return err
	}
	if done.Added && done.Replaced {
		done.Added, done.Replaced = false, false // it has only grown
	}
	d.countAdded(e, done)
	o.grown = false
	return nil
}

// closeRun completes the open run: its block and its counts stand, and the
// saved position moves behind it.
func (d *Daemon) closeRun(p *partition) error {
	if p.rereads() {
		p.applied = mark{next: p.at.Next, clock: p.clock} // it ends earlier than it did: limits are others now
		p.open.grown = true
	}
	if err := d.flushRun(p); err != nil {
		return err
	}
	d.counts.Add(p.open.counts)
	d.dropRun(p)
	p.applied.counts = counts{}
	return nil
}

// reach notes that the log goes on at an offset. The records of the run that is read
// once more have all come then, or the log does not have them any more.
func (d *Daemon) reach(p *partition, offset int64) {
	if !p.rereads() || offset < p.applied.next {
		return
	}
	if p.open == nil {
		d.skipReread(p)
	}
	p.at.Next = p.applied.next
}

// dropRun ends the open run, and keeps the memory of its rows for the next one.
func (d *Daemon) dropRun(p *partition) {
	d.gathered -= p.open.rows.bytes()
	if p.open.rows.bytes() <= keptRows {
		p.spare = p.open.rows
		p.spare.empty()
	}
	p.open = nil
}

// skipReread ends the reading of a run once more. Its block stays as it was saved, and
// its records count as they did then.
func (d *Daemon) skipReread(p *partition) {
	if o := p.open; o != nil {
		d.rowsRead -= o.rowsRead()
		d.dropRun(p)
	}
	c := p.applied.counts
	d.counts.Add(c)
	d.rowsRead += c.Rows + c.ZeroWeightRows + c.RejectedRows
	p.at, p.clock = kafka.Saved{Next: p.applied.next}, p.applied.clock
	p.applied.counts = counts{}
	p.unfinished, p.moved = "", true
}
