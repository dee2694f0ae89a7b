package kernels

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// runnable returns the variants that this processor can run, and logs the others.
func runnable(t testing.TB) []*variant {
	t.Helper()
	var some []*variant
	for _, v := range variants {
		if v.missing != "" {
			t.Logf("NOT TESTED: %s, this processor has no %s", v.name, v.missing)
			continue
		}
		some = append(some, v)
	}
	return some
}

// With STREAMD_REQUIRE_VARIANTS set, a variant that cannot be tested is a failure.
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

// columnsOf returns n columns of m numbers, of several kinds and layouts.
func columnsOf(r *rand.Rand, n, m int) []gram.Column {
	columns := make([]gram.Column, n)
	for j := range columns {
		switch j % 4 {
		case 0:
			v := make([]float32, m+3)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			columns[j] = gram.ColumnOf(v).Slice(3, m+3)
		case 1:
			columns[j] = gram.ColumnOf(point(r, m))
		case 2:
			columns[j] = gram.StridedColumn(point(r, 3*m+1), 1, 3, m)
		case 3:
			v := make([]int8, m)
			for i := range v {
				v[i] = int8(r.IntN(5) - 2)
			}
			columns[j] = gram.ColumnOf(v)
		}
	}
	return columns
}

func rowOf(columns []gram.Column, i int) []float64 {
	x := make([]float64, len(columns))
	for j, c := range columns {
		x[j] = c.At(i)
	}
	return x
}

// Every coordinate has the bits of the kernel of two points, wherever the row is in a
// block and a tile.
func TestEveryVariantGivesTheKernelsBits(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	rows := []int{0, 1, 7, 8, 9, 31, 32, 33, gram.TileRows - 1, gram.TileRows, gram.TileRows + 1, 2*gram.TileRows + 13}
	for _, n := range []int{1, 2, 3, 10, 130, 4100} {
		for _, points := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 17} {
			if n > 100 && points%4 > 1 {
				continue
			}
			for _, k := range everyKernel {
				z := point(r, points*n)
				m, err := NewMap(k, n, z)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range runnable(t) {
					mapper := NewMapper(m)
					mapper.variant = v
					for _, size := range rows {
						if n > 200 && size > 40 {
							continue
						}
						columns := columnsOf(r, n, size)
						got := mapper.Map(columns)
						for i := range size {
							x := rowOf(columns, i)
							for c := range points {
								want := k.Value(k.Argument(x, z[c*n:][:n]))
								if g := got[c].At(i); math.Float64bits(g) != math.Float64bits(want) {
									t.Fatalf("%s, %v, n=%d t=%d m=%d: row %d, point %d is %v, not %v", v.name, k, n, points, size, i, c, g, want)
								}
							}
						}
					}
				}
			}
		}
	}
}

// The coordinates have these bits on every processor, because different processors sum
// rows of one model.
func TestBitsOnEveryProcessor(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 92))
	const n, points, rows = 7, 9, 100
	numbers := func(m int) []float64 {
		v := make([]float64, m)
		for i := range v {
			v[i] = 8*r.Float64() - 4
		}
		return v
	}
	z := numbers(points * n)
	columns := make([]gram.Column, n)
	for j := range columns {
		columns[j] = gram.ColumnOf(numbers(rows))
	}
	h := sha256.New()
	for _, k := range everyKernel {
		m, err := NewMap(k, n, z)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range NewMapper(m).Map(columns) {
			for i := range rows {
				binary.Write(h, binary.LittleEndian, c.At(i))
			}
		}
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != "d167d38977c7651af8d6c338e07cbff158d8528298de1d9be0b6606ecdfe629e" {
		t.Errorf("SHA-256 %s", got)
	}
}

// Exponentials have the reference's bits over the whole range, beyond its ends, and for
// NaN.
func TestEveryVariantGivesTheExponentialsBits(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	s := make([]float64, 1<<14)
	for i := range s {
		s[i] = 55 * r.Float64()
	}
	copy(s, []float64{0, 50, math.Nextafter(50, 100), 1e300, math.Inf(1), math.NaN(), math.SmallestNonzeroFloat64, 1e-300})
	for _, v := range runnable(t) {
		got := append([]float64(nil), s...)
		v.gaussian(got, 2)
		for i, g := range got {
			want := must(Gaussian(2)).Value(s[i])
			if math.Float64bits(g) != math.Float64bits(want) && !(math.IsNaN(g) && math.IsNaN(want)) {
				t.Fatalf("%s: of %v it is %v, not %v", v.name, s[i], g, want)
			}
		}
	}
}

