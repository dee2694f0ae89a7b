package reduce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"streamd/incremental/gram"
	"streamd/kernels"
)

// everyReducer lists the reducers of the suite.
var everyReducer = map[string]Reducer{
	"random":      Subset{Nu: 1},
	"stratified":  Subset{Stratified: true, Nu: 1},
	"k-means":     Clusters{Nu: 1},
	"k-median":    Clusters{Norm: OneNorm, Nu: 1},
	"cs":          ChunkingSynthetic{Chunks: []Chunk{{60, 1}, {120, 1}}, Nu: 1, Runs: 3, Synthetic: 5, Candidates: 30},
	"cs, (5)":     ChunkingSynthetic{Chunks: []Chunk{{60, 1}, {120, 1}}, Nu: 1, Runs: 3, Candidates: 30, Starts: 2, Unite: true},
	"cs, fresh":   ChunkingSynthetic{Chunks: []Chunk{{60, 1}}, Nu: 10, Runs: 2, Candidates: 30, Starts: 2, Fresh: 50},
	"slmc":        Direct{Machine: LargeMargin{Nu: 1}, Means: true},
	"slmc, rows":  Direct{Machine: LargeMargin{Nu: 1}, Starts: 2},
	"rs":          Direct{Machine: ReducedSet{Nu: 1}, Means: true},
	"mrs":         Direct{Machine: ReducedSet{Nu: 1}, Nu: 1, Starts: 2},
	"skfd":        Direct{Machine: Fisher{Mu: 1e-3}, Nu: 1, Means: true},
	"fisher":      Direct{Machine: Fisher{Mu: 1e-3}, Starts: 2},
	"lda":         Discriminant{Nu: 1, Candidates: 100},
	"cholesky":    Cholesky{Nu: 1},
	"eigen":       Eigen{Points: 60, Nu: 1},
	"cs, a stage": ChunkingSynthetic{Chunks: []Chunk{}, Nu: 1, Runs: 2},
}

// blobs returns a problem of classes with two centres each, which no plane of the features
// separates.
func blobs(r *rand.Rand, classes, m int) *Problem {
	x, y := make([]float32, m), make([]float64, m)
	p := &Problem{Classes: classes, Codes: make([]int32, m), Points: 12, Kernel: gaussian(0.3), Seed: 5, Workers: 2}
	for i := range m {
		place := r.IntN(2 * classes)
		angle := math.Pi * float64(place) / float64(classes)
		x[i] = float32(4*math.Cos(angle) + 0.5*r.NormFloat64())
		y[i] = 4*math.Sin(angle) + 0.5*r.NormFloat64()
		p.Codes[i] = int32(place % classes)
	}
	p.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	return p
}

// decide returns the class of row i: the class of the largest decision value, or by the
// side of the only plane.
func decide(r *Result, p *Problem, i int) int {
	best, class := math.Inf(-1), -1
	var x []float64
	for _, c := range p.Columns {
		x = append(x, c.At(i))
	}
	m, err := r.Map(p.Kernel)
	if err != nil {
		panic(err)
	}
	k := m.At(x)
	for _, plane := range r.Planes {
		v := -plane.Gamma
		for j, u := range plane.U {
			v += u * k[j]
		}
		if len(r.Planes) == 1 {
			if v >= 0 {
				return plane.Class
			}
			return 1 - plane.Class
		}
		if v > best {
			best, class = v, plane.Class
		}
	}
	return class
}

// Every name is the name of a different reducer.
func TestNames(t *testing.T) {
	called := map[string]string{}
	for _, name := range Names() {
		r, err := Parse(name, 5)
		if err != nil {
			t.Fatal(err)
		}
		is := fmt.Sprintf("%#v", r)
		if other, ok := called[is]; ok {
			t.Errorf("%s and %s are one: %s", name, other, is)
		}
		called[is] = name
	}
}

