package wire

import (
	"bytes"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// jsonReader reads JSON, with a tokenizer of its own.
type jsonReader struct {
	*textRows
	at    int       // the position in the text
	shape jsonShape // of the first row; all others must have it

	// Of rows with names: the names, and per name the last row (from 1) that
	// has given it a value.
	names names
	given []int

	seen    names    // of the last block whose features were not fixed
	fresh   []string // those of the first row, if they differ from seen
	scratch []byte   // of the string read last
	key     []byte   // of the one before
	element []byte   // the name of an element of a list
	path    []byte   // the names of a nested field and of the objects around it
}

type jsonShape uint8

const (
	shapeNone jsonShape = iota
	shapeList
	shapeNamed
)

// decode reads a payload: one row, an array of rows, or a row per line.
func (j *jsonReader) decode() error {
	j.begin()
	if bytes.HasPrefix(j.text, byteOrderMark) {
		j.at = len(byteOrderMark)
	}
	if !j.is('[') {
		return j.lines()
	}
	j.at++
	if !j.is(']') {
		if err := j.array(); err != nil {
			return err
		}
	}
	if j.atEnd() {
		return j.failAt(j.at, j.count-1, "", notFollowed)
	}
	j.at++
	if !j.atEnd() {
		return j.failAt(j.at, -1, "", "there is something behind the array of rows")
	}
	return j.finish()
}

// begin starts a block.
func (j *jsonReader) begin() {
	j.at, j.shape, j.fresh = 0, shapeNone, nil
	j.setNames(j.want.names)
	j.setWidth(j.want.width)
}

func (j *jsonReader) finish() error {
	if j.shape == shapeList {
		return j.finishRows(j.want.list)
	}
	return j.finishRows(j.names.list)
}

func (j *jsonReader) setNames(n names) {
	j.names = n
	j.names.plain = n.plain && !j.texts // no texts are numbers that are expected
	j.given = slices.Grow(j.given[:0], len(n.list))[:len(n.list)]
	clear(j.given)
}

const notFollowed = "the row is not followed by a comma or the end of the array"

// array reads rows with commas between them, up to a closing bracket or the end of
// the text.
func (j *jsonReader) array() error {
	for {
		if err := j.readRow(); err != nil {
			return err
		}
		if j.atEnd() || j.is(']') {
			return nil
		}
		if !j.is(',') {
			return j.failAt(j.at, j.count-1, "", notFollowed)
		}
		j.at++
	}
}

// lines reads rows, each of which starts on a new line, to the end of the text.
func (j *jsonReader) lines() error {
	for !j.atEnd() {
		if err := j.readRow(); err != nil {
			return err
		}
		behind := j.at
		if !j.atEnd() && !bytes.ContainsAny(j.text[behind:j.at], "\r\n") {
			return j.failAt(j.at, j.count-1, "", "there is something behind the row on its line")
		}
	}
	return j.finish()
}

// jsonRow is the state of a row that is being read.
type jsonRow struct {
	first bool // of its block, and fixes the features
	shape jsonShape
	named int // features given by name
	next  int // the likely place of the next name

	labelled, weighted bool
	code               int32
	weight             float64
}

// readRow reads an object or, where no labels are wanted, an array of numbers.
func (j *jsonReader) readRow() error {
	array := j.unlabelled && j.is('[')
	if !array && !j.is('{') {
		want := "want a row, an object, but there is "
		if j.unlabelled {
			want = "want a row, an object or an array in an array, but there is "
		}
		return j.failAt(j.at, j.count, "", want+jsonKind(j.text, j.at))
	}
	start := j.at
	if reason := j.room(len(j.row)); reason != "" {
		return j.failAt(start, j.count, "", reason)
	}
	row := jsonRow{first: j.shape == shapeNone && j.want.width == 0, weight: 1}
	if row.first {
		j.row = j.row[:0]
	}
	if array {
		if err := j.list(&row); err != nil {
			return err
		}
		if err := j.rowDone(start, &row); err != nil {
			return err
		}
		j.push(0, 1)
		return nil
	}
	j.at++
	for empty := true; !empty || !j.is('}'); empty = false {
		if err := j.field(&row); err != nil {
			return err
		}
		if j.is('}') {
			break
		}
		if !j.is(',') {
			return j.failAt(j.at, j.count, "", "want a comma or the end of the row, but there is "+jsonKind(j.text, j.at))
		}
		j.at++
	}
	j.at++
	if err := j.rowDone(start, &row); err != nil {
		return err
	}
	j.push(row.code, row.weight)
	return nil
}

// field reads a name and its value.
func (j *jsonReader) field(row *jsonRow) error {
	j.skipSpace()
	if j.expected(row) {
		return nil
	}
	key, err := j.fieldName()
	if err != nil {
		return err
	}
	var reason string
	switch at := j.at; {
	case j.unlabelled && (string(key) == j.opts.Label || j.opts.Weight != "" && string(key) == j.opts.Weight && !j.weighted()):
		return j.pass()
	case string(key) == j.opts.Label:
		reason = twice(&row.labelled)
		if reason == "" {
			row.code, reason = j.label()
		}
		if reason != "" {
			return j.failAt(at, j.count, j.opts.Label, reason)
		}
	case j.opts.Weight != "" && string(key) == j.opts.Weight:
		reason = twice(&row.weighted)
		if reason == "" {
			row.weight, reason = j.value()
		}
		if reason == "" {
			reason = badWeight(row.weight)
		}
		if reason != "" {
			return j.failAt(at, j.count, j.opts.Weight, reason)
		}
	case string(key) == "features" && j.is('['):
		return j.list(row)
	default:
		return j.member(key, row)
	}
	return nil
}

// fieldName reads the name of a field, up to its value.
func (j *jsonReader) fieldName() (key []byte, err error) {
	key, end, reason := j.string(j.at)
	if reason != "" {
		return nil, j.failAt(j.at, j.count, "", "want the name of a field: "+reason)
	}
	j.at = end
	if !j.is(':') {
		return nil, j.failAt(j.at, j.count, string(key), "want a colon behind the name")
	}
	j.at++
	j.skipSpace()
	return key, nil
}

// member reads the value of a named field that is neither the label nor the weight.
func (j *jsonReader) member(key []byte, row *jsonRow) error {
	if j.at < len(j.text) {
		switch j.text[j.at] {
		case '{':
			if j.making.objects[string(key)] {
				return j.object(key, row)
			}
		case '[':
			if !j.ignores(key, false) {
				return j.elements(key, row)
			}
		}
	}
	return j.feature(key, row)
}

// expected reads the field that follows the last one in the rows before, if it comes and its value
// is a number: nearly every field. Otherwise it reads nothing.
func (j *jsonReader) expected(row *jsonRow) bool {
	place, b := row.next, j.text
	if row.first || place >= len(j.names.list) || !j.names.plain || row.shape == shapeList || j.shape == shapeList || j.given[place] == j.count+1 {
		return false
	}
	name := j.names.list[place]
	i := j.at + 1
	behind := i + len(name)
	if behind+1 >= len(b) || b[j.at] != '"' || b[behind] != '"' || b[behind+1] != ':' || string(b[i:behind]) != name {
		return false
	}
	x, end, ok := strictNumber(b, skipSpace(b, behind+2))
	if !ok {
		return false
	}
	j.row[place], j.given[place], j.at = x, j.count+1, end
	row.shape, row.named, row.next = shapeNamed, row.named+1, place+1
	return true
}

// feature is member for a value that is one feature, or ignored.
func (j *jsonReader) feature(key []byte, row *jsonRow) error {
	at := j.at
	place, reason := j.column(key, row)
	if place == roleIgnored {
		return j.pass()
	}
	var x float64
	texts := j.textsAt(place)
	switch {
	case reason != "":
	case texts != nil:
		x, j.at, reason = j.textAt(texts, j.at)
	case j.gapped && missingAt(j.text, at) > at && j.opts.Missing.Of(j.nameOf(key)) != MissingReject:
		x, j.at = math.NaN(), missingAt(j.text, at)
	default:
		x, reason = j.value()
	}
	if reason != "" {
		return j.failAt(at, j.count, string(key), reason)
	}
	if row.first {
		j.row = append(j.row, x)
	} else {
		j.row[place] = x
	}
	return nil
}

// pass passes over a value that is ignored.
func (j *jsonReader) pass() error {
	end, reason := j.skip(j.at, 0)
	if reason != "" {
		return j.failAt(end, j.count, "", reason)
	}
	j.at = end
	return nil
}

// elements reads the elements of a list, each of which is a feature: those of emb are
// emb[0], emb[1], ….
func (j *jsonReader) elements(key []byte, row *jsonRow) error {
	list := append(j.element[:0], key...) // strings in the list may take the key's memory
	j.element = list
	j.at++
	for n := 0; ; n++ {
		j.element = appendElement(list, nil, n)
		list = j.element[:len(list)]
		if n == 0 && j.is(']') {
			if place, _ := j.column(j.element, row); place != roleIgnored {
				return j.failAt(j.at, j.count, string(list), "the list is empty")
			}
			j.at++
			return nil
		}
		if err := j.feature(j.element, row); err != nil {
			return err
		}
		if j.is(']') {
			j.at++
			return nil
		}
		if !j.is(',') {
			return j.failAt(j.at, j.count, string(list), "want a comma or the end of the list, but there is "+jsonKind(j.text, j.at))
		}
		j.at++
		j.skipSpace()
	}
}

// object reads the fields of an object in which there are some that the schema wants: country in
// address is address.country.
func (j *jsonReader) object(key []byte, row *jsonRow) error {
	outer := len(j.path)
	j.path = append(append(j.path, key[outer:]...), '.')
	inner := len(j.path)
	defer func() { j.path = j.path[:outer] }()
	j.at++
	for empty := true; !empty || !j.is('}'); empty = false {
		j.skipSpace()
		name, err := j.fieldName()
		if err != nil {
			return err
		}
		j.path = append(j.path[:inner], name...)
		if err := j.member(j.path, row); err != nil {
			return err
		}
		j.path = j.path[:inner]
		if j.is('}') {
			break
		}
		if !j.is(',') {
			return j.failAt(j.at, j.count, string(j.path), "want a comma or the end of the object, but there is "+jsonKind(j.text, j.at))
		}
		j.at++
	}
	j.at++
	return nil
}

const givenTwice = "the field is given twice"

// twice notes that a field is given. The reason is empty unless it was before.
func twice(given *bool) (reason string) {
	if *given {
		return givenTwice
	}
	*given = true
	return ""
}

// column finds the column of a named field, or roleIgnored.
func (j *jsonReader) column(key []byte, row *jsonRow) (place int, reason string) {
	known := false
	if !row.first {
		place = row.next
		if known = place < len(j.names.list) && j.names.list[place] == string(key); !known {
			place, known = j.names.index[string(key)]
		}
	}
	if !known {
		if reason = j.reserved(j.nameOf(key)); reason != "" {
			return 0, reason
		}
		if j.ignores(key, !row.first) {
			return roleIgnored, ""
		}
	}
	if row.shape == shapeList || j.shape == shapeList {
		return 0, "a field beside a list of features"
	}
	row.shape = shapeNamed
	if row.first {
		place = row.named
		return place, j.learn(key, row)
	}
	if !known {
		return 0, unknownFeature + likeHint(string(key), slices.Values(j.names.list))
	}
	if j.given[place] == j.count+1 {
		return 0, givenTwice
	}
	j.given[place] = j.count + 1
	row.named++
	row.next = place + 1
	return place, ""
}

// maxDepth bounds the nesting of a value that is ignored.
const maxDepth = 10_000

// skip passes over the value at position i, which ends before end. Its brackets, colons and
// commas must be in their places, but its strings, numbers and words are not judged.
func (j *jsonReader) skip(i, depth int) (end int, reason string) {
	b := j.text
	if i == len(b) || depth > maxDepth {
		return i, "a value of an ignored field is cut off, or nested too deeply"
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return j.skipNested(i, depth)
	}
	for end = i; end < len(b) && !isSpace(b[end]) && bytes.IndexByte(jsonSigns, b[end]) < 0; end++ {
	}
	if end == i {
		return i, "want a value, but there is " + jsonKind(b, i)
	}
	return end, ""
}

// jsonSigns end a number or a word.
var jsonSigns = []byte(`{}[],:"`)

// skipString is skip for a string.
func skipString(b []byte, i int) (end int, reason string) {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1, ""
		case '\\':
			i++
		}
	}
	return len(b), "a string is not closed"
}

