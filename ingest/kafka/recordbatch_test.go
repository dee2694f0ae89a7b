package kafka

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/protocol"
)

func randomRecord(rng *rand.Rand) Record {
	blob := func() []byte {
		switch n := rng.IntN(6); n {
		case 0:
			return nil
		case 1:
			return []byte{}
		default:
			return bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(1<<(2*n)))
		}
	}
	r := Record{Key: blob(), Value: blob()}
	if rng.IntN(10) > 0 {
		r.Time = time.UnixMilli(1_700_000_000_000 + rng.Int64N(2000) - 1000).UTC()
	}
	for range rng.IntN(4) {
		r.Headers = append(r.Headers, Header{Key: fmt.Sprint("h", rng.IntN(3)), Value: blob()})
	}
	return r
}

func sameRecord(a, b *Record) bool {
	same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	return a.Offset == b.Offset && a.Time.Equal(b.Time) && same(a.Key, b.Key) && same(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

// decodeAll reads a batch that must be good.
func decodeAll(t testing.TB, data []byte, from int64) []Record {
	t.Helper()
	rb, size, err := parseBatch(data, &protocol.Sums{})
	if err != nil || size != len(data) {
		t.Fatalf("%d bytes of %d: %v", size, len(data), err)
	}
	b, err := recordsOf(&rb, from)
	if err != nil {
		t.Fatal(err)
	}
	return b.Records
}

// recordsOf reads all records of an uncompressed batch from an offset on.
func recordsOf(rb *recordBatch, from int64) (*Batch, error) {
	b := &Batch{names: new(interner)}
	r, err := rb.reader(rb.Records)
	if err == nil {
		err = r.appendTo(b, from, math.MaxInt)
	}
	return b, err
}

func TestRecordBatchRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var w batchWriter
	for range 200 {
		w.reset()
		want := make([]Record, 1+rng.IntN(20))
		bound := batchHeader
		for i := range want {
			want[i] = randomRecord(rng)
			want[i].Offset = int64(i)
			bound += recordSize(want[i].Key, want[i].Value, want[i].Headers)
			w.add(want[i].Key, want[i].Value, want[i].Headers, want[i].Time)
		}
		data := w.finish(7, 3, 11)
		if len(data) > bound {
			t.Fatalf("%d bytes, promised at most %d", len(data), bound)
		}
		from := rng.Int64N(int64(len(want)))
		got := decodeAll(t, data, from)
		if !slices.EqualFunc(got, want[from:], func(a, b Record) bool { return sameRecord(&a, &b) }) {
			t.Fatalf("got  %v\nwant %v", got, want[from:])
		}
		// Another implementation reads the same.
		var other kmsg.RecordBatch
		if err := other.ReadFrom(data); err != nil {
			t.Fatal(err)
		}
		if int(other.NumRecords) != len(want) || other.ProducerID != 7 || other.ProducerEpoch != 3 || other.FirstSequence != 11 ||
			int(other.LastOffsetDelta) != len(want)-1 || int(other.Length) != len(data)-batchPrefix {
			t.Fatalf("kmsg reads %+v", other)
		}
		raw := other.Records
		for i := range want {
			var r kmsg.Record
			if err := r.ReadFrom(raw); err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			if !bytes.Equal(r.Value, want[i].Value) || (r.Value == nil) != (want[i].Value == nil) || int(r.OffsetDelta) != i || len(r.Headers) != len(want[i].Headers) {
				t.Fatalf("record %d: kmsg reads %+v", i, r)
			}
			raw = raw[len(r.AppendTo(nil)):]
		}
	}
}

// seal gives a batch the length and CRC of what it holds.
func seal(data []byte) []byte {
	binary.BigEndian.PutUint32(data[8:], uint32(len(data)-batchPrefix))
	data[16] = 2
	binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[crcStart:], protocol.Castagnoli))
	return data
}

func smallBatch(n int) []byte {
	var w batchWriter
	w.reset()
	for i := range n {
		w.add(fmt.Append(nil, "k", i), fmt.Append(nil, "v", i), []Header{{"h", []byte("x")}}, time.UnixMilli(int64(1000+i)))
	}
	return bytes.Clone(w.finish(-1, -1, -1))
}

