package wire

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonState is about the rows of the block in hand.
type jsonState struct {
	shape jsonShape // of the first row; all others must have it

	// Of rows with names: the names, and per name the last row (from 1) that
	// has given it a value.
	names names
	given []int

	// Of the first row when the names are not fixed: those that differ from the
	// last block's.
	fresh []string
}

type jsonShape uint8

const (
	shapeNone jsonShape = iota
	shapeList
	shapeNamed
)

// decodeJSON reads one row, an array of rows, or a row per line.
func (d *Decoder) decodeJSON(b []byte) error {
	i := skipSpace(b, 0)
	d.beginJSON()
	if i == len(b) || b[i] != '[' {
		return d.jsonLines(i)
	}
	if i = skipSpace(b, i+1); i == len(b) || b[i] != ']' {
		var err error
		if i, err = d.jsonArray(i); err != nil {
			return err
		}
	}
	if i == len(b) {
		return d.failAt(i, d.rows-1, "", "the row is not followed by a comma or the end of the array")
	}
	if i = skipSpace(b, i+1); i < len(b) {
		return d.failAt(i, -1, "", "there is something behind the array of rows")
	}
	return d.finishJSON()
}

// jsonArray reads rows with commas between them and returns where they end: at
// a closing bracket or the end of the text.
func (d *Decoder) jsonArray(i int) (end int, err error) {
	b := d.text
	for {
		if i, err = d.jsonRow(skipSpace(b, i)); err != nil {
			return 0, err
		}
		if i = skipSpace(b, i); i == len(b) || b[i] == ']' {
			return i, nil
		}
		if b[i] != ',' {
			return 0, d.failAt(i, d.rows-1, "", "the row is not followed by a comma or the end of the array")
		}
		i++
	}
}

// jsonLines reads rows, each of which starts on a new line, to the end.
func (d *Decoder) jsonLines(i int) (err error) {
	b := d.text
	for i = skipSpace(b, i); i < len(b); {
		if i, err = d.jsonRow(i); err != nil {
			return err
		}
		behind := i
		if i = skipSpace(b, i); i < len(b) && !slices.Contains(b[behind:i], '\n') {
			return d.failAt(i, d.rows-1, "", "there is something behind the row on its line")
		}
	}
	return d.finishJSON()
}

func (d *Decoder) beginJSON() {
	s := &d.json
	s.shape, s.fresh = shapeNone, nil
	s.setNames(names{list: d.want.names, index: d.want.index})
	d.setWidth(d.want.width)
}

func (s *jsonState) setNames(n names) {
	s.names = n
	s.given = slices.Grow(s.given[:0], len(n.list))[:len(n.list)]
	clear(s.given)
}

func (d *Decoder) finishJSON() error {
	if d.json.shape == shapeList {
		return d.finishRows(d.want.names)
	}
	return d.finishRows(d.json.names.list)
}

// jsonRow reads the object at i and returns the position behind it.
func (d *Decoder) jsonRow(i int) (end int, err error) {
	b, s := d.text, &d.json
	if i == len(b) || b[i] != '{' {
		return 0, d.failAt(i, d.rows, "", "want a row, an object, but there is "+jsonKind(b, i))
	}
	if reason := d.room(len(d.row)); reason != "" {
		return 0, d.failAt(i, d.rows, "", reason)
	}
	var (
		row      = jsonFields{learning: s.shape == shapeNone && d.want.width == 0, weight: 1}
		start    = i
		reason   string
		expected = 0 // the place of the name that should come next
	)
	if row.learning {
		d.row = d.row[:0]
	}
	for i++; ; i++ {
		if i = skipSpace(b, i); i < len(b) && b[i] == '}' && !row.any {
			break
		}
		row.any = true
		key, next, reason0 := d.jsonString(i)
		if reason0 != "" {
			return 0, d.failAt(i, d.rows, "", "want the name of a field: "+reason0)
		}
		if i = skipSpace(b, next); i == len(b) || b[i] != ':' {
			return 0, d.failAt(i, d.rows, string(key), "want a colon behind the name")
		}
		i = skipSpace(b, i+1)
		at := i
		switch {
		case string(key) == d.opts.Label:
			if row.labelled {
				return 0, d.failAt(at, d.rows, d.opts.Label, "the field is given twice")
			}
			row.labelled = true
			if row.code, i, reason = d.jsonLabel(i); reason != "" {
				return 0, d.failAt(at, d.rows, d.opts.Label, reason)
			}
		case d.opts.Weight != "" && string(key) == d.opts.Weight:
			if row.weighted {
				return 0, d.failAt(at, d.rows, d.opts.Weight, "the field is given twice")
			}
			row.weighted = true
			if row.weight, i, reason = jsonNumber(b, i); reason == "" && !d.unlabelled {
				reason = badWeight(row.weight)
			}
			if reason != "" {
				return 0, d.failAt(at, d.rows, d.opts.Weight, reason)
			}
		case string(key) == "features" && i < len(b) && b[i] == '[':
			if i, err = d.jsonList(i, &row); err != nil {
				return 0, err
			}
		default:
			j, reason := d.jsonName(key, expected, &row)
			if reason != "" {
				return 0, d.failAt(at, d.rows, string(key), reason)
			}
			expected = j + 1
			x, next, reason := jsonNumber(b, i)
			if reason != "" {
				return 0, d.failAt(at, d.rows, string(key), reason)
			}
			i = next
			if row.learning {
				j = len(d.row)
				d.row = append(d.row, x)
			} else {
				d.row[j] = x
			}
		}
		if i = skipSpace(b, i); i < len(b) && b[i] == '}' {
			break
		}
		if i == len(b) || b[i] != ',' {
			return 0, d.failAt(i, d.rows, "", "want a comma or the end of the row, but there is "+jsonKind(b, i))
		}
	}
	if err := d.jsonRowDone(start, &row); err != nil {
		return 0, err
	}
	d.push(row.code, row.weight)
	return i + 1, nil
}

