package envelope

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// property is a part of a JSON Schema, with what Kafka Connect's JsonSchemaConverter notes in it of
// its own schema: the name in title, and the type and the parameters beside it. What may be null is
// one of null and of a type.
type property struct {
	Type       any                        `json:"type"`
	Title      string                     `json:"title"`
	Connect    string                     `json:"connect.type"`
	Parameters map[string]any             `json:"connect.parameters"`
	Properties map[string]json.RawMessage `json:"properties"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
}

// connectOf are Connect's types of those of JSON Schema.
var connectOf = map[string]string{"object": "struct", "integer": "int64", "number": "double", "string": "string", "boolean": "boolean", "array": "array"}

// knownByJSONSchema reads a JSON Schema. Of one that Connect has not written the columns have no
// meaning, and their values stay as they are.
func knownByJSONSchema(text []byte) (*known, string) {
	if len(text) > maxSchema {
		return nil, fmt.Sprintf("it has %d bytes, more than %d", len(text), maxSchema)
	}
	if !json.Valid(text) {
		return nil, "it is no JSON"
	}
	const levels = 2 // of objects: of the message, and of the row in it
	root := ofProperty("", text, levels)
	return knownOf(nil, &root), ""
}

// ofProperty is the schema of Connect that a property tells, with the fields of so many levels of
// objects.
func ofProperty(field string, text []byte, levels int) schema {
	s := schema{Field: field}
	p := soleProperty(text)
	if p == nil {
		return s
	}
	s.Name, s.Type = p.Title, p.Connect
	if kind := p.kind(); s.Type == "" {
		s.Type = connectOf[kind]
	}
	for name, value := range p.Parameters {
		if s.Parameters == nil {
			s.Parameters = map[string]string{}
		}
		s.Parameters[name] = fmt.Sprint(value)
	}
	if s.Type == "struct" && levels > 0 {
		for _, name := range p.names() {
			s.Fields = append(s.Fields, ofProperty(name, p.Properties[name], levels-1))
		}
	}
	return s
}

// names are those of the properties, in the order that Connect gives them.
func (p *property) names() []string {
	at := make(map[string]int, len(p.Properties))
	for name, text := range p.Properties {
		var of struct {
			Index int `json:"connect.index"`
		}
		if json.Unmarshal(text, &of) == nil {
			at[name] = of.Index
		}
	}
	return slices.SortedFunc(maps.Keys(p.Properties), func(a, b string) int {
		return cmp.Or(cmp.Compare(at[a], at[b]), cmp.Compare(a, b))
	})
}

// kind is the type in words of JSON Schema, beside null; empty: there is none, or several.
func (p *property) kind() (kind string) {
	switch t := p.Type.(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if one == "null" {
				continue
			}
			name, ok := one.(string)
			if !ok || kind != "" {
				return ""
			}
			kind = name
		}
	}
	return kind
}

// soleProperty reads a property, or the one beside null that it is one of. It is nil if that is
// something else, such as true, or if there are several.
func soleProperty(text []byte) (p *property) {
	if json.Unmarshal(text, &p) != nil || p == nil {
		return nil
	}
	branches := p.OneOf
	if branches == nil {
		branches = p.AnyOf
	}
	if branches == nil {
		return p
	}
	var sole *property
	for _, branch := range branches {
		var b *property
		if json.Unmarshal(branch, &b) != nil || b == nil {
			return nil
		}
		if b.kind() == "null" || b.Type == "null" {
			continue
		}
		if sole != nil || b.OneOf != nil || b.AnyOf != nil {
			return nil
		}
		sole = b
	}
	return sole
}
