package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each command in the help has a page with all its flags, and its parent's page names it.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if err := run(t.Context(), []string{"man", dir}, nil, strings.NewReader(""), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if len(pages) < 20 {
		t.Errorf("only %d pages", len(pages))
	}
	for page, want := range map[string][]string{
		"streamd":                {`\fBrun\fR`, `\fBblocks\fR`, `\fB\-\-version\fR`},
		"streamd-control":        {`\fBretire\fR`},
		"streamd-control-retire": {`\fIname\fR`, `\fBstreamd\-control\fR(1)`},
		"streamd-retire":         {`\fIblock\fR`, `\fB\-\-token\-file\fR=\fIFILE\fR`},
		"streamd-run":            {`\fB\-\-kafka.topic\fR=\fIstring\fR`, ".SS snapshot", `\fB\-c, \-\-config\fR=\fIFILE\fR`},
		"streamd-replay-file":    {`\fBstreamd replay file\fR <file> [flags]`},
	} {
		text := read(page)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q", page, part)
			}
		}
		for line := range strings.Lines(text) {
			known := slices.Contains([]string{".PP\n", ".ad l\n", ".nh\n"}, line)
			if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".S") && !strings.HasPrefix(line, ".T") && !known {
				t.Errorf("%s: %q is no macro that is used here", page, line)
			}
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		".db files":    `\&.db files`,
		"a\n.b":        "a\n\\&.b",
		`--x 'y' \n~"`: `\-\-x \(aqy\(aq \en\(ti\(dq`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
