package daemon

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"streamd/cmd/streamd/daemon/bases"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/ingest/wire"
	"streamd/kernels/reduce"
	"streamd/retire"
	"streamd/snapshot"
)

// board is a checkerboard of 4×4 squares on [0, 200]² (Ho and Kleinberg 1996).
func board(x, y float64) int32 { return (int32(x/50) + int32(y/50)) & 1 }

// boardBlocks makes Arrow messages of points drawn from the integer grid.
func boardBlocks(t testing.TB, seed uint64, blocks, rows int) []message {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]message, blocks)
	for i := range out {
		x, y, codes := make([]float32, rows), make([]float32, rows), make([]int32, rows)
		for k := range rows {
			x[k], y[k] = float32(r.IntN(200)), float32(r.IntN(200))
			codes[k] = board(float64(x[k]), float64(y[k]))
		}
		value, err := wire.Encode(nil, wire.Arrow, &incremental.Block{
			Columns: []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}, Classes: []string{"-1", "1"}, Codes: codes,
		})
		if err != nil {
			t.Fatal(err)
		}
		out[i] = message{value: value, contentType: wire.Arrow.ContentType()}
	}
	return out
}

// rightOnGrid is the share of the 39,601 points of the papers' grid that a classifier
// labels correctly. With step > 1 it looks at every step-th point in both directions.
func rightOnGrid(c *model.Classifier, step int) float64 {
	var x, y []float64
	var codes []int32
	for i := 1; i < 200; i += step {
		for k := 1; k < 200; k += step {
			x, y = append(x, float64(i)), append(y, float64(k))
			codes = append(codes, board(float64(i), float64(k)))
		}
	}
	class, values := make([]int32, len(x)), make([]float64, len(x))
	c.Classify(class, values, []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)})
	right := 0
	for i := range codes {
		if class[i] == codes[i] {
			right++
		}
	}
	return float64(right) / float64(len(codes))
}

// epoch returns the daemon's answer.
func (i *instance) epoch() *httpapi.EpochAnswer {
	i.t.Helper()
	a, err := i.Epoch(i.t.Context())
	if err != nil {
		i.t.Fatal(err)
	}
	return a
}

// waitForEpoch waits until the answer satisfies ok.
func (i *instance) waitForEpoch(what string, ok func(*httpapi.EpochAnswer) bool) *httpapi.EpochAnswer {
	i.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		a := i.epoch()
		if ok(a) {
			return a
		}
		if time.Now().After(deadline) {
			text, _ := json.Marshal(a)
			i.t.Fatalf("waiting for %s: it is still %s, status %+v", what, text, i.Status())
		}
	}
}

// reduced requests a basis of the live blocks and waits for planes in its coordinates.
func (i *instance) reduced() *model.Served {
	i.t.Helper()
	i.rowsAndFolds() // the sample may need rows from the log
	idle := func(a *httpapi.EpochAnswer) bool { return a.Reducing == nil && a.Rebuild == nil && !a.Stale }
	i.waitForEpoch("the end of rebuilds after retirements", idle)
	if err := i.Reduce(i.t.Context()); err != nil {
		i.t.Fatal(err)
	}
	a := i.waitForEpoch("the end of a rebuild", idle)
	if a.Problem != "" || a.InUse == nil {
		i.t.Fatalf("there is no basis: %+v", a)
	}
	return i.wait("planes in its coordinates", func(s *model.Served) bool {
		return s.Model != nil && s.BasisID() == a.InUse.Basis
	})
}

// holdReading keeps blocks from being read again until it is released.
func (i *instance) holdReading() (release func()) {
	return i.Topic.Hold()
}

// comparable is everything that must be equal for equal live sets and bases.
func comparable(s *model.Served) string {
	return fmt.Sprintf("%s %s %d rows %s", s.Digest, s.BasisID(), s.Rows, planesOf(s))
}

// A stream of checkerboard points gives a nonlinear classifier of at most 40 points. Its
// basis is chosen as soon as there are enough rows. Its sums include the rows that came
// before the basis and those that come after it.
func TestCheckerboardOnTheStream(t *testing.T) {
	messages := boardBlocks(t, 51, 40, 500)
	name := topic(t, 2)
	for k := range messages {
		messages[k].partition = k % 2
	}
	produce(t, name, messages[:15]...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"kernel.function": "gaussian(gamma=0.0005)", "kernel.basis": "40", "kernel.rows": "7500",
		"model.nu": "1e6", "model.refine": "full", "model.refine_interval": "20ms", "model.folds": "0",
	})
	refined := func(s *model.Served) bool {
		return s.Basis != nil && s.Refinement != nil && s.Refinement.Digest == s.Digest
	}
	first := d.wait("planes in the coordinates of a basis", refined)
	if len(first.Model.Planes[0].W) > 40 || !slices.Equal(first.Basis.Features, []string{"x1", "x2"}) {
		t.Errorf("%d coordinates of %q", len(first.Model.Planes[0].W), first.Basis.Features)
	}
	produce(t, name, messages[15:]...)
	all := d.wait("planes of all rows", func(s *model.Served) bool { return s.Rows == 20_000 && refined(s) })
	if all.BasisID() != first.BasisID() {
		t.Fatalf("basis %s, first %s", all.BasisID(), first.BasisID())
	}
	before := rightOnGrid(all.Classifier(), 1)
	// A basis chosen from all rows.
	d.reduced()
	again := d.wait("planes on the second basis", func(s *model.Served) bool { return s.BasisID() != first.BasisID() && refined(s) })
	right := rightOnGrid(again.Classifier(), 1)
	t.Logf("right on the grid: %.4f, and with the second basis %.4f", before, right)
	if before < 0.97 || right < 0.97 {
		t.Errorf("right on the grid: %.4f, and with the second basis %.4f; want 0.97", before, right)
	}
	d.stop()
}

