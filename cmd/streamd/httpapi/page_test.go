package httpapi

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/newton"
	"streamd/incremental/tuning"
)

func TestPageEscapes(t *testing.T) {
	const hostile = `"><script>alert(1)</script>'&`
	f := newFake()
	m := f.served.Model
	m.Features[0], m.Classes[1], m.Planes[0].Class = hostile+"f", hostile+"c", hostile+"c"
	f.status.Problems = []Problem{{Kind: ProblemWitness, Text: hostile + "p", Detail: hostile + "d", Action: hostile + "a"}}
	f.status.NotReady = hostile + "r"
	f.status.Version = hostile + "v"
	f.status.Partitions[0].Topic = hostile + "t"
	page := do(newServer(f), "GET", "/", "").Body.String()
	if strings.Contains(page, "<script>") || strings.Contains(page, `"><`+"script") {
		t.Errorf("the page carries markup from outside:\n%s", page)
	}
	for _, end := range []string{"f", "c", "p", "d", "a", "r", "v", "t"} {
		if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;&#39;&amp;"+end) {
			t.Errorf("the page lacks the text that ends in %q", end)
		}
	}
}

// The page shows the slack of each rule, and not more rules than anybody reads.
func TestPageOfKnowledge(t *testing.T) {
	f := newFake()
	f.served.Knowledge = &model.Knowledge{Mu: 2}
	for i := range 60 {
		f.served.Knowledge.Rules = append(f.served.Knowledge.Rules, model.Rule{
			Name: fmt.Sprintf("<b>%d", i), Class: "spam", Weight: 1, Slack: 0.125, Support: slices.Repeat([]string{"x >= 2"}, 9),
		})
	}
	page := do(newServer(f), "GET", "/", "").Body.String()
	_, section, found := strings.Cut(page, `<section id="knowledge">`)
	section, _, _ = strings.Cut(section, "</section>")
	if !found || !strings.Contains(page, "proximal, with rules") || strings.Count(section, "0.125") != 50 || strings.Count(section, "x &gt;= 2") < 50*6 {
		t.Errorf("the page lacks rules: %s", section)
	}
	if strings.Contains(section, "<b>") || !strings.Contains(section, "of 60 rules the first 50") {
		t.Errorf("the page has markup from outside, or does not say how many rules there are: %s", section)
	}
}

// The page counts archived blocks and those that the control topic retires, if there are any.
func TestPageOfBlocksThatAreNotLive(t *testing.T) {
	f := newFake()
	tile := func() string {
		_, rest, _ := strings.Cut(do(newServer(f), "GET", "/", "").Body.String(), "<h2>Live rows</h2>")
		tile, _, _ := strings.Cut(rest, "</div>")
		return tile
	}
	f.status.Archived, f.status.Withdrawn = 1234, 1
	if text := tile(); !strings.Contains(text, "; 1 234 archived blocks; 1 block retired by the control topic</small>") {
		t.Errorf("the tile is %s", text)
	}
	f.status.Archived, f.status.Withdrawn = 0, 0
	if text := tile(); strings.Contains(text, "archived") || strings.Contains(text, "control topic") {
		t.Errorf("without such blocks the tile is %s", text)
	}
}

// The page says how many rows of a refinement have no label, if there are any.
func TestPageOfUnlabelledRows(t *testing.T) {
	f := newFake()
	f.served.Refinement = testRefinement()
	f.served.Refinement.Rows, f.served.Refinement.Unlabelled = 421, 345
	section := func() string {
		_, rest, _ := strings.Cut(do(newServer(f), "GET", "/", "").Body.String(), `<section id="refinement">`)
		section, _, _ := strings.Cut(rest, "</section>")
		return section
	}
	const want = ", from the sample, 345 without a label"
	if text := section(); !strings.Contains(text, want) {
		t.Errorf("%q is not in %s", want, text)
	}
	f.served.Refinement.Unlabelled = 0
	if text := section(); !strings.Contains(text, ", from the sample<") || strings.Contains(text, "label") {
		t.Errorf("rows without a label are in %s", text)
	}
}

