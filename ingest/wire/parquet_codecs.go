package wire

import (
	"encoding/binary"
	"errors"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/pierrec/lz4/v4"
)

func init() {
	compress.RegisterCodec(compress.Codecs.Lz4, oldLZ4{})
	for _, compression := range []compress.Compression{
		compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Brotli, compress.Codecs.Zstd, compress.Codecs.Lz4Raw,
	} {
		codec, err := compress.GetCodec(compression)
		if err != nil {
			panic(err) // the library has them all
		}
		compress.RegisterCodec(compression, emptyToo{codec})
	}
}

// emptyToo is a codec that takes nothing for the compressed form of nothing, as pages of nulls
// alone have it in the second version of pages.
type emptyToo struct{ compress.Codec }

// DecodeWithError implements compress.ErrorCodec.
func (e emptyToo) DecodeWithError(dst, src []byte) ([]byte, error) {
	if len(dst) == 0 && len(src) == 0 {
		return dst, nil
	}
	return compress.Decode(e.Codec, dst, src)
}

// oldLZ4 is Parquet's first codec of LZ4 (Compression.md, "LZ4"), which never said how
// blocks are framed. Hadoop writes stretches of two lengths in big-endian order, of the text and of
// the block, and a block. Older C++ writes a bare block. arrow-go reads neither.
type oldLZ4 struct{ compress.Codec }

var errLZ4 = errors.New("the page is compressed by LZ4 in an unknown way")

// DecodeWithError implements compress.ErrorCodec. The page has the length of dst.
func (oldLZ4) DecodeWithError(dst, src []byte) ([]byte, error) {
	if unhadoop(dst, src) {
		return dst, nil
	}
	if n, err := lz4.UncompressBlock(src, dst); err == nil && n == len(dst) {
		return dst, nil
	}
	return nil, errLZ4
}

// Decode implements compress.Codec.
func (o oldLZ4) Decode(dst, src []byte) []byte {
	out, err := o.DecodeWithError(dst, src)
	if err != nil {
		panic(err)
	}
	return out
}

// unhadoop decompresses Hadoop's stretches. It is false where src is none of them.
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
