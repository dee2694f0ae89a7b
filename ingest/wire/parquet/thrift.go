package parquet

import "encoding/binary"

// thrift reads Thrift's compact protocol. What cannot be read makes it bad.
type thrift struct {
	b     []byte
	at    int
	depth int
	bad   bool
}

// The types of Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// deepest is how deep structs and lists, or groups of a schema, may be nested.
const deepest = 64

// fields calls a function for each field of a struct. The function reads or skips the value.
func (t *thrift) fields(each func(id, typ int)) {
	if t.depth++; t.depth > deepest {
		t.bad = true
	}
	for id := 0; !t.bad; {
		b := t.byte()
		if b == 0 {
			break
		}
		if delta := int(b >> 4); delta > 0 {
			id += delta
		} else {
			id = int(int16(t.integer()))
		}
		each(id, int(b&0xf))
	}
	t.depth--
}

// list calls a function for each element of a list. It makes t bad where there are no elements
// of that type.
func (t *thrift) list(typ, want int, each func()) {
	n, element := t.listHead(typ)
	t.bad = t.bad || n > 0 && element != want
	for range n {
		if t.bad {
			return
		}
		each()
	}
}

// listHead reads the number and the type of a list's elements. Each has at least a byte.
func (t *thrift) listHead(typ int) (n, element int) {
	if typ != thriftList && typ != thriftSet {
		t.bad = true
		return 0, 0
	}
	b := t.byte()
	n = int(b >> 4)
	if n == 15 {
		n = t.length()
	}
	return n, int(b & 0xf)
}

// structure calls a function for each field of a value that should be a struct.
func (t *thrift) structure(typ int, each func(id, typ int)) {
	if typ != thriftStruct {
		t.bad = true
		return
	}
	t.fields(each)
}

func (t *thrift) byte() byte {
	if t.at >= len(t.b) {
		t.bad = true
		return 0
	}
	t.at++
	return t.b[t.at-1]
}

func (t *thrift) varint() uint64 {
	x, n := binary.Uvarint(t.b[t.at:])
	if n <= 0 {
		t.bad = true
		return 0
	}
	t.at += n
	return x
}

func (t *thrift) integer() int64 {
	n := t.varint()
	return int64(n>>1) ^ -int64(n&1)
}

// length reads a length of what follows, of at least a byte each.
func (t *thrift) length() int {
	n := t.varint()
	if n > uint64(len(t.b)-t.at) {
		t.bad = true
		return 0
	}
	return int(n)
}

// i64 reads the value of a field of an integer of 64 bits.
func (t *thrift) i64(typ int) int64 {
	if typ != thriftI64 {
		t.bad = true
		return 0
	}
	return t.integer()
}

// i32 reads the value of a field of an integer of 32 bits.
func (t *thrift) i32(typ int) int {
	if typ != thriftI32 {
		t.bad = true
		return 0
	}
	n := t.integer()
	if n != int64(int32(n)) {
		t.bad = true
	}
	return int(int32(n))
}

func (t *thrift) boolean(typ int) bool {
	if typ != thriftTrue && typ != thriftFalse {
		t.bad = true
	}
	return typ == thriftTrue
}

func (t *thrift) text(typ int) string {
	if typ != thriftBinary {
		t.bad = true
		return ""
	}
	n := t.length()
	t.at += n
	return string(t.b[t.at-n : t.at])
}

// skip passes over the value of a field.
func (t *thrift) skip(typ int) {
	switch {
	case typ == thriftTrue, typ == thriftFalse: // the type is the value
	case typ == thriftByte:
		t.byte()
	case typ > thriftByte && typ <= thriftI64:
		t.varint()
	case typ == thriftDouble:
		if len(t.b)-t.at < 8 {
			t.bad = true
			return
		}
		t.at += 8
	case typ == thriftBinary:
		t.at += t.length()
	case typ == thriftList, typ == thriftSet:
		n, element := t.listHead(typ)
		t.skipElements(n, element)
	case typ == thriftMap:
		if n := t.length(); n > 0 {
			types := t.byte()
			for range n {
				t.skipElements(1, int(types>>4))
				t.skipElements(1, int(types&0xf))
				if t.bad {
					return
				}
			}
		}
	case typ == thriftStruct:
		t.fields(func(_, typ int) { t.skip(typ) })
	default:
		t.bad = true
	}
}

// skipElements passes over elements of a list or a map, whose booleans have a byte of their own.
func (t *thrift) skipElements(n, typ int) {
	if t.depth++; t.depth > deepest {
		t.bad = true
	}
	if typ == thriftTrue || typ == thriftFalse {
		typ = thriftByte
	}
	for range n {
		if t.bad {
			break
		}
		t.skip(typ)
	}
	t.depth--
}
