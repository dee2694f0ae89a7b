package live

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/parallel"
	"streamd/incremental/sample"
	"streamd/retire"
)

// fading is the sums of the live blocks for a half-life (retire.HalfLife): in the space in use,
// apart by fold, and by the step of a block modulo StepsPerHalving.
//
// A block of step StepsPerHalving·m + r is in part r with the factor 2^(m−base). When the newest
// step rises, the weights of all blocks of a part fall by one factor. So a weighted sum takes the
// sum of a few parts, each times a number (weigh), and no block is read again for it. A block is
// read when its step moves, or when it weighs nothing any more. Factors are from 1 to
// 2^MostHalvings, and a part takes up to one limb more than a plain sum.
//
// Parts are brought up to date when planes are due (Weigh), not when blocks come: what comes and
// goes in between costs nothing. As long as the origin of positions rests, only blocks that are not
// older than what came and went can have moved, and the ledger is searched as far. After a restart,
// and in other coordinates, the parts are empty, and all blocks with a weight are read.
type fading struct {
	half   retire.HalfLife
	of     *Space // whose blocks are in the parts
	base   int64
	parts  [][retire.StepsPerHalving]*incremental.State // by fold; one without folds
	placed map[string]place                             // blocks in the parts
	newest int64                                        // step
	sums   *Weighted                                    // of the present live set, or nil

	// Of the last sums.
	whole  bool        // they were made since the last reset, and nothing was placed after them
	origin int64       // of positions
	below  retire.Rank // no block up to here has a weight
	since  int64       // the earliest event time, in milliseconds, of what came and went after them
}

