package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/incremental/sample"
	"streamd/incremental/tuning"
)

// live is blocks with their sums, apart by fold, and a sample of their rows.
type live struct {
	blocks []*incremental.Block
	fold   []int // of each block
	Problem
	view       *sample.View
	unlabelled *sample.Unlabelled
}

// newLive takes in blocks, those aside that are not wanted; nil: all are.
func newLive(t testing.TB, blocks []*incremental.Block, folds, rows int, wanted func(fold int) bool) *live {
	t.Helper()
	features := blocks[0].Features
	l := &live{Problem: Problem{Whole: incremental.NewState(features)}}
	for range folds {
		l.Folds = append(l.Folds, incremental.NewState(features))
	}
	held := sample.New(sample.Settings{Rows: rows}, slices.Values([]string(nil)))
	var z incremental.Summariser
	var taker sample.Taker
	for i, b := range blocks {
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		fold := sample.Fold(s.LabelledDigest(), folds)
		if wanted != nil && !wanted(fold) {
			continue
		}
		l.Whole.Add(s)
		l.Folds[fold].Add(s)
		l.blocks, l.fold = append(l.blocks, b), append(l.fold, fold)
		held.Add(fmt.Sprint(i), taker.Take(b, s.LabelledDigest(), s.Totals(), held.Levels()))
	}
	snap := held.Snapshot(l.Whole, folds)
	l.view, l.unlabelled = snap.View(), snap.Unlabelled()
	return l
}

func (l *live) sample() *Sample { return NewSample(l.view, l.Whole.Totals(), l.Folds) }

// Parts implements the interface with whole blocks, the last one first.
func (l *live) Parts(_ context.Context, visit func(fold int, part *incremental.Block) error) error {
	for i := len(l.blocks) - 1; i >= 0; i-- {
		if err := visit(l.fold[i], l.blocks[i]); err != nil {
			return err
		}
	}
	return nil
}

// overlapping makes blocks of three classes that overlap, of features of different
// scale; the weights are whole numbers, some of them 0.
func overlapping(blocks, rows int) (all []*incremental.Block) {
	r := rand.New(rand.NewPCG(41, uint64(blocks)))
	for range blocks {
		b := &incremental.Block{Features: []string{"a", "b", "c"}, Classes: []string{"one", "three", "two"}}
		x := make([][]float32, 3)
		for range rows {
			code := r.IntN(3)
			b.Codes = append(b.Codes, int32(code))
			b.Weights = append(b.Weights, float64(r.IntN(4)))
			x[0] = append(x[0], float32(float64(code)+r.NormFloat64()))
			x[1] = append(x[1], float32(100*(math.Abs(float64(code)-1)+r.NormFloat64())))
			x[2] = append(x[2], float32(5+r.ExpFloat64()))
		}
		for _, column := range x {
			b.Columns = append(b.Columns, gram.ColumnOf(column))
		}
		all = append(all, b)
	}
	return all
}

const everyRow = 1 << 20

// Where all rows of the sample have too many values, the first ones are judged, which
// are a sample too, and as if it had no others.
func TestJudgesFirstRowsOfManyClasses(t *testing.T) {
	const folds, rows, planes = 5, 100, 3
	l := newLive(t, overlapping(20, 60), folds, 4*rows, nil)
	s := New(&l.Problem, Options{Planes: incremental.Options{Nu: 1}})
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	got, err := s.HoldOut(t.Context(), l.sample(), rows*planes+planes-1)
	if err != nil {
		t.Fatal(err)
	}
	small := *l.view
	small.Block, small.Fold = l.view.Block.Slice(0, rows), l.view.Fold[:rows]
	want, err := s.HoldOut(t.Context(), NewSample(&small, l.Whole.Totals(), l.Folds), everyRow)
	if err != nil {
		t.Fatal(err)
	}
	if l.view.Block.Rows() != 4*rows || len(got.codes) != rows || len(got.values) != rows*planes {
		t.Fatalf("of %d rows, %d are judged by %d values", l.view.Block.Rows(), len(got.codes), len(got.values))
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the first rows are judged in another way than as if there were no others")
	}
}

