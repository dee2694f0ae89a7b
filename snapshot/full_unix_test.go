//go:build unix

package snapshot

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// A disk fills up in the middle of a save: some pages are written, others are not. A
// limit on file sizes stands for the disk. It applies to the whole process, and go test
// writes files of its own in this one, so the test runs in another process.
func TestDiskFillsUp(t *testing.T) {
	const alone = "STREAMD_TEST_FULL_DISK"
	if os.Getenv(alone) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestDiskFillsUp$", "-test.v")
		c.Env = append(os.Environ(), alone+"=yes")
		if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestDiskFillsUp")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "streamd.db")
	w := newWorld(rand.New(rand.NewPCG(19, 1)), 3)
	s, _ := mustOpen(t, path)
	for range 50 {
		w.step()
	}
	w.save(t, s)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before := worldCopy(w)
	for range 2000 {
		w.step()
	}

	// bbolt grows the file before it writes, which would fail at once.
	s.db.NoGrowSync = true
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	setTo(&low.Cur, info.Size()+3*int64(os.Getpagesize())+100)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	_, saveErr := s.Save(w.change())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(saveErr, syscall.EFBIG) {
		t.Fatalf("saved on a full disk: %v", saveErr)
	}
	if after, err := os.Stat(path); err != nil || after.Size() <= info.Size() {
		t.Fatalf("nothing was written at all: %v", err)
	}

	// A daemon that is killed now starts from the save before.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "killed.db")
	if err := os.WriteFile(killed, b, 0o600); err != nil {
		t.Fatal(err)
	}
	other, c := mustOpen(t, killed)
	before.compare(t, other, c)

	// A daemon that goes on saves everything with the next save.
	s.db.NoGrowSync = false
	w.step()
	w.save(t, s)
	s.Close()
	s, c = mustOpen(t, path)
	w.compare(t, s, c)
}

// setTo sets a limit, whose type depends on the system.
func setTo[N int64 | uint64](limit *N, size int64) { *limit = N(size) }
