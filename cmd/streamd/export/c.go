package export

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// C returns a file of C99 that includes <math.h>, <stddef.h> and <string.h> alone. It fails where a
// name has a NUL, which ends a string of C. With -ffast-math the file does not know missing values.
func (p *Program) C() ([]byte, error) {
	var numberNames, textNames []string
	w := &cWriter{Program: p, place: map[int]int{}, names: map[*node]string{}}
	for i, c := range p.columns {
		if c.Text {
			w.place[i] = len(textNames)
			textNames = append(textNames, c.Name)
		} else {
			w.place[i] = len(numberNames)
			numberNames = append(numberNames, c.Name)
		}
	}
	lists := []struct {
		name  string
		texts []string
	}{{"streamd_numbers", numberNames}, {"streamd_texts", textNames}, {"streamd_classes", p.Classes}, {"streamd_planes", p.Planes}}
	walk(w.node, p.results()...)

	var out bytes.Buffer
	probabilities := 0
	if p.probabilities != nil {
		probabilities = len(p.Classes)
	}
	fmt.Fprintf(&out, `/* A classifier that streamd has learned%s.
 *
 * streamd_predict returns the place of a row's label in streamd_classes. It is -1 for a row that
 * lacks a value which may not be missing, or has an unknown text: then values and probabilities
 * are NaN. numbers and texts are in the order of streamd_numbers and streamd_texts. A missing
 * number is NaN, a missing text NULL. values gets x'w - gamma for each of streamd_planes, and
 * probabilities one for each of streamd_classes, if STREAMD_PROBABILITIES is not 0; either may be
 * NULL. Calls do not share memory that they write to.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#define STREAMD_NUMBERS %d
#define STREAMD_TEXTS %d
#define STREAMD_CLASSES %d
#define STREAMD_VALUES %d
#define STREAMD_PROBABILITIES %d

`, w.fingerprint(), len(numberNames), len(textNames), len(p.Classes), len(p.Planes), probabilities)
	for _, list := range lists {
		fmt.Fprintf(&out, "extern const char *const %s[];\n", list.name)
	}
	out.WriteString("int streamd_predict(const double numbers[], const char *const texts[], double values[], double probabilities[]);\n\n")
	for _, list := range lists {
		fmt.Fprintf(&out, "const char *const %s[] = {", list.name)
		for _, s := range list.texts {
			quoted, err := cText(s)
			if err != nil {
				return nil, err
			}
			out.WriteString(quoted + ", ")
		}
		out.WriteString("NULL};\n")
	}
	if w.err != nil {
		return nil, w.err
	}
	out.Write(w.static.Bytes())
	out.WriteString("\nint streamd_predict(const double numbers[], const char *const texts[], double values[], double probabilities[]) {\n" +
		"\tint i, j;\n")
	out.Write(w.body.Bytes())
	for _, of := range []struct {
		name string
		node *node
	}{{"values", p.values}, {"probabilities", p.probabilities}} {
		if of.node != nil {
			fmt.Fprintf(&out, "\tif (%s != NULL)\n\t\tfor (i = 0; i < %d; i++) %s[i] = %s;\n", of.name, of.node.width, of.name, w.at(of.node, "i"))
		}
	}
	fmt.Fprintf(&out, "\t(void)numbers, (void)texts, (void)probabilities, (void)i, (void)j;\n\treturn %s ? %s : -1;\n}\n", w.at(p.ok, "0"), w.at(p.class, "0"))
	return out.Bytes(), nil
}

// fingerprint says which model it is, for a comment.
func (w *cWriter) fingerprint() string {
	if w.Fingerprint == "" {
		return ""
	}
	// A saved model may name itself as it likes.
	return ", model " + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, w.Fingerprint)
}

