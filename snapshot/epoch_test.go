package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"streamd/incremental"
	"streamd/incremental/sample"
)

// worldEpoch is an epoch in memory. Its coordinates are drawn at random: all
// that a file has to know of them is the number of rows.
type worldEpoch struct {
	Epoch
	state    *incremental.State
	folds    []*incremental.State
	changed  [folds]bool
	has, put map[string]*incremental.Summary
	sources  map[string]bool // false: not saved yet
	stale    uint8
}

func (w *world) beginEpoch() {
	w.begun++
	n := 1 + w.r.IntN(3)
	w.epochs = append(w.epochs, &worldEpoch{
		Epoch: Epoch{Number: w.begun, Basis: []byte{byte(n)}, Report: []byte("as it came")},
		state: incremental.NewState(incremental.DefaultFeatures(n)), folds: newFolds(incremental.DefaultFeatures(n)), changed: [folds]bool{true, true, true},
		has: map[string]*incremental.Summary{}, put: map[string]*incremental.Summary{}, sources: map[string]bool{},
	})
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		if w.r.IntN(2) == 0 {
			w.epochs[len(w.epochs)-1].sources[id] = false
		}
	}
}

// stepEpochs begins an epoch, gives one some blocks that it lacks, or puts it in
// the place of the one in use.
func (w *world) stepEpochs() {
	if len(w.epochs) == 0 || len(w.epochs) == 1 && w.epochs[0].Number == w.epoch {
		w.beginEpoch()
		return
	}
	next := w.epochs[len(w.epochs)-1]
	left := 8
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		if next.has[id] == nil && left > 0 {
			next.add(w.r, w.live[id])
			left--
		}
	}
	switch {
	case len(next.has) == len(w.live):
		w.epochs, w.epoch = []*worldEpoch{next}, next.Number
	case w.r.IntN(10) == 0: // given up
		w.epochs = w.epochs[:len(w.epochs)-1]
	}
}

func (e *worldEpoch) fold(b Block) *incremental.State {
	i := sample.Fold(b.Summary.Digest(), folds)
	e.changed[i] = true
	return e.folds[i]
}

func (e *worldEpoch) add(r *rand.Rand, b Block) {
	s := randomBlock(r, "", int(b.Entry.Rows), len(e.state.Features())).Summary
	e.has[b.Entry.ID], e.put[b.Entry.ID] = s, s
	e.state.Add(s)
	e.fold(b).Add(s)
}

func (e *worldEpoch) remove(id string, b Block) {
	if _, ok := e.sources[id]; ok {
		delete(e.sources, id)
		e.stale++
	}
	if s := e.has[id]; s != nil {
		e.state.Remove(s)
		e.fold(b).Remove(s)
		delete(e.has, id)
		delete(e.put, id)
	}
}

func (e *worldEpoch) copy() *worldEpoch {
	c := *e
	c.has, c.sources = maps.Clone(e.has), maps.Clone(e.sources)
	c.folds = slices.Clone(e.folds)
	for _, s := range append([]**incremental.State{&c.state}, &c.folds[0], &c.folds[1], &c.folds[2]) {
		var err error
		if *s, err = incremental.DecodeState((*s).AppendBinary(nil)); err != nil {
			panic(err)
		}
	}
	return &c
}

func (w *world) epochChanges() (out []EpochChange) {
	for _, e := range w.epochs {
		c := EpochChange{Epoch: e.Epoch, Stale: e.stale, State: e.state, Folds: slices.Clone(e.folds)}
		for id, saved := range e.sources {
			if !saved {
				c.Sources = append(c.Sources, id)
			}
		}
		for i := range c.Folds {
			if !e.changed[i] {
				c.Folds[i] = nil
			}
		}
		for id, s := range e.put {
			c.Put = append(c.Put, EpochSummary{id, s})
		}
		out = append(out, c)
	}
	return out
}

