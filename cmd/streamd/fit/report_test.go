package fit

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/dataset"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/study"
	"streamd/incremental/tuning"
	"streamd/ingest/wire"
	"streamd/kernels"
	"streamd/kernels/basis"
)

// labelled is a row as a test knows it.
type labelled struct {
	x, y, weight float64
	class        string
}

// threeClasses makes rows of which some weigh nothing.
func threeClasses(rows int, seed uint64) (all []labelled) {
	r := rand.New(rand.NewPCG(77, seed))
	for i := range rows {
		k := float64(i % 3)
		all = append(all, labelled{3*k + r.NormFloat64(), 2*math.Mod(k, 2) + r.NormFloat64(), float64(r.IntN(4)), string("abc"[i%3])})
	}
	return all
}

// fileOf is a file of rows.
func fileOf(t *testing.T, rows []labelled) *dataset.Dataset {
	t.Helper()
	text := []byte("label,v,x,y\n")
	for _, r := range rows {
		text = fmt.Appendf(text, "%s,%v,%v,%v\n", r.class, r.weight, r.x, r.y)
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(path, wire.Options{Weight: "v"}, func(string, func() (int64, float64)) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func learned(t *testing.T, data, test *dataset.Dataset, want Settings) *Report {
	t.Helper()
	r, err := Learn(t.Context(), data, test, want, func(string, func() string) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// weightOf is the weight of rows.
func weightOf(rows []labelled) (sum float64) {
	for _, r := range rows {
		sum += r.weight
	}
	return sum
}

// checkAnswers compares answers with the weights of rows.
func checkAnswers(t *testing.T, a *model.Answers, rows []labelled) {
	t.Helper()
	if a == nil {
		t.Fatal("there are no answers")
	}
	var all, right float64
	for i, of := range a.Confusion {
		var class float64
		for j, w := range of {
			if class += w; i == j {
				right += w
			}
		}
		var want float64
		for _, r := range rows {
			if r.class == a.Classes[i].Class {
				want += r.weight
			}
		}
		if all += class; class != want || a.Classes[i].Weight != want {
			t.Errorf("the rows of class %s weigh %v and %v, want %v", a.Classes[i].Class, class, a.Classes[i].Weight, want)
		}
	}
	if want := weightOf(rows); all != want || a.Weight != want || math.Abs(a.Correctness-right/all) > 1e-12 {
		t.Errorf("answers of weight %v and %v, want %v; correctness %v of %v", all, a.Weight, want, a.Correctness, right/all)
	}
}

// A report counts every row once, by its weight: held-out ones, those of the test file, and each by
// the class of the largest value. Its condition is the largest of the planes'.
func TestReportCountsTheRows(t *testing.T) {
	rows, others := threeClasses(600, 1), threeClasses(200, 2)
	data, test := fileOf(t, rows), fileOf(t, others)
	want := settings(1, 4, 3)
	want.Model.Calibration, want.Model.Decision = config.CalibrationNone, config.DecisionValue
	want.LOO, want.EpsilonSV = true, 0.4
	r := learned(t, data, test, want)
	checkAnswers(t, r.HeldOut, rows)
	checkAnswers(t, r.Test, others)
	share := func(rows []labelled) float64 {
		var right float64
		for _, of := range rows {
			best, class := math.Inf(-1), ""
			for _, p := range r.Planes {
				if v := p.W[0]*of.x + p.W[1]*of.y - p.Gamma; v > best {
					best, class = v, p.Class
				}
			}
			if class == of.class {
				right += of.weight
			}
		}
		return right / weightOf(rows)
	}
	if got, want := r.TrainAccuracy, share(rows); math.Abs(got-want) > 1e-12 {
		t.Errorf("the accuracy on the file is %v, want %v", got, want)
	}
	if got, want := *r.TestAccuracy, share(others); math.Abs(got-want) > 1e-12 {
		t.Errorf("the accuracy on the test file is %v, want %v", got, want)
	}
	if *r.LOOAccuracy < 0.8 || math.Abs(*r.LOOAccuracy-r.TrainAccuracy) > 0.02 {
		t.Errorf("each row left out, %v are right, and %v of the file", *r.LOOAccuracy, r.TrainAccuracy)
	}
	var most float64
	for _, p := range r.Planes {
		most = max(most, *p.Condition)
	}
	if r.Condition == nil || *r.Condition != most || len(r.FoldAccuracies) != 4 {
		t.Errorf("the condition is %v, want %v; folds %v", r.Condition, most, r.FoldAccuracies)
	}
	counted := int64(0)
	for _, of := range rows {
		if of.weight > 0 {
			counted++
		}
	}
	// Magnitudes of six bits hold more than the share by at most 1 in 64 of them.
	if near := float64(r.EpsilonSV.Rows) / float64(counted); r.Rows != counted || near < 0.4 || near > 0.45 {
		t.Errorf("%d of %d rows are near", r.EpsilonSV.Rows, r.Rows)
	}
	// The weights of classes are of classes that there are.
	want.Model.ClassWeights = map[string]float64{"z": 2}
	_, err := Learn(t.Context(), data, nil, want, func(string, func() string) func() { return func() {} })
	if missing := (ClassError{}); !errors.As(err, &missing) || !strings.Contains(err.Error(), `no class "z"; it has a, b, c`) {
		t.Errorf("a weight of a class without rows: %v", err)
	}
}

// A report of rules has the μ that was given, or chosen, and counts the rows of each rule, by sums
// as by rows.
func TestReportOfRules(t *testing.T) {
	rows := threeClasses(240, 3)
	data := fileOf(t, rows)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("rules: [{when: x >= 5 and y <= 9, then: c, within: [-99, 99]}, {when: x <= 0, then: b, within: [-99, 99]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	var met, right [2]int64
	for _, of := range rows {
		for i, is := range []bool{of.x >= 5 && of.y <= 9, of.x <= 0} {
			if is && of.weight > 0 {
				if met[i]++; of.class == []string{"c", "b"}[i] {
					right[i]++
				}
			}
		}
	}
	for _, blockRows := range []int{0, 20} {
		for _, mu := range []config.Nu{3, config.NuAuto} {
			want := settings(1, 3, 1)
			want.Model.Knowledge, want.Model.Mu, want.BlockRows = file, mu, blockRows
			if mu == config.NuAuto {
				want.Model.Nu = config.NuAuto
			}
			k := learned(t, data, nil, want).Knowledge
			if k == nil || mu == 3 && k.Mu != 3 || !slices.Contains(model.Mus(), k.Mu) && mu == config.NuAuto || len(k.Rules) != 2 {
				t.Fatalf("blocks of %d rows, μ %v: %+v", blockRows, mu, k)
			}
			for i, rule := range k.Rules {
				if rule.Rows != met[i] || rule.Right != right[i] || right[i] == met[i] || rule.Class != []string{"c", "b"}[i] {
					t.Errorf("blocks of %d rows: rule %+v, want %d of %d", blockRows, rule, right[i], met[i])
				}
			}
		}
	}
	want := settings(1, 0, 1)
	want.Model.Knowledge, want.Alone = file, true
	if o := learned(t, data, nil, want).Options; o.Nu != 0 {
		t.Errorf("planes of the rules alone have ν %v, which they take no part of", o.Nu)
	}
	want = settings(1, 3, 1)
	want.Model.Knowledge = file + ".none"
	if _, err := Learn(t.Context(), data, nil, want, func(string, func() string) func() { return func() {} }); err == nil {
		t.Error("rules that are not there pass")
	}
}

// A report says why labels are decided by another rule than the one that is asked for, and nothing
// where they are decided by it. Where no row can be held out, that is the reason; a rule that was
// asked for is an error then.
func TestReportOfTheRuleOfLabels(t *testing.T) {
	data := fileOf(t, threeClasses(300, 6))
	want := settings(1, 3, 1)
	if d := learned(t, data, nil, want).Decision; d.Rule != decision.Probability || d.Reason != "" {
		t.Errorf("%+v", d)
	}
	want.Model.Objective = config.ObjectiveBalanced
	if d := learned(t, data, nil, want).Decision; d.Rule == decision.Probability || d.Reason != study.EvenReason {
		t.Errorf("for the balanced objective %+v", d)
	}

	const of = "leaves rows of every class to the others"
	reached := false
	for seed := range uint64(9) {
		var rows []labelled // one block has no c, and the other no b
		all := threeClasses(60, seed)
		for i := range 20 {
			all[3*i].weight, all[3*i+1].weight, all[3*i+2].weight = 1, 1, 1
			if i < 10 {
				rows = append(rows, all[3*i], all[3*i+1])
			}
		}
		for i := 10; i < 20; i++ {
			rows = append(rows, all[3*i], all[3*i+2])
		}
		data, want := fileOf(t, rows), settings(1, 2, 1)
		want.BlockRows = 20
		r, err := Learn(t.Context(), data, nil, want, func(string, func() string) func() { return func() {} })
		if err != nil || !strings.Contains(r.Decision.Reason, of) { // both are in one fold
			continue
		}
		reached = true
		want.Model.Decision = config.DecisionCost
		if err := refused(t, data, want); !strings.Contains(err, of) {
			t.Errorf("a rule of costs without held-out rows: %v", err)
		}
	}
	if !reached {
		t.Error("the two blocks are always in one fold")
	}
}

// The machine of a full kernel scores every row by planes without its fold, and chooses ν by them.
func TestFullMachineHoldsOutEveryRow(t *testing.T) {
	rows := threeClasses(90, 4)
	for i := range rows {
		rows[i].weight = 1
	}
	data := fileOf(t, rows)
	want := settings(config.NuAuto, 3, 1)
	want.Kernel = config.Kernel{Function: "gaussian(gamma=0.3)", Reduce: ReduceNone, Regulariser: config.RegulariserKernel}
	want.Model.Refine, want.Model.Calibration, want.Model.Decision = config.RefineHinge, config.CalibrationNone, config.DecisionValue
	r := learned(t, data, nil, want)
	checkAnswers(t, r.HeldOut, rows)
	if r.Reduction == nil || r.Reduction.Method != string(ReduceNone) || r.Basis == nil {
		t.Fatalf("the planes are of the basis %+v, %+v", r.Reduction, r.Basis)
	}
	if r.Tuning == nil || r.Tuning.Folds != 3 || len(r.Tuning.Curves) != 1 || len(r.FoldAccuracies) != 3 {
		t.Fatalf("the choice is %+v, the folds are %v", r.Tuning, r.FoldAccuracies)
	}
	best := -1.0
	for _, p := range r.Tuning.Curves[0].Points {
		if *p.Correctness > best {
			best = *p.Correctness
		}
		if p.Nu == r.Tuning.Nu && math.Abs(*p.Correctness-r.HeldOut.Correctness) > 1e-12 {
			t.Errorf("by the choice %v are right, and by the folds %v", *p.Correctness, r.HeldOut.Correctness)
		}
	}
	if best < 0.8 || r.Tuning.Best != best || r.Options.Nu != r.Tuning.Nu {
		t.Errorf("ν is %v with %v, the best is %v", r.Tuning.Nu, r.Tuning.Best, best)
	}
}

// A comparison lists each reducer and each size once, and the failures apart. Sizes go down to the
// number of planes.
func TestComparisonOfBases(t *testing.T) {
	of := func(name string, size int, failed error) basis.Judged {
		return basis.Judged{Candidate: basis.Candidate{Name: name, Coordinates: size}, Failed: failed}
	}
	r := newComparison(&basis.Comparison{Judged: []basis.Judged{
		of("random", 4, nil), of("random", 8, nil), of("kmeans", 8, nil), of("kmeans", 4, errors.New("no")), of("kmeans", 2, nil),
	}, Chosen: 2, Folds: 3}, tuning.Accuracy)
	if !slices.Equal(r.Reducers, []string{"random", "kmeans"}) || !slices.Equal(r.Sizes, []int{8, 4, 2}) || len(r.Trials) != 4 || len(r.Failures) != 1 {
		t.Errorf("%+v", r)
	}
	for i := range r.Trials {
		if r.Trials[i].Chosen != (i == 2) {
			t.Errorf("trial %d: %+v", i, r.Trials[i])
		}
	}
	gaussian, err := kernels.Gaussian(1)
	if err != nil {
		t.Fatal(err)
	}
	for classes, least := range map[int]int{2: 3, 5: 5, 9: 9} {
		f := &fit{rows: &rowSample{Block: &incremental.Block{Classes: make([]string, classes)}}}
		sizes := map[int]bool{}
		for _, c := range f.candidates(gaussian, 40) {
			sizes[c.Coordinates] = true
		}
		for size := 40; size > 0; size /= 2 {
			if sizes[size] != (size >= least) {
				t.Errorf("%d classes: a basis of %d is tried: %t", classes, size, sizes[size])
			}
		}
	}
}
