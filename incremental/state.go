package incremental

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"streamd/incremental/decode"
	"streamd/incremental/exact"
	"streamd/incremental/gram"
)

// Algorithm is the number of the rules that make sums of rows, and planes of sums. A change after
// which the same rows and options can have another digest or other planes raises it.
const Algorithm = 1

// State is the exact sum of block summaries: for each class the rows, Σv, Σvx
// and Σvxx', about zero, without rounding. It depends only on which summaries
// are in it. The caller removes only summaries that are in it; the ledger of live
// blocks keeps track.
//
// A State is not safe for concurrent use.
type State struct {
	features []string
	classes  []*classState // in canonical order, each with at least one row
	scale    int           // the sums are in units of 2^-scale; see WeightedSum

	memory shifting // made with the first summary
}

type classState struct {
	label  string
	rows   int64
	weight *exact.Vector // Σv, 1
	s      *exact.Vector // Σvx, n
	cross  *exact.Vector // Σvxx', packed lower triangle
}

// NewState returns the empty state over the given features.
func NewState(features []string) *State {
	return &State{features: slices.Clone(features)}
}

// Clone copies the state.
func (s *State) Clone() *State {
	c := NewState(s.features)
	c.SetSum([]*State{s})
	return c
}

// Features lists the features' names, in order.
func (s *State) Features() []string { return slices.Clone(s.features) }

// Rows is the number of rows in the state.
func (s *State) Rows() int64 {
	var m int64
	for _, c := range s.classes {
		m += c.rows
	}
	return m
}

// Classes is k, the number of classes with rows in the state. Unlabelled is none.
func (s *State) Classes() int {
	if s.Has(Unlabelled) {
		return len(s.classes) - 1
	}
	return len(s.classes)
}

// Unlabelled counts the rows without a label in the state.
func (s *State) Unlabelled() ClassTotal {
	if at, found := s.find(Unlabelled); found {
		return s.total(s.classes[at])
	}
	return ClassTotal{}
}

// Window covers the windows of all sums.
func (s *State) Window() (w exact.Window) {
	for _, c := range s.classes {
		w = w.Union(c.weight.Window()).Union(c.s.Window()).Union(c.cross.Window())
	}
	return w
}

// Bytes is the size of the sums in memory.
func (s *State) Bytes() (n int) {
	for _, c := range s.classes {
		for _, v := range []*exact.Vector{c.weight, c.s, c.cross} {
			n += v.Window().Bytes() * v.Len()
		}
	}
	return n
}

// Labels lists the classes of the state, without Unlabelled, in canonical order.
func (s *State) Labels() []string {
	labels := make([]string, 0, len(s.classes))
	for _, c := range s.classes {
		if c.label != Unlabelled {
			labels = append(labels, c.label)
		}
	}
	return labels
}

// Has reports whether the state has rows of the class, which may be Unlabelled.
func (s *State) Has(label string) bool {
	_, found := s.find(label)
	return found
}

// ClassTotal counts the rows of a class in a State or a Summary.
type ClassTotal struct {
	Label  string
	Rows   int64
	Weight float64 // Σv; of a State, rounded to nearest
}

// Totals lists the classes of the state, without Unlabelled, in canonical order.
func (s *State) Totals() []ClassTotal {
	out := make([]ClassTotal, 0, len(s.classes))
	for _, c := range s.classes {
		if c.label == Unlabelled {
			continue
		}
		out = append(out, s.total(c))
	}
	return out
}

func (s *State) total(c *classState) ClassTotal {
	weight, _ := c.weight.Split(0)
	return ClassTotal{Label: c.label, Rows: c.rows, Weight: math.Ldexp(weight, -s.scale)}
}

func (s *State) find(label string) (int, bool) {
	if len(s.classes) <= fewClasses {
		for i, c := range s.classes {
			if c.label == label {
				return i, true
			}
		}
	}
	return slices.BinarySearchFunc(s.classes, label, func(c *classState, label string) int {
		return CompareLabels(c.label, label)
	})
}

// Among fewClasses a search for a label that is there needs no order.
const fewClasses = 8

