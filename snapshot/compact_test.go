package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"streamd/incremental"
	"streamd/incremental/gram"
	"streamd/retire"
)

// planted is a block whose id, label and values can be recognised in a file.
func planted() block {
	b := &incremental.Block{
		Columns: []gram.Column{gram.ColumnOf([]float32{1234.5678, 8765.4321}), gram.ColumnOf([]float32{-777.125, 555.0625})},
		Classes: []string{"1", "planted-label"}, Codes: []int32{1, 1},
	}
	var z incremental.Summariser
	s, err := z.Summarise(b)
	if err != nil {
		panic(err)
	}
	return block{Block{
		Entry: retire.Entry{ID: "key:planted-customer", Position: incremental.Position{Topic: "orders"}, Time: time.UnixMilli(5).UTC(), Rows: 2},
		Part:  takePart(b, s),
	}, s}
}

// traces are the bytes of planted in a file, by name.
func traces(b block) map[string][]byte {
	t := map[string][]byte{
		"id":    []byte("planted-customer"),
		"label": []byte("planted-label"),
		"row":   binary.LittleEndian.AppendUint32(nil, math.Float32bits(1234.5678)),
		"part":  b.Part.AppendBinary(nil)[8:40],
	}
	// The summary differs from its block only in its sums, which are its last bytes.
	summary := b.Summary.AppendBinary(nil)
	t["summary"] = summary[len(summary)-32:]
	return t
}

func found(t *testing.T, path string, traces map[string][]byte) (names []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, trace := range traces {
		if bytes.Contains(b, trace) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A retired block stays in free pages, however often the file is saved. After a compaction
// nothing of it is left, and the space that values do not use is all zeros.
func TestCompactForgets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "streamd.db")
	s, _ := mustOpen(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	w := newWorld(rand.New(rand.NewPCG(31, 1)), 2)
	b := planted()
	w.add(b)
	for i := range 400 {
		w.add(randomBlock(w.r, fmt.Sprintf("key:%d", i), 3, 2))
	}
	w.save(t, s)
	if got := found(t, path, traces(b)); !slices.Equal(got, []string{"id", "label", "part", "row", "summary"}) {
		t.Fatalf("of what was planted the file has %q: this test would show nothing", got)
	}
	w.remove(b.Entry.ID)
	w.retired++
	for i := range 300 { // they leave space that is not reused soon
		w.remove(fmt.Sprintf("key:%d", i))
	}
	for range 3 {
		w.counts.AppliedRecords++
		w.save(t, s)
	}
	if got := found(t, path, traces(b)); len(got) < 4 {
		t.Fatalf("after three saves the file has only %q: this test would show nothing", got)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if r, err := FindRemains(path); err != nil || r.Written == 0 || r.Pages == 0 || !r.Uncompacted.Equal(w.uncompacted) {
		t.Errorf("before: %+v, %v", r, err)
	}

	// An open file and a closed one give the same result.
	offline := filepath.Join(t.TempDir(), "offline.db")
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(offline, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (*Key)(nil).Compact(t.Context(), offline); err != nil {
		t.Fatal(err)
	}
	s, _ = mustOpen(t, path)
	w.compact(t, s)
	if _, _, err := OpenReadOnly(path); !errors.Is(err, ErrInUse) {
		t.Errorf("the new file is not locked: %v", err)
	}
	s.Close()
	for _, path := range []string{path, offline} {
		if got := found(t, path, traces(b)); got != nil {
			t.Errorf("%s: compacted it still has %q", path, got)
		}
		if r, err := FindRemains(path); err != nil || r.Written != 0 || !r.Uncompacted.IsZero() {
			t.Errorf("%s: compacted it has %+v, %v", path, r, err)
		}
		if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
			t.Errorf("%s: %+v, %v", path, report, err)
		}
		s, c := mustOpen(t, path)
		w.compare(t, s, c)
		s.Close()
	}
	after, err := os.Stat(path)
	if err != nil || after.Mode() != 0o640 || after.Size() >= before.Size() {
		t.Errorf("a file of %d bytes and mode %v has become one of %d and %v: %v", before.Size(), before.Mode(), after.Size(), after.Mode(), err)
	}

	// A save to it leaves remains again, but none of the retired block.
	s, _ = mustOpen(t, path)
	w.step()
	w.save(t, s)
	s.Close()
	if r, err := FindRemains(path); err != nil || r.Written == 0 || !r.Uncompacted.IsZero() {
		t.Errorf("after another save it has %+v, %v", r, err)
	}
}

// The ends of used pages are zero. bbolt alone leaves old bytes there.
func TestSlackIsZero(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(32, 1)), 3)
	w.withdraws, w.archives = true, true
	for range 45 {
		for range 40 {
			w.step()
		}
		w.save(t, s)
	}
	slack := 0
	pageSize := int64(s.db.Info().PageSize)
	err := readPages(s.data, int(pageSize), func(at, length int64) error {
		if at%pageSize == 0 {
			return nil
		}
		slack++
		return eachWritten(s.data, at, length, func(at int64, b []byte) error {
			return fmt.Errorf("old bytes within the page at %d", at)
		})
	})
	if err != nil || slack < 100 {
		t.Errorf("of %d ends of pages: %v", slack, err)
	}
}

