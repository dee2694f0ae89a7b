package intake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"streamd/cmd/streamd/daemon/joining"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/envelope"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/snapshot"
)

// With labels.topic a record of the topic of rows is a row, whose label comes on a topic of its
// own. Workers decode rows, and the loop joins them with their labels, by the rule of package
// joining. Both topics are delivered in one order to the loop, and their positions are saved
// together.
//
// With labels.id the id is a field of the row, and a record has any number of rows. Each is a block
// of its own, and all of them have the record's position. They are applied together, so that the
// saved position is never within a record.

// joined is the progress in the topic of labels.
type joined struct {
	partitions map[int]*labelPartition
	keepsRow   bool   // a block leaves, and its row waits again
	last       string // class of the row that was joined last
}

// labelPartition is the progress in a partition of the topic of labels.
type labelPartition struct {
	at    kafka.Saved
	clock retire.Clock
	moved bool // since the last save
}

// labelBatch is a batch of the topic of labels.
type labelBatch struct {
	records []labelRecord
	next    int // the first that has not been applied
	refused int // records of stretches that could not be read, by their number
}

// labelRecord is what a record of the topic of labels says.
type labelRecord struct {
	id    string
	label joining.Label // without a class it withdraws the one of the id
	time  time.Time     // its event time
	fate  envelope.Fate
	bad   error // why it cannot be used
}

// joinedRow is a row of a record whose label comes later.
type joinedRow struct {
	id     string // of its block
	values []float64
	weight float64
	given  *joining.Given // the remembered prediction that it is the row of; nil: none
}

// UnjoinedRows are the rows of a record whose labels come later. They are valid until the decoder's
// next call.
type UnjoinedRows struct {
	wire.Table
	IDs   []string // of the blocks, of each row
	given *joining.Given
	last  map[string]int // the last row of each id, made by Block
}

// unjoined decodes the rows of a record whose labels come later. Labels in them are passed over. A
// remembered prediction has its id in the key in any case, since it was taken out of the row.
func (d *Decoder) unjoined(cfg *config.Config, partition int, r *kafka.Record, m envelope.Message) (u UnjoinedRows, err error) {
	given, bad := givenOf(r)
	if d.idField != "" && given == nil && bad == nil {
		b, err := d.decode(r, m)
		if err != nil {
			return u, err
		}
		u.Table = wire.Table{Features: b.Features, Columns: b.Columns, Rows: b.Rows(), Weights: b.Weights}
		for _, code := range b.Codes {
			u.IDs = append(u.IDs, retire.KeyID(b.Classes[code]))
		}
		return u, nil
	}
	id, err := d.BlockID(cfg, partition, r)
	if err != nil {
		return u, err
	}
	if u.Table, err = d.decodeUnlabelled(r, m); err != nil {
		return u, err
	}
	u.IDs, u.given = []string{id}, given
	switch {
	case bad != nil:
		return u, bad
	case u.Rows == 1:
		return u, nil
	case given != nil:
		return u, unusablef(kindFormat, "the record has %d rows, and a remembered prediction is one row", u.Rows)
	}
	return u, unusablef(kindFormat, "the record has %d rows, and with labels.topic a record is one row, whose label has its key; with labels.id it has any number, each with an id", u.Rows)
}

// weight is that of a row.
func (u *UnjoinedRows) weight(row int) float64 {
	if u.Weights == nil {
		return 1
	}
	return u.Weights[row]
}

// Block is the block of the row of an id, which is the last one that has it, with a class. It is
// nil if no row has the id.
func (u *UnjoinedRows) Block(id, class string) *incremental.Block {
	if u.last == nil {
		u.last = make(map[string]int, len(u.IDs))
		for row, id := range u.IDs {
			u.last[id] = row
		}
	}
	row, ok := u.last[id]
	if !ok {
		return nil
	}
	return rowOf(u.values(row), u.weight(row), class)
}

func (u *UnjoinedRows) values(row int) []float64 {
	values := make([]float64, len(u.Columns))
	for j, c := range u.Columns {
		values[j] = c.At(row)
	}
	return values
}

