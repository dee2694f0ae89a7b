package incremental

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// hostile functions turn rows that are normal around 0 and 1 into blocks whose first,
// middle and last row are outliers. probes are the indices of these three rows.
var hostile = map[string]func(r *rand.Rand, t *table, probes []int){
	"light outliers of 1e6": func(_ *rand.Rand, t *table, probes []int) { t.outliers(probes, 1e6, 1e-12) },
	"light outliers of 1e8": func(_ *rand.Rand, t *table, probes []int) { t.outliers(probes, 1e8, 1e-12) },
	"light outliers of 1e15, in one column": func(_ *rand.Rand, t *table, probes []int) {
		for _, i := range probes {
			t.x[i][1], t.weights[i] = 1e15, 1e-12
		}
	},
	"sentinels": func(_ *rand.Rand, t *table, probes []int) { t.outliers(probes, -1e6, 1) },
	"sentinels, each in a column of its own": func(_ *rand.Rand, t *table, probes []int) {
		for k, i := range probes {
			for j := range t.x[i] {
				if j != k {
					t.x[i][j] = -1e6
				}
			}
		}
	},
	"sentinels of one class": func(_ *rand.Rand, t *table, probes []int) {
		t.outliers(probes, 1e7, 1)
		for _, i := range probes {
			t.label[i] = "c0"
		}
	},
	"a light class far away": func(_ *rand.Rand, t *table, probes []int) {
		for _, i := range probes {
			t.label[i] = "c1"
		}
		for i, row := range t.x {
			for j := range row {
				if t.label[i] == "c1" {
					row[j] += 1e7
					t.weights[i] = 1e-12
				}
			}
		}
	},
	"three clusters of light outliers": func(r *rand.Rand, t *table, probes []int) {
		clusters := []float64{1e5, 3e6, -2e7}
		for i := range t.x {
			if c := r.IntN(6); c < len(clusters) {
				t.outlier(i, clusters[c]+r.Float64(), 1e-11)
			}
		}
		for _, i := range probes {
			t.outlier(i, 3e6, 1e-11)
		}
	},
	"light outliers that are most rows": func(r *rand.Rand, t *table, probes []int) {
		for i := range t.x {
			if i%4 != 1 {
				t.outlier(i, 1e6*(1+r.Float64()), 1e-12)
			}
		}
		t.outliers(probes, 1.5e6, 1e-12)
	},
	"a constant column": func(_ *rand.Rand, t *table, probes []int) {
		for i := range t.x {
			t.x[i][1] = 0.1
		}
		t.outliers(probes, 1e7, 1e-12)
	},
	"columns of 1e-30 and 1e30": func(_ *rand.Rand, t *table, probes []int) {
		t.outliers(probes, 1e7, 1e-12)
		for i := range t.x {
			t.x[i][0] *= 1e-30
			t.x[i][2] *= 1e30
		}
	},
	"a far mean": func(_ *rand.Rand, t *table, probes []int) {
		for i := range t.x {
			for j := range t.x[i] {
				t.x[i][j] += 1e4
			}
		}
		t.outliers(probes, 0, 1e-12)
	},
	"weights of all sizes": func(r *rand.Rand, t *table, probes []int) {
		for i := range t.weights {
			t.weights[i] = math.Ldexp(1, -r.IntN(40))
		}
		t.outliers(probes, 1e6, 1e-12)
	},
}

func (t *table) outlier(i int, x, weight float64) {
	for j := range t.x[i] {
		t.x[i][j] = x
	}
	t.weights[i] = weight
}

func (t *table) outliers(rows []int, x, weight float64) {
	for _, i := range rows {
		t.outlier(i, x, weight)
	}
}

// rotated returns the table with its last rows first.
func (t table) rotated(by int) table {
	cut := len(t.x) - by
	return table{
		x:       slices.Concat(t.x[cut:], t.x[:cut]),
		label:   slices.Concat(t.label[cut:], t.label[:cut]),
		weights: slices.Concat(t.weights[cut:], t.weights[:cut]),
	}
}

