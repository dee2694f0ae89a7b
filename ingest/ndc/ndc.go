package ndc

import "fmt"

const (
	// MaxFeatures bounds Config.Features. The roots take 160·n² bytes.
	MaxFeatures = 4096
	// MaxPoints is the number of points in a stream.
	MaxPoints int64 = 1 << 48

	centres = 20

	// A coordinate is at most 50 + n·2x·6.3, so this keeps it below 2^24.
	maxReach = 1 << 20 // n·x
)

// Config names a set of points.
type Config struct {
	Features     int // n, 1 to MaxFeatures
	Separability Separability
	Seed         uint64
	Drift        Drift
}

// Stream names one of the two sequences of points that share centres, roots,
// shares and plane, and no point.
type Stream uint8

const (
	Train Stream = iota
	Test
)

// Classes are the labels of the two classes, indexed by a point's code.
func Classes() []string { return []string{"-1", "1"} }

// Generator is one set of clusters. It is immutable, and any number of Samplers may read
// it at the same time.
type Generator struct {
	*geometry
	expansion float64
	key       uint64
	normals   *segments
	drift     Drift
	next      *Generator // of the next seed, where there is a drift
}

// New draws the clusters. It fails if the configuration is out of bounds, or if no draw
// of the seed reaches its separability.
func New(cfg Config) (*Generator, error) {
	n := cfg.Features
	if n < 1 || n > MaxFeatures {
		return nil, fmt.Errorf("ndc: %d features: 1 to %d can be made", n, MaxFeatures)
	}
	if err := cfg.Drift.Check(); err != nil {
		return nil, err
	}
	g := &Generator{key: mix(cfg.Seed + step), normals: normalTable(), drift: cfg.Drift}
	if cfg.Drift != (Drift{}) {
		next := cfg
		next.Seed, next.Drift = cfg.Seed+1, Drift{}
		var err error
		if g.next, err = New(next); err != nil {
			return nil, err
		}
	}
	if s := cfg.Separability; s.correctness == 0 {
		g.expansion = s.factor()
		if !(g.expansion > 0 && g.expansion*float64(n) <= maxReach) {
			return nil, fmt.Errorf("ndc: expansion factor %v with %d features: it must be above 0 and at most %v, beyond which float32 cannot hold the points",
				g.expansion, n, float64(maxReach)/float64(n))
		}
		var roots words
		g.geometry, roots = drawGeometry(g.key, 0, n)
		g.drawRoots(roots)
	} else {
		var err error
		if g.geometry, g.expansion, err = calibrate(g.key, n, s); err != nil {
			return nil, fmt.Errorf("ndc: seed %d: %w", cfg.Seed, err)
		}
	}
	for i, u := range g.roots {
		g.roots[i] = float64(u * (2 * g.expansion))
	}
	return g, nil
}

// Features is n.
func (g *Generator) Features() int { return g.n }

// Expansion is the expansion factor, given or found.
func (g *Generator) Expansion() float64 { return g.expansion }

// geometry is the distribution of the points.
type geometry struct {
	n      int
	share  [centres]float64
	centre []float64      // 20×n
	class  [centres]int32 // an index of Classes
	// The plane x'w = γ determines the centres' classes.
	w     []float64 // n
	gamma float64

	// roots holds R' of each centre, one after another: column j of R_k is
	// contiguous, from k·n² + j·n.
	roots []float64

	// Centre k is picked by the 32-bit numbers from upTo[k-1] to below upTo[k].
	// guide[b] is the first centre that one with the leading byte b can pick.
	upTo  [centres]uint64
	guide [256]uint8
}

// drawGeometry makes one draw of a key, without the roots. It returns the place where the
// words of the roots begin.
func drawGeometry(key, draw uint64, n int) (*geometry, words) {
	from := wordsAt(key, quarterGeometry+draw*drawStride)
	g := &geometry{n: n, centre: make([]float64, centres*n), w: make([]float64, n)}

	var total float64
	for k := range g.share {
		g.share[k] = from.uniform()
		total += g.share[k]
	}
	var sum float64
	for k := range g.share {
		sum += g.share[k]
		g.share[k] /= total
		g.upTo[k] = uint64(sum / total * 0x1p32)
	}
	g.upTo[centres-1] = 1 << 32 // sum/total may have fallen short of 1
	k := 0
	for b := range g.guide {
		for uint64(b)<<24 >= g.upTo[k] {
			k++
		}
		g.guide[b] = uint8(k)
	}

	for j := range g.w {
		g.w[j] = float64(4*from.uniform()) - 2
	}
	g.gamma = float64(10*from.uniform()) - 5
	for i := range g.centre {
		g.centre[i] = round(float64(100*from.uniform()) - 50)
	}
	for k := range g.class {
		if dot(g.centreOf(k), g.w) >= g.gamma {
			g.class[k] = 1
		}
	}
	return g, from
}

// drawRoots draws the roots for x = 1/2: entries uniform on [0, 1).
func (g *geometry) drawRoots(from words) {
	g.roots = make([]float64, centres*g.n*g.n)
	for i := range g.roots {
		g.roots[i] = from.uniform()
	}
}

func (g *geometry) centreOf(k int) []float64 { return g.centre[k*g.n:][:g.n] }

func (g *geometry) rootOf(k int) []float64 { return g.roots[k*g.n*g.n:][:g.n*g.n] }

// pick is the centre of a word.
func (g *geometry) pick(word uint64) int {
	u := word >> 32
	k := int(g.guide[u>>24])
	for u >= g.upTo[k] {
		k++
	}
	return k
}

// dot is x'y, summed in order, every product rounded.
func dot(x, y []float64) float64 {
	var sum float64
	for i, v := range x {
		sum += float64(v * y[i])
	}
	return sum
}
