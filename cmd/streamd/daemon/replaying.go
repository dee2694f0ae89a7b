package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"streamd/cmd/streamd/daemon/features"
	"streamd/cmd/streamd/daemon/settings"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/kafka"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Replayed is the live set that the topic gives up to the offsets of a snapshot, by the
// daemon's own intake and policy, beside that of the snapshot.
type Replayed struct {
	Read   int64         // records
	Left   []LeftOut     // blocks that the topic gives, and that were left out
	Blocks int           // that the topic gives without these
	Rows   int64         // of them
	Side   receipt.Side  // of them; the root is that of a key
	Saved  receipt.Side  // of the snapshot; its root is that of a key, too
	Others []string      // blocks of the snapshot that the topic does not give as they are there
	Gone   []kafka.Range // offsets below the cut that the log does not have
	// Compared counts the moments at which the topic gives the live set that the receipts name
	// there, right before or after their blocks have left or come back.
	Compared int
	// Unplaced lists the receipts at whose moments the live sets could not be compared.
	Unplaced []Unplaced
	// Foreign lists the receipts of requests and alarms about a block that the topic does not give,
	// as it is in the receipt, below their offsets, and those about excluded or restored blocks
	// that it does not give there.
	Foreign []int64
	// Parted is the first receipt whose live set is another one than the topic gives at its
	// offsets. It is -1 if there is none.
	Parted int64
	// Untold lists blocks that the snapshot has withdrawn, and that no receipt says so of.
	Untold []string
}

// LeftOut is a block that the topic gives and a snapshot lacks.
type LeftOut struct {
	Entry     retire.Entry
	Item      receipt.Item // zero without a key
	Kind      receipt.Kind // of the receipt that says how it has left; 0: there is none
	Withdrawn bool         // the snapshot says that the control topic withdraws it
}

// Unplaced is a receipt for whose moment the replay does not stop.
type Unplaced struct {
	Receipt int64 // its number
	Why     string
}

// version identifies a block with its contents.
type version struct {
	position incremental.Position
	last     int64
	rows     int64
	digest   receipt.Hash // of its summary
}

func versionOf(e *retire.Entry, digest receipt.Hash) version {
	return version{e.Position, e.Last, e.Rows, digest}
}

// topicReader reads a topic again.
type topicReader interface {
	// Log returns the offsets of the log, a range for each partition that is not empty.
	Log(ctx context.Context) ([]kafka.Range, error)
	// Read is that of kafka.RangeReader.
	Read(ctx context.Context, ranges []kafka.Range, deliver func(context.Context, *kafka.Batch) error) ([]kafka.Lost, error)
	Close()
}

// Replay reads the topic again from its first offset to those that a snapshot includes, into an
// empty state in a temporary file, and compares that with the snapshot. It follows no control
// topic, writes no dead letters and joins no group. key makes the roots; nil: they are zero.
// progress is called on other goroutines, one at a time, with the number of offsets that were read.
//
// A retirement on request makes room under retire.keep, and it ends a block that is still growing.
// So it decides about later blocks. The replay stops at the offsets of each receipt of a request
// and takes its blocks out there, before it reads on. The key finds them by their ids. It also
// stops where receipts say that the control topic has moved blocks. These keep their places, as
// they do in the daemon, but are set aside: the live set is that without them. At each stop it is
// compared with that of the receipts. What else the snapshot lacks is taken out at the end.
func Replay(ctx context.Context, o Options, from *snapshot.Store, saved *snapshot.Contents, key *receipt.Key, progress func(offsets, of int64)) (*Replayed, error) {
	return replayTopic(ctx, o, (*Daemon).readTopic, from, saved, key, progress)
}

// readTopic connects to the topic of the records.
func (d *Daemon) readTopic() (topicReader, error) {
	cluster, err := settings.Cluster(d.Config.Kafka, d.Log)
	if err != nil {
		return nil, err
	}
	return kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: cluster, Topic: d.Config.Kafka.Topic, Fetching: settings.Bounded(d.Memory, settings.Fetching(d.Config.Kafka), d.Memory.Reread),
	}, d.Log)
}

