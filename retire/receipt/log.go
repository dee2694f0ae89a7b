package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// publicOf is the verifier key of a seed.
func publicOf(name string, seed []byte) (string, error) {
	return note.NewEd25519VerifierKey(name, ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
}

// Record is a leaf with what proves it.
type Record struct {
	Leaf   []byte // as Leaf.AppendBinary writes it
	Change []byte // as Tree.Prove makes it, or of a listed kind AppendItems; nil if the leaf has no blocks
}

// Open reads the leaf of a record, and checks the proof. It returns the blocks that the proof is
// about.
func (r *Record) Open() (*Leaf, []Item, error) {
	l, err := DecodeLeaf(r.Leaf)
	if err != nil {
		return nil, nil, err
	}
	items, _, err := l.CheckChange(r.Change)
	return l, items, err
}

// Growth is the records that a log gains, with the hashes and the checkpoint.
type Growth struct {
	Size       int64     // number of leaves before
	Records    []Record  // of the further leaves
	Hashes     []Hash    // stored from index tlog.StoredHashIndex(0, Size) on
	Root       tlog.Hash // of the log with them
	Checkpoint []byte    // signed, likewise
}

// Grow adds records to a log of that many leaves, whose hashes are read.
func (k *Key) Grow(size int64, hashes tlog.HashReader, records []Record) (g *Growth, err error) {
	g = &Growth{Size: size, Records: records}
	first := tlog.StoredHashIndex(0, size)
	all := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		var old, places []int64
		for i, index := range indexes {
			if index < first {
				old, places = append(old, index), append(places, int64(i))
			} else {
				found[i] = g.Hashes[index-first]
			}
		}
		if old == nil {
			return found, nil
		}
		read, err := hashes.ReadHashes(old)
		if err != nil {
			return nil, err
		}
		for i, h := range read {
			found[places[i]] = h
		}
		return found, nil
	})
	for i := range records {
		if len(records[i].Leaf) > maxLeaf {
			return nil, fmt.Errorf("a leaf of %d bytes: the log takes %d", len(records[i].Leaf), maxLeaf)
		}
		more, err := tlog.StoredHashes(size+int64(i), records[i].Leaf, all)
		if err != nil {
			return nil, err
		}
		for _, h := range more {
			g.Hashes = append(g.Hashes, h)
		}
	}
	size += int64(len(records))
	if g.Root, err = tlog.TreeHash(size, all); err != nil {
		return nil, err
	}
	g.Checkpoint, err = k.Sign(size, g.Root)
	return g, err
}

// Sign signs the checkpoint of a log of that many leaves.
func (k *Key) Sign(size int64, root tlog.Hash) ([]byte, error) {
	return note.Sign(&note.Note{Text: (&Checkpoint{k.Name(), size, root, k.VRF()}).text()}, k.signer)
}

// SignModel signs that the state of a served model has the changes of the first size leaves of the
// log: a checkpoint with one more line, model, a space, and the model's fingerprint in hex.
func (k *Key) SignModel(size int64, root tlog.Hash, fingerprint string) ([]byte, error) {
	c := Checkpoint{k.Name(), size, root, k.VRF()}
	return note.Sign(&note.Note{Text: c.text() + modelLine + fingerprint + "\n"}, k.signer)
}

// modelLine begins the line of the fingerprint.
const modelLine = "model "

// OpenModel checks what SignModel has signed, and returns the checkpoint without its last line.
func OpenModel(signed []byte, public, fingerprint string) (*Checkpoint, error) {
	text, err := openNote(signed, public)
	if err != nil {
		return nil, err
	}
	head, of, ok := strings.Cut(text, "\n"+modelLine)
	if !ok || of != fingerprint+"\n" {
		return nil, fmt.Errorf("the note is not about the model %s", fingerprint)
	}
	return openText(head+"\n", public)
}

