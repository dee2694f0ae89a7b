package receipt

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// testKey is a key of a fixed seed.
func testKey(t testing.TB) *Key {
	t.Helper()
	return keyOf(t, 7)
}

// keyOf is the key of a seed.
func keyOf(t testing.TB, seed byte) *Key {
	t.Helper()
	private, err := GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), "streamd/test")
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

// rootOf is the root of a version.
func (t *Tree) rootOf(v Version) Hash {
	if v.n == 0 {
		return EmptyRoot
	}
	return t.hash(v.root)
}

// checkProof compares the proof of what has become of keys with the items of both moments.
func checkProof(proof []byte, was, is map[Hash]Item, keys []Hash) error {
	c, err := CheckChange(proof)
	if err != nil {
		return err
	}
	if c.Before != naiveRoot(sorted(was)) || c.After != naiveRoot(sorted(is)) || len(c.Moved) != len(keys) {
		return fmt.Errorf("it says %+v", c)
	}
	value := func(of map[Hash]Item, key Hash, said *Hash) bool {
		i, ok := of[key]
		return ok == (said != nil) && (!ok || i.Value == *said)
	}
	alone := 0 // differences that the proof is not about
	for key := range is {
		if is[key] != was[key] && !slices.Contains(keys, key) {
			alone++
		}
	}
	for key := range was {
		if _, stays := is[key]; !stays && !slices.Contains(keys, key) {
			alone++
		}
	}
	for i, m := range c.Moved {
		if !slices.Contains(keys, m.Key) || !value(was, m.Key, m.Before) || !value(is, m.Key, m.After) || i > 0 && bytes.Compare(c.Moved[i-1].Key[:], m.Key[:]) >= 0 {
			return fmt.Errorf("it says of %x %v, %v", m.Key, m.Before, m.After)
		}
	}
	if c.Alone != (alone == 0) {
		return fmt.Errorf("it says that nothing else differs: %v, but %d do", c.Alone, alone)
	}
	return nil
}

