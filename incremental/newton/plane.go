package newton

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"gonum.org/v1/gonum/mat"

	"streamd/incremental/exact"
)

// plane is one plane on its way to the minimum. Coordinates are the scaled ones
// of the columns low to high: z = [w; γ].
type plane struct {
	label     string
	class     int // the positive class
	index     int // of the plane
	low, high int
	cost      []float64 // ν·a_c·u_c of each class, the same for all planes
	own, rest float64   // balance divides costs by own for the plane's class, and by rest for the others
	size      size

	lineSearch
	evaluation
	hessian
	system

	gap        float64 // of the planes to the minimum; NaN: not known
	settled    bool
	iterations int
	done       bool
}

// lineSearch is the position of a plane. The base is the last accepted point. A step goes
// from there along the direction, to point = base + scale·direction.
type lineSearch struct {
	base          []float64
	baseObjective float64
	baseAt        int // index of the base's residuals among the held ones
	direction     []float64
	slope         float64 // gradient'direction at the base
	scale         float64
	point         []float64
	damping       float64 // μ of the next step
}

// halvings of a step are evaluated in one pass.
const halvings = 8

// evaluation is the result of a pass at the point.
type evaluation struct {
	mutex   sync.Mutex    // guards the sums while a pass collects them
	sums    *exact.Vector // Σ C r₊², the gradient of its half, and Σ C r₊² after halvings
	active  int64
	changed int64 // rows that became active or inactive

	objective, norm float64
	gradient        []float64
	halved          [halvings]float64 // objectives of the halved steps
}

// hessian is Σ_active C z z' in integers. Entry (j, k) counts units of
// unit[j]·unit[k]·common; these are powers of two.
type hessian struct {
	entries       []int64   // packed lower triangle
	unit, inverse []float64 // and 1/unit
	common        float64
	rebuild       bool    // the next pass sums all active rows anew
	built         float64 // Σ_active C at the last rebuild
}

// system is the factorised linear system of a Newton step.
type system struct {
	factor    mat.Cholesky
	equil     []float64 // powers of two that bring the diagonal near 1
	condition float64
	damped    float64 // μ in the factor
	decrement float64
}

func (p *plane) report() Report {
	return Report{
		Class: p.label, Objective: p.baseObjective, Gradient: p.norm, Iterations: p.iterations, SupportVectors: p.active,
		Gap: p.gap, LeaveOneOut: math.NaN(),
	}
}

func (p *plane) stalled() error { return &StallError{p.report(), p.condition} }

// Report holds the statistics of one plane. Those of other refinements have a NaN for what
// they do not measure.
type Report struct {
	Class string
	// Objective is f(w, γ) at the end, and Gradient the norm ‖∇f(w, γ)‖, both
	// in standardised coordinates if the model is standardised. With Line, the
	// gradient is that in (λ‖w̄‖, γ). With Logistic, both are those of all planes.
	Objective, Gradient float64
	// Gap is the objective less that of a dual solution, which no plane can be below; NaN:
	// there is none. Logistic has that of all planes.
	Gap        float64
	Programs   int // mathematical programs solved; 0 by the methods of this package
	Iterations int // Newton steps, or those of all programs
	// SupportVectors counts the rows with a positive multiplier
	// u = C(1 − d(x'w − γ))₊ (2.43): the active rows. With Logistic these are all rows.
	SupportVectors int64
	// LeaveOneOut bounds the share of the rows that planes made without them have on the wrong
	// side; NaN: there is no bound.
	LeaveOneOut float64
}

// A LimitError reports that a plane was not done within the limit of 500 iterations.
type LimitError struct {
	Report // at the last point
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("class %q: refinement is not done after %d iterations: the objective is %.6g, its gradient %.3g: standardise the features or make nu smaller", e.Class, e.Iterations, e.Objective, e.Gradient)
}

// A StallError reports that rounding keeps a plane from its minimum: no step lowers
// the objective, or steps that should settle do not. Numbers of very different
// sizes cause it, even if the systems of the steps are well-conditioned.
type StallError struct {
	Report            // at the last point
	Condition float64 // condition number of the last step's system
}

func (e *StallError) Error() string {
	return fmt.Sprintf("class %q: refinement makes no progress after %d iterations: the objective is %.6g, its gradient %.3g, the condition number about %.1e: standardise the features, drop those that repeat others, or make nu smaller",
		e.Class, e.Iterations, e.Objective, e.Gradient, e.Condition)
}

// errRange reports sums of rows that leave the range of package exact.
var errRange = errors.New("the rows' sums are out of range: standardise the features")
