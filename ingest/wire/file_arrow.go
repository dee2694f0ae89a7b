package wire

import (
	"bufio"
	"encoding/binary"
	"io"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// arrowFile cuts the record batches of a file into blocks.
type arrowFile struct {
	in      *bufio.Reader
	d       *Decoder
	message arena // memory of the current message

	batch   incremental.Block
	at      int // row of the batch that the next block begins with
	block   incremental.Block
	columns []gram.Column
}

// next is the next block, of at most so many rows.
func (f *arrowFile) next(rows int) (*incremental.Block, error) {
	if f.at == f.batch.Rows() {
		if err := f.readBatch(); err != nil {
			return nil, err
		}
		f.batch, f.at = f.d.block, 0
	}
	from, to := f.at, min(f.at+rows, f.batch.Rows())
	f.at = to
	f.block = f.batch
	f.columns = f.columns[:0]
	for _, c := range f.batch.Columns {
		f.columns = append(f.columns, c.Slice(from, to))
	}
	f.block.Columns, f.block.Codes = f.columns, f.batch.Codes[from:to]
	if f.batch.Weights != nil {
		f.block.Weights = f.batch.Weights[from:to]
	}
	return &f.block, nil
}

// readBatch reads messages up to the next record batch with rows.
func (f *arrowFile) readBatch() error {
	a := &f.d.arrow
	if a.batches >= 0 { // the schema has been read
		f.d.begin(Arrow, nil)
		a.next()
	}
	for a.rows <= 0 {
		var head [8]byte
		if n, err := io.ReadFull(f.in, head[:]); n == 0 && err == io.EOF && a.batches >= 0 {
			return io.EOF
		} else if err != nil {
			return f.truncated(err)
		}
		if !opensArrow(head[:]) {
			return a.fail(-1, "", "this is not an Arrow IPC stream, or it is corrupt; if it is a compressed Arrow file, decompress it first")
		}
		n := int64(binary.LittleEndian.Uint32(head[4:]))
		if n == 0 {
			return io.EOF
		}
		f.message.reset()
		meta, err := f.read(n)
		if err != nil {
			return err
		}
		m, err := a.message(meta)
		if err != nil {
			return err
		}
		body, err := f.read(m.body)
		if err != nil {
			return err
		}
		if err := a.take(m, body); err != nil {
			return err
		}
		if m.typ == headerDictionary {
			a.ownDictionaries() // they outlive the message
		}
	}
	return a.finish()
}

// read reads n bytes of a message.
func (f *arrowFile) read(n int64) ([]byte, error) {
	if limit := f.d.opts.Limits.Bytes; n > int64(limit) {
		return nil, f.d.fail(-1, "", "a message has %d bytes, the limit is %d; write smaller record batches", n, limit)
	}
	b := f.message.take(int(n))
	if _, err := io.ReadFull(f.in, b); err != nil {
		return nil, f.truncated(err)
	}
	return b, nil
}

// truncated explains why a message could not be read.
func (f *arrowFile) truncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return f.d.fail(-1, "", "the file is truncated")
	}
	return err
}
