package document

import (
	"strconv"
	"strings"
	"unicode"
)

// Nearest returns the candidates with the fewest edits from name, if these are few for its
// length.
func Nearest(name string, candidates []string) []string {
	const longest = 64 // bytes; bounds the work for a hostile file
	if len(name) > longest {
		return nil
	}
	best := 1 + len(name)/6
	var near []string
	for _, c := range candidates {
		switch d := edits(strings.ToLower(name), strings.ToLower(c)); {
		case d < best:
			best, near = d, []string{c}
		case d == best:
			near = append(near, c)
		}
	}
	return near
}

// edits is the number of insertions, deletions, replacements and swaps of neighbouring bytes
// that turn a into b (Damerau 1964).
func edits(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// DidYouMean asks for a few names, if there are some.
func DidYouMean(names []string) string {
	const most = 3 // more are no hint
	if len(names) == 0 || len(names) > most {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}

// OneOf lists two choices or more: a, b or c.
func OneOf(choices []string) string {
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// Quoted is the text between quotes, cut to a length that identifies it.
func Quoted(text string) string {
	const most = 80 // characters
	if head := []rune(text); len(head) > most {
		return strconv.Quote(string(head[:most])) + "..."
	}
	return strconv.Quote(text)
}

// Shown is the text itself unless it would break the line.
func Shown(text string) string {
	if len(text) > 256 || strings.ContainsFunc(text, unicode.IsControl) {
		return Quoted(text)
	}
	return text
}
