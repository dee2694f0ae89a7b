package incremental

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

func summarise(t testing.TB, b *Block) *Summary {
	t.Helper()
	var z Summariser
	s, err := z.Summarise(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// blocksOf cuts a table into random blocks.
func blocksOf(t testing.TB, r *rand.Rand, rows table) []*Summary {
	var out []*Summary
	for i := 0; i < len(rows.x); {
		j := min(i+1+r.IntN(40), len(rows.x))
		out = append(out, summarise(t, rows.block(i, j)))
		i = j
	}
	return out
}

func sumOf(n int, blocks ...*Summary) *State {
	s := NewState(DefaultFeatures(n))
	for _, b := range blocks {
		s.Add(b)
	}
	return s
}

func TestStateIsAFunctionOfTheSet(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(1, seed))
		n, k := 1+r.IntN(6), 2+r.IntN(4)
		blocks := blocksOf(t, r, randomTable(r, 200, n, k))
		want := sumOf(n, blocks...)

		parts := []*State{NewState(DefaultFeatures(n)), NewState(DefaultFeatures(n)), NewState(DefaultFeatures(n))}
		for _, b := range blocks {
			parts[r.IntN(len(parts))].Add(b)
		}
		sum := sumOf(n, blocksOf(t, r, randomTable(r, 100, n, k+1))...) // SetSum overwrites it
		sum.SetSum(parts)
		if sum.Digest() != want.Digest() {
			t.Fatalf("seed %d: the sum of parts has another digest", seed)
		}

		strangers := blocksOf(t, r, randomTable(r, 100, n, k+1))
		got := sumOf(n, strangers...)
		r.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		for i, b := range blocks {
			got.Add(b)
			if i < len(strangers) {
				got.Remove(strangers[i])
			}
		}
		for _, b := range strangers[min(len(blocks), len(strangers)):] {
			got.Remove(b)
		}
		if got.Digest() != want.Digest() {
			t.Fatalf("seed %d: another order, with strangers that came and went, gives another digest", seed)
		}
		for _, o := range []Options{{Nu: 1}, {Nu: 3, Balanced: true, Standardise: true}, {Nu: 1, Standardise: true, Solver: Means{}}} {
			a, err := want.Moments().Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			b, err := got.Moments().Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprintf("%x", a.Planes) != fmt.Sprintf("%x", b.Planes) {
				t.Fatalf("seed %d: another hyperplane", seed)
			}
		}
		for _, b := range blocks {
			got.Remove(b)
		}
		if got.Digest() != NewState(nil).Digest() || got.Rows() != 0 || got.Classes() != 0 {
			t.Fatalf("seed %d: the emptied state is not empty", seed)
		}
	}
}

// The state and its planes have these bits on every processor, because a daemon may move
// to another kind of processor. Receipts name the algorithm, so other bits need another number.
func TestBitsOnEveryProcessor(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 92))
	var rows table
	for range 700 {
		c := r.IntN(3)
		row := make([]float64, 12)
		for j := range row {
			row[j] = r.Float64()*math.Ldexp(1, j) + float64(c*j%5)
		}
		rows.x, rows.label = append(rows.x, row), append(rows.label, strconv.Itoa(c))
		rows.weights = append(rows.weights, r.Float64())
	}
	state := sumOf(12, blocksOf(t, r, rows)...)
	h := sha256.New()
	digest := state.Digest()
	h.Write(digest[:])
	for _, o := range []Options{{Nu: 1}, {Nu: 0.01, Balanced: true}, {Nu: 1000, Standardise: true}} {
		m, err := state.Moments().Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Planes {
			binary.Write(h, binary.LittleEndian, append(p.W, p.Gamma))
		}
	}
	bits := map[int]string{1: "2f8f60cd2dbca2903f2f12ab34d5121cc08a2d4b55f927809329c800bc101732"}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != bits[Algorithm] {
		t.Errorf("SHA-256 %s: raise Algorithm if the bits have to change", got)
	}
}

// Whole numbers have exact sums however they are cut into blocks, because the origin is a
// value of the data and so a whole number.
func TestWholeNumbersDoNotShowBlockBorders(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	rows := randomTable(r, 500, 4, 3)
	for _, row := range rows.x {
		for j := range row {
			row[j] = math.Round(row[j]*1000) + 1e6
		}
	}
	whole := sumOf(4, summarise(t, rows.block(0, 500)))
	if parts := sumOf(4, blocksOf(t, r, rows)...); parts.Digest() != whole.Digest() {
		t.Error("cutting the rows into blocks changes the digest")
	}
}

