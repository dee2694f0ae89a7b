package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"streamd/incremental/gram"
)

// The numbers below are Arrow's: format/Message.fbs and format/Schema.fbs.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3

	metadataV4 = 3 // the fourth version; union layouts aside the fifth is the same
	metadataV5 = 4

	codecLZ4  = 0
	codecZstd = 1

	typeInt             = 2
	typeFloat           = 3
	typeUtf8            = 5
	typeBool            = 6
	typeFixedSizeList   = 16
	typeLargeUtf8       = 20
	typeUtf8View        = 24
	continuation        = 0xFFFFFFFF
	arrowFileMagic      = "ARROW1"
	listNamesKey        = "features"       // in a list field's metadata: JSON array of the features' names
	pandasIndexPrefix   = "__index_level_" // how pandas calls a data frame's index
	maxFieldMetadata    = 64               // entries looked at
	compressedPrefix    = 8                // bytes before a compressed buffer: its length when decompressed
	compressedVerbatim  = int64(-1)        // that length for a buffer left as it is
	maxListNamesDecoded = 1 << 20          // bytes of that JSON array
	viewSize, viewShort = 16, 12           // a string view, and the longest string within it
)

// layout is how an array lies in memory.
type layout uint8

const (
	layoutUnsupported layout = iota
	layoutNumbers            // of a kind
	layoutHalf
	layoutBits
	layoutText      // 32-bit offsets
	layoutLargeText // 64-bit offsets
	layoutView
	layoutList // of a fixed size
)

// arrayType is the type of an array.
type arrayType struct {
	layout layout
	kind   gram.Kind // of layoutNumbers
	size   int       // bytes of a number or list length, by layout
	name   string    // for errors
}

// arrowField is a field of the schema.
type arrowField struct {
	name    string
	typ     arrayType // of the values
	list    arrayType // of a list's elements
	encoded bool      // as indices into a dictionary
	index   arrayType // of those
	id      int64     // of the dictionary

	role int // the column it goes to, or roleLabel, …
}

// arrowState is what the decoder keeps between blocks and within one.
type arrowState struct {
	// The plan: the last schema, so that a stream of blocks of one schema reads
	// it once.
	schema     []byte
	unlabelled bool
	fields     []arrowField
	names      []string // of the columns; nil: none
	width      int
	list       []int // of a list: the column that element j goes to
	dictionary labelArray
	codes      []int32 // per dictionary entry its code, or -1

	// The batches of the block in hand.
	rows   int
	parts  [][]byte // values, batch by batch, one part per field
	nbatch int

	// The message in hand.
	meta   flatbuffer
	body   []byte
	codec  int // -1: none
	labels labelArray

	arena arena
	lz4   *lz4.Reader
	zstd  *zstd.Decoder
	src   bytes.Reader
}

// labelArray is an array of labels.
type labelArray struct {
	typ   arrayType
	rows  int
	valid []byte // nil: no nulls
	data  []byte // numbers, bits, offsets or views
	text  []byte
	more  [][]byte // of layoutView
}

func (d *Decoder) decodeArrow(b []byte) error {
	if bytes.HasPrefix(b, []byte(arrowFileMagic)) {
		return d.fail(-1, "", "this is Arrow's file format; write the stream format")
	}
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != continuation {
		return d.fail(-1, "", "this is not an Arrow IPC stream")
	}
	d.beginArrow()
	for i := 0; i < len(b); {
		if len(b)-i < 8 || binary.LittleEndian.Uint32(b[i:]) != continuation {
			return d.fail(-1, "", "byte %d: want a message", i)
		}
		n := int(binary.LittleEndian.Uint32(b[i+4:]))
		if i += 8; n == 0 {
			if i < len(b) {
				return d.fail(-1, "", "byte %d: there is something behind the end of the stream", i)
			}
			break
		}
		if n > len(b)-i {
			return d.fail(-1, "", "byte %d: the message is truncated", i)
		}
		meta := b[i : i+n]
		i += n
		m, err := d.arrowMessage(meta)
		if err != nil {
			return err
		}
		if m.body > int64(len(b)-i) {
			return d.fail(-1, "", "byte %d: the message's body is truncated", i)
		}
		if err := d.arrowBody(m, b[i:i+int(m.body)]); err != nil {
			return err
		}
		i += int(m.body)
	}
	return d.finishArrow()
}

// arrowMessage is a message without its body; arrowState.meta has its bytes.
type arrowMessage struct {
	typ    byte
	header table
	body   int64
}

