package daemon

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
	"streamd/cmd/streamd/daemon/events"
	"streamd/cmd/streamd/daemon/live"
	"streamd/cmd/streamd/daemon/witness"
	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/retire"
	"streamd/retire/receipt"
	"streamd/snapshot"
)

// receipts adds leaves to the log of receipts: with every save, in its transaction, one for each
// request, and one for each other way in which blocks have left or come back since the save before.
//
// The live set before and after a leaf is a function of the records below its offsets and of the
// leaves before it, so whoever reads the topic again can compute it. So a request's leaf follows
// leaves of what the control topic has moved.
//
// Methods belong to the loop, but for earlier.
type receipts struct {
	*core
	witnesses *witness.Witnesses
	retention *retention
	lists     *lists
	events    *events.Log
	version   string

	key     *receipt.Key // nil: there are no receipts
	locked  *os.File     // of the key, while the daemon runs
	search  sync.Mutex   // one caller at a time looks for an earlier request
	pending []*pendingReceipt
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

// pendingReceipt is a receipt that is not saved yet.
type pendingReceipt struct {
	live.Departure
	index    int64  // of its leaf, once it is saved
	settings []byte // text that the leaf has a hash of; nil: it is of a save, and nobody asks for it
}

// open reads the key, or makes it, and checks that the log continues the one that was saved last.
// saved is the contents of the snapshot.
func (r *receipts) open(store *snapshot.Store, saved *snapshot.Contents) (err error) {
	path := r.cfg.Receipts.KeyFile
	if path == "" {
		if saved.Log.Size > 0 {
			r.log.Warn().Int64("receipts", saved.Log.Size).Msg("the snapshot has receipts, and receipts.key_file is empty: no further ones are made")
		}
		return nil
	}
	if _, err := os.Stat(path); saved.Log.Size > 0 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("receipts.key_file: %s does not exist, and the snapshot has receipts under its key: put it back, or begin with a new snapshot and a new key, and keep %s, since the receipts so far are checked with it", path, receipt.PublicFile(path))
	}
	key, made, loose, err := receipt.OpenKey(path, r.cfg.Kafka.Topic)
	if err != nil {
		return fmt.Errorf("receipts.key_file: %w", err)
	}
	if made {
		r.log.Info().Str("file", path).Str("public", key.Public()).Msg("a key for receipts was made; give its public half to those who check them")
	}
	if loose {
		r.log.Warn().Str("file", path).Msg("others than its owner can read or change the key of the receipts: chmod 600 it")
	}
	if saved.Log.Size > 0 {
		head, err := receipt.OpenCheckpoint(saved.Log.Checkpoint, key.Public())
		if err != nil {
			return fmt.Errorf("receipts.key_file: %s is not the key of the receipts in the snapshot: %w", path, err)
		}
		r.saved = []savedLog{{0, head.Size, head.Root}} // the restored state has all changes
	}
	if err := store.CheckLog(key.Public()); err != nil {
		return err
	}
	if !made && saved.Log.Size == 0 {
		r.log.Warn().Str("file", path).Msg("the log of receipts begins under a key that was there before, and a key signs one log: if another snapshot has a log by this key, auditors and witnesses see a fork; give each snapshot a key of its own")
	}
	if saved.Log.Size > 0 {
		if err := begins(store, key); err != nil {
			return err
		}
	}
	r.key = key
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

// begin has the log begin with the live set of the snapshot, if it has none yet.
func (r *receipts) begin(saved *snapshot.Contents) {
	if r.key == nil || saved.Log.Size > 0 {
		return
	}
	p := &pendingReceipt{Departure: *r.live.Begun()}
	r.complete(&p.Departure)
	r.pending = append(r.pending, p)
}

// errKeyInUse says that two daemons would sign with one key.
var errKeyInUse = errors.New("another daemon signs with this key, and a key signs one log: give each snapshot a key of its own")

// lock keeps other daemons from the key, until unlock.
func (r *receipts) lock() (err error) {
	if r.key == nil {
		return nil
	}
	path := r.cfg.Receipts.KeyFile
	if r.locked, err = lockKey(path); err != nil {
		return fmt.Errorf("receipts.key_file: %s: %w", path, err)
	}
	return nil
}

func (r *receipts) unlock() error {
	f := r.locked
	if r.locked = nil; f == nil {
		return nil
	}
	return f.Close()
}

// add adds what blocks leave that have left at this moment.
func (r *receipts) add(left *live.Departure, principal string) *pendingReceipt {
	p := &pendingReceipt{Departure: *left}
	p.Principal = principal
	p.settings = r.complete(&p.Departure)
	r.pending = append(r.pending, p)
	return p
}

// addAsked is add for a request.
func (r *receipts) addAsked(left *live.Departure, by access.Caller, request *retire.Selector) *pendingReceipt {
	p, text := r.add(left, by.String()), requestText(request)
	p.Request = receipt.Commit(r.key.Salt(text), text)
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

// name tells who asked for a retirement where its receipts are, and the proofs and the salt with
// which they can be read. They are saved.
func (r *receipts) name(answer *httpapi.Retirement, left []*pendingReceipt, request *retire.Selector) {
	if r.key == nil {
		return
	}
	for _, p := range left {
		answer.Receipts = append(answer.Receipts, p.index)
	}
	answer.Request = requestText(request)
	salt := r.key.Salt(answer.Request)
	answer.RequestSalt = hex.EncodeToString(salt[:])
	answer.Settings = string(left[0].settings)
	r.prove(answer)
}

// prove gives the proofs of the keys of the listed blocks.
func (r *receipts) prove(answer *httpapi.Retirement) {
	if r.key == nil {
		return
	}
	for i := range answer.First {
		answer.First[i].Proof = hex.EncodeToString(r.key.ProveItemKey(answer.First[i].ID))
	}
}

// searchedLeaves bounds the leaves that earlier reads. They may be as many megabytes, with the
// proofs beside them.
const searchedLeaves = 10_000

// earlier says where the receipts of an earlier request of the same text are, for a caller whose
// answer was lost or came before the save, and the proofs of the keys that it names; "": there are
// none among the newest leaves. It does not need the loop.
func (r *receipts) earlier(ctx context.Context, request *retire.Selector, names []string) (string, error) {
	if r.key == nil {
		return "", nil
	}
	r.search.Lock()
	defer r.search.Unlock()
	head, err := r.store.LogHead()
	if err != nil {
		return "", err
	}
	text := requestText(request)
	hash := receipt.Commit(r.key.Salt(text), text)
	var found []int64
	var durable time.Time
	for i := head.Size - 1; i >= max(0, head.Size-searchedLeaves); i-- {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		leaf, err := r.store.Leaf(i)
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
		durable.Format(time.RFC3339Nano), found, text, r.key.Salt(text))
	for _, id := range names[:min(len(names), listedNames)] {
		if receipt.Keyed(id) {
			says += fmt.Sprintf(", proof of %s %x", id, r.key.ProveItemKey(id))
		}
	}
	return says, nil
}

// complete fills in the fields that all leaves have. It returns the text of the settings.
func (r *receipts) complete(l *live.Departure) (settings []byte) {
	settings = r.learner.Settings(r.live.Features().Names()).Text()
	l.Build, l.Topic, l.Settings, l.Scope = r.version, r.cfg.Kafka.Topic, sha256.Sum256(settings), r.scope(&leaving{l.Kind, l.Based, l.Latest})
	if n := r.live.Lacking(); l.Scope[receipt.Sample] == receipt.Done && n > 0 {
		l.Scope[receipt.Sample], l.Lacking = receipt.Partial, int64(n)
	}
	if l.Blocks > 0 && l.Kind != receipt.Restored && l.Kind != receipt.Returned {
		l.LogUntil = r.retention.until(l.Latest)
	}
	for _, o := range r.intake.Applied() {
		l.Offsets = append(l.Offsets, receipt.Next{Partition: uint32(o.Partition), Offset: o.Next})
	}
	return settings
}

// mostSaved bounds the states of the log that are kept for studies under way.
const mostSaved = 256

// keepSaved notes the state of the log after a save, whose last leaf is of so many moves.
func (r *receipts) keepSaved(moves, size int64, root tlog.Hash) {
	if n := len(r.saved); n > 0 {
		moves = max(moves, r.saved[n-1].moves)
	}
	if r.saved = append(r.saved, savedLog{moves, size, root}); len(r.saved) > mostSaved {
		r.saved = slices.Delete(r.saved, 1, 2) // models between the two name fewer leaves
	}
}

// stamp has a served value name the leaves of the log whose changes its state has.
func (r *receipts) stamp(s *model.Served) {
	i, _ := slices.BinarySearchFunc(r.saved, s.Moves+1, func(l savedLog, moves int64) int { return cmp.Compare(l.moves, moves) })
	if i == 0 {
		s.Receipts, s.Signed = 0, nil
		return
	}
	of, key, fingerprint := r.saved[i-1], r.key, s.Fingerprint
	s.Receipts, s.Signed = of.size, sync.OnceValues(func() (string, error) {
		signed, err := key.SignModel(of.size, of.root, fingerprint)
		return string(signed), err
	})
}

// lacks reports whether the log has leaves whose changes a served model does not have.
func (r *receipts) lacks(s *model.Served) bool {
	n := len(r.saved)
	return n > 0 && s.Receipts < r.saved[n-1].size
}

// addDepartures adds the leaves of the blocks that have left or come back since the last ones.
func (r *receipts) addDepartures() (added []*pendingReceipt) {
	if r.key == nil {
		return nil
	}
	for _, left := range r.live.TakeDepartures() {
		r.complete(&left)
		added = append(added, &pendingReceipt{Departure: left})
	}
	r.pending = append(r.pending, added...)
	return added
}

// grow begins the receipts of a save that begins now; nil: there are none.
func (r *receipts) grow(now time.Time) (*receipt.Growth, error) {
	if r.key == nil {
		return nil, nil
	}
	r.addDepartures()
	if len(r.pending) == 0 {
		return nil, nil
	}
	head, err := r.store.LogHead()
	if err != nil {
		return nil, err
	}
	if r.growth != nil && bytes.Equal(head.Checkpoint, r.growth.Checkpoint) { // the save that failed is on the disk
		if r.end(); len(r.pending) == 0 {
			return nil, nil
		}
	}
	var records []receipt.Record
	for _, p := range r.pending {
		p.Durable = now
		records = append(records, receipt.Record{Leaf: p.AppendBinary(nil), Change: p.Change})
	}
	r.growth, err = r.key.Grow(head.Size, r.store, records)
	r.growing = len(records)
	return r.growth, err
}

// succeeded notes that a save has succeeded. Only then is the head of a failed save sure to be on
// the disk, too, and witnesses may see it.
func (r *receipts) succeeded() {
	if r.end(); r.head.Size > 0 {
		r.witnesses.Saved(r.head)
		r.head = snapshot.LogHead{}
	}
}

// end notes that the file has the growth.
func (r *receipts) end() {
	if r.growth == nil {
		return
	}
	moves := int64(0)
	for i, p := range r.pending[:r.growing] {
		p.index, moves = r.growth.Size+int64(i), max(moves, p.Moves)
	}
	r.tell(r.growth.Size, r.pending[:r.growing])
	r.head = snapshot.LogHead{Size: r.growth.Size + int64(r.growing), Checkpoint: r.growth.Checkpoint}
	r.keepSaved(moves, r.head.Size, r.growth.Root)
	r.pending, r.growth = r.pending[r.growing:], nil
}

// tell tells of receipts that the file has now. first is the number of the first one.
func (r *receipts) tell(first int64, saved []*pendingReceipt) {
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
	r.events.Add(httpapi.Event{Type: httpapi.EventReceipt, Text: text, Receipts: e})
}

// errNoReceipts says that there is no log.
var errNoReceipts = fmt.Errorf("there are no receipts (receipts.key_file): %w", httpapi.ErrNoReceipt)
