package gram

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// rowCounts straddle the lanes and the stretches.
func rowCounts() []int {
	counts := []int{0}
	for m := 1; m <= 4*lanes+1; m++ {
		counts = append(counts, m)
	}
	return append(counts, 63, 64, 65, stretch-1, stretch, stretch+1, 2*stretch+13, 5*stretch-1, 9*stretch)
}

// specification sums one row after another, as the package comment specifies.
func specification(classes int, columns []Column, codes []int32, weights, c []float64) []Sums {
	n := len(columns)
	sums := make([]Sums, classes)
	for class := range sums {
		var rows []int
		for i, code := range codes {
			if int(code) == class && (weights == nil || weights[i] > 0) {
				rows = append(rows, i)
			}
		}
		if len(rows) == 0 {
			continue
		}
		sum := &sums[class]
		*sum = Sums{Rows: len(rows), S: make([]float64, n), Cross: make([]float64, PackedLen(n))}
		for len(rows) > 0 {
			some := rows[:min(stretch, len(rows))]
			rows = rows[len(some):]
			var total [lanes]float64
			first := make([][lanes]float64, n)
			second := make([][lanes]float64, PackedLen(n))
			for i, row := range some {
				l := i % lanes
				v := 1.0
				if weights != nil {
					v = weights[row]
				}
				total[l] += v
				for j := range n {
					u := float64(v * (columns[j].At(row) - c[j]))
					first[j][l] += u
					for k := range j + 1 {
						d := columns[k].At(row) - c[k]
						second[PackedLen(j)+k][l] = math.FMA(u, d, second[PackedLen(j)+k][l])
					}
				}
			}
			sum.Weight += fold(&total)
			for j := range first {
				sum.S[j] += fold(&first[j])
			}
			for p := range second {
				sum.Cross[p] += fold(&second[p])
			}
		}
	}
	return sums
}

// kernels returns a kernel for each variant that this processor can run, and logs the
// others.
func kernels(t testing.TB) []*Kernel {
	t.Helper()
	var all []*Kernel
	for _, v := range variants {
		if v.missing != "" {
			t.Logf("NOT TESTED: %s, this processor has no %s", v.name, v.missing)
			continue
		}
		all = append(all, &Kernel{variant: v})
	}
	return all
}

// The other tests run the variants that this processor supports. This one reports those
// that cannot be tested; with STREAMD_REQUIRE_VARIANTS set they are failures.
func TestEveryVariantIsTested(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			if v.missing == "" {
				return
			}
			if os.Getenv("STREAMD_REQUIRE_VARIANTS") != "" {
				t.Fatalf("this processor has no %s", v.missing)
			}
			t.Skipf("NOT TESTED: this processor has no %s", v.missing)
		})
	}
}

// mixedColumns returns columns of all kinds and layouts, in runs long enough to be
// processed together, each at an odd place in memory.
func mixedColumns(r *rand.Rand, n, m int) []Column {
	columns := make([]Column, n)
	for j := range columns {
		switch {
		case j < 7 || j >= 60:
			columns[j] = ColumnOf(numbers[float32](r, m+3, func() float64 { return r.NormFloat64()*3 + 100 })).Slice(3, m+3)
		case j < 13:
			columns[j] = ColumnOf(numbers[float64](r, m+1, r.NormFloat64)).Slice(1, m+1)
		case j < 15:
			columns[j] = StridedColumn(numbers[float32](r, 3*m+1, r.NormFloat64), 1, 3, m)
		default:
			whole := func() float64 { return float64(r.IntN(256) - 128) }
			count := func() float64 { return float64(r.IntN(256)) }
			switch j % 8 {
			case 0:
				columns[j] = ColumnOf(numbers[int8](r, m+1, whole)).Slice(1, m+1)
			case 1:
				columns[j] = ColumnOf(numbers[uint8](r, m+1, count)).Slice(1, m+1)
			case 2:
				columns[j] = ColumnOf(numbers[int16](r, m, func() float64 { return 256 * whole() }))
			case 3:
				columns[j] = ColumnOf(numbers[uint16](r, m, func() float64 { return 256 * count() }))
			case 4:
				columns[j] = ColumnOf(numbers[int32](r, m+1, func() float64 { return 0x1p24 * whole() })).Slice(1, m+1)
			case 5:
				columns[j] = ColumnOf(numbers[uint32](r, m, func() float64 { return 0x1p24 * count() }))
			case 6:
				v := make([]int64, m)
				for i := range v {
					v[i] = int64(r.Uint64()) >> r.IntN(64) // many sizes: an origin vanishes beside the largest
				}
				columns[j] = ColumnOf(v)
			case 7:
				v := make([]uint64, m)
				for i := range v {
					v[i] = r.Uint64() >> r.IntN(64)
				}
				columns[j] = ColumnOf(v)
			}
		}
	}
	return columns
}