// A sample that has every row chooses as the rows themselves do, whatever parts these
// come in.
func TestTuneByRowsFromElsewhere(t *testing.T) {
	l := newLive(t, overlapping(20, 60), 4, everyRow, nil)
	for _, o := range []Options{
		{},
		{AnyScale: true, Others: true},
		{Planes: incremental.Options{Balanced: true, Standardise: true}},
	} {
		one, other := New(&l.Problem, o), New(&l.Problem, o)
		a, err := one.Tune(t.Context(), l.sample())
		if err != nil {
			t.Fatal(err)
		}
		b, err := other.Tune(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(one.Options(), other.Options()) {
			t.Errorf("%+v: the sample chooses %+v, all rows %+v", o, one.Options(), other.Options())
		}
		if one.Options().Nu != a.Point.Nu || a.Curves[0].Rows() == 0 || o.Others != (len(a.Curves) == 4) {
			t.Errorf("%+v: %+v of %d curves", o, one.Options(), len(a.Curves))
		}
		blind, err := New(&l.Problem, o).Tune(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if c := blind.Curves[0]; c.Rows() != 0 || c.Points()[0].Loss != a.Curves[0].Points()[0].Loss {
			t.Errorf("%+v: without rows %+v", o, c.Points()[0])
		}
	}
}

// still has the same planes whatever the rows, and refined ones, too.
type still struct{ w, gamma float64 }

func (still) String() string          { return "still" }
func (still) Uses() (matrix, nu bool) { return false, false }
func (s still) Plane(p *incremental.Program, _ float64) ([]float64, error) {
	z := slices.Repeat([]float64{s.w}, len(p.Right))
	z[len(p.Right)-1] = s.gamma
	return z, nil
}
func (still) Continues() bool  { return false }
func (still) Unlabelled() bool { return false }
func (s still) Refine(_ context.Context, m *incremental.Model, _ newton.Rows, _ newton.Options) (*newton.Result, error) {
	refined := *m
	refined.Planes = slices.Clone(m.Planes)
	for i := range refined.Planes {
		refined.Planes[i].Gamma = s.gamma
	}
	return &newton.Result{Model: &refined}, nil
}

// Of several ways Tune takes the one whose held-out rows are most correct, and of equals the first.
// It has the figures of a study that has no other way.
func TestTuneChoosesTheWay(t *testing.T) {
	l := newLive(t, overlapping(12, 60), 4, everyRow, nil)
	psvm, bad, worse := Way{}, Way{Solver: still{0, 1}, Refine: still{0, 1}}, Way{Solver: still{0, 2}, Refine: still{0, 2}}
	for _, refining := range []Refining{Never, Always, Either} {
		for _, c := range []struct {
			ways []Way
			want int
		}{{[]Way{bad, psvm, worse}, 1}, {[]Way{psvm, psvm}, 0}, {[]Way{worse, bad}, 0}} {
			o := Options{Refining: refining, AnyScale: true, Others: true, Held: Judging{Values: everyRow}}
			o.Ways = c.ways
			s := New(&l.Problem, o)
			got, err := s.Tune(t.Context(), l.sample())
			if err != nil {
				t.Fatal(err)
			}
			one := o
			one.Ways, one.Planes.Solver, one.Refine = nil, c.ways[c.want].Solver, c.ways[c.want].Refine
			alone := New(&l.Problem, one)
			want, err := alone.Tune(t.Context(), l.sample())
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Point, want.Point) || !reflect.DeepEqual(s.Options(), alone.Options()) || s.RefinesBy() != alone.RefinesBy() || s.Refines() != alone.Refines() {
				t.Errorf("%v, %v: %+v by %v, alone %+v by %v", refining, c.ways, s.Options(), s.RefinesBy(), alone.Options(), alone.RefinesBy())
			}
			if !reflect.DeepEqual(got.Ways[got.Chosen].Solver, one.Planes.Solver) || len(got.Ways) != len(got.Curves) || len(got.Curves) <= len(want.Curves) {
				t.Errorf("%v, %v: ways %v of %d curves, chosen %d", refining, c.ways, got.Ways, len(got.Curves), got.Chosen)
			}
		}
	}
}

// The decision values of a fold's rows are those of planes that never saw them: of a
// study of the other folds' blocks.
func TestHeldOutRowsWereNotSeen(t *testing.T) {
	const folds = 4
	blocks := overlapping(20, 60)
	l := newLive(t, blocks, folds, everyRow, nil)
	for _, o := range []Options{
		{Planes: incremental.Options{Nu: 2, Standardise: true}},
		{Planes: incremental.Options{Nu: 2}, Refine: newton.Line},
		{Planes: incremental.Options{Nu: 2, Balanced: true}, Refine: newton.Full},
	} {
		refined := !o.Planes.Standardise
		planes := func(l *live) *Study {
			s := New(&l.Problem, o)
			if _, err := s.Solve(); err != nil {
				t.Fatal(err)
			}
			if refined {
				rows, standFor := l.sample().All()
				if _, err := s.Refine(t.Context(), rows, standFor); err != nil {
					t.Fatal(err)
				}
			}
			return s
		}
		of := l.sample()
		held, err := planes(l).HoldOut(t.Context(), of, everyRow)
		if err != nil {
			t.Fatal(err)
		}
		if len(held.folds) != folds || len(held.codes) != l.view.Block.Rows() {
			t.Fatalf("%d rows of %d folds", len(held.codes), len(held.folds))
		}
		for i, in := range held.folds {
			others := planes(newLive(t, blocks, folds, everyRow, func(fold int) bool { return fold != i }))
			rows := l.view.Block.Pick(of.in[i])
			class, values := make([]int32, rows.Rows()), make([]float64, 3*rows.Rows())
			others.model.Classify(class, values, rows.Columns)
			for j, want := range values {
				// The search for refined planes begins elsewhere, and ends within rounding.
				if got := held.values[3*in.from+j]; got != want && !(refined && math.Abs(got-want) < 1e-9) {
					t.Fatalf("%+v, fold %d: value %d is %v, not %v", o, i, j, got, want)
				}
			}
		}
	}
}

// Planes that move to the next ν end where planes that were solved for it do.
func TestMove(t *testing.T) {
	l := newLive(t, overlapping(20, 60), 4, everyRow, nil)
	rows, standFor := l.sample().All()
	for _, method := range []newton.Method{newton.Full, newton.Line, newton.Logistic} {
		o := Options{Planes: incremental.Options{Standardise: true}, Refine: method}
		moving := Of(l.Whole.Moments(), o)
		for i, nu := range []float64{0.01, 1, 100} {
			if moves := moving.Move(nu); moves != (i > 0 && method != newton.Line) {
				t.Fatalf("%v, ν = %v: planes move: %v", method, nu, moves)
			} else if !moves {
				if _, err := moving.Solve(); err != nil {
					t.Fatal(err)
				}
			}
			got, err := moving.Refine(t.Context(), rows, standFor)
			if err != nil {
				t.Fatal(err)
			}
			o.Planes.Nu = nu
			anew := Of(l.Whole.Moments(), o)
			if _, err := anew.Solve(); err != nil {
				t.Fatal(err)
			}
			want, err := anew.Refine(t.Context(), rows, standFor)
			if err != nil {
				t.Fatal(err)
			}
			if got.Model.Options.Nu != nu {
				t.Errorf("%v: ν = %v, not %v", method, got.Model.Options.Nu, nu)
			}
			for p, plane := range want.Model.Planes {
				for j, w := range plane.W {
					if v := got.Model.Planes[p].W[j]; !(math.Abs(v-w) < 1e-9*(1+math.Abs(w))) {
						t.Errorf("%v, ν = %v: plane %d has %v, not %v", method, nu, p, v, w)
					}
				}
			}
		}
	}
}

// A study that is given up ends with its context's error, and one that cannot choose
// keeps its options.
func TestStudyEnds(t *testing.T) {
	l := newLive(t, overlapping(20, 60), 4, everyRow, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(&l.Problem, Options{Planes: incremental.Options{Nu: 3}})
	if _, err := s.Tune(ctx, l.sample()); !errors.Is(err, context.Canceled) || s.Options().Nu != 3 {
		t.Errorf("%v, with ν = %v", err, s.Options().Nu)
	}
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.HoldOut(ctx, l.sample(), everyRow); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	held, err := s.HoldOut(t.Context(), l.sample(), everyRow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Calibrate(ctx, Auto); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c, err := held.Calibrate(t.Context(), Auto)
	if err != nil {
		t.Fatal(err)
	}
	before, err := held.Reliability(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Kind != Softmax || len(c.Curves) != 3 || len(c.After.Planes) != 3 || !(c.After.All.LogLoss < before.All.LogLoss) {
		t.Errorf("calibration %v: log loss %v, before %v", c.Kind, c.After.All.LogLoss, before.All.LogLoss)
	}

	one := newLive(t, []*incremental.Block{overlapping(1, 60)[0]}, 4, everyRow, nil)
	s = New(&one.Problem, Options{Planes: incremental.Options{Nu: 3}})
	if _, err := s.Tune(t.Context(), one.sample()); !errors.Is(err, incremental.ErrClasses) || s.Options().Nu != 3 {
		t.Errorf("one fold with rows: %v, with ν = %v", err, s.Options().Nu)
	}
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.HoldOut(t.Context(), one.sample(), everyRow); err == nil {
		t.Error("rows are held out that no other fold has planes for")
	}
}

// Refined planes of rows with missing values are those of rows that were imputed beforehand,
// on a sample in memory and on rows from elsewhere, with folds and without.
func TestRefineWithMissingValues(t *testing.T) {
	blocks := overlapping(12, 50)
	features := []string{"a", "b", "b missing", "c"}
	r := rand.New(rand.NewPCG(5, 6))
	var gappy []*incremental.Block
	for _, b := range blocks {
		x, missing := make([]float64, b.Rows()), make([]float64, b.Rows())
		b.Columns[1].Copy(x, 0)
		for i := range x {
			if r.IntN(3) == 0 {
				x[i], missing[i] = 0, 1
			}
		}
		with := *b
		with.Features = features
		with.Columns = []gram.Column{b.Columns[0], gram.ColumnOf(x), gram.ColumnOf(missing), b.Columns[2]}
		gappy = append(gappy, &with)
	}
	l := newLive(t, gappy, 4, everyRow, nil)
	for _, o := range []Options{
		{Planes: incremental.Options{Nu: 2, Standardise: true, Mean: []string{"b"}}, Refine: newton.Full},
		{Planes: incremental.Options{Nu: 2, Mean: []string{"b"}}, Refine: newton.Line},
	} {
		s := New(&l.Problem, o)
		solved, err := s.Solve()
		if err != nil {
			t.Fatal(err)
		}
		var naive []*incremental.Block
		for _, b := range gappy {
			naive = append(naive, incremental.ImputeBlock(b, solved.Imputed))
		}
		plain := o
		plain.Planes.Mean = nil
		other := newLive(t, naive, 4, everyRow, nil)
		want := New(&other.Problem, plain)
		if _, err := want.Solve(); err != nil {
			t.Fatal(err)
		}
		wanted, err := want.Refine(t.Context(), newton.Blocks(naive), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, rows := range map[string]newton.Rows{"memory": newton.Blocks(gappy), "elsewhere": passing{newton.Blocks(gappy)}} {
			got, err := s.Refine(t.Context(), rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			mu := got.Model.Imputed[0].Mean
			for p, plane := range wanted.Model.Planes {
				w := got.Model.Planes[p].W
				for j, at := range []int{0, 1, 3} {
					if !(math.Abs(w[at]-plane.W[j]) < 1e-8*(1+math.Abs(plane.W[j]))) {
						t.Errorf("%s, plane %d: w = %v, want %v", name, p, w, plane.W)
					}
				}
				if w[2] != float64(mu*w[1]) {
					t.Errorf("%s, plane %d: a missing value counts %v, want %v", name, p, w[2], mu*w[1])
				}
			}
			if _, err := s.Solve(); err != nil {
				t.Fatal(err)
			}
		}
		rows, standFor := l.sample().All()
		if _, err := s.Refine(t.Context(), rows, standFor); err != nil {
			t.Fatal(err)
		}
		held, err := s.HoldOut(t.Context(), l.sample(), everyRow)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(held.codes); got != l.view.Block.Rows() {
			t.Errorf("%d rows are held out of %d", got, l.view.Block.Rows())
		}
		if _, err := s.Tune(t.Context(), l.sample()); err != nil {
			t.Fatal(err)
		}
	}
}

// passing hides that rows are in memory.
type passing struct{ newton.Rows }

// surprise is the mean of −log p over the rows, of more than two classes.
func (h *HeldOut) surprise() float64 {
	var sum, weight float64
	k := len(h.model.Planes)
	for i, class := range h.codes {
		all, own := 0.0, h.values[i*k+int(class)]
		for _, v := range h.values[i*k:][:k] {
			all += math.Exp(v - own)
		}
		sum, weight = sum+h.weight[i]*math.Log(all), weight+h.weight[i]
	}
	return sum / weight
}

// Tune holds out the first folds that have enough rows, two at least, and its figures are of
// these alone. Planes without a fold that are there already are taken as they are.
func TestHoldsOutAsManyFoldsAsItNeeds(t *testing.T) {
	l := newLive(t, overlapping(80, 1_000), 5, everyRow, nil)
	of := l.sample()
	folds := of.Enough()
	rows := 0
	for _, in := range of.in[:folds] {
		rows += len(in)
	}
	if folds < 2 || folds >= len(of.in) || rows < scoredRows || folds > 2 && rows-len(of.in[folds-1]) >= scoredRows {
		t.Fatalf("%d folds of %d with %d rows", folds, len(of.in), rows)
	}
	if all := newLive(t, overlapping(40, 100), 5, everyRow, nil).sample(); all.Enough() != 5 {
		t.Errorf("%d folds of few rows", all.Enough())
	}
	s := New(&l.Problem, Options{Refining: Either, Held: Judging{Values: everyRow}})
	got, err := s.Tune(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got.Curves {
		if c.Rows() != int64(rows) || len(c.Points()[0].FoldLoss) != folds {
			t.Errorf("%q: %d rows of %d folds", c.Method, c.Rows(), len(c.Points()[0].FoldLoss))
		}
	}
	if _, err := s.Solve(); err != nil {
		t.Fatal(err)
	}
	own, err := s.HoldOut(t.Context(), of, everyRow)
	if err != nil {
		t.Fatal(err)
	}
	var without []*incremental.Model
	for i := range of.in {
		m, err := s.without(i).Solve(s.Options())
		if err != nil {
			t.Fatal(err)
		}
		without = append(without, m)
	}
	without[1] = nil
	s.UseWithout(without)
	given, err := s.HoldOut(t.Context(), of, everyRow)
	if err != nil {
		t.Fatal(err)
	}
	if len(own.folds) != 5 || len(given.folds) != 4 || given.folds[1].fold != 2 {
		t.Fatalf("%+v, %+v", own.folds, given.folds)
	}
	if in := own.folds[0]; !slices.Equal(own.values[:in.to], given.values[:in.to]) {
		t.Error("other planes without the first fold")
	}
}

// A curve of refined planes is that of studies with each ν, and no figure of all that were tried
// is better than the choice by more than the rule gives up, be it refined or not, scaled or not,
// balanced or not: one standard error within a curve, and one and a half between curves.
func TestTunesForThePlanesThatAreServed(t *testing.T) {
	l := newLive(t, overlapping(12, 60), 4, everyRow, nil)
	for _, objective := range []tuning.Objective{tuning.Accuracy, tuning.Balanced} {
		for _, method := range []newton.Method{newton.Full, newton.Line, newton.Logistic} {
			o := Options{
				AnyScale: true, AnyBalance: true, Objective: objective,
				Refining: Either, Refine: method, AnyMethod: method == newton.Full, Held: Judging{Values: everyRow},
			}
			curves, finals := 7, 2 // refined with the other balance in one scaling
			if o.AnyMethod {       // the last curve is that of Logistic
				curves, finals = 8, 3
			}
			s := New(&l.Problem, o)
			got, err := s.Tune(t.Context(), l.sample())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Curves) != curves || len(got.Finals) != finals || s.Refines() != (got.Curves[got.Chosen].Method != "") {
				t.Fatalf("%v: %d curves, %d finals, refined: %v", method, len(got.Curves), len(got.Finals), s.Refines())
			}
			var most float64
			for _, final := range got.Finals {
				most = max(most, objective.Of(final.Quality.Correctness, final.Quality.BalancedCorrectness))
			}
			for i, c := range got.Curves {
				for _, p := range c.Points() {
					if figure := objective.Of(p.Scores.Correctness, p.Scores.BalancedCorrectness); figure > most+2.5*max(p.Scores.Error, p.Scores.BalancedError) {
						t.Errorf("%v: curve %d has %v at ν = %v, the choice %v", method, i, figure, p.Nu, most)
					}
				}
			}
			for i, c := range got.Curves[4:] {
				by := method
				if i >= 3 {
					by = newton.Logistic
				}
				for _, at := range []int{0, len(c.Points()) / 2, len(c.Points()) - 1} {
					p := c.Points()[at]
					one := o
					one.Planes, one.Planes.Nu, one.Refine = c.Options, p.Nu, by
					y := New(&l.Problem, one)
					if _, err := y.Solve(); err != nil {
						t.Fatal(err)
					}
					rows, standFor := l.sample().All()
					if _, err := y.Refine(t.Context(), rows, standFor); err != nil {
						t.Fatal(err)
					}
					held, err := y.HoldOut(t.Context(), l.sample(), everyRow)
					if err != nil {
						t.Fatal(err)
					}
					decided, err := held.Decide(Decision{Kind: decision.Value}, nil)
					if err != nil {
						t.Fatal(err)
					}
					want, err := held.Quality(t.Context(), decided)
					if err != nil {
						t.Fatal(err)
					}
					if loss := held.surprise(); by == newton.Logistic && !(math.Abs(p.Loss-loss) <= 1e-8*loss) { // both are coarse
						t.Errorf("ν = %v, %+v: the loss is %v, and %v by definition", p.Nu, c.Options, p.Loss, loss)
					}
					if c.Method != by.String() || math.Abs(p.Scores.Correctness-want.Correctness) > 1e-12 || math.Abs(p.Scores.BalancedCorrectness-want.BalancedCorrectness) > 1e-12 {
						t.Errorf("%v, ν = %v, %+v: %v and %v, and %v and %v of a study with this ν", by, p.Nu, c.Options,
							p.Scores.Correctness, p.Scores.BalancedCorrectness, want.Correctness, want.BalancedCorrectness)
					}
				}
			}
		}
	}
}

// Some rows of a sample are of all its classes, those of rare ones too.
func TestSomeRowsAreOfAllClasses(t *testing.T) {
	l := newLive(t, overlapping(20, 60), 4, everyRow, nil)
	all := l.sample()
	for i := range all.block.Codes {
		if all.block.Codes[i] == 2 && i > 100 {
			all.block.Codes[i] = 0
		}
	}
	rare := 0
	for _, c := range all.block.Codes {
		if c == 2 {
			rare++
		}
	}
	few := all.some(200)
	var count [3]int
	for _, c := range few.block.Codes {
		count[c]++
	}
	if n := few.block.Rows(); n < 200 || n > 200+rare || count[2] != 200/6 || rare <= 200/6 {
		t.Errorf("%v of %d rows, %d of them of the rare class", count, n, rare)
	}
	folds, of := 0, map[int]bool{}
	for fold, in := range few.in {
		for _, i := range in {
			folds, of[i] = folds+1, true
			found := false
			for _, j := range all.in[fold] {
				found = found || all.block.Columns[0].At(j) == few.block.Columns[0].At(i) && all.block.Codes[j] == few.block.Codes[i]
			}
			if !found {
				t.Errorf("row %d is not of fold %d", i, fold)
			}
		}
	}
	if n := few.block.Rows(); folds != n || len(of) != n {
		t.Errorf("the folds have %d places of %d of the %d rows", folds, len(of), n)
	}
	if all.some(l.view.Block.Rows()) != all {
		t.Error("some of as many rows as there are is a copy")
	}
}

// spy is a Refiner that notes what rows stand for, by class, and leaves the planes.
type spy struct {
	newton.Method
	seen []map[string]float64 // of each call
}

func (*spy) Unlabelled() bool { return true }

func (*spy) Continues() bool { return false }

func (s *spy) Refine(ctx context.Context, model *incremental.Model, rows newton.Rows, o newton.Options) (*newton.Result, error) {
	weight := map[string]float64{}
	err := rows.Pass(ctx, func(b *incremental.Block) error {
		for i, code := range b.Codes {
			label := b.Classes[code]
			weight[label] += b.Weight(i) * o.Multipliers[label]
		}
		return nil
	})
	s.seen = append(s.seen, weight)
	return &newton.Result{Model: model}, err
}

// A Refiner that takes rows without a label gets those of the sample, which stand for all such
// rows outside a fold. They are in no score, and change none of other planes.
func TestUnlabelledRowsOfASample(t *testing.T) {
	const folds = 4
	blocks := overlapping(20, 60)
	for i, b := range blocks {
		b.Classes = append(b.Classes, incremental.Unlabelled)
		for row := range b.Codes {
			if (row+i)%3 > 0 {
				b.Codes[row] = 3
			}
		}
	}
	for _, rows := range []int{everyRow, 100} {
		l := newLive(t, blocks, folds, rows, nil)
		with := l.sample()
		with.AddUnlabelled(&l.unlabelled.View, l.Whole.Unlabelled())
		watching := new(spy)
		o := Options{Planes: incremental.Options{Nu: 1}, Refining: Always, Refine: watching}
		run := func(o Options, of *Sample) (*Tuning, *HeldOut) {
			s := New(&l.Problem, o)
			tuned, err := s.Tune(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Solve(); err != nil {
				t.Fatal(err)
			}
			standing, standFor := of.All()
			if _, err := s.Refine(t.Context(), standing, standFor); err != nil {
				t.Fatal(err)
			}
			held, err := s.HoldOut(t.Context(), of, everyRow)
			if err != nil {
				t.Fatal(err)
			}
			return tuned, held
		}
		tuned, held := run(o, with)
		if want := folds*len(refinedGrid(watching)) + 1 + folds; len(watching.seen) != want {
			t.Fatalf("%d refinements, not %d", len(watching.seen), want)
		}
		for i, seen := range watching.seen {
			of, where := l.Whole, "all rows"
			if tail := i - folds*len(refinedGrid(watching)); tail != 0 { // refined without a fold
				fold := i / len(refinedGrid(watching))
				if tail > 0 {
					fold = tail - 1
				}
				of, where = l.Whole.Without(l.Folds[fold]), fmt.Sprintf("without fold %d", fold)
			}
			totals := append(of.Totals(), of.Unlabelled())
			if len(seen) != len(totals) || len(totals) != 4 {
				t.Fatalf("%s: %v, not %v", where, seen, totals)
			}
			for _, total := range totals {
				if got := seen[total.Label]; !(math.Abs(got-total.Weight) < 1e-9*total.Weight) {
					t.Errorf("%s: rows of class %q stand for %v, not %v", where, total.Label, got, total.Weight)
				}
			}
		}
		alone, heldAlone := run(o, l.sample())
		if !reflect.DeepEqual(tuned, alone) || !reflect.DeepEqual(held, heldAlone) || len(held.codes) != l.view.Block.Rows() {
			t.Error("rows without a label change the scores of the same planes")
		}
	}
}

// Some rows of a sample are some of each kind.
func TestSomeUnlabelledRows(t *testing.T) {
	blocks := overlapping(20, 60)
	for _, b := range blocks {
		b.Classes = append(b.Classes, incremental.Unlabelled)
		for row := range b.Codes {
			if row%2 > 0 {
				b.Codes[row] = 3
			}
		}
	}
	l := newLive(t, blocks, 4, everyRow, nil)
	of := l.sample()
	of.AddUnlabelled(&l.unlabelled.View, l.Whole.Unlabelled())
	few := of.some(60)
	rows, standFor := few.All()
	counts, stand := map[string]int{}, map[string]float64{}
	for _, b := range rows.(newton.Blocks) {
		for i, code := range b.Codes {
			counts[b.Classes[code]]++
			stand[b.Classes[code]] += b.Weight(i) * standFor[b.Classes[code]]
		}
	}
	if n := counts[incremental.Unlabelled]; n != 60 {
		t.Errorf("%d rows without a label, not 60", n)
	}
	if total := l.Whole.Unlabelled().Weight; math.Abs(stand[incremental.Unlabelled]-total) > 1e-9*total {
		t.Errorf("they stand for %v, not %v", stand[incremental.Unlabelled], total)
	}
	if n := counts["one"] + counts["two"] + counts["three"]; n < 60 || n > 63 {
		t.Errorf("%d rows with a label", n)
	}
}

// Studies of few rows end with planes or an error: rows of one class or two, without labels or
// without weight, in blocks of one row and more, in folds of which some have none, and with a
// sample that lacks them.
func TestStudiesOfFewRows(t *testing.T) {
	tuned, failed := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(33, seed))
		classes := []string{"a", "b", "c", incremental.Unlabelled}[r.IntN(3):]
		if r.IntN(3) == 0 {
			classes = classes[len(classes)-1-r.IntN(2):]
		}
		var blocks []*incremental.Block
		for range 1 + r.IntN(12) {
			b := &incremental.Block{Features: []string{"x1", "x2"}, Classes: classes, Columns: make([]gram.Column, 2)}
			var x [2][]float64
			for range 1 + r.IntN(4) {
				b.Codes = append(b.Codes, int32(r.IntN(len(classes))))
				b.Weights = append(b.Weights, float64(r.IntN(3)))
				for j := range x {
					x[j] = append(x[j], math.Round(r.NormFloat64()*4)/2+float64(b.Codes[len(b.Codes)-1]))
				}
			}
			for j := range x {
				b.Columns[j] = gram.ColumnOf(x[j])
			}
			blocks = append(blocks, b)
		}
		l := newLive(t, blocks, 1+r.IntN(4), []int{1, 3, everyRow}[r.IntN(3)], nil)
		if r.IntN(4) == 0 {
			l.view = &sample.View{Block: l.view.Block.Slice(0, 0)}
		}
		for _, refining := range []Refining{Never, Always, Either} {
			for _, by := range []Refiner{newton.Full, newton.Line, newton.Logistic} {
				s := New(&l.Problem, Options{
					Planes: incremental.Options{Nu: 1}, AnyScale: true, AnyBalance: r.IntN(2) == 0, Others: true,
					Refining: refining, Refine: by, AnyMethod: true, Objective: tuning.Objective(r.IntN(2)),
					Held: Judging{Values: 1000, Decision: Decision{Kind: decision.Probability}},
				})
				of := l.sample()
				of.AddUnlabelled(&l.unlabelled.View, l.Whole.Unlabelled())
				choice, err := s.Tune(t.Context(), of)
				if err != nil {
					failed++
				} else if tuned++; !(choice.Criterion.Of(&choice.Point) >= 0) {
					t.Errorf("seed %d: %+v", seed, choice.Point)
				}
				if _, err := s.Solve(); err != nil {
					continue
				}
				if s.Refines() {
					rows, standFor := of.All()
					if _, err := s.Refine(t.Context(), rows, standFor); err != nil {
						continue
					}
				}
				held, err := s.HoldOut(t.Context(), of, 1000)
				if err != nil {
					continue
				}
				if _, err := held.Reliability(t.Context()); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				settled, err := held.Settle(t.Context(), s.options.Held)
				if err == nil && !(settled.Quality.Weight > 0 && settled.Quality.Correctness >= 0) {
					t.Errorf("seed %d: %+v", seed, settled.Quality)
				}
			}
		}
	}
	if tuned < 100 || failed < 100 {
		t.Errorf("%d choices, %d without one: the sets are too much alike", tuned, failed)
	}
}

// Two folds are held out at least, also where the first has rows enough.
func TestHoldsOutTwoFolds(t *testing.T) {
	s := &Sample{in: [][]int{make([]int, scoredRows), make([]int, 1), make([]int, 1)}}
	if got := s.Enough(); got != 2 {
		t.Errorf("%d folds are held out, want 2", got)
	}
}

// Where planes are chosen with features in any scale, those of scaled features are preferred.
func TestScaledFeaturesComeFirst(t *testing.T) {
	s := &Study{options: Options{AnyScale: true}}
	offered, _ := s.optionSets()
	if len(offered) != 2 || !offered[0].Standardise || offered[1].Standardise {
		t.Errorf("offered are %+v", offered)
	}
}

// Rows of no weight tell nothing: there are no shares of them.
func TestNoQualityOfRowsWithoutWeight(t *testing.T) {
	h := heldOut(t, "one", "two")
	d, err := h.Decide(Decision{Kind: decision.Value}, nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(h.weight)
	if q, err := h.Quality(t.Context(), d); err == nil {
		t.Errorf("the quality is %+v", q.Figures)
	}
}