// takeRows decodes rows whose labels come later.
func (w *worker) takeRows(partition int, r *kafka.Record, m envelope.Message, z *result) error {
	u, err := w.unjoined(w.Config, partition, r, m)
	z.rows = u.Rows
	if err != nil {
		return err
	}
	if n := int64(u.Rows); n > 1 && n*w.rowBytes() > live.UnsavedMemory {
		return unusablef(kindMemory, "the blocks of its %d rows take %d MiB, and those of a record take %d MiB at most: send fewer rows in one", n, n*w.rowBytes()>>20, live.UnsavedMemory>>20)
	}
	b := incremental.Block{Classes: []string{incremental.Unlabelled}, Codes: make([]int32, u.Rows), Columns: u.Columns, Weights: u.Weights}
	if bad := b.FirstBadRow(); bad != nil {
		return bad
	}
	joins := make([]joinedRow, u.Rows)
	for i := range joins {
		joins[i] = joinedRow{id: u.IDs[i], values: u.values(i), weight: u.weight(i), given: u.given}
		if joins[i].weight == 0 {
			return unusablef(kindRow, "row %d has weight 0, and no label makes it count: delete it, or leave it out", i)
		}
	}
	z.joins = joins
	return nil
}

// rowOf is the block of a row.
func rowOf(values []float64, weight float64, class string) *incremental.Block {
	b := &incremental.Block{Classes: []string{class}, Codes: []int32{0}, Columns: make([]gram.Column, len(values))}
	if weight != 1 {
		b.Weights = []float64{weight}
	}
	for j := range values {
		b.Columns[j] = gram.ColumnOf(values[j : j+1])
	}
	return b
}

// rowBytes is about the size of the block of a row.
func (p *pool) rowBytes() int64 {
	t := p.Live.Target()
	if t.Features == nil {
		return 0
	}
	return int64(t.Bytes(1, len(*t.Features), 1))
}

// applyRows applies a record that has rows. It counts as rejected if one of its rows cannot be
// live, for the first reason, and the others count all the same.
func (in *Intake) applyRows(ctx context.Context, p *partition, number int, r *kafka.Record, z *result) error {
	at := in.countsAs(p, r)
	in.noteAhead(number, r, at)
	of := joining.Row{Partition: number, Offset: r.Offset, Time: at.UnixMilli(), Header: headerOf(in.Config.Retire.Header, r)}
	z.rows = 0
	for i := range z.joins {
		row := &z.joins[i]
		of.Values, of.Weight, of.Given = row.values, row.weight, row.given
		v, taken := in.Labels.PutRow(row.id, of)
		if !taken {
			continue
		}
		if !v.Live() {
			if err := in.retireKeepingRow(row.id); err != nil {
				return err
			}
			continue
		}
		bad, err := in.makeLive(ctx, row.id, v, row.values)
		if err != nil {
			return err
		}
		if bad == nil {
			continue
		}
		if z.rows++; z.bad == nil {
			z.bad = bad
			if err := in.reject(number, r, row.id, bad); err != nil {
				return err
			}
		}
		if err := in.retireFormer(row.id); err != nil {
			return err
		}
	}
	if z.bad == nil {
		in.countApplied(&in.accounts.counts.AppliedRecords)
	} else {
		in.countRejected(&in.accounts.counts, number, r, z)
	}
	return nil
}