func TestParseBatchRefuses(t *testing.T) {
	good := smallBatch(3)
	for name, test := range map[string]struct {
		damage func([]byte) []byte
		want   string
	}{
		"flipped bit":     {func(b []byte) []byte { b[len(b)-1] ^= 4; return b }, "CRC-32C"},
		"old format":      {func(b []byte) []byte { b[16] = 1; return b }, "before Kafka 0.11"},
		"future format":   {func(b []byte) []byte { b[16] = 3; return b }, "unknown format 3"},
		"negative length": {func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<31); b[16] = 2; return b }, "length"},
		"negative offset": {func(b []byte) []byte { b[0] = 0x80; return b }, "length"},
		"backward last":   {func(b []byte) []byte { binary.BigEndian.PutUint32(b[23:], 1<<31); return seal(b) }, "the last offset"},
	} {
		_, _, err := parseBatch(test.damage(bytes.Clone(good)), &protocol.Sums{})
		var corrupt *corruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range good {
		if _, _, err := parseBatch(good[:n], &protocol.Sums{}); !errors.Is(err, errCut) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestRecordsRefused(t *testing.T) {
	good := smallBatch(3)
	refused := 0
	for i := batchHeader; i < len(good); i++ {
		for bit := range 8 {
			data := bytes.Clone(good)
			data[i] ^= 1 << bit
			rb, _, err := parseBatch(seal(data), &protocol.Sums{})
			if err != nil {
				t.Fatal(err)
			}
			if b, err := recordsOf(&rb, 0); err != nil {
				refused++
			} else if len(b.Records) != 3 {
				t.Fatalf("byte %d bit %d: %d records without an error", i, bit, len(b.Records))
			}
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
	// More records claimed than there are, and fewer.
	for _, n := range []uint32{2, 4} {
		data := bytes.Clone(good)
		binary.BigEndian.PutUint32(data[57:], n)
		binary.BigEndian.PutUint32(data[23:], 9)
		rb, _, err := parseBatch(seal(data), &protocol.Sums{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := recordsOf(&rb, 0); err == nil {
			t.Errorf("%d records claimed, 3 there: no error", n)
		}
	}
}

func TestAppendTime(t *testing.T) {
	data := smallBatch(3)
	for _, r := range decodeAll(t, seal(data), 0) {
		if r.Appended {
			t.Errorf("offset %d has the producer's time", r.Offset)
		}
	}
	data[22] |= attrAppend
	binary.BigEndian.PutUint64(data[35:], 5000) // max timestamp: the broker's clock
	for _, r := range decodeAll(t, seal(data), 0) {
		if r.Time.UnixMilli() != 5000 || !r.Appended {
			t.Errorf("offset %d has time %v, by the broker: %t", r.Offset, r.Time, r.Appended)
		}
	}
}

// testPartition is a partition for tests that need no broker.
func testPartition() *partition {
	c := &Consumer{cfg: Config{Topic: "t", Fetching: Fetching{MaxMessageBytes: 1 << 20, FetchBytes: 1 << 20, BufferBytes: 8 << 20}}, total: newTotal(64 << 20), log: zerolog.Nop()}
	return c.newPartition(0)
}

// splitterOf is a splitter of a fetch response.
func splitterOf(t testing.TB, p *partition, result *protocol.Fetched) *splitter {
	t.Helper()
	buf := getBuffer(1)
	if err := p.budget.acquire(context.Background(), int64(cap(buf)), 0); err != nil {
		t.Fatal(err)
	}
	s := p.splitter(result, p.budget, Saved{}, nil)
	s.memory = newMemory(buf, p.budget)
	return s
}

// splitAll runs a fetch response through a splitter.
func splitAll(t testing.TB, p *partition, result *protocol.Fetched, at int64) (offsets []int64, end Saved, err error) {
	t.Helper()
	offsets, refused, end, err := splitRefusing(t, p, result, at)
	if len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	return offsets, end, err
}

// splitRefusing is splitAll with the stretches that cannot be read.
func splitRefusing(t testing.TB, p *partition, result *protocol.Fetched, at int64) (offsets []int64, refused []Refused, end Saved, err error) {
	t.Helper()
	next := at
	s := splitterOf(t, p, result)
	s.at.Next = at
	s.emit = func(b *Batch) error {
		if len(b.Records) > 0 && len(b.Refused) > 0 {
			t.Error("records and refused stretches in one batch")
		}
		for _, r := range b.Records {
			if r.Offset < next {
				t.Errorf("offset %d after position %d", r.Offset, next)
			}
			offsets, next = append(offsets, r.Offset), r.Offset+1
		}
		for _, r := range b.Refused {
			if r.First < next || r.Last < r.First || r.Records < 1 || r.Records > r.Last-r.First+1 || r.Reason == nil {
				t.Errorf("refused after position %d: %+v", next, r)
			}
			refused, next = append(refused, r), r.Last+1
		}
		if b.Position.Next < next {
			t.Errorf("position %d after offset %d", b.Position.Next, next-1)
		}
		if n := len(b.Records); n > maxRecords {
			t.Errorf("%d records in a batch", n)
		}
		if n := len(b.headers); n > 2*maxHeaders {
			t.Errorf("%d headers in a batch", n)
		}
		if n := len(b.Records); n > 0 && b.Position.Last.Offset == b.Records[n-1].Offset && b.Position.Last != FingerprintOf(&b.Records[n-1]) {
			t.Errorf("the fingerprint is not that of the last record")
		}
		b.Release()
		return nil
	}
	end, err = s.split(context.Background())
	if used := p.budget.outstanding(); used != 0 {
		t.Errorf("%d bytes are not given back", used)
	}
	return offsets, refused, end, err
}

// A record batch of many records is delivered in parts, lest small records take
// many times their bytes; one that cannot be read on is refused from there on.
func TestRecordBatchInParts(t *testing.T) {
	const many = 2*maxRecords + maxRecords/2
	plain := smallBatch(many)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(plain[batchHeader:])
	w.Close()
	zipped := append(bytes.Clone(plain[:batchHeader]), packed.Bytes()...)
	binary.BigEndian.PutUint32(zipped[8:], uint32(len(zipped)-batchPrefix))
	zipped[22] |= byte(compress.Gzip)
	for name, batch := range map[string][]byte{"plain": plain, "gzip": seal(zipped)} {
		both := slices.Concat(batch, at(many, smallBatch(maxRecords)))
		for _, from := range []int64{0, 1, maxRecords, many - 1, many} {
			got, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: both}, from)
			want := make([]int64, 0, len(got))
			for o := from; o < many+maxRecords; o++ {
				want = append(want, o)
			}
			if err != nil || end.Next != many+maxRecords || !slices.Equal(got, want) {
				t.Errorf("%s from %d: %d records, position %d, %v", name, from, len(got), end.Next, err)
			}
		}
	}
	short := bytes.Clone(plain[:len(plain)-1])
	binary.BigEndian.PutUint32(short[8:], uint32(len(short)-batchPrefix))
	got, refused, end, err := splitRefusing(t, testPartition(), &protocol.Fetched{Records: seal(short)}, 0)
	if err != nil || len(got) != many-1 || end.Next != many || len(refused) != 1 || refused[0].First != many-1 || refused[0].Records != 1 {
		t.Errorf("cut off: %d records, refused %v, position %d, %v", len(got), refused, end.Next, err)
	}
}

// withHeaders is a batch of records of so many headers each.
func withHeaders(records, headers int) []byte {
	var w batchWriter
	w.reset()
	for range records {
		w.add(nil, []byte("x"), make([]Header, headers), time.UnixMilli(1))
	}
	return w.finish(-1, -1, 0)
}

// Headers, which may be of two bytes, take twenty times as much in memory:
// how many a batch has does not grow with what a producer sends.
func TestHeadersAreBounded(t *testing.T) {
	got, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: withHeaders(250, maxHeaders/10)}, 0)
	if err != nil || len(got) != 250 || end.Next != 250 {
		t.Errorf("%d records, position %d, %v", len(got), end.Next, err)
	}
	var omitted []int
	s := splitterOf(t, testPartition(), &protocol.Fetched{
		Records: slices.Concat(withHeaders(1, maxHeaders), at(1, withHeaders(1, maxHeaders+1)), at(2, smallBatch(1))),
	})
	s.emit = func(b *Batch) error {
		for _, r := range b.Records {
			omitted = append(omitted, r.OmittedHeaders)
			if len(r.Headers) > 0 && r.OmittedHeaders > 0 || r.Value == nil {
				t.Errorf("%d headers, and %d are left out", len(r.Headers), r.OmittedHeaders)
			}
		}
		b.Release()
		return nil
	}
	end, err = s.split(t.Context())
	if err != nil || end.Next != 3 || !slices.Equal(omitted, []int{0, maxHeaders + 1, 0}) {
		t.Errorf("left out %v, position %d, %v", omitted, end.Next, err)
	}
	bomb := withHeaders(1, 500_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got, _, err := splitAll(t, testPartition(), &protocol.Fetched{Records: bomb}, 0); err != nil || len(got) != 1 {
		t.Errorf("half a million headers: %d records, %v", len(got), err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
}

// A record batch beyond the limits, or not encoded as it should be, is refused as a
// stretch of offsets where its checksum is right, and reading goes on behind it. One
// whose checksum is wrong is an error.
func TestRefusedBatches(t *testing.T) {
	const limit = 1 << 20 // of testPartition
	packed := func(codec compress.Compression, records int, payload []byte) []byte {
		var w batchWriter
		w.reset()
		w.buf = append(w.buf, payload...)
		w.count = records
		if err := w.pack(codec); err != nil {
			t.Fatal(err)
		}
		return w.finish(-1, -1, 0)
	}
	for name, bad := range map[string][]byte{
		"too large as sent":      packed(compress.None, 3, make([]byte, limit+1)),
		"too large decompressed": packed(compress.Zstd, 3, make([]byte, limit+1)),
		"not compressed":         withCodec(compress.Gzip, packed(compress.None, 3, []byte("no gzip"))),
		"of an unknown codec":    withCodec(7, packed(compress.None, 3, []byte("anything"))),
		"no records":             packed(compress.None, 3, []byte("no records, but bytes enough for three")),
		"fewer bytes":            packed(compress.None, 3, nil),
		"many records":           withCount(1<<30, smallBatch(3)),
		"a negative count":       withCount(1<<31, smallBatch(3)),
	} {
		log := slices.Concat(smallBatch(2), at(2, bytes.Clone(bad)), at(5, smallBatch(1)))
		for _, from := range []int64{0, 3, 5} {
			got, refused, end, err := splitRefusing(t, testPartition(), &protocol.Fetched{Records: log}, from)
			want := []int64{0, 1, 5}[min(from, 2):] // from 3 on the first two are behind
			if err != nil || !slices.Equal(got, want) || end.Next != 6 {
				t.Errorf("%s, from %d: offsets %v, position %d, %v", name, from, got, end.Next, err)
			}
			if from == 5 && len(refused) > 0 || from < 5 && (len(refused) != 1 || refused[0].First != max(2, from) || refused[0].Last != 4) {
				t.Errorf("%s, from %d: refused %v", name, from, refused)
			}
		}
		log[len(smallBatch(2))+crcStart] ^= 1
		var corrupt *corruptError
		if _, refused, _, err := splitRefusing(t, testPartition(), &protocol.Fetched{Records: log}, 0); !errors.As(err, &corrupt) || len(refused) > 0 {
			t.Errorf("%s and damaged: refused %v, %v", name, refused, err)
		}
	}
}

// withCount says how many records a batch has.
func withCount(n uint32, data []byte) []byte {
	binary.BigEndian.PutUint32(data[57:], n)
	return seal(data)
}

// withCodec says that a batch is compressed.
func withCodec(codec compress.Compression, data []byte) []byte {
	data[22] |= byte(codec)
	return seal(data)
}

// A record batch that is larger than the response limit is known by its header and
// the checksum of what was dropped.
func TestRefusedBeyondTheResponse(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var w batchWriter
	w.reset()
	for range 4 {
		value := make([]byte, 400_000+rng.IntN(1000))
		value[0] = byte(rng.Uint32())
		w.add(nil, value, nil, time.UnixMilli(1))
	}
	batch := at(7, w.finish(-1, -1, 0))
	for _, kept := range []int{batchHeader, 100, 300_000, len(batch) - 1} {
		result := &protocol.Fetched{Records: batch[:kept], Rest: protocol.Rest{Size: len(batch) - kept, Sum: crc32.Checksum(batch[kept:], protocol.Castagnoli)}}
		got, refused, end, err := splitRefusing(t, testPartition(), result, 8)
		if err != nil || len(got) > 0 || end.Next != 11 || len(refused) != 1 || refused[0].First != 8 || refused[0].Records != 3 {
			t.Errorf("%d bytes kept: offsets %v, refused %v, position %d, %v", kept, got, refused, end.Next, err)
		}
		result.Rest.Sum ^= 1
		var corrupt *corruptError
		if _, _, _, err := splitRefusing(t, testPartition(), result, 8); !errors.As(err, &corrupt) {
			t.Errorf("%d bytes kept, damaged: %v", kept, err)
		}
	}
}

// Markers count as what was read last, and are seen again by whoever looks for them.
func TestMarkersAreRead(t *testing.T) {
	log := slices.Concat(txn(0, 1, 2), marker(2, 1, 1), txn(3, 1, 1), marker(4, 1, 1))
	_, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: log}, 0)
	if err != nil || end.Next != 5 || end.Last.Offset != 4 {
		t.Fatalf("position %+v, %v", end, err)
	}
	s := splitterOf(t, testPartition(), &protocol.Fetched{Records: log})
	s.all = true
	var seen []Fingerprint
	s.emit = func(b *Batch) error {
		for i := range b.Records {
			seen = append(seen, FingerprintOf(&b.Records[i]))
		}
		b.Release()
		return nil
	}
	if _, err := s.split(t.Context()); err != nil || len(seen) != 5 || seen[4] != end.Last || seen[2] == end.Last {
		t.Errorf("seen %v, last %v, %v", seen, end.Last, err)
	}
}

// at moves a batch to a base offset, which the CRC does not cover.
func at(base int64, data []byte) []byte {
	binary.BigEndian.PutUint64(data, uint64(base))
	return data
}

// withLast sets the last offset that a batch stands for.
func withLast(delta uint32, data []byte) []byte {
	binary.BigEndian.PutUint32(data[23:], delta)
	return seal(data)
}

// TestCompactedTail is what kafka-go's own decoder cannot get past: the last
// records of a batch are gone, or all of them.
func TestCompactedTail(t *testing.T) {
	tail := at(10, withLast(9, smallBatch(2)))
	for _, from := range []int64{10, 11, 12, 19} {
		got, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: tail}, from)
		if err != nil || end.Next != 20 {
			t.Errorf("from %d: position %d, %v", from, end.Next, err)
		}
		if want := max(0, 12-from); int64(len(got)) != want {
			t.Errorf("from %d: offsets %v", from, got)
		}
	}
	empty := bytes.Clone(smallBatch(1)[:batchHeader])
	binary.BigEndian.PutUint32(empty[57:], 0)
	if got, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: at(10, withLast(4, empty))}, 10); err != nil || len(got) > 0 || end.Next != 15 {
		t.Errorf("an empty batch: %v, %d, %v", got, end.Next, err)
	}
}

