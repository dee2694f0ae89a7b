package saving

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rs/zerolog"

	"streamd/cmd/streamd/daemon/settings"
	"streamd/config"
	"streamd/snapshot"
)

// Open opens the snapshot. Where there is none and copied is not nil, it is made of a copy of
// another one, which has to be whole, and of this topic and unit of blocks; otherwise there is
// none, as before.
func Open(cfg *config.Config, log zerolog.Logger, copied func() (io.ReadCloser, error)) (*snapshot.Store, *snapshot.Contents, error) {
	path, of := cfg.Snapshot.File, snapshot.Settings{Topic: cfg.Kafka.Topic, Unit: settings.Unit(cfg)}
	key, err := settings.SnapshotKey(cfg.Snapshot, log)
	if err != nil {
		return nil, nil, err
	}
	if copied == nil {
		return key.Open(path, of)
	}
	if _, err := os.Stat(path); err == nil {
		log.Info().Str("file", path).Msg("there is a snapshot, so no copy of another one is asked for")
		return key.Open(path, of)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	content, err := copied()
	if err != nil {
		return nil, nil, err
	}
	defer content.Close()
	store, contents, err := key.Receive(path, content, of)
	if err != nil {
		return nil, nil, fmt.Errorf("the copy cannot be used: %w", err)
	}
	log.Info().Str("file", path).Int("blocks", len(contents.Entries)).Time("saved", contents.SavedAt).
		Msg("begins with a copy of another daemon's snapshot")
	return store, contents, nil
}
