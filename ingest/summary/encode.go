package summary

import (
	"crypto/sha256"
	"encoding/binary"

	"streamd/ingest/wire"
)

// magic begins each record. Its last byte is the version of the format.
const magic = "streamd-summary\x01"

// AppendBinary appends the encoding of a block, whose sums and rows a Maker has made. It fails
// where Decode would refuse the rest.
func (b *Block) AppendBinary(to []byte) ([]byte, error) {
	if err := b.check(); err != nil {
		return to, err
	}
	if err := wire.CheckFeatures(b.Features); err != nil {
		return to, err
	}
	from := len(to)
	to = append(to, magic...)
	to = appendText(to, b.ID)
	to = appendText(to, b.Position.Topic)
	for _, x := range []int64{int64(b.Position.Partition), b.Position.Offset, b.Last - b.Position.Offset} {
		to = binary.AppendUvarint(to, uint64(x))
	}
	to = binary.LittleEndian.AppendUint64(to, uint64(b.Time.UnixMilli()))
	for _, x := range []int64{b.Rows.Read, b.Rows.Rejected, b.Rows.ZeroWeight} {
		to = binary.AppendUvarint(to, uint64(x))
	}
	to = binary.AppendUvarint(to, uint64(len(b.Features)))
	for _, name := range b.Features {
		to = appendText(to, name)
	}
	sums := b.Summary.AppendBinary(nil)
	to = append(binary.AppendUvarint(to, uint64(len(sums))), sums...)
	var rows []byte
	if b.Part != nil {
		rows = b.Part.AppendBinary(nil)
	}
	to = append(binary.AppendUvarint(to, uint64(len(rows))), rows...)
	digest := sha256.Sum256(to[from:])
	return append(to, digest[:]...), nil
}

func appendText(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}
