package wire

import "bytes"

// pattern is how a row was written: what stood before its values, between and
// behind them. Most rows are like the one before in all but the values; a parser
// that finds the same text between those would read it in the same way, so only
// the values are read. Any other row is for the parser, which learns from it.
type pattern struct {
	format     Format
	unlabelled bool

	head  []byte // before the first value
	steps []step
	known bool

	// Of the block's rows, if they are of JSON.
	shape jsonShape
	width int
	names names

	rows, misses int // of those the ones that were not like the one before

	// While a row is learned from.
	learning bool
	end      int // of the last value so far
	text     []byte
	ends     []int // in text, of head and what is behind each value
}

// step is a value and the text behind it up to the next, or to the end of the row.
// The assembly's generator knows where its fields are.
type step struct {
	behind []byte // as many bytes as are compared can be read there
	to     int    // the column, or one of the roles
	others uint32 // bit k: byte k of 32 from where behind begins is not compared
	run    int32  // so many numbers, this one the first, can be read in one go
}

// compared is how much of the text behind a value is compared with one vector.
const compared = 32

// forget is for rows that cannot be like those so far.
func (p *pattern) forget(d *Decoder) {
	*p = pattern{format: d.format, unlabelled: d.unlabelled, steps: p.steps[:0], text: p.text[:0], ends: p.ends[:0]}
}

// worthwhile is whether to go on looking for rows like the one before: where none is,
// one in 32 is looked at twice.
func (p *pattern) worthwhile() bool {
	if p.rows > 1<<16 { // a stream may change
		p.rows, p.misses = p.rows/2, p.misses/2
	}
	return p.misses <= 8+p.rows/32
}

// begin is for the parser, about to read the row at b[i].
func (p *pattern) begin(i int) {
	p.rows++
	if p.known {
		p.known = false
		p.misses++
	}
	if p.learning = p.worthwhile(); p.learning {
		p.steps, p.text, p.ends, p.end = p.steps[:0], p.text[:0], p.ends[:0], i
	}
}

// value is the next of the row that is learned from.
func (p *pattern) value(b []byte, start, end, to int) {
	p.text = append(p.text, b[p.end:start]...)
	p.steps, p.ends = append(p.steps, step{to: to}), append(p.ends, len(p.text))
	p.end = end
}

// finish is for the end of the row that is learned from.
func (p *pattern) finish(b []byte, end int) {
	n := len(p.steps)
	if n == 0 || end == p.end {
		return
	}
	p.text = append(p.text, b[p.end:end]...)
	p.ends = append(p.ends, len(p.text))
	p.text = append(p.text, make([]byte, compared)...)
	p.head = p.text[:p.ends[0]]
	run := int32(0)
	for k := n - 1; k >= 0; k-- {
		s := &p.steps[k]
		s.behind = p.text[p.ends[k]:p.ends[k+1]]
		if s.others = 0; len(s.behind) < compared {
			s.others = ^uint32(0) << len(s.behind)
		} else if len(s.behind) > compared {
			run = 0 // the rest is compared before the next value is read
		}
		if run++; s.to < 0 {
			run = 0
		}
		s.run = run
	}
	p.known = true
}

// inReach is whether there is a kernel that can read a number at b[i]: it looks 32
// bytes back and 67 ahead.
func inReach(b []byte, i int) bool { return hasNumbers && i >= 32 && i <= len(b)-67 }

// likeBefore reads the row at d.text[i] if it is like the one before. If not, or if
// there is anything wrong with it, false: it is for the parser.
func (d *Decoder) likeBefore(i int) (end int, ok bool) {
	p, b := &d.pattern, d.text
	if !p.known || !bytes.HasPrefix(b[i:], p.head) {
		return 0, false
	}
	i += len(p.head)
	code, weight := int32(0), 1.0
	for k := 0; k < len(p.steps); {
		s := &p.steps[k]
		if s.run > 0 && inReach(b, i) {
			if done, end := plainNumbers(d.row, b, p.steps[k:k+int(s.run)], i); done > 0 {
				k += done
				if behind := p.steps[k-1].behind; len(behind) > compared && !bytes.HasPrefix(b[end-len(behind):], behind) {
					return 0, false
				}
				i = end
				continue
			}
		}
		var x float64
		var reason string
		switch {
		case s.to == roleLabel && d.format == JSON:
			code, i, reason = d.jsonLabel(i)
		case s.to == roleLabel:
			from := i
			if code, i, reason = d.libsvmLabel(b, i); i == from {
				return 0, false // perhaps there is nothing on the line
			}
		default:
			x, i, reason = jsonNumber(b, i)
		}
		switch {
		case reason != "" || i == len(b) || b[i] != s.behind[0] || len(s.behind) > 1 && !bytes.HasPrefix(b[i:], s.behind):
			return 0, false
		case s.to >= 0:
			d.row[s.to] = x
		case s.to == roleWeight:
			if weight = x; !d.unlabelled && badWeight(x) != "" {
				return 0, false
			}
		}
		i += len(s.behind)
		k++
	}
	p.rows++
	d.push(code, weight)
	return i, true
}
