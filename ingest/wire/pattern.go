package wire

import "bytes"

// pattern is how a row was written: what stood before its values, between and
// behind them. Most rows are like the one before in all but the values; a parser
// that finds the same text between those would read it in the same way, so only
// the values are read. Any other row is for the parser, which learns from it.
type pattern struct {
	head   []byte // before the first value
	steps  []step
	known  bool
	misses int // rows that were not like the one before

	learning bool
	end      int // of the last value so far
}

// step is a value and the text behind it up to the next, or to the end of the row.
// The assembly's generator knows where its fields are.
type step struct {
	behind []byte // aliases the text in hand
	to     int    // the column, or one of the roles
	others uint32 // bit k: byte k of 32 from where behind begins is not compared
	run    int32  // so many numbers, this one the first, can be read in one go
}

// compared is how much of the text behind a value is compared with one vector.
const compared = 32

// forget is for another text.
func (p *pattern) forget() { *p = pattern{steps: p.steps[:0]} }

// worthwhile is whether to go on looking for rows like the one before, after so many:
// where none is, one in 32 is looked at twice.
func (p *pattern) worthwhile(rows int) bool { return p.misses <= 8+rows/32 }

// begin is for the parser, about to read the row at b[i], of whose block it has read
// so many rows. The first one is not learned from, as many messages have no other.
func (p *pattern) begin(i, rows int) {
	if p.known {
		p.misses++
	}
	p.known, p.steps, p.end = false, p.steps[:0], i
	p.learning = rows > 0 && p.worthwhile(rows)
}

// value is the next of the row that is learned from.
func (p *pattern) value(b []byte, start, end, to int) {
	if n := len(p.steps); n > 0 {
		p.steps[n-1].behind = b[p.end:start]
	} else {
		p.head = b[p.end:start]
	}
	p.steps = append(p.steps, step{to: to})
	p.end = end
}

// finish is for the end of the row that is parsed.
func (p *pattern) finish(b []byte, end int) {
	n := len(p.steps)
	if !p.learning || n == 0 {
		return
	}
	p.steps[n-1].behind = b[p.end:end]
	run := int32(0)
	for k := n - 1; k >= 0; k-- {
		s := &p.steps[k]
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
		if hasNumbers && s.run > 0 {
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
		case reason != "" || !bytes.HasPrefix(b[i:], s.behind):
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
	d.push(code, weight)
	return i, true
}
