package wire

import (
	"bytes"
	"fmt"
	"math"
)

// decodeLIBSVM reads a payload of lines "label index:value …".
func (t *textRows) decodeLIBSVM() error {
	start := 0
	if bytes.HasPrefix(t.text, byteOrderMark) {
		start = len(byteOrderMark)
	}
	if err := t.readLIBSVM(start); err != nil {
		return err
	}
	if len(t.row) == 0 && t.count > 0 {
		return t.fail(-1, "", "no row has a feature")
	}
	return t.finishRows(t.libsvmNames())
}

// libsvmNames names the columns, if they have names.
func (t *textRows) libsvmNames() []string { return t.libsvmNamesUpTo(len(t.cols) - 1) }

// libsvmNamesUpTo names the columns up to column j, or all.
func (t *textRows) libsvmNamesUpTo(j int) []string {
	if c := &t.choice; t.want.list == nil && c.byPlace {
		for c.width <= j {
			t.columnAt(len(c.places))
		}
		return c.names[:j+1]
	}
	return t.want.list
}

// readLIBSVM reads the lines from position i on.
func (t *textRows) readLIBSVM(i int) error {
	t.setWidth(t.want.width)
	for i < len(t.text) {
		end := i + lineLength(t.text[i:])
		if reason := t.libsvmLine(t.text[i:end]); reason != "" {
			return t.failAt(i, t.count, "", reason)
		}
		i = end
	}
	return nil
}

// libsvmLine reads a line. A blank line and a comment are no rows.
func (t *textRows) libsvmLine(line []byte) (reason string) {
	if hash := bytes.IndexByte(line, '#'); hash >= 0 {
		line = line[:hash]
	}
	i := skipSpace(line, 0)
	if i == len(line) {
		return ""
	}
	code, i, reason := t.libsvmLabel(line, i)
	if reason == "" {
		reason = t.room(len(t.row))
	}
	if reason != "" {
		return reason
	}
	clear(t.row)
	last := 0
	for i = skipSpace(line, i); i < len(line); i = skipSpace(line, i) {
		if index, value, end, ok := plainPair(line, i); ok && index > last && index <= len(t.row) && !t.choice.byPlace {
			t.row[index-1], last, i = value, index, end
			continue
		}
		index, value, end, reason := libsvmPair(line, i, last)
		to := roleUnknown
		if index > 0 {
			to = t.columnAt(index - 1)
		}
		if to == roleIgnored {
			reason = ""
		}
		if math.IsNaN(value) && to >= 0 && !t.takesMissing(t.libsvmNamesUpTo(to), to) {
			reason = fmt.Sprintf("index %d: the value is missing, or nan", index)
		}
		if reason != "" {
			return reason
		}
		last, i = index, end
		if to == roleIgnored {
			continue
		}
		if to == roleUnknown || to >= len(t.row) {
			if reason = t.libsvmWiden(index, to+1); reason != "" {
				return reason
			}
		}
		t.row[to] = value
	}
	t.push(code, 1)
	return ""
}

// libsvmLabel reads the label at line[i], which ends before a blank.
func (t *textRows) libsvmLabel(line []byte, i int) (code int32, end int, reason string) {
	for end = i; end < len(line) && !isSpace(line[end]); end++ {
	}
	label := line[i:end]
	switch {
	case bytes.IndexByte(label, ':') >= 0:
		return -1, end, fmt.Sprintf("the row starts with %s instead of a label", quoted(label))
	case bytes.IndexByte(label, ',') >= 0:
		// Several labels of one row, or a line of CSV, which would be one without
		// features.
		return -1, end, fmt.Sprintf("the label %s has a comma: want one label and behind it index:value, with blanks between them", quoted(label))
	}
	if !t.unlabelled {
		code, reason = t.labels.text(label)
	}
	return code, end, reason
}

// plainPair reads the "index:value" at line[i], of a number, as nearly all are. It leaves others to
// libsvmPair.
func plainPair(line []byte, i int) (index int, value float64, end int, ok bool) {
	first := i
	for ; i < len(line) && line[i]-'0' < 10; i++ {
		index = 10*index + int(line[i]-'0')
	}
	if i == len(line) || line[i] != ':' || i-first > 9 {
		return 0, 0, 0, false
	}
	value, end, ok = strictNumber(line, i+1)
	return index, value, end, ok && (end == len(line) || isSpace(line[end]))
}

// libsvmPair reads the "index:value" at line[i], with an index above last, which
// ends before line[end].
func libsvmPair(line []byte, i, last int) (index int, value float64, end int, reason string) {
	start := i
	for ; i < len(line) && line[i]-'0' < 10 && index < 1<<30; i++ {
		index = 10*index + int(line[i]-'0')
	}
	if index > last && i < len(line) && line[i] == ':' {
		x, end, ok := strictNumber(line, i+1)
		if !ok {
			x, end, ok = looseNumber(line, i+1)
			ok = ok && !math.IsInf(x, 0)
		}
		if ok && (end == len(line) || isSpace(line[end])) {
			return index, x, end, ""
		}
	}
	// It is no number, or something is wrong with it.
	for end = start; end < len(line) && !isSpace(line[end]); end++ {
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
	case isMissing(line[i+1:end]) && end > i+1: // which the column may allow
		return index, math.NaN(), end, ""
	default:
		if value, reason = textValue(line[i+1 : end]); reason == "" {
			return index, value, end, ""
		}
		return index, 0, end, fmt.Sprintf("index %d: %s", index, reason)
	}
	return 0, 0, end, reason
}

// libsvmWiden makes room for an index whose column makes rows of n numbers.
func (t *textRows) libsvmWiden(index, n int) (reason string) {
	if t.want.width != 0 {
		return fmt.Sprintf("index %d: there are only %d features, and unknown ones are not ignored", index, t.want.width)
	}
	if n <= 0 || n > t.opts.Limits.Features {
		return fmt.Sprintf("index %d is beyond the limit of %d features", index, t.opts.Limits.Features)
	}
	if reason = t.room(n); reason != "" {
		return reason
	}
	t.row = append(t.row, make([]float64, n-len(t.row))...)
	t.widen(n)
	return ""
}
