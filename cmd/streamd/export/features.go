package export

import (
	"fmt"
	"math"
	"slices"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

// missingTexts stand for a missing value: see wire.IsMissing.
var missingTexts = []string{"", "NA", "NaN", "nan", "null", "NULL", "None"}

// refused is a number of a row that is refused.
var refused = constant(math.NaN())

// features is the vector of the classifier's features. It lists the columns of the rows.
func (p *Program) features(by *model.Classifier) (*node, error) {
	if by.Schema != nil {
		return p.made(by.Schema)
	}
	base := by.Missing.Base(by.Features)
	place := map[string]int{}
	var at []int
	var fill []float64
	for j, name := range base {
		place[name] = j
		p.columns = append(p.columns, Column{Name: name})
		p.lacking = append(p.lacking, by.Missing.Of(name) != wire.MissingReject)
		at, fill = append(at, j), append(fill, 0)
		if by.Missing.Of(name) == wire.MissingReject {
			fill[j] = math.NaN()
		}
	}
	row := &node{op: opNumbers, width: len(at), at: at}
	if !by.Missing.Any() {
		return row, nil
	}
	missing := elementwise(opMissing, row)
	for _, name := range base { // marks stand behind all features
		place[incremental.MissingName(name)] = len(base) + place[name]
	}
	for j, name := range base { // but a feature keeps its own place
		place[name] = j
	}
	var order []int
	for _, name := range by.Features {
		order = append(order, place[name])
	}
	filled := where(missing, constant(fill...), row)
	if slices.Max(order) < len(base) {
		return pick(filled, order), nil
	}
	return pick(concat(filled, elementwise(opNumber, missing)), order), nil
}

// made is the features that a schema makes.
func (p *Program) made(s *schema.Schema) (*node, error) {
	for _, source := range s.Sources() {
		p.columns = append(p.columns, Column{Name: source.Name, Text: source.Text})
		p.lacking = append(p.lacking, source.Gaps)
	}
	if learns := s.Learns(); len(learns) > 0 {
		return nil, fmt.Errorf("the values of category %q are still to learn: POST /v1/features/learn makes the list of the live rows", learns[0])
	}
	known := map[string]*node{}
	numbers := func(at ...int) *node { // one node for features of the same columns
		key := fmt.Sprint(at)
		if known[key] == nil {
			known[key] = &node{op: opNumbers, width: len(at), at: at}
		}
		return known[key]
	}
	text := make([]*node, len(p.columns)) // by source
	for i, c := range p.columns {
		if c.Text {
			text[i] = &node{op: opText, width: 1, at: []int{i}}
		}
	}
	var parts []*node
	var columns []int // of the parts, their places among the features
	var plain []int   // sources of numbers that are features as they are, or with another value
	var fill []float64
	var plainAt []int
	var marks []*node
	var marksAt []int
	features := s.Made()
	vectors := make([]*node, len(features)) // those of interactions are made of them
	for i := range features {
		f := &features[i]
		if f.Kind == schema.Hash || f.Kind == schema.Time {
			return nil, fmt.Errorf("feature %q is a %s, which other runtimes do not compute as streamd does: a model without it can be exported", f.Name, f.Kind)
		}
		if f.Kind == schema.Interaction {
			a, b := vectors[f.Parts[0]], vectors[f.Parts[1]]
			var left, right []int
			for j := range a.width {
				for l := range b.width {
					left, right = append(left, j), append(right, l)
				}
			}
			vectors[i] = elementwise(opMul, pick(a, left), pick(b, right))
			parts, columns = append(parts, vectors[i]), append(columns, f.At...)
			continue
		}
		absent := refused // what a missing value counts as
		if f.Missing != "" {
			absent = constant(f.Value)
		}
		var missing *node
		source := f.Sources[0]
		if text[source] != nil {
			missing = reduced(opMissing, text[source])
		} else {
			missing = elementwise(opMissing, numbers(f.Sources...))
		}
		switch f.Kind {
		case schema.Number, schema.List:
			x := numbers(f.Sources...)
			if f.Clip != nil || f.Log1p {
				if f.Clip != nil {
					x = elementwise(opLeast, elementwise(opMost, x, constant(f.Clip[0])), constant(f.Clip[1]))
				}
				if f.Log1p {
					x = where(elementwise(opLess, constant(-1), x), elementwise(opLog1p, x), refused)
				}
				vectors[i] = where(missing, absent, x)
				break
			}
			if vectors[i] = x; f.Missing != "" {
				vectors[i] = where(missing, absent, x)
			}
			plain, plainAt = append(plain, f.Sources...), append(plainAt, f.At...)
			fill = append(fill, slices.Repeat(absent.numbers, len(f.At))...)
		case schema.Bool:
			is := func(value float64) *node { return elementwise(opEqual, numbers(source), constant(value)) }
			if text[source] != nil {
				of := func(texts []string) *node {
					if len(texts) == 0 {
						return elementwise(opEqual, constant(0), constant(1)) // none is
					}
					return elementwise(opEqual, reduced(opSum, isText(text[source], texts)), constant(1))
				}
				trues, falses := f.Truths()
				is = func(value float64) *node {
					if value == 1 {
						return of(trues)
					}
					return of(falses)
				}
			}
			vectors[i] = where(missing, absent, where(is(1), constant(1), where(is(0), constant(0), refused)))
		case schema.Category:
			vectors[i] = category(f, text[source], missing)
		case schema.Buckets:
			vectors[i] = buckets(f, numbers(source), missing)
		}
		if f.Marks >= 0 {
			marks, marksAt = append(marks, elementwise(opNumber, missing)), append(marksAt, f.Marks)
		}
		if f.Kind == schema.Number || f.Kind == schema.List {
			if f.Clip == nil && !f.Log1p {
				continue // it is among the plain ones
			}
		}
		parts, columns = append(parts, vectors[i]), append(columns, f.At...)
	}
	if len(plain) > 0 {
		x := numbers(plain...)
		if slices.ContainsFunc(fill, func(v float64) bool { return !math.IsNaN(v) }) {
			x = where(elementwise(opMissing, x), constant(fill...), x)
		}
		parts, columns = append(parts, x), append(columns, plainAt...)
	}
	parts, columns = append(parts, marks...), append(columns, marksAt...)
	order := make([]int, len(columns))
	for i, at := range columns {
		order[at] = i
	}
	return pick(concat(parts...), order), nil
}

func isText(text *node, texts []string) *node {
	return &node{op: opIs, width: len(texts), args: []*node{text}, texts: texts}
}

// category is 1 in the column of the row's value.
func category(f *schema.Made, text, missing *node) *node {
	is := isText(text, f.Values)
	known := reduced(opSum, is)
	// A number that is added to each column: NaN for a row that is refused.
	absent, undeclared := constant(0), constant(0)
	if f.Missing == "" {
		absent = refused
	}
	if !f.Other {
		undeclared = where(elementwise(opEqual, known, constant(1)), constant(0), refused)
	}
	parts := []*node{elementwise(opAdd, is, where(missing, absent, undeclared))}
	if f.Other {
		other := 0.0
		if f.Missing == schema.Other {
			other = 1
		}
		parts = append(parts, where(missing, constant(other), elementwise(opSub, constant(1), known)))
	}
	if f.Missing == schema.Own {
		parts = append(parts, elementwise(opNumber, missing))
	}
	return concat(parts...)
}

// buckets is 1 in the column of the bucket that the number is in.
func buckets(f *schema.Made, x, missing *node) *node {
	n := len(f.Bounds)
	// With g_i = 1 for x ≥ bound i, bucket i is g_{i−1} − g_i, where g before the first bound is 1
	// and behind the last one 0.
	g := elementwise(opNumber, elementwise(opAtMost, constant(f.Bounds...), x))
	var left, right []int
	begin, end, first := make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	first[0] = 1
	for i := range n + 1 {
		left, right = append(left, max(i-1, 0)), append(right, min(i, n-1))
		if i > 0 {
			begin[i] = 1
		}
		if i < n {
			end[i] = 1
		}
	}
	b := elementwise(opSub, elementwise(opMul, pick(g, left), constant(begin...)), elementwise(opMul, pick(g, right), constant(end...)))
	absent := constant(0)
	if f.Missing == "" {
		absent = refused
	}
	b = where(missing, absent, elementwise(opAdd, b, constant(first...)))
	if f.Missing == schema.Own {
		b = concat(b, elementwise(opNumber, missing))
	}
	return b
}
