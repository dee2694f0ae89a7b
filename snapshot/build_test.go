package snapshot

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// bbolt finds what was put into a built file, and nothing wrong with it, also when it changes the
// file. The walk over the pages finds them whole and without remains.
func TestBuild(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 1))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(1 + r.IntN(255))
		}
		return b
	}
	sizes := map[string]func() (key, value int){
		"small":           func() (int, int) { return 1 + r.IntN(12), r.IntN(30) },
		"ids":             func() (int, int) { return 10 + r.IntN(30), 100 },
		"of half a page":  func() (int, int) { return 20, 1500 + r.IntN(1000) },
		"of many pages":   func() (int, int) { return 20, r.IntN(100_000) },
		"long keys":       func() (int, int) { return 1 + r.IntN(bbolt.MaxKeySize), 10 },
		"keys of a page":  func() (int, int) { return 4000 + r.IntN(200), r.IntN(200) },
		"without a value": func() (int, int) { return 12, 0 },
	}
	for _, pageSize := range []int{4096, 16384} {
		for name, size := range sizes {
			for _, n := range []int{0, 1, 2, 3, 5, 40, 300, 5000} {
				if n > 300 && (name == "of many pages" || name == "long keys") {
					continue
				}
				want := map[string]map[string][]byte{}
				for i := range 1 + r.IntN(3) {
					values := map[string][]byte{}
					for range max(n-i, 0) {
						k, v := size()
						values[string(random(k))] = random(v)
					}
					want[fmt.Sprintf("bucket %d", r.IntN(100))] = values
				}
				path := filepath.Join(t.TempDir(), "built.db")
				build(t, path, pageSize, want)
				compareBuilt(t, path, want)
				if t.Failed() {
					t.Fatalf("%d values %s in pages of %d bytes", n, name, pageSize)
				}

				// bbolt goes on with the file.
				db, err := bbolt.Open(path, 0, &bbolt.Options{PageSize: pageSize, NoSync: true})
				if err != nil {
					t.Fatal(err)
				}
				err = db.Update(func(tx *bbolt.Tx) error {
					for bucket, values := range want {
						b := tx.Bucket([]byte(bucket))
						for i, key := range slices.Sorted(maps.Keys(values)) {
							if i%3 == 0 {
								delete(values, key)
								if err := b.Delete([]byte(key)); err != nil {
									return err
								}
							}
						}
						for range 20 {
							k, v := size()
							key, value := random(k), random(v)
							values[string(key)] = value
							if err := b.Put(key, value); err != nil {
								return err
							}
						}
					}
					return nil
				})
				if err != nil || db.Close() != nil {
					t.Fatal(err)
				}
				compareBuilt(t, path, want)
				if t.Failed() {
					t.Fatalf("%d values %s in pages of %d bytes, changed", n, name, pageSize)
				}
			}
		}
	}
}

// build builds a file with some buckets, in any order.
func build(t *testing.T, path string, pageSize int, want map[string]map[string][]byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b := newBuilder(file, pageSize)
	for bucket, values := range want {
		err := b.bucket([]byte(bucket), func(t *tree) error {
			for _, key := range slices.Sorted(maps.Keys(values)) {
				if err := t.put([]byte(key), values[key]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
	if err := readPages(file, pageSize, func(at, length int64) error {
		return eachWritten(file, at, length, func(at int64, b []byte) error {
			return fmt.Errorf("%d bytes at %d belong to nothing", len(b), at)
		})
	}); err != nil {
		t.Error(err)
	}
}

// compareBuilt compares all buckets of a file.
func compareBuilt(t *testing.T, path string, want map[string]map[string][]byte) {
	t.Helper()
	db, file, err := openBolt(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := checkPages(file, db.Info().PageSize); err != nil {
		t.Error(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		got := map[string]map[string][]byte{}
		err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			values := map[string][]byte{}
			got[string(name)] = values
			return b.ForEach(func(key, value []byte) error {
				values[string(key)] = bytes.Clone(value)
				if !bytes.Equal(b.Get(key), value) {
					t.Errorf("a search for %q does not find its value", key)
				}
				return nil
			})
		})
		if !maps.EqualFunc(got, want, func(got, want map[string][]byte) bool { return maps.EqualFunc(got, want, bytes.Equal) }) {
			t.Error("it has other values than were put")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
