package wire

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Whether the first line of CSV is a header is declared (HeaderPresent, HeaderAbsent) or decided
// by its fields. A label that is a name is looked for among them. A label that is a place (first,
// last or a column number from 1 on) or no text (0, -1, 1.0, NA, ?) is not: a row may have it in
// any field.
//
//	a field is the label's name    a header
//	some values, no texts          a row
//	some texts, no values          a header
//	texts and values               refused
//	neither                        a row
//
// A label that is neither a place nor a text is a column's only in a header. A first line that has
// it in a field is a header where the other fields are, and is refused otherwise.
//
// Values are what features can be: numbers, booleans and times, also missing ones, and all fields
// with a digit and no letter, such as 12:30 and 5%. Texts are other fields with a letter, and names
// such as _1. Fields with neither, such as ? and the empty one, say nothing, nor does the field of
// the label, nor one that is ignored by its place.
//
// Three decisions are in doubt: numbers that count up, such as 0,1,species, are taken for a row,
// and so is a line with a field that Options.Ignore names. Texts are taken for a header where
// neither the label nor the features have names. Decoder.Doubt tells.

// evidence is what a field of the first line speaks for.
type evidence uint8

const (
	saysNothing evidence = iota
	saysRow
	saysHeader
)

// evidenceOf judges a field, without blanks around it.
func evidenceOf(field []byte, numbers *notation) evidence {
	if len(field) == 0 {
		return saysNothing
	}
	if numbers.isNumber(field) || looksLikeTime(field) || isMissingWord(field) {
		return saysRow
	}
	if _, ok := parseBoolean(field); ok {
		return saysRow
	}
	if len(field) > 1 && field[0] == '_' {
		return saysHeader
	}
	digit := false
	for rest := field; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if unicode.IsLetter(r) {
			return saysHeader
		}
		digit, rest = digit || unicode.IsDigit(r), rest[n:]
	}
	if digit {
		return saysRow
	}
	return saysNothing
}

// isMissingWord is whether a text is used for a value that is not there, by any program: more
// texts than those that are read as missing (isMissing). Infinities and NaN are here, too: they
// are bad values rather than names.
func isMissingWord(text []byte) bool {
	const longest = 9
	if len(text) > longest {
		return false
	}
	switch strings.ToLower(strings.TrimLeft(string(text), "+-")) {
	case "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "<null>", "none", "nil", "missing", "(missing)", "inf", "infinity":
		return true
	}
	return false
}

// csvPlace is the field, out of n, that a label option means by its place.
func csvPlace(label string, n int) (int, bool) {
	switch label {
	case "first":
		return 0, true
	case "last":
		return n - 1, true
	}
	k := labelNumber(label)
	return k - 1, k >= 1 && k <= n
}

// labelNumber is the number of a column, from 1 on, that a label option is; 0: it is none.
func labelNumber(label string) int {
	if label[0]-'0' > 9 { // most are names, of which Atoi makes errors
		return 0
	}
	k, err := strconv.Atoi(label)
	if err != nil {
		return 0
	}
	return k
}

// labelIsPlace is whether the label option means a place.
func labelIsPlace(label string) bool {
	return label == "first" || label == "last" || labelNumber(label) > 0
}

// labelIsName is whether the label option means a name that no row has for a value.
func (c *csvReader) labelIsName() bool {
	label := []byte(c.opts.Label)
	return !labelIsPlace(c.opts.Label) && evidenceOf(label, &c.opts.Numbers) == saysHeader && !isDecimal(label)
}

// labelHint explains a label that is a number but no place.
func (c *csvReader) labelHint() string {
	if labelIsPlace(c.opts.Label) || !isDecimal([]byte(c.opts.Label)) {
		return ""
	}
	return fmt.Sprintf("; columns are counted from 1, and the last one is called last: %s is the number of none", quoted([]byte(c.opts.Label)))
}

// placeOfLabel is the field, out of n, that has the label where the first line does not name it.
func (c *csvReader) placeOfLabel(n int) (int, bool) {
	if c.opts.Label == defaultLabel {
		return 0, true
	}
	return csvPlace(c.opts.Label, n)
}

