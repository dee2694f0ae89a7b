package gram

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// categories returns the columns of some categories as indicators, and the same numbers as bytes.
func categories(r *rand.Rand, m int, values ...int) (indicators, bytes []Column) {
	for _, n := range values {
		codes := make([]uint16, m)
		for i := range codes {
			codes[i] = uint16(r.IntN(1 + r.IntN(n+1))) // the last code has no column
		}
		for code := range n {
			ones := make([]uint8, m)
			for i, c := range codes {
				if int(c) == code {
					ones[i] = 1
				}
			}
			indicators = append(indicators, IndicatorColumn(codes, uint16(code)))
			bytes = append(bytes, ColumnOf(ones))
		}
	}
	return indicators, bytes
}

// binaryAs returns a column of 0 and 1 in each layout that there is.
func binaryAs(r *rand.Rand, m int) []Column {
	wide := make([]float64, 3*m)
	x32, x64 := make([]float32, m), make([]float64, m)
	i16, i64 := make([]int16, m), make([]int64, m)
	bytes, u32 := make([]uint8, 2*m), make([]uint32, m)
	var at []int32
	var x []float64
	for i := range m {
		for _, set := range []func(){
			func() { wide[3*i+1] = 1 }, func() { x32[i] = 1 }, func() { x64[i] = 1 }, func() { i16[i] = 1 },
			func() { i64[i] = 1 }, func() { bytes[2*i] = 1 }, func() { u32[i] = 1 },
			func() { at, x = append(at, int32(i)), append(x, 1) },
		} {
			if r.IntN(5) == 0 {
				set()
			}
		}
	}
	columns := []Column{
		ColumnOf(x32), ColumnOf(x64), ColumnOf(i16), ColumnOf(i64), ColumnOf(u32), SparseColumn(m, at, x),
	}
	if m > 0 {
		columns = append(columns, StridedColumn(wide, 1, 3, m), StridedColumn(bytes, 0, 2, m))
	}
	return columns
}

// An indicator has the elements and slices of the column that it stands for.
func TestIndicator(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	for _, m := range []int{0, 1, 9, 300} {
		indicators, bytes := categories(r, m, 3)
		for j, c := range indicators {
			for range 10 {
				from := r.IntN(m + 1)
				to := from + r.IntN(m-from+1)
				a, b := bytes[j].Slice(from, to), c.Slice(from, to)
				want, got := make([]float64, to-from), make([]float64, to-from)
				a.Copy(want, 0)
				b.Copy(got, 0)
				if b.Kind() != Indicator || b.Len() != to-from || !slices.Equal(got, want) || Largest(a, 0.25) != Largest(b, 0.25) {
					t.Fatalf("%d to %d of %d: %v, want %v", from, to, m, got, want)
				}
				for i := range want {
					if b.At(i) != want[i] {
						t.Fatalf("element %d of %d to %d is %v, want %v", i, from, to, b.At(i), want[i])
					}
				}
			}
		}
	}
	codes, code, ok := IndicatorColumn([]uint16{7, 8}, 8).Codes()
	if _, _, other := ColumnOf([]uint16{7, 8}).Codes(); !ok || other || code != 8 || !slices.Equal(codes, []uint16{7, 8}) {
		t.Errorf("codes %v of %d", codes, code)
	}
}

func areBinary(columns []Column, weights []float64) (out []bool) {
	for _, c := range columns {
		out = append(out, Binary(c, weights))
	}
	return out
}

func TestBinary(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 2))
	for _, m := range []int{1, 7, 8, stretch - 1, stretch, 2*stretch + 5, binaryRows + 3} {
		columns := binaryAs(r, m)
		indicators, bytes := categories(r, m, 2)
		columns = slices.Concat(columns, indicators, bytes)
		if out := areBinary(columns, nil); slices.Contains(out, false) {
			t.Fatalf("%d rows: %v", m, out)
		}
		for bad := range 3 { // in the first, the last and another row
			row := []int{0, m - 1, r.IntN(m)}[bad]
			bytes, float, whole := make([]int8, m), make([]float64, m), make([]uint32, m)
			bytes[row], float[row], whole[row] = -1, 0.5, 2
			columns := []Column{ColumnOf(bytes), ColumnOf(float), ColumnOf(whole), SparseColumn(m, []int32{int32(row)}, []float64{2})}
			if out := areBinary(columns, nil); slices.Contains(out, true) {
				t.Fatalf("%d rows, row %d: %v", m, row, out)
			}
			weights := make([]float64, m)
			for i := range weights {
				weights[i] = 1
			}
			if out := areBinary(columns, weights); slices.Contains(out, true) {
				t.Fatalf("%d weighted rows, row %d: %v", m, row, out)
			}
			weights[row] = 0
			if out := areBinary(columns, weights); slices.Contains(out, false) {
				t.Fatalf("%d rows, row %d of weight 0: %v", m, row, out)
			}
		}
	}
}

