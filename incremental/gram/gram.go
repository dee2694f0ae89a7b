// Package gram computes the sums that a block leaves behind for one of its
// classes: Σv, Σ v(x−c) and Σ v(x−c)(x−c)', in one pass over the rows.
//
// # The canonical order
//
// The sums are float64, and their bits are part of the contract: every
// implementation gives the same ones on every processor, so a model does not
// depend on where it was computed. For the rows i = 0, 1, … of the class, in
// the order of the block, with d = x − c and u = v·d (u = d without weights),
// each rounded to float64:
//
//   - row i goes to lane i mod 8, and each lane adds its rows in their order;
//   - a lane of Σv(x−c) is a ← a + u_j; of Σv(x−c)(x−c)', for j ≥ k,
//     a ← FMA(u_j, d_k, a); of Σv, a ← a + v;
//   - the lanes are added as ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)), the order
//     in which halving a vector of eight adds them.
//
// Rows are packed into tiles of float64 that stay in cache; packing subtracts
// c, converts and selects, and is the only copy that is made of the data.
package gram

import (
	"fmt"
	"math"
)

// lanes is the number of interleaved partial sums: one AVX-512 vector.
const lanes = 8

// A Kernel holds the working memory of Sum. It is not safe for concurrent
// use: have one per goroutine.
type Kernel struct {
	tile    []float64 // d: n columns of stride tileStride
	scaled  []float64 // u, where there are weights
	weights []float64 // v
	cross   []float64 // n(n+1)/2 × 8
	first   []float64 // n × 8
}

// PackedLen is the length of a packed lower triangle of order n: entry (j, k),
// j ≥ k, is at PackedLen(j)+k.
func PackedLen(n int) int { return n * (n + 1) / 2 }

// Sum computes the sums of the given rows of a block.
//
// columns are the n features; rows are the indices of the class's rows,
// ascending (nil: all rows); weights holds a weight for each row of the block
// (nil: 1 each); c is the origin (n numbers). It overwrites s (n) with
// Σ v(x−c) and cross (PackedLen(n)) with the lower triangle of Σ v(x−c)(x−c)'
// and returns Σv. NaN and infinities pass through to the sums that they are
// part of. The cost is m·n(n+1)/2 fused multiply-adds.
func (k *Kernel) Sum(s, cross []float64, columns []Column, rows []int32, weights, c []float64) (weight float64) {
	n := len(columns)
	if len(s) != n || len(c) != n || len(cross) != PackedLen(n) {
		panic(fmt.Sprintf("gram: sums of %d and %d, origin of %d for %d columns", len(s), len(cross), len(c), n))
	}
	m := len(rows)
	if rows == nil && n > 0 {
		m = columns[0].Len()
	}
	size, stride := tileShape(n)
	k.tile = grow(k.tile, n*stride)
	k.first = zeroed(k.first, n*lanes)
	k.cross = zeroed(k.cross, len(cross)*lanes)
	var total [lanes]float64
	left := k.tile
	if weights != nil {
		k.scaled = grow(k.scaled, n*stride)
		k.weights = grow(k.weights, stride)
		left = k.scaled
	}
	for from := 0; from < m; from += size {
		to := min(from+size, m)
		// A last tile is filled up with zeros: adding a zero leaves every lane
		// as it is, since a lane is never −0.
		padded := (to - from + lanes - 1) / lanes * lanes
		for j := range columns {
			column := k.tile[j*stride:][:padded]
			if rows == nil {
				columns[j].pack(column, from, to, c[j])
			} else {
				columns[j].gather(column, rows[from:to], c[j])
			}
			clear(column[to-from:])
		}
		if weights != nil {
			v := k.weights[:padded]
			if rows == nil {
				copy(v, weights[from:to])
			} else {
				for r, i := range rows[from:to] {
					v[r] = weights[i]
				}
			}
			clear(v[to-from:])
			for r, x := range v {
				total[r%lanes] += x
			}
			for j := range columns {
				d, u := k.tile[j*stride:][:padded], k.scaled[j*stride:][:padded]
				for r, x := range d {
					u[r] = float64(v[r] * x)
				}
			}
		}
		accumulate(k.first, k.cross, left, k.tile, n, stride, padded)
	}
	for j := range s {
		s[j] = fold((*[lanes]float64)(k.first[j*lanes:]))
	}
	for p := range cross {
		cross[p] = fold((*[lanes]float64)(k.cross[p*lanes:]))
	}
	if weights == nil {
		return float64(m)
	}
	return fold(&total)
}

func fold(l *[lanes]float64) float64 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// tileShape gives a tile's rows and the distance between its columns, in
// numbers: as many rows as keep the tile within half of a usual first-level
// cache, within reason. The distance is no power of two, which would put all
// columns into the same cache sets.
func tileShape(n int) (rows, stride int) {
	const budget = 24 << 10 / 8
	rows = min(max(budget/max(n, 1)/lanes*lanes, 8*lanes), 512)
	return rows, rows + lanes
}

// accumulate adds a tile of rows, a multiple of 8, to the lanes: to first the
// columns of left, to cross the products of left's columns j with right's
// columns k ≤ j. This is the specification of every faster variant.
func accumulate(first, cross, left, right []float64, n, stride, rows int) {
	p := 0
	for j := range n {
		u := left[j*stride:][:rows]
		l := (*[lanes]float64)(first[j*lanes:])
		for r := 0; r < len(u); r += lanes {
			x := (*[lanes]float64)(u[r:])
			for i := range l {
				l[i] += x[i]
			}
		}
		for k := range j + 1 {
			addProducts((*[lanes]float64)(cross[p*lanes:]), u, right[k*stride:][:rows])
			p++
		}
	}
}

func addProducts(l *[lanes]float64, u, d []float64) {
	l0, l1, l2, l3, l4, l5, l6, l7 := l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7]
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
	l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7] = l0, l1, l2, l3, l4, l5, l6, l7
}

func grow(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}

func zeroed(s []float64, n int) []float64 {
	s = grow(s, n)
	clear(s)
	return s
}
