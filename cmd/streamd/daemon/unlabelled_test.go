package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/ingest/wire"
)

// withoutLabels puts rows without a label among those of a block. Some are outliers.
func withoutLabels(t *testing.T, r *rand.Rand, b *incremental.Block) (m message, out *incremental.Block) {
	t.Helper()
	out = &incremental.Block{Features: b.Features, Classes: append([]string{incremental.Unlabelled}, b.Classes...)}
	x := make([][]float64, len(b.Columns))
	add := func(code int32, weight float64, row func(j int) float64) {
		out.Codes, out.Weights = append(out.Codes, code), append(out.Weights, weight)
		for j := range x {
			x[j] = append(x[j], row(j))
		}
	}
	for i, code := range b.Codes {
		for range r.IntN(3) {
			add(0, float64(1+r.IntN(2)), func(int) float64 { return 1e4 * r.NormFloat64() })
		}
		add(code+1, b.Weight(i), func(j int) float64 { return b.Columns[j].At(i) })
	}
	for _, column := range x {
		out.Columns = append(out.Columns, gram.ColumnOf(column))
	}
	payload, err := wire.Encode(nil, wire.Arrow, out)
	if err != nil {
		t.Fatal(err)
	}
	return message{value: payload, contentType: wire.Arrow.ContentType()}, out
}

// learned is content without what counts all live rows.
func learned(t *testing.T, s *model.Served) string {
	t.Helper()
	out := *s
	if s.Tuning != nil {
		c := *s.Tuning
		c.Digest, out.Tuning = "", &c
	}
	if s.Refinement != nil {
		c := *s.Refinement
		c.Digest, c.Live, out.Refinement = "", 0, &c
	}
	if s.Quality != nil {
		c := *s.Quality
		c.Digest, out.Quality = "", &c
		if c.Sample != nil {
			c.Sample = &model.Sampled{Complete: c.Sample.Complete, Lacking: c.Sample.Lacking}
		}
	}
	basis := ""
	if s.Basis != nil {
		basis = s.Basis.ID
	}
	return content(t, &out) + basis
}

