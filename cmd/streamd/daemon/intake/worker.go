package intake

import (
	"context"
	"errors"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/summary"
	"streamd/ingest/wire"
	"streamd/retire/receipt"
)

// giveBack keeps the memory of a task's gathered rows for other tasks.
func (p *pool) giveBack(t *task) {
	if t.rows != nil {
		if t.rows.bytes() <= keptRows {
			t.rows.Empty()
			p.spare.Put(t.rows)
		}
		t.rows = nil
	}
}

// result is a processed record.
type result struct {
	id        string         // of the block
	rows      int            // that the decoder gave
	live.Kept                // without a summary the record makes no block
	sums      *summary.Block // that it came as; nil: as rows
	joins     []joinedRow    // the rows, whose labels come later; nil: there are none
	has       int64          // rows of the same sums that the live set has had since before they grew
	itemKey   receipt.Hash   // of the block's receipts; zero: the live set has it, or computes it
	fixed     *[]string      // the model's features that it was made for; nil if they were not fixed
	// features are the names that the record would give the model. They are nil once the
	// model's features are fixed.
	features []string
	i, j     int          // the record's rows of the task, if they are to be gathered; none of weight 0
	window   exact.Window // of the sums of these
	judged   judgement
	ends     ends               // of the rows
	block    *incremental.Block // of the rows, where the loop wants them; see copies
	fate     envelope.Fate      // that its envelope tells; a record without a value retires
	bad      error              // why the record cannot be used
	left     bool               // no room for it now: the loop processes it
	fatal    error              // why the daemon cannot go on
	inHand   int64              // bytes of pool.inHand
}

// worker turns records into results. It belongs to one goroutine.
type worker struct {
	*pool
	Decoder
	keeper  live.Keeper
	judge   judge
	letters []kafka.Letter // not sent yet
	taken   together
	admits  func(live.Candidate) error // of the loop's worker: says why there is no memory for a block. nil: blocks take room
}

func newWorker(p *pool) *worker { return &worker{pool: p, Decoder: newDecoder(p.Config, p.Decoding)} }

// Work runs a worker until deliveries are closed. When ctx ends it abandons its blocks.
func (in *Intake) Work(ctx context.Context) {
	w := newWorker(in.pool)
	w.options.Limits.Numbers = in.Budget.Numbers
	for t := range in.tasks {
		w.do(ctx, t)
		close(t.done)
	}
}

// do makes the results of a task, or of its first records.
func (w *worker) do(ctx context.Context, t *task) {
	if w.Live.Target().Features != nil {
		t.results = w.resultsFor(len(t.records))
		for i := 0; i < len(t.records); i++ {
			if n := w.together(ctx, t, i); n > 0 {
				i += n - 1
				continue
			}
			z := w.process(ctx, t, &t.records[i])
			if z.fixed == nil || z.left {
				w.inHand.Add(-z.inHand)
				break // features have become free, or there is no room
			}
			t.results = append(t.results, z)
		}
	}
	for i := range t.refused {
		if t.fatal == nil {
			t.fatal = w.rejectStretch(t.partition, &t.refused[i])
		}
	}
	t.letters, w.letters = w.letters, nil
}

// end keeps the memory of a task that has been applied for other tasks.
func (p *pool) end(t *task) {
	p.giveBack(t)
	if results := t.results; results != nil {
		clear(results) // they hold blocks
		results = results[:0]
		p.results.Put(&results)
		t.results = nil
	}
}

// resultsFor has room for n results.
func (p *pool) resultsFor(n int) []result {
	if spare, _ := p.results.Get().(*[]result); spare != nil && cap(*spare) >= n {
		return (*spare)[:0]
	}
	return make([]result, 0, n)
}