func TestSplitCutAndDamaged(t *testing.T) {
	one, two := at(0, smallBatch(3)), at(3, smallBatch(3))
	both := slices.Concat(one, two)
	for cut := len(one); cut < len(both); cut++ {
		got, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: both[:cut]}, 0)
		if err != nil || end.Next != 3 || len(got) != 3 {
			t.Fatalf("cut at %d: %v, %d, %v", cut, got, end.Next, err)
		}
	}
	var corrupt *corruptError
	if _, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: both[:40]}, 0); !errors.As(err, &corrupt) || end.Next != 0 {
		t.Errorf("a first batch that is cut: %d, %v", end.Next, err)
	}
	both[len(both)-1] ^= 1
	got, end, err := splitAll(t, testPartition(), &protocol.Fetched{Records: both}, 0)
	if !errors.As(err, &corrupt) || corrupt.base != 3 || end.Next != 3 || len(got) != 3 {
		t.Errorf("a second batch that is damaged: %v, %d, %v", got, end.Next, err)
	}
}

// txn makes a batch of a transaction's producer.
func txn(base, producer int64, n int) []byte {
	data := smallBatch(n)
	data[22] |= attrTxn
	binary.BigEndian.PutUint64(data[43:], uint64(producer))
	return at(base, seal(data))
}