// Rows without a label change nothing that is learned: planes, ν, their refinement, the
// calibration, the quality and a basis have the bits of a daemon that never saw these rows.
// It makes no difference whether they share blocks with others, and they stay so in any
// order, after retirements and a restart.
func TestUnlabelledRowsChangeNoModel(t *testing.T) {
	const blocks = 24
	_, all := weightedBlocks(t, blocks)
	for name, flags := range map[string]map[string]string{
		"ν, scale":      {"model.nu": "auto", "model.standardise": "auto", "model.calibration": "isotonic", "sample.rows": "500"},
		"full":          {"model.refine": "full", "sample.rows": "300", "sample.balanced": "true"},
		"full, the log": {"model.refine": "full", "model.rows": "log", "sample.rows": "300"},
		"kernel":        {"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "kernel.rows": "900", "sample.rows": "400", "model.standardise": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := maps.Clone(flags)
			flags["format.weight"], flags["model.refine_interval"] = "weight", "50ms"
			// The digest counts rows without a label, so the fingerprint, which comes first,
			// differs.
			learned := func(t *testing.T, s *model.Served) string {
				_, rest, _ := strings.Cut(learned(t, s), "\n")
				return rest
			}
			study := func(i *instance) string {
				if flags["kernel.function"] != "" {
					i.reduced()
				}
				i.rowsAndFolds() // the sample may need rows from the log
				if flags["kernel.function"] != "" {
					now := i.reduced()
					return learned(t, i.wait("quality", func(s *model.Served) bool {
						return s.Quality != nil && s.Calibration != nil && s.Quality.Digest == now.Digest && s.Digest == now.Digest
					}))
				}
				return learned(t, i.settled())
			}

			var messages []message
			for _, b := range all {
				payload, err := wire.Encode(nil, wire.Arrow, b)
				if err != nil {
					t.Fatal(err)
				}
				messages = append(messages, message{value: payload, contentType: wire.Arrow.ContentType()})
			}
			plain := topic(t, 1)
			produce(t, plain, messages...)
			d := start(t, plain, filepath.Join(t.TempDir(), "streamd.db"), flags)
			d.waitForOffsetsRead(blocks)
			want := study(d)
			d.stop()

			r := rand.New(rand.NewPCG(17, 3))
			flags["blocks.unlabelled"] = "keep"
			mixed := topic(t, 2)
			var sent []message
			var gone string
			var next [2]int64
			var unlabelled int64
			for n, at := range r.Perm(blocks) {
				m, block := withoutLabels(t, r, all[at])
				unlabelled += int64(block.Rows() - block.Labelled().Rows())
				if n == 0 { // one block without any label, and one that goes
					none := &incremental.Block{Features: all[at].Features, Classes: []string{incremental.Unlabelled}, Codes: make([]int32, 40), Columns: all[at].Slice(0, 40).Columns}
					payload, err := wire.Encode(nil, wire.JSON, withWeights(none))
					if err != nil {
						t.Fatal(err)
					}
					unlabelled += 40
					for range 2 {
						alone := message{value: payload, contentType: wire.JSON.ContentType()}
						alone.partition = r.IntN(2)
						gone = incremental.Position{Topic: mixed, Partition: alone.partition, Offset: next[alone.partition]}.String()
						next[alone.partition]++
						sent = append(sent, alone)
					}
				}
				m.partition = r.IntN(2)
				next[m.partition]++
				sent = append(sent, m)
			}
			file := filepath.Join(t.TempDir(), "streamd.db")
			produce(t, mixed, sent...)
			d = start(t, mixed, file, flags)
			d.waitForOffsetsRead(int64(len(sent)))
			d.retire(gone)
			for _, when := range []string{"", "after a restart"} {
				if got := study(d); got != want {
					t.Errorf("%s: served\n%.900s\nwant\n%.900s", when, got, want)
				}
				s := d.Status()
				if s.Unlabelled != unlabelled || s.LiveRows <= unlabelled {
					t.Errorf("%s: %d of %d live rows are unlabelled, want %d", when, s.Unlabelled, s.LiveRows, unlabelled)
				}
				if when == "" && (s.Rows.Read != s.Rows.Summarised+s.Rows.ZeroWeight+s.Rows.Rejected+s.Rows.Pending || s.Rows.Rejected != 0) {
					t.Errorf("the rows are not accounted for: %+v", s.Rows)
				}
				d.stop()
				if when == "" {
					d = start(t, mixed, file, flags)
					d.waitForOffsetsRead(int64(len(sent)))
				}
			}
		})
	}
}

// withWeights gives all rows the weight 1.
func withWeights(b *incremental.Block) *incremental.Block {
	for range b.Codes {
		b.Weights = append(b.Weights, 1)
	}
	return b
}

// Without blocks.unlabelled: keep, a row without a label is refused with advice.
func TestUnlabelledRowsAreRefused(t *testing.T) {
	name := topic(t, 1)
	produce(t, name,
		message{value: []byte(`[{"label":1,"x":1},{"label":2,"x":2}]`)},
		message{value: []byte(`[{"label":1,"x":1},{"label":null,"x":2}]`)},
		message{value: []byte(`[{"label":"unknown","x":3}]`)})
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"format.unlabelled": "unknown"})
	defer d.stop()
	d.waitForOffsetsRead(3)
	s := d.Status()
	if s.LiveBlocks != 1 || s.DeadLetters != 2 || s.Unlabelled != 0 {
		t.Errorf("%d live blocks, %d dead letters, %d rows without a label", s.LiveBlocks, s.DeadLetters, s.Unlabelled)
	}
	// The rows of a record that cannot be read are not known.
	if s.Rows != (model.RowCounts{Read: 2, Summarised: 2}) || s.Records.Read != 3 || s.Records.Rejected != 2 {
		t.Errorf("rows %+v, records %+v", s.Rows, s.Records)
	}
}

