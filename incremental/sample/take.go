package sample

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// A Taker takes the parts of blocks. It keeps working memory from one block to
// the next and is not safe for concurrent use.
type Taker struct {
	floor []int       // the level from which rows are taken, by class code
	code  []int32     // the index among the part's classes, by class code
	rows  []int32     // the rows in the order of their index, if it is another one
	taken []candidate // by ascending index

	labels []string // of the last block

	singles [][]float32 // the columns that are float32

	at []int32             // some taken rows, in the block
	to [][]uint32          // the numbers of these rows, in the part
	x  [copiedRows]float64 // a column of them
}

// copiedRows are copied together, column by column. So many of a hundred columns are in the cache.
const copiedRows = 64

type candidate struct {
	row   int32
	index uint32 // among the rows of weight > 0, those with a label first
	level uint8
	piece uint8
}

// Take takes the part of a block from the levels on. digest is the LabelledDigest and
// totals are the Totals of the block's summary.
func (t *Taker) Take(b *incremental.Block, digest [sha256.Size]byte, totals []incremental.ClassTotal, l *Levels) *Part {
	p := &Part{seed: l.settings.Seed, digest: digest, n: len(b.Columns), labels: t.labelsOf(totals)}
	p.classes = slices.Grow(p.two[:0], len(totals))
	m := int64(0)
	for _, total := range totals {
		p.classes = append(p.classes, class{total: uint32(total.Rows), from: uint8(l.of(total.Label))})
		m += total.Rows
	}
	t.find(b.Classes, p)
	t.rows = t.rows[:0]
	if mixed := len(totals) > 1 && p.unlabelled() >= 0; mixed || m < int64(b.Rows()) {
		t.order(b, int(m), p.unlabelled())
	}
	t.choose(b.Codes, int(m), p)
	t.limit(b.Codes, p, l.settings)
	t.copyRows(b, p)
	return p
}

// order lists the m rows of weight > 0 by index: those of the class unlabelled, which may
// be none, are the last.
func (t *Taker) order(b *incremental.Block, m, unlabelled int) {
	t.rows = slices.Grow(t.rows, m)
	for _, last := range []bool{false, true} {
		for i, code := range b.Codes {
			if b.Weight(i) > 0 && (unlabelled >= 0 && int(t.code[code]) == unlabelled) == last {
				t.rows = append(t.rows, int32(i))
			}
		}
	}
}

// labelsOf returns the labels of the classes. Consecutive blocks mostly have the same
// labels and share them.
func (t *Taker) labelsOf(totals []incremental.ClassTotal) []string {
	same := func(total incremental.ClassTotal, label string) bool { return total.Label == label }
	if !slices.EqualFunc(totals, t.labels, same) {
		if len(totals) > mostClasses {
			panic(fmt.Sprintf("sample: a block of %d classes", len(totals)))
		}
		t.labels = make([]string, len(totals))
		for c := range totals {
			t.labels[c] = totals[c].Label
		}
	}
	return t.labels
}

// find fills floor and code.
func (t *Taker) find(classes []string, p *Part) {
	t.floor, t.code = t.floor[:0], t.code[:0]
	for _, label := range classes {
		c, ok := slices.BinarySearchFunc(p.labels, label, incremental.CompareLabels)
		if !ok { // it has no rows
			t.floor, t.code = append(t.floor, 0), append(t.code, -1)
			continue
		}
		t.floor, t.code = append(t.floor, int(p.classes[c].from)), append(t.code, int32(c))
	}
}

// choose takes the rows, of m, at the floor of their class or above. It draws words of
// each group until no row of the group is left: 8 or 9 words for any high floor.
func (t *Taker) choose(codes []int32, m int, p *Part) {
	t.taken = t.taken[:0]
	low, high := top, 0
	for _, c := range p.classes {
		low, high = min(low, int(c.from)), max(high, int(c.from))
	}
	z := streamOf(p.seed, &p.digest)
	for first := 0; first < m; first += group {
		left := ^uint64(0)
		if m-first < group {
			left = 1<<(m-first) - 1
		}
		l := 0
		// Four words at a time do not wait for each other. x is the input of mix for word l.
		for x := uint64(z) + uint64(first)*golden; l+4 <= low && left != 0; l += 4 {
			x1 := x + golden
			x2 := x1 + golden
			x3 := x2 + golden
			x = x3 + golden
			left &= mix(x1) & mix(x2) & mix(x3) & mix(x)
		}
		g := uint32(first / group)
		for ; l < low && left != 0; l++ {
			left &= z.word(g, l+1)
		}
		if left == 0 {
			continue
		}
		taken := len(t.taken)
		// For fifteen rows in sixteen the next four words determine the level.
		const ahead = 4
		w1, w2, w3, w4 := z.word(g, low+1), z.word(g, low+2), z.word(g, low+3), z.word(g, low+4)
		for ; left != 0; left &= left - 1 {
			bit := bits.TrailingZeros64(left) % group
			index := uint32(first + bit)
			more := w1>>bit&1 | w2>>bit&1<<1 | w3>>bit&1<<2 | w4>>bit&1<<3
			level := min(low+bits.TrailingZeros64(^more), top)
			if level == low+ahead {
				level = z.levelFrom(index, level)
			}
			c := candidate{row: int32(index), index: index, level: uint8(level)}
			if len(t.rows) > 0 {
				c.row = t.rows[index]
			}
			t.taken = append(t.taken, c)
		}
		if low < high {
			t.taken = t.taken[:taken+t.sift(codes, t.taken[taken:])]
		}
	}
}

