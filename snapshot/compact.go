package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

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
// live values, and memory for some pages or the largest value. When ctx ends, the file stays as it
// was.
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

// Copy writes the last saved state to a new file, which has only the live values. It may not be on
// the disk yet. With receipts false the copy has no log of receipts: one key signs one log, so
// another daemon begins its own. Saves go on meanwhile. Copy needs what Compact needs, beside the
// memory of a read transaction: pages that saves free meanwhile are used again after it.
func (s *Store) Copy(ctx context.Context, path string, receipts bool) error {
	_, err := s.copyTo(ctx, path, func(from *bbolt.Tx, to *copier) (head, error) {
		to.sumAnew(s.key) // the sum of the file may be of a later save
		h, err := to.copyAll(from, func(name []byte) bool {
			return receipts || !slices.ContainsFunc(logBuckets, func(of []byte) bool { return bytes.Equal(of, name) })
		})
		h.uncompacted = time.Time{}
		return h, err
	})
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("copy snapshot %s to %s: %w", s.path, path, err)
	}
	return nil
}

// Receive makes a snapshot of a copy that Copy has made, and opens it when it is on the disk. With
// an error of the copy there is none. The errors are those of Open; with a nil key the copy must be
// under none.
func (k *Key) Receive(path string, copied io.Reader, of Settings) (s *Store, c *Contents, err error) {
	temporary := Copying(path)
	err = writeFile(temporary, func(f *os.File) error {
		_, err := io.Copy(f, copied)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if s, c, err = k.openAlone(temporary, false); err == nil {
		if err = fits(temporary, c, of); err == nil {
			err = os.Rename(temporary, path)
		}
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		os.Remove(temporary)
		return nil, nil, err
	}
	s.path, s.target = path, path
	if err := cmp.Or(syncFolder(filepath.Dir(path)), s.compareRetired(c, false)); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, c, nil
}

// logBuckets have the log of receipts.
var logBuckets = [][]byte{bucketReceipts, bucketLogHashes, bucketLog}

// copyAdopted copies the blocks of one file and the rest of another.
func (s *Store) copyAdopted(from, blocks *bbolt.Tx, to *copier) (head, error) {
	to.sumAnew(s.key)
	for _, name := range append([][]byte{bucketOffsets, bucketWithdrawn, bucketJoining}, logBuckets...) {
		if err := to.copyBucket(from, name); err != nil {
			return head{}, err
		}
	}
	for _, name := range buckets {
		if bytes.Equal(name, bucketOffsets) {
			continue
		}
		if err := to.copyBucket(blocks, name); err != nil {
			return head{}, err
		}
	}
	if err := to.copyHistory(from, blocks); err != nil {
		return head{}, err
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
func (c *copier) copyHistory(from, blocks *bbolt.Tx) error {
	values := map[string][]byte{}
	if err := (place{bucketHistory, nil}).each(from, func(key, value []byte) error {
		values[string(key)] = value
		return nil
	}); err != nil {
		return err
	}
	if b := blocks.Bucket(bucketHistory); b != nil && b.Get(keyLearning) != nil {
		values[string(keyLearning)] = b.Get(keyLearning)
	}
	if len(values) == 0 && from.Bucket(bucketHistory) == nil {
		return nil
	}
	return c.bucket(bucketHistory, func(t *tree) error {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if err := c.put(t, bucketHistory, []byte(key), values[key]); err != nil {
				return err
			}
		}
		return nil
	})
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

// A filler copies the values of a file, but for the bucket of the head, into a new one, and returns
// the head of that.
type filler func(from *bbolt.Tx, to *copier) (head, error)

// replace replaces the open file by a new one.
func (s *Store) replace(ctx context.Context, f filler) error {
	temporary := compacting(s.target)
	sum, err := s.copyTo(ctx, temporary, func(from *bbolt.Tx, to *copier) (head, error) {
		if err := s.findSum(from); err != nil {
			return head{}, err
		}
		if s.key != nil {
			to.summer = newSummer(s.key, s.sum)
		}
		return f(from, to)
	})
	var next *Store
	if err == nil {
		next, err = s.openCopy(temporary, sum)
	}
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

// copyTo writes live values to a new file, with the mode and the owner of the one that it will
// replace or is a copy of. It returns the sum of its values.
func (s *Store) copyTo(ctx context.Context, temporary string, f filler) (sum valueSum, err error) {
	if err := removeIfThere(temporary); err != nil {
		return sum, err
	}
	made, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return sum, err
	}
	defer func() { err = cmp.Or(err, made.Close()) }()
	info, err := os.Stat(s.target)
	if err == nil {
		err = keepOwner(made, info)
	}
	if err != nil {
		return sum, err
	}
	err = s.view(func(from *bbolt.Tx) error {
		to := &copier{ctx: ctx, builder: newBuilder(made, from.DB().Info().PageSize)}
		h, err := f(from, to)
		if err == nil {
			err = to.putHead(from, &h)
		}
		if err != nil {
			return err
		}
		if to.summer != nil {
			sum = to.summer.sum
		}
		return to.end()
	})
	return sum, err
}

// openCopy opens a file that copyTo has written, and returns when it is on the disk.
func (s *Store) openCopy(path string, sum valueSum) (*Store, error) {
	db, file, err := openBolt(path, false)
	if err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		db.Close()
		return nil, err
	}
	return &Store{db: db, readers: new(sync.WaitGroup), data: file, path: path, key: s.key, sum: sum}, nil
}

// copier copies values, unchanged with their frames, into a new file.
type copier struct {
	*builder
	ctx    context.Context
	summer *summer // of the values of the new file; nil if it is not under a key
	anew   bool    // the sum has only what was put
}

// sumAnew sums the values that are copied. Otherwise all are, and the sum is that of the old file.
func (c *copier) sumAnew(key *Key) {
	if c.anew = true; key != nil {
		c.summer = newSummer(key, valueSum{})
	}
}

func (c *copier) put(t *tree, bucket, key, value []byte) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.summer != nil && c.anew {
		c.summer.sum.add(c.summer.mac(bucket, key, value))
	}
	return t.put(key, value)
}

// copyBucket copies a bucket, if there is one.
func (c *copier) copyBucket(from *bbolt.Tx, name []byte) error {
	if from.Bucket(name) == nil {
		return nil
	}
	return c.bucket(name, func(t *tree) error {
		return place{name, nil}.each(from, func(key, value []byte) error { return c.put(t, name, key, value) })
	})
}

// copyAll copies all values of some buckets, and returns the head.
func (c *copier) copyAll(from *bbolt.Tx, wanted func(name []byte) bool) (head, error) {
	err := from.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if bytes.Equal(name, bucketMeta) || !wanted(name) {
			return nil
		}
		return c.copyBucket(from, name)
	})
	if err != nil {
		return head{}, err
	}
	return readHead(from)
}