// An unusable number makes every coordinate of its row NaN, even for bounded kernels, and
// affects no other row.
func TestUnusableNumbersAreNotHidden(t *testing.T) {
	for _, k := range everyKernel {
		m, err := NewMap(k, 3, []float64{0, 0, 0, 1, 2, 3, -1, 1, 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range runnable(t) {
			mapper := NewMapper(m)
			mapper.variant = v
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				x := make([]float64, 20)
				x[13] = bad
				ones := gram.ColumnOf(make([]float64, 20))
				for c, column := range mapper.Map([]gram.Column{ones, gram.ColumnOf(x), ones}) {
					for i := range x {
						if got := column.At(i); math.IsNaN(got) != (i == 13) {
							t.Errorf("%s, %v: with %v in row 13, row %d of coordinate %d is %v", v.name, k, bad, i, c, got)
						}
					}
				}
			}
		}
	}
}

// Exact sums can add every coordinate, however small.
func TestSumsTakeEveryCoordinate(t *testing.T) {
	const rows = 400
	x := make([]float64, rows)
	for i := range x {
		x[i] = math.Ldexp(1, -i) // products and powers from 1 to below 2^-1000
	}
	far := make([]float64, rows)
	for i := range far {
		far[i] = float64(i) // the Gaussian falls from 1 to 0
	}
	zero := false
	for _, k := range append(everyKernel, must(Gaussian(0.01)), must(Sigmoid(1, 0))) {
		m, err := NewMap(k, 2, []float64{1, 0, 0, 1, 0.5, 0.5})
		if err != nil {
			t.Fatal(err)
		}
		columns := NewMapper(m).Map([]gram.Column{gram.ColumnOf(x), gram.ColumnOf(far)})
		for _, c := range columns {
			for i := range rows {
				v := c.At(i)
				zero = zero || v == 0
				if v != 0 && math.Abs(v) < smallest {
					t.Fatalf("%v gives %v", k, v)
				}
			}
		}
		b := &incremental.Block{Columns: columns, Classes: []string{"a"}, Codes: make([]int32, rows)}
		if _, err := new(incremental.Summariser).Summarise(b); err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
	if !zero {
		t.Error("no coordinate was small enough to test anything")
	}
}

// MapContext stops when ctx ends and returns its cause.
func TestMapGivesUp(t *testing.T) {
	m, err := NewMap(must(Gaussian(1)), 1, []float64{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	end(reason)
	p, columns := NewMapper(m), []gram.Column{gram.ColumnOf(make([]float64, 1000))}
	if out, err := p.MapContext(ended, columns); err != reason || out != nil {
		t.Errorf("%v, error %v", out, err)
	}
	if out := p.Map(columns); out[0].At(999) != 1 {
		t.Errorf("afterwards K(0, 0) is %v", out[0].At(999))
	}
}

// Points that are near each other and far from zero keep their digits.
func TestNearPointsFarFromZero(t *testing.T) {
	const n = 16
	r := rand.New(rand.NewPCG(5, 5))
	radial := must(Gaussian(1))
	for range 500 {
		x, z := point(r, n), point(r, n)
		exact := new(big.Float).SetPrec(300)
		for j := range x {
			x[j] = 1e6 + x[j]
			z[j] = x[j] + 1e-6*z[j]
			d := new(big.Float).SetPrec(300).Sub(big.NewFloat(x[j]), big.NewFloat(z[j]))
			exact.Add(exact, d.Mul(d, d))
		}
		want, _ := exact.Float64()
		if got := radial.Argument(x, z); math.Abs(got/want-1) > (n+2)*0x1p-53 {
			t.Fatalf("‖x−z‖² is %v, not %v", got, want)
		}
	}
}

// bigExp is exp(y) to about 150 bits.
func bigExp(y *big.Float) *big.Float {
	const halvings = 12
	r := new(big.Float).SetPrec(200).SetMantExp(y, -halvings)
	sum := new(big.Float).SetPrec(200).SetInt64(1)
	term := new(big.Float).SetPrec(200).SetInt64(1)
	for k := int64(1); k < 40; k++ {
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetInt64(k))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// ulps is |got − want| in units in the last place of want.
func ulps(got float64, want *big.Float) float64 {
	w, _ := want.Float64()
	unit := math.Nextafter(math.Abs(w), math.Inf(1)) - math.Abs(w)
	d := new(big.Float).SetPrec(200).SetFloat64(got)
	e, _ := d.Sub(d, want).Float64()
	return math.Abs(e) / unit
}

func TestExponentialIsWithinAnUlp(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	worst := 0.0
	for i := range 20000 {
		y := -100 * r.Float64()
		switch i % 4 {
		case 1:
			y = -r.Float64()
		case 2:
			y = -math.Ldexp(r.Float64(), -r.IntN(60))
		case 3: // near the ends of the reduced interval
			y = -math.Ln2 * (float64(r.IntN(144)) + 0.5) * (1 + 1e-15*float64(r.IntN(9)-4))
		}
		worst = max(worst, ulps(expNonPositive(y), bigExp(new(big.Float).SetPrec(200).SetFloat64(y))))
	}
	t.Logf("worst error: %.3f ulp", worst)
	if worst > 1 {
		t.Errorf("the exponential is off by %v ulp", worst)
	}
	for y, want := range map[float64]float64{0: 1, cutoff: math.Exp(cutoff)} {
		if got := gaussianOf(1, -y); math.Abs(got/want-1) > 1e-15 {
			t.Errorf("exp(%v) is %v", y, got)
		}
	}
	if got := gaussianOf(1, math.Nextafter(-cutoff, 200)); got != 0 {
		t.Errorf("below the cutoff it is %v", got)
	}
	if got := gaussianOf(math.MaxFloat64, math.MaxFloat64); got != 0 {
		t.Errorf("where γs overflows it is %v", got)
	}
}

func TestHyperbolicTangentIsWithinFourUlps(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	worst := 0.0
	for i := range 20000 {
		y := 40*r.Float64() - 20
		switch i % 3 {
		case 1:
			y = 2*r.Float64() - 1
		case 2:
			y = math.Ldexp(r.Float64()-0.5, -r.IntN(60))
		}
		e := bigExp(new(big.Float).SetPrec(200).SetFloat64(2 * y))
		one := big.NewFloat(1)
		numerator := new(big.Float).SetPrec(200).Sub(e, one)
		worst = max(worst, ulps(tanh(y), numerator.Quo(numerator, e.Add(e, one))))
	}
	t.Logf("worst error: %.3f ulp", worst)
	if worst > 4 {
		t.Errorf("the hyperbolic tangent is off by %v ulp", worst)
	}
	for _, y := range []float64{20.1, 1e300} {
		if tanh(y) != 1 || tanh(-y) != -1 {
			t.Errorf("tanh(±%v) is %v, %v", y, tanh(y), tanh(-y))
		}
	}
}

func TestBasesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		n int
		z []float64
	}{{2, nil}, {2, []float64{1}}, {0, []float64{1}}, {1, []float64{1, math.NaN()}}, {1, []float64{math.Inf(-1)}}} {
		if _, err := NewMap(Linear(), c.n, c.z); err == nil {
			t.Errorf("a basis of %v for %d features is taken", c.z, c.n)
		}
	}
}

// BenchmarkMap measures rows per second in t coordinates, for the map alone and with the
// summary of two classes, and the summary of the features for comparison.
func BenchmarkMap(b *testing.B) {
	for _, size := range []struct{ n, t int }{{2, 40}, {10, 10}, {32, 32}, {100, 100}, {256, 28}, {256, 100}} {
		m := max(1<<22/(size.n+size.t)/gram.TileRows, 1) * gram.TileRows
		r := rand.New(rand.NewPCG(8, 8))
		columns := make([]gram.Column, size.n)
		for j := range columns {
			v := make([]float32, m)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			columns[j] = gram.ColumnOf(v)
		}
		codes := make([]int32, m)
		for i := range codes {
			codes[i] = int32(r.IntN(2))
		}
		kmap, err := NewMap(must(Gaussian(1/float64(2*size.n))), size.n, point(r, size.n*size.t))
		if err != nil {
			b.Fatal(err)
		}
		run := func(name string, do func()) {
			b.Run(fmt.Sprintf("n=%d/t=%d/%s", size.n, size.t, name), func(b *testing.B) {
				for b.Loop() {
					do()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m), "ns/row")
			})
		}
		for _, v := range runnable(b) {
			mapper := NewMapper(kmap)
			mapper.variant = v
			run("map/"+v.name, func() { mapper.Map(columns) })
		}
		mapper := NewMapper(kmap)
		var z incremental.Summariser
		summarise := func(columns []gram.Column) {
			block := &incremental.Block{Columns: columns, Classes: []string{"a", "b"}, Codes: codes}
			if _, err := z.Summarise(block); err != nil {
				b.Fatal(err)
			}
		}
		run("map+sum", func() { summarise(mapper.Map(columns)) })
		run("sum", func() { summarise(columns) })
	}
}
