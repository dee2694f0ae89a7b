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
// A mutant is tried with the tests of its own package. One that survives them is tried with the
// tests of the packages that use it, until one fails. Each test is run once without a mutant to
// learn its time and the lines it reaches. A mutant meets only the tests that reach it: the fast
// ones first and together, the slow ones one by one, from the fastest on. What a test does in a
// process of its own is not seen, so the scripts of streamd are run for each mutant. A test finds a
// mutant when it fails twice, or takes several times as long as without the mutant.
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
	flags []string // of the test binary; with -test.run the tests run together, for every mutant
}

// target is a package whose code is mutated, and the tests of others behind its own.
type target struct {
	dir  string
	then []tests
}

var (
	daemonTests  = tests{"cmd/streamd/daemon", []string{"-test.short"}}
	receiptTests = tests{"cmd/streamd", []string{"-test.run", "TestScripts/^(receipt|retire|control)"}}
	fitTests     = tests{"cmd/streamd", []string{"-test.run", "TestScripts/^(fit|tune|fold|sums)"}}
	studyTests   = tests{"incremental/study", nil}
	fitPackage   = tests{"cmd/streamd/fit", nil}
	sumsPackage  = tests{"cmd/streamd/summarise", nil}
)

var targets = []target{
	{"cmd/streamd/daemon/live", []tests{daemonTests}},
	{"cmd/streamd/daemon/timeline", []tests{daemonTests}},
	{"cmd/streamd/daemon/intake", []tests{sumsPackage, daemonTests}},
	{"cmd/streamd/audit", []tests{daemonTests, receiptTests}},
	{"retire/receipt", []tests{daemonTests, receiptTests}},
	{"incremental/drift", []tests{daemonTests}},
	{"incremental/tuning", []tests{studyTests, daemonTests, fitTests}},
	{"incremental/study", []tests{daemonTests, fitTests}},
	{"cmd/streamd/fit", []tests{fitTests}},
	{"cmd/streamd/daemon/witness", []tests{daemonTests}},
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
	at   position
}

// position is a place in a file. Columns count bytes.
type position struct{ line, column int }

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
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
	var together, others errgroup.Group
	together.SetLimit(runtime.GOMAXPROCS(0))
	seats := make(chan struct{}, 2*runtime.GOMAXPROCS(0)) // tests of the daemon wait more than they compute
	var m sync.Mutex                                      // guards what counts have of survivors
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
		tryOthers := func(left mutant) error {
			seats <- struct{}{}
			defer func() { <-seats }()
			verdict, err := r.tryOthers(t, left)
			if err != nil || verdict != survived {
				return err
			}
			m.Lock()
			defer m.Unlock()
			counts[i].survived++
			if reason, ok := reasons[left.name]; ok {
				fmt.Printf("%s, as known: %s: %s\n", survived, reason, left.name)
			} else {
				counts[i].unexplained++
				fmt.Printf("%s: %s\n", survived, left.name)
			}
			return nil
		}
		together.Go(func() error {
			made, err := r.try(t, found, share, func(left mutant) {
				others.Go(func() error { return tryOthers(left) })
			})
			counts[i].made = made
			return err
		})
	}
	if err := together.Wait(); err != nil {
		return err
	}
	if err := others.Wait(); err != nil {
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
	binary  string
	whole   time.Duration // of tests that run together; tests and reached are then empty
	tests   []timed       // from the fastest on
	reached map[string]map[block][]int
}

// timed is a test and the time it takes.
type timed struct {
	name string
	took time.Duration
}

// block is a stretch of statements that are run together. For a file and a block, suite.reached
// has the places of the tests that run it.
type block struct{ from, to position }

func (t tests) name() string { return strings.Join(append([]string{t.dir}, t.flags...), " ") }

