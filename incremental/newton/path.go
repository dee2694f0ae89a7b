package newton

import (
	"context"

	"streamd/incremental"
)

// A Path refines planes on rows in memory for one ν after the other, by Full or Logistic. A search
// begins at the planes of the ν before, and with its Hessian: without I it changes by the ratio of
// the two. So a Path takes less time than as many calls of Refine, and finds the same planes up to
// rounding. It belongs to one goroutine.
type Path struct {
	model  incremental.Model // with the last ν and planes
	rows   Blocks
	o      Options
	solver *solver // nil before the first search, and where the planes take several solvers
	joint  *joint  // of Logistic
}

// NewPath begins a path at the planes of a model, with the requirements of Refine.
func NewPath(model *incremental.Model, rows Blocks, o Options) *Path {
	if !o.Method.Continues() {
		panic("newton: " + o.Method.String() + " has no path")
	}
	return &Path{model: *model, rows: rows, o: o.withDefaults()}
}

// Refine is the function Refine for the next ν. After an error the path has ended.
func (p *Path) Refine(ctx context.Context, nu float64) (*Result, error) {
	ratio := nu / p.model.Options.Nu
	p.model.Options.Nu = nu
	var out *Result
	if together(&p.model, p.rows, p.o) < len(p.model.Planes) {
		var err error
		if out, err = Refine(ctx, &p.model, p.rows, p.o); err != nil {
			return nil, err
		}
	} else {
		if err := p.search(ctx, ratio); err != nil {
			return nil, err
		}
		out = resultOf(&p.model)
		out.add(p.solver)
		p.solver.passes = 0
	}
	p.model.Planes = out.Model.Planes
	return out, nil
}

func (p *Path) search(ctx context.Context, ratio float64) error {
	if p.solver == nil {
		s := newSolver(&p.model, p.rows, p.o)
		for i := range p.model.Planes {
			s.add(&p.model.Planes[i])
		}
		p.solver = s
		if p.o.Method == Full {
			if err := s.survey(ctx); err != nil {
				return err
			}
			return s.minimise(ctx)
		}
		j, point, err := s.joint(ctx)
		if err != nil {
			return err
		}
		p.joint = j
		return j.minimise(ctx, point)
	}
	s := p.solver
	if err := s.weigh(ratio); err != nil {
		return err
	}
	if p.joint != nil {
		return p.joint.minimise(ctx, p.joint.move(ratio))
	}
	for _, p := range s.planes {
		p.lineSearch = lineSearch{point: p.base, baseAt: p.baseAt}
		p.settled, p.done, p.iterations = false, false, 0
	}
	return s.minimise(ctx)
}

// move goes on to another ν. It returns the point where the planes are.
func (j *joint) move(ratio float64) (point []float64) {
	for r, p := range j.s.planes {
		point = append(point, p.base...)
		if p.rebuild { // in other units
			j.kept, j.steps, p.rebuild = false, nil, false
		}
		for _, h := range j.cross[r] {
			h.unit, h.inverse, h.common = p.unit, p.inverse, p.common
		}
	}
	// Of a change of the gradient I has the step.
	for i, s := range j.steps {
		change := along(s.step, along(s.change, s.step, -1), ratio)
		j.steps[i] = secant{s.step, change, dot(s.step, change)}
	}
	return point
}
