package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

// Batch is consecutive records of one partition, in offset order; offsets may be
// missing in between. There may be none, when only Position has moved (past
// aborted data, say), or when it has refused stretches instead.
//
// It belongs to whoever received it until Release, and is then invalid, with all
// that its records point to.
type Batch struct {
	Partition int
	Records   []Record
	Refused   []Refused // in offset order; not empty: there are no Records

	// Position is where to go on after this batch, which may be beyond the last
	// record: what to save.
	Position Saved

	headers []Header
	memory  []*memory
	names   *interner
}

var batchPool = sync.Pool{New: func() any { return new(Batch) }}

// Refused is a stretch of records that cannot be read: their record batch is larger
// than the limit, as sent or decompressed, or is not encoded as a record batch
// should be. Its checksum is right: a producer sent it so.
type Refused struct {
	First, Last int64 // offsets
	Records     int64 // as the record batch's header says; 1 or more
	Reason      error
}

// Release gives the buffers back. It panics when called twice.
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

// interner keeps one string for each header name, of which a topic has few.
type interner struct{ names map[string]string }

// maxNames bounds what a producer of random names can make it remember.
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

// Saved is a position in a partition together with what was last read before it.
type Saved struct {
	Next int64 // offset of the first record not yet processed
	Last Fingerprint

	// Done, when above Next, says that the records from Next to Done have been
	// processed, but are to be read once more if the log still has them all.
	Done int64
}

// Fingerprint identifies a record, so that a position can be told from the same
// offset in another log of the same name. The zero Fingerprint is none.
type Fingerprint struct {
	Offset int64
	CRC    uint32 // CRC-32C over key and value, each behind its length
	Millis int64  // the record's time, in milliseconds since 1970
}

// FingerprintOf computes the fingerprint of r.
func FingerprintOf(r *Record) Fingerprint { return fingerprint(r, &sums{}) }

// fingerprint is FingerprintOf, of a record that may be a part of what sums knows.
func fingerprint(r *Record, sums *sums) Fingerprint {
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
		f.CRC = crc32.Update(f.CRC, castagnoli, b[:])
	}
	length(r.Key)
	f.CRC = crc32.Update(f.CRC, castagnoli, r.Key)
	length(r.Value)
	f.CRC = sums.update(f.CRC, r.Value)
	return f
}