// floatColumns returns columns of float32, at odd places in memory.
func floatColumns(r *rand.Rand, n, m int) []Column {
	columns := make([]Column, n)
	for j := range columns {
		columns[j] = ColumnOf(numbers[float32](r, m+1+j, func() float64 { return r.NormFloat64() + 100 })).Slice(1+j, m+1+j)
	}
	return columns
}

func numbers[T Number](r *rand.Rand, m int, next func() float64) []T {
	v := make([]T, m)
	for i := range v {
		v[i] = T(next())
	}
	return v
}

func TestSumIsTheSpecificationBitForBit(t *testing.T) {
	kernels := kernels(t) // used for all cases: no case may affect the next
	for _, n := range []int{1, 2, 3, 4, 5, 6, 8, 10, 17, 31, 64} {
		for _, m := range rowCounts() {
			if n > 10 && m > 2*lanes && m < stretch {
				continue
			}
			r := rand.New(rand.NewPCG(uint64(n), uint64(m)))
			columns := mixedColumns(r, n, m)
			if m%3 == 0 { // the most common case
				columns = floatColumns(r, n, m)
			}
			c := numbers[float64](r, n, r.NormFloat64)
			for _, classes := range []int{1, 2, 3, maxTestedClasses} {
				codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(classes)) })
				positive := numbers[float64](r, m, r.ExpFloat64)
				some := slices.Clone(positive)
				for i := range some {
					if r.IntN(3) == 0 {
						some[i] = 0
					}
				}
				for what, weights := range map[string][]float64{"no": nil, "positive": positive, "some zero": some} {
					want := specification(classes, columns, codes, weights, c)
					for _, k := range kernels {
						got := make([]Sums, classes)
						k.Sum(got, columns, codes, weights, c)
						same(t, fmt.Sprintf("%s n=%d m=%d classes=%d weights: %s", k.variant.name, n, m, classes, what), got, want)
					}
				}
			}
		}
	}
}

// Classes of any share are summed right: one with nearly all rows, which fills two slots
// of its ring with one group, one with nearly none, and classes in runs.
func TestUnevenClasses(t *testing.T) {
	const n, m = 11, 8*stretch + 3
	r := rand.New(rand.NewPCG(8, 8))
	both := map[string][]Column{"float32": floatColumns(r, n, m), "mixed": mixedColumns(r, n+20, m)}
	run := int32(0)
	for what, code := range map[string]func() float64{
		"nearly all":  func() float64 { return math.Floor(r.Float64() + 0.01) },
		"nearly none": func() float64 { return math.Ceil(r.Float64() - 0.01) },
		"runs": func() float64 {
			if r.IntN(100) == 0 {
				run = int32(r.IntN(3))
			}
			return float64(run)
		},
	} {
		codes := numbers[int32](r, m, code)
		for kinds, columns := range both {
			c := make([]float64, len(columns))
			want := specification(4, columns, codes, nil, c)
			for _, k := range kernels(t) {
				got := make([]Sums, 4)
				k.Sum(got, columns, codes, nil, c)
				same(t, fmt.Sprintf("%s, %s, %s", k.variant.name, what, kinds), got, want)
			}
		}
	}
}

