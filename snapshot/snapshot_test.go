package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/retire"
)

var settings = Settings{Topic: "orders", Unit: "message"}

// block is a live block with its summary in the features.
type block struct {
	Block
	Summary *incremental.Summary
}

// put adds blocks to a change, with their summaries in the features.
func (c *Change) put(blocks ...block) {
	for _, b := range blocks {
		c.Put = append(c.Put, b.Block)
		c.Spaces[0].Put = append(c.Spaces[0].Put, Summary{b.Entry.ID, b.Summary})
	}
}

// changeTo is a change to a state and folds of the features that puts blocks.
func changeTo(state *incremental.State, folds []*incremental.State, blocks ...block) Change {
	c := Change{Spaces: []SpaceChange{{State: state, Folds: folds}}}
	c.put(blocks...)
	return c
}

// randomBlock is a block of m rows of n numbers in two classes.
func randomBlock(r *rand.Rand, id string, m, n int) block {
	columns := make([]gram.Column, n)
	for j := range columns {
		xs := make([]float64, m)
		for i := range xs {
			xs[i] = r.NormFloat64() * math.Exp2(float64(r.IntN(40)-20))
		}
		columns[j] = gram.ColumnOf(xs)
	}
	codes := make([]int32, m)
	for i := range codes {
		codes[i] = int32(r.IntN(2))
	}
	var z incremental.Summariser
	rows := &incremental.Block{Columns: columns, Classes: []string{"-1", "1"}, Codes: codes}
	s, err := z.Summarise(rows)
	if err != nil {
		panic(err)
	}
	var part *sample.Part
	if r.IntN(4) > 0 {
		part = takePart(rows, s)
	}
	first := r.Int64N(1 << 40)
	var header retire.HeaderHash
	if first%2 == 0 {
		header = retire.HashHeader("tenant", []byte{byte(first)})
	}
	var key [sha256.Size]byte
	if first%3 == 0 {
		key = sha256.Sum256([]byte(id))
	}
	var carrier retire.Carrier
	if first%5 == 0 {
		carrier = retire.Carrier{Sums: true, Partition: r.Int32N(8), Offset: first / 5}
	}
	return block{Block{
		Entry: retire.Entry{
			ID:       id,
			Position: incremental.Position{Topic: "orders", Partition: r.IntN(8), Offset: first},
			Last:     first + r.Int64N(100),
			Time:     time.UnixMilli(r.Int64N(1 << 41)).UTC(),
			Rows:     s.Rows(),
			Header:   header,
			ItemKey:  key,
			Carrier:  carrier,
		},
		Part: part,
	}, s}
}

// takePart takes the part of a block under fixed settings.
func takePart(b *incremental.Block, s *incremental.Summary) *sample.Part {
	var t sample.Taker
	return t.Take(b, s.Digest(), s.Totals(), sample.New(sample.Settings{Rows: 100, Seed: 1}, func(func(string) bool) {}).Levels())
}

// folds is the number of a world's folds.
const folds = 3

func newFolds(features []string) []*incremental.State {
	out := make([]*incremental.State, folds)
	for i := range out {
		out[i] = incremental.NewState(features)
	}
	return out
}

// world is the live set in the memory of a daemon, with the changes since the last save.
type world struct {
	r        *rand.Rand
	features []string
	state    *incremental.State
	folds    []*incremental.State
	changed  [folds]bool // since the last save
	live     map[string]block
	offsets  map[int]Offset
	horizon  retire.Rank
	counts   Counts
	savedAt  time.Time

	withdraws bool                    // blocks are withdrawn, too
	withdrawn map[string]retire.Entry // withdrawn blocks
	away      map[string]retire.Entry // those that are not saved
	withdrew  int                     // unsaved

	archives bool                // blocks are archived, too
	archived map[string]block    // archived blocks; those that are withdrawn have no summary
	letGo    map[string]Archived // those that are not saved

	retired, retirements int       // explicit ones: unsaved, saved
	uncompacted          time.Time // as in Contents

	log *worldLog // nil: without receipts

	spaces []*worldSpace // of bases: at most the one in use and the next one
	inUse  uint32
	begun  uint32

	put   map[string]block
	parts map[string]Part
	gone  map[string]bool
	moved map[int]Offset
}

func newWorld(r *rand.Rand, features int) *world {
	return &world{
		r: r, features: incremental.DefaultFeatures(features), state: incremental.NewState(incremental.DefaultFeatures(features)),
		folds: newFolds(incremental.DefaultFeatures(features)), changed: [folds]bool{true, true, true}, parts: map[string]Part{},
		live: map[string]block{}, offsets: map[int]Offset{}, horizon: retire.Rank{Milliseconds: math.MinInt64},
		put: map[string]block{}, gone: map[string]bool{}, moved: map[int]Offset{},
		withdrawn: map[string]retire.Entry{}, away: map[string]retire.Entry{},
		archived: map[string]block{}, letGo: map[string]Archived{},
	}
}

// fold is the sums of a live block's fold. The caller is about to change them.
func (w *world) fold(id string) *incremental.State {
	i := sample.Fold(w.live[id].Summary.Digest(), folds)
	w.changed[i] = true
	return w.folds[i]
}

