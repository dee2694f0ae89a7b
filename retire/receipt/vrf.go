package receipt

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"errors"
	"strings"

	"filippo.io/edwards25519"
)

// The key of a block's item is a function of the block's id: nobody chooses it.
//
// The id of a block that a position names, TOPIC/PARTITION/OFFSET, is nothing personal. The key is
// SHA-256 of a tag and the id, and everybody can compute it.
//
// A message key can be a customer's. The key of such an item is a verifiable random function of the
// id, ECVRF-EDWARDS25519-SHA512-TAI of RFC 9381: the first 32 bytes of its output. The log's owner
// alone can compute it. A proof of 80 bytes shows whoever has the id that there is no other.

// KeyedPrefix begins the id of a block that a message key names.
const KeyedPrefix = "key:"

// Keyed reports whether a message key names the block of an id.
func Keyed(id string) bool { return strings.HasPrefix(id, KeyedPrefix) }

// positionTag is hashed before the id of a block that a position names.
const positionTag = "streamd receipts position\n"

// VRFProofSize is the size of a proof of an item's key, in bytes.
const VRFProofSize = 32 + challengeSize + 32

const (
	vrfSuite      = 3 // ECVRF-EDWARDS25519-SHA512-TAI
	challengeSize = 16
)

// vrf is the private key of the function.
type vrf struct {
	x      *edwards25519.Scalar
	nonce  [32]byte // hashed into nonces
	public Hash     // Y = x·B, encoded
}

// newVRF makes the key pair of a secret as RFC 8032 does (RFC 9381, section 5.5).
func newVRF(secret Hash) *vrf {
	h := sha512.Sum512(secret[:])
	x, err := edwards25519.NewScalar().SetBytesWithClamping(h[:32])
	if err != nil {
		panic(err) // of a length that is not 32
	}
	v := &vrf{x: x, nonce: [32]byte(h[32:])}
	v.public = Hash(new(edwards25519.Point).ScalarBaseMult(x).Bytes())
	return v
}

// vrfName is the end of a log's name that binds the function to it: a hash of the public key, in
// base32.
func vrfName(public Hash) string {
	h := sha256.Sum256(append([]byte("streamd receipts vrf\n"), public[:]...))
	return strings.ToLower(base32.StdEncoding.EncodeToString(h[:15]))
}

func vrfHash(step byte, parts ...[]byte) (sum [sha512.Size]byte) {
	h := sha512.New()
	h.Write([]byte{vrfSuite, step})
	for _, p := range parts {
		h.Write(p)
	}
	h.Write([]byte{0})
	h.Sum(sum[:0])
	return sum
}

// readPoint decodes a point (RFC 8032, section 5.1.3), and refuses other encodings of it than the
// shortest one. nil: it is none.
func readPoint(b []byte) *edwards25519.Point {
	p, err := new(edwards25519.Point).SetBytes(b)
	if err != nil || string(p.Bytes()) != string(b) {
		return nil
	}
	return p
}

var identity = edwards25519.NewIdentityPoint()

// toCurve maps an input to a point of prime order by try and increment (section 5.4.1.1).
func toCurve(public Hash, alpha string) *edwards25519.Point {
	for try := range 256 {
		h := vrfHash(1, public[:], []byte(alpha), []byte{byte(try)})
		if p := readPoint(h[:32]); p != nil {
			if p.MultByCofactor(p); p.Equal(identity) == 0 {
				return p
			}
		}
	}
	panic("receipt: no point for an input in 256 tries") // one of 2^256 inputs has none
}

// output is the function's value that a proof's point stands for (section 5.2).
func output(gamma *edwards25519.Point) [sha512.Size]byte {
	return vrfHash(3, new(edwards25519.Point).MultByCofactor(gamma).Bytes())
}

// challenge is the challenge of a proof (section 5.4.3), in 32 bytes.
func challenge(points ...[]byte) *edwards25519.Scalar {
	h := vrfHash(2, points...)
	var b [32]byte
	copy(b[:], h[:challengeSize])
	c, err := edwards25519.NewScalar().SetCanonicalBytes(b[:])
	if err != nil {
		panic(err) // of 128 bits
	}
	return c
}

