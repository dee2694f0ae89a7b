package reduce

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"streamd/incremental/gram"
)

// lonely returns blobs with a few rows of each class far from all others, and half as
// many points as rows.
func lonely(seed uint64, classes int) (p *Problem, far []int) {
	const rows = 120
	p = blobs(rand.New(rand.NewPCG(seed, 1)), classes, rows)
	p.Points = rows / 2
	columns := make([][]float64, len(p.Columns))
	for j, c := range p.Columns {
		columns[j] = make([]float64, rows)
		c.Copy(columns[j], 0)
	}
	for class := range classes {
		for k := range 1 + class { // 1 to 3 rows beside each other
			far = append(far, len(p.Codes))
			p.Codes = append(p.Codes, int32(class))
			columns[0] = append(columns[0], 1000+float64(100*class+k))
			columns[1] = append(columns[1], -500-float64(k)/8)
		}
	}
	for j := range columns {
		p.Columns[j] = gram.ColumnOf(columns[j])
	}
	return p, far
}

// Every centre has five rows or more, is the nearest centre and the middle of all of them,
// and is no lonely row.
func TestCentresStandForFiveRows(t *testing.T) {
	for seed := range uint64(20) {
		for _, norm := range []Norm{TwoNorm, OneNorm} {
			p, far := lonely(seed, 3)
			s, err := newSample(p)
			if err != nil {
				t.Fatal(err)
			}
			for k, group := range s.groups() {
				c := newClustering(s.take(group, 0), norm, 2)
				c.seed(s.random(2, k), len(group)/2)
				if converged, err := c.settle(context.Background()); err != nil || !converged {
					t.Fatal("no end", err)
				}
				at := slices.Clone(c.z)
				for l, rows := range c.members() {
					if len(rows) < centreRows {
						t.Errorf("seed %d, norm %d: centre %d stands for %d rows", seed, norm, l, len(rows))
					}
				}
				c.centre()
				if !slices.EqualFunc(c.z, at, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) { // means are rounded
					t.Errorf("seed %d, norm %d: the centres are not where their rows are", seed, norm)
				}
				for i, nearest := range c.nearest {
					for l := range len(c.z) / 2 {
						if c.distance(i, l) < c.distance(i, int(nearest)) {
							t.Fatalf("seed %d, norm %d: row %d is nearer to centre %d than to its own", seed, norm, i, l)
						}
					}
				}
			}
			r, err := Clusters{Norm: norm, Nu: 1}.Reduce(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range far {
				for l := range r.Points {
					if z := r.Z[2*l:][:2]; slices.Equal(z, s.point(nil, i)) {
						t.Errorf("seed %d, norm %d: lonely row %d is point %d, %v", seed, norm, i, l, z)
					}
				}
			}
			if norm == OneNorm {
				continue // a median has the numbers of rows
			}
			for i := range p.Codes {
				for l := range r.Points {
					if z := r.Z[2*l:][:2]; slices.Equal(z, s.point(nil, i)) {
						t.Errorf("seed %d: row %d is point %d, %v", seed, i, l, z)
					}
				}
			}
		}
	}
}

// Classes that are too small for a centre share one, and too few rows for one are refused.
func TestClustersOfFewRows(t *testing.T) {
	for _, c := range []struct {
		codes []int32
		want  []float64 // centres
	}{
		{[]int32{0, 0, 0, 0, 0, 1}, []float64{2}},
		{[]int32{0, 0, 0, 1, 1, 1}, []float64{2.5}},
		{[]int32{0, 0, 1, 1}, nil},
	} {
		x := make([]float64, len(c.codes))
		for i := range x {
			x[i] = float64(i)
		}
		p := &Problem{Classes: 2, Columns: []gram.Column{gram.ColumnOf(x)}, Codes: c.codes, Kernel: gaussian(1), Points: 4}
		r, err := Clusters{Nu: 1}.Reduce(context.Background(), p)
		if c.want == nil {
			if !errors.Is(err, ErrRows) {
				t.Errorf("%v: %v", c.codes, err)
			}
		} else if err != nil || !slices.Equal(r.Z, c.want) {
			t.Errorf("%v: %+v, %v; want %v", c.codes, r, err, c.want)
		}
	}
}