// marker makes a control batch: 0 aborts, 1 commits.
func marker(base, producer int64, kind byte) []byte {
	var w batchWriter
	w.reset()
	w.add([]byte{0, 0, 0, kind}, []byte{0, 0, 0, 0, 0, 0}, nil, time.UnixMilli(1))
	data := bytes.Clone(w.finish(producer, 0, -1))
	data[22] |= attrTxn | attrControl
	return at(base, seal(data))
}

func TestAbortedTransactions(t *testing.T) {
	log := slices.Concat(
		txn(0, 1, 2), // aborted
		at(2, smallBatch(1)),
		txn(3, 2, 1),    // committed
		txn(4, 1, 1),    // aborted
		marker(5, 1, 0), // abort of 1
		txn(6, 1, 1),    // committed
		marker(7, 2, 1), // commit of 2
		txn(8, 2, 1),    // aborted
		marker(9, 1, 1), // commit of 1
		marker(10, 2, 0),
	)
	// Unsorted, as brokers may send it.
	result := &protocol.Fetched{Records: log, Aborted: []protocol.AbortedTxn{{Producer: 2, First: 8}, {Producer: 1, First: 0}}}
	got, end, err := splitAll(t, testPartition(), result, 0)
	if want := []int64{2, 3, 6}; err != nil || !slices.Equal(got, want) || end.Next != 11 {
		t.Errorf("offsets %v, want %v; position %d, %v", got, want, end.Next, err)
	}
}

