package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/protocol"
)

// A record batch is the unit in which records are stored, compressed and checksummed:
//
//	 0  base offset           int64
//	 8  length                int32  of the rest
//	12  leader epoch          int32
//	16  magic                 int8   2
//	17  crc                   uint32 CRC-32C of the rest
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

const (
	batchPrefix = 12 // base offset and length
	batchHeader = 61
	crcStart    = 21
	minRecord   = 7 // a byte for each of its seven parts
	attrCodec   = 0x07
	attrAppend  = 0x08
	attrTxn     = 0x10
	attrControl = 0x20
)

// first is the offset that the batch begins with.
func (b *recordBatch) first() int64 { return b.FirstOffset }

// last is the offset that the batch ends with. Any record of the batch may have been
// compacted away.
func (b *recordBatch) last() int64 { return b.FirstOffset + int64(b.LastOffsetDelta) }

func (b *recordBatch) has(attribute int16) bool { return b.Attributes&attribute != 0 }

func (b *recordBatch) codec() compress.Compression {
	return compress.Compression(b.Attributes & attrCodec)
}

// errCut says that the data ends within a batch. Responses do, since their size is limited.
var errCut = errors.New("the data ends within a record batch")

// A corruptError says that data differs from what was written: its checksum or its framing
// is wrong.
type corruptError struct {
	base   int64
	reason string
}

func (e *corruptError) Error() string {
	return fmt.Sprintf("corrupt record batch at offset %d: %s", e.base, e.reason)
}

// parseBatch checks the CRC of the batch at the start of data and returns its size. data is
// part of the buffer of sums. The batch's records are a view of data.
func parseBatch(data []byte, sums *protocol.Sums) (b recordBatch, size int, err error) {
	d := kbin.Reader{Src: data}
	base, length := d.Int64(), int(d.Int32())
	if !d.Ok() {
		return b, 0, errCut
	}
	if base < 0 || length < batchHeader-batchPrefix {
		reason := fmt.Sprintf("length %d", length)
		// The old formats have shorter headers, with the magic in the same place.
		if len(data) > 16 && base >= 0 && data[16] < 2 && length > 4 {
			reason = oldFormat(int8(data[16]))
		}
		return b, 0, &corruptError{base, reason}
	}
	if size = batchPrefix + length; size > len(data) {
		return b, size, errCut
	}
	b, err = parseHeader(data[:size], sums.Update(0, data[crcStart:size]))
	return b, size, err
}

// parseCut reads the header of a batch of so many bytes at the start of r.Records. The end
// of the batch is missing there.
func parseCut(r *protocol.Fetched, data []byte, size int) (b recordBatch, err error) {
	if size != len(data)+r.Rest.Size || len(data) < batchHeader {
		base := int64(-1)
		if d := (kbin.Reader{Src: data}); len(data) >= batchPrefix {
			base = d.Int64()
		}
		return b, &corruptError{base, "the response ends within its first batch"}
	}
	return parseHeader(data, protocol.Combine(r.Sums.Update(0, data[crcStart:]), r.Rest.Sum, r.Rest.Size))
}

// parseHeader reads a batch of which data holds the header at least. sum is the checksum of
// the batch from crcStart on. The records are nil where they are cut off.
func parseHeader(data []byte, sum uint32) (b recordBatch, err error) {
	b.ReadFrom(data) // fails for the records alone
	reason := ""
	switch {
	case b.Magic >= 0 && b.Magic < 2:
		reason = oldFormat(b.Magic)
	case b.Magic != 2:
		reason = fmt.Sprintf("unknown format %d", uint8(b.Magic))
	case uint32(b.CRC) != sum:
		reason = fmt.Sprintf("CRC-32C is %08x, should be %08x", sum, uint32(b.CRC))
	case b.last() < b.first():
		reason = fmt.Sprintf("the last offset is %d", b.last())
	default:
		return b, nil
	}
	return b, &corruptError{b.first(), reason}
}

func oldFormat(magic int8) string {
	return fmt.Sprintf("format %d, from before Kafka 0.11, is not supported", magic)
}

// marker returns the type of a control batch's marker.
func (b *recordBatch) marker() (kmsg.ControlRecordKeyType, error) {
	d := kbin.Reader{Src: b.Records}
	d.Varint()  // length
	d.Int8()    // attributes
	d.Varlong() // timestamp
	d.Varint()  // offset
	var key kmsg.ControlRecordKey
	if err := key.ReadFrom(d.VarintBytes()); err != nil {
		return 0, &corruptError{b.first(), "a control record without a type"}
	}
	return key.Type, nil
}

// maxHeaders bounds the headers of a record, and about those of a Batch. In memory a header
// takes twenty times the two bytes that it may have been sent in.
const maxHeaders = 1 << 14

// A recordReader reads the records of a batch, some at a time, without an allocation for
// each. kmsg's reader does not replace it: it allocates as many headers as bytes follow
// their count, and does not say where a record ends.
type recordReader struct {
	b        *recordBatch
	d        kbin.Reader
	left     int
	previous int64 // offset
}

// reader returns a reader of the batch's records, which are in payload, decompressed. The
// records view it.
func (b *recordBatch) reader(payload []byte) (recordReader, error) {
	n := int64(b.NumRecords)
	r := recordReader{b: b, d: kbin.Reader{Src: payload}, left: int(n), previous: b.first() - 1}
	if n < 0 || n > b.last()-b.first()+1 || n > int64(len(payload)/minRecord) {
		return r, fmt.Errorf("a record batch from offset %d to %d has %d records in %d bytes", b.first(), b.last(), n, len(payload))
	}
	return r, nil
}

// appendTo appends records at and after offset from to out. It stops when out has most
// records, or many headers, or when none is left.
func (r *recordReader) appendTo(out *Batch, from int64, most int) error {
	for ; r.left > 0 && len(out.Records) < most && len(out.headers) < maxHeaders; r.left-- {
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
	d := kbin.Reader{Src: r.d.VarintBytes()} // where the batch ends: nil, which is no record
	d.Int8()                                 // attributes, all unused
	timestamp := b.FirstTimestamp + d.Varlong()
	if b.has(attrAppend) {
		timestamp = b.MaxTimestamp
	}
	offset := b.first() + int64(d.Varint())
	key, value := d.VarintBytes(), d.VarintBytes()
	headers := int(d.Varint())
	if !d.Ok() || headers < 0 || headers > len(d.Src)/2 {
		return fmt.Errorf("the record after offset %d is not encoded as a record", r.previous)
	}
	if offset <= r.previous || offset > b.last() {
		return fmt.Errorf("offset %d comes after %d in a record batch up to %d", offset, r.previous, b.last())
	}
	omitted := 0
	if headers > maxHeaders {
		omitted, headers, d.Src = headers, 0, nil
	}
	start := len(out.headers)
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
		OmittedHeaders: omitted, Appended: b.has(attrAppend),
		codec: b.codec(),
	}
	if timestamp >= 0 {
		rec.Time = time.UnixMilli(timestamp).UTC()
	}
	if n := len(out.headers); n > start {
		rec.Headers = out.headers[start:n:n]
	}
	out.Records = append(out.Records, rec)
	return nil
}