// A Gaussian's γ is the candidate that classifies held-out rows of the sample best. The
// median heuristic, which ignores classes, would choose another. Where a class has a single
// row nothing can be judged, and the heuristic is used.
func TestGammaOfTheStream(t *testing.T) {
	flags := map[string]string{"kernel.function": "gaussian", "kernel.basis": "60", "kernel.rows": "0", "model.nu": "auto"}
	name := topic(t, 1)
	produce(t, name, boardBlocks(t, 53, 10, 500)...)
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.waitForOffsets(10)
	s := d.inEpoch(d.reduced(), flags)
	made := d.epoch().InUse
	d.stop()
	best := slices.MaxFunc(made.Gammas, func(a, b model.Gamma) int { return cmp.Compare(a.Correctness, b.Correctness) })
	if made.Kernel != fmt.Sprintf("gaussian(gamma=%v)", best.Gamma) || len(made.Gammas) < 10 || made.Unjudged != "" {
		t.Errorf("%s was chosen of %+v", made.Kernel, made.Gammas)
	}
	// The median of ‖x − z‖² is about 12,000.
	if right := rightOnGrid(s.Classifier(), 1); best.Gamma < 4./12_000 || best.Correctness < 0.85 || right < 0.85 {
		t.Errorf("%.3f right on the grid with %+v", right, best)
	}

	few, err := wire.Encode(nil, wire.Arrow, &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf([]float32{1, 2, 4})}, Classes: []string{"1", "2"}, Codes: []int32{0, 0, 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	name = topic(t, 1)
	produce(t, name, message{value: few, contentType: wire.Arrow.ContentType()})
	flags["kernel.reduce"] = "random" // a centre needs more rows
	d = start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.waitForOffsets(1)
	if err := d.Reduce(t.Context()); err != nil {
		t.Fatal(err)
	}
	made = d.waitForEpoch("a basis of three rows", func(a *httpapi.EpochAnswer) bool { return a.InUse != nil }).InUse
	d.stop()
	if made.Kernel != "gaussian(gamma=0.25)" || made.Gammas != nil || !strings.Contains(made.Unjudged, "class") {
		t.Errorf("of three rows: %+v", made)
	}
}

// Rows that occur often give a basis, too, and planes in its coordinates, with K(Z, Z) as the
// regulariser: equal rows are one point.
func TestBasisOfRepeatedRows(t *testing.T) {
	const rows = 300
	x, y, codes := make([]float32, rows), make([]float32, rows), make([]int32, rows)
	for i := range rows {
		x[i], y[i] = float32(i%4), float32(i/4%2)
		codes[i] = int32((i%4 + i/4) & 1)
	}
	value, err := wire.Encode(nil, wire.Arrow, &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf(x), gram.ColumnOf(y)}, Classes: []string{"-1", "1"}, Codes: codes,
	})
	if err != nil {
		t.Fatal(err)
	}
	name := topic(t, 1)
	produce(t, name, message{value: value, contentType: wire.Arrow.ContentType()})
	for _, nu := range []string{"1", "auto"} {
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
			"kernel.function": "gaussian", "kernel.reduce": "random", "kernel.basis": "50", "kernel.rows": "0", "kernel.regulariser": "kernel", "model.nu": nu,
		})
		d.waitForOffsets(1)
		s := d.reduced()
		made := d.epoch().InUse
		d.stop()
		if s.Basis.Map.Points() != 8 || len(made.Gammas) == 0 {
			t.Errorf("ν %s: %d points of 8 distinct rows, γ of %+v", nu, s.Basis.Map.Points(), made.Gammas)
		}
	}
}

