package export

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// mostExpression bounds the bytes of an expression, in which what is used twice stands twice.
const mostExpression = 1 << 20

// termsTogether bounds the depth of a sum: some engines refuse expressions deeper than 1000.
const termsTogether = 200

// Expression returns the label of a row as one expression of SQL over its columns. It takes CASE,
// CAST, ABS, EXP, LN, LEAST, GREATEST and arithmetic, which most engines have under these names.
// The error is ErrLong where a kernel or many classes make it too long.
func (p *Program) Expression() (string, error) {
	w, err := newSQL(p, nil)
	if err != nil {
		return "", err
	}
	w.inline = true
	walk(w.node, w.ok, w.class)
	if w.err != nil {
		return "", w.err
	}
	label := w.label()
	if len(label) > mostExpression {
		return "", ErrLong
	}
	return label, nil
}

// ErrLong says that an expression would be too long.
var ErrLong = fmt.Errorf("an expression of this model would have more than %d bytes: a statement names what it uses twice", mostExpression)

// Select returns a statement that selects the columns keep of a table, and label, value_C for the
// class C of each plane, and probability_C for each class. Each step is a common table expression.
// It is MATERIALIZED, so that no engine computes twice what is used twice. The parts of the table's
// name, such as schema and table, are quoted.
func (p *Program) Select(table, keep []string) (string, error) {
	w, err := newSQL(p, slices.Concat(table, keep))
	if err != nil {
		return "", err
	}
	walk(w.count, w.results()...)
	for _, n := range w.results() {
		w.uses[n]++
	}
	walk(w.node, w.results()...)
	return w.statement(table, keep)
}

type sqlWriter struct {
	*Program
	prefix string
	inline bool // nothing has a name
	uses   map[*node]int
	of     map[*node][]string // expressions of the elements
	step   map[*node]int      // the first step in which the expressions hold
	needs  map[*node][]string // names in the expressions
	steps  [][]sqlColumn
	last   map[string]int // last step that reads a name
	err    error
}

type sqlColumn struct{ name, text string }

func newSQL(p *Program, others []string) (*sqlWriter, error) {
	if p.class.op == opFirst { // the first element that is the largest one
		changed, values := *p, p.class.args[0]
		changed.class = &node{op: opFirst, width: 1, args: []*node{values, reduced(opLargest, values)}}
		p = &changed
	}
	w := &sqlWriter{
		Program: p, prefix: "streamd_", uses: map[*node]int{}, of: map[*node][]string{}, step: map[*node]int{},
		needs: map[*node][]string{}, last: map[string]int{},
	}
	names := slices.Clone(others)
	for _, c := range p.columns {
		names = append(names, c.Name)
	}
	for _, name := range slices.Concat(names, p.Classes) {
		if strings.ContainsRune(name, 0) {
			return nil, fmt.Errorf("the name %q has a NUL, which ends a statement of SQL", name)
		}
	}
	for slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(strings.ToLower(name), w.prefix) }) {
		w.prefix += "_"
	}
	return w, nil
}

