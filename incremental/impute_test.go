package incremental

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental/gram"
)

// gappy makes rows of the features a, b and c, where a and c have missing values. all has
// columns that mark missing values. naive has the weighted means, computed row by row, in
// their place.
func gappy(seed uint64, blocks, rows int) (all []*Block, naive *Block, means map[string]float64) {
	r := rand.New(rand.NewPCG(seed, 9))
	naive = &Block{Features: []string{"a", "b", "c"}, Classes: []string{"no", "yes", "zebra"}}
	columns := make([][]float64, 3)
	missing := make([][]bool, 3)
	for range blocks {
		b := &Block{Features: []string{"a", "a missing", "b", "c", "c missing"}, Classes: naive.Classes}
		x := make([][]float64, 5)
		for range rows {
			code := r.IntN(3)
			v := [3]float64{50 + 3*float64(code) + r.NormFloat64(), r.NormFloat64() - float64(code), 1e4 * (r.ExpFloat64() - float64(code%2))}
			gone := [3]bool{r.IntN(4) == 0, false, r.IntN(3) == 0}
			weight := float64(r.IntN(4)) / 2
			b.Codes, b.Weights = append(b.Codes, int32(code)), append(b.Weights, weight)
			naive.Codes, naive.Weights = append(naive.Codes, int32(code)), append(naive.Weights, weight)
			for j, at := range [3]int{0, 2, 3} {
				value, mark := v[j], 0.0
				if gone[j] {
					value, mark = 0, 1
				}
				x[at] = append(x[at], value)
				if j != 1 {
					x[at+1] = append(x[at+1], mark)
				}
				columns[j], missing[j] = append(columns[j], v[j]), append(missing[j], gone[j])
			}
		}
		for _, column := range x {
			b.Columns = append(b.Columns, gram.ColumnOf(column))
		}
		all = append(all, b)
	}
	means = map[string]float64{}
	for j, name := range naive.Features {
		var sum, weight float64
		for i, x := range columns[j] {
			if !missing[j][i] {
				sum, weight = sum+naive.Weights[i]*x, weight+naive.Weights[i]
			}
		}
		means[name] = sum / weight
		for i := range columns[j] {
			if missing[j][i] {
				columns[j][i] = means[name]
			}
		}
		naive.Columns = append(naive.Columns, gram.ColumnOf(columns[j]))
	}
	return all, naive, means
}

func stateOf(t testing.TB, blocks ...*Block) *State {
	t.Helper()
	s := NewState(blocks[0].Features)
	var z Summariser
	for _, b := range blocks {
		summary, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		s.Add(summary)
	}
	return s
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(b)) }

