package httpapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"streamd/cmd/streamd/model"
	"streamd/ingest/wire"
)

// InferRequest is the body of an inference of the Open Inference Protocol, version 2. The inputs
// are one tensor for each feature, of shape [rows] or [rows, 1], or one tensor [rows, features]
// with the numbers of all features in the model's order.
type InferRequest struct {
	ID         string          `json:"id,omitempty"`         // id of the request, which the answer repeats; where predictions are remembered, also the id of a single row
	ModelName  string          `json:"model_name,omitempty"` // the name in the path, for clients that repeat it here
	Parameters InferParameters `json:"parameters,omitempty"` // content_type (pd or np) and binary_data_output
	Inputs     []InferInput    `json:"inputs"`               // the inputs, which have one row or more, all the same number
	Outputs    []InferOutput   `json:"outputs,omitempty"`    // outputs to answer with, in this order; by default all
}

// InferParameters are parameters of the protocol: each is a text, a number or a boolean.
type InferParameters map[string]any

// InferInput is a tensor of an inference.
type InferInput struct {
	Name       string          `json:"name"`                 // name of the feature; of a tensor with all features any name
	Shape      []int64         `json:"shape"`                // [rows], [rows, 1] or [rows, features]
	Datatype   string          `json:"datatype"`             // BOOL, INT8 to INT64, UINT8 to UINT64, FP32, FP64 or BYTES
	Parameters InferParameters `json:"parameters,omitempty"` // content_type (np, pd or str) and binary_data_size
	Data       InferData       `json:"data,omitempty"`       // elements row by row, nested as in shape or not; null for a missing value; absent where they follow the JSON as bytes
}

// InferData is the elements of a tensor: a list in JSON.
type InferData json.RawMessage

// UnmarshalJSON keeps a copy of the text.
func (d *InferData) UnmarshalJSON(text []byte) error {
	*d = append((*d)[:0], text...)
	return nil
}

// InferOutput is an output that is asked for.
type InferOutput struct {
	Name       string          `json:"name"`                 // label, values or probabilities
	Parameters InferParameters `json:"parameters,omitempty"` // content_type and binary_data: whether the elements follow the JSON as bytes
}

// tensorRows has the rows of tensors as JSON, as predict reads them.
type tensorRows struct {
	json []byte
	rows int
}

// tensorsToRows is the step from the tensors of a request to rows that predict reads.
type tensorsToRows struct {
	served   *model.Served
	id       string            // of the row, if there is one row; "": none
	idFields []string          // that a row may have its id in
	most     int               // rows
	limit    int               // bytes of the rows
	grow     func(n int) error // asks for memory beyond shortBody
	raw      []byte            // elements behind the JSON
	inputs   []InferInput
}

// datatype is the type of the elements of a tensor.
type datatype struct {
	kind byte // b(oolean), i(nteger), u(nsigned), f(loat) or t(ext)
	bits int
}

var datatypes = map[string]datatype{
	"BOOL": {'b', 8}, "INT8": {'i', 8}, "INT16": {'i', 16}, "INT32": {'i', 32}, "INT64": {'i', 64},
	"UINT8": {'u', 8}, "UINT16": {'u', 16}, "UINT32": {'u', 32}, "UINT64": {'u', 64},
	"FP32": {'f', 32}, "FP64": {'f', 64}, "BYTES": {'t', 0},
}

// tensor is an input that is read element by element.
type tensor struct {
	name  string
	of    datatype
	key   []byte // `"name":`
	width int    // elements of a row; 1 for one of shape [rows]
	next  func() (element []byte, err error)
	end   func() error // reports elements beyond the last row
}

