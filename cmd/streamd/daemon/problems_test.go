package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/ingest/kafka"
)

// find returns the present problem of a kind, or nil.
func (i *instance) find(kind httpapi.ProblemKind) *httpapi.Problem {
	i.t.Helper()
	all := i.Status().Problems
	if at := slices.IndexFunc(all, func(p httpapi.Problem) bool { return p.Kind == kind }); at >= 0 {
		return &all[at]
	}
	return nil
}

// statusAnswer is the answer to a request that has a StatusAnswer.
func (i *instance) statusAnswer(method, path string) (a httpapi.StatusAnswer) {
	i.t.Helper()
	status, body := i.ask(method, path)
	if err := json.Unmarshal([]byte(body), &a); status != http.StatusOK || err != nil {
		i.t.Fatalf("%s %s: %d: %s", method, path, status, body)
	}
	return a
}

// classRows is a message of rows of one class, with a column more or without, and weights.
func classRows(rows int, class string, more string) message {
	var all []string
	for k := range rows {
		all = append(all, fmt.Sprintf(`{"label":%q,"a":%d,"b":%d%s}`, class, k+len(class), 2-k, more))
	}
	return message{value: []byte(strings.Join(all, "\n"))}
}

// Records and rows are counted apart: nobody knows the rows of a record that was not decoded.
func TestRecordsAndRowsAddUp(t *testing.T) {
	for unit, flags := range map[string]map[string]string{
		"message": {},
		"offsets": {"blocks.unit": "offsets", "blocks.offsets": "7"},
		"key":     {"blocks.unit": "key"},
	} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			var all []message
			add := func(n int, m message) {
				for range n {
					if unit == "key" {
						m.key = fmt.Appendf(nil, "k%d", len(all))
					}
					all = append(all, m)
				}
			}
			add(3, classRows(10, "ham", `,"weight":1`))
			add(2, classRows(10, "spam", `,"weight":1`))
			add(30, classRows(10, "spam", `,"weight":1,"campaign":"x"`)) // not decoded
			add(4, classRows(5, "a third", `,"weight":1`))               // decoded, and a class too many
			add(1, message{value: []byte(`{"label":"ham","a":1,"b":2,"weight":1}` + "\n" + `{"label":"ham","a":3,"b":2,"weight":0}`)})
			want := httpapi.StatusAnswer{
				Records: model.RecordCounts{Read: 40, Applied: 6, Rejected: 34, Undecoded: 30},
				Rows:    model.RowCounts{Read: 72, Summarised: 51, ZeroWeight: 1, Rejected: 20},
			}
			if unit == "key" {
				all = append(all, message{key: []byte("k1")})
				want.Records.Read, want.Records.Tombstones = 41, 1
			}
			name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
			given := map[string]string{"format.features": "a,b", "format.unknown": "reject", "format.weight": "weight", "limits.classes": "2"}
			for k, v := range flags {
				given[k] = v
			}
			for part := range slices.Chunk(all, 9) { // with restarts, and an open run at each
				produce(t, name, part...)
				d := start(t, name, file, given)
				end := d.Status()
				d.until("all is read", func() bool {
					end = d.Status()
					p := end.Partitions
					return len(p) == 1 && p[0].Lag() == 0 && addsUp(&end)
				})
				d.stop()
			}
			d := start(t, name, file, given)
			d.until("all is read", func() bool { s := d.Status(); return s.Records.Read == want.Records.Read })
			got := d.statusAnswer(http.MethodGet, "/v1/status")
			_, metrics := d.ask(http.MethodGet, "/metrics")
			if unit == "offsets" { // 40 records: the last 5 of the open run are pending
				p := &got.Records.Pending
				if *p != 1 || got.Rows.Pending != 2 {
					t.Errorf("pending: %+v, %+v", got.Records, got.Rows)
				}
				got.Records.Applied, *p = got.Records.Applied+*p, 0
				got.Rows.Summarised, got.Rows.ZeroWeight, got.Rows.Pending = got.Rows.Summarised+1, got.Rows.ZeroWeight+1, 0
			}
			if got.Records != want.Records || got.Rows != want.Rows {
				t.Errorf("%+v, %+v\nwant %+v, %+v", got.Records, got.Rows, want.Records, want.Rows)
			}
			for _, line := range []string{
				fmt.Sprintf("streamd_records_read_total %d", want.Records.Read), `streamd_records_total{outcome="rejected"} 34`,
				"streamd_records_undecoded_total 30", "streamd_rows_read_total 72", `streamd_rows_total{outcome="rejected"} 20`,
			} {
				if !strings.Contains(metrics, "\n"+line+"\n") {
					t.Errorf("the metrics lack %s", line)
				}
			}
			d.stop()
		})
	}
}

