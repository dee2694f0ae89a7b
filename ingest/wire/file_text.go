package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"streamd/incremental"
)

// textFile holds the part of a text that has been read and not yet decoded.
type textFile struct {
	in    *bufio.Reader
	limit int // bytes
	buf   []byte
	from  int // the part is buf[from:to]
	to    int
	eof   bool
	lines int // before buf[from]
}

// rest is the part.
func (f *textFile) rest() []byte { return f.buf[f.from:f.to] }

// skip passes over n bytes.
func (f *textFile) skip(n int) {
	f.lines += bytes.Count(f.buf[f.from:f.from+n], []byte{'\n'})
	f.from += n
}

// skipBlanks passes over white space.
func (f *textFile) skipBlanks() error {
	for {
		f.skip(skipSpace(f.rest(), 0))
		if f.from < f.to || f.eof {
			return nil
		}
		if err := f.fill(1); err != nil {
			return err
		}
	}
}

// skipByteOrderMark passes over a byte order mark.
func (f *textFile) skipByteOrderMark() error {
	if err := f.fill(len(byteOrderMark)); err != nil {
		return err
	}
	if bytes.HasPrefix(f.rest(), byteOrderMark) {
		f.from += len(byteOrderMark)
	}
	return nil
}

// fill reads on until there are n bytes of text, or all there are, or as many as
// the limit allows.
func (f *textFile) fill(n int) error {
	n = min(n, f.limit)
	if f.from > 0 {
		f.to = copy(f.buf, f.rest())
		f.from = 0
	}
	if n > len(f.buf) {
		const firstBytes = 1 << 18
		grown := make([]byte, min(max(n, 2*len(f.buf), firstBytes), f.limit))
		copy(grown, f.buf[:f.to])
		f.buf = grown
	}
	for f.to < n && !f.eof {
		k, err := f.in.Read(f.buf[f.to:])
		f.to += k
		if err == io.EOF {
			f.eof = true
		} else if err != nil {
			return err
		}
	}
	return nil
}

// nextText decodes as many records as make a block.
func (r *Reader) nextText() (*incremental.Block, error) {
	n, _, err := r.records()
	if err != nil {
		return nil, err
	}
	if err := r.decode(r.d, r.text.rest()[:n]); err != nil {
		return nil, err
	}
	r.text.skip(n)
	return &r.d.block, nil
}

// records finds the length of the text with as many rows as make a block, one or
// more.
func (r *Reader) records() (n, rows int, err error) {
	r.d.begin(r.format, nil)
	if r.blocks == 0 {
		if err := r.first(); err != nil {
			return 0, 0, err
		}
	}
	if r.array {
		if err := r.comma(); err != nil {
			return 0, 0, err
		}
	}
	for rows < r.rowsPerBlock {
		end, isRow, err := r.record(n)
		if err != nil {
			return 0, 0, err
		}
		if end == 0 {
			break
		}
		if !isRow && n == 0 {
			r.text.skip(end)
			continue
		}
		n += end
		if isRow {
			rows++
		}
	}
	if rows == 0 {
		return 0, 0, r.end()
	}
	return n, rows, nil
}

// first passes over the text before the first record.
func (r *Reader) first() error {
	if r.array { // the bracket has been read, and what was before it
		return nil
	}
	if err := r.text.skipByteOrderMark(); err != nil || r.format != CSV {
		return err
	}
	for {
		end, isRow, err := r.record(0)
		if err != nil {
			return err
		}
		if end == 0 {
			return io.EOF
		}
		if !isRow {
			r.text.skip(end)
			continue
		}
		if _, n := separatorLine(r.text.rest()); n > 0 {
			if end, err = r.behindSeparatorLine(n); err != nil {
				return err
			}
		}
		r.d.rows.text = r.text.rest()[:end]
		start, err := r.d.csv.makePlan(0, r.d.opts.Header)
		if err != nil {
			return err
		}
		r.text.skip(start)
		return nil
	}
}

// behindSeparatorLine is the end of the first record behind the line sep=;, which has n bytes.
func (r *Reader) behindSeparatorLine(n int) (end int, err error) {
	for {
		length, isRow, err := r.record(n)
		if n += length; err != nil || isRow || length == 0 {
			return n, err
		}
	}
}

