package kernels

import (
	"bytes"
	"reflect"
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
		for _, scaled := range []bool{false, true} {
			m, err := NewMap(k, 2, []float64{1, 2, -3, 0.5, 1e30, -1e-30})
			if err == nil && scaled {
				m, err = m.Scaled([]float64{5, -6}, []float64{0.1, 10})
			}
			if err != nil {
				t.Fatal(err)
			}
			b := m.AppendBinary(nil)
			back, err := DecodeMap(b)
			if err != nil || !reflect.DeepEqual(back, m) {
				t.Errorf("%s, scaled %v: read back as %+v, %v", text, scaled, back, err)
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
