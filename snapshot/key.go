package snapshot

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/bits"
	"os"

	"go.etcd.io/bbolt"
)

// Key authenticates files. Checksums notice accidents, but anybody who can write a file
// can also compute them. A file under a key carries a MAC over all its values. Without
// the key nobody can change an offset, a block or the state unnoticed. An old copy of the
// whole file still has a good MAC; the file of retirements beside it reveals its age. A
// nil Key means no key.
type Key struct {
	values, file [sha256.Size]byte
}

// LeastKey is the least length of a secret in bytes.
const LeastKey = 16

// NewKey makes a key from a secret.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) < LeastKey {
		return nil, fmt.Errorf("a key of %d bytes is too short: it has at least %d", len(secret), LeastKey)
	}
	k := new(Key)
	for purpose, derived := range map[string]*[sha256.Size]byte{"values": &k.values, "file": &k.file} {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(magic + " " + purpose))
		h.Sum(derived[:0])
	}
	return k, nil
}

// mostKey bounds the size of a secret's file in bytes.
const mostKey = 4 << 10

// ReadKey reads a key from a file. One line break at the end of the file is not part of the
// secret. loose reports that users other than the owner can read or change the file.
func ReadKey(path string) (k *Key, loose bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	secret, err := io.ReadAll(io.LimitReader(f, mostKey+1))
	if err != nil {
		return nil, false, err
	}
	if len(secret) > mostKey {
		return nil, false, fmt.Errorf("%s: more than %d bytes are no key", path, mostKey)
	}
	secret = bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r"))
	if k, err = NewKey(secret); err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	return k, info.Mode().Perm()&0o077 != 0, nil
}

var (
	// ErrKeyNeeded says that a file is under a key and none was given.
	ErrKeyNeeded = errors.New("it is under a key: name the key's file (snapshot.key_file, --key-file)")

	// ErrNoMAC says that a key was given and the file is not under one.
	ErrNoMAC = errors.New("it is not under a key, so anybody may have changed it: if you trust it as it is, put it under the key with streamd snapshot rekey")

	// ErrMAC says that a file has been changed by somebody without the key.
	ErrMAC = errors.New("its MAC is wrong: it was changed by somebody without the key, or is under another key; restore a copy, or move the file away to learn from the log anew")
)

// valueSum is a sum modulo 2^256 of the HMACs of values. It stands for the set of values
// and is updated without reading the set (Bellare and Micciancio 1997; Clarke et al.
// 2003). The sum is secret: with the sums of several files, values could be moved from
// one to another. Therefore the file contains the HMAC of its sum.
type valueSum [4]uint64

func (s *valueSum) add(mac []byte) {
	var carry uint64
	for i := range s {
		s[i], carry = bits.Add64(s[i], binary.LittleEndian.Uint64(mac[8*i:]), carry)
	}
}

func (s *valueSum) remove(mac []byte) {
	var borrow uint64
	for i := range s {
		s[i], borrow = bits.Sub64(s[i], binary.LittleEndian.Uint64(mac[8*i:]), borrow)
	}
}

// summer maintains the sum of a file's values.
type summer struct {
	key  *Key
	hmac hash.Hash
	sum  valueSum
}

func newSummer(key *Key, sum valueSum) *summer {
	return &summer{key: key, hmac: hmac.New(sha256.New, key.values[:]), sum: sum}
}

// mac is the HMAC of a value: of the 4-byte lengths of bucket and key, of bucket and key,
// and of the value with its frame.
func (s *summer) mac(bucket, key, value []byte) []byte {
	s.hmac.Reset()
	var lengths [8]byte
	binary.LittleEndian.PutUint32(lengths[:], uint32(len(bucket)))
	binary.LittleEndian.PutUint32(lengths[4:], uint32(len(key)))
	for _, b := range [][]byte{lengths[:], bucket, key, value} {
		s.hmac.Write(b)
	}
	return s.hmac.Sum(nil)
}

// fileMAC is the frame of the file's MAC.
func (s *summer) fileMAC() ([]byte, error) {
	value := append(frame(), s.key.fileMAC(s.sum)...)
	return value, seal(bucketMeta, keyMAC, value)
}

// fileMAC is the MAC of a file whose values have this sum.
func (k *Key) fileMAC(sum valueSum) []byte {
	h := hmac.New(sha256.New, k.file[:])
	for _, x := range sum {
		h.Write(binary.LittleEndian.AppendUint64(nil, x))
	}
	return h.Sum(nil)
}

// readMAC returns a file's MAC. It is nil if the file is not under a key.
func readMAC(tx *bbolt.Tx) ([]byte, error) {
	value := tx.Bucket(bucketMeta).Get(keyMAC)
	if value == nil {
		return nil, nil
	}
	b, err := unseal(bucketMeta, keyMAC, value)
	if err == nil && len(b) != sha256.Size {
		err = &ChecksumError{string(bucketMeta), string(keyMAC), "the length is wrong"}
	}
	return b, err
}

// fits reports whether a MAC belongs to a file whose values have this sum.
func (k *Key) fits(mac []byte, sum valueSum) bool {
	return subtle.ConstantTimeCompare(mac, k.fileMAC(sum)) == 1
}

// authenticate checks the MAC of a file over all its values, and returns their sum.
func (k *Key) authenticate(tx *bbolt.Tx) (sum valueSum, err error) {
	mac, err := readMAC(tx)
	switch {
	case err != nil:
		return sum, err
	case mac == nil && k == nil:
		return sum, nil
	case mac == nil:
		return sum, ErrNoMAC
	case k == nil:
		return sum, ErrKeyNeeded
	}
	if sum, err = k.sumValues(tx); err == nil && !k.fits(mac, sum) {
		err = ErrMAC
	}
	return sum, err
}

// isMAC reports whether the MAC of a file is there.
func isMAC(bucket, key []byte) bool {
	return string(bucket) == string(bucketMeta) && string(key) == string(keyMAC)
}

// sumValues returns the sum of all values of a file except its MAC.
func (k *Key) sumValues(tx *bbolt.Tx) (valueSum, error) {
	s := newSummer(k, valueSum{})
	err := tx.ForEach(func(bucket []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if !isMAC(bucket, key) {
				s.sum.add(s.mac(bucket, key, value))
			}
			return nil
		})
	})
	return s.sum, err
}

// Rekey puts a file that is under k under the key next. Nil means no key, in both places.
// A file that gets its first key is trusted as it is: verify it first.
func (k *Key) Rekey(path string, next *Key) (err error) {
	s, _, err := k.open(path, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.rekey(next)
}

func (s *Store) rekey(next *Key) error {
	err := s.update(func(w *writer) error {
		if w.summer = nil; next == nil {
			return w.tx.Bucket(bucketMeta).Delete(keyMAC)
		}
		sum, err := next.sumValues(w.tx)
		w.summer = newSummer(next, sum)
		return err
	})
	if err != nil {
		return fmt.Errorf("put snapshot %s under another key: %w", s.path, err)
	}
	s.key = next
	return nil
}
