package wire

import "encoding/binary"

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

// at is the n bytes at pos.
func (f *flatbuffer) at(pos, n int) []byte {
	if pos < 0 || n < 0 || pos > len(f.b) || n > len(f.b)-pos {
		f.bad = true
		return make([]byte, 8)[:min(max(n, 0), 8)]
	}
	return f.b[pos : pos+n]
}

func (f *flatbuffer) u16(pos int) int   { return int(binary.LittleEndian.Uint16(f.at(pos, 2))) }
func (f *flatbuffer) u32(pos int) int   { return int(binary.LittleEndian.Uint32(f.at(pos, 4))) }
func (f *flatbuffer) i64(pos int) int64 { return int64(binary.LittleEndian.Uint64(f.at(pos, 8))) }

func (f *flatbuffer) root() table { return f.tableAt(f.u32(0)) }

func (f *flatbuffer) tableAt(pos int) table {
	vtable := pos - int(int32(f.u32(pos)))
	size := f.u16(vtable)
	f.at(vtable, size)
	if f.bad || size < 4 {
		f.bad = true
		return table{}
	}
	return table{pos: pos, vtable: vtable, size: size}
}

// field is the position of a table's field; 0: it is not there.
func (f *flatbuffer) field(t table, i int) int {
	o := 4 + 2*i
	if o+2 > t.size {
		return 0
	}
	if v := f.u16(t.vtable + o); v != 0 {
		return t.pos + v
	}
	return 0
}

func (f *flatbuffer) byteField(t table, i int) byte {
	if p := f.field(t, i); p != 0 {
		return f.at(p, 1)[0]
	}
	return 0
}

func (f *flatbuffer) shortField(t table, i int) int {
	if p := f.field(t, i); p != 0 {
		return int(int16(f.u16(p)))
	}
	return 0
}

func (f *flatbuffer) intField(t table, i int) int {
	if p := f.field(t, i); p != 0 {
		return int(int32(f.u32(p)))
	}
	return 0
}

func (f *flatbuffer) longField(t table, i int) int64 {
	if p := f.field(t, i); p != 0 {
		return f.i64(p)
	}
	return 0
}

// tableField is a table within a table. False: it is not there.
func (f *flatbuffer) tableField(t table, i int) (table, bool) {
	p := f.field(t, i)
	if p == 0 {
		return table{}, false
	}
	return f.tableAt(p + f.u32(p)), !f.bad
}

// vectorField is where a vector's n elements of size bytes start.
func (f *flatbuffer) vectorField(t table, i, size int) (start, n int) {
	p := f.field(t, i)
	if p == 0 {
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
