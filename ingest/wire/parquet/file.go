package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Type is a physical type.
type Type int

// The physical types, by their numbers in the format.
const (
	Boolean Type = iota
	Int32
	Int64
	Int96
	Float
	Double
	ByteArray
	FixedLenByteArray
)

// Kind is a logical type, without what it says of it beside.
type Kind int

// The logical types that are told apart.
const (
	None    Kind = iota
	Text         // String, Enum and JSON
	List         // of groups only
	Decimal      // Precision, Scale
	Date
	Time
	Timestamp // Unit
	Integer   // Signed
	Float16
	Other // or one that the physical type cannot have
)

// Logical is a logical type.
type Logical struct {
	Kind             Kind
	Signed           bool
	Unit             int // of a Timestamp: the power of ten of its ticks in a second: 3, 6 or 9
	Precision, Scale int
}

// Leaf is a column: a leaf of the schema.
type Leaf struct {
	Path        []string
	Type        Type
	Length      int // of FixedLenByteArray
	Logical     Logical
	Definitions int16 // the most definition level
	Repetitions int16 // the most repetition level
	Optional    bool  // the leaf itself may be null
	Column      int   // names of Path that are the column's: those of the groups around it, and its own
	InList      bool  // the column is a List
}

// File is an open Parquet file.
type File struct {
	// Leaves are the columns, in the order of the schema.
	Leaves []Leaf
	// Metadata is what the writer put beside the schema.
	Metadata map[string]string

	in     io.ReaderAt
	size   int64
	limits Limits
	groups []group
	// Every compressed page of the second version says that it is not. So did parquet-cpp before
	// 2.0 (ARROW-10353).
	wrongFlags bool
	scratch    []byte // a compressed page, for as long as it takes to decompress it
}

// Limits bounds what a file can take of memory.
type Limits struct {
	Bytes   int // of the footer, of a page and of a dictionary, compressed or not
	Columns int
}

// group is a row group.
type group struct {
	rows   int64
	chunks []chunk
}

// chunk is a column chunk.
type chunk struct {
	typ    Type
	codec  int
	values int64 // with nulls
	from   int64 // the position of its first page
	fault  error // why it cannot be read; nil: it can
}

const magic = "PAR1"

// TooLargeError is a page, a dictionary or a footer beyond the limit.
type TooLargeError struct {
	What  string
	Bytes int64
	Limit int
}

func (e TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, the limit is %d", e.What, e.Bytes, e.Limit)
}

// ErrEncrypted is a column or a footer that is encrypted.
var ErrEncrypted = errors.New("it is encrypted, and there is no key here: decrypt it first")

// Open reads the footer of a file of so many bytes.
func Open(in io.ReaderAt, size int64, limits Limits) (*File, error) {
	const tailBytes = 8
	var tail [tailBytes]byte
	if size < tailBytes+int64(len(magic)) {
		return nil, errors.New("the file is too short")
	}
	if _, err := in.ReadAt(tail[:], size-tailBytes); err != nil && err != io.EOF {
		return nil, err
	}
	switch string(tail[4:]) {
	case magic:
	case "PARE":
		return nil, ErrEncrypted
	default:
		return nil, errors.New("the file does not end with a footer: it is truncated")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-tailBytes-int64(len(magic)) {
		return nil, errors.New("the footer is longer than the file")
	}
	if n > int64(limits.Bytes) {
		return nil, TooLargeError{"the footer", n, limits.Bytes}
	}
	footer := make([]byte, n)
	if _, err := in.ReadAt(footer, size-tailBytes-n); err != nil && err != io.EOF {
		return nil, err
	}
	f := &File{in: in, size: size, limits: limits, Metadata: map[string]string{}}
	return f, f.readFooter(&thrift{b: footer})
}

// RowGroups is the number of row groups.
func (f *File) RowGroups() int { return len(f.groups) }

// Rows is the number of rows of a row group.
func (f *File) Rows(group int) int64 { return f.groups[group].rows }

// element is an element of the schema: a leaf, or a group with so many children behind it.
type element struct {
	name       string
	typ        int // -1 of a group
	length     int
	repetition int
	children   int
	converted  int // the older form of a logical type; -1: none
	logical    Logical
}

// The repetition of a field.
const (
	required = iota
	optional
	repeated
)

// readFooter reads FileMetaData.
func (f *File) readFooter(t *thrift) (err error) {
	var elements []element
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
		t.bad = true
	}
	t.fields(func(id, typ int) {
		switch id {
		case 2:
			t.list(typ, thriftStruct, func() {
				const groupsPerColumn = 4 // of any reasonable schema, and its root
				if len(elements) > groupsPerColumn*(f.limits.Columns+1) {
					fail("the schema has more than %d elements, the limit is %d columns", len(elements)-1, f.limits.Columns)
					return
				}
				elements = append(elements, readElement(t))
			})
		case 4:
			t.list(typ, thriftStruct, func() { f.groups = append(f.groups, readGroup(t)) })
		case 5:
			t.list(typ, thriftStruct, func() {
				var key, value string
				t.fields(func(id, typ int) {
					switch id {
					case 1:
						key = t.text(typ)
					case 2:
						value = t.text(typ)
					default:
						t.skip(typ)
					}
				})
				f.Metadata[key] = value
			})
		case 6:
			version, is := strings.CutPrefix(t.text(typ), "parquet-cpp version ")
			f.wrongFlags = is && (strings.HasPrefix(version, "0.") || strings.HasPrefix(version, "1."))
		default:
			t.skip(typ)
		}
	})
	if err != nil {
		return err
	}
	if t.bad {
		return errors.New("the footer is malformed")
	}
	s := schema{elements: elements, file: f}
	if err := s.read(nil, nil, 0, 0, 0, 0); err != nil {
		return err
	}
	if len(s.elements) > 0 {
		return errors.New("the schema is malformed: it has elements behind its last")
	}
	for i, g := range f.groups {
		switch {
		case g.rows < 0:
			return errors.New("a row group has a negative number of rows")
		case len(g.chunks) != len(f.Leaves):
			return fmt.Errorf("row group %d has %d columns, the schema %d", i, len(g.chunks), len(f.Leaves))
		}
	}
	return nil
}

