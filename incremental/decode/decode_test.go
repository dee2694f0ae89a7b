package decode

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// everything calls each method once.
func everything(r *Reader) (text string, count int, x uint64, floats []float64, tail []byte) {
	text, count, x = r.Text(), r.Count(8), r.Uvarint()
	return text, count, x, r.Floats(2), r.Take(3)
}

func encoding() []byte {
	b := append(binary.AppendUvarint(nil, 5), "spam!"...)
	b = binary.AppendUvarint(b, 2)
	b = binary.AppendUvarint(b, 1<<63)
	for _, x := range []float64{-1.5, math.Inf(1)} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return append(b, 7, 8, 9)
}

func TestReader(t *testing.T) {
	r := Reader{Rest: encoding()}
	text, count, x, floats, tail := everything(&r)
	if text != "spam!" || count != 2 || x != 1<<63 || !slices.Equal(floats, []float64{-1.5, math.Inf(1)}) || !bytes.Equal(tail, []byte{7, 8, 9}) {
		t.Errorf("%q %d %d %v %v", text, count, x, floats, tail)
	}
	if r.Bad || len(r.Rest) > 0 {
		t.Errorf("left: %+v", r)
	}
}

// A truncated encoding is a fault, and everything read after it is zero.
func TestTruncated(t *testing.T) {
	whole := encoding()
	for n := range whole {
		r := Reader{Rest: whole[:n]}
		if _, _, _, _, tail := everything(&r); !r.Bad || r.Rest != nil || !bytes.Equal(tail, make([]byte, 3)) {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(whole), r, tail)
		}
		if r.Text() != "" || r.Count(1) != 0 || r.Uvarint() != 0 || r.Floats(0) != nil || !r.Bad {
			t.Errorf("%d of %d bytes: more was read", n, len(whole))
		}
	}
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		read  func(*Reader)
	}{
		"a varint longer than it need be": {[]byte{0x80, 0}, func(r *Reader) { r.Uvarint() }},
		"a varint of 65 bits":             {bytes.Repeat([]byte{0xff}, 10), func(r *Reader) { r.Uvarint() }},
		"a count without room":            {[]byte{2, 1, 2, 3}, func(r *Reader) { r.Count(2) }},
		"a huge count":                    {binary.AppendUvarint(nil, math.MaxUint64), func(r *Reader) { r.Count(1) }},
		"what the caller found":           {[]byte{1}, func(r *Reader) { r.Bad = true; r.Uvarint() }},
	} {
		r := Reader{Rest: c.bytes}
		if c.read(&r); !r.Bad || r.Rest != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r := Reader{Rest: []byte{0, 0x7f}}
	if r.Uvarint() != 0 || r.Uvarint() != 0x7f || r.Bad {
		t.Errorf("short varints: %+v", r)
	}
}
