package export

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Versions of ONNX. Runtimes have had opset 17 since 2022, and it has all that is needed.
const (
	onnxIR    = 8
	onnxOpset = 17
)

// Types of elements (onnx.proto, TensorProto.DataType).
const (
	onnxFloat  = 1
	onnxInt32  = 6
	onnxInt64  = 7
	onnxString = 8
	onnxBool   = 9
	onnxDouble = 11
)

// Layout says how the columns of a graph of ONNX come and go.
type Layout uint8

const (
	// Tensors has one input X of [N, n] doubles. With a schema it has an input [N, 1] for each
	// column, of strings or doubles. The outputs are label [N] of strings, values [N, p] and, with
	// probabilities, probabilities [N, k].
	Tensors Layout = iota
	// Flat has an input [N] for each column, or [N, 1] if there is only one, and outputs of [N]:
	// label, value_C for each plane's class C, and probability_C for each class.
	Flat
)

// ONNX returns a ModelProto of standard operators on doubles. It is a function of p and the layout.
// A kernel's squared distances take 16·N·t·n bytes while a batch of N rows is computed, for a basis
// of t points and n features, and isotonic curves with up to K knots 9·N·p·K.
func (p *Program) ONNX(layout Layout) []byte {
	w := &onnxWriter{Program: p, names: map[*node]string{}, constants: map[string]string{}}
	w.prefix = "streamd"
	for slices.ContainsFunc(p.columns, func(c Column) bool { return strings.HasPrefix(c.Name, w.prefix) }) {
		w.prefix += "_"
	}
	w.inputs(layout)
	walk(w.node, p.results()...)
	w.outputs(layout)

	graph := appendText(nil, 2, "streamd")
	for _, n := range w.nodes {
		graph = appendBytes(graph, 1, n)
	}
	for _, t := range w.initializers {
		graph = appendBytes(graph, 5, t)
	}
	for _, v := range w.in {
		graph = appendBytes(graph, 11, v)
	}
	for _, v := range w.out {
		graph = appendBytes(graph, 12, v)
	}
	m := appendNumber(nil, 1, onnxIR)
	m = appendText(m, 2, "streamd")
	m = appendBytes(m, 7, graph)
	m = appendBytes(m, 8, appendNumber(appendText(nil, 1, ""), 2, onnxOpset))
	for _, property := range w.properties() {
		m = appendBytes(m, 14, appendText(appendText(nil, 1, property[0]), 2, property[1]))
	}
	return m
}

// properties are texts for people who find the file.
func (p *Program) properties() (all [][2]string) {
	names := make([]string, len(p.columns))
	for i, c := range p.columns {
		names[i] = c.Name
	}
	for _, list := range []struct {
		key   string
		texts []string
	}{{"columns", names}, {"classes", p.Classes}, {"planes", p.Planes}} {
		text, _ := json.Marshal(list.texts) // texts
		all = append(all, [2]string{list.key, string(text)})
	}
	if p.Fingerprint != "" {
		all = append(all, [2]string{"model", p.Fingerprint})
	}
	return all
}

