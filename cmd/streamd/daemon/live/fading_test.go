package live

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"gonum.org/v1/gonum/mat"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/retire"
	"streamd/snapshot"
)

// fadingConfig is a configuration with a half-life: of 100 ms where rows is 0.
func fadingConfig(folds int, rows int64) *config.Config {
	cfg := liveConfig(folds, 30)
	if cfg.Retire.HalfLifeRows = rows; rows == 0 {
		cfg.Retire.HalfLife = 100 * time.Millisecond
	}
	return cfg
}

// directly sums the live blocks of a fold, or all where fold is −1, each with a weight of its own:
// by multiplying the state of each block.
func directly(t testing.TB, l *Set, fold int) *incremental.State {
	t.Helper()
	names := l.inUse.Names()
	var parts []*incremental.State
	var weights []uint64
	half, end := l.fading.half, l.ledger.End(l.fading.half)
	for e, age := range l.ledger.Ages(half) {
		id := e.ID
		m, halvings, ok := retire.Multiplier(uint64(half.Step(end) - half.Step(end-age)))
		if !ok {
			continue
		}
		s, err := l.inUse.summary(l.store, id)
		if err != nil {
			t.Fatal(err)
		}
		content, err := l.features.summary(l.store, id)
		if err != nil {
			t.Fatal(err)
		}
		if fold >= 0 && sample.Fold(content.LabelledDigest(), l.inUse.sums.folds) != fold {
			continue
		}
		one := incremental.NewState(names)
		one.Add(s)
		parts, weights = append(parts, one), append(weights, m<<(retire.MostHalvings-halvings))
	}
	return incremental.WeightedSum(names, parts, weights, retire.WeightBits+retire.MostHalvings)
}

// weighAll calls Weigh until nothing is left.
func weighAll(t testing.TB, l *Set, d time.Duration) (w *Weighted, calls int) {
	t.Helper()
	for w == nil {
		var err error
		if w, err = l.Weigh(d); err != nil {
			t.Fatal(err)
		}
		calls++
	}
	return w, calls
}

