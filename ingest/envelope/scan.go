package envelope

import (
	"bytes"
	"encoding/json"
	"slices"
)

// maxDepth bounds the nesting of brackets.
const maxDepth = 512

// span is bytes from..to of a text. The zero span is of something that is not there.
type span struct{ from, to int }

func (s span) is() bool             { return s.to > 0 }
func (s span) of(b []byte) []byte   { return b[s.from:s.to] }
func (s span) opens(b []byte) byte  { return b[s.from] }
func (s span) isNull(b []byte) bool { return string(s.of(b)) == "null" }

// isObject is whether the value is an object. There must be one.
func (s span) isObject(b []byte) bool { return s.opens(b) == '{' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString is the end of the string that begins at b[i], a quote. It is 0 if the string is not
// closed.
func skipString(b []byte, i int) (end int) {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// skipValue is the end of the value at b[i]. deep is whether it has a value with brackets within
// its own. The reason says why it has no end.
func skipValue(b []byte, i int) (end int, deep bool, reason string) {
	if i >= len(b) {
		return 0, false, "the text ends where a value should be"
	}
	switch b[i] {
	case '"':
		if end = skipString(b, i); end == 0 {
			return 0, false, "a string is not closed"
		}
		return end, false, ""
	case '{', '[':
		return skipNested(b, i)
	}
	for end = i; end < len(b); end++ {
		switch b[end] {
		case ' ', '\n', '\r', '\t', ',', '}', ']', '{', '[', ':', '"':
			if end == i {
				return 0, false, "there is no value where one should be"
			}
			return end, false, ""
		}
	}
	return end, false, ""
}

// skipNested is skipValue for an object or an array.
func skipNested(b []byte, i int) (end int, deep bool, reason string) {
	var objects [maxDepth / 64]uint64 // one bit for each open bracket: it is a brace
	depth := 0
	for ; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			if end = skipString(b, i); end == 0 {
				return 0, false, "a string is not closed"
			}
			i = end - 1
		case '{', '[':
			if depth == maxDepth {
				return 0, false, "its brackets nest too deeply"
			}
			bit := uint64(1) << (depth % 64)
			objects[depth/64] &^= bit
			if c == '{' {
				objects[depth/64] |= bit
			}
			depth++
			deep = deep || depth > 1
		case '}', ']':
			depth--
			if is := objects[depth/64]>>(depth%64)&1 == 1; is != (c == '}') {
				return 0, false, "its brackets do not match"
			}
			if depth == 0 {
				return i + 1, deep, ""
			}
		}
	}
	return 0, false, "a bracket is not closed"
}

// object reads the fields of an object one by one.
type object struct {
	b       []byte
	at      int  // behind the last field
	started bool // a field has been read

	name    []byte // of the field: raw, without quotes
	escaped bool   // the name has escapes
	value   span
	deep    bool // the value has brackets within its own
	reason  string
}

// in returns the fields of the object at b[i], a brace.
func in(b []byte, i int) object { return object{b: b, at: i + 1} }

// next reads the next field. It is false behind the last one, and if there is a reason.
func (o *object) next() bool {
	b := o.b
	i := skipSpace(b, o.at)
	switch {
	case i < len(b) && b[i] == '}':
		o.at = i + 1
		return false
	case !o.started:
		o.started = true
	case i < len(b) && b[i] == ',':
		i = skipSpace(b, i+1)
	default:
		o.reason = "a field is not followed by a comma or the end of its object"
		return false
	}
	if i >= len(b) || b[i] != '"' {
		o.reason = "there is no name where a field should be"
		return false
	}
	end := i + 1
	for end < len(b) && b[end] != '"' && b[end] != '\\' {
		end++
	}
	if o.escaped = end < len(b) && b[end] == '\\'; o.escaped {
		end = skipString(b, i)
	} else {
		end++
	}
	if end == 0 || end > len(b) {
		o.reason = "a string is not closed"
		return false
	}
	o.name = b[i+1 : end-1]
	if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
		o.reason = "a name is not followed by a colon"
		return false
	}
	o.value.from = skipSpace(b, i+1)
	o.value.to, o.deep, o.reason = skipValue(b, o.value.from)
	o.at = o.value.to
	return o.reason == ""
}

// text is the field's name.
func (o *object) text() string {
	if !o.escaped {
		return string(o.name)
	}
	return unescaped(o.name)
}

// unescaped is a name without its escapes, or as it is written if they are wrong.
func unescaped(name []byte) string {
	if s, ok := textOf(slices.Concat(quote, name, quote)); ok {
		return s
	}
	return string(name)
}

var quote = []byte{'"'}

// textOf is the text of a JSON string, or false.
func textOf(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
