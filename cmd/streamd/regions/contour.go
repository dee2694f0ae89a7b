package regions

// contours gives the loops around the area where values, at the nodes of the
// grid, are zero or more: by marching squares (Lorensen and Cline 1987, in two
// dimensions), the area on the same side of each loop. Loops end at the frame,
// along which they are closed.
func contours(values []float64) [][]point {
	// A ring of nodes at the frame itself, which are outside, closes the loops.
	const n = nodes + 2
	at := func(r, k int) point {
		in := func(i int) float64 { return float64(cell * min(max(i-1, 0), nodes-1)) }
		return point{left + in(k), top + in(r)}
	}
	value := func(r, k int) float64 {
		if r == 0 || k == 0 || r == n-1 || k == n-1 {
			return -1
		}
		return values[(r-1)*nodes+k-1]
	}
	// An edge is numbered by its first node: 2i to the right of node i, 2i+1
	// below it. next leads from the edge by which a loop comes into a cell to the
	// one by which it leaves.
	const nowhere = -1
	next := make([]int32, 2*n*n)
	for i := range next {
		next[i] = nowhere
	}
	for r := range n - 1 {
		for k := range n - 1 {
			a, b, c, d := value(r, k), value(r, k+1), value(r+1, k+1), value(r+1, k)
			node := int32(r*n + k)
			upper, lower, before, after := 2*node, 2*(node+n), 2*node+1, 2*(node+1)+1
			shape := 0
			for bit, v := range []float64{a, b, c, d} {
				if v >= 0 {
					shape |= 1 << bit
				}
			}
			// The area is on the right as the loop goes, in a picture whose y
			// goes down.
			switch shape {
			case 1:
				next[upper] = before
			case 2:
				next[after] = upper
			case 3:
				next[after] = before
			case 4:
				next[lower] = after
			case 6:
				next[lower] = upper
			case 7:
				next[lower] = before
			case 8:
				next[before] = lower
			case 9:
				next[upper] = lower
			case 11:
				next[after] = lower
			case 12:
				next[before] = after
			case 13:
				next[upper] = after
			case 14:
				next[before] = upper
			case 5, 10: // opposite corners: the middle decides
				joined := a+b+c+d >= 0
				switch {
				case shape == 5 && joined:
					next[upper], next[lower] = after, before
				case shape == 5:
					next[upper], next[lower] = before, after
				case joined:
					next[after], next[before] = lower, upper
				default:
					next[after], next[before] = upper, lower
				}
			}
		}
	}
	crossing := func(edge int32) point {
		r, k := int(edge/2)/n, int(edge/2)%n
		r2, k2 := r, k+1
		if edge%2 == 1 {
			r2, k2 = r+1, k
		}
		p, q := at(r, k), at(r2, k2)
		v, w := value(r, k), value(r2, k2)
		t := v / (v - w)
		return point{p.x + t*(q.x-p.x), p.y + t*(q.y-p.y)}
	}
	var loops [][]point
	for first := range next {
		var loop []point
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

// borders are the parts of loops that do not run along the frame.
func borders(loops [][]point) (lines [][]point) {
	along := func(p, q point) bool {
		return p.x == q.x && (p.x == left || p.x == left+side) || p.y == q.y && (p.y == top || p.y == top+side)
	}
	for _, loop := range loops {
		var line []point
		for i, p := range loop {
			q := loop[(i+1)%len(loop)]
			if along(p, q) {
				line = nil
				continue
			}
			if line == nil {
				lines = append(lines, []point{p})
				line = lines[len(lines)-1]
			}
			line = append(line, q)
			lines[len(lines)-1] = line
		}
	}
	return lines
}
