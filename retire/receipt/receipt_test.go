package receipt

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// testKey is a key of a fixed seed.
func testKey(t testing.TB) *Key {
	t.Helper()
	private, _, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{7}, 32)), "streamd/test/7")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// item is the item of a number. Some keys differ in their last bits only.
func item(n int) Item {
	var i Item
	if n%3 == 0 {
		binary.BigEndian.PutUint32(i.Key[28:], uint32(n))
	} else {
		i.Key = sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	i.Value = sha256.Sum256(i.Key[:])
	return i
}

// naiveRoot is the root by its definition, from items in order.
func naiveRoot(items []Item) Hash {
	switch len(items) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(slices.Concat([]byte{0}, items[0].Key[:], items[0].Value[:]))
	}
	for bit := range 256 {
		right := slices.IndexFunc(items, func(i Item) bool { return i.Key[bit/8]<<(bit%8) >= 128 })
		if right > 0 {
			l, r := naiveRoot(items[:right]), naiveRoot(items[right:])
			return sha256.Sum256(slices.Concat([]byte{1, byte(bit)}, l[:], r[:]))
		}
	}
	panic("two items of one key")
}

func sorted(live map[Hash]Item) []Item {
	return slices.SortedFunc(maps.Values(live), func(a, b Item) int { return less(&a.Key, &b.Key) })
}

