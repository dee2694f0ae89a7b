package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

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
	Blocks int           // that are live by the topic and the policy alone
	Left   []LeftOut     // of these, the blocks that the snapshot lacks
	Others []string      // blocks of the snapshot that the topic does not give as they are there
	Gone   []kafka.Range // offsets below the cut that the log does not have
	Rows   int64         // of the others
	Side   receipt.Side  // of the others; the root is that of a key
	Saved  receipt.Side  // of the snapshot; its root is that of a key, too
}

// LeftOut is a block that the topic gives and a snapshot lacks.
type LeftOut struct {
	Entry     retire.Entry
	Item      receipt.Item // zero without a key
	Withdrawn bool         // the snapshot says that the control topic withdraws it
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

// Replay reads the topic again from its first offset to those that a snapshot includes, into an
// empty state in a temporary file, and compares that with the snapshot. It follows no control
// topic, writes no dead letters and joins no group. key makes the roots; nil: they are zero.
// progress is called on another goroutine with the number of offsets that were read.
func Replay(ctx context.Context, o Options, from *snapshot.Store, saved *snapshot.Contents, key *receipt.Key, progress func(offsets, of int64)) (r *Replayed, err error) {
	folder, err := os.MkdirTemp("", "streamd-replay-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	o.Config = replayed(o.Config, filepath.Join(folder, "replay.db"))
	if s := unit(o.Config.Blocks); saved.Topic != o.Config.Kafka.Topic || saved.Unit != s {
		return nil, fmt.Errorf("the snapshot is of topic %s with a block per %s, the configuration has %s and %s", saved.Topic, saved.Unit, o.Config.Kafka.Topic, s)
	}
	d, err := newDaemon(o)
	if err != nil {
		return nil, err
	}
	if err := d.restore(o); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.store.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.stop, d.background = cancel, ctx
	if key != nil {
		if err := d.live.KeepReceipts(key); err != nil {
			return nil, err
		}
	}
	r = &Replayed{}
	if err := d.readAll(ctx, saved, r, progress); err != nil {
		return nil, err
	}
	return r, d.compareReplayed(from, saved, key, r)
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

// readAll applies the records below the offsets that the snapshot includes.
func (d *Daemon) readAll(ctx context.Context, saved *snapshot.Contents, r *Replayed, progress func(offsets, of int64)) (err error) {
	cluster, err := Cluster(d.cfg.Kafka)
	if err != nil {
		return err
	}
	reader, err := kafka.NewRangeReader(kafka.RangeConfig{
		Cluster: cluster, Topic: d.cfg.Kafka.Topic, Fetching: bounded(d.memory, Fetching(d.cfg.Kafka), d.memory.Reread),
	}, d.log)
	if err != nil {
		return err
	}
	defer reader.Close()
	log, err := reader.Log(ctx)
	if err != nil {
		return err
	}
	var ranges []kafka.Range
	var all int64
	for _, offset := range saved.Offsets {
		if offset.Topic != d.cfg.Kafka.Topic {
			continue // of the control topic
		}
		cut := offset.Next
		if g := offset.Growing; g != nil {
			cut = g.Next
		}
		has := kafka.Range{Partition: offset.Partition, From: cut, To: cut} // if the partition is empty
		for _, p := range log {
			if p.Partition == offset.Partition {
				has.From, has.To = min(p.From, cut), min(p.To, cut)
			}
		}
		for _, gap := range []kafka.Range{{Partition: has.Partition, From: 0, To: has.From}, {Partition: has.Partition, From: has.To, To: cut}} {
			if gap.From < gap.To {
				r.Gone = append(r.Gone, gap)
			}
		}
		if has.From < has.To {
			ranges = append(ranges, has)
			all += has.To - has.From
		}
	}
	var done sync.WaitGroup
	defer done.Wait()
	for range d.cfg.Workers {
		done.Go(func() { d.intake.Work(ctx) })
	}
	var read atomic.Int64
	var lost []kafka.Lost
	var failed error
	done.Go(func() {
		defer d.intake.Close()
		lost, failed = reader.Read(ctx, ranges, func(ctx context.Context, b *kafka.Batch) error {
			progress(read.Add(int64(len(b.Records))), all)
			return d.intake.Deliver(ctx, b)
		})
	})
	for y := range d.intake.Deliveries() {
		if err == nil {
			if d.applied(d.intake.Apply(ctx, y)); d.failure == nil {
				err = d.applyWaiting(ctx)
			}
		}
		if err == nil {
			err = d.failure
		}
		if err != nil {
			d.intake.Fail()
			d.stop(err)
		}
		d.intake.Release(y)
	}
	done.Wait()
	for _, l := range lost {
		r.Gone = append(r.Gone, l.Range)
	}
	r.Read = read.Load()
	if err == nil {
		err = failed
	}
	if err == nil {
		err = d.flushAll()
	}
	return err
}

// applyWaiting saves until the rest of a delivery has been applied.
func (d *Daemon) applyWaiting(ctx context.Context) error {
	for d.failure == nil {
		waiting, _ := d.intake.Waiting()
		if waiting == nil && !d.saver.isFull() {
			return nil
		}
		if d.saver.save(); d.saver.problem != nil {
			return d.saver.problem
		}
		d.live.TakeDepartures() // nobody wants receipts of them
		if waiting != nil {
			d.applied(d.intake.Continue(ctx))
		}
	}
	return d.failure
}

// compareReplayed takes the blocks out that the snapshot lacks.
func (d *Daemon) compareReplayed(from *snapshot.Store, saved *snapshot.Contents, key *receipt.Key, r *Replayed) error {
	if d.saver.save(); d.saver.problem != nil {
		return d.saver.problem
	}
	want, tree := map[string]version{}, receipt.Tree{}
	err := from.Summaries(snapshot.Features, func(e retire.Entry, s *incremental.Summary) error {
		v := versionOf(&e, s.Digest())
		want[e.ID] = v
		if key != nil {
			tree.Put(key.Item(e.ID, v.digest))
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
	r.Blocks = d.live.Blocks()
	given := map[string]bool{}
	err = d.store.Digests(func(e retire.Entry, digest [sha256.Size]byte) {
		if given[e.ID] = want[e.ID] == versionOf(&e, digest); given[e.ID] {
			return
		}
		out := LeftOut{Entry: e, Withdrawn: withdrawn[e.ID]}
		if key != nil {
			out.Item = key.Item(e.ID, digest)
		}
		r.Left = append(r.Left, out)
	})
	if err != nil {
		return err
	}
	for i := range saved.Entries {
		if id := saved.Entries[i].ID; !given[id] {
			r.Others = append(r.Others, id)
		}
	}
	for i := range r.Left {
		if err := d.live.Retire(r.Left[i].Entry.ID); err != nil {
			return err
		}
	}
	r.Side, r.Rows = d.live.Side(), d.live.Rows()
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