func (w *world) remove(id string) {
	for _, s := range w.spaces {
		s.remove(id, w.live[id])
	}
	w.state.Remove(w.live[id].Summary)
	w.fold(id).Remove(w.live[id].Summary)
	delete(w.live, id)
	delete(w.put, id)
	delete(w.parts, id)
	w.gone[id] = true
	w.counts.BlocksRetired++
}

// withdraw withdraws a live block.
func (w *world) withdraw(id string) {
	e := w.live[id].Entry
	w.remove(id)
	delete(w.gone, id)
	e.Withdrawn = true
	w.withdrawn[id], w.away[id] = e, e
	w.withdrew++
}

// archive archives a live block, and stepArchived changes one that is archived.
func (w *world) archive(id string) {
	b := w.live[id]
	_, unsaved := w.put[id]
	w.remove(id)
	delete(w.gone, id)
	b.Entry.Archived = true
	w.archived[id] = b
	a := Archived{Entry: b.Entry}
	if unsaved || w.r.IntN(4) == 0 {
		a.Summary = b.Summary
	}
	w.letGo[id] = a
}

func (w *world) stepArchived(id string) {
	b, ok := w.archived[id]
	switch k := w.r.IntN(4); {
	case !ok || k == 0:
	case k == 1: // it is retired
		delete(w.archived, id)
		delete(w.letGo, id)
		w.gone[id] = true
	case b.Entry.Withdrawn: // it is given back
		back := randomBlock(w.r, id, int(b.Entry.Rows), len(w.features))
		b.Entry.Withdrawn, b.Entry.Rows, b.Summary = false, back.Entry.Rows, back.Summary
		w.archived[id], w.letGo[id] = b, Archived{b.Entry, b.Summary}
	case k == 2:
		b.Entry.Withdrawn, b.Summary = true, nil
		w.archived[id], w.letGo[id] = b, Archived{Entry: b.Entry}
	}
}

// step adds, replaces or retires a block, or only moves an offset.
func (w *world) step() {
	id := fmt.Sprintf("orders/%d/%d", w.r.IntN(3), w.r.IntN(30))
	if w.r.IntN(4) == 0 {
		id = "key:" + strings.Repeat("x", w.r.IntN(500))
	}
	if w.r.IntN(4) == 0 {
		w.stepSpaces()
	}
	_, isLive := w.live[id]
	if e, ok := w.withdrawn[id]; ok && w.r.IntN(3) == 0 { // it leaves the ledger
		delete(w.withdrawn, e.ID)
		delete(w.away, e.ID)
		w.gone[id] = true
	}
	if w.archives {
		w.stepArchived(id)
	}
	switch w.r.IntN(5) {
	case 0:
	case 4:
		if b := w.live[id]; isLive && b.Part == nil { // read again, and saved alone
			b.Part = takePartAgain(b)
			w.live[id] = b
			w.parts[id] = Part{id, b.Part}
		}
	case 1:
		if isLive && w.withdraws && w.r.IntN(2) == 0 {
			w.withdraw(id)
		} else if isLive && w.archives && w.r.IntN(2) == 0 {
			w.archive(id)
		} else if isLive {
			w.remove(id)
			w.retired += w.r.IntN(2) // a policy evicts the others
		}
	default:
		if isLive {
			w.remove(id)
		}
		b := randomBlock(w.r, id, 1+w.r.IntN(5), len(w.features))
		w.add(b)
		w.counts.BlocksAdded++
		w.counts.Rows += b.Entry.Rows
	}
	w.counts.AppliedRecords++
	partition := w.r.IntN(4)
	o := Offset{Topic: "orders", Partition: partition, Next: w.counts.AppliedRecords}
	if w.r.IntN(3) > 0 {
		o.HasLast = true
		o.Last = Fingerprint{Offset: w.counts.AppliedRecords - 1, Checksum: w.r.Uint32(), Time: time.UnixMilli(w.r.Int64N(1 << 41)).UTC()}
	}
	for range w.r.IntN(MaxEventTimes + 1) {
		o.EventTimes = append(o.EventTimes, w.r.Int64())
	}
	if w.r.IntN(2) == 0 {
		o.Growing = &Growing{Next: o.Next + w.r.Int64N(9), Counts: Counts{AppliedRecords: w.r.Int64N(9)}, EventTimes: []int64{w.r.Int64()}}
	}
	w.offsets[partition], w.moved[partition] = o, o
	w.horizon = retire.Rank{Milliseconds: w.counts.AppliedRecords, Position: incremental.Position{Topic: "orders", Partition: partition, Offset: 1}}
}

// add makes a block live.
func (w *world) add(b block) {
	id := b.Entry.ID
	w.live[id], w.put[id] = b, b
	w.state.Add(b.Summary)
	w.fold(id).Add(b.Summary)
	delete(w.gone, id)
	delete(w.withdrawn, id)
	delete(w.away, id)
	delete(w.archived, id)
	delete(w.letGo, id)
	for _, s := range w.spaces {
		if s.Number == w.inUse || w.r.IntN(2) == 0 {
			s.add(w.r, b)
		}
	}
}

