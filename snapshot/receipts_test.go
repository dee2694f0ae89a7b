package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"streamd/retire/receipt"
)

// worldLog is the log of receipts of a world. Every explicit retirement has a leaf.
type worldLog struct {
	key    *receipt.Key
	head   LogHead
	leaves [][]byte
	hashes []tlog.Hash
	growth *receipt.Growth // of the last change
}

func newWorldLog() *worldLog {
	private, err := receipt.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{5}, 32)), "streamd/orders")
	if err != nil {
		panic(err)
	}
	key, err := receipt.ParseKey(private)
	if err != nil {
		panic(err)
	}
	return &worldLog{key: key}
}

func (l *worldLog) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	for _, i := range indexes {
		hashes = append(hashes, l.hashes[i])
	}
	return hashes, nil
}

// grow is the growth by the retirements of a change.
func (l *worldLog) grow(c *Change) *receipt.Growth {
	if l == nil {
		return nil
	}
	l.growth = nil
	var records []receipt.Record
	if l.head.Size == 0 {
		leaf := receipt.Leaf{Kind: receipt.Begun, VRF: l.key.VRF(), Durable: c.SavedAt}
		records = append(records, receipt.Record{Leaf: leaf.AppendBinary(nil)})
	}
	for i := range c.Retired {
		var tree receipt.Tree
		item := l.key.Item(fmt.Sprint(i), receipt.Hash{}, receipt.Hash{})
		tree.Put(item)
		leaf := receipt.Leaf{Kind: receipt.Expired, Blocks: 1, Rows: int64(i), Earliest: c.SavedAt, Latest: c.SavedAt, Durable: c.SavedAt, Items: receipt.ListHash([]receipt.Item{item})}
		leaf.Before.Root, leaf.After.Root = tree.Root(), receipt.EmptyRoot
		since := tree.Mark()
		tree.Remove(item.Key)
		records = append(records, receipt.Record{Leaf: leaf.AppendBinary(nil), Change: tree.Prove(since, []receipt.Hash{item.Key})})
	}
	if records != nil {
		var err error
		if l.growth, err = l.key.Grow(l.head.Size, l, records); err != nil {
			panic(err)
		}
	}
	return l.growth
}

// checkpoint is that of the first leaves.
func (l *worldLog) checkpoint(size int64) []byte {
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		panic(err)
	}
	signed, err := l.key.Sign(size, root)
	if err != nil {
		panic(err)
	}
	return signed
}

// saved is called when the last change has been saved.
func (l *worldLog) saved() {
	if l == nil || l.growth == nil {
		return
	}
	for _, r := range l.growth.Records {
		l.leaves = append(l.leaves, r.Leaf)
	}
	for _, h := range l.growth.Hashes {
		l.hashes = append(l.hashes, h)
	}
	l.head = LogHead{Size: l.head.Size + int64(len(l.growth.Records)), Checkpoint: l.growth.Checkpoint, Cosigned: l.head.Cosigned}
	l.growth = nil
}