// replaying is a Replay under way.
type replaying struct {
	*Daemon
	key  *receipt.Key
	left map[receipt.Item]receipt.Kind // how the blocks of all receipts have left that have not come back
	cuts []cut
	// names has the ids of the blocks of the cuts, by the keys of their items. An id is "" until
	// the topic gives the block.
	names   map[receipt.Hash]string
	next    map[int]int64 // of each partition, the first offset that was not read
	end     map[int]int64 // of each partition, the offset to read to
	parted  []int64       // receipts of other live sets than the topic gives
	foreign []int64       // Replayed.Foreign, unless offsets are gone
	holes   int64         // offsets below those read that the log lacks between others
	r       *Replayed
}

// cut is a moment between two records at which blocks have left, or come back.
type cut struct {
	leaves        []cutLeaf // one of a request, or those of the control topic at one moment
	asked         bool
	before, after receipt.Side
	next          map[int]int64 // of each partition, the first offset that had not been applied
	// former has the partitions whose offsets are below those of the receipt later on. The
	// receipt is about blocks of a topic that was deleted.
	former map[int]bool
}

// isFormer reports whether a block is of a topic that was deleted.
func (c *cut) isFormer(e *retire.Entry) bool {
	partition, _, _ := e.Records()
	return c.former[partition]
}

// cutLeaf is a leaf of a cut.
type cutLeaf struct {
	receipt int64 // its number
	kind    receipt.Kind
	items   []receipt.Item
}

// replayTopic is Replay with any reader.
func replayTopic(ctx context.Context, o Options, open func(*Daemon) (topicReader, error), from *snapshot.Store, saved *snapshot.Contents, key *receipt.Key, progress func(offsets, of int64)) (r *Replayed, err error) {
	folder, err := os.MkdirTemp("", "streamd-replay-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if o.Config.Labels.Topic != "" {
		return nil, errors.New("labels.topic is set, and a snapshot whose rows are joined with labels of another topic cannot be compared with the log: start a daemon with another snapshot.file on the same topics, and compare the digests")
	}
	needsRows := o.Config.Kernel.Function != config.KernelNone
	o.Config = replayed(o.Config, filepath.Join(folder, "replay.db"))
	if s := settings.Unit(o.Config); saved.Topic != o.Config.Kafka.Topic || saved.Unit != s {
		return nil, fmt.Errorf("the snapshot is of topic %s with a block per %s, the configuration has %s and %s", saved.Topic, saved.Unit, o.Config.Kafka.Topic, s)
	}
	learned, err := features.Saved(saved)
	if err != nil {
		return nil, err
	}
	if of := o.Config.Format.Schema; len(of.Learns()) > 0 { // o.Config is a copy
		o.Config.Format.Schema = of.Known(learned.Format.Schema)
	}
	d, err := newDaemon(o)
	if err != nil {
		return nil, err
	}
	if err := d.restore(o); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Store.Close()) }()
	if needsRows {
		d.Intake.RowsOnly()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.Stop, d.Background = cancel, ctx
	if key != nil {
		if err := d.Live.KeepReceipts(key); err != nil {
			return nil, err
		}
		d.Live.KeepAside()
	}
	p := &replaying{
		Daemon: d, key: key, left: map[receipt.Item]receipt.Kind{}, names: map[receipt.Hash]string{}, next: map[int]int64{}, end: map[int]int64{},
		r: &Replayed{Parted: -1},
	}
	if err := p.plan(from, saved); err != nil {
		return nil, err
	}
	topic, err := open(d)
	if err != nil {
		return nil, err
	}
	defer topic.Close()
	if err := p.readAll(ctx, topic, saved, progress); err != nil {
		return nil, err
	}
	return p.r, p.compare(from, saved)
}

