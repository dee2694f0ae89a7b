// Package receipts adds leaves to the log of receipts (package retire/receipt) as blocks leave or
// come back, and proves them to those who ask.
//
//	receipts.go   leaves are made, and saved with what they are about
//	places.go     all places that rows of blocks can be in, and what a leaf and an answer say of each
//	retention.go  how long the log of the topic keeps records
//	proofs.go     checkpoints, receipts and tiles for those who check the log
//	keylock_*.go  one daemon at a time signs with a key
package receipts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/access"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/loop"
	"streamd/cmd/streamd/daemon/witness"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// Receipts adds leaves to the log of receipts: with every save, in its transaction, one for each
// request, and one for each other way in which blocks have left or come back since the save before.
//
// The live set before and after a leaf is a function of the records below its offsets and of the
// leaves before it, so whoever reads the topic again can compute it. So a request's leaf follows
// leaves of what the control topic has moved.
//
// Methods belong to the loop, but for Earlier.
type Receipts struct {
	*loop.Loop
	Proofs
	Witnesses *witness.Witnesses
	retention retention
	learned   func() []string // categories whose lists of values were learned
	version   string

	locked  *os.File         // of the key, while the daemon runs
	search  sync.Mutex       // one caller at a time looks for an earlier request
	Pending []*Leaf          // to be saved; tests of dishonest owners change them
	growth  *receipt.Growth  // of the save under way or of the last one that failed; nil: none
	growing int              // of pending, the leaves in growth
	head    snapshot.LogHead // of the log that the file has, and witnesses have not been shown; Size 0: none

	saved []savedLog // states of the log, by ascending moves
}

// savedLog is the log as a save left it.
type savedLog struct {
	moves int64 // live.Moves by the last of its leaves
	size  int64
	root  tlog.Hash
}

// Leaf is a receipt, which is to be saved or has been.
type Leaf struct {
	live.Departure
	Index    int64  // of its leaf, once it is saved
	settings []byte // text that the leaf has a hash of; nil: it is of a save, and nobody asks for it
}

// Open makes the receipts over a restored log. It reads the key, or makes it, and checks that the
// log continues the one that was saved last. saved is the contents of the snapshot. learned names
// the categories with learned lists.
func Open(c *loop.Loop, learned func() []string, version string, saved *snapshot.Contents) (r *Receipts, err error) {
	r = &Receipts{Loop: c, Proofs: Proofs{store: c.Store}, retention: retention{Environment: c.Environment}, learned: learned, version: version}
	if err := r.openKey(saved); err != nil {
		return nil, err
	}
	r.Witnesses, err = witness.New(r.Config.Receipts, r.Log, r.Store, saved.Log)
	return r, err
}

// openKey reads the key, or makes it, and checks that it is that of the log.
func (r *Receipts) openKey(saved *snapshot.Contents) error {
	path := r.Config.Receipts.KeyFile
	if path == "" {
		if saved.Log.Size > 0 {
			r.Log.Warn().Int64("receipts", saved.Log.Size).Msg("the snapshot has receipts, and receipts.key_file is empty: no further ones are made")
		}
		return nil
	}
	if _, err := os.Stat(path); saved.Log.Size > 0 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("receipts.key_file: %s does not exist, and the snapshot has receipts under its key: put it back, or begin with a new snapshot and a new key, and keep %s, since the receipts so far are checked with it", path, receipt.PublicFile(path))
	}
	key, made, loose, err := receipt.OpenKey(path, r.Config.Kafka.Topic)
	if err != nil {
		return fmt.Errorf("receipts.key_file: %w", err)
	}
	if made {
		r.Log.Info().Str("file", path).Str("public", key.Public()).Msg("a key for receipts was made; give its public half to those who check them")
	}
	if loose {
		r.Log.Warn().Str("file", path).Msg("others than its owner can read or change the key of the receipts: chmod 600 it")
	}
	if saved.Log.Size > 0 {
		head, err := receipt.OpenCheckpoint(saved.Log.Checkpoint, key.Public())
		if err != nil {
			return fmt.Errorf("receipts.key_file: %s is not the key of the receipts in the snapshot: %w", path, err)
		}
		r.saved = []savedLog{{0, head.Size, head.Root}} // the restored state has all changes
	}
	if err := r.Store.CheckLog(key.Public()); err != nil {
		return err
	}
	if !made && saved.Log.Size == 0 {
		r.Log.Warn().Str("file", path).Msg("the log of receipts begins under a key that was there before, and a key signs one log: if another snapshot has a log by this key, auditors and witnesses see a fork; give each snapshot a key of its own")
	}
	if saved.Log.Size > 0 {
		if err := begins(r.Store, key); err != nil {
			return err
		}
	}
	r.Key = key
	return nil
}

