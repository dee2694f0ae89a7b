package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Gram measures the kernel: the sums of both classes of a block whose rows are
// of one or the other at random. Blocks stream from memory: together they are
// larger than the last-level cache, and are gone through over and over. With
// several threads each has its share of the blocks.
//
// Baselines, on as many threads: reading the same bytes, numbers and class
// codes, with the widest loads (read_ratio); fused multiply-adds between
// registers (peak_share counts the kernel's useful ones, n(n+1)/2 per row, each
// two operations); the kernel's specification in Go (purego_ratio); gonum's Dsyrk
// on float64 rows of one class, row by row as it likes them, packed and
// converted already (gonum_ratio). In a program built without assembly, reading
// is by words and the peak is that of math.FMA, one number at a time.
type Gram struct {
	Features []int
	Types    []Type
	Threads  []int
	Rows     int // of a block; fewer where it is so wide that it would take too long
	Bytes    int // of all blocks' columns, about
}

// What takes n² times as long per row is done by fewer rows at a time, so that
// a round is not much longer than it should be: these bound the multiply-adds
// of a block and, as they are slow, of a piece of the work of baselines in Go.
const (
	maxBlockWork = 1 << 30
	maxPieceWork = 1 << 26
)

const codeSize = 4 // bytes of a row's class code

// rowsWithin is as many rows of n features as are summed in so much work, but
// enough to fill some of the kernel's tiles.
func rowsWithin(work, n int) int { return max(work/gram.PackedLen(n), 4*stretch) }

func (c Gram) rows(n int) int { return min(c.Rows, rowsWithin(maxBlockWork, n)) }

// Measure runs all combinations.
func (c Gram) Measure(ctx context.Context, plan Plan, report *Report) error {
	at, cases := 0, len(c.Features)*len(c.Types)*len(c.Threads)
	for _, t := range c.Types {
		v := c.newValues(t)
		for _, n := range c.Features {
			for _, threads := range c.Threads {
				r := Result{Benchmark: "gram", Parameters: []Parameter{
					{"features", n}, {"type", string(t)}, {"threads", threads}, {"rows", c.rows(n)},
				}}
				if err := c.measure(ctx, plan.Case(at, cases, r.name()), &r, v, n, threads); err != nil {
					return err
				}
				if err := report.Add(r); err != nil {
					return err
				}
				at++
			}
		}
	}
	return nil
}

func (c Gram) measure(ctx context.Context, plan Plan, r *Result, v *values, n, threads int) error {
	rows, perRow := c.rows(n), n*v.t.size()+codeSize
	few := min(rows, rowsWithin(maxPieceWork, n))
	kernel, reference, read := make([]work, threads), make([]work, threads), make([]work, threads)
	dsyrk, peak := make([]work, threads), make([]work, threads)
	for i := range threads {
		s := v.stream(i, threads, rows, n)
		origin := make([]float64, n)
		sums := make([]gram.Sums, 2)
		var k gram.Kernel
		kernel[i] = func() (int64, error) {
			b := s.next()
			k.Sum(sums, b.Columns, b.Codes, nil, origin)
			return int64(rows), nil
		}
		pureGo := gram.NewReference()
		reference[i] = func() (int64, error) {
			b := slice(s.next(), 0, few)
			pureGo.Sum(sums, b.Columns, b.Codes, nil, origin)
			return int64(few), nil
		}
		read[i] = func() (int64, error) {
			for _, b := range s.nextBytes() {
				readBytes(b)
			}
			return int64(rows), nil
		}
		matrix := blas64.General{Rows: few, Cols: n, Stride: n, Data: normals[float64](rand.New(rand.NewPCG(7, uint64(i))), few*n)}
		square := blas64.Symmetric{N: n, Stride: n, Data: make([]float64, n*n), Uplo: blas.Lower}
		dsyrk[i] = func() (int64, error) {
			blas64.Syrk(blas.Trans, 1, matrix, 0, square)
			return int64(few), nil
		}
		peak[i] = func() (int64, error) { return multiplyAdd(100_000), nil }
	}
	samples, err := plan.alternate(ctx,
		side{"kernel", loop(kernel...)},
		side{"read", loop(read...)},
		side{"gonum", loop(dsyrk...)},
		side{"multiply-add", loop(peak...)},
		side{"pure Go", loop(reference...)})
	if err != nil {
		return err
	}
	r.Samples = samples[0]
	perSecond := func(i int) float64 { return 2 * float64(gram.PackedLen(n)) * r.Samples[i].rowsPerSecond() }
	peakPerSecond := func(i int) float64 { return 2 * samples[3][i].rowsPerSecond() }
	r.addRows()
	r.addBytes(float64(perRow))
	r.add("gflop_per_second", func(i int) float64 { return perSecond(i) / 1e9 })
	r.addBound("read_ratio", samples[1])
	r.add("peak_gflop_per_second", func(i int) float64 { return peakPerSecond(i) / 1e9 })
	r.add("peak_share", func(i int) float64 { return perSecond(i) / peakPerSecond(i) })
	r.addSpeedup("purego_ratio", samples[4])
	r.addSpeedup("gonum_ratio", samples[2])
	return nil
}

// values are what blocks are views of.
type values struct {
	t     Type
	f32   []float32
	f64   []float64
	codes []int32
}

func (c Gram) newValues(t Type) *values {
	numbers, mostRows := c.Bytes/t.size(), 0
	for _, n := range c.Features {
		numbers = max(numbers, slices.Max(c.Threads)*c.rows(n)*n)
	}
	for _, n := range c.Features {
		mostRows = max(mostRows, numbers/n)
	}
	r := rand.New(rand.NewPCG(8, 1))
	v := &values{t: t, codes: make([]int32, mostRows)}
	for i := range v.codes {
		v.codes[i] = int32(r.Uint32() & 1)
	}
	switch t {
	case Float32:
		v.f32 = normals[float32](r, numbers)
	case Float64:
		v.f64 = normals[float64](r, numbers)
	}
	return v
}

// stream is a thread's share of the blocks: each is one piece of memory,
// column after column.
type stream struct {
	blocks []*incremental.Block
	bytes  [][2][]byte // of the blocks' columns, and of their codes
	at     int
}

func (v *values) stream(thread, threads, rows, n int) *stream {
	if v.t == Float32 {
		return streamOf(v.f32, v.codes, thread, threads, rows, n)
	}
	return streamOf(v.f64, v.codes, thread, threads, rows, n)
}

func streamOf[T float32 | float64](values []T, codes []int32, thread, threads, rows, n int) *stream {
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