// Prove makes the proof of a leaf of a log, for Check. Its checkpoint is that of the log which ends
// with the leaf: no checkpoint takes fewer hashes, and the proof stays the same while the log
// grows.
func (k *Key) Prove(index int64, record Record, hashes tlog.HashReader) ([]byte, error) {
	root, err := tlog.TreeHash(index+1, hashes)
	if err != nil {
		return nil, err
	}
	checkpoint, err := k.Sign(index+1, root)
	if err != nil {
		return nil, err
	}
	return ProveIn(checkpoint, index+1, index, record, hashes)
}

// ProveIn makes the proof of a leaf with a checkpoint of that many leaves.
func ProveIn(checkpoint []byte, size, index int64, record Record, hashes tlog.HashReader) ([]byte, error) {
	inclusion, err := tlog.ProveRecord(size, index, hashes)
	if err != nil {
		return nil, err
	}
	return AppendProof(nil, record, index, inclusion, checkpoint)
}

// Checkpoint is a tree head of a log, as c2sp.org/tlog-checkpoint has it, with one extension line:
// vrf, a space, and the public key of the function that makes the keys of items, in base64.
type Checkpoint struct {
	Origin string // name of the log
	Size   int64  // number of leaves
	Root   tlog.Hash
	VRF    Hash
}

func (c *Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\nvrf %s\n", c.Origin, c.Size, c.Root, base64.StdEncoding.EncodeToString(c.VRF[:]))
}

// OpenCheckpoint checks the signature of a checkpoint under a public key, and that the log's name
// is bound to the function that it names.
func OpenCheckpoint(signed []byte, public string) (*Checkpoint, error) {
	text, err := openNote(signed, public)
	if err != nil {
		return nil, err
	}
	return openText(text, public)
}

