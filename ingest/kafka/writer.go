package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/zstd"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamd/ingest/kafka/protocol"
)

// batchWriter encodes a record batch. Its buffer is reused.
type batchWriter struct {
	buf      []byte
	codec    compress.Compression
	count    int
	baseTime int64
	maxTime  int64
	headers  []kmsg.Header // reused by add

	transactional bool // its batches belong to transactions
}

func (w *batchWriter) reset() {
	w.buf = append(w.buf[:0], make([]byte, batchHeader)...)
	w.count, w.codec = 0, compress.None
}

// size is the encoded size so far.
func (w *batchWriter) size() int { return len(w.buf) }

// recordOverhead bounds the size of a record without its key, value and headers: seven
// varints of at most ten bytes.
const recordOverhead = 70

// recordSize bounds the encoded size of a record.
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
	r := kmsg.Record{
		TimestampDelta64: timestamp - w.baseTime, OffsetDelta: int32(w.count),
		Key: key, Value: value, Headers: w.headers[:0],
	}
	length := 1 + kbin.VarlongLen(r.TimestampDelta64) + kbin.VarintLen(r.OffsetDelta) +
		varbytesLen(len(key)) + varbytesLen(len(value)) + kbin.VarintLen(int32(len(headers)))
	for _, h := range headers {
		r.Headers = append(r.Headers, kmsg.Header(h))
		length += varbytesLen(len(h.Key)) + varbytesLen(len(h.Value))
	}
	r.Length = int32(length)
	w.buf, w.headers = r.AppendTo(w.buf), r.Headers
	w.count++
}

// varbytesLen is the encoded size of n bytes behind their length. Null bytes, of length -1,
// take as much as empty ones.
func varbytesLen(n int) int { return kbin.VarintLen(int32(n)) + n }

// fastZstd takes half of the time that zstd takes by default. Lines of CSV and JSON become a little
// smaller by it, and sums of one-hot columns a tenth larger.
var fastZstd = zstd.Codec{Level: 1}

// pack compresses the records. None may be added afterwards.
func (w *batchWriter) pack(codec compress.Compression) error {
	if codec == compress.None {
		return nil
	}
	var packed bytes.Buffer
	coder := codec.Codec()
	if codec == compress.Zstd {
		coder = &fastZstd
	}
	z := coder.NewWriter(&packed)
	_, err := z.Write(w.buf[batchHeader:])
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("compress with %v: %w", codec, err)
	}
	w.buf, w.codec = append(w.buf[:batchHeader], packed.Bytes()...), codec
	return nil
}

// A squeezer compresses the batches of one producer with zstd, where it helps.
type squeezer struct {
	plain int // so many batches go as they are
}

// Sums of one-hot columns shrink to a tenth, and texts to a third. Measured numbers shrink by a
// tenth or a third, for which neither side's time is well spent. So what follows a batch that does
// not shrink to half goes as it is.
const (
	leastGain = 2  // a batch shrinks by at least one part of so many
	plainRun  = 15 // batches until another one is tried
)

// pack compresses a batch. One of more than limit bytes may be too large for its topic as it is.
func (z *squeezer) pack(w *batchWriter, limit int) error {
	if z.plain > 0 && w.size() <= limit {
		z.plain--
		return nil
	}
	full := len(w.buf) - batchHeader
	if err := w.pack(compress.Zstd); err != nil {
		return err
	}
	if packed := len(w.buf) - batchHeader; packed > full-full/leastGain {
		z.plain = plainRun
	}
	return nil
}

// finish fills in the header and returns the batch, valid until the next reset.
func (w *batchWriter) finish(producer int64, epoch int16, sequence int32) []byte {
	attributes := int16(w.codec)
	if w.transactional {
		attributes |= 1 << 4
	}
	header := kmsg.RecordBatch{
		Length:               int32(len(w.buf) - batchPrefix),
		PartitionLeaderEpoch: -1, // the broker sets it
		Magic:                2,
		Attributes:           attributes,
		LastOffsetDelta:      int32(w.count - 1),
		FirstTimestamp:       w.baseTime,
		MaxTimestamp:         w.maxTime,
		ProducerID:           producer,
		ProducerEpoch:        epoch,
		FirstSequence:        sequence,
		NumRecords:           int32(w.count),
	}
	header.AppendTo(w.buf[:0])
	binary.BigEndian.PutUint32(w.buf[17:], crc32.Checksum(w.buf[crcStart:], protocol.Castagnoli))
	return w.buf
}
