package schema

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamd/incremental"
	"streamd/ingest/wire"
)

// Proposal is a schema that the values of some rows suggest.
type Proposal struct{ columns []*profile }

// profile has what was seen of one column.
type profile struct {
	name   string
	rows   int // also those without a value
	absent int
	counts map[string]int // by value
	order  []string       // values in the order of their first rows
	number bool           // the column is no text: an element of a list
}

// Bounds of what is remembered of a column, and of what is proposed.
const (
	mostCounted    = 1 << 16 // values
	mostCategories = 50      // values of a category
	leastAlike     = 20      // rows below which values that all differ say nothing
	leastIDs       = 200     // whole numbers in no order that all differ
	fewWords       = 2       // words of a text on average above which it is one to hash
	leastBanded    = 2000    // rows for buckets of numbers
	leastValues    = 16      // different numbers for them
	buckets        = 10
)

// Add adds the rows of a block that a decoder with wire.Options.AsTexts has read. names are its
// Texts.
func (p *Proposal) Add(b *incremental.Block, names [][]string) {
	for j, column := range b.Columns {
		name := incremental.DefaultFeature(j)
		if b.Features != nil {
			name = b.Features[j]
		}
		c := p.column(name)
		c.number = c.number || names[j] == nil
		for i := range b.Rows() {
			x := column.At(i)
			c.rows++
			switch {
			case math.IsNaN(x):
				c.absent++
			case names[j] != nil:
				c.count(names[j][int(x)])
			}
		}
	}
}

func (p *Proposal) column(name string) *profile {
	for _, c := range p.columns {
		if c.name == name {
			return c
		}
	}
	c := &profile{name: name, counts: map[string]int{}}
	p.columns = append(p.columns, c)
	return c
}

func (c *profile) count(value string) {
	if _, known := c.counts[value]; !known {
		if len(c.counts) == mostCounted {
			return
		}
		c.order = append(c.order, value)
	}
	c.counts[value]++
}

// Text is the proposal in YAML, with the reason of each line behind it. It is a schema.
func (p *Proposal) Text() string {
	var out strings.Builder
	out.WriteString("features:\n")
	for at := 0; at < len(p.columns); at++ {
		c := p.columns[at]
		if list, length := p.listAt(at); length > 0 {
			fmt.Fprintf(&out, "  %s: {kind: list, length: %d}  # a list of numbers\n", quote(list), length)
			at += length - 1
			continue
		}
		what, why := c.proposed()
		if n := c.rows; c.absent > 0 && c.absent < n {
			why += fmt.Sprintf("; missing in %s", percent(c.absent, n))
		}
		fmt.Fprintf(&out, "  %s: %s  # %s\n", quote(c.name), what, why)
		if bounds := c.bounds(); len(bounds) > 1 && what != string(Ignore) {
			var texts []string
			for _, b := range bounds {
				texts = append(texts, incremental.NumberLabel(b))
			}
			missing := ""
			if c.absent > 0 {
				missing = ", missing: zero"
			}
			fmt.Fprintf(&out, "  %s: {kind: buckets, from: %s, bounds: [%s]%s}  # the same in parts, so that more need not always mean more\n",
				quote(c.name+" part"), quote(c.name), strings.Join(texts, ", "), missing)
		}
	}
	if s, err := Parse([]byte(out.String())); err == nil { // else the caller says so
		n := len(s.Columns())
		fmt.Fprintf(&out, "# %d columns: %s of sums for each class of a block\n", n, size(8*n*(n+1)/2))
	}
	return out.String()
}

// listAt is the list whose elements are the columns from one on, and how many they are.
func (p *Proposal) listAt(at int) (list string, length int) {
	for ; at+length < len(p.columns); length++ {
		c := p.columns[at+length]
		name, ok := strings.CutSuffix(c.name, fmt.Sprintf("[%d]", length))
		if !ok || length > 0 && name != list || !(c.number || c.all(isNumber)) {
			break
		}
		list = name
	}
	return list, length
}

// all reports whether all values are of a kind, and there are some.
func (c *profile) all(of func(string) bool) bool {
	return len(c.order) > 0 && !slices.ContainsFunc(c.order, func(v string) bool { return !of(v) })
}

func isNumber(v string) bool {
	x, err := strconv.ParseFloat(v, 64)
	return err == nil && !math.IsInf(x, 0) && incremental.NumberLabel(x) == v
}

func isBoolean(v string) bool { return v == "true" || v == "false" }

func isTime(v string) bool {
	_, err := time.Parse(time.DateOnly, v)
	if err != nil {
		_, err = time.Parse(time.RFC3339Nano, v)
	}
	return err == nil
}

