package incremental

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"streamd/incremental/decode"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

// Summary holds a block's sums: for each class the number of rows, Σv, Σv(x−c) and
// Σv(x−c)(x−c)' about an origin c that is taken from the block's data. It is immutable
// and small: O(k·n²) for k classes.
type Summary struct {
	origin  []float64      // c, n
	window  exact.Window   // of the terms that it adds to the sums of a State
	classes []classSummary // in canonical order, each with at least one row

	hash   sync.Once // of digest: workers, the loop and saves ask for it
	digest [sha256.Size]byte
}

type classSummary struct {
	label  string
	rows   int64     // rows of weight > 0
	weight float64   // Σv
	s      []float64 // Σv(x−c), n
	cross  []float64 // Σv(x−c)(x−c)', packed lower triangle
}

// Features is n.
func (s *Summary) Features() int { return len(s.origin) }

// Rows is the number of summed rows: those of weight > 0.
func (s *Summary) Rows() int64 {
	var m int64
	for i := range s.classes {
		m += s.classes[i].rows
	}
	return m
}

// Bytes is the summary's size in memory, up to some bytes per class.
func (s *Summary) Bytes() int {
	n := len(s.origin)
	return 8 * (n + len(s.classes)*(1+n+gram.PackedLen(n)))
}

// Window has room for the terms that the summary adds to each sum of a State.
func (s *Summary) Window() exact.Window { return s.window }

// Classes lists the classes of the summed rows, Unlabelled included, in canonical order.
func (s *Summary) Classes() []string {
	labels := make([]string, len(s.classes))
	for i := range s.classes {
		labels[i] = s.classes[i].label
	}
	return labels
}

// Label is the label of all summed rows. It is "" if they have several, or none.
func (s *Summary) Label() string {
	if len(s.classes) != 1 || s.classes[0].label == Unlabelled {
		return ""
	}
	return s.classes[0].label
}

// Unlabelled is the number of summed rows without a label.
func (s *Summary) Unlabelled() int64 {
	for i := range s.classes {
		if s.classes[i].label == Unlabelled {
			return s.classes[i].rows
		}
	}
	return 0
}

// Totals lists the classes of the summed rows, Unlabelled included, in canonical order.
func (s *Summary) Totals() []ClassTotal {
	out := make([]ClassTotal, len(s.classes))
	for i, c := range s.classes {
		out[i] = ClassTotal{Label: c.label, Rows: c.rows, Weight: c.weight}
	}
	return out
}

// OnlyRow is the row that a summary of one row is made of. A value is itself the origin, or it is 0
// or 1 and summed about the origin 0. Then the sum is 0 or the weight. So the row is exact, but a
// −0 comes back as 0, which has the same summary. ok is false for summaries of more rows.
func (s *Summary) OnlyRow() (row []float64, ok bool) {
	if len(s.classes) != 1 || s.classes[0].rows != 1 {
		return nil, false
	}
	row = make([]float64, len(s.origin))
	for j, c := range s.origin {
		row[j] = c + s.classes[0].s[j]/s.classes[0].weight
	}
	return row, true
}

// Weighted reports whether the sums show that some rows have weights other than 1.
func (s *Summary) Weighted() bool {
	return slices.ContainsFunc(s.classes, func(c classSummary) bool { return c.weight != float64(c.rows) })
}

// Select returns the summary of some of the features, in an order: feature at[j] becomes
// feature j. Without weights the result has the same bits as the summary, about the same
// origin, of the block with these columns. The same holds with weights as long as the
// features keep their order. In another order products of weighted rows may round
// differently.
func (s *Summary) Select(at []int) *Summary {
	out := &Summary{origin: selected(s.origin, at), classes: slices.Clone(s.classes), window: s.window}
	for i := range out.classes {
		c := &out.classes[i]
		c.s = selected(c.s, at)
		c.cross = selectedProducts(c.cross, at)
	}
	return out
}

func selected(x []float64, at []int) []float64 {
	out := make([]float64, len(at))
	for j, from := range at {
		out[j] = x[from]
	}
	return out
}

// A Summariser makes summaries. It keeps working memory from one block to the
// next and is not safe for concurrent use.
type Summariser struct {
	kernel  gram.Kernel
	sums    []gram.Sums // of each class code
	order   []int       // the codes of the classes with rows, in canonical order
	weights []float64   // of the rows that the origin is taken from
}

