package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"streamd/incremental"
)

// A file that is older than the last saved retirement says so when it is opened. So does
// a new file in its place. Both stop once as many retirements have been made again.
func TestOlderThanRetirement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(41, 1)), 2)
	for _, id := range []string{"a", "b", "c"} {
		w.add(randomBlock(w.r, id, 3, 2))
	}
	w.save(t, s)
	if _, err := os.Stat(retiredPath(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before any retirement: %v", err)
	}
	s.Close()
	backup, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, _ = mustOpen(t, path)
	for _, id := range []string{"a", "b"} {
		w.remove(id)
		w.retired++
		w.counts.AppliedRecords++
		w.save(t, s)
	}
	s.Close()
	if beside, err := os.ReadFile(retiredPath(path)); err != nil || len(beside) != frameSize+16 {
		t.Errorf("the file beside it is %q, %v", beside, err)
	}
	missed := func(want int64) *Store {
		t.Helper()
		s, c := mustOpen(t, path)
		if c.Missed != want || want > 0 && !c.LastRetired.Equal(w.savedAt) || want == 0 && !c.LastRetired.IsZero() {
			t.Errorf("it has missed %d, the last of %v, want %d, %v", c.Missed, c.LastRetired, want, w.savedAt)
		}
		return s
	}
	missed(0).Close()

	for name, image := range map[string][]byte{"backup": backup, "missing": nil} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if image != nil {
			if err := os.WriteFile(path, image, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(name, func(t *testing.T) {
			s := missed(2)
			change := Change{SavedAt: w.savedAt.Add(time.Hour)}
			if image != nil {
				change.Delete = []string{"a", "b", "c"}
				change.Spaces = []SpaceChange{{State: incremental.NewState(w.features)}}
			}
			for again := range int64(2) {
				// Other saves, and opening it, do not clear that.
				if _, err := s.Save(change); err != nil {
					t.Fatal(err)
				}
				s.Close()
				s = missed(2 - again)
				if _, err := s.Save(Change{Retired: 1, Spaces: change.Spaces, SavedAt: change.SavedAt}); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
			missed(0).Close()
		})
	}
}

// Where the file beside it is lost, or a crash came before it was written, the snapshot
// writes it again. A damaged one is reported.
func TestRetiredFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	if _, err := s.Save(Change{Retired: 3, SavedAt: time.UnixMilli(9).UTC()}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	want, err := os.ReadFile(retiredPath(path))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(retiredPath(path)); err != nil {
		t.Fatal(err)
	}
	s, _ = mustOpen(t, path)
	s.Close()
	if got, err := os.ReadFile(retiredPath(path)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, want %x: %v", got, want, err)
	}
	for _, bad := range [][]byte{{}, want[:5], append(bytes.Clone(want), 0), append(bytes.Clone(want[:len(want)-1]), 7)} {
		if err := os.WriteFile(retiredPath(path), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		var damage *ChecksumError
		if _, _, err := Open(path, settings); !errors.As(err, &damage) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// If a retirement cannot be noted beside the file, the save reports an error.
func TestRetiredFileCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	if err := os.MkdirAll(filepath.Join(retiredPath(path), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(Change{Retired: 1}); err == nil {
		t.Fatal("saved")
	}
	if err := os.RemoveAll(retiredPath(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(Change{Retired: 1}); err != nil {
		t.Fatal(err)
	}
}
