// Package snapshot keeps what the daemon must not lose in one file: the state,
// the ledger of live blocks with their summaries and their parts of the row
// sample, the sums of the folds, the same sums in the coordinates of epochs, and
// the offsets up to which the log has been worked off.
//
// # The promise
//
// All that one Save changes changes in one transaction of bbolt, which ends in
// an fsync: after a crash or a loss of power at any moment the file holds what it
// held after the last Save that returned without error, or after the one that was
// running.
// Whoever goes on reading the log at the file's offsets therefore loses
// nothing and counts nothing twice.
//
// A Save that fails, say on a full disk, has changed nothing (or everything,
// if only the last fsync failed). Keep the changes, add what comes, and give
// the sum of them to a later Save: saving a change twice is the same as saving
// it once.
//
// # Damage
//
// Every value carries a checksum that covers its key too; the save's own record
// binds the ledger, the offsets and the state to each other; and before bbolt
// looks at a file, the structure of its pages is checked. A file that was cut
// short or changed is refused with a *ChecksumError instead of giving wrong
// answers, endless loops or faults. What Open does not read, the summaries, is
// checked when it is read, and all at once by Verify. The one thing not
// noticed is damage that touches only the record of the last transaction: the
// file then is what it was after the save before, as it is after a crash in
// the middle of a save.
//
// # Forgetting
//
// Values that a Save deletes or replaces stay in the file until their pages are used again.
// Compact replaces the file by one that has nothing but the live values; Contents says
// whether a block was retired explicitly since. Beside the file lies another one that
// counts such retirements, so that an older copy of the file is told from it.
//
// # Keys
//
// Checksums notice accidents. A file under a Key is refused when somebody without the key
// has changed it.
//
// # The format
//
// FORMAT.md has the buckets, the bytes of every value, the history of versions
// and what to do with a damaged file.
//
// # Concurrency
//
// Save belongs to one goroutine at a time; the methods that read, and SaveMember,
// may be called meanwhile from others. Prepare and Prepared.Save are Save in two
// parts, for who goes on changing the sums while the second writes. Compact may be
// called beside all of them; what writes waits for it. One process has
// a file open for writing; any number may have it open for reading when none has it
// for writing.
package snapshot

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// Settings are what a file is bound to from its first save on: its offsets and
// blocks mean nothing under others.
type Settings struct {
	Topic string
	Unit  string // the rule that makes blocks, as "message", "offsets 1000", "time 1m0s" or "key"
}

// Member is what the process that has the file open is in a consumer group.
type Member struct{ Group, ID string }

// Fingerprint recognises a record of the log.
type Fingerprint struct {
	Offset   int64
	Checksum uint32
	Time     time.Time // to the millisecond
}

// Offset is how far a partition has been worked off.
type Offset struct {
	Topic     string
	Partition int
	Next      int64       // offset of the first record not worked off
	Last      Fingerprint // of the last record worked off
	HasLast   bool        // false: none has been, Last is zero
	// EventTimes are those of the last records, at most MaxEventTimes of them, in ms
	// since 1970 UTC and in the order of the log. They make the partition's clock;
	// none: it has no clock yet.
	EventTimes []int64
	// Growing says that the state has more of the partition than the records below
	// Next: those of a block that gathers records still. Reading goes on at Next, so
	// that the block is made anew. Nil: there is no such block.
	Growing *Growing
}

// Growing is the part of a growing block that the state has.
type Growing struct {
	Next       int64   // offset of the first record that the state does not have
	Counts     Counts  // of the records from Offset.Next on; the totals do not have them
	EventTimes []int64 // as in Offset, of the records before Next
}

// MaxEventTimes is how many event times of a partition can be saved.
const MaxEventTimes = 16

// Counts are totals since the file was made.
type Counts struct {
	Records, Tombstones, RejectedRecords, DeadLetters, SkippedRecords int64
	Rows, ZeroWeightRows, RejectedRows                                int64
	BlocksAdded, BlocksRetired, BlocksReplaced                        int64
}

// Block is a live block.
type Block struct {
	Entry   retire.Entry // its time is kept to the millisecond
	Summary *incremental.Summary
	Part    *sample.Part // nil: it has none
}

