package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"streamd/incremental/decode"
)

// Kind says why blocks have left the live set or the archive, or come back.
type Kind byte

const (
	Retired   Kind = 1 + iota // on request
	Deleted                   // by a tombstone, by a value that cannot be used, or with the whole log
	Expired                   // by the retention policy
	Replaced                  // by the next value of its key
	Lost                      // the log does not return it as it was
	Withdrawn                 // by a record of the control topic
	Restored                  // a withdrawn block is live again
	Purged                    // archived blocks have lost their summaries, or withdrawn ones their places
	Returned                  // withdrawn blocks are archived again
	Excluded                  // blocks are withdrawn that no live set of a leaf has
	Begun                     // no block: the log begins
	Kinds                     // 1 + the number of kinds
)

var kinds = [Kinds]string{
	Retired: "retired", Deleted: "deleted", Expired: "expired", Replaced: "replaced", Lost: "lost", Withdrawn: "withdrawn", Restored: "restored",
	Purged: "purged", Returned: "returned", Excluded: "excluded", Begun: "begun",
}

func (k Kind) known() bool { return k >= Retired && k < Kinds }

// Listed reports whether the blocks are not live. Leaves of such a kind have a list of them in
// place of the proof of a change.
func (k Kind) Listed() bool { return k == Purged || k == Returned || k == Excluded }

// String is the name.
func (k Kind) String() string {
	if !k.known() {
		return fmt.Sprintf("kind %d", byte(k))
	}
	return kinds[k]
}

// MarshalText writes the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Place is somewhere that rows of a block, or numbers made from them, can be.
type Place byte

const (
	State       Place = iota // exact sums
	Folds                    // sums by fold
	Sample                   // row sample
	Spaces                   // sums in the coordinates of bases, and the points of these
	Pages                    // free pages of the snapshot file
	DeadLetters              // topic of the dead letters
	Models                   // models and predictions that were handed out
	Log                      // topic of the records
	Copies                   // copies of the snapshot file, and blocks of the disk that it had before
	Archive                  // summaries of blocks that the retention policy let go
	Lists                    // lists of values that were learned
	places
)

var placeNames = [places]string{"state", "folds", "sample", "spaces", "pages", "dead_letters", "models", "log", "copies", "archive", "lists"}

// String is the name.
func (p Place) String() string { return placeNames[p] }

// Status says whether something has left a place.
type Status byte

const (
	None    Status = iota // there is no such place
	Done                  // it has left
	Pending               // it leaves later, without a request
	NotOurs               // it is out of reach
	Kept                  // it stays until a request
	Partial               // it has left the sample, which lacks rows of other live blocks
	statuses
)

var statusNames = [statuses]string{"none", "done", "pending", "not_ours", "kept", "partial"}

// Scope has the status of every place.
type Scope [places]Status

// Names is the scope for people to read.
func (s Scope) Names() map[string]string {
	names := make(map[string]string, places)
	for place, status := range s {
		names[placeNames[place]] = statusNames[status]
	}
	return names
}

// Side is the live set before or after.
type Side struct {
	Digest Hash // of the exact sums
	Root   Hash // of the tree of live blocks
}

// Next is the first offset of a partition that the sums do not have.
type Next struct {
	Partition uint32
	Offset    int64
}

// Leaf is an entry of the log. It has no id, key, label or number of a row.
type Leaf struct {
	Kind     Kind
	Blocks   int64
	Rows     int64
	Earliest time.Time // event times of the blocks
	Latest   time.Time
	Durable  time.Time // when the save began that made it durable
	// LogUntil is the time by which the retention of the topic drops the latest record, by its
	// event time; the zero time if that is not known, or no time does.
	LogUntil time.Time
	// Passing counts blocks that neither live set has, or both: they came and went, or went and
	// came back, between the two. Blocks, Rows, the times and Items leave them out, and nothing is
	// proved of them.
	Passing int64
	// Lacking counts the live blocks that lack rows of the sample. It is above 0 if the status of
	// the sample is Partial, which no other place has.
	Lacking int64
	// Before and After are the live set before and after. For kind Retired nothing else has
	// changed between them. For listed kinds they are one, since none of the blocks is live. For
	// the other kinds they are those of the last save, or of a request since then, and of the next
	// one. Other blocks may have come and gone between the two.
	Before, After Side
	Items         Hash // ListHash of the blocks, by key
	Settings      Hash // of topic, features, options and algorithm
	Request       Hash // HMAC-SHA256 of the request under its salt; zero without one
	VRF           Hash // of kind Begun: the public key of the function that makes the keys of items
	Scope         Scope
	Principal     string // name of who asked; "" if nobody did, but a topic or the policy
	Build         string // version of streamd
	Topic         string
	Offsets       []Next // of the cut, by partition; the first MaxOffsets of them
}