// replayed is the configuration without what no live set depends on.
func replayed(c *config.Config, file string) *config.Config {
	cfg := *c
	cfg.Snapshot.File, cfg.Snapshot.KeyFile = file, ""
	cfg.Receipts, cfg.Retire.Topic = config.Receipts{}, ""
	cfg.DeadLetters.Policy = config.DeadLettersSkip
	cfg.Drift = config.Drift{}
	cfg.Model.Folds, cfg.Sample.Rows, cfg.Kernel.Function = 0, 0, config.KernelNone
	cfg.Model.Knowledge, cfg.Model.Refine = "", config.RefineNone
	return &cfg
}

// plan reads the receipts of a snapshot, and finds out where the replay stops.
func (p *replaying) plan(from *snapshot.Store, saved *snapshot.Contents) error {
	if p.key != nil && saved.Log.Size > 0 {
		if _, err := receipt.OpenCheckpoint(saved.Log.Checkpoint, p.key.Public()); err != nil {
			return fmt.Errorf("receipts.key_file is not the key of the receipts in the snapshot: %w", err)
		}
	}
	for i := range saved.Log.Size {
		record, err := from.Receipt(i)
		if err != nil {
			return err
		}
		leaf, items, err := record.Open()
		if err != nil {
			return fmt.Errorf("receipt %d: %w", i, err)
		}
		for _, item := range items {
			switch leaf.Kind {
			case receipt.Restored:
				delete(p.left, item)
			case receipt.Excluded: // it was not live
			case receipt.Returned:
				p.left[item] = receipt.Expired
			default:
				p.left[item] = leaf.Kind
			}
		}
		if stopsFor(leaf, items) {
			p.stopAt(cutLeaf{i, leaf.Kind, items}, leaf)
		}
	}
	// Offsets only ascend, unless the topic was deleted and made again.
	least := includes(saved, p.Config.Kafka.Topic)
	for i := len(p.cuts) - 1; i >= 0; i-- {
		c := &p.cuts[i]
		for partition, next := range c.next {
			if end := least[partition]; next > end {
				c.next[partition], c.former[partition] = end, true
			}
		}
		least = c.next
		if len(c.former) > 0 {
			p.unplaced(c.leaves[0].receipt, "its offsets are beyond later ones, so the topic was made again after it")
		}
	}
	return nil
}

// unplaced notes a receipt whose live set is not compared.
func (p *replaying) unplaced(number int64, why string) {
	p.r.Unplaced = append(p.r.Unplaced, Unplaced{number, why})
}

// stopsFor reports whether the replay stops at the offsets of a receipt: that of a request, which
// has a principal, or of blocks that the control topic has moved, or that are no longer withdrawn
// since the policy has let them go. A request for an archived block does not change the live set,
// but it ends a block that is still growing, and one for a withdrawn block frees its place.
func stopsFor(leaf *receipt.Leaf, items []receipt.Item) bool {
	switch leaf.Kind {
	case receipt.Withdrawn, receipt.Restored, receipt.Excluded:
		return leaf.Principal != "" || leaf.Blocks > 0
	case receipt.Purged:
		return leaf.Principal != "" || slices.ContainsFunc(items, receipt.Item.Withdrawn)
	}
	return leaf.Principal != ""
}

// stopAt has the replay stop at the offsets of a leaf.
func (p *replaying) stopAt(of cutLeaf, leaf *receipt.Leaf) {
	switch {
	case p.key == nil:
		p.unplaced(of.receipt, "only the log's key (receipts.key_file) finds its blocks")
		return
	case len(leaf.Offsets) == receipt.MaxOffsets:
		p.unplaced(of.receipt, fmt.Sprintf("it has no offsets beyond those of %d partitions", receipt.MaxOffsets))
		return
	}
	c := cut{leaves: []cutLeaf{of}, asked: leaf.Principal != "", before: leaf.Before, after: leaf.After, next: map[int]int64{}, former: map[int]bool{}}
	for _, o := range leaf.Offsets {
		c.next[int(o.Partition)] = o.Offset
	}
	for _, item := range of.items {
		p.names[item.Key] = ""
	}
	if n := len(p.cuts); n > 0 && !c.asked && !p.cuts[n-1].asked && p.cuts[n-1].after == c.after && maps.Equal(p.cuts[n-1].next, c.next) {
		p.cuts[n-1].leaves = append(p.cuts[n-1].leaves, of)
		return
	}
	p.cuts = append(p.cuts, c)
}