// compute is the value of the function.
func (v *vrf) compute(alpha string) [sha512.Size]byte {
	h := toCurve(v.public, alpha)
	return output(h.ScalarMult(v.x, h))
}

// prove makes the proof of the function's value (section 5.1).
func (v *vrf) prove(alpha string) []byte {
	h := toCurve(v.public, alpha)
	gamma := new(edwards25519.Point).ScalarMult(v.x, h)
	seed := sha512.New()
	seed.Write(v.nonce[:])
	seed.Write(h.Bytes())
	k, err := edwards25519.NewScalar().SetUniformBytes(seed.Sum(nil))
	if err != nil {
		panic(err) // of a length that is not 64
	}
	c := challenge(v.public[:], h.Bytes(), gamma.Bytes(), new(edwards25519.Point).ScalarBaseMult(k).Bytes(), new(edwards25519.Point).ScalarMult(k, h).Bytes())
	s := edwards25519.NewScalar().MultiplyAdd(c, v.x, k)
	return append(append(gamma.Bytes(), c.Bytes()[:challengeSize]...), s.Bytes()...)
}

var errVRF = errors.New("the proof of the item's key is not one of this id under the key of the log")

// verifyVRF checks a proof, and returns the value that it is about (section 5.3, with the
// validation of the key in section 5.4.5: its owner may be dishonest).
func verifyVRF(public Hash, alpha string, proof []byte) (beta [sha512.Size]byte, err error) {
	if len(proof) != VRFProofSize {
		return beta, errVRF
	}
	y, gamma := readPoint(public[:]), readPoint(proof[:32])
	if y == nil || gamma == nil || new(edwards25519.Point).MultByCofactor(y).Equal(identity) == 1 {
		return beta, errVRF
	}
	var b [32]byte
	copy(b[:], proof[32:][:challengeSize])
	c, err := edwards25519.NewScalar().SetCanonicalBytes(b[:])
	if err != nil {
		panic(err) // of 128 bits
	}
	s, err := edwards25519.NewScalar().SetCanonicalBytes(proof[32+challengeSize:])
	if err != nil {
		return beta, errVRF
	}
	h, minus := toCurve(public, alpha), edwards25519.NewScalar().Negate(c)
	u := new(edwards25519.Point).VarTimeDoubleScalarBaseMult(minus, y, s)
	v := new(edwards25519.Point).VarTimeMultiScalarMult([]*edwards25519.Scalar{s, minus}, []*edwards25519.Point{h, gamma})
	if challenge(public[:], h.Bytes(), gamma.Bytes(), u.Bytes(), v.Bytes()).Equal(c) == 0 {
		return beta, errVRF
	}
	return output(gamma), nil
}

// positionKey is the key of the item of a block that a position names.
func positionKey(id string) Hash {
	var buffer [len(positionTag) + 128]byte // on the stack, for ids of usual length
	return sha256.Sum256(append(append(buffer[:0], positionTag...), id...))
}

// ItemKey is the key of a block's item. That of a block that a message key names takes some 100 µs.
func (k *Key) ItemKey(id string) Hash {
	if !Keyed(id) {
		return positionKey(id)
	}
	value := k.vrf.compute(id)
	return Hash(value[:])
}

// ProveItemKey proves the key of the item of a block that a message key names; nil: a position
// names the block, and its key needs no proof.
func (k *Key) ProveItemKey(id string) []byte {
	if !Keyed(id) {
		return nil
	}
	return k.vrf.prove(id)
}

// ItemKeyOf is the key of the item of a block with that id, in a log whose function has a public
// key. It checks the proof, which is nil for a block that a position names.
func ItemKeyOf(public Hash, id string, proof []byte) (key Hash, err error) {
	if !Keyed(id) {
		if len(proof) > 0 {
			return key, errors.New("a position names the block, so the key of its item has no proof")
		}
		return positionKey(id), nil
	}
	value, err := verifyVRF(public, id, proof)
	if err != nil {
		return key, err
	}
	return Hash(value[:]), nil
}
