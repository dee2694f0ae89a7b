package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"streamd/cmd/streamd/audit"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/decision"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/ingest/wire"
	"streamd/snapshot"
)

// etag is the ETag of the served model, and its answer. known is the value of If-None-Match.
func (i *instance) etag(path, known string) (status int, tag string, answer httpapi.ModelAnswer) {
	i.t.Helper()
	req, err := http.NewRequestWithContext(i.t.Context(), http.MethodGet, "http://"+i.Addr().String()+path, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("If-None-Match", known)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			i.t.Fatal(err)
		}
	}
	return res.StatusCode, res.Header.Get("ETag"), answer
}

// Daemons that read one topic serve one ETag, with other histories: one of them had a block more
// and has retired it, and was restarted. A client that has the model from one has it from all, and
// a poll of a topic that stands still never says that the model has changed.
func TestReplicasHaveOneETag(t *testing.T) {
	const blocks = 12
	name := topic(t, 1)
	messages, _ := weightedBlocks(t, blocks+1)
	flags := map[string]string{
		"format.weight": "weight", "model.nu": "auto", "model.refine": "line", "model.refine_interval": "50ms", "sample.rows": "300",
	}
	produce(t, name, messages...)
	last := fmt.Sprintf("%s/0/%d", name, blocks)
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	d.waitForOffsetsRead(blocks + 1)
	d.settled()
	_, former, _ := d.etag("/v1/model", "")
	d.retire(last)
	d.settled()
	status, tag, answer := d.etag("/v1/model", former)
	if status != http.StatusOK || tag == former {
		t.Fatalf("status %d, ETag %s after %s: the model without the block is the one with it", status, tag, former)
	}
	if got := answer.Identity().Fingerprint(); got != answer.Fingerprint || tag != `W/"`+got+`"` {
		t.Errorf("the answer has the fingerprint %s, its ETag is %s, and its parts have %s", answer.Fingerprint, tag, got)
	}
	made := answer.MadeAt
	d.stop()

	again := start(t, name, file, flags)
	replica := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	replica.waitForOffsetsRead(blocks + 1)
	replica.retire(last)
	for _, i := range []*instance{again, replica} {
		i.waitForOffsetsRead(blocks + 1)
		i.settled()
		if status, got, _ := i.etag("/v1/model?wait=1s", tag); status != http.StatusNotModified || got != tag {
			t.Errorf("status %d, ETag %s; the model that the other daemon serves has %s", status, got, tag)
		}
		if _, _, other := i.etag("/v1/model", ""); !other.MadeAt.After(made) || len(other.Offsets) == 0 {
			t.Errorf("made at %v with offsets %v, after %v", other.MadeAt, other.Offsets, made)
		}
		i.stop()
	}
}

// ofTwoClasses are the blocks with the classes one and two: three is two, too.
func ofTwoClasses(t *testing.T, all []*incremental.Block) (messages []message) {
	t.Helper()
	for _, of := range all {
		b := *of
		b.Classes, b.Codes = []string{"one", "two"}, nil
		for _, code := range of.Codes {
			b.Codes = append(b.Codes, min(code, 1))
		}
		payload, err := wire.Encode(nil, wire.Arrow, &b)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, message{value: payload, contentType: wire.Arrow.ContentType()})
	}
	return messages
}

// servedAs is an answer as an auditor reads it, with that fingerprint.
func servedAs(a *httpapi.ModelAnswer, fingerprint string) *audit.Served {
	return &audit.Served{
		Identity: a.Identity(), Figures: a.Figures(), Fingerprint: fingerprint, Receipts: a.Receipts,
		Basis: a.Basis, Stale: a.BasisStale, Sample: a.Sample, Tuning: a.Tuning,
	}
}

