package kernels

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"streamd/incremental/gram"
)

// A Map is the reduced-kernel map x → K(x, Z) ∈ R^t for a basis Z of t points
// in R^n, or its projection to fewer coordinates (Projected).
type Map struct {
	kernel Kernel
	n, t   int
	z      []float64 // t×n, point by point

	mean, scale, inverse []float64 // of Scaled; nil otherwise
	projection           []float64 // of Projected, S×t, coordinate by coordinate; nil otherwise
}

// NewMap returns the map of the points z, one after the other, of n features each. It
// fails when there is no point, or one that is not finite. z is copied.
func NewMap(k Kernel, n int, z []float64) (*Map, error) {
	if n < 1 || len(z) == 0 || len(z)%n != 0 {
		return nil, fmt.Errorf("basis: %d numbers are not points of %d features", len(z), n)
	}
	for i, x := range z {
		if x-x != 0 {
			return nil, fmt.Errorf("basis: feature %d of point %d is %v", i%n+1, i/n+1, x)
		}
	}
	z = slices.Clone(z)
	for i := range z {
		z[i] += 0 // −0 becomes 0, so that equal points have one digest
	}
	return &Map{kernel: k, n: n, t: len(z) / n, z: z}, nil
}

// Scaled returns the map x → K((x − μ)/σ, Z), which brings features of different units to
// one scale. The points of the basis are in the scaled coordinates. It fails unless every
// mean is finite and every σ and 1/σ is finite and positive. Both slices are copied.
func (m *Map) Scaled(mean, scale []float64) (*Map, error) {
	if len(mean) != m.n || len(scale) != m.n {
		return nil, fmt.Errorf("basis: %d means and %d scales of %d features", len(mean), len(scale), m.n)
	}
	scaled := *m
	scaled.mean, scaled.scale = slices.Clone(mean), slices.Clone(scale)
	scaled.inverse = make([]float64, m.n)
	for j, s := range scale {
		scaled.inverse[j] = 1 / s
		if !(s > 0) || math.IsInf(s, 0) || math.IsInf(scaled.inverse[j], 0) || mean[j]-mean[j] != 0 {
			return nil, fmt.Errorf("basis: feature %d is to be scaled by mean %v and deviation %v", j+1, mean[j], s)
		}
	}
	return &scaled, nil
}

// Scaling returns μ and σ of a map made by Scaled, and nil for others. They must not be
// written to.
func (m *Map) Scaling() (mean, scale []float64) { return m.mean, m.scale }

// Gram is K(Z, Z), the packed lower triangle of t×t numbers, and PK(Z, Z)P' of a projected
// map: u'Gu is the squared norm of a function with the coefficients u in the kernel's space.
func (m *Map) Gram() []float64 {
	if m.projection != nil {
		return m.projectedGram()
	}
	gram := make([]float64, 0, m.t*(m.t+1)/2)
	for i := range m.t {
		for j := range i + 1 {
			gram = append(gram, m.kernel.Value(m.kernel.Argument(m.Point(i), m.Point(j))))
		}
	}
	return gram
}

// Kernel is the kernel function.
func (m *Map) Kernel() Kernel { return m.kernel }

// Points is t.
func (m *Map) Points() int { return m.t }

// Names names the coordinates: z1, z2, … for points, and v1, v2, … of a projected map.
func (m *Map) Names() []string {
	letter := "z"
	if m.projection != nil {
		letter = "v"
	}
	names := make([]string, m.Size())
	for i := range names {
		names[i] = letter + strconv.Itoa(i+1)
	}
	return names
}

// Point is point i of the basis. It must not be written to.
func (m *Map) Point(i int) []float64 { return m.z[i*m.n:][:m.n:m.n] }

const (
	lanes    = 8       // rows that are computed together
	tileSize = 1 << 15 // largest number of numbers in a tile of more than lanes rows
)

// A Mapper applies a Map to blocks. It keeps working memory, 8 bytes for each
// row and coordinate, from one block to the next.
type Mapper struct {
	m       *Map
	variant *variant
	tile    []float64 // n columns
	values  []float64 // K(x, Z) of a tile of a projected map, t columns
	out     []float64 // a column for each coordinate
	columns []gram.Column
}

// A variant is one implementation. All variants compute the same bits. tile holds n
// columns, pitch numbers apart, of rows numbers, a multiple of lanes. z holds the points.
// The results for point i go to out[i·stride:].
type variant struct {
	name string
	// missing names a feature that the variant needs and the processor lacks.
	missing string
	// squares computes ‖x−z‖², products x'z.
	squares, products func(out []float64, stride int, tile []float64, pitch int, z []float64, n, rows int)
	// gaussian turns the numbers s of v, a multiple of lanes, into exp(−γs).
	gaussian func(v []float64, gamma float64)
}

var reference = variant{name: "reference", squares: squares, products: products, gaussian: gaussianAll}

// NewMapper returns a Mapper for m.
func NewMapper(m *Map) *Mapper {
	return &Mapper{m: m, variant: fastest, columns: make([]gram.Column, m.Size())}
}

// Map computes the coordinates of the rows of n columns and returns a column of float64 for
// each, valid until the next call. A row with a number that is NaN or infinite, or too large
// to be squared, has NaN in all coordinates. Map panics unless there are n columns of the
// same length.
//
// The cost is rows·Work multiply-adds and, for a Gaussian, rows·t exponentials.
func (p *Mapper) Map(columns []gram.Column) []gram.Column {
	out, _ := p.MapContext(context.Background(), columns)
	return out
}

