package audit_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/daemon/learning"
)

// studied are flags of a model that a study makes, of which nothing is chosen or refined.
var studied = []string{"sample.rows", "1000", "model.folds", "3"}

// beginnings are the texts up to their first colons, without those of the settings.
func beginnings(texts []string) (parts []string) {
	for _, text := range texts {
		if part, _, _ := strings.Cut(text, ":"); part != "settings" {
			parts = append(parts, part)
		}
	}
	return parts
}

// An honest model passes, with whatever the settings have it made of. What needs the bits of
// another processor, or the rows of the log, is named as not checked. The rest has its bits again:
// another value there is found.
func TestModelThatIsServed(t *testing.T) {
	for name, c := range map[string]struct {
		flags     []string
		foreign   bool // the snapshot is of another processor
		balanced  bool // the study gives the classes equal weight
		unchecked []string
	}{
		"plain":                {nil, false, false, nil},
		"half-life":            {[]string{"retire.half_life", "4s"}, false, false, nil},
		"half-life, studied":   {append([]string{"retire.half_life_rows", "60", "model.nu", "auto"}, studied...), false, false, nil},
		"studied":              {studied, false, false, nil},
		"decided by value":     {append([]string{"model.decision", "value"}, studied...), false, false, nil},
		"ν chosen":             {append([]string{"model.nu", "auto"}, studied...), false, false, nil},
		"refined":              {append([]string{"model.refine", "full"}, studied...), false, false, nil},
		"refined on the log":   {append([]string{"model.refine", "full", "model.rows", "log"}, studied...), false, false, []string{"planes", "calibration", "decision"}},
		"plain, foreign":       {nil, true, false, nil},
		"studied, foreign":     {studied, true, false, []string{"calibration", "decision"}},
		"by value, foreign":    {append([]string{"model.decision", "value"}, studied...), true, false, []string{"calibration"}},
		"no curves, foreign":   {append([]string{"model.calibration", "none"}, studied...), true, false, []string{"decision"}},
		"ν chosen, foreign":    {append([]string{"model.nu", "auto"}, studied...), true, false, []string{"options", "calibration", "decision"}},
		"refined, foreign":     {append([]string{"model.refine", "full"}, studied...), true, false, []string{"planes", "calibration", "decision"}},
		"all chosen, foreign":  {append([]string{"model.nu", "auto", "model.balanced", "auto", "model.standardise", "auto", "model.objective", "balanced"}, studied...), true, true, []string{"options", "calibration", "decision"}},
		"ν by sums, foreign":   {[]string{"model.nu", "auto", "model.folds", "3"}, true, false, []string{"options"}},
		"refinement, no folds": {[]string{"model.refine", "line", "sample.rows", "1000"}, true, false, []string{"planes"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, nil, c.flags...)
			w.fix()
			for range 9 {
				w.add(20, 0.15)
			}
			if c.foreign {
				w.settings = func(s *learning.Settings) { s.Processor = "abacus" }
			}
			served := w.serve()
			if served.Options.Balanced != c.balanced {
				t.Fatalf("the model has the options %+v", served.Options)
			}
			w.save()
			report, err := audit.Model(t.Context(), w.path, served)
			if err != nil {
				t.Fatal(err)
			}
			planes := len(served.Planes)
			if slices.Contains(c.unchecked, "planes") {
				planes = 0
			}
			if got := beginnings(report.Unchecked); !slices.Equal(got, c.unchecked) || report.Planes != planes || report.Digest != w.set.Digest() {
				t.Errorf("not checked: %q, want %q: %+v", got, c.unchecked, report)
			}
			made := slices.DeleteFunc([]string{"options", "method", "planes", "calibration", "decision"}, func(part string) bool { return slices.Contains(c.unchecked, part) })
			if want := "made again with the same bits: " + strings.Join(made, ", "); !slices.Contains(report.Proved, want) {
				t.Errorf("%q lack %q", report.Proved, want)
			}
			if weighted := served.Weighted; weighted != "" {
				served.Weighted = served.Digest
				served.Fingerprint = served.Identity.Fingerprint()
				if _, err := audit.Model(t.Context(), w.path, served); err == nil || !strings.Contains(err.Error(), "its blocks, weighted by their age, add up to the digest "+weighted) {
					t.Errorf("another weighted digest: %v", err)
				}
				served.Weighted = weighted
			}
			served.Planes[0].Gamma = math.Nextafter(served.Planes[0].Gamma, 9)
			served.Fingerprint = served.Identity.Fingerprint()
			if _, err := audit.Model(t.Context(), w.path, served); (err == nil) != (planes == 0) {
				t.Errorf("another γ: %v", err)
			}
		})
	}
}

