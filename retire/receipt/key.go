package receipt

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Key signs the checkpoints of a log, and makes the keys of its items and the salts of its
// commitments.
//
// All are derived from the seed of the signing key. The log's name ends with a hash of the
// function's public key. So another function cannot pass under the log's public key, neither for
// all nor for one who asks.
type Key struct {
	signer note.Signer
	public string // the verifier key
	secret Hash   // of the salts
	vrf    *vrf   // of the items' keys
}

// GenerateKey makes the text of a private key for a log. Its name gets an end that binds the
// function of the items' keys, and that no other log's has.
func GenerateKey(random io.Reader, name string) (private string, err error) {
	var seed Hash
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return "", err
	}
	private, _, err = note.GenerateKey(bytes.NewReader(seed[:]), name+"/"+vrfName(vrfOf(seed).public))
	return private, err
}

// vrfOf is the function of the items' keys that belongs to the seed of a signing key.
func vrfOf(seed Hash) *vrf { return newVRF(keyed(seed, []byte("streamd receipts vrf"))) }

// PublicFile is the file beside a key that has its public half, for those who check receipts.
func PublicFile(path string) string { return path + ".pub" }

// mostKey bounds the size of a key's file in bytes.
const mostKey = 4 << 10

// OpenKey reads the key in a file, which is an Ed25519 key of golang.org/x/mod/sumdb/note. If
// there is no such file, it makes a key for the log of that name, readable by its owner only,
// and the file with the public half beside it. made reports that. It makes none beside the public
// half of a key that is missing. loose reports that others can read or change the file.
func OpenKey(path, name string) (k *Key, made, loose bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		k, err = makeKey(path, name)
		return k, err == nil, false, err
	}
	if err != nil {
		return nil, false, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostKey+1))
	if err != nil {
		return nil, false, false, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, false, err
	}
	k, err = ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, false, false, fmt.Errorf("%s: %w", path, err)
	}
	if public := PublicFile(path); !exists(public) { // the process that made the key was killed
		_ = writeNew(public, k.public, 0o644) // or the folder has only the key, and may be read-only
	}
	return k, false, info.Mode().Perm()&0o077 != 0, nil
}

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// makeKey makes a key and its files.
func makeKey(path, name string) (*Key, error) {
	if public := PublicFile(path); exists(public) {
		return nil, fmt.Errorf("%s does not exist, and its public half %s does, which receipts are checked with: put the key back; or move the public half away, too, and another key is made", path, public)
	}
	private, err := GenerateKey(rand.Reader, "streamd/"+name)
	if err != nil {
		return nil, err
	}
	k, err := ParseKey(private)
	if err != nil {
		return nil, err
	}
	if err := writeNew(path, private, 0o600); err != nil {
		return nil, err
	}
	return k, writeNew(PublicFile(path), k.public, 0o644)
}

// writeNew makes a file with a line, and returns when it is on the disk. The file has the whole
// line under its name, or there is none. A file that is there is not replaced.
func writeNew(path, line string, mode fs.FileMode) error {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*") // readable by its owner only
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(line + "\n")
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) && !exists(path) {
		err = os.Rename(f.Name(), path) // a file system without hard links
	}
	if err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ParseKey reads the text of a private key.
func ParseKey(text string) (*Key, error) {
	signer, err := note.NewSigner(text)
	if err != nil {
		return nil, errors.New("not a private key for notes (PRIVATE+KEY+name+hash+key)")
	}
	// NewSigner has checked the form: the last part is the algorithm and the seed.
	seed, err := base64.StdEncoding.DecodeString(text[strings.LastIndex(text, "+KEY+")+len("+KEY+"):][len(signer.Name())+1+8+1:])
	if err != nil {
		return nil, err
	}
	k := &Key{signer: signer, secret: keyed(Hash(seed[1:]), []byte("streamd receipts salts")), vrf: vrfOf(Hash(seed[1:]))}
	if end := "/" + vrfName(k.vrf.public); !strings.HasSuffix(k.Name(), end) {
		return nil, fmt.Errorf("the name of the key has to end with %s, which binds the keys of the items to it: let streamd make a key", end)
	}
	k.public, err = publicOf(signer.Name(), seed[1:])
	return k, err
}

// parsePublic reads the public key of a log, NAME+HASH+KEY as Public writes it.
func parsePublic(public string) (note.Verifier, error) {
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(public, "+")
	_, text, _ := strings.Cut(rest, "+")
	key, err := unbase64(text)
	if err != nil || readPoint(key[1:]) == nil || public != fmt.Sprintf("%s+%08x+%s", verifier.Name(), verifier.KeyHash(), text) {
		return nil, errors.New("not the public key of a log as streamd writes it")
	}
	return verifier, nil
}

// unbase64 decodes base64 that has nothing but its letters, and no bits that stand for nothing.
func unbase64(text string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(b) != text {
		return nil, errors.New("not base64, or with further letters or bits")
	}
	return b, nil
}

// VRF is the public key of the function that makes the keys of items.
func (k *Key) VRF() Hash { return k.vrf.public }

// Name is that of the log.
func (k *Key) Name() string { return k.signer.Name() }

// Public is the public half, as note.NewVerifier takes it.
func (k *Key) Public() string { return k.public }

// keyed is an HMAC-SHA256 (RFC 2104) under a key of 32 bytes. Unlike crypto/hmac it allocates
// nothing for short messages: a start makes three for each live block.
func keyed(key Hash, message []byte) Hash {
	var buffer [sha256.BlockSize + 128]byte
	in, out := buffer[:sha256.BlockSize], [sha256.BlockSize + sha256.Size]byte{}
	copy(in, key[:])
	copy(out[:], key[:])
	for i := range sha256.BlockSize {
		in[i] ^= 0x36
		out[i] ^= 0x5c
	}
	inner := sha256.Sum256(append(in, message...))
	copy(out[sha256.BlockSize:], inner[:])
	return sha256.Sum256(out[:])
}

// Salt is a salt for a text: whoever has it can find out whether a commitment is that of the
// text, and nothing about other texts.
func (k *Key) Salt(of string) Hash { return keyed(k.secret, []byte(of)) }

// Commit is the commitment of a text, an id among others, under a salt.
func Commit(salt Hash, of string) Hash { return keyed(salt, []byte(of)) }

// Item is the item of a live block. The digest is that of its summary in the features. key is the
// key of the item; zero: it is computed.
func (k *Key) Item(id string, key, digest Hash) Item {
	if key == (Hash{}) {
		key = k.ItemKey(id)
	}
	return Item{Key: key, Value: keyed(k.Salt(id), digest[:])}
}