// Two classes of few columns are summed right, for any share of rows and any position in
// a slot.
func TestTwoClassesOfFewColumns(t *testing.T) {
	kernels := kernels(t)
	for n := 1; n <= 11; n++ {
		for _, share := range []float64{0, 0.01, 0.2, 0.5, 0.9, 1} {
			for _, m := range []int{31, 33, 5 * stretch, 6*stretch + 64 - n, 7*stretch + 100 + n} {
				r := rand.New(rand.NewPCG(uint64(n), uint64(m)))
				run := 0.0
				codes := numbers[int32](r, m, func() float64 {
					if share == 0.2 && r.IntN(50) > 0 {
						return run // of one class for a while
					}
					run = math.Floor(r.Float64() + share)
					return run
				})
				c := numbers[float64](r, n, r.NormFloat64)
				float64s := make([]Column, n)
				for j := range float64s {
					float64s[j] = ColumnOf(numbers[float64](r, m+1, r.NormFloat64)).Slice(1, m+1)
				}
				for what, columns := range map[string][]Column{"float32": floatColumns(r, n, m), "float64": float64s} {
					want := specification(2, columns, codes, nil, c)
					for _, k := range kernels {
						got := make([]Sums, 2)
						k.Sum(got, columns, codes, nil, c)
						same(t, fmt.Sprintf("%s, %s, n=%d m=%d, a share of %g", k.variant.name, what, n, m, share), got, want)
					}
				}
			}
		}
	}
}

// Wide blocks are summed right: with several panels of columns and a narrow last one, with
// a last block of columns across two panels, and at the limits of fused sums.
func TestWideBlocks(t *testing.T) {
	const m = stretch + 40
	r := rand.New(rand.NewPCG(10, 10))
	codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(10) / 9) })
	for _, n := range []int{128, 129, 192, 193, 240 + 2, 240 + 3, 2*240 + 23} {
		doubles := make([]Column, n)
		for j := range doubles {
			doubles[j] = ColumnOf(numbers[float64](r, m, r.NormFloat64))
		}
		c := numbers[float64](r, n, r.NormFloat64)
		for what, columns := range map[string][]Column{
			"float32": floatColumns(r, n, m), "float64": doubles, "mixed": mixedColumns(r, n, m),
		} {
			want := specification(2, columns, codes, nil, c)
			for _, k := range kernels(t) {
				got := make([]Sums, 2)
				k.Sum(got, columns, codes, nil, c)
				same(t, fmt.Sprintf("%s, n=%d, %s", k.variant.name, n, what), got, want)
			}
		}
	}
}

// maxTestedClasses are too many to be dealt.
const maxTestedClasses = 20

// same compares bits. All NaNs are equal.
func same(t *testing.T, name string, got, want []Sums) {
	t.Helper()
	for class := range want {
		g, w := got[class], want[class]
		if g.Rows != w.Rows || len(g.S) != len(w.S) || len(g.Cross) != len(w.Cross) {
			t.Fatalf("%s: class %d: %d rows, sums of %d and %d; want %d, %d, %d",
				name, class, g.Rows, len(g.S), len(g.Cross), w.Rows, len(w.S), len(w.Cross))
		}
		sameNumbers(t, fmt.Sprintf("%s: class %d: Σv", name, class), []float64{g.Weight}, []float64{w.Weight})
		sameNumbers(t, fmt.Sprintf("%s: class %d: s", name, class), g.S, w.S)
		sameNumbers(t, fmt.Sprintf("%s: class %d: S", name, class), g.Cross, w.Cross)
	}
}

func sameNumbers(t *testing.T, name string, got, want []float64) {
	t.Helper()
	for i, w := range want {
		g := got[i]
		if math.Float64bits(g) != math.Float64bits(w) && (g == g || w == w) {
			t.Fatalf("%s: entry %d is %x, want %x", name, i, g, w)
		}
	}
}

