package svm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// ringnorm returns rows of Breiman's ringnorm, of float32 numbers: one class around 0 with
// variance 4, the other around 2/√n with variance 1. Every tenth row has the wrong label if
// there is noise.
func ringnorm(seed uint64, m, n int, noise bool) *Rows {
	r := rand.New(rand.NewPCG(seed, 5))
	rows := &Rows{D: make([]float64, m)}
	x := make([][]float32, n)
	for j := range x {
		x[j] = make([]float32, m)
	}
	for i := range rows.D {
		rows.D[i] = float64(1 - 2*(i&1))
		for j := range x {
			v := r.NormFloat64()
			if rows.D[i] > 0 {
				v *= 2
			} else {
				v += 2 / math.Sqrt(float64(n))
			}
			x[j][i] = float32(v)
		}
		if noise && i%10 == 0 {
			rows.D[i] = -rows.D[i]
		}
	}
	for j := range x {
		rows.Columns = append(rows.Columns, gram.ColumnOf(x[j]))
	}
	return rows
}

func kernel(t testing.TB, text string) kernels.Kernel {
	t.Helper()
	k, err := kernels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var write = flag.String("write", "", "folder to write the rows to that testdata/smo.py learns")

// A fullOptimum is an optimum of LIBSVM for rows of ringnorm. testdata/smo.py made them.
type fullOptimum struct {
	Seed           uint64
	Rows, Features int
	Noise          bool
	Kernel         string
	Nu             float64
	// Objective of the dual, from LIBSVM's α and K in float64.
	Objective      float64
	SupportVectors int `json:"support_vectors"`
}

func TestSMOHasTheObjectiveOfLIBSVM(t *testing.T) {
	text, err := os.ReadFile("testdata/smo.json")
	if err != nil {
		t.Fatal(err)
	}
	var optima []fullOptimum
	if err := json.Unmarshal(text, &optima); err != nil {
		t.Fatal(err)
	}
	if len(optima) < 10 {
		t.Fatalf("only %d optima", len(optima))
	}
	const relative = 1e-6 // LIBSVM's cache is of float32
	for _, o := range optima {
		rows := ringnorm(o.Seed, o.Rows, o.Features, o.Noise)
		if *write != "" {
			writeRows(t, filepath.Join(*write, fmt.Sprintf("%d.csv", o.Seed)), rows)
		}
		p, err := SMO{Kernel: kernel(t, o.Kernel), Tolerance: 1e-8}.Fit(t.Context(), rows, o.Nu)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		if math.Abs(p.Objective-o.Objective) > relative*o.Objective || p.Gap > relative*o.Objective {
			t.Errorf("%+v: objective %v, gap %v", o, p.Objective, p.Gap)
		}
		if off := p.SupportVectors() - o.SupportVectors; off < -2 || off > 2 { // some are zero to rounding
			t.Errorf("%+v: %d support vectors", o, p.SupportVectors())
		}
	}
}

// writeRows writes labels and features as CSV.
func writeRows(t *testing.T, path string, rows *Rows) {
	var b bytes.Buffer
	for i, d := range rows.D {
		fmt.Fprint(&b, d)
		for _, c := range rows.Columns {
			fmt.Fprintf(&b, ",%.9g", c.At(i))
		}
		b.WriteByte('\n')
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The certificate is checked against sums over K by plain loops, with costs of rows.
func TestSMOCertificate(t *testing.T) {
	for _, text := range []string{"gaussian(gamma=0.2)", "linear", "polynomial(a=0.5,b=1,degree=3)"} {
		for _, nu := range []float64{0.01, 1, 30} {
			rows, k := ringnorm(21, 150, 4, true), kernel(t, text)
			for i := range rows.D {
				rows.Costs = append(rows.Costs, float64(i%4)/2)
			}
			f, err := SMO{Kernel: k, Tolerance: 1e-6}.Open(rows.Columns, 0)
			if err != nil {
				t.Fatal(err)
			}
			p, values, err := f.Fit(t.Context(), rows.D, rows.Costs, nu, nil)
			if err != nil {
				t.Errorf("%s, ν = %v: %v", text, nu, err)
				continue
			}
			var quadratic, linear, errs, balance float64
			for i, d := range rows.D {
				value := -p.Gamma
				for j := range rows.D {
					value += p.W[j] * k.Value(k.Argument(f.Point(i), f.Point(j)))
				}
				if math.Abs(value-values[i]) > 1e-9*(1+math.Abs(value)) {
					t.Fatalf("%s, ν = %v: row %d has the value %v, not %v", text, nu, i, value, values[i])
				}
				quadratic += p.W[i] * (value + p.Gamma)
				linear += p.Alpha[i]
				balance += p.W[i]
				errs += nu * rows.Costs[i] * max(0, 1-d*value)
				if p.W[i] != d*p.Alpha[i] || p.Alpha[i] < 0 || p.Alpha[i] > nu*rows.Costs[i] {
					t.Errorf("%s, ν = %v: row %d has w %v, α %v", text, nu, i, p.W[i], p.Alpha[i])
				}
			}
			primal, dual := quadratic/2+errs, linear-quadratic/2
			size := 1e-10 * (1 + linear + quadratic)
			if math.Abs(primal-p.Objective) > size || math.Abs(primal-dual-p.Gap) > size || math.Abs(balance) > 1e-12*linear {
				t.Errorf("%s, ν = %v: objective %v and gap %v, not %v and %v; Σw = %v", text, nu, p.Objective, p.Gap, primal, primal-dual, balance)
			}
			if p.Gap > 1e-5*primal {
				t.Errorf("%s, ν = %v: a gap of %v at an objective of %v", text, nu, p.Gap, primal)
			}
		}
	}
}

// Workers, the size of the cache and earlier fits do not change a bit.
func TestSMOBits(t *testing.T) {
	rows := ringnorm(22, 1300, 130, true) // enough work for several goroutines
	smo := SMO{Kernel: kernel(t, "gaussian(gamma=0.01)")}
	want, err := smo.Fit(t.Context(), rows, 3)
	if err != nil {
		t.Fatal(err)
	}
	if want.Steps <= shrinkSteps {
		t.Fatalf("%d steps: too few to shrink", want.Steps)
	}
	for _, c := range []struct {
		bytes   int64
		workers int
	}{{1, 2}, {1 << 20, 1}, {1 << 20, 5}, {1 << 30, 2}} {
		smo.CacheBytes = c.bytes
		f, err := smo.Open(rows.Columns, c.workers)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p, _, err := f.Fit(t.Context(), rows.D, nil, 3, nil)
			if err != nil || !reflect.DeepEqual(p, want) {
				t.Errorf("%+v: another plane, error %v", c, err)
			}
		}
		if kept := f.cache.kept(); int64(kept) > max(2, c.bytes/8/int64(len(rows.D))) {
			t.Errorf("%+v: the cache keeps %d rows of %d numbers", c, kept, len(rows.D))
		}
	}
}

func (c *cache) kept() (rows int) {
	for _, r := range c.rows {
		if r != nil {
			rows++
		}
	}
	return rows
}

// Starting from the plane of a smaller ν saves steps and leads to the same optimum.
func TestSMOStart(t *testing.T) {
	rows := ringnorm(23, 600, 5, true)
	f, err := SMO{Kernel: kernel(t, "gaussian(gamma=0.2)"), Tolerance: 1e-7}.Open(rows.Columns, 0)
	if err != nil {
		t.Fatal(err)
	}
	fit := func(nu float64, start []float64) *Plane {
		t.Helper()
		p, _, err := f.Fit(t.Context(), rows.D, nil, nu, start)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	small := fit(1, nil)
	cold, warm := fit(1.2, nil), fit(1.2, small.W)
	if math.Abs(cold.Objective-warm.Objective) > 1e-7*cold.Objective || warm.Steps >= cold.Steps {
		t.Errorf("from 0 %v in %d steps, from a start %v in %d", cold.Objective, cold.Steps, warm.Objective, warm.Steps)
	}
	if again := fit(1, small.W); again.Steps != 0 || !reflect.DeepEqual(again.W, small.W) {
		t.Errorf("%d steps from the solution", again.Steps)
	}
	if bad := fit(1, ones(600)); !reflect.DeepEqual(bad, small) {
		t.Error("a start with Σw ≠ 0 changes the plane")
	}
}

func TestSMODegenerateRows(t *testing.T) {
	smo := SMO{Kernel: kernel(t, "gaussian(gamma=1)")}
	for name, rows := range map[string]*Rows{
		"one class":             {Columns: []gram.Column{gram.ColumnOf([]float64{1, 2, 3})}, D: []float64{-1, -1, -1}},
		"one row":               {Columns: []gram.Column{gram.ColumnOf([]float64{1})}, D: []float64{1}},
		"equal, other labels":   {Columns: []gram.Column{gram.ColumnOf(make([]float64, 5))}, D: []float64{1, -1, 1, 1, -1}},
		"no weight":             {Columns: []gram.Column{gram.ColumnOf([]float64{1, 2})}, D: []float64{1, -1}, Costs: []float64{0, 0}},
		"weight on one class":   {Columns: []gram.Column{gram.ColumnOf([]float64{1, 2})}, D: []float64{1, -1}, Costs: []float64{1, 0}},
		"far apart":             {Columns: []gram.Column{gram.ColumnOf([]float64{1e100, -1e100})}, D: []float64{1, -1}},
		"nothing but one value": {Columns: []gram.Column{gram.ColumnOf(ones(4))}, D: []float64{1, 1, 1, -1}},
	} {
		p, err := smo.Fit(t.Context(), rows, 2)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !finite(p.Gamma) || !finite(p.Objective) || p.Gap < 0 || p.Gap > 0.01*(1+p.Objective) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	// Two labels in one place: the more frequent one is right.
	p, err := smo.Fit(t.Context(), &Rows{Columns: []gram.Column{gram.ColumnOf(ones(4))}, D: []float64{1, 1, 1, -1}}, 2)
	if err != nil || p.Gamma >= 0 {
		t.Errorf("γ = %v, error %v, with 3 rows of 4 of class 1", p.Gamma, err)
	}
}

func TestSMORefuses(t *testing.T) {
	rows := ringnorm(24, 400, 3, true)
	gaussian := kernel(t, "gaussian(gamma=1)")
	nan := ringnorm(24, 4, 1, false)
	nan.Columns[0] = gram.ColumnOf([]float64{1, math.NaN(), 2, 3})
	large := ringnorm(24, 4, 1, false)
	large.Columns[0] = gram.ColumnOf([]float64{1, 1e200, 2, 3})
	for name, c := range map[string]struct {
		smo  SMO
		rows *Rows
		nu   float64
		text string
	}{
		"a kernel":      {SMO{Kernel: kernel(t, "sigmoid(a=1,b=0)")}, rows, 1, "not positive semidefinite"},
		"a tolerance":   {SMO{Kernel: gaussian, Tolerance: -1}, rows, 1, "a tolerance of -1"},
		"a NaN":         {SMO{Kernel: gaussian}, nan, 1, "not finite"},
		"a large row":   {SMO{Kernel: gaussian}, large, 1, "row 1 is too large to be squared"},
		"ν":             {SMO{Kernel: gaussian}, rows, -1, "ν is -1"},
		"a regulariser": {SMO{Kernel: gaussian}, &Rows{Columns: rows.Columns, D: rows.D, Regulariser: make([]float64, 6)}, 1, "regulariser"},
		"no features":   {SMO{Kernel: gaussian}, &Rows{D: []float64{1, -1}}, 1, "no features"},
	} {
		if _, err := c.smo.Fit(t.Context(), c.rows, c.nu); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (SMO{Kernel: gaussian}).Fit(ended, rows, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("the error after the end of the context is %v", err)
	}
	f, err := SMO{Kernel: gaussian}.Open(rows.Columns, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.limitSteps = 100
	if _, _, err := f.Fit(t.Context(), rows.D, nil, 10, nil); !errors.Is(err, ErrNotConverged) || !strings.Contains(err.Error(), "after 100 steps") {
		t.Errorf("the error at the limit is %v", err)
	}
}
