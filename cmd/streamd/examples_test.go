//go:build !production

package main

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Every command has two examples at least, which are command lines of that command. They end its
// help.
func TestExamples(t *testing.T) {
	left := maps.Clone(examples)
	var each func(node *kong.Node)
	each = func(node *kong.Node) {
		for _, child := range visible(node) {
			each(child)
		}
		if len(node.Children) > 0 {
			return
		}
		name := strings.TrimPrefix(node.FullPath(), "streamd ")
		delete(left, name)
		lines := examplesOf(node)
		if len(lines) < 2 {
			t.Errorf("%s has the examples %q", name, lines)
		}
		for _, line := range lines {
			again, err := newParser(kong.Writers(io.Discard, io.Discard))
			if err != nil {
				t.Fatal(err)
			}
			command, err := again.Parse(strings.Fields(line)[1:])
			if err != nil || !strings.HasPrefix(line, "streamd ") || command.Selected().FullPath() != node.FullPath() {
				t.Errorf("%s has the example %q: %v", name, line, err)
			}
		}
		var out bytes.Buffer
		err := run(t.Context(), append(strings.Fields(name), "--help"), nil, nil, &out, io.Discard)
		if end := "\nExamples:\n  " + strings.Join(lines, "\n  ") + "\n"; err != nil || !strings.HasSuffix(out.String(), end) {
			t.Errorf("%s: %v, and its help does not end in %q", name, err, end)
		}
	}
	parser, err := newParser()
	if err != nil {
		t.Fatal(err)
	}
	each(parser.Model.Node)
	if len(left) > 0 {
		t.Errorf("there are examples of no command: %q", slices.Sorted(maps.Keys(left)))
	}
}

// The help of run has the common keys, and says how to get all.
func TestHelpOfRun(t *testing.T) {
	help := func(flag string) string {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"run", flag}, nil, nil, &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	short, all := help("--help"), help("--help=all")
	for key := range exampleKeys(t) {
		if !strings.Contains(all, "--"+key) && strings.Contains(key, ".") && !strings.Contains(all, "\n"+key+"\n") {
			t.Errorf("--help=all lacks %s", key)
		}
	}
	for _, key := range commonKeys["run"] {
		if !strings.Contains(short, "--"+key) {
			t.Errorf("--help lacks %s", key)
		}
	}
	if n := strings.Count(short, "\n"); n > 60 || !strings.Contains(short, "--help=all") || strings.Contains(all, "--help=all") {
		t.Errorf("--help has %d lines: %s", n, short)
	}
}
