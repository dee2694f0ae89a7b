package daemon

import (
	"slices"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
)

// sources are the live blocks whose rows a basis was chosen from. A basis is served
// with the planes, and its points are rows or made of few: a row that is forgotten has
// to leave it, too. So another basis is chosen when a source is retired explicitly.
//
// Rows that the retention policy lets go may stay in the points until the next basis. The mean
// and scale of a scaled basis are of all live rows, and do not make it stale by themselves.
type sources struct {
	blocks map[string]struct{}
	stale  staleness
}

// staleness says what has happened to the sources of a basis since it was chosen. It is
// saved with the epoch.
type staleness uint8

const (
	fresh          staleness = iota
	sourceReplaced           // by a newer value of its key
	sourceRetired            // by DELETE or a tombstone: its rows must not stay
)

// lose notes that a block has gone.
func (s *sources) lose(id string, how staleness) {
	if _, ok := s.blocks[id]; ok {
		delete(s.blocks, id)
		s.stale = max(s.stale, how)
	}
}

// forget notes in all bases, also in those that are being chosen and built, that the
// rows of a block must not stay.
func (l *liveSet) forget(id string, how staleness) {
	for _, e := range l.epochs() {
		e.from.lose(id, how)
	}
	if l.choosing != nil {
		l.choosing.lose(id, how)
	}
}

// inBasis says whether a live block is a source of the basis in use, or of one to come.
func (l *liveSet) inBasis(id string) bool {
	all := []*sources{l.choosing}
	for _, e := range l.epochs() {
		all = append(all, e.from)
	}
	return slices.ContainsFunc(all, func(s *sources) bool {
		if s == nil {
			return false
		}
		_, ok := s.blocks[id]
		return ok
	})
}

// choose begins to keep the sources of a basis that is chosen from the sample as it is:
// all blocks of which rows are held. Those may be more than are in the view.
func (l *liveSet) choose() {
	l.choosing = &sources{blocks: map[string]struct{}{}}
	for id := range l.sample.Blocks() {
		l.choosing.blocks[id] = struct{}{}
	}
}

// mustGo says whether the basis in use holds rows that must not stay.
func (d *Daemon) mustGo() bool {
	e := d.live.epoch
	return e != nil && e.from.stale >= sourceRetired && d.cfg.Kernel.OnRetire == config.OnRetireReduce
}

// forgetDue says whether another basis is to be chosen since the one in use is stale.
// After a retirement that is at once. Values of keys are replaced all the time, and
// wait so that no more than one part in share of the time goes into rebuilding.
func (d *Daemon) forgetDue(now time.Time) bool {
	e, r := d.live.epoch, &d.rebuilding
	return d.mustGo() || e != nil && e.from.stale == sourceReplaced &&
		d.cfg.Kernel.OnRetire == config.OnRetireReduce && now.Sub(r.switched) >= share*r.took
}

// sayStale tells whoever reads the model that its basis is stale.
func (d *Daemon) sayStale() {
	last := d.published.Load()
	if b := last.served.Basis; b != nil && !b.Stale && d.isStale(b) {
		again := *last.served
		d.publish(&again, d.servedBy)
	}
}

// isStale says whether a basis is the one in use, and is stale.
func (d *Daemon) isStale(b *model.Basis) bool {
	e := d.live.epoch
	return e != nil && e.id == b.ID && e.from.stale != fresh
}
