package wire

import "encoding/binary"

// avroCursor goes through bytes of Avro's binary encoding.
//
// # Bounds
//
// Counts and lengths are compared with the bytes that are left. Values that take no byte, such as
// nulls and empty records, could still be more than anybody can count: a cursor takes twice as many
// steps as there are bytes, and a million more. Recursive values nest up to maxAvroDepth deep.
type avroCursor struct {
	in    []byte
	at    int
	cut   bool // the data has ended within a value, or a count or length is not possible
	steps int  // that are left
}

const (
	maxAvroDepth = 500
	moreSteps    = 1 << 20
)

// start starts to read.
func (c *avroCursor) start(b []byte) {
	c.in, c.at, c.cut, c.steps = b, 0, false, 2*len(b)+moreSteps
}

// blockCount is the number of elements of the next block of an array or a map; 0: it has ended.
func (c *avroCursor) blockCount() int64 {
	n := c.long()
	if n < 0 {
		c.long() // the bytes of the block, for those who pass over it
		n = -n
	}
	if n < 0 {
		c.cut = true
	}
	if c.cut {
		return 0
	}
	return n
}

// skip passes over a value.
func (c *avroCursor) skip(t *avroType, depth int) {
	if c.steps--; c.steps < 0 || depth > maxAvroDepth {
		c.steps, c.cut = -1, true
	}
	if c.cut {
		return
	}
	switch t.kind {
	case avroBoolean:
		c.take(1)
	case avroInt, avroEnum:
		c.long()
	case avroFloat:
		c.take(4)
	case avroDouble:
		c.take(8)
	case avroBytes, avroString:
		c.bytes()
	case avroFixed:
		c.take(t.size)
	case avroArray, avroMap:
		c.skipItems(t, depth)
	case avroUnion:
		if i := c.long(); i >= 0 && i < int64(len(t.branches)) {
			c.skip(t.branches[i], depth+1)
		} else {
			c.cut = true
		}
	case avroRecord:
		for i := range t.fields {
			c.skip(t.fields[i].typ, depth+1)
		}
	}
}

// skipItems passes over an array or a map and counts its elements.
func (c *avroCursor) skipItems(t *avroType, depth int) (count int64) {
	for n := c.blockCount(); n > 0; n = c.blockCount() {
		count += n
		for ; n > 0 && !c.cut; n-- {
			if t.kind == avroMap {
				c.bytes()
			}
			c.skip(t.items, depth+1)
		}
	}
	return count
}

// long reads an int or a long.
func (c *avroCursor) long() int64 {
	if c.at < len(c.in) && c.in[c.at] < 0x80 {
		u := c.in[c.at]
		c.at++
		return int64(u>>1) ^ -int64(u&1)
	}
	u, n := binary.Uvarint(c.in[c.at:])
	if n <= 0 {
		c.cut = true
		return 0
	}
	c.at += n
	return int64(u>>1) ^ -int64(u&1)
}

// take is the next n bytes, or nil.
func (c *avroCursor) take(n int) []byte {
	if n > len(c.in)-c.at || n < 0 {
		c.cut = true
		return nil
	}
	b := c.in[c.at : c.at+n]
	c.at += n
	return b
}

// bytes reads bytes or a string.
func (c *avroCursor) bytes() []byte {
	n := c.long()
	if n < 0 || n > int64(len(c.in)-c.at) {
		c.cut = true
		return nil
	}
	b := c.in[c.at : c.at+int(n)]
	c.at += int(n)
	return b
}
