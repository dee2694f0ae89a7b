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
	few        = 16 // fewer rows get no piece of their own
)

type class struct {
	total uint32 // rows of weight > 0
	from  uint8  // the part has all rows from this level on
}

// Bytes is the size of the part's rows in memory.
func (p *Part) Bytes() (n int) {
	for i := range p.pieces {
		n += 4 * len(p.pieces[i].words)
	}
	return n
}

// Digest is the LabelledDigest of the block.
func (p *Part) Digest() [sha256.Size]byte { return p.digest }

// Features is the number of features, n.
func (p *Part) Features() int { return p.n }

// Whole is the block that the part is of, without its rows of weight 0. It is nil if the part lacks
// other rows.
func (p *Part) Whole() *incremental.Block {
	all := byPlace(p.pieces)
	if int64(len(all)) != p.Rows() {
		return nil
	}
	return p.block(all)
}

// block is a block of rows of the part.
func (p *Part) block(all []place) *incremental.Block {
	m := len(all)
	b := &incremental.Block{Classes: p.labels, Codes: make([]int32, m), Weights: make([]float64, m), Columns: make([]gram.Column, p.n)}
	numbers := make([]float64, m*p.n)
	for i, at := range all {
		r, row := p.row(at)
		b.Codes[i], b.Weights[i] = int32(r.code(row)), r.weight(row)
		for j := range p.n {
			numbers[j*m+i] = r.at(row, j)
		}
	}
	for j := range p.n {
		b.Columns[j] = gram.ColumnOf(numbers[j*m : (j+1)*m])
	}
	return b
}

// Check says why the part cannot be that of a block with this summary.
func (p *Part) Check(s *incremental.Summary) error {
	if p.n != s.Features() {
		return fmt.Errorf("its rows have %d features, those of the sums %d", p.n, s.Features())
	}
	totals := s.Totals()
	if len(totals) != len(p.classes) {
		return fmt.Errorf("it has %d classes, the sums %d", len(p.classes), len(totals))
	}
	for c, total := range totals {
		if p.labels[c] != total.Label || int64(p.classes[c].total) != total.Rows {
			return fmt.Errorf("it is of %d rows of class %.40q, and the sums are of %d of class %.40q",
				p.classes[c].total, p.labels[c], total.Rows, total.Label)
		}
	}
	if p.digest != s.LabelledDigest() {
		return errors.New("its digest is not that of the sums")
	}
	if p.flags()&(hasWeights|isWide) == 0 { // a finite float32 is in range
		return nil
	}
	if bad := p.block(byIndex(p.pieces)).FirstBadRow(); bad != nil {
		return bad
	}
	return nil
}

// byPlace lists the rows of pieces by their places in the block.
func byPlace(pieces []rows) []place {
	all := byIndex(pieces)
	slices.SortStableFunc(all, func(a, b place) int {
		return cmp.Compare(pieces[a.piece].place(int(a.row)), pieces[b.piece].place(int(b.row)))
	})
	return all
}

// unlabelled is the class of the rows without a label, or −1.
func (p *Part) unlabelled() int { return slices.Index(p.labels, incremental.Unlabelled) }

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

