package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/retire/receipt"
)

// Beside a snapshot NAME with receipts lies the file NAME.checkpoint. It has the signed checkpoint
// of the log of receipts after the last save that has added some. When the snapshot is lost or
// replaced by an older copy, its log lacks leaves that were handed out, and would go on with
// others in their places.

// CheckpointPath is the file beside a snapshot that has its checkpoint.
func CheckpointPath(path string) string { return path + ".checkpoint" }

// mostCheckpoint bounds the file in bytes.
const mostCheckpoint = 64 << 10

// A ForkError says that the log of receipts lacks leaves that were saved under this name.
type ForkError struct {
	Path      string // of the checkpoint
	Size      int64  // leaves in the snapshot
	Published int64  // leaves in the checkpoint
}

func (e *ForkError) Error() string {
	const wayOut = "; put the latest snapshot back, or with a new snapshot move receipts.key_file and its public half (.pub) away, too, and another log begins: keep the public half, since the receipts so far are checked with it; to go on with a log that auditors and witnesses will find forked, remove %s"
	if e.Published > e.Size {
		return fmt.Sprintf("the log of receipts has %d leaves, and had %d: the snapshot is an older copy, or new"+wayOut, e.Size, e.Published, e.Path)
	}
	return fmt.Sprintf("the first %d leaves of the log of receipts are not those that it had: the snapshot is a copy that went another way"+wayOut, e.Published, e.Path)
}

// CheckLog compares the log of receipts with the checkpoint beside the file, if that is one of the
// same log, and updates the latter. public is the public key of the log. The error is a *ForkError
// if the log lacks leaves.
func (s *Store) CheckLog(public string) error {
	path := CheckpointPath(s.path)
	kept, err := readCheckpoint(path)
	if err != nil {
		return err
	}
	head, err := s.LogHead()
	if err != nil {
		return err
	}
	if name, _, _ := bytes.Cut([]byte(public), []byte("+")); bytes.HasPrefix(kept, append(name, '\n')) { // else another log's, or none
		c, err := receipt.OpenCheckpoint(kept, public)
		if err != nil {
			return fmt.Errorf("%s: %w (it tells whether the snapshot is older than the last receipt; remove it if you know that it is not)", path, err)
		}
		if c.Size > head.Size {
			return &ForkError{path, head.Size, c.Size}
		}
		root, err := tlog.TreeHash(c.Size, s)
		if err != nil {
			return err
		}
		if root != c.Root {
			return &ForkError{path, head.Size, c.Size}
		}
	}
	s.kept, s.checkpoint = kept, head.Checkpoint
	return s.keepCheckpoint()
}

// readCheckpoint returns nil if there is no such file.
func readCheckpoint(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostCheckpoint))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// keepCheckpoint updates the file beside the snapshot, if there is a checkpoint. After a failure
// the next save does it.
func (s *Store) keepCheckpoint() error {
	if s.checkpoint == nil || bytes.Equal(s.checkpoint, s.kept) {
		return nil
	}
	if err := replaceFile(CheckpointPath(s.path), s.checkpoint); err != nil {
		return err
	}
	s.kept = s.checkpoint
	return nil
}
