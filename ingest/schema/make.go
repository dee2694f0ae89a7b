package schema

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// NewMaker implements wire.Schema.
func (s *Schema) NewMaker() wire.Maker {
	return &maker{Schema: s, at: make([][]int32, len(s.made)), out: make([]gram.Column, len(s.columns))}
}

// maker makes the features of blocks, in memory that it uses again.
type maker struct {
	*Schema
	at  [][]int32 // of each feature of a text, by code: the place of its value, or a sign below
	out []gram.Column

	rows  int
	codes arena[uint16]  // of columns of 0 and 1, by feature
	bytes arena[uint8]   // of marks of missing values
	wide  arena[float64] // of numbers
	short arena[int16]   // of counts of words
}

// Codes that are no value of a category.
const (
	undeclared = -1
	isTrue     = 1
	isFalse    = 0
)

// arena is memory for the columns of one block.
type arena[T any] struct{ all, left []T }

// reset makes room for n elements, which are zero.
func (a *arena[T]) reset(n int) {
	const kept = 1 << 16
	if cap(a.all) < n || cap(a.all) > kept && n < cap(a.all)/4 {
		a.all = make([]T, n)
	}
	a.left = a.all[:n]
	clear(a.left)
}

func (a *arena[T]) take(n int) []T {
	out := a.left[:n:n]
	a.left = a.left[n:]
	return out
}

// Make implements wire.Maker.
func (k *maker) Make(m int, in []gram.Column, names [][]string, renewed bool, room int) ([]gram.Column, *wire.Unmade) {
	if renewed {
		clear(k.at)
	}
	k.rows = m
	if need, ok := k.reserve(in, room); !ok {
		return nil, &wire.Unmade{Row: -1, Memory: true, Reason: fmt.Sprintf("its %d rows make %d features, of %d bytes, where there is room for %d: send fewer rows in one, or raise limits.memory", m, len(k.columns), need, room)}
	}
	for i := range k.made {
		f := &k.made[i]
		var bad *wire.Unmade
		switch f.Kind {
		case Number, List:
			for j, source := range f.sources {
				if bad = k.number(f, in[source], j); bad != nil {
					break
				}
			}
		case Bool:
			bad = k.boolean(f, &k.at[i], in, names)
		case Category:
			bad = k.category(f, &k.at[i], in[f.sources[0]], names[f.sources[0]])
		case Buckets:
			bad = k.buckets(f, in[f.sources[0]])
		case Time:
			bad = k.time(f, in[f.sources[0]])
		case Hash:
			bad = k.hash(f, in[f.sources[0]], names[f.sources[0]])
		case Interaction:
			k.interaction(f)
		}
		if bad != nil {
			if bad.Source == "" {
				bad.Source = k.sources[f.sources[0]].Name
			}
			return nil, bad
		}
	}
	return k.out, nil
}

// passes reports whether the column of a number is the feature as it is.
func (k *maker) passes(f *made, source int) bool {
	return f.Missing == "" && !f.Log1p && f.Clip == nil && !k.sources[source].Gaps
}

// reserve makes room for all columns. It is not ok if they need more bytes than there is room for.
func (k *maker) reserve(in []gram.Column, room int) (need int, ok bool) {
	bytes, wide, short, codes := 0, 0, 0, 0
	for i := range k.made {
		f := &k.made[i]
		switch {
		case f.Kind == Number || f.Kind == List:
			for _, source := range f.sources {
				if !k.passes(f, source) {
					wide++
				}
			}
		case f.Kind == Hash:
			short += len(f.columns)
		case k.isBinary(f):
			codes++
		default:
			wide += len(f.columns)
		}
		if f.marks >= 0 {
			bytes++
		}
	}
	if k.rows > math.MaxInt/8/max(1, bytes+wide+short+codes) {
		return math.MaxInt, false
	}
	if need = k.rows * (bytes + 2*short + 2*codes + 8*wide); need > room {
		return need, false
	}
	k.codes.reset(k.rows * codes)
	k.bytes.reset(k.rows * bytes)
	k.wide.reset(k.rows * wide)
	k.short.reset(k.rows * short)
	return need, true
}

// isBinary reports whether the feature's columns are indicators, of which a row has at most one.
func (k *maker) isBinary(f *made) bool {
	switch f.Kind {
	case Bool, Category, Buckets:
		return true
	case Interaction:
		return k.isBinary(&k.made[f.of[0]]) && k.isBinary(&k.made[f.of[1]])
	}
	return false
}

