package wire

import (
	"fmt"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// Piece is a block of a file that may be decoded on another goroutine than the
// reader's: Reader.Cut fills it, Block decodes it. The zero value is ready. It belongs
// to the reader of its first Cut; its memory is used again by the next.
type Piece struct {
	reader *Reader
	d      *Decoder

	// Of the text formats.
	text        []byte
	rows        int
	rowsBefore  int // in the file
	linesBefore int

	// A block that is decoded already, and its numbers.
	decoded bool
	block   incremental.Block
	numbers []float64
	codes   []uint16 // of indicators
	texts   [][]string
}

// Cut is Next for a piece, and returns the number of its rows. Text is only divided,
// which takes a fraction of the time of decoding it; but the first block is decoded,
// because it fixes the features of the others.
func (r *Reader) Cut(p *Piece) (rows int, err error) {
	if r.format == Arrow || r.blocks == 0 || r.err != nil {
		b, err := r.Next()
		if err != nil {
			return 0, err
		}
		p.copy(b)
		p.texts = r.d.Texts()
		if r.format != Arrow {
			r.d.rows.cols = nil // the reader decodes no more
		}
		return p.block.Rows(), nil
	}
	n, rows, err := r.records()
	if err != nil {
		return 0, r.failed(err)
	}
	if p.d == nil {
		p.reader, p.d = r, newDecoder(r.d.opts, r.d.want)
		p.d.csv.plan = r.d.csv.plan
		p.makeRoom(rows, max(r.d.want.width, r.d.csv.plan.width))
	}
	p.decoded = false
	p.text, p.rows = append(p.text[:0], r.text.rest()[:n]...), rows
	p.rowsBefore, p.linesBefore = r.rowsBefore, r.text.lines
	r.text.skip(n)
	r.blocks++
	r.rowsBefore += rows
	return rows, nil
}

// Block is the block that was cut, valid until the piece is cut again. Pieces of one
// reader may be decoded at the same time, and while it cuts others.
func (p *Piece) Block() (*incremental.Block, error) {
	if p.decoded {
		return &p.block, nil
	}
	r := p.reader
	p.d.begin(r.format, nil)
	if err := r.decode(p.d, p.text); err != nil {
		return nil, r.namedAt(err, p.rowsBefore, p.linesBefore)
	}
	if rows := p.d.block.Rows(); rows != p.rows {
		panic(fmt.Sprintf("wire: a piece of %d rows was cut as one of %d", rows, p.rows))
	}
	return &p.d.block, nil
}

// Texts are the texts of the block's columns, as those of Decoder.Texts.
func (p *Piece) Texts() [][]string {
	if p.decoded {
		return p.texts
	}
	return p.d.Texts()
}

// makeRoom makes room for blocks of so many rows and columns at once. Columns that
// grow row by row would leave as much behind.
func (p *Piece) makeRoom(m, n int) {
	p.grow(m * n)
	for j := range n {
		p.d.rows.cols = append(p.d.rows.cols, p.numbers[j*m:j*m:(j+1)*m])
	}
	p.numbers = nil
}

// grow makes room for n numbers.
func (p *Piece) grow(n int) {
	if cap(p.numbers) < n {
		p.numbers = make([]float64, n)
	}
}

// copy makes the piece one of a block that is decoded.
func (p *Piece) copy(b *incremental.Block) {
	p.decoded = true
	m, n := b.Rows(), len(b.Columns)
	indicators := 0
	for _, column := range b.Columns {
		if column.Kind() == gram.Indicator {
			indicators++
		}
	}
	p.grow(m * (n - indicators))
	numbers := p.numbers
	p.codes = p.codes[:0]
	var last, copied []uint16 // indicators of a feature lie side by side, for the most part
	columns := p.block.Columns[:0]
	for _, column := range b.Columns {
		codes, code, ok := column.Codes()
		if !ok {
			column.Copy(numbers[:m], 0)
			columns = append(columns, gram.ColumnOf(numbers[:m]))
			numbers = numbers[m:]
			continue
		}
		if m > 0 && (last == nil || &codes[0] != &last[0]) {
			p.codes = append(p.codes, codes...)
			last, copied = codes, p.codes[len(p.codes)-m:]
		}
		columns = append(columns, gram.IndicatorColumn(copied, code))
	}
	codes, classes, weights := append(p.block.Codes[:0], b.Codes...), append(p.block.Classes[:0], b.Classes...), p.block.Weights
	p.block = *b
	p.block.Columns, p.block.Codes, p.block.Classes = columns, codes, classes
	if b.Weights != nil {
		p.block.Weights = append(weights[:0], b.Weights...)
	}
}