// begins checks that the first leaf of a log names the key of its items.
func begins(store *snapshot.Store, key *receipt.Key) error {
	text, err := store.Leaf(0)
	if err != nil {
		return err
	}
	leaf, err := receipt.DecodeLeaf(text)
	if err == nil && (leaf.Kind != receipt.Begun || leaf.VRF != key.VRF()) {
		err = errors.New("it does not name the key of the items that belongs to receipts.key_file")
	}
	if err != nil {
		return fmt.Errorf("receipt 0: %w", err)
	}
	return nil
}

// Begin has the log begin with the live set of the snapshot, if it has none yet.
func (r *Receipts) Begin(saved *snapshot.Contents) {
	if r.Key == nil || saved.Log.Size > 0 {
		return
	}
	p := &Leaf{Departure: *r.Live.Begun()}
	r.complete(&p.Departure)
	r.Pending = append(r.Pending, p)
}

// ErrKeyInUse says that two daemons would sign with one key.
var ErrKeyInUse = errors.New("another daemon signs with this key, and a key signs one log: give each snapshot a key of its own")

// Lock keeps other daemons from the key, until unlock.
func (r *Receipts) Lock() (err error) {
	if r.Key == nil {
		return nil
	}
	path := r.Config.Receipts.KeyFile
	if r.locked, err = lockKey(path); err != nil {
		return fmt.Errorf("receipts.key_file: %s: %w", path, err)
	}
	return nil
}

func (r *Receipts) Unlock() error {
	f := r.locked
	if r.locked = nil; f == nil {
		return nil
	}
	return f.Close()
}

// Add adds what blocks leave that have left at this moment.
func (r *Receipts) Add(left *live.Departure, principal string) *Leaf {
	p := &Leaf{Departure: *left}
	p.Principal = principal
	p.settings = r.complete(&p.Departure)
	r.Pending = append(r.Pending, p)
	return p
}

// AddAsked is add for a request.
func (r *Receipts) AddAsked(left *live.Departure, by access.Caller, request *retire.Selector) *Leaf {
	p, text := r.Add(left, by.String()), requestText(request)
	p.Request = receipt.Commit(r.Key.Salt(text), text)
	return p
}

// requestText is the text of a request that a leaf commits to.
func requestText(s *retire.Selector) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts, numbers and times that were read from JSON
	}
	return string(text)
}

// Name tells who asked for a retirement where its receipts are, and the proofs and the salt with
// which they can be read. They are saved.
func (r *Receipts) Name(answer *httpapi.Retirement, left []*Leaf, request *retire.Selector) {
	if r.Key == nil {
		return
	}
	for _, p := range left {
		answer.Receipts = append(answer.Receipts, p.Index)
	}
	answer.Request = requestText(request)
	salt := r.Key.Salt(answer.Request)
	answer.RequestSalt = hex.EncodeToString(salt[:])
	answer.Settings = string(left[0].settings)
	r.Prove(answer)
}

// Prove gives the proofs of the keys of the listed blocks.
func (r *Receipts) Prove(answer *httpapi.Retirement) {
	if r.Key == nil {
		return
	}
	for i := range answer.First {
		answer.First[i].Proof = hex.EncodeToString(r.Key.ProveItemKey(answer.First[i].ID))
	}
}