// readElement reads SchemaElement.
func readElement(t *thrift) element {
	e := element{typ: -1, converted: -1}
	named := false
	var scale, precision int
	t.fields(func(id, typ int) {
		switch id {
		case 1:
			if e.typ = t.i32(typ); e.typ < 0 || e.typ > int(FixedLenByteArray) {
				t.bad = true
			}
		case 2:
			e.length = t.i32(typ)
		case 3:
			e.repetition = t.i32(typ)
		case 4:
			e.name, named = t.text(typ), true
		case 5:
			e.children = t.i32(typ)
		case 6:
			e.converted = t.i32(typ)
		case 7:
			scale = t.i32(typ)
		case 8:
			precision = t.i32(typ)
		case 10:
			e.logical = readLogical(t, typ)
		default:
			t.skip(typ)
		}
	})
	if e.logical.Kind == None && e.converted >= 0 {
		e.logical = convertedType(e.converted)
		e.logical.Precision, e.logical.Scale = precision, scale
	}
	t.bad = t.bad || !named || e.children < 0 || e.repetition < required || e.repetition > repeated
	return e
}

// readLogical reads LogicalType, a union.
func readLogical(t *thrift, typ int) (l Logical) {
	kinds := map[int]Kind{1: Text, 3: List, 4: Text, 5: Decimal, 6: Date, 7: Time, 8: Timestamp, 10: Integer, 11: None, 12: Text, 15: Float16}
	t.structure(typ, func(id, typ int) {
		kind, known := kinds[id]
		if !known {
			kind = Other
		}
		l.Kind = kind
		t.structure(typ, func(id, typ int) {
			switch {
			case kind == Decimal && id == 1:
				l.Scale = t.i32(typ)
			case kind == Decimal && id == 2:
				l.Precision = t.i32(typ)
			case kind == Timestamp && id == 2:
				t.structure(typ, func(id, typ int) {
					if l.Unit = 3 * id; id < 1 || id > 3 {
						t.bad = true
					}
					t.skip(typ)
				})
			case kind == Integer && id == 2:
				l.Signed = t.boolean(typ)
			default:
				t.skip(typ)
			}
		})
	})
	return l
}

// convertedType is the logical type that stands for one of the older form.
func convertedType(converted int) Logical {
	switch converted {
	case 0, 4, 19: // UTF8, ENUM, JSON
		return Logical{Kind: Text}
	case 3:
		return Logical{Kind: List}
	case 5:
		return Logical{Kind: Decimal}
	case 6:
		return Logical{Kind: Date}
	case 7, 8: // in milliseconds, in microseconds
		return Logical{Kind: Time}
	case 9:
		return Logical{Kind: Timestamp, Unit: 3}
	case 10:
		return Logical{Kind: Timestamp, Unit: 6}
	case 11, 12, 13, 14: // UINT_8 to UINT_64
		return Logical{Kind: Integer}
	case 15, 16, 17, 18: // INT_8 to INT_64
		return Logical{Kind: Integer, Signed: true}
	}
	return Logical{Kind: Other} // MAP, BSON, INTERVAL
}

