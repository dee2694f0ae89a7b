package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rounded lists the packages whose floating-point results have the same bits on every
// processor, as far as their own statements go. Not among them are the solvers of refined
// planes and of chunking-synthetic bases: incremental/newton, kernels/lp and kernels/svm, except
// for its SMO.
var rounded = []string{
	"streamd/incremental", "streamd/incremental/calibration", "streamd/incremental/confusion",
	"streamd/incremental/decision", "streamd/incremental/decode", "streamd/incremental/drift", "streamd/incremental/drift/concepts",
	"streamd/incremental/exact", "streamd/incremental/gram", "streamd/incremental/parallel",
	"streamd/incremental/prequential", "streamd/incremental/sample", "streamd/incremental/study",
	"streamd/incremental/tuning",
	"streamd/kernels", "streamd/kernels/basis", "streamd/kernels/reduce", "streamd/kernels/svm",
	"streamd/ingest/ndc", "streamd/ingest/schema", "streamd/ingest/wire", "streamd/retire",
	"streamd/cmd/streamd/dataset", "streamd/cmd/streamd/fit", "streamd/cmd/streamd/model",
}

// promised reports whether bits of a file of these packages are promised.
func promised(file string) bool {
	return filepath.Base(filepath.Dir(file)) != "svm" || filepath.Base(file) == "smo.go"
}

// A product that is added to may be fused with the sum on one processor and not on another.
// So it is either a conversion, which rounds, or a call of math.FMA.
func TestProductsAreRoundedBeforeTheyAreAdded(t *testing.T) {
	for _, p := range packagesOf(t) {
		for _, at := range p.sumsOfProducts() {
			t.Errorf("%s: write float64(x*y) or math.FMA", at)
		}
	}
}

// The compiler fuses no more than math.FMA on arm64. It also sees products in other statements
// and in functions that it inlines.
func TestTheCompilerFusesNothing(t *testing.T) {
	command := exec.Command("go", append([]string{"build", "-gcflags=-S"}, rounded...)...)
	command.Env = append(os.Environ(), "GOARCH=arm64", "GOFLAGS=")
	listing, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, listing[max(0, len(listing)-1000):])
	}
	seen, fused := map[string]bool{}, 0
	for _, found := range regexp.MustCompile(`\((/[^()]+):(\d+)\)\s+FN?M(?:ADD|SUB)[SD]\s`).FindAllSubmatch(listing, -1) {
		file, line := string(found[1]), string(found[2])
		if strings.Contains(file, "/gonum.org/") || !promised(file) {
			continue // of gonum are functions that are inlined
		}
		at := file + ":" + line
		if seen[at] {
			continue
		}
		seen[at] = true
		number, _ := strconv.Atoi(line)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if source := strings.Split(string(text), "\n")[number-1]; !strings.Contains(source, "math.FMA") {
			t.Errorf("%s is fused on arm64: %s", at, strings.TrimSpace(source))
		} else {
			fused++
		}
	}
	if fused < 10 {
		t.Errorf("only %d lines of math.FMA were found in the listing", fused)
	}
}

// The list of sums finds every form of them, and nothing that is rounded.
func TestSumsOfProducts(t *testing.T) {
	const source = `package p
import "math"
type celsius float64
func f(x, y, z float64, a []float64, c celsius, f32 float32, i int) {
	z = x*y + z       // found
	z = z + x*y       // found
	z = x*y - z       // found
	z = z - (x * y)   // found
	z = z - -(x * y)  // found
	z += x * y        // found
	a[0] -= x * a[1]  // found
	c += c * c        // found
	f32 += f32 * f32  // found
	z = g(x*y + 1)    // found
	z += 2 * x        // found
	z = float64(x*y) + z
	z += float64(x * y)
	c += celsius(c * c)
	z = math.FMA(x, y, z)
	z = x * y
	z += g(x * y)
	i += i * i
	z += 2 * 3.5
	z += x / y
	z *= x*y
}
func g(x float64) float64 { return x }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p := checked{fset: fset, files: []*ast.File{file}}
	p.check(t, "p", compiled(t, fset, "math"))
	var want []string
	for i, line := range strings.Split(source, "\n") {
		if strings.Contains(line, "// found") {
			want = append(want, strconv.Itoa(i+1))
		}
	}
	var got []string
	for _, at := range p.sumsOfProducts() {
		got = append(got, strings.Split(at, ":")[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("found in lines %v, not %v", got, want)
	}
}

// checked is a package with its types.
type checked struct {
	fset  *token.FileSet
	files []*ast.File
	info  types.Info
}

// packagesOf reads the rounded packages as they are for this processor.
func packagesOf(t *testing.T) (all []*checked) {
	t.Helper()
	fset := token.NewFileSet()
	imports := compiled(t, fset, rounded...)
	for _, name := range rounded {
		p := &checked{fset: fset}
		lines := goList(t, "-f", "{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}", name)
		for _, path := range lines {
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, file)
		}
		if len(p.files) == 0 {
			t.Fatalf("%s has no files", name)
		}
		p.check(t, name, imports)
		all = append(all, p)
	}
	return all
}

// compiled imports packages, and those that they import, as the compiler wrote them.
func compiled(t *testing.T, fset *token.FileSet, packages ...string) types.Importer {
	t.Helper()
	exports := map[string]string{}
	for _, pair := range goList(t, append([]string{"-deps", "-export", "-f", "{{.ImportPath}}={{.Export}}"}, packages...)...) {
		name, file, _ := strings.Cut(pair, "=")
		exports[name] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

func (p *checked) check(t *testing.T, name string, imports types.Importer) {
	t.Helper()
	p.info.Types = map[ast.Expr]types.TypeAndValue{}
	if _, err := (&types.Config{Importer: imports}).Check(name, p.fset, p.files, &p.info); err != nil {
		t.Fatal(err)
	}
}

// sumsOfProducts lists the places of floating-point sums and differences that have a product.
func (p *checked) sumsOfProducts() (places []string) {
	for _, file := range p.files {
		if !promised(p.fset.Position(file.Pos()).Filename) {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch e := node.(type) {
			case *ast.BinaryExpr:
				if (e.Op == token.ADD || e.Op == token.SUB) && (p.product(e.X) || p.product(e.Y)) {
					places = append(places, p.place(e))
				}
			case *ast.AssignStmt:
				if (e.Tok == token.ADD_ASSIGN || e.Tok == token.SUB_ASSIGN) && p.product(e.Rhs[0]) {
					places = append(places, p.place(e))
				}
			}
			return true
		})
	}
	return places
}

func (p *checked) place(node ast.Node) string {
	at := p.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", filepath.Base(filepath.Dir(at.Filename))+"/"+filepath.Base(at.Filename), at.Line)
}

// product reports whether e is a product of floating-point numbers that nothing has rounded.
func (p *checked) product(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		return p.product(e.X)
	case *ast.BinaryExpr:
		of := p.info.Types[e]
		basic, is := of.Type.Underlying().(*types.Basic)
		return e.Op == token.MUL && of.Value == nil && is && basic.Info()&types.IsFloat != 0
	}
	return false
}
