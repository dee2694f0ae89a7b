package kernels

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func encoded(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, text := range []string{"linear", "gaussian(gamma=0.25)", "polynomial(a=1,b=1,degree=3)", "sigmoid(a=0.01,b=-1)"} {
		k, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for form := range 4 {
			m, err := NewMap(k, 2, []float64{1, 2, -3, 0.5, 1e30, -1e-30})
			if err == nil && form&formScaled != 0 {
				m, err = m.Scaled([]float64{5, -6}, []float64{0.1, 10})
			}
			if err == nil && form&formProjected != 0 {
				m, err = m.Projected([]float64{1, 2, 3, -4, 1e-30, 6})
			}
			if err != nil {
				t.Fatal(err)
			}
			b := m.AppendBinary(nil)
			back, err := DecodeMap(b)
			if err != nil || !reflect.DeepEqual(back, m) {
				t.Errorf("%s, form %d: read back as %+v, %v", text, form, back, err)
			}
			all = append(all, b)
		}
	}
	return all
}

// Every map decodes to itself and has a digest of its own. Truncated encodings and
// trailing bytes are refused.
func TestEncoding(t *testing.T) {
	digests := map[[32]byte]bool{}
	all := encoded(t)
	for _, b := range all {
		m, err := DecodeMap(b)
		if err != nil {
			t.Fatal(err)
		}
		digests[m.Digest()] = true
		for cut := range b {
			if _, err := DecodeMap(b[:cut]); err != ErrEncoding {
				t.Errorf("the first %d of %d bytes: %v", cut, len(b), err)
			}
		}
		if _, err := DecodeMap(append(bytes.Clone(b), 0)); err != ErrEncoding {
			t.Errorf("a byte more: %v", err)
		}
	}
	if len(digests) != len(all) {
		t.Errorf("%d digests of %d maps", len(digests), len(all))
	}
}

// Bases are named by their digest, so the encoding of maps without a projection stays as it is
// in older files. A projection of no coordinates, or of more than there are points, is none.
func TestOldEncodings(t *testing.T) {
	old := "\x06linear\x01\x02\x00" + "\x00\x00\x00\x00\x00\x00\xf0\x3f" + "\x00\x00\x00\x00\x00\x00\x00\x40"
	m, err := DecodeMap([]byte(old))
	if err != nil || string(m.AppendBinary(nil)) != old || m.Size() != 2 || m.Projection() != nil {
		t.Errorf("%+v, %v", m, err)
	}
	number := "\x00\x00\x00\x00\x00\x00\xf0\x3f"
	for size, wrong := range []bool{0: true, 1: false, 2: false, 3: true} {
		b := "\x06linear\x01\x02\x02" + string(rune(size)) + strings.Repeat(number, 2+2*size)
		if m, err := DecodeMap([]byte(b)); (err != nil) != wrong {
			t.Errorf("%d coordinates of two points: %+v, %v", size, m, err)
		}
	}
}

func FuzzDecodeMap(f *testing.F) {
	for _, b := range encoded(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMap(b)
		if err != nil {
			return
		}
		// A map has one encoding, except that −0 decodes to 0.
		again := m.AppendBinary(nil)
		same := len(again) == len(b)
		for i := range min(len(again), len(b)) {
			same = same && (again[i] == b[i] || again[i] == 0 && b[i] == 0x80)
		}
		if !same {
			t.Errorf("%x is read, and written as %x", b, again)
		}
	})
}
