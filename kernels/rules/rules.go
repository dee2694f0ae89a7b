// Package rules reads what is known of the classes beside the rows: each rule says that all rows
// that meet its conditions belong to a class. Its set is polyhedral (Fung 2003, chapter 3). A file:
//
//	within: [0, 1]               # bounds of features that a rule does not name
//	one-of:                      # of each group one feature is 1, and the others are 0
//	  - [red, green, blue]
//	rules:
//	  - name: doctors            # by default rule 1, rule 2, …
//	    when: lymph >= 5 and tumor >= 4
//	    then: recur
//	    weight: 2                # of its slack; by default 1
//	  - when: 0 <= age - 2*years <= 10 and red = 1
//	    then: other
//	    within: [0, 100]         # in place of the file's
//
// Without within, nothing is said of features that a rule does not name. A comparison has sums of
// features with factors on both sides, and <=, >= or =, since a set has its border. Names that
// are not letters, digits, _ and dots are written in backquotes: `mean radius` >= 3.
package rules

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"streamd/incremental"
	"streamd/kernels/lp"
	"streamd/kernels/rules/document"
	"streamd/kernels/svm"
)

// Rules are those of a file.
type Rules struct {
	source string
	text   []byte
	within *box
	groups []group
	rules  []rule
}

// The limits of a file of rules.
const (
	maxRules = 1000
	maxWhen  = 1 << 14 // bytes of a rule's conditions
	// maxBounds is the number of bounds that within adds to all rules together.
	maxBounds = 1 << 20
)

type rule struct {
	at     *token.Position
	key    string // rules[2]
	name   string
	when   []comparison
	whenAt *token.Position
	then   string
	thenAt *token.Position
	weight float64
	within *box
}

type box struct{ low, high float64 }

type group struct {
	at    *token.Position
	names []string
}

// A Rule is a rule in the coordinates of features.
type Rule struct {
	Name string
	svm.Set
	// Texts has the text of each condition of the set.
	Texts []string
}

// Load reads a file of rules. The error is a *document.Error.
func Load(file string) (*Rules, error) {
	data, err := document.ReadFile(file, document.MaxFile)
	if err != nil {
		return nil, &document.Error{Problems: []document.Problem{{Source: file, Message: err.Error()}}}
	}
	return Parse(file, data)
}

// Parse reads rules from a text. The error is a *document.Error.
func Parse(source string, data []byte) (*Rules, error) {
	r := &rulesReader{Reader: document.Reader{Source: source}, rules: &Rules{source: source, text: data}}
	root := r.Root(data)
	if root == nil && r.Problems == nil {
		r.Report(&token.Position{Line: 1, Column: 1}, "", "has no rules; want rules: and a list")
	}
	if root != nil {
		r.file(root)
	}
	if r.Problems != nil {
		slices.SortStableFunc(r.Problems, document.Problem.Compare)
		return nil, &document.Error{Problems: r.Problems}
	}
	return r.rules, nil
}

// Digest is the SHA-256 of the text, in hex.
func (r *Rules) Digest() string {
	digest := sha256.Sum256(r.text)
	return hex.EncodeToString(digest[:])
}

// Text is the text that the rules were read from. It is not to be changed.
func (r *Rules) Text() []byte { return r.text }

// rulesReader reads the keys of a file of rules.
type rulesReader struct {
	document.Reader
	rules *Rules
}

// keys visits the entries of a mapping by their names. Unknown and repeated ones are problems.
func (r *rulesReader) keys(prefix string, node ast.Node, names []string, visit func(name, key string, value ast.Node)) {
	mapping, ok := node.(*ast.MappingNode)
	if !ok {
		r.Report(document.Start(node), strings.TrimSuffix(prefix, "."), "want keys and values: %s; found %s", document.OneOf(names), document.Describe(node))
		return
	}
	first := map[string]int{}
	for _, entry := range mapping.Values {
		name, at := entry.Key.GetToken().Value, entry.Key.GetToken().Position
		switch line, twice := first[name]; {
		case !slices.Contains(names, name):
			r.Report(at, prefix+document.Shown(name), "unknown key; the keys are %s%s", document.OneOf(names), document.DidYouMean(document.Nearest(name, names)))
		case twice:
			r.Report(at, prefix+name, "given twice; first in line %d", line)
		default:
			first[name] = at.Line
			visit(name, prefix+name, entry.Value)
		}
	}
}