// Settings reach the reducer, and faults in them are told.
func TestSettings(t *testing.T) {
	for text, want := range map[string]Reducer{
		"kmeans": Clusters{Nu: 1},
		"cs(runs=3,points=7,candidates=30,nu=2,alpha=1.5,starts=4,union=true,fresh=50,stages=60:1/120:1.5)": ChunkingSynthetic{
			Runs: 3, Synthetic: 7, Candidates: 30, Nu: 2, Alpha: 1.5, Starts: 4, Unite: true, Fresh: 50, Chunks: []Chunk{{60, 1}, {120, 1.5}},
		},
		"cs(fresh=0)":               ChunkingSynthetic{Runs: 10, Synthetic: 10, Candidates: 100, Nu: 12, Alpha: 1.25, Starts: 1},
		"slmc(means=false,nu=2)":    Direct{Machine: LargeMargin{Nu: 2}, Starts: 1, Nu: 1},
		"rs(starts=3)":              Direct{Machine: ReducedSet{Nu: 1}, Means: true, Starts: 3, Nu: 1},
		"skfd(mu=0.5)":              Direct{Machine: Fisher{Mu: 0.5}, Means: true, Starts: 1, Nu: 1},
		"lda(eta=0.1,candidates=8)": Discriminant{Nu: 1, Eta: 0.1, Candidates: 8},
		"cholesky(eta=1e-4)":        Cholesky{Nu: 1, Eta: 1e-4},
		"eigen":                     Eigen{Nu: 1, Points: 1000},
		"eigen(points=30)":          Eigen{Nu: 1, Points: 30},
		"cs(fresh=20, stages=none)": ChunkingSynthetic{Runs: 10, Synthetic: 10, Candidates: 100, Nu: 12, Alpha: 1.25, Starts: 1, Fresh: 20, Chunks: []Chunk{}},
	} {
		if r, err := Parse(text, 9); err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("%s is %+v, %v", text, r, err)
		}
	}
	for text, want := range map[string]string{
		"best": "one of cs, random", "": "one of cs", "cs(": "closing", "cs()": "setting=value", "cs(runs)": "setting=value", "cs(runs=1,runs=2)": "once",
		"cs(runs=0)": "from 1", "cs(fresh=-1)": "from 0", "cs(runs=x)": "whole number", "cs(points=9999999)": "1048576", "cs(nu=-1)": "positive",
		"cs(stages=)": "ROWS:NU", "cs(stages=500)": "ROWS:NU", "cs(union=yes)": "neither true nor false", "slmc(nu=NaN)": "positive", "slmc(eta=1)": "no setting eta; it has nu, means, starts",
		"kmeans(nu=1)": "kmeans has no settings", "lda(eta=1)": "not below 1", "skfd(mu=Inf)": "positive", "eigen(points=5001)": "at most 5000",
	} {
		if r, err := Parse(text, 9); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}

// Every reducer returns a basis of the right size and a classifier that works, the same for
// any number of workers, and reports each stage when it is done.
func TestReducers(t *testing.T) {
	for name, reducer := range everyReducer {
		t.Run(name, func(t *testing.T) {
			for _, classes := range []int{2, 3} {
				p := blobs(rand.New(rand.NewPCG(1, 1)), classes, 400)
				var stages []Stage
				p.Progress = func(s Stage) { stages = append(stages, s) }
				r, err := reducer.Reduce(context.Background(), p)
				if err != nil {
					t.Fatal(err)
				}
				m, err := r.Map(p.Kernel)
				if err != nil {
					t.Fatal(err)
				}
				if m.Size() > p.Points || m.Size() != len(r.Planes[0].U) || m.Points() != r.Points || r.Features != 2 {
					t.Fatalf("%d coordinates of %d points of %d features", m.Size(), r.Points, r.Features)
				}
				if len(Distinct(r.Z, 2)) != len(r.Z) {
					t.Errorf("points occur more than once in %v", r.Z)
				}
				var planes []int
				for _, plane := range r.Planes {
					planes = append(planes, plane.Class)
				}
				if want := map[int][]int{2: {1}, 3: {0, 1, 2}}[classes]; !slices.Equal(planes, want) {
					t.Fatalf("planes of %v, not of %v", planes, want)
				}
				right := 0
				for i, code := range p.Codes {
					if decide(r, p, i) == int(code) {
						right++
					}
				}
				if share := float64(right) / float64(len(p.Codes)); share < 0.95 {
					t.Errorf("%d classes: %.1f %% are right", classes, 100*share)
				}
				if len(stages) == 0 || !reflect.DeepEqual(stages, r.Stages) {
					t.Errorf("progress says %v, the report %v", stages, r.Stages)
				}
				for _, s := range stages {
					for _, step := range []Step{s.Classifier, s.Approximation, s.Reduced} {
						if step.Unconverged > 0 {
							t.Errorf("stage %d: %d programs ran into a limit", s.Stage, step.Unconverged)
						}
					}
				}
				for _, workers := range []int{1, 7} {
					p.Workers, p.Progress = workers, nil
					again, err := reducer.Reduce(context.Background(), p)
					if err != nil || !reflect.DeepEqual(again, r) {
						t.Errorf("%d workers: another result, %v", workers, err)
					}
				}
				p.Seed++
				if _, ok := reducer.(Cholesky); ok {
					continue // takes no chances
				}
				if other, err := reducer.Reduce(context.Background(), p); err != nil || reflect.DeepEqual(other.Z, r.Z) {
					t.Errorf("another seed: the same basis, or %v", err)
				}
			}
		})
	}
}