// After retirements and a new basis, the daemon serves bit for bit the model of a daemon
// that has only seen the surviving blocks. Order, partitions, block units, retirements
// and a restart make no difference.
func TestEpochIsAFunctionOfTheLiveSet(t *testing.T) {
	const blocks = 30
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := []byte("rules: [{when: x1 <= -1 and x2 <= 0, then: -1, within: [-4, 4]}, {when: x1 + x2 >= 2, then: 1, within: [-4, 4]}]")
	if err := os.WriteFile(rules, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string]map[string]string{
		"kmeans":           {"kernel.function": "gaussian", "kernel.basis": "7", "model.refine": "line"},
		"γ and ν":          {"kernel.function": "gaussian", "kernel.basis": "5", "kernel.regulariser": "kernel", "model.standardise": "true", "model.nu": "auto", "sample.balanced": "true"},
		"cs, scaled, ν":    {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "cs", "kernel.basis": "4", "model.standardise": "true", "model.nu": "auto"},
		"polynomial":       {"kernel.function": "polynomial(a=0.01,b=1,degree=2)", "kernel.reduce": "stratified", "kernel.basis": "9", "kernel.regulariser": "kernel", "model.refine": "full"},
		"slmc":             {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "slmc(nu=3,starts=2,means=false)", "kernel.basis": "4", "model.standardise": "true", "model.refine": "hinge"},
		"rs":               {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "rs", "kernel.basis": "4", "model.standardise": "true", "model.folds": "0"},
		"skfd":             {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "skfd", "kernel.basis": "4", "model.standardise": "true", "model.folds": "0"},
		"lda":              {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "lda", "kernel.basis": "7", "model.standardise": "true", "model.folds": "0"},
		"cholesky":         {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "cholesky", "kernel.basis": "7", "model.standardise": "true", "model.folds": "0"},
		"eigen":            {"kernel.function": "gaussian(gamma=0.1)", "kernel.reduce": "eigen(points=40)", "kernel.basis": "7", "model.standardise": "true", "kernel.regulariser": "kernel"},
		"sigmoid, kmedian": {"kernel.function": "sigmoid(a=0.01,b=0)", "kernel.reduce": "kmedian", "kernel.basis": "5", "model.folds": "0"},
		"half-life":        {"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "model.nu": "auto", "retire.half_life": "4s"},
		"rules":            {"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "model.knowledge": rules},
		"rules, sparse":    {"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "model.knowledge": rules, "model.refine": "sparse", "model.standardise": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payloads, _ := ndcBlocks(t, blocks)
			flags["kernel.rows"], flags["sample.rows"] = "1000", "800"
			r := rand.New(rand.NewPCG(52, 1))
			topicName := topic(t, 3)
			file := filepath.Join(t.TempDir(), "streamd.db")
			var messages, stay []message
			var gone []string
			var next [3]int64
			for k, b := range r.Perm(blocks) {
				p := r.IntN(3)
				m := message{partition: p, value: payloads[b], contentType: wire.Arrow.ContentType(), time: time.UnixMilli(1_700_000_000_000 + 1000*int64(b))}
				messages = append(messages, m)
				if k%3 == 0 {
					gone = append(gone, incremental.Position{Topic: topicName, Partition: p, Offset: next[p]}.String())
				} else {
					m.partition = 0
					stay = append(stay, m)
				}
				next[p]++
			}
			produce(t, topicName, messages[:blocks/2]...)
			d := start(t, topicName, file, flags)
			d.wait("a first basis", func(s *model.Served) bool { return s.Basis != nil && s.Model != nil })
			d.stop()
			produce(t, topicName, messages[blocks/2:]...)
			d = start(t, topicName, file, flags)
			d.waitForOffsets(blocks)
			d.reduced() // a second basis, of all blocks
			for _, id := range gone {
				receipt := d.retire(id)
				if receipt.DigestBefore == receipt.DigestAfter {
					t.Errorf("block %s leaves no trace in the digest", id)
				}
			}
			got := d.inEpoch(d.reduced(), flags)
			chosen := d.epoch().InUse
			d.stop()

			other := topic(t, 1)
			slices.Reverse(stay)
			produce(t, other, stay...)
			flags := copied(flags)
			flags["kernel.rows"], flags["workers"] = "0", "1"
			u := start(t, other, filepath.Join(t.TempDir(), "streamd.db"), flags)
			u.waitForOffsets(int64(len(stay)))
			want := u.inEpoch(u.reduced(), flags)
			alone := u.epoch().InUse
			u.stop()
			if !slices.Equal(chosen.Gammas, alone.Gammas) || (len(chosen.Gammas) > 0) != (flags["kernel.function"] == "gaussian") {
				t.Errorf("γ of %+v, and of %+v", chosen, alone)
			}
			if comparable(got) != comparable(want) {
				t.Errorf("served\n%.400s\nwant\n%.400s", comparable(got), comparable(want))
			}
			if k := got.Knowledge; flags["model.knowledge"] != "" && (k == nil || k.Problem != "" || len(k.Rules) != 2 || fmt.Sprint(k) != fmt.Sprint(want.Knowledge)) {
				t.Errorf("the rules are %+v, want %+v", k, want.Knowledge)
			}
			if got.Basis.Map.Points() < 2 {
				t.Errorf("a basis of %d points", got.Basis.Map.Points())
			}
		})
	}
}

func copied(flags map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range flags {
		out[k] = v
	}
	return out
}

// inEpoch waits until the planes are refined and ν is chosen, as flags ask.
func (i *instance) inEpoch(s *model.Served, flags map[string]string) *model.Served {
	i.t.Helper()
	return i.wait("planes that are refined, and chosen", func(now *model.Served) bool {
		return now.Model != nil && now.Digest == s.Digest &&
			(now.Refinement != nil && now.Refinement.Digest == now.Digest) == (flags["model.refine"] != "") &&
			(now.Tuning != nil && now.Tuning.Digest == now.Digest) == (flags["model.nu"] == "auto")
	})
}

// While an epoch is built the old planes are served. New blocks go into both epochs, and
// retired or replaced blocks leave both. A restart in the middle continues from the file.
func TestRebuild(t *testing.T) {
	flags := map[string]string{"kernel.function": "gaussian", "kernel.basis": "6", "kernel.rows": "0", "blocks.unit": "key", "kernel.on_retire": "keep"}
	payloads, _ := ndcBlocks(t, 24)
	keyed := func(k, b int) message {
		return message{key: fmt.Appendf(nil, "k%d", k), value: payloads[b], contentType: wire.Arrow.ContentType()}
	}
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	var messages []message
	for k := range 12 {
		messages = append(messages, keyed(k, k))
	}
	produce(t, name, messages...)
	d := start(t, name, file, flags)
	d.waitForOffsets(12)
	first := d.reduced()

	// With a third of the blocks retired the next basis is another one.
	for k := range 4 {
		d.retire(fmt.Sprintf("key:k%d", k))
	}
	d.holdReading()
	if err := d.Reduce(t.Context()); err != nil {
		t.Fatal(err)
	}
	building := d.waitForEpoch("a rebuild", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil })
	if b := building.Rebuild; b.Missing != 8 || b.Blocks != 0 || building.InUse.Basis != first.BasisID() || b.Reduction.Basis == first.BasisID() {
		t.Fatalf("the rebuild is %+v", b)
	}
	if err := d.Reduce(t.Context()); !errors.Is(err, httpapi.ErrBusy) {
		t.Errorf("another reduction: %v", err)
	}
	// New blocks: one replaces an old block, another replaces a new one. Then both are
	// retired.
	produce(t, name, keyed(20, 20), keyed(21, 21), keyed(4, 12), keyed(21, 13), keyed(22, 14))
	s := d.waitForOffsets(17)
	d.retire("key:k22")
	d.retire("key:k5")
	if s.BasisID() != first.BasisID() || s.Model == nil {
		t.Errorf("meanwhile planes in basis %q are served", s.BasisID())
	}
	b := d.epoch().Rebuild
	if b.Missing != 6 || b.Blocks != 3 || b.Rows != 600 { // missing: k6 to k11; rebuilt: k4, k20, k21
		t.Fatalf("the rebuild is %+v", b)
	}
	// The status shows the same after the loop's next step.
	shown := d.Status().Epoch
	if shown == nil || shown.Epoch == 0 || shown.InUse != d.epoch().InUse || shown.Rebuild == nil || shown.Rebuild.Missing != 6 || shown.Rebuild.Blocks != 3 || shown.Rebuild.Rows != 600 {
		t.Errorf("the status shows %+v", shown)
	}
	// A restart in the middle reads some blocks again.
	d.stop()
	d = start(t, name, file, flags)
	d.waitForEpoch("the switch", func(a *httpapi.EpochAnswer) bool { return a.Rebuild == nil })
	if a := d.epoch(); a.InUse.Basis != building.Rebuild.Reduction.Basis {
		t.Fatalf("in use is %+v", a.InUse)
	}
	want := d.wait("planes", func(s *model.Served) bool { return s.Model != nil && s.BasisID() == building.Rebuild.Reduction.Basis })
	if want.Rows != 9*200 || want.Blocks != 9 {
		t.Errorf("%d rows of %d blocks", want.Rows, want.Blocks)
	}
	if after := d.epoch().Epoch; after <= shown.Epoch {
		t.Errorf("epoch %d after %d", after, shown.Epoch)
	}
	// The sums are those of the live blocks in the new coordinates.
	d.checkEpoch()
	d.retire("key:k20")
	d.retire("key:k9")
	d.checkEpoch()
	d.stop()
}

