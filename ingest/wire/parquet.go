package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// parquetMagic opens a file. Its last byte is the head of the first field, a 32-bit
// number, of the page or of the metadata that follow in Thrift's compact protocol. An
// encrypted page begins with its length in its place.
const parquetMagic = "PAR1\x15"

// IsParquet is whether a file begins like one of Parquet.
func IsParquet(head []byte) bool { return bytes.HasPrefix(head, []byte(parquetMagic)) }

// isEncryptedParquet is whether a file begins like one of Parquet with an encrypted footer, or
// with encrypted columns.
func isEncryptedParquet(head []byte) bool {
	const lengthAndNonce = 4 + 12 + 16 // of the shortest module: with its tag
	if bytes.HasPrefix(head, []byte("PARE")) {
		return bytes.IndexByte(head, 0) >= 0 // or it is a text
	}
	if !bytes.HasPrefix(head, []byte("PAR1")) || IsParquet(head) || len(head) < 8 {
		return false
	}
	length := binary.LittleEndian.Uint32(head[4:])
	return length >= lengthAndNonce-4 && length < 1<<20
}

// parquetStream is a Parquet file as an Arrow stream, so that its values are read as
// Arrow's. It holds a page and a dictionary of each column that is not ignored, each of no
// more bytes than Limits.Pages, and one record batch.
//
// The file package of arrow-go reads it. The package above that, pqarrow, would make
// record batches, but links gRPC.
type parquetStream struct {
	file   *file.Reader
	limits Limits
	rows   int // most rows of a record batch
	some   int // rows of the next one, if that many are left: more and more, while there is room

	schema  *arrow.Schema
	columns []parquetColumn
	group   int   // the next row group
	left    int64 // rows of this one
	out     bytes.Buffer
	writer  *ipc.Writer
	err     error // once there is one
}

// newParquetStream returns a Parquet file's rows as an Arrow stream whose record batches have
// at most so many rows. Columns that are neither values nor lists of numbers come as empty
// structs, which can be ignored. So do those that are ignored: no page of them is read.
func (b *builder) newParquetStream(in parquet.ReaderAtSeeker, rows int) (io.Reader, error) {
	p := &parquetStream{limits: b.opts.Limits, rows: min(rows, b.opts.Limits.Rows, 1<<13), some: fewRows}
	if err := p.guard(func() error { return p.open(in, b) }); err != nil {
		return nil, err
	}
	return p, nil
}

// fewRows is the rows of the first record batch. How much memory rows take is known only then.
const fewRows = 256

// guard calls a function of the library. On a corrupt file some of them panic, mostly with
// an index out of range: they trust lengths in the pages. An error takes its place.
func (p *parquetStream) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Parquet file is corrupt: %v", r)
		}
	}()
	if err = f(); err != nil && err != io.EOF {
		if strings.Contains(err.Error(), "page size") && strings.Contains(err.Error(), "configured limit") {
			err = fmt.Errorf("%w, which is a part of the memory: write smaller row groups or pages, ignore the column, or set GOMEMLIMIT higher", err)
		}
		if strings.Contains(err.Error(), "decrypt") {
			err = fmt.Errorf("it is encrypted, and there is no key here: decrypt it first: %w", err)
		}
		err = fmt.Errorf("read the Parquet file: %w", err)
	}
	return err
}

// Read implements io.Reader.
func (p *parquetStream) Read(b []byte) (int, error) {
	for p.out.Len() == 0 && p.err == nil {
		p.err = p.guard(p.next)
	}
	if p.out.Len() == 0 {
		return 0, p.err
	}
	return p.out.Read(b)
}

func (p *parquetStream) open(in parquet.ReaderAtSeeker, b *builder) (err error) {
	properties := parquet.NewReaderProperties(memory.DefaultAllocator)
	properties.BufferedStreamEnabled = true // else a chunk is read as a whole
	properties.MaxCompressedPageSize, properties.MaxUncompressedPageSize = int64(p.limits.Pages), int64(p.limits.Pages)
	right := &flagged{ReaderAtSeeker: in}
	if p.file, err = file.NewParquetReader(right, file.WithReadProps(properties)); err != nil {
		return err
	}
	if p.file.MetaData().Schema, err = withoutEmptyGroups(p.file.MetaData()); err != nil {
		return err
	}
	root := p.file.MetaData().Schema
	if n, most := root.NumColumns(), p.limits.Features+2+maxIgnored; n > most {
		return fmt.Errorf("the file has %d columns, the limit is %d", n, most)
	}
	durations := durationsOf(p.file.MetaData().KeyValueMetadata())
	var fields []arrow.Field
	apart := false // some features have columns of their own
	for i := range root.NumColumns() {
		_, known := b.want.index[root.Column(i).ColumnPath()[0]]
		apart = apart || known
	}
	for i := range root.NumColumns() {
		name := root.Column(i).ColumnPath()[0]
		if n := len(fields); n > 0 && fields[n-1].Name == name && len(root.Column(i).ColumnPath()) > 1 {
			// Another leaf of a nested column.
			fields[n-1].Type, p.columns[n-1] = arrow.StructOf(), parquetColumn{leaf: noLeaf{}}
			continue
		}
		leaf, typ := newLeaf(root, i, durations)
		if _, isList := typ.(*arrow.ListType); b.passesOver(name, isList, nil, apart) {
			leaf, typ = noLeaf{}, arrow.StructOf()
		} else if err := right.correct(p.file, i); err != nil {
			return err
		}
		fields = append(fields, arrow.Field{Name: name, Type: typ, Nullable: true})
		p.columns = append(p.columns, parquetColumn{leaf: leaf, index: i})
	}
	// Columns that are not read would have as many rows as the footer says.
	if !slices.ContainsFunc(p.columns, func(c parquetColumn) bool { return c.leaf != noLeaf{} }) {
		return errors.New("the file has no column of values that is not ignored")
	}
	p.schema = arrow.NewSchema(fields, nil)
	p.writer = ipc.NewWriter(&p.out, ipc.WithSchema(p.schema))
	return nil
}

