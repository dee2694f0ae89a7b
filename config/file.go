package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The parser's time grows with the square of a mapping's length, and it recurses into nested
// values. A configuration is far below these bounds, and a file at either bound takes a
// fraction of a second.
const (
	maxTokens = 1 << 15
	maxDepth  = 32
)

// parseYAML returns the settings of a file, and all its problems except wrong values.
func parseYAML(name string, data []byte) ([]setting, []Problem) {
	r := &yamlReader{source: name, seen: map[string]token.Position{}}
	if root := r.document(bytes.TrimPrefix(data, []byte("\ufeff"))); root != nil {
		r.section("", root)
	}
	return r.settings, r.problems
}

// document returns the root of the document. It is nil for an empty document, and for a bad
// one after reporting the problem.
func (r *yamlReader) document(data []byte) ast.Node {
	at := &token.Position{Line: 1, Column: 1}
	for rest := data; len(rest) > 0; at.Column++ {
		c, size := utf8.DecodeRune(rest)
		if c == utf8.RuneError && size == 1 || c == 0 {
			r.report(at, "", "not a text file in UTF-8")
			return nil
		}
		if rest = rest[size:]; c == '\n' {
			at.Line, at.Column = at.Line+1, 0
		}
	}
	// The lexer drops a tag at the very end of its text.
	tokens := lexer.Tokenize(string(data) + "\n")
	if !r.inSubset(tokens) {
		return nil
	}
	// The reader below finds all duplicates, under their full names.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, message := &token.Position{}, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
			at, message = e.GetToken().Position, e.GetMessage()
		}
		r.report(at, "", "not valid YAML: %s", message)
		return nil
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			return doc.Body
		}
	}
	return nil
}

// inSubset reports text that is outside the package's subset of YAML or too expensive to
// parse.
func (r *yamlReader) inSubset(tokens token.Tokens) bool {
	refuse := func(t *token.Token, format string, args ...any) bool {
		r.report(t.Position, "", format, args...)
		return false
	}
	if len(tokens) > maxTokens {
		return refuse(tokens[maxTokens], "more than %d words and signs; a configuration is shorter", maxTokens)
	}
	var begun, ended bool // the document; the parser may lose parts of further ones
	var flow, run int
	for _, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		if ended || begun && t.Type == token.DocumentHeaderType {
			return refuse(t, "a second document; the configuration is one")
		}
		begun = true
		switch t.Type {
		case token.DocumentEndType:
			ended = true
		case token.DirectiveType, token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.MappingKeyType:
			return refuse(t, "%s: anchors, aliases, tags, merge keys, complex keys and directives are not used in a configuration", quoted(t.Value))
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		}
		// "- - -" nests on one line. Indentation bounds all other nesting.
		if t.Type == token.SequenceEntryType {
			run++
		} else {
			run = 0
		}
		if flow > maxDepth || run > maxDepth || t.Position.IndentNum > 8*maxDepth {
			return refuse(t, "nested too deeply")
		}
	}
	return true
}

type yamlReader struct {
	source   string
	settings []setting
	problems []Problem
	seen     map[string]token.Position // keys and sections, for duplicates
}

func (r *yamlReader) report(at *token.Position, key, format string, args ...any) {
	r.problems = append(r.problems, Problem{
		Source: r.source, Line: at.Line, Column: at.Column,
		Key: key, Message: fmt.Sprintf(format, args...),
	})
}

// section reads the mapping below a section's name, which is empty for the root.
func (r *yamlReader) section(name string, node ast.Node) {
	mapping, ok := node.(*ast.MappingNode)
	if !ok {
		want := "want a section, that is, indented keys below " + name
		if name == "" {
			want = "want keys and values, such as kafka: {topic: orders}"
		}
		r.report(start(node), name, "%s; found %s", want, describe(node))
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
		r.report(at, name, "given twice; first in line %d", first.Line)
		return
	}
	r.seen[name] = *at

	k, isSection := byName[name], sections[name]
	_, empty := entry.Value.(*ast.NullNode)
	switch {
	case strings.Contains(written, ".") && (k != nil || isSection):
		r.report(at, name, "write sections by indentation, not with dots")
	case isSection && empty:
	case isSection:
		r.section(name, entry.Value)
	case k == nil:
		_, nested := entry.Value.(*ast.MappingNode)
		r.report(at, name, "%s", unknown("key", name, nested || empty))
	case empty:
		r.report(at, name, "has no value; leave the key out for the default%s", emptyHint(k))
	default:
		r.value(k, entry.Value)
	}
}

func emptyHint(k *key) string {
	switch k.typ.Kind() {
	case reflect.Slice:
		return ", or write [] for an empty list"
	case reflect.Map:
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
	at := start(node)
	s := setting{key: k, origin: origin{r.source, at.Line, at.Column}}
	add := func(name string, node ast.Node) {
		t := node.GetToken()
		it := item{name: name, text: t.Value, line: t.Position.Line, column: t.Position.Column}
		switch node := node.(type) {
		case *ast.LiteralNode:
			it.text = node.Value.Value
		case *ast.NullNode, *ast.MappingNode, *ast.SequenceNode:
			s.broken = true
			found := describe(node)
			if _, mapping := node.(*ast.MappingNode); mapping { // such as host:9092 within braces
				found += "; put quotes around text that has a colon"
			}
			r.report(start(node), k.Name, "want a single value; found %s", found)
			return
		}
		s.items = append(s.items, it)
	}
	switch k.typ.Kind() {
	case reflect.Slice:
		list, isList := node.(*ast.SequenceNode)
		if !isList {
			r.report(at, k.Name, "want a list, such as [a, b]; found %s", describe(node))
			return
		}
		for _, element := range list.Values {
			add("", element)
		}
	case reflect.Map:
		mapping, isMap := node.(*ast.MappingNode)
		if !isMap {
			r.report(at, k.Name, "want names and values, such as {spam: 2, ham: 1}; found %s", describe(node))
			return
		}
		for _, entry := range mapping.Values {
			add(entry.Key.GetToken().Value, entry.Value)
		}
	default:
		if add("", node); s.broken {
			return
		}
	}
	r.settings = append(r.settings, s)
}

// start is the beginning of the node as a reader sees it.
func start(node ast.Node) *token.Position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		node = m.Values[0].Key // the node's own token is the first colon
	}
	return node.GetToken().Position
}

func describe(node ast.Node) string {
	switch node.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	default:
		return quoted(node.GetToken().Value)
	}
}
