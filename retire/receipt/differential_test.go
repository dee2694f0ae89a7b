package receipt

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

var differences = flag.Int("differences", 600, "receipts that Go and verify.py judge")

// judging runs verify.py on cases, one a line, and says what it thinks of each.
const judging = `
import base64, json, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import verify
for line in sys.stdin:
    c = json.loads(line)
    try:
        text = base64.b64decode(c["proof"]).decode()
        verify.verify(text, base64.b64decode(c["key"]).decode(), c["blocks"] or [], c["witnesses"] or [])
        print("accepts", flush=True)
    except (ValueError, IndexError) as error:
        print("refuses:", str(error).replace("\n", " "), flush=True)
    except Exception as error:
        print("crashes:", repr(error), flush=True)
`

// judged is what both verifiers get.
type judged struct {
	Name      string   `json:"-"`
	Proof     []byte   `json:"proof"`
	Key       []byte   `json:"key"`
	Blocks    []string `json:"blocks"` // ID or ID=PROOF
	Witnesses []string `json:"witnesses"`
}

// judge is what Go thinks of it.
func (c *judged) judge() error {
	r, err := Check(c.Proof, string(c.Key))
	if err != nil {
		return err
	}
	for _, block := range c.Blocks {
		id, text := block, ""
		if at := strings.LastIndex(block, "="); Keyed(block) {
			id, text = block[:max(at, 0)], block[at+1:]
		}
		proof, err := hex.DecodeString(text)
		if err == nil && hex.EncodeToString(proof) != text {
			err = fmt.Errorf("%q is not hex in small letters", text)
		}
		if err == nil {
			_, err = r.Named(id, proof)
		}
		if err != nil {
			return err
		}
	}
	var keys []*Witness
	for _, public := range c.Witnesses {
		w, err := ParseWitness(public)
		if err != nil {
			return err
		}
		keys = append(keys, w)
	}
	if len(keys) == 0 {
		return nil
	}
	if found, err := Cosignatures(r.Signed, keys); err != nil || len(found) != len(keys) {
		return fmt.Errorf("%d witnesses, %v", len(found), err)
	}
	return nil
}

// forged makes the proof of a leaf and a change that need be none, signed by the log's owner as
// leaf 1 of a log of two. head is the leaf up to its hashes, and tail what follows them.
func forged(t testing.TB, k *Key, l *Leaf, head, tail, change []byte) []byte {
	t.Helper()
	whole, own := *l, *l
	_ = whole.complete(change) // else both refuse it
	if l.Kind.Listed() || !l.Proved() {
		whole = *l
	}
	join := func(hashes []*Hash) []byte {
		b := bytes.Clone(head)
		for _, h := range hashes {
			b = append(b, h[:]...)
		}
		return append(b, tail...)
	}
	leaf := join(own.ownHashes())
	m := &memory{key: k}
	m.add(t, begin(k), Record{Leaf: join(whole.hashes())})
	inclusion, err := tlog.ProveRecord(2, 1, m)
	if err != nil {
		t.Fatal(err)
	}
	extra := append(append(binary.AppendUvarint(nil, uint64(len(leaf))), leaf...), change...)
	b := fmt.Appendf(nil, "%sextra %s\nindex 1\n", proofHeader, base64.StdEncoding.EncodeToString(extra))
	for _, h := range inclusion {
		b = fmt.Appendf(b, "%s\n", h)
	}
	return append(append(b, '\n'), m.checkpoint...)
}

// edited is bytes with a few changes: bits, bytes of the edge of texts and numbers, a part twice or
// not at all.
func edited(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(2) {
		if len(b) == 0 {
			return b
		}
		at := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = []byte{0, 1, 0x7f, 0x80, 0xff, 0xc3, 0xed, '\r', '\n', ' ', 'A', '='}[r.IntN(12)]
		case 2:
			b = slices.Insert(b, at, []byte{0, '\r', '\n', 'A', '=', 0x80, ' '}[r.IntN(7)])
		case 3:
			b = slices.Delete(b, at, at+1)
		default:
			to := min(len(b), at+1+r.IntN(70))
			b = slices.Insert(b, to, b[at:to]...)
		}
	}
	return b
}

