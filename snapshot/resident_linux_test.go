package snapshot

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// A file may be longer than its mapping, since it grows ahead of it. The memory behind the
// mapping stays untouched.
func TestForgetsNothingBehindTheMapping(t *testing.T) {
	size := 64 * os.Getpagesize()
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	s.Close()
	var db *bbolt.DB
	var data uintptr
	var behind []byte
	// Gaps that earlier tests have left are filled until the two lie together.
	for tries := 0; ; tries++ {
		var err error
		if behind, err = syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE); err != nil {
			t.Fatal(err)
		}
		defer syscall.Munmap(behind)
		if db, err = bbolt.Open(path, 0, &bbolt.Options{InitialMmapSize: size}); err != nil {
			t.Fatal(err)
		}
		if data = db.Info().Data; data+uintptr(size) == uintptr(unsafe.Pointer(&behind[0])) {
			break
		}
		db.Close()
		if tries == 1000 {
			t.Fatal("the file is not mapped before memory of ours")
		}
	}
	db.AllocSize, db.NoSync = growth, true
	s = &Store{db: db, readers: new(sync.WaitGroup), path: path, data: openData(t, path)}
	defer s.Close()
	for i := range behind {
		behind[i] = 1
	}
	w := newWorld(rand.New(rand.NewPCG(7, 1)), 2)
	for {
		w.step()
		w.save(t, s)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > int64(size) {
			break
		}
	}
	if db.Info().Data != data {
		t.Fatal("the file has been mapped anew")
	}
	if n := bytes.Count(behind, []byte{1}); n != size {
		t.Errorf("%d bytes behind the mapping have been overwritten", size-n)
	}
}

// A page that is requested out of order brings those around it into the system's cache.
func TestPagesInNoOrderAreReadByStretches(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(path, make([]byte, 3*stretch), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapped, err := unix.Mmap(int(file.Fd()), 0, 3*stretch, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	cached := func(stretches ...int) (n int) { // pages
		for _, i := range stretches {
			pages := make([]byte, stretch/page)
			if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[i*stretch])), stretch, uintptr(unsafe.Pointer(&pages[0]))); e != 0 {
				t.Fatal(e)
			}
			for _, p := range pages {
				n += int(p & 1)
			}
		}
		return n
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if cached(0, 1, 2) > 0 {
		t.Skip("the file system of temporary files has nothing but memory")
	}
	each := uint64(stretch / page)
	c := pageCheck{file: file, size: int64(page), seen: make([]bool, 3*each), asked: make([]bool, 3)}
	if _, err := c.page(each + each/2); err != nil {
		t.Fatal(err)
	}
	for wait := time.Now().Add(time.Minute); cached(1) < stretch/page; time.Sleep(time.Millisecond) {
		if time.Now().After(wait) {
			t.Fatalf("%d pages of the stretch are in the cache, of %d", cached(1), stretch/page)
		}
	}
	if n := cached(0, 2); n > 0 {
		t.Errorf("%d pages of other stretches are in the cache", n)
	}
}
