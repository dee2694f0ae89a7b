package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/access/accesstest"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/confusion"
	"streamd/incremental/decision"
	"streamd/incremental/newton"
	"streamd/incremental/tuning"
)

// viewOf is a view of the page.
func viewOf(f *fake, name string, more ...string) string {
	target := "/?view=" + name
	for _, q := range more {
		target += "&" + q
	}
	return do(newServer(f), "GET", target, "").Body.String()
}

// sectionOf is a section of a view, "" if there is none.
func sectionOf(f *fake, view, id string, more ...string) string {
	_, section, found := strings.Cut(viewOf(f, view, more...), `<section id="`+id+`"`)
	if !found {
		return ""
	}
	section, _, _ = strings.Cut(section, "</section>")
	return section
}

var markup = regexp.MustCompile(`title="[^"]*"|<[^>]*>`)

// textOf is what can be read of a page, with single blanks.
func textOf(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(markup.ReplaceAllString(page, " "))), " ")
}

func TestPageEscapes(t *testing.T) {
	const hostile = `"><script>alert(1)</script>'&`
	f := newFake()
	m := f.served.Model
	m.Features[0], m.Classes[1], m.Planes[0].Class = hostile+"f", hostile+"c", hostile+"c"
	f.status.Problems = []Problem{{Kind: ProblemWitness, Text: hostile + "p", Detail: hostile + "d", Action: hostile + "a"}}
	f.status.NotReady = hostile + "r"
	f.status.Version = hostile + "v"
	f.status.Partitions[0].Topic = hostile + "t"
	page := ""
	for _, view := range viewNames {
		page += viewOf(f, view)
	}
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
	page, section := viewOf(f, viewModel), sectionOf(f, viewModel, "knowledge")
	if section == "" || !strings.Contains(page, "proximal, with rules") || strings.Count(section, "0.125") != 50 || strings.Count(section, "x &gt;= 2") < 50*6 {
		t.Errorf("the page lacks rules: %s", section)
	}
	if strings.Contains(section, "<b>") || !strings.Contains(section, "of 60 rules the first 50") {
		t.Errorf("the page has markup from outside, or does not say how many rules there are: %s", section)
	}
}

// The page counts archived blocks and those that the control topic retires, if there are any.
func TestPageOfBlocksThatAreNotLive(t *testing.T) {
	f := newFake()
	counts := func() string { return textOf(sectionOf(f, viewOverview, "counts")) }
	f.status.Archived, f.status.Withdrawn = 1234, 1
	if text := counts(); !strings.Contains(text, "; 1 234 archived blocks; 1 block retired by the control topic ") {
		t.Errorf("the counts are %s", text)
	}
	f.status.Archived, f.status.Withdrawn = 0, 0
	if text := counts(); text == "" || strings.Contains(text, "archived") || strings.Contains(text, "control topic") {
		t.Errorf("without such blocks the counts are %s", text)
	}
}

// The page says how many rows of a refinement have no label, if there are any.
func TestPageOfUnlabelledRows(t *testing.T) {
	f := newFake()
	f.served.Refinement = testRefinement()
	f.served.Refinement.Rows, f.served.Refinement.Unlabelled = 421, 345
	section := func() string { return sectionOf(f, viewModel, "refinement") }
	const want = ", from the sample, 345 without a label"
	if text := section(); !strings.Contains(text, want) {
		t.Errorf("%q is not in %s", want, text)
	}
	f.served.Refinement.Unlabelled = 0
	if text := section(); !strings.Contains(text, ", from the sample<") || strings.Contains(text, "label") {
		t.Errorf("rows without a label are in %s", text)
	}
}

