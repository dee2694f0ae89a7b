package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"streamd/incremental/decode"
	"streamd/retire"
)

// format is a version of the file format. FORMAT.md has the same tables with the reasons, and
// says what a change to anything here takes once the program has been released.
//
//	bucket      key                          value (in a frame)
//	streamd     format                       magic, version, oldest program
//	            settings                     topic, unit
//	            head                         the record of the last save
//	            withdrawn                    tally of the withdrawn blocks; absent without any
//	            archive                      tallies of the archived blocks; absent without any
//	            joining                      tally of the rows and labels by id, and their record; absent without them
//	            mac                          HMAC-SHA256 of the file, see Key
//	blocks      block id                     ledger entry
//	parts       block id                     sample.Part, as AppendBinary writes it
//	offsets     topic, partition (u32, BE)   offset, fingerprint, event times, growing block
//	spaces      space (u32, BE)              the record of the space
//	bases       space (u32, BE)              its basis, and the report on that
//	sources     space (u32, BE), block id    nothing
//	states      space, 0 or 1 + fold (u32, BE)  incremental.State, as AppendBinary writes it
//	summaries   space (u32, BE), block id    incremental.Summary, as AppendBinary writes it
//	withdrawn   block id                     ledger entry of a withdrawn block
//	archive     block id                     ledger entry of an archived block
//	joining     block id                     row and label of an id; see cmd/streamd/daemon/joining
//	receipts, log hashes, log                the log of receipts; see receipts.go
//	history     history                      some figures over time; the bucket may be missing
//	            detectors                    the drift detectors; may be missing
//	            learning                     what determines a model beside the blocks; may be missing
//
// All numbers are little endian, except the parts of keys, which must sort.
type format uint32

const (
	version format = 1
	// program is the oldest version of streamd that can read this version. Every file
	// has it, so that older programs can name it.
	program = "0.6"
	magic   = "streamd-snapshot"
	// unreleasedMagic is that of files from before the first release, whose versions were other
	// ones.
	unreleasedMagic = "streamd snapshot"
)

// fillPercent is how full bbolt leaves the pages that it splits. Ids of blocks come
// mostly in order, so the free part of a page seldom fills up later.
const fillPercent = 0.9

var (
	bucketMeta      = []byte("streamd")
	bucketBlocks    = []byte("blocks")
	bucketParts     = []byte("parts")
	bucketOffsets   = []byte("offsets")
	bucketSpaces    = []byte("spaces")
	bucketBases     = []byte("bases")
	bucketSources   = []byte("sources")
	bucketStates    = []byte("states")
	bucketSummaries = []byte("summaries")
	bucketHistory   = []byte("history")
	bucketWithdrawn = []byte("withdrawn")
	bucketArchive   = []byte("archive")
	bucketJoining   = []byte("joining")

	keyFormat    = []byte("format")
	keySettings  = []byte("settings")
	keyHead      = []byte("head")
	keyWithdrawn = []byte("withdrawn")
	keyArchive   = []byte("archive")
	keyJoining   = []byte("joining")
	keyMAC       = []byte("mac")
	keyHistory   = []byte("history")
	keyDetectors = []byte("detectors")
	keyLearning  = []byte("learning")
)

// buckets are the buckets that every file has, except the one with the version.
var buckets = [][]byte{bucketBlocks, bucketParts, bucketOffsets, bucketSpaces, bucketBases, bucketSources, bucketStates, bucketSummaries}

// place is a location of values: a bucket and the prefix of their keys.
type place struct{ bucket, prefix []byte }

func summaries(number uint32) place { return place{bucketSummaries, spaceKey(number)} }
func states(number uint32) place    { return place{bucketStates, spaceKey(number)} }
func sources(number uint32) place   { return place{bucketSources, spaceKey(number)} }

