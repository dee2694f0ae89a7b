package kafka

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go/compress"

	"streamd/ingest/kafka/protocol"
)

// testPartition makes a partition for tests without a broker.
func testPartition() *partition {
	c := &Consumer{cfg: Config{Topic: "t", Fetching: Fetching{MaxMessageBytes: 1 << 20, FetchBytes: 1 << 20, BufferBytes: 8 << 20}}, total: newTotal(64 << 20), log: zerolog.Nop()}
	return c.newPartition(0)
}

// splitterOf makes a splitter of a fetch response.
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

// splitRefusing is splitAll, and returns refused stretches.
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

// A record batch of many records is delivered in parts, so that small records do not take
// many times their bytes. A batch is refused from its first unreadable record on.
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

// withHeaders makes a batch of records with so many headers each.
func withHeaders(records, headers int) []byte {
	var w batchWriter
	w.reset()
	for range records {
		w.add(nil, []byte("x"), make([]Header, headers), time.UnixMilli(1))
	}
	return w.finish(-1, -1, 0)
}

// A header may be of two bytes, and takes twenty times as much in memory. The number of
// headers in a batch is bounded.
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

// A record batch beyond the limits, or with a wrong encoding, is refused as a stretch of
// offsets if its checksum is right, and reading continues behind it. A wrong checksum is
// an error.
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
			want := []int64{0, 1, 5}[min(from, 2):] // from 3 on, the first two are not wanted
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

// withCount sets the number of records in a batch's header.
func withCount(n uint32, data []byte) []byte {
	binary.BigEndian.PutUint32(data[57:], n)
	return seal(data)
}

// withCodec sets the codec in a batch's header.
func withCodec(codec compress.Compression, data []byte) []byte {
	data[22] |= byte(codec)
	return seal(data)
}

// A record batch larger than the response limit is checked by its header and the checksum
// of the dropped bytes.
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

// A marker counts as the last record read, and a splitter of all records emits it.
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

// withLast sets the last offset of a batch.
func withLast(delta uint32, data []byte) []byte {
	binary.BigEndian.PutUint32(data[23:], delta)
	return seal(data)
}

// The last records of a batch, or all of them, have been compacted away. kafka-go's own
// decoder cannot get past such a batch.
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

// txn makes a batch of a transaction.
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
	// Brokers may send the list unsorted.
	result := &protocol.Fetched{Records: log, Aborted: []protocol.AbortedTxn{{Producer: 2, First: 8}, {Producer: 1, First: 0}}}
	got, end, err := splitAll(t, testPartition(), result, 0)
	if want := []int64{2, 3, 6}; err != nil || !slices.Equal(got, want) || end.Next != 11 {
		t.Errorf("offsets %v, want %v; position %d, %v", got, want, end.Next, err)
	}
}

// summed returns the sums of a buffer that has come in pieces.
func summed(rng *rand.Rand, data []byte) protocol.Sums {
	var s protocol.Sums
	for n := 0; n < len(data); {
		n += 1 + rng.IntN(min(len(data)-n, 48<<10))
		s.Extend(data[:n])
	}
	return s
}

// Checksums of long batches and fingerprints of long records (splitAll compares them),
// combined from the sums of the response, detect a change of any bit.
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

// BenchmarkSplit is the work on every byte between the network and a sink.
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
