package sample

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"streamd/incremental"
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

func keyOf(seed uint64, digest *[sha256.Size]byte) uint64 {
	return mix(binary.LittleEndian.Uint64(digest[:]) ^ mix(seed))
}

func hashOf(key uint64, index uint32) uint64 { return mix(key + (uint64(index)+1)*golden) }

// levelOf is the number of zero bits that a hash begins with, at most 63.
func levelOf(hash uint64) int { return bits.LeadingZeros64(hash | 1) }

// Fold is the fold of k that a block is in, 0 to k−1, by its content: of other
// bits of the digest than the hashes of its rows.
func Fold(digest [sha256.Size]byte, k int) int {
	return int(binary.LittleEndian.Uint64(digest[8:]) % uint64(k))
}

// Levels tells a Taker which rows to take. It is immutable.
type Levels struct {
	settings Settings
	common   int
	of       map[string]int // by class; a class that is new has 0
}

// Part is what a sample keeps of a block: the number of rows at every level of
// each class, and all rows from some level of the class on. It is immutable.
type Part struct {
	seed    uint64
	digest  [sha256.Size]byte
	classes []class // in canonical order, each with a row
	rows    rows
}

type class struct {
	label  string
	counts []uint32 // of the levels 0, 1, …; the last is not 0
}