// cText is a string of C. Bytes that are no printable ASCII are octal, and so are the signs that
// have a meaning in a string.
func cText(s string) (string, error) {
	if strings.ContainsRune(s, 0) {
		return "", fmt.Errorf("the name %q has a NUL, which ends a string of C", s)
	}
	b := []byte{'"'}
	for _, c := range []byte(s) {
		if c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '?' { // ?? begins a trigraph
			b = append(b, c)
		} else {
			b = fmt.Appendf(b, "\\%03o", c)
		}
	}
	return string(append(b, '"')), nil
}

func cNumber(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NAN"
	case math.IsInf(x, 0):
		return strconv.Itoa(int(math.Copysign(1, x))) + "*INFINITY"
	}
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

type cWriter struct {
	*Program
	place        map[int]int // of a column in its argument
	names        map[*node]string
	static, body bytes.Buffer
	count        int
	err          error
}

// at is element i of a node.
func (w *cWriter) at(n *node, i string) string {
	switch {
	case n.op == opConstant && n.width == 1:
		if x := n.numbers[0]; math.Signbit(x) {
			return "(" + cNumber(x) + ")"
		}
		return cNumber(n.numbers[0])
	case n.width == 1:
		i = "0"
	}
	return w.names[n] + "[" + i + "]"
}

func (w *cWriter) name(letter string) string {
	w.count++
	return letter + strconv.Itoa(w.count)
}

// table declares a list of constants, and returns its name.
func table[T any](w *cWriter, kind string, list []T, text func(T) string) string {
	name := w.name("t")
	fmt.Fprintf(&w.static, "static const %s %s[] = {", kind, name)
	for i, x := range list {
		if i > 0 {
			w.static.WriteString(", ")
			if i%8 == 0 {
				w.static.WriteString("\n\t")
			}
		}
		w.static.WriteString(text(x))
	}
	w.static.WriteString("};\n")
	return name
}

func (w *cWriter) doubles(list []float64) string { return table(w, "double", list, cNumber) }
func (w *cWriter) ints(list []int) string        { return table(w, "int", list, strconv.Itoa) }

func (w *cWriter) texts(list []string) string {
	return table(w, "char *const", list, func(s string) string {
		text, err := cText(s)
		if err != nil {
			w.err = err
		}
		return text
	})
}

func (w *cWriter) linef(format string, args ...any) { fmt.Fprintf(&w.body, "\t"+format+"\n", args...) }

// cOperators are those of elements a, b and c.
var cOperators = map[op]string{
	opAdd: "%a + %b", opSub: "%a - %b", opMul: "%a * %b", opDiv: "%a / %b", opMost: "%a > %b ? %a : %b", opLeast: "%a < %b ? %a : %b",
	opAbs: "fabs(%a)", opExp: "exp(%a)", opLog1p: "log1p(%a)", opWhere: "%a ? %b : %c", opNumber: "%a ? 1.0 : 0.0",
	opLess: "%a < %b", opAtMost: "%a <= %b", opEqual: "%a == %b", opPlace: "%a ? 1 : 0", opMissing: "%a != %a",
}

