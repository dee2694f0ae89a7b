package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"streamd/cmd/streamd/dataset"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/kernels"
	"streamd/kernels/svm"
)

// kernelFit learns from lines of CSV, by blocks of so many rows if not 0.
func kernelFit(t *testing.T, lines []string, folds int, kernel config.Kernel, blockRows int) *fit {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	want := settings(2, folds, 1)
	want.Kernel, want.BlockRows = kernel, blockRows
	if blockRows > 0 {
		want.Model.Standardise = config.SwitchOn
	}
	f := opened(t, path, want)
	if err := f.learn(t.Context(), new(Report)); err != nil {
		t.Fatal(err)
	}
	return f
}

// ring makes rows of two classes, a disc and the ring around it.
func ring(rows int) (lines []string, x [][]float64, d []float64) {
	r := rand.New(rand.NewPCG(5, uint64(rows)))
	for range rows {
		p := []float64{r.NormFloat64(), r.NormFloat64()}
		side := 1.0
		if math.Hypot(p[0], p[1]) < 1.1 {
			side = -1
		}
		lines = append(lines, fmt.Sprintf("%g,%v,%v\n", side, p[0], p[1]))
		x, d = append(x, p), append(d, side)
	}
	return lines, x, d
}

// The full kernel against algorithm 2.2.1 of Fung 2003 as it is printed: v by
// (2.23), u and γ by (2.22), each of the m×m system's numbers from two rows.
func TestFullKernelIsThePrintedAlgorithm(t *testing.T) {
	lines, x, d := ring(60)
	m := len(x)
	f := kernelFit(t, lines, 0, config.Kernel{Function: "gaussian(gamma=0.7)", Reduce: ReduceNone}, 0)
	kernel, err := kernels.Gaussian(0.7)
	if err != nil {
		t.Fatal(err)
	}
	k := mat.NewDense(m, m, nil)
	g := mat.NewDense(m, m+1, nil) // D[K −e]
	for i := range m {
		for j := range m {
			k.Set(i, j, kernel.Value(kernel.Argument(x[i], x[j])))
			g.Set(i, j, d[i]*k.At(i, j))
		}
		g.Set(i, m, -d[i])
	}
	var system mat.Dense
	system.Mul(g, g.T())
	for i := range m {
		system.Set(i, i, system.At(i, i)+1/f.options.Nu)
	}
	ones := mat.NewVecDense(m, slices.Repeat([]float64{1}, m))
	var v, w mat.VecDense
	if err := v.SolveVec(&system, ones); err != nil {
		t.Fatal(err)
	}
	gamma := 0.0
	for i := range m {
		v.SetVec(i, d[i]*v.AtVec(i)) // Dv
		gamma -= v.AtVec(i)
	}
	w.MulVec(k.T(), &v) // Du = K'Dv
	plane := f.model.Planes[0]
	if plane.Class != "1" || !(math.Abs(plane.Gamma-gamma) < 1e-9) {
		t.Errorf("class %s, gamma %v instead of %v", plane.Class, plane.Gamma, gamma)
	}
	for i := range m {
		if !(math.Abs(plane.W[i]-w.AtVec(i)) < 1e-9) {
			t.Fatalf("coefficient %d is %v, not %v", i, plane.W[i], w.AtVec(i))
		}
	}
}

// The model of a fold, its basis and scaling included, is that of a file without
// the fold's rows. Blocks are cut elsewhere there, which shows in the last bits.
func TestKernelFoldsNeverSawTheirRows(t *testing.T) {
	const folds = 3
	lines, _, _ := ring(300)
	for _, kernel := range []config.Kernel{
		{Function: "gaussian(gamma=0.7)", Basis: 8, Reduce: "kmeans"},
		{Function: "gaussian(gamma=0.7)", Basis: 8, Reduce: "stratified", Regulariser: "kernel"},
		{Function: "gaussian(gamma=2)", Reduce: ReduceNone},
	} {
		f := kernelFit(t, lines, folds, kernel, 0)
		deal := dataset.NewDealer(folds, f.want.Seed)
		for fold := range folds {
			var others []string
			for i, line := range lines {
				if deal.Of(int64(i)) != fold {
					others = append(others, line)
				}
			}
			alone := kernelFit(t, others, 0, kernel, 0)
			got, want := f.foldIn[fold].Map, alone.in.Map
			if got.Points() != want.Points() {
				t.Fatalf("%+v, fold %d: %d points, not %d", kernel, fold, got.Points(), want.Points())
			}
			for i := range want.Points() {
				if !slices.Equal(got.Point(i), want.Point(i)) {
					t.Fatalf("%+v, fold %d: point %d is %v, not %v", kernel, fold, i, got.Point(i), want.Point(i))
				}
			}
			p, q := f.foldModels[fold].Planes[0], alone.model.Planes[0]
			for i := range q.W {
				if !(math.Abs(p.W[i]-q.W[i]) < 1e-8*(1+math.Abs(q.W[i]))) {
					t.Errorf("%+v, fold %d: coefficient %d is %v, not %v", kernel, fold, i, p.W[i], q.W[i])
				}
			}
		}
	}
}

