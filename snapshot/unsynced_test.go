package snapshot

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func fileAt(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// continueElsewhere checks that a store whose sync has failed, in a save of changes that w still
// has, goes on in a new file, and only once.
func continueElsewhere(t *testing.T, key *Key, path string, s *Store, w *world, before os.FileInfo) {
	t.Helper()
	steps := func() {
		for range 20 {
			w.step()
		}
	}
	steps()
	w.save(t, s)
	after := fileAt(t, path)
	if os.SameFile(before, after) {
		t.Error("after a failed sync a save is in the same file")
	}
	steps()
	w.save(t, s)
	if !os.SameFile(after, fileAt(t, path)) {
		t.Error("the new file is replaced, too")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, got, err := key.Open(path, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got.Keyed = false
	w.compare(t, s, got)
}

// TestFailedSync where the system has no filter of calls: bbolt is told that its sync has failed.
func TestReportedFailureOfSync(t *testing.T) {
	for name, key := range map[string]*Key{"plain": nil, "key": newKey(t, "a secret that is long enough, and more")} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "streamd.db")
			w := newWorld(rand.New(rand.NewPCG(35, 2)), 3)
			s, _, err := key.Open(path, settings)
			if err != nil {
				t.Fatal(err)
			}
			failSyncs(s.db, func() {})
			for {
				for range 20 {
					w.step()
				}
				before := fileAt(t, path)
				_, err := s.Save(w.change())
				if err == nil {
					w.saved()
					continue
				}
				if !errors.Is(err, syscall.EIO) {
					t.Fatal(err)
				}
				continueElsewhere(t, key, path, s, w, before)
				return
			}
		})
	}
}
