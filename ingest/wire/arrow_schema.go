package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"streamd/incremental/gram"
)

// The types of format/Schema.fbs that are understood.
const (
	typeNull            = 1
	typeInt             = 2
	typeFloat           = 3
	typeBinary          = 4
	typeUtf8            = 5
	typeBool            = 6
	typeDecimal         = 7
	typeDate            = 8
	typeTimestamp       = 10
	typeList            = 12
	typeStruct          = 13
	typeFixedSizeBinary = 15
	typeFixedSizeList   = 16
	typeDuration        = 18
	typeLargeBinary     = 19
	typeLargeUtf8       = 20
	typeLargeList       = 21
	typeBinaryView      = 23
	typeUtf8View        = 24
)

// otherTypes name the rest, for errors.
var otherTypes = map[int]string{
	9: "time", 11: "interval", 13: "struct", 14: "union", 17: "map",
	22: "run_end_encoded", 25: "list_view", 26: "large_list_view",
}

const (
	listFeatures      = "features"       // the list with this name has features without names, as in JSON
	listNamesKey      = "features"       // in a list field's metadata: JSON array of the features' names
	maxListNames      = 1 << 20          // bytes of that array
	maxFieldMetadata  = 64               // entries looked at
	pandasIndexPrefix = "__index_level_" // of the columns of a pandas data frame's index
)

// layout is how an array lies in memory.
type layout uint8

const (
	layoutUnsupported layout = iota
	layoutNull               // no values
	layoutNumbers            // of a kind
	layoutHalf
	layoutBits
	layoutDecimal
	layoutTime
	layoutDuration
	layoutText      // 32-bit offsets
	layoutLargeText // 64-bit offsets
	layoutView
	layoutFixed // texts of one length
	layoutList
)

// arrayType is the type of an array.
type arrayType struct {
	layout layout
	kind   gram.Kind // of layoutNumbers
	size   int       // bytes of a number or text, or list length, by layout
	name   string    // for errors

	offset    int   // bytes of the offsets of lists that may differ in length
	scale     int   // of layoutDecimal: digits behind the point
	perSecond int64 // of times and durations in 8 bytes; times of 4 bytes count days
}

// arrowPlan gives the fields of a schema their columns. A stream of blocks of one
// schema makes it once.
type arrowPlan struct {
	schema     []byte // the metadata that it was made from
	unlabelled bool

	fields []arrowField
	names  []string // of the columns; nil: none
	width  int

	ignores bool // some fields
	lists   bool // some fields are lists
}

// arrowField is a field of the schema.
type arrowField struct {
	name     string
	typ      arrayType // of the values
	elements arrayType // of a list
	length   int       // of a list; 0: not known yet
	listed   [][]byte  // names of the elements of a list; nil: none
	at       []int     // of a list: the column that element j goes to, or roleIgnored
	encoded  bool      // as indices into a dictionary
	index    arrayType // of those
	id       int64     // of the dictionary

	converted bool   // its values become float64 one by one
	texts     *coder // whose codes they become; nil: they are numbers
	gaps      bool   // its values may be missing

	role   int    // its column, or roleLabel, …
	depth  int    // structs around it
	arrays []byte // of an ignored field: the buffers of it and of its children, or viewBuffers
}

// roleStruct is the role of a struct whose fields have columns. They come behind it.
const roleStruct = roleIgnored - 1

// viewBuffers stands for the two buffers of an array of views and those that it counts.
const viewBuffers = 0xff

// sharesDictionary is whether the field is read by the dictionary with the id.
func (f *arrowField) sharesDictionary(id int64) bool {
	return f.encoded && f.role != roleIgnored && f.id == id
}

// takesLabels is whether the field can hold labels.
func (f *arrowField) takesLabels() bool {
	return f.typ.layout > layoutNull && f.typ.layout != layoutList
}

// takesFeatures is whether the field can hold features.
func (f *arrowField) takesFeatures() bool {
	if f.texts != nil {
		return f.takesLabels() || f.typ.layout == layoutNull && f.gaps && !f.encoded
	}
	if f.typ.layout == layoutList {
		return !f.encoded && f.elements.layout == layoutNumbers
	}
	return f.typ.layout > layoutNull || f.typ.layout == layoutNull && f.gaps && !f.encoded
}

// stored is the kind and the size in bytes of the field's numbers as a column.
func (f *arrowField) stored() (gram.Kind, int) {
	if f.converted {
		return gram.Float64, 8
	}
	switch f.typ.layout {
	case layoutNull:
		return gram.Float64, 8
	case layoutHalf:
		return gram.Float32, 4
	case layoutBits:
		return gram.Uint8, 1
	case layoutList:
		return f.elements.kind, f.elements.size
	}
	return f.typ.kind, f.typ.size
}