// each calls f with all values in a place, ordered by key, until f fails. A file need not have
// the bucket.
func (p place) each(tx *bbolt.Tx, f func(key, value []byte) error) error {
	bucket := tx.Bucket(p.bucket)
	if bucket == nil {
		return nil
	}
	var passed passed
	cursor := bucket.Cursor()
	for key, value := cursor.Seek(p.prefix); bytes.HasPrefix(key, p.prefix) && key != nil; key, value = cursor.Next() {
		if err := f(key, value); err != nil {
			return err
		}
		passed.add(tx, len(key)+len(value))
	}
	return nil
}

// key is the key of a block's value in the place.
func (p place) key(id string) []byte { return append(bytes.Clone(p.prefix), id...) }

// id is the id of the block with that key.
func (p place) id(key []byte) string { return string(key[len(p.prefix):]) }

// spaceKey is the key of a space, and the prefix of the keys of its values.
func spaceKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

// stateKey is the key of a space's state for i = 0, and of fold i−1 otherwise.
func stateKey(number uint32, i int) []byte {
	return binary.BigEndian.AppendUint32(spaceKey(number), uint32(i))
}

// blockKey is the key of a block's summary, and of a source, in a space.
func blockKey(number uint32, id string) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(id)), number), id...)
}

// A frame:
//
//	offset size
//	     0    4  CRC-32C of bucket name, key and payload
//	     4    4  length of the payload
//	     8       payload
const frameSize = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal fills in the frame of a value whose payload starts at frameSize.
func seal(bucket, key, value []byte) error {
	payload := value[frameSize:]
	if len(payload) > bbolt.MaxValueSize-frameSize {
		return fmt.Errorf("%s %q: %d bytes are more than a file can hold in one value", bucket, key, len(payload))
	}
	binary.LittleEndian.PutUint32(value, checksum(bucket, key, payload))
	binary.LittleEndian.PutUint32(value[4:], uint32(len(payload)))
	return nil
}

// unseal checks a value and returns its payload.
func unseal(bucket, key, value []byte) ([]byte, error) {
	damaged := func(reason string) error { return &ChecksumError{string(bucket), string(key), reason} }
	switch {
	case value == nil:
		return nil, damaged("it is missing")
	case len(value) < frameSize || uint32(len(value)-frameSize) != binary.LittleEndian.Uint32(value[4:]):
		return nil, damaged("the length is wrong")
	case checksum(bucket, key, value[frameSize:]) != frameChecksum(value):
		return nil, damaged("the checksum is wrong")
	}
	return value[frameSize:], nil
}

func checksum(bucket, key, payload []byte) uint32 {
	c := crc32.Update(0, castagnoli, bucket)
	c = crc32.Update(c, castagnoli, key)
	return crc32.Update(c, castagnoli, payload)
}

func frameChecksum(value []byte) uint32 { return binary.LittleEndian.Uint32(value) }

// frame returns an empty frame, to append a payload to.
func frame() []byte { return make([]byte, frameSize, 256) }

// tally stands for a set of values: their number, and the sum of their checksums modulo
// 2^64. It is updated without reading the set.
type tally struct {
	n   int64
	sum uint64
}

func (t *tally) add(value []byte) {
	t.n++
	t.sum += uint64(frameChecksum(value))
}

func (t *tally) remove(value []byte) {
	t.n--
	t.sum -= uint64(frameChecksum(value))
}

// addKeyed and removeKeyed are for a set whose values are not checked when a file is
// opened. The sum then also contains the checksums of the keys, times 2^32, so that a
// changed key is noticed.
func (t *tally) addKeyed(key, value []byte) {
	t.add(value)
	t.sum += uint64(crc32.Checksum(key, castagnoli)) << 32
}

func (t *tally) removeKeyed(key, value []byte) {
	t.remove(value)
	t.sum -= uint64(crc32.Checksum(key, castagnoli)) << 32
}

// payload reads the contents of a frame.
type payload struct{ decode.Reader }

// open unseals a value to read its payload.
func open(bucket, key, value []byte) (payload, error) {
	b, err := unseal(bucket, key, value)
	return payload{decode.Reader{Rest: b}}, err
}

