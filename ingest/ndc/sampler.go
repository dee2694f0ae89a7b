package ndc

import (
	"fmt"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// groupRows is the number of rows that placeGroups makes together.
const groupRows = 16

// Sampler makes the points of a Generator. It is not safe for concurrent use; make one
// for each worker.
type Sampler struct {
	g *Generator

	// Points are made in batches, and the rows of one centre in a batch together, so
	// that a column of the centre's root is read once for several rows.
	batch   int
	centre  []uint8        // of each row of the batch
	order   []int32        // the rows of the batch by centre
	end     [centres]int32 // where each centre's rows end in order
	groups  bool           // whether placeGroups makes the points
	normals []float64      // of a centre's rows, one after another, or of a group

	next *Sampler // of the next seed, where there is a drift

	// The memory of Block.
	block   incremental.Block
	columns [][]float32
}

// NewSampler returns a worker's sampler. Fill does not allocate, and Block only
// when a block is larger than any before.
func (g *Generator) NewSampler() *Sampler { return g.newSampler(hasGroups) }

func (g *Generator) newSampler(groups bool) *Sampler {
	// The normals of a batch stay in a cache of half a megabyte up to a thousand
	// features, and each centre has a few rows.
	batch := max(64, min(512, 1<<16/g.n))
	normals := batch * g.n
	if groups {
		// Nearly all groups are whole.
		batch, normals = 4096, groupRows*(g.n+g.n%2)
	}
	s := &Sampler{
		g:       g,
		batch:   batch,
		centre:  make([]uint8, batch),
		order:   make([]int32, batch),
		groups:  groups,
		normals: make([]float64, normals),
		block:   incremental.Block{Classes: Classes(), Columns: make([]gram.Column, g.n)},
		columns: make([][]float32, g.n),
	}
	if g.next != nil {
		s.next = g.next.newSampler(groups)
	}
	return s
}

// Fill makes points first to first + len(codes) − 1 of a stream: coordinate j
// of the i-th goes to columns[j][i] and its class, an index of Classes, to
// codes[i]. It panics unless there are n columns of at least len(codes) values
// and the points are in [0, MaxPoints).
func (s *Sampler) Fill(columns [][]float32, codes []int32, stream Stream, first int64) {
	if len(columns) != s.g.n {
		panic(fmt.Sprintf("ndc: %d columns for points of %d features", len(columns), s.g.n))
	}
	for j, column := range columns {
		if len(column) < len(codes) {
			panic(fmt.Sprintf("ndc: column %d has room for %d of %d points", j, len(column), len(codes)))
		}
	}
	if first < 0 || first > MaxPoints-int64(len(codes)) {
		panic(fmt.Sprintf("ndc: %d points from %d: a stream has %d", len(codes), first, MaxPoints))
	}
	if stream > Test {
		panic(fmt.Sprintf("ndc: stream %d", stream))
	}
	if s.next != nil {
		s.drift(columns, codes, stream, first)
		return
	}
	s.fill(columns, codes, stream, first)
}

// fill is Fill without a drift.
func (s *Sampler) fill(columns [][]float32, codes []int32, stream Stream, first int64) {
	var quarter uint64
	switch stream {
	case Train:
		quarter = quarterTrain
	case Test:
		quarter = quarterTest
	}
	perPoint := 1 + uint64(s.g.n+1)/2
	from, stride := wordsAt(s.g.key, quarter+uint64(first)*perPoint), words(perPoint*step)
	for done := 0; done < len(codes); done += s.batch {
		rows := codes[done:min(done+s.batch, len(codes))]
		s.pick(rows, from, stride)
		s.sort(len(rows))
		var begin int32
		for k, end := range s.end {
			c := cluster{s.g.centreOf(k), s.g.rootOf(k), s.order[begin:end], columns, done, from + step, stride}
			if s.groups {
				s.placeGroups(&c)
			} else {
				s.place(&c)
			}
			begin = end
		}
		from += words(len(rows)) * stride
	}
}

// Block makes count points as Fill does, as a block of columns of float32. The
// block and its memory are the sampler's and valid until the next call of Block.
func (s *Sampler) Block(stream Stream, first int64, count int) *incremental.Block {
	if cap(s.block.Codes) < count {
		s.block.Codes = make([]int32, count)
		values := make([]float32, count*s.g.n)
		for j := range s.columns {
			s.columns[j] = values[j*count:][:count:count]
		}
	}
	s.block.Codes = s.block.Codes[:count]
	s.Fill(s.columns, s.block.Codes, stream, first)
	for j, column := range s.columns {
		s.block.Columns[j] = gram.ColumnOf(column[:count])
	}
	return &s.block
}

// pick picks the centres of points. Their first words are stride apart, beginning at
// from.
func (s *Sampler) pick(codes []int32, from, stride words) {
	for r := range codes {
		k := s.g.pick(mix(uint64(from)))
		s.centre[r] = uint8(k)
		codes[r] = s.g.class[k]
		from += stride
	}
}

// sort lists the rows of the batch by centre.
func (s *Sampler) sort(rows int) {
	var counts [centres]int32
	for _, k := range s.centre[:rows] {
		counts[k]++
	}
	var at int32
	for k, count := range counts {
		s.end[k] = at // for now: where the centre's rows begin
		at += count
	}
	for r, k := range s.centre[:rows] {
		s.order[s.end[k]] = int32(r)
		s.end[k]++
	}
}

// cluster is the part of a batch that has one centre.
type cluster struct {
	centre, root []float64
	rows         []int32
	columns      [][]float32
	base         int // where row 0 goes

	// The words for the normals of row r begin at from + r·stride.
	from, stride words
}

// place computes round(c + zR) for the rows of a cluster.
func (s *Sampler) place(c *cluster) {
	n := s.g.n
	for i, r := range c.rows {
		s.g.normals.fill(s.normals[i*n:][:n], c.from+words(r)*c.stride)
	}
	last := len(c.rows) - 1
	for j := 0; j < n; j += 2 {
		// A tile that is cut short repeats its last column or row.
		j1 := min(j+1, n-1)
		ra, rb := c.root[j*n:][:n], c.root[j1*n:][:n]
		xa, xb := c.columns[j][c.base:], c.columns[j1][c.base:]
		for i := 0; i <= last; i += 3 {
			i1, i2 := min(i+1, last), min(i+2, last)
			r0, r1, r2 := c.rows[i], c.rows[i1], c.rows[i2]
			a0, a1, a2, b0, b1, b2 := tile(c.centre[j], c.centre[j1], ra, rb,
				s.normals[i*n:], s.normals[i1*n:], s.normals[i2*n:])
			xa[r0], xb[r0] = float32(round(a0)), float32(round(b0))
			xa[r1], xb[r1] = float32(round(a1)), float32(round(b1))
			xa[r2], xb[r2] = float32(round(a2)), float32(round(b2))
		}
	}
}

// tile is a + z'ra and b + z'rb for three z. Each is summed in order, so the tiling does
// not affect the result. Three by two sums are the most that the compiler holds in
// registers, and only in a function of its own.
//
//go:noinline
func tile(a, b float64, ra, rb, z0, z1, z2 []float64) (a0, a1, a2, b0, b1, b2 float64) {
	n := len(ra)
	rb, z0, z1, z2 = rb[:n], z0[:n], z1[:n], z2[:n]
	a0, a1, a2, b0, b1, b2 = a, a, a, b, b, b
	for i, u := range ra {
		v := rb[i]
		z := z0[i]
		a0 += float64(z * u)
		b0 += float64(z * v)
		z = z1[i]
		a1 += float64(z * u)
		b1 += float64(z * v)
		z = z2[i]
		a2 += float64(z * u)
		b2 += float64(z * v)
	}
	return a0, a1, a2, b0, b1, b2
}