// The rows to label are a function of the live set: in any order, beside blocks that have
// gone, and after a restart. They are rows of their blocks, and none of them has a label.
func TestLabelRequestsAreAFunctionOfTheLiveSet(t *testing.T) {
	const blocks = 20
	_, all := weightedBlocks(t, blocks)
	for name, flags := range map[string]map[string]string{
		"all rows":    {},
		"a sample":    {"sample.rows": "150", "sample.balanced": "true"},
		"as a kernel": {"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "sample.rows": "300"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := maps.Clone(flags)
			flags["format.weight"], flags["blocks.unlabelled"], flags["blocks.unit"] = "weight", "keep", "key"
			r := rand.New(rand.NewPCG(4, 9))
			var messages []message
			sent := map[string]*incremental.Block{} // by the id of the block
			for i, b := range all {
				m, mixed := withoutLabels(t, r, b)
				m.key = fmt.Appendf(nil, "k%d", i)
				messages = append(messages, m)
				sent["key:"+string(m.key)] = mixed
			}
			ask := func(d *instance) string {
				d.rowsAndFolds() // the sample may need rows from the log
				status, body := d.ask(http.MethodGet, "/v1/label-requests?count=12")
				if status != http.StatusOK {
					t.Fatalf("%d: %s", status, body)
				}
				return body
			}

			first := topic(t, 1)
			produce(t, first, messages...)
			d := start(t, first, filepath.Join(t.TempDir(), "streamd.db"), flags)
			d.waitForOffsetsRead(blocks)
			want := ask(d)
			d.stop()
			var a httpapi.LabelRequestsAnswer
			if err := json.Unmarshal([]byte(want), &a); err != nil {
				t.Fatal(err)
			}
			if a.Clusters != 12 || len(a.Requests)+a.Labelled != 12 || a.Labelled == 0 || len(a.Requests) < 3 {
				t.Fatalf("%d clusters, %d requests, %d labelled", a.Clusters, len(a.Requests), a.Labelled)
			}
			for _, request := range a.Requests {
				b := sent[request.Block]
				if b == nil || b.Classes[b.Codes[request.Row]] != incremental.Unlabelled || b.Weight(request.Row) == 0 || request.Share <= 0 || request.Share >= 1 {
					t.Fatalf("%+v is no row without a label", request)
				}
				for j, x := range request.Values {
					if x != b.Columns[j].At(request.Row) {
						t.Errorf("row %d of %s has %v, want %v", request.Row, request.Block, x, b.Columns[j].At(request.Row))
					}
				}
			}

			second := topic(t, 3)
			var others []message
			for n, at := range r.Perm(blocks) {
				if n%4 == 0 { // a former value, and a block that goes
					former, _ := withoutLabels(t, r, all[(at+1)%blocks])
					former.key, former.partition = messages[at].key, at%3
					gone := former
					gone.key = fmt.Appendf(nil, "gone%d", at)
					others = append(others, former, gone, message{key: gone.key, partition: at % 3})
				}
				m := messages[at]
				m.partition = at % 3
				others = append(others, m)
			}
			file := filepath.Join(t.TempDir(), "streamd.db")
			produce(t, second, others...)
			d = start(t, second, file, flags)
			d.waitForOffsetsRead(int64(len(others)))
			if got := ask(d); got != want {
				t.Errorf("in another order\n%s\nwant\n%s", got, want)
			}
			d.stop()
			d = start(t, second, file, flags)
			d.waitForOffsetsRead(int64(len(others)))
			if got := ask(d); got != want {
				t.Errorf("after a restart\n%s\nwant\n%s", got, want)
			}
			d.stop()
		})
	}
}

// Label requests need a sample and rows without a label.
func TestNoLabelRequests(t *testing.T) {
	name := topic(t, 1)
	produce(t, name, message{value: []byte(`[{"label":1,"x":1},{"label":2,"x":2}]`)})
	for rows, want := range map[string]int{"0": http.StatusConflict, "100": http.StatusOK} {
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{"sample.rows": rows, "model.folds": "0", "model.calibration": "none"})
		d.waitForOffsetsRead(1)
		if status, body := d.ask(http.MethodGet, "/v1/label-requests"); status != want || want == http.StatusOK && !strings.Contains(body, `"requests":[]`) {
			t.Errorf("sample.rows %s: %d: %s", rows, status, body)
		}
		d.stop()
	}
}