// Proved reports whether a proof belongs to the leaf: that of a change of the live set, or of
// listed kinds the list of the items.
func (l *Leaf) Proved() bool {
	return l.Kind == Retired || l.Kind.Listed() || l.Blocks > 0
}

// Bounds of a leaf, so that it has less than 64 KiB.
const (
	MaxOffsets = 4096
	maxText    = 1 << 10 // bytes of a text
	maxLeaf    = 1<<16 - 1
)

// Add counts a block.
func (l *Leaf) Add(rows int64, at time.Time) {
	if l.Blocks == 0 || at.Before(l.Earliest) {
		l.Earliest = at
	}
	if l.Blocks == 0 || at.After(l.Latest) {
		l.Latest = at
	}
	l.Blocks++
	l.Rows += rows
}

// leafVersion is the first byte of a leaf. Once a version is released, it is read forever.
const leafVersion = 1

// AppendItems appends the list of the items that belongs to a leaf of a listed kind: of each its
// key and its value, ascending. A key has two values if two contents of its id were archived, and
// the value zero if the block was withdrawn.
func AppendItems(b []byte, items []Item) []byte {
	for i := range items {
		b = append(append(b, items[i].Key[:]...), items[i].Value[:]...)
	}
	return b
}

// ListHash identifies a list of items.
func ListHash(items []Item) Hash {
	return sha256.Sum256(AppendItems(nil, items))
}