func TestSumAgainstBig(t *testing.T) {
	const n, m = 4, 1000
	r := rand.New(rand.NewPCG(9, 9))
	columns := mixedColumns(r, n, m)
	var k Kernel
	sums := make([]Sums, 1)
	k.Sum(sums, columns, make([]int32, m), nil, make([]float64, n))
	for j := range n {
		for l := range j + 1 {
			want, size := new(big.Float).SetPrec(300), 0.0
			for i := range m {
				x, y := columns[j].At(i), columns[l].At(i)
				want.Add(want, new(big.Float).SetPrec(300).Mul(big.NewFloat(x), big.NewFloat(y)))
				size += math.Abs(x * y)
			}
			w, _ := want.Float64()
			// A lane rounds once per row, the tree three times, the sum once per stretch.
			const roundings = stretch/lanes + 3 + (m+stretch-1)/stretch
			if got := sums[0].Cross[PackedLen(j)+l]; math.Abs(got-w) > roundings*0x1p-53*size {
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
			for _, k := range kernels(t) {
				sums := make([]Sums, 2)
				codes := make([]int32, view.Len())
				codes[1] = 1
				k.Sum(sums, []Column{view}, codes, nil, []float64{0})
				if want := view.At(1); sums[1].S[0] != want {
					t.Errorf("%s: kind %d: sum %g, want %g", k.variant.name, kind, sums[1].S[0], want)
				}
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

// Every variant propagates infinities, NaNs, denormals, signed zeros and numbers whose
// products overflow or underflow in the same way.
func TestSpecialNumbers(t *testing.T) {
	special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0,
		math.SmallestNonzeroFloat32, math.MaxFloat32, math.SmallestNonzeroFloat64, math.MaxFloat64, 0x1p-1030, 1}
	const n, m = 7, 600
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(5, seed))
		// Most rows are ordinary, so that not every sum is NaN.
		next := func() float64 {
			if r.IntN(m) == 0 {
				return special[r.IntN(len(special))]
			}
			return special[3+r.IntN(3)] * float64(r.IntN(3))
		}
		columns := make([]Column, n)
		for j := range columns {
			if j%2 == 0 {
				columns[j] = ColumnOf(numbers[float32](r, m, next))
			} else {
				columns[j] = ColumnOf(numbers[float64](r, m, next))
			}
		}
		codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(3)) })
		c := numbers[float64](r, n, func() float64 { return special[3+r.IntN(8)] })
		for _, weights := range [][]float64{nil, numbers[float64](r, m, r.ExpFloat64)} {
			want := specification(3, columns, codes, weights, c)
			for _, k := range kernels(t) {
				got := make([]Sums, 3)
				k.Sum(got, columns, codes, weights, c)
				same(t, fmt.Sprintf("seed %d: %s", seed, k.variant.name), got, want)
			}
		}
	}
}

func TestNaNAndInfinityReachTheirSums(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		columns := []Column{ColumnOf([]float32{1, bad, 2}), ColumnOf([]float32{1, 2, 3})}
		for _, k := range kernels(t) {
			sums := make([]Sums, 1)
			k.Sum(sums, columns, make([]int32, 3), nil, []float64{0, 0})
			if x := sums[0].S[0] - sums[0].S[0]; x == x {
				t.Errorf("%g: the sum is %g", bad, sums[0].S[0])
			}
			if sums[0].S[1] != 6 || sums[0].Cross[2] != 14 {
				t.Errorf("%g: the other column's sums are %g and %g", bad, sums[0].S[1], sums[0].Cross[2])
			}
		}
	}
}

func TestACodeOutOfRangePanics(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 22))
	for _, k := range kernels(t) {
		for _, n := range []int{1, 6} {
			for _, classes := range []int{1, 2, maxTestedClasses} {
				for _, m := range []int{5, stretch, stretch + 9} {
					columns, c := floatColumns(r, n, m), make([]float64, n)
					for _, code := range []int32{-1, int32(classes)} {
						codes := make([]int32, m)
						codes[m-1] = code
						func() {
							defer func() {
								if recover() == nil {
									t.Errorf("%s: code %d of %d classes: no panic", k.variant.name, code, classes)
								}
							}()
							k.Sum(make([]Sums, classes), columns, codes, nil, c)
						}()
						// The kernel still works for the next block.
						codes[m-1] = 0
						got := make([]Sums, classes)
						k.Sum(got, columns, codes, nil, c)
						same(t, fmt.Sprintf("%s n=%d m=%d after code %d", k.variant.name, n, m, code), got, specification(classes, columns, codes, nil, c))
					}
				}
			}
		}
	}
}