// openNote checks the signatures of a checkpoint under a public key, and returns the text.
func openNote(signed []byte, public string) (string, error) {
	verifier, err := parsePublic(public)
	if err != nil {
		return "", fmt.Errorf("the public key: %w", err)
	}
	if err := checkSignatures(signed); err != nil {
		return "", fmt.Errorf("the checkpoint: %w", err)
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if other := (*note.UnverifiedNoteError)(nil); errors.As(err, &other) {
		return "", fmt.Errorf("the checkpoint: it is signed by %s, and the public key is that of %s", other.Note.UnverifiedSigs[0].Name, verifier.Name())
	}
	if err != nil {
		return "", fmt.Errorf("the checkpoint: %w", err)
	}
	return n.Text, nil
}

// openText reads the text of a checkpoint, and checks its names.
func openText(text, public string) (*Checkpoint, error) {
	name, _, _ := strings.Cut(public, "+")
	c, err := readCheckpoint(text)
	switch {
	case err != nil:
	case c.Origin != name:
		err = fmt.Errorf("it is not that of the log %s", name)
	case !strings.HasSuffix(c.Origin, "/"+vrfName(c.VRF)):
		err = errors.New("it names another key of the items than the name of the log is bound to: the owner has changed it")
	}
	if err != nil {
		return nil, fmt.Errorf("the checkpoint: %w", err)
	}
	return c, nil
}

// checkSignatures checks the form of the signatures of a checkpoint, those that nobody asks for,
// too: each key has signed once.
func checkSignatures(signed []byte) error {
	at := bytes.LastIndex(signed, []byte("\n\n"))
	if at < 0 || !bytes.HasSuffix(signed, []byte("\n")) {
		return errors.New("it is not signed")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(signed[at+2:])) {
		line = strings.TrimSuffix(line, "\n")
		at := strings.LastIndexByte(line, ' ')
		raw, err := unbase64(line[at+1:])
		if err != nil || len(raw) < 5 {
			return fmt.Errorf("%.80q is not a signature", line)
		}
		if by := line[:at+1] + string(raw[:4]); !seen[by] {
			seen[by] = true
			continue
		}
		return fmt.Errorf("%.80q is the second signature by one key", line)
	}
	return nil
}

// CheckHead compares a checkpoint, whose signature is not checked, with a tree head.
func CheckHead(signed []byte, size int64, root tlog.Hash) error {
	text, _, _ := strings.Cut(string(signed), "\n\n")
	c, err := readCheckpoint(text + "\n")
	if err == nil && (c.Size != size || c.Root != root) {
		err = fmt.Errorf("the checkpoint is one of %d leaves with another root", c.Size)
	}
	return err
}

// mostLeaves is the most leaves of a log. Of more, powers of two are no int64, and package tlog
// looks for the one below without an end.
const mostLeaves = 1 << 62

// readCheckpoint reads the text of a checkpoint.
func readCheckpoint(text string) (c *Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[4] != "" {
		return nil, errors.New("it does not have four lines")
	}
	c = &Checkpoint{Origin: lines[0]}
	if c.Size, err = naturalOf(lines[1]); err == nil && c.Size > mostLeaves {
		err = fmt.Errorf("%d leaves are more than a log can have", c.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("its size: %w", err)
	}
	if c.Root, err = parseHash(lines[2]); err != nil {
		return nil, fmt.Errorf("its root: %w", err)
	}
	key, ok := strings.CutPrefix(lines[3], "vrf ")
	if c.VRF, err = parseHash(key); !ok || err != nil {
		return nil, errors.New("it does not name the key of the items")
	}
	return c, nil
}

// parseHash reads a hash in base64.
func parseHash(text string) (h Hash, err error) {
	b, err := unbase64(text)
	if err == nil && len(b) != len(h) {
		err = fmt.Errorf("%d bytes: want %d", len(b), len(h))
	}
	copy(h[:], b)
	return h, err
}

// naturalOf reads a number without leading zeros.
func naturalOf(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%.20q is not a number", s)
	}
	return n, nil
}

// proofHeader is the first line of a proof.
const proofHeader = "c2sp.org/tlog-proof@v1\n"

// AppendProof appends the proof of a record in the form c2sp.org/tlog-proof@v1: a text that
// can be checked offline. Its extra data is the length of the leaf as a varint, the leaf, and
// the change. The leaf lacks the two roots and the hash of the items if the change gives them.
func AppendProof(b []byte, r Record, index int64, inclusion tlog.RecordProof, checkpoint []byte) ([]byte, error) {
	l, at, err := decodeLeaf(r.Leaf, (*Leaf).hashes)
	if err != nil {
		return nil, err
	}
	leaf := withHashes(r.Leaf, at, l.hashes(), l.ownHashes())
	extra := append(binary.AppendUvarint(nil, uint64(len(leaf))), leaf...)
	extra = append(extra, r.Change...)
	b = append(append(b, proofHeader...), "extra "...)
	b = base64.StdEncoding.AppendEncode(b, extra)
	b = fmt.Appendf(b, "\nindex %d\n", index)
	for _, h := range inclusion {
		b = append(base64.StdEncoding.AppendEncode(b, h[:]), '\n')
	}
	return append(append(b, '\n'), checkpoint...), nil
}

// Receipt is the contents of a proof that was checked.
type Receipt struct {
	Leaf       *Leaf
	Index      int64 // of the leaf in the log
	Checkpoint *Checkpoint
	Signed     []byte // the checkpoint with the signatures of log and witnesses
	Items      []Item // the blocks, if the leaf is proved
	Others     []Hash // of these, the keys whose ids have another live block after (Restored: before)
}

// MaxProof is the most bytes of a proof that are read.
const MaxProof = 64 << 20

// Check checks a proof under the public key of a log, without anything else: the log's
// signature, that the leaf is in the log, and that its blocks were in the live set before and
// are absent from it after (Restored: absent before, and in it after). Of kind Retired it also
// checks that nothing else changed. Of listed kinds it checks which blocks these are, and nothing
// of the live set.
func Check(proof []byte, public string) (*Receipt, error) {
	if len(proof) > MaxProof {
		return nil, fmt.Errorf("a proof of %d bytes: the most is %d", len(proof), MaxProof)
	}
	head, checkpoint, ok := bytes.Cut(proof, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	switch {
	case lines[0]+"\n" != proofHeader:
		return nil, fmt.Errorf("not a proof: want a file that begins with %s", strings.TrimSpace(proofHeader))
	case !ok || len(lines) < 3:
		return nil, errors.New("the proof is cut short: get it again")
	}
	text, ok := strings.CutPrefix(lines[1], "extra ")
	extra, err := unbase64(text)
	if !ok || err != nil {
		return nil, errors.New("the proof has no receipt: its second line is not extra data")
	}
	text, ok = strings.CutPrefix(lines[2], "index ")
	r := &Receipt{}
	if r.Index, err = naturalOf(text); !ok || err != nil {
		return nil, errors.New("the proof has no index")
	}
	if len(lines) > 3+63 {
		return nil, errors.New("the proof has more hashes than a log has levels")
	}
	var inclusion tlog.RecordProof
	for _, line := range lines[3:] {
		h, err := parseHash(line)
		if err != nil {
			return nil, fmt.Errorf("%.50q is not a hash of the proof", line)
		}
		inclusion = append(inclusion, h)
	}
	r.Signed = checkpoint
	if r.Checkpoint, err = OpenCheckpoint(checkpoint, public); err != nil {
		return nil, err
	}
	record, err := cutRecord(extra)
	if err != nil {
		return nil, err
	}
	if r.Index >= r.Checkpoint.Size {
		return nil, fmt.Errorf("leaf %d is not in a log of %d", r.Index, r.Checkpoint.Size)
	}
	var at int
	if r.Leaf, at, err = decodeLeaf(record.Leaf, (*Leaf).ownHashes); err != nil {
		return nil, err
	}
	if len(r.Leaf.ownHashes()) < len(r.Leaf.hashes()) {
		if err := r.Leaf.complete(record.Change); err != nil {
			return nil, err
		}
	}
	if err := r.Leaf.checkPlace(r.Index, r.Checkpoint); err != nil {
		return nil, err
	}
	leaf := withHashes(record.Leaf, at, r.Leaf.ownHashes(), r.Leaf.hashes())
	if err := tlog.CheckRecord(inclusion, r.Checkpoint.Size, r.Checkpoint.Root, r.Index, tlog.RecordHash(leaf)); err != nil {
		return nil, fmt.Errorf("leaf %d is not in the log: %w", r.Index, err)
	}
	r.Items, r.Others, err = r.Leaf.CheckChange(record.Change)
	return r, err
}

// checkBegun is checkPlace of an encoded leaf. Leaves after the first one need not be of a known
// version.
func checkBegun(leaf []byte, index int64, c *Checkpoint) error {
	l := &Leaf{}
	if index == 0 {
		var err error
		if l, err = DecodeLeaf(leaf); err != nil {
			return fmt.Errorf("leaf 0: %w", err)
		}
	} else if len(leaf) > 1 {
		l.Kind = Kind(leaf[1])
	}
	return l.checkPlace(index, c)
}

// checkPlace checks that the first leaf of a log, and no other one, begins it, with the key of the
// items that a checkpoint of the log names.
func (l *Leaf) checkPlace(index int64, c *Checkpoint) error {
	switch {
	case (l.Kind == Begun) != (index == 0):
		return fmt.Errorf("leaf %d is of kind %s: the first leaf of a log, and no other, is of kind %s", index, l.Kind, Begun)
	case l.Kind == Begun && l.VRF != c.VRF:
		return fmt.Errorf("the first leaf names the key %x of the items, and the checkpoint %x: the owner has changed it", l.VRF, c.VRF)
	}
	return nil
}

// complete sets the hashes of a leaf that the proof of the change gives.
func (l *Leaf) complete(proof []byte) error {
	c, err := CheckChange(proof)
	if err != nil {
		return err
	}
	items, _, err := l.itemsOf(c)
	l.Before.Root, l.After.Root, l.Items = c.Before, c.After, ListHash(items)
	return err
}

// cutRecord cuts the extra data of a proof.
func cutRecord(extra []byte) (r Record, err error) {
	n, size := binary.Uvarint(extra)
	if size <= 0 || size > 1 && extra[size-1] == 0 || n > uint64(len(extra)-size) {
		return r, errors.New("the extra data of the proof has no leaf")
	}
	return Record{extra[size:][:n], extra[size:][n:]}, nil
}

// CheckChange compares the proof of a change with the leaf that it belongs to. It returns the
// blocks, and the keys of those whose ids have another live block on the side that lacks them.
func (l *Leaf) CheckChange(proof []byte) (items []Item, others []Hash, err error) {
	if !l.Proved() {
		if len(proof) > 0 {
			return nil, nil, fmt.Errorf("a leaf of kind %s with %d blocks has no proof of a change", l.Kind, l.Blocks)
		}
		return nil, nil, nil
	}
	if l.Kind.Listed() {
		items, err = l.checkItems(proof)
		return items, nil, err
	}
	c, err := CheckChange(proof)
	switch {
	case err != nil:
		return nil, nil, err
	case c.Before != l.Before.Root:
		return nil, nil, errors.New("the proof of the change does not begin with the live blocks of the leaf")
	case c.After != l.After.Root:
		return nil, nil, errors.New("the proof of the change does not end with the live blocks of the leaf")
	case l.Kind == Retired && !c.Alone:
		return nil, nil, errors.New("the proof of the change does not show that nothing else changed")
	}
	items, others, err = l.itemsOf(c)
	if err == nil && (int64(len(items)) != l.Blocks || ListHash(items) != l.Items) {
		err = errors.New("the proof of the change is one of other blocks than the leaf's")
	}
	if err != nil {
		return nil, nil, err
	}
	return items, others, nil
}

// itemsOf lists the blocks of a change, and the keys of those whose ids have another live block
// on the side that lacks them.
func (l *Leaf) itemsOf(c *Change) (items []Item, others []Hash, err error) {
	for i := range c.Moved {
		m := &c.Moved[i]
		in, out := m.Before, m.After
		if l.Kind == Restored {
			in, out = out, in
		}
		switch {
		case in == nil:
			return nil, nil, fmt.Errorf("the proof of the change has block %x the wrong way", m.Key)
		case out != nil && l.Kind == Retired:
			return nil, nil, fmt.Errorf("the proof of the change has another block of the id of %x", m.Key)
		case out != nil:
			others = append(others, m.Key)
		}
		items = append(items, Item{m.Key, *in})
	}
	return items, others, nil
}

// checkItems compares the list of the items with the leaf of a listed kind that it belongs to.
func (l *Leaf) checkItems(list []byte) (items []Item, err error) {
	const size = int64(2 * len(Hash{}))
	n := int64(len(list)) / size
	switch {
	case l.Before != l.After:
		return nil, errors.New("the live set changes in a leaf of blocks that are not live")
	case n == 0 || n > MaxItems || n != l.Blocks || n*size != int64(len(list)) || sha256.Sum256(list) != l.Items:
		return nil, errors.New("the list of the blocks is one of other blocks than the leaf's")
	}
	for ; len(list) > 0; list = list[size:] {
		i := Item{Hash(list), Hash(list[len(Hash{}):])}
		if last := len(items) - 1; last >= 0 && items[last].Compare(i) >= 0 {
			return nil, errors.New("the blocks of the list do not ascend")
		}
		items = append(items, i)
	}
	return items, nil
}

// hadRead reports whether the daemon had read the first record of a block, whose id is its
// position, by the offsets of the leaf. Blocks that were lost with their topic may lie behind them.
func (l *Leaf) hadRead(id string) bool {
	parts := strings.Split(id, "/")
	if len(parts) != 3 {
		return false
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || strconv.FormatInt(offset, 10) != parts[2] {
		return false
	}
	if l.Kind == Lost {
		return true
	}
	for _, read := range l.Offsets {
		if strconv.FormatUint(uint64(read.Partition), 10) == parts[1] {
			return offset < read.Offset
		}
	}
	return len(l.Offsets) == MaxOffsets // further ones were cut off
}

// Named returns the key of the item of a block, if the receipt is about it. proof is what who asked
// for the retirement was given (ItemKeyOf).
func (r *Receipt) Named(id string, proof []byte) (key Hash, err error) {
	if key, err = ItemKeyOf(r.Checkpoint.VRF, id, proof); err != nil {
		return key, fmt.Errorf("block %s: %w", id, err)
	}
	if !Keyed(id) && !r.Leaf.hadRead(id) {
		return key, fmt.Errorf("it says that block %s was live, and that the daemon had not read so far", id)
	}
	for i := range r.Items {
		if r.Items[i].Key == key {
			return key, nil
		}
	}
	return key, fmt.Errorf("it is not about block %s", id)
}

// Audit checks all leaves of a log against checkpoints of it, which are ordered by size. A leaf
// that was changed, dropped, moved or added before the last checkpoint does not go unnoticed,
// nor does a log that was forked after one of them, nor another key of the items.
func Audit(leaves iter.Seq[[]byte], checkpoints ...*Checkpoint) error {
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			found[i] = stored[index]
		}
		return found, nil
	})
	var size int64
	reached := func() error {
		for ; len(checkpoints) > 0 && checkpoints[0].Size == size; checkpoints = checkpoints[1:] {
			root, err := tlog.TreeHash(size, reader)
			if err != nil {
				return err
			}
			if root != checkpoints[0].Root {
				return fmt.Errorf("the first %d leaves are not those of the checkpoint", size)
			}
		}
		return nil
	}
	if err := reached(); err != nil {
		return err
	}
	for i, c := range checkpoints {
		if i > 0 && c.VRF != checkpoints[0].VRF {
			return errors.New("two checkpoints name different keys of the items: the owner has changed it")
		}
	}
	for leaf := range leaves {
		if len(checkpoints) > 0 {
			if err := checkBegun(leaf, size, checkpoints[0]); err != nil {
				return err
			}
		}
		more, err := tlog.StoredHashes(size, leaf, reader)
		if err != nil {
			return err
		}
		stored = append(stored, more...)
		size++
		if err := reached(); err != nil {
			return err
		}
	}
	if len(checkpoints) > 0 {
		return fmt.Errorf("there are %d leaves, and the checkpoint is one of %d", size, checkpoints[0].Size)
	}
	return nil
}

// TileWidth is the width of a full tile.
const TileWidth = 1 << tileHeight

const tileHeight = 8

// ParseTile reads the path of a tile of a log of that many leaves, behind "tile/", as
// c2sp.org/tlog-tiles has it: 0/000, 1/x001/234.p/5, or entries/000. The tile of entries has
// level −1. ok is false if the log has no such tile.
func ParseTile(path string, size int64) (t tlog.Tile, ok bool) {
	if rest, entries := strings.CutPrefix(path, "entries/"); entries {
		path = "data/" + rest
	} else if strings.HasPrefix(path, "data/") {
		return t, false
	}
	t, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", tileHeight, path))
	if err != nil || t.L > 62/tileHeight {
		return t, false
	}
	hashes := size >> (tileHeight * max(t.L, 0)) // on the level of the tile
	return t, t.N < hashes/TileWidth || t.N == hashes/TileWidth && int64(t.W) <= hashes%TileWidth
}
