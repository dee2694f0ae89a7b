package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"streamd/retire/receipt"
)

// The log of receipts is in three buckets, which a file without receipts lacks:
//
//	bucket      key                    payload
//	receipts    index (u64, BE)        leaf, with its length as a varint before it; proof of the change
//	log hashes  index (u64, BE)        a hash, as tlog numbers stored hashes
//	log         log                    number of leaves; the signed checkpoint
//	log         cosigned               checkpoints with cosignatures, of each: number of
//	                                   leaves, length as a varint, the checkpoint; absent
//	                                   without one
//
// A save writes the leaves of its changes in its transaction. Cosignatures come later, in
// transactions of their own (SaveCosigned).
var (
	bucketReceipts  = []byte("receipts")
	bucketLogHashes = []byte("log hashes")
	bucketLog       = []byte("log")

	keyLog      = []byte("log")
	keyCosigned = []byte("cosigned")
)

// LogHead is the end of the log of receipts. The zero LogHead is that of a file without one.
type LogHead struct {
	Size       int64 // number of leaves
	Checkpoint []byte
	Cosigned   []LogHead // checkpoints that witnesses have cosigned, as SaveCosigned got them
}

func indexKey(i int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

func appendLogHead(b []byte, h *LogHead) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(h.Size)), h.Checkpoint...)
}

func decodeLogHead(value []byte) (h LogHead, err error) {
	p, err := open(bucketLog, keyLog, value)
	if err != nil {
		return h, err
	}
	h.Size = p.natural()
	h.Checkpoint = bytes.Clone(p.Take(len(p.Rest)))
	if p.Bad || h.Size == 0 {
		return LogHead{}, &ChecksumError{string(bucketLog), string(keyLog), "it is no record of a log"}
	}
	return h, nil
}

// decodeCosigned reads the checkpoints of a log of that many leaves.
func decodeCosigned(value []byte, size int64) (all []LogHead, err error) {
	p, err := open(bucketLog, keyCosigned, value)
	if err != nil {
		return nil, err
	}
	for len(p.Rest) > 0 && !p.Bad {
		h := LogHead{Size: p.natural()}
		h.Checkpoint = bytes.Clone(p.Take(p.Count(1)))
		p.Bad = p.Bad || h.Size == 0 || h.Size > size
		all = append(all, h)
	}
	if p.Bad {
		return nil, &ChecksumError{string(bucketLog), string(keyCosigned), "it has no checkpoints of the log"}
	}
	return all, nil
}

func appendReceipt(b []byte, r *receipt.Record) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(r.Leaf))), r.Leaf...)
	return append(b, r.Change...)
}

// cutReceipt returns the two parts of a value, which stay in it.
func cutReceipt(key, value []byte) (leaf, change []byte, err error) {
	p, err := open(bucketReceipts, key, value)
	if err != nil {
		return nil, nil, err
	}
	if leaf = p.Take(p.Count(1)); p.Bad {
		return nil, nil, &ChecksumError{string(bucketReceipts), fmt.Sprintf("%x", key), "it has no leaf"}
	}
	return leaf, p.Rest, nil
}

func decodeReceipt(key, value []byte) (r receipt.Record, err error) {
	leaf, change, err := cutReceipt(key, value)
	return receipt.Record{Leaf: bytes.Clone(leaf), Change: bytes.Clone(change)}, err
}

// readLog reads the end of the log and checks that the file has the last leaf and the last hash
// of it, and no further ones.
func readLog(tx *bbolt.Tx) (h LogHead, err error) {
	if tx.Bucket(bucketLog) == nil {
		return h, nil
	}
	if h, err = decodeLogHead(tx.Bucket(bucketLog).Get(keyLog)); err != nil {
		return h, err
	}
	if value := tx.Bucket(bucketLog).Get(keyCosigned); value != nil {
		if h.Cosigned, err = decodeCosigned(value, h.Size); err != nil {
			return LogHead{}, err
		}
	}
	for _, last := range []struct {
		bucket []byte
		number int64
	}{{bucketReceipts, h.Size}, {bucketLogHashes, tlog.StoredHashCount(h.Size)}} {
		b := tx.Bucket(last.bucket)
		if b == nil {
			return LogHead{}, &ChecksumError{Bucket: string(last.bucket), Reason: "it is missing"}
		}
		if key, _ := b.Cursor().Last(); !bytes.Equal(key, indexKey(last.number-1)) {
			return LogHead{}, &ChecksumError{Bucket: string(last.bucket), Reason: fmt.Sprintf("its last key is %x, the log has %d", key, last.number)}
		}
	}
	return h, nil
}