// checkEpoch compares the sums of the epoch in use, and of its folds, with sums over the
// live blocks' rows.
func (i *instance) checkEpoch() {
	i.t.Helper()
	blocks, err := i.liveNow(i.t.Context())
	if err != nil {
		i.t.Fatal(err)
	}
	type sums struct {
		in    *live.Coordinates
		state string
		folds []string
	}
	got, err := loop.Ask(i.t.Context(), i.Loop, func() (s sums, _ error) {
		s.in, s.state = i.Live.InUse().Coordinates, live.DigestOf(i.Live.InUse().Total())
		for _, f := range i.Live.InUse().PerFold() {
			s.folds = append(s.folds, live.DigestOf(f))
		}
		return s, nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	want, folds := incremental.NewState(i.Live.InUse().Names()), make([]*incremental.State, len(got.folds))
	for k := range folds {
		folds[k] = incremental.NewState(i.Live.InUse().Names())
	}
	var z live.Keeper
	held := make(chan struct{}, 1)
	p, err := passOver(i.t.Context(), i.Topic, blocks, true, func(e retire.Entry, b *incremental.Block) error {
		held <- struct{}{}
		defer func() { <-held }()
		was, err := blocks.Summary(e.ID)
		if err != nil {
			return err
		}
		s, err := z.Summary(context.Background(), b, got.in)
		if err == nil {
			want.Add(s)
			if len(folds) > 0 {
				folds[sample.Fold(was.LabelledDigest(), len(folds))].Add(s)
			}
		}
		return err
	})
	if err != nil || p.visited != len(blocks.Entries) {
		i.t.Fatalf("%d of %d blocks: %v", p.visited, len(blocks.Entries), err)
	}
	if got.state != live.DigestOf(want) {
		i.t.Error("the sums are others than those of the live blocks")
	}
	for k, f := range folds {
		if got.folds[k] != live.DigestOf(f) {
			i.t.Errorf("fold %d is another one", k)
		}
	}
}

// Blocks of open runs are in both epochs as well.
func TestRebuildOfGatheredBlocks(t *testing.T) {
	for _, unit := range []map[string]string{
		{"blocks.unit": "offsets", "blocks.offsets": "5"},
		{"blocks.unit": "time", "blocks.period": "4s"},
	} {
		t.Run(unit["blocks.unit"], func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{"kernel.function": "polynomial(a=1,b=1,degree=2)", "kernel.basis": "5", "kernel.rows": "0"}
			for k, v := range unit {
				flags[k] = v
			}
			payloads, _ := ndcBlocks(t, 40)
			var messages []message
			for k, p := range payloads {
				messages = append(messages, message{partition: k % 2, value: p, contentType: wire.Arrow.ContentType(), time: time.UnixMilli(1_700_000_000_000 + int64(k)*1000)})
			}
			name := topic(t, 2)
			file := filepath.Join(t.TempDir(), "streamd.db")
			produce(t, name, messages[:23]...)
			d := start(t, name, file, flags)
			d.waitForOffsets(23)
			d.reduced()
			d.checkEpoch()
			d.holdReading()
			produce(t, name, messages[23:31]...)
			d.waitForOffsets(31)
			if err := d.Reduce(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.waitForEpoch("a rebuild", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil })
			produce(t, name, messages[31:]...)
			d.waitForOffsets(40)
			d.stop()
			d = start(t, name, file, flags)
			d.waitForOffsets(40)
			d.waitForEpoch("the switch", func(a *httpapi.EpochAnswer) bool { return a.Rebuild == nil })
			d.wait("planes", func(s *model.Served) bool { return s.Model != nil && s.Rows == 40*200 })
			d.checkEpoch()
			d.stop()
		})
	}
}

// While the log does not return a block, the old planes stay in use. That ends when the
// block is retired by a caller, or by the daemon where the configuration says so.
func TestUnreadBlocks(t *testing.T) {
	for _, policy := range []string{"wait", "skip"} {
		t.Run(policy, func(t *testing.T) {
			flags := map[string]string{"kernel.function": "gaussian", "kernel.basis": "4", "kernel.rows": "0", "kernel.unread": policy}
			payloads, _ := ndcBlocks(t, 10)
			name := topic(t, 1)
			var messages []message
			for _, p := range payloads {
				messages = append(messages, message{value: p, contentType: wire.Arrow.ContentType()})
			}
			produce(t, name, messages...)
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			linear := d.waitForOffsets(10)
			deleteRecords(t, name, 3)
			if err := d.Reduce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if policy == "wait" {
				a := d.waitForEpoch("unread blocks", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil && a.Rebuild.Unread > 0 })
				if b := a.Rebuild; b.Unread != 3 || b.Missing != 3 || b.Blocks != 7 || len(b.Reasons) != 3 || b.Reasons[0].Reason == "" {
					t.Fatalf("the rebuild is %+v", b)
				}
				if s, _ := d.Served(); s.BasisID() != "" || s.Model == nil || s.Digest != linear.Digest {
					t.Errorf("served is basis %q", s.BasisID())
				}
				if p := d.Status().Problems; len(p) != 1 {
					t.Errorf("problems: %q", p)
				}
				for offset := range int64(3) {
					d.retire(incremental.Position{Topic: name, Offset: offset}.String())
				}
			}
			s := d.wait("planes of what is left", func(s *model.Served) bool { return s.Model != nil && s.Basis != nil })
			if s.Blocks != 7 || s.Rows != 1400 {
				t.Errorf("%d rows of %d blocks", s.Rows, s.Blocks)
			}
			if retired := d.Status().Blocks.Retired; retired != 3 {
				t.Errorf("%d blocks count as retired", retired)
			}
			if a := d.epoch(); (len(a.Skipped) == 3) != (policy == "skip") {
				t.Errorf("skipped: %+v", a.Skipped)
			}
			d.checkEpoch()
			d.stop()
		})
	}
}

