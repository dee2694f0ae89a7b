package gram

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// rowCounts straddle the lanes and the tiles.
func rowCounts(n int) []int {
	tile, _ := tileShape(n)
	return []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, tile - 1, tile, tile + 1, 2*tile + 13}
}

// specification is the package comment, read literally: one row after another.
func specification(columns []Column, rows []int32, weights, c []float64) (weight float64, s, cross []float64) {
	n := len(columns)
	var total [lanes]float64
	first := make([][lanes]float64, n)
	second := make([][lanes]float64, PackedLen(n))
	for i, row := range rows {
		l := i % lanes
		v := 1.0
		if weights != nil {
			v = weights[row]
		}
		total[l] += v
		for j := range n {
			u := float64(v * (columns[j].At(int(row)) - c[j]))
			first[j][l] += u
			for k := range j + 1 {
				d := columns[k].At(int(row)) - c[k]
				second[PackedLen(j)+k][l] = math.FMA(u, d, second[PackedLen(j)+k][l])
			}
		}
	}
	for j := range first {
		s = append(s, fold(&first[j]))
	}
	for p := range second {
		cross = append(cross, fold(&second[p]))
	}
	return fold(&total), s, cross
}

func randomColumns(r *rand.Rand, n, m int) []Column {
	columns := make([]Column, n)
	for j := range columns {
		switch j % 3 {
		case 0:
			v := make([]float32, m)
			for i := range v {
				v[i] = float32(r.NormFloat64()*3 + 100)
			}
			columns[j] = ColumnOf(v)
		case 1:
			v := make([]float64, m*2)
			for i := range v {
				v[i] = r.NormFloat64() * 1e-3
			}
			columns[j] = StridedColumn(v, 1, 2, m)
		case 2:
			v := make([]int16, m)
			for i := range v {
				v[i] = int16(r.IntN(1 << 16))
			}
			columns[j] = ColumnOf(v)
		}
	}
	return columns
}

func TestSumIsTheSpecificationBitForBit(t *testing.T) {
	var k Kernel // one for all cases: nothing may be left over
	for _, n := range []int{1, 2, 3, 10, 17} {
		for _, m := range rowCounts(n) {
			r := rand.New(rand.NewPCG(uint64(n), uint64(m)))
			columns := randomColumns(r, n, m)
			c := make([]float64, n)
			weights := make([]float64, m)
			all := make([]int32, m)
			for j := range c {
				c[j] = r.NormFloat64()
			}
			some := []int32{}
			for i := range weights {
				weights[i] = r.ExpFloat64()
				all[i] = int32(i)
				if r.IntN(3) != 0 {
					some = append(some, int32(i))
				}
			}
			for _, weights := range [][]float64{nil, weights} {
				for _, rows := range [][]int32{nil, all, some} {
					s, cross := make([]float64, n), make([]float64, PackedLen(n))
					weight := k.Sum(s, cross, columns, rows, weights, c)
					if rows == nil {
						rows = all
					}
					wantWeight, wantS, wantCross := specification(columns, rows, weights, c)
					name := fmt.Sprintf("n=%d m=%d of %d weights=%t", n, len(rows), m, weights != nil)
					same(t, name, []float64{weight}, []float64{wantWeight})
					same(t, name, s, wantS)
					same(t, name, cross, wantCross)
				}
			}
		}
	}
}

func same(t *testing.T, name string, got, want []float64) {
	t.Helper()
	for i := range want {
		if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
			t.Fatalf("%s: entry %d is %x, want %x", name, i, got[i], want[i])
		}
	}
}