// includes has the offsets below which a snapshot has the records of a topic, by partition.
func includes(saved *snapshot.Contents, topic string) map[int]int64 {
	next := map[int]int64{}
	for _, o := range saved.Offsets {
		if o.Topic != topic {
			continue // the control topic
		}
		next[o.Partition] = o.Next
		if g := o.Growing; g != nil {
			next[o.Partition] = g.Next
		}
	}
	return next
}

// readAll applies the records below the offsets that the snapshot includes, and takes out the
// blocks of each cut in its turn.
func (p *replaying) readAll(ctx context.Context, topic topicReader, saved *snapshot.Contents, progress func(offsets, of int64)) (err error) {
	d := p.Daemon
	all, err := p.bound(ctx, topic, includes(saved, d.Config.Kafka.Topic))
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	defer done.Wait()
	for range d.Config.Workers {
		done.Go(func() { d.Intake.Work(ctx) })
	}
	var telling sync.Mutex // batches of different partitions come at the same time
	read := int64(0)
	var lost []kafka.Lost
	var failed error
	readTo := func(next map[int]int64) error {
		ranges := p.advance(next)
		if len(ranges) == 0 {
			return nil
		}
		more, err := topic.Read(ctx, ranges, func(ctx context.Context, b *kafka.Batch) error {
			telling.Lock()
			read += int64(len(b.Records))
			p.holes -= int64(len(b.Records))
			for _, r := range b.Refused {
				p.holes -= r.Last + 1 - r.First
			}
			progress(read, all)
			telling.Unlock()
			return d.Intake.Deliver(ctx, b)
		})
		lost = append(lost, more...)
		return err
	}
	done.Go(func() {
		defer d.Intake.Close()
		for i := range p.cuts {
			c, from := &p.cuts[i], maps.Clone(p.next)
			if failed = readTo(c.next); failed != nil {
				return
			}
			var wrong error // f may still run after InTurn has given up
			if !d.Intake.InTurn(ctx, nil, func() { wrong = p.stop(c, from) }) {
				failed = context.Cause(ctx)
				return
			}
			if failed = wrong; failed != nil {
				return
			}
		}
		failed = readTo(p.end)
	})
	for y := range d.Intake.Deliveries() {
		if err == nil {
			if d.applied(d.Intake.Apply(ctx, y)); d.Failure == nil {
				err = d.applyWaiting(ctx)
			}
		}
		if err == nil {
			err = d.Failure
		}
		if err != nil {
			d.Intake.Fail()
			d.Stop(err)
		}
		d.Intake.Release(y)
	}
	done.Wait()
	for _, l := range lost {
		p.r.Gone = append(p.r.Gone, l.Range)
	}
	p.judge()
	p.r.Read = read
	if err == nil {
		err = failed
	}
	if err == nil {
		err = d.FlushAll()
	}
	return err
}

// bound finds what the log has below offsets, and notes what it lacks. all is the number of
// offsets to read.
func (p *replaying) bound(ctx context.Context, topic topicReader, below map[int]int64) (all int64, err error) {
	log, err := topic.Log(ctx)
	if err != nil {
		return 0, err
	}
	for _, partition := range slices.Sorted(maps.Keys(below)) {
		cut := below[partition]
		has := kafka.Range{Partition: partition, From: cut, To: cut} // if the partition is empty
		for _, l := range log {
			if l.Partition == partition {
				has.From, has.To = min(l.From, cut), min(l.To, cut)
			}
		}
		for _, gap := range []kafka.Range{{Partition: partition, From: 0, To: has.From}, {Partition: partition, From: has.To, To: cut}} {
			if gap.From < gap.To {
				p.r.Gone = append(p.r.Gone, gap)
			}
		}
		p.next[partition], p.end[partition] = has.From, has.To
		all += has.To - has.From
	}
	return all, nil
}

