package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Value is the type of values in Go: of Boolean, Int32, Int64, Int96, Float, Double, and of both
// types of byte arrays.
type Value interface {
	bool | int32 | int64 | [12]byte | float32 | float64 | []byte
}

// decoder reads the values of a page. They may be fewer than asked for. None is the end.
type decoder[T Value] interface {
	read(dst []T) (int, error)
}

// The encodings, by their numbers in the format.
const (
	encodingPlain          = 0
	encodingOldDictionary  = 2
	encodingRuns           = 3
	encodingBitPacked      = 4 // of levels, in old files
	encodingDeltas         = 5
	encodingDeltaLengths   = 6
	encodingDeltaBytes     = 7
	encodingDictionary     = 8
	encodingSplit          = 9
	mostDictionaryBitWidth = 32
)

// newDecoder returns the decoder of a page's values.
func (r *Reader[T]) newDecoder(encoding int, b []byte) (decoder[T], error) {
	var d any
	var err error
	_, isBool := any(*new(T)).(bool)
	_, isBytes := any(*new(T)).([]byte)
	switch {
	case encoding == encodingPlain:
		return r.plain(b), nil
	case encoding == encodingDictionary || encoding == encodingOldDictionary:
		i := &indices[T]{dictionary: r.dictionary}
		if len(b) > 0 {
			i.runs = runs{b: b[1:], width: int(b[0])}
		}
		switch {
		case i.runs.width > mostDictionaryBitWidth:
			err = fmt.Errorf("indices of %d bits", i.runs.width)
		case r.dictionary == nil:
			err = errors.New("a page has indices of a dictionary, and there is none before it")
		}
		return i, err
	case encoding == encodingRuns && isBool:
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errors.New("a page of booleans is malformed")
		}
		d = &flags{runs: runs{b: b[4:][:binary.LittleEndian.Uint32(b)], width: 1}}
	case encoding == encodingDeltas && (r.leaf.Type == Int32 || r.leaf.Type == Int64):
		var of *deltas
		if len(b) > 0 {
			of, err = newDeltas(b)
		} else {
			of = &deltas{} // of nulls alone
		}
		if r.leaf.Type == Int32 {
			d = &deltaInts[int32]{deltas: of}
		} else {
			d = &deltaInts[int64]{deltas: of}
		}
	case encoding == encodingDeltaLengths && r.leaf.Type == ByteArray, encoding == encodingDeltaBytes && isBytes:
		if len(b) > 0 {
			d, err = newDeltaBytes(b, encoding == encodingDeltaBytes, r.leaf.Length)
		} else {
			d = &deltaBytes{lengths: &deltas{}}
		}
	case encoding == encodingSplit && !isBool && r.leaf.Type != ByteArray && r.leaf.Type != Int96:
		size := r.size()
		if len(b)%size != 0 {
			return nil, fmt.Errorf("a page of split values of %d bytes has %d", size, len(b))
		}
		return &split[T]{b: b, size: size, n: len(b) / size, plain: func(dst []T, b []byte) { fixed(dst, b, size) }}, nil
	}
	if err != nil {
		return nil, err
	}
	if d, ok := d.(decoder[T]); ok {
		return d, nil
	}
	return nil, fmt.Errorf("values of its type in encoding %d are not read", encoding)
}

// size is the bytes of a value, for types where all have as many.
func (r *Reader[T]) size() int {
	switch r.leaf.Type {
	case Int32, Float:
		return 4
	case Int64, Double:
		return 8
	case Int96:
		return 12
	}
	return r.leaf.Length
}

// plain returns the decoder of PLAIN.
func (r *Reader[T]) plain(b []byte) decoder[T] {
	switch r.leaf.Type {
	case Boolean:
		return any(&flags{runs: runs{b: b, width: 1, packed: 8 * uint64(len(b))}}).(decoder[T])
	case ByteArray:
		return any(&texts{b}).(decoder[T])
	}
	return &plain[T]{b, r.size()}
}