func TestSumAgainstBig(t *testing.T) {
	const n, m = 4, 1000
	r := rand.New(rand.NewPCG(9, 9))
	columns := randomColumns(r, n, m)
	var k Kernel
	s, cross := make([]float64, n), make([]float64, PackedLen(n))
	k.Sum(s, cross, columns, nil, nil, make([]float64, n))
	for j := range n {
		for l := range j + 1 {
			want, size := new(big.Float).SetPrec(300), 0.0
			for i := range m {
				x, y := columns[j].At(i), columns[l].At(i)
				want.Add(want, new(big.Float).SetPrec(300).Mul(big.NewFloat(x), big.NewFloat(y)))
				size += math.Abs(x * y)
			}
			w, _ := want.Float64()
			// Each of m/8 additions of a lane rounds once, by half an ulp at most.
			if got := cross[PackedLen(j)+l]; math.Abs(got-w) > float64(m)/lanes*0x1p-53*size {
				t.Errorf("(%d,%d): %g, want %g", j, l, got, w)
			}
		}
	}
}

func TestEveryKindIsRead(t *testing.T) {
	kinds := map[Kind]Column{
		Float32: kindColumn[float32](), Float64: kindColumn[float64](),
		Int8: kindColumn[int8](), Int16: kindColumn[int16](), Int32: kindColumn[int32](), Int64: kindColumn[int64](),
		Uint8: kindColumn[uint8](), Uint16: kindColumn[uint16](), Uint32: kindColumn[uint32](), Uint64: kindColumn[uint64](),
	}
	for kind, column := range kinds {
		if column.Kind() != kind {
			t.Errorf("kind %d says it is %d", kind, column.Kind())
		}
		for _, view := range []Column{column, column.Slice(1, 4)} {
			var k Kernel
			s, cross := make([]float64, 1), make([]float64, 1)
			k.Sum(s, cross, []Column{view}, []int32{0, 2}, nil, []float64{0})
			if want := view.At(0) + view.At(2); s[0] != want {
				t.Errorf("kind %d: sum %g, want %g", kind, s[0], want)
			}
		}
		if got := column.At(3); got != 4 {
			t.Errorf("kind %d: element 3 is %g", kind, got)
		}
		if got := column.Slice(1, 4).At(2); got != 4 {
			t.Errorf("kind %d: element 2 of the slice is %g", kind, got)
		}
	}
}

func kindColumn[T Number]() Column { return ColumnOf([]T{1, 2, 3, 4, 5}) }

func TestNaNAndInfinityReachTheirSums(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		columns := []Column{ColumnOf([]float32{1, bad, 2}), ColumnOf([]float32{1, 2, 3})}
		var k Kernel
		s, cross := make([]float64, 2), make([]float64, 3)
		k.Sum(s, cross, columns, nil, nil, []float64{0, 0})
		if x := s[0] - s[0]; x == x {
			t.Errorf("%g: the sum is %g", bad, s[0])
		}
		if s[1] != 6 || cross[2] != 14 {
			t.Errorf("%g: the other column's sums are %g and %g", bad, s[1], cross[2])
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{10, 100, 784} {
		m := 20_000 * 10 / n
		r := rand.New(rand.NewPCG(1, 1))
		columns := make([]Column, n)
		dense := make([]float64, m*n)
		for j := range columns {
			v := make([]float32, m)
			for i := range v {
				v[i] = float32(r.NormFloat64())
				dense[i*n+j] = float64(v[i])
			}
			columns[j] = ColumnOf(v)
		}
		var classes [2][]int32
		for i := range m {
			c := r.IntN(2)
			classes[c] = append(classes[c], int32(i))
		}
		s, cross, origin := make([]float64, n), make([]float64, PackedLen(n)), make([]float64, n)
		b.Run(fmt.Sprintf("classes=2/n=%d", n), func(b *testing.B) {
			var k Kernel
			for b.Loop() {
				for _, rows := range classes {
					k.Sum(s, cross, columns, rows, nil, origin)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m), "ns/row")
		})
		b.Run(fmt.Sprintf("dsyrk/n=%d", n), func(b *testing.B) {
			c := blas64.Symmetric{N: n, Stride: n, Data: make([]float64, n*n), Uplo: blas.Lower}
			for b.Loop() {
				blas64.Syrk(blas.Trans, 1, blas64.General{Rows: m, Cols: n, Stride: n, Data: dense}, 0, c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m), "ns/row")
		})
	}
}
