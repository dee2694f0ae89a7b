package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rs/zerolog"

	"streamd/config"
	"streamd/snapshot"
)

// HasSnapshot reports whether there is a snapshot for New to begin with.
func HasSnapshot(cfg *config.Config) (bool, error) {
	_, err := os.Stat(cfg.Snapshot.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// BeginWith makes the snapshot that New begins with from a copy, as GET /v1/snapshot answers it. It
// checks that the copy is whole, and of this topic and unit of blocks. With an error there is no
// snapshot, as before.
func BeginWith(copied io.Reader, cfg *config.Config, log zerolog.Logger) error {
	path := cfg.Snapshot.File
	key, err := SnapshotKey(cfg.Snapshot, log)
	if err != nil {
		return err
	}
	contents, err := key.Receive(path, copied, snapshot.Settings{Topic: cfg.Kafka.Topic, Unit: unit(cfg)})
	if err != nil {
		return fmt.Errorf("the copy cannot be used: %w", err)
	}
	log.Info().Str("file", path).Int("blocks", len(contents.Entries)).Time("saved", contents.SavedAt).Msg("begins with a copy of another daemon's snapshot")
	return nil
}