// Part is what the row sample keeps of a live block.
type Part struct {
	ID   string
	Part *sample.Part
}

// Change is what a Save changes. The features may be others than those of the
// last save, or none, where no block stays in the file that is not put.
type Change struct {
	Delete  []string // blocks that are not live any more; those not in the file are passed over
	Put     []Block  // new, or in the place of one of the same id; done after Delete
	Offsets []Offset // the ones that have moved
	Parts   []Part   // new ones of blocks that are live after the change; done last
	// Folds are the sums of the live blocks of each fold; nil among them: it is
	// as it was at the last save. Folds beyond them are deleted.
	Folds []*incremental.State
	// Epochs are those that there are after the change; others are deleted, with
	// all that is of them. Done last.
	Epochs []EpochChange

	// The rest is saved as it is.
	Horizon retire.Rank
	Counts  Counts
	State   *incremental.State // the sum of all live blocks after the change; nil, or over no features: they are not fixed yet
	Epoch   uint32             // in use, of the Epochs: it has all live blocks; 0: the features are
	Retired int                // explicit retirements in the change: of blocks that are to be forgotten
	// StaleBases counts the bases that go with the change and were made of such blocks.
	// They may never have been in the file.
	StaleBases int
	SavedAt    time.Time // kept to the millisecond
}

// Contents is what a file holds, but for the summaries and the parts.
type Contents struct {
	Settings
	Member   Member             // of the process that had this file open last, as far as it is known; a copy has none
	Epochs   []EpochContents    // by number
	Epoch    uint32             // in use; 0: the features
	Version  int                // of the format
	Features []string           // nil: not fixed yet
	State    *incremental.State // nil: the features are not fixed yet
	Folds    []*incremental.State
	Entries  []retire.Entry // in the order of their ids
	Offsets  []Offset
	Horizon  retire.Rank
	Counts   Counts
	SavedAt  time.Time // UTC; zero: nothing was saved yet

	// Uncompacted is when the oldest explicitly retired block, or basis that was made of
	// one, has left the file since it was compacted; zero: none has. It may still be read
	// off the file.
	Uncompacted time.Time
	// Missed is how many explicit retirements were saved under the file's name that
	// the file does not have, as an older copy does not. Blocks may be live again that
	// were retired. LastRetired is the time of the last of them.
	Missed      int64
	LastRetired time.Time
	Keyed       bool // the file is under a key

	retirements int64 // explicit ones, that the file has
}

// MaxID is the length in bytes up to which block ids can be saved: that of the
// longest key that bbolt takes, less the number of an epoch.
const MaxID = bbolt.MaxKeySize - 4

// lockTimeout is how long to wait for another process to let go of a file: a
// look at the file should not keep a daemon from starting.
const lockTimeout = 500 * time.Millisecond

const (
	// mapped is the address space in which a file can grow before it is mapped
	// anew. That comes with a copy of all that a transaction is about to write.
	mapped = 256 << 20
	// growth is by how much files grow at a time, which is not written to disk.
	growth = 64 << 10
)

