package reduce

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"streamd/incremental/gram"
	"streamd/kernels"
)

var dataDir = flag.String("data", "", "directory with the published data sets; none: tests that need them are skipped")

// A dataset is rows of numbers and a label in front.
type dataset struct {
	labels []float64
	rows   [][]float32
}

func load(t testing.TB, name string) dataset {
	t.Helper()
	if *dataDir == "" {
		t.Skip("NOT TESTED: no -data with " + name)
	}
	file, err := os.Open(filepath.Join(*dataDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(unzipped).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var d dataset
	for _, record := range records {
		row := make([]float32, len(record)-1)
		for j, field := range record {
			x, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			if j == 0 {
				d.labels = append(d.labels, x)
			} else {
				row[j-1] = float32(x)
			}
		}
		d.rows = append(d.rows, row)
	}
	return d
}

// against makes a problem of two classes: those rows that have the label, and
// the rest.
func (d dataset) against(label float64) *Problem {
	p := &Problem{Classes: 2, Codes: make([]int32, len(d.rows))}
	for j := range d.rows[0] {
		v := make([]float32, len(d.rows))
		for i, row := range d.rows {
			v[i] = row[j]
		}
		p.Columns = append(p.Columns, gram.ColumnOf(v))
	}
	for i, l := range d.labels {
		if l == label {
			p.Codes[i] = 1
		}
	}
	return p
}

func logStage(t testing.TB, s Stage) {
	for _, x := range []struct {
		name string
		Step
	}{{"(b)", s.Classifier}, {"(c)", s.Approximation}, {"(d)", s.Reduced}} {
		t.Logf("stage %d: %4d rows, %4d tests, ν %4.1f, %3d candidates %s: %5.1f points, training %.2f %%, testing %.2f %%, %6.1f support vectors, error %.3f, unconverged %d",
			s.Stage, s.Rows, s.Tests, s.Nu, s.Candidates, x.name, x.Points, 100*x.Training, 100*x.Testing, x.SupportVectors, x.Error, x.Unconverged)
	}
}

func gaussian(gamma float64) kernels.Kernel {
	k, err := kernels.Gaussian(gamma)
	if err != nil {
		panic(err)
	}
	return k
}

// correct is the share of a problem's rows that the first plane has right.
func correct(t testing.TB, r *Result, k kernels.Kernel, p *Problem) float64 {
	s := &sample{Problem: &Problem{Columns: p.Columns, Codes: p.Codes, Kernel: k}}
	all := make([]int, len(p.Codes))
	for i := range all {
		all[i] = i
	}
	share, err := s.test(s.take(all, r.Planes[0].Class), r.Z, r.Planes[0].U, r.Planes[0].Gamma)
	if err != nil {
		t.Fatal(err)
	}
	return share
}

// The whole run of table 1 on the 7291/2007 split: five stages of ten runs,
// without a look at the test rows. The paper has 98.28 % with 28 points; a
// Gaussian SVM has 98.75 % with 663.
func TestPublishedUSPS(t *testing.T) {
	train, test := load(t, "usps-train.csv.gz").against(8), load(t, "usps-test.csv.gz").against(8)
	train.Kernel = gaussian(1. / 128)
	train.Points = 28
	train.Seed = 1
	train.Progress = func(s Stage) { logStage(t, s) }
	began := time.Now()
	r, err := ChunkingSynthetic{Fresh: 300, Nu: 6}.Reduce(context.Background(), train)
	if err != nil {
		t.Fatal(err)
	}
	share := correct(t, r, train.Kernel, test)
	t.Logf("%d points: %.2f %% of %d tests, after %.1f s", r.Points, 100*share, len(test.Codes), time.Since(began).Seconds())
	if r.Points > 28 || share < 0.979 {
		t.Errorf("%d points have %.2f %% right, not 97.9 with 28", r.Points, 100*share)
	}
	for i, want := range []float64{0.955, 0.97, 0.975, 0.975} {
		if got := r.Stages[i].Reduced.Testing; got < want {
			t.Errorf("stage %d: 10 points have %.2f %% of the test rows right, less than %.1f", i, 100*got, 100*want)
		}
	}
}

// noisy are points of the noisy USPS of section 4: NDC with 180 patterns, 90
// eights and 10 of each other digit, for centres. Each centre has a root R, with
// entries uniform from 0 to the expansion factor times the width of the box of
// centres over 50, and points centre + zR, z standard normal. The shares of the
// centres are normalised uniform numbers.
//
// The paper has expansion factor 25 and does not say on what scale the grey
// values enter. On [-1, 1], with the kernel of width 128, that leaves no two
// points near each other.
func (d dataset) noisy(r *rand.Rand, m int, expansion float64) *Problem {
	var centres []int
	perDigit := map[float64]int{}
	for _, i := range r.Perm(len(d.rows)) {
		digit := d.labels[i]
		if digit == 8 && perDigit[8] < 90 || digit != 8 && perDigit[digit] < 10 {
			perDigit[digit]++
			centres = append(centres, i)
		}
	}
	n := len(d.rows[0])
	sum := 0.0
	shares := make([]float64, len(centres))
	for k := range shares {
		shares[k] = r.Float64()
		sum += shares[k]
	}
	members := make([][]int, len(centres))
	for i := range m {
		x := r.Float64() * sum
		k := 0
		for k < len(centres)-1 && x >= shares[k] {
			x -= shares[k]
			k++
		}
		members[k] = append(members[k], i)
	}
	p := &Problem{Classes: 2, Codes: make([]int32, m)}
	rows := make([]float64, m*n)
	for k, centre := range centres {
		root := make([]float64, n*n)
		for i := range root {
			root[i] = expansion * 2 / 50 * r.Float64()
		}
		for _, i := range members[k] {
			x := rows[i*n:][:n]
			for j := range x {
				x[j] = float64(d.rows[centre][j])
			}
			for l := range n {
				axpy(r.NormFloat64(), root[l*n:][:n], x)
			}
			if d.labels[centre] == 8 {
				p.Codes[i] = 1
			}
		}
	}
	for j := range n {
		p.Columns = append(p.Columns, gram.StridedColumn(rows, j, n, m))
	}
	return p
}

// part is the problem of some of the rows.
func part(p *Problem, from, to int) *Problem {
	q := *p
	q.Columns = nil
	for _, c := range p.Columns {
		q.Columns = append(q.Columns, c.Slice(from, to))
	}
	q.Codes = p.Codes[from:to]
	return &q
}

// Table 2, 4000 rows to train and 4000 to test. With expansion factor 6, 10
// random points have 56 % right and 100 have 79 % (in the table 58 and 72), and 10
// synthetic ones must be ahead of 100 random ones by its margin: 75.89 against
// 71.79 %.
func TestPublishedNoisyUSPS(t *testing.T) {
	d := load(t, "usps-train.csv.gz")
	all := d.noisy(rand.New(rand.NewPCG(1, 1)), 8000, 6)
	all.Kernel, all.Seed = gaussian(1./128), 1
	tests := part(all, 4000, 8000)
	share := func(points int, reducer Reducer) float64 {
		train := part(all, 0, 4000)
		train.Points = points
		train.Progress = func(s Stage) { logStage(t, s) }
		began := time.Now()
		r, err := reducer.Reduce(context.Background(), train)
		if err != nil {
			t.Fatal(err)
		}
		right := correct(t, r, all.Kernel, tests)
		t.Logf("%T: %d points: %.2f %% of %d tests, after %.1f s", reducer, r.Points, 100*right, len(tests.Codes), time.Since(began).Seconds())
		return right
	}
	few, many := share(10, Subset{Nu: 10}), share(100, Subset{Nu: 10})
	synthetic := share(10, ChunkingSynthetic{
		Chunks: []Chunk{{500, 10}, {1000, 10}, {2000, 10}}, Nu: 10, Candidates: 500, Fresh: 300, Starts: 3,
	})
	if synthetic < many+0.041 || synthetic < few {
		t.Errorf("10 synthetic points have %.2f %% right, 10 random ones %.2f, 100 random ones %.2f", 100*synthetic, 100*few, 100*many)
	}
}