// takePartAgain is a part of a block without its rows, as if no row were in the sample.
func takePartAgain(b block) *sample.Part {
	n := b.Summary.Features()
	rows := &incremental.Block{Classes: b.Summary.Classes()}
	for c, total := range b.Summary.Totals() {
		rows.Codes = append(rows.Codes, slices.Repeat([]int32{int32(c)}, int(total.Rows))...)
	}
	for range n {
		rows.Columns = append(rows.Columns, gram.ColumnOf(make([]float32, b.Entry.Rows)))
	}
	return takePart(rows, b.Summary)
}

func (w *world) change() Change {
	w.savedAt = time.UnixMilli(1_700_000_000_000 + w.counts.AppliedRecords).UTC()
	if w.retired+w.withdrew > 0 && w.uncompacted.IsZero() {
		w.uncompacted = w.savedAt
	}
	folds := slices.Clone(w.folds)
	for i := range folds {
		if !w.changed[i] {
			folds[i] = nil
		}
	}
	c := Change{
		Parts:    slices.Collect(maps.Values(w.parts)),
		Delete:   slices.Collect(maps.Keys(w.gone)), // in random order
		Withdraw: slices.Collect(maps.Values(w.away)), Withdrawn: w.withdrew,
		Archive: slices.Collect(maps.Values(w.letGo)),
		Offsets: slices.Collect(maps.Values(w.moved)),
		Horizon: w.horizon, Counts: w.counts, SavedAt: w.savedAt,
		Spaces: append([]SpaceChange{{State: w.state, Folds: folds}}, w.spaceChanges()...), InUse: w.inUse, Retired: w.retired,
	}
	c.put(slices.Collect(maps.Values(w.put))...)
	c.Receipts = w.log.grow(&c)
	return c
}

func (w *world) saved() {
	w.log.saved()
	clear(w.put)
	clear(w.gone)
	clear(w.away)
	clear(w.letGo)
	w.withdrew = 0
	clear(w.moved)
	clear(w.parts)
	w.changed = [folds]bool{}
	w.retirements, w.retired = w.retirements+w.retired, 0
	for _, s := range w.spaces {
		clear(s.put)
		s.changed = [folds]bool{}
		for id := range s.sources {
			s.sources[id] = true
		}
	}
}

func (w *world) save(t testing.TB, s *Store) {
	t.Helper()
	info, err := s.Save(w.change())
	if err != nil {
		t.Fatal(err)
	}
	if info.Bytes <= 0 || info.FileBytes <= 0 {
		t.Fatalf("saved %+v", info)
	}
	w.saved()
}

// compact compacts the file of w.
func (w *world) compact(t testing.TB, s *Store) {
	t.Helper()
	if info, err := s.Compact(t.Context()); err != nil || info.FileBytes <= 0 {
		t.Fatal(info, err)
	}
	w.uncompacted = time.Time{}
}

// worldCopy is w as it was saved, for comparing.
func worldCopy(w *world) *world {
	state, err := incremental.DecodeState(w.state.AppendBinary(nil))
	if err != nil {
		panic(err)
	}
	folds := slices.Clone(w.folds)
	for i, s := range folds {
		if folds[i], err = incremental.DecodeState(s.AppendBinary(nil)); err != nil {
			panic(err)
		}
	}
	var spaces []*worldSpace
	for _, s := range w.spaces {
		spaces = append(spaces, s.copy())
	}
	return &world{
		spaces: spaces, inUse: w.inUse,
		features: w.features, state: state, folds: folds, live: maps.Clone(w.live), withdrawn: maps.Clone(w.withdrawn), archived: maps.Clone(w.archived), offsets: maps.Clone(w.offsets),
		horizon: w.horizon, counts: w.counts, savedAt: w.savedAt, uncompacted: w.uncompacted,
	}
}

// contents is everything that a file must have after a save, except the spaces.
func (w *world) contents() *Contents {
	c := &Contents{
		Settings: settings, Version: int(version),
		Horizon: w.horizon, Counts: w.counts, SavedAt: w.savedAt, InUse: w.inUse,
		Uncompacted: w.uncompacted, retirements: int64(w.retirements),
	}
	if w.log != nil {
		c.Log = w.log.head
	}
	for _, b := range w.live {
		c.Entries = append(c.Entries, b.Entry)
	}
	slices.SortFunc(c.Entries, func(a, b retire.Entry) int { return cmp.Compare(a.ID, b.ID) })
	for _, id := range slices.Sorted(maps.Keys(w.withdrawn)) {
		c.Withdrawn = append(c.Withdrawn, w.withdrawn[id])
	}
	for _, id := range slices.Sorted(maps.Keys(w.archived)) {
		c.Archived = append(c.Archived, w.archived[id].Entry)
	}
	for _, p := range slices.Sorted(maps.Keys(w.offsets)) {
		c.Offsets = append(c.Offsets, w.offsets[p])
	}
	return c
}

