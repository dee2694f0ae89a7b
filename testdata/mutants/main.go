// Command mutants plants faults in the code, one at a time, and says which of them no test
// finds. Run it from the module's root:
//
//	go run ./testdata/mutants -mutants 200 -seed 1
//
// A mutant is a small edit of one file: a condition negated, a comparison shifted, a statement
// left out, an operator or a constant exchanged. The seed chooses the places, evenly over the
// packages. Each mutant is compiled through an overlay, so the tree stays as it is. First run the
// tests of its own package, then those of the packages that use it, until one fails. A mutant
// that does not compile is no mutant: another takes its place.
//
// The run fails when more than one in twenty mutants survives, or when a survivor is not in
// survivors.txt beside this file. Each line there is a mutant as it is printed here and, behind a
// tab, the reason for which no test can or need find it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is a package whose code is mutated. Behind its own tests come those of other packages,
// as arguments of go test.
type target struct {
	dir  string
	then [][]string
}

var (
	daemonTests  = []string{"./cmd/streamd/daemon", "-short"}
	receiptTests = []string{"./cmd/streamd", "-run", "TestScripts/(receipt|retire|control)"}
	fitTests     = []string{"./cmd/streamd", "-run", "TestScripts/(fit|tune|fold)"}
)

var targets = []target{
	{"cmd/streamd/daemon/live", [][]string{daemonTests}},
	{"cmd/streamd/daemon/timeline", [][]string{daemonTests}},
	{"cmd/streamd/daemon/intake", [][]string{daemonTests}},
	{"cmd/streamd/audit", [][]string{receiptTests, daemonTests}},
	{"retire/receipt", [][]string{receiptTests, daemonTests}},
	{"incremental/drift", [][]string{daemonTests}},
	{"incremental/tuning", [][]string{{"./incremental/study"}, fitTests, daemonTests}},
	{"incremental/study", [][]string{fitTests, daemonTests}},
}

// edit replaces the bytes [from, to) of a file.
type edit struct {
	file     string // as seen from the module's root
	from, to int
	text     string
}

// mutant is an edit as it is printed: the file, the function, the line before and after.
type mutant struct {
	edit
	name string
}

func main() {
	n := flag.Int("mutants", 200, "number of mutants")
	seed := flag.Uint64("seed", 1, "seed of their places")
	only := flag.String("package", "", "mutate this folder alone")
	own := flag.Bool("own", false, "run the tests of the mutant's own package alone")
	limit := flag.Duration("timeout", 15*time.Minute, "the most time for the tests of a package; a mutant that takes longer is found")
	flag.Parse()
	if err := run(*n, *seed, *only, *own, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(n int, seed uint64, only string, own bool, limit time.Duration) error {
	reasons, err := readReasons("testdata/mutants/survivors.txt")
	if err != nil {
		return err
	}
	places := make([][]mutant, 0, len(targets))
	chosen := slices.Clone(targets)
	if only != "" {
		chosen = slices.DeleteFunc(chosen, func(t target) bool { return t.dir != only })
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for _, t := range chosen {
		found, err := mutantsOf(t.dir)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("no place for a mutant in %s", t.dir)
		}
		r.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		places = append(places, found)
	}
	if len(chosen) == 0 {
		return fmt.Errorf("%s is not one of the packages", only)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var survivors, unexplained int
	made, empty := 0, 0
	for i := 0; made < n && empty < len(chosen); i = (i + 1) % len(chosen) {
		if len(places[i]) == 0 {
			empty++
			continue
		}
		empty = 0
		m := places[i][0]
		places[i] = places[i][1:]
		began := time.Now()
		verdict, err := try(m, chosen[i], own, dir, limit)
		if err != nil {
			return err
		}
		if verdict == notCompiled {
			i-- // another of the same package
			continue
		}
		made++
		if verdict == survived {
			survivors++
			if reason, ok := reasons[m.name]; ok {
				verdict += ", as known: " + reason
			} else {
				unexplained++
			}
		}
		fmt.Printf("%3d %4.0f s %s: %s\n", made, time.Since(began).Seconds(), verdict, m.name)
	}
	fmt.Printf("%d mutants, %d survived, %d of them without a reason\n", made, survivors, unexplained)
	if made == 0 {
		return errors.New("no mutant was made")
	}
	if unexplained > 0 || 20*survivors > made {
		return errors.New("too many mutants survived")
	}
	return nil
}

const (
	survived    = "SURVIVED"
	notCompiled = "not compiled"
)

// try says what found the mutant.
func try(m mutant, t target, own bool, dir string, limit time.Duration) (verdict string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	mutated := slices.Concat(source[:m.from], []byte(m.text), source[m.to:])
	file, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, mutated, 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	content, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		return "", err
	}
	if exec.Command("go", "build", "-overlay", overlay, "./"+t.dir).Run() != nil {
		return notCompiled, nil
	}
	tests := [][]string{{"./" + t.dir}}
	if !own {
		tests = append(tests, t.then...)
	}
	for _, args := range tests {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		test := exec.CommandContext(ctx, "go", append([]string{"test", "-overlay", overlay, "-vet", "off", "-count", "1", "-failfast"}, args...)...)
		test.WaitDelay = 10 * time.Second
		out, err := test.CombinedOutput()
		late := ctx.Err() != nil
		cancel()
		switch {
		case late:
			return "found in time by " + args[0], nil
		case err != nil:
			return "found by " + firstFailure(out, args[0]), nil
		}
	}
	return survived, nil
}

// firstFailure is the name of the first failed test in the output of go test.
func firstFailure(out []byte, otherwise string) string {
	for line := range bytes.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
	}
	return otherwise
}

// mutantsOf lists the mutants of the package in a folder, in the order of its files.
func mutantsOf(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, source, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			seen := map[string]int{}
			for _, e := range edits(f.Body, source, func(p token.Pos) int { return set.Position(p).Offset }) {
				e.file = file
				before := strings.Join(strings.Fields(string(source[e.from:e.to])), " ")
				name := fmt.Sprintf("%s %s: %s -> %s", file, f.Name.Name, shortened(before), shortened(e.text))
				seen[name]++
				if seen[name] > 1 {
					name += " #" + strconv.Itoa(seen[name])
				}
				all = append(all, mutant{e, name})
			}
		}
	}
	return all, nil
}

