package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"streamd/ingest/registry"
)

// avroMagic opens a container file of Avro, which has its schema in its head.
var avroMagic = []byte("Obj\x01")

func opensAvroFile(b []byte) bool { return bytes.HasPrefix(b, avroMagic) }

const (
	avroSync     = 16        // bytes that end the head and each block
	maxAvroHead  = 256 << 10 // of the schema in a head: every message may bring another one
	maxAvroNotes = 1000      // entries of a head

	maxAvroWindow = 32 << 20 // of Zstandard
)

// file reads a container file: a block of rows.
//
//	Obj 0x01, a map of notes (avro.schema, avro.codec), 16 bytes of sync
//	for each block: the number of records, the number of bytes, these bytes, sync
func (a *avroReader) file(payload []byte) *Error {
	a.text = payload
	a.start(payload)
	a.at = len(avroMagic)
	var schema, codec []byte
	notes := 0
	for n := a.blockCount(); n > 0; n = a.blockCount() {
		for ; n > 0 && !a.cut; n-- {
			name, value := a.bytes(), a.bytes()
			switch string(name) {
			case "avro.schema":
				schema = value
			case "avro.codec":
				codec = value
			}
			if notes++; notes > maxAvroNotes {
				return a.fail(-1, "", "the head of the file has more than %d entries", maxAvroNotes)
			}
		}
	}
	sync := a.take(avroSync)
	switch {
	case a.cut:
		return a.fail(-1, "", "the head of the file is cut off or malformed")
	case len(schema) == 0:
		return a.fail(-1, "", "the head of the file has no schema")
	case len(schema) > maxAvroHead:
		return a.fail(-1, "", "the schema of the file has %d bytes, the limit is %d", len(schema), maxAvroHead)
	}
	p := a.heads.all[string(schema)]
	if !p.isFor(a) {
		p = a.plan(&registry.Schema{Kind: registry.Avro, Text: string(schema)})
		a.heads.add(string(schema), p)
	}
	p, err := a.usable(p)
	if err != nil {
		return err
	}
	if p.several {
		return a.fail(-1, "", "the records of the file are arrays, and a row is a record")
	}
	at, room := a.at, a.opts.Limits.Bytes
	for at < len(payload) {
		a.start(payload)
		a.at = at
		n, block := a.long(), a.bytes()
		if end := a.take(avroSync); a.cut || n < 0 || !bytes.Equal(end, sync) {
			return a.fail(a.count, "", "a block of the file is cut off or malformed")
		}
		at = a.at
		rows, reason := a.unpack.block(block, string(codec), room)
		if reason != "" {
			return a.fail(-1, "", "%s", reason)
		}
		if room -= len(rows); len(rows) > 0 && n == 0 {
			return a.fail(-1, "", "a block of the file has bytes and no records")
		}
		if err := a.records(p, rows, n, false); err != nil {
			return err
		}
	}
	return a.finishRecords(p)
}

// avroUnpacker undoes the compression of blocks. Its memory is used again.
type avroUnpacker struct {
	out   bytes.Buffer
	src   bytes.Reader
	flate io.ReadCloser
	zstd  *zstd.Decoder
	plain []byte
}

const unpacksTo = "the blocks of the file decompress to more bytes than a message may have"

// block is a block's bytes without their compression, of which there may be so many.
func (u *avroUnpacker) block(b []byte, codec string, room int) (out []byte, reason string) {
	if cap(u.plain) > keptBytes {
		u.plain = nil
	}
	if u.out.Cap() > keptBytes {
		u.out = bytes.Buffer{}
	}
	switch codec {
	case "", "null":
		return b, ""
	case "deflate":
		u.src.Reset(b)
		if u.flate == nil {
			u.flate = flate.NewReader(&u.src)
		} else if err := u.flate.(flate.Resetter).Reset(&u.src, nil); err != nil {
			return nil, "deflate: " + err.Error()
		}
		u.out.Reset()
		n, err := u.out.ReadFrom(io.LimitReader(u.flate, int64(room)+1))
		switch {
		case err != nil:
			return nil, "deflate: " + err.Error()
		case n > int64(room):
			return nil, unpacksTo
		}
		return u.out.Bytes(), ""
	case "snappy":
		if len(b) < crc32.Size {
			return nil, "snappy: a block is cut off"
		}
		text, sum := b[:len(b)-crc32.Size], binary.BigEndian.Uint32(b[len(b)-crc32.Size:])
		n, err := s2.DecodedLen(text)
		switch {
		case err != nil:
			return nil, "snappy: " + err.Error()
		case n > room:
			return nil, unpacksTo
		}
		if u.plain, err = s2.Decode(u.plain[:cap(u.plain)], text); err != nil {
			return nil, "snappy: " + err.Error()
		}
		if crc32.ChecksumIEEE(u.plain) != sum {
			return nil, "snappy: a checksum is wrong"
		}
		return u.plain, ""
	case "zstandard":
		if u.zstd == nil {
			var err error
			if u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxAvroWindow)); err != nil {
				return nil, "zstandard: " + err.Error()
			}
		}
		u.src.Reset(b)
		if err := u.zstd.Reset(&u.src); err != nil {
			return nil, "zstandard: " + err.Error()
		}
		u.out.Reset()
		n, err := u.out.ReadFrom(io.LimitReader(u.zstd, int64(room)+1))
		switch {
		case err != nil:
			return nil, "zstandard: " + err.Error()
		case n > int64(room):
			return nil, unpacksTo
		}
		return u.out.Bytes(), ""
	}
	return nil, "the codec of the file is " + quoted([]byte(codec)) + ": want null, deflate, snappy or zstandard"
}
