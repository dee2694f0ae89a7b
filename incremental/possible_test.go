package incremental

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"streamd/incremental/gram"
)

// Sums of rows are possible, however ill-conditioned their matrix is: fewer rows than
// features, constant and repeated features, one-hot rows, far from zero, of any scale, of
// many rows, and with weights.
func TestSumsOfRowsArePossible(t *testing.T) {
	const seed = 41
	r := rand.New(rand.NewPCG(seed, seed))
	scales := []float64{0x1p-149, 1e-20, 1, 1e20, 0x1.fffffep127}
	tries := 0
	for range 400 {
		tries++
		m, n, k := 1+r.IntN(60), 1+r.IntN(12), 1+r.IntN(3)
		if r.IntN(20) == 0 {
			m = 5000
		}
		b := &Block{Classes: DefaultFeatures(k)}
		for range m {
			b.Codes = append(b.Codes, int32(r.IntN(k)))
		}
		if r.IntN(3) == 0 {
			for range m {
				b.Weights = append(b.Weights, []float64{0, 0x1p-40, 0.3, 1, 0x1p40}[r.IntN(5)])
			}
		}
		var columns [][]float64
		for j := range n {
			x := make([]float64, m)
			kind, scale, offset := r.IntN(5), scales[r.IntN(len(scales))], 1e6*r.NormFloat64()
			for i := range x {
				switch {
				case kind == 0:
					x[i] = float64(r.IntN(2)) // one-hot
				case kind == 1:
					x[i] = offset
				case kind == 2 && j > 0:
					x[i] = columns[r.IntN(j)][i] + offset // hardly independent of the others
				case kind == 3:
					x[i] = offset + r.NormFloat64()
				default:
					x[i] = math.Copysign(scale, r.NormFloat64())
				}
			}
			if kind == 2 && j > 0 {
				copy(x, columns[r.IntN(j)])
			}
			columns = append(columns, x)
			b.Columns = append(b.Columns, gram.ColumnOf(x))
		}
		if b.FirstBadRow() != nil {
			continue
		}
		if err := summarise(t, b).Possible(context.Background()); err != nil {
			t.Fatalf("seed %d, try %d: %d rows of %d features: %v", seed, tries, m, n, err)
		}
	}
}

// Sums that no rows have are found out, each by its reason.
func TestImpossibleSums(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *Summary)
		want  string
	}{
		"negative square":      {func(s *Summary) { s.classes[0].cross[gram.PackedLen(1)+1] *= -1 }, "the sum of squares of feature 1 is -"},
		"not semidefinite":     {func(s *Summary) { s.classes[0].cross[gram.PackedLen(2)+1] *= 1 + 1e-9 }, "not positive semidefinite at feature 2"},
		"sum too large":        {func(s *Summary) { s.classes[0].s[0] = 1e6 }, "not positive semidefinite at feature 0"},
		"product of a zero":    {func(s *Summary) { s.classes[0].cross[gram.PackedLen(2)+2] = 0 }, "feature 2 are not 0"},
		"sum of a zero":        {func(s *Summary) { zeroFeature(s, 1); s.classes[0].s[1] = 1 }, "feature 1 are not 0"},
		"weight too large":     {func(s *Summary) { s.classes[0].weight = 0x1p60 }, "the sum of the weights"},
		"weight too small":     {func(s *Summary) { s.classes[0].weight = 0x1p-60 }, "the sum of the weights"},
		"weight is not a sum":  {func(s *Summary) { s.classes[0].weight = math.NaN() }, "the sum of the weights"},
		"too many rows":        {func(s *Summary) { s.classes[0].rows = 1 << 31 }, "it has 2147483648 rows"},
		"origin out of range":  {func(s *Summary) { s.origin[0] = 0x1p128 }, "origin"},
		"negative zero":        {func(s *Summary) { zeroFeature(s, 1); s.classes[0].s[1] = math.Copysign(0, -1) }, "−0"},
		"origin −0":            {func(s *Summary) { s.origin[0] = math.Copysign(0, -1) }, "origin"},
		"fewer squares than s": {func(s *Summary) { s.classes[0].rows, s.classes[0].weight = 1, 1 }, "not positive semidefinite"},
	} {
		s := summarise(t, dependent().block(0, 8))
		if err := s.Possible(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.spoil(s)
		if err := s.Possible(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	ended, end := context.WithCancelCause(context.Background())
	why := errors.New("no time")
	end(why)
	wide := summarise(t, randomTable(rand.New(rand.NewPCG(42, 42)), 80, 70, 1).block(0, 80))
	if err := wide.Possible(ended); !errors.Is(err, why) {
		t.Errorf("after the end: %v", err)
	}
}

// dependent is rows of one class whose third feature is twice the second: no correlation
// may be larger.
func dependent() table {
	r := rand.New(rand.NewPCG(43, 43))
	t := table{}
	for range 8 {
		x := r.NormFloat64()
		t.x, t.label = append(t.x, []float64{r.NormFloat64(), x, 2 * x}), append(t.label, "1")
	}
	return t
}

// zeroFeature makes the sums those of rows of which all have the origin as their feature j.
func zeroFeature(s *Summary, j int) {
	c := &s.classes[0]
	c.s[j] = 0
	for k := range s.origin {
		c.cross[gram.PackedLen(max(j, k))+min(j, k)] = 0
	}
}