// lies change one part each of a served model; false: it has no such part.
var lies = []struct {
	part string // that the error names
	tell func(a *httpapi.ModelAnswer) bool
}{
	{"planes[0].w[1]", func(a *httpapi.ModelAnswer) bool {
		a.Planes[0].W[1] = math.Nextafter(a.Planes[0].W[1], 9)
		return true
	}},
	{"planes[0].gamma", func(a *httpapi.ModelAnswer) bool { a.Planes[0].Gamma++; return true }},
	{"options.nu", func(a *httpapi.ModelAnswer) bool { a.Options.Nu *= 2; return true }},
	{"options.balanced", func(a *httpapi.ModelAnswer) bool { a.Options.Balanced = !a.Options.Balanced; return true }},
	{"options.standardise", func(a *httpapi.ModelAnswer) bool { a.Options.Standardise = !a.Options.Standardise; return true }},
	{"options.class_weights", func(a *httpapi.ModelAnswer) bool { a.Options.ClassWeights["one"] += 3; return true }},
	{"missing", func(a *httpapi.ModelAnswer) bool {
		a.Missing = append(a.Missing, model.MissingJSON{Feature: "a", Policy: config.MissingZero})
		return true
	}},
	{"method", func(a *httpapi.ModelAnswer) bool { a.Method += "er"; return true }},
	{"calibration.planes[0]", func(a *httpapi.ModelAnswer) bool {
		if a.Calibration == nil {
			return false
		}
		switch c := &a.Calibration.Planes[0]; {
		case c.A != nil:
			*c.A *= 2
		case c.Bias != nil:
			*c.Bias++
		case c.Scale != nil: // one for all planes
			for _, each := range a.Calibration.Planes {
				*each.Scale *= 2
			}
		default:
			c.Values[0]--
		}
		return true
	}},
	{"decision.threshold", func(a *httpapi.ModelAnswer) bool {
		if a.Decision.Threshold == nil {
			return false
		}
		*a.Decision.Threshold = math.Nextafter(*a.Decision.Threshold, 9)
		return true
	}},
	{"decision.rule", func(a *httpapi.ModelAnswer) bool { a.Decision.Rule += "s"; return true }},
	{"mean[1]", func(a *httpapi.ModelAnswer) bool { a.Mean[1] = math.Nextafter(a.Mean[1], 9); return true }},
	{"class_rows[0]", func(a *httpapi.ModelAnswer) bool { a.ClassRows[0]++; return true }},
	{"live_rows", func(a *httpapi.ModelAnswer) bool { a.LiveRows--; return true }},
	{"live_blocks", func(a *httpapi.ModelAnswer) bool { a.LiveBlocks--; return true }},
	{"unlabelled_rows", func(a *httpapi.ModelAnswer) bool { a.Unlabelled++; return true }},
	{"forgetting.rows", func(a *httpapi.ModelAnswer) bool {
		if a.Forgetting == nil {
			return false
		}
		a.Forgetting.Rows++
		return true
	}},
	{"decision.costs", func(a *httpapi.ModelAnswer) bool {
		if a.Decision.Rule != decision.Cost {
			return false
		}
		a.Decision.Costs[0].Cost *= 2
		return true
	}},
}

// dodges say of a study what is not so; false: there was none.
var dodges = []struct {
	want string
	tell func(a *httpapi.ModelAnswer) bool
}{
	{"sample is null", func(a *httpapi.ModelAnswer) bool {
		was := a.Sample
		a.Sample = nil
		return was != nil
	}},
	{"that its sample lacked rows of 1 blocks", func(a *httpapi.ModelAnswer) bool {
		if a.Sample == nil {
			return false
		}
		a.Sample.Complete, a.Sample.Lacking = false, 1
		return true
	}},
	{"(sample.digest), and it is of the sums ", func(a *httpapi.ModelAnswer) bool {
		if a.Sample == nil {
			return false
		}
		a.Sample.Digest = strings.Repeat("ab", 32)
		return true
	}},
	{"that there was no choice of ν (tuning), and by the settings there is a choice of ν for the state ", func(a *httpapi.ModelAnswer) bool {
		was := a.Tuning
		a.Tuning = nil
		return was != nil
	}},
	{"that there was a choice of ν for the state abab", func(a *httpapi.ModelAnswer) bool {
		if a.Tuning == nil {
			return false
		}
		a.Tuning.Digest = strings.Repeat("ab", 32)
		return true
	}},
}