func TestWeightZeroIsAsIfAbsent(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	rows := randomTable(r, 300, 3, 3)
	rows.weights = make([]float64, 300)
	var kept table
	for i := range rows.weights {
		// Class c2, the first row and the last row have weight 0.
		if r.IntN(3) > 0 && rows.label[i] != "c2" && i > 0 && i < 299 {
			rows.weights[i] = r.ExpFloat64()
			kept.x, kept.label = append(kept.x, rows.x[i]), append(kept.label, rows.label[i])
			kept.weights = append(kept.weights, rows.weights[i])
		} else {
			rows.x[i][0] *= 1e30
		}
	}
	with, without := summarise(t, rows.block(0, 300)), summarise(t, kept.block(0, len(kept.x)))
	if !bytes.Equal(with.AppendBinary(nil), without.AppendBinary(nil)) {
		t.Error("rows of weight 0 show in the summary")
	}
	for i := range rows.weights {
		rows.weights[i] = 0
	}
	if none := summarise(t, rows.block(0, 300)); none.Rows() != 0 || len(none.Classes()) != 0 {
		t.Error("a block of weights 0 has rows")
	}
}

// The sign of a zero has no effect.
func TestMinusZeroIsZero(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(22, seed))
		rows := randomTable(r, 30, 3, 2)
		for i, row := range rows.x {
			for j := range row {
				if r.IntN(3) > 0 || i%14 == 0 {
					row[j] = 0
				}
			}
		}
		want := summarise(t, rows.block(0, 30)).Digest()
		for _, row := range rows.x {
			for j, x := range row {
				if x == 0 && r.IntN(2) == 0 {
					row[j] = math.Copysign(0, -1)
				}
			}
		}
		if summarise(t, rows.block(0, 30)).Digest() != want {
			t.Errorf("seed %d: the sign of a zero shows in the summary", seed)
		}
	}
}

// Select has the bits of the summary of the reordered columns. So do some of the columns,
// also of weighted rows as long as they keep their order.
func TestSelect(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(23, seed))
		n := 1 + r.IntN(30)
		rows := randomTable(r, 1+r.IntN(600), n, 1+r.IntN(4))
		if seed%4 == 0 { // the origin moves
			rows.weights = slices.Repeat([]float64{1}, len(rows.x))
			rows.outliers([]int{0, len(rows.x) / 2, len(rows.x) - 1}, 1e6, 1)
		}
		b := rows.block(0, len(rows.x))
		if seed%2 == 0 {
			for j, c := range b.Columns {
				narrow := make([]float32, c.Len())
				for i := range narrow {
					narrow[i] = float32(c.At(i))
				}
				b.Columns[j] = gram.ColumnOf(narrow)
			}
		}
		s, at := summarise(t, b), r.Perm(n)
		other := *b
		other.Columns = nil
		for _, j := range at {
			other.Columns = append(other.Columns, b.Columns[j])
		}
		if got, want := s.Select(at), summarise(t, &other); !bytes.Equal(got.AppendBinary(nil), want.AppendBinary(nil)) {
			t.Fatalf("seed %d: the summary in the order %v is another one", seed, at)
		}
		if s.Weighted() {
			t.Errorf("seed %d: weights of 1 are weights", seed)
		}
		some := slices.Sorted(slices.Values(at[:1+r.IntN(n)]))
		if rows.weights == nil {
			for range rows.x {
				rows.weights = append(rows.weights, r.Float64())
			}
			b.Weights = rows.weights
			s = summarise(t, b)
		}
		other.Weights, other.Columns = b.Weights, nil
		for _, j := range some {
			other.Columns = append(other.Columns, b.Columns[j])
		}
		got := s.Select(some)
		want, err := new(Summariser).SummariseLike(t.Context(), got, &other)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.AppendBinary(nil), want.AppendBinary(nil)) {
			t.Fatalf("seed %d: the summary of the features %v is another one", seed, some)
		}
	}
	rows := randomTable(rand.New(rand.NewPCG(24, 24)), 9, 2, 2)
	rows.weights = []float64{1, 1, 1, 1, 1, 1, 1, 1, 1.5}
	if !summarise(t, rows.block(0, 9)).Weighted() {
		t.Error("a weight of 1.5 does not show")
	}
}

func TestWeightOneIsNoWeight(t *testing.T) {
	rows := randomTable(rand.New(rand.NewPCG(4, 4)), 100, 3, 2)
	plain := summarise(t, rows.block(0, 100))
	rows.weights = slices.Repeat([]float64{1}, 100)
	if ones := summarise(t, rows.block(0, 100)); !bytes.Equal(ones.AppendBinary(nil), plain.AppendBinary(nil)) {
		t.Error("weights of 1 show in the summary")
	}
}

