package gram

import (
	"fmt"
	"slices"
	"unsafe"
)

// Kind is the element type of a Column.
type Kind uint8

// The element types of a column: Arrow's primitive numeric types without float16.
const (
	Float32 Kind = iota + 1
	Float64
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Sparse    // float64, of which most are 0: see SparseColumn
	Indicator // 0 or 1: see IndicatorColumn
)

// Number is any type that a column's elements may have.
type Number interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// Column is one feature of a block: m numbers of one type, as they lie in
// memory. It is a view, like a slice: it owns no memory and needs no allocation. It is
// valid as long as the underlying slice does not change. The numbers may be interleaved
// with those of other columns (a fixed-size list is stored row by row); stride counts
// elements.
type Column struct {
	base   unsafe.Pointer // first element; a pointer keeps the memory alive
	n      int
	stride int
	kind   Kind
}

// ColumnOf views v as a column.
func ColumnOf[T Number](v []T) Column {
	return Column{base: unsafe.Pointer(unsafe.SliceData(v)), n: len(v), stride: 1, kind: kindOf[T]()}
}

// StridedColumn views the elements v[first], v[first+stride], … as a column of
// n numbers. It panics when some are outside of v.
func StridedColumn[T Number](v []T, first, stride, n int) Column {
	if n == 0 {
		return Column{stride: 1, kind: kindOf[T]()}
	}
	if first < 0 || stride < 1 || n < 0 || first+(n-1)*stride >= len(v) {
		panic(fmt.Sprintf("gram: %d elements from %d by %d in a slice of %d", n, first, stride, len(v)))
	}
	return Column{base: unsafe.Pointer(&v[first]), n: n, stride: stride, kind: kindOf[T]()}
}

// sparse is what a column of kind Sparse views: the elements from first on.
type sparse struct {
	first int
	at    []int32
	x     []float64
}

// SparseColumn views a column of n float64 numbers that are 0 but for x[i] at element at[i], with
// at in ascending order. Its memory is 12 bytes for each of these. At takes a binary search, and
// other methods one for each stretch of elements. It panics when an element is outside, or out of
// order.
func SparseColumn(n int, at []int32, x []float64) Column {
	if len(at) != len(x) {
		panic(fmt.Sprintf("gram: %d places of %d numbers", len(at), len(x)))
	}
	last := int32(-1)
	for _, i := range at {
		if i <= last || int(i) >= n {
			panic(fmt.Sprintf("gram: element %d of a column of %d behind %d", i, n, last))
		}
		last = i
	}
	return Column{base: unsafe.Pointer(&sparse{at: at, x: x}), n: n, kind: Sparse}
}

// NonZero returns the places and numbers of a sparse column, and ok false for others.
func (c Column) NonZero() (at []int32, x []float64, ok bool) {
	if c.kind != Sparse {
		return nil, nil, false
	}
	s := (*sparse)(c.base)
	from, to := s.place(s.first), s.place(s.first+c.n)
	if at, x = s.at[from:to:to], s.x[from:to:to]; s.first > 0 {
		at = slices.Clone(at)
		for i := range at {
			at[i] -= int32(s.first)
		}
	}
	return at, x, true
}

// place is the index of the first number at an element or behind it.
func (s *sparse) place(element int) int {
	i, _ := slices.BinarySearch(s.at, int32(element))
	return i
}

func (s *sparse) pack(dst []float64, from, to int, origin float64) {
	for i := range dst[:to-from] {
		dst[i] = -origin
	}
	if origin == 0 {
		clear(dst[:to-from]) // 0 and not -0
	}
	for k := s.place(s.first + from); k < len(s.at) && int(s.at[k]) < s.first+to; k++ {
		dst[int(s.at[k])-s.first-from] = s.x[k] - origin
	}
}

// IndicatorColumn views codes as a column that is 1 where the code is the given one, and 0
// elsewhere. The columns of a category's values share their codes.
func IndicatorColumn(codes []uint16, code uint16) Column {
	return Column{base: unsafe.Pointer(unsafe.SliceData(codes)), n: len(codes), stride: ^int(code), kind: Indicator}
}

