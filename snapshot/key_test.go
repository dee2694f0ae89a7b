package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func newKey(t testing.TB, secret string) *Key {
	t.Helper()
	k, err := NewKey([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyTooShort(t *testing.T) {
	if k, err := NewKey(make([]byte, LeastKey-1)); err == nil || k != nil {
		t.Error("a key of 15 bytes was taken")
	}
}

func TestReadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for _, c := range []struct {
		text  string
		mode  os.FileMode
		loose bool
		ok    bool
	}{
		{"sixteen bytes or more\n", 0o600, false, true},
		{"sixteen bytes or more", 0o640, true, true},
		{"sixteen bytes or more\r\n", 0o604, true, true},
		{"fifteen bytes..\n", 0o600, false, false},
		{strings.Repeat("x", mostKey+1), 0o600, false, false},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		k, loose, err := ReadKey(path)
		if (err == nil) != c.ok || loose != c.loose || c.ok && *k != *newKey(t, "sixteen bytes or more") {
			t.Errorf("%.30q: %v, %v, %v", c.text, k, loose, err)
		}
	}
}

// A file under a key has the same contents as one without, through saves, failed saves,
// restarts and compactions. Its MAC covers all its values.
func TestKeyedFileEqualsMemory(t *testing.T) {
	key := newKey(t, "sixteen bytes or more")
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			r := rand.New(rand.NewPCG(51, seed))
			path := filepath.Join(t.TempDir(), "streamd.db")
			w := newWorld(r, 1+r.IntN(3))
			s, _, err := key.Open(path, settings)
			if err != nil {
				t.Fatal(err)
			}
			failing := false
			for range 25 {
				for range r.IntN(30) {
					w.step()
				}
				if r.IntN(4) == 0 && !failing {
					failSyncs(s.db, func() {}) // the file may contain the save all the same
					failing = true
				}
				if _, err := s.Save(w.change()); errors.Is(err, syscall.EIO) {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				w.saved()
				if r.IntN(4) == 0 {
					if err := s.SaveHistory([]byte("history")); err != nil && !errors.Is(err, syscall.EIO) {
						t.Fatal(err)
					}
				}
				if r.IntN(4) == 0 {
					w.compact(t, s)
					failing = false
				}
				if r.IntN(3) == 0 {
					s.Close()
					var c *Contents
					if s, c, err = key.Open(path, settings); err != nil {
						t.Fatal(err)
					}
					failing = false
					c.History, c.Keyed = nil, false
					w.compare(t, s, c)
				}
			}
			s.Close()
			if report, err := key.Verify(t.Context(), path, nil); err != nil || !report.OK || !report.Keyed {
				t.Fatalf("%+v, %v", report, err)
			}
		})
	}
}

// After a failed sync a file under a key has the save all the same. A compaction continues
// from that save, and a later save from the compaction.
func TestCompactKeyedAfterFailedSync(t *testing.T) {
	key := newKey(t, "sixteen bytes or more")
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _, err := key.Open(path, settings)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(rand.New(rand.NewPCG(54, 1)), 2)
	failSyncs(s.db, func() {})
	for err == nil {
		for range 10 {
			w.step()
		}
		_, err = s.Save(w.change())
		w.saved()
	}
	if !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	w.compact(t, s)
	for range 2 {
		s.Close()
		var c *Contents
		if s, c, err = key.Open(path, settings); err != nil {
			t.Fatal(err)
		}
		c.Keyed = false
		w.compare(t, s, c)
		w.step()
		w.save(t, s)
	}
	s.Close()
}