func (r *rulesReader) file(root ast.Node) {
	found := false
	r.keys("", root, []string{"within", "one-of", "rules"}, func(name, key string, value ast.Node) {
		switch name {
		case "within":
			r.rules.within = r.box(key, value)
		case "one-of":
			r.groups(key, value)
		case "rules":
			found = true
			for i, node := range r.list(key, value, maxRules) {
				r.rule(fmt.Sprintf("%s[%d]", key, i+1), node)
			}
		}
	})
	if _, ok := root.(*ast.MappingNode); ok && !found {
		r.Report(document.Start(root), "rules", "missing; want rules: and a list")
	}
	seen := map[string]bool{}
	for _, rule := range r.rules.rules {
		if seen[rule.name] {
			r.Report(rule.at, rule.key+".name", "%s is the name of an earlier rule, too", document.Quoted(rule.name))
		}
		seen[rule.name] = true
	}
}

// list returns the elements of a list of 1 to most elements.
func (r *rulesReader) list(key string, node ast.Node, most int) []ast.Node {
	list, ok := node.(*ast.SequenceNode)
	switch {
	case !ok || len(list.Values) == 0:
		r.Report(document.Start(node), key, "want a list; found %s", document.Describe(node))
	case len(list.Values) > most:
		r.Report(document.Start(list.Values[most]), key, "more than %d elements", most)
	default:
		return list.Values
	}
	return nil
}

// text returns a single value that is not empty.
func (r *rulesReader) text(key string, node ast.Node) (text string, ok bool) {
	switch node := node.(type) {
	case *ast.MappingNode, *ast.SequenceNode, *ast.NullNode:
		r.Report(document.Start(node), key, "want a single value; found %s", document.Describe(node))
		return "", false
	case *ast.LiteralNode:
		text = node.Value.Value
	default:
		text = node.GetToken().Value
	}
	if text == "" {
		r.Report(document.Start(node), key, "is empty")
	}
	return text, text != ""
}

func (r *rulesReader) number(key string, node ast.Node) (number float64, ok bool) {
	text, ok := r.text(key, node)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || number-number != 0 {
		r.Report(document.Start(node), key, "want a finite number; found %s", document.Quoted(text))
		return 0, false
	}
	return number, true
}

func (r *rulesReader) box(key string, node ast.Node) *box {
	bounds := r.list(key, node, 2)
	if len(bounds) == 1 {
		r.Report(document.Start(node), key, "want two bounds, such as [0, 1]")
	}
	if len(bounds) != 2 {
		return nil
	}
	low, ok := r.number(key, bounds[0])
	high, also := r.number(key, bounds[1])
	if ok && also && low > high {
		r.Report(document.Start(node), key, "the lower bound %v is above the upper bound %v", low, high)
	}
	return &box{low, high}
}

func (r *rulesReader) groups(key string, node ast.Node) {
	const mostMembers = document.MaxTokens // the text is no longer
	member := map[string]int{}
	for i, node := range r.list(key, node, mostMembers) {
		key := fmt.Sprintf("%s[%d]", key, i+1)
		g := group{at: document.Start(node)}
		for _, node := range r.list(key, node, mostMembers) {
			name, ok := r.text(key, node)
			if !ok {
				continue
			}
			if line, twice := member[name]; twice {
				r.Report(document.Start(node), key, "the feature %s is in a group already, in line %d", document.Quoted(name), line)
			}
			member[name] = document.Start(node).Line
			g.names = append(g.names, name)
		}
		if len(g.names) == 1 {
			r.Report(g.at, key, "want at least two features")
		}
		r.rules.groups = append(r.rules.groups, g)
	}
}