// try tries mutants of a package with its own tests until n of them have compiled, and returns
// how many did. It hands on those that no test finds.
func (r *runner) try(t target, found []mutant, n int, handOn func(mutant)) (made int, err error) {
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		return 0, err
	}
	for _, m := range found {
		if made == n {
			break
		}
		began := time.Now()
		verdict, out, err := r.tryWith(tests{t.dir, nil}, m, dir)
		if err != nil {
			return made, fmt.Errorf("%w\n%s", err, out)
		}
		if verdict == notCompiled {
			continue
		}
		made++
		if verdict == survived {
			fmt.Printf("%4.0f s left by the tests of its package: %s\n", time.Since(began).Seconds(), m.name)
			handOn(m)
		} else {
			fmt.Printf("%4.0f s %s: %s\n", time.Since(began).Seconds(), verdict, m.name)
		}
	}
	return made, nil
}

// tryOthers tries a mutant with the tests of the packages that use its own.
func (r *runner) tryOthers(t target, m mutant) (verdict string, err error) {
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	for _, of := range t.then {
		verdict, out, err := r.tryWith(of, m, dir)
		switch {
		case err != nil:
			return "", err
		case verdict == notCompiled:
			return "", fmt.Errorf("compile the tests of %s with %s:\n%s", of.dir, m.name, out)
		case verdict != survived:
			fmt.Printf("%4.0f s %s: %s\n", time.Since(began).Seconds(), verdict, m.name)
			return verdict, nil
		}
	}
	return survived, nil
}

