package reduce

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// coordinatesOf returns K(x, x) for all pairs of rows, and the side of each.
func coordinatesOf(t *testing.T, p *Problem) ([]gram.Column, rows) {
	t.Helper()
	s, err := newSample(p)
	if err != nil {
		t.Fatal(err)
	}
	var z []float64
	for _, i := range s.live {
		z = s.point(z, i)
	}
	m, err := kernels.NewMap(p.Kernel, len(p.Columns), z)
	if err != nil {
		t.Fatal(err)
	}
	r := s.take(s.live, 1)
	return kernels.NewMapper(m).Map(p.Columns), r
}

// criterion is J of some coordinates (5–10), from the definitions of the paper, by gonum.
func criterion(k []gram.Column, r rows, which []int) float64 {
	t := len(which)
	var mean [3]*mat.VecDense // of both sides, and of all
	for i := range mean {
		mean[i] = mat.NewVecDense(t, nil)
	}
	var sum [3]float64
	h := func(i int) *mat.VecDense {
		v := mat.NewVecDense(t, nil)
		for l, c := range which {
			v.SetVec(l, k[c].At(i))
		}
		return v
	}
	q := mat.NewDense(t, t, nil)
	for i := range r.d {
		for _, side := range []int{r.side(i), 2} {
			mean[side].AddScaledVec(mean[side], r.weights[i], h(i))
			sum[side] += r.weights[i]
		}
	}
	for i := range mean {
		mean[i].ScaleVec(1/sum[i], mean[i])
	}
	for i := range r.d {
		var d mat.VecDense
		d.SubVec(h(i), mean[2])
		q.RankOne(q, r.weights[i]/sum[2], &d, &d)
	}
	var between, w mat.VecDense
	between.SubVec(mean[1], mean[0])
	if err := w.SolveVec(q, &between); err != nil {
		return math.Inf(-1)
	}
	return mat.Dot(&between, &w)
}

// The forward selection takes, step by step, the candidate with the largest criterion.
func TestForwardSelection(t *testing.T) {
	p := blobs(rand.New(rand.NewPCG(41, 1)), 2, 60)
	for i := range p.Codes {
		p.Weights = append(p.Weights, 1+float64(i%4))
	}
	k, r := coordinatesOf(t, p)
	q, between := totalScatter(k, r.weights), differences(k, r)
	const points = 5
	got := forward(q, between, points, 1e-9, singular)
	if len(got) != points {
		t.Fatalf("%d of %d points", len(got), points)
	}
	for step, chosen := range got {
		own := criterion(k, r, got[:step+1])
		for c := range k {
			if !slices.Contains(got[:step], c) {
				if other := criterion(k, r, append(slices.Clone(got[:step]), c)); other > own*(1+1e-9) {
					t.Errorf("step %d: %d with J = %v is taken, and %d has %v", step, chosen, own, c, other)
				}
			}
		}
	}
	// Each step pays its share, and the next one would not.
	const eta = 0.05
	some := forward(q, between, 60, eta, singular)
	if len(some) < 2 || !slices.Equal(some, forward(q, between, 60, 1e-9, singular)[:len(some)]) {
		t.Fatalf("with η = %v it takes %v", eta, some)
	}
	for step := 1; step < len(some); step++ {
		before, after := criterion(k, r, some[:step]), criterion(k, r, some[:step+1])
		if (after-before)/after < eta {
			t.Errorf("step %d raises J from %v to %v only", step, before, after)
		}
	}
	all := forward(q, between, 60, 1e-9, singular)
	before, after := criterion(k, r, some), criterion(k, r, all[:len(some)+1])
	if (after-before)/after >= eta {
		t.Errorf("another step would raise J from %v to %v", before, after)
	}
}

// Equal and constant candidates are singular.
func TestForwardSelectionLeavesOutSingularCandidates(t *testing.T) {
	// Coordinates 0 and 1 are equal, 2 is constant, and 3 differs.
	a, b := []float64{0, 1, 0, 1, 2, 1}, []float64{1, 0, 0, 2, 0, 1}
	k := []gram.Column{gram.ColumnOf(a), gram.ColumnOf(a), gram.ColumnOf([]float64{1, 1, 1, 1, 1, 1}), gram.ColumnOf(b)}
	r := rows{d: []float64{-1, -1, -1, 1, 1, 1}}
	got := forward(totalScatter(k, nil), differences(k, r), 4, 1e-9, singular)
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 3}) {
		t.Errorf("it takes %v", got)
	}
}

// A row is kept exactly if its Schur complement, by gonum, is above η.
func TestCholeskyKeepsIndependentRows(t *testing.T) {
	p := blobs(rand.New(rand.NewPCG(42, 2)), 2, 80)
	p.Points = 80
	const eta = 0.02
	r, err := Cholesky{Eta: eta, Nu: 1}.Reduce(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := coordinatesOf(t, p)
	var kept []int
	for i := range k {
		order := append(slices.Clone(kept), i)
		whole := mat.NewSymDense(len(order), nil)
		for a, x := range order {
			for b, y := range order[:a+1] {
				whole.SetSym(a, b, k[x].At(y))
			}
		}
		pivot := mat.Det(whole)
		if len(kept) > 0 {
			pivot /= mat.Det(whole.SliceSym(0, len(kept)))
		}
		if pivot > eta {
			kept = order
		}
	}
	var want []float64
	for _, i := range kept {
		want = append(want, p.Columns[0].At(i), p.Columns[1].At(i))
	}
	if !slices.Equal(r.Z, want) {
		t.Errorf("%d points, not %d", r.Points, len(kept))
	}
}

// With fewer points than rows to keep, the basis still comes from all rows: also from those of a
// class that comes last.
func TestCholeskyOfSortedRows(t *testing.T) {
	x, codes := make([]float64, 200), make([]int32, 200)
	for i := range x {
		x[i], codes[i] = float64(i), int32(i/100)
	}
	p := &Problem{Columns: []gram.Column{gram.ColumnOf(x)}, Codes: codes, Classes: 2, Kernel: gaussian(0.01), Points: 8}
	r, err := Cholesky{Nu: 1}.Reduce(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if r.Points > 8 || r.Points < 4 || slices.Max(r.Z) < 150 {
		t.Errorf("the points are %v", r.Z)
	}
	// Rows that are all as far from each other leave no choice.
	p.Kernel = gaussian(1e6)
	if r, err = (Cholesky{Nu: 1}).Reduce(context.Background(), p); err != nil || r.Points != 8 {
		t.Errorf("%v, %v", r, err)
	}
}
