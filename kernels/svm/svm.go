package svm

import (
	"context"
	"errors"
	"fmt"
	"math"

	"streamd/incremental/gram"
	"streamd/kernels/lp"
)

// Rows are labelled rows of a two-class problem.
type Rows struct {
	Columns []gram.Column // A or K(A, Z): n columns of m finite numbers
	Basis   bool          // columns are K(A, Z)
	D       []float64     // m labels, 1 or −1; for Unlabelled also 0, which is none
	// Costs are c ≥ 0, the weight of each row's error; nil: 1 each. A row of cost 0 counts as
	// absent.
	Costs []float64
	// Regulariser is R of w'Rw as a packed lower triangle, such as K(Z, Z); nil: I. Machines
	// with a 1-norm of w refuse it.
	Regulariser []float64
	// Workers bounds the goroutines; 0: GOMAXPROCS. The plane does not depend on it.
	Workers int
}

// Plane is x'w = γ, with the statistics of the program that found it.
type Plane struct {
	W     []float64
	Gamma float64
	// Alpha is the dual variable of each row, ≥ 0; nil where the program has none.
	Alpha []float64
	// Objective is the value of the program that the machine minimises, and Gap what a better
	// plane could save: the objective less that of the dual solution.
	Objective, Gap float64
	Programs       int // programs solved
	Steps          int // their iterations

	// held are the rows with α > 0, and entered the coordinates with w ≠ 0, in any of successive
	// programs. Each program has the same solution without the other rows and coordinates, and so
	// do all.
	held, entered []bool
}

// Features is the number of coordinates that the plane uses, w ≠ 0.
func (p *Plane) Features() int {
	count := 0
	for _, w := range p.W {
		if w != 0 {
			count++
		}
	}
	return count
}

// SupportVectors is the number of rows with α > 0.
func (p *Plane) SupportVectors() int {
	count := 0
	for _, a := range p.Alpha {
		if a > 0 {
			count++
		}
	}
	return count
}

// Machine finds planes.
type Machine interface {
	// Fit finds the plane of rows for one ν ≥ 0. Its errors are those of Rows.Check, of the
	// context, and of programs that rounding keeps from their solution. A plane that comes
	// without an error is finite.
	Fit(ctx context.Context, rows *Rows, nu float64) (*Plane, error)
}

// Settings are parameters of machines. 0 means the machine's usual one.
type Settings struct {
	// Mu is μ of Minimal, Features and Unlabelled, > 0. In the coordinates of a basis Minimal is
	// the minimal kernel classifier.
	Mu float64
	// Epsilon and Delta are ε and δ of NewtonLP, > 0.
	Epsilon, Delta float64
}

// Machines by their names, in the order of Names.
var machines = []struct {
	name    string
	machine func(Settings) Machine
	mu      bool // it has a μ
}{
	{"hinge", func(Settings) Machine { return Hinge{} }, false},
	{"sparse", func(Settings) Machine { return Sparse{} }, false},
	{"minimal", func(s Settings) Machine { return Minimal{Mu: s.Mu} }, true},
	{"features", func(s Settings) Machine { return Features{Mu: s.Mu} }, true},
	{"nlp", func(s Settings) Machine { return NewtonLP{Epsilon: s.Epsilon, Delta: s.Delta} }, false},
	{"unlabelled", func(s Settings) Machine { return Unlabelled{Mu: s.Mu} }, true},
}

// Names lists the names of the machines.
func Names() (names []string) {
	for _, m := range machines {
		names = append(names, m.name)
	}
	return names
}

// Named returns the machine of a name. ok is false if there is none, or one without these
// parameters.
func Named(name string, s Settings) (machine Machine, ok bool) {
	for _, m := range machines {
		if m.name == name {
			return m.machine(s), (s.Mu == 0 || m.mu) && (s.Epsilon == 0 && s.Delta == 0 || name == "nlp")
		}
	}
	return nil, false
}

// advised says what helps against the rounding that keeps a program from its solution.
func advised(err error, scaled bool) error {
	switch {
	case !errors.Is(err, lp.ErrNotConverged) && !errors.Is(err, ErrNotConverged):
		return err
	case scaled:
		return fmt.Errorf("%w: make nu smaller", err)
	}
	return fmt.Errorf("%w: standardise the features or make nu smaller", err)
}

// errRegulariser refuses R for a machine whose program has none.
var errRegulariser = errors.New("svm: a machine that minimises the 1-norm of w has no regulariser")

// Check returns an error for numbers that no machine can work with: ν, labels, costs and
// elements of columns. Lengths that do not match panic.
func (r *Rows) Check(nu float64) error { return r.check(nu, false) }

// check is Check. Rows may have no label, a label of 0, if unlabelled.
func (r *Rows) check(nu float64, unlabelled bool) error {
	m, n := len(r.D), len(r.Columns)
	if r.Costs != nil && len(r.Costs) != m || r.Regulariser != nil && len(r.Regulariser) != gram.PackedLen(n) {
		panic(fmt.Sprintf("svm: %d costs of %d rows, %d numbers of a regulariser of order %d", len(r.Costs), m, len(r.Regulariser), n))
	}
	if !amount(nu) {
		return fmt.Errorf("svm: ν is %v, not a finite number that is at least 0", nu)
	}
	for i, d := range r.D {
		if d != 1 && d != -1 && !(d == 0 && unlabelled) {
			return fmt.Errorf("svm: row %d: the label %v is neither 1 nor -1", i, d)
		}
	}
	for i, c := range r.Costs {
		if !amount(c) || !amount(nu*c) {
			return fmt.Errorf("svm: row %d: the cost %v with ν = %v is not a finite number that is at least 0", i, c, nu)
		}
	}
	for j, c := range r.Columns {
		if c.Len() != m {
			panic(fmt.Sprintf("svm: column %d has %d of %d rows", j, c.Len(), m))
		}
		if !finite(gram.Largest(c, 0)) {
			return fmt.Errorf("svm: column %d has numbers that are not finite", j)
		}
	}
	for _, v := range r.Regulariser {
		if !finite(v) {
			return errors.New("svm: the regulariser has numbers that are not finite")
		}
	}
	return nil
}

// cost is c_i.
func (r *Rows) cost(i int) float64 {
	if r.Costs == nil {
		return 1
	}
	return r.Costs[i]
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }
func amount(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }
