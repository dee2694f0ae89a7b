package httpapi

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
)

const deployed = "../../../config/deploy/"

// vocabulary has the names of the series that /metrics shows, and of their labels.
type vocabulary struct{ series, labels map[string]bool }

func exported(t *testing.T) vocabulary {
	t.Helper()
	m := NewMetrics()
	m.watch(newFake())
	series := map[string]bool{"up": true, "ALERTS": true} // Prometheus's own
	labels := map[string]bool{"job": true, "instance": true, "le": true, "alertstate": true, "alertname": true}
	found := make(chan *prometheus.Desc)
	go func() {
		m.registry.Describe(found)
		close(found)
	}()
	text := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for d := range found {
		match := text.FindStringSubmatch(d.String())
		if match == nil {
			t.Fatalf("no name in %s", d)
		}
		for _, suffix := range []string{"", "_bucket", "_count", "_sum"} { // of histograms
			series[match[1]+suffix] = true
		}
		for label := range strings.SplitSeq(match[2], ",") {
			labels[label] = true
		}
	}
	// The runtime's metrics come without descriptions.
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		series[f.GetName()] = true
	}
	if len(series) < 50 || len(labels) < 10 {
		t.Fatalf("only %d series and %d labels", len(series), len(labels))
	}
	return vocabulary{series, labels}
}

