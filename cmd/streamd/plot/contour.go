package plot

import (
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// cells is the number of cells of the grid in each direction, and nodes that of
// its nodes.
const (
	cells = 280
	nodes = cells + 1
)

// regions is a plotter of the area of each class, and of the borders.
//
// Gonum's contour lines bound no area, and its heat map is a rectangle for each of
// the 78,400 cells. So the areas are drawn here.
type regions struct {
	// lead has the values of each class at the nodes of a grid over the data, row
	// by row from the lower left. The class has the nodes where its lead is
	// positive or zero.
	lead [][]float64
}

// Plot implements gonum's interface.
func (r regions) Plot(c draw.Canvas, _ *gonum.Plot) {
	paths := make([]vg.Path, len(r.lead))
	for of, values := range r.lead {
		for _, loop := range contours(values) {
			drawTo := paths[of].Move
			corners := straightened(loop)
			for _, p := range corners {
				drawTo(vg.Point{X: c.X(p.X), Y: c.Y(p.Y)})
				drawTo = paths[of].Line
			}
			if len(corners) > 0 { // not a single place
				paths[of].Close()
			}
		}
		if len(paths[of]) > 0 {
			c.SetColor(pale(classColour(of)))
			c.Fill(paths[of])
		}
	}
	if len(paths) == 2 {
		paths = paths[1:] // the border of one is the other's
	}
	c.SetLineStyle(borderStyle)
	for _, p := range paths {
		if len(p) > 0 {
			c.Stroke(p)
		}
	}
}

// straightened returns a loop without the points on the way along the frame, which has one at
// every node and two in its corners.
func straightened(loop []XY) (corners []XY) {
	last := loop[len(loop)-1]
	for i, p := range loop {
		next := loop[(i+1)%len(loop)]
		along := last.X == p.X && p.X == next.X || last.Y == p.Y && p.Y == next.Y
		if p != last && (!along || p == next) {
			corners, last = append(corners, p), p
		}
	}
	return corners
}

// contours returns the loops around the area where values, at the nodes of the grid,
// are zero or more. The grid is the unit square. The area is on the same side of
// each loop. Loops end at the frame, along which they are closed.
//
// These are marching squares (Lorensen and Cline 1987, in two dimensions). Values
// are linear along the edges of a cell; where opposite corners are inside, the mean
// of all four decides whether the cell joins them.
func contours(values []float64) [][]XY {
	// A ring of nodes at the frame itself, which are outside, closes the loops.
	const n = nodes + 2
	value := func(node int32) float64 {
		r, k := int(node/n)-1, int(node%n)-1
		if r < 0 || k < 0 || r == nodes || k == nodes {
			return -1
		}
		return values[r*nodes+k]
	}
	at := func(node int32) XY {
		in := func(i int32) float64 { return float64(min(max(i-1, 0), cells)) / cells }
		return XY{X: in(node % n), Y: in(node / n)}
	}
	// An edge is numbered by its first node: 2i to the right of node i, 2i+1 above
	// it. next leads from the edge by which a loop comes into a cell to the one by
	// which it leaves.
	const nowhere = -1
	next := make([]int32, 2*n*n)
	for i := range next {
		next[i] = nowhere
	}
	for node := range int32(n*n - n - 1) {
		if node%n == n-1 {
			continue
		}
		corners := [4]float64{value(node), value(node + 1), value(node + 1 + n), value(node + n)}
		edges := [4]int32{2 * node, 2*(node+1) + 1, 2 * (node + n), 2*node + 1}
		// Around the cell, the edge after corner i leads in or out of the area.
		out := func(i int) bool { return corners[i] >= 0 && corners[(i+1)%4] < 0 }
		in := func(i int) bool { return corners[i] < 0 && corners[(i+1)%4] >= 0 }
		step := 3 // back around the corner that is inside
		if corners[0]+corners[1]+corners[2]+corners[3] >= 0 {
			step = 1 // on around the corner that is outside
		}
		for i := range 4 {
			if !out(i) {
				continue
			}
			j := i
			for !in(j) {
				j = (j + step) % 4
			}
			next[edges[i]] = edges[j]
		}
	}
	crossing := func(edge int32) XY {
		from := edge / 2
		to := from + 1
		if edge%2 == 1 {
			to = from + n
		}
		p, q := at(from), at(to)
		v, w := value(from), value(to)
		t := v / (v - w)
		return XY{X: p.X + t*(q.X-p.X), Y: p.Y + t*(q.Y-p.Y)}
	}
	var loops [][]XY
	for first := range next {
		var loop []XY
		for edge := int32(first); next[edge] != nowhere; {
			loop = append(loop, crossing(edge))
			edge, next[edge] = next[edge], nowhere
		}
		if len(loop) > 2 {
			loops = append(loops, loop)
		}
	}
	return loops
}
