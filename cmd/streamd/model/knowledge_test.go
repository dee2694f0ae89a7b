package model

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"streamd/incremental"
	"streamd/kernels"
	"streamd/kernels/rules"
)

func rulesOf(t *testing.T, text string) *Rules {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return NewRules(file, 100)
}

// Without rows the rules make the model, for the features that there are, or those that they name.
func TestRulesAlone(t *testing.T) {
	r := rulesOf(t, "rules: [{when: b >= 5, then: yes}, {when: b <= 0, then: no}, {name: third, when: a >= 1, then: maybe}]")
	o := incremental.Options{Nu: 1, Solver: r}
	for _, features := range [][]string{nil, {"z", "b", "a"}} {
		m, err := Alone(incremental.ErrClasses, features, o)
		if err != nil {
			t.Fatal(err)
		}
		if features == nil {
			features = []string{"a", "b"}
		}
		if !slices.Equal(m.Features, features) || !slices.Equal(m.Classes, []string{"maybe", "no", "yes"}) || len(m.Planes) != 3 {
			t.Errorf("%v: features %v, classes %v, %d planes", features, m.Features, m.Classes, len(m.Planes))
		}
		report := NewKnowledge(t.Context(), m)
		if report.Problem != "" || len(report.Rules) != 3 || report.Rules[2].Name != "third" {
			t.Errorf("%+v", report)
		}
	}
	z, err := kernels.NewMap(kernels.Linear(), 2, []float64{5, 0, 0, 5, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	in := incremental.Options{Nu: 1, Solver: r.In(z, []string{"a", "b"})}
	m, err := Alone(incremental.ErrClasses, []string{"a", "b"}, in)
	if err != nil {
		t.Fatal(err)
	}
	report := NewKnowledge(t.Context(), m)
	if !slices.Equal(m.Features, []string{"z1", "z2", "z3"}) || report.Problem != "" || len(report.Rules) != 3 {
		t.Errorf("in a basis: features %v, %+v", m.Features, report)
	}
	other := errors.New("another problem")
	if m, err := Alone(other, nil, o); m != nil || !errors.Is(err, other) {
		t.Errorf("%v, %v", m, err)
	}
	one := rulesOf(t, "rules: [{when: b >= 5, then: yes}]")
	if _, err := Alone(incremental.ErrClasses, nil, incremental.Options{Nu: 1, Solver: one}); !errors.Is(err, incremental.ErrClasses) {
		t.Errorf("rules of one class: %v", err)
	}
	if _, err := Alone(incremental.ErrClasses, nil, incremental.Options{Nu: 1}); !errors.Is(err, incremental.ErrClasses) {
		t.Errorf("no rules: %v", err)
	}
	if _, err := Alone(incremental.ErrClasses, []string{"c"}, o); err == nil || !strings.Contains(err.Error(), "rules.yaml:1:16: rules[1].when: no feature has the name") {
		t.Errorf("an unknown feature: %v", err)
	}
	if report := NewKnowledge(t.Context(), &incremental.Model{}); report != nil {
		t.Errorf("a report of no rules: %v", report)
	}
}

// A rule of a class without rows counts when the class has some.
func TestRulesOfLiveClasses(t *testing.T) {
	r := rulesOf(t, "rules: [{when: a >= 5, then: yes}, {when: a <= -50, then: maybe}]")
	plane := func(classes ...string) []float64 {
		z, err := r.Plane(&incremental.Program{Class: "yes", Classes: classes, Features: []string{"a"}, Matrix: make([]float64, 3), Right: make([]float64, 2)}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	without, with := plane("no", "yes"), plane("maybe", "no", "yes")
	if again := plane("no", "yes"); !slices.Equal(without, again) {
		t.Errorf("%v, then %v", without, again)
	}
	// Alone, a ≥ 5 takes a plane with 5w − γ = 1; a ≤ −50 adds −50w − γ = −1.
	if v := 5*without[0] - without[1]; math.Abs(v-1) > 1e-9 {
		t.Errorf("z = %v has %v at 5", without, v)
	}
	if v := -50*with[0] - with[1]; v > -1+1e-9 {
		t.Errorf("z = %v has %v at -50", with, v)
	}
}
