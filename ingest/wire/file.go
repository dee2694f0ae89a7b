package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"streamd/incremental"
)

// Reader reads a file as a sequence of blocks and never holds more of it than
// one block.
//
// Parquet, Arrow, gzip and Zstandard are recognised by their first bytes, and so are
// formats that are not read. Text has the format that the file's name ends in, before .gz
// or .zst: .csv or .tsv; .json, .ndjson or .jsonl; .libsvm, .svm or .svmlight. For any
// other name it is the options' format, or else the first line decides. An Arrow file may
// be in the stream or in the file format. Images in idx, MNIST's format, are read as CSV without
// a header, with the labels of the file beside it: see idxLabels.
//
// All blocks of a file have the same features: those of the options, else those
// of the first row. As LIBSVM does not say how many there are, such a file is
// read through once to find the highest index when the options have none.
type Reader struct {
	path   string
	file   *os.File     // nil: a stream
	stream io.Reader    // in place of file
	labels io.Closer    // file of an idx file's labels, or nil
	read   atomic.Int64 // bytes of the file read so far
	size   int64
	d      *Decoder
	format Format

	rowsPerBlock int
	blocks       int // so far
	rowsBefore   int // in the blocks so far

	text  textFile // of CSV, JSON and LIBSVM
	array bool     // JSON: the rows are in an array
	shape jsonShape
	arrow arrowFile

	err error // the last error of Next, kept for good
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
	r.limitRows(rowsPerBlock, width)
	return r, nil
}

// Texts are those of the block that was read last: see Decoder.Texts.
func (r *Reader) Texts() [][]string { return r.d.Texts() }

// OpenStream reads what cannot be read twice as OpenFile reads a file, such as standard input. The
// name is for errors. Parquet, and LIBSVM without features in the options, have to be files.
func OpenStream(in io.Reader, name string, opts Options, rowsPerBlock int) (*Reader, error) {
	d, err := NewDecoder(opts)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	r := &Reader{path: name, stream: in, d: d, rowsPerBlock: max(1, min(rowsPerBlock, d.opts.Limits.Rows))}
	err = r.start()
	if err == nil && r.format == LIBSVM && opts.Features == nil {
		err = errors.New("a stream of LIBSVM does not say how many features there are: name them")
	}
	if err != nil {
		return nil, r.named(err)
	}
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
	r = &Reader{path: path, file: file, d: d, rowsPerBlock: min(rowsPerBlock, d.opts.Limits.Rows)}
	if err := r.start(); err != nil {
		file.Close()
		return nil, r.named(err)
	}
	return r, nil
}

// start finds the file's format.
func (r *Reader) start() error {
	raw := r.stream
	if r.file != nil {
		info, err := r.file.Stat()
		if err != nil {
			return err
		}
		r.size = info.Size()
		raw = io.NewSectionReader(countingFile{r.file, &r.read}, 0, r.size)
	}
	in, err := Unzipped(raw)
	if err != nil {
		return err
	}
	head, err := in.Peek(bufferBytes)
	if len(head) == 0 {
		if err != io.EOF {
			return err
		}
		return errors.New("the file is empty")
	}
	if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return errors.New("the file is text in UTF-16: want UTF-8")
	}
	if r.file == nil && (opensIDX(head) || IsParquet(head)) {
		return errors.New("this format cannot be read from a stream: name a file")
	}
	if opensIDX(head) {
		rows, labels, err := newIDXText(r.path, in, r.d.opts.Limits)
		if err != nil {
			return err
		}
		r.labels, r.format = labels, CSV
		r.d.opts.Label, r.d.opts.Header = "first", HeaderAbsent
		r.text = textFile{in: bufio.NewReaderSize(rows, bufferBytes), limit: r.d.opts.Limits.Bytes}
		return nil
	}
	if r.format, err = formatOfFile(r.path, head, r.d.opts.Format); err != nil {
		return err
	}
	if r.format != Arrow && !IsParquet(head) && bytes.IndexByte(head, 0) >= 0 {
		return errors.New("the file is binary and has none of the formats: Arrow, Parquet, JSON, CSV, LIBSVM and idx are read, also compressed by gzip or Zstandard")
	}
	if IsParquet(head) {
		if !r.beginsWith(parquetMagic) {
			return errors.New("the file is compressed Parquet, of which no part can be read alone: decompress it first")
		}
		rows, err := r.d.newParquetStream(countingFile{r.file, &r.read}, r.size, r.rowsPerBlock)
		if err != nil {
			return err
		}
		in = bufio.NewReaderSize(rows, bufferBytes)
	}
	if bytes.HasPrefix(head, []byte(arrowFileMagic)) {
		if r.file != nil && r.beginsWith(arrowFileMagic) {
			messages, err := arrowFileStream(countingFile{r.file, &r.read}, r.size, r.d.opts.Limits)
			if err != nil {
				return err
			}
			in = bufio.NewReaderSize(messages, bufferBytes)
		} else if _, err := in.Discard(arrowFileHead); err != nil {
			return err // it is compressed: nearly all writers make it a stream behind the head
		}
	}
	if quotes := r.format == CSV; (quotes || r.format == LIBSVM) && endsInCR(head, quotes) {
		in = bufio.NewReaderSize(&crEnds{in: in, quotes: quotes}, bufferBytes)
	}
	r.text = textFile{in: in, limit: r.d.opts.Limits.Bytes}
	r.arrow = arrowFile{in: in, d: r.d}
	switch r.format {
	case LIBSVM:
		width := r.d.want.width
		if width == 0 {
			width = r.d.opts.Limits.Features
		}
		r.limitRows(r.rowsPerBlock, width)
	case JSON:
		i := 0
		if bytes.HasPrefix(head, byteOrderMark) {
			i = len(byteOrderMark)
		}
		if i = skipSpace(head, i); i < len(head) && head[i] == '[' {
			r.array = true
			r.text.lines = bytes.Count(head[:i], []byte{'\n'})
			_, err := in.Discard(i + 1)
			return err
		}
	case Arrow:
		r.d.begin(Arrow, nil)
		r.d.arrow.begin()
	}
	return nil
}