// A served model is checked with a copy of the snapshot, by which it is made again: planes of the
// features and of a basis, refined ones, with every option, with weights by age, ν, the calibration
// and the rule of labels. A daemon that serves others is found, and the part is named, even if the
// fingerprint is that of what it serves. What cannot be made again is told with the reason.
func TestServedModelIsThatOfItsBlocks(t *testing.T) {
	const blocks = 10
	three, all := weightedBlocks(t, blocks)
	two := ofTwoClasses(t, all)
	var mixed []message
	r := rand.New(rand.NewPCG(3, 1))
	for _, b := range all {
		m, _ := withoutLabels(t, r, b)
		mixed = append(mixed, m)
	}
	for _, messages := range [][]message{three, two, mixed} {
		for i := range messages {
			messages[i].time = time.UnixMilli(1_700_000_000_000 + 1000*int64(i*i%13))
		}
	}
	const gaussian = "gaussian(gamma=0.01)"
	type flags = map[string]string
	studied := flags{"sample.rows": "1000", "model.folds": "3"}
	known := rulesFile(t)
	for name, test := range map[string]struct {
		messages  []message
		flags     flags
		studied   bool     // with the flags of studied
		unchecked []string // the beginnings of the parts that are not made again
	}{
		"plain":               {messages: three},
		"options":             {messages: three, flags: flags{"model.standardise": "true", "model.balanced": "true", "model.nu": "0.3"}},
		"missing":             {messages: three, flags: flags{"format.missing": "mean"}},
		"weights":             {messages: three, flags: flags{"model.class_weights": "one=2"}},
		"means":               {messages: three, flags: flags{"model.method": "means"}},
		"lasso":               {messages: two, flags: flags{"model.method": "lasso"}},
		"half-life":           {messages: three, flags: flags{"retire.half_life": "4s"}},
		"by rows":             {messages: three, flags: flags{"retire.half_life_rows": "100", "model.standardise": "true"}},
		"without rows":        {messages: three, flags: flags{"model.nu": "auto", "model.folds": "3"}},
		"defaults":            {messages: three, studied: true},
		"two classes":         {messages: two, studied: true},
		"all chosen":          {messages: three, studied: true, flags: flags{"model.nu": "auto", "model.standardise": "auto", "model.balanced": "auto", "model.refine": "auto"}},
		"two, all chosen":     {messages: two, studied: true, flags: flags{"model.nu": "auto", "model.standardise": "auto", "model.balanced": "auto", "model.refine": "auto"}},
		"line":                {messages: three, studied: true, flags: flags{"model.refine": "line", "model.calibration": "platt"}},
		"full":                {messages: two, studied: true, flags: flags{"model.refine": "full", "model.nu": "auto", "model.calibration": "isotonic"}},
		"logistic":            {messages: three, studied: true, flags: flags{"model.refine": "logistic", "model.calibration": "softmax"}},
		"hinge":               {messages: two, studied: true, flags: flags{"model.refine": "hinge"}},
		"sparse":              {messages: two, studied: true, flags: flags{"model.refine": "sparse", "model.calibration": "none"}},
		"costs":               {messages: two, studied: true, flags: flags{"model.decision": "cost", "model.costs": "one>two=5"}},
		"costs of three":      {messages: three, studied: true, flags: flags{"model.decision": "cost", "model.costs": "one>two=5"}},
		"by value":            {messages: three, studied: true, flags: flags{"model.decision": "value"}},
		"half-life, refined":  {messages: three, studied: true, flags: flags{"retire.half_life": "4s", "model.refine": "full", "model.nu": "auto"}},
		"balanced sample":     {messages: three, studied: true, flags: flags{"sample.balanced": "true", "sample.seed": "7", "sample.rows": "90"}, unchecked: []string{"rows of the sample: of "}},
		"a part of the rows":  {messages: two, studied: true, flags: flags{"sample.rows": "50", "model.refine": "line"}, unchecked: []string{"rows of the sample: of "}},
		"basis":               {messages: three, studied: true, flags: flags{"kernel.function": gaussian, "kernel.basis": "8", "kernel.rows": "100", "kernel.regulariser": "kernel"}},
		"basis, scaled":       {messages: two, studied: true, flags: flags{"kernel.function": "gaussian", "kernel.basis": "8", "kernel.rows": "100", "model.standardise": "true", "model.refine": "line", "model.nu": "auto"}},
		"basis by some rows":  {messages: three, studied: true, flags: flags{"kernel.function": gaussian, "kernel.basis": "8", "kernel.rows": "100", "sample.rows": "50"}, unchecked: []string{"sums in the basis of ", "rows of the sample: of "}},
		"rows of the log":     {messages: three, studied: true, flags: flags{"model.refine": "line", "model.rows": "log"}, unchecked: []string{"planes: ", "calibration: ", "decision: "}},
		"log, all chosen":     {messages: three, studied: true, flags: flags{"model.refine": "auto", "model.nu": "auto", "model.rows": "log"}, unchecked: []string{"planes: ", "calibration: ", "decision: "}},
		"rules":               {messages: three, flags: flags{"model.knowledge": known, "model.mu": "20"}},
		"rules, all chosen":   {messages: two, studied: true, flags: flags{"model.knowledge": known, "model.nu": "auto", "model.mu": "auto", "model.standardise": "auto"}},
		"rules, sparse":       {messages: two, studied: true, flags: flags{"model.knowledge": known, "model.refine": "sparse"}},
		"rules, basis":        {messages: three, studied: true, flags: flags{"model.knowledge": known, "kernel.function": gaussian, "kernel.basis": "8", "kernel.rows": "100"}},
		"archived blocks":     {messages: three, studied: true, flags: flags{"retire.keep": "blocks", "retire.blocks": "6", "retire.archive": "true", "model.refine": "full"}},
		"without labels":      {messages: mixed, studied: true, flags: flags{"blocks.unlabelled": "keep", "model.refine": "unlabelled", "sample.rows": "2000"}},
		"basis, half-life":    {messages: three, studied: true, flags: flags{"kernel.function": gaussian, "kernel.basis": "8", "kernel.rows": "100", "retire.half_life_rows": "200"}},
		"basis, all the rest": {messages: three, studied: true, flags: flags{"kernel.function": gaussian, "kernel.basis": "8", "kernel.rows": "100", "model.nu": "auto", "model.balanced": "auto", "model.refine": "auto"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := flags{"format.weight": "weight", "model.refine_interval": "50ms", "sample.rows": "0", "model.folds": "0"}
			if test.studied {
				maps.Copy(flags, studied)
			}
			maps.Copy(flags, test.flags)
			topic, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
			produce(t, topic, test.messages...)
			d := start(t, topic, file, flags)
			d.waitForOffsetsRead(blocks)
			if flags["kernel.function"] != "" {
				d.wait("a basis", func(s *model.Served) bool { return s.Basis != nil && s.Model != nil })
			}
			if memory.Studies(d.Config) {
				d.settled()
			} else {
				d.waitForSolve()
			}
			_, _, a := d.etag("/v1/model", "")
			d.stop()
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			check := func(tell func(a *httpapi.ModelAnswer) bool) (*audit.ModelReport, error) {
				var a httpapi.ModelAnswer
				if err := json.Unmarshal(text, &a); err != nil {
					t.Fatal(err)
				}
				if !tell(&a) {
					return nil, nil
				}
				a.Fingerprint = a.Identity().Fingerprint()
				return audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint))
			}
			report, err := check(func(a *httpapi.ModelAnswer) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			const settings = "settings: they are those that the snapshot states, and it has no receipt with their hash"
			want := append([]string{settings}, test.unchecked...)
			ok := len(report.Unchecked) == len(want)
			for i := 0; ok && i < len(want); i++ {
				ok = strings.HasPrefix(report.Unchecked[i], want[i])
			}
			if !ok {
				t.Errorf("not checked: %q, want %q", report.Unchecked, want)
			}
			for _, lie := range lies {
				part, _, _ := strings.Cut(lie.part, ".")
				part, _, _ = strings.Cut(part, "[")
				unchecked := slices.ContainsFunc(report.Unchecked, func(s string) bool { return strings.HasPrefix(s, part+": ") })
				report, err := check(lie.tell)
				switch {
				case report == nil && err == nil: // there is no such part
				case unchecked != (err == nil), err != nil && !strings.Contains(err.Error(), lie.part):
					t.Errorf("a lie about %s: %v, %+v", lie.part, err, report)
				}
			}
			// What the answer says of itself never says what is checked: not of arbitrary planes,
			// and not of true ones.
			for _, dodge := range dodges {
				for _, planes := range []float64{0, 1} {
					report, err := check(func(a *httpapi.ModelAnswer) bool {
						a.Planes[0].Gamma += planes
						return dodge.tell(a)
					})
					if (report != nil || err != nil) && (err == nil || planes == 0 && !strings.Contains(err.Error(), dodge.want)) {
						t.Errorf("%s: %v, %+v", dodge.want, err, report)
					}
				}
			}
			if _, err := check(func(a *httpapi.ModelAnswer) bool { a.Digest = strings.Repeat("0", 64); return true }); err == nil || !strings.Contains(err.Error(), "its blocks add up to the digest") {
				t.Errorf("another digest: %v", err)
			}
			a.Planes[0].Gamma++
			_, err = audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint))
			if err == nil || !strings.Contains(err.Error(), "it has been changed") {
				t.Errorf("another γ under the same fingerprint: %v", err)
			}
		})
	}
}

