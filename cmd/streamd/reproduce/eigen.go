package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"streamd/kernels"
	"streamd/kernels/reduce"
)

// eigenTable classifies digits in the leading eigen-subspaces of sampled rows, one against the
// rest, by the 1-norm program (Yajima, Ohi and Mori 2003, tables 1 to 5).
type eigenTable struct {
	sizes []int // S
	rows  []eigenRow
}

// eigenRow is a kernel with a number of rows, and what is published for each size.
type eigenRow struct {
	name    string
	kernel  func(n float64) (kernels.Kernel, error) // for n features
	points  int                                     // L
	cost    float64                                 // C of (3.3), 1/ν
	wrong   []float64                               // of the test rows, in per cent
	seconds []float64                               // nil: not published
	// machines has the test rows that are on the wrong side of the plane of each digit, for
	// each size; nil: not reported.
	machines [][]float64
}

// eigenTolerance is in points. 97 % of 10,000 test rows have a standard error of 0.17, and another
// sample of the rows moves the paper's figures, means of two samples, as ours.
const eigenTolerance = 0.4

func (t eigenTable) run(ctx context.Context, c *Config) ([]Result, error) {
	const name = "MNIST"
	train, test, absent, err := c.openBoth("mnist-train-images-idx3-ubyte", "mnist-t10k-images-idx3-ubyte")
	if err != nil {
		return nil, err
	}
	if absent != "" {
		return []Result{{DataSet: name, Absent: absent, missing: true}}, nil
	}
	for _, s := range []*set{train, test} {
		for _, pixels := range s.columns {
			for i := range pixels {
				pixels[i] = pixels[i]/127.5 - 1
			}
		}
	}
	var results []Result
	for _, row := range t.rows {
		kernel, err := row.kernel(float64(len(train.columns)))
		if err != nil {
			return nil, err
		}
		for i, size := range t.sizes {
			method := fmt.Sprintf("%s, L = %d, S = %d", row.name, row.points, size)
			problem := train.reduction(kernel, size, c.Seed)
			problem.Workers = c.workers()
			problem.Progress = func(s reduce.Stage) {
				c.progress(fmt.Sprintf("%s, %s: digit %s", name, method, train.classes[s.Class]))
			}
			began := time.Now()
			found, err := complete(ctx, reduce.Eigen{Points: row.points, Nu: 1 / row.cost}, problem)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", method, err)
			}
			took := time.Since(began).Seconds()
			result := Result{DataSet: name, Rows: train.rows(), Features: len(train.features), Nu: 1 / row.cost}
			right, err := correctnessOn(test, found, kernel, train.classes)
			if err != nil {
				return nil, err
			}
			r := result
			r.Method, r.Test, r.Seconds = method, &right, took
			published := figures{test: 100 - row.wrong[i], within: eigenTolerance}
			if row.seconds != nil {
				published.seconds = row.seconds[i]
			}
			published.compare(&r)
			results = append(results, r)
			if row.machines == nil {
				continue
			}
			for digit, errors := range row.machines[i] {
				class := strconv.Itoa(digit)
				k := slices.IndexFunc(found.Planes, func(p reduce.Plane) bool { return train.classes[p.Class] == class })
				if k < 0 {
					return nil, fmt.Errorf("%s: no row has the label %s", method, class)
				}
				alone, p := *found, found.Planes[k]
				alone.Planes = []reduce.Plane{{Class: 1, U: p.U, Gamma: p.Gamma}}
				right, err := correctnessOn(test.against(class), &alone, kernel, []string{"-1", "1"})
				if err != nil {
					return nil, err
				}
				r := result
				r.Method, r.Test = method+", "+class, &right
				figures{test: 100 - 100*errors/float64(test.rows()), within: eigenTolerance}.compare(&r)
				results = append(results, r)
			}
		}
	}
	return results, nil
}

