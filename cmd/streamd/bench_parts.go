//go:build !production

package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"streamd/cmd/streamd/bench"
	"streamd/ingest/wire"
)

// The benchmarks of the program's parts: they need no broker.

// The most that can be asked for: some gigabytes of memory.
const (
	mostFeatures = 4096
	mostClasses  = 1000
	mostRows     = 10_000_000
	mostLive     = 1_000_000
	mostMB       = 1 << 20
	mostThreads  = 1024
)

// threadsFlag is embedded by what can be done on several cores.
type threadsFlag struct {
	Threads []int `default:"1,0" help:"How many do it at a time; 0 is one per core."`
}

func (f *threadsFlag) check() error { return within("threads", 0, mostThreads, f.Threads...) }

// list is the numbers of threads, each once.
func (f *threadsFlag) list() []int {
	var list []int
	for _, threads := range f.Threads {
		if threads == 0 {
			threads = runtime.GOMAXPROCS(0)
		}
		if !slices.Contains(list, threads) {
			list = append(list, threads)
		}
	}
	return list
}

type benchGramCmd struct {
	Features  []int        `default:"10,32,100,256,784" help:"Features of a row."`
	Type      []bench.Type `default:"float32,float64" enum:"float32,float64" help:"Type of the columns: ${enum}."`
	Rows      int          `default:"20000" help:"Rows of a block; of one that is very wide, fewer."`
	Megabytes int          `default:"256" help:"Size of all blocks. They are to stream from memory, so it must be a multiple of the last-level cache."`
	threadsFlag
	benchFlags
}

// Validate implements kong's interface.
func (c *benchGramCmd) Validate() error {
	return cmp.Or(
		within("features", 1, mostFeatures, c.Features...),
		within("rows", 1, mostRows, c.Rows),
		within("megabytes", 1, mostMB, c.Megabytes),
		c.threadsFlag.check(), c.benchFlags.check())
}

func (c *benchGramCmd) Run(ctx context.Context, s *surroundings) error {
	return c.run(ctx, s, bench.Gram{
		Features: c.Features, Types: c.Type, Threads: c.list(), Rows: c.Rows, Bytes: c.Megabytes << 20,
	}.Measure)
}

type benchWireCmd struct {
	Format   []string   `default:"arrow,json,csv,libsvm" enum:"arrow,json,csv,libsvm" help:"Formats: ${enum}."`
	Features []int      `default:"10" help:"Features of a row."`
	Type     bench.Type `default:"float32" enum:"float32,float64" help:"Type of the numbers: ${enum}."`
	Rows     int        `default:"20000" help:"Rows of a payload."`
	threadsFlag
	benchFlags
}

// Validate implements kong's interface.
func (c *benchWireCmd) Validate() error {
	return cmp.Or(
		within("features", 1, mostFeatures, c.Features...),
		within("rows", 1, mostRows, c.Rows),
		c.threadsFlag.check(), c.benchFlags.check())
}

func (c *benchWireCmd) Run(ctx context.Context, s *surroundings) error {
	var formats []wire.Format
	for _, name := range c.Format {
		formats = append(formats, formatOf(name))
	}
	return c.run(ctx, s, bench.Wire{
		Formats: formats, Features: c.Features, Type: c.Type, Threads: c.list(), Rows: c.Rows,
	}.Measure)
}

type benchSolveCmd struct {
	Features []int `default:"10,100,784" help:"Features."`
	Classes  []int `default:"2,10" help:"Classes: of two there is one plane, of more one each."`
	benchFlags
}

// Validate implements kong's interface.
func (c *benchSolveCmd) Validate() error {
	return cmp.Or(
		within("features", 1, mostFeatures, c.Features...),
		within("classes", 2, mostClasses, c.Classes...),
		c.benchFlags.check())
}

func (c *benchSolveCmd) Run(ctx context.Context, s *surroundings) error {
	return c.run(ctx, s, bench.Solve{Features: c.Features, Classes: c.Classes}.Measure)
}

type benchRetireCmd struct {
	Features []int `default:"10,100" help:"Features."`
	Rows     []int `default:"1000,10000,100000,1000000" help:"Rows of a block."`
	benchFlags
}

// Validate implements kong's interface.
func (c *benchRetireCmd) Validate() error {
	return cmp.Or(
		within("features", 1, mostFeatures, c.Features...),
		within("rows", 1, mostRows, c.Rows...),
		c.benchFlags.check())
}

func (c *benchRetireCmd) Run(ctx context.Context, s *surroundings) error {
	return c.run(ctx, s, bench.Retire{Features: c.Features, Rows: c.Rows}.Measure)
}

type benchSnapshotCmd struct {
	Features []int  `default:"10,100" help:"Features."`
	Blocks   []int  `default:"100,1000" help:"Live blocks."`
	Changed  int    `default:"10" help:"Blocks that a save replaces."`
	Dir      string `type:"existingdir" placeholder:"DIR" help:"Where to put the files. By default where temporary files go, which may be in memory."`
	benchFlags
}

// Validate implements kong's interface.
func (c *benchSnapshotCmd) Validate() error {
	return cmp.Or(
		within("features", 1, mostFeatures, c.Features...),
		within("blocks", 1, mostLive, c.Blocks...),
		within("changed", 1, mostLive, c.Changed),
		c.benchFlags.check())
}

func (c *benchSnapshotCmd) Run(ctx context.Context, s *surroundings) error {
	return c.run(ctx, s, bench.Snapshot{
		Features: c.Features, Blocks: c.Blocks, Changed: c.Changed, Dir: c.Dir,
	}.Measure)
}

type benchPredictCmd struct {
	Features []int      `default:"10,100" help:"Features of a row."`
	Classes  int        `default:"2" help:"Classes of the model."`
	Type     bench.Type `default:"float32" enum:"float32,float64" help:"Type of the numbers: ${enum}."`
	Rows     []int      `default:"1,10000" help:"Rows of a request."`
	Format   string     `default:"arrow" enum:"arrow,json,csv,libsvm" help:"Format of a request: ${enum}."`
	threadsFlag
	benchFlags
}

// Validate implements kong's interface.
func (c *benchPredictCmd) Validate() error {
	return cmp.Or(
		within("features", 1, mostFeatures, c.Features...),
		within("classes", 2, mostClasses, c.Classes),
		within("rows", 1, mostRows, c.Rows...),
		c.threadsFlag.check(), c.benchFlags.check())
}

func (c *benchPredictCmd) Run(ctx context.Context, s *surroundings) error {
	return c.run(ctx, s, bench.Predict{
		Features: c.Features, Classes: c.Classes, Type: c.Type, Rows: c.Rows, Format: formatOf(c.Format), Threads: c.list(),
	}.Measure)
}
