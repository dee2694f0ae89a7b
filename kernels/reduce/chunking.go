package reduce

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"streamd/incremental/gram"
	"streamd/incremental/parallel"
)

// ChunkingSynthetic is the method of González-Castaño and Meyer: see the
// package's comment. The zero value of each field is the paper's setting.
type ChunkingSynthetic struct {
	Chunks     []Chunk // the stages before the last; nil: PaperChunks
	Nu         float64 // ν of the last stage, which has all rows; 0: 12
	Runs       int     // p; 0: 10
	Synthetic  int     // t in the stages before the last; 0: 10. The Problem's Points bound it.
	Candidates int     // s, the candidates of stage 0; 0: 100
	Alpha      float64 // α of the box for w; 0: 1.25
	Starts     int     // starting points of each approximation; the best result counts; 0: 1
	// Unite passes on the points of all starts, as in (5), instead of those of the
	// best. The starts share t between them.
	Unite bool
	// Fresh is the number of random rows of the chunk that join the candidates of
	// each stage after stage 0; 0: none. The smaller chunks of earlier stages may
	// have lacked their like.
	Fresh int
}

// A Chunk is the number of training rows of each run of a stage, and ν.
type Chunk struct {
	Rows int
	Nu   float64
}

// PaperChunks are the stages of the paper's section 3 without the last one.
func PaperChunks() []Chunk { return []Chunk{{500, 1.4}, {1000, 1.6}, {2000, 3}, {4000, 6}} }

func (c ChunkingSynthetic) withDefaults() ChunkingSynthetic {
	if c.Chunks == nil {
		c.Chunks = PaperChunks()
	}
	setDefault(&c.Nu, 12)
	setDefault(&c.Runs, 10)
	setDefault(&c.Synthetic, 10)
	setDefault(&c.Candidates, 100)
	setDefault(&c.Alpha, 1.25)
	setDefault(&c.Starts, 1)
	return c
}

// check returns an error for invalid settings. Defaults must have been filled in.
func (c ChunkingSynthetic) check() error {
	for _, setting := range []struct {
		name         string
		value, least int
	}{
		{"runs", c.Runs, 1}, {"synthetic points", c.Synthetic, 1}, {"candidates", c.Candidates, 1},
		{"starts", c.Starts, 1}, {"fresh rows", c.Fresh, 0},
	} {
		if setting.value < setting.least {
			return fmt.Errorf("chunking-synthetic: %d %s", setting.value, setting.name)
		}
	}
	if !(c.Alpha > 0) || math.IsInf(c.Alpha, 0) {
		return fmt.Errorf("chunking-synthetic: α is %v", c.Alpha)
	}
	for i, chunk := range append(slices.Clone(c.Chunks), Chunk{1, c.Nu}) {
		if chunk.Rows < 1 {
			return fmt.Errorf("chunking-synthetic: stage %d: %d rows", i, chunk.Rows)
		}
		if err := checkNu(chunk.Nu); err != nil {
			return fmt.Errorf("chunking-synthetic: stage %d: %w", i, err)
		}
	}
	return nil
}

func setDefault[T int | float64](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// A side is the state of the work on one plane.
type side struct {
	class, rank int       // rank among the planes
	points      int       // the largest size of its basis
	candidates  []float64 // C; nil before stage 0
	start       synthetic // the best approximation of the previous stage
	best        *classifier
}

// A synthetic is an approximation w f(Z) of a classifier's term.
type synthetic struct {
	z, w []float64
	descent
}

// A run is the result of one run of a stage.
type run struct {
	full    *classifier // (b)
	best    synthetic   // (c), the best of its starts
	step    Step        // the report on best, with the γ of (b)
	z       []float64   // the candidates for the next stage
	reduced *classifier // (d), on z
}

// Reduce implements Reducer.
func (c ChunkingSynthetic) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	sides := s.sides()
	var chunks []Chunk
	for _, chunk := range c.Chunks {
		if chunk.Rows < len(s.live) {
			chunks = append(chunks, chunk)
		}
	}
	result := &Result{Features: len(p.Columns)}
	for stage := 0; stage <= len(chunks); stage++ {
		if stage < len(chunks) {
			err = c.chunk(ctx, s, result, sides, stage, chunks[stage])
		} else {
			err = c.last(ctx, s, result, sides, stage)
		}
		if err != nil {
			if ctx.Err() == nil || sides[len(sides)-1].best == nil {
				return nil, err
			}
			result.Interrupted = true
			break
		}
	}
	result.assemble(sides)
	return result, nil
}

// assemble unites the planes' bases. A plane has coefficients for its own points only.
// Planes may share points.
func (r *Result) assemble(sides []*side) {
	n := r.Features
	place := make(map[string]int)
	for _, side := range sides {
		for i := range side.best.u {
			z := side.best.z[i*n:][:n]
			if _, ok := place[keyOf(z)]; !ok {
				place[keyOf(z)] = r.Points
				r.Z = append(r.Z, z...)
				r.Points++
			}
		}
	}
	for _, side := range sides {
		u := make([]float64, r.Points)
		for i, ui := range side.best.u {
			u[place[keyOf(side.best.z[i*n:][:n])]] += ui
		}
		r.Planes = append(r.Planes, Plane{Class: side.class, U: u, Gamma: side.best.gamma})
	}
}