// place is where a block is among the parts.
type place struct {
	position int64
	fold     int32
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

// Weigh brings the weighted sums of the space in use up to date. It reads blocks for about most,
// and returns nil if some are left: then it must be called again. There is a half-life. The error
// comes from the store.
func (l *Set) Weigh(most time.Duration) (*Weighted, error) {
	f := &l.fading
	if f.of != l.inUse {
		f.reset(l.inUse)
	}
	if f.sums != nil {
		return f.sums, nil
	}
	d := l.compareAges()
	if 2*len(d.stale) > len(f.placed) { // it takes less to begin again
		f.reset(l.inUse)
		d = l.compareAges()
	}
	f.whole = false
	until := time.Now().Add(most)
	for _, id := range d.stale {
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
	for _, to := range d.lacking {
		if time.Now().After(until) {
			return nil, nil
		}
		if err := l.place(to.id, to.position); err != nil {
			return nil, fmt.Errorf("weigh block %s: %w", to.id, err)
		}
	}
	f.sums, f.whole, f.since = f.weigh(), true, math.MaxInt64
	return f.sums, nil
}

// Weight is the weight of a live block in the last sums of Weigh.
func (l *Set) Weight(id string) float64 {
	p, ok := l.fading.placed[id]
	if !ok {
		return 0
	}
	return retire.Weight(l.fading.steps(p.position))
}

// steps is the number of steps of a position below the newest.
func (f *fading) steps(position int64) uint64 {
	return uint64(f.newest) - uint64(f.half.Step(position))
}

// weighs reports whether a position has a weight.
func (f *fading) weighs(position int64) bool {
	_, _, ok := retire.Multiplier(f.steps(position))
	return ok
}

// moved notes that a block of that event time has come or gone.
func (f *fading) moved(at time.Time) {
	f.sums, f.since = nil, min(f.since, at.UnixMilli())
}

// missing is a block that must be put into a part.
type missing struct {
	id       string
	position int64
}

// differences are the blocks that must leave their parts, and those that must be put into one
// afterwards.
type differences struct {
	stale   []string
	lacking []missing
}

// compareAges compares the parts with the ledger.
func (l *Set) compareAges() (d differences) {
	f, origin := &l.fading, l.ledger.Origin(l.fading.half)
	end, known := l.endOf(origin)
	f.origin = origin
	if !known || f.half.Step(end) < f.newest {
		l.compareAll(&d)
		return d
	}
	f.newest = f.half.Step(end)
	for e, age := range l.ledger.Ages(f.half) {
		if e.Time.UnixMilli() < f.since {
			break
		}
		f.compare(e.ID, end-age, &d)
	}
	// The others have not moved, but the oldest of them may weigh nothing any more.
	const atOnce = 64
	for {
		page := l.ledger.Page(f.below, atOnce)
		for i := range page {
			e := &page[i]
			if e.Time.UnixMilli() >= f.since {
				return d // it has been compared, and may still have to be put into a part
			}
			if at, placed := f.placed[e.ID]; placed {
				if f.weighs(at.position) {
					return d
				}
				d.stale = append(d.stale, e.ID)
			}
			f.below = e.Rank()
		}
		if len(page) < atOnce {
			return d
		}
	}
}

// endOf is the position of the newest block, if the positions of the last sums hold but for the
// blocks from f.since on.
func (l *Set) endOf(origin int64) (end int64, known bool) {
	f := &l.fading
	if !f.whole || origin != f.origin || f.since < origin {
		return 0, false
	}
	if f.half.Rows == 0 {
		return l.ledger.End(f.half), true
	}
	for e, age := range l.ledger.Ages(f.half) {
		if e.Time.UnixMilli() < f.since {
			at, placed := f.placed[e.ID]
			return at.position + age, placed
		}
	}
	return 0, false
}

// compareAll is compareAges for all blocks.
func (l *Set) compareAll(d *differences) {
	f, seen, end := &l.fading, 0, l.ledger.End(l.fading.half)
	f.newest, f.below = f.half.Step(end), retire.Lowest
	for e, age := range l.ledger.Ages(f.half) {
		if _, placed := f.placed[e.ID]; placed {
			seen++
		}
		if f.compare(e.ID, end-age, d) {
			continue
		}
		if f.below == retire.Lowest {
			f.below = e.Rank()
		}
		if seen == len(f.placed) {
			return
		}
	}
}

// compare compares the place of a block with its position, and reports whether it weighs anything.
func (f *fading) compare(id string, position int64, d *differences) (weighs bool) {
	at, placed := f.placed[id]
	weighs = f.weighs(position)
	rests := placed && weighs && f.half.Step(at.position) == f.half.Step(position)
	switch {
	case rests && at.position != position:
		at.position = position
		f.placed[id] = at
	case placed && !rests:
		d.stale = append(d.stale, id)
	}
	if weighs && !rests {
		d.lacking = append(d.lacking, missing{id, position})
	}
	return weighs
}

// place puts a live block into a part.
func (l *Set) place(id string, position int64) error {
	f, at := &l.fading, place{position: position}
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
	*f = fading{half: f.half, of: of, base: math.MinInt64, placed: map[string]place{}}
	f.parts = make([][retire.StepsPerHalving]*incremental.State, max(of.sums.folds, 1))
	for i := range f.parts {
		for r := range f.parts[i] {
			f.parts[i][r] = incremental.NewState(of.Names())
		}
	}
}

// part is the part of a place, and the exponent of the factor there.
func (f *fading) part(at place) (*incremental.State, int) {
	step := f.half.Step(at.position)
	halving := step >> stepBits
	return f.parts[at.fold][step-halving<<stepBits], int(halving - f.base)
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
	w, features := &Weighted{Folds: make([]*incremental.State, len(f.parts))}, f.of.Names()
	r := int(f.newest - f.newest>>stepBits<<stepBits)
	var weights []uint64
	for i := range retire.StepsPerHalving {
		m, _, _ := retire.Multiplier(uint64(r-i+retire.StepsPerHalving) % retire.StepsPerHalving)
		if i > r {
			m *= 2 // the halving of the newest step has no such step yet
		}
		weights = append(weights, m)
	}
	_ = parallel.For(runtime.GOMAXPROCS(0), len(f.parts), func(i int) error {
		w.Folds[i] = incremental.WeightedSum(features, f.parts[i][:], weights, scale)
		return nil
	})
	if w.Whole = w.Folds[0]; f.of.sums.folds == 0 {
		w.Folds = nil
	} else {
		w.Whole = incremental.NewState(features)
		w.Whole.SetSum(w.Folds)
	}
	w.Digest = DigestOf(w.Whole)
	return w
}
