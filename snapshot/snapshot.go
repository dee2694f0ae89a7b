// Package snapshot keeps everything that the daemon must not lose in one file: the ledger
// of live blocks with their parts of the row sample, their summaries and sums in each
// space, and the offsets up to which the log was processed.
//
// A space is the coordinates that blocks are summed in. The features are space 0
// (Features); each basis makes another one.
//
// # The promise
//
// All changes of one Save are made in one transaction of bbolt, which ends in an fsync.
// After a crash or a loss of power at any moment the file is as after the last Save that
// returned without error, or as after the one that was running. A program that reads on
// from the file's offsets loses nothing and counts nothing twice.
//
// A Save that fails, say on a full disk, has changed nothing (or everything, if only the
// last fsync failed). Keep the changes, add later ones, and pass them together to a later
// Save. Saving a change twice has the same effect as saving it once.
//
// After a failed fsync the system may have dropped what it could not write, and the next fsync
// says nothing about it. So the next Save writes a new file, as Compact does, and begins there.
//
// When bbolt panics in the middle of a transaction, say on a page that was damaged while the file
// was open, its locks stay held. The store is broken then: all further calls fail with a
// *BrokenError, and the process has to end. What was saved before is in the file.
//
// # Damage
//
// Every value carries a checksum that covers its key, too. The save's own record binds
// the ledger, the spaces and the offsets to each other. The structure of a file's pages
// is checked before bbolt uses them. A file that was cut short or changed is refused with
// a *ChecksumError instead of giving wrong answers, endless loops or faults. Open reads
// only the checksum of a summary. The summary is checked when it is read, and Verify
// checks all of them. Only damage to nothing but the record of the last transaction goes
// unnoticed. The file then is as after the save before, which is also its state after a
// crash in the middle of a save.
//
// # Forgetting
//
// The log of receipts is the exception: it only grows, and it has nothing of a block's rows.
//
// Values that a Save deletes or replaces stay in the file until their pages are used
// again. Compact replaces the file by one that has only the live values. Contents says
// whether a block was retired explicitly since. Another file beside the snapshot counts
// such retirements, and one has the last checkpoint of the log of receipts, so that an older copy
// of the snapshot is recognised.
//
// # Keys
//
// Checksums notice accidents. A file under a Key is refused when somebody without the key
// has changed it.
//
// # The format
//
// FORMAT.md has the buckets, the bytes of every value, the history of versions, and the
// steps of a recovery.
//
// # Concurrency
//
// Save belongs to one goroutine at a time. Methods that read, SaveHistory and
// SaveCosigned may be called meanwhile from others. Prepare and Prepared.Save are Save in two
// parts, for a caller that changes the sums while the second part writes. Compact may be called
// beside all of them, and writers wait for it. One process at a time has a file open for
// writing. Any number may have it open for reading when none has it open for writing.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Settings are bound to a file from its first save on. Its offsets and blocks are
// meaningless under others.
type Settings struct {
	Topic string
	Unit  string // the rule that makes blocks, as "message", "offsets 1000", "time 1m0s" or "key"
}

// Fingerprint identifies a record of the log.
type Fingerprint struct {
	Offset   int64
	Checksum uint32
	Time     time.Time // to the millisecond
}

// Offset is the progress in a partition.
type Offset struct {
	Topic     string
	Partition int
	Next      int64       // offset of the first record that was not processed
	Last      Fingerprint // the last processed record
	HasLast   bool        // false: there is none, and Last is zero
	// EventTimes are those of the last records, at most MaxEventTimes of them, in ms
	// since 1970 UTC and in the order of the log. They make the partition's clock, which
	// does not exist without them.
	EventTimes []int64
	// Growing is set if the state includes records at or above Next: those of a block
	// that still gathers records. Reading continues at Next, so that the block is made
	// again. Nil: there is no such block.
	Growing *Growing
}

// Growing is the part of a growing block that the state includes.
type Growing struct {
	Next       int64   // offset of the first record that the state does not include
	Counts     Counts  // of the records from Offset.Next on; the totals do not include them
	EventTimes []int64 // as in Offset, of the records before Next
}

// MaxEventTimes is the number of event times of a partition that can be saved.
const MaxEventTimes = 16

