package live

import (
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/retire"
	"streamd/snapshot"
)

// Coordinates are those of a basis, in saved and reported form. They are immutable. Nil
// coordinates are the features.
type Coordinates struct {
	*basis.Coordinates
	Number    uint32
	ID        string           // SHA-256 of the basis, in hex
	Reduction *model.Reduction // how the basis was chosen
	saved     snapshot.Space   // the snapshot's record
}

func newCoordinates(number uint32, m *kernels.Map, made *model.Reduction, regulariser config.Regulariser) *Coordinates {
	digest := m.Digest()
	return &Coordinates{
		Coordinates: basis.New(m, regulariser == config.RegulariserKernel),
		Number:      number, ID: hex.EncodeToString(digest[:]), Reduction: made,
		saved: snapshot.Space{Number: number, Basis: m.AppendBinary(nil), Report: reportOf(made)},
	}
}

// space is the snapshot's record of the coordinates.
func (c *Coordinates) space() snapshot.Space {
	if c == nil {
		return snapshot.Space{Number: snapshot.Features}
	}
	return c.saved
}

// Size is the number of coordinates.
func (c *Coordinates) Size() int { return len(c.Names) }

// plain is c without name and report.
func (c *Coordinates) plain() *basis.Coordinates {
	if c == nil {
		return nil
	}
	return c.Coordinates
}

// Moments are the moments of sums in the coordinates, with their regulariser.
func (c *Coordinates) Moments(s *incremental.State) *incremental.Moments {
	return c.plain().Moments(s)
}

// Space is the sums of live blocks in coordinates. It belongs to the set's goroutine.
type Space struct {
	*Coordinates           // nil means the features
	names        *[]string // of the features, once fixed; its identity identifies the feature space
	sums         sums
	put          backlog[*incremental.Summary] // not saved yet
	missing      map[string]struct{}           // live blocks that the space lacks; empty for a space in use
	unread       map[string]Unread             // missing blocks that the log does not return
	from         *sources                      // of the basis
	inFile       bool                          // the snapshot has the space, and with it the sources
	began        time.Time
}

// An Unread block is live, but cannot be read again unchanged.
type Unread struct {
	retire.Entry
	Reason error
}

func newSpace(c *Coordinates, names []string, folds int, from *sources) *Space {
	if from == nil {
		from = new(sources)
	}
	return &Space{
		Coordinates: c, sums: newSums(names, folds), from: from,
		put: backlog[*incremental.Summary]{size: (*incremental.Summary).Bytes}, missing: map[string]struct{}{}, unread: map[string]Unread{}, began: time.Now(),
	}
}

// Names are the names of the coordinates.
func (p *Space) Names() []string { return p.sums.features }

// Total is the sum of all blocks. It is valid until a block is added or removed.
func (p *Space) Total() *incremental.State { return p.sums.total() }

// PerFold are the sums of the folds, if any. They are valid as long as Total is.
func (p *Space) PerFold() []*incremental.State { return p.sums.perFold() }

// Folds is the number of folds.
func (p *Space) Folds() int { return p.sums.folds }

// Rows is the number of rows in the sums.
func (p *Space) Rows() int64 { return p.sums.rows() }

// Digest is the digest of the sums, in hex.
func (p *Space) Digest() string {
	digest := p.sums.totalDigest()
	return hex.EncodeToString(digest[:])
}

// Began is the time when this process began to build the space.
func (p *Space) Began() time.Time { return p.began }

// Stale is the worst that has happened to a source of the basis.
func (p *Space) Stale() Staleness { return p.from.stale }

// Missing is the number of live blocks that the space lacks.
func (p *Space) Missing() int { return len(p.missing) }

// MissingIDs lists the live blocks that the space lacks, sorted.
func (p *Space) MissingIDs() []string { return slices.Sorted(maps.Keys(p.missing)) }

// Lacks reports whether a live block is missing.
func (p *Space) Lacks(id string) bool { _, ok := p.missing[id]; return ok }

// Wants reports whether a missing block must still be read again.
func (p *Space) Wants(id string) bool { _, unread := p.unread[id]; return p.Lacks(id) && !unread }

// Unread lists the missing blocks that the log does not return, by id.
func (p *Space) Unread() (all []Unread) {
	for _, id := range slices.Sorted(maps.Keys(p.unread)) {
		all = append(all, p.unread[id])
	}
	return all
}

// Waits reports whether blocks are missing and all of them are unread.
func (p *Space) Waits() bool { return len(p.missing) > 0 && len(p.missing) == len(p.unread) }

// View is the rows of a sample in the coordinates.
func (c *Coordinates) View(v *sample.View) *sample.View {
	if c == nil {
		return v
	}
	in := *v
	in.Block = new(Keeper).mustBlock(v.Block, c)
	return &in
}

// add adds a live block that the space lacks.
func (p *Space) add(id string, s *incremental.Summary, digest [32]byte) {
	p.sums.of(digest).Add(s)
	p.sums.window = p.sums.window.Union(s.Window())
	p.put.put(id, s)
	delete(p.missing, id)
	delete(p.unread, id)
}

// summary is the summary of a live block, or nil if the space lacks it.
func (p *Space) summary(store *snapshot.Store, id string) (*incremental.Summary, error) {
	if p.Lacks(id) {
		return nil, nil
	}
	if s, ok := p.put.get(id); ok {
		return s, nil
	}
	return store.Summary(p.space().Number, id)
}

// remove subtracts a block that is no longer in the ledger. The summary is nil if the space
// lacks it.
func (p *Space) remove(id string, s *incremental.Summary, digest [32]byte) {
	delete(p.missing, id)
	delete(p.unread, id)
	if s != nil {
		p.sums.of(digest).Remove(s)
		p.put.drop(id)
	}
}