// A producer adds a column, and all that it sends is refused. Page, log, events and /v1/status say
// so, in amber, until a good record comes or somebody has seen it. The daemon stays ready.
func TestEverythingIsRefused(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"format.features": "a,b", "format.unknown": "reject", "log.level": "info"}
	produce(t, name, classRows(10, "ham", ""), classRows(10, "spam", ""))
	d, log := logging(t, name, file, flags)
	d.waitForOffsets(2)
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	d.until("the daemon is ready", func() bool { s := d.Status(); return s.NotReady == "" })
	if s := d.Status(); len(s.Problems) > 0 {
		t.Fatalf("before: %+v", s.Problems)
	}
	began := time.Now()
	bad := classRows(10, "spam", `,"campaign":"x"`)
	refuse := func(n int) {
		t.Helper()
		want := d.Status().Records.Rejected + int64(n)
		produce(t, name, slices.Repeat([]message{bad}, n)...)
		d.until("they are refused", func() bool { return d.Status().Records.Rejected == want })
	}
	refuse(300)
	p := d.find(httpapi.ProblemRefused)
	if p == nil || p.Level() != httpapi.LevelWarning || p.Count != 300 || p.Since.Before(began) || p.Last.Before(p.Since) ||
		!strings.HasPrefix(p.String(), "the last 300 records since "+p.Since.UTC().Format("15:04")+" UTC were refused: ") || !strings.Contains(p.Detail, "campaign") {
		t.Fatalf("%+v", p)
	}
	for _, want := range []string{"format.ignore", "format.features", "streamd letters list"} {
		if !strings.Contains(p.Action, want) {
			t.Errorf("%q does not name %s", p.Action, want)
		}
	}
	if status, page := d.ask(http.MethodGet, "/"); status != http.StatusOK || !strings.Contains(page, `class="pill warn"`) || !strings.Contains(page, strings.TrimPrefix(p.Text, "t")) {
		t.Errorf("the page says nothing of it: %s", page)
	}
	if status, body := d.ask(http.MethodGet, "/readyz"); status != http.StatusOK {
		t.Errorf("not ready: %s", body)
	}
	if _, metrics := d.ask(http.MethodGet, "/metrics"); !strings.Contains(metrics, "\n"+`streamd_problems{kind="refused",level="warning"} 1`+"\n") {
		t.Error("the metrics say nothing of it")
	}
	events, _, _ := d.Events("")
	if !slices.ContainsFunc(events, func(e httpapi.Event) bool {
		return e.Problem != nil && e.Problem.Kind == httpapi.ProblemRefused && !e.Problem.Passed && !strings.Contains(e.Text, "campaign")
	}) {
		t.Errorf("events: %+v", events)
	}

	// Seen, it goes. What is refused afterwards has not been seen, also after a restart.
	at := d.statusAnswer(http.MethodGet, "/v1/status").AsOf
	refuse(1)
	if a := d.statusAnswer(http.MethodPost, "/v1/status/seen?until="+url.QueryEscape(at.Format(time.RFC3339Nano))); len(a.Problems) != 1 {
		t.Errorf("what came later was seen, too: %+v", a)
	}
	if a := d.statusAnswer(http.MethodPost, "/v1/status/seen"); len(a.Problems) != 0 {
		t.Errorf("seen: %+v", a)
	}
	d.stop()
	d, _ = logging(t, name, file, flags)
	if p := d.find(httpapi.ProblemRefused); p != nil {
		t.Errorf("after a restart it has not been seen: %+v", p)
	}
	refuse(20)
	if d.find(httpapi.ProblemRefused) == nil {
		t.Error("nothing is said of further ones")
	}
	d.stop()
	d, _ = logging(t, name, file, flags)
	// The reason is kept in words that quote nothing of a record.
	if p := d.find(httpapi.ProblemRefused); p == nil || p.Detail != "the payload cannot be decoded" || !strings.Contains(p.Action, "format.ignore") {
		t.Errorf("after a restart: %+v", p)
	}
	if saved, err := os.ReadFile(file); err != nil || !bytes.Contains(saved, []byte("the payload cannot be decoded")) || bytes.Contains(saved, []byte("campaign")) {
		t.Errorf("the snapshot lacks the kind of the reason, or quotes the record: %v", err)
	}
	if _, page := d.ask(http.MethodGet, "/?view=stream"); !strings.Contains(page, `refused before the start, for reasons that are not counted apart</td><td class="n">321<`) {
		t.Errorf("the page does not say what was refused before the start: %s", page)
	}
	// Good records end it.
	produce(t, name, slices.Repeat([]message{classRows(10, "ham", "")}, 100)...)
	d.until("it has passed", func() bool { return d.find(httpapi.ProblemRefused) == nil })
	d.stop()
	for _, want := range []string{`"problem":"refused"`, "campaign"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}

