package exact

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// precision suffices for any sum of the tests without rounding.
const precision = 2000

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

// terms returns numbers over the whole range. Many are tiny, huge, equal or opposite, so
// that sums cancel and carries ripple.
func terms(r *rand.Rand, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		x := math.Ldexp(1+r.Float64(), r.IntN(60)-30)
		switch r.IntN(6) {
		case 0:
			x = math.Ldexp(1+r.Float64(), r.IntN(MaxExponent-MinExponent-60)+MinExponent+53)
		case 1:
			x = math.Ldexp(1, r.IntN(MaxExponent-MinExponent)+MinExponent)
		case 2:
			if i > 0 {
				x = -out[r.IntN(i)]
			}
		}
		if r.IntN(2) == 0 {
			x = -x
		}
		out[i] = x
	}
	return out
}

func split(sum *big.Float) (hi, lo float64) {
	hi, _ = sum.Float64()
	rest := new(big.Float).SetPrec(precision).Sub(sum, bigOf(hi))
	lo, _ = rest.Float64()
	return hi, lo
}

func TestSumsAgainstBig(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(1, seed))
		v := NewVector(3)
		want := [3]*big.Float{bigOf(0), bigOf(0), bigOf(0)}
		for _, x := range terms(r, 1+r.IntN(60)) {
			i := r.IntN(3)
			v.Add(i, x)
			want[i].Add(want[i], bigOf(x))
			hi, lo := v.Split(i)
			if whi, wlo := split(want[i]); hi != whi || lo != wlo {
				t.Fatalf("seed %d: %g + %g, want %g + %g", seed, hi, lo, whi, wlo)
			}
		}
	}
}

// Split is correct for sums that are larger than any term.
func TestLargestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 0))
	for range 2000 {
		// Fill the upper limbs at random, up to all ones, with and without the sign.
		k := 1 + r.IntN(4)
		b := []byte{byte(k), byte(limbs - k)}
		for range k {
			l := r.Uint64()
			if r.IntN(3) == 0 {
				l = math.MaxUint64 << r.IntN(64)
			}
			b = binary.LittleEndian.AppendUint64(b, l)
		}
		v, _, err := DecodeVector(b, 1)
		if err != nil {
			continue // it is not trimmed
		}
		sum := new(big.Int)
		for j := range k {
			l := new(big.Int).SetUint64(binary.LittleEndian.Uint64(b[2+8*j:]))
			sum.Add(sum, l.Lsh(l, uint(64*j)))
		}
		if b[len(b)-1]&0x80 != 0 {
			sum.Sub(sum, new(big.Int).Lsh(big.NewInt(1), uint(64*k)))
		}
		want := new(big.Float).SetPrec(precision).SetInt(sum)
		want.SetMantExp(want, unit+64*(limbs-k))
		hi, lo := v.Split(0)
		if whi, wlo := split(want); hi != whi || lo != wlo {
			t.Fatalf("%x: %g + %g, want %g + %g", b, hi, lo, whi, wlo)
		}
		exponent := math.Ilogb(hi)
		if v.Below(exponent) || !v.Below(exponent+1) {
			t.Fatalf("%g is not at least 2^%d and below 2^%d", hi, exponent, exponent+1)
		}
	}
}

func TestSumIsAFunctionOfItsTerms(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(2, seed))
		xs := terms(r, 40)
		a, b := NewVector(2), NewVector(2)
		for _, x := range xs {
			a.Add(1, x)
		}
		strangers := terms(r, 20)
		for _, x := range strangers {
			b.Add(1, x)
			b.Add(0, x)
		}
		r.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
		for _, x := range xs {
			b.Add(1, x)
		}
		for _, x := range strangers {
			b.Add(0, -x)
			b.Add(1, -x)
		}
		if !bytes.Equal(a.AppendBinary(nil), b.AppendBinary(nil)) {
			t.Fatalf("seed %d: the order, or what came and went, shows", seed)
		}
		for _, x := range xs {
			a.Add(1, -x)
		}
		if !a.IsZero() {
			t.Fatalf("seed %d: adding and taking away leaves something", seed)
		}
	}
}

