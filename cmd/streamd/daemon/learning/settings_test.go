package learning

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/config"
)

// saved are the settings of a configuration with many keys.
func saved(t testing.TB, flags map[string]string) []byte {
	t.Helper()
	cfg, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(cfg, 1<<20, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return l.Saved(Lists{})
}

// Settings that were saved read back, and the Learner that is made of them has the same ones.
func TestSettingsReadBack(t *testing.T) {
	known := rulesFile(t)
	for _, flags := range []map[string]string{
		{},
		{"model.nu": "auto", "model.refine": "auto", "model.standardise": "auto", "model.balanced": "auto", "sample.seed": "-7"},
		{"model.nu": "0.1", "model.class_weights": "spam=2.5,a>b=1e-3", "model.costs": "spam>ham=10", "model.decision": "cost", "retire.half_life": "36h"},
		{"format.features": "a,b,c", "format.missing_features": "a=mean,b=zero", "format.ignore": "x*", "blocks.unit": "time", "blocks.period": "90s"},
		{"kernel.function": "gaussian(gamma=0.5)", "kernel.reduce": "cs(nu=6)", "kernel.regulariser": "kernel", "retire.keep": "blocks+age", "retire.blocks": "9", "retire.age": "1h"},
		{"model.knowledge": known, "model.mu": "3"},
		{"model.knowledge": known, "model.mu": "auto", "model.nu": "auto", "model.refine": "sparse"},
	} {
		all := map[string]string{"kafka.topic": "t"}
		for name, value := range flags {
			all[name] = value
		}
		text := saved(t, all)
		if err := os.Rename(known, known+".away"); err != nil { // an auditor does not have it
			t.Fatal(err)
		}
		s, err := Read(text)
		if err != nil {
			t.Fatal(err)
		}
		l, missing, err := s.Learner()
		if err != nil || missing != nil {
			t.Fatalf("%v: %v, %v", flags, err, missing)
		}
		if err := os.Rename(known+".away", known); err != nil {
			t.Fatal(err)
		}
		if again := l.Saved(s.Lists); !bytes.Equal(again, text) {
			t.Errorf("%v: settings\n%s\nread back as\n%s", flags, text, again)
		}
	}
}

// Learned lists are in the snapshot, and in no leaf: a model by a list is that by the declared one.
func TestListsAreInNoLeaf(t *testing.T) {
	plain, err := Read(saved(t, map[string]string{"kafka.topic": "t", "format.schema": "{c: {kind: category, values: [a]}}"}))
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := plain.Learner()
	if err != nil {
		t.Fatal(err)
	}
	lists := Lists{Most: map[string]int{"c": 3}, Wanted: plain.Format.Schema}
	s, err := Read(l.Saved(lists))
	if err != nil || s.Lists.Most["c"] != 3 || s.Lists.Wanted.String() != lists.Wanted.String() {
		t.Errorf("%+v read back as %+v: %v", lists, s.Lists, err)
	}
	if leaf, want := s.OfLeaf(nil).Text(), plain.OfLeaf(nil).Text(); !bytes.Equal(leaf, want) {
		t.Errorf("the leaf has\n%s\nwant\n%s", leaf, want)
	}
}

// rulesFile has a rule.
func rulesFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("rules: [{when: x >= 1, then: a}] # ≥ < \u2028"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Settings that no daemon has are refused.
func TestSettingsThatCannotBe(t *testing.T) {
	good := saved(t, map[string]string{"kafka.topic": "t", "retire.half_life": (72 * time.Hour).String(), "model.knowledge": rulesFile(t)})
	for _, change := range [][2]string{
		{`"Missing":"reject"`, `"Missing":"guess"`},
		{`"Folds":5`, `"Folds":-5`},
		{`"Folds":5`, `"Folds":1`},
		{`"Refine":"none"`, `"Refine":"magic"`},
		{`"Refine":"none"`, `"Refine":"auto"`}, // without ν
		{`"Reduce":"kmeans"`, `"Reduce":"magic(nu=6)"`},
		{`"Function":"none"`, `"Function":"gaussian(gamma=0)"`},
		{`"Rows":50000`, `"Rows":-1`},
		{`"held_out_values":1048576`, `"held_out_values":-1`},
		{`"Nu":1`, `"Nu":-1`},
		{`"rules":"`, `"rules":"0`},
		{`"rules_file":"`, `"rules_file":"rules: []`},
		{`"rules_file":"`, `"rules_file":"","processor":"`},
	} {
		text := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(text, good) {
			t.Fatalf("%s is not in %s", change[0], good)
		}
		s, err := Read(text)
		if err == nil {
			_, _, err = s.Learner()
		}
		if err == nil {
			t.Errorf("%s is taken", change[1])
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(saved(f, map[string]string{"kafka.topic": "t"}))
	f.Add(saved(f, map[string]string{"kafka.topic": "t", "kernel.function": "gaussian", "model.costs": "a>b=2", "model.decision": "cost", "format.missing_features": "a=zero"}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read(text)
		if err != nil {
			return
		}
		again, err := Read(s.Text())
		if err != nil || !bytes.Equal(again.Text(), s.Text()) {
			t.Fatalf("%s reads back as %s, %v", s.Text(), again.Text(), err)
		}
		l, _, err := s.Learner()
		if err != nil {
			return
		}
		c := l.Config
		set := live.New(nil, c, memory.New(c, 1<<62))
		l.Begin(set, nil)
		l.OptionsIn(set, nil)
		if c.Kernel.Function != config.KernelNone {
			c.Kernel.Function.Kernel(3)
			c.Kernel.Reduce.Reducer(c.Kernel.Basis)
		}
	})
}
