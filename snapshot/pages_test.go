package snapshot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// The check accepts everything that bbolt writes: keys and values of all sizes, trees
// that grow and shrink, pages filled in every way.
func TestPageCheckRaisesNoFalseAlarm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(20, seed))
		path := filepath.Join(t.TempDir(), "pages.db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		maxKey, maxValue := 8<<r.IntN(10), 8<<r.IntN(11)
		var keys []string
		for i := range 120 {
			puts := 3 // out of four changes
			if i%60 >= 40 {
				puts = 1
			}
			err := db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("bucket"))
				if err != nil {
					return err
				}
				b.FillPercent = []float64{0.1, 0.5, 0.9, 1}[r.IntN(4)]
				for range r.IntN(60) {
					if r.IntN(4) < puts || len(keys) == 0 {
						key := fmt.Sprint(strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(maxKey)), r.IntN(1000))
						keys = append(keys, key)
						if err := b.Put([]byte(key), make([]byte, r.IntN(maxValue))); err != nil {
							return err
						}
						continue
					}
					last := len(keys) - 1
					j := r.IntN(len(keys))
					if err := b.Delete([]byte(keys[j])); err != nil {
						return err
					}
					keys[j], keys = keys[last], keys[:last]
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := checkPages(file, db.Info().PageSize); err != nil {
				t.Fatalf("seed %d, after transaction %d: %v", seed, i, err)
			}
		}
		file.Close()
		db.Close()
	}
}

// Pages that are read ahead equal those of the file, in whatever order they are requested.
func TestPagesReadAhead(t *testing.T) {
	const size, pages = 1 << 10, 1000
	r := rand.New(rand.NewPCG(21, 1))
	content := make([]byte, size*pages)
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	path := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := pageCheck{file: file, size: size, seen: make([]bool, pages), asked: make([]bool, 1)}
	ahead := 0
	for range 200 {
		id := uint64(r.IntN(pages))
		for range 1 + r.IntN(400) {
			got, err := c.page(id)
			if err != nil || !bytes.Equal(got, content[id*size:(id+1)*size]) {
				t.Fatalf("page %d: not that of the file, %v", id, err)
			}
			ahead = max(ahead, len(c.window))
			if id++; id == pages {
				break
			}
		}
	}
	if ahead != mostAhead {
		t.Errorf("%d bytes are read at a time, want %d", ahead, mostAhead)
	}
}