// Counts are totals since the file was made.
//
// A record that was read is applied (its rows are summarised or of weight 0), a tombstone, or
// rejected. A rejected record that was not decoded is in UndecodedRecords, too: nobody knows its
// rows, so RejectedRows has those of the others.
type Counts struct {
	AppliedRecords, Tombstones, RejectedRecords, UndecodedRecords, DeadLetters int64
	Rows, ZeroWeightRows, RejectedRows                                         int64
	BlocksAdded, BlocksRetired, BlocksReplaced                                 int64
	// Gaps are those that kafka.on_gap has passed over, and LostRecords the offsets in them.
	Gaps, LostRecords int64
}

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	for i, x := range d.list() {
		*c.list()[i] += *x
	}
}

func (c *Counts) list() [13]*int64 {
	return [...]*int64{
		&c.AppliedRecords, &c.Tombstones, &c.RejectedRecords, &c.UndecodedRecords, &c.DeadLetters,
		&c.Rows, &c.ZeroWeightRows, &c.RejectedRows,
		&c.BlocksAdded, &c.BlocksRetired, &c.BlocksReplaced,
		&c.Gaps, &c.LostRecords,
	}
}

// Space is coordinates in which live blocks are summed.
type Space struct {
	Number uint32 // reused after the space has left the file
	Basis  []byte // encodes the coordinates; the features have none
	Report []byte // how the basis was chosen. This package reads neither.
}

// Features is the number of the space of the features. It has every live block.
const Features = 0

// MaxID is the largest length of a block id in bytes: that of the longest key that bbolt
// takes, less the number of a space.
const MaxID = bbolt.MaxKeySize - 4

// lockTimeout is the time to wait for another process to release the lock of a file, so
// that a short look at the file does not keep a daemon from starting.
const lockTimeout = 500 * time.Millisecond

const (
	// mapped is the address space in which a file can grow without being mapped again. To
	// map it again, bbolt copies everything that a transaction is about to write.
	mapped = 256 << 20
	// growth is how many bytes a file grows at a time. They are not written to disk.
	growth = 64 << 10
)

var (
	// ErrNotFound says that a file, or a space, does not have a block.
	ErrNotFound = errors.New("no such block in the snapshot")

	// ErrInUse says that another process has the file open, such as a daemon or an
	// inspection.
	ErrInUse = errors.New("in use by another process")

	// ErrNotSnapshot says that a file belongs to another program, or is damaged beyond
	// recognition.
	ErrNotSnapshot = errors.New("not a streamd snapshot")
	// ErrUnreleased says that a program from before the first release has written a file.
	ErrUnreleased = errors.New("a snapshot of a streamd from before the first release, which this program cannot read: move it away, and the daemon reads the topic from its beginning")

	// ErrReplaced says that a file was removed, renamed or replaced while it was open.
	// Anything saved to it is lost when it is closed.
	ErrReplaced = errors.New("the file was removed or replaced while it was in use: put it back, or restart to go on with what is there now")
)

// A SettingsError says that a file belongs to another configuration.
type SettingsError struct {
	Setting           string // "topic" or "unit"
	Saved, Configured string
}

func (e *SettingsError) Error() string {
	return fmt.Sprintf("it was made with %s %q, the configuration has %q: set it back, or name another snapshot file to learn anew",
		e.Setting, e.Saved, e.Configured)
}

// A VersionError says that a file has another format than this program's.
type VersionError struct {
	Version   int    // of the file
	Supported int    // the one that this program knows
	Program   string // the oldest streamd that can read the file
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it has format %d, this program knows format %d: use streamd %s or later", e.Version, e.Supported, e.Program)
}

// A ChecksumError says that a file does not have the bytes that were written to it.
type ChecksumError struct {
	Bucket, Key string // of the value; empty: the pages of the file
	Reason      string
}

func (e *ChecksumError) Error() string {
	if e.Bucket == "" {
		return "damaged: " + e.Reason
	}
	return fmt.Sprintf("damaged: %s %q: %s", e.Bucket, e.Key, e.Reason)
}

// A BrokenError says that bbolt has panicked in the middle of a transaction. The process cannot
// use the file any more, and has to end.
type BrokenError struct {
	Path   string
	Reason error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("snapshot %s cannot be used any more: %v (streamd snapshot verify checks the file; restore a copy, or move it away to learn from the log anew)", e.Path, e.Reason)
}

func (e *BrokenError) Unwrap() error { return e.Reason }

