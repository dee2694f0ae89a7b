package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Ledger measures a live set of many small blocks: how they are added, and how they leave. The
// parts on a file run once without receipts and once with them, and have the settings' defaults
// otherwise, so there are folds and a sample.
//
//   - part=add adds blocks to the live set and saves them. empty_ratio is the time of an
//     addition over that of one to an empty live set in the same round, and
//     empty_save_ratio that of the save.
//   - part=retire takes one block after the other out of the live set, as the daemon's loop
//     does, any of them, and with what a receipt needs. The summary comes from the file.
//     save_seconds is the time of a save of one retirement.
//   - part=receipt makes a receipt: the proof of the removal, the leaf, the log with it, and
//     the file that is handed out.
//   - part=together takes many blocks out by one request. save_seconds is the time of their
//     save, which is one transaction.
//   - part=daemon starts streamd run on the file, in a process of its own, with an embedded
//     broker in this one. seconds is the time from the start of the process until it answers
//     with a model, with the file in the system's cache. retire_seconds is the time of a
//     DELETE over HTTP, with its save.
//   - part=replica starts a second streamd run without a file, which begins with a copy of that of
//     the first (--from). seconds is the time from its start until it answers with the same model.
//   - part=request has such a daemon retire a range of as many offsets by one request. seconds
//     is the time until streamd retire has the answer, with the save, and dry_run_seconds that
//     of a dry run before. blocks_together is how many were still live.
//   - part=sums takes blocks of several sizes out of a ledger and its sums alone: see sums.
//   - part=tools compares streamd's way to forget with what Python offers: see tools.
//
// longest_turn_seconds bounds the longest turn of the daemon's loop during the retirements of a
// part from above: see longestTurn.
//
// median_seconds, tail_seconds (the 99th percentile) and worst_seconds are of all operations
// of a part on the file. With the prefix cpu_ they are processor time, where the system tells
// it, so that other work on the machine counts little.
type Ledger struct {
	Part      []string `default:"add,retire,receipt,together,daemon,replica,request,sums" enum:"add,retire,receipt,together,daemon,replica,request,sums,tools" help:"Parts: ${enum}. The last one needs Python, and does not run by default."`
	Blocks    int      `default:"1000000" help:"Live blocks."`
	Features  int      `default:"10" help:"Features."`
	BlockRows int      `default:"10" help:"Rows of a block."`
	Retired   int      `default:"1000" help:"Blocks that are retired one after the other."`
	Together  int      `default:"50000" help:"Blocks that are retired by one request."`
	Rows      []int    `default:"1000,10000,100000,1000000" help:"Rows of the blocks of the part sums."`
	Dir       string   `type:"existingdir" placeholder:"DIR" help:"Folder of the files. By default that of temporary files, which may be in memory."`
	Python    string   `default:"python3" placeholder:"PROGRAM" help:"Python with numpy, polars_ols and scikit-learn, for the part tools. A tool that is not installed is reported as missing."`

	Budget time.Duration `default:"60s" help:"Time after which a tool that is still forgetting half of the blocks stops. retired_share is what it has done."`
	Timed
}

// Check implements Benchmark.
func (c Ledger) Check() error {
	if c.Budget <= 0 {
		return fmt.Errorf("--budget %v: must be positive", c.Budget)
	}
	if err := cmp.Or(
		Within("blocks", 1000, 10_000_000, c.Blocks), Within("features", 1, maxFeatures, c.Features), Within("block-rows", 2, 10_000, c.BlockRows),
		Within("rows", 1, maxRows, c.Rows...), c.Timed.check()); err != nil || !c.onFile() {
		return err
	}
	// Both are retired several times.
	return cmp.Or(Within("retired", 1, c.Blocks/8, c.Retired), Within("together", 1, c.Blocks/8, c.Together))
}

// wants reports whether one of the parts is chosen.
func (c Ledger) wants(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(c.Part, part) })
}

func (c Ledger) onFile() bool {
	return c.wants("add", "retire", "receipt", "together", "daemon", "replica", "request")
}

// Measure implements Benchmark.
func (c Ledger) Measure(ctx context.Context, run *Run) error {
	cases, measures := 0, []func(context.Context, *Run) error(nil)
	for _, part := range []struct {
		wanted  bool
		cases   int
		measure func(context.Context, *Run) error
	}{{c.onFile(), fileCases, c.file}, {c.wants("sums"), 1, c.sums}, {c.wants("tools"), len(toolScales), c.tools}} {
		if part.wanted {
			cases, measures = cases+part.cases, append(measures, part.measure)
		}
	}
	run.plan(c.Repeats, c.Time, cases)
	for _, measure := range measures {
		if err := measure(ctx, run); err != nil {
			return err
		}
	}
	return nil
}

