package wire

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// The C++ library before 2.0 compressed pages of the second version and said in their heads that
// they are not (ARROW-10353). Read as they say, their numbers are other numbers. flagged is a file
// of that library with the flags set right.
type flagged struct {
	parquet.ReaderAtSeeker
	at []int64 // of bytes to read as thriftTrue in their lower half, ascending
}

// ReadAt implements io.ReaderAt.
func (f *flagged) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.ReaderAtSeeker.ReadAt(p, offset)
	i, _ := slices.BinarySearch(f.at, offset)
	for ; i < len(f.at) && f.at[i] < offset+int64(n); i++ {
		b := &p[f.at[i]-offset]
		*b = *b&0xf0 | thriftTrue
	}
	return n, err
}

// correct looks for the wrong flags of a file whose writer had the fault, in the chunks of a
// column.
func (f *flagged) correct(in *file.Reader, column int) error {
	if v := in.WriterVersion(); v.App != "parquet-cpp" || v.Version.Major >= 2 {
		return nil
	}
	for g := range in.NumRowGroups() {
		chunk, err := in.RowGroup(g).MetaData().ColumnChunk(column)
		if err != nil {
			return err
		}
		if chunk.Compression() == compress.Codecs.Uncompressed {
			continue
		}
		from := chunk.DataPageOffset()
		if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
			from = min(from, chunk.DictionaryPageOffset())
		}
		f.correctChunk(from, from+chunk.TotalCompressedSize())
	}
	slices.Sort(f.at)
	return nil
}

// correctChunk looks at the heads of the pages between two positions. It stops at one that cannot
// be read, as the library will.
func (f *flagged) correctChunk(from, to int64) {
	const longest = 1 << 16 // head, with statistics
	head := make([]byte, longest)
	for from >= 0 && from < to {
		n, err := f.ReaderAtSeeker.ReadAt(head[:min(longest, to-from)], from)
		if err != nil && err != io.EOF {
			return
		}
		page := thrift{b: head[:n]}
		compressed, flag := page.pageHeader()
		if page.bad || compressed < 0 {
			return
		}
		if flag > 0 {
			f.at = append(f.at, from+int64(flag))
		}
		from += int64(page.at) + compressed
	}
}

// thrift reads Thrift's compact protocol. What cannot be read makes it bad.
type thrift struct {
	b   []byte
	at  int
	bad bool
}

// The types of Thrift's compact protocol that are met in a page's head.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftStruct = 12
)

// pageHeader reads a page's head: the bytes of its body as it lies in the file, and the position
// of a flag of the second version of pages that says that this is not compressed; 0: none does.
func (t *thrift) pageHeader() (compressed int64, flag int) {
	const bodySize, headV2, isCompressed = 3, 8, 7 // fields of PageHeader and DataPageHeaderV2
	t.fields(func(id, typ int) {
		switch {
		case id == bodySize && typ > thriftByte && typ <= thriftI64:
			n := t.varint()
			compressed = int64(n>>1) ^ -int64(n&1)
		case id == headV2 && typ == thriftStruct:
			t.fields(func(id, typ int) {
				if id == isCompressed && typ == thriftFalse {
					flag = t.at - 1
				}
				t.skip(typ)
			})
		default:
			t.skip(typ)
		}
	})
	return compressed, flag
}

// fields calls a function for each field of a struct, which reads or skips its value.
func (t *thrift) fields(each func(id, typ int)) {
	const most = 32
	id := 0
	for range most {
		b := t.byte()
		if b == 0 || t.bad {
			return
		}
		if delta := int(b >> 4); delta > 0 {
			id += delta
		} else {
			t.bad = true // nobody writes the fields of a page's head in another order
			return
		}
		each(id, int(b&0xf))
	}
	t.bad = true
}

func (t *thrift) byte() byte {
	if t.at >= len(t.b) {
		t.bad = true
		return 0
	}
	t.at++
	return t.b[t.at-1]
}

func (t *thrift) varint() uint64 {
	x, n := binary.Uvarint(t.b[min(t.at, len(t.b)):])
	if t.bad = t.bad || n <= 0; t.bad {
		return 0
	}
	t.at += n
	return x
}

// skip passes over a value. Lists and maps are in no page's head.
func (t *thrift) skip(typ int) {
	switch {
	case typ == thriftTrue, typ == thriftFalse: // the type is the value
	case typ == thriftByte:
		t.byte()
	case typ <= thriftI64:
		t.varint()
	case typ == thriftDouble:
		t.at += 8
	case typ == thriftBinary:
		if n := t.varint(); n > uint64(len(t.b)) {
			t.bad = true
		} else {
			t.at += int(n)
		}
	case typ == thriftStruct:
		t.fields(func(_, typ int) { t.skip(typ) })
	default:
		t.bad = true
	}
}