// advance lists the ranges up to these offsets that were not read yet.
func (p *replaying) advance(to map[int]int64) (ranges []kafka.Range) {
	for partition, from := range p.next {
		if next := min(to[partition], p.end[partition]); from < next {
			ranges = append(ranges, kafka.Range{Partition: partition, From: from, To: next})
			p.holes += next - from // less what is read there
			p.next[partition] = next
		}
	}
	return ranges
}

// stop does at a cut what the daemon did there, and compares the live sets. The records below its
// offsets have been applied, those at from and above since the cut before.
func (p *replaying) stop(c *cut, from map[int]int64) error {
	if err := p.FlushAll(); err != nil {
		return err
	}
	p.name(from)
	same := true
	if c.asked {
		same = p.Live.SideWithout() == c.before
		if err := p.leaveOut(c); err != nil {
			return err
		}
	} else if err := p.move(c); err != nil {
		return err
	}
	switch {
	case len(c.former) > 0:
	case same && p.Live.SideWithout() == c.after:
		p.r.Compared++
	default:
		p.differs(&p.parted, c.leaves[0].receipt)
	}
	return nil
}

// differs notes a receipt that the topic does not bear out, unless former values of keys may be
// missing there: a compacted topic gives no live set on the way.
func (p *replaying) differs(all *[]int64, number int64) {
	if p.holes > 0 && p.Config.Blocks.Unit == config.UnitKey {
		p.unplaced(number, "the log lacks offsets below its own, as after a compaction")
		return
	}
	*all = append(*all, number)
}

// leaveOut takes out the blocks of a request, as the daemon's takeOut did.
func (p *replaying) leaveOut(c *cut) error {
	of := c.leaves[0]
	ids := map[string]bool{}
	foreign := false
	for _, item := range of.items {
		id := p.names[item.Key]
		foreign = foreign || id == "" || of.kind != receipt.Purged && p.Live.Item(id) != item
		// A withdrawn block may have been archived before.
		if e, is := p.Live.Find(id); is && (item.Withdrawn() || e.Archived == (of.kind == receipt.Purged)) && !c.isFormer(&e) {
			ids[id] = true
		}
	}
	if foreign && len(c.former) == 0 {
		p.differs(&p.foreign, of.receipt)
	}
	if _, err := p.Intake.EndBlocks(p.Background, func(id string) bool { return ids[id] }); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if e, live := p.Live.Get(id); live {
			p.r.Left = append(p.r.Left, LeftOut{Entry: e, Item: p.Live.Item(id), Kind: of.kind})
		}
		if err := p.Live.Retire(id); err != nil {
			return err
		}
	}
	return nil
}

// move sets the blocks aside that the control topic has taken out, and takes back those that it has
// given back, or that have lost their places among the withdrawn ones. A block that a proof
// shows as withdrawn can have left since, and its id can have another block. An excluded or a
// restored one is there.
func (p *replaying) move(c *cut) (err error) {
	for _, of := range c.leaves {
		foreign := false
		for _, item := range of.items {
			id := p.names[item.Key]
			e, live := p.Live.Get(id)
			switch {
			case !live || c.isFormer(&e):
				foreign = foreign || of.kind == receipt.Restored || of.kind == receipt.Excluded
			case of.kind == receipt.Purged && !item.Withdrawn(): // it was archived, and is another one now
			case of.kind == receipt.Restored || of.kind == receipt.Purged:
				err = p.Live.TakeBack(id)
			case of.kind == receipt.Excluded || p.Live.Item(id) == item:
				err = p.Live.SetAside(id)
			}
			if err != nil {
				return err
			}
		}
		if foreign && len(c.former) == 0 {
			p.differs(&p.foreign, of.receipt)
		}
	}
	return nil
}

// judge says what the stops have found. Where the log has lost records, a live set on the way is
// not compared: it can lack those of blocks that left later.
func (p *replaying) judge() {
	defer func() {
		slices.SortStableFunc(p.r.Unplaced, func(a, b Unplaced) int { return cmp.Compare(a.Receipt, b.Receipt) })
		p.r.Unplaced = slices.Compact(p.r.Unplaced)
	}()
	if len(p.r.Gone) == 0 {
		if p.r.Foreign = p.foreign; len(p.parted) > 0 {
			p.r.Parted = p.parted[0]
		}
		return
	}
	for _, number := range slices.Concat(p.parted, p.foreign) {
		p.unplaced(number, "Kafka no longer has all records below its offsets")
	}
}