// rows are rows of one block, by ascending index. They weigh 1 where weights is
// nil. The numbers lie row by row, in wide when one of them is no float32.
type rows struct {
	n       int
	index   []uint32
	codes   []int32
	weights []float64
	narrow  []float32
	wide    []float64
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
func (r *rows) pick(which []int) rows {
	out := rows{n: r.n, index: make([]uint32, len(which)), codes: make([]int32, len(which))}
	if r.weights != nil {
		out.weights = make([]float64, len(which))
	}
	if r.wide != nil {
		out.wide = make([]float64, 0, len(which)*r.n)
	} else {
		out.narrow = make([]float32, 0, len(which)*r.n)
	}
	for at, i := range which {
		out.index[at], out.codes[at] = r.index[i], r.codes[i]
		if r.weights != nil {
			out.weights[at] = r.weights[i]
		}
		if r.wide != nil {
			out.wide = append(out.wide, r.wide[i*r.n:(i+1)*r.n]...)
		} else {
			out.narrow = append(out.narrow, r.narrow[i*r.n:(i+1)*r.n]...)
		}
	}
	return out
}

// Digest is the content digest of the block.
func (p *Part) Digest() [sha256.Size]byte { return p.digest }

// Features is the number of features, n.
func (p *Part) Features() int { return p.rows.n }

// Rows is the number of rows of the block, those of weight > 0.
func (p *Part) Rows() int64 {
	var m int64
	for c := range p.classes {
		m += p.classes[c].rows()
	}
	return m
}

func (c *class) rows() int64 {
	var m int64
	for _, n := range c.counts {
		m += int64(n)
	}
	return m
}

// from is, for each class, the lowest level from which the part has all rows.
func (p *Part) from() []int {
	have := make([]int, len(p.classes))
	for _, c := range p.rows.codes {
		have[c]++
	}
	from := make([]int, len(p.classes))
	for c := range from {
		counts := p.classes[c].counts
		l := len(counts)
		for l > 0 && int(counts[l-1]) <= have[c] {
			l--
			have[c] -= int(counts[l])
		}
		from[c] = l
	}
	return from
}

// kept is the rows of a block that are held in memory.
type kept struct {
	digest [sha256.Size]byte
	key    uint64
	labels []string
	rows   rows
}

// keep gives the rows from the level of each class on; nil: there are none.
func (p *Part) keep(level []int) *kept {
	k := &kept{digest: p.digest, key: keyOf(p.seed, &p.digest), rows: p.rows}
	k.labels = make([]string, len(p.classes))
	for c := range p.classes {
		k.labels[c] = p.classes[c].label
	}
	return k.above(level)
}

// above is those of the rows that are of the level of their class or above; k
// itself when all are, nil when none is.
func (k *kept) above(level []int) *kept {
	var which []int
	for i, index := range k.rows.index {
		if levelOf(hashOf(k.key, index)) >= level[k.rows.codes[i]] {
			which = append(which, i)
		}
	}
	switch len(which) {
	case 0:
		return nil
	case k.rows.len():
		return k
	}
	return &kept{digest: k.digest, key: k.key, labels: k.labels, rows: k.rows.pick(which)}
}

// A Taker takes the parts of blocks. It keeps working memory from one block to
// the next and is not safe for concurrent use.
type Taker struct {
	counts []uint32    // levels for each class code
	level  []int       // of each class code
	taken  []candidate // rows
	order  []int       // codes with rows, in canonical order
	code   []int32     // of each class code, the place in order
	values []float64
}

type candidate struct {
	row   int32
	index uint32 // among the rows of weight > 0
}

// Take takes the part of a block, whose summary has the digest, with the rows
// that are to be held.
func (t *Taker) Take(b *incremental.Block, digest [sha256.Size]byte, l *Levels) *Part {
	p := &Part{seed: l.settings.Seed, digest: digest, rows: rows{n: len(b.Columns)}}
	t.prepare(b.Classes, l)
	t.count(b, keyOf(p.seed, &digest))
	t.sortClasses(b.Classes)
	t.limit(l)
	for _, code := range t.order {
		counts := t.counts[code*levels : (code+1)*levels]
		last := levels
		for counts[last-1] == 0 {
			last--
		}
		p.classes = append(p.classes, class{label: b.Classes[code], counts: slices.Clone(counts[:last])})
	}
	t.copyRows(b, p)
	return p
}

func (t *Taker) prepare(classes []string, l *Levels) {
	k := len(classes)
	t.counts = slices.Grow(t.counts[:0], k*levels)[:k*levels]
	clear(t.counts)
	t.level = t.level[:0]
	for _, label := range classes {
		level := l.common
		if l.of != nil {
			level = l.of[label]
		}
		t.level = append(t.level, level)
	}
	t.taken = t.taken[:0]
}

// count goes over the rows once.
func (t *Taker) count(b *incremental.Block, key uint64) {
	counts, level, index := t.counts, t.level, uint32(0)
	for i, c := range b.Codes {
		if b.Weights != nil && b.Weights[i] == 0 {
			continue
		}
		key += golden
		l := levelOf(mix(key))
		counts[int(c)*levels+l]++
		if l >= level[c] {
			t.taken = append(t.taken, candidate{row: int32(i), index: index})
		}
		index++
	}
}

func (t *Taker) sortClasses(classes []string) {
	t.order = t.order[:0]
	for code := range classes {
		if slices.ContainsFunc(t.counts[code*levels:(code+1)*levels], func(n uint32) bool { return n > 0 }) {
			t.order = append(t.order, code)
		}
	}
	slices.SortFunc(t.order, func(c, d int) int { return incremental.CompareLabels(classes[c], classes[d]) })
	t.code = slices.Grow(t.code[:0], len(classes))[:len(classes)]
	for at, code := range t.order {
		t.code[code] = int32(at)
	}
}

// limit raises the levels where a sample would do so for this block alone: that
// of more blocks has no lower ones then.
func (t *Taker) limit(l *Levels) {
	if len(t.taken) <= most*l.settings.Rows {
		return
	}
	var counts [levels]int64
	for _, code := range t.order {
		if l.settings.Balanced {
			clear(counts[:])
		}
		for level, n := range t.counts[code*levels : (code+1)*levels] {
			counts[level] += int64(n)
		}
		if l.settings.Balanced {
			quota := max(1, l.settings.Rows/len(t.order))
			t.level[code] = max(t.level[code], least(counts[:], enough*int64(quota)))
		}
	}
	if l.settings.Balanced {
		return
	}
	alone := least(counts[:], enough*int64(l.settings.Rows))
	for code := range t.level {
		t.level[code] = max(t.level[code], alone)
	}
}

// copyRows copies the rows that were taken and are not below the levels now.
func (t *Taker) copyRows(b *incremental.Block, p *Part) {
	key := keyOf(p.seed, &p.digest)
	t.taken = slices.DeleteFunc(t.taken, func(c candidate) bool {
		return levelOf(hashOf(key, c.index)) < t.level[b.Codes[c.row]]
	})
	m, n := len(t.taken), p.rows.n
	if m == 0 {
		return
	}
	p.rows.index, p.rows.codes = make([]uint32, m), make([]int32, m)
	for i, c := range t.taken {
		p.rows.index[i], p.rows.codes[i] = c.index, t.code[b.Codes[c.row]]
	}
	if b.Weights != nil {
		p.rows.weights = make([]float64, m)
		ones := true
		for i, c := range t.taken {
			p.rows.weights[i] = b.Weights[c.row]
			ones = ones && p.rows.weights[i] == 1
		}
		if ones {
			p.rows.weights = nil
		}
	}
	t.values = slices.Grow(t.values[:0], m*n)[:m*n]
	exact := true
	for j, column := range b.Columns {
		if values, ok := gram.Values[float32](column); ok {
			for i, c := range t.taken {
				t.values[i*n+j] = float64(values[c.row])
			}
			continue
		}
		for i, c := range t.taken {
			x := column.At(int(c.row))
			t.values[i*n+j] = x
			exact = exact && isFloat32(x)
		}
	}
	if !exact {
		p.rows.wide = slices.Clone(t.values)
		return
	}
	p.rows.narrow = make([]float32, m*n)
	for i, x := range t.values {
		p.rows.narrow[i] = float32(x)
	}
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
//	for each class in canonical order: label (uvarint length, bytes), levels
//	  (uvarint), and the rows of each level (uvarint)
//	rows kept, m (uvarint); for each: its index, less that of the row before it
//	  and 1 (uvarint), its class (uvarint)
//	m weights (float64), if there are; m·n numbers, row by row (float32 or float64)
func (p *Part) AppendBinary(b []byte) []byte {
	r := &p.rows
	b = binary.LittleEndian.AppendUint64(b, p.seed)
	b = append(b, p.digest[:]...)
	var flags byte
	if r.weights != nil {
		flags |= hasWeights
	}
	if r.wide != nil {
		flags |= isWide
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(r.n))
	b = binary.AppendUvarint(b, uint64(len(p.classes)))
	for _, c := range p.classes {
		b = binary.AppendUvarint(b, uint64(len(c.label)))
		b = append(b, c.label...)
		b = binary.AppendUvarint(b, uint64(len(c.counts)))
		for _, n := range c.counts {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	b = binary.AppendUvarint(b, uint64(r.len()))
	next := uint32(0)
	for i, index := range r.index {
		b = binary.AppendUvarint(b, uint64(index-next))
		b = binary.AppendUvarint(b, uint64(r.codes[i]))
		next = index + 1
	}
	for _, v := range r.weights {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	for _, x := range r.narrow {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	for _, x := range r.wide {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

// ErrEncoding is returned for bytes that are not the encoding of a part.
var ErrEncoding = errors.New("sample: not a valid encoding")

// DecodePart reads what AppendBinary wrote. It refuses everything that no Taker
// could have made, so that a decoded part is safe to add.
func DecodePart(b []byte) (*Part, error) {
	d := decoder{rest: b}
	p := &Part{seed: binary.LittleEndian.Uint64(d.take(8)), digest: [sha256.Size]byte(d.take(sha256.Size))}
	flags := d.take(1)[0]
	d.bad = d.bad || flags&^(hasWeights|isWide) != 0
	n := d.uvarint()
	d.bad = d.bad || n > math.MaxInt32
	p.rows.n = int(n)
	for range d.count(4) {
		p.classes = append(p.classes, d.class())
		if k := len(p.classes); k > 1 && incremental.CompareLabels(p.classes[k-2].label, p.classes[k-1].label) >= 0 {
			d.bad = true
		}
	}
	d.rows(p, flags)
	if d.bad || len(d.rest) > 0 || !p.whole() {
		return nil, ErrEncoding
	}
	return p, nil
}

func (d *decoder) class() class {
	c := class{label: string(d.take(d.count(1)))}
	d.bad = d.bad || incremental.CheckLabel(c.label) != nil
	k := d.count(1)
	if k > levels {
		d.bad = true
		return c
	}
	c.counts = make([]uint32, k)
	for l := range c.counts {
		n := d.uvarint()
		d.bad = d.bad || n > math.MaxInt32
		c.counts[l] = uint32(n)
	}
	d.bad = d.bad || k == 0 || c.counts[k-1] == 0
	return c
}

func (d *decoder) rows(p *Part, flags byte) {
	m := d.count(2)
	total := uint64(p.Rows())
	if m == 0 {
		d.bad = d.bad || flags != 0
		return
	}
	r := &p.rows
	r.index, r.codes = make([]uint32, m), make([]int32, m)
	next := uint64(0)
	for i := range m {
		gap, code := d.uvarint(), d.uvarint()
		if d.bad || gap >= total || next+gap >= total || code >= uint64(len(p.classes)) {
			d.bad = true
			return
		}
		r.index[i], r.codes[i] = uint32(next+gap), int32(code)
		next += gap + 1
	}
	if flags&hasWeights != 0 {
		r.weights = d.floats(m)
		ones := true
		for _, v := range r.weights {
			d.bad = d.bad || !(v > 0) || math.IsInf(v, 0)
			ones = ones && v == 1
		}
		d.bad = d.bad || ones
	}
	if d.bad || r.n > len(d.rest)/4/m {
		d.bad = true
		return
	}
	if flags&isWide != 0 {
		r.wide = d.floats(m * r.n)
		exact := true
		for _, x := range r.wide {
			d.bad = d.bad || x-x != 0
			exact = exact && isFloat32(x)
		}
		d.bad = d.bad || exact
		return
	}
	r.narrow = make([]float32, m*r.n)
	b := d.take(4 * m * r.n)
	for i := range r.narrow {
		r.narrow[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		d.bad = d.bad || r.narrow[i]-r.narrow[i] != 0
	}
}

// whole says whether the rows of each class are all those from some level on.
func (p *Part) whole() bool {
	have := make([][levels]uint32, len(p.classes))
	key := keyOf(p.seed, &p.digest)
	for i, index := range p.rows.index {
		have[p.rows.codes[i]][levelOf(hashOf(key, index))]++
	}
	for c, from := range p.from() {
		for l, n := range have[c] {
			var want uint32
			if counts := p.classes[c].counts; l >= from && l < len(counts) {
				want = counts[l]
			}
			if n != want {
				return false
			}
		}
	}
	return p.Rows() <= math.MaxInt32
}

// decoder reads an encoding from the front; after a fault all it gives is zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.bad, d.rest = true, nil
		return make([]byte, n)
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	x, k := binary.Uvarint(d.rest)
	// A last byte of 0 would mean that it is written longer than it need be.
	if d.bad || k <= 0 || k > 1 && d.rest[k-1] == 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[k:]
	return x
}

// count reads how many things follow that take at least size bytes each.
func (d *decoder) count(size int) int {
	x := d.uvarint()
	if x > uint64(len(d.rest)/size) {
		d.bad, d.rest = true, nil
		return 0
	}
	return int(x)
}

func (d *decoder) floats(n int) []float64 {
	if d.bad || n > len(d.rest)/8 {
		d.bad, d.rest = true, nil
		return nil
	}
	xs := make([]float64, n)
	b := d.take(8 * n)
	for i := range xs {
		xs[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return xs
}
