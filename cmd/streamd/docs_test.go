//go:build !production

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// documents returns the Markdown files of the checkout by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	return textsOf(t, ".md")
}

// textsOf returns the files of the checkout whose names end so, by their paths.
func textsOf(t *testing.T, extension string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != top {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == extension {
			texts[path] = readFile(t, path)
		}
		return err
	})
	if err != nil || len(texts) < 5 {
		t.Fatalf("%d files with %s: %v", len(texts), extension, err)
	}
	return texts
}

// Lines of comments have at most 100 characters, a tab counting as four. Tables may have more.
func TestCommentsFitTheirLines(t *testing.T) {
	for path, text := range textsOf(t, ".go") {
		if strings.HasPrefix(text, "// Code generated") {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			wide := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > 100
			if words := strings.TrimLeft(line, "\t"); wide && strings.HasPrefix(words, "// ") {
				t.Errorf("%s:%d is a comment of more than 100 characters", path, i+1)
			}
		}
	}
}

// Every relative link of the documents leads to a file, and to a heading of it.
func TestDocumentsLink(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped := regexp.MustCompile(`[^\pL\pN_ -]`)
	texts, links := documents(t), 0
	for path, text := range texts {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			name, anchor, _ := strings.Cut(found[1], "#")
			target := path
			if name != "" {
				target = filepath.Join(filepath.Dir(path), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, found[1], err)
				continue
			}
			known := anchor == ""
			for _, h := range heading.FindAllStringSubmatch(texts[target], -1) {
				known = known || strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == anchor
			}
			if !known {
				t.Errorf("%s links to %s, which has no such heading", path, found[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("%d links were found", links)
	}
}

// The documents name commands, flags and keys of the configuration that exist.
func TestDocumentsNameCommandsAndKeys(t *testing.T) {
	command := regexp.MustCompile("(?m)(?:^    |`)(?:\\./)?(?:streamd |(bench |demo ))([a-z][^`\n]*(?:\\\\\n[^`\n]*)*)")
	end := regexp.MustCompile(`\s(?:#|\||>|&).*`)
	key := regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)+)(?::[^`]*)?`")
	file := regexp.MustCompile(`\.(go|sh|log|db|properties|pub)$`)
	keys := exampleKeys(t)
	sections := map[string]bool{}
	for name := range keys {
		section, _, _ := strings.Cut(name, ".")
		sections[section] = true
	}
	commands, named := 0, 0
	for path, text := range documents(t) {
		for _, found := range command.FindAllStringSubmatch(text, -1) {
			line := found[1] + strings.ReplaceAll(found[2], "\\\n", " ")
			line = end.ReplaceAllString(line, "")
			if strings.Contains(line, "COMMAND") || filepath.Base(path) == "FORMAT.md" { // its magic words look like commands
				continue
			}
			commands++
			t.Run(path, func(t *testing.T) { parses(t, strings.Fields(strings.ReplaceAll(line, "'", ""))...) })
		}
		for _, found := range key.FindAllStringSubmatch(text, -1) {
			if section, _, _ := strings.Cut(found[1], "."); sections[section] && !file.MatchString(found[1]) {
				named++
				if !keys[found[1]] {
					t.Errorf("%s names the key %s, which there is not", path, found[1])
				}
			}
		}
	}
	if commands < 40 || named < 40 {
		t.Errorf("%d commands and %d keys were found", commands, named)
	}
}

// exampleKeys returns the keys and the sections of the example of a configuration.
func exampleKeys(t *testing.T) map[string]bool {
	line := regexp.MustCompile(`(?m)^( *)#?([a-z_]+):(?: |$)`)
	keys := map[string]bool{}
	var path []string
	for _, found := range line.FindAllStringSubmatch(readFile(t, top, "config/streamd.example.yaml"), -1) {
		path = append(path[:len(found[1])/2], found[2])
		keys[strings.Join(path, ".")] = true
	}
	return keys
}

// The README is a page, and those of the configuration can be read.
func TestDocumentsAreShort(t *testing.T) {
	for path, text := range documents(t) {
		lines := strings.Split(text, "\n")
		most := 200
		switch dir := filepath.Dir(path); {
		case dir == top:
			most = 150
			if words := len(strings.Fields(text)); words > 1600 {
				t.Errorf("%s has %d words", path, words)
			}
		case dir != filepath.Join(top, "config"):
			continue
		default:
			for i, line := range lines {
				if n := utf8.RuneCountInString(line); n > 600 && !strings.HasPrefix(line, "|") {
					t.Errorf("%s:%d has %d characters", path, i+1, n)
				}
			}
		}
		if len(lines) > most+1 {
			t.Errorf("%s has %d lines, more than %d", path, len(lines)-1, most)
		}
	}
}
