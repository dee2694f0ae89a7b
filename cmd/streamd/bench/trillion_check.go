package bench

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"streamd/cmd/streamd/httpapi"
	"streamd/incremental"
	"streamd/ingest/summary"
)

// The result of a trillion points is computed a second time, as incremental/FORMAT.md says it, from
// the encoded sums. It shares no arithmetic with the daemon: sums are integers in units of
// 2^-sumUnit, and the plane is solved with planeBits bits.
const (
	sumUnit   = 512
	planeBits = 512
)

// expectation is the result that a daemon must have.
type expectation struct {
	rows   int64
	digest string
	plane  []*big.Float // w, then γ
}

// exactClass is the sums of a class, about zero.
type exactClass struct {
	label  string
	rows   int64
	weight *big.Int
	s      []*big.Int
	cross  []*big.Int // packed lower triangle
}

// expected computes the result of the blocks, each as often as it comes.
func (c Trillion) expected(made []*summary.Block) (*expectation, error) {
	var classes []*exactClass
	for i, b := range made {
		if err := addExactly(&classes, b.Summary.AppendBinary(nil), c.times(i)); err != nil {
			return nil, fmt.Errorf("sum block %d exactly: %w", i, err)
		}
	}
	if len(classes) != 2 {
		return nil, fmt.Errorf("the rows are of %d classes, and not of two: take more --block-rows or --sums", len(classes))
	}
	want := &expectation{plane: exactPlaneOf(classes, c.Features)}
	h := sha256.New()
	text := func(s string) { h.Write(append(binary.AppendUvarint(nil, uint64(len(s))), s...)) }
	h.Write(binary.AppendUvarint(nil, uint64(c.Features)))
	for _, name := range incremental.DefaultFeatures(c.Features) {
		text(name)
	}
	h.Write(binary.AppendUvarint(nil, uint64(len(classes))))
	for _, class := range classes {
		want.rows += class.rows
		text(class.label)
		h.Write(binary.AppendUvarint(nil, uint64(class.rows)))
		for _, x := range slices.Concat([]*big.Int{class.weight}, class.s, class.cross) {
			h.Write(appendExact(nil, x))
		}
	}
	want.digest = fmt.Sprintf("%x", h.Sum(nil))
	return want, nil
}

// addExactly adds the encoded sums of a block so many times. Classes come in the same order in all
// blocks.
func addExactly(classes *[]*exactClass, encoded []byte, times int64) error {
	uvarint := func() uint64 {
		x, k := binary.Uvarint(encoded)
		encoded = encoded[k:]
		return x
	}
	failed := false
	// number is the next float64 as an integer in units of 2^-unit.
	number := func(unit int) *big.Int {
		x := new(big.Float).SetFloat64(math.Float64frombits(binary.LittleEndian.Uint64(encoded)))
		encoded = encoded[8:]
		i, accuracy := x.SetMantExp(x, unit).Int(nil)
		failed = failed || accuracy != big.Exact
		return i
	}
	numbers := func(n, unit int) (xs []*big.Int) {
		for range n {
			xs = append(xs, number(unit))
		}
		return xs
	}
	const half = sumUnit / 2 // of factors, so that products are in units of 2^-sumUnit
	n, k := int(uvarint()), int(uvarint())
	origin := numbers(n, half)
	for range k {
		length := uvarint()
		label := string(encoded[:length])
		encoded = encoded[length:]
		at := slices.IndexFunc(*classes, func(c *exactClass) bool { return c.label == label })
		if at < 0 {
			at = len(*classes)
			*classes = append(*classes, &exactClass{label: label, weight: new(big.Int), s: zeros(n), cross: zeros(n * (n + 1) / 2)})
		}
		c := (*classes)[at]
		c.rows += times * int64(uvarint())
		m := big.NewInt(times)
		add := func(to, x *big.Int) { to.Add(to, new(big.Int).Mul(x, m)) }
		weight := number(half)
		add(c.weight, new(big.Int).Lsh(weight, half))
		t, cross := numbers(n, half), numbers(n*(n+1)/2, sumUnit)
		product := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
		i := 0
		for j := range n {
			add(c.s[j], new(big.Int).Lsh(t[j], half))
			add(c.s[j], product(weight, origin[j]))
			for l := range j + 1 {
				add(c.cross[i], cross[i])
				add(c.cross[i], product(t[j], origin[l]))
				add(c.cross[i], product(origin[j], t[l]))
				squared := product(weight, product(origin[j], origin[l])) // in units of 2^-(3·half)
				failed = failed || squared.Sign() != 0 && squared.TrailingZeroBits() < half
				add(c.cross[i], squared.Rsh(squared, half))
				i++
			}
		}
	}
	if failed {
		return errors.New("a number is no multiple of the unit")
	}
	return nil
}