// Store is an open file.
type Store struct {
	path     string
	target   string // path, or the file that the link leads to
	key      *Key
	features []string // as saved; nil: not fixed

	writing sync.Mutex
	failed  bool // the last transaction failed: the disk may lack pages that can be read
	// unsynced is set when a sync failed: nothing that is written to the file counts as saved.
	unsynced bool
	// sum is the sum of the file's values under a key. After a failed transaction the
	// file may have either sum.
	sum, failedSum valueSum
	retired        retirements // as in the file beside it
	checkpoint     []byte      // of the log of receipts, as far as known; nil: none
	kept           []byte      // checkpoint in the file beside it

	broken atomic.Pointer[BrokenError] // no call of bbolt is left then

	swap    sync.RWMutex // guards the fields below, which Compact replaces
	db      *bbolt.DB
	readers *sync.WaitGroup // transactions that read db
	data    *os.File        // bbolt's
}

// Open opens a file for writing and reads its contents. If there is no file, it makes an
// empty one. A file to which nothing was saved takes the new settings. The error is
// ErrInUse, ErrNotSnapshot, ErrUnreleased, ErrKeyNeeded, a *SettingsError, a *VersionError, a
// *ChecksumError, or comes from the file system.
func Open(path string, s Settings) (*Store, *Contents, error) { return (*Key)(nil).Open(path, s) }

// OpenReadOnly opens an existing file for reading, whatever its settings, and does not
// check its MAC. Save fails on it. The errors are those of Open.
func OpenReadOnly(path string) (*Store, *Contents, error) { return (*Key)(nil).open(path, true) }

// Open is the function Open for files under the key. It also returns ErrNoMAC and
// ErrMAC, and reads the whole file.
func (k *Key) Open(path string, s Settings) (*Store, *Contents, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := k.create(path, s); err != nil {
			return nil, nil, fmt.Errorf("make snapshot %s: %w", path, err)
		}
	}
	store, contents, err := k.open(path, false)
	if err != nil {
		return nil, nil, err
	}
	if contents.Settings != s && contents.SavedAt.IsZero() {
		// Nothing is lost, and after a mistyped topic the file can be used.
		contents.Settings = s
		if err := store.update(func(w *writer) error { return w.putSettings(s) }); err != nil {
			store.Close()
			return nil, nil, openError(path, err)
		}
	}
	if err := fits(path, contents, s); err != nil {
		store.Close()
		return nil, nil, err
	}
	return store, contents, nil
}

// fits returns a *SettingsError if the contents are of other settings.
func fits(path string, c *Contents, s Settings) error {
	for _, setting := range []SettingsError{{"topic", c.Topic, s.Topic}, {"unit", c.Unit, s.Unit}} {
		if setting.Saved != setting.Configured {
			return fmt.Errorf("open snapshot %s: %w", path, &setting)
		}
	}
	return nil
}

func (k *Key) open(path string, readOnly bool) (*Store, *Contents, error) {
	s, contents, err := k.openAlone(path, readOnly)
	if err != nil {
		return nil, nil, err
	}
	if err := s.compareRetired(contents, readOnly); err != nil {
		s.Close()
		return nil, nil, openError(path, err)
	}
	return s, contents, nil
}

// openAlone opens a file without the one beside it.
func (k *Key) openAlone(path string, readOnly bool) (*Store, *Contents, error) {
	s, err := k.openFile(path, readOnly)
	if err != nil {
		return nil, nil, openError(path, err)
	}
	var contents *Contents
	err = s.view(func(tx *bbolt.Tx) error {
		contents, err = readContents(tx, strict)
		return err
	})
	s.forget() // reading has touched pages of all summaries
	if err != nil {
		s.Close()
		return nil, nil, openError(path, err)
	}
	s.features = contents.Features()
	return s, contents, nil
}

func openError(path string, err error) error {
	if damage := (*ChecksumError)(nil); errors.As(err, &damage) {
		return fmt.Errorf("open snapshot %s: %w (restore a copy, or move the file away to learn from the log anew)", path, err)
	}
	return fmt.Errorf("open snapshot %s: %w", path, err)
}