// The kernels (4.1) and (4.2).
func powerOf(degree int) func(n float64) (kernels.Kernel, error) {
	return func(n float64) (kernels.Kernel, error) { return kernels.Polynomial(1/n, 0, degree) }
}

func widthOf(gamma float64) func(n float64) (kernels.Kernel, error) {
	return func(n float64) (kernels.Kernel, error) { return kernels.Gaussian(1 / (n * gamma)) }
}

var eigenSizes = []int{100, 200, 400, 600, 800}

const eigenCost = 0.08

var tableYajima2 = eigenTable{eigenSizes, []eigenRow{
	{"d = 7", powerOf(7), 1000, eigenCost, []float64{5.67, 3.99, 3.17, 2.56, 2.49}, []float64{798.0, 1961.8, 6634.4, 15069.0, 27121.6}, nil},
	{"d = 7", powerOf(7), 3000, eigenCost, []float64{5.42, 3.76, 2.73, 2.48, 2.19}, []float64{1074.5, 2263.7, 7367.1, 15746.9, 27763.7}, nil},
	{"d = 8", powerOf(8), 1000, eigenCost, []float64{5.64, 4.06, 3.13, 2.67, 2.53}, nil, nil},
	{"d = 8", powerOf(8), 3000, eigenCost, []float64{5.42, 3.75, 2.74, 2.39, 2.24}, nil, nil},
}}

var tableYajima3 = eigenTable{eigenSizes, []eigenRow{
	{"γ = 0.2", widthOf(0.2), 1000, eigenCost, []float64{5.69, 4.03, 3.19, 2.68, 2.50}, []float64{857.1, 2064.3, 7376.4, 17312.2, 31927.2}, nil},
	{"γ = 0.2", widthOf(0.2), 3000, eigenCost, []float64{5.46, 3.84, 2.78, 2.43, 2.22}, []float64{1176.2, 2506.5, 8367.1, 18804.7, 33108.0}, nil},
	{"γ = 0.4", widthOf(0.4), 1000, eigenCost, []float64{5.89, 4.09, 3.02, 2.63, 2.41}, nil, nil},
	{"γ = 0.4", widthOf(0.4), 3000, eigenCost, []float64{5.78, 3.95, 2.92, 2.48, 2.25}, nil, nil},
}}

var tableYajima5 = eigenTable{eigenSizes, []eigenRow{
	{"d = 7", powerOf(7), 3000, eigenCost, []float64{5.42, 3.76, 2.73, 2.48, 2.19}, []float64{1074.5, 2263.7, 7367.1, 15746.9, 27763.7}, [][]float64{
		{46.5, 34.5, 146, 136, 129.5, 149.5, 88, 116, 243.5, 230},
		{36, 25, 96.5, 105, 96, 105.5, 64.5, 80.5, 137, 180.5},
		{28.5, 20.5, 69, 78.5, 65.5, 69, 43, 72, 91, 135.5},
		{29, 21, 66.5, 65, 57, 48.5, 41, 70, 81.5, 111},
		{27, 20.5, 64.5, 62, 53.5, 46, 38.5, 61.5, 72, 100},
	}},
}}

// tableYajima1 has the costs that the paper tries, for three sizes of five: the others take hours.
var tableYajima1 = func() eigenTable {
	t := eigenTable{sizes: []int{100, 200, 400}}
	for i, wrong := range [][]float64{
		{5.46, 3.74, 2.78}, {5.44, 3.73, 2.72}, {5.42, 3.74, 2.73}, {5.40, 3.73, 2.72}, {5.43, 3.72, 2.76},
		{5.42, 3.73, 2.72}, {5.43, 3.76, 2.73}, {5.42, 3.76, 2.73}, {5.40, 3.79, 2.75}, {5.42, 3.81, 2.73},
	} {
		cost := float64(i+1) / 100
		t.rows = append(t.rows, eigenRow{fmt.Sprintf("d = 7, C = %v", cost), powerOf(7), 3000, cost, wrong, nil, nil})
	}
	return t
}()