// A daemon that is started with another kernel or another number of folds continues with
// what it has. A basis is chosen at once and the folds are summed again. A daemon started
// without a kernel serves planes in the features.
func TestOtherConfigurations(t *testing.T) {
	payloads, _ := ndcBlocks(t, 12)
	name := topic(t, 1)
	file := filepath.Join(t.TempDir(), "streamd.db")
	var messages []message
	for _, p := range payloads {
		messages = append(messages, message{value: p, contentType: wire.Arrow.ContentType()})
	}
	produce(t, name, messages...)
	flags := map[string]string{"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "kernel.rows": "2400"}
	run := func(change map[string]string, ok func(*model.Served) bool) *model.Served {
		t.Helper()
		for k, v := range change {
			flags[k] = v
		}
		d := start(t, name, file, flags)
		s := d.wait(fmt.Sprint(change), func(s *model.Served) bool { return s.Model != nil && s.Rows == 2400 && ok(s) })
		if s.Basis != nil {
			d.checkEpoch()
		}
		d.stop()
		return s
	}
	with := func(kernel string) func(*model.Served) bool {
		return func(s *model.Served) bool { return s.Basis != nil && s.Basis.Map.Kernel().String() == kernel }
	}
	first := run(nil, with("gaussian(gamma=0.1)"))
	for _, folds := range []string{"3", "0", "5"} {
		if s := run(map[string]string{"model.folds": folds}, with("gaussian(gamma=0.1)")); comparable(s) != comparable(first) {
			t.Errorf("with %s folds other planes are served", folds)
		}
	}
	run(map[string]string{"kernel.function": "sigmoid(a=0.01,b=1)"}, with("sigmoid(a=0.01,b=1)"))
	// A name stands for the kernel of so many features, and a restart keeps its basis.
	named := fmt.Sprintf("polynomial(a=%v,b=1,degree=3)", 1/float64(len(first.RowFeatures())))
	chosen := run(map[string]string{"kernel.function": "polynomial"}, with(named))
	if s := run(nil, with(named)); s.Basis.Map.Digest() != chosen.Basis.Map.Digest() {
		t.Error("a restart has chosen another basis")
	}
	run(map[string]string{"kernel.function": "linear"}, with("linear"))
	linear := run(map[string]string{"kernel.function": "none", "kernel.basis": "50", "kernel.rows": "1000"}, func(s *model.Served) bool { return s.Basis == nil })
	if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
		t.Errorf("verified as %+v, %v", report, err)
	}
	again := run(map[string]string{"kernel.function": "gaussian(gamma=0.1)", "kernel.basis": "6", "kernel.rows": "2400"}, with("gaussian(gamma=0.1)"))
	if comparable(again) != comparable(first) || linear.Digest == first.Digest {
		t.Error("the same kernel gives other planes than before")
	}
}

