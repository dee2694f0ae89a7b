package model

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/kernels"
)

// A classifier that was written and read back agrees with the sum over the points.
func TestClassifyIsTheSumOverThePoints(t *testing.T) {
	const n, points, rows = 3, 5, 2*mapRows + 7
	differ := 0 // classifiers whose labels depend on the rule
	r := rand.New(rand.NewPCG(1, 1))
	normal := func(m int) []float64 {
		x := make([]float64, m)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return x
	}
	for _, text := range []string{"linear", "gaussian(gamma=0.3)", "polynomial(a=0.5,b=1,degree=3)", "sigmoid(a=0.2,b=-0.1)"} {
		for form := range 4 {
			classes, projected := [][]string{{"a", "b"}, {"a", "b", "c"}}[form%2], form >= 2
			kernel, err := kernels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			m, err := kernels.NewMap(kernel, n, normal(points*n))
			if err != nil {
				t.Fatal(err)
			}
			mean, scale := normal(n), []float64{0.5, 3, 7}
			if m, err = m.Scaled(mean, scale); err != nil {
				t.Fatal(err)
			}
			size, projection := points, []float64(nil)
			if projected {
				size, projection = 2, normal(2*points)
				if m, err = m.Projected(projection); err != nil {
					t.Fatal(err)
				}
			}
			var planes []incremental.Plane
			for _, class := range classes[firstOf(classes):] {
				planes = append(planes, incremental.Plane{Class: class, W: normal(size), Gamma: r.NormFloat64()})
			}
			text, err := json.Marshal(NewBasisJSON(m, config.RegulariserIdentity))
			if err != nil {
				t.Fatal(err)
			}
			var basis BasisJSON
			if err := json.Unmarshal(text, &basis); err != nil {
				t.Fatal(err)
			}
			c, err := New([]string{"x", "y", "z"}, classes, planes, &basis)
			if err != nil {
				t.Fatal(err)
			}
			var columns []gram.Column
			for range n {
				columns = append(columns, gram.ColumnOf(normal(rows)))
			}
			class, values := make([]int32, rows), make([]float64, rows*len(planes))
			c.Classify(class, values, columns)
			x := make([]float64, n)
			for i := range rows {
				for j := range x {
					x[j] = (columns[j].At(i) - mean[j]) / scale[j]
				}
				var want []float64
				for _, p := range planes {
					value := -p.Gamma
					for i := range points {
						u := p.W[i%size]
						if projected {
							u = p.W[0]*projection[i] + p.W[1]*projection[points+i]
						}
						value += u * kernel.Value(kernel.Argument(x, m.Point(i)))
					}
					want = append(want, value)
				}
				for p := range want {
					if got := values[i*len(planes)+p]; !(math.Abs(got-want[p]) < 1e-9*(1+math.Abs(want[p]))) {
						t.Fatalf("%s: row %d, plane %d: %v instead of %v", kernel, i, p, got, want[p])
					}
				}
				best := 0
				if len(want) == 1 && want[0] >= 0 {
					best = 1
				} else if len(want) > 1 {
					best = slices.Index(want, slices.Max(want))
				}
				if int(class[i]) != best {
					t.Fatalf("%s: row %d is of class %d, not %d", kernel, i, class[i], best)
				}
			}
			// Another rule decides by the same values.
			var curves []calibration.Curve
			for p := range planes {
				curves = append(curves, calibration.Sigmoid{A: -1 - float64(p), B: 2})
			}
			c.Rule = decision.ByProbability(curves)
			by, same := make([]int32, rows), make([]float64, len(values))
			c.Classify(by, same, columns)
			want := make([]int32, rows)
			c.Rule.Decide(want, values)
			if !slices.Equal(by, want) || !slices.Equal(same, values) {
				t.Fatalf("%s: the rule does not decide by the values", kernel)
			}
			if !slices.Equal(by, class) {
				differ++
			}
		}
	}
	if differ < 8 {
		t.Errorf("of 16 classifiers %d have other labels by probability than by value", differ)
	}
}

func TestNewRefuses(t *testing.T) {
	kernel := kernels.Linear()
	plane := func(w ...float64) []incremental.Plane { return []incremental.Plane{{Class: "b", W: w}} }
	two, x := []string{"a", "b"}, []string{"x", "y"}
	for reason, try := range map[string]func() (*Classifier, error){
		"1 classes":                 func() (*Classifier, error) { return New(x, two[:1], plane(1, 2), nil) },
		"1 planes for 3 classes":    func() (*Classifier, error) { return New(x, []string{"a", "b", "c"}, plane(1, 2), nil) },
		"class \"b\" twice":         func() (*Classifier, error) { return New(x, []string{"b", "b"}, plane(1, 2), nil) },
		"plane 1 is of class \"b\"": func() (*Classifier, error) { return New(x, []string{"b", "a"}, plane(1, 2), nil) },
		"no features":               func() (*Classifier, error) { return New(nil, two, plane(), nil) },
		"1 weights for 2 features":  func() (*Classifier, error) { return New(x, two, plane(1), nil) },
		"2 weights for 1 coordinates of": func() (*Classifier, error) {
			return New(x, two, plane(1, 2), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}}})
		},
		"point 2 has 1 numbers": func() (*Classifier, error) {
			return New(x, two, plane(1, 2), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}, {1}}})
		},
		"2 weights for 1 coordinates": func() (*Classifier, error) {
			return New(x, two, plane(1, 2), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}, {3, 4}}, Projection: [][]float64{{1, 2}}})
		},
		"coordinate 2 has 1 numbers for 2 points": func() (*Classifier, error) {
			return New(x, two, plane(1, 2), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}, {3, 4}}, Projection: [][]float64{{1, 2}, {1}}})
		},
		"6 numbers do not project 2 points": func() (*Classifier, error) {
			return New(x, two, plane(1, 2), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}, {3, 4}}, Projection: [][]float64{{1, 2}, {1, 2}, {1, 2}}})
		},
		"0 numbers do not project 1 points": func() (*Classifier, error) {
			return New(x, two, plane(1), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}}, Projection: [][]float64{}})
		},
		"basis: 0 numbers are": func() (*Classifier, error) { return New(x, two, plane(), &BasisJSON{Kernel: kernel}) },
		"basis: 1 means and 0 scales": func() (*Classifier, error) {
			return New(x, two, plane(1), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}}, Mean: []float64{1}})
		},
		"scaled by mean 1 and deviation 0": func() (*Classifier, error) {
			return New(x, two, plane(1), &BasisJSON{Kernel: kernel, Points: [][]float64{{1, 2}}, Mean: []float64{1, 1}, Scale: []float64{0, 1}})
		},
	} {
		if c, err := try(); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("want %q, got %v, %v", reason, c, err)
		}
	}
}

func firstOf(classes []string) int {
	if len(classes) == 2 {
		return 1
	}
	return 0
}
