package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/dataset"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/wire"
)

// written is a file of that name and text.
func written(t *testing.T, name, text string, options wire.Options) *dataset.Dataset {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(path, options, func(string, func() (int64, float64)) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refused is the error of a fit.
func refused(t *testing.T, data *dataset.Dataset, want Settings) string {
	t.Helper()
	_, err := Learn(t.Context(), data, nil, want, func(string, func() string) func() { return func() {} })
	return fmt.Sprint(err)
}

// twoClasses are rows of the classes a and b, of which some are on the wrong side.
func twoClasses(rows int, seed uint64) (all []labelled) {
	r := rand.New(rand.NewPCG(78, seed))
	for i := range rows {
		k := float64(i % 2)
		all = append(all, labelled{2*k + r.NormFloat64(), k + r.NormFloat64(), 1, string("ab"[i%2])})
	}
	return all
}

// nearly reports whether planes are equal up to the rounding of another order of the rows.
func nearly(p, q incremental.Plane) bool {
	ok := p.Class == q.Class && len(p.W) == len(q.W) && math.Abs(p.Gamma-q.Gamma) < 1e-6*(1+math.Abs(q.Gamma))
	for j := range q.W {
		ok = ok && math.Abs(p.W[j]-q.W[j]) < 1e-6*(1+math.Abs(q.W[j]))
	}
	return ok
}

// Refined planes of a fold have not seen its rows either.
func TestRefinedFoldModelsNeverSawTheirRows(t *testing.T) {
	const folds, seed = 3, 7
	rows := twoClasses(300, 1)
	want := settings(1, folds, seed)
	want.Model.Refine = config.RefineFull
	refined := func(rows []labelled, folds int) *fit {
		want := want
		want.Model.Folds = folds
		f := newFit(fileOf(t, rows), want, func(string, func() string) func() { return func() {} })
		if err := f.learn(t.Context(), new(Report)); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := refined(rows, folds)
	deal := dataset.NewDealer(folds, seed)
	for fold, m := range f.foldModels {
		var others []labelled
		for i, row := range rows {
			if deal.Of(int64(i)) != fold {
				others = append(others, row)
			}
		}
		if alone := refined(others, 0).model; !nearly(m.Planes[0], alone.Planes[0]) || nearly(m.Planes[0], f.model.Planes[0]) {
			t.Errorf("fold %d has %+v, and the other rows alone %+v", fold, m.Planes[0], alone.Planes[0])
		}
	}
}

// Where no choice was asked for and rows are too few for one, none is made, and the report counts
// them.
func TestTooFewRowsToChoose(t *testing.T) {
	for _, c := range []struct {
		largest, others int
		want            string
	}{
		{15, 4, "there are 19 rows, 4 of them outside the largest class: a choice takes 20 and 4"},
		{17, 3, "there are 20 rows, 3 of them outside the largest class: a choice takes 20 and 4"},
		{16, 4, ""},
	} {
		var rows []labelled
		for i, row := range twoClasses(2*c.largest, 2) {
			if i%2 == 0 || i/2 < c.others {
				rows = append(rows, row)
			}
		}
		want := settings(config.NuAuto, 2, 1)
		want.NuByDefault, want.FoldsByDefault = true, true
		r := learned(t, fileOf(t, rows), nil, want)
		if !strings.Contains(r.Choice, c.want) || (r.Choice == "") != (c.want == "") || (r.Tuning == nil) != (c.want != "") || len(r.FoldAccuracies) > 0 != (c.want == "") {
			t.Errorf("of %d and %d rows %q, want %q: %+v, %v", c.largest, c.others, r.Choice, c.want, r.Tuning, r.FoldAccuracies)
		}
	}
}

// Nor is one made where all rows of a class are in one fold. Whoever asks for it gets an error.
func TestNoChoiceWithAClassInOneFold(t *testing.T) {
	var rows []labelled
	for i, row := range twoClasses(60, 3) {
		if i%2 == 0 || i < 20 {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b labelled) int { return strings.Compare(b.class, a.class) })
	want := settings(config.NuAuto, 2, 1)
	want.BlockRows, want.NuByDefault, want.FoldsByDefault = 10, true, true
	data := fileOf(t, rows)
	if r := learned(t, data, nil, want); r.Tuning != nil || !strings.Contains(r.Choice, "without one of the folds the rows are of fewer than two classes") {
		t.Errorf("%q, %+v", r.Choice, r.Tuning)
	}
	want.NuByDefault = false
	if err := refused(t, data, want); !strings.Contains(err, "choose nu for ") {
		t.Error(err)
	}
	want.NuByDefault, want.BlockRows = true, 0
	if err := refused(t, fileOf(t, rows[:10]), want); !strings.Contains(err, "learn from ") {
		t.Error(err)
	}
}

// A rule has slack if the rows contradict it. Without the conditions that do not support the planes
// these are the same.
func TestRulesThatHoldThePlanes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	data := fileOf(t, twoClasses(200, 4))
	for _, c := range []struct {
		when, then   string
		contradicted bool
	}{
		{"x >= 4 and x <= 5 and y >= 0 and y <= 1", "a", true},
		{"x >= 40 and x <= 50 and y >= 40 and y <= 50", "b", false},
	} {
		for _, blockRows := range []int{0, 20} {
			by := func(when string) *Report {
				if err := os.WriteFile(file, fmt.Appendf(nil, "rules: [{when: %s, then: %s}]", when, c.then), 0o600); err != nil {
					t.Fatal(err)
				}
				want := settings(1, 0, 1)
				want.Model.Knowledge, want.Model.Mu, want.BlockRows = file, 1, blockRows
				return learned(t, data, nil, want)
			}
			all := by(c.when)
			rule := all.Knowledge.Rules[0]
			if rule.Slack > 0.1 != c.contradicted || rule.Slack > 1e-6 != c.contradicted || len(rule.Support) == 0 || len(rule.Support) > 3 {
				t.Fatalf("blocks of %d rows: %+v", blockRows, rule)
			}
			some := by(strings.Join(rule.Support, " and "))
			p, q := all.Planes[0], some.Planes[0]
			if !nearly(incremental.Plane{W: p.W, Gamma: p.Gamma}, incremental.Plane{W: q.W, Gamma: q.Gamma}) {
				t.Errorf("blocks of %d rows: %+v, and by %q alone %+v", blockRows, p, rule.Support, q)
			}
		}
	}
}

// Each piece of the course has the share of the class that is the largest of all judged rows, also
// where it is not the largest of the piece.
func TestCourseHasTheLargestClass(t *testing.T) {
	rows := twoClasses(400, 5)
	for i := range rows {
		if i%10 < 3 || i > 350 { // so that b is the largest, and not at the end
			rows[i].class = "b"
		}
		if i > 350 && i%4 > 0 {
			rows[i].class = "a"
		}
	}
	want := settings(1, 0, 1)
	want.Progressive = 20
	r := learned(t, fileOf(t, rows), nil, want).Progressive
	at, less := 20, 0
	for _, piece := range r.Course {
		n := 0
		for _, row := range rows[at:][:piece.Rows] {
			if row.class == "b" {
				n++
			}
		}
		if share := float64(n) / float64(piece.Rows); piece.LargestClass != share {
			t.Errorf("the rows from %d have a share of %v of b, not %v", at, share, piece.LargestClass)
		} else if share < 0.5 {
			less++
		}
		at += int(piece.Rows)
	}
	if at != len(rows) || less == 0 || less == len(r.Course) {
		t.Errorf("the course has %d rows, and b is in the minority of %d of %d pieces", at, less, len(r.Course))
	}
}

// Rows without a label take part in the machine that learns from them, by blocks and without. It is
// the sparse one otherwise.
func TestUnlabelledRowsMoveThePlanes(t *testing.T) {
	var text strings.Builder
	text.WriteString("label,x,y\n")
	for i, row := range twoClasses(120, 6) {
		if i%3 == 0 {
			row.class = ""
			row.y += 2
		}
		fmt.Fprintf(&text, "%s,%v,%v\n", row.class, row.x, row.y)
	}
	data := written(t, "rows.csv", text.String(), wire.Options{KeepUnlabelled: true})
	for _, blockRows := range []int{0, 20} {
		want := settings(1, 0, 1)
		want.BlockRows, want.Model.Refine = blockRows, config.RefineUnlabelled
		with := learned(t, data, nil, want)
		want.Model.Refine = config.RefineSparse
		without := learned(t, data, nil, want)
		if slices.Equal(with.Planes[0].W, without.Planes[0].W) || with.Unlabelled != 40 || with.Rows != 120 {
			t.Errorf("blocks of %d rows: %+v with %d of %d rows without a label, and without them %+v", blockRows, with.Planes, with.Unlabelled, with.Rows, without.Planes)
		}
	}
}

// The machine of a full kernel answers the same in other units of the features, where it scales
// them.
func TestFullMachineInOtherUnits(t *testing.T) {
	rows, others := threeClasses(90, 5), threeClasses(60, 6)
	inUnits := func(rows []labelled) []labelled {
		rows = slices.Clone(rows)
		for i := range rows {
			rows[i].x *= 1024
			rows[i].y /= 64
		}
		return rows
	}
	want := settings(1, 3, 1)
	want.Kernel = config.Kernel{Function: "gaussian(gamma=0.3)", Reduce: ReduceNone, Regulariser: config.RegulariserKernel}
	want.Model.Refine, want.Model.Standardise = config.RefineHinge, config.SwitchOn
	one, other := learned(t, fileOf(t, rows), fileOf(t, others), want), learned(t, fileOf(t, inUnits(rows)), fileOf(t, inUnits(others)), want)
	if *one.TestAccuracy != *other.TestAccuracy || one.TrainAccuracy != other.TrainAccuracy || !slices.Equal(one.FoldAccuracies, other.FoldAccuracies) || *one.TestAccuracy < 0.7 {
		t.Errorf("%v, %v and %v are right, and in other units %v, %v and %v", *one.TestAccuracy, one.TrainAccuracy, one.FoldAccuracies, *other.TestAccuracy, other.TrainAccuracy, other.FoldAccuracies)
	}
	want.Model.Standardise = config.SwitchOff
	if other := learned(t, fileOf(t, inUnits(rows)), fileOf(t, inUnits(others)), want); *one.TestAccuracy == *other.TestAccuracy {
		t.Error("the units do not count without scales either")
	}
}

// Planes of a file with many more rows than the sample begin at planes of the sample, so that few
// readings of the file are left.
func TestSampleSavesReadings(t *testing.T) {
	lines, _, _ := ring(6000)
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	want := settings(2, 0, 1)
	want.Kernel = config.Kernel{Function: "gaussian(gamma=0.7)", Basis: 20, Reduce: "kmeans"}
	want.Model.Refine = config.RefineFull
	steps := map[int]int{}
	for _, sample := range []int{2000, 6000} { // all rows are no sample
		want.Sample.Rows = sample
		r := learned(t, opened(t, path, want).data, nil, want)
		steps[sample] = r.Refinement.Planes[0].Iterations
	}
	if steps[2000] >= steps[6000] {
		t.Errorf("after a sample there are %d steps, and %d without", steps[2000], steps[6000])
	}
}

// The ε-support vectors are the rows whose errors are below ε for every plane, and the second
// planes are those of a file with these rows alone.
func TestSupportVectorsAreTheRowsNearby(t *testing.T) {
	rows := threeClasses(300, 7)
	want := settings(1, 0, 1)
	want.EpsilonSV = 0.5
	r := learned(t, fileOf(t, rows), nil, want)
	var near []labelled
	for _, of := range rows {
		size := 0.0
		for _, p := range r.Planes {
			d := -1.0
			if p.Class == of.class {
				d = 1
			}
			size = max(size, math.Abs(p.W[0]*of.x+p.W[1]*of.y-p.Gamma-d))
		}
		if size < r.EpsilonSV.Epsilon && of.weight > 0 {
			near = append(near, of)
		}
	}
	if r.EpsilonSV.Rows != int64(len(near)) {
		t.Fatalf("%d rows have errors below %v, not %d", len(near), r.EpsilonSV.Epsilon, r.EpsilonSV.Rows)
	}
	alone := learned(t, fileOf(t, near), nil, settings(config.Nu(r.EpsilonSV.Nu), 0, 1))
	for i, p := range r.EpsilonSV.Planes {
		if !nearly(incremental.Plane{Class: p.Class, W: p.W, Gamma: p.Gamma}, incremental.Plane{Class: alone.Planes[i].Class, W: alone.Planes[i].W, Gamma: alone.Planes[i].Gamma}) {
			t.Errorf("%+v, and of these rows alone %+v", p, alone.Planes[i])
		}
	}
	want.EpsilonSV = 1
	if err := refused(t, fileOf(t, rows), want); !strings.Contains(err, "all rows are, which leaves none to choose nu by") {
		t.Error(err)
	}
	want.EpsilonSV = 1e-9
	if err := refused(t, fileOf(t, rows), want); !strings.Contains(err, "they are 1 row of 1 of the 3 classes") {
		t.Error(err)
	}
}

// A report has the plane of two classes alone, and those of more in a list; the digest of the sums;
// and the means of the features by weight.
func TestReportOfThePlanes(t *testing.T) {
	for _, rows := range [][]labelled{twoClasses(60, 8), threeClasses(60, 8)} {
		r := learned(t, fileOf(t, rows), nil, settings(1, 0, 1))
		again := learned(t, fileOf(t, rows), nil, settings(2, 0, 1))
		other := learned(t, fileOf(t, rows[1:]), nil, settings(1, 0, 1))
		var ws [][]float64
		var gammas []float64
		for _, p := range r.Planes {
			ws, gammas = append(ws, p.W), append(gammas, p.Gamma)
		}
		var w, gamma any = ws, gammas
		if len(r.Classes) == 2 {
			w, gamma = ws[0], gammas[0]
		}
		if fmt.Sprint(r.W, r.Gamma) != fmt.Sprint(w, gamma) {
			t.Errorf("%v and %v, want %v and %v", r.W, r.Gamma, w, gamma)
		}
		if len(r.Digest) != 64 || again.Digest != r.Digest || other.Digest == r.Digest {
			t.Errorf("the digests are %q, %q and %q", r.Digest, again.Digest, other.Digest)
		}
		x := 0.0
		for _, row := range rows {
			x += row.weight * row.x
		}
		if mean := x / weightOf(rows); math.Abs(r.Mean[0]-mean) > 1e-12 {
			t.Errorf("the mean is %v, not %v", r.Mean[0], mean)
		}
	}
}

// A file with too many features for sums is learned by machines that need none, with the same
// report. Whatever else needs sums is refused by name.
func TestWideFile(t *testing.T) {
	const features = dataset.MostSummed + 5
	var text strings.Builder
	x := 0.0
	rows := twoClasses(60, 9)
	for _, row := range rows {
		fmt.Fprintf(&text, "%d 1:%v 2:%v %d:1\n", row.class[0]-'a', row.x, row.y, features)
		x += row.x / float64(len(rows))
	}
	data := written(t, "rows.libsvm", text.String(), wire.Options{})
	want := settings(1, 3, 1)
	want.Model.Refine = config.RefineSparse
	r := learned(t, data, nil, want)
	if r.Digest != "" || r.TrainAccuracy < 0.8 || len(r.FoldAccuracies) != 3 || math.Abs(r.Mean[0]-x) > 1e-12 || r.Mean[features-1] != 1 || r.Mean[7] != 0 || r.Method != "sparse" || r.ClassRows[0] != 30 {
		t.Errorf("%v right, %v of the folds, means %v and %v, want %v; %s, %v", r.TrainAccuracy, r.FoldAccuracies, r.Mean[0], r.Mean[features-1], x, r.Method, r.ClassRows)
	}
	for reason, change := range map[string]func(s *Settings){
		"--block-rows, as in a daemon, needs sums":           func(s *Settings) { s.BlockRows = 1 },
		"--knowledge needs sums":                             func(s *Settings) { s.Model.Knowledge = "rules.yaml" },
		"--loo and --epsilon-sv need sums":                   func(s *Settings) { s.LOO = true },
		", and --loo and --epsilon-sv need sums":             func(s *Settings) { s.EpsilonSV = 0.1 },
		"auto for --standardise and --balanced needs sums":   func(s *Settings) { s.Model.Standardise = config.SwitchAuto },
		", and auto for --standardise and --balanced needs ": func(s *Settings) { s.Model.Balanced = config.SwitchAuto },
		"the planes of --method psvm and --refine line need": func(s *Settings) { s.Model.Refine = config.RefineLine },
	} {
		s := want
		if change(&s); !strings.Contains(refused(t, data, s), reason) {
			t.Errorf("%s, want %s", refused(t, data, s), reason)
		}
	}
}

// With auto the report has all bases that were compared, and the chosen one is that of the planes;
// and it has the γ that were tried.
func TestReportOfAChosenBasis(t *testing.T) {
	lines, _, _ := ring(120)
	data := written(t, "rows.csv", strings.Join(lines, ""), wire.Options{})
	want := settings(2, 3, 1)
	want.Kernel = config.Kernel{Function: "gaussian", Basis: 8, Reduce: ReduceAuto}
	want.ReduceTime = time.Minute
	r := learned(t, data, nil, want).Reduction
	if len(r.Gammas) == 0 || r.Unjudged != "" || r.Sample != 120 || r.Compared == nil || len(r.Compared.Trials) < 4 || r.Compared.Untried != 0 {
		t.Fatalf("%+v", r)
	}
	chosen := 0
	for _, trial := range r.Compared.Trials {
		if trial.Chosen {
			if chosen++; trial.Method != r.Method {
				t.Errorf("%s is chosen, and the basis is of %s", trial.Method, r.Method)
			}
		}
	}
	if chosen != 1 {
		t.Errorf("%d are chosen", chosen)
	}
	want.Kernel.Reduce, want.ReduceTime = ReduceAuto, 1
	if err := refused(t, data, want); !strings.Contains(err, "none was judged within 1ns") {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Learn(ended, data, nil, want, func(string, func() string) func() { return func() {} }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The area under a class's ROC curve is the share of pairs of a row of the class and another row,
// by their weights, in which the value of the class's plane is larger for the former. It is that of
// the test file, which may have rows of further classes.
func TestAreasAreSharesOfPairs(t *testing.T) {
	for _, rows := range [][]labelled{twoClasses(90, 10), threeClasses(90, 10)} {
		others := slices.Clone(rows[30:])
		for i := range others {
			if others[i].x += 0.3 * float64(i%4); i%17 == 0 {
				others[i].class = "z"
			}
		}
		r := learned(t, fileOf(t, rows), fileOf(t, others), settings(1, 0, 1))
		for c, of := range r.Test.Classes {
			sign, plane := 1.0, r.Planes[min(c, len(r.Planes)-1)]
			if plane.Class != of.Class {
				sign = -1
			}
			value := func(row labelled) float64 {
				return sign * (plane.W[0]*row.x + plane.W[1]*row.y - plane.Gamma)
			}
			var larger, pairs float64
			for _, row := range others {
				for _, other := range others {
					if row.class == of.Class && other.class != of.Class {
						pairs += row.weight * other.weight
						if value(row) > value(other) {
							larger += row.weight * other.weight
						}
					}
				}
			}
			if of.AUC == nil || math.Abs(*of.AUC-larger/pairs) > 1e-9 {
				t.Errorf("the area of class %s is %v, want %v", of.Class, *of.AUC, larger/pairs)
			}
		}
	}
}

// A choice that nobody asked for looks at a sample, too. The planes are refined on all rows.
func TestChoiceOnASampleRefinesOnAllRows(t *testing.T) {
	data := fileOf(t, twoClasses(600, 4))
	want := settings(config.NuAuto, 3, 1)
	want.Sample.Rows, want.Model.Refine = 100, config.RefineLogistic
	want.NuByDefault, want.FoldsByDefault = true, true
	chosen := learned(t, data, nil, want)
	if chosen.Tuning == nil || len(chosen.Planes) == 0 {
		t.Fatalf("nothing was chosen: %s", chosen.Choice)
	}
	want = settings(config.Nu(chosen.Options.Nu), 0, 1)
	want.Model.Refine = config.RefineLogistic
	all := learned(t, data, nil, want)
	for i, p := range chosen.Planes {
		q := all.Planes[i]
		if !nearly(incremental.Plane{Class: p.Class, W: p.W, Gamma: p.Gamma}, incremental.Plane{Class: q.Class, W: q.W, Gamma: q.Gamma}) {
			t.Errorf("the plane %+v, and of all rows %+v", p, q)
		}
	}
}
