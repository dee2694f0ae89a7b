package bench

import (
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

// Snapshot measures the file in which the daemon keeps its live blocks: saving
// a change of a few blocks, opening, and verifying all of it.
//
// The baseline of a save is to write as many bytes to another file there and to
// make them durable, once (write_ratio); that of the others is to read the whole
// file, from the system's cache as they do (read_ratio). Opening leaves the
// summaries unread, so that it can take less.
type Snapshot struct {
	Features []int
	Blocks   []int  // live
	Changed  int    // blocks that a save replaces
	Dir      string // for the files; empty: that of temporary files
}

// Measure runs all combinations. An op is a save, an opening, a verification.
func (c Snapshot) Measure(ctx context.Context, plan Plan, report *Report) error {
	cases := len(c.Features) * len(c.Blocks)
	for i, n := range c.Features {
		for j, blocks := range c.Blocks {
			if err := c.measure(ctx, plan, i*len(c.Blocks)+j, cases, report, n, blocks); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Snapshot) measure(ctx context.Context, plan Plan, at, cases int, report *Report, n, blocks int) (err error) {
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
	operations := []struct {
		name         string
		do, baseline func(context.Context, time.Duration) (Sample, error)
		ratio        string
	}{
		{"save", f.save, loop(f.write), "write_ratio"},
		{"open", loop(f.open), loop(f.read), "read_ratio"},
		{"verify", loop(func() (int64, error) { return f.verify(ctx) }), loop(f.read), "read_ratio"},
	}
	for i, o := range operations {
		r := Result{Benchmark: "snapshot", Parameters: []Parameter{
			{"operation", o.name}, {"features", n}, {"blocks", blocks}, {"changed", f.changed},
		}}
		plan := plan.Case(at*len(operations)+i, cases*len(operations), r.name())
		samples, err := plan.alternate(ctx, side{o.name, o.do}, side{"baseline", o.baseline})
		if err != nil {
			return err
		}
		r.Samples = samples[0]
		r.add("seconds", func(i int) float64 { return samples[0][i].nsPerOp() / 1e9 })
		r.set("file_bytes", float64(f.info.FileBytes))
		r.set("written_bytes", float64(f.info.Bytes)) // by the last save
		r.add(o.ratio, func(i int) float64 { return samples[0][i].nsPerOp() / samples[1][i].nsPerOp() })
		if err := report.Add(r); err != nil {
			return err
		}
		if err := f.close(); err != nil { // after saving: the others open it for themselves
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
	others    [2]*incremental.Summary // what blocks are replaced by, in turn
	next      int                     // number of the replacement to come
	info      snapshot.SaveInfo       // of the last save
	buffer    []byte                  // of the baselines
}

var snapshotSettings = snapshot.Settings{Topic: "bench", Unit: "message"}

func (f *snapshotFile) fill(n, blocks int) (err error) {
	f.store, _, err = snapshot.Open(f.path, snapshotSettings)
	if err != nil {
		return err
	}
	f.state = incremental.NewState(incremental.DefaultFeatures(n))
	const atOnce = 1000 // the changes of a save have to fit into memory
	var put changes
	const rows = 100
	var z incremental.Summariser
	// Numbers of full length: a snapshot is as large as one of other data.
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

// changes are blocks that a save puts.
type changes struct {
	blocks    []snapshot.Block
	summaries []snapshot.Summary
}

func (c *changes) add(i int, s *incremental.Summary) {
	e := entry(i, s)
	c.blocks = append(c.blocks, snapshot.Block{Entry: e})
	c.summaries = append(c.summaries, snapshot.Summary{ID: e.ID, Summary: s})
}

func (f *snapshotFile) put(c changes) (err error) {
	f.info, err = f.store.Save(snapshot.Change{
		Put: c.blocks, Spaces: []snapshot.SpaceChange{{State: f.state, Put: c.summaries}}, SavedAt: time.Now(),
	})
	return err
}

// save replaces blocks, in rotation; what it times is the save alone.
func (f *snapshotFile) save(ctx context.Context, d time.Duration) (sample Sample, err error) {
	for took := time.Duration(0); sample.Ops == 0 || took < d; sample.Seconds = took.Seconds() {
		if err := ctx.Err(); err != nil {
			return Sample{}, err
		}
		var put changes
		for range f.changed {
			at := f.next % len(f.live)
			other := f.others[f.next/len(f.live)%2] // not the one of the last time round
			f.next++
			f.state.Remove(f.live[at])
			f.state.Add(other)
			f.live[at] = other
			put.add(at, other)
		}
		began := time.Now()
		if err := f.put(put); err != nil {
			return Sample{}, err
		}
		took += time.Since(began)
		sample.Ops++
		sample.Rows += int64(f.changed) * put.blocks[0].Entry.Rows
	}
	return sample, nil
}

// write makes as many bytes as a save durable.
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
	if err := file.Sync(); err != nil {
		return 0, err
	}
	return f.rows(), nil
}

// read reads the file, a piece at a time.
func (f *snapshotFile) read() (int64, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	f.buffer = slices.Grow(f.buffer[:0], 1<<20)[:1<<20] // at a time
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