// A reader that began before a compaction continues with the old file.
func TestCompactWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(33, 1)), 3)
	for range 200 {
		w.step()
	}
	w.save(t, s)
	compacted := make(chan error, 1)
	n := 0
	err := s.Summaries(Features, func(e retire.Entry, summary *incremental.Summary) error {
		if n++; n == 1 {
			go func() {
				_, err := s.Compact(t.Context())
				compacted <- err
			}()
		}
		again, err := s.Summary(Features, e.ID) // of the old file or the new one
		if err == nil && again.Digest() != summary.Digest() {
			err = errors.New("another summary")
		}
		return err
	})
	if err != nil || n != len(w.live) {
		t.Fatalf("%d of %d summaries: %v", n, len(w.live), err)
	}
	if err := <-compacted; err != nil {
		t.Fatal(err)
	}
	w.uncompacted = time.Time{}
	w.step()
	w.save(t, s)
	s.Close()
	s, c := mustOpen(t, path)
	w.compare(t, s, c)
}

// Readers of the old file end in any order, one within another as well.
func TestReadersOfTheOldFile(t *testing.T) {
	s, _ := mustOpen(t, filepath.Join(t.TempDir(), "streamd.db"))
	defer s.Close()
	old := s.db
	var ends [2]func()
	for i := range ends {
		_, end, err := s.begin()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = end
	}
	compacted := make(chan error, 1)
	go func() {
		_, err := s.Compact(t.Context())
		compacted <- err
	}()
	for replaced := false; !replaced; time.Sleep(10 * time.Millisecond) { // then the old file is being closed
		s.swap.RLock()
		replaced = s.db != old
		s.swap.RUnlock()
	}
	for _, end := range ends {
		end()
	}
	if err := <-compacted; err != nil {
		t.Error(err)
	}
}

