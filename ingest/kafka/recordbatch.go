package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is one record of a partition. Its slices are views of the batch's
// buffers. Nil and empty are different things here as in Kafka.
type Record struct {
	Offset  int64
	Time    time.Time // to the millisecond; zero: the record has none
	Key     []byte    // nil: no key
	Value   []byte    // nil: a tombstone
	Headers []Header

	// OmittedHeaders is how many headers the record has when these are more than can
	// be taken, 16,384. Headers is empty then, and the record is not to be used.
	OmittedHeaders int

	// Appended says that the broker set Time when it appended the record
	// (message.timestamp.type=LogAppendTime).
	Appended bool

	codec compress.Compression // of its record batch
}

// Header is a name and a value; names may repeat.
type Header struct {
	Key   string
	Value []byte // nil: null
}

// A record batch, the unit in which records are stored, compressed and
// checksummed:
//
//	 0  base offset           int64
//	 8  length                int32  of what follows
//	12  leader epoch          int32
//	16  magic                 int8   2
//	17  crc                   uint32 CRC-32C of what follows
//	21  attributes            int16  0–2 codec, 3 append time, 4 transactional, 5 control
//	23  last offset delta     int32
//	27  base timestamp        int64
//	35  max timestamp         int64
//	43  producer id           int64
//	51  producer epoch        int16
//	53  base sequence         int32
//	57  records               int32
//	61  the records, compressed as a whole
//
// https://kafka.apache.org/documentation/#recordbatch
type recordBatch struct{ kmsg.RecordBatch }

// last is the offset that the batch ends with. Records before it may have been
// compacted away.
func (b *recordBatch) last() int64 { return b.FirstOffset + int64(b.LastOffsetDelta) }

func (b *recordBatch) codec() compress.Compression {
	return compress.Compression(b.Attributes & attrCodec)
}

const (
	batchPrefix  = 12 // base offset and length
	batchHeader  = 61
	crcStart     = 21
	minRecord    = 7 // a byte for each of its seven parts
	attrCodec    = 0x07
	attrAppend   = 0x08
	attrTxn      = 0x10
	attrControl  = 0x20
	controlAbort = 0
)

// errCut says that the data ends within a batch, as a response does whose size
// was limited.
var errCut = errors.New("the data ends within a record batch")

// A corruptError says that what was read cannot be what was written: its checksum or
// its framing is wrong.
type corruptError struct {
	base   int64
	reason string
}

func (e *corruptError) Error() string {
	return fmt.Sprintf("corrupt record batch at offset %d: %s", e.base, e.reason)
}

// mostHeaders bounds the headers of a record, and about those of a Batch: in memory
// each takes twenty times the two bytes that it may have been sent in.
const mostHeaders = 1 << 14

// parseBatch reads the batch at the start of data, a part of what sums knows, and
// returns the bytes it takes, after checking its CRC. The payload is a view of
// data.
func parseBatch(data []byte, sums *sums) (b recordBatch, size int, err error) {
	d := kbin.Reader{Src: data}
	base, length := d.Int64(), int(d.Int32())
	if !d.Ok() {
		return b, 0, errCut
	}
	corrupt := func(format string, args ...any) (recordBatch, int, error) {
		return b, 0, &corruptError{base, fmt.Sprintf(format, args...)}
	}
	if base < 0 || length < batchHeader-batchPrefix {
		// The old formats have no 49 bytes of header; look at the magic first.
		if len(data) > 16 && base >= 0 && data[16] < 2 && length > 4 {
			return corrupt("format %d, from before Kafka 0.11, is not supported", data[16])
		}
		return corrupt("length %d", length)
	}
	if size = batchPrefix + length; size > len(data) {
		return b, size, errCut
	}
	b, err = parseHeader(data[:size], sums.update(0, data[crcStart:size]))
	return b, size, err
}