// One refused record in a hundred is a problem, and one in a thousand is none once a good one
// has come.
func TestAFewAreRefused(t *testing.T) {
	name := topic(t, 1)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"format.features": "a,b", "format.unknown": "reject", "dead_letters.policy": "skip",
	})
	good, bad := classRows(1, "ham", ""), classRows(1, "ham", `,"campaign":1`)
	mixed := func(goods, bads int) {
		want := d.Status().Records.Read + int64(goods+bads)
		produce(t, name, slices.Concat(slices.Repeat([]message{bad}, bads), slices.Repeat([]message{good}, goods))...)
		d.until("all is read", func() bool { return d.Status().Records.Read == want })
	}
	mixed(999, 1)
	if p := d.find(httpapi.ProblemRefused); p != nil {
		t.Errorf("one in a thousand: %+v", p)
	}
	mixed(900, 40)
	if p := d.find(httpapi.ProblemRefused); p == nil || p.Text != "41 of the last 1940 records were refused" {
		t.Errorf("one in fifty: %+v", p)
	}
	produce(t, name, slices.Repeat([]message{{value: []byte("bad")}}, 12)...)
	d.until("the last cannot be decoded", func() bool { return d.Status().Records.Read == 1952 })
	if p := d.find(httpapi.ProblemRefused); p == nil || !strings.Contains(p.Action, "settings of format") || strings.Contains(p.Action, "format.ignore") || !strings.Contains(p.Action, "skipped") {
		t.Errorf("what cannot be decoded: %+v", p)
	}
	d.stop()
}