// Points without planes are those with planes.
func TestPointsOnly(t *testing.T) {
	saved := 0
	for name, reducer := range everyReducer {
		p := blobs(rand.New(rand.NewPCG(1, 1)), 3, 200)
		want, err := reducer.Reduce(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		p.PointsOnly = true
		got, err := reducer.Reduce(context.Background(), p)
		if err != nil || !slices.Equal(got.Z, want.Z) || !slices.Equal(got.Projection, want.Projection) {
			t.Errorf("%s: other points, or %v", name, err)
		}
		if got.Planes == nil && got.Stages == nil {
			saved++
		}
	}
	if saved != 7 {
		t.Errorf("%d reducers solve no programs", saved)
	}
}

// islands returns a problem of five groups in a line, of alternating classes, the last of them
// small. A point of the basis reaches its own group only.
func islands(r *rand.Rand, m int) *Problem {
	p := &Problem{Classes: 2, Codes: make([]int32, m), Points: 12, Kernel: gaussian(1.5), Seed: 3, Workers: 2}
	x := make([]float64, m)
	for i := range m {
		group := min(r.IntN(9)/2, 4)
		x[i] = 4*float64(group) + 0.4*r.NormFloat64()
		p.Codes[i] = int32(group % 2)
	}
	p.Columns = []gram.Column{gram.ColumnOf(x)}
	return p
}

// low takes the rows of the least first features for points, and squeezed moves all points of
// another reducer towards 0.
type (
	low      struct{}
	squeezed struct{ Reducer }
)

func (low) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.live, func(a, b int) int { return cmp.Compare(p.Columns[0].At(a), p.Columns[0].At(b)) })
	var z []float64
	for _, i := range s.live[:p.Points] {
		z = s.point(z, i)
	}
	return s.given(ctx, z, 10, 0)
}

func (w squeezed) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	r, err := w.Reducer.Reduce(ctx, p)
	if err != nil {
		return nil, err
	}
	for i := range r.Z {
		r.Z[i] *= 0.2
	}
	return s.given(ctx, r.Z, 10, 0)
}

