package config

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// WriteYAML writes the effective configuration as a file that loads to the same values. A
// comment behind each value names its source. Secrets are left out; the names of their
// files are not.
func (c *Config) WriteYAML(w io.Writer) error {
	out := bufio.NewWriter(w)
	writeSections(out, func(k *key, indent string) {
		fmt.Fprintf(out, "%s%s: %s  # %s\n", indent, k.last(), formatYAML(k.in(c)), c.origins[k.Name])
	})
	return out.Flush()
}

// String is default, file:line:column, the variable or the flag.
func (o origin) String() string {
	switch {
	case o.Source == "":
		return "default"
	case o.Line > 0:
		return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
	default:
		return o.Source
	}
}

// writeSections writes the headers of the sections with an empty line between two, and calls
// line for every key.
func writeSections(out io.Writer, line func(k *key, indent string)) {
	var open []string
	for i, k := range table {
		var path []string
		if s := k.section(); s != "" {
			path = strings.Split(s, ".")
		}
		if i > 0 && k.section() != table[i-1].section() {
			fmt.Fprintln(out)
		}
		for depth, name := range path {
			if depth >= len(open) || open[depth] != name {
				fmt.Fprintf(out, "%s%s:\n", strings.Repeat("  ", depth), name)
				open = open[:min(depth, len(open))] // the sections below are closed
			}
		}
		open = path
		line(k, strings.Repeat("  ", len(path)))
	}
}

// last is the part of the name after the last dot.
func (k *key) last() string { return k.Name[strings.LastIndexByte(k.Name, '.')+1:] }

// plain matches texts that YAML readers take for strings, and reserved the exceptions among
// them.
var (
	plain    = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)
	reserved = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null)$`)
)

func yamlText(text string) string {
	if plain.MatchString(text) && !reserved.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// formatYAML writes a value on one line.
func formatYAML(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = formatYAML(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Map:
		parts := make([]string, 0, v.Len())
		for entry := v.MapRange(); entry.Next(); {
			parts = append(parts, yamlText(entry.Key().String())+": "+formatYAML(entry.Value()))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.String:
		return yamlText(v.String())
	case reflect.Pointer: // a schema, whose JSON is YAML, too
		if text := formatScalar(v); text != "" {
			return text
		}
		return "{}"
	default:
		return formatScalar(v)
	}
}