// Add adds a summary, in O(k·n²). It panics when the widths differ.
func (s *State) Add(b *Summary) { s.add(b, 1, 0) }

// Remove takes out a summary that is in the state, in O(k·n²) whatever the
// number of its rows. It leaves the same bits as a state that never had it.
// It panics when a class would be left with fewer than 0 rows, or with 0 rows and
// sums that are not 0: then the summary was not in the state.
func (s *State) Remove(b *Summary) { s.add(b, -1, 0) }

// AddTimes adds 2^exponent times the sums of a summary, without rounding. Its rows count once. The
// exponent is from 0 to MostExponent.
func (s *State) AddTimes(b *Summary, exponent int) { s.add(b, 1, exponent) }

// RemoveTimes takes out what AddTimes added, and panics like Remove.
func (s *State) RemoveTimes(b *Summary, exponent int) { s.add(b, -1, exponent) }

// MostExponent is the largest exponent of AddTimes. Sums of any rows stay in range with it.
const MostExponent = 32

// Rescale multiplies all sums by 2^exponent. It panics when a bit would be lost.
func (s *State) Rescale(exponent int) {
	for _, c := range s.classes {
		for _, v := range []**exact.Vector{&c.weight, &c.s, &c.cross} {
			moved := exact.NewVector((*v).Len())
			moved.AddMultiple(*v, 1, exponent)
			*v = moved
		}
	}
}

// WeightedSum returns the exact sum of parts, each times its weight in units of 2^-scale: the row
// weights are multiplied, and the counts of rows stay. A weight is positive and below 2^63. All
// that is read off the result is of the weighted rows; it has no encoding, and takes no more
// summaries. It panics when the widths differ. Each part takes O(k·n²).
func WeightedSum(features []string, parts []*State, weights []uint64, scale int) *State {
	sum := NewState(features)
	sum.scale = scale
	for i, part := range parts {
		sum.checkWidth(len(part.features))
		for _, from := range part.classes {
			c := sum.classes[sum.class(from.label)]
			c.rows += from.rows
			c.weight.AddMultiple(from.weight, weights[i], 0)
			c.s.AddMultiple(from.s, weights[i], 0)
			c.cross.AddMultiple(from.cross, weights[i], 0)
		}
	}
	return sum
}

// SetSum makes s the sum of parts, in O(k·n²) for each, and reuses the memory of s. The parts are
// of one scale. It panics when the widths differ.
func (s *State) SetSum(parts []*State) {
	s.scale = 0
	for _, c := range s.classes {
		c.rows = 0
		c.weight.Clear()
		c.s.Clear()
		c.cross.Clear()
	}
	for i, part := range parts {
		s.checkWidth(len(part.features))
		if i == 0 {
			s.scale = part.scale
		}
		s.checkScale(part.scale)
		for _, from := range part.classes {
			c := s.classes[s.class(from.label)]
			c.rows += from.rows
			c.weight.AddVector(from.weight)
			c.s.AddVector(from.s)
			c.cross.AddVector(from.cross)
		}
	}
	s.classes = slices.DeleteFunc(s.classes, func(c *classState) bool { return c.rows == 0 })
}

// Without is s less part, for example less a fold that is held out. All summaries of
// part must be in s. The result has the same bits as a state that never had them. It
// takes O(k·n²), and panics when the widths differ or where Remove panics.
func (s *State) Without(part *State) *State {
	rest := s.Clone()
	rest.checkWidth(len(part.features))
	rest.checkScale(part.scale)
	for _, less := range part.classes {
		at := rest.class(less.label)
		c := rest.classes[at]
		c.rows -= less.rows
		c.weight.SubVector(less.weight)
		c.s.SubVector(less.s)
		c.cross.SubVector(less.cross)
		rest.settle(at)
	}
	return rest
}