// A basis must reach every group of rows. What does not is found out.
func TestReducersReachEveryGroup(t *testing.T) {
	share := func(reducer Reducer) float64 {
		p := islands(rand.New(rand.NewPCG(6, 1)), 500)
		r, err := reducer.Reduce(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		return correct(t, r, p.Kernel, p)
	}
	const enough = 0.98
	for name, reducer := range everyReducer {
		if got := share(reducer); got < enough {
			t.Errorf("%s: %.1f %% are right", name, 100*got)
		}
	}
	for name, wrong := range map[string]Reducer{"low rows": low{}, "squeezed": squeezed{Clusters{Nu: 1}}} {
		if got := share(wrong); got >= enough {
			t.Errorf("%s: %.1f %% are right, and the set shows no fault", name, 100*got)
		}
	}
}

// Each setting has an effect of its own.
func TestSettingsMatter(t *testing.T) {
	p := blobs(rand.New(rand.NewPCG(8, 1)), 2, 300)
	noise := rand.New(rand.NewPCG(8, 2))
	for i := range p.Codes {
		if noise.IntN(10) == 0 { // so that programs have many points
			p.Codes[i] = 1 - p.Codes[i]
		}
	}
	for _, texts := range [][]string{
		{
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:2/120:3)",
			"cs(runs=2,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:2/120:3)",
			"cs(runs=3,points=4,candidates=30,nu=3,starts=2,fresh=5,stages=60:2/120:3)",
			"cs(runs=3,points=5,candidates=40,nu=3,starts=2,fresh=5,stages=60:2/120:3)",
			"cs(runs=3,points=5,candidates=30,nu=9,starts=2,fresh=5,stages=60:2/120:3)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=1,fresh=5,stages=60:2/120:3)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=9,stages=60:2/120:3)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:4/120:3)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:2/120:5)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:2)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=none)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:2/120:3,alpha=0.5)",
			"cs(runs=3,points=5,candidates=30,nu=3,starts=2,fresh=5,stages=60:2/120:3,union=true)",
		},
		{"slmc", "slmc(nu=30)", "slmc(means=false)", "slmc(means=false,starts=4)", "rs", "rs(nu=30)", "skfd", "skfd(mu=0.1)"},
		{"lda", "lda(eta=0.1)", "lda(candidates=20)"},
		{"cholesky", "cholesky(eta=0.9)", "kmeans", "kmedian", "random", "stratified"},
		{"eigen(points=40)", "eigen(points=50)"},
	} {
		of := map[string]string{}
		for _, text := range texts {
			reducer, err := Parse(text, p.Points)
			if err != nil {
				t.Fatal(err)
			}
			r, err := reducer.Reduce(context.Background(), p)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			basis := fmt.Sprint(r.Z, r.Projection)
			if other, ok := of[basis]; ok {
				t.Errorf("%s and %s give the same basis", other, text)
			}
			of[basis] = text
		}
	}
}