// skipNested is skip for an object or an array.
func (j *jsonReader) skipNested(i, depth int) (end int, reason string) {
	b := j.text
	object, closing := b[i] == '{', byte(']')
	if object {
		closing = '}'
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closing {
		return i + 1, ""
	}
	for {
		if object {
			if i == len(b) || b[i] != '"' {
				return i, "there is " + jsonKind(b, i)
			}
			if i, reason = skipString(b, i); reason != "" {
				return i, reason
			}
			if i = skipSpace(b, i); i == len(b) || b[i] != ':' {
				return i, "want a colon, but there is " + jsonKind(b, i)
			}
			i = skipSpace(b, i+1)
		}
		if i, reason = j.skip(i, depth+1); reason != "" {
			return i, reason
		}
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == closing:
			return i + 1, ""
		case i == len(b) || b[i] != ',':
			return i, "want a comma or the end of a nested value, but there is " + jsonKind(b, i)
		}
		i = skipSpace(b, i+1)
	}
}

// learn takes a name from the first row. While the names are those of the last block
// nothing is allocated.
func (j *jsonReader) learn(key []byte, row *jsonRow) (reason string) {
	n := row.named
	row.named++
	if j.fresh == nil {
		if n < len(j.seen.list) && j.seen.list[n] == string(key) {
			return ""
		}
		j.fresh = append(make([]string, 0, n+1), j.seen.list[:n]...)
	}
	if reason := badName(key); reason != "" {
		return reason
	}
	if reason := j.room(row.named); reason != "" {
		return reason
	}
	j.fresh = append(j.fresh, string(key))
	return ""
}

