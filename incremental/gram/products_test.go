package gram

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// productsBySpecification is AddProducts by its comment.
func productsBySpecification(values []float64, columns []Column, from int, c, w []float64) {
	for i := range values {
		var t []float64
		for j, wj := range w {
			if wj != 0 {
				d := float64(columns[j].At(from+i) - c[j])
				t = append(t, float64(d*wj))
			}
		}
		for ; len(t) >= 4; t = t[4:] {
			values[i] += (t[0] + t[1]) + (t[2] + t[3])
		}
		for _, t := range t {
			values[i] += t
		}
	}
}

// dotsBySpecification is AddDots by its comment.
func dotsBySpecification(sums []float64, columns []Column, from int, c, y []float64) {
	for first := 0; first < len(y); first += TileRows {
		some := y[first:min(first+TileRows, len(y))]
		if !slices.ContainsFunc(some, func(t float64) bool { return t != 0 }) {
			continue
		}
		for j := range sums {
			var sum [lanes]float64
			for i, t := range some {
				d := float64(columns[j].At(from+first+i) - c[j])
				sum[i%lanes] += float64(d * t)
			}
			sums[j] += fold(&sum)
		}
	}
}

// someZero returns numbers, a part of which are 0.
func someZero(r *rand.Rand, n int, zero float64) []float64 {
	return numbers[float64](r, n, func() float64 {
		if r.Float64() < zero {
			return 0
		}
		return r.NormFloat64()
	})
}

func TestProductsAreTheSpecificationBitForBit(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	layouts := map[string]func(n, m int) []Column{
		"mixed":   func(n, m int) []Column { return mixedColumns(r, n, m) },
		"float32": func(n, m int) []Column { return floatColumns(r, n, m) },
		"float64": func(n, m int) []Column {
			columns := make([]Column, n)
			for j := range columns {
				columns[j] = ColumnOf(numbers[float64](r, m, r.NormFloat64))
			}
			return columns
		},
	}
	for name, layout := range layouts {
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 22, 67} {
			for _, m := range []int{0, 1, 2, 5, 17, stretch - 1, stretch, stretch + 1, 3*stretch + 9} {
				from := r.IntN(9)
				columns := layout(n, from+m+r.IntN(3))
				for _, zero := range []float64{0, 0.5, 1} {
					c := someZero(r, n, 0.7)
					origin := c
					if zero == 1 {
						clear(c)
						origin = nil
					}
					about := fmt.Sprintf("%s n=%d m=%d from=%d zero=%v", name, n, m, from, zero)

					w, values := someZero(r, n, zero), someZero(r, m, 0)
					want := slices.Clone(values)
					productsBySpecification(want, columns, from, c, w)
					cut := 0
					if m > 0 {
						cut = r.IntN(m) // rows do not depend on each other
					}
					for _, k := range kernels(t) {
						got := slices.Clone(values)
						k.variant.addProducts(got[:cut], columns, from, origin, w)
						k.variant.addProducts(got[cut:], columns, from+cut, origin, w)
						sameNumbers(t, k.variant.name+" products "+about, got, want)
					}

					y, sums := someZero(r, m, zero), someZero(r, n, 0)
					if m > 2*stretch {
						clear(y[stretch : 2*stretch])
					}
					want = slices.Clone(sums)
					dotsBySpecification(want, columns, from, c, y)
					cut = m / stretch / 2 * stretch // nor do stretches
					for _, k := range kernels(t) {
						got := slices.Clone(sums)
						k.variant.addDots(got, columns, from, origin, y[:cut])
						k.variant.addDots(got, columns, from+cut, origin, y[cut:])
						sameNumbers(t, k.variant.name+" dots "+about, got, want)
					}
				}
			}
		}
	}
}

// Numbers that meet only zeros are not read.
func TestAbsentProducts(t *testing.T) {
	bad := ColumnOf(slices.Repeat([]float32{float32(math.NaN())}, 5))
	good := ColumnOf([]float32{1, 2, 3, 4, 5})
	values := make([]float64, 3)
	AddProducts(values, []Column{bad, good, bad}, 2, nil, []float64{0, 2, 0})
	sameNumbers(t, "AddProducts", values, []float64{6, 8, 10})
	sums := make([]float64, 2)
	AddDots(sums, []Column{bad, good}, 0, nil, make([]float64, 5))
	sameNumbers(t, "AddDots", sums, []float64{0, 0})
	AddDots(sums, []Column{bad, good}, 0, nil, []float64{0, 1, 0, 0, 0})
	sameNumbers(t, "AddDots", sums, []float64{math.NaN(), 2})
}