type onnxWriter struct {
	*Program
	prefix    string // of the names of tensors that are neither inputs nor outputs
	columnsIn []string
	whole     bool // the numbers are one input

	names                        map[*node]string
	constants                    map[string]string // names of initializers by their bytes
	nodes, initializers, in, out [][]byte
	count                        int
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendBytes(b []byte, field protowire.Number, text []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendNumber(b []byte, field protowire.Number, x int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(x))
}

// attribute is an AttributeProto.
type attribute []byte

func integer(name string, x int64) attribute {
	return appendNumber(appendNumber(appendText(nil, 1, name), 3, x), 20, 2)
}

func text(name, s string) attribute {
	return appendNumber(appendText(appendText(nil, 1, name), 4, s), 20, 3)
}

func integers(name string, list ...int64) attribute {
	a := appendText(nil, 1, name)
	for _, x := range list {
		a = appendNumber(a, 8, x)
	}
	return appendNumber(a, 20, 7)
}

func texts(name string, list []string) attribute {
	a := appendText(nil, 1, name)
	for _, s := range list {
		a = appendText(a, 9, s)
	}
	return appendNumber(a, 20, 8)
}

// tensorType is a ValueInfoProto. The first dimension of its shape is the number of rows.
func tensorType(name string, kind int64, shape ...int64) []byte {
	dims := [][]byte{appendText(nil, 2, "N")}
	for _, d := range shape {
		dims = append(dims, appendNumber(nil, 1, d))
	}
	return appendBytes(appendText(nil, 1, name), 2, tensorOf(kind, dims...))
}

// tensorOf is a TypeProto of a tensor.
func tensorOf(kind int64, dims ...[]byte) []byte {
	var shape []byte
	for _, d := range dims {
		shape = appendBytes(shape, 1, d)
	}
	return appendBytes(nil, 1, appendBytes(appendNumber(nil, 1, kind), 2, shape))
}

func (w *onnxWriter) name() string {
	w.count++
	return fmt.Sprintf("%s_%d", w.prefix, w.count)
}

// do adds a node, and returns the name of its output.
func (w *onnxWriter) do(op string, inputs []string, attributes ...attribute) string {
	out := w.name()
	w.into(out, op, inputs, attributes...)
	return out
}

func (w *onnxWriter) into(out, op string, inputs []string, attributes ...attribute) {
	var n []byte
	for _, in := range inputs {
		n = appendText(n, 1, in)
	}
	n = appendText(n, 2, out)
	n = appendText(n, 3, out)
	n = appendText(n, 4, op)
	for _, a := range attributes {
		n = appendBytes(n, 5, a)
	}
	w.nodes = append(w.nodes, n)
}

// initializer adds a tensor, unless there is an equal one, and returns its name.
func (w *onnxWriter) initializer(kind int64, content []byte, dims ...int) string {
	var t []byte
	for _, d := range dims {
		t = appendNumber(t, 1, int64(d))
	}
	t = append(appendNumber(t, 2, kind), content...)
	if name, known := w.constants[string(t)]; known {
		return name
	}
	name := w.name()
	w.constants[string(t)] = name
	w.initializers = append(w.initializers, appendText(t, 8, name))
	return name
}

func (w *onnxWriter) doubles(numbers []float64, dims ...int) string {
	raw := make([]byte, 0, 8*len(numbers))
	for _, x := range numbers {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(x))
	}
	return w.initializer(onnxDouble, appendBytes(nil, 9, raw), dims...)
}

func (w *onnxWriter) places(numbers []int, dims ...int) string {
	raw := make([]byte, 0, 8*len(numbers))
	for _, x := range numbers {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(x))
	}
	return w.initializer(onnxInt64, appendBytes(nil, 9, raw), dims...)
}

func (w *onnxWriter) strings(list ...string) string {
	var content []byte
	for _, s := range list {
		content = appendText(content, 6, s)
	}
	return w.initializer(onnxString, content, len(list))
}

func (w *onnxWriter) cast(in string, to int64) string {
	return w.do("Cast", []string{in}, integer("to", to))
}

// inputs declares the inputs. columnsIn has tensors of [N, 1].
func (w *onnxWriter) inputs(layout Layout) {
	if w.whole = layout == Tensors && !w.schema; w.whole {
		w.in = append(w.in, tensorType("X", onnxDouble, int64(len(w.columns))))
		return
	}
	for _, c := range w.columns {
		kind := int64(onnxDouble)
		if c.Text {
			kind = onnxString
		}
		if layout == Tensors || len(w.columns) == 1 {
			w.in = append(w.in, tensorType(c.Name, kind, 1))
			w.columnsIn = append(w.columnsIn, c.Name)
			continue
		}
		w.in = append(w.in, tensorType(c.Name, kind))
		w.columnsIn = append(w.columnsIn, w.do("Unsqueeze", []string{c.Name, w.places([]int{1}, 1)}))
	}
}

// numbers are columns of numbers.
func (w *onnxWriter) numbers(at []int) string {
	switch {
	case w.whole && slices.Equal(at, upTo(len(w.columns))):
		return "X"
	case w.whole:
		return w.do("Gather", []string{"X", w.places(at, len(at))}, integer("axis", 1))
	case len(at) == 1:
		return w.columnsIn[at[0]]
	}
	var parts []string
	for _, j := range at {
		parts = append(parts, w.columnsIn[j])
	}
	return w.do("Concat", parts, integer("axis", 1))
}