func (p *payload) u32() uint32       { return binary.LittleEndian.Uint32(p.Take(4)) }
func (p *payload) i64() int64        { return int64(binary.LittleEndian.Uint64(p.Take(8))) }
func (p *payload) u64() uint64       { return binary.LittleEndian.Uint64(p.Take(8)) }
func (p *payload) time() time.Time   { return time.UnixMilli(p.i64()).UTC() }
func (p *payload) remainder() string { return string(p.Take(len(p.Rest))) }

// natural reads a number that cannot be negative.
func (p *payload) natural() int64 {
	x := p.i64()
	p.Bad = p.Bad || x < 0
	return x
}

func (p *payload) tally() tally { return tally{p.natural(), p.u64()} }

func (p *payload) partition() int {
	x := p.u32()
	p.Bad = p.Bad || x > math.MaxInt32
	return int(x)
}

func (p *payload) flag() bool {
	x := p.Take(1)[0]
	p.Bad = p.Bad || x > 1
	return x == 1
}

// prefixed reads bytes behind their 4-byte length.
func (p *payload) prefixed() []byte {
	n := p.u32()
	if uint64(n) > uint64(len(p.Rest)) {
		p.Bad = true
		return nil
	}
	return p.Take(int(n))
}

// done returns an error unless the payload was read to its end without an error.
func (p *payload) done(bucket, key []byte) error {
	if p.Bad || len(p.Rest) > 0 {
		return &ChecksumError{string(bucket), string(key), "not a valid encoding"}
	}
	return nil
}

func appendU32(b []byte, x uint32) []byte     { return binary.LittleEndian.AppendUint32(b, x) }
func appendI64(b []byte, x int64) []byte      { return binary.LittleEndian.AppendUint64(b, uint64(x)) }
func appendTime(b []byte, t time.Time) []byte { return appendI64(b, t.UnixMilli()) }
func appendTally(b []byte, t tally) []byte    { return appendI64(appendI64(b, t.n), int64(t.sum)) }

func appendFlag(b []byte, f bool) []byte {
	if f {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendPrefixed[T ~string | ~[]byte](b []byte, x T) []byte {
	return append(appendU32(b, uint32(len(x))), x...)
}

// Format. Every version of the format writes it in this way:
//
//	offset size
//	     0   16  "streamd-snapshot"
//	    16    4  version
//	    20       the oldest program that can read it, text
func appendFormat(b []byte, f format, program string) []byte {
	b = append(b, magic...)
	b = appendU32(b, uint32(f))
	return append(b, program...)
}

func decodeFormat(value []byte) (f format, program string, err error) {
	p, err := open(bucketMeta, keyFormat, value)
	if err != nil {
		return 0, "", err
	}
	switch string(p.Take(len(magic))) {
	case magic:
	case unreleasedMagic:
		return 0, "", ErrUnreleased
	default:
		return 0, "", ErrNotSnapshot
	}
	f, program = format(p.u32()), p.remainder()
	return f, program, p.done(bucketMeta, keyFormat)
}

func readFormat(tx *bbolt.Tx) (f format, program string, err error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return 0, "", ErrNotSnapshot
	}
	value := meta.Get(keyFormat)
	if value == nil {
		return 0, "", ErrNotSnapshot
	}
	return decodeFormat(value)
}

// checkVersion refuses a file that is no snapshot or has another format. Where a program of a later
// version finds an earlier one, its migration stands here: it replaces the file as Compact does.
func checkVersion(tx *bbolt.Tx) error {
	f, program, err := readFormat(tx)
	if err != nil {
		return err
	}
	if f != version {
		return &VersionError{Version: int(f), Supported: int(version), Program: program}
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return &ChecksumError{Reason: fmt.Sprintf("bucket %s is missing", name)}
		}
	}
	return nil
}

// Settings:
//
//	offset size
//	     0    4  length t of the topic
//	     4    t  topic
//	   4+t       rule that makes blocks
func appendSettings(b []byte, s Settings) []byte {
	return append(appendPrefixed(b, s.Topic), s.Unit...)
}

