package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Reader reads a file as a sequence of blocks and never holds more of it than
// one block.
//
// The format is the one that the file's name ends in, before .gz: .csv; .json,
// .ndjson or .jsonl; .libsvm, .svm or .svmlight; .arrow, .arrows, .ipc or
// .feather. For any other name it is the options' format, or else what the
// first line looks like. Gzip is recognised by its first bytes. An Arrow file
// may be in the stream or in the file format.
//
// All blocks of a file have the same features: those of the options, else those
// of the first row. As LIBSVM does not say how many there are, such a file is
// read through once to find the highest index when the options have none.
type Reader struct {
	path string
	file *os.File
	read atomic.Int64 // bytes of the file read so far
	size int64
	in   *bufio.Reader // decompressed

	d      *Decoder
	format Format
	rows   int // most rows in a block
	blocks int // so far

	// Of the text formats: buf[from:to] is read but not yet decoded.
	buf        []byte
	from, to   int
	eof        bool
	array      bool // JSON: the rows are in an array
	shape      jsonShape
	rowsBefore int // rows and lines before buf[from]
	lineBefore int

	// Of Arrow: the current batch, from whose row at on the next block is.
	batch   incremental.Block
	at      int
	piece   incremental.Block
	columns []gram.Column
	memory  arena
	err     error // what Next returned last, kept for good
}

// OpenFile opens a file for reading in blocks of at most rowsPerBlock rows.
// Errors, here and in Next, name the file, and the line where there are lines.
func OpenFile(path string, opts Options, rowsPerBlock int) (*Reader, error) {
	if rowsPerBlock < 1 {
		return nil, fmt.Errorf("read %s: %d rows per block: want 1 or more", path, rowsPerBlock)
	}
	r, err := openFile(path, opts, rowsPerBlock)
	if err != nil {
		return nil, err
	}
	if r.format != LIBSVM || opts.Features != nil {
		return r, nil
	}
	width, err := r.widest()
	if err != nil {
		return nil, err
	}
	if r, err = openFile(path, opts, rowsPerBlock); err != nil {
		return nil, err
	}
	r.d.want.width = width
	r.rows = min(rowsPerBlock, max(1, r.d.opts.Limits.cells()/width))
	return r, nil
}

func openFile(path string, opts Options, rowsPerBlock int) (r *Reader, err error) {
	d, err := NewDecoder(opts)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r = &Reader{path: path, file: file, d: d, rows: min(rowsPerBlock, d.opts.Limits.Rows)}
	if err := r.start(); err != nil {
		file.Close()
		return nil, r.named(err)
	}
	return r, nil
}

// start finds out what the file is.
func (r *Reader) start() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	r.size = info.Size()
	if r.in, err = Unzipped(countingReader{r.file, &r.read}); err != nil {
		return err
	}
	head, err := r.in.Peek(bufferBytes)
	if len(head) == 0 {
		if err != io.EOF {
			return err
		}
		return errors.New("the file is empty")
	}
	if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return errors.New("the file is text in UTF-16: want UTF-8")
	}
	r.format = formatOfFile(r.path, head, r.d.opts.Format)
	switch r.format {
	case LIBSVM:
		width := r.d.want.width
		if width == 0 {
			width = r.d.opts.Limits.Features
		}
		r.rows = min(r.rows, max(1, r.d.opts.Limits.cells()/width))
	case JSON:
		i := skipSpace(head, 0)
		if r.array = i < len(head) && head[i] == '['; r.array {
			r.lineBefore = bytes.Count(head[:i], []byte{'\n'})
			_, err := r.in.Discard(i + 1)
			return err
		}
	case Arrow:
		if bytes.HasPrefix(head, []byte(arrowFileMagic)) {
			// The file format is the stream format between two magic words,
			// the first padded to eight bytes, with an index behind.
			if _, err := r.in.Discard(8); err != nil {
				return err
			}
		}
		r.d.begin(Arrow, nil)
		r.d.beginArrow()
	}
	return nil
}

// bufferBytes is how much of a file is looked at to tell what it is.
const bufferBytes = 1 << 16

// Unzipped reads what in has, unzipped if it is gzipped.
func Unzipped(in io.Reader) (*bufio.Reader, error) {
	buffered := bufio.NewReaderSize(in, bufferBytes)
	if head, _ := buffered.Peek(2); string(head) != "\x1f\x8b" {
		return buffered, nil
	}
	z, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, unzipError(err)
	}
	return bufio.NewReaderSize(unzipper{z}, bufferBytes), nil
}

// unzipper says what the end of the input in the middle of the data means.
type unzipper struct{ z *gzip.Reader }

func (u unzipper) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	return n, unzipError(err)
}

