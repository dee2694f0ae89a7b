package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"streamd/incremental/gram"
)

// The types of format/Schema.fbs that are understood.
const (
	typeInt           = 2
	typeFloat         = 3
	typeUtf8          = 5
	typeBool          = 6
	typeFixedSizeList = 16
	typeLargeUtf8     = 20
	typeUtf8View      = 24
)

// otherTypes are the rest, which errors call by name.
var otherTypes = map[byte]string{
	1: "null", 4: "binary", 7: "decimal", 8: "date", 9: "time", 10: "timestamp", 11: "interval", 12: "list",
	13: "struct", 14: "union", 15: "fixed_size_binary", 17: "map", 18: "duration", 19: "large_binary",
	21: "large_list", 22: "run_end_encoded", 23: "binary_view", 25: "list_view", 26: "large_list_view",
}

const (
	listNamesKey      = "features"       // in a list field's metadata: JSON array of the features' names
	maxListNames      = 1 << 20          // bytes of that array
	maxFieldMetadata  = 64               // entries looked at
	pandasIndexPrefix = "__index_level_" // how pandas calls a data frame's index
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
		switch {
		case field.name == d.opts.Label:
			if label >= 0 {
				return d.fail(-1, field.name, "the name is used twice")
			}
			label, field.role = k, roleLabel
			if !field.labels() {
				return d.fail(-1, field.name, "labels of type %s are not supported", field.typ.name)
			}
		case field.name == d.opts.Weight && field.name != "":
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
				return d.fail(-1, field.name, "a feature of type %s is not supported: want integers, floats or booleans, "+
					"or one fixed_size_list of up to %d float32 or float64", field.typ.name, d.opts.Limits.Features)
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
			return d.fail(-1, "", "there %s, want %d", areFeatures(s.width), d.want.width)
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
			field.typ.name = fmt.Sprintf("fixed_size_list of %d %s", field.typ.size, field.list.name)
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
		if len(value) > maxListNames || json.Unmarshal(value, &list) != nil {
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
	if name, ok := otherTypes[id]; ok {
		return arrayType{name: name}
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