func decodeSettings(value []byte) (s Settings, err error) {
	p, err := open(bucketMeta, keySettings, value)
	if err != nil {
		return s, err
	}
	s.Topic, s.Unit = string(p.prefixed()), p.remainder()
	return s, p.done(bucketMeta, keySettings)
}

func readSettings(tx *bbolt.Tx) (Settings, error) {
	return decodeSettings(tx.Bucket(bucketMeta).Get(keySettings))
}

// head is the record of a save. It binds the rest of the file: a ledger, spaces or
// offsets of another save do not match it.
//
//	offset size
//	     0    8  time of the save, ms since 1970 UTC
//	     8    8  horizon: ms
//	    16    8  horizon: offset
//	    24    4  horizon: partition
//	    28    8  rows of the live blocks
//	    36   16  tally of the live blocks: number, sum of the checksums of their values
//	    52   16  tally of the offsets
//	    68  104  counts, 8 bytes each, in the order of Counts
//	   172   16  tally of the parts
//	   188   16  tally of the records of the spaces
//	   204    4  number of the space in use
//	   208    8  explicit retirements that were saved, number
//	   216    8  time at which the oldest of them left the file since it was compacted,
//	             ms since 1970 UTC; year 1: none has
//	   224       horizon: topic
//
// The tally of the withdrawn blocks is a value of its own, under the key withdrawn. A file
// without withdrawn blocks lacks it. So it is with the archived blocks: under the key archive
// are the tally of their entries and that of their summaries, and under the key joining is that of
// the rows and labels by id, with their record.
type head struct {
	savedAt         time.Time
	horizon         retire.Rank
	rows            int64
	blocks, offsets tally
	counts          Counts
	parts, spaces   tally
	inUse           uint32
	retirements     int64
	uncompacted     time.Time
	withdrawn       tally
	archive         archiveTally
	joining         joiningTally
}

func appendHead(b []byte, h *head) []byte {
	b = appendTime(b, h.savedAt)
	b = appendI64(b, h.horizon.Milliseconds)
	b = appendI64(b, h.horizon.Position.Offset)
	b = appendU32(b, uint32(h.horizon.Position.Partition))
	b = appendI64(b, h.rows)
	b = appendTally(b, h.blocks)
	b = appendTally(b, h.offsets)
	for _, x := range h.counts.list() {
		b = appendI64(b, *x)
	}
	b = appendTally(b, h.parts)
	b = appendTally(b, h.spaces)
	b = appendU32(b, h.inUse)
	b = appendI64(b, h.retirements)
	b = appendTime(b, h.uncompacted)
	return append(b, h.horizon.Position.Topic...)
}

func decodeHead(value []byte) (h head, err error) {
	p, err := open(bucketMeta, keyHead, value)
	if err != nil {
		return h, err
	}
	h.savedAt = p.time()
	h.horizon.Milliseconds = p.i64()
	h.horizon.Position.Offset = p.natural()
	h.horizon.Position.Partition = p.partition()
	h.rows = p.natural()
	h.blocks, h.offsets = p.tally(), p.tally()
	for _, x := range h.counts.list() {
		*x = p.i64()
	}
	h.parts, h.spaces = p.tally(), p.tally()
	h.inUse = p.u32()
	h.retirements, h.uncompacted = p.natural(), p.time()
	h.horizon.Position.Topic = p.remainder()
	return h, p.done(bucketMeta, keyHead)
}

func readHead(tx *bbolt.Tx) (head, error) {
	meta := tx.Bucket(bucketMeta)
	h, err := decodeHead(meta.Get(keyHead))
	if value := meta.Get(keyWithdrawn); value != nil && err == nil {
		h.withdrawn, err = decodeWithdrawnTally(value)
	}
	if value := meta.Get(keyArchive); value != nil && err == nil {
		h.archive, err = decodeArchiveTally(value)
	}
	if value := meta.Get(keyJoining); value != nil && err == nil {
		h.joining, err = decodeJoiningTally(value)
	}
	return h, err
}

// joiningTally stands for the rows and labels by id. A file has it from the first save with a
// record on.
type joiningTally struct {
	items  tally
	record []byte // nil: there is none
}