// process decodes and summarises one record. A record that cannot be used gets no dead
// letter yet, because it may be usable when its turn comes.
func (w *worker) process(ctx context.Context, t *task, r *kafka.Record) result {
	var z result
	z.bad = w.prepare(w.Live.Target().Features)
	z.fixed = w.features
	var m envelope.Message
	if z.bad == nil {
		m, z.id, z.bad = w.message(t.partition, r)
		z.fate = m.Fate
	}
	if z.bad == nil && z.fate != envelope.Row {
		return z
	}
	if z.bad == nil {
		if w.Labels != nil {
			z.bad = w.takeRows(t.partition, r, m, &z)
		} else if summary.Is(m.ContentType) {
			z.bad = w.carry(ctx, r, &z)
		} else if z.bad = w.summarise(ctx, t, r, m, &z); z.bad != nil {
			z.Kept = live.Kept{}
		}
	}
	if z.bad == errNoRoom {
		return result{left: true}
	}
	if IsAway(z.bad) { // more schemas were used since it was awaited than are kept
		z.bad, z.fatal = nil, z.bad
	}
	if ctx.Err() != nil { // the record is not at fault
		z.bad, z.fatal = nil, context.Cause(ctx)
	}
	return z
}

// message takes the envelope off a record. id is that of the block that it makes or changes; there
// is one, too, where the record is refused, if its key can be read.
func (w *worker) message(partition int, r *kafka.Record) (m envelope.Message, id string, err error) {
	m, err = w.open(r, w.contentType(r))
	switch {
	case err == nil && m.Fate == envelope.Pass:
		return m, "", nil
	case err == nil && m.Fate == envelope.Truncate:
		if w.Config.Format.Truncate == config.TruncateReject {
			err = unusablef(kindFormat, "%s, and format.truncate is reject: the blocks of its rows stay until they are retired", truncated)
		}
		return m, "", err
	}
	if w.idField != "" { // the ids are in the rows
		if err == nil && m.Fate == envelope.Retire {
			err = unusablef(kindNull, "the value is null, and with labels.id a key names no row: retire the row by its id, with streamd retire or DELETE /v1/blocks")
		}
		return m, "", err
	}
	id, bad := w.BlockID(w.Config, partition, r)
	if err == nil {
		err = bad
	}
	if err == nil && m.Fate == envelope.Retire && w.Config.Blocks.Unit != config.UnitKey {
		m.Fate = envelope.Row
		if err = check(r); err == nil {
			err = unusablef(kindNull, "the payload is null")
		}
	}
	return m, id, err
}

func (w *worker) summarise(ctx context.Context, t *task, r *kafka.Record, m envelope.Message, z *result) error {
	b, err := w.decode(r, m)
	if err != nil {
		if bad := (*wire.Error)(nil); errors.As(err, &bad) && bad.Memory && w.admits == nil {
			return errNoRoom
		}
		return err
	}
	w.tellDoubt(t.partition, r)
	z.rows = b.Rows()
	if err := w.takeRoom(b, z, len(r.Value)); err != nil {
		return w.reasonOf(ctx, b, err)
	}
	if w.features == nil {
		z.features = b.FeatureNames()
	}
	if Gathers(w.Config.Blocks) {
		if bad := b.FirstBadRow(); bad != nil {
			return bad
		}
		if err := w.keeper.Check(ctx, b, w.Live.Target()); err != nil {
			return err
		}
		w.holdRows(t)
		b = Weighing(b)
		z.i = t.rows.Len()
		t.rows.AppendBlock(b)
		z.j = t.rows.Len()
		z.window = b.Window()
		z.judged, z.ends = w.judged(b, t, r), endsOf(b)
		return nil
	}
	if z.Kept, err = w.keeper.Keep(ctx, b, w.Live.Target()); err == nil {
		z.judged, z.ends = w.judged(b, t, r), endsOf(b)
		if w.copies() {
			z.block = b.Clone()
		}
		if z.Summary.Rows() > 0 {
			z.itemKey = w.Live.Target().ItemKey(z.id)
		}
	}
	return err
}