var (
	// ErrNotFound says that a block is not in the file.
	ErrNotFound = errors.New("no such block in the snapshot")

	// ErrInUse says that another process has the file open: streamd runs on
	// it, or somebody looks at it.
	ErrInUse = errors.New("in use by another process")

	// ErrNotSnapshot says that a file is none of ours, or nothing of it is left.
	ErrNotSnapshot = errors.New("not a streamd snapshot")

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

// A VersionError says that a file was written by a newer program.
type VersionError struct {
	Version   int    // of the file
	Supported int    // the newest that this program knows
	Program   string // the oldest streamd that can read the file
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it has format %d, this program knows formats up to %d: use streamd %s or later", e.Version, e.Supported, e.Program)
}

// A ChecksumError says that what is in a file is not what was written.
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

// Store is an open file.
type Store struct {
	path     string
	target   string // path, or the file that it is a link to
	key      *Key
	features []string // as saved; nil: not fixed yet

	writing sync.Mutex
	failed  bool // the last transaction: what can be read of the file may not be on the disk
	// With a key, the sum of the file's values. After a transaction that has failed the
	// file may have either.
	sum, failedSum valueSum
	retired        retirements // in the file beside it

	swap sync.RWMutex // of what follows, by Compact
	db   *bbolt.DB
	data *os.File // bbolt's
	file fileID
}

// Open opens a file for writing and reads its contents, or makes an empty one
// where there is none. A file in which nothing was saved yet takes the settings.
// The error is ErrInUse, ErrNotSnapshot, ErrKeyNeeded, a
// *SettingsError, a *VersionError, a *ChecksumError, or comes from the file
// system.
func Open(path string, s Settings) (*Store, *Contents, error) { return (*Key)(nil).Open(path, s) }

// OpenReadOnly opens a file that is there for reading, whatever its settings and
// without checking its MAC. Save fails on it. The errors are those of Open.
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
		// Nothing is lost that way, and whoever has mistyped a topic can go on.
		contents.Settings = s
		if err := store.update(func(w *writer) error { return w.putSettings(s) }); err != nil {
			store.Close()
			return nil, nil, openError(path, err)
		}
	}
	for _, setting := range []SettingsError{
		{"topic", contents.Topic, s.Topic},
		{"unit", contents.Unit, s.Unit},
	} {
		if setting.Saved != setting.Configured {
			store.Close()
			return nil, nil, fmt.Errorf("open snapshot %s: %w", path, &setting)
		}
	}
	return store, contents, nil
}

func (k *Key) open(path string, readOnly bool) (*Store, *Contents, error) {
	s, err := k.openFile(path, readOnly)
	if err != nil {
		return nil, nil, openError(path, err)
	}
	var contents *Contents
	err = s.view(func(tx *bbolt.Tx) error {
		contents, err = readContents(tx, s.file, func(err error) error { return err })
		return err
	})
	if err == nil {
		err = s.compareRetired(contents, readOnly)
	}
	if err != nil {
		s.Close()
		return nil, nil, openError(path, err)
	}
	s.features = contents.Features
	return s, contents, nil
}

func openError(path string, err error) error {
	if damage := (*ChecksumError)(nil); errors.As(err, &damage) {
		return fmt.Errorf("open snapshot %s: %w (restore a copy, or move the file away to learn from the log anew)", path, err)
	}
	return fmt.Errorf("open snapshot %s: %w", path, err)
}

// openFile opens a file whose pages and format version are good.
//
// It opens the file twice when it is to be written, since bbolt would otherwise
// trust the pages before they are checked; and they can only be checked once
// bbolt has locked the file.
func (k *Key) openFile(path string, readOnly bool) (*Store, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		return nil, fmt.Errorf("%w but a folder", ErrNotSnapshot)
	} else if info.Size() == 0 {
		return nil, fmt.Errorf("%w but an empty file", ErrNotSnapshot)
	} else if info.Size() < 2<<12 { // bytes; without room for the two meta pages bbolt's error is one of its own
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
	s := &Store{db: db, data: file, path: path, target: path, key: k}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		s.target = target
	}
	if err := s.prepare(readOnly); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// prepare makes a file whose pages are good ready for use.
func (s *Store) prepare(readOnly bool) error {
	info, err := s.data.Stat()
	if err != nil {
		return err
	}
	s.file = idOf(info)
	if s.key != nil || !readOnly {
		if err := s.view(func(tx *bbolt.Tx) (err error) {
			s.sum, err = s.key.authenticate(tx)
			return err
		}); err != nil {
			return err
		}
		if s.key != nil { // all of the file was read
			s.forget()
		}
	}
	if readOnly {
		return nil
	}
	// A crash may have left a copy that was to replace the file.
	if err := removeIfThere(compacting(s.target)); err != nil {
		return err
	}
	// The file may have got its name just now, from create or from who restores a copy.
	if err := s.settle(); err != nil {
		return err
	}
	return s.bringUpToDate()
}

