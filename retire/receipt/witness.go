package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Witness verifies the cosignatures of a witness, which c2sp.org/tlog-cosignature calls
// cosignature/v1: at a time, the checkpoint was that of the largest log of its name that the
// witness had seen, and all smaller ones were its beginning. It implements note.Verifier.
type Witness struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

const (
	cosignatureV1   = 4 // type of a key
	cosignatureSize = 8 + ed25519.SignatureSize
)

// ParseWitness reads the public key of a witness, NAME+HASH+KEY as c2sp.org/signed-note has it.
func ParseWitness(public string) (*Witness, error) {
	name, rest, _ := strings.Cut(public, "+")
	id, text, _ := strings.Cut(rest, "+")
	key, err := unbase64(text)
	hash, badHash := strconv.ParseUint(id, 16, 32)
	switch {
	case err != nil || badHash != nil || id != fmt.Sprintf("%08x", hash) || len(key) == 0 || name == "" || strings.ContainsFunc(name, isSpace):
		return nil, errors.New("want the public key of a witness, NAME+HASH+KEY")
	case key[0] != cosignatureV1 || len(key) != 1+ed25519.PublicKeySize || readPoint(key[1:]) == nil:
		return nil, fmt.Errorf("a key of type %d: want one of type %d, for cosignatures with Ed25519", key[0], cosignatureV1)
	}
	if sum := sha256.Sum256(append([]byte(name+"\n"), key...)); uint64(binary.BigEndian.Uint32(sum[:])) != hash {
		return nil, errors.New("the hash in the key is not that of its name and key: a part of it was changed")
	}
	return &Witness{name, uint32(hash), key[1:]}, nil
}

func isSpace(r rune) bool { return r <= ' ' }

// Name is that of the witness.
func (w *Witness) Name() string { return w.name }

// KeyHash identifies the key.
func (w *Witness) KeyHash() uint32 { return w.hash }

// Verify reports whether the witness has cosigned a text.
func (w *Witness) Verify(text, signature []byte) bool {
	if len(signature) != cosignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(signature)
	return at <= math.MaxInt64 && ed25519.Verify(w.key, cosignedMessage(text, at), signature[8:])
}

// cosignedMessage is the message that a witness signs: the text of a checkpoint, and a time in
// seconds since 1970.
func cosignedMessage(text []byte, at uint64) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), text...)
}

// Cosignature says that a witness has seen a checkpoint.
type Cosignature struct {
	Witness *Witness
	Time    time.Time // by the clock of the witness
	Line    string    // of the signed checkpoint
}

// Cosignatures verifies the cosignatures of a checkpoint by some witnesses, in their order. Those
// of others are ignored, and so is the log's signature. It is an error if one is wrong.
func Cosignatures(signed []byte, by []*Witness) (found []Cosignature, err error) {
	verifiers := make([]note.Verifier, len(by))
	for i, w := range by {
		verifiers[i] = w
	}
	n, err := note.Open(signed, note.VerifierList(verifiers...))
	if none := (*note.UnverifiedNoteError)(nil); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the cosignatures of the checkpoint: %w", err)
	}
	for _, w := range by {
		for _, s := range n.Sigs {
			if s.Name != w.name || s.Hash != w.hash {
				continue
			}
			raw, err := base64.StdEncoding.Strict().DecodeString(s.Base64)
			if err != nil {
				return nil, fmt.Errorf("the cosignature of %s: %w", w.name, err)
			}
			at := int64(binary.BigEndian.Uint64(raw[4:])) // Verify has compared it
			found = append(found, Cosignature{w, time.Unix(at, 0).UTC(), "— " + s.Name + " " + s.Base64 + "\n"})
		}
	}
	return found, nil
}

// Cosign adds a cosignature to a signed checkpoint.
func Cosign(signed []byte, by Cosignature) []byte {
	return append(bytes.Clone(signed), by.Line...)
}