// makeLive makes the block of a row live, in place of the one of its id. bad says why it cannot be
// live; then nothing has changed. An error is final.
func (in *Intake) makeLive(ctx context.Context, id string, v joining.Verdict, values []float64) (bad, err error) {
	b, target := rowOf(values, v.Row.Weight, v.Class), in.Live.Target()
	k, bad := in.own.keeper.Keep(ctx, b, target)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if bad == nil {
		bad = in.Live.Admits(live.Candidate{Labels: b.Classes, Features: len(values), Window: k.Summary.Window(), Kept: k})
	}
	if bad != nil {
		return bad, nil
	}
	if v.First && v.State == joining.Joined && target.Features != nil {
		by := in.Served(target.Features)
		var y judgement
		if v.Row.Given != nil {
			y = in.own.judge.given(v.Row.Given, v.Class, by)
		} else {
			y = in.own.judge.rows(b, by, &in.allowance, v.Row.Partition, v.Row.Offset)
		}
		if y.opens >= 0 && y.opens < len(y.rulings) {
			y.rulings[y.opens].repeats = in.labels.last == v.Class
		}
		in.labels.last = v.Class
		in.record.add(y)
	}
	e := retire.Entry{
		ID: id, Position: incremental.Position{Topic: in.Config.Kafka.Topic, Partition: v.Row.Partition, Offset: v.Row.Offset},
		Last: v.Row.Offset, Time: time.UnixMilli(v.Row.Time).UTC(), Rows: 1, Header: v.Row.Header, ItemKey: target.ItemKey(id),
	}
	o, err := in.Live.Add(e, k)
	if err != nil {
		return nil, err
	}
	if v.First {
		in.accounts.counts.Rows++
	}
	in.countAdded(e, o)
	return nil, nil
}

// retireKeepingRow retires the block of an id, if there is one. Its row waits.
func (in *Intake) retireKeepingRow(id string) error {
	in.labels.keepsRow = true
	defer func() { in.labels.keepsRow = false }()
	return in.retireBlock(id)
}

// left takes the row of a block along that has left for good.
func (in *Intake) left(id string) {
	if !in.labels.keepsRow {
		in.Labels.DropRow(id)
	}
}

// dropRow forgets the row of an id, if labels come later.
func (in *Intake) dropRow(id string) {
	if in.Labels != nil && in.Labels.DropRow(id) {
		in.Live.RowForgotten()
	}
}

// dropRowsOf forgets the rows of a partition that wait.
func (in *Intake) dropRowsOf(partition int) {
	if in.Labels == nil {
		return
	}
	for _, id := range in.Labels.RowsOf(partition) {
		if v, ok := in.Labels.Get(id); ok && !v.Live() {
			in.dropRow(id)
		}
	}
}

// advance moves the clock of the join to that of a partition.
func (in *Intake) advance(of *retire.Clock) {
	if in.Labels == nil {
		return
	}
	if now, ok := of.Now(); ok {
		in.Labels.Advance(now)
	}
}

// fit lets go of what has no room.
func (in *Intake) fit() {
	passed := int64(math.MaxInt64)
	for _, p := range in.labels.partitions {
		now, ok := p.clock.Now()
		if !ok {
			now = math.MinInt64
		}
		passed = min(passed, now)
	}
	if n := len(in.labels.partitions); n == 0 || in.LabelPartitions == nil || n < in.LabelPartitions() {
		passed = math.MinInt64 // some have not been read yet
	}
	in.Labels.Fit(passed)
}

// passHorizons has the rows count whose horizons have passed, until one waits for room.
func (in *Intake) passHorizons(ctx context.Context) (waits bool, err error) {
	if in.Labels == nil {
		return false, nil
	}
	for id, ok := in.Labels.Due(); ok; id, ok = in.Labels.Due() {
		if in.mustWait() {
			return true, nil
		}
		former, _ := in.Labels.Get(id)
		values, err := in.valuesOf(id, former)
		if err != nil {
			return false, err
		}
		bad, err := in.follow(ctx, id, former, in.Labels.Pass(id), values)
		if err != nil {
			return false, err
		}
		if bad != nil { // there is nobody to tell but the log
			in.Sampled.Warn().Str("block", in.Logged(id)).AnErr("reason", bad).Msg("a row whose horizon has passed cannot count, and is dropped")
			in.accounts.counts.RejectedRows++
			if err := in.retireFormer(id); err != nil {
				return false, err
			}
		}
	}
	in.fit()
	return false, nil
}

// mustWait reports whether nothing may change now: there is no room for the block of a row, or
// blocks depart.
func (in *Intake) mustWait() bool {
	in.wants = in.rowBytes()
	if in.Live.Departing() > 0 {
		in.wants = max(in.wants, 1)
		return true
	}
	if in.wants > 0 && !in.HasRoom(in.wants) {
		in.grantRoom()
		return true
	}
	in.wants = 0
	return false
}

