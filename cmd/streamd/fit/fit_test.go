package fit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"streamd/cmd/streamd/dataset"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/study"
	"streamd/ingest/ndc"
	"streamd/ingest/wire"
)

// The model of a fold has the very bits of one that was learned from a file
// without the fold's rows. That is a law for whole numbers, whose sums do not
// depend on where blocks begin.
func TestFoldModelsNeverSawTheirRows(t *testing.T) {
	const rows, k, seed = 20_000, 3, 7 // three blocks
	dir := t.TempDir()
	lines := bytes.SplitAfter(writeRows(t, filepath.Join(dir, "all.csv"), rows), []byte("\n"))[:rows]
	f := trained(t, filepath.Join(dir, "all.csv"), k, seed)
	if err := f.trainFolds(context.Background()); err != nil {
		t.Fatal(err)
	}
	for fold := range k {
		var others []byte
		deal := dataset.NewDealer(k, seed)
		for i, line := range lines {
			if deal.Of(int64(i)) != fold {
				others = append(others, line...)
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("without%d.csv", fold))
		if err := os.WriteFile(path, others, 0o600); err != nil {
			t.Fatal(err)
		}
		if want := trained(t, path, 0, 0).model; !reflect.DeepEqual(f.foldModels[fold], want) {
			t.Errorf("fold %d\ngot  %+v\nwant %+v", fold, f.foldModels[fold], want)
		}
		if reflect.DeepEqual(f.foldModels[fold].Planes, f.model.Planes) {
			t.Errorf("fold %d has the planes of all rows", fold)
		}
	}
}

func writeRows(t *testing.T, path string, rows int) []byte {
	t.Helper()
	g, err := ndc.New(ndc.Config{Features: 3, Separability: ndc.Easy, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	text, err := wire.Encode(nil, wire.CSV, g.NewSampler().Block(ndc.Train, 0, rows))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}

// settings are those of planes that are solved with a ν.
func settings(nu config.Nu, folds int, seed uint64) Settings {
	s := Settings{Spec: config.DefaultSpec(), Seed: seed}
	s.Model.Nu, s.Model.Folds = nu, folds
	return s
}

// opened is a fit of a file that has learned nothing yet.
func opened(t *testing.T, path string, want Settings) *fit {
	t.Helper()
	data, err := dataset.Open(path, wire.Options{}, func(string, func() (int64, float64)) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	return newFit(data, want, func(string, func() string) func() { return func() {} })
}

// trained has the model of a file.
func trained(t *testing.T, path string, k int, seed uint64) *fit {
	t.Helper()
	f := opened(t, path, settings(1, k, seed))
	var err error
	if f.sums, err = f.sum(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.train(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// With fewer rows than features the dual finds the planes of Newton's steps in the
// primal, which passes over the file for each of them.
func TestRefinesFewRowsByTheDual(t *testing.T) {
	const rows, features, k = 40, 90, 2
	r := rand.New(rand.NewPCG(3, 4))
	var text bytes.Buffer
	for i := range rows {
		fmt.Fprint(&text, i%2)
		for range features {
			fmt.Fprintf(&text, ",%.3f", float64(i%2)/4+r.NormFloat64())
		}
		text.WriteByte('\n')
	}
	path := filepath.Join(t.TempDir(), "wide.csv")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f := trained(t, path, k, 1)
	if err := f.trainFolds(t.Context()); err != nil {
		t.Fatal(err)
	}
	primal := func(m *incremental.Model, without int) *newton.Result {
		result, err := newton.Refine(t.Context(), m, &rereading{f, nil, without, false}, newton.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	want := []*newton.Result{primal(f.model, none)}
	for fold, m := range f.foldModels {
		want = append(want, primal(m, fold))
	}
	f.refining, f.method = study.Always, newton.Full
	refined, err := f.train(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.trainFolds(t.Context()); err != nil {
		t.Fatal(err)
	}
	if refined.Passes != 2 || want[0].Passes <= 2 {
		t.Errorf("%d passes, and %d in the primal", refined.Passes, want[0].Passes)
	}
	for i, got := range append([]*incremental.Model{f.model}, f.foldModels...) {
		p, q := got.Planes[0], want[i].Model.Planes[0]
		for j, w := range append(p.W, p.Gamma) {
			if v := append(q.W, q.Gamma)[j]; math.Abs(w-v) > 1e-9 {
				t.Errorf("model %d: coordinate %d is %g, and %g in the primal", i, j, w, v)
			}
		}
	}
}

// A number that only the sums refuse is named by its row in the file.
func TestNamesTheRowOfTheFile(t *testing.T) {
	const good = 9000 // in the second block
	path := filepath.Join(t.TempDir(), "rows.csv")
	text := append(writeRows(t, path, good), "1,0,1e300,0\n"...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f := opened(t, path, settings(1, 0, 0))
	_, err := f.sum(t.Context(), nil)
	row := (*incremental.RowError)(nil)
	if !errors.As(err, &row) || row.Row != good || row.Feature != "x2" || !strings.HasPrefix(err.Error(), "read "+path) {
		t.Errorf("got %v", err)
	}
}