// Without a model the answer says why: nothing was read, all was refused, or what the rows lack.
func TestWhyThereIsNoModel(t *testing.T) {
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, map[string]string{"format.unknown": "reject"})
	says := func(wants ...string) {
		t.Helper()
		var status int
		var body string
		d.until(fmt.Sprint("it says ", wants), func() bool {
			status, body = d.ask(http.MethodGet, "/v1/model")
			return status == http.StatusServiceUnavailable && !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(body, want) })
		})
		if _, page := d.ask(http.MethodGet, "/?view=model"); !strings.Contains(page, "There is no model yet: ") {
			t.Errorf("the page does not say so")
		}
	}
	says("no record has been read yet", "the features are not known before the first block")
	produce(t, name, slices.Repeat([]message{{value: []byte("bad")}}, 12)...)
	says("all records that have been read were refused, 12 of them", "the last one because of this: ", "the features are not known")
	for range 2 {
		d.stop()
		d = start(t, name, file, map[string]string{"format.unknown": "reject"})
		says("all records that have been read were refused, 12 of them", "the last one because of this: the payload cannot be decoded; ")
	}
	produce(t, name, message{value: []byte(`{"label":"ham","a":1,"b":2,"weight":0}`)})
	produce(t, name, classRows(3, "ham", ""))
	d.until("all is read", func() bool { return d.Status().Records.Read == 14 })
	says(`all rows with a label are of the class \"ham\"`)
	if p := d.find(httpapi.ProblemModel); p == nil || p.Level() != httpapi.LevelFailure || strings.Contains(p.Text, "ham") || !strings.Contains(p.Detail, "ham") {
		t.Errorf("%+v", p)
	}
	for _, id := range d.blockIDs() {
		d.retire(id)
	}
	says("no block is live: all have been retired")
	d.stop()
}

// A study that finds no planes says why in the words of a solve.
func TestWhyAStudyHasNoModel(t *testing.T) {
	o := openOffline(t, offlineFlags(t, map[string]string{"blocks.unit": "message", "sample.rows": "100"}), false)
	defer func() { o.Store.Close() }()
	o.deliver(0, []kafka.Record{after(1, 0)}, 2)
	const want = `all rows with a label are of the class "1"`
	if got := o.solved().Problem; got != want {
		t.Errorf("a solve says %q", got)
	}
	o.study()
	if got := o.Front.Served(); got.Problem != want || !o.Studies.IsCurrent() {
		t.Errorf("after a study it is %q", got.Problem)
	}
}

// After a restart there is no model until the first solve has ended, and that is no problem.
func TestFirstSolveOfARestartIsNoProblem(t *testing.T) {
	o := openOffline(t, offlineFlags(t, map[string]string{"blocks.unit": "message"}), false)
	defer func() { o.Store.Close() }()
	o.deliver(0, []kafka.Record{after(1, 0), after(1, 1)}, 2)
	o.Saver.Save()
	o = o.crash(false)
	problem := func() bool {
		in := o.Intake.Report()
		return slices.ContainsFunc(o.conditions(&in), func(p httpapi.Problem) bool { return p.Kind == httpapi.ProblemModel })
	}
	if served := o.Front.Served(); served.Rows == 0 || served.Model != nil || problem() {
		t.Errorf("%d rows before the first solve, a problem: %t", served.Rows, problem())
	}
	o.publisher.Solve(time.Now())
	if o.Solving == nil || problem() {
		t.Errorf("a solve is under way: %t, a problem: %t", o.Solving != nil, problem())
	}
	o.Solving.Await()
	if served := o.Front.Served(); served.Model == nil != problem() {
		t.Errorf("after it: %s, a problem: %t", served.Problem, problem())
	}
}