func unzipError(err error) error {
	if err == io.ErrUnexpectedEOF {
		return errors.New("it is cut short: the gzipped data end in the middle")
	}
	return err
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func formatOfFile(path string, head []byte, configured Format) Format {
	name := strings.TrimSuffix(strings.ToLower(path), ".gz")
	switch filepath.Ext(name) {
	case ".csv":
		return CSV
	case ".json", ".ndjson", ".jsonl":
		return JSON
	case ".libsvm", ".svm", ".svmlight":
		return LIBSVM
	case ".arrow", ".arrows", ".ipc", ".feather":
		return Arrow
	}
	if configured != 0 {
		return configured
	}
	if bytes.HasPrefix(head, []byte(arrowFileMagic)) || len(head) >= 4 && binary.LittleEndian.Uint32(head) == continuation {
		return Arrow
	}
	line := head[skipSpace(head, 0):]
	if len(line) > 0 && (line[0] == '{' || line[0] == '[') {
		return JSON
	}
	line = line[:lineLength(line)]
	if len(line) > 0 && line[0] == '#' {
		return LIBSVM
	}
	if fields := bytes.Fields(line); len(fields) > 1 {
		if _, _, _, reason := libsvmPair(fields[1], 0, 0); reason == "" {
			return LIBSVM
		}
	}
	return CSV
}

// widest reads all blocks, closes the reader and returns the number of features
// of the widest.
func (r *Reader) widest() (width int, err error) {
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF && width == 0 {
			err = r.named(r.d.fail(-1, "", "no row has a feature"))
		}
		if err == io.EOF {
			return width, nil
		}
		if err != nil {
			return 0, err
		}
		width = max(width, len(b.Columns))
	}
}

// Format is the file's format.
func (r *Reader) Format() Format { return r.format }

// Progress is how many of the file's bytes have been read, as they lie on disk,
// and how many there are. It may be called at any time from any goroutine.
func (r *Reader) Progress() (read, size int64) { return r.read.Load(), r.size }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Next is the next block, valid until the call after; io.EOF behind the last
// one. After an error it returns the same error again. A file without a single
// row is an error.
func (r *Reader) Next() (*incremental.Block, error) {
	if r.err != nil {
		return nil, r.err
	}
	var b *incremental.Block
	var err error
	if r.format == Arrow {
		b, err = r.nextBatch()
	} else {
		b, err = r.nextText()
	}
	if err == io.EOF && r.blocks == 0 {
		err = r.d.fail(-1, "", "there are no rows")
	}
	if err != nil {
		return nil, r.failed(err)
	}
	r.blocks++
	r.rowsBefore += b.Rows()
	return b, nil
}

// failed is the error to return from now on.
func (r *Reader) failed(err error) error {
	if err != io.EOF {
		err = r.named(err)
	}
	r.err = err
	return err
}

// named puts the file's name on an error, and the place in the file into it.
func (r *Reader) named(err error) error { return r.namedAt(err, r.rowsBefore, r.lineBefore) }

// namedAt is named for a text with so many rows and lines before it.
func (r *Reader) namedAt(err error, rows, lines int) error {
	var e *Error
	if errors.As(err, &e) {
		if e.Row >= 0 {
			e.Row += rows
		}
		if e.Line > 0 {
			e.Line += lines
		}
	}
	return fmt.Errorf("read %s: %w", r.path, err)
}

// nextText decodes as many records as make a block.
func (r *Reader) nextText() (*incremental.Block, error) {
	n, _, err := r.records()
	if err != nil {
		return nil, err
	}
	if err := r.decode(r.d, r.buf[r.from:r.from+n]); err != nil {
		return nil, err
	}
	r.skip(n)
	return &r.d.block, nil
}

// records finds the length of the text with as many rows as make a block, one or
// more. It begins at r.buf[r.from].
func (r *Reader) records() (n, rows int, err error) {
	r.d.begin(r.format, nil)
	if (r.format == CSV || r.format == LIBSVM) && r.blocks == 0 {
		if err := r.skipByteOrderMark(); err != nil {
			return 0, 0, err
		}
	}
	if r.format == CSV && r.blocks == 0 {
		if err := r.csvHeader(); err != nil {
			return 0, 0, err
		}
	}
	if r.array {
		if err := r.comma(); err != nil {
			return 0, 0, err
		}
	}
	for rows < r.rows {
		end, isRow, err := r.record(n)
		if err != nil {
			return 0, 0, err
		}
		if end == 0 {
			break
		}
		if !isRow && n == 0 {
			r.skip(end)
			continue
		}
		n += end
		if isRow {
			rows++
		}
	}
	if rows == 0 {
		return 0, 0, r.rest()
	}
	return n, rows, nil
}

