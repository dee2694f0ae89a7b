package ndc

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mat"
)

func mustNew(t testing.TB, cfg Config) *Generator {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// points are rows of a stream, made in one call.
func points(g *Generator, stream Stream, first int64, rows int) ([][]float32, []int32) {
	columns, codes := buffers(g.Features(), rows)
	g.NewSampler().Fill(columns, codes, stream, first)
	return columns, codes
}

// digest is the SHA-256 of points row by row: the coordinates as little-endian
// float32, then the class as one byte.
func digest(columns [][]float32, codes []int32) string {
	h := sha256.New()
	var row []byte
	for i, code := range codes {
		row = row[:0]
		for _, column := range columns {
			row = binary.LittleEndian.AppendUint32(row, math.Float32bits(column[i]))
		}
		h.Write(append(row, byte(code)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestStreamsNeverChange compares the first 10,000 points of some sets with those of the
// first version, because results name a set by its configuration.
func TestStreamsNeverChange(t *testing.T) {
	for _, c := range []struct {
		cfg       Config
		stream    Stream
		expansion float64
		want      string
	}{
		{Config{Features: 10, Seed: 1, Separability: Easy}, Train, 13.723,
			"04d15761fa33269d7128d7cee2dfad5d5f6c895943f93d6efa5818189706bc31"},
		{Config{Features: 10, Seed: 1, Separability: Easy}, Test, 13.723,
			"274192ab7fd8c1c2d8e27a77b5ac5e12bec6f5a8fef5f0d2953de56425ebd213"},
		{Config{Features: 10, Seed: 1, Separability: Hard}, Train, 34.695,
			"9160e393612163cdda5daf5459ffba38e6dfafe0537ac902123cb0bae2f4ccd0"},
		{Config{Features: 10, Seed: 1}, Train, 10,
			"595f1e0ab2d06c287916a08d323037339906db1067a1b117e3e75c85c9f28bd3"},
		{Config{Features: 7, Seed: 1<<64 - 1, Separability: Expansion(2.5)}, Test, 2.5,
			"ca9f0280448b402283ec997f2ebb2d728cf32d50a637bfd26be32417092b1b87"},
	} {
		g := mustNew(t, c.cfg)
		if g.Expansion() != c.expansion {
			t.Errorf("%+v: expansion factor %v, not %v", c.cfg, g.Expansion(), c.expansion)
		}
		if got := digest(points(g, c.stream, 0, 10_000)); got != c.want {
			t.Errorf("%+v: stream %d: digest %s, not %s", c.cfg, c.stream, got, c.want)
		}
	}
}

// TestAnyRangeAnyWorker cuts a stretch of a stream into ranges at random and makes them
// with several workers. The points must be those of one call. The stretch lies where
// numbers of words no longer fit in 53 bits.
func TestAnyRangeAnyWorker(t *testing.T) {
	const rows = 5_000
	for _, n := range []int{1, 2, 3, 10, 33} {
		for _, stream := range []Stream{Train, Test} {
			g := mustNew(t, Config{Features: n, Seed: 5})
			first := MaxPoints - rows
			wantColumns, wantCodes := points(g, stream, first, rows)

			rng := rand.New(rand.NewPCG(uint64(n), uint64(stream)))
			cuts := []int{0, rows}
			for range 20 {
				cuts = append(cuts, rng.IntN(rows+1))
			}
			slices.Sort(cuts)
			columns, codes := buffers(n, rows)
			work := make(chan [2]int, len(cuts))
			for i := range cuts[1:] {
				work <- [2]int{cuts[i], cuts[i+1]}
			}
			close(work)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					s := g.NewSampler()
					for r := range work {
						part := make([][]float32, n)
						for j := range part {
							part[j] = columns[j][r[0]:r[1]]
						}
						s.Fill(part, codes[r[0]:r[1]], stream, first+int64(r[0]))
					}
				})
			}
			wg.Wait()
			if !slices.Equal(codes, wantCodes) || digest(columns, codes) != digest(wantColumns, wantCodes) {
				t.Fatalf("n=%d, stream %d: ranges %v give other points than one call", n, stream, cuts)
			}
		}
	}
}

// TestPointByDefinition recomputes points one at a time from the words that
// the package comment gives them.
func TestPointByDefinition(t *testing.T) {
	for _, n := range []int{1, 2, 9, 10} {
		g := mustNew(t, Config{Features: n, Seed: 3})
		columns, codes := points(g, Test, 0, 2_000)
		for i := range codes {
			number := quarterTest + uint64(i)*uint64(1+(n+1)/2)
			pick := mix(g.key+number*step) >> 32
			k := slices.IndexFunc(g.upTo[:], func(end uint64) bool { return pick < end })
			x := slices.Clone(g.centreOf(k))
			for l := range n {
				word := mix(g.key + (number+1+uint64(l/2))*step)
				z := g.normals.normal(uint32(word >> (32 * (l % 2))))
				for j := range x {
					x[j] += float64(z * g.rootOf(k)[j*n+l])
				}
			}
			if codes[i] != g.class[k] {
				t.Fatalf("n=%d, point %d: class %d; centre %d has %d", n, i, codes[i], k, g.class[k])
			}
			for j := range x {
				if want := float32(math.RoundToEven(x[j])); columns[j][i] != want {
					t.Fatalf("n=%d, point %d, coordinate %d: %v, not %v", n, i, j, columns[j][i], want)
				}
			}
		}
	}
}

// TestGeometry checks centres, classes, shares and plane against the definition.
func TestGeometry(t *testing.T) {
	const x = 3
	positive := 0
	for seed := range uint64(50) {
		g := mustNew(t, Config{Features: 6, Seed: seed, Separability: Expansion(x)})
		w, gamma := g.w, g.gamma
		if gamma < -5 || gamma >= 5 || slices.Min(w) < -2 || slices.Max(w) >= 2 {
			t.Errorf("seed %d: plane %v, %v", seed, w, gamma)
		}
		if lo, hi := slices.Min(g.roots), slices.Max(g.roots); lo < 0 || lo > 0.05 || hi >= 2*x || hi < 2*x-0.05 {
			t.Errorf("seed %d: roots from %v to %v", seed, lo, hi)
		}
		var total float64
		for k, share := range g.share {
			total += share
			c := g.centreOf(k)
			var value float64
			for j := range c {
				if c[j] != math.Trunc(c[j]) || math.Abs(c[j]) > 50 {
					t.Errorf("seed %d: centre %v", seed, c)
				}
				value += c[j] * w[j]
			}
			if (value-gamma >= 0) != (g.class[k] == 1) {
				t.Errorf("seed %d: centre %d is of class %d at %v", seed, k, g.class[k], value-gamma)
			}
			positive += int(g.class[k])
		}
		if math.Abs(total-1) > 1e-12 {
			t.Errorf("seed %d: shares add up to %v", seed, total)
		}
	}
	if positive < 400 || positive > 600 {
		t.Errorf("%d of 1000 centres are of class 1", positive)
	}
}

// TestClusters compares shares, means and covariances of the clusters as found
// in the points with c, R'R and the shares.
func TestClusters(t *testing.T) {
	const n, rows = 4, 400_000
	g := mustNew(t, Config{Features: n, Seed: 2, Separability: Expansion(4)})
	columns, codes := points(g, Train, 0, rows)
	var count [centres]float64
	var sum [centres][n]float64
	var square [centres][n][n]float64
	perPoint := uint64(1 + (n+1)/2)
	for i := range codes {
		word := wordsAt(g.key, quarterTrain+uint64(i)*perPoint)
		k := g.pick(word.next())
		count[k]++
		for a := range n {
			x := float64(columns[a][i]) - g.centreOf(k)[a]
			sum[k][a] += x
			for b := range n {
				square[k][a][b] += x * (float64(columns[b][i]) - g.centreOf(k)[b])
			}
		}
	}
	// Five standard deviations: one false alarm in 200,000 seeds for all 300
	// numbers together.
	const sigmas = 5
	for k := range centres {
		if d := count[k] - rows*g.share[k]; math.Abs(d) > sigmas*math.Sqrt(rows*g.share[k]) {
			t.Errorf("centre %d has %v points, not %v", k, count[k], rows*g.share[k])
		}
		if count[k] < 100 {
			continue
		}
		root := g.rootOf(k) // R', in rows
		covariance := func(a, b int) float64 {
			v := dot(root[a*n:][:n], root[b*n:][:n])
			if a == b {
				v += 1. / 12 // rounding
			}
			return v
		}
		for a := range n {
			if mean, want := sum[k][a]/count[k], math.Sqrt(covariance(a, a)/count[k]); math.Abs(mean) > sigmas*want {
				t.Errorf("centre %d, coordinate %d: mean off by %v; standard error %v", k, a, mean, want)
			}
			for b := range n {
				got, want := square[k][a][b]/count[k], covariance(a, b)
				se := math.Sqrt((covariance(a, a)*covariance(b, b) + want*want) / count[k])
				if math.Abs(got-want) > sigmas*se {
					t.Errorf("centre %d: covariance %d, %d is %v, not %v; standard error %v", k, a, b, got, want, se)
				}
			}
		}
	}
}

func TestIntegers(t *testing.T) {
	for _, cfg := range []Config{
		{Features: 10, Seed: 1, Separability: Easy},
		{Features: 1, Seed: 1, Separability: Expansion(maxReach)},
		{Features: 3, Seed: 1, Separability: Expansion(1e-9)},
	} {
		columns, _ := points(mustNew(t, cfg), Train, 0, 20_000)
		for _, column := range columns {
			for _, x := range column {
				v := float64(x)
				if v != math.Trunc(v) || math.Abs(v) >= 1<<24 || (x == 0 && math.Signbit(v)) {
					t.Fatalf("%+v: coordinate %v", cfg, v)
				}
			}
		}
	}
}

// TestStreamsDiffer: no point of the test set or of another seed is among the training
// points, but the clusters of both streams are the same, so that their class shares
// agree.
func TestStreamsDiffer(t *testing.T) {
	const n, rows = 10, 50_000
	g := mustNew(t, Config{Features: n, Seed: 1})
	row := func(columns [][]float32, i int) (x [n]float32) {
		for j := range x {
			x[j] = columns[j][i]
		}
		return x
	}
	seen := make(map[[n]float32]bool, rows)
	columns, train := points(g, Train, 0, rows)
	for i := range rows {
		seen[row(columns, i)] = true
	}
	if len(seen) < rows-5 {
		t.Errorf("%d of %d training points differ", len(seen), rows)
	}
	columns, test := points(g, Test, 0, rows)
	other, _ := points(mustNew(t, Config{Features: n, Seed: 2}), Train, 0, rows)
	for i := range rows {
		if seen[row(columns, i)] {
			t.Errorf("test point %d is a training point", i)
		}
		if seen[row(other, i)] {
			t.Errorf("point %d of seed 2 is one of seed 1", i)
		}
	}
	var a, b float64
	for i := range rows {
		a += float64(train[i]) / rows
		b += float64(test[i]) / rows
	}
	if math.Abs(a-b) > 0.015 {
		t.Errorf("class 1 has %v of the training and %v of the test points", a, b)
	}
}

// psvm solves (I/ν + E'E)[w; γ] = E'De with gonum, for ν = 0.1. It returns the share of
// its own points and of others that sign(x'w − γ) gets right.
func psvm(t testing.TB, g *Generator, rows int) (train, test float64) {
	t.Helper()
	const nu = 0.1
	n := g.Features()
	s := g.NewSampler()
	h, rhs := mat.NewSymDense(n+1, nil), mat.NewVecDense(n+1, nil)
	e := make([]float64, n+1)
	each := func(stream Stream, visit func(d float64)) {
		const block = 10_000
		for first := 0; first < rows; first += block {
			b := s.Block(stream, int64(first), min(block, rows-first))
			for i, code := range b.Codes {
				for j := range n {
					e[j] = b.Columns[j].At(i)
				}
				e[n] = -1
				visit(float64(2*code - 1))
			}
		}
	}
	raw := h.RawSymmetric()
	each(Train, func(d float64) {
		for i, v := range e {
			rhs.RawVector().Data[i] += d * v
			for j := i; j <= n; j++ {
				raw.Data[i*raw.Stride+j] += v * e[j]
			}
		}
	})
	for i := range n + 1 {
		raw.Data[i*raw.Stride+i] += 1 / nu
	}
	var chol mat.Cholesky
	var plane mat.VecDense
	if !chol.Factorize(h) {
		t.Fatal("I/ν + E'E is not positive definite")
	}
	if err := chol.SolveVecTo(&plane, rhs); err != nil {
		t.Fatal(err)
	}
	correct := func(stream Stream) (share float64) {
		each(stream, func(d float64) {
			if (dot(e, plane.RawVector().Data) >= 0) == (d > 0) {
				share += 1 / float64(rows)
			}
		})
		return share
	}
	return correct(Train), correct(Test)
}

// TestFungTable24 compares the default seed with the figures of Fung 2003, table 2.4, by an
// independent solution: 90 to 91 % and 70 %.
func TestFungTable24(t *testing.T) {
	for _, c := range []struct {
		s      Separability
		lo, hi float64
	}{{Easy, 0.90, 0.915}, {Hard, 0.69, 0.71}} {
		train, test := psvm(t, mustNew(t, Config{Features: 10, Seed: 1, Separability: c.s}), 200_000)
		t.Logf("%s: training correctness %.4f, test correctness %.4f", c.s, train, test)
		if min(train, test) < c.lo || max(train, test) > c.hi {
			t.Errorf("%s: training correctness %.4f, test correctness %.4f, not in [%v, %v]", c.s, train, test, c.lo, c.hi)
		}
	}
}

// TestAnySeed checks the figures for any seed and number of features.
func TestAnySeed(t *testing.T) {
	const rows = 20_000
	check := func(n int, seed uint64) {
		for _, s := range []Separability{Easy, Hard} {
			g := mustNew(t, Config{Features: n, Seed: seed, Separability: s})
			// 20,000 points for n weights fit them a little too well, and one
			// point in 100 is three standard deviations.
			train, test := psvm(t, g, rows)
			if mean := (train + test) / 2; math.Abs(mean-s.correctness) > 0.01 {
				t.Errorf("n=%d, seed %d, %s: correctness %.4f, not %.3f, at expansion factor %v", n, seed, s, mean, s.correctness, g.Expansion())
			}
		}
	}
	for seed := uint64(2); seed < 30; seed++ {
		check(10, seed)
	}
	for _, n := range []int{1, 2, 3, 5, 32, 64} {
		check(n, 1)
	}
}

// trueSeparability is the share of the first points of a stream that lie on their
// centre's side of the plane. Musicant's program prints it.
func trueSeparability(g *Generator, stream Stream, points int) float64 {
	b := g.NewSampler().Block(stream, 0, points)
	x := make([]float64, g.n)
	right := 0
	for i, code := range b.Codes {
		for j := range x {
			x[j] = b.Columns[j].At(i)
		}
		if (dot(x, g.w) >= g.gamma) == (code == 1) {
			right++
		}
	}
	return float64(right) / float64(points)
}

// TestTrueSeparability computes the figure in a second way, from the shares and the normal
// distribution.
func TestTrueSeparability(t *testing.T) {
	for _, x := range []float64{1, 10} {
		g := mustNew(t, Config{Features: 10, Seed: 1, Separability: Expansion(x)})
		w, gamma := g.w, g.gamma
		var want float64
		for k, share := range g.share {
			across := mat.NewVecDense(10, nil)
			across.MulVec(mat.NewDense(10, 10, g.rootOf(k)).T(), mat.NewVecDense(10, w))
			spread := math.Sqrt(mat.Dot(across, across) + dot(w, w)/12)
			margin := math.Abs(dot(g.centreOf(k), w) - gamma)
			want += share * 0.5 * math.Erfc(-margin/spread/math.Sqrt2)
		}
		const rows = 100_000
		if got := trueSeparability(g, Train, rows); math.Abs(got-want) > 5*math.Sqrt(0.25/rows) {
			t.Errorf("expansion factor %v: true separability %v, not %v", x, got, want)
		}
	}
}

func TestBlock(t *testing.T) {
	g := mustNew(t, Config{Features: 3, Seed: 1})
	s := g.NewSampler()
	for _, rows := range []int{1000, 10, 0, 2000} {
		b := s.Block(Train, 7, rows)
		columns, codes := points(g, Train, 7, rows)
		if b.Rows() != rows || len(b.Columns) != 3 || !slices.Equal(b.Codes, codes) || !slices.Equal(b.Classes, []string{"-1", "1"}) {
			t.Fatalf("a block of %d rows: %d rows, %d columns, classes %v", rows, b.Rows(), len(b.Columns), b.Classes)
		}
		for j, c := range b.Columns {
			if c.Len() != rows {
				t.Fatalf("column %d has %d of %d rows", j, c.Len(), rows)
			}
			for i := range rows {
				if c.At(i) != float64(columns[j][i]) {
					t.Fatalf("row %d, column %d: %v, not %v", i, j, c.At(i), columns[j][i])
				}
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { s.Block(Test, 0, 2000) }); n != 0 {
		t.Errorf("a block in memory already there allocates %v times", n)
	}
}

func TestRefusedConfigurations(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Features: 0}, "0 features: 1 to 4096"},
		{Config{Features: MaxFeatures + 1}, "4097 features: 1 to 4096"},
		{Config{Features: 10, Separability: Expansion(-1)}, "expansion factor -1"},
		{Config{Features: 10, Separability: Expansion(math.NaN())}, "expansion factor NaN"},
		{Config{Features: 10, Separability: Expansion(maxReach)}, "at most 104857.6"},
		{Config{Features: MaxCalibrated + 1, Separability: Easy}, "give it as a number"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %q", c.cfg, err, c.want)
		}
	}
}

func TestParseSeparability(t *testing.T) {
	for text, want := range map[string]Separability{
		"easy": Easy, "hard": Hard, "10": Expansion(10), "2.5": Expansion(2.5), "1e2": Expansion(100),
	} {
		got, err := ParseSeparability(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := ParseSeparability(got.String()); err != nil || again != got {
			t.Errorf("%s, written as %s, reads as %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "Easy", "0", "-1", "nan", "inf", "1e999", "10 "} {
		if got, err := ParseSeparability(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	if got := (Separability{}).String(); got != "10" {
		t.Errorf("the zero value is %s", got)
	}
}

func TestCallersBugsPanic(t *testing.T) {
	g := mustNew(t, Config{Features: 2, Seed: 1})
	s := g.NewSampler()
	columns, codes := buffers(2, 5)
	for name, call := range map[string]func(){
		"too few columns": func() { s.Fill(columns[:1], codes, Train, 0) },
		"short column":    func() { s.Fill([][]float32{columns[0], columns[1][:4]}, codes, Train, 0) },
		"negative first":  func() { s.Fill(columns, codes, Train, -1) },
		"past the end":    func() { s.Fill(columns, codes, Train, MaxPoints-4) },
		"unknown stream":  func() { s.Fill(columns, codes, Test+1, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
	s.Fill(columns, codes, Train, MaxPoints-5)
}

func ExampleNew() {
	g, err := New(Config{Features: 10, Separability: Hard, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	b := g.NewSampler().Block(Train, 0, 20_000)
	fmt.Println(b.Rows(), "rows at expansion factor", g.Expansion())
	// Output:
	// 20000 rows at expansion factor 34.695
}

// A drift has the points of the two seeds, each in its place, and as many of the second as its
// probability says. Ranges change nothing.
func TestDrift(t *testing.T) {
	const rows, first, last = 10_000, 2_000, 8_000
	own := mustNew(t, Config{Features: 3, Seed: 4})
	next := mustNew(t, Config{Features: 3, Seed: 5})
	drift := mustNew(t, Config{Features: 3, Seed: 4, Drift: Drift{first, last}})
	for _, stream := range []Stream{Train, Test} {
		columns, codes := points(drift, stream, 0, rows)
		ownColumns, ownCodes := points(own, stream, 0, rows)
		nextColumns, nextCodes := points(next, stream, 0, rows)
		same := func(i int, columns2 [][]float32, codes2 []int32) bool {
			for j := range columns {
				if columns[j][i] != columns2[j][i] {
					return false
				}
			}
			return codes[i] == codes2[i]
		}
		var early, late int // points of the next seed in either half of the drift
		for i := range rows {
			isOwn, isNext := same(i, ownColumns, ownCodes), same(i, nextColumns, nextCodes)
			switch {
			case !isOwn && !isNext, i < first && !isOwn, i >= last && !isNext:
				t.Fatalf("stream %d: point %d is of neither seed, or of the wrong one", stream, i)
			case !isOwn && i < (first+last)/2:
				early++
			case !isOwn && i < last:
				late++
			}
		}
		// A quarter and three quarters of 3000; the standard deviation is below 24.
		if early < 650 || early > 850 || late < 2150 || late > 2350 {
			t.Errorf("stream %d: %d and %d of 3000 points are of the next seed", stream, early, late)
		}
		sampler := drift.NewSampler()
		for at := 0; at < rows; at += 777 {
			b := sampler.Block(stream, int64(at), min(777, rows-at))
			for i := range b.Codes {
				if b.Codes[i] != codes[at+i] || float32(b.Columns[2].At(i)) != columns[2][at+i] {
					t.Fatalf("stream %d: point %d depends on its range", stream, at+i)
				}
			}
		}
	}
	for _, bad := range []Drift{{-1, 5}, {5, 5}, {7, 5}, {0, MaxPoints + 1}} {
		if _, err := New(Config{Features: 3, Drift: bad}); err == nil {
			t.Errorf("a drift of %v is taken", bad)
		}
	}
	var read Drift
	if err := read.UnmarshalText([]byte("1000:2000")); err != nil || read != (Drift{1000, 2000}) {
		t.Errorf("%v, %v", read, err)
	}
	for _, bad := range []string{"", "5", "1:x", "1:2:3", "7:5", ":5"} {
		if err := new(Drift).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("the drift %q is taken", bad)
		}
	}
}
