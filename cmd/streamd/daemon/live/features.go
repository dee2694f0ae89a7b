package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/config"
	"streamd/incremental"
	"streamd/ingest/wire"
	"streamd/retire"
	"streamd/snapshot"
)

// restoreFeatures puts the features of a file into the configured order and returns their
// space. Without format.features they are ordered by name. The file's order may differ: it
// may come from format.features, or from a version that kept the order of the first block.
// Where no block is live, withdrawn or archived the features are free. Withdrawn and archived
// blocks alone do not keep other features from being wanted.
func restoreFeatures(store *snapshot.Store, saved *snapshot.Contents, cfg *config.Config, log zerolog.Logger) (*snapshot.SpaceContents, error) {
	wanted, space := Wanted(nil, cfg.Format), saved.Space(snapshot.Features)
	if space != nil && len(saved.Entries) == 0 {
		names := space.State.Features()
		placed := len(saved.Withdrawn)
		if cfg.Retire.Archive {
			placed += len(saved.Archived)
		}
		if placed == 0 || places(names, Wanted(names, cfg.Format)) == nil {
			space = nil
		}
	}
	if space == nil {
		space = &snapshot.SpaceContents{State: incremental.NewState(wanted)}
	}
	names := space.State.Features()
	if most := cfg.Limits.Features; len(names) > most { // otherwise no block could be used
		return nil, fmt.Errorf("limits.features is %d, but the snapshot was made with %d: set it back, or use another snapshot.file to begin anew",
			most, len(names))
	}
	wanted = Wanted(names, cfg.Format)
	if slices.Equal(names, wanted) {
		return space, nil
	}
	at := places(names, wanted)
	if at == nil {
		panic(fmt.Sprintf("live: a snapshot of the features %q for %q (see FormerFeatures)", names, wanted))
	}
	reordered, err := reorder(store, cfg.Model.Folds, saved, wanted, at)
	switch {
	case errors.Is(err, errWeighted) && len(cfg.Format.Features) == 0:
		log.Warn().Strs("features", names).AnErr("reason", err).
			Msg("features stay in the order that the snapshot has, which is not that of their names: a daemon that begins anew has another state digest")
		return space, nil
	case err != nil:
		return nil, fmt.Errorf("put the features into the order %q: %w", wanted, err)
	}
	log.Info().Strs("features", wanted).Int("blocks", len(saved.Entries)).
		Msg("features are put into another order; rows for the sample and for a basis are read from the log again")
	return reordered, nil
}

// Wanted names the features that a model with the given features should have. They are
// those of the schema, or of format.features. Without these they are the given ones except the
// ignored ones, ordered by name. A feature whose missing values are marked has its mark
// beside it.
func Wanted(names []string, format config.Format) []string {
	if format.Schema != nil {
		return format.Schema.Columns()
	}
	missing := model.MissingOf(format)
	if len(format.Features) > 0 {
		return missing.Columns(format.Features)
	}
	given := map[string]bool{}
	for _, name := range names {
		given[name] = true
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		of, marks := strings.CutSuffix(name, incremental.MissingName(""))
		return marks && given[of] || wire.Matches(format.Ignore, name)
	})
	names = missing.Columns(names)
	slices.SortFunc(names, incremental.CompareFeatures)
	return names
}

// FormerFeatures names the features of a snapshot whose live blocks must be read again
// because other features are wanted. It returns nil if none must.
func FormerFeatures(saved *snapshot.Contents, format config.Format) []string {
	was := saved.Features()
	if len(saved.Entries) == 0 || places(was, Wanted(was, format)) != nil {
		return nil
	}
	return was
}

// places returns the place in from of each wanted name. It is nil if the names differ.
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
// transaction. The digests of blocks then change, and with them the folds. Sample parts
// and bases are dropped, since their rows were chosen by the digests.
func reorder(store *snapshot.Store, folds int, saved *snapshot.Contents, features []string, at []int) (*snapshot.SpaceContents, error) {
	all := newSums(features, folds)
	c := snapshot.Change{Horizon: saved.Horizon, Counts: saved.Counts, SavedAt: saved.SavedAt}
	var put []snapshot.Summary
	err := store.Summaries(snapshot.Features, func(e retire.Entry, s *incremental.Summary) error {
		if s.Weighted() {
			return errWeighted
		}
		s = s.Select(at)
		all.of(s.LabelledDigest()).Add(s)
		c.Put = append(c.Put, snapshot.Block{Entry: e})
		put = append(put, snapshot.Summary{ID: e.ID, Summary: s})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, e := range saved.Archived {
		if e.Withdrawn {
			continue
		}
		s, err := store.Summary(snapshot.Features, e.ID)
		if err == nil && s.Weighted() {
			err = errWeighted
		}
		if err != nil {
			return nil, err
		}
		c.Archive = append(c.Archive, snapshot.Archived{Entry: e, Summary: s.Select(at)})
	}
	c.Spaces = []snapshot.SpaceChange{{Put: put, State: all.total(), Folds: all.perFold()}}
	if _, err := store.Save(c); err != nil {
		return nil, err
	}
	saved.Spaces, saved.InUse = nil, snapshot.Features
	return &snapshot.SpaceContents{State: all.total(), Folds: all.perFold()}, nil
}
