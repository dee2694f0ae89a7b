package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"
)

// published is a checkpoint of the certificate log arche2025h1.staging.ct.transparency.dev, with
// two of its cosignatures, as it was published in May 2026. remora is the key of one of the two.
const (
	published = `arche2025h1.staging.ct.transparency.dev
1432088532
U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=

— arche2025h1.staging.ct.transparency.dev ui8GwCF1+kWqZrxGdhj4aX3gcw7XUlXQQabg/27lefwhUkzbC3NygNI75MdhL1bfTW9g8Ei59RA23oHP7Ry1k3ZFWwQ=
— remora.n621.de 2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk5XeU/zZ0WBxtqB0DrAWfBw==
— witness.stagemole.eu Z/euoAAAAABqEiEgw0i+7g2ENfDAWHmtRzCfKTHSDwYDJA2NmKeGi9Y8FtEyOUvVr+AJmIY/2TUFucgKi7lI7cUiOvKFYe/TmN9DAg==
`
	remora = "remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2"
)

func mustWitness(t testing.TB, public string) *Witness {
	t.Helper()
	w, err := ParseWitness(public)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// testWitness has the key of a witness of that name.
func testWitness(name string) (private ed25519.PrivateKey, public string, hash []byte) {
	seed := sha256.Sum256([]byte(name))
	private = ed25519.NewKeyFromSeed(seed[:])
	key := append([]byte{4}, private.Public().(ed25519.PublicKey)...)
	sum := sha256.Sum256(append([]byte(name+"\n"), key...))
	return private, fmt.Sprintf("%s+%x+%s", name, sum[:4], base64.StdEncoding.EncodeToString(key)), sum[:4]
}

// cosigned appends the cosignature of a test's witness to a signed checkpoint.
func cosigned(signed []byte, name string, at int64) []byte {
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	private, _, hash := testWitness(name)
	line := binary.BigEndian.AppendUint64(bytes.Clone(hash), uint64(at))
	line = append(line, ed25519.Sign(private, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", at, text))...)
	return fmt.Appendf(bytes.Clone(signed), "— %s %s\n", name, base64.StdEncoding.EncodeToString(line))
}

// A cosignature that a public witness has given passes, and no bit of it or of the checkpoint can
// be changed. That of the log and those of other witnesses do not count.
func TestPublishedCosignature(t *testing.T) {
	w := mustWitness(t, remora)
	_, other, _ := testWitness("witness.stagemole.eu")
	by := []*Witness{mustWitness(t, other), w}
	found, err := Cosignatures([]byte(published), by)
	if err != nil || len(found) != 1 || found[0].Witness != w || !found[0].Time.Equal(time.Unix(1779573024, 0)) {
		t.Fatalf("%+v, %v", found, err)
	}
	if !strings.Contains(published, found[0].Line) || !strings.HasPrefix(found[0].Line, "— remora.n621.de ") {
		t.Errorf("the line is %q", found[0].Line)
	}
	text, lines, _ := strings.Cut(published, "\n\n")
	counted := len(text) + 1 + strings.Index(lines, "— remora") // bits before it are those of the text and of the log
	for i := range published {
		if i > len(text) && (i < counted+1 || i > counted+len(found[0].Line)) {
			continue
		}
		for bit := range 8 {
			bad := []byte(published)
			bad[i] ^= 1 << bit
			if found, err := Cosignatures(bad, by); err == nil && len(found) > 0 {
				t.Fatalf("bit %d of byte %d (%q) can be changed", bit, i, published[i])
			}
		}
	}
}

func TestParseWitness(t *testing.T) {
	w := mustWitness(t, remora)
	for n := range cosignatureSize + 2 { // of any length
		if w.Verify([]byte("text\n"), make([]byte, n)) {
			t.Errorf("%d bytes are a cosignature", n)
		}
	}
	if w.Name() != "remora.n621.de" || w.KeyHash() != 0xda77ade7 {
		t.Errorf("%+v", w)
	}
	for bad, why := range map[string]string{
		"":               "want the public key of a witness",
		"remora.n621.de": "want the public key of a witness",
		strings.Replace(remora, "n621", "n622", 1):         "the hash in the key is not that",
		strings.Replace(remora, "da77ade7", "da77ade8", 1): "the hash in the key is not that",
		strings.Replace(remora, "da77ade7", "+a77ade", 1):  "want the public key of a witness",
		remora + "AAAA": "want one of type 4",
		"example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k": "a key of type 1: want one of type 4",
		"a b" + remora: "want the public key of a witness",
	} {
		if _, err := ParseWitness(bad); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", bad, err, why)
		}
	}
}

// A receipt has the cosignatures of its checkpoint, and stays a receipt without them.
func TestCosignedReceipt(t *testing.T) {
	m := someLog(t, 6)
	r, err := Check(m.proof(t, 2), m.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	_, a, _ := testWitness("a.example")
	_, b, _ := testWitness("b.example")
	_, c, _ := testWitness("c.example")
	keys := []*Witness{mustWitness(t, a), mustWitness(t, b), mustWitness(t, c)}
	if found, err := Cosignatures(r.Signed, keys); err != nil || len(found) != 0 {
		t.Errorf("without cosignatures: %+v, %v", found, err)
	}
	signed := cosigned(cosigned(r.Signed, "b.example", 2e9), "a.example", 1e9)
	found, err := Cosignatures(signed, keys)
	if err != nil || len(found) != 2 || found[0].Witness != keys[0] || found[0].Time.Unix() != 1e9 || found[1].Witness != keys[1] {
		t.Fatalf("%+v, %v", found, err)
	}
	if got := Cosign(Cosign(r.Signed, found[1]), found[0]); !bytes.Equal(got, signed) {
		t.Errorf("cosigned it is\n%s, want\n%s", got, signed)
	}
	whole := append(bytes.TrimSuffix(m.proof(t, 2), r.Signed), signed...)
	if again, err := Check(whole, m.key.Public()); err != nil || !bytes.Equal(again.Signed, signed) {
		t.Errorf("with cosignatures: %v", err)
	}
	wrong := append(bytes.Clone(r.Signed), strings.Replace(found[0].Line, "a.example", "b.example", 1)...)
	if found, err := Cosignatures(wrong, keys); err != nil || len(found) != 0 {
		t.Errorf("a cosignature under the name of another witness: %+v, %v", found, err)
	}
}