// arrowMessage reads a message's metadata.
func (d *Decoder) arrowMessage(meta []byte) (m arrowMessage, err error) {
	d.arrow.meta = flatbuffer{b: meta}
	f := &d.arrow.meta
	root := f.root()
	version := f.shortField(root, 0)
	m.typ = f.byteField(root, 1)
	header, ok := f.tableField(root, 2)
	m.header, m.body = header, f.longField(root, 3)
	switch {
	case f.bad || !ok || m.body < 0:
		return m, d.fail(-1, "", "a message's metadata is malformed")
	case version != metadataV4 && version != metadataV5:
		return m, d.fail(-1, "", "metadata version V%d is not supported: want V4 or V5", version+1)
	}
	return m, nil
}

// arrowBody takes a message in.
func (d *Decoder) arrowBody(m arrowMessage, body []byte) error {
	s := &d.arrow
	if first := s.nbatch < 0; first != (m.typ == headerSchema) {
		return d.fail(-1, "", "the schema is not the stream's first message, or not the only one")
	}
	s.body = body
	switch m.typ {
	case headerSchema:
		s.nbatch = 0
		return d.arrowSchema(&s.meta, m.header)
	case headerDictionary:
		return d.arrowDictionary(&s.meta, m.header)
	case headerBatch:
		return d.arrowBatch(&s.meta, m.header)
	}
	return d.fail(-1, "", "a message of type %d where a record batch is expected", m.typ)
}

func (d *Decoder) beginArrow() {
	s := &d.arrow
	s.nbatch = -1 // not even a schema
	s.rows, s.parts = 0, s.parts[:0]
	s.dictionary = labelArray{rows: -1}
	s.arena.reset()
}

// nextArrow is beginArrow for the next block of a stream whose schema, and
// perhaps dictionary, have been read.
func (d *Decoder) nextArrow() {
	s := &d.arrow
	s.nbatch, s.rows, s.parts = 0, 0, s.parts[:0]
	s.arena.reset()
	s.forgetCodes()
}

// forgetCodes makes the dictionary one of which no entry has a code.
func (s *arrowState) forgetCodes() {
	n := max(s.dictionary.rows, 0)
	s.codes = slices.Grow(s.codes[:0], n)[:n]
	for i := range s.codes {
		s.codes[i] = -1
	}
}

// own copies what the array is a view of.
func (a *labelArray) own() {
	a.valid, a.data, a.text = bytes.Clone(a.valid), bytes.Clone(a.data), bytes.Clone(a.text)
	for k := range a.more {
		a.more[k] = bytes.Clone(a.more[k])
	}
}

// arrowSchema makes the plan.
func (d *Decoder) arrowSchema(f *flatbuffer, schema table) error {
	s := &d.arrow
	if s.schema != nil && s.unlabelled == d.unlabelled && bytes.Equal(s.schema, f.b) {
		return nil
	}
	s.schema = nil
	little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	if big := f.shortField(schema, 0) != 0; big == little {
		return d.fail(-1, "", "the stream's byte order is not this machine's")
	}
	start, n := f.vectorField(schema, 1, 4)
	if n > d.opts.Limits.Features+2 { // the label and the weight
		return d.fail(-1, "", "the schema has %d fields, the limit is %d features", n, d.opts.Limits.Features)
	}
	s.fields, s.names, s.list = s.fields[:0], nil, nil
	var (
		list     []string
		listed   []string // names of the elements of a list
		lists    int
		features int
	)
	label, weight := -1, -1
	for k := range n {
		t := f.element(start, k)
		field, elements := d.arrowField(f, t)
		if f.bad {
			return d.fail(-1, "", "the schema is malformed")
		}
		switch field.name {
		case d.opts.Label:
			if label >= 0 {
				return d.fail(-1, field.name, "the name is used twice")
			}
			label, field.role = k, roleLabel
			if !field.labels() {
				return d.fail(-1, field.name, "labels of type %s are not supported", field.typ.name)
			}
		case d.opts.Weight:
			if weight >= 0 {
				return d.fail(-1, field.name, "the name is used twice")
			}
			weight, field.role = k, roleWeight
			if field.encoded || field.typ.layout != layoutNumbers {
				return d.fail(-1, field.name, "weights of type %s are not supported", field.typ.name)
			}
		default:
			if reason := badName([]byte(field.name)); reason != "" {
				return d.fail(-1, "", "%s", reason)
			}
			if strings.HasPrefix(field.name, pandasIndexPrefix) {
				return d.fail(-1, field.name, "this is a data frame's index; write with preserve_index=False")
			}
			if !field.numbers() {
				return d.fail(-1, field.name, "a feature of type %s is not supported: want integers, floats or booleans", field.typ.name)
			}
			features++
			if field.typ.layout == layoutList {
				lists++
				listed = elements
				s.width = field.typ.size
			} else {
				list = append(list, field.name)
			}
		}
		s.fields = append(s.fields, field)
	}
	switch {
	case f.bad:
		return d.fail(-1, "", "the schema is malformed")
	case label < 0 && !d.unlabelled:
		return d.fail(-1, d.opts.Label, "there is no such column for the label")
	case weight < 0 && d.weighted():
		return d.fail(-1, d.opts.Weight, "there is no such column for the weight")
	case features == 0:
		return d.fail(-1, "", "there are no features")
	case lists > 0 && features > 1:
		return d.fail(-1, "", "there is a list of features and another column beside it")
	}
	if err := d.arrowPlaces(list, listed, lists > 0); err != nil {
		return err
	}
	s.schema = append(s.schema[:0], f.b...)
	s.unlabelled = d.unlabelled
	return nil
}