// noColumn is the code of rows where all of a feature's indicators are 0. Others are the places of
// the columns.
const noColumn = maxColumns

// newCodes are the codes of a feature's indicators.
func (k *maker) newCodes(f *made) []uint16 {
	codes := k.codes.take(k.rows)
	for code, at := range f.at {
		k.out[at] = gram.IndicatorColumn(codes, uint16(code))
	}
	return codes
}

const missing = "the value is missing: send one, or say in the schema what missing values count as"

// values are the numbers of a column, converted where they are not float64.
func (k *maker) values(c gram.Column) []float64 {
	if values, ok := gram.Values[float64](c); ok {
		return values
	}
	out := make([]float64, c.Len())
	c.Copy(out, 0)
	return out
}

// newMarks are the marks of missing values of a feature; nil: it has none.
func (k *maker) newMarks(f *made) []uint8 {
	if f.marks < 0 {
		return nil
	}
	marks := k.bytes.take(k.rows)
	k.out[f.marks] = gram.ColumnOf(marks)
	return marks
}

// number makes column j of a number or a list.
func (k *maker) number(f *made, c gram.Column, j int) *wire.Unmade {
	to := f.at[j]
	if k.passes(f, f.sources[j]) {
		k.out[to] = c
		return nil
	}
	values := k.wide.take(k.rows)
	c.Copy(values, 0)
	k.out[to] = gram.ColumnOf(values)
	marks := k.newMarks(f)
	for i, x := range values {
		if x != x {
			if f.Missing == "" {
				return &wire.Unmade{Row: i, Source: k.sources[f.sources[j]].Name, Reason: missing}
			}
			if marks != nil {
				marks[i] = 1
			}
			values[i] = f.value
			continue
		}
		if f.Clip != nil {
			x = min(max(x, f.Clip[0]), f.Clip[1])
		}
		if f.Log1p {
			if x <= -1 {
				return &wire.Unmade{Row: i, Source: k.sources[f.sources[j]].Name, Reason: fmt.Sprintf("%v has no log1p, which takes numbers above -1: clip it", x)}
			}
			x = log1p(x)
		}
		values[i] = x
	}
	return nil
}

// boolean makes the column of a bool, of numbers or of texts.
func (k *maker) boolean(f *made, at *[]int32, in []gram.Column, names [][]string) *wire.Unmade {
	source := f.sources[0]
	text := names[source]
	codes := k.newCodes(f)
	marks := k.newMarks(f)
	for len(*at) < len(text) {
		*at = append(*at, f.truth(text[len(*at)]))
	}
	for i, x := range k.values(in[source]) {
		codes[i] = noColumn
		is := x
		switch {
		case x != x:
			if f.Missing == "" {
				return &wire.Unmade{Row: i, Reason: missing}
			}
			if marks != nil {
				marks[i] = 1
			}
			continue
		case k.sources[source].Text:
			is = float64((*at)[int(x)])
			if is == undeclared {
				return &wire.Unmade{Row: i, Reason: fmt.Sprintf("%s is neither of the texts that are true nor of those that are false in the schema", quoted(text[int(x)]))}
			}
		}
		if is != 0 && is != 1 {
			return &wire.Unmade{Row: i, Reason: fmt.Sprintf("%v is neither 0 nor 1: name the texts of true and false in the schema", x)}
		}
		if is == 1 {
			codes[i] = 0
		}
	}
	return nil
}

// nameOf is the name of a value, of which a column that is hashed, too, has the text.
func nameOf(text string) string {
	if name, err := wire.Label(text); err == nil {
		return name
	}
	return text
}

// truth is what a text means.
func (f *made) truth(text string) int32 {
	name := nameOf(text)
	switch trues, falses := f.Truths(); {
	case slices.Contains(trues, name):
		return isTrue
	case slices.Contains(falses, name):
		return isFalse
	}
	return undeclared
}