// jsonFields is what a row has had so far.
type jsonFields struct {
	learning bool // it is the first, and says what the features are
	any      bool
	shape    jsonShape
	named    int // features given by name

	labelled, weighted bool
	code               int32
	weight             float64
}

// jsonName finds the place of a named feature; expected is a guess.
func (d *Decoder) jsonName(key []byte, expected int, row *jsonFields) (j int, reason string) {
	s := &d.json
	if row.shape == shapeList || s.shape == shapeList {
		return 0, "a field beside a list of features"
	}
	row.shape = shapeNamed
	if row.learning {
		return row.named, d.jsonLearn(key, row)
	}
	j, ok := expected, expected < len(s.names.list) && s.names.list[expected] == string(key)
	if !ok {
		if j, ok = s.names.index[string(key)]; !ok {
			return 0, "the feature is unknown"
		}
	}
	if s.given[j] == d.rows+1 {
		return 0, "the field is given twice"
	}
	s.given[j] = d.rows + 1
	row.named++
	return j, ""
}

// jsonLearn takes a name from the first row. While the names are those of the
// last block nothing is allocated.
func (d *Decoder) jsonLearn(key []byte, row *jsonFields) (reason string) {
	s, j := &d.json, row.named
	row.named++
	if s.fresh == nil {
		if j < len(d.seen.list) && d.seen.list[j] == string(key) {
			return ""
		}
		s.fresh = append(make([]string, 0, j+1), d.seen.list[:j]...)
	}
	if reason := badName(key); reason != "" {
		return reason
	}
	if reason := d.room(row.named); reason != "" {
		return reason
	}
	s.fresh = append(s.fresh, string(key))
	return ""
}

// jsonList reads the array of features at i.
func (d *Decoder) jsonList(i int, row *jsonFields) (end int, err error) {
	b, s := d.text, &d.json
	switch {
	case row.shape == shapeList:
		return 0, d.failAt(i, d.rows, "features", "the field is given twice")
	case row.shape == shapeNamed || s.shape == shapeNamed:
		return 0, d.failAt(i, d.rows, "features", "a list of features where other rows or fields have named ones")
	}
	row.shape = shapeList
	n := 0
	for i++; ; i++ {
		i = skipSpace(b, i)
		if n == 0 && i < len(b) && b[i] == ']' {
			break
		}
		x, next, reason := jsonNumber(b, i)
		if reason != "" {
			return 0, d.failAt(i, d.rows, featureName(d.want.names, n), reason)
		}
		if row.learning {
			if reason := d.room(n + 1); reason != "" {
				return 0, d.failAt(i, d.rows, "", reason)
			}
			d.row = append(d.row, x)
		} else if n < len(d.row) {
			d.row[n] = x
		}
		n++
		i = skipSpace(b, next)
		if i < len(b) && b[i] == ']' {
			break
		}
		if i == len(b) || b[i] != ',' {
			return 0, d.failAt(i, d.rows, "features", "want a comma or the end of the list, but there is "+jsonKind(b, i))
		}
	}
	if n != len(d.row) {
		return 0, d.failAt(i, d.rows, "", fmt.Sprintf("there %s in the row, want %d", areFeatures(n), len(d.row)))
	}
	return i + 1, nil
}

// jsonRowDone checks that nothing is missing; start is where the row starts.
func (d *Decoder) jsonRowDone(start int, row *jsonFields) *Error {
	s := &d.json
	if !row.labelled && !d.unlabelled {
		return d.failAt(start, d.rows, d.opts.Label, "the label is missing")
	}
	if !row.weighted && d.weighted() {
		return d.failAt(start, d.rows, d.opts.Weight, "the weight is missing")
	}
	if row.learning && row.shape != shapeNone {
		if len(d.row) == 0 {
			return d.failAt(start, d.rows, "", "the row has no features")
		}
		if row.shape == shapeNamed {
			if list := s.fresh; list != nil || row.named != len(d.seen.list) {
				if list == nil {
					list = slices.Clone(d.seen.list[:row.named])
				}
				known, twice := newNames(list)
				if twice != "" {
					return d.failAt(start, d.rows, twice, "the field is given twice")
				}
				d.seen = known
			}
			s.setNames(d.seen)
		}
		d.growCols(len(d.row))
	} else if row.shape != shapeList && row.named < len(d.row) {
		for j, g := range s.given {
			if g != d.rows+1 {
				return d.failAt(start, d.rows, s.names.list[j], "the feature is missing")
			}
		}
	}
	if row.shape == shapeNone {
		return d.failAt(start, d.rows, "", "the row has no features")
	}
	s.shape = row.shape
	return nil
}

