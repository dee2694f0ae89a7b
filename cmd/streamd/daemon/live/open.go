package live

import (
	"fmt"
	"math"
	"slices"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/memory"
	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/kernels"
	"streamd/retire"
	"streamd/snapshot"
)

// Open restores the state of a store. A policy stricter than the saved one retires blocks
// here. If the number of folds has changed, they are summed again from the summaries. The
// log names the parts that are rebuilt.
func Open(store *snapshot.Store, saved *snapshot.Contents, cfg *config.Config, budget *memory.Budget, log zerolog.Logger) (l *Set, retired int, err error) {
	former := saved.Features()
	features, err := restoreFeatures(store, saved, cfg, log)
	if err != nil {
		return nil, 0, err
	}
	kept := places(former, features.State.Features()) != nil
	if len(features.Folds) != cfg.Model.Folds && len(saved.Entries) > 0 {
		log.Info().Int("saved", len(features.Folds)).Int("folds", cfg.Model.Folds).Int("blocks", len(saved.Entries)).
			Msg("summing the folds of the live blocks again")
	}
	l = New(store, cfg, budget)
	l.uncompacted, l.receipts.begins = saved.Uncompacted, saved.Log.Size == 0
	if names := features.State.Features(); len(names) > 0 {
		l.features.names = &names
	}
	if _, err := l.restoreSums(l.features, features); err != nil {
		return nil, 0, err
	}
	if err := l.restoreBases(saved, cfg); err != nil {
		return nil, 0, err
	}
	archived := l.archivedOf(saved, cfg.Retire.Archive, kept, log)
	out, err := l.ledger.Restore(saved.Horizon, saved.Entries, saved.Withdrawn, archived)
	if err != nil {
		return nil, 0, err
	}
	if err := l.sumPartitions(saved.Entries); err != nil {
		return nil, 0, err
	}
	for _, e := range out {
		if e.Withdrawn && (e.Archived || !l.ledger.HasArchive()) {
			l.receipts.unplaced = append(l.receipts.unplaced, e)
		}
	}
	out = slices.DeleteFunc(out, func(e retire.Entry) bool {
		if e.Archived { // there is less memory than before
			l.gone.put(e.ID, struct{}{})
			l.overflowed++
		}
		return e.Archived
	})
	if len(out) > 0 {
		l.receipts.file = l.features.sums.totalDigest()
	}
	for i := range out {
		if err := l.letGo(&out[i], 1); err != nil {
			return nil, 0, err
		}
	}
	if s := cfg.Sample; s.Rows > 0 {
		l.sample = sample.New(sample.Settings{Rows: s.Rows, Seed: uint64(s.Seed), Balanced: s.Balanced}, l.ledger.IDs)
		if len(out) > 0 {
			saved.Entries = slices.DeleteFunc(saved.Entries, func(e retire.Entry) bool {
				_, live := l.ledger.Get(e.ID)
				return !live
			})
		}
		if err := l.sample.Restore(func(yield func(string, *sample.Part)) error { return eachPart(store, saved.Entries, yield) }); err != nil {
			return nil, 0, err
		}
	}
	l.retarget()
	if needs, room := l.Price(), budget.Room(); needs > room && l.ledger.Len() > 0 {
		return nil, 0, fmt.Errorf("limits.memory is %s, of which %s are for the live set, but that of the snapshot takes %s: raise it, or lower model.folds or sample.rows, or use another snapshot.file to begin anew",
			memory.Size(float64(budget.Limit)), memory.Size(room), memory.Size(needs))
	}
	for _, e := range out {
		if !e.Withdrawn {
			retired++
		}
	}
	return l, retired, nil
}

// New makes an empty live set without features and without an archive. The store may be nil as
// long as nothing is saved.
func New(store *snapshot.Store, cfg *config.Config, budget *memory.Budget) *Set {
	l := &Set{
		store:      store,
		ledger:     retire.NewLedger(retire.Policy{Blocks: cfg.Retire.Blocks, Rows: cfg.Retire.Rows, Age: cfg.Retire.Age}),
		keyed:      cfg.Blocks.Unit == config.UnitKey,
		budget:     budget,
		maxClasses: cfg.Limits.Classes,
		features:   newSpace(nil, nil, cfg.Model.Folds, nil),
		due:        map[string]struct{}{},
		progress:   newProgress(cfg.Drift.Every),
		fading:     fading{half: HalfLife(cfg)},
		departing:  departing{most: math.MaxInt, blocks: map[string]*leaver{}},
		unsaved:    newUnsaved(),
	}
	l.inUse = l.features
	l.retarget()
	return l
}

// eachPart yields the part of each block, or nil where the store has none. Entries and the
// store's parts are ordered by id.
func eachPart(store *snapshot.Store, entries []retire.Entry, yield func(string, *sample.Part)) error {
	rest := entries
	err := store.Parts(func(id string, p *sample.Part) {
		for ; len(rest) > 0 && rest[0].ID < id; rest = rest[1:] {
			yield(rest[0].ID, nil)
		}
		if len(rest) > 0 && rest[0].ID == id {
			yield(rest[0].ID, p)
			rest = rest[1:]
		}
	})
	for _, e := range rest {
		yield(e.ID, nil)
	}
	return err
}

// restoreBases restores the bases of a file. It drops those that the configuration has no
// use for: all, or the next one if its kernel is another. Where features are free there
// are none.
func (l *Set) restoreBases(saved *snapshot.Contents, wanted *config.Config) error {
	for i := range saved.Spaces {
		s := &saved.Spaces[i]
		if s.Number == snapshot.Features {
			continue
		}
		l.lastSpace = max(l.lastSpace, s.Number)
		basis, err := kernels.DecodeMap(s.Basis)
		var made *model.Reduction
		if err == nil {
			made, err = reductionOf(s.Report)
		}
		if err != nil {
			return fmt.Errorf("epoch %d: %w", s.Number, err)
		}
		from := &sources{blocks: make(map[string]struct{}, len(s.Sources)), stale: Staleness(s.Stale)}
		inUse := s.Number == saved.InUse
		if wanted.Kernel.Function == config.KernelNone || !inUse && !Fits(basis, wanted) || l.features.names == nil {
			l.moved = true
			l.leave(&Space{from: from})
			continue
		}
		for _, id := range s.Sources {
			from.blocks[id] = struct{}{}
		}
		c := newCoordinates(s.Number, basis, made, wanted.Kernel.Regulariser)
		p := newSpace(c, c.Names, 0, from)
		p.inFile = true
		whole, err := l.restoreSums(p, s)
		if err != nil {
			return err
		}
		l.moved = l.moved || !whole
		for _, id := range s.Missing {
			p.missing[id] = struct{}{}
		}
		if inUse {
			l.inUse = p
		} else {
			l.next = p
		}
	}
	return nil
}

// restoreSums restores the sums of a space. If the folds have changed it sums the blocks
// again, and the file's sums are not whole.
func (l *Set) restoreSums(p *Space, saved *snapshot.SpaceContents) (whole bool, err error) {
	if p.sums, whole = restoredSums(saved.State, saved.Folds, l.features.sums.folds); whole {
		return true, nil
	}
	err = l.store.Summaries(p.space().Number, func(e retire.Entry, s *incremental.Summary) (err error) {
		block := s // in the features
		if p != l.features {
			if block, err = l.store.Summary(snapshot.Features, e.ID); err != nil {
				return err
			}
		}
		p.sums.of(block.LabelledDigest()).Add(s)
		return nil
	})
	p.sums.measure()
	return false, err
}
