package snapshot

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Pages are damaged while a file is open. Every call ends, with an error or without one. After a
// panic of bbolt in the middle of a transaction, whose locks stay held, no call waits for them.
func TestDamageWhileTheFileIsOpen(t *testing.T) {
	const seeds = 40
	broken := 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(34, seed))
		path := filepath.Join(t.TempDir(), "streamd.db")
		w := newWorld(r, 3)
		s, _ := mustOpen(t, path)
		for range 3 {
			for range 40 {
				w.step()
			}
			w.save(t, s)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			t.Fatal(err)
		}
		page := int64(os.Getpagesize())
		for at := 2 * page; at < size; at += page { // all pages but those of the meta
			if seed%2 == 0 || r.IntN(3) == 0 {
				b := make([]byte, page)
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				if seed%4 == 1 {
					clear(b)
				}
				if _, err := f.WriteAt(b, at); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range 3 {
				for range 40 {
					w.step()
				}
				if _, err := s.Save(w.change()); errors.As(err, new(*BrokenError)) != (s.Broken() != nil) {
					t.Errorf("seed %d: %v, broken: %v", seed, err, s.Broken())
				}
				s.SaveHistory([]byte("h"))
				s.Part("any")
				s.Compact(t.Context())
			}
			if s.Broken() != nil {
				broken++
				if _, err := s.Save(w.change()); !errors.As(err, new(*BrokenError)) {
					t.Errorf("seed %d: a broken store saves: %v", seed, err)
				}
				if _, err := s.Part("any"); !errors.As(err, new(*BrokenError)) {
					t.Errorf("seed %d: a broken store reads: %v", seed, err)
				}
			}
			s.Close()
		}()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatalf("seed %d: a call waits for a lock that nobody will release", seed)
		}
	}
	if broken == 0 {
		t.Errorf("none of %d files made bbolt panic in the middle of a transaction", seeds)
	}
}