// node writes a node, whose arguments are written.
func (w *cWriter) node(n *node) {
	if n.op == opConstant {
		if n.width > 1 {
			w.names[n] = w.doubles(n.numbers)
		}
		return
	}
	v := w.name("v")
	w.names[n] = v
	if n.op == opText {
		w.linef("const char *const *%s = texts + %d;", v, w.place[n.at[0]])
		return
	}
	kind := "double"
	if n.isCondition() || n.isPlace() {
		kind = "int"
	}
	w.linef("%s %s[%d];", kind, v, n.width)
	each := fmt.Sprintf("for (i = 0; i < %d; i++) ", n.width)
	var a *node
	if len(n.args) > 0 {
		a = n.args[0]
	}
	switch n.op {
	case opNumbers:
		var at []int
		for _, j := range n.at {
			at = append(at, w.place[j])
		}
		if slices.Equal(at, upTo(n.width)) {
			w.linef("%s%s[i] = numbers[i];", each, v)
		} else {
			w.linef("%s%s[i] = numbers[%s[i]];", each, v, w.ints(at))
		}
	case opConcat:
		from := 0
		for _, a := range n.args {
			w.linef("for (i = 0; i < %d; i++) %s[%d + i] = %s;", a.width, v, from, w.at(a, "i"))
			from += a.width
		}
	case opPick:
		place := "0"
		if a.width > 1 {
			place = w.ints(n.at) + "[i]"
		}
		w.linef("%s%s[i] = %s;", each, v, w.at(a, place))
	case opLargest:
		w.linef("%s[0] = %s;", v, w.at(a, "0"))
		w.linef("for (i = 1; i < %d; i++) if (%s > %s[0]) %s[0] = %s;", a.width, w.at(a, "i"), v, v, w.at(a, "i"))
	case opSum:
		w.linef("%s[0] = 0;", v)
		w.linef("for (i = 0; i < %d; i++) %s[0] += %s;", a.width, v, w.at(a, "i"))
	case opAffine, opOrdered:
		w.linef("%s{", each)
		w.linef("\t%s[i] = %s[i];", v, w.doubles(n.numbers))
		w.linef("\tfor (j = 0; j < %d; j++) %s[i] += %s[i * %d + j] * %s;", a.width, v, w.doubles(slices.Concat(n.lists...)), a.width, w.at(a, "j"))
		w.linef("}")
	case opSquares:
		w.linef("%s{", each)
		w.linef("\t%s[i] = 0;", v)
		w.linef("\tfor (j = 0; j < %d; j++) {", a.width)
		w.linef("\t\tdouble d = %s - %s[i * %d + j];", w.at(a, "j"), w.doubles(slices.Concat(n.lists...)), a.width)
		w.linef("\t\t%s[i] += d * d;", v)
		w.linef("\t}")
		w.linef("}")
	case opIs:
		w.linef("%s%s[i] = %s[0] != NULL && strcmp(%s[0], %s[i]) == 0 ? 1 : 0;", each, v, w.names[a], w.names[a], w.texts(n.texts))
	case opBelow:
		var first, counts []int
		var knots []float64
		for i, list := range n.lists {
			first, counts = append(first, len(knots)), append(counts, len(list))
			if int(n.numbers[i]) != len(knots)+i {
				panic("export: a table has one number more than there are knots")
			}
			knots = append(knots, list...)
		}
		from, count, table := w.ints(first), w.ints(counts), w.doubles(knots)
		w.linef("%s{", each)
		w.linef("\tfor (j = 0; j < %s[i] && %s[%s[i] + j] < %s; j++) {", count, table, from, w.at(a, "i"))
		w.linef("\t}")
		w.linef("\t%s[i] = %s[i] + i + j;", v, from)
		w.linef("}")
	case opTable:
		w.linef("%s%s[i] = %s[%s];", each, v, w.doubles(n.numbers), w.at(a, "i"))
	case opAll:
		w.linef("%s[0] = 1;", v)
		w.linef("for (i = 0; i < %d; i++) if (!%s) %s[0] = 0;", a.width, w.at(a, "i"), v)
	case opFirst:
		w.linef("%s[0] = 0;", v)
		w.linef("for (i = 1; i < %d; i++) if (%s > %s) %s[0] = i;", a.width, w.at(a, "i"), w.at(a, v+"[0]"), v)
	case opMissing:
		if a.op == opText {
			w.linef("%s[0] = %s[0] == NULL;", v, w.names[a])
			w.linef("for (i = 0; i < %d; i++) if (!%s[0] && strcmp(%s[0], %s[i]) == 0) %s[0] = 1;", len(missingTexts), v, w.names[a], w.texts(missingTexts), v)
			break
		}
		fallthrough
	default:
		w.linef("%s%s[i] = %s;", each, v, n.filled(cOperators[n.op], func(arg int) string { return w.at(n.args[arg], "i") }))
	}
}