func TestSolveAgainst200Bits(t *testing.T) {
	// The two differ only by the rounding of a block's own sums: some ulps times the
	// condition number of these well-posed problems.
	const tolerance = 1e-12
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(5, seed))
		n, k := 1+r.IntN(5), 2+r.IntN(3)
		rows := randomTable(r, 120, n, k)
		if seed%2 == 1 {
			rows.weights = make([]float64, 120)
			for i := range rows.weights {
				rows.weights[i] = math.Round(r.ExpFloat64()*4) / 4
			}
			rows.weights[0] = 1
		}
		moments := sumOf(n, blocksOf(t, r, rows)...).Moments()
		for _, o := range []Options{
			{Nu: 1}, {Nu: 1e4}, {Nu: 1e-3, Standardise: true}, {Nu: 10, Balanced: true},
			{Nu: 2, Standardise: true, ClassWeights: map[string]float64{"c0": 3, "c1": 0.25}},
		} {
			model, err := moments.Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			if want := k; k > 2 && len(model.Planes) != want || k == 2 && len(model.Planes) != 1 {
				t.Fatalf("%d planes for %d classes", len(model.Planes), k)
			}
			for _, p := range model.Planes {
				w, gamma := bigPlane(rows, p.Class, o)
				if d := distance(p.W, p.Gamma, w, gamma, slices.Repeat([]float64{1}, n)); d > tolerance {
					t.Errorf("seed %d, %+v, class %s: off by %.1e", seed, o, p.Class, d)
				}
			}
		}
	}
}

// A class with nearly all of the weight takes no digits from the other classes, which
// are the negative side of its plane.
func TestBalancedAgainst200Bits(t *testing.T) {
	const tolerance = 1e-12
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(21, seed))
		rows := randomTable(r, 150, 3, 5)
		for _, label := range rows.label {
			weight := 0x1p-40
			if label == "c2" {
				weight = 0x1p40
			}
			rows.weights = append(rows.weights, weight*(1+r.Float64())/2)
		}
		o := Options{Nu: 1, Balanced: true}
		model, err := sumOf(3, blocksOf(t, r, rows)...).Moments().Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range model.Planes {
			w, gamma := bigPlane(rows, p.Class, o)
			if d := distance(p.W, p.Gamma, w, gamma, []float64{1, 1, 1}); d > tolerance {
				t.Errorf("seed %d, class %s: off by %.1e", seed, p.Class, d)
			}
		}
	}
}

// ν means the same with and without balance: where both classes have the same weight,
// balance changes nothing.
func TestBalanceKeepsNu(t *testing.T) {
	rows := randomTable(rand.New(rand.NewPCG(23, 1)), 300, 3, 2)
	ones := 0.0
	for _, label := range rows.label {
		if label == "c1" {
			ones++
		}
	}
	for _, label := range rows.label {
		v := ones / 300
		if label == "c1" {
			v = 1 - v
		}
		rows.weights = append(rows.weights, v)
	}
	moments := sumOf(3, summarise(t, rows.block(0, 300))).Moments()
	for _, nu := range []float64{1e-4, 1e-2, 1} {
		plain, err := moments.Solve(Options{Nu: nu})
		if err != nil {
			t.Fatal(err)
		}
		balanced, err := moments.Solve(Options{Nu: nu, Balanced: true})
		if err != nil {
			t.Fatal(err)
		}
		p, q := plain.Planes[0], balanced.Planes[0]
		if d := distance(q.W, q.Gamma, p.W, p.Gamma, []float64{1, 1, 1}); d > 1e-12 {
			t.Errorf("ν = %v: off by %.1e", nu, d)
		}
	}
}

// Spreads range from 1e-6 to 1e6, and means are 10,000 spreads away from zero. The
// standardised plane agrees with one computed from the rows in 200 bits; sums about zero
// would have lost half of their digits.
func TestSolveBadlyScaled(t *testing.T) {
	const tolerance = 1e-10
	const n, m = 7, 400
	spread := []float64{1e-6, 1e-4, 1e-2, 1, 1e2, 1e4, 1e6}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(6, seed))
		rows := randomTable(r, m, n, 2+int(seed%2))
		for _, row := range rows.x {
			for j := range row {
				row[j] = (row[j] + 1e4) * spread[j]
			}
		}
		moments := sumOf(n, blocksOf(t, r, rows)...).Moments()
		for _, balanced := range []bool{false, true} {
			o := Options{Nu: 1, Standardise: true, Balanced: balanced}
			model, err := moments.Solve(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range model.Planes {
				w, gamma := bigPlane(rows, p.Class, o)
				d := distance(p.W, p.Gamma, w, gamma, spread)
				t.Logf("seed %d class %s: off by %.1e, condition %.1e", seed, p.Class, d, p.Condition)
				if d > tolerance {
					t.Errorf("seed %d class %s balanced %t: off by %.1e", seed, p.Class, balanced, d)
				}
			}
		}
	}
}

func TestIllConditionedSystemSaysSo(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	rows := randomTable(r, 50, 2, 2)
	for _, row := range rows.x {
		row[1] = row[0] * 3 // a feature that repeats another
	}
	moments := sumOf(2, summarise(t, rows.block(0, 50))).Moments()
	_, err := moments.Solve(Options{Nu: 1e20})
	var condition *ConditionError
	if !errors.As(err, &condition) {
		t.Fatalf("the error is %v", err)
	}
	if condition.Condition < 1e14 {
		t.Errorf("the condition number is said to be %g", condition.Condition)
	}
	if _, err := moments.Solve(Options{Nu: 1}); err != nil {
		t.Errorf("with the ridge of ν = 1: %v", err)
	}
}

