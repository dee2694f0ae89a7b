package sample

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"streamd/incremental"
	"streamd/incremental/decode"
	"streamd/incremental/gram"
)

const golden = 0x9E3779B97F4A7C15 // 2^64 over the golden ratio, odd

// mix is the finalizer of SplitMix64: a bijection, every bit of x in every bit
// of it.
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

// Rows are told from another by 64 at a time.
const group = 64

// word is word l of a group of rows, 1 to 63: those of level l or above are the
// bits of the words 1 to l and-ed.
func (z stream) word(g uint32, l int) uint64 { return z.at(uint64(g)*group + uint64(l)) }

// hash is that of a row of the level.
func (z stream) hash(index uint32, level int) uint64 {
	return (z.at(1<<32+uint64(index)) | 1<<63) >> level
}

// level is that of one row.
func (z stream) level(index uint32) int {
	l := 0
	for l < top && z.word(index/group, l+1)>>(index%group)&1 != 0 {
		l++
	}
	return l
}

// Fold is the fold of k that a block is in, 0 to k−1, by its content: of other
// bits of the digest than the hashes of its rows.
func Fold(digest [sha256.Size]byte, k int) int {
	return int(binary.LittleEndian.Uint64(digest[8:]) % uint64(k))
}

// Levels tells a Taker which rows to take. It is immutable.
type Levels struct {
	settings Settings
	floors   map[string]int // of each stratum; one that is new has 0
}

func (l *Levels) of(label string) int { return l.floors[l.settings.stratum(label)] }

// Part is what a sample keeps of a block: the number of rows of each class, and
// all those from some level of the class on. It is immutable.
type Part struct {
	seed    uint64
	digest  [sha256.Size]byte
	n       int
	classes []class // in canonical order, each with a row
	pieces  []*rows // none is empty
}

// A Taker puts the rows of a part in pieces: those of the floor of their class, of
// the level above it, and so on, and all others in the last. A floor that rises
// then lets go of whole pieces, and copies no row that stays before the last of
// them has to be cut. A part that was read is one piece.
const (
	mostPieces = 4
	few        = 16 // rows are not worth a piece of their own
)

type class struct {
	label string
	total int64 // rows of weight > 0
	from  int   // the level from which the part has all of them
}

// rows are rows of one block, by ascending index. They weigh 1 where weights is
// nil. The numbers lie row by row, in wide when one of them is no float32.
type rows struct {
	n         int
	low, high uint8 // the levels of all are between these
	index     []uint32
	level     []uint8
	codes     []uint32
	weights   []float64
	narrow    []float32
	wide      []float64
}

// newRows has room for m rows, but not for their weights and numbers.
func newRows(m, n int) *rows {
	words := make([]uint32, 2*m)
	return &rows{n: n, low: top, index: words[:m:m], level: make([]uint8, m), codes: words[m:]}
}

// set says which row is in place i.
func (r *rows) set(i int, index uint32, level uint8, code uint32) {
	r.index[i], r.level[i], r.codes[i] = index, level, code
	r.low, r.high = min(r.low, level), max(r.high, level)
}

func (r *rows) len() int { return len(r.index) }

func (r *rows) at(i, j int) float64 {
	if r.wide != nil {
		return r.wide[i*r.n+j]
	}
	return float64(r.narrow[i*r.n+j])
}

func (r *rows) weight(i int) float64 {
	if r.weights == nil {
		return 1
	}
	return r.weights[i]
}

// pick copies some of the rows.
func (r *rows) pick(which []int32) *rows {
	out := newRows(len(which), r.n)
	if r.weights != nil {
		out.weights = make([]float64, len(which))
	}
	if r.wide != nil {
		out.wide = make([]float64, 0, len(which)*r.n)
	} else {
		out.narrow = make([]float32, 0, len(which)*r.n)
	}
	for at, row := range which {
		i := int(row)
		out.set(at, r.index[i], r.level[i], r.codes[i])
		if r.weights != nil {
			out.weights[at] = r.weights[i]
		}
		if r.wide != nil {
			out.wide = append(out.wide, r.wide[i*r.n:(i+1)*r.n]...)
		} else {
			out.narrow = append(out.narrow, r.narrow[i*r.n:(i+1)*r.n]...)
		}
	}
	out.narrowDown()
	return out
}

