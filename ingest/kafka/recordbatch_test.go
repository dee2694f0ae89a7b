package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

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

// decodeAll reads a good batch.
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
		// kmsg reads the same.
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

// seal sets the length and CRC of a batch.
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
	// The count of records is too high, or too low.
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

func TestFingerprint(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	// Saved positions outlive a version, so this value must not change.
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

func FuzzRecordBatch(f *testing.F) {
	f.Add(smallBatch(3), false)
	f.Add(txn(0, 1, 2), false)
	f.Add(marker(5, 1, 0), true)
	f.Add(at(10, withLast(9, smallBatch(2))), true)
	f.Fuzz(func(t *testing.T, data []byte, mend bool) {
		data = bytes.Clone(data)
		if mend && len(data) >= batchHeader {
			seal(data) // to get past the CRC
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
