package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// parquetMagic opens a file. Its last byte is the head of the first field, a 32-bit
// number, of the page or of the metadata that follow in Thrift's compact protocol.
const parquetMagic = "PAR1\x15"

// IsParquet is whether a file begins like one of Parquet.
func IsParquet(head []byte) bool { return bytes.HasPrefix(head, []byte(parquetMagic)) }

// parquetStream is a Parquet file as an Arrow stream, so that its values are read as
// Arrow's. It holds a page and a dictionary of each column, each of no more bytes than the
// limit, and one record batch.
//
// The file package of arrow-go reads it. The package above that, pqarrow, would make
// record batches, but links gRPC.
type parquetStream struct {
	file  *file.Reader
	limit int // bytes
	rows  int // most rows of a record batch
	most  int // columns

	schema  *arrow.Schema
	columns []parquetColumn
	group   int   // the next row group
	left    int64 // rows of this one
	out     bytes.Buffer
	writer  *ipc.Writer
	err     error // once there is one
}

// ParquetStream returns a Parquet file's rows as an Arrow stream whose record batches have
// at most so many rows. Columns that are neither values nor lists of numbers come as empty
// structs, which can be ignored.
func ParquetStream(in parquet.ReaderAtSeeker, limits Limits, rows int) (io.Reader, error) {
	limits = limits.withDefaults()
	p := &parquetStream{limit: limits.Bytes, rows: min(rows, limits.Rows, 1<<13), most: limits.Features + 2 + maxIgnored}
	if err := p.guard(func() error { return p.open(in) }); err != nil {
		return nil, err
	}
	return p, nil
}

// guard calls a function of the library. On a corrupt file some of them panic, mostly with
// an index out of range: they trust lengths in the pages. An error takes its place.
func (p *parquetStream) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Parquet file is corrupt: %v", r)
		}
	}()
	if err = f(); err != nil && err != io.EOF {
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

func (p *parquetStream) open(in parquet.ReaderAtSeeker) (err error) {
	properties := parquet.NewReaderProperties(memory.DefaultAllocator)
	properties.BufferedStreamEnabled = true // else a chunk is read as a whole
	properties.MaxCompressedPageSize, properties.MaxUncompressedPageSize = int64(p.limit), int64(p.limit)
	if p.file, err = file.NewParquetReader(in, file.WithReadProps(properties)); err != nil {
		return err
	}
	root := p.file.MetaData().Schema
	if n := root.NumColumns(); n > p.most {
		return fmt.Errorf("the file has %d columns, the limit is %d", n, p.most)
	}
	var fields []arrow.Field
	for i := range root.NumColumns() {
		name := root.Column(i).ColumnPath()[0]
		if n := len(fields); n > 0 && fields[n-1].Name == name && len(root.Column(i).ColumnPath()) > 1 {
			// Another leaf of a nested column.
			fields[n-1].Type, p.columns[n-1] = arrow.StructOf(), parquetColumn{leaf: noLeaf{}}
			continue
		}
		leaf, typ := newLeaf(root, i)
		fields = append(fields, arrow.Field{Name: name, Type: typ, Nullable: true})
		p.columns = append(p.columns, parquetColumn{leaf: leaf, index: i})
	}
	// Columns that are not read would have as many rows as the footer says.
	if !slices.ContainsFunc(p.columns, func(c parquetColumn) bool { return c.leaf != noLeaf{} }) {
		return errors.New("the file has no column of values")
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
			if err := c.leaf.begin(chunk); err != nil {
				return err
			}
		}
	}
	rows := int(min(p.left, int64(p.rows)))
	p.left -= int64(rows)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, p.schema)
	defer batch.Release()
	bytes := p.limit
	for i, c := range p.columns {
		if err := c.leaf.take(rows, batch.Field(i), &bytes); err != nil {
			return fmt.Errorf("column %q: %w", p.schema.Field(i).Name, err)
		}
	}
	record := batch.NewRecordBatch()
	defer record.Release()
	return p.writer.Write(record)
}

// parquetColumn is a top-level column.
type parquetColumn struct {
	leaf  leaf
	index int // of the leaf in the schema
}