// signatures are edits of the checkpoint that its signature does not cover.
func signatures(r *rand.Rand, m *memory, proof []byte) []byte {
	lines := [...]string{
		"— someone.example AAAAAAA=\n", "— someone.example AAAAAA==\n", "— someone.example AAAAAAE=\n", "— someone.example AAAA\n",
		"— some+one AAAAAAA=\n", "— some one AAAAAAA=\n", "— some\u00a0one AAAAAAA=\n", "- someone AAAAAAA=\n", "—  AAAAAAA=\n", "— someone \n", "\n", "—\n",
		"— someone.example AAAA\rAAA=\n", "— someone.example aaaaaaa=\n— someone.example aaaaaab=\n", "— someone.example AAAAAAA=\n— other.example AAAAAAA=\n",
		"— \xff AAAAAAA=\n", "— someone.example AAAAAAA=",
	}
	line := lines[r.IntN(len(lines))]
	last := bytes.LastIndex(proof, []byte("\n\n")) + 2
	own := string(proof[last:])
	switch r.IntN(4) {
	case 0:
		return append(bytes.Clone(proof), line...)
	case 1:
		return slices.Concat(proof[:last], []byte(line), proof[last:])
	case 2:
		return append(bytes.Clone(proof), own...) // twice
	}
	return append(cosigned(bytes.Clone(proof), "a.example", 1e9), cosigned(nil, "a.example", 2e9)...)
}