// compare fails unless a file has the contents of w.
func (w *world) compare(t testing.TB, s *Store, got *Contents) {
	t.Helper()
	features := got.Space(Features)
	if features == nil || features.State.Digest() != w.state.Digest() {
		t.Fatal("the state is another one")
	}
	if !slices.Equal(got.Features(), w.features) || len(features.Missing)+len(features.Sources) > 0 || features.Stale != 0 {
		t.Fatalf("the features are %q, with %+v", got.Features(), features)
	}
	for i, s := range features.Folds {
		if len(features.Folds) != folds || s.Digest() != w.folds[i].Digest() {
			t.Fatalf("fold %d of %d is another one", i, len(features.Folds))
		}
	}
	w.compareSpaces(t, s, got.Spaces[1:])
	spaces := got.Spaces
	got.Spaces = nil
	want := w.contents()
	// A repeated save counts again, and may be as old as either try.
	want.retirements = got.retirements
	if !want.Uncompacted.IsZero() && !got.Uncompacted.IsZero() {
		want.Uncompacted = got.Uncompacted
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("contents\n%+v, want\n%+v", got, want)
	}
	got.Spaces = spaces
	for id, b := range w.archived {
		summary, err := s.Summary(Features, id)
		switch {
		case b.Entry.Withdrawn && errors.Is(err, ErrNotFound):
		case b.Entry.Withdrawn || err != nil || summary.Digest() != b.Summary.Digest():
			t.Fatalf("archived block %q: %v", id, err)
		}
	}
	if err := w.compareParts(s); err != nil {
		t.Fatal(err)
	}
	digests := map[string][32]byte{}
	if err := s.Digests(func(e retire.Entry, d [32]byte) { digests[e.ID] = d }); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := s.Summaries(Features, func(e retire.Entry, summary *incremental.Summary) error {
		n++
		want := w.live[e.ID]
		if e != want.Entry || !equalSums(summary, want.Summary) {
			return fmt.Errorf("block %s is %+v, want %+v", e.ID, e, want.Entry)
		}
		if digests[e.ID] != want.Summary.Digest() {
			return fmt.Errorf("block %s has another digest", e.ID)
		}
		return nil
	})
	if err != nil || n != len(w.live) {
		t.Fatalf("%d summaries of %d: %v", n, len(w.live), err)
	}
}

// compareParts checks that a file has the parts of w's live blocks.
func (w *world) compareParts(s *Store) error {
	listed := map[string]*sample.Part{}
	if err := s.Parts(func(id string, p *sample.Part) { listed[id] = p }); err != nil {
		return err
	}
	for id, b := range w.live {
		p, err := s.Part(id)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(p, b.Part) || !reflect.DeepEqual(listed[id], b.Part) {
			return fmt.Errorf("block %s has another part", id)
		}
		delete(listed, id)
	}
	if len(listed) > 0 {
		return fmt.Errorf("%d parts of no live block", len(listed))
	}
	return nil
}

func mustOpen(t testing.TB, path string) (*Store, *Contents) {
	t.Helper()
	s, c, err := Open(path, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, c
}

// openData opens a file of a store that a test has assembled.
func openData(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestNewFileIsEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, c := mustOpen(t, path)
	want := &Contents{Settings: settings, Version: int(version), Horizon: retire.NewLedger(retire.Policy{}).Horizon()}
	if !c.SavedAt.IsZero() {
		t.Errorf("saved at %v", c.SavedAt)
	}
	c.SavedAt = time.Time{}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("contents %+v, want %+v", c, want)
	}
	s.Close()
	if _, c = mustOpen(t, path); !c.SavedAt.IsZero() {
		t.Error("opened again it is not empty")
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files in the folder: %v, %v", files, err)
	}
}

// After any sequence of changes, saves and restarts the file's contents equal the memory.
func TestFileEqualsMemory(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			r := rand.New(rand.NewPCG(2, seed))
			path := filepath.Join(t.TempDir(), "streamd.db")
			w := newWorld(r, 1+r.IntN(4))
			w.withdraws, w.archives = true, true
			s, _ := mustOpen(t, path)
			for range 15 {
				for range r.IntN(30) {
					w.step()
				}
				w.save(t, s)
				if r.IntN(4) == 0 {
					w.compact(t, s)
				}
				if r.IntN(2) == 0 {
					s.Close()
					var c *Contents
					s, c = mustOpen(t, path)
					w.compare(t, s, c)
				}
			}
			s.Close()
			report, err := Verify(t.Context(), path, nil)
			if err != nil || !report.OK || report.Damaged > 0 {
				t.Fatalf("%+v, %v", report, err)
			}
			if report.Blocks != int64(len(w.live)) || report.Rows != w.state.Rows() || report.Saved != w.state.Digest() {
				t.Fatalf("verified %+v", report)
			}
		})
	}
}

// A change that is saved twice has the same effect as one that is saved once, so a save
// can be repeated after an error.
func TestSavingTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	w := newWorld(rand.New(rand.NewPCG(3, 1)), 2)
	s, _ := mustOpen(t, path)
	for range 50 {
		w.step()
	}
	w.remove(slices.Collect(maps.Keys(w.live))[0]) // a block that was never saved
	for range 2 {
		if _, err := s.Save(w.change()); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s, c := mustOpen(t, path)
	w.compare(t, s, c)
}

