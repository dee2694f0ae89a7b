package sample

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"streamd/incremental"
	"streamd/incremental/decode"
	"streamd/incremental/gram"
)

const golden = 0x9E3779B97F4A7C15 // 2^64 over the golden ratio, odd

// mix is the finalizer of SplitMix64: a bijection in which every bit of x affects every
// bit of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// stream is the key of a block's random numbers.
type stream uint64

func streamOf(seed uint64, digest *[sha256.Size]byte) stream {
	return stream(mix(binary.LittleEndian.Uint64(digest[:]) ^ mix(seed)))
}

func (z stream) at(t uint64) uint64 { return mix(uint64(z) + t*golden) }

// group is the number of rows that share a word of random bits.
const group = 64

// word is word l, 1 to 63, of a group of rows. The bits that are set in words 1 to l
// mark the rows of level l or above.
func (z stream) word(g uint32, l int) uint64 { return z.at(uint64(g)*group + uint64(l)) }

// hash is the hash of a row of the level.
func (z stream) hash(index uint32, level int) uint64 {
	return (z.at(1<<32+uint64(index)) | 1<<63) >> level
}

// level is the level of a row.
func (z stream) level(index uint32) int { return z.levelFrom(index, 0) }

// levelFrom is the level of a row that is of level l or above.
func (z stream) levelFrom(index uint32, l int) int {
	for l < top && z.word(index/group, l+1)>>(index%group)&1 != 0 {
		l++
	}
	return l
}

// Fold is the fold of a block, 0 to k−1, by its content. It uses other bits of the
// digest than the hashes of rows.
func Fold(digest [sha256.Size]byte, k int) int {
	return int(binary.LittleEndian.Uint64(digest[8:]) % uint64(k))
}

// Levels holds the floors from which a Taker takes rows. It is immutable.
type Levels struct {
	settings Settings
	floors   map[string]int // by stratum; 0 for a new one
}

func (l *Levels) of(label string) int { return l.floors[l.settings.stratum(label)] }

// Part is a block's contribution to a sample: the number of rows of each class, and all
// rows of the class from some level on. It is immutable.
type Part struct {
	seed    uint64
	digest  [sha256.Size]byte
	n       int
	labels  []string // class labels in canonical order; blocks may share them
	classes []class  // each has a row
	pieces  []rows   // none is empty

	two [2]class // memory for up to two classes
	one [1]rows  // memory for one piece
}

// A Taker puts the rows of a part into pieces by level: the first piece has the rows at
// the floor of their class, the next one those one level above, and so on; the last piece
// has all others. A rising floor then drops whole pieces. It copies no rows until it
// cuts the last piece. A decoded part is one piece.
const (
	mostPieces = 4
	few        = 16 // so few rows get no piece of their own
)

type class struct {
	total uint32 // rows of weight > 0
	from  uint8  // the part has all rows from this level on
}

// rows are rows of one block, by ascending index, in one array. Each consists of its
// index, its class and level, its weight and its numbers. Weights are left out unless
// hasWeights. Numbers are float32 unless isWide; a float64 takes two words.
type rows struct {
	words     []uint32
	n         uint32 // numbers of a row
	flags     uint8
	low, high uint8 // bounds of the levels
}

const (
	head        = 2 // words: index, class and level
	levelBits   = 6
	mostClasses = 1 << (32 - levelBits)
)

// Bytes is the size of the part's rows in memory.
func (p *Part) Bytes() (n int) {
	for i := range p.pieces {
		n += 4 * len(p.pieces[i].words)
	}
	return n
}

// room returns space for m rows of the form of r.
func (r rows) room(m int) rows {
	return rows{words: make([]uint32, m*r.stride()), n: r.n, flags: r.flags, low: top}
}

// stride is the number of words of a row.
func (r *rows) stride() int {
	if r.flags&isWide != 0 {
		return r.numbers() + 2*int(r.n)
	}
	return r.numbers() + int(r.n)
}

// numbers is the offset of a row's numbers, in words.
func (r *rows) numbers() int {
	if r.flags&hasWeights != 0 {
		return head + 2
	}
	return head
}

func (r *rows) len() int { return len(r.words) / r.stride() }

func (r *rows) row(i int) []uint32 {
	stride := r.stride()
	return r.words[i*stride : (i+1)*stride]
}

func (r *rows) index(i int) uint32 { return r.words[i*r.stride()] }

