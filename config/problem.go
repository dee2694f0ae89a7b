package config

import (
	"cmp"
	"strings"

	"streamd/kernels/rules/document"
)

// Error has all problems of a configuration: those of the file by position, then those of
// variables, of flags, and of missing keys.
type Error struct {
	Problems []document.Problem // at least one
	Log      Log                // the log's configuration, with defaults where its own keys are wrong
}

// Error writes one problem per line.
func (e *Error) Error() string { return (&document.Error{Problems: e.Problems}).Error() }

// inOrder sorts problems as Error promises.
func inOrder(p, q document.Problem) int {
	return cmp.Or(cmp.Compare(rank(p), rank(q)), p.Compare(q))
}

func rank(p document.Problem) int {
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
