package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// compactBytes is the size of one transaction of a compaction, which is held in memory.
const compactBytes = 16 << 20

// compacting is the name of the file that will replace a snapshot, while it is written.
func compacting(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".compact")
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Compact replaces the file by one that has only the live values. Without it, values that
// were deleted or replaced stay in free pages until these are used again. Compact returns
// when the new file is on the disk under the name of the old one. After a crash or an
// error the name leads to one of the two, whole. The disk blocks of the old file belong
// to the file system and are out of reach.
//
// Saves wait until Compact has ended; reads continue. Compact needs disk space for the
// live values, and memory of a few times compactBytes or of the largest value. When ctx
// ends, the file stays as it was.
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

// Compact is Store.Compact for a file that no process has open.
func (k *Key) Compact(ctx context.Context, path string) (info SaveInfo, err error) {
	s, _, err := k.open(path, false)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Compact(ctx)
}

// Adopt replaces the file by one that has the live blocks of another file, with their parts, sums
// and Change.Learning, and keeps its own settings, withdrawn blocks, offsets, counts, history and
// receipts. It replaces a file's blocks by the same blocks in other features. Archived blocks go,
// since their summaries are in the former features. Nothing may be saved to the other file
// meanwhile. Otherwise it promises the same as Compact.
func (s *Store) Adopt(ctx context.Context, other *Store) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := checkName(s.path, s.data)
	if err == nil {
		err = s.replace(ctx, func(from *bbolt.Tx, to *copier) (h head, err error) {
			err = other.view(func(blocks *bbolt.Tx) (err error) {
				h, err = s.copyAdopted(from, blocks, to)
				return err
			})
			return h, err
		})
	}
	if err != nil {
		return fmt.Errorf("take the blocks of %s into snapshot %s: %w", other.path, s.path, err)
	}
	s.features = other.features
	return nil
}

// Copying is the name of the file that a copy of a snapshot should have while it is written. What
// is left there after a crash goes with the next start.
func Copying(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".copy")
}

// Copy writes the last saved state to a new file, which has only the live values, and returns when
// it is on the disk. With receipts false the copy has no log of receipts: one key signs one log, so
// another daemon begins its own. Saves go on meanwhile. Copy needs what Compact needs, beside the
// memory of a read transaction: pages that saves free meanwhile are used again after it.
func (s *Store) Copy(ctx context.Context, path string, receipts bool) error {
	next, err := s.copyTo(ctx, path, func(from *bbolt.Tx, to *copier) (head, error) {
		if s.key != nil {
			to.summer = newSummer(s.key, valueSum{}) // the sum of the file may be of a later save
		}
		err := from.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if !receipts && slices.ContainsFunc(logBuckets, func(of []byte) bool { return bytes.Equal(of, name) }) {
				return nil
			}
			return to.copyBucket(from, name)
		})
		if err != nil {
			return head{}, err
		}
		h, err := readHead(from)
		h.uncompacted = time.Time{}
		return h, err
	})
	if err == nil {
		err = next.db.Close()
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("copy snapshot %s to %s: %w", s.path, path, err)
	}
	return nil
}

// Receive makes a snapshot of a copy that Copy has made, and returns when it is on the
// disk. With an error there is none. The errors are those of Open; with a nil key the copy
// must be under none.
func (k *Key) Receive(path string, copied io.Reader, s Settings) (c *Contents, err error) {
	temporary := Copying(path)
	err = writeFile(temporary, func(f *os.File) error {
		_, err := io.Copy(f, copied)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary)
		}
	}()
	store, c, err := k.open(temporary, true)
	if err != nil {
		return nil, err
	}
	if err = fits(temporary, c, s); err == nil && k == nil && c.Keyed {
		err = openError(temporary, ErrKeyNeeded)
	}
	if err := errors.Join(err, store.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, err
	}
	return c, syncFolder(filepath.Dir(path))
}

// logBuckets have the log of receipts.
var logBuckets = [][]byte{bucketReceipts, bucketLogHashes, bucketLog}