// schema makes the plan.
func (a *arrowReader) schema(schema table) error {
	p, f := &a.plan, &a.meta
	if p.schema != nil && p.unlabelled == a.unlabelled && bytes.Equal(p.schema, f.b) {
		for k := range p.fields {
			p.fields[k].length = p.fields[k].typ.size
		}
		return nil
	}
	p.schema = nil
	little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	if big := f.u16(f.field(schema, 0)) != 0; big == little {
		return a.fail(-1, "", "the stream's byte order is not this machine's")
	}
	start, n := f.vectorField(schema, 1, 4)
	if n > a.mostColumns() {
		return a.fail(-1, "", "the schema has %d fields, the limit is %d", n, a.mostColumns())
	}
	p.fields, p.names, p.ignores, p.lists, a.tables = p.fields[:0], nil, false, false, a.tables[:0]
	for k := range n {
		if err := a.flatten(f.element(start, k), "", 0); err != nil {
			return err
		}
	}
	apart := false // some features have fields of their own
	for k := 0; k < len(p.fields) && a.want.list != nil && !apart; k++ {
		_, apart = a.want.index[p.fields[k].name]
	}
	unnamed, features, known := false, 0, true
	label, weight, arrays := -1, -1, a.mostColumns()
	for k := range p.fields {
		field := &p.fields[k]
		switch {
		case field.role == roleStruct:
		case field.name == a.opts.Label && !a.unlabelled:
			if label >= 0 {
				return a.fail(-1, field.name, "the name is used twice")
			}
			label, field.role = k, roleLabel
			if !field.takesLabels() && (field.typ.layout != layoutNull || field.encoded) {
				return a.fail(-1, field.name, "labels of type %s are not supported", field.typ.name)
			}
		case field.name == a.opts.Weight && a.weighted():
			if weight >= 0 {
				return a.fail(-1, field.name, "the name is used twice")
			}
			weight, field.role = k, roleWeight
			if !field.takesLabels() {
				return a.fail(-1, field.name, "weights of type %s are not supported", field.typ.name)
			}
		case a.passesOver(field.name, field.typ.layout == layoutList, field.listed, apart):
			field.role, p.ignores = roleIgnored, true
			var err error
			if field.arrays, err = a.arraysOf(a.tables[k], nil, arrays, 0); err != nil {
				return err
			}
			arrays -= len(field.arrays)
		default:
			if err := a.checkFeature(field); err != nil {
				return err
			}
			features++
			unnamed = unnamed || field.isUnnamed()
			p.lists = p.lists || field.typ.layout == layoutList
			known = known && (field.typ.layout != layoutList || field.length > 0)
		}
	}
	switch {
	case f.bad:
		return a.fail(-1, "", "the schema is malformed")
	case label < 0 && !a.unlabelled:
		return a.fail(-1, a.opts.Label, "there is no such column for the label%s", likeHint(a.opts.Label, p.fieldNames()))
	case weight < 0 && a.weighted():
		return a.fail(-1, a.opts.Weight, "there is no such column for the weight%s", likeHint(a.opts.Weight, p.fieldNames()))
	case features > a.opts.Limits.Features:
		return a.fail(-1, "", "there are %d features, the limit is %d", features, a.opts.Limits.Features)
	case features == 0 && !a.opts.LabelAlone && (a.want.list == nil || !p.ignores):
		return a.fail(-1, "", "there are no features")
	case unnamed && features > 1:
		return a.fail(-1, "", "there is a list of features without names, and another column beside it")
	}
	if known {
		if err := a.placeFields(); err != nil {
			return err
		}
	}
	p.schema = append(p.schema[:0], f.b...)
	p.unlabelled = a.unlabelled
	return nil
}

