package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"streamd/config"
)

// settings of what is learned, as a daemon's keys and as the flags of fit.
var learned = []struct{ key, flag string }{
	{"model.nu=auto", "--nu=auto"},
	{"model.objective=balanced", "--objective=balanced"},
	{"model.balanced=true", "--balanced=true"}, {"model.balanced=auto", "--balanced=auto"},
	{"model.class_weights=a=2", "--class-weights=a=2"},
	{"model.standardise=true", "--standardise=true"}, {"model.standardise=auto", "--standardise=auto"},
	{"model.knowledge=RULES", "--knowledge=RULES"},
	{"model.mu=5", "--mu=5"}, {"model.mu=auto", "--mu=auto"},
	{"model.folds=0", "--folds=0"}, {"model.folds=1", "--folds=1"},
	{"model.method=means", "--method=means"}, {"model.method=lasso", "--method=lasso"},
	{"model.refine=line", "--refine=line"}, {"model.refine=full", "--refine=full"},
	{"model.refine=logistic", "--refine=logistic"}, {"model.refine=auto", "--refine=auto"},
	{"model.refine=hinge", "--refine=hinge"}, {"model.refine=sparse", "--refine=sparse"},
	{"model.refine=minimal", "--refine=minimal"}, {"model.refine=features", "--refine=features"},
	{"model.refine=nlp", "--refine=nlp"}, {"model.refine=unlabelled", "--refine=unlabelled"},
	{"model.machine_mu=3", "--machine-mu=3"}, {"model.machine_mu=-1", "--machine-mu=-1"},
	{"model.machine_epsilon=0.5", "--machine-epsilon=0.5"}, {"model.machine_delta=0.5", "--machine-delta=0.5"},
	{"model.calibration=platt", "--calibration=platt"}, {"model.calibration=softmax", "--calibration=softmax"}, {"model.calibration=temperature", "--calibration=temperature"},
	{"model.calibration=none", "--calibration=none"},
	{"model.decision=value", "--decision=value"}, {"model.decision=cost", "--decision=cost"},
	{"model.costs=a>b=3", "--costs=a>b=3"}, {"model.costs=a>a=3", "--costs=a>a=3"},
	{"sample.rows=500", "--sample=500"},
	{"kernel.function=gaussian", "--kernel=gaussian"}, {"kernel.function=gaussian(gamma=0.5)", "--kernel=gaussian(gamma=0.5)"},
	{"kernel.function=polynomial", "--kernel=polynomial"}, {"kernel.function=polynomial(a=-1,b=1,degree=3)", "--kernel=polynomial(a=-1,b=1,degree=3)"},
	{"kernel.function=sigmoid", "--kernel=sigmoid"}, {"kernel.function=sigmoid(a=1,b=0)", "--kernel=sigmoid(a=1,b=0)"},
	{"kernel.function=linear", "--kernel=linear"},
	{"kernel.basis=7", "--basis=7"},
	{"kernel.reduce=random", "--reduce=random"}, {"kernel.reduce=slmc", "--reduce=slmc"},
	{"kernel.regulariser=kernel", "--regulariser=kernel"},
	{"format.missing=zero", "--missing=zero"}, {"format.missing=mean", "--missing=mean"},
	{"format.missing_features=x1=mean", "--missing-features=x1=mean"},
	{"blocks.unlabelled=keep", "--unlabelled=keep"},
}

var daemonKey = regexp.MustCompile(`\b(blocks|format|kernel|model|sample)\.[a-z]`)

// What goes with what is the same for a daemon and for fit as a daemon would learn: of all pairs
// of settings, and of all threes with one of those that most others depend on.
func TestDaemonAndFitTakeTheSame(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules: [{when: x1 >= 4, then: a}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, refused := 0, 0
	try := func(of ...int) {
		keys, flags := map[string]string{"kafka.topic": "rows"}, []string{"fit", "rows.csv", "--plain", "--block-rows=100", "--folds=5"}
		for _, i := range of {
			key, value, _ := strings.Cut(learned[i].key, "=")
			if _, twice := keys[key]; twice {
				return
			}
			keys[key] = strings.Replace(value, "RULES", rules, 1)
			flags = append(flags, strings.Replace(learned[i].flag, "RULES", rules, 1))
		}
		if keys["model.nu"] == "auto" && keys["model.folds"] == "0" {
			return // fit makes folds of its own
		}
		_, ofDaemon := config.Load(config.Sources{Flags: keys})
		parser, err := kong.New(&struct {
			Fit fitCmd `cmd:""`
		}{})
		if err != nil {
			t.Fatal(err)
		}
		_, ofFit := parser.Parse(flags)
		switch {
		case ofFit != nil && daemonKey.MatchString(ofFit.Error()):
			t.Errorf("%s: fit speaks of keys: %v", flags[5:], ofFit)
		case (ofDaemon == nil) != (ofFit == nil):
			t.Errorf("%s: a daemon says %v, fit says %v", flags[5:], ofDaemon, ofFit)
		case ofFit == nil:
			taken++
		default:
			refused++
		}
	}
	for i := range learned {
		try(i)
		for j := range i {
			try(i, j)
			for k := range j {
				switch key, _, _ := strings.Cut(learned[k].key, "="); key {
				case "model.nu", "model.knowledge":
					try(i, j, k)
				}
				switch learned[i].key {
				case "kernel.function=gaussian", "kernel.function=sigmoid(a=1,b=0)":
					try(i, j, k)
				}
			}
		}
	}
	t.Logf("%d combinations are taken, %d are refused", taken, refused)
	if least := 1000; taken < least || refused < least {
		t.Errorf("want at least %d of each", least)
	}
}