func (r *rulesReader) rule(key string, node ast.Node) {
	rule := rule{at: document.Start(node), key: key, name: fmt.Sprintf("rule %d", len(r.rules.rules)+1), weight: 1, within: r.rules.within}
	r.keys(key+".", node, []string{"name", "when", "then", "weight", "within"}, func(name, key string, value ast.Node) {
		switch name {
		case "name":
			if text, ok := r.text(key, value); ok {
				rule.name = text
			}
		case "when":
			if text, ok := r.text(key, value); ok {
				rule.whenAt = document.Start(value)
				var err error
				if rule.when, err = parseWhen(text); err != nil {
					r.Report(rule.whenAt, key, "%s", err)
				}
			}
		case "then":
			if text, ok := r.text(key, value); ok {
				rule.then, rule.thenAt = text, document.Start(value)
				if x, err := strconv.ParseFloat(text, 64); err == nil && x-x == 0 {
					rule.then = incremental.NumberLabel(x)
				}
				if err := incremental.CheckLabel(text); err != nil {
					r.Report(rule.thenAt, key, "%s", err)
				}
			}
		case "weight":
			if weight, ok := r.number(key, value); ok {
				if rule.weight = weight; !(weight > 0) {
					r.Report(document.Start(value), key, "want a number above 0; found %v", weight)
				}
			}
		case "within":
			rule.within = r.box(key, value)
		}
	})
	if _, ok := node.(*ast.MappingNode); ok {
		r.required(&rule, "when", rule.whenAt)
		r.required(&rule, "then", rule.thenAt)
	}
	r.rules.rules = append(r.rules.rules, rule)
}

// required reports a key of a rule that is not there.
func (r *rulesReader) required(rule *rule, name string, at *token.Position) {
	key := rule.key + "." + name
	if at == nil && !slices.ContainsFunc(r.Problems, func(p document.Problem) bool { return p.Key == key }) {
		r.Report(rule.at, key, "missing")
	}
}