// The history outlives saves, a compaction and another key. Neither a save nor the
// history touches the other.
func TestHistory(t *testing.T) {
	for _, key := range []*Key{nil, newKey(t, "a secret that is long enough, and more")} {
		checkHistory(t, key)
	}
}

func checkHistory(t *testing.T, key *Key) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.db")
	var detectors []byte
	open := func() (*Store, []byte) {
		s, c, err := key.Open(path, settings)
		if err != nil {
			t.Fatal(err)
		}
		if string(c.Detectors) != string(detectors) {
			t.Errorf("the detectors are %q", c.Detectors)
		}
		return s, c.History
	}
	s, history := open()
	if history != nil {
		t.Errorf("a new file has %d bytes of history", len(history))
	}
	if _, err := s.Save(fixtureChange()); err != nil {
		t.Fatal(err)
	}
	before := values(t, fixture)
	if detectors = fixtureChange().Detectors; detectors == nil {
		t.Fatal("there are no detectors to save")
	}
	for _, record := range [][]byte{bytes.Repeat([]byte("old "), 30_000), {}, bytes.Repeat([]byte("new "), 20_000)} {
		if err := s.SaveHistory(record); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s, history = open()
	if !bytes.Equal(history, bytes.Repeat([]byte("new "), 20_000)) {
		t.Errorf("%d bytes of history came back", len(history))
	}
	s.Close()
	after := values(t, path)
	delete(after, "history history")
	delete(after, "streamd mac")
	if !maps.Equal(before, after) {
		t.Error("the history has changed other values")
	}
	if report, err := key.Verify(t.Context(), path, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
	db, err := bbolt.Open(path, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketHistory).Put(keyHistory, []byte("damaged!!")) }), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := key.Open(path, settings); !errors.As(err, new(*ChecksumError)) && !errors.Is(err, ErrMAC) {
		t.Errorf("a damaged history: %v", err)
	}
}

// What determines a model stays until a save has another, also over a compaction and under a key.
func TestLearningIsSaved(t *testing.T) {
	for _, key := range []*Key{nil, newKey(t, "a secret that is long enough, and more")} {
		path, want := filepath.Join(t.TempDir(), "streamd.db"), ""
		w := newWorld(rand.New(rand.NewPCG(6, 9)), 2)
		for i, learning := range []string{"", "nu 1", "nu 1", "", "nu 2"} {
			s, c, err := key.Open(path, settings)
			if err != nil {
				t.Fatal(err)
			}
			if string(c.Learning) != want || (c.Learning == nil) != (want == "") {
				t.Errorf("before save %d it is %q, want %q", i, c.Learning, want)
			}
			w.step()
			change := w.change()
			if learning != "" {
				change.Learning, want = []byte(learning), learning
			}
			if _, err := s.Save(change); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.saved()
			s.Close()
		}
		if report, err := key.Verify(t.Context(), path, nil); err != nil || !report.OK {
			t.Errorf("%+v, %v", report, err)
		}
		if _, c, err := key.Open(path, settings); err != nil || string(c.Learning) != want {
			t.Errorf("%v, and it is %q, want %q", err, c.Learning, want)
		}
	}
}

// The history is saved beside changes, also where the file must be mapped again, which bbolt
// without options does soon.
func TestHistoryBesideSaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	s.Close()
	db, err := bbolt.Open(path, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s = &Store{db: db, readers: new(sync.WaitGroup), path: path, data: openData(t, path)}
	w := newWorld(rand.New(rand.NewPCG(6, 2)), 2)
	var last []byte
	var beside sync.WaitGroup
	beside.Go(func() {
		for i := range 40 {
			last = bytes.Repeat([]byte("x"), 10_000*i+1)
			if err := s.SaveHistory(last); err != nil {
				t.Error(err)
			}
		}
	})
	for range 40 {
		w.step()
		w.save(t, s)
	}
	beside.Wait()
	s.Close()
	s, c := mustOpen(t, path)
	if !bytes.Equal(c.History, last) {
		t.Error("the history is not the last that was written down")
	}
	c.History = nil
	w.compare(t, s, c)
}

// A prepared change is saved as it was, though the sums have changed since.
func TestPrepared(t *testing.T) {
	for seed := range uint64(5) {
		path := filepath.Join(t.TempDir(), "streamd.db")
		w := newWorld(rand.New(rand.NewPCG(5, seed)), 3)
		s, _ := mustOpen(t, path)
		for range 30 {
			w.step()
		}
		p, err := s.Prepare(w.change())
		if err != nil {
			t.Fatal(err)
		}
		before := worldCopy(w)
		for range 30 {
			w.step()
		}
		if _, err := p.Save(); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s, c := mustOpen(t, path)
		before.compare(t, s, c)
		w.save(t, s)
		s.Close()
		s, c = mustOpen(t, path)
		w.compare(t, s, c)
	}
}

