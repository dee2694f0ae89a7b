package rules

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"streamd/kernels/lp"
	"streamd/kernels/rules/document"
	"streamd/kernels/svm"
)

const doctors = `
within: [0, 1]
one-of:
  - [red, green, "deep blue"]
rules:
  - name: doctors
    when: lymph >= 5 and 4 <= tumor
    then: recur
    weight: 2
  - when: 0 <= age - 2*tumor <= 10 and ` + "`deep blue` = 1" + `
    then: 1.0
    within: [-1, 2.5]
`

var doctorsFeatures = []string{"lymph", "tumor", "age", "red", "green", "deep blue"}

func bind(t *testing.T, text string, features, classes []string) ([]Rule, error) {
	t.Helper()
	r, err := Parse("rules.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return r.Bind(context.Background(), features, classes)
}

func TestRules(t *testing.T) {
	got, err := bind(t, doctors, doctorsFeatures, []string{"1", "recur"})
	if err != nil {
		t.Fatal(err)
	}
	condition := func(bound float64, terms ...lp.Term) svm.Condition { return svm.Condition{Terms: terms, Bound: bound} }
	of := func(feature int, value float64) lp.Term { return lp.Term{Variable: feature, Value: value} }
	groups := [][]int{{3, 4, 5}}
	want := []Rule{
		{"doctors", svm.Set{Class: "recur", Weight: 2, OneOf: groups, Conditions: []svm.Condition{
			condition(-5, of(0, -1)), condition(-4, of(1, -1)), condition(1, of(2, 1)), condition(0, of(2, -1)),
		}}, []string{"lymph >= 5", "tumor >= 4", "age <= 1", "age >= 0"}},
		{"rule 2", svm.Set{Class: "1", Weight: 1, OneOf: groups, Conditions: []svm.Condition{
			condition(0, of(1, 2), of(2, -1)), condition(10, of(1, -2), of(2, 1)),
			condition(1, of(5, 1)), condition(-1, of(5, -1)), condition(2.5, of(0, 1)), condition(1, of(0, -1)),
		}}, []string{"age - 2*tumor >= 0", "age - 2*tumor <= 10", "`deep blue` <= 1", "`deep blue` >= 1", "lymph <= 2.5", "lymph >= -1"}},
	}
	for i := range got {
		for c := range got[i].Conditions { // no negative zero
			got[i].Conditions[c].Bound += 0
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// Every mistake is named with its line and key.
func TestBadRules(t *testing.T) {
	const rest = "\n    then: a\n"
	rule := func(when string) string { return "rules:\n  - when: " + when + rest }
	for _, c := range []struct{ text, want string }{
		{"", "1:1: has no rules"},
		{"rules:\n  - [", "not valid YAML"},
		{"- a", "1:1: want keys and values: within, one-of or rules; found a list"},
		{"rule: []", `1:1: rule: unknown key; the keys are within, one-of or rules; did you mean rules?`},
		{"within: [0, 1]", "rules: missing"},
		{"rules: []", "1:8: rules: want a list; found a list"},
		{"rules:\n  - then: a", "2:5: rules[1].when: missing"},
		{"rules:\n  - when: x >= 1", "2:5: rules[1].then: missing"},
		{"rules:\n  - when:\n    then: a", "rules[1].when: want a single value; found nothing"},
		{rule("x >= 1") + "    then: b\n", "4:5: rules[1].then: given twice; first in line 3"},
		{rule("x >= 1") + "    wehn: b\n", "4:5: rules[1].wehn: unknown key; the keys are name, when, then, weight or within; did you mean when?"},
		{rule("x >= 1") + "    weight: 0\n", "rules[1].weight: want a number above 0"},
		{rule("x >= 1") + "    weight: much\n", `4:13: rules[1].weight: want a finite number; found "much"`},
		{rule("x >= 1") + "    within: [1, 0]\n", "rules[1].within: the lower bound 1 is above the upper bound 0"},
		{rule("x >= 1") + "    within: [1]\n", "rules[1].within: want two bounds"},
		{rule("x >= 1") + "    within: [0, .inf]\n", "want a finite number"},
		{rule("x >= 1") + "  - name: rule 1\n    when: x <= 2" + rest, `4:5: rules[2].name: "rule 1" is the name of an earlier rule, too`},
		{rule("x > 1"), "2:11: rules[1].when: a set has its border: write >= instead of >"},
		{rule("x == 1"), "write = instead of =="},
		{rule("x ≥ 1"), "write <= or >= instead of ≥"},
		{rule("x >= 1 or x <= 3"), `want and, or the end; found "or x <= 3"`},
		{rule("x"), "want <=, >= or =; found the end"},
		{rule("x >="), "want a number or a feature; found the end"},
		{rule("x >= 1 and"), "want a number or a feature; found the end"},
		{rule("x >= 2*3"), `want a feature; found "3"`},
		{rule("x >= 1e999"), `"1e999" is not a finite number`},
		{rule("x - x >= 1"), "no feature, or its features cancel out"},
		{rule("1 >= 0"), "no feature, or its features cancel out"},
		{rule("1 <= x >= 0"), ">= after <=: a comparison of three sums goes up"},
		{rule("1 <= x <= 3 <= x"), `want and, or the end; found "<= x"`},
		{rule("x % 2 >= 1"), `"% 2 >= 1" begins with neither a number, a feature nor a sign`},
		{rule("x >= `"), "a closing backquote are missing"},
		{rule(`"1e308*x + 1e308*x >= 0"`), `the factor of "x" is too large`},
		{rule("x >= " + strings.Repeat("1", maxWhen)), "divide the rule"},
		{rule("x >= 1") + "one-of: [[x]]\n", "one-of[1]: want at least two features"},
		{rule("x >= 1") + "one-of: [[x, y], [y, z]]\n", `one-of[2]: the feature "y" is in a group already, in line 4`},
		// Bound to features and classes:
		{rule("x >= 1 and lymhp >= 3"), `2:11: rules[1].when: no feature has the name "lymhp"; did you mean lymph?`},
		{rule("x >= 1") + "one-of: [[x, q]]\n", `one-of[1]: no feature has the name "q"`},
		{"rules:\n  - when: x >= 1\n    then: A b", `3:11: rules[1].then: no row has the class "A b"; the classes are a, b`},
		{rule("x >= 2 and y <= 9 and x <= 1"), `2:11: rules[1].when: no row can satisfy "rule 1": x >= 2, x <= 1 contradict each other`},
		{rule("x + y >= 3 and x <= 1 and z >= 0 and y <= 1"), "x + y >= 3, x <= 1, y <= 1 contradict each other"},
		{rule("x = 1 and y = 1") + "one-of:\n  - [z, x, y]\n", "x >= 1, y >= 1, the group of line 5 contradict each other"},
		{rule("x + y >= 3") + "    within: [0, 1]\n" + "  - when: x >= 1 and y >= 1 and x + y <= 1" + rest, `rules[2].when: no row can satisfy "rule 2": x >= 1, y >= 1, x + y <= 1 contradict`},
	} {
		_, err := bind(t, c.text, []string{"x", "y", "z", "lymph"}, []string{"a", "b"})
		var all *document.Error
		if !errors.As(err, &all) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngave %v\nwant %s", c.text, err, c.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "rules.yaml:") {
			t.Errorf("%s: %v has no place", c.text, err)
		}
	}
	if _, err := Load("testdata/no such file"); err == nil || !strings.Contains(err.Error(), "no such file: cannot open") {
		t.Error(err)
	}
	if _, err := Parse("rules.yaml", []byte("rules:\n"+strings.Repeat("  - {when: x >= 1, then: a}\n", maxRules+1))); err == nil || !strings.Contains(err.Error(), "1002:") {
		t.Error(err)
	}
}

// A comparison's text is read as the comparison, and rules that are read can be bound, or say
// why not.
func FuzzRules(f *testing.F) {
	f.Add([]byte(doctors))
	f.Add([]byte("rules: [{when: -x + 2*y - 3 >= 1e-3*z and y = x, then: 1}]"))
	f.Add([]byte("one-of: [[x, y]]\nrules: [{when: x >= 1 and y >= 1, then: a, within: [-1, 1]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse("rules.yaml", data)
		if err != nil {
			return
		}
		if len(r.rules) > maxRules || len(r.rules) == 0 {
			t.Fatalf("%d rules", len(r.rules))
		}
		features := map[string]bool{}
		for _, rule := range r.rules {
			for _, c := range rule.when {
				again, err := parseWhen(c.text(c.relation))
				if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], c) {
					t.Fatalf("%+v is written %q and read %+v, %v", c, c.text(c.relation), again, err)
				}
				for _, term := range c.terms {
					features[term.feature] = true
				}
			}
		}
		for _, g := range r.groups {
			for _, name := range g.names {
				features[name] = true
			}
		}
		var names []string
		for name := range features {
			names = append(names, name)
		}
		if len(names) > 20 || len(r.rules) > 20 {
			return
		}
		bound, err := r.Bind(context.Background(), names, nil)
		var all *document.Error
		if err != nil && !errors.As(err, &all) && !errors.Is(err, lp.ErrNotConverged) {
			t.Fatal(err)
		}
		for _, rule := range bound {
			if len(rule.Texts) != len(rule.Conditions) {
				t.Fatalf("%d texts of %d conditions", len(rule.Texts), len(rule.Conditions))
			}
		}
	})
}