// The header and the title say what is shown, and "ready" does not stand beside a problem.
func TestPageHeader(t *testing.T) {
	f := newFake()
	for _, c := range []struct {
		notReady string
		problems []Problem
		want     string
	}{
		{"", nil, `<span class="pill good">ready</span>`},
		{"", []Problem{{Kind: ProblemWitness, Text: "p"}}, `<span class="pill warn">ready, with problems</span>`},
		{"starting", nil, `<span class="pill bad">not ready</span>`},
		{"", []Problem{{Kind: ProblemSave, Text: "p"}, {Kind: ProblemWitness, Text: "q"}}, `<span class="pill bad">ready, with failures</span>`},
		{"starting", []Problem{{Kind: ProblemWitness, Text: "p"}}, `<span class="pill bad">not ready</span>`},
	} {
		f.status.NotReady, f.status.Problems = c.notReady, c.problems
		page := do(newServer(f), "GET", "/", "").Body.String()
		_, header, _ := strings.Cut(page, "<header")
		header, _, _ = strings.Cut(header, "</header>")
		if !strings.Contains(header, c.want) || strings.Count(header, "pill") != 1 {
			t.Errorf("%+v: the header is %s", c, header)
		}
		for _, name := range []string{"default", "orders", "streamd.orders.default"} {
			if !strings.Contains(header, ">"+name+"</bdi>") {
				t.Errorf("the header lacks %s: %s", name, header)
			}
		}
		if want := "<title>default · topic orders · group streamd.orders.default · streamd</title>"; !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// Weights are shown times the deviation of their feature, or as they are. Without
// deviations there is nothing to choose.
func TestPageOfWeights(t *testing.T) {
	f := newFake()
	order := func(target string) string {
		w := do(newServer(f), "GET", target, "")
		if w.Code != 200 {
			return strconv.Itoa(w.Code)
		}
		_, weights, _ := strings.Cut(w.Body.String(), `<div class="weights">`)
		weights, _, _ = strings.Cut(weights, "</section>")
		var found []string
		for _, m := range regexp.MustCompile(`</bdi>.*<span class="n">(.*)</span>`).FindAllStringSubmatch(weights, -1) {
			found = append(found, m[1])
		}
		return fmt.Sprintf("%v, switch: %v", found, strings.Contains(w.Body.String(), `"/?weights=`))
	}
	if got := order("/"); got != "[1 −2], switch: false" {
		t.Errorf("without deviations: %s", got)
	}
	f.served.Model.Deviation = []float64{8, 0.5}
	for target, want := range map[string]string{
		"/": "[8 −1], switch: true", "/?weights=importance": "[8 −1], switch: true", "/?weights=own": "[1 −2], switch: true", "/?weights=x": "400",
	} {
		if got := order(target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// The figures of few classes are in the model's order, with a confusion matrix. Of many
// classes the worst ones come first, with the most frequent mistakes.
func TestPageOfClasses(t *testing.T) {
	f := newFake()
	trust := func() string {
		_, section, _ := strings.Cut(do(newServer(f), "GET", "/", "").Body.String(), `<section id="trust">`)
		section, _, _ = strings.Cut(section, "Across: the predicted")
		section = regexp.MustCompile(`title="[^"]*"|<[^>]*>`).ReplaceAllString(strings.ReplaceAll(section, "</th><th", "</th> <th"), " ")
		return strings.ReplaceAll(strings.Join(strings.Fields(section), " "), "\u202f", " ")
	}
	f.explain(2)
	few := trust()
	for _, want := range []string{
		"of the rows of class", "class A 20 000 29 000 65.5 % 95.0 % 77.6 % 0.99 class B 10 000 1 000 0.0 % 0.0 %",
		"class ↓ label → class A class B class A 19 000 1 000 class B 10 000 0",
	} {
		if !strings.Contains(few, want) {
			t.Errorf("two classes: no %q in %s", want, few)
		}
	}
	f.explain(300)
	many := trust()
	for _, want := range []string{"276 more are not listed", "The most frequent mistakes. class label weight of the rows class B class C 5 000"} {
		if !strings.Contains(many, want) {
			t.Errorf("300 classes: no %q in %s", want, many)
		}
	}
	if strings.Contains(many, "Confusion matrix") || strings.Contains(few, "not listed") || strings.Contains(few, "most frequent") {
		t.Error("a matrix of many classes, or a selection of few")
	}
	view := pageView{Served: f.served}
	last := 0.0
	for _, c := range view.Judged() {
		if *c.Recall < last {
			t.Errorf("class %s of recall %g comes behind one of %g", c.Class, *c.Recall, last)
		}
		last = *c.Recall
	}
	if judged := view.Judged(); *judged[0].Recall != 0 || *judged[1].Recall != 0.5 || judged[1].Weight != 10_000 {
		t.Errorf("the worst classes are %+v", judged[:2])
	}
}

// The page shows how good smaller bases are, and the smallest that is nearly as good, by the figure
// that the model is chosen by.
func TestPageOfSizes(t *testing.T) {
	f := newFake()
	sizes := func() string {
		_, section, found := strings.Cut(do(newServer(f), "GET", "/", "").Body.String(), `<section id="sizes">`)
		if !found {
			return ""
		}
		_, section, _ = strings.Cut(section, `</ul>`)
		section, _, _ = strings.Cut(section, "</section>")
		return strings.Join(strings.Fields(regexp.MustCompile(`</?[^>]*>`).ReplaceAllString(section, " ")), " ")
	}
	if got := sizes(); got != "" {
		t.Errorf("without measured quality: %s", got)
	}
	f.explain(2)
	const want = "in use 500 coordinates, 94.0 % nearly as good 20 coordinates, 93.5 % streamd reduce --prune lda --basis 20 makes the basis as small, without reading a row."
	if got := sizes(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.served.Tuning.Criterion = tuning.BalancedCorrectness.String()
	if got := sizes(); !strings.HasPrefix(got, "in use 500 coordinates, 84.0 % nearly as good 20 coordinates, 83.5 %") {
		t.Errorf("balanced: %s", got)
	}
	q := f.served.Quality
	q.Sizes[len(q.Sizes)-1].BalancedCorrectness = 1
	if got := sizes(); got != "in use 500 coordinates, 100.0 %" {
		t.Errorf("all coordinates are needed: %s", got)
	}
	q.Sizes = q.Sizes[:1]
	if got := sizes(); got != "" {
		t.Errorf("a single size is no curve: %s", got)
	}
}

// The page says by which rule labels are decided.
func TestPageOfRules(t *testing.T) {
	f := newFake()
	model := func() string {
		_, section, _ := strings.Cut(do(newServer(f), "GET", "/", "").Body.String(), `<section id="model">`)
		section, _, _ = strings.Cut(section, "</section>")
		return strings.Join(strings.Fields(regexp.MustCompile(`</?[^>]*>`).ReplaceAllString(section, "")), " ")
	}
	for _, c := range []struct {
		rule *decision.Rule
		want string
	}{
		{nil, "A row is of class spam where x′w − γ ≥ 0, decided by value."},
		{decision.ByThreshold(0.25, nil), "A row is of class spam where x′w − γ ≥ 0.25, decided by cost."},
		{decision.ByThreshold(math.MaxFloat64, nil), "No row is of class spam by the rule of cost."},
		{decision.ByThreshold(-math.MaxFloat64, nil), "Every row is of class spam by the rule of cost."},
	} {
		f.served.Rule = c.rule
		if got := model(); !strings.Contains(got, c.want) {
			t.Errorf("no %q in %s", c.want, got)
		}
	}
	f.served.Model, f.served.Rule = wideModel(3, 2), decision.ByValue(3)
	if got, want := model(), "a row is of the class whose x′w − γ is largest."; !strings.Contains(got, want) {
		t.Errorf("no %q in %s", want, got)
	}
}

// The form has a field for each of few features, an example row for more, and nothing to
// begin with for many.
func TestFormView(t *testing.T) {
	for n, want := range map[int]string{
		2:   "2 features, fields: [{x1 -2.5 false} {x2 -1.5 false}], example: ",
		41:  `41 features, fields: [], example: {"features":[-2.5,-1.5,-0.5,0.`,
		300: "300 features, fields: [], example: ",
	} {
		v := newFormView(&model.Served{Model: wideModel(2, n)})
		if got := fmt.Sprintf("%d features, fields: %v, example: %.30s", v.Features, v.Inputs, v.Rows); got != want {
			t.Errorf("%s\nnot %s", got, want)
		}
	}
}

// Outside the group the lag is unknown, not 0.
func TestPageWithoutALag(t *testing.T) {
	f := newFake()
	known := f.status.Partitions[:1]
	for _, c := range []struct {
		in         bool
		partitions []model.Partition
		want       string
	}{
		{true, known, "<b>58</b><small>records in 1 partition</small>"},
		{true, f.status.Partitions, `<b class="none">unknown</b><small>not all`},
		{false, known, `<b class="none">unknown</b><small>not in the consumer group</small>`},
	} {
		f.status.InGroup, f.status.Partitions = c.in, c.partitions
		page := do(newServer(f), "GET", "/", "").Body.String()
		if _, tile, _ := strings.Cut(page, "<h2>Lag</h2>"); !strings.HasPrefix(tile, c.want) {
			t.Errorf("the lag is %.60s, not %s", tile, c.want)
		}
	}
}

// The rate is that of the last minute, without intervals that were not measured.
func TestLastRate(t *testing.T) {
	rates := func(all ...float64) *model.History {
		h := &model.History{Seconds: 5}
		for _, x := range all {
			if h.RowsPerSecond = append(h.RowsPerSecond, nil); x >= 0 {
				h.RowsPerSecond[len(h.RowsPerSecond)-1] = &x
			}
		}
		return h
	}
	for _, c := range []struct {
		of   *model.History
		want string
	}{
		{rates(), "nil"}, {rates(-1, -1), "nil"}, {rates(7), "7"}, {rates(-1, 1, 4, -1), "3"},
		{rates(1e6, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "1"},
	} {
		got := "nil"
		if rate := lastRate(c.of); rate != nil {
			got = strconv.FormatInt(*rate, 10)
		}
		if got != c.want {
			t.Errorf("%s rows/s, want %s", got, c.want)
		}
	}
}

// The correctness on new rows is unknown before the first of them.
func TestPageOfJudgements(t *testing.T) {
	f := newFake()
	for _, want := range []string{`<b>75.0 %</b><small>balanced 75.0 %, of the last 20 judged</small>`, `<b class="none">none judged yet</b>`} {
		page := do(newServer(f), "GET", "/", "").Body.String()
		if _, tile, _ := strings.Cut(page, "<h2>Right about new rows</h2>"); !strings.HasPrefix(tile, want) {
			t.Errorf("the page says %.80s, not %s", tile, want)
		}
		f.prequential = model.Prequential{}
	}
}

// The counts of alarms are those of the lines below them. A change for the better is told from one
// for the worse, and a share of wrong rows from a loss.
func TestPageOfAlarms(t *testing.T) {
	f := newFake()
	drift := f.prequential.Drift
	drift.Alarms = append(drift.Alarms, model.Alarm{Time: testTime, Detector: model.DetectorError, Before: 0.3, After: 0.125, Rows: 32})
	_, section, _ := strings.Cut(do(newServer(f), "GET", "/", "").Body.String(), `<section id="stream">`)
	section, _, _ = strings.Cut(section, "</section>")
	for _, want := range []string{
		"<dd>error: 2 up, 1 down; loss: 1 up</dd>",
		`<td>loss up</td><td class="n">0.5</td><td class="n">0.75</td>`,
		`<td>error up</td><td class="n">10.0 %</td><td class="n">30.0 %</td>`,
		`<td>error down</td><td class="n">30.0 %</td><td class="n">12.5 %</td>`,
	} {
		if !strings.Contains(section, want) {
			t.Errorf("%s is not in %s", want, section)
		}
	}
}

// The policy forbids inline scripts and styles, and the page needs neither.
func TestPageKeepsItsPolicy(t *testing.T) {
	s := newServer(newFake())
	w := do(s, "GET", "/", "")
	policy := w.Header().Get("Content-Security-Policy")
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, directive) {
			t.Errorf("policy %q lacks %q", policy, directive)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	page := w.Body.String()
	for _, inline := range []string{"style=", "<style", "onclick=", "onload=", "javascript:", "http://", "https://"} {
		if strings.Contains(page, inline) {
			t.Errorf("the page has %q", inline)
		}
	}
	links := 0
	for _, link := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		links++
		if w := do(s, "GET", link[1], ""); w.Code != 200 {
			t.Errorf("the page's link %s: status %d", link[1], w.Code)
		}
	}
	if links < 6 {
		t.Errorf("only %d links were tried", links)
	}
}

func TestPageIsWellFormed(t *testing.T) {
	for name, f := range pageExamples(t) {
		page := do(newServer(f), "GET", "/", "").Body.String()
		d := xml.NewDecoder(strings.NewReader(page))
		d.Strict = false
		d.AutoClose, d.Entity = xml.HTMLAutoClose, xml.HTMLEntity
		elements := 0
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			if _, ok := token.(xml.StartElement); ok {
				elements++
			}
		}
		if elements < 60 {
			t.Errorf("%s: only %d elements", name, elements)
		}
		if len(page) > 256<<10 {
			t.Errorf("%s: the page has %d bytes", name, len(page))
		}
	}
}

func TestAssetsAreCached(t *testing.T) {
	s := newServer(newFake())
	for name := range assets {
		w := do(s, "GET", "/assets/"+name, "")
		tag := w.Header().Get("ETag")
		if w.Code != 200 || tag == "" {
			t.Errorf("%s: status %d, ETag %q", name, w.Code, tag)
		}
		if w := do(s, "GET", "/assets/"+name, "", "If-None-Match: "+tag); w.Code != 304 {
			t.Errorf("%s: status %d", name, w.Code)
		}
	}
}

// The files of uPlot are those of its package, version 1.6.32.
func TestVendoredFiles(t *testing.T) {
	for name, want := range map[string]string{
		"uPlot.js":      "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		if got := fmt.Sprintf("%x", sha256.Sum256(assets[name].content)); got != want {
			t.Errorf("%s: SHA-256 %s, want %s", name, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 123: "123", 1234: "1 234", 123456: "123 456", 1234567: "1 234 567",
		-1: "-1", -123: "-123", -1234: "-1 234", -12345: "-12 345", -123456: "-123 456", math.MinInt64: "-9 223 372 036 854 775 808",
	} {
		if got := strings.ReplaceAll(thousands(n), "\u202f", " "); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestWeight(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 7: "7", 0.25: "0.25", 999.5: "999.5", 12.3456: "12.35", 832740.4: "832 740", 1e9: "1 000 000 000", 1e-9: "1e-09", 1e20: "1e+20"} {
		if got := strings.ReplaceAll(weight(x), "\u202f", " "); got != want {
			t.Errorf("weight(%g) = %q, want %q", x, got, want)
		}
	}
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 119900 * time.Millisecond: "119 s", 2 * time.Minute: "2 min",
		2*time.Hour - 1: "119 min", 3*time.Hour + 59*time.Minute: "3 h", 49 * time.Hour: "2 d",
	} {
		if got := roughly(d); got != want {
			t.Errorf("roughly(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestRowCountsMissing(t *testing.T) {
	c := newFake().status.Rows
	if c.Missing() != 0 {
		t.Fatalf("missing %d", c.Missing())
	}
	f := newFake()
	f.status.Rows.Pending--
	if page := do(newServer(f), "GET", "/", "").Body.String(); !strings.Contains(page, "unaccounted for") {
		t.Error("the page does not say that a row is missing")
	}
}

// explain adds a refinement, a choice of ν and a measured quality of k classes to the model
// of f.
func (f *fake) explain(k int) {
	planes := wideModel(k, 1).Planes
	refined := &newton.Result{Model: &incremental.Model{Planes: planes}}
	quality := &model.Quality{
		Digest: f.served.Digest, MeasuredAt: testTime, Source: "sample", Rows: 20_000, Folds: 10, Method: "full",
		Calibration: config.CalibrationIsotonic,
	}
	// Half of the rows of a class in seven, and all rows of the last class, are labelled as the
	// next one.
	matrix, auc, classes := confusion.New(k), make([]float64, k), wideModel(k, 1).Classes
	for c := range k {
		rows := 20_000 / float64(c+1)
		next := int32((c + 1) % k)
		switch {
		case c == k-1:
			matrix.Add(int32(c), next, rows)
		case c%7 == 1:
			matrix.Add(int32(c), next, rows/2)
			matrix.Add(int32(c), int32(c), rows/2)
		default:
			matrix.Add(int32(c), next, rows/20)
			matrix.Add(int32(c), int32(c), rows-rows/20)
		}
		auc[c] = 0.5 + 0.49/float64(c+1)
	}
	quality.Answers = model.NewAnswers(decision.Probability, classes, matrix, auc)
	reliability := func(bend float64) *model.Reliability {
		r := &model.Reliability{Weight: 20_000, Brier: 0.061, LogLoss: 0.213, Error: 0.012 * bend}
		for i := range 10 {
			p := (float64(i) + 0.5) / 10
			r.Bins = append(r.Bins, model.Bin{Low: p - 0.05, High: p + 0.05, Weight: 500 + 150*math.Abs(float64(i)-4.5)*4, Probability: p, Share: math.Pow(p, bend)})
		}
		return r
	}
	quality.Before, quality.After = reliability(1.8), reliability(1.05)
	for _, size := range []int{1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500} {
		right := 0.94 - 0.4*math.Exp(-math.Sqrt(float64(size)))
		quality.Sizes = append(quality.Sizes, model.SizeQuality{Coordinates: size, Correctness: right, BalancedCorrectness: right - 0.1})
	}
	for i, p := range planes {
		refined.Planes = append(refined.Planes, newton.Report{Class: p.Class, Objective: 1234.5 / float64(i+1), Gradient: 3.1e-9, Iterations: 7, SupportVectors: 4321, Gap: math.NaN(), LeaveOneOut: 0.25})
		quality.Planes = append(quality.Planes, model.PlaneQuality{Class: p.Class, Before: reliability(2), After: reliability(0.9)})
	}
	curves := make([]model.TuningCurve, 2)
	for i := range curves {
		curves[i] = model.TuningCurve{Method: "psvm", Rows: 20_000, Standardise: i == 1}
		for e, nu := range tuning.Grid() {
			loss := 0.4 + 0.001*math.Pow(float64(e-25), 2) + 0.05*float64(i)
			correctness := 1.3 - loss
			curves[i].Points = append(curves[i].Points, model.TuningPoint{Nu: nu, Loss: &loss, Correctness: &correctness, BalancedCorrectness: new(float64)})
		}
		curves[i].Points[3].Correctness = nil
	}
	best := curves[0].Points[25]
	f.served.Quality, f.served.Tuning = quality, &model.Tuning{
		ChosenAt: testTime, Folds: 10, Criterion: tuning.Correctness.String(), Nu: best.Nu, Method: "psvm", Best: *best.Correctness, Curves: curves,
	}
	f.served.Refinement = &model.Refinement{
		Method: "full", Digest: f.served.Digest, MadeAt: testTime, Seconds: 1.75, Source: "sample",
		Rows: 65_536, Live: 5_200_000, Planes: model.PlaneRefinements(refined),
	}
}

// wideModel is a model of k classes and n features, the same in every run. Features differ
// in their deviations, and the last one is constant.
func wideModel(k, n int) *incremental.Model {
	m := &incremental.Model{Features: incremental.DefaultFeatures(n), Options: incremental.Options{Nu: 0.125, Standardise: true}}
	for j := range n {
		m.Mean = append(m.Mean, float64(j%7)-2.5)
		m.Deviation = append(m.Deviation, math.Pow(10, float64(j%5)-2)*float64(min(1, n-1-j)))
	}
	for c := range k {
		m.Classes = append(m.Classes, "class "+string(rune('A'+c%26)))
		m.Rows = append(m.Rows, int64(1_234_567/(c+1)))
		if k == 2 && c == 0 {
			continue
		}
		w := make([]float64, n)
		for j := range w {
			w[j] = math.Sin(float64(j*(c+2))) * math.Exp(-3*math.Abs(math.Sin(float64(j+c))))
		}
		m.Planes = append(m.Planes, incremental.Plane{Class: m.Classes[c], W: w, Gamma: 0.25 * float64(c-1), Condition: 1234.5})
	}
	return m
}

// hostileName is markup, is written from right to left, leaves its direction open, and is
// long. The end tells names apart.
func hostileName(end string) string {
	const markup = `"><script>hacked=1</script><img src=x onerror="hacked=1">'&{{.}}`
	return markup + "\u202e" + strings.Repeat("שלום ", 20) + strings.Repeat("W", 300-len(end)) + end
}

// pageExamples are the states that the page must show well.
func pageExamples(t *testing.T) map[string]*fake {
	example := func(change func(*fake)) *fake {
		f := newFake()
		f.served.Digest = strings.Repeat("3f9a", 16)
		f.served.Fingerprint = strings.Repeat("c07e", 16)
		f.status.Partitions = nil
		for p := range 4 {
			f.status.Partitions = append(f.status.Partitions, model.Partition{Topic: "orders", Partition: p, Next: int64(1_200_000 + 90_000*p), LogStart: 100_000, HighWatermark: 1_500_000})
		}
		f.status.Rows = model.RowCounts{Read: 5_242_880, Summarised: 5_200_000, ZeroWeight: 2880, Rejected: 20_000, Pending: 20_000}
		f.status.LiveRows, f.status.LiveBlocks = 5_200_000, 260
		f.status.Refused, f.status.InGroup, f.status.Epoch = nil, true, nil
		change(f)
		return f
	}
	return map[string]*fake{
		"2 classes": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.explain(2)
		}),
		"10 classes": example(func(f *fake) {
			f.served.Model = wideModel(10, 64)
			f.explain(10)
			for i := range f.served.Model.Classes { // digits, with figures as wide as they come
				f.served.Model.Classes[i] = strconv.Itoa(i)
				p := &f.served.Model.Planes[i]
				p.Class, p.Gamma, p.Condition = strconv.Itoa(i), -1234.567e-8*float64(i+1), 8.7654e+12
				for j := range p.W {
					p.W[j] *= 1.2345e-7
				}
			}
		}),
		"300 classes": example(func(f *fake) {
			f.served.Model = wideModel(300, 4096)
			f.explain(300)
			for p := range 1000 {
				f.status.Partitions = append(f.status.Partitions, model.Partition{Topic: "many", Partition: p, Next: 1, HighWatermark: 1})
			}
		}),
		"kernel": example(func(f *fake) {
			onBasis(t, f)
			f.explain(2)
			f.status.Epoch = rebuilding()
		}),
		"dead letters": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.status.DeadLetters = 1_234_567
			f.status.Refused = []model.Refusal{
				{Reason: "batch", Meaning: "its record batch cannot be read", Records: 2},
				{Reason: "classes", Meaning: "there would be too many classes", Records: 1_234_561},
				{Reason: "format", Meaning: "the payload cannot be decoded", Records: 4},
			}
			f.status.Problems = []Problem{{
				Kind: ProblemTime, Subject: "retire.keep", Since: testTime, Count: 134, Text: "the last 134 blocks were retired as they came, since they are older than retire.keep lets in",
				Detail: "the newest live block, of 2106-02-07T06:28:15Z, is orders/3/1841", Action: "retire it if its time is wrong",
			}}
		}),
		"broker away": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.status.InGroup, f.status.Partitions = false, nil
			f.status.Problems = []Problem{{Kind: ProblemGroup, Since: testTime, Text: "out of the consumer group, so nothing is read: dial tcp 10.0.0.7:9092: connect: connection refused"}}
		}),
		"no model": example(func(f *fake) {
			f.empty = true
			f.served.Model, f.served.Problem = nil, "the live rows are all of one class, ham"
			f.explain(2)
			f.status.NotReady = "reading the log: 1 200 000 records to go"
			f.status.Problems = []Problem{{Kind: ProblemStopping, Since: testTime, Text: "orders/2 has stopped: the dead letter for offset 1380000 cannot be written: topic orders.dlq does not exist; create it or set dead_letters.policy"}}
			f.status.LastSolve, f.status.LastSnapshot = time.Time{}, time.Time{}
			f.status.Partitions = nil
		}),
		"hostile names": example(func(f *fake) {
			m := wideModel(12, 12)
			f.served.Model = m
			f.explain(12)
			for c := range m.Classes {
				m.Classes[c] = hostileName("c" + strconv.Itoa(c))
				m.Planes[c].Class = m.Classes[c]
				f.served.Refinement.Planes[c].Class = m.Classes[c]
				f.served.Quality.Planes[c].Class, f.served.Quality.Classes[c].Class = m.Classes[c], m.Classes[c]
			}
			for j := range m.Features {
				m.Features[j] = hostileName("f" + strconv.Itoa(j))
			}
			f.status.Name, f.status.Topic, f.status.Group, f.status.Version = hostileName("n"), hostileName("t"), hostileName("g"), hostileName("v")
			f.status.NotReady, f.status.Problems = hostileName("r"), []Problem{{Kind: ProblemWitness, Since: testTime, Text: hostileName("p")}}
			f.status.Refused = []model.Refusal{{Reason: hostileName("a"), Meaning: hostileName("b"), Records: math.MaxInt64}}
			for i := range f.status.Partitions {
				f.status.Partitions[i].Topic = f.status.Topic
			}
			f.ids = []string{hostileName("i"), hostileName("j")}
		}),
	}
}

// A single plane is shown once, under its class: it is the model as a whole.
func TestTrustViews(t *testing.T) {
	q := &model.Quality{Before: &model.Reliability{}, Planes: []model.PlaneQuality{{Class: "a"}, {Class: "b"}, {Class: "c"}}}
	for planes, want := range map[int]string{1: "a", 3: " a b c"} {
		few := *q
		few.Planes = q.Planes[:planes]
		var classes []string
		for _, v := range newTrustViews(&few) {
			classes = append(classes, v.Class)
		}
		if got := strings.Join(classes, " "); got != want {
			t.Errorf("%d planes: diagrams of %q, not %q", planes, got, want)
		}
	}
}

// The page says which coordinates are in use and how far the next ones are. Without a
// kernel it does not mention coordinates.
func TestPageShowsEpochs(t *testing.T) {
	page := func(e *EpochAnswer) string {
		f := newFake()
		f.status.Epoch = e
		text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(do(newServer(f), "GET", "/", "").Body.String(), " ")
		return strings.Join(strings.Fields(text), " ")
	}
	busy := rebuilding()
	idle := &EpochAnswer{Epoch: 3, InUse: busy.InUse}
	first := &EpochAnswer{Rebuild: busy.Rebuild}
	for name, c := range map[string]struct {
		epoch      *EpochAnswer
		has, lacks []string
	}{
		"no kernel": {nil, nil, []string{"Coordinates", "Rebuilding", "reducing"}},
		"idle":      {idle, []string{"epoch 3 kernel gaussian(gamma=0.5) basis 40 points by kmeans, of 40 of 42 rows took 1.25 s made 4 Mar 05:06:07"}, []string{"Rebuilding", "reducing"}},
		"busy": {busy, []string{
			"epoch 3 kernel", "reducing since 4 Mar 05:06:07, 2 stages done", "39 points by cs, gaussian(gamma=2), that took 2.5 s",
			"blocks 1 of 3 rows 14 of 42 left, about 2 min blocks that the log no longer has 1",
		}, nil},
		"first": {first, []string{"epoch 0 in use the features", "blocks 1 of 3"}, []string{"reducing", "made 4 Mar 05:06:07 Rebuilding"}},
	} {
		text := page(c.epoch)
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page lacks %q: %s", name, want, text)
			}
		}
		for _, other := range c.lacks {
			if strings.Contains(text, other) {
				t.Errorf("%s: the page has %q: %s", name, other, text)
			}
		}
	}
}