// Of the runs of the last stage the one of least objective counts: another run never makes it
// larger, and on some of a few sets six make it smaller.
func TestLeastObjectiveOfRuns(t *testing.T) {
	var p *Problem
	objective := func(runs int) float64 {
		const nu = 2
		r, err := ChunkingSynthetic{Chunks: []Chunk{}, Nu: nu, Runs: runs}.Reduce(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Map(p.Kernel)
		if err != nil {
			t.Fatal(err)
		}
		k, plane, value := kernels.NewMapper(m).Map(p.Columns), r.Planes[0], 0.0
		for _, u := range plane.U {
			value += math.Abs(u)
		}
		for i, code := range p.Codes {
			at := -plane.Gamma
			for j, u := range plane.U {
				at += u * k[j].At(i)
			}
			value += nu * max(0, 1-at*float64(2*code-1))
		}
		return value
	}
	const sets = 10
	smaller := false
	for seed := uint64(9); seed < 9+sets && !smaller; seed++ {
		p = blobs(rand.New(rand.NewPCG(seed, 1)), 2, 200)
		p.Points, p.Seed = 3, 3
		first := objective(1)
		last := first
		for runs := 2; runs <= 6; runs++ {
			next := objective(runs)
			if next > last*(1+1e-9) {
				t.Errorf("seed %d: %d runs end at %v, %d at %v", seed, runs, next, runs-1, last)
			}
			last = next
		}
		smaller = last < 0.99*first
	}
	if !smaller {
		t.Errorf("six runs end where the first one does, on %d sets", sets)
	}
}

// Rows count by their weights: where most rows of every place are of the wrong class, but weigh
// next to nothing, the others decide. Without the weights the labels are the wrong ones.
func TestReducersWeighRows(t *testing.T) {
	for name, reducer := range everyReducer {
		share := func(light float64) float64 {
			p := blobs(rand.New(rand.NewPCG(7, 1)), 2, 400)
			heavy := *p
			heavy.Codes = slices.Clone(p.Codes)
			for i, code := range p.Codes {
				p.Weights = append(p.Weights, 1)
				if i%5 < 3 {
					p.Codes[i], p.Weights[i] = 1-code, light
				}
			}
			r, err := reducer.Reduce(context.Background(), p)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return correct(t, r, p.Kernel, &heavy)
		}
		if weighed, counted := share(0.02), share(1); weighed < 0.95 || counted > 0.5 {
			t.Errorf("%s: %.1f %% are right, and %.1f %% where all rows weigh the same", name, 100*weighed, 100*counted)
		}
	}
}

// Bases have these bits on every processor, except for three: chunking-synthetic and
// large-margin ones come from package lp, and eigen-subspaces from gonum. Both sum in another
// order on other processors.
func TestBitsOnEveryProcessor(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 92))
	x, y := make([]float64, 500), make([]float64, 500)
	p := &Problem{Classes: 2, Codes: make([]int32, 500), Points: 12, Kernel: gaussian(0.3), Seed: 5, Workers: 2}
	for i := range x {
		x[i], y[i] = 8*r.Float64(), 8*r.Float64()
		p.Codes[i] = int32(x[i]+y[i]) % 2
	}
	p.Columns = []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}
	want := map[string]string{
		"random":     "bda1f21283872b36ed413e87b94ecaf4813abec9825b274d96809141c1816595",
		"stratified": "d93f322d2d062af9708ea5c0c776e38b6ef3de7fc51819c1fc9e6de201259bc3",
		"kmeans":     "007d8cf510e0c777743f8583dc9132c59898f4f4e5c4b6a1c791ccc6936b6b5c",
		"kmedian":    "f5ebdc4250ac8fafecdafc7097d22aa0804be25c70cdc753bf102d3f92b4f454",
		"rs":         "b4021ff1785ddc3717d36de253d09dfd5eb8014614384fe99b485820c41b5336",
		"skfd":       "f7c9df4f724c21f61ac999de9b70eca9db49e078e1d7b7e3108c2226c5c3afbd",
		"lda":        "5b80f29fe3ccedd9ef120a2bfead08b02dc0b1d55e94dfd3cbc401913db02703",
		"cholesky":   "a2d0fd5b6e577fe4391fe3ab7c6cb283f2e249fb2c80919ea071306135674924",
	}
	for _, name := range Names() {
		if name == "cs" || name == "slmc" || name == "eigen" {
			continue
		}
		reducer, err := Parse(name, p.Points)
		if err != nil {
			t.Fatal(err)
		}
		result, err := reducer.Reduce(context.Background(), p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h := sha256.New()
		binary.Write(h, binary.LittleEndian, result.Z)
		if got := fmt.Sprintf("%x", h.Sum(nil)); got != want[name] {
			t.Errorf("%s: SHA-256 %s, not %s", name, got, want[name])
		}
	}
}

