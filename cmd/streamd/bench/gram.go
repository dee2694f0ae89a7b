package bench

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Gram measures the kernel: the sums of both classes of a block, whose rows are of either
// class at random. Blocks stream from memory: together they are larger than the last-level
// cache, and are read over and over. With several threads each has its share of the blocks.
//
// The baselines run on as many threads. They are reading the same bytes, values and class
// codes, with the widest loads (read_ratio); fused multiply-adds between registers, where
// peak_share counts the kernel's useful ones, n(n+1)/2 for each row, each two operations; the
// kernel's specification in Go (purego_ratio); and gonum's Dsyrk on float64 rows of one class,
// which are packed and converted beforehand (gonum_ratio). In a program without assembly,
// reading is by words and the peak is that of math.FMA, one number at a time.
type Gram struct {
	Features  []int  `default:"10,32,100,256,784" help:"Features of a row."`
	Type      []Type `default:"float32,float64" enum:"float32,float64" help:"Type of the columns: ${enum}."`
	Rows      int    `default:"20000" help:"Rows of a block. A very wide block has fewer."`
	Megabytes int    `default:"256" help:"Size of all blocks. Make it a multiple of the last-level cache, so that blocks stream from memory."`
	Threads
	Timed
}

// Check implements Benchmark.
func (c Gram) Check() error {
	return cmp.Or(
		Within("features", 1, maxFeatures, c.Features...), Within("rows", 1, maxRows, c.Rows),
		Within("megabytes", 1, maxMB, c.Megabytes), c.Threads.check(), c.Timed.check())
}

// A row takes n² multiply-adds. These bound the multiply-adds of a block and, as they are
// slow, of an operation of baselines in Go, so that a round is not much longer than it should
// be.
const (
	maxBlockWork = 1 << 30
	maxPieceWork = 1 << 26
)

const codeSize = 4 // bytes of a row's class code

// rowsWithin returns the rows of n features that take so many multiply-adds, but enough to
// fill some of the kernel's tiles.
func rowsWithin(multiplyAdds, n int) int { return max(multiplyAdds/gram.PackedLen(n), 4*stretch) }

func (c Gram) rows(n int) int { return min(c.Rows, rowsWithin(maxBlockWork, n)) }