// fileCases are the cases of the parts on a file, for the progress: to fill it takes half of the
// time.
const fileCases = 2

// file measures the parts on a file.
func (c Ledger) file(ctx context.Context, run *Run) (err error) {
	dir, err := os.MkdirTemp(c.Dir, "streamd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	topic, err := openTopic(ctx, nil, dir, benchTopic, 1, keepAll)
	if err != nil {
		return err
	}
	defer topic.close()
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	f := &ledgerFile{Ledger: c, run: run, dir: dir, topic: topic, r: rand.New(rand.NewPCG(5, 1))}
	f.newBlock()
	if err := f.fill(ctx); err != nil {
		return err
	}
	run.done++
	if c.wants("add") {
		if err := f.additions(ctx); err != nil {
			return err
		}
	}
	for _, key := range []string{"", filepath.Join(dir, "receipts.key")} {
		f.key = key
		for _, step := range []struct {
			parts   []string
			measure func(context.Context) error
		}{{[]string{"daemon"}, f.daemon}, {[]string{"replica"}, f.replica}, {[]string{"retire", "receipt", "together"}, f.retirements}, {[]string{"request"}, f.request}} {
			if !c.wants(step.parts...) {
				continue
			}
			if err := cmp.Or(ctx.Err(), step.measure(ctx)); err != nil {
				return err
			}
		}
	}
	run.done++
	return nil
}

// ledgerFile is the file of the live blocks, and the daemon's files.
type ledgerFile struct {
	Ledger
	run   *Run
	dir   string
	topic *topic
	r     *rand.Rand
	key   string // file of the key of the receipts; "": there are none
	next  int    // number of the next block
	block *incremental.Block
	rows  [][]float32 // of the block, by column
}

// newBlock makes the block whose rows change. Its classes are the signs of the first feature.
func (f *ledgerFile) newBlock() {
	f.block = normalBlock(f.r, Float32, f.BlockRows, 0, 2)
	for range f.Features {
		column := make([]float32, f.BlockRows)
		f.rows = append(f.rows, column)
		f.block.Columns = append(f.block.Columns, gram.ColumnOf(column))
	}
}

func (f *ledgerFile) path() string { return filepath.Join(f.dir, "streamd.db") }

// settings are those of the daemon.
func (f *ledgerFile) settings() map[string]string {
	s := f.topic.settings("ledger", Points{Features: f.Features}.settings(), map[string]string{"snapshot.file": f.path(), "snapshot.scrub": "0s"})
	if f.key != "" {
		s["receipts.key_file"] = f.key
	}
	return s
}

// spent is the time of an operation: by the clock, and of the processor. The caller's goroutine
// keeps its thread.
type spent struct{ wall, cpu time.Duration }

// timing returns a function that tells the time since the call.
func timing() func() spent {
	cpu, began := threadTime(), time.Now()
	return func() spent { return spent{time.Since(began), threadTime() - cpu} }
}

func (s *spent) add(more spent) {
	s.wall += more.wall
	s.cpu += more.cpu
}

// openSet is a live set that is open in this process.
type openSet struct {
	*live.Set
	store  *snapshot.Store
	keeper live.Keeper
	key    *receipt.Key // nil: no receipts
}

// open opens a file as the daemon does.
func (f *ledgerFile) open(path string) (s *openSet, err error) {
	cfg, err := config.Load(config.Sources{Flags: f.settings()})
	if err != nil {
		return nil, err
	}
	s = new(openSet)
	store, contents, err := snapshot.Open(path, snapshot.Settings{Topic: f.topic.name, Unit: "message"})
	if err != nil {
		return nil, err
	}
	s.store = store
	if s.Set, _, err = live.Open(store, contents, cfg, memory.New(cfg, 16<<30), zerolog.Nop()); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if contents.SavedAt.IsZero() {
		s.Fix(incremental.DefaultFeatures(f.Features))
	}
	if f.key != "" {
		if s.key, _, _, err = receipt.OpenKey(f.key, f.topic.name); err == nil {
			err = s.KeepReceipts(s.key)
		}
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// add adds the next block, and returns the time that this took the loop.
func (f *ledgerFile) add(ctx context.Context, s *openSet) (took spent, err error) {
	i := f.next
	f.next++
	for _, column := range f.rows {
		for j := range column {
			column[j] = float32(f.r.NormFloat64())
		}
	}
	for j, x := range f.rows[0] {
		f.block.Codes[j] = int32(math.Float32bits(x) >> 31)
	}
	kept, err := s.keeper.Keep(ctx, f.block, s.Target())
	if err != nil {
		return took, err
	}
	e := entry(i, kept.Summary.Rows())
	since := timing()
	if err := s.Admits(live.Candidate{Labels: kept.Summary.Classes(), Features: f.Features, Window: kept.Summary.Window(), Kept: kept}); err != nil {
		return took, err
	}
	_, err = s.Add(e, kept)
	return since(), err
}

const benchTopic = "bench"

// entry is the ledger's entry of message i of the topic.
func entry(i int, rows int64) retire.Entry {
	p := incremental.Position{Topic: benchTopic, Offset: int64(i)}
	return retire.Entry{ID: p.String(), Position: p, Last: p.Offset, Time: time.UnixMilli(int64(i)), Rows: rows}
}

// save saves all changes and returns the time of the save.
func (s *openSet) save(receipts *receipt.Growth) (spent, error) {
	since := timing()
	change := s.Change()
	change.SavedAt, change.Receipts = time.Now(), receipts
	_, err := s.store.Save(change)
	if err != nil {
		return spent{}, err
	}
	s.Saved(&change)
	return since(), nil
}

// begin begins the log of receipts, if there are any and it is empty.
func (s *openSet) begin() error {
	if s.key == nil {
		return nil
	}
	head, err := s.store.LogHead()
	if err != nil || head.Size > 0 {
		return err
	}
	begun := s.Begun()
	begun.Durable = time.Now()
	growth, err := s.key.Grow(0, s.store, []receipt.Record{{Leaf: begun.AppendBinary(nil)}})
	if err == nil {
		_, err = s.save(growth)
	}
	return err
}

// fill makes the file.
func (f *ledgerFile) fill(ctx context.Context) (err error) {
	const atOnce = 10_000
	s, err := f.open(f.path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	for f.next < f.Blocks {
		for range min(atOnce, f.Blocks-f.next) {
			if _, err := f.add(ctx, s); err != nil {
				return err
			}
		}
		if _, err := s.save(nil); err != nil {
			return err
		}
		if f.run.Progress != nil {
			f.run.Progress("filling the file", float64(f.next)/float64(f.Blocks)/float64(f.run.cases))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// additions adds blocks to the file, and to a new one, in turn. As many are saved together as
// the daemon saves by default.
func (f *ledgerFile) additions(ctx context.Context) (err error) {
	const saves, atOnce = 10, 100
	full, err := f.open(f.path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, full.store.Close()) }()
	var adds, saved []spent
	var ratios, saveRatios []float64
	for round := range f.Rounds {
		path := filepath.Join(f.dir, fmt.Sprintf("empty%d.db", round))
		empty, err := f.open(path)
		if err != nil {
			return err
		}
		var add, save [2]spent
		for range saves {
			for i, s := range []*openSet{empty, full} {
				for range atOnce {
					took, err := f.add(ctx, s)
					if err != nil {
						return errors.Join(err, empty.store.Close())
					}
					if add[i].add(took); i == 1 {
						adds = append(adds, took)
					}
				}
				took, err := s.save(nil)
				if err != nil {
					return errors.Join(err, empty.store.Close())
				}
				if save[i].add(took); i == 1 {
					saved = append(saved, took)
				}
			}
		}
		ratios = append(ratios, ratioOf(add[1], add[0]))
		saveRatios = append(saveRatios, ratioOf(save[1], save[0]))
		if err := errors.Join(empty.store.Close(), os.Remove(path)); err != nil {
			return err
		}
	}
	return f.report("add", adds, func(r *Result) {
		r.set("empty_ratio", median(ratios))
		r.set("empty_save_ratio", median(saveRatios))
		r.set("save_seconds", medianWall(saved))
	})
}

// retirements retires blocks in this process.
func (f *ledgerFile) retirements(ctx context.Context) (err error) {
	s, err := f.open(f.path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	if err := s.begin(); err != nil {
		return err
	}
	var ids []string
	for id := range s.IDs {
		ids = append(ids, id)
	}
	f.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var took, receipts, saves []spent
	var sizes []float64
	for i := range f.Retired {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		since := timing()
		left, err := s.RetireTogether(ids[i:i+1], nil)
		if err != nil {
			return err
		}
		took = append(took, since())
		var growth *receipt.Growth
		if left != nil {
			since := timing()
			left.Build, left.Topic, left.Principal, left.Durable = "v1.2.3", f.topic.name, "admin", time.Now()
			left.Offsets = []receipt.Next{{Partition: 0, Offset: int64(f.next)}}
			head, err := s.store.LogHead()
			if err == nil {
				growth, err = s.key.Grow(head.Size, s.store, []receipt.Record{{Leaf: left.AppendBinary(nil), Change: left.Change}})
			}
			if err != nil {
				return err
			}
			receipts = append(receipts, since())
		}
		save, err := s.save(growth)
		if err != nil {
			return err
		}
		saves = append(saves, save)
		if growth != nil {
			since := timing()
			proof, err := s.proof()
			if err != nil {
				return err
			}
			receipts[i].add(since())
			sizes = append(sizes, float64(len(proof)))
			if _, err := receipt.Check(proof, s.key.Public()); err != nil {
				return err
			}
		}
	}
	if err := f.report("retire", took, func(r *Result) { r.set("save_seconds", medianWall(saves)) }); err != nil {
		return err
	}
	if f.key != "" {
		if err := f.report("receipt", receipts, func(r *Result) {
			slices.Sort(sizes)
			r.set("receipt_bytes", median(sizes))
			r.set("tail_receipt_bytes", sizes[(len(sizes)-1)*99/100])
			r.set("largest_receipt_bytes", sizes[len(sizes)-1])
		}); err != nil {
			return err
		}
	}
	if !f.wants("together") {
		return nil
	}
	return f.together(s, ids[f.Retired:f.Retired+f.Together])
}

// together retires blocks by one request.
func (f *ledgerFile) together(s *openSet, ids []string) error {
	// A request lists its blocks by rank.
	slices.SortFunc(ids, func(a, b string) int {
		first, _ := s.Get(a)
		second, _ := s.Get(b)
		return cmp.Compare(first.Position.Offset, second.Position.Offset)
	})
	since := timing()
	var growth *receipt.Growth
	var records []receipt.Record
	for few := range slices.Chunk(ids, receipt.MaxItems) {
		left, err := s.RetireTogether(few, nil)
		if err != nil {
			return err
		}
		if left != nil {
			records = append(records, receipt.Record{Leaf: left.AppendBinary(nil), Change: left.Change})
		}
	}
	if records != nil {
		head, err := s.store.LogHead()
		if err == nil {
			growth, err = s.key.Grow(head.Size, s.store, records)
		}
		if err != nil {
			return err
		}
	}
	took := since()
	save, err := s.save(growth)
	if err != nil {
		return err
	}
	return f.report("together", []spent{took}, func(r *Result) {
		r.set("blocks_together", float64(f.Together))
		r.set("save_seconds", save.wall.Seconds())
		if save.cpu > 0 {
			r.set("cpu_save_seconds", save.cpu.Seconds())
		}
	})
}

// proof is the file with the last receipt. It stays the same while the log grows.
func (s *openSet) proof() ([]byte, error) {
	head, err := s.store.LogHead()
	if err != nil {
		return nil, err
	}
	record, err := s.store.Receipt(head.Size - 1)
	if err != nil {
		return nil, err
	}
	return s.key.Prove(head.Size-1, record, s.store)
}

// ratioOf is the processor time of one over that of another, or the time by the clock.
func ratioOf(a, b spent) float64 {
	if a.cpu > 0 && b.cpu > 0 {
		return a.cpu.Seconds() / b.cpu.Seconds()
	}
	return a.wall.Seconds() / b.wall.Seconds()
}

func medianWall(all []spent) float64 {
	var seconds []float64
	for _, s := range all {
		seconds = append(seconds, s.wall.Seconds())
	}
	return median(seconds)
}

// report adds the result of a part, if it is chosen. all are the times of single operations.
func (f *ledgerFile) report(part string, all []spent, more func(*Result)) error {
	if !f.wants(part) {
		return nil
	}
	r := Result{Benchmark: "ledger", Parameters: []Parameter{
		{"part", part}, {"receipts", f.key != ""}, {"blocks", f.Blocks}, {"features", f.Features}, {"rows", f.BlockRows},
	}}
	var sum spent
	for _, s := range all {
		sum.add(s)
	}
	r.Samples = []Sample{{Ops: int64(len(all)), Seconds: sum.wall.Seconds()}}
	for _, clock := range []struct {
		prefix string
		of     func(spent) time.Duration
	}{{"", func(s spent) time.Duration { return s.wall }}, {"cpu_", func(s spent) time.Duration { return s.cpu }}} {
		sorted := slices.SortedFunc(slices.Values(all), func(a, b spent) int { return cmp.Compare(clock.of(a), clock.of(b)) })
		at := func(i int) float64 { return clock.of(sorted[i]).Seconds() }
		switch n := len(sorted); {
		case clock.of(sum) == 0: // not known here
		case n == 1:
			r.set(clock.prefix+"seconds", at(0))
		default:
			r.set(clock.prefix+"median_seconds", at(n/2))
			r.set(clock.prefix+"tail_seconds", at(n*99/100))
			r.set(clock.prefix+"worst_seconds", at(n-1))
		}
	}
	more(&r)
	return f.run.Add(r)
}
