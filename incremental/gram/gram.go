// Package gram computes the sums of a block for each of its classes: Σv, Σ v(x−c) and
// Σ v(x−c)(x−c)', in one pass over the rows.
//
// # The canonical order
//
// The sums are float64, and their bits are part of the contract: every
// implementation computes the same bits on every processor, so a model does not
// depend on where it was computed. For the rows i = 0, 1, … of the class that
// have a weight v > 0, in the order of the block, with d = x − c and u = v·d
// (u = d without weights), each rounded to float64:
//
//   - rows are summed in stretches of 256. Row i of a stretch goes to lane
//     i mod 8. Each lane begins at zero and adds its rows in order;
//   - a lane of Σv(x−c) is a ← a + u_j; of Σv(x−c)(x−c)', for j ≥ k,
//     a ← FMA(u_j, d_k, a); of Σv, a ← a + v;
//   - at a stretch's end the lanes are added as
//     ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)), the order in which halving a
//     vector of eight adds them, and the result is added to the sum, which
//     begins at zero.
//
// A stretch is a tile: 256 rows of the class, packed as float64, stay in cache
// while the accumulators of a few columns by a few columns are in registers.
// Because a stretch ends in a plain sum, no lanes are kept in memory from tile
// to tile; for wide blocks that would cost more than the arithmetic. And the
// error grows with m/256 instead of m/8.
//
// # Products with a vector
//
// AddProducts and AddDots multiply an m×n matrix of columns, less an origin, and its
// transpose by a vector, for searches that go row by row. Their own comments state their
// canonical order, which has no fused operation. Slices whose lengths do not match
// panic. Several goroutines may divide the rows: products of rows do not depend on each
// other, and sums of each part, added in a fixed order, have the same bits for any number
// of goroutines.
package gram

import (
	"context"
	"fmt"
	"math"
)

const (
	// lanes is the number of interleaved partial sums: one AVX-512 vector.
	lanes = 8
	// lineRows is the number of rows that kernels sum at a time: a cache line of
	// float32.
	lineRows = 2 * lanes
	// stretch is the number of rows of a tile, which are summed in lanes.
	stretch = 256
	// tileStride is the distance between a tile's columns, in numbers. It is no
	// power of two, which would put all columns into the same cache sets.
	tileStride = stretch + lanes
)

// Sums are the sums of one class.
type Sums struct {
	Rows   int       // rows of weight > 0; without rows the rest is zero or empty
	Weight float64   // Σv
	S      []float64 // Σv(x−c), n
	Cross  []float64 // Σv(x−c)(x−c)', packed lower triangle
}

// PackedLen is the length of a packed lower triangle of order n. Entry (j, k),
// j ≥ k, is at PackedLen(j)+k.
func PackedLen(n int) int { return n * (n + 1) / 2 }

// A Kernel holds the working memory of Sum. It is not safe for concurrent use; each
// goroutine needs its own.
type Kernel struct {
	variant *variant        // nil: the fastest on this processor
	tile    []float64       // d: n columns of stride tileStride, and one of v
	scaled  []float64       // u, if there are weights
	origin  []float64       // c, and 0 for v
	fuse    bool            // variant.fused sums the columns
	done    <-chan struct{} // closed: stop; nil: never
	sorter  sorter
	dealer  dealer
	ones    ones
}

// A variant is one implementation. All variants compute the same bits.
type variant struct {
	name string
	// missing names a feature that the variant needs and the processor lacks.
	missing string
	// accumulate adds a tile's sums: see the function of that name.
	accumulate func(s, cross, left, right []float64, n, rows int)
	// pack writes rows from to to−1 of the columns, less their origins, to the
	// columns of a tile.
	pack func(tile []float64, columns []Column, from, to int, c []float64)
	// fused, if any, is pack and accumulate in one, for 1 to a stretch of
	// unweighted rows of columns that isFused accepts.
	fused   func(sum *Sums, tile []float64, columns []Column, from, rows int, c []float64)
	isFused func(columns []Column) bool
	// gather writes the given rows of a column, less an origin, to the front of dst.
	gather func(dst []float64, c Column, rows []int32, origin float64)
	// deal, if any, is sumSorted for up to dealtClasses classes, and faster.
	deal         func(k *Kernel, sums []Sums, columns []Column, codes []int32, weights []float64)
	dealtClasses int
	// scale, if any, writes groups·8 rows of count columns of a tile, each times its row's weight.
	scale func(scaled, tile, weights *float64, count, groups int)
	// products are kernels for AddProducts and AddDots, of float32 and of float64.
	products [2]kindProducts
	// perTerm is the number of products that accumulate makes in the time of one term of a one.
	perTerm int
}

var reference = variant{name: "reference", accumulate: accumulate, pack: packColumns, gather: gatherColumn, perTerm: 2}

// NewReference returns a Kernel that computes in pure Go, by the specification, on any
// processor. Tests and benchmarks compare with it.
func NewReference() *Kernel { return &Kernel{variant: &reference} }