// Measure implements Benchmark. An operation is a block.
func (c Gram) Measure(ctx context.Context, run *Run) error {
	run.plan(c.Repeats, c.Time, len(c.Features)*len(c.Type)*len(c.list()))
	for _, t := range c.Type {
		newStream := c.streams(t, c.Megabytes<<20)
		for _, n := range c.Features {
			for _, threads := range c.list() {
				streams := make([]*stream, threads)
				for i := range streams {
					streams[i] = newStream(i, threads, c.rows(n), n)
				}
				if err := c.measure(ctx, run, t, n, streams); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c Gram) measure(ctx context.Context, run *Run, t Type, n int, streams []*stream) error {
	rows, perRow, goroutines := c.rows(n), n*t.size()+codeSize, len(streams)
	few := min(rows, rowsWithin(maxPieceWork, n))
	origin := make([]float64, n)
	sides := []side{
		parallel("kernel", goroutines, func(i int) work {
			sums := make([]gram.Sums, 2)
			var k gram.Kernel
			return func() (int64, error) {
				b := streams[i].next()
				k.Sum(sums, b.Columns, b.Codes, nil, origin)
				return int64(rows), nil
			}
		}),
		parallel("read", goroutines, func(i int) work {
			return func() (int64, error) {
				for _, b := range streams[i].nextBytes() {
					readBytes(b)
				}
				return int64(rows), nil
			}
		}),
		parallel("gonum", goroutines, func(i int) work {
			matrix := blas64.General{Rows: few, Cols: n, Stride: n, Data: normals[float64](rand.New(rand.NewPCG(7, uint64(i))), few*n)}
			square := blas64.Symmetric{N: n, Stride: n, Data: make([]float64, n*n), Uplo: blas.Lower}
			return func() (int64, error) {
				blas64.Syrk(blas.Trans, 1, matrix, 0, square)
				return int64(few), nil
			}
		}),
		parallel("multiply-add", goroutines, func(int) work {
			return func() (int64, error) { return multiplyAdd(100_000), nil }
		}),
		parallel("pure Go", goroutines, func(i int) work {
			sums, pureGo := make([]gram.Sums, 2), gram.NewReference()
			return func() (int64, error) {
				b := slice(streams[i].next(), 0, few)
				pureGo.Sum(sums, b.Columns, b.Codes, nil, origin)
				return int64(few), nil
			}
		}),
	}
	r := Result{Benchmark: "gram", Parameters: []Parameter{
		{"features", n}, {"type", string(t)}, {"threads", goroutines}, {"rows", rows},
	}}
	return run.measure(ctx, r, sides, func(r *Result, samples [][]Sample) {
		flops := func(i int) float64 { return 2 * float64(gram.PackedLen(n)) * samples[0][i].rowsPerSecond() }
		peak := func(i int) float64 { return 2 * samples[3][i].rowsPerSecond() }
		r.addRows()
		r.addBytes(float64(perRow))
		r.add("gflop_per_second", func(i int) float64 { return flops(i) / 1e9 })
		r.addRatio("read_ratio", Sample.nsPerRow, samples[0], samples[1])
		r.add("peak_gflop_per_second", func(i int) float64 { return peak(i) / 1e9 })
		r.add("peak_share", func(i int) float64 { return flops(i) / peak(i) })
		r.addRatio("purego_ratio", Sample.nsPerRow, samples[4], samples[0])
		r.addRatio("gonum_ratio", Sample.nsPerRow, samples[2], samples[0])
	})
}

// stream is a thread's share of the blocks. A block is one piece of memory, column after
// column.
type stream struct {
	blocks []*incremental.Block
	bytes  [][2][]byte // of the blocks' columns, and of their codes
	at     int
}

// streams returns a function that cuts values of about so many bytes into blocks, and returns
// the share of a thread.
func (c Gram) streams(t Type, bytes int) func(thread, threads, rows, n int) *stream {
	numbers, mostRows := bytes/t.size(), 0
	for _, n := range c.Features {
		numbers = max(numbers, slices.Max(c.list())*c.rows(n)*n)
	}
	for _, n := range c.Features {
		mostRows = max(mostRows, numbers/n)
	}
	r := rand.New(rand.NewPCG(8, 1))
	codes := make([]int32, mostRows)
	for i := range codes {
		codes[i] = int32(r.Uint32() & 1)
	}
	if t == Float32 {
		return streamsOf(normals[float32](r, numbers), codes)
	}
	return streamsOf(normals[float64](r, numbers), codes)
}

func streamsOf[T float32 | float64](values []T, codes []int32) func(thread, threads, rows, n int) *stream {
	return func(thread, threads, rows, n int) *stream {
		s := &stream{}
		for i := thread; (i+1)*rows*n <= len(values); i += threads {
			b := &incremental.Block{Codes: codes[i*rows:][:rows]}
			for j := range n {
				b.Columns = append(b.Columns, gram.ColumnOf(values[(i*n+j)*rows:][:rows]))
			}
			s.blocks = append(s.blocks, b)
			s.bytes = append(s.bytes, [2][]byte{bytesOf(values[i*n*rows:][:n*rows]), bytesOf(b.Codes)})
		}
		return s
	}
}

func bytesOf[T float32 | float64 | int32](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

func (s *stream) next() *incremental.Block {
	s.at = (s.at + 1) % len(s.blocks)
	return s.blocks[s.at]
}

func (s *stream) nextBytes() [2][]byte {
	s.at = (s.at + 1) % len(s.bytes)
	return s.bytes[s.at]
}