// plain reads values of a fixed size.
type plain[T Value] struct {
	b    []byte
	size int
}

func (p *plain[T]) read(dst []T) (int, error) {
	n := min(len(dst), len(p.b)/p.size)
	fixed(dst[:n], p.b, p.size)
	p.b = p.b[n*p.size:]
	return n, nil
}

// fixed reads values of a size. There are enough bytes.
func fixed[T Value](dst []T, b []byte, size int) {
	switch dst := any(dst).(type) {
	case []int32:
		for i := range dst {
			dst[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []int64:
		for i := range dst {
			dst[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case []float32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []float64:
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case [][12]byte:
		for i := range dst {
			dst[i] = [12]byte(b[12*i:])
		}
	case [][]byte:
		for i := range dst {
			dst[i] = b[i*size : (i+1)*size : (i+1)*size]
		}
	}
}

// flags reads booleans.
type flags struct {
	runs    runs
	scratch [256]int16
}

func (f *flags) read(dst []bool) (int, error) {
	n := readRuns(&f.runs, f.scratch[:min(len(dst), len(f.scratch))])
	for i, x := range f.scratch[:n] {
		dst[i] = x != 0
	}
	return n, nil
}

// texts reads byte arrays with their lengths before them.
type texts struct{ b []byte }

var errTexts = errors.New("a byte array is longer than its page")

func (t *texts) read(dst [][]byte) (n int, err error) {
	for n < len(dst) && len(t.b) > 0 {
		if dst[n], t.b, err = cutText(t.b); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// cutText returns the first byte array, and what is behind it.
func cutText(b []byte) (text, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, errTexts
	}
	n := int(binary.LittleEndian.Uint32(b))
	return b[4 : 4+n : 4+n], b[4+n:], nil
}

// dictionary is the values of a dictionary page.
type dictionary[T Value] interface {
	// look sets values to those with the indices.
	look(dst []T, indices []uint32) error
}

var errIndex = errors.New("an index is beyond the dictionary")

// newDictionary reads a dictionary of so many values. It shares b.
func (r *Reader[T]) newDictionary(n int, b []byte) (dictionary[T], error) {
	if r.leaf.Type == ByteArray {
		d := &textDictionary{b: b}
		rest := b
		for range n {
			d.starts = append(d.starts, uint32(len(b)-len(rest)))
			var err error
			if _, rest, err = cutText(rest); err != nil {
				return nil, err
			}
		}
		return any(d).(dictionary[T]), nil
	}
	if r.leaf.Type == Boolean || n > len(b)/r.size() {
		return nil, errors.New("a dictionary has fewer values than it says")
	}
	values := make(valueDictionary[T], n)
	fixed(values, b, r.size())
	return values, nil
}

type valueDictionary[T Value] []T

func (d valueDictionary[T]) look(dst []T, indices []uint32) error {
	for i, x := range indices {
		if uint64(x) >= uint64(len(d)) {
			return errIndex
		}
		dst[i] = d[x]
	}
	return nil
}

// textDictionary is a dictionary of byte arrays. It keeps positions, which take no more memory
// than the lengths in the page, however short the texts are.
type textDictionary struct {
	b      []byte
	starts []uint32
}

func (d *textDictionary) look(dst [][]byte, indices []uint32) error {
	for i, x := range indices {
		if uint64(x) >= uint64(len(d.starts)) {
			return errIndex
		}
		dst[i], _, _ = cutText(d.b[d.starts[x]:])
	}
	return nil
}

// indices reads values by their indices in a dictionary.
type indices[T Value] struct {
	runs       runs
	dictionary dictionary[T]
	scratch    [256]uint32
}

func (d *indices[T]) read(dst []T) (int, error) {
	n := readRuns(&d.runs, d.scratch[:min(len(dst), len(d.scratch))])
	return n, d.dictionary.look(dst[:n], d.scratch[:n])
}