// A failed compaction leaves the file in use as it was, and leaves no other file.
func TestCompactFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(34, 1)), 3)
	for range 100 {
		w.step()
	}
	w.save(t, s)
	if err := os.MkdirAll(filepath.Join(compacting(path), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(t.Context()); err == nil {
		t.Fatal("compacted where there is no name for it")
	}
	if err := os.RemoveAll(compacting(path)); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Compact(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("ended, it has compacted: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 2 { // the file and the one beside it
		t.Errorf("it has left %v, %v", entries, err)
	}
	w.step()
	w.save(t, s)
	s.Close()
	s, c := mustOpen(t, path)
	w.compare(t, s, c)
}

// A start removes the copy that a crash has left of a compaction.
func TestCompactAfterCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	s.Close()
	if err := os.WriteFile(compacting(path), []byte("rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, link)
	if _, err := os.Stat(compacting(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// A link stays a link, to the new file.
func TestCompactBehindALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "streamd.db"), filepath.Join(dir, "link.db")
	s, _ := mustOpen(t, path)
	s.Close()
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	s, _ = mustOpen(t, link)
	if err := s.SaveHistory([]byte("history")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	if _, c := mustOpen(t, link); string(c.History) != "history" {
		t.Errorf("the history is %q", c.History)
	}
}

// A save to a file that was removed or replaced fails. When the file is back, the next save
// succeeds.
func TestFileGoes(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace bool
	}{{"removed", false}, {"replaced", true}} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "streamd.db")
			s, _ := mustOpen(t, path)
			w := newWorld(rand.New(rand.NewPCG(35, 1)), 3)
			w.step()
			w.save(t, s)
			aside := path + ".aside"
			if err := os.Rename(path, aside); err != nil {
				t.Fatal(err)
			}
			if c.replace {
				if err := os.WriteFile(path, []byte("another file"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w.step()
			if _, err := s.Save(w.change()); !errors.Is(err, ErrReplaced) {
				t.Errorf("saved: %v", err)
			}
			if err := s.SaveHistory([]byte("x")); !errors.Is(err, ErrReplaced) {
				t.Errorf("history saved: %v", err)
			}
			if _, err := s.Compact(t.Context()); !errors.Is(err, ErrReplaced) {
				t.Errorf("compacted: %v", err)
			}
			if err := os.Rename(aside, path); err != nil {
				t.Fatal(err)
			}
			w.save(t, s)
			s.Close()
			s, got := mustOpen(t, path)
			got.History = nil
			w.compare(t, s, got)
		})
	}
}

// A file that adopts the blocks of another has their summaries, parts and spaces, and
// nothing of its own blocks. Its offsets, counts and retirements stay. It can be saved
// to.
func TestAdopt(t *testing.T) {
	for _, key := range []*Key{nil, newKey(t, "a secret that is long enough, and more")} {
		dir := t.TempDir()
		open := func(name string) (*Store, *Contents) {
			t.Helper()
			s, c, err := key.Open(filepath.Join(dir, name), settings)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s, c
		}
		s, _ := open("streamd.db")
		w := newWorld(rand.New(rand.NewPCG(33, 1)), 2)
		w.archives = true // the archive goes with its features
		b := planted()
		w.add(b)
		for range 200 {
			w.step()
		}
		w.retired++
		if w.save(t, s); len(w.archived) == 0 {
			t.Error("no block is archived")
		}
		if err := s.SaveHistory([]byte("history")); err != nil {
			t.Fatal(err)
		}
		from, _ := open("others.db")
		others := newWorld(rand.New(rand.NewPCG(33, 2)), 3)
		for range 200 {
			others.step()
		}
		others.retired = 0
		others.save(t, from)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Adopt(ctx, from); !errors.Is(err, context.Canceled) {
			t.Fatalf("after its context has ended: %v", err)
		}
		if err := s.Adopt(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		others.offsets, others.counts, others.horizon, others.savedAt = w.offsets, w.counts, w.horizon, w.savedAt
		others.retirements, others.uncompacted = w.retirements, time.Time{}
		check := func() {
			t.Helper()
			s.Close()
			reopened, c := open("streamd.db")
			if s = reopened; c.Keyed != (key != nil) {
				t.Errorf("keyed: %t", c.Keyed)
			}
			if string(c.History) != "history" {
				t.Errorf("the history is %q", c.History)
			}
			c.Keyed, c.History = false, nil
			others.compare(t, s, c)
		}
		check()
		if got := found(t, filepath.Join(dir, "streamd.db"), traces(b)); len(got) > 0 {
			t.Errorf("the file still has %q of its own blocks", got)
		}
		for range 50 {
			others.step()
		}
		others.save(t, s)
		check()
	}
}