// proposed is what a column is made of, in YAML, and why.
func (c *profile) proposed() (what, why string) {
	withValue := c.rows - c.absent
	distinct := len(c.order)
	differ := distinct == withValue && withValue >= leastAlike
	missing := func(policy string) string {
		if c.absent == 0 {
			return ""
		}
		return ", missing: " + policy
	}
	switch {
	case c.number:
		return kind(Number, missing(Mean)), "numbers"
	case distinct == 0:
		return string(Ignore), "no row has a value"
	case distinct == 1 && c.absent == 0:
		return string(Ignore), "one value: " + shown(c.order[0])
	case c.all(isBoolean):
		return kind(Bool, missing(Indicator)), "true and false"
	case c.all(isNumber):
		return c.proposedNumber(differ, missing(Mean))
	case c.all(isTime):
		parts := ", parts: [hour, weekday, month]"
		if c.all(func(v string) bool { return len(v) == len(time.DateOnly) }) {
			parts = ", parts: [weekday, month]"
		}
		return kind(Time, parts+missing(Indicator)), "times; add a number from it, if newer rows are unlike older ones"
	}
	words := 0
	for _, v := range c.order {
		words += len(strings.Fields(v))
	}
	isText := words > fewWords*distinct && distinct > mostCategories
	switch {
	case isText:
		return kind(Hash, ", bits: 8, words: true"+missing(Zero)), fmt.Sprintf("texts of %.1f words, %d of them different", float64(words)/float64(distinct), distinct)
	case differ:
		return string(Ignore), fmt.Sprintf("texts, all %d different: an id", distinct)
	}
	values := slices.SortedStableFunc(maps.Keys(c.counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.counts[b], c.counts[a]), cmp.Compare(a, b))
	})
	most := min(len(values), mostCategories)
	rest := 0
	for _, v := range values[most:] {
		rest += c.counts[v]
	}
	values = slices.DeleteFunc(values[:most], func(v string) bool { _, err := wire.Label(v); return err != nil })
	slices.Sort(values)
	for i, v := range values {
		values[i] = quote(v)
	}
	why = fmt.Sprintf("%d values", distinct)
	if rest > 0 {
		why = fmt.Sprintf("the %d most frequent of %d values; the others are in %s of the rows; values: {most: %d} learns them from more rows", most, distinct, percent(rest, withValue), most)
	}
	if text, rows := c.noNumber(); 5*rows < withValue {
		why += fmt.Sprintf("; a number, if it were not for %.40q, and texts in %d of %d rows", text, rows, withValue)
	}
	return kind(Category, fmt.Sprintf(", values: [%s], other: true%s", strings.Join(values, ", "), missing(Own))), why
}

// noNumber returns the first value that is no number, and how many rows have such a value.
func (c *profile) noNumber() (first string, rows int) {
	for _, v := range c.order {
		if !isNumber(v) {
			if first == "" {
				first = v
			}
			rows += c.counts[v]
		}
	}
	return first, rows
}

// proposedNumber is proposed for numbers.
func (c *profile) proposedNumber(differ bool, missing string) (what, why string) {
	numbers := make([]float64, 0, len(c.order))
	whole := true
	for _, v := range c.order {
		x, _ := strconv.ParseFloat(v, 64)
		numbers = append(numbers, x)
		whole = whole && x == math.Trunc(x)
	}
	if differ && whole && (len(numbers) >= leastIDs || inSteps(numbers)) {
		return string(Ignore), fmt.Sprintf("whole numbers, all %d different: an id", len(c.order))
	}
	why = fmt.Sprintf("numbers from %s to %s", incremental.NumberLabel(slices.Min(numbers)), incremental.NumberLabel(slices.Max(numbers)))
	return kind(Number, missing), why
}

// kind writes a kind with its settings, each behind a comma.
func kind(k Kind, settings string) string {
	if settings == "" {
		return string(k)
	}
	return fmt.Sprintf("{kind: %s%s}", k, settings)
}

// inSteps reports whether numbers count on in equal steps.
func inSteps(numbers []float64) bool {
	for i := 2; i < len(numbers); i++ {
		if numbers[i]-numbers[i-1] != numbers[1]-numbers[0] {
			return false
		}
	}
	return true
}

// bounds are those of buckets of about as many rows each, beside the number. They are nil where
// there are too few rows or values. Where half of the rows have the least value, the buckets of the
// others have about as many of those each.
func (c *profile) bounds() (bounds []float64) {
	if c.rows < leastBanded || len(c.order) < leastValues || !c.all(isNumber) {
		return nil
	}
	type value struct {
		x    float64
		rows int
	}
	var all []value
	n := 0
	for _, v := range c.order {
		x, _ := strconv.ParseFloat(v, 64)
		all = append(all, value{x, c.counts[v]})
		n += c.counts[v]
	}
	slices.SortFunc(all, func(a, b value) int { return cmp.Compare(a.x, b.x) })
	if all[0].rows > n/2 {
		n -= all[0].rows
		all = all[1:]
		bounds = append(bounds, all[0].x)
	}
	below, next := 0, 1
	for i, v := range all {
		if i > 0 && below*buckets >= next*n {
			bounds = append(bounds, v.x)
			next = below*buckets/n + 1
		}
		below += v.rows
	}
	return slices.Compact(bounds)
}

func percent(part, of int) string { return inPercent(float64(part) / float64(of)) }

func inPercent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// shown is the start of a value in a comment.
func shown(text string) string { return strings.Trim(quoted(text), "\"") }

// quote writes a name for YAML.
func quote(text string) string {
	plain := text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r == ' ' || r == '_' || r == '.' || r == '-' || r == '/' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z')
	})
	first := byte(0)
	if text != "" {
		first = text[0] | 0x20
	}
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		plain = false
	}
	if plain && first >= 'a' && first <= 'z' && text[len(text)-1] != ' ' {
		return text
	}
	return strconv.Quote(text)
}

// size is a number of bytes in words.
func size(bytes int) string {
	switch {
	case bytes < 10_000:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 10_000_000:
		return fmt.Sprintf("%d KB", bytes/1000)
	}
	return fmt.Sprintf("%d MB", bytes/1_000_000)
}