// list reads the array of features.
func (j *jsonReader) list(row *jsonRow) error {
	switch {
	case row.shape == shapeList:
		return j.failAt(j.at, j.count, "features", givenTwice)
	case row.shape == shapeNamed || j.shape == shapeNamed:
		return j.failAt(j.at, j.count, "features", "a list of features where other rows or fields have named ones")
	}
	row.shape = shapeList
	b, i, n, texts := j.text, skipSpace(j.text, j.at+1), 0, j.texts
	if !row.first && !texts { // numbers with a comma right behind each, as nearly all
		for n < len(j.row) {
			x, end, ok := strictNumber(b, i)
			if !ok || end == len(b) || b[end] != ',' {
				break
			}
			j.row[n] = x
			n++
			if i = end + 1; i < len(b) && b[i] == ' ' {
				i++
			}
		}
	}
	for ; n > 0 || i == len(b) || b[i] != ']'; n++ {
		i = skipSpace(b, i)
		x, end, ok := strictNumber(b, i)
		var reason string
		if !ok || texts {
			x, end, reason = j.elementAt(i, n)
		}
		if reason != "" {
			return j.failAt(i, j.count, featureName(j.want.list, n), reason)
		}
		if row.first {
			if reason := j.room(n + 1); reason != "" {
				return j.failAt(i, j.count, "", reason)
			}
			j.row = append(j.row, x)
		} else if n < len(j.row) {
			j.row[n] = x
		}
		i = skipSpace(b, end)
		if i < len(b) && b[i] == ']' {
			n++
			break
		}
		if i == len(b) || b[i] != ',' {
			return j.failAt(i, j.count, "features", "want a comma or the end of the list, but there is "+jsonKind(b, i))
		}
		i++
	}
	if n != len(j.row) {
		return j.failAt(i, j.count, "", fmt.Sprintf("there %s in the row, want %d", areFeatures(n), len(j.row)))
	}
	j.at = i + 1
	return nil
}