// putReceipts adds leaves to the log.
func (w *writer) putReceipts(g *receipt.Growth) error {
	if g == nil {
		return nil
	}
	before, err := readLog(w.tx)
	switch {
	case err != nil:
		return err
	case bytes.Equal(before.Checkpoint, g.Checkpoint):
		return nil // a save that failed has written them
	case before.Size != g.Size:
		return fmt.Errorf("the log has %d leaves, and the receipts follow %d", before.Size, g.Size)
	case len(g.Records) == 0:
		return errors.New("the log grows by no receipt")
	}
	for _, name := range [][]byte{bucketReceipts, bucketLogHashes, bucketLog} {
		if _, err := w.tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	for i := range g.Records {
		value := appendReceipt(frame(), &g.Records[i])
		if err := w.putValue(bucketReceipts, indexKey(g.Size+int64(i)), value); err != nil {
			return err
		}
	}
	first := tlog.StoredHashIndex(0, g.Size)
	for i := range g.Hashes {
		if err := w.putValue(bucketLogHashes, indexKey(first+int64(i)), append(frame(), g.Hashes[i][:]...)); err != nil {
			return err
		}
	}
	head := LogHead{Size: g.Size + int64(len(g.Records)), Checkpoint: g.Checkpoint}
	return w.putValue(bucketLog, keyLog, appendLogHead(frame(), &head))
}

// SaveCosigned replaces the checkpoints with cosignatures of witnesses, independently of Save. It
// returns when they are on the disk.
func (s *Store) SaveCosigned(all []LogHead) error {
	err := s.update(func(w *writer) error {
		head, err := readLog(w.tx)
		if err != nil {
			return err
		}
		value := frame()
		for i := range all {
			if c := &all[i]; c.Size < 1 || c.Size > head.Size {
				return fmt.Errorf("a checkpoint of %d leaves, and the log has %d", c.Size, head.Size)
			}
			value = binary.LittleEndian.AppendUint64(value, uint64(all[i].Size))
			value = append(binary.AppendUvarint(value, uint64(len(all[i].Checkpoint))), all[i].Checkpoint...)
		}
		return w.putValue(bucketLog, keyCosigned, value)
	})
	if err != nil {
		return fmt.Errorf("save cosignatures in snapshot %s: %w", s.path, err)
	}
	return nil
}

// LogHead reads the end of the log of receipts.
func (s *Store) LogHead() (h LogHead, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		h, err = readLog(tx)
		return err
	})
	return h, err
}

// Receipt reads the record of a leaf. The error is ErrNotFound or a *ChecksumError.
func (s *Store) Receipt(index int64) (r receipt.Record, err error) {
	err = s.readReceipt(index, func(key, value []byte) (err error) {
		r, err = decodeReceipt(key, value)
		return err
	})
	return r, err
}

// Leaf reads a leaf without the proof of its change, which can be large. It is checked like a
// record, with the errors of Receipt.
func (s *Store) Leaf(index int64) (leaf []byte, err error) {
	err = s.readReceipt(index, func(key, value []byte) error {
		inFile, _, err := cutReceipt(key, value)
		leaf = bytes.Clone(inFile)
		return err
	})
	return leaf, err
}

// readReceipt calls read with the value of a leaf, which is in the file.
func (s *Store) readReceipt(index int64, read func(key, value []byte) error) error {
	err := s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketReceipts)
		if b == nil || index < 0 {
			return ErrNotFound
		}
		key := indexKey(index)
		value := b.Get(key)
		if value == nil {
			return ErrNotFound
		}
		return read(key, value)
	})
	if err != nil {
		return fmt.Errorf("read receipt %d from snapshot %s: %w", index, s.path, err)
	}
	return nil
}

// ReadHashes reads stored hashes of the log. It implements tlog.HashReader.
func (s *Store) ReadHashes(indexes []int64) (hashes []tlog.Hash, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketLogHashes)
		if b == nil {
			return ErrNotFound
		}
		hashes, err = hashesIn(b, indexes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read hashes of the log from snapshot %s: %w", s.path, err)
	}
	return hashes, nil
}

func hashesIn(b *bbolt.Bucket, indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		key := indexKey(index)
		value := b.Get(key)
		if value == nil {
			return nil, ErrNotFound
		}
		payload, err := unseal(bucketLogHashes, key, value)
		if err != nil {
			return nil, err
		}
		if len(payload) != len(hashes[i]) {
			return nil, &ChecksumError{string(bucketLogHashes), fmt.Sprintf("%x", key), "it is no hash"}
		}
		copy(hashes[i][:], payload)
	}
	return hashes, nil
}

// verifyLog compares every leaf with its hashes, and these with the checkpoint.
func verifyLog(tx *bbolt.Tx, note note) error {
	head, err := readLog(tx)
	if err != nil || head.Size == 0 {
		return note(err)
	}
	size := int64(0)
	err = place{bucketReceipts, nil}.each(tx, func(key, value []byte) error {
		r, err := decodeReceipt(key, value)
		if err != nil {
			return note(err)
		}
		if !bytes.Equal(key, indexKey(size)) {
			return note(&ChecksumError{string(bucketReceipts), fmt.Sprintf("%x", key), fmt.Sprintf("leaf %d is missing", size)})
		}
		first := tlog.StoredHashIndex(0, size)
		stored := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return hashesIn(tx.Bucket(bucketLogHashes), indexes) })
		want, err := tlog.StoredHashes(size, r.Leaf, stored)
		for i := range want {
			var got []tlog.Hash
			if err == nil {
				got, err = stored([]int64{first + int64(i)})
			}
			if err == nil && got[0] != want[i] {
				err = &ChecksumError{string(bucketLogHashes), fmt.Sprint(first + int64(i)), "it is not the hash of its leaves"}
			}
		}
		size++
		if errors.Is(err, ErrNotFound) {
			err = &ChecksumError{Bucket: string(bucketLogHashes), Reason: "a hash is missing"}
		}
		return note(err)
	})
	if err != nil {
		return err
	}
	stored := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return hashesIn(tx.Bucket(bucketLogHashes), indexes) })
	for i, h := range append([]LogHead{head}, head.Cosigned...) {
		root, err := tlog.TreeHash(h.Size, stored)
		if err == nil {
			err = receipt.CheckHead(h.Checkpoint, h.Size, root)
		}
		if err == nil {
			continue
		}
		key := keyLog
		if i > 0 {
			key = keyCosigned
		}
		if err := note(&ChecksumError{string(bucketLog), string(key), err.Error()}); err != nil {
			return err
		}
	}
	return nil
}