// equal reports whether two parts have the same rows, bit for bit.
func (p *Part) equal(q *Part) bool {
	if p == q || count(p.pieces) != count(q.pieces) {
		return p == q
	}
	if len(p.pieces) == 1 && len(q.pieces) == 1 && p.digest == q.digest && p.n == q.n && slices.Equal(p.labels, q.labels) {
		if r, s := &p.pieces[0], &q.pieces[0]; r.flags == s.flags && slices.Equal(r.words, s.words) {
			return true // as the parts of blocks that came as equal sums are
		}
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
		cmp.Compare(r.place(i), s.place(k)),
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

// AppendBinary appends the part's encoding, all numbers little endian:
//
//	seed (8), digest (32), flags (1): 1 rows have weights, 2 numbers are float64, 4 rows
//	  have places, 8 zeros are left out
//	n, k (uvarint)
//	for each class in canonical order: label (uvarint length, bytes), rows of
//	  weight > 0 (uvarint), the level from which on all are kept (1)
//	rows kept, m (uvarint); for each: its index, less that of the row before it
//	  and 1 (uvarint), its class (uvarint), and its place in the block (uvarint), if it
//	  is not the index
//	m weights (float64), if there are; m·n numbers, row by row (float32 or float64).
//	  Without zeros: of each row, ⌈n/8⌉ bytes in which bit j mod 8 of byte ⌊j/8⌋ says that
//	  number j is not 0, and these numbers
//
// Zeros are left out where that is shorter.
func (p *Part) AppendBinary(b []byte) []byte {
	flags := p.flags()
	size, sparse := p.numbersSize(flags)
	if sparse {
		flags |= isSparse
	}
	b = slices.Grow(b, p.encodedSize(flags, size))
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
		if flags&hasPlaces != 0 {
			b = binary.AppendUvarint(b, uint64(r.place(row)))
		}
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
		b = p.appendNumbers(b, r, row, flags)
	}
	return b
}

// appendNumbers appends the numbers of a row.
func (p *Part) appendNumbers(b []byte, r *rows, row int, flags byte) []byte {
	bits := len(b)
	if flags&isSparse != 0 {
		b = append(b, make([]byte, (p.n+7)/8)...)
	}
	if flags&isWide != 0 {
		for j := range p.n {
			x := math.Float64bits(r.at(row, j))
			if flags&isSparse != 0 {
				if x == 0 {
					continue
				}
				b[bits+j/8] |= 1 << (j % 8)
			}
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	for j, x := range r.row(row)[r.numbers():] {
		if flags&isSparse != 0 {
			if x == 0 {
				continue
			}
			b[bits+j/8] |= 1 << (j % 8)
		}
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// numbersSize is the length of all encoded numbers, and whether it is that without zeros.
func (p *Part) numbersSize(flags byte) (size int, sparse bool) {
	m, others := 0, 0 // numbers that are not 0
	for i := range p.pieces {
		r := &p.pieces[i]
		m += r.len()
		others += r.nonZero()
	}
	number := 4
	if flags&isWide != 0 {
		number = 8
	}
	size = m * p.n * number
	without := m*((p.n+7)/8) + others*number
	return min(size, without), without < size
}

func (p *Part) flags() (flags byte) {
	for _, r := range p.pieces {
		flags |= r.flags
	}
	return flags
}

// encodedSize estimates the length of the encoding with numbers of a size, and is rarely too small.
func (p *Part) encodedSize(flags byte, numbers int) int {
	const (
		head  = 8 + sha256.Size + 1 + 3*binary.MaxVarintLen64
		class = 2*binary.MaxVarintLen64 + 1
	)
	row := 4 // an index difference below 2^14, and one of many classes
	if flags&hasWeights != 0 {
		row += 8
	}
	size := head + count(p.pieces)*row + numbers
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
	d.Bad = d.Bad || flags&^(hasWeights|isWide|hasPlaces|isSparse) != 0
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
	if _, sparse := p.numbersSize(flags); sparse != (flags&isSparse != 0) {
		return nil, ErrEncoding
	}
	return p, nil
}

// Peek returns the number of classes of an encoded part, and the bytes that its decoded rows take:
// without zeros these may be 64 times as many as the encoding has. ok is false where b ends before.
func Peek(b []byte) (classes, bytes int, ok bool) {
	const flagsAt = 8 + sha256.Size // behind seed and digest
	if len(b) <= flagsAt {
		return 0, 0, false
	}
	flags := b[flagsAt]
	r := decode.Reader{Rest: b[flagsAt+1:]}
	n := r.Uvarint()
	classes = r.Count(3)
	for range classes {
		r.Take(r.Count(1))
		r.Uvarint()
		r.Take(1)
	}
	form := rows{n: uint32(min(n, math.MaxInt32)), flags: flags &^ isSparse}
	m := r.Count(2 + form.leastBytes(flags))
	return classes, 4 * m * form.stride(), !r.Bad && n <= math.MaxInt32
}

// decoder decodes a part.
type decoder struct{ decode.Reader }

func (d *decoder) class() (string, class) {
	label := d.Text()
	d.Bad = d.Bad || label != incremental.Unlabelled && incremental.CheckLabel(label) != nil
	total, from := d.Uvarint(), d.Take(1)[0]
	d.Bad = d.Bad || total == 0 || total > math.MaxInt32 || from > top
	return label, class{total: uint32(total), from: from}
}

func (d *decoder) rows(p *Part, flags byte) {
	form := rows{n: uint32(p.n), flags: flags &^ isSparse}
	least := 2 + form.leastBytes(flags)
	if flags&hasPlaces != 0 {
		least++
		d.Bad = d.Bad || p.unlabelled() < 0
	}
	m := d.Count(least)
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
		if flags&hasPlaces != 0 {
			place := d.Uvarint()
			d.Bad = d.Bad || place > math.MaxInt32
			r.setPlace(i, uint32(place))
		}
		next += gap + 1
	}
	for i := 0; flags&hasWeights != 0 && i < m; i++ {
		v := math.Float64frombits(binary.LittleEndian.Uint64(d.Take(8)))
		d.Bad = d.Bad || !(v > 0) || math.IsInf(v, 0)
		r.setWeight(i, v)
	}
	for i := range m {
		words := r.row(i)[r.numbers():]
		d.numbers(words, flags)
		d.Bad = d.Bad || !finite(words, flags&isWide != 0)
	}
	d.Bad = d.Bad || form.flags&^hasPlaces != 0 && r.narrowest().flags != form.flags
	p.pieces = append(p.one[:0], r)
}

// numbers reads the numbers of a row.
func (d *decoder) numbers(words []uint32, flags byte) {
	if flags&isSparse == 0 {
		b := d.Take(4 * len(words))
		for j := range words {
			words[j] = binary.LittleEndian.Uint32(b[4*j:])
		}
		return
	}
	each := 1
	if flags&isWide != 0 {
		each = 2
	}
	n := len(words) / each
	for at, mask := range d.Take((n + 7) / 8) {
		for ; mask != 0 && !d.Bad; mask &= mask - 1 {
			j := 8*at + bits.TrailingZeros8(mask)
			b, some := d.Take(4*each), uint32(0)
			for k := 0; k < each && j < n; k++ {
				words[each*j+k] = binary.LittleEndian.Uint32(b[4*k:])
				some |= words[each*j+k]
			}
			d.Bad = d.Bad || some == 0 // 0, or beyond the last number
		}
	}
}

// whole reports whether the part can have all rows from its classes' levels on.
func (p *Part) whole() bool {
	have := make([]uint32, 0, 16) // for few classes, no allocation
	have = append(have, make([]uint32, len(p.classes))...)
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
