package calibration

import (
	"math"
	"slices"
)

// FitTemperature fits the curves that keep the order of the values (m × planes, row by row) of
// rows of classes 0 to k−1: with one plane, of class 1, 1/(1 + exp(−a·value)), and with more
// the Softmax with A = aI and b = 0 (Guo, Pleiss, Sun and Weinberger 2017). It finds the a of
// least log loss by bisection, in O(m·planes) for each of 60 steps, from 2^-10 to 2^10 over
// the largest value. Where every row is right, a ends at the upper limit. Where the values say
// no more than chance, it ends at the lower one: with less, probabilities of different values
// would round to the same number, and the first class would always be the answer.
func FitTemperature(values []float64, classes []int32, weights []float64, planes int) []Curve {
	var largest float64
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	unit := 1 / max(largest, 0x1p-500)
	low, high := 0x1p-10*unit, 0x1p10*unit
	p := make([]float64, planes)
	for range 60 {
		a := low + float64((high-low)/2)
		var slope float64 // of the log loss
		for i, class := range classes {
			row := values[i*planes:][:planes]
			if planes == 1 {
				d := float64(2*class - 1)
				slope -= float64(weights[i] * d * row[0] * logistic(-float64(a*d*row[0])))
				continue
			}
			most, all, mean := slices.Max(row), 0.0, 0.0
			for c, v := range row {
				p[c] = math.Exp(float64(a * (v - most)))
				all += p[c]
			}
			for c, v := range row {
				mean += float64(p[c] / all * v)
			}
			slope += float64(weights[i] * (mean - row[class]))
		}
		if slope < 0 {
			low = a
		} else {
			high = a
		}
	}
	if planes == 1 {
		return []Curve{Sigmoid{A: -low}}
	}
	curves := make([]Curve, planes)
	for c := range curves {
		w := make([]float64, planes)
		w[c] = low
		curves[c] = Softmax{Weights: w}
	}
	return curves
}