// keyed is the HMAC of the standard library.
func TestKeyed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for n := range 300 {
		key, message := Hash{}, make([]byte, n)
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		for i := range message {
			message[i] = byte(r.Uint32())
		}
		h := hmac.New(sha256.New, key[:])
		h.Write(message)
		if got := keyed(key, message); !hmac.Equal(got[:], h.Sum(nil)) {
			t.Errorf("a message of %d bytes: %x", n, got)
		}
	}
	if n := testing.AllocsPerRun(10, func() { keyed(Hash{}, make([]byte, 100)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A tree that was filled has the root of one whose items came one by one, and changes like it.
func TestFill(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for n := range 70 {
		var filled, put Tree
		var items []Item
		for _, i := range r.Perm(100)[:n] {
			items = append(items, item(i))
			put.Put(item(i))
		}
		filled.Fill(items)
		if filled.Len() != n || filled.Root() != put.Root() {
			t.Fatalf("%d items: %d in the tree, or another root", n, filled.Len())
		}
		for i := range 20 {
			if i%2 == 0 {
				filled.Put(item(200 + i))
				put.Put(item(200 + i))
			} else if filled.Remove(item(i).Key) != put.Remove(item(i).Key) {
				t.Fatalf("%d items: item %d is in one tree only", n, i)
			}
			if filled.Root() != put.Root() {
				t.Fatalf("%d items: another root after change %d", n, i)
			}
		}
	}
}

// The root is that of the present items by definition, whatever came and went before, and every
// proof of a removal leads from one root to the next.
func TestTreeIsAFunctionOfItsItems(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var tree Tree
		live := map[Hash]Item{}
		for step := range 60 {
			if len(live) > 0 && r.IntN(3) == 0 {
				all := sorted(live)
				r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				out := all[:1+r.IntN(min(len(all), 1+r.IntN(8)*r.IntN(8)))]
				var keys []Hash
				for _, i := range out {
					keys = append(keys, i.Key)
				}
				before := tree.Root()
				proof, list := tree.Prove(keys)
				for _, key := range keys {
					if !tree.Remove(key) {
						t.Fatalf("seed %d, step %d: %x is not there", seed, step, key)
					}
					delete(live, key)
				}
				removal, err := CheckRemoval(proof)
				if err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
				slices.SortFunc(out, func(a, b Item) int { return less(&a.Key, &b.Key) })
				if removal.Before != before || removal.After != tree.Root() || !slices.Equal(removal.Removed, out) || ListHash(out) != list {
					t.Fatalf("seed %d, step %d: the proof says %+v", seed, step, removal)
				}
			} else {
				i := item(r.IntN(300))
				if r.IntN(10) == 0 {
					i.Value[0]++
				}
				live[i.Key] = i
				tree.Put(i)
			}
			if absent := item(1000 + r.IntN(300)); tree.Remove(absent.Key) {
				t.Fatalf("seed %d, step %d: an item was removed that is not there", seed, step)
			}
			if got, want := tree.Root(), naiveRoot(sorted(live)); got != want || tree.Len() != len(live) {
				t.Fatalf("seed %d, step %d: root %x of %d items, want %x of %d", seed, step, got, tree.Len(), want, len(live))
			}
			for n := range 300 {
				i := item(n)
				got, ok := tree.Get(i.Key)
				if want, live := live[i.Key]; ok != live || ok && got != want {
					t.Fatalf("seed %d, step %d: item %d is %v %v", seed, step, n, got, ok)
				}
			}
		}
	}
}

// memory is a log in memory.
type memory struct {
	key        *Key
	records    []Record
	hashes     []tlog.Hash
	checkpoint []byte
}

func (m *memory) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, i := range indexes {
		found = append(found, m.hashes[i])
	}
	return found, nil
}

func (m *memory) add(t testing.TB, records ...Record) {
	t.Helper()
	g, err := m.key.Grow(int64(len(m.records)), m, records)
	if err != nil {
		t.Fatal(err)
	}
	m.records = append(m.records, records...)
	for _, h := range g.Hashes {
		m.hashes = append(m.hashes, h)
	}
	m.checkpoint = g.Checkpoint
}

func (m *memory) proof(t testing.TB, index int) []byte {
	t.Helper()
	inclusion, err := tlog.ProveRecord(int64(len(m.records)), int64(index), m)
	if err != nil {
		t.Fatal(err)
	}
	return AppendProof(nil, m.records[index], int64(index), inclusion, m.checkpoint)
}

func (m *memory) leaves() (all [][]byte) {
	for _, r := range m.records {
		all = append(all, r.Leaf)
	}
	return all
}

func (m *memory) head(t testing.TB) *Checkpoint {
	t.Helper()
	c, err := OpenCheckpoint(m.checkpoint, m.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// retirement takes items out of a tree and makes the record.
func retirement(tree *Tree, ids []string, k *Key) Record {
	var keys []Hash
	for _, id := range ids {
		keys = append(keys, k.ItemKey(id))
	}
	l := Leaf{
		Kind: Retired, Blocks: int64(len(ids)), Rows: 200 * int64(len(ids)),
		Earliest: time.UnixMilli(1e12).UTC(), Latest: time.UnixMilli(2e12).UTC(), Durable: time.UnixMilli(17e11).UTC(),
		Settings: sha256.Sum256([]byte("settings")), Request: sha256.Sum256([]byte("request")), Model: [16]byte{1, 2},
		Scope:     Scope{State: Done, Folds: Done, Sample: Done, Pages: Pending, Models: NotOurs, Log: NotOurs, Copies: NotOurs},
		Principal: "auditor", Build: "0.5", Topic: "orders", Offsets: []Next{{0, 1841}},
	}
	l.Before.Digest, l.After.Digest = sha256.Sum256([]byte("before")), sha256.Sum256([]byte("after"))
	l.Before.Root = tree.Root()
	var proof []byte
	proof, l.Items = tree.Prove(keys)
	for _, key := range keys {
		tree.Remove(key)
	}
	l.After.Root = tree.Root()
	return Record{l.AppendBinary(nil), proof}
}

// filled is a tree of that many blocks.
func filled(k *Key, n int) *Tree {
	var tree Tree
	for i := range n {
		id := fmt.Sprint("orders/0/", i)
		tree.Put(k.Item(id, sha256.Sum256([]byte(id))))
	}
	return &tree
}

// someLog is a log of retirements of one block or two.
func someLog(t testing.TB, leaves int) *memory {
	m := &memory{key: testKey(t)}
	tree := filled(m.key, 3*leaves)
	for i := range leaves {
		ids := []string{fmt.Sprint("orders/0/", 2*i)}
		if i%2 == 1 {
			ids = append(ids, fmt.Sprint("orders/0/", 2*i+1))
		}
		m.add(t, retirement(tree, ids, m.key))
	}
	return m
}

// Every receipt of a log passes, names its blocks and no others.
func TestReceipts(t *testing.T) {
	const leaves = 9
	m := someLog(t, leaves)
	for i := range leaves {
		r, err := Check(m.proof(t, i), m.key.Public())
		if err != nil {
			t.Fatalf("receipt %d: %v", i, err)
		}
		if !bytes.Equal(r.Leaf.AppendBinary(nil), m.records[i].Leaf) || r.Index != int64(i) || r.Checkpoint.Size != leaves {
			t.Errorf("receipt %d says %+v", i, r)
		}
		for n := range 2 * leaves {
			id := fmt.Sprint("orders/0/", n)
			want := n == 2*i || n == 2*i+1 && i%2 == 1
			if r.Names(id, m.key.Salt(id)) != want {
				t.Errorf("receipt %d: it names block %d: %v", i, n, !want)
			}
			if r.Names(id, m.key.Salt("another")) {
				t.Errorf("receipt %d names block %d under the salt of another", i, n)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the receipts in testdata anew")

// Receipts that were given out pass for ever, and the same retirement has the same bytes today.
func TestStoredReceipts(t *testing.T) {
	const folder = "../../testdata/receipts/"
	m := someLog(t, 6)
	for name, want := range map[string][]byte{
		"key.pub": []byte(m.key.Public() + "\n"), "one.tlog-proof": m.proof(t, 2), "two.tlog-proof": m.proof(t, 5),
		"cosigned.tlog-proof": append(bytes.TrimSuffix(m.proof(t, 2), m.checkpoint), cosigned(cosigned(m.checkpoint, "a.example", 1e9), "b.example", 2e9)...),
	} {
		if *update {
			if err := os.WriteFile(folder+name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := os.ReadFile(folder + name)
		if err != nil || !bytes.Equal(stored, want) {
			t.Errorf("%s is\n%s, %v, want\n%s", name, stored, err, want)
		}
	}
}

// No bit of a receipt can be changed unnoticed.
func TestEveryBitOfAReceiptCounts(t *testing.T) {
	m := someLog(t, 6)
	for _, index := range []int{2, 5} { // of one block, and of two
		proof := m.proof(t, index)
		for i := range proof {
			for bit := range 8 {
				bad := bytes.Clone(proof)
				bad[i] ^= 1 << bit
				if _, err := Check(bad, m.key.Public()); err == nil {
					t.Fatalf("receipt %d: bit %d of byte %d (%q) can be changed", index, bit, i, proof[i])
				}
			}
			if _, err := Check(slices.Delete(bytes.Clone(proof), i, i+1), m.key.Public()); err == nil {
				t.Fatalf("receipt %d: byte %d can be left out", index, i)
			}
		}
		for _, more := range []string{"\n", "x"} {
			if _, err := Check(append(bytes.Clone(proof), more...), m.key.Public()); err == nil {
				t.Fatalf("receipt %d: %q can be appended", index, more)
			}
		}
	}
	other, _, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{8}, 32)), "streamd/test/7")
	if err != nil {
		t.Fatal(err)
	}
	forger, err := ParseKey(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(m.proof(t, 2), forger.Public()); err == nil {
		t.Error("a receipt passes under the key of another log")
	}
}

// A proof of a removal that was made of wrong parts is refused: a removed key on a wrong path, a
// path that is not shown to its end, and an item that is removed and stays.
func TestDishonestRemovals(t *testing.T) {
	k := testKey(t)
	tree := filled(k, 50)
	key := k.ItemKey("orders/0/7")
	honest := tree.part(tree.root, []Hash{key})
	hidden := tree.appendPart(nil, honest) // the path after the removal is not shown
	if _, err := CheckRemoval(hidden); err == nil {
		t.Error("the neighbour of the removed item need not be shown")
	}
	tree.expand(honest, &key)
	if _, err := CheckRemoval(tree.appendPart(nil, honest)); err != nil {
		t.Error(err)
	}
	stays := k.Item("orders/0/7", sha256.Sum256([]byte("orders/0/7")))
	for name, proof := range map[string][]byte{
		"nothing":          nil,
		"no removal":       (&Tree{}).appendPart(nil, &part{tag: tagStays, item: stays}),
		"removed twice":    slices.Concat([]byte{1, 0}, []byte{2}, stays.Key[:], stays.Value[:], []byte{2}, stays.Key[:], stays.Value[:]),
		"removed and kept": slices.Concat([]byte{1, 255}, []byte{2}, stays.Key[:], stays.Value[:], []byte{3}, stays.Key[:], stays.Value[:]),
		"swapped sides":    swapped(tree, honest),
	} {
		if r, err := CheckRemoval(proof); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// swapped writes a proof with the sides of its first node exchanged.
func swapped(tree *Tree, p *part) []byte {
	q := *p
	q.below[0], q.below[1] = p.below[1], p.below[0]
	return tree.appendPart(nil, &q)
}

// A leaf that is changed, dropped, moved, repeated or added is found in the log, and so is a fork.
func TestAudit(t *testing.T) {
	const leaves = 11
	m := &memory{key: testKey(t)}
	tree := filled(m.key, 3*leaves)
	var heads []*Checkpoint
	for i := range leaves {
		m.add(t, retirement(tree, []string{fmt.Sprint("orders/0/", i)}, m.key))
		if i%4 == 3 || i == leaves-1 {
			heads = append(heads, m.head(t))
		}
	}
	audit := func(leaves [][]byte, heads ...*Checkpoint) error { return Audit(slices.Values(leaves), heads...) }
	if err := audit(m.leaves(), heads...); err != nil {
		t.Fatal(err)
	}
	for i := range leaves {
		flipped := m.leaves()
		flipped[i] = bytes.Clone(flipped[i])
		flipped[i][i] ^= 1
		bad := map[string][][]byte{
			"changed": flipped, "dropped": slices.Delete(m.leaves(), i, i+1), "added": slices.Insert(m.leaves(), i, m.leaves()[leaves/2]),
		}
		if i > 0 {
			moved := m.leaves()
			moved[i], moved[i-1] = moved[i-1], moved[i]
			bad["moved"] = moved
		}
		for what, leaves := range bad {
			if audit(leaves, heads...) == nil {
				t.Errorf("leaf %d was %s", i, what)
			}
		}
	}
	fork := &memory{key: m.key}
	fork.add(t, m.records[:6]...)
	fork.add(t, m.records[7:]...)
	if err := audit(fork.leaves(), heads[0], fork.head(t)); err != nil {
		t.Errorf("the fork is good before the leaf that it lacks: %v", err)
	}
	if audit(fork.leaves(), heads...) == nil || audit(m.leaves(), heads[0], fork.head(t), heads[len(heads)-1]) == nil {
		t.Error("a fork passes")
	}
	// The consistency proof of RFC 6962 finds it, too.
	old := heads[1]
	proof, err := tlog.ProveTree(int64(len(fork.records)), old.Size, fork)
	if err != nil {
		t.Fatal(err)
	}
	if tlog.CheckTree(proof, fork.head(t).Size, fork.head(t).Root, old.Size, old.Root) == nil {
		t.Error("a fork is consistent with an earlier checkpoint")
	}
}

// A key is made once, for its owner only, and is read again.
func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts.key")
	k, made, loose, err := OpenKey(path, "orders")
	if err != nil || !made || loose {
		t.Fatal(made, loose, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	public, err := os.ReadFile(PublicFile(path))
	if err != nil || string(public) != k.Public()+"\n" {
		t.Errorf("the public key is %q, want %q; %v", public, k.Public(), err)
	}
	again, made, loose, err := OpenKey(path, "another")
	if err != nil || made || loose || again.Public() != k.Public() || again.Salt("a") != k.Salt("a") {
		t.Error(made, loose, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, loose, err := OpenKey(path, ""); err != nil || !loose {
		t.Error("others can read the key unnoticed", err)
	}
	if err := os.WriteFile(path, public, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := OpenKey(path, ""); err == nil {
		t.Error("a public key passes as a private one")
	}
}

func FuzzDecodeLeaf(f *testing.F) {
	m := someLog(f, 3)
	for _, r := range m.records {
		f.Add(r.Leaf)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := DecodeLeaf(b); err == nil && !bytes.Equal(l.AppendBinary(nil), b) {
			t.Errorf("%x is written as %x", b, l.AppendBinary(nil))
		}
	})
}

func FuzzCheckRemoval(f *testing.F) {
	m := someLog(f, 4)
	for _, r := range m.records {
		f.Add(r.Removal)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := CheckRemoval(b)
		if err != nil {
			return
		}
		if r.Before == r.After {
			t.Error("nothing has changed")
		}
	})
}

func FuzzCheck(f *testing.F) {
	m := someLog(f, 4)
	for i := range m.records {
		f.Add(m.proof(f, i))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Check(b, m.key.Public())
		if err != nil {
			return
		}
		if want := m.proof(t, int(r.Index)); !bytes.HasPrefix(b, want[:bytes.LastIndex(want, []byte("\n\n"))]) { // further signatures may follow
			t.Errorf("%q passes", b)
		}
	})
}

// One block of many is retired: proof, removal, both roots, leaf and signature.
func BenchmarkReceipt(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint("blocks=", n), func(b *testing.B) {
			m := &memory{key: testKey(b)}
			tree := filled(m.key, n)
			tree.Root()
			var took []time.Duration
			bytes := 0
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprint("orders/0/", i%n)
				began := time.Now()
				m.add(b, retirement(tree, []string{id}, m.key))
				bytes += len(m.proof(b, len(m.records)-1))
				took = append(took, time.Since(began))
				tree.Put(m.key.Item(id, sha256.Sum256([]byte(id))))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
			b.ReportMetric(float64(bytes)/float64(len(took)), "bytes/receipt")
		})
	}
}

// A block comes: its item is made and put.
func BenchmarkPut(b *testing.B) {
	k := testKey(b)
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint("blocks=", n), func(b *testing.B) {
			tree := filled(k, n)
			for i := 0; b.Loop(); i++ {
				tree.Put(k.Item(fmt.Sprint("new/", i), Hash{}))
			}
		})
	}
}