// Without the key nobody can change a value of a file that is under one, remove one, or
// restore an old one, even with all checksums recomputed.
func TestForgedFile(t *testing.T) {
	key := newKey(t, "sixteen bytes or more")
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _, err := key.Open(path, settings)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(rand.New(rand.NewPCG(52, 1)), 2)
	for range 60 {
		w.step()
	}
	w.save(t, s)
	for range 60 {
		w.step()
	}
	w.withdraw(slices.Sorted(maps.Keys(w.live))[0])
	if err := s.SaveHistory([]byte("history")); err != nil {
		t.Fatal(err)
	}
	w.save(t, s)
	s.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	forge := func(name string, f func(tx *bbolt.Tx) error) {
		t.Helper()
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(f); err != nil {
			t.Fatal(err)
		}
		db.Close()
		if _, err := key.Verify(t.Context(), path, nil); !errors.Is(err, ErrMAC) {
			t.Errorf("%s: verified: %v", name, err)
		}
		s, _, err := key.Open(path, settings)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrMAC) {
			t.Errorf("%s: opened: %v", name, err)
		}
	}

	// An offset is set back, and everything that binds it is recomputed. Without the key
	// the file is good.
	forge("offset", func(tx *bbolt.Tx) error {
		h, err := readHead(tx)
		if err != nil {
			return err
		}
		key, value := tx.Bucket(bucketOffsets).Cursor().First()
		o, err := decodeOffset(key, value)
		if err != nil {
			return err
		}
		o.Next--
		o.HasLast, o.Last = false, Fingerprint{}
		w := writer{tx: tx, head: &h}
		return errors.Join(w.putOffset(o), w.putHead())
	})
	if report, err := Verify(t.Context(), path, nil); err != nil || !report.OK {
		t.Errorf("without the key the forged file is %+v, %v: this test shows nothing", report, err)
	}

	// A value of every kind.
	type place struct{ bucket, key []byte }
	var places []place
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bbolt.Bucket) error {
			key, _ := b.Cursor().First()
			places = append(places, place{bytes.Clone(bucket), bytes.Clone(key)})
			return nil
		})
	})
	db.Close()
	if err != nil || len(places) != 11 {
		t.Fatalf("%d buckets: %v", len(places), err)
	}
	places = append(places, place{bucketMeta, keySettings})
	for _, p := range places {
		if string(p.key) == string(keyFormat) {
			continue // without it the file is not a snapshot
		}
		name := string(p.bucket) + " " + string(p.key)
		forge(name, func(tx *bbolt.Tx) error {
			value := bytes.Clone(tx.Bucket(p.bucket).Get(p.key))
			if len(value) == frameSize {
				value = append(value, 0)
			}
			value[len(value)-1] ^= 1
			w := writer{tx: tx}
			return w.putValue(p.bucket, p.key, value)
		})
		if !bytes.Equal(p.bucket, bucketMeta) {
			forge(name+" deleted", func(tx *bbolt.Tx) error { return tx.Bucket(p.bucket).Delete(p.key) })
			forge(name+" under another key", func(tx *bbolt.Tx) error {
				w := writer{tx: tx}
				return w.putValue(p.bucket, append(bytes.Clone(p.key), 1), bytes.Clone(tx.Bucket(p.bucket).Get(p.key)))
			})
		}
	}
}

// A key must fit the file, or there is a clear error. A file gets a key, another key or
// none only with the key that it is under.
func TestRekey(t *testing.T) {
	key, other := newKey(t, "sixteen bytes or more"), newKey(t, "another sixteen bytes")
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	w := newWorld(rand.New(rand.NewPCG(53, 1)), 2)
	for range 40 {
		w.step()
	}
	w.save(t, s)
	s.Close()
	check := func(k *Key, want error) {
		t.Helper()
		s, c, err := k.Open(path, settings)
		if err == nil {
			c.Keyed = false
			w.compare(t, s, c)
			w.step()
			w.save(t, s)
			s.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("opened: %v, want %v", err, want)
		}
		if _, err := k.Compact(t.Context(), path); !errors.Is(err, want) {
			t.Errorf("compacted: %v, want %v", err, want)
		}
		if want == nil {
			w.uncompacted = time.Time{}
		}
		if k == nil {
			want = nil // every reader is allowed
		}
		report, err := k.Verify(t.Context(), path, nil)
		if !errors.Is(err, want) || err == nil && !report.OK {
			t.Errorf("verified: %+v, %v, want %v", report, err, want)
		}
	}
	rekey := func(from, to *Key, want error) {
		t.Helper()
		if err := from.Rekey(path, to); !errors.Is(err, want) {
			t.Errorf("rekeyed: %v, want %v", err, want)
		}
	}
	check(nil, nil)
	check(key, ErrNoMAC)
	rekey(other, key, ErrNoMAC)
	rekey(nil, key, nil)
	check(key, nil)
	check(nil, ErrKeyNeeded)
	check(other, ErrMAC)
	rekey(nil, other, ErrKeyNeeded)
	rekey(other, other, ErrMAC)
	rekey(key, other, nil)
	check(other, nil)
	check(key, ErrMAC)
	rekey(other, nil, nil)
	check(nil, nil)
	check(other, ErrNoMAC)
}
