package live

import (
	"crypto/sha256"
	"slices"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/sample"
)

// sums are the exact sums of blocks, apart by fold (sample.Fold). A block is added to
// the sum of its fold alone. That of all is made of the folds' when it is asked for,
// which takes less than a block for each of them.
type sums struct {
	features []string
	folds    int                  // none: there is one sum
	apart    []*incremental.State // of each fold
	moved    []bool               // since the last save
	all      *incremental.State   // that of all, when it was asked for last
	known    bool                 // it still is

	// Bounds of their memory, as measure found them, and as they have grown since.
	most   int // classes
	window exact.Window
}

func newSums(features []string, folds int) sums {
	s := sums{features: features, folds: folds, moved: make([]bool, max(folds, 1)), all: incremental.NewState(features)}
	for i := range s.moved {
		s.apart, s.moved[i] = append(s.apart, incremental.NewState(features)), true
	}
	return s
}

// restoredSums are those of a file, or, where its folds are others, not whole: without
// blocks.
func restoredSums(all *incremental.State, apart []*incremental.State, folds int) (s sums, whole bool) {
	s = newSums(all.Features(), folds)
	switch {
	case folds == 0:
		s.apart[0] = all
	case folds == len(apart):
		s.apart, s.all, s.known = apart, all, true
	default:
		return s, false
	}
	clear(s.moved)
	s.measure()
	return s, true
}

// measure counts the classes and finds the window.
func (s *sums) measure() {
	labels := map[string]struct{}{}
	s.window = exact.Window{}
	for _, fold := range s.apart {
		s.window = s.window.Union(fold.Window())
		for _, label := range fold.Labels() {
			labels[label] = struct{}{}
		}
	}
	s.most = len(labels)
}

// shape is that of the sums with so many more classes.
func (s *sums) shape(more int) memory.Shape {
	return memory.Shape{Features: len(s.features), Classes: s.most + more, Window: s.window}
}

// of is the sum that a block of this content is in, which is about to change.
func (s *sums) of(digest [sha256.Size]byte) *incremental.State {
	i := 0
	if s.folds > 0 {
		i = sample.Fold(digest, s.folds)
	}
	s.moved[i], s.known = true, false
	return s.apart[i]
}

// total is the sum of all blocks, to be looked at until one comes or goes.
func (s *sums) total() *incremental.State {
	if s.folds == 0 {
		return s.apart[0]
	}
	if !s.known {
		s.all.SetSum(s.apart)
		s.known = true
	}
	return s.all
}

// perFold are the sums of the folds, if there are any, to be looked at as total is.
func (s *sums) perFold() []*incremental.State { return s.apart[:s.folds] }

// rows is how many there are.
func (s *sums) rows() (m int64) {
	for _, fold := range s.apart {
		m += fold.Rows()
	}
	return m
}

// classes is how many there are, or a few less while some are in some folds only.
func (s *sums) classes() (k int) {
	for _, fold := range s.apart {
		k = max(k, fold.Classes())
	}
	return k
}

// parted says whether there are rows of two classes or more.
func (s *sums) parted() bool {
	var first *incremental.State
	for _, fold := range s.apart {
		switch {
		case fold.Classes() == 0:
		case fold.Classes() > 1:
			return true
		case first == nil:
			first = fold
		case !fold.Has(first.Totals()[0].Label):
			return true
		}
	}
	return false
}

// newClasses counts the labels without rows. Each label is listed once.
func (s *sums) newClasses(labels []string) (n int) {
	for _, label := range labels {
		if !slices.ContainsFunc(s.apart, func(fold *incremental.State) bool { return fold.Has(label) }) {
			n++
		}
	}
	return n
}

// takeMoved gives the folds that have moved, which then count as those that have not.
func (s *sums) takeMoved() []*incremental.State {
	taken := make([]*incremental.State, s.folds)
	for i := range taken {
		if s.moved[i] {
			taken[i] = s.apart[i]
		}
	}
	clear(s.moved)
	return taken
}

// stillMoved undoes takeMoved.
func (s *sums) stillMoved(taken []*incremental.State) {
	for i, fold := range taken {
		s.moved[i] = s.moved[i] || fold != nil
	}
}