// Sums by ones have the bits of the specification, for every variant, layout and share of ones.
func TestSumsByOnes(t *testing.T) {
	taken, all := 0, kernels(t)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(6, seed))
		m := rowCounts()[r.IntN(len(rowCounts()))]
		var columns []Column
		for range 1 + r.IntN(3) {
			indicators, bytes := categories(r, m, 1+r.IntN(9), 1+r.IntN(3))
			columns = slices.Concat(columns, indicators, bytes, binaryAs(r, m))
		}
		if seed%5 > 0 {
			columns = append(columns, mixedColumns(r, r.IntN(20), m)...)
		}
		for range r.IntN(3) { // columns that are binary at first
			v := make([]int32, m)
			for i := range v {
				v[i] = int32(r.IntN(2))
			}
			if m > 0 {
				v[m-1-r.IntN(min(m, 1+r.IntN(m)))] = int32(2 + r.IntN(1000)) // often the last ones
			}
			columns = append(columns, ColumnOf(v))
		}
		for range r.IntN(3) { // and columns that are there twice
			columns = append(columns, columns[r.IntN(len(columns))])
		}
		r.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
		origin := make([]float64, len(columns))
		for j := range origin {
			if r.IntN(4) == 0 && m > 0 {
				origin[j] = columns[j].At(r.IntN(m))
			}
		}
		classes := 1 + r.IntN(5)
		codes := make([]int32, m)
		for i := range codes {
			codes[i] = int32(r.IntN(classes))
		}
		want := specification(classes, columns, codes, nil, origin)
		for _, k := range all {
			free := *k.variant
			free.perTerm = int(seed % 2) // 0: a term costs nothing
			for _, k := range []*Kernel{k, {variant: &free}} {
				for range 2 { // in new and in used memory
					got := make([]Sums, classes)
					if err := k.SumContext(context.Background(), got, columns, codes, nil, origin); err != nil {
						t.Fatal(err)
					}
					if k.ones.tiles > 0 || len(k.ones.others) == 0 {
						taken++
					}
					same(t, fmt.Sprintf("seed %d, %s, %d rows, %d columns", seed, k.variant.name, m, len(columns)), got, want)
				}
			}
		}
	}
	if taken < 100 {
		t.Errorf("only %d sums were made by ones", taken)
	}
}

// BenchmarkOnes measures 123 columns of which each row has 14 ones, as the UCI Adult data has them
// in LIBSVM's a9a: the dense kernel, and ones from bytes, indicators and float64. Then 108 such
// columns and six numbers.
func BenchmarkOnes(b *testing.B) {
	const m = 50_000
	r := rand.New(rand.NewPCG(1, 1))
	indicators, bytes := categories(r, m, 5, 8, 16, 7, 14, 6, 5, 2, 41, 5, 2, 2, 5, 5)
	wide := make([]Column, len(bytes))
	for j := range wide {
		v := make([]float64, m)
		bytes[j].Copy(v, 0)
		wide[j] = ColumnOf(v)
	}
	var numbers []Column
	for range 6 {
		v := make([]float64, m)
		for i := range v {
			v[i] = r.NormFloat64()
		}
		numbers = append(numbers, ColumnOf(v))
	}
	codes := make([]int32, m)
	for i := range codes {
		codes[i] = int32(r.IntN(2))
	}
	run := func(name string, columns []Column, ones bool) {
		b.Run(fmt.Sprintf("n=%d/%s", len(columns), name), func(b *testing.B) {
			var k Kernel
			sums, origin := make([]Sums, 2), make([]float64, len(columns))
			if !ones {
				dense := *fastest
				dense.perTerm = 1 << 20
				k.variant = &dense
			}
			for b.Loop() {
				if err := k.SumContext(b.Context(), sums, columns, codes, nil, origin); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/m, "ns/row")
		})
	}
	run("dense", bytes, false)
	run("bytes", bytes, true)
	run("indicators", indicators, true)
	run("float64-dense", wide, false)
	run("float64", wide, true)
	some := func(columns []Column) []Column { return append(slices.Clone(numbers), columns[:99]...) }
	run("dense", some(bytes), false)
	run("bytes", some(bytes), true)
	run("indicators", some(indicators), true)
}
