package snapshot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// A finder finds the same as a search for each key, in a bucket of many pages while keys
// are put and deleted.
func TestFinder(t *testing.T) {
	s, _ := mustOpen(t, filepath.Join(t.TempDir(), "streamd.db"))
	key := func(r *rand.Rand) string { return fmt.Sprintf("orders/%d/%d", r.IntN(4), r.IntN(2000)) }
	found, missed := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(21, seed))
		err := s.db.Update(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(bucketBlocks)
			for range r.IntN(200) {
				if err := bucket.Put([]byte(key(r)), make([]byte, r.IntN(200))); err != nil {
					return err
				}
			}
			keys := make([]string, r.IntN(400))
			for i := range keys {
				keys[i] = key(r)
			}
			slices.Sort(keys)
			f := finder{cursor: bucket.Cursor()}
			for _, k := range slices.Compact(keys) {
				want := bytes.Clone(bucket.Get([]byte(k)))
				got := f.find([]byte(k))
				if (got == nil) != (want == nil) || !bytes.Equal(got, want) {
					return fmt.Errorf("seed %d: %s is %x, want %x", seed, k, got, want)
				}
				if got == nil {
					missed++
				} else {
					found++
				}
				var err error
				switch r.IntN(3) {
				case 0:
					err = bucket.Put([]byte(k), make([]byte, r.IntN(200)))
				case 1:
					err = bucket.Delete([]byte(k))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 || missed < 1000 {
		t.Fatalf("%d keys were there, %d not", found, missed)
	}
}
