package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kbin"
)

// ErrTooLarge is the reason for refusing a record batch that is larger than
// Fetching.MaxMessageBytes, as sent or decompressed.
var ErrTooLarge = errors.New("too large")

// tooLarge is an ErrTooLarge with a text of its own.
type tooLarge string

func (e tooLarge) Error() string        { return string(e) }
func (e tooLarge) Is(target error) bool { return target == ErrTooLarge }

func inflatesBeyond(limit int) error {
	return tooLarge(fmt.Sprintf("decompresses to more than the limit of %d bytes for a record batch", limit))
}

// guessSize is the size that src decompresses to where it says so, and otherwise four times
// its own size. It is never more than the limit.
func guessSize(codec compress.Compression, src []byte, limit int) int {
	size := 4 * len(src)
	switch codec {
	case compress.Snappy:
		size = 0
		for b, err := range snappyBlocks(src) {
			n, bad := s2.DecodedLen(b)
			if err != nil || bad != nil || n > limit || size+n > limit {
				break // decompress will fail, and say why
			}
			size += n
		}
	case compress.Zstd:
		var h zstd.Header
		if h.Decode(src) == nil && h.HasFCS && h.FrameContentSize <= uint64(limit) {
			size = int(h.FrameContentSize)
		}
	}
	return min(size, limit)
}

// decompress decompresses src into the first n bytes of a buffer from from. Whatever src
// claims, it takes no more memory than about twice the limit, and for the buffer no more
// than the limit and a quarter. gzip and lz4 have bounded windows and are read as streams.
// The decoders of snappy and zstd allocate the size in a header, so that header is checked
// first. decompress asks for more than one buffer only where guess is too small.
func decompress(codec compress.Compression, src []byte, guess, limit int, from buffers) (buf []byte, n int, err error) {
	switch codec {
	case compress.Gzip, compress.Lz4:
		r := codec.Codec().NewReader(bytes.NewReader(src))
		defer r.Close()
		return readBounded(r, guess, limit, from)
	case compress.Snappy:
		return unsnappy(src, limit, from)
	case compress.Zstd:
		return unzstd(src, guess, limit, from)
	}
	return nil, 0, fmt.Errorf("unknown compression codec %d", codec)
}

func readBounded(r io.Reader, guess, limit int, from buffers) ([]byte, int, error) {
	buf, err := from.get(guess)
	if err != nil {
		return nil, 0, err
	}
	n := 0
	for {
		m, err := r.Read(buf[n:min(len(buf), limit+1)])
		n += m
		switch {
		case n > limit:
			from.put(buf)
			return nil, 0, inflatesBeyond(limit)
		case errors.Is(err, io.EOF):
			return buf, n, nil
		case err != nil:
			from.put(buf)
			return nil, 0, err
		case n == len(buf):
			larger, err := from.get(min(2*n, limit+1))
			if err != nil {
				from.put(buf)
				return nil, 0, err
			}
			copy(larger, buf)
			from.put(buf)
			buf = larger
		}
	}
}

// xerial begins Java's snappy streams. A version and the oldest compatible version follow,
// then blocks behind their lengths. Other clients send one bare block.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

// snappyBlocks iterates over the blocks in src. A list of them could take many times the
// bytes of src, since a block may be as short as its length.
func snappyBlocks(src []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if !bytes.HasPrefix(src, xerial) || len(src) < xerialHeader {
			if len(src) > 0 {
				yield(src, nil)
			}
			return
		}
		d := kbin.Reader{Src: src[xerialHeader:]}
		for len(d.Src) > 0 {
			block := d.Span(int(d.Int32()))
			if !d.Ok() {
				yield(nil, errors.New("data ends too early"))
				return
			}
			if !yield(block, nil) {
				return
			}
		}
	}
}

func unsnappy(src []byte, limit int, from buffers) ([]byte, int, error) {
	total := 0
	for b, err := range snappyBlocks(src) {
		if err != nil {
			return nil, 0, err
		}
		n, err := s2.DecodedLen(b)
		if err != nil {
			return nil, 0, err
		}
		// In this order, the sum cannot overflow.
		if n > limit || total+n > limit {
			return nil, 0, inflatesBeyond(limit)
		}
		total += n
	}
	buf, err := from.get(total)
	if err != nil {
		return nil, 0, err
	}
	at := 0
	for b := range snappyBlocks(src) {
		n, _ := s2.DecodedLen(b)
		if _, err := s2.Decode(buf[at:at+n], b); err != nil {
			from.put(buf)
			return nil, 0, err
		}
		at += n
	}
	return buf, total, nil
}

// zstdDecoder decodes into the capacity that it is given, and takes no other memory for the
// output or for a window. 128 MiB is the largest window that Java allows.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderLowmem(true))
})

func unzstd(src []byte, guess, limit int, from buffers) ([]byte, int, error) {
	dec, err := zstdDecoder()
	if err != nil {
		return nil, 0, fmt.Errorf("zstd: %w", err)
	}
	size := guess
	// Streaming producers send no size in the header. Try with four times as much until it
	// fits, up to the limit.
	for {
		buf, err := from.get(size)
		if err != nil {
			return nil, 0, err
		}
		room := min(len(buf), limit)
		out, err := dec.DecodeAll(src, buf[:0:room])
		if err == nil {
			return buf, len(out), nil
		}
		// The decoder has several errors for a lack of room. All of them come within a block
		// of the end.
		full := errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > room-zstdBlock
		from.put(buf)
		if !full || room == limit {
			if full {
				err = inflatesBeyond(limit)
			}
			return nil, 0, err
		}
		size = min(4*len(buf), limit)
	}
}

// zstdBlock is the most that a block decompresses to (RFC 8878, 3.1.1.2.4).
const zstdBlock = 128 << 10