// valuesOf are the values of the row of an id: from the table where it waits, and from its block
// where it is live. They are nil if there is no row, or the control topic has retired its block.
func (in *Intake) valuesOf(id string, v joining.Verdict) ([]float64, error) {
	if !v.Live() {
		return v.Row.Values, nil
	}
	return in.Live.OnlyRow(id)
}

// follow makes the block of an id what a verdict says. bad says why it cannot be live.
func (in *Intake) follow(ctx context.Context, id string, former, v joining.Verdict, values []float64) (bad, err error) {
	if v.Live() && former.Live() && v.Class == former.Class || !v.Live() && !former.Live() {
		return nil, nil
	}
	e, ok, err := in.Live.Former(id)
	switch {
	case err != nil:
		return nil, err
	case ok && e.Withdrawn: // it gets its label when it is given back
		return nil, nil
	case !v.Live():
		in.Labels.GiveValues(id, values)
		return nil, in.retireKeepingRow(id)
	case values == nil:
		return fmt.Errorf("the row of %s is not there", in.Logged(id)), nil
	}
	return in.makeLive(ctx, id, v, values)
}

// DeliverLabels takes a batch of the topic of labels, which then belongs to the intake. Its only
// error is that of ctx.
func (in *Intake) DeliverLabels(ctx context.Context, d *Decoder, b *kafka.Batch) error {
	y := &Delivery{batch: b, came: time.Now(), of: &labelBatch{records: make([]labelRecord, len(b.Records))}}
	for i, all := 0, len(b.Records); i < all; i++ {
		if i == 0 || IsAway(y.of.records[i].bad) { // more schemas were used since than are kept
			if err := in.Await(ctx, b); err != nil {
				return err
			}
		}
		if y.of.records[i] = d.label(in.Config, b.Partition, &b.Records[i]); IsAway(y.of.records[i].bad) {
			i--
		}
	}
	select {
	case in.order <- y:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewLabelDecoder makes a decoder for DeliverLabels.
func (in *Intake) NewLabelDecoder() *Decoder {
	d := newDecoder(in.Config, in.Decoding)
	return &d
}

// label reads a record of the topic of labels.
func (d *Decoder) label(cfg *config.Config, partition int, r *kafka.Record) (l labelRecord) {
	m, err := d.open(r, d.contentType(r))
	if err == nil && m.Fate == envelope.Pass {
		l.fate = m.Fate
		return l
	}
	if err == nil && m.Fate == envelope.Truncate {
		err = unusablef(kindFormat, "%s, and the topic is one of labels: withdraw them by null values", truncated)
	}
	l.fate, l.time = m.Fate, r.Time
	if d.idField == "" || l.fate == envelope.Retire {
		var bad error
		if l.id, bad = d.BlockID(cfg, partition, r); err == nil {
			err = bad
		}
	}
	if err == nil && l.fate == envelope.Row {
		if err = check(r); err == nil {
			err = d.readLabelInto(&l, m)
		}
		if err == nil && l.id == "" {
			l.id, err = d.BlockID(cfg, partition, r)
		}
		if err != nil && !IsAway(err) {
			err = d.explained(r, err)
		}
	}
	l.bad = err
	return l
}

// readLabelInto reads a label and its time.
func (d *Decoder) readLabelInto(l *labelRecord, m envelope.Message) error {
	b, err := d.readLabel(m)
	if err != nil {
		return err
	}
	if b.Rows() != 1 {
		return unusablef(kindFormat, "the record has %d labels: want one in each record", b.Rows())
	}
	if l.label.Class = b.Classes[b.Codes[0]]; l.label.Class == incremental.Unlabelled {
		return unusablef(kindFormat, "the record has no label (format.label is %s): a null value withdraws one", d.options.Label)
	}
	var fields []string // of the id
	for j, name := range b.Features {
		code := b.Columns[j].At(0)
		if math.IsNaN(code) {
			continue
		}
		if d.idField != "" && (name == d.idField || name == labelID) {
			fields = append(fields, name)
		}
		if name != labelTime {
			continue
		}
		text := ""
		if names := d.labels.Texts()[j]; names != nil {
			text = names[int(code)]
		}
		if l.time, err = parseTime(text); err != nil {
			return err
		}
	}
	return d.readIDInto(l, m, fields)
}

// readIDInto reads the id of a label from the fields that it has for one.
func (d *Decoder) readIDInto(l *labelRecord, m envelope.Message, fields []string) error {
	for _, name := range fields {
		of := &d.ids[0]
		if name == labelID {
			of = &d.ids[1]
		}
		if *of == nil {
			o := d.labelOptions()
			o.Label, o.LabelIsID = name, true
			made, err := wire.NewDecoder(o)
			if err != nil {
				return err
			}
			*of = made
		}
		b, err := (*of).Decode(m.ContentType, m.Payload)
		if err != nil {
			return err
		}
		id := retire.KeyID(b.Classes[b.Codes[0]])
		if l.id != "" && l.id != id {
			return unusablef(kindKey, "the fields %s and %s of the label are two ids", fields[0], name)
		}
		l.id = id
	}
	return nil
}

// parseTime reads a time as package wire names it.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil && retire.ValidTime(t) {
			return t.UTC().Truncate(time.Millisecond), nil
		}
	}
	return time.Time{}, unusablef(kindTime, "the field %s of the label is %.40q: want a time such as 2024-01-31T13:45:00Z, or no such field, for the time of the record", labelTime, text)
}

