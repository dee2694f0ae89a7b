package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"streamd/cmd/streamd/audit"
	"streamd/retire/receipt"
)

// putLog gives a snapshot the log of receipts of another one.
func putLog(t *testing.T, file, other string) {
	t.Helper()
	open := func(path string) *bbolt.DB {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	from, to := open(other), open(file)
	err := from.View(func(of *bbolt.Tx) error {
		return to.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{[]byte("receipts"), []byte("log hashes"), []byte("log")} {
				b, err := tx.CreateBucket(name)
				if err == nil {
					err = of.Bucket(name).ForEach(b.Put)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
}

// A snapshot that still has a block is found not to be what its receipts left, also when further blocks
// have come since, without the private key and without the block's name.
func TestSnapshotThatKeepsARetiredBlock(t *testing.T) {
	topic, folder := topic(t, 1), t.TempDir()
	honest, flags := filepath.Join(folder, "streamd.db"), withReceipts(folder, nil)
	produce(t, topic, customers(t)[:6]...)
	d := start(t, topic, honest, flags)
	d.await("six blocks", func() bool { return d.live.Blocks() == 6 })
	id := slices.Sorted(d.live.IDs)[0]
	d.retire(id)
	_, proof := d.ask(http.MethodGet, "/v1/receipts/proof/1")
	key := d.receipts.key
	r, err := receipt.Check([]byte(proof), key.Public())
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	for since := range 2 {
		if since > 0 {
			produce(t, topic, customers(t)[6])
			d := start(t, topic, honest, flags)
			d.await("six blocks", func() bool { return d.live.Blocks() == 6 })
			d.stop()
		}
		report, _, err := audit.Snapshot(honest, r, key.Public(), nil, nil)
		if err != nil || !report.Proved || report.Since != since || report.Blocks != 5+since {
			t.Errorf("%d blocks later: %+v, %v", since, report, err)
		}
		dishonest := filepath.Join(folder, fmt.Sprintf("dishonest%d.db", since))
		d := start(t, topic, dishonest, map[string]string{"blocks.unit": "key"})
		d.await("all blocks", func() bool { return d.live.Blocks() == 6+since })
		d.stop()
		putLog(t, dishonest, honest)
		named := map[string]receipt.Hash{id: key.ItemKey(id)}
		for _, c := range []struct {
			key   *receipt.Key
			named map[string]receipt.Hash
			want  string
		}{
			{nil, nil, "its blocks that had come by receipt 1 add up to the digest "},
			{nil, named, "the block " + id + " of the receipt is live in it"},
			{key, nil, "the block " + id + " of the receipt is live in it"},
		} {
			report, _, err := audit.Snapshot(dishonest, r, key.Public(), c.key, c.named)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d blocks later: %+v, %v, want %s", since, report, err, c.want)
			}
		}
	}
}