func TestVectorsAddUp(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(3, seed))
		parts, whole := make([]*Vector, 1+r.IntN(4)), NewVector(3)
		for p := range parts {
			parts[p] = NewVector(3)
			for _, x := range terms(r, r.IntN(20)) {
				i := r.IntN(3)
				parts[p].Add(i, x)
				whole.Add(i, x)
			}
		}
		sum := NewVector(3)
		for _, part := range parts {
			before := part.AppendBinary(nil)
			sum.AddVector(part)
			if !bytes.Equal(part.AppendBinary(nil), before) {
				t.Fatalf("seed %d: what was added is another now", seed)
			}
		}
		if !bytes.Equal(sum.AppendBinary(nil), whole.AppendBinary(nil)) {
			t.Fatalf("seed %d: the sum of the parts is not that of their terms", seed)
		}
		// Terms can still be added to the result.
		added := terms(r, 10)
		for _, x := range added {
			sum.Add(0, x)
			whole.Add(0, x)
		}
		if !bytes.Equal(sum.AppendBinary(nil), whole.AppendBinary(nil)) {
			t.Fatalf("seed %d: terms are added to the sum of the parts in another way", seed)
		}
		for _, part := range parts {
			sum.SubVector(part)
			whole.SubVector(part)
		}
		rest := NewVector(3)
		for _, x := range added {
			rest.Add(0, x)
		}
		if !bytes.Equal(sum.AppendBinary(nil), rest.AppendBinary(nil)) || !bytes.Equal(whole.AppendBinary(nil), rest.AppendBinary(nil)) {
			t.Fatalf("seed %d: what is left without the parts is not what was added to them", seed)
		}
	}
}

func TestAddProductsIsExact(t *testing.T) {
	factors := func(r *rand.Rand) []float64 { // short ones, long ones, and none
		xs := make([]float64, 5)
		for i := range xs {
			switch x := r.NormFloat64() * math.Ldexp(1, r.IntN(100)-50); r.IntN(4) {
			case 0:
				xs[i] = math.Round(x)
			case 1:
				xs[i] = float64(float32(x))
			default:
				xs[i] = x
			}
		}
		return xs
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(3, seed))
		v := NewVector(5)
		want := make([]*big.Float, 5)
		for i := range want {
			want[i] = bigOf(0)
		}
		for range 1 + r.IntN(6) {
			a, b := factors(r)[0], factors(r)
			from := r.IntN(5)
			if r.IntN(3) == 0 {
				v.Add(from, a)
				want[from].Add(want[from], bigOf(a))
			}
			var products []Factor
			for i, x := range b[from:] {
				products = append(products, FactorOf(x))
				want[from+i].Add(want[from+i], new(big.Float).SetPrec(precision).Mul(bigOf(a), bigOf(x)))
			}
			v.AddProducts(from, FactorOf(a), products)
		}
		for i := range want {
			hi, lo := v.Split(i)
			if whi, wlo := split(want[i]); hi != whi || lo != wlo {
				t.Fatalf("seed %d: sum %d is %g + %g, want %g + %g", seed, i, hi, lo, whi, wlo)
			}
		}
	}
}

// Integers are added exactly where the window has room for them, and else not at all.
func TestAddIntegerIsExact(t *testing.T) {
	added, refused := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(5, seed))
		v, want := NewVector(2), bigOf(0)
		for range 20 {
			if r.IntN(4) == 0 {
				x := r.NormFloat64() * math.Ldexp(1, r.IntN(200)-100)
				v.Add(1, x)
				want.Add(want, bigOf(x))
			}
			hi, lo, e := uint64(int64(r.Uint64())>>1>>r.IntN(63)), r.Uint64()<<r.IntN(64), r.IntN(300)-250
			x := new(big.Int).Lsh(big.NewInt(int64(hi)), 64)
			x.Add(x, new(big.Int).SetUint64(lo))
			before := v.Window()
			if !v.AddInteger(1, hi, lo, e) {
				refused++
				continue
			}
			if added++; v.Window() != before {
				t.Fatalf("seed %d: the window has grown", seed)
			}
			want.Add(want, new(big.Float).SetMantExp(new(big.Float).SetPrec(precision).SetInt(x), e))
		}
		hi, lo := v.Split(1)
		if whi, wlo := split(want); hi != whi || lo != wlo {
			t.Fatalf("seed %d: the sum is %g + %g, want %g + %g", seed, hi, lo, whi, wlo)
		}
		if hi, lo := v.Split(0); hi != 0 || lo != 0 {
			t.Fatalf("seed %d: another sum is %g + %g", seed, hi, lo)
		}
	}
	if min(added, refused) < 300 {
		t.Errorf("%d integers were added, %d were not", added, refused)
	}
}