func (r *rows) code(i int) int { return int(r.words[i*r.stride()+1] >> levelBits) }

func (r *rows) level(i int) int { return int(r.words[i*r.stride()+1] % levels) }

func (r *rows) weight(i int) float64 {
	if r.flags&hasWeights == 0 {
		return 1
	}
	return float64Of(r.row(i)[head:])
}

func (r *rows) at(i, j int) float64 {
	x := r.row(i)[r.numbers():]
	if r.flags&isWide != 0 {
		return float64Of(x[2*j:])
	}
	return float64(math.Float32frombits(x[j]))
}

// set puts a row at place i and returns its words, with weight and numbers to be set.
func (r *rows) set(i int, index, code uint32, level uint8) []uint32 {
	row := r.row(i)
	row[0], row[1] = index, code<<levelBits|uint32(level)
	r.low, r.high = min(r.low, level), max(r.high, level)
	return row
}

func (r *rows) setWeight(i int, v float64) { putFloat64(r.row(i)[head:], v) }

// setNumber sets number j of row i. −0 becomes 0.
func (r *rows) setNumber(i, j int, x float64) {
	x += 0
	to := r.row(i)[r.numbers():]
	if r.flags&isWide != 0 {
		putFloat64(to[2*j:], x)
	} else {
		to[j] = math.Float32bits(float32(x))
	}
}

func float64Of(words []uint32) float64 {
	return math.Float64frombits(uint64(words[0]) | uint64(words[1])<<32)
}

func putFloat64(words []uint32, x float64) {
	bits := math.Float64bits(x)
	words[0], words[1] = uint32(bits), uint32(bits>>32)
}

// narrowest returns the rows with numbers of float32 and without weights, as far as that
// loses nothing.
func (r rows) narrowest() rows {
	form := rows{n: r.n}
	for i := range r.len() {
		if r.weight(i) != 1 {
			form.flags |= hasWeights
		}
		for j := 0; form.flags&isWide != r.flags&isWide && j < int(r.n); j++ {
			if !isFloat32(r.at(i, j)) {
				form.flags |= isWide
			}
		}
	}
	if form.flags == r.flags {
		return r
	}
	out := form.room(r.len())
	for i := range r.len() {
		out.set(i, r.index(i), uint32(r.code(i)), uint8(r.level(i)))
		if out.flags&hasWeights != 0 {
			out.setWeight(i, r.weight(i))
		}
		for j := range int(r.n) {
			out.setNumber(i, j, r.at(i, j))
		}
	}
	return out
}

// Digest is the content digest of the block.
func (p *Part) Digest() [sha256.Size]byte { return p.digest }

// Features is the number of features, n.
func (p *Part) Features() int { return p.n }

// Rows is the number of rows of weight > 0 of the block.
func (p *Part) Rows() int64 {
	var m int64
	for _, c := range p.classes {
		m += int64(c.total)
	}
	return m
}

// Above returns the part without the rows below the levels, or p if there are none. A
// sample with these levels needs no more. A part of another seed is returned as it is.
func (p *Part) Above(l *Levels) *Part {
	if p.seed != l.settings.Seed {
		return p
	}
	risen := false
	floor := make([]uint8, 0, 16) // for few classes, no allocation
	for c, label := range p.labels {
		floor = append(floor, uint8(l.of(label)))
		risen = risen || floor[c] > p.classes[c].from
	}
	if !risen {
		return p
	}
	return p.above(floor)
}

// above returns the part without the rows below the floor of their class, or p if there
// are none.
func (p *Part) above(floor []uint8) *Part {
	var memory [mostPieces]rows
	stays, all := p.cut(floor, memory[:0])
	if all {
		return p
	}
	return p.with(stays, floor)
}

// cut appends the rows at the floor of their class or above to stays, and reports
// whether these are all rows. It reads only pieces that are cut.
func (p *Part) cut(floor []uint8, stays []rows) (_ []rows, all bool) {
	low, high := uint8(top), uint8(0)
	for _, l := range floor {
		low, high = min(low, l), max(high, l)
	}
	all = true
	for i := range p.pieces {
		r := &p.pieces[i]
		var less rows
		switch {
		case r.low >= high:
			less = *r
		case r.high >= low:
			less = r.above(floor)
		}
		all = all && len(less.words) == len(r.words)
		if len(less.words) > 0 {
			stays = append(stays, less)
		}
	}
	return stays, all
}

