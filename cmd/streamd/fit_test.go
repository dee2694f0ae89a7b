package main

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
	"streamd/incremental"
	"streamd/incremental/newton"
	"streamd/incremental/study"
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
	text, err := wire.Encode(nil, wire.CSV, ndcPoints(rows))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}

func trained(t *testing.T, path string, k int, seed uint64) *fit {
	t.Helper()
	data, err := dataset.Open(path, wire.Options{}, quiet().watchRows)
	if err != nil {
		t.Fatal(err)
	}
	f := &fit{s: quiet(), data: data, folds: k, seed: seed, options: incremental.Options{Nu: 1}, method: newton.Full}
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
func TestFitRefinesFewRowsByTheDual(t *testing.T) {
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

func quiet() *surroundings {
	return &surroundings{stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)}
}

// A number that only the sums refuse is named by its row in the file.
func TestFitNamesTheRowOfTheFile(t *testing.T) {
	const good = 9000 // in the second block
	path := filepath.Join(t.TempDir(), "rows.csv")
	text := append(writeRows(t, path, good), "1,0,1e300,0\n"...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := dataset.Open(path, wire.Options{}, quiet().watchRows)
	if err != nil {
		t.Fatal(err)
	}
	f := &fit{s: quiet(), data: data, options: incremental.Options{Nu: 1}, method: newton.Full}
	_, err = f.sum(t.Context(), nil)
	row := (*incremental.RowError)(nil)
	if !errors.As(err, &row) || row.Row != good || row.Feature != "x2" || !strings.HasPrefix(err.Error(), "read "+path) {
		t.Errorf("got %v", err)
	}
}