// rulesFile has rules of the rows of weightedBlocks.
func rulesFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	const text = "rules: [{when: a >= 4 and b <= 50 and c <= 9, then: two, within: [-500, 500]}, {when: a <= -3, then: one, within: [-500, 500]}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Planes of rules are made again also where there are no rows of two classes. The file of rules is
// that of the receipt's settings, and another one is found.
func TestServedModelOfRulesAlone(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	file, known := filepath.Join(folder, "streamd.db"), rulesFile(t)
	one := message{value: []byte(`[{"a":1,"b":2,"c":5,"label":"one"},{"a":0.5,"b":1,"c":6,"label":"one"}]`)}
	produce(t, topic, one, one)
	flags := withReceipts(folder, map[string]string{
		"blocks.unit": "message", "model.knowledge": known, "model.mu": "20", "sample.rows": "0", "model.folds": "0",
	})
	d := start(t, topic, file, flags)
	d.waitForOffsetsRead(2)
	d.retire(fmt.Sprintf("%s/0/%d", topic, 1))
	d.waitForSolve()
	_, _, a := d.etag("/v1/model", "")
	d.stop()
	if len(a.Planes) != 1 || a.Knowledge == nil || a.LiveRows != 2 {
		t.Fatalf("%+v", a)
	}
	report, err := audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint))
	if err != nil || len(report.Unchecked) > 0 || report.Planes != 1 || !slices.Contains(report.Proved, "its settings are those that receipt 1 has the hash of") {
		t.Fatalf("%v, %+v", err, report)
	}
	a.Planes[0].W[0]++
	if report, err := audit.Model(t.Context(), file, servedAs(&a, a.Identity().Fingerprint())); err == nil || !strings.Contains(err.Error(), "planes[0].w[0] is ") {
		t.Errorf("other planes: %v, %+v", err, report)
	}
	// A program has other bits on another processor, also where nothing is chosen by rows.
	flags["kafka.topic"], flags["snapshot.file"] = topic, file
	o := openOffline(t, flags, false)
	o.Saver.Learning = bytes.Replace(o.Saver.Learning, []byte(`"processor":"`), []byte(`"processor":"abacus`), 1)
	if err := o.Saver.Save(); err != nil {
		t.Fatal(err)
	}
	if err := o.Store.Close(); err != nil {
		t.Fatal(err)
	}
	report, err = audit.Model(t.Context(), file, servedAs(&a, a.Identity().Fingerprint()))
	if err != nil || len(report.Unchecked) != 1 || !strings.HasPrefix(report.Unchecked[0], "planes: ") {
		t.Errorf("made on another processor: %v, %+v", err, report)
	}
}

