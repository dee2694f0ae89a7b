package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/sample"
	"streamd/retire"
)

// history is a file after each of its saves, with its contents.
type history struct {
	files    [][]byte
	contents []*Contents
	digests  [][32]byte
	live     []map[string]block
	spaces   [][]*worldSpace // of bases
}

func makeHistory(t *testing.T, r *rand.Rand, saves int) *history {
	h := new(history)
	path := filepath.Join(t.TempDir(), "streamd.db")
	w := newWorld(r, 3)
	s, _ := mustOpen(t, path)
	s.Close()
	// The free list that Open uses picks pages in the random order of a map. This one makes
	// the same file from the same seed.
	db, err := bbolt.Open(path, 0, &bbolt.Options{FreelistType: bbolt.FreelistArrayType})
	if err != nil {
		t.Fatal(err)
	}
	s = &Store{db: db, readers: new(sync.WaitGroup), path: path, data: openData(t, path)}
	for range saves {
		for range 40 {
			w.step()
		}
		w.save(t, s)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		live := map[string]block{}
		for id, b := range w.live {
			live[id] = b
		}
		h.files = append(h.files, b)
		h.contents = append(h.contents, w.contents())
		h.digests = append(h.digests, w.state.Digest())
		h.live = append(h.live, live)
		h.spaces = append(h.spaces, worldCopy(w).spaces)
	}
	s.Close()
	return h
}

// which finds the save whose contents a file has; -1 for none.
func (h *history) which(s *Store, got *Contents) (int, error) {
	spaces := got.Spaces
	got.Spaces = nil
	defer func() { got.Spaces = spaces }()
	if len(spaces) == 0 {
		return -1, errors.New("there are no features")
	}
	for i := len(h.contents) - 1; i >= 0; i-- {
		if spaces[0].Number != Features || spaces[0].State.Digest() != h.digests[i] || !reflect.DeepEqual(got, h.contents[i]) {
			continue
		}
		n := 0
		err := s.Summaries(Features, func(e retire.Entry, summary *incremental.Summary) error {
			n++
			if want := h.live[i][e.ID]; e != want.Entry || !equalSums(summary, want.Summary) {
				return fmt.Errorf("block %s is another one", e.ID)
			}
			return nil
		})
		if err == nil && n != len(h.live[i]) {
			err = fmt.Errorf("%d of %d blocks", n, len(h.live[i]))
		}
		if err == nil {
			err = readWorldSpaces(s, spaces[1:], h.spaces[i], len(h.live[i]))
		}
		return i, err
	}
	return -1, errors.New("contents that were never saved")
}

// check opens a damaged file. It must be refused, or have the contents of one of the last
// two saves.
func (h *history) check(t *testing.T, path string, damaged []byte) (refused bool) {
	t.Helper()
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeIfThere(retiredPath(path)); err != nil { // of a file before
		t.Fatal(err)
	}
	report, verifyErr := Verify(t.Context(), path, nil)
	s, got, err := Open(path, settings)
	if err != nil {
		if verifyErr == nil && report.OK {
			t.Fatalf("verified, but opening gives %v", err)
		}
		return true
	}
	defer s.Close()
	at, err := h.which(s, got)
	if err != nil {
		// A damaged summary is noticed when it is read. Verify must notice it, too.
		if damage := (*ChecksumError)(nil); at < 0 || !errors.As(err, &damage) {
			t.Fatalf("after save %d: %v", at, err)
		}
		if verifyErr == nil && report.OK {
			t.Fatalf("verified, but reading gives %v", err)
		}
		return true
	}
	if at < len(h.files)-2 {
		t.Fatalf("opened as after save %d of %d", at+1, len(h.files))
	}
	if verifyErr != nil || !report.OK && report.Damaged == 0 {
		t.Fatalf("opened, but verifying gives %+v, %v", report, verifyErr)
	}
	// A file that opens must survive a save. (This test does not cut the power.)
	s.db.NoSync = true
	state, apart := got.Space(Features).State, got.Space(Features).Folds
	b := randomBlock(rand.New(rand.NewPCG(1, 1)), "new", 3, 3)
	state.Add(b.Summary)
	apart[sample.Fold(b.Summary.Digest(), folds)].Add(b.Summary)
	next := changeTo(state, apart, b)
	next.Horizon, next.Counts, next.SavedAt, next.Offsets = got.Horizon, got.Counts, got.SavedAt, got.Offsets
	want := state.Digest()
	if _, err := s.Save(next); err != nil {
		t.Fatalf("saving into it: %v", err)
	}
	s.Close()
	if report, err := Verify(t.Context(), path, nil); err != nil || report.Damaged > 0 || report.Summed != want {
		t.Fatalf("after a save into it: %+v, %v", report, err)
	}
	return false
}