// with returns the part with the rows that the floors have left.
func (p *Part) with(stays []rows, floor []uint8) *Part {
	out := &Part{seed: p.seed, digest: p.digest, n: p.n, labels: p.labels}
	out.classes = append(out.two[:0], p.classes...)
	for c := range out.classes {
		out.classes[c].from = max(out.classes[c].from, floor[c])
	}
	out.pieces = append(out.one[:0], stays...)
	return out
}

// above returns the rows at the floor of their class or above, or r if these are all.
func (r *rows) above(floor []uint8) rows {
	stride := r.stride()
	stays := func(row int) bool {
		word := r.words[row+1]
		return uint8(word%levels) >= floor[word>>levelBits]
	}
	m := 0
	for row := 0; row < len(r.words); row += stride {
		if stays(row) {
			m++
		}
	}
	switch m * stride {
	case 0:
		return rows{}
	case len(r.words):
		return *r
	}
	out := r.room(m)
	to := 0
	for row := 0; row < len(r.words); row += stride {
		if stays(row) {
			level := uint8(r.words[row+1] % levels)
			out.low, out.high = min(out.low, level), max(out.high, level)
			to += copy(out.words[to:], r.words[row:row+stride])
		}
	}
	if r.flags != 0 {
		return out.narrowest()
	}
	return out
}

// place locates a row of a part: its piece, and its index in the piece.
type place struct{ piece, row int32 }

func (p *Part) row(at place) (*rows, int) { return &p.pieces[at.piece], int(at.row) }

// byIndex returns all rows of a block, by ascending index.
func byIndex(from []rows) []place {
	out := make([]place, 0, count(from))
	next := make([]place, len(from)) // the next row of each unfinished piece
	for i := range from {
		next[i].piece = int32(i)
	}
	for len(next) > 0 {
		least, index := 0, uint32(math.MaxUint32) // no row has this one
		for i, at := range next {
			if k := from[at.piece].index(int(at.row)); k < index {
				least, index = i, k
			}
		}
		at := &next[least]
		out = append(out, *at)
		if at.row++; int(at.row) == from[at.piece].len() {
			next = slices.Delete(next, least, least+1)
		}
	}
	return out
}

// count is the number of the rows.
func count(of []rows) (m int) {
	for i := range of {
		m += of[i].len()
	}
	return m
}

// equal reports whether two parts have the same rows, bit for bit.
func (p *Part) equal(q *Part) bool {
	if p == q || count(p.pieces) != count(q.pieces) {
		return p == q
	}
	return slices.EqualFunc(byIndex(p.pieces), byIndex(q.pieces), func(a, b place) bool {
		return compare(p, a, q, b) == 0
	})
}

// compare orders rows of two parts by all of their contents.
func compare(p *Part, a place, q *Part, b place) int {
	r, i := p.row(a)
	s, k := q.row(b)
	if order := cmp.Or(
		bytes.Compare(p.digest[:], q.digest[:]),
		cmp.Compare(r.index(i), s.index(k)),
		strings.Compare(p.labels[r.code(i)], q.labels[s.code(k)]),
		cmp.Compare(r.weight(i), s.weight(k)),
	); order != 0 {
		return order
	}
	for j := range p.n {
		x, y := r.at(i, j), s.at(k, j)
		if order := cmp.Compare(math.Float64bits(x), math.Float64bits(y)); order != 0 {
			return order
		}
	}
	return 0
}

// A Taker takes the parts of blocks. It keeps working memory from one block to
// the next and is not safe for concurrent use.
type Taker struct {
	floor []int       // the level from which rows are taken, by class code
	code  []int32     // the index among the part's classes, by class code
	rows  []int32     // the rows of weight > 0, if there are others
	taken []candidate // by ascending index

	labels  []string    // of the last block
	singles [][]float32 // the columns that are float32
}

type candidate struct {
	row   int32
	index uint32 // among the rows of weight > 0
	level uint8
	piece uint8
}