// A file has the receipts of its saves, also after a compaction and under a key, and the proofs
// made from it pass.
func TestReceipts(t *testing.T) {
	key, err := NewKey([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []*Key{nil, key} {
		path := filepath.Join(t.TempDir(), "streamd.db")
		s, _, err := key.Open(path, settings)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(rand.New(rand.NewPCG(43, 1)), 2)
		w.log = newWorldLog()
		for save := range 12 {
			for range 60 {
				w.step()
			}
			if save == 4 { // a save that is repeated adds its receipts once
				c := w.change()
				for range 2 {
					if _, err := s.Save(c); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.save(t, s)
			if n := w.log.head.Size; n > 1 {
				w.log.head.Cosigned = []LogHead{{Size: n - 1, Checkpoint: w.log.checkpoint(n - 1)}, {Size: n, Checkpoint: w.log.head.Checkpoint}}
				if err := s.SaveCosigned(w.log.head.Cosigned); err != nil {
					t.Fatal(err)
				}
				if err := s.SaveCosigned([]LogHead{{Size: n + 1}}); err == nil {
					t.Error("a checkpoint beyond the log was saved")
				}
			}
			if save%5 == 4 {
				w.compact(t, s)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, c, err := key.Open(path, settings)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(len(w.log.leaves))
		if size < 5 || c.Log.Size != size || !bytes.Equal(c.Log.Checkpoint, w.log.head.Checkpoint) {
			t.Fatalf("the log has %d leaves, want %d", c.Log.Size, size)
		}
		if !reflect.DeepEqual(c.Log, w.log.head) {
			t.Errorf("the head is %+v, want %+v", c.Log, w.log.head)
		}
		for i := range size {
			r, err := s.Receipt(i)
			if err != nil || !bytes.Equal(r.Leaf, w.log.leaves[i]) {
				t.Fatalf("receipt %d: %v", i, err)
			}
			if leaf, err := s.Leaf(i); err != nil || !bytes.Equal(leaf, r.Leaf) {
				t.Errorf("leaf %d: %x, %v", i, leaf, err)
			}
			inclusion, err := tlog.ProveRecord(size, i, s)
			if err != nil {
				t.Fatal(err)
			}
			proof, err := receipt.AppendProof(nil, r, i, inclusion, c.Log.Checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := receipt.Check(proof, w.log.key.Public()); err != nil {
				t.Errorf("receipt %d: %v", i, err)
			}
		}
		if _, err := s.Receipt(size); !errors.Is(err, ErrNotFound) {
			t.Errorf("receipt %d: %v", size, err)
		}
		if _, err := s.Leaf(size); !errors.Is(err, ErrNotFound) {
			t.Errorf("leaf %d: %v", size, err)
		}
		s.Close()
		if report, err := key.Verify(t.Context(), path, nil); err != nil || !report.OK {
			t.Errorf("%+v, %v", report, err)
		}
	}
}

// Verify notices a leaf, a hash or a checkpoint that was changed together with its checksum, and
// opening notices a log that was cut short.
func TestDamagedReceipts(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(44, 1)), 2)
	w.log = newWorldLog()
	path := filepath.Join(t.TempDir(), "streamd.db")
	s, _ := mustOpen(t, path)
	for range 10 {
		for range 60 {
			w.step()
		}
		w.save(t, s)
	}
	if err := s.SaveCosigned([]LogHead{w.log.head}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	size := int64(len(w.log.leaves))
	if size < 4 {
		t.Fatalf("%d leaves", size)
	}
	for name, damage := range map[string]struct {
		bucket, key []byte
		change      func(payload []byte) []byte // nil: the value is deleted
		opens       bool
	}{
		"leaf changed":    {bucketReceipts, indexKey(1), func(b []byte) []byte { b[9]++; return b }, true},
		"leaf dropped":    {bucketReceipts, indexKey(1), nil, true},
		"last dropped":    {bucketReceipts, indexKey(size - 1), nil, false},
		"hash changed":    {bucketLogHashes, indexKey(2), func(b []byte) []byte { b[0]++; return b }, true},
		"hash dropped":    {bucketLogHashes, indexKey(1), nil, true},
		"checkpoint":      {bucketLog, keyLog, func(b []byte) []byte { return bytes.Replace(b, []byte("\n"), []byte("\n1"), 1) }, true},
		"cosigned":        {bucketLog, keyCosigned, func(b []byte) []byte { b[bytes.IndexByte(b, '\n')+1] ^= 1; return b }, true},
		"cosigned beyond": {bucketLog, keyCosigned, func(b []byte) []byte { b[0]++; return b }, false},
		"head cut short":  {bucketLog, keyLog, func(b []byte) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(size-1)) }, false},
		"head without it": {bucketLog, keyLog, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "copy.db")
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(copied, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			db, err := bbolt.Open(copied, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket(damage.bucket)
				if damage.change == nil {
					return b.Delete(damage.key)
				}
				value := append(frame(), damage.change(slices.Clone(b.Get(damage.key)[frameSize:]))...)
				if err := seal(damage.bucket, damage.key, value); err != nil {
					return err
				}
				return b.Put(damage.key, value)
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			s, _, err := OpenReadOnly(copied)
			if err == nil {
				s.Close()
			}
			if (err == nil) != damage.opens {
				t.Errorf("opening: %v", err)
			}
			if report, err := Verify(context.Background(), copied, nil); err != nil || report.OK {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

// An older copy, a new file under the same key and a copy that went another way are recognised by
// the checkpoint beside the file. The log of another key is another one.
func TestForkedLog(t *testing.T) {
	folder := t.TempDir()
	path, older := filepath.Join(folder, "streamd.db"), filepath.Join(folder, "older.db")
	w := newWorld(rand.New(rand.NewPCG(45, 1)), 2)
	w.log = newWorldLog()
	public := w.log.key.Public()
	s, _ := mustOpen(t, path)
	grow := func(s *Store) {
		t.Helper()
		for before := w.log.head.Size; w.log.head.Size == before; {
			for range 60 {
				w.step()
			}
			w.save(t, s)
		}
	}
	copied := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(public string) error {
		t.Helper()
		s, _ := mustOpen(t, path)
		defer s.Close()
		return s.CheckLog(public)
	}
	if err := s.CheckLog(public); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(CheckpointPath(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a checkpoint of an empty log: %v", err)
	}
	grow(s)
	early := bytes.Clone(w.log.head.Checkpoint)
	s.Close()
	copied(path, older)
	s, _ = mustOpen(t, path)
	grow(s)
	s.Close()
	kept, err := os.ReadFile(CheckpointPath(path))
	if err != nil || !bytes.Equal(kept, w.log.head.Checkpoint) {
		t.Fatalf("beside the file is %q, %v", kept, err)
	}
	if err := check(public); err != nil {
		t.Error(err)
	}
	// A crash between the save and the file, or a file that was removed.
	for _, kept := range [][]byte{early, nil} {
		if err := os.Remove(CheckpointPath(path)); err != nil {
			t.Fatal(err)
		}
		if kept != nil {
			if err := os.WriteFile(CheckpointPath(path), kept, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := check(public); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(CheckpointPath(path)); err != nil || !bytes.Equal(got, w.log.head.Checkpoint) {
			t.Errorf("it was not brought up to date: %q, %v", got, err)
		}
	}

	size := w.log.head.Size
	fork := (*ForkError)(nil)
	if err := os.Rename(path, filepath.Join(folder, "latest.db")); err != nil {
		t.Fatal(err)
	}
	if err := check(public); !errors.As(err, &fork) || fork.Size != 0 || fork.Published != size {
		t.Errorf("a new file: %v", err)
	}
	if err := check("streamd/orders/6+00000000+AAAA"); err != nil {
		t.Errorf("a new file and another log: %v", err)
	}
	copied(older, path)
	if err := check(public); !errors.As(err, &fork) || fork.Size >= size || fork.Published != size {
		t.Errorf("an older copy: %v", err)
	}
	// It goes on without the check, and further than the log that it was copied from.
	s, _ = mustOpen(t, path)
	head, err := s.LogHead()
	if err != nil {
		t.Fatal(err)
	}
	var records []receipt.Record
	for i := range size {
		leaf := receipt.Leaf{Kind: receipt.Lost, Blocks: 1, Rows: i}
		records = append(records, receipt.Record{Leaf: leaf.AppendBinary(nil)})
	}
	g, err := w.log.key.Grow(head.Size, s, records)
	if err == nil {
		err = s.update(func(w *writer) error { return w.putReceipts(g) })
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := check(public); !errors.As(err, &fork) || fork.Size != head.Size+size || fork.Published != size {
		t.Errorf("another continuation: %v", err)
	}
	if err := os.WriteFile(CheckpointPath(path), append(kept[:len(kept)-5], "AAA=\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(public); err == nil || errors.As(err, &fork) {
		t.Errorf("a damaged checkpoint: %v", err)
	}
}