// The settings of a model are proved by the newest receipt, and not by earlier ones, where they are
// those of its features or of no features, as before the first block.
func TestModelWhoseSettingsAReceiptHas(t *testing.T) {
	for name, c := range map[string]struct {
		earlier bool // the features were not known at the newest receipt
		change  func(w *writer)
		want    string // the beginning of the sentence
	}{
		"first receipt":         {true, nil, "its settings are those that receipt 0 has the hash of"},
		"newest receipt":        {false, nil, "its settings are those that receipt 1 has the hash of"},
		"other settings before": {false, func(w *writer) { w.pending[0].Settings[0] ^= 1 }, "its settings are those that receipt 1 has the hash of"},
		"other settings since":  {false, func(w *writer) { w.pending[1].Settings[0] ^= 1 }, "settings: they are those that the snapshot states, and receipt 1 has the hash of others"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, testKey(t))
			w.fix()
			gone := w.add(5, 0.5)
			w.add(5, 0.5)
			if !c.earlier {
				w.retire(gone)
			}
			if c.change != nil {
				c.change(w)
			}
			served := w.serve()
			w.save()
			report, err := audit.Model(t.Context(), w.path, served)
			if err != nil {
				t.Fatal(err)
			}
			in := report.Proved
			if strings.HasPrefix(c.want, "settings: ") {
				in = report.Unchecked
			}
			if !slices.ContainsFunc(in, func(s string) bool { return strings.HasPrefix(s, c.want) }) || len(report.Unchecked) > 1 {
				t.Errorf("%+v, want %q", report, c.want)
			}
		})
	}
}

// A model is refused whose sums have the rows of a retired block in place of those of a live one,
// though the file has these sums, too.
func TestModelOfSumsThatNoLiveBlocksMake(t *testing.T) {
	const kept, live = written + "0", written + "1"
	begin := func() *writer {
		w := newWriter(t, nil)
		w.fix()
		for range 3 {
			w.add(5, 0.5)
		}
		return w
	}
	without := begin()
	without.retire(live)
	served := without.serve()
	dishonest := begin()
	in, out := dishonest.summary(kept), dishonest.summary(live)
	dishonest.retire(kept)
	dishonest.swap(in, out)
	dishonest.save()
	report, err := audit.Model(t.Context(), dishonest.path, served)
	if err == nil || !strings.Contains(err.Error(), "its blocks add up to the digest ") || !strings.Contains(err.Error(), "0 damaged values") {
		t.Errorf("%+v, %v", report, err)
	}
}

// The report of a plain model names all that the snapshot shows of it, in order.
func TestReportNamesAllThatIsProved(t *testing.T) {
	w := newWriter(t, nil)
	w.fix()
	for range 3 {
		w.add(5, 0.5)
	}
	served := w.serve()
	w.save()
	report, err := audit.Model(t.Context(), w.path, served)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the fingerprint is that of its digest, options, planes, calibration and rule of labels",
		"its sums are those of the 3 live blocks of the snapshot",
		"made again with the same bits: options, method, planes, calibration, decision",
		"its means, and its counts of rows and blocks, are those of the snapshot",
	}
	if !slices.Equal(report.Proved, want) {
		t.Errorf("proved are %q, want %q", report.Proved, want)
	}
}

// A model is refused that contradicts the snapshot in what its planes do not show: the basis, and
// the rows that its study lacked.
func TestModelThatContradictsTheSnapshot(t *testing.T) {
	for want, change := range map[string]func(served *audit.Served){
		"it has no sums in the model's basis":        func(served *audit.Served) { served.Identity.Basis = strings.Repeat("0f", 32) },
		"the model says that its sample lacked rows": func(served *audit.Served) { served.Sample.Lacking = 1 },
	} {
		w := newWriter(t, nil, studied...)
		w.fix()
		for range 9 {
			w.add(20, 0.15)
		}
		served := w.serve()
		w.save()
		change(served)
		served.Fingerprint = served.Identity.Fingerprint()
		if _, err := audit.Model(t.Context(), w.path, served); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