// Less is Without for a part that may not be in s. ok is false where the sums show that it is not:
// where fewer rows would be left than none, or sums that no rows have.
func (s *State) Less(part *State) (rest *State, ok bool) {
	rest = s.Clone()
	rest.checkWidth(len(part.features))
	rest.checkScale(part.scale)
	for _, less := range part.classes {
		at, found := rest.find(less.label)
		if !found || rest.classes[at].rows < less.rows {
			return nil, false
		}
		c := rest.classes[at]
		c.rows -= less.rows
		c.weight.SubVector(less.weight)
		c.s.SubVector(less.s)
		c.cross.SubVector(less.cross)
		switch {
		case c.rows > 0 && !c.possible():
			return nil, false
		case c.rows == 0 && !(c.weight.IsZero() && c.s.IsZero() && c.cross.IsZero()):
			return nil, false
		}
		rest.settle(at)
	}
	return rest, true
}

// settle drops a class without rows.
func (s *State) settle(at int) {
	c := s.classes[at]
	if c.rows > 0 {
		return
	}
	if c.rows < 0 || !c.weight.IsZero() || !c.s.IsZero() || !c.cross.IsZero() {
		panic(fmt.Sprintf("incremental: class %q: what was removed was not in the state", c.label))
	}
	s.classes = slices.Delete(s.classes, at, at+1)
}

func (s *State) checkWidth(features int) {
	if n := len(s.features); features != n {
		panic(fmt.Sprintf("incremental: sums of %d features for a state of %d", features, n))
	}
}

func (s *State) checkScale(scale int) {
	if s.scale != scale {
		panic(fmt.Sprintf("incremental: sums in units of 2^-%d for a state in units of 2^-%d", scale, s.scale))
	}
}

// class returns the index of a class, which it inserts if it is not there.
func (s *State) class(label string) int {
	at, found := s.find(label)
	if !found {
		n := len(s.features)
		s.classes = slices.Insert(s.classes, at, &classState{
			label:  label,
			weight: exact.NewVector(1),
			s:      exact.NewVector(n),
			cross:  exact.NewVector(gram.PackedLen(n)),
		})
	}
	return at
}

func (s *State) add(b *Summary, sign int64, exponent int) {
	s.checkWidth(b.Features())
	s.checkScale(0)
	if exponent < 0 || exponent > MostExponent {
		panic(fmt.Sprintf("incremental: a summary times 2^%d", exponent))
	}
	factor := math.Ldexp(float64(sign), exponent)
	if s.memory.factors == nil {
		n := len(s.features)
		s.memory = shifting{make([]exact.Factor, 4*n), make([]gridded, n)}
	}
	for i := range b.classes {
		from := &b.classes[i]
		at := s.class(from.label)
		c := s.classes[at]
		c.rows += sign * from.rows
		c.shift(from, b.origin, factor, &s.memory)
		s.settle(at)
	}
}

// shifting is the working memory of shift.
type shifting struct {
	factors []exact.Factor // four for each feature
	grid    []gridded      // one for each feature
}

// shift adds a factor ±2^e times the sums of a block, moved from its origin c to zero: with
// d = x − c, t = Σvd and w = t + Σv·c,
//
//	Σvx   = w
//	Σvxx' = Σvdd' + t c' + c w'
//
// every sum and product without rounding.
func (c *classState) shift(from *classSummary, origin []float64, factor float64, memory *shifting) {
	v := factor * from.weight
	c.weight.Add(0, v)
	if !c.shiftIntegers(from, origin, v, factor, memory.grid) {
		c.shiftTerms(from, origin, v, factor, memory.factors)
	}
}

// shiftTerms is the part of shift after Σv for any numbers. An exact w is the sum of up to three
// float64 numbers, mostly of one or two. So an entry of Σvxx' has one term that is a number and
// two to four that are products.
func (c *classState) shiftTerms(from *classSummary, origin []float64, v, factor float64, memory []exact.Factor) {
	n := len(origin)
	factors := memory[:n] // of the origin
	w := [3][]exact.Factor{memory[n : 2*n], memory[2*n : 3*n], memory[3*n:]}
	used := 0 // parts of w that are not all zero
	for k, ck := range origin {
		factors[k] = exact.FactorOf(ck)
		for i, x := range sumWithProduct(factor*from.s[k], v, ck) {
			w[i][k] = exact.FactorOf(x)
			if x != 0 {
				used = max(used, i+1)
				c.s.Add(k, x)
			}
		}
	}
	for j := range origin {
		// Add term by term along the row: additions to one sum depend on each
		// other, additions to its neighbours do not.
		p := gram.PackedLen(j)
		for k, x := range from.cross[p : p+j+1] {
			c.cross.Add(p+k, factor*x)
		}
		c.cross.AddProducts(p, exact.FactorOf(factor*from.s[j]), factors[:j+1])
		for _, part := range w[:used] {
			c.cross.AddProducts(p, factors[j], part[:j+1])
		}
	}
}