// Take takes the part of a block from the levels on. digest and totals are those of the
// block's summary.
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
	if m < int64(b.Rows()) {
		t.rows = slices.Grow(t.rows, int(m))
		for i, v := range b.Weights {
			if v > 0 {
				t.rows = append(t.rows, int32(i))
			}
		}
	}
	t.choose(b.Codes, int(m), p)
	t.limit(b.Codes, p, l.settings)
	t.copyRows(b, p)
	return p
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
	if len(t.taken) <= most*s.Rows {
		return
	}
	strata, quota := 1, int64(s.Rows)
	if s.Balanced {
		strata, quota = len(p.classes), int64(max(1, s.Rows/len(p.classes)))
	}
	counts := make([][levels]int64, strata)
	for _, c := range t.taken {
		at := int32(0)
		if s.Balanced {
			at = t.code[codes[c.row]]
		}
		counts[at][c.level]++
	}
	for c := range p.classes {
		p.classes[c].from = max(p.classes[c].from, uint8(highest(&counts[min(c, strata-1)], quota)))
	}
	for code, c := range t.code {
		if c >= 0 {
			t.floor[code] = max(t.floor[code], int(p.classes[c].from))
		}
	}
	t.taken = t.taken[:t.sift(codes, t.taken)]
}

// copyRows copies the taken rows to their pieces. It goes through the block in order,
// because neighbours share cache lines, and copies all numbers of a row together, so
// that the processor waits for many of them at once.
func (t *Taker) copyRows(b *incremental.Block, p *Part) {
	var counts, next [mostPieces]int
	// Every level has half of the remaining rows: with so many pieces none has few.
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
	for _, c := range t.taken {
		r, i := to[c.piece], next[c.piece]
		next[c.piece]++
		row := r.set(i, c.index, uint32(t.code[b.Codes[c.row]]), c.level)
		if b.Weights != nil {
			r.setWeight(i, b.Weights[c.row])
		}
		if len(singles) == p.n {
			row = row[form.numbers():]
			for j, column := range singles {
				row[j] = math.Float32bits(column[c.row] + 0) // never −0
			}
			continue
		}
		for j, column := range b.Columns {
			r.setNumber(i, j, column.At(int(c.row)))
		}
	}
	clear(singles) // keep no reference to the block
	t.singles = singles
	if form.flags != 0 {
		for i, r := range p.pieces {
			p.pieces[i] = r.narrowest()
		}
	}
}

// narrow reports whether all numbers of the taken rows fit float32.
func (t *Taker) narrow(b *incremental.Block) bool {
	for _, column := range b.Columns {
		switch column.Kind() {
		case gram.Float32, gram.Int8, gram.Int16, gram.Uint8, gram.Uint16:
			continue
		}
		for _, c := range t.taken {
			if !isFloat32(column.At(int(c.row))) {
				return false
			}
		}
	}
	return true
}

func isFloat32(x float64) bool { return float64(float32(x)) == x }

// The flags of an encoding.
const (
	hasWeights = 1 << iota
	isWide
)

// AppendBinary appends the part's encoding, all numbers little endian:
//
//	seed (8), digest (32), flags (1): 1 rows have weights, 2 numbers are float64
//	n, k (uvarint)
//	for each class in canonical order: label (uvarint length, bytes), rows of
//	  weight > 0 (uvarint), the level from which on all are kept (1)
//	rows kept, m (uvarint); for each: its index, less that of the row before it
//	  and 1 (uvarint), its class (uvarint)
//	m weights (float64), if there are; m·n numbers, row by row (float32 or float64)
func (p *Part) AppendBinary(b []byte) []byte {
	flags := p.flags()
	b = slices.Grow(b, p.encodedSize(flags))
	b = binary.LittleEndian.AppendUint64(b, p.seed)
	b = append(b, p.digest[:]...)
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(p.n))
	b = binary.AppendUvarint(b, uint64(len(p.classes)))
	for i, c := range p.classes {
		b = binary.AppendUvarint(b, uint64(len(p.labels[i])))
		b = append(b, p.labels[i]...)
		b = binary.AppendUvarint(b, uint64(c.total))
		b = append(b, c.from)
	}
	all := byIndex(p.pieces)
	b = binary.AppendUvarint(b, uint64(len(all)))
	next := uint32(0)
	for _, at := range all {
		r, row := p.row(at)
		index := r.index(row)
		b = binary.AppendUvarint(b, uint64(index-next))
		b = binary.AppendUvarint(b, uint64(r.code(row)))
		next = index + 1
	}
	if flags&hasWeights != 0 {
		for _, at := range all {
			r, row := p.row(at)
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(r.weight(row)))
		}
	}
	for _, at := range all {
		r, row := p.row(at)
		if flags&isWide != 0 {
			for j := range p.n {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(r.at(row, j)))
			}
			continue
		}
		for _, x := range r.row(row)[r.numbers():] {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
	}
	return b
}

