package wire

import (
	"fmt"
	"io"
	"slices"

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

	// Rows that are decoded already.
	decoded bool
	block   incremental.Block
	columns [][]float64 // of the columns of numbers
	codes   [][]uint16  // of indicators: each serves the columns that lie side by side
	texts   [][]string
}

// Cut is Next for a piece, and returns the number of its rows: those of a block, whatever record
// batches the file has, and fewer at its end. Text is only divided, which takes a fraction of the
// time of decoding it; but the first block is decoded, because it fixes the features of the others.
func (r *Reader) Cut(p *Piece) (rows int, err error) {
	if r.format == Arrow || r.blocks == 0 || r.err != nil {
		p.clear()
		for rows < r.rowsPerBlock {
			b, err := r.next(r.rowsPerBlock - rows)
			if err == io.EOF && rows > 0 {
				break // and again at the next call
			}
			if err != nil {
				return 0, err
			}
			p.add(b, r.d.Texts())
			rows += b.Rows()
			if r.format != Arrow {
				r.d.rows.cols = nil // the reader decodes no more
				break
			}
		}
		return rows, nil
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
	numbers := make([]float64, m*n)
	for j := range n {
		p.d.rows.cols = append(p.d.rows.cols, numbers[j*m:j*m:(j+1)*m])
	}
	p.columns = nil // only the first block of a text is decoded by the reader
}

// clear makes the piece one of no rows that are decoded.
func (p *Piece) clear() {
	p.decoded, p.texts = true, nil
	p.block = incremental.Block{Columns: p.block.Columns[:0], Codes: p.block.Codes[:0], Classes: p.block.Classes[:0], Weights: p.block.Weights[:0]}
	for j := range p.columns {
		p.columns[j] = p.columns[j][:0]
	}
	for j := range p.codes {
		p.codes[j] = p.codes[j][:0]
	}
}

// add appends the rows of a block, whose columns have the kinds of those before, and whose columns
// of texts have codes of the texts, as those of Decoder.Texts.
func (p *Piece) add(b *incremental.Block, texts [][]string) {
	had, m := p.block.Rows(), b.Rows()
	own := p.block
	p.block = *b
	p.block.Classes, p.block.Codes = mergeClasses(own, b)
	p.block.Weights = nil
	if b.Weights != nil {
		p.block.Weights = append(own.Weights, b.Weights...)
	}
	recode := p.mergeTexts(texts)
	p.block.Columns = own.Columns[:0]
	numbers, codes := 0, 0
	var last []uint16 // indicators of a feature lie side by side, for the most part
	for j, column := range b.Columns {
		of, code, ok := column.Codes()
		if !ok {
			if numbers == len(p.columns) {
				p.columns = append(p.columns, nil)
			}
			to := slices.Grow(p.columns[numbers], m)[:had+m]
			column.Copy(to[had:], 0)
			if j < len(recode) && recode[j] != nil {
				for i, c := range to[had:] {
					if c == c { // NaN is a missing value
						to[had+i] = recode[j][int(c)]
					}
				}
			}
			p.columns[numbers] = to
			numbers++
			p.block.Columns = append(p.block.Columns, gram.ColumnOf(to))
			continue
		}
		if m > 0 && (last == nil || &of[0] != &last[0]) {
			if codes == len(p.codes) {
				p.codes = append(p.codes, nil)
			}
			p.codes[codes] = append(p.codes[codes], of...)
			last = of
			codes++
		}
		p.block.Columns = append(p.block.Columns, gram.IndicatorColumn(p.codes[codes-1], code))
	}
}

// mergeClasses are the classes of own and those that b adds, and the codes of the rows of both.
func mergeClasses(own incremental.Block, b *incremental.Block) (classes []string, codes []int32) {
	if len(own.Codes) == 0 {
		return append(own.Classes, b.Classes...), append(own.Codes, b.Codes...)
	}
	classes, codes = own.Classes, own.Codes
	recode := make([]int32, len(b.Classes))
	index := make(map[string]int32, len(classes))
	for c, class := range classes {
		index[class] = int32(c)
	}
	for c, class := range b.Classes {
		at, ok := index[class]
		if !ok {
			at = int32(len(classes))
			classes = append(classes, class)
		}
		recode[c] = at
	}
	for _, c := range b.Codes {
		codes = append(codes, recode[c])
	}
	return classes, codes
}

// mergeTexts adds the texts of more rows to those of the piece. recode has the piece's code of each
// text of a column; nil: the codes are the same.
func (p *Piece) mergeTexts(texts [][]string) (recode [][]float64) {
	if p.texts == nil {
		p.texts = texts
		return nil
	}
	recode = make([][]float64, len(texts))
	for j, names := range texts {
		if had := p.texts[j]; len(names) >= len(had) && slices.Equal(names[:len(had)], had) {
			p.texts[j] = names // the decoder has gone on giving codes
			continue
		}
		p.texts[j] = slices.Clip(p.texts[j]) // the decoder appends to it
		index := make(map[string]int, len(p.texts[j]))
		for c, name := range p.texts[j] {
			index[name] = c
		}
		recode[j] = make([]float64, len(names))
		for c, name := range names {
			at, ok := index[name]
			if !ok {
				at = len(p.texts[j])
				index[name] = at
				p.texts[j] = append(p.texts[j], name)
			}
			recode[j][c] = float64(at)
		}
	}
	return recode
}
