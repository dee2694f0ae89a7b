package wire

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"streamd/incremental"
)

// maxIgnored bounds the columns of a payload that are not learned from.
const maxIgnored = 4096

// CheckPattern says why a text is no pattern of names. Patterns are those of path.Match,
// in which * also stands for no character and does not reach across a slash.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q is not a pattern: want a name in which * stands for any characters, ? for one, and [a-z] for one of several", pattern)
	}
	return nil
}

// Matches reports whether one of the patterns, which have been checked, matches a name.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, _ := path.Match(pattern, name)
		return matches
	})
}

// PatternOf is the pattern that matches a name alone.
func PatternOf(name string) string { return escapes.Replace(name) }

var escapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// choice tells the columns that are learned from the others.
type choice struct {
	scattered bool // the features are some places of columns without names

	// ignored has names that were met, so that no pattern is matched for each row.
	ignored map[string]bool

	// Columns without names. Position i is column places[i], or roleIgnored. Nil: it is
	// column i.
	byPlace bool
	places  []int
	width   int      // columns of places
	names   []string // of these columns, where they are not fixed

	scratch []byte
}

// choose prepares the choice of columns.
func (b *builder) choose() {
	b.gapped = b.opts.Missing.Any()
	b.choice.scattered = b.want.scattered()
	b.choice.byPlace = len(b.opts.Ignore) > 0 || b.choice.scattered
}

// scattered is whether the features have names of columns without names, but are not all
// of these up to the last one in their order.
func (f *features) scattered() bool {
	inOrder := true
	for j, name := range f.list {
		if placeOf(name) < 0 {
			return false
		}
		inOrder = inOrder && name == incremental.DefaultFeature(j)
	}
	return !inOrder
}

// placeOf is the place of the column without a name that is named so; -1: none is.
func placeOf(name string) int {
	digits, ok := strings.CutPrefix(name, "x")
	if n, err := strconv.Atoi(digits); ok && err == nil && n > 0 && incremental.DefaultFeature(n-1) == name {
		return n - 1
	}
	return -1
}

// ignores is whether a column that is none of the features, if they are fixed, is passed
// over.
func (b *builder) ignores(name []byte, fixed bool) bool {
	if fixed && b.opts.IgnoreUnknown {
		return true
	}
	if len(b.opts.Ignore) == 0 {
		return false
	}
	ignored, met := b.choice.ignored[string(name)]
	if met {
		return ignored
	}
	// The string views the name, which Match does not keep.
	ignored = Matches(b.opts.Ignore, unsafe.String(unsafe.SliceData(name), len(name)))
	if len(name) <= maxName {
		if b.choice.ignored == nil || len(b.choice.ignored) >= maxIgnored {
			b.choice.ignored = map[string]bool{}
		}
		b.choice.ignored[string(name)] = ignored
	}
	return ignored
}

// mostColumns bounds the columns of a payload: the features, the label and the weight, and
// those that are ignored.
func (b *builder) mostColumns() int {
	n := b.opts.Limits.Features + 2
	if len(b.opts.Ignore) > 0 || b.opts.IgnoreUnknown && b.want.list != nil {
		n += maxIgnored
	}
	return n
}

// place matches a block's names with the wanted features: column at[j] has name j, unless
// that is roleIgnored. Names are those of the columns. An error names a missing or an
// unknown feature.
func (b *builder) place(list [][]byte) (at []int, names []string, err *Error) {
	fixed := b.want.list != nil
	at = make([]int, len(list))
	given := make(map[string]bool, len(list))
	for j, name := range list {
		to, known := b.want.index[string(name)]
		if reason := b.reserved(string(name)); reason != "" {
			return nil, nil, b.fail(-1, string(name), "%s", reason)
		}
		if !known && b.ignores(name, fixed) {
			at[j] = roleIgnored
			continue
		}
		if reason := badName(name); reason != "" {
			return nil, nil, b.fail(-1, "", "column %d: %s", j+1, reason)
		}
		switch {
		case given[string(name)]:
			return nil, nil, b.fail(-1, string(name), "the name is used twice")
		case fixed && !known:
			return nil, nil, b.fail(-1, string(name), "%s", unknownFeature+likeHint(string(name), slices.Values(b.want.list)))
		case !fixed:
			to = len(names)
		}
		at[j] = to
		names = append(names, string(name))
		given[string(name)] = true
	}
	if fixed {
		for _, name := range b.want.list {
			if !given[name] {
				return nil, nil, b.fail(-1, name, "the feature is missing%s", likeHint(name, textsOf(list)))
			}
		}
		return at, b.want.list, nil
	}
	if one, other := lookingAlike(names); one != "" {
		return nil, nil, b.fail(-1, other, twoAlike, one, other)
	}
	if n := len(names); b.want.width != 0 && n != b.want.width {
		return nil, nil, b.fail(-1, "", "there %s, want %d", areFeatures(n), b.want.width)
	}
	return at, names, nil
}

const twoAlike = "two names look alike, %+q and %+q: rename one of the columns, or ignore it"

const unknownFeature = "the feature is unknown, and unknown ones are not ignored"

// placeNameless is place for columns without names.
func (b *builder) placeNameless(n int) (at []int, names []string, err *Error) {
	if b.choice.scattered {
		list := make([][]byte, n)
		for j := range list {
			list[j] = []byte(incremental.DefaultFeature(j))
		}
		return b.place(list)
	}
	width := 0
	for j := range n {
		if b.choice.byPlace && Matches(b.opts.Ignore, incremental.DefaultFeature(j)) {
			at = append(at, roleIgnored)
			continue
		}
		if b.choice.byPlace {
			names = append(names, incremental.DefaultFeature(j))
		}
		at = append(at, width)
		width++
	}
	if b.want.width != 0 && width != b.want.width {
		return nil, nil, b.fail(-1, "", "there %s, want %d", areFeatures(width), b.want.width)
	}
	if b.want.list != nil {
		names = b.want.list
	}
	return at, names, nil
}

// columnAt is the column of place i of a row whose length is not known, or roleIgnored, or
// roleUnknown.
func (b *builder) columnAt(i int) int {
	c := &b.choice
	switch {
	case !c.byPlace && b.want.width != 0 && i >= b.want.width:
		return b.unknownRole()
	case !c.byPlace:
		return i
	case i >= b.opts.Limits.Features+maxIgnored: // beyond the table
		return b.placed(i)
	}
	for k := len(c.places); k <= i; k++ {
		to := b.placed(k)
		if to == c.width {
			c.width++
			c.names = append(c.names, incremental.DefaultFeature(k))
		}
		c.places = append(c.places, to)
	}
	return c.places[i]
}

// placed is the column of a place that is not in the table.
func (b *builder) placed(i int) int {
	c := &b.choice
	c.scratch = strconv.AppendInt(append(c.scratch[:0], 'x'), int64(i+1), 10)
	to, known := b.want.index[string(c.scratch)]
	switch {
	case c.scattered && known:
		return to
	case c.scattered:
		if b.ignores(c.scratch, true) {
			return roleIgnored
		}
		return roleUnknown
	case b.ignores(c.scratch, false):
		return roleIgnored
	case i > len(c.places) || b.want.width != 0 && c.width >= b.want.width:
		return b.unknownRole()
	}
	return c.width
}

func (b *builder) unknownRole() int {
	if b.opts.IgnoreUnknown {
		return roleIgnored
	}
	return roleUnknown
}
