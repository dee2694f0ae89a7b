package ndc

import (
	"fmt"
	"math"
	"strconv"
)

// Separability says how far the clusters reach into one another. The zero value
// is Musicant's default, an expansion factor of 10.
type Separability struct {
	// One of the two is 0.
	expansion   float64
	correctness float64 // of the PSVM plane of infinitely many points
}

// The sets of Fung 2003, table 2.4, whose linear PSVM gets 90 to 91 % and 70 %
// of two million points of 10 features right.
var (
	Easy = Separability{correctness: 0.906}
	Hard = Separability{correctness: 0.699}
)

// Expansion is a separability given by the expansion factor x > 0.
func Expansion(x float64) Separability { return Separability{expansion: x} }

// ParseSeparability reads "easy", "hard" or an expansion factor.
func ParseSeparability(text string) (Separability, error) {
	switch text {
	case "easy":
		return Easy, nil
	case "hard":
		return Hard, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return Separability{}, fmt.Errorf("ndc: separability %q: give easy, hard or an expansion factor above 0", text)
	}
	return Expansion(x), nil
}

// String is the inverse of ParseSeparability.
func (s Separability) String() string {
	switch s {
	case Easy:
		return "easy"
	case Hard:
		return "hard"
	}
	return strconv.FormatFloat(s.factor(), 'g', -1, 64)
}

// UnmarshalText is ParseSeparability.
func (s *Separability) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSeparability(string(text))
	return err
}

// MarshalText is String.
func (s Separability) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Separability) factor() float64 {
	if s == (Separability{}) {
		return 10
	}
	return s.expansion
}

const (
	// MaxCalibrated bounds the features of an Easy or Hard set: the search for
	// its expansion factor takes 10n³ multiplications.
	MaxCalibrated = 1024

	maxDraws = 64

	// factorUnit and maxFactor are the grid and the end of the search.
	factorUnit = 1000
	maxFactor  = 1000

	// A class's share of the points must be smaller than the wanted correctness by
	// this. Otherwise the clusters would have to grow into one to be so inseparable.
	lopsided = 0.05
)

// calibrate finds the first draw of a key, and the expansion factor, for which the PSVM
// plane of the population is right as often as s asks. The roots are still those of x =
// 1/2.
func calibrate(key uint64, n int, s Separability) (*geometry, float64, error) {
	if n > MaxCalibrated {
		return nil, 0, fmt.Errorf("%s with %d features: the expansion factor is worked out for up to %d; give it as a number", s, n, MaxCalibrated)
	}
	for draw := range uint64(maxDraws) {
		g, roots := drawGeometry(key, draw, n)
		positive := g.positiveShare()
		if max(positive, 1-positive) > s.correctness-lopsided {
			continue
		}
		g.drawRoots(roots)
		p := newPopulation(g)
		lo, hi := 1, min(maxFactor, maxReach/n)*factorUnit
		if p.correctness(1./factorUnit) < s.correctness || p.correctness(float64(hi)/factorUnit) >= s.correctness {
			continue
		}
		for hi-lo > 1 {
			mid := lo + (hi-lo)/2
			if p.correctness(float64(mid)/factorUnit) >= s.correctness {
				lo = mid
			} else {
				hi = mid
			}
		}
		return g, float64(lo) / factorUnit, nil
	}
	return nil, 0, fmt.Errorf("%s with %d features: no expansion factor makes such points; take another seed or give a factor", s, n)
}

func (g *geometry) positiveShare() float64 {
	var sum float64
	for k, class := range g.class {
		sum += float64(g.share[k] * float64(class))
	}
	return sum
}

// population is the distribution of the points for any expansion factor x: their
// covariance is between + x²·within + I/12. The last term is for the rounding of
// coordinates.
type population struct {
	*geometry
	mean            []float64 // n
	meanLabel       float64
	between, within []float64 // n×n, lower triangles
	withLabel       []float64 // n: the covariance of the features with the label ±1

	a, plane, projected []float64 // scratch: n×n, n, n
}

func newPopulation(g *geometry) *population {
	n := g.n
	p := &population{
		geometry: g, mean: make([]float64, n), meanLabel: float64(2*g.positiveShare()) - 1,
		between: make([]float64, n*n), within: make([]float64, n*n), withLabel: make([]float64, n),
		a: make([]float64, n*n), plane: make([]float64, n), projected: make([]float64, n),
	}
	for k, share := range g.share {
		for j, c := range g.centreOf(k) {
			p.mean[j] += float64(share * c)
		}
	}
	off := make([]float64, n)
	for k, share := range g.share {
		for j, c := range g.centreOf(k) {
			off[j] = c - p.mean[j]
		}
		root := g.rootOf(k)
		for i := range n {
			p.withLabel[i] += float64(float64(share*(g.label(k)-p.meanLabel)) * off[i])
			for j := range i + 1 {
				p.between[i*n+j] += float64(share * float64(off[i]*off[j]))
				// (2x)² for a root drawn at x = 1/2.
				p.within[i*n+j] += float64(4 * share * dot(root[i*n:][:n], root[j*n:][:n]))
			}
		}
	}
	return p
}

func (g *geometry) label(k int) float64 { return float64(2*g.class[k] - 1) }

// correctness is the share of points that the least-squares plane classifies correctly at
// expansion factor x. That plane is PSVM's (Fung 2003, 2.28) for so many points that ν
// has no effect. The result is 0 if there is no such plane.
func (p *population) correctness(x float64) float64 {
	n, x2 := p.n, float64(x*x)
	for i := range n {
		for j := range i + 1 {
			p.a[i*n+j] = p.between[i*n+j] + float64(x2*p.within[i*n+j])
		}
		p.a[i*n+i] += 1. / 12
	}
	copy(p.plane, p.withLabel)
	if !solve(p.a, p.plane) {
		return 0
	}
	gamma := dot(p.plane, p.mean) - p.meanLabel
	rounding := dot(p.plane, p.plane) / 12
	var right float64
	for k, share := range p.share {
		// Rw, for R' in rows: its length is the spread of the cluster across
		// the plane.
		clear(p.projected)
		root := p.rootOf(k)
		for j, w := range p.plane {
			for i, r := range root[j*n:][:n] {
				p.projected[i] += float64(w * r)
			}
		}
		spread := math.Sqrt(float64(4*x2*dot(p.projected, p.projected)) + rounding)
		margin := float64(p.label(k) * (dot(p.centreOf(k), p.plane) - gamma))
		right += float64(share * float64(0.5*math.Erfc(float64(-margin/spread)*math.Sqrt2/2)))
	}
	return right
}

// solve replaces b by the solution of Ay = b. A is symmetric, and a holds its lower
// triangle, which becomes A's Cholesky factor. It returns false if A is not positive
// definite.
func solve(a, b []float64) bool {
	n := len(b)
	for i := range n {
		row := a[i*n:][:i+1]
		for j := range i {
			row[j] = (row[j] - dot(row[:j], a[j*n:][:j])) / a[j*n+j]
		}
		pivot := row[i] - dot(row[:i], row[:i])
		if !(pivot > 0) {
			return false
		}
		row[i] = math.Sqrt(pivot)
		b[i] = (b[i] - dot(row[:i], b[:i])) / row[i]
	}
	for i := n - 1; i >= 0; i-- {
		b[i] /= a[i*n+i]
		for j, v := range a[i*n:][:i] {
			b[j] -= float64(v * b[i])
		}
	}
	return true
}
