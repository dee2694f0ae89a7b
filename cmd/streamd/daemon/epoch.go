package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/kernels"
	"streamd/kernels/basis"
	"streamd/retire"
	"streamd/snapshot"
)

// coordinates are those of a basis, as they are saved and reported. They are
// immutable; nil is the features.
type coordinates struct {
	*basis.Coordinates
	number uint32
	id     string // SHA-256 of the basis, hex
	made   *model.Reduction
	saved  snapshot.Epoch // all of it, as it is written down
}

func newCoordinates(number uint32, m *kernels.Map, made *model.Reduction, regulariser config.Regulariser) *coordinates {
	report, err := json.Marshal(made)
	if err != nil {
		panic(err) // finite numbers and texts
	}
	digest := m.Digest()
	return &coordinates{
		Coordinates: basis.New(m, regulariser == config.RegulariserKernel),
		number:      number, id: hex.EncodeToString(digest[:]), made: made,
		saved: snapshot.Epoch{Number: number, Basis: m.AppendBinary(nil), Report: report},
	}
}

// space is c without its name and its report.
func (c *coordinates) space() *basis.Coordinates {
	if c == nil {
		return nil
	}
	return c.Coordinates
}

// current is the coordinates that workers put blocks into, beside the features.
type current struct {
	use, next *coordinates // nil: none
}

// lifter puts blocks into coordinates and sums them up there. It belongs to one
// goroutine at a time.
type lifter struct {
	basis.Lifter
	summariser incremental.Summariser
}

// summary is that of b in the coordinates.
func (l *lifter) summary(ctx context.Context, b *incremental.Block, c *coordinates) (*incremental.Summary, error) {
	in, err := l.Block(ctx, b, c.space())
	if err != nil {
		return nil, err
	}
	s, err := l.summariser.SummariseContext(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("in the coordinates of the basis: %w", err)
	}
	return s, nil
}

// lifted is a block's summary in some coordinates.
type lifted struct {
	*coordinates
	summary *incremental.Summary
}

// lift summarises a block in both of the current coordinates. Rows that cannot be
// summed in those in use are an error. Rebuilding is not the block's affair: what
// cannot be summed in the coordinates to come is left out.
func (l *lifter) lift(ctx context.Context, b *incremental.Block, in *current) (out []lifted, err error) {
	for _, c := range []*coordinates{in.use, in.next} {
		if c == nil {
			continue
		}
		s, err := l.summary(ctx, b, c)
		switch {
		case err == nil:
			out = append(out, lifted{c, s})
		case c == in.use || ctx.Err() != nil:
			return nil, err
		}
	}
	return out, nil
}

// check says whether rows that are summed later, together with others, can be.
// Bounded kernels have no others.
func (l *lifter) check(ctx context.Context, b *incremental.Block, in *current) error {
	if in.use == nil || in.use.Map.Kernel().Radial() {
		return nil
	}
	mapped, err := l.Block(ctx, b, in.use.space())
	if err != nil {
		return err
	}
	if bad := mapped.FirstBadRow(); bad != nil {
		return fmt.Errorf("in the coordinates of the basis: %w", bad)
	}
	return nil
}

// epoch is the sums of live blocks in coordinates. It belongs to the loop.
//
// The features and their sums stay beside it, and always have every live block:
// a block's content is named by its summary of features, whatever the epoch, and
// what is read again is compared with it.
type epoch struct {
	*coordinates
	sums    sums
	put     map[string]*incremental.Summary // not saved yet
	bytes   int64                           // of these
	missing map[string]struct{}             // live blocks that it does not have; none of the one in use
	unread  map[string]unreadBlock          // those of them that the log does not give back
	from    *sources                        // of its basis
	inFile  bool                            // the epoch, and with it the sources
	began   time.Time
}