// sumWithProduct is t + v·c as an exact sum of three numbers, of which mostly one or two are not 0.
func sumWithProduct(t, v, c float64) [3]float64 {
	hi, lo := twoProduct(v, c)
	w0, e := twoSum(t, hi)
	w1, w2 := twoSum(e, lo)
	return [3]float64{w0, w1, w2}
}

// Digest is SHA-256 over the state's encoding (AppendBinary). Two states have the same digest when
// they have the same features and the same exact sums, from whichever blocks,
// partitions and orders. All empty states have one digest. That of a weighted sum is over its
// scale, too.
func (s *State) Digest() [sha256.Size]byte {
	h := sha256.New()
	if len(s.classes) > 0 {
		h.Write(s.appendHeader(nil))
		if s.scale != 0 {
			h.Write(binary.AppendUvarint(nil, uint64(s.scale)))
		}
	}
	var b []byte
	for _, c := range s.classes {
		b = c.appendBinary(b[:0])
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// AppendBinary appends the state's canonical encoding: n and the names of the
// features, k, and for each class in canonical order the label, the rows and the
// exact sums Σv, Σvx and Σvxx' as package exact encodes them. Counts are
// uvarints. A text is preceded by its length. It panics for a weighted sum.
func (s *State) AppendBinary(b []byte) []byte {
	s.checkScale(0)
	b = s.appendHeader(b)
	for _, c := range s.classes {
		b = c.appendBinary(b)
	}
	return b
}

func (s *State) appendHeader(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.features)))
	for _, name := range s.features {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
	}
	return binary.AppendUvarint(b, uint64(len(s.classes)))
}

func (c *classState) appendBinary(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.label)))
	b = append(b, c.label...)
	b = binary.AppendUvarint(b, uint64(c.rows))
	b = c.weight.AppendBinary(b)
	b = c.s.AppendBinary(b)
	return c.cross.AppendBinary(b)
}

// DecodeState decodes the output of AppendBinary. It fails with ErrEncoding on
// everything else, also on sums that no rows can have.
func DecodeState(b []byte) (*State, error) {
	d := decoder{decode.Reader{Rest: b}}
	n := d.Count(1)
	s := &State{features: make([]string, n)}
	for j := range s.features {
		s.features[j] = d.Text()
	}
	k := d.Count(1)
	for range k {
		c := &classState{label: d.label(), rows: d.rows()}
		c.weight = d.vector(1)
		c.s = d.vector(n)
		c.cross = d.vector(gram.PackedLen(n))
		if d.Bad || !c.possible() || len(s.classes) > 0 && CompareLabels(s.classes[len(s.classes)-1].label, c.label) >= 0 {
			return nil, ErrEncoding
		}
		s.classes = append(s.classes, c)
	}
	if d.Bad || len(d.Rest) != 0 {
		return nil, ErrEncoding
	}
	return s, nil
}

// possible reports whether this number of rows, with weights and features in range, can
// have sums of this size. Larger sums could overflow in later arithmetic.
func (c *classState) possible() bool {
	log := math.Ilogb(float64(c.rows)) + 1
	weight, _ := c.weight.Split(0)
	return weight >= minWeight && c.weight.Below(log+logWeight) &&
		c.s.Below(log+logWeight+logFeature) && c.cross.Below(log+logWeight+2*logFeature)
}

// logWeight and logFeature bound a weight and a feature in a sum: the logarithm of the
// largest, and a bit for the rounding of a block's sums.
const logWeight, logFeature = 41, 129

func (d *decoder) vector(n int) *exact.Vector {
	v, rest, err := exact.DecodeVector(d.Rest, n)
	if err != nil {
		d.Bad, d.Rest = true, nil
		return nil
	}
	d.Rest = rest
	return v
}
