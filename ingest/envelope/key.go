package envelope

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"streamd/ingest/registry"
)

// maxKey bounds the bytes of a key that is read. A longer one stands for itself.
const maxKey = 64 << 10

// Keys reports whether records of the kind have keys that Key shortens.
func (k Kind) Keys() bool { return k == Debezium || k == Connect }

// Key is the text that stands for a record's key. It is nil if the record has no key, and valid
// until the next call. The error is a *KeyError, or the *registry.AwayError of Options.Schemas.
func (o *Opener) Key(key []byte) ([]byte, error) {
	if len(key) == 0 || len(key) > maxKey || !o.kind.Keys() {
		return key, nil
	}
	if id, rest, framed := registry.Unframe(key); framed {
		return o.framedKey(id, key, rest)
	}
	return o.textKey(key), nil
}

// textKey is Key for a key in JSON, or of another text.
func (o *Opener) textKey(key []byte) []byte {
	i := skipSpace(key, 0)
	if i < len(key) && key[i] != '{' {
		// A key of its own, as the converter of JSON or of texts writes it.
		if end, _, reason := skipValue(key, i); reason == "" && skipSpace(key, end) == len(key) {
			return textOrRaw(key[i:end])
		}
		return key
	}
	var m opened
	if o.unwrap(key, &m) != "" {
		return key
	}
	return o.openedKey(&m, key)
}

// openedKey is the text of a key whose schema has been taken off. written is all of it.
func (o *Opener) openedKey(m *opened, written []byte) []byte {
	switch {
	case m.twice:
		return written
	case m.value.isObject(m.b) && m.n == 0:
		return written
	case m.value.isObject(m.b):
		return o.columns(m)
	}
	raw := m.value.of(m.b)
	if string(raw) == "null" {
		return nil
	}
	if c := m.schema.value; c != nil {
		if converted, why := c.do(o.key[:0], raw, c); why == "" {
			o.key, raw = converted, converted
		}
	}
	return textOrRaw(raw)
}

// columns is the key of one or several columns.
func (o *Opener) columns(m *opened) []byte {
	var t *table
	if m.schema != nil {
		t = m.schema.row
	}
	type column struct {
		name string
		raw  []byte
	}
	var room [8]column
	list := room[:0]
	out := o.key[:0]
	all := in(m.b, m.span.from)
	for i := 0; all.next(); i++ {
		raw := all.value.of(m.b)
		if t != nil {
			if c := t.at(all.name, i); c != nil {
				if converted, why := c.do(out, raw, c); why == "" {
					raw, out = converted[len(out):len(converted):len(converted)], converted
				}
			}
		}
		if m.n == 1 {
			o.key = out
			return textOrRaw(raw)
		}
		list = append(list, column{all.text(), raw})
	}
	slices.SortStableFunc(list, func(a, b column) int { return strings.Compare(a.name, b.name) })
	begin := len(out)
	for i, c := range list {
		out = append(out, "{,"[min(i, 1)])
		out = appendText(out, c.name)
		out = append(out, ':')
		if text, ok := keyText(c.raw); ok {
			out = appendText(out, text)
		} else {
			out = append(out, c.raw...)
		}
	}
	o.key = append(out, '}')
	return o.key[begin:]
}

// textOrRaw is a text itself, and any other value as it is written. A text that is no UTF-8 without
// its escapes stays as it is written, too: several would be the same.
func textOrRaw(raw []byte) []byte {
	if text, ok := keyText(raw); ok {
		return []byte(text)
	}
	return raw
}

func keyText(raw []byte) (text string, ok bool) {
	text, ok = textOf(raw)
	return text, ok && (len(text) == len(raw)-2 || !strings.ContainsRune(text, utf8.RuneError))
}

// appendText appends a text with the escapes that JSON needs, and no others.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = fmt.Appendf(dst, "\\u%04x", c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