// A daemon whose refinement on rows of the log has failed serves solved planes, and an auditor
// finds them. Other planes are no better for saying the same.
func TestServedModelOfAFailedRefinement(t *testing.T) {
	const blocks = 10
	messages, _ := weightedBlocks(t, blocks)
	for name, flags := range map[string]map[string]string{
		"folds":  {"sample.rows": "1000", "model.folds": "3"},
		"alone":  {"sample.rows": "0", "model.folds": "0"},
		"chosen": {"sample.rows": "1000", "model.folds": "3", "model.nu": "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := maps.Clone(flags)
			maps.Copy(flags, map[string]string{"format.weight": "weight", "model.refine": "full", "model.rows": "log", "model.refine_interval": "50ms"})
			topic, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
			produce(t, topic, messages...)
			d := start(t, topic, file, flags)
			d.waitForOffsetsRead(blocks)
			d.settled()
			d.stop()
			deleteRecords(t, topic, blocks)
			d = start(t, topic, file, flags)
			d.waitForOffsetsRead(blocks)
			served := d.settled()
			_, _, a := d.etag("/v1/model", "")
			d.stop()
			if a.Refinement != nil || a.Method != model.MethodPSVM || !strings.HasPrefix(served.Absent.Refinement, "refine on rows of the log: ") {
				t.Fatalf("%s, %+v, %s", a.Method, a.Refinement, served.Absent.Refinement)
			}
			report, err := audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(report.Unchecked); n != 2 || !strings.HasPrefix(report.Unchecked[1], "refinement: ") || report.Planes != len(a.Planes) {
				t.Errorf("%+v", report)
			}
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			for _, lie := range lies {
				var a httpapi.ModelAnswer
				if err := json.Unmarshal(text, &a); err != nil {
					t.Fatal(err)
				}
				if !lie.tell(&a) {
					continue
				}
				if _, err := audit.Model(t.Context(), file, servedAs(&a, a.Identity().Fingerprint())); err == nil || !strings.Contains(err.Error(), lie.part) {
					t.Errorf("a lie about %s: %v", lie.part, err)
				}
			}
		})
	}
}