// unlabel takes the labels off all rows of blocks but every third.
func unlabel(t *testing.T, all []*incremental.Block) (messages []message) {
	t.Helper()
	for _, b := range all {
		b.Classes = append(slices.Clone(b.Classes), incremental.Unlabelled)
		for i := range b.Codes {
			if i%3 > 0 {
				b.Codes[i] = 3
			}
		}
		payload, err := wire.Encode(nil, wire.Arrow, b)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, message{value: payload, contentType: wire.Arrow.ContentType()})
	}
	return messages
}

// Planes that learn from rows without a label are a function of the live set, with the figures
// that judge them: in any order, after retirements and a restart. Without such rows they are
// those of the 1-norm machine.
func TestPlanesOfUnlabelledRowsAreAFunctionOfTheLiveSet(t *testing.T) {
	const blocks = 20
	for name, flags := range map[string]map[string]string{
		"all rows": {},
		"a sample": {"sample.rows": "150", "model.standardise": "true", "model.balanced": "true"},
		"a kernel": {"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "kernel.rows": "200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, all := weightedBlocks(t, blocks)
			messages := unlabel(t, all)
			flags := maps.Clone(flags)
			flags["format.weight"], flags["blocks.unlabelled"], flags["model.refine"] = "weight", "keep", "unlabelled"
			flags["model.refine_interval"] = "50ms"
			run := func(file string, flags map[string]string, messages []message, gone ...string) *model.Served {
				name := topic(t, 3)
				produce(t, name, messages...)
				d := start(t, name, file, flags)
				d.waitForOffsetsRead(int64(len(messages)))
				for _, block := range gone {
					d.retire(strings.ReplaceAll(block, "TOPIC", name))
				}
				d.rowsAndFolds() // the sample may need rows from the log
				s := d.settledAnywhere(flags)
				d.stop()
				d = start(t, name, file, flags)
				d.waitForOffsetsRead(int64(len(messages)))
				if again := d.settledAnywhere(flags); content(t, again) != content(t, s) {
					t.Errorf("after a restart\n%s\nbefore\n%s", content(t, again), content(t, s))
				}
				d.stop()
				return s
			}
			dir := t.TempDir()
			want := run(filepath.Join(dir, "one.db"), flags, messages)
			r := want.Refinement
			if r == nil || r.Method != "unlabelled" || r.Unlabelled == 0 || r.Unlabelled >= r.Rows || !r.Complete || want.Quality == nil {
				t.Fatalf("refined: %+v, judged: %v, %+v", r, want.Quality != nil, want.Absent)
			}
			var others []message
			for n, at := range rand.New(rand.NewPCG(5, 5)).Perm(blocks) {
				m := messages[at]
				if m.partition = n % 3; n == 1 {
					gone := messages[(at+3)%blocks]
					gone.partition = 0
					others = append(others, gone)
				}
				others = append(others, m)
			}
			got := run(filepath.Join(dir, "two.db"), flags, others, "TOPIC/0/1")
			if content(t, got) != content(t, want) || got.Digest != want.Digest {
				t.Errorf("in another order\n%.900s\nwant\n%.900s", content(t, got), content(t, want))
			}
			if name != "all rows" {
				return
			}
			flags["model.refine"] = "sparse"
			sparse := run(filepath.Join(dir, "sparse.db"), flags, messages)
			if planesOf(sparse) == planesOf(want) {
				t.Error("rows without a label change no plane")
			}
			for i, b := range all { // of the rows with a label
				payload, err := wire.Encode(nil, wire.Arrow, b.Labelled())
				if err != nil {
					t.Fatal(err)
				}
				messages[i].value = payload
			}
			flags["model.refine"] = "unlabelled"
			if labelled := run(filepath.Join(dir, "labelled.db"), flags, messages); planesOf(labelled) != planesOf(sparse) || labelled.Refinement.Unlabelled != 0 {
				t.Error("where all rows have a label, the planes are not those of the 1-norm machine")
			}
		})
	}
}
