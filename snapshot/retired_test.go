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
)

// A file that is older than the last saved retirement says so when it is opened, and
// so does a new one in its place, until another retirement is saved.
func TestOlderThanRetirement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(41, 1)), 2)
	w.add(randomBlock(w.r, "a", 3, 2))
	w.add(randomBlock(w.r, "b", 3, 2))
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
	w.remove("a")
	w.retired++
	w.save(t, s)
	retiredAt := w.savedAt
	s.Close()
	beside, err := os.ReadFile(retiredPath(path))
	if err != nil || bytes.Contains(beside, []byte("a\x00")) || len(beside) != frameSize+16 {
		t.Errorf("the file beside it is %q, %v", beside, err)
	}
	s, c := mustOpen(t, path)
	if !c.Missed.IsZero() {
		t.Errorf("the file itself has missed %v", c.Missed)
	}
	s.Close()

	put := func(image []byte) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if image == nil {
			return
		}
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, image := range [][]byte{backup, nil} {
		name := map[bool]string{true: "missing", false: "backup"}[image == nil]
		put(image)
		for range 2 { // opening it does not make it whole
			s, c = mustOpen(t, path)
			if !c.Missed.Equal(retiredAt) {
				t.Errorf("%s: missed %v, want %v", name, c.Missed, retiredAt)
			}
			if _, err := s.Save(Change{State: c.State, Horizon: c.Horizon, Folds: c.Folds, SavedAt: retiredAt.Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		if reader, c, err := OpenReadOnly(path); err != nil || !c.Missed.Equal(retiredAt) {
			t.Errorf("%s: read, it has missed %v: %v", name, c.Missed, err)
		} else {
			reader.Close()
		}
	}
	s, _ = mustOpen(t, path)
	if _, err := s.Save(Change{Retired: 1, SavedAt: retiredAt.Add(2 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, c = mustOpen(t, path); !c.Missed.IsZero() {
		t.Errorf("after another retirement it has missed %v", c.Missed)
	}
	s.Close()
	put(backup)
	if _, c = mustOpen(t, path); !c.Missed.Equal(retiredAt.Add(2 * time.Hour)) {
		t.Errorf("the backup again: missed %v", c.Missed)
	}
}

// Where the file beside it is lost, or a crash came before it was written, the snapshot
// makes it anew. A damaged one is named.
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

// A retirement that could not be noted beside the file is not saved, for the caller.
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
