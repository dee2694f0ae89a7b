package wire

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"streamd/incremental"
	"streamd/incremental/gram"
)

// maxName bounds the name of a feature, in bytes.
const maxName = 256

// badName is the reason why a peer's name cannot be a feature's, or "".
func badName(name []byte) string {
	switch {
	case len(name) == 0:
		return "a feature has an empty name, as the index of a data frame has: leave it out, or ignore it by selecting the features"
	case len(name) > maxName:
		return fmt.Sprintf("the name of feature %s has %d bytes, the limit is %d", quoted(name), len(name), maxName)
	case !utf8.Valid(name):
		return fmt.Sprintf("the name of feature %s is not valid UTF-8", quoted(name))
	}
	return ""
}

// CheckFeatures says why a peer's names cannot be those of the features of a block.
func CheckFeatures(list []string) error {
	for _, name := range list {
		if reason := badName([]byte(name)); reason != "" {
			return errors.New(reason)
		}
	}
	if _, twice := newNames(list); twice != "" {
		return fmt.Errorf("feature %q is named twice", twice)
	}
	if one, other := lookingAlike(list); one != "" {
		return fmt.Errorf(twoAlike, one, other)
	}
	return nil
}

// lookingAlike returns two of the names that differ in their Unicode form alone, such as é in one
// and in two characters. Nobody sees that they are two.
func lookingAlike(names []string) (a, b string) {
	var forms map[string]string
	for i, name := range names {
		form := norm.NFC.String(name)
		if forms == nil {
			if form == name && isASCII(name) {
				continue
			}
			forms = make(map[string]string, len(names))
			for _, earlier := range names[:i] {
				forms[earlier] = earlier
			}
		}
		if other, ok := forms[form]; ok && other != name {
			return other, name
		}
		forms[form] = name
	}
	return "", ""
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// likeHint is the end of an error about a name that is not there: one of the others, if it looks
// alike, but for its Unicode form, invisible signs, blanks or case.
func likeHint(name string, others iter.Seq[string]) string {
	fold := func(s string) string {
		return strings.ToLower(strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) || r == '_' || r == '-' {
				return -1
			}
			return r
		}, norm.NFKC.String(s)))
	}
	const most = 256 // of a payload that is refused, and others like it
	wanted, looked := fold(name), 0
	for other := range others {
		if looked++; looked > most {
			break
		}
		if other != name && fold(other) == wanted {
			return fmt.Sprintf("; there is %+q, which %s, but is not %+q", other, looksAlike, name)
		}
	}
	return ""
}

const looksAlike = "looks alike"

// textsOf are the texts of a list of fields.
func textsOf(list [][]byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, b := range list {
			if !yield(string(b)) {
				return
			}
		}
	}
}

// appendElement appends the name of element j of a list of features.
func appendElement(dst, list []byte, j int) []byte {
	return append(strconv.AppendInt(append(append(dst, list...), '['), int64(j), 10), ']')
}

// featureName is the name of column j in errors.
func featureName(names []string, j int) string {
	if j < len(names) {
		return names[j]
	}
	return incremental.DefaultFeature(j)
}

// names is an immutable list of distinct names.
type names struct {
	list  []string
	index map[string]int
	plain bool // none needs an escape in JSON
}

// newNames indexes a list, which it keeps, or returns a name that is in it twice.
func newNames(list []string) (n names, twice string) {
	n = names{list: list, index: make(map[string]int, len(list)), plain: true}
	for j, name := range list {
		n.plain = n.plain && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' })
		if _, ok := n.index[name]; ok {
			return names{}, name
		}
		n.index[name] = j
	}
	return n, ""
}

// features are the columns that a block must have: these names in this order, or just
// so many columns, or any.
type features struct {
	names     // nil list: not fixed
	width int // 0: not fixed; else the number of names if there are any

	columns []string // the names with those of marks of missing values; nil: not fixed
}

// ordered puts features into their canonical order.
type ordered struct {
	from    []string // the last block's names in their order in the payload
	names   []string // in canonical order
	at      []int    // per name its place in from
	columns []gram.Column
}

// features returns names and columns in the order of the names. The columns are valid
// until the next call. Nil names have no order.
func (o *ordered) features(names []string, columns []gram.Column) ([]string, []gram.Column) {
	if slices.IsSortedFunc(names, incremental.CompareFeatures) {
		return names, columns
	}
	if !slices.Equal(names, o.from) {
		o.at = make([]int, len(names))
		for j := range o.at {
			o.at[j] = j
		}
		slices.SortFunc(o.at, func(i, j int) int { return incremental.CompareFeatures(names[i], names[j]) })
		o.from, o.names = names, make([]string, len(names))
		for j, i := range o.at {
			o.names[j] = names[i]
		}
	}
	o.columns = o.columns[:0]
	for _, i := range o.at {
		o.columns = append(o.columns, columns[i])
	}
	return o.names, o.columns
}