// spread is the weighted standard deviation of each column.
func (t table) spread() []float64 {
	var out []float64
	for j := range t.x[0] {
		var all, mean, square float64
		for i := range t.x {
			all += t.weights[i]
			mean += t.weights[i] * t.x[i][j]
		}
		mean /= all
		for i := range t.x {
			square += t.weights[i] * (t.x[i][j] - mean) * (t.x[i][j] - mean)
		}
		out = append(out, math.Sqrt(square/all))
	}
	return out
}

// Planes are as accurate as their condition number allows, whatever rows the origin
// comes from.
func TestHostileBlocksAgainst200Bits(t *testing.T) {
	// Each sum rounds at most once per row.
	const tolerance = 300 * 0x1p-53
	const m, n = 300, 3
	for name, spoil := range hostile {
		r := rand.New(rand.NewPCG(31, 31))
		rows := randomTable(r, m, n, 2)
		rows.weights = slices.Repeat([]float64{1}, m)
		spoil(r, &rows, []int{0, m / 2, m - 1})
		for _, by := range []int{0, 1, 7, m / 2} {
			rows := rows.rotated(by)
			spread := rows.spread()
			moments := sumOf(n, summarise(t, rows.block(0, m))).Moments()
			for _, o := range []Options{{Nu: 1, Standardise: true}, {Nu: 1, Standardise: true, Balanced: true}} {
				model, err := moments.Solve(o)
				if err != nil {
					t.Errorf("%s, rotated by %d: %v", name, by, err)
					continue
				}
				p := model.Planes[0]
				w, gamma := bigPlane(rows, p.Class, o)
				var size, off float64
				value, want := -p.Gamma, -gamma // the decision value at the mean
				for j, mean := range model.Mean {
					size += math.Pow(w[j]*spread[j], 2)
					off += math.Pow((p.W[j]-w[j])*spread[j], 2)
					value += p.W[j] * mean
					want += w[j] * mean
				}
				if off = math.Sqrt(off / size); off > tolerance*p.Condition {
					t.Errorf("%s, rotated by %d, balanced %t: w is off by %.1e, condition %.1e", name, by, o.Balanced, off, p.Condition)
				}
				if off := math.Abs(value - want); off > tolerance*p.Condition*max(1, math.Abs(gamma)) {
					t.Errorf("%s, rotated by %d, balanced %t: γ is off by %.1e, condition %.1e", name, by, o.Balanced, off, p.Condition)
				}
			}
		}
	}
}

// The summaries of hostile blocks have these bits on every processor.
func TestHostileBitsOnEveryProcessor(t *testing.T) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		r := rand.New(rand.NewPCG(36, 36))
		var rows table
		for i := range 700 {
			x := []float64{r.Float64(), 100 * r.Float64(), 1e4 + r.Float64()}
			rows.x, rows.label, rows.weights = append(rows.x, x), append(rows.label, fmt.Sprint("c", i%3)), append(rows.weights, 1)
		}
		hostile[name](r, &rows, []int{0, 350, 699})
		h.Write(summarise(t, rows.block(0, 700)).AppendBinary(nil))
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != "bc2f5ad2f6f362cb504dd68bbac7d5b51f888ffe34774bc9ab209e4d838f8c29" {
		t.Errorf("SHA-256 %s", got)
	}
}

// The origin is the median of the three probed rows unless these are outliers, so that
// ordinary blocks keep their summaries. Columns of 0 and 1 have the origin 0.
func TestOrdinaryBlocksKeepTheirOrigin(t *testing.T) {
	columns := map[string]func(r *rand.Rand) float64{
		"normal":        (*rand.Rand).NormFloat64,
		"far":           func(r *rand.Rand) float64 { return 1e6 + r.NormFloat64() },
		"exponential":   (*rand.Rand).ExpFloat64,
		"a category":    func(r *rand.Rand) float64 { return float64(max(0, 1-r.IntN(20))) },
		"frequent":      func(r *rand.Rand) float64 { return float64(min(1, r.IntN(300))) },
		"one":           func(*rand.Rand) float64 { return 1 },
		"almost binary": func(r *rand.Rand) float64 { return float64(1 - max(0, 1-r.IntN(3)) + max(0, 2-r.IntN(500))) },
		"rare":          func(r *rand.Rand) float64 { return float64(max(0, 1-r.IntN(300))) },
		"whole numbers": func(r *rand.Rand) float64 { return math.Floor(r.ExpFloat64() * 100) },
		"constant":      func(*rand.Rand) float64 { return 0.1 },
	}
	const m = 400
	for name, draw := range columns {
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(32, seed))
			rows := table{}
			for range m {
				rows.x, rows.label = append(rows.x, []float64{draw(r)}), append(rows.label, fmt.Sprint(r.IntN(2)))
			}
			want := median(rows.x[0][0], rows.x[m/2][0], rows.x[m-1][0])
			if binary := !slices.ContainsFunc(rows.x, func(x []float64) bool { return x[0] != 0 && x[0] != 1 }); binary {
				want = 0
			}
			if got := summarise(t, rows.block(0, m)).origin[0]; got != want {
				t.Errorf("%s, seed %d: the origin is %v, want %v", name, seed, got, want)
			}
		}
	}
}