// Rows of weight 0 do not matter.
func TestRowsOfNoWeight(t *testing.T) {
	for name, reducer := range everyReducer {
		p := blobs(rand.New(rand.NewPCG(2, 2)), 2, 150)
		want, err := reducer.Reduce(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		q := blobs(rand.New(rand.NewPCG(2, 2)), 2, 150)
		for j, c := range q.Columns {
			v := make([]float64, 0, 300)
			for i := range 150 {
				v = append(v, c.At(i), 1e6)
			}
			q.Columns[j] = gram.ColumnOf(v)
		}
		codes := q.Codes
		q.Codes = nil
		for _, code := range codes {
			q.Codes = append(q.Codes, code, 1-code)
			q.Weights = append(q.Weights, 1, 0)
		}
		got, err := reducer.Reduce(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Z, want.Z) {
			t.Errorf("%s: rows of weight 0 change the basis", name)
		}
		for j, u := range got.Planes[0].U {
			if math.Abs(u-want.Planes[0].U[j]) > 1e-6*(1+math.Abs(u)) {
				t.Errorf("%s: rows of weight 0 change coefficient %d from %v to %v", name, j, want.Planes[0].U[j], u)
			}
		}
	}
}

// Too few distinct points give a smaller basis, and every form of kernel works.
func TestFewPointsAndOtherKernels(t *testing.T) {
	polynomial, err := kernels.Polynomial(1, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, reducer := range everyReducer {
		for _, kernel := range []kernels.Kernel{kernels.Linear(), polynomial, gaussian(1)} {
			p := &Problem{Classes: 2, Points: 12, Kernel: kernel}
			var x []int8
			for i := range 200 {
				x = append(x, int8(i%4))
				p.Codes = append(p.Codes, int32(i%4/2))
			}
			p.Columns = []gram.Column{gram.ColumnOf(x)}
			r, err := reducer.Reduce(context.Background(), p)
			if err != nil {
				t.Fatalf("%s, %v: %v", name, kernel, err)
			}
			if r.Points > 4 {
				t.Errorf("%s, %v: %d points of 4 distinct rows", name, kernel, r.Points)
			}
			for i, code := range p.Codes {
				if decide(r, p, i) != int(code) {
					t.Errorf("%s, %v: row %d is on the wrong side", name, kernel, i)
					break
				}
			}
		}
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for _, reducer := range []Reducer{
		Discriminant{}, Discriminant{Nu: 1, Eta: 1}, Discriminant{Nu: 1, Candidates: -1}, Cholesky{}, Cholesky{Nu: 1, Eta: -1},
		Eigen{}, Eigen{Nu: 1, Points: -1}, Eigen{Nu: 1, Points: mostEigenRows + 1},
		Subset{}, Clusters{Nu: -1}, Subset{Nu: math.Inf(1)},
		ChunkingSynthetic{Runs: -1}, ChunkingSynthetic{Starts: -1}, ChunkingSynthetic{Fresh: -1}, ChunkingSynthetic{Synthetic: -1},
		ChunkingSynthetic{Candidates: -2}, ChunkingSynthetic{Alpha: math.NaN()}, ChunkingSynthetic{Nu: -1},
		ChunkingSynthetic{Chunks: []Chunk{{0, 1}}}, ChunkingSynthetic{Chunks: []Chunk{{10, 0}}},
	} {
		if _, err := reducer.Reduce(context.Background(), blobs(rand.New(rand.NewPCG(1, 1)), 2, 50)); err == nil {
			t.Errorf("%+v is taken", reducer)
		}
	}
}

func TestProblemsThatAreRefused(t *testing.T) {
	one := []gram.Column{gram.ColumnOf([]float64{1, 2, 3})}
	for name, reducer := range everyReducer {
		for what, p := range map[string]*Problem{
			"no rows":          {Classes: 2, Points: 3, Columns: []gram.Column{gram.ColumnOf([]float64{})}},
			"one class":        {Classes: 2, Points: 3, Columns: one, Codes: []int32{1, 1, 1}},
			"one with weights": {Classes: 2, Points: 3, Columns: one, Codes: []int32{1, 0, 1}, Weights: []float64{1, 0, 2}},
			"no points":        {Classes: 2, Points: 0, Columns: one, Codes: []int32{1, 0, 1}},
			"too few points":   {Classes: 3, Points: 2, Columns: one, Codes: []int32{1, 0, 2}},
			"no features":      {Classes: 2, Points: 3, Codes: []int32{1, 0, 2}[:2]},
			"a number that is none": {Classes: 2, Points: 3, Codes: []int32{1, 0, 1}, Kernel: gaussian(1),
				Columns: []gram.Column{gram.ColumnOf([]float64{1, math.NaN(), 3})}},
		} {
			if r, err := reducer.Reduce(context.Background(), p); err == nil {
				t.Errorf("%s: %s gives a basis %v", name, what, r.Z)
			}
		}
	}
}

// Reduce returns the error of a context that ended before it began, and the best result so
// far for one that ends later.
func TestInterruption(t *testing.T) {
	for name, reducer := range everyReducer {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := reducer.Reduce(ctx, blobs(rand.New(rand.NewPCG(3, 3)), 2, 300)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: done at once: %v", name, err)
		}
	}
	for _, after := range []int{1, 2} {
		p := blobs(rand.New(rand.NewPCG(3, 3)), 2, 300)
		ctx, cancel := context.WithCancel(context.Background())
		p.Progress = func(s Stage) {
			if s.Stage == after-1 {
				cancel()
			}
		}
		r, err := everyReducer["cs"].Reduce(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Interrupted || len(r.Stages) != after || r.Points < 1 || r.Points > 5 {
			t.Errorf("interrupted after %d stages: %d reported, %d points, %t", after, len(r.Stages), r.Points, r.Interrupted)
		}
		if share := correct(t, r, p.Kernel, p); share < 0.9 {
			t.Errorf("interrupted after %d stages: %.1f %% right", after, 100*share)
		}
	}
}

func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 8).Filter(func(sizes []int) bool { return slices.Max(sizes) > 0 }).Draw(t, "sizes")
		total := rapid.IntRange(0, 120).Draw(t, "total")
		counts := shares(sizes, total)
		all, given := 0, 0
		for k, size := range sizes {
			all += size
			given += counts[k]
			if counts[k] < 0 || counts[k] > size {
				t.Fatalf("%d of %d", counts[k], size)
			}
			if total >= len(sizes) && size > 0 && counts[k] == 0 {
				t.Fatalf("%v of %v for %d: one has none", counts, sizes, total)
			}
		}
		if given != min(total, all) {
			t.Fatalf("%v of %v for %d", counts, sizes, total)
		}
	})
	if got := shares([]int{10, 80, 10}, 10); !slices.Equal(got, []int{1, 8, 1}) {
		t.Errorf("10 of 10, 80, 10 are %v", got)
	}
}

