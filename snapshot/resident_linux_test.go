package snapshot

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"go.etcd.io/bbolt"
)

// A file may be longer than its mapping, since it grows ahead of it. What lies in
// memory behind the mapping stays as it is.
func TestForgetsNothingBehindTheMapping(t *testing.T) {
	size := 64 * os.Getpagesize()
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	s.Close()
	var db *bbolt.DB
	var data uintptr
	var behind []byte
	// The gaps that others have left are filled until the two come to lie together.
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
	s = &Store{db: db, path: path}
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