func (p *Part) flags() (flags byte) {
	for _, r := range p.pieces {
		flags |= r.flags
	}
	return flags
}

// encodedSize estimates the length of the encoding and is rarely too small.
func (p *Part) encodedSize(flags byte) int {
	const (
		head  = 8 + sha256.Size + 1 + 3*binary.MaxVarintLen64
		class = 2*binary.MaxVarintLen64 + 1
	)
	row := 4 + 4*p.n // an index difference below 2^14, one of many classes, and numbers
	if flags&isWide != 0 {
		row += 4 * p.n
	}
	if flags&hasWeights != 0 {
		row += 8
	}
	size := head + count(p.pieces)*row
	for _, label := range p.labels {
		size += class + len(label)
	}
	return size
}

// ErrEncoding reports bytes that do not encode a part.
var ErrEncoding = errors.New("sample: not a valid encoding")

// DecodePart decodes the output of AppendBinary. A decoded part is safe to add and
// encodes to the same bytes.
func DecodePart(b []byte) (*Part, error) {
	d := decoder{decode.Reader{Rest: b}}
	p := &Part{seed: binary.LittleEndian.Uint64(d.Take(8)), digest: [sha256.Size]byte(d.Take(sha256.Size))}
	flags := d.Take(1)[0]
	d.Bad = d.Bad || flags&^(hasWeights|isWide) != 0
	n := d.Uvarint()
	d.Bad = d.Bad || n > math.MaxInt32
	p.n = int(n)
	k := d.Count(3)
	if k > mostClasses {
		return nil, ErrEncoding
	}
	p.labels, p.classes = make([]string, k), slices.Grow(p.two[:0], k)[:k]
	for c := range k {
		p.labels[c], p.classes[c] = d.class()
		if c > 0 && incremental.CompareLabels(p.labels[c-1], p.labels[c]) >= 0 {
			d.Bad = true
		}
	}
	d.rows(p, flags)
	if d.Bad || len(d.Rest) > 0 || !p.whole() {
		return nil, ErrEncoding
	}
	return p, nil
}

// decoder decodes a part.
type decoder struct{ decode.Reader }

func (d *decoder) class() (string, class) {
	label := d.Text()
	d.Bad = d.Bad || incremental.CheckLabel(label) != nil
	total, from := d.Uvarint(), d.Take(1)[0]
	d.Bad = d.Bad || total == 0 || total > math.MaxInt32 || from > top
	return label, class{total: uint32(total), from: from}
}

func (d *decoder) rows(p *Part, flags byte) {
	form := rows{n: uint32(p.n), flags: flags}
	m := d.Count(2 + 4*(form.stride()-head))
	total := uint64(p.Rows())
	if m == 0 {
		d.Bad = d.Bad || flags != 0
		return
	}
	r := form.room(m)
	z := streamOf(p.seed, &p.digest)
	next := uint64(0)
	for i := range m {
		gap, code := d.Uvarint(), d.Uvarint()
		if d.Bad || gap >= total || next+gap >= total || code >= uint64(len(p.classes)) {
			d.Bad = true
			return
		}
		index := uint32(next + gap)
		level := uint8(z.level(index))
		d.Bad = d.Bad || level < p.classes[code].from
		r.set(i, index, uint32(code), level)
		next += gap + 1
	}
	for i := 0; flags&hasWeights != 0 && i < m; i++ {
		v := math.Float64frombits(binary.LittleEndian.Uint64(d.Take(8)))
		d.Bad = d.Bad || !(v > 0) || math.IsInf(v, 0)
		r.setWeight(i, v)
	}
	for i := range m {
		words := r.row(i)[r.numbers():]
		b := d.Take(4 * len(words))
		for j := range words {
			words[j] = binary.LittleEndian.Uint32(b[4*j:])
		}
		for j := range p.n {
			x := r.at(i, j)
			d.Bad = d.Bad || x-x != 0
		}
	}
	d.Bad = d.Bad || r.narrowest().flags != flags
	p.pieces = append(p.one[:0], r)
}

// whole reports whether the part can have all rows from its classes' levels on.
func (p *Part) whole() bool {
	have := make([]uint32, len(p.classes))
	for i := range p.pieces {
		for row := range p.pieces[i].len() {
			have[p.pieces[i].code(row)]++
		}
	}
	for c, n := range have {
		if class := &p.classes[c]; n > class.total || n < class.total && class.from == 0 {
			return false
		}
	}
	return p.Rows() <= math.MaxInt32
}