// holdRows makes t.rows rows of the worker's features. While they are free each record may have its
// own, and those before it have been gathered or refused.
func (w *worker) holdRows(t *task) {
	if free := w.features == nil; free || t.fixed != w.features {
		w.giveBack(t)
	}
	if t.rows == nil {
		t.fixed = w.features
		if t.rows, _ = w.spare.Get().(*Rows); t.rows == nil {
			t.rows = new(Rows)
		}
	}
}

// tellDoubt logs once how the record that was decoded last could mean something else.
func (w *worker) tellDoubt(partition int, r *kafka.Record) {
	if doubt := w.decoder.Doubt(); doubt != "" {
		w.doubted.Do(func() {
			w.Log.Warn().Int("partition", partition).Int64("offset", r.Offset).Msg("a message may mean something else: " + doubt)
		})
	}
}

// judged judges the block of a record by the served model, if that has the worker's features. While
// the features are free the model may have any.
func (w *worker) judged(b *incremental.Block, t *task, r *kafka.Record) judgement {
	if w.features == nil {
		return judgement{}
	}
	by := w.Served(w.features)
	y := w.judge.rows(b, by, &w.allowance, t.partition, r.Offset)
	y.follow(by, w.Config.Kafka.Topic, t.partition, r.Offset)
	return y
}

// follow notes how far a model was behind the record that it has judged.
func (y *judgement) follow(by *model.Served, topic string, partition int, offset int64) {
	if len(y.rulings) == 0 {
		return
	}
	for _, o := range by.Offsets {
		if o.Partition == partition && o.Topic == topic && o.Next >= 0 {
			y.behind = max(0, offset-o.Next)
			break
		}
	}
}

// reasonOf is the reason why a record is refused whose block the live set does not admit. A row
// that cannot be summed comes first, as for the workers, which do not know the live set. A block
// that there is no memory for is not summed to find one, and no worker has room for it.
func (w *worker) reasonOf(ctx context.Context, b *incremental.Block, notAdmitted error) error {
	target := w.Live.Target()
	if w.admits == nil || w.Live.Price()+target.Bytes(b.Rows(), len(b.Columns), len(b.Classes)) > w.Budget.Room() {
		return notAdmitted
	}
	if _, err := w.keeper.Keep(ctx, b, target); err != nil {
		return err
	}
	return notAdmitted
}

var errNoRoom = errors.New("there is no room for a block")

// takeRoom reserves memory for the summaries of a block before anything is allocated.
// payload is the length of the record's value. Workers take memory from the room for
// results. The loop asks the live set to admit the block.
func (w *worker) takeRoom(b *incremental.Block, z *result, payload int) error {
	labels := b.Classes
	if b.Weights != nil {
		labels = positiveClasses(b)
	}
	if w.admits != nil {
		if Gathers(w.Config.Blocks) { // priced with the block that it will be part of
			return nil
		}
		return w.admits(live.Candidate{Labels: labels, Features: len(b.Columns)})
	}
	bytes := 8 * float64(b.Rows()) * float64(len(b.Columns)+2)
	if !Gathers(w.Config.Blocks) {
		if bytes = w.Live.Target().Bytes(b.Rows(), len(b.Columns), len(labels)); w.copies() {
			rows := 8 * float64(b.Rows()) * float64(len(b.Columns)+2)
			bytes += rows
		}
	}
	if bytes -= float64(payload); bytes <= 0 {
		return nil
	}
	room := w.room.Load()
	if bytes > float64(room) {
		return errNoRoom
	}
	z.inHand = int64(bytes)
	if w.inHand.Add(z.inHand) > room {
		w.inHand.Add(-z.inHand)
		return errNoRoom
	}
	return nil
}

// positiveClasses lists the classes that have a row of weight > 0.
func positiveClasses(b *incremental.Block) (labels []string) {
	has := make([]bool, len(b.Classes))
	for i, c := range b.Codes {
		has[c] = has[c] || b.Weights[i] > 0
	}
	for c, label := range b.Classes {
		if has[c] {
			labels = append(labels, label)
		}
	}
	return labels
}