// parseHeader reads the header of a batch. Its checksum from crcStart on is sum. Where data
// is but the beginning of the batch, the records are nil.
func parseHeader(data []byte, sum uint32) (b recordBatch, err error) {
	b.ReadFrom(data) // an error says that records are missing
	corrupt := func(format string, args ...any) (recordBatch, error) {
		return b, &corruptError{b.FirstOffset, fmt.Sprintf(format, args...)}
	}
	switch {
	case b.Magic >= 0 && b.Magic < 2:
		return corrupt("format %d, from before Kafka 0.11, is not supported", b.Magic)
	case b.Magic != 2:
		return corrupt("unknown format %d", uint8(b.Magic))
	case uint32(b.CRC) != sum:
		return corrupt("CRC-32C is %08x, should be %08x", sum, uint32(b.CRC))
	case b.last() < b.FirstOffset:
		return corrupt("the last offset is %d", b.last())
	}
	return b, nil
}

// controlType returns the type of a control batch's marker.
func (b *recordBatch) controlType() (kmsg.ControlRecordKeyType, error) {
	d := kbin.Reader{Src: b.Records}
	d.Varint()  // length
	d.Int8()    // attributes
	d.Varlong() // timestamp
	d.Varint()  // offset
	var key kmsg.ControlRecordKey
	if err := key.ReadFrom(d.VarintBytes()); err != nil {
		return 0, &corruptError{b.FirstOffset, "a control record without a type"}
	}
	return key.Type, nil
}

// A recordReader reads the records of a batch, some at a time. kmsg's reading of a record
// does not say where it ends, and allocates as many headers as bytes follow.
type recordReader struct {
	b        *recordBatch
	d        kbin.Reader
	left     int
	previous int64 // offset
}

// records reads from the payload, decompressed. The records view it.
func (b *recordBatch) records(payload []byte) (recordReader, error) {
	count, first, last := int64(b.NumRecords), b.FirstOffset, b.last()
	r := recordReader{b: b, d: kbin.Reader{Src: payload}, left: int(count), previous: first - 1}
	if count < 0 || count > last-first+1 || count > int64(len(payload)/minRecord) {
		return r, fmt.Errorf("a record batch from offset %d to %d has %d records in %d bytes", first, last, count, len(payload))
	}
	return r, nil
}

// appendTo appends records at and after offset from to out, until it has most of
// them, or many headers, or none is left.
func (r *recordReader) appendTo(out *Batch, from int64, most int) error {
	for ; r.left > 0 && len(out.Records) < most && len(out.headers) < mostHeaders; r.left-- {
		if err := r.appendOne(out, from); err != nil {
			return err
		}
	}
	if r.left == 0 && len(r.d.Src) != 0 {
		return fmt.Errorf("%d bytes are left after the %d records of a record batch", len(r.d.Src), r.b.NumRecords)
	}
	return nil
}

func (r *recordReader) appendOne(out *Batch, from int64) error {
	b := r.b
	d := kbin.Reader{Src: r.d.VarintBytes()} // empty, which is no record, where the batch ends
	d.Int8()                                 // attributes, all unused
	timestamp := b.FirstTimestamp + d.Varlong()
	if b.Attributes&attrAppend != 0 {
		timestamp = b.MaxTimestamp
	}
	offset := b.FirstOffset + int64(d.Varint())
	key, value := d.VarintBytes(), d.VarintBytes()
	headers := int(d.Varint())
	if !d.Ok() || headers < 0 || headers > len(d.Src)/2 {
		return fmt.Errorf("the record after offset %d is not encoded as a record", r.previous)
	}
	if offset <= r.previous || offset > b.last() {
		return fmt.Errorf("offset %d comes after %d in a record batch up to %d", offset, r.previous, b.last())
	}
	omitted := 0
	if headers > mostHeaders {
		omitted, headers, d.Src = headers, 0, nil
	}
	first := len(out.headers)
	for range headers {
		name := d.VarintBytes()
		h := Header{Key: out.names.string(name), Value: d.VarintBytes()}
		if offset >= from {
			out.headers = append(out.headers, h)
		}
	}
	if !d.Ok() || len(d.Src) != 0 {
		return fmt.Errorf("the record at offset %d is not encoded as a record", offset)
	}
	r.previous = offset
	if offset < from {
		return nil
	}
	rec := Record{
		Offset: offset, Key: key, Value: value,
		OmittedHeaders: omitted, Appended: b.Attributes&attrAppend != 0,
		codec: b.codec(),
	}
	if timestamp >= 0 {
		rec.Time = time.UnixMilli(timestamp).UTC()
	}
	if n := len(out.headers); n > first {
		rec.Headers = out.headers[first:n:n]
	}
	out.Records = append(out.Records, rec)
	return nil
}

