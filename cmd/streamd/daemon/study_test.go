package daemon

import (
	"bytes"
	"context"
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

	"streamd/cmd/streamd/daemon/intake"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/newton"
	"streamd/ingest/wire"
)

// settled waits until the served model comes from a study of the current live set with all
// its rows.
func (i *instance) settled() *model.Served {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	for {
		served, err := loop.Ask(ctx, i.Loop, func() (*model.Served, error) {
			if !i.Studies.IsSettled() {
				return nil, nil
			}
			return i.Front.Served(), nil
		})
		if err != nil {
			i.t.Fatalf("%v; status %+v", err, i.Status())
		}
		if served != nil {
			return served
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// content prints everything served that must be a function of the live set.
func content(t *testing.T, s *model.Served) string {
	t.Helper()
	tuning, refinement, quality := s.Tuning, s.Refinement, s.Quality
	if tuning != nil {
		c := *tuning
		c.ChosenAt, c.Seconds, tuning = time.Time{}, 0, &c
	}
	if refinement != nil {
		c := *refinement
		c.MadeAt, c.Seconds, refinement = time.Time{}, 0, &c
	}
	if quality != nil {
		c := *quality
		c.MeasuredAt, quality = time.Time{}, &c
	}
	parts, err := json.Marshal([]any{tuning, refinement, quality, s.Knowledge, s.Calibration, s.Forgetting, s.Absent})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\n%s\n%v\n%s", s.Fingerprint, planesOf(s), s.Model.Options, parts)
}

// weightedBlocks makes Arrow messages of weighted rows of three overlapping classes, with
// features of different scale.
func weightedBlocks(t *testing.T, blocks int) (messages []message, all []*incremental.Block) {
	t.Helper()
	r := rand.New(rand.NewPCG(41, 1))
	for range blocks {
		const m = 60
		b := &incremental.Block{Features: []string{"a", "b", "c"}, Classes: []string{"one", "three", "two"}}
		x := make([][]float32, 3)
		for range m {
			code := int32(r.IntN(3))
			b.Codes = append(b.Codes, code)
			b.Weights = append(b.Weights, float64(r.IntN(5))/4)
			x[0] = append(x[0], float32(float64(code)+r.NormFloat64()))
			x[1] = append(x[1], float32(100*(math.Abs(float64(code)-1)+r.NormFloat64())))
			x[2] = append(x[2], float32(5+r.ExpFloat64()))
		}
		for _, column := range x {
			b.Columns = append(b.Columns, gram.ColumnOf(column))
		}
		payload, err := wire.Encode(nil, wire.Arrow, b)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, message{value: payload, contentType: wire.Arrow.ContentType()})
		all = append(all, b)
	}
	return messages, all
}

// The served model is a function of the live blocks: ν, the planes, their refinement, the
// calibration and the quality. They equal bit for bit those of a daemon that has seen the
// surviving blocks only, after retirements, restarts and with other partitions.
func TestStudyIsAFunctionOfTheLiveSet(t *testing.T) {
	const blocks, staying = 60, 30
	messages, _ := weightedBlocks(t, blocks)
	for i := range messages {
		messages[i].time = time.UnixMilli(1_700_000_000_000 + 1000*int64(i*i%97))
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	err := os.WriteFile(rules, []byte("rules: [{when: a <= -1, then: one, within: [-200, 400]}, {name: far, when: a >= 3 and b + c <= 150, then: three}]"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range []map[string]string{
		{},
		{"model.knowledge": rules, "model.standardise": "true"},
		{"model.knowledge": rules, "model.nu": "auto", "model.mu": "auto", "model.folds": "2", "sample.rows": "300"},
		{"model.knowledge": rules, "model.refine": "sparse", "model.standardise": "true", "sample.rows": "300"},
		{"model.nu": "auto", "model.standardise": "auto", "model.calibration": "isotonic", "sample.rows": "1000"},
		{"model.nu": "auto", "model.balanced": "true", "model.refine": "full", "sample.rows": "400", "sample.balanced": "true"},
		{"model.refine": "line", "model.standardise": "true", "model.calibration": "none"},
		{"model.refine": "full", "model.rows": "log", "sample.rows": "300", "model.standardise": "true"},
		{"model.refine": "full", "blocks.unit": "offsets", "blocks.offsets": "3"},
		{"retire.half_life": "9s", "model.nu": "auto", "model.standardise": "auto", "sample.rows": "1000"},
		{"retire.half_life": "1s", "model.refine": "sparse", "sample.rows": "1000"}, // the oldest weigh nothing
		{"retire.half_life_rows": "300", "model.refine": "full", "model.rows": "log", "sample.rows": "300", "model.standardise": "true"},
		{"retire.half_life_rows": "300", "model.nu": "auto", "model.refine": "auto", "sample.rows": "400", "sample.balanced": "true"},
	} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			flags := maps.Clone(flags)
			flags["format.weight"], flags["model.refine_interval"] = "weight", "50ms"
			gathered := flags["blocks.unit"] == "offsets"

			name := topic(t, 1)
			produce(t, name, messages[:staying]...)
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			d.waitForOffsetsRead(staying)
			served := d.settled()
			want := content(t, served)
			if served.Quality == nil || served.Quality.Rows == 0 ||
				(served.Calibration == nil) != (flags["model.calibration"] == "none") ||
				(served.Forgetting == nil) != (flags["retire.half_life"] == "" && flags["retire.half_life_rows"] == "") ||
				flags["model.refine"] != "auto" && (served.Refinement == nil) != (flags["model.refine"] == "") || (served.Knowledge == nil) != (flags["model.knowledge"] == "") || (served.Tuning == nil) != (flags["model.nu"] == "") {
				t.Fatalf("not all of it is there: %s", want)
			}
			if flags["model.mu"] == "auto" {
				c := served.Tuning.Curves
				if served.Tuning.Method != "knowledge" || served.Tuning.Mu != served.Knowledge.Mu || c[0].Mu != 1e4 || c[6].Mu != 0.01 || c[6].Method != "knowledge" {
					t.Errorf("the choice of μ is not told: %s", want)
				}
			}
			d.stop()
			if s := d.Studies.Last(); s.Sums.Whole != nil || s.Sums.Folds != nil || s.Sample != nil {
				t.Error("a study that has ended keeps its copies of the sums and of the sample")
			}

			r := rand.New(rand.NewPCG(42, 1))
			partitions := 3
			order := r.Perm(blocks)
			if gathered { // blocks of three messages, each in one partition
				partitions = 2
				for i := range order {
					order[i] = i
				}
			}
			name = topic(t, partitions)
			next := make([]int64, partitions)
			var sent []message
			gone := map[string]bool{}
			for _, b := range order {
				m := messages[b]
				if m.partition = r.IntN(partitions); gathered {
					m.partition = b / 3 % partitions
				}
				if b >= staying {
					first := next[m.partition]
					if gathered {
						first -= first % 3
					}
					gone[incremental.Position{Topic: name, Partition: m.partition, Offset: first}.String()] = true
				}
				next[m.partition]++
				sent = append(sent, m)
			}
			file := filepath.Join(t.TempDir(), "streamd.db")
			produce(t, name, sent[:blocks/2]...)
			d = start(t, name, file, flags)
			d.waitForOffsetsRead(blocks / 2)
			d.settled()
			produce(t, name, sent[blocks/2:]...)
			d.waitForOffsetsRead(blocks)
			for n, id := range slices.Sorted(maps.Keys(gone)) {
				d.retire(id)
				if n == len(gone)/2 {
					d.stop()
					d = start(t, name, file, flags)
				}
			}
			d.waitForOffsetsRead(blocks)
			d.rowsAndFolds() // the sample may need rows from the log
			if got := content(t, d.settled()); got != want {
				t.Errorf("served\n%s\nwant\n%s", got, want)
			}
			d.stop()
			d = start(t, name, file, flags)
			d.waitForOffsetsRead(blocks)
			if got := content(t, d.settled()); got != want {
				t.Errorf("after a restart\n%s\nwant\n%s", got, want)
			}
			d.stop()
		})
	}
}

// waitForOffsetsRead waits until n records have been applied, whether or not the served
// model includes them.
func (i *instance) waitForOffsetsRead(n int64) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	for {
		sum, err := loop.Ask(ctx, i.Loop, func() (sum int64, _ error) {
			for _, o := range i.Intake.Applied() {
				sum += o.Next
			}
			return sum, nil
		})
		if err != nil {
			i.t.Fatal(err)
		}
		if sum == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// passing hides that its blocks are in memory.
type passing struct{ newton.Rows }

// Rows from the log are the blocks themselves, so the planes equal those of package
// newton to the last bit. A sample of all rows has them in another order.
func TestRefinedPlanes(t *testing.T) {
	const blocks = 12
	messages, all := weightedBlocks(t, blocks)
	name := topic(t, 2)
	for i := range messages {
		messages[i].partition = i % 2
	}
	produce(t, name, messages...)
	var z incremental.Summariser
	state := incremental.NewState(all[0].Features)
	rows := int64(0)
	for _, b := range all {
		s, err := z.Summarise(b)
		if err != nil {
			t.Fatal(err)
		}
		state.Add(s)
		rows += s.Rows()
	}
	model, err := state.Moments().Solve(incremental.Options{Nu: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	for method, m := range map[string]newton.Method{"full": newton.Full, "line": newton.Line} {
		want, err := newton.Refine(t.Context(), model, passing{newton.Blocks(all)}, newton.Options{Method: m})
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range []string{"log", "sample"} {
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
				"format.weight": "weight", "model.nu": "0.5", "model.refine": method, "model.rows": source, "model.refine_interval": "20ms",
			})
			d.waitForOffsetsRead(blocks)
			served := d.settled()
			r := served.Refinement
			if r == nil || r.Method != method || r.Source != source || !r.Complete || r.Rows != rows || r.Live != rows || r.Digest != served.Digest {
				t.Fatalf("%s, %s: %+v of %d rows; %s", method, source, r, rows, served.Absent.Refinement)
			}
			for p, plane := range served.Model.Planes {
				a, b := append(slices.Clone(plane.W), plane.Gamma), append(slices.Clone(want.Model.Planes[p].W), want.Model.Planes[p].Gamma)
				for j := range a {
					if source == "log" && a[j] != b[j] || math.Abs(a[j]-b[j]) > 1e-10*math.Abs(b[j]) {
						t.Errorf("%s, %s: plane %d, number %d is %v, want %v", method, source, p, j, a[j], b[j])
					}
				}
				if got, want := r.Planes[p], want.Planes[p]; got.SupportVectors != want.SupportVectors || math.Abs(got.Objective-want.Objective) > 1e-12*want.Objective {
					t.Errorf("%s, %s: plane %d: %+v, want %+v", method, source, p, got, want)
				}
			}
			d.stop()
		}
	}
}

// post requests a refinement.
func (i *instance) post(wait string) (int, string) {
	i.t.Helper()
	return i.ask(http.MethodPost, "/v1/refine?wait="+wait)
}

// problems are the texts of the present problems, in lines.
func (i *instance) problems() string {
	var lines []string
	for _, p := range i.Status().Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// waitForSolve waits until a solve of the current rows has had its turn.
func (i *instance) waitForSolve() {
	i.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		waiting, err := loop.Ask(i.t.Context(), i.Loop, func() (bool, error) { return !i.publisher.IsSolved(), nil })
		if err != nil {
			i.t.Fatal(err)
		}
		if !waiting {
			return
		}
		if time.Now().After(deadline) {
			i.t.Fatal("they have not been solved")
		}
	}
}

// While a refinement waits for the log, the daemon keeps learning, refuses a second
// request, and stops without waiting. After refined planes only refined ones are served.
func TestRefineIsInTheBackground(t *testing.T) {
	messages, _ := weightedBlocks(t, 30)
	name := topic(t, 1)
	produce(t, name, messages[:10]...)
	flags := map[string]string{"format.weight": "weight", "model.refine": "full", "model.rows": "log", "model.refine_interval": "1h"}
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.waitForOffsetsRead(10)
	first := d.settled()
	if first.Refinement == nil {
		t.Fatalf("no refinement: %s", d.problems())
	}

	release := d.Topic.Hold()
	if status, body := d.post("0s"); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := d.post("0s"); status != http.StatusConflict {
		t.Errorf("a second one: %d %s", status, body)
	}
	produce(t, name, messages[10:20]...)
	d.waitForOffsetsRead(20)
	d.waitForSolve()
	if now, _ := d.Served(); now.Refinement != first.Refinement || planesOf(now) != planesOf(first) {
		t.Errorf("other planes are served while the refinement has not ended")
	}
	release()
	second := d.settled()
	if second.Refinement == nil || second.Refinement.Digest != second.Digest || second.Digest == first.Digest || second.Refinement.Rows != second.Rows {
		t.Errorf("%+v of %d rows", second.Refinement, second.Rows)
	}
	if status, body := d.post("1m"); status != http.StatusOK || !strings.Contains(body, `"done":true`) || !strings.Contains(body, `"method":"full"`) {
		t.Errorf("%d %s", status, body)
	}

	id := incremental.Position{Topic: name}.String()
	d.retire(id)
	third := d.settled() // refine_interval makes no difference
	if third.Refinement == nil || third.Refinement.Rows >= second.Rows || third.Refinement.Digest == second.Digest {
		t.Errorf("after a retirement: %+v", third.Refinement)
	}

	d.Topic.Hold()
	produce(t, name, messages[20:]...)
	d.waitForOffsetsRead(30)
	if status, _ := d.post("0s"); status != http.StatusAccepted {
		t.Errorf("%d", status)
	}
	d.stop()
}

// Planes that cannot be refined are served as solved, and the status says why.
func TestRefinementFails(t *testing.T) {
	name := topic(t, 1)
	var messages []message
	for i := range 200 {
		label := 0
		if i%100 == 50 {
			label = 1
		}
		messages = append(messages, message{value: jsonRow(label, i%17, i%23)})
	}
	produce(t, name, messages...)
	flags := map[string]string{"model.refine": "full", "model.refine_interval": "20ms", "sample.rows": "3"}
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	d.waitForOffsetsRead(200)
	served := d.settled()
	wanted, err := loop.Ask(t.Context(), d.Loop, func() (*incremental.Moments, error) { return d.Live.Features().Total().Moments(), nil })
	if err != nil {
		t.Fatal(err)
	}
	model, err := wanted.Solve(d.Learner.Options)
	if err != nil {
		t.Fatal(err)
	}
	if served.Refinement != nil || served.Absent.Refinement == "" || fmt.Sprintf("%x", served.Model.Planes) != fmt.Sprintf("%x", model.Planes) {
		t.Errorf("served %+v", served)
	}
	if !strings.Contains(d.problems(), "the planes are not refined: refine on rows of the sample: class") {
		t.Errorf("problems %q", d.problems())
	}
	if status, body := d.post("1m"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"refine on rows of the sample: class`) {
		t.Errorf("%d %s", status, body)
	}
	d.stop()
	flags["sample.balanced"] = "true" // which is the remedy
	flags["sample.rows"] = "4"
	d = start(t, name, file, flags)
	d.rowsAndFolds()
	if served := d.settled(); served.Refinement == nil || strings.Contains(d.problems(), "not refined") {
		t.Errorf("served %+v, problems %q", served.Absent, d.problems())
	}
	d.stop()

	d = start(t, name, file, nil)
	d.settled()
	if status, body := d.post("1m"); status != http.StatusConflict || !strings.Contains(body, "model.refine is none") {
		t.Errorf("%d %s", status, body)
	}
	d.stop()
}

// Rows that the log no longer has are missing, and the report says so.
func TestRefinementWithoutForgottenBlocks(t *testing.T) {
	messages, all := weightedBlocks(t, 12)
	name := topic(t, 1)
	produce(t, name, messages...)
	flags := map[string]string{"format.weight": "weight", "model.refine": "full", "model.rows": "log", "model.refine_interval": "20ms"}
	file := filepath.Join(t.TempDir(), "streamd.db")
	d := start(t, name, file, flags)
	d.waitForOffsetsRead(12)
	d.settled()
	d.stop()
	deleteRecords(t, name, 4)
	d = start(t, name, file, flags)
	d.waitForOffsetsRead(12)
	r := d.settled().Refinement
	var rows int64
	for _, b := range all[4:] {
		rows += int64(intake.Weighing(b).Rows())
	}
	if r == nil || r.Complete || r.Rows != rows || r.Rows >= r.Live {
		t.Errorf("%+v, want %d rows", r, rows)
	}
	d.stop()
}

// ν is chosen again when the rows have changed, and depends on them alone.
func TestNuIsChosenAgain(t *testing.T) {
	name := topic(t, 1)
	r := rand.New(rand.NewPCG(43, 1))
	// First, classes that differ only in a direction of small variance, which need a
	// large ν. Then classes that differ where the variance is.
	rows := func(n int, scale float64) (out []message) {
		for range n {
			var text bytes.Buffer
			text.WriteByte('[')
			for i := range 20 {
				if i > 0 {
					text.WriteByte(',')
				}
				label := r.IntN(2)
				fmt.Fprintf(&text, `{"label":%d,"x":%g,"y":%g}`, label, scale*(float64(2*label-1)+r.NormFloat64()/4), r.NormFloat64())
			}
			text.WriteByte(']')
			out = append(out, message{value: text.Bytes()})
		}
		return out
	}
	narrow, wide := rows(20, 1e-3), rows(40, 10)
	produce(t, name, narrow...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"model.nu": "auto"})
	d.waitForOffsetsRead(20)
	first := d.settled()
	produce(t, name, wide...)
	d.waitForOffsetsRead(60)
	for i := range narrow {
		d.retire(incremental.Position{Topic: name, Offset: int64(i)}.String())
	}
	second := d.settled()
	for _, s := range []*model.Served{first, second} {
		tuned := s.Tuning
		if tuned == nil {
			t.Fatalf("ν is not chosen: %s", s.Absent.Tuning)
		}
		if tuned.Digest != s.Digest || tuned.Nu != s.Model.Options.Nu || tuned.Criterion != "correctness" || tuned.Best < 0.99 || len(tuned.Curves) != 4 {
			t.Errorf("%+v with the options %+v", tuned, s.Model.Options)
		}
	}
	if !(first.Tuning.Nu > 100*second.Tuning.Nu) {
		t.Errorf("ν is %v for the narrow classes and %v for the wide ones", first.Tuning.Nu, second.Tuning.Nu)
	}
	d.stop()
}
