package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"time"

	"github.com/segmentio/kafka-go/compress"
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
type recordBatch struct {
	base, last int64 // offsets; records in between may have been compacted away
	attributes int16
	baseTime   int64
	maxTime    int64
	producer   int64
	count      int
	payload    []byte
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
	if len(data) < batchPrefix {
		return b, 0, errCut
	}
	b.base = int64(binary.BigEndian.Uint64(data))
	length := int(int32(binary.BigEndian.Uint32(data[8:])))
	corrupt := func(format string, args ...any) (recordBatch, int, error) {
		return b, 0, &corruptError{b.base, fmt.Sprintf(format, args...)}
	}
	if b.base < 0 || length < batchHeader-batchPrefix {
		// The old formats have no 49 bytes of header; look at the magic first.
		if len(data) > 16 && b.base >= 0 && data[16] < 2 && length > 4 {
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

// parseHeader reads the header of a batch, or of the beginning of one. Its checksum
// from crcStart on is sum.
func parseHeader(data []byte, sum uint32) (b recordBatch, err error) {
	b.base = int64(binary.BigEndian.Uint64(data))
	corrupt := func(format string, args ...any) (recordBatch, error) {
		return b, &corruptError{b.base, fmt.Sprintf(format, args...)}
	}
	if magic := data[16]; magic < 2 {
		return corrupt("format %d, from before Kafka 0.11, is not supported", magic)
	} else if magic > 2 {
		return corrupt("unknown format %d", magic)
	}
	if want := binary.BigEndian.Uint32(data[17:]); want != sum {
		return corrupt("CRC-32C is %08x, should be %08x", sum, want)
	}
	d := decoder{b: data[crcStart:]}
	b.attributes = d.int16()
	b.last = b.base + int64(d.int32())
	b.baseTime, b.maxTime = d.int64(), d.int64()
	b.producer = d.int64()
	d.int16() // epoch
	d.int32() // sequence
	b.count = int(d.int32())
	b.payload = d.b
	if b.last < b.base {
		return corrupt("the last offset is %d", b.last)
	}
	return b, nil
}

// controlType returns the type of a control batch's marker.
func (b *recordBatch) controlType() (int16, error) {
	d := decoder{b: b.payload}
	d.varint() // length
	d.bytes(1) // attributes
	d.varint() // timestamp
	d.varint() // offset
	if key := d.varbytes(); d.err == nil && len(key) >= 4 {
		return int16(binary.BigEndian.Uint16(key[2:])), nil
	}
	return 0, &corruptError{b.base, "a control record without a type"}
}

// A recordReader reads the records of a batch, some at a time.
type recordReader struct {
	b        *recordBatch
	d        decoder
	left     int
	previous int64 // offset
}

// records reads from the payload, decompressed. The records view it.
func (b *recordBatch) records(payload []byte) (recordReader, error) {
	r := recordReader{b: b, d: decoder{b: payload}, left: b.count, previous: b.base - 1}
	if b.count < 0 || int64(b.count) > b.last-b.base+1 || b.count > len(payload)/minRecord {
		return r, fmt.Errorf("a record batch from offset %d to %d has %d records in %d bytes", b.base, b.last, b.count, len(payload))
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
	if r.left == 0 && (r.d.err != nil || len(r.d.b) != 0) {
		return fmt.Errorf("%d bytes are left after the %d records of a record batch", len(r.d.b), r.b.count)
	}
	return nil
}

func (r *recordReader) appendOne(out *Batch, from int64) error {
	b := r.b
	d := decoder{b: r.d.varbytes(), err: r.d.err}
	d.bytes(1) // attributes, all unused
	timestamp := b.baseTime + d.varint()
	if b.attributes&attrAppend != 0 {
		timestamp = b.maxTime
	}
	offset := b.base + d.varint()
	key, value := d.varbytes(), d.varbytes()
	headers := d.varint()
	if d.err != nil || headers < 0 || headers > int64(len(d.b)/2) {
		return fmt.Errorf("the record after offset %d is not encoded as a record", r.previous)
	}
	if offset <= r.previous || offset > b.last {
		return fmt.Errorf("offset %d comes after %d in a record batch up to %d", offset, r.previous, b.last)
	}
	omitted := 0
	if headers > mostHeaders {
		omitted, headers, d.b = int(headers), 0, nil
	}
	first := len(out.headers)
	for range headers {
		name := d.varbytes()
		h := Header{Key: out.names.string(name), Value: d.varbytes()}
		if offset >= from {
			out.headers = append(out.headers, h)
		}
	}
	if d.err != nil || len(d.b) != 0 {
		return fmt.Errorf("the record at offset %d is not encoded as a record", offset)
	}
	r.previous = offset
	if offset < from {
		return nil
	}
	rec := Record{
		Offset: offset, Key: key, Value: value,
		OmittedHeaders: omitted, Appended: b.attributes&attrAppend != 0,
		codec: compress.Compression(b.attributes & attrCodec),
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
	length := 1 + varintSize(timestamp-w.baseTime) + varintSize(int64(w.count)) +
		varbytesSize(key) + varbytesSize(value) + varintSize(int64(len(headers)))
	for _, h := range headers {
		length += varintSize(int64(len(h.Key))) + len(h.Key) + varbytesSize(h.Value)
	}
	b := binary.AppendVarint(w.buf, int64(length))
	b = append(b, 0) // attributes
	b = binary.AppendVarint(b, timestamp-w.baseTime)
	b = binary.AppendVarint(b, int64(w.count))
	b = appendVarbytes(b, key)
	b = appendVarbytes(b, value)
	b = binary.AppendVarint(b, int64(len(headers)))
	for _, h := range headers {
		b = append(binary.AppendVarint(b, int64(len(h.Key))), h.Key...)
		b = appendVarbytes(b, h.Value)
	}
	w.buf = b
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
	h := w.buf[:0]
	h = appendInt64(h, 0)
	h = appendInt32(h, uint32(len(w.buf)-batchPrefix))
	h = appendInt32(h, 1<<32-1) // leader epoch: the broker's
	h = append(h, 2)
	h = appendInt32(h, 0)               // crc
	h = appendInt16(h, uint16(w.codec)) // attributes
	h = appendInt32(h, uint32(w.count-1))
	h = appendInt64(h, w.baseTime)
	h = appendInt64(h, w.maxTime)
	h = appendInt64(h, producer)
	h = appendInt16(h, uint16(epoch))
	h = appendInt32(h, uint32(sequence))
	appendInt32(h, uint32(w.count))
	binary.BigEndian.PutUint32(w.buf[17:], crc32.Checksum(w.buf[crcStart:], castagnoli))
	return w.buf
}

func varintSize(v int64) int {
	zigzag := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

func varbytesSize(v []byte) int {
	if v == nil {
		return 1
	}
	return varintSize(int64(len(v))) + len(v)
}