func TestFingerprint(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	// Saved positions outlive a version: this value must not change.
	if got, want := FingerprintOf(&Record{Offset: 5, Time: at, Key: []byte("key"), Value: []byte("value")}),
		(Fingerprint{Offset: 5, CRC: 0x10761a03, Millis: 1_700_000_000_123}); got != want {
		t.Errorf("got %#v, want %#v", got, want)
	}
	seen := map[Fingerprint]string{}
	for _, r := range []Record{
		{}, {Offset: 1}, {Time: at}, {Key: []byte{}}, {Value: []byte{}}, {Key: []byte("a")}, {Value: []byte("a")},
		{Key: []byte("a"), Value: []byte("b")}, {Key: []byte("ab")}, {Value: []byte("ab")}, {Key: []byte("ab"), Value: []byte{}},
	} {
		f := FingerprintOf(&r)
		if other, twice := seen[f]; twice || f == (Fingerprint{}) {
			t.Errorf("%+v has the fingerprint of %s", r, other)
		}
		seen[f] = fmt.Sprintf("%+v", r)
	}
}

// summed is a buffer's sums, which has come in pieces.
func summed(rng *rand.Rand, data []byte) protocol.Sums {
	var s protocol.Sums
	for n := 0; n < len(data); {
		n += 1 + rng.IntN(min(len(data)-n, 48<<10))
		s.Extend(data[:n])
	}
	return s
}

