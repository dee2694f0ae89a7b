package wire

import (
	"bytes"
	"fmt"
)

// decodeLIBSVM reads lines "label index:value …".
func (d *Decoder) decodeLIBSVM(b []byte) error {
	if err := d.libsvmRows(b); err != nil {
		return err
	}
	if len(d.row) == 0 && d.rows > 0 {
		return d.fail(-1, "", "no row has a feature")
	}
	return d.finishRows(d.want.names)
}

func (d *Decoder) libsvmRows(b []byte) error {
	d.setWidth(d.want.width)
	for i := 0; i < len(b); {
		end := i + lineLength(b[i:])
		line := b[i:end]
		if hash := bytes.IndexByte(line, '#'); hash >= 0 {
			line = line[:hash]
		}
		if err := d.libsvmLine(line, i); err != nil {
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

// libsvmLine reads one line; pos is where it starts.
func (d *Decoder) libsvmLine(line []byte, pos int) error {
	i := skipBlanks(line, 0)
	if i == len(line) {
		return nil
	}
	row := d.rows
	start := i
	for i < len(line) && !isBlank(line[i]) {
		i++
	}
	label := line[start:i]
	if bytes.IndexByte(label, ':') >= 0 {
		return d.failAt(pos, row, "", fmt.Sprintf("the row starts with %s instead of a label", quoted(label)))
	}
	code, reason := int32(0), ""
	if !d.unlabelled {
		code, reason = d.labels.text(label)
	}
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
		start = i
		for i < len(line) && !isBlank(line[i]) {
			i++
		}
		index, value, reason := libsvmPair(line[start:i], last)
		if reason == "" && index > len(d.row) {
			reason = d.libsvmWiden(index)
		}
		if reason != "" {
			return d.failAt(pos, row, "", reason)
		}
		d.row[index-1] = value
		last = index
	}
	d.push(code, 1)
	return nil
}

// libsvmPair reads "index:value" with an index above last.
func libsvmPair(pair []byte, last int) (index int, value float64, reason string) {
	i := 0
	for ; i < len(pair) && pair[i]-'0' < 10 && index < 1<<30; i++ {
		index = 10*index + int(pair[i]-'0')
	}
	switch {
	case bytes.HasPrefix(pair, []byte("qid:")):
		return 0, 0, "query ids (qid) are for ranking and not supported"
	case i == 0 || i == len(pair) || pair[i] != ':':
		return 0, 0, quoted(pair) + " is not index:value"
	case index == 0:
		return 0, 0, "index 0: indices start at 1"
	case index == last:
		return 0, 0, fmt.Sprintf("index %d is given twice", index)
	case index < last:
		return 0, 0, fmt.Sprintf("index %d follows %d: indices must ascend", index, last)
	}
	value, reason = finite(pair[i+1:])
	if reason != "" {
		reason = fmt.Sprintf("index %d: %s", index, reason)
	}
	return index, value, reason
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
