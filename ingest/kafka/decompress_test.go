package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/segmentio/kafka-go/compress"
)

var codecs = []compress.Compression{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd}

func compressed(t testing.TB, codec compress.Compression, r io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	w := codec.Codec().NewWriter(&out)
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpack decompresses without a limit on buffers.
func unpack(codec compress.Compression, src []byte, limit int) ([]byte, int, error) {
	return decompress(codec, src, guessSize(codec, src, limit), limit, newBudget(1<<40, newTotal(1<<40)))
}

func TestDecompress(t *testing.T) {
	for _, codec := range codecs {
		for _, n := range []int{0, 1, 4095, 4096, 4097, 100_000, 1 << 20} {
			want := []byte(strings.Repeat("0123456789abcdef", n/16+1)[:n])
			src := compressed(t, codec, bytes.NewReader(want))
			buf, size, err := unpack(codec, src, max(n, 1))
			if err != nil || !bytes.Equal(buf[:size], want) {
				t.Fatalf("%v: %d bytes: got %d, %v", codec, n, size, err)
			}
			putBuffer(buf)
			// A limit of one byte less must refuse it.
			if n > 1 {
				if _, _, err := unpack(codec, src, n-1); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%v: %d bytes within %d: %v", codec, n, n-1, err)
				}
			}
		}
	}
	// Clients other than Java send one block of snappy without a frame.
	want := bytes.Repeat([]byte("plain"), 1000)
	if buf, n, err := unpack(compress.Snappy, s2.EncodeSnappy(nil, want), len(want)); err != nil || !bytes.Equal(buf[:n], want) {
		t.Errorf("unframed snappy: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Data that decompresses to 600 MiB takes little memory.
func TestBombs(t *testing.T) {
	const size, limit = 600 << 20, 4 << 20
	bombs := make(map[string]struct {
		codec compress.Compression
		data  []byte
	})
	add := func(name string, codec compress.Compression, data []byte) {
		bombs[name] = struct {
			codec compress.Compression
			data  []byte
		}{codec, data}
	}
	for _, codec := range codecs {
		add(codec.String(), codec, compressed(t, codec, io.LimitReader(zeros{}, size)))
	}
	// Headers with claims that the data does not keep.
	add("a snappy block's length", compress.Snappy, append(binary.AppendUvarint(nil, size), 0, 0))
	add("a zstd frame's size", compress.Zstd, binary.LittleEndian.AppendUint64([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, size))
	add("a zstd window", compress.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x98, 0x03, 0xff, 0xff, 0x00})
	// Empty blocks of five bytes each. The last one is cut off.
	blocks := append(append(bytes.Clone(xerial), make([]byte, xerialHeader-len(xerial))...), bytes.Repeat([]byte{0, 0, 0, 1, 0}, limit/5)...)
	add("empty snappy blocks", compress.Snappy, blocks[:len(blocks)-1])
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := unpack(bomb.codec, bomb.data, limit)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("no error")
			}
			// A doubling buffer, and the decoder's own tables.
			if took := after.TotalAlloc - before.TotalAlloc; took > 8*limit {
				t.Errorf("%d bytes were allocated", took)
			}
		})
	}
	// A xerial frame with a block longer than the data.
	frame := append(bytes.Clone(xerial), 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff, 1)
	if _, _, err := unpack(compress.Snappy, frame, limit); err == nil {
		t.Error("a long xerial block passed")
	}
}

// The buffer, which counts against a partition's budget, stays near the limit when the size
// is not known before.
func TestDecompressTakesNoMoreThanTheLimit(t *testing.T) {
	const limit = 1 << 20
	data := make([]byte, limit)
	rng := rand.NewChaCha8([32]byte{})
	for _, random := range []int{limit / 10, limit / 5, limit / 4} { // these bytes do not compress
		rng.Read(data[:random])
		for _, codec := range codecs {
			buf, n, err := unpack(codec, compressed(t, codec, bytes.NewReader(data)), limit)
			if err != nil || n != limit {
				t.Fatalf("%v: %d bytes, %v", codec, n, err)
			}
			if len(buf) > limit+limit/4 {
				t.Errorf("%v: a buffer of %d bytes for %d", codec, len(buf), limit)
			}
			putBuffer(buf)
		}
	}
}

func FuzzDecompress(f *testing.F) {
	for _, codec := range codecs {
		f.Add(byte(codec), compressed(f, codec, strings.NewReader("a small text, a small text, a small text")))
	}
	f.Fuzz(func(t *testing.T, codec byte, src []byte) {
		const limit = 1 << 16
		buf, n, err := unpack(compress.Compression(codec), src, limit)
		if err == nil && (n > limit || n > len(buf)) {
			t.Fatalf("%d bytes within %d", n, limit)
		}
	})
}
