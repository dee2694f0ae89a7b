package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// compactBytes is how much is copied in one transaction, which is in memory.
const compactBytes = 16 << 20

// compacting is the name under which the file that replaces a snapshot is made.
func compacting(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".compact")
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Compact replaces the file by one that has the live values and nothing else. Values that
// were deleted or replaced stay in free pages until these are used again. Compact returns
// when the new file is on the disk under the name of the old one. After a crash or an
// error one of the two has the name, whole. The blocks of the disk that the old file had
// belong to the file system, and are out of reach.
//
// Saves wait until Compact has ended. Reading goes on. Compact needs room on the disk for
// the live values, and a few times compactBytes of memory, or of the largest value. When
// ctx ends, the file stays as it was.
func (s *Store) Compact(ctx context.Context) (SaveInfo, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	info, err := s.compact(ctx)
	if err != nil {
		return SaveInfo{}, fmt.Errorf("compact snapshot %s: %w", s.path, err)
	}
	s.forget()
	return info, nil
}

// Compact compacts a file that no process has open, and brings it up to date.
func (k *Key) Compact(ctx context.Context, path string) (info SaveInfo, err error) {
	s, _, err := k.open(path, false)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Compact(ctx)
}

func (s *Store) compact(ctx context.Context) (info SaveInfo, err error) {
	if err := checkName(s.path, s.data); err != nil {
		return info, err
	}
	temporary := compacting(s.target)
	next, err := s.copyTo(ctx, temporary)
	if err == nil {
		if err = os.Rename(temporary, s.target); err != nil {
			next.Close()
		}
	}
	if err != nil {
		os.Remove(temporary)
		return info, err
	}
	// From here on the new file is the snapshot, which nobody else could lock before it
	// had the name.
	s.swap.Lock()
	old := s.db
	s.db, s.data, s.file, s.sum = next.db, next.data, next.file, next.sum
	s.swap.Unlock()
	s.failed = false
	err = cmp.Or(old.Close(), syncFolder(filepath.Dir(s.target)))
	if err != nil { // the disk may still have the old file under the name
		s.failed, s.failedSum = true, s.sum
		return info, err
	}
	file, err := s.data.Stat()
	if err != nil {
		return info, err
	}
	return SaveInfo{Bytes: file.Size(), FileBytes: file.Size()}, nil
}

// copyTo makes a file of the live values, with the mode and the owner of the one that
// it is to replace, and returns when it is on the disk.
func (s *Store) copyTo(ctx context.Context, temporary string) (next *Store, err error) {
	if err := removeIfThere(temporary); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := s.data.Stat()
	if err == nil {
		err = keepOwner(f, info)
	}
	if err := cmp.Or(err, f.Close()); err != nil {
		return nil, err
	}
	db, file, err := openBolt(temporary, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	db.NoSync = true
	if err := s.view(func(tx *bbolt.Tx) error { return copyValues(ctx, db, tx) }); err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	next = &Store{db: db, data: file, path: temporary, key: s.key, sum: s.sum, file: idOf(info)}
	if err := next.update(func(w *writer) error { return w.compacted(s.file, next.file) }); err != nil {
		return nil, err
	}
	// Copying in several transactions has left free pages, which have had live values.
	err = guard(func() error {
		return unusedParts(file, db.Info().PageSize, func(at, length int64) error { return clearPart(file, at, length) })
	})
	if err != nil {
		return nil, err
	}
	db.NoSync = false
	return next, file.Sync()
}

// copyValues copies all values into an empty file.
func copyValues(ctx context.Context, to *bbolt.DB, from *bbolt.Tx) error {
	tx, err := to.Begin(true)
	if err != nil {
		return err
	}
	defer func() { tx.Rollback() }() // of the last one, if it was not committed
	room := compactBytes
	err = from.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
		return bucket.ForEach(func(key, value []byte) (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if room -= len(key) + len(value); room < 0 {
				if err := tx.Commit(); err != nil {
					return err
				}
				if tx, err = to.Begin(true); err != nil {
					return err
				}
				room = compactBytes - len(key) - len(value)
			}
			b := tx.Bucket(name)
			b.FillPercent = fillPercent
			return b.Put(key, value)
		})
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// compacted notes in the new file that it is one, and whose.
func (w *writer) compacted(old, now fileID) error {
	h, err := readHead(w.tx)
	if err != nil {
		return err
	}
	h.uncompacted = time.Time{}
	w.head = &h
	if err := w.putHead(); err != nil {
		return err
	}
	m, err := readMember(w.tx, old)
	if err != nil || m == (Member{}) {
		return err
	}
	return w.putValue(bucketMeta, keyMember, appendMember(frame(), m, now))
}

// clearPart writes zeros where there is anything else.
func clearPart(file *os.File, at, length int64) error {
	return eachWritten(file, at, length, func(at int64, b []byte) error {
		clear(b)
		_, err := file.WriteAt(b, at)
		return err
	})
}

// eachWritten calls f with the stretches of a part of a file that are not all zeros.
func eachWritten(file *os.File, at, length int64, f func(at int64, b []byte) error) error {
	b := make([]byte, min(length, stretch))
	for end := at + length; at < end; at += int64(len(b)) {
		b = b[:min(int64(len(b)), end-at)]
		if _, err := file.ReadAt(b, at); err != nil {
			return err
		}
		for _, x := range b {
			if x != 0 {
				if err := f(at, b); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// Remains says where a file has bytes that belong to nothing that it holds.
type Remains struct {
	Free    int64 // bytes of the file that no value takes
	Written int64 // of these, bytes in pages that are not all zeros
	Pages   int   // that those are
	// Uncompacted is the time of the oldest explicit retirement since the file was
	// compacted; zero: there is none, and what remains is of blocks that are live, or
	// were replaced or let go by a policy.
	Uncompacted time.Time
}

// FindRemains looks for what is left in a file of values that were deleted or replaced:
// in pages that are free, behind the end of the last page, and in pages that are in use,
// behind what they hold.
func FindRemains(path string) (r Remains, err error) {
	s, contents, err := OpenReadOnly(path)
	if err != nil {
		return r, err
	}
	defer s.Close()
	r.Uncompacted = contents.Uncompacted
	pageSize := s.db.Info().PageSize
	err = guard(func() error {
		return unusedParts(s.data, pageSize, func(at, length int64) error {
			r.Free += length
			for end := at + length; at < end; {
				n := min(end, (at/int64(pageSize)+1)*int64(pageSize)) - at // up to the end of the page
				if err := eachWritten(s.data, at, n, func(int64, []byte) error {
					r.Pages++
					r.Written += n
					return nil
				}); err != nil {
					return err
				}
				at += n
			}
			return nil
		})
	})
	if err != nil {
		return r, openError(path, err)
	}
	return r, nil
}