// toRows makes rows of the tensors. A feature for each tensor makes an object of each row, unless
// the tensors are all features, which are written without names.
func (c *tensorsToRows) toRows() (made tensorRows, err error) {
	columns := inputsOf(c.served)
	switch most := 2*len(columns) + 100; {
	case len(c.inputs) == 0:
		return made, fail(CodeBadRequest, "inputs: there are none")
	case len(c.inputs) > most:
		return made, fail(CodeTooLarge, "%d inputs: a model of %d columns takes at most %d", len(c.inputs), len(columns), most)
	}
	var tensors []tensor
	names := map[string]bool{}
	for i := range c.inputs {
		in := &c.inputs[i]
		if names[in.Name] {
			return made, fail(CodeBadRequest, "inputs: there are two of the name %q", in.Name)
		}
		names[in.Name] = true
		t, rows, err := c.open(in)
		if err != nil {
			return made, err
		}
		if i > 0 && rows != made.rows {
			return made, fail(CodeBadRequest, "input %q has %d rows, and %q has %d", in.Name, rows, tensors[0].name, made.rows)
		}
		made.rows, tensors = rows, append(tensors, t)
	}
	if len(c.raw) > 0 {
		return made, fail(CodeBadRequest, "%d bytes are left behind the elements of all inputs", len(c.raw))
	}
	if made.rows > c.most {
		return made, fail(CodeTooLarge, "%d rows: a prediction takes at most %d", made.rows, c.most)
	}
	ordered, prefix, matrix, err := c.arrange(tensors, names, made.rows)
	if err != nil {
		return made, err
	}
	if made.json, err = c.write(ordered, prefix, matrix, made.rows); err != nil {
		return made, err
	}
	for _, t := range tensors {
		if err := t.end(); err != nil {
			return made, fail(CodeBadRequest, "input %q: %v", t.name, err)
		}
	}
	return made, nil
}

// arrange says how a row is written: as an object that begins with prefix, or, where prefix is
// nil, as the list of the features' numbers. matrix says that the only tensor has all features.
func (c *tensorsToRows) arrange(tensors []tensor, names map[string]bool, rows int) (ordered []tensor, prefix []byte, matrix bool, err error) {
	ordered, prefix = tensors, []byte("{")
	var features []string
	if c.served.Schema == nil {
		features = c.served.Missing.Base(c.served.RowFeatures())
	}
	matrix = features != nil && len(tensors) == 1 && tensors[0].width == len(features) && (len(features) > 1 || tensors[0].name != features[0])
	if !matrix && len(tensors) == 1 && tensors[0].width > 1 && c.served.Schema != nil {
		return nil, nil, false, fail(CodeBadRequest, "input %q has %d columns: a model with a schema of features takes one input for each: %s", tensors[0].name, tensors[0].width, shownNames(inputNames(c.served)))
	}
	named := ""
	for _, field := range c.idFields {
		if names[field] {
			c.id = "" // each row has its own
		} else if named == "" {
			named = field
		}
	}
	switch {
	case c.id != "" && rows == 1 && named != "":
		id, _ := json.Marshal(c.id) // no string is an error
		prefix = fmt.Appendf(nil, `{"%s":%s,`, named, id)
	case matrix:
		return tensors, nil, true, nil
	case features != nil && len(tensors) == len(features):
		byName := map[string]tensor{}
		for _, t := range tensors {
			if t.width == 1 {
				byName[t.name] = t
			}
		}
		var all []tensor
		for _, name := range features {
			if t, ok := byName[name]; ok {
				all = append(all, t)
			}
		}
		if len(all) == len(features) {
			return all, nil, false, nil
		}
	}
	if matrix {
		tensors[0].key = []byte(`"features":`)
	}
	return tensors, prefix, matrix, nil
}

// shownNames lists the first names for an error.
func shownNames(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// write writes the rows as a list.
func (c *tensorsToRows) write(tensors []tensor, prefix []byte, matrix bool, rows int) ([]byte, error) {
	out, granted := []byte{'['}, shortBody
	for i := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		list := prefix == nil
		if list && !matrix {
			out = append(out, '[')
		} else if !list {
			out = append(out, prefix...)
		}
		for j, t := range tensors {
			if j > 0 {
				out = append(out, ',')
			}
			if !list {
				out = append(out, t.key...)
			}
			if t.width > 1 || matrix {
				out = append(out, '[')
			}
			for k := range t.width {
				if k > 0 {
					out = append(out, ',')
				}
				element, err := t.next()
				if err == nil {
					out, err = t.of.append(out, element)
				}
				if err != nil {
					return nil, fail(CodeBadRequest, "input %q, element %d: %v", t.name, i*t.width+k, err)
				}
				if len(out) > c.limit {
					return nil, fail(CodeTooLarge, "the rows take more than %d bytes as text: send fewer at a time", c.limit)
				}
				if len(out) > granted {
					// The buffer doubles as it grows, so a piece counts twice.
					if err := c.grow(2 * pieceBytes); err != nil {
						return nil, err
					}
					granted += pieceBytes
				}
			}
			if t.width > 1 || matrix {
				out = append(out, ']')
			}
		}
		if list && !matrix {
			out = append(out, ']')
		} else if !list {
			out = append(out, '}')
		}
	}
	return append(out, ']'), nil
}

