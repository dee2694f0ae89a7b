// Package summary is the format of a summary block: a block whose rows were summed
// elsewhere.
//
// A summary block has what a daemon keeps of the block when it reads its rows, bit for bit: the
// sums, some rows for the sample, and the block's place in the log of the rows. So a model of
// sums is the model of the rows, and a block that comes both ways counts once. FORMAT.md has the
// format byte for byte.
//
// # One encoding
//
// A Block has one encoding, and Decode accepts nothing else. The sums are encoded as in the
// snapshot and in the digest of a block (incremental.Summary.AppendBinary), the rows as in the
// snapshot (sample.Part.AppendBinary).
//
// The encoding is not compressed. Sums of one-hot data shrink by an order of magnitude, but
// batches of Kafka are compressed as a whole, by the producer's setting, and the consumer bounds
// what they decompress to. Compressed records would need that bound again, and would not have
// one encoding, since it is the library's version that decides about the bytes.
//
// # Hostile records
//
// Counts are compared with the bytes that are left before anything is allocated, and the memory
// of a block with Decoder.Memory. Sums that no rows can have are refused
// (incremental.Summary.Possible): a matrix that is not positive semidefinite would have no plane.
// Sums of other rows than the record names cannot be told from right ones. Who may write to the
// topic is trusted with that, as with the labels of rows.
package summary

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"streamd/incremental"
	"streamd/incremental/sample"
)

// ContentType is the content type of a record that is a summary block.
const ContentType = "application/vnd.streamd.summary"

// Block is a block whose rows were summed elsewhere.
type Block struct {
	ID string // of the block, as if its rows had been read

	// Position is of the first record of rows, and Last is the offset of the last one. The topic
	// of rows from a file is "file:" and the file's name without folders; offsets count rows.
	Position incremental.Position
	Last     int64

	Time time.Time // event time, in milliseconds, as the clock of the rows' partition bounds it

	Rows     RowCounts
	Features []string // of the sums, in their order
	Summary  *incremental.Summary
	Part     *sample.Part // nil: without rows for the sample
}

// RowCounts are the rows that were read for a block, by their fate.
type RowCounts struct {
	Read       int64 // the sum of the others, and of the rows that are summed
	Rejected   int64 // that have a dead letter elsewhere
	ZeroWeight int64
}

// The longest texts, in bytes.
const (
	MaxID   = 2048
	maxName = 255 // of a topic or a file
)

// check says why there is no such block. It does not look into the sums.
func (b *Block) check() error {
	p := &b.Position
	switch {
	case !isText(b.ID, MaxID):
		return fmt.Errorf("the id of the block is %.40q: want 1 to %d bytes of printable UTF-8", b.ID, MaxID)
	case !isText(p.Topic, maxName) || strings.Contains(p.Topic, "/"):
		return fmt.Errorf("the source of the rows is %.40q: want 1 to %d bytes of printable UTF-8 without /", p.Topic, maxName)
	case p.Partition < 0 || p.Partition > math.MaxInt32 || p.Offset < 0 || b.Last < p.Offset:
		return fmt.Errorf("the rows are those of %s to %d, which is no range of offsets", p, b.Last)
	}
	r := &b.Rows
	summed := b.Summary.Rows()
	switch {
	case min(r.Read, r.Rejected, r.ZeroWeight) < 0 || max(r.Read, r.Rejected, r.ZeroWeight) > math.MaxInt32:
		return fmt.Errorf("the counts of rows are %+v: want numbers up to %d", *r, math.MaxInt32)
	case r.Rejected+r.ZeroWeight+summed != r.Read:
		return fmt.Errorf("%d rows were read, but %d were rejected, %d are of weight 0 and %d are summed",
			r.Read, r.Rejected, r.ZeroWeight, summed)
	case len(b.Features) == 0 || len(b.Features) != b.Summary.Features():
		return fmt.Errorf("there are %d names for %d features", len(b.Features), b.Summary.Features())
	case summed == 0 && b.Part != nil:
		return errors.New("there are rows for the sample, but none are summed")
	}
	return nil
}

func isText(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// Is reports whether a content type is that of summary blocks. Its parameters are ignored.
func Is(contentType string) bool {
	if contentType == ContentType {
		return true
	}
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), ContentType)
}