// What the snapshot cannot show of a model is told with the reason, and the rest is checked.
func TestServedModelThatCannotBeMadeAgain(t *testing.T) {
	const blocks = 10
	messages, _ := weightedBlocks(t, blocks)
	topic, folder := topic(t, 1), t.TempDir()
	file := filepath.Join(folder, "streamd.db")
	flags := withReceipts(folder, map[string]string{
		"blocks.unit": "message", "format.weight": "weight", "model.refine_interval": "50ms", "sample.rows": "60", "model.folds": "3", "model.nu": "auto", "model.standardise": "true",
	})
	produce(t, topic, messages...)
	d := start(t, topic, file, flags)
	d.waitForOffsetsRead(blocks)
	d.retire(fmt.Sprintf("%s/0/%d", topic, 3))
	d.settled()
	_, _, a := d.etag("/v1/model", "")
	d.stop()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	const some = "rows of the sample: of "
	if a.Sample == nil || !a.Sample.Complete || a.Sample.Digest != a.Digest || a.Calibration == nil {
		t.Fatalf("%s", text)
	}
	// saved has a file with the settings of a daemon with other flags, changed.
	saved := func(flag, value string, change func(s map[string]any)) string {
		path := filepath.Join(t.TempDir(), "copy.db")
		content, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		all := maps.Clone(flags)
		all["kafka.topic"], all["snapshot.file"] = topic, path
		if flag != "" {
			all[flag] = value
		}
		o := openOffline(t, all, false)
		var s map[string]any
		if err := json.Unmarshal(o.Saver.Learning, &s); err != nil {
			t.Fatal(err)
		}
		if change(s); flag == "" {
			if o.Saver.Learning, err = json.Marshal(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Saver.Save(); err != nil {
			t.Fatal(err)
		}
		if err := o.Store.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none, honest := func(map[string]any) {}, func(*httpapi.ModelAnswer) {}
	all := func(why string) []string {
		return []string{"options: " + why, "calibration: " + why, "decision: " + why}
	}
	older := strings.Repeat("ab", 32)
	lacking, algorithm := saved("sample.rows", "300", none), saved("", "", func(s map[string]any) { s["algorithm"] = s["algorithm"].(float64) + 1 })
	for name, c := range map[string]struct {
		file      string
		tell      func(a *httpapi.ModelAnswer)
		unchecked []string // the beginnings
		planes    bool     // are made again
		fails     string
	}{
		"honest": {file, honest, []string{some}, true, ""},
		"chosen for older sums": {file, func(a *httpapi.ModelAnswer) { a.Sample.Digest = older }, nil, false,
			"its choices were made for the sums " + older + " (sample.digest), and it is of the sums " + a.Digest},
		"by a part of the sample": {file, func(a *httpapi.ModelAnswer) { a.Sample.Complete, a.Sample.Lacking = false, 2 }, nil, false,
			"its sample lacked rows of 2 blocks (sample.lacking_blocks, complete is false), and the sample of the snapshot lacks none"},
		"before a study":    {file, func(a *httpapi.ModelAnswer) { a.Sample, a.Tuning = nil, nil }, nil, false, "no sample took part (sample is null)"},
		"refined, they say": {file, func(a *httpapi.ModelAnswer) { a.Method = "full" }, nil, false, `method is "psvm", and not "full"`},
		"no receipts":       {file, func(a *httpapi.ModelAnswer) { a.Receipts, a.Signed = 0, "" }, nil, false, "the number of receipts in its log is 2, and the model names none"},
		"the file lacks rows": {lacking, honest,
			append([]string{"settings: they are those that the snapshot states, and receipt 1 has the hash of others"}, all("the snapshot lacks rows of the sample, of 9 blocks")...), true, ""},
		"the file lacks rows, refined": {lacking, func(a *httpapi.ModelAnswer) { a.Method = "full" }, nil, false, `method is "psvm", and not "full"`},
		"the file lacks rows, other weights": {lacking, func(a *httpapi.ModelAnswer) { a.Options.ClassWeights = map[string]float64{"one": 2} }, nil, false,
			"options.class_weights"},
		"the file lacks rows, not standardised": {lacking, func(a *httpapi.ModelAnswer) { a.Options.Standardise = false }, nil, false, "options.standardise"},
		"the file lacks rows, no ν":             {lacking, func(a *httpapi.ModelAnswer) { a.Options.Nu = -1 }, nil, false, "make no model"},
		"another algorithm, other classes":      {algorithm, func(a *httpapi.ModelAnswer) { a.Classes[0] = "zero" }, nil, false, "classes[0]"},
		"another algorithm, other missing values": {algorithm, func(a *httpapi.ModelAnswer) {
			a.Missing = []model.MissingJSON{{Feature: "a", Policy: config.MissingZero}}
		}, nil, false, "missing"},
		"another algorithm, other means": {algorithm, func(a *httpapi.ModelAnswer) { a.Mean[0]++ }, nil, false, "mean[0]"},
		"other settings":                 {saved("model.standardise", "false", none), honest, nil, false, "options.nu is "},
		"another algorithm": {algorithm, honest,
			append([]string{"settings: they are those"}, "options: algorithm ", "method: algorithm ", "planes: algorithm ", "calibration: algorithm ", "decision: algorithm "), false, ""},
		"rules of another file": {saved("", "", func(s map[string]any) { s["rules"] = "0123" }), honest, nil, false, "the settings of the model cannot be: they have rules, and model.knowledge is empty"},
		"another processor": {saved("", "", func(s map[string]any) { s["processor"] = "abacus" }), honest,
			all("the snapshot states that they were made on abacus, "), true, ""},
		"settings of another program": {saved("", "", func(s map[string]any) { s["more"] = 1 }), honest, nil, false, `unknown field "more"`},
	} {
		t.Run(name, func(t *testing.T) {
			var a httpapi.ModelAnswer
			if err := json.Unmarshal(text, &a); err != nil {
				t.Fatal(err)
			}
			c.tell(&a)
			check := func() (*audit.ModelReport, error) {
				return audit.Model(t.Context(), c.file, servedAs(&a, a.Identity().Fingerprint()))
			}
			report, err := check()
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, %+v", err, report)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ok := len(report.Unchecked) == len(c.unchecked) && c.planes == (report.Planes == len(a.Planes))
			for i := 0; ok && i < len(c.unchecked); i++ {
				ok = strings.HasPrefix(report.Unchecked[i], c.unchecked[i])
			}
			if signed := slices.Contains(report.Proved, "its settings are those that receipt 1 has the hash of"); !ok || signed == (len(c.unchecked) > 0 && strings.HasPrefix(c.unchecked[0], "settings: ")) {
				t.Errorf("%+v", report)
			}
			a.Planes[1].W[2]++
			if _, err := check(); (err != nil) != c.planes {
				t.Errorf("another plane: %v", err)
			}
		})
	}
}

// An answer that keeps quiet about sources of its basis that have left is found.
func TestServedModelOfAStaleBasis(t *testing.T) {
	const blocks = 10
	messages, _ := weightedBlocks(t, blocks)
	topic, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	produce(t, topic, messages...)
	d := start(t, topic, file, map[string]string{
		"format.weight": "weight", "kernel.function": "gaussian(gamma=0.01)", "kernel.basis": "8", "kernel.rows": "100", "sample.rows": "1000",
		"kernel.on_retire": "keep", "model.refine_interval": "50ms", "blocks.unit": "message",
	})
	d.waitForOffsetsRead(blocks)
	d.wait("a basis", func(s *model.Served) bool { return s.Basis != nil && s.Model != nil })
	for i := range 4 {
		d.retire(fmt.Sprintf("%s/0/%d", topic, i))
	}
	d.settled()
	_, _, a := d.etag("/v1/model", "")
	d.stop()
	if !a.BasisStale {
		t.Fatal("no source of the basis has left")
	}
	if _, err := audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint)); err != nil {
		t.Error(err)
	}
	a.BasisStale = false
	if report, err := audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint)); err == nil || !strings.Contains(err.Error(), "the model says basis_stale is false") {
		t.Errorf("%v, %+v", err, report)
	}
}