// batchWriter encodes a record batch. Its buffer is reused.
type batchWriter struct {
	buf      []byte
	codec    compress.Compression
	count    int
	baseTime int64
	maxTime  int64
	headers  []kmsg.Header // of the record that is being added
}

func (w *batchWriter) reset() {
	w.buf = append(w.buf[:0], make([]byte, batchHeader)...)
	w.count, w.codec = 0, compress.None
}

// size is the encoded size so far.
func (w *batchWriter) size() int { return len(w.buf) }

// recordOverhead bounds what a record takes besides its key, value and headers:
// seven varints of at most ten bytes.
const recordOverhead = 70

func recordSize(key, value []byte, headers []Header) int {
	n := recordOverhead + len(key) + len(value)
	for _, h := range headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}

func (w *batchWriter) add(key, value []byte, headers []Header, t time.Time) {
	timestamp := t.UnixMilli()
	if t.IsZero() {
		timestamp = -1
	}
	if w.count == 0 {
		w.baseTime, w.maxTime = timestamp, timestamp
	}
	w.maxTime = max(w.maxTime, timestamp)
	r := kmsg.Record{TimestampDelta64: timestamp - w.baseTime, OffsetDelta: int32(w.count), Key: key, Value: value, Headers: w.headers[:0]}
	length := 1 + kbin.VarlongLen(r.TimestampDelta64) + kbin.VarintLen(r.OffsetDelta) +
		varbytesSize(key) + varbytesSize(value) + kbin.VarintLen(int32(len(headers)))
	for _, h := range headers {
		r.Headers = append(r.Headers, kmsg.Header(h))
		length += kbin.VarintLen(int32(len(h.Key))) + len(h.Key) + varbytesSize(h.Value)
	}
	r.Length = int32(length)
	w.buf, w.headers = r.AppendTo(w.buf), r.Headers
	w.count++
}

// pack compresses the records, to which none may be added any more.
func (w *batchWriter) pack(codec compress.Compression) error {
	if codec == compress.None {
		return nil
	}
	var packed bytes.Buffer
	z := codec.Codec().NewWriter(&packed)
	_, err := z.Write(w.buf[batchHeader:])
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("compress with %v: %w", codec, err)
	}
	w.buf, w.codec = append(w.buf[:batchHeader], packed.Bytes()...), codec
	return nil
}

// finish fills in the header and returns the batch, valid until the next reset.
func (w *batchWriter) finish(producer int64, epoch int16, sequence int32) []byte {
	h := kmsg.RecordBatch{
		Length:               int32(len(w.buf) - batchPrefix),
		PartitionLeaderEpoch: -1, // the broker's
		Magic:                2,
		Attributes:           int16(w.codec),
		LastOffsetDelta:      int32(w.count - 1),
		FirstTimestamp:       w.baseTime,
		MaxTimestamp:         w.maxTime,
		ProducerID:           producer,
		ProducerEpoch:        epoch,
		FirstSequence:        sequence,
		NumRecords:           int32(w.count),
	}
	h.AppendTo(w.buf[:0])
	binary.BigEndian.PutUint32(w.buf[17:], crc32.Checksum(w.buf[crcStart:], castagnoli))
	return w.buf
}

// varbytesSize is the encoded size of bytes behind their length.
func varbytesSize(v []byte) int { return kbin.VarintLen(int32(len(v))) + len(v) }