// openFile opens a file whose pages and format version are good. For writing it opens the
// file twice. bbolt trusts the pages when it opens a file for writing, and they can only
// be checked once bbolt has locked the file.
func (k *Key) openFile(path string, readOnly bool) (*Store, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		return nil, fmt.Errorf("%w but a folder", ErrNotSnapshot)
	} else if info.Size() == 0 {
		return nil, fmt.Errorf("%w but an empty file", ErrNotSnapshot)
	} else if info.Size() < 2<<12 { // for a file too small for two meta pages bbolt has an error of its own
		return nil, fmt.Errorf("%w but a file of %d bytes", ErrNotSnapshot, info.Size())
	}
	db, file, err := openBolt(path, true)
	if err != nil {
		return nil, err
	}
	if err = guard(func() error { return checkPages(file, db.Info().PageSize) }); err == nil {
		err = guard(func() error { return db.View(checkVersion) })
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	if !readOnly {
		if err := db.Close(); err != nil {
			return nil, err
		}
		if db, file, err = openBolt(path, false); err != nil {
			return nil, err
		}
	}
	s := &Store{db: db, readers: new(sync.WaitGroup), data: file, path: path, target: path, key: k}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		s.target = target
	}
	if err := s.prepare(readOnly); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// prepare makes a file with good pages ready for use.
func (s *Store) prepare(readOnly bool) error {
	if s.key != nil || !readOnly {
		if err := s.view(func(tx *bbolt.Tx) (err error) {
			s.sum, err = s.key.authenticate(tx)
			return err
		}); err != nil {
			return err
		}
	}
	if readOnly {
		return nil
	}
	// A crash may have left a copy.
	for _, left := range []string{compacting(s.target), Copying(s.target)} {
		if err := removeIfThere(left); err != nil {
			return err
		}
	}
	return s.settle()
}

// settle writes to the disk the state that a file is read as. The disk may have the state
// before it: the process that saved was killed before the last sync, or that sync failed.
// The next transaction overwrites pages of that older state, and a loss of power in the
// middle of it would leave neither. After a failed sync the system counts the pages as
// written, so another sync alone is not enough. But all pages that a meta page leads to
// were synced before the meta page was written. The folder is synced, too, since create,
// or an operator who restores a copy, may just have given the file its name.
func (s *Store) settle() error {
	c := pageCheck{file: s.data, size: int64(s.db.Info().PageSize)}
	meta, at, err := c.meta()
	if err != nil {
		return err
	}
	if _, err := s.data.WriteAt(meta, at); err != nil {
		return err
	}
	if err := cmp.Or(s.data.Sync(), syncFolder(filepath.Dir(s.target))); err != nil {
		s.unsynced = true
		return err
	}
	return nil
}

// openBolt opens a file that exists, under a lock.
func openBolt(path string, readOnly bool) (db *bbolt.DB, file *os.File, err error) {
	err = guard(func() (err error) {
		db, err = bbolt.Open(path, 0, &bbolt.Options{
			Timeout:         lockTimeout,
			ReadOnly:        readOnly,
			FreelistType:    bbolt.FreelistMapType, // it finds long runs without a search
			InitialMmapSize: mapped,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				var err error
				file, err = os.OpenFile(name, flag&^os.O_CREATE, mode)
				return file, err
			},
		})
		return err
	})
	switch {
	case err == nil:
		if err = checkName(path, file); err == nil {
			db.AllocSize = growth
			return db, file, nil
		}
		db.Close()
		if errors.Is(err, ErrReplaced) { // while this process waited for the lock
			err = ErrInUse
		}
		return nil, nil, err
	case errors.Is(err, bbolterrors.ErrTimeout):
		err = ErrInUse
	case errors.Is(err, bbolterrors.ErrChecksum):
		err = &ChecksumError{Reason: "neither of the two meta pages is whole"}
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrVersionMismatch):
		err = ErrNotSnapshot
	}
	if file != nil {
		file.Close() // which releases the lock; bbolt may not have got that far
	}
	return nil, nil, err
}

// create makes an empty file. It gets its name when it is complete, and never replaces
// another file. openFile syncs the name.
func (k *Key) create(path string, s Settings) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	temporary := f.Name()
	defer os.Remove(temporary)
	if err := f.Close(); err != nil {
		return err
	}
	db, file, err := openBolt(temporary, false)
	if err != nil {
		return err
	}
	store := &Store{db: db, readers: new(sync.WaitGroup), data: file, path: temporary, key: k}
	err = store.update(func(w *writer) error { return initialise(w, s) })
	if err := cmp.Or(err, store.Close()); err != nil {
		return err
	}
	// A link is like a rename, but fails when another process was faster.
	switch err := os.Link(temporary, path); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil: // a file system without hard links
		if err := os.Rename(temporary, path); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmp.Or(f.Sync(), f.Close())
}

