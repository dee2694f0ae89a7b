package retire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"time"

	"streamd/retire/receipt"
)

// Selector chooses blocks to retire: live, archived, or withdrawn by the control topic. It names
// blocks by ids or keys, or leaves them out, and then chooses among all. Headers, positions and
// times narrow the choice.
type Selector struct {
	IDs       []string   `json:"ids,omitempty"`       // ids of blocks, as GET /v1/blocks gives them
	Keys      []string   `json:"keys,omitempty"`      // keys of blocks, where keys name blocks; a key that is no UTF-8 goes by its id
	Headers   []string   `json:"headers,omitempty"`   // values of the record header that retire.header names: only blocks whose record has one of them
	Positions []Range    `json:"positions,omitempty"` // ranges TOPIC/PARTITION/FIRST-LAST of offsets, both ends included: a block goes if one has an offset between its first and its last record
	From      *time.Time `json:"from,omitempty"`      // only blocks of this event time or later
	To        *time.Time `json:"to,omitempty"`        // only blocks of an event time before this
}

// Single returns the id of a selector that has one id and nothing else.
func (s *Selector) Single() (id string, ok bool) {
	if len(s.IDs) == 1 && s.Keys == nil && s.Headers == nil && s.Positions == nil && s.From == nil && s.To == nil {
		return s.IDs[0], true
	}
	return "", false
}

// KeyPrefix begins the id of a block that a message key names. Topic names contain no colon.
const KeyPrefix = receipt.KeyedPrefix

// KeyID is the id of the block that a message key names.
func KeyID(key string) string { return KeyPrefix + url.PathEscape(key) }

// ErrHeaders reports a selector with headers where no header is kept.
var ErrHeaders = errors.New("headers: off by configuration: retire.header names none")

// Selection is the selection that the selector stands for. Keys are the ids of their blocks.
// header is the name of the header that is kept; "": none. The error is ErrHeaders.
func (s *Selector) Selection(header string) (*Selection, error) {
	ids := slices.Clone(s.IDs)
	for _, key := range s.Keys {
		ids = append(ids, KeyID(key))
	}
	if s.Headers != nil && header == "" {
		return nil, ErrHeaders
	}
	chosen := &Selection{IDs: ids, Ranges: s.Positions}
	for _, value := range s.Headers {
		chosen.Headers = append(chosen.Headers, HashHeader(header, []byte(value)))
	}
	if s.From != nil {
		chosen.From = *s.From
	}
	if s.To != nil {
		chosen.To = *s.To
	}
	return chosen, nil
}

// ParseSelector reads a selector. Nothing in it is ignored, and a part that is empty is refused:
// with a mistake in it, a selector must not choose more than was meant.
func ParseSelector(content []byte) (s Selector, err error) {
	type part struct {
		into any
		want string
	}
	const texts, moment = "a list of texts", "a time such as 2026-01-02T03:04:05Z"
	parts := map[string]part{
		"ids": {&s.IDs, texts}, "keys": {&s.Keys, texts}, "headers": {&s.Headers, texts}, "positions": {&s.Positions, texts + " such as orders/3/100-199"},
		"from": {&s.From, moment}, "to": {&s.To, moment},
	}
	all := len(parts)
	bad := func(format string, args ...any) (Selector, error) {
		return Selector{}, fmt.Errorf("the selector: "+format, args...)
	}
	const example = `an object such as {"from":"2026-01-02T00:00:00Z","to":"2026-01-03T00:00:00Z"}`
	from := json.NewDecoder(bytes.NewReader(content))
	if opening, err := from.Token(); err != nil || opening != json.Delim('{') {
		return bad("want %s", example)
	}
	for from.More() {
		name, err := from.Token() // within an object it is a text
		if err != nil {
			return bad("want a whole object: %v", err)
		}
		p, known := parts[name.(string)]
		if !known {
			return bad("%.100q is unknown or given twice: it may have ids, keys, headers, positions, from and to", name)
		}
		delete(parts, name.(string))
		if err := from.Decode(p.into); err != nil {
			if name == "positions" && !errors.As(err, new(*json.UnmarshalTypeError)) {
				return bad("positions: %v", err) // it names the range
			}
			return bad("%s: want %s", name, p.want)
		}
		switch v := reflect.ValueOf(p.into).Elem(); {
		case v.IsNil():
			return bad("%s is null: leave it out, or say which blocks it chooses", name)
		case v.Kind() == reflect.Slice && v.Len() == 0:
			return bad("%s is empty: leave it out, or say which blocks it chooses", name)
		}
	}
	if _, err := from.Token(); err != nil {
		return bad("want a whole object: %v", err)
	}
	if _, err := from.Token(); err != io.EOF {
		return bad("there is more behind it")
	}
	switch {
	case len(parts) == all:
		return bad("it chooses nothing: want %s", example)
	case slices.Contains(s.IDs, ""), slices.Contains(s.Keys, ""), slices.Contains(s.Headers, ""), slices.Contains(s.Positions, Range{}):
		return bad("one of its ids, keys, headers or positions is empty")
	case s.To != nil && s.To.IsZero(): // of a program that has no time; a Selection would take it for none
		return bad("to is 0001-01-01T00:00:00Z: no event time is before it")
	}
	if err := CheckTimes(s.From, s.To); err != nil {
		return bad("%v", err)
	}
	return s, nil
}