func sqlName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func sqlText(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// sqlNumber has an exponent, so that no engine takes it for a whole or a decimal number.
func sqlNumber(x float64) string {
	if math.IsNaN(x) {
		return "NULL"
	}
	text := strconv.FormatFloat(x, 'e', -1, 64)
	if !strings.Contains(text, ".") {
		text = strings.Replace(text, "e", ".0e", 1)
	}
	if math.Signbit(x) {
		text = "(" + text + ")" // not a comment, behind a minus
	}
	return text
}

// copies is how often the elements of an argument stand in those of a node.
func (n *node) copies(arg int) int {
	switch n.op {
	case opAffine, opOrdered:
		return n.width
	case opSquares:
		return 2 * n.width
	case opFirst:
		if arg == 1 {
			return n.args[0].width
		}
		return 1
	case opBelow, opExp:
		return 2 // or more
	case opMissing:
		if n.args[arg].op == opText {
			return 2
		}
	}
	if n.args[arg].width == 1 {
		return n.width
	}
	return 1
}

func (w *sqlWriter) count(n *node) {
	for i, a := range n.args {
		w.uses[a] += n.copies(i)
	}
}

// element is element i of an argument.
func (w *sqlWriter) element(a *node, i int) string {
	if a.width == 1 {
		i = 0
	}
	return w.of[a][i]
}

// node makes the expressions of a node, whose arguments have some.
func (w *sqlWriter) node(n *node) {
	size := 0
	for i, a := range n.args {
		of := 0
		for _, text := range w.of[a] {
			of += len(text)
		}
		size += of * n.copies(i)
	}
	if w.inline && size > mostExpression {
		w.err = ErrLong
	}
	if w.err != nil {
		w.of[n] = slices.Repeat([]string{"NULL"}, n.width)
		return
	}
	for _, a := range n.args {
		w.step[n] = max(w.step[n], w.step[a])
		w.needs[n] = append(w.needs[n], w.needs[a]...)
	}
	if n.op == opNumbers || n.op == opText {
		for _, j := range n.at {
			w.needs[n] = append(w.needs[n], w.columns[j].Name)
		}
	}
	w.of[n] = make([]string, n.width)
	for i := range n.width {
		w.of[n][i] = w.text(n, i)
	}
	named := !w.inline && w.uses[n] > 1 && n.op != opConstant && n.op != opText && n.op != opPick && n.op != opConcat
	if !named {
		return
	}
	at := w.step[n]
	w.read(n, at)
	w.step[n], w.needs[n] = at+1, nil
	for len(w.steps) <= at {
		w.steps = append(w.steps, nil)
	}
	for i := range n.width {
		name := fmt.Sprintf("%s%d_%d", w.prefix, at+1, len(w.steps[at])+1)
		text := w.of[n][i]
		if n.isCondition() { // some engines have no columns of conditions
			text = "CASE WHEN " + text + " THEN 1 ELSE 0 END"
		}
		w.steps[at] = append(w.steps[at], sqlColumn{name, text})
		w.needs[n] = append(w.needs[n], name)
		if w.of[n][i] = name; n.isCondition() {
			w.of[n][i] = name + " = 1"
		}
	}
}

// read notes that a step reads what a node needs.
func (w *sqlWriter) read(n *node, step int) {
	for _, name := range w.needs[n] {
		w.last[name] = max(w.last[name], step)
	}
}

// isLiteral reports whether the number is one of the text. Some engines compute with decimals as
// long as there are literals alone, and round otherwise than with doubles.
func (n *node) isLiteral() bool {
	return n.op == opConstant || n.op == opWhere && n.args[1].isLiteral() && n.args[2].isLiteral()
}

// sum adds terms in their order, with brackets where there are many.
func sum(terms []string) string {
	for len(terms) > termsTogether {
		var groups []string
		for group := range slices.Chunk(terms, termsTogether) {
			groups = append(groups, "("+strings.Join(group, " + ")+")")
		}
		terms = groups
	}
	return strings.Join(terms, " + ")
}

// largest is the largest of texts.
func largest(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return "GREATEST(" + strings.Join(texts, ", ") + ")"
}

// sqlOperators are those of elements a, b and c. exp of less than -745 is 0, which is an error in
// some engines.
var sqlOperators = map[op]string{
	opAdd: "(%a + %b)", opSub: "(%a - %b)", opMul: "(%a * %b)", opDiv: "(%a / %b)", opMost: "GREATEST(%a, %b)", opLeast: "LEAST(%a, %b)",
	opAbs: "ABS(%a)", opLog1p: "LN(1.0e+00 + %a)", opExp: "CASE WHEN %a < " + sqlNumber(-745) + " THEN 0.0e+00 ELSE EXP(%a) END",
	opNumber: "CAST(CASE WHEN %a THEN 1.0e+00 ELSE 0.0e+00 END AS DOUBLE)",
	opLess:   "%a < %b", opAtMost: "%a <= %b", opEqual: "%a = %b", opPlace: "CASE WHEN %a THEN 1 ELSE 0 END",
}

// text is element i of a node.
func (w *sqlWriter) text(n *node, i int) string {
	x := func(arg int) string { return w.element(n.args[arg], i) }
	switch n.op {
	case opNumbers:
		return "CAST(" + sqlName(w.columns[n.at[i]].Name) + " AS DOUBLE)"
	case opText:
		return "CAST(" + sqlName(w.columns[n.at[0]].Name) + " AS VARCHAR)"
	case opConstant:
		return sqlNumber(n.numbers[i])
	case opConcat:
		for _, a := range n.args {
			if i < a.width {
				return w.of[a][i]
			}
			i -= a.width
		}
	case opPick:
		return w.element(n.args[0], n.at[i])
	case opLargest:
		return largest(w.of[n.args[0]])
	case opSum:
		return "(" + sum(w.of[n.args[0]]) + ")"
	case opAffine, opOrdered:
		var terms []string
		if n.numbers[i] != 0 {
			terms = append(terms, sqlNumber(n.numbers[i]))
		}
		for j, weight := range n.lists[i] {
			terms = append(terms, sqlNumber(weight)+" * "+w.element(n.args[0], j))
		}
		return "(" + sum(terms) + ")"
	case opSquares:
		var terms []string
		for j, z := range n.lists[i] {
			d := "(" + w.element(n.args[0], j) + " - " + sqlNumber(z) + ")"
			terms = append(terms, d+" * "+d)
		}
		return "(" + sum(terms) + ")"
	case opIs:
		return "CAST(CASE WHEN " + x(0) + " = " + sqlText(n.texts[i]) + " THEN 1.0e+00 ELSE 0.0e+00 END AS DOUBLE)"
	case opBelow:
		text := "CASE"
		for j, knot := range n.lists[i] {
			text += fmt.Sprintf(" WHEN %s <= %s THEN %d", x(0), sqlNumber(knot), int(n.numbers[i])+j)
		}
		return text + fmt.Sprintf(" ELSE %d END", int(n.numbers[i])+len(n.lists[i]))
	case opTable:
		// Only the places of its own knots are possible.
		below := n.args[0]
		from, to := int(below.numbers[i]), int(below.numbers[i])+len(below.lists[i])
		text := "CASE " + x(0)
		for place := from; place < to; place++ {
			text += fmt.Sprintf(" WHEN %d THEN %s", place, sqlNumber(n.numbers[place]))
		}
		return text + " ELSE " + sqlNumber(n.numbers[to]) + " END"
	case opWhere:
		text := "CASE WHEN " + x(0) + " THEN " + x(1) + " ELSE " + x(2) + " END"
		if n.isLiteral() {
			text = "CAST(" + text + " AS DOUBLE)"
		}
		return text
	case opMissing:
		if n.args[0].op != opText {
			return x(0) + " IS NULL"
		}
		var quoted []string
		for _, text := range missingTexts {
			quoted = append(quoted, sqlText(text))
		}
		return "(" + x(0) + " IS NULL OR " + x(0) + " IN (" + strings.Join(quoted, ", ") + "))"
	case opAll:
		return "(" + strings.Join(w.of[n.args[0]], " AND ") + ")"
	case opFirst:
		values, most := w.of[n.args[0]], w.of[n.args[1]][0]
		text := "CASE"
		for j, value := range values {
			text += fmt.Sprintf(" WHEN %s = %s THEN %d", value, most, j)
		}
		return text + " END"
	}
	if form, ok := sqlOperators[n.op]; ok {
		return n.filled(form, x)
	}
	panic(fmt.Sprintf("export: operation %d in SQL", n.op))
}

// label is the text of the label.
func (w *sqlWriter) label() string {
	text := "CASE WHEN " + w.of[w.ok][0] + " THEN CASE " + w.of[w.class][0]
	for i, class := range w.Classes {
		text += fmt.Sprintf(" WHEN %d THEN %s", i, sqlText(class))
	}
	return text + " END END"
}

// statement is that of all steps.
func (w *sqlWriter) statement(table, keep []string) (string, error) {
	outputs := []sqlColumn{{"label", w.label()}}
	for i, class := range w.Planes {
		outputs = append(outputs, sqlColumn{"value_" + class, w.of[w.values][i]})
	}
	if w.probabilities != nil {
		for i, class := range w.Classes {
			outputs = append(outputs, sqlColumn{"probability_" + class, w.of[w.probabilities][i]})
		}
	}
	for _, n := range w.results() {
		if n != nil {
			w.read(n, len(w.steps))
		}
	}
	seen := map[string]bool{}
	var all []string // columns of the rows that each step passes on
	for _, name := range keep {
		w.last[name] = len(w.steps)
		all = append(all, name)
	}
	for _, name := range keep {
		if slices.ContainsFunc(outputs, func(c sqlColumn) bool { return strings.EqualFold(c.name, name) }) || seen[strings.ToLower(name)] {
			return "", fmt.Errorf("the statement would have two columns %q: keep it under another name", name)
		}
		seen[strings.ToLower(name)] = true
	}
	for _, c := range w.columns {
		if !slices.Contains(all, c.Name) {
			all = append(all, c.Name)
		}
	}
	var parts []string
	for _, part := range table {
		parts = append(parts, sqlName(part))
	}
	from := strings.Join(parts, ".")
	var text strings.Builder
	var before []string // names of former steps
	for i, step := range w.steps {
		var selected []string
		for _, name := range all {
			if last, read := w.last[name]; read && last > i {
				selected = append(selected, sqlName(name))
			}
		}
		for _, name := range before {
			if w.last[name] > i {
				selected = append(selected, name)
			}
		}
		for _, c := range step {
			selected = append(selected, c.text+" AS "+c.name)
			before = append(before, c.name)
		}
		name := fmt.Sprintf("%sstep_%d", w.prefix, i+1)
		begin := ",\n"
		if i == 0 {
			begin = "WITH "
		}
		text.WriteString(begin + name + " AS MATERIALIZED (\nSELECT " + strings.Join(selected, ",\n  ") + "\nFROM " + from + ")")
		from = name
	}
	var selected []string
	for _, name := range keep {
		selected = append(selected, sqlName(name))
	}
	for _, c := range outputs {
		selected = append(selected, c.text+" AS "+sqlName(c.name))
	}
	text.WriteString("\nSELECT " + strings.Join(selected, ",\n  ") + "\nFROM " + from)
	return strings.TrimPrefix(text.String(), "\n"), nil
}
