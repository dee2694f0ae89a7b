// Package listing prints text for people in aligned columns.
package listing

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Writer aligns the cells of rows, with two blanks between columns. A column ends with a row that
// lacks it, and may begin again below.
type Writer struct {
	tab    *tabwriter.Writer
	indent string
	err    error
}

// New returns a writer of lines that begin with an indent.
func New(out io.Writer, indent string) *Writer {
	return &Writer{tab: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), indent: indent}
}

// Row adds a line of cells, see OneLine. It is printed when its columns have ended, or by Flush.
func (w *Writer) Row(cells ...string) {
	if w.err != nil {
		return
	}
	line := make([]string, len(cells))
	for i, cell := range cells {
		line[i] = OneLine(cell)
	}
	_, w.err = fmt.Fprintln(w.tab, w.indent+strings.Join(line, "\t"))
}

// Flush prints the rest. It returns the first error of the output.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	return w.tab.Flush()
}

// OneLine escapes invisible characters as Go does, such as a line break in the name of a class.
// Names come from outside.
func OneLine(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !strconv.IsGraphic(r) }