// AppendBinary appends the leaf. Equal leaves are equal bytes. Texts are cut at a kilobyte, with
// U+FFFD in place of what is not UTF-8, and times are rounded to milliseconds.
//
//	size
//	   1  version, 1
//	   1  kind
//	      blocks, rows, passing, lacking
//	      earliest, latest, durable, log until: in ms since 1970, each less the one before;
//	      unknown is the year 1
//	  32  before: digest, root; after: digest, root: each 32
//	  32  hash of the items, settings, request: each 32
//	  32  public key of the function of the items' keys, only of kind begun
//	  11  scope, a byte for each place
//	      principal, build, topic: each its length and the bytes
//	      number of offsets; of each partition and offset
//
// Numbers are varints of at most 63 bits, those of times in zigzag.
func (l *Leaf) AppendBinary(b []byte) []byte {
	b = append(b, leafVersion, byte(l.Kind))
	for _, x := range []int64{l.Blocks, l.Rows, l.Passing, l.Lacking} {
		b = binary.AppendUvarint(b, uint64(x))
	}
	former := int64(0)
	for _, at := range []time.Time{l.Earliest, l.Latest, l.Durable, l.LogUntil} {
		ms := at.UnixMilli()
		b, former = binary.AppendVarint(b, ms-former), ms
	}
	for _, h := range l.hashes() {
		b = append(b, h[:]...)
	}
	if l.Kind == Begun {
		b = append(b, l.VRF[:]...)
	}
	for _, status := range l.Scope {
		b = append(b, byte(status))
	}
	for _, text := range []string{l.Principal, l.Build, l.Topic} {
		text = strings.ToValidUTF8(text, "\uFFFD")
		text = strings.ToValidUTF8(text[:min(len(text), maxText)], "") // a letter may be cut
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	offsets := l.Offsets[:min(len(l.Offsets), MaxOffsets)]
	b = binary.AppendUvarint(b, uint64(len(offsets)))
	for _, o := range offsets {
		b = binary.AppendUvarint(b, uint64(o.Partition))
		b = binary.AppendUvarint(b, uint64(o.Offset))
	}
	return b
}

// hashes are those of a leaf in their order.
func (l *Leaf) hashes() []*Hash {
	return []*Hash{&l.Before.Digest, &l.Before.Root, &l.After.Digest, &l.After.Root, &l.Items, &l.Settings, &l.Request}
}

// ownHashes are those that the proof of the leaf does not give.
func (l *Leaf) ownHashes() []*Hash {
	if l.Kind.Listed() || !l.Proved() {
		return l.hashes()
	}
	return []*Hash{&l.Before.Digest, &l.After.Digest, &l.Settings, &l.Request}
}

// DecodeLeaf reads what AppendBinary has written.
func DecodeLeaf(b []byte) (*Leaf, error) {
	l, _, err := decodeLeaf(b, (*Leaf).hashes)
	return l, err
}

// decodeLeaf reads a leaf that has some of its hashes. They begin at a byte.
func decodeLeaf(b []byte, hashes func(*Leaf) []*Hash) (l *Leaf, at int, err error) {
	if len(b) > 0 && b[0] != leafVersion {
		return nil, 0, fmt.Errorf("a leaf of version %d: this program knows version %d", b[0], leafVersion)
	}
	r := decode.Reader{Rest: b}
	natural := func(x uint64) int64 {
		r.Bad = r.Bad || x > math.MaxInt64
		return int64(x)
	}
	former := int64(0)
	moment := func() time.Time {
		x := r.Uvarint()
		step := int64(x>>1) ^ -int64(x&1)
		former += step
		const most = 1 << 50 // beyond the year 9999, and no sum overflows
		r.Bad = r.Bad || step < -most || step > most || former < -most || former > most
		return time.UnixMilli(former).UTC()
	}
	head := r.Take(2)
	l = &Leaf{Kind: Kind(head[1])}
	for _, count := range []*int64{&l.Blocks, &l.Rows, &l.Passing, &l.Lacking} {
		*count = natural(r.Uvarint())
	}
	l.Earliest, l.Latest, l.Durable, l.LogUntil = moment(), moment(), moment(), moment()
	at = len(b) - len(r.Rest)
	for _, h := range hashes(l) {
		copy(h[:], r.Take(len(h)))
	}
	if l.Kind == Begun {
		copy(l.VRF[:], r.Take(len(l.VRF)))
		r.Bad = r.Bad || l.Blocks != 0 || l.Before != l.After
	}
	for place, status := range r.Take(len(l.Scope)) {
		l.Scope[place] = Status(status)
		partial := Place(place) == Sample && l.Lacking > 0
		r.Bad = r.Bad || Status(status) >= statuses || (Status(status) == Partial) != partial
	}
	for _, text := range []*string{&l.Principal, &l.Build, &l.Topic} {
		*text = r.Text()
		r.Bad = r.Bad || len(*text) > maxText || !utf8.ValidString(*text)
	}
	next := uint64(0)      // least partition
	for range r.Count(2) { // bytes of an offset
		partition, offset := r.Uvarint(), r.Uvarint()
		r.Bad = r.Bad || partition < next || partition > math.MaxInt32
		next = partition + 1
		l.Offsets = append(l.Offsets, Next{uint32(partition), natural(offset)})
	}
	if r.Bad || len(r.Rest) > 0 || !l.Kind.known() || len(b) > maxLeaf || len(l.Offsets) > MaxOffsets {
		return nil, 0, errors.New("not a leaf: its encoding is damaged")
	}
	return l, at, nil
}

// withHashes replaces the hashes in an encoded leaf, which begin at a byte.
func withHashes(leaf []byte, at int, former, now []*Hash) []byte {
	b := bytes.Clone(leaf[:at])
	for _, h := range now {
		b = append(b, h[:]...)
	}
	return append(b, leaf[at+len(former)*sha256.Size:]...)
}
