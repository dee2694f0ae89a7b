package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"streamd/incremental"
	"streamd/incremental/decode"
	"streamd/incremental/sample"
	"streamd/retire"
)

// The format of a file. FORMAT.md has the same tables with the reasons; a
// change to anything here makes a new version, a step from the old one to it,
// a paragraph in FORMAT.md and a fixture in testdata/snapshot.
//
//	bucket      key                         value (in a frame)
//	streamd     format                      magic, version, oldest program
//	            settings                    topic, unit
//	            head                        the record of the last save
//	            member                      who the process was in the group
//	            mac                         HMAC-SHA256 of the file, see Key
//	state       state                       incremental.State, as AppendBinary writes it
//	blocks      block id                    ledger entry
//	summaries   block id                    incremental.Summary, as AppendBinary writes it
//	offsets     topic, partition (u32, BE)  offset, fingerprint, event times, growing block
//	parts       block id                    sample.Part, as AppendBinary writes it
//	folds       fold (u32, BE)              incremental.State of the fold
//	epochs      epoch (u32, BE)             the record of the epoch
//	bases       epoch (u32, BE)             what its coordinates are, and how they came about
//	sources     epoch (u32, BE), block id   nothing
//	epoch states    epoch, 0 or 1 + fold (u32, BE)  incremental.State
//	epoch summaries epoch (u32, BE), block id       incremental.Summary
//
// All numbers are little endian but for the parts of keys, which sort.
const (
	version = 4
	// program is the oldest version of streamd that can read this version. It
	// is written into the file, for older ones to tell.
	program = "0.4"
	magic   = "streamd snapshot"
)

// fillPercent is how full bbolt leaves the pages that it splits. Ids of blocks
// come mostly in order, so what is left free in a page seldom fills up later;
// with bbolt's own 0.5 a file of small blocks is half as large again.
const fillPercent = 0.9

var (
	bucketMeta      = []byte("streamd")
	bucketState     = []byte("state")
	bucketBlocks    = []byte("blocks")
	bucketSummaries = []byte("summaries")
	bucketOffsets   = []byte("offsets")
	bucketParts     = []byte("parts")
	bucketFolds     = []byte("folds")

	bucketEpochs         = []byte("epochs")
	bucketBases          = []byte("bases")
	bucketSources        = []byte("sources")
	bucketEpochStates    = []byte("epoch states")
	bucketEpochSummaries = []byte("epoch summaries")

	keyFormat   = []byte("format")
	keySettings = []byte("settings")
	keyMember   = []byte("member")
	keyHead     = []byte("head")
	keyMAC      = []byte("mac")
	keyState    = []byte("state")
)

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

// unseal checks a value and gives its payload.
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

// payload reads what is in a frame.
type payload struct{ decode.Reader }

func (p *payload) u32() uint32       { return binary.LittleEndian.Uint32(p.Take(4)) }
func (p *payload) i64() int64        { return int64(binary.LittleEndian.Uint64(p.Take(8))) }
func (p *payload) u64() uint64       { return binary.LittleEndian.Uint64(p.Take(8)) }
func (p *payload) time() time.Time   { return time.UnixMilli(p.i64()).UTC() }
func (p *payload) remainder() string { return string(p.Take(len(p.Rest))) }

// natural is a number that cannot be negative.
func (p *payload) natural() int64 {
	x := p.i64()
	p.Bad = p.Bad || x < 0
	return x
}

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

// done is the fault of a payload that was read but for an unread rest.
func (p *payload) done(bucket, key []byte) error {
	if p.Bad || len(p.Rest) > 0 {
		return &ChecksumError{string(bucket), string(key), "not a valid encoding"}
	}
	return nil
}

func appendU32(b []byte, x uint32) []byte     { return binary.LittleEndian.AppendUint32(b, x) }
func appendI64(b []byte, x int64) []byte      { return binary.LittleEndian.AppendUint64(b, uint64(x)) }
func appendTime(b []byte, t time.Time) []byte { return appendI64(b, t.UnixMilli()) }
func appendFlag(b []byte, f bool) []byte {
	if f {
		return append(b, 1)
	}
	return append(b, 0)
}

