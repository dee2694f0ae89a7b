package summary

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"streamd/incremental"
	"streamd/incremental/decode"
	"streamd/incremental/gram"
	"streamd/incremental/sample"
	"streamd/ingest/wire"
)

// Decoder decodes summary blocks. It belongs to one goroutine. A block has no memory of its
// record, and shares only the names of its source and features with other blocks.
type Decoder struct {
	Memory int // bytes that a block may take while it is decoded; 0: any number

	source   string   // of the rows of the last block, which others share
	names    []byte   // of the last block, as encoded
	features []string // the same
}

// Decode decodes a record. Its error is a *wire.Error, or the cause of ctx: wide sums take
// seconds to check.
func (d *Decoder) Decode(ctx context.Context, record []byte) (*Block, error) {
	content, err := contentOf(record)
	if err != nil {
		return nil, err
	}
	r := decode.Reader{Rest: content}
	b := &Block{ID: r.Text()}
	if source := r.Take(r.Count(1)); string(source) != d.source {
		d.source = string(source)
	}
	b.Position.Topic = d.source
	b.Position.Partition = int(offset(&r))
	b.Position.Offset = offset(&r)
	b.Last = b.Position.Offset + offset(&r) // negative beyond an int64
	b.Time = time.UnixMilli(int64(binary.LittleEndian.Uint64(r.Take(8)))).UTC()
	b.Rows = RowCounts{Read: offset(&r), Rejected: offset(&r), ZeroWeight: offset(&r)}
	names := r.Rest
	n := r.Count(2)
	for range n {
		r.Take(r.Count(1))
	}
	names = names[:len(names)-len(r.Rest)]
	sums := r.Take(r.Count(1))
	rows := r.Take(r.Count(1))
	if r.Bad || len(r.Rest) > 0 {
		return nil, refusef("the record ends within a field, or goes on after the last one")
	}
	if err := d.admit(record, n, sums, rows); err != nil {
		return nil, err
	}
	if d.features == nil || string(names) != string(d.names) {
		if err := d.take(n, names); err != nil {
			return nil, err
		}
	}
	b.Features = d.features
	if b.Summary, err = incremental.DecodeSummary(sums); err != nil {
		return nil, refusef("the sums: %v", err)
	}
	if err := b.check(); err != nil {
		return nil, refusef("%v", err)
	}
	if err := b.Summary.Possible(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, refusef("no rows have these sums: %v", err)
	}
	if len(rows) == 0 {
		return b, nil
	}
	if b.Part, err = sample.DecodePart(rows); err == nil {
		err = b.Part.Check(b.Summary)
	}
	if err != nil {
		return nil, refusef("the rows for the sample: %v", err)
	}
	return b, nil
}

func refusef(format string, args ...any) *wire.Error {
	return &wire.Error{Row: -1, Reason: "summary block: " + fmt.Sprintf(format, args...)}
}

// contentOf is what lies between the head and the digest of a record.
func contentOf(record []byte) ([]byte, error) {
	const version = len(magic) - 1
	switch {
	case len(record) < len(magic)+sha256.Size || string(record[:version]) != magic[:version]:
		return nil, refusef("the record does not begin like one, or is shorter than any")
	case record[version] != magic[version]:
		return nil, refusef("the format has version %d, and this program reads version %d", record[version], magic[version])
	}
	end := len(record) - sha256.Size
	if sha256.Sum256(record[:end]) != [sha256.Size]byte(record[end:]) {
		return nil, refusef("the digest is not that of the record, which was cut or changed")
	}
	return record[len(magic):end], nil
}

// offset reads a number of up to 63 bits.
func offset(r *decode.Reader) int64 {
	x := r.Uvarint()
	r.Bad = r.Bad || x > 1<<63-1
	return int64(x)
}

// admit compares the memory that a block of n names takes with the limit, from the counts in its
// sums and its rows.
func (d *Decoder) admit(record []byte, n int, sums, rows []byte) error {
	r := decode.Reader{Rest: sums}
	features := r.Count(8)
	classes := r.Count(1)
	if r.Bad || features != n {
		return refusef("there are %d names for %d features", n, features)
	}
	const (
		perFeature = 128 // of a name and its place in an index
		perClass   = 480 // of a class of the sums and of the rows, with the copies that compare them
	)
	bytes := len(record) + perFeature*n + perClass*classes
	if len(rows) > 0 { // before memory is taken for them
		of, memory, ok := sample.Peek(rows)
		if !ok || of != classes {
			return refusef("the rows for the sample: they do not have the %d classes of the sums", classes)
		}
		bytes += memory
	}
	if classes > 0 {
		bytes += 8 * gram.PackedLen(n+1) // of the matrix that shows whether the sums are possible
	}
	if d.Memory > 0 && bytes > d.Memory {
		refused := refusef("%d features, %d classes and the rows for the sample take %d bytes, the limit is %d", n, classes, bytes, d.Memory)
		refused.Memory = true
		return refused
	}
	return nil
}

// take takes the n names of the features of this block and the following ones.
func (d *Decoder) take(n int, names []byte) error {
	r := decode.Reader{Rest: names}
	r.Uvarint()
	features := make([]string, n)
	for j := range features {
		features[j] = r.Text()
	}
	if err := wire.CheckFeatures(features); err != nil {
		return refusef("%v", err)
	}
	d.names, d.features = append(d.names[:0], names...), features
	return nil
}
