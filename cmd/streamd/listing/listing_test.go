package listing

import (
	"errors"
	"strings"
	"testing"
)

// No cell can break a line or a column, or move the cursor of a terminal. Rows of fewer cells end
// columns.
func TestRows(t *testing.T) {
	var b strings.Builder
	w := New(&b, "# ")
	w.Row("class", "rows", "ν")
	w.Row("a\tb\n", "5", "2^-7")
	w.Row("\x1b[31mred", "")
	w.Row("é\u00a0×\u202e\xff", "1", "'")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = "# class        rows  ν\n" +
		"# a\\tb\\n       5     2^-7\n" +
		"# \\x1b[31mred  \n" +
		"# é\u00a0×\\u202e\ufffd   1  '\n"
	if b.String() != want {
		t.Errorf("%q, want\n%q", b.String(), want)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// The first error is kept, and nothing is written after it.
func TestErrorOfTheOutput(t *testing.T) {
	w := New(full{}, "")
	for range 1000 {
		w.Row("a", "b")
		w.Row()
	}
	if err := w.Flush(); !errors.Is(err, errFull) {
		t.Error(err)
	}
}