// Sum computes the sums of each class of a block. It overwrites sums and reuses the
// slices in it that are large enough. To keep a result, pass cleared sums for the next
// block.
//
// columns are the n features of m rows. codes[i], from 0 to len(sums)−1, is the class of
// row i. weights holds a finite weight ≥ 0 for each row (nil: 1 each); rows of weight 0
// are ignored. c is the origin (n numbers). NaN and infinities propagate to the sums
// that they are part of, but for products with a zero of a column of 0 and 1. Lengths that do
// not match and codes out of range panic.
//
// The cost is m·n(n+1)/2 fused multiply-adds. Unweighted columns of 0 and 1 with origin 0 that
// have few ones cost less: one addition for each pair of columns that have a one in a row. The
// working memory is a tile of 2 KB per column, and with few classes about 4 KB per column and
// class.
func (k *Kernel) Sum(sums []Sums, columns []Column, codes []int32, weights, c []float64) {
	k.done = nil
	k.sum(sums, columns, codes, weights, c)
}

// SumContext is Sum that stops when ctx ends and returns its cause; sums are undefined
// then. It checks ctx once per stretch of a class, and only for at least cancelColumns
// columns, so that the check takes no time beside the sums.
func (k *Kernel) SumContext(ctx context.Context, sums []Sums, columns []Column, codes []int32, weights, c []float64) error {
	k.done = nil
	if len(columns) >= cancelColumns {
		k.done = ctx.Done()
	}
	k.sum(sums, columns, codes, weights, c)
	if k.stopped() {
		return context.Cause(ctx)
	}
	return nil
}

// cancelColumns columns take microseconds per stretch. With fewer, a block of a million
// rows takes less than a second.
const cancelColumns = 32

// stopped reports whether the context has ended.
func (k *Kernel) stopped() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

func (k *Kernel) sum(sums []Sums, columns []Column, codes []int32, weights, c []float64) {
	n, m := len(columns), len(codes)
	if len(c) != n || weights != nil && len(weights) != m {
		panic(fmt.Sprintf("gram: %d weights for %d rows, origin of %d for %d columns", len(weights), m, len(c), n))
	}
	for j := range columns {
		if columns[j].n != m {
			panic(fmt.Sprintf("gram: column %d has %d of %d rows", j, columns[j].n, m))
		}
	}
	if k.variant == nil {
		k.variant = fastest
	}
	for i, old := range sums {
		sums[i] = Sums{S: old.S[:0], Cross: old.Cross[:0]}
	}
	k.fuse = weights == nil && k.variant.fused != nil && k.variant.isFused(columns)
	k.tile = grow(k.tile, (n+1)*tileStride)
	if weights != nil {
		k.scaled = grow(k.scaled, n*tileStride)
	}
	if weights == nil && n >= leastBinary && k.sumBinary(sums, columns, codes, c) {
		return
	}
	k.origin = append(append(k.origin[:0], c...), 0)
	switch {
	case len(sums) == 1 && !anyZero(weights):
		k.sumAll(&sums[0], columns, codes, weights)
	case k.variant.deals(len(sums), n):
		k.variant.deal(k, sums, columns, codes, weights)
	default:
		k.sumSorted(sums, columns, codes, weights)
	}
}

// deals reports whether rows of that many classes are dealt rather than sorted. Beyond
// some number of classes sorting is faster, and rings must not take more than some 32 MB.
func (v *variant) deals(classes, columns int) bool {
	return classes <= v.dealtClasses && classes*columns <= 8192
}

func anyZero(weights []float64) bool {
	for _, v := range weights {
		if v == 0 {
			return true
		}
	}
	return false
}

// sumAll sums rows that are all of one class.
func (k *Kernel) sumAll(sum *Sums, columns []Column, codes []int32, weights []float64) {
	var all int32
	for _, code := range codes {
		all |= code
	}
	if all != 0 {
		panic("gram: a class code is out of range")
	}
	n := len(columns)
	for from := 0; from < len(codes) && !k.stopped(); from += stretch {
		to := min(from+stretch, len(codes))
		if k.fuse {
			k.addFused(sum, columns, from, to-from)
			continue
		}
		if weights != nil {
			copy(k.tile[n*tileStride:], weights[from:to])
		}
		k.variant.pack(k.tile, columns, from, to, k.origin)
		k.addTile(sum, n, to-from, weights != nil)
	}
}

// addFused adds 1 to a stretch of unweighted rows.
func (k *Kernel) addFused(sum *Sums, columns []Column, from, rows int) {
	sum.begin(len(columns))
	sum.Rows += rows
	sum.Weight += float64(rows)
	k.variant.fused(sum, k.tile, columns, from, rows, k.origin)
}

// begin sets the sums of a class that has had no rows so far to zero.
func (sum *Sums) begin(n int) {
	if sum.Rows > 0 {
		return
	}
	cross := PackedLen(n)
	if cap(sum.S) < n || cap(sum.Cross) < cross {
		numbers := make([]float64, n+cross)
		sum.S, sum.Cross = numbers[:n:n], numbers[n:]
		return
	}
	sum.S, sum.Cross = sum.S[:n], sum.Cross[:cross]
	clear(sum.S)
	clear(sum.Cross)
}