// Planes, leverages and losses equal those of rows whose missing values were replaced by
// the means one by one.
func TestMeanOfMissingValues(t *testing.T) {
	blocks, naive, means := gappy(1, 5, 80)
	moments, ours := stateOf(t, blocks...).Moments(), stateOf(t, naive).Moments()
	mean := []string{"c", "a"}
	for _, o := range []Options{
		{Nu: 1}, {Nu: 0.01, Balanced: true}, {Nu: 3, Standardise: true}, {Nu: 1, ClassWeights: map[string]float64{"no": 3}, Standardise: true},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			plain := o
			o.Mean = mean
			got, hat, err := moments.SolveWithHat(o)
			if err != nil {
				t.Fatal(err)
			}
			want, wantHat, err := ours.SolveWithHat(plain)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range got.Imputed {
				if name := got.Features[x.Feature]; !near(x.Mean, means[name]) || got.Features[x.Missing] != MissingName(name) {
					t.Errorf("%+v is not the mean %v of %s", x, means[name], name)
				}
			}
			paths, err := moments.Path(o, []float64{o.Nu, 10 * o.Nu})
			if err != nil {
				t.Fatal(err)
			}
			for p, plane := range want.Planes {
				for _, solved := range []*Model{got, paths[0]} {
					w := solved.Planes[p].W
					for j, at := range []int{0, 2, 3} {
						if !(math.Abs(w[at]-plane.W[j]) <= 1e-7*(math.Abs(plane.W[j])+1e-7)) {
							t.Errorf("plane %d, %s: w = %v, want %v", p, want.Features[j], w[at], plane.W[j])
						}
					}
					if got := w[1]; got != float64(solved.Imputed[1].Mean*w[0]) {
						t.Errorf("plane %d: a missing value of a counts %v", p, got)
					}
					if !near(solved.Planes[p].Gamma, plane.Gamma) {
						t.Errorf("plane %d: γ = %v, want %v", p, solved.Planes[p].Gamma, plane.Gamma)
					}
				}
			}
			// Rows with missing values have the values, leverages and contributions of
			// the imputed rows.
			k := len(want.Planes)
			var values, leverage []float64
			for _, b := range blocks {
				v, h := make([]float64, b.Rows()*k), make([]float64, b.Rows()*hat.Matrices())
				got.Classify(make([]int32, b.Rows()), v, b.Columns)
				hat.Leverage(h, b.Columns)
				values, leverage = append(values, v...), append(leverage, h...)
				c := make([]float64, b.Rows()*len(got.Features))
				got.Contributions(c, 0, b.Columns)
				for i := range b.Rows() {
					sum := got.Base(0)
					for _, x := range c[i*5:][:5] {
						sum += x
					}
					if !(math.Abs(sum-v[i*k]) < 1e-8) || c[i*5+1] != 0 || c[i*5+4] != 0 {
						t.Fatalf("contributions %v with the value %v", c[i*5:][:5], v[i*k])
					}
				}
			}
			m := naive.Rows()
			wantValues, wantLeverage := make([]float64, m*k), make([]float64, m*wantHat.Matrices())
			want.Classify(make([]int32, m), wantValues, naive.Columns)
			wantHat.Leverage(wantLeverage, naive.Columns)
			for i := range values {
				if !(math.Abs(values[i]-wantValues[i]) < 1e-7) {
					t.Fatalf("value %d is %v, want %v", i, values[i], wantValues[i])
				}
			}
			for i := range leverage {
				if !(math.Abs(leverage[i]-wantLeverage[i]) < 1e-9) {
					t.Fatalf("leverage %d is %v, want %v", i, leverage[i], wantLeverage[i])
				}
			}
			for p, l := range moments.Losses(nil, []*Model{got})[0] {
				if want := ours.Losses(nil, []*Model{want})[0][p]; !(math.Abs(l.Plus-want.Plus) < 1e-6*(1+want.Plus)) || !near(l.PlusWeight, want.PlusWeight) {
					t.Errorf("loss %+v, want %+v", l, want)
				}
			}
			back := got.WithPlanesOf(got.WithoutMissing())
			if !reflect.DeepEqual(back.Planes, got.Planes) {
				t.Errorf("planes %v come back as %v", got.Planes, back.Planes)
			}
			// Without the marks it is the model of rows that have the means.
			plainly := got.WithoutMissing()
			if !slices.Equal(plainly.Features, want.Features) {
				t.Errorf("features %q, want %q", plainly.Features, want.Features)
			}
			for j := range want.Features {
				if !near(plainly.Mean[j], want.Mean[j]) || !near(plainly.Deviation[j], want.Deviation[j]) {
					t.Errorf("%s: %v ± %v, want %v ± %v", want.Features[j], plainly.Mean[j], plainly.Deviation[j], want.Mean[j], want.Deviation[j])
				}
			}
			again := plainly.WithMissing(got.Features, map[string]float64{"a": got.Imputed[1].Mean, "c": got.Imputed[0].Mean})
			if !reflect.DeepEqual(again.Planes, got.Planes) || !slices.Equal(again.Features, got.Features) {
				t.Errorf("planes %v of %q come back as %v of %q", got.Planes, got.Features, again.Planes, again.Features)
			}
			filled := ImputeColumns(blocks[0].Columns, got.Imputed)
			for p := range want.Planes {
				c, sums := make([]float64, 5*blocks[0].Rows()), make([]float64, 3*blocks[0].Rows())
				again.Contributions(c, p, blocks[0].Columns)
				plainly.Contributions(sums, p, filled)
				for i := range blocks[0].Rows() {
					for j, at := range []int{0, 2, 3} {
						if x := sums[3*i+j]; !(math.Abs(c[5*i+at]-x) < 1e-9*(1+math.Abs(x))) {
							t.Fatalf("row %d: %s contributes %v, want %v", i, want.Features[j], c[5*i+at], x)
						}
					}
				}
			}
		})
	}
}

// Means and planes have the same bits in any order of the blocks, and after blocks have
// been added and retired.
func TestMeanIsAFunctionOfTheSet(t *testing.T) {
	blocks, _, _ := gappy(2, 6, 40)
	strangers, _, _ := gappy(3, 2, 25)
	o := Options{Nu: 2, Mean: []string{"a", "c"}, Standardise: true}
	want, err := stateOf(t, blocks...).Moments().Solve(o)
	if err != nil {
		t.Fatal(err)
	}
	var z Summariser
	s := NewState(blocks[0].Features)
	summaries := make([]*Summary, len(strangers))
	for i, b := range strangers {
		if summaries[i], err = z.Summarise(b); err != nil {
			t.Fatal(err)
		}
		s.Add(summaries[i])
	}
	slices.Reverse(blocks)
	for _, b := range blocks {
		summary, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		s.Add(summary)
	}
	for _, summary := range summaries {
		s.Remove(summary)
	}
	got, err := s.Moments().Solve(o)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A feature without any value counts as 0. A feature without a column for missing values
// is an error.
func TestMeanOfNothing(t *testing.T) {
	b := &Block{
		Features: []string{"a", "a missing", "b"}, Classes: []string{"no", "yes"}, Codes: []int32{0, 1, 1},
		Columns: []gram.Column{gram.ColumnOf([]float64{0, 0, 0}), gram.ColumnOf([]float64{1, 1, 1}), gram.ColumnOf([]float64{1, 2, 3})},
	}
	m := stateOf(t, b).Moments()
	model, err := m.Solve(Options{Nu: 1, Mean: []string{"a"}, Standardise: true})
	if err != nil {
		t.Fatal(err)
	}
	if w := model.Planes[0].W; w[0] != 0 || w[1] != 0 || w[2] == 0 || model.Imputed[0].Mean != 0 {
		t.Errorf("%+v", model)
	}
	for _, name := range []string{"b", "c"} {
		if _, err := m.Solve(Options{Nu: 1, Mean: []string{name}}); err == nil {
			t.Errorf("%s is imputed", name)
		}
	}
	if _, err := m.WithRegulariser(make([]float64, 6)).Solve(Options{Nu: 1, Mean: []string{"a"}}); err == nil {
		t.Error("imputed with a regulariser")
	}
}
