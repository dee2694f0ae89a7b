package wire

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"streamd/incremental/gram"
)

// textRows collects the rows of a text, number by number, as columns of float64. The
// readers of CSV, JSON and LIBSVM share one.
type textRows struct {
	*builder
	text  []byte
	row   []float64 // the current row
	cols  [][]float64
	count int    // rows pushed
	ended []byte // the text with other line ends: see endLines
	held  int    // most bytes that cols had
}

// keptBytes is how much memory is kept from one block to the next in any case.
const keptBytes = 4 << 20

// reset starts a block. Memory that was grown by a block four times as large as the
// last one is dropped.
func (t *textRows) reset(text []byte) {
	if used := 8 * t.count * len(t.cols); used < t.held/4 && t.held > keptBytes {
		t.cols, t.columns, t.held = nil, nil, 0
	} else {
		t.held = max(t.held, used)
	}
	for j := range t.cols {
		t.cols[j] = t.cols[j][:0]
	}
	t.text, t.cols, t.count = text, t.cols[:0], 0
}

// failAt is fail at a position in the text.
func (t *textRows) failAt(pos, row int, column, reason string) *Error {
	e := t.fail(row, column, "%s", reason)
	e.Line = 1 + bytes.Count(t.text[:min(pos, len(t.text))], []byte{'\n'})
	return e
}

// setWidth makes rows of n numbers.
func (t *textRows) setWidth(n int) {
	t.row = slices.Grow(t.row[:0], n)[:n]
	t.widen(n)
}

// widen makes the block n columns wide, with zeros in the rows so far.
func (t *textRows) widen(n int) {
	for len(t.cols) < n {
		if len(t.cols) < cap(t.cols) { // take up the slice left there by an earlier block
			t.cols = t.cols[:len(t.cols)+1]
		} else {
			t.cols = append(t.cols, nil)
		}
		last := &t.cols[len(t.cols)-1]
		*last = slices.Grow((*last)[:0], t.count)[:t.count]
		clear(*last)
	}
}

// room is the reason why there is no room for one more row of n numbers, or "".
func (t *textRows) room(n int) string {
	limits, rows := t.opts.Limits, t.count+1
	// A number in dense text takes two bytes or more, so that only sparse rows can
	// meet the bound of a payload's cells.
	cells := min(max(limits.cells(), len(t.text)/2), limits.Numbers/8)
	switch {
	case n > limits.Features:
		return fmt.Sprintf("the row has more than %d features, the limit", limits.Features)
	case rows > limits.Rows:
		return fmt.Sprintf("the block has more than %d rows, the limit", limits.Rows)
	case int64(rows)*int64(max(n, 1)) > int64(cells):
		t.short = cells == limits.Numbers/8
		return fmt.Sprintf("the block has more than %d numbers, the limit for rows of %d bytes: send fewer rows in one", cells, len(t.text))
	}
	return ""
}

// push adds the current row.
func (t *textRows) push(code int32, weight float64) {
	for j, x := range t.row {
		t.cols[j] = append(t.cols[j], x)
	}
	t.count++
	if !t.unlabelled {
		t.codes = append(t.codes, code)
	}
	if t.weighted() {
		t.weights = append(t.weights, weight)
	}
}

// finishRows makes the block of the pushed rows.
func (t *textRows) finishRows(names []string) error {
	if t.count == 0 {
		return t.fail(-1, "", "there are no rows")
	}
	for _, c := range t.cols {
		t.columns = append(t.columns, gram.ColumnOf(c))
	}
	var weights []float64
	if t.weighted() && t.format != LIBSVM {
		weights = t.weights
	}
	return t.finish(names, weights, 8*t.count*len(t.cols))
}

// byteOrderMark stands before the first line of some CSV and LIBSVM.
var byteOrderMark = []byte("\xef\xbb\xbf")

// endLines makes the text one with line ends that are LF, where it has CR alone for that, as old
// programs of the Macintosh write it.
func (t *textRows) endLines(quotes bool) {
	if !endsInCR(t.text, quotes) {
		return
	}
	t.ended = append(t.ended[:0], t.text...)
	(&crEnds{quotes: quotes}).replace(t.ended)
	t.text = t.ended
}

// endsInCR is whether lines end in CR alone: there is one, and not a single LF, outside of quotes
// where those hide line ends.
func endsInCR(b []byte, quotes bool) bool {
	if n := bytes.IndexByte(b, '\n'); n >= 0 && (!quotes || bytes.Count(b[:n], []byte{'"'})%2 == 0) {
		return false
	}
	inQuotes, found := false, false
	for i, c := range b {
		switch {
		case c == '"' && quotes:
			inQuotes = !inQuotes
		case c == '\n' && !inQuotes:
			return false
		case c == '\r' && !inQuotes && i < len(b)-1:
			found = true
		}
	}
	return found
}

// crEnds replaces the CRs of a text, which may come in parts, by LFs.
type crEnds struct {
	in               io.Reader
	quotes, inQuotes bool // CRs in quotes stay
}

func (e *crEnds) replace(b []byte) {
	for i, c := range b {
		switch {
		case c == '"' && e.quotes:
			e.inQuotes = !e.inQuotes
		case c == '\r' && !e.inQuotes:
			b[i] = '\n'
		}
	}
}

// Read implements io.Reader.
func (e *crEnds) Read(b []byte) (int, error) {
	n, err := e.in.Read(b)
	e.replace(b[:n])
	return n, err
}

// lineLength is the length of b's first line, its LF included.
func lineLength(b []byte) int {
	if n := bytes.IndexByte(b, '\n'); n >= 0 {
		return n + 1
	}
	return len(b)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// isSpace is whether c is white space in JSON, and separates fields or lines in LIBSVM.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