// A save that fails for want of space leaves the file as it was. The next one with enough
// space writes everything.
func TestNoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	w := newWorld(rand.New(rand.NewPCG(4, 1)), 3)
	s, _ := mustOpen(t, path)
	for range 10 {
		w.step()
	}
	w.save(t, s)
	before := worldCopy(w)
	for range 300 {
		w.step()
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s.db.MaxSize = int(info.Size())
	if _, err := s.Save(w.change()); err == nil {
		t.Fatal("saved without room")
	}
	s.Close()
	s, c := mustOpen(t, path)
	before.compare(t, s, c)
	s.db.MaxSize = int(info.Size())
	if _, err := s.Save(w.change()); err == nil {
		t.Fatal("saved without room")
	}
	s.db.MaxSize = 0
	w.step()
	w.save(t, s)
	s.Close()
	s, c = mustOpen(t, path)
	w.compare(t, s, c)
}

func TestFeaturesComeLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	rejected := Change{Counts: Counts{AppliedRecords: 3, RejectedRecords: 3}, Offsets: []Offset{{Topic: "orders", Next: 3}}}
	for _, none := range []*incremental.State{nil, incremental.NewState(nil)} {
		rejected.Spaces = []SpaceChange{{State: none}}
		if _, err := s.Save(rejected); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
		t.Fatalf("%+v, %v", report, err)
	}
	s, c := mustOpen(t, path)
	if c.Features() != nil || c.Spaces != nil || c.Counts.RejectedRecords != 3 || len(c.Offsets) != 1 {
		t.Fatalf("contents %+v", c)
	}
	// The configured features, before there is a block.
	if _, err := s.Save(changeTo(incremental.NewState([]string{"a", "b"}), nil)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, c = mustOpen(t, path)
	if !slices.Equal(c.Features(), []string{"a", "b"}) || c.Space(Features) == nil {
		t.Fatalf("contents %+v", c)
	}
}

// The features may change, or become free, when no block of the former ones stays.
func TestFeaturesChange(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	state := func(features []string, blocks ...block) *incremental.State {
		out := incremental.NewState(features)
		for _, b := range blocks {
			out.Add(b.Summary)
		}
		return out
	}
	check := func(what string, features []string, blocks int) {
		t.Helper()
		s.Close()
		if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
			t.Fatalf("%s: %+v, %v", what, report, err)
		}
		var c *Contents
		s, c = mustOpen(t, path)
		if !slices.Equal(c.Features(), features) || (c.Space(Features) == nil) != (features == nil) || len(c.Entries) != blocks {
			t.Fatalf("%s: features %q, %d blocks", what, c.Features(), len(c.Entries))
		}
	}
	save := func(c Change) {
		t.Helper()
		if _, err := s.Save(c); err != nil {
			t.Fatal(err)
		}
	}
	a, b := randomBlock(r, "orders/0/1", 4, 2), randomBlock(r, "orders/0/2", 5, 2)
	two, other := []string{"p", "q"}, []string{"q", "p"}
	apart := func(features []string) []*incremental.State {
		return []*incremental.State{state(features, a), state(features, b)}
	}
	save(changeTo(state(two, a, b), apart(two), a, b))
	for name, c := range map[string]Change{
		"none, with blocks":                   {},
		"others, with blocks":                 changeTo(state(other, a, b), apart(other)),
		"others, with a block that stays":     changeTo(state(other, a, b), apart(other), a),
		"none, with a block that stays":       {Delete: []string{"orders/0/1"}},
		"none, with a block that is not gone": {Delete: []string{"orders/0/1", "orders/0/7"}},
	} {
		if _, err := s.Save(c); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
	check("after what was refused", two, 2)
	save(changeTo(state(other, a, b), apart(other), a, b))
	check("all blocks put", other, 2)
	save(Change{Delete: []string{"orders/0/1", "orders/0/2"}})
	check("no blocks", nil, 0)
	c := randomBlock(r, "orders/0/3", 4, 3)
	three := incremental.DefaultFeatures(3)
	save(changeTo(state(three, c), nil, c))
	check("three", three, 1)
	deleting := func(c Change, id string) Change {
		c.Delete = []string{id}
		return c
	}
	save(deleting(changeTo(state(three), nil), "orders/0/3"))
	check("an empty state", three, 0)
	save(changeTo(state(two), nil)) // it has the same digest
	check("another empty state", two, 0)
	save(changeTo(state(two, a), nil, a))
	save(deleting(changeTo(state(three, c), nil, c), "orders/0/1"))
	check("in one step", three, 1)
	s.Close()
}