// frame is an empty one, to append a payload to.
func frame() []byte { return make([]byte, frameSize, 256) }

// checkPosition says whether a position can be saved.
func checkPosition(p incremental.Position) error {
	switch {
	case p.Partition < 0 || p.Partition > math.MaxInt32:
		return fmt.Errorf("partition %d", p.Partition)
	case p.Offset < 0:
		return fmt.Errorf("offset %d", p.Offset)
	case len(p.Topic) > MaxID-4: // it is part of a key
		return fmt.Errorf("a topic of %d bytes", len(p.Topic))
	}
	return nil
}

// Format, which every version of the format writes in this way:
//
//	offset size
//	     0   16  "streamd snapshot"
//	    16    4  version
//	    20       the oldest program that can read it, text
func appendFormat(b []byte, version uint32, program string) []byte {
	b = append(b, magic...)
	b = appendU32(b, version)
	return append(b, program...)
}

// buckets lists those of a version but for the one that says which it is.
func buckets(version uint32) [][]byte {
	all := [][]byte{bucketState, bucketBlocks, bucketSummaries, bucketOffsets}
	if version >= 2 {
		all = append(all, bucketParts, bucketFolds)
	}
	if version >= 3 {
		all = append(all, bucketEpochs, bucketBases, bucketEpochStates, bucketEpochSummaries)
	}
	if version >= 4 {
		all = append(all, bucketSources)
	}
	return all
}

// checkVersion refuses what is no snapshot, and what is too new a one.
func checkVersion(tx *bbolt.Tx) error {
	found, program, err := readFormat(tx)
	if err != nil {
		return err
	}
	if found < 1 || found > version {
		return &VersionError{Version: int(found), Supported: version, Program: program}
	}
	for _, name := range buckets(found) {
		if tx.Bucket(name) == nil {
			return &ChecksumError{Reason: fmt.Sprintf("bucket %s is missing", name)}
		}
	}
	return nil
}