// Blocks are added at all ages, replaced, retired, saved, and taken over into the coordinates of a
// basis, sums are asked for at any time and left half done, and the set is opened again. The
// weighted sums are always those of the live blocks, each multiplied by its own weight.
func TestWeightedSumsAreOfTheLiveBlocks(t *testing.T) {
	partial, spaces, quick := 0, 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(51, seed))
		folds := []int{0, 3}[seed%2]
		cfg := fadingConfig(folds, []int64{0, 1, 30, 400}[seed/2%4])
		cfg.Retire.Blocks = []int{0, 12}[seed/8%2]
		path := filepath.Join(t.TempDir(), "streamd.db")
		l, store := reopen(t, path, cfg)
		var z Keeper
		now, check := int64(r.IntN(2000)-1000), func(when string) {
			if _, known := l.endOf(l.ledger.Origin(l.fading.half)); known && l.fading.of == l.inUse {
				quick++
			}
			w, _ := weighAll(t, l, time.Hour)
			if got, want := w.Whole.Digest(), directly(t, l, -1).Digest(); got != want {
				t.Fatalf("seed %d, %s: the weighted sum is another one than that of the live blocks", seed, when)
			}
			for fold, sum := range w.Folds {
				if sum.Digest() != directly(t, l, fold).Digest() {
					t.Fatalf("seed %d, %s: fold %d has another sum", seed, when, fold)
				}
			}
			if len(w.Folds) != folds {
				t.Fatalf("seed %d: %d folds", seed, len(w.Folds))
			}
		}
		for step := range 120 {
			switch k := r.IntN(14); {
			case k < 6:
				now += int64(r.IntN(60))
				at := now
				switch r.IntN(12) {
				case 0:
					at -= int64(r.IntN(5000)) // late
				case 1:
					at += 1 << r.IntN(40) // early
				}
				b := randomBlock(r)
				k, err := z.Keep(t.Context(), b, l.Target())
				if err != nil {
					t.Fatal(err)
				}
				e := retire.Entry{ID: fmt.Sprint(r.IntN(60)), Position: incremental.Position{Topic: "t", Offset: int64(step)}, Time: time.UnixMilli(at), Rows: k.Summary.Rows()}
				if _, err := l.Add(e, k); err != nil {
					t.Fatal(err)
				}
			case k < 9 && l.Blocks() > 0:
				entries := l.Page(retire.Lowest, math.MaxInt)
				e := entries[r.IntN(len(entries))]
				if r.IntN(2) == 0 {
					e = entries[len(entries)-1] // the newest
				}
				if err := l.Retire(e.ID); err != nil {
					t.Fatal(err)
				}
			case k == 9:
				save(t, l, store)
			case k == 10:
				if w, err := l.Weigh(-1); err != nil {
					t.Fatal(err)
				} else if w == nil {
					partial++
				}
			case k == 11 && r.IntN(3) == 0:
				save(t, l, store)
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				l, store = reopen(t, path, cfg)
			case k == 12 && r.IntN(2) == 0 && l.Blocks() > 0:
				if l.HasBasis() {
					l.DropBases()
					break
				}
				switchToBasis(t, l, r)
				spaces++
				if r.IntN(2) == 0 { // back, with a block less
					newest, _ := l.Newest()
					if err := l.Retire(newest.ID); err != nil {
						t.Fatal(err)
					}
					l.DropBases()
				}
			default:
				check(fmt.Sprint("step ", step))
			}
		}
		check("at the end")
		w, _ := weighAll(t, l, time.Hour)
		bytes, plain := w.Whole.Bytes(), *cfg
		for _, sum := range w.Folds {
			bytes += sum.Bytes()
		}
		for _, fold := range l.fading.parts {
			for _, part := range fold {
				bytes += part.Bytes()
			}
		}
		plain.Retire.HalfLife, plain.Retire.HalfLifeRows = 0, 0
		l.measure()
		if price := l.Price() - roomy(&plain).Price(l.shapes(0), l.Blocks()); float64(bytes) > price {
			t.Errorf("seed %d: %d bytes are weighted sums, for the price of %g", seed, bytes, price)
		}
		store.Close()
	}
	if partial < 30 || spaces < 5 || quick < 100 {
		t.Errorf("%d sums were left half done, %d spaces switched, and %d sums needed no look at all blocks", partial, spaces, quick)
	}
}