func shortened(text string) string {
	const most = 80
	if text == "" {
		return "nothing"
	}
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// swaps has for an operator the one that takes its place.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

// edits lists the edits of a function's body.
func edits(body *ast.BlockStmt, source []byte, at func(token.Pos) int) []edit {
	var all []edit
	replace := func(from, to token.Pos, text string) {
		all = append(all, edit{from: at(from), to: at(to), text: text})
	}
	text := func(n ast.Node) string { return string(source[at(n.Pos()):at(n.End())]) }
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			other, ok := swaps[n.Op]
			if !ok || isText(n.X) || isText(n.Y) {
				break
			}
			all = append(all, edit{from: at(n.X.Pos()), to: at(n.Y.End()), text: string(source[at(n.X.Pos()):at(n.OpPos)]) +
				other.String() + string(source[at(n.OpPos)+len(n.Op.String()):at(n.Y.End())])})
		case *ast.IfStmt:
			if !leavesWithError(n) {
				replace(n.Cond.Pos(), n.Cond.End(), "!("+text(n.Cond)+")")
				replace(n.Cond.Pos(), n.Cond.End(), "false && ("+text(n.Cond)+")")
			}
		case *ast.BasicLit:
			if n.Kind == token.INT {
				replace(n.Pos(), n.End(), n.Value+"+1")
			}
		case *ast.ExprStmt:
			replace(n.Pos(), n.End(), "")
		case *ast.IncDecStmt:
			replace(n.Pos(), n.End(), "")
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				replace(n.Pos(), n.End(), "")
			}
		case *ast.BranchStmt:
			if n.Label == nil && n.Tok != token.FALLTHROUGH {
				replace(n.Pos(), n.End(), "")
			}
		case *ast.Ident:
			if n.Name == "true" || n.Name == "false" {
				replace(n.Pos(), n.End(), strconv.FormatBool(n.Name == "false"))
			}
		}
		return true
	})
	return all
}

// isText reports whether x is a text, which has no operator but +.
func isText(x ast.Expr) bool {
	l, ok := x.(*ast.BasicLit)
	return ok && l.Kind == token.STRING
}

// leavesWithError reports whether the statement only hands on an error of another call. Such
// errors are of disks and networks, and tests of them stand elsewhere.
func leavesWithError(s *ast.IfStmt) bool {
	c, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ {
		return false
	}
	x, ok := c.X.(*ast.Ident)
	return ok && x.Name == "err"
}

// readReasons reads the survivors that are known.
func readReasons(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reasons := map[string]string{}
	lines := bufio.NewScanner(f)
	for line := 1; lines.Scan(); line++ {
		name, reason, ok := strings.Cut(lines.Text(), "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: want a mutant, a tab and a reason", file, line)
		}
		reasons[name] = reason
	}
	return reasons, lines.Err()
}