// arrowPlaces gives the features their columns.
func (d *Decoder) arrowPlaces(list, listed []string, isList bool) error {
	s := &d.arrow
	s.names = d.want.names
	if isList && listed == nil {
		if d.want.width != 0 && s.width != d.want.width {
			return d.fail(-1, "", "there are %d features, want %d", s.width, d.want.width)
		}
		s.list = make([]int, s.width)
		for j := range s.list {
			s.list[j] = j
		}
		return nil
	}
	if isList {
		if len(listed) != s.width {
			return d.fail(-1, "", "the field metadata names %d features, the list has %d", len(listed), s.width)
		}
		list = listed
	}
	at, err := d.place(list)
	if err != nil {
		return err
	}
	if s.names == nil {
		s.names = list
	}
	s.width = len(list)
	if isList {
		s.list = at
		return nil
	}
	for k := range s.fields {
		if s.fields[k].role >= 0 {
			s.fields[k].role, at = at[0], at[1:]
		}
	}
	return nil
}

// labels is whether the field can hold labels.
func (a *arrowField) labels() bool {
	return a.typ.layout != layoutUnsupported && a.typ.layout != layoutList
}

// numbers is whether the field can hold features.
func (a *arrowField) numbers() bool {
	if a.encoded {
		return false
	}
	switch a.typ.layout {
	case layoutNumbers, layoutHalf, layoutBits:
		return true
	case layoutList:
		return a.list.kind == gram.Float32 || a.list.kind == gram.Float64
	}
	return false
}

// arrowField reads a field of the schema, and the names of a list's elements.
func (d *Decoder) arrowField(f *flatbuffer, t table) (field arrowField, elements []string) {
	name := f.stringField(t, 0)
	field.name = string(name[:min(len(name), maxName+1)])
	field.typ = arrowType(f, t)
	if field.typ.layout == layoutList {
		start, n := f.vectorField(t, 5, 4)
		if n == 1 {
			field.list = arrowType(f, f.element(start, 0))
		}
		if size := field.typ.size; size <= 0 || size > d.opts.Limits.Features || n != 1 {
			field.typ.layout = layoutUnsupported
		}
		elements = listNames(f, t)
	}
	if dict, ok := f.tableField(t, 4); ok {
		field.encoded = true
		field.id = f.longField(dict, 0)
		field.index = arrayType{layout: layoutNumbers, kind: gram.Int32, size: 4} // when none is said
		if index, ok := f.tableField(dict, 1); ok {
			field.index = intType(f, index)
		}
		if field.index.layout != layoutNumbers {
			field.typ.layout = layoutUnsupported
		}
		field.typ.name = "dictionary of " + field.typ.name
	}
	return field, elements
}

// listNames reads the names of a list's elements from the field's metadata.
func listNames(f *flatbuffer, t table) (list []string) {
	start, n := f.vectorField(t, 6, 4)
	for k := range min(n, maxFieldMetadata) {
		entry := f.element(start, k)
		if string(f.stringField(entry, 0)) != listNamesKey {
			continue
		}
		value := f.stringField(entry, 1)
		if len(value) > maxListNamesDecoded || json.Unmarshal(value, &list) != nil {
			f.bad = true
		}
		for _, name := range list {
			f.bad = f.bad || badName([]byte(name)) != ""
		}
		return list
	}
	return nil
}

// arrowType reads a field's type.
func arrowType(f *flatbuffer, field table) arrayType {
	id := f.byteField(field, 2)
	t, _ := f.tableField(field, 3)
	switch id {
	case typeInt:
		return intType(f, t)
	case typeFloat:
		switch f.shortField(t, 0) {
		case 0:
			return arrayType{layout: layoutHalf, size: 2, name: "float16"}
		case 1:
			return arrayType{layout: layoutNumbers, kind: gram.Float32, size: 4, name: "float32"}
		case 2:
			return arrayType{layout: layoutNumbers, kind: gram.Float64, size: 8, name: "float64"}
		}
	case typeBool:
		return arrayType{layout: layoutBits, name: "boolean"}
	case typeUtf8:
		return arrayType{layout: layoutText, name: "utf8"}
	case typeLargeUtf8:
		return arrayType{layout: layoutLargeText, name: "large_utf8"}
	case typeUtf8View:
		return arrayType{layout: layoutView, name: "utf8_view"}
	case typeFixedSizeList:
		return arrayType{layout: layoutList, size: f.intField(t, 0), name: "fixed_size_list"}
	}
	return arrayType{name: fmt.Sprintf("number %d in Arrow's Schema.fbs", id)}
}