// Products at the ends of the range are added, and products beyond them panic.
func TestProductsAtTheEndsOfTheRange(t *testing.T) {
	product := func(a, b float64) (v *Vector, panicked bool) {
		defer func() { panicked = recover() != nil }()
		v = NewVector(1)
		v.AddProducts(0, FactorOf(a), []Factor{FactorOf(b)})
		return v, false
	}
	for _, c := range []struct {
		a, b float64
		fits bool
	}{
		{math.Ldexp(1, MinExponent), 1, true},
		{math.Ldexp(1, MinExponent), 0.5, false},
		{math.Ldexp(3, MinExponent/2), math.Ldexp(-5, MinExponent/2), true},
		{math.SmallestNonzeroFloat64, math.Ldexp(1, 1074+MinExponent), true},
		{math.Ldexp(1, MaxExponent-1), -1, true},
		{math.Ldexp(1, MaxExponent-1), 2, false},
		{math.Ldexp(1-0x1p-53, MaxExponent/2), math.Ldexp(1-0x1p-53, MaxExponent/2), true},
		{math.Ldexp(1-0x1p-53, MaxExponent), 1 + 0x1p-52, false},
		{math.MaxFloat64, 0, true},
		{0, math.MaxFloat64, true},
	} {
		v, panicked := product(c.a, c.b)
		if panicked == c.fits {
			t.Errorf("%g·%g: panicked is %t", c.a, c.b, panicked)
			continue
		}
		if !c.fits {
			continue
		}
		hi, lo := v.Split(0)
		if whi, wlo := split(new(big.Float).SetPrec(precision).Mul(bigOf(c.a), bigOf(c.b))); hi != whi || lo != wlo {
			t.Errorf("%g·%g: %g + %g, want %g + %g", c.a, c.b, hi, lo, whi, wlo)
		}
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		x    float64
		fits bool
	}{
		{0, true}, {math.Copysign(0, -1), true}, {1, true}, {-1e-30, true},
		{math.SmallestNonzeroFloat32 * math.SmallestNonzeroFloat32, true},
		{math.MaxFloat32 * math.MaxFloat32, true},
		{math.Ldexp(1, MinExponent), true},
		{math.Ldexp(1, MinExponent-1), false},
		{math.Ldexp(3, MinExponent-1), false},
		{math.Ldexp(1.5, MinExponent+1), true},
		{math.Nextafter(math.Ldexp(1, MaxExponent), 0), true},
		{math.Ldexp(1, MaxExponent), false},
		{math.SmallestNonzeroFloat64, false}, {math.MaxFloat64, false},
		{math.Inf(1), false}, {math.Inf(-1), false}, {math.NaN(), false},
	} {
		if Fits(c.x) != c.fits {
			t.Errorf("Fits(%g) = %t", c.x, !c.fits)
		}
		if c.fits {
			v := NewVector(1)
			v.Add(0, c.x)
			if hi, lo := v.Split(0); hi != c.x || lo != 0 {
				t.Errorf("%g comes back as %g + %g", c.x, hi, lo)
			}
		}
	}
}

func TestAddPanicsOnWhatDoesNotFit(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewVector(1).Add(0, math.NaN())
}

// The sign limb of a narrow window survives many additions of the largest terms that do
// not widen the window.
func TestCarriesIntoTheSignLimb(t *testing.T) {
	v := NewVector(1)
	x := math.Ldexp(1<<53-1, unit+64-53) // limb 0, all its high bits
	want := bigOf(0)
	for range 100_000 {
		v.Add(0, x)
		want.Add(want, bigOf(x))
	}
	if hi, lo := v.Split(0); v.width != 2 {
		t.Fatalf("the window grew to %d limbs", v.width)
	} else if whi, wlo := split(want); hi != whi || lo != wlo {
		t.Fatalf("%g + %g, want %g + %g", hi, lo, whi, wlo)
	}
}

func TestEncodingRoundTrips(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(4, seed))
		v := NewVector(5)
		for _, x := range terms(r, r.IntN(20)) {
			v.Add(r.IntN(5), x)
		}
		b := v.AppendBinary(nil)
		w, rest, err := DecodeVector(append(b, 7), 5)
		if err != nil || len(rest) != 1 {
			t.Fatalf("seed %d: %v, %d bytes left", seed, err, len(rest))
		}
		// Terms can be added to decoded sums.
		for i, x := range terms(r, 20) {
			v.Add(i%5, x)
			w.Add(i%5, x)
		}
		if !bytes.Equal(v.AppendBinary(nil), w.AppendBinary(nil)) {
			t.Fatalf("seed %d: the decoded sums differ", seed)
		}
	}
}