// labelPartition returns the state of a partition of labels, and makes it on first use.
func (in *Intake) labelPartition(number int) *labelPartition {
	p := in.labels.partitions[number]
	if p == nil {
		p = &labelPartition{at: kafka.Saved{Next: -1}}
		if in.labels.partitions == nil {
			in.labels.partitions = map[int]*labelPartition{}
		}
		in.labels.partitions[number] = p
	}
	return p
}

// applyLabels applies the rest of a batch of labels, until one waits for room.
func (in *Intake) applyLabels(ctx context.Context, y *Delivery) (waits bool, err error) {
	p, number := in.labelPartition(y.batch.Partition), y.batch.Partition
	for ; y.of.next < len(y.of.records) && !in.failed; y.of.next++ {
		r, l := &y.batch.Records[y.of.next], &y.of.records[y.of.next]
		if r.Offset < p.at.Next {
			continue // delivered before
		}
		if in.mustWait() {
			return true, nil
		}
		if err := in.applyLabel(ctx, p, number, r, l); err != nil {
			return false, err
		}
		p.at.Next, p.moved = r.Offset+1, true
	}
	for ; y.of.refused < len(y.batch.Refused) && !in.failed; y.of.refused++ {
		f := &y.batch.Refused[y.of.refused]
		if f.Last < p.at.Next {
			continue
		}
		in.accounts.labels += f.Records
		for range f.Records {
			in.Labels.Reject()
		}
		what := fmt.Sprintf("offsets %d to %d of %s/%d", f.First, f.Last, in.Config.Labels.Topic, number)
		why := &unusable{kindBatch, f.Reason}
		in.noteRefusal(what, f.Records, why)
		if err := in.own.refuse(number, kafka.Letter{Refused: f}, what, "", why); err != nil {
			return false, err
		}
		p.at.Next, p.moved = f.Last+1, true
	}
	return false, nil
}