// name notes the ids of blocks that have come or grown since offsets, if a cut has them.
func (p *replaying) name(from map[int]int64) {
	note := func(e *retire.Entry) {
		if partition, _, last := e.Records(); last < from[partition] {
			return
		}
		key := e.ItemKey
		if key == (receipt.Hash{}) {
			key = p.key.ItemKey(e.ID)
		}
		if _, wanted := p.names[key]; wanted {
			p.names[key] = e.ID
		}
	}
	for e := range p.Live.Select(&retire.Selection{}) {
		note(&e)
	}
	for _, e := range p.Live.ArchivedBlocks(retire.Lowest, math.MaxInt) {
		note(&e)
	}
}

// applyWaiting saves until the rest of a delivery has been applied.
func (d *Daemon) applyWaiting(ctx context.Context) error {
	for d.Failure == nil {
		waiting, _ := d.Intake.Waiting()
		if waiting == nil && !d.Saver.IsFull() {
			return nil
		}
		if err := d.Saver.Save(); err != nil {
			return err
		}
		d.Live.TakeDepartures() // nobody wants receipts of them
		if waiting != nil {
			d.applied(d.Intake.Continue(ctx))
		}
	}
	return d.Failure
}

// compare takes the blocks out that the snapshot lacks, and compares the others with it.
func (p *replaying) compare(from *snapshot.Store, saved *snapshot.Contents) error {
	d, key, r := p.Daemon, p.key, p.r
	if err := d.Saver.Save(); err != nil {
		return err
	}
	want, tree := map[string]version{}, receipt.Tree{}
	err := from.Summaries(snapshot.Features, func(e retire.Entry, s *incremental.Summary) error {
		v := versionOf(&e, s.Digest())
		want[e.ID] = v
		if key != nil {
			now, _ := d.Live.Get(e.ID) // its key was computed, and that of the snapshot may be wrong
			tree.Put(key.Item(e.ID, now.ItemKey, v.digest))
		}
		return nil
	})
	if err != nil {
		return err
	}
	withdrawn := map[string]bool{}
	for _, e := range saved.Withdrawn {
		withdrawn[e.ID] = true
	}
	var lacks []LeftOut
	given := map[string]bool{}
	err = d.Store.Digests(func(e retire.Entry, digest [sha256.Size]byte) {
		if given[e.ID] = want[e.ID] == versionOf(&e, digest); given[e.ID] {
			return
		}
		out := LeftOut{Entry: e, Withdrawn: withdrawn[e.ID]}
		if key != nil {
			out.Item = key.Item(e.ID, e.ItemKey, digest)
		}
		out.Kind = p.left[out.Item]
		if out.Withdrawn && key != nil && len(r.Unplaced) == 0 && !d.Live.IsAside(e.ID) {
			r.Untold = append(r.Untold, e.ID)
		}
		lacks = append(lacks, out)
	})
	if err != nil {
		return err
	}
	for i := range saved.Entries {
		if id := saved.Entries[i].ID; !given[id] {
			r.Others = append(r.Others, id)
		}
	}
	for i := range lacks {
		if err := d.Live.Retire(lacks[i].Entry.ID); err != nil {
			return err
		}
	}
	r.Left = append(r.Left, lacks...)
	r.Side, r.Blocks, r.Rows = d.Live.Side(), d.Live.Blocks(), d.Live.Rows()
	r.Saved.Digest = incremental.NewState(nil).Digest()
	if space := saved.Space(snapshot.Features); space != nil && space.State != nil {
		r.Saved.Digest = space.State.Digest()
	}
	if key == nil {
		r.Side.Root = receipt.Hash{}
		return nil
	}
	r.Saved.Root = tree.Root()
	return nil
}