func zeros(n int) (xs []*big.Int) {
	for range n {
		xs = append(xs, new(big.Int))
	}
	return xs
}

// appendExact appends the encoding of an exact sum.
func appendExact(b []byte, x *big.Int) []byte {
	if x.Sign() == 0 {
		return append(b, 0, 0)
	}
	low := x.TrailingZeroBits() / 64
	rest := new(big.Int).Rsh(x, 64*low)
	length := rest.BitLen()
	if rest.Sign() < 0 {
		length = new(big.Int).Not(rest).BitLen()
	}
	limbs := length/64 + 1
	if rest.Sign() < 0 { // two's complement
		rest.Add(rest, new(big.Int).Lsh(big.NewInt(1), uint(64*limbs)))
	}
	bytes := rest.FillBytes(make([]byte, 8*limbs))
	slices.Reverse(bytes)
	return append(append(b, byte(limbs), byte(low)), bytes...)
}

// exactPlaneOf solves (I/ν + E'E) [w;γ] = E'd, with the second class on the positive side.
func exactPlaneOf(classes []*exactClass, n int) []*big.Float {
	number := func(x *big.Int) *big.Float {
		f := new(big.Float).SetPrec(planeBits).SetInt(x)
		return f.SetMantExp(f, -sumUnit)
	}
	a := make([][]*big.Float, n+1)
	for j := range a {
		for range n + 2 {
			a[j] = append(a[j], new(big.Float).SetPrec(planeBits))
		}
		a[j][j].SetFloat64(1 / Nu)
	}
	for i, c := range classes {
		d := big.NewFloat(float64(2*i - 1))
		add := func(j, k int, x *big.Float) { a[j][k].Add(a[j][k], x) }
		for j := range n {
			for k := range n {
				add(j, k, number(c.cross[max(j, k)*(max(j, k)+1)/2+min(j, k)]))
			}
			s := number(c.s[j])
			add(j, n+1, new(big.Float).SetPrec(planeBits).Mul(d, s))
			add(j, n, s.Neg(s))
			add(n, j, s)
		}
		add(n, n, number(c.weight))
		add(n, n+1, new(big.Float).SetPrec(planeBits).Mul(d, number(new(big.Int).Neg(c.weight))))
	}
	return solvePositive(a)
}

// compare says how a model differs.
func (e *expectation) compare(m *httpapi.ModelAnswer) error {
	switch {
	case m.LiveRows != e.rows:
		return fmt.Errorf("the model is of %d rows, and %d are expected", m.LiveRows, e.rows)
	case m.Digest != e.digest:
		return fmt.Errorf("the digest of the model is %s, and %s is expected", m.Digest, e.digest)
	case len(m.Planes) != 1 || len(m.Planes[0].W) != len(e.plane)-1:
		return fmt.Errorf("the model has %d planes, not one of %d features", len(m.Planes), len(e.plane)-1)
	}
	for j, x := range slices.Concat(m.Planes[0].W, []float64{m.Planes[0].Gamma}) {
		if want, _ := e.plane[j].Float64(); x != want {
			return fmt.Errorf("number %d of the plane is %v, and %v is expected", j, x, want)
		}
	}
	return nil
}