func appendJoiningTally(b []byte, t joiningTally) []byte {
	return append(appendTally(b, t.items), t.record...)
}

func decodeJoiningTally(value []byte) (t joiningTally, err error) {
	p, err := open(bucketMeta, keyJoining, value)
	if err != nil {
		return t, err
	}
	t.items, t.record = p.tally(), []byte(p.remainder())
	return t, p.done(bucketMeta, keyJoining)
}

// archiveTally stands for the archived blocks. The summaries are in the bucket of summaries,
// among those of the features; withdrawn blocks have none.
type archiveTally struct{ blocks, summaries tally }

func decodeArchiveTally(value []byte) (t archiveTally, err error) {
	p, err := open(bucketMeta, keyArchive, value)
	if err != nil {
		return t, err
	}
	t.blocks, t.summaries = p.tally(), p.tally()
	return t, p.done(bucketMeta, keyArchive)
}

func decodeWithdrawnTally(value []byte) (tally, error) {
	p, err := open(bucketMeta, keyWithdrawn, value)
	if err != nil {
		return tally{}, err
	}
	return p.tally(), p.done(bucketMeta, keyWithdrawn)
}

// A ledger entry:
//
//	offset size
//	     0    8  offset of the first record
//	     8    8  offset of the last record
//	    16    8  event time, ms since 1970 UTC
//	    24    8  rows
//	    32    4  partition
//	    36    1  flags, a sum: 1 if the file has the block's summary in the features, 2 if the
//	             key of the block's item is known, 4 if a record brought its sums
//	    37   32  digest of that summary; absent without it
//	         32  key of the block's item in the tree of receipts; absent if it is not known
//	          4  partition of the record that brought the block's sums; absent if rows were read
//	          8  offset of that record
//	             topic
//
// A block with a header ends with a zero byte, which no topic has, and the header's 16 bytes.
const leastBlock = frameSize + 37

// Flags of an entry. The other bits are zero.
const (
	hasSummary = 1 << iota // a digest follows
	hasItemKey             // a key of the item follows
	hasCarrier             // the place of the record with the sums follows
)

// appendBlock appends an entry. digest is that of the block's summary in the features; nil:
// the file has no summary of it.
func appendBlock(b []byte, e *retire.Entry, digest *[sha256.Size]byte) []byte {
	b = appendI64(b, e.Position.Offset)
	b = appendI64(b, e.Last)
	b = appendTime(b, e.Time)
	b = appendI64(b, e.Rows)
	b = appendU32(b, uint32(e.Position.Partition))
	flags := len(b)
	b = append(b, 0)
	if digest != nil {
		b[flags] |= hasSummary
		b = append(b, digest[:]...)
	}
	if e.ItemKey != [sha256.Size]byte{} {
		b[flags] |= hasItemKey
		b = append(b, e.ItemKey[:]...)
	}
	if c := e.Carrier; c.Sums {
		b[flags] |= hasCarrier
		b = appendI64(appendU32(b, uint32(c.Partition)), c.Offset)
	}
	b = append(b, e.Position.Topic...)
	if e.Header != (retire.HeaderHash{}) {
		b = append(append(b, 0), e.Header[:]...)
	}
	return b
}

// decodeBlock reads the entry of a live block, and the digest of its summary in the features.
func decodeBlock(id string, value []byte) (e retire.Entry, digest [sha256.Size]byte, err error) {
	e, digest, has, err := decodeEntry(bucketBlocks, id, value)
	if err == nil && !has {
		err = &ChecksumError{string(bucketBlocks), id, "it has no digest of the summary"}
	}
	return e, digest, err
}

// decodeWithdrawn reads the entry of a withdrawn block.
func decodeWithdrawn(id string, value []byte) (e retire.Entry, err error) {
	e, _, has, err := decodeEntry(bucketWithdrawn, id, value)
	if err == nil && has {
		err = &ChecksumError{string(bucketWithdrawn), id, "it has a digest, and the file has no summary of it"}
	}
	e.Withdrawn = true
	return e, err
}