// narrowDown keeps the numbers as float32, and no weights, where that loses
// nothing.
func (r *rows) narrowDown() {
	if r.weights != nil && !slices.ContainsFunc(r.weights, func(v float64) bool { return v != 1 }) {
		r.weights = nil
	}
	if r.wide == nil || slices.ContainsFunc(r.wide, func(x float64) bool { return !isFloat32(x) }) {
		return
	}
	r.narrow = make([]float32, len(r.wide))
	for i, x := range r.wide {
		r.narrow[i] = float32(x)
	}
	r.wide = nil
}

// Digest is the content digest of the block.
func (p *Part) Digest() [sha256.Size]byte { return p.digest }

// Features is the number of features, n.
func (p *Part) Features() int { return p.n }

// Rows is the number of rows of the block, those of weight > 0.
func (p *Part) Rows() int64 {
	var m int64
	for c := range p.classes {
		m += p.classes[c].total
	}
	return m
}

// Above is the part without the rows below the levels, which no sample holds that
// has these; p itself where there are none. Of another seed's it is all of p.
func (p *Part) Above(l *Levels) *Part {
	below := func(c class) bool { return c.from < l.of(c.label) }
	if p.seed != l.settings.Seed || !slices.ContainsFunc(p.classes, below) {
		return p
	}
	out := &Part{seed: p.seed, digest: p.digest, n: p.n, classes: slices.Clone(p.classes)}
	floor := make([]int, len(p.classes))
	for c := range p.classes {
		floor[c] = max(p.classes[c].from, l.of(p.classes[c].label))
		out.classes[c].from = floor[c]
	}
	var all bool
	if out.pieces, all = above(p.pieces, floor); all {
		return p
	}
	return out
}

// above is those of the rows that are of the floor of their class or above, and
// whether that is all of them. Pieces that stay or go are not looked into.
func above(from []*rows, floor []int) (out []*rows, all bool) {
	if len(from) == 0 {
		return nil, true
	}
	low, high := uint8(slices.Min(floor)), uint8(slices.Max(floor))
	if !slices.ContainsFunc(from, func(r *rows) bool { return r.low < high }) {
		return from, true
	}
	out, all = make([]*rows, 0, len(from)), true
	for _, r := range from {
		kept := r
		switch {
		case r.low >= high:
		case r.high < low:
			kept = nil
		default:
			kept = r.above(floor)
		}
		all = all && kept == r
		if kept != nil {
			out = append(out, kept)
		}
	}
	return out, all
}

