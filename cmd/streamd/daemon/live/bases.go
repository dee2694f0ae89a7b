package live

import (
	"fmt"
	"math"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels"
	"streamd/retire"
)

// Next is the space that is being built, or nil.
func (l *Set) Next() *Space { return l.next }

// HasBasis reports whether there is a space beside the features.
func (l *Set) HasBasis() bool { return l.inUse != l.features || l.next != nil }

// bases lists the spaces beside the features: in use, and being built.
func (l *Set) bases() []*Space { return l.spaces()[1:] }

// spaces lists the features, the basis in use, and the one that is being built.
func (l *Set) spaces() []*Space {
	all := []*Space{l.features}
	if l.inUse != l.features {
		all = append(all, l.inUse)
	}
	if l.next != nil {
		all = append(all, l.next)
	}
	return all
}

// FitsBasis says why there is no memory for the sums in that many coordinates of a basis,
// beside the present sums.
func (l *Set) FitsBasis(coordinates int) error {
	shapes := []memory.Shape{l.features.sums.shape(0), {Features: coordinates, Classes: l.features.sums.most}}
	if l.inUse != l.features {
		shapes = append(shapes, l.inUse.sums.shape(0))
	}
	if live, room := l.budget.Price(shapes, l.entries()), l.budget.Room(); live > room {
		return fmt.Errorf("the live set in %d coordinates would take %s, and limits.memory, %s, leaves %s: raise it, or lower kernel.basis",
			coordinates, memory.Size(live), memory.Size(float64(l.budget.Limit)), memory.Size(room))
	}
	return nil
}

// Begin begins to build a space and drops an incomplete one. Its basis is the one that was
// being chosen (see Choose).
func (l *Set) Begin(basis *kernels.Map, made *model.Reduction, regulariser config.Regulariser) {
	l.lastSpace++
	l.leave(l.next)
	c := newCoordinates(l.lastSpace, basis, made, regulariser)
	l.next = newSpace(c, c.Names, l.features.sums.folds, l.choosing)
	l.next.sums.most = l.features.sums.most
	for _, e := range l.ledger.Page(retire.Lowest, math.MaxInt) {
		l.next.missing[e.ID] = struct{}{}
	}
	l.moved = true
	l.retarget()
}

// Part returns the places of the next space's coordinates among those in use, or nil if it has
// others. The summaries of blocks in the next space are then parts of those in use, bit for bit.
func (l *Set) Part() []int {
	if l.inUse == l.features {
		return nil
	}
	return l.next.Map.In(l.inUse.Map)
}

// Take adds a block that was read again to the next space, if next is still that space and
// lacks the block. digest is that of the block's summary in the features.
func (l *Set) Take(next *Space, id string, s *incremental.Summary, digest [32]byte) bool {
	if l.next != next || !next.Lacks(id) {
		return false
	}
	next.add(id, s, digest)
	return true
}

// SetUnread notes the missing blocks that the log does not return unchanged.
func (l *Set) SetUnread(next *Space, unread []Unread) {
	for _, u := range unread {
		if e, ok := l.ledger.Get(u.ID); ok && e == u.Entry && next.Lacks(u.ID) {
			next.unread[u.ID] = u
		}
	}
}

// Retry lets the unread blocks be requested again.
func (p *Space) Retry() { clear(p.unread) }

// Abandon drops the space that is being built.
func (l *Set) Abandon() {
	l.leave(l.next)
	l.next, l.moved = nil, true
	l.retarget()
}

// DropBases goes back to the features.
func (l *Set) DropBases() {
	for _, p := range l.bases() {
		l.leave(p)
	}
	l.inUse, l.next, l.moved = l.features, nil, true
	l.retarget()
}

// leave notes that a space is dropped, if there is one. A stale basis leaves remains in the
// file, as a retired block does.
func (l *Set) leave(p *Space) {
	if p != nil && p.from.stale >= SourceRetired {
		l.staleBases++
		l.leaveRemains()
	}
}

// Switch takes the built space into use. It lacks no block.
func (l *Set) Switch() {
	if len(l.next.missing) > 0 {
		panic("live: a switch to a space that lacks blocks")
	}
	l.leave(l.inUse)
	l.inUse, l.next, l.moved = l.next, nil, true
	l.retarget()
}

// Fits reports whether the configuration asks for such a basis.
func Fits(basis *kernels.Map, wanted *config.Config) bool {
	kernel, auto := wanted.Kernel.Function.Kernel(len(basis.Point(0)))
	mean, _ := basis.Scaling()
	return (basis.Kernel() == kernel || auto && basis.Kernel().Radial()) &&
		basis.Size() <= wanted.Kernel.Basis && (mean != nil) == (wanted.Model.Standardise == config.SwitchOn)
}