// A reduction or rebuild can be abandoned. A reduction that fails reports why.
func TestAbandon(t *testing.T) {
	payloads, _ := ndcBlocks(t, 6)
	name := topic(t, 1)
	for _, p := range payloads {
		produce(t, name, message{value: p, contentType: wire.Arrow.ContentType()})
	}
	flags := map[string]string{"kernel.function": "gaussian", "kernel.basis": "6", "kernel.rows": "0"}
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	linear := d.waitForOffsets(6)
	release := d.holdReading()
	if err := d.Reduce(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.waitForEpoch("a rebuild", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil })
	if err := d.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	release()
	if a := d.epoch(); a.Rebuild != nil || a.Reducing != nil || a.InUse != nil {
		t.Errorf("after it %+v", a)
	}
	if s, _ := d.Served(); comparable(s) != comparable(linear) {
		t.Error("other planes are served")
	}
	d.reduced()
	d.checkEpoch()
	for offset := range int64(6) {
		d.retire(incremental.Position{Topic: name, Offset: offset}.String())
	}
	if err := d.Reduce(t.Context()); !errors.Is(err, httpapi.ErrUnavailable) {
		t.Errorf("a reduction of no rows: %v", err)
	}
	produce(t, name, message{value: []byte(`{"x1":1,"x2":2,"x3":3,"x4":4,"x5":5,"label":"a"}`)})
	d.wait("a block of one class", func(s *model.Served) bool { return s.Rows == 1 })
	if err := d.Reduce(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := d.waitForEpoch("a reason", func(a *httpapi.EpochAnswer) bool { return a.Problem != "" })
	if a.InUse != nil || a.Rebuild != nil {
		t.Errorf("after it %+v", a)
	}
	d.stop()
}

// An abandoned reduction leaves the features in use and reports that it was abandoned. It
// would take minutes. Neither the abandoning nor a stop waits for it.
func TestAbandonedReduction(t *testing.T) {
	const rows, features, classes = 4000, 30, 100
	r := rand.New(rand.NewPCG(57, 1))
	b := &incremental.Block{Codes: make([]int32, rows)}
	for k := range classes {
		b.Classes = append(b.Classes, fmt.Sprintf("c%02d", k))
	}
	for i := range b.Codes {
		b.Codes[i] = int32(r.IntN(classes))
	}
	for range features {
		x := make([]float32, rows)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		b.Columns = append(b.Columns, gram.ColumnOf(x))
	}
	value, err := wire.Encode(nil, wire.Arrow, b)
	if err != nil {
		t.Fatal(err)
	}
	name := topic(t, 1)
	produce(t, name, message{value: value, contentType: wire.Arrow.ContentType()})
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
		"kernel.function": "gaussian(gamma=0.05)", "kernel.basis": "1000", "kernel.rows": "0", "kernel.reduce": "cs",
		"limits.classes": "100", "model.folds": "0",
	})
	d.waitForOffsets(1)
	begin := func() *bases.Reduction {
		t.Helper()
		if err := d.Reduce(t.Context()); err != nil {
			t.Fatal(err)
		}
		job, err := loop.Ask(t.Context(), d.Loop, func() (*bases.Reduction, error) { return d.Bases.Reduction(), nil })
		if err != nil || job == nil {
			t.Fatalf("it is not under way: %v", err)
		}
		return job
	}
	ended := func(job *bases.Reduction) {
		t.Helper()
		if stages := 1 + len(reduce.PaperChunks()); len(job.Stages()) == stages*classes {
			t.Error("it went on to its end")
		}
	}
	job := begin()
	if err := d.Reduce(t.Context()); !errors.Is(err, httpapi.ErrBusy) {
		t.Errorf("another one meanwhile: %v", err)
	}
	if err := d.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := d.waitForEpoch("its end", func(a *httpapi.EpochAnswer) bool { return a.Reducing == nil })
	if a.InUse != nil || a.Rebuild != nil || a.Problem != "it was abandoned" {
		t.Errorf("after it %+v", a)
	}
	ended(job)
	job = begin()
	d.stop()
	ended(job)
}

// A polynomial of large features leaves the range of exact sums. Such messages are refused
// with their row named, gathered or not. Live blocks that cannot be mapped onto a new basis
// are reported.
func TestRowsThatDoNotFitTheBasis(t *testing.T) {
	for _, unit := range []string{"message", "offsets"} {
		t.Run(unit, func(t *testing.T) {
			name := topic(t, 1)
			small := func(k int) message {
				return message{value: fmt.Appendf(nil, `[{"x1":%d,"x2":1,"label":"a"},{"x1":%d,"x2":2,"label":"b"}]`, k, -k)}
			}
			large := message{value: []byte(`{"x1":1e30,"x2":1,"label":"a"}`)}
			for k := range 10 {
				produce(t, name, small(k+1))
			}
			flags := map[string]string{
				"kernel.function": "polynomial(a=1,b=1,degree=6)", "kernel.basis": "3", "kernel.rows": "0", "blocks.unit": unit, "blocks.offsets": "4",
			}
			d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
			d.waitForOffsets(10)
			d.reduced()
			produce(t, name, large, small(11))
			s := d.waitForOffsets(12)
			if s.Rows != 22 {
				t.Errorf("%d rows are live", s.Rows)
			}
			if c := d.Status().Rows; c.Rejected != 1 || c.Missing() != 0 {
				t.Errorf("rows: %+v", c)
			}
			d.checkEpoch()
			d.stop()
			checkDeadLetters(t, name, []message{large}, true)
		})
	}
	t.Run("rebuild", func(t *testing.T) {
		name := topic(t, 1)
		for k := range 20 {
			produce(t, name, message{value: fmt.Appendf(nil, `[{"x1":%d,"x2":1,"label":"a"},{"x1":%d,"x2":2,"label":"b"}]`, k, -k)})
		}
		produce(t, name, message{value: []byte(`{"x1":1e30,"x2":1,"label":"a"}`)})
		d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), map[string]string{
			"kernel.function": "polynomial(a=1,b=1,degree=6)", "kernel.basis": "4", "kernel.rows": "0", "kernel.reduce": "stratified", "kernel.unread": "skip",
		})
		d.waitForOffsets(21)
		if err := d.Reduce(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := d.waitForEpoch("the switch", func(a *httpapi.EpochAnswer) bool { return a.InUse != nil })
		if len(a.Skipped) != 1 || a.Skipped[0].ID != (incremental.Position{Topic: name, Offset: 20}).String() || !strings.Contains(a.Skipped[0].Reason, `feature "z`) {
			t.Errorf("the answer is %+v", a)
		}
		d.checkEpoch()
		d.stop()
	})
}

