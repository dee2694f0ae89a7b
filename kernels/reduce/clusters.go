package reduce

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"streamd/incremental/parallel"
)

// Norm is the distance that a cluster's centre minimises.
type Norm int

const (
	// TwoNorm: squared Euclidean distances; the centre is the mean (Lloyd
	// 1982).
	TwoNorm Norm = iota
	// OneNorm: sums of absolute differences, which outliers affect less; the centre
	// is the median of each feature (Fung 2003, algorithm 5.3.1).
	OneNorm
)

// Clusters takes the centres of clusters as points. Each class is clustered separately
// and has centres in proportion to its rows, at least one if there are as many points as
// classes.
//
// Readers of the model see the centres, so each stands for centreRows rows or more.
// Classes with fewer rows are clustered together, and have no centre if they are still
// too few. A cluster that becomes too small is dissolved: its rows join the nearest other
// centres, and the iteration continues. A sample without enough rows for one centre is
// refused with ErrRows.
//
// The first centres are rows, drawn with probabilities in proportion to their distance
// from earlier ones (k-means++; Arthur and Vassilvitskii 2007). Then each iteration
// assigns rows to their nearest centre (the first of equals) and moves centres to the
// middle of their rows, until no row changes its centre. The sum of distances falls in
// each iteration and can take finitely many values. After 300 iterations it stops, and
// the report counts it as unconverged. An iteration costs m·t·n.
type Clusters struct {
	Norm Norm
	Nu   float64 // ν of the 1-norm program for the coefficients
}

const maxTurns = 300

// centreRows is the least number of rows that a centre stands for. A centre of one row
// would be that row. A centre of two would reveal either row to the owner of the other.
const centreRows = 5

// Reduce implements Reducer.
func (r Clusters) Reduce(ctx context.Context, p *Problem) (*Result, error) {
	s, err := newSample(p)
	if err != nil {
		return nil, err
	}
	var z []float64
	unconverged := 0
	groups := s.groups()
	if len(groups) == 0 {
		return nil, fmt.Errorf("%w: no class has %d, nor have all classes together", ErrRows, centreRows)
	}
	for k, count := range shares(sizes(groups), p.Points) {
		if count == 0 {
			continue
		}
		c := newClustering(s.take(groups[k], 0), r.Norm, s.workers)
		c.seed(s.random(2, k), min(count, len(groups[k])/centreRows))
		converged, err := c.settle(ctx)
		if err != nil {
			return nil, err
		}
		if !converged {
			unconverged++
		}
		z = append(z, c.z...)
	}
	return s.given(ctx, Distinct(z, len(p.Columns)), r.Nu, unconverged)
}

// groups are the groups of rows to cluster separately: the rows of each class, and
// together those of all classes of fewer than centreRows rows. Fewer than centreRows of
// the latter are left out.
func (s *sample) groups() (groups [][]int) {
	var few []int
	for _, rows := range s.strata() {
		if len(rows) < centreRows {
			few = append(few, rows...)
		} else {
			groups = append(groups, rows)
		}
	}
	if len(few) >= centreRows {
		groups = append(groups, few)
	}
	return groups
}

// A clustering holds the clusters of some rows.
type clustering struct {
	rows    rows // without sides
	norm    Norm
	workers int
	z       []float64 // centres, t×n
	nearest []int32   // each row's centre
	away    []float64 // each row's distance from it
}

func newClustering(r rows, norm Norm, workers int) *clustering {
	m := r.columns[0].Len()
	c := &clustering{rows: r, norm: norm, workers: workers, nearest: make([]int32, m), away: make([]float64, m)}
	for i := range c.away {
		c.away[i] = math.Inf(1)
	}
	return c
}

func (c *clustering) weight(i int) float64 {
	if c.rows.weights == nil {
		return 1
	}
	return c.rows.weights[i]
}

// seed draws up to count centres.
func (c *clustering) seed(random *rand.Rand, count int) {
	chance := func(i int) float64 {
		if len(c.z) == 0 {
			return c.weight(i)
		}
		return float64(c.weight(i) * c.away[i])
	}
	for range count {
		total := 0.0
		for i := range c.away {
			total += chance(i)
		}
		if !(total > 0) {
			return // all points are centres
		}
		left := float64(random.Float64() * total)
		chosen := -1
		for i := range c.away {
			if x := chance(i); x > 0 {
				chosen = i
				if left -= x; left < 0 {
					break
				}
			}
		}
		for _, column := range c.rows.columns {
			c.z = append(c.z, column.At(chosen))
		}
		c.assign(len(c.z)/len(c.rows.columns) - 1)
	}
}