func TestChangeThatDoesNotFit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	good := func() Change {
		b := randomBlock(r, "orders/0/1", 4, 2)
		c := changeTo(incremental.NewState(incremental.DefaultFeatures(2)), nil, b)
		c.Spaces[0].State.Add(b.Summary)
		s := SpaceChange{Space: Space{Number: 1}, State: incremental.NewState(incremental.DefaultFeatures(3))}
		s.Put = []Summary{{b.Entry.ID, randomBlock(r, "", 4, 3).Summary}}
		s.State.Add(s.Put[0].Summary)
		c.Spaces, c.InUse = append(c.Spaces, s), 1
		return c
	}
	most := math.MaxInt32
	for name, spoil := range map[string]func(*Change){
		"no id":            func(c *Change) { c.Put[0].Entry.ID = "" },
		"long id":          func(c *Change) { c.Put[0].Entry.ID = strings.Repeat("x", MaxID+1) },
		"twice":            func(c *Change) { c.Put = append(c.Put, c.Put[0]) },
		"rows of entry":    func(c *Change) { c.Put[0].Entry.Rows++ },
		"partition":        func(c *Change) { c.Put[0].Entry.Position.Partition = -1 },
		"no state":         func(c *Change) { c.Spaces[0].State = nil },
		"width":            func(c *Change) { c.Spaces[0].State = incremental.NewState(incremental.DefaultFeatures(3)) },
		"rows of state":    func(c *Change) { c.Spaces[0].State = incremental.NewState(incremental.DefaultFeatures(2)) },
		"offset":           func(c *Change) { c.Offsets = []Offset{{Topic: "orders", Next: -1}} },
		"offset partition": func(c *Change) { c.Offsets = []Offset{{Topic: "orders", Partition: most + 1}} },
		"horizon":          func(c *Change) { c.Horizon.Position.Offset = -1 },
		"part of other":    func(c *Change) { c.Put[0].Part = takePartAgain(randomBlock(r, "", 5, 2)) },
		"part of none":     func(c *Change) { c.Parts = []Part{{"orders/9/9", takePartAgain(randomBlock(r, "", 5, 2))}} },
		"width of a part":  func(c *Change) { c.Parts = []Part{{"orders/0/1", takePartAgain(randomBlock(r, "", 5, 3))}} },
		"width of a fold": func(c *Change) {
			c.Spaces[0].Folds = []*incremental.State{incremental.NewState(incremental.DefaultFeatures(3))}
		},
		"fold of before":  func(c *Change) { c.Spaces[0].Folds = []*incremental.State{nil} },
		"summary twice":   func(c *Change) { c.Spaces[1].Put = append(c.Spaces[1].Put, c.Spaces[1].Put[0]) },
		"no summary":      func(c *Change) { c.Spaces[0].Put = nil },
		"features twice":  func(c *Change) { c.Spaces[1].Number, c.InUse = 0, 0 },
		"space twice":     func(c *Change) { c.Spaces = append(c.Spaces, c.Spaces[1]) },
		"no such space":   func(c *Change) { c.InUse = 2 },
		"space's state":   func(c *Change) { c.Spaces[1].State = nil },
		"space's width":   func(c *Change) { c.Spaces[1].State = incremental.NewState(incremental.DefaultFeatures(4)) },
		"space's rows":    func(c *Change) { c.Spaces[1].State = incremental.NewState(incremental.DefaultFeatures(3)) },
		"space's fold":    func(c *Change) { c.Spaces[1].Folds = []*incremental.State{nil} },
		"space's block":   func(c *Change) { c.Spaces[1].Put[0].ID = "orders/9/9" },
		"rows in space":   func(c *Change) { c.Spaces[1].Put[0].Summary = randomBlock(r, "", 5, 3).Summary },
		"source not live": func(c *Change) { c.Spaces[1].Sources = []string{"orders/9/9"} },
		"block not in use": func(c *Change) {
			c.Spaces[1].Put, c.Spaces[1].State = nil, incremental.NewState(incremental.DefaultFeatures(3))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "streamd.db")
			s, _ := mustOpen(t, path)
			c := good()
			spoil(&c)
			if _, err := s.Save(c); err == nil {
				t.Fatal("saved")
			}
			if _, err := s.Summary(Features, "orders/0/1"); !errors.Is(err, ErrNotFound) {
				t.Fatalf("the block: %v", err)
			}
			if _, err := s.Save(good()); err != nil {
				t.Fatalf("after it: %v", err)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(6, 1)), 1)
	for _, id := range []string{"a", "\x00", "\xff\xfe", "key:ä", strings.Repeat("x", MaxID), strings.Repeat("y", MaxID)} {
		w.add(randomBlock(w.r, id, 3, 1))
	}
	w.save(t, s)
	s.Close()
	s, c := mustOpen(t, path)
	w.compare(t, s, c)
	for id, b := range w.live {
		got, err := s.Summary(Features, id)
		if err != nil || !equalSums(got, b.Summary) {
			t.Errorf("block %.10q: %v", id, err)
		}
	}
}

func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	mistyped := Settings{Topic: "oders", Unit: "message"}
	s, _, err := Open(path, mistyped)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s, c, err := Open(path, settings) // nothing has been saved
	if err != nil || c.Settings != settings {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := s.Save(Change{SavedAt: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, other := range []Settings{mistyped, {Topic: "returns", Unit: "message"}, {Topic: "orders", Unit: "key"}} {
		_, _, err := Open(path, other)
		var mismatch *SettingsError
		if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), mismatch.Saved) || !strings.Contains(err.Error(), mismatch.Configured) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	s, c, err = OpenReadOnly(path)
	if err != nil || c.Settings != settings {
		t.Fatalf("%+v, %v", c, err)
	}
	defer s.Close()
	if _, err := s.Save(Change{}); err == nil {
		t.Error("saved into a file that is open for reading")
	}
}

func TestLock(t *testing.T) {
	t.Parallel() // it waits for locks
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	if _, _, err := Open(path, settings); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if _, _, err := OpenReadOnly(path); !errors.Is(err, ErrInUse) {
		t.Errorf("opened for reading meanwhile: %v", err)
	}
	if _, err := Verify(t.Context(), path, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("verified meanwhile: %v", err)
	}
	s.Close()
	reader, _, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
		t.Errorf("two readers: %+v, %v", report, err)
	}
	if _, _, err := Open(path, settings); !errors.Is(err, ErrInUse) {
		t.Errorf("opened for writing while it is read: %v", err)
	}
	reader.Close()
	mustOpen(t, path)
}

