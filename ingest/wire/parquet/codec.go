package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The codecs, by their numbers in the format. LZO is not read.
const (
	uncompressed = iota
	codecSnappy
	codecGzip
	_
	codecBrotli
	codecLZ4
	codecZstd
	codecLZ4Raw
)

// decompress fills dst. Anything may stand for the compressed form of nothing: pages of nulls alone
// in the second version may have no bytes there.
func decompress(codec int, dst, src []byte) (err error) {
	if len(dst) == 0 {
		return nil
	}
	n := -1
	switch codec {
	case codecSnappy:
		if n, err = s2.DecodedLen(src); err == nil && n == len(dst) {
			_, err = s2.Decode(dst, src)
		}
	case codecGzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(src)); err == nil {
			n, err = io.ReadFull(r, dst)
		}
	case codecBrotli:
		n, err = io.ReadFull(brotli.NewReader(bytes.NewReader(src)), dst)
	case codecZstd:
		var d *zstd.Decoder
		if d, err = zstdDecoder(); err == nil {
			var out []byte
			out, err = d.DecodeAll(src, dst[:0:len(dst)])
			n = len(out)
		}
	case codecLZ4Raw:
		n, err = lz4.UncompressBlock(src, dst)
	case codecLZ4:
		if unhadoop(dst, src) {
			return nil
		}
		if n, err = lz4.UncompressBlock(src, dst); err != nil || n != len(dst) {
			return errors.New("the page is compressed by LZ4 in an unknown way")
		}
	default:
		return fmt.Errorf("its codec, number %d, is not read: Snappy, gzip, Brotli, Zstandard and LZ4 are", codec)
	}
	if err == nil && n != len(dst) {
		err = fmt.Errorf("it has %d bytes", n)
	}
	if err != nil {
		return fmt.Errorf("a page of %d bytes does not decompress: %w", len(dst), err)
	}
	return nil
}

// zstdDecoder returns the decoder, which never writes more than is asked for.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
})

// unhadoop decompresses Parquet's first codec of LZ4 (Compression.md, "LZ4"), which never said how
// blocks are framed. Hadoop writes stretches of two lengths in big-endian order, of the text and of
// the block, and a block. Older C++ writes a bare block. unhadoop is false where src is not
// Hadoop's.
func unhadoop(dst, src []byte) bool {
	at := 0
	for len(src) > 0 {
		if len(src) < 8 {
			return false
		}
		text, block := int64(binary.BigEndian.Uint32(src)), int64(binary.BigEndian.Uint32(src[4:]))
		if src = src[8:]; block > int64(len(src)) || text > int64(len(dst)-at) {
			return false
		}
		n, err := lz4.UncompressBlock(src[:block], dst[at:at+int(text)])
		if err != nil || int64(n) != text {
			return false
		}
		at, src = at+n, src[block:]
	}
	return at == len(dst)
}
