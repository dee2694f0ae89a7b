package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An Arrow file (format/File.fbs) is
//
//	"ARROW1", two zeros, messages, footer, int32 length of the footer, "ARROW1"
//
// The footer has the schema and the places of the dictionaries and record batches. Readers go by
// it: there may be anything between those, and before them no schema, or one without its length,
// as polars writes it.
const (
	arrowFileHead  = len(arrowFileMagic) + 2
	arrowFileTail  = 4 + len(arrowFileMagic)
	arrowFileBlock = 24 // bytes of a place: int64 offset, int32 metadata, padding, int64 body
)

var errNoFooter = errors.New("the Arrow file is truncated or corrupt: it has no footer at its end")

// arrowFileStream is an Arrow file of so many bytes as a stream.
func arrowFileStream(in io.ReaderAt, size int64, limits Limits) (io.Reader, error) {
	tail := make([]byte, arrowFileTail)
	if size < int64(arrowFileHead+arrowFileTail) {
		return nil, errNoFooter
	}
	if _, err := in.ReadAt(tail, size-int64(arrowFileTail)); err != nil && err != io.EOF {
		return nil, err
	}
	n := int64(int32(binary.LittleEndian.Uint32(tail)))
	if string(tail[4:]) != arrowFileMagic || n <= 0 || n > size-int64(arrowFileHead+arrowFileTail) {
		return nil, errNoFooter
	}
	if n > int64(limits.Bytes) {
		return nil, fmt.Errorf("the Arrow file's footer has %d bytes, the limit is %d", n, limits.Bytes)
	}
	footer := make([]byte, n)
	if _, err := in.ReadAt(footer, size-int64(arrowFileTail)-n); err != nil {
		return nil, err
	}
	f := &flatbuffer{b: footer}
	root := f.root()
	version := max(f.u16(f.field(root, 0)), metadataV4) // old writers leave it out
	schema, ok := f.tableField(root, 1)
	parts := []io.Reader{bytes.NewReader(schemaMessage(version, footer, schema.pos))}
	for _, field := range []int{2, 3} { // dictionaries, record batches
		start, count := f.vectorField(root, field, arrowFileBlock)
		for i := range count {
			at := start + i*arrowFileBlock
			offset, meta, body := f.i64(at), int64(f.i32(at+8)), f.i64(at+16)
			if offset < 0 || meta < 8 || body < 0 || offset > size || meta > size-offset || body > size-offset-meta {
				return nil, errors.New("the Arrow file is corrupt: its footer names places outside of it")
			}
			var opening [4]byte
			if _, err := in.ReadAt(opening[:], offset); err == nil && !opensArrow(opening[:]) {
				return nil, errors.New("the Arrow file is " + arrowBefore15 + ", or corrupt")
			}
			parts = append(parts, io.NewSectionReader(in, offset, meta+body))
		}
	}
	if f.bad || !ok {
		return nil, errors.New("the Arrow file is corrupt: its footer is malformed")
	}
	return io.MultiReader(parts...), nil
}

// schemaMessage is a message of the stream format with the schema at a position of a flatbuffer,
// which it has as its end. Offsets in a flatbuffer are relative, so that they stay right.
func schemaMessage(version int, b []byte, schema int) []byte {
	const (
		vtable = 4  // behind the offset of the root
		root   = 16 // behind the table of its fields: 6 × 2 bytes
		size   = 32 // with the offset of that table and the fields
	)
	head := make([]byte, size, size+len(b)+8)
	le := binary.LittleEndian
	le.PutUint32(head, root)
	for i, x := range []uint16{12, 16, 4, 6, 8, 0} { // sizes of both tables, and the fields' places
		le.PutUint16(head[vtable+2*i:], x)
	}
	le.PutUint32(head[root:], root-vtable)
	le.PutUint16(head[root+4:], uint16(version))
	head[root+6] = headerSchema
	le.PutUint32(head[root+8:], uint32(size+schema-(root+8)))
	message := append(head, b...)
	message = append(message, make([]byte, -len(message)&7)...)
	opening := le.AppendUint32(le.AppendUint32(nil, continuation), uint32(len(message)))
	return append(opening, message...)
}

// arrowBefore15 names streams and files whose messages have no continuation.
const arrowBefore15 = "written by Arrow before 0.15: read it with an old Arrow and write it anew, without use_legacy_format"

// opensOldArrow is whether a stream begins like those before Arrow 0.15: with the length of a
// schema, instead of a continuation and the length.
func opensOldArrow(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	const most = 1 << 24
	n := int64(binary.LittleEndian.Uint32(head))
	if n < 16 || n > most {
		return false
	}
	// Only the start of a long schema may be there.
	f := &flatbuffer{b: head[4:min(4+n, int64(len(head)))]}
	root := f.root()
	return f.u8(f.field(root, 1)) == headerSchema && f.u16(f.field(root, 0)) <= metadataV5 && !f.bad
}
