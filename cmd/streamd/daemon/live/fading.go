package live

import (
	"fmt"
	"math"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// fading is the sums of the live blocks for a half-life (retire.HalfLife): in the space in use,
// apart by fold, and by the step of a block modulo StepsPerHalving.
//
// A block of step StepsPerHalving·m + r is in part r with the factor 2^(m−base). When the newest
// step rises, the weights of all blocks of a part fall by one factor. So a weighted sum takes the
// sum of a few parts, each times a number (weigh), and no block is read again for it. A block is read
// when its step moves, or when it weighs nothing any more. Factors are from 1 to 2^MostHalvings,
// and a part takes up to one limb more than a plain sum.
//
// Parts are brought up to date when planes are due (Weigh), not when blocks come: what comes and
// goes in between costs nothing. After a restart, and in other coordinates, the parts are empty, and
// all blocks with a weight are read.
type fading struct {
	half   retire.HalfLife
	of     *Space // whose blocks are in the parts
	base   int64
	parts  [][retire.StepsPerHalving]*incremental.State // by fold; one without folds
	placed map[string]place                             // blocks in the parts
	newest int64                                        // step
	sums   *Weighted                                    // of the present live set, or nil
}

// place is where a block is among the parts.
type place struct {
	step int64
	fold int32
}

// Weighted is the sums of the live blocks, each times its weight. It is immutable.
type Weighted struct {
	Whole *incremental.State
	Folds []*incremental.State
	// Digest is that of Whole, in hex.
	Digest string
}

// HalfLife is that of the configuration.
func HalfLife(c *config.Config) retire.HalfLife {
	return retire.HalfLife{Time: c.Retire.HalfLife, Rows: c.Retire.HalfLifeRows}
}

// Weigh brings the weighted sums of the space in use up to date. It reads blocks for about d, and
// returns nil if some are left: then it must be called again. There is a half-life. The error comes
// from the store.
func (l *Set) Weigh(d time.Duration) (*Weighted, error) {
	f := &l.fading
	if f.of != l.inUse {
		f.reset(l.inUse)
	}
	if f.sums != nil {
		return f.sums, nil
	}
	stale, fresh := l.compareSteps()
	if 2*len(stale) > len(f.placed) { // it takes less to begin again
		f.reset(l.inUse)
		stale, fresh = l.compareSteps()
	}
	until := time.Now().Add(d)
	for _, id := range stale {
		if time.Now().After(until) {
			return nil, nil
		}
		s, err := f.of.summary(l.store, id)
		if err != nil {
			return nil, fmt.Errorf("weigh block %s: %w", id, err)
		}
		f.remove(id, s)
	}
	f.rebase()
	for _, to := range fresh {
		if time.Now().After(until) {
			return nil, nil
		}
		if err := l.weighBlock(to.id, to.step); err != nil {
			return nil, fmt.Errorf("weigh block %s: %w", to.id, err)
		}
	}
	f.sums = f.weigh()
	return f.sums, nil
}

// Weight is the weight of a live block in the last sums of Weigh.
func (l *Set) Weight(id string) float64 {
	p, ok := l.fading.placed[id]
	if !ok {
		return 0
	}
	return retire.Weight(uint64(l.fading.newest) - uint64(p.step))
}

// missing is a block that must be put into a part.
type missing struct {
	id   string
	step int64
}

// compareSteps compares the parts with the ledger. It lists the blocks that must leave their
// parts, and those that must be put into one afterwards.
func (l *Set) compareSteps() (stale []string, lacking []missing) {
	f, seen := &l.fading, 0
	newest, all := l.ledger.Steps(f.half)
	f.newest = newest
	for id, step := range all {
		_, _, weighs := retire.Multiplier(uint64(newest) - uint64(step))
		at, placed := f.placed[id]
		if placed {
			seen++
		}
		if placed && (!weighs || at.step != step) {
			stale = append(stale, id)
		}
		if weighs && (!placed || at.step != step) {
			lacking = append(lacking, missing{id, step})
		}
		if !weighs && seen == len(f.placed) {
			break
		}
	}
	return stale, lacking
}

// weighBlock puts a live block into a part.
func (l *Set) weighBlock(id string, step int64) error {
	f, at := &l.fading, place{step: step}
	s, err := f.of.summary(l.store, id)
	if err != nil {
		return err
	}
	if f.of.sums.folds > 0 {
		content := s
		if f.of != l.features {
			if content, err = l.features.summary(l.store, id); err != nil {
				return err
			}
		}
		at.fold = int32(sample.Fold(content.LabelledDigest(), f.of.sums.folds))
	}
	part, exponent := f.part(at)
	part.AddTimes(s, exponent)
	f.placed[id] = at
	return nil
}

// reset empties the parts.
func (f *fading) reset(of *Space) {
	f.of, f.base, f.sums, f.placed = of, math.MinInt64, nil, map[string]place{}
	f.parts = make([][retire.StepsPerHalving]*incremental.State, max(of.sums.folds, 1))
	for i := range f.parts {
		for r := range f.parts[i] {
			f.parts[i][r] = incremental.NewState(of.Names())
		}
	}
}

// part is the part of a place, and the exponent of the factor there.
func (f *fading) part(at place) (*incremental.State, int) {
	halving := at.step >> stepBits
	return f.parts[at.fold][at.step-halving<<stepBits], int(halving - f.base)
}

// stepBits is the logarithm of StepsPerHalving.
const stepBits = 3

// remove takes a block out of its part, if it is in one.
func (f *fading) remove(id string, s *incremental.Summary) {
	if at, ok := f.placed[id]; ok {
		part, exponent := f.part(at)
		part.RemoveTimes(s, exponent)
		delete(f.placed, id)
	}
}

// rebase moves the factors to the newest step. No block in the parts is too old for it.
func (f *fading) rebase() {
	base := f.newest>>stepBits - retire.MostHalvings
	if base != f.base && len(f.placed) > 0 {
		for i := range f.parts {
			for _, part := range f.parts[i] {
				part.Rescale(int(f.base - base))
			}
		}
	}
	f.base = base
}

// weigh is the weighted sums of the parts.
func (f *fading) weigh() *Weighted {
	const scale = retire.WeightBits + retire.MostHalvings
	w, features := new(Weighted), f.of.Names()
	r := int(f.newest - f.newest>>stepBits<<stepBits)
	var weights []uint64
	for i := range retire.StepsPerHalving {
		m, _, _ := retire.Multiplier(uint64(r-i+retire.StepsPerHalving) % retire.StepsPerHalving)
		if i > r {
			m *= 2 // the halving of the newest step has no such step yet
		}
		weights = append(weights, m)
	}
	for i := range f.parts {
		w.Folds = append(w.Folds, incremental.WeightedSum(features, f.parts[i][:], weights, scale))
	}
	if w.Whole = w.Folds[0]; f.of.sums.folds == 0 {
		w.Folds = nil
	} else {
		w.Whole = incremental.NewState(features)
		w.Whole.SetSum(w.Folds)
	}
	w.Digest = DigestOf(w.Whole)
	return w
}