// Memory around the columns is neither used (it is NaN) nor written.
func TestNothingAroundIsTouched(t *testing.T) {
	const n, margin = 6, 64
	for _, m := range []int{1, 7, 8, 9, 15, 17, stretch - 1, stretch + 1, 2*stretch + 5} {
		r := rand.New(rand.NewPCG(6, uint64(m)))
		var memory [n][]float32
		columns := make([]Column, n)
		for j := range columns {
			memory[j] = make([]float32, m+2*margin)
			for i := range memory[j] {
				memory[j][i] = float32(math.NaN())
			}
			v := memory[j][margin+j:][:m]
			for i := range v {
				v[i] = r.Float32()
			}
			columns[j] = ColumnOf(v)
		}
		before := fmt.Sprint(memory)
		for _, classes := range []int{1, 2} {
			codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(classes)) })
			want := specification(classes, columns, codes, nil, make([]float64, n))
			for _, k := range kernels(t) {
				got := make([]Sums, classes)
				k.Sum(got, columns, codes, nil, make([]float64, n))
				same(t, fmt.Sprintf("%s m=%d classes=%d", k.variant.name, m, classes), got, want)
			}
		}
		if fmt.Sprint(memory) != before {
			t.Fatalf("m=%d: the columns or what is around them changed", m)
		}
	}
}

// After ctx has ended no stretch is summed, and the kernel still works for the next block.
func TestSumGivesUp(t *testing.T) {
	ended, end := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	end(reason)
	const n, m = cancelColumns, 5*stretch + 7
	r := rand.New(rand.NewPCG(21, 21))
	columns, c := mixedColumns(r, n, m), make([]float64, n)
	for _, k := range kernels(t) {
		for _, classes := range []int{1, 2, 3, maxTestedClasses} {
			codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(classes)) })
			got := make([]Sums, classes)
			if err := k.SumContext(ended, got, columns, codes, nil, c); err != reason {
				t.Fatalf("%s, %d classes: error %v", k.variant.name, classes, err)
			}
			for class := range got {
				if got[class].Rows > 0 {
					t.Errorf("%s: %d rows of class %d of %d summed", k.variant.name, got[class].Rows, class, classes)
				}
			}
			if err := k.SumContext(context.Background(), got, columns, codes, nil, c); err != nil {
				t.Fatal(err)
			}
			same(t, fmt.Sprintf("%s classes=%d", k.variant.name, classes), got, specification(classes, columns, codes, nil, c))
		}
	}
}

// Sum reuses slices, whatever classes and columns the last block had, and makes new ones
// after they were cleared.
func TestSumUsesSlicesAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const m = 2000
	columns := mixedColumns(r, 20, m)
	codes := numbers[int32](r, m, func() float64 { return float64(r.IntN(2)) })
	one := make([]int32, m)
	origin := make([]float64, 20)
	for _, k := range kernels(t) {
		sums := make([]Sums, 2)
		run := func() { k.Sum(sums, columns, codes, nil, origin) }
		run()
		if got := testing.AllocsPerRun(5, run); got > 0 {
			t.Errorf("%s: %g allocations", k.variant.name, got)
		}
		for _, n := range []int{7, 20, 1} {
			k.Sum(sums, columns[:n], one, nil, origin[:n])
			same(t, k.variant.name, sums, specification(2, columns[:n], one, nil, origin[:n]))
			if n == 20 {
				kept := sums[0]
				clear(sums)
				run()
				same(t, k.variant.name, []Sums{kept}, specification(1, columns, one, nil, origin))
			}
		}
	}
}

// Pack copies the numbers of the columns, from any row on.
func TestPackCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 21))
	const n, m = 150, 3*stretch + 5
	columns := mixedColumns(r, n, m)
	tile, want := make([]float64, n*tileStride), make([]float64, stretch)
	for _, rows := range [][2]int{{0, 0}, {0, 1}, {7, 15}, {3, 3 + stretch}, {m - 9, m}, {stretch, 2 * stretch}} {
		from, to := rows[0], rows[1]
		Pack(tile, columns, from, to)
		for j, c := range columns {
			c.Copy(want[:to-from], from)
			if got := tile[j*tileStride:][:to-from]; !slices.Equal(got, want[:to-from]) {
				t.Fatalf("rows %d to %d of column %d are %v, not %v", from, to, j, got, want[:to-from])
			}
		}
	}
}
