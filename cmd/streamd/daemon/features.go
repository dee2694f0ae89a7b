package daemon

import (
	"errors"
	"fmt"
	"slices"

	"streamd/incremental"
	"streamd/retire"
	"streamd/snapshot"
)

// restoreFeatures makes the features of a file those of the configuration. Without
// format.features they are in the order of their names, which the file's need not be:
// it may have been made with format.features, or by a program that kept the order of
// the first block. Where no block is live they are free.
func (d *Daemon) restoreFeatures(saved *snapshot.Contents) error {
	wanted := d.cfg.Format.Features
	switch {
	case len(wanted) > 0 && saved.Features == nil:
		saved.Features, saved.State = wanted, incremental.NewState(wanted)
	case len(wanted) == 0 && len(saved.Entries) == 0:
		saved.Features, saved.State, saved.Folds = nil, nil, nil
	}
	if saved.State == nil {
		saved.State = incremental.NewState(nil)
	}
	if most := d.cfg.Limits.Features; len(saved.Features) > most { // else no block could be used
		return fmt.Errorf("limits.features is %d, but the snapshot was made with %d: set it back, or use another snapshot.file to begin anew",
			most, len(saved.Features))
	}
	if len(wanted) == 0 {
		wanted = slices.SortedFunc(slices.Values(saved.Features), incremental.CompareFeatures)
	}
	if slices.Equal(saved.Features, wanted) {
		return nil
	}
	at := places(saved.Features, wanted)
	if at == nil {
		return fmt.Errorf("format.features is %q, but the snapshot was made with %q: use another snapshot.file to begin anew", wanted, saved.Features)
	}
	switch err := d.reorder(saved, wanted, at); {
	case errors.Is(err, errWeighted) && len(d.cfg.Format.Features) == 0:
		d.log.Warn().Strs("features", saved.Features).AnErr("reason", err).
			Msg("features stay in the order that the snapshot has, which is not that of their names: a daemon that begins anew has another state digest")
		return nil
	case err != nil:
		return fmt.Errorf("put the features into the order %q: %w", wanted, err)
	}
	d.log.Info().Strs("features", wanted).Int("blocks", len(saved.Entries)).
		Msg("features are put into another order; rows for the sample and for a basis are read from the log again")
	return nil
}

// listedFeatures bounds the names that a line of the log has.
const listedFeatures = 20

// fixFeatures makes the features of the first usable block those of the model.
func (d *Daemon) fixFeatures(z result) {
	if d.live.features.Load() == nil {
		d.live.fix(z.features)
		d.sampled.Warn().Int("count", len(z.features)).Strs("features", z.features[:min(len(z.features), listedFeatures)]).
			Msg("format.features is not set: the features are those of the first block, and records with others are refused while a block is live")
	}
}

// freeFeatures lets the next block say what the features are, where no block is live
// and no rows are in hand: what is gone binds nobody. Studies and a basis are of rows
// that are gone.
func (d *Daemon) freeFeatures() {
	if d.live.ledger.Len() > 0 || len(d.cfg.Format.Features) > 0 || d.live.features.Load() == nil {
		return
	}
	for _, p := range d.partitions {
		if p.open != nil && p.open.rows.len() > 0 {
			return
		}
	}
	d.live.free()
	if r := &d.rebuilding; r.reducing != nil {
		r.reducing.end()
		r.reducing = nil
	}
	d.endReading()
	d.inOtherCoordinates()
	d.sampled.Info().Msg("no block is live: the next one decides which features the model has")
}

// places gives the place in from of each of the wanted names. Nil: they are not the same
// names.
func places(from, wanted []string) []int {
	place := make(map[string]int, len(from))
	for i, name := range from {
		place[name] = i
	}
	at := make([]int, len(wanted))
	for j, name := range wanted {
		i, ok := place[name]
		if !ok || len(from) != len(wanted) {
			return nil
		}
		at[j] = i
	}
	return at
}

var errWeighted = errors.New("rows have weights, so that their sums cannot be put into another order bit for bit")

// reorder puts the summaries of a file into another order of the features, in one
// transaction. Contents of blocks have other digests then, so that folds are others.
// Parts of the sample and epochs go, since rows are chosen by the digests.
func (d *Daemon) reorder(saved *snapshot.Contents, features []string, at []int) error {
	all := newSums(features, d.cfg.Model.Folds)
	c := snapshot.Change{Horizon: saved.Horizon, Counts: saved.Counts, SavedAt: saved.SavedAt}
	err := d.store.Summaries(func(e retire.Entry, s *incremental.Summary) error {
		if s.Weighted() {
			return errWeighted
		}
		s = s.Permute(at)
		all.of(s.Digest()).Add(s)
		c.Put = append(c.Put, snapshot.Block{Entry: e, Summary: s})
		return nil
	})
	if err != nil {
		return err
	}
	c.State, c.Folds = all.total(), all.perFold()
	if _, err := d.store.Save(c); err != nil {
		return err
	}
	saved.Features, saved.State, saved.Folds = features, c.State, c.Folds
	saved.Epochs, saved.Epoch = nil, 0
	return nil
}