// tryWith tries a mutant with tests of one package. If it does not compile, out is what the
// compiler says.
func (r *runner) tryWith(of tests, m mutant, dir string) (verdict string, out []byte, err error) {
	clean, err := r.clean[of.name()]()
	if err != nil {
		return "", nil, err
	}
	steps := clean.steps(m)
	if own := of.dir == filepath.Dir(m.file); len(steps) == 0 && !own {
		return survived, nil, nil
	}
	overlay, err := overlayOf(m, dir)
	if err != nil {
		return "", nil, err
	}
	binary := filepath.Join(dir, "mutant.test")
	if out, err := compile(of, binary, "-overlay", overlay); err != nil {
		return notCompiled, out, nil
	}
	verdict, err = find(of, binary, clean.binary, steps)
	return verdict, nil, err
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

// compile makes the test binary of a package, without what only a debugger reads.
func compile(t tests, binary string, flags ...string) (out []byte, err error) {
	args := append([]string{"test", "-c", "-vet", "off", "-ldflags", "-s -w", "-o", binary}, flags...)
	return exec.Command("go", append(args, "./"+t.dir)...).CombinedOutput()
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

// find runs tests of a mutant's binary, step by step, until one fails. The binary clean has no
// mutant.
func find(t tests, binary, clean string, steps []step) (verdict string, err error) {
	for _, s := range steps {
		var flags []string
		if s.pattern != "" {
			flags = []string{"-test.run", s.pattern}
		}
		limit := func(clean time.Duration) time.Duration { return 5*clean + 20*time.Second }
		out, late, err := start(t, binary, limit(s.clean), flags...)
		if late { // other work on the machine must not look like a mutant's loop
			began := time.Now()
			if out, _, err := start(t, clean, time.Hour, flags...); err != nil {
				return "", fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", t.dir, err, out)
			}
			s.clean = max(s.clean, time.Since(began))
			out, late, err = start(t, binary, limit(s.clean), flags...)
		} else if err != nil { // nor like a fault
			out, late, err = start(t, binary, limit(s.clean), flags...)
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

// time runs the tests of a package without a mutant, each in a process of its own, to learn what
// they reach and how long they take.
func (r *runner) time(t tests) (*suite, error) {
	dir, err := os.MkdirTemp(r.dir, "")
	if err != nil {
		return nil, err
	}
	s := &suite{binary: filepath.Join(dir, "clean.test"), reached: map[string]map[block][]int{}}
	// The profile of tests that run together is not read. Without one, a script's streamd does not
	// warn on stderr that it has no place for a profile.
	together := slices.Contains(t.flags, "-test.run")
	var flags []string
	if !together {
		var mutated []string
		for _, t := range targets {
			mutated = append(mutated, "./"+t.dir)
		}
		flags = []string{"-coverpkg", strings.Join(mutated, ",")}
	}
	if out, err := compile(t, s.binary, flags...); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", t.dir, err, out)
	}
	run := func(flags ...string) (out []byte, took time.Duration, err error) {
		began := time.Now()
		if out, _, err = start(t, s.binary, time.Hour, flags...); err != nil { // for other work on the machine
			out, _, err = start(t, s.binary, time.Hour, flags...)
		}
		if err != nil {
			err = fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", t.dir, err, out)
		}
		return out, time.Since(began), err
	}
	if together {
		_, s.whole, err = run()
		return s, err
	}
	names, _, err := run("-test.list", "^Test")
	if err != nil {
		return nil, err
	}
	for name := range strings.Lines(string(names)) {
		if strings.HasPrefix(name, "Test") {
			s.tests = append(s.tests, timed{name: strings.TrimSpace(name)})
		}
	}
	if len(s.tests) == 0 {
		return nil, fmt.Errorf("%s has no tests", t.dir)
	}
	var running errgroup.Group
	running.SetLimit(runtime.GOMAXPROCS(0))
	for i := range s.tests {
		running.Go(func() (err error) {
			c := &s.tests[i]
			_, c.took, err = run("-test.run", c.pattern(), "-test.coverprofile", filepath.Join(dir, c.name))
			return err
		})
	}
	if err := running.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(s.tests, func(a, b timed) int { return cmp.Compare(a.took, b.took) })
	for i, c := range s.tests {
		if err := s.readProfile(filepath.Join(dir, c.name), i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (t *timed) pattern() string { return "^" + regexp.QuoteMeta(t.name) + "$" }

// readProfile notes the blocks that a test reaches.
func (s *suite) readProfile(profile string, test int) error {
	lines, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(lines)) {
		file, rest, ok := strings.Cut(strings.TrimPrefix(line, module), ":")
		if file == "mode" || !ok {
			continue
		}
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.from.line, &b.from.column, &b.to.line, &b.to.column, &statements, &count); err != nil {
			return fmt.Errorf("%s: %q: %w", profile, line, err)
		}
		if s.reached[file] == nil {
			s.reached[file] = map[block][]int{}
		}
		reaching := s.reached[file][b]
		if count > 0 {
			reaching = append(reaching, test)
		}
		s.reached[file][b] = reaching
	}
	return nil
}

// module is what a profile has before the files' names.
const module = "streamd/"

// fast is the time of a test that is not worth a process of its own.
const fast = 200 * time.Millisecond

// steps returns the tests that may find a mutant, in the order in which they are run.
func (s *suite) steps(m mutant) []step {
	if s.whole > 0 {
		return []step{{clean: s.whole}}
	}
	var reaching []int
	within := false
	for b, tests := range s.reached[m.file] {
		if !m.at.before(b.from) && m.at.before(b.to) {
			reaching, within = append(reaching, tests...), true
		}
	}
	if !within { // as the expression of a case is
		for _, tests := range s.reached[m.file] {
			reaching = append(reaching, tests...)
		}
	}
	slices.Sort(reaching)
	reaching = slices.Compact(reaching)
	var quick []string
	var together time.Duration
	var steps []step
	for _, i := range reaching {
		if c := s.tests[i]; c.took <= fast {
			quick = append(quick, regexp.QuoteMeta(c.name))
			together += c.took
		} else {
			steps = append(steps, step{c.pattern(), c.took})
		}
	}
	if len(quick) > 0 {
		steps = slices.Insert(steps, 0, step{"^(" + strings.Join(quick, "|") + ")$", together})
	}
	return steps
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
				all = append(all, mutant{e, name, positionOf(source, e.from)})
			}
		}
	}
	return all, nil
}

// positionOf returns the position of an offset in a file.
func positionOf(source []byte, offset int) position {
	before := source[:offset]
	return position{bytes.Count(before, []byte("\n")) + 1, offset - bytes.LastIndexByte(before, '\n')}
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
				replace(n.Pos(), n.End(), "("+n.Value+"+1)")
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

// idleArgument returns the argument of a call that may be another one: a capacity, or the
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
			arg := n.Args[0]
			if minus, ok := arg.(*ast.UnaryExpr); ok {
				arg = minus.X
			}
			if lit, ok := arg.(*ast.BasicLit); ok {
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
