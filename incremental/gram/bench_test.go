package gram

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// BenchmarkSum measures each variant on float32 columns of two classes mixed at random,
// and two baselines on the same rows: reading all numbers and class codes from memory,
// and gonum's Dsyrk, without classes, on rows that are float64 already. Blocks are larger
// than the caches.
func BenchmarkSum(b *testing.B) {
	for _, n := range []int{10, 32, 100, 256, 784} {
		const bytes = 96 << 20
		m := bytes / 4 / n
		r := rand.New(rand.NewPCG(1, 1))
		columns := make([]Column, n)
		words := make([][]uint64, n+1)
		for j := range columns {
			v := make([]float32, m)
			for i := range v {
				v[i] = float32(r.IntN(1<<20)) * 0x1p-10
			}
			columns[j] = ColumnOf(v)
			words[j] = unsafe.Slice((*uint64)(unsafe.Pointer(&v[0])), m/2)
		}
		codes := make([]int32, m)
		for i := range codes {
			codes[i] = int32(r.IntN(2))
		}
		words[n] = unsafe.Slice((*uint64)(unsafe.Pointer(&codes[0])), m/2)
		origin := make([]float64, n)
		for j := range origin {
			origin[j] = columns[j].At(0)
		}
		run := func(what string, rows int, do func()) {
			b.Run(fmt.Sprintf("n=%d/%s", n, what), func(b *testing.B) {
				for b.Loop() {
					do()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
			})
		}
		run("read", m, func() {
			for _, v := range words {
				sink += readAll(v)
			}
		})
		for _, k := range kernels(b) {
			rows := m
			if k.variant.name != fastest.name {
				rows = min(m, 200_000_000/n/n) // it is slow
			}
			some := make([]Column, n)
			for j := range some {
				some[j] = columns[j].Slice(0, rows)
			}
			sums := make([]Sums, 2)
			run(k.variant.name, rows, func() { k.Sum(sums, some, codes[:rows], nil, origin) })
		}
		rows := min(m, 200_000_000/n/n)
		dense := make([]float64, rows*n)
		for j := range columns {
			for i := range rows {
				dense[i*n+j] = columns[j].At(i)
			}
		}
		run("dsyrk", rows, func() {
			c := blas64.Symmetric{N: n, Stride: n, Data: make([]float64, n*n), Uplo: blas.Lower}
			blas64.Syrk(blas.Trans, 1, blas64.General{Rows: rows, Cols: n, Stride: n, Data: dense}, 0, c)
		})
	}
}

var sink uint64

func readAll(v []uint64) (x uint64) {
	var a, b, c, d uint64
	for len(v) >= 8 {
		w := (*[8]uint64)(v)
		a ^= w[0] ^ w[4]
		b ^= w[1] ^ w[5]
		c ^= w[2] ^ w[6]
		d ^= w[3] ^ w[7]
		v = v[8:]
	}
	return a ^ b ^ c ^ d
}