// settle puts on the disk the state that a file is read as having. The disk may have
// the one before it: whoever saved was killed before the last sync, or was told that it
// failed. The next transaction overwrites pages of that one, and a loss of power in the
// middle of it would leave neither. The system takes what it could not write for
// written, so a sync alone is not enough; but all pages that a meta page leads to had
// been synced before that was written. The folder is synced too, since the file may
// have got its name just now.
func (s *Store) settle() error {
	c := pageCheck{file: s.data, size: int64(s.db.Info().PageSize)}
	meta, at, err := c.meta()
	if err != nil {
		return err
	}
	if _, err := s.data.WriteAt(meta, at); err != nil {
		return err
	}
	if err := s.data.Sync(); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(s.target))
}

// bringUpToDate writes only where there is something to do.
func (s *Store) bringUpToDate() error {
	var found uint32
	err := s.view(func(tx *bbolt.Tx) (err error) {
		found, _, err = readFormat(tx)
		return err
	})
	if err != nil || found == version {
		return err
	}
	return s.update(migrate)
}

// openBolt opens a file that exists, under a lock.
func openBolt(path string, readOnly bool) (db *bbolt.DB, file *os.File, err error) {
	err = guard(func() (err error) {
		db, err = bbolt.Open(path, 0, &bbolt.Options{
			Timeout:         lockTimeout,
			ReadOnly:        readOnly,
			FreelistType:    bbolt.FreelistMapType, // long runs are found without a search
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
		if errors.Is(err, ErrReplaced) { // while it was waited for
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
		file.Close() // and with it the lock, also where bbolt did not get that far
	}
	return nil, nil, err
}

// create makes an empty file. It comes into being under its name with all its
// contents, and never in the place of another. openFile syncs the name.
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
	store := &Store{db: db, data: file, path: temporary, key: k}
	err = store.update(func(w *writer) error { return initialise(w, s) })
	if err := cmp.Or(err, store.Close()); err != nil {
		return err
	}
	// A link does what a rename would, but fails when somebody was quicker.
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

// guard runs f and makes an error of a panic: bbolt panics on pages that make
// no sense, and reads its file through a mapping, where a bad sector or a file
// cut short while it is open shows as a memory fault.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &ChecksumError{Reason: fmt.Sprint(r)}
		}
	}()
	return f()
}

// checkName says whether an open file still has its name.
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
	w := new(writer)
	defer w.close() // after the transaction
	err := guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			if w.tx = tx; s.failed {
				if err := s.settle(); err != nil {
					return err
				}
			}
			if s.key != nil {
				if err := s.findSum(tx); err != nil {
					return err
				}
				w.summer = newSummer(s.key, s.sum)
			}
			if err := f(w); err != nil || w.summer == nil {
				return err
			}
			return w.putMAC()
		})
	})
	if err == nil { // what was written is lost if the file is nobody's any more
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

// findSum finds out, after a transaction that has failed, whether the file is as it was
// before or after it.
func (s *Store) findSum(tx *bbolt.Tx) error {
	if !s.failed {
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
	return guard(func() error {
		tx, err := s.begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		return f(tx)
	})
}

// begin begins to read the file. When it is compacted meanwhile, the transaction goes
// on with the file as it was.
func (s *Store) begin() (*bbolt.Tx, error) {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.db.Begin(false)
}

// Close closes the file. It waits for what is written, and for calls of Summary and
// Summaries.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.db.Close()
}

// emptyDigest is that of a state without rows.
var emptyDigest = incremental.NewState(nil).Digest()

// SaveInfo says what a Save has done.
type SaveInfo struct {
	Bytes     int64 // written
	FileBytes int64 // size of the file
}

// Save writes a change and returns when it is on the disk. See the package
// comment for what holds after an error.
//
// Save refuses a change that does not fit what is in the file, for one whose
// live blocks do not have as many rows as its state; such an error names the
// first thing found and is a bug of the caller.
func (s *Store) Save(c Change) (SaveInfo, error) {
	p, err := s.Prepare(c)
	if err != nil {
		return SaveInfo{}, err
	}
	return p.Save()
}

// Prepared is a change whose sums are encoded: they may go on changing while it is
// saved.
type Prepared struct {
	store    *Store
	change   Change
	features []string // nil: there is no state
	state    *sums    // nil: there is none
	folds    [][]byte // nil among them: as at the last save
	epochs   []preparedEpoch
}

// sums is a State in its encoding.
type sums struct {
	rows   int64
	digest [sha256.Size]byte
	value  []byte // to be sealed
}

func encodeSums(s *incremental.State) *sums {
	return &sums{rows: s.Rows(), digest: s.Digest(), value: s.AppendBinary(frame())}
}

func encodeFolds(folds []*incremental.State) [][]byte {
	values := make([][]byte, len(folds))
	for i, s := range folds {
		if s != nil {
			values[i] = s.AppendBinary(frame())
		}
	}
	return values
}

// Prepare is the first part of Save, and Prepared.Save is the other. The blocks, the
// parts and what else is immutable are not copied. One change is to be saved, or
// have failed, before the next one is prepared.
func (s *Store) Prepare(c Change) (*Prepared, error) {
	if c.State != nil && len(c.State.Features()) == 0 {
		c.State = nil
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("save snapshot %s: %w", s.path, err)
	}
	p := &Prepared{store: s, change: c, folds: encodeFolds(c.Folds)}
	if c.State != nil {
		p.features, p.state = c.State.Features(), encodeSums(c.State)
	}
	for _, e := range c.Epochs {
		p.epochs = append(p.epochs, preparedEpoch{
			Epoch: e.Epoch, sources: e.Sources, stale: e.Stale, put: e.Put, state: encodeSums(e.State), folds: encodeFolds(e.Folds),
		})
	}
	p.change.State, p.change.Folds, p.change.Epochs = nil, nil, nil // they are the caller's
	return p, nil
}

// Save writes the change and returns when it is on the disk.
func (p *Prepared) Save() (SaveInfo, error) {
	info, err := p.save()
	if err != nil {
		return SaveInfo{}, fmt.Errorf("save snapshot %s: %w", p.store.path, err)
	}
	return info, nil
}

func (p *Prepared) save() (info SaveInfo, err error) {
	s, c := p.store, &p.change
	next := head{savedAt: c.SavedAt, horizon: c.Horizon, counts: c.Counts, digest: emptyDigest}
	rows := int64(0)
	if p.state != nil {
		next.hasState, next.digest, rows = true, p.state.digest, p.state.rows
	}
	anew := !slices.Equal(p.features, s.features)
	put := byID(c.Put, func(b *Block) string { return b.Entry.ID })
	for i := 1; i < len(put); i++ {
		if id := put[i].Entry.ID; id == put[i-1].Entry.ID {
			return info, fmt.Errorf("block %q is put twice", id)
		}
	}
	parts := byID(c.Parts, func(p *Part) string { return p.ID })
	err = s.update(func(w *writer) error {
		tx := w.tx
		old, err := readHead(tx)
		if err != nil {
			return err
		}
		next.blocks, next.offsets, next.rows = old.blocks, old.offsets, old.rows
		next.parts, next.folds = old.parts, old.folds
		next.retirements, next.uncompacted = old.retirements, old.uncompacted
		if c.Retired > 0 {
			next.retirements += int64(c.Retired)
		}
		if c.Retired+c.StaleBases > 0 && next.uncompacted.IsZero() {
			next.uncompacted = c.SavedAt
		}
		w.head = &next
		if w.epochs, err = readEpochHeads(tx, version); err != nil {
			return err
		}
		for _, id := range slices.Sorted(slices.Values(c.Delete)) {
			if err := w.delete(id); err != nil {
				return err
			}
		}
		blocks := finder{cursor: tx.Bucket(bucketBlocks).Cursor()}
		for _, b := range put {
			if err := w.put(b, blocks.find(b.Entry.ID)); err != nil {
				return err
			}
		}
		if anew && next.blocks.n > int64(len(put)) {
			return fmt.Errorf("features %q were saved, now they are %q, and blocks would stay as they were", s.features, p.features)
		}
		for _, p := range parts {
			if tx.Bucket(bucketBlocks).Get([]byte(p.ID)) == nil {
				return fmt.Errorf("block %q has a part but is not live", p.ID)
			}
			w.forgetPart(p.ID)
			if err := w.putPart(p.ID, p.Part); err != nil {
				return err
			}
		}
		for _, o := range c.Offsets {
			if err := w.putOffset(o); err != nil {
				return err
			}
		}
		if err := w.putSums(bucketFolds, nil, &next.folds, 0, p.folds); err != nil {
			return err
		}
		switch {
		case p.state == nil:
			err = tx.Bucket(bucketState).Delete(keyState)
		case anew || !old.hasState || old.digest != next.digest:
			err = w.putValue(bucketState, keyState, p.state.value)
		}
		if err != nil {
			return err
		}
		if rows != next.rows {
			return fmt.Errorf("the state has %d rows, its live blocks %d", rows, next.rows)
		}
		if err := w.putEpochs(p.epochs, c.Epoch); err != nil {
			return err
		}
		if err := w.putHead(); err != nil {
			return err
		}
		tx.OnCommit(func() {
			stats := tx.Stats()
			info.Bytes = stats.GetPageAlloc()
		})
		return nil
	})
	if err == nil && c.Retired > 0 {
		err = s.keepRetired(retirements{next.retirements, c.SavedAt})
	}
	if err != nil {
		return info, err
	}
	s.features = p.features
	if file, err := os.Stat(s.path); err == nil {
		info.FileBytes = file.Size()
	}
	s.forget()
	return info, nil
}

// byID lists what has ids in the order of these, which is how bbolt takes keys fastest.
func byID[T any](all []T, id func(*T) string) []*T {
	sorted := make([]*T, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortFunc(sorted, func(a, b *T) int { return strings.Compare(id(a), id(b)) })
	return sorted
}

// check finds what could be written but not be read again.
func (c *Change) check() error {
	var now []string
	if c.State != nil {
		now = c.State.Features()
	}
	if err := checkPosition(c.Horizon.Position); err != nil {
		return fmt.Errorf("the horizon: %w", err)
	}
	for i := range c.Put {
		e, summary := &c.Put[i].Entry, c.Put[i].Summary
		switch err := checkPosition(e.Position); {
		case e.ID == "":
			return errors.New("a block without an id")
		case len(e.ID) > MaxID:
			return fmt.Errorf("block %.40q…: its id has %d bytes, more than %d", e.ID, len(e.ID), MaxID)
		case err != nil:
			return fmt.Errorf("block %q: %w", e.ID, err)
		case c.State == nil:
			return fmt.Errorf("block %q without a state", e.ID)
		case summary.Features() != len(now):
			return fmt.Errorf("block %q has %d features, the state %d", e.ID, summary.Features(), len(now))
		case summary.Rows() != e.Rows:
			return fmt.Errorf("block %q has %d rows in the ledger, its summary %d", e.ID, e.Rows, summary.Rows())
		}
		if p := c.Put[i].Part; p != nil && (p.Features() != summary.Features() || p.Rows() != e.Rows) {
			return fmt.Errorf("block %q has %d rows of %d features, its part %d of %d", e.ID, e.Rows, len(now), p.Rows(), p.Features())
		}
	}
	for _, p := range c.Parts {
		if p.Part == nil || p.Part.Features() != len(now) {
			return fmt.Errorf("block %q: its part does not fit the %d features", p.ID, len(now))
		}
	}
	for i, s := range c.Folds {
		if s != nil && !slices.Equal(s.Features(), now) {
			return fmt.Errorf("fold %d has features %q, the state %q", i, s.Features(), now)
		}
	}
	if err := c.checkEpochs(); err != nil {
		return err
	}
	for _, o := range c.Offsets {
		if err := checkPosition(incremental.Position{Topic: o.Topic, Partition: o.Partition, Offset: o.Next}); err != nil {
			return fmt.Errorf("offset: %w", err)
		}
		n := len(o.EventTimes)
		if g := o.Growing; g != nil {
			if g.Next < o.Next {
				return fmt.Errorf("offset of %s/%d: a growing block ends at %d, before %d", o.Topic, o.Partition, g.Next, o.Next)
			}
			n = max(n, len(g.EventTimes))
		}
		if n > MaxEventTimes {
			return fmt.Errorf("offset of %s/%d: %d event times, more than %d", o.Topic, o.Partition, n, MaxEventTimes)
		}
	}
	return nil
}

// SaveMember writes down who the process is in its consumer group, beside what Save
// does, and returns when it is on the disk.
func (s *Store) SaveMember(m Member) error {
	err := s.update(func(w *writer) error {
		return w.putValue(bucketMeta, keyMember, appendMember(frame(), m, s.file))
	})
	if err != nil {
		return fmt.Errorf("save the group's member in snapshot %s: %w", s.path, err)
	}
	return nil
}

// Summary reads the summary of a block. The error is ErrNotFound or a
// *ChecksumError.
func (s *Store) Summary(id string) (summary *incremental.Summary, err error) {
	err = s.view(func(tx *bbolt.Tx) (err error) {
		summary, err = readBlockSummary(tx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read block %s from snapshot %s: %w", id, s.path, err)
	}
	return summary, nil
}

// Part reads the part of a block; nil: it has none. The error is a
// *ChecksumError.
func (s *Store) Part(id string) (p *sample.Part, err error) {
	err = s.view(func(tx *bbolt.Tx) (err error) {
		p, err = readPart(tx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read block %s from snapshot %s: %w", id, s.path, err)
	}
	return p, nil
}

// Parts calls f with every part, in the order of the ids. f must not call
// Save.
func (s *Store) Parts(f func(id string, p *sample.Part)) error {
	type part struct {
		id   string
		part *sample.Part
	}
	defer s.forget()
	const stretch = 1000 // decoded at a time: f runs outside of the guard, its panics are not damage
	var found []part
	for from := []byte{}; ; {
		found = found[:0]
		err := s.view(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(bucketParts)
			if bucket == nil { // version 1
				return nil
			}
			cursor := bucket.Cursor()
			for key, value := cursor.Seek(from); key != nil && len(found) < stretch; key, value = cursor.Next() {
				p, err := decodePart(key, value)
				if err != nil {
					return err
				}
				found = append(found, part{string(key), p})
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the parts from snapshot %s: %w", s.path, err)
		}
		for _, p := range found {
			f(p.id, p.part)
		}
		if len(found) < stretch {
			return nil
		}
		from = append([]byte(found[stretch-1].id), 0)
	}
}

// Summaries calls f with every live block, in the order of the ids, as they
// are at the start of the call, until f fails. f must not call Save: it could
// wait for Summaries to end.
func (s *Store) Summaries(f func(retire.Entry, *incremental.Summary) error) (err error) {
	fault := func(err error) error { return fmt.Errorf("read the blocks from snapshot %s: %w", s.path, err) }
	tx, err := s.begin()
	if err != nil {
		return fault(err)
	}
	defer tx.Rollback()
	cursor := tx.Bucket(bucketBlocks).Cursor()
	step := cursor.First
	for {
		var key []byte
		var e savedBlock
		var summary *incremental.Summary
		// f runs outside of the guard: its panics are not damage.
		err := guard(func() (err error) {
			var value []byte
			if key, value = step(); key == nil {
				return nil
			}
			if e, err = decodeBlock(string(key), value); err == nil {
				summary, err = readSummary(tx, e)
			}
			return err
		})
		if err != nil {
			return fault(err)
		}
		if key == nil {
			return nil
		}
		if err := f(e.Entry, summary); err != nil {
			return err
		}
		step = cursor.Next
	}
}

// readContents reads all but the summaries and the parts. note hears of every error, and
// whether there is none, and says whether to go on without what could not be read.
func readContents(tx *bbolt.Tx, file fileID, note func(error) error) (*Contents, error) {
	found, _, err := readFormat(tx)
	if err != nil {
		return nil, err
	}
	c := &Contents{Version: int(found)}
	settings, err := readSettings(tx)
	if err := note(err); err != nil {
		return nil, err
	}
	c.Settings = settings
	c.Member, err = readMember(tx, file)
	if err := note(err); err != nil {
		return nil, err
	}
	want, headErr := readHead(tx)
	if err := note(headErr); err != nil {
		return nil, err
	}
	c.Horizon, c.Counts, c.SavedAt, c.Uncompacted = want.horizon, want.counts, want.savedAt, want.uncompacted
	c.retirements = want.retirements
	mac, err := readMAC(tx)
	if err := note(err); err != nil {
		return nil, err
	}
	c.Keyed = mac != nil
	if want.hasState {
		state, err := decodeState(bucketState, keyState, tx.Bucket(bucketState).Get(keyState), string(keyState))
		if err == nil && state.Digest() != want.digest {
			err = &ChecksumError{string(bucketState), string(keyState), "its digest is not the saved one"}
		}
		if err == nil {
			c.State, c.Features = state, state.Features()
		}
		if err := note(err); err != nil {
			return nil, err
		}
	}
	got, err := c.readBuckets(tx, want.blocks.n, note)
	if err != nil {
		return nil, err
	}
	if headErr != nil {
		return c, nil // noted
	}
	if found >= 3 {
		c.Epoch = want.epoch
		if c.Epochs, err = readEpochs(tx, uint32(found), &want, note); err != nil {
			return nil, err
		}
	}
	return c, c.compare(got, &want, note)
}

// readBuckets reads the ledger, the offsets and the folds, and looks at the parts. It
// returns what of the head can be read off them. Of blocks there should be so many.
func (c *Contents) readBuckets(tx *bbolt.Tx, blocks int64, note func(error) error) (*head, error) {
	// each reads the values of a bucket, and counts those that are good.
	each := func(name []byte, t *tally, read func(key, value []byte) error) error {
		bucket := tx.Bucket(name)
		if bucket == nil { // of a later version
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			if err := read(key, value); err != nil {
				return note(err)
			}
			t.add(value)
			return nil
		})
	}
	got := &head{}
	// A number that is none of a file of this size asks for no memory.
	c.Entries = slices.Grow(c.Entries, int(min(blocks, tx.Size()/leastBlock)))
	err := each(bucketBlocks, &got.blocks, func(key, value []byte) error {
		e, err := decodeBlock(string(key), value)
		if err != nil {
			return err
		}
		if n := len(c.Entries); n > 0 && c.Entries[n-1].Position.Topic == e.Position.Topic {
			e.Position.Topic = c.Entries[n-1].Position.Topic // one for all
		}
		got.rows += e.Rows
		c.Entries = append(c.Entries, e.Entry)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = each(bucketOffsets, &got.offsets, func(key, value []byte) error {
		o, err := decodeOffset(key, value)
		if err == nil {
			c.Offsets = append(c.Offsets, o)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(c.Offsets, func(a, b Offset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	err = each(bucketParts, &got.parts, func(key, value []byte) error {
		_, err := unseal(bucketParts, key, value)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, each(bucketFolds, &got.folds, func(key, value []byte) error {
		s, err := decodeState(bucketFolds, key, value, fmt.Sprintf("%x", key))
		if err == nil {
			c.Folds = append(c.Folds, s)
		}
		return err
	})
}

// compare notes where what was read is not what the head says.
func (c *Contents) compare(got, want *head, note func(error) error) error {
	var foldRows int64
	for _, s := range c.Folds {
		foldRows += s.Rows()
	}
	for _, f := range []struct {
		bucket []byte
		bad    bool
		reason string
	}{
		{bucketBlocks, got.blocks != want.blocks, fmt.Sprintf("there are %d blocks, %d were saved, or not these", got.blocks.n, want.blocks.n)},
		{bucketBlocks, got.rows != want.rows, fmt.Sprintf("the blocks have %d rows, %d were saved", got.rows, want.rows)},
		{bucketState, c.State != nil && c.State.Rows() != want.rows, fmt.Sprintf("the state has not the %d rows of the blocks", want.rows)},
		{bucketParts, got.parts != want.parts, fmt.Sprintf("there are %d parts, %d were saved, or not these", got.parts.n, want.parts.n)},
		{bucketFolds, got.folds != want.folds, fmt.Sprintf("there are %d folds, %d were saved, or not these", got.folds.n, want.folds.n)},
		{bucketFolds, got.folds.n > 0 && foldRows != want.rows, fmt.Sprintf("the folds have %d rows, the blocks %d", foldRows, want.rows)},
		{bucketOffsets, got.offsets != want.offsets, fmt.Sprintf("there are %d offsets, %d were saved, or not these", got.offsets.n, want.offsets.n)},
	} {
		if f.bad {
			if err := note(&ChecksumError{Bucket: string(f.bucket), Reason: f.reason}); err != nil {
				return err
			}
		}
	}
	return nil
}