// jsonLabel reads the label at i.
func (d *Decoder) jsonLabel(i int) (code int32, end int, reason string) {
	b := d.text
	if i < len(b) {
		switch c := b[i]; {
		case c == '"':
			s, end, reason := d.jsonString(i)
			if reason == "" && !d.unlabelled {
				code, reason = d.labels.verbatim(s)
			}
			return code, end, reason
		case c == '-' || c-'0' < 10:
			x, end, reason := jsonNumber(b, i)
			if reason != "" || d.unlabelled {
				return 0, end, reason
			}
			if math.Abs(x) >= 1<<53 && sharesFloat(string(b[i:end]), x) {
				return -1, end, fmt.Sprintf("the label %s has more than 53 bits; send it as a string", b[i:end])
			}
			code, reason = d.labels.number(x)
			return code, end, reason
		}
	}
	for _, literal := range [...]struct {
		text   string
		number float64
	}{{"true", 1}, {"false", 0}, {"null", math.NaN()}} {
		if end := i + len(literal.text); end <= len(b) && string(b[i:end]) == literal.text {
			if d.unlabelled {
				return 0, end, ""
			}
			if literal.text == "null" {
				return -1, end, "the label is null"
			}
			code, reason = d.labels.number(literal.number)
			return code, end, reason
		}
	}
	return -1, i, "want a label, a string or a number, but there is " + jsonKind(b, i)
}

// jsonNumber reads the finite number at b[i].
func jsonNumber(b []byte, i int) (x float64, end int, reason string) {
	x, end, ok := number(b, i)
	if !ok || !jsonGrammar(b[i:end]) {
		return 0, i, "want a number, but there is " + jsonKind(b, i)
	}
	if math.IsInf(x, 0) {
		return 0, i, quoted(b[i:end]) + " overflows float64"
	}
	return x, end, ""
}

// jsonGrammar is whether a decimal number is one by JSON's stricter grammar,
// which knows no plus sign, no leading zeros and no bare point.
func jsonGrammar(b []byte) bool {
	i := 0
	if b[0] == '-' {
		i = 1
	}
	from := i
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	if i == from || i > from+1 && b[from] == '0' {
		return false
	}
	return i == len(b) || b[i] != '.' || i+1 < len(b) && b[i+1]-'0' < 10
}

// jsonString reads the string at i. It aliases the text, or d.scratch.
func (d *Decoder) jsonString(i int) (s []byte, end int, reason string) {
	b := d.text
	if i == len(b) || b[i] != '"' {
		return nil, i, "there is " + jsonKind(b, i)
	}
	i++
	for end = i; end < len(b); end++ {
		switch c := b[end]; {
		case c == '"':
			return b[i:end], end + 1, ""
		case c == '\\':
			return d.jsonEscaped(i, end)
		case c < ' ':
			return nil, end, "a control character in a string"
		}
	}
	return nil, end, "a string is not closed"
}

// jsonEscaped is jsonString for a string that starts at i and has its first
// escape at esc.
func (d *Decoder) jsonEscaped(i, esc int) (s []byte, end int, reason string) {
	b := d.text
	out := append(d.scratch[:0], b[i:esc]...)
	defer func() { d.scratch = out }()
	for i = esc; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			return out, i + 1, ""
		case c < ' ':
			return nil, i, "a control character in a string"
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		if i+1 == len(b) {
			break
		}
		c := b[i+1]
		i += 2
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(b, i)
			i += 4
			if ok && utf16.IsSurrogate(r) {
				low, paired := rune(0), false
				if i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u' {
					low, paired = hex4(b, i+2)
				}
				r = utf16.DecodeRune(r, low)
				ok = paired && r != utf8.RuneError
				i += 6
			}
			if !ok {
				return nil, min(i, len(b)), "a malformed \\u escape in a string"
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, i, "an unknown escape in a string"
		}
	}
	return nil, len(b), "a string is not closed"
}

func hex4(b []byte, i int) (r rune, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case c-'0' < 10:
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// jsonKind describes what is at b[i], for an error.
func jsonKind(b []byte, i int) string {
	if i >= len(b) {
		return "the end"
	}
	switch c := b[i]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	}
	end := i
	for end < len(b) && end < i+20 && b[end] > ' ' && b[end] != ',' && b[end] != '}' && b[end] != ']' {
		end++
	}
	return quoted(b[i:max(end, i+1)])
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}
