package wire

import (
	"encoding/binary"
	"math"
)

// flatbuffer reads an untrusted flatbuffer (google.github.io/flatbuffers). Every
// access is checked against the buffer. One that fails marks the buffer bad and
// yields zero, so that a run of reads needs a single check behind it. It allocates
// nothing and follows no offset twice.
//
// The library's generated readers check nothing: on a hostile buffer they panic,
// allocate as much as a forged vector length says, or recurse for ever.
type flatbuffer struct {
	b   []byte
	bad bool
}

// table is a table in a flatbuffer; the zero table has no fields.
type table struct {
	pos    int // of the table
	vtable int // of its vtable
	size   int // of its vtable, in bytes
}

// absent is the position of a field that a table does not have. The number there is 0,
// the default of every field that is read here.
const absent = math.MinInt

var zeros [8]byte

// at is the n bytes at pos, or up to eight zeros where there are none.
func (f *flatbuffer) at(pos, n int) []byte {
	if pos < 0 || n < 0 || pos > len(f.b) || n > len(f.b)-pos {
		f.bad = f.bad || pos != absent
		return zeros[:min(max(n, 0), len(zeros))]
	}
	return f.b[pos : pos+n]
}

// The number at pos, as an int unless it may need more.
func (f *flatbuffer) u8(pos int) int    { return int(f.at(pos, 1)[0]) }
func (f *flatbuffer) u16(pos int) int   { return int(binary.LittleEndian.Uint16(f.at(pos, 2))) }
func (f *flatbuffer) u32(pos int) int   { return int(binary.LittleEndian.Uint32(f.at(pos, 4))) }
func (f *flatbuffer) i32(pos int) int   { return int(int32(f.u32(pos))) }
func (f *flatbuffer) i64(pos int) int64 { return int64(binary.LittleEndian.Uint64(f.at(pos, 8))) }

func (f *flatbuffer) root() table { return f.tableAt(f.u32(0)) }

func (f *flatbuffer) tableAt(pos int) table {
	vtable := pos - f.i32(pos)
	size := f.u16(vtable)
	f.at(vtable, size)
	if f.bad || size < 4 {
		f.bad = true
		return table{}
	}
	return table{pos: pos, vtable: vtable, size: size}
}

// field is the position of a table's field, or absent.
func (f *flatbuffer) field(t table, i int) int {
	o := 4 + 2*i
	if o+2 > t.size {
		return absent
	}
	if v := f.u16(t.vtable + o); v != 0 {
		return t.pos + v
	}
	return absent
}

// tableField is a table within a table. False: it is not there.
func (f *flatbuffer) tableField(t table, i int) (table, bool) {
	p := f.field(t, i)
	if p == absent {
		return table{}, false
	}
	return f.tableAt(p + f.u32(p)), !f.bad
}

// vectorField is where a vector's n elements of size bytes start.
func (f *flatbuffer) vectorField(t table, i, size int) (start, n int) {
	p := f.field(t, i)
	if p == absent {
		return 0, 0
	}
	p += f.u32(p)
	n = f.u32(p)
	if f.at(p+4, n*size); f.bad {
		return 0, 0
	}
	return p + 4, n
}

func (f *flatbuffer) stringField(t table, i int) []byte {
	start, n := f.vectorField(t, i, 1)
	return f.at(start, n)
}

// element is table i of a vector of tables.
func (f *flatbuffer) element(start, i int) table {
	p := start + 4*i
	return f.tableAt(p + f.u32(p))
}
