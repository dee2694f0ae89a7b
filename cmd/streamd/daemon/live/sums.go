package live

import (
	"crypto/sha256"
	"slices"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/incremental"
	"streamd/incremental/exact"
	"streamd/incremental/sample"
)

// sums are the exact sums of blocks, one per fold (sample.Fold). A block is added to the
// sum of its fold only. The total is computed on request, which costs less than adding
// each block twice.
type sums struct {
	features []string
	folds    int                  // 0: there is a single sum
	apart    []*incremental.State // one per fold
	moved    []bool               // by fold: changed since the last save
	all      *incremental.State   // the total, as last computed
	known    bool                 // all is up to date
	digest   [sha256.Size]byte    // of the total, as last computed: of a wide state that takes long
	digested bool                 // digest is up to date

	// Upper bounds for their memory: as measured, and raised with every block since.
	most   int // classes, Unlabelled included
	window exact.Window
}

func newSums(features []string, folds int) sums {
	s := sums{features: features, folds: folds, moved: make([]bool, max(folds, 1)), all: incremental.NewState(features)}
	for i := range s.moved {
		s.apart, s.moved[i] = append(s.apart, incremental.NewState(features)), true
	}
	return s
}

// restoredSums are a file's sums. If the number of folds has changed, the result is empty
// and not whole.
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

// measure counts the classes, Unlabelled included, and finds the window.
func (s *sums) measure() {
	labels := map[string]struct{}{}
	s.window = exact.Window{}
	for _, fold := range s.apart {
		s.window = s.window.Union(fold.Window())
		for _, label := range fold.Labels() {
			labels[label] = struct{}{}
		}
		if fold.Has(incremental.Unlabelled) {
			labels[incremental.Unlabelled] = struct{}{}
		}
	}
	s.most = len(labels)
}

// shape is the shape of the sums with more further classes.
func (s *sums) shape(more int) memory.Shape {
	return memory.Shape{Features: len(s.features), Classes: s.most + more, Window: s.window}
}

// of is the sum for a block with this digest. The caller is about to change it.
func (s *sums) of(digest [sha256.Size]byte) *incremental.State {
	i := 0
	if s.folds > 0 {
		i = sample.Fold(digest, s.folds)
	}
	s.moved[i], s.known, s.digested = true, false, false
	return s.apart[i]
}

// total is the sum of all blocks, valid until a block is added or removed.
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

// totalDigest is the digest of total.
func (s *sums) totalDigest() [sha256.Size]byte {
	if !s.digested {
		s.digest, s.digested = s.total().Digest(), true
	}
	return s.digest
}

// perFold are the sums of the folds, if any, valid as long as total is.
func (s *sums) perFold() []*incremental.State { return s.apart[:s.folds] }

// unlabelled is the number of rows without a label.
func (s *sums) unlabelled() (m int64) {
	for _, fold := range s.apart {
		m += fold.Unlabelled().Rows
	}
	return m
}

// rows is the number of rows.
func (s *sums) rows() (m int64) {
	for _, fold := range s.apart {
		m += fold.Rows()
	}
	return m
}

// classes is the number of classes, or a few fewer while some are in a few folds only.
func (s *sums) classes() (k int) {
	for _, fold := range s.apart {
		k = max(k, fold.Classes())
	}
	return k
}

// parted reports whether there are rows of at least two classes.
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

// newClasses counts the labels that have no rows yet. Each label is listed once.
func (s *sums) newClasses(labels []string) (n int) {
	for _, label := range labels {
		if !slices.ContainsFunc(s.apart, func(fold *incremental.State) bool { return fold.Has(label) }) {
			n++
		}
	}
	return n
}

// takeMoved returns the changed folds, and marks them as unchanged.
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
