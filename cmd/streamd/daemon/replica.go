package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"streamd/snapshot"
)

// openSnapshot opens the snapshot. Where there is none it is made of a copy (Options.Copy), which
// has to be whole, and of this topic and unit of blocks; otherwise there is none, as before.
func openSnapshot(o *Options) (*snapshot.Store, *snapshot.Contents, error) {
	path, settings := o.Config.Snapshot.File, snapshot.Settings{Topic: o.Config.Kafka.Topic, Unit: unit(o.Config)}
	key, err := SnapshotKey(o.Config.Snapshot, o.Log)
	if err != nil {
		return nil, nil, err
	}
	if o.Copy == nil {
		return key.Open(path, settings)
	}
	if _, err := os.Stat(path); err == nil {
		o.Log.Info().Str("file", path).Msg("there is a snapshot, so no copy of another one is asked for")
		return key.Open(path, settings)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	copied, err := o.Copy()
	if err != nil {
		return nil, nil, err
	}
	defer copied.Close()
	store, contents, err := key.Receive(path, copied, settings)
	if err != nil {
		return nil, nil, fmt.Errorf("the copy cannot be used: %w", err)
	}
	o.Log.Info().Str("file", path).Int("blocks", len(contents.Entries)).Time("saved", contents.SavedAt).
		Msg("begins with a copy of another daemon's snapshot")
	return store, contents, nil
}