// above is those of the rows that are of the floor of their class or above; r
// itself when all are, nil when none is.
func (r *rows) above(floor []int) *rows {
	n := 0
	for i, level := range r.level {
		if int(level) >= floor[r.codes[i]] {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case r.len():
		return r
	}
	// Mostly every other row goes, which nobody can predict: no branch on it.
	which := make([]int32, n+1)
	n = 0
	for i, level := range r.level {
		which[n] = int32(i)
		if int(level) >= floor[r.codes[i]] {
			n++
		}
	}
	return r.pick(which[:n])
}

// place is where a row is: in which piece, and where in it.
type place struct{ piece, row int32 }

// byIndex is all rows of a block, by ascending index.
func byIndex(from []*rows) []place {
	out := make([]place, 0, count(from))
	next := make([]int32, len(from))
	for len(out) < cap(out) {
		least, index := 0, uint32(math.MaxUint32) // no row has this one
		for i, r := range from {
			if at := int(next[i]); at < r.len() && r.index[at] < index {
				least, index = i, r.index[at]
			}
		}
		out = append(out, place{int32(least), next[least]})
		next[least]++
	}
	return out
}

// count is the number of the rows.
func count(of []*rows) (m int) {
	for _, r := range of {
		m += r.len()
	}
	return m
}

// kept is the rows of a block that are held in memory.
type kept struct {
	digest [sha256.Size]byte
	labels []string
	pieces []*rows
}

// kept is the rows of the part; nil: it has none.
func (p *Part) kept() *kept {
	if len(p.pieces) == 0 {
		return nil
	}
	k := &kept{digest: p.digest, pieces: p.pieces, labels: make([]string, len(p.classes))}
	for c := range p.classes {
		k.labels[c] = p.classes[c].label
	}
	return k
}

// above is those of the rows that are of the floor of their class or above; k
// itself when all are, nil when none is.
func (k *kept) above(floor []int) *kept {
	pieces, all := above(k.pieces, floor)
	switch {
	case all:
		return k
	case len(pieces) == 0:
		return nil
	}
	return &kept{digest: k.digest, labels: k.labels, pieces: pieces}
}

// equal says whether two blocks have the same rows in memory, bit for bit.
func (k *kept) equal(l *kept) bool {
	if k == l || count(k.pieces) != count(l.pieces) {
		return k == l
	}
	return slices.EqualFunc(byIndex(k.pieces), byIndex(l.pieces), func(a, b place) bool {
		return (chosen{from: k, place: a}).compare(chosen{from: l, place: b}) == 0
	})
}

// A Taker takes the parts of blocks. It keeps working memory from one block to
// the next and is not safe for concurrent use.
type Taker struct {
	floor []int       // of each class code, the level from which rows are taken
	code  []int32     // of each class code, the place among the part's classes
	rows  []int32     // those of weight > 0, in a block with others
	taken []candidate // by ascending index

	singles [][]float32 // the columns that are float32
}

type candidate struct {
	row   int32
	index uint32 // among the rows of weight > 0
	level uint8
	piece uint8
}

// Take takes the part of a block, whose summary has the digest and the totals,
// with the rows that are to be held.
func (t *Taker) Take(b *incremental.Block, digest [sha256.Size]byte, totals []incremental.ClassTotal, l *Levels) *Part {
	p := &Part{seed: l.settings.Seed, digest: digest, n: len(b.Columns)}
	p.classes = make([]class, len(totals))
	m := int64(0)
	for c, total := range totals {
		p.classes[c] = class{label: total.Label, total: total.Rows, from: l.of(total.Label)}
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

// find fills floor and code.
func (t *Taker) find(classes []string, p *Part) {
	t.floor, t.code = t.floor[:0], t.code[:0]
	for _, label := range classes {
		c, ok := slices.BinarySearchFunc(p.classes, label, func(c class, label string) int {
			return incremental.CompareLabels(c.label, label)
		})
		if !ok { // it has no rows
			t.floor, t.code = append(t.floor, 0), append(t.code, -1)
			continue
		}
		t.floor, t.code = append(t.floor, p.classes[c].from), append(t.code, int32(c))
	}
}

// choose takes the rows, of m, that are of the floor of their class or above.
// It draws words of each group until no row of it is left, which is 8 or 9
// words whatever the floor is, and looks at no other row.
func (t *Taker) choose(codes []int32, m int, p *Part) {
	t.taken = t.taken[:0]
	low, high := top, 0
	for _, c := range p.classes {
		low, high = min(low, c.from), max(high, c.from)
	}
	z := streamOf(p.seed, &p.digest)
	for first := 0; first < m; first += group {
		left := ^uint64(0)
		if m-first < group {
			left = 1<<(m-first) - 1
		}
		g := uint32(first / group)
		l := 0
		// Four words at a time, which do not wait for each other: x is what word l mixes.
		for x := uint64(z) + uint64(first)*golden; l+4 <= low && left != 0; l += 4 {
			x1 := x + golden
			x2 := x1 + golden
			x3 := x2 + golden
			x = x3 + golden
			left &= mix(x1) & mix(x2) & mix(x3) & mix(x)
		}
		if left == 0 {
			continue
		}
		for ; l < low; l++ {
			left &= z.word(g, l+1)
		}
		taken := len(t.taken)
		var level [group]uint8
		chosen := left
		for ; left != 0; l++ { // left is the rows of level l or above
			next := uint64(0)
			if l < top {
				next = left & z.word(g, l+1)
			}
			for these := left &^ next; these != 0; these &= these - 1 {
				bit := bits.TrailingZeros64(these)
				level[bit] = uint8(l)
			}
			left = next
		}
		for ; chosen != 0; chosen &= chosen - 1 {
			bit := bits.TrailingZeros64(chosen)
			c := candidate{row: int32(first + bit), index: uint32(first + bit), level: level[bit]}
			if len(t.rows) > 0 {
				c.row = t.rows[c.index]
			}
			t.taken = append(t.taken, c)
		}
		if low < high {
			t.taken = t.taken[:taken+t.sift(codes, t.taken[taken:])]
		}
	}
}

// sift keeps the candidates that are of the floor of their class or above.
func (t *Taker) sift(codes []int32, taken []candidate) (n int) {
	for _, c := range taken {
		if int(c.level) >= t.floor[codes[c.row]] {
			taken[n] = c
			n++
		}
	}
	return n
}

// limit raises the floors where a sample would do so for this block alone: that
// of more blocks has no lower ones then.
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
		p.classes[c].from = max(p.classes[c].from, highest(&counts[min(c, strata-1)], quota))
	}
	for code, c := range t.code {
		if c >= 0 {
			t.floor[code] = max(t.floor[code], p.classes[c].from)
		}
	}
	t.taken = t.taken[:t.sift(codes, t.taken)]
}

// copyRows copies the rows that were taken, each to its piece: in the order of the
// block, where neighbours share cache lines, and all numbers of a row together, as
// many of which are on their way to the processor as it can wait for.
func (t *Taker) copyRows(b *incremental.Block, p *Part) {
	var counts, next [mostPieces]int
	// Every level has half of the rows that are left: of so many pieces none has few.
	last := uint8(min(bits.Len(uint(len(t.taken)/(2*few))), mostPieces-1))
	for i := range t.taken {
		c := &t.taken[i]
		c.piece = min(c.level-uint8(t.floor[b.Codes[c.row]]), last)
		counts[c.piece]++
	}
	isNarrow := t.narrow(b)
	p.pieces = make([]*rows, 0, last+1)
	var to [mostPieces]*rows
	for i, m := range counts {
		if m == 0 {
			continue
		}
		to[i] = newRows(m, p.n)
		if isNarrow {
			to[i].narrow = make([]float32, m*p.n)
		} else {
			to[i].wide = make([]float64, m*p.n)
		}
		if b.Weights != nil {
			to[i].weights = make([]float64, m)
		}
		p.pieces = append(p.pieces, to[i])
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
		r.set(i, c.index, c.level, uint32(t.code[b.Codes[c.row]]))
		if r.weights != nil {
			r.weights[i] = b.Weights[c.row]
		}
		switch {
		case len(singles) == p.n:
			row := r.narrow[i*p.n : (i+1)*p.n]
			for j, column := range singles {
				row[j] = column[c.row]
			}
		case isNarrow:
			row := r.narrow[i*p.n : (i+1)*p.n]
			for j, column := range b.Columns {
				row[j] = float32(column.At(int(c.row)))
			}
		default:
			row := r.wide[i*p.n : (i+1)*p.n]
			for j, column := range b.Columns {
				row[j] = column.At(int(c.row))
			}
		}
	}
	clear(singles) // no reference to the block is kept
	t.singles = singles
	for _, r := range p.pieces {
		r.narrowDown()
	}
}

// narrow says whether all numbers of the rows taken are float32.
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
//	  weight > 0 (uvarint), the level from which all are kept (1)
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
	for _, c := range p.classes {
		b = binary.AppendUvarint(b, uint64(len(c.label)))
		b = append(b, c.label...)
		b = binary.AppendUvarint(b, uint64(c.total))
		b = append(b, byte(c.from))
	}
	all := byIndex(p.pieces)
	b = binary.AppendUvarint(b, uint64(len(all)))
	next := uint32(0)
	for _, at := range all {
		r := p.pieces[at.piece]
		index := r.index[at.row]
		b = binary.AppendUvarint(b, uint64(index-next))
		b = binary.AppendUvarint(b, uint64(r.codes[at.row]))
		next = index + 1
	}
	if flags&hasWeights != 0 {
		for _, at := range all {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.pieces[at.piece].weight(int(at.row))))
		}
	}
	for _, at := range all {
		r, row := p.pieces[at.piece], int(at.row)
		if flags&isWide != 0 {
			for j := range p.n {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(r.at(row, j)))
			}
			continue
		}
		for _, x := range r.narrow[row*p.n : (row+1)*p.n] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