func TestNotASnapshot(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stranger := filepath.Join(dir, "stranger.db")
	db, err := bbolt.Open(stranger, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err }); err != nil {
		t.Fatal(err)
	}
	db.Close()
	for _, path := range []string{
		write("empty", nil),
		write("short", []byte("hello")),
		write("page", []byte(strings.Repeat("hello", 1000))),
		write("text", []byte(strings.Repeat("no snapshot\n", 10_000))),
		write("zeros", make([]byte, 1<<16)),
		stranger,
		dir,
	} {
		before, _ := os.ReadFile(path)
		if _, _, err := Open(path, settings); !errors.Is(err, ErrNotSnapshot) {
			t.Errorf("open %s: %v", path, err)
		}
		if _, _, err := OpenReadOnly(path); !errors.Is(err, ErrNotSnapshot) {
			t.Errorf("read %s: %v", path, err)
		}
		if _, err := Verify(t.Context(), path, nil); !errors.Is(err, ErrNotSnapshot) {
			t.Errorf("verify %s: %v", path, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", path)
		}
	}
}

func TestNoFolder(t *testing.T) {
	if _, _, err := Open(filepath.Join(t.TempDir(), "none", "streamd.db"), settings); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	for name, open := range map[string]func(string) error{
		"read":   func(path string) error { _, _, err := OpenReadOnly(path); return err },
		"verify": func(path string) error { _, err := Verify(t.Context(), path, nil); return err },
	} {
		path := filepath.Join(t.TempDir(), "streamd.db")
		if err := open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s a file that is not there: %v", name, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s made it", name)
		}
	}
}

// withoutRights runs f as a user without the rights of root, where the system supports it.
var withoutRights func(f func()) error

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	for folder, mode := range map[string]fs.FileMode{dir: 0o555, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(dir, 0o700)
	open := func() {
		if _, _, err := Open(filepath.Join(dir, "streamd.db"), settings); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a folder that may not be written: %v", err)
		}
	}
	switch {
	case os.Geteuid() != 0:
		open()
	case withoutRights == nil:
		t.Skip("root may write everywhere")
	default:
		if err := withoutRights(open); err != nil {
			t.Fatal(err)
		}
	}
}

// Two daemons start at the same moment without a file. One of them gets it.
func TestMadeByTwo(t *testing.T) {
	t.Parallel() // it waits for locks
	for range 20 {
		path := filepath.Join(t.TempDir(), "streamd.db")
		results := make(chan error, 2)
		for range 2 {
			go func() {
				s, _, err := Open(path, settings)
				if err == nil {
					_, err = s.Save(Change{Counts: Counts{AppliedRecords: 1}})
					err = errors.Join(err, s.Close())
				}
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil && !errors.Is(err, ErrInUse) {
				t.Fatal(err)
			}
		}
		if _, c := mustOpen(t, path); c.Counts.AppliedRecords != 1 {
			t.Fatal("the file was replaced")
		}
	}
}

func TestNewerVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		w := writer{tx: tx}
		return errors.Join(
			w.putValue(bucketMeta, keyFormat, appendFormat(frame(), version+1, "7.3")),
			tx.DeleteBucket(bucketOffsets), // a newer format may lack anything
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, _, err = Open(path, settings)
	var newer *VersionError
	if !errors.As(err, &newer) || newer.Version != int(version)+1 || newer.Supported != int(version) || !strings.Contains(err.Error(), "streamd 7.3 or later") {
		t.Errorf("open: %v", err)
	}
	if _, err := Verify(t.Context(), path, nil); !errors.As(err, &newer) {
		t.Errorf("verify: %v", err)
	}
}

// A panic of the callback is not damage.
func TestSummariesCallback(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(7, 1)), 1)
	for range 10 {
		w.step()
	}
	w.save(t, s)
	stop := errors.New("stop")
	if err := s.Summaries(Features, func(retire.Entry, *incremental.Summary) error { return stop }); err != stop {
		t.Errorf("the callback's error came back as %v", err)
	}
	defer func() {
		if recover() != "mine" {
			t.Error("the callback's panic was lost")
		}
		w.step()
		w.save(t, s)
	}()
	s.Summaries(Features, func(retire.Entry, *incremental.Summary) error { panic("mine") })
}

// equalSums compares the encodings of summaries, of which each may be nil.
func equalSums(a, b *incremental.Summary) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.AppendBinary(nil), b.AppendBinary(nil))
}