func intType(f *flatbuffer, t table) arrayType {
	signed := f.byteField(t, 1) != 0
	bits := f.intField(t, 0)
	kinds := map[int][2]gram.Kind{8: {gram.Uint8, gram.Int8}, 16: {gram.Uint16, gram.Int16},
		32: {gram.Uint32, gram.Int32}, 64: {gram.Uint64, gram.Int64}}[bits]
	name, kind := fmt.Sprintf("uint%d", bits), kinds[0]
	if signed {
		name, kind = fmt.Sprintf("int%d", bits), kinds[1]
	}
	if kind == 0 {
		return arrayType{name: name}
	}
	return arrayType{layout: layoutNumbers, kind: kind, size: bits / 8, name: name}
}

// batchReader walks through the arrays of a record batch.
type batchReader struct {
	d         *Decoder
	f         *flatbuffer
	nodes     int // where the vectors start, and what is left of them
	nodesLeft int
	buffers   int
	buffLeft  int
	variadic  int
	varLeft   int
	rows      int
	row0      int    // rows of earlier batches
	bad       *Error // of the first bad row so far
}

func (d *Decoder) newBatchReader(f *flatbuffer, batch table) (r batchReader, err error) {
	r = batchReader{d: d, f: f, row0: d.arrow.rows}
	rows := f.longField(batch, 0)
	r.nodes, r.nodesLeft = f.vectorField(batch, 1, 16)
	r.buffers, r.buffLeft = f.vectorField(batch, 2, 16)
	r.variadic, r.varLeft = f.vectorField(batch, 4, 8)
	d.arrow.codec = -1
	if c, ok := f.tableField(batch, 3); ok {
		d.arrow.codec = int(f.byteField(c, 0))
		if method := f.byteField(c, 1); method != 0 || d.arrow.codec > codecZstd {
			return r, d.fail(-1, "", "compression %d/%d is not supported: want LZ4 frame or Zstandard", d.arrow.codec, method)
		}
	}
	switch {
	case f.bad || rows < 0:
		return r, d.fail(-1, "", "a record batch's metadata is malformed")
	case rows > int64(d.opts.Limits.Rows):
		return r, d.fail(-1, "", "a record batch has %d rows, the limit is %d", rows, d.opts.Limits.Rows)
	}
	r.rows = int(rows)
	return r, nil
}

// node reads the next array's length, which must be want, and its nulls.
func (r *batchReader) node(want int) (nulls int64, ok bool) {
	if r.nodesLeft == 0 {
		return 0, false
	}
	n := r.f.i64(r.nodes)
	nulls = r.f.i64(r.nodes + 8)
	r.nodes, r.nodesLeft = r.nodes+16, r.nodesLeft-1
	return nulls, n == int64(want) && nulls >= 0 && nulls <= n
}

// skip passes over a buffer.
func (r *batchReader) skip() bool {
	if r.buffLeft == 0 {
		return false
	}
	r.buffers, r.buffLeft = r.buffers+16, r.buffLeft-1
	return true
}

// buffer reads the next buffer, of at least min bytes.
func (r *batchReader) buffer(min int) ([]byte, error) {
	at := r.buffers
	if !r.skip() {
		return nil, r.d.fail(-1, "", "a record batch has too few buffers")
	}
	offset, n := r.f.i64(at), r.f.i64(at+8)
	s := &r.d.arrow
	if offset < 0 || n < 0 || offset > int64(len(s.body)) || n > int64(len(s.body))-offset {
		return nil, r.d.fail(-1, "", "a buffer lies outside its message")
	}
	b := s.body[offset : offset+n]
	if s.codec >= 0 && len(b) > 0 {
		var err error
		if b, err = r.d.decompress(b); err != nil {
			return nil, err
		}
	}
	if len(b) < min {
		return nil, r.d.fail(-1, "", "a buffer has %d bytes, want %d", len(b), min)
	}
	return b, nil
}

