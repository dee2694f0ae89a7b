package saving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/httpapi"
	"streamd/snapshot"
)

// Snapshot implements httpapi.Service.
func (s *Saver) Snapshot(ctx context.Context, compact bool) (httpapi.SnapshotInfo, error) {
	type compacted struct {
		info snapshot.SaveInfo
		err  error
	}
	done := make(chan compacted, 1)
	saved, err := loop.Change(ctx, s.Loop, func() (httpapi.SnapshotInfo, error) {
		if err := s.Flush(); err != nil { // so that the snapshot has everything read so far
			return httpapi.SnapshotInfo{}, err
		}
		if s.Save() != nil {
			return httpapi.SnapshotInfo{}, fmt.Errorf("the snapshot could not be saved (see the log): %w", httpapi.ErrUnavailable)
		}
		if compact {
			s.beginCompaction(time.Now(), func(info snapshot.SaveInfo, err error) { done <- compacted{info, err} })
		}
		return s.info, nil
	})
	if err != nil || !compact {
		return saved, err
	}
	select {
	case c := <-done:
		if c.err != nil {
			return saved, fmt.Errorf("the snapshot was saved but could not be compacted (see the log): %w", httpapi.ErrUnavailable)
		}
		saved.Bytes, saved.Compacted = c.info.FileBytes, true
		return saved, nil
	case <-s.LoopDone:
		return saved, s.Ended()
	case <-ctx.Done(): // the compaction continues
		return saved, context.Cause(ctx)
	}
}

// CopySnapshot implements httpapi.Service.
func (s *Saver) CopySnapshot(ctx context.Context, receipts bool) (copied io.ReadCloser, bytes int64, err error) {
	if !s.copying.TryLock() {
		return nil, 0, fmt.Errorf("copy the snapshot: %w", httpapi.ErrBusy)
	}
	defer func() {
		if err != nil {
			s.copying.Unlock()
		}
	}()
	if _, err := s.Snapshot(ctx, false); err != nil {
		return nil, 0, err
	}
	// A stop does not wait for a copy.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.Stopping:
			cancel(loop.ErrStopping)
		case <-ended:
		}
	}()
	path := snapshot.Copying(s.Config.Snapshot.File)
	if err := s.Store.Copy(ctx, path, receipts); err != nil {
		return nil, 0, cmp.Or(context.Cause(ctx), err)
	}
	file, err := os.Open(path)
	os.Remove(path) // so that nothing is left after a crash
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return &snapshotCopy{file, path, sync.OnceFunc(s.copying.Unlock)}, info.Size(), nil
}

// snapshotCopy is a copy of the snapshot, which is gone after Close.
type snapshotCopy struct {
	*os.File
	path  string
	ended func()
}

// Close ends the copy.
func (c *snapshotCopy) Close() error {
	err := c.File.Close()
	os.Remove(c.path) // where an open file has kept its name
	c.ended()
	return err
}