// bytesOf is the address of the first Column.
func bytesOf(columns []Column) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(columns))) }

// Codes returns the codes of an indicator and the one whose elements are 1, and ok false for
// others.
func (c Column) Codes() (codes []uint16, code uint16, ok bool) {
	if c.kind != Indicator {
		return nil, 0, false
	}
	return unsafe.Slice((*uint16)(c.base), c.n), uint16(^c.stride), true
}

// sameCodes reports whether indicators view the same codes.
func (c Column) sameCodes(d Column) bool {
	return d.kind == Indicator && c.kind == Indicator && c.base == d.base
}

func (c Column) indicator(i int) float64 {
	if *(*uint16)(unsafe.Add(c.base, 2*i)) == uint16(^c.stride) {
		return 1
	}
	return 0
}

func (c Column) packIndicator(dst []float64, from, to int, origin float64) {
	codes, code, _ := c.Codes()
	x := [2]float64{0 - origin, 1 - origin}
	for r, other := range codes[from:to] {
		one := 0
		if other == code {
			one = 1
		}
		dst[r] = x[one]
	}
}

// Len is the number of elements, m.
func (c Column) Len() int { return c.n }

// Kind is the type of the elements.
func (c Column) Kind() Kind { return c.kind }

// At is element i as a float64. A 64-bit integer of more than 53 significant bits is
// rounded to nearest. At panics when i is out of range.
func (c Column) At(i int) float64 {
	if uint(i) >= uint(c.n) {
		panic(fmt.Sprintf("gram: element %d of a column of %d", i, c.n))
	}
	switch c.kind {
	case Float32:
		return float64(at[float32](c, i))
	case Float64:
		return at[float64](c, i)
	case Indicator:
		return c.indicator(i)
	case Int8:
		return float64(at[int8](c, i))
	case Int16:
		return float64(at[int16](c, i))
	case Int32:
		return float64(at[int32](c, i))
	case Int64:
		return float64(at[int64](c, i))
	case Uint8:
		return float64(at[uint8](c, i))
	case Uint16:
		return float64(at[uint16](c, i))
	case Uint32:
		return float64(at[uint32](c, i))
	case Uint64:
		return float64(at[uint64](c, i))
	case Sparse:
		s := (*sparse)(c.base)
		if k := s.place(s.first + i); k < len(s.at) && int(s.at[k]) == s.first+i {
			return s.x[k]
		}
		return 0
	}
	panic("gram: column of no kind")
}

// Slice is the view of elements i to j−1.
func (c Column) Slice(i, j int) Column {
	if i < 0 || j < i || j > c.n {
		panic(fmt.Sprintf("gram: slice %d:%d of a column of %d", i, j, c.n))
	}
	if i == j && c.kind < Sparse {
		return Column{stride: 1, kind: c.kind}
	}
	c.n = j - i
	switch c.kind {
	case Sparse:
		s := *(*sparse)(c.base)
		s.first += i
		c.base = unsafe.Pointer(&s)
		return c
	case Indicator:
		c.base = unsafe.Add(c.base, i*c.kind.size())
		return c
	}
	c.base = unsafe.Add(c.base, i*c.stride*c.kind.size())
	return c
}

func (k Kind) size() int {
	switch k {
	case Int8, Uint8:
		return 1
	case Int16, Uint16, Indicator:
		return 2
	case Float32, Int32, Uint32:
		return 4
	}
	return 8
}

func kindOf[T Number]() Kind {
	switch any(T(0)).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	}
	return Uint64
}

func at[T Number](c Column, i int) T {
	return *(*T)(unsafe.Add(c.base, i*c.stride*int(unsafe.Sizeof(T(0)))))
}