// sift keeps the candidates at the floor of their class or above.
func (t *Taker) sift(codes []int32, taken []candidate) (n int) {
	for _, c := range taken {
		if int(c.level) >= t.floor[codes[c.row]] {
			taken[n] = c
			n++
		}
	}
	return n
}

// limit raises the floors as a sample of this block alone would. A sample of more blocks
// has no lower floors.
func (t *Taker) limit(codes []int32, p *Part, s Settings) {
	unlabelled := p.unlabelled()
	classes := 1
	if s.Balanced {
		if classes = len(p.classes); unlabelled >= 0 {
			classes--
		}
	}
	quota := s.quota(classes)
	if len(t.taken) <= s.room(quota, unlabelled >= 0) {
		return
	}
	// Without balance class 0 stands for all classes, or class 1 if class 0 is Unlabelled.
	stratum := func(c int) int {
		switch {
		case s.Balanced || c == unlabelled:
			return c
		case unlabelled == 0:
			return 1
		}
		return 0
	}
	counts := make([][levels]int64, len(p.classes))
	for _, c := range t.taken {
		counts[stratum(int(t.code[codes[c.row]]))][c.level]++
	}
	for c := range p.classes {
		p.classes[c].from = max(p.classes[c].from, uint8(highest(&counts[stratum(c)], quota)))
	}
	for code, c := range t.code {
		if c >= 0 {
			t.floor[code] = max(t.floor[code], int(p.classes[c].from))
		}
	}
	t.taken = t.taken[:t.sift(codes, t.taken)]
}

// copyRows copies the taken rows to their pieces. It goes through the block in order,
// because neighbours share cache lines. Numbers that are all float32 are copied row by row,
// so that the processor waits for many of them at once, and others column by column.
func (t *Taker) copyRows(b *incremental.Block, p *Part) {
	var counts, next [mostPieces]int
	// Every level has half of the remaining rows. With this many pieces none has few.
	last := uint8(min(bits.Len(uint(len(t.taken)/(2*few))), mostPieces-1))
	for i := range t.taken {
		c := &t.taken[i]
		c.piece = min(c.level-uint8(t.floor[b.Codes[c.row]]), last)
		counts[c.piece]++
	}
	form := rows{n: uint32(p.n)}
	if b.Weights != nil {
		form.flags |= hasWeights
	}
	if !t.narrow(b) {
		form.flags |= isWide
	}
	if len(t.rows) > 0 && p.unlabelled() >= 0 {
		form.flags |= hasPlaces
	}
	p.pieces = slices.Grow(p.one[:0], int(last)+1)
	var to [mostPieces]*rows
	for i, m := range counts {
		if m > 0 {
			p.pieces = append(p.pieces, form.room(m))
			to[i] = &p.pieces[len(p.pieces)-1]
		}
	}
	singles := t.singles[:0]
	for _, column := range b.Columns {
		if values, ok := gram.Values[float32](column); ok {
			singles = append(singles, values)
		}
	}
	// set puts what a row has beside its numbers, and returns their place.
	set := func(c *candidate) []uint32 {
		r, i := to[c.piece], next[c.piece]
		next[c.piece]++
		row := r.set(i, c.index, uint32(t.code[b.Codes[c.row]]), c.level)
		r.setPlace(i, uint32(c.row))
		if b.Weights != nil {
			r.setWeight(i, b.Weights[c.row])
		}
		return row[form.numbers():]
	}
	if len(singles) == p.n {
		for i := range t.taken {
			c := &t.taken[i]
			row := set(c)
			for j, column := range singles {
				row[j] = math.Float32bits(column[c.row] + 0) // never −0
			}
		}
	} else {
		t.copyColumns(b, form.flags&isWide != 0, set)
	}
	clear(singles) // keep no reference to the block
	t.singles = singles
	if form.flags != 0 {
		for i, r := range p.pieces {
			p.pieces[i] = r.narrowest()
		}
	}
}

// copyColumns copies numbers that are not all float32.
func (t *Taker) copyColumns(b *incremental.Block, wide bool, set func(*candidate) []uint32) {
	for some := range slices.Chunk(t.taken, copiedRows) {
		t.at, t.to = t.at[:0], t.to[:0]
		for i := range some {
			t.at, t.to = append(t.at, some[i].row), append(t.to, set(&some[i]))
		}
		x := t.x[:len(some)]
		for j, column := range b.Columns {
			column.Gather(x, t.at)
			if wide {
				for i, row := range t.to {
					putFloat64(row[2*j:], x[i]+0) // never −0
				}
				continue
			}
			for i, row := range t.to {
				row[j] = math.Float32bits(float32(x[i] + 0))
			}
		}
	}
	clear(t.to) // keep no reference to the part
}

// narrow reports whether all numbers of the taken rows fit float32.
func (t *Taker) narrow(b *incremental.Block) bool {
	for _, column := range b.Columns {
		switch column.Kind() {
		case gram.Float32, gram.Int8, gram.Int16, gram.Uint8, gram.Uint16, gram.Indicator:
			continue
		}
		for some := range slices.Chunk(t.taken, copiedRows) {
			t.at = t.at[:0]
			for _, c := range some {
				t.at = append(t.at, c.row)
			}
			x := t.x[:len(some)]
			column.Gather(x, t.at)
			for _, x := range x {
				if !isFloat32(x) {
					return false
				}
			}
		}
	}
	return true
}