func TestFlippedBits(t *testing.T) {
	t.Parallel()
	const trials = 1500
	r := rand.New(rand.NewPCG(10, 1))
	h := makeHistory(t, r, 4)
	last := h.files[len(h.files)-1]
	path := filepath.Join(t.TempDir(), "streamd.db")
	refused := 0
	for range trials {
		b := bytes.Clone(last)
		at := r.IntN(len(b))
		if r.IntN(2) == 0 {
			at = at&^(os.Getpagesize()-1) | r.IntN(200) // where the structure is
		}
		bit := byte(1) << r.IntN(8)
		b[at] ^= bit
		t.Run(fmt.Sprintf("byte %d bit %d", at, bit), func(t *testing.T) {
			if h.check(t, path, b) {
				refused++
			}
		})
	}
	if refused < trials/10 {
		t.Errorf("%d of %d were noticed: too few to show anything", refused, trials)
	}
}

func TestCutShort(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	h := makeHistory(t, r, 4)
	last := h.files[len(h.files)-1]
	path := filepath.Join(t.TempDir(), "streamd.db")
	refused := 0
	for i := range 200 {
		length := r.IntN(len(last))
		if i%4 == 0 {
			length &^= os.Getpagesize() - 1
		}
		t.Run(fmt.Sprintf("to %d", length), func(t *testing.T) {
			if h.check(t, path, last[:length]) {
				refused++
			}
		})
	}
	if refused < 50 {
		t.Errorf("%d were noticed: too few to show anything", refused)
	}
}

// Whole pages take the place of others, as a file system may leave them after lost
// writes. Their checksums are good, but they belong to another save.
func TestPagesOfOtherSaves(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	h := makeHistory(t, r, 6)
	last := h.files[len(h.files)-1]
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "streamd.db")
	refused := 0
	for range 500 {
		b := bytes.Clone(last)
		from := h.files[r.IntN(len(h.files))]
		source := r.IntN(len(from)/page) * page
		target := source
		if r.IntN(2) == 0 {
			target = r.IntN(len(b)/page) * page
		}
		if target >= len(b) || target < 2*page { // bbolt's own tests cover the meta pages
			continue
		}
		copy(b[target:target+page], from[source:source+page])
		t.Run(fmt.Sprintf("page %d to %d", source/page, target/page), func(t *testing.T) {
			if h.check(t, path, b) {
				refused++
			}
		})
	}
	if refused < 50 {
		t.Errorf("%d were noticed: too few to show anything", refused)
	}
}