// Where whole blocks are in the folds, the model of a fold has the bits of one that was
// learned from a file without the fold's blocks.
func TestKernelFoldsNeverSawTheirBlocks(t *testing.T) {
	const folds, blockRows = 3, 25
	lines, _, _ := ring(300)
	for _, kernel := range []config.Kernel{
		{Function: "gaussian(gamma=0.7)", Basis: 8, Reduce: "kmeans"},
		{Function: "gaussian(gamma=0.7)", Basis: 8, Reduce: "stratified", Regulariser: "kernel"},
	} {
		f := kernelFit(t, lines, folds, kernel, blockRows)
		for fold := range folds {
			var others []string
			for i, line := range lines {
				if f.blocks.Of(int64(i)) != fold {
					others = append(others, line)
				}
			}
			if len(others) == len(lines) {
				t.Fatalf("fold %d has no blocks", fold)
			}
			alone := kernelFit(t, others, 0, kernel, blockRows)
			if got, want := f.foldIn[fold].Map.Digest(), alone.in.Map.Digest(); got != want {
				t.Errorf("%+v, fold %d: the basis is another", kernel, fold)
			}
			if got, want := f.foldModels[fold].Planes, alone.model.Planes; !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, fold %d: %v, not %v", kernel, fold, got, want)
			}
		}
	}
}

// γ of a full kernel is judged by the machine itself: the figures are those of its planes without
// each fold, found one by one.
func TestMachineJudgesGamma(t *testing.T) {
	lines, x, d := ring(80)
	f := kernelFit(t, lines, 0, config.Kernel{Function: "gaussian(gamma=0.7)", Reduce: ReduceNone}, 0)
	f.want.Tolerance, f.want.Model.Nu = 1e-8, config.NuAuto
	b := &byRows{fit: f}
	kernel, err := kernels.Gaussian(0.3)
	if err != nil {
		t.Fatal(err)
	}
	rows := &incremental.Block{Classes: []string{"-1", "1"}}
	rows.Columns = columnsOf(x)
	for _, side := range d {
		rows.Codes = append(rows.Codes, int32((side+1)/2))
	}
	folds := make([][]int, 3) // one of them is empty
	for i := range x {
		folds[2*(i/3%2)] = append(folds[2*(i/3%2)], i)
	}
	got, err := b.judge()(t.Context(), kernel, rows, folds)
	if err != nil {
		t.Fatal(err)
	}
	best, bestNu, bestLoss := -1, 0.0, 0.0
	for exponent := -5; exponent <= 11; exponent += 4 {
		nu := math.Ldexp(1, exponent)
		right, loss := 0, 0.0
		for _, fold := range folds {
			var rest [][]float64
			var sides []float64
			for i := range x {
				if !slices.Contains(fold, i) {
					rest, sides = append(rest, x[i]), append(sides, d[i])
				}
			}
			plane, err := svm.SMO{Kernel: kernel, Tolerance: 1e-8}.Fit(t.Context(), &svm.Rows{Columns: columnsOf(rest), D: sides}, nu)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range fold {
				value := -plane.Gamma
				for j, w := range plane.W {
					value += w * kernel.Value(kernel.Argument(x[i], rest[j]))
				}
				if value*d[i] > 0 {
					right++
				}
				loss += (value - d[i]) * (value - d[i])
			}
		}
		if right > best {
			best, bestNu, bestLoss = right, nu, loss/float64(len(x))
		}
	}
	if got.Nu != bestNu || math.Abs(got.Correctness-float64(best)/float64(len(x))) > 1e-12 || math.Abs(got.Loss-bestLoss) > 1e-5*bestLoss {
		t.Errorf("judged %+v, want ν %v, %d of %d right and a loss of %v", got, bestNu, best, len(x), bestLoss)
	}
	if best == len(x) {
		t.Error("all rows are right, so that nothing is compared")
	}
}

// columnsOf are rows by columns.
func columnsOf(x [][]float64) (columns []gram.Column) {
	for j := range x[0] {
		column := make([]float64, len(x))
		for i := range x {
			column[i] = x[i][j]
		}
		columns = append(columns, gram.ColumnOf(column))
	}
	return columns
}