// flatten appends a field to those of the plan, and the fields of a struct behind it, whose names
// are behind the struct's: address.country. A struct that a pattern ignores is one field.
func (a *arrowReader) flatten(t table, around string, depth int) error {
	f, p := &a.meta, &a.plan
	field := a.field(t)
	if around != "" {
		name := around + "." + field.name
		field.name = name[:min(len(name), maxName+1)]
	}
	field.depth = depth
	start, n := f.vectorField(t, 5, 4)
	opens := f.u8(f.field(t, 2)) == typeStruct && !field.encoded && n > 0 && !a.isRole(field.name) && !Matches(a.opts.Ignore, field.name)
	switch {
	case f.bad:
		return a.fail(-1, "", "the schema is malformed")
	case len(p.fields) == a.mostColumns():
		return a.fail(-1, "", "the schema has more than %d fields, the limit", a.mostColumns())
	case opens && depth == maxRecordDepth:
		return a.fail(-1, field.name, "there are structs more than %d deep within each other: ignore the outer ones", maxRecordDepth)
	case opens:
		field.role = roleStruct
	}
	p.fields, a.tables = append(p.fields, field), append(a.tables, t)
	for k := 0; opens && k < n; k++ {
		if err := a.flatten(f.element(start, k), field.name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// isRole is whether a column of the name is the label or the weight.
func (b *builder) isRole(name string) bool {
	return name == b.opts.Label || name == b.opts.Weight && name != ""
}

// fieldNames are the names of the schema's fields.
func (p *arrowPlan) fieldNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range p.fields {
			if !yield(p.fields[k].name) {
				return
			}
		}
	}
}

// isUnnamed is whether the field is a list of features without names.
func (f *arrowField) isUnnamed() bool {
	return f.typ.layout == layoutList && f.listed == nil && f.name == listFeatures
}

// passesOver is whether a column is not read: one that is ignored, and of rows whose labels are of
// no interest the label, and mostly the weight. A list has the features unless these have columns
// of their own (apart), or it has names for its elements (listed).
func (b *builder) passesOver(name string, isList bool, listed [][]byte, apart bool) bool {
	switch {
	case name == b.opts.Label:
		return b.unlabelled
	case name == b.opts.Weight && name != "":
		return !b.weighted()
	}
	if _, known := b.want.index[name]; known {
		return false
	}
	fixed := b.want.list != nil
	if fixed && isList {
		if fixed = apart; listed == nil && name != listFeatures {
			fixed = !slices.ContainsFunc(b.want.list, func(feature string) bool { return strings.HasPrefix(feature, name+"[") })
		}
	}
	return b.ignores([]byte(name), fixed)
}

// deepest bounds the nesting of a field that is ignored.
const deepest = 64

// arraysOf appends the numbers of buffers of a field's arrays, its own and its children's, in
// the order of a record batch (Arrow's Columnar.rst, "Recordbatch message"). They are no
// more than most.
func (a *arrowReader) arraysOf(t table, to []byte, most, depth int) ([]byte, error) {
	f := &a.meta
	if len(to) >= most || depth > deepest {
		return nil, a.fail(-1, "", "the ignored columns have more than %d arrays, or are nested too deeply", most)
	}
	if _, encoded := f.tableField(t, 4); encoded {
		return append(to, 2), nil
	}
	id := f.u8(f.field(t, 2))
	buffers, nested := 2, false
	switch id {
	case 1, 22: // null, run_end_encoded
		buffers, nested = 0, id == 22
	case 4, 5, 19, 20: // offsets beside the values
		buffers = 3
	case 23, 24:
		buffers = viewBuffers
	case 12, 17, 21: // lists and maps
		nested = true
	case 13, 16: // struct, fixed_size_list
		buffers, nested = 1, true
	case 25, 26: // views of lists
		buffers, nested = 3, true
	case 14: // union
		typ, _ := f.tableField(t, 3)
		buffers, nested = 1+min(f.u16(f.field(typ, 0)), 1), true
		if a.version == metadataV4 {
			buffers++
		}
	case 2, 3, 6, 7, 8, 9, 10, 11, 15, 18:
	default:
		return nil, a.fail(-1, string(f.stringField(t, 0)), "an ignored column of type %s cannot be passed over", typeOf(f, t).name)
	}
	to = append(to, byte(buffers))
	if !nested {
		return to, nil
	}
	start, n := f.vectorField(t, 5, 4)
	for k := range n {
		var err error
		if to, err = a.arraysOf(f.element(start, k), to, most, depth+1); err != nil || f.bad {
			return to, err
		}
	}
	return to, nil
}

// checkFeature refuses a field that can be no feature.
func (a *arrowReader) checkFeature(field *arrowField) error {
	if reason := badName([]byte(field.name)); reason != "" {
		return a.fail(-1, "", "%s", reason)
	}
	if strings.HasPrefix(field.name, pandasIndexPrefix) {
		return a.fail(-1, field.name, "this is a data frame's index; write with preserve_index=False")
	}
	field.gaps = a.opts.Missing.Of(field.name) != MissingReject || field.typ.layout == layoutList && a.opts.Missing.Any()
	if field.typ.layout != layoutList {
		field.texts = a.textsNamed(field.name)
	}
	if field.texts != nil && field.typ.layout != layoutNull {
		field.converted = true
	}
	if !field.takesFeatures() {
		return a.fail(-1, field.name, "a feature of type %s is not supported: want numbers, booleans, dates, time stamps or texts that spell them, "+
			"or lists of up to %d numbers; or ignore the column", field.typ.name, a.opts.Limits.Features)
	}
	return nil
}

// placeFields gives the features their columns.
func (a *arrowReader) placeFields() error {
	p := &a.plan
	var list [][]byte // names
	for k := range p.fields {
		field := &p.fields[k]
		switch {
		case field.role < 0:
		case field.isUnnamed():
			return a.placeUnnamed(field)
		case field.typ.layout != layoutList:
			list = append(list, []byte(field.name))
		case field.listed != nil && len(field.listed) != field.length:
			return a.fail(-1, "", "the field metadata names %d features, the list has %d", len(field.listed), field.length)
		case field.length > a.opts.Limits.Features:
			return a.fail(-1, field.name, "the list has %d numbers, the limit is %d features", field.length, a.opts.Limits.Features)
		case field.listed != nil:
			list = append(list, field.listed...)
		default:
			for j := range field.length {
				list = append(list, appendElement(nil, []byte(field.name), j))
			}
		}
	}
	at, names, err := a.place(list)
	if err != nil {
		if !strings.Contains(err.Reason, looksAlike) { // an ignored one may
			err.Reason += likeHint(err.Column, p.fieldNames())
		}
		return err
	}
	if len(names) > a.opts.Limits.Features {
		return a.fail(-1, "", "there are %d features, the limit is %d", len(names), a.opts.Limits.Features)
	}
	p.names, p.width = names, len(names)
	for k := range p.fields {
		field := &p.fields[k]
		switch {
		case field.role < 0:
		case field.typ.layout == layoutList:
			field.at, at = at[:field.length], at[field.length:]
		default:
			field.role, at = at[0], at[1:]
		}
	}
	return nil
}

// arePlaced is whether the features have columns, for lists of the lengths that these have.
func (p *arrowPlan) arePlaced() bool {
	for k := range p.fields {
		if field := &p.fields[k]; field.role >= 0 && field.typ.layout == layoutList && len(field.at) != field.length {
			return false
		}
	}
	return true
}

// placeUnnamed gives the elements of a list without names their columns.
func (a *arrowReader) placeUnnamed(field *arrowField) error {
	p := &a.plan
	if p.width = field.length; a.want.width != 0 && p.width != a.want.width {
		return a.fail(-1, "", "there %s, want %d", areFeatures(p.width), a.want.width)
	}
	p.names, field.at = a.want.list, make([]int, p.width)
	for j := range field.at {
		field.at[j] = j
	}
	return nil
}

// field reads a field of the schema.
func (a *arrowReader) field(t table) (field arrowField) {
	f := &a.meta
	name := f.stringField(t, 0)
	field.name = string(name[:min(len(name), maxName+1)])
	field.typ = typeOf(f, t)
	if field.typ.layout == layoutList {
		start, n := f.vectorField(t, 5, 4)
		if n == 1 {
			field.elements = typeOf(f, f.element(start, 0))
			if field.typ.offset > 0 {
				field.typ.name += " of"
			}
			field.typ.name += " " + field.elements.name
		}
		field.length = field.typ.size
		if field.typ.offset == 0 && (field.length <= 0 || field.length > a.opts.Limits.Features) || n != 1 {
			field.typ.layout = layoutUnsupported
		}
		field.listed = listNames(f, t)
	}
	if dict, ok := f.tableField(t, 4); ok {
		field.encoded = true
		field.id = f.i64(f.field(dict, 0))
		field.index = arrayType{layout: layoutNumbers, kind: gram.Int32, size: 4} // by default
		if index, ok := f.tableField(dict, 1); ok {
			field.index = intType(f, index)
		}
		if field.index.layout != layoutNumbers {
			field.typ.layout = layoutUnsupported
		}
		field.typ.name = "dictionary of " + field.typ.name
	}
	switch field.typ.layout {
	case layoutNull, layoutNumbers, layoutHalf, layoutBits, layoutList:
		field.converted = field.encoded
	default:
		field.converted = true
	}
	return field
}

// listNames reads the names of a list's elements from the field's metadata.
func listNames(f *flatbuffer, t table) (names [][]byte) {
	start, n := f.vectorField(t, 6, 4)
	for k := range min(n, maxFieldMetadata) {
		entry := f.element(start, k)
		if string(f.stringField(entry, 0)) != listNamesKey {
			continue
		}
		value := f.stringField(entry, 1)
		var list []string
		if len(value) > maxListNames || json.Unmarshal(value, &list) != nil {
			f.bad = true
		}
		for _, name := range list {
			f.bad = f.bad || badName([]byte(name)) != ""
			names = append(names, []byte(name))
		}
		return names
	}
	return nil
}

// typeOf reads a field's type.
func typeOf(f *flatbuffer, field table) arrayType {
	id := f.u8(f.field(field, 2))
	t, _ := f.tableField(field, 3)
	switch id {
	case typeNull:
		return arrayType{layout: layoutNull, name: "null"}
	case typeInt:
		return intType(f, t)
	case typeFloat:
		switch f.u16(f.field(t, 0)) {
		case 0:
			return arrayType{layout: layoutHalf, size: 2, name: "float16"}
		case 1:
			return arrayType{layout: layoutNumbers, kind: gram.Float32, size: 4, name: "float32"}
		case 2:
			return arrayType{layout: layoutNumbers, kind: gram.Float64, size: 8, name: "float64"}
		}
	case typeBool:
		return arrayType{layout: layoutBits, name: "boolean"}
	case typeDecimal:
		return decimalType(f, t)
	case typeDate:
		if unit := f.field(t, 0); unit != absent && f.u16(unit) == 0 {
			return arrayType{layout: layoutTime, size: 4, name: "date32"}
		}
		return arrayType{layout: layoutTime, size: 8, perSecond: 1e3, name: "date64"}
	case typeTimestamp:
		if unit := f.u16(f.field(t, 0)); unit <= 3 {
			return arrayType{layout: layoutTime, size: 8, perSecond: int64(powers[3*unit]), name: "timestamp"}
		}
	case typeDuration:
		if unit := durationUnit(f, t); unit <= arrow.Nanosecond {
			return arrayType{layout: layoutDuration, size: 8, perSecond: int64(powers[3*unit]), name: "duration"}
		}
	case typeUtf8:
		return arrayType{layout: layoutText, name: "utf8"}
	case typeLargeUtf8:
		return arrayType{layout: layoutLargeText, name: "large_utf8"}
	case typeUtf8View:
		return arrayType{layout: layoutView, name: "utf8_view"}
	case typeBinary:
		return arrayType{layout: layoutText, name: "binary"}
	case typeLargeBinary:
		return arrayType{layout: layoutLargeText, name: "large_binary"}
	case typeBinaryView:
		return arrayType{layout: layoutView, name: "binary_view"}
	case typeFixedSizeBinary:
		if size := f.i32(f.field(t, 0)); size > 0 && size <= maxFixed {
			return arrayType{layout: layoutFixed, size: size, name: "fixed_size_binary"}
		}
		return arrayType{name: "fixed_size_binary"}
	case typeList:
		return arrayType{layout: layoutList, offset: 4, name: "list"}
	case typeLargeList:
		return arrayType{layout: layoutList, offset: 8, name: "large_list"}
	case typeFixedSizeList:
		size := f.i32(f.field(t, 0))
		return arrayType{layout: layoutList, size: size, name: fmt.Sprintf("fixed_size_list of %d", size)}
	}
	if name, ok := otherTypes[id]; ok {
		return arrayType{name: name}
	}
	return arrayType{name: fmt.Sprintf("number %d in Arrow's Schema.fbs", id)}
}

// maxFixed bounds the bytes of a text of fixed length. Labels and numbers are shorter.
const maxFixed = 1 << 10

// durationUnit is the unit of a duration: milliseconds by default.
func durationUnit(f *flatbuffer, t table) arrow.TimeUnit {
	if unit := f.field(t, 0); unit != absent {
		return arrow.TimeUnit(f.u16(unit))
	}
	return arrow.Millisecond
}

// maxScale bounds the digits behind a decimal's point, and the zeros before it. Decimals
// have up to 76 digits.
const maxScale = 76

func decimalType(f *flatbuffer, t table) arrayType {
	scale, bits := f.i32(f.field(t, 1)), 128
	if width := f.field(t, 2); width != absent {
		bits = f.i32(width)
	}
	name := fmt.Sprintf("decimal%d", bits)
	switch bits {
	case 32, 64, 128, 256:
		if -maxScale <= scale && scale <= maxScale {
			return arrayType{layout: layoutDecimal, size: bits / 8, scale: scale, name: name}
		}
	}
	return arrayType{name: name}
}

func intType(f *flatbuffer, t table) arrayType {
	signed := f.u8(f.field(t, 1)) != 0
	bits := f.i32(f.field(t, 0))
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