// decompress undoes a buffer's compression, into the arena.
func (d *Decoder) decompress(b []byte) ([]byte, error) {
	s := &d.arrow
	if len(b) < compressedPrefix {
		return nil, d.fail(-1, "", "a compressed buffer is truncated")
	}
	n := int64(binary.LittleEndian.Uint64(b))
	b = b[compressedPrefix:]
	if n == compressedVerbatim {
		return b, nil
	}
	if n < 0 || n > int64(d.opts.Limits.Bytes) {
		return nil, d.fail(-1, "", "a buffer decompresses to %d bytes, the limit is %d", n, d.opts.Limits.Bytes)
	}
	out, err := d.take(int(n))
	if err != nil {
		return nil, err
	}
	if s.codec == codecLZ4 {
		if s.lz4 == nil {
			s.lz4 = lz4.NewReader(nil)
		}
		s.src.Reset(b)
		s.lz4.Reset(&s.src)
		if _, err := io.ReadFull(s.lz4, out); err != nil {
			return nil, d.fail(-1, "", "LZ4: %v", err)
		}
		return out, nil
	}
	if s.zstd == nil {
		s.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(d.opts.Limits.Bytes)))
		if err != nil {
			return nil, d.fail(-1, "", "Zstandard: %v", err)
		}
	}
	got, err := s.zstd.DecodeAll(b, out[:0])
	if err != nil || len(got) != len(out) {
		return nil, d.fail(-1, "", "Zstandard: %d bytes, want %d (%v)", len(got), len(out), err)
	}
	return got, nil
}

// take is n bytes of the arena, aligned for any number.
func (d *Decoder) take(n int) ([]byte, error) {
	if limit := d.opts.Limits.Bytes; n > limit-d.arrow.arena.taken() {
		return nil, d.fail(-1, "", "the block needs more than %d bytes, the limit", limit)
	}
	return d.arrow.arena.take(n), nil
}

// validity reads the validity bitmap of an array with so many nulls; nil: none.
func (r *batchReader) validity(nulls int64, rows int) ([]byte, error) {
	if nulls == 0 {
		if !r.skip() {
			return nil, r.d.fail(-1, "", "a record batch has too few buffers")
		}
		return nil, nil
	}
	return r.buffer((rows + 7) / 8)
}

// badRow remembers a bad row, unless an earlier one is known: the columns come
// one by one, and the first bad row of all is to be named.
func (r *batchReader) badRow(row int, column, reason string) {
	if r.bad == nil || row < r.bad.Row {
		r.bad = r.d.fail(row, column, "%s", reason)
	}
}

// noNulls refuses an array with nulls; per is the number of elements in a row.
func (r *batchReader) noNulls(nulls int64, elements, per int, column string) error {
	valid, err := r.validity(nulls, elements)
	if err != nil || nulls == 0 {
		return err
	}
	for i := range elements {
		if bit(valid, i) {
			continue
		}
		r.badRow(r.row0+i/per, column, "the value is null")
		return nil
	}
	return r.d.fail(-1, column, "nulls are announced but there are none")
}

func bit(b []byte, i int) bool { return b[i/8]>>(i%8)&1 != 0 }

// arrowBatch takes in a record batch.
func (d *Decoder) arrowBatch(f *flatbuffer, batch table) error {
	s := &d.arrow
	r, err := d.newBatchReader(f, batch)
	if err != nil {
		return err
	}
	if r.rows == 0 {
		return nil
	}
	if limit := d.opts.Limits.Rows; r.rows > limit-s.rows {
		return d.fail(-1, "", "the block has more than %d rows, the limit", limit)
	}
	for k := range s.fields {
		if err := r.field(&s.fields[k]); err != nil {
			return err
		}
	}
	if r.bad != nil {
		return r.bad
	}
	if r.nodesLeft > 0 || r.buffLeft > 0 {
		return d.fail(-1, "", "a record batch has more arrays than the schema")
	}
	s.rows += r.rows
	s.nbatch++
	return nil
}

// field takes in one field of the batch.
func (r *batchReader) field(field *arrowField) error {
	d := r.d
	if field.role == roleLabel {
		return r.label(field)
	}
	nulls, ok := r.node(r.rows)
	if !ok {
		return d.fail(-1, field.name, "an array's length or null count is malformed")
	}
	if field.role == roleWeight && d.unlabelled {
		r.skip()
		r.skip()
		d.arrow.parts = append(d.arrow.parts, nil)
		return nil
	}
	if err := r.noNulls(nulls, r.rows, 1, field.name); err != nil {
		return err
	}
	var values []byte
	var err error
	switch field.typ.layout {
	case layoutNumbers:
		if values, err = r.buffer(r.rows * field.typ.size); err != nil {
			return err
		}
		values = values[:r.rows*field.typ.size]
	case layoutHalf:
		values, err = r.halves()
	case layoutBits:
		values, err = r.bits()
	case layoutList:
		size := field.typ.size
		if r.rows > math.MaxInt/8/size {
			return d.fail(-1, field.name, "the list is too long")
		}
		if nulls, ok = r.node(r.rows * size); !ok {
			return d.fail(-1, field.name, "a list's length or null count is malformed")
		}
		if err := r.noNulls(nulls, r.rows*size, size, field.name); err != nil {
			return err
		}
		if values, err = r.buffer(r.rows * size * field.list.size); err != nil {
			return err
		}
		values = values[:r.rows*size*field.list.size]
	}
	d.arrow.parts = append(d.arrow.parts, values)
	return err
}