// applyLabel applies a record of the topic of labels.
func (in *Intake) applyLabel(ctx context.Context, p *labelPartition, number int, r *kafka.Record, l *labelRecord) (err error) {
	bad := l.bad
	at := l.time
	if bad == nil && l.fate == envelope.Row {
		switch {
		case at.IsZero():
			at = time.UnixMilli(0)
		case !r.Appended:
			at = p.clock.Bound(at, in.Config.Retire.MaxFuture)
		}
		label := l.label
		label.Time, label.Partition, label.Offset = at.UnixMilli(), number, r.Offset
		if bad, err = in.putLabel(ctx, l.id, label); err != nil {
			return err
		}
	}
	in.accounts.labels++
	if bad == nil && l.fate != envelope.Pass {
		in.accounts.refusals.end()
	}
	switch {
	case bad != nil:
		in.Labels.Reject()
		what := fmt.Sprintf("record %s/%d/%d", in.Config.Labels.Topic, number, r.Offset)
		in.noteRefusal(what, 1, bad)
		consequence := "; the former label of its key, if there was one, does not count any more"
		if in.own.idField != "" {
			consequence = "" // nobody knows which one it would have replaced
		}
		if err := in.own.refuse(number, kafka.Letter{Record: r}, what, consequence, bad); err != nil {
			return err
		}
		if in.own.idField == "" {
			err = in.dropLabel(ctx, l.id)
		}
	case l.fate == envelope.Retire:
		in.Labels.Withdraw()
		err = in.dropLabel(ctx, l.id)
	}
	if !l.time.IsZero() && retire.ValidTime(l.time) {
		p.clock.Add(l.time)
		in.advance(&p.clock)
	}
	return err
}

// putLabel applies the label of an id. bad says why its block cannot be live.
func (in *Intake) putLabel(ctx context.Context, id string, l joining.Label) (bad, err error) {
	former, _ := in.Labels.Get(id)
	values, err := in.valuesOf(id, former)
	if err != nil {
		return nil, err
	}
	v, taken := in.Labels.PutLabel(id, l)
	if !taken {
		return nil, nil
	}
	bad, err = in.follow(ctx, id, former, v, values)
	if bad == nil {
		return nil, err
	}
	if v.First {
		in.Labels.Refuse(id)
	}
	v, _ = in.Labels.DropLabel(id)
	in.Labels.GiveValues(id, values)
	if worse, err := in.follow(ctx, id, former, v, values); worse != nil || err != nil {
		return bad, cmp.Or(err, in.retireFormer(id))
	}
	return bad, nil
}

// dropLabel withdraws the label of an id, if it has one.
func (in *Intake) dropLabel(ctx context.Context, id string) error {
	former, ok := in.Labels.Get(id)
	if id == "" || !ok {
		return nil
	}
	values, err := in.valuesOf(id, former)
	if err != nil {
		return err
	}
	v, had := in.Labels.DropLabel(id)
	if !had {
		return nil
	}
	bad, err := in.follow(ctx, id, former, v, values)
	if bad != nil {
		return in.retireFormer(id)
	}
	return err
}

// endLabels notes that a batch of labels has been applied.
func (in *Intake) endLabels(y *Delivery) {
	p := in.labelPartition(y.batch.Partition)
	if y.batch.Position.Next >= p.at.Next {
		p.at = y.batch.Position
	}
	p.moved = true
	in.grantRoom()
}

// JumpLabels continues the topic of labels after a gap. Labels of another log than the present one
// are withdrawn.
func (in *Intake) JumpLabels(ctx context.Context, gap *kafka.GapError, to int64) error {
	p := in.labelPartition(gap.Partition)
	if gap.Reset {
		p.clock = retire.Clock{}
		if err := in.Live.Settle(); err != nil {
			return err
		}
		for _, id := range in.Labels.LabelsOf(gap.Partition) {
			if err := in.dropLabel(ctx, id); err != nil {
				return err
			}
		}
	}
	p.at, p.moved = kafka.Saved{Next: to}, true
	return nil
}

// restoreLabelOffset restores the position in a partition of labels.
func (in *Intake) restoreLabelOffset(o *snapshot.Offset) {
	if in.Labels == nil || o.Topic != in.Config.Labels.Topic {
		return
	}
	p := in.labelPartition(o.Partition)
	p.at, p.clock = savedAt(o), retire.ClockAt(o.EventTimes)
}

// LabelPositions are the positions from which partitions of labels are read.
func (in *Intake) LabelPositions() map[int]kafka.Saved {
	at := map[int]kafka.Saved{}
	for number, p := range in.labels.partitions {
		at[number] = p.at
	}
	return at
}