func (p *Part) flags() (flags byte) {
	for _, r := range p.pieces {
		if r.weights != nil {
			flags |= hasWeights
		}
		if r.wide != nil {
			flags |= isWide
		}
	}
	return flags
}

// encodedSize is about the length of the encoding, and hardly ever less.
func (p *Part) encodedSize(flags byte) int {
	const (
		head  = 8 + sha256.Size + 1 + 3*binary.MaxVarintLen64
		class = 2*binary.MaxVarintLen64 + 1
	)
	row := 4 + 4*p.n // an index below 2^14 ahead and one of many classes
	if flags&isWide != 0 {
		row += 4 * p.n
	}
	if flags&hasWeights != 0 {
		row += 8
	}
	size := head + count(p.pieces)*row
	for _, c := range p.classes {
		size += class + len(c.label)
	}
	return size
}

// ErrEncoding is returned for bytes that are not the encoding of a part.
var ErrEncoding = errors.New("sample: not a valid encoding")

// DecodePart reads what AppendBinary wrote. What it accepts is safe to add, and
// comes back as the same bytes.
func DecodePart(b []byte) (*Part, error) {
	d := decoder{decode.Reader{Rest: b}}
	p := &Part{seed: binary.LittleEndian.Uint64(d.Take(8)), digest: [sha256.Size]byte(d.Take(sha256.Size))}
	flags := d.Take(1)[0]
	d.Bad = d.Bad || flags&^(hasWeights|isWide) != 0
	n := d.Uvarint()
	d.Bad = d.Bad || n > math.MaxInt32
	p.n = int(n)
	for range d.Count(3) {
		p.classes = append(p.classes, d.class())
		if k := len(p.classes); k > 1 && incremental.CompareLabels(p.classes[k-2].label, p.classes[k-1].label) >= 0 {
			d.Bad = true
		}
	}
	d.rows(p, flags)
	if d.Bad || len(d.Rest) > 0 || !p.whole() {
		return nil, ErrEncoding
	}
	return p, nil
}