// halves converts a column of float16 to float32, which is exact.
func (r *batchReader) halves() ([]byte, error) {
	b, err := r.buffer(2 * r.rows)
	if err != nil {
		return nil, err
	}
	out, err := r.d.take(4 * r.rows)
	if err != nil {
		return nil, err
	}
	for i := range r.rows {
		h := float16.FromBits(binary.LittleEndian.Uint16(b[2*i:]))
		binary.NativeEndian.PutUint32(out[4*i:], math.Float32bits(h.Float32()))
	}
	return out, nil
}

// bits converts a column of booleans to bytes.
func (r *batchReader) bits() ([]byte, error) {
	b, err := r.buffer((r.rows + 7) / 8)
	if err != nil {
		return nil, err
	}
	out, err := r.d.take(r.rows)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = b[i/8] >> (i % 8) & 1
	}
	return out, nil
}

// label takes in the labels of a batch.
func (r *batchReader) label(field *arrowField) error {
	d, s := r.d, &r.d.arrow
	s.parts = append(s.parts, nil)
	typ := field.typ
	if field.encoded {
		typ = field.index
	}
	var err error
	if s.labels, err = r.labelArray(typ, r.rows); err != nil || d.unlabelled {
		return err
	}
	a := &s.labels
	if a.valid != nil {
		for i := range a.rows {
			if !bit(a.valid, i) {
				r.badRow(r.row0+i, field.name, "the label is null")
				return nil
			}
		}
	}
	bad, reason := d.labelCodes(field, a)
	if reason != "" {
		r.badRow(r.row0+bad, field.name, reason)
	}
	return nil
}

// labelArray reads an array of labels.
func (r *batchReader) labelArray(typ arrayType, rows int) (a labelArray, err error) {
	a = labelArray{typ: typ, rows: rows}
	nulls, ok := r.node(rows)
	if !ok {
		return a, r.d.fail(-1, r.d.opts.Label, "an array's length or null count is malformed")
	}
	if a.valid, err = r.validity(nulls, rows); err != nil {
		return a, err
	}
	size := 0
	switch typ.layout {
	case layoutNumbers, layoutHalf:
		size = rows * typ.size
	case layoutBits:
		size = (rows + 7) / 8
	case layoutText:
		size = 4 * (rows + 1)
	case layoutLargeText:
		size = 8 * (rows + 1)
	case layoutView:
		size = viewSize * rows
	}
	if rows == 0 { // an empty array may leave its offsets out
		size = 0
	}
	if a.data, err = r.buffer(size); err != nil {
		return a, err
	}
	switch typ.layout {
	case layoutNumbers:
		a.data, err = r.d.aligned(a.data, typ.size)
	case layoutText, layoutLargeText:
		a.text, err = r.buffer(0)
	case layoutView:
		if r.varLeft == 0 {
			return a, r.d.fail(-1, r.d.opts.Label, "a view's buffers are not counted")
		}
		n := r.f.i64(r.variadic)
		r.variadic, r.varLeft = r.variadic+8, r.varLeft-1
		if n < 0 || n > int64(r.buffLeft) {
			return a, r.d.fail(-1, r.d.opts.Label, "a record batch has too few buffers")
		}
		for range n {
			b, err := r.buffer(0)
			if err != nil {
				return a, err
			}
			a.more = append(a.more, b)
		}
	}
	return a, err
}

// arrowDictionary takes in the label's dictionary.
func (d *Decoder) arrowDictionary(f *flatbuffer, dictionary table) error {
	s := &d.arrow
	id := f.longField(dictionary, 0)
	delta := f.byteField(dictionary, 2) != 0
	data, ok := f.tableField(dictionary, 1)
	if f.bad || !ok {
		return d.fail(-1, "", "a dictionary's metadata is malformed")
	}
	k := slices.IndexFunc(s.fields, func(a arrowField) bool { return a.encoded && a.id == id })
	if k < 0 {
		return d.fail(-1, "", "a dictionary that no column refers to")
	}
	if delta {
		return d.fail(-1, s.fields[k].name, "dictionary deltas are not supported; write the dictionary whole")
	}
	r, err := d.newBatchReader(f, data)
	if err != nil {
		return err
	}
	a, err := r.labelArray(s.fields[k].typ, r.rows)
	if err != nil {
		return err
	}
	s.dictionary = a
	s.forgetCodes()
	return nil
}

