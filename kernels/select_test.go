package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental/gram"
)

// The coordinates of a part of a map are those of the map, bit for bit, and a map knows the
// places of its coordinates in another.
func TestSelected(t *testing.T) {
	const n, points, rows = 3, 11, 37
	r := rand.New(rand.NewPCG(71, 1))
	normal := func(count int) []float64 {
		x := make([]float64, count)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return x
	}
	gaussian, err := Gaussian(0.3)
	if err != nil {
		t.Fatal(err)
	}
	z := normal(points * n)
	of := func(m *Map, err error) *Map {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := of(NewMap(gaussian, n, z))
	scaled := of(whole.Scaled(normal(n), []float64{1, 2, 3}))
	columns := make([]gram.Column, n)
	for j := range columns {
		columns[j] = gram.ColumnOf(normal(rows))
	}
	at := []int{0, 3, 4, 8}
	for name, m := range map[string]*Map{"points": whole, "scaled": scaled, "projected": of(scaled.Projected(normal(9 * points)))} {
		part := m.Selected(at)
		if part.Size() != len(at) || len(part.Names()) != len(at) {
			t.Fatalf("%s: %d coordinates named %q", name, part.Size(), part.Names())
		}
		all, some := NewMapper(m).Map(columns), NewMapper(part).Map(columns)
		for j, from := range at {
			for i := range rows {
				if a, b := all[from].At(i), some[j].At(i); math.Float64bits(a) != math.Float64bits(b) {
					t.Fatalf("%s: row %d has %v at %d, and in the part %v", name, i, a, from, b)
				}
			}
		}
		if got := part.In(m); !slices.Equal(got, at) {
			t.Errorf("%s: the part is at %v, want %v", name, got, at)
		}
		decoded, err := DecodeMap(part.AppendBinary(nil))
		if err != nil || decoded.Digest() != part.Digest() {
			t.Errorf("%s: the part does not survive its encoding: %v", name, err)
		}
		if m.In(part) != nil {
			t.Errorf("%s: the whole is in its part", name)
		}
	}
	cubic, err := Polynomial(1, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	swapped := append(append(slices.Clone(z[n:2*n]), z[:n]...), z[2*n:3*n]...)
	for name, m := range map[string]*Map{
		"another kernel":  of(NewMap(cubic, n, z[:2*n])),
		"another order":   of(NewMap(gaussian, n, swapped)),
		"another point":   of(NewMap(gaussian, n, normal(n))),
		"another scale":   scaled.Selected(at),
		"another kind":    of(whole.Projected(normal(2 * points))),
		"a point, twice":  of(NewMap(gaussian, n, append(slices.Clone(z[:n]), z[:n]...))),
		"other features":  of(NewMap(gaussian, 1, z[:1])),
		"more than there": of(NewMap(gaussian, n, append(slices.Clone(z), normal(n)...))),
	} {
		if got := m.In(whole); got != nil {
			t.Errorf("%s: it is at %v", name, got)
		}
	}
	if one := of(whole.Projected(normal(2 * points))); of(whole.Selected(at).Projected(normal(2*len(at)))).In(one) != nil {
		t.Error("a projection of some points is part of a projection of all")
	}
	for name, bad := range map[string][]int{"none": nil, "order": {1, 0}, "twice": {1, 1}, "low": {-1}, "high": {points}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			whole.Selected(bad)
		}()
	}
}