// Records and rows that went somewhere add up on the page, each in their own sum.
func TestPageOfRecordsAndRows(t *testing.T) {
	f := newFake()
	f.status.Records = model.RecordCounts{Read: 300, Rejected: 300, Undecoded: 300}
	f.status.Rows = model.RowCounts{}
	section := func() string {
		_, rest, _ := strings.Cut(do(newServer(f), "GET", "/?view=stream", "").Body.String(), `<section id="rows">`)
		section, _, _ := strings.Cut(rest, "</section>")
		return section
	}
	text := section()
	for _, want := range []string{"<b>300</b> records read", "<b>300</b> refused", "<b>0</b> rows read", "300 refused records could not be decoded: nobody knows their rows"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Count(text, "adds up") != 2 {
		t.Errorf("not both add up: %s", text)
	}
	f.status.Records.Rejected--
	if text = section(); strings.Count(text, "adds up") != 1 || !strings.Contains(text, "1 unaccounted for") {
		t.Errorf("a record is missing: %s", text)
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
		{"", nil, `<a class="pill good" href="/">ready</a>`},
		{"", []Problem{{Kind: ProblemWitness, Text: "p"}}, `<a class="pill warn" href="/">ready, with 1 problem</a>`},
		{"starting", nil, `<a class="pill bad" href="/">not ready</a>`},
		{"", []Problem{{Kind: ProblemSave, Text: "p"}, {Kind: ProblemWitness, Text: "q"}}, `<a class="pill bad" href="/">ready, with 2 problems</a>`},
		{"starting", []Problem{{Kind: ProblemWitness, Text: "p"}}, `<a class="pill bad" href="/">not ready</a>`},
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
		return fmt.Sprintf("%v, switch: %v", found, strings.Contains(w.Body.String(), `&amp;weights=own"`))
	}
	if got := order("/?view=model"); got != "[1 −2], switch: false" {
		t.Errorf("without deviations: %s", got)
	}
	f.served.Model.Deviation = []float64{8, 0.5}
	for target, want := range map[string]string{
		"/?view=model": "[8 −1], switch: true", "/?view=model&weights=importance": "[8 −1], switch: true",
		"/?view=model&weights=own": "[1 −2], switch: true", "/?view=model&weights=x": "400",
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
	trust := func() string { return textOf(sectionOf(f, viewQuality, "heldout")) }
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
	for _, want := range []string{"1–24 of 300", "The most frequent mistakes class label weight of the rows class B class C 5 000"} {
		if !strings.Contains(many, want) {
			t.Errorf("300 classes: no %q in %s", want, many)
		}
	}
	if strings.Contains(many, "Confusion matrix") || strings.Contains(few, " of 2 Later") || strings.Contains(few, "most frequent") {
		t.Error("a matrix of many classes, or a selection of few")
	}
	last := 0.0
	judged := inOrder(f.served.Quality.Classes)
	for _, c := range judged {
		if *c.Recall < last {
			t.Errorf("class %s of recall %g comes behind one of %g", c.Class, *c.Recall, last)
		}
		last = *c.Recall
	}
	if *judged[0].Recall != 0 || *judged[1].Recall != 0.5 || judged[1].Weight != 10_000 {
		t.Errorf("the worst classes are %+v", judged[:2])
	}
}

// The page shows how good smaller bases are, and the smallest that is nearly as good, by the figure
// that the model is chosen by.
func TestPageOfSizes(t *testing.T) {
	f := newFake()
	sizes := func() string {
		_, section, _ := strings.Cut(sectionOf(f, viewModel, "sizes"), `</ul>`)
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
		section := sectionOf(f, viewModel, "model")
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

// The form has a field for each of few features, which shows the mean, and the mean row for more.
func TestFormView(t *testing.T) {
	for n, want := range map[int]string{
		2:   "2 features, fields: [{x1 -2.5 false false} {x2 -1.5 false false}], mean: ",
		41:  `41 features, fields: [], mean: {"features":[-2.5,-1.5,-0.5,0.`,
		300: "300 features, fields: [], mean: ",
	} {
		v := newFormView(&model.Served{Model: wideModel(2, n)})
		if got := fmt.Sprintf("%d features, fields: %v, mean: %.30s", v.Features, v.Inputs, v.Mean); got != want {
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
		{true, known, "Is it behind? 58 records wait in 1 partition"},
		{true, f.status.Partitions, `Is it behind? Not known not all partitions have been read yet`},
		{false, known, `Is it behind? Not known not all partitions can be read`},
	} {
		f.status.Reading, f.status.Partitions = c.in, c.partitions
		if text := textOf(sectionOf(f, viewOverview, "glance")); !strings.Contains(text, c.want) {
			t.Errorf("no %q in %s", c.want, text)
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
		{rates(), "nil"}, {rates(-1, -1), "nil"}, {rates(7), "7"}, {rates(-1, 1, 4, -1), "2.5"},
		{rates(1e6, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "1"}, {rates(1, 0, 0, 0, 0, 0, 0, 0, 0, 0), "0.1"},
	} {
		got := "nil"
		if rate := lastRate(c.of); rate != nil {
			got = strconv.FormatFloat(*rate, 'g', -1, 64)
		}
		if got != c.want {
			t.Errorf("%s rows/s, want %s", got, c.want)
		}
	}
}

// The correctness on new rows is unknown before the first of them.
func TestPageOfJudgements(t *testing.T) {
	f := newFake()
	drift := f.prequential.Drift
	for _, c := range []struct {
		stream model.Prequential
		want   string
	}{
		{f.prequential, "Is it right? 75.0 % of the last 20 new rows, 8 m always the largest class: 80.0 %, better as the last label: 62.5 % kappa 0.3902, kappa-temporal 0.3333 balanced 75.0 %"},
		{model.Prequential{}, "Is it right? Not known yet no row has been judged since the start Is it"},
		{model.Prequential{Drift: drift}, "Is it right? Not known yet no row has been judged since the start 80.0 % of 30 judged rows were right before it"},
	} {
		f.prequential = c.stream
		text := regexp.MustCompile(`, [0-9]+ [a-z]+ ago`).ReplaceAllString(textOf(sectionOf(f, viewOverview, "glance")), ", 8 m")
		if !strings.Contains(text, c.want) {
			t.Errorf("no %q in %s", c.want, text)
		}
	}
	// A rise of the errors is no green tile, however many rows were right before it.
	f.prequential = model.Prequential{Window: &model.Stretch{Answers: model.Answers{Correctness: 0.9, Weight: 100}}}
	for _, risen := range []bool{false, true} {
		f.status.Problems = nil
		if risen {
			f.status.Problems = []Problem{{Kind: ProblemDrift, Text: "83.3 % of the judged rows are wrong"}}
		}
		glance := sectionOf(f, viewOverview, "glance")
		tile := glance[strings.Index(glance, "Is it right?")-200:][:600]
		if strings.Contains(tile, "good") == risen || strings.Contains(textOf(glance), "the stream has changed") != risen {
			t.Errorf("risen: %t: %s", risen, tile)
		}
	}
	f.status.Problems = nil
	f.explain(2)
	want := "Is it right? 63.3 % of held-out rows; no new row has been judged since the start always the largest class: 66.7 %, better kappa −0.06452 balanced 47.5 %"
	f.prequential = model.Prequential{}
	if text := textOf(sectionOf(f, viewOverview, "glance")); !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
}

// The counts of alarms are those of the lines below them. A change for the better is told from one
// for the worse, and a share of wrong rows from a loss.
func TestPageOfAlarms(t *testing.T) {
	f := newFake()
	drift := f.prequential.Drift
	drift.Alarms = append(drift.Alarms, model.Alarm{Time: testTime, Detector: model.DetectorError, Before: 0.3, After: 0.125, Rows: 32})
	section := sectionOf(f, viewQuality, "drift")
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
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
		if !strings.Contains(policy, directive) {
			t.Errorf("policy %q lacks %q", policy, directive)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	page := w.Body.String()
	for _, view := range viewNames {
		page += viewOf(newFake(), view)
	}
	for _, inline := range []string{"style=", "<style", "onclick=", "onload=", "javascript:", "http://", "https://"} {
		if strings.Contains(page, inline) {
			t.Errorf("the page has %q", inline)
		}
	}
	links := 0
	tried := map[string]bool{}
	for _, link := range regexp.MustCompile(`(?:href|src)="([^"#]*)["#]`).FindAllStringSubmatch(page, -1) {
		if tried[link[1]] {
			continue
		}
		tried[link[1]] = true
		links++
		if w := do(s, "GET", html.UnescapeString(link[1]), ""); w.Code != 200 {
			t.Errorf("the page's link %s: status %d", link[1], w.Code)
		}
	}
	if links < 20 {
		t.Errorf("only %d links were tried", links)
	}
}

func TestPageIsWellFormed(t *testing.T) {
	for _, view := range viewNames {
		testWellFormed(t, view)
	}
}

func testWellFormed(t *testing.T, view string) {
	for name, f := range pageExamples(t) {
		page, name := viewOf(f, view), name+" "+view
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
		if elements < 40 {
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
	for x, want := range map[float64]string{0: "0", 7: "7", 0.25: "0.25", 999.5: "999.5", 12.3456: "12.35", 832740.4: "832 740", 1e9: "1 000 000 000", 1e-9: "1·10⁻⁹", 1e20: "1·10²⁰"} {
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
	if page := viewOf(f, viewStream); !strings.Contains(page, "unaccounted for") {
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
		ChosenAt: testTime,
		Choice:   model.Choice{Folds: 10, Criterion: tuning.Correctness.String(), Nu: best.Nu, Method: "psvm", Best: *best.Correctness, Curves: curves},
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
		name := "class " + string(rune('A'+c%26))
		if c >= 26 {
			name += strconv.Itoa(c / 26)
		}
		m.Classes = append(m.Classes, name)
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

// hostileName is markup, is written from right to left, leaves its direction open, has pictures,
// and is long. The end tells names apart.
func hostileName(end string) string {
	const markup = `"><script>hacked=1</script><img src=x onerror="hacked=1">'&{{.}}`
	return markup + "\u202e" + strings.Repeat("שלום 👩🏽‍🚀 ", 20) + strings.Repeat("W", 200-len(end)) + end
}

// noLag has read everything.
func (f *fake) noLag() {
	for i := range f.status.Partitions {
		f.status.Partitions[i].Next = f.status.Partitions[i].HighWatermark
	}
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
		f.status.Refused, f.status.Reading, f.status.Epoch = nil, true, nil
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
			f.status.Reading, f.status.Partitions = false, nil
			f.status.Problems = []Problem{{Kind: ProblemReading, Since: testTime, Text: "orders/0 cannot be read: dial tcp 10.0.0.7:9092: connect: connection refused"}}
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
		"names that differ late": example(func(f *fake) {
			f.served.Model = wideModel(3, 24)
			f.explain(3)
			for j := range f.served.Model.Features {
				f.served.Model.Features[j] = fmt.Sprintf("sensor_temperature_celsius_of_building_%d_mean", j)
			}
			for c := range f.served.Model.Classes {
				name := "customers_of_the_year_2026_by_their_number_of_orders_" + string(rune('a'+c))
				f.served.Model.Classes[c], f.served.Model.Planes[c].Class = name, name
				f.served.Refinement.Planes[c].Class, f.served.Quality.Planes[c].Class, f.served.Quality.Classes[c].Class = name, name, name
				f.served.Model.Planes[c].Gamma = -2.6374e-17
			}
		}),
		"a burst an hour ago": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.past = burst
			f.noLag()
		}),
		"an alarm": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.prequential.Drift.Alarms = []model.Alarm{{Time: testTime, Detector: model.DetectorError, Before: 0.06, After: 0.96, Rows: 640}}
			f.status.Problems = []Problem{{
				Kind: ProblemDrift, Subject: "error", Since: testTime, Last: testTime, Count: 1, Text: "the share of wrong answers rose from 6.0 % to 96.0 %",
				Action: "see what has changed in the stream, and retire the blocks of before if they no longer hold",
			}}
			f.events = append(f.events, Event{ID: "p-1", Time: testTime, Type: EventAlarm, Text: "the share of wrong answers rose from 6.0 % to 96.0 %"})
			f.noLag()
		}),
		"a gap": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.status.Problems = []Problem{
				{Kind: ProblemGap, Subject: "orders/2", Since: testTime, Last: testTime, Count: 41_200, Text: "41200 records of orders/2 were gone from the log before they were read", Action: "give the topic a longer retention"},
				{Kind: ProblemJob, Subject: "study", Since: testTime, Last: testTime, Count: 3, Text: "the study has failed 3 times; the last good result is served"},
			}
		}),
		"everything refused": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.past = burst
			f.status.DeadLetters = 300
			f.status.Refused = []model.Refusal{{Reason: "format", Meaning: "the payload cannot be decoded", Records: 300}}
			f.status.Problems = []Problem{{
				Kind: ProblemRefused, Since: testTime, Last: testTime.Add(time.Hour), Count: 300, Text: "the last 300 records were refused",
				Detail: "column campaign is not a feature", Action: "add it to format.features, or to format.ignore",
			}}
			f.noLag()
		}),
		"receipts": example(func(f *fake) {
			f.served.Model = wideModel(2, 10)
			f.status.Keys, f.status.Receipts = true, 12_345
			f.status.Witnesses = []Witness{{Name: "witness.example/one", Cosigned: 12_345}, {Name: "witness.example/two", Cosigned: 12_000, Failures: 7}}
			f.events = append(f.events, Event{ID: "p-1", Time: testTime, Type: EventRetirement, Text: "12 blocks with 1344 rows were retired by a request"})
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

// A single plane is the model as a whole. Of several, a link chooses the one that is drawn.
func TestTrustView(t *testing.T) {
	q := &model.Quality{Before: &model.Reliability{Bins: []model.Bin{{}}}, Planes: []model.PlaneQuality{{Class: "a"}, {Class: "b&c", Before: q1}, {Class: "d"}}}
	listed := []model.ClassAnswers{{Class: "a"}, {Class: "b&c"}}
	show := func(v *trustView) string {
		text := fmt.Sprintf("%q drawn: %v, unknown: %v;", v.Of.Class, v.Picture != "", v.Unknown)
		for _, f := range v.Figures {
			text += fmt.Sprintf(" %s[%s]%v", f.Class, f.Href, f.Here)
		}
		return text
	}
	const all = " [/?view=quality#trust]%v a[/?view=quality&class=a#trust]false b&c[/?view=quality&class=b%%26c#trust]%v"
	for class, want := range map[string]string{
		"":    `"" drawn: true, unknown: false;` + fmt.Sprintf(all, true, false),
		"b&c": `"b&c" drawn: true, unknown: false;` + fmt.Sprintf(all, false, true),
		"d":   `"d" drawn: false, unknown: false;` + fmt.Sprintf(all, false, false) + " d[/?view=quality&class=d#trust]true",
		"e":   `"" drawn: true, unknown: true;` + fmt.Sprintf(all, true, false),
	} {
		if got := show(newTrustView(q, class, listed)); got != want {
			t.Errorf("class %q: %s\nwant %s", class, got, want)
		}
	}
	one := *q
	one.Planes = q.Planes[1:2]
	if got, want := show(newTrustView(&one, "", listed)), `"b&c" drawn: true, unknown: false; b&c[]true`; got != want {
		t.Errorf("one plane: %s, want %s", got, want)
	}
}

var q1 = &model.Reliability{Bins: []model.Bin{{Weight: 1}}}

// The page says which coordinates are in use and how far the next ones are. Without a
// kernel it does not mention coordinates.
func TestPageShowsEpochs(t *testing.T) {
	page := func(e *EpochAnswer) string {
		f := newFake()
		f.status.Epoch = e
		return textOf(viewOf(f, viewModel))
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

// The first screen says when the served model was made, and whether a restart would have its
// blocks.
func TestPageSaysWhatIsSaved(t *testing.T) {
	for want, set := range map[string]func(*model.Served){
		"ago, saved":                             func(s *model.Served) {},
		"ago, its last blocks are not saved yet": func(s *model.Served) { s.Durable = false },
		"served model none yet":                  func(s *model.Served) { s.Model, s.Durable = nil, true },
	} {
		f := newFake()
		set(f.served)
		if text := textOf(viewOf(f, viewOverview)); !strings.Contains(text, "served model") || !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
}

// What is shown of long names that stand beside each other differs, and is short.
func TestNames(t *testing.T) {
	long := strings.Repeat("x", 100)
	together := []string{
		"age", long + "a" + long, long + "b" + long, "a" + long, "b" + long, long + "1", long + "2",
		"\u202eשלום" + long + "é1", "\u202eשלום" + long + "é2", strings.Repeat("👩‍🚀", 30) + "a", strings.Repeat("👩‍🚀", 30) + "b",
	}
	for j := range 24 {
		together = append(together, fmt.Sprintf("sensor_temperature_celsius_of_building_%d_mean", j))
	}
	n := names{}
	n.add(together)
	seen := map[string]bool{}
	for _, name := range together {
		v := n.of(name)
		if seen[v.Shown] || v.Whole != name || len([]rune(v.Shown)) > longName {
			t.Errorf("%q is shown as %q", name, v.Shown)
		}
		seen[v.Shown] = true
	}
	if got := n.of("age").Shown; got != "age" {
		t.Errorf("a short name is shown as %q", got)
	}
	if got := n.of("another " + long).Shown; len([]rune(got)) != longName {
		t.Errorf("a name that was not added is shown as %q", got)
	}
	// Two names that are the same but for what both leave out are shown whole.
	a, b := strings.Repeat("a", 25)+"1"+long, strings.Repeat("a", 25)+"2"+long
	n = names{a: "", b: ""}
	n.add([]string{a, b})
	if n.of(a).Shown == n.of(b).Shown {
		t.Errorf("two names are shown as %q", n.of(a).Shown)
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "0", 1: "1", -2.5: "−2.5", 0.00077941: "0.0007794", 12.3456: "12.35", 1234.5: "1234", -12345.6: "−12 346",
		9.99996: "10", 0.1: "0.1", -2.6374e-17: "−2.637·10⁻¹⁷", 1e300: "1·10³⁰⁰", math.MaxFloat64: "1.798·10³⁰⁸", math.SmallestNonzeroFloat64: "4.941·10⁻³²⁴",
		math.Inf(-1): "−Inf",
	} {
		if got := strings.ReplaceAll(number(x), "\u202f", " "); got != want {
			t.Errorf("number(%g) = %q, want %q", x, got, want)
		}
	}
	if got := numberIn(-2.6374e-17, 1); got != "0" {
		t.Errorf("what rounding leaves of 0 is %s", got)
	}
	if got := numberIn(-2.6374e-17, 1e-17); got != "−2.637·10⁻¹⁷" {
		t.Errorf("a small number among small ones is %s", got)
	}
	for s, want := range map[float64]string{0: "under 1 ms", 0.00077941: "1 ms", 0.25: "250 ms", 1.25: "1.25 s", 99.96: "100 s", 150: "2 min"} {
		if got := seconds(s); got != want {
			t.Errorf("seconds(%g) = %q, want %q", s, got, want)
		}
	}
}

// A number stays beside its unit.
func TestTight(t *testing.T) {
	for text, want := range map[string]string{
		"80.0 %, better": "80.0~%, better", "59 min ago": "59~min ago", "3 seconds": "3 seconds", "2 d": "2~d", "7 hams, 5 MiB": "7 hams, 5~MiB",
	} {
		if got := strings.ReplaceAll(tight(text), "\u00a0", "~"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The first screen tells a stream that stands from one that is refused, and from one that waits.
func TestPageAtAGlance(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fake)
		want   []string
	}{
		{"learning", func(*fake) {}, []string{"Is it learning? Yes ", "What needs you? Nothing no problem is known"}},
		{"a partition cannot be read", func(f *fake) { f.status.Reading = false }, []string{"Is it learning? No not all partitions can be read"}},
		{"a burst an hour ago", func(f *fake) { f.past = burst; f.noLag() }, []string{"Is it learning? Waiting for rows the last row came", "Is it behind? No 0 records wait"}},
		{"it stands", func(f *fake) { f.past = burst }, []string{"Is it learning? No row in a minute records wait to be read; the last row came", "Is it behind? 60 records"}},
		{"all refused", func(f *fake) {
			f.past = burst
			f.status.Problems = []Problem{{Kind: ProblemRefused, Text: "the last 300 records were refused", Action: "name the column"}}
		}, []string{"Is it learning? No the last 300 records were refused the last row came", "What needs you? 1 problem", "Is it behind? 60 records wait"}},
		{"rows come, and all are refused", func(f *fake) {
			f.status.Problems = []Problem{{Kind: ProblemRefused, Count: 300, Text: "the last 300 records were refused"}}
		}, []string{"Is it learning? No the last 300 records were refused"}},
		{"some are refused", func(f *fake) {
			f.status.Problems = []Problem{{Kind: ProblemRefused, Text: "41 of the last 1940 records were refused"}}
		}, []string{"Is it learning? Yes ", "in the last minute 41 of the last 1940 records were refused"}},
		{"no model", func(f *fake) { f.served.Model, f.served.Problem = nil, "the rows are of one class" }, []string{"Is it learning? Not yet there is no model: the rows are of one class"}},
		{"falling lag", func(f *fake) { f.past = lagging(-100) }, []string{"at this pace read in about 3 s"}},
		{"growing lag", func(f *fake) { f.past = lagging(100) }, []string{"growing by 20 a second"}},
		{"a failure", func(f *fake) {
			f.status.Problems = []Problem{{Kind: ProblemSave, Text: "the disk is full"}, {Kind: ProblemDrift, Text: "error up"}}
		}, []string{"What needs you? 2 problems"}},
	} {
		f := newFake()
		f.status.Reading, f.status.Partitions = true, []model.Partition{{Topic: "orders", Next: 40, HighWatermark: 100}}
		c.change(f)
		text := textOf(sectionOf(f, viewOverview, "glance"))
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %s", c.name, want, text)
			}
		}
	}
}

// lagging is a history in which the lag changes by so much every five seconds.
func lagging(by int64) func(model.Span) *model.History {
	return func(span model.Span) *model.History {
		h := burst(span)
		for i := range h.Lag {
			h.Lag[i] = new(100_000 + by*int64(i))
			h.RowsPerSecond[i] = new(10.0)
		}
		return h
	}
}

// The charts show a value without neighbours, in the span in which there is one.
func TestPageOfABurst(t *testing.T) {
	f := newFake()
	f.past = burst
	for view, id := range map[string]string{viewOverview: "courses", viewPast: "history"} {
		section, dots := sectionOf(f, view, id), map[string]int{viewOverview: 1, viewPast: 2}[view]
		if !strings.Contains(section, "last 24 hours") || strings.Count(section, `class="dot d0"`) != dots || strings.Count(section, `class="curve c0"`) != 3 {
			t.Errorf("%s: %s", view, section)
		}
	}
	if section := sectionOf(f, viewPast, "history", "span=minutes"); !strings.Contains(section, "No row was read in the last 30 minutes.") {
		t.Errorf("of half an hour the page says %s", section)
	}
}

// A figure of the past has series of the same rows alone, and says of which, by the intervals of
// the span.
func TestFiguresOfThePastNameTheirRows(t *testing.T) {
	script, err := assetFiles.ReadFile("assets/history.js")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.past = burst
	for span, each := range map[string]string{"minutes": "5 seconds", "hours": "4 minutes", "days": "2 hours"} {
		section := sectionOf(f, viewPast, "history", "span="+span)
		for id, of := range map[string]string{
			"correctness": "of the rows judged in each " + each,
			"balanced":    "of the latest judged rows, 10,000 or more, at the end of each " + each,
			"rows":        "mean of each " + each, "lag": "the most in each " + each, "memory": "the most in each " + each,
		} {
			figure := regexp.MustCompile(`(?s)<figure data-course="` + id + `">(.*?)</figure>`).FindStringSubmatch(section)
			if figure == nil || !strings.Contains(figure[1], "<small>"+of+"</small>") || strings.Count(figure[1], `class="curve`) > 1 {
				t.Errorf("%s, %s: %v", span, id, figure)
			}
			most := map[bool]int{true: 3, false: 1}[id == "correctness"] // with its baselines
			if line := regexp.MustCompile(`(?s)\n  ` + id + `: \{(.*?)\n(?:  [a-z]|\})`).FindSubmatch(script); line == nil || bytes.Count(line[1], []byte("(h) =>")) != most {
				t.Errorf("%s has the series %s", id, line)
			}
			if n := strings.Count(figure[1], `class="level l`); (n > 0) != (id == "correctness" && strings.Contains(figure[1], `class="dot`)) {
				t.Errorf("%s, %s has %d lines of baselines: %s", span, id, n, figure[1])
			}
		}
	}
}

// Any class of a model of many can be reached, and its diagram drawn.
func TestPageOfManyClasses(t *testing.T) {
	f := newFake()
	f.served.Model = wideModel(300, 4)
	f.explain(300)
	for i := range 300 {
		name := fmt.Sprintf("class & %03d", i)
		f.served.Model.Classes[i], f.served.Model.Planes[i].Class = name, name
		f.served.Quality.Classes[i].Class, f.served.Quality.Planes[i].Class = name, name
	}
	s := newServer(f)
	for _, of := range []struct{ view, section string }{{viewModel, "model"}, {viewQuality, "heldout"}} {
		seen := map[string]bool{}
		pages := 0
		for at := "/?view=" + of.view; at != ""; pages++ {
			page := do(s, "GET", at, "").Body.String()
			for _, m := range regexp.MustCompile(`class &amp; [0-9]{3}`).FindAllString(page, -1) {
				seen[m] = true
			}
			later := regexp.MustCompile(`href="([^"]*)">Later`).FindStringSubmatch(page)
			if at = ""; later != nil {
				at = html.UnescapeString(later[1])
			}
			if pages > 20 {
				t.Fatal("the list has no end")
			}
		}
		if pages != 13 || len(seen) != 300 {
			t.Errorf("%s: %d classes on %d pages", of.view, len(seen), pages)
		}
	}
	page := viewOf(f, viewQuality, "class=class+%26+123")
	_, caption, _ := strings.Cut(page, "<figcaption>")
	if !strings.Contains(caption[:200], "class &amp; 123") {
		t.Errorf("the diagram is of %.200s", caption)
	}
	for _, view := range []string{viewModel, viewQuality} {
		if page := viewOf(f, view, "from=999999"); !strings.Contains(page, "289–300 of 300") {
			t.Errorf("%s: behind the end the list is not at its end", view)
		}
	}
}

// A button retires a block for callers who may, and for those who can show a token that may. Nobody
// else has one: it would not work.
func TestPageOffersRetirement(t *testing.T) {
	tokens, none := guard(t, config.Roles("read")), newServer(newFake()).config.Access
	servers := accesstest.NewAuthority(t)
	cert, key := servers.Issue(t, "streamd")
	dir := t.TempDir()
	files := config.HTTPTLS{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	if err := errors.Join(os.WriteFile(files.CertFile, cert, 0o600), os.WriteFile(files.KeyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	encrypted, err := access.New(config.HTTP{TLS: files, Anonymous: "read", Hosts: []string{"example.com"}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		access        *access.Guard
		header        string
		retires, asks bool
	}{
		{"no tokens", none, "X: y", false, false},
		{"encrypted, without tokens", encrypted, "X: y", false, false},
		{"anonymous", tokens, "X: y", true, true},
		{"a reader", tokens, "Authorization: Bearer " + readToken, true, true},
		{"one who retires", tokens, "Authorization: Bearer " + retireToken, true, false},
	} {
		s := New(Config{Access: c.access}, newFake(), NewMetrics(), zerolog.Nop())
		page := do(s, "GET", "/?view=blocks", "", c.header).Body.String()
		retires, asks := strings.Contains(page, `data-retires="yes"`), strings.Contains(page, `name="token"`)
		if !strings.Contains(page, "orders/3/7") || retires != c.retires || asks != c.asks {
			t.Errorf("%s: retires %v, asks for a token %v", c.name, retires, asks)
		}
	}
}

// Of many partitions those that are furthest behind are listed, and first those whose lag is not
// known.
func TestPageOfPartitions(t *testing.T) {
	f := newFake()
	f.status.Partitions = nil
	for p := range 100 {
		f.status.Partitions = append(f.status.Partitions, model.Partition{Topic: "orders", Partition: p, Next: 1000, HighWatermark: int64(1000 + p)})
	}
	f.status.Partitions[40].Next = -1
	v := newStreamView(&f.status, nil)
	if len(v.Partitions) != maxPartitions || v.More != 36 || v.Partitions[0].Partition.Partition != 40 || v.Partitions[1].Partition.Partition != 99 || v.Partitions[63].Partition.Partition != 36 {
		t.Errorf("the list has %d partitions, from %v to %v", len(v.Partitions), v.Partitions[:2], v.Partitions[len(v.Partitions)-1])
	}
	f.status.Partitions = f.status.Partitions[:50]
	if v := newStreamView(&f.status, nil); v.Partitions[0].Partition.Partition != 0 || v.Sorted {
		t.Errorf("few partitions begin with %v", v.Partitions[0])
	}
}

// The list of blocks does not wait for a daemon that is busy.
func TestPageOfBlocks(t *testing.T) {
	f := newFake()
	for i := range 30 {
		f.ids = append(f.ids, fmt.Sprintf("orders/4/%02d", i))
	}
	first := sectionOf(f, viewBlocks, "blocks")
	if strings.Count(first, "<tr data-id=") != blocksShown || !strings.Contains(first, `href="/?after=orders%2F4%2F16&amp;view=blocks">Next`) {
		t.Errorf("the list begins with %s", first)
	}
	if last := sectionOf(f, viewBlocks, "blocks", "after=orders%2F4%2F16"); strings.Count(last, "<tr data-id=") != 13 || strings.Contains(last, ">Next") || !strings.Contains(last, `href="/?view=blocks">First`) {
		t.Errorf("it ends with %s", last)
	}
	f.err = fmt.Errorf("list blocks: %w", ErrUnavailable)
	if got := textOf(sectionOf(f, viewBlocks, "blocks")); !strings.Contains(got, "list blocks: not available now") {
		t.Errorf("without a list the page says %s", got)
	}
	f.err = nil
	if w := do(newServer(f), "GET", "/?view=blocks&after=bad", ""); w.Code != 400 {
		t.Errorf("a bad id: status %d", w.Code)
	}
}

// Where blocks came as sums the page says that their rows cannot be judged.
func TestPageOfSums(t *testing.T) {
	for blocks, want := range map[int64]string{
		1:     "1 block came as sums since the start, and 42 rows cannot be judged.",
		12345: "12 345 blocks came as sums since the start, and 42 rows cannot be judged.",
	} {
		f := newFake()
		f.prequential.Sums, f.prequential.Window = &model.Sums{Blocks: blocks, Rows: 42}, nil
		if text := strings.ReplaceAll(textOf(sectionOf(f, viewQuality, "stream")), "\u202f", " "); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
		if text := textOf(sectionOf(f, viewOverview, "glance")); !strings.Contains(text, "blocks came as sums, whose rows cannot be judged") {
			t.Errorf("the first screen: %s", text)
		}
	}
}