// elementAt reads element n of a list, at position i, which ends before end.
func (j *jsonReader) elementAt(i, n int) (x float64, end int, reason string) {
	if texts := j.textsAt(n); texts != nil {
		return j.textAt(texts, i)
	}
	if j.gapped && j.takesMissing(j.want.list, n) {
		if end = missingAt(j.text, i); end > i {
			return math.NaN(), end, ""
		}
	}
	return j.valueAt(i)
}

// rowDone checks that nothing is missing in the row that starts at the position.
func (j *jsonReader) rowDone(start int, row *jsonRow) *Error {
	if !row.labelled && !j.unlabelled {
		var reason string
		if row.code, reason = j.labels.absent(labelIsMissing); reason != "" {
			return j.failAt(start, j.count, j.opts.Label, reason+likeHint(j.opts.Label, j.keysAt(start)))
		}
	}
	if row.shape == shapeNone && j.opts.Schema != nil { // all its features may be missing
		row.shape = shapeNamed
	}
	switch {
	case !row.weighted && j.weighted():
		return j.failAt(start, j.count, j.opts.Weight, "the weight is missing")
	case row.first && row.shape == shapeNamed:
		if twice := j.learned(row.named); twice != "" {
			return j.failAt(start, j.count, twice, givenTwice)
		}
		if one, other := lookingAlike(j.fresh); one != "" {
			return j.failAt(start, j.count, other, fmt.Sprintf(twoAlike, one, other))
		}
	case !row.first && row.shape != shapeList && row.named < len(j.row):
		for place, last := range j.given {
			if last != j.count+1 && j.mayLack(place) {
				j.row[place] = math.NaN()
			} else if last != j.count+1 {
				return j.failAt(start, j.count, j.names.list[place], "the feature is missing"+likeHint(j.names.list[place], j.keysAt(start)))
			}
		}
	}
	if (row.shape == shapeNone || len(j.row) == 0) && !j.opts.LabelAlone {
		return j.failAt(start, j.count, "", "the row has no features")
	}
	j.shape = row.shape
	j.widen(len(j.row))
	return nil
}