// decodeArchived reads the entry of an archived block, and the digest of its summary. A
// withdrawn block has none.
func decodeArchived(id string, value []byte) (e retire.Entry, digest [sha256.Size]byte, err error) {
	e, digest, has, err := decodeEntry(bucketArchive, id, value)
	e.Archived, e.Withdrawn = true, !has
	return e, digest, err
}

func decodeEntry(bucket []byte, id string, value []byte) (e retire.Entry, digest [sha256.Size]byte, has bool, err error) {
	p, err := open(bucket, []byte(id), value)
	if err != nil {
		return e, digest, false, err
	}
	e.ID = id
	e.Position.Offset = p.natural()
	e.Last = p.i64()
	e.Time = p.time()
	e.Rows = p.natural()
	e.Position.Partition = p.partition()
	flags := p.Take(1)[0]
	p.Bad = p.Bad || flags >= hasCarrier<<1
	if has = flags&hasSummary != 0; has {
		digest = [sha256.Size]byte(p.Take(sha256.Size))
	}
	if flags&hasItemKey != 0 {
		e.ItemKey = [sha256.Size]byte(p.Take(sha256.Size))
		p.Bad = p.Bad || e.ItemKey == [sha256.Size]byte{}
	}
	if flags&hasCarrier != 0 {
		e.Carrier = retire.Carrier{Sums: true, Partition: int32(p.partition()), Offset: p.natural()}
	}
	topic, header, headed := strings.Cut(p.remainder(), "\x00")
	e.Position.Topic = topic
	if copy(e.Header[:], header); headed && (len(header) != len(e.Header) || e.Header == retire.HeaderHash{}) {
		return e, digest, has, &ChecksumError{string(bucket), id, fmt.Sprintf("%x is not the hash of a header", header)}
	}
	return e, digest, has, p.done(bucket, []byte(id))
}

// An offset's key is the topic and the partition, 4 bytes, big endian. Its value:
//
//	offset size
//	     0    8  next offset
//	     8    1  1: there is a last record; 0: the rest is zero
//	     9    8  last record: offset
//	    17    4  last record: checksum
//	    21    8  last record: time, ms since 1970 UTC
//	    29    1  n, number of event times
//	    30   8n  event times of the last records, ms since 1970 UTC, the latest
//	             record's last
//	 30+8n    8  growing block: offset behind its last record
//	 38+8n  104  growing block: counts of its records
//	142+8n       growing block: event times of the records before that offset
//
// An offset ends at 29 when the partition has no clock yet and no growing block, and at 30+8n
// when it has no growing block.
func appendOffset(b []byte, o *Offset) []byte {
	last := Fingerprint{Time: time.UnixMilli(0)}
	if o.HasLast {
		last = o.Last
	}
	b = appendI64(b, o.Next)
	b = appendFlag(b, o.HasLast)
	b = appendI64(b, last.Offset)
	b = appendU32(b, last.Checksum)
	b = appendTime(b, last.Time)
	if len(o.EventTimes) == 0 && o.Growing == nil {
		return b
	}
	b = append(b, byte(len(o.EventTimes)))
	for _, ms := range o.EventTimes {
		b = appendI64(b, ms)
	}
	if g := o.Growing; g != nil {
		b = appendI64(b, g.Next)
		for _, x := range g.Counts.list() {
			b = appendI64(b, *x)
		}
		for _, ms := range g.EventTimes {
			b = appendI64(b, ms)
		}
	}
	return b
}

func offsetKey(o *Offset) []byte {
	return binary.BigEndian.AppendUint32([]byte(o.Topic), uint32(o.Partition))
}