// chunk does one stage before the last: the runs of all planes, and their coordination.
func (c ChunkingSynthetic) chunk(ctx context.Context, s *sample, result *Result, sides []*side, stage int, chunk Chunk) error {
	runs := make([]run, len(sides)*c.Runs)
	err := parallel.For(s.workers, len(runs), func(i int) error {
		side := sides[i/c.Runs]
		random := s.random(1, side.rank, stage, i%c.Runs)
		chosen, others := s.split(random, side.class, chunk.Rows)
		train, test := s.take(chosen, side.class), s.take(others, side.class)
		candidates := side.candidates
		if candidates == nil {
			candidates = s.draw(random, chosen, c.Candidates)
		} else if c.Fresh > 0 {
			candidates = Distinct(slices.Concat(candidates, s.draw(random, chosen, c.Fresh)), len(s.Columns))
		}
		full, err := s.classify(ctx, train, test, candidates, chunk.Nu, 1)
		if err != nil {
			return err
		}
		runs[i], err = c.reduce(ctx, s, random, side.start, min(c.Synthetic, side.points), full, train, test, chunk.Nu)
		return err
	})
	if err != nil {
		return err
	}
	for k, side := range sides {
		mine := runs[k*c.Runs:][:c.Runs]
		report := Stage{
			Class: side.class, Stage: stage, Rows: chunk.Rows, Runs: c.Runs, Nu: chunk.Nu,
			Candidates: len(mine[0].full.u),
		}
		side.candidates = nil
		first, best := 0, 0 // the best runs by approximation and by reduced classifier
		for i, r := range mine {
			report.Classifier.add(r.full.step)
			report.Approximation.add(r.step)
			report.Reduced.add(r.reduced.step)
			side.candidates = append(side.candidates, r.z...)
			if r.step.better(mine[first].step) {
				first = i
			}
			if r.reduced.step.better(mine[best].reduced.step) {
				best = i
			}
		}
		for _, step := range []*Step{&report.Classifier, &report.Approximation, &report.Reduced} {
			step.divide(float64(c.Runs))
		}
		side.candidates = Distinct(side.candidates, len(s.Columns))
		side.start, side.best = mine[first].best, mine[best].reduced
		s.report(result, report)
	}
	return nil
}

// last does the last stage, on all rows: (b), and if that has too many points, (c) and
// (d) from several starting points. It takes the result of least objective.
func (c ChunkingSynthetic) last(ctx context.Context, s *sample, result *Result, sides []*side, stage int) error {
	var done []*classifier
	var reports []Stage
	for _, side := range sides {
		train := s.take(s.live, side.class)
		fresh := c.Fresh
		if side.candidates == nil {
			fresh = max(fresh, c.Candidates)
		}
		drawn := s.draw(s.random(1, side.rank, stage), s.live, fresh)
		candidates := Distinct(slices.Concat(side.candidates, drawn), len(s.Columns))
		full, err := s.classify(ctx, train, rows{}, candidates, c.Nu, s.workers)
		if err != nil {
			return err
		}
		report := Stage{
			Class: side.class, Stage: stage, Rows: len(s.live), Runs: 1, Nu: c.Nu,
			Candidates: len(full.u), Classifier: full.step,
		}
		best := full.compact(len(s.Columns))
		if len(best.u) > side.points {
			runs := make([]run, c.Runs)
			err := parallel.For(s.workers, len(runs), func(i int) error {
				start := side.start
				if i > 0 {
					start = synthetic{}
				}
				var err error
				runs[i], err = c.reduce(ctx, s, s.random(1, side.rank, stage, 1+i), start, side.points, full, train, rows{}, c.Nu)
				return err
			})
			if err != nil {
				return err
			}
			least := 0
			for i := range runs {
				if runs[i].reduced.objective < runs[least].reduced.objective {
					least = i
				}
			}
			best = runs[least].reduced
			report.Runs = c.Runs
			report.Approximation, report.Reduced = runs[least].step, best.step
		}
		done, reports = append(done, best), append(reports, report)
	}
	for k, side := range sides {
		side.best = done[k]
		s.report(result, reports[k])
	}
	return nil
}

