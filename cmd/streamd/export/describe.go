package export

import (
	"fmt"
	"math"

	"streamd/cmd/streamd/model"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/kernels"
)

// Column is a column of the rows.
type Column struct {
	Name string
	Text bool // its values are texts; of others they are numbers
}

// Program is the computation of a classifier, for rows of its columns. It is immutable.
type Program struct {
	Fingerprint string   // of the model; "": it has none
	Classes     []string // k
	Planes      []string // class of each of the p planes

	columns []Column
	schema  bool   // the columns are those of a schema
	lacking []bool // by column: a value may be missing
	// Results. Values and probabilities are NaN where ok does not hold.
	ok            *node // a condition: the row has a label
	values        *node // p
	probabilities *node // k; nil: the rule does not go by them
	class         *node // place of the label, where ok holds
}

// New describes a classifier. It fails where the classifier has something that an export cannot
// express, and names it.
func New(by *model.Classifier, fingerprint string) (*Program, error) {
	p := &Program{Fingerprint: fingerprint, Classes: by.Model.Classes, schema: by.Schema != nil}
	x, err := p.features(by)
	if err != nil {
		return nil, err
	}
	if by.Map != nil {
		x = coordinates(x, by.Map)
	}
	var weights [][]float64
	var bias []float64
	for _, plane := range by.Model.Planes {
		p.Planes = append(p.Planes, plane.Class)
		weights, bias = append(weights, plane.W), append(bias, -plane.Gamma)
	}
	values := affine(x, weights, bias)
	if by.Map == nil {
		// Features have units of their own. In another order, their sums would have fewer digits in
		// common than a steep curve of probabilities asks for.
		values.op = opOrdered
	}
	p.ok = reduced(opAll, elementwise(opAtMost, elementwise(opAbs, values), constant(math.MaxFloat64)))
	p.values = where(p.ok, values, constant(math.NaN()))
	rule := by.DecidesBy()
	apart, probabilities := probabilitiesOf(values, rule.Curves())
	if probabilities != nil {
		p.probabilities = where(p.ok, probabilities, constant(math.NaN()))
	}
	switch {
	case len(p.Classes) == 2:
		p.class = &node{op: opPlace, width: 1, args: []*node{elementwise(opAtMost, constant(rule.Threshold()), values)}}
	case rule.Kind() == decision.Value:
		p.class = reduced(opFirst, values)
	case rule.Kind() == decision.Probability:
		p.class = reduced(opFirst, apart)
	default:
		p.class = reduced(opFirst, benefits(probabilities, p.Classes, rule.Prices()))
	}
	return p, nil
}

// Columns are those of the rows.
func (p *Program) Columns() []Column { return p.columns }

// HasProbabilities reports whether rows have probabilities.
func (p *Program) HasProbabilities() bool { return p.probabilities != nil }

// results are the nodes that are written.
func (p *Program) results() []*node { return []*node{p.ok, p.values, p.probabilities, p.class} }

// coordinates are those of features in a kernel's basis.
func coordinates(x *node, m *kernels.Map) *node {
	if mean, scale := m.Scaling(); scale != nil {
		inverse := make([]float64, len(scale))
		for j, s := range scale {
			inverse[j] = 1 / s
		}
		x = elementwise(opMul, elementwise(opSub, x, constant(mean...)), constant(inverse...))
	}
	var points [][]float64
	for i := range m.Points() {
		points = append(points, m.Point(i))
	}
	products := func() *node { return affine(x, points, make([]float64, len(points))) }
	var v *node
	switch name, a, b, degree := m.Kernel().Parameters(); name {
	case "gaussian":
		s := &node{op: opSquares, width: len(points), args: []*node{x}, lists: points}
		y := elementwise(opMul, s, constant(-a))
		v = where(elementwise(opLess, y, constant(kernels.Cutoff)), constant(0), elementwise(opExp, y))
	case "linear":
		v = products()
	case "polynomial":
		base := elementwise(opAdd, elementwise(opMul, products(), constant(a)), constant(b))
		for ; degree > 0; degree >>= 1 { // by squaring
			switch {
			case degree&1 == 0:
			case v == nil:
				v = base
			default:
				v = elementwise(opMul, v, base)
			}
			base = elementwise(opMul, base, base)
		}
	case "sigmoid":
		// tanh|y| = (1 − q)/(1 + q), q = exp(−2|y|)
		y := elementwise(opAdd, elementwise(opMul, products(), constant(a)), constant(b))
		q := elementwise(opExp, elementwise(opMul, elementwise(opAbs, y), constant(-2)))
		t := elementwise(opDiv, elementwise(opSub, constant(1), q), elementwise(opAdd, constant(1), q))
		v = where(elementwise(opLess, y, constant(0)), elementwise(opSub, constant(0), t), t)
	}
	if projection := m.Projection(); projection != nil {
		var rows [][]float64
		for ; len(projection) > 0; projection = projection[len(points):] {
			rows = append(rows, projection[:len(points)])
		}
		v = affine(v, rows, make([]float64, len(rows)))
	}
	return v
}