// guard runs f and turns a panic into an error. bbolt panics on bad pages. It reads its
// file through a mapping, where a bad sector, or a file that is cut short while it is
// open, causes a memory fault. f holds no lock that it does not release when it panics: locks of
// bbolt belong to Store.unbroken.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &ChecksumError{Reason: fmt.Sprint(r)}
		}
	}()
	return f()
}

// checkName reports whether an open file still has its name.
func checkName(path string, file *os.File) error {
	open, err := file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(open, named) {
		return ErrReplaced
	}
	return err
}

// update changes the file in a transaction.
func (s *Store) update(f func(*writer) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.renew(); err != nil {
		return err
	}
	w := new(writer)
	defer w.close() // after the transaction
	committing := false
	err := s.unbroken(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			if w.tx = tx; s.failed {
				if err := s.settle(); err != nil {
					return err
				}
			}
			if err := s.findSum(tx); err != nil {
				return err
			}
			if s.key != nil {
				w.summer = newSummer(s.key, s.sum)
			}
			if err := f(w); err != nil {
				return err
			}
			if w.summer != nil {
				if err := w.putMAC(); err != nil {
					return err
				}
			}
			committing = true
			return nil
		})
	})
	if committing && err != nil && !errors.As(err, new(*fs.PathError)) {
		s.unsynced = true // writes fail with a path, and fdatasync without one
	}
	if err == nil { // the transaction is lost if no name leads to the file any more
		err = checkName(s.path, s.data)
	}
	s.failed = err != nil
	switch {
	case w.summer == nil:
	case s.failed:
		s.failedSum = w.summer.sum
	default:
		s.sum = w.summer.sum
	}
	return err
}

// renew replaces a file of which a sync has failed by a new one.
func (s *Store) renew() error {
	if !s.unsynced {
		return nil
	}
	err := checkName(s.path, s.data)
	if err == nil {
		err = s.replace(context.Background(), copyAll) // its callers do not know that retired blocks are gone
	}
	if err != nil {
		return fmt.Errorf("a sync of the file has failed, and there is no new one: %w", err)
	}
	return nil
}

// unbroken calls bbolt, unless the store is broken. It is, once the call has panicked.
func (s *Store) unbroken(call func() error) (err error) {
	if err := s.Broken(); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			s.broken.CompareAndSwap(nil, &BrokenError{s.path, &ChecksumError{Reason: fmt.Sprint(r)}})
			err = s.Broken()
		}
	}()
	return call()
}

// Broken returns the *BrokenError of a store that is broken, or nil.
func (s *Store) Broken() error {
	if err := s.broken.Load(); err != nil {
		return err
	}
	return nil
}

// findSum sets the sum to that of the file, which after a failed transaction may be as
// before it or as after it.
func (s *Store) findSum(tx *bbolt.Tx) error {
	if s.key == nil || !s.failed {
		return nil
	}
	mac, err := readMAC(tx)
	switch {
	case err != nil:
		return err
	case mac == nil, s.key.fits(mac, s.sum):
		return nil
	case s.key.fits(mac, s.failedSum):
		s.sum = s.failedSum
		return nil
	}
	return ErrMAC
}

// view reads the file in a transaction.
func (s *Store) view(f func(*bbolt.Tx) error) error {
	tx, end, err := s.begin()
	if err != nil {
		return err
	}
	defer end()
	return guard(func() error { return f(tx) })
}

// begin begins to read the file. If the file is replaced meanwhile, the transaction
// continues with the old one. The caller ends it.
func (s *Store) begin() (tx *bbolt.Tx, end func(), err error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	if err := s.unbroken(func() (err error) {
		tx, err = s.db.Begin(false)
		return err
	}); err != nil {
		return nil, nil, err
	}
	readers := s.readers
	readers.Add(1)
	return tx, func() {
		tx.Rollback()
		readers.Done()
	}, nil
}

// Close closes the file. It waits for writers, and for calls of Summary and Summaries. The file of
// a broken store stays open until the process ends.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.Broken() != nil {
		return nil
	}
	return s.db.Close()
}
