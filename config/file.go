package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"streamd/kernels/rules/document"
)

// parseYAML returns the settings of a file, and all its problems except wrong values.
func parseYAML(name string, data []byte) ([]setting, []document.Problem) {
	r := &yamlReader{Reader: document.Reader{Source: name}, seen: map[string]token.Position{}}
	if root := r.Root(bytes.TrimPrefix(data, []byte("\ufeff"))); root != nil {
		r.section("", root)
	}
	return r.settings, r.Problems
}

type yamlReader struct {
	document.Reader
	settings []setting
	seen     map[string]token.Position // keys and sections, for duplicates
}

// section reads the mapping below a section's name, which is empty for the root.
func (r *yamlReader) section(name string, node ast.Node) {
	mapping, ok := node.(*ast.MappingNode)
	if !ok {
		want := "want a section, that is, indented keys below " + name
		if name == "" {
			want = "want keys and values, such as kafka: {topic: orders}"
		}
		r.Report(document.Start(node), name, "%s; found %s", want, document.Describe(node))
		return
	}
	for _, entry := range mapping.Values {
		r.entry(name, entry)
	}
}

func (r *yamlReader) entry(section string, entry *ast.MappingValueNode) {
	written := entry.Key.GetToken().Value
	name, at := written, entry.Key.GetToken().Position
	if section != "" {
		name = section + "." + name
	}
	if first, ok := r.seen[name]; ok {
		r.Report(at, name, "given twice; first in line %d", first.Line)
		return
	}
	r.seen[name] = *at

	k, isSection := byName[name], sections[name]
	_, empty := entry.Value.(*ast.NullNode)
	switch {
	case strings.Contains(written, ".") && (k != nil || isSection):
		r.Report(at, name, "write sections by indentation, not with dots")
	case isSection && empty:
	case isSection:
		r.section(name, entry.Value)
	case k == nil:
		_, nested := entry.Value.(*ast.MappingNode)
		r.Report(at, name, "%s", unknown("key", name, nested || empty))
	case empty:
		r.Report(at, name, "has no value; leave the key out for the default%s", emptyHint(k))
	default:
		r.value(k, entry.Value)
	}
}

func emptyHint(k *key) string {
	switch k.typ.Kind() {
	case reflect.Slice:
		return ", or write [] for an empty list"
	case reflect.Map, reflect.Pointer:
		return ", or write {} for an empty map"
	case reflect.String:
		if k.choices == nil {
			return `, or write "" for an empty text`
		}
	}
	return ""
}

// value divides a value into scalars, whose meaning is up to decode.
func (r *yamlReader) value(k *key, node ast.Node) {
	at := document.Start(node)
	s := setting{key: k, origin: origin{r.Source, at.Line, at.Column}}
	add := func(name string, node ast.Node) {
		t := node.GetToken()
		it := item{name: name, text: t.Value, line: t.Position.Line, column: t.Position.Column}
		switch node := node.(type) {
		case *ast.LiteralNode:
			it.text = node.Value.Value
		case *ast.NullNode, *ast.MappingNode, *ast.SequenceNode:
			s.broken = true
			found := document.Describe(node)
			if _, mapping := node.(*ast.MappingNode); mapping { // such as host:9092 within braces
				found += "; put quotes around text that has a colon"
			}
			r.Report(document.Start(node), k.Name, "want a single value; found %s", found)
			return
		}
		s.items = append(s.items, it)
	}
	switch k.typ.Kind() {
	case reflect.Slice:
		list, isList := node.(*ast.SequenceNode)
		if !isList {
			r.Report(at, k.Name, "want a list, such as [a, b]; found %s", document.Describe(node))
			return
		}
		for _, element := range list.Values {
			add("", element)
		}
	case reflect.Map:
		mapping, isMap := node.(*ast.MappingNode)
		if !isMap {
			r.Report(at, k.Name, "want names and values, such as {spam: 2, ham: 1}; found %s", document.Describe(node))
			return
		}
		for _, entry := range mapping.Values {
			add(entry.Key.GetToken().Value, entry.Value)
		}
	case reflect.Pointer: // a schema: its text
		var value any
		if err := yaml.NodeToValue(node, &value); err != nil {
			r.Report(at, k.Name, "%v", err)
			return
		}
		text, isName := value.(string)
		if _, ok := value.(map[string]any); !ok && !isName {
			r.Report(at, k.Name, "want names and what they are, such as {age: number, country: {kind: category, values: [at, ch]}}, or the name of a file; found %s", document.Describe(node))
			return
		}
		if !isName {
			inJSON, err := json.Marshal(value)
			if err != nil {
				r.Report(at, k.Name, "%v", err)
				return
			}
			text = string(inJSON)
		}
		s.items = append(s.items, item{text: text, line: at.Line, column: at.Column})
	default:
		if add("", node); s.broken {
			return
		}
	}
	r.settings = append(r.settings, s)
}