func decodeOffset(key, value []byte) (o Offset, err error) {
	p, err := open(bucketOffsets, key, value)
	if err != nil {
		return o, err
	}
	if topic := len(key) - 4; topic >= 0 {
		partition := binary.BigEndian.Uint32(key[topic:])
		o.Topic, o.Partition = string(key[:topic]), int(partition)
		p.Bad = partition > math.MaxInt32
	} else {
		p.Bad = true
	}
	o.Next = p.natural()
	o.HasLast = p.flag()
	o.Last = Fingerprint{Offset: p.i64(), Checksum: p.u32(), Time: p.time()}
	if !o.HasLast {
		if o.Last.Offset != 0 || o.Last.Checksum != 0 || o.Last.Time.UnixMilli() != 0 {
			p.Bad = true
		}
		o.Last = Fingerprint{}
	}
	if len(p.Rest) > 0 {
		n := int(p.Take(1)[0])
		o.EventTimes = p.eventTimes(n)
		p.Bad = p.Bad || n == 0 && len(p.Rest) == 0 // it must end at 29
	}
	if len(p.Rest) > 0 && !p.Bad {
		g := &Growing{Next: p.natural()}
		for _, x := range g.Counts.list() {
			*x = p.i64()
		}
		g.EventTimes = p.eventTimes(len(p.Rest) / 8)
		o.Growing = g
	}
	return o, p.done(bucketOffsets, key)
}

// eventTimes reads n event times of a partition.
func (p *payload) eventTimes(n int) (out []int64) {
	p.Bad = p.Bad || n > MaxEventTimes
	for range n {
		if p.Bad {
			return nil
		}
		out = append(out, p.i64())
	}
	return out
}

// spaceRecord is the record of a space. It binds everything in the file that belongs to it:
//
//	offset size
//	     0   16  tally of the summaries: number, sum of the checksums of their values and,
//	             times 2^32, of their keys
//	    16    8  rows of the summaries
//	    24   16  tally of the states: 1 and the folds
//	    40   32  digest of the state
//	    72    4  checksum of the basis's value; 0: there is none
//	    76   16  tally of the sources
//	    92    1  staleness
//
// The basis is stored separately because it does not change, while the record changes with every
// save.
type spaceRecord struct {
	number                     uint32
	summaries, states, sources tally
	rows                       int64
	digest                     [sha256.Size]byte
	basisChecksum              uint32
	stale                      uint8
}

func appendSpace(b []byte, r *spaceRecord) []byte {
	b = appendTally(b, r.summaries)
	b = appendI64(b, r.rows)
	b = appendTally(b, r.states)
	b = append(b, r.digest[:]...)
	b = appendU32(b, r.basisChecksum)
	b = appendTally(b, r.sources)
	return append(b, r.stale)
}

func decodeSpace(key, value []byte) (r spaceRecord, err error) {
	bucket := bucketSpaces
	p, err := open(bucket, key, value)
	if err != nil {
		return r, err
	}
	if len(key) == 4 {
		r.number = binary.BigEndian.Uint32(key)
	} else {
		p.Bad = true
	}
	r.summaries = p.tally()
	r.rows = p.natural()
	r.states = p.tally()
	r.digest = [sha256.Size]byte(p.Take(sha256.Size))
	r.basisChecksum = p.u32()
	r.sources = p.tally()
	r.stale = p.Take(1)[0]
	return r, p.done(bucket, key)
}

// A basis:
//
//	offset size
//	     0    4  length b of the basis
//	     4    b  basis
//	   4+b       report
func appendBasis(b []byte, s *Space) []byte {
	return append(appendPrefixed(b, s.Basis), s.Report...)
}

func decodeBasis(key, value []byte) (s Space, err error) {
	p, err := open(bucketBases, key, value)
	if err != nil {
		return s, err
	}
	if len(key) == 4 {
		s.Number = binary.BigEndian.Uint32(key)
	} else {
		p.Bad = true
	}
	s.Basis = bytes.Clone(p.prefixed())
	s.Report = bytes.Clone(p.Take(len(p.Rest)))
	return s, p.done(bucketBases, key)
}

// decodeWith checks the frame of a value and decodes the payload with its package's
// decoder.
func decodeWith[T any](decode func([]byte) (T, error), bucket, key, value []byte) (x T, err error) {
	b, err := unseal(bucket, key, value)
	if err != nil {
		return x, err
	}
	if x, err = decode(b); err != nil {
		err = &ChecksumError{string(bucket), string(key), err.Error()}
	}
	return x, err
}