func TestLargest(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 1))
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []float64{0, -3.5, 1e300} {
		for _, m := range []int{0, 1, 2, stretch, stretch + 1} {
			columns := append(mixedColumns(r, 24, m), ColumnOf(numbers[float64](r, m, r.NormFloat64)))
			for j, column := range columns {
				want := 0.0
				for i := range m {
					want = max(want, math.Abs(column.At(i)-c))
				}
				sameNumbers(t, fmt.Sprintf("column %d of %d rows about %v", j, m, c), []float64{Largest(column, c)}, []float64{want})
			}
		}
	}
	for _, v := range [][]float64{{1, nan, inf}, {nan, 2, 3}, {-nan}, {inf, -inf, -nan, 0}} {
		if got := Largest(ColumnOf(v), 0); got == got {
			t.Errorf("the largest of %v is %v", v, got)
		}
	}
	sameNumbers(t, "infinite", []float64{Largest(ColumnOf([]float32{1, float32(-inf), 2}), 1)}, []float64{inf})
}

func TestProductsOfTheWrongShapePanic(t *testing.T) {
	columns := []Column{ColumnOf(make([]float32, 5)), ColumnOf(make([]float64, 4))}
	two := []float64{1, 1}
	for name, do := range map[string]func(){
		"a weight too few":     func() { AddProducts(two, columns, 0, nil, two[:1]) },
		"an origin too short":  func() { AddProducts(two, columns, 0, two[:1], two) },
		"rows beyond a column": func() { AddProducts(two, columns, 3, nil, two) },
		"rows beyond another":  func() { AddDots(two[:1], columns[1:], 3, nil, two) },
		"rows before it":       func() { AddDots(two, columns, -1, nil, two) },
		"a sum too many":       func() { AddDots(make([]float64, 3), columns, 0, nil, two) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		})
	}
}

func TestProductsDoNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 1))
	const m = stretch + 3
	for name, columns := range map[string][]Column{"mixed": mixedColumns(r, 20, m), "float32": floatColumns(r, 20, m)} {
		values, sums := someZero(r, m, 0), someZero(r, 20, 0)
		if a := testing.AllocsPerRun(5, func() {
			AddProducts(values, columns, 0, sums, sums)
			AddDots(sums, columns, 0, nil, values)
			Largest(columns[1], 1)
		}); a != 0 {
			t.Errorf("%s: %v allocations", name, a)
		}
	}
}

// BenchmarkProducts measures a product with a vector and one with the transpose, stretch
// by stretch of a chunk of 2,048 rows, as refinement computes them.
func BenchmarkProducts(b *testing.B) {
	const m, n = 8 * stretch, 32
	r := rand.New(rand.NewPCG(1, 1))
	w, c, sums := make([]float64, n), make([]float64, n), make([]float64, n)
	values := make([]float64, m)
	for j := range w {
		w[j], c[j] = r.NormFloat64(), r.NormFloat64()
	}
	for i := range values {
		values[i] = r.NormFloat64()
	}
	bench := func(name string, column func() Column) {
		columns := make([]Column, n)
		for j := range columns {
			columns[j] = column()
		}
		for _, origin := range [][]float64{nil, c} {
			per := func(b *testing.B) {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/m/n, "ns/element")
			}
			about := fmt.Sprintf("%s/origin=%t", name, origin != nil)
			b.Run("AddProducts/"+about, func(b *testing.B) {
				for b.Loop() {
					for from := 0; from < m; from += stretch {
						AddProducts(values[from:from+stretch], columns, from, origin, w)
					}
				}
				per(b)
			})
			b.Run("AddDots/"+about, func(b *testing.B) {
				for b.Loop() {
					for from := 0; from < m; from += stretch {
						AddDots(sums, columns, from, origin, values[from:from+stretch])
					}
				}
				per(b)
			})
			b.Run("Largest/"+about, func(b *testing.B) {
				for b.Loop() {
					for _, column := range columns {
						Largest(column, w[0])
					}
				}
				per(b)
			})
		}
	}
	bench("float32", func() Column { return ColumnOf(numbers[float32](r, m, r.NormFloat64)) })
	bench("float64", func() Column { return ColumnOf(numbers[float64](r, m, r.NormFloat64)) })
	bench("int16", func() Column { return ColumnOf(numbers[int16](r, m, func() float64 { return 100 * r.NormFloat64() })) })
}