// open checks what an input says of itself, and takes its bytes from those behind the JSON.
func (c *tensorsToRows) open(in *InferInput) (t tensor, rows int, err error) {
	bad := func(format string, args ...any) (tensor, int, error) {
		return t, 0, fail(CodeBadRequest, "input %q: %s", in.Name, fmt.Sprintf(format, args...))
	}
	key, _ := json.Marshal(in.Name) // no string is an error
	t = tensor{name: in.Name, key: append(key, ':'), width: 1}
	var known bool
	if t.of, known = datatypes[in.Datatype]; !known {
		return bad("the datatype is %.40q: want BOOL, INT8 to INT64, UINT8 to UINT64, FP32, FP64 or BYTES", in.Datatype)
	}
	if len(in.Shape) != 1 && len(in.Shape) != 2 || slices.ContainsFunc(in.Shape, func(n int64) bool { return n < 1 || n > math.MaxInt32 }) {
		return bad("the shape is %.100s: want [rows] or [rows, columns], each at least 1", fmt.Sprint(in.Shape))
	}
	rows = int(in.Shape[0])
	if len(in.Shape) == 2 {
		t.width = int(in.Shape[1])
	}
	size, err := binarySize(in.Parameters)
	if err != nil {
		return bad("%v", err)
	}
	elements := int64(rows) * int64(t.width)
	switch {
	case size == nil && in.Data == nil:
		return bad("it has neither data nor binary_data_size")
	case size == nil:
		t.next, t.end, err = jsonElements(in.Data, len(in.Shape) == 2, t.width)
	case in.Data != nil:
		return bad("it has both data and binary_data_size")
	case *size > int64(len(c.raw)):
		return bad("binary_data_size is %d, and %d bytes are left of the body", *size, len(c.raw))
	case t.of.kind != 't' && elements*int64(t.of.bits/8) != *size:
		return bad("binary_data_size is %d, and %d elements of %s have %d bytes", *size, elements, in.Datatype, elements*int64(t.of.bits/8))
	default:
		t.next, t.end = t.of.rawElements(c.raw[:*size])
		c.raw = c.raw[*size:]
	}
	if err != nil {
		return bad("%v", err)
	}
	return t, rows, nil
}

// binarySize is the parameter binary_data_size, or nil.
func binarySize(given InferParameters) (size *int64, err error) {
	for key, value := range given {
		if key != "binary_data_size" {
			if err := checkContentType(key, value, []string{"np", "pd", "str"}); err != nil {
				return nil, err
			}
			continue
		}
		number, is := value.(float64)
		if !is || number < 0 || number > math.MaxInt32 || number != math.Trunc(number) {
			return nil, fmt.Errorf("%s is %.40v: want a number of bytes", key, value)
		}
		size = new(int64(number))
	}
	return size, nil
}

// append adds an element in JSON, which it checks. The element is one of a valid text.
func (d datatype) append(out, element []byte) ([]byte, error) {
	if string(element) == "null" { // a missing value
		return append(out, element...), nil
	}
	ok := false
	switch d.kind {
	case 'b':
		ok = string(element) == "true" || string(element) == "false"
	case 'i':
		_, err := strconv.ParseInt(string(element), 10, d.bits)
		ok = err == nil
	case 'u':
		_, err := strconv.ParseUint(string(element), 10, d.bits)
		ok = err == nil
	case 't':
		ok = element[0] == '"'
	case 'f':
		ok = element[0] == '-' || element[0] >= '0' && element[0] <= '9'
		if ok && d.bits == 32 {
			x, err := strconv.ParseFloat(string(element), 32)
			if err == nil {
				return strconv.AppendFloat(out, x, 'g', -1, 64), nil // the number of single precision
			}
			ok = false
		}
	}
	if !ok {
		return out, fmt.Errorf("%.40s is no %s", element, d)
	}
	return append(out, element...), nil
}

// String is the name in the protocol.
func (d datatype) String() string {
	for name, of := range datatypes {
		if of == d {
			return name
		}
	}
	return fmt.Sprintf("%c%d", d.kind, d.bits)
}

var (
	errOtherLists = errors.New("the lists in data are not those of the shape")
	errEndsEarly  = errors.New("its bytes end early")
)

