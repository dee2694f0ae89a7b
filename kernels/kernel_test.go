package kernels

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"streamd/incremental/gram"
)

func must(k Kernel, err error) Kernel {
	if err != nil {
		panic(err)
	}
	return k
}

// everyKernel has each form, with parameters that do not saturate for points of ordinary
// size.
var everyKernel = []Kernel{
	Linear(),
	must(Gaussian(0.07)),
	must(Polynomial(0.3, 1, 1)),
	must(Polynomial(-0.2, 0.5, 7)),
	must(Sigmoid(0.05, -0.2)),
}

func anyKernel(t *rapid.T) Kernel {
	number := rapid.Float64Range(-1e300, 1e300)
	nonzero := number.Filter(func(x float64) bool { return x != 0 })
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 1:
		return must(Gaussian(rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64).Draw(t, "gamma")))
	case 2:
		return must(Polynomial(nonzero.Draw(t, "a"), number.Draw(t, "b"), rapid.IntRange(1, MaxDegree).Draw(t, "degree")))
	case 3:
		return must(Sigmoid(nonzero.Draw(t, "a"), number.Draw(t, "b")))
	}
	return Linear()
}

func TestTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := anyKernel(t)
		again, err := Parse(k.String())
		if err != nil || again != k {
			t.Fatalf("%v is read back as %v, %v", k, again, err)
		}
	})
}

func TestTextForms(t *testing.T) {
	for text, want := range map[string]Kernel{
		"linear":                         Linear(),
		"gaussian(gamma=0.0078125)":      must(Gaussian(1. / 128)),
		"polynomial(a=1,b=1,degree=3)":   must(Polynomial(1, 1, 3)),
		"polynomial(a=-1,b=0,degree=32)": must(Polynomial(-1, math.Copysign(0, -1), 32)),
		"sigmoid(a=0.01,b=-1)":           must(Sigmoid(0.01, -1)),
	} {
		if got := want.String(); got != text {
			t.Errorf("%v is written %s, not %s", want, got, text)
		}
		var read struct{ Kernel Kernel }
		if err := json.Unmarshal([]byte(`{"kernel":"`+text+`"}`), &read); err != nil || read.Kernel != want {
			t.Errorf("%s is read from JSON as %v, %v", text, read.Kernel, err)
		}
	}
	if k, err := Parse("gaussian(gamma=+50.0e-2)"); err != nil || k != must(Gaussian(0.5)) {
		t.Errorf("another way to write a number: %v, %v", k, err)
	}
}

// A name without parameters is a kernel of so many features; a text of Parse is the same for all.
func TestNamesAreKernelsOfFeatures(t *testing.T) {
	for text, want := range map[string]Kernel{
		"polynomial":                     must(Polynomial(1./7, 1, 3)),
		"sigmoid":                        must(Sigmoid(1./7, 0)),
		"gaussian":                       must(Gaussian(1)),
		"linear":                         Linear(),
		"polynomial(a=0.5,b=0,degree=2)": must(Polynomial(0.5, 0, 2)),
		"gaussian(gamma=0.25)":           must(Gaussian(0.25)),
	} {
		k, auto, err := ParseFor(text, 7)
		if err != nil || k != want || auto != (text == "gaussian") {
			t.Errorf("%s is %v, %v, %v, not %v", text, k, auto, err, want)
		}
	}
	for _, text := range []string{"", "none", "rbf", "gaussian()", "sigmoid(a=1)"} {
		if k, _, err := ParseFor(text, 7); err == nil {
			t.Errorf("%q is read as %v", text, k)
		}
	}
}

func TestTextThatIsRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"":                                      "the kernels are",
		"rbf":                                   "the kernels are",
		"Linear":                                "the kernels are",
		"linear()":                              "no parameters",
		"linear(a=1)":                           "no parameters",
		"gaussian":                              "gamma=number is wanted",
		"gaussian(gamma=1":                      "closing parenthesis",
		"gaussian(gamma=1))":                    `"gamma=1)"`,
		"gaussian(gamma=1,)":                    "where it has \"gamma=1,\"",
		"gaussian(gamma=1,b=2)":                 `"b=2" is in excess`,
		"gaussian(gamma=0)":                     "not a positive number",
		"gaussian(gamma=-1)":                    "not a positive number",
		"gaussian(gamma=inf)":                   "gamma=number is wanted",
		"gaussian(gamma=1e999)":                 "fits a float64",
		"gaussian(gamma=0x1p-7)":                "gamma=number is wanted",
		"gaussian(gamma=1_0)":                   "gamma=number is wanted",
		"gaussian( gamma=1)":                    "gamma=number is wanted",
		"gaussian(mu=1)":                        "gamma=number is wanted",
		"polynomial(a=1,degree=3,b=1)":          "b=number is wanted",
		"polynomial(a=1,b=1,degree=2.5)":        "not a whole number",
		"polynomial(a=1,b=1,degree=0)":          "degree is 0",
		"polynomial(a=1,b=1,degree=33)":         "degree is 33",
		"polynomial(a=0,b=1,degree=3)":          "a is 0",
		"sigmoid(a=1)":                          "b=number is wanted",
		"sigmoid(a=1,b=)":                       "b: \"\" is not a number",
		"gaussian(gamma=1)\n":                   "closing parenthesis",
		"polynomial(a=1,b=1,degree=3,degree=3)": "in excess",
	} {
		k, err := Parse(text)
		if err == nil {
			t.Errorf("%q is read as %v", text, k)
			continue
		}
		if !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: the error is %q, without %q", text, err, reason)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, k := range everyKernel {
		f.Add(k.String())
	}
	f.Add("gaussian(gamma=1,)")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(k.String()); err != nil || again != k {
			t.Fatalf("%q is read as %v, and that as %v, %v", text, k, again, err)
		}
	})
}

func TestParametersThatAreRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, gamma := range []float64{0, -1, nan, inf} {
		if _, err := Gaussian(gamma); err == nil {
			t.Errorf("gamma %v is taken", gamma)
		}
	}
	for _, p := range [][2]float64{{0, 1}, {nan, 1}, {inf, 1}, {1, nan}, {1, -inf}} {
		if _, err := Polynomial(p[0], p[1], 2); err == nil {
			t.Errorf("a polynomial of %v is taken", p)
		}
		if _, err := Sigmoid(p[0], p[1]); err == nil {
			t.Errorf("a sigmoid of %v is taken", p)
		}
	}
}

// The values agree with the formulas in terms of the standard library.
func TestValuesAreThoseOfTheFormulas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		x, z := point(r, 5), point(r, 5)
		var inner, square float64
		for j := range x {
			inner += x[j] * z[j]
			square += (x[j] - z[j]) * (x[j] - z[j])
		}
		want := []float64{
			inner,
			math.Exp(-0.07 * square),
			0.3*inner + 1,
			math.Pow(-0.2*inner+0.5, 7),
			math.Tanh(0.05*inner - 0.2),
		}
		for i, k := range everyKernel {
			got := k.Value(k.Argument(x, z))
			if math.Abs(got-want[i]) > 1e-12*(1+math.Abs(want[i])) {
				t.Fatalf("%v: %v, not %v", k, got, want[i])
			}
		}
	}
}

func point(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for j := range x {
		x[j] = r.NormFloat64()
	}
	return x
}

// Derivatives with respect to z agree with finite differences of fourth order.
func TestDerivativesAreThoseOfFiniteDifferences(t *testing.T) {
	const h = 1e-3
	r := rand.New(rand.NewPCG(2, 2))
	for _, k := range everyKernel {
		for range 200 {
			x, z := point(r, 4), point(r, 4)
			_, slope := k.ValueAndDerivative(k.Argument(x, z))
			for j := range z {
				analytic := slope * x[j]
				if k.Radial() {
					analytic = slope * 2 * (z[j] - x[j])
				}
				at := func(step float64) float64 {
					moved := append([]float64(nil), z...)
					moved[j] += step
					return k.Value(k.Argument(x, moved))
				}
				numeric := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
				if math.Abs(numeric-analytic) > 1e-8*(1+math.Abs(analytic)) {
					t.Fatalf("%v at x=%v z=%v: ∂/∂z%d is %v, by differences %v", k, x, z, j, analytic, numeric)
				}
			}
		}
	}
}

func TestMedianGamma(t *testing.T) {
	// The squared distances are 1, 4 and 9. The duplicate's distance of 0 does not count.
	line := gram.ColumnOf([]float32{0, 1, 3, 3})
	gamma, err := MedianGamma([]gram.Column{line})
	if err != nil || gamma != 1./4 {
		t.Errorf("gamma is %v, %v", gamma, err)
	}
	for _, columns := range [][]gram.Column{
		{gram.ColumnOf([]int8{7, 7, 7})},
		{gram.ColumnOf([]int8{7})},
		{gram.ColumnOf([]int8{})},
		nil,
	} {
		if gamma, err := MedianGamma(columns); !errors.Is(err, ErrOnePoint) {
			t.Errorf("%d columns without a distance: %v, %v", len(columns), gamma, err)
		}
	}
	// For n standard normals ‖x−x'‖²/2 is χ² with n degrees of freedom, with a median
	// of about n(1−2/(9n))³. Distances that are c times as long give γ/c².
	r := rand.New(rand.NewPCG(3, 3))
	const n, m = 20, 5000
	columns, wider := make([]gram.Column, n), make([]gram.Column, n)
	for j := range columns {
		v := point(r, m)
		columns[j] = gram.ColumnOf(v)
		w := make([]float64, m)
		for i := range w {
			w[i] = 4 * v[i]
		}
		wider[j] = gram.ColumnOf(w)
	}
	want := 1 / (2 * n * math.Pow(1-2./(9*n), 3))
	gamma, err = MedianGamma(columns)
	if err != nil || math.Abs(gamma/want-1) > 0.05 {
		t.Errorf("gamma of normals is %v, not about %v, %v", gamma, want, err)
	}
	if g, err := MedianGamma(wider); err != nil || g != gamma/16 {
		t.Errorf("gamma of points four times as far apart is %v, not %v, %v", g, gamma/16, err)
	}
}