// is has 1 for each of texts that a column's text equals. Standard operators compare texts in
// TfIdfVectorizer alone, before opset 19: of one word it counts each word of a pool.
func (w *onnxWriter) is(column string, pool []string) string {
	var at []int64
	for i := range pool {
		at = append(at, int64(i))
	}
	return w.cast(w.do("TfIdfVectorizer", []string{column}, text("mode", "TF"), integer("min_gram_length", 1), integer("max_gram_length", 1),
		integer("max_skip_count", 0), integers("ngram_counts", 0), integers("ngram_indexes", at...), texts("pool_strings", pool)), onnxDouble)
}

// onnxOperators are those of nodes that are one operator.
var onnxOperators = map[op]string{
	opAdd: "Add", opSub: "Sub", opMul: "Mul", opDiv: "Div", opMost: "Max", opLeast: "Min", opAbs: "Abs", opExp: "Exp",
	opWhere: "Where", opLess: "Less", opAtMost: "LessOrEqual", opEqual: "Equal",
}

// node writes a node, whose arguments are written. Its tensor is [N, width], or [1, width] of a
// constant; that of a place of a class is [N].
func (w *onnxWriter) node(n *node) {
	var args []string
	for _, a := range n.args {
		args = append(args, w.names[a])
	}
	axis := func() string { return w.places([]int{1}, 1) }
	switch n.op {
	case opNumbers:
		w.names[n] = w.numbers(n.at)
	case opText:
		w.names[n] = w.columnsIn[n.at[0]]
	case opConstant:
		w.names[n] = w.doubles(n.numbers, 1, n.width)
	case opConcat:
		w.names[n] = w.do("Concat", args, integer("axis", 1))
	case opPick:
		w.names[n] = w.do("Gather", []string{args[0], w.places(n.at, len(n.at))}, integer("axis", 1))
	case opLog1p:
		w.names[n] = w.do("Log", []string{w.do("Add", []string{args[0], w.doubles([]float64{1}, 1, 1)})})
	case opLargest:
		w.names[n] = w.do("ReduceMax", args, integers("axes", 1), integer("keepdims", 1))
	case opSum:
		w.names[n] = w.do("ReduceSum", []string{args[0], axis()}, integer("keepdims", 1))
	case opOrdered:
		w.names[n] = w.ordered(n, args[0])
	case opAffine:
		w.names[n] = w.do("MatMul", []string{args[0], w.transposed(n)})
		if slices.ContainsFunc(n.numbers, func(b float64) bool { return b != 0 }) {
			w.names[n] = w.do("Add", []string{w.names[n], w.doubles(n.numbers, 1, n.width)})
		}
	case opSquares:
		d := w.do("Sub", []string{w.do("Unsqueeze", []string{args[0], axis()}), w.doubles(slices.Concat(n.lists...), 1, n.width, n.args[0].width)})
		w.names[n] = w.do("ReduceSum", []string{w.do("Mul", []string{d, d}), w.places([]int{2}, 1)}, integer("keepdims", 0))
	case opIs:
		w.names[n] = w.is(args[0], n.texts)
	case opBelow:
		most := 0
		for _, knots := range n.lists {
			most = max(most, len(knots))
		}
		var knots []float64
		var first []int
		for i, list := range n.lists {
			knots = append(append(knots, list...), slices.Repeat([]float64{math.Inf(1)}, most-len(list))...)
			first = append(first, int(n.numbers[i]))
		}
		last := w.places([]int{2}, 1)
		less := w.do("Less", []string{w.doubles(knots, 1, n.width, most), w.do("Unsqueeze", []string{args[0], last})})
		count := w.do("ReduceSum", []string{w.cast(less, onnxInt64), last}, integer("keepdims", 0))
		w.names[n] = w.do("Add", []string{count, w.places(first, 1, n.width)})
	case opTable:
		w.names[n] = w.do("Gather", []string{w.doubles(n.numbers, len(n.numbers)), args[0]}, integer("axis", 0))
	case opNumber:
		w.names[n] = w.cast(args[0], onnxDouble)
	case opMissing:
		if n.args[0].op == opText {
			sum := w.do("ReduceSum", []string{w.is(args[0], missingTexts), axis()}, integer("keepdims", 1))
			w.names[n] = w.cast(sum, onnxBool)
			break
		}
		w.names[n] = w.do("IsNaN", args)
	case opAll:
		w.names[n] = w.cast(w.do("ReduceMin", []string{w.cast(args[0], onnxInt32)}, integers("axes", 1), integer("keepdims", 1)), onnxBool)
	case opFirst:
		w.names[n] = w.do("ArgMax", args, integer("axis", 1), integer("keepdims", 0), integer("select_last_index", 0))
	case opPlace:
		w.names[n] = w.do("Squeeze", []string{w.cast(args[0], onnxInt64), axis()})
	default:
		w.names[n] = w.do(onnxOperators[n.op], args)
	}
}