// category makes a column for each value.
func (k *maker) category(f *made, places *[]int32, c gram.Column, names []string) *wire.Unmade {
	if len(*places) < len(names) {
		place := make(map[string]int32, len(f.Values))
		for i, value := range f.Values {
			place[value] = int32(i)
		}
		for _, name := range names[len(*places):] {
			at, ok := place[nameOf(name)]
			switch {
			case ok:
			case f.Other:
				at = int32(len(f.Values))
			default:
				at = undeclared
			}
			*places = append(*places, at)
		}
	}
	absent := noColumn // the place of a missing value
	switch f.Missing {
	case Own:
		absent = len(f.columns) - 1
	case Other:
		absent = len(f.Values)
	}
	codes := k.newCodes(f)
	for i, x := range k.values(c) {
		at := absent
		switch {
		case x == x:
			if at = int((*places)[int(x)]); at == undeclared {
				return &wire.Unmade{Row: i, Reason: fmt.Sprintf("%s is none of the values of category %q in the schema: add it, or say other: true", quoted(names[int(x)]), f.name)}
			}
		case f.Missing == "":
			return &wire.Unmade{Row: i, Reason: missing}
		}
		codes[i] = uint16(at)
	}
	return nil
}

// buckets makes a column for each bucket.
func (k *maker) buckets(f *made, c gram.Column) *wire.Unmade {
	codes := k.newCodes(f)
	for i, x := range k.values(c) {
		at := noColumn
		switch {
		case x == x: // the first bound above x ends its bucket
			for at = 0; at < len(f.Bounds) && f.Bounds[at] <= x; at++ {
			}
		case f.Missing == "":
			return &wire.Unmade{Row: i, Reason: missing}
		case f.Missing == Own:
			at = len(f.columns) - 1
		}
		codes[i] = uint16(at)
	}
	return nil
}

// time makes a sine and a cosine for each part.
func (k *maker) time(f *made, c gram.Column) *wire.Unmade {
	m := k.rows
	all := k.wide.take(m * len(f.columns))
	for j, at := range f.at {
		k.out[at] = gram.ColumnOf(all[j*m : (j+1)*m])
	}
	marks := k.newMarks(f)
	for i, x := range k.values(c) {
		if x != x {
			if f.Missing == "" {
				return &wire.Unmade{Row: i, Reason: missing}
			}
			if marks != nil {
				marks[i] = 1
			}
			continue
		}
		const first, last = -62167219200, 253402300799 // seconds of the years 0 and 9999
		if !(x >= first && x <= last) {
			return &wire.Unmade{Row: i, Reason: fmt.Sprintf("%v is no time in the years 0 to 9999, in seconds since 1970", x)}
		}
		t := time.Unix(int64(math.Floor(x)), 0).In(f.zone)
		for j, part := range f.parts {
			place, of := part(t)
			all[2*j*m+i], all[(2*j+1)*m+i] = circle[of][place][0], circle[of][place][1]
		}
	}
	return nil
}

// hash counts words.
func (k *maker) hash(f *made, c gram.Column, names []string) *wire.Unmade {
	m, n := k.rows, len(f.columns)
	count := func(counts []int16, word string) {
		column, sign := hashed(word, n)
		if f.Signed != nil {
			sign = 1
		}
		counts[column*m] += sign
	}
	counts := k.short.take(m * n)
	for j, at := range f.at {
		k.out[at] = gram.ColumnOf(counts[j*m : (j+1)*m])
	}
	for i, x := range k.values(c) {
		if x != x {
			if f.Missing == "" {
				return &wire.Unmade{Row: i, Reason: missing}
			}
			continue
		}
		if !f.Words {
			count(counts[i:], names[int(x)])
			continue
		}
		for word := range strings.FieldsSeq(names[int(x)]) { // fewer than 2^15: see wire.Source
			count(counts[i:], word)
		}
	}
	return nil
}

// interaction multiplies columns, which have been made.
func (k *maker) interaction(f *made) {
	a, b := &k.made[f.of[0]], &k.made[f.of[1]]
	if k.isBinary(f) {
		x, _, _ := k.out[a.at[0]].Codes()
		y, _, _ := k.out[b.at[0]].Codes()
		for i, codes := 0, k.newCodes(f); i < k.rows; i++ {
			codes[i] = noColumn
			if x[i] != noColumn && y[i] != noColumn {
				codes[i] = x[i]*uint16(len(b.at)) + y[i]
			}
		}
		return
	}
	j := 0
	for _, i := range a.at {
		x := k.values(k.out[i])
		for _, l := range b.at {
			values := k.wide.take(k.rows)
			for i, y := range k.values(k.out[l]) {
				values[i] = x[i] * y
			}
			k.out[f.at[j]] = gram.ColumnOf(values)
			j++
		}
	}
}

// quoted shows the start of a text in an error.
func quoted(text string) string {
	const shown = 40
	if len(text) > shown {
		return fmt.Sprintf("%.*q…", shown, text)
	}
	return fmt.Sprintf("%q", text)
}