// searchedLeaves bounds the leaves that earlier reads. They may be as many megabytes, with the
// proofs beside them.
const searchedLeaves = 10_000

// Earlier says where the receipts of an earlier request of the same text are, for a caller whose
// answer was lost or came before the save, and the proofs of the keys that it names; "": there are
// none among the newest leaves. It does not need the loop.
func (r *Receipts) Earlier(ctx context.Context, request *retire.Selector, names []string) (string, error) {
	if r.Key == nil {
		return "", nil
	}
	r.search.Lock()
	defer r.search.Unlock()
	head, err := r.Store.LogHead()
	if err != nil {
		return "", err
	}
	text := requestText(request)
	hash := receipt.Commit(r.Key.Salt(text), text)
	var found []int64
	var durable time.Time
	for i := head.Size - 1; i >= max(0, head.Size-searchedLeaves); i-- {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		leaf, err := r.Store.Leaf(i)
		if err != nil {
			return "", err
		}
		var l *receipt.Leaf
		if bytes.Contains(leaf, hash[:]) {
			if l, err = receipt.DecodeLeaf(leaf); err != nil {
				return "", err
			}
		}
		if l == nil && found != nil {
			break // the leaves of one request are together
		}
		if l != nil {
			found, durable = append(found, i), l.Durable
		}
	}
	if found == nil {
		return "", nil
	}
	slices.Reverse(found)
	says := fmt.Sprintf("an earlier request of the same text retired it, durable at %s: receipts %d of %s, request salt %x",
		durable.Format(time.RFC3339Nano), found, text, r.Key.Salt(text))
	for _, id := range names {
		if receipt.Keyed(id) {
			says += fmt.Sprintf(", proof of %s %x", id, r.Key.ProveItemKey(id))
		}
	}
	return says, nil
}

// LogUntil is the time by which the log drops records of that event time, or the zero time.
func (r *Receipts) LogUntil(latest time.Time) time.Time { return r.retention.until(latest) }

// FollowRetention reads ever again how long the log keeps records, until ctx ends.
func (r *Receipts) FollowRetention(ctx context.Context) { r.retention.follow(ctx) }

// complete fills in the fields that all leaves have. It returns the text of the settings.
func (r *Receipts) complete(l *live.Departure) (settings []byte) {
	settings = r.Learner.Settings(r.Live.Features().Names()).Text()
	l.Build, l.Topic, l.Settings, l.Scope = r.version, r.Config.Kafka.Topic, sha256.Sum256(settings), r.scope(&leaving{l.Kind, l.Based, l.Latest})
	if n := r.Live.Lacking(); l.Scope[receipt.Sample] == receipt.Done && n > 0 {
		l.Scope[receipt.Sample], l.Lacking = receipt.Partial, int64(n)
	}
	if l.Blocks > 0 && l.Kind != receipt.Restored && l.Kind != receipt.Returned {
		l.LogUntil = r.LogUntil(l.Latest)
	}
	for _, o := range r.Intake.Applied() {
		l.Offsets = append(l.Offsets, receipt.Next{Partition: uint32(o.Partition), Offset: o.Next})
	}
	return settings
}

// mostSaved bounds the states of the log that are kept for studies under way.
const mostSaved = 256

// keepSaved notes the state of the log after a save, whose last leaf is of so many moves.
func (r *Receipts) keepSaved(moves, size int64, root tlog.Hash) {
	if n := len(r.saved); n > 0 {
		moves = max(moves, r.saved[n-1].moves)
	}
	if r.saved = append(r.saved, savedLog{moves, size, root}); len(r.saved) > mostSaved {
		r.saved = slices.Delete(r.saved, 1, 2) // models between the two name fewer leaves
	}
}

