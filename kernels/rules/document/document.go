// Package document reads texts that people write, in a subset of YAML, and finds all their
// mistakes. Its words for them are those of the configuration and of files of rules.
package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxTokens and maxDepth bound a document. The parser's time grows with the square of a
// mapping's length, and it recurses into nested values. A configuration is far below these bounds,
// and a file at either bound takes a fraction of a second.
const (
	MaxTokens = 1 << 15
	maxDepth  = 32
)

// MaxFile is the most bytes of a document.
const MaxFile = 1 << 20

// Reader collects the problems of a document.
type Reader struct {
	Source   string // its name
	Problems []Problem
}

// Root returns the root of the document. It is nil for an empty document, and for a bad
// one after reporting the problem.
func (r *Reader) Root(data []byte) ast.Node {
	at := &token.Position{Line: 1, Column: 1}
	for rest := data; len(rest) > 0; at.Column++ {
		c, size := utf8.DecodeRune(rest)
		if c == utf8.RuneError && size == 1 || c == 0 {
			r.Report(at, "", "not a text file in UTF-8")
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
		r.Report(at, "", "not valid YAML: %s", message)
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
func (r *Reader) inSubset(tokens token.Tokens) bool {
	refuse := func(t *token.Token, format string, args ...any) bool {
		r.Report(t.Position, "", format, args...)
		return false
	}
	if len(tokens) > MaxTokens {
		return refuse(tokens[MaxTokens], "more than %d words and signs; a configuration is shorter", MaxTokens)
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
			return refuse(t, "%s: anchors, aliases, tags, merge keys, complex keys and directives are not used in a configuration", Quoted(t.Value))
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

// Report adds a problem.
func (r *Reader) Report(at *token.Position, key, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{
		Source: r.Source, Line: at.Line, Column: at.Column,
		Key: key, Message: fmt.Sprintf(format, args...),
	})
}

// ReadFile reads a small file. Its errors do not repeat the name.
func ReadFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot open: %w", bare(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", bare(err))
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than %d KiB", most>>10)
	}
	return data, nil
}

func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Start is the beginning of the node as a reader sees it.
func Start(node ast.Node) *token.Position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		node = m.Values[0].Key // the node's own token is the first colon
	}
	return node.GetToken().Position
}

// Describe names a value.
func Describe(node ast.Node) string {
	switch node.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	default:
		return Quoted(node.GetToken().Value)
	}
}