// keysAt are the names of the fields of the row at a position, for an error.
func (j *jsonReader) keysAt(i int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i++; ; i++ {
			i = skipSpace(j.text, i)
			key, end, reason := j.string(i)
			if reason != "" || !yield(string(key)) {
				return
			}
			if i = skipSpace(j.text, end); i == len(j.text) || j.text[i] != ':' {
				return
			}
			if i, reason = j.skip(skipSpace(j.text, i+1), 0); reason != "" {
				return
			}
			if i = skipSpace(j.text, i); i == len(j.text) || j.text[i] != ',' {
				return
			}
		}
	}
}

// learned makes the names of the first row, n of them, those of the block, or returns
// one that is in it twice.
func (j *jsonReader) learned(n int) (twice string) {
	if j.fresh != nil || n != len(j.seen.list) {
		list := j.fresh
		if list == nil {
			list = slices.Clone(j.seen.list[:n])
		}
		names, twice := newNames(list)
		if twice != "" {
			return twice
		}
		j.seen = names
	}
	j.setNames(j.seen)
	return ""
}

// label reads the value of the label.
func (j *jsonReader) label() (code int32, reason string) {
	rest := j.text[j.at:]
	switch {
	case len(rest) > 0 && rest[0] == '"':
		s, end, reason := j.string(j.at)
		if reason == "" {
			code, reason = j.labels.text(s)
		}
		j.at = end
		return code, reason
	case len(rest) > 0 && (rest[0] == '-' || rest[0]-'0' < 10):
		x, end, reason := jsonNumber(j.text, j.at)
		if j.at = end; reason != "" {
			return 0, reason
		}
		if written := rest[:len(rest)-len(j.text[j.at:])]; math.Abs(x) >= 1<<53 && sharesFloat(string(written), x) {
			return j.labels.integer(written)
		}
		return j.labels.number(x)
	}
	if is, end, ok := jsonBoolean(j.text, j.at); ok {
		j.at = end
		return j.labels.boolean(is)
	}
	if bytes.HasPrefix(rest, jsonNull) {
		j.at += len(jsonNull)
		return j.labels.absent(labelIsNull)
	}
	return -1, "want a label, a string or a number, but there is " + jsonKind(j.text, j.at)
}

// textAt reads the value at position i, which ends before end, of a column of texts.
func (j *jsonReader) textAt(t *coder, i int) (code float64, end int, reason string) {
	b := j.text
	if i < len(b) && b[i] == '"' {
		j.key, j.scratch = j.scratch, j.key // a field's name may be in the latter
		s, end, reason := j.string(i)
		if reason == "" {
			code, reason = t.text(s)
		}
		return code, end, reason
	}
	if end = missingAt(b, i); end > i {
		return math.NaN(), end, ""
	}
	if is, end, ok := jsonBoolean(b, i); ok {
		code, reason = t.boolean(is)
		return code, end, reason
	}
	x, end, reason := jsonNumber(b, i)
	if written := b[i:end]; reason == "" && math.Abs(x) >= 1<<53 && sharesFloat(string(written), x) {
		return 0, end, fmt.Sprintf("the number %s has more than 53 bits; send it as a string", written)
	}
	if reason == "" {
		code, reason = t.number(x)
	}
	return code, end, reason
}

// value reads the value of a feature or of the weight.
func (j *jsonReader) value() (x float64, reason string) {
	x, j.at, reason = j.valueAt(j.at)
	return x, reason
}

