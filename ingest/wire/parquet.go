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

	"streamd/ingest/wire/parquet"
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
type parquetStream struct {
	file   *parquet.File
	limits Limits
	rows   int // most rows of a record batch
	some   int // rows of the next one, if that many are left: more and more, while there is room

	schema  *arrow.Schema
	columns []leaf // of the top-level columns
	group   int    // the next row group
	left    int64  // rows of this one
	out     bytes.Buffer
	writer  *ipc.Writer
	err     error // once there is one
}

// newParquetStream returns a Parquet file's rows as an Arrow stream whose record batches have
// at most so many rows. Columns that are neither values nor lists of numbers come as empty
// structs, which can be ignored. So do those that are ignored: no page of them is read.
func (b *builder) newParquetStream(in io.ReaderAt, size int64, rows int) (io.Reader, error) {
	p := &parquetStream{limits: b.opts.Limits, rows: min(rows, b.opts.Limits.Rows, 1<<13), some: fewRows}
	if err := p.open(in, size, b); err != nil {
		return nil, explained(err)
	}
	return p, nil
}

// fewRows is the rows of the first record batch. How much memory rows take is known only then.
const fewRows = 256

// explained says what can be done about an error.
func explained(err error) error {
	if err == io.EOF {
		return err
	}
	if _, ok := errors.AsType[parquet.TooLargeError](err); ok {
		err = fmt.Errorf("%w, which is a part of the memory: write smaller row groups or pages, ignore the column, or set GOMEMLIMIT higher", err)
	}
	return fmt.Errorf("read the Parquet file: %w", err)
}

// Read implements io.Reader.
func (p *parquetStream) Read(b []byte) (int, error) {
	for p.out.Len() == 0 && p.err == nil {
		if err := p.next(); err != nil {
			p.err = explained(err)
		}
	}
	if p.out.Len() == 0 {
		return 0, p.err
	}
	return p.out.Read(b)
}

func (p *parquetStream) open(in io.ReaderAt, size int64, b *builder) (err error) {
	limits := parquet.Limits{Bytes: p.limits.Pages, Columns: p.limits.Features + 2 + maxIgnored}
	if p.file, err = parquet.Open(in, size, limits); err != nil {
		return err
	}
	leaves := p.file.Leaves
	durations := durationsOf(p.file.Metadata[arrowSchemaKey])
	var fields []arrow.Field
	apart := false // some features have columns of their own
	for _, leaf := range leaves {
		_, known := b.want.index[columnName(leaf)]
		apart = apart || known
	}
	for i := range leaves {
		name := columnName(leaves[i])
		ignored := b.ignoredGroup(leaves[i].Path[:leaves[i].Column])
		if ignored != "" {
			name = ignored
		}
		if n := len(fields); n > 0 && fields[n-1].Name == name && (len(leaves[i].Path) > leaves[i].Column || ignored != "") {
			// Another leaf of a nested column.
			fields[n-1].Type, p.columns[n-1] = arrow.StructOf(), noLeaf{}
			continue
		}
		leaf, typ := newLeaf(p.file, i, durations)
		if _, isList := typ.(*arrow.ListType); ignored != "" || b.passesOver(name, isList, nil, apart) {
			leaf, typ = noLeaf{}, arrow.StructOf()
		}
		fields = append(fields, arrow.Field{Name: name, Type: typ, Nullable: true})
		p.columns = append(p.columns, leaf)
	}
	// Columns that are not read would have as many rows as the footer says.
	if !slices.ContainsFunc(p.columns, func(l leaf) bool { return l != noLeaf{} }) {
		return errors.New("the file has no column of values that is not ignored")
	}
	p.schema = arrow.NewSchema(fields, nil)
	p.writer = ipc.NewWriter(&p.out, ipc.WithSchema(p.schema))
	return nil
}

// ignoredGroup is the name of the outermost group around a column that a pattern ignores, or "".
func (b *builder) ignoredGroup(path []string) string {
	for n := 1; n < len(path); n++ {
		if name := strings.Join(path[:n], "."); !b.isRole(name) && Matches(b.opts.Ignore, name) {
			return name
		}
	}
	return ""
}

// next writes another record batch, or the end of the stream.
func (p *parquetStream) next() error {
	for p.left == 0 {
		if p.group == p.file.RowGroups() {
			if err := p.writer.Close(); err != nil {
				return err
			}
			return io.EOF
		}
		p.left = p.file.Rows(p.group)
		for i, c := range p.columns {
			if p.left == 0 {
				break
			}
			if err := c.begin(p.group); err != nil {
				return fmt.Errorf("column %q: %w", p.schema.Field(i).Name, err)
			}
		}
		p.group++
	}
	rows := int(min(p.left, int64(p.rows), int64(p.some)))
	p.left -= int64(rows)
	batch := array.NewRecordBuilder(memory.DefaultAllocator, p.schema)
	defer batch.Release()
	room := p.limits.Bytes
	for i, c := range p.columns {
		if err := c.take(rows, batch.Field(i), &room); err != nil {
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

// arrowSchemaKey is the key of the file's metadata with the Arrow schema that its writer had, in
// base64: a message of the stream format. Only Arrow knows durations; Parquet has their numbers.
const arrowSchemaKey = "ARROW:schema"

// durationsOf returns the units of the durations among the columns, by name. Those in structs have
// the names of their columns.
func durationsOf(text string) map[string]arrow.TimeUnit {
	message, err := base64.StdEncoding.DecodeString(text)
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
	durations, left := map[string]arrow.TimeUnit{}, maxIgnored
	var read func(t table, around string, depth int)
	read = func(t table, around string, depth int) {
		start, n := f.vectorField(t, map[bool]int{true: 1, false: 5}[depth == 0], 4)
		for k := 0; k < n && !f.bad && left > 0; k++ {
			left--
			field := f.element(start, k)
			name := around + string(f.stringField(field, 0))
			typ, _ := f.tableField(field, 3)
			switch id := f.u8(f.field(field, 2)); {
			case id == typeDuration:
				durations[name] = durationUnit(f, typ)
			case id == typeStruct && depth < maxRecordDepth:
				read(field, name+".", depth+1)
			}
		}
	}
	if read(header, "", 0); f.bad {
		return nil
	}
	return durations
}