// Checksums of batches and fingerprints of records (splitAll compares) are put
// together from those of what has come, and see a change of any bit.
func TestLongRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range 50 {
		var w batchWriter
		w.reset()
		for range 1 + i%2 {
			r := randomRecord(rng)
			r.Value = make([]byte, rng.IntN(256<<10))
			for j := range r.Value {
				r.Value[j] = byte(rng.Uint32())
			}
			w.add(r.Key, r.Value, r.Headers, r.Time)
		}
		head := rng.IntN(100)
		body := slices.Concat(make([]byte, head), at(5, bytes.Clone(w.finish(-1, -1, -1))), at(9, smallBatch(1+i%3)))
		result := &protocol.Fetched{Records: body[head:], Sums: summed(rng, body)}
		if got, end, err := splitAll(t, testPartition(), result, 5); err != nil || len(got) != 2+i%2+i%3 {
			t.Fatalf("%d bytes: offsets %v, position %d, %v", w.size(), got, end.Next, err)
		}
		body[head+crcStart+rng.IntN(w.size()-crcStart)] ^= 1 << rng.IntN(8)
		s := summed(rng, body)
		var corrupt *corruptError
		if _, _, err := parseBatch(body[head:], &s); !errors.As(err, &corrupt) {
			t.Fatalf("%d bytes, one changed: %v", w.size(), err)
		}
	}
}

