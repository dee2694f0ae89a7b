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
	"streamd/retire"
)

// worldSpace is the space of a basis in memory. Its coordinates are random, since a file
// only needs to know the number of rows.
type worldSpace struct {
	Space
	state    *incremental.State
	folds    []*incremental.State
	changed  [folds]bool
	has, put map[string]*incremental.Summary
	sources  map[string]bool // false: unsaved
	stale    uint8
}

func (w *world) beginSpace() {
	w.begun++
	n := 1 + w.r.IntN(3)
	next := &worldSpace{
		Space: Space{Number: w.begun, Basis: []byte{byte(n)}, Report: []byte("as it came")},
		state: incremental.NewState(incremental.DefaultFeatures(n)), folds: newFolds(incremental.DefaultFeatures(n)), changed: [folds]bool{true, true, true},
		has: map[string]*incremental.Summary{}, put: map[string]*incremental.Summary{}, sources: map[string]bool{},
	}
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		if w.r.IntN(2) == 0 {
			next.sources[id] = false
		}
	}
	w.spaces = append(w.spaces, next)
}

// stepSpaces begins a space, adds blocks that one lacks, or takes the next one into use.
func (w *world) stepSpaces() {
	if len(w.spaces) == 0 || len(w.spaces) == 1 && w.spaces[0].Number == w.inUse {
		w.beginSpace()
		return
	}
	next := w.spaces[len(w.spaces)-1]
	left := 8
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		if next.has[id] == nil && left > 0 {
			next.add(w.r, w.live[id])
			left--
		}
	}
	switch {
	case len(next.has) == len(w.live):
		w.spaces, w.inUse = []*worldSpace{next}, next.Number
	case w.r.IntN(10) == 0: // abandoned
		w.spaces = w.spaces[:len(w.spaces)-1]
	}
}

func (s *worldSpace) fold(b block) *incremental.State {
	i := sample.Fold(b.Summary.Digest(), folds)
	s.changed[i] = true
	return s.folds[i]
}

func (s *worldSpace) add(r *rand.Rand, b block) {
	summary := randomBlock(r, "", int(b.Entry.Rows), len(s.state.Features())).Summary
	s.has[b.Entry.ID], s.put[b.Entry.ID] = summary, summary
	s.state.Add(summary)
	s.fold(b).Add(summary)
}

func (s *worldSpace) remove(id string, b block) {
	if _, ok := s.sources[id]; ok {
		delete(s.sources, id)
		s.stale++
	}
	if summary := s.has[id]; summary != nil {
		s.state.Remove(summary)
		s.fold(b).Remove(summary)
		delete(s.has, id)
		delete(s.put, id)
	}
}

func (s *worldSpace) copy() *worldSpace {
	c := *s
	c.has, c.sources = maps.Clone(s.has), maps.Clone(s.sources)
	c.folds = slices.Clone(s.folds)
	for _, state := range append([]**incremental.State{&c.state}, &c.folds[0], &c.folds[1], &c.folds[2]) {
		var err error
		if *state, err = incremental.DecodeState((*state).AppendBinary(nil)); err != nil {
			panic(err)
		}
	}
	return &c
}

func (w *world) spaceChanges() (out []SpaceChange) {
	for _, s := range w.spaces {
		c := SpaceChange{Space: s.Space, Stale: s.stale, State: s.state, Folds: slices.Clone(s.folds)}
		for id, saved := range s.sources {
			if !saved {
				c.Sources = append(c.Sources, id)
			}
		}
		for i := range c.Folds {
			if !s.changed[i] {
				c.Folds[i] = nil
			}
		}
		for id, summary := range s.put {
			c.Put = append(c.Put, Summary{id, summary})
		}
		out = append(out, c)
	}
	return out
}