// labelCodes appends the codes of an array without nulls. On failure it returns
// the first bad element and the reason.
func (d *Decoder) labelCodes(field *arrowField, a *labelArray) (bad int, reason string) {
	if field.encoded {
		return d.dictionaryCodes(a)
	}
	switch a.typ.kind {
	case gram.Int8:
		return numberCodes[int8](d, a)
	case gram.Int16:
		return numberCodes[int16](d, a)
	case gram.Int32:
		return numberCodes[int32](d, a)
	case gram.Int64:
		return numberCodes[int64](d, a)
	case gram.Uint8:
		return numberCodes[uint8](d, a)
	case gram.Uint16:
		return numberCodes[uint16](d, a)
	case gram.Uint32:
		return numberCodes[uint32](d, a)
	case gram.Uint64:
		return numberCodes[uint64](d, a)
	case gram.Float32:
		return numberCodes[float32](d, a)
	case gram.Float64:
		return numberCodes[float64](d, a)
	}
	for i := range a.rows {
		code, reason := d.labelCode(a, i)
		if reason != "" {
			return i, reason
		}
		d.codes = append(d.codes, code)
	}
	return 0, ""
}

// numberCodes is labelCodes for numbers.
func numberCodes[T gram.Number](d *Decoder, a *labelArray) (bad int, reason string) {
	data := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(a.data))), a.rows)
	d.codes = slices.Grow(d.codes, a.rows)
	small := &d.labels.small
	for i, x := range data {
		// The fast way is for a small integer that the block has had before.
		// A huge unsigned one changes its sign as an int64.
		if v := int64(x); T(v) == x && v < 0 == (x < 0) {
			if at := uint64(v + smallLabels/2); at < smallLabels && small[at] >= 0 {
				d.codes = append(d.codes, small[at])
				continue
			}
		}
		code, reason := d.numberCode(float64(x), a.typ.kind)
		if reason != "" {
			return i, reason
		}
		d.codes = append(d.codes, code)
	}
	return 0, ""
}

// numberCode is the code of a label that was of the kind.
func (d *Decoder) numberCode(x float64, kind gram.Kind) (code int32, reason string) {
	// Beyond this an integer may share its float64 with a neighbour.
	if (kind == gram.Int64 || kind == gram.Uint64) && math.Abs(x) >= 1<<53 {
		return -1, fmt.Sprintf("the label, about %v, has more than 53 bits; send it as a string", x)
	}
	return d.labels.number(x)
}

// dictionaryCodes is labelCodes for indices into the dictionary.
func (d *Decoder) dictionaryCodes(a *labelArray) (bad int, reason string) {
	s := &d.arrow
	if s.dictionary.rows < 0 {
		return 0, "the stream has no dictionary for the labels"
	}
	size := a.typ.size
	for i := range a.rows {
		var k uint64 // a negative index becomes a huge one
		switch at := a.data[i*size:]; size {
		case 1:
			k = uint64(at[0])
		case 2:
			k = uint64(binary.LittleEndian.Uint16(at))
		case 4:
			k = uint64(binary.LittleEndian.Uint32(at))
		case 8:
			k = binary.LittleEndian.Uint64(at)
		}
		if k >= uint64(len(s.codes)) {
			return i, "the label's index is outside its dictionary"
		}
		code := s.codes[k]
		if code < 0 {
			if valid := s.dictionary.valid; valid != nil && !bit(valid, int(k)) {
				return i, "the label is null"
			}
			if code, reason = d.labelCode(&s.dictionary, int(k)); reason != "" {
				return i, reason
			}
			s.codes[k] = code
		}
		d.codes = append(d.codes, code)
	}
	return 0, ""
}

// labelCode is the code of element i.
func (d *Decoder) labelCode(a *labelArray, i int) (code int32, reason string) {
	const outside = "the label lies outside its buffer"
	var from, to uint64
	text := a.text
	switch a.typ.layout {
	case layoutBits:
		if bit(a.data, i) {
			return d.labels.number(1)
		}
		return d.labels.number(0)
	case layoutHalf:
		return d.labels.number(float64(float16.FromBits(binary.LittleEndian.Uint16(a.data[2*i:])).Float32()))
	case layoutNumbers:
		x := columnOf(a.typ.kind, a.data[i*a.typ.size:], 0, 1, 1)
		return d.numberCode(x.At(0), a.typ.kind)
	case layoutText:
		from, to = uint64(binary.LittleEndian.Uint32(a.data[4*i:])), uint64(binary.LittleEndian.Uint32(a.data[4*i+4:]))
	case layoutLargeText:
		from, to = binary.LittleEndian.Uint64(a.data[8*i:]), binary.LittleEndian.Uint64(a.data[8*i+8:])
	case layoutView:
		view := a.data[viewSize*i : viewSize*(i+1)]
		n := uint64(binary.LittleEndian.Uint32(view))
		if n <= viewShort {
			text, from, to = view, 4, 4+n
			break
		}
		k := uint64(binary.LittleEndian.Uint32(view[8:]))
		if k >= uint64(len(a.more)) {
			return -1, outside
		}
		text, from = a.more[k], uint64(binary.LittleEndian.Uint32(view[12:]))
		to = from + n
	}
	if from > to || to > uint64(len(text)) {
		return -1, outside
	}
	return d.labels.verbatim(text[from:to])
}

