package svm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/kernels"
)

// threeGroups are rows of three classes in two features, with weights, in the given order.
func threeGroups(m int) *incremental.Block {
	r := rand.New(rand.NewPCG(9, uint64(m)))
	b := &incremental.Block{Features: incremental.DefaultFeatures(2), Classes: []string{"a", "b", "c"}}
	columns := make([][]float64, 2)
	for range m {
		code := r.IntN(3)
		angle := 2 * math.Pi * float64(code) / 3
		b.Codes, b.Weights = append(b.Codes, int32(code)), append(b.Weights, float64(1+r.IntN(3)))
		columns[0] = append(columns[0], math.Cos(angle)+0.8*r.NormFloat64())
		columns[1] = append(columns[1], math.Sin(angle)+0.8*r.NormFloat64())
	}
	for _, c := range columns {
		b.Columns = append(b.Columns, gram.ColumnOf(c))
	}
	return b
}

// The planes are those of the quadratic program in the coordinates of all rows, regularised by
// K(Z, Z), with balance and weights of rows and classes. The kernel is narrow: else the program,
// not SMO, loses digits.
func TestClassify(t *testing.T) {
	const m, nu = 90, 2.0
	b := threeGroups(m)
	kernel, err := kernels.Gaussian(8)
	if err != nil {
		t.Fatal(err)
	}
	var z []float64
	for i := range m {
		z = append(z, b.Columns[0].At(i), b.Columns[1].At(i))
	}
	all, err := kernels.NewMap(kernel, 2, z)
	if err != nil {
		t.Fatal(err)
	}
	var full *Fit
	o := incremental.Options{Nu: nu, Balanced: true, ClassWeights: map[string]float64{"b": 3}}
	smo := SMO{Kernel: kernel, Tolerance: 1e-9}
	err = Classify(context.Background(), smo, b, nil, o, []float64{0.1, nu}, func(f *Fit) error {
		full = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	lifted := &incremental.Block{Features: all.Names(), Classes: b.Classes, Codes: b.Codes, Weights: b.Weights}
	matrix := all.Gram()
	column := func(j int) []float64 {
		out := make([]float64, m)
		for i := range out {
			out[i] = matrix[gram.PackedLen(max(i, j))+min(i, j)]
		}
		return out
	}
	for j := range m {
		lifted.Columns = append(lifted.Columns, gram.ColumnOf(column(j)))
	}
	model := &incremental.Model{Features: lifted.Features, Classes: b.Classes, Options: o}
	for _, class := range b.Classes {
		model.Planes = append(model.Planes, incremental.Plane{Class: class, W: make([]float64, m)})
	}
	want, err := Refiner{Name: "hinge", Machine: Hinge{}}.Refine(context.Background(), model, newton.Blocks{lifted}, newton.Options{Regulariser: matrix})
	if err != nil {
		t.Fatal(err)
	}
	if len(full.Planes) != 3 || full.Nu != nu {
		t.Fatalf("%d planes of ν = %v", len(full.Planes), full.Nu)
	}
	class, values := make([]int32, m), make([]float64, 3*m)
	want.Model.Classify(class, values, lifted.Columns)
	for p, plane := range full.Planes {
		if ours, theirs := plane.Objective, want.Planes[p].Objective; math.Abs(ours-theirs) > 1e-6*theirs {
			t.Errorf("class %s: the objective is %v (gap %v), by the program %v (gap %v)", full.Classes[p], ours, plane.Gap, theirs, want.Planes[p].Gap)
		}
	}
	for i, v := range values {
		if math.Abs(full.Values[i]-v) > 1e-5 {
			t.Fatalf("row %d, plane %d: the value is %v, by the program %v", i/3, i%3, full.Values[i], v)
		}
	}
}

// Absent rows do not count, whatever they are: others have the values of planes without them.
// A class without other rows is none.
func TestClassifyWithout(t *testing.T) {
	const m = 60
	b := threeGroups(m)
	kernel, err := kernels.Gaussian(0.7)
	if err != nil {
		t.Fatal(err)
	}
	smo := SMO{Kernel: kernel, Tolerance: 1e-9}
	classify := func(b *incremental.Block, absent func(int) bool) (full *Fit, err error) {
		err = Classify(context.Background(), smo, b, absent, incremental.Options{Balanced: true}, []float64{1}, func(f *Fit) error {
			full = f
			return nil
		})
		return full, err
	}
	var rest []int
	absent := func(i int) bool { return i%4 == 1 || b.Codes[i] == 0 }
	for i := range m {
		if !absent(i) {
			rest = append(rest, i)
		}
	}
	got, err := classify(b, absent)
	if err != nil {
		t.Fatal(err)
	}
	want, err := classify(b.Pick(rest), nil)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Classes, want.Classes) != "[b c] [b c]" || len(got.Planes) != 1 {
		t.Fatalf("classes %v and %v, %d planes", got.Classes, want.Classes, len(got.Planes))
	}
	for k, i := range rest {
		if math.Abs(got.Values[i]-want.Values[k]) > 1e-6 {
			t.Fatalf("row %d: the value is %v, of the rest alone %v", i, got.Values[i], want.Values[k])
		}
	}
	if _, err := classify(b, func(i int) bool { return b.Codes[i] != 2 }); !errors.Is(err, incremental.ErrClasses) {
		t.Errorf("one class: %v", err)
	}
}
