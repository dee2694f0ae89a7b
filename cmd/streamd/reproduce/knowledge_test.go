package reproduce

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"streamd/incremental"
	"streamd/kernels/rules/document"
)

// Rules of promoters that want two letters at one position are named, with the group of the
// position: R9 has G at -8 and C at -7, R6 and R7 have T at -8, and R8 has T at -7.
func TestPromoterRules(t *testing.T) {
	s := &set{features: incremental.DefaultFeatures(228), classes: []string{"-1", "1"}}
	text, names := promoterKnowledge(true, func(string) bool { return true })
	_, err := ruleSets(context.Background(), text, s)
	var all *document.Error
	if !errors.As(err, &all) || len(names) != 64 {
		t.Fatalf("%d rules: %v", len(names), err)
	}
	var want []string
	for _, first := range []string{"R1", "R2", "R3", "R4"} {
		for _, second := range []string{"R6", "R7", "R8"} {
			want = append(want, first+" "+second+" R9")
		}
	}
	var got []string
	for _, p := range all.Problems {
		for _, name := range names {
			if strings.Contains(p.Message, `"`+name+`"`) {
				got = append(got, name)
			}
		}
		letters := "x172 >= 1, x170 >= 1, the group of line 44 contradict"
		if strings.Contains(p.Message, "R8") {
			letters = "x176 >= 1, x175 >= 1, the group of line 45 contradict"
		}
		if !strings.Contains(p.Message, letters) {
			t.Errorf("%s; want %s", p.Message, letters)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	text, _ = promoterKnowledge(true, func(name string) bool { return !slices.Contains(want, name) })
	if sets, err := ruleSets(context.Background(), text, s); err != nil || len(sets) != 52 {
		t.Errorf("without them there are %d: %v", len(sets), err)
	}
}

// The tables of knowledge sets pass their checks, and their pictures have the outlines.
func TestKnowledgeTables(t *testing.T) {
	for name, sets := range map[string]int{"fig-3.3": 2 * 3, "xor": 2 * 4, "checkerboard-knowledge": 2} {
		for _, r := range run(t, name, &Config{Seed: 1}) {
			if fault := r.Fault(); fault != "" {
				t.Error(fault)
			}
		}
		table, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := table.Draw(context.Background(), &b, &Config{Seed: 1}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), `stroke-dasharray="7 3"`); got != sets {
			t.Errorf("%s: the picture has %d outlines, not %d", name, got, sets)
		}
	}
}