// decode decodes whole records. Behind the first block it leaves the reader as it
// is.
func (r *Reader) decode(d *Decoder, text []byte) error {
	d.rows.text = text
	switch r.format {
	case LIBSVM: // rows without a feature are fine where others have some
		if err := d.rows.readLIBSVM(0); err != nil {
			return err
		}
		return d.rows.finishRows(d.rows.libsvmNames())
	case CSV:
		return d.csv.readRows(0)
	}
	j := &d.json
	j.begin()
	j.shape = r.shape
	if !r.array {
		if err := j.lines(); err != nil {
			return err
		}
	} else if err := j.array(); err != nil {
		return err
	} else if err := j.finish(); err != nil {
		return err
	}
	if r.shape != shapeNone {
		return nil
	}
	// The first rows have named the features.
	r.shape = j.shape
	d.want.width = len(d.columns)
	if d.want.list == nil && j.shape == shapeNamed {
		d.want.names = j.names
	}
	return nil
}

// comma passes over the comma between two rows of an array.
func (r *Reader) comma() error {
	f := &r.text
	if err := f.skipBlanks(); err != nil || r.blocks == 0 || f.from == f.to {
		return err
	}
	switch f.buf[f.from] {
	case ']':
		return nil
	case ',':
		f.from++
		if err := f.skipBlanks(); err != nil || f.from == f.to || f.buf[f.from] != ']' {
			return err
		}
	}
	return r.failHere("want a comma and another row, or the end of the array, but there is " + jsonKind(f.rest(), 0))
}

// end is the error where no more rows are: io.EOF if the rest may stand at the end of
// the file.
func (r *Reader) end() error {
	f := &r.text
	if !r.array {
		return io.EOF
	}
	if err := f.skipBlanks(); err != nil {
		return err
	}
	if f.from == f.to || f.buf[f.from] != ']' {
		return r.failHere("the array of rows is not closed")
	}
	f.from++
	if err := f.skipBlanks(); err != nil {
		return err
	}
	if f.from < f.to {
		return r.failHere("there is something behind the array of rows")
	}
	return io.EOF
}

// failHere is an error at the start of the text's rest.
func (r *Reader) failHere(reason string) *Error {
	e := r.d.fail(-1, "", "%s", reason)
	e.Line = 1
	return e
}

// record is the length of the record that starts n bytes on in the text; 0:
// there is none, or no room for it beside the n bytes. A record that is no row
// counts for nothing.
func (r *Reader) record(n int) (length int, isRow bool, err error) {
	f := &r.text
	for {
		text := f.rest()[n:]
		switch r.format {
		case LIBSVM:
			length, isRow = libsvmRecord(text, f.eof)
		case CSV:
			length, isRow = r.csvRecord(text, f.eof)
		default:
			length, isRow = jsonRecord(text, r.array, f.eof)
		}
		full := f.to-f.from == f.limit
		if length > 0 || f.eof || n > 0 && full {
			return length, isRow, nil
		}
		if full {
			return 0, false, r.failHere(fmt.Sprintf("the row has more than %d bytes, the limit", f.limit))
		}
		// Twice as much each time, as the record is looked at from its start.
		if err := f.fill(n + 2*len(text) + 1); err != nil {
			return 0, false, err
		}
	}
}

// libsvmRecord is the length of b's first line; 0: it does not end in b, and
// more may follow. It is a row unless it is blank or a comment.
func libsvmRecord(b []byte, eof bool) (length int, isRow bool) {
	n := bytes.IndexByte(b, '\n') + 1
	if n == 0 && eof {
		n = len(b)
	}
	i := skipSpace(b[:n], 0)
	return n, i < n && b[i] != '#'
}

// csvRecord is libsvmRecord for lines that go on behind a line end in quotes.
// A comment is a line, whatever is in it.
func (r *Reader) csvRecord(b []byte, eof bool) (length int, isRow bool) {
	if comment := r.d.opts.Comment; comment != "" && len(b) < len(comment) && !eof {
		return 0, false
	}
	if n := r.d.comment(b); n > 0 {
		if b[n-1] != '\n' && !eof {
			return 0, false
		}
		return n, false
	}
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
	return length, r.d.skipVoid(b[:length], 0) < length
}

// jsonRecord is the length of b up to the end of its first object; outside an
// array, up to the end of that line, or of one with something else on it: the
// decoder refuses it then. Before the bracket that closes the array there is no
// record.
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
		case '\n', '\r':
			if seen && depth <= 0 && !array {
				return i + 1, true
			}
		case ' ', '\t':
		default:
			seen = true
		}
	}
	if !eof {
		return 0, false
	}
	return len(b), skipSpace(b, 0) < len(b)
}
