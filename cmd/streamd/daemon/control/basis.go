package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"streamd/incremental/decode"
)

// Basis is what a control topic has of the basis of a model.
type Basis struct {
	Content []byte // as RecordsOfBasis was given it; nil: the topic has no basis, or not a whole one
	Keys    int    // keys 0 to Keys−1 may have parts; 0: the topic has none
	Parts   int    // of the whole basis; the parts of further keys are left of a former one
	Fault   string // why the parts are no whole basis; empty: they are, or there are none
}

const (
	basisKeys = "basis/" // begins the keys of parts
	// partBytes is the size of a part. A record with one is below 900 KB: brokers accept 1 MB.
	partBytes = 800 << 10
	partMagic = "streamd-basis-1\n"
	basisIn   = 0 // the partition of all parts
)

var (
	errBasisKey  = errors.New("keys that begin with basis/ are those of the parts of a basis, basis/MODEL/NUMBER, in partition 0")
	errBasisPart = errors.New("it is not a part of a basis")
)

// IsBasisKey reports whether a key is kept for the parts of bases.
func IsBasisKey(key string) bool { return strings.HasPrefix(key, basisKeys) }

// basisKey is the key of a part.
func basisKey(model string, number int) []byte {
	return fmt.Appendf(nil, "%s%s/%d", basisKeys, model, number)
}

// parseBasisKey is the inverse of basisKey.
func parseBasisKey(key []byte) (model string, number int, err error) {
	model, digits, ok := strings.Cut(strings.TrimPrefix(string(key), basisKeys), "/")
	number, err = strconv.Atoi(digits)
	if !ok || err != nil || number < 0 || !bytes.Equal(key, basisKey(model, number)) {
		return "", 0, errBasisKey
	}
	return model, number, nil
}

// RecordsOfBasis are the records that make content the basis of a model, in place of one that has
// parts under that many keys. Without content they are tombstones.
func RecordsOfBasis(model string, content []byte, keys int) (records []Record) {
	digest := sha256.Sum256(content)
	parts := (len(content) + partBytes - 1) / partBytes
	for i := range max(parts, keys) {
		r := Record{Partition: basisIn, Key: basisKey(model, i)}
		if i < parts {
			p := part{digest, i, parts, content[i*partBytes : min((i+1)*partBytes, len(content))]}
			r.Value = p.appendBinary(nil)
		}
		records = append(records, r)
	}
	return records
}

// part is a part of a basis.
type part struct {
	digest        [sha256.Size]byte // of the whole content
	number, parts int
	content       []byte // nil: the record under the key cannot be read
}

// appendBinary appends the magic, the digest, the number of the part and of all parts as uvarints,
// and the part's content.
func (p *part) appendBinary(b []byte) []byte {
	b = append(append(b, partMagic...), p.digest[:]...)
	b = binary.AppendUvarint(b, uint64(p.number))
	b = binary.AppendUvarint(b, uint64(p.parts))
	return append(b, p.content...)
}

// parsePart reads a part of at most that many. It does not keep value.
func parsePart(value []byte, mostParts int) (p part, err error) {
	d := decode.Reader{Rest: value}
	magic := string(d.Take(len(partMagic)))
	copy(p.digest[:], d.Take(sha256.Size))
	number, parts := d.Uvarint(), d.Uvarint()
	switch {
	case d.Bad || magic != partMagic || number >= parts || len(d.Rest) == 0 || len(d.Rest) > partBytes:
		return p, errBasisPart
	case parts > uint64(mostParts):
		return p, fmt.Errorf("it is one of %d parts of a basis, and there is memory for %d", parts, mostParts)
	}
	p.number, p.parts, p.content = int(number), int(parts), bytes.Clone(d.Rest)
	return p, nil
}

// parts are the latest records of the parts of a model's basis, by number. So they are the same
// before and after a compaction.
type parts struct {
	model  string
	most   int // parts
	latest map[int]part
}

// newParts keeps parts of at most that many bytes, rounded up to whole parts.
func newParts(model string, mostBytes int) *parts {
	return &parts{model: model, most: max(1, (mostBytes+partBytes-1)/partBytes), latest: map[int]part{}}
}

// put takes a record with a basis key. changed reports whether the basis may be another one. A
// record that cannot be read takes the place of the former one, so that there is no whole basis.
func (p *parts) put(partition int, key, value []byte) (changed bool, err error) {
	model, number, err := parseBasisKey(key)
	if err == nil && partition != basisIn {
		err = errBasisKey
	}
	if err != nil || model != p.model {
		return false, err
	}
	if value == nil {
		_, changed = p.latest[number]
		delete(p.latest, number)
		return changed, nil
	}
	if number >= p.most {
		return false, fmt.Errorf("it is part %d of a basis, and there is memory for %d", number, p.most)
	}
	read, err := parsePart(value, p.most)
	if err == nil && read.number != number {
		err = fmt.Errorf("it is part %d of a basis, under the key of part %d", read.number, number)
	}
	if err != nil {
		read = part{}
	}
	p.latest[number] = read
	return true, err
}

// basis is what the parts make.
func (p *parts) basis() *Basis {
	b := &Basis{}
	for number := range p.latest {
		b.Keys = max(b.Keys, number+1)
	}
	if b.Keys == 0 {
		return b
	}
	first, have := p.latest[0], 0
	for number := range first.parts {
		is, ok := p.latest[number]
		switch {
		case !ok:
		case is.content == nil:
			b.Fault = fmt.Sprintf("part %d cannot be read", number)
			return b
		case is.digest != first.digest || is.parts != first.parts:
			b.Fault = "its parts are of two bases"
			return b
		default:
			have++
		}
	}
	if have == 0 || have < first.parts {
		b.Fault = fmt.Sprintf("it has %d of %d parts", have, first.parts)
		if first.parts == 0 {
			b.Fault = "part 0 is missing, or cannot be read"
		}
		return b
	}
	var content []byte
	for number := range first.parts {
		content = append(content, p.latest[number].content...)
	}
	if sha256.Sum256(content) != first.digest {
		b.Fault = "its parts do not have the digest that they name"
		return b
	}
	b.Content, b.Parts = content, first.parts
	return b
}