// copyAdopted copies the blocks of one file and the rest of another.
func (s *Store) copyAdopted(from, blocks *bbolt.Tx, to *copier) (head, error) {
	if s.key != nil {
		to.summer = newSummer(s.key, valueSum{})
	}
	if err := createBuckets(to.tx); err != nil {
		return head{}, err
	}
	for _, name := range append([][]byte{bucketWithdrawn, bucketJoining}, logBuckets...) {
		if err := to.copyBucket(from, name); err != nil {
			return head{}, err
		}
	}
	if err := to.copyHistory(from, blocks.Bucket(bucketHistory)); err != nil {
		return head{}, err
	}
	for _, p := range []place{{bucketMeta, keySettings}, {bucketOffsets, nil}} {
		if err := p.each(from, func(key, value []byte) error { return to.put(p.bucket, key, value) }); err != nil {
			return head{}, err
		}
	}
	for _, name := range [][]byte{bucketBlocks, bucketParts, bucketSpaces, bucketBases, bucketSources, bucketStates, bucketSummaries} {
		err := place{name, nil}.each(blocks, func(key, value []byte) error { return to.put(name, key, value) })
		if err != nil {
			return head{}, err
		}
	}
	h, err := readHead(from)
	if err != nil {
		return h, err
	}
	b, err := readHead(blocks)
	h.rows, h.blocks, h.parts, h.spaces, h.inUse = b.rows, b.blocks, b.parts, b.spaces, b.inUse
	h.archive, h.uncompacted = archiveTally{}, time.Time{}
	return h, err
}

// copyHistory copies the history, with what the blocks were made by.
func (c *copier) copyHistory(from *bbolt.Tx, blocks *bbolt.Bucket) error {
	learning := []byte(nil)
	if blocks != nil {
		learning = blocks.Get(keyLearning)
	}
	if from.Bucket(bucketHistory) == nil && learning == nil {
		return nil
	}
	if _, err := c.tx.CreateBucketIfNotExists(bucketHistory); err != nil {
		return err
	}
	err := place{bucketHistory, nil}.each(from, func(key, value []byte) error {
		if learning != nil && bytes.Equal(key, keyLearning) {
			return nil
		}
		return c.put(bucketHistory, key, value)
	})
	if err == nil && learning != nil {
		err = c.put(bucketHistory, keyLearning, learning)
	}
	return err
}

func (s *Store) compact(ctx context.Context) (info SaveInfo, err error) {
	if err := checkName(s.path, s.data); err != nil {
		return info, err
	}
	if err := s.replace(ctx, copyValues); err != nil {
		return info, err
	}
	file, err := s.data.Stat()
	if err != nil {
		return info, err
	}
	return SaveInfo{Bytes: file.Size(), FileBytes: file.Size()}, nil
}

// A filler copies the values of a file into an empty one, and returns the head of the new
// file.
type filler func(from *bbolt.Tx, to *copier) (head, error)

// replace replaces the open file by a new one.
func (s *Store) replace(ctx context.Context, f filler) error {
	temporary := compacting(s.target)
	next, err := s.copyTo(ctx, temporary, func(from *bbolt.Tx, to *copier) (head, error) {
		if err := s.findSum(from); err != nil {
			return head{}, err
		}
		to.sum = s.sum
		return f(from, to)
	})
	if err == nil {
		if err = os.Rename(temporary, s.target); err != nil {
			next.Close()
		}
	}
	if err != nil {
		os.Remove(temporary)
		return err
	}
	// From here on the new file is the snapshot. No other process could lock it before it
	// had the name.
	s.swap.Lock()
	old, reading := s.db, s.readers
	s.db, s.readers, s.data, s.sum = next.db, next.readers, next.data, next.sum
	s.swap.Unlock()
	s.failed, s.unsynced = false, false
	// While bbolt waits for one reader to end, no other one can: one within another, or one that
	// the other waits for, would wait for ever.
	reading.Wait()
	err = cmp.Or(old.Close(), syncFolder(filepath.Dir(s.target)))
	if err != nil { // the name may still lead to the old file on the disk
		s.failed, s.unsynced, s.failedSum = true, true, s.sum
	}
	return err
}

