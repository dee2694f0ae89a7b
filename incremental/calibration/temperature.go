package calibration

import (
	"math"
	"slices"
)

// Temperature is a row of the Softmax with A = Scale·I and b = 0 (Guo, Pleiss, Sun and Weinberger
// 2017). All planes have the same Scale, so the order of their values is that of the
// probabilities, and few rows tell it. Its inverse is the temperature.
type Temperature struct{ Scale float64 }

// Probability implements Curve. As with a Softmax it is only the row's own part.
func (t Temperature) Probability(value float64) float64 { return logistic(float64(t.Scale * value)) }

const (
	temperatureEnds = 0x1p-30 // relative change of the last step
	temperatureMost = 60      // steps
)

// FitTemperature fits the curves that keep the order of the values (m × planes, row by row) of
// rows of classes 0 to k−1: with one plane, of class 1, 1/(1 + exp(−a·value)), and with more
// a Temperature of Scale a. It finds the a of least log loss, which is convex, by Newton's method
// within bounds that close in: from 2^-10 to 2^10 over the largest value. A step that leaves the
// bounds goes to their geometric mean. Each takes O(m·planes), and most fits take 6 to 12. Where
// every row is right, a ends at the upper limit. Where the values say no more than chance, it ends
// at the lower one: with less, probabilities of different values would round to the same number,
// and the first class would always be the answer. The search begins at from, 0 for the middle.
func FitTemperature(values []float64, classes []int32, weights []float64, planes int, from float64) []Curve {
	var largest float64
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	unit := 1 / max(largest, 0x1p-500)
	low, high := 0x1p-10*unit, 0x1p10*unit
	a := from
	if !(a > low && a < high) {
		a = unit
	}
	p := make([]float64, planes)
	for range temperatureMost {
		slope, curvature := temperatureSlope(a, values, classes, weights, p)
		if slope < 0 {
			low = a
		} else {
			high = a
		}
		next := a - slope/curvature
		if !(next > low && next < high) {
			next = float64(math.Sqrt(low) * math.Sqrt(high))
		}
		moved := math.Abs(next - a)
		a = next
		if !(moved > temperatureEnds*a) || !(high-low > temperatureEnds*low) {
			break
		}
	}
	if planes == 1 {
		return []Curve{Sigmoid{A: -a}}
	}
	return slices.Repeat([]Curve{Temperature{a}}, planes)
}

// temperatureSlope returns the first and the second derivative of the log loss by a. p has room for
// the probabilities of a row.
func temperatureSlope(a float64, values []float64, classes []int32, weights, p []float64) (slope, curvature float64) {
	planes := len(p)
	for i, class := range classes {
		row := values[i*planes:][:planes]
		if planes == 1 {
			d := float64(2*class - 1)
			q := logistic(-float64(a * d * row[0]))
			slope -= float64(weights[i] * d * row[0] * q)
			curvature += float64(weights[i] * row[0] * row[0] * q * (1 - q))
			continue
		}
		most, all, mean, square := slices.Max(row), 0.0, 0.0, 0.0
		for c, v := range row {
			p[c] = math.Exp(float64(a * (v - most)))
			all += p[c]
		}
		for c, v := range row {
			mean += float64(p[c] / all * v)
		}
		for c, v := range row {
			square += float64(p[c] / all * (v - mean) * (v - mean))
		}
		slope += float64(weights[i] * (mean - row[class]))
		curvature += float64(weights[i] * square)
	}
	return slope, curvature
}