// On these trees bbolt would loop, take all memory, or fault.
func TestHostilePages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	w := newWorld(rand.New(rand.NewPCG(13, 1)), 3)
	s, _ := mustOpen(t, path)
	for range 600 {
		w.step()
	}
	w.save(t, s)
	var root uint64
	if err := s.db.View(func(tx *bbolt.Tx) error {
		root = uint64(tx.Bucket(bucketSummaries).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	pageSize := s.db.Info().PageSize
	s.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := int(root) * pageSize
	if order.Uint16(good[at+8:]) != kindBranch {
		t.Fatal("the file is too small for this test: its root is no branch")
	}
	newest := 0
	if order.Uint64(good[pageSize+64:]) > order.Uint64(good[64:]) {
		newest = pageSize
	}
	freelist := int(order.Uint64(good[newest+48:])) * pageSize
	firstLeaf := at
	for order.Uint16(good[firstLeaf+8:]) == kindBranch {
		firstLeaf = int(order.Uint64(good[firstLeaf+24:])) * pageSize
	}
	if order.Uint16(good[freelist+10:]) < 2 {
		t.Fatal("the file is too small for this test: it has no two free pages")
	}

	for name, c := range map[string]struct {
		spoil func(b []byte)
		want  string
	}{
		"its own child":          {func(b []byte) { order.PutUint64(b[at+24:], root) }, "used twice"},
		"child twice":            {func(b []byte) { copy(b[at+24:at+32], b[at+40:at+48]) }, "out of order"},
		"child outside":          {func(b []byte) { order.PutUint64(b[at+24:], 1<<40) }, "outside the file"},
		"child is meta":          {func(b []byte) { order.PutUint64(b[at+24:], 1) }, "outside the file"},
		"no children":            {func(b []byte) { order.PutUint16(b[at+10:], 0) }, "without children"},
		"more children":          {func(b []byte) { order.PutUint16(b[at+10:], 0xFFFF) }, "do not fit"},
		"kind":                   {func(b []byte) { order.PutUint16(b[at+8:], kindFreelist) }, "of kind 16"},
		"overflow":               {func(b []byte) { order.PutUint32(b[at+12:], 1<<31) }, "outside the file"},
		"id":                     {func(b []byte) { order.PutUint64(b[at:], root+1) }, "says that it is"},
		"key outside":            {func(b []byte) { order.PutUint32(b[at+16:], 1<<31) }, "outside of it"},
		"key length":             {func(b []byte) { order.PutUint32(b[at+20:], 1<<31) }, "outside of it"},
		"key inside the table":   {func(b []byte) { order.PutUint32(b[at+16:], 8) }, "outside of it"},
		"value length":           {func(b []byte) { order.PutUint32(b[firstLeaf+28:], 1<<31) }, "outside of it"},
		"bucket inside a bucket": {func(b []byte) { order.PutUint32(b[firstLeaf+16:], leafBucket) }, "has flags 1"},
		"key shorter":            {func(b []byte) { order.PutUint32(b[at+36:], order.Uint32(b[at+36:])-1) }, "out of order"},
		"flags":                  {func(b []byte) { order.PutUint32(b[firstLeaf+16:], 2) }, "has flags 2"},
		"order":                  {func(b []byte) { b[at+16+int(order.Uint32(b[at+16:]))] = 0xFF }, "out of order"},
		"order of a leaf": {func(b []byte) { // its second key comes first
			copy(b[firstLeaf+16:firstLeaf+32], b[firstLeaf+32:firstLeaf+48])
			order.PutUint32(b[firstLeaf+20:], order.Uint32(b[firstLeaf+20:])+16)
		}, "out of order"},
		"order of a child": {func(b []byte) { // its last key comes after the next child
			last := firstLeaf + 16*int(order.Uint16(b[firstLeaf+10:]))
			b[last+int(order.Uint32(b[last+4:]))] = 0xFF
		}, "out of order"},
		"long free list": {func(b []byte) {
			order.PutUint16(b[freelist+10:], 0xFFFF)
			order.PutUint64(b[freelist+16:], 1<<60)
		}, "do not fit"},
		"free list of another kind": {func(b []byte) { order.PutUint16(b[freelist+8:], kindLeaf) }, "not the free list"},
		"page in use is free": {func(b []byte) {
			order.PutUint16(b[freelist+10:], 1)
			order.PutUint64(b[freelist+16:], root)
		}, "used twice"},
		"page free twice":   {func(b []byte) { copy(b[freelist+24:freelist+32], b[freelist+16:freelist+24]) }, "used twice"},
		"free page outside": {func(b []byte) { order.PutUint64(b[freelist+16:], 1<<40) }, "outside the file"},
		"lost page":         {func(b []byte) { order.PutUint16(b[freelist+10:], order.Uint16(b[freelist+10:])-1) }, "neither used nor free"},
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(good)
			c.spoil(b)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := Open(path, settings)
			var damage *ChecksumError
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("open: %v, want %q", err, c.want)
			}
			if _, err := Verify(t.Context(), path, nil); !errors.As(err, &damage) {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

// A program has replaced a value. The pages are good, but the value is not.
func TestDamagedValues(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		bucket, key []byte
		spoil       func(value []byte) []byte
		opens       bool // only reading the summary notices it
	}{
		"head":             {bucketMeta, keyHead, flipLast, false},
		"head short":       {bucketMeta, keyHead, func(v []byte) []byte { return v[:5] }, false},
		"settings":         {bucketMeta, keySettings, flipLast, false},
		"format":           {bucketMeta, keyFormat, flipLast, false},
		"space":            {bucketSpaces, spaceKey(0), flipLast, false},
		"space missing":    {bucketSpaces, spaceKey(0), nil, false},
		"state":            {bucketStates, stateKey(0, 0), flipLast, false},
		"state missing":    {bucketStates, stateKey(0, 0), nil, false},
		"block":            {bucketBlocks, []byte("b"), flipLast, false},
		"block missing":    {bucketBlocks, []byte("b"), nil, false},
		"offset":           {bucketOffsets, offsetKey(&Offset{Topic: "orders"}), flipLast, false},
		"part":             {bucketParts, []byte("b"), flipLast, false},
		"part missing":     {bucketParts, []byte("b"), nil, false},
		"part of other":    {bucketParts, []byte("b"), resealPart, false},
		"fold":             {bucketStates, stateKey(0, 1), flipLast, false},
		"fold missing":     {bucketStates, stateKey(0, 1), nil, false},
		"offset missing":   {bucketOffsets, offsetKey(&Offset{Topic: "orders"}), nil, false},
		"summary":          {bucketSummaries, blockKey(0, "b"), flipLast, true},
		"summary missing":  {bucketSummaries, blockKey(0, "b"), nil, false},
		"summary of other": {bucketSummaries, blockKey(0, "b"), resealSummary, false},
		"basis's space":    {bucketSpaces, spaceKey(1), flipLast, false},
		"basis's space, 0": {bucketSpaces, spaceKey(1), nil, false},
		"basis":            {bucketBases, spaceKey(1), flipLast, false},
		"basis missing":    {bucketBases, spaceKey(1), nil, false},
		"source":           {bucketSources, blockKey(1, "b"), flipLast, false},
		"source missing":   {bucketSources, blockKey(1, "b"), nil, false},
		"basis's state":    {bucketStates, stateKey(1, 0), flipLast, false},
		"basis's state, 0": {bucketStates, stateKey(1, 0), nil, false},
		"basis's fold":     {bucketStates, stateKey(1, 1), flipLast, false},
		"basis's fold, 0":  {bucketStates, stateKey(1, 1), nil, false},
		"basis's block":    {bucketSummaries, blockKey(1, "b"), flipLast, true},
		"basis's block, 0": {bucketSummaries, blockKey(1, "b"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			s, _ := mustOpen(t, path)
			r := rand.New(rand.NewPCG(14, 1))
			state := incremental.NewState(incremental.DefaultFeatures(2))
			change := changeTo(state, []*incremental.State{state})
			change.Offsets, change.InUse = []Offset{{Topic: "orders", Next: 3}}, 1
			for _, id := range []string{"a", "b", "c"} {
				b := randomBlock(r, id, 2, 2)
				b.Part = takePartAgain(b)
				state.Add(b.Summary)
				change.put(b)
			}
			change.Spaces = append(change.Spaces, SpaceChange{
				Space: Space{Number: 1, Report: []byte("how")}, Sources: []string{"b"}, State: state, Folds: change.Spaces[0].Folds, Put: change.Spaces[0].Put,
			})
			if _, err := s.Save(change); err != nil {
				t.Fatal(err)
			}
			err := s.db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(c.bucket)
				if c.spoil == nil {
					return b.Delete(c.key)
				}
				return b.Put(c.key, c.spoil(bytes.Clone(b.Get(c.key))))
			})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			var damage *ChecksumError
			s, _, err = Open(path, settings)
			if c.opens {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Summary(Features, "a"); err != nil {
					t.Errorf("another summary: %v", err)
				}
				if _, err = s.Summary(Features, "b"); err == nil {
					_, err = s.Summary(1, "b")
				}
			}
			if s != nil {
				s.Close()
			}
			if !errors.As(err, &damage) {
				t.Fatalf("the error is %v", err)
			}
			report, err := Verify(t.Context(), path, nil)
			if name == "format" {
				if !errors.As(err, &damage) {
					t.Errorf("verify: %v", err)
				}
				return
			}
			if err != nil || report.OK || report.Damaged == 0 || report.Damage[0].Bucket != string(c.bucket) {
				t.Errorf("verified as %+v, %v", report, err)
			}
		})
	}
}

func flipLast(value []byte) []byte {
	value[len(value)-1] ^= 1
	return value
}

// resealPart replaces a value by the part of another block.
func resealPart([]byte) []byte {
	value := takePartAgain(randomBlock(rand.New(rand.NewPCG(15, 1)), "", 2, 2)).AppendBinary(frame())
	if err := seal(bucketParts, []byte("b"), value); err != nil {
		panic(err)
	}
	return value
}

// resealSummary replaces a value by the summary of another block, with a good checksum.
func resealSummary([]byte) []byte {
	value := randomBlock(rand.New(rand.NewPCG(15, 1)), "", 2, 2).Summary.AppendBinary(frame())
	if err := seal(bucketSummaries, blockKey(0, "b"), value); err != nil {
		panic(err)
	}
	return value
}

// A summary of a block that is not in the ledger is harmless, but streamd never saved it.
func TestOrphan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	err := s.db.Update(func(tx *bbolt.Tx) error {
		w := writer{tx: tx}
		return w.putValue(bucketSummaries, blockKey(Features, "lost"), append(frame(), 1, 2, 3))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	report, err := Verify(t.Context(), path, nil)
	if err != nil || report.OK || report.Damaged != 1 || report.Damage[0].Key != "lost" {
		t.Errorf("verified as %+v, %v", report, err)
	}
}

// Every value is unchanged, but the state is not the sum of the blocks.
func TestStateOfOtherBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	r := rand.New(rand.NewPCG(21, 1))
	b, other := randomBlock(r, "a", 5, 2), randomBlock(r, "a", 5, 2)
	state := incremental.NewState(incremental.DefaultFeatures(2))
	state.Add(other.Summary)
	if _, err := s.Save(changeTo(state, nil, b)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	right := incremental.NewState(incremental.DefaultFeatures(2))
	right.Add(b.Summary)
	report, err := Verify(t.Context(), path, nil)
	if err != nil || report.OK || report.Damaged != 0 || report.Saved != state.Digest() || report.Summed != right.Digest() {
		t.Errorf("verified as %+v, %v", report, err)
	}
}

// The same for the digest in a block's entry.
func TestDigestOfAnotherSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	b := randomBlock(rand.New(rand.NewPCG(23, 1)), "a", 5, 2)
	state := incremental.NewState(incremental.DefaultFeatures(2))
	state.Add(b.Summary)
	if _, err := s.Save(changeTo(state, nil, b)); err != nil {
		t.Fatal(err)
	}
	digest := b.Summary.Digest()
	digest[31] ^= 1
	err := s.update(func(w *writer) error {
		h, err := readHead(w.tx)
		if err != nil {
			return err
		}
		w.head = &h
		h.blocks = tally{}
		value := appendBlock(frame(), &b.Entry, &digest)
		if err := w.putValue(bucketBlocks, []byte("a"), value); err != nil {
			return err
		}
		h.blocks.add(value)
		return w.putHead()
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	report, err := Verify(t.Context(), path, nil)
	if err != nil || report.OK || report.Damaged != 1 || report.Damage[0].Bucket != "blocks" || report.Damage[0].Key != "a" {
		t.Errorf("verified as %+v, %v", report, err)
	}
}

// The same for parts and folds: each is good by itself, but belongs to other blocks.
func TestPartsAndFoldsOfOtherBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 1))
	b, other := randomBlock(r, "a", 5, 2), randomBlock(r, "a", 5, 2)
	b.Part = takePartAgain(b)
	state, wrong := incremental.NewState(incremental.DefaultFeatures(2)), incremental.NewState(incremental.DefaultFeatures(2))
	state.Add(b.Summary)
	wrong.Add(other.Summary)
	for _, c := range []struct {
		bucket []byte
		part   *sample.Part
		fold   *incremental.State
	}{
		{nil, b.Part, state},
		{bucketParts, takePartAgain(other), state},
		{bucketStates, b.Part, wrong},
	} {
		path := filepath.Join(t.TempDir(), "streamd.db")
		s, _ := mustOpen(t, path)
		b.Part = c.part
		if _, err := s.Save(changeTo(state, []*incremental.State{c.fold}, b)); err != nil {
			t.Fatal(err)
		}
		s.Close()
		report, err := Verify(t.Context(), path, nil)
		if err != nil || report.OK != (c.bucket == nil) || !report.OK && (report.Damaged != 1 || report.Damage[0].Bucket != string(c.bucket)) {
			t.Errorf("%s: verified as %+v, %v", c.bucket, report, err)
		}
	}
}