// The sums of whole numbers are exact, so only the solution is rounded.
func TestRepeatedFeaturesAndLargeNu(t *testing.T) {
	const tolerance = 1e-15
	r := rand.New(rand.NewPCG(7, 8))
	rows := randomTable(r, 300, 3, 2)
	for _, row := range rows.x {
		row[0], row[1] = math.Round(100*row[0]), math.Round(100*row[1])
		row[2] = row[0] + row[1]
	}
	moments := sumOf(3, blocksOf(t, r, rows)...).Moments()
	for exponent := -4; exponent <= 22; exponent++ {
		o := Options{Nu: math.Ldexp(1, exponent), Balanced: exponent%2 == 0}
		model, err := moments.Solve(o)
		if err != nil {
			t.Fatal(err)
		}
		p := model.Planes[0]
		w, gamma := bigPlane(rows, p.Class, o)
		if d := distance(p.W, p.Gamma, w, gamma, []float64{1, 1, 1}); d > tolerance {
			t.Errorf("ν = 2^%d, condition %.1e: off by %.1e", exponent, p.Condition, d)
		}
	}
}

func TestConstantFeatureGetsNoWeight(t *testing.T) {
	rows := randomTable(rand.New(rand.NewPCG(8, 8)), 60, 3, 2)
	for _, row := range rows.x {
		row[1] = 0.1
	}
	model, err := sumOf(3, blocksOf(t, rand.New(rand.NewPCG(8, 9)), rows)...).Moments().Solve(Options{Nu: 1, Standardise: true})
	if err != nil {
		t.Fatal(err)
	}
	if w := model.Planes[0].W[1]; math.Abs(w) > 1e-25 {
		t.Errorf("w = %g", w)
	}
}

func TestSolveRefuses(t *testing.T) {
	rows := randomTable(rand.New(rand.NewPCG(9, 9)), 20, 2, 2)
	good := sumOf(2, summarise(t, rows.block(0, 20))).Moments()
	for _, o := range []Options{{}, {Nu: -1}, {Nu: math.NaN()}, {Nu: math.Inf(1)}, {Nu: 1, ClassWeights: map[string]float64{"c0": 0}}} {
		if _, err := good.Solve(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	for i := range rows.label {
		rows.label[i] = "same"
	}
	if _, err := sumOf(2, summarise(t, rows.block(0, 20))).Moments().Solve(Options{Nu: 1}); !errors.Is(err, ErrClasses) {
		t.Errorf("one class: %v", err)
	}
	if _, err := NewState(nil).Moments().Solve(Options{Nu: 1}); !errors.Is(err, ErrClasses) {
		t.Errorf("no class: %v", err)
	}
}

func TestSummariseRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*table)
		row  int
	}{
		{"NaN", func(t *table) { t.x[7][1] = math.NaN(); t.x[9][0] = math.Inf(1) }, 7},
		{"infinity", func(t *table) { t.x[9][0] = math.Inf(-1) }, 9},
		{"NaN in a probe row", func(t *table) { t.x[0][1] = math.NaN() }, 0},
		{"infinite probes", func(t *table) { t.x[0][1], t.x[19][1], t.x[10][1] = math.Inf(1), math.Inf(1), math.Inf(1) }, 0},
		{"negative weight", func(t *table) { t.weights[3] = -1 }, 3},
		{"NaN weight", func(t *table) { t.weights[4] = math.NaN() }, 4},
		{"infinite weight", func(t *table) { t.weights[5] = math.Inf(1) }, 5},
		{"too large", func(t *table) { t.x[3][0] = 1e200 }, 3},
		{"too small", func(t *table) {
			for i := range t.x {
				t.x[i][0] = 1e-200
			}
		}, 0},
		{"sums overflow", func(t *table) { t.x[3][0], t.x[4][0] = 1e308, 1e308 }, 3},
		{"large weight", func(t *table) { t.weights[6] = 1e200 }, 6},
	} {
		rows := randomTable(rand.New(rand.NewPCG(10, 10)), 20, 2, 2)
		rows.weights = slices.Repeat([]float64{1}, 20)
		c.do(&rows)
		var z Summariser
		_, err := z.Summarise(rows.block(0, 20))
		var bad *RowError
		if !errors.As(err, &bad) || bad.Row != c.row {
			t.Errorf("%s: %v, want row %d", c.name, err, c.row)
		}
	}
}

func TestRangeOfFloat32(t *testing.T) {
	extremes := []float32{math.SmallestNonzeroFloat32, -math.MaxFloat32, 1, math.MaxFloat32, 0x1p-126, -0x1.fffffep-127}
	for _, weights := range [][]float64{nil, {1e-12, 1e12, 0.1, 1, 3, 1e-12}} {
		b := &Block{Columns: []gram.Column{gram.ColumnOf(extremes)}, Codes: make([]int32, 6), Classes: []string{"a"}, Weights: weights}
		s := summarise(t, b)
		state := sumOf(1, s, s, s)
		state.Remove(s)
		state.Remove(s)
		state.Remove(s)
		if state.Classes() != 0 {
			t.Error("something is left")
		}
	}
}