// From the first model on there is always one, through reductions and rebuilds, while
// blocks come and go. Its planes are those of the basis that it names.
func TestNoGapInTheModel(t *testing.T) {
	flags := map[string]string{
		"kernel.function": "gaussian(gamma=0.001)", "kernel.reduce": "random", "kernel.basis": "40", "kernel.rows": "500", "kernel.interval": "30ms", "model.nu": "auto",
	}
	const rows, atOnce, rounds = 100, 5, 3
	name := topic(t, 1)
	messages := boardBlocks(t, 53, atOnce*(1+2*rounds), rows)
	sent := 0
	send := func() {
		t.Helper()
		produce(t, name, messages[sent:sent+atOnce]...)
		sent += atOnce
	}
	send()
	d := start(t, name, filepath.Join(t.TempDir(), "streamd.db"), flags)
	d.wait("a model", func(s *model.Served) bool { return s.Model != nil })
	p := d.poll()
	// inUse waits until the basis in use is one of that many rows and has been polled.
	inUse := func(live int64) string {
		t.Helper()
		a := d.waitForEpoch(fmt.Sprintf("a basis of %d rows", live), func(a *httpapi.EpochAnswer) bool {
			return a.InUse != nil && a.InUse.Live == live && a.Rebuild == nil
		})
		p.waitFor(t, a.InUse.Basis)
		return a.InUse.Basis
	}
	last := inUse(int64(sent * rows))
	for range rounds {
		// Some blocks come before the next basis is chosen. Others come while the rebuild
		// waits for the blocks before them.
		release := d.holdReading()
		send()
		next := d.waitForEpoch("a rebuild", func(a *httpapi.EpochAnswer) bool { return a.Rebuild != nil })
		if next.InUse.Basis != last || next.Rebuild.Missing == 0 {
			t.Fatalf("the rebuild is %+v", next.Rebuild)
		}
		send()
		d.waitForOffsets(int64(sent))
		p.waitForMore(t)
		release()
		last = inUse(int64(sent * rows))
	}
	d.retire(incremental.Position{Topic: name}.String())
	inUse(int64((sent - 1) * rows))
	p.stop(t)
	d.checkEpoch()
	d.stop()
}

// poller requests the model without a pause. It checks that there is one, and that its
// planes are in the coordinates of its basis.
type poller struct {
	end   context.CancelFunc
	ended chan struct{}

	last string // fingerprint of the last answer; used by the poller only

	mu     sync.Mutex
	answer chan struct{} // closed by the next answer
	bases  map[string]bool
	err    error
}

func (i *instance) poll() *poller {
	ctx, end := context.WithCancel(context.Background())
	p := &poller{end: end, ended: make(chan struct{}), answer: make(chan struct{}), bases: map[string]bool{}}
	i.t.Cleanup(end)
	go func() {
		defer close(p.ended)
		for ctx.Err() == nil && p.look(i.Addr().String()) == nil {
		}
	}()
	return p
}