// reduce does steps (c) and (d) of a run that has done (b).
func (c ChunkingSynthetic) reduce(ctx context.Context, s *sample, random *rand.Rand, start synthetic, t int, full *classifier, train, test rows, nu float64) (run, error) {
	n := len(s.Columns)
	if c.Unite {
		t = max(t/c.Starts, 1)
	}
	r := run{full: full}
	support := full.compact(n)
	if len(support.u) <= t {
		r.best = synthetic{z: support.z, w: support.u, descent: descent{converged: true}}
		r.z = support.z
	} else {
		program := newApproximation(s.Kernel, n, support.z, support.u, t)
		for k := range c.Starts {
			next := start
			if k > 0 {
				var err error
				if next, err = means(ctx, random, support, n, t); err != nil {
					return run{}, err
				}
			}
			next = next.filled(random, support, n, t)
			next.descent = program.solve(ctx, next.w, next.z, c.Alpha)
			if err := ctx.Err(); err != nil {
				return run{}, err
			}
			if k == 0 || next.value < r.best.value {
				r.best = next
			}
			if c.Unite {
				r.z = Distinct(append(r.z, next.z...), n)
			}
		}
		if !c.Unite {
			r.z = Distinct(r.best.z, n)
		}
	}
	var err error
	r.step.Points = float64(len(r.best.w))
	r.step.Error = math.Sqrt(max(r.best.value, 0))
	if !r.best.converged {
		r.step.Unconverged = 1
	}
	if r.step.Training, err = s.test(train, r.best.z, r.best.w, full.gamma); err != nil {
		return run{}, err
	}
	if r.step.Testing, err = s.test(test, r.best.z, r.best.w, full.gamma); err != nil {
		return run{}, err
	}
	r.reduced, err = s.classify(ctx, train, test, r.z, nu, 1)
	return r, err
}

// filled returns the start a with t points. It adds random points of the support, with
// their coefficients, if a has too few.
func (a synthetic) filled(random *rand.Rand, support *classifier, n, t int) synthetic {
	have := min(len(a.w), t)
	next := synthetic{z: slices.Clone(a.z[:have*n]), w: slices.Clone(a.w[:have])}
	for _, i := range random.Perm(len(support.u))[:t-have] {
		next.z = append(next.z, support.z[i*n:][:n]...)
		next.w = append(next.w, support.u[i])
	}
	return next
}

// means returns a start of t means of clusters of the support, weighted by |u|. The
// points of either sign are clustered separately. In many dimensions noise puts all rows
// far from each other, but a mean is near all of its rows, and no descent that begins at
// a row finds it.
func means(ctx context.Context, random *rand.Rand, support *classifier, n, t int) (synthetic, error) {
	var groups [2][]int
	for i, u := range support.u {
		sign := 0
		if u > 0 {
			sign = 1
		}
		groups[sign] = append(groups[sign], i)
	}
	var start synthetic
	for k, count := range shares(sizes(groups[:]), t) {
		r := rows{columns: make([]gram.Column, n)}
		for _, i := range groups[k] {
			r.weights = append(r.weights, math.Abs(support.u[i]))
		}
		for j := range r.columns {
			v := make([]float64, len(groups[k]))
			for l, i := range groups[k] {
				v[l] = support.z[i*n+j]
			}
			r.columns[j] = gram.ColumnOf(v)
		}
		c := newClustering(r, TwoNorm, 1)
		// Start from random points, because the seeding of Clusters prefers outliers.
		for _, l := range random.Perm(len(groups[k]))[:count] {
			c.z = append(c.z, support.z[groups[k][l]*n:][:n]...)
		}
		c.assign(0)
		if _, err := c.run(ctx); err != nil {
			return synthetic{}, err
		}
		w := make([]float64, len(c.z)/n)
		for l, i := range groups[k] {
			w[c.nearest[l]] += support.u[i]
		}
		start.z, start.w = append(start.z, c.z...), append(start.w, w...)
	}
	return start, nil
}

// compact drops the points without a coefficient, but keeps the last one if no point has
// a coefficient.
func (c *classifier) compact(n int) *classifier {
	kept := *c
	kept.z, kept.u = nil, nil
	for i, u := range c.u {
		if u != 0 || i == len(c.u)-1 && len(kept.u) == 0 {
			kept.z = append(kept.z, c.z[i*n:][:n]...)
			kept.u = append(kept.u, u)
		}
	}
	return &kept
}

// split draws count rows at random, each side of a plane in proportion, and as many
// others, or all others if there are fewer.
func (s *sample) split(random *rand.Rand, class, count int) (chosen, others []int) {
	var sides [2][]int
	for _, i := range s.live {
		k := 0
		if int(s.Codes[i]) == class {
			k = 1
		}
		sides[k] = append(sides[k], i)
	}
	for k, share := range shares(sizes(sides[:]), count) {
		rows := shuffled(random, sides[k])
		chosen = append(chosen, rows[:share]...)
		others = append(others, rows[share:min(2*share, len(rows))]...)
	}
	return chosen, others
}

// better compares by the test rows or, if these are equal, by the training rows.
func (s Step) better(than Step) bool {
	if s.Testing != than.Testing {
		return s.Testing > than.Testing
	}
	return s.Training > than.Training
}

func (s *Step) add(a Step) {
	s.Points += a.Points
	s.Training += a.Training
	s.Testing += a.Testing
	s.SupportVectors += a.SupportVectors
	s.Unconverged += a.Unconverged
	s.Error += a.Error
}

func (s *Step) divide(runs float64) {
	s.Points /= runs
	s.Training /= runs
	s.Testing /= runs
	s.SupportVectors /= runs
	s.Error /= runs
}