// aligned is b, or a copy of it where it is misaligned for numbers of the size.
func (d *Decoder) aligned(b []byte, size int) ([]byte, error) {
	if isAligned(b, size) {
		return b, nil
	}
	c, err := d.take(len(b))
	copy(c, b)
	return c, err
}

func isAligned(b []byte, size int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(size) == 0
}

// columnOf views n numbers in b, which is aligned for them.
func columnOf(kind gram.Kind, b []byte, first, stride, n int) gram.Column {
	switch kind {
	case gram.Float32:
		return view[float32](b, first, stride, n)
	case gram.Float64:
		return view[float64](b, first, stride, n)
	case gram.Int8:
		return view[int8](b, first, stride, n)
	case gram.Int16:
		return view[int16](b, first, stride, n)
	case gram.Int32:
		return view[int32](b, first, stride, n)
	case gram.Int64:
		return view[int64](b, first, stride, n)
	case gram.Uint8:
		return view[uint8](b, first, stride, n)
	case gram.Uint16:
		return view[uint16](b, first, stride, n)
	case gram.Uint32:
		return view[uint32](b, first, stride, n)
	}
	return view[uint64](b, first, stride, n)
}

func view[T gram.Number](b []byte, first, stride, n int) gram.Column {
	v := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(T(0))))
	return gram.StridedColumn(v, first, stride, n)
}

// finishArrow makes the block of the batches.
func (d *Decoder) finishArrow() error {
	s := &d.arrow
	if s.rows == 0 {
		return d.fail(-1, "", "there are no rows")
	}
	d.columns = slices.Grow(d.columns[:0], s.width)[:s.width]
	var weights []float64
	for k := range s.fields {
		field := &s.fields[k]
		if field.role == roleLabel || field.role == roleWeight && d.unlabelled {
			continue
		}
		kind, size := field.typ.kind, field.typ.size
		switch field.typ.layout {
		case layoutHalf:
			kind, size = gram.Float32, 4
		case layoutBits:
			kind, size = gram.Uint8, 1
		case layoutList:
			kind, size = field.list.kind, field.list.size
		}
		values, err := d.gather(k, size)
		if err != nil {
			return err
		}
		switch {
		case field.role == roleWeight:
			if weights, err = d.arrowWeights(kind, values); err != nil {
				return err
			}
		case s.list != nil:
			for j, at := range s.list {
				d.columns[at] = columnOf(kind, values, j, s.width, s.rows)
			}
		default:
			d.columns[field.role] = columnOf(kind, values, 0, 1, s.rows)
		}
	}
	d.finish(s.names, weights)
	return nil
}

// gather is field k's values over all batches, aligned for numbers of the size.
// A single batch that is well aligned is returned as it lies in the payload.
func (d *Decoder) gather(k, size int) ([]byte, error) {
	s, n := &d.arrow, len(d.arrow.fields)
	if b := s.parts[k]; s.nbatch == 1 {
		return d.aligned(b, size)
	}
	total := 0
	for i := k; i < len(s.parts); i += n {
		total += len(s.parts[i])
	}
	out, err := d.take(total)
	if err != nil {
		return nil, err
	}
	at := 0
	for i := k; i < len(s.parts); i += n {
		at += copy(out[at:], s.parts[i])
	}
	return out, nil
}

// arrowWeights checks the weights, and converts them unless they are float64.
func (d *Decoder) arrowWeights(kind gram.Kind, values []byte) ([]float64, error) {
	s := &d.arrow
	var weights []float64
	if kind == gram.Float64 {
		weights = unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(values))), s.rows)
	} else {
		c := columnOf(kind, values, 0, 1, s.rows)
		for i := range s.rows {
			d.weights = append(d.weights, c.At(i))
		}
		weights = d.weights
	}
	for i, w := range weights {
		if reason := badWeight(w); reason != "" {
			return nil, d.fail(i, d.opts.Weight, "%s", reason)
		}
	}
	return weights, nil
}

// arena hands out memory that is all taken back at once. After a block or two of
// one size it allocates no more.
type arena struct {
	words []uint64
	used  int // words handed out
}

func (a *arena) reset() { a.used = 0 }

// taken is the number of bytes handed out.
func (a *arena) taken() int { return 8 * a.used }

// take is n bytes aligned for any number.
func (a *arena) take(n int) []byte {
	if n == 0 {
		return nil
	}
	w := (n + 7) / 8
	from := a.used
	a.used += w
	if a.used > len(a.words) {
		// What has been handed out stays where it is. The next block finds
		// room for everything up to here.
		a.words = make([]uint64, max(a.used, 2*len(a.words)))
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[from])), 8*w)[:n:n]
}
