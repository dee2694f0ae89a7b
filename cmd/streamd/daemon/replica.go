package daemon

import (
	"cmp"
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
func BeginWith(copied io.Reader, cfg *config.Config, log zerolog.Logger) (err error) {
	path, temporary := cfg.Snapshot.File, snapshot.Copying(cfg.Snapshot.File)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary)
		}
	}()
	_, err = io.Copy(f, copied)
	if err := cmp.Or(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	key, err := SnapshotKey(cfg.Snapshot, log)
	if err != nil {
		return err
	}
	contents, err := key.Check(temporary, snapshot.Settings{Topic: cfg.Kafka.Topic, Unit: unit(cfg.Blocks)})
	if err != nil {
		return fmt.Errorf("the copy cannot be used: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	log.Info().Str("file", path).Int("blocks", len(contents.Entries)).Time("saved", contents.SavedAt).
		Msg("begins with a copy of another daemon's snapshot")
	return nil
}