// compareSpaces fails unless a file holds the spaces of w's bases.
func (w *world) compareSpaces(t testing.TB, store *Store, got []SpaceContents) {
	t.Helper()
	if err := readWorldSpaces(store, got, w.spaces, len(w.live)); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.spaces {
		for id := range w.live {
			if _, err := store.Summary(s.Number, id); s.has[id] == nil && !errors.Is(err, ErrNotFound) {
				t.Fatalf("block %s is not in space %d: %v", id, s.Number, err)
			}
		}
	}
}

// readWorldSpaces checks that a file of that many blocks has exactly these spaces.
func readWorldSpaces(store *Store, got []SpaceContents, want []*worldSpace, blocks int) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d spaces of %d", len(got), len(want))
	}
	for i, s := range want {
		g := got[i]
		if !reflect.DeepEqual(g.Space, s.Space) || g.State.Digest() != s.state.Digest() || len(g.Folds) != folds {
			return fmt.Errorf("space %d is another one", s.Number)
		}
		for k := range folds {
			if g.Folds[k].Digest() != s.folds[k].Digest() {
				return fmt.Errorf("fold %d of space %d is another one", k, s.Number)
			}
		}
		if !slices.Equal(g.Sources, slices.Sorted(maps.Keys(s.sources))) || g.Stale != s.stale {
			return fmt.Errorf("space %d has %d sources of %d, staleness %d of %d", s.Number, len(g.Sources), len(s.sources), g.Stale, s.stale)
		}
		n := 0
		err := store.Summaries(s.Number, func(e retire.Entry, summary *incremental.Summary) error {
			n++
			again, err := store.Summary(s.Number, e.ID)
			if err != nil {
				return err
			}
			if want := s.has[e.ID]; !equalSums(summary, want) || !equalSums(again, want) || slices.Contains(g.Missing, e.ID) {
				return fmt.Errorf("block %s of space %d is another one", e.ID, s.Number)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n != len(s.has) || n+len(g.Missing) != blocks || !slices.IsSorted(g.Missing) {
			return fmt.Errorf("space %d has %d blocks of %d, and lacks %d of %d", s.Number, n, len(s.has), len(g.Missing), blocks)
		}
	}
	return nil
}

// The world's random steps include a space in use while another is built, and files without
// spaces.
func TestWorldsHaveSpaces(t *testing.T) {
	var none, catching, both int
	for seed := range uint64(5) {
		w := newWorld(rand.New(rand.NewPCG(2, seed)), 2)
		w.withdraws, w.archives = true, true
		for range 200 {
			w.step()
			switch {
			case len(w.spaces) == 2:
				both++
			case len(w.spaces) == 1 && w.inUse == Features:
				catching++
			case len(w.spaces) == 0:
				none++
			}
		}
		if w.inUse < 3 {
			t.Errorf("seed %d: %d spaces", seed, w.inUse)
		}
	}
	if none == 0 || catching == 0 || both == 0 {
		t.Errorf("steps without a basis %d, with the first %d, with two %d", none, catching, both)
	}
}

// Each value is good by itself, but belongs to other blocks.
func TestSpaceOfOtherBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 1))
	b, lifted, other := randomBlock(r, "a", 5, 2), randomBlock(r, "a", 5, 3), randomBlock(r, "a", 5, 3)
	sum := func(b block) *incremental.State {
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
		change := changeTo(sum(b), nil, b)
		change.InUse = 7
		change.Spaces = append(change.Spaces, SpaceChange{
			Space: Space{Number: 7}, Put: []Summary{{"a", lifted.Summary}}, State: c.state, Folds: []*incremental.State{c.fold},
		})
		if _, err := s.Save(change); err != nil {
			t.Fatal(err)
		}
		s.Close()
		good := c.state.Digest() == c.fold.Digest()
		report, err := Verify(t.Context(), path, nil)
		if err != nil || report.OK != good || !good && (report.Damaged != 1 || report.Damage[0].Bucket != string(bucketStates)) {
			t.Errorf("verified as %+v, %v", report, err)
		}
	}
}