// Stamp has a served value name the leaves of the log whose changes its state has.
func (r *Receipts) Stamp(s *model.Served) {
	i, _ := slices.BinarySearchFunc(r.saved, s.Moves+1, func(l savedLog, moves int64) int { return cmp.Compare(l.moves, moves) })
	if i == 0 {
		s.Receipts, s.Signed = 0, nil
		return
	}
	of, key, fingerprint := r.saved[i-1], r.Key, s.Fingerprint
	s.Receipts, s.Signed = of.size, sync.OnceValues(func() (string, error) {
		signed, err := key.SignModel(of.size, of.root, fingerprint)
		return string(signed), err
	})
}

// Lacks reports whether the log has leaves whose changes a served model does not have.
func (r *Receipts) Lacks(s *model.Served) bool {
	n := len(r.saved)
	return n > 0 && s.Receipts < r.saved[n-1].size
}

// AddDepartures adds the leaves of the blocks that have left or come back since the last ones.
func (r *Receipts) AddDepartures() (added []*Leaf) {
	if r.Key == nil {
		return nil
	}
	for _, left := range r.Live.TakeDepartures() {
		r.complete(&left)
		added = append(added, &Leaf{Departure: left})
	}
	r.Pending = append(r.Pending, added...)
	return added
}

// Grow begins the receipts of a save that begins now; nil: there are none.
func (r *Receipts) Grow(now time.Time) (*receipt.Growth, error) {
	if r.Key == nil {
		return nil, nil
	}
	r.AddDepartures()
	if len(r.Pending) == 0 {
		return nil, nil
	}
	head, err := r.Store.LogHead()
	if err != nil {
		return nil, err
	}
	if r.growth != nil && bytes.Equal(head.Checkpoint, r.growth.Checkpoint) { // the save that failed is on the disk
		if r.end(); len(r.Pending) == 0 {
			return nil, nil
		}
	}
	var records []receipt.Record
	for _, p := range r.Pending {
		p.Durable = now
		records = append(records, receipt.Record{Leaf: p.AppendBinary(nil), Change: p.Change})
	}
	r.growth, err = r.Key.Grow(head.Size, r.Store, records)
	r.growing = len(records)
	return r.growth, err
}

// Succeeded notes that a save has succeeded. Only then is the head of a failed save sure to be on
// the disk, too, and witnesses may see it.
func (r *Receipts) Succeeded() {
	if r.end(); r.head.Size > 0 {
		r.Witnesses.Saved(r.head)
		r.head = snapshot.LogHead{}
	}
}

// end notes that the file has the growth.
func (r *Receipts) end() {
	if r.growth == nil {
		return
	}
	moves := int64(0)
	for i, p := range r.Pending[:r.growing] {
		p.Index, moves = r.growth.Size+int64(i), max(moves, p.Moves)
	}
	r.tell(r.growth.Size, r.Pending[:r.growing])
	r.head = snapshot.LogHead{Size: r.growth.Size + int64(r.growing), Checkpoint: r.growth.Checkpoint}
	r.keepSaved(moves, r.head.Size, r.growth.Root)
	r.Pending, r.growth = r.Pending[r.growing:], nil
}

// tell tells of receipts that the file has now. first is the number of the first one.
func (r *Receipts) tell(first int64, saved []*Leaf) {
	e := &httpapi.ReceiptsEvent{First: first, Size: first + int64(len(saved)), Blocks: map[string]int64{}}
	text := fmt.Sprintf("receipt %d was saved", first)
	if len(saved) > 1 {
		text = fmt.Sprintf("receipts %d to %d were saved", first, e.Size-1)
	}
	for _, p := range saved {
		if p.Kind != receipt.Begun {
			e.Blocks[p.Kind.String()] += p.Blocks + p.Passing
		}
	}
	for i, kind := range slices.Sorted(maps.Keys(e.Blocks)) {
		text += fmt.Sprintf("%s %s: %d", [2]string{"; blocks", ","}[min(i, 1)], kind, e.Blocks[kind])
	}
	if len(e.Blocks) == 0 {
		text += ", which begins the log"
	}
	r.EventLog.Add(httpapi.Event{Type: httpapi.EventReceipt, Text: text, Receipts: e})
}
