package document

import (
	"cmp"
	"fmt"
	"strings"
)

// Problem is one mistake in a document.
type Problem struct {
	Source       string // file name, variable, or flag with its dashes; empty: a default or a missing key
	Line, Column int    // 1-based, in a file only
	Key          string // empty: the source as a whole
	Value        string // as it was written; empty: no single value
	Message      string // the mistake and the expected form
}

// String writes the problem on one line, with long names and values cut.
func (p Problem) String() string {
	var b strings.Builder
	if p.Source != "" {
		b.WriteString(Shown(p.Source))
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	// The name of a variable or a flag already names the key.
	if p.Key != "" && (p.Source == "" || p.Line > 0) {
		b.WriteString(Shown(p.Key) + ": ")
	}
	if p.Value != "" {
		b.WriteString(Quoted(p.Value) + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Compare sorts problems of one document by their places.
func (p Problem) Compare(q Problem) int {
	return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// Error has all problems of a document, one at least.
type Error struct{ Problems []Problem }

// Error writes one problem per line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}