// A daemon that changes the sums of a block in a basis, and serves the model of these, is found:
// the sample has the block's rows.
func TestForgedSumsOfABasis(t *testing.T) {
	const blocks, forged = 10, 3
	messages, all := weightedBlocks(t, blocks)
	topic, file := topic(t, 1), filepath.Join(t.TempDir(), "streamd.db")
	produce(t, topic, messages...)
	flags := map[string]string{
		"format.weight": "weight", "kernel.function": "gaussian(gamma=0.01)", "kernel.basis": "8", "kernel.rows": "100", "sample.rows": "1000",
		"model.refine_interval": "50ms", "blocks.unit": "message",
	}
	d := start(t, topic, file, flags)
	d.waitForOffsetsRead(blocks)
	d.wait("a basis", func(s *model.Served) bool { return s.Basis != nil && s.Model != nil })
	d.settled()
	d.stop()

	store, saved, err := snapshot.Open(file, snapshot.Settings{Topic: topic, Unit: "message"})
	if err != nil {
		t.Fatal(err)
	}
	in, id := d.Live.InUse().Coordinates, fmt.Sprintf("%s/0/%d", topic, forged)
	block, err := new(live.Keeper).Block(t.Context(), all[forged], in)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float64, block.Rows())
	for i := range values {
		values[i] = 1 - block.Columns[0].At(i)
	}
	block.Columns[0] = gram.ColumnOf(values)
	other, err := new(incremental.Summariser).Summarise(block)
	if err != nil {
		t.Fatal(err)
	}
	was, err := store.Summary(in.Number, id)
	if err != nil {
		t.Fatal(err)
	}
	content, err := store.Summary(snapshot.Features, id)
	if err != nil {
		t.Fatal(err)
	}
	change := snapshot.Change{InUse: saved.InUse, Horizon: saved.Horizon, Counts: saved.Counts, SavedAt: saved.SavedAt}
	for i := range saved.Spaces {
		s := &saved.Spaces[i]
		c := snapshot.SpaceChange{Space: s.Space, State: s.State, Folds: make([]*incremental.State, len(s.Folds)), Stale: s.Stale}
		if s.Number == in.Number {
			fold := sample.Fold(content.LabelledDigest(), len(s.Folds))
			c.Put, c.Folds[fold] = []snapshot.Summary{{ID: id, Summary: other}}, s.Folds[fold]
			for _, sums := range []*incremental.State{c.State, c.Folds[fold]} {
				sums.Remove(was)
				sums.Add(other)
			}
		}
		change.Spaces = append(change.Spaces, c)
	}
	if _, err := store.Save(change); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
		t.Fatalf("%+v, %v", report, err)
	}
	d = start(t, topic, file, flags)
	d.settled()
	_, _, a := d.etag("/v1/model", "")
	d.stop()
	report, err := audit.Model(t.Context(), file, servedAs(&a, a.Fingerprint))
	if want := "the sums of the block " + id + " in the basis are not those of its rows in the sample"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s; %+v", err, want, report)
	}
}