// probabilitiesOf are those of each plane's class against the rest, which a label goes by, and
// those of all classes. They are nil without curves.
func probabilitiesOf(values *node, curves []calibration.Curve) (apart, all *node) {
	if len(curves) == 0 {
		return nil, nil
	}
	if calibration.Joint(curves) {
		p := softmax(values, curves)
		return p, p
	}
	switch curves[0].(type) {
	case calibration.Sigmoid:
		var a, b []float64
		for _, curve := range curves {
			s := curve.(calibration.Sigmoid)
			a, b = append(a, -s.A), append(b, -s.B)
		}
		apart = logistic(elementwise(opAdd, elementwise(opMul, values, constant(a...)), constant(b...)))
	case calibration.Isotonic:
		apart = isotonic(values, curves)
	default:
		panic(fmt.Sprintf("export: a curve %T", curves[0]))
	}
	if len(curves) == 1 {
		return apart, concat(elementwise(opSub, constant(1), apart), apart)
	}
	sum := reduced(opSum, apart)
	return apart, where(elementwise(opLess, constant(0), sum), elementwise(opDiv, apart, sum), constant(1/float64(len(curves))))
}

// softmax is exp(s)/Σ exp(s) of the scores of a joint calibration.
func softmax(values *node, curves []calibration.Curve) *node {
	var s *node
	if t, is := curves[0].(calibration.Temperature); is {
		s = elementwise(opMul, values, constant(t.Scale))
	} else {
		var rows [][]float64
		var bias []float64
		for _, curve := range curves {
			c := curve.(calibration.Softmax)
			rows, bias = append(rows, c.Weights), append(bias, c.Bias)
		}
		s = affine(values, rows, bias)
	}
	e := elementwise(opExp, elementwise(opSub, s, reduced(opLargest, s)))
	return elementwise(opDiv, e, reduced(opSum, e))
}

// logistic is 1/(1 + exp(−x)), without overflow.
func logistic(x *node) *node {
	e := elementwise(opExp, elementwise(opSub, constant(0), elementwise(opAbs, x)))
	return elementwise(opDiv, where(elementwise(opAtMost, constant(0), x), constant(1), e), elementwise(opAdd, constant(1), e))
}

// isotonic is calibration.Isotonic: straight lines between knots. A table has one line for the
// values up to each knot, and one for those beyond the last.
func isotonic(values *node, curves []calibration.Curve) *node {
	var knots [][]float64
	var places, low, high, rise, below, width []float64
	for _, curve := range curves {
		c := curve.(calibration.Isotonic)
		places, knots = append(places, float64(len(low))), append(knots, c.Values)
		for i := range len(c.Values) + 1 {
			from, to := max(i-1, 0), min(i, len(c.Values)-1)
			low, high = append(low, c.Probabilities[from]), append(high, c.Probabilities[to])
			rise = append(rise, c.Probabilities[to]-c.Probabilities[from])
			half := float64(c.Values[from] / 2) // a difference of two finite numbers may be infinite
			below = append(below, half)
			if from == to {
				width = append(width, 1) // the rise is 0
			} else {
				width = append(width, float64(c.Values[to]/2)-half)
			}
		}
	}
	place := &node{op: opBelow, width: len(curves), args: []*node{values}, lists: knots, numbers: places}
	table := func(numbers []float64) *node {
		return &node{op: opTable, width: len(curves), args: []*node{place}, numbers: numbers}
	}
	share := elementwise(opDiv, elementwise(opSub, elementwise(opMul, values, constant(0.5)), table(below)), table(width))
	p := elementwise(opAdd, table(low), elementwise(opMul, table(rise), share))
	return elementwise(opLeast, elementwise(opMost, p, table(low)), table(high))
}

// benefits are minus the expected costs of each class as the answer.
func benefits(probabilities *node, classes []string, prices []decision.Price) *node {
	place := map[string]int{}
	above := make([][]float64, len(classes)) // cost − 1, by answer and class
	for i, class := range classes {
		place[class], above[i] = i, make([]float64, len(classes))
	}
	listed := false
	for _, price := range prices {
		class, known := place[price.Class]
		answer, knownToo := place[price.Answer]
		if known && knownToo && class != answer {
			above[answer][class], listed = price.Cost-1, true
		}
	}
	q := elementwise(opSub, probabilities, constant(1))
	if !listed {
		return q
	}
	return elementwise(opSub, q, affine(probabilities, above, make([]float64, len(classes))))
}