// Clustering ends where neither step lowers the sum of distances: every row is at its
// nearest centre, and every centre is in the middle of its rows.
func TestClustersAreStationary(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	p := blobs(r, 2, 300)
	for range p.Codes {
		p.Weights = append(p.Weights, float64(r.IntN(3)+1))
	}
	for _, norm := range []Norm{TwoNorm, OneNorm} {
		s, err := newSample(p)
		if err != nil {
			t.Fatal(err)
		}
		c := newClustering(s.take(s.live, 0), norm, 2)
		c.seed(s.random(9), 7)
		if converged, err := c.run(context.Background()); err != nil || !converged {
			t.Fatal("no end", err)
		}
		for i := range c.nearest {
			for l := range 7 {
				d := 0.0
				for j := range 2 {
					e := math.Abs(p.Columns[j].At(i) - c.z[2*l+j])
					if norm == TwoNorm {
						e *= e
					}
					d += e
				}
				if d < c.away[i]*(1-1e-12) {
					t.Fatalf("norm %d: row %d is nearer to centre %d than to its own", norm, i, l)
				}
			}
		}
		for l := range 7 {
			for j := range 2 {
				var pull, all float64
				for i, nearest := range c.nearest {
					if nearest == int32(l) {
						d := p.Columns[j].At(i) - c.z[2*l+j]
						if norm == TwoNorm {
							pull += p.Weights[i] * d
						} else if d != 0 {
							pull += p.Weights[i] * math.Copysign(1, d)
						}
						all += p.Weights[i]
					}
				}
				// The rows that equal a median may unbalance the weights.
				allowed := 1e-9 * all
				if norm == OneNorm {
					allowed = 3
				}
				if all == 0 || math.Abs(pull) > allowed {
					t.Errorf("norm %d: centre %d is pulled by %v along feature %d, weight %v", norm, l, pull, j, all)
				}
			}
		}
	}
}

// Seeding with ties and duplicates gives distinct rows as centres.
func TestSeedsAreDistinct(t *testing.T) {
	p := &Problem{Classes: 2, Columns: []gram.Column{gram.ColumnOf([]int8{1, 1, 1, 2, 2, 3})}, Codes: []int32{0, 0, 0, 1, 1, 1}, Points: 6}
	s, err := newSample(p)
	if err != nil {
		t.Fatal(err)
	}
	c := newClustering(s.take(s.live, 0), TwoNorm, 1)
	c.seed(s.random(1), 6)
	slices.Sort(c.z)
	if fmt.Sprint(c.z) != "[1 2 3]" {
		t.Errorf("the centres are %v", c.z)
	}
}