// What every byte goes through between the network and a sink.
func BenchmarkSplit(b *testing.B) {
	var w batchWriter
	w.reset()
	w.add(nil, make([]byte, 1_000_000), nil, time.UnixMilli(1))
	result := &protocol.Fetched{Records: w.finish(-1, -1, -1)}
	p := testPartition()
	b.SetBytes(int64(len(result.Records)))
	for b.Loop() {
		result.Sums = protocol.Sums{}
		result.Sums.Extend(result.Records)
		s := p.splitter(result, p.budget, Saved{}, func(b *Batch) error { b.Release(); return nil })
		if _, err := s.split(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzRecordBatch(f *testing.F) {
	f.Add(smallBatch(3), false)
	f.Add(txn(0, 1, 2), false)
	f.Add(marker(5, 1, 0), true)
	f.Add(at(10, withLast(9, smallBatch(2))), true)
	f.Fuzz(func(t *testing.T, data []byte, mend bool) {
		data = bytes.Clone(data)
		if mend && len(data) >= batchHeader {
			seal(data) // so that the fuzzer gets past the CRC
		}
		rb, size, err := parseBatch(data, &protocol.Sums{})
		if err != nil {
			return
		}
		if size > len(data) || rb.last() < rb.FirstOffset {
			t.Fatalf("%d bytes of %d, offsets %d to %d, %d records", size, len(data), rb.FirstOffset, rb.last(), int(rb.NumRecords))
		}
		if rb.Attributes&attrControl != 0 {
			rb.marker()
		}
		b, err := recordsOf(&rb, rb.FirstOffset)
		if err != nil {
			return
		}
		if len(b.Records) != int(rb.NumRecords) && len(b.headers) < maxHeaders {
			t.Fatalf("%d records of %d", len(b.Records), int(rb.NumRecords))
		}
		previous := rb.FirstOffset - 1
		for _, r := range b.Records {
			if r.Offset <= previous || r.Offset > rb.last() {
				t.Fatalf("offset %d after %d in a batch up to %d", r.Offset, previous, rb.last())
			}
			previous = r.Offset
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add(slices.Concat(txn(0, 1, 2), at(2, smallBatch(1)), marker(3, 1, 0)), int64(0), int64(0), int64(1))
	f.Add(at(10, withLast(9, smallBatch(2))), int64(12), int64(5), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, from, aborted, producer int64) {
		if from < 0 {
			return
		}
		p := testPartition()
		offsets, _, end, err := splitRefusing(t, p, &protocol.Fetched{Records: data, Aborted: []protocol.AbortedTxn{{Producer: producer, First: aborted}}}, from)
		if end.Next < from || err == nil && len(offsets) > 0 && end.Next <= offsets[len(offsets)-1] {
			t.Fatalf("from %d: offsets %v, position %d", from, offsets, end.Next)
		}
		previous := from - 1
		for _, o := range offsets {
			if o <= previous {
				t.Fatalf("offset %d after %d", o, previous)
			}
			previous = o
		}
	})
}
