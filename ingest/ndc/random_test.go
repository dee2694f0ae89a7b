package ndc

import (
	"math"
	"math/big"
	"slices"
	"testing"
)

// TestSplitMix64 compares with the sequence of the reference implementation
// for seed 1234567 (its first word is that of the state one step on).
func TestSplitMix64(t *testing.T) {
	w := wordsAt(1234567, 1)
	for i, want := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423,
		4593380528125082431, 16408922859458223821,
	} {
		if got := w.next(); got != want {
			t.Errorf("word %d is %d, not %d", i, got, want)
		}
	}
}

// TestKnotsAreFarFromTies checks that an error function with a thousand times the error
// of Go's gives the same table.
func TestKnotsAreFarFromTies(t *testing.T) {
	const margin = 1e-12 // |z| < 8, where half a unit in the last place is 4e-16
	for e := range octaves {
		for k := range perOctave {
			z := tail(math.Ldexp(perOctave+float64(k), e) / perOctave)
			scaled := z * knotGrid
			if away := math.Abs(scaled-math.Floor(scaled)-0.5) / knotGrid; away < margin {
				t.Errorf("octave %d, knot %d: %v is %g from a tie", e, k, z, away)
			}
		}
	}
}

// TestNormalIsTheInverse compares with the distribution function itself, at the ends and
// inside of every segment.
func TestNormalIsTheInverse(t *testing.T) {
	const tolerance = 1e-5
	table := normalTable()
	var worst float64
	for e := range octaves {
		for k := range 8 * perOctave {
			f := uint32(math.Ldexp(1+float64(k)/(8*perOctave), e)) | 1
			z := table.normal(f)
			u := 0.5 * math.Erfc(z/math.Sqrt2)
			density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
			worst = max(worst, math.Abs(u-float64(f)*0x1p-32)/density)
			if minus := table.normal(-f); minus != -z {
				t.Fatalf("the normal of %d is %v, that of its negative %v", f, z, minus)
			}
		}
	}
	t.Logf("largest error %.2g, largest normal %.4f", worst, table.normal(1))
	if worst > tolerance {
		t.Errorf("largest error %g", worst)
	}
}

// TestNormals draws normals and checks moments, distance from the distribution function
// (Kolmogorov and Smirnov), and tails.
func TestNormals(t *testing.T) {
	const count = 1 << 20
	z := make([]float64, count)
	normalTable().fill(z, wordsAt(mix(1), quarterTrain))

	var m1, m2, m3, m4, lag float64
	var beyond [6]float64
	for i, v := range z {
		m1 += v
		m2 += v * v
		m3 += v * v * v
		m4 += v * v * v * v
		lag += v * z[(i+1)%count]
		for s := range beyond {
			if math.Abs(v) > float64(s) {
				beyond[s]++
			}
		}
	}
	// Each has mean want and variance v/count over all seeds.
	for _, c := range []struct {
		name         string
		got, want, v float64
	}{
		{"mean", m1, 0, 1}, {"second moment", m2, 1, 2}, {"third moment", m3, 0, 15},
		{"fourth moment", m4, 3, 96}, {"product with the next", lag, 0, 1},
	} {
		if d := c.got/count - c.want; math.Abs(d) > 4*math.Sqrt(c.v/count) {
			t.Errorf("the %s is off by %v; standard error %v", c.name, d, math.Sqrt(c.v/count))
		}
	}
	for s, got := range beyond {
		want := count * math.Erfc(float64(s)/math.Sqrt2)
		if math.Abs(got-want) > 4*math.Sqrt(want) {
			t.Errorf("%v normals lie beyond %d, not %v", got, s, want)
		}
	}
	slices.Sort(z)
	var distance float64
	for i, v := range z {
		p := 0.5 * math.Erfc(-v/math.Sqrt2)
		distance = max(distance, p-float64(i)/count, float64(i+1)/count-p)
	}
	if limit := 1.95 / math.Sqrt(count); distance > limit { // one seed in a thousand
		t.Errorf("the distribution is %v from the normal one; %v is allowed", distance, limit)
	}
}

// TestPick compares the guided search with the definition.
func TestPick(t *testing.T) {
	for seed := range uint64(20) {
		g, _ := drawGeometry(seed, 0, 1)
		for i := range uint64(1 << 12) {
			u := i << 20
			if i%2 == 1 {
				u = g.upTo[i/2%centres] - 1 + i/2%3 // about an end
			}
			if u >= 1<<32 {
				continue
			}
			want := slices.IndexFunc(g.upTo[:], func(end uint64) bool { return u < end })
			if got := g.pick(u<<32 | 0xffffffff); got != want {
				t.Fatalf("seed %d: %#x picks %d, not %d", seed, u, got, want)
			}
		}
	}
}

// TestQuartersAreApart checks the arithmetic of the largest sets.
func TestQuartersAreApart(t *testing.T) {
	quarter := new(big.Int).Lsh(big.NewInt(1), 62)
	for name, words := range map[string]*big.Int{
		"points": new(big.Int).Mul(big.NewInt(MaxPoints), big.NewInt(1+(MaxFeatures+1)/2)),
		"draws":  new(big.Int).Mul(big.NewInt(maxDraws), big.NewInt(drawStride)),
	} {
		if words.Cmp(quarter) > 0 {
			t.Errorf("the %s take %v words of %v", name, words, quarter)
		}
	}
	if words := int64(centres*MaxFeatures*(MaxFeatures+1) + MaxFeatures + centres + 1); words > drawStride {
		t.Errorf("a draw takes %d words of %d", words, int64(drawStride))
	}
}