// AppliedLabels is the applied position of each partition of labels.
func (in *Intake) AppliedLabels() (all []model.Offset) {
	for _, number := range slices.Sorted(maps.Keys(in.labels.partitions)) {
		if p := in.labels.partitions[number]; p.at.Next >= 0 {
			all = append(all, model.Offset{Topic: in.Config.Labels.Topic, Partition: number, Next: p.at.Next})
		}
	}
	return all
}

func (in *Intake) labelsMoved() bool {
	for _, p := range in.labels.partitions {
		if p.moved {
			return true
		}
	}
	return in.Labels != nil && in.Labels.Moved()
}

// takeMovedLabels is TakeMoved of the topic of labels.
func (in *Intake) takeMovedLabels() (offsets []snapshot.Offset, undo func()) {
	var moved []*labelPartition
	for number, p := range in.labels.partitions {
		if !p.moved {
			continue
		}
		p.moved = false
		moved = append(moved, p)
		if p.at.Next >= 0 {
			of := partition{at: p.at, clock: p.clock, applied: mark{next: p.at.Next}}
			offsets = append(offsets, of.saved(in.Config.Labels.Topic, number))
		}
	}
	return offsets, func() {
		for _, p := range moved {
			p.moved = true
		}
	}
}

// TakeJoining is the rows and labels that must be saved. undo notes that they were not.
func (in *Intake) TakeJoining(forgotten int) (j snapshot.Joining, undo func()) {
	j.Forgotten = forgotten
	if in.Labels == nil {
		return j, func() {}
	}
	items, record, undo := in.Labels.TakeUnsaved(live.Wanted(nil, in.Config.Format))
	for _, s := range items {
		j.Items = append(j.Items, snapshot.JoiningItem{ID: s.ID, Value: s.Value})
	}
	j.Record = record
	return j, undo
}

// RulesOf are the rules of a configuration. room bounds what waits, in bytes.
func RulesOf(cfg *config.Config, room int64) joining.Rules {
	l := cfg.Labels
	return joining.Rules{
		Horizon: l.Horizon.Milliseconds(), Default: l.DefaultClass(), DropLate: l.Late == config.LateDrop, Room: room, ByTime: l.ID != "",
	}
}

// LabelOf returns what has the label of a block's row; nil: rows have their labels. It may be
// called from any goroutine.
func (in *Intake) LabelOf() func(id string) (class string, ok bool) {
	if in.Labels == nil {
		return nil
	}
	return in.Labels.Class
}

// HasLabel reports whether the row of a block has a label, also where rows have their labels.
func (in *Intake) HasLabel(id string) bool {
	if in.Labels == nil {
		return true
	}
	_, ok := in.Labels.Class(id)
	return ok
}

// IsLabelled reports whether a block that was read again still has the label that it was given
// then.
func (in *Intake) IsLabelled(id string, k *live.Kept) bool {
	if in.Labels == nil {
		return true
	}
	class, ok := in.Labels.Class(id)
	return ok && slices.Equal(k.Summary.Classes(), []string{class})
}

// Unjoined decodes the rows of a record again whose labels come later.
func (d *Decoder) Unjoined(cfg *config.Config, partition int, r *kafka.Record) (u UnjoinedRows, err error) {
	m, err := d.openRow(r)
	if err != nil {
		return u, err
	}
	return d.unjoined(cfg, partition, r, m)
}

// DecodeUnlabelled makes a block without labels of the rows of a record. Ids in them are passed
// over.
func (d *Decoder) DecodeUnlabelled(r *kafka.Record) (*incremental.Block, error) {
	m, err := d.openRow(r)
	if err != nil {
		return nil, err
	}
	rows, err := d.decodeUnlabelled(r, m)
	if err != nil {
		return nil, err
	}
	return &incremental.Block{Columns: rows.Columns, Classes: []string{incremental.Unlabelled}, Codes: make([]int32, rows.Rows), Weights: rows.Weights}, nil
}