// Rows of weight 0 do not move the origin either.
func TestOutliersOfWeightZeroAreAsIfAbsent(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 33))
	rows := randomTable(r, 200, 2, 2)
	rows.weights = slices.Repeat([]float64{1}, 200)
	rows.outliers([]int{0, 100, 199}, 1e6, 1e-12)
	want := summarise(t, rows.block(0, 200))
	for i := range 200 {
		at := 2 * i
		rows.x = slices.Insert(rows.x, at, []float64{math.Inf(1), 0x1p-140})
		rows.label = slices.Insert(rows.label, at, "c9")
		rows.weights = slices.Insert(rows.weights, at, 0)
	}
	if got := summarise(t, rows.block(0, 400)); got.Digest() != want.Digest() {
		t.Error("rows of weight 0 show in the summary")
	}
}

func TestWeightedMedian(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), 1, -1, 0x1p-149, -0x1p-149, 0x1.fffffep127, math.SmallestNonzeroFloat64, -3}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(34, seed))
		m := 1 + r.IntN(600)
		rows := table{}
		for range m {
			x := r.NormFloat64() * math.Ldexp(1, r.IntN(40)-20)
			if r.IntN(4) == 0 {
				x = special[r.IntN(len(special))]
			}
			rows.x, rows.label = append(rows.x, []float64{x}), append(rows.label, "a")
			rows.weights = append(rows.weights, float64(r.IntN(4))) // whole numbers add up without rounding
		}
		rows.weights[r.IntN(m)] = 1
		if seed%3 == 0 {
			rows.weights = nil
		}
		order := make([]int, m)
		var total float64
		weight := func(i int) float64 {
			if rows.weights == nil {
				return 1
			}
			return rows.weights[i]
		}
		for i := range order {
			order[i] = i
			total += weight(i)
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(rows.x[a][0], rows.x[b][0]) })
		var below, want float64
		for _, i := range order {
			if below += weight(i); below >= total/2 {
				want = rows.x[i][0] + 0
				break
			}
		}
		if got := weightedMedian(rows.block(0, m), 0); math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

// SummariseLike recognises the rows of a summary about any origin.
func TestSummariseLike(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 35))
	rows := randomTable(r, 100, 3, 3)
	rows.weights = slices.Repeat([]float64{1}, 100)
	rows.outliers([]int{0, 50, 99}, 1e6, 1e-12)
	b := rows.block(0, 100)
	var z Summariser
	if err := z.sum(t.Context(), b, []float64{1e6, 1e6, 1e6}); err != nil {
		t.Fatal(err)
	}
	was, err := z.take(b, []float64{1e6, 1e6, 1e6})
	if err != nil {
		t.Fatal(err)
	}
	if summarise(t, b).Digest() == was.Digest() {
		t.Fatal("the origin stays at the outliers")
	}
	again, err := z.SummariseLike(t.Context(), was, b)
	if err != nil || again.Digest() != was.Digest() {
		t.Errorf("the rows of a summary are not known again: %v", err)
	}
	rows.x[7][1]++
	if other, err := z.SummariseLike(t.Context(), was, rows.block(0, 100)); err != nil || other.Digest() == was.Digest() {
		t.Errorf("other rows have the same digest: %v", err)
	}
	rows.weights[3] = -1
	if _, err := z.SummariseLike(t.Context(), was, rows.block(0, 100)); err == nil {
		t.Error("a negative weight is accepted")
	}
}