// decode decodes whole records. Behind the first block it leaves the reader as it
// is.
func (r *Reader) decode(d *Decoder, text []byte) error {
	d.text = text
	switch r.format {
	case LIBSVM: // rows without a feature are fine where others have some
		if err := d.libsvmRows(text, 0); err != nil {
			return err
		}
		return d.finishRows(d.want.names)
	case CSV:
		return d.csvRows(text, 0)
	}
	d.beginJSON()
	d.json.shape = r.shape
	var err error
	if r.array {
		if _, err = d.jsonArray(0); err == nil {
			err = d.finishJSON()
		}
	} else {
		err = d.jsonLines(0)
	}
	if err != nil || r.shape != shapeNone {
		return err
	}
	// The first rows have said what the features are.
	r.shape = d.json.shape
	d.want.width = len(d.block.Columns)
	if d.want.names == nil && d.block.Features != nil {
		d.want.names, d.want.index = d.json.names.list, d.json.names.index
	}
	return nil
}

// skip passes over n bytes of the text.
func (r *Reader) skip(n int) {
	r.lineBefore += bytes.Count(r.buf[r.from:r.from+n], []byte{'\n'})
	r.from += n
}

// skipByteOrderMark passes over what may stand before the first line.
func (r *Reader) skipByteOrderMark() error {
	if err := r.fill(len(byteOrderMark)); err != nil {
		return err
	}
	if bytes.HasPrefix(r.buf[r.from:r.to], byteOrderMark) {
		r.from += len(byteOrderMark)
	}
	return nil
}

// csvHeader makes the plan and passes over the header, if there is one.
func (r *Reader) csvHeader() error {
	for {
		end, isRow, err := r.record(0)
		if err != nil {
			return err
		}
		if end == 0 {
			return io.EOF
		}
		if isRow {
			r.d.text = r.buf[r.from : r.from+end]
			start, err := r.d.planCSV(r.d.text, 0, r.d.opts.Header)
			if err != nil {
				return err
			}
			r.skip(start)
			return nil
		}
		r.skip(end)
	}
}

// comma passes over what separates two rows of an array.
func (r *Reader) comma() error {
	if err := r.blanks(); err != nil || r.blocks == 0 || r.from == r.to {
		return err
	}
	r.d.text = r.buf[r.from:r.to]
	switch r.buf[r.from] {
	case ']':
		return nil
	case ',':
		r.from++
		if err := r.blanks(); err != nil || r.from == r.to || r.buf[r.from] != ']' {
			return err
		}
	}
	r.d.text = r.buf[r.from:r.to]
	return r.d.failAt(0, -1, "", "want a comma and another row, or the end of the array, but there is "+jsonKind(r.d.text, 0))
}

// rest is what to return where no more rows are: io.EOF if what is left may
// stand at the end of the file.
func (r *Reader) rest() error {
	if !r.array {
		return io.EOF
	}
	if err := r.blanks(); err != nil {
		return err
	}
	r.d.text = r.buf[r.from:r.to]
	if r.from == r.to || r.buf[r.from] != ']' {
		return r.d.failAt(0, -1, "", "the array of rows is not closed")
	}
	r.from++
	if err := r.blanks(); err != nil {
		return err
	}
	r.d.text = r.buf[r.from:r.to]
	if r.from < r.to {
		return r.d.failAt(0, -1, "", "there is something behind the array of rows")
	}
	return io.EOF
}

// blanks passes over white space.
func (r *Reader) blanks() error {
	for {
		n := skipSpace(r.buf[r.from:r.to], 0)
		r.skip(n)
		if r.from < r.to || r.eof {
			return nil
		}
		if err := r.fill(1); err != nil {
			return err
		}
	}
}

// record is the length of the record that starts n bytes on in the text; 0:
// there is none, or no room for it beside the n bytes. A record that is no row
// counts for nothing.
func (r *Reader) record(n int) (length int, isRow bool, err error) {
	for {
		text := r.buf[r.from+n : r.to]
		switch r.format {
		case LIBSVM:
			length, isRow = libsvmRecord(text, r.eof)
		case CSV:
			length, isRow = csvRecord(text, r.eof)
		default:
			length, isRow = jsonRecord(text, r.array, r.eof)
		}
		full := r.to-r.from == r.d.opts.Limits.Bytes
		if length > 0 || r.eof || n > 0 && full {
			return length, isRow, nil
		}
		if full {
			r.d.text = nil
			return 0, false, r.d.failAt(0, -1, "", fmt.Sprintf("the row has more than %d bytes, the limit", r.to-r.from))
		}
		// Twice as much each time, as the record is looked at from its start.
		if err := r.fill(n + 2*len(text) + 1); err != nil {
			return 0, false, err
		}
	}
}

