package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Problem is one mistake in a configuration.
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
		b.WriteString(shown(p.Source))
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	// The name of a variable or a flag already names the key.
	if p.Key != "" && (p.Source == "" || p.Line > 0) {
		b.WriteString(shown(p.Key) + ": ")
	}
	if p.Value != "" {
		b.WriteString(quoted(p.Value) + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error has all problems of a configuration: those of the file by position, then those of
// variables, of flags, and of missing keys.
type Error struct {
	Problems []Problem // at least one
	Log      Log       // the log's configuration, with defaults where its own keys are wrong
}

// Error writes one problem per line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// inOrder sorts problems as Error promises.
func inOrder(p, q Problem) int {
	return cmp.Or(
		cmp.Compare(p.rank(), q.rank()),
		cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Column, q.Column),
	)
}

func (p Problem) rank() int {
	switch {
	case p.Source == "":
		return 3
	case strings.HasPrefix(p.Source, "--"):
		return 2
	case strings.HasPrefix(p.Source, envPrefix):
		return 1
	default:
		return 0
	}
}