// beginsWith reports whether the file begins with these bytes as it lies on the disk.
func (r *Reader) beginsWith(magic string) bool {
	raw := make([]byte, len(magic))
	_, err := r.file.ReadAt(raw, 0)
	return err == nil && string(raw) == magic
}

// limitRows keeps blocks of sparse rows of the width within the limit of cells.
func (r *Reader) limitRows(rows, width int) {
	r.rowsPerBlock = min(rows, r.d.opts.Limits.Rows, max(1, r.d.opts.Limits.cells()/width))
}

// bufferBytes is how much of a file is looked at to find its format.
const bufferBytes = 1 << 16

// Unzipped returns a reader of in that decompresses it if it is compressed by gzip or
// Zstandard.
func Unzipped(in io.Reader) (*bufio.Reader, error) {
	buffered := bufio.NewReaderSize(in, bufferBytes)
	head, _ := buffered.Peek(4)
	var unzipped io.Reader
	var err error
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		unzipped, err = gzip.NewReader(buffered)
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		const mostMemory = 128 << 20 // of what --ultra and --long=27 need
		unzipped, err = zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostMemory))
	default:
		return buffered, nil
	}
	if err != nil {
		return nil, unzipError(err)
	}
	return bufio.NewReaderSize(unzipper{unzipped}, bufferBytes), nil
}

// unzipper explains an end of the input in the middle of the data.
type unzipper struct{ r io.Reader }

func (u unzipper) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	return n, unzipError(err)
}

func unzipError(err error) error {
	if err == io.ErrUnexpectedEOF {
		return errors.New("it is cut short: the compressed data end in the middle")
	}
	return err
}

// countingFile counts the bytes that are read.
type countingFile struct {
	*os.File
	n *atomic.Int64
}

func (c countingFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.File.ReadAt(p, at)
	c.n.Add(int64(n))
	return n, err
}

// otherFiles are formats that are recognised and not read.
var otherFiles = []struct {
	opening, name string
	binary        bool // a text may begin so, too, but has no zeros
}{
	{"PK\x03\x04", "a zip archive or an Excel sheet", false},
	{"\xd0\xcf\x11\xe0", "an Excel sheet", false},
	{"\x1f\x8b", "compressed by gzip twice, or as a message", false},
	{"\x28\xb5\x2f\xfd", "compressed by Zstandard twice, or as a message", false},
	{"BZh91AY&SY", "compressed by bzip2", false},
	{"\xfd7zXZ\x00", "compressed by xz", false},
	{"\x04\x22\x4d\x18", "compressed by LZ4", false},
	{"\x89HDF\r\n", "HDF5", false},
	{"SQLite format 3\x00", "an SQLite database", false},
	{"Obj\x01", "Avro", false},
	{"FEA1", "Feather in its first version: write it as Arrow, which its second version is", true},
	{"ORC", "ORC", true},
	{"\x93NUMPY", "a NumPy array", false},
	{"\x80\x04\x95", "a pickle of Python", false},
	{"\x80\x05\x95", "a pickle of Python", false},
	{"%PDF", "PDF", false},
}

// otherFormat is the name of a format that is not read, by its first bytes, or "".
func otherFormat(head []byte) string {
	switch {
	case isEncryptedParquet(head):
		return "encrypted Parquet, for which there is no key here: decrypt it first"
	case opensOldArrow(head):
		return "Arrow " + arrowBefore15
	}
	for _, other := range otherFiles {
		if bytes.HasPrefix(head, []byte(other.opening)) && (!other.binary || bytes.IndexByte(head, 0) >= 0) {
			return other.name
		}
	}
	return ""
}