func newEpoch(c *coordinates, folds int, from *sources) *epoch {
	return &epoch{
		coordinates: c, sums: newSums(c.Names, folds), from: from,
		put: map[string]*incremental.Summary{}, missing: map[string]struct{}{}, unread: map[string]unreadBlock{}, began: time.Now(),
	}
}

// add takes in a live block that the epoch does not have.
func (e *epoch) add(id string, s *incremental.Summary, digest [32]byte) {
	e.sums.of(digest).Add(s)
	e.sums.window = e.sums.window.Union(s.Window())
	e.drop(id)
	e.put[id] = s
	e.bytes += int64(s.Bytes())
	delete(e.missing, id)
	delete(e.unread, id)
}

// drop notes that a block is not to be saved any more.
func (e *epoch) drop(id string) {
	if s := e.put[id]; s != nil {
		e.bytes -= int64(s.Bytes())
		delete(e.put, id)
	}
}

// remove takes out a block that is live no more.
func (e *epoch) remove(store *snapshot.Store, id string, digest [32]byte) error {
	if _, ok := e.missing[id]; ok {
		delete(e.missing, id)
		delete(e.unread, id)
		return nil
	}
	s := e.put[id]
	if s == nil {
		var err error
		if s, err = store.EpochSummary(e.number, id); err != nil {
			return err
		}
	}
	e.sums.of(digest).Remove(s)
	e.drop(id)
	return nil
}

// change is what has to be saved of the epoch.
func (e *epoch) change(l *liveSet) snapshot.EpochChange {
	c := snapshot.EpochChange{Epoch: e.saved, Stale: uint8(e.from.stale), State: e.sums.total(), Folds: e.sums.takeMoved()}
	if e.inFile { // the file forgets that a block was a source when it is put again
		for id := range l.put {
			if _, ok := e.from.blocks[id]; ok {
				c.Sources = append(c.Sources, id)
			}
		}
	} else {
		for id := range e.from.blocks {
			if _, live := l.ledger.Get(id); live {
				c.Sources = append(c.Sources, id)
			}
		}
	}
	for id, s := range e.put {
		c.Put = append(c.Put, snapshot.EpochSummary{ID: id, Summary: s})
	}
	return c
}

// isSaved says that the change has been saved.
func (e *epoch) isSaved(c *snapshot.EpochChange) {
	e.inFile = true
	for _, p := range c.Put {
		if e.put[p.ID] == p.Summary {
			e.drop(p.ID)
		}
	}
}

// restoreEpochs takes up the epochs of a file, but for those that the
// configuration has no use for: all, or a rebuild for another kernel. Where features
// are free there is none.
func (l *liveSet) restoreEpochs(saved *snapshot.Contents, wanted *config.Config) error {
	for i := range saved.Epochs {
		s := &saved.Epochs[i]
		l.lastEpoch = max(l.lastEpoch, s.Number)
		basis, err := kernels.DecodeMap(s.Basis)
		made := new(model.Reduction)
		if err == nil {
			err = json.Unmarshal(s.Report, made)
		}
		if err != nil {
			return fmt.Errorf("epoch %d: %w", s.Number, err)
		}
		inUse := s.Number == saved.Epoch
		if wanted.Kernel.Function == config.KernelNone || !inUse && !fits(basis, wanted) || l.features.Load() == nil {
			l.epochsMoved = true
			l.leave(&epoch{from: &sources{stale: staleness(s.Stale)}})
			continue
		}
		from := &sources{blocks: make(map[string]struct{}, len(s.Sources)), stale: staleness(s.Stale)}
		for _, id := range s.Sources {
			from.blocks[id] = struct{}{}
		}
		e := newEpoch(newCoordinates(s.Number, basis, made, wanted.Kernel.Regulariser), 0, from)
		e.inFile = true
		var whole bool
		e.sums, whole = restoredSums(s.State, s.Folds, l.sums.folds)
		has := make(map[string]bool, len(s.Blocks))
		for _, id := range s.Blocks {
			has[id] = true
		}
		for _, entry := range saved.Entries {
			if !has[entry.ID] {
				e.missing[entry.ID] = struct{}{}
			}
		}
		if !whole {
			l.epochsMoved = true
			for _, id := range s.Blocks {
				block, err := l.store.Summary(id)
				if err != nil {
					return err
				}
				s, err := l.store.EpochSummary(e.number, id)
				if err != nil {
					return err
				}
				e.sums.of(block.Digest()).Add(s)
			}
			e.sums.measure()
		}
		if inUse {
			l.epoch = e
		} else {
			l.next = e
		}
	}
	l.tellWorkers()
	return nil
}