func readFormat(tx *bbolt.Tx) (version uint32, program string, err error) {
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

// migrate brings an older file that checkVersion has passed up to date.
func migrate(w *writer) error {
	tx := w.tx
	found, _, err := readFormat(tx)
	if err != nil {
		return err
	}
	// From 1 to 2: no block has a part, and there are no folds. From 2 to 3:
	// there are no epochs. From 3 to 4: no partition has event times, which is how
	// an offset of version 3 is written, no retirement was counted, and the sources of
	// epochs are not known. So the file gets the buckets that it lacks, and a head and
	// records of epochs of today.
	h, err := readHead(tx)
	if err != nil {
		return err
	}
	if found < 4 && h.counts.BlocksRetired > 0 { // perhaps explicitly
		h.uncompacted = h.savedAt
	}
	var epochs []epochHead
	if found >= 3 {
		if epochs, err = readEpochHeads(tx, found); err != nil {
			return err
		}
	}
	for _, name := range buckets(version)[len(buckets(found)):] {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	w.head = &h
	h.epochs = tally{}
	for i := range epochs {
		if err := w.putEpochHead(&epochs[i]); err != nil {
			return err
		}
	}
	return errors.Join(
		w.putValue(bucketMeta, keyFormat, appendFormat(frame(), version, program)),
		w.putHead(),
	)
}

func decodeFormat(value []byte) (version uint32, program string, err error) {
	b, err := unseal(bucketMeta, keyFormat, value)
	if err != nil {
		return 0, "", err
	}
	p := payload{decode.Reader{Rest: b}}
	if string(p.Take(len(magic))) != magic {
		return 0, "", ErrNotSnapshot
	}
	version, program = p.u32(), p.remainder()
	return version, program, p.done(bucketMeta, keyFormat)
}

// Settings, topic and unit, and the member, group and its id behind that of the file:
//
//	offset size
//	     0    4  length t of the first text
//	     4    t  first text
//	   4+t       second text
func appendTexts(b []byte, first, second string) []byte {
	b = appendU32(b, uint32(len(first)))
	b = append(b, first...)
	return append(b, second...)
}

func decodeTexts(key, value []byte) (first, second string, err error) {
	b, err := unseal(bucketMeta, key, value)
	if err != nil {
		return "", "", err
	}
	p := payload{decode.Reader{Rest: b}}
	if n := p.u32(); uint64(n) <= uint64(len(p.Rest)) {
		first = string(p.Take(int(n)))
	} else {
		p.Bad = true
	}
	second = p.remainder()
	return first, second, p.done(bucketMeta, key)
}

// head is the record of a save. It binds the rest of the file: a ledger, a
// state or offsets of another save do not fit it.
//
//	offset size
//	     0    8  time of the save, ms since 1970 UTC
//	     8    8  horizon: ms
//	    16    8  horizon: offset
//	    24    4  horizon: partition
//	    28    8  rows of the live blocks
//	    36    8  live blocks, number
//	    44    8  live blocks, sum of the checksums of their values
//	    52    8  offsets, number
//	    60    8  offsets, sum of the checksums of their values
//	    68   88  counts, 8 bytes each, in the order of Counts
//	   156    1  1: there is a state; 0: the features are not fixed yet
//	   157   32  digest of the state; without one, of an empty one
//	   189    8  parts, number
//	   197    8  parts, sum of the checksums of their values
//	   205    8  folds, number
//	   213    8  folds, sum of the checksums of their values
//	   221    8  epochs, number
//	   229    8  epochs, sum of the checksums of their values
//	   237    4  number of the epoch in use; 0: the features
//	   241    8  explicit retirements that were saved, number
//	   249    8  oldest of them that the file was not compacted after, ms since
//	             1970 UTC; year 1: there is none
//	   257       horizon: topic
//
// The topic is at 189 in version 1, which has no parts and no folds, at 221 in
// version 2, which has no epochs, and at 241 in version 3, which does not count
// retirements.
type head struct {
	savedAt         time.Time
	horizon         retire.Rank
	rows            int64
	blocks, offsets tally
	counts          Counts
	hasState        bool
	digest          [32]byte
	parts, folds    tally
	epochs          tally
	epoch           uint32 // in use
	retirements     int64
	uncompacted     time.Time
}

// tally stands for a set of values: how many they are and the sum, modulo
// 2^64, of their checksums. It can be kept up to date without reading the set.
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

// Add adds d to c.
func (c *Counts) Add(d Counts) {
	for i, x := range d.list() {
		*c.list()[i] += *x
	}
}

func (c *Counts) list() [11]*int64 {
	return [...]*int64{
		&c.Records, &c.Tombstones, &c.RejectedRecords, &c.DeadLetters, &c.SkippedRecords,
		&c.Rows, &c.ZeroWeightRows, &c.RejectedRows,
		&c.BlocksAdded, &c.BlocksRetired, &c.BlocksReplaced,
	}
}

func appendHead(b []byte, h *head) []byte {
	b = appendTime(b, h.savedAt)
	b = appendI64(b, h.horizon.Milliseconds)
	b = appendI64(b, h.horizon.Position.Offset)
	b = appendU32(b, uint32(h.horizon.Position.Partition))
	b = appendI64(b, h.rows)
	for _, t := range []tally{h.blocks, h.offsets} {
		b = appendI64(b, t.n)
		b = appendI64(b, int64(t.sum))
	}
	for _, x := range h.counts.list() {
		b = appendI64(b, *x)
	}
	b = appendFlag(b, h.hasState)
	b = append(b, h.digest[:]...)
	for _, t := range []tally{h.parts, h.folds, h.epochs} {
		b = appendI64(b, t.n)
		b = appendI64(b, int64(t.sum))
	}
	b = appendU32(b, h.epoch)
	b = appendI64(b, h.retirements)
	b = appendTime(b, h.uncompacted)
	return append(b, h.horizon.Position.Topic...)
}

func decodeHead(value []byte, version uint32) (h head, err error) {
	b, err := unseal(bucketMeta, keyHead, value)
	if err != nil {
		return h, err
	}
	p := payload{decode.Reader{Rest: b}}
	h.savedAt = p.time()
	h.horizon.Milliseconds = p.i64()
	h.horizon.Position.Offset = p.natural()
	h.horizon.Position.Partition = p.partition()
	h.rows = p.natural()
	for _, t := range []*tally{&h.blocks, &h.offsets} {
		t.n, t.sum = p.natural(), p.u64()
	}
	for _, x := range h.counts.list() {
		*x = p.i64()
	}
	h.hasState = p.flag()
	h.digest = [32]byte(p.Take(32))
	if version >= 2 {
		for _, t := range []*tally{&h.parts, &h.folds} {
			t.n, t.sum = p.natural(), p.u64()
		}
	}
	if version >= 3 {
		h.epochs.n, h.epochs.sum = p.natural(), p.u64()
		h.epoch = p.u32()
	}
	if version >= 4 {
		h.retirements, h.uncompacted = p.natural(), p.time()
	}
	h.horizon.Position.Topic = p.remainder()
	return h, p.done(bucketMeta, keyHead)
}

// savedBlock is a ledger entry. It binds the block's summary:
//
//	offset size
//	     0    8  offset of the first record
//	     8    8  offset of the last record
//	    16    8  event time, ms since 1970 UTC
//	    24    8  rows
//	    32    4  partition
//	    36    4  length of the summary's payload
//	    40    4  checksum of the summary's value
//	    44       topic
type savedBlock struct {
	retire.Entry
	summarySize, summaryChecksum uint32
}

// leastBlock is the bytes that a ledger entry takes at least.
const leastBlock = frameSize + 44

func appendBlock(b []byte, e *savedBlock) []byte {
	b = appendI64(b, e.Position.Offset)
	b = appendI64(b, e.Last)
	b = appendTime(b, e.Time)
	b = appendI64(b, e.Rows)
	b = appendU32(b, uint32(e.Position.Partition))
	b = appendU32(b, e.summarySize)
	b = appendU32(b, e.summaryChecksum)
	return append(b, e.Position.Topic...)
}

func decodeBlock(id string, value []byte) (e savedBlock, err error) {
	b, err := unseal(bucketBlocks, []byte(id), value)
	if err != nil {
		return e, err
	}
	p := payload{decode.Reader{Rest: b}}
	e.ID = id
	e.Position.Offset = p.natural()
	e.Last = p.i64()
	e.Time = p.time()
	e.Rows = p.natural()
	e.Position.Partition = p.partition()
	e.summarySize, e.summaryChecksum = p.u32(), p.u32()
	e.Position.Topic = p.remainder()
	return e, p.done(bucketBlocks, []byte(id))
}

// An offset's key is the topic and the partition, 4 bytes, big endian. Its
// value:
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
//	 38+8n   88  growing block: counts of its records
//	126+8n       growing block: event times of the records before that offset
//
// An offset ends at 29 when the partition has no clock yet and no growing block, as
// all offsets of version 3 do, and at 30+8n when it has no growing block.
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
	b, err := unseal(bucketOffsets, key, value)
	if err != nil {
		return o, err
	}
	p := payload{decode.Reader{Rest: b, Bad: len(key) < 4}}
	if !p.Bad {
		topic := len(key) - 4
		partition := binary.BigEndian.Uint32(key[topic:])
		o.Topic, o.Partition = string(key[:topic]), int(partition)
		p.Bad = partition > math.MaxInt32
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
		p.Bad = p.Bad || n == 0 && len(p.Rest) == 0 // it has to end at 29
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

// eventTimes takes n event times of a partition.
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

// initialise writes the contents of an empty file.
func initialise(w *writer, s Settings) error {
	for _, name := range append(buckets(version), bucketMeta) {
		if _, err := w.tx.CreateBucket(name); err != nil {
			return err
		}
	}
	w.head = &head{horizon: retire.NewLedger(retire.Policy{}).Horizon(), digest: emptyDigest}
	return errors.Join(
		w.putValue(bucketMeta, keyFormat, appendFormat(frame(), version, program)),
		w.putSettings(s),
		w.putHead(),
	)
}

func (w *writer) putSettings(s Settings) error {
	return w.putValue(bucketMeta, keySettings, appendTexts(frame(), s.Topic, s.Unit))
}

func readSettings(tx *bbolt.Tx) (s Settings, err error) {
	s.Topic, s.Unit, err = decodeTexts(keySettings, tx.Bucket(bucketMeta).Get(keySettings))
	return s, err
}

// A fileID tells a file from all others of the system that there are at the moment:
// its device and its inode. Zero: they are not known.
type fileID [16]byte

func appendMember(b []byte, m Member, file fileID) []byte {
	return appendTexts(b, m.Group, string(file[:])+m.ID)
}

func decodeMember(value []byte) (m Member, file fileID, err error) {
	group, rest, err := decodeTexts(keyMember, value)
	if err == nil && len(rest) < len(file) {
		err = &ChecksumError{string(bucketMeta), string(keyMember), "not a valid encoding"}
	}
	if err != nil {
		return m, file, err
	}
	copy(file[:], rest)
	return Member{Group: group, ID: rest[len(file):]}, file, nil
}

// readMember gives a zero one where there is none, and where the process had another
// file open, of which this one is a copy: it may go on with that.
func readMember(tx *bbolt.Tx, here fileID) (Member, error) {
	value := tx.Bucket(bucketMeta).Get(keyMember)
	if value == nil {
		return Member{}, nil
	}
	m, file, err := decodeMember(value)
	if file != here || here == (fileID{}) {
		return Member{}, err
	}
	return m, err
}

func readHead(tx *bbolt.Tx) (head, error) {
	version, _, err := readFormat(tx)
	if err != nil {
		return head{}, err
	}
	return decodeHead(tx.Bucket(bucketMeta).Get(keyHead), version)
}

// decodeState reads sums; name is that of the key in errors.
func decodeState(bucket, key, value []byte, name string) (*incremental.State, error) {
	b, err := unseal(bucket, key, value)
	if err != nil {
		return nil, err
	}
	s, err := incremental.DecodeState(b)
	if err != nil {
		return nil, &ChecksumError{string(bucket), name, err.Error()}
	}
	return s, nil
}

func readBlockSummary(tx *bbolt.Tx, id string) (*incremental.Summary, error) {
	value := tx.Bucket(bucketBlocks).Get([]byte(id))
	if value == nil {
		return nil, ErrNotFound
	}
	e, err := decodeBlock(id, value)
	if err != nil {
		return nil, err
	}
	return readSummary(tx, e)
}

func readSummary(tx *bbolt.Tx, e savedBlock) (*incremental.Summary, error) {
	key := []byte(e.ID)
	value := tx.Bucket(bucketSummaries).Get(key)
	b, err := unseal(bucketSummaries, key, value)
	if err != nil {
		return nil, err
	}
	damaged := func(reason string) error { return &ChecksumError{string(bucketSummaries), e.ID, reason} }
	if uint32(len(b)) != e.summarySize || frameChecksum(value) != e.summaryChecksum {
		return nil, damaged("it is not the one that belongs to the ledger's entry")
	}
	s, err := incremental.DecodeSummary(b)
	if err != nil {
		return nil, damaged(err.Error())
	}
	if s.Rows() != e.Rows {
		return nil, damaged(fmt.Sprintf("it has %d rows, the ledger's entry %d", s.Rows(), e.Rows))
	}
	return s, nil
}

// readPart reads the part of a block; nil: it has none.
func readPart(tx *bbolt.Tx, id string) (*sample.Part, error) {
	bucket := tx.Bucket(bucketParts)
	if bucket == nil { // version 1
		return nil, nil
	}
	value := bucket.Get([]byte(id))
	if value == nil {
		return nil, nil
	}
	return decodePart([]byte(id), value)
}

func decodePart(id, value []byte) (*sample.Part, error) {
	b, err := unseal(bucketParts, id, value)
	if err != nil {
		return nil, err
	}
	p, err := sample.DecodePart(b)
	if err != nil {
		return nil, &ChecksumError{string(bucketParts), string(id), err.Error()}
	}
	return p, nil
}

// writer makes the changes of a transaction and keeps its head in step.
type writer struct {
	tx     *bbolt.Tx
	head   *head
	epochs []epochHead // as they were, less what has been forgotten
	room   []byte      // empty, for the frames to come
	chunks []*chunk    // that these and the room lie in
	summer *summer     // of the file's values; nil: the file is not under a key
}

// chunk is memory for frames, which one save after the other uses.
type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

const (
	// chunkSize is how much memory the frames of small values share: each with memory of
	// its own, they cost more to allocate than to fill.
	chunkSize = 64 << 10
	// leastRoom is what a chunk has left when frames are still made in it.
	leastRoom = 4 << 10
)

// encode makes a value of what is appended to an empty frame. It stays as it is until
// the transaction ends, as bbolt wants it.
func (w *writer) encode(appendTo func(frame []byte) []byte) (value []byte) {
	if cap(w.room) < leastRoom {
		c := chunks.Get().(*chunk)
		w.chunks, w.room = append(w.chunks, c), c[:0]
	}
	value = appendTo(w.room[:frameSize])
	if cap(value) == cap(w.room) { // otherwise it did not fit in, and has memory of its own
		w.room = value[len(value):]
	}
	return slices.Clip(value)
}

// close gives the frames' memory back. The transaction must have ended.
func (w *writer) close() {
	for _, c := range w.chunks {
		chunks.Put(c)
	}
	w.chunks, w.room = nil, nil
}

// putValue writes a value whose payload starts at frameSize.
func (w *writer) putValue(bucket, key, value []byte) error {
	if err := seal(bucket, key, value); err != nil {
		return err
	}
	b := w.tx.Bucket(bucket)
	if w.summer != nil {
		if old := b.Get(key); old != nil {
			w.summer.sum.remove(w.summer.mac(bucket, key, old))
		}
		w.summer.sum.add(w.summer.mac(bucket, key, value))
	}
	b.FillPercent = fillPercent
	return b.Put(key, value)
}

// deleteValue deletes a value, if there is one.
func (w *writer) deleteValue(bucket, key []byte) error {
	b := w.tx.Bucket(bucket)
	if w.summer != nil {
		if old := b.Get(key); old != nil {
			w.summer.sum.remove(w.summer.mac(bucket, key, old))
		}
	}
	return b.Delete(key)
}

// putMAC writes the file's MAC. It comes last.
func (w *writer) putMAC() error {
	value := append(frame(), w.summer.key.fileMAC(w.summer.sum)...)
	if err := seal(bucketMeta, keyMAC, value); err != nil {
		return err
	}
	return w.tx.Bucket(bucketMeta).Put(keyMAC, value)
}

// finder looks up keys in ascending order. New blocks have ids that mostly follow each
// other, and lie between the same two of the bucket: one search tells of all of them
// that they are not there. Keys that were looked up may be put or deleted meanwhile.
type finder struct {
	cursor     *bbolt.Cursor
	sought     bool
	key, value []byte // the first from the key on that was sought last; nil: there is none
}

// find gives the value of a key; nil: there is none.
func (f *finder) find(key string) []byte {
	if !f.sought || f.key != nil && string(f.key) < key {
		f.sought = true
		f.key, f.value = f.cursor.Seek([]byte(key))
	}
	if string(f.key) != key {
		return nil
	}
	return f.value
}

// forget takes the block of that id and value out of the head, and what epochs have of it.
func (w *writer) forget(id string, value []byte) error {
	e, err := decodeBlock(id, value)
	if err != nil {
		return err
	}
	w.head.blocks.remove(value)
	w.head.rows -= e.Rows
	w.forgetPart(id)
	return w.forgetInEpochs(id)
}

func (w *writer) delete(id string) error {
	value := w.tx.Bucket(bucketBlocks).Get([]byte(id))
	if value == nil {
		return nil
	}
	if err := w.forget(id, value); err != nil {
		return err
	}
	return errors.Join(
		w.deleteValue(bucketBlocks, []byte(id)),
		w.deleteValue(bucketSummaries, []byte(id)),
		w.deleteValue(bucketParts, []byte(id)),
	)
}

// forgetPart takes the part of that id out of the head, if there is one.
func (w *writer) forgetPart(id string) {
	if value := w.tx.Bucket(bucketParts).Get([]byte(id)); value != nil {
		w.head.parts.remove(value)
	}
}

// putPart writes the part of a block, which has none in the head.
func (w *writer) putPart(id string, p *sample.Part) error {
	value := w.encode(p.AppendBinary)
	if err := w.putValue(bucketParts, []byte(id), value); err != nil {
		return err
	}
	w.head.parts.add(value)
	return nil
}

// putSums writes the sums that have changed, value i under the prefix and i, and deletes
// those that are none any more. nil: as it is in the file. They are those of the folds
// from the first-th on.
func (w *writer) putSums(bucket, prefix []byte, t *tally, first int, values [][]byte) error {
	b := w.tx.Bucket(bucket)
	key := func(i int) []byte { return binary.BigEndian.AppendUint32(slices.Clip(prefix), uint32(i)) }
	for i, value := range values {
		old := b.Get(key(i))
		switch {
		case value == nil && old == nil:
			return fmt.Errorf("fold %d is not in the file", i-first)
		case value == nil:
			continue
		case old != nil:
			t.remove(old)
		}
		if err := w.putValue(bucket, key(i), value); err != nil {
			return err
		}
		t.add(value)
	}
	for i := len(values); ; i++ {
		old := b.Get(key(i))
		if old == nil {
			return nil
		}
		t.remove(old)
		if err := w.deleteValue(bucket, key(i)); err != nil {
			return err
		}
	}
}

// put writes a block in the place of old, its value in the ledger; nil: it is new.
func (w *writer) put(b *Block, old []byte) error {
	key := []byte(b.Entry.ID)
	if old != nil {
		if err := w.forget(b.Entry.ID, old); err != nil {
			return err
		}
	}
	summary := w.encode(b.Summary.AppendBinary)
	if err := w.putValue(bucketSummaries, key, summary); err != nil {
		return err
	}
	e := savedBlock{Entry: b.Entry, summarySize: uint32(len(summary) - frameSize), summaryChecksum: frameChecksum(summary)}
	value := w.encode(func(frame []byte) []byte { return appendBlock(frame, &e) })
	if err := w.putValue(bucketBlocks, key, value); err != nil {
		return err
	}
	w.head.blocks.add(value)
	w.head.rows += b.Entry.Rows
	switch {
	case b.Part != nil:
		return w.putPart(b.Entry.ID, b.Part)
	case old != nil:
		return w.deleteValue(bucketParts, key)
	}
	return nil
}

func (w *writer) putOffset(o Offset) error {
	key := offsetKey(&o)
	if old := w.tx.Bucket(bucketOffsets).Get(key); old != nil {
		w.head.offsets.remove(old)
	}
	value := appendOffset(frame(), &o)
	if err := w.putValue(bucketOffsets, key, value); err != nil {
		return err
	}
	w.head.offsets.add(value)
	return nil
}

func (w *writer) putHead() error {
	return w.putValue(bucketMeta, keyHead, appendHead(frame(), w.head))
}