func (w *world) compareEpochs(t testing.TB, s *Store, got []EpochContents) {
	t.Helper()
	if err := readWorldEpochs(s, got, w.epochs); err != nil {
		t.Fatal(err)
	}
	for _, e := range w.epochs {
		for id := range w.live {
			if _, err := s.EpochSummary(e.Number, id); e.has[id] == nil && !errors.Is(err, ErrNotFound) {
				t.Fatalf("block %s is not in epoch %d: %v", id, e.Number, err)
			}
		}
	}
}

// readWorldEpochs says whether a file has these epochs, and all of them.
func readWorldEpochs(s *Store, got []EpochContents, want []*worldEpoch) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d epochs of %d", len(got), len(want))
	}
	for i, e := range want {
		g := got[i]
		if !reflect.DeepEqual(g.Epoch, e.Epoch) || g.State.Digest() != e.state.Digest() || len(g.Folds) != folds {
			return fmt.Errorf("epoch %d is another one", e.Number)
		}
		for k := range folds {
			if g.Folds[k].Digest() != e.folds[k].Digest() {
				return fmt.Errorf("fold %d of epoch %d is another one", k, e.Number)
			}
		}
		if !slices.Equal(g.Sources, slices.Sorted(maps.Keys(e.sources))) || g.Stale != e.stale {
			return fmt.Errorf("epoch %d has %d sources of %d, staleness %d of %d", e.Number, len(g.Sources), len(e.sources), g.Stale, e.stale)
		}
		if !slices.Equal(g.Blocks, slices.Sorted(maps.Keys(e.has))) {
			return fmt.Errorf("epoch %d has %d blocks of %d", e.Number, len(g.Blocks), len(e.has))
		}
		for id, want := range e.has {
			summary, err := s.EpochSummary(e.Number, id)
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(summary, want) {
				return fmt.Errorf("block %s of epoch %d is another one", id, e.Number)
			}
		}
	}
	return nil
}

// The world's random steps go through epochs: one in use while another catches
// up, and files without any.
func TestWorldsHaveEpochs(t *testing.T) {
	var none, catching, both int
	for seed := range uint64(5) {
		w := newWorld(rand.New(rand.NewPCG(2, seed)), 2)
		for range 200 {
			w.step()
			switch {
			case len(w.epochs) == 2:
				both++
			case len(w.epochs) == 1 && w.epoch == 0:
				catching++
			case len(w.epochs) == 0:
				none++
			}
		}
		if w.epoch < 3 {
			t.Errorf("seed %d: %d epochs", seed, w.epoch)
		}
	}
	if none == 0 || catching == 0 || both == 0 {
		t.Errorf("steps without an epoch %d, with the first %d, with two %d", none, catching, both)
	}
}

// Each value is good by itself, but they are of other blocks.
func TestEpochOfOtherBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 1))
	block, lifted, other := randomBlock(r, "a", 5, 2), randomBlock(r, "a", 5, 3), randomBlock(r, "a", 5, 3)
	sum := func(b Block) *incremental.State {
		s := incremental.NewState(incremental.DefaultFeatures(b.Summary.Features()))
		s.Add(b.Summary)
		return s
	}
	for _, c := range []struct{ state, fold *incremental.State }{
		{sum(lifted), sum(lifted)},
		{sum(other), sum(lifted)},
		{sum(lifted), sum(other)},
	} {
		path := filepath.Join(t.TempDir(), "streamd.db")
		s, _ := mustOpen(t, path)
		if _, err := s.Save(Change{Put: []Block{block}, State: sum(block), Epoch: 7, Epochs: []EpochChange{{
			Epoch: Epoch{Number: 7}, Put: []EpochSummary{{"a", lifted.Summary}}, State: c.state, Folds: []*incremental.State{c.fold},
		}}}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		good := c.state.Digest() == c.fold.Digest()
		report, err := Verify(t.Context(), path, nil)
		if err != nil || report.OK != good || !good && (report.Damaged != 1 || report.Damage[0].Bucket != string(bucketEpochStates)) {
			t.Errorf("verified as %+v, %v", report, err)
		}
	}
}