// Blocks that come one by one, further apart than any weight reaches, weigh nothing any more when
// the next one comes.
func TestWeightsEndAfterALongPause(t *testing.T) {
	for _, pause := range []int64{3100, 3300, 60_000, 3_600_000} {
		l, store := reopen(t, filepath.Join(t.TempDir(), "streamd.db"), fadingConfig(0, 0))
		weighAll(t, l, time.Hour)
		var z Keeper
		r := rand.New(rand.NewPCG(51, 1))
		for i := range int64(4) {
			k, err := z.Keep(t.Context(), randomBlock(r), l.Target())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Add(retire.Entry{ID: fmt.Sprint(i), Time: time.UnixMilli(i * pause), Rows: k.Summary.Rows()}, k); err != nil {
				t.Fatal(err)
			}
			if w, _ := weighAll(t, l, time.Hour); w.Whole.Digest() != directly(t, l, -1).Digest() {
				t.Errorf("%d ms: the weighted sum after block %d is another one than that of the live blocks", pause, i)
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// reopen opens a live set of a file, new or old.
func reopen(t testing.TB, path string, cfg *config.Config) (*Set, *snapshot.Store) {
	t.Helper()
	store, contents, err := snapshot.Open(path, snapshot.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := Open(store, contents, cfg, roomy(cfg), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Features().Names()) == 0 {
		l.Fix([]string{"x1", "x2"})
	}
	return l, store
}

// switchToBasis takes a basis of three points into use. Summaries of any three numbers stand for
// those of its coordinates.
func switchToBasis(t testing.TB, l *Set, r *rand.Rand) {
	t.Helper()
	points := make([]float64, 6)
	for i := range points {
		points[i] = r.Float64()
	}
	gaussian, err := kernels.Gaussian(0.5)
	if err != nil {
		t.Fatal(err)
	}
	basis, err := kernels.NewMap(gaussian, 2, points)
	if err != nil {
		t.Fatal(err)
	}
	l.Choose()
	l.Begin(basis, &model.Reduction{}, config.RegulariserIdentity)
	l.Chosen()
	for _, id := range l.Next().MissingIDs() {
		s, err := l.features.summary(l.store, id)
		if err != nil {
			t.Fatal(err)
		}
		if !l.Take(l.Next(), id, s.Select([]int{0, 1, 0}), l.content(s, nil)) {
			t.Fatalf("block %s is not taken", id)
		}
	}
	l.Switch()
}

// fadingPlane solves (I/ν + Σ w e e')z = Σ w d e, e = [x; −1], directly from rows.
func fadingPlane(x [][]float64, d, w []float64, nu float64) *mat.VecDense {
	n := len(x[0]) + 1
	h, b, e := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil), mat.NewVecDense(n, nil)
	for j := range n {
		h.SetSym(j, j, 1/nu)
	}
	for i := range x {
		for j, v := range x[i] {
			e.SetVec(j, v)
		}
		e.SetVec(n-1, -1)
		h.SymRankOne(h, w[i], e)
		b.AddScaledVec(b, w[i]*d[i], e)
	}
	var chol mat.Cholesky
	if !chol.Factorize(h) {
		panic("not positive definite")
	}
	z := new(mat.VecDense)
	if err := chol.SolveVecTo(z, b); err != nil {
		panic(err)
	}
	return z
}

// fadingObjective is ‖z‖²/ν + Σ w (e'z − d)².
func fadingObjective(x [][]float64, d, w []float64, nu float64, z *mat.VecDense) float64 {
	n := len(x[0])
	f := mat.Dot(z, z) / nu
	for i := range x {
		r := -z.AtVec(n) - d[i]
		for j, v := range x[i] {
			r += v * z.AtVec(j)
		}
		f += w[i] * r * r
	}
	return f
}

// The plane of the weighted sums is that of weighted least squares on the rows. With the weights
// of the steps they agree to rounding. With the weights 2^(-age/half-life), which are between
// 2^-1/8 and 2^1/8 times these, the plane's objective is at most 2^(1/4) times the least one.
func TestFadingPlaneAgainstLeastSquares(t *testing.T) {
	const nu = 3
	for _, halfLifeRows := range []int64{0, 25} {
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(52, seed))
			cfg := fadingConfig(0, halfLifeRows)
			l, store := reopen(t, filepath.Join(t.TempDir(), "streamd.db"), cfg)
			var z Keeper
			type row struct {
				x    []float64
				d    float64
				time int64
				id   string
			}
			var rows []row
			for id := range 80 {
				b, at := randomBlock(r), int64(r.IntN(600))
				for i, code := range b.Codes { // the classes change sides as time goes on
					x := []float64{b.Columns[0].At(i), b.Columns[1].At(i) + float64(at)/300*float64(code)}
					rows = append(rows, row{x, 2*float64(code) - 1, at, fmt.Sprint(id)})
				}
				var second []float64
				for _, w := range rows[len(rows)-b.Rows():] {
					second = append(second, w.x[1])
				}
				b.Columns[1] = gram.ColumnOf(second)
				k, err := z.Keep(t.Context(), b, l.Target())
				if err != nil {
					t.Fatal(err)
				}
				e := retire.Entry{ID: fmt.Sprint(id), Position: incremental.Position{Offset: int64(id)}, Time: time.UnixMilli(at), Rows: k.Summary.Rows()}
				if _, err := l.Add(e, k); err != nil {
					t.Fatal(err)
				}
			}
			w, _ := weighAll(t, l, time.Hour)
			m, err := w.Whole.Moments().Solve(incremental.Options{Nu: nu})
			if err != nil {
				t.Fatal(err)
			}
			got := mat.NewVecDense(3, []float64{m.Planes[0].W[0], m.Planes[0].W[1], m.Planes[0].Gamma})
			newest, _ := l.Newest()
			var x [][]float64
			var d, rounded, exact []float64
			for _, a := range rows {
				age := float64(newest.Time.UnixMilli()-a.time) / 100
				if halfLifeRows > 0 {
					age = 0
					for _, b := range rows {
						if b.time > a.time {
							age += 1 / float64(halfLifeRows)
						}
					}
				}
				x, d = append(x, a.x), append(d, a.d)
				rounded, exact = append(rounded, l.Weight(a.id)), append(exact, math.Exp2(-age))
				if ratio := l.Weight(a.id) / math.Exp2(-age); ratio < math.Exp2(-0.1251) || ratio > math.Exp2(0.1251) {
					t.Fatalf("age %g weighs %g", age, l.Weight(a.id))
				}
			}
			want := fadingPlane(x, d, rounded, nu)
			for j := range 3 {
				if math.Abs(got.AtVec(j)-want.AtVec(j)) > 1e-12*mat.Norm(want, 2) {
					t.Fatalf("seed %d: plane %v, want %v", seed, got.RawVector().Data, want.RawVector().Data)
				}
			}
			least := fadingObjective(x, d, exact, nu, fadingPlane(x, d, exact, nu))
			if f := fadingObjective(x, d, exact, nu, got); f < least*(1-1e-12) || f > math.Exp2(0.2502)*least {
				t.Errorf("seed %d: objective %g, and %g is the least one", seed, f, least)
			}
			store.Close()
		}
	}
}

// Sums of n = 10 features and two classes, of 100,000 blocks: what one more block takes, and what a
// restart takes.
func BenchmarkWeigh(b *testing.B) {
	for _, c := range []struct {
		name string
		rows int64
	}{{"time", 0}, {"rows", 50_000}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := fadingConfig(5, c.rows)
			cfg.Sample.Rows, cfg.Limits.Features = 0, 10
			if c.rows == 0 {
				cfg.Retire.HalfLife = 5000 * time.Second
			}
			l, store := reopen(b, filepath.Join(b.TempDir(), "streamd.db"), cfg)
			defer store.Close()
			l.Fix(incremental.DefaultFeatures(10))
			r := rand.New(rand.NewPCG(53, 0))
			var z Keeper
			add := func(i int) {
				block := &incremental.Block{Classes: []string{"-1", "1"}}
				for range 10 {
					block.Codes = append(block.Codes, int32(r.IntN(2)))
				}
				for range 10 {
					x := make([]float32, 10)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					block.Columns = append(block.Columns, gram.ColumnOf(x))
				}
				k, err := z.Keep(b.Context(), block, l.Target())
				if err != nil {
					b.Fatal(err)
				}
				e := retire.Entry{ID: fmt.Sprint(i), Position: incremental.Position{Topic: "t", Offset: int64(i)}, Time: time.UnixMilli(int64(1000 * i)), Rows: 10}
				if _, err := l.Add(e, k); err != nil {
					b.Fatal(err)
				}
			}
			blocks := 0
			for ; blocks < 100_000; blocks++ {
				if add(blocks); blocks%5000 == 4999 {
					save(b, l, store)
				}
			}
			began := time.Now()
			weighAll(b, l, time.Hour)
			first := time.Since(began).Seconds()
			for b.Loop() {
				add(blocks)
				blocks++
				weighAll(b, l, time.Hour)
			}
			var bytes int
			for _, fold := range l.fading.parts {
				for _, part := range fold {
					bytes += part.Bytes()
				}
			}
			b.ReportMetric(first, "s-of-all-blocks")
			b.ReportMetric(float64(bytes), "bytes-of-parts")
			b.ReportMetric(float64(len(l.fading.placed)), "blocks-weighted")
		})
	}
}