// formatOfFile is a file's format: the one that it opens like, or that its name ends in,
// or that is configured, or that its first line looks like. Parquet counts as Arrow.
func formatOfFile(path string, head []byte, configured Format) (Format, error) {
	if name := otherFormat(head); name != "" {
		return 0, fmt.Errorf("the file is %s: want CSV, JSON, LIBSVM, Arrow or Parquet, plain or compressed by gzip or Zstandard", name)
	}
	if HasOwnFormat(head) {
		return Arrow, nil
	}
	name := strings.ToLower(path)
	for _, zipped := range []string{".gz", ".zst"} {
		name = strings.TrimSuffix(name, zipped)
	}
	switch filepath.Ext(name) {
	case ".csv", ".tsv":
		return CSV, nil
	case ".json", ".ndjson", ".jsonl":
		return JSON, nil
	case ".libsvm", ".svm", ".svmlight":
		return LIBSVM, nil
	case ".arrow", ".arrows", ".ipc", ".feather":
		return Arrow, nil
	case ".parquet", ".pq":
		return 0, errors.New("the file is not Parquet, though its name says so")
	}
	if configured != 0 {
		return configured, nil
	}
	return Sniff(head), nil
}

// HasOwnFormat is whether a file, already decompressed, has a format that its first bytes tell, so
// that nobody needs to name one.
func HasOwnFormat(text []byte) bool {
	return IsParquet(text) || opensArrow(text) || bytes.HasPrefix(text, []byte(arrowFileMagic)) || otherFormat(text) != ""
}

// DecodeFile is DecodeUnlabelled for the whole of a file, already decompressed, in any of the
// formats of files. A text has the options' format.
func (d *Decoder) DecodeFile(text []byte) (Table, error) {
	d.unlabelled, d.format = true, 0
	stream, err := d.streamOf(text)
	if err != nil {
		return Table{}, err
	}
	if stream != nil {
		limit := d.opts.Limits.Bytes
		text, err = io.ReadAll(io.LimitReader(stream, int64(limit)+1))
		if err == nil && len(text) > limit {
			err = fmt.Errorf("the rows of the file take more than %d bytes", limit)
		}
		if err != nil {
			return Table{}, err
		}
	}
	if opensArrow(text) {
		return d.DecodeUnlabelled(Arrow.ContentType(), text)
	}
	return d.DecodeUnlabelled("", text)
}

// streamOf is a file of Parquet or Arrow as an Arrow stream; nil: it is another one.
func (d *Decoder) streamOf(text []byte) (io.Reader, error) {
	switch {
	case IsParquet(text):
		return d.newParquetStream(bytes.NewReader(text), int64(len(text)), math.MaxInt)
	case bytes.HasPrefix(text, []byte(arrowFileMagic)):
		return arrowFileStream(bytes.NewReader(text), int64(len(text)), d.opts.Limits)
	}
	if name := otherFormat(text); name != "" {
		return nil, fmt.Errorf("this is %s", name)
	}
	return nil, nil
}

// Sniff guesses the format of a payload from its first line: an Arrow stream by its first
// bytes, JSON by a bracket, LIBSVM by a comment or a pair index:value behind the label.
// Anything else is CSV.
func Sniff(head []byte) Format {
	if opensArrow(head) {
		return Arrow
	}
	line := bytes.TrimPrefix(head, byteOrderMark)
	line = line[skipSpace(line, 0):]
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
		_, err := r.Next()
		if err == io.EOF && width == 0 {
			err = r.named(r.d.fail(-1, "", "no row has a feature"))
		}
		if err == io.EOF {
			return width, nil
		}
		if err != nil {
			return 0, err
		}
		width = max(width, len(r.d.columns))
	}
}

// Format is the file's format.
func (r *Reader) Format() Format { return r.format }

// Doubt says how the file is read that could also mean something else, and which setting decides
// it; empty: there is no doubt. It is known with the first block.
func (r *Reader) Doubt() string { return r.d.Doubt() }

// Progress is the number of bytes read so far, as they lie on disk, and the size of
// the file. It may be called at any time from any goroutine.
func (r *Reader) Progress() (read, size int64) { return min(r.read.Load(), r.size), r.size }

// Close closes the file, and that of its labels.
func (r *Reader) Close() error {
	if r.labels != nil {
		r.labels.Close() // it was only read
	}
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Next is the next block, valid until the call after; io.EOF behind the last
// one. After an error it returns the same error again. A file without a single
// row is an error.
func (r *Reader) Next() (*incremental.Block, error) { return r.next(r.rowsPerBlock) }

// next is Next, of at most so many rows of record batches.
func (r *Reader) next(rows int) (*incremental.Block, error) {
	if r.err != nil {
		return nil, r.err
	}
	var b *incremental.Block
	var err error
	if r.format == Arrow {
		b, err = r.arrow.next(rows)
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

// failed makes err the reader's error from now on.
func (r *Reader) failed(err error) error {
	if err == io.EOF {
		r.read.Store(r.size) // of Parquet not all is read
	} else {
		err = r.named(err)
	}
	r.err = err
	return err
}

// named puts the file's name on an error, and the place in the file into it.
func (r *Reader) named(err error) error { return r.namedAt(err, r.rowsBefore, r.text.lines) }

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
