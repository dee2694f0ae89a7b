package wire

import (
	"bytes"
	"fmt"
	"math"
)

// decodeLIBSVM reads lines "label index:value …".
func (d *Decoder) decodeLIBSVM(b []byte) error {
	i := 0
	if bytes.HasPrefix(b, byteOrderMark) {
		i = len(byteOrderMark)
	}
	if err := d.libsvmRows(b, i); err != nil {
		return err
	}
	if len(d.row) == 0 && d.rows > 0 {
		return d.fail(-1, "", "no row has a feature")
	}
	return d.finishRows(d.want.names)
}

// libsvmRows reads the lines of b[i:].
func (d *Decoder) libsvmRows(b []byte, i int) error {
	d.setWidth(d.want.width)
	for i < len(b) {
		end := i + lineLength(b[i:])
		if err := d.libsvmLine(b[:end], i); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// lineLength is the length of b's first line, its LF included.
func lineLength(b []byte) int {
	if n := bytes.IndexByte(b, '\n'); n >= 0 {
		return n + 1
	}
	return len(b)
}

// libsvmLine reads the line that starts at b[pos] and ends with b.
func (d *Decoder) libsvmLine(b []byte, pos int) error {
	line := b
	if hash := bytes.IndexByte(b[pos:], '#'); hash >= 0 {
		line = b[:pos+hash]
	}
	i := skipBlanks(line, pos)
	if i == len(line) {
		return nil
	}
	row := d.rows
	code, i, reason := d.libsvmLabel(line, i)
	if reason == "" {
		reason = d.room(len(d.row))
	}
	if reason != "" {
		return d.failAt(pos, row, "", reason)
	}
	clear(d.row)
	last := 0
	for {
		if i = skipBlanks(line, i); i == len(line) {
			break
		}
		index, value, end, reason := libsvmPair(line, i, last)
		if reason == "" && index > len(d.row) {
			reason = d.libsvmWiden(index)
		}
		if reason != "" {
			return d.failAt(pos, row, "", reason)
		}
		d.row[index-1] = value
		last, i = index, end
	}
	d.push(code, 1)
	return nil
}

// libsvmLabel reads the label at b[i], which ends before a blank or a comment.
func (d *Decoder) libsvmLabel(b []byte, i int) (code int32, end int, reason string) {
	odd := false
	for end = i; end < len(b) && !isBlank(b[end]) && b[end] != '#'; end++ {
		odd = odd || b[end] == ':' || b[end] == ','
	}
	label := b[i:end]
	switch {
	case odd && bytes.IndexByte(label, ':') >= 0:
		return -1, end, fmt.Sprintf("the row starts with %s instead of a label", quoted(label))
	case odd:
		// Several labels of one row, or a line of CSV, which would be one without
		// features.
		return -1, end, fmt.Sprintf("the label %s has a comma: want one label and behind it index:value, with blanks between them", quoted(label))
	}
	if !d.unlabelled {
		code, reason = d.labels.text(label)
	}
	return code, end, reason
}

// libsvmPair reads the "index:value" at line[i], with an index above last, which
// ends before line[end].
func libsvmPair(line []byte, i, last int) (index int, value float64, end int, reason string) {
	start := i
	for ; i < len(line) && line[i]-'0' < 10 && index < 1<<30; i++ {
		index = 10*index + int(line[i]-'0')
	}
	if index > last && i < len(line) && line[i] == ':' {
		x, end, ok := number(line, i+1)
		if ok && !math.IsInf(x, 0) && (end == len(line) || isBlank(line[end])) {
			return index, x, end, ""
		}
	}
	// Something is wrong with it.
	for end = start; end < len(line) && !isBlank(line[end]); end++ {
	}
	switch pair := line[start:end]; {
	case bytes.HasPrefix(pair, []byte("qid:")):
		reason = "query ids (qid) are for ranking and not supported"
	case i == start || i == end || line[i] != ':':
		reason = quoted(pair) + " is not index:value"
	case index == 0:
		reason = "index 0: indices start at 1"
	case index == last:
		reason = fmt.Sprintf("index %d is given twice", index)
	case index < last:
		reason = fmt.Sprintf("index %d follows %d: indices must ascend", index, last)
	default:
		_, reason = finite(line[i+1 : end])
		reason = fmt.Sprintf("index %d: %s", index, reason)
	}
	return 0, 0, end, reason
}

// libsvmWiden makes room for an index beyond the row's width.
func (d *Decoder) libsvmWiden(index int) (reason string) {
	if d.want.width != 0 {
		return fmt.Sprintf("index %d: there are only %d features", index, d.want.width)
	}
	if index > d.opts.Limits.Features {
		return fmt.Sprintf("index %d is beyond the limit of %d features", index, d.opts.Limits.Features)
	}
	if reason = d.room(index); reason != "" {
		return reason
	}
	for len(d.row) < index {
		d.row = append(d.row, 0)
	}
	d.growCols(index)
	return ""
}

func skipBlanks(b []byte, i int) int {
	for i < len(b) && isBlank(b[i]) {
		i++
	}
	return i
}

// isBlank is whether c separates fields within a line, or ends one.
func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