// MapContext is Map that stops when ctx ends and returns its cause. It checks ctx once
// per tile of rows.
func (p *Mapper) MapContext(ctx context.Context, columns []gram.Column) ([]gram.Column, error) {
	m := p.m
	if len(columns) != m.n {
		panic(fmt.Sprintf("kernels: %d columns for a basis of %d features", len(columns), m.n))
	}
	rows := columns[0].Len()
	for j, c := range columns {
		if c.Len() != rows {
			panic(fmt.Sprintf("kernels: column %d has %d of %d rows", j, c.Len(), rows))
		}
	}
	height := min(gram.TileRows, max(tileSize/m.n/lanes*lanes, lanes))
	p.tile = slices.Grow(p.tile[:0], m.n*gram.TileStride)[:m.n*gram.TileStride]
	stride := (rows+lanes-1)/lanes*lanes + lanes
	p.out = slices.Grow(p.out[:0], len(p.columns)*stride)[:len(p.columns)*stride]
	if m.projection != nil {
		p.values = slices.Grow(p.values[:0], m.t*gram.TileStride)[:m.t*gram.TileStride]
	}
	sum := p.variant.products
	if m.kernel.Radial() {
		sum = p.variant.squares
	}
	for from := 0; from < rows; from += height {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		some := min(height, rows-from)
		padded := (some + lanes - 1) / lanes * lanes
		gram.Pack(p.tile, columns, from, from+some)
		for j := range columns {
			column := p.tile[j*gram.TileStride:][:padded]
			if m.mean != nil {
				mean, inverse := m.mean[j], m.inverse[j]
				for i, x := range column[:some] {
					column[i] = (x - mean) * inverse
				}
			}
			clear(column[some:])
		}
		values, pitch := p.out[from:], stride
		if m.projection != nil {
			values, pitch = p.values, gram.TileStride
		}
		sum(values, pitch, p.tile, gram.TileStride, m.z, m.n, padded)
		for i := range m.t {
			v := values[i*pitch:][:padded]
			if m.kernel.form == gaussian {
				p.variant.gaussian(v, m.kernel.a)
				continue
			}
			for r, s := range v {
				v[r] = m.kernel.Value(s)
			}
		}
		if m.projection == nil {
			continue
		}
		p.variant.products(p.out[from:], stride, values, pitch, m.projection, m.t, padded)
		for i := range p.columns {
			for r, v := range p.out[i*stride+from:][:some] {
				p.out[i*stride+from+r] = addable(v)
			}
		}
	}
	for i := range p.columns {
		p.columns[i] = gram.ColumnOf(p.out[i*stride:][:rows:rows])
	}
	return p.columns, nil
}

// squares, products and gaussianAll define the bits of every faster variant.
func squares(out []float64, stride int, tile []float64, pitch int, z []float64, n, rows int) {
	for i := 0; i*n < len(z); i++ {
		o := out[i*stride:][:rows]
		for r := 0; r < rows; r += lanes {
			var s0, s1, s2, s3, s4, s5, s6, s7 float64
			for j, zj := range z[i*n:][:n] {
				x := (*[lanes]float64)(tile[j*pitch+r:])
				d0, d1, d2, d3 := x[0]-zj, x[1]-zj, x[2]-zj, x[3]-zj
				d4, d5, d6, d7 := x[4]-zj, x[5]-zj, x[6]-zj, x[7]-zj
				s0, s1, s2, s3 = math.FMA(d0, d0, s0), math.FMA(d1, d1, s1), math.FMA(d2, d2, s2), math.FMA(d3, d3, s3)
				s4, s5, s6, s7 = math.FMA(d4, d4, s4), math.FMA(d5, d5, s5), math.FMA(d6, d6, s6), math.FMA(d7, d7, s7)
			}
			*(*[lanes]float64)(o[r:]) = [lanes]float64{s0, s1, s2, s3, s4, s5, s6, s7}
		}
	}
}

func products(out []float64, stride int, tile []float64, pitch int, z []float64, n, rows int) {
	for i := 0; i*n < len(z); i++ {
		o := out[i*stride:][:rows]
		for r := 0; r < rows; r += lanes {
			var s0, s1, s2, s3, s4, s5, s6, s7 float64
			for j, zj := range z[i*n:][:n] {
				x := (*[lanes]float64)(tile[j*pitch+r:])
				s0, s1, s2, s3 = math.FMA(x[0], zj, s0), math.FMA(x[1], zj, s1), math.FMA(x[2], zj, s2), math.FMA(x[3], zj, s3)
				s4, s5, s6, s7 = math.FMA(x[4], zj, s4), math.FMA(x[5], zj, s5), math.FMA(x[6], zj, s6), math.FMA(x[7], zj, s7)
			}
			*(*[lanes]float64)(o[r:]) = [lanes]float64{s0, s1, s2, s3, s4, s5, s6, s7}
		}
	}
}

func gaussianAll(v []float64, gamma float64) {
	for i, s := range v {
		if s-s != 0 {
			v[i] = math.NaN()
			continue
		}
		v[i] = gaussianOf(gamma, s)
	}
}