func (p *poller) look(addr string) error {
	m, err := getModel(addr)
	if err == nil && m.Fingerprint != p.last {
		err = checkPlanes(&m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.bases[m.BasisID], p.err = m.Fingerprint, true, err
	close(p.answer)
	p.answer = make(chan struct{})
	return err
}

// checkPlanes checks that the checkerboard's planes are in the coordinates of the basis
// that they are served with. In those of another basis they are no better than a guess.
func checkPlanes(m *httpapi.ModelAnswer) error {
	c, err := m.Classifier()
	if err != nil || m.Basis == nil {
		return err
	}
	if digest := c.Map.Digest(); hex.EncodeToString(digest[:]) != m.BasisID {
		return fmt.Errorf("a model with basis %x, which it says is %s", digest, m.BasisID)
	}
	const least = 0.7
	if right := rightOnGrid(c, 10); right < least {
		return fmt.Errorf("planes with basis %s of which %.3f are right", m.BasisID, right)
	}
	return nil
}

// waitFor waits until a model in a basis' coordinates has been polled.
func (p *poller) waitFor(t *testing.T, basis string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		p.mu.Lock()
		polled, answer := p.bases[basis], p.answer
		p.mu.Unlock()
		if polled {
			return
		}
		p.wait(t, answer, deadline)
	}
}

// waitForMore waits for the answer to a request that begins after the call.
func (p *poller) waitForMore(t *testing.T) {
	t.Helper()
	for range 2 {
		p.mu.Lock()
		answer := p.answer
		p.mu.Unlock()
		p.wait(t, answer, time.After(patience))
	}
}

func (p *poller) wait(t *testing.T, answer <-chan struct{}, deadline <-chan time.Time) {
	t.Helper()
	select {
	case <-answer:
	case <-p.ended:
		t.Fatal(p.err)
	case <-deadline:
		t.Fatal("the model is not the one that is waited for")
	}
}

func (p *poller) stop(t *testing.T) {
	t.Helper()
	p.end()
	if <-p.ended; p.err != nil {
		t.Error(p.err)
	}
}

// getModel requests the model as a client does.
func getModel(addr string) (m httpapi.ModelAnswer, err error) {
	res, err := http.Get("http://" + addr + "/v1/model")
	if err != nil {
		return m, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return m, errors.New(res.Status)
	}
	return m, json.NewDecoder(res.Body).Decode(&m)
}

// A daemon is killed (kill -9) in the middle of rebuilds, which the next process completes,
// and at random moments of reductions and rebuilds, while blocks arrive. In the end it
// serves what an undisturbed daemon serves.
func TestKillInRebuilds(t *testing.T) {
	const blocks, kills = 480, 12
	r := rand.New(rand.NewPCG(54, 1))
	name := topic(t, 2)
	payloads, _ := ndcBlocks(t, blocks)
	var messages []message
	for k, p := range payloads {
		messages = append(messages, message{partition: k % 2, value: p, contentType: wire.Arrow.ContentType()})
	}
	var sent int64
	send := func(n int) {
		t.Helper()
		produce(t, name, messages[sent:sent+int64(n)]...)
		sent += int64(n)
	}
	file := filepath.Join(t.TempDir(), "streamd.db")
	// γ is given, so that most of the time goes into rebuilds.
	flags := map[string]string{
		"kafka.brokers": cluster(t).Brokers[0], "kafka.topic": name, "http.listen": "127.0.0.1:0",
		"snapshot.file": file, "snapshot.interval": "10ms", "snapshot.blocks": "20",
		"kernel.function": "gaussian(gamma=0.01)", "kernel.basis": "12", "kernel.rows": "0", "kernel.reduce": "random", "sample.rows": "500",
		"kafka.fetch_bytes": "32KiB",
	}
	run := func(held bool) *process {
		t.Helper()
		delete(flags, heldReading)
		if held {
			flags[heldReading] = ""
		}
		return spawn(t, flags)
	}
	begun := "" // the basis that a killed process was rebuilding for
	for kill := range kills {
		send(blocks / kills / 2)
		var p *process
		switch kill % 3 {
		case 0:
			p = run(false)
			p.post(t, "reduce") // refused, perhaps, as long as it has no rows
			send(blocks / kills / 2)
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		case 1:
			p = run(true)
			p.until(t, "all records", func() bool { _, _, seen, err := p.model(); return err == nil && seen == sent })
			p.until(t, "a rebuild", func() bool {
				a := p.epoch(t)
				if a.Rebuild == nil && a.Reducing == nil {
					p.post(t, "reduce")
				}
				return a.Rebuild != nil && a.Rebuild.Missing > 0
			})
			send(blocks / kills / 2)
			p.until(t, "new blocks in it", func() bool {
				a := p.epoch(t)
				begun = a.Rebuild.Reduction.Basis
				return a.Rebuild.Blocks > 0
			})
			if code := p.post(t, "snapshot"); code != http.StatusOK {
				t.Fatalf("kill %d: the snapshot is answered with %d", kill, code)
			}
		case 2:
			p = run(false)
			p.until(t, "planes in the basis of before", func() bool {
				m, err := getModel(p.addr)
				return err == nil && m.BasisID == begun
			})
			if code := p.post(t, "reduce"); code != http.StatusAccepted && code != http.StatusServiceUnavailable {
				t.Errorf("kill %d: the reduction is answered with %d", kill, code)
			}
			send(blocks / kills / 2)
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		}
		p.kill()
		s, c, err := snapshot.OpenReadOnly(file)
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		s.Close()
		if middle := slices.ContainsFunc(c.Spaces, func(s snapshot.SpaceContents) bool {
			return s.Number != c.InUse && len(s.Missing) > 0 && len(s.Missing) < len(c.Entries)
		}); kill%3 == 1 && !middle {
			t.Errorf("kill %d: it is not in the middle of a rebuild", kill)
		}
		if report, err := snapshot.Verify(t.Context(), file, nil); err != nil || !report.OK {
			t.Fatalf("kill %d: verified as %+v, %v", kill, report, err)
		}
	}
	ours := map[string]string{}
	for k, v := range flags {
		if k != "kafka.brokers" && k != "kafka.topic" && k != "kafka.group" && k != "snapshot.file" && k != heldReading {
			ours[k] = v
		}
	}
	final := func(file string) string {
		d := start(t, name, file, ours)
		d.waitForOffsets(blocks)
		d.waitForEpoch("the end of what was begun", func(a *httpapi.EpochAnswer) bool { return a.Reducing == nil && a.Rebuild == nil })
		s := d.reduced()
		d.checkEpoch()
		d.stop()
		return comparable(s)
	}
	if got, want := final(file), final(filepath.Join(t.TempDir(), "undisturbed.db")); got != want {
		t.Errorf("served\n%.400s\nwant\n%.400s", got, want)
	}
}

// post makes a request and returns the status of the answer.
func (p *process) post(t *testing.T, what string) int {
	t.Helper()
	res, err := http.Post("http://"+p.addr+"/v1/"+what, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// epoch returns the process' answer.
func (p *process) epoch(t *testing.T) (a httpapi.EpochAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.get(t, "/v1/epoch")), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// BenchmarkStream reads a topic of ten million checkerboard points while they arrive. It
// solves planes in the features and in the coordinates of 40 points.
func BenchmarkStream(b *testing.B) {
	const blocks, rows = 1000, 10_000
	messages := boardBlocks(b, 56, blocks, rows)
	for k := range messages {
		messages[k].partition = k % 2
	}
	for _, kernel := range []string{"none", "gaussian(gamma=0.0005)"} {
		b.Run(kernel, func(b *testing.B) {
			var taken int64
			var took time.Duration
			for b.Loop() {
				name, file := topic(b, 2), filepath.Join(b.TempDir(), "streamd.db")
				flags := map[string]string{
					"kernel.function": kernel, "kernel.basis": "40", "kernel.rows": "1", "kernel.reduce": "random",
					"sample.rows": "10000", "snapshot.interval": "1s", "model.folds": "0",
				}
				produce(b, name, messages[0])
				d := start(b, name, file, flags)
				d.wait("planes", func(s *model.Served) bool { return s.Model != nil && (s.Basis != nil) == (kernel != "none") })
				d.stop()
				produce(b, name, messages[1:]...)
				d = start(b, name, file, flags)
				at := func() int64 { return d.Status().Rows.Summarised }
				for at() == rows {
					time.Sleep(time.Millisecond)
				}
				from, began := at(), time.Now()
				for at() < blocks*rows {
					time.Sleep(time.Millisecond)
				}
				taken, took = taken+blocks*rows-from, took+time.Since(began)
				d.stop()
			}
			b.ReportMetric(float64(taken)/took.Seconds(), "rows/s")
		})
	}
}