// The root is that of the present items by definition, whatever came and went before. Versions
// keep their items, and every proof of what has become of items since a version is right.
func TestTreeIsAFunctionOfItsItems(t *testing.T) {
	moved := [3]int{} // left, came, have another value
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var tree Tree
		live, kept := map[Hash]Item{}, map[Hash]Item{}
		since := tree.Keep()
		for step := range 80 {
			fail := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			switch {
			case len(live) > 0 && r.IntN(3) == 0: // together, with nothing else between two versions
				all := sorted(live)
				r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				was, from := maps.Clone(live), tree.Mark()
				var keys []Hash
				for _, i := range all[:1+r.IntN(min(len(all), 1+r.IntN(8)*r.IntN(8)))] {
					keys = append(keys, i.Key)
					if !tree.Remove(i.Key) {
						t.Fatalf("seed %d, step %d: %x is not there", seed, step, i.Key)
					}
					delete(live, i.Key)
				}
				fail(checkProof(tree.Prove(from, keys), was, live, keys))
				tree.Unmark()
			case r.IntN(8) == 0:
				var keys []Hash
				for n := range 60 {
					key := item(n).Key
					was, before := kept[key]
					is, after := live[key]
					if was != is && r.IntN(3) > 0 {
						keys = append(keys, key)
						switch {
						case !after:
							moved[0]++
						case !before:
							moved[1]++
						default:
							moved[2]++
						}
					}
				}
				if len(keys) > 0 {
					fail(checkProof(tree.Prove(since, keys), kept, live, keys))
				}
				since, kept = tree.Keep(), maps.Clone(live)
				if nodes, items := int(tree.nodes.used)-len(tree.nodes.free), int(tree.items.used)-len(tree.items.free); items != len(live) || nodes != max(0, items-1) {
					t.Fatalf("seed %d, step %d: %d nodes and %d items of %d are in use", seed, step, nodes, items, len(live))
				}
			default:
				i := item(r.IntN(60))
				if len(live) > 0 && r.IntN(3) == 0 {
					i = sorted(live)[r.IntN(len(live))]
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
			if r.IntN(2) == 0 && tree.rootOf(since) != naiveRoot(sorted(kept)) { // it may be hashed late
				t.Fatalf("seed %d, step %d: the version has changed", seed, step)
			}
			for n := range 60 {
				i := item(n)
				got, ok := tree.Get(i.Key)
				if want, live := live[i.Key]; ok != live || ok && got != want {
					t.Fatalf("seed %d, step %d: item %d is %v %v", seed, step, n, got, ok)
				}
				got, ok = tree.GetIn(since, i.Key)
				if want, was := kept[i.Key]; ok != was || ok && got != want {
					t.Fatalf("seed %d, step %d: item %d was %v %v", seed, step, n, got, ok)
				}
			}
		}
	}
	if slices.Min(moved[:]) < 10 {
		t.Errorf("proofs of %v items that left, came and got another value", moved)
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
	proof, err := AppendProof(nil, m.records[index], int64(index), inclusion, m.checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	return proof
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

// testLeaf is a leaf of some blocks, without the live sets.
func testLeaf(kind Kind, items []Item) Leaf {
	n := int64(len(items))
	l := Leaf{
		Kind: kind, Blocks: n, Rows: 200 * n,
		Earliest: time.UnixMilli(1e12).UTC(), Latest: time.UnixMilli(2e12).UTC(), Durable: time.UnixMilli(17e11).UTC(), LogUntil: time.UnixMilli(21e11).UTC(),
		Items: ListHash(items), Settings: sha256.Sum256([]byte("settings")), Request: sha256.Sum256([]byte("request")),
		Scope:     Scope{State: Done, Folds: Done, Sample: Done, Pages: Pending, Models: NotOurs, Log: NotOurs, Copies: NotOurs},
		Principal: "auditor", Build: "0.5", Topic: "orders", Offsets: []Next{{0, 1841}},
	}
	l.Before.Digest, l.After.Digest = sha256.Sum256([]byte("before")), sha256.Sum256([]byte("after"))
	return l
}

// retirement takes items out of a tree and makes the record.
func retirement(tree *Tree, ids []string, k *Key) Record {
	var keys []Hash
	var items []Item
	since, root := tree.Mark(), tree.Root()
	for _, id := range ids {
		i, _ := tree.Get(k.ItemKey(id))
		keys, items = append(keys, i.Key), append(items, i)
		tree.Remove(i.Key)
	}
	slices.SortFunc(items, func(a, b Item) int { return less(&a.Key, &b.Key) })
	l := testLeaf(Retired, items)
	l.Before.Root, l.After.Root = root, tree.Root()
	r := Record{l.AppendBinary(nil), tree.Prove(since, keys)}
	tree.Unmark()
	return r
}

// blockID is the id of a block. A message key names every fourth one.
func blockID(n int) string {
	if n%4 == 0 {
		return fmt.Sprint("key:", n)
	}
	return fmt.Sprint("orders/0/", n)
}

// begin is the first record of a log.
func begin(k *Key) Record {
	l := Leaf{Kind: Begun, VRF: k.VRF(), Durable: time.UnixMilli(16e11).UTC(), Topic: "orders", Build: "0.6"}
	l.Before.Root = EmptyRoot
	l.After = l.Before
	return Record{Leaf: l.AppendBinary(nil)}
}

// everyKind is records of all kinds but Retired and Begun, from one version of a tree of 3n+4
// blocks to the next. Of each kind three blocks are proved; of a deleted and an expired one the id
// has another block afterwards. The purged blocks are in no version, and those that have contents
// are returned.
func everyKind(tree *Tree, k *Key, n int) (records []Record) {
	id := blockID
	of := map[Kind][]int{Deleted: {1, 2, 3}, Expired: {4, 5, 6}, Replaced: {7, 8, 9}, Lost: {10, 11, 12}, Withdrawn: {13, 14, 15}, Restored: {n + 1, n + 2, n + 3}}
	items := map[Kind][]Item{}
	since, root := tree.Keep(), tree.Root()
	for kind := Deleted; kind < Purged; kind++ {
		for _, i := range of[kind] {
			if kind == Restored {
				tree.Put(k.Item(id(i), Hash{}, sha256.Sum256([]byte(id(i)))))
			}
			it, _ := tree.Get(k.ItemKey(id(i)))
			items[kind] = append(items[kind], it)
			switch {
			case kind == Replaced || i == 2 || i == 6:
				tree.Put(k.Item(id(i), Hash{}, Hash{1}))
			case kind != Restored:
				tree.Remove(it.Key)
			}
		}
	}
	for i := range n / 2 { // new blocks beside them
		tree.Put(k.Item(fmt.Sprint("orders/1/", i), Hash{}, Hash{2}))
	}
	for kind := Deleted; kind < Begun; kind++ {
		slices.SortFunc(items[kind], func(a, b Item) int { return less(&a.Key, &b.Key) })
		l := testLeaf(kind, items[kind])
		l.Principal, l.Request, l.Passing = "", Hash{}, int64(kind)
		l.Before.Root, l.After.Root = root, tree.Root()
		r := Record{}
		switch kind {
		case Purged:
			for i := n + 4; i < n+6; i++ {
				items[kind] = append(items[kind], k.Item(id(i), Hash{}, Hash{3}))
			}
			items[kind] = append(items[kind], Item{Key: k.ItemKey(id(n + 6))})
			slices.SortFunc(items[kind], Item.Compare)
			l.Blocks, l.Rows, l.Passing, l.Items, l.Before = 3, 600, 0, ListHash(items[kind]), l.After
			r.Change = AppendItems(nil, items[kind])
		case Returned:
			items[kind] = slices.DeleteFunc(slices.Clone(items[Purged]), Item.Withdrawn)
			l.Blocks, l.Rows, l.Passing, l.Items, l.Before = 2, 400, 0, ListHash(items[kind]), l.After
			l.Scope[Sample], l.Lacking = Partial, 300
			r.Change = AppendItems(nil, items[kind])
		case Excluded:
			items[kind] = []Item{{Key: k.ItemKey(id(n + 6))}}
			l.Blocks, l.Rows, l.Passing, l.Items, l.Before = 1, 200, 0, ListHash(items[kind]), l.After
			l.Scope = Scope{Log: NotOurs}
			r.Change = AppendItems(nil, items[kind])
		default:
			var keys []Hash
			for _, i := range items[kind] {
				keys = append(keys, i.Key)
			}
			r.Change = tree.Prove(since, keys)
		}
		r.Leaf = l.AppendBinary(nil)
		records = append(records, r)
	}
	return records
}

// filled is a tree of that many blocks.
func filled(k *Key, n int) *Tree {
	var tree Tree
	for i := range n {
		id := blockID(i)
		tree.Put(k.Item(id, Hash{}, sha256.Sum256([]byte(id))))
	}
	return &tree
}

// someLog is a log of that many retirements of one block or two. The first of them is leaf 1.
func someLog(t testing.TB, leaves int) *memory {
	m := &memory{key: testKey(t)}
	m.add(t, begin(m.key))
	tree := filled(m.key, 3*leaves)
	for i := range leaves {
		ids := []string{blockID(2 * i)}
		if i%2 == 1 {
			ids = append(ids, blockID(2*i+1))
		}
		m.add(t, retirement(tree, ids, m.key))
	}
	return m
}

// names reports whether a receipt is about a block, by the proof of its owner.
func names(r *Receipt, k *Key, id string) bool {
	key, err := r.Named(id, k.ProveItemKey(id))
	return err == nil && key == k.ItemKey(id)
}

// Every receipt of a log passes, names its blocks and no others.
func TestReceipts(t *testing.T) {
	const leaves = 9
	m := someLog(t, leaves)
	if r, err := Check(m.proof(t, 0), m.key.Public()); err != nil || r.Leaf.Kind != Begun || r.Leaf.VRF != m.key.VRF() {
		t.Errorf("the first leaf is %+v, %v", r, err)
	}
	for i := range leaves {
		r, err := Check(m.proof(t, 1+i), m.key.Public())
		if err != nil {
			t.Fatalf("receipt %d: %v", i, err)
		}
		if !bytes.Equal(r.Leaf.AppendBinary(nil), m.records[1+i].Leaf) || r.Index != int64(1+i) || r.Checkpoint.Size != 1+leaves {
			t.Errorf("receipt %d says %+v", i, r)
		}
		for n := range 2 * leaves {
			id := blockID(n)
			want := n == 2*i || n == 2*i+1 && i%2 == 1
			if names(r, m.key, id) != want {
				t.Errorf("receipt %d: it names block %d: %v", i, n, !want)
			}
			if _, err := r.Named(id, m.key.ProveItemKey("key:another")); err == nil {
				t.Errorf("receipt %d names block %d by the proof of another", i, n)
			}
			if _, err := r.Named(id, nil); (err == nil) != (want && !Keyed(id)) {
				t.Errorf("receipt %d without a proof: %v", i, err)
			}
		}
	}
}

// A log without a first leaf that begins it, or with another one that does, is refused, and so is
// another key of the items in the first leaf, in the checkpoint, or in one of several checkpoints.
func TestAnotherKeyOfTheItems(t *testing.T) {
	k, other := testKey(t), keyOf(t, 8)
	tree := filled(k, 20)
	refused := func(what string, m *memory, index int) {
		t.Helper()
		if _, err := Check(m.proof(t, index), k.Public()); err == nil {
			t.Errorf("%s: the receipt passes", what)
		}
		head, err := readCheckpoint(strings.SplitAfter(string(m.checkpoint), "\n\n")[0][:bytes.Index(m.checkpoint, []byte("\n\n"))+1])
		if err != nil {
			t.Fatal(err)
		}
		if err := Audit(slices.Values(m.leaves()), head); err == nil {
			t.Errorf("%s: the log passes", what)
		}
	}
	none := &memory{key: k}
	none.add(t, retirement(tree, []string{blockID(0)}, k))
	refused("no first leaf", none, 0)

	twice := &memory{key: k}
	twice.add(t, begin(k), begin(k))
	refused("two first leaves", twice, 1)

	// The first leaf names another key than the checkpoints.
	leaf := &memory{key: k}
	leaf.add(t, begin(other), retirement(tree, []string{blockID(1)}, k))
	refused("another key in the first leaf", leaf, 0)

	// All checkpoints, and the first leaf, name another key than the one that the name is bound to.
	forger := *k
	forger.vrf = other.vrf
	all := &memory{key: &forger}
	all.add(t, begin(&forger), retirement(tree, []string{blockID(4)}, &forger))
	if _, err := Check(all.proof(t, 1), k.Public()); err == nil || !strings.Contains(err.Error(), "the name of the log is bound to") {
		t.Errorf("another key everywhere: %v", err)
	}

	// One checkpoint of an honest log names another key.
	honest := someLog(t, 3)
	forger.signer = honest.key.signer
	root, err := tlog.TreeHash(int64(len(honest.records)), honest)
	if err != nil {
		t.Fatal(err)
	}
	first := honest.head(t)
	second := *first
	second.VRF = other.VRF()
	if err := Audit(slices.Values(honest.leaves()), first, &second); err == nil {
		t.Error("two checkpoints of different keys pass")
	}
	signed, err := forger.Sign(int64(len(honest.records)), root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCheckpoint(signed, k.Public()); err == nil {
		t.Error("a checkpoint of another key passes")
	}
	if _, err := ParseKey(strings.Replace(privateOf(t, 7), vrfName(k.VRF()), vrfName(other.VRF()), 1)); err == nil {
		t.Error("a key passes under a name that is bound to another function")
	}
}

// privateOf is the private key of a seed, as text.
func privateOf(t testing.TB, seed byte) string {
	t.Helper()
	private, err := GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), "streamd/test")
	if err != nil {
		t.Fatal(err)
	}
	return private
}

// Receipts of the other kinds pass, and are no receipts of another kind.
func TestReceiptsOfEveryKind(t *testing.T) {
	const blocks = 40
	m := &memory{key: testKey(t)}
	m.add(t, begin(m.key))
	m.add(t, everyKind(filled(m.key, blocks), m.key, blocks)...)
	others := map[Kind]int{Deleted: 1, Expired: 1, Replaced: 3}
	for i, record := range m.records[1:] {
		r, err := Check(m.proof(t, 1+i), m.key.Public())
		if err != nil {
			t.Fatalf("receipt %d: %v", i, err)
		}
		l := r.Leaf
		if l.Kind != Deleted+Kind(i) || !bytes.Equal(l.AppendBinary(nil), record.Leaf) || len(r.Others) != others[l.Kind] {
			t.Errorf("receipt %d says %+v %+v", i, r, l)
		}
		for n := range blocks + 7 {
			id := blockID(n)
			want := n > 3*i && n <= 3*i+3
			switch l.Kind {
			case Restored:
				want = n > blocks && n < blocks+4
			case Purged:
				want = n >= blocks+4
			case Returned:
				want = n == blocks+4 || n == blocks+5
			case Excluded:
				want = n == blocks+6
			}
			if names(r, m.key, id) != want {
				t.Errorf("the receipt of kind %s names block %d: %v", l.Kind, n, !want)
			}
		}
		for _, item := range r.Items {
			if item.Withdrawn() != (item.Key == m.key.ItemKey(blockID(blocks+6))) {
				t.Errorf("the receipt of kind %s has the item %x", l.Kind, item)
			}
		}
		for kind := Retired; kind < Kinds; kind++ {
			if kind == Begun {
				continue // they have no blocks
			}
			other := *l
			other.Kind = kind
			passes := kind != Retired && (kind == Restored) == (l.Kind == Restored) && kind.Listed() == l.Kind.Listed()
			if _, _, err := other.CheckChange(record.Change); (err == nil) != passes {
				t.Errorf("the proof of kind %s as one of kind %s: %v", l.Kind, kind, err)
			}
		}
		other := *l
		other.Before, other.After = l.After, l.Before
		if l.Kind.Listed() {
			other.After.Root[0]++
		}
		if _, _, err := other.CheckChange(record.Change); err == nil {
			t.Errorf("the proof of kind %s passes for the reverse", l.Kind)
		}
		if _, _, err := l.CheckChange(m.records[1+(i+1)%5].Change); err == nil {
			t.Errorf("the proof of another leaf passes for kind %s", l.Kind)
		}
		if _, _, err := l.CheckChange(nil); err == nil {
			t.Errorf("no proof is needed for kind %s", l.Kind)
		}
	}
}

var update = flag.Bool("update", false, "write the receipts in testdata anew")

const stored = "../../testdata/receipts/"

// Receipts that were given out pass, and the same retirement has the same bytes today.
func TestStoredReceipts(t *testing.T) {
	m := someLog(t, 6)
	want := map[string][]byte{
		"key.pub":             []byte(m.key.Public() + "\n"),
		"begun.tlog-proof":    m.proof(t, 0),
		"cosigned.tlog-proof": append(bytes.TrimSuffix(m.proof(t, 3), m.checkpoint), cosigned(cosigned(m.checkpoint, "a.example", 1e9), "b.example", 2e9)...),
	}
	m.add(t, everyKind(filled(m.key, 40), m.key, 40)...)
	want["retired.tlog-proof"] = m.proof(t, 6)
	var proofs []byte // of the items' keys in retired.tlog-proof and cosigned.tlog-proof
	for _, id := range []string{blockID(4), blockID(10), blockID(11)} {
		proofs = fmt.Appendf(proofs, "%s %x\n", id, m.key.ProveItemKey(id))
	}
	want["proofs.txt"] = proofs
	for i := range m.records[7:] {
		want[fmt.Sprintf("%s.tlog-proof", Deleted+Kind(i))] = m.proof(t, 7+i)
	}
	for name, want := range want {
		if *update {
			if err := os.WriteFile(stored+name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		stored, err := os.ReadFile(stored + name)
		if err != nil || !bytes.Equal(stored, want) {
			t.Errorf("%s is\n%s, %v, want\n%s", name, stored, err, want)
		}
	}
	for kind := Retired; kind < Kinds; kind++ {
		if r, err := Check(storedProof(t, fmt.Sprintf("%s.tlog-proof", kind)), m.key.Public()); err != nil || r.Leaf.Kind != kind {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
	}
}

// A leaf of a version that this program does not know is refused with a sentence.
func TestLeafOfAnotherVersion(t *testing.T) {
	leaf := begin(testKey(t)).Leaf
	for _, version := range []byte{0, 2, 3} {
		leaf[0] = version
		if _, err := DecodeLeaf(leaf); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a leaf of version %d: this program knows version 1", version)) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func storedProof(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(stored + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// No bit of a receipt can be changed unnoticed, of any kind.
func TestEveryBitOfAReceiptCounts(t *testing.T) {
	m := someLog(t, 3)
	m.add(t, everyKind(filled(m.key, 20), m.key, 20)...)
	proofs := map[string][]byte{}
	for i, kind := range map[int]Kind{0: Begun, 2: Retired, 4: Deleted, 9: Restored, 10: Purged, 11: Returned} { // kinds between are like Deleted
		if l, err := DecodeLeaf(m.records[i].Leaf); err != nil || l.Kind != kind {
			t.Fatalf("leaf %d is %+v, %v", i, l, err)
		}
		proofs[kind.String()] = m.proof(t, i)
	}
	for name, proof := range proofs {
		if _, err := Check(proof, m.key.Public()); err != nil {
			t.Fatalf("receipt %s: %v", name, err)
		}
		for i := range proof {
			bad := bytes.Clone(proof)
			for bit := range 8 {
				bad[i] = proof[i] ^ 1<<bit
				if _, err := Check(bad, m.key.Public()); err == nil {
					t.Fatalf("receipt %s: bit %d of byte %d (%q) can be changed", name, bit, i, proof[i])
				}
			}
			if _, err := Check(slices.Delete(bytes.Clone(proof), i, i+1), m.key.Public()); err == nil {
				t.Fatalf("receipt %s: byte %d can be left out", name, i)
			}
		}
		for _, more := range []string{"\n", "x"} {
			if _, err := Check(append(bytes.Clone(proof), more...), m.key.Public()); err == nil {
				t.Fatalf("receipt %s: %q can be appended", name, more)
			}
		}
	}
	forger := keyOf(t, 8)
	if _, err := Check(m.proof(t, 2), forger.Public()); err == nil {
		t.Error("a receipt passes under the key of another log")
	}
}

// A proof about a key of which nothing has changed, or since a version that has ended, is the
// caller's mistake. It says so at once: the nodes of such a version may be others' by now.
func TestProofOfNothing(t *testing.T) {
	key := func(b byte) Hash { return Hash{b} }
	fails := func(what string, call func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s passes", what)
			}
		}()
		call()
	}
	var tree Tree
	for b := range byte(40) {
		tree.Put(Item{key(5 * b), Hash{1}})
	}
	kept := tree.Keep()
	marked := tree.Mark()
	tree.Put(Item{key(10), Hash{2}})
	tree.Remove(key(15))
	tree.Put(Item{key(15), Hash{1}}) // as it was
	tree.Remove(key(20))
	for what, since := range map[string]Version{"kept": kept, "marked": marked} {
		if _, err := CheckChange(tree.Prove(since, []Hash{key(20), key(10), key(10)})); err != nil {
			t.Errorf("a change since the %s version: %v", what, err)
		}
		for _, keys := range [][]Hash{nil, {key(15)}, {key(10), key(25)}, {key(11)}} {
			fails(fmt.Sprintf("%x since the %s version", keys, what), func() { tree.Prove(since, keys) })
		}
	}
	tree.Unmark()
	fails("a marked version that has ended", func() { tree.Prove(marked, []Hash{key(20)}) })
	tree.Prove(kept, []Hash{key(20)})
	last := tree.Mark()
	tree.Remove(key(30))
	tree.Prove(last, []Hash{key(30)})
	if now := tree.Keep(); now.n != 38 {
		t.Fatalf("%d items", now.n)
	}
	for what, since := range map[string]Version{"kept": kept, "marked": last} {
		fails("a "+what+" version before Keep", func() { tree.Prove(since, []Hash{key(20)}) })
		fails("an item of a "+what+" version before Keep", func() { tree.GetIn(since, key(20)) })
	}
}

// A list of archived blocks that is not in order, not whole, empty, too long or one of other blocks
// is refused, whatever the leaf says of it.
func TestDishonestLists(t *testing.T) {
	k := testKey(t)
	var items []Item
	for i := range MaxItems + 1 {
		items = append(items, k.Item(fmt.Sprint("orders/0/", i), Hash{}, Hash{3}))
	}
	slices.SortFunc(items, Item.Compare)
	two := items[0]
	two.Value[0]++
	contents := []Item{items[0], two} // of one id
	slices.SortFunc(contents, Item.Compare)
	for name, c := range map[string]struct {
		list []Item
		good bool
	}{
		"one":          {items[:1], true},
		"all":          {items[:MaxItems], true},
		"two contents": {contents, true},
		"none":         {nil, false},
		"too many":     {items, false},
		"twice":        {[]Item{items[0], items[0]}, false},
		"descending":   {[]Item{items[1], items[0]}, false},
	} {
		l, list := testLeaf(Purged, c.list), AppendItems(nil, c.list)
		l.After = l.Before
		if got, _, err := l.CheckChange(list); (err == nil) != c.good || c.good && !slices.Equal(got, c.list) {
			t.Errorf("%s: %d items, %v", name, len(got), err)
		}
		for what, bad := range map[string][]byte{"no list": nil, "one byte more": append(bytes.Clone(list), 0), "one item less": list[:max(0, len(list)-64)]} {
			if _, _, err := l.CheckChange(bad); err == nil {
				t.Errorf("%s: %s passes", name, what)
			}
		}
	}
}

// A proof that was made of wrong parts is refused: an item on a wrong path, a path that is not
// shown to its end, and an item that is there twice.
func TestDishonestProofs(t *testing.T) {
	k := testKey(t)
	tree := filled(k, 50)
	since, key := tree.Keep(), k.ItemKey(blockID(7))
	gone, _ := tree.Get(key)
	tree.Remove(key)
	honest := partOf(since.ref(), tree.now.ref())
	tree.show(honest, before, []Hash{key}, &key)
	if _, err := CheckChange(tree.appendPart(nil, honest, -1)); err == nil {
		t.Error("the neighbour of the removed item need not be shown")
	}
	tree.show(honest, after, []Hash{key}, &key)
	if _, err := CheckChange(tree.appendPart(nil, honest, -1)); err != nil {
		t.Error(err)
	}
	back := partOf(tree.now.ref(), since.ref()) // the item comes
	tree.show(back, after, []Hash{key}, &key)
	if _, err := CheckChange(tree.appendPart(nil, back, -1)); err == nil {
		t.Error("the neighbour of an item that comes need not be shown")
	}
	tree.show(back, before, []Hash{key}, &key)
	if _, err := CheckChange(tree.appendPart(nil, back, -1)); err != nil {
		t.Error(err)
	}
	if c, err := CheckChange(deepest()); err != nil || len(c.Moved) != 2 || !c.Alone {
		t.Errorf("the longest path: %+v, %v", c, err)
	}
	swapped := *honest
	swapped.below[0], swapped.below[1] = honest.below[1], honest.below[0]
	item := func(tag byte, values ...Hash) []byte {
		b := append([]byte{tag}, gone.Key[:]...)
		for _, v := range values {
			b = append(b, v[:]...)
		}
		return b
	}
	v, w := gone.Value, Hash{1}
	var byTurns []byte // parts in place of others between inner nodes
	for bit := range byte(255) {
		byTurns = append(byTurns, tagInPlace, tagNode, bit)
	}
	for name, proof := range map[string][]byte{
		"nothing":           nil,
		"about no item":     item(tagStays, v),
		"about a neighbour": item(11, v, w),
		"removed twice":     slices.Concat([]byte{tagNode, 0}, item(tagRemoved, v), item(tagRemoved, v)),
		"removed and kept":  slices.Concat([]byte{tagNode, 255}, item(tagRemoved, v), item(tagStays, v)),
		"the same value":    item(tagReplaced, v, v),
		"an unknown kind":   item(13, v),
		"no inner node":     slices.Concat([]byte{tagNode, 3}, []byte{6}, w[:], item(tagAdded, v)),
		"the wrong order":   slices.Concat([]byte{tagInPlace}, item(tagAdded, v), []byte{6}, w[:]),
		"both in place":     slices.Concat([]byte{tagInPlace}, item(tagRemoved, v), []byte{8}, w[:], v[:]),
		"swapped sides":     tree.appendPart(nil, &swapped, -1),
		"hidden elsewhere":  slices.Concat([]byte{tagNode, 3}, item(tagRemoved, v), []byte{7}, w[:]),
		"a bit too far":     slices.Concat([]byte{255}, w[:], []byte{255}, w[:], []byte{255}, w[:], item(tagRemoved, v)),
		"nested":            slices.Concat([]byte{tagInPlace, tagInPlace}, item(tagRemoved, v), []byte{7}, w[:], []byte{7}, w[:]),
		"nested deep":       bytes.Repeat([]byte{tagInPlace}, 3_000_000), // without the bound it overflows the stack
		"nested by turns":   byTurns,
	} {
		if c, err := CheckChange(proof); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// A change is that of its leaf's kind: a replacement is no retirement, and what comes has not left.
func TestChangeOfAnotherKind(t *testing.T) {
	k := testKey(t)
	tree := filled(k, 20)
	key := k.ItemKey(blockID(7))
	proofOf := func(change func()) []byte {
		since := tree.Keep()
		change()
		return tree.Prove(since, []Hash{key})
	}
	replacement := proofOf(func() { tree.Remove(key); tree.Put(Item{key, Hash{1}}) })
	removal := proofOf(func() { tree.Remove(key) })
	arrival := proofOf(func() { tree.Put(Item{key, Hash{2}}) })
	for name, x := range map[string]struct {
		proof  []byte
		kinds  []Kind
		others int
	}{
		"removal":     {removal, []Kind{Retired, Expired, Replaced, Withdrawn, Deleted}, 0},
		"arrival":     {arrival, []Kind{Restored}, 0},
		"replacement": {replacement, []Kind{Expired, Replaced, Withdrawn, Deleted, Restored}, 1},
	} {
		for _, kind := range []Kind{Retired, Expired, Replaced, Withdrawn, Deleted, Restored} {
			l := &Leaf{Kind: kind, Blocks: 1}
			err := l.complete(x.proof)
			if err == nil {
				var others []Hash
				if _, others, err = l.CheckChange(x.proof); err == nil && len(others) != x.others {
					t.Errorf("%s: %d other blocks, want %d", name, len(others), x.others)
				}
			}
			if right := slices.Contains(x.kinds, kind); right != (err == nil) {
				t.Errorf("a %s for a leaf of kind %s: %v", name, kind, err)
			}
		}
	}
}

// deepest is a proof with the longest path of a tree: the item that has left and the one that has
// come differ in the last bit of the key, and another item leaves the path in each bit before.
func deepest() []byte {
	var tree Tree
	for bit := range 255 {
		var i Item
		i.Key[bit/8] = 128 >> (bit % 8)
		tree.Put(i)
	}
	var left, came Item
	came.Key[31] = 1
	tree.Put(left)
	since := tree.Keep()
	tree.Remove(left.Key)
	tree.Put(came)
	return tree.Prove(since, []Hash{left.Key, came.Key})
}

// A leaf that is changed, dropped, moved, repeated or added is found in the log, and so is a fork.
func TestAudit(t *testing.T) {
	m := &memory{key: testKey(t)}
	tree := filled(m.key, 40)
	records := []Record{begin(m.key)}
	for i := range 3 {
		records = append(records, retirement(tree, []string{blockID(30 + i)}, m.key))
	}
	records = append(records, everyKind(tree, m.key, 40)...) // one of each kind
	leaves := len(records)
	var heads []*Checkpoint
	for i, r := range records {
		m.add(t, r)
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

// A key is not made where the public half of another one lies. What a kill leaves while a key is
// made is no key, or a whole one.
func TestKeyFileIsWholeAndReplacesNone(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "receipts.key")
	k, _, _, err := OpenKey(path, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 2 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	if info, err := os.Stat(PublicFile(path)); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the public half: %v, %v", info, err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	_, made, _, err := OpenKey(path, "orders")
	if err == nil || made || !strings.Contains(err.Error(), path+" does not exist, and its public half "+path+".pub does") {
		t.Errorf("beside the public half of another key: %v, %v", made, err)
	}
	if public, err := os.ReadFile(PublicFile(path)); err != nil || string(public) != k.Public()+"\n" {
		t.Errorf("the public half is %q, %v", public, err)
	}
	if exists(path) {
		t.Error("another key was made")
	}

	// A kill after the key, and before its public half.
	if err := errors.Join(os.Rename(path+".away", path), os.Remove(PublicFile(path))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if again, made, _, err := OpenKey(path, "orders"); err != nil || made || again.Public() != k.Public() {
			t.Errorf("without the public half: %v, %v", made, err)
		}
		if public, err := os.ReadFile(PublicFile(path)); err != nil || string(public) != k.Public()+"\n" {
			t.Errorf("the public half is %q, %v", public, err)
		}
	}

	// Another process has made a key meanwhile.
	if err := os.Remove(PublicFile(path)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := makeKey(path, "orders"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("where a key is: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) || exists(PublicFile(path)) {
		t.Errorf("the key was replaced, or has another public half: %v", err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

func FuzzDecodeLeaf(f *testing.F) {
	m := everyLog(f)
	for _, r := range m.records {
		f.Add(r.Leaf)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := DecodeLeaf(b); err == nil && !bytes.Equal(l.AppendBinary(nil), b) {
			t.Errorf("%x is written as %x", b, l.AppendBinary(nil))
		}
	})
}

func FuzzCheckChange(f *testing.F) {
	m := everyLog(f)
	for _, r := range m.records {
		f.Add(r.Change)
	}
	f.Add(bytes.Repeat([]byte{tagInPlace}, 100))
	f.Add(deepest())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := CheckChange(b)
		if err != nil {
			return
		}
		if c.Before == c.After {
			t.Error("nothing has changed")
		}
	})
}

// everyLog has leaves of every kind.
func everyLog(t testing.TB) *memory {
	m := someLog(t, 2)
	m.add(t, everyKind(filled(m.key, 20), m.key, 20)...)
	return m
}

func FuzzCheck(f *testing.F) {
	m := everyLog(f)
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
				tree.Put(m.key.Item(id, Hash{}, sha256.Sum256([]byte(id))))
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
				tree.Put(k.Item(fmt.Sprint("new/", i), Hash{}, Hash{}))
			}
		})
	}
}

// A save of a window of a million blocks: as many come as expire. It makes the root after, and the
// proof of those that have expired.
func BenchmarkExpiry(b *testing.B) {
	const blocks = 1_000_000
	k := testKey(b)
	all := make([]Item, 2*blocks) // those of the first half are live at first
	for i := range all {
		id := fmt.Sprint("orders/0/", i)
		all[i] = k.Item(id, Hash{}, sha256.Sum256([]byte(id)))
	}
	for _, n := range []int{1, 100, MaxItems} {
		b.Run(fmt.Sprint("items=", n), func(b *testing.B) {
			var tree Tree
			tree.Fill(slices.Clone(all[:blocks]))
			tree.Root()
			since, bytes, saves, oldest := tree.Keep(), 0, 0, 0
			for b.Loop() {
				var keys []Hash
				for range n {
					keys = append(keys, all[oldest%len(all)].Key)
					tree.Remove(keys[len(keys)-1])
					tree.Put(all[(oldest+blocks)%len(all)])
					oldest++
				}
				tree.Root()
				bytes += len(tree.Prove(since, keys))
				since = tree.Keep()
				saves++
			}
			b.ReportMetric(float64(bytes)/float64(saves*n), "bytes/item")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(saves*n), "ns/item")
		})
	}
}

// A checkpoint is of one tree head, and a size has one text.
func TestHeadOfACheckpoint(t *testing.T) {
	m := someLog(t, 5)
	head := headOf(t, m.checkpoint)
	if err := CheckHead(m.checkpoint, head.Size, tlog.Hash(head.Root)); err != nil {
		t.Error(err)
	}
	if err := CheckHead(m.checkpoint, head.Size+1, tlog.Hash(head.Root)); err == nil {
		t.Error("another size passes")
	}
	if err := CheckHead(m.checkpoint, head.Size, tlog.Hash{1}); err == nil {
		t.Error("another root passes")
	}
	if err := CheckHead(m.checkpoint[1:], head.Size, tlog.Hash(head.Root)); err != nil {
		t.Errorf("another origin, whose signature is not checked: %v", err)
	}
	for text, want := range map[string]int64{"0": 0, "7": 7, "9223372036854775807": math.MaxInt64, "": -1, "-1": -1, "-0": -1, "+1": -1, "01": -1, " 1": -1, "1 ": -1, "1e3": -1, "9223372036854775808": -1} {
		if n, err := naturalOf(text); (err == nil) != (want >= 0) || err == nil && n != want {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
}

func headOf(t *testing.T, signed []byte) *Checkpoint {
	t.Helper()
	text, _, _ := strings.Cut(string(signed), "\n\n")
	c, err := readCheckpoint(text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A log has the tiles that golang.org/x/mod lists for it, whole and partial, those with fewer
// hashes than the last ones, the tiles of the entries, and no others.
func TestTilesOfALog(t *testing.T) {
	names := func(tile tlog.Tile) string { return strings.TrimPrefix(tile.Path(), "tile/8/") }
	for _, size := range []int64{1, 2, 255, 256, 257, 511, 512, 65535, 65536, 65537, 66000, 1 << 20} {
		has := map[tlog.Tile]bool{}
		for _, tile := range tlog.NewTiles(tileHeight, 0, size) {
			has[tile] = true
		}
		for level := range 4 {
			hashes := size >> (8 * level)
			for n := max(0, hashes/256-2); n < hashes/256+2; n++ {
				for _, w := range []int{1, 2, 100, 255, 256} {
					tile := tlog.Tile{H: tileHeight, L: level, N: n, W: w}
					want := has[tile] || w < 256 && (has[tlog.Tile{H: tileHeight, L: level, N: n, W: 256}] || int64(w) <= hashes-256*n)
					if got, ok := ParseTile(names(tile), size); ok != want || ok && got != tile {
						t.Errorf("a log of %d leaves has the tile %s: %v, want %v", size, names(tile), ok, want)
					}
					if level == 0 {
						path := "entries/" + strings.TrimPrefix(names(tile), "0/")
						if got, ok := ParseTile(path, size); ok != want || ok && (got.L != -1 || got.N != n || got.W != w) {
							t.Errorf("a log of %d leaves has the tile %s: %v, want %v", size, path, ok, want)
						}
					}
				}
			}
		}
	}
	for _, path := range []string{"", "0", "0/00", "data/000", "8/000", "8/000.p/1", "7/000", "7/000.p/127", "7/000.p/128", "63/000", "-1/000", "0/000.p/0", "0/000.p/256", "x/000"} {
		if _, ok := ParseTile(path, math.MaxInt64); ok != (path == "7/000.p/127") {
			t.Errorf("the tile %q: %v", path, ok)
		}
	}
}

// What is signed of a served model is about that model and that log alone. It is no checkpoint,
// and a checkpoint is not about a model.
func TestSignedModels(t *testing.T) {
	const fingerprint = "00112233445566778899aabbccddeeff"
	m := someLog(t, 3)
	size := int64(len(m.records))
	root, err := tlog.TreeHash(size, m)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := m.key.SignModel(size, root, fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	head, err := OpenModel(signed, m.key.Public(), fingerprint)
	if err != nil || head.Size != size || head.Root != root || head.VRF != m.key.VRF() {
		t.Errorf("%+v, %v", head, err)
	}
	if _, err := OpenModel(signed, m.key.Public(), fingerprint[:31]+"0"); err == nil {
		t.Error("it passes for another model")
	}
	if _, err := OpenModel(signed, keyOf(t, 8).Public(), fingerprint); err == nil {
		t.Error("it passes under another key")
	}
	if _, err := OpenCheckpoint(signed, m.key.Public()); err == nil {
		t.Error("it passes for a checkpoint")
	}
	checkpoint, err := m.key.Sign(size, root)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{fingerprint, ""} {
		if _, err := OpenModel(checkpoint, m.key.Public(), of); err == nil {
			t.Errorf("a checkpoint passes for the model %q", of)
		}
	}
	for i := range signed {
		bad := bytes.Clone(signed)
		for bit := range 8 {
			if bad[i] = signed[i] ^ 1<<bit; bad[i] == signed[i] {
				continue
			}
			if _, err := OpenModel(bad, m.key.Public(), fingerprint); err == nil {
				t.Fatalf("bit %d of byte %d (%q) can be changed", bit, i, signed[i])
			}
		}
	}
}