// copyTo writes the live values to a new file, with the mode and the owner of the one
// that it will replace. It returns when the new file is on the disk.
func (s *Store) copyTo(ctx context.Context, temporary string, f filler) (next *Store, err error) {
	if err := removeIfThere(temporary); err != nil {
		return nil, err
	}
	made, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(s.target)
	if err == nil {
		err = keepOwner(made, info)
	}
	if err := cmp.Or(err, made.Close()); err != nil {
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
	to := &copier{ctx: ctx, db: db}
	var h head
	err = s.view(func(from *bbolt.Tx) error {
		defer to.rollback()
		if err := to.begin(); err != nil {
			return err
		}
		if h, err = f(from, to); err != nil {
			return err
		}
		return to.tx.Commit()
	})
	if err != nil {
		return nil, err
	}
	next = &Store{db: db, readers: new(sync.WaitGroup), data: file, path: temporary, key: s.key, sum: to.sum}
	if to.summer != nil {
		next.sum = to.summer.sum
	}
	if err := next.update(func(w *writer) error {
		w.head = &h
		return errors.Join(w.putFormat(), w.putHead())
	}); err != nil {
		return nil, err
	}
	// Copying in several transactions has left free pages that have held live values.
	err = guard(func() error {
		return readPages(file, db.Info().PageSize, func(at, length int64) error { return clearPart(file, at, length) })
	})
	if err != nil {
		return nil, err
	}
	db.NoSync = false
	return next, file.Sync()
}

// copier writes values to an empty file, in transactions of about compactBytes.
type copier struct {
	ctx    context.Context
	db     *bbolt.DB
	tx     *bbolt.Tx
	room   int      // left in the transaction, in bytes
	sum    valueSum // of the values of the old file
	summer *summer  // nil: the new file has the sum of the old one
}

func (c *copier) begin() (err error) {
	c.tx, err = c.db.Begin(true)
	c.room = compactBytes
	return err
}

// rollback ends the last transaction unless it was committed.
func (c *copier) rollback() {
	if c.tx != nil {
		c.tx.Rollback()
	}
}

// put copies a value unchanged, with its frame, into an existing bucket.
func (c *copier) put(bucket, key, value []byte) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.room -= len(key) + len(value); c.room < 0 {
		if err := c.tx.Commit(); err != nil {
			return err
		}
		if err := c.begin(); err != nil {
			return err
		}
	}
	if c.summer != nil && !isMAC(bucket, key) {
		c.summer.sum.add(c.summer.mac(bucket, key, value))
	}
	b := c.tx.Bucket(bucket)
	b.FillPercent = fillPercent
	return b.Put(key, value)
}

// copyBucket copies a bucket, if there is one, into a file that lacks it.
func (c *copier) copyBucket(from *bbolt.Tx, name []byte) error {
	bucket := from.Bucket(name)
	if bucket == nil {
		return nil
	}
	if _, err := c.tx.CreateBucket(name); err != nil {
		return err
	}
	return bucket.ForEach(func(key, value []byte) error { return c.put(name, key, value) })
}

// copyValues copies all values of a file. The head marks the new file as compacted.
func copyValues(from *bbolt.Tx, to *copier) (head, error) {
	h, err := copyAll(from, to)
	h.uncompacted = time.Time{}
	return h, err
}

// copyAll copies all values of a file, and its head.
func copyAll(from *bbolt.Tx, to *copier) (head, error) {
	err := from.ForEach(func(name []byte, _ *bbolt.Bucket) error { return to.copyBucket(from, name) })
	if err != nil {
		return head{}, err
	}
	return readHead(from)
}

// clearPart writes zeros over everything else.
func clearPart(file *os.File, at, length int64) error {
	return eachWritten(file, at, length, func(at int64, b []byte) error {
		clear(b)
		_, err := file.WriteAt(b, at)
		return err
	})
}

// eachWritten calls f with the pieces of a part of a file that are not all zeros.
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

// Remains describes the bytes of a file that belong to no value.
type Remains struct {
	Free    int64 // all of them
	Written int64 // in pages, or ends of pages, that are not all zeros
	Pages   int   // the number of these
	// Uncompacted is the time of the oldest explicit retirement since the last
	// compaction; zero if there is none. Then the remains are those of live blocks, or of
	// blocks that were replaced or evicted by a policy.
	Uncompacted time.Time
}

// FindRemains looks for remains of deleted or replaced values: in free pages, behind the
// last page, and at the ends of used pages.
func FindRemains(path string) (r Remains, err error) {
	s, contents, err := OpenReadOnly(path)
	if err != nil {
		return r, err
	}
	defer s.Close()
	r.Uncompacted = contents.Uncompacted
	pageSize := s.db.Info().PageSize
	err = guard(func() error {
		return readPages(s.data, pageSize, func(at, length int64) error {
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
