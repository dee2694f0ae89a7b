package receipt

import (
	"bytes"
	"encoding/hex"
	"testing"

	"filippo.io/edwards25519"
)

// vectors are RFC 9381, appendix B.3: secret and public key, input, proof, output.
var vectors = [][5]string{
	{
		"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
		"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
		"",
		"8657106690b5526245a92b003bb079ccd1a92130477671f6fc01ad16f26f723f26f8a57ccaed74ee1b190bed1f479d97" +
			"27d2d0f9b005a6e456a35d4fb0daab1268a1b0db10836d9826a528ca76567805",
		"90cf1df3b703cce59e2a35b925d411164068269d7b2d29f3301c03dd757876ff66b71dda49d2de59d03450451af02679" +
			"8e8f81cd2e333de5cdf4f3e140fdd8ae",
	},
	{
		"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
		"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
		"72",
		"f3141cd382dc42909d19ec5110469e4feae18300e94f304590abdced48aed5933bf0864a62558b3ed7f2fea45c92a465" +
			"301b3bbf5e3e54ddf2d935be3b67926da3ef39226bbc355bdc9850112c8f4b02",
		"eb4440665d3891d668e7e0fcaf587f1b4bd7fbfe99d0eb2211ccec90496310eb5e33821bc613efb94db5e5b54c70a848" +
			"a0bef4553a41befc57663b56373a5031",
	},
	{
		"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
		"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
		"af82",
		"9bc0f79119cc5604bf02d23b4caede71393cedfbb191434dd016d30177ccbf8096bb474e53895c362d8628ee9f9ea3c0" +
			"e52c7a5c691b6c18c9979866568add7a2d41b00b05081ed0f58ee5e31b3a970e",
		"645427e5d00c62a23fb703732fa5d892940935942101e456ecca7bb217c61c452118fec1219202a0edcf038bb6373241" +
			"578be7217ba85a2687f7a0310b2df19f",
	},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The function has the keys, proofs and values of the RFC, and no bit of a proof, of the key or of
// the input can be another one.
func TestVRF(t *testing.T) {
	for i, c := range vectors {
		v := newVRF(Hash(unhex(t, c[0])))
		alpha, proof, beta := string(unhex(t, c[2])), unhex(t, c[3]), unhex(t, c[4])
		if got := v.compute(alpha); hex.EncodeToString(v.public[:]) != c[1] || !bytes.Equal(got[:], beta) {
			t.Errorf("example %d: the key is %x, the value %x", i, v.public, got)
		}
		if got := v.prove(alpha); !bytes.Equal(got, proof) {
			t.Errorf("example %d: the proof is %x", i, got)
		}
		if got, err := verifyVRF(v.public, alpha, proof); err != nil || !bytes.Equal(got[:], beta) {
			t.Errorf("example %d: verified as %x, %v", i, got, err)
		}
		if _, err := verifyVRF(v.public, alpha+"x", proof); err == nil {
			t.Errorf("example %d: another input passes", i)
		}
		for at := range 8 * len(proof) {
			bad := bytes.Clone(proof)
			bad[at/8] ^= 1 << (at % 8)
			if _, err := verifyVRF(v.public, alpha, bad); err == nil {
				t.Fatalf("example %d: bit %d of the proof can be changed", i, at)
			}
		}
		for at := range 8 * len(v.public) {
			bad := v.public
			bad[at/8] ^= 1 << (at % 8)
			if _, err := verifyVRF(bad, alpha, proof); err == nil {
				t.Fatalf("example %d: bit %d of the key can be changed", i, at)
			}
		}
		for _, n := range []int{0, 79, 81} {
			if _, err := verifyVRF(v.public, alpha, append(bytes.Clone(proof), 0)[:n]); err == nil {
				t.Errorf("example %d: a proof of %d bytes passes", i, n)
			}
		}
	}
}

// A value has one proof of another scalar, which is not the shortest, and a key of small order
// proves any value: both are refused.
func TestDishonestVRF(t *testing.T) {
	v := newVRF(Hash{1})
	proof := v.prove("key:ann")
	// s + q, where it fits into 32 bytes.
	order := unhex(t, "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010")
	long, carry := bytes.Clone(proof), 0
	for i, b := range order {
		sum := int(proof[48+i]) + int(b) + carry
		long[48+i], carry = byte(sum), sum>>8
	}
	if _, err := verifyVRF(v.public, "key:ann", long); err == nil {
		t.Error("a scalar that is not reduced passes")
	}
	// With the identity as the key, and x = 0, every proof of gamma = identity is consistent.
	small := &vrf{x: edwards25519.NewScalar(), nonce: [32]byte{1}, public: Hash(edwards25519.NewIdentityPoint().Bytes())}
	if _, err := verifyVRF(small.public, "key:ann", small.prove("key:ann")); err == nil {
		t.Error("a key of small order passes")
	}
	for _, bad := range [][]byte{
		unhex(t, "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"), // y = p + 1
		unhex(t, "0100000000000000000000000000000000000000000000000000000000000080"), // x = 0 with the sign 1
		make([]byte, 31),
	} {
		if readPoint(bad) != nil {
			t.Errorf("%x is a point", bad)
		}
	}
}

// The key of a position is that of its tag, that of a message key needs its proof, and neither
// passes for the other.
func TestItemKeyOf(t *testing.T) {
	k := testKey(t)
	for _, id := range []string{"orders/0/1", "key:", "key:ann", "key:orders/0/1", ""} {
		key, err := ItemKeyOf(k.VRF(), id, k.ProveItemKey(id))
		if err != nil || key != k.ItemKey(id) {
			t.Errorf("%q: %x, %v", id, key, err)
		}
		if _, err := ItemKeyOf(k.VRF(), id, nil); (err == nil) == Keyed(id) {
			t.Errorf("%q without a proof: %v", id, err)
		}
		if _, err := ItemKeyOf(k.VRF(), id, k.ProveItemKey("key:bob")); err == nil {
			t.Errorf("%q: the proof of another passes", id)
		}
		if _, err := ItemKeyOf(keyOf(t, 8).VRF(), id, k.ProveItemKey(id)); (err == nil) == Keyed(id) {
			t.Errorf("%q under another key: %v", id, err)
		}
	}
}

func FuzzVRF(f *testing.F) {
	for _, c := range vectors {
		f.Add(unhex(f, c[1]), string(unhex(f, c[2])), unhex(f, c[3]))
	}
	f.Fuzz(func(t *testing.T, public []byte, alpha string, proof []byte) {
		if len(public) != 32 {
			return
		}
		beta, err := verifyVRF(Hash(public), alpha, proof)
		if err != nil {
			return
		}
		for _, c := range vectors { // nobody else's secret is known to a fuzzer
			if v := newVRF(Hash(unhex(t, c[0]))); v.public == Hash(public) && v.compute(alpha) == beta {
				return
			}
		}
		t.Errorf("%x of %q passes under %x", proof, alpha, public)
	})
}

func BenchmarkItemKey(b *testing.B) {
	k := testKey(b)
	proof := k.ProveItemKey("key:ann")
	for name, do := range map[string]func(){
		"position": func() { k.ItemKey("orders/0/1841") },
		"key":      func() { k.ItemKey("key:ann") },
		"prove":    func() { k.ProveItemKey("key:ann") },
		"verify":   func() { ItemKeyOf(k.VRF(), "key:ann", proof) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				do()
			}
		})
	}
}