var (
	quotedText = regexp.MustCompile(`"[^"]*"`)
	seriesName = regexp.MustCompile(`\b(?:streamd|go|process)_\w+`)
	labelLists = regexp.MustCompile(`(?:\bby|\bon|\bignoring|\bwithout) *\(([^)]*)\)|\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`[a-z_]+`)
)

// check fails for series and labels of an expression that v does not have.
func (v vocabulary) check(t *testing.T, where, expr string) {
	t.Helper()
	expr = quotedText.ReplaceAllString(expr, "")
	names := seriesName.FindAllString(expr, -1)
	if len(names) == 0 && !strings.HasPrefix(expr, "up{") {
		t.Errorf("%s: no series in %s", where, expr)
	}
	for _, name := range names {
		// Packages summarise and scoring look at their own.
		if !v.series[name] && !strings.HasPrefix(name, "streamd_summarise_") && !strings.HasPrefix(name, "streamd_predict_") {
			t.Errorf("%s: there is no series %s", where, name)
		}
	}
	for _, list := range labelLists.FindAllStringSubmatch(expr, -1) {
		for _, label := range labelName.FindAllString(list[1]+list[2], -1) {
			if !v.labels[label] {
				t.Errorf("%s: no series has the label %s", where, label)
			}
		}
	}
}

// promtool runs Prometheus's own checks where they are installed, as for .ci/run.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("not checked by Prometheus itself:", err)
		return
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

func readDeployed(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(deployed + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The rules name existing series, and each rule can fire.
func TestAlertRules(t *testing.T) {
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(readDeployed(t, "alerts.yaml"), &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var tried struct{ Tests []struct{ Name string } }
	if err := yaml.Unmarshal(readDeployed(t, "alerts.test.yaml"), &tried); err != nil {
		t.Fatal(err)
	}
	alerts, names := 0, exported(t)
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			alerts++
			names.check(t, r.Alert, r.Expr)
			if severity := r.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("%s has severity %q", r.Alert, severity)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s says nothing", r.Alert)
			}
			if !slices.ContainsFunc(tried.Tests, func(c struct{ Name string }) bool { return c.Name == r.Alert || strings.HasPrefix(c.Name, r.Alert+" ") }) {
				t.Errorf("alerts.test.yaml does not raise %s", r.Alert)
			}
		}
	}
	if alerts < 10 {
		t.Errorf("only %d alerts", alerts)
	}
	promtool(t, "check", "rules", deployed+"alerts.yaml")
	promtool(t, "test", "rules", deployed+"alerts.test.yaml")
}

// Each kind of problem that needs somebody raises one alert for as long as it is open, whether or
// not anything else is measured. A hint raises none.
func TestEachProblemRaisesAnAlert(t *testing.T) {
	var series, wants string
	rules := regexp.MustCompile(`streamd_problems\{([^}]*)\} > 0`).FindAllStringSubmatch(string(readDeployed(t, "alerts.yaml")), -1)
	matcher := regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	for _, k := range problemKinds {
		reads := 0
		for _, rule := range rules {
			all := true
			for _, m := range matcher.FindAllStringSubmatch(rule[1], -1) {
				value := map[string]string{"kind": string(k.kind), "level": string(k.level)}[m[1]]
				pattern := m[3]
				if !strings.HasSuffix(m[2], "~") {
					pattern = regexp.QuoteMeta(pattern)
				}
				all = all && regexp.MustCompile("^(?:"+pattern+")$").MatchString(value) == !strings.HasPrefix(m[2], "!")
			}
			if all {
				reads++
			}
		}
		want := 1
		if k.level == LevelHint {
			want = 0
		}
		if reads != want {
			t.Errorf("%d rules read streamd_problems of the %s %s, want %d", reads, k.level, k.kind, want)
		}
		series += fmt.Sprintf("      - {series: 'streamd_problems{job=\"streamd\",instance=\"a\",kind=%q,level=%q}', values: '1x180'}\n", k.kind, k.level)
		if want > 0 {
			wants += fmt.Sprintf("          - {labels: '{kind=%q}', value: 1}\n", k.kind)
		}
	}
	rulesFile, err := filepath.Abs(deployed + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	text := fmt.Sprintf("rule_files: [%q]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n%s    promql_expr_test:\n"+
		"      - expr: count by (kind) (ALERTS{alertstate=\"firing\"})\n        eval_time: 3h\n        exp_samples:\n%s", rulesFile, series, wants)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// Each kind says what to do. A daemon that is not ready lists that as a problem, wherever problems
// are listed or counted.
func TestEachKindSaysWhatToDo(t *testing.T) {
	for i, k := range problemKinds {
		if k.action == "" || k.kind.rank() != i {
			t.Errorf("%s, at %d: %q", k.kind, k.kind.rank(), k.action)
		}
	}
	f := newFake()
	f.status.NotReady, f.status.NotReadySince = "there is no model", testTime
	f.status.Problems = []Problem{{Kind: ProblemModel, Since: testTime, Text: "there are rows, and no model", Action: "label them"}}
	server := newServer(f)
	var a StatusAnswer
	if err := json.Unmarshal(do(server, "GET", "/v1/status", "").Body.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if needs := a.Answers[len(a.Answers)-1]; needs.Text != "2 problems" || len(a.Problems) != 2 {
		t.Errorf("%+v, of %+v", needs, a.Problems)
	} else if p := a.Problems[0]; p.Kind != ProblemReady || p.Level != LevelFailure || !p.Since.Equal(testTime) || p.Text != "not ready: there is no model" || p.Action == "" {
		t.Errorf("%+v", p)
	}
	if page := do(server, "GET", "/", "").Body.String(); strings.Count(page, "What to do:") != 2 {
		t.Errorf("the page does not say twice what to do: %s", page)
	}
	metrics := do(server, "GET", "/metrics", "").Body.String()
	for _, kind := range []ProblemKind{ProblemReady, ProblemModel} {
		if line := fmt.Sprintf("\nstreamd_problems{kind=%q,level=\"failure\"} 1\n", kind); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// The board's panels name existing series, and none overlaps another.
func TestGrafanaBoard(t *testing.T) {
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(readDeployed(t, "dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	names := exported(t)
	if len(board.Panels) < 15 {
		t.Errorf("only %d panels", len(board.Panels))
	}
	type place struct{ x, y int }
	taken, ids := map[place]string{}, map[int]bool{}
	variables := strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m")
	rules := "groups: [{name: board, rules: [\n"
	for _, p := range board.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("%s: id %d, %d targets", p.Title, p.ID, len(p.Targets))
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[place{x, y}]; ok || x >= 24 {
					t.Fatalf("%s lies on %q, or outside", p.Title, other)
				}
				taken[place{x, y}] = p.Title
			}
		}
		for i, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			names.check(t, p.Title, expr)
			rules += fmt.Sprintf("{record: 'panel:%d_%d', expr: '%s'},\n", p.ID, i, strings.ReplaceAll(expr, "'", "''"))
		}
	}
	file := filepath.Join(t.TempDir(), "board.yaml")
	if err := os.WriteFile(file, []byte(rules+"]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}