// next writes another record batch, or the end of the stream.
func (p *parquetStream) next() error {
	for p.left == 0 {
		if p.group == p.file.NumRowGroups() {
			if err := p.writer.Close(); err != nil {
				return err
			}
			return io.EOF
		}
		group := p.file.RowGroup(p.group)
		p.group++
		if p.left = group.NumRows(); p.left < 0 {
			return errors.New("a row group has a negative number of rows")
		}
		for _, c := range p.columns {
			if _, skipped := c.leaf.(noLeaf); skipped || p.left == 0 {
				continue
			}
			chunk, err := group.Column(c.index)
			if err != nil {
				return err
			}
			metadata, err := group.MetaData().ColumnChunk(c.index)
			if err != nil {
				return err
			}
			if err := c.leaf.begin(chunk, metadata.NumValues()); err != nil {
				return err
			}
		}
	}
	rows := int(min(p.left, int64(p.rows), int64(p.some)))
	p.left -= int64(rows)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, p.schema)
	defer batch.Release()
	room := p.limits.Bytes
	for i, c := range p.columns {
		if err := c.leaf.take(rows, batch.Field(i), &room); err != nil {
			return fmt.Errorf("column %q: %w", p.schema.Field(i).Name, err)
		}
	}
	if used := p.limits.Bytes - room; used < p.limits.Bytes/16 {
		p.some = 2 * rows
	} else {
		p.some = max(1, rows*(p.limits.Bytes/8)/used)
	}
	record := batch.NewRecordBatch()
	defer record.Release()
	return p.writer.Write(record)
}

// withoutEmptyGroups is a file's schema without groups that have no columns. They have no chunks
// in the row groups either, and arrow-go takes each of them for a column.
func withoutEmptyGroups(file *metadata.FileMetaData) (*schema.Schema, error) {
	all := file.FileMetaData.Schema
	kept := all[:0:0]
	at := 0
	var keep func(depth int) (bool, error) // the node at, with all below it
	keep = func(depth int) (bool, error) {
		if at == len(all) || depth > deepest {
			return false, errors.New("the schema is malformed, or nested too deeply")
		}
		node := *all[at]
		at++
		if node.Type != nil {
			kept = append(kept, &node)
			return true, nil
		}
		place, children := len(kept), int32(0)
		kept = append(kept, &node)
		for range node.GetNumChildren() {
			is, err := keep(depth + 1)
			if err != nil {
				return false, err
			}
			if is {
				children++
			}
		}
		if children == 0 && depth > 0 {
			kept = kept[:place]
			return false, nil
		}
		node.NumChildren = &children
		return true, nil
	}
	if _, err := keep(0); err != nil {
		return nil, err
	}
	if len(kept) == len(all) {
		return file.Schema, nil
	}
	root, err := schema.FromParquet(kept)
	if err != nil {
		return nil, err
	}
	return schema.NewSchema(root.(*schema.GroupNode)), nil
}

// arrowSchemaKey is the key of the file's metadata with the Arrow schema that its writer had, in
// base64: a message of the stream format. Only Arrow knows durations; Parquet has their numbers.
const arrowSchemaKey = "ARROW:schema"

// durationsOf returns the units of the durations among the top-level columns, by name.
func durationsOf(given metadata.KeyValueMetadata) map[string]arrow.TimeUnit {
	text := given.FindValue(arrowSchemaKey)
	if text == nil {
		return nil
	}
	message, err := base64.StdEncoding.DecodeString(*text)
	if err != nil || len(message) < 8 {
		return nil
	}
	if opensArrow(message) {
		message = message[8:]
	} else {
		message = message[4:] // before Arrow 0.15
	}
	f := &flatbuffer{b: message}
	header, ok := f.tableField(f.root(), 2)
	if !ok || f.u8(f.field(f.root(), 1)) != headerSchema {
		return nil
	}
	durations := map[string]arrow.TimeUnit{}
	start, n := f.vectorField(header, 1, 4)
	for k := range n {
		field := f.element(start, k)
		typ, _ := f.tableField(field, 3)
		if f.u8(f.field(field, 2)) == typeDuration {
			durations[string(f.stringField(field, 0))] = durationUnit(f, typ)
		}
		if f.bad {
			return nil
		}
	}
	return durations
}

// parquetColumn is a top-level column.
type parquetColumn struct {
	leaf  leaf
	index int // of the leaf in the schema
}