// assign moves rows to nearer centres, among those from the given one on.
func (c *clustering) assign(from int) {
	const tile = 256
	n, m := len(c.rows.columns), len(c.nearest)
	tiles := (m + tile - 1) / tile
	_ = parallel.For(c.workers, tiles, func(k int) error {
		first := k * tile
		rows := min(tile, m-first)
		x := make([]float64, n*rows)
		for j, column := range c.rows.columns {
			column.Copy(x[j*rows:][:rows], first)
		}
		distance := make([]float64, rows)
		for l := from; l*n < len(c.z); l++ {
			clear(distance)
			for j, zj := range c.z[l*n:][:n] {
				if c.norm == OneNorm {
					for i, xi := range x[j*rows:][:rows] {
						distance[i] += math.Abs(xi - zj)
					}
					continue
				}
				for i, xi := range x[j*rows:][:rows] {
					distance[i] = math.FMA(xi-zj, xi-zj, distance[i])
				}
			}
			for i, d := range distance {
				if d < c.away[first+i] {
					c.away[first+i], c.nearest[first+i] = d, int32(l)
				}
			}
		}
		return nil
	})
}

// settle iterates until no row moves and every centre has centreRows rows. There must be
// at least that many rows.
func (c *clustering) settle(ctx context.Context) (converged bool, err error) {
	converged = true
	for {
		still, err := c.run(ctx)
		if err != nil {
			return false, err
		}
		converged = converged && still
		if !c.dissolve() {
			return converged, nil
		}
	}
}

// dissolve removes centres of fewer than centreRows rows, the smallest first and the last
// of equals, and assigns their rows to the nearest others. It reports whether there were
// any.
func (c *clustering) dissolve() (found bool) {
	n := len(c.rows.columns)
	members := c.members()
	for {
		least := 0
		for l, rows := range members {
			if len(rows) <= len(members[least]) {
				least = l
			}
		}
		orphans := members[least]
		if len(orphans) >= centreRows {
			break
		}
		found = true
		members = slices.Delete(members, least, least+1)
		c.z = slices.Delete(c.z, least*n, (least+1)*n)
		for _, i := range orphans {
			nearest, away := 0, math.Inf(1)
			for l := range members {
				if d := c.distance(i, l); d < away {
					nearest, away = l, d
				}
			}
			members[nearest] = append(members[nearest], i)
		}
	}
	for l, rows := range members {
		for _, i := range rows {
			c.nearest[i] = int32(l)
		}
	}
	return found
}

// distance is the distance of a row from a centre.
func (c *clustering) distance(row, centre int) (d float64) {
	n := len(c.rows.columns)
	for j, z := range c.z[centre*n:][:n] {
		away := c.rows.columns[j].At(row) - z
		if c.norm == OneNorm {
			d += math.Abs(away)
		} else {
			d = math.FMA(away, away, d)
		}
	}
	return d
}

// members returns the rows of each centre.
func (c *clustering) members() [][]int {
	members := make([][]int, len(c.z)/len(c.rows.columns))
	for i, l := range c.nearest {
		members[l] = append(members[l], i)
	}
	return members
}

// run iterates until no row moves.
func (c *clustering) run(ctx context.Context) (converged bool, err error) {
	for range maxTurns {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		c.centre()
		before := slices.Clone(c.nearest)
		for i := range c.away {
			c.away[i] = math.Inf(1)
		}
		c.assign(0)
		if slices.Equal(before, c.nearest) {
			return true, nil
		}
	}
	return false, nil
}

// centre moves the centres to the middle of their rows. A centre without rows stays.
func (c *clustering) centre() {
	n := len(c.rows.columns)
	members := c.members()
	weights := make([]float64, len(members))
	for i, l := range c.nearest {
		weights[l] += c.weight(i)
	}
	_ = parallel.For(c.workers, n, func(j int) error {
		x := make([]float64, len(c.nearest))
		c.rows.columns[j].Copy(x, 0)
		for l, rows := range members {
			switch {
			case len(rows) == 0:
			case c.norm == OneNorm:
				c.z[l*n+j] = c.median(x, rows, weights[l])
			default:
				// Sum about the old centre, so that a mean far from zero keeps
				// its digits.
				old, sum := c.z[l*n+j], 0.0
				for _, i := range rows {
					sum = math.FMA(c.weight(i), x[i]-old, sum)
				}
				c.z[l*n+j] = old + sum/weights[l]
			}
		}
		return nil
	})
}

// median is the least number of the rows with half of their weight at or below it.
func (c *clustering) median(x []float64, rows []int, weight float64) float64 {
	order := slices.Clone(rows)
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return a - b
	})
	below := 0.0
	for _, i := range order {
		if below += c.weight(i); 2*below >= weight {
			return x[i]
		}
	}
	return x[order[len(order)-1]]
}