func FuzzDecodeVector(f *testing.F) {
	v := NewVector(4)
	for i, x := range []float64{1, -1, 1e-60, 3e80, 0.1, -0.1} {
		v.Add(i%4, x)
	}
	f.Add(v.AppendBinary(nil), 4)
	f.Add([]byte{0, 0, 1, 13, 1, 2, 3, 4, 5, 6, 7, 8}, 2)
	f.Add([]byte{0, 1}, 1)
	f.Add([]byte("\x00\x00\x02\r0000000000000000\x01\x0400000000\x01\x0000000000"), 4) // the whole width
	f.Add([]byte{1, limbs - 1, 0, 0, 0, 0, 0, 0, 0, 0x80}, 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		v, rest, err := DecodeVector(b, n)
		if err != nil {
			return
		}
		if again := v.AppendBinary(nil); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Errorf("%x is accepted and written as %x", b[:len(b)-len(rest)], again)
		}
		for i := range n {
			if hi, lo := v.Split(i); math.Abs(lo) > math.Abs(hi)*0x1p-53 {
				t.Errorf("sum %d of %x is split into %g and %g", i, b, hi, lo)
			}
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 0))
	xs := make([]float64, 1024)
	for i := range xs {
		xs[i] = r.NormFloat64() * 1e6
	}
	v := NewVector(1024)
	for b.Loop() {
		for i, x := range xs {
			v.Add(i, x)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/add")
}

// bigSum is sum i of v as a big.Float, from its encoding.
func bigSum(v *Vector, i int) *big.Float {
	b := v.AppendBinary(nil)
	for ; ; i-- {
		k, at := int(b[0]), int(b[1])
		limbsOf := b[2 : 2+8*k]
		if b = b[2+8*k:]; i > 0 {
			continue
		}
		sum := new(big.Int)
		for j := range k {
			l := new(big.Int).SetUint64(binary.LittleEndian.Uint64(limbsOf[8*j:]))
			sum.Add(sum, l.Lsh(l, uint(64*j)))
		}
		if k > 0 && limbsOf[8*k-1]&0x80 != 0 {
			sum.Sub(sum, new(big.Int).Lsh(big.NewInt(1), uint(64*k)))
		}
		want := new(big.Float).SetPrec(precision).SetInt(sum)
		return want.SetMantExp(want, unit+64*at)
	}
}

// Multiples are exact, and leave the same bits as sums of the multiplied terms.
func TestMultiplesAgainstBig(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(9, seed))
		v, want := NewVector(3), [3]*big.Float{bigOf(0), bigOf(0), bigOf(0)}
		for range 1 + r.IntN(5) {
			w := NewVector(3)
			for range r.IntN(6) {
				w.Add(r.IntN(3), math.Ldexp(float64(r.IntN(1<<20)-1<<19), r.IntN(200)-100))
			}
			m, shift := r.Uint64()>>(1+r.IntN(63)), r.IntN(401)-200
			v.AddMultiple(w, m, shift)
			for i := range want {
				x := bigSum(w, i)
				x.Mul(x, new(big.Float).SetPrec(precision).SetUint64(m))
				want[i].Add(want[i], x.SetMantExp(x, shift))
			}
		}
		for i := range want {
			if got := bigSum(v, i); got.Cmp(want[i]) != 0 {
				t.Fatalf("seed %d: sum %d is %g, want %g", seed, i, got, want[i])
			}
		}
	}
}

// A sum that is moved there and back is the same one, in a window that has not grown.
func TestMultiplesMoveBack(t *testing.T) {
	v := NewVector(2)
	v.Add(0, -1)
	v.Add(1, 0x1p-70)
	first, window := v.AppendBinary(nil), v.Window()
	for i := range 200 {
		moved := NewVector(2)
		moved.AddMultiple(v, 1, 1+i%7)
		v = NewVector(2)
		v.AddMultiple(moved, 1, -(1 + i%7))
	}
	if !bytes.Equal(v.AppendBinary(nil), first) || v.Window().Width > window.Width {
		t.Errorf("the sums are %x in %v, and were %x in %v", v.AppendBinary(nil), v.Window(), first, window)
	}
}

func TestMultiplesOutOfRangePanic(t *testing.T) {
	for _, c := range []struct {
		x     float64
		shift int
	}{{math.Ldexp(1, MinExponent), -1}, {-math.Ldexp(3, MinExponent+4), -5}, {math.Ldexp(1, MaxExponent-1), 1}, {-math.Ldexp(3, MaxExponent-2), 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%g times 2^%d does not panic", c.x, c.shift)
				}
			}()
			w := NewVector(1)
			w.Add(0, c.x)
			NewVector(1).AddMultiple(w, 1, c.shift)
		}()
	}
}

func BenchmarkAddMultiple(b *testing.B) {
	w := NewVector(66)
	r := rand.New(rand.NewPCG(10, 0))
	for i := range 66 {
		w.Add(i, r.NormFloat64()*1e6)
	}
	v := NewVector(66)
	for b.Loop() {
		v.AddMultiple(w, 60097, 0)
	}
}
