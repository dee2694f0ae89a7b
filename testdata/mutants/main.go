// Command mutants plants faults in the code, one at a time, and says which of them no test
// finds. Run it from the module's root:
//
//	go run ./testdata/mutants -mutants 200 -seed 1
//
// A mutant is a small edit of one file: a condition negated, a comparison shifted, a statement
// left out, an operator or a constant exchanged. The seed chooses the places, evenly over the
// packages. Each mutant is compiled through an overlay, so the tree stays as it is. A mutant that
// does not compile is no mutant: another takes its place. Nor is one of a number that changes no
// value, such as a capacity.
//
// A mutant is tried with the tests of its own package, then with those of the packages that use it,
// until one fails. Each package's tests are timed once without a mutant. The fast ones run first
// and together, the slow ones one by one, from the fastest on. A mutant that takes several times as
// long as the clean code is found.
//
// The run fails when more than one in twenty mutants survives, or when a survivor is not in
// survivors.txt beside this file. Each line there is a mutant as it is printed here and, behind a
// tab, the reason for which no test can or need find it.
package main

import (
	"bufio"
	"bytes"
	"cmp"
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
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// tests are those of a package that may find a mutant.
type tests struct {
	dir   string
	flags []string // of the test binary
}

// target is a package whose code is mutated, and the tests of others behind its own.
type target struct {
	dir  string
	then []tests
}

var (
	auditTests   = tests{"cmd/streamd/daemon", []string{"-test.run", "Receipt|Decoy|Dishonest|BlockThatStays|KeepsARetired|ServedModel"}}
	daemonTests  = tests{"cmd/streamd/daemon", []string{"-test.short"}}
	receiptTests = tests{"cmd/streamd", []string{"-test.run", "TestScripts/^(receipt|retire|control)"}}
	fitTests     = tests{"cmd/streamd", []string{"-test.run", "TestScripts/^(fit|tune|fold)"}}
	studyTests   = tests{"incremental/study", nil}
	witnessTests = tests{"cmd/streamd/daemon", []string{"-test.run", "Witness"}}
	fitPackage   = tests{"cmd/streamd/fit", nil}
)

var targets = []target{
	{"cmd/streamd/daemon/live", []tests{daemonTests}},
	{"cmd/streamd/daemon/timeline", []tests{daemonTests}},
	{"cmd/streamd/daemon/intake", []tests{daemonTests}},
	{"cmd/streamd/audit", []tests{auditTests, receiptTests, daemonTests}},
	{"retire/receipt", []tests{receiptTests, daemonTests}},
	{"incremental/drift", []tests{daemonTests}},
	{"incremental/tuning", []tests{studyTests, fitTests, daemonTests}},
	{"incremental/study", []tests{fitTests, daemonTests}},
	{"cmd/streamd/fit", []tests{fitTests}},
	{"cmd/streamd/daemon/witness", []tests{witnessTests, daemonTests}},
	{"cmd/streamd/dataset", []tests{fitPackage, fitTests}},
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
	flag.Parse()
	if err := run(*n, *seed, *only, *own); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(n int, seed uint64, only string, own bool) error {
	reasons, err := readReasons("testdata/mutants/survivors.txt")
	if err != nil {
		return err
	}
	var chosen []target
	streams := map[string]uint64{} // of random numbers, so that a package's mutants are those of the whole run
	for i, t := range targets {
		streams[t.dir] = uint64(i)
		if only == "" || t.dir == only {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("%s is not one of the packages", only)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &runner{dir: dir, clean: map[string]func() (*suite, error){}}
	for _, t := range targets {
		for _, of := range append(t.then, tests{t.dir, nil}) {
			r.clean[of.name()] = sync.OnceValues(func() (*suite, error) { return r.time(of) })
		}
	}
	known := map[string]bool{}
	counts := make([]count, len(chosen))
	var together errgroup.Group
	together.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range chosen {
		found, err := mutantsOf(t.dir)
		if err != nil {
			return err
		}
		for _, m := range found {
			known[m.name] = true
		}
		places := rand.New(rand.NewPCG(seed, streams[t.dir]))
		places.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		share := n / len(chosen)
		if i < n%len(chosen) {
			share++
		}
		if own {
			t.then = nil
		}
		together.Go(func() error {
			var err error
			counts[i], err = r.try(t, found, share, reasons)
			return err
		})
	}
	if err := together.Wait(); err != nil {
		return err
	}
	var all count
	for i, c := range counts {
		fmt.Printf("%s: %d mutants, %d survived, %d of them without a reason\n", chosen[i].dir, c.made, c.survived, c.unexplained)
		all.made, all.survived, all.unexplained = all.made+c.made, all.survived+c.survived, all.unexplained+c.unexplained
	}
	fmt.Printf("%d mutants, %d survived, %d of them without a reason\n", all.made, all.survived, all.unexplained)
	for name := range reasons {
		if file, _, _ := strings.Cut(name, " "); !known[name] && (only == "" || filepath.Dir(file) == only) {
			return fmt.Errorf("survivors.txt has a mutant that there is not any more: %s", name)
		}
	}
	if all.made < n {
		return fmt.Errorf("the packages have no more than %d mutants", all.made)
	}
	if all.unexplained > 0 || 20*all.survived > all.made {
		return errors.New("too many mutants survived")
	}
	return nil
}

// count is how many mutants of a package were tried.
type count struct{ made, survived, unexplained int }

// runner compiles and runs tests, in a folder of its own.
type runner struct {
	dir   string
	clean map[string]func() (*suite, error) // the tests without a mutant, timed once, by name
}

// step is a run of some of a package's tests.
type step struct {
	pattern string // the flag -test.run; empty: that of the tests
	clean   time.Duration
}

// suite is the tests of a package without a mutant.
type suite struct {
	binary string
	steps  []step // from the fastest on
}

func (t tests) name() string { return strings.Join(append([]string{t.dir}, t.flags...), " ") }

// try tries mutants of a package until n of them have compiled.
func (r *runner) try(t target, found []mutant, n int, reasons map[string]string) (c count, err error) {
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		return c, err
	}
	for _, m := range found {
		if c.made == n {
			break
		}
		began := time.Now()
		overlay, err := overlayOf(m, dir)
		if err != nil {
			return c, err
		}
		verdict := survived
		for i, of := range append([]tests{{t.dir, nil}}, t.then...) {
			binary := filepath.Join(dir, "mutant.test")
			if out, err := compile(of, binary, overlay); err != nil && i == 0 {
				verdict = notCompiled
			} else if err != nil {
				return c, fmt.Errorf("compile the tests of %s with %s: %w\n%s", of.dir, m.name, err, out)
			} else if verdict, err = r.find(of, binary); err != nil {
				return c, err
			}
			if verdict != survived {
				break
			}
		}
		if verdict == notCompiled {
			continue
		}
		c.made++
		if verdict == survived {
			c.survived++
			if reason, ok := reasons[m.name]; ok {
				verdict += ", as known: " + reason
			} else {
				c.unexplained++
			}
		}
		fmt.Printf("%3d %4.0f s %s: %s\n", c.made, time.Since(began).Seconds(), verdict, m.name)
	}
	return c, nil
}

const (
	survived    = "SURVIVED"
	notCompiled = "not compiled"
)

// overlayOf writes the file of a mutant, and the overlay that puts it in the place of the file.
func overlayOf(m mutant, dir string) (overlay string, err error) {
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
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// compile makes the test binary of a package.
func compile(t tests, binary, overlay string) (out []byte, err error) {
	return exec.Command("go", "test", "-c", "-vet", "off", "-overlay", overlay, "-o", binary, "./"+t.dir).CombinedOutput()
}

// most is how much memory a test may take, in KiB: a mutant that allocates without an end is to end
// by itself. Maps of files do not count.
const most = 4 << 20

// start runs a test binary in the folder of its package.
func start(t tests, binary string, limit time.Duration, flags ...string) (out []byte, late bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{"-c", fmt.Sprintf(`ulimit -d %d; exec "$0" "$@"`, most), binary, "-test.failfast"}, t.flags...)
	test := exec.CommandContext(ctx, "sh", append(args, flags...)...)
	test.Dir, test.WaitDelay = t.dir, 10*time.Second
	out, err = test.CombinedOutput()
	return out, ctx.Err() != nil, err
}

// find runs the tests of a binary from the fastest on, until one fails.
func (r *runner) find(t tests, binary string) (verdict string, err error) {
	clean, err := r.clean[t.name()]()
	if err != nil {
		return "", err
	}
	for _, s := range clean.steps {
		var flags []string
		if s.pattern != "" {
			flags = []string{"-test.run", s.pattern}
		}
		limit := func(clean time.Duration) time.Duration { return 5*clean + 20*time.Second }
		out, late, err := start(t, binary, limit(s.clean), flags...)
		if late { // other work on the machine must not look like a mutant's loop
			began := time.Now()
			if out, _, err := start(t, clean.binary, time.Hour, flags...); err != nil {
				return "", fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", t.dir, err, out)
			}
			out, late, err = start(t, binary, limit(max(s.clean, time.Since(began))), flags...)
		}
		switch {
		case late:
			return "found in time by " + t.dir, nil
		case err != nil:
			return "found by " + firstFailure(out, t.dir), nil
		}
	}
	return survived, nil
}

// fast is the time of a test that is not worth a process of its own.
const fast = 100 * time.Millisecond

var passed = regexp.MustCompile(`(?m)^--- PASS: (\S+) \(([0-9.]+)s\)$`)

// time runs the tests of a package without a mutant, and orders them by the time they take.
func (r *runner) time(t tests) (*suite, error) {
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		return nil, err
	}
	binary, overlay := filepath.Join(dir, "clean.test"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, []byte("{}"), 0o600); err != nil {
		return nil, err
	}
	if out, err := compile(t, binary, overlay); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", t.dir, err, out)
	}
	began := time.Now()
	out, _, err := start(t, binary, time.Hour, "-test.v")
	if err != nil {
		return nil, fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", t.dir, err, out)
	}
	if slices.Contains(t.flags, "-test.run") {
		return &suite{binary, []step{{clean: time.Since(began)}}}, nil
	}
	var quick []string
	var steps []step
	for _, m := range passed.FindAllSubmatch(out, -1) {
		seconds, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return nil, err
		}
		took, name := time.Duration(seconds*float64(time.Second)), regexp.QuoteMeta(string(m[1]))
		if took <= fast {
			quick = append(quick, name)
		} else {
			steps = append(steps, step{"^" + name + "$", took})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.clean, b.clean) })
	if len(quick) > 0 {
		steps = slices.Insert(steps, 0, step{"^(" + strings.Join(quick, "|") + ")$", time.Duration(len(quick)) * fast})
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%s has no tests", t.dir)
	}
	return &suite{binary, steps}, nil
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
		seen := map[string]int{} // methods of several types may have one name
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
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
	idle := map[ast.Node]bool{} // arguments that change no value
	ast.Inspect(body, func(n ast.Node) bool {
		if idle[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.CallExpr:
			if a := idleArgument(n); a != nil {
				idle[a] = true
			}
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

// idleArgument returns the argument of a call that may be another one: a capacity, or a positive
// number for math.Inf, of which only the sign counts. It is nil for other calls.
func idleArgument(n *ast.CallExpr) ast.Node {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		if f.Name == "make" && len(n.Args) == 3 {
			return n.Args[2]
		}
	case *ast.SelectorExpr:
		switch text := fmt.Sprint(f.X, ".", f.Sel.Name); text {
		case "slices.Grow":
			return n.Args[1]
		case "math.Inf":
			if lit, ok := n.Args[0].(*ast.BasicLit); ok {
				return lit
			}
		}
	}
	return nil
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
