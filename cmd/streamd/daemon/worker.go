package daemon

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/retire"
)

// giveBack keeps the memory of a task's rows, which have been gathered, for another's.
func (d *Daemon) giveBack(t *task) {
	if t.rows != nil {
		if t.rows.bytes() <= keptRows {
			t.rows.empty()
			d.spare.Put(t.rows)
		}
		t.rows = nil
	}
}

// result is what a worker made of a record.
type result struct {
	id        string    // of the block
	rows      int       // that the decoder gave
	live.Kept           // no summary: it makes no block
	fixed     *[]string // the model's features that it was made for; nil: they were not fixed
	// features are the names that the record would give the model; nil when
	// those are fixed.
	features []string
	i, j     int          // rows of the task, when they are to be gathered; none of weight 0
	window   exact.Window // of the sums of these
	bad      error        // why the record cannot be used
	left     bool         // there is no room for it now, and the loop is to process it
	fatal    error        // why the daemon cannot go on
	inHand   int64        // bytes of Daemon.inHand
}

// rowsRead is the rows of the record; what cannot be decoded counts as one.
func (z *result) rowsRead() int {
	if z.bad != nil {
		return max(z.rows, 1)
	}
	return z.rows
}

// worker turns records into results. It belongs to one goroutine.
type worker struct {
	d       *Daemon
	keeper  live.Keeper
	judge   judge
	decoder *wire.Decoder
	letters []kafka.Letter // not sent yet
	fixed   *[]string      // the model's features, which decoder is for; nil: they are not fixed
	numbers int            // bytes that it may decode a block to; 0: as many as the configuration allows
	format  string         // content type of the last record that had one
}

func (w *worker) work(ctx context.Context) {
	for t := range w.d.work {
		w.do(ctx, t)
		close(t.done)
	}
}

// do makes the results of a task, or of its first records.
func (w *worker) do(ctx context.Context, t *task) {
	if w.d.live.Target().Features != nil {
		t.results = make([]result, 0, len(t.records))
		w.judge.credit += taskCredit
		for i := range t.records {
			z := w.process(ctx, t, &t.records[i])
			if z.fixed == nil || z.left {
				w.d.inHand.Add(-z.inHand)
				break // features are free again, or there is no room
			}
			t.results = append(t.results, z)
		}
		if t.rows != nil {
			w.judge.rows(t.rows.block(), w.served(), &w.d.prequential)
		}
	}
	for i := range t.refused {
		if t.fatal == nil {
			t.fatal = w.rejectStretch(t.partition, &t.refused[i])
		}
	}
	if err := w.sendLetters(ctx, t.partition); err != nil {
		t.fatal = err
	}
}

// process decodes and summarises one record. One that cannot be used has no dead
// letter yet: it may be another matter when its turn comes.
func (w *worker) process(ctx context.Context, t *task, r *kafka.Record) result {
	var z result
	z.bad = w.prepare(w.d.live.Target().Features)
	z.fixed = w.fixed
	if z.bad == nil {
		z.id, z.bad = w.d.blockID(t.partition, r)
	}
	if z.bad == nil && r.OmittedHeaders > 0 {
		z.bad = unusablef(kindHeaders, "the record has %d headers, more than can be taken", r.OmittedHeaders)
	}
	if z.bad == nil && w.d.cfg.Blocks.Unit == config.UnitKey && r.Value == nil {
		return z // a tombstone
	}
	if z.bad == nil {
		if z.bad = w.summarise(ctx, t, r, &z); z.bad != nil {
			z.Kept = live.Kept{}
		}
	}
	if z.bad == errNoRoom {
		return result{left: true}
	}
	if ctx.Err() != nil { // nothing is wrong with the record
		z.bad, z.fatal = nil, context.Cause(ctx)
	}
	return z
}

func (w *worker) summarise(ctx context.Context, t *task, r *kafka.Record, z *result) error {
	if !retire.ValidTime(r.Time) {
		return unusablef(kindTime, "the event time is %d ms since 1970, which is not in the years 1 to 9999: is it in milliseconds?", r.Time.UnixMilli())
	}
	b, err := w.decode(r)
	if bad := (*wire.Error)(nil); errors.As(err, &bad) && bad.Memory && w != w.d.worker {
		return errNoRoom
	}
	if err != nil {
		return err
	}
	z.rows = b.Rows()
	if err := w.takeRoom(b, z, len(r.Value)); err != nil {
		return err
	}
	if w.fixed == nil {
		z.features = featuresOf(b)
	}
	if w.d.gathers() {
		if bad := b.FirstBadRow(); bad != nil {
			return bad
		}
		if err := w.keeper.Check(ctx, b, w.d.live.Target()); err != nil {
			return err
		}
		if t.fixed != w.fixed {
			w.d.giveBack(t)
		}
		if t.rows == nil {
			t.fixed = w.fixed
			if t.rows, _ = w.d.spare.Get().(*rows); t.rows == nil {
				t.rows = new(rows)
			}
		}
		b = weighing(b)
		z.i = t.rows.len()
		t.rows.appendBlock(b)
		z.j = t.rows.len()
		z.window = b.Window()
		return nil
	}
	if z.Kept, err = w.keeper.Keep(ctx, b, w.d.live.Target()); err == nil {
		w.judge.rows(b, w.served(), &w.d.prequential)
	}
	return err
}

