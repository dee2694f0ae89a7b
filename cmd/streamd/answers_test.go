package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
)

// The clients understand the recorded answers of the API.
func TestClientsReadAnswers(t *testing.T) {
	answers := map[string]string{
		"GET /v1/model": "model", "GET /v1/tuning": "tuning", "GET /v1/quality": "quality", "POST /v1/refine": "refine",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("wait") == "0s" {
			w.WriteHeader(http.StatusAccepted)
			w.Write([]byte(`{"done":false,"refinement":null}`))
			return
		}
		body, err := os.ReadFile(filepath.Join("httpapi", "testdata", answers[r.Method+" "+r.URL.Path]+".golden.json"))
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		w.Write(body)
	}))
	defer server.Close()
	for _, test := range []struct {
		args string
		want []string // lines, blanks aside
	}{
		{"model", []string{
			"tuned nu 1 by the correctness of 87.50 % on 2 folds",
			"method full, on 40 of 42 rows from the sample",
			"spam objective 1.5, gradient 1e-09, 4 steps, 2 weights, 9 support vectors",
			"calibration isotonic",
			"decision by cost: spam where x·w − gamma ≥ -2.33333",
			"cost 5 for spam labelled ham",
		}},
		{"tuning", []string{
			"chosen nu 1 by the correctness of 87.50 % on 2 folds",
			"NU LOSS BALANCED LOSS CORRECT BALANCED CHOSEN PLANES",
			"0.5 0.75 0.875 75.00 % 50.00 % as they are",
			"1 0.5 – 87.50 % 75.00 % * as they are",
			"1 0.5 – – – standardised",
		}},
		{"quality", []string{ // a single plane is not shown as a whole
			"PROBABILITIES ECE BRIER LOG LOSS\nspam, before 0.3125 0.2031 0.5156",
			"held out 4 rows in 2 folds, from the sample",
			"decision by probability",
			"correct 75.00 % (balanced 50.00 %, kappa 0.0000; the largest class alone: 75.00 %)",
			"CLASS ROWS LABELLED PRECISION RECALL F1 AUC\nham 1 0 – 0.00 % 0.00 % 0.7500\nspam 3 4 75.00 % 100.00 % 85.71 % 0.7500",
			"TRUE CLASS \\ LABEL ham spam\nham 0 1\nspam 0 3",
			"calibration platt",
		}},
		{"refine", []string{"refined full, on 40 of 42 rows from the sample", "spam 1.5 1e-09 - 0 4 2 9 -"}},
		{"refine --wait 0s", []string{"under way; streamd model shows the refinement once it is done"}},
	} {
		var out, problems bytes.Buffer
		args := append(strings.Fields(test.args), "--url", server.URL)
		if err := run(t.Context(), args, nil, nil, &out, &problems); err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		var lines []string
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		got := "\n" + strings.Join(lines, "\n") + "\n"
		for _, want := range test.want {
			if !strings.Contains(got, "\n"+want+"\n") {
				t.Errorf("%s printed\n%s\nwithout the line %q", test.args, out.String(), want)
			}
		}
	}
}

// Windows without blocks, or without planes, leave the columns of the others as they are.
func TestStepsAlign(t *testing.T) {
	day := func(n int, s model.Step) model.Step {
		s.From = time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC)
		s.To = s.From.AddDate(0, 0, 1)
		return s
	}
	full := model.Step{Blocks: 4, Rows: 8, Classes: []string{"ham", "spam"}, ClassRows: []int64{3, 5}, Planes: []model.StepPlane{{PlaneJSON: model.PlaneJSON{Class: "spam"}, ToFirst: new(1.5), ToLast: new(2.5)}}}
	none := model.Step{Blocks: 1, Rows: 2, Classes: []string{"ham"}, ClassRows: []int64{2}, Problem: "a model needs rows of two classes"}
	var b strings.Builder
	table := newTable(&b)
	table.steps(&model.Steps{WindowSeconds: 86400, Steps: []model.Step{day(1, full), day(2, model.Step{}), day(3, full), day(4, none), day(5, full)}})
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	at := strings.Index(lines[0], "angle to first")
	for _, i := range []int{1, 3, 5} {
		if !strings.HasPrefix(lines[i][at:], "1.50 ") {
			t.Errorf("line %d is not in the columns of the first one:\n%s", i, b.String())
		}
	}
	if !strings.HasSuffix(lines[4], "none                      "+none.Problem) || strings.TrimRight(lines[2], " ") != "2026-01-02T00:00:00Z  2026-01-03T00:00:00Z  0       0" {
		t.Errorf("windows without planes:\n%s", b.String())
	}
}

// Angles between planes in the coordinates of a basis are not in the units of features.
func TestUnitsOfAngles(t *testing.T) {
	for _, test := range []struct {
		basis           string
		scaled          bool
		compare, within string
	}{
		{"", false, "in the features' own units", "in the features' own units"},
		{"", true, "in units of the standard deviations of b", "in units of standard deviations"},
		{"5eed", false, "in the coordinates of the basis", "in the coordinates of the basis"},
	} {
		var b strings.Builder
		table := newTable(&b)
		table.comparison(&model.Comparison{BasisID: test.basis, Scaled: test.scaled, Planes: []model.ComparedPlanes{{Class: "spam", Angle: new(1.5)}}})
		table.steps(&model.Steps{BasisID: test.basis, Scaled: test.scaled, WindowSeconds: 86400, Options: model.OptionsJSON{Nu: 1, Balanced: true}})
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"angle 1.5 degrees, " + test.compare + "\n", "windows of 1d; angles in degrees, " + test.within + "; nu 1, balanced\n"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("basis %q, scaled %t: %s\nlacks %q", test.basis, test.scaled, b.String(), want)
			}
		}
	}
}