// addTile adds the stretch of rows in the tile to a class's sums.
func (k *Kernel) addTile(sum *Sums, n, rows int, weighted bool) {
	sum.begin(n)
	sum.Rows += rows
	columns := n
	if weighted {
		columns++
	}
	padded := pad(k.tile, columns, rows)
	left := k.tile
	if weighted {
		left = k.scaled
		v := k.tile[n*tileStride:][:padded]
		var total [lanes]float64
		for r, x := range v {
			total[r%lanes] += x
		}
		sum.Weight += fold(&total)
		if k.variant.scale != nil {
			k.variant.scale(&left[0], &k.tile[0], &v[0], n, padded/lanes)
		} else {
			scale(left, k.tile, v, n)
		}
	} else {
		sum.Weight += float64(rows)
	}
	k.variant.accumulate(sum.S, sum.Cross, left, k.tile, n, padded)
}

// scale multiplies the rows of n columns of a tile by their weights.
func scale(scaled, tile, weights []float64, n int) {
	for j := range n {
		d, u := tile[j*tileStride:][:len(weights)], scaled[j*tileStride:][:len(weights)]
		for r, x := range d {
			u[r] = float64(weights[r] * x)
		}
	}
}

// pad fills a last tile up with zeros to a multiple of lineRows, and returns its number
// of rows. Adding a zero changes no lane, since a lane is never −0.
func pad(tile []float64, columns, rows int) int {
	padded := wholeLines(rows)
	if rows < padded {
		for j := range columns {
			clear(tile[j*tileStride:][rows:padded])
		}
	}
	return padded
}

// wholeLines rounds rows up to a multiple of lineRows.
func wholeLines(rows int) int { return (rows + lineRows - 1) / lineRows * lineRows }

// The size of a tile for Pack.
const (
	TileRows   = stretch    // rows, at most
	TileStride = tileStride // numbers from one column to the next
)

var zeros [64]float64

// Pack writes rows from to to−1 of columns, TileRows at most, to a tile, as
// float64: row from+r of column j to tile[j·TileStride+r]. It is Column.Copy for many
// columns, with the processor's vectors.
func Pack(tile []float64, columns []Column, from, to int) {
	if from < 0 || to < from || to > from+stretch {
		panic(fmt.Sprintf("gram: rows %d to %d for a tile of %d", from, to, stretch))
	}
	for j := range columns {
		if columns[j].n < to {
			panic(fmt.Sprintf("gram: column %d has %d rows, not %d", j, columns[j].n, to))
		}
	}
	for len(columns) > 0 {
		some := columns[:min(len(columns), len(zeros))]
		_ = tile[(len(some)-1)*tileStride+to-from:]
		fastest.pack(tile, some, from, to, zeros[:len(some)])
		columns = columns[len(some):]
		tile = tile[min(len(some)*tileStride, len(tile)):]
	}
}

// packColumns is the pack of the reference.
func packColumns(tile []float64, columns []Column, from, to int, c []float64) {
	for j := range columns {
		columns[j].pack(tile[j*tileStride:], from, to, c[j])
	}
}

// accumulate adds the sums of the columns of left to s, and the sums of the products of
// left's columns j with right's columns k ≤ j to cross, over a tile's rows, a multiple of
// 16. It is the specification of every faster variant.
func accumulate(s, cross, left, right []float64, n, rows int) {
	p := 0
	for j := range n {
		u := left[j*tileStride:][:rows]
		var l [lanes]float64
		for r := 0; r < len(u); r += lanes {
			x := (*[lanes]float64)(u[r:])
			for i := range l {
				l[i] += x[i]
			}
		}
		s[j] += fold(&l)
		for k := range j + 1 {
			cross[p] += sumProducts(u, right[k*tileStride:][:rows])
			p++
		}
	}
}

func sumProducts(u, d []float64) float64 {
	var l0, l1, l2, l3, l4, l5, l6, l7 float64
	for len(u) >= lanes && len(d) >= lanes {
		x, y := (*[lanes]float64)(u), (*[lanes]float64)(d)
		l0 = math.FMA(x[0], y[0], l0)
		l1 = math.FMA(x[1], y[1], l1)
		l2 = math.FMA(x[2], y[2], l2)
		l3 = math.FMA(x[3], y[3], l3)
		l4 = math.FMA(x[4], y[4], l4)
		l5 = math.FMA(x[5], y[5], l5)
		l6 = math.FMA(x[6], y[6], l6)
		l7 = math.FMA(x[7], y[7], l7)
		u, d = u[lanes:], d[lanes:]
	}
	return fold(&[lanes]float64{l0, l1, l2, l3, l4, l5, l6, l7})
}

func fold(l *[lanes]float64) float64 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// grow returns s with length n and undefined contents.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