// Go and verify.py accept and refuse the same receipts, also those that only a dishonest owner can
// sign.
func TestVerifierAgrees(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("STREAMD_REQUIRE_PROGRAMS") != "" {
			t.Fatal("STREAMD_REQUIRE_PROGRAMS is set: ", err)
		}
		t.Skip("python3 is not installed")
	}
	m := everyLog(t)
	k, r := m.key, rand.New(rand.NewPCG(72, 1))
	public := []byte(k.Public())
	const a, b = "a.example+f8c20697+BB76jis6Yn1q36Ep8452H4MOX2W7lS/x9Ni6X+1i68hC", "b.example+c77329c8+BLQJPXyI/B2bvFg3F4DxLa8+tiEZDVIwBE9Zx+AMDo3N"
	var cases []*judged
	add := func(name string, proof []byte, change func(*judged)) {
		c := &judged{Name: name, Proof: proof, Key: public}
		if change != nil {
			change(c)
		}
		cases = append(cases, c)
	}
	leaves := make([]*Leaf, len(m.records))
	for i := range m.records {
		if leaves[i], err = DecodeLeaf(m.records[i].Leaf); err != nil {
			t.Fatal(err)
		}
		add("whole", m.proof(t, i), nil)
	}
	// Texts, hex and keys at their edges.
	retired := m.proof(t, 1) // of block 0, which a message key names
	id, proof := blockID(0), hex.EncodeToString(k.ProveItemKey(blockID(0)))
	for _, block := range []string{
		id + "=" + proof, id + "=" + strings.ToUpper(proof), id + "= " + proof, id + "=" + proof[1:], id, id + "=", "orders/0/1", "orders/0/1=" + proof,
		"key:=" + proof, id + "=" + proof + "00", id + "=" + proof[:64] + strings.Repeat("f", 96), "", id + "x=" + proof, id + "=x=" + proof, id + "=" + strings.Repeat("0", 160),
	} {
		add("block "+block, retired, func(c *judged) { c.Blocks = []string{block} })
	}
	for _, block := range []string{"orders/0/2", "orders/0/3", "orders/0/2=", "orders/0/9"} {
		add("block "+block, m.proof(t, 2), func(c *judged) { c.Blocks = []string{block} })
	}
	// A block that had not come by then, by the offsets of the leaf, was not live either.
	for _, c := range []struct {
		offsets []Next
		kind    Kind
		good    bool
	}{
		{[]Next{{0, 3}}, Retired, true}, {[]Next{{0, 2}}, Retired, false}, {[]Next{{0, 0}, {1, 9}}, Retired, false}, {nil, Retired, false},
		{[]Next{{1, 9}}, Retired, false}, {slices.Repeat([]Next{{1, 9}}, MaxOffsets), Retired, true}, {nil, Deleted, false}, {nil, Lost, true},
	} {
		for i := range c.offsets[min(len(c.offsets), 2):] {
			c.offsets[2+i].Partition = uint32(3 + i)
		}
		if len(c.offsets) > 2 {
			c.offsets[1].Partition = 2
		}
		l := *leaves[2]
		l.Offsets, l.Kind = c.offsets, c.kind
		text := l.AppendBinary(nil)
		_, at, err := decodeLeaf(text, (*Leaf).hashes)
		if err != nil {
			t.Fatal(err)
		}
		proof := forged(t, k, &l, text[:at], text[at+len(l.hashes())*len(Hash{}):], m.records[2].Change)
		name := fmt.Sprintf("block by %d offsets, %v, %v", len(c.offsets), c.offsets[:min(len(c.offsets), 2)], c.kind)
		add(name, proof, func(of *judged) { of.Blocks = []string{"orders/0/2"} })
		if err := cases[len(cases)-1].judge(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	// No log has more leaves than its proofs have powers of two for.
	for size, good := range map[int64]bool{1 << 62: true, 1<<62 + 1: false, math.MaxInt64: false} {
		checkpoint, err := k.Sign(size, tlog.Hash{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenCheckpoint(checkpoint, k.Public()); (err == nil) != good {
			t.Errorf("a log of %d leaves: %v", size, err)
		}
		add(fmt.Sprint("leaves ", size), append(bytes.TrimSuffix(retired, m.checkpoint), checkpoint...), nil)
	}
	hash := strings.Split(string(public), "+")[1]
	for _, key := range []string{
		strings.Replace(string(public), hash, strings.ToUpper(hash), 1), string(public) + "=", strings.Replace(string(public), "+A", "+\rA", 1), string(public[:20]), "", string(public) + "\n",
		keyOf(t, 8).Public(),
	} {
		add("key "+key, retired, func(c *judged) { c.Key = []byte(key) })
	}
	both := append(bytes.TrimSuffix(retired, m.checkpoint), cosigned(cosigned(m.checkpoint, "a.example", 1e9), "b.example", 2e9)...)
	for _, list := range [][]string{{a}, {b, a}, {a, a}, {strings.ToUpper(a)}, {strings.Replace(a, "f8c2", "F8C2", 1)}, {a + "="}, {"a.example"}, {string(public)}, {strings.Replace(a, "BB", "AB", 1)}} {
		add(fmt.Sprint("witnesses ", list), both, func(c *judged) { c.Witnesses = list })
		add(fmt.Sprint("witnesses of none ", list), retired, func(c *judged) { c.Witnesses = list })
	}
	for len(cases) < *differences {
		i := r.IntN(len(m.records))
		l, change := leaves[i], m.records[i].Change
		_, at, err := decodeLeaf(m.records[i].Leaf, (*Leaf).hashes)
		if err != nil {
			t.Fatal(err)
		}
		head, tail := m.records[i].Leaf[:at], m.records[i].Leaf[at+len(l.hashes())*len(Hash{}):]
		switch r.IntN(7) {
		case 0:
			add("edited", edited(r, m.proof(t, i)), nil)
		case 1:
			add("signatures", signatures(r, m, m.proof(t, i)), nil)
		case 2:
			add("head", forged(t, k, l, edited(r, head), tail, change), nil)
		case 3, 4:
			add("tail", forged(t, k, l, head, edited(r, tail), change), nil)
		case 5:
			add("change", forged(t, k, l, head, tail, edited(r, change)), nil)
		default: // numbers and texts of the leaf, as only its owner writes them
			other := *l
			switch r.IntN(6) {
			case 0:
				other.Offsets = []Next{{1, 5}, {0, 7}}
			case 1:
				other.Offsets = []Next{{0, 5}, {0, 7}}
			case 2:
				other.Kind = Kind(r.IntN(15))
			case 3:
				other.Blocks = int64(r.IntN(3))
			case 4:
				other.Scope[[]Place{Sample, Sample, Place(r.IntN(int(places)))}[r.IntN(3)]], other.Lacking = Status(int(Kept)+r.IntN(2)), int64(r.IntN(3))
			default:
				other.Topic, other.Build = "töpic", strings.Repeat("x", 1<<10+r.IntN(2))
			}
			text := other.AppendBinary(nil)
			if _, at, err = decodeLeaf(m.records[i].Leaf, (*Leaf).hashes); err != nil {
				t.Fatal(err)
			}
			add("other", forged(t, k, &other, text[:at], text[min(len(text), at+len(l.hashes())*len(Hash{})):], change), nil)
		}
	}
	command := exec.Command(python, "-c", judging, stored)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Wait()
	defer in.Close()
	says, accepted := bufio.NewScanner(out), 0
	for i, c := range cases {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
		if !says.Scan() {
			t.Fatalf("case %d: verify.py has ended: %v", i, says.Err())
		}
		judgement := c.judge()
		if judgement == nil {
			accepted++
		}
		if (says.Text() == "accepts") != (judgement == nil) || strings.HasPrefix(says.Text(), "crashes") {
			t.Errorf("case %d, %s: verify.py %s; Go says %v\n%q", i, c.Name, says.Text(), judgement, c.Proof)
		}
	}
	if accepted < len(m.records) || accepted > len(cases)*9/10 {
		t.Errorf("%d of %d cases are accepted", accepted, len(cases))
	}
	t.Logf("%d of %d cases are accepted by both", accepted, len(cases))
}