// Summarise sums the rows of a block. It fails with the *RowError of
// Block.FirstBadRow when a number is NaN or infinite, a weight is negative, or
// a sum does not fit the exact sums of a State. The block is not kept. The
// cost is m·n²/2 fused multiply-adds.
//
// The origin c_j is the median of feature j in the first, the middle and the
// last row of weight > 0. Sums about it lose digits in proportion to the spread of the
// data instead of its distance from zero: the variance of a feature whose mean is
// 10,000 standard deviations away keeps sixteen digits instead of eight. The origin is
// a value of the data, so that whole numbers stay whole numbers, and their sums are
// exact however rows are divided into blocks. Columns of nothing but 0 and 1 have the origin 0:
// their sums count rows, and blocks of many such columns are summed by their ones.
//
// When these three rows are outliers, the sums show it (see offCentre). The
// origin then moves to the median of all rows, and the rows are summed again.
//
// Rows without a label do not count for the origin if others have one. So the sums of
// the classes have the same bits as those of the block without these rows.
func (z *Summariser) Summarise(b *Block) (*Summary, error) {
	return z.SummariseContext(context.Background(), b)
}

// SummariseContext is Summarise that stops when ctx ends and returns its cause. A block
// of many features may take minutes.
func (z *Summariser) SummariseContext(ctx context.Context, b *Block) (*Summary, error) {
	checkShape(b)
	positive := b.Rows()
	if b.Weights != nil {
		positive = 0
		for _, v := range b.Weights {
			if !(v >= 0) || math.IsInf(v, 0) {
				return nil, b.FirstBadRow()
			}
			if v > 0 {
				positive++
			}
		}
	}
	of := b // the rows that the origin is taken from
	if unlabelled := slices.Index(b.Classes, Unlabelled); unlabelled >= 0 {
		if labelled, rows := z.labelled(b, int32(unlabelled)); rows > 0 {
			of, positive = labelled, rows
		}
	}
	origin := make([]float64, len(b.Columns))
	if positive > 0 {
		first, middle, last := probes(of, positive)
		for j, c := range b.Columns {
			origin[j] = median(c.At(first), c.At(middle), c.At(last)) + 0 // never −0
			if origin[j] == 1 && gram.Binary(c, of.Weights) {
				origin[j] = 0
			}
		}
	}
	if err := z.sum(ctx, b, origin); err != nil {
		return nil, err
	}
	order := z.order
	if of != b {
		order = slices.DeleteFunc(slices.Clone(order), func(code int) bool { return b.Classes[code] == Unlabelled })
	}
	if recentre(of, z.sums, order, origin) {
		if err := z.sum(ctx, b, origin); err != nil {
			return nil, err
		}
	}
	return z.take(b, origin)
}

// labelled returns the block with weight 0 for its rows of the class code, and the number
// of the other rows of weight > 0.
func (z *Summariser) labelled(b *Block, code int32) (of *Block, rows int) {
	z.weights = z.weights[:0]
	for i, c := range b.Codes {
		v := b.Weight(i)
		if c == code {
			v = 0
		}
		if v > 0 {
			rows++
		}
		z.weights = append(z.weights, v)
	}
	labelled := *b
	labelled.Weights = z.weights
	return &labelled, rows
}

// SummariseLike sums the rows of a block about the origin of s. The result has the
// digest of s if s was made of the same rows, by whatever rule its origin was chosen.
// It fails like SummariseContext.
func (z *Summariser) SummariseLike(ctx context.Context, s *Summary, b *Block) (*Summary, error) {
	checkShape(b)
	if len(b.Columns) != len(s.origin) {
		panic(fmt.Sprintf("incremental: %d columns for an origin of %d", len(b.Columns), len(s.origin)))
	}
	for _, v := range b.Weights {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, b.FirstBadRow()
		}
	}
	if err := z.sum(ctx, b, s.origin); err != nil {
		return nil, err
	}
	return z.take(b, s.origin)
}

// sum sums the rows about an origin, and lists the classes that have rows in
// canonical order.
func (z *Summariser) sum(ctx context.Context, b *Block, origin []float64) error {
	k := len(b.Classes)
	z.sums = slices.Grow(z.sums[:0], k)[:k]
	if err := z.kernel.SumContext(ctx, z.sums, b.Columns, b.Codes, b.Weights, origin); err != nil {
		clear(z.sums)
		return err
	}
	z.order = z.order[:0]
	for code := range z.sums {
		if z.sums[code].Rows > 0 {
			z.order = append(z.order, code)
		}
	}
	slices.SortFunc(z.order, func(c, d int) int { return CompareLabels(b.Classes[c], b.Classes[d]) })
	return nil
}