// decoder reads a part.
type decoder struct{ decode.Reader }

func (d *decoder) class() class {
	c := class{label: d.Text()}
	d.Bad = d.Bad || incremental.CheckLabel(c.label) != nil
	total, from := d.Uvarint(), d.Take(1)[0]
	d.Bad = d.Bad || total == 0 || total > math.MaxInt32 || from > top
	c.total, c.from = int64(total), int(from)
	return c
}

func (d *decoder) rows(p *Part, flags byte) {
	m := d.Count(2)
	total := uint64(p.Rows())
	if m == 0 {
		d.Bad = d.Bad || flags != 0
		return
	}
	r := newRows(m, p.n)
	p.pieces = []*rows{r}
	z := streamOf(p.seed, &p.digest)
	next := uint64(0)
	for i := range m {
		gap, code := d.Uvarint(), d.Uvarint()
		if d.Bad || gap >= total || next+gap >= total || code >= uint64(len(p.classes)) {
			d.Bad = true
			return
		}
		index := uint32(next + gap)
		level := z.level(index)
		d.Bad = d.Bad || level < p.classes[code].from
		r.set(i, index, uint8(level), uint32(code))
		next += gap + 1
	}
	if flags&hasWeights != 0 {
		r.weights = d.Floats(m)
		ones := true
		for _, v := range r.weights {
			d.Bad = d.Bad || !(v > 0) || math.IsInf(v, 0)
			ones = ones && v == 1
		}
		d.Bad = d.Bad || ones
	}
	if d.Bad || r.n > len(d.Rest)/4/m {
		d.Bad = true
		return
	}
	if flags&isWide != 0 {
		r.wide = d.Floats(m * r.n)
		exact := true
		for _, x := range r.wide {
			d.Bad = d.Bad || x-x != 0
			exact = exact && isFloat32(x)
		}
		d.Bad = d.Bad || exact
		return
	}
	r.narrow = make([]float32, m*r.n)
	b := d.Take(4 * m * r.n)
	for i := range r.narrow {
		r.narrow[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		d.Bad = d.Bad || r.narrow[i]-r.narrow[i] != 0
	}
}

// whole says whether the part can have all rows from the levels that it says.
func (p *Part) whole() bool {
	have := make([]int64, len(p.classes))
	for _, r := range p.pieces {
		for _, c := range r.codes {
			have[c]++
		}
	}
	for c, n := range have {
		if class := &p.classes[c]; n > class.total || n < class.total && class.from == 0 {
			return false
		}
	}
	return p.Rows() <= math.MaxInt32
}