// putHead writes the bucket of the head, with the settings of a file.
func (c *copier) putHead(from *bbolt.Tx, h *head) error {
	values := append(slices.DeleteFunc(headValues(h), func(v keyed) bool { return v.value == nil }), keyed{keyFormat, appendFormat(frame(), version, program)})
	for i := range values {
		if err := seal(bucketMeta, values[i].key, values[i].value); err != nil {
			return err
		}
	}
	settings := from.Bucket(bucketMeta).Get(keySettings)
	if settings == nil {
		return &ChecksumError{string(bucketMeta), string(keySettings), "it is missing"}
	}
	values = append(values, keyed{keySettings, settings})
	if c.summer != nil {
		if !c.anew {
			if err := from.Bucket(bucketMeta).ForEach(func(key, value []byte) error {
				if !isMAC(bucketMeta, key) {
					c.summer.sum.remove(c.summer.mac(bucketMeta, key, value))
				}
				return nil
			}); err != nil {
				return err
			}
		}
		for _, v := range values {
			c.summer.sum.add(c.summer.mac(bucketMeta, v.key, v.value))
		}
		mac, err := c.summer.fileMAC()
		if err != nil {
			return err
		}
		values = append(values, keyed{keyMAC, mac})
	}
	slices.SortFunc(values, func(x, y keyed) int { return bytes.Compare(x.key, y.key) })
	return c.bucket(bucketMeta, func(t *tree) error {
		for _, v := range values {
			if err := t.put(v.key, v.value); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyValues copies all values of a file. The head marks the new file as compacted.
func copyValues(from *bbolt.Tx, to *copier) (head, error) {
	h, err := copyAll(from, to)
	h.uncompacted = time.Time{}
	return h, err
}

// copyAll copies all values of a file, and its head.
func copyAll(from *bbolt.Tx, to *copier) (head, error) {
	return to.copyAll(from, func([]byte) bool { return true })
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