// valueAt is value for the one at position i, which ends before end: a number, a
// boolean, or a string that stands for a value.
func (j *jsonReader) valueAt(i int) (x float64, end int, reason string) {
	b := j.text
	if i == len(b) || b[i] != '"' && b[i] != 't' && b[i] != 'f' {
		return jsonNumber(b, i)
	}
	if b[i] == '"' {
		j.key, j.scratch = j.scratch, j.key // a field's name may be in the latter
		s, end, reason := j.string(i)
		if reason == "" {
			x, reason = textValue(trimPadding(s))
		}
		return x, end, reason
	}
	is, end, ok := jsonBoolean(b, i)
	if !ok {
		return jsonNumber(b, i)
	}
	if is {
		x = 1
	}
	return x, end, ""
}

var jsonNull = []byte("null")

// missingAt is the end of the missing value at b[i]: null, NaN as Python writes it, or a
// string that stands for one. It is i where there is none.
func missingAt(b []byte, i int) (end int) {
	if i == len(b) || b[i]|0x20 != 'n' && b[i] != '"' {
		return i
	}
	if b[i] == '"' {
		n := bytes.IndexByte(b[i+1:], '"')
		if n < 0 || !isMissing(trimPadding(b[i+1:][:n])) {
			return i
		}
		return i + 1 + n + 1
	}
	for _, literal := range [...]string{"null", "NaN"} {
		if len(b)-i >= len(literal) && string(b[i:i+len(literal)]) == literal {
			return i + len(literal)
		}
	}
	return i
}

// nameOf views a name, which the caller does not keep.
func (j *jsonReader) nameOf(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// jsonBoolean reads the boolean at b[i], which ends before b[end].
func jsonBoolean(b []byte, i int) (is bool, end int, ok bool) {
	switch rest := b[i:]; {
	case bytes.HasPrefix(rest, trueLabel):
		return true, i + len(trueLabel), true
	case bytes.HasPrefix(rest, falseLabel):
		return false, i + len(falseLabel), true
	}
	return false, i, false
}

// jsonNumber reads the finite number at b[i], which ends before b[end].
func jsonNumber(b []byte, i int) (x float64, end int, reason string) {
	x, end, ok := strictNumber(b, i)
	if ok {
		return x, end, ""
	}
	x, end, ok = looseNumber(b, i)
	switch {
	case bytes.HasPrefix(b[i:], []byte("null")):
		return 0, i, isNull
	case !ok || !isJSONNumber(b[i:end]):
		return 0, i, "want a number, but there is " + jsonKind(b, i)
	case math.IsInf(x, 0):
		return 0, i, quoted(b[i:end]) + " overflows float64"
	}
	return x, end, ""
}

// isJSONNumber is whether a decimal number is one by JSON's stricter grammar,
// which knows no plus sign, no leading zeros and no bare point.
func isJSONNumber(b []byte) bool {
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

// string reads the string at position i, which ends before end. It aliases the text or
// the scratch memory.
func (j *jsonReader) string(i int) (s []byte, end int, reason string) {
	b := j.text
	if i == len(b) || b[i] != '"' {
		return nil, i, "there is " + jsonKind(b, i)
	}
	i++
	for end = i; end < len(b); end++ {
		switch c := b[end]; {
		case c == '"':
			return b[i:end], end + 1, ""
		case c == '\\':
			return j.escaped(i, end)
		case c < ' ':
			return nil, end, "a control character in a string"
		}
	}
	return nil, end, "a string is not closed"
}

// escaped is string for one that starts at i and has its first escape at esc.
func (j *jsonReader) escaped(i, esc int) (s []byte, end int, reason string) {
	b := j.text
	out := append(j.scratch[:0], b[i:esc]...)
	defer func() { j.scratch = out }()
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

// hex4 reads four hexadecimal digits.
func hex4(b []byte, i int) (r rune, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[i:i+4]), 16, 16)
	return rune(v), err == nil
}

// jsonKind describes the token at b[i], for an error.
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

// is is whether c is the next character behind white space, to which it moves on.
func (j *jsonReader) is(c byte) bool {
	j.skipSpace()
	return j.at < len(j.text) && j.text[j.at] == c
}

// atEnd is whether only white space is left.
func (j *jsonReader) atEnd() bool {
	j.skipSpace()
	return j.at == len(j.text)
}

func (j *jsonReader) skipSpace() { j.at = skipSpace(j.text, j.at) }