// fill reads on until there are n bytes of text, or all there are, or as many as
// the limit allows.
func (r *Reader) fill(n int) error {
	limit := r.d.opts.Limits.Bytes
	n = min(n, limit)
	if r.from > 0 {
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
	}
	if n > len(r.buf) {
		const firstBytes = 1 << 18
		grown := make([]byte, min(max(n, 2*len(r.buf), firstBytes), limit))
		copy(grown, r.buf[:r.to])
		r.buf = grown
	}
	for r.to < n && !r.eof {
		k, err := r.in.Read(r.buf[r.to:])
		r.to += k
		if err == io.EOF {
			r.eof = true
		} else if err != nil {
			return err
		}
	}
	return nil
}

// libsvmRecord is the length of b's first line; 0: it does not end in b, and
// more may follow. It is a row unless it is blank or a comment.
func libsvmRecord(b []byte, eof bool) (length int, isRow bool) {
	n := bytes.IndexByte(b, '\n') + 1
	if n == 0 && eof {
		n = len(b)
	}
	i := skipBlanks(b[:n], 0)
	return n, i < n && b[i] != '#'
}

// csvRecord is libsvmRecord for lines that go on behind a line end in quotes.
func csvRecord(b []byte, eof bool) (length int, isRow bool) {
	quotes := 0
	for length == 0 || quotes%2 == 1 {
		n := bytes.IndexByte(b[length:], '\n') + 1
		if n == 0 {
			if !eof {
				return 0, false
			}
			length = len(b)
			break
		}
		quotes += bytes.Count(b[length:length+n], []byte{'"'})
		length += n
	}
	return length, skipEmptyLines(b[:length], 0) < length
}

// jsonRecord is the length of b up to the end of its first object; outside an
// array, up to the end of that line, or of one with something else on it: the
// decoder will say what is wrong with that. Before the bracket that closes the
// array there is no record.
func jsonRecord(b []byte, array, eof bool) (length int, isRow bool) {
	depth, seen := 0, false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			seen = true
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				if array {
					return i + 1, true
				}
				seen = true
			}
			if depth < 0 && array {
				return 0, false
			}
		case '\n':
			if seen && depth <= 0 && !array {
				return i + 1, true
			}
		case ' ', '\t', '\r':
		default:
			seen = true
		}
	}
	if !eof {
		return 0, false
	}
	return len(b), skipSpace(b, 0) < len(b)
}

// nextBatch cuts the next block from a record batch.
func (r *Reader) nextBatch() (*incremental.Block, error) {
	if r.at == r.batch.Rows() {
		if err := r.readBatch(); err != nil {
			return nil, err
		}
		r.batch, r.at = r.d.block, 0
	}
	from, to := r.at, min(r.at+r.rows, r.batch.Rows())
	r.at = to
	r.piece = r.batch
	r.columns = r.columns[:0]
	for _, c := range r.batch.Columns {
		r.columns = append(r.columns, c.Slice(from, to))
	}
	r.piece.Columns, r.piece.Codes = r.columns, r.batch.Codes[from:to]
	if r.batch.Weights != nil {
		r.piece.Weights = r.batch.Weights[from:to]
	}
	return &r.piece, nil
}

// readBatch reads messages up to the next record batch with rows.
func (r *Reader) readBatch() error {
	d, s := r.d, &r.d.arrow
	if s.nbatch >= 0 { // the schema has been read
		d.begin(Arrow, nil)
		d.nextArrow()
	}
	for {
		r.memory.reset()
		var head [8]byte
		if n, err := io.ReadFull(r.in, head[:]); err != nil {
			if n == 0 && err == io.EOF && s.nbatch >= 0 {
				return io.EOF
			}
			return d.fail(-1, "", "the file is truncated")
		}
		if binary.LittleEndian.Uint32(head[:]) != continuation {
			return d.fail(-1, "", "this is not an Arrow IPC stream, or it is corrupt")
		}
		n := int64(binary.LittleEndian.Uint32(head[4:]))
		if n == 0 {
			return io.EOF
		}
		meta, err := r.bytes(n)
		if err != nil {
			return err
		}
		m, err := d.arrowMessage(meta)
		if err != nil {
			return err
		}
		body, err := r.bytes(m.body)
		if err != nil {
			return err
		}
		if err := d.arrowBody(m, body); err != nil {
			return err
		}
		if m.typ == headerDictionary {
			s.dictionary.own() // it outlives the message
		}
		if s.rows > 0 {
			return d.finishArrow()
		}
	}
}

// bytes reads n bytes into memory that is used again for the next message.
func (r *Reader) bytes(n int64) ([]byte, error) {
	if limit := r.d.opts.Limits.Bytes; n > int64(limit) {
		return nil, r.d.fail(-1, "", "a message has %d bytes, the limit is %d; write smaller record batches", n, limit)
	}
	b := r.memory.take(int(n))
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, r.d.fail(-1, "", "the file is truncated")
	}
	return b, nil
}