// take moves the sums into a summary.
func (z *Summariser) take(b *Block, origin []float64) (*Summary, error) {
	out := &Summary{origin: origin, classes: make([]classSummary, len(z.order))}
	for i, code := range z.order {
		sum := &z.sums[code]
		out.classes[i] = classSummary{
			label: b.Classes[code], rows: int64(sum.Rows),
			weight: sum.Weight, s: sum.S, cross: sum.Cross,
		}
	}
	clear(z.sums)
	if err := out.check(b); err != nil {
		return nil, err
	}
	return out, nil
}

// probes returns the first, the middle and the last of the block's m rows of
// weight > 0.
func probes(b *Block, m int) (first, middle, last int) {
	if m == b.Rows() {
		return 0, m / 2, m - 1
	}
	seen := 0
	for i, v := range b.Weights {
		if v > 0 {
			if seen == 0 {
				first = i
			}
			if seen == m/2 {
				middle = i
			}
			last = i
			seen++
		}
	}
	return first, middle, last
}

func median(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// checkShape panics when the lengths of a block's slices do not match.
func checkShape(b *Block) {
	m := b.Rows()
	if m > math.MaxInt32 {
		panic("incremental: a block of more than 2^31 rows")
	}
	if b.Weights != nil && len(b.Weights) != m {
		panic(fmt.Sprintf("incremental: %d weights for %d rows", len(b.Weights), m))
	}
	if b.Features != nil && len(b.Features) != len(b.Columns) {
		panic(fmt.Sprintf("incremental: %d names for %d columns", len(b.Features), len(b.Columns)))
	}
	for j, c := range b.Columns {
		if c.Len() != m {
			panic(fmt.Sprintf("incremental: column %d has %d of %d rows", j, c.Len(), m))
		}
	}
}

// check returns an error unless the sums fit a State. They fit when every number is in
// range, so there is a bad row to name when they do not.
func (s *Summary) check(b *Block) error {
	if s.fits() {
		return nil
	}
	if bad := b.FirstBadRow(); bad != nil {
		return bad
	}
	panic("incremental: numbers in range have sums that are not")
}

// fits reports whether every term that the summary adds to a State fits its sums, and
// sets the window of these terms. They are Σv, the sums about the origin c,
// w_j = Σv(x−c)_j + Σv·c_j, the products c_k·Σv(x−c)_j and c_j·w_k, and the rounding
// errors of those sums and products, which are multiples of the factors' lowest bits.
// (For numbers in range the lowest bit is 2^-494 or above and the sums are below 2^330.)
func (s *Summary) fits() bool {
	var origin span
	origin.cover(s.origin)
	for i := range s.classes {
		c := &s.classes[i]
		var weight, first, second span
		weight.cover([]float64{c.weight})
		first.cover(c.s)
		second.cover(c.cross)
		shifted := first.plus(weight.times(origin))
		terms := []span{weight, shifted, second, shifted.times(origin)}
		for _, t := range terms {
			if t.bad || t.used && (t.low < exact.MinExponent || t.high > exact.MaxExponent) {
				return false
			}
			if t.used {
				s.window = s.window.Union(exact.WindowOf(t.low, t.high))
			}
		}
	}
	return true
}

// AppendBinary appends the summary's encoding, all numbers little endian:
// n and k (uvarint), c (n float64), and for each class in canonical order the
// label (uvarint length, bytes), its rows (uvarint), Σv, Σv(x−c) (n) and the
// packed lower triangle of Σv(x−c)(x−c)', float64 each.
func (s *Summary) AppendBinary(b []byte) []byte {
	n := len(s.origin)
	const head = 2 * binary.MaxVarintLen64
	b = slices.Grow(b, head+8*n+len(s.classes)*(head+MaxLabel+8*(1+n+gram.PackedLen(n))))
	b = binary.AppendUvarint(b, uint64(len(s.origin)))
	b = binary.AppendUvarint(b, uint64(len(s.classes)))
	b = appendFloats(b, s.origin)
	for i := range s.classes {
		c := &s.classes[i]
		b = binary.AppendUvarint(b, uint64(len(c.label)))
		b = append(b, c.label...)
		b = binary.AppendUvarint(b, uint64(c.rows))
		b = appendFloats(b, []float64{c.weight})
		b = appendFloats(b, c.s)
		b = appendFloats(b, c.cross)
	}
	return b
}

// Digest is SHA-256 over the summary's encoding. It names the content of a block
// wherever the block lies in a log. Blocks of the same rows in the same order have the
// same digest. Other blocks have another one, except for a reordering that changes no
// rounded sum.
func (s *Summary) Digest() [sha256.Size]byte {
	s.hash.Do(func() { s.digest = s.digestOf(s.classes) })
	return s.digest
}

// LabelledDigest is the digest of the block without its rows without a label, or Digest
// if no row has a label. It decides about a block's fold and its rows in the sample. So
// these do not depend on rows without a label.
func (s *Summary) LabelledDigest() [sha256.Size]byte {
	at := slices.IndexFunc(s.classes, func(c classSummary) bool { return c.label == Unlabelled })
	if at < 0 || len(s.classes) == 1 {
		return s.Digest()
	}
	return s.digestOf(slices.Delete(slices.Clone(s.classes), at, at+1))
}

func (s *Summary) digestOf(classes []classSummary) [sha256.Size]byte {
	h := sha256.New()
	// Hash in pieces: the sums of a wide block are as large as its rows.
	var buffer [4096]byte
	b := binary.AppendUvarint(buffer[:0], uint64(len(s.origin)))
	b = binary.AppendUvarint(b, uint64(len(classes)))
	floats := func(xs []float64) {
		for len(xs) > 0 {
			if len(b)+8 > len(buffer) {
				h.Write(b)
				b = b[:0]
			}
			some := xs[:min(len(xs), (len(buffer)-len(b))/8)]
			b, xs = appendFloats(b, some), xs[len(some):]
		}
	}
	floats(s.origin)
	for i := range classes {
		c := &classes[i]
		h.Write(b)
		b = binary.AppendUvarint(b[:0], uint64(len(c.label)))
		b = append(b, c.label...)
		b = binary.AppendUvarint(b, uint64(c.rows))
		floats([]float64{c.weight})
		floats(c.s)
		floats(c.cross)
	}
	h.Write(b)
	return [sha256.Size]byte(h.Sum(nil))
}

// ErrEncoding reports bytes that do not encode a summary or a state.
var ErrEncoding = errors.New("incremental: not a valid encoding")

// DecodeSummary decodes the output of AppendBinary. It fails with ErrEncoding on everything
// that is not a summary, or does not fit a State, so a decoded summary is safe to add. Sums
// from elsewhere may still be ones that no rows have (see Possible).
func DecodeSummary(b []byte) (*Summary, error) {
	d := decoder{decode.Reader{Rest: b}}
	n := d.Count(8)
	products := gram.PackedLen(n)
	k := d.Count(2 + 8*(1+n+products))
	numbers := make([]float64, n+k*(n+products)) // one allocation for all sums
	next := func(n int) []float64 {
		xs := numbers[:n:n]
		numbers = numbers[n:]
		d.Fill(xs)
		return xs
	}
	s := &Summary{origin: next(n), classes: make([]classSummary, 0, k)}
	for range k {
		c := classSummary{label: d.label(), rows: int64(d.Uvarint())}
		var weight [1]float64
		d.Fill(weight[:])
		c.weight, c.s, c.cross = weight[0], next(n), next(products)
		switch {
		case d.Bad:
			return nil, ErrEncoding
		case c.rows < 1 || c.rows > 1<<62:
			return nil, fmt.Errorf("%w: class %.40q has %d rows", ErrEncoding, c.label, c.rows)
		case !(c.weight > 0):
			return nil, fmt.Errorf("%w: the sum of the weights of class %.40q is %v", ErrEncoding, c.label, c.weight)
		case len(s.classes) > 0 && CompareLabels(s.classes[len(s.classes)-1].label, c.label) >= 0:
			return nil, fmt.Errorf("%w: class %.40q is not in its place", ErrEncoding, c.label)
		}
		s.classes = append(s.classes, c)
	}
	if d.Bad || len(d.Rest) != 0 {
		return nil, ErrEncoding
	}
	if !s.fits() {
		return nil, fmt.Errorf("%w: a number is not in the range of exact sums", ErrEncoding)
	}
	return s, nil
}

func appendFloats(b []byte, xs []float64) []byte {
	for _, x := range xs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

// decoder decodes a summary or a state.
type decoder struct{ decode.Reader }

func (d *decoder) rows() int64 {
	x := d.Uvarint()
	d.Bad = d.Bad || x == 0 || x > 1<<62
	return int64(x)
}

func (d *decoder) label() string {
	label := d.Text()
	d.Bad = d.Bad || label != Unlabelled && CheckLabel(label) != nil
	return label
}