// fits says whether a basis is one that the configuration asks for.
func fits(basis *kernels.Map, wanted *config.Config) bool {
	kernel, auto := wanted.Kernel.Function.Kernel()
	mean, _ := basis.Scaling()
	return (basis.Kernel() == kernel || auto && basis.Kernel().Radial()) &&
		basis.Points() <= wanted.Kernel.Basis && (mean != nil) == (wanted.Model.Standardise == config.SwitchOn)
}

// epochs lists the one in use and the one that is being built.
func (l *liveSet) epochs() (all []*epoch) {
	for _, e := range []*epoch{l.epoch, l.next} {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

// served are the sums that planes are read off: in the coordinates in use.
func (l *liveSet) served() *sums {
	if l.epoch != nil {
		return &l.epoch.sums
	}
	return &l.sums
}

// coordinates are those in use; nil: the features.
func (l *liveSet) coordinates() *coordinates {
	if l.epoch != nil {
		return l.epoch.coordinates
	}
	return nil
}

// tellWorkers says what blocks are to be put into from now on.
func (l *liveSet) tellWorkers() {
	c := &current{use: l.coordinates()}
	if l.next != nil {
		c.next = l.next.coordinates
	}
	l.current.Store(c)
}

// covers says whether a block can be added that has been put into these
// coordinates: those in use have to be among them.
func (l *liveSet) covers(in []lifted) bool {
	c := l.coordinates()
	return c == nil || slices.ContainsFunc(in, func(z lifted) bool { return z.coordinates == c })
}

// begin starts to build an epoch, in the place of one that is not complete. Its basis is
// the one that was being chosen.
func (l *liveSet) begin(basis *kernels.Map, made *model.Reduction, regulariser config.Regulariser) {
	l.lastEpoch++
	l.leave(l.next)
	l.next = newEpoch(newCoordinates(l.lastEpoch, basis, made, regulariser), l.sums.folds, l.choosing)
	l.next.sums.most = l.sums.most
	for _, e := range l.ledger.Page(retire.Lowest, math.MaxInt) {
		l.next.missing[e.ID] = struct{}{}
	}
	l.epochsMoved = true
	l.tellWorkers()
}

// abandon gives up the epoch that is being built.
func (l *liveSet) abandon() {
	l.leave(l.next)
	l.next, l.epochsMoved = nil, true
	l.tellWorkers()
}

// dropEpochs goes back to the features.
func (l *liveSet) dropEpochs() {
	l.leave(l.epoch)
	l.leave(l.next)
	l.epoch, l.next, l.choosing, l.epochsMoved = nil, nil, nil, true
	l.tellWorkers()
}

// leave notes that an epoch goes, if there is one: a stale basis leaves remains in the
// file as a block does.
func (l *liveSet) leave(e *epoch) {
	if e != nil && e.from.stale >= sourceRetired {
		l.staleBases++
		l.leaveRemains()
	}
}

// switchEpoch puts the epoch that has been built in the place of the one in use.
func (l *liveSet) switchEpoch() {
	if len(l.next.missing) > 0 {
		panic("daemon: a switch to an epoch that lacks blocks")
	}
	l.leave(l.epoch)
	l.epoch, l.next, l.epochsMoved = l.next, nil, true
	l.tellWorkers()
}
