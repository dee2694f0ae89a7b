package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"streamd/ingest/kafka/protocol"
)

// Record is one record of a partition. Its slices are views of the batch's buffers. Nil and
// empty differ, as they do in Kafka.
type Record struct {
	Offset  int64
	Time    time.Time // to the millisecond; zero: the record has none
	Key     []byte    // nil: no key
	Value   []byte    // nil: a tombstone
	Headers []Header

	// OmittedHeaders is the number of the record's headers if there are more than 16,384.
	// Headers is empty then, and the record must not be used.
	OmittedHeaders int

	// Appended says that the broker set Time when it appended the record
	// (message.timestamp.type=LogAppendTime).
	Appended bool

	codec compress.Compression // of its record batch
}

// Header is a name and a value. Names may repeat.
type Header struct {
	Key   string
	Value []byte // nil: null
}

// Batch is consecutive records of one partition, in offset order. Offsets may be missing in
// between. A batch without records moves Position, past aborted data for instance, or holds
// refused stretches.
//
// A batch belongs to its receiver until Release. After that the batch and everything its
// records point to are invalid.
type Batch struct {
	Partition int
	Records   []Record
	Refused   []Refused // in offset order; if there are any, Records is empty

	// Position is where reading continues after this batch: the position to save. It may
	// lie beyond the last record.
	Position Saved

	headers []Header // the records' headers view it
	memory  []*memory
	names   *interner
}

var batchPool = sync.Pool{New: func() any { return new(Batch) }}

func newBatch(partition int, names *interner) *Batch {
	b := batchPool.Get().(*Batch)
	b.Partition, b.names = partition, names
	return b
}

// NewBatch makes a batch of records that are in memory. It takes the slice over, and nothing behind
// its end: a released batch is filled again, and another one may have what follows in the array.
func NewBatch(partition int, records []Record, position Saved) *Batch {
	b := newBatch(partition, new(interner))
	b.Records, b.Position = slices.Clip(records), position
	return b
}

// Refused is a stretch of records that cannot be read: their record batch is larger than
// the limit, as sent or decompressed, or is not encoded as a record batch should be. Its
// checksum is right, so a producer sent it so.
type Refused struct {
	First, Last int64 // offsets
	Records     int64 // as the record batch's header says; 1 or more
	Reason      error
}

// Release returns the buffers. It panics when called twice.
func (b *Batch) Release() {
	if b.names == nil {
		panic("kafka: batch released twice")
	}
	for _, m := range b.memory {
		m.release()
	}
	clear(b.Records)
	clear(b.Refused)
	clear(b.headers)
	clear(b.memory)
	*b = Batch{Records: b.Records[:0], Refused: b.Refused[:0], headers: b.headers[:0], memory: b.memory[:0]}
	batchPool.Put(b)
}

// interner keeps one string for each header name. A topic has few of them.
type interner struct{ names map[string]string }

// A producer of random names can make an interner remember no more than these.
const maxNames, maxNameBytes = 256, 128

func (in *interner) string(b []byte) string {
	if s, ok := in.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(in.names) < maxNames && len(s) <= maxNameBytes {
		if in.names == nil {
			in.names = make(map[string]string)
		}
		in.names[s] = s
	}
	return s
}

// Saved is a position in a partition, together with the last record read before it.
type Saved struct {
	Next int64 // offset of the first record not yet processed
	Last Fingerprint

	// Done, when above Next, says that the records from Next to Done have been processed,
	// but should be read once more if the log still has them all.
	Done int64
}

// Fingerprint identifies a record. It distinguishes a position from the same offset in
// another log of the same name. The zero Fingerprint stands for no record.
type Fingerprint struct {
	Offset int64
	CRC    uint32 // CRC-32C over key and value, each behind its length
	Millis int64  // the record's time, in milliseconds since 1970
}

// FingerprintOf computes the fingerprint of r.
func FingerprintOf(r *Record) Fingerprint { return fingerprint(r, &protocol.Sums{}) }

// fingerprint is FingerprintOf. It is quick where the record's value is in the buffer of
// sums.
func fingerprint(r *Record, sums *protocol.Sums) Fingerprint {
	f := Fingerprint{Offset: r.Offset, Millis: -1}
	if !r.Time.IsZero() {
		f.Millis = r.Time.UnixMilli()
	}
	length := func(v []byte) {
		n := int64(len(v))
		if v == nil {
			n = -1
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		f.CRC = crc32.Update(f.CRC, protocol.Castagnoli, b[:])
	}
	length(r.Key)
	f.CRC = crc32.Update(f.CRC, protocol.Castagnoli, r.Key)
	length(r.Value)
	f.CRC = sums.Update(f.CRC, r.Value)
	return f
}