// transposed is the matrix of a node with a row for each element of its argument.
func (w *onnxWriter) transposed(n *node) string {
	in := n.args[0].width
	matrix := make([]float64, 0, in*n.width)
	for j := range in {
		for _, row := range n.lists {
			matrix = append(matrix, row[j])
		}
	}
	return w.doubles(matrix, in, n.width)
}

// ordered adds products in their order, by Scan. The order of MatMul is the runtime's own.
func (w *onnxWriter) ordered(n *node, x string) string {
	rows := w.do("Shape", []string{x}, integer("end", 1))
	begin := w.do("Expand", []string{w.doubles(n.numbers, 1, n.width), w.do("Concat", []string{rows, w.places([]int{n.width}, 1)}, integer("axis", 0))})
	all := []string{begin, x, w.transposed(n)}

	outer := w.nodes
	w.nodes = nil
	before, element, weights, after := w.name(), w.name(), w.name(), w.name()
	product := w.do("Mul", []string{w.do("Unsqueeze", []string{element, w.places([]int{1}, 1)}), weights})
	w.into(after, "Add", []string{before, product})
	body := appendText(nil, 2, w.name())
	for _, node := range w.nodes {
		body = appendBytes(body, 1, node)
	}
	w.nodes = outer
	body = appendBytes(body, 11, tensorType(before, onnxDouble, int64(n.width)))
	body = appendBytes(body, 11, tensorType(element, onnxDouble))
	body = appendBytes(body, 11, appendBytes(appendText(nil, 1, weights), 2, tensorOf(onnxDouble, appendNumber(nil, 1, int64(n.width)))))
	body = appendBytes(body, 12, tensorType(after, onnxDouble, int64(n.width)))
	return w.do("Scan", all, appendNumber(appendBytes(appendText(nil, 1, "body"), 6, body), 20, 5),
		integer("num_scan_inputs", 2), integers("scan_input_axes", 1, 0))
}

// outputNames are the names of the outputs of a layout: label, and those of values and of
// probabilities. Where an input has such a name, there are underscores behind it.
func (p *Program) outputNames(layout Layout) (names []string) {
	taken := map[string]bool{}
	if layout == Flat || p.schema {
		for _, c := range p.columns {
			taken[c.Name] = true
		}
	}
	add := func(name string) {
		for taken[name] {
			name += "_"
		}
		taken[name] = true
		names = append(names, name)
	}
	add("label")
	if layout == Tensors {
		add("values")
		if p.probabilities != nil {
			add("probabilities")
		}
		return names
	}
	for _, class := range p.Planes {
		add("value_" + class)
	}
	if p.probabilities != nil {
		for _, class := range p.Classes {
			add("probability_" + class)
		}
	}
	return names
}

// outputs declares the outputs.
func (w *onnxWriter) outputs(layout Layout) {
	names := w.outputNames(layout)
	next := func(kind int64, shape ...int64) string {
		name := names[0]
		names = names[1:]
		w.out = append(w.out, tensorType(name, kind, shape...))
		return name
	}
	known := w.do("Gather", []string{w.strings(w.Classes...), w.names[w.class]}, integer("axis", 0))
	w.into(next(onnxString), "Where", []string{w.do("Squeeze", []string{w.names[w.ok], w.places([]int{1}, 1)}), known, w.strings("")})
	for _, n := range []*node{w.values, w.probabilities} {
		switch {
		case n == nil:
		case layout == Tensors:
			w.into(next(onnxDouble, int64(n.width)), "Identity", []string{w.names[n]})
		default:
			for i := range n.width {
				w.into(next(onnxDouble), "Gather", []string{w.names[n], w.places([]int{i})}, integer("axis", 1))
			}
		}
	}
}