// jsonElements reads the elements of a valid list of JSON. Those of a matrix may be nested, row by
// row.
func jsonElements(data []byte, matrix bool, width int) (next func() ([]byte, error), end func() error, err error) {
	const blank = " \t\r\n,"
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(data, blank), []byte("["))
	if !ok {
		return nil, nil, errors.New("data is no list")
	}
	rest = bytes.TrimLeft(rest, blank)
	nested := matrix && len(rest) > 0 && rest[0] == '['
	n := 0
	take := func(bracket byte) bool {
		if rest = bytes.TrimLeft(rest, blank); len(rest) == 0 || rest[0] != bracket {
			return false
		}
		rest = bytes.TrimLeft(rest[1:], blank)
		return true
	}
	next = func() ([]byte, error) {
		if nested && n%width == 0 && (n > 0 && !take(']') || !take('[')) {
			return nil, errOtherLists
		}
		n++
		rest = bytes.TrimLeft(rest, blank)
		switch {
		case len(rest) == 0 || rest[0] == ']':
			return nil, errors.New("data has fewer elements than the shape")
		case rest[0] == '[' || rest[0] == '{':
			return nil, errOtherLists
		}
		length := 0
		if rest[0] == '"' {
			for length = 1; rest[length] != '"'; length++ {
				if rest[length] == '\\' {
					length++
				}
			}
			length++
		} else if length = bytes.IndexAny(rest, blank+"]"); length < 0 {
			length = len(rest)
		}
		element := rest[:length]
		rest = rest[length:]
		return element, nil
	}
	end = func() error {
		if nested && !take(']') || !take(']') {
			return errors.New("data has more elements than the shape, or other lists")
		}
		return nil
	}
	return next, end, nil
}

// rawElements reads elements from bytes: numbers in little-endian order, booleans of a byte, and
// texts behind their lengths of four bytes. It returns them as JSON. NaN is a missing value.
func (d datatype) rawElements(raw []byte) (next func() ([]byte, error), end func() error) {
	var text []byte
	next = func() ([]byte, error) {
		width := d.bits / 8
		if d.kind == 't' {
			if len(raw) < 4 {
				return nil, errEndsEarly
			}
			length := binary.LittleEndian.Uint32(raw)
			raw = raw[4:]
			if int64(length) > int64(len(raw)) {
				return nil, fmt.Errorf("it has %d bytes, and %d are left", length, len(raw))
			}
			width = int(length)
		}
		if len(raw) < width {
			return nil, errEndsEarly
		}
		var word [8]byte
		copy(word[:], raw[:min(width, 8)])
		bits := binary.LittleEndian.Uint64(word[:])
		element := raw[:width]
		raw = raw[width:]
		switch text = text[:0]; d.kind {
		case 't':
			if !utf8.Valid(element) {
				return nil, errors.New("it is not valid UTF-8")
			}
			text, _ = json.Marshal(string(element)) // no string is an error
		case 'b':
			if bits > 1 {
				return nil, fmt.Errorf("the byte %d is no boolean", bits)
			}
			text = strconv.AppendBool(text, bits == 1)
		case 'i':
			text = strconv.AppendInt(text, int64(bits<<(64-d.bits))>>(64-d.bits), 10)
		case 'u':
			text = strconv.AppendUint(text, bits, 10)
		case 'f':
			x := math.Float64frombits(bits)
			if d.bits == 32 {
				x = float64(math.Float32frombits(uint32(bits)))
			}
			switch {
			case math.IsNaN(x):
				return []byte("null"), nil
			case math.IsInf(x, 0):
				return nil, fmt.Errorf("it is %v", x)
			}
			text = strconv.AppendFloat(text, x, 'g', -1, d.bits)
		}
		return text, nil
	}
	end = func() error {
		if len(raw) > 0 {
			return fmt.Errorf("%d bytes are left behind the elements of its shape", len(raw))
		}
		return nil
	}
	return next, end
}

// inputNames are the columns that rows for the model have.
func inputNames(served *model.Served) (names []string) {
	for _, in := range inputsOf(served) {
		names = append(names, in.Name)
	}
	return names
}

// inputsOf are the columns that rows for the model have.
func inputsOf(served *model.Served) (all []wire.Source) {
	if served.Schema != nil {
		return served.Schema.Sources()
	}
	for _, name := range served.Missing.Base(served.RowFeatures()) {
		all = append(all, wire.Source{Name: name})
	}
	return all
}