// Records that are gone before they are read are counted, and a problem until somebody has seen
// it, also after a restart.
func TestGapsAreTold(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprint("reset ", reset), func(t *testing.T) {
			name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
			produce(t, name, message{value: jsonRow(1, 2, 3)}, message{value: jsonRow(-1, 4, 5)})
			d := start(t, name, file, nil)
			d.waitForOffsets(2)
			d.Jumped(&kafka.GapError{Topic: name, Saved: 2, LogStart: 10, LogEnd: 30, Reset: reset}, 14)
			d.Jumped(&kafka.GapError{Topic: name, Saved: 14, LogStart: 20, LogEnd: 30, Reset: reset}, 20)
			lost := int64(18) // 2 to 13, and 14 to 19
			if reset {
				lost = 4 // 10 to 13 of the new log
			}
			told := func() {
				t.Helper()
				p, c := d.find(httpapi.ProblemGap), d.Status().Records
				if p == nil || p.Count != lost || !strings.Contains(p.Text, fmt.Sprint(lost, " records")) || c.Lost != lost || c.Gaps != 2 {
					t.Errorf("%+v, %+v", p, c)
				}
				if _, metrics := d.ask(http.MethodGet, "/metrics"); !strings.Contains(metrics, fmt.Sprintf("\nstreamd_records_lost_total %d\n", lost)) || !strings.Contains(metrics, "\nstreamd_gaps_total 2\n") {
					t.Error("the metrics do not count it")
				}
			}
			told()
			if _, page := d.ask(http.MethodGet, "/"); !strings.Contains(page, "kafka.on_gap has let the daemon go on") {
				t.Error("the page does not say so")
			}
			d.stop()
			// The gap was made up, so the broker does not have the offset: stop there.
			d = start(t, name, file, map[string]string{"kafka.on_gap": "latest"})
			told2 := d.find(httpapi.ProblemGap)
			if told2 == nil || told2.Count < lost || !strings.HasPrefix(told2.Detail, "the latest ") || !strings.Contains(told2.Detail, " "+name+"/0") {
				t.Errorf("after a restart %+v", told2)
			}
			d.until("the true gap is told", func() bool { return d.Status().Records.Gaps == 3 })
			d.statusAnswer(http.MethodPost, "/v1/status/seen")
			d.stop()
			d = start(t, name, file, nil)
			if p := d.find(httpapi.ProblemGap); p != nil || d.Status().Records.Gaps != 3 {
				t.Errorf("it was seen: %+v", p)
			}
			d.stop()
		})
	}
}

// A rise of the error is a problem until the error has fallen again, also after a restart.
func TestARiseIsAProblemUntilItHasPassed(t *testing.T) {
	name, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	flags := map[string]string{"retire.keep": "rows", "retire.rows": "1500", "model.decision": "value"} // no curves of the old rows
	d := start(t, name, file, flags)
	produce(t, name, stream(1, 1, 100, false)...)
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	produce(t, name, stream(2, 15, 100, false)...)
	d.waitForOffsets(16)
	if p := d.find(httpapi.ProblemDrift); p != nil {
		t.Fatalf("before: %+v", p)
	}
	produce(t, name, stream(3, 8, 100, true)...)
	d.waitForOffsets(24)
	rises := func() bool {
		return slices.ContainsFunc(d.Status().Problems, func(p httpapi.Problem) bool {
			return p.Kind == httpapi.ProblemDrift && p.Subject == "error" && strings.Contains(p.Text, "of the judged rows are wrong")
		})
	}
	d.until("the rise is told", rises)
	d.stop()
	d = start(t, name, file, flags)
	if !rises() {
		t.Errorf("after a restart: %s", d.problems())
	}
	read := int64(24)
	for i := uint64(0); rises(); i++ { // the old rows leave the live set
		if i == 300 {
			t.Fatalf("it has not passed: %+v", d.Prequential().Drift)
		}
		produce(t, name, stream(10+i, 2, 100, true)...)
		read += 2
		d.waitForOffsets(read)
	}
	d.stop()
}

// A stream of which the features say nothing is a problem from the first judged rows on, which no
// change in the errors tells of.
func TestNoBetterThanOneClass(t *testing.T) {
	name := topic(t, 1)
	random := rand.New(rand.NewPCG(3, 1))
	noise := func() (all []message) {
		for range 30 {
			var rows strings.Builder
			for i := range 50 {
				label := "ham"
				if i%10 == 0 {
					label = "spam"
				}
				fmt.Fprintf(&rows, `{"label":%q,"a":%v,"b":%v}`+"\n", label, random.NormFloat64(), random.NormFloat64())
			}
			all = append(all, message{value: []byte(rows.String())})
		}
		return all
	}
	produce(t, name, noise()...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), nil)
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	produce(t, name, noise()...) // of those before, none need have been judged
	d.until("the problem is told", func() bool { return d.find(httpapi.ProblemUseless) != nil })
	a := d.statusAnswer(http.MethodGet, "/v1/status")
	if right := a.Answers[1]; right.ID != "right" || right.State != httpapi.ReplyWarn {
		t.Errorf("is it right? %+v", right)
	}
	d.stop()
}