var errNoRoom = errors.New("there is no room for a block")

// takeRoom sees to it, before anything is allocated, that there is memory for what is
// made of a block whose payload has so many bytes: it is taken of what the workers may
// have in hand, or, by the loop, of what the live set may take.
func (w *worker) takeRoom(b *incremental.Block, z *result, payload int) error {
	labels := b.Classes
	if b.Weights != nil {
		labels = positiveClasses(b)
	}
	if w == w.d.worker {
		if w.d.gathers() { // it is priced with the block that it becomes a part of
			return nil
		}
		return w.d.live.Admits(live.Candidate{Labels: labels, Features: len(b.Columns)})
	}
	bytes := 8 * float64(b.Rows()) * float64(len(b.Columns)+2)
	if !w.d.gathers() {
		bytes = w.d.live.Target().Bytes(b.Rows(), len(b.Columns), len(labels))
	}
	if bytes -= float64(payload); bytes <= 0 {
		return nil
	}
	room := w.d.handRoom.Load()
	if bytes > float64(room) {
		return errNoRoom
	}
	z.inHand = int64(bytes)
	if w.d.inHand.Add(z.inHand) > room {
		w.d.inHand.Add(-z.inHand)
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

// decode makes a block of a record's value, in memory that is valid until the
// next call. The worker has to be prepared.
func (w *worker) decode(r *kafka.Record) (*incremental.Block, error) {
	if r.Value == nil {
		return nil, unusablef(kindNull, "the value is null")
	}
	return w.decoder.Decode(w.contentType(r), r.Value)
}

// featuresOf names the columns of a block.
func featuresOf(b *incremental.Block) []string {
	if b.Features != nil {
		return slices.Clone(b.Features)
	}
	return incremental.DefaultFeatures(len(b.Columns))
}

// prepare makes the decoder one for these features; nil: they are not fixed.
func (w *worker) prepare(fixed *[]string) error {
	if w.decoder != nil && w.fixed == fixed {
		return nil
	}
	o := w.d.decoding
	if w.numbers > 0 {
		o.Limits.Numbers = w.numbers
	}
	if fixed != nil {
		o.Features = *fixed
	}
	var err error
	w.decoder, err = wire.NewDecoder(o)
	w.fixed = fixed
	return err
}

// served is what is served, if its model is of the features that the worker decodes for.
func (w *worker) served() *model.Served {
	if p := w.d.published.Load(); p.fixed == w.fixed {
		return p.served
	}
	return &model.Served{}
}

// contentType is that of a record: of one after the other it is mostly the same.
func (w *worker) contentType(r *kafka.Record) string {
	for _, h := range r.Headers {
		if h.Key == "content-type" {
			if string(h.Value) != w.format {
				w.format = string(h.Value)
			}
			return w.format
		}
	}
	return ""
}

// position is where a record is in the log.
func (d *Daemon) position(partition int, r *kafka.Record) incremental.Position {
	return incremental.Position{Topic: d.cfg.Kafka.Topic, Partition: partition, Offset: r.Offset}
}

// blockID names the block that a record makes or changes. It is empty where
// records are gathered: a block gets its name from its first record then.
func (d *Daemon) blockID(partition int, r *kafka.Record) (string, error) {
	switch d.cfg.Blocks.Unit {
	case config.UnitMessage:
		return d.position(partition, r).String(), nil
	case config.UnitKey:
		if r.Key == nil {
			return "", unusablef(kindKey, "the record has no key, which would name its block")
		}
		if len(r.Key) > maxKey {
			return "", unusablef(kindKey, "the key has %d bytes, more than %d", len(r.Key), maxKey)
		}
		return keyPrefix + url.PathEscape(string(r.Key)), nil
	}
	return "", nil
}

// keyPrefix opens the id of a block that is named by a key; topics have no colon.
const keyPrefix = "key:"

// maxKey bounds a key, which names its block in the ledger and in URLs.
const maxKey = 512

func (d *Daemon) gathers() bool {
	return d.cfg.Blocks.Unit == config.UnitOffsets || d.cfg.Blocks.Unit == config.UnitTime
}
