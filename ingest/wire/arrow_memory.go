package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// From Arrow's format/Message.fbs.
const (
	codecNone = -1
	codecLZ4  = 0
	codecZstd = 1

	compressedHead     = 8         // bytes before a compressed buffer: its length when decompressed
	compressedNotAtAll = int64(-1) // that length for a buffer left as it is
)

// decompressor undoes the compression of buffers.
type decompressor struct {
	codec int // of the message
	lz4   *lz4.Reader
	zstd  *zstd.Decoder
	src   bytes.Reader
}

// decompressed undoes a buffer's compression, into the arena.
func (a *arrowReader) decompressed(b []byte) ([]byte, error) {
	c := &a.decompress
	if len(b) < compressedHead {
		return nil, a.fail(-1, "", "a compressed buffer is truncated")
	}
	n := int64(binary.LittleEndian.Uint64(b))
	b = b[compressedHead:]
	if n == compressedNotAtAll {
		return b, nil
	}
	if n < 0 || n > int64(a.opts.Limits.Bytes) {
		return nil, a.fail(-1, "", "a buffer decompresses to %d bytes, the limit is %d", n, a.opts.Limits.Bytes)
	}
	out, err := a.allocate(int(n))
	if err != nil {
		return nil, err
	}
	if c.codec == codecLZ4 {
		if c.lz4 == nil {
			c.lz4 = lz4.NewReader(nil)
		}
		c.src.Reset(b)
		c.lz4.Reset(&c.src)
		if _, err := io.ReadFull(c.lz4, out); err != nil {
			return nil, a.fail(-1, "", "LZ4: %v", err)
		}
		return out, nil
	}
	if c.zstd == nil {
		c.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(a.opts.Limits.Bytes)))
		if err != nil {
			return nil, a.fail(-1, "", "Zstandard: %v", err)
		}
	}
	got, err := c.zstd.DecodeAll(b, out[:0])
	if err != nil || len(got) != len(out) {
		return nil, a.fail(-1, "", "Zstandard: %d bytes, want %d (%v)", len(got), len(out), err)
	}
	return got, nil
}

// allocate is n bytes of the arena, aligned for any number.
func (a *arrowReader) allocate(n int) ([]byte, error) {
	numbers := a.opts.Limits.Numbers
	if limit := min(a.opts.Limits.Bytes, numbers); n > limit-a.arena.taken() {
		a.short = limit == numbers
		return nil, a.fail(-1, "", "the block needs more than %d bytes, the limit", limit)
	}
	return a.arena.take(n), nil
}

// arena hands out memory that is all taken back at once. After a block or two of
// one size it allocates no more.
type arena struct {
	words []uint64
	used  int // words handed out
}

func (a *arena) reset() { a.used = 0 }

// shrink is reset that drops memory which was grown by a block more than four times as
// large as the last one.
func (a *arena) shrink() (dropped bool) {
	held := 8 * len(a.words)
	if dropped = held > keptBytes && a.taken() < held/4; dropped {
		a.words = nil
	}
	a.reset()
	return dropped
}

// taken is the number of bytes handed out.
func (a *arena) taken() int { return 8 * a.used }

// take is n bytes aligned for any number.
func (a *arena) take(n int) []byte {
	if n == 0 {
		return nil
	}
	w := (n + 7) / 8
	from := a.used
	a.used += w
	if a.used > len(a.words) {
		// Memory that has been handed out stays where it is. The next block finds
		// room for everything up to here.
		a.words = make([]uint64, max(a.used, 2*len(a.words)))
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[from])), 8*w)[:n:n]
}
