package export

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"streamd/cmd/streamd/model"
	"streamd/incremental"
	"streamd/incremental/calibration"
	"streamd/incremental/decision"
	"streamd/ingest/schema"
	"streamd/ingest/wire"
	"streamd/kernels"
)

// classifier has planes of made-up weights. k classes have the given names.
func classifier(t testing.TB, features, classes []string) *model.Classifier {
	t.Helper()
	of := classes
	if len(classes) == 2 {
		of = classes[1:]
	}
	var planes []incremental.Plane
	for i, class := range of {
		p := incremental.Plane{Class: class, Gamma: float64(i) / 3}
		for j := range features {
			p.W = append(p.W, float64((i+1)*(j+2)%7)/7-0.4)
		}
		planes = append(planes, p)
	}
	c, err := model.New(features, classes, planes, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withMap has planes in the coordinates of a kernel.
func withMap(t testing.TB, c *model.Classifier, text string) *model.Classifier {
	t.Helper()
	kernel, err := kernels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	n := len(c.Features)
	points := make([]float64, 5*n)
	for i := range points {
		points[i] = float64(i*i%11) / 5
	}
	m, err := kernels.NewMap(kernel, n, points)
	if err != nil {
		t.Fatal(err)
	}
	scale := slices.Repeat([]float64{2}, n)
	if m, err = m.Scaled(scale, scale); err != nil {
		t.Fatal(err)
	}
	c.Map = m
	for i := range c.Model.Planes {
		c.Model.Planes[i].W = []float64{1, -2, 0.5, 3, -1}
	}
	return c
}

func withSchema(t testing.TB, text string, classes []string) *model.Classifier {
	t.Helper()
	s, err := schema.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := classifier(t, s.Columns(), classes)
	c.Schema = s
	return c
}

const people = `
age:     {kind: number, missing: indicator}
income:  {kind: number, log1p: true, clip: [0, 10], missing: 3}
member:  {kind: bool, missing: zero}
active:  {kind: bool, true: [yes], false: [no]}
country: {kind: category, values: [at, ch], other: true, missing: own}
plan:    {kind: category, values: [a, b]}
band:    {kind: buckets, from: age, bounds: [25, 65], missing: own}
vector:  {kind: list, length: 2}
both:    {kind: interaction, of: [country, band]}
`

// cases are classifiers that together have every operation.
func cases(t testing.TB) map[string]*model.Classifier {
	names := []string{"x1", "x2", "x3"}
	two, three := []string{"no", "yes"}, []string{"a", "b", "c"}
	sigmoid, steps := calibration.Sigmoid{A: -2, B: 0.5}, calibration.Isotonic{Values: []float64{-1, 0, 2}, Probabilities: []float64{0, 0.25, 1}}
	all := map[string]*model.Classifier{
		"value, two": classifier(t, names, two), "value, three": classifier(t, names, three),
		"gaussian": withMap(t, classifier(t, names, three), "gaussian(gamma=0.5)"), "polynomial": withMap(t, classifier(t, names, two), "polynomial(a=1,b=1,degree=5)"),
		"sigmoid": withMap(t, classifier(t, names, two), "sigmoid(a=0.5,b=-1)"), "linear": withMap(t, classifier(t, names, two), "linear"),
		"schema": withSchema(t, people, three),
	}
	missing := classifier(t, []string{"x1", "x1 missing", "x2", "x3"}, two)
	missing.Missing = wire.Missing{Features: map[string]wire.MissingPolicy{"x1": wire.MissingIndicator, "x2": wire.MissingZero}}
	all["missing"] = missing
	for name, rule := range map[string]*decision.Rule{
		"platt": decision.ByProbability([]calibration.Curve{sigmoid, sigmoid, sigmoid}), "isotonic": decision.ByProbability([]calibration.Curve{steps, steps, steps}),
		"temperature": decision.ByProbability([]calibration.Curve{calibration.Temperature{Scale: 2}, calibration.Temperature{Scale: 2}, calibration.Temperature{Scale: 2}}),
		"softmax": decision.ByProbability([]calibration.Curve{
			calibration.Softmax{Weights: []float64{1, 0, 0}}, calibration.Softmax{Weights: []float64{0, 1, 0}, Bias: 1}, calibration.Softmax{Weights: []float64{0, 0, 1}},
		}),
		"cost": decision.ByCost(three, []calibration.Curve{sigmoid, sigmoid, sigmoid}, []decision.Price{{Class: "a", Answer: "b", Cost: 7}}),
	} {
		c := classifier(t, names, three)
		c.Rule = rule
		all[name] = c
	}
	threshold := classifier(t, names, two)
	threshold.Rule = decision.ByThreshold(0.25, nil)
	all["threshold"] = threshold
	return all
}

func program(t testing.TB, c *model.Classifier) *Program {
	t.Helper()
	p, err := New(c, "f00d")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fields reads a message: the values of its fields in their order.
func fields(t testing.TB, message []byte) map[protowire.Number][][]byte {
	t.Helper()
	all := map[protowire.Number][][]byte{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		value := message[:size]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message)
		}
		all[number] = append(all[number], value)
		message = message[size:]
	}
	return all
}

// standard are the operators that graphs may have.
var standard = strings.Fields("Abs Add ArgMax Cast Concat Div Equal Exp Expand Gather Identity IsNaN Less LessOrEqual Log MatMul Max Min Mul " +
	"ReduceMax ReduceMin ReduceSum Scan Shape Squeeze Sub TfIdfVectorizer Unsqueeze Where")

// checkGraph checks that each name has one origin, before its use, and returns the operators.
func checkGraph(t testing.TB, graph []byte, outer map[string]bool) (operators []string) {
	t.Helper()
	g := fields(t, graph)
	known := map[string]bool{}
	for name := range outer {
		known[name] = true
	}
	define := func(name []byte) {
		if known[string(name)] || len(name) == 0 || !utf8.Valid(name) {
			t.Fatalf("the name %q is there twice, or is none", name)
		}
		known[string(name)] = true
	}
	for _, tensor := range g[5] {
		define(fields(t, tensor)[8][0])
	}
	for _, in := range g[11] {
		define(fields(t, in)[1][0])
	}
	for _, text := range g[1] {
		n := fields(t, text)
		for _, in := range n[1] {
			if !known[string(in)] {
				t.Fatalf("operator %s reads %q, which is not there yet", n[4][0], in)
			}
		}
		if domain := n[7]; len(domain) > 0 {
			t.Fatalf("an operator of %q", domain[0])
		}
		operator := string(n[4][0])
		if !slices.Contains(standard, operator) {
			t.Fatalf("operator %s", operator)
		}
		operators = append(operators, operator)
		for _, a := range n[5] {
			if body := fields(t, a)[6]; len(body) > 0 {
				operators = append(operators, checkGraph(t, body[0], known)...)
			}
		}
		for _, out := range n[2] {
			define(out)
		}
	}
	for _, out := range g[12] {
		if name := string(fields(t, out)[1][0]); !known[name] {
			t.Fatalf("there is no output %q", name)
		}
	}
	return operators
}

// Graphs are well formed, and together have all operators that a graph may have.
func TestONNX(t *testing.T) {
	used := map[string]bool{}
	for name, c := range cases(t) {
		for _, layout := range []Layout{Tensors, Flat} {
			p := program(t, c)
			m := fields(t, p.ONNX(layout))
			if ir, opset := m[1][0], fields(t, m[8][0]); ir[0] != onnxIR || opset[2][0][0] != onnxOpset || len(m[8]) != 1 {
				t.Errorf("%s: versions %v and %v", name, ir, opset)
			}
			for _, operator := range checkGraph(t, m[7][0], nil) {
				used[operator] = true
			}
			g := fields(t, m[7][0])
			outputs := 2
			if p.HasProbabilities() {
				outputs++
			}
			if layout == Flat {
				outputs = len(p.outputNames(Flat))
			}
			if inputs := len(g[11]); len(g[12]) != outputs || inputs != len(p.Columns()) && (inputs != 1 || layout == Flat) {
				t.Errorf("%s has %d inputs and %d outputs", name, inputs, len(g[12]))
			}
			if again := p.ONNX(layout); string(again) != string(program(t, c).ONNX(layout)) {
				t.Errorf("%s: the graph is no function of the classifier", name)
			}
		}
	}
	for _, operator := range standard {
		if !used[operator] {
			t.Errorf("no case has operator %s", operator)
		}
	}
}

// A graph does not grow with the rows of a basis.
func TestONNXOfAKernelIsShort(t *testing.T) {
	c := withMap(t, classifier(t, []string{"x1", "x2"}, []string{"a", "b", "c"}), "gaussian(gamma=1)")
	if n := len(fields(t, fields(t, program(t, c).ONNX(Tensors))[7][0])[1]); n > 30 {
		t.Errorf("%d nodes", n)
	}
}

// What other runtimes do not compute is named.
func TestWhatCannotBeExported(t *testing.T) {
	for text, want := range map[string]string{
		"title: {kind: hash, bits: 2}":           `feature "title" is a hash`,
		"sent: time":                             `feature "sent" is a time`,
		"c: {kind: category, values: {most: 9}}": `the values of category "c" are still to learn`,
	} {
		_, err := New(withSchema(t, text, []string{"a", "b"}), "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	nul := program(t, classifier(t, []string{"x\x00y"}, []string{"a", "b"}))
	_, inC := nul.C()
	_, inSQL := nul.Expression()
	_, inSelect := nul.Select([]string{"t"}, nil)
	for _, err := range []error{inC, inSQL, inSelect} {
		if err == nil || !strings.Contains(err.Error(), "has a NUL") {
			t.Error(err)
		}
	}
	if _, err := program(t, classifier(t, []string{"x"}, []string{"a", "b"})).Select([]string{"t"}, []string{"id", "Label"}); err == nil || !strings.Contains(err.Error(), `two columns "Label"`) {
		t.Error(err)
	}
}

// The texts of missing values are those of the program.
func TestMissingTexts(t *testing.T) {
	for _, text := range append([]string{"n", "N", "nil", "na", "Na", "NONE", "none", "Null", "NAN", " ", "0"}, missingTexts...) {
		if wire.IsMissing(text) != slices.Contains(missingTexts, text) {
			t.Errorf("%q is missing: %t", text, wire.IsMissing(text))
		}
	}
}

// An expression that would double again and again is refused before it takes the memory.
func TestExpressionsHaveABound(t *testing.T) {
	var features, classes []string
	for i := range 40 {
		features, classes = append(features, fmt.Sprint("x", i)), append(classes, fmt.Sprint("c", i))
	}
	c := withMap(t, classifier(t, features, classes), "polynomial(a=1,b=1,degree=32)")
	if _, err := program(t, c).Expression(); err != ErrLong {
		t.Error(err)
	}
	if text, err := program(t, c).Select([]string{"t"}, nil); err != nil || len(text) > mostExpression {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// cc is a compiler of C. Without it the test is skipped, or fails where all programs have to be.
func cc(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("cc")
	if err == nil {
		return path
	}
	if os.Getenv("STREAMD_REQUIRE_PROGRAMS") != "" {
		t.Fatal("STREAMD_REQUIRE_PROGRAMS is set, and there is no cc")
	}
	t.Skip("NOT TESTED: there is no cc")
	return ""
}

// Each file of C is one that a strict compiler takes without a warning.
func TestC(t *testing.T) {
	compiler := cc(t)
	for name, c := range cases(t) {
		text, err := program(t, c).C()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "model.c")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-o", file+".o", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s\n%s", name, err, out, text)
		}
	}
}

// The folder of MLflow has what MLmodel names, and is not written over.
func TestMLflow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	p := program(t, withSchema(t, people, []string{"a", "b"}))
	if err := p.MLflow(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "MLmodel"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`\"name\":\"age\",\"required\":false`, `\"type\":\"string\",\"name\":\"plan\",\"required\":true`, `"streamd_model": "f00d"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("MLmodel lacks %s:\n%s", want, text)
		}
	}
	for _, name := range []string{"model.onnx", "requirements.txt", "python_env.yaml"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.MLflow(dir); err == nil {
		t.Error("it was written over")
	}
}

var quoted = map[string]*regexp.Regexp{
	"sql": regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'`),
	"c":   regexp.MustCompile(`"(?:[^"\\\n]|\\[0-7]{3})*"`),
}

// bones is a text without what its quotes hold, and with one spelling of the prefix of names.
func bones(language, text string) string {
	text = quoted[language].ReplaceAllString(text, "Q")
	return regexp.MustCompile(`streamd_+`).ReplaceAllString(text, "streamd_")
}

// FuzzNames looks for names of columns, classes, values and tables that get out of their quotes.
// The text around them must be that of harmless names.
func FuzzNames(f *testing.F) {
	for _, name := range []string{`"; DROP TABLE t; --`, `'`, `''`, `\`, `\"`, "*/", "//", "a\nb", "??/", "\x00", "é\u202e", "X", "label", "streamd_1", "%s", "\t\x7f\xff"} {
		f.Add(name, name, name)
	}
	f.Fuzz(func(t *testing.T, column, class, value string) {
		if column == "" || column == "x2" || class == "" || class == "other" || value == "" || value == "known" ||
			!utf8.ValidString(column) || !utf8.ValidString(class) || !utf8.ValidString(value) { // JSON has no others
			return
		}
		for language, write := range map[string]func(p *Program, column string) (string, error){
			"c": func(p *Program, _ string) (string, error) {
				text, err := p.C()
				return string(text), err
			},
			"sql": func(p *Program, column string) (string, error) {
				label, err := p.Expression()
				if err != nil {
					return "", err
				}
				statement, err := p.Select([]string{column}, []string{column})
				if err != nil && strings.Contains(err.Error(), "two columns") {
					return "", err
				}
				return label + "\n" + statement, err
			},
		} {
			of := func(column, class, value string) (string, error) {
				c := classifier(t, []string{column, "x2"}, []string{class, "other"})
				plain, err := New(c, "")
				if err != nil {
					t.Fatal(err)
				}
				checkGraph(t, fields(t, plain.ONNX(Tensors))[7][0], nil)
				checkGraph(t, fields(t, plain.ONNX(Flat))[7][0], nil)
				text, err := write(plain, column)
				if err != nil {
					return "", err
				}
				p := &Program{Classes: plain.Classes, Planes: plain.Planes, columns: []Column{{column, true}, {"x2", false}}, schema: true}
				word := &node{op: opText, width: 1, at: []int{0}}
				x := concat(isText(word, []string{value, "known"}), &node{op: opNumbers, width: 1, at: []int{1}})
				p.ok = reduced(opAll, elementwise(opAtMost, elementwise(opAbs, x), constant(1)))
				p.values = affine(x, [][]float64{{1, 2, 3}}, []float64{0})
				p.class = &node{op: opPlace, width: 1, args: []*node{elementwise(opAtMost, constant(0), p.values)}}
				checkGraph(t, fields(t, p.ONNX(Tensors))[7][0], nil)
				more, err := write(p, column)
				return text + "\n" + more, err
			}
			want, err := of("x1", "one", "some")
			if err != nil {
				t.Fatal(err)
			}
			got, err := of(column, class, value)
			if err != nil {
				if !strings.ContainsRune(column+class+value, 0) && !strings.Contains(err.Error(), "two columns") {
					t.Fatal(err)
				}
				continue
			}
			if bones(language, got) != bones(language, want) {
				t.Errorf("%s with %q, %q and %q:\n%s\nbut with harmless names\n%s", language, column, class, value, bones(language, got), bones(language, want))
			}
		}
	})
}