// pack writes elements from to to−1, less the origin, to the front of dst.
func (c Column) pack(dst []float64, from, to int, origin float64) {
	switch c.kind {
	case Float32:
		pack[float32](dst, c, from, to, origin)
	case Float64:
		pack[float64](dst, c, from, to, origin)
	case Int8:
		pack[int8](dst, c, from, to, origin)
	case Int16:
		pack[int16](dst, c, from, to, origin)
	case Int32:
		pack[int32](dst, c, from, to, origin)
	case Int64:
		pack[int64](dst, c, from, to, origin)
	case Uint8:
		pack[uint8](dst, c, from, to, origin)
	case Uint16:
		pack[uint16](dst, c, from, to, origin)
	case Uint32:
		pack[uint32](dst, c, from, to, origin)
	case Uint64:
		pack[uint64](dst, c, from, to, origin)
	case Sparse:
		(*sparse)(c.base).pack(dst, from, to, origin)
	case Indicator:
		c.packIndicator(dst, from, to, origin)
	}
}

// gatherers write elements of the given indices, less an origin, to the front of dst.
var gatherers = [...]func(dst []float64, c Column, rows []int32, origin float64){
	Float32: gather[float32], Float64: gather[float64],
	Int8: gather[int8], Int16: gather[int16], Int32: gather[int32], Int64: gather[int64],
	Uint8: gather[uint8], Uint16: gather[uint16], Uint32: gather[uint32], Uint64: gather[uint64],
	Sparse: gatherAny, Indicator: gatherIndicator,
}

// gatherColumn is the gather of the reference.
func gatherColumn(dst []float64, c Column, rows []int32, origin float64) {
	gatherers[c.kind](dst, c, rows, origin)
}

// elements is the memory that the column views, including the gaps between its elements.
func elements[T Number](c Column) []T {
	if c.n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(c.base), (c.n-1)*c.stride+1)
}

func pack[T Number](dst []float64, c Column, from, to int, origin float64) {
	v := elements[T](c)
	if c.stride == 1 {
		v = v[from:to]
		dst = dst[:len(v)]
		for len(v) >= 4 && len(dst) >= 4 { // one a round is slower where a line of the cache ends in it
			dst[0] = float64(v[0]) - origin
			dst[1] = float64(v[1]) - origin
			dst[2] = float64(v[2]) - origin
			dst[3] = float64(v[3]) - origin
			v, dst = v[4:], dst[4:]
		}
		for r, x := range v {
			dst[r] = float64(x) - origin
		}
		return
	}
	for i := from; i < to; i++ {
		dst[i-from] = float64(v[i*c.stride]) - origin
	}
}

func gather[T Number](dst []float64, c Column, rows []int32, origin float64) {
	v := elements[T](c)
	dst = dst[:len(rows)]
	if c.stride == 1 {
		for r, i := range rows {
			dst[r] = float64(v[i]) - origin
		}
		return
	}
	for r, i := range rows {
		dst[r] = float64(v[int(i)*c.stride]) - origin
	}
}

func gatherAny(dst []float64, c Column, rows []int32, origin float64) {
	for r, i := range rows {
		dst[r] = c.At(int(i)) - origin
	}
}

func gatherIndicator(dst []float64, c Column, rows []int32, origin float64) {
	codes, code, _ := c.Codes()
	of := [2]float64{0 - origin, 1 - origin}
	for r, i := range rows {
		is := 0
		if codes[i] == code {
			is = 1
		}
		dst[r] = of[is]
	}
}

// Values returns the column's elements as they lie in memory. ok is false when they are
// not of type T or not contiguous.
func Values[T Number](c Column) (v []T, ok bool) {
	if c.kind != kindOf[T]() || c.stride != 1 {
		return nil, false
	}
	return elements[T](c), true
}

// Gather writes the elements of the given indices to the front of dst, as At has them. It takes a
// fraction of the time of At for each. It panics when an index is out of range.
func (c Column) Gather(dst []float64, rows []int32) { gatherers[c.kind](dst, c, rows, 0) }

// Copy writes elements from, from+1, … to dst, as float64, until dst is full.
// It panics when there are fewer.
func (c Column) Copy(dst []float64, from int) {
	if from < 0 || from+len(dst) > c.n {
		panic(fmt.Sprintf("gram: %d elements from %d of a column of %d", len(dst), from, c.n))
	}
	c.pack(dst, from, from+len(dst), 0)
}
