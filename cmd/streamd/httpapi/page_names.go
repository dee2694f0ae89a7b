package httpapi

import "slices"

// Names come from outside: a name may be long, be markup, or change the direction of the text
// around it. The page wraps short names and cuts long ones. What is cut is chosen so that names
// that are shown together stay apart: the part in which they differ is kept.

const (
	longName   = 40 // letters of a name that is shown whole
	keptBefore = 6  // letters kept before the first one that differs
)

// nameView is a name and what the page shows of it.
type nameView struct{ Whole, Shown string }

// names has what is shown of the long names of a page.
type names map[string]string

// of returns a name as the page shows it.
func (n names) of(name string) nameView {
	if shown, ok := n[name]; ok {
		return nameView{name, shown}
	}
	return nameView{name, cut([]rune(name), 0)}
}

// add chooses what is shown of long names that stand beside each other.
func (n names) add(together []string) {
	all := slices.Clone(together)
	slices.Sort(all)
	all = slices.Compact(all)
	common := func(i, j int) (letters int) {
		if i < 0 || j == len(all) {
			return 0
		}
		a, b := []rune(all[i]), []rune(all[j])
		for letters < min(len(a), len(b)) && a[letters] == b[letters] {
			letters++
		}
		return letters
	}
	shown := map[string][]string{}
	before := 0 // letters in common with the name before
	for i, name := range all {
		after := common(i, i+1)
		if letters := []rune(name); len(letters) > longName {
			text := cut(letters, max(before, after))
			n[name] = text
			shown[text] = append(shown[text], name)
		}
		before = after
	}
	for _, alike := range shown {
		if len(alike) > 1 { // they differ where they are cut
			for _, name := range alike {
				n[name] = name
			}
		}
	}
}

// cut leaves out letters of a long name, and keeps the one at which it differs from others.
func cut(name []rune, differs int) string {
	if len(name) <= longName {
		return string(name)
	}
	const head, tail = 10, 12
	if differs < longName-tail-1 {
		return string(name[:longName-tail-1]) + "…" + string(name[len(name)-tail:])
	}
	const rest = longName - head - 1
	if from := max(head, differs-keptBefore); len(name)-from > rest {
		return string(name[:head]) + "…" + string(name[from:from+rest-1]) + "…"
	}
	return string(name[:head]) + "…" + string(name[len(name)-rest:])
}