func TestRemovingAStrangerPanics(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	a, b := randomTable(r, 20, 2, 1), randomTable(r, 20, 2, 1)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s := sumOf(2, summarise(t, a.block(0, 20)))
	s.Remove(summarise(t, b.block(0, 20)))
}

func TestEncodings(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 12))
	rows := randomTable(r, 100, 5, 3)
	blocks := blocksOf(t, r, rows)
	for _, b := range blocks {
		encoded := b.AppendBinary(nil)
		c, err := DecodeSummary(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.AppendBinary(nil), encoded) {
			t.Fatal("a summary changes when it is written and read")
		}
		for cut := range len(encoded) {
			if _, err := DecodeSummary(encoded[:cut]); !errors.Is(err, ErrEncoding) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
	}
	state := sumOf(5, blocks...)
	encoded := state.AppendBinary(nil)
	again, err := DecodeState(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != state.Digest() || !slices.Equal(again.Features(), state.Features()) {
		t.Error("a state changes when it is written and read")
	}
	for _, b := range blocks {
		again.Remove(b)
	}
	if again.Classes() != 0 {
		t.Error("the decoded state is not the sum of its blocks")
	}
	for cut := range len(encoded) {
		if _, err := DecodeState(encoded[:cut]); !errors.Is(err, ErrEncoding) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

// The digest hashes the whole encoding, however long it is. The totals of a state add up
// those of its summaries.
func TestSummaryDigestAndTotals(t *testing.T) {
	for _, n := range []int{1, 7, 40} {
		b := &Block{Classes: []string{"b", "a"}, Codes: []int32{0, 1, 0}, Weights: []float64{0.5, 2, 1.25}}
		for j := range n {
			b.Columns = append(b.Columns, gram.ColumnOf([]float64{float64(j), 1 / float64(j+3), -7}))
		}
		var z Summariser
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		if s.Digest() != sha256.Sum256(s.AppendBinary(nil)) {
			t.Errorf("n = %d: the digest is not that of the encoding", n)
		}
		state := NewState(make([]string, n))
		state.Add(s)
		state.Add(s)
		want := []ClassTotal{{"a", 2, 4}, {"b", 4, 3.5}}
		if got := state.Totals(); !slices.Equal(got, want) {
			t.Errorf("n = %d: totals %v, want %v", n, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	for x, want := range map[float64]string{1: "1", -1: "-1", math.Copysign(0, -1): "0", 0.5: "0.5", 2.5e6 + 0.25: "2500000.25", 5e-5: "0.00005", 1e14: "100000000000000", 1e15: "1e+15", 1e-7: "1e-07"} {
		if got := NumberLabel(x); got != want {
			t.Errorf("NumberLabel(%g) = %q, want %q", x, got, want)
		}
	}
	sorted := []string{"-2", "-1", "0", "0.00005", "0.5", "2", "10", "2500000.25", "999999999999999", "1e+15",
		"+1", "-0", "007", "1.0", "1000000000000000", "NaN", "a", "b"}
	shuffled := slices.Clone(sorted)
	rand.New(rand.NewPCG(13, 13)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	slices.SortFunc(shuffled, CompareLabels)
	if !slices.Equal(shuffled, sorted) {
		t.Errorf("sorted: %q", shuffled)
	}
	for _, label := range append(sorted, "", "-", "--1", "-5", "-05", "-0.5", "12a", "-a", "9007199254740993", "123456789012345", "-999999999999999", "inf", "0x1p3", "1_0") {
		x, err := strconv.ParseFloat(label, 64)
		want := err == nil && x-x == 0 && NumberLabel(x) == label
		if got, ok := labelNumber(label); ok != want || ok && got != x {
			t.Errorf("labelNumber(%q) = %v, %v, want %v, %v", label, got, ok, x, want)
		}
	}
	for _, bad := range []string{"", string(bytes.Repeat([]byte("x"), MaxLabel+1)), "\xff"} {
		if CheckLabel(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestPick(t *testing.T) {
	whole := Block{
		Features: []string{"a", "b", "c"}, Classes: []string{"x", "y"}, Codes: []int32{0, 1, 1, 0},
		Columns: []gram.Column{gram.ColumnOf([]float32{1, 2, 3, 4}), gram.ColumnOf([]int8{5, 6, 7, 8}), gram.StridedColumn([]float32{9, 0, 10, 0, 11, 0, 12}, 0, 2, 4)},
	}
	rows := []int{3, 0, 3}
	for _, weights := range [][]float64{nil, {0.5, 1, 2, 0}} {
		whole.Weights = weights
		some := whole.Pick(rows)
		if some.Rows() != len(rows) || len(some.Columns) != 3 || !slices.Equal(some.Features, whole.Features) || (some.Weights == nil) != (weights == nil) {
			t.Fatalf("%+v", some)
		}
		for to, from := range rows {
			if some.Codes[to] != whole.Codes[from] || some.Weight(to) != whole.Weight(from) {
				t.Errorf("row %d is not row %d", to, from)
			}
			for j, c := range some.Columns {
				if c.At(to) != whole.Columns[j].At(from) {
					t.Errorf("feature %d of row %d is %v instead of %v", j, to, c.At(to), whole.Columns[j].At(from))
				}
			}
		}
		if some.Columns[0].Kind() != gram.Float32 || some.Columns[1].Kind() != gram.Float64 {
			t.Errorf("columns are %v and %v", some.Columns[0].Kind(), some.Columns[1].Kind())
		}
	}
}

// decideRow is the specification of Classify for one row x. It appends the values to dst.
func (m *Model) decideRow(dst, x []float64) (class int, values []float64) {
	first := len(dst)
	for _, p := range m.Planes {
		value := -p.Gamma
		for j, w := range p.W {
			value += float64(w * x[j])
		}
		dst = append(dst, value)
	}
	return Decide(dst[first:]), dst
}

func TestDecide(t *testing.T) {
	two := &Model{Features: DefaultFeatures(2), Classes: []string{"-1", "1"}, Planes: []Plane{{Class: "1", W: []float64{1, -2}, Gamma: 3}}}
	for _, c := range []struct {
		x     []float64
		class int
		value float64
	}{{[]float64{3, 0}, 1, 0}, {[]float64{0, 0}, 0, -3}, {[]float64{10, 1}, 1, 5}} {
		class, values := two.decideRow(nil, c.x)
		if class != c.class || values[0] != c.value {
			t.Errorf("%v: class %d, %v", c.x, class, values)
		}
	}
	three := &Model{Features: DefaultFeatures(1), Classes: []string{"a", "b", "c"}, Planes: []Plane{
		{W: []float64{1}}, {W: []float64{2}}, {W: []float64{-1}},
	}}
	for x, want := range map[float64]int{1: 1, -1: 2, 0: 0} {
		if class, values := three.decideRow(nil, []float64{x}); class != want || len(values) != 3 {
			t.Errorf("%g: class %d, %v", x, class, values)
		}
	}
}

func TestClassifyDecidesRowsBitForBit(t *testing.T) {
	for _, k := range []int{2, 3} {
		for _, m := range []int{0, 1, 255, 256, 257, 600} {
			r := rand.New(rand.NewPCG(18, uint64(m)))
			model := &Model{Features: DefaultFeatures(5), Classes: DefaultFeatures(k)}
			for range map[bool]int{true: 1, false: k}[k == 2] {
				p := Plane{Gamma: r.NormFloat64()}
				for range 5 {
					p.W = append(p.W, r.NormFloat64())
				}
				model.Planes = append(model.Planes, p)
			}
			rows := randomTable(r, m+1, 5, 2)
			class, values := make([]int32, m), make([]float64, m*len(model.Planes))
			model.Classify(class, values, rows.block(0, m).Columns)
			var want []float64
			for i, x := range rows.x[:m] {
				var c int
				if c, want = model.decideRow(want, x); int32(c) != class[i] {
					t.Fatalf("k=%d m=%d: row %d is of class %d, want %d", k, m, i, class[i], c)
				}
			}
			if !slices.Equal(values, want) {
				t.Fatalf("k=%d m=%d: the values differ", k, m)
			}
		}
	}
}

func FuzzDecodeSummary(f *testing.F) {
	rows := randomTable(rand.New(rand.NewPCG(14, 14)), 9, 2, 2)
	f.Add(summarise(f, rows.block(0, 9)).AppendBinary(nil))
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSummary(b)
		if err != nil {
			return
		}
		if !bytes.Equal(s.AppendBinary(nil), b) {
			t.Fatal("accepted, but written otherwise")
		}
		state := sumOf(s.Features(), s)
		state.Remove(s)
		if state.Classes() != 0 {
			t.Fatal("adding and removing leaves something")
		}
	})
}

// A span is the smallest one that covers all numbers.
func TestSpan(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 18))
	special := []float64{0, math.Copysign(0, -1), math.SmallestNonzeroFloat64, -0x1p-1022, 0x1.8p-1030, math.MaxFloat64, 1, -3}
	for range 2000 {
		var xs []float64
		low, high, used := 0, 0, false
		for range r.IntN(5) {
			x := special[r.IntN(len(special))]
			if r.IntN(2) == 0 {
				x = math.Ldexp(float64(r.Int64()>>r.IntN(63)), r.IntN(2000)-1040)
			}
			xs = append(xs, x)
			if x == 0 || math.IsInf(x, 0) {
				continue
			}
			fraction, exponent := math.Frexp(math.Abs(x))
			mantissa := uint64(math.Ldexp(fraction, 53))
			lowest := exponent - 53 + bits.TrailingZeros64(mantissa)
			if !used {
				low, high, used = lowest, exponent, true
			}
			low, high = min(low, lowest), max(high, exponent)
		}
		bad := slices.ContainsFunc(xs, func(x float64) bool { return math.IsInf(x, 0) })
		var s span
		k := r.IntN(len(xs) + 1)
		s.cover(xs[:k])
		s.cover(xs[k:])
		if want := (span{low, high, used, bad}); s != want {
			t.Fatalf("%v: %+v, want %+v", xs, s, want)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var s span
		if s.cover([]float64{1, x, 2}); !s.bad {
			t.Errorf("%v is not bad", x)
		}
	}
}

func FuzzDecodeState(f *testing.F) {
	r := rand.New(rand.NewPCG(15, 15))
	f.Add(sumOf(2, blocksOf(f, r, randomTable(r, 9, 2, 2))...).AppendBinary(nil))
	f.Add([]byte{0, 0})
	f.Add(append([]byte{0, 1, 1, 'a', 3, 1, 14, 0, 0, 0, 0, 0, 0, 0, 0x40}, 0, 0)) // a weight of 2^446
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err == nil && !bytes.Equal(s.AppendBinary(nil), b) {
			t.Fatal("accepted, but written otherwise")
		}
		if err != nil || len(s.Features()) > 8 || s.Classes() > 8 {
			return
		}
		s.Totals()
		for _, standardise := range []bool{false, true} {
			_, _ = s.Moments().Solve(Options{Nu: 1, Standardise: standardise}) // it may have no solution
		}
	})
}

// Sums that no rows can have are not a valid encoding: arithmetic with them would
// overflow a float64 or an exact sum.
func TestImpossibleState(t *testing.T) {
	header := binary.AppendUvarint(nil, 1)
	header = append(header, 1, 'x', 1, 1, 'a', 3) // one feature, one class, three rows
	number := func(x float64) []byte {
		v := exact.NewVector(1)
		v.Add(0, x)
		return v.AppendBinary(nil)
	}
	top := []byte{1, 14, 0, 0, 0, 0, 0, 0, 0, 0x40} // 2^446
	for _, c := range []struct {
		name             string
		weight, s, cross []byte
		ok               bool
	}{
		{"possible", number(3), number(5), number(9), true},
		{"largest", number(3 * maxWeight), number(3 * maxWeight * 0x1p127), number(3 * maxWeight * 0x1p254), true},
		{"no weight", []byte{0, 0}, number(5), number(9), false},
		{"negative weight", number(-3), number(5), number(9), false},
		{"weight too small", number(0x1p-200), number(5), number(9), false},
		{"weight too large", number(8 * maxWeight), number(5), number(9), false},
		{"weight beyond terms", top, number(5), number(9), false},
		{"sum too large", number(3), number(0x1p180), number(9), false},
		{"sum beyond terms", number(3), top, number(9), false},
		{"square too large", number(3), number(5), number(-0x1p320), false},
		{"square beyond terms", number(3), number(5), top, false},
	} {
		b := slices.Concat(header, c.weight, c.s, c.cross)
		s, err := DecodeState(b)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && !bytes.Equal(s.AppendBinary(nil), b) {
			t.Errorf("%s: written otherwise", c.name)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{10, 100} {
		for _, m := range []int{1000, 100_000} {
			wide := randomTable(rand.New(rand.NewPCG(16, 16)), m, n, 2).block(0, m)
			narrow := *wide
			narrow.Columns = nil
			for _, c := range wide.Columns {
				x := make([]float32, m)
				for i := range x {
					x[i] = float32(c.At(i))
				}
				narrow.Columns = append(narrow.Columns, gram.ColumnOf(x))
			}
			for kind, block := range map[string]*Block{"float64": wide, "float32": &narrow} {
				s := summarise(b, block)
				state := sumOf(n, s)
				b.Run(fmt.Sprintf("n=%d/rows=%d/%s", n, m, kind), func(b *testing.B) {
					for b.Loop() {
						state.Add(s)
						state.Remove(s)
					}
				})
			}
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, n := range []int{10, 100, 500} {
		rows := randomTable(rand.New(rand.NewPCG(17, 17)), 2*n, n, 2)
		moments := sumOf(n, summarise(b, rows.block(0, 2*n))).Moments()
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := moments.Solve(Options{Nu: 1, Standardise: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Numbers with all their bits at the ends of the range fit the sums of a block and of a
// state, in every combination.
func TestRangeOfFloat64(t *testing.T) {
	ends := []float64{0x1.fffffffffffffp-149, -0x1.fffffffffffffp127, 0x1.0000000000001p-149, 0x1.fffffffffffffp127, -0x1.fffffffffffffp127, 0}
	weights := []float64{0x1.fffffffffffffp-40, 0x1.fffffffffffffp39, 0x1p40, 0x1p-40, 1, 0}
	r := rand.New(rand.NewPCG(19, 19))
	for range 200 {
		var rows table
		rows.weights = []float64{}
		for range 30 {
			rows.x = append(rows.x, []float64{ends[r.IntN(len(ends))], ends[r.IntN(len(ends))]})
			rows.label = append(rows.label, fmt.Sprint("c", r.IntN(2)))
			rows.weights = append(rows.weights, weights[r.IntN(len(weights))])
		}
		s := summarise(t, rows.block(0, 30))
		state := sumOf(2, s)
		state.Remove(s)
		if state.Classes() != 0 {
			t.Fatal("something is left")
		}
	}
	// 2^31 rows of the largest numbers are 2^31 times the largest term.
	if !exact.Fits(0x1p31 * 0x1p40 * 0x1p129 * 0x1p129) {
		t.Error("the largest sum does not fit")
	}
}

func TestScale(t *testing.T) {
	rows := table{label: []string{"a", "b", "b", "a"}, weights: []float64{1, 2, 1, 0}}
	for _, x := range []float64{1, 4, 7, 1e9} {
		rows.x = append(rows.x, []float64{x + 1e8, 0.1})
	}
	moments := sumOf(2, summarise(t, rows.block(0, 2)), summarise(t, rows.block(2, 4))).Moments()
	mean, sigma := moments.Scale()
	// The weighted mean is (1 + 2·4 + 7)/4 = 4, the variance (9 + 9)/4 = 4.5.
	if mean[0] != 1e8+4 || sigma[0] != math.Sqrt(4.5) || math.Abs(mean[1]-0.1) > 1e-16 || sigma[1] != 1 {
		t.Errorf("μ = %v, σ = %v", mean, sigma)
	}
	model, err := moments.Solve(Options{Nu: 1})
	if err != nil || !slices.Equal(model.Mean, mean) || !slices.Equal(model.Deviation, []float64{sigma[0], 0}) {
		t.Errorf("the model has μ = %v, σ = %v: %v", model.Mean, model.Deviation, err)
	}
	if mean, sigma := NewState(DefaultFeatures(2)).Moments().Scale(); mean != nil || sigma != nil {
		t.Errorf("no rows have μ = %v, σ = %v", mean, sigma)
	}
}

func TestCompareFeatures(t *testing.T) {
	sorted := []string{"", "-", "01", "1", "1a", "2", "2.5", "9", "10", "A2", "a", "a001", "a01", "a1", "a01b", "a1b", "a1b2", "a1b10", "a2", "a10",
		"a18446744073709551616", "a18446744073709551617", "ab", "b", "é"}
	for i, a := range sorted {
		for j, b := range sorted {
			got, want := CompareFeatures(a, b), cmp.Compare(i, j)
			if got != want {
				t.Errorf("CompareFeatures(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

// The window of a state lies within the union of its summaries' windows, also for
// summaries of different magnitudes, and that union is not much wider.
func TestWindow(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 31))
	for trial := range 300 {
		state, window := NewState([]string{"a", "b", "c"}), exact.Window{}
		scale := []int{0, 10, 60, 120}[trial%4]
		for range 1 + r.IntN(3) {
			b := &Block{Classes: []string{"p", "q"}}
			for i := range 1 + r.IntN(5) {
				b.Codes = append(b.Codes, int32(i%2))
				b.Weights = append(b.Weights, math.Ldexp(1+r.Float64(), r.IntN(scale/4+1)-scale/8))
			}
			for range 3 {
				column := make([]float64, len(b.Codes))
				for i := range column {
					column[i] = math.Ldexp(r.Float64()-0.5, r.IntN(2*scale+1)-scale)
				}
				b.Columns = append(b.Columns, gram.ColumnOf(column))
			}
			s, err := new(Summariser).Summarise(b)
			if err != nil {
				t.Fatal(err)
			}
			window = window.Union(s.Window())
			state.Add(s)
			decoded, err := DecodeSummary(s.AppendBinary(nil))
			if err != nil || decoded.Window() != s.Window() {
				t.Fatalf("window %v, decoded %v (%v)", s.Window(), decoded.Window(), err)
			}
		}
		got := state.Window()
		if window.Union(got) != window || window.Width > got.Width+2 {
			t.Fatalf("scale %d: the state has window %v, of its summaries %v was expected", scale, got, window)
		}
	}
}

// A value that is NaN is below all others, wherever it stands.
func TestDecideWithNaN(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		want   int
	}{
		{[]float64{nan}, 0},
		{[]float64{nan, 1, 2}, 2},
		{[]float64{-3, nan, -2}, 2},
		{[]float64{math.Inf(-1), nan, -2}, 2},
		{[]float64{4, nan, 4}, 0},
		{[]float64{nan, nan, nan}, 0},
	} {
		if got := Decide(c.values); got != c.want {
			t.Errorf("%v: class %d", c.values, got)
		}
	}
}