// readGroup reads RowGroup.
func readGroup(t *thrift) (g group) {
	g.rows = -1
	t.fields(func(id, typ int) {
		switch id {
		case 1:
			t.list(typ, thriftStruct, func() { g.chunks = append(g.chunks, readChunk(t)) })
		case 3:
			g.rows = t.i64(typ)
		default:
			t.skip(typ)
		}
	})
	return g
}

// readChunk reads ColumnChunk.
func readChunk(t *thrift) chunk {
	c := chunk{from: -1, values: -1, codec: -1}
	encrypted, elsewhere := false, false
	var dictionary int64
	t.fields(func(id, typ int) {
		switch id {
		case 1:
			elsewhere = t.text(typ) != ""
		case 3:
			t.structure(typ, func(id, typ int) { // ColumnMetaData
				switch id {
				case 1:
					c.typ = Type(t.i32(typ))
				case 4:
					c.codec = t.i32(typ)
				case 5:
					c.values = t.i64(typ)
				case 9:
					c.from = t.i64(typ)
				case 11:
					dictionary = t.i64(typ)
				default:
					t.skip(typ)
				}
			})
		case 8, 9: // how it is encrypted; its encrypted metadata
			encrypted = true
			t.skip(typ)
		default:
			t.skip(typ)
		}
	})
	if dictionary > 0 {
		c.from = min(c.from, dictionary)
	}
	switch {
	case encrypted:
		c.fault = ErrEncrypted
	case elsewhere:
		c.fault = errors.New("the values are in another file")
	case c.from < 0 || c.values < 0 || c.codec < 0:
		c.fault = errors.New("the footer does not say where the values are")
	}
	return c
}

// schema makes leaves of elements.
type schema struct {
	elements []element // that are left
	file     *File
}

// read reads an element and all below it. column is the element above it that is the column: the
// outermost one that is no plain group, such as a List. nil: there is none.
func (s *schema) read(path []string, column *element, at int, definitions, repetitions int16, depth int) error {
	if len(s.elements) == 0 || depth > deepest {
		return errors.New("the schema is malformed, or nested too deeply")
	}
	e := s.elements[0]
	s.elements = s.elements[1:]
	if depth > 0 {
		path = append(path[:len(path):len(path)], e.name)
		if isColumn := e.typ >= 0 || e.repetition == repeated || e.logical.Kind != None; column == nil && isColumn {
			column, at = &e, len(path)
		}
		if e.repetition != required {
			definitions++
		}
		if e.repetition == repeated {
			repetitions++
		}
	}
	if e.typ < 0 || depth == 0 {
		for range e.children {
			if err := s.read(path, column, at, definitions, repetitions, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	f := s.file
	if len(f.Leaves) == f.limits.Columns {
		return fmt.Errorf("the file has more than %d columns, which is the limit", f.limits.Columns)
	}
	leaf := Leaf{
		Path: path, Type: Type(e.typ), Length: e.length, Logical: e.logical, Definitions: definitions, Repetitions: repetitions,
		Optional: e.repetition == optional, Column: at, InList: column.logical.Kind == List,
	}
	if leaf.Type == FixedLenByteArray && leaf.Length <= 0 {
		return fmt.Errorf("column %q has values of %d bytes", path, leaf.Length)
	}
	if !leaf.Logical.fits(leaf.Type, leaf.Length) {
		leaf.Logical = Logical{Kind: Other}
	}
	f.Leaves = append(f.Leaves, leaf)
	return nil
}

// fits is whether a physical type can have the logical one.
func (l Logical) fits(t Type, length int) bool {
	switch l.Kind {
	case Text:
		return t == ByteArray
	case Decimal:
		return t != Boolean && t != Int96 && t != Float && t != Double && l.Precision > 0
	case Date:
		return t == Int32
	case Time:
		return t == Int32 || t == Int64
	case Timestamp:
		return t == Int64 && l.Unit > 0
	case Integer:
		return t == Int32 || t == Int64
	case Float16:
		return t == FixedLenByteArray && length == 2
	}
	return l.Kind == None
}
