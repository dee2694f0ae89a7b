// Package passes reads live blocks from the log again for work that needs rows: only the log has
// them, and the daemon stores summaries. It runs beside the loop and the consumer with its own
// connection. It changes no positions, counts or dead letters. Passes run one after another.
//
// # The same rows
//
// A block is made of the records from its first to its last offset, by the code that made it
// when they were new. For units of one record that is the same record. For gathered blocks it
// is all records that can be decoded, in their order. A record of a gathered block may have
// been refused for a reason that lies outside of the block:
//
//   - limits.classes, which depended on the live set of that time, or the coordinates in use.
//     Where the rows do not add up, records are left out that have a class which the block's
//     summary lacks, or that do not fit the present coordinates.
//   - An event time more than a day ahead of the clock (with retire.age), or a limit that has
//     been changed since. These are not known any more.
//
// So the result is compared with the ledger and the summary: the number of its rows always,
// and the digest of its summary on request. A block that differs is reported and not visited.
//
// A block that came as sums has no rows in the log, so it is not visited, and unread. Carried reads
// the records of such blocks again.
//
// # Cost
//
// Half as many workers decode as for ingestion (at least one), so that a pass takes no more
// than their share of the processors. Memory is bounded: up to fetchedBuffers fetches, or one
// larger record batch, for each of fetchedPartitions partitions; gathered rows until their
// block is complete; blocks while they are compared; and whatever visit allocates.
package passes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/parallel"
	"streamd/ingest/kafka"
	"streamd/ingest/wire"
	"streamd/retire"
)

// Settings are the rooms and functions that passes work with.
type Settings struct {
	Config   *config.Config
	Log      zerolog.Logger
	Budget   *memory.Budget
	Cluster  kafka.Cluster
	Fetching kafka.Fetching
	Decoding wire.Options
	Target   func() *live.Target

	// Was names the features that the blocks were summarised in, where the target has
	// others; nil: they are the target's. Blocks are then compared in the features that are
	// in both.
	Was []string

	// Label has the label of the row that a block is made of, where labels come on a topic of their
	// own; nil: rows have their labels.
	Label func(id string) (class string, ok bool)

	// StillLive returns those of the blocks that are live and unchanged.
	StillLive func(ctx context.Context, blocks []live.Unread) ([]live.Unread, error)
}

// Reader reads ranges of the log, as *kafka.RangeReader does.
type Reader interface {
	Read(ctx context.Context, ranges []kafka.Range, deliver func(context.Context, *kafka.Batch) error) ([]kafka.Lost, error)
	Stats() kafka.RangeStats
	Close()
}

// Log reads live blocks from the log again.
type Log struct {
	Settings
	log     Reader
	workers int
	turn    chan struct{} // holds a token while a pass runs
	// room limits the bytes of blocks while they are compared. A block as large as room is
	// alone, and the memory budget has left enough for any live block.
	room  *semaphore.Weighted
	large sync.Mutex // held while a block too large for the workers is decoded
}

const (
	fetchedPartitions = 2
	fetchedBuffers    = 3 // one is decoded, one waits, one is fetched
)

// New makes the log of a cluster, which the caller closes. It does not connect.
func New(s Settings) (*Log, error) {
	fetching := s.Fetching
	fetching.BufferBytes = fetchedBuffers * int64(fetching.FetchBytes)
	log, err := kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: s.Cluster, Topic: s.Config.Kafka.Topic, Fetching: fetching, Partitions: fetchedPartitions,
	}, s.Log)
	if err != nil {
		return nil, err
	}
	return Over(log, s), nil
}

// Over makes the log that r reads.
func Over(r Reader, s Settings) *Log {
	return &Log{
		Settings: s, log: r, workers: max(1, s.Config.Workers/2), turn: make(chan struct{}, 1),
		room: semaphore.NewWeighted(live.UnsavedMemory),
	}
}

// Close ends the connection. No pass may be under way.
func (a *Log) Close() { a.log.Close() }

// Hold waits for the pass under way, and keeps others from beginning until release is
// called.
func (a *Log) Hold() (release func()) {
	a.turn <- struct{}{}
	return func() { <-a.turn }
}

// Stats are those of the connection.
func (a *Log) Stats() kafka.RangeStats { return a.log.Stats() }

// Worker decodes and summarises blocks that are read again. It belongs to one goroutine
// at a time.
type Worker struct {
	*intake.Decoder
	Keeper live.Keeper
}