// Features lists the features that the rules and groups name, in canonical order.
func (r *Rules) Features() []string {
	var names []string
	for _, rule := range r.rules {
		for _, c := range rule.when {
			for _, term := range c.terms {
				names = append(names, term.feature)
			}
		}
	}
	for _, g := range r.groups {
		names = append(names, g.names...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Classes lists the classes of the rules, in canonical order.
func (r *Rules) Classes() []string {
	var classes []string
	for _, rule := range r.rules {
		classes = append(classes, rule.then)
	}
	slices.SortFunc(classes, incremental.CompareLabels)
	return slices.Compact(classes)
}

// Bind returns the rules as sets over features. Classes are those of the rows; nil: they are not
// known yet. The error is a *document.Error: it names unknown features and classes, and rules
// that no row can satisfy with the conditions that contradict each other.
func (r *Rules) Bind(ctx context.Context, features, classes []string) ([]Rule, error) {
	b := binder{rules: r, features: features, number: make(map[string]int, len(features))}
	for j, name := range features {
		b.number[name] = j
	}
	var oneOf [][]int
	for i, g := range r.groups {
		var members []int
		for _, name := range g.names {
			if j, ok := b.feature(g.at, fmt.Sprintf("one-of[%d]", i+1), name); ok {
				members = append(members, j)
			}
		}
		oneOf = append(oneOf, members)
	}
	var bound []Rule
	total := 0
	for i := range r.rules {
		rule := &r.rules[i]
		if classes != nil && !slices.Contains(classes, rule.then) {
			b.report(rule.thenAt, rule.key+".then", "no row has the class %s; the classes are %s%s", document.Quoted(rule.then), listed(classes), document.DidYouMean(document.Nearest(rule.then, classes)))
		}
		if rule.within != nil {
			if total += 2 * len(features); total > maxBounds {
				b.report(rule.at, rule.key+".within", "adds bounds of %d features to this rule, and more than %d to all; bound features in when", len(features), maxBounds)
				break
			}
		}
		bound = append(bound, b.rule(rule, oneOf))
	}
	if b.Problems != nil {
		return nil, b.fail()
	}
	for i := range bound {
		members, err := bound[i].Contradiction(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.source, bound[i].Name, err)
		}
		if members != nil {
			var texts []string
			for _, of := range members {
				if g := of - len(bound[i].Texts); g < 0 {
					texts = append(texts, bound[i].Texts[of])
				} else {
					texts = append(texts, fmt.Sprintf("the group of line %d", r.groups[g].at.Line))
				}
			}
			b.report(r.rules[i].whenAt, r.rules[i].key+".when", "no row can satisfy %s: %s contradict each other", document.Quoted(bound[i].Name), strings.Join(texts, ", "))
		}
	}
	if b.Problems != nil {
		return nil, b.fail()
	}
	return bound, nil
}

type binder struct {
	rules    *Rules
	features []string
	number   map[string]int
	Problems []document.Problem
}

func (b *binder) report(at *token.Position, key, format string, args ...any) {
	b.Problems = append(b.Problems, document.Problem{Source: b.rules.source, Line: at.Line, Column: at.Column, Key: key, Message: fmt.Sprintf(format, args...)})
}

func (b *binder) fail() error {
	slices.SortStableFunc(b.Problems, document.Problem.Compare)
	return &document.Error{Problems: b.Problems}
}

func (b *binder) feature(at *token.Position, key, name string) (int, bool) {
	j, ok := b.number[name]
	if !ok {
		const compared = 1000 // features; more take too long
		b.report(at, key, "no feature has the name %s%s", document.Quoted(name), document.DidYouMean(document.Nearest(name, b.features[:min(len(b.features), compared)])))
	}
	return j, ok
}

// listed names a few texts.
func listed(texts []string) string {
	const most = 8
	if len(texts) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
	}
	return strings.Join(texts, ", ")
}

func (b *binder) rule(r *rule, oneOf [][]int) Rule {
	bound := Rule{Name: r.name, Set: svm.Set{Class: r.then, Weight: r.weight, OneOf: oneOf}}
	named := make([]bool, len(b.features))
	for _, members := range oneOf {
		for _, j := range members {
			named[j] = true // the group bounds it
		}
	}
	add := func(text string, sign, bound_ float64, terms []lp.Term) {
		c := svm.Condition{Bound: sign * bound_}
		for _, term := range terms {
			c.Terms = append(c.Terms, lp.Term{Variable: term.Variable, Value: sign * term.Value})
		}
		bound.Conditions = append(bound.Conditions, c)
		bound.Texts = append(bound.Texts, text)
	}
	for _, c := range r.when {
		var terms []lp.Term
		for _, term := range c.terms {
			j, ok := b.feature(r.whenAt, r.key+".when", term.feature)
			if !ok {
				return bound
			}
			named[j] = true
			terms = append(terms, lp.Term{Variable: j, Value: term.factor})
		}
		slices.SortFunc(terms, func(x, y lp.Term) int { return cmp.Compare(x.Variable, y.Variable) })
		if c.relation != ">=" {
			add(c.text("<="), 1, c.bound, terms)
		}
		if c.relation != "<=" {
			add(c.text(">="), -1, c.bound, terms)
		}
	}
	if r.within != nil {
		for j, name := range b.features {
			if !named[j] {
				one := []lp.Term{{Variable: j, Value: 1}}
				feature := comparison{terms: []factor{{name, 1}}}
				feature.bound = r.within.high
				add(feature.text("<="), 1, feature.bound, one)
				feature.bound = r.within.low
				add(feature.text(">="), -1, feature.bound, one)
			}
		}
	}
	return bound
}

// A comparison is Σ factor·feature, a relation and a bound.
type comparison struct {
	terms    []factor // of different features, none 0, the first one positive
	relation string   // <=, >= or =
	bound    float64
}

type factor struct {
	feature string
	factor  float64
}

// text writes a comparison with a relation.
func (c *comparison) text(relation string) string {
	var b strings.Builder
	for i, term := range c.terms {
		value := term.factor
		switch {
		case i > 0 && value < 0:
			b.WriteString(" - ")
			value = -value
		case i > 0:
			b.WriteString(" + ")
		}
		if value != 1 {
			fmt.Fprintf(&b, "%v*", value)
		}
		if isWord(term.feature) {
			b.WriteString(term.feature)
		} else {
			b.WriteString("`" + term.feature + "`")
		}
	}
	fmt.Fprintf(&b, " %s %v", relation, c.bound)
	return b.String()
}
