package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"streamd/incremental"
	"streamd/snapshot"
)

// Snapshot measures the file of the daemon's live blocks: saving a change of a few blocks,
// opening, and verifying all of it.
//
// The baseline of a save writes as many bytes to another file there and makes them durable,
// once (write_ratio). The baseline of the others reads the whole file, from the system's
// cache as they do (read_ratio). Opening does not read the summaries, so it can take less.
type Snapshot struct {
	Features []int  `default:"10,100" help:"Features."`
	Blocks   []int  `default:"100,1000" help:"Live blocks."`
	Changed  int    `default:"10" help:"Blocks that a save replaces."`
	Dir      string `type:"existingdir" placeholder:"DIR" help:"Folder of the files. By default that of temporary files, which may be in memory."`
	Timed
}

// Check implements Benchmark.
func (c Snapshot) Check() error {
	return cmp.Or(
		Within("features", 1, maxFeatures, c.Features...), Within("blocks", 1, maxLive, c.Blocks...),
		Within("changed", 1, maxLive, c.Changed), c.Timed.check())
}

// Measure implements Benchmark. An operation is a save, an opening or a verification.
func (c Snapshot) Measure(ctx context.Context, run *Run) error {
	const operations = 3
	run.plan(c.Repeats, c.Time, len(c.Features)*len(c.Blocks)*operations)
	for _, n := range c.Features {
		for _, blocks := range c.Blocks {
			if err := c.measure(ctx, run, n, blocks); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Snapshot) measure(ctx context.Context, run *Run, n, blocks int) (err error) {
	dir, err := os.MkdirTemp(c.Dir, "streamd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f := snapshotFile{dir: dir, path: filepath.Join(dir, "streamd.db"), changed: min(c.Changed, blocks)}
	defer f.close()
	if err := f.fill(n, blocks); err != nil {
		return err
	}
	for _, operation := range []struct {
		ratio string
		sides []side
	}{
		{"write_ratio", []side{timed("save", f.save), loop("baseline", f.write)}},
		{"read_ratio", []side{loop("open", f.open), loop("baseline", f.read)}},
		{"read_ratio", []side{loop("verify", func() (int64, error) { return f.verify(ctx) }), loop("baseline", f.read)}},
	} {
		r := Result{Benchmark: "snapshot", Parameters: []Parameter{
			{"operation", operation.sides[0].name}, {"features", n}, {"blocks", blocks}, {"changed", f.changed},
		}}
		err := run.measure(ctx, r, operation.sides, func(r *Result, samples [][]Sample) {
			r.addSeconds()
			r.set("file_bytes", float64(f.info.FileBytes))
			r.set("written_bytes", float64(f.info.Bytes)) // by the last save
			r.addRatio(operation.ratio, Sample.nsPerOp, samples[0], samples[1])
		})
		// The operations after the save open the file themselves.
		if err := errors.Join(err, f.close()); err != nil {
			return err
		}
	}
	return nil
}

// snapshotFile is a snapshot of live blocks, some of which change.
type snapshotFile struct {
	dir, path string
	changed   int
	store     *snapshot.Store // nil: closed
	state     *incremental.State
	live      []*incremental.Summary
	others    [2]*incremental.Summary // they replace live blocks, in turn
	next      int                     // number of the next replacement
	info      snapshot.SaveInfo       // of the last save
	buffer    []byte                  // of the baselines
}

var snapshotSettings = snapshot.Settings{Topic: benchTopic, Unit: "message"}

func (f *snapshotFile) fill(n, blocks int) (err error) {
	f.store, _, err = snapshot.Open(f.path, snapshotSettings)
	if err != nil {
		return err
	}
	f.state = incremental.NewState(incremental.DefaultFeatures(n))
	const rows, atOnce = 100, 1000 // the changes of a save must fit into memory
	var put changes
	var z incremental.Summariser
	// Values of full length make the snapshot as large as one of other data.
	all := normalBlock(rand.New(rand.NewPCG(4, uint64(n))), Float32, rows+blocks+len(f.others), n, 2)
	for i := range blocks + len(f.others) {
		summary, err := z.Summarise(slice(all, i, i+rows))
		if err != nil {
			return fmt.Errorf("sum up a block: %w", err)
		}
		if i >= blocks {
			f.others[i-blocks] = summary
			continue
		}
		f.live = append(f.live, summary)
		f.state.Add(summary)
		put.add(i, summary)
		if len(put.blocks) == atOnce || i == blocks-1 {
			if err := f.put(put); err != nil {
				return err
			}
			put = changes{}
		}
	}
	return nil
}

// changes are the blocks that a save puts.
type changes struct {
	blocks    []snapshot.Block
	summaries []snapshot.Summary
}

func (c *changes) add(i int, s *incremental.Summary) {
	e := entry(i, s.Rows())
	c.blocks = append(c.blocks, snapshot.Block{Entry: e})
	c.summaries = append(c.summaries, snapshot.Summary{ID: e.ID, Summary: s})
}

func (f *snapshotFile) put(c changes) (err error) {
	f.info, err = f.store.Save(snapshot.Change{
		Put: c.blocks, Spaces: []snapshot.SpaceChange{{State: f.state, Put: c.summaries}}, SavedAt: time.Now(),
	})
	return err
}

// save replaces blocks, in rotation. Only the save is timed.
func (f *snapshotFile) save() (ops, rows int64, took time.Duration, err error) {
	var put changes
	for range f.changed {
		at := f.next % len(f.live)
		other := f.others[f.next/len(f.live)%2] // not the one of the last rotation
		f.next++
		f.state.Remove(f.live[at])
		f.state.Add(other)
		f.live[at] = other
		put.add(at, other)
	}
	began := time.Now()
	err = f.put(put)
	return 1, int64(f.changed) * put.blocks[0].Entry.Rows, time.Since(began), err
}

// write writes as many bytes as a save, and makes them durable.
func (f *snapshotFile) write() (int64, error) {
	file, err := os.Create(filepath.Join(f.dir, "baseline"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	f.buffer = slices.Grow(f.buffer[:0], int(f.info.Bytes))[:f.info.Bytes]
	if _, err := file.Write(f.buffer); err != nil {
		return 0, err
	}
	return f.rows(), file.Sync()
}

// read reads the file, piece by piece.
func (f *snapshotFile) read() (int64, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	const piece = 1 << 20
	f.buffer = slices.Grow(f.buffer[:0], piece)[:piece]
	for {
		switch _, err := file.Read(f.buffer); {
		case errors.Is(err, io.EOF):
			return f.rows(), nil
		case err != nil:
			return 0, err
		}
	}
}

func (f *snapshotFile) open() (int64, error) {
	store, contents, err := snapshot.Open(f.path, snapshotSettings)
	if err != nil {
		return 0, err
	}
	if len(contents.Entries) != len(f.live) {
		return 0, fmt.Errorf("open %s: %d blocks of %d", f.path, len(contents.Entries), len(f.live))
	}
	return f.rows(), store.Close()
}

func (f *snapshotFile) verify(ctx context.Context) (int64, error) {
	report, err := snapshot.Verify(ctx, f.path, nil)
	if err != nil {
		return 0, err
	}
	if !report.OK {
		return 0, fmt.Errorf("verify %s: %d damages", f.path, report.Damaged)
	}
	return f.rows(), nil
}

// rows is the number of live rows.
func (f *snapshotFile) rows() int64 { return f.state.Rows() }

// close closes the store, if it is open.
func (f *snapshotFile) close() error {
	if f.store == nil {
		return nil
	}
	err := f.store.Close()
	f.store = nil
	return err
}