// hasHeader decides whether the first line is a header.
func (c *csvReader) hasHeader(mode HeaderMode) (bool, error) {
	c.plan.guessed, c.plan.labelClass = false, ""
	if mode != HeaderAuto {
		return mode == HeaderPresent, nil
	}
	if c.opts.Schema != nil && !c.choice.scattered { // its columns have names
		return slices.ContainsFunc(c.fields, func(f []byte) bool { _, known := c.want.index[string(f)]; return known }), nil
	}
	if c.opts.Schema != nil {
		return false, nil
	}
	if c.opts.AsTexts { // numbers speak for a row, whatever is beside them
		return !slices.ContainsFunc(c.fields, func(f []byte) bool { return evidenceOf(f, &c.opts.Numbers) == saysRow }), nil
	}
	named := -1 // the field that the label option names
	if !labelIsPlace(c.opts.Label) {
		for k, f := range c.fields {
			if string(f) == c.opts.Label {
				named = k
				break
			}
		}
	}
	if named >= 0 && c.labelIsName() {
		return true, nil
	}
	n := len(c.fields)
	label, known := c.placeOfLabel(n)
	if !known {
		label = named
	}
	if c.unlabelled && n == c.want.width {
		label, named = -1, -1 // all fields are features
	}
	row, text := false, -1
	for k, f := range c.fields {
		if k == label || c.ignoredByPlace(k, label) {
			continue
		}
		switch evidenceOf(f, &c.opts.Numbers) {
		case saysRow:
			row = true
		case saysHeader:
			if text < 0 {
				text = k
			}
		}
	}
	switch {
	case text >= 0 && row:
		return false, c.failAt(0, -1, "", fmt.Sprintf("the first line is neither a row nor clearly a header: field %d, %s, is a text, others are numbers; "+
			"if it is a row, say which field is the label, or ignore this one, and %s%s", text+1, quoted(c.fields[text]), headerHint, c.separatorHint()))
	case text >= 0:
		c.plan.guessed = true
		if named >= 0 {
			return true, nil
		}
		if label >= 0 && len(c.fields[label]) > 0 {
			c.plan.labelClass, _ = c.labels.classOf(string(c.fields[label]))
		}
		if c.want.list == nil {
			c.doubtf("the first line, %s, is taken for a header: if it is a row, %s", listed(c.fields), headerHint)
		}
		return true, nil
	case named >= 0:
		return false, c.failAt(0, -1, "", fmt.Sprintf("the first line may be a row or a header: its field %d is %s, as the label is called, and rows have such fields, too%s; %s",
			named+1, quoted(c.fields[named]), c.labelHint(), headerHint))
	}
	if c.doubt == "" && (countsUp(c.fields, label) || c.ignoresByName()) {
		c.doubtf("the first line, %s, is taken for a row: if it is a header, %s", listed(c.fields), headerHint)
	}
	return false, nil
}

// headerHint says what settles whether there is a header.
const headerHint = "declare header=present or header=absent (csv_header, --csv-header)"

// ignoredByPlace is whether field k is ignored without a header, whose label is in the place.
func (c *csvReader) ignoredByPlace(k, label int) bool {
	if len(c.opts.Ignore) == 0 || k == label {
		return false
	}
	if label >= 0 && k > label {
		k--
	}
	c.scratch = strconv.AppendInt(append(c.scratch[:0], 'x'), int64(k+1), 10)
	return c.ignores(c.scratch, false)
}

// ignoresByName is whether the options name a field that is to be ignored. No row has names but x1,
// x2 and so on.
func (c *csvReader) ignoresByName() bool {
	return len(c.opts.Ignore) > 0 && slices.ContainsFunc(c.fields, func(f []byte) bool {
		return slices.Contains(c.opts.Ignore, string(f))
	})
}

// countsUp is whether the numbers in the fields are consecutive, as the names of columns without
// names are in a data frame. Three are enough, and fewer from 0 or 1 on with a text for the label:
// 0,a and 1,2,a. From 0 on two are enough without one.
func countsUp(fields [][]byte, label int) bool {
	count, first := 0, 0.0
	for _, f := range fields {
		x, end, ok := number(f, 0)
		switch {
		case !ok || end < len(f):
			if evidenceOf(f, &notation{}) == saysRow {
				return false
			}
			continue
		case x != math.Trunc(x), count > 0 && x != first+float64(count):
			return false
		case count == 0:
			first = x
		}
		count++
	}
	names := count
	if label >= 0 && evidenceOf(fields[label], &notation{}) == saysHeader {
		names++
	}
	return count >= 3 || count > 0 && (first == 0 && names >= 2 || first == 1 && names >= 3)
}

// checkGuess refuses rows one of which has the label of a first line that was taken for a header
// by its looks: it looks like a row, too.
func (c *csvReader) checkGuess() *Error {
	p := &c.plan
	if p.labelClass == "" || c.unlabelled || !slices.Contains(c.labels.classes, p.labelClass) {
		return nil
	}
	return c.fail(-1, "", "the first line looks like a header, but in the label's place it has %s, as rows have: %s", quoted([]byte(p.labelClass)), headerHint)
}

// separatorLine reads the line "sep=;" that spreadsheets write before all others. Its length is 0
// where there is none.
func separatorLine(b []byte) (separator byte, length int) {
	const opening = "sep="
	line := bytes.TrimRight(b[:lineLength(b)], "\r\n")
	quoted := len(line) > 1 && line[0] == '"' && line[len(line)-1] == '"'
	if quoted {
		line = line[1 : len(line)-1]
	}
	if len(line) != len(opening)+1 || !strings.EqualFold(string(line[:len(opening)]), opening) {
		return 0, 0
	}
	return line[len(opening)], lineLength(b)
}