// worker makes a worker for features. numbers limits the bytes of a decoded block; 0
// means as many as the configuration allows.
func (a *Log) worker(features *[]string, numbers int) (*Worker, error) {
	d, err := intake.NewDecoder(a.Config, a.Decoding, features, numbers)
	return &Worker{Decoder: d}, err
}

// Visit receives a block that has been read again, unchanged. The worker and its memory
// belong to visit until it returns.
type Visit func(w *Worker, e retire.Entry, b *incremental.Block, s *incremental.Summary) error

// begin waits for other passes to end. fixed are the model's features; nil: there is no block.
func (a *Log) begin(ctx context.Context) (fixed *[]string, end func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return a.Target().Features, func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// Pass reads the blocks again and visits each of them once, with the rows that it had
// when blocks was made. The order is undefined, and several visits run at the same time.
// A block that is retired or replaced meanwhile may be visited or left out: a sum over
// the live set has to subtract it again. The block is valid until visit returns.
//
// With verify, the digest of each block's summary is compared, too, and visit receives
// the summary. That costs as much as summarising did. Without it only the number of rows
// is compared, and visit receives no summary.
//
// A block that is live and unchanged, but does not come back like that, is unread. That
// is no error. Unread blocks are listed by position. The pass ends with an error of
// visit, with an error of the log that is not worth a retry, or with ctx. Trouble with
// brokers is retried until ctx ends.
func (a *Log) Pass(ctx context.Context, blocks *live.Blocks, verify bool, visit Visit) (unread []live.Unread, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	fixed, end, err := a.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if fixed == nil {
		return nil, nil // no block is live any more
	}
	decoding := make([]*Worker, a.workers)
	for i := range decoding {
		if decoding[i], err = a.worker(fixed, a.Budget.Numbers); err != nil {
			return nil, err
		}
	}
	p := &pass{
		Log: a, ctx: ctx, blocks: blocks, verify: verify, visit: visit, fail: fail, work: make(chan func(*Worker)),
		features: fixed, common: commonFeatures(a.Was, *fixed), rows: semaphore.NewWeighted(max(1, a.Budget.Gathered)),
	}
	lanes := map[int]*lane{}
	ranges := make([]kafka.Range, 0, len(blocks.Entries))
	for _, e := range blocks.Entries {
		if e.Carrier.Sums {
			p.unreadable(e, fmt.Errorf("it came as sums, without its rows, which are those of %s to %d", e.Position, e.Last))
			continue
		}
		number := e.Position.Partition
		if lanes[number] == nil {
			lanes[number] = &lane{pass: p}
		}
		lanes[number].entries = append(lanes[number].entries, e)
		ranges = append(ranges, kafka.Range{Partition: number, From: e.Position.Offset, To: e.Last + 1})
	}
	for _, l := range lanes {
		slices.SortFunc(l.entries, func(a, b retire.Entry) int { return cmp.Compare(a.Position.Offset, b.Position.Offset) })
	}

	var workers parallel.Group
	for _, w := range decoding {
		workers.Go(func() {
			for do := range p.work {
				if !workers.Catch(func() { do(w) }) {
					fail(errPanicked)
				}
			}
		})
	}
	lost, err := a.log.Read(ctx, ranges, func(ctx context.Context, b *kafka.Batch) error {
		return lanes[b.Partition].take(ctx, b)
	})
	close(p.work)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, l := range lanes {
		l.expire(math.MaxInt64)
	}
	for i := range p.unread {
		u := &p.unread[i]
		for _, gone := range lost {
			if !u.Carrier.Sums && u.Position.Partition == gone.Partition && u.Position.Offset < gone.To && gone.From <= u.Last {
				u.Reason = errors.New(gone.String())
			}
		}
	}
	return p.stillLive(ctx)
}

// errPanicked ends a pass of which a worker has panicked.
var errPanicked = errors.New("a worker has panicked")

// pass is a pass under way.
type pass struct {
	*Log
	ctx      context.Context // of the whole pass; the contexts of deliveries end with their partition
	blocks   *live.Blocks
	verify   bool
	visit    Visit
	features *[]string
	common   common
	rows     *semaphore.Weighted // bytes of gathered rows; a larger block is alone
	fail     context.CancelCauseFunc
	work     chan func(*Worker)

	mu     sync.Mutex
	unread []live.Unread
}

func (p *pass) unreadable(e retire.Entry, why error) {
	p.mu.Lock()
	p.unread = append(p.unread, live.Unread{Entry: e, Reason: why})
	p.mu.Unlock()
}

// stillLive returns those unread blocks that are live and unchanged, by position.
func (p *pass) stillLive(ctx context.Context) ([]live.Unread, error) {
	if len(p.unread) == 0 {
		return nil, nil
	}
	unread, err := p.StillLive(ctx, p.unread)
	slices.SortFunc(unread, func(a, b live.Unread) int {
		return cmp.Or(cmp.Compare(a.Position.Partition, b.Position.Partition), cmp.Compare(a.Position.Offset, b.Position.Offset))
	})
	return unread, err
}

// show hands a block to visit. Its error says why the rows of b cannot be the block's
// original rows.
func (p *pass) show(w *Worker, e retire.Entry, b *incremental.Block) error {
	if rows := positiveRows(b); rows != e.Rows {
		return fmt.Errorf("there are %d rows that count; there were %d when it was summarised", rows, e.Rows)
	}
	var s *incremental.Summary
	if p.verify {
		need := int64(memory.Shape{Features: len(b.Columns), Classes: len(b.Classes)}.Summary())
		need = min(2*need, live.UnsavedMemory) // both summaries
		if err := p.room.Acquire(p.ctx, need); err != nil {
			return context.Cause(p.ctx)
		}
		defer p.room.Release(need)
		was, err := p.blocks.Summary(e.ID)
		if err != nil {
			return err
		}
		s, err = p.like(w, was, b)
		if err != nil {
			return err
		}
		if s == nil {
			return ErrOthers
		}
	}
	if err := p.visit(w, e, b, s); err != nil {
		p.fail(fmt.Errorf("block %s: %w", e.ID, err))
	}
	return nil
}

// ErrOthers is why a block is unread whose rows, or whose label that came later, are others.
var ErrOthers = errors.New("its rows are others than when it was summarised")

// common is the places of the features that are in two lists, in the order of the first.
type common struct{ was, now []int }

func commonFeatures(was, now []string) (c common) {
	for i, name := range was {
		if j := slices.Index(now, name); j >= 0 {
			c.was, c.now = append(c.was, i), append(c.now, j)
		}
	}
	return c
}

// like summarises a block as it was summarised before. It returns nil where the sums are
// others.
func (p *pass) like(w *Worker, was *incremental.Summary, b *incremental.Block) (*incremental.Summary, error) {
	if p.Was != nil {
		in := *b
		in.Columns, in.Features = nil, nil
		for _, j := range p.common.now {
			in.Columns = append(in.Columns, b.Columns[j])
		}
		b, was = &in, was.Select(p.common.was)
	}
	if len(b.Columns) != was.Features() {
		return nil, nil
	}
	s, err := w.Keeper.SummariseLike(p.ctx, was, b)
	if err != nil || s.Digest() != was.Digest() {
		return nil, err
	}
	return s, nil
}

// positiveRows counts the rows of weight > 0.
func positiveRows(b *incremental.Block) int64 {
	if b.Weights == nil {
		return int64(b.Rows())
	}
	var n int64
	for _, v := range b.Weights {
		if v > 0 {
			n++
		}
	}
	return n
}

// lane finds the blocks of one partition in the partition's records.
type lane struct {
	*pass
	entries []retire.Entry // incomplete blocks, by offset

	// State of a gathered block, entries[0]:
	begun   bool
	dropped bool    // known to be unreadable
	held    int64   // of pass.rows
	parts   []*part // of its rows
}

// shared is a batch that several workers use.
type shared struct {
	*kafka.Batch
	users atomic.Int32
}

func (s *shared) done() {
	if s.users.Add(-1) == 0 {
		s.Release()
	}
}

// take takes a batch from the log. It returns nil even when ctx ends, since a worker may
// have the batch by then.
func (l *lane) take(ctx context.Context, b *kafka.Batch) error {
	s, next := &shared{Batch: b}, b.Position.Next
	s.users.Store(1)
	defer s.done()
	if intake.Await(ctx, l.Decoding, b, intake.ReadsKeys(l.Config)) != nil {
		return nil
	}
	if intake.Gathers(l.Config.Blocks) {
		l.gather(ctx, s)
	} else {
		l.single(ctx, s)
	}
	if ctx.Err() == nil {
		l.expire(next)
	}
	return nil
}

// submit hands work to a worker. It returns false if ctx has ended.
func (p *pass) submit(ctx context.Context, s *shared, do func(*Worker)) bool {
	s.users.Add(1)
	select {
	case p.work <- func(w *Worker) { defer s.done(); do(w) }:
		return true
	case <-ctx.Done():
		s.done()
		return false
	}
}

// expire abandons the blocks whose last record should have come before an offset.
func (l *lane) expire(before int64) {
	for len(l.entries) > 0 && l.entries[0].Last < before {
		e := l.entries[0]
		if !l.dropped {
			at := e.Last
			if !l.begun {
				at = e.Position.Offset
			}
			l.unreadable(e, notThere(at))
		}
		l.next()
	}
}

func notThere(offset int64) error {
	return fmt.Errorf("the record at offset %d is not in the log any more: it was compacted away", offset)
}

func (l *lane) next() {
	l.entries = l.entries[1:]
	l.rows.Release(l.held)
	l.begun, l.dropped, l.held, l.parts = false, false, 0, nil
}

// single processes records of which each is a block.
func (l *lane) single(ctx context.Context, s *shared) {
	type item struct {
		record  *kafka.Record
		entries []retire.Entry // one, or with labels.id one for each of its rows
	}
	for i := 0; i < len(s.Records); {
		var items []item
		for bytes := 0; i < len(s.Records) && len(items) < intake.TaskRecords && bytes < intake.TaskBytes; i++ {
			record := &s.Records[i]
			l.expire(record.Offset)
			if len(l.entries) == 0 || l.entries[0].Position.Offset != record.Offset {
				continue
			}
			it := item{record: record}
			for ; len(l.entries) > 0 && l.entries[0].Position.Offset == record.Offset; l.next() {
				it.entries = append(it.entries, l.entries[0])
			}
			items = append(items, it)
			bytes += len(record.Value)
		}
		if len(items) > 0 && !l.submit(ctx, s, func(w *Worker) {
			for _, each := range items {
				if l.ctx.Err() != nil {
					return
				}
				if l.Label != nil {
					l.joined(w, each.record, each.entries)
				} else {
					l.block(w, each.record, each.entries[0])
				}
			}
		}) {
			return
		}
	}
}

// block makes a block of one record.
func (p *pass) block(w *Worker, record *kafka.Record, e retire.Entry) {
	id, err := w.BlockID(p.Config, e.Position.Partition, record)
	if err == nil && id != e.ID {
		err = fmt.Errorf("the record at its offset makes block %s", id)
	}
	if err == nil {
		err = decoded(p.Log, w, func(w *Worker) (*incremental.Block, error) { return w.Decode(record) }, func(w *Worker, b *incremental.Block) error {
			return p.show(w, e, b)
		})
	}
	p.unseen(err, e)
}

// unseen notes that blocks were not shown, if there is an error.
func (p *pass) unseen(err error, entries ...retire.Entry) {
	if intake.IsAway(err) { // the blocks are not at fault
		p.fail(err)
	} else if err != nil {
		for _, e := range entries {
			p.unreadable(e, err)
		}
	}
}

// joined makes the blocks of a record whose rows have their labels from another topic.
func (p *pass) joined(w *Worker, record *kafka.Record, entries []retire.Entry) {
	decode := func(w *Worker) (intake.UnjoinedRows, error) {
		return w.Unjoined(p.Config, entries[0].Position.Partition, record)
	}
	p.unseen(decoded(p.Log, w, decode, func(w *Worker, rows intake.UnjoinedRows) error {
		for _, e := range entries {
			if class, ok := p.Label(e.ID); !ok {
				p.unseen(ErrOthers, e)
			} else if b := rows.Block(e.ID, class); b == nil {
				p.unseen(errors.New("the record at its offset has no row of its id"), e)
			} else {
				b.Features = *w.Features()
				p.unseen(p.show(w, e, b), e)
			}
		}
		return nil
	}), entries...)
}

// decoded calls do with what a record is decoded as. One too large for the workers is decoded while
// no other such record is.
func decoded[T any](a *Log, w *Worker, decode func(*Worker) (T, error), do func(*Worker, T) error) error {
	b, err := decode(w)
	if bad := (*wire.Error)(nil); errors.As(err, &bad) && bad.Memory {
		a.large.Lock()
		defer a.large.Unlock()
		if w, err = a.worker(w.Features(), 0); err != nil {
			return err
		}
		b, err = decode(w)
	}
	if err != nil {
		return err
	}
	return do(w, b)
}

// part is the rows of consecutive records of a gathered block.
type part struct {
	done chan struct{} // closed by the worker
	rows intake.Rows
	ends []int // after each record that has rows
}

// gather processes records of which several make a block.
func (l *lane) gather(ctx context.Context, s *shared) {
	for i := 0; i < len(s.Records); {
		l.expire(s.Records[i].Offset)
		if len(l.entries) == 0 || s.Records[i].Offset < l.entries[0].Position.Offset {
			i++
			continue
		}
		e := l.entries[0]
		if !l.begun {
			l.begun = true
			if first := e.Position.Offset; s.Records[i].Offset > first {
				l.unreadable(e, notThere(first))
				l.dropped = true
			} else if need := l.gatheredBytes(e); l.rows.Acquire(ctx, need) == nil {
				l.held = need
			} else {
				return // the pass has ended
			}
		}
		from := i
		for bytes := 0; i < len(s.Records) && s.Records[i].Offset <= e.Last && i-from < intake.TaskRecords && bytes < intake.TaskBytes; i++ {
			bytes += len(s.Records[i].Value)
		}
		if !l.dropped {
			t, records := &part{done: make(chan struct{})}, s.Records[from:i]
			if !l.submit(ctx, s, func(w *Worker) { defer close(t.done); t.decode(l.pass, w, records) }) {
				return
			}
			l.parts = append(l.parts, t)
		}
		if s.Records[i-1].Offset == e.Last {
			if parts, held := l.parts, l.held; !l.dropped {
				l.held = 0
				if !l.submit(ctx, s, func(w *Worker) { defer l.rows.Release(held); l.join(w, e, parts) }) {
					return
				}
			}
			l.next()
		}
	}
}

// gatheredBytes is the memory for the rows of a gathered block while it is assembled.
func (p *pass) gatheredBytes(e retire.Entry) int64 {
	row := 2 * 8 * int64(len(*p.features)+2)
	most := max(1, p.Budget.Gathered)
	if e.Rows > most/row {
		return most
	}
	return e.Rows * row
}

// decode decodes the usable records and keeps their rows.
func (t *part) decode(p *pass, w *Worker, records []kafka.Record) {
	for i := range records {
		decode := func(w *Worker) (*incremental.Block, error) { return w.Decode(&records[i]) }
		err := decoded(p.Log, w, decode, func(_ *Worker, b *incremental.Block) error {
			if b.FirstBadRow() == nil {
				t.rows.AppendBlock(intake.Weighing(b))
				t.ends = append(t.ends, t.rows.Len())
			}
			return nil
		})
		if intake.IsAway(err) {
			p.fail(err)
		}
	}
}

// join assembles a gathered block from its parts. Other workers are at work on all of them,
// so waiting for them ends.
func (p *pass) join(w *Worker, e retire.Entry, parts []*part) {
	var all intake.Rows
	var ends []int
	for _, t := range parts {
		<-t.done
		for _, end := range t.ends {
			ends = append(ends, all.Len()+end)
		}
		all.AppendRange(&t.rows, 0, t.rows.Len())
		t.rows, t.ends = intake.Rows{}, nil
	}
	err := p.show(w, e, all.Block())
	if err != nil {
		// Some may have been refused for limits.classes or for the coordinates.
		if refused, kept := p.leaveOut(w, e, &all, ends); refused {
			err = p.show(w, e, kept.Block())
		}
	}
	if err != nil {
		p.unreadable(e, err)
	}
}

// leaveOut leaves out the records that have a class which the block's summary lacks, or
// that do not fit the coordinates in use. ok is false if there are none.
func (p *pass) leaveOut(w *Worker, e retire.Entry, all *intake.Rows, ends []int) (ok bool, kept *intake.Rows) {
	was, err := p.blocks.Summary(e.ID)
	if err != nil {
		return false, nil
	}
	classes := was.Classes()
	kept = &intake.Rows{}
	from, in := 0, p.Target()
	for _, end := range ends {
		var one intake.Rows
		one.AppendRange(all, from, end)
		if slices.ContainsFunc(one.Classes(), func(label string) bool { return !slices.Contains(classes, label) }) || w.Keeper.Check(p.ctx, one.Block(), in) != nil {
			ok = true
		} else {
			kept.AppendRange(all, from, end)
		}
		from = end
	}
	return ok, kept
}
